//! The headers of packets that carry operations.
//!
//! Three uses of standard headers are the engine's own choice. A send with DC carries in
//! `buffer_offset`, which sends do not use, the slot in which it waits for an answer; the answer is
//! response data without payload, in the order of the return direction. A rendezvous send ends
//! with a read that reaches the end of its buffer, if need be an empty one; one with IE (initiator error)
//! set says that the receiver could not read it all. And response data with another return code than OK
//! says that an answer was cut off: it has no payload, and in `modified_length` the number of bytes from
//! `message_offset` on that it stands for.

use super::RESOURCE_RENDEZVOUS;
use crate::api::MatchSpace;
use crate::atomics::atomic_size;
use crate::config::Config;
use crate::links::frame;
use crate::ops::{AtomicFields, OpWork, Part, ReadOwner, TxOp};
use crate::outbound::RESOURCE_COLLECTIVE;
use crate::peers::Initiator;
use crate::reliability::{ControlPacket, TxGrant};
use crate::slab::Key;
use crate::wire::{
    self, AmoType, CompareSwap, Extension, MAX_HEADER, NextHeader, Opcode, PacketRun, Rendezvous,
    ResponseData, ReturnCode, StdBody, StdRequest,
};

/// `payload_length` has 14 bits.
const MAX_PAYLOAD: u64 = 0x3fff;
/// Bytes before the payload of a request: PDS and SES header.
const REQUEST_HEADERS: u64 = 12 + 44;
/// Bytes before the payload of response data.
const RESPONSE_HEADERS: u64 = 12 + 20;

/// Bytes before the payload.
#[inline]
pub(super) const fn headers_len(work: &OpWork) -> u64 {
    match work {
        OpWork::Response { .. } => RESPONSE_HEADERS,
        OpWork::Rendezvous { .. } => REQUEST_HEADERS + 24,
        OpWork::Update { amo, .. } | OpWork::Fetch { amo, .. } if amo.op.is_compare_swap() => {
            REQUEST_HEADERS + CompareSwap::LEN as u64
        }
        OpWork::Update { .. } | OpWork::Fetch { .. } => REQUEST_HEADERS + wire::Atomic::LEN as u64,
        _ => REQUEST_HEADERS,
    }
}

/// Payload bytes a packet has room for.
#[inline]
pub(super) fn max_payload(max_packet: u32, headers: u64) -> u64 {
    let room = u64::from(max_packet).saturating_sub(headers);
    // Whole cache lines, unless the packet is too small for that to matter.
    let room = if room >= 1024 { room & !63 } else { room };
    room.clamp(1, MAX_PAYLOAD)
}

/// The memory key of [`RESOURCE_RENDEZVOUS`] that names a rendezvous send.
pub(super) const fn rendezvous_key(nonce: u32, op: Key) -> u64 {
    (nonce as u64) << 32 | op.index as u64
}

/// The rendezvous send that a memory key of [`RESOURCE_RENDEZVOUS`] names: index and nonce.
pub(super) const fn split_rendezvous_key(key: u64) -> (u32, u32) {
    ((key & 0xffff_ffff) as u32, (key >> 32) as u32)
}

/// Writes a packet's headers; how many bytes.
#[inline]
pub(super) fn write_headers(
    config: &Config,
    op: &TxOp,
    grant: &TxGrant,
    part: Part,
    out: &mut [u8; MAX_HEADER],
) -> usize {
    let mut pds = grant.pds;
    if let OpWork::Response { read_id, cut, .. } = op.work {
        pds.next = NextHeader::ResponseData;
        let n = pds.emit(out);
        n + response_header(config, op, part, read_id, cut).emit(&mut out[n..])
    } else {
        pds.next = NextHeader::RequestStd;
        let n = pds.emit(out);
        n + request_header(config, op, part).emit(&mut out[n..])
    }
}

