//! Submission of a user's operation: it is checked, the policy is applied, and its order among the
//! operations to its peer is kept.

use super::{Outbound, short::fits_record};
use crate::access_groups::GroupTag;
use crate::channel::ChannelId;
use crate::completion::OpKind;
use crate::fences::{FenceRequest, OperationClasses};
use crate::memory::{Buf, Memory};
use crate::operation::{
    Action, MatchSpace, Operation, PeerId, RemoteIov, RemoteSeg, SubmitError, Submitted,
};
use crate::ops::{
    OpBytes, OpOwner, OpWork, RESOURCE_MEMORY, ReadOwner, ReportTime, SesLabel, TxOp, UserOp,
};
use crate::policy::{self, CompletionTime, Copy, OpClass, OpSize, Plan, PolicyInput, Protocol};
use crate::shm::RecordOutput;
use crate::shm::record::MAX_WHOLE;
use crate::slab::Key;
use crate::step::Step;

/// A user operation, or a part of one, without its bytes.
#[derive(Clone, Copy)]
pub(super) struct OpDraft {
    pub(super) work: OpWork,
    pub(super) peer: PeerId,
    pub(super) label: SesLabel,
    pub(super) owner: OpOwner,
    pub(super) plan: Plan,
    pub(super) turn: FenceRequest,
}

impl Outbound {
    /// Accepts an operation of the user. A message that a record of a shared-memory channel has room
    /// for leaves through `sink` in this call, if the policy allows it and nothing must go before it.
    /// All others are queued.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing has changed then.
    pub(crate) fn submit<M: Memory, S: RecordOutput>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        mut op: Operation,
        sink: Option<&mut S>,
    ) -> Result<Submitted, SubmitError> {
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
        let channel = step.contexts.channel_to(op.peer);
        let plan = plan_operation(step, self.ops.copied(), &op, channel)?;
        if plan.at_once
            && let (Some(ChannelId::Shm(id)), Some(sink)) = (channel, sink)
            && self.send_record(step, id, &op, plan, sink)
        {
            return Ok(Submitted::Sent);
        }
        if self.outstanding >= step.config.max_outstanding {
            return Err(SubmitError::Again);
        }
        if op.action.ranges() > 1 && !self.group_numbers.has_room(op.peer, &self.ops) {
            return Err(SubmitError::Again);
        }
        let id = match channel {
            Some(id) => id,
            None => step.context_to(op.peer).ok_or(SubmitError::Again)?,
        };
        match op.action {
            Action::Message { space, tag } => {
                let work = self.message_work(step, plan);
                let label = SesLabel { space, tag, data: op.data, len: op.buf.len() };
                let owner = op_owner(OpKind::Send, &op, plan);
                let turn =
                    self.fences.order_constraints(id, OperationClasses::SEND, op.options.fence);
                let draft = OpDraft { work, peer: op.peer, label, owner, plan, turn };
                self.start(step, mem, id, op.buf, draft);
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
        Ok(Submitted::Queued)
    }

    /// Returns the work of a message under a plan, and counts it.
    #[inline]
    fn message_work(&mut self, step: &mut Step<'_>, plan: Plan) -> OpWork {
        let counters = &mut step.report.counters;
        match (plan.protocol, plan.copy) {
            (Protocol::Rendezvous, _) => counters.tx_rendezvous += 1,
            (_, Copy::Call) => counters.tx_inline += 1,
            _ => counters.tx_eager += 1,
        }
        match plan.protocol {
            Protocol::Eager => OpWork::Eager,
            Protocol::Confirmed => OpWork::Confirmed { slot: 0, delivered: false },
            Protocol::Rendezvous => OpWork::Rendezvous {
                nonce: self.nonces.next_u32(),
                served: 0,
                ended: false,
                answers: 0,
            },
        }
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
    pub(super) fn add_group(
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
    pub(super) fn start<M: Memory>(
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

    /// Parks an operation: it is on no channel until the operations for which it waits have ended.
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
        let OpDraft { work, peer, label, mut owner, plan, turn } = draft;
        let bytes = if plan.copy == Copy::Call {
            let copied = Some(self.ops.copy_payload(mem, &buf, 0, label.len));
            OpBytes { buf: Buf::Empty, offset: 0, copied }
        } else {
            OpBytes { buf, offset: 0, copied: None }
        };
        if let OpOwner::User(user) = &mut owner {
            self.outstanding += 1;
            if plan.complete == CompletionTime::Call {
                step.report.complete(user.completion(peer, &label, 0, None));
                user.when = ReportTime::Reported;
            }
        }
        let (context, classes) = (Some(id), turn.classes);
        let op = TxOp { context, label, bytes, owner, classes, ..TxOp::new_internal(work, peer) };
        self.ops.add(op)
    }
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

/// Returns the owner of a user's operation: the values that its completion needs.
pub(super) fn op_owner(kind: OpKind, op: &Operation, plan: Plan) -> OpOwner {
    let when = match plan.complete {
        CompletionTime::Contact => ReportTime::AtContact,
        CompletionTime::Call | CompletionTime::End => ReportTime::AtEnd,
    };
    let (context, visibility) = (op.context, op.options.visibility);
    OpOwner::User(UserOp { kind, context, visibility, when })
}

/// Applies the policy to an operation that will use `channel`, or `None` if the peer is not known
/// to be reachable yet. `copied` is the number of bytes that copies take already.
///
/// # Errors
/// The errors of [`policy::plan`].
#[inline]
fn plan_operation(
    step: &Step<'_>,
    copied: u64,
    op: &Operation,
    channel: Option<ChannelId>,
) -> Result<Plan, SubmitError> {
    let len = op.buf.len();
    let over_shm = matches!(channel, Some(ChannelId::Shm(_)));
    let rendezvous = step.config.rendezvous_threshold;
    // On a shared-memory channel a peer that requests the payload copies it once instead of several
    // times, and the request takes almost no time.
    let longest_eager = if over_shm { rendezvous.min(MAX_WHOLE.into()) } else { rendezvous };
    policy::plan(PolicyInput {
        kind: match &op.action {
            Action::Message { .. } => OpClass::Message,
            Action::Write(_) => OpClass::Write,
            Action::Read(_) => OpClass::Read,
            Action::Atomic(atomic) if atomic.result.is_some() => OpClass::Fetch,
            Action::Atomic(_) => OpClass::Update,
        },
        size: if len <= u64::from(step.config.inject_size) {
            OpSize::Short
        } else if len <= longest_eager {
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
        record: over_shm && fits_record(&op.action, len),
    })
}
