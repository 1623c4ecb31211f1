//! Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter", SIGCOMM 2020): a window that aims at a delay. Sections and names below are that
//! paper's, names those of its algorithm 1.
//!
//! Swift keeps one window for the network and one for the end host and obeys the smaller (section
//! 3.3). [`Feedback::rtt`] comes without the peer's service time, so only the first can exist here.
//! The caller detects losses. The paper's fast recovery is here any loss that was found without the
//! timer, a trimmed packet included, because the comparisons of SMaRTT v1 (section 4) run Swift on
//! switches that trim.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rate, Span, Time};

use crate::controller::{
    Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics, SentPacket, Stamp,
};
use crate::fair::{CongestionSample, FairCc, Fairness};
use crate::math::{clock, float, least, most, nanos, rsqrt};
pub use config::SwiftConfig;

/// One Swift context: 48 bytes, parameters shared.
///
/// Times are the low 32 bits of nanoseconds, only used for differences; after a pause of a multiple
/// of 4.29 s one decrease may come one round trip late.
#[derive(Clone, Debug)]
pub struct Swift {
    config: Arc<SwiftConfig>,
    /// Time at which the latest packet was sent.
    last_send: Time,
    /// Congestion window in bytes; may be less than a packet.
    cwnd: f32,
    /// Moving average of the round-trip time in nanoseconds.
    srtt: f32,
    /// Factor `alpha` of flow-based scaling (section 3.5), which adds `alpha / sqrt(cwnd) + beta`
    /// to the target delay. Here `cwnd` is in bytes, so the unit is nanoseconds times the root of
    /// bytes.
    fs_alpha: f32,
    /// Summand `beta` of flow-based scaling (section 3.5), in nanoseconds.
    fs_beta: f32,
    /// Reference window in bytes for VAI and SF. Each acknowledgement derives its window from it.
    reference: f32,
    last_decrease: u32,
    /// Time between two packets in nanoseconds while the window is smaller than a packet; otherwise
    /// zero.
    pacing_delay: u32,
    /// Consecutive retransmission timeouts (`retransmit_cnt`).
    timeouts: u8,
}

