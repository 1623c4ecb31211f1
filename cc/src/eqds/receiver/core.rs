//! Adaptation of a receiver to congestion inside the network, which it infers from packets trimmed
//! before its own port.

use squall_base::{Span, Time};

/// Share of arriving packets that may have been trimmed before the receiver cuts its grants
/// (uet-htsim's `_target_congestion`, which counts marked packets).
const TARGET: f64 = 0.3;
/// Share of the line by which grants rise in each period with few trimmed packets.
const INCREASE: f64 = 0.01;
/// Factor from the share of trimmed packets to the relative cut of the grants.
const DECREASE: f64 = 0.5;
/// Weight of the latest period in the moving average of the share of trimmed packets.
const WEIGHT: f64 = 0.5;
/// Smallest share of its line that the receiver grants.
const LEAST: f64 = 0.01;

/// Share of its line that a receiver may grant so that its grants fit through an oversubscribed
/// core: additive increase and multiplicative decrease by the share of packets that arrive trimmed.
/// Credits alone reflect only the receiver's port.
///
/// The rule is not uet-htsim's, although most constants are. uet-htsim averages the share of marked
/// packets, subtracts the share of trimmed ones at once, doubles its increases while no packet is
/// marked, and never grants less than 0.9 of the line divided by the known oversubscription.
#[derive(Clone, Debug)]
pub(super) struct CoreCapacity {
    period: Span,
    /// Time at which the current measurement period ends; a period begins with the first packet
    /// after the previous one.
    end: Time,
    whole: u32,
    trimmed: u32,
    average: f64,
    share: f64,
}

impl CoreCapacity {
    /// Creates the state without measurements; `period` is the length of a period.
    pub(super) const fn new(period: Span) -> Self {
        Self { period, end: Time::NEVER, whole: 0, trimmed: 0, average: 0.0, share: 1.0 }
    }

    /// Counts a data packet that arrived and was not trimmed at this port. Returns the share of the
    /// line to grant if it changes.
    pub(super) fn on_rx(&mut self, now: Time, trimmed: bool) -> Option<f64> {
        let changed = now >= self.end && self.end < Time::NEVER;
        if changed {
            self.adapt();
        }
        if changed || self.end == Time::NEVER {
            self.end = now + self.period;
        }
        let count = if trimmed { &mut self.trimmed } else { &mut self.whole };
        *count = count.saturating_add(1);
        changed.then_some(self.share)
    }

    /// Adapts the share of the line to grant at the end of a period.
    fn adapt(&mut self) {
        let trimmed =
            f64::from(self.trimmed) / (f64::from(self.trimmed) + f64::from(self.whole)).max(1.0);
        (self.trimmed, self.whole) = (0, 0);
        self.average += WEIGHT * (trimmed - self.average);
        let share = if self.average > TARGET {
            self.share * (1.0 - DECREASE * self.average)
        } else {
            self.share + INCREASE
        };
        self.share = share.clamp(LEAST, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_beyond_the_target_cut_the_share_and_others_raise_it() {
        let mut core = CoreCapacity::new(Span(100));
        let mut period = |start: u64, trimmed: u32| {
            let first = core.on_rx(Time(start), trimmed > 0);
            for n in 1..10 {
                assert_eq!(core.on_rx(Time(start + u64::from(n)), n < trimmed), None);
            }
            first
        };
        assert_eq!(period(0, 8), None);
        // An average of 0.4: 1 - 0.2.
        assert_eq!(period(100, 1), Some(0.8));
        // 0.25 is not beyond the target.
        assert!((period(250, 0).unwrap() - 0.81).abs() < 1e-9);
        for n in 0..1000 {
            assert!(period(1000 + n * 1000, 10).unwrap() >= 0.01);
        }
        assert!((period(2_000_000, 0).unwrap() - 0.01).abs() < 1e-9);
        for n in 0..1000 {
            assert!(period(3_000_000 + n * 1000, 0).unwrap() <= 1.0);
        }
        assert!((period(5_000_000, 0).unwrap() - 1.0).abs() < 1e-9);
    }
}
