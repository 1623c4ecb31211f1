//! @NAME@: a window that adds a constant a round trip and is cut by a share when a packet of the round was marked or lost. Say
//! here whose algorithm this is, with paper and section, and beside each step which of theirs it is.

mod config;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, FeedbackKind, SenderMetrics, SenderCc};
pub use config::@TYPE@Config;

/// One context of @NAME@; parameters are shared by all flows.
#[derive(Clone, Debug)]
pub struct @TYPE@ {
    config: Arc<@TYPE@Config>,
    /// Congestion window in bytes.
    cwnd: f32,
    /// A packet of this round was marked or lost.
    congested: bool,
}

impl @TYPE@ {
    /// A context with the first window. `config` must have passed [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<@TYPE@Config>, _now: Time) -> Self {
        let cwnd = config.start_cwnd * config.mtu as f32;
        Self { config, cwnd, congested: false }
    }

    /// A round trip has ended, in which everything was well or was not.
    fn end_round(&mut self) {
        if core::mem::take(&mut self.congested) {
            self.cwnd *= 1.0 - self.config.decrease;
        } else {
            self.cwnd += self.config.increase * self.config.mtu as f32;
        }
        let packet = self.config.mtu as f32;
        self.cwnd = self.cwnd.min(self.config.max_cwnd * packet).max(packet);
    }
}

impl SenderCc for @TYPE@ {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at least one packet
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked | FeedbackKind::ProbeAnswered => self.congested |= feedback.ecn,
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.congested = true;
            }
            // A NACK of a whole packet means that the receiver lacks room: it is no sign of congestion.
            // The other kinds belong to other algorithms.
            FeedbackKind::Nacked { trimmed: false, .. }
            | FeedbackKind::Notified
            | FeedbackKind::Control => return,
        }
        if feedback.round_end {
            self.end_round();
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        let most = self.config.max_cwnd * self.config.mtu as f32;
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(most as u64),
            ..SenderMetrics::default()
        }
    }
}
