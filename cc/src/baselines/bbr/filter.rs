//! A maximum over a sliding window in constant space (K. Nichols' estimator, as in Linux's
//! `lib/win_minmax.c`): the best sample, the best one since then, and the best one since that.

/// A sample, and the number of the round trip in which it was measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sample {
    value: f32,
    round: u32,
}

/// Largest of the samples that were measured in the last round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    best: [Sample; 3],
}

impl MaxFilter {
    /// Returns the largest sample in the window; zero before the first sample.
    pub(super) const fn get(&self) -> f32 {
        self.best[0].value
    }

    /// Adds a sample `value` of round trip `round`, and forgets samples that are more than `window`
    /// round trips old.
    pub(super) fn update(&mut self, value: f32, round: u32, window: u32) {
        let new = Sample { value, round };
        let [first, second, third] = &mut self.best;
        if value >= first.value || round.wrapping_sub(third.round) > window {
            self.best = [new; 3];
            return;
        }
        if value >= second.value {
            *second = new;
            *third = new;
        } else if value >= third.value {
            *third = new;
        }
        let age = round.wrapping_sub(first.round);
        if age > window {
            // The best sample is too old: the next one takes its place, twice if that is too old as
            // well.
            *first = *second;
            *second = *third;
            *third = new;
            if round.wrapping_sub(first.round) > window {
                *first = *second;
                *second = *third;
            }
        } else if second.round == first.round && age > window / 4 {
            // A quarter of the window has passed without a second choice, so this sample becomes
            // it.
            *second = new;
            *third = new;
        } else if third.round == second.round && age > window / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Window of 10 rounds.
    fn after(samples: &[(u32, f32)]) -> f32 {
        let mut filter = MaxFilter::default();
        for &(round, value) in samples {
            filter.update(value, round, 10);
        }
        filter.get()
    }

    #[test]
    fn the_maximum_of_the_last_rounds() {
        assert_eq!(after(&[]), 0.0);
        assert_eq!(after(&[(1, 5.0)]), 5.0);
        assert_eq!(after(&[(1, 5.0), (2, 7.0), (3, 6.0)]), 7.0);
        // 7 at round 2 still counts at round 12, no longer at 13, where 6 of round 6 is the best.
        let falling = [(2, 7.0), (6, 6.0), (9, 5.0), (12, 1.0)];
        assert_eq!(after(&falling), 7.0);
        assert_eq!(after(&[falling[0], falling[1], falling[2], falling[3], (13, 1.0)]), 6.0);
        // Nothing for more than a window: all is forgotten.
        assert_eq!(after(&[(2, 7.0), (20, 1.0)]), 1.0);
    }

    #[test]
    fn rounds_wrap() {
        assert_eq!(after(&[(u32::MAX, 7.0), (3, 2.0)]), 7.0);
        assert_eq!(after(&[(u32::MAX, 7.0), (3, 2.0), (10, 1.0)]), 2.0);
    }

    /// Against the maximum by definition, with a sample each round.
    #[test]
    fn never_less_than_the_latest_never_more_than_the_true_maximum() {
        let mut rng = squall_base::Rng::new(3);
        let mut filter = MaxFilter::default();
        let mut all = alloc::vec::Vec::new();
        for round in 1..500 {
            let value = rng.below(1000) as f32;
            all.push(value);
            filter.update(value, round, 10);
            let recent = all.iter().rev().take(11).fold(0.0_f32, |most, &v| most.max(v));
            assert!(filter.get() >= value && filter.get() <= recent, "round {round}");
        }
    }
}
