//! Packet spraying that skips congested paths: each path has a penalty, a number of turns to skip.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

use squall_base::{Rng, Time};

use crate::baselines::ObliviousPaths;
use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, power_of_two};
use crate::tuning::{Parameter, Tunable, number};

/// Allowed range of a path's penalty in turns, for messages.
pub(super) const TURNS: &str = "0 to 255 turns";

/// Parameters of [`BitmapPaths`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitmapConfig {
    /// Number of paths, a power of two.
    pub paths: u16,
    /// Turns for which a path is skipped after a marked packet: 1.
    pub ecn: u8,
    /// Turns for which a path is skipped after a refused packet: 4.
    pub nack: u8,
    /// Turns for which a path is skipped after a retransmission timeout: 15.
    pub timeout: u8,
    /// Largest penalty of a path in turns: 15.
    pub most: u8,
}

impl BitmapConfig {
    /// Returns the penalties that uet-htsim uses, over `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths, ecn: 1, nack: 4, timeout: 15, most: 15 }
    }

    /// Returns the turns that a report about a packet adds to the penalty of its path.
    const fn penalty(&self, signal: PathSignal) -> u8 {
        match signal {
            PathSignal::Good => 0,
            PathSignal::Ecn => self.ecn,
            PathSignal::Nack | PathSignal::Lost => self.nack,
            PathSignal::Timeout => self.timeout,
        }
    }
}

impl Tunable for BitmapConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        number!(ecn: u8, "turns a path is skipped for a marked packet: 1", TURNS),
        number!(nack: u8, "turns a path is skipped for a refused packet: 4", TURNS),
        number!(timeout: u8, "turns a path is skipped for a time-out: 15", TURNS),
        number!(most: u8, "most turns a path is skipped: 15", "1 to 255 turns"),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        power_of_two(self.paths)?;
        within("most", f64::from(self.most), 1.0, 255.0, "1 to 255 turns")
    }
}

impl PathParameters for BitmapConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// Spraying that skips congested paths (uet-htsim `UecMpBitmap`): the order of [`ObliviousPaths`],
/// and for each path the number of turns for which it is still skipped. Only turns reduce a
/// penalty, good reports do not.
#[derive(Clone, Debug)]
pub struct BitmapPaths {
    config: Arc<BitmapConfig>,
    order: ObliviousPaths,
    /// Penalty of each path: the turns for which it is still skipped.
    penalties: Box<[u8]>,
}

impl BitmapPaths {
    /// Creates a selector in which no path has a penalty. `config` must have passed its check.
    #[must_use]
    pub fn new(config: Arc<BitmapConfig>, rng: Rng) -> Self {
        let order = ObliviousPaths::with_paths(config.paths, rng);
        let penalties = vec![0; order.len()].into_boxed_slice();
        Self { config, order, penalties }
    }

    fn penalty(&mut self, path: u16) -> &mut u8 {
        &mut self.penalties[usize::from(path)]
    }
}

impl PathSelector for BitmapPaths {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        let mut path = self.order.peek();
        if *self.penalty(path) > 0 {
            // Only the path whose turn it was served a turn, not those skipped after it.
            *self.penalty(path) -= 1;
            // If all paths have penalties, one of them is used nevertheless.
            for _ in 0..self.penalties.len() {
                self.order.advance();
                path = self.order.peek();
                if *self.penalty(path) == 0 {
                    break;
                }
            }
        }
        self.order.advance();
        path
    }

    fn on_feedback(&mut self, _now: Time, path: u16, signal: PathSignal) {
        let (add, most) = (self.config.penalty(signal), self.config.most);
        if let Some(penalty) = self.penalties.get_mut(usize::from(path)) {
            *penalty = penalty.saturating_add(add).min(most);
        }
    }

    fn state_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.penalties)
    }

    fn metrics(&self) -> PathMetrics {
        let good = self.penalties.iter().filter(|&&penalty| penalty == 0).count();
        PathMetrics {
            remembered: u16::try_from(good).unwrap_or(u16::MAX),
            ..PathMetrics::default()
        }
    }
}
