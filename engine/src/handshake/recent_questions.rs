//! Who asks again and again, because our answers do not reach it.

/// Questions to tell apart. Unverified peers are not remembered: whoever floods this only has others heard as if for the first time.
const PLACES: usize = 64;

/// How often a question must come before its answer may go by any set of paths.
const OFTEN: u8 = 3;

/// The nonces of recent questions, and how often each question came.
#[derive(Debug)]
pub(super) struct RecentQuestions(Box<[(u64, u8); PLACES]>);

impl RecentQuestions {
    pub(super) fn new() -> Self {
        Self(Box::new([(0, 0); PLACES]))
    }

    /// Another question with this nonce. Whether it came so often that its answers seem to get lost.
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
    fn a_question_is_frequent_from_the_third_time_on() {
        let mut repeats = RecentQuestions::new();
        let heard: Vec<bool> = (0..6).map(|_| repeats.is_frequent(7)).collect();
        assert_eq!(heard, [false, false, true, true, true, true]);
        // One takes the place of another.
        assert!(!repeats.is_frequent(7 + PLACES as u64) && !repeats.is_frequent(7));
    }
}
