//! Path selector that hashes as ECMP does: a flow draws one path when it opens, and keeps it.

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::ConfigError;
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable};

/// Parameters of [`Ecmp`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EcmpConfig {
    /// Number of paths (UDP source ports) to choose from.
    pub paths: u16,
}

impl EcmpConfig {
    /// Returns parameters with which each flow draws one of `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths }
    }
}

impl Tunable for EcmpConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)
    }
}

impl PathParameters for EcmpConfig {
    fn paths(&self) -> u16 {
        self.paths
    }

    fn is_single_path(&self) -> bool {
        true
    }
}

/// One path for the life of the flow, drawn when it opens, as the hash of a flow's five-tuple does
/// (Hopps, RFC 2992). Two flows that collide do so for ever. This is the baseline of every spraying
/// scheme.
#[derive(Clone, Debug)]
pub struct Ecmp {
    path: u16,
}

impl Ecmp {
    /// Creates a selector with a random one of the paths of `config`, which must have passed its
    /// check.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below `paths`
    #[allow(clippy::needless_pass_by_value)] // as all selectors are made
    pub fn new(config: Arc<EcmpConfig>, mut rng: Rng) -> Self {
        Self { path: rng.below(u32::from(config.paths)) as u16 }
    }
}

impl PathSelector for Ecmp {
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
        let config = Arc::new(EcmpConfig::new(16));
        let mut used = [false; 16];
        for seed in 0..200 {
            let mut ecmp = Ecmp::new(Arc::clone(&config), Rng::new(seed));
            let path = ecmp.pick(Time::ZERO, 1);
            ecmp.on_feedback(Time::ZERO, path, PathSignal::Timeout);
            assert_eq!(ecmp.pick(Time::ZERO, 1), path);
            used[usize::from(path)] = true;
        }
        assert_eq!(used, [true; 16]);
    }
}