/// Writes the head of a frame that refers to its payload, of an answer, a write or an offer; how many bytes.
pub(super) fn write_reference_head(
    config: &Config,
    op: &TxOp,
    part: Part,
    out: &mut [u8; frame::MAX_HEAD],
) -> Option<usize> {
    match op.work {
        OpWork::Response { read_id, cut: None, .. } => {
            let header = response_header(config, op, part, read_id, None);
            Some(frame::reference(&ResponseData { payload_length: 0, ..header }, part.len, out))
        }
        OpWork::Write(_) => Some(frame::write(&request_header(config, op, part), part.len, out)),
        OpWork::Rendezvous { .. } => {
            let header = request_header(config, op, Part { len: 0, ..part });
            Some(frame::offer(&header, part.len, out))
        }
        _ => None,
    }
}

/// Writes the head of a frame; how many bytes.
#[inline]
pub(super) fn write_frame_head(
    config: &Config,
    op: &TxOp,
    part: Part,
    out: &mut [u8; frame::MAX_HEAD],
) -> usize {
    if let OpWork::Response { read_id, cut, .. } = op.work {
        frame::data(&response_header(config, op, part, read_id, cut), out)
    } else {
        frame::request(&request_header(config, op, part), out)
    }
}

/// The headers of what follows a packet that was just written, with these `headers`, if that is simple.
#[inline]
pub(super) fn run_after(
    headers: &[u8],
    op: &TxOp,
    grant: &TxGrant,
    part: Part,
) -> Option<PacketRun> {
    let next = match op.work {
        OpWork::Response { .. } => NextHeader::ResponseData,
        _ => NextHeader::RequestStd,
    };
    PacketRun::after(headers, &wire::Request { next, ..grant.pds }, part.len as usize)
}

/// The resource index of messages.
#[inline]
const fn index_of(space: MatchSpace) -> u16 {
    match space {
        MatchSpace::Untagged | MatchSpace::Tagged => 0,
        MatchSpace::Collective => RESOURCE_COLLECTIVE,
    }
}

#[inline]
fn request_header(config: &Config, op: &TxOp, part: Part) -> StdRequest {
    let som = part.offset == 0;
    let eom = u64::from(part.offset) + u64::from(part.len) == op.payload_len();
    let tagged = op.label.space != MatchSpace::Untagged;
    let tag = if tagged { op.label.tag } else { 0 };
    let send = if tagged { Opcode::TaggedSend } else { Opcode::Send };
    let index = index_of(op.label.space);
    let (opcode, buffer_offset, match_bits, resource_index) = match op.work {
        OpWork::Eager | OpWork::Deferred => (send, 0, tag, index),
        OpWork::Confirmed { slot, .. } => (send, u64::from(slot), tag, index),
        OpWork::Rendezvous { .. } if tagged => (Opcode::RendezvousTsend, 0, tag, index),
        OpWork::Rendezvous { .. } => (Opcode::RendezvousSend, 0, 0, index),
        OpWork::Write(remote) => (Opcode::Write, remote.address, remote.key, 0),
        OpWork::Read { remote, resource, .. } => {
            (Opcode::Read, remote.address, remote.key, resource)
        }
        OpWork::Update { remote, .. } => (Opcode::Atomic, remote.address, remote.key, 0),
        OpWork::Fetch { remote, .. } => (Opcode::FetchingAtomic, remote.address, remote.key, 0),
        OpWork::Question { subject, .. } => {
            (Opcode::NoOp, subject.number, subject.key, subject.kind)
        }
        OpWork::Response { .. } | OpWork::Group { .. } => (Opcode::NoOp, 0, 0, 0),
    };
    StdRequest {
        opcode,
        delivery_complete: matches!(op.work, OpWork::Confirmed { .. }),
        initiator_error: matches!(
            op.work,
            OpWork::Read { owner: ReadOwner::End { failed: true }, .. }
        ),
        relative: false,
        header_data_present: op.label.data.is_some(),
        eom,
        som,
        message_id: op.progress.message_id.unwrap_or(0),
        ri_generation: 0,
        job_id: config.job_id,
        pid_on_fep: config.pid_on_fep,
        resource_index,
        buffer_offset,
        initiator: Initiator { port: config.port, tag: config.instance.tag() }.field(),
        match_bits,
        body: if som {
            StdBody::First { header_data: op.label.data.unwrap_or(0) }
        } else {
            // A payload has 14 bits.
            StdBody::Next { payload_length: part.len as u16, message_offset: part.offset }
        },
        // At most `MAX_LEN`, checked when it was submitted.
        request_length: match op.work.amo() {
            Some(_) if op.payload_len() > 0 => op.payload_len() as u32,
            _ => op.label.len as u32,
        },
        extension: extension(config, op, part),
    }
}

