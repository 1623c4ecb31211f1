//! The order of what happens at one time.

use super::wheel::RANK_BITS;
use crate::Picos;

/// When among all that happens at one time something does. It says what and where it is and not when it was
/// found out, so that it is the same however a network is taken apart. What happens at one place is together,
/// because what it needs is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Turn(pub(super) u64);

/// Bits of a turn's kind; those of its place are above, and its stage is above those.
const KIND_BITS: u32 = 3;

impl Turn {
    /// When routing learns what is up.
    pub(super) const REROUTE: Self = Self::of(0, 7, u32::MAX);

    /// First of all, in the order of `place`.
    #[must_use]
    pub const fn first(place: u32) -> Self {
        Self::of(0, 0, place)
    }

    /// Before anything that happens in the network, in the order of `place`; `kind` is below 8.
    #[must_use]
    pub const fn early(kind: u8, place: u32) -> Self {
        Self::of(1, kind, place)
    }

    /// At a host, after what happens at switches; `kind` is below 8, lower ones come first, and 0 are packets that
    /// arrive.
    #[must_use]
    pub const fn at_host(kind: u8, host: u32) -> Self {
        Self::of(3, kind, host)
    }

    const fn of(stage: u64, kind: u8, place: u32) -> Self {
        Self(stage << (32 + KIND_BITS) | (place as u64) << KIND_BITS | kind as u64 & 7)
    }

    /// Of a switch's own, somewhere among what happens at ports; no port has this kind.
    pub(super) const fn timer(switch: u32) -> Self {
        Self::of(2, 7, u32::MAX - switch)
    }

    /// At a port of a switch. Of two ports each comes first as often as the other, as with packets that come in
    /// step.
    pub(super) const fn at_port(kind: u8, port: u32, at: Picos) -> Self {
        Self::of(2, kind, port ^ (at.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
    }
}

const _: () = assert!(Turn::at_host(7, u32::MAX).0 >> RANK_BITS == 0);
