//! The unicast part of 3CPO and its interplay with the multicast part: algorithm 6 (sections 6.2.3
//! and 6.2.4).

use super::config::ThreeCpoConfig;
use crate::math::rsqrt;

/// Injection rate of one class, in units of [`ThreeCpoConfig::wm_max`], and the counts since the
/// last probe.
#[derive(Clone, Debug)]
pub(super) struct Watermark {
    /// Watermark: tokens arrive every `WM_MAX / value` cycles.
    value: f64,
    /// Reduction of the watermark that would have consumed as many tokens in the previous round
    /// trip (`last_wm_eq`).
    equivalent: f64,
    /// Tokens consumed beyond those that arrive in a round trip (`carry_over`); the thesis does not
    /// define their count.
    carried: f64,
    /// Tokens that operations of others consumed since the last probe (`global_dec`).
    pub(super) consumed: f64,
    /// Number of multicasts since the last probe with most of their flits in this class.
    pub(super) sent: u32,
}

impl Watermark {
    pub(super) const fn new(config: &ThreeCpoConfig) -> Self {
        Self { value: config.wm_max, equivalent: 0.0, carried: 0.0, consumed: 0.0, sent: 0 }
    }

    pub(super) const fn value(&self) -> f64 {
        self.value
    }

    /// Returns the reduction of the watermark that would have consumed as many tokens as operations
    /// of others did: `X = WM_MAX * N / L`.
    #[cfg(test)]
    pub(super) const fn equivalent(&self) -> f64 {
        self.equivalent
    }

    #[cfg(test)]
    pub(super) const fn carried(&self) -> f64 {
        self.carried
    }

    #[cfg(test)]
    pub(super) const fn set(&mut self, value: f64) {
        self.value = value;
    }

    /// Processes a probe that took `latency` cycles; `all` multicasts were sent since the previous
    /// one.
    pub(super) fn on_probe(&mut self, config: &ThreeCpoConfig, latency: f64, all: u32) {
        let latency = latency.max(1.0);
        let congested = latency > config.latency;
        let consumed = self.scaled(config, all) + self.carried;
        let equivalent = config.wm_max * consumed / latency;
        let most = self.value / config.wm_max * latency;
        // Line 1. The text describes the part that remains, this is the part that is removed.
        let far = (latency - config.latency) / (config.max_latency - config.latency).max(1.0);
        let md = (far * config.md).clamp(0.0, 1.0 - config.md);
        let grown = equivalent - self.equivalent;
        if grown > 0.0 {
            self.value = (self.value + grown).min(config.wm_max);
            // The multicast part throttles less than this decrease would.
            if congested && grown < self.value * md {
                self.decrease(config, md, equivalent);
            }
        } else if congested {
            self.decrease(config, md, equivalent);
        }
        self.equivalent = equivalent;
        self.carried = (consumed - most).max(0.0);
        (self.consumed, self.sent) = (0.0, 0);
        if latency < config.latency {
            self.value += config.ai;
        }
        self.value = self.value.clamp(config.wm_min, config.wm_max);
    }

    /// Returns the tokens taken, scaled by lines 4 to 8: a host that sent little of this class was
    /// throttled little in it, which is no reason to throttle it further.
    fn scaled(&self, config: &ThreeCpoConfig, all: u32) -> f64 {
        let share = f64::from(self.sent) / f64::from(all.max(1));
        if all == 0 || share > 0.5 {
            return self.consumed;
        }
        self.consumed * (1.0 + config.size_diff * (2.0 * (1.0 - share) - 1.0))
    }

    /// Decreases the watermark by the relative amount `md` (algorithm 6 lines 16 and 17, 19 and
    /// 20).
    fn decrease(&mut self, config: &ThreeCpoConfig, md: f64, equivalent: f64) {
        // The difference is zero when the multicast part consumed everything, so `wm_min` bounds it
        // for the root.
        let above = (self.value - equivalent).max(config.wm_min);
        let scaling = if config.fbs { scaling(config, above) } else { 1.0 };
        self.value -= scaling * md * (self.value - equivalent);
    }
}

/// Returns the factor of flow-based scaling: 1 at the largest watermark, less below it, as Swift's
/// target grows.
fn scaling(config: &ThreeCpoConfig, watermark: f64) -> f64 {
    let root = |x: f64| f64::from(rsqrt(x as f32));
    let (low, high) = (root(config.wm_min), root(config.wm_max));
    if low <= high {
        return 1.0;
    }
    let alpha = 1.0 / (low - high);
    (1.0 - alpha * (root(watermark) - high)).max(0.05)
}
