//! Rates of links and of pacers, in bits per second.

use crate::Span;

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rate(pub u64);

impl Rate {
    /// Creates a rate of `n` Gb/s.
    #[must_use]
    pub const fn gbps(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// Returns how long `bytes` occupy a link of this rate, rounded up. The result is [`Span::MAX`]
    /// at rate zero.
    #[must_use]
    pub const fn transmit_time(self, bytes: u64) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let bit_ns = bytes as u128 * 8 * 1_000_000_000;
        let ns = bit_ns.div_ceil(self.0 as u128);
        Span(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 })
    }

    /// Returns the number of bytes that this rate carries in `span`, rounded down.
    #[must_use]
    pub const fn bytes_in(self, span: Span) -> u64 {
        let bytes = self.0 as u128 * span.0 as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_kib_at_100g_lasts_a_third_of_a_microsecond() {
        assert_eq!(Rate::gbps(100).transmit_time(4096), Span(328));
        assert_eq!(Rate::gbps(100).bytes_in(Span::micros(12)), 150_000);
        assert_eq!(Rate(0).transmit_time(1), Span::MAX);
    }
}
