//! DCTCP with VAI and SF (Snyder's thesis, section 4.2): windows of single acknowledgements are
//! derived from a reference, and additive increase comes with every one of them. The measure of
//! congestion is the delay, which DCTCP itself does not use: the share of marks shows that there is
//! a queue, not how long it is.

use crate::controller::{Feedback, FeedbackKind, SenderCc};
use crate::fair::{CongestionSample, FairCc, Fairness, Reference};
use crate::math::{least, most, nanos};

use super::{Dctcp, marked};

impl FairCc for Dctcp {
    type Reference = Reference;

    #[inline(always)]
    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        let reference = fairness.reference(self.cwnd);
        let acked = matches!(feedback.kind, FeedbackKind::Acked | FeedbackKind::ProbeAnswered)
            && feedback.bytes > 0;
        // Slow start, in which there is no fair share yet, remains DCTCP's own.
        if acked && (reference >= self.ssthresh || feedback.ecn) {
            self.on_ack_fairly(feedback, reference, fairness);
        } else {
            self.on_any_fairly(feedback, reference, fairness);
        }
    }
}

impl Dctcp {
    /// Processes a report as DCTCP does without VAI and SF.
    #[inline(never)]
    fn on_any_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        reference: f32,
        fairness: &mut Fairness<Reference>,
    ) {
        self.cwnd = reference;
        self.on_feedback(feedback);
        fairness.set_reference(self.cwnd);
    }

    /// Processes an acknowledgement outside of slow start, with VAI and SF.
    #[inline(always)]
    fn on_ack_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        reference: f32,
        fairness: &mut Fairness<Reference>,
    ) {
        self.cwnd = reference;
        self.settle(feedback);
        let (bytes, marked) = (feedback.bytes as f32, marked(feedback));
        self.observe(bytes, marked, feedback.in_flight);
        let mtu = self.config.mtu as f32;
        let largest = self.config.max_cwnd * mtu;
        let sample = CongestionSample {
            measure: feedback.rtt.map_or(0.0, |rtt| nanos(rtt) as f32),
            decrease: marked > 0.0,
            packets: feedback.packets,
            round_end: feedback.round_end,
            window: reference,
            largest,
        };
        let update = fairness.update(&sample);
        if let Some(update) = update {
            // Step 9 applies as often as the updates commit; RFC 5681 section 3.1 once a round
            // trip, if the window is used.
            let left = if sample.decrease { 1.0 - self.alpha / 2.0 } else { 1.0 };
            let used = 2.0 * (feedback.in_flight as f32 + bytes) >= reference;
            let more = if used { self.config.ai * mtu * update.gain } else { 0.0 };
            let window = most(reference * left, self.config.min_wnd as f32) + more;
            self.cwnd = least(window, largest);
            if update.commit && sample.decrease {
                self.ssthresh = self.cwnd;
            }
        }
        let lasts = update.is_some_and(|update| update.commit);
        fairness.set_reference(if lasts { self.cwnd } else { reference });
    }
}
