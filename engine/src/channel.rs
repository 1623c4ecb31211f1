//! Channels, on which operations travel to a peer: a packet delivery context or a shared-memory
//! channel.
//!
//! A *packet delivery context* numbers packets, requests acknowledgements and retransmits what is
//! lost; its packets go through a packet port. A *shared-memory channel* connects two
//! endpoints of one host. Its *records* arrive whole and in order, so it needs no timers
//! and no congestion control (`shm.rs`). Matching, order, rendezvous, RMA and the ends of
//! operations are the same on both and know a channel only by its id.
//! [`crate::contexts::Contexts::channel_to`] alone decides which channel a peer's next operation takes.

use crate::reliability::PdcId;

/// The id of one of the engine's shared-memory channels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShmId {
    slot: u32,
    generation: u32,
}

impl ShmId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// Returns an index that no two open shared-memory channels share, for tables kept beside them.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.slot as usize
    }
}

/// The id of a channel to a peer: a packet delivery context or a shared-memory channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ChannelId {
    Context(PdcId),
    Shm(ShmId),
}

impl ChannelId {
    /// Returns an index that no two open channels share, for tables kept beside them.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Context(id) => id.index() * 2,
            Self::Shm(id) => id.index() * 2 + 1,
        }
    }

    /// Returns the id of the packet delivery context, unless this is a shared-memory channel.
    #[inline]
    pub(crate) const fn context(self) -> Option<PdcId> {
        match self {
            Self::Context(id) => Some(id),
            Self::Shm(_) => None,
        }
    }
}

impl From<PdcId> for ChannelId {
    #[inline]
    fn from(id: PdcId) -> Self {
        Self::Context(id)
    }
}
