//! For how long a peer owes an answer: the one rule by which somebody who lives and does not answer is given up, on
//! contexts and on links.

use crate::base::{Span, Time};

/// Since when the oldest thing outstanding has been that, or its peer said that it holds it back for lack of room. What else
/// the peer takes, and that it lives, says nothing about this one: a network may lose every packet of its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(Time);

impl Wait {
    /// Something is the oldest from now on, or is still wanted as its peer says.
    #[must_use]
    #[inline]
    pub const fn begin(now: Time) -> Self {
        Self(now)
    }

    /// For how long an answer has been waited for.
    #[must_use]
    pub const fn waited(self, now: Time) -> Span {
        now.since(self.0)
    }

    /// Nobody was here to listen for `absent`, until now: that does not count.
    pub fn excuse(&mut self, now: Time, absent: Span) {
        self.0 = (self.0 + absent).min(now);
    }

    /// When it will have been waited for so long.
    #[must_use]
    #[inline]
    pub fn end(self, patience: Span) -> Time {
        self.0 + patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_counts_but_not_while_nobody_listened() {
        let mut wait = Wait::begin(Time(7));
        assert_eq!((wait.waited(Time(10)), wait.end(Span(5))), (Span(3), Time(12)));
        wait.excuse(Time(100), Span(60));
        assert_eq!(wait.waited(Time(100)), Span(33));
        // Never into the future.
        wait.excuse(Time(101), Span(1000));
        assert_eq!(wait.waited(Time(101)), Span::ZERO);
    }
}
