//! The leaky bucket of section 6.1.3: tokens of the injection rate limiter (IRL), one a flit.

use super::config::ThreeCpoConfig;

/// Tokens of one class. Cycles are counted from the start of the network.
///
/// The thesis draws a random number a cycle; here tokens come evenly, as in its figures: one every `WM_MAX / watermark`
/// cycles.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Tokens; negative for debts, and not whole where costs are not.
    tokens: f64,
    /// What there is of the next token, in units of the watermark.
    part: f64,
    /// The cycle that this is about.
    at: u64,
}

/// What a packet must find.
const WHOLE: f64 = 1.0;

impl Bucket {
    pub(super) const fn new() -> Self {
        Self { tokens: WHOLE, part: 0.0, at: 0 }
    }

    /// Lets the cycles pass until `now`, each with this watermark.
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

    /// The first cycle with a whole token, if the watermark stays.
    pub(super) fn ready_at(&self, watermark: f64, wm_max: f64) -> u64 {
        if self.tokens >= WHOLE {
            return self.at;
        }
        let missing = WHOLE - self.tokens;
        let whole = missing as u64 as f64;
        let tokens = if whole < missing { whole + 1.0 } else { whole };
        let cycles = (tokens * wm_max - self.part) / watermark;
        let whole = cycles as u64;
        // Half of a millionth is what single steps of the same sum may be off.
        self.at + whole + u64::from(cycles - whole as f64 > 5e-7)
    }

    #[cfg(test)]
    pub(super) const fn tokens(&self) -> f64 {
        self.tokens
    }
}
