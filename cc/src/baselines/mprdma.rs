//! MP-RDMA's window: Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018, section
//! 3.
//!
//! One window covers all paths, and every acknowledged packet moves it. The choice of paths is the
//! paper's other half, [`crate::AckClockedPaths`]. The paper's limit of reordering and its in-order
//! memory updates are for hardware without a receive bitmap and are not needed here.

mod config;
mod paths;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics};
pub use config::MprdmaConfig;
pub use paths::{AckClockedConfig, AckClockedPaths};

/// One MP-RDMA context: 16 bytes, parameters shared.
#[derive(Clone, Debug)]
pub struct Mprdma {
    config: Arc<MprdmaConfig>,
    /// Congestion window in bytes.
    cwnd: f32,
}

impl Mprdma {
    /// Creates a context at the initial window. `config` must have passed its check.
    #[must_use]
    pub fn new(config: Arc<MprdmaConfig>, _now: Time) -> Self {
        let cwnd = config.start_window as f32;
        Self { config, cwnd }
    }

    /// Applies the reaction to an ACK: each unmarked packet adds `1 / cwnd` packets to the window,
    /// and each marked packet subtracts half a packet (section 3.2). An ACK that covers several
    /// packets applies this once for each of them; if the peer does not count the marked ones, all
    /// count as marked.
    fn on_ack(&mut self, feedback: &Feedback<'_>) {
        let packets = f32::from(feedback.packets.max(1));
        let marked = match (feedback.ecn, feedback.marked) {
            (false, _) => 0.0,
            (true, 0) => 1.0,
            (true, marked) => (f32::from(marked) / packets).min(1.0),
        };
        let bytes = feedback.bytes as f32;
        let clean = bytes * (1.0 - marked);
        let packet = self.config.mtu as f32;
        self.cwnd += self.config.increase * clean * packet / self.cwnd;
        self.cwnd -= self.config.decrease * bytes * marked;
    }

    fn clamp(&mut self) {
        let (min, max) = (self.config.min_window as f32, self.config.max_window as f32);
        self.cwnd = self.cwnd.min(max).max(min);
    }
}

impl SenderCc for Mprdma {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to be positive
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked => self.on_ack(feedback),
            // A packet that did not get through leaves the window (uet-htsim does so where switches
            // trim; the paper's hardware retransmits without changing the window).
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                self.cwnd -= feedback.bytes as f32;
            }
            FeedbackKind::Nacked { trimmed: false, .. }
            | FeedbackKind::ProbeAnswered
            | FeedbackKind::Notified
            | FeedbackKind::Control => return,
        }
        self.clamp();
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(self.config.max_window),
            base_rtt: Some(self.config.base_rtt),
            ..SenderMetrics::default()
        }
    }
}
