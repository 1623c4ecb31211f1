//! Path selector that reuses the paths of unmarked ACKs first, and otherwise takes the bitmap's
//! next path.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;

use squall_base::{Rng, Time};

use super::bitmap::{BitmapConfig, BitmapPaths, TURNS};
use crate::error::ConfigError;
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal};
use crate::tuning::{Parameter, Tunable};

/// Parameters of [`MixedPaths`]: those of its bitmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MixedConfig {
    /// Parameters of the bitmap, which chooses the path when there is none to use again.
    pub bitmap: Arc<BitmapConfig>,
}

impl MixedConfig {
    /// Returns the penalties that uet-htsim uses, over `paths` paths.
    #[must_use]
    pub fn new(paths: u16) -> Self {
        Self { bitmap: Arc::new(BitmapConfig::new(paths)) }
    }
}

/// Defines a parameter of [`MixedConfig`] that is a field of its bitmap's configuration.
macro_rules! penalty {
    ($field:ident, $what:literal, $allowed:expr) => {
        Parameter {
            name: stringify!($field),
            what: $what,
            allowed: $allowed,
            get: |c| f64::from(c.bitmap.$field),
            set: |c, v| Arc::make_mut(&mut c.bitmap).$field = v as u8,
        }
    };
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, and is read back
impl Tunable for MixedConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        penalty!(ecn, "turns a path is skipped for a marked packet: 1", TURNS),
        penalty!(nack, "turns a path is skipped for a refused packet: 4", TURNS),
        penalty!(timeout, "turns a path is skipped for a time-out: 15", TURNS),
        penalty!(most, "most turns a path is skipped: 15", "1 to 255 turns"),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        self.bitmap.check()
    }
}

impl PathParameters for MixedConfig {
    fn paths(&self) -> u16 {
        self.bitmap.paths
    }
}

/// Recycles the paths of unmarked ACKs in the order they came, and takes the bitmap's next path
/// when there is none to recycle (uet-htsim `UecMpMixed`, its default).
///
/// In uet-htsim the list of good paths grows without bound while more is acknowledged than sent.
/// Here it has room for one entry per path, and the newest replace the oldest.
#[derive(Clone, Debug)]
pub struct MixedPaths {
    bitmap: BitmapPaths,
    /// Paths of unmarked ACKs that were not used again yet, oldest first from `oldest` on.
    ring: Box<[u16]>,
    /// Index of the oldest path in the ring.
    oldest: u16,
    /// Number of paths in the ring.
    held: u16,
}

impl MixedPaths {
    /// Creates a selector that knows no paths. `config` must have passed its check.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // the signature that all selectors share
    pub fn new(config: Arc<MixedConfig>, rng: Rng) -> Self {
        let ring = vec![0; usize::from(config.bitmap.paths.max(1))].into_boxed_slice();
        let bitmap = BitmapPaths::new(Arc::clone(&config.bitmap), rng);
        Self { bitmap, ring, oldest: 0, held: 0 }
    }

    /// Returns the number of entries that the ring has room for; it was created from a `u16`.
    #[allow(clippy::cast_possible_truncation)]
    fn room(&self) -> u16 {
        self.ring.len() as u16
    }

    /// Returns the index of the entry `by` places behind the oldest; `by` is at most the room.
    #[allow(clippy::cast_possible_truncation)] // reduced below the room
    fn place(&self, by: u16) -> u16 {
        ((u32::from(self.oldest) + u32::from(by)) % u32::from(self.room())) as u16
    }
}

impl PathSelector for MixedPaths {
    fn pick(&mut self, now: Time, cwnd_packets: u32) -> u16 {
        if self.held == 0 {
            return self.bitmap.pick(now, cwnd_packets);
        }
        let path = self.ring[usize::from(self.oldest)];
        self.oldest = self.place(1);
        self.held -= 1;
        path
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        if path >= self.room() {
            return;
        }
        self.bitmap.on_feedback(now, path, signal);
        if signal == PathSignal::Good {
            let at = self.place(self.held);
            self.ring[usize::from(at)] = path;
            if self.held < self.room() {
                self.held += 1;
            } else {
                self.oldest = self.place(1);
            }
        }
    }

    fn state_bytes(&self) -> usize {
        let inside = self.bitmap.state_bytes() - size_of_val(&self.bitmap);
        size_of_val(self) + inside + size_of_val(&*self.ring)
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: self.held, ..PathMetrics::default() }
    }
}
