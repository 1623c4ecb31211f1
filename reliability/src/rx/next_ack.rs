//! When the next ACK leaves, and which received packet it is about (its subject).

use crate::base::{Psn, Span, Time};
use crate::config::Config;

/// The state of the next ACK. The subject of an ACK is the packet that it is about, by which the
/// peer measures a round trip.
#[derive(Debug)]
pub(super) struct NextAck {
    /// The PSN of the newest subject; the first PSN of the context before there was one.
    psn: Psn,
    /// The time at which the subject, or the probe to answer, arrived.
    at: Time,
    retx: bool,
    /// True when a packet that arrived since the last ACK was marked Congestion Experienced.
    ce: bool,
    /// True while no ACK about the subject was sent.
    fresh: bool,
    /// True when an ACK must leave in the current round of polling.
    due: bool,
    /// The opaque number of the peer's probe that the next ACK answers.
    probe: Option<u16>,
    /// Bytes received since the last ACK was sent, small packets rounded up.
    gathered: u32,
}

/// The received packet that one ACK is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subject {
    /// The PSN of the packet; `None` if an ACK was about it before.
    pub(super) psn: Option<Psn>,
    /// True if the packet was a retransmission.
    pub(super) retx: bool,
    /// True when a packet that arrived since the last ACK was marked Congestion Experienced.
    pub(super) ce: bool,
    /// The time at which the packet, or the probe to answer, arrived.
    pub(super) at: Time,
}

impl NextAck {
    pub(super) const fn new(start: Psn) -> Self {
        Self {
            psn: start,
            at: Time::ZERO,
            retx: false,
            ce: false,
            fresh: false,
            due: false,
            probe: None,
            gathered: 0,
        }
    }

    /// Returns the PSN of the newest packet that an ACK may be about: the first PSN of the context
    /// while no packet has arrived.
    #[inline]
    pub(super) const fn newest(&self) -> Psn {
        self.psn
    }

    /// Makes `psn` the subject of the next ACK. Of several packets, the subject is the newest
    /// marked one if there is one, otherwise the newest.
    #[inline]
    pub(super) fn set_subject(&mut self, now: Time, psn: Psn, retx: bool, ce: bool) {
        if self.fresh && self.ce && !ce {
            return;
        }
        self.fresh = true;
        self.ce |= ce;
        self.psn = psn;
        self.at = now;
        self.retx = retx;
    }

    /// Counts `bytes` received. Returns the longest time that the ACK of these bytes may be
    /// delayed.
    #[inline]
    pub(super) fn count_bytes(&mut self, bytes: u32, config: &Config) -> Span {
        self.gathered = self.gathered.saturating_add(bytes);
        self.due |= self.gathered >= config.ack_now();
        if self.gathered >= config.ack_soon() { config.ack_linger } else { config.ack_delay }
    }

    /// Makes an ACK leave in the current round of polling.
    #[inline]
    pub(super) fn request(&mut self) {
        self.due = true;
    }

    /// Makes an ACK that answers a probe leave in the current round of polling.
    pub(super) fn answer(&mut self, now: Time, opaque: u16) {
        self.probe = Some(opaque);
        self.at = now;
        self.due = true;
    }

    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Returns the opaque number of the peer's probe that the next ACK answers.
    #[inline]
    pub(super) const fn probe(&self) -> Option<u16> {
        self.probe
    }

    /// Returns whether a packet arrived that no ACK has been about.
    #[inline]
    pub(super) const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Takes the subject for an ACK that is being built.
    #[inline]
    pub(super) fn take_subject(&mut self) -> Subject {
        let fresh = core::mem::replace(&mut self.fresh, false);
        let ce = core::mem::replace(&mut self.ce, false);
        let psn = if fresh { Some(self.psn) } else { None };
        Subject { psn, retx: fresh && self.retx, ce, at: self.at }
    }

    /// Records that the ACKs sent cover everything received so far.
    #[inline]
    pub(super) fn on_complete(&mut self) {
        self.due = false;
        self.probe = None;
        self.gathered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    #[test]
    fn an_ack_is_about_the_newest_packet_or_the_newest_marked_one() {
        let mut next = NextAck::new(Psn(0));
        let subject = |psn, retx, ce, at| Subject { psn, retx, ce, at: Time(at) };
        assert_eq!(next.take_subject(), subject(None, false, false, 0));
        next.set_subject(Time(1), Psn(5), false, true);
        next.set_subject(Time(2), Psn(6), false, false);
        assert!(next.is_fresh());
        assert_eq!(next.take_subject(), subject(Some(Psn(5)), false, true, 1));
        next.set_subject(Time(3), Psn(7), false, false);
        next.set_subject(Time(4), Psn(8), true, false);
        assert_eq!(next.take_subject(), subject(Some(Psn(8)), true, false, 4));
        // A subject is taken only once.
        assert_eq!(next.take_subject(), subject(None, false, false, 4));
    }

    #[test]
    fn an_ack_is_due_after_the_byte_trigger() {
        let (sender, paths) = (SenderConfig::fixed(1), PathsConfig::single(1).expect("one path"));
        let config = Config { ack_trigger: 1000, ..Config::new(4096, sender, paths, 1) };
        let mut next = NextAck::new(Psn(0));
        assert_eq!(next.count_bytes(600, &config), config.ack_delay);
        assert!(!next.is_due());
        next.count_bytes(400, &config);
        assert!(next.is_due());
        next.answer(Time(7), 9);
        assert_eq!((next.probe(), next.take_subject().at), (Some(9), Time(7)));
        next.on_complete();
        assert!(!next.is_due() && next.probe().is_none());
        next.count_bytes(999, &config);
        assert!(!next.is_due());
    }
}
