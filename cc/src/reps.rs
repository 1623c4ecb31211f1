//! Path selector REPS, recycled entropy packet spraying: paths of unmarked ACKs are used again.

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Span, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable, number, switch, time, to_micros};

/// Largest number of ring entries, and the default (uet-htsim `CircularBufferREPS`).
const RING: usize = 8;

/// Parameters of [`Reps`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepsConfig {
    /// Number of paths (UDP source ports).
    pub paths: u16,
    /// A time-out freezes the selection on the paths known to work. This needs a loss detection
    /// that distinguishes failures from congestion (trimming or NACKs): if time-outs were the only sign of
    /// loss, congestion would freeze it.
    pub freezing: bool,
    /// Time for which the selector stays frozen on known good paths: 10 ms.
    pub freeze_for: Span,
    /// Packets sent on random paths after a freeze ends: 16.
    pub explore: u8,
    /// Number of paths that the selector remembers at a time: 8, which is the largest.
    pub buffer: u8,
    /// Paths that lose packets are avoided for the time of a freeze. This is our addition, selected
    /// by `reps-avoid`; without it the selector is uet-htsim's.
    pub avoiding: bool,
}

impl RepsConfig {
    /// Returns the defaults of uet-htsim, over `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self {
            paths,
            freezing: true,
            freeze_for: Span::millis(10),
            explore: 16,
            buffer: RING as u8,
            avoiding: false,
        }
    }
}

impl Tunable for RepsConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        switch!("freeze", freezing, "whether a time-out freezes it on the paths known to work: 1"),
        time!("freeze_us", freeze_for, "how long it stays frozen: 10000", "up to 1000 s"),
        number!(explore: u8, "packets sent on random paths after it thawed: 16", "0 to 255, whole"),
        number!(buffer: u8, "paths remembered at a time: 8", "1 to 8, whole"),
        switch!(
            "avoid",
            avoiding,
            "whether paths that swallow packets are avoided for a while: 0, and 1 by the name of reps-avoid"
        ),
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

    fn preset(&self) -> Option<&'static str> {
        self.avoiding.then_some("reps-avoid")
    }
}

/// Largest number of times that the freeze time doubles: the longest freeze is 2^6 times the
/// shortest.
const MOST_PATIENCE: u8 = 6;

/// Recycled entropy packet spraying as in uet-htsim (`UecMpReps`): a path that brought an unmarked
/// ACK is used once more; without such a path, a random one. After a time-out the selector freezes:
/// it then cycles through the remembered paths, used ones included, because they have worked when
/// others may not.
///
/// If most paths are dead and stay dead, that is not enough: random paths are mostly dead, a thaw
/// forgets the few that work, and the packets that explore are lost. In `reps-avoid` the selector
/// therefore avoids a path that lost a packet until the path brings an ACK again or the time of a
/// freeze is over. If a time-out follows soon after, the next freeze is twice as long. After a thaw
/// the selector continues with the paths it remembers, and every fourth packet explores.
#[derive(Clone, Debug)]
pub struct Reps {
    config: Arc<RepsConfig>,
    rng: Rng,
    /// Time at which the current or last freeze ends; paths are avoided until then.
    until: Time,
    freezes: u32,
    /// Paths that lost packets: bit `n` stands for all paths that are `n` modulo 32.
    suspects: u32,
    ring: [u16; RING],
    /// One bit for each ring entry whose path may still be used again. An entry is used once.
    valid: u8,
    /// Index in the ring at which the next good path is stored.
    head: u8,
    /// Number of ring entries ever filled, at most the size of the ring.
    count: u8,
    /// Index in the ring of the next path to use while frozen.
    frozen_head: u8,
    /// Packets still to send on random paths (exploration).
    explore: u8,
    /// Number of times that the freeze time has doubled.
    patience: u8,
    frozen: bool,
}

const fn bit(path: u16) -> u32 {
    1 << (path % u32::BITS as u16)
}

impl Reps {
    /// Creates a selector that knows no path yet. `config` must have passed [`RepsConfig::check`].
    #[must_use]
    pub const fn new(config: Arc<RepsConfig>, rng: Rng) -> Self {
        Self {
            config,
            rng,
            until: Time::ZERO,
            freezes: 0,
            suspects: 0,
            ring: [0; RING],
            valid: 0,
            head: 0,
            count: 0,
            frozen_head: 0,
            explore: 0,
            patience: 0,
            frozen: false,
        }
    }

