//! No congestion control: a window that never changes.

use alloc::sync::Arc;

use squall_base::Time;

use crate::controller::{Budget, Feedback, SenderCc, SenderMetrics, SenderParameters};
use crate::error::ConfigError;
use crate::network::NetworkProfile;
use crate::tuning::{Parameter, Tunable};

/// Parameters of [`FixedWindow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindowConfig {
    /// Congestion window in bytes; `u64::MAX` for no limit.
    pub window: u64,
}

impl FixedWindowConfig {
    /// Returns a window without limit, whatever the network.
    #[must_use]
    pub const fn new(_network: &NetworkProfile) -> Self {
        Self { window: u64::MAX }
    }
}

impl Tunable for FixedWindowConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[Parameter {
        name: "window",
        what: "bytes that may be in flight: inf",
        allowed: "1 or more bytes, or inf",
        get: |c| if c.window == u64::MAX { f64::INFINITY } else { c.window as f64 },
        set: |c, v| c.window = v as u64,
    }];

    fn check(&self) -> Result<(), ConfigError> {
        let refused =
            ConfigError { parameter: "window", value: 0.0, allowed: "1 or more bytes, or inf" };
        if self.window > 0 { Ok(()) } else { Err(refused) }
    }
}

impl SenderParameters for FixedWindowConfig {}

/// A constant window that ignores every signal: the baseline of comparisons, and an option for a
/// reliable network with its own flow control.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    window: u64,
}

impl FixedWindow {
    /// Creates a congestion-control context with the window of `config`.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // as every sender is made
    pub fn new(config: Arc<FixedWindowConfig>, _now: Time) -> Self {
        Self { window: config.window }
    }
}

impl SenderCc for FixedWindow {
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.window), ..Budget::default() }
    }

    fn on_feedback(&mut self, _feedback: &Feedback<'_>) {}

    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            cwnd: Some(self.window),
            max_cwnd: Some(self.window),
            ..SenderMetrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::FeedbackKind;

    #[test]
    fn nothing_moves_it() {
        let mut fixed =
            FixedWindow::new(Arc::new(FixedWindowConfig { window: 10_000 }), Time::ZERO);
        for kind in [
            FeedbackKind::Acked,
            FeedbackKind::TimedOut,
            FeedbackKind::Nacked { trimmed: true, last_hop: false },
        ] {
            fixed.on_feedback(&Feedback { kind, bytes: 5_000, ecn: true, ..Feedback::default() });
        }
        let budget = fixed.budget(Time::ZERO);
        assert!(budget.allows(Time::ZERO, 6_000, 4_000));
        assert!(!budget.allows(Time::ZERO, 6_001, 4_000));
    }
}
