//! Packets that leave: acknowledgements, retransmissions, then new packets of the queued operations,
//! contexts in turn.
//!
//! Two uses of standard headers are the engine's own choice. A send with DC carries in
//! `buffer_offset`, which sends do not use, the slot in which it waits for an answer; the answer is
//! response data without payload, in the order of the return direction. And a rendezvous send ends
//! with a read that reaches the end of its buffer, if need be an empty one; one with IE (initiator error)
//! set says that the receiver could not read it all.

use core::net::SocketAddr;

use super::{Engine, Part, RESOURCE_RENDEZVOUS};
use crate::api::Class;
use crate::base::Time;
use crate::batch::{Batch, TxPacket};
use crate::memory::Seg;
use crate::ops::{ReadOwner, TxOp, Work};
use crate::reliability::{Blocked, CREDIT_HEADER, ControlOut, ControlPacket, PdcId, TxGrant};
use crate::wire::{
    self, Extension, MAX_HEADER, NextHeader, Opcode, Rendezvous, ResponseData, StdBody, StdRequest,
};

/// Packets a context may send before the next one gets its turn.
const QUANTUM: usize = 16;
/// `payload_length` has 14 bits.
const MAX_PAYLOAD: u64 = 0x3fff;
/// Bytes before the payload of a request: PDS and SES header.
const REQUEST_HEADERS: u64 = 12 + 44;
/// Bytes before the payload of response data.
const RESPONSE_HEADERS: u64 = 12 + 20;

/// Operations looked at to tell how much waits on a context.
const BACKLOG_OPS: usize = 64;

/// What the context at the head of the line could do.
enum Turn {
    /// It sent something and may have more.
    More,
    /// It has nothing left, or must wait for an event.
    Done,
}

