//! Order of events that happen at the same time.

use super::wheel::RANK_BITS;
use crate::Picos;

/// Rank of an event among those of the same time. The rank depends on the kind and place of the
/// event, and not on when the event was scheduled, so that it does not depend on the partition of
/// the network. Events at one place are adjacent, because they need the same memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Turn(pub(super) u64);

/// Number of bits of a turn's kind. The bits of its place are above, and those of its stage above
/// these.
const KIND_BITS: u32 = 3;

impl Turn {
    /// Rank of the event in which routing learns which links are up.
    pub(super) const REROUTE: Self = Self::of(0, 7, u32::MAX);

    /// Returns a rank before those of all other events at the same time. Ranks of this kind are in
    /// the order of `place`.
    #[must_use]
    pub const fn first(place: u32) -> Self {
        Self::of(0, 0, place)
    }

    /// Returns a rank before all events in the network, in the order of `place`; `kind` is below 8.
    #[must_use]
    pub const fn early(kind: u8, place: u32) -> Self {
        Self::of(1, kind, place)
    }

    /// Returns the rank of an event at a host, after those at switches. `kind` is below 8; lower
    /// kinds come first, and 0 is for arriving packets.
    #[must_use]
    pub const fn at_host(kind: u8, host: u32) -> Self {
        Self::of(3, kind, host)
    }

    const fn of(stage: u64, kind: u8, place: u32) -> Self {
        Self(stage << (32 + KIND_BITS) | (place as u64) << KIND_BITS | kind as u64 & 7)
    }

    /// Returns the rank of a switch's timer, among the events at ports; no port has this kind.
    pub(super) const fn timer(switch: u32) -> Self {
        Self::of(2, 7, u32::MAX - switch)
    }

    /// Returns the rank of an event at a port of a switch. The rank depends on the time, so that
    /// each of two ports comes first about as often as the other, even if packets arrive in
    /// lockstep.
    pub(super) const fn at_port(kind: u8, port: u32, at: Picos) -> Self {
        Self::of(2, kind, port ^ (at.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32)
    }
}

const _: () = assert!(Turn::at_host(7, u32::MAX).0 >> RANK_BITS == 0);
