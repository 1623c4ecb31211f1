//! The headers of packets that carry operations.
//!
//! Some uses of standard headers are specific to this engine: the slot of a send with DC, the end of
//! a rendezvous, an answer that was cut off. `docs/wire.md` describes them.

use crate::access_groups::GroupTag;
use crate::atomics::atomic_size;
use crate::operation::MatchSpace;
use crate::ops::{
    AtomicFields, OpOwner, OpWork, RESOURCE_COLLECTIVE, RESOURCE_RENDEZVOUS, ReadOwner, ReadPart,
    TxOp,
};
use crate::packet_form::PacketForm;
use crate::part::Part;
use crate::reliability::{ControlPacket, TxGrant};
use crate::shm::record;
use crate::slab::Key;
use crate::wire::{
    self, AmoType, CompareSwap, Extension, MAX_HEADER, MessageNumbers, NextHeader, Opcode,
    PacketRun, Rendezvous, ResponseData, ReturnCode, StdBody, StdRequest,
};

/// Length in bytes of the headers of a request: PDS and SES header.
const REQUEST_HEADERS: u64 = 12 + 44;
/// Length in bytes of the headers of a packet with response data: PDS and SES header.
const RESPONSE_HEADERS: u64 = 12 + 20;

/// Returns the length in bytes of the headers of an operation's packets.
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

/// Returns the memory key of [`RESOURCE_RENDEZVOUS`] for a rendezvous send.
pub(super) const fn rendezvous_key(nonce: u32, op: Key) -> u64 {
    (nonce as u64) << 32 | op.index as u64
}

/// Splits a memory key of [`RESOURCE_RENDEZVOUS`] into the index and the nonce of the rendezvous
/// send.
pub(super) const fn split_rendezvous_key(key: u64) -> (u32, u32) {
    ((key & 0xffff_ffff) as u32, (key >> 32) as u32)
}

/// Writes the headers of a packet of an operation. Returns their length in bytes.
#[inline]
pub(super) fn write_headers(
    form: &PacketForm,
    op: &TxOp,
    grant: &TxGrant,
    part: Part,
    out: &mut [u8; MAX_HEADER],
) -> usize {
    let mut pds = grant.pds;
    if let OpWork::Response { read_id, cut, whole, .. } = op.work {
        pds.next = NextHeader::ResponseData;
        let n = pds.emit(out);
        n + response_header(form, op, part, (read_id, cut, whole)).emit(&mut out[n..])
    } else {
        pds.next = NextHeader::RequestStd;
        let n = pds.emit(out);
        n + request_header(form, op, part).emit(&mut out[n..])
    }
}

/// Returns a packet's headers as [`write_headers`] writes them, for comparison.
pub(super) fn headers(form: &PacketForm, op: &TxOp, grant: &TxGrant, part: Part) -> Vec<u8> {
    let mut out = [0; MAX_HEADER];
    let len = write_headers(form, op, grant, part, &mut out);
    out[..len].to_vec()
}

/// Returns the numbers in which the headers of two ordinary messages differ (one packet each, nothing
/// special asked: [`wire::MessageHeaders`]), or `None` if this packet is not such a message.
#[inline]
pub(super) fn ordinary_numbers(op: &TxOp, grant: &TxGrant, part: Part) -> Option<MessageNumbers> {
    let label = &op.label;
    let whole = part.offset == 0 && u64::from(part.len) == label.len;
    let ordinary = matches!(op.work, OpWork::Eager) && whole && label.data.is_none();
    let (tagged, tag) = match label.space {
        MatchSpace::Tagged => (true, label.tag),
        MatchSpace::Untagged => (false, 0),
        MatchSpace::Collective => return None,
    };
    let pds = &grant.pds;
    ordinary.then(|| MessageNumbers {
        psn: pds.psn,
        clear_psn_offset: pds.clear_psn_offset,
        ack_request: pds.ack_request,
        tagged,
        message_id: op.progress.message_id.unwrap_or(0),
        tag,
        len: part.len,
    })
}

/// Writes the head of a record that refers to its payload: an answer, a write or an offer. Returns
/// its length in bytes, or `None` for other operations.
pub(super) fn write_reference_head(
    form: &PacketForm,
    op: &TxOp,
    part: Part,
    out: &mut [u8; record::MAX_HEAD],
) -> Option<usize> {
    match op.work {
        OpWork::Response { read_id, cut: None, whole, .. } => {
            let header = response_header(form, op, part, (read_id, None, whole));
            Some(record::write_reference(
                &ResponseData { payload_length: 0, ..header },
                part.len,
                out,
            ))
        }
        OpWork::Write(_) => {
            Some(record::write_remote_write(&request_header(form, op, part), part.len, out))
        }
        OpWork::Rendezvous { .. } => {
            let header = request_header(form, op, Part { len: 0, ..part });
            Some(record::write_offer(&header, part.len, out))
        }
        _ => None,
    }
}

/// Writes the head of a record. Returns its length in bytes.
#[inline]
pub(super) fn write_record_head(
    form: &PacketForm,
    op: &TxOp,
    part: Part,
    out: &mut [u8; record::MAX_HEAD],
) -> usize {
    if let OpWork::Response { read_id, cut, whole, .. } = op.work {
        record::write_data(&response_header(form, op, part, (read_id, cut, whole)), out)
    } else {
        record::write_request(&request_header(form, op, part), out)
    }
}