fn extension(config: &Config, op: &TxOp, part: Part) -> Extension {
    if let Some(amo) = op.work.amo() {
        return atomic(amo, op.bytes.copied.as_deref().unwrap_or_default());
    }
    let OpWork::Rendezvous { nonce, .. } = op.work else { return Extension::None };
    Extension::Rendezvous(Rendezvous {
        eager_length: 0,
        ri_generation: 0,
        pid_on_fep: config.pid_on_fep,
        resource_index: RESOURCE_RENDEZVOUS,
        read_offset: 0,
        memory_key: rendezvous_key(nonce, part.op),
    })
}

/// The extension header of an atomic with these operands.
fn atomic(amo: AtomicFields, operands: &[u8]) -> Extension {
    let AtomicFields { op, data_type } = amo;
    let cpu_coherent = is_coherent(data_type);
    let atomic = wire::Atomic { op, data_type, cacheable: false, cpu_coherent };
    if !op.is_compare_swap() {
        return Extension::Atomic(atomic);
    }
    let (swap, compare) = operands.split_at(operands.len() / 2);
    Extension::CompareSwap(CompareSwap { atomic, compare: number(compare), swap: number(swap) })
}

/// A value of at most 16 bytes as a number.
fn number(value: &[u8]) -> u128 {
    let mut all = [0; 16];
    if cfg!(target_endian = "little") {
        all[..value.len()].copy_from_slice(value);
    } else {
        all[16 - value.len()..].copy_from_slice(value);
    }
    u128::from_ne_bytes(all)
}

/// Whether the CPU's own atomics and ours see each other's values of this type as a whole.
fn is_coherent(data_type: AmoType) -> bool {
    atomic_size(data_type) <= 8
}

fn response_header(
    config: &Config,
    op: &TxOp,
    part: Part,
    read_id: u16,
    cut: Option<ReturnCode>,
) -> ResponseData {
    // A packet for which bytes were planned, or the one that stands for all that were not.
    let stands_for = match part.len {
        0 => op.label.len.saturating_sub(u64::from(part.offset)) as u32,
        len => len,
    };
    ResponseData {
        list: wire::List::Expected,
        return_code: cut.unwrap_or(ReturnCode::Ok),
        response_message_id: op.progress.message_id.unwrap_or(0),
        job_id: config.job_id,
        read_request_message_id: read_id,
        // What a frame refers to may be longer, and is not in it.
        payload_length: if cut.is_some() { 0 } else { u16::try_from(part.len).unwrap_or(0) },
        modified_length: if cut.is_some() { stands_for } else { op.label.len as u32 },
        message_offset: part.offset,
    }
}

/// Writes a packet that carries no data; how many bytes.
pub(crate) fn emit_control(packet: &ControlPacket, out: &mut [u8]) -> usize {
    match packet {
        ControlPacket::Ack { pds, response } => {
            let n = pds.emit(out);
            n + response.as_ref().map_or(0, |r| r.emit(&mut out[n..]))
        }
        ControlPacket::Nack(nack) => nack.emit(out),
        ControlPacket::Control(control) => control.emit(out),
    }
}
