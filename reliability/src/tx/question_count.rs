//! Detection of a peer that asks repeatedly because it receives no answers.

use crate::base::{Psn, Span, Time};
use crate::tick::Tick;

/// Questions without a new packet received after which all paths to the peer count as dead: an
/// answer that it received would have ended the questions. Each answer takes a random path.
const QUESTIONS: u8 = 8;

/// Least time that [`QUESTIONS`] must span, because all questions sent while a process was stopped
/// arrive at once.
const QUESTIONS_SPAN: Span = Span::millis(4);

/// Like [`QUESTIONS`], for a peer that was never answered and therefore asks at growing intervals.
const RARE_QUESTIONS: u8 = 3;
const RARE_QUESTIONS_SPAN: Span = Span::millis(100);

/// Repeated questions of the peer (probes and retransmissions) since which no new packet arrived.
#[derive(Debug)]
pub(crate) struct QuestionCount {
    /// The oldest packet not received, which was the same at all questions counted.
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
    /// Counts a question of the peer; all packets before `received` arrived. Returns whether the
    /// peer seems to receive no answers.
    pub(crate) fn count_question(&mut self, now: Time, received: Psn) -> bool {
        if self.times == 0 || self.received != received {
            *self = Self { received, times: 0, since: Tick::at(now) };
        }
        self.times = self.times.saturating_add(1);
        let lasted = self.since.time_until(now);
        let deaf = self.times >= QUESTIONS && lasted >= QUESTIONS_SPAN
            || self.times >= RARE_QUESTIONS && lasted >= RARE_QUESTIONS_SPAN;
        if deaf {
            // Give other paths as many chances.
            self.times = 0;
        }
        deaf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of `times` questions, one every `apart`, show that the peer receives no
    /// answers.
    fn deaf(
        asked: &mut QuestionCount,
        times: u64,
        apart: Span,
        received: impl Fn(u64) -> u32,
    ) -> Vec<u64> {
        let mut ask =
            |n: &u64| asked.count_question(Time::ZERO + apart * (n + 1), Psn(received(*n)));
        (0..times).filter(|n| ask(n)).collect()
    }

    #[test]
    fn a_peer_that_asks_repeatedly_without_progress_receives_no_answers() {
        assert_eq!(deaf(&mut QuestionCount::default(), 20, Span::millis(2), |_| 7), [7, 15]);
        // The peer gets packets through.
        assert!(
            deaf(&mut QuestionCount::default(), 40, Span::millis(2), |n| (n / 6) as u32).is_empty()
        );
        // The peer asks rarely.
        let seldom = deaf(&mut QuestionCount::default(), 7, Span::millis(200), |_| 7);
        assert_eq!(seldom, [2, 5]);
        // All questions arrive at once after an absence, and then one more.
        let mut asked = QuestionCount::default();
        assert!(deaf(&mut asked, 23, Span::ZERO, |_| 7).is_empty());
        assert!(asked.count_question(Time::ZERO + Span::millis(9), Psn(7)));
    }
}
