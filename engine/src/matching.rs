//! Tag matching: posted receives and unexpected messages.
//!
//! A receive matches a message when `(tag ^ wanted) & !ignore == 0` and, if directed, the sources are
//! equal (fi_tagged(3)). Among several posted receives the oldest wins; among several unexpected
//! messages the earliest does. Both sides are indexed by hash for every *ignore mask in use*: an MPI
//! uses two or three masks (exact, any tag, protocol bits), so that a lookup costs a few hash probes
//! whether ten or ten thousand entries are waiting, wildcards included. Masks beyond
//! [`MAX_MASKS`] share one list that is searched in order.

mod hash;
mod posted;
mod unexpected;

pub(crate) use posted::{CancelOutcome, MultiRecvState, Posted, PostedRecv};
pub(crate) use unexpected::{Unexpected, UnexpectedMessage};

use crate::operation::{MatchSpace, PeerId};

/// Largest number of ignore masks for which receives and messages have an index of their own.
const MAX_MASKS: usize = 6;

/// Source of a match [`Key`] that accepts messages of every peer.
const ANY: u32 = u32::MAX;

/// The key of an index: the tag without the ignored bits, and the source or [`ANY`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    space: MatchSpace,
    source: u32,
    tag: u64,
}

/// The values of a message that are compared with receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) space: MatchSpace,
    pub(crate) source: PeerId,
    pub(crate) tag: u64,
}

/// The source, tag and matching space of the messages that a receive, or a peek, accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MatchRequest {
    pub(crate) space: MatchSpace,
    pub(crate) source: Option<PeerId>,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
}

impl MatchRequest {
    const fn key(&self) -> Key {
        Key {
            space: self.space,
            source: match self.source {
                Some(peer) => peer.0,
                None => ANY,
            },
            tag: self.tag & !self.ignore,
        }
    }

    fn matches(&self, envelope: &Envelope) -> bool {
        self.space == envelope.space
            && (self.tag ^ envelope.tag) & !self.ignore == 0
            && self.source.is_none_or(|source| source == envelope.source)
    }
}

#[cfg(test)]
mod tests;
