//! Outbound operations: what is queued, in flight or waiting for the peer.

use std::collections::HashSet;

use crate::api::{Completion, MatchSpace, OpError, OpKind, PeerId, RemoteSeg, Visibility};
use crate::base::RegionId;
use crate::channel::ChannelId;
use crate::fences::OperationClasses;
use crate::memory::{Buf, Memory};
use crate::outbound::Fragments;
use crate::slab::{Key, Slab};
use crate::step::Step;
use crate::wire::{AmoOp, AmoType, ReturnCode};

/// The engine's descriptor of a packet: which part of which operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) op: Key,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// The rendezvous send of which an answer carries a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfferedPart {
    pub(crate) op: Key,
    /// Where in the message the answer ends.
    pub(crate) end: u64,
}

/// The effect of an outbound operation on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpWork {
    /// SEND or TAGGED_SEND: all bytes follow.
    Eager,
    /// As `Eager`, with DC set: the receiver answers in `slot` once a receive has taken it.
    Confirmed { slot: u16, delivered: bool },
    /// As `Eager`, of which the receiver drops the bytes, because it has no room: when no packet is in flight
    /// any more, it becomes a `Rendezvous`.
    Deferred,
    /// RENDEZVOUS_(T)SEND: a header; the peer reads the bytes under this nonce. `answers` to it have
    /// packets that may still be sent.
    Rendezvous { nonce: u32, served: u64, ended: bool, answers: u32 },
    /// WRITE to one remote range.
    Write(RemoteSeg),
    /// READ of one remote range; `resource` selects registrations or rendezvous buffers.
    Read { remote: RemoteSeg, resource: u16, slot: u16, received: u64, owner: ReadOwner },
    /// ATOMIC on one remote range. Its operands are copied: in the payload, or, if they have room there, in the header.
    Update { remote: RemoteSeg, amo: AtomicFields },
    /// FETCHING_ATOMIC, likewise.
    Fetch { remote: RemoteSeg, amo: AtomicFields, slot: u16, received: u64 },
    /// RESPONSE_DATA for a peer's READ, of a registered region or of a rendezvous send. `cut`: those bytes
    /// are not ours to read any more; what the peer has not got yet it gets this answer to instead.
    /// The user `counts` it, if it wants to know.
    Response {
        read_id: u16,
        offered: Option<OfferedPart>,
        region: RegionId,
        counts: bool,
        cut: Option<ReturnCode>,
        /// The peer was outside the job when it sent the request that this operation answers.
        outside: bool,
    },
    /// NO_OP: are you there, and do you know of the operation that waits for you?
    Question { about: Option<Key>, subject: QuestionSubject },
    /// An RMA operation of several ranges: completes with its last part. `last` waits until the others have
    /// arrived.
    Group { left: u32, error: Option<OpError>, last: Option<Key> },
}

/// An atomic operation in the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicFields {
    pub(crate) op: AmoOp,
    pub(crate) data_type: AmoType,
}

impl OpWork {
    /// What it does, if it is an atomic.
    #[inline]
    pub(crate) const fn amo(&self) -> Option<AtomicFields> {
        match self {
            Self::Update { amo, .. } | Self::Fetch { amo, .. } => Some(*amo),
            _ => None,
        }
    }

    /// Whether the peer answers on the same context, beyond acknowledging.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Fetch { .. }
                | Self::Confirmed { .. }
                | Self::Rendezvous { .. }
        )
    }

    /// The slot in which it waits for response data.
    pub(crate) const fn slot(&self) -> Option<u16> {
        match self {
            Self::Read { slot, .. } | Self::Fetch { slot, .. } | Self::Confirmed { slot, .. } => {
                Some(*slot)
            }
            _ => None,
        }
    }
}

/// What a question names: three fields of its header, see `outbound::questions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QuestionSubject {
    /// `resource_index`.
    pub(crate) kind: u16,
    /// `buffer_offset`.
    pub(crate) number: u64,
    /// `match_bits`.
    pub(crate) key: u64,
}

/// Whether the peer was asked about an operation that only it can end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuestionState {
    /// It did not wait long enough.
    No,
    /// It did, or the peer knew of it when it was asked last.
    Soon,
    /// The question is under way.
    Now,
}

