//! No congestion control: a window that never changes.

use squall_base::Time;

use crate::budget::{Budget, Metrics};
use crate::feedback::Feedback;
use crate::sender::SenderCc;

/// Parameters of [`FixedWindow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindowConfig {
    /// The window in bytes; `u64::MAX` for no limit.
    pub window: u64,
}

/// A constant window, deaf to every signal. The baseline of the comparisons, and what a reliable
/// network with its own flow control may run.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    window: u64,
}

impl FixedWindow {
    /// A context with the window of `config`.
    #[must_use]
    pub const fn new(config: FixedWindowConfig) -> Self {
        Self { window: config.window }
    }
}

impl SenderCc for FixedWindow {
    fn budget(&self, _now: Time) -> Budget {
        Budget { window: Some(self.window), ..Budget::default() }
    }

    fn on_feedback(&mut self, _feedback: &Feedback<'_>) {}

    fn metrics(&self) -> Metrics {
        Metrics { cwnd: Some(self.window), max_cwnd: Some(self.window), ..Metrics::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feedback::Kind;

    #[test]
    fn nothing_moves_it() {
        let mut fixed = FixedWindow::new(FixedWindowConfig { window: 10_000 });
        for kind in [Kind::Acked, Kind::TimedOut, Kind::Nacked { trimmed: true, last_hop: false }] {
            fixed.on_feedback(&Feedback { kind, bytes: 5_000, ecn: true, ..Feedback::default() });
        }
        let budget = fixed.budget(Time::ZERO);
        assert!(budget.allows(Time::ZERO, 6_000, 4_000));
        assert!(!budget.allows(Time::ZERO, 6_001, 4_000));
    }
}
