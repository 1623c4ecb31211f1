//! The paths of packets: the path selector, and trains. All packets of a train take one path.

use super::Tx;
use crate::base::{Rng, Time};
use crate::cc::{self, PathSelector, PathSignal};
use crate::config::Config;

/// The path selector of a sending half and the train that is being filled.
#[derive(Debug)]
pub(super) struct Route {
    path: u16,
    /// A path on which packets arrived and none was lost since; [`NO_PATH`] for none. Packets lost
    /// elsewhere are retransmitted on it, because another path may have failed, too.
    proven: u16,
    /// The number of packets that still fit the current train; `bytes` is the number of bytes.
    packets: u16,
    bytes: u16,
    selector: cc::Paths,
}

/// Value that stands for no path; paths have smaller numbers.
const NO_PATH: u16 = u16::MAX;

/// Returns the path of a packet for which one of `paths` was chosen; congestion control may choose
/// another one.
#[inline]
pub(super) fn stamped_path(stamp: &cc::Stamp, chosen: u16, paths: u16) -> u16 {
    stamp.path.map_or(chosen, |path| path % paths)
}

/// Returns the state of a sending half's path selector, for statistics.
pub(crate) fn path_metrics<D: Copy>(tx: &Tx<D>) -> cc::PathMetrics {
    tx.route.selector.metrics()
}

/// Forgets the path known to work and the current train, because packets use other source ports
/// from now on.
pub(crate) fn forget_route<D: Copy>(tx: &mut Tx<D>) {
    (tx.route.proven, tx.route.packets) = (NO_PATH, 0);
}

impl Route {
    /// Creates a route that has not chosen a path for a train yet.
    pub(super) fn new(config: &cc::PathsConfig, rng: Rng) -> Self {
        Self {
            path: 0,
            proven: NO_PATH,
            packets: 0,
            bytes: 0,
            selector: cc::Paths::new(config, rng),
        }
    }

    /// Returns the path of the newest packet train.
    #[inline]
    pub(super) const fn path(&self) -> u16 {
        self.path
    }

    /// Returns whether a packet of `bytes` needs another train, because the newest is full or uses
    /// path `avoid`.
    #[inline]
    pub(super) fn needs_train(&self, bytes: u32, avoid: Option<u16>) -> bool {
        let better = avoid.and_then(|avoid| self.proven_path(avoid));
        self.packets == 0
            || u32::from(self.bytes) < bytes
            || avoid == Some(self.path)
            || better.is_some_and(|better| better != self.path)
    }

    /// Returns a path known to work, for a packet that was lost on `avoid`.
    fn proven_path(&self, avoid: u16) -> Option<u16> {
        Some(self.proven).filter(|path| *path != NO_PATH && *path != avoid)
    }

    /// Records that a packet arrived on `path`, which therefore works.
    #[inline]
    pub(super) fn record_proven_path(&mut self, path: u16) {
        self.proven = path;
    }

    /// Begins a train for a packet of `bytes` and more, on one of `paths` paths; never `avoid` if
    /// there is another. The congestion window is `window` packets.
    #[inline]
    pub(super) fn begin(
        &mut self,
        now: Time,
        bytes: u32,
        avoid: Option<u16>,
        window: u32,
        paths: u16,
        config: &Config,
    ) {
        let mut path = match avoid.and_then(|avoid| self.proven_path(avoid)) {
            Some(path) => path,
            None => self.selector.pick(now, window),
        };
        if avoid == Some(path) {
            path = self.selector.pick(now, window);
        }
        if avoid == Some(path) && paths > 1 {
            path = (path + 1) % paths;
        }
        self.path = path;
        self.packets = config.train_packets.max(1);
        self.bytes = u16::try_from(config.train_bytes.max(bytes)).unwrap_or(u16::MAX);
    }

    /// Returns how many packets of `bytes` each still fit the newest train.
    #[inline]
    pub(super) fn room(&self, bytes: u32) -> u16 {
        let fit = u32::from(self.bytes) / bytes.max(1);
        u16::try_from(fit).map_or(self.packets, |fit| fit.min(self.packets))
    }

