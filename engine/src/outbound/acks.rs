//! Handling of what peers send about outbound operations: acknowledgements, refusals, answers, and
//! reads of rendezvous offers.

use super::packet::split_rendezvous_key;
use super::{Answer, Outbound, questions};
use crate::access_groups::{GroupTag, PeerAccess};
use crate::base::RegionId;
use crate::channel::ChannelId;
use crate::completion::{OpError, OpKind};
use crate::memory::{Buf, KeyError, Memory, Payload};
use crate::operation::PeerId;
use crate::ops::{OfferedPart, OpBytes, OpOwner, OpWork, Ops, ReadOwner, ReportTime, TxOp};
use crate::packet_outcome::PacketOutcome;
use crate::part::Part;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::{NackCode, Response, ResponseData, ReturnCode, StdRequest};

impl Outbound {
    /// Handles the acknowledgement of `count` packets of an operation; the first one carried
    /// `part`.
    #[inline]
    pub(crate) fn handle_ack(&mut self, step: &mut Step<'_>, part: Part, count: u16) {
        let Some(op) = self.ops.get_mut(part.op) else { return };
        let progress = &mut op.progress;
        progress.in_flight = progress.in_flight.saturating_sub(count.into());
        if progress.in_flight > 0 || !progress.all_packed {
            return;
        }
        if op.over {
            self.ops.remove(part.op);
            return;
        }
        // If the answer was cut off, the operation ends only when all of its packets have arrived.
        // Otherwise a late packet could reach another read in the same slot.
        let answered = matches!(
            op.work,
            OpWork::Read { received: 1.., .. } | OpWork::Fetch { received: 1.., .. }
        );
        if let Some(error) = op.error.filter(|_| !answered) {
            self.finish(step, part.op, Some(error));
            return;
        }
        match op.work {
            OpWork::Eager
            | OpWork::Write(_)
            | OpWork::Update { .. }
            | OpWork::Unmatched { matched: true, .. }
            | OpWork::Confirmed { delivered: true, .. } => {
                self.finish(step, part.op, None);
            }
            // The peer's answer ends these operations.
            OpWork::Confirmed { .. }
            | OpWork::Unmatched { .. }
            | OpWork::Read { .. }
            | OpWork::Fetch { .. }
            | OpWork::Group { .. } => {}
            // The peer's reads show that the header arrived, so its acknowledgement changes
            // nothing.
            OpWork::Rendezvous { .. } => {}
            OpWork::Deferred => self.offer_deferred(step, part.op),
            OpWork::Question { about, .. } => {
                questions::handle_positive_answer(&mut self.ops, step, part.op, about);
            }
            OpWork::Response { offered, cut, region, counts, group, .. } => {
                let (len, peer) = (op.label.len, op.peer);
                self.ops.remove(part.op);
                if counts && cut.is_none() {
                    let kind = OpKind::RemoteRead;
                    step.report_access(peer, group, PeerAccess { kind, region, len, data: None });
                }
                if let (Some(offered), None) = (offered, cut) {
                    self.handle_read_served(step, offered, len);
                }
            }
        }
    }

    /// Handles a response to a packet that carries more than an acknowledgement.
    pub(crate) fn handle_response(&mut self, step: &mut Step<'_>, part: Part, response: &Response) {
        let code = response.return_code;
        if let Some(OpWork::Question { about, .. }) = self.ops.get(part.op).map(|op| op.work) {
            match about.filter(|_| code == ReturnCode::BadIndex) {
                Some(about) => self.handle_unknown_operation(step, part.op, about),
                None => questions::handle_positive_answer(&mut self.ops, step, part.op, about),
            }
            return;
        }
        if code == ReturnCode::NoMatch && self.ops.defer(step, part.op) {
            self.handle_ack(step, part, 1);
            return;
        }
        if !matches!(code, ReturnCode::Ok | ReturnCode::Null)
            && let Some(op) = self.ops.get_mut(part.op)
        {
            op.error = op.error.or(Some(OpError::Remote(code)));
            // The target would refuse the remaining packets as well.
            if !op.progress.all_packed {
                op.progress.all_packed = true;
                self.ops.dequeue(step, part.op);
            }
        }
        self.handle_ack(step, part, 1);
    }

