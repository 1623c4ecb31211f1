//! The ends of operations: acknowledgements turn into completions.

use super::{Engine, Part};
use crate::api::{Class, Completion, Notify, OpError, OpKind};
use crate::base::Time;
use crate::ops::{NewOp, ReadOwner, Work};
use crate::reliability::{Event, PdcId};
use crate::wire::{self, ReturnCode};

impl Engine {
    /// Takes what the contexts report.
    pub(super) fn drain_events(&mut self, now: Time) {
        while let Some(event) = self.pdcs.poll_event() {
            match event {
                Event::Acked { desc, .. } => self.part_acked(now, desc),
                Event::Responded { desc, response, .. } => {
                    self.part_answered(now, desc, &response);
                }
                // The `Failed` that follows ends every operation of the peer.
                Event::Lost { .. } => {}
                Event::Failed { id, why, .. } => self.context_failed(now, id, why),
                Event::Closed { id, .. } => self.context_closed(now, id),
                Event::OtherMode { id } => self.other_mode = self.context(id).map(|c| c.peer),
                Event::Ready { id } => self.activate(id),
            }
        }
    }

    fn part_answered(&mut self, now: Time, part: Part, response: &wire::Response) {
        match response.return_code {
            ReturnCode::Ok | ReturnCode::Null => self.part_acked(now, part),
            code => {
                if let Some(op) = self.ops.get_mut(part.op) {
                    op.error = op.error.or(Some(OpError::Remote(code)));
                    // What is still to be sent would be refused as well.
                    if !op.packed_all {
                        op.packed_all = true;
                        self.unqueue(now, part.op);
                    }
                    self.part_acked(now, part);
                }
            }
        }
    }

    /// No more packets of an operation are built; it was half-way, but its context is not any more.
    fn unqueue(&mut self, now: Time, ix: u32) {
        let Some(op) = self.ops.get(ix) else { return };
        if let Some(Some(context)) = self.contexts.get_mut(op.pdc as usize) {
            context.queue.retain(|&queued| queued != ix);
            if !context.is_awaiting() && !context.is_half_way(&self.ops) {
                self.pdcs.set_busy(now, context.id, false);
            }
        }
    }

    fn part_acked(&mut self, now: Time, part: Part) {
        let Some(op) = self.ops.get_mut(part.op) else { return };
        op.in_flight = op.in_flight.saturating_sub(1);
        if op.in_flight > 0 || !op.packed_all {
            return;
        }
        if op.over {
            self.ops.remove(part.op);
            return;
        }
        if let Some(error) = op.error {
            self.finish_op(now, part.op, Some(error));
            return;
        }
        match op.work {
            Work::Eager | Work::Write(_) => self.finish_op(now, part.op, None),
            Work::Confirmed { delivered, .. } => {
                if delivered {
                    self.finish_op(now, part.op, None);
                }
            }
            // The receiver's reads, or the data, end these.
            Work::Rendezvous { .. } | Work::Read { .. } | Work::Group { .. } => {
                self.settle_rendezvous(now, part.op);
            }
            Work::Hello => {
                let peer = op.peer;
                self.peers[peer.0 as usize].hello = false;
                self.ops.remove(part.op);
            }
            Work::Response { source, end, .. } => {
                let len = op.len;
                self.ops.remove(part.op);
                if let Some((source, nonce)) = source {
                    self.served(now, source, nonce, len, end);
                }
            }
        }
    }

    /// A read of a rendezvous buffer has been answered, and the answer acknowledged.
    fn served(&mut self, now: Time, source: u32, key: u32, len: u64, end: u64) {
        if let Some(op) = self.ops.get_mut(source) {
            let total = op.len;
            if let Work::Rendezvous { nonce, served, ended } = &mut op.work
                && *nonce == key
            {
                *served += len;
                *ended |= *served >= total || (len == 0 && end == total);
                self.settle_rendezvous(now, source);
            }
        }
    }

    /// The receiver has taken a message that was to be confirmed.
    pub(super) fn confirmed(&mut self, now: Time, ix: u32) {
        let Some(op) = self.ops.get_mut(ix) else { return };
        if let Work::Confirmed { delivered, .. } = &mut op.work {
            *delivered = true;
        }
        if op.in_flight == 0 && op.packed_all {
            self.finish_op(now, ix, None);
        }
    }

    /// A rendezvous send is complete when its last read is answered. The reads tell that its header
    /// arrived, so nobody waits for the acknowledgement of that.
    fn settle_rendezvous(&mut self, now: Time, ix: u32) {
        let op = self.ops.get(ix);
        if op.is_some_and(|op| matches!(op.work, Work::Rendezvous { ended: true, .. })) {
            self.finish_op(now, ix, None);
        }
    }

