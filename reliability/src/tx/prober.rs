//! Probes: asking what became of the packets when the peer is silent for a while.

use super::loss_timer::MAX_BACKOFF;
use crate::base::{PATH_SETS, Span, Time};
use crate::deadlines::{Deadlines, Timer};

/// Most copies of a probe.
const MOST_COPIES: u8 = 8;

/// Copies of one probe after the other while the peer is silent. Where half of the paths lose everything in either
/// direction, one silence in a thousand outlasts the first five: then it is the peer that is not there, and more of them
/// would only keep it busy when it is back.
const COPIES: [u8; 6] = [1, 2, 4, MOST_COPIES, MOST_COPIES, 2];

/// Silences from one set of paths to the next once all were tried: it is the peer that is not there, most likely.
const SELDOM: u8 = 16;

/// Where in [`COPIES`] a context begins that was just given other paths: with as many as it takes to try them all.
const AFRESH: u8 = 3;

/// When a sending half probes. When the next probe is due is [`crate::deadlines::Timer::Probe`].
#[derive(Debug, Default)]
pub(super) struct Prober {
    /// Unanswered in a row, since they began with the shortest silence.
    unanswered: u8,
    /// One is to be sent, unless the peer is heard before.
    due: bool,
    /// One is to be sent in any case: the congestion control wants to know how long it takes past the queues.
    wanted: bool,
    /// The peer may sit on the acknowledgement of the newest packet.
    patient: bool,
}

impl Prober {
    /// A probe is to be sent.
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due || self.wanted
    }

    /// The peer may sit on the acknowledgement of the newest packet.
    #[inline]
    pub(super) const fn is_patient(&self) -> bool {
        self.patient
    }

    /// A packet leaves. Whether the peer may sit on its acknowledgement: nothing follows it, and it asks for none.
    #[inline]
    pub(super) fn set_patient(&mut self, patient: bool) {
        self.patient = patient;
    }

    /// Unanswered in a row, since they began with the shortest silence.
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

    /// A packet has left: a silence begins that ends with a probe at `until`, unless one lasts already.
    #[inline]
    pub(super) fn begin_silence(&self, until: Time, timers: &mut Deadlines) {
        if self.unanswered == 0 || !timers.is_running(Timer::Probe) {
            timers.set(Timer::Probe, until);
        }
    }

    /// A probe shall be sent: the peer is asked what it has.
    #[inline]
    pub(super) fn request(&mut self) {
        self.due = true;
    }

    /// A probe shall be sent whatever the peer says meanwhile: its round trip is what is asked for.
    #[inline]
    pub(super) fn measure(&mut self) {
        self.wanted = true;
    }

    /// Nothing more is to be sent.
    #[inline]
    pub(super) fn done(&mut self) {
        (self.due, self.wanted) = (false, false);
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

/// The newest probe that was sent. The longer the peer is silent, the more copies of it leave, each on a path of its own:
/// paths may have died in both directions, and to try one after the other takes long. Their opaque numbers follow
/// each other, so that the answer says which path was open.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentProbe {
    /// `NEVER` when nothing can be learnt from an answer.
    sent_at: Time,
    /// Of the first copy.
    opaque: u16,
    /// The path of each copy.
    paths: [u16; MOST_COPIES as usize],
    copies: u8,
    /// Copies of it that are still to be sent.
    left: u8,
    /// Further copies of the next one.
    next: u8,
    /// Which of [`COPIES`] is next.
    urgency: u8,
    /// How often paths were given up since the peer was heard; once all were, how many more silences there were.
    detours: u8,
}

impl Default for SentProbe {
    fn default() -> Self {
        let paths = [0; MOST_COPIES as usize];
        Self {
            sent_at: Time::NEVER,
            opaque: 0,
            paths,
            copies: 1,
            left: 0,
            next: 0,
            urgency: 0,
            detours: 0,
        }
    }
}

impl SentProbe {
    /// The peer has been silent for another while: the next one leaves in more copies, on as many of `paths` paths. Whether
    /// that should be others, because these were tried in vain, if that can be after so long a silence.
    pub(super) fn insist(&mut self, paths: u16, long: bool) -> bool {
        let last = COPIES.len() as u8 - 1;
        let in_vain = long && self.urgency == last;
        let again = self.detours >= PATH_SETS as u8;
        if in_vain {
            self.detours += 1;
            if !again {
                self.urgency = AFRESH;
            } else if self.detours == PATH_SETS as u8 + SELDOM {
                self.detours = PATH_SETS as u8;
            }
        }
        let detour = in_vain && self.detours <= PATH_SETS as u8;
        let most = u8::try_from(paths).unwrap_or(u8::MAX);
        let copies = COPIES[usize::from(self.urgency)].min(most);
        self.next = copies.saturating_sub(1);
        self.urgency = (self.urgency + 1).min(last);
        detour
    }