    /// Offers a deferred message under its id, now that no packet of it is in flight any more.
    #[cold]
    fn offer_deferred(&mut self, step: &mut Step<'_>, key: Key) {
        if step.config.wire.is_some() {
            self.schedule_resend(step, key);
            return;
        }
        let nonce = self.nonces.next_u32();
        // All fragments of the message's packets have arrived. The offer begins at the same offset
        // as the first packet, and a retransmission of the offer must not be taken for a fragment
        // of that packet.
        self.ops.fragments.forget(key);
        let Some(op) = self.ops.get_mut(key) else { return };
        op.work = OpWork::Rendezvous { nonce, served: 0, ended: false, answers: 0 };
        (op.progress.packed, op.progress.all_packed) = (0, false);
        let Some(id) = op.context else { return };
        if let Some(context) = step.contexts.get_mut(id) {
            context.offers += 1;
            context.update_busy(step.now, step.pdcs);
        }
        step.contexts.enqueue_first(id, key);
        step.start_liveness_timer();
    }

    /// Handles the acknowledgement of the answer to a read of a rendezvous send. The send is
    /// complete when its last read is answered.
    fn handle_read_served(&mut self, step: &mut Step<'_>, offered: OfferedPart, len: u64) {
        let Some(op) = self.ops.get_mut(offered.op) else { return };
        let total = op.label.len;
        let OpWork::Rendezvous { served, ended, .. } = &mut op.work else { return };
        *served += len;
        *ended |= *served >= total || (len == 0 && offered.end == total);
        if *ended {
            self.finish(step, offered.op, None);
        }
    }

    /// Answers a peer's read of a rendezvous offer.
    ///
    /// # Errors
    /// [`KeyError`] if the message is not offered, or no longer.
    pub(crate) fn answer_offer_read(
        &mut self,
        step: &mut Step<'_>,
        peer: PeerId,
        request: &StdRequest,
    ) -> Result<Answer, KeyError> {
        let (index, nonce) = split_rendezvous_key(request.match_bits);
        let offer = self.ops.at(index).filter(|(_, op)| op.peer == peer && !op.over);
        let (key, op) = offer.ok_or(KeyError::BadKey)?;
        let served = match op.work {
            OpWork::Rendezvous { nonce: expected, ended: false, answers, .. }
                if expected == nonce =>
            {
                answers == 0
            }
            _ => return Err(KeyError::BadKey),
        };
        let (at, len) = (request.buffer_offset, u64::from(request.request_length));
        let end = at.checked_add(len).filter(|end| *end <= op.label.len);
        let end = end.ok_or(KeyError::OutOfRange)?;
        let mut answer = Answer {
            read_id: request.message_id,
            bytes: op.bytes.buf.part(at, len),
            // The range was checked to lie within the message.
            copied: op.bytes.copied.as_ref().map(|all| all[at as usize..end as usize].to_vec()),
            len,
            region: RegionId::LENT,
            offered: Some(OfferedPart { op: key, end }),
            counts: false,
            group: GroupTag::NONE,
            part: None,
        };
        if len == 0 && end == op.label.len && served && !request.initiator_error {
            // The peer has everything it wants, by earlier reads or by a copy at the time of the
            // offer.
            self.finish(step, key, None);
            (answer.bytes, answer.copied, answer.offered) = (Buf::Empty, None, None);
        } else if request.initiator_error {
            // The peer reports that it could not read the whole message, and expects no more than
            // this answer.
            self.finish(step, key, Some(OpError::Closed));
            (answer.bytes, answer.copied) = (Buf::Empty, None);
            (answer.len, answer.offered) = (0, None);
        }
        Ok(answer)
    }

