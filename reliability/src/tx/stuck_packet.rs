//! Packets that the peer lacks however often they are sent, as where a path does not carry their size and
//! nobody says so (RFC 8899 section 4.2, loss of consecutive probes: a black hole for big packets).

use super::Tx;
use super::ring::{RetransmitCause, Ring, Slot};
use crate::base::{Psn, Span, Time};
use crate::shared::Shared;
use crate::types::{Event, PdcId};

/// Transmissions without a trace after which a packet is stuck: RFC 8899 section 5.1.2, MAX_PROBES.
const MAX_MISSING: u8 = 3;

/// For how long a packet must have been stuck before its length is blamed. What is lost in a burst, as by a receive
/// buffer that overflows, is sent again within a round trip and lost again in the next burst: three times in
/// less than a millisecond, where a third of all trains is lost. (RFC 8899 section 5.1.1 lets at least a second pass
/// between probes, for the same reason, and has time: no message waits for them.)
const LASTING: Span = Span::millis(50);

/// A packet that does not arrive, and since when.
#[derive(Debug, Default)]
pub(super) struct StuckPacket(Option<(Psn, Time)>);

impl StuckPacket {
    /// The packet `psn` is stuck at `now`. Whether one has been for long: this one, or one before it that `remains`.
    fn lasts(&mut self, now: Time, psn: Psn, remains: impl FnOnce(Psn) -> bool) -> bool {
        match self.0 {
            Some((first, since)) if remains(first) => now.since(since) >= LASTING,
            _ => {
                self.0 = Some((psn, now));
                false
            }
        }
    }
}

impl<D> Slot<D> {
    /// It is about to be sent again for this reason: times it was sent without a trace. What was refused or
    /// trimmed had come through.
    fn miss(&mut self, cause: RetransmitCause) -> u8 {
        self.missing = if cause.is_told() { 0 } else { self.missing.saturating_add(1) };
        self.missing
    }
}

impl<D: Copy> Ring<D> {
    /// Whether the oldest packet was sent so often without a trace that its length may be why.
    pub(super) fn is_stuck(&self) -> bool {
        self.oldest().is_some_and(|oldest| oldest.missing >= MAX_MISSING)
    }

    /// Whether the packet `psn` was, and still lacks an answer.
    fn remains_stuck(&self, psn: Psn) -> bool {
        let slot = self.index(psn).map(|at| self.slot(at));
        slot.is_some_and(|slot| !slot.is_acked() && slot.missing >= MAX_MISSING)
    }

    /// The packet at `at`, which waits, is about to be sent again: how long it is, when it was sent last, and how often,
    /// if it is stuck. It is not while packets as long as it, and sent later, arrive: the network just loses a lot.
    fn find_stuck(&mut self, at: usize, cause: RetransmitCause) -> Option<(u32, Time, u8)> {
        let times = self.slot_mut(at).miss(cause);
        if times < MAX_MISSING {
            return None;
        }
        let Slot { bytes, sent_at, .. } = *self.slot(at);
        let passes = |s: &Slot<D>| s.is_acked() && s.bytes >= bytes && s.sent_at >= sent_at;
        (!self.iter().any(passes)).then_some((bytes, sent_at, times))
    }
}

impl<D: Copy> Tx<D> {
    /// Reports the packet at `at`, which is about to be sent again, if it is stuck, and one has been for long.
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
        let suspicion = &mut self.rare.get_or_insert_default().suspicion;
        if suspicion.lasts(now, psn, |first| ring.remains_stuck(first)) {
            shared.events.push_back(Event::Stuck { id, bytes, sent_at, times, connected });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Psn;

    /// Sends the packet at `at` again; whether it is stuck.
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
    fn a_packet_is_stuck_when_it_was_missed_three_times() {
        let mut ring = ring(1, 1000);
        for (now, cause) in [(2, RetransmitCause::Timeout), (3, RetransmitCause::Probe)] {
            assert!(!again(&mut ring, 0, cause, now));
        }
        assert!(
            again(&mut ring, 0, RetransmitCause::OutOfOrder, 4)
                && again(&mut ring, 0, RetransmitCause::Timeout, 5)
        );
        // It arrived, and was not wanted.
        assert!(
            !again(&mut ring, 0, RetransmitCause::Nacked, 6)
                && !again(&mut ring, 0, RetransmitCause::Timeout, 7)
        );
    }

    #[test]
    fn what_arrives_meanwhile_and_is_as_long_speaks_against_it() {
        for (bytes, stuck) in [(1000, false), (999, true)] {
            let mut ring = ring(1, 1000);
            ring.push(Time(3), 1, bytes, 0);
            ring.acknowledge(1);
            again(&mut ring, 0, RetransmitCause::Timeout, 1);
            again(&mut ring, 0, RetransmitCause::Timeout, 2);
            assert_eq!(again(&mut ring, 0, RetransmitCause::Timeout, 4), stuck);
            // It arrived before the packet was sent last.
            assert!(again(&mut ring, 0, RetransmitCause::Timeout, 5));
        }
    }
}
