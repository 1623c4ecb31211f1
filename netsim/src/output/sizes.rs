//! Ranges of flow lengths, by which a metric selects flows: `..10KB`, `10KB..1MB`, `1MB..`.

use std::fmt;
use std::str::FromStr;

use crate::Bytes;

/// A range of flow lengths in bytes, the upper bound excluded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sizes {
    from: u64,
    below: u64,
}

impl Sizes {
    /// Returns whether a flow of `bytes` bytes is in the range.
    #[must_use]
    pub fn contains(self, bytes: u64) -> bool {
        (self.from..self.below).contains(&bytes)
    }
}

/// Parses a range of flow lengths, such as `10KB..1MB`. The error says what is allowed.
impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "lengths as 10KB..1MB, 1MB.. or ..10KB".to_owned();
        let (from, below) = text.split_once("..").ok_or_else(expected)?;
        let bytes = |text: &str, open: u64| match text {
            "" => Ok(open),
            text => text.parse().map(|Bytes(bytes)| bytes).map_err(|_| expected()),
        };
        let (from, below) = (bytes(from, 0)?, bytes(below, u64::MAX)?);
        if from < below { Ok(Self { from, below }) } else { Err(expected()) }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |f: &mut fmt::Formatter<'_>, bytes: u64, open: u64| match bytes {
            bytes if bytes == open => Ok(()),
            bytes if bytes.is_multiple_of(1_000_000) => write!(f, "{}MB", bytes / 1_000_000),
            bytes if bytes.is_multiple_of(1_000) => write!(f, "{}KB", bytes / 1_000),
            bytes => write!(f, "{bytes}B"),
        };
        bytes(f, self.from, 0)?;
        f.write_str("..")?;
        bytes(f, self.below, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_holds_its_lengths() {
        for (text, within, without) in [
            ("10KB..1MB", &[10_000, 999_999][..], &[9_999, 1_000_000][..]),
            ("1MB..", &[1_000_000, u64::MAX - 1], &[999_999]),
            ("..20KB", &[0, 19_999], &[20_000]),
        ] {
            let sizes: Sizes = text.parse().expect(text);
            assert!(within.iter().all(|&bytes| sizes.contains(bytes)), "{text}");
            assert!(!without.iter().any(|&bytes| sizes.contains(bytes)), "{text}");
            assert_eq!(sizes.to_string(), text);
        }
        for nonsense in ["", "1MB", "2MB..1MB", "a..", "..b"] {
            assert!(nonsense.parse::<Sizes>().is_err(), "{nonsense}");
        }
    }
}
