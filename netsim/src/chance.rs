//! Random numbers that depend on the seed and on their purpose, and not on how many were drawn
//! before. They are therefore the same however a network is partitioned.

use crate::Picos;
use squall_base::Rng;

/// A source of random numbers. Each event draws from a generator of its own, which follows from the
/// source's seed, the time and the place of the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Creates a source from the next number of a generator. A seed as users write it must not be
    /// used directly: the sources of seeds 2 and 3 would give the same numbers at neighbouring
    /// times.
    pub(crate) const fn of(rng: &mut Rng) -> Self {
        Self(rng.next_u64())
    }

    /// Returns the random number generator of an event that happens at time `now`. The `place` is
    /// any number that tells events of the same time apart, such as that of a port.
    pub(crate) const fn at(self, now: Picos, place: u64) -> Rng {
        Rng::new(mix(self.0 ^ now.0).wrapping_add(place.wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }
}

/// Mixes the 64 bits of a number so that every bit of the result depends on all of them (the
/// finaliser of SplitMix64).
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that different places, times and seeds give different numbers, and equal ones the
    /// same.
    #[test]
    fn numbers_follow_from_what_they_are_for() {
        let mut numbers = std::collections::HashSet::new();
        let draw =
            |seed, now, place| Chance::of(&mut Rng::new(seed)).at(Picos(now), place).next_u64();
        for (seed, now, place) in (0..8000).map(|i| (i / 400, i / 20 % 20, i % 20)) {
            assert!(numbers.insert(draw(seed, now, place)));
        }
        assert_eq!(draw(3, 4, 5), draw(3, 4, 5));
        let heads = (0..10_000).filter(|&now| draw(1, now * 83_000, 7) >> 63 == 0).count();
        assert!(heads.abs_diff(5000) < 250, "{heads}: five standard deviations");
    }
}
