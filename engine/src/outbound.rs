//! The sending half of the engine: the life of user operations, engine operations and answers to
//! peers.

mod acks;
mod atomic;
mod ends;
mod fragments;
mod group_numbers;
mod no_match;
mod packet;
mod questions;
mod records;
mod runs;
mod short;
mod telemetry;
mod train;
mod transmit;
mod unmatched;

use std::collections::VecDeque;

use crate::access_groups::GroupTag;
use crate::base::{RegionId, SecretRng};
use crate::channel::ChannelId;
use crate::completion::{OpError, OpKind};
use crate::fences::{FenceRequest, Fences, OperationClasses, Order};
use crate::holdings::Holdings;
use crate::memory::{Buf, Memory};
use crate::operation::{Action, MatchSpace, Operation, PeerId, RemoteIov, RemoteSeg, SubmitError};
use crate::ops::{
    OfferedPart, OpBytes, OpOwner, OpWork, Ops, RESOURCE_MEMORY, ReadOwner, ReadPart, ReportTime,
    SesLabel, TxOp, UserOp,
};
use crate::policy::{self, CompletionTime, Copy, OpClass, OpSize, Plan, PolicyInput, Protocol};
use crate::slab::Key;
use crate::step::Step;
use group_numbers::GroupNumbers;
use no_match::RefusedMessages;
use questions::QuestionQueue;
use unmatched::UnmatchedMessages;

pub(crate) use ends::drop_untaken;
pub(crate) use packet::emit_control;
pub(crate) use questions::PeerQuestion;
pub(crate) use records::{find_unacknowledged, transmit_records};
pub(crate) use short::report_lost_short;
pub(crate) use telemetry::{prepend_bytes, push_echo};
pub(crate) use transmit::{push_control, push_whole};

/// The end of the read of a rendezvous message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullEnd {
    pub(crate) message: Key,
    pub(crate) error: Option<OpError>,
}

/// The answer to a READ.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) read_id: u16,
    pub(crate) bytes: Buf,
    /// Copy of the bytes, if the message was copied.
    pub(crate) copied: Option<Vec<u8>>,
    pub(crate) len: u64,
    pub(crate) region: RegionId,
    pub(crate) offered: Option<OfferedPart>,
    /// The user wants to be notified when the answer has arrived.
    pub(crate) counts: bool,
    /// The operation to which the read belongs.
    pub(crate) group: GroupTag,
    /// The range of the read that these bytes cover; `None` if they are the whole read.
    pub(crate) part: Option<ReadPart>,
}

impl Answer {
    /// Creates the confirmation for a sender that waits in this slot for a receive to take its
    /// message: an answer without payload.
    pub(crate) const fn confirmation(slot: u16) -> Self {
        let (bytes, region) = (Buf::Empty, RegionId::LENT);
        Self {
            read_id: slot,
            bytes,
            copied: None,
            len: 0,
            region,
            offered: None,
            counts: false,
            group: GroupTag::NONE,
            part: None,
        }
    }
}

/// A user operation, or a part of one, without its bytes.
#[derive(Clone, Copy)]
struct OpDraft {
    work: OpWork,
    peer: PeerId,
    label: SesLabel,
    owner: OpOwner,
    plan: Plan,
    turn: FenceRequest,
}

/// The sending half of an endpoint.
#[derive(Debug)]
pub(crate) struct Outbound {
    ops: Ops,
    /// Ended reads of rendezvous messages, for the receiving half.
    pull_ends: VecDeque<PullEnd>,
    /// Number of user operations that have not ended.
    outstanding: u32,
    /// Generator of the nonces in keys of rendezvous sends.
    nonces: SecretRng,
    questions: QuestionQueue,
    fences: Fences,
    refused: RefusedMessages,
    unmatched: UnmatchedMessages,
    group_numbers: GroupNumbers,
}

impl Outbound {
    pub(crate) fn new(nonces: SecretRng, order: Order) -> Self {
        Self {
            ops: Ops::default(),
            pull_ends: VecDeque::new(),
            outstanding: 0,
            nonces,
            questions: QuestionQueue::default(),
            fences: Fences::new(order),
            refused: RefusedMessages::default(),
            unmatched: UnmatchedMessages::default(),
            group_numbers: GroupNumbers::default(),
        }
    }

