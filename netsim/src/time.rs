//! Time in picoseconds. A byte at 800 Gb/s takes ten of them, so nanoseconds are too coarse for
//! links.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

use squall_base::{Rate, Span, Time};

/// A point in time or a duration, in picoseconds. The transport sees it rounded to nanoseconds. 64
/// bits last 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// The duration zero, or the origin of time.
    pub const ZERO: Self = Self(0);
    /// A time after all events.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns a time of `n` nanoseconds.
    #[must_use]
    pub const fn nanos(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// Returns a time of `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Returns the first picosecond of the transport's `time`.
    #[must_use]
    pub const fn from_time(time: Time) -> Self {
        Self(time.0.saturating_mul(1_000))
    }

    /// Returns the transport's `span` in picoseconds.
    #[must_use]
    pub const fn from_span(span: Span) -> Self {
        Self(span.0.saturating_mul(1_000))
    }

    /// Returns a point in time as the transport sees it: in nanoseconds, rounded down.
    #[must_use]
    pub const fn time(self) -> Time {
        Time(self.0 / 1_000)
    }

    /// Returns a duration as the transport sees it: in nanoseconds, rounded up.
    #[must_use]
    pub const fn span(self) -> Span {
        Span(self.0.div_ceil(1_000))
    }

    /// Returns the time as a number of microseconds, for people.
    #[must_use]
    pub const fn as_micros(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns how long `bytes` bytes occupy a link of `rate`, rounded up; [`Picos::NEVER`] at rate
    /// zero.
    #[must_use]
    pub const fn transmit(rate: Rate, bytes: u64) -> Self {
        if rate.0 == 0 {
            return Self::NEVER;
        }
        let bit_ps = bytes as u128 * 8_000_000_000_000;
        let ps = bit_ps.div_ceil(rate.0 as u128);
        Self(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Picos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Picos {
    type Output = Self;
    fn mul(self, by: u64) -> Self {
        Self(self.0.saturating_mul(by))
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            n if n >= 10_000_000_000 => write!(f, "{:.3}ms", n as f64 / 1e9),
            n if n >= 1_000_000 => write!(f, "{:.3}us", n as f64 / 1e6),
            n => write!(f, "{:.3}ns", n as f64 / 1e3),
        }
    }
}

impl fmt::Debug for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_800_gbps_lasts_ten_picoseconds() {
        assert_eq!(Picos::transmit(Rate::gbps(800), 1), Picos(10));
        // 4160 B * 8 / 100 Gb/s = 332.8 ns
        assert_eq!(Picos::transmit(Rate::gbps(100), 4160), Picos(332_800));
        assert_eq!(Picos::transmit(Rate(0), 1), Picos::NEVER);
    }

    #[test]
    fn the_transport_sees_whole_nanoseconds() {
        assert_eq!(Picos(1_999).time(), Time(1));
        assert_eq!(Picos(1_001).span(), Span(2));
        assert_eq!(Picos(5).since(Picos(7)), Picos::ZERO);
        assert_eq!(
            format!("{} {} {}", Picos(1_500), Picos(2_500_000), Picos::NEVER),
            "1.500ns 2.500us never"
        );
    }
}
