//! Packets that later ones overtook on their own path.
//!
//! Spraying reorders packets of different paths, so that one that is missing tells nothing until more are out of order
//! than a window explains ([`super::recovery`]), or a probe was answered. On one path packets keep their order: a
//! switch hashes the entropy, and so does a network card. One that lacks although several that left later by the
//! same path have arrived is lost, and that is known a round trip after it left. (RFC 8985 makes of it a rule about
//! time, because TCP knows of no paths; RFC 5681 of three duplicates, as here.)
//!
//! A network that does reorder packets of one path (switches that route each packet on its own, a bundle of links that are
//! taken in turn) is found out: when the first transmission arrives of a packet that was sent again, it takes twice as many
//! from then on, and soon none are enough.

use super::ring::{Ring, Slot};
use crate::base::{Psn, Time};
use crate::config::Config;

/// Packets by which one must have been overtaken, at first: RFC 5681 section 3.2, the fast retransmit.
const OVERTAKEN: u8 = 3;
/// ... and at most: beyond, the network is one that reorders.
const MOST: u8 = OVERTAKEN << 5;
/// Paths looked at: those of the newest packets that arrived.
const PATHS: usize = 16;
/// Packets looked at behind the newest that arrived. Older ones were overtaken when that was an older one.
const DEPTH: usize = 256;

/// How far the network was seen to reorder packets of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathOrder {
    /// Packets that overtake a lost one; `None` when no number says that it is lost.
    least: Option<u8>,
}

impl Default for PathOrder {
    fn default() -> Self {
        Self { least: Some(OVERTAKEN) }
    }
}

impl PathOrder {
    /// A packet was sent again in vain: the first transmission of it arrived.
    pub(super) fn on_spurious(&mut self) {
        self.least = self.least.map(|least| least * 2).filter(|least| *least <= MOST);
    }

    /// Packets that overtake a lost one.
    #[inline]
    pub(super) const fn least(self) -> Option<u8> {
        self.least
    }
}

/// A path by which packets arrived although earlier ones are missing.
#[derive(Clone, Copy)]
struct PathArrival {
    path: u16,
    /// The newest of them, as many as count.
    count: u8,
    /// The oldest of those: its PSN, and when it left.
    psn: Psn,
    sent_at: Time,
}

/// What arrived by which path, as far as it says something about what did not.
pub(super) struct OvertakenPackets {
    paths: [PathArrival; PATHS],
    known: usize,
    /// How many of a path overtake.
    least: u8,
    /// From here on it was looked.
    first: Psn,
}

impl OvertakenPackets {
    /// What the outstanding packets tell; `None` when no packet of theirs can have been overtaken.
    pub(super) fn of<D: Copy>(ring: &Ring<D>, order: PathOrder) -> Option<Self> {
        let least = order.least()?;
        let top = ring.index(ring.top().minus(1))?;
        if top < usize::from(least) {
            return None;
        }
        let nobody = PathArrival { path: 0, count: 0, psn: ring.base(), sent_at: Time::ZERO };
        let first = (top + 1).saturating_sub(DEPTH);
        let mut found = Self { paths: [nobody; PATHS], known: 0, least, first: ring.psn(first) };
        let mut missing = false;
        for at in (first..=top).rev() {
            let slot = ring.slot(at);
            // Of a packet sent twice one does not know which of them arrived.
            if slot.is_acked() && slot.tries == 0 {
                found.note(slot.path, ring.psn(at), slot.sent_at);
            }
            missing |= slot.is_in_flight();
        }
        missing.then_some(found)
    }

    fn note(&mut self, path: u16, psn: Psn, sent_at: Time) {
        let known = &mut self.paths[..self.known];
        match known.iter_mut().find(|arrived| arrived.path == path) {
            Some(arrived) if arrived.count < self.least => {
                *arrived = PathArrival { path, count: arrived.count + 1, psn, sent_at };
            }
            Some(_) => {}
            None if self.known < PATHS => {
                self.paths[self.known] = PathArrival { path, count: 1, psn, sent_at };
                self.known += 1;
            }
            None => {}
        }
    }

    /// Where packets may be that were overtaken.
    pub(super) fn range<D: Copy>(&self, ring: &Ring<D>) -> (Psn, Psn) {
        (self.first, ring.top())
    }

