//! NSCC with VAI and SF (Snyder's thesis, section 4.2). The reference is the window as NSCC moves
//! it, except for eq. 1: that lowers the windows of single acknowledgements, each derived from the
//! reference, and lowers the reference only when an update commits. The additive increase, which
//! VAI raises, is `eta`: the increase that NSCC adds every base round trip.

use squall_base::Span;

use crate::controller::{Feedback, FeedbackKind, SenderCc};
use crate::fair::{CongestionSample, FairCc, Fairness, Reference};
use crate::math::{clock, float, least, most, nanos};

use super::{AckReport, FlowState, Nscc, NsccConfig, decrease_factor};

impl FairCc for Nscc {
    type Reference = Reference;

    #[inline(always)]
    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        let now = clock(feedback.now);
        match self.fast_path_delay(feedback) {
            Some(delay) if !self.flow.qa_is_due(&self.config, now, delay) => {
                self.on_ack_fairly(feedback, delay, fairness);
            }
            _ => self.on_any_fairly(feedback, fairness),
        }
    }
}

impl Nscc {
    /// Returns the queueing delay of a report that can take the fast path. [`Nscc::on_feedback`]
    /// has its own copy of these tests: a shared one costs the plain algorithm three instructions.
    #[inline(always)]
    fn fast_path_delay(&self, feedback: &Feedback<'_>) -> Option<Span> {
        let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) else { return None };
        let flow = &self.flow;
        let delay = Span(rtt.0.wrapping_sub(flow.base_rtt.into()));
        let penalty = flow.is_penalised(feedback);
        if delay.0 > u32::MAX.into() || flow.due > 0 || flow.to_ignore > 0 || penalty {
            return None;
        }
        Some(delay)
    }

    /// Processes, with VAI and SF, a fast-path acknowledgement that does not trigger QuickAdapt.
    #[inline(always)]
    fn on_ack_fairly(
        &mut self,
        feedback: &Feedback<'_>,
        delay: Span,
        fairness: &mut Fairness<Reference>,
    ) {
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.cwnd = fairness.reference(flow.cwnd);
        let rtt = feedback.rtt.unwrap_or_default();
        let sample = flow.congestion_sample(config, feedback, (rtt, delay));
        let update = fairness.update(&sample);
        let (now, bytes) = (clock(feedback.now), feedback.bytes as f32);
        flow.count_acked(feedback.bytes);
        flow.avg_delay += least(bytes / flow.cwnd, 1.0) * (float(delay.0) - flow.avg_delay);
        if flow.qa_period_is_over(config, now) {
            flow.begin_qa_period(now);
        }
        if sample.decrease {
            // Algorithm 1 without eq. 1, which the updates apply.
            flow.increase = false;
            flow.fi_count = 0.0;
            flow.adjust::<true>(config, now, 1.0);
        } else {
            let report = AckReport { now, bytes, marked: feedback.ecn, delay };
            flow.react::<true>(config, report, false);
        }
        flow.cwnd = least(flow.cwnd, flow.max_wnd);
        flow.consider_probe(feedback.in_flight);
        let reference = flow.cwnd;
        let Some(update) = update else { return fairness.set_reference(reference) };
        let lowers = sample.decrease && flow.avg_delay > float(config.target_qdelay.0);
        let left = if lowers { decrease_factor(config, flow.avg_delay) } else { 1.0 };
        let window = reference * left + config.eta * (update.gain - 1.0);
        flow.cwnd = most(least(window, flow.max_wnd), config.min_wnd);
        fairness.set_reference(if update.commit { flow.cwnd } else { reference });
    }

    /// Processes any report, with VAI and SF.
    #[inline(never)]
    fn on_any_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<Reference>) {
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.cwnd = fairness.reference(flow.cwnd);
        let (FeedbackKind::Acked, Some(rtt)) = (feedback.kind, feedback.rtt) else {
            self.on_any(feedback);
            fairness.set_reference(self.flow.cwnd);
            return;
        };
        let delay = flow.sample(config, rtt);
        let sample = flow.congestion_sample(config, feedback, (rtt, delay));
        let update = fairness.update(&sample);
        let before = flow.cwnd;
        // Decreases follow the updates, so eq. 1's limit of one a base round trip is disabled here.
        let last_decrease = core::mem::replace(&mut flow.last_decrease, clock(feedback.now));
        self.on_feedback(feedback);
        let (flow, config) = (&mut self.flow, &*self.config);
        flow.last_decrease = last_decrease;
        // The updates do not govern the window changes of QuickAdapt and of the receiver's penalty.
        let reference = flow.cwnd;
        fairness.set_reference(reference);
        let Some(update) = update.filter(|_| reference >= before) else { return };
        let lowers = sample.decrease
            && !flow.ignores(true)
            && flow.avg_delay > float(config.target_qdelay.0);
        let left = if lowers { decrease_factor(config, flow.avg_delay) } else { 1.0 };
        let more = config.eta * flow.gain_scale(config) * (update.gain - 1.0);
        flow.cwnd = most(least(reference * left + more, flow.max_wnd), config.min_wnd);
        if update.commit {
            fairness.set_reference(flow.cwnd);
        }
    }
}

impl FlowState {
    /// Returns an acknowledgement's congestion as Variable Additive Increase (VAI) and Sampling
    /// Frequency (SF) need it.
    #[inline(always)]
    fn congestion_sample(
        &self,
        config: &NsccConfig,
        feedback: &Feedback<'_>,
        (rtt, delay): (Span, Span),
    ) -> CongestionSample {
        CongestionSample {
            measure: nanos(rtt) as f32,
            decrease: feedback.ecn && delay >= config.target_qdelay,
            packets: feedback.packets,
            round_end: feedback.round_end,
            window: self.cwnd,
            largest: self.max_wnd,
        }
    }

    /// Returns whether QuickAdapt was triggered and its period is over.
    #[inline(always)]
    fn qa_is_due(&self, config: &NsccConfig, now: u32, delay: Span) -> bool {
        self.qa_period_is_over(config, now) && self.qa_is_called(config, delay)
    }
}