impl Swift {
    /// Creates a context that starts with [`SwiftConfig::start_cwnd`] at `now`. `config` must have
    /// passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<SwiftConfig>, now: Time) -> Self {
        let mtu = config.mtu as f32;
        // Section 3.5: alpha = fs_range / (1/sqrt(fs_min_cwnd) - 1/sqrt(fs_max_cwnd)) and beta =
        // -alpha / sqrt(fs_max_cwnd). The windows there are in packets; 1/sqrt(cwnd / mtu) is
        // sqrt(mtu) / sqrt(cwnd), and alpha includes sqrt(mtu) = mtu / sqrt(mtu).
        let (low, high) = (rsqrt(config.fs_min_cwnd), rsqrt(config.fs_max_cwnd));
        let alpha = config.fs_range.0 as f32 / (low - high);
        let cwnd = (config.start_cwnd * mtu).clamp(config.min_cwnd * mtu, config.max_cwnd * mtu);
        Self {
            last_send: Time::ZERO,
            cwnd,
            reference: cwnd,
            srtt: config.base_rtt.0 as f32,
            fs_alpha: alpha * mtu * rsqrt(mtu),
            fs_beta: -alpha * high,
            last_decrease: clock(now),
            pacing_delay: 0,
            timeouts: 0,
            config,
        }
    }

    /// Returns the target delay in nanoseconds (section 3.5): the base target, topology-based
    /// scaling by the number of hops and flow-based scaling by the window.
    fn target(&self, hops: Option<u8>) -> f32 {
        let config = &*self.config;
        let by_flow = self.fs_alpha * rsqrt(self.cwnd) + self.fs_beta;
        self.target_of_path(hops) + most(least(by_flow, float(config.fs_range.0)), 0.0)
    }

    /// Returns the target delay in nanoseconds for a path of `hops` switches, without flow-based
    /// scaling.
    #[inline(always)]
    fn target_of_path(&self, hops: Option<u8>) -> f32 {
        let hops = f32::from(hops.unwrap_or(self.config.hops));
        float(self.config.base_target.0) + hops * float(self.config.per_hop.0)
    }

    /// Returns whether the window may be decreased: once a round trip (`can_decrease`).
    fn can_decrease(&self, now: u32) -> bool {
        now.wrapping_sub(self.last_decrease) as f32 >= self.srtt
    }

    /// Returns the round-trip delay that an acknowledgement measured in nanoseconds, if it has one.
    #[inline(always)]
    fn sample(&mut self, feedback: &Feedback<'_>) -> Option<f32> {
        self.timeouts = 0; // retransmit_cnt = 0
        // Probes overtake the queues on the control class; their delay is not that of data.
        let (Some(rtt), FeedbackKind::Acked) = (feedback.rtt, feedback.kind) else { return None };
        let delay = most(nanos(rtt) as f32, 1.0);
        self.srtt += (delay - self.srtt) * 0.125;
        Some(delay)
    }

    #[inline(always)]
    fn on_ack(&mut self, feedback: &Feedback<'_>, fairness: Option<&mut Fairness<()>>) {
        let Some(delay) = self.sample(feedback) else { return };
        let now = clock(feedback.now);
        let target = self.target(feedback.hops());
        let mtu = self.config.mtu as f32;
        if delay < target {
            // Additive increase: `ai` packets a round trip, or per packet while the window is smaller
            // than one. In bytes, cwnd += ai / cwnd * num_acked is ai * mtu * bytes / cwnd.
            let step = self.config.ai * feedback.bytes as f32;
            self.cwnd += if self.cwnd >= mtu { step * mtu / self.cwnd } else { step };
            self.finish_update(None);
        } else if self.can_decrease(now) {
            let ignored = fairness.is_some_and(|fairness| {
                let sample = self.congestion_sample(feedback, (delay, target), self.cwnd);
                // Swift decreases once per measured round trip; the counted round trips are not
                // used here.
                fairness.update(&CongestionSample { round_end: true, ..sample }).is_none()
            });
            if !ignored {
                self.cwnd *= self.decrease(delay, target);
            }
            self.finish_update(Some(now));
        }
    }

    /// Returns the factor by which a delay above the target multiplies the window.
    #[inline(always)]
    fn decrease(&self, delay: f32, target: f32) -> f32 {
        let factor = 1.0 - self.config.beta * (delay - target) / delay;
        most(factor, 1.0 - self.config.max_mdf)
    }

    /// Returns an acknowledgement's congestion as Variable Additive Increase (VAI) and Sampling
    /// Frequency (SF) need it.
    fn congestion_sample(
        &self,
        feedback: &Feedback<'_>,
        (delay, target): (f32, f32),
        window: f32,
    ) -> CongestionSample {
        let config = &*self.config;
        CongestionSample {
            measure: delay,
            decrease: delay > target,
            packets: feedback.packets,
            round_end: feedback.round_end,
            window,
            largest: config.max_cwnd * config.mtu as f32,
        }
    }

    /// Processes an acknowledgement with VAI and SF (Snyder's thesis, section 4.2): windows of
    /// single acknowledgements are derived from a reference, additive increase comes whatever the
    /// delay, and the target does not depend on the window.
    #[inline(always)]
    fn on_ack_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<()>) {
        let Some(delay) = self.sample(feedback) else { return };
        let target = self.target_of_path(feedback.hops());
        let sample = self.congestion_sample(feedback, (delay, target), self.reference);
        let Some(update) = fairness.update(&sample) else { return };
        let left = if sample.decrease { self.decrease(delay, target) } else { 1.0 };
        let mtu = self.config.mtu as f32;
        self.cwnd = self.clamp_window(self.reference * left + self.config.ai * update.gain * mtu);
        if update.commit {
            self.reference = self.cwnd;
        }
        self.update_pacing_delay();
    }

    /// Processes a report that is not an acknowledgement, or does not need the reference window.
    #[inline(never)]
    fn on_other_feedback(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<()>) {
        match feedback.kind {
            FeedbackKind::Acked | FeedbackKind::ProbeAnswered => {
                self.on_ack(feedback, Some(fairness));
            }
            _ => self.on_feedback(feedback),
        }
    }

    /// Processes a retransmission timeout ("on retransmit timeout"). The paper has one timer per
    /// flow; here each packet has its own, and those that fire within one round trip count as one.
    fn on_timeout(&mut self, now: u32) {
        if !self.can_decrease(now) {
            return;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= self.config.retx_reset {
            self.cwnd = 0.0; // `settle` raises it to the smallest window
            self.finish_update(Some(now));
            self.reference = self.cwnd;
        } else {
            self.back_off(now);
        }
    }

    /// Decreases the window after a loss, "on fast recovery" and on the first time-outs.
    fn back_off(&mut self, now: u32) {
        if self.can_decrease(now) {
            self.cwnd *= 1.0 - self.config.max_mdf;
            self.finish_update(Some(now));
            self.reference = self.cwnd;
        }
    }

    /// Applies the end of algorithm 1: bounds, `t_last_decrease`, `pacing_delay`. Only a real
    /// decrease moves `t_last_decrease`: if an unchanged window did so, a flow whose every ACK is
    /// late could never decrease again.
    fn finish_update(&mut self, decreased: Option<u32>) {
        self.cwnd = self.clamp_window(self.cwnd);
        if let Some(now) = decreased {
            self.last_decrease = now;
        }
        self.update_pacing_delay();
    }

    #[inline(always)]
    fn clamp_window(&self, window: f32) -> f32 {
        let (config, mtu) = (&*self.config, self.config.mtu as f32);
        most(least(window, config.max_cwnd * mtu), config.min_cwnd * mtu)
    }

    /// Updates the time between packets (`pacing_delay`) after the window changed.
    #[inline(always)]
    fn update_pacing_delay(&mut self) {
        if self.cwnd < self.config.mtu as f32 {
            self.set_pacing_delay();
        } else {
            self.pacing_delay = 0;
        }
    }

    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a saturating cast of a span
    fn set_pacing_delay(&mut self) {
        self.pacing_delay = (self.srtt * self.config.mtu as f32 / self.cwnd) as u32;
    }
}