    /// Ends an operation with success or an error. The slot lives on while a packet is in flight.
    pub(super) fn finish_op(&mut self, now: Time, ix: u32, error: Option<OpError>) {
        let Some(op) = self.ops.get_mut(ix).filter(|op| !op.over) else { return };
        let (work, parent, silent) = (op.work, op.parent, op.silent);
        let mut completion = op.completion(error);
        let early = op.early;
        let (pdc, peer, begun) = (op.pdc, op.peer, op.message_id.is_some());
        if op.in_flight > 0 {
            // Its data has come before the acknowledgement of the request, which may have to be sent
            // again.
            op.over = true;
        } else {
            self.ops.remove(ix);
        }
        if work.is_answered() && begun {
            self.answered(now, pdc, work.slot(), ix);
        }
        match work {
            Work::Read { owner: ReadOwner::Message(message), .. } => {
                return self.pull_done(now, message, error);
            }
            Work::Read { owner: ReadOwner::End { .. }, .. } => {
                if error == Some(OpError::Closed) {
                    // Its context is gone, but the sender still waits for word.
                    self.start_internal(now, NewOp::internal(work, peer));
                }
                return;
            }
            _ => {}
        }
        if let Some(group) = parent {
            self.group_part_done(group, error);
        } else if early {
            // The user has had its completion; a loss is still worth an entry without context.
            if error.is_some() {
                completion.context = 0;
                self.complete(completion);
            }
        } else if !silent {
            self.outstanding -= 1;
            self.complete(completion);
        }
    }

    /// The peer owes one answer less on a context; `slot` is where a read or a confirmation waited.
    fn answered(&mut self, now: Time, pdc: u32, slot: Option<u16>, op: u32) {
        let Some(Some(context)) = self.contexts.get_mut(pdc as usize) else { return };
        match slot {
            None => context.offers = context.offers.saturating_sub(1),
            Some(slot) => match context.reads.get_mut(usize::from(slot)) {
                Some(entry) if *entry == Some(op) => {
                    *entry = None;
                    context.free_reads.push(slot);
                }
                _ => return,
            },
        }
        if !context.is_awaiting() && !context.is_half_way(&self.ops) {
            self.pdcs.set_busy(now, context.id, false);
        }
    }

    /// One part of a multi-range RMA operation ended.
    pub(super) fn group_part_done(&mut self, ix: u32, failed: Option<OpError>) {
        let Some(op) = self.ops.get_mut(ix) else { return };
        let Work::Group { left, error } = &mut op.work else { return };
        *left = left.saturating_sub(1);
        *error = error.or(failed);
        if *left > 0 {
            return;
        }
        let error = *error;
        let completion = op.completion(error);
        self.ops.remove(ix);
        self.outstanding -= 1;
        self.complete(completion);
    }

    /// Hands a completion to the user.
    pub(super) fn complete(&mut self, completion: Completion) {
        if completion.status.is_err() {
            self.counters.op_errors += 1;
        }
        self.completions.push_back(completion);
    }

    /// A peer's write with remote CQ data is all in place.
    pub(super) fn complete_remote_write(&mut self, id: PdcId, len: u64, data: u64) {
        let peer = self.context(id).map(|c| c.peer);
        self.complete(Completion {
            context: 0,
            kind: OpKind::RemoteWrite,
            class: Class::Msg,
            len,
            buf: 0,
            data: Some(data),
            tag: 0,
            peer,
            notify: Notify::Entry,
            released: false,
            status: Ok(()),
        });
    }

    /// Asks a silent peer for a sign of life.
    pub(super) fn hello(&mut self, now: Time, peer: crate::api::PeerId) {
        if self.peers[peer.0 as usize].hello {
            return;
        }
        if let Some(id) = self.context_to(now, peer) {
            self.hello_on(id);
        }
    }

    /// Asks a context's peer whether it still has it.
    pub(super) fn hello_on(&mut self, id: PdcId) {
        let Some(peer) = self.context(id).map(|context| context.peer) else { return };
        if self.peers[peer.0 as usize].hello {
            return;
        }
        let ix = self.ops.add(NewOp::internal(Work::Hello, peer));
        if let Some(op) = self.ops.get_mut(ix) {
            op.silent = true;
        }
        self.queue_on(id, ix);
        self.peers[peer.0 as usize].hello = true;
        self.counters.hellos += 1;
    }
}
