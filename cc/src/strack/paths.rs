//! STrack's adaptive packet spraying (Le et al., "STrack", section 3.1 and algorithm 2).

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal};
use crate::tuning::{Parameter, Tunable};

/// Number of paths that the bitmap holds (algorithm 2 line 1, `max_paths`).
pub(crate) const MAX_PATHS: u16 = 256;
/// Smallest number of paths in use, however small the window (algorithm 2 line 18).
const MIN_ACTIVE: u32 = 8;
const WORDS: usize = MAX_PATHS as usize / 64;

/// Adaptive spraying with one bit per path: the next packet takes the path of an unmarked ACK;
/// without one, paths take turns, and a marked path is skipped once.
///
/// Lines 5 and 8 set and clear the wrong way round: line 1 starts with all paths good and zero, the
/// loop of line 20 skips paths that are not zero, and the text skips the marked ones. Here a set
/// bit means a marked path.
///
/// Line 12 asks for `next_path_id > 0`, which forgets path 0; here path 0 counts. The paper's
/// introduction also resets the bitmap after one or two round trips; algorithm 2 does not, because
/// the first packet that meets a bit clears it.
#[derive(Clone, Debug)]
pub struct StrackPaths {
    /// One bit per path: set if the path brought a mark and has not been skipped since.
    marked: [u64; WORDS],
    /// Number of paths (UDP source ports).
    paths: u16,
    /// Path that the latest packet took (round robin continues from it).
    rr: u16,
    /// Path of the last ACK if it was unmarked (`next_path_id`).
    next: Option<u16>,
}

/// Parameters of [`StrackPaths`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrackPathsConfig {
    /// Number of paths (UDP source ports), at most 256.
    pub paths: u16,
}

impl StrackPathsConfig {
    /// Returns parameters with which every flow uses all of `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths }
    }
}

impl Tunable for StrackPathsConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        within("paths", f64::from(self.paths), 1.0, f64::from(MAX_PATHS), "1 to 256")
    }
}

impl PathParameters for StrackPathsConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

impl StrackPaths {
    /// Creates a selector over the paths of `config`, which must have passed its check. The
    /// algorithm draws no random numbers.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // the signature that all selectors share
    pub fn new(config: Arc<StrackPathsConfig>, _rng: Rng) -> Self {
        Self::with_paths(config.paths)
    }

    /// Creates a selector over `paths` paths, clamped to 1..=256.
    fn with_paths(paths: u16) -> Self {
        Self { marked: [0; WORDS], paths: paths.clamp(1, MAX_PATHS), rr: 0, next: None }
    }

    /// Returns the number of paths considered (lines 17 and 18): twice as many as the window has
    /// packets, because the state of more is out of date.
    fn active(&self, cwnd_packets: u32) -> u16 {
        let wanted = cwnd_packets.saturating_mul(2).max(MIN_ACTIVE);
        u16::try_from(wanted).unwrap_or(u16::MAX).min(self.paths)
    }

    const fn is_marked(&self, path: u16) -> bool {
        self.marked[path as usize / 64] >> (path % 64) & 1 == 1
    }

    fn mark(&mut self, path: u16) {
        self.marked[usize::from(path) / 64] |= 1 << (path % 64);
    }

    fn clear(&mut self, path: u16) {
        self.marked[usize::from(path) / 64] &= !(1 << (path % 64));
    }

    /// Returns the first unmarked path from `from` up to `to` (excluded), testing a word of the
    /// bitmap at a time.
    #[allow(clippy::cast_possible_truncation)] // below 64
    fn first_good(&self, from: u16, to: u16) -> Option<u16> {
        let mut path = from;
        while path < to {
            let good = !self.marked[usize::from(path) / 64] & (u64::MAX << (path % 64));
            let word = path & !63;
            if good != 0 {
                let found = word + good.trailing_zeros() as u16;
                return (found < to).then_some(found);
            }
            path = word + 64;
        }
        None
    }
}

impl PathSelector for StrackPaths {
    /// Returns the path of the next packet (`choose_path`).
    fn pick(&mut self, _now: Time, cwnd_packets: u32) -> u16 {
        if let Some(path) = self.next.take() {
            self.rr = path; // lines 12 to 14
            return path;
        }
        let active = self.active(cwnd_packets);
        let next = self.rr + 1;
        self.rr = if next < active { next } else { next % active }; // line 19
        if self.is_marked(self.rr) {
            // Lines 20 to 27: one packet clears at least one bit, so the search ends.
            let first = self.rr;
            self.clear(first);
            self.rr = self
                .first_good(first + 1, active)
                .or_else(|| self.first_good(0, first))
                .unwrap_or(first);
        }
        self.rr
    }

    /// Updates the bitmap (`update_ecn_bitmap`). A path whose packet was trimmed or lost counts as
    /// marked.
    fn on_feedback(&mut self, _now: Time, path: u16, signal: PathSignal) {
        if path >= self.paths {
            return;
        }
        if signal == PathSignal::Good {
            self.next = Some(path);
            self.clear(path);
        } else {
            self.next = None;
            self.mark(path);
        }
    }

    fn metrics(&self) -> PathMetrics {
        let marked: u32 = self.marked.iter().map(|word| word.count_ones()).sum();
        let good = u32::from(self.paths).saturating_sub(marked);
        PathMetrics { remembered: u16::try_from(good).unwrap_or(0), ..PathMetrics::default() }
    }
}
