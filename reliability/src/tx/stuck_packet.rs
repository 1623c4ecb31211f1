//! Detection of packets that do not arrive however often they are sent, as where a path does not
//! carry their size and no ICMP message reports it (RFC 8899 section 4.2, loss of consecutive
//! probes: a black hole for big packets).

use super::Tx;
use super::ring::{RetransmitCause, Ring, Slot};
use crate::base::{Psn, Span, Time};
use crate::shared::Shared;
use crate::types::{Event, PdcId};

/// Transmissions without any sign of arrival after which a packet is stuck: RFC 8899 section 5.1.2,
/// MAX_PROBES.
const MAX_MISSING: u8 = 3;

/// Time for which a packet must have been stuck before its length is suspected. Packets lost in a
/// burst, as by a receive buffer that overflows, are retransmitted within a round trip and lost
/// again in the next burst: three times in less than a millisecond, where a third of all trains is
/// lost. (RFC 8899 section 5.1.1 waits at least a second between probes for the same reason, but no
/// message waits for those.)
const STUCK_FOR: Span = Span::millis(50);

/// A packet that does not arrive, and the time since which it is stuck.
#[derive(Debug, Default)]
pub(super) struct StuckPacket(Option<(Psn, Time)>);

impl StuckPacket {
    /// Records that the packet `psn` is stuck at `now`. Returns whether one has been stuck for
    /// long: this one, or one before it that `remains` stuck.
    fn is_stuck_for_long(
        &mut self,
        now: Time,
        psn: Psn,
        remains: impl FnOnce(Psn) -> bool,
    ) -> bool {
        match self.0 {
            Some((first, since)) if remains(first) => now.since(since) >= STUCK_FOR,
            _ => {
                self.0 = Some((psn, now));
                false
            }
        }
    }
}

impl<D> Slot<D> {
    /// Counts the transmission that is being repeated for `cause`. Returns the transmissions in a
    /// row without any sign of arrival. A refused or trimmed packet had arrived.
    fn count_missing(&mut self, cause: RetransmitCause) -> u8 {
        self.missing = if cause.is_reported_loss() { 0 } else { self.missing.saturating_add(1) };
        self.missing
    }
}

impl<D: Copy> Ring<D> {
    /// Returns whether the oldest packet was sent so often without any sign of arrival that its
    /// length may be the cause.
    pub(super) fn is_stuck(&self) -> bool {
        self.oldest().is_some_and(|oldest| oldest.missing >= MAX_MISSING)
    }

    /// Returns whether the packet `psn` was stuck and is still not acknowledged.
    fn remains_stuck(&self, psn: Psn) -> bool {
        let slot = self.index(psn).map(|at| self.slot(at));
        slot.is_some_and(|slot| !slot.is_acked() && slot.missing >= MAX_MISSING)
    }

    /// Returns the length, the last departure and the transmissions of the packet at `at`, which is
    /// about to be retransmitted, if it is stuck. It is not stuck if a packet of at least its
    /// length that was sent later arrived: the network then just loses many packets.
    fn find_stuck(&mut self, at: usize, cause: RetransmitCause) -> Option<(u32, Time, u8)> {
        let times = self.slot_mut(at).count_missing(cause);
        if times < MAX_MISSING {
            return None;
        }
        let Slot { bytes, sent_at, .. } = *self.slot(at);
        let passes = |s: &Slot<D>| s.is_acked() && s.bytes >= bytes && s.sent_at >= sent_at;
        (!self.iter().any(passes)).then_some((bytes, sent_at, times))
    }
}

impl<D: Copy> Tx<D> {
    /// Reports the packet at `at`, which is about to be retransmitted, if it is stuck and one has
    /// been stuck for long.
    pub(crate) fn report_stuck(
        &mut self,
        now: Time,
        (id, connected): (PdcId, bool),
        at: usize,
        cause: RetransmitCause,
        shared: &mut Shared<D>,
    ) {
        let Some((bytes, sent_at, times)) = self.ring.find_stuck(at, cause) else { return };
        let (psn, ring) = (self.ring.psn(at), &self.ring);
        let stuck = &mut self.rare.get_or_insert_default().stuck;
        if stuck.is_stuck_for_long(now, psn, |first| ring.remains_stuck(first)) {
            shared.events.push_back(Event::Stuck { id, bytes, sent_at, times, connected });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Psn;

    /// Sends the packet at `at` again. Returns whether it is stuck.
    fn again(ring: &mut Ring<u8>, at: usize, cause: RetransmitCause, now: u64) -> bool {
        ring.enqueue(at, cause);
        let found = ring.find_stuck(at, cause);
        ring.send_again(at, Time(now), 0);
        found.is_some()
    }

    fn ring(packets: u8, bytes: u32) -> Ring<u8> {
        let mut ring = Ring::new(Psn(7), 64);
        for n in 0..packets {
            ring.push(Time(1), n, bytes, 0);
        }
        ring
    }

    #[test]
    fn a_packet_is_stuck_after_three_transmissions_without_a_sign() {
        let mut ring = ring(1, 1000);
        for (now, cause) in [(2, RetransmitCause::Timeout), (3, RetransmitCause::Probe)] {
            assert!(!again(&mut ring, 0, cause, now));
        }
        assert!(
            again(&mut ring, 0, RetransmitCause::OutOfOrder, 4)
                && again(&mut ring, 0, RetransmitCause::Timeout, 5)
        );
        // The packet arrived and was refused.
        assert!(
            !again(&mut ring, 0, RetransmitCause::Nacked, 6)
                && !again(&mut ring, 0, RetransmitCause::Timeout, 7)
        );
    }

    #[test]
    fn a_packet_is_not_stuck_while_packets_as_long_arrive() {
        for (bytes, stuck) in [(1000, false), (999, true)] {
            let mut ring = ring(1, 1000);
            ring.push(Time(3), 1, bytes, 0);
            ring.acknowledge(1);
            again(&mut ring, 0, RetransmitCause::Timeout, 1);
            again(&mut ring, 0, RetransmitCause::Timeout, 2);
            assert_eq!(again(&mut ring, 0, RetransmitCause::Timeout, 4), stuck);
            // The other packet was sent before the last transmission of this one.
            assert!(again(&mut ring, 0, RetransmitCause::Timeout, 5));
        }
    }
}
