//! Points and lengths of time as values in nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time, in nanoseconds since an origin that the driver (the program around the state
/// machines) chooses. Code below `net` and `provider` never reads a clock; the caller passes the
/// time in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Time {
    /// The origin of time, which the driver chooses.
    pub const ZERO: Self = Self(0);
    /// A time that is later than every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time since `earlier`, or zero when `earlier` is later than `self`. That happens
    /// when one thread reads its clock before another thread but uses the value after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// The span of no time at all.
    pub const ZERO: Self = Self(0);
    /// A span that is longer than every other.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a span of `n` nanoseconds.
    #[must_use]
    pub const fn nanos(n: u64) -> Self {
        Self(n)
    }

    /// Creates a span of `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// Creates a span of `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// Creates a span of `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// Returns the span in nanoseconds as a floating-point number, for the formulas of papers.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Returns this span less `other`, or zero when `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, by: u64) -> Self {
        Self(self.0.saturating_mul(by))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, by: u64) -> Self {
        Self(self.0 / by)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", Span(self.0))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            n if n >= 10_000_000_000 => write!(f, "{:.1}s", n as f64 / 1e9),
            n if n >= 10_000_000 => write!(f, "{:.1}ms", n as f64 / 1e6),
            n if n >= 10_000 => write!(f, "{:.1}us", n as f64 / 1e3),
            n => write!(f, "{n}ns"),
        }
    }
}