impl Engine {
    /// Adds packets that may leave now to `batch`, up to the configured number. True when there is
    /// more to ask for.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        let limit = batch.packets.len() + self.config.batch_packets;
        while let Some((dst, nack)) = self.strays.pop_front() {
            push_control(batch, dst, 0, |out| nack.emit(out));
        }
        while let Some(control) = self.pdcs.poll_control(now) {
            self.push_control_out(batch, &control);
        }
        while batch.packets.len() < limit {
            let Some(id) = self.active.pop_front() else { break };
            match self.take_turn(now, id, batch, limit) {
                Turn::More => self.active.push_back(id),
                Turn::Done => {
                    if let Some(context) = self.context_mut(id) {
                        context.active = false;
                    }
                }
            }
            self.drain_events(now);
        }
        !self.active.is_empty()
    }

    fn push_control_out(&self, batch: &mut Batch, control: &ControlOut) {
        let dst = self.peers[control.peer.0 as usize].addr;
        match &control.packet {
            ControlPacket::Ack { pds, response } => push_control(batch, dst, control.path, |out| {
                let n = pds.emit(out);
                n + response.as_ref().map_or(0, |r| r.emit(&mut out[n..]))
            }),
            ControlPacket::Nack(nack) => {
                push_control(batch, dst, control.path, |out| nack.emit(out));
            }
            ControlPacket::Control(control_packet) => {
                push_control(batch, dst, control.path, |out| control_packet.emit(out));
            }
        }
    }

    fn take_turn(&mut self, now: Time, id: PdcId, batch: &mut Batch, limit: usize) -> Turn {
        for _ in 0..QUANTUM {
            if batch.packets.len() >= limit {
                return Turn::More;
            }
            if let Some((grant, part)) = self.pdcs.poll_retransmit(now, id) {
                self.emit(batch, id, &grant, part);
                continue;
            }
            match self.next_new(now, id, batch) {
                Ok(true) => {}
                Ok(false) | Err(Blocked::Wait | Blocked::Gone | Blocked::Retransmit) => {
                    return Turn::Done;
                }
                Err(Blocked::Closing) => {
                    self.reopen(now, id);
                    return Turn::Done;
                }
            }
        }
        Turn::More
    }

    /// Sends the next packet of the operation at the head of a context's queue. False when the queue
    /// is empty.
    fn next_new(&mut self, now: Time, id: PdcId, batch: &mut Batch) -> Result<bool, Blocked> {
        let Some(context) = self.contexts.get(id.index()).and_then(Option::as_deref) else {
            return Ok(false);
        };
        let Some(&ix) = context.queue.front() else { return Ok(false) };
        let alone = context.queue.len() == 1;
        let Some(op) = self.ops.get(ix) else {
            // It ended while it was queued.
            if let Some(context) = self.context_mut(id) {
                context.queue.pop_front();
            }
            return Ok(true);
        };
        let credits = self.pdcs.config().credits();
        let extra = if credits { CREDIT_HEADER } else { 0 };
        let room = max_payload(self.config.max_packet - extra, &op.work);
        let left = op.payload_len() - op.packed;
        let len = left.min(room);
        let ends = len == left;
        let part = Part { op: ix, offset: op.packed as u32, len: len as u16 };
        let packet = crate::reliability::NewPacket {
            desc: part,
            bytes: (headers(&op.work) + len) as u32 + extra,
            last: ends && alone,
            prompt: op.wants_prompt_ack() || context.prompt,
            backlog: if credits { self.behind(context) - len } else { 0 },
        };
        let grant = self.pdcs.next_packet(now, id, &packet)?;
        self.pack(now, id, ix, len, ends);
        self.emit(batch, id, &grant, part);
        Ok(true)
    }

    /// Bytes that wait on a context, as far as its next operations tell: more than anybody grants.
    fn behind(&self, context: &super::Context) -> u64 {
        let ops = context.queue.iter().take(BACKLOG_OPS).filter_map(|&ix| self.ops.get(ix));
        ops.map(|op| op.payload_len() - op.packed + headers(&op.work)).sum()
    }

    /// Accounts for a packet of an operation that is about to be built.
    fn pack(&mut self, now: Time, id: PdcId, ix: u32, len: u64, ends: bool) {
        let Some(context) = self.contexts.get_mut(id.index()).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some(op) = self.ops.get_mut(ix) else { return };
        if op.message_id.is_none() {
            op.message_id = Some(match &mut op.work {
                Work::Eager => next_id(&mut context.next_message),
                Work::Rendezvous { .. } => {
                    context.offers += 1;
                    next_id(&mut context.next_message)
                }
                Work::Confirmed { slot, .. } => {
                    *slot = read_slot(context, ix);
                    next_id(&mut context.next_message)
                }
                Work::Read { slot, .. } => {
                    *slot = read_slot(context, ix);
                    *slot
                }
                _ => next_id(&mut context.next_rma),
            });
        }
        // A message does not move to another context half-way, and a read waits for its data on this
        // one: the context must not close under them.
        let began = op.packed == 0 && !ends || op.work.is_answered();
        let half_way = op.packed > 0;
        op.packed += len;
        op.in_flight += 1;
        self.counters.tx_payload_bytes += len;
        context.prompt = !ends || context.prompt || op.wants_prompt_ack();
        if ends {
            op.packed_all = true;
            context.queue.pop_front();
            if context.queue.is_empty() {
                context.prompt = false;
            }
        }
        if began {
            self.pdcs.set_busy(now, id, true);
        } else if ends && half_way && !context.is_awaiting() {
            self.pdcs.set_busy(now, id, false);
        }
    }

    /// Builds a packet: headers into the batch, payload by reference.
    fn emit(&self, batch: &mut Batch, id: PdcId, grant: &TxGrant, part: Part) {
        let Some(op) = self.ops.get(part.op) else { return };
        let Some(context) = self.context(id) else { return };
        let dst = self.peers[context.peer.0 as usize].addr;
        let start = batch.bytes.len();
        batch.bytes.resize(start + MAX_HEADER, 0);
        let out = &mut batch.bytes[start..];
        let mut pds = grant.pds;
        let written = if matches!(op.work, Work::Response { .. }) {
            pds.next = NextHeader::ResponseData;
            let n = pds.emit(out);
            n + self.response_header(op, part).emit(&mut out[n..])
        } else {
            pds.next = NextHeader::RequestStd;
            let n = pds.emit(out);
            n + self.request_header(op, part).emit(&mut out[n..])
        };
        batch.bytes.truncate(start + written);
        let (from, len) = (u64::from(part.offset), u64::from(part.len));
        let payload = batch.segs.len();
        if op.injected {
            batch.bytes.extend_from_slice(&op.inline[from as usize..(from + len) as usize]);
        } else if len > 0 {
            op.buf.for_range(op.buf_offset + from, len, |base, _, len| {
                batch.segs.push(Seg { base, len });
            });
        }
        batch.packets.push(TxPacket {
            dst,
            path: grant.path,
            control: false,
            len: (written as u64 + len) as u32,
            header: start as u32..batch.bytes.len() as u32,
            payload: payload as u32..batch.segs.len() as u32,
        });
    }

    fn request_header(&self, op: &TxOp, part: Part) -> StdRequest {
        let som = part.offset == 0;
        let eom = u64::from(part.offset) + u64::from(part.len) == op.payload_len();
        let (opcode, buffer_offset, match_bits, resource_index) = match op.work {
            Work::Eager if op.class == Class::Tagged => (Opcode::TaggedSend, 0, op.tag, 0),
            Work::Eager => (Opcode::Send, 0, 0, 0),
            Work::Confirmed { slot, .. } if op.class == Class::Tagged => {
                (Opcode::TaggedSend, u64::from(slot), op.tag, 0)
            }
            Work::Confirmed { slot, .. } => (Opcode::Send, u64::from(slot), 0, 0),
            Work::Rendezvous { .. } if op.class == Class::Tagged => {
                (Opcode::RendezvousTsend, 0, op.tag, 0)
            }
            Work::Rendezvous { .. } => (Opcode::RendezvousSend, 0, 0, 0),
            Work::Write(remote) => (Opcode::Write, remote.address, remote.key, 0),
            Work::Read { remote, resource, .. } => {
                (Opcode::Read, remote.address, remote.key, resource)
            }
            Work::Hello | Work::Response { .. } | Work::Group { .. } => (Opcode::NoOp, 0, 0, 0),
        };
        StdRequest {
            opcode,
            delivery_complete: matches!(op.work, Work::Confirmed { .. }),
            initiator_error: matches!(
                op.work,
                Work::Read { owner: ReadOwner::End { failed: true }, .. }
            ),
            relative: false,
            header_data_present: op.data.is_some(),
            eom,
            som,
            message_id: op.message_id.unwrap_or(0),
            ri_generation: 0,
            job_id: self.config.job_id,
            pid_on_fep: self.config.pid_on_fep,
            resource_index,
            buffer_offset,
            initiator: u32::from(self.config.epoch) << 16 | u32::from(self.config.port),
            match_bits,
            body: if som {
                StdBody::First { header_data: op.data.unwrap_or(0) }
            } else {
                StdBody::Next { payload_length: part.len, message_offset: part.offset }
            },
            request_length: op.len as u32,
            extension: self.extension(op, part),
        }
    }

    fn extension(&self, op: &TxOp, part: Part) -> Extension {
        let Work::Rendezvous { nonce, .. } = op.work else { return Extension::None };
        Extension::Rendezvous(Rendezvous {
            eager_length: 0,
            ri_generation: 0,
            pid_on_fep: self.config.pid_on_fep,
            resource_index: RESOURCE_RENDEZVOUS,
            read_offset: 0,
            memory_key: u64::from(nonce) << 32 | u64::from(part.op),
        })
    }

    fn response_header(&self, op: &TxOp, part: Part) -> ResponseData {
        let read_id = match op.work {
            Work::Response { read_id, .. } => read_id,
            _ => 0,
        };
        ResponseData {
            list: wire::List::Expected,
            return_code: wire::ReturnCode::Ok,
            response_message_id: op.message_id.unwrap_or(0),
            job_id: self.config.job_id,
            read_request_message_id: read_id,
            payload_length: part.len,
            modified_length: op.len as u32,
            message_offset: part.offset,
        }
    }
}

