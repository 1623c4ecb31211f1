//! Probes: control packets that ask a silent peer which packets arrived.

use super::loss_timer::MAX_BACKOFF;
use crate::base::{PATH_SETS, Span, Time};
use crate::deadlines::{Deadlines, Timer};

/// The largest number of copies of a probe, each on its own path.
const MOST_COPIES: u8 = 8;

/// Copies of consecutive probes while the peer is silent. Where half of the paths lose everything
/// in either direction, one silence in a thousand outlasts the first five probes. After those the
/// peer itself is probably gone, and more copies would only keep it busy when it returns.
const COPIES: [u8; 6] = [1, 2, 4, MOST_COPIES, MOST_COPIES, 2];

/// Silent intervals between detours once all sets of paths were tried, because the peer itself is
/// probably gone.
const DETOUR_INTERVAL: u8 = 16;

/// Index in [`COPIES`] after a detour: with as many copies as it takes to try all paths of the new
/// set.
const URGENCY_AFTER_DETOUR: u8 = 3;

/// Number of probes that a peer that has never answered gets, as retransmissions. If half of the paths
/// lose every packet in either direction, all of them stay unanswered for one peer in 1000.
pub(super) const FIRST_PROBES: u8 = 24;

/// Index of the first of [`FIRST_PROBES`] that uses other entropies, and the number of probes from one
/// change of entropies to the next. All sets of entropies are tried before the last of these probes.
const FIRST_DETOUR: (u8, u8) = (12, 4);

/// The state of a sending half's probing. [`crate::deadlines::Timer::Probe`] holds when the next
/// probe is due.
#[derive(Debug, Default)]
pub(super) struct Prober {
    /// Number of consecutive probes without an answer; each doubles the interval to the next.
    unanswered: u8,
    /// A probe must be sent, unless the peer answers before it leaves.
    due: bool,
    /// A probe must be sent in any case, because congestion control wants its round-trip time past
    /// the queues.
    wanted: bool,
    /// The peer is allowed to delay the acknowledgement of the newest packet.
    patient: bool,
}

impl Prober {
    /// Returns whether a probe must be sent now.
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.due || self.wanted
    }

    /// Returns whether the peer is allowed to delay the acknowledgement of the newest packet.
    #[inline]
    pub(super) const fn allows_delayed_ack(&self) -> bool {
        self.patient
    }

    /// Records, for a packet that leaves, whether the peer may delay its acknowledgement: nothing
    /// follows it, and it asks for none.
    #[inline]
    pub(super) fn set_delayed_ack(&mut self, patient: bool) {
        self.patient = patient;
    }

    /// Returns the number of consecutive probes without an answer.
    #[inline]
    pub(super) const fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// Returns the silence of the peer after which the next probe is due: `first`, doubled for each
    /// unanswered probe, up to `most`.
    #[inline]
    pub(super) fn interval(&self, first: Span, most: Span) -> Span {
        (first * (1 << self.unanswered.min(MAX_BACKOFF))).min(most)
    }

    /// Begins a silence after a packet has left, which ends with a probe at `until`, unless a
    /// silence lasts already.
    #[inline]
    pub(super) fn begin_silence(&self, until: Time, timers: &mut Deadlines) {
        if self.unanswered == 0 || !timers.is_running(Timer::Probe) {
            timers.set(Timer::Probe, until);
        }
    }

    /// Requests a probe that asks the peer which packets arrived.
    #[inline]
    pub(super) fn request(&mut self) {
        self.due = true;
    }

    /// Requests a probe that is sent even if the peer answers before, to measure its round trip.
    #[inline]
    pub(super) fn measure(&mut self) {
        self.wanted = true;
    }

    /// Records that the requested probes were sent.
    #[inline]
    pub(super) fn clear_request(&mut self) {
        (self.due, self.wanted) = (false, false);
    }

    /// Returns whether so many paths to a peer that has never answered were tried that the next probe
    /// should use other entropies.
    pub(super) const fn exhausted_first_paths(&self) -> bool {
        let (first, every) = FIRST_DETOUR;
        self.unanswered >= first && (self.unanswered - first).is_multiple_of(every)
    }

    /// Counts a probe that the peer did not answer.
    pub(super) fn on_silence(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Makes the interval to the next probe the shortest again.
    pub(super) fn reset_interval(&mut self) {
        self.unanswered = 0;
    }

    /// Cancels the requested probe and counts unanswered ones anew, because the peer acknowledged
    /// something.
    #[inline]
    pub(super) fn on_progress(&mut self) {
        self.unanswered = 0;
        self.due = false;
    }
}

