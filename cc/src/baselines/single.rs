//! Path selector that sends all packets of all flows on one path.

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable, number};

/// Parameters of [`SinglePath`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SingleConfig {
    /// Number of paths, of which only one is used.
    pub paths: u16,
    /// Index of the path that all packets take: 0.
    pub path: u16,
}

impl SingleConfig {
    /// Returns parameters with which every flow uses path 0 of `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths, path: 0 }
    }
}

impl Tunable for SingleConfig {
    const PARAMETERS: &'static [Parameter<Self>] =
        &[number!(path: u16, "index of the one path: 0", "0 up to the number of paths less one")];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)?;
        let last = f64::from(self.paths - 1);
        within("path", f64::from(self.path), 0.0, last, "0 up to the number of paths less one")
    }
}

impl PathParameters for SingleConfig {
    fn paths(&self) -> u16 {
        self.paths
    }

    fn is_single_path(&self) -> bool {
        true
    }
}

/// Selector that gives every flow one path index: all packets between two hosts take one route, as
/// if there were no entropy. It is for networks that must not reorder, for tests, and to measure what one
/// path carries.
#[derive(Clone, Debug)]
pub struct SinglePath {
    path: u16,
}

impl SinglePath {
    /// Creates a selector of the path of `config`, which must have passed its check. The algorithm
    /// draws no random numbers.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // the signature that all selectors share
    pub fn new(config: Arc<SingleConfig>, _rng: Rng) -> Self {
        Self { path: config.path }
    }
}

impl PathSelector for SinglePath {
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
    fn stays_and_is_the_same_for_all() {
        let config = Arc::new(SingleConfig { path: 5, ..SingleConfig::new(16) });
        for seed in 0..20 {
            let mut single = SinglePath::new(Arc::clone(&config), Rng::new(seed));
            single.on_feedback(Time::ZERO, 5, PathSignal::Timeout);
            assert_eq!(single.pick(Time::ZERO, 1), 5);
        }
    }

    #[test]
    fn only_a_path_that_exists() {
        let config = SingleConfig { path: 16, ..SingleConfig::new(16) };
        assert_eq!(config.check().map_err(|error| error.parameter), Err("path"));
        assert_eq!(SingleConfig::new(0).check().map_err(|error| error.parameter), Err("paths"));
        assert_eq!(SingleConfig { path: 15, ..config }.check(), Ok(()));
    }
}
