//! Ends of operations, in success or failure, and their causes: contexts that close or fail, lost
//! peers, and memory that is revoked.

use std::collections::VecDeque;

use super::{Outbound, PullEnd};
use crate::base::RegionId;
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::contexts::Context;
use crate::memory::Buf;
use crate::operation::PeerId;
use crate::ops::{OpBytes, OpOwner, OpWork, Ops, ReadOwner, ReportTime, TxOp};
use crate::reliability::PdcId;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::ReturnCode;

impl Outbound {
    /// Ends an operation with success or an error. The operation is kept while a packet of it is in
    /// flight, but no packet reads its memory any more.
    #[inline]
    pub(super) fn finish(&mut self, step: &mut Step<'_>, key: Key, error: Option<OpError>) {
        let Some(op) = self.ops.get_mut(key).filter(|op| !op.over) else { return };
        if let OpOwner::User(user) = &op.owner {
            self.outstanding -= 1;
            match (user.when, error) {
                (ReportTime::Reported, None) => {}
                (ReportTime::Reported, Some(error)) => step.report.record_loss(op.peer, error),
                _ => {
                    let base = op.bytes.buf.base();
                    step.report.complete(user.completion(op.peer, &op.label, base, error));
                }
            }
        }
        let (work, peer, owner) = (op.work, op.peer, op.owner);
        let (classes, began) = (op.classes, op.context.is_some());
        let waited_on = op.context.filter(|_| op.progress.message_id.is_some());
        if op.progress.in_flight > 0 {
            // The answer arrived before the acknowledgement of the request, which may have to be
            // retransmitted.
            op.over = true;
            op.bytes.buf = Buf::Empty;
        } else {
            self.ops.remove(key);
        }
        if work.is_answered() {
            self.ops.release_answered(step, key, work, waited_on);
        }
        let mut others_wait = false;
        if !classes.is_none() {
            if began {
                others_wait = self.fences.end(peer, classes);
            } else {
                self.fences.remove(peer, key);
            }
        }
        match owner {
            OpOwner::User(_) => {}
            OpOwner::Group(group, _) => self.end_part_of_group(step, group, error),
            OpOwner::Engine => match work {
                OpWork::Read { owner: ReadOwner::Message(message), .. } => {
                    self.pull_ends.push_back(PullEnd { message, error });
                }
                // The context is gone, but the sender of the rendezvous still waits for this
                // notification.
                OpWork::Read { owner: ReadOwner::End { .. }, .. }
                    if error == Some(OpError::Closed) =>
                {
                    self.start_internal(step, TxOp::new_internal(work, peer));
                }
                _ => {}
            },
        }
        if others_wait {
            self.start_unblocked(step, peer);
        }
    }

    /// Handles the end of one part of an RMA operation of several ranges.
    pub(super) fn end_part_of_group(
        &mut self,
        step: &mut Step<'_>,
        group: Key,
        failed: Option<OpError>,
    ) {
        let Some(op) = self.ops.get_mut(group) else { return };
        let peer = op.peer;
        let OpWork::Group { left, error } = &mut op.work else { return };
        *left = left.saturating_sub(1);
        *error = error.or(failed);
        let (left, error) = (*left, *error);
        if left == 0 {
            self.finish(step, group, error);
        } else if failed.is_some() {
            // On a foreign wire the part with remote CQ data waits for the others.
            let waits = |op: &TxOp| {
                op.context.is_none() && matches!(op.owner, OpOwner::Group(of, _) if of == group)
            };
            for part in self.ops.select(waits) {
                self.finish(step, part, error);
            }
            self.start_unblocked(step, peer);
        }
    }

    /// Ends every use of a registered region: no packet reads it from now on. Peers that have not
    /// received all of the data that they requested from it get an error.
    pub(crate) fn release_region(&mut self, step: &mut Step<'_>, gone: RegionId) {
        self.ops.cut_off_answers(
            step,
            ReturnCode::BadMkey,
            |work| matches!(work, OpWork::Response { region, .. } if *region == gone),
        );
    }