/// For whom a READ fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOwner {
    /// A user's RMA read.
    User,
    /// A rendezvous message being received.
    Message(Key),
    /// Nobody: it tells the sender of a rendezvous that no more will be read.
    End {
        /// ... because reading failed.
        failed: bool,
    },
}

/// The owner of an operation, which is notified of its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpOwner {
    /// The engine's own.
    Engine,
    /// Part of an RMA operation of several ranges.
    Group(Key),
    /// The user's.
    User(UserOp),
}

/// What the completion of a user's operation says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserOp {
    pub(crate) kind: OpKind,
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    pub(crate) when: ReportTime,
}

impl UserOp {
    /// What the user is told when it ends. `buf` is where its buffer begins.
    #[inline]
    pub(crate) fn completion(
        &self,
        peer: PeerId,
        label: &SesLabel,
        buf: u64,
        error: Option<OpError>,
    ) -> Completion {
        Completion {
            context: self.context,
            kind: self.kind,
            space: label.space,
            len: label.len,
            buf,
            data: None,
            tag: label.tag,
            peer: Some(peer),
            region: RegionId::LENT,
            visibility: self.visibility,
            released: false,
            status: error.map_or(Ok(()), Err),
        }
    }
}

/// The moment at which the user is notified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReportTime {
    /// At the operation's end.
    AtEnd,
    /// As soon as the peer has answered anything, or at the end.
    AtContact,
    /// It was.
    Told,
}

/// The fields of the SES header that describe an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SesLabel {
    pub(crate) space: MatchSpace,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    /// `request_length`.
    pub(crate) len: u64,
}

/// The bytes of an operation: lent by their owner, or copied.
#[derive(Debug, Default)]
pub(crate) struct OpBytes {
    pub(crate) buf: Buf,
    /// Where in `buf` the operation begins (receives into a multi-receive buffer).
    pub(crate) offset: u64,
    /// The payload; when there, `buf` is not looked at any more.
    pub(crate) copied: Option<Vec<u8>>,
}

impl OpBytes {
    #[inline]
    fn copied_len(&self) -> u64 {
        self.copied.as_ref().map_or(0, |copied| copied.len() as u64)
    }
}

/// The progress of the packets of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TxProgress {
    /// Given at the first packet; until then the operation can move to another context.
    pub(crate) message_id: Option<u16>,
    /// Payload bytes given to packets.
    pub(crate) packed: u64,
    pub(crate) all_packed: bool,
    pub(crate) in_flight: u32,
}

/// An outbound operation.
#[derive(Debug)]
pub(crate) struct TxOp {
    pub(crate) work: OpWork,
    pub(crate) peer: PeerId,
    /// The context it was queued on.
    pub(crate) context: Option<ChannelId>,
    pub(crate) label: SesLabel,
    pub(crate) bytes: OpBytes,
    pub(crate) progress: TxProgress,
    pub(crate) owner: OpOwner,
    /// What it does, if it is the user's, for the sake of those that wait for it.
    pub(crate) classes: OperationClasses,
    /// The target refused part of it; reported once no packet is in flight any more.
    pub(crate) error: Option<OpError>,
    /// Ended, but a packet of it may still have to be sent again.
    pub(crate) over: bool,
    pub(crate) asked: QuestionState,
}

impl TxOp {
    /// An operation of the engine itself, without payload.
    pub(crate) const fn internal(work: OpWork, peer: PeerId) -> Self {
        Self {
            work,
            peer,
            context: None,
            label: SesLabel { space: MatchSpace::Untagged, tag: 0, data: None, len: 0 },
            bytes: OpBytes { buf: Buf::Empty, offset: 0, copied: None },
            progress: TxProgress { message_id: None, packed: 0, all_packed: false, in_flight: 0 },
            owner: OpOwner::Engine,
            classes: OperationClasses::NONE,
            error: None,
            over: false,
            asked: QuestionState::No,
        }
    }

