//! The list of all path selectors: the enums over them, and how a user chooses one by name.

use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::{Rng, Time};

use crate::baselines::{
    AckClockedConfig, AckClockedPaths, BitmapConfig, BitmapPaths, Ecmp, EcmpConfig, MixedConfig,
    MixedPaths, ObliviousConfig, ObliviousPaths, Plb, PlbConfig, RepsV1, RepsV1Config,
    SingleConfig, SinglePath,
};
use crate::by_name::{ByName, ChoiceError, NameAndSummary, name_of, tune, unknown};
use crate::error::ConfigError;
use crate::reps::{Reps, RepsConfig};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal};
use crate::strack::{StrackPaths, StrackPathsConfig};
use crate::tuning::{Setting, Tunable};

/// The list of selectors: variant (state, parameters) = name, one-line description. A line here is
/// all that a selector needs to be chosen, tuned, listed and tested for the properties that all
/// share. The presets follow: names for a selector with another value of one parameter.
macro_rules! selectors {
    (
        $($(#[$doc:meta])* $variant:ident($state:ty, $config:ty) = $name:literal, $what:literal;)+
        $(@ $preset:literal = $of:literal with $parameter:literal = $value:literal, $gives:literal;)+
    ) => {
        /// The path selector of an endpoint with its parameters, shared by all its flows.
        #[derive(Clone, Debug)]
        pub enum PathsConfig {
            $($(#[$doc])* $variant(Arc<$config>),)+
        }

        impl PathsConfig {
            /// Every path selector: its name and a one-line description.
            pub const NAMES: &'static [NameAndSummary] = &[$(($name, $what),)+ $(($preset, $gives)),+];

            /// Returns the default configuration of the selector `name` over `paths` paths.
            fn default_of(name: &str, paths: u16) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant(Arc::new(<$config>::new(paths)))),)+
                    $($preset => {
                        let mut config = Self::default_of($of, paths)?;
                        config.set($parameter, $value)?.ok()?;
                        Some(config)
                    })+
                    _ => None,
                }
            }

            /// Returns the name by which a user asks for the selector.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(config) => config.preset().unwrap_or($name),)+
                }
            }

            /// Returns every parameter of the selector with its value.
            #[must_use]
            pub fn settings(&self) -> Vec<Setting> {
                match self {
                    $(Self::$variant(config) => config.settings(),)+
                }
            }

            /// Checks that the selector can run on its values.
            ///
            /// # Errors
            /// Returns the first parameter that is out of its range.
            pub fn check(&self) -> Result<(), ConfigError> {
                match self {
                    $(Self::$variant(config) => config.check(),)+
                }
            }

            /// Returns the number of paths among which the selector chooses.
            #[must_use]
            pub fn paths(&self) -> u16 {
                match self {
                    $(Self::$variant(config) => config.paths(),)+
                }
            }

            /// Returns whether the selector avoids paths that seem broken, see
            /// [`PathParameters::freezes`].
            #[must_use]
            pub fn freezes(&self) -> bool {
                match self {
                    $(Self::$variant(config) => config.freezes(),)+
                }
            }

            /// Returns whether all packets of a flow take one path, see
            /// [`PathParameters::is_single_path`].
            #[must_use]
            pub fn is_single_path(&self) -> bool {
                match self {
                    $(Self::$variant(config) => config.is_single_path(),)+
                }
            }
        }

        impl ByName for PathsConfig {
            fn name(&self) -> &'static str {
                self.name()
            }

            fn settings(&self) -> Vec<Setting> {
                self.settings()
            }

            fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
                match self {
                    $(Self::$variant(config) => Arc::make_mut(config).set(name, value),)+
                }
            }
        }

        $(
            impl TryFrom<$config> for PathsConfig {
                type Error = ConfigError;

                fn try_from(config: $config) -> Result<Self, ConfigError> {
                    config.check()?;
                    Ok(Self::$variant(Arc::new(config)))
                }
            }
        )+

        /// A path selector of any kind.
        #[derive(Clone, Debug)]
        pub enum Paths {
            $($(#[$doc])* $variant($state),)+
        }

        impl Paths {
            /// Creates a selector for a new flow. `rng` is its only source of randomness.
            #[must_use]
            pub fn new(config: &PathsConfig, rng: Rng) -> Self {
                match config {
                    $(PathsConfig::$variant(config) => {
                        Self::$variant(<$state>::new(Arc::clone(config), rng))
                    })+
                }
            }
        }

        /// Calls a method of the selector that a [`Paths`] holds.
        macro_rules! each {
            ($self:expr, $paths:ident => $call:expr) => {
                match $self {
                    $(Paths::$variant($paths) => $call,)+
                }
            };
        }
    };
}

