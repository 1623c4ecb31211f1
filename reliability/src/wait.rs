//! The time for which a peer owes an answer. Contexts and links use this one rule to give up a peer
//! that is alive but does not answer.

use crate::base::{Span, Time};

/// Start of the wait for an answer about the oldest outstanding item. It begins anew when another
/// item is the oldest, or when the peer reports that it holds the item back for lack of room. Other
/// signs of life do not restart it: a network may lose every packet of the item's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(Time);

impl Wait {
    /// Starts to wait for the peer's answer at `now`.
    #[must_use]
    #[inline]
    pub const fn start(now: Time) -> Self {
        Self(now)
    }

    /// Returns how long the peer has owed an answer at `now`.
    #[must_use]
    pub const fn elapsed(self, now: Time) -> Span {
        now.since(self.0)
    }

    /// Excludes the last `absent`, in which this process did not run, from the time that the peer
    /// owes an answer.
    pub fn exclude_absence(&mut self, now: Time, absent: Span) {
        self.0 = (self.0 + absent).min(now);
    }

    /// Returns the time at which the peer will have owed an answer for `patience`.
    #[must_use]
    #[inline]
    pub fn deadline(self, patience: Span) -> Time {
        self.0 + patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absences_do_not_count_as_waiting() {
        let mut wait = Wait::start(Time(7));
        assert_eq!((wait.elapsed(Time(10)), wait.deadline(Span(5))), (Span(3), Time(12)));
        wait.exclude_absence(Time(100), Span(60));
        assert_eq!(wait.elapsed(Time(100)), Span(33));
        // The wait never begins in the future.
        wait.exclude_absence(Time(101), Span(1000));
        assert_eq!(wait.elapsed(Time(101)), Span::ZERO);
    }
}