    /// Handles the data of a read, or the confirmation that a receive has taken a message.
    pub(crate) fn handle_response_data<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        id: ChannelId,
        header: &ResponseData,
        payload: Payload<'_>,
    ) -> PacketOutcome {
        let slot = header.read_request_message_id;
        let waiting = step.contexts.get(id).and_then(|context| context.slots.get(slot));
        let Some(key) = waiting else { return PacketOutcome::No };
        let Some(op) = self.ops.get_mut(key) else { return PacketOutcome::No };
        let total = op.label.len;
        match &mut op.work {
            OpWork::Confirmed { delivered, .. } => {
                *delivered = true;
                if op.progress.in_flight == 0 && op.progress.all_packed {
                    self.finish(step, key, None);
                }
                PacketOutcome::Yes(None)
            }
            OpWork::Read { received, .. } | OpWork::Fetch { received, .. } => {
                let at = u64::from(header.message_offset);
                let mut code = header.return_code;
                let refused = !matches!(code, ReturnCode::Ok | ReturnCode::Null);
                // Each packet of an answer that was cut off carries the number of bytes that it
                // stands for.
                let len = if refused { u64::from(header.modified_length) } else { payload.len() };
                if at + len > total {
                    return PacketOutcome::No;
                }
                let mut had = true;
                if !refused {
                    op.bytes.buf.for_range(op.bytes.offset + at, len, |piece, position| {
                        had &= payload.place(mem, piece, position);
                    });
                }
                if !had && mem.is_delayed() {
                    return PacketOutcome::Later(NackCode::NoSesMsgAvail);
                }
                *received += len;
                let done = *received >= total;
                if !had {
                    // The owner of the memory has revoked it, or is gone.
                    code = ReturnCode::BadMkey;
                }
                if refused || !had {
                    // The other packets of the answer are still awaited, so that none of them
                    // reaches another read in this slot. Their payload is dropped.
                    op.error = op.error.or(Some(OpError::Remote(code)));
                    op.bytes.buf = Buf::Empty;
                } else {
                    step.report.counters.rx_payload_bytes += len;
                }
                let error = op.error;
                if done {
                    self.finish(step, key, error);
                }
                PacketOutcome::Yes(None)
            }
            _ => PacketOutcome::No,
        }
    }

    /// Detaches the read of a message that has ended from its buffer, which is the user's again.
    /// Data that still arrives is dropped.
    pub(crate) fn detach_pull(&mut self, message: Key) {
        let fetches = |op: &TxOp| matches!(op.work, OpWork::Read { owner: ReadOwner::Message(of), .. } if of == message);
        for key in self.ops.select(fetches) {
            if let Some(op) = self.ops.get_mut(key) {
                op.bytes.buf = Buf::Empty;
            }
        }
    }

    /// Completes the short sends that waited for a peer's first answer. They complete before
    /// anything of that answer is delivered, so that no answer overtakes the completion of the
    /// message that it answers (Intel MPI's one-sided operations hang otherwise).
    pub(crate) fn complete_short_sends<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        peer: PeerId,
    ) {
        let waits = |op: &TxOp| {
            op.peer == peer
                && matches!(op.owner, OpOwner::User(user) if user.when == ReportTime::AtContact)
                && !op.over
        };
        for key in self.ops.select(waits) {
            let copied = self.ops.copied();
            let Some(op) = self.ops.get_mut(key) else { continue };
            let (len, buf) = (op.label.len, op.bytes.buf.clone());
            let is_copied = op.bytes.copied.is_some();
            let room = is_copied || copied + len <= step.config.copied_bytes;
            if let OpOwner::User(user) = &mut op.owner {
                if !room {
                    user.when = ReportTime::AtEnd;
                    continue;
                }
                step.report.complete(user.completion(peer, &op.label, buf.base(), None));
                user.when = ReportTime::Reported;
            }
            if !is_copied {
                let copied = Some(self.ops.copy_payload(mem, &buf, 0, len));
                self.ops.set_bytes(key, OpBytes { buf: Buf::Empty, offset: 0, copied });
            }
        }
    }
}

impl Ops {
    /// Defers a message for which the peer has no room: its remaining payload is not sent now.
    /// Returns whether the operation is, or was, an eager message.
    #[cold]
    fn defer(&mut self, step: &mut Step<'_>, key: Key) -> bool {
        let Some(op) = self.get_mut(key).filter(|op| !op.over && op.error.is_none()) else {
            return false;
        };
        let slot = match op.work {
            OpWork::Eager | OpWork::Confirmed { .. } => op.work.slot(),
            _ => return matches!(op.work, OpWork::Deferred),
        };
        op.work = OpWork::Deferred;
        let (context, packed) = (op.context, core::mem::replace(&mut op.progress.all_packed, true));
        if !packed {
            self.dequeue(step, key);
        }
        // The peer's reads of the offer will show that a receive has taken the message.
        if let (Some(id), Some(slot)) = (context, slot)
            && let Some(context) = step.contexts.get_mut(id)
        {
            context.end_owed_answer(Some(slot), key);
            context.update_busy(step.now, step.pdcs);
            step.contexts.activate(id);
        }
        step.report.counters.tx_deferred += 1;
        true
    }

    /// Removes an operation from its queue, so that no more packets of it are built.
    fn dequeue(&mut self, step: &mut Step<'_>, key: Key) {
        let id = self.get(key).and_then(|op| op.context);
        if let Some(context) = id.and_then(|id| step.contexts.get_mut(id)) {
            context.queue.retain(|&queued| queued != key);
            context.set_half_way(false);
            context.update_busy(step.now, step.pdcs);
        }
    }
}
