//! The leaky bucket of section 6.1.3: tokens of the injection rate limiter (IRL), one per flit.

use super::config::ThreeCpoConfig;

/// Tokens of one class of flits. Cycles are counted from the start of the network.
///
/// The thesis draws a random number per cycle; here tokens arrive evenly, as in its figures: one
/// every `WM_MAX / watermark` cycles.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Number of tokens in the bucket; negative in debt, and fractional after fractional costs.
    tokens: f64,
    /// Sum of the watermarks of the cycles since the last token arrived; at `WM_MAX` the next token
    /// arrives.
    part: f64,
    /// Cycle up to which the arrival of tokens was computed.
    at: u64,
}

/// Number of tokens with which an operation may leave.
const WHOLE: f64 = 1.0;

impl Bucket {
    pub(super) const fn new() -> Self {
        Self { tokens: WHOLE, part: 0.0, at: 0 }
    }

    /// Adds the tokens of the cycles up to `now`, with this watermark in each cycle.
    pub(super) fn advance(&mut self, now: u64, watermark: f64, config: &ThreeCpoConfig) {
        let passed = now.saturating_sub(self.at) as f64;
        self.at = self.at.max(now);
        let part = self.part + passed * watermark;
        let whole = (part / config.wm_max) as u64 as f64;
        self.part = part - whole * config.wm_max;
        self.tokens = (self.tokens + whole).min(config.saved.max(self.tokens));
    }

    pub(super) fn debit(&mut self, tokens: f64) {
        self.tokens -= tokens;
    }

    /// Returns the first cycle in which the bucket holds a whole token if the watermark stays.
    pub(super) fn ready_at(&self, watermark: f64, wm_max: f64) -> u64 {
        if self.tokens >= WHOLE {
            return self.at;
        }
        let missing = WHOLE - self.tokens;
        let whole = missing as u64 as f64;
        let tokens = if whole < missing { whole + 1.0 } else { whole };
        let cycles = (tokens * wm_max - self.part) / watermark;
        let whole = cycles as u64;
        // Summing single steps may differ by half a millionth, so such a fraction does not count as
        // a cycle.
        self.at + whole + u64::from(cycles - whole as f64 > 5e-7)
    }

    #[cfg(test)]
    pub(super) const fn tokens(&self) -> f64 {
        self.tokens
    }
}
