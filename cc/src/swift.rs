//! Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter", SIGCOMM 2020): a window that aims at a delay. Sections and names below are that
//! paper's, names those of its algorithm 1.
//!
//! Swift keeps one window for the network and one for the end host and obeys the smaller (section
//! 3.3). [`Feedback::rtt`] comes without the peer's service time, so only the first can exist here.
//! Loss detection is the caller's; what the paper calls fast recovery is here any loss that was found
//! without the timer, a trimmed packet included, for the comparisons of SMaRTT v1 (section 4) run Swift
//! on switches that trim.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Span, Time};

use crate::budget::{Budget, Metrics, Sending, Stamp};
use crate::feedback::{Feedback, Kind};
use crate::math::{clock, nanos, rsqrt};
use crate::sender::SenderCc;
pub use config::SwiftConfig;

/// One Swift context: 48 bytes, parameters shared.
///
/// Times are the low 32 bits of nanoseconds, used as "time passed since"; after a pause of a multiple
/// of 4.29 s one decrease may come one round trip late.
#[derive(Clone, Debug)]
pub struct Swift {
    config: Arc<SwiftConfig>,
    /// When the last packet left.
    last_send: Time,
    /// Congestion window in bytes; may be less than a packet.
    cwnd: f32,
    /// Smoothed round-trip time in nanoseconds.
    srtt: f32,
    /// `alpha` of section 3.5 for a window in bytes: nanoseconds times the root of bytes.
    fs_alpha: f32,
    /// `beta` of section 3.5, in nanoseconds.
    fs_beta: f32,
    /// What the additive increase is multiplied by.
    gain: f32,
    last_decrease: u32,
    /// Time between two packets while the window is smaller than one, in nanoseconds.
    pacing_delay: u32,
    /// Time-outs in a row (`retransmit_cnt`).
    timeouts: u8,
}

