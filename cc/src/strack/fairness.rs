//! STrack with VAI and SF (Snyder's thesis, section 4.2). The reference is the window as STrack
//! moves it, except for the decreases of algorithm 3: those lower the windows of single
//! acknowledgements, each derived from the reference, and lower the reference only when an update
//! commits. The additive increase, which VAI raises, is `eta`: the increase that STrack adds every
//! base round trip.

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
    /// Processes any report, with VAI and SF.
    #[inline(never)]
    fn on_any_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        if let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) {
            // The sample is a new base RTT and has no queueing delay.
            self.sample(Some(rtt));
            self.on_ack_fairly(feedback, self.base_rtt, fairness);
            return;
        }
        self.cwnd = fairness.reference(self.cwnd);
        self.on_any(feedback);
        fairness.set_reference(self.cwnd);
    }

    /// Processes, with VAI and SF, an acknowledgement whose round-trip time in nanoseconds is no
    /// new base RTT.
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
        self.restart_probe_timer(feedback);
        self.update_achieved(now, feedback.bytes);
        // Decreases follow the updates instead of once a base round trip; a loss keeps its distance
        // to the committed ones.
        self.adjust::<false>(now, feedback.bytes, feedback.ecn, delay);
        self.clamp();
        let reference = self.cwnd;
        fairness.set_reference(reference);
        let Some(update) = update else { return };
        if sample.decrease {
            self.cwnd = self.decreased_window(delay).unwrap_or(reference);
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
