//! Path selector REPS as first published: it reuses the path of the latest unmarked ACK.

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable, number};

/// Parameters of [`RepsV1`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepsV1Config {
    /// Number of paths (`num_entropies` of algorithm 4 line 1, there 256).
    pub paths: u16,
    /// Number of packets in a bandwidth-delay product, all of which explore (`bdp` of line 5). Zero
    /// for the number of packets that the window holds when they leave.
    pub explore: u32,
}

impl RepsV1Config {
    /// Returns the parameters of the paper, over `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths, explore: 0 }
    }
}

impl Tunable for RepsV1Config {
    const PARAMETERS: &'static [Parameter<Self>] = &[number!(explore: u32,
        "packets of the first window that go round all paths: 0, as many as the window holds",
        "0 to 1000000 packets"
    )];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)?;
        within("explore", f64::from(self.explore), 0.0, 1e6, "0 to 1000000 packets")
    }
}

impl PathParameters for RepsV1Config {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// Recycled entropies as in algorithm 4 of Bonato et al., "SMaRTT-REPS" (first version), section
/// 3.6: the first bandwidth-delay product takes all paths in turn; then a packet takes the path of
/// the latest unmarked ACK, or, if the latest ACK was marked, the next one in turn. It remembers
/// one path; later versions have a ring of eight, see [`crate::Reps`].
///
/// The algorithm knows marked and unmarked ACKs only. A refused or lost packet counts as a marked
/// one: otherwise the selector would keep the path that lost it until an ACK of another one
/// arrives, which may be never.
///
/// The selector expects one ACK per packet, as the paper's receivers send: if one ACK stands for several
/// packets, as many leave on the same path in a row.
#[derive(Clone, Debug)]
pub struct RepsV1 {
    config: Arc<RepsV1Config>,
    /// Number of packets sent, up to the end of exploration (`p.seqnum`).
    sent: u32,
    /// Next path of exploration, below the number of paths (`next_entropy`).
    next: u16,
    /// Path for the packets after exploration (`cached_entropy`).
    cached: u16,
    /// The selector has not yet used each path once.
    untried: bool,
}

impl RepsV1 {
    /// Creates a selector that has sent nothing. The algorithm draws no random numbers. `config`
    /// must have passed its check.
    #[must_use]
    pub const fn new(config: Arc<RepsV1Config>, _rng: Rng) -> Self {
        Self { config, sent: 0, next: 0, cached: 0, untried: true }
    }

    /// Returns the next path in turn, and moves on (`next_entropy++ % num_entropies`).
    fn advance(&mut self) -> u16 {
        let path = self.next;
        self.next += 1;
        if self.next >= self.config.paths {
            self.next = 0;
            self.untried = false;
        }
        path
    }
}

impl PathSelector for RepsV1 {
    fn pick(&mut self, _now: Time, cwnd_packets: u32) -> u16 {
        let bdp = if self.config.explore > 0 { self.config.explore } else { cwnd_packets };
        if self.sent < bdp && self.untried {
            self.sent += 1;
            return self.advance(); // lines 5-6
        }
        self.sent = u32::MAX; // the first window is over, however the window grows
        self.cached // line 8
    }

    fn on_feedback(&mut self, _now: Time, path: u16, signal: PathSignal) {
        if path >= self.config.paths {
            return;
        }
        self.cached = match signal {
            PathSignal::Good => path, // line 16
            PathSignal::Ecn | PathSignal::Nack | PathSignal::Lost | PathSignal::Timeout => {
                self.advance() // line 14
            }
        };
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: 1, ..PathMetrics::default() }
    }
}