impl Swift {
    /// A context that starts with [`SwiftConfig::start_cwnd`] at `now`. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<SwiftConfig>, now: Time) -> Self {
        let mtu = config.mtu as f32;
        // Section 3.5: alpha = fs_range / (1/sqrt(fs_min_cwnd) - 1/sqrt(fs_max_cwnd)) and
        // beta = -alpha / sqrt(fs_max_cwnd). The windows there are in packets; 1/sqrt(cwnd / mtu) is
        // sqrt(mtu) / sqrt(cwnd), and sqrt(mtu) = mtu / sqrt(mtu) is taken into alpha.
        let (low, high) = (rsqrt(config.fs_min_cwnd), rsqrt(config.fs_max_cwnd));
        let alpha = config.fs_range.0 as f32 / (low - high);
        Self {
            last_send: Time::ZERO,
            cwnd: (config.start_cwnd * mtu).clamp(config.min_cwnd * mtu, config.max_cwnd * mtu),
            srtt: config.base_rtt.0 as f32,
            fs_alpha: alpha * mtu * rsqrt(mtu),
            fs_beta: -alpha * high,
            gain: 1.0,
            last_decrease: clock(now),
            pacing_delay: 0,
            timeouts: 0,
            config,
        }
    }

    /// The target delay in nanoseconds (section 3.5): base target, topology-based scaling by the
    /// number of hops, flow-based scaling by the window.
    fn target(&self, hops: Option<u8>) -> f32 {
        let config = &*self.config;
        let hops = f32::from(hops.unwrap_or(config.hops));
        let by_flow = (self.fs_alpha * rsqrt(self.cwnd) + self.fs_beta)
            .min(config.fs_range.0 as f32)
            .max(0.0);
        config.base_target.0 as f32 + hops * config.per_hop.0 as f32 + by_flow
    }

    /// `can_decrease`: once a round trip.
    fn can_decrease(&self, now: u32) -> bool {
        now.wrapping_sub(self.last_decrease) as f32 >= self.srtt
    }

    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        self.timeouts = 0; // retransmit_cnt = 0
        // Probes overtake the queues on the control class; their delay is nobody's.
        let (Some(rtt), Kind::Acked) = (feedback.rtt, feedback.kind) else { return };
        let delay = (nanos(rtt) as f32).max(1.0);
        self.srtt += (delay - self.srtt) * 0.125;
        let now = clock(feedback.now);
        let target = self.target(feedback.hops);
        let mtu = self.config.mtu as f32;
        if delay < target {
            // Additive increase: `ai` packets a round trip, or per packet while the window is smaller
            // than one. In bytes, cwnd += ai / cwnd * num_acked is ai * mtu * bytes / cwnd.
            let step = self.config.ai * self.gain * feedback.bytes as f32;
            self.cwnd += if self.cwnd >= mtu { step * mtu / self.cwnd } else { step };
            self.settle(None);
        } else if self.can_decrease(now) {
            // Multiplicative decrease.
            let factor = 1.0 - self.config.beta * (delay - target) / delay;
            self.cwnd *= factor.max(1.0 - self.config.max_mdf);
            self.settle(Some(now));
        }
    }

    /// "On retransmit timeout". The paper has one timer a flow; where each packet has its own, those
    /// that fire within one round trip count as one.
    fn on_timeout(&mut self, now: u32) {
        if !self.can_decrease(now) {
            return;
        }
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= self.config.retx_reset {
            self.cwnd = 0.0; // the smallest window, which `settle` knows
            self.settle(Some(now));
        } else {
            self.back_off(now);
        }
    }

    /// What a loss costs, "on fast recovery" as well as on the first time-outs.
    fn back_off(&mut self, now: u32) {
        if self.can_decrease(now) {
            self.cwnd *= 1.0 - self.config.max_mdf;
            self.settle(Some(now));
        }
    }

    /// The end of algorithm 1: bounds, `t_last_decrease`, `pacing_delay`. Only a real decrease moves
    /// `t_last_decrease`: would an unchanged window do so, a flow whose every ACK is late could never
    /// decrease again.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a saturating cast of a span
    fn settle(&mut self, decreased: Option<u32>) {
        let mtu = self.config.mtu as f32;
        self.cwnd = self.cwnd.min(self.config.max_cwnd * mtu).max(self.config.min_cwnd * mtu);
        if let Some(now) = decreased {
            self.last_decrease = now;
        }
        self.pacing_delay = if self.cwnd < mtu { (self.srtt * mtu / self.cwnd) as u32 } else { 0 };
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
        Budget {
            window: Some((self.cwnd as u64).max(u64::from(mtu))),
            not_before,
            ..Budget::default()
        }
    }

    fn on_send(&mut self, now: Time, _sending: &Sending) -> Stamp {
        self.last_send = now;
        Stamp::default()
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            Kind::Acked | Kind::ProbeAnswered => self.on_ack(feedback),
            Kind::Nacked { trimmed: true, .. } | Kind::Lost => {
                self.timeouts = 0;
                self.back_off(clock(feedback.now));
            }
            // A receiver that is not ready, not a network that is full. It lives.
            Kind::Nacked { trimmed: false, .. } => self.timeouts = 0,
            Kind::TimedOut => self.on_timeout(clock(feedback.now)),
            Kind::Notified | Kind::Control => {}
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> Metrics {
        let mtu = self.config.mtu as f32;
        let delay = Span(self.srtt as u64).saturating_sub(self.config.base_rtt);
        Metrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some((self.config.max_cwnd * mtu) as u64),
            base_rtt: Some(self.config.base_rtt),
            avg_delay: Some(delay),
            ..Metrics::default()
        }
    }

    /// Smoothed delay over its target.
    fn congestion(&self) -> f64 {
        f64::from(self.srtt / self.target(None))
    }

    #[allow(clippy::cast_possible_truncation)] // single precision is the window's
    fn set_ai_gain(&mut self, gain: f64) {
        self.gain = gain as f32;
    }
}