    /// Accepts an operation of the user.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing has changed then.
    pub(crate) fn submit<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        mut op: Operation,
    ) -> Result<(), SubmitError> {
        if let Err(error) = op.check() {
            // Other implementations know no groups of requests.
            if error != SubmitError::TooLong || step.config.wire.is_some() {
                return Err(error);
            }
            op.split_long()?;
        }
        if step.config.wire.is_some() && !is_on_foreign_wire(&op.action) {
            return Err(SubmitError::UnsupportedByPeer);
        }
        let len = op.buf.len();
        let kind = match &op.action {
            Action::Message { .. } => OpClass::Message,
            Action::Write(_) => OpClass::Write,
            Action::Read(_) => OpClass::Read,
            Action::Atomic(atomic) if atomic.result.is_some() => OpClass::Fetch,
            Action::Atomic(_) => OpClass::Update,
        };
        let plan = plan_operation(step, self.ops.copied(), &op, kind)?;
        if self.outstanding >= step.config.max_outstanding {
            return Err(SubmitError::Again);
        }
        if op.action.ranges() > 1 && !self.group_numbers.has_room(op.peer, &self.ops) {
            return Err(SubmitError::Again);
        }
        let id = step.context_to(op.peer).ok_or(SubmitError::Again)?;
        match op.action {
            Action::Message { space, tag } => {
                let work = match plan.protocol {
                    Protocol::Rendezvous => {
                        step.report.counters.tx_rendezvous += 1;
                        OpWork::Rendezvous {
                            nonce: self.nonces.next_u32(),
                            served: 0,
                            ended: false,
                            answers: 0,
                        }
                    }
                    Protocol::Eager | Protocol::Confirmed => {
                        match plan.copy {
                            Copy::Call => step.report.counters.tx_inline += 1,
                            _ => step.report.counters.tx_eager += 1,
                        }
                        if plan.protocol == Protocol::Eager {
                            OpWork::Eager
                        } else {
                            OpWork::Confirmed { slot: 0, delivered: false }
                        }
                    }
                };
                let label = SesLabel { space, tag, data: op.data, len };
                let owner = op_owner(OpKind::Send, &op, plan);
                let turn =
                    self.fences.order_constraints(id, OperationClasses::SEND, op.options.fence);
                self.start(
                    step,
                    mem,
                    id,
                    op.buf,
                    OpDraft { work, peer: op.peer, label, owner, plan, turn },
                );
            }
            Action::Write(ref remote) => {
                step.report.counters.tx_writes += 1;
                self.submit_rma(step, mem, id, &op, remote, OpKind::Write, plan);
            }
            Action::Read(ref remote) => {
                step.report.counters.tx_reads += 1;
                self.submit_rma(step, mem, id, &op, remote, OpKind::Read, plan);
            }
            Action::Atomic(ref atomic) => {
                step.report.counters.tx_atomics += 1;
                self.submit_atomic(step, mem, id, &op, atomic, plan);
            }
        }
        Ok(())
    }

    /// Starts a write or a read. Each of several ranges becomes a request of its own, in a group
    /// that ends with the last of them.
    #[allow(clippy::too_many_arguments)] // one operation, in its parts
    fn submit_rma<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        id: ChannelId,
        op: &Operation,
        remote: &RemoteIov,
        kind: OpKind,
        plan: Plan,
    ) {
        let work = |remote: RemoteSeg| match kind {
            OpKind::Read => OpWork::Read {
                remote,
                resource: RESOURCE_MEMORY,
                slot: 0,
                received: 0,
                owner: ReadOwner::User,
            },
            _ => OpWork::Write(remote),
        };
        let classes =
            if kind == OpKind::Read { OperationClasses::READ } else { OperationClasses::WRITE };
        let mut turn = self.fences.order_constraints(id, classes, op.options.fence);
        let peer = op.peer;
        let label = |len, data| SesLabel { space: MatchSpace::Untagged, tag: 0, data, len };
        let owner = op_owner(kind, op, plan);
        let parts = match (remote, &step.config.wire) {
            (RemoteIov::One(seg), Some(wire)) if kind == OpKind::Read => {
                split_read(*seg, wire.payload.into())
            }
            (RemoteIov::Many(segs), Some(wire)) if kind == OpKind::Read => {
                let parts = segs.iter().flat_map(|seg| seg.parts(wire.payload.into()));
                Some(RemoteIov::Many(parts.collect()))
            }
            _ => None,
        };
        let remote = parts.as_ref().unwrap_or(remote);
        let segs = match remote {
            RemoteIov::One(seg) => {
                let (work, label) = (work(*seg), label(seg.len, op.data));
                let draft = OpDraft { work, peer, label, owner, plan, turn };
                self.start(step, mem, id, op.buf.clone(), draft);
                return;
            }
            RemoteIov::Many(segs) => segs,
        };
        let owner = self.add_group(step, peer, (segs.len(), label(op.buf.len(), None)), owner);
        let native = step.config.wire.is_none();
        let mut at = 0;
        for (n, seg) in segs.iter().enumerate() {
            // A native target reports the data when it has all ranges. Other implementations report
            // them with the request that carries them, which must not arrive before the others.
            let is_last = n + 1 == segs.len();
            let data = op.data.filter(|_| native || is_last);
            if data.is_some() && !native {
                turn.before = turn.before.or(classes);
            }
            let (label, buf) = (label(seg.len, data), op.buf.part(at, seg.len));
            at += seg.len;
            let draft = OpDraft { work: work(*seg), peer, label, owner, plan, turn };
            self.start(step, mem, id, buf, draft);
            // The parts of one operation do not wait for each other.
            turn.before = OperationClasses::NONE;
        }
        if let (OpOwner::Group(group, _), true) = (owner, segs.is_empty()) {
            self.end_part_of_group(step, group, None);
        }
    }

    /// Adds an operation of several ranges. Returns the owner record of its parts.
    fn add_group(
        &mut self,
        step: &Step<'_>,
        peer: PeerId,
        (parts, label): (usize, SesLabel),
        owner: OpOwner,
    ) -> OpOwner {
        self.outstanding += 1;
        let group = self.ops.add_group(parts, peer, label, owner);
        let native = step.config.wire.is_none();
        let tag = if native { self.group_numbers.add(peer, group, parts) } else { GroupTag::NONE };
        OpOwner::Group(group, tag)
    }

    /// Queues a user operation, or a part of one, unless it must wait for others.
    #[inline]
    fn start<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        id: ChannelId,
        buf: Buf,
        draft: OpDraft,
    ) -> Key {
        let OpDraft { peer, turn: FenceRequest { classes, before }, work, .. } = draft;
        let key = self.prepare(step, mem, id, buf, draft);
        if self.fences.admit(peer, key, classes, before) {
            step.contexts.enqueue(id, key);
        } else {
            self.park(step, key);
        }
        if work.is_answered() {
            step.start_liveness_timer();
        }
        key
    }

    /// Parks an operation: it is on no channel until the operations that it waits for have ended.
    #[cold]
    fn park(&mut self, step: &mut Step<'_>, key: Key) {
        step.report.counters.tx_parked += 1;
        if let Some(op) = self.ops.get_mut(key) {
            op.context = None;
        }
        // If there is no room for a context when the operation may start, the liveness timer
        // retries.
        step.start_liveness_timer();
    }

    /// Queues the parked operations to a peer that no longer have to wait.
    #[cold]
    pub(crate) fn start_unblocked(&mut self, step: &mut Step<'_>, peer: PeerId) {
        while let Some(id) = step.context_to(peer) {
            let Some(key) = self.fences.start_next(peer) else { return };
            if let Some(op) = self.ops.get_mut(key) {
                op.context = Some(id);
                step.contexts.enqueue(id, key);
            }
        }
    }

    /// Retries the parked operations that found no room for a context.
    pub(crate) fn start_all_unblocked(&mut self, step: &mut Step<'_>) {
        for peer in self.fences.waiting_peers() {
            self.start_unblocked(step, peer);
        }
    }

    /// Creates a user operation, or a part of one, without queueing it.
    #[inline]
    fn prepare<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        id: ChannelId,
        buf: Buf,
        draft: OpDraft,
    ) -> Key {
        let OpDraft { work, peer, label, owner, plan, turn } = draft;
        let mut op = TxOp::new_internal(work, peer);
        op.context = Some(id);
        op.label = label;
        op.owner = owner;
        op.classes = turn.classes;
        if plan.copy == Copy::Call {
            op.bytes.copied = Some(self.ops.copy_payload(mem, &buf, 0, label.len));
        } else {
            op.bytes.buf = buf;
        }
        if let OpOwner::User(user) = &mut op.owner {
            self.outstanding += 1;
            if plan.complete == CompletionTime::Call {
                step.report.complete(user.completion(peer, &label, 0, None));
                user.when = ReportTime::Reported;
            }
        }
        self.ops.add(op)
    }

    /// Queues an operation of the engine itself on the channel to its peer. Returns false, and
    /// changes nothing, if there is no room for a context.
    pub(crate) fn start_internal(&mut self, step: &mut Step<'_>, op: TxOp) -> bool {
        let Some(id) = step.context_to(op.peer) else { return false };
        step.start(&mut self.ops, id, op);
        true
    }

    /// Queues the answer to a READ on the channel on which the READ arrived.
    pub(crate) fn queue_answer(
        &mut self,
        step: &mut Step<'_>,
        id: ChannelId,
        peer: PeerId,
        answer: Answer,
    ) {
        let Answer { read_id, bytes, copied, len, region, offered, counts, group, part } = answer;
        let outside = counts_outside(step, id, peer);
        // A read has 32 bits of length.
        let whole = part.unwrap_or(ReadPart { offset: 0, total: len as u32 });
        let work =
            OpWork::Response { read_id, offered, region, counts, group, cut: None, outside, whole };
        let mut op = TxOp::new_internal(work, peer);
        // The parts of an answer share the id of the read.
        op.progress.message_id = part.map(|_| read_id);
        op.bytes = OpBytes { buf: bytes, offset: 0, copied };
        op.label.len = len;
        if let Some(OpWork::Rendezvous { answers, .. }) =
            offered.and_then(|offered| self.ops.get_mut(offered.op)).map(|op| &mut op.work)
        {
            *answers += 1;
        }
        step.start(&mut self.ops, id, op);
    }

    /// Returns whether there is room for the answer to another request of a peer.
    #[inline]
    pub(crate) fn may_answer(&self, step: &Step<'_>, id: ChannelId, peer: PeerId) -> bool {
        self.ops.may_answer(peer, counts_outside(step, id, peer))
    }

    /// Asks a channel's peer for a sign of life, and whether it still has the channel.
    pub(crate) fn ask_for_sign_of_life(&mut self, step: &mut Step<'_>, id: ChannelId) {
        // Other implementations do not answer the question.
        if step.config.wire.is_none() {
            questions::ask_for_sign_of_life(&mut self.ops, step, id);
        }
    }

    /// Returns all outbound operations.
    pub(crate) const fn ops(&self) -> &Ops {
        &self.ops
    }

    /// Counts the entries of the tables for operations that have not ended.
    pub(crate) fn count_holdings(&self, holdings: &mut Holdings) {
        holdings.operations = self.ops.len();
        holdings.outstanding = self.outstanding.into();
        holdings.copied_bytes = self.ops.copied();
        (holdings.answers, holdings.answers_outside) = self.ops.answer_counts();
        holdings.fragments = self.ops.fragments.len();
        holdings.fenced = self.fences.len();
        holdings.send_requests += self.pull_ends.len();
    }

    /// Returns the ended reads of rendezvous messages.
    #[inline]
    pub(crate) const fn pull_ends(&mut self) -> &mut VecDeque<PullEnd> {
        &mut self.pull_ends
    }
}