    /// Whether a packet in flight was overtaken. One that was sent again has an old number, so of it the time
    /// decides.
    pub(super) fn covers<D>(&self, psn: Psn, slot: &Slot<D>, now: Time, config: &Config) -> bool {
        self.paths[..self.known].iter().any(|arrived| {
            let later = if slot.tries == 0 {
                psn.is_before(arrived.psn)
            } else {
                slot.sent_at < arrived.sent_at
            };
            arrived.path == slot.path && arrived.count == self.least && later
        }) && slot.rests_until(config) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    /// Packets on these paths, one a nanosecond, of which those `arrived` did; which are overtaken.
    fn overtaken(paths: &[u16], arrived: &[usize]) -> Vec<usize> {
        let mut ring = Ring::new(Psn(u32::MAX - 2), 4096);
        for (n, path) in (1..).zip(paths) {
            ring.push(Time(n), n, 1000, *path);
        }
        for at in arrived {
            ring.acknowledge(*at);
        }
        lost(&ring)
    }

    fn lost(ring: &Ring<u64>) -> Vec<usize> {
        let config =
            Config::new(4096, SenderConfig::fixed(1), PathsConfig::single(1).expect("one"), 1);
        let Some(found) = OvertakenPackets::of(ring, PathOrder::default()) else {
            return Vec::new();
        };
        let (first, end) = found.range(ring);
        let covered = |at: &usize| {
            let slot = ring.slot(*at);
            slot.is_in_flight() && found.covers(ring.psn(*at), slot, Time(1 << 40), &config)
        };
        ring.places(first, end).filter(covered).collect()
    }

    #[test]
    fn three_later_ones_of_the_same_path_overtake() {
        assert_eq!(overtaken(&[5; 5], &[2, 3, 4]), [0, 1]);
        assert_eq!(overtaken(&[5; 5], &[1, 3, 4]), [0]);
        assert!(overtaken(&[5; 5], &[3, 4]).is_empty());
        assert!(overtaken(&[5; 5], &[]).is_empty());
        // Of other paths any number may arrive before.
        assert!(overtaken(&[5, 6, 6, 6, 6, 6], &[1, 2, 3, 4, 5]).is_empty());
        assert_eq!(overtaken(&[5, 6, 5, 6, 5, 6, 5], &[2, 3, 4, 5, 6]), [0]);
    }

    #[test]
    fn what_was_sent_again_is_overtaken_by_what_left_after_it() {
        let mut ring = Ring::new(Psn(9), 4096);
        for n in 1..=8 {
            ring.push(Time(n), n, 1000, 5);
        }
        for at in 1..4 {
            ring.acknowledge(at);
        }
        assert_eq!(lost(&ring), [0]);
        ring.enqueue(0, super::super::ring::RetransmitCause::Overtaken);
        assert!(lost(&ring).is_empty(), "it waits");
        ring.send_again(0, Time(6), 5);
        assert!(lost(&ring).is_empty());
        for at in [4, 6, 7] {
            ring.acknowledge(at);
        }
        assert!(lost(&ring).is_empty(), "two left after it was sent again");
        ring.push(Time(9), 9, 1000, 5);
        ring.acknowledge(8);
        assert_eq!(lost(&ring), [0, 5]);
    }

    #[test]
    fn a_network_that_reorders_is_found_out() {
        let mut order = PathOrder::default();
        let mut seen = Vec::new();
        while let Some(least) = order.least() {
            seen.push(least);
            order.on_spurious();
        }
        assert_eq!(seen, [3, 6, 12, 24, 48, 96]);
        order.on_spurious();
        assert_eq!(order.least(), None);
    }

    #[test]
    fn it_looks_at_so_many_packets_and_paths() {
        let many: Vec<u16> = (0..40).flat_map(|path| [path; 4]).collect();
        let arrived: Vec<usize> = (0..160).filter(|at| at % 4 > 0).collect();
        // The first of each of the newest paths.
        let expected: Vec<usize> = (24..40).map(|path| path * 4).collect();
        assert_eq!(overtaken(&many, &arrived), expected);
        let all: Vec<usize> = (1..1000).collect();
        assert!(overtaken(&[5; 1000], &all).is_empty());
        assert_eq!(overtaken(&[5; 1000], &all[..255]), [0]);
    }
}
