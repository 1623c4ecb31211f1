//! One path a flow.

use squall_base::{Rng, Time};

use super::{PathMetrics, PathSelector, PathSignal};

/// One path for the life of the flow, chosen at random when it opens, as ECMP does for a flow's
/// five-tuple. What ordered delivery over a network that must not reorder needs.
#[derive(Clone, Debug)]
pub struct Single {
    path: u16,
}

impl Single {
    /// A selector with one of `paths` paths.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // below `paths`
    pub fn new(paths: u16, mut rng: Rng) -> Self {
        Self { path: rng.below(u32::from(paths)) as u16 }
    }
}

impl PathSelector for Single {
    fn pick(&mut self, _now: Time, _cwnd_packets: u32) -> u16 {
        self.path
    }

    fn on_feedback(&mut self, _now: Time, _path: u16, _signal: PathSignal) {}

    fn metrics(&self) -> PathMetrics {
        PathMetrics { remembered: 1, ..PathMetrics::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_and_flows_differ() {
        let mut used = [false; 16];
        for seed in 0..200 {
            let mut single = Single::new(16, Rng::new(seed));
            let path = single.pick(Time::ZERO, 1);
            single.on_feedback(Time::ZERO, path, PathSignal::Timeout);
            assert_eq!(single.pick(Time::ZERO, 1), path);
            used[usize::from(path)] = true;
        }
        assert_eq!(used, [true; 16]);
    }
}
