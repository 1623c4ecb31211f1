//! Outbound operations that are queued, in flight or waiting for the peer.

use std::collections::HashSet;

use crate::access_groups::GroupTag;
use crate::base::{Psn, RegionId};
use crate::channel::ChannelId;
use crate::completion::{Completion, OpError, OpKind};
use crate::fences::OperationClasses;
use crate::fragments::Fragments;
use crate::memory::{Buf, Memory};
use crate::operation::{MatchSpace, PeerId, RemoteSeg, Visibility};
use crate::slab::{Key, Slab};
use crate::wire::{AmoOp, AmoType, ReturnCode};

/// Resource index in requests that access registered memory.
pub(crate) const RESOURCE_MEMORY: u16 = 0;
/// Resource index of tagged messages of collective operations. Other messages use 0.
pub(crate) const RESOURCE_COLLECTIVE: u16 = 2;
/// Resource index in requests that read the buffer of a rendezvous send.
pub(crate) const RESOURCE_RENDEZVOUS: u16 = 1;

/// The rendezvous send whose payload an answer to a read carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfferedPart {
    pub(crate) op: Key,
    /// Offset in the rendezvous message, in bytes, at which the answer ends.
    pub(crate) end: u64,
}

/// A part of the data that a peer's read fetches: its offset and the length of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadPart {
    pub(crate) offset: u32,
    /// Length of the whole read in bytes.
    pub(crate) total: u32,
}

/// The request or response that an outbound operation sends, with its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpWork {
    /// SEND or TAGGED_SEND with all payload in its own packets.
    Eager,
    /// A send like `Eager` with DC set: the receiver answers in `slot` after a receive has matched.
    Confirmed { slot: u16, delivered: bool },
    /// A send like `Eager` to a peer of another implementation that keeps the message until a receive
    /// matches (NO_RESPONSE). The peer's later response to its first packet, which had this PSN, ends it.
    Unmatched { matched: bool, psn: Psn },
    /// A send like `Eager` whose payload the receiver drops for want of room. It becomes a
    /// `Rendezvous` when no packet is in flight any more.
    Deferred,
    /// RENDEZVOUS_(T)SEND: only a header. The peer reads the payload under this nonce. `answers`
    /// counts the answers to its reads whose packets may still be sent.
    Rendezvous { nonce: u32, served: u64, ended: bool, answers: u32 },
    /// RMA WRITE to one range of the peer's memory.
    Write(RemoteSeg),
    /// READ of one remote range; `resource` selects registrations or rendezvous buffers.
    Read { remote: RemoteSeg, resource: u16, slot: u16, received: u64, owner: ReadOwner },
    /// ATOMIC on one remote range. Its operands are copied, into the header if they fit there, else
    /// into the payload.
    Update { remote: RemoteSeg, amo: AtomicFields },
    /// FETCHING_ATOMIC on one remote range, with operands like those of `Update`.
    Fetch { remote: RemoteSeg, amo: AtomicFields, slot: u16, received: u64 },
    /// RESPONSE_DATA for a peer's READ of a registered region or of a rendezvous send. If `cut` is
    /// set, the bytes may no longer be read, and the packets that the peer has not received carry
    /// this return code instead. `counts` says that the user wants the access reported.
    Response {
        read_id: u16,
        offered: Option<OfferedPart>,
        region: RegionId,
        counts: bool,
        /// The group of requests to which the peer's read belongs.
        group: GroupTag,
        cut: Option<ReturnCode>,
        /// The peer was outside the job when it sent the request that this operation answers.
        outside: bool,
        /// The offset of this answer in the data of the peer's read, and the length of all data.
        whole: ReadPart,
    },
    /// NO_OP that asks the peer for a sign of life, and whether it knows the operation that waits
    /// for it.
    Question { about: Option<Key>, subject: QuestionSubject },
    /// An RMA operation of several ranges, which completes with its last part.
    Group { left: u32, error: Option<OpError> },
}

/// The operation code and the data type code of an atomic operation on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicFields {
    pub(crate) op: AmoOp,
    pub(crate) data_type: AmoType,
}

