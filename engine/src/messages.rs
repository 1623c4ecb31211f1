//! Inbound two-sided messages that are not finished: arriving, early, unexpected, claimed or being
//! read by rendezvous.

use crate::base::{RegionId, Time};
use crate::channel::ChannelId;
use crate::completion::{Completion, OpError, OpKind};
use crate::matching::Envelope;
use crate::memory::{Buf, Memory, Payload};
use crate::operation::{PeerId, Visibility};

/// A packet's payload and its place in the message that the packet belongs to.
#[derive(Clone, Copy)]
pub(crate) struct MessagePart<'a> {
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) first: bool,
    /// The packet is a rendezvous offer whose message can be copied as a whole now
    /// ([`crate::Memory::fetch`]).
    pub(crate) fetchable: bool,
}

/// The place where the bytes of an inbound message are written.
#[derive(Debug)]
pub(crate) enum MessageBuffer {
    /// No buffer yet: only the message's header is known, and no payload came with it.
    None,
    /// A buffer of the engine that keeps the message, because no receive has matched yet.
    Stash(Vec<u8>),
    /// The user's buffer of the receive that the message matched.
    User(Target),
    /// No buffer: the user discarded the message.
    Discard,
}

/// The receive that an inbound message matched, with its buffer.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) buf: Buf,
    /// Offset in `buf`, in bytes, at which the message begins.
    pub(crate) at: u64,
    /// Number of bytes of the message for which the receive's buffer has room.
    pub(crate) room: u64,
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    /// Slot of the multi-receive buffer that contains the message, if any.
    pub(crate) multi: Option<u32>,
}

impl Target {
    /// Writes bytes that belong at `offset` of the message, as far as they fit.
    #[inline]
    pub(crate) fn write<M: Memory>(&self, mem: &mut M, offset: u64, bytes: &[u8]) {
        let fits = self.room.saturating_sub(offset).min(bytes.len() as u64);
        self.buf.for_range(self.at + offset, fits, |piece, position| {
            let from = position as usize;
            mem.write(piece, &bytes[from..from + piece.len as usize]);
        });
    }

    /// Writes consecutive payloads that belong from `offset` of the message on, `len` bytes in all, as
    /// far as they fit.
    #[inline]
    pub(crate) fn write_all<'a, M: Memory>(
        &self,
        mem: &mut M,
        (mut offset, len): (u64, u64),
        payloads: impl Iterator<Item = &'a [u8]>,
    ) {
        let fits = len > 0 && offset + len <= self.room;
        if let (Buf::One(slice), true) = (&self.buf, fits) {
            let mut at = self.at + offset;
            for payload in payloads {
                mem.write(slice.part(at, payload.len() as u64), payload);
                at += payload.len() as u64;
            }
            return;
        }
        for payload in payloads {
            self.write(mem, offset, payload);
            offset += payload.len() as u64;
        }
    }

    /// Copies a whole message to its place, as far as it fits. Returns whether its payload could be
    /// fetched.
    #[inline]
    pub(crate) fn place<M: Memory>(&self, mem: &mut M, payload: Payload<'_>) -> bool {
        let mut had = true;
        self.buf.for_range(self.at, payload.len().min(self.room), |piece, position| {
            had &= payload.place(mem, piece, position);
        });
        had
    }

    /// Fills in a message's completion: the receive, the buffer, and the status.
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

/// The values of a rendezvous header by which the receiver reads the message from the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) resource: u16,
}

/// Progress of reading a rendezvous message from its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pull {
    /// The message is not a rendezvous, or arrives completely in its own packets.
    No,
    /// The sender has offered the message and waits for this endpoint to read it.
    Offered(Offer),
    /// The bytes for which the receive has room are being read from the sender.
    Reading(Offer),
    /// Reading has ended: no more of the message is read.
    Done,
}

/// The length of an inbound message, and the number of its bytes that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageExtent {
    /// Length of the whole message in bytes.
    pub(crate) total: u64,
    /// Bytes that arrive in the message's own packets: all, or the eager part of a rendezvous.
    pub(crate) eager: u64,
    pub(crate) received: u64,
    /// The first packet has arrived, so the envelope is complete.
    pub(crate) started: bool,
    /// There was no room for the payload, so the receiver drops it, and the sender will offer the
    /// message again.
    pub(crate) deferred: bool,
}

impl MessageExtent {
    /// Returns whether all of the message's own packets have arrived.
    #[inline]
    pub(crate) const fn has_arrived(&self) -> bool {
        self.started && self.received == self.eager && !self.deferred
    }
}

/// The properties of an inbound message that its packets carry: id, envelope, lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageHeader {
    /// The channel on which the message arrives.
    pub(crate) context: ChannelId,
    /// The message id, which numbers the messages on that channel.
    pub(crate) id: u16,
    pub(crate) envelope: Envelope,
    pub(crate) data: Option<u64>,
    pub(crate) extent: MessageExtent,
    pub(crate) pull: Pull,
    /// Slot in which the sender waits for the confirmation that a receive has matched (DC).
    pub(crate) confirm: Option<u16>,
}

impl MessageHeader {
    pub(crate) const fn peer(&self) -> PeerId {
        self.envelope.source
    }

    /// Returns a completion with the values of the message itself, independent of a receive.
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

    /// Creates the record of an inbound message with this header, of which packets are still
    /// missing.
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
    /// Counts a packet of `len` bytes. The first packet of a message also supplies its remote CQ
    /// data, if any.
    #[inline]
    pub(crate) fn record_packet(&mut self, now: Time, len: u64, first: Option<Option<u64>>) {
        self.head.extent.received += len;
        self.touched = now;
        if let Some(data) = first {
            self.head.extent.started = true;
            self.head.data = data;
        }
    }
}

/// The account to which the header of a message is charged.
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
    /// The ring bytes that the message's record took, if the budget had no room for its header, or
    /// for its bytes.
    pub(crate) beyond_headers: u64,
    pub(crate) beyond_bytes: u64,
    /// The peer was outside the job when the message arrived.
    pub(crate) outside: bool,
}

impl Charge {
    /// The charge of a message that uses none of the budget for unmatched messages.
    pub(crate) const NONE: Self = Self {
        bytes: 0,
        header: HeaderKind::None,
        beyond_headers: 0,
        beyond_bytes: 0,
        outside: false,
    };

    /// Returns whether the message uses none of the budget for unmatched messages.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self.header, HeaderKind::None) && self.bytes == 0
    }
}

/// An inbound message that is not finished.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) head: MessageHeader,
    pub(crate) place: MessageBuffer,
    /// Time at which the last packet of the message arrived.
    pub(crate) touched: Time,
    /// The share of the budget for unmatched messages that this message takes.
    pub(crate) charge: Charge,
    /// The user's context with which the message was claimed, if it is claimed.
    pub(crate) claimed: Option<u64>,
    /// Error for the receive that matches the message, because its sender is gone.
    pub(crate) broken: Option<OpError>,
}
