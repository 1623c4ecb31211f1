//! Path selector that sprays packets over all paths in turn and ignores feedback.

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::ConfigError;
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, power_of_two};
use crate::tuning::{Parameter, Tunable};

/// Parameters of [`ObliviousPaths`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObliviousConfig {
    /// Number of paths (UDP source ports), a power of two.
    pub paths: u16,
}

impl ObliviousConfig {
    /// Returns parameters with which every flow uses all of `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths }
    }
}

impl Tunable for ObliviousConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        power_of_two(self.paths)
    }
}

impl PathParameters for ObliviousConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// Every path once per round, in an order reshuffled each round by exclusive or with a random
/// number (uet-htsim `UecMpOblivious`). It ignores feedback.
#[derive(Clone, Debug)]
pub struct ObliviousPaths {
    rng: Rng,
    /// Number of paths minus one; the number of paths is a power of two.
    mask: u16,
    next: u16,
    flip: u16,
}

impl ObliviousPaths {
    /// Creates a selector. `config` must have passed [`ObliviousConfig::check`]; a number of paths
    /// that is no power of two is rounded down to one.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // the signature that all selectors share
    pub fn new(config: Arc<ObliviousConfig>, rng: Rng) -> Self {
        Self::with_paths(config.paths, rng)
    }

    /// Creates a selector over `paths` paths.
    pub(super) fn with_paths(paths: u16, rng: Rng) -> Self {
        let mask = match paths.checked_ilog2() {
            Some(bits) => (1u16 << bits) - 1,
            None => 0,
        };
        let mut oblivious = Self { rng, mask, next: 0, flip: 0 };
        oblivious.reshuffle();
        oblivious
    }

    /// Returns the path of the next packet, without moving on.
    pub(super) const fn peek(&self) -> u16 {
        (self.next ^ self.flip) & self.mask
    }

    /// Moves on to the path after the next packet's.
    pub(super) fn advance(&mut self) {
        if self.next == self.mask {
            self.reshuffle();
        } else {
            self.next += 1;
        }
    }

    /// Returns the number of paths: each is used once per round.
    pub(super) const fn len(&self) -> usize {
        self.mask as usize + 1
    }

    #[allow(clippy::cast_possible_truncation)] // only the low bits are used
    fn reshuffle(&mut self) {
        self.next = 0;
        self.flip = self.rng.next_u32() as u16;
    }
}

impl PathSelector for ObliviousPaths {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        let path = self.peek();
        self.advance();
        path
    }

    fn on_feedback(&mut self, _now: Time, _path: u16, _signal: PathSignal) {}

    fn metrics(&self) -> PathMetrics {
        PathMetrics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_uses_every_path_once_and_rounds_differ() {
        let mut oblivious = ObliviousPaths::new(Arc::new(ObliviousConfig::new(64)), Rng::new(3));
        let mut orders = [[0u16; 64]; 4];
        for order in &mut orders {
            let mut used = [false; 64];
            for path in order.iter_mut() {
                *path = oblivious.pick(Time::ZERO, 1);
                assert!(!used[usize::from(*path)]);
                used[usize::from(*path)] = true;
            }
        }
        assert!(orders[0] != orders[1] || orders[1] != orders[2] || orders[2] != orders[3]);
    }

    #[test]
    fn odd_numbers_of_paths_stay_in_range() {
        for paths in [0, 1, 2, 3, 7, 65_535] {
            let mut oblivious =
                ObliviousPaths::new(Arc::new(ObliviousConfig::new(paths)), Rng::new(1));
            for _ in 0..1000 {
                assert!(oblivious.pick(Time::ZERO, 1) < paths.max(1));
            }
        }
    }
}
