//! Packet sequence numbers, which wrap at 32 bits and compare by serial-number arithmetic (RFC
//! 1982).

use core::fmt;

/// A packet sequence number. A comparison is meaningful between numbers less than 2^31 apart, which
/// the window of at most a few thousand packets guarantees. The order is not transitive over longer
/// distances, so there is no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(pub u32);

impl Psn {
    /// Returns the sequence number `n` after this one, wrapping.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Returns the sequence number `n` before this one, wrapping.
    #[must_use]
    pub const fn minus(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// Returns the sequence number at a signed 16-bit offset, as ACKs, SACKs and cleared PSNs have
    /// it.
    #[must_use]
    pub const fn offset(self, offset: i16) -> Self {
        Self(self.0.wrapping_add_signed(offset as i32))
    }

    /// Returns the signed distance from `other` to this sequence number, positive when this one is
    /// newer.
    #[must_use]
    #[allow(clippy::cast_possible_wrap)] // the wrap is the serial-number comparison
    pub const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Returns whether this sequence number comes before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Returns whether this sequence number comes after `other`.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance(other) > 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn{}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let old = Psn(u32::MAX - 1);
        let new = old.plus(3);
        assert_eq!(new, Psn(1));
        assert!(old.is_before(new) && new.is_after(old));
        assert_eq!(new.distance(old), 3);
        assert_eq!(new.offset(-3), old);
        assert!(!old.is_before(old) && !old.is_after(old));
    }
}