    /// Moves operations that have not started from a context that takes no more packets to other
    /// channels.
    pub(crate) fn requeue_unstarted(&mut self, step: &mut Step<'_>, id: PdcId) {
        let Some((peer, queue)) = step.contexts.retire(id) else { return };
        for &key in &queue {
            // The peer will not read the offer of a deferred message on this context any more.
            let named = self.ops.get(key).is_some_and(|op| op.progress.message_id.is_some());
            if let Some(context) = step.contexts.get_mut(id.into()).filter(|_| named) {
                context.end_owed_answer(None, key);
                context.update_busy(step.now, step.pdcs);
            }
        }
        self.move_queue(step, peer, queue);
    }

    fn move_queue(&mut self, step: &mut Step<'_>, peer: PeerId, queue: VecDeque<Key>) {
        if queue.is_empty() {
            return;
        }
        let Some(fresh) = step.context_to(peer) else {
            for key in queue {
                self.finish(step, key, Some(OpError::Closed));
            }
            return;
        };
        for key in &queue {
            if let Some(op) = self.ops.get_mut(*key) {
                op.context = Some(fresh);
                // A deferred message has an id on the old context and needs another one on the new
                // one.
                op.progress.message_id = None;
            }
        }
        // The operations go before those queued on a shared-memory channel that is held.
        step.contexts.enqueue_all(fresh, queue);
    }

    /// Handles the orderly close of a context. Operations that were queued on it move to a new one.
    /// Answers are dropped, because the peer no longer wants them.
    pub(crate) fn handle_context_closed(&mut self, step: &mut Step<'_>, context: Context) {
        if context.initiator {
            self.move_queue(step, context.peer, context.queue);
        } else {
            for key in context.queue {
                self.drop_answer(step, key, OpError::Closed);
            }
        }
    }

    /// Handles the end of a shared-memory channel whose peer lives on. Operations that have not
    /// started move to a context, where those of the user wait for the earlier ones that they must
    /// not overtake. The others fail.
    pub(crate) fn handle_shm_closed(&mut self, step: &mut Step<'_>, shm: Context, error: OpError) {
        let begun =
            |key: &Key| self.ops.get(*key).is_some_and(|op| op.progress.message_id.is_some());
        let fresh: VecDeque<Key> = shm.queue.into_iter().filter(|key| !begun(key)).collect();
        let (answers, queued): (Vec<Key>, Vec<Key>) = fresh.iter().partition(|key| {
            self.ops.get(**key).is_some_and(|op| matches!(op.work, OpWork::Response { .. }))
        });
        for key in answers {
            self.drop_answer(step, key, error);
        }
        let (internal, own): (Vec<Key>, Vec<Key>) = queued
            .iter()
            .partition(|key| self.ops.get(**key).is_none_or(|op| op.classes.is_none()));
        self.move_queue(step, shm.peer, internal.into());
        for key in &own {
            if let Some(op) = self.ops.get_mut(*key) {
                op.context = None;
            }
        }
        let ops = &self.ops;
        let classes = |key: Key| ops.get(key).map(|op| (key, op.classes));
        self.fences.park_again(shm.peer, own.into_iter().filter_map(classes));
        self.drop_answers(step, shm.id, error);
        self.fail_selected(step, error, |op| op.context == Some(shm.id));
        self.start_unblocked(step, shm.peer);
    }

    /// Drops the answers on a context that the peer opened and that is gone.
    pub(crate) fn drop_answers(&mut self, step: &mut Step<'_>, id: ChannelId, error: OpError) {
        let on_it =
            |op: &TxOp| op.context == Some(id) && matches!(op.work, OpWork::Response { .. });
        for key in self.ops.select(on_it) {
            self.drop_answer(step, key, error);
        }
    }

    /// Drops an answer that will not arrive. If it answered a read of a rendezvous send, the send
    /// fails: the receiver does not read on, or it has read everything, which looks the same from
    /// here. Nothing else would end the send.
    fn drop_answer(&mut self, step: &mut Step<'_>, key: Key, error: OpError) {
        let work = self.ops.get(key).map(|op| op.work);
        self.ops.remove(key);
        if let Some(OpWork::Response { offered: Some(offered), .. }) = work {
            self.finish(step, offered.op, Some(error));
        }
    }