impl OpWork {
    /// Returns the operation code and the data type code of an atomic operation; `None` for others.
    #[inline]
    pub(crate) const fn amo(&self) -> Option<AtomicFields> {
        match self {
            Self::Update { amo, .. } | Self::Fetch { amo, .. } => Some(*amo),
            _ => None,
        }
    }

    /// Returns whether the peer answers on the same context, beyond acknowledging.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Fetch { .. }
                | Self::Confirmed { .. }
                | Self::Rendezvous { .. }
        )
    }

    /// Returns the slot in which the operation waits for response data.
    pub(crate) const fn slot(&self) -> Option<u16> {
        match self {
            Self::Read { slot, .. } | Self::Fetch { slot, .. } | Self::Confirmed { slot, .. } => {
                Some(*slot)
            }
            _ => None,
        }
    }
}

/// The operation that a question to the peer is about, in three fields of its header; see
/// `outbound::questions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QuestionSubject {
    /// Kind of the operation, in the header field `resource_index`.
    pub(crate) kind: u16,
    /// Message id and slot of the operation, in the header field `buffer_offset`.
    pub(crate) number: u64,
    /// Memory key of a rendezvous, in the header field `match_bits`.
    pub(crate) key: u64,
}

/// Progress of asking the peer about an operation that only the peer can end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuestionState {
    /// No question was asked: the operation has not waited long enough.
    No,
    /// A question about the operation is due, because the operation has waited, or because the peer
    /// still knew it at the last question.
    Soon,
    /// A question about the operation was sent, and the peer has not answered it.
    Now,
}

/// The owner of the data that a READ request fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOwner {
    /// The user, who posted an RMA read.
    User,
    /// An inbound rendezvous message, whose payload the READ fetches.
    Message(Key),
    /// No owner: the read notifies the sender of a rendezvous that no more will be read.
    End {
        /// Reading the rendezvous message failed, so the sender must report an error.
        failed: bool,
    },
}

/// The owner of an operation, which is notified of its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpOwner {
    /// The engine itself: no completion is reported.
    Engine,
    /// An RMA operation of several ranges, of which this operation is a part, and the tag by which
    /// the target knows it.
    Group(Key, GroupTag),
    /// The user, who gets the completion.
    User(UserOp),
}

/// The values of a user's operation that its completion returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserOp {
    pub(crate) kind: OpKind,
    pub(crate) context: u64,
    pub(crate) visibility: Visibility,
    pub(crate) when: ReportTime,
}

impl UserOp {
    /// Returns the completion of the operation. `buf` is the address of its buffer.
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

/// The moment at which the user gets the completion of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReportTime {
    /// The user is notified when the operation has ended.
    AtEnd,
    /// The user is notified when the peer first answers anything, or at the end.
    AtContact,
    /// The user has been notified already.
    Reported,
}

/// The fields of the SES header that describe an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SesLabel {
    pub(crate) space: MatchSpace,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    /// Length of the operation in bytes, in the header field `request_length`.
    pub(crate) len: u64,
}

/// The bytes of an operation: lent by their owner, or copied by the engine.
#[derive(Debug, Default)]
pub(crate) struct OpBytes {
    pub(crate) buf: Buf,
    /// Offset in `buf` at which the operation begins (used by receives into a multi-receive
    /// buffer).
    pub(crate) offset: u64,
    /// Copy of the payload. If present, `buf` is not read any more.
    pub(crate) copied: Option<Vec<u8>>,
}

impl OpBytes {
    #[inline]
    fn copied_len(&self) -> u64 {
        self.copied.as_ref().map_or(0, |copied| copied.len() as u64)
    }
}

/// The part of an operation that was put into packets, and the packets in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TxProgress {
    /// Message id, assigned at the first packet. Until then the operation can move to another
    /// context.
    pub(crate) message_id: Option<u16>,
    /// Number of payload bytes that were put into packets.
    pub(crate) packed: u64,
    pub(crate) all_packed: bool,
    pub(crate) in_flight: u32,
}

