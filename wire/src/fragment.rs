//! Fragments of packets. A sender that must retransmit a packet on a path that carries less than at
//! the first transmission cuts it into fragments, and puts this header before each. UE has no such
//! header; `docs/wire.md` gives its layout and its rules.

use crate::base::Psn;
use crate::error::ParseError;

/// Length of the fragment header in bytes.
const HEAD: usize = 8;

/// A fragment whose own header has been checked. The packet behind the header has not been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    /// The PSN of the packet that the fragment is a part of.
    pub original: Psn,
    /// The number of fragments that the original was cut into; at least 2.
    pub count: u8,
    /// Bytes of the packet behind the fragment header.
    pub packet: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// The private PDS type of a fragment's header.
    pub const TYPE: u8 = 29;
    /// Length of the fragment header in bytes.
    pub const LEN: usize = HEAD;

    /// Returns whether a UDP payload is a fragment, by its first byte.
    #[inline]
    #[must_use]
    pub const fn is_before(bytes: &[u8]) -> bool {
        matches!(bytes, [first, ..] if *first >> 3 == Self::TYPE)
    }

    /// Returns the header of each of the `count` fragments of the packet `original`.
    #[must_use]
    pub const fn head(original: Psn, count: u8) -> [u8; HEAD] {
        let [a, b, c, d] = original.0.to_be_bytes();
        [Self::TYPE << 3, count, 0, 0, a, b, c, d]
    }

    /// Reads the header at the beginning of a UDP payload and checks its rules.
    ///
    /// # Errors
    /// Returns the rule that the header breaks: another type, reserved bits that are set, fewer than two fragments, or a header
    /// that is cut off.
    pub fn read(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (&[first, count, r1, r2, a, b, c, d], packet) =
            bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if first >> 3 != Self::TYPE {
            return Err(ParseError::Type);
        }
        if [first & 7, r1, r2] != [0; 3] || count < 2 {
            return Err(ParseError::Reserved);
        }
        Ok(Self { original: Psn(u32::from_be_bytes([a, b, c, d])), count, packet })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::from(Fragment::head(Psn(0x0102_0304), 9));
        bytes.extend_from_slice(b"packet");
        assert!(Fragment::is_before(&bytes));
        let read = Fragment::read(&bytes).expect("well formed");
        assert_eq!((read.original, read.count), (Psn(0x0102_0304), 9));
        assert_eq!(read.packet, b"packet");
        assert!(!Fragment::is_before(&[]) && !Fragment::is_before(&[31 << 3]));
        // No other parser accepts these bytes as a packet.
        assert_eq!(crate::parse(&bytes), Err(ParseError::Type));
    }

    #[test]
    fn malformed_headers_are_refused() {
        let good = Fragment::head(Psn(7), 2);
        for n in 0..HEAD {
            assert_eq!(Fragment::read(&good[..n]), Err(ParseError::Truncated), "{n} bytes");
        }
        for (at, byte) in [(0, 29 << 3 | 1), (1, 1), (1, 0), (2, 1), (3, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Fragment::read(&bad), Err(ParseError::Reserved), "byte {at}");
        }
        let mut other = good;
        other[0] = 28 << 3;
        assert_eq!(Fragment::read(&other), Err(ParseError::Type));
    }
}
