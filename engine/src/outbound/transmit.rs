//! Sending of packets: retransmissions first, then new packets of the queued operations, contexts
//! in turn.

use core::net::SocketAddr;

use super::telemetry::{extra_bytes, prepend_bytes, push_empty};
use super::train::{self, TrainRest};
use super::{Outbound, packet};
use crate::base::{Batch, Datagram, TrafficClass};
use crate::contexts::{Context, Contexts, IdSpace};
use crate::ops::{OpWork, Ops, TxOp};
use crate::packet_form::PacketForm;
use crate::part::Part;
use crate::reliability::{NewPacket, PdcId, SendError, TxGrant};
use crate::slab::Key;
use crate::step::Step;
use crate::wire::{Fragment, MAX_HEADER, MessageHeaders};

/// Number of packets, or runs of packets, that a context may send before the next context gets its
/// turn.
const QUANTUM: usize = 16;
/// Number of queued operations of which the bytes are counted to estimate how much data waits on a
/// context.
const BACKLOG_OPS: usize = 64;

/// The outcome of a context's turn to send packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnOutcome {
    /// The context may have more to send, and gets another turn.
    More,
    /// The context has nothing left to send, or must wait for an event.
    Done,
}

impl Outbound {
    /// Gives the context whose turn it is the opportunity to add packets to `batch`. No train begins
    /// once the batch has `limit` packets. Returns false if no context has anything to send.
    pub(crate) fn transmit(
        &mut self,
        step: &mut Step<'_>,
        batch: &mut Batch,
        limit: usize,
    ) -> bool {
        let Some(id) = step.contexts.pop_scheduled_context() else { return false };
        let turn = self.send_turn(step, id, batch, limit);
        step.contexts.end_turn(id.into(), turn == TurnOutcome::More);
        true
    }

    fn send_turn(
        &mut self,
        step: &mut Step<'_>,
        id: PdcId,
        batch: &mut Batch,
        limit: usize,
    ) -> TurnOutcome {
        for _ in 0..QUANTUM {
            if batch.packets.len() >= limit {
                return TurnOutcome::More;
            }
            if step.peers.paths.has_narrow() {
                self.ops.cut_queued(step, id);
            }
            if let Some((grant, part)) = step.pdcs.poll_retransmit(step.now, id) {
                self.ops.emit_retransmission(step, batch, id, &grant, part);
                continue;
            }
            if self.ops.fragments.has_waiting()
                && let Some(sent) = self.send_fragment(step, id, batch)
            {
                match sent {
                    Ok(()) => continue,
                    // The transport reports this context again when it may send.
                    Err(_) => return TurnOutcome::Done,
                }
            }
            match self.ops.send_new(step, id, batch) {
                // The transport reports the context again when a packet must be retransmitted.
                Ok(TurnOutcome::Done) => return TurnOutcome::Done,
                Ok(TurnOutcome::More) => {}
                Err(SendError::Wait | SendError::Gone | SendError::Retransmit) => {
                    return TurnOutcome::Done;
                }
                Err(SendError::Closing) => {
                    self.requeue_unstarted(step, id);
                    return TurnOutcome::Done;
                }
            }
        }
        TurnOutcome::More
    }
}