selectors! {
    /// REPS: paths of unmarked ACKs are used again, and only known good ones after a timeout
    /// (freezing).
    Reps(Reps, RepsConfig) = "reps", "recycled entropies with freezing, as in its papers and UE's reference";
    /// REPS as first published: the path of the latest unmarked ACK is used again.
    RepsV1(RepsV1, RepsV1Config) = "reps-v1", "recycled entropies as first published: the last good path";
    /// STrack's adaptive spraying: one bit per path tells whether it brought a mark.
    Strack(StrackPaths, StrackPathsConfig) = "strack", "STrack's adaptive spraying: a bit a path, the last good one first";
    /// Spraying over all paths in turn that skips congested paths for some turns.
    Bitmap(BitmapPaths, BitmapConfig) = "bitmap", "every path in turn, congested ones skipped for some turns";
    /// Paths of unmarked ACKs are used again first; otherwise the bitmap's next path.
    Mixed(MixedPaths, MixedConfig) = "mixed", "recycled paths first, the bitmap's otherwise";
    /// MP-RDMA's ACK clocking: a packet takes the path of the ACK that made room for it.
    AckClocked(AckClockedPaths, AckClockedConfig) = "mprdma", "the path of the ACK that made room, as in MP-RDMA";
    /// Spraying over all paths in turn, in an order that changes each round; feedback is ignored.
    Oblivious(ObliviousPaths, ObliviousConfig) = "oblivious", "every path in turn, deaf to feedback";
    /// PLB: one path per flow, which the flow leaves when it stays congested.
    Plb(Plb, PlbConfig) = "plb", "one path a flow, left after some congested round trips";
    /// ECMP: one path per flow, drawn when the flow opens.
    Ecmp(Ecmp, EcmpConfig) = "ecmp", "one path a flow, drawn when it opens";
    /// One path that all flows of the endpoint share.
    Single(SinglePath, SingleConfig) = "single", "the same path for all flows";
    @ "reps-avoid" = "reps" with "avoid" = 1.0, "REPS that also avoids, for a while, paths that lost packets";
}

impl PathsConfig {
    /// The selector when the user chooses none: the one that the papers of the default congestion
    /// control use, improved for networks in which most paths are dead.
    pub const DEFAULT: &'static str = "reps-avoid";

    /// Returns the selector that `text` names, `name[:key=value[,key=value..]]`, over `paths`
    /// paths, with its defaults except for what `text` sets.
    ///
    /// # Errors
    /// Returns what is wrong and what is allowed.
    pub fn by_name(text: &str, paths: u16) -> Result<Self, ChoiceError> {
        let config = Self::default_of(name_of(text), paths)
            .ok_or_else(|| unknown("path selection", text, Self::NAMES, &[]))?;
        config.check()?;
        tune(config, text)
    }

    /// Returns REPS over `paths` paths with the defaults of uet-htsim.
    ///
    /// # Errors
    /// Returns an error if `paths` is zero.
    pub fn reps(paths: u16) -> Result<Self, ConfigError> {
        Self::try_from(RepsConfig::new(paths))
    }

    /// Returns oblivious spraying over `paths` paths.
    ///
    /// # Errors
    /// Returns an error if `paths` is not a power of two.
    pub fn oblivious(paths: u16) -> Result<Self, ConfigError> {
        Self::try_from(ObliviousConfig::new(paths))
    }

    /// Returns the first of `paths` paths, for all flows.
    ///
    /// # Errors
    /// Returns an error if `paths` is zero.
    pub fn single(paths: u16) -> Result<Self, ConfigError> {
        Self::try_from(SingleConfig::new(paths))
    }
}

impl PathSelector for Paths {
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16 {
        each!(self, paths => paths.pick(now, cwnd_packets))
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        each!(self, paths => paths.on_feedback(now, path, signal));
    }

    fn on_idle(&mut self, now: Time) {
        each!(self, paths => paths.on_idle(now));
    }

    fn metrics(&self) -> PathMetrics {
        each!(self, paths => paths.metrics())
    }

    fn state_bytes(&self) -> usize {
        each!(self, paths => paths.state_bytes())
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
