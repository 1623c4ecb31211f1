//! Inbound two-sided messages that are not finished: arriving, early, unexpected, claimed or being
//! pulled by rendezvous.

use crate::api::{Completion, OpError, OpKind, PeerId, Visibility};
use crate::base::{RegionId, Time};
use crate::channel::ChannelId;
use crate::matching::Envelope;
use crate::memory::{Buf, Memory, Payload};

/// The destination of the bytes of a message.
#[derive(Debug)]
pub(crate) enum MessageBuffer {
    /// Nowhere yet: only its header is known, and no byte came with it.
    None,
    /// No receive has matched yet: the engine keeps them.
    Stash(Vec<u8>),
    /// A receive has matched.
    User(Target),
    /// The user discarded the message.
    Discard,
}

/// The receive that a message matched.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) buf: Buf,
    /// Where in `buf` the message begins.
    pub(crate) at: u64,
    /// Bytes that fit.
    pub(crate) room: u64,
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    /// The multi-receive buffer it is in.
    pub(crate) multi: Option<u32>,
}

impl Target {
    /// Writes what fits of bytes that belong at `offset` of the message.
    #[inline]
    pub(crate) fn write<M: Memory>(&self, mem: &mut M, offset: u64, bytes: &[u8]) {
        let fits = self.room.saturating_sub(offset).min(bytes.len() as u64);
        self.buf.for_range(self.at + offset, fits, |piece, position| {
            let from = position as usize;
            mem.write(piece, &bytes[from..from + piece.len as usize]);
        });
    }

    /// Puts what fits of a whole message in its place. Whether it could be had.
    #[inline]
    pub(crate) fn place<M: Memory>(&self, mem: &mut M, payload: Payload<'_>) -> bool {
        let mut had = true;
        self.buf.for_range(self.at, payload.len().min(self.room), |piece, position| {
            had &= payload.place(mem, piece, position);
        });
        had
    }

    /// Says in a message's completion where it went and how that ended.
    #[inline]
    pub(crate) fn describe(
        &self,
        completion: &mut Completion,
        total: u64,
        broken: Option<OpError>,
    ) {
        completion.context = self.context;
        completion.visibility = self.visibility;
        completion.len = total.min(self.room);
        self.buf.for_range(self.at, 1, |piece, _| completion.buf = piece.base);
        completion.status = match broken {
            Some(error) => Err(error),
            None if total > self.room => Err(OpError::Truncated { excess: total - self.room }),
            None => Ok(()),
        };
    }
}

/// What the sender's rendezvous header says about fetching the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) resource: u16,
}

/// Progress of pulling a rendezvous message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pull {
    /// Everything comes by itself.
    No,
    /// The sender waits for a read.
    Offered(Offer),
    /// The bytes the receive has room for are being read.
    Reading(Offer),
    /// Done.
    Done,
}

/// The length of a message, and how much of it has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageExtent {
    /// Length of the whole message.
    pub(crate) total: u64,
    /// Bytes that come in the sender's own packets (all, or the eager part of a rendezvous).
    pub(crate) eager: u64,
    pub(crate) received: u64,
    /// The first packet has come, so that the envelope is complete.
    pub(crate) started: bool,
    /// There was no room for its bytes: they are dropped, and the sender will offer them.
    pub(crate) deferred: bool,
}

impl MessageExtent {
    /// All packets of its own have come.
    #[inline]
    pub(crate) const fn arrived(&self) -> bool {
        self.started && self.received == self.eager && !self.deferred
    }
}

/// The fields about a message that its packets carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHeader {
    /// The context it comes on ...
    pub(crate) context: ChannelId,
    /// ... and its number there.
    pub(crate) id: u16,
    pub(crate) envelope: Envelope,
    pub(crate) data: Option<u64>,
    pub(crate) extent: MessageExtent,
    pub(crate) pull: Pull,
    /// The sender waits for word, in this slot, that a receive has taken it (DC).
    pub(crate) confirm: Option<u16>,
}

impl MessageHeader {
    pub(crate) const fn peer(&self) -> PeerId {
        self.envelope.source
    }

    /// What a completion says about the message, wherever it is.
    #[inline]
    pub(crate) const fn completion(&self) -> Completion {
        Completion {
            region: RegionId::LENT,
            context: 0,
            kind: OpKind::Recv,
            space: self.envelope.space,
            len: self.extent.total,
            buf: 0,
            data: self.data,
            tag: self.envelope.tag,
            peer: Some(self.peer()),
            visibility: Visibility::Entry,
            released: false,
            status: Ok(()),
        }
    }

    /// A message that is not finished.
    pub(crate) const fn message(self, now: Time, place: MessageBuffer) -> Message {
        Message {
            head: self,
            place,
            touched: now,
            charge: Charge::NONE,
            claimed: None,
            broken: None,
        }
    }
}

impl Message {
    /// Counts a packet of `len` bytes; the first one brings the message's data, if it has any.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, len: u64, first: Option<Option<u64>>) {
        self.head.extent.received += len;
        self.touched = now;
        if let Some(data) = first {
            self.head.extent.started = true;
            self.head.data = data;
        }
    }
}

/// The kind of budget that the header of a message is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum HeaderKind {
    /// The header is not charged, because a receive has taken the message.
    #[default]
    None,
    /// The header is charged as that of a message that arrived before its turn.
    Early,
    /// The header is charged as that of a message that waits for a receive.
    Waiting,
}

/// The share of the budget for unmatched messages that a message takes (`inbox/budget.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) bytes: u64,
    pub(crate) header: HeaderKind,
    /// The ring bytes that the message's record took, if there was no room for its header, or for its bytes.
    pub(crate) beyond_headers: u64,
    pub(crate) beyond_bytes: u64,
    /// The peer was outside the job when the message arrived.
    pub(crate) outside: bool,
}

impl Charge {
    /// A charge of nothing.
    pub(crate) const NONE: Self = Self {
        bytes: 0,
        header: HeaderKind::None,
        beyond_headers: 0,
        beyond_bytes: 0,
        outside: false,
    };

    /// Returns whether nothing is charged.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self.header, HeaderKind::None) && self.bytes == 0
    }
}

/// An inbound message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) head: MessageHeader,
    pub(crate) place: MessageBuffer,
    /// When a packet of it came last.
    pub(crate) touched: Time,
    /// The share of the budget for unmatched messages that this message takes.
    pub(crate) charge: Charge,
    /// The user's context that claimed it.
    pub(crate) claimed: Option<u64>,
    /// Its sender is gone; whoever matches it gets this error.
    pub(crate) broken: Option<OpError>,
}
