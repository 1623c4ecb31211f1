//! When the next acknowledgement leaves, and about which packet.

use crate::base::{Psn, Span, Time};
use crate::config::Config;

/// What is known of the next ACK before it is made. A subject is a packet that an ACK is about, by which the
/// peer measures a round trip.
#[derive(Debug)]
pub(super) struct NextAck {
    /// The newest subject; the first PSN before there was one.
    psn: Psn,
    /// When it arrived.
    at: Time,
    retx: bool,
    /// A packet since the last ACK was marked.
    ce: bool,
    /// No ACK was about the subject.
    fresh: bool,
    /// An ACK shall leave in this round.
    due: bool,
    /// The probe to be answered.
    probe: Option<u16>,
    /// Bytes received since the last ACK, small packets rounded up.
    gathered: u32,
}

/// The subject of one ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subject {
    /// The packet, unless an ACK was about it before.
    pub(super) psn: Option<Psn>,
    /// It was sent again.
    pub(super) retx: bool,
    /// A packet since the last ACK was marked.
    pub(super) ce: bool,
    /// When the packet or the probe arrived.
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

    /// The newest subject; the first PSN before there was one.
    #[inline]
    pub(super) const fn newest(&self) -> Psn {
        self.psn
    }

    /// The ACK to come is about `psn`; of several, about the newest, or the newest marked.
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

    /// Counts `bytes` received, and says how long an ACK may wait for them.
    #[inline]
    pub(super) fn gather(&mut self, bytes: u32, config: &Config) -> Span {
        self.gathered = self.gathered.saturating_add(bytes);
        self.due |= self.gathered >= config.ack_now();
        if self.gathered >= config.ack_soon() { config.ack_linger } else { config.ack_delay }
    }

    /// An ACK shall leave in this round.
    #[inline]
    pub(super) fn request(&mut self) {
        self.due = true;
    }

    /// It shall answer a probe.
    pub(super) fn answer(&mut self, now: Time, opaque: u16) {
        self.probe = Some(opaque);
        self.at = now;
        self.due = true;
    }

    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// The probe to be answered.
    #[inline]
    pub(super) const fn probe(&self) -> Option<u16> {
        self.probe
    }

    /// A packet is there that no ACK was about.
    #[inline]
    pub(super) const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Takes the subject for an ACK.
    #[inline]
    pub(super) fn take_subject(&mut self) -> Subject {
        let fresh = core::mem::replace(&mut self.fresh, false);
        let ce = core::mem::replace(&mut self.ce, false);
        let psn = if fresh { Some(self.psn) } else { None };
        Subject { psn, retx: fresh && self.retx, ce, at: self.at }
    }

    /// Everything received is acknowledged.
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
        // It is taken once.
        assert_eq!(next.take_subject(), subject(None, false, false, 4));
    }

    #[test]
    fn enough_bytes_make_it_due() {
        let (sender, paths) = (SenderConfig::fixed(1), PathsConfig::single(1).expect("one path"));
        let config = Config { ack_trigger: 1000, ..Config::new(4096, sender, paths, 1) };
        let mut next = NextAck::new(Psn(0));
        assert_eq!(next.gather(600, &config), config.ack_delay);
        assert!(!next.is_due());
        next.gather(400, &config);
        assert!(next.is_due());
        next.answer(Time(7), 9);
        assert_eq!((next.probe(), next.take_subject().at), (Some(9), Time(7)));
        next.on_complete();
        assert!(!next.is_due() && next.probe().is_none());
        next.gather(999, &config);
        assert!(!next.is_due());
    }
}