    /// Adds `count` packets of `bytes`, which must fit, to the train. Returns their path.
    #[inline]
    pub(super) fn join(&mut self, bytes: u32, count: u16) -> u16 {
        self.packets -= count;
        let taken = u16::try_from(bytes * u32::from(count)).unwrap_or(u16::MAX);
        self.bytes = self.bytes.saturating_sub(taken);
        self.path
    }

    /// Informs the path selector of the fate of a packet on `path`.
    #[inline]
    pub(super) fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        if signal == PathSignal::Good {
            self.record_proven_path(path);
        }
        self.selector.on_feedback(now, path, signal);
    }

    /// Handles that a packet on `path` was lost. Returns how often that made the selector freeze
    /// its choice.
    pub(super) fn on_loss(&mut self, now: Time, path: u16, signal: PathSignal) -> u32 {
        if path == self.path {
            // The rest of the train takes another path.
            self.packets = 0;
        }
        if path == self.proven {
            self.proven = NO_PATH;
        }
        let before = self.selector.metrics().freezes;
        self.selector.on_feedback(now, path, signal);
        self.selector.metrics().freezes.saturating_sub(before)
    }

    /// Informs the path selector that the flow has nothing in flight and nothing to send.
    #[inline]
    pub(super) fn on_idle(&mut self, now: Time) {
        self.selector.on_idle(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    /// Returns a route over `paths` paths, and parameters with trains of 3 packets or 5000 bytes.
    fn route(paths: u16) -> (Route, Config) {
        let selector = PathsConfig::oblivious(paths).expect("some paths");
        let config = Config {
            train_packets: 3,
            train_bytes: 5000,
            ..Config::new(4096, SenderConfig::fixed(1), selector.clone(), 1)
        };
        (Route::new(&selector, Rng::new(1)), config)
    }

    fn begin(
        route: &mut Route,
        bytes: u32,
        avoid: Option<u16>,
        paths: u16,
        config: &Config,
    ) -> u16 {
        assert!(route.needs_train(bytes, avoid));
        route.begin(Time(1), bytes, avoid, 9, paths, config);
        route.join(bytes, 1)
    }

    #[test]
    fn a_train_ends_with_its_packets_or_its_bytes() {
        let (mut route, config) = route(16);
        let path = begin(&mut route, 100, None, 16, &config);
        for _ in 0..2 {
            assert!(!route.needs_train(100, None));
            assert_eq!(route.join(100, 1), path);
        }
        assert!(route.needs_train(100, None));
        begin(&mut route, 4000, None, 16, &config);
        assert!(!route.needs_train(1000, None) && route.needs_train(1001, None));
        // A single packet always fits.
        begin(&mut route, 9000, None, 16, &config);
        assert!(route.needs_train(1, None));
    }

    #[test]
    fn a_path_is_avoided_if_there_is_another() {
        for paths in [1, 2, 16] {
            let (mut route, config) = route(paths);
            for _ in 0..100 {
                let avoid = Some(route.path());
                let path = begin(&mut route, 100, avoid, paths, &config);
                assert_eq!(Some(path) == avoid, paths == 1);
            }
        }
    }

    #[test]
    fn a_loss_on_its_path_ends_the_train() {
        let (mut route, config) = route(16);
        let path = begin(&mut route, 100, None, 16, &config);
        route.on_loss(Time(2), (path + 1) % 16, PathSignal::Lost);
        assert!(!route.needs_train(100, None));
        route.on_loss(Time(2), path, PathSignal::Lost);
        assert!(route.needs_train(100, None));
    }

    #[test]
    fn congestion_control_may_choose_the_path() {
        let on = |path| stamped_path(&cc::Stamp { path, ..cc::Stamp::default() }, 3, 16);
        assert_eq!([on(None), on(Some(0)), on(Some(15)), on(Some(21))], [3, 0, 15, 5]);
    }
}