impl SenderCc for Swift {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        let mtu = self.config.mtu;
        let not_before = match self.pacing_delay {
            0 => Time::ZERO,
            delay => self.last_send + Span(u64::from(delay)),
        };
        let budget = Budget {
            window: Some((self.cwnd as u64).max(u64::from(mtu))),
            not_before,
            ..Budget::default()
        };
        if !self.config.rate {
            return budget;
        }
        let bits = f64::from(self.cwnd) * 8e9 / self.config.base_rtt.as_f64();
        Budget { rate: Some(Rate((bits as u64).max(1_000_000))), burst: mtu, ..budget }
    }

    fn on_send(&mut self, now: Time, _sending: &SentPacket) -> Stamp {
        self.last_send = now;
        Stamp::default()
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked | FeedbackKind::ProbeAnswered => self.on_ack(feedback, None),
            FeedbackKind::Nacked { trimmed: true, .. } | FeedbackKind::Lost => {
                self.timeouts = 0;
                self.back_off(clock(feedback.now));
            }
            // The receiver lacks room, which is no congestion; but it answers, so time-outs start
            // over.
            FeedbackKind::Nacked { trimmed: false, .. } => self.timeouts = 0,
            FeedbackKind::TimedOut => self.on_timeout(clock(feedback.now)),
            FeedbackKind::Notified | FeedbackKind::Control => {}
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        let mtu = self.config.mtu as f32;
        let delay = Span(self.srtt as u64).saturating_sub(self.config.base_rtt);
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some((self.config.max_cwnd * mtu) as u64),
            base_rtt: Some(self.config.base_rtt),
            avg_delay: Some(delay),
            ..SenderMetrics::default()
        }
    }
}

impl FairCc for Swift {
    type Reference = ();

    #[inline(always)]
    fn on_feedback_fairly(&mut self, feedback: &Feedback<'_>, fairness: &mut Fairness<()>) {
        if feedback.kind == FeedbackKind::Acked && fairness.wants_reference() {
            self.on_ack_fairly(feedback, fairness);
        } else {
            self.on_other_feedback(feedback, fairness);
        }
    }
}