    /// Fails the operations that `lost` selects, because their context or their peer is gone. Their
    /// packets will not be retransmitted.
    pub(crate) fn fail_selected(
        &mut self,
        step: &mut Step<'_>,
        error: OpError,
        lost: impl Fn(&TxOp) -> bool,
    ) {
        // A group ends with its parts.
        let lost = |op: &TxOp| !matches!(op.work, OpWork::Group { .. }) && lost(op);
        let lost = self.ops.select(lost);
        for key in &lost {
            // Operations that wait for a lost one will not start.
            if let Some(op) = self.ops.get(*key).filter(|op| op.context.is_none()) {
                self.fences.forget(op.peer);
            }
        }
        for key in lost {
            let Some(op) = self.ops.get_mut(key) else { continue };
            op.progress.in_flight = 0;
            if matches!(op.work, OpWork::Question { about: None, .. }) {
                step.contexts.set_question_open(op.peer, false);
            }
            if op.over || matches!(op.work, OpWork::Question { .. } | OpWork::Response { .. }) {
                self.ops.remove(key);
            } else {
                self.finish(step, key, Some(error));
            }
        }
    }
}

/// Drops messages that have arrived and that no receive has taken, without any report, because the
/// closing user no longer waits for its peers' receives. Messages that were reported complete are
/// kept.
pub(crate) fn drop_untaken(outbound: &mut Outbound, step: &mut Step<'_>) {
    let untaken = |op: &TxOp| {
        let reported = matches!(op.owner, OpOwner::User(user) if user.when == ReportTime::Reported);
        let waits =
            matches!(op.work, OpWork::Rendezvous { answers: 0, .. } | OpWork::Confirmed { .. });
        op.is_owed() && waits && !reported
    };
    for key in outbound.ops.select(untaken) {
        if let Some(op) = outbound.ops.get_mut(key) {
            op.owner = OpOwner::Engine;
            outbound.outstanding -= 1;
        }
        outbound.finish(step, key, Some(OpError::Cancelled));
    }
}

impl Ops {
    /// Releases what an ended operation held while it waited for the peer's answer: its slot, and
    /// the memory that it offered.
    fn release_answered(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        work: OpWork,
        waited_on: Option<ChannelId>,
    ) {
        if matches!(work, OpWork::Rendezvous { answers: 1.., .. }) {
            self.cut_off_answers(step, ReturnCode::HostUnsuccessCmpl, |work| {
                matches!(work, OpWork::Response { offered: Some(offered), .. } if offered.op == key)
            });
        }
        let Some(id) = waited_on else { return };
        if let Some(context) = step.contexts.get_mut(id) {
            let waits = !context.slots.has_room();
            context.end_owed_answer(work.slot(), key);
            context.update_busy(step.now, step.pdcs);
            if waits {
                step.contexts.activate(id);
            }
        }
    }

    /// Cuts answers off. Packets that must be retransmitted, and one that stands for all unsent
    /// data, carry the return code instead of payload. So all PSNs are used, and a peer that has
    /// received the data notices nothing.
    fn cut_off_answers(
        &mut self,
        step: &mut Step<'_>,
        code: ReturnCode,
        named: impl Fn(&OpWork) -> bool,
    ) {
        // Empty answers read no memory.
        for key in self.select(|op| op.label.len > 0 && named(&op.work)) {
            self.set_bytes(key, OpBytes::default());
            let Some(op) = self.get_mut(key) else { continue };
            if let OpWork::Response { cut: cut @ None, .. } = &mut op.work {
                *cut = Some(code);
                step.report.counters.tx_answers_cut += 1;
                if let (Some(ChannelId::Shm(id)), 1..) = (op.context, op.progress.in_flight) {
                    step.shm.revoke(id, key.to_u64());
                }
            }
        }
    }
}