/// The newest probe that was sent. The longer the peer is silent, the more copies of a probe leave,
/// each on a path of its own: paths may have failed in both directions, and to try one after the
/// other takes long. The opaque numbers of the copies are consecutive, so the answer shows which
/// path worked.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentProbe {
    /// The time at which the probe was sent; `NEVER` when its answer is not needed any more.
    sent_at: Time,
    /// The opaque number of the probe's first copy; the answer echoes a copy's number.
    opaque: u16,
    /// The path on which each copy of the probe left.
    paths: [u16; MOST_COPIES as usize],
    copies: u8,
    /// Number of copies of the probe that are still to be sent.
    left: u8,
    /// Number of copies of the next probe, besides the first.
    next: u8,
    /// The index in [`COPIES`] that gives the number of copies of the next probe.
    urgency: u8,
    /// Detours since the peer last answered; once all sets of paths were tried, also the silent
    /// intervals since.
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
    /// Sets the number of copies of the next probe after a further silence, at most as many as the
    /// `paths`. Returns whether the context should take a detour because these paths were tried
    /// without an answer, which needs a silence that is `long` enough.
    pub(super) fn escalate_probes(&mut self, paths: u16, long: bool) -> bool {
        let last = COPIES.len() as u8 - 1;
        let paths_exhausted = long && self.urgency == last;
        let again = self.detours >= PATH_SETS as u8;
        if paths_exhausted {
            self.detours += 1;
            if !again {
                self.urgency = URGENCY_AFTER_DETOUR;
            } else if self.detours == PATH_SETS as u8 + DETOUR_INTERVAL {
                self.detours = PATH_SETS as u8;
            }
        }
        let detour = paths_exhausted && self.detours <= PATH_SETS as u8;
        let most = u8::try_from(paths).unwrap_or(u8::MAX);
        let copies = COPIES[usize::from(self.urgency)].min(most);
        self.next = copies.saturating_sub(1);
        self.urgency = (self.urgency + 1).min(last);
        detour
    }

    /// Resets the numbers of probe copies and detours, because the peer answered.
    #[inline]
    pub(super) fn reset_urgency(&mut self) {
        (self.urgency, self.detours, self.next, self.left) = (0, 0, 0, 0);
    }

    /// Sends another probe. Returns the opaque number of its first copy.
    pub(super) fn send(&mut self, now: Time) -> u16 {
        self.sent_at = now;
        self.opaque = self.opaque.wrapping_add(u16::from(self.copies));
        self.copies = 1;
        self.left = core::mem::take(&mut self.next);
        self.opaque
    }

    /// Returns the number of copies of the probe that are still to be sent.
    pub(super) const fn remaining_copies(&self) -> u8 {
        self.left
    }

    /// Returns the opaque number of the next copy, if one is still to be sent.
    pub(super) fn next_copy(&mut self) -> Option<u16> {
        self.left = self.left.checked_sub(1)?;
        self.copies += 1; // at most as many as there were left
        Some(self.opaque.wrapping_add(u16::from(self.copies - 1)))
    }

    /// Records the path on which the newest copy of the probe left.
    pub(super) fn set_copy_path(&mut self, path: u16) {
        self.paths[usize::from(self.copies - 1)] = path;
    }

    /// Returns the time at which the newest probe was sent.
    #[inline]
    pub(super) const fn sent_at(&self) -> Time {
        self.sent_at
    }

    /// Returns whether the probe was sent less than a round trip of `trip` ago and may still be
    /// answered.
    pub(super) fn awaits_answer(&self, now: Time, trip: Span) -> bool {
        self.sent_at != Time::NEVER && now.since(self.sent_at) < trip
    }

    /// Returns the path of the copy of the newest probe that an answer with this `opaque` belongs to.
    /// `None` when the answer belongs to an older probe.
    #[inline]
    pub(super) fn answered(&self, opaque: Option<u16>) -> Option<u16> {
        let copy = opaque?.wrapping_sub(self.opaque);
        let sent = copy < u16::from(self.copies) && self.sent_at != Time::NEVER;
        self.paths.get(usize::from(copy)).copied().filter(|_| sent)
    }

    /// Ignores answers to the newest probe from now on.
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
        assert!(sent.answered(Some(0)).is_none() && !sent.awaits_answer(Time(0), Span(9)));
        let opaque = sent.send(Time(5));
        sent.set_copy_path(3);
        assert_eq!((sent.answered(Some(opaque)), sent.answered(None)), (Some(3), None));
        assert_eq!(sent.answered(Some(opaque + 1)), None);
        assert!(sent.awaits_answer(Time(6), Span(2)) && !sent.awaits_answer(Time(7), Span(2)));
        // Every copy has a number of its own.
        assert_eq!((sent.remaining_copies(), sent.next_copy()), (0, None));
        sent.escalate_probes(16, true);
        sent.escalate_probes(16, true);
        let opaque = sent.send(Time(5));
        sent.set_copy_path(3);
        let copy = sent.next_copy().expect("two are sent");
        sent.set_copy_path(4);
        assert_eq!((sent.answered(Some(opaque)), sent.answered(Some(copy))), (Some(3), Some(4)));
        sent.retire();
        assert!(sent.answered(Some(opaque)).is_none() && !sent.awaits_answer(Time(6), Span(2)));
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
        prober.reset_interval();
        assert_eq!(interval(&prober), Span(100));
    }

    #[test]
    fn a_request_is_forgotten_when_it_is_done_and_with_progress() {
        let mut prober = Prober::default();
        prober.request();
        assert!(prober.is_due());
        prober.clear_request();
        assert!(!prober.is_due());
        prober.request();
        prober.on_progress();
        assert!(!prober.is_due());
        // A request to measure stays, because an acknowledgement does not show the probe's round
        // trip.
        prober.measure();
        prober.on_progress();
        assert!(prober.is_due());
        prober.clear_request();
        assert!(!prober.is_due());
    }

    #[test]
    fn longer_silences_send_more_copies_of_a_probe() {
        let mut probe = SentProbe::default();
        let copies = |probe: &mut SentProbe, paths| {
            probe.escalate_probes(paths, true);
            probe.send(Time(1));
            1 + core::iter::from_fn(|| probe.next_copy()).count()
        };
        // Each further set of paths, and finally the first again, gets as many copies as the first
        // set had at the end.
        for expected in [1, 2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2] {
            assert_eq!(copies(&mut probe, 16), expected);
        }
        // From there on detours are rare.
        let detours: Vec<usize> = (1..40).filter(|_| probe.escalate_probes(16, true)).collect();
        assert_eq!(detours, [14, 30]);
        probe.reset_urgency();
        // There are never more copies than paths.
        for (paths, expected) in [(16, 1), (1, 1), (3, 3), (u16::MAX, 8)] {
            assert_eq!(copies(&mut probe, paths), expected);
        }
    }
}
