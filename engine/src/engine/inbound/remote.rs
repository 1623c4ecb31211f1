//! Packets of one-sided operations: writes and reads of peers, and the answers to our reads.

use super::super::{PartialWrite, RESOURCE_MEMORY, RESOURCE_RENDEZVOUS};
use super::{Engine, Taken};
use crate::api::{OpError, PeerId};
use crate::base::Time;
use crate::memory::{Access, Buf, KeyError, Memory, Seg};
use crate::ops::{NewOp, Work};
use crate::reliability::PdcId;
use crate::wire::{Opcode, ResponseData, ReturnCode, StdBody, StdRequest};

impl Engine {
    /// A request of the context's initiator.
    #[allow(clippy::too_many_arguments)] // one packet, in its parts
    pub(super) fn take_request<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: PdcId,
        peer: PeerId,
        request: &StdRequest,
        payload: &[u8],
    ) -> Taken {
        match request.opcode {
            Opcode::Send
            | Opcode::TaggedSend
            | Opcode::RendezvousSend
            | Opcode::RendezvousTsend => self.take_message(now, mem, id, peer, request, payload),
            Opcode::Write => self.take_write(mem, id, request, payload),
            Opcode::Read => self.take_read(now, mem, id, peer, request),
            Opcode::NoOp => Taken::Yes(None),
            _ => Taken::Yes(self.response(ReturnCode::UnsupportedOp, request.message_id)),
        }
    }

    fn refuse_access(&mut self, error: KeyError, message_id: u16) -> Taken {
        self.counters.rx_access_refused += 1;
        let code = match error {
            KeyError::BadKey => ReturnCode::BadMkey,
            KeyError::OutOfRange => ReturnCode::AtOutOfRange,
            KeyError::Permission => ReturnCode::AtPerm,
        };
        Taken::Yes(self.response(code, message_id))
    }

    fn take_write<M: Memory>(
        &mut self,
        mem: &mut M,
        id: PdcId,
        request: &StdRequest,
        payload: &[u8],
    ) -> Taken {
        let total = u64::from(request.request_length);
        let (offset, data) = match request.body {
            StdBody::First { header_data } => (0, Some(header_data)),
            StdBody::Next { message_offset, .. } => (u64::from(message_offset), None),
        };
        let len = payload.len() as u64;
        if offset + len > total {
            return Taken::No;
        }
        // Every packet is checked for the whole range, so that a write is all or nothing as far as
        // keys and bounds go.
        let whole =
            mem.resolve(request.match_bits, request.buffer_offset, total, Access::RemoteWrite);
        if let Err(error) = whole {
            return self.refuse_access(error, request.message_id);
        }
        let mut done = 0;
        while done < len {
            let at = request.buffer_offset.wrapping_add(offset + done);
            match mem.resolve(request.match_bits, at, len - done, Access::RemoteWrite) {
                Ok(seg) => {
                    let (from, n) = (done as usize, seg.len.min(len - done) as usize);
                    mem.write(seg.base, &payload[from..from + n]);
                    done += n as u64;
                }
                Err(error) => return self.refuse_access(error, request.message_id),
            }
        }
        self.counters.rx_payload_bytes += len;
        if request.header_data_present {
            self.note_write(id, request.message_id, len, total, data);
        }
        Taken::Yes(None)
    }

    /// Counts the bytes of a write that reports remote CQ data, and reports when all are here.
    fn note_write(&mut self, id: PdcId, message_id: u16, len: u64, total: u64, data: Option<u64>) {
        if let (Some(data), true) = (data, len == total) {
            self.complete_remote_write(id, total, data);
            return;
        }
        let Some(context) = self.context_mut(id) else { return };
        let write = context.writes.entry(message_id).or_insert(PartialWrite::default());
        write.received += len;
        write.data = write.data.or(data);
        if let (Some(data), true) = (write.data, write.received >= total) {
            context.writes.remove(&message_id);
            self.complete_remote_write(id, total, data);
        }
    }

    fn take_read<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: PdcId,
        peer: PeerId,
        request: &StdRequest,
    ) -> Taken {
        let len = u64::from(request.request_length);
        let (key, offset) = (request.match_bits, request.buffer_offset);
        let (pieces, source) = match request.resource_index {
            RESOURCE_MEMORY => match resolve_all(mem, key, offset, len) {
                Ok(pieces) => (pieces, None),
                Err(error) => return self.refuse_access(error, request.message_id),
            },
            RESOURCE_RENDEZVOUS => match self.offered(peer, key, offset, len) {
                Ok((pieces, (source, _))) if request.initiator_error => {
                    self.finish_op(now, source, Some(OpError::Closed));
                    (pieces, None)
                }
                Ok((pieces, source)) => (pieces, Some(source)),
                Err(error) => return self.refuse_access(error, request.message_id),
            },
            _ => return Taken::Yes(self.response(ReturnCode::BadIndex, request.message_id)),
        };
        let work =
            Work::Response { read_id: request.message_id, source, end: offset.wrapping_add(len) };
        let mut new = NewOp::internal(work, peer);
        new.buf = pieces;
        new.len = len;
        let op = self.ops.add(new);
        if let Some(op) = self.ops.get_mut(op) {
            op.silent = true;
        }
        self.queue_on(id, op);
        Taken::Yes(None)
    }

    /// Part of a buffer that was offered to `peer` by rendezvous, and the operation that offered it.
    fn offered(
        &self,
        peer: PeerId,
        key: u64,
        offset: u64,
        len: u64,
    ) -> Result<(Buf, (u32, u32)), KeyError> {
        let (ix, nonce) = ((key & 0xffff_ffff) as u32, (key >> 32) as u32);
        let op = self.ops.get(ix).filter(|op| op.peer == peer).ok_or(KeyError::BadKey)?;
        let Work::Rendezvous { nonce: expected, ended: false, .. } = op.work else {
            return Err(KeyError::BadKey);
        };
        if expected != nonce {
            return Err(KeyError::BadKey);
        }
        if offset.checked_add(len).is_none_or(|end| end > op.len) {
            return Err(KeyError::OutOfRange);
        }
        Ok((slice(&op.buf, offset, len), (ix, nonce)))
    }

    /// Data that one of our reads asked for.
    pub(super) fn take_response<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        id: PdcId,
        header: &ResponseData,
        payload: &[u8],
    ) -> Taken {
        let slot = usize::from(header.read_request_message_id);
        let op = self.context(id).and_then(|c| c.reads.get(slot).copied().flatten());
        let Some(ix) = op else { return Taken::No };
        let Some(op) = self.ops.get_mut(ix) else { return Taken::No };
        if matches!(op.work, Work::Confirmed { .. }) {
            self.confirmed(now, ix);
            return Taken::Yes(None);
        }
        let offset = u64::from(header.message_offset);
        let len = payload.len() as u64;
        let total = op.len;
        if offset + len > total {
            return Taken::No;
        }
        op.buf.for_range(op.buf_offset + offset, len, |address, position, n| {
            let from = position as usize;
            mem.write(address, &payload[from..from + n as usize]);
        });
        let Work::Read { received, .. } = &mut op.work else { return Taken::No };
        *received += len;
        let done = *received >= total;
        self.counters.rx_payload_bytes += len;
        if done {
            self.finish_op(now, ix, None);
        }
        Taken::Yes(None)
    }
}

