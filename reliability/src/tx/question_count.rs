//! A peer that asks and asks: our answers do not reach it.

use crate::base::{Psn, Span, Time};
use crate::tick::Tick;

/// How often a peer asks and gets nothing through besides before all paths to it are taken for dead: an answer that
/// it heard would have been the last. Each goes on a random path.
const DEAF: u8 = 8;

/// How long that must have lasted: to a process that was away, all questions of that time come at once.
const ASKING: Span = Span::millis(4);

/// The same for one that was never answered, and so asks ever more seldom.
const DEAF_LONG: u8 = 3;
const ASKING_LONG: Span = Span::millis(100);

/// The number of questions in a row.
#[derive(Debug)]
pub(crate) struct QuestionCount {
    /// The oldest packet not received, at all of them.
    received: Psn,
    times: u8,
    since: Tick,
}

impl Default for QuestionCount {
    fn default() -> Self {
        Self { received: Psn(0), times: 0, since: Tick::at(Time::ZERO) }
    }
}

impl QuestionCount {
    /// The peer asks what arrived; all before `received` did. Whether it seems to hear no answer.
    pub(crate) fn again(&mut self, now: Time, received: Psn) -> bool {
        if self.times == 0 || self.received != received {
            *self = Self { received, times: 0, since: Tick::at(now) };
        }
        self.times = self.times.saturating_add(1);
        let lasted = self.since.until(now);
        let deaf = self.times >= DEAF && lasted >= ASKING
            || self.times >= DEAF_LONG && lasted >= ASKING_LONG;
        if deaf {
            // Other paths are to have as many chances.
            self.times = 0;
        }
        deaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `times` questions, one every `apart`, show that the peer is deaf.
    fn deaf(
        asked: &mut QuestionCount,
        times: u64,
        apart: Span,
        received: impl Fn(u64) -> u32,
    ) -> Vec<u64> {
        let mut ask = |n: &u64| asked.again(Time::ZERO + apart * (n + 1), Psn(received(*n)));
        (0..times).filter(|n| ask(n)).collect()
    }

    #[test]
    fn who_asks_for_a_while_and_sends_nothing_else_is_deaf() {
        assert_eq!(deaf(&mut QuestionCount::default(), 20, Span::millis(2), |_| 7), [7, 15]);
        // It gets something through.
        assert!(
            deaf(&mut QuestionCount::default(), 40, Span::millis(2), |n| (n / 6) as u32).is_empty()
        );
        // It asks seldom.
        let seldom = deaf(&mut QuestionCount::default(), 7, Span::millis(200), |_| 7);
        assert_eq!(seldom, [2, 5]);
        // All came at once, to one who was away; then one more.
        let mut asked = QuestionCount::default();
        assert!(deaf(&mut asked, 23, Span::ZERO, |_| 7).is_empty());
        assert!(asked.again(Time::ZERO + Span::millis(9), Psn(7)));
    }
}
