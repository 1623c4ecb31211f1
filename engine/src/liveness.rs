//! When to look whether peers that owe something are silent.

use crate::base::{Span, Time};

/// The timer of that look: running while anything is owed.
#[derive(Debug)]
pub(crate) struct Liveness {
    interval: Span,
    at: Option<Time>,
}

impl Liveness {
    pub(crate) const fn new(interval: Span) -> Self {
        Self { interval, at: None }
    }

    /// Something is owed from now on.
    #[inline]
    pub(crate) fn watch(&mut self, now: Time) {
        if self.at.is_none() {
            self.at = Some(now + self.interval);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Whether it is time to look. The timer starts anew with the next [`Self::watch`].
    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.at = None;
        }
        due
    }

    /// Whether somebody who was last there at `last` has been silent for too long.
    pub(crate) fn is_silent(&self, now: Time, last: Time) -> bool {
        now.since(last) >= self.interval
    }
}