/// All contiguous pieces of a registered range.
fn resolve_all<M: Memory>(mem: &M, key: u64, address: u64, len: u64) -> Result<Buf, KeyError> {
    let first = mem.resolve(key, address, len, Access::RemoteRead)?;
    if len == 0 {
        return Ok(Buf::Empty);
    }
    if first.len >= len {
        return Ok(Buf::new(first.base, len));
    }
    let mut pieces = vec![first];
    let mut done = first.len;
    while done < len {
        let mut seg =
            mem.resolve(key, address.wrapping_add(done), len - done, Access::RemoteRead)?;
        seg.len = seg.len.min(len - done);
        if seg.len == 0 {
            return Err(KeyError::OutOfRange);
        }
        done += seg.len;
        pieces.push(seg);
    }
    Ok(Buf::from_segs(&pieces))
}

/// A part of a buffer as a buffer.
fn slice(buf: &Buf, offset: u64, len: u64) -> Buf {
    if let Buf::One(seg) = buf {
        return Buf::new(seg.base.wrapping_add(offset), len.min(seg.len.saturating_sub(offset)));
    }
    let mut pieces: Vec<Seg> = Vec::new();
    buf.for_range(offset, len, |base, _, len| pieces.push(Seg { base, len }));
    Buf::from_segs(&pieces)
}
