//! Path selector of MP-RDMA: each ACK clocks out a packet on its own virtual path.

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable, number, switch};

/// Largest number of ACKs that wait for the packets they clock out; newer ones replace the oldest.
const CLOCKS: usize = 12;

/// Parameters of [`AckClockedPaths`].
#[derive(Clone, PartialEq, Debug)]
pub struct AckClockedConfig {
    /// Number of virtual paths (UDP source ports).
    pub paths: u16,
    /// Probability that a window's worth of packets holds one that probes a new path: 0.01.
    pub probe: f64,
    /// Every second marked ACK clocks out a packet, too: yes. The window loses half a packet per
    /// mark, so two marked ACKs make room for one packet, which takes their path.
    pub marked: bool,
}

impl AckClockedConfig {
    /// Returns the paper's parameters, over `paths` virtual paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths, probe: 0.01, marked: true }
    }
}

impl Tunable for AckClockedConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        number!(probe: f64, "chance that a window of packets probes a new path: 0.01", "0 to 1"),
        switch!("marked", marked, "whether every second marked ACK clocks a packet out: 1"),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)?;
        within("probe", self.probe, 0.0, 1.0, "0 to 1")
    }
}

impl PathParameters for AckClockedConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// Multi-path ACK clocking (Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018,
/// section 3): there is no state per path, because the ACKs are the state.
///
/// The first window goes out on random virtual paths. From then on a packet takes the path of the
/// ACK that made room for it, so that a path carries what it acknowledges. A window that grew may
/// send two packets for one ACK, never more; packets that no ACK clocks out take a random path, as
/// with the paper's burst timer. Occasionally a packet probes a random path instead.
///
/// A train of packets that leaves on one pick counts as one packet, as does an ACK that covers
/// several packets of one path. To bound reordering, the paper also stops clocking paths whose ACKs
/// come too late; here the receive bitmap absorbs reordering, and no path is excluded.
#[derive(Clone, Debug)]
pub struct AckClockedPaths {
    config: Arc<AckClockedConfig>,
    rng: Rng,
    clocks: [u16; CLOCKS],
    /// Index of the oldest ACK that waits for its packet in `clocks`.
    oldest: u8,
    held: u8,
    /// Path of the ACK that was used last, while it may clock out a second packet.
    again: Option<u16>,
    /// One marked ACK arrived and waits for a second one: two marked ACKs clock out one packet.
    half: bool,
    /// Packets left of the window's worth, of which at most one probes a new path.
    round: u32,
}

impl AckClockedPaths {
    /// Creates a selector for which no ACK waits. `config` must have passed its check.
    #[must_use]
    pub const fn new(config: Arc<AckClockedConfig>, rng: Rng) -> Self {
        Self {
            config,
            rng,
            clocks: [0; CLOCKS],
            oldest: 0,
            held: 0,
            again: None,
            half: false,
            round: 0,
        }
    }

    #[allow(clippy::cast_possible_truncation)] // below `paths`
    fn random(&mut self) -> u16 {
        self.rng.below(u32::from(self.config.paths)) as u16
    }

    /// Returns the index of the waiting ACK `by` places behind the oldest.
    const fn place(&self, by: u8) -> u8 {
        (self.oldest + by) % CLOCKS as u8
    }

    fn push_clock(&mut self, path: u16) {
        let at = self.place(self.held);
        self.clocks[usize::from(at)] = path;
        if usize::from(self.held) < CLOCKS {
            self.held += 1;
        } else {
            self.oldest = self.place(1);
        }
    }

    /// Returns whether the packet that leaves now is the probe of its round.
    fn is_probe(&mut self, cwnd_packets: u32) -> bool {
        if self.round == 0 {
            self.round = cwnd_packets.max(1);
        }
        self.round -= 1;
        self.round == 0 && self.config.probe > 0.0 && self.rng.chance(self.config.probe)
    }
}

impl PathSelector for AckClockedPaths {
    fn pick(&mut self, _now: Time, cwnd_packets: u32) -> u16 {
        if self.is_probe(cwnd_packets) {
            return self.random();
        }
        if self.held > 0 {
            let path = self.clocks[usize::from(self.oldest)];
            self.oldest = self.place(1);
            self.held -= 1;
            self.again = Some(path);
            return path;
        }
        match self.again.take() {
            Some(path) => path,
            None => self.random(),
        }
    }

    fn on_feedback(&mut self, _now: Time, path: u16, signal: PathSignal) {
        if path >= self.config.paths {
            return;
        }
        match signal {
            PathSignal::Good => self.push_clock(path),
            PathSignal::Ecn if self.config.marked => {
                if self.half {
                    self.push_clock(path);
                }
                self.half = !self.half;
            }
            PathSignal::Ecn | PathSignal::Nack | PathSignal::Lost | PathSignal::Timeout => {}
        }
    }

    /// Discards the ACKs that wait for their packets: they belong to a burst that is over.
    fn on_idle(&mut self, _now: Time) {
        self.held = 0;
        self.again = None;
        self.half = false;
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: u16::from(self.held), ..PathMetrics::default() }
    }
}
