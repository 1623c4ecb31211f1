//! REPS: recycled entropies.

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Span, Time};

use super::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::error::{ConfigError, within};
use crate::tuning::{Parameter, Tunable, number, switch, time, to_micros};

/// Most entries in the ring, and the default (uet-htsim `CircularBufferREPS`).
const RING: usize = 8;

/// Parameters of [`Reps`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepsConfig {
    /// Number of paths.
    pub paths: u16,
    /// Whether a time-out freezes the selection on the paths known to work. Only with a loss
    /// detection that tells failures from congestion (trimming or NACKs): with time-outs as the only
    /// sign of loss, congestion would freeze it.
    pub freezing: bool,
    /// How long it stays frozen: 10 ms.
    pub freeze_for: Span,
    /// Packets sent on random paths after it thawed: 16.
    pub explore: u8,
    /// Paths remembered at a time: 8, which is the most.
    pub buffer: u8,
}

impl RepsConfig {
    /// The defaults of uet-htsim.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self {
            paths,
            freezing: true,
            freeze_for: Span::millis(10),
            explore: 16,
            buffer: RING as u8,
        }
    }
}

impl Tunable for RepsConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        switch!("freeze", freezing, "whether a time-out freezes it on the paths known to work: 1"),
        time!("freeze_us", freeze_for, "how long it stays frozen: 10000", "up to 1000 s"),
        number!(explore: u8, "packets sent on random paths after it thawed: 16", "0 to 255, whole"),
        number!(buffer: u8, "paths remembered at a time: 8", "1 to 8, whole"),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)?;
        within("freeze_us", to_micros(self.freeze_for), 0.0, 1e9, "up to 1000 s")?;
        within("buffer", f64::from(self.buffer), 1.0, RING as f64, "1 to 8, whole")
    }
}

impl PathParameters for RepsConfig {
    fn paths(&self) -> u16 {
        self.paths
    }

    fn freezes(&self) -> bool {
        self.freezing
    }
}

/// Recycled entropy packet spraying as in uet-htsim (`UecMpReps`): a path that brought an unmarked ACK
/// is used once more; without such a path, a random one. After a time-out it freezes: it then cycles
/// through the remembered paths, even used ones, for they have worked when others may not.
#[derive(Clone, Debug)]
pub struct Reps {
    config: Arc<RepsConfig>,
    rng: Rng,
    /// When to thaw, if frozen.
    thaw_at: Time,
    freezes: u32,
    ring: [u16; RING],
    /// Which entries of the ring may still be recycled (lifetime 1).
    valid: u8,
    /// Where the next good path goes.
    head: u8,
    /// Entries ever filled, at most all.
    count: u8,
    /// Where the frozen cycle is.
    frozen_head: u8,
    /// Random picks still to make.
    explore: u8,
    frozen: bool,
}

impl Reps {
    /// A selector that knows no path yet. `config` must have passed [`RepsConfig::check`].
    #[must_use]
    pub const fn new(config: Arc<RepsConfig>, rng: Rng) -> Self {
        Self {
            config,
            rng,
            thaw_at: Time::ZERO,
            freezes: 0,
            ring: [0; RING],
            valid: 0,
            head: 0,
            count: 0,
            frozen_head: 0,
            explore: 0,
            frozen: false,
        }
    }

    #[allow(clippy::cast_possible_truncation)] // below `paths`
    fn random(&mut self) -> u16 {
        self.rng.below(u32::from(self.config.paths)) as u16
    }

    /// Entries good for recycling.
    const fn fresh(&self) -> u8 {
        self.valid.count_ones() as u8
    }

    fn take(&mut self, index: u8) -> u16 {
        self.valid &= !(1 << index);
        self.ring[usize::from(index)]
    }

    fn remember(&mut self, path: u16) {
        self.ring[usize::from(self.head)] = path;
        self.valid |= 1 << self.head;
        self.head = (self.head + 1) % self.config.buffer;
        self.count = (self.count + 1).min(self.config.buffer);
    }

    fn thaw(&mut self) {
        self.frozen = false;
        self.valid = 0;
        self.head = 0;
        self.count = 0;
        self.frozen_head = 0;
        self.explore = self.config.explore;
    }
}

impl PathSelector for Reps {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        if self.explore > 0 {
            self.explore -= 1;
            return self.random();
        }
        if self.frozen {
            if self.count == 0 {
                return self.random();
            }
            let index = self.frozen_head % self.count;
            self.frozen_head = (index + 1) % self.count;
            return self.take(index);
        }
        let fresh = self.fresh();
        if fresh == 0 {
            return self.random();
        }
        // Invalid entries are always the oldest ones: the oldest fresh one is `fresh` behind head.
        let room = self.config.buffer;
        self.take((self.head + room - fresh) % room)
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        if path >= self.config.paths {
            return;
        }
        let may_freeze = self.config.freezing && !self.frozen && self.explore == 0;
        if signal == PathSignal::Timeout && may_freeze {
            self.frozen = true;
            self.freezes = self.freezes.saturating_add(1);
            self.thaw_at = now + self.config.freeze_for;
        }
        if self.frozen && now > self.thaw_at {
            self.thaw();
        }
        if signal == PathSignal::Good {
            self.remember(path);
        }
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics {
            frozen: self.frozen,
            freezes: self.freezes,
            remembered: u16::from(self.count),
            ..PathMetrics::default()
        }
    }
}