    const fn is_suspect(&self, path: u16) -> bool {
        self.suspects & bit(path) != 0
    }

    /// Returns a random path that is not avoided, or any random path if all are.
    fn random(&mut self) -> u16 {
        let paths = u32::from(self.config.paths);
        let classes = if paths < u32::BITS { (1 << paths) - 1 } else { u32::MAX };
        let mut sound = classes & !self.suspects;
        if sound == classes || sound == 0 {
            return self.below(paths);
        }
        for _ in 0..self.rng.below(sound.count_ones()) {
            sound &= sound - 1; // clears the lowest set bit
        }
        let class = sound.trailing_zeros();
        let members = (paths - class).div_ceil(u32::BITS);
        self.below(members) * u32::BITS as u16 + class as u16
    }

    #[allow(clippy::cast_possible_truncation)] // at most the number of paths
    fn below(&mut self, most: u32) -> u16 {
        self.rng.below(most) as u16
    }

    fn use_entry(&mut self, index: u8) -> u16 {
        self.valid &= !(1 << index);
        self.ring[usize::from(index)]
    }

    fn remember(&mut self, path: u16) {
        self.ring[usize::from(self.head)] = path;
        self.valid |= 1 << self.head;
        self.head = (self.head + 1) % self.config.buffer;
        self.count = (self.count + 1).min(self.config.buffer);
    }

    /// Returns the next of the remembered paths while frozen, used or not.
    fn next_frozen(&mut self) -> Option<u16> {
        for _ in 0..self.count {
            let index = self.frozen_head % self.count;
            self.frozen_head = (index + 1) % self.count;
            let path = self.use_entry(index);
            if !self.is_suspect(path) {
                return Some(path);
            }
        }
        None
    }

    /// Returns the oldest remembered path that was not used again yet, and marks it as used.
    fn recycle(&mut self) -> Option<u16> {
        for age in 0..self.config.buffer {
            let index = (self.head + age) % self.config.buffer;
            if self.valid & 1 << index != 0 {
                let path = self.use_entry(index);
                if !self.is_suspect(path) {
                    return Some(path);
                }
            }
        }
        None
    }

    fn freeze_time(&self) -> Span {
        self.config.freeze_for * (1 << self.patience)
    }

    /// Freezes the selector on its known good paths, or extends the freeze, and sets its length.
    fn extend_freeze(&mut self, now: Time) {
        if self.config.avoiding && !self.frozen && self.suspects == 0 {
            let again = self.until > Time::ZERO && now < self.until + self.freeze_time();
            self.patience = if again { (self.patience + 1).min(MOST_PATIENCE) } else { 0 };
        }
        self.until = now + self.freeze_time();
    }

    /// Ends a freeze: paths that were broken may work again.
    fn thaw(&mut self) {
        self.suspects = 0;
        if !self.frozen {
            return;
        }
        self.frozen = false;
        if !self.config.avoiding {
            self.valid = 0;
            self.head = 0;
            self.count = 0;
        }
        self.frozen_head = 0;
        self.explore = self.config.explore;
    }
}

impl PathSelector for Reps {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        if self.explore > 0 {
            self.explore -= 1;
            if !self.config.avoiding || self.explore.is_multiple_of(4) {
                return self.random();
            }
        }
        let known = if self.frozen { self.next_frozen() } else { self.recycle() };
        known.unwrap_or_else(|| self.random())
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        if path >= self.config.paths {
            return;
        }
        let may_freeze = self.config.freezing && !self.frozen && self.explore == 0;
        if (self.frozen || self.suspects != 0) && now > self.until {
            self.thaw();
        }
        match signal {
            PathSignal::Good => {
                self.suspects &= !bit(path);
                self.remember(path);
            }
            PathSignal::Lost | PathSignal::Timeout => {
                let freeze = signal == PathSignal::Timeout && may_freeze;
                let avoid = self.config.avoiding;
                if freeze || avoid && !self.frozen && self.suspects == 0 {
                    self.extend_freeze(now);
                }
                if avoid {
                    self.suspects |= bit(path);
                }
                if freeze {
                    self.frozen = true;
                    self.freezes = self.freezes.saturating_add(1);
                }
            }
            PathSignal::Ecn | PathSignal::Nack => {}
        }
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics {
            frozen: self.frozen,
            freezes: self.freezes,
            remembered: u16::from(self.count),
            avoided: self.suspects,
            ..PathMetrics::default()
        }
    }
}