    /// The peer was heard.
    #[inline]
    pub(super) fn calm(&mut self) {
        (self.urgency, self.detours, self.next, self.left) = (0, 0, 0, 0);
    }

    /// Another one leaves; the opaque number of its first copy.
    pub(super) fn send(&mut self, now: Time) -> u16 {
        self.sent_at = now;
        self.opaque = self.opaque.wrapping_add(u16::from(self.copies));
        self.copies = 1;
        self.left = core::mem::take(&mut self.next);
        self.opaque
    }

    /// Copies of it that are still to be sent.
    pub(super) const fn left(&self) -> u8 {
        self.left
    }

    /// The opaque number of a further copy, if one is to be sent.
    pub(super) fn next_copy(&mut self) -> Option<u16> {
        self.left = self.left.checked_sub(1)?;
        self.copies += 1; // at most as many as there were left
        Some(self.opaque.wrapping_add(u16::from(self.copies - 1)))
    }

    /// The newest copy leaves by `path`.
    pub(super) fn went_by(&mut self, path: u16) {
        self.paths[usize::from(self.copies - 1)] = path;
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

    /// The path of the copy that `opaque` answers, if it does.
    #[inline]
    pub(super) fn answered(&self, opaque: Option<u16>) -> Option<u16> {
        let copy = opaque?.wrapping_sub(self.opaque);
        let sent = copy < u16::from(self.copies) && self.sent_at != Time::NEVER;
        self.paths.get(usize::from(copy)).copied().filter(|_| sent)
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
        assert!(sent.answered(Some(0)).is_none() && !sent.is_out(Time(0), Span(9)));
        let opaque = sent.send(Time(5));
        sent.went_by(3);
        assert_eq!((sent.answered(Some(opaque)), sent.answered(None)), (Some(3), None));
        assert_eq!(sent.answered(Some(opaque + 1)), None);
        assert!(sent.is_out(Time(6), Span(2)) && !sent.is_out(Time(7), Span(2)));
        // Every copy has a number.
        assert_eq!((sent.left(), sent.next_copy()), (0, None));
        sent.insist(16, true);
        sent.insist(16, true);
        let opaque = sent.send(Time(5));
        sent.went_by(3);
        let copy = sent.next_copy().expect("two are sent");
        sent.went_by(4);
        assert_eq!((sent.answered(Some(opaque)), sent.answered(Some(copy))), (Some(3), Some(4)));
        sent.retire();
        assert!(sent.answered(Some(opaque)).is_none() && !sent.is_out(Time(6), Span(2)));
        let next = sent.send(Time(9));
        assert!(next != opaque && next != copy);
        assert!(sent.answered(Some(opaque)).is_none() && sent.answered(Some(copy)).is_none());
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
    fn a_request_is_forgotten_when_it_is_done_and_with_progress() {
        let mut prober = Prober::default();
        prober.request();
        assert!(prober.is_due());
        prober.done();
        assert!(!prober.is_due());
        prober.request();
        prober.on_progress();
        assert!(!prober.is_due());
        // But for one that measures: an acknowledgement does not tell what it would.
        prober.measure();
        prober.on_progress();
        assert!(prober.is_due());
        prober.done();
        assert!(!prober.is_due());
    }

    #[test]
    fn the_longer_the_silence_the_more_copies() {
        let mut probe = SentProbe::default();
        let copies = |probe: &mut SentProbe, paths| {
            probe.insist(paths, true);
            probe.send(Time(1));
            1 + core::iter::from_fn(|| probe.next_copy()).count()
        };
        // Each further set of paths, and at last the first again, is tried as much as the first was at the end.
        for expected in [1, 2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2] {
            assert_eq!(copies(&mut probe, 16), expected);
        }
        // From there on it is but another set now and then.
        let detours: Vec<usize> = (1..40).filter(|_| probe.insist(16, true)).collect();
        assert_eq!(detours, [14, 30]);
        probe.calm();
        // Not more than there are paths.
        for (paths, expected) in [(16, 1), (1, 1), (3, 3), (u16::MAX, 8)] {
            assert_eq!(copies(&mut probe, paths), expected);
        }
    }
}
