//! One-sided operations of peers on registered memory.

use std::collections::HashMap;

use crate::api::{Completion, MatchSpace, OpKind, PeerId, Visibility};
use crate::base::{RegionId, UserSlice};
use crate::channel::ChannelId;
use crate::counters::Counters;
use crate::memory::{Access, Buf, KeyError, Memory};
use crate::outbound::Answer;
use crate::step::Step;
use crate::wire::{ReturnCode, StdBody, StdRequest};

/// A multi-packet write that reports remote CQ data.
#[derive(Clone, Copy, Debug, Default)]
struct PartialWrite {
    received: u64,
    data: Option<u64>,
}

/// A packet of a write contradicts itself.
pub(crate) struct Inconsistent;

/// What of peers' writes is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// By context and message id.
    writes: HashMap<(ChannelId, u16), PartialWrite>,
}

impl Target {
    /// A packet of a WRITE: its bytes are in place, or its key was refused.
    ///
    /// # Errors
    /// [`Inconsistent`] for a packet that reaches beyond its own operation.
    pub(crate) fn write<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> Result<Result<(), KeyError>, Inconsistent> {
        let total = u64::from(request.request_length);
        let (offset, data) = match request.body {
            StdBody::First { header_data } => (0, Some(header_data)),
            StdBody::Next { message_offset, .. } => (u64::from(message_offset), None),
        };
        let len = payload.len() as u64;
        if offset + len > total {
            return Err(Inconsistent);
        }
        let placed = place(mem, request, total, offset, payload);
        if placed.is_ok() {
            step.report.counters.rx_payload_bytes += len;
            if request.header_data_present
                && let Some(data) = self.note(context, request.message_id, len, total, data)
            {
                step.report.complete(landed(peer, total, data));
            }
        }
        Ok(placed)
    }

    /// Where `len` bytes from `offset` of a WRITE go, a packet of which was taken, if they can simply be put there:
    /// it reports no data, and they lie in one piece.
    pub(crate) fn piece<M: Memory>(
        mem: &M,
        request: &StdRequest,
        (offset, len): (u64, u64),
    ) -> Option<UserSlice> {
        if request.header_data_present {
            return None;
        }
        let total = u64::from(request.request_length);
        let (key, base) = (request.match_bits, request.buffer_offset);
        let whole = mem.resolve(key, base, total, Access::RemoteWrite).ok()?;
        (offset + len <= whole.len).then(|| whole.part(offset, len))
    }

    /// Counts the bytes of a write that reports remote CQ data. The data, once all are here.
    fn note(
        &mut self,
        context: ChannelId,
        message_id: u16,
        len: u64,
        total: u64,
        data: Option<u64>,
    ) -> Option<u64> {
        if len == total && data.is_some() {
            return data;
        }
        let write = self.writes.entry((context, message_id)).or_default();
        write.received += len;
        write.data = write.data.or(data);
        let whole = write.data.filter(|_| write.received >= total);
        if whole.is_some() {
            self.writes.remove(&(context, message_id));
        }
        whole
    }

    /// A context is gone: its writes will not be whole.
    pub(crate) fn close(&mut self, context: ChannelId) {
        self.writes.retain(|(of, _), _| *of != context);
    }
}

/// What answers a READ of registered memory.
///
/// # Errors
/// [`KeyError`].
pub(crate) fn read<M: Memory>(mem: &M, request: &StdRequest) -> Result<Answer, KeyError> {
    let len = u64::from(request.request_length);
    let bytes = resolve_all(mem, request.match_bits, request.buffer_offset, len)?;
    let region = bytes.slices().first().map_or(RegionId::LENT, |slice| slice.region);
    let read_id = request.message_id;
    Ok(Answer { read_id, bytes, copied: None, len, region, offered: None })
}

/// Counts why a key was refused, and says what the peer is told: the same for every reason, or who guesses keys
/// would learn from the answers which regions there are and how large they are.
pub(crate) const fn refusal(counters: &mut Counters, error: KeyError) -> ReturnCode {
    match error {
        KeyError::BadKey => counters.rx_key_unknown += 1,
        KeyError::OutOfRange => counters.rx_out_of_range += 1,
        KeyError::Permission => counters.rx_not_permitted += 1,
    }
    ReturnCode::BadMkey
}

/// Writes a packet's bytes. It is checked for the whole range of its operation, so that a write is all or
/// nothing as far as keys and bounds go.
fn place<M: Memory>(
    mem: &mut M,
    request: &StdRequest,
    total: u64,
    offset: u64,
    payload: &[u8],
) -> Result<(), KeyError> {
    let (key, base) = (request.match_bits, request.buffer_offset);
    let whole = mem.resolve(key, base, total, Access::RemoteWrite)?;
    let len = payload.len() as u64;
    if offset + len <= whole.len {
        if len > 0 {
            mem.write(whole.part(offset, len), payload);
        }
        return Ok(());
    }
    let mut done = 0;
    while done < len {
        let at = base.wrapping_add(offset + done);
        let piece = mem.resolve(key, at, len - done, Access::RemoteWrite)?;
        let n = piece.len.min(len - done);
        if n == 0 {
            return Err(KeyError::OutOfRange);
        }
        let from = done as usize;
        mem.write(piece, &payload[from..from + n as usize]);
        done += n;
    }
    Ok(())
}

/// All contiguous pieces of a registered range.
fn resolve_all<M: Memory>(mem: &M, key: u64, address: u64, len: u64) -> Result<Buf, KeyError> {
    let first = mem.resolve(key, address, len, Access::RemoteRead)?;
    if len == 0 {
        return Ok(Buf::Empty);
    }
    if first.len >= len {
        return Ok(Buf::One(UserSlice { len, ..first }));
    }
    let mut pieces = vec![first];
    let mut done = first.len;
    while done < len {
        let mut piece =
            mem.resolve(key, address.wrapping_add(done), len - done, Access::RemoteRead)?;
        piece.len = piece.len.min(len - done);
        if piece.len == 0 {
            return Err(KeyError::OutOfRange);
        }
        done += piece.len;
        pieces.push(piece);
    }
    Ok(Buf::from_slices(&pieces))
}

/// What a peer's write with remote CQ data leaves behind.
fn landed(peer: PeerId, len: u64, data: u64) -> Completion {
    Completion {
        context: 0,
        kind: OpKind::RemoteWrite,
        space: MatchSpace::Untagged,
        len,
        buf: 0,
        data: Some(data),
        tag: 0,
        peer: Some(peer),
        visibility: Visibility::Entry,
        released: false,
        status: Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_does_not_learn_why_a_key_was_refused_but_we_do() {
        let mut counters = Counters::default();
        let all = [KeyError::BadKey, KeyError::OutOfRange, KeyError::Permission];
        let told = all.map(|error| refusal(&mut counters, error));
        assert_eq!(told, [ReturnCode::BadMkey; 3]);
        let Counters { rx_key_unknown, rx_out_of_range, rx_not_permitted, .. } = counters;
        assert_eq!([rx_key_unknown, rx_out_of_range, rx_not_permitted], [1; 3]);
    }
}