    /// Payload bytes that travel in this operation's own packets.
    #[inline]
    pub(crate) fn payload_len(&self) -> u64 {
        match self.work {
            OpWork::Response { cut: Some(_), .. } => self.progress.packed,
            OpWork::Eager
            | OpWork::Confirmed { .. }
            | OpWork::Deferred
            | OpWork::Write(_)
            | OpWork::Response { .. } => self.label.len,
            OpWork::Update { amo, .. } | OpWork::Fetch { amo, .. } if amo.op.is_compare_swap() => 0,
            OpWork::Update { .. } | OpWork::Fetch { .. } => self.bytes.copied_len(),
            OpWork::Rendezvous { .. }
            | OpWork::Read { .. }
            | OpWork::Question { .. }
            | OpWork::Group { .. } => 0,
        }
    }

    /// Whether somebody waits for the acknowledgement.
    #[inline]
    pub(crate) const fn wants_prompt_ack(&self) -> bool {
        match self.work {
            // What the peer sends of itself ends them.
            OpWork::Rendezvous { .. } | OpWork::Read { .. } | OpWork::Fetch { .. } => false,
            // The reader has what it waits for, and its acknowledgement would be a system call before it goes on. But a sender
            // waits for its message to be pulled, a user for what it counts, and the loss of a long answer's end to be found.
            OpWork::Response { offered: None, counts: false, .. } => self.label.len > SHORT_ANSWER,
            // One-sided programs wait for all their writes at once, injected ones by a counter.
            OpWork::Write(_) | OpWork::Update { .. } => true,
            _ => match self.owner {
                OpOwner::User(UserOp { when: ReportTime::AtEnd, visibility, .. }) => {
                    self.bytes.copied.is_none() || matches!(visibility, Visibility::Entry)
                }
                _ => self.bytes.copied.is_none(),
            },
        }
    }

    /// Whether all of it has arrived, and its peer owes what ends it.
    pub(crate) const fn is_owed(&self) -> bool {
        let sent = self.progress.all_packed && self.progress.in_flight == 0;
        sent && self.work.is_answered() && !self.over
    }

    /// Whether a packet of it may still read user memory.
    #[inline]
    pub(crate) const fn lends(&self) -> bool {
        self.bytes.copied.is_none()
            && !self.over
            && !matches!(self.work, OpWork::Response { cut: Some(_), .. })
    }
}

/// The longest answer whose acknowledgement, a system call of 3 us, is a good part of the time that it takes.
const SHORT_ANSWER: u64 = 16 << 10;

/// All outbound operations of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slab: Slab<TxOp>,
    /// Memory of copied payloads, used again.
    spare: Vec<Vec<u8>>,
    /// Bytes of payloads that are copied.
    copied: u64,
    pub(crate) fragments: Fragments,
    answers: Answers,
}

/// The most unacknowledged answers to one peer: as many as the peer has slots to wait for them in.
const MAX_ANSWERS: u32 = 1 << 16;
/// The most unacknowledged answers to one peer outside the job, and to all such peers together.
const MAX_ANSWERS_OUTSIDE: u32 = 1 << 12;
const MAX_ANSWERS_ALL_OUTSIDE: u32 = 1 << 15;

/// The number of answers that peers have not acknowledged. Each request of a peer makes one answer, of up to a KiB
/// where it fetches values.
#[derive(Debug, Default)]
struct Answers {
    /// Unacknowledged answers, indexed by peer.
    to: Vec<u32>,
    outside: u32,
}

impl Answers {
    #[inline]
    fn add(&mut self, peer: PeerId, outside: bool) {
        let at = peer.0 as usize;
        if self.to.len() <= at {
            self.to.resize(at + 1, 0);
        }
        self.to[at] += 1;
        self.outside += u32::from(outside);
    }

    #[inline]
    fn remove(&mut self, peer: PeerId, outside: bool) {
        if let Some(count) = self.to.get_mut(peer.0 as usize) {
            *count -= 1;
            self.outside -= u32::from(outside);
        }
    }
}

/// Copies whose memory is kept for others.
const SPARE: usize = 512;

impl Ops {
    #[inline]
    pub(crate) fn add(&mut self, op: TxOp) -> Key {
        self.copied += op.bytes.copied_len();
        if let OpWork::Response { outside, .. } = op.work {
            self.answers.add(op.peer, outside);
        }
        self.slab.add(op)
    }