impl Ops {
    /// Sends the next packet of the operation at the head of a context's queue, and those that
    /// follow it in its train. Returns whether the context may have more to send.
    #[inline]
    fn send_new(
        &mut self,
        step: &mut Step<'_>,
        id: PdcId,
        batch: &mut Batch,
    ) -> Result<TurnOutcome, SendError> {
        let needs_backlog = step.pdcs.config().needs_backlog();
        let backlog = if needs_backlog { self.backlog(step.contexts, id) } else { 0 };
        let extra = extra_bytes(step);
        let Some(context) = step.contexts.get_mut(id.into()) else { return Ok(TurnOutcome::Done) };
        let Some(&key) = context.queue.front() else { return Ok(TurnOutcome::Done) };
        let Some(op) = self.get_mut(key) else {
            // The operation ended while it was queued.
            context.queue.pop_front();
            return Ok(TurnOutcome::More);
        };
        if op.progress.message_id.is_none() {
            let starved = op.work.slot().is_some() && !context.slots.has_room();
            let serial = context.form.serial;
            if starved || serial && !context.may_begin(step.pdcs.is_all_acknowledged(id)) {
                // The operation continues when another one is answered and frees its slot, or when
                // everything before it is acknowledged.
                return Ok(TurnOutcome::Done);
            }
        }
        let asks = context.form.asks && op.ends_request();
        let with_telemetry = step.pdcs.config().acks.telemetry;
        let headers = packet::headers_len(&op.work);
        let room = context.form.max_payload(context.max_packet.saturating_sub(extra), headers);
        let left = op.payload_len() - op.progress.packed;
        // An atomic is not cut. If its packet is too long for the path, routers may fragment it.
        let whole = op.work.amo().is_some();
        let len = if whole { left } else { left.min(room) };
        let ends = len == left;
        // `request_length` has 32 bits, and the payload of a packet 14.
        let part = Part { op: key, offset: op.progress.packed as u32, len: len as u32 };
        let prompt = op.should_request_ack() || context.prompt || asks;
        let wanted = NewPacket {
            desc: part,
            bytes: (headers + len) as u32 + extra,
            last: ends && (context.queue.len() == 1 || asks),
            prompt,
            backlog: backlog.saturating_sub(len),
        };
        let grant = step.pdcs.next_packet(step.now, id, &wanted)?;
        step.report.counters.tx_payload_bytes += len;
        account_packet(context, op, part, ends, prompt);
        let start = push_empty(batch, with_telemetry);
        emit_new(context, batch, op, &grant, part);
        prepend_bytes(batch, start);
        if len > room
            && let Some(packet) = batch.packets.last_mut()
        {
            packet.fragment = true;
            step.report.counters.tx_fragmentable += 1;
        }
        // Telemetry differs between packets, so they do not form a train.
        let ended = if ends || with_telemetry {
            ends
        } else {
            let alone = context.queue.len() == 1 || asks;
            let rest = TrainRest { left: left - len, alone, prompt };
            train::send_rest_of_train(step, batch, id, op, (&grant, part), &rest)
        };
        let Some(context) = step.contexts.get_mut(id.into()) else { return Ok(TurnOutcome::Done) };
        if ended && !ends {
            pop_finished_op(context, op);
        }
        context.update_busy(step.now, step.pdcs);
        Ok(if ended && context.queue.is_empty() { TurnOutcome::Done } else { TurnOutcome::More })
    }

    /// Returns the number of bytes that wait on a context, counting at most [`BACKLOG_OPS`]
    /// operations, which is more than any receiver grants.
    pub(super) fn backlog(&self, contexts: &Contexts, id: PdcId) -> u64 {
        let queue = contexts.get(id.into()).into_iter().flat_map(|context| &context.queue);
        let ops = queue.take(BACKLOG_OPS).filter_map(|&key| self.get(key));
        ops.map(|op| op.payload_len() - op.progress.packed + packet::headers_len(&op.work)).sum()
    }

    /// Builds the packet for a part of an operation that must be sent again.
    fn emit_retransmission(
        &self,
        step: &mut Step<'_>,
        batch: &mut Batch,
        id: PdcId,
        grant: &TxGrant,
        part: Part,
    ) {
        let header =
            if self.fragments.is_empty() { None } else { self.fragment_header(step, id, part) };
        let (Some(op), Some(context)) = (self.get(part.op), step.contexts.get(id.into())) else {
            return;
        };
        let (dst, most, form) = (context.dst, context.max_packet, context.form);
        emit_with_prefixes(step, batch, (dst, &form), op, (grant, part), header);
        // Only an atomic is left here; everything else was cut.
        if let Some(packet) = batch.packets.last_mut().filter(|packet| packet.len > most) {
            packet.fragment = true;
            step.report.counters.tx_fragmentable += 1;
        }
    }
}

/// Builds a packet together with what precedes it: telemetry, where the congestion control uses it, and the header of a
/// fragment.
#[inline]
pub(super) fn emit_with_prefixes(
    step: &Step<'_>,
    batch: &mut Batch,
    (dst, form): (SocketAddr, &PacketForm),
    op: &TxOp,
    (grant, part): (&TxGrant, Part),
    fragment: Option<[u8; Fragment::LEN]>,
) {
    let telemetry = push_empty(batch, step.pdcs.config().acks.telemetry);
    let start = telemetry.or_else(|| fragment.map(|_| batch.bytes.len()));
    batch.bytes.extend(fragment.into_iter().flatten());
    emit_packet(form, batch, dst, op, grant, part);
    prepend_bytes(batch, start);
}

/// Accounts for a packet of the operation at the head of a context's queue that is about to be built.
#[inline]
fn account_packet(context: &mut Context, op: &mut TxOp, part: Part, ends: bool, prompt: bool) {
    if op.progress.message_id.is_none() {
        op.progress.message_id = Some(assign_message_id(context, &mut op.work, part.op));
    }
    op.progress.packed += u64::from(part.len);
    op.progress.in_flight += 1;
    context.prompt = prompt;
    context.set_half_way(!ends);
    if ends {
        pop_finished_op(context, op);
    }
}

/// Takes the operation at the head of a context's queue off it, because all its packets were built.
#[inline]
fn pop_finished_op(context: &mut Context, op: &mut TxOp) {
    op.progress.all_packed = true;
    context.queue.pop_front();
    if context.queue.is_empty() {
        context.prompt = false;
    }
    context.set_half_way(false);
}

