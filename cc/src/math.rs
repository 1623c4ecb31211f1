//! Mathematical functions that `core` lacks, and times in 32 bits of nanoseconds.

use squall_base::{Rate, Span, Time};

/// Returns `1 / sqrt(x)` for a positive, finite `x` without a division: the well-known first guess
/// from the exponent and three Newton steps, which leave single precision exact to a few units in
/// the last place.
pub(crate) fn rsqrt(x: f32) -> f32 {
    let half = 0.5 * x;
    let mut y = f32::from_bits(0x5f37_59df_u32.wrapping_sub(x.to_bits() >> 1));
    for _ in 0..3 {
        y *= 1.5 - half * y * y;
    }
    y
}

/// Returns `base` to the power of `n`, by repeated squaring.
pub(crate) fn power(base: f32, mut n: u32) -> f32 {
    let (mut result, mut square) = (1.0, base);
    while n > 0 {
        if n & 1 == 1 {
            result *= square;
        }
        square *= square;
        n >>= 1;
    }
    result
}

/// Smallest sending rate in b/s, that of the slowest link there is, 1 Mb/s: at a lower rate the
/// next packet would be too far in the future.
const LEAST_RATE: u64 = 1_000_000;

/// Returns `rate`, a number of bits per second, as a rate of at most `line`; single precision may
/// not represent `line` exactly.
pub(crate) fn up_to(rate: f32, line: Rate) -> Rate {
    if rate >= line.0 as f32 { line } else { Rate((rate as u64).max(LEAST_RATE)) }
}

/// Returns a span as 32 bits of nanoseconds, saturating at 4.29 s.
pub(crate) fn nanos(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

/// Converts a whole number of less than 64 bits, such as a span of less than 292 years. The
/// conversion of a signed number is one instruction, that of an unsigned one takes ten.
#[inline(always)]
pub(crate) const fn float(whole: u64) -> f32 {
    whole.cast_signed() as f32
}

/// Returns the smaller of two numbers that are not NaN. `min` also handles NaN, with five more
/// instructions.
#[inline(always)]
pub(crate) const fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// Returns the larger of two numbers that are not NaN.
#[inline(always)]
pub(crate) const fn most(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Returns the low 32 bits of a time in nanoseconds, for differences.
pub(crate) const fn clock(now: Time) -> u32 {
    (now.0 & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn roots_are_exact_to_single_precision() {
        for x in [1e-6_f32, 0.1, 0.5, 1.0, 2.0, 50.0, 4096.0, 1e12] {
            let exact = 1.0 / f64::from(x).sqrt();
            let error = (f64::from(rsqrt(x)) / exact - 1.0).abs();
            assert!(error < 3e-7, "1/sqrt({x}) is off by {error}");
        }
    }

    #[test]
    fn powers_of_a_half() {
        assert_eq!(
            [0, 1, 2, 5, 10].map(|n| power(0.5, n)),
            [1.0, 0.5, 0.25, 0.03125, 1.0 / 1024.0]
        );
        assert_eq!(power(0.9, u32::MAX), 0.0);
    }
}