    /// Returns the number of unacknowledged answers, and how many of them go to peers outside the job.
    pub(crate) fn answers(&self) -> (u64, u64) {
        (self.answers.to.iter().copied().map(u64::from).sum(), self.answers.outside.into())
    }

    /// Returns whether there is room for another answer to a peer; `outside` says that the peer is outside the job.
    /// Existing answers leave whatever else waits, so room always comes.
    #[inline]
    pub(crate) fn may_answer(&self, peer: PeerId, outside: bool) -> bool {
        let to = self.answers.to.get(peer.0 as usize).copied().unwrap_or(0);
        let most = if outside { MAX_ANSWERS_OUTSIDE } else { MAX_ANSWERS };
        to < most && !(outside && self.answers.outside >= MAX_ANSWERS_ALL_OUTSIDE)
    }

    /// Adds an operation of several parts.
    pub(crate) fn add_group(
        &mut self,
        parts: usize,
        peer: PeerId,
        label: SesLabel,
        owner: OpOwner,
    ) -> Key {
        let left = u32::try_from(parts).unwrap_or(u32::MAX);
        let work = OpWork::Group { left, error: None, last: None };
        self.add(TxOp { label, owner, ..TxOp::internal(work, peer) })
    }

    /// Gives an operation other bytes: a copy of them, or none.
    pub(crate) fn set_bytes(&mut self, key: Key, bytes: OpBytes) {
        if let Some(op) = self.slab.get_mut(key) {
            self.copied = self.copied.saturating_sub(op.bytes.copied_len()) + bytes.copied_len();
            op.bytes = bytes;
        }
    }

    /// Queues an operation of the engine itself on a context.
    pub(crate) fn start(&mut self, step: &mut Step<'_>, id: ChannelId, mut op: TxOp) -> Key {
        op.context = Some(id);
        if op.work.is_answered() {
            step.watch();
        }
        let key = self.add(op);
        step.contexts.enqueue(id, key);
        key
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&TxOp> {
        self.slab.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut TxOp> {
        self.slab.get_mut(key)
    }

    /// The operation in a place, whoever its tenant is.
    pub(crate) fn at(&self, index: u32) -> Option<(Key, &TxOp)> {
        self.slab.at(index)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(op) = self.slab.remove(key) else { return };
        if !self.fragments.is_empty() {
            self.fragments.forget(key);
        }
        self.copied = self.copied.saturating_sub(op.bytes.copied_len());
        if let Some(copied) = op.bytes.copied
            && self.spare.len() < SPARE
        {
            self.spare.push(copied);
        }
        let OpWork::Response { offered, outside, .. } = op.work else { return };
        self.answers.remove(op.peer, outside);
        let Some(offered) = offered else { return };
        if let Some(OpWork::Rendezvous { answers, .. }) =
            self.slab.get_mut(offered.op).map(|op| &mut op.work)
        {
            *answers = answers.saturating_sub(1);
        }
    }

    /// Copies `len` bytes of `buf` from `offset` on into memory of our own.
    #[inline]
    pub(crate) fn copy<M: Memory>(&mut self, mem: &M, buf: &Buf, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        // At most what may be copied.
        bytes.resize(len as usize, 0);
        buf.for_range(offset, len, |piece, position| {
            let from = position as usize;
            mem.read(piece, &mut bytes[from..from + piece.len as usize]);
        });
        bytes
    }

    /// Bytes of payloads that are copied.
    #[inline]
    pub(crate) const fn copied(&self) -> u64 {
        self.copied
    }

    /// Operations alive.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether `wanted` says yes to any.
    pub(crate) fn any(&self, wanted: impl Fn(&TxOp) -> bool) -> bool {
        self.slab.iter().any(|(_, op)| wanted(op))
    }

    /// Keys of the operations that `wanted` says yes to.
    pub(crate) fn select(&self, wanted: impl Fn(&TxOp) -> bool) -> Vec<Key> {
        self.slab.iter().filter(|(_, op)| wanted(op)).map(|(key, _)| key).collect()
    }

    /// Peers of which operations are open.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slab.iter().map(|(_, op)| op.peer)
    }

    /// Contexts on which operations are open.
    pub(crate) fn contexts(&self) -> HashSet<ChannelId> {
        self.slab.iter().filter_map(|(_, op)| op.context).collect()
    }
}
