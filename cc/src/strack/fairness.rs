//! STrack as VAI and SF need it (Snyder's thesis, section 4.2). The reference is the window as STrack moves it, but for the decreases
//! of algorithm 3: those lower the windows of single acknowledgements, each made from the reference, and the reference where a
//! turn says so. Additive increase, which VAI raises, is `eta`: what STrack adds a base round trip whatever happens.

use crate::controller::{Feedback, FeedbackKind};
use crate::fair::{CongestionSample, FairCc, Fairness, Reference};
use crate::math::{clock, nanos};

use super::Strack;

impl FairCc for Strack {
    type Reference = Reference;

    #[inline(always)]
    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        if let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) {
            let rtt = nanos(rtt);
            if rtt >= self.base_rtt {
                return self.on_ack_fairly(feedback, rtt, fairness);
            }
        }
        self.on_any_fairly(feedback, fairness);
    }
}

impl Strack {
    /// Any report.
    #[inline(never)]
    fn on_any_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        if let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) {
            // A new base, and no delay.
            self.sample(Some(rtt));
            self.on_ack_fairly(feedback, self.base_rtt, fairness);
            return;
        }
        self.cwnd = fairness.reference(self.cwnd);
        self.on_any(feedback);
        fairness.set_reference(self.cwnd);
    }

    /// An acknowledgement with a round-trip time in nanoseconds that is no new base.
    #[inline(always)]
    fn on_ack_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        rtt: u32,
        fairness: &mut Fairness<Reference>,
    ) {
        self.cwnd = fairness.reference(self.cwnd);
        let (now, delay) = (clock(feedback.now), u64::from(rtt - self.base_rtt));
        let (target, high) = (self.config.target_qdelay.0, self.config.target_qhigh.0);
        // Algorithm 3 lines 5, 7 and 9.
        let increase = !feedback.ecn && (delay > high || delay < target);
        let sample = CongestionSample {
            measure: rtt as f32,
            decrease: !increase && delay > target.min(high),
            packets: feedback.packets,
            round_end: feedback.round_end,
            window: self.cwnd,
            largest: self.max_wnd,
        };
        let update = fairness.update(&sample);
        self.probe_later(feedback);
        self.update_achieved(now, feedback.bytes);
        // Its decreases come not once a base round trip, but by turns; a loss keeps its distance to those that last.
        self.adjust::<false>(now, feedback.bytes, feedback.ecn, delay);
        self.clamp();
        let reference = self.cwnd;
        fairness.set_reference(reference);
        let Some(update) = update else { return };
        if sample.decrease {
            self.cwnd = self.lowered(delay).unwrap_or(reference);
        }
        self.cwnd += self.config.eta * (update.gain - 1.0);
        self.clamp();
        if update.commit {
            fairness.set_reference(self.cwnd);
            if sample.decrease {
                self.last_decrease = now;
            }
        }
    }
}
