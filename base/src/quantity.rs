//! Quantities as people write them: `16K`, `2.5Gbit/s`, `200ms`, `1%`.
//!
//! A quantity is a number and a unit. The number is a whole number, a decimal fraction (`1.5`) or
//! has an exponent (`1e3`), and it is not negative. White space may surround the quantity and
//! separate the unit from the number. A whole number is exact. Any other number has the 53 bits of
//! an `f64`, and the result is rounded to the nearest byte, bit per second or nanosecond.
//!
//! The functions return `None` for any other text. A caller names the value and gives examples of
//! what it accepts, and it checks the range that it needs.

use crate::{Rate, Span};

/// Largest rate in bits per second, time in nanoseconds and fractional size in bytes. It leaves room
/// for the sum of two of them.
const LARGEST: u64 = u64::MAX / 2;

/// The meaning of `KB`, `MB` and `GB`, which differs between programs. `K`, `M`, `G`, `KiB`, `MiB`
/// and `GiB` are powers of 1024 either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kilobyte {
    /// `KB` is 1000 bytes, as in SI units and in papers on networks.
    Of1000,
    /// `KB` is 1024 bytes, as in settings of memory sizes.
    Of1024,
}

/// Parses a number of bytes: `4096`, `512B`, `16K`, `1.5MiB`, `2 GB`. The unit is one of `B`, `K`,
/// `M` and `G`, `KiB`, `MiB` and `GiB`, `KB`, `MB` and `GB`, in either case except for the `i`; no
/// unit means bytes. A whole number of bytes may be as large as `u64::MAX`.
#[must_use]
pub fn parse_bytes(text: &str, kilobyte: Kilobyte) -> Option<u64> {
    scale(text, |unit| {
        let prefix = unit.trim_end_matches(['B', 'b']);
        let decimal = kilobyte == Kilobyte::Of1000 && prefix != unit && !prefix.ends_with('i');
        let step: u64 = if decimal { 1000 } else { 1024 };
        match prefix.trim_end_matches('i') {
            "" => Some(1),
            "K" | "k" => Some(step),
            "M" | "m" => Some(step.pow(2)),
            "G" | "g" => Some(step.pow(3)),
            _ => None,
        }
    })
}

/// Parses a rate in bits per second: `100M`, `2.5Gbit/s`, `40Gb/s`, `400Gbps`, `1.6T`. The prefixes
/// `M`, `G` and `T` are powers of 1000, in either case. One of them is required, so that nobody
/// mistakes a number of Gb/s for one of bits.
#[must_use]
pub fn parse_rate(text: &str) -> Option<Rate> {
    let bits = scale(text, |unit| {
        let units = ["bit/s", "b/s", "bps"];
        match units.iter().fold(unit, |unit, end| unit.trim_end_matches(end)) {
            "M" | "m" => Some(1_000_000),
            "G" | "g" => Some(1_000_000_000),
            "T" | "t" => Some(1_000_000_000_000),
            _ => None,
        }
    });
    bits.filter(|bits| *bits <= LARGEST).map(Rate)
}

/// Parses a length of time: `500ns`, `20us`, `1.5ms`, `10s`. The unit is required.
#[must_use]
pub fn parse_span(text: &str) -> Option<Span> {
    let nanos = scale(text, |unit| match unit {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    });
    nanos.filter(|nanos| *nanos <= LARGEST).map(Span)
}

/// Parses a probability or a share from 0 to 1: `0.01`, `1e-6`, `1%`.
#[must_use]
pub fn parse_probability(text: &str) -> Option<f64> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// Multiplies the number in `text` by the factor of its unit; `None` if `text` is no quantity.
fn scale(text: &str, factor_of: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let text = text.trim();
    // No unit has a digit or a point, and an exponent ends in a digit.
    let (number, unit) = text.split_at(text.rfind(|c: char| c.is_ascii_digit() || c == '.')? + 1);
    let factor = factor_of(unit.trim_start())?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    if !(0.0..LARGEST as f64).contains(&value) {
        return None;
    }
    // `f64::round` is not in `core`.
    let whole = value as u64;
    Some(whole + u64::from(value - whole as f64 >= 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_prefixes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("512B", Some(512)),
            ("16K", Some(16 << 10)),
            ("16k", Some(16 << 10)),
            ("16KiB", Some(16 << 10)),
            ("128 KiB", Some(128 << 10)),
            (" 1M ", Some(1 << 20)),
            ("1.5MiB", Some(3 << 19)),
            (".5G", Some(1 << 29)),
            ("1e3", Some(1000)),
            // More digits than an f64 has.
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("17179869184G", None),
            ("99999999999.5G", None),
            ("16Q", None),
            ("16 pages", None),
            ("1K5", None),
            ("-1", None),
            ("infK", None),
            ("B", None),
            ("", None),
        ] {
            for kilobyte in [Kilobyte::Of1000, Kilobyte::Of1024] {
                assert_eq!(parse_bytes(text, kilobyte), bytes, "{text}");
            }
        }
    }

    #[test]
    fn a_kilobyte_is_what_the_caller_says() {
        for (text, decimal, binary) in [
            ("2KB", 2_000, 2 << 10),
            ("2kB", 2_000, 2 << 10),
            ("2MB", 2_000_000, 2 << 20),
            ("1.5 GB", 1_500_000_000, 3 << 29),
        ] {
            assert_eq!(parse_bytes(text, Kilobyte::Of1000), Some(decimal), "{text}");
            assert_eq!(parse_bytes(text, Kilobyte::Of1024), Some(binary), "{text}");
        }
    }

    #[test]
    fn rates_need_a_prefix() {
        for (text, rate) in [
            ("100M", Some(100_000_000)),
            ("2.5Gbit/s", Some(2_500_000_000)),
            ("2.5Gb/s", Some(2_500_000_000)),
            ("40gbps", Some(40_000_000_000)),
            ("1.6 T", Some(1_600_000_000_000)),
            ("1e3M", Some(1_000_000_000)),
            // The product is below 1001000 by a rounding error.
            ("1.001M", Some(1_001_000)),
            ("0G", Some(0)),
            ("10000000T", None),
            ("10", None),
            ("10K", None),
            ("10bit/s", None),
            ("-1G", None),
            ("fast", None),
        ] {
            assert_eq!(parse_rate(text), rate.map(Rate), "{text}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        for (text, span) in [
            ("0s", Some(Span::ZERO)),
            ("500ns", Some(Span(500))),
            ("20 us", Some(Span::micros(20))),
            ("1.5ms", Some(Span::micros(1500))),
            // The product is below 1001 by a rounding error.
            ("1.001us", Some(Span(1_001))),
            ("1.5ns", Some(Span(2))),
            ("10s", Some(Span::secs(10))),
            ("10000000000s", None),
            ("1h", None),
            ("1S", None),
            ("20", None),
            ("-1s", None),
            ("s", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(parse_span(text), span, "{text}");
        }
    }

    #[test]
    fn probabilities_are_fractions_or_percentages() {
        for (text, share) in [
            ("0.01", Some(0.01)),
            ("1e-6", Some(1e-6)),
            ("1%", Some(0.01)),
            (" 0.5 % ", Some(0.005)),
            ("100%", Some(1.0)),
            ("101%", None),
            ("-0.1", None),
            ("nan", None),
            ("%", None),
        ] {
            assert_eq!(parse_probability(text), share, "{text}");
        }
    }
}
