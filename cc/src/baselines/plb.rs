//! Path selector that moves a congested flow to another path: protective load balancing (PLB).

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use squall_base::{Rng, Span, Time};

use crate::error::{ConfigError, within};
use crate::selector::{PathMetrics, PathParameters, PathSelector, PathSignal, some_paths};
use crate::tuning::{Parameter, Tunable, number, time};

/// Parameters of [`Plb`]: the defaults are those with which Linux runs the scheme (net/ipv4/tcp_plb.c,
/// `tcp_plb_*` in the documentation of its sysctls).
#[derive(Clone, PartialEq, Debug)]
pub struct PlbConfig {
    /// Number of paths (UDP source ports).
    pub paths: u16,
    /// Share of marked packets from which a round trip counts as congested: 0.5.
    pub threshold: f64,
    /// Congested round trips in a row after which an idle flow changes its path: 3.
    pub idle_rounds: u8,
    /// Congested round trips in a row after which any flow changes its path: 12.
    pub rounds: u8,
    /// Shortest time that a flow keeps the path to which a time-out drove it; the longest is twice
    /// as long: 60 s. Without it the flow would soon return to a dead path.
    pub suspend: Span,
}

impl PlbConfig {
    /// Returns the defaults of Linux's PLB, over `paths` paths.
    #[must_use]
    pub const fn new(paths: u16) -> Self {
        Self { paths, threshold: 0.5, idle_rounds: 3, rounds: 12, suspend: Span::secs(60) }
    }
}

impl Tunable for PlbConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        number!(threshold: f64, "share of marks that makes a round trip congested: 0.5", "0 to 1"),
        number!(idle_rounds: u8,
            "congested round trips after which an idle flow changes its path: 3",
            "1 to 255 round trips"
        ),
        number!(rounds: u8,
            "congested round trips after which any flow changes its path: 12",
            "1 to 255 round trips"
        ),
        time!(
            "suspend_us",
            suspend,
            "time without changes after a time-out, up to twice as long: 60 s",
            "up to 4000000000 (4000 s)"
        ),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        some_paths(self.paths)?;
        within("threshold", self.threshold, 0.0, 1.0, "0 to 1")?;
        within("idle_rounds", f64::from(self.idle_rounds), 1.0, 255.0, "1 to 255 round trips")?;
        within("rounds", f64::from(self.rounds), 1.0, 255.0, "1 to 255 round trips")?;
        within("suspend", self.suspend.as_f64(), 0.0, 4e12, "up to 4000 s")
    }
}

impl PathParameters for PlbConfig {
    fn paths(&self) -> u16 {
        self.paths
    }
}

/// Protective load balancing (Qureshi et al., "PLB: congestion signals are simple and effective for
/// network load balancing", SIGCOMM 2022): one path a flow, left for a random other one when a flow
/// has been congested for some round trips in a row, preferably while it is idle, because then
/// nothing is reordered.
///
/// A round trip is a window's worth of reports. Reports about the previous path do not count
/// against the new one. A refused packet counts as a marked one. A time-out changes the path at
/// once and forbids further changes for a while.
#[derive(Clone, Debug)]
pub struct Plb {
    config: Arc<PlbConfig>,
    rng: Rng,
    /// Time until which congestion does not change the path, because a timeout changed it.
    paused_until: Time,
    /// Packets on the current path that were reported in this round trip.
    reports: u32,
    /// Packets among `reports` that were marked, refused or lost.
    marked: u32,
    /// Length of a round trip in packets: the window.
    round: u32,
    /// Number of times that the flow changed its path.
    changes: u32,
    path: u16,
    /// Consecutive round trips that were congested on the current path.
    congested: u8,
}

impl Plb {
    /// Creates a selector on a random path. `config` must have passed its check.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below `paths`
    pub fn new(config: Arc<PlbConfig>, mut rng: Rng) -> Self {
        let path = rng.below(u32::from(config.paths)) as u16;
        Self {
            config,
            rng,
            paused_until: Time::ZERO,
            reports: 0,
            marked: 0,
            round: 1,
            changes: 0,
            path,
            congested: 0,
        }
    }

    /// Moves the flow to a random other path, if there is one.
    #[allow(clippy::cast_possible_truncation)] // below `paths`
    fn repath(&mut self) {
        let others = self.config.paths - 1;
        if others > 0 {
            let other = self.rng.below(u32::from(others)) as u16;
            self.path = if other < self.path { other } else { other + 1 };
            self.changes = self.changes.saturating_add(1);
        }
        self.reports = 0;
        self.marked = 0;
        self.congested = 0;
    }

    fn end_round(&mut self, now: Time) {
        let congested = f64::from(self.marked) >= self.config.threshold * f64::from(self.reports);
        self.congested = if congested { self.congested.saturating_add(1) } else { 0 };
        self.reports = 0;
        self.marked = 0;
        if self.congested >= self.config.rounds && now >= self.paused_until {
            self.repath();
        }
    }
}

impl PathSelector for Plb {
    fn pick(&mut self, _now: Time, cwnd_packets: u32) -> u16 {
        self.round = cwnd_packets.max(1);
        self.path
    }

    fn on_feedback(&mut self, now: Time, path: u16, signal: PathSignal) {
        if path != self.path {
            return;
        }
        match signal {
            PathSignal::Good => self.reports += 1,
            PathSignal::Ecn | PathSignal::Nack | PathSignal::Lost => {
                self.reports += 1;
                self.marked += 1;
            }
            PathSignal::Timeout => {
                self.repath();
                let extra = self.config.suspend.as_f64() * self.rng.unit();
                self.paused_until = now + self.config.suspend + Span(extra as u64);
                return;
            }
        }
        if self.reports >= self.round {
            self.end_round(now);
        }
    }

    fn on_idle(&mut self, now: Time) {
        if self.congested >= self.config.idle_rounds && now >= self.paused_until {
            self.repath();
        }
    }

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: 1, changes: self.changes, ..PathMetrics::default() }
    }
}