/// Gives a READ its id: a slot that no other read of the context uses.
fn read_slot(context: &mut super::Context, op: u32) -> u16 {
    if let Some(slot) = context.free_reads.pop() {
        context.reads[usize::from(slot)] = Some(op);
        return slot;
    }
    context.reads.push(Some(op));
    // `max_outstanding` and the rendezvous messages being pulled stay far below 2^16.
    (context.reads.len() - 1) as u16
}

fn next_id(counter: &mut u16) -> u16 {
    let id = *counter;
    *counter = counter.wrapping_add(1);
    id
}

const fn headers(work: &Work) -> u64 {
    match work {
        Work::Response { .. } => RESPONSE_HEADERS,
        Work::Rendezvous { .. } => REQUEST_HEADERS + 24,
        _ => REQUEST_HEADERS,
    }
}

fn max_payload(max_packet: u32, work: &Work) -> u64 {
    let room = u64::from(max_packet).saturating_sub(headers(work));
    // Whole cache lines, unless the packet is too small for that to matter.
    let room = if room >= 1024 { room & !63 } else { room };
    room.clamp(1, MAX_PAYLOAD)
}

fn push_control(
    batch: &mut Batch,
    dst: SocketAddr,
    path: u16,
    emit: impl FnOnce(&mut [u8]) -> usize,
) {
    let start = batch.bytes.len();
    batch.bytes.resize(start + MAX_HEADER, 0);
    let len = emit(&mut batch.bytes[start..]);
    batch.bytes.truncate(start + len);
    let segs = batch.segs.len() as u32;
    batch.packets.push(TxPacket {
        dst,
        path,
        control: true,
        len: len as u32,
        header: start as u32..(start + len) as u32,
        payload: segs..segs,
    });
}
