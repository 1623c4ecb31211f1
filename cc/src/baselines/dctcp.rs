//! DCTCP (Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; RFC 8257): a window cut in
//! proportion to the share of marked bytes, otherwise that of TCP (RFC 5681).

mod config;
mod fairness;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, FeedbackKind, SenderCc, SenderMetrics};
pub use config::DctcpConfig;

/// One DCTCP context: 48 bytes, parameters shared.
///
/// A "window of data" is counted in bytes, not in sequence numbers, because packets arrive in any
/// order: it has passed when as many bytes as were in flight at its start were acknowledged or
/// lost.
#[derive(Clone, Debug)]
pub struct Dctcp {
    config: Arc<DctcpConfig>,
    /// Congestion window in bytes.
    cwnd: f32,
    /// Congestion window in bytes below which slow start applies, and above which congestion
    /// avoidance.
    ssthresh: f32,
    /// Moving average of the share of acknowledged bytes that were marked, 0 to 1 (`DCTCP.Alpha`).
    alpha: f32,
    /// Bytes acknowledged in the current observation window (`DCTCP.BytesAcked`).
    acked: f32,
    /// Bytes among `acked` that were marked (`DCTCP.BytesMarked`).
    marked: f32,
    /// Bytes in flight at the start of the observation window that are neither acknowledged nor
    /// lost yet (`DCTCP.WindowEnd`).
    window_left: u64,
    /// Unresolved bytes that left before the last cut: while there are any, there is no other cut
    /// (RFC 3168 section 6.1.2).
    cut_left: u64,
}

impl Dctcp {
    /// Creates a context in slow start with [`DctcpConfig::start_cwnd`]. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<DctcpConfig>, _now: Time) -> Self {
        let mtu = config.mtu as f32;
        Self {
            cwnd: (config.start_cwnd * mtu).clamp(mtu, config.max_cwnd * mtu),
            ssthresh: f32::MAX,
            alpha: config.alpha,
            acked: 0.0,
            marked: 0.0,
            window_left: 0,
            cut_left: 0,
            config,
        }
    }

    /// Subtracts `feedback.bytes` from the bytes in flight at the start of the observation window
    /// and at the last cut. Returns true if these bytes left after the last cut.
    fn settle(&mut self, feedback: &Feedback<'_>) -> bool {
        let bytes = u64::from(feedback.bytes);
        let fresh = self.cut_left == 0;
        self.window_left = self.window_left.saturating_sub(bytes);
        self.cut_left = self.cut_left.saturating_sub(bytes);
        fresh
    }

    fn on_ack(&mut self, feedback: &Feedback<'_>, fresh: bool) {
        let bytes = feedback.bytes as f32;
        let marked = marked(feedback);
        self.observe(bytes, marked, feedback.in_flight);
        let slow_start = self.cwnd < self.ssthresh;
        if marked > 0.0 && fresh {
            // Step 9, at most once a window of data.
            self.reduce(1.0 - self.alpha / 2.0, feedback.in_flight);
        } else if marked == 0.0 && (fresh || slow_start) {
            self.grow(bytes, feedback);
        }
    }

    /// Updates the estimated share of marked bytes (RFC 8257 section 3.3, steps 1 to 8).
    fn observe(&mut self, bytes: f32, marked: f32, in_flight: u64) {
        self.acked += bytes;
        self.marked += marked;
        if self.window_left > 0 {
            return; // step 4
        }
        if self.acked > 0.0 {
            let share = self.marked / self.acked; // step 5
            self.alpha += self.config.g * (share - self.alpha); // step 6
        }
        self.window_left = in_flight; // step 7
        self.acked = 0.0; // step 8
        self.marked = 0.0;
    }

    /// Cuts the window; there is no further cut until everything now in flight is resolved.
    fn reduce(&mut self, factor: f32, in_flight: u64) {
        self.cwnd = (self.cwnd * factor).max(self.config.min_wnd as f32);
        self.cwnd = self.cwnd.min(self.config.max_cwnd * self.config.mtu as f32);
        self.ssthresh = self.cwnd;
        self.cut_left = in_flight;
    }

    /// Grows the window as RFC 5681 section 3.1, counting bytes (RFC 3465), and only while the
    /// window is the limit (RFC 7661: an unused window carries no information about the network).
    fn grow(&mut self, bytes: f32, feedback: &Feedback<'_>) {
        let mtu = self.config.mtu as f32;
        if 2.0 * (feedback.in_flight as f32 + bytes) < self.cwnd {
            return;
        }
        let more = self.config.ai * mtu * bytes / self.cwnd;
        self.cwnd += if self.cwnd < self.ssthresh { bytes } else { more };
        self.cwnd = self.cwnd.min(self.config.max_cwnd * mtu);
    }
}

/// Returns the bytes that an acknowledgement reports as marked.
fn marked(feedback: &Feedback<'_>) -> f32 {
    let bytes = feedback.bytes as f32;
    match (feedback.ecn, feedback.marked) {
        (false, _) => 0.0,
        // The peer does not count marks: the ACK stands for all that it covers (RFC 8257 section
        // 3.2).
        (true, 0) => bytes,
        (true, n) if n >= feedback.packets => bytes,
        (true, n) => bytes * (f32::from(n) / f32::from(feedback.packets)),
    }
}

impl SenderCc for Dctcp {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // at least one packet
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.cwnd as u64), ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let fresh = self.settle(feedback);
        match feedback.kind {
            FeedbackKind::Acked | FeedbackKind::ProbeAnswered if feedback.bytes > 0 => {
                self.on_ack(feedback, fresh);
            }
            // "A DCTCP sender MUST react to loss episodes in the same way as conventional TCP" (RFC
            // 8257 section 3.5). A trimmed packet is a loss that is reported.
            FeedbackKind::Nacked { trimmed: true, .. } | FeedbackKind::Lost if fresh => {
                self.reduce(0.5, feedback.in_flight);
            }
            // RFC 5681 section 3.1: the loss window is one packet.
            FeedbackKind::TimedOut if fresh => {
                self.reduce(0.5, feedback.in_flight);
                self.cwnd = self.config.mtu as f32;
            }
            _ => {}
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // never negative
    fn metrics(&self) -> SenderMetrics {
        let max = self.config.max_cwnd * self.config.mtu as f32;
        SenderMetrics {
            cwnd: Some(self.cwnd as u64),
            max_cwnd: Some(max as u64),
            ..SenderMetrics::default()
        }
    }
}
