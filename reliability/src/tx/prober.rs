//! Probes: asking what became of the packets when the peer is silent for a while.

use super::loss_timer::MAX_BACKOFF;
use crate::base::{Span, Time};

/// When a sending half probes. When the next probe is due is [`crate::deadlines::Timer::Probe`].
#[derive(Debug, Default)]
pub(super) struct Prober {
    /// Unanswered in a row.
    unanswered: u8,
    /// One is to be sent.
    due: bool,
}

impl Prober {
    /// A probe is to be sent.
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Unanswered in a row.
    #[inline]
    pub(super) const fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// The silence after which the next one is due, when `first` comes before the first: each doubles it,
    /// up to `most`.
    #[inline]
    pub(super) fn interval(&self, first: Span, most: Span) -> Span {
        (first * (1 << self.unanswered.min(MAX_BACKOFF))).min(most)
    }

    /// A probe shall be sent.
    #[inline]
    pub(super) fn request(&mut self) {
        self.due = true;
    }

    /// Whether a probe is to be sent; from now on it is not.
    #[inline]
    pub(super) fn take(&mut self) -> bool {
        core::mem::replace(&mut self.due, false)
    }

    /// The silence lasted: one more that nothing answered.
    pub(super) fn on_silence(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// They begin again with the shortest silence.
    pub(super) fn start_over(&mut self) {
        self.unanswered = 0;
    }

    /// The peer took something: there is nothing to ask.
    #[inline]
    pub(super) fn on_progress(&mut self) {
        self.unanswered = 0;
        self.due = false;
    }
}

/// The newest probe that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentProbe {
    /// `NEVER` when nothing can be learnt from an answer.
    sent_at: Time,
    opaque: u16,
}

impl Default for SentProbe {
    fn default() -> Self {
        Self { sent_at: Time::NEVER, opaque: 0 }
    }
}

impl SentProbe {
    /// Another one leaves; its opaque number.
    pub(super) fn send(&mut self, now: Time) -> u16 {
        self.sent_at = now;
        self.opaque = self.opaque.wrapping_add(1);
        self.opaque
    }

    /// When it was sent.
    #[inline]
    pub(super) const fn sent_at(&self) -> Time {
        self.sent_at
    }

    /// It was sent less than a round trip of `trip` ago, and may still be answered.
    pub(super) fn is_out(&self, now: Time, trip: Span) -> bool {
        self.sent_at != Time::NEVER && now.since(self.sent_at) < trip
    }

    /// Whether `opaque` answers it.
    #[inline]
    pub(super) fn is_answered_by(&self, opaque: Option<u16>) -> bool {
        opaque == Some(self.opaque) && self.sent_at != Time::NEVER
    }

    /// Nothing can be learnt any more from another answer.
    pub(super) fn retire(&mut self) {
        self.sent_at = Time::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_answered_by_its_number_until_it_is_retired() {
        let mut sent = SentProbe::default();
        assert!(!sent.is_answered_by(Some(0)) && !sent.is_out(Time(0), Span(9)));
        let opaque = Some(sent.send(Time(5)));
        assert!(sent.is_answered_by(opaque) && !sent.is_answered_by(None));
        assert!(sent.is_out(Time(6), Span(2)) && !sent.is_out(Time(7), Span(2)));
        sent.retire();
        assert!(!sent.is_answered_by(opaque) && !sent.is_out(Time(6), Span(2)));
        assert_ne!(Some(sent.send(Time(9))), opaque);
        assert!(!sent.is_answered_by(opaque));
    }

    #[test]
    fn each_silence_is_twice_as_long() {
        let mut prober = Prober::default();
        let interval = |prober: &Prober| prober.interval(Span(100), Span(1000));
        for expected in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(interval(&prober), Span(expected));
            prober.on_silence();
        }
        for _ in 0..300 {
            prober.on_silence();
        }
        assert_eq!((prober.unanswered(), interval(&prober)), (u8::MAX, Span(1000)));
        prober.start_over();
        assert_eq!(interval(&prober), Span(100));
    }

    #[test]
    fn a_request_is_taken_once_and_forgotten_with_progress() {
        let mut prober = Prober::default();
        prober.request();
        assert!(prober.is_due() && prober.take() && !prober.take());
        prober.request();
        prober.on_progress();
        assert!(!prober.is_due());
    }
}