/// An outbound operation of the user or of the engine.
#[derive(Debug)]
pub(crate) struct TxOp {
    pub(crate) work: OpWork,
    pub(crate) peer: PeerId,
    /// The channel on which the operation was queued; `None` while it is parked.
    pub(crate) context: Option<ChannelId>,
    pub(crate) label: SesLabel,
    pub(crate) bytes: OpBytes,
    pub(crate) progress: TxProgress,
    pub(crate) owner: OpOwner,
    /// Ordering classes of a user's operation, for the operations that must wait for it.
    pub(crate) classes: OperationClasses,
    /// The target refused a part. The error is reported when no packet is in flight any more.
    pub(crate) error: Option<OpError>,
    /// The operation has ended, but one of its packets may have to be retransmitted.
    pub(crate) over: bool,
    pub(crate) asked: QuestionState,
}

impl TxOp {
    /// Creates an operation of the engine itself, which has no payload and no user.
    pub(crate) const fn new_internal(work: OpWork, peer: PeerId) -> Self {
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

    /// Returns whether this is the last operation of its request.
    pub(crate) const fn ends_request(&self) -> bool {
        match self.work {
            OpWork::Response { whole: ReadPart { offset, total }, .. } => {
                offset as u64 + self.label.len >= total as u64
            }
            _ => true,
        }
    }

    /// Returns the number of payload bytes that the packets of the operation itself carry.
    #[inline]
    pub(crate) fn payload_len(&self) -> u64 {
        match self.work {
            OpWork::Response { cut: Some(_), .. } => self.progress.packed,
            OpWork::Eager
            | OpWork::Confirmed { .. }
            | OpWork::Deferred
            | OpWork::Unmatched { .. }
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

    /// Returns whether the operation should request its acknowledgement at once.
    #[inline]
    pub(crate) const fn should_request_ack(&self) -> bool {
        match self.work {
            // The peer's answer ends these operations, not the acknowledgement.
            OpWork::Rendezvous { .. } | OpWork::Read { .. } | OpWork::Fetch { .. } => false,
            // The peer has the data that it waits for, and an immediate acknowledgement would cost
            // it a system call before it continues. But a rendezvous sender waits for its message
            // to be read, a user may wait for the access count, and the loss of the end of a long
            // answer must be detected.
            OpWork::Response { offered: None, counts: false, .. } => self.label.len > SHORT_ANSWER,
            // One-sided programs wait for all their writes together, and for injected ones by a
            // counter.
            OpWork::Write(_) | OpWork::Update { .. } => true,
            _ => match self.owner {
                OpOwner::User(UserOp { when: ReportTime::AtEnd, visibility, .. }) => {
                    self.bytes.copied.is_none() || matches!(visibility, Visibility::Entry)
                }
                _ => self.bytes.copied.is_none(),
            },
        }
    }

    /// Returns whether the whole operation has arrived and only the peer's answer is missing.
    pub(crate) const fn is_owed(&self) -> bool {
        let sent = self.progress.all_packed && self.progress.in_flight == 0;
        sent && self.work.is_answered() && !self.over
    }

    /// Returns whether the operation is a message that has arrived and that no receive has matched.
    pub(crate) const fn is_unmatched(&self) -> bool {
        matches!(self.work, OpWork::Unmatched { matched: false, .. })
    }

    /// Returns whether a packet of the operation may still read user memory.
    #[inline]
    pub(crate) const fn lends(&self) -> bool {
        self.bytes.copied.is_none()
            && !self.over
            && !matches!(self.work, OpWork::Response { cut: Some(_), .. })
    }
}

/// Longest answer in bytes for which no acknowledgement is requested, because the acknowledgement,
/// a system call of 3 us, would take a considerable part of the time.
const SHORT_ANSWER: u64 = 16 << 10;

/// All outbound operations of an endpoint that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    slab: Slab<TxOp>,
    /// Buffers in which earlier operations had copies of their payload, kept for reuse.
    spare: Vec<Vec<u8>>,
    /// Total bytes of the payload copies that operations hold.
    copied: u64,
    pub(crate) fragments: Fragments,
    answers: Answers,
}

/// Largest number of unacknowledged answers to one peer: the number of slots in which the peer can
/// wait for them.
const MAX_ANSWERS: u32 = 1 << 16;
/// Largest number of unacknowledged answers to one peer outside the job, and to all such peers
/// together.
const MAX_ANSWERS_OUTSIDE: u32 = 1 << 12;
const MAX_ANSWERS_ALL_OUTSIDE: u32 = 1 << 15;

/// The number of answers that peers have not acknowledged. Each request of a peer makes one answer, of up to a KiB
/// where it fetches values.
#[derive(Debug, Default)]
struct Answers {
    /// Number of unacknowledged answers to each peer, indexed by peer.
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

/// Largest number of payload buffers that are kept for reuse.
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
    pub(crate) fn answer_counts(&self) -> (u64, u64) {
        (self.answers.to.iter().copied().map(u64::from).sum(), self.answers.outside.into())
    }

    /// Returns whether there is room for another answer to a peer; `outside` says that the peer is
    /// outside the job. Existing answers can always be sent, so there will be room again.
    #[inline]
    pub(crate) fn may_answer(&self, peer: PeerId, outside: bool) -> bool {
        let to = self.answers.to.get(peer.0 as usize).copied().unwrap_or(0);
        let most = if outside { MAX_ANSWERS_OUTSIDE } else { MAX_ANSWERS };
        to < most && !(outside && self.answers.outside >= MAX_ANSWERS_ALL_OUTSIDE)
    }

    /// Adds the record of a user's operation that is sent as several parts.
    pub(crate) fn add_group(
        &mut self,
        parts: usize,
        peer: PeerId,
        label: SesLabel,
        owner: OpOwner,
    ) -> Key {
        let left = u32::try_from(parts).unwrap_or(u32::MAX);
        let work = OpWork::Group { left, error: None };
        self.add(TxOp { label, owner, ..TxOp::new_internal(work, peer) })
    }

    /// Replaces the bytes of an operation by a copy, or by nothing.
    pub(crate) fn set_bytes(&mut self, key: Key, bytes: OpBytes) {
        if let Some(op) = self.slab.get_mut(key) {
            self.copied = self.copied.saturating_sub(op.bytes.copied_len()) + bytes.copied_len();
            op.bytes = bytes;
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&TxOp> {
        self.slab.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut TxOp> {
        self.slab.get_mut(key)
    }

    /// Returns the operation at an index of the table, whatever the generation of its key.
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

    /// Copies `len` bytes of `buf` from `offset` on into memory of the engine.
    #[inline]
    pub(crate) fn copy_payload<M: Memory>(
        &mut self,
        mem: &M,
        buf: &Buf,
        offset: u64,
        len: u64,
    ) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        // The length is at most that of the longest copy, so it fits.
        bytes.resize(len as usize, 0);
        buf.for_range(offset, len, |piece, position| {
            let from = position as usize;
            mem.read(piece, &mut bytes[from..from + piece.len as usize]);
        });
        bytes
    }

    /// Returns the total bytes of the payload copies that operations hold.
    #[inline]
    pub(crate) const fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns the number of outbound operations that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns whether any outbound operation satisfies `wanted`.
    pub(crate) fn any(&self, wanted: impl Fn(&TxOp) -> bool) -> bool {
        self.position_from(0, wanted).is_some()
    }

    /// Returns the index of an operation that `wanted` selects, if there is one. The search begins at index `from`.
    pub(crate) fn position_from(&self, from: u32, wanted: impl Fn(&TxOp) -> bool) -> Option<u32> {
        self.slab.position_from(from, wanted)
    }

    /// Returns the keys of the outbound operations that satisfy `wanted`.
    pub(crate) fn select(&self, wanted: impl Fn(&TxOp) -> bool) -> Vec<Key> {
        self.slab.iter().filter(|(_, op)| wanted(op)).map(|(key, _)| key).collect()
    }

    /// Returns the peers of all operations. A peer may occur several times.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slab.iter().map(|(_, op)| op.peer)
    }

    /// Returns the channels on which outbound operations are queued or in flight.
    pub(crate) fn contexts(&self) -> HashSet<ChannelId> {
        self.slab.iter().filter_map(|(_, op)| op.context).collect()
    }
}