/// Returns the run of packets that follow a packet with these `headers`, which was just written, if
/// they differ only in their numbers.
#[inline]
pub(super) fn following_run(
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

/// Returns the resource index of messages of a matching space.
#[inline]
const fn resource_index(space: MatchSpace) -> u16 {
    match space {
        MatchSpace::Untagged | MatchSpace::Tagged => 0,
        MatchSpace::Collective => RESOURCE_COLLECTIVE,
    }
}

#[inline]
fn request_header(form: &PacketForm, op: &TxOp, part: Part) -> StdRequest {
    let som = part.offset == 0;
    let eom = u64::from(part.offset) + u64::from(part.len) == op.payload_len();
    let tagged = op.label.space != MatchSpace::Untagged;
    let tag = if tagged { op.label.tag } else { 0 };
    let send = if tagged { Opcode::TaggedSend } else { Opcode::Send };
    let index = resource_index(op.label.space);
    let (opcode, buffer_offset, match_bits, resource) = match op.work {
        OpWork::Eager | OpWork::Deferred | OpWork::Unmatched { .. } => (send, 0, tag, index),
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
    let group = match op.owner {
        OpOwner::Group(_, group) => group,
        OpOwner::User(_) | OpOwner::Engine => GroupTag::NONE,
    };
    let (ri_generation, resource_index) = group.write(resource);
    StdRequest {
        opcode,
        delivery_complete: matches!(op.work, OpWork::Confirmed { .. }),
        initiator_error: matches!(
            op.work,
            OpWork::Read { owner: ReadOwner::End { failed: true }, .. }
        ),
        relative: form.relative,
        header_data_present: op.label.data.is_some(),
        eom,
        som,
        message_id: op.progress.message_id.unwrap_or(0),
        ri_generation,
        job_id: form.job_id,
        pid_on_fep: form.pid_on_fep,
        resource_index: form.index + resource_index,
        buffer_offset,
        initiator: form.initiator,
        match_bits,
        body: if som {
            StdBody::First { header_data: op.label.data.unwrap_or(0) }
        } else {
            // The payload of a packet has at most 14 bits.
            StdBody::Next { payload_length: part.len as u16, message_offset: part.offset }
        },
        // The length fits, as checked at submission.
        request_length: match op.work.amo() {
            Some(_) if op.payload_len() > 0 => op.payload_len() as u32,
            _ => op.label.len as u32,
        },
        extension: extension_header(form, op, part),
    }
}

fn extension_header(form: &PacketForm, op: &TxOp, part: Part) -> Extension {
    if let Some(amo) = op.work.amo() {
        return atomic_header(amo, op.bytes.copied.as_deref().unwrap_or_default());
    }
    let OpWork::Rendezvous { nonce, .. } = op.work else { return Extension::None };
    Extension::Rendezvous(Rendezvous {
        eager_length: 0,
        ri_generation: 0,
        pid_on_fep: form.pid_on_fep,
        resource_index: RESOURCE_RENDEZVOUS,
        read_offset: 0,
        memory_key: rendezvous_key(nonce, part.op),
    })
}

/// Returns the extension header of an atomic with these operands.
fn atomic_header(amo: AtomicFields, operands: &[u8]) -> Extension {
    let AtomicFields { op, data_type } = amo;
    let cpu_coherent = is_coherent(data_type);
    let atomic = wire::Atomic { op, data_type, cacheable: false, cpu_coherent };
    if !op.is_compare_swap() {
        return Extension::Atomic(atomic);
    }
    let (swap, compare) = operands.split_at(operands.len() / 2);
    Extension::CompareSwap(CompareSwap {
        atomic,
        compare: read_number(compare),
        swap: read_number(swap),
    })
}

/// Reads a value of at most 16 bytes as a number.
fn read_number(value: &[u8]) -> u128 {
    let mut all = [0; 16];
    if cfg!(target_endian = "little") {
        all[..value.len()].copy_from_slice(value);
    } else {
        all[16 - value.len()..].copy_from_slice(value);
    }
    u128::from_ne_bytes(all)
}

/// Returns whether the engine's updates of values of this type are atomic with respect to the CPU's
/// own atomic instructions.
fn is_coherent(data_type: AmoType) -> bool {
    atomic_size(data_type) <= 8
}

fn response_header(
    form: &PacketForm,
    op: &TxOp,
    part: Part,
    (read_id, cut, whole): (u16, Option<ReturnCode>, ReadPart),
) -> ResponseData {
    // A packet that was planned with payload stands for that part. One without stands for all data
    // that was not sent.
    let stands_for = match part.len {
        0 => op.label.len.saturating_sub(u64::from(part.offset)) as u32,
        len => len,
    };
    ResponseData {
        list: wire::List::Expected,
        return_code: cut.unwrap_or(ReturnCode::Ok),
        response_message_id: op.progress.message_id.unwrap_or(0),
        job_id: form.job_id,
        read_request_message_id: read_id,
        // A record that refers to its payload may have a longer one, which it does not contain.
        payload_length: if cut.is_some() { 0 } else { u16::try_from(part.len).unwrap_or(0) },
        modified_length: if cut.is_some() { stands_for } else { whole.total },
        message_offset: whole.offset + part.offset,
    }
}

/// Writes a packet that carries no data. Returns its length in bytes.
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
