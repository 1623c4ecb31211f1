//! TIMELY (Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015): a
//! rate that follows the gradient of the delay. The steps are those of its algorithm 1.
//!
//! The paper assumes a network without losses. Here a loss of any kind, which means that the delay rose
//! faster than it was measured, cuts the rate by [`TimelyConfig::loss_cut`] at most once a round trip.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics};
use crate::math::{clock, nanos, up_to};
pub use config::TimelyConfig;

/// One TIMELY context: 32 bytes, parameters shared.
///
/// A completion event is a segment's worth of acknowledged bytes ([`TimelyConfig::segment`]), whose
/// sample is the last round-trip time among them.
#[derive(Clone, Debug)]
pub struct Timely {
    config: Arc<TimelyConfig>,
    /// Sending rate in bits per second.
    rate: f32,
    /// Round-trip time of the previous completion event in nanoseconds; zero before the first.
    prev_rtt: f32,
    /// Moving average of the difference between consecutive round-trip times, in nanoseconds.
    rtt_diff: f32,
    /// Bytes acknowledged since the last completion event (one per segment).
    acked: u32,
    last_cut: u32,
    /// Consecutive completion events at which the smoothed delay fell (a negative gradient).
    falling: u8,
}

impl Timely {
    /// Creates a context that starts with [`TimelyConfig::start`] of the line at `now`. `config`
    /// must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<TimelyConfig>, now: Time) -> Self {
        let line = config.line.0 as f32;
        Self {
            rate: (config.start * line).max(config.min_rate.0 as f32).min(line),
            prev_rtt: 0.0,
            rtt_diff: 0.0,
            acked: 0,
            last_cut: clock(now),
            falling: 0,
            config,
        }
    }

    /// Updates the rate at a completion event with round-trip time `new_rtt` in nanoseconds
    /// (algorithm 1).
    fn on_completion(&mut self, new_rtt: f32) {
        let config = &*self.config;
        if self.prev_rtt == 0.0 {
            self.prev_rtt = new_rtt; // no difference yet
        }
        let new_diff = new_rtt - self.prev_rtt; // new_rtt_diff
        self.prev_rtt = new_rtt;
        self.rtt_diff += config.alpha * (new_diff - self.rtt_diff); // EWMA
        let gradient = self.rtt_diff / config.min_rtt.0 as f32; // normalised
        let step = config.delta.0 as f32;
        let (low, high) = (config.t_low.0 as f32, config.t_high.0 as f32);
        if new_rtt < low {
            self.rate += step;
        } else if new_rtt > high {
            self.falling = 0;
            self.rate *= 1.0 - config.beta * (1.0 - high / new_rtt);
        } else if gradient <= 0.0 {
            // N = 5 after five completion events with a negative gradient (hyper-active increase).
            self.falling = if gradient < 0.0 { self.falling.saturating_add(1) } else { 0 };
            let hyper = self.falling >= config.hai_after;
            self.rate += if hyper { f32::from(config.hai) * step } else { step };
        } else {
            self.falling = 0;
            self.rate *= 1.0 - config.beta * gradient;
        }
        self.clamp();
    }

    fn on_loss(&mut self, now: u32) {
        let round_trip = self.prev_rtt.max(self.config.min_rtt.0 as f32);
        if now.wrapping_sub(self.last_cut) as f32 >= round_trip {
            self.last_cut = now;
            self.falling = 0;
            self.rate *= self.config.loss_cut;
            self.clamp();
        }
    }

    fn clamp(&mut self) {
        let config = &*self.config;
        self.rate = self.rate.min(config.line.0 as f32).max(config.min_rate.0 as f32);
    }
}

impl SenderCc for Timely {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget {
            rate: Some(up_to(self.rate, self.config.line)),
            window: self.config.window_bytes(),
            burst: self.config.segment,
            ..Budget::default()
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked => {
                self.acked = self.acked.saturating_add(feedback.bytes);
                if let (Some(rtt), true) = (feedback.rtt, self.acked >= self.config.segment) {
                    self.acked = 0;
                    self.on_completion((nanos(rtt) as f32).max(1.0));
                }
            }
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.on_loss(clock(feedback.now));
            }
            // The receiver lacks room, which is no congestion.
            FeedbackKind::Nacked { trimmed: false, .. } => {}
            // Probes overtake the queues; the other signals belong to other algorithms.
            FeedbackKind::ProbeAnswered | FeedbackKind::Notified | FeedbackKind::Control => {}
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        let window = self.config.window_bytes();
        SenderMetrics {
            cwnd: window,
            max_cwnd: window,
            rate: Some(up_to(self.rate, self.config.line)),
            base_rtt: Some(self.config.min_rtt),
            ..SenderMetrics::default()
        }
    }
}
