//! Recognition of questions that are repeated because their answers get lost.

/// Number of questions that the endpoint can tell apart. Since unverified peers have no state, a
/// flood of questions only makes other questions look like first ones.
const PLACES: usize = 64;

/// Number of times a question must arrive before its answers use all path sets.
const OFTEN: u8 = 3;

/// The nonces of recent questions, and how often each arrived.
#[derive(Debug)]
pub(super) struct RecentQuestions(Box<[(u64, u8); PLACES]>);

impl RecentQuestions {
    pub(super) fn new() -> Self {
        Self(Box::new([(0, 0); PLACES]))
    }

    /// Counts a question with this nonce. Returns whether it arrived so often that its answers seem
    /// to get lost.
    pub(super) fn is_frequent(&mut self, nonce: u64) -> bool {
        let (seen, times) = &mut self.0[nonce as usize % PLACES];
        if *seen != nonce {
            (*seen, *times) = (nonce, 0);
        }
        *times = times.saturating_add(1);
        *times >= OFTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_frequent_from_the_third_repetition_on() {
        let mut repeats = RecentQuestions::new();
        let heard: Vec<bool> = (0..6).map(|_| repeats.is_frequent(7)).collect();
        assert_eq!(heard, [false, false, true, true, true, true]);
        // Two nonces that share a place displace each other.
        assert!(!repeats.is_frequent(7 + PLACES as u64) && !repeats.is_frequent(7));
    }
}
