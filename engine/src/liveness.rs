//! Timer of the check for silent peers.

use crate::base::{Span, Time};

/// The timer of the check for silent peers. It runs while a peer owes something.
#[derive(Debug)]
pub(crate) struct Liveness {
    interval: Span,
    at: Option<Time>,
}

impl Liveness {
    pub(crate) const fn new(interval: Span) -> Self {
        Self { interval, at: None }
    }

    /// Starts the timer, unless it runs, because a peer owes something.
    #[inline]
    pub(crate) fn start_timer(&mut self, now: Time) {
        if self.at.is_none() {
            self.at = Some(now + self.interval);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Returns whether the check is due. The timer stops until the next [`Self::start_timer`].
    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.at = None;
        }
        due
    }

    /// Returns whether a peer that was last heard at `last` has been silent for too long.
    pub(crate) fn is_silent(&self, now: Time, last: Time) -> bool {
        now.since(last) >= self.interval
    }
}