/// Builds a packet that is sent for the first time. The headers of an ordinary message are those of the
/// context's first one with other numbers.
#[inline]
fn emit_new(context: &mut Context, batch: &mut Batch, op: &TxOp, grant: &TxGrant, part: Part) {
    let Some(numbers) = packet::ordinary_numbers(op, grant, part) else {
        return emit_packet(&context.form, batch, context.dst, op, grant, part);
    };
    let start = batch.bytes.len();
    if let Some(headers) = context.headers.as_ref().filter(|headers| headers.fits(&grant.pds)) {
        let headers = headers.with(&numbers);
        debug_assert_eq!(headers[..], packet::headers(&context.form, op, grant, part)[..]);
        batch.bytes.extend_from_slice(&headers);
        return push_payload(batch, (context.dst, grant.path), op, start, part);
    }
    emit_packet(&context.form, batch, context.dst, op, grant, part);
    if let Some(packet) = batch.packets.last() {
        let end = start + packet::headers_len(&op.work) as usize;
        context.headers =
            MessageHeaders::of(&batch.bytes[start..end.min(packet.header.end as usize)]);
    }
}

/// Builds a packet of an operation: headers in the batch, and payload in the batch or by reference.
#[inline]
pub(super) fn emit_packet(
    form: &PacketForm,
    batch: &mut Batch,
    dst: SocketAddr,
    op: &TxOp,
    grant: &TxGrant,
    part: Part,
) {
    let start = batch.bytes.len();
    let mut headers = [0; MAX_HEADER];
    let len = packet::write_headers(form, op, grant, part, &mut headers);
    batch.bytes.extend_from_slice(&headers[..len]);
    push_payload(batch, (dst, grant.path), op, start, part);
}

/// Adds the payload to a packet whose headers end the batch's bytes, from `start` on.
#[inline]
fn push_payload(
    batch: &mut Batch,
    (dst, path): (SocketAddr, u16),
    op: &TxOp,
    start: usize,
    part: Part,
) {
    let headers = batch.bytes.len() - start;
    let (from, mut len) = (u64::from(part.offset), u64::from(part.len));
    let payload = batch.slices.len();
    if let Some(copied) = &op.bytes.copied {
        let from = part.offset as usize;
        batch.bytes.extend_from_slice(&copied[from..from + part.len as usize]);
    } else if op.lends() {
        op.bytes.buf.for_range(op.bytes.offset + from, len, |piece, _| {
            batch.slices.push(piece);
        });
    } else {
        len = 0;
    }
    let end = batch.bytes.len() as u32;
    batch.packets.push(Datagram {
        dst,
        path,
        class: TrafficClass::Data,
        len: (headers as u64 + len) as u32,
        header: start as u32..end,
        payload: payload as u32..batch.slices.len() as u32,
        trailer: end..end,
        tag: part.op.to_u64(),
        fragment: false,
        followers: 0,
    });
}

/// Assigns an operation its message id. For an operation that is answered on the same context this
/// includes a slot that no other operation uses.
pub(super) fn assign_message_id(context: &mut Context, work: &mut OpWork, op: Key) -> u16 {
    match work {
        OpWork::Eager => context.next_id(IdSpace::Message),
        OpWork::Rendezvous { .. } => {
            context.offers += 1;
            context.next_id(IdSpace::Message)
        }
        OpWork::Confirmed { slot, .. } => {
            *slot = context.slots.take(op);
            context.next_id(IdSpace::Message)
        }
        OpWork::Read { slot, .. } | OpWork::Fetch { slot, .. } => {
            *slot = context.slots.take(op);
            *slot
        }
        _ => context.next_id(IdSpace::OneSided),
    }
}

/// Adds a control packet, which has headers only, to a batch of packets to send.
pub(crate) fn push_control(
    batch: &mut Batch,
    dst: SocketAddr,
    path: u16,
    emit: impl FnOnce(&mut [u8]) -> usize,
) {
    push_whole(batch, (dst, path), MAX_HEADER, emit);
}

/// Adds a packet without user payload, of at most `most` bytes, to a batch of packets to send.
#[inline]
pub(crate) fn push_whole(
    batch: &mut Batch,
    (dst, path): (SocketAddr, u16),
    most: usize,
    emit: impl FnOnce(&mut [u8]) -> usize,
) {
    let start = batch.bytes.len();
    batch.bytes.resize(start + most, 0);
    let len = emit(&mut batch.bytes[start..]);
    batch.bytes.truncate(start + len);
    let slices = batch.slices.len() as u32;
    let end = (start + len) as u32;
    batch.packets.push(Datagram {
        dst,
        path,
        class: TrafficClass::Control,
        len: len as u32,
        header: start as u32..end,
        payload: slices..slices,
        trailer: end..end,
        tag: 0,
        fragment: false,
        followers: 0,
    });
}
