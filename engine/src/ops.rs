//! Outbound operations: what is queued, in flight or waiting for the peer.

use crate::api::{Class, Completion, Notify, OpError, OpKind, PeerId, RemoteSeg};
use crate::memory::Buf;

/// What an outbound operation does on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// SEND or TAGGED_SEND: all bytes follow.
    Eager,
    /// As `Eager`, with DC set: the receiver answers in `slot` once a receive has taken it.
    Confirmed { slot: u16, delivered: bool },
    /// RENDEZVOUS_(T)SEND: a header; the peer reads the bytes under this nonce.
    Rendezvous { nonce: u32, served: u64, ended: bool },
    /// WRITE to one remote range.
    Write(RemoteSeg),
    /// READ of one remote range; `resource` selects registrations or rendezvous buffers.
    Read { remote: RemoteSeg, resource: u16, slot: u16, received: u64, owner: ReadOwner },
    /// RESPONSE_DATA for a peer's READ. `source` is the rendezvous send that is being read, `end`
    /// where in it the read ended.
    Response { read_id: u16, source: Option<(u32, u32)>, end: u64 },
    /// NO_OP: are you there?
    Hello,
    /// An RMA operation of several ranges: completes with its last part.
    Group { left: u32, error: Option<OpError> },
}

impl Work {
    /// Whether the peer answers on the same context, beyond acknowledging.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Confirmed { .. } | Self::Rendezvous { .. })
    }

    /// The slot in which it waits for response data.
    pub(crate) const fn slot(&self) -> Option<u16> {
        match self {
            Self::Read { slot, .. } | Self::Confirmed { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}

/// For whom a READ fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOwner {
    /// A user's RMA read.
    User,
    /// A rendezvous message being received, by index.
    Message(u32),
    /// Nobody: it tells the sender of a rendezvous that no more will be read.
    End {
        /// ... because reading failed.
        failed: bool,
    },
}

/// An outbound operation.
#[derive(Debug)]
pub(crate) struct TxOp {
    pub(crate) work: Work,
    pub(crate) peer: PeerId,
    /// The context it was queued on, by index.
    pub(crate) pdc: u32,
    pub(crate) class: Class,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) buf: Buf,
    /// Where in `buf` the operation begins (receives into a multi-receive buffer).
    pub(crate) buf_offset: u64,
    /// Injected payload; its capacity is reused by the slot's next tenant.
    pub(crate) inline: Vec<u8>,
    /// `request_length`.
    pub(crate) len: u64,
    /// Given at the first packet; until then the operation can move to another context.
    pub(crate) message_id: Option<u16>,
    /// Payload bytes already given to packets.
    pub(crate) packed: u64,
    pub(crate) packed_all: bool,
    pub(crate) in_flight: u32,
    pub(crate) kind: OpKind,
    pub(crate) context: u64,
    pub(crate) notify: Notify,
    /// No completion at all: an operation of the engine itself.
    pub(crate) silent: bool,
    /// May be copied and completed once its peer has answered.
    pub(crate) may_copy: bool,
    /// Completed towards the user when it was copied; only a failure is still reported.
    pub(crate) early: bool,
    /// The payload is in `inline`.
    pub(crate) injected: bool,
    /// The RMA operation of which this is a part.
    pub(crate) parent: Option<u32>,
    /// The target refused part of it; reported once no packet is in flight any more.
    pub(crate) error: Option<OpError>,
    /// Completed, but a packet of it may still have to be sent again.
    pub(crate) over: bool,
    alive: bool,
}

impl TxOp {
    /// Payload bytes that travel in this operation's own packets.
    pub(crate) const fn payload_len(&self) -> u64 {
        match self.work {
            Work::Eager | Work::Confirmed { .. } | Work::Write(_) | Work::Response { .. } => {
                self.len
            }
            Work::Rendezvous { .. } | Work::Read { .. } | Work::Hello | Work::Group { .. } => 0,
        }
    }

    /// What the user is told when it ends.
    pub(crate) fn completion(&self, error: Option<OpError>) -> Completion {
        Completion {
            context: self.context,
            kind: self.kind,
            class: self.class,
            len: self.len,
            buf: self.buf.base(),
            data: None,
            tag: self.tag,
            peer: Some(self.peer),
            notify: self.notify,
            released: false,
            status: error.map_or(Ok(()), Err),
        }
    }

    /// Whether somebody waits for the acknowledgement.
    pub(crate) fn wants_prompt_ack(&self) -> bool {
        !self.injected && !matches!(self.work, Work::Rendezvous { .. } | Work::Read { .. })
    }
}

/// All outbound operations of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slots: Vec<TxOp>,
    free: Vec<u32>,
}

/// The fields of a new operation that differ from "nothing".
#[derive(Debug)]
pub(crate) struct NewOp {
    pub(crate) work: Work,
    pub(crate) peer: PeerId,
    pub(crate) class: Class,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) buf: Buf,
    pub(crate) len: u64,
    pub(crate) kind: OpKind,
    pub(crate) context: u64,
    pub(crate) notify: Notify,
}

impl NewOp {
    /// An operation of the engine itself.
    pub(crate) fn internal(work: Work, peer: PeerId) -> Self {
        Self {
            work,
            peer,
            class: Class::Msg,
            tag: 0,
            data: None,
            buf: Buf::Empty,
            len: 0,
            kind: OpKind::Send,
            context: 0,
            notify: Notify::Count,
        }
    }
}

impl Ops {
    pub(crate) fn add(&mut self, new: NewOp) -> u32 {
        let ix = self.free.pop();
        let inline = match ix {
            Some(ix) => {
                let old = &mut self.slots[ix as usize];
                core::mem::take(&mut old.inline)
            }
            None => Vec::new(),
        };
        let op = TxOp {
            work: new.work,
            peer: new.peer,
            pdc: u32::MAX,
            class: new.class,
            tag: new.tag,
            data: new.data,
            buf: new.buf,
            buf_offset: 0,
            inline,
            len: new.len,
            message_id: None,
            packed: 0,
            packed_all: false,
            in_flight: 0,
            kind: new.kind,
            context: new.context,
            notify: new.notify,
            silent: false,
            may_copy: false,
            early: false,
            injected: false,
            parent: None,
            error: None,
            over: false,
            alive: true,
        };
        if let Some(ix) = ix {
            self.slots[ix as usize] = op;
            ix
        } else {
            self.slots.push(op);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 operations")
        }
    }

    pub(crate) fn get(&self, ix: u32) -> Option<&TxOp> {
        self.slots.get(ix as usize).filter(|op| op.alive)
    }

    pub(crate) fn get_mut(&mut self, ix: u32) -> Option<&mut TxOp> {
        self.slots.get_mut(ix as usize).filter(|op| op.alive)
    }

    pub(crate) fn remove(&mut self, ix: u32) {
        if let Some(op) = self.get_mut(ix) {
            op.alive = false;
            op.inline.clear();
            op.buf = Buf::Empty;
            self.free.push(ix);
        }
    }

    /// Operations alive.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Indices of the living operations.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().zip(0u32..).filter(|(op, _)| op.alive).map(|(_, ix)| ix)
    }
}
