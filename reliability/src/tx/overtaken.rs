//! Detection of packets that later packets overtook on the same path.
//!
//! Spraying reorders packets of different paths, so one missing packet shows nothing until more are
//! out of order than a window explains ([`super::recovery`]), or a probe was answered. On one path
//! packets keep their order: a switch hashes the entropy, and so does a network card. A packet is
//! therefore lost if it is missing although several packets that left later on the same path have
//! arrived, and that is known a round trip after it left. (RFC 8985 uses a rule about time, because
//! TCP knows no paths; RFC 5681 uses three duplicates, as here.)
//!
//! Some networks do reorder packets of one path: switches that route each packet on its own, or
//! bundles of links that are used in turn. The sender detects them when the first transmission of a
//! retransmitted packet arrives. From then on a loss takes twice as many overtaking packets, and
//! soon no number suffices.

use super::ring::{Ring, Slot};
use crate::base::{Psn, Time};
use crate::config::Config;

/// The number of packets that overtake a lost one, at first: RFC 5681 section 3.2, the fast
/// retransmit.
const OVERTAKEN: u8 = 3;
/// The largest number of overtaking packets that still shows a loss. A network that would need more
/// counts as one that reorders.
const MOST: u8 = OVERTAKEN << 5;
/// The number of paths examined for overtaken packets: those of the newest packets that arrived.
const PATHS: usize = 16;
/// The number of packets examined, back from the newest that arrived. Older ones were examined when
/// an older packet was the newest.
const DEPTH: usize = 256;

/// How strongly the network is known to reorder the packets of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathOrder {
    /// Number of later packets of the same path that must arrive before a missing one counts as lost; `None` if packets
    /// are reordered so much that no number shows a loss.
    least: Option<u8>,
}

impl Default for PathOrder {
    fn default() -> Self {
        Self { least: Some(OVERTAKEN) }
    }
}

impl PathOrder {
    /// Doubles the number of overtaking packets that show a loss, because a retransmission was
    /// unnecessary: the first transmission arrived.
    pub(super) fn on_spurious(&mut self) {
        self.least = self.least.map(|least| least * 2).filter(|least| *least <= MOST);
    }

    /// Returns the number of later packets of a path that must arrive before a missing one counts
    /// as lost.
    #[inline]
    pub(super) const fn threshold(self) -> Option<u8> {
        self.least
    }
}

/// A path on which packets arrived although earlier ones are missing.
#[derive(Clone, Copy)]
struct PathArrival {
    path: u16,
    /// The number of the newest packets that arrived on the path, at most as many as it takes to
    /// declare an older one lost.
    count: u8,
    /// The oldest of these newest packets: its PSN, and when it left.
    psn: Psn,
    sent_at: Time,
}

/// The newest packets that arrived on each path, by which older missing ones are found lost.
pub(super) struct OvertakenPackets {
    paths: [PathArrival; PATHS],
    known: usize,
    /// The number of later packets of a path that must arrive before a missing one counts as lost.
    least: u8,
    /// The oldest outstanding packet that is examined.
    first: Psn,
}

impl OvertakenPackets {
    /// Examines the outstanding packets. Returns `None` when none of them can have been overtaken.
    pub(super) fn examine<D: Copy>(ring: &Ring<D>, order: PathOrder) -> Option<Self> {
        let least = order.threshold()?;
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
            // Which transmission of a retransmitted packet arrived is unknown.
            if slot.is_acked() && slot.tries == 0 {
                found.add_arrival(slot.path, ring.psn(at), slot.sent_at);
            }
            missing |= slot.is_in_flight();
        }
        missing.then_some(found)
    }

    fn add_arrival(&mut self, path: u16, psn: Psn, sent_at: Time) {
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

    /// Returns the range of the outstanding packets that later ones may have overtaken.
    pub(super) fn range<D: Copy>(&self, ring: &Ring<D>) -> (Psn, Psn) {
        (self.first, ring.top())
    }

    /// Returns whether a packet in flight was overtaken. A retransmitted packet has an old number,
    /// so its departure is compared instead.
    pub(super) fn was_overtaken<D>(
        &self,
        psn: Psn,
        slot: &Slot<D>,
        now: Time,
        config: &Config,
    ) -> bool {
        self.paths[..self.known].iter().any(|arrived| {
            let later = if slot.tries == 0 {
                psn.is_before(arrived.psn)
            } else {
                slot.sent_at < arrived.sent_at
            };
            arrived.path == slot.path && arrived.count == self.least && later
        }) && slot.loss_allowed_at(config) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    /// Sends packets on these paths, one per nanosecond, of which those in `arrived` arrive.
    /// Returns the overtaken ones.
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
        let Some(found) = OvertakenPackets::examine(ring, PathOrder::default()) else {
            return Vec::new();
        };
        let (first, end) = found.range(ring);
        let covered = |at: &usize| {
            let slot = ring.slot(*at);
            slot.is_in_flight() && found.was_overtaken(ring.psn(*at), slot, Time(1 << 40), &config)
        };
        ring.places(first, end).filter(covered).collect()
    }

    #[test]
    fn three_later_packets_on_the_same_path_overtake_one() {
        assert_eq!(overtaken(&[5; 5], &[2, 3, 4]), [0, 1]);
        assert_eq!(overtaken(&[5; 5], &[1, 3, 4]), [0]);
        assert!(overtaken(&[5; 5], &[3, 4]).is_empty());
        assert!(overtaken(&[5; 5], &[]).is_empty());
        // Any number of packets of other paths may arrive before.
        assert!(overtaken(&[5, 6, 6, 6, 6, 6], &[1, 2, 3, 4, 5]).is_empty());
        assert_eq!(overtaken(&[5, 6, 5, 6, 5, 6, 5], &[2, 3, 4, 5, 6]), [0]);
    }

    #[test]
    fn a_retransmission_is_overtaken_by_packets_that_left_after_it() {
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
    fn a_reordering_network_raises_the_threshold_until_it_is_off() {
        let mut order = PathOrder::default();
        let mut seen = Vec::new();
        while let Some(least) = order.threshold() {
            seen.push(least);
            order.on_spurious();
        }
        assert_eq!(seen, [3, 6, 12, 24, 48, 96]);
        order.on_spurious();
        assert_eq!(order.threshold(), None);
    }

    #[test]
    fn the_examined_packets_and_paths_are_bounded() {
        let many: Vec<u16> = (0..40).flat_map(|path| [path; 4]).collect();
        let arrived: Vec<usize> = (0..160).filter(|at| at % 4 > 0).collect();
        // The first packet of each of the newest paths.
        let expected: Vec<usize> = (24..40).map(|path| path * 4).collect();
        assert_eq!(overtaken(&many, &arrived), expected);
        let all: Vec<usize> = (1..1000).collect();
        assert!(overtaken(&[5; 1000], &all).is_empty());
        assert_eq!(overtaken(&[5; 1000], &all[..255]), [0]);
    }
}
