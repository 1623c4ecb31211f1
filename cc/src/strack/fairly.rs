//! STrack as VAI and SF need it (Snyder's thesis, section 4.2). The reference is the window as STrack moves it, but for the decreases
//! of algorithm 3: those lower the windows of single acknowledgements, each made from the reference, and the reference where a
//! turn says so. Additive increase, which VAI raises, is `eta`: what STrack adds a base round trip whatever happens.

use crate::fair::{FairCc, Fairness, Reference, Seen};
use crate::feedback::{Feedback, Kind};
use crate::math::{clock, nanos};
use crate::sender::SenderCc;

use super::Strack;

impl FairCc for Strack {
    type Reference = Reference;

    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        self.cwnd = fairness.reference(self.cwnd);
        let (Kind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) else {
            self.on_any(feedback);
            fairness.set_reference(self.cwnd);
            return;
        };
        let rtt = nanos(rtt);
        let delay = u64::from(rtt.saturating_sub(self.base_rtt));
        let (target, high) = (self.config.target_qdelay.0, self.config.target_qhigh.0);
        // Algorithm 3 lines 5, 7 and 9.
        let increase = !feedback.ecn && (delay > high || delay < target);
        let seen = Seen {
            measure: rtt as f32,
            decrease: !increase && delay > target.min(high),
            packets: feedback.packets,
            round_end: feedback.round_end,
            window: self.cwnd,
            largest: self.max_wnd,
        };
        let turn = fairness.turn(&seen);
        // Not once a base round trip, but by turns; a loss keeps its distance to those that last.
        let last_decrease = core::mem::replace(&mut self.last_decrease, clock(feedback.now));
        self.on_feedback(feedback);
        self.last_decrease = last_decrease;
        let reference = self.cwnd;
        fairness.set_reference(reference);
        let Some(turn) = turn else { return };
        if seen.decrease {
            self.cwnd = self.lowered(delay).unwrap_or(reference);
        }
        self.cwnd += self.config.eta * (turn.gain - 1.0);
        self.clamp();
        if turn.commit {
            fairness.set_reference(self.cwnd);
            if seen.decrease {
                self.last_decrease = clock(feedback.now);
            }
        }
    }
}
