//! One path a flow.

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use super::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::error::ConfigError;
use crate::tuning::{Parameter, Tunable};

/// Parameters of [`Single`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SingleConfig {
    /// Number of paths to choose from.
    pub paths: u16,
}

impl SingleConfig {
    /// One of `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths }
    }
}

impl Tunable for SingleConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)
    }
}

impl PathParameters for SingleConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// One path for the life of the flow, chosen at random when it opens, as ECMP does for a flow's
/// five-tuple. What ordered delivery over a network that must not reorder needs.
#[derive(Clone, Debug)]
pub struct Single {
    path: u16,
}

impl Single {
    /// A selector with one of the paths of `config`, which must have passed [`SingleConfig::check`].
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below `paths`
    #[allow(clippy::needless_pass_by_value)] // as every selector is made
    pub fn new(config: Arc<SingleConfig>, mut rng: Rng) -> Self {
        Self { path: rng.below(u32::from(config.paths)) as u16 }
    }
}

impl PathSelector for Single {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        self.path
    }

    fn on_feedback(&mut self, _now: Time, _path: u16, _signal: PathSignal) {}

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: 1, ..PathMetrics::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_and_flows_differ() {
        let mut used = [false; 16];
        for seed in 0..200 {
            let mut single = Single::new(Arc::new(SingleConfig::new(16)), Rng::new(seed));
            let path = single.pick(Time::ZERO, 1);
            single.on_feedback(Time::ZERO, path, PathSignal::Timeout);
            assert_eq!(single.pick(Time::ZERO, 1), path);
            used[usize::from(path)] = true;
        }
        assert_eq!(used, [true; 16]);
    }
}
