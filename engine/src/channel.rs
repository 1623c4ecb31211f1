//! What operations travel on between us and a peer: a packet delivery context, or a link.
//!
//! A *context* numbers packets, asks for acknowledgements and sends again what is lost; its packets go through a
//! packet port. A *link* is what two endpoints of one host have beside that: frames arrive, whole and in order, and
//! there is nothing to time or to control (`links.rs`). Matching, order, rendezvous, RMA and the ends of operations
//! are the same above both, and know a channel by its id alone. Which channel a peer's next operation takes is decided
//! in one place, [`crate::contexts::Contexts::to`].

use crate::reliability::PdcId;

/// Names a link of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkId {
    slot: u32,
    generation: u32,
}

impl LinkId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// An index that no two living links share, for tables on the side.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.slot as usize
    }
}

/// Names a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ChannelId {
    Context(PdcId),
    Link(LinkId),
}

impl ChannelId {
    /// An index that no two living channels share, for tables on the side.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Context(id) => id.index() * 2,
            Self::Link(id) => id.index() * 2 + 1,
        }
    }

    /// The packet delivery context, if it is one.
    #[inline]
    pub(crate) const fn context(self) -> Option<PdcId> {
        match self {
            Self::Context(id) => Some(id),
            Self::Link(_) => None,
        }
    }
}

impl From<PdcId> for ChannelId {
    #[inline]
    fn from(id: PdcId) -> Self {
        Self::Context(id)
    }
}
