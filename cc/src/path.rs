//! Path selection: which entropy, hence which way through the network, the next packet or train
//! takes. UE 1.0 section 3.6.16 mandates no scheme; these are the common ones.

mod oblivious;
mod reps;
mod single;

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::{ConfigError, within};
pub use oblivious::Oblivious;
pub use reps::{Reps, RepsConfig};
pub use single::Single;

/// What became of a packet on a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathSignal {
    /// Acknowledged, not marked.
    Good,
    /// Acknowledged, marked Congestion Experienced (or refused for its receiver's sake, and marked).
    Ecn,
    /// Trimmed inside the network.
    Nack,
    /// Its retransmission timer fired.
    Timeout,
}

/// What a selector looks like, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathMetrics {
    /// It restricts itself to paths known to work, after one failed.
    pub frozen: bool,
    /// Times that happened.
    pub freezes: u32,
    /// Good paths it remembers.
    pub remembered: u16,
}

/// Chooses paths for one flow.
pub trait PathSelector {
    /// The path for the next packet or train: an index below the number of paths configured.
    /// `cwnd_packets` is the window in packets, for schemes that explore one window's worth.
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16;

    /// What became of a packet sent on `path`. A path out of range is ignored.
    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal);

    /// What it looks like.
    fn metrics(&self) -> PathMetrics;
}

/// The path selection of an endpoint with its parameters, shared by all its flows.
#[derive(Clone, Debug)]
pub enum PathsConfig {
    /// Recycled entropies with freezing.
    Reps(Arc<RepsConfig>),
    /// Every path in turn, in an order reshuffled each round.
    Oblivious {
        /// Number of paths, a power of two.
        paths: u16,
    },
    /// One path a flow, chosen at random when the flow opens (ECMP).
    Single {
        /// Number of paths to choose from.
        paths: u16,
    },
}

impl PathsConfig {
    /// REPS over `paths` paths with the defaults of uet-htsim.
    ///
    /// # Errors
    /// `paths` is zero.
    pub fn reps(paths: u16) -> Result<Self, ConfigError> {
        let config = RepsConfig::new(paths);
        config.check()?;
        Ok(Self::Reps(Arc::new(config)))
    }

    /// Oblivious spraying over `paths` paths.
    ///
    /// # Errors
    /// `paths` is not a power of two.
    pub fn oblivious(paths: u16) -> Result<Self, ConfigError> {
        if paths.is_power_of_two() {
            Ok(Self::Oblivious { paths })
        } else {
            Err(ConfigError {
                parameter: "paths",
                value: f64::from(paths),
                allowed: "a power of two",
            })
        }
    }

    /// One path of `paths` a flow.
    ///
    /// # Errors
    /// `paths` is zero.
    pub fn single(paths: u16) -> Result<Self, ConfigError> {
        some_paths(paths)?;
        Ok(Self::Single { paths })
    }

    /// The name by which a user asks for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reps(_) => "reps",
            Self::Oblivious { .. } => "oblivious",
            Self::Single { .. } => "single",
        }
    }
}

/// At least one path.
fn some_paths(paths: u16) -> Result<(), ConfigError> {
    within("paths", f64::from(paths), 1.0, f64::from(u16::MAX), "1 to 65535")
}

/// A path selector of any kind.
#[derive(Clone, Debug)]
pub enum Paths {
    /// See [`Reps`].
    Reps(Reps),
    /// See [`Oblivious`].
    Oblivious(Oblivious),
    /// See [`Single`].
    Single(Single),
}

impl Paths {
    /// A selector for a new flow; `rng` decides all it will ever do.
    #[must_use]
    pub fn new(config: &PathsConfig, rng: Rng) -> Self {
        match config {
            PathsConfig::Reps(config) => Self::Reps(Reps::new(Arc::clone(config), rng)),
            PathsConfig::Oblivious { paths } => Self::Oblivious(Oblivious::new(*paths, rng)),
            PathsConfig::Single { paths } => Self::Single(Single::new(*paths, rng)),
        }
    }
}

impl PathSelector for Paths {
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16 {
        match self {
            Self::Reps(paths) => paths.pick(now, cwnd_packets),
            Self::Oblivious(paths) => paths.pick(now, cwnd_packets),
            Self::Single(paths) => paths.pick(now, cwnd_packets),
        }
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        match self {
            Self::Reps(paths) => paths.on_feedback(now, path, signal),
            Self::Oblivious(paths) => paths.on_feedback(now, path, signal),
            Self::Single(paths) => paths.on_feedback(now, path, signal),
        }
    }

    fn metrics(&self) -> PathMetrics {
        match self {
            Self::Reps(paths) => paths.metrics(),
            Self::Oblivious(paths) => paths.metrics(),
            Self::Single(paths) => paths.metrics(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_paths_are_checked() {
        let bad = [PathsConfig::reps(0), PathsConfig::single(0), PathsConfig::oblivious(0)];
        for config in bad.into_iter().chain([PathsConfig::oblivious(48)]) {
            let error = config.expect_err("no such number of paths");
            assert_eq!(error.parameter, "paths");
        }
        for (config, name) in [
            (PathsConfig::reps(1), "reps"),
            (PathsConfig::single(3), "single"),
            (PathsConfig::oblivious(64), "oblivious"),
        ] {
            assert_eq!(config.expect("a good number").name(), name);
        }
        assert!(size_of::<Paths>() <= 72, "{}", size_of::<Paths>());
    }
}