/// Returns whether answers to a peer count as answers to peers outside the job. Answers on a shared-memory channel
/// never do: a request that waited in the ring for room could hold up answers of the peer that this endpoint's answers
/// wait for.
#[inline]
fn counts_outside(step: &Step<'_>, id: ChannelId, peer: PeerId) -> bool {
    id.context().is_some() && step.is_outside(peer)
}

/// Returns the parts of a read of a foreign peer's memory, if it has several: each request of a read
/// asks for at most the payload of one packet.
#[cold]
fn split_read(seg: RemoteSeg, payload: u64) -> Option<RemoteIov> {
    (seg.len > payload).then(|| RemoteIov::Many(seg.parts(payload).collect()))
}

/// Returns whether an operation has a form that other implementations handle.
#[cold]
const fn is_on_foreign_wire(action: &Action) -> bool {
    match action {
        Action::Message { space, .. } => !matches!(space, MatchSpace::Collective),
        Action::Write(_) => true,
        Action::Read(_) => true,
        Action::Atomic(_) => false,
    }
}

/// Returns the owner record of a user operation.
fn op_owner(kind: OpKind, op: &Operation, plan: Plan) -> OpOwner {
    let when = match plan.complete {
        CompletionTime::Contact => ReportTime::AtContact,
        CompletionTime::Call | CompletionTime::End => ReportTime::AtEnd,
    };
    let (context, visibility) = (op.context, op.options.visibility);
    OpOwner::User(UserOp { kind, context, visibility, when })
}

/// Applies the policy to an operation. `copied` is the number of bytes that copies take already.
///
/// # Errors
/// The errors of [`policy::plan`].
#[inline]
fn plan_operation(
    step: &Step<'_>,
    copied: u64,
    op: &Operation,
    kind: OpClass,
) -> Result<Plan, SubmitError> {
    let len = op.buf.len();
    policy::plan(PolicyInput {
        kind,
        size: if len <= u64::from(step.config.inject_size) {
            OpSize::Short
        } else if len <= step.longest_eager(op.peer) {
            OpSize::Eager
        } else {
            OpSize::Long
        },
        inject: op.options.inject,
        level: op.options.level,
        visibility: op.options.visibility,
        known: step.is_known(op.peer),
        native: step.config.wire.is_none(),
        room: step.config.has_copy_room(len, copied),
    })
}
