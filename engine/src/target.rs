//! RMA and atomic operations of peers on the registered memory of this endpoint.

mod atomic;
mod partial;

use crate::access_groups::{GroupTag, PeerAccess};
use crate::base::{RegionId, UserSlice};
use crate::channel::ChannelId;
use crate::completion::OpKind;
use crate::counters::Counters;
use crate::memory::{Access, Buf, KeyError, Memory, Payload};
use crate::operation::PeerId;
use crate::outbound::Answer;
use crate::step::Step;
use crate::wire::{ReturnCode, StdBody, StdRequest};

use partial::{PartialWrites, WritePart};

pub(crate) use atomic::AtomicRefusal;

/// The reason why the payload of a peer's write was not written to memory.
pub(crate) enum WriteRefusal {
    /// The memory key does not permit the write.
    Refused(KeyError),
    /// The payload is in memory that its owner has revoked or whose owner is gone, or copying it
    /// into the target memory failed.
    Gone,
    /// The length, offset or total of the write contradict each other.
    Inconsistent,
    /// The target has no room to record how much of the write has arrived. The packet is refused
    /// for now.
    NoRoom,
}

impl From<KeyError> for WriteRefusal {
    fn from(error: KeyError) -> Self {
        Self::Refused(error)
    }
}

/// State of the one-sided operations of peers: settings, and the writes that are still incomplete.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// The user wants every access reported (FI_RMA_EVENT), not only those with remote CQ data.
    pub(crate) reports: bool,
    partial: PartialWrites,
}

impl Target {
    /// Handles a packet of a WRITE by copying its payload into place.
    ///
    /// # Errors
    /// [`WriteRefusal`]. A packet that reaches beyond its own operation is inconsistent.
    pub(crate) fn write<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: Payload<'_>,
    ) -> Result<(), WriteRefusal> {
        let total = u64::from(request.request_length);
        let (offset, data) = match request.body {
            StdBody::First { header_data } => (0, Some(header_data)),
            StdBody::Next { message_offset, .. } => (u64::from(message_offset), None),
        };
        let len = payload.len();
        if offset + len > total {
            return Err(WriteRefusal::Inconsistent);
        }
        let first = data.is_some();
        let reported = self.reports_write(request);
        let partial = reported && len != total;
        if partial && !self.partial.has_room(context, step.is_outside(peer)) {
            return Err(WriteRefusal::NoRoom);
        }
        let placed = write_payload(mem, request, total, offset, payload);
        if !partial || placed.is_err() {
            self.partial.advance(context, request.message_id, first);
        }
        let region = placed?;
        step.report.counters.rx_payload_bytes += len;
        let data = data.filter(|_| request.header_data_present);
        let whole = if partial {
            let piece = WritePart { id: request.message_id, first, len, total, data };
            self.partial.record_packet(context, step.is_outside(peer), piece)
        } else {
            reported.then_some(data)
        };
        if let Some(data) = whole {
            let access = PeerAccess { kind: OpKind::RemoteWrite, region, len: total, data };
            step.report_access(peer, GroupTag::read(request).0, access);
        }
        Ok(())
    }

    /// Returns whether a WRITE is reported when all of it has arrived.
    #[inline]
    pub(crate) const fn reports_write(&self, request: &StdRequest) -> bool {
        self.reports || request.header_data_present
    }

    /// Records that the initiator of a context has begun an operation with this id, other than a write. See
    /// [`PartialWrites`].
    #[inline]
    pub(crate) fn record_operation(&mut self, context: ChannelId, id: u16) {
        self.partial.advance(context, id, true);
    }

    /// Returns the destination of `len` bytes from `offset` of a WRITE, if they can simply be
    /// copied there: a packet of the WRITE was accepted before, nothing must be reported, and the
    /// bytes are contiguous.
    pub(crate) fn write_target<M: Memory>(
        &self,
        mem: &M,
        request: &StdRequest,
        (offset, len): (u64, u64),
    ) -> Option<UserSlice> {
        if self.reports_write(request) {
            return None;
        }
        let total = u64::from(request.request_length);
        let (key, base) = (request.match_bits, request.buffer_offset);
        let whole = mem.resolve(key, base, total, Access::RemoteWrite).ok()?;
        // Outside host memory the copy of each packet may fail.
        let simple = offset + len <= whole.len && whole.space.is_host();
        simple.then(|| whole.part(offset, len))
    }

    /// Returns the answer to a READ of registered memory.
    ///
    /// # Errors
    /// [`KeyError`] if the access is not permitted, or if copying from device memory fails.
    pub(crate) fn read<M: Memory>(
        &self,
        mem: &M,
        request: &StdRequest,
    ) -> Result<Answer, KeyError> {
        let (read_id, len) = (request.message_id, u64::from(request.request_length));
        let (bytes, region) = resolve_all(mem, request.match_bits, request.buffer_offset, len)?;
        let (counts, group) = (self.reports, GroupTag::read(request).0);
        let copied = mem.copy_device_memory(&bytes)?;
        Ok(Answer { read_id, bytes, copied, len, region, offered: None, counts, group, part: None })
    }

    /// Returns the number of writes that are reported when all their packets have arrived, and are still incomplete.
    pub(crate) fn partial_writes(&self) -> usize {
        self.partial.len()
    }

    /// Forgets the incomplete writes of a channel that has ended.
    pub(crate) fn close(&mut self, context: ChannelId) {
        self.partial.close(context);
    }
}

/// Counts the reason why a key was refused and returns the code for the peer. The code is the same
/// for every reason. Otherwise a peer that guesses keys could learn from the answers which regions
/// exist and how large they are.
pub(crate) const fn count_refusal(counters: &mut Counters, error: KeyError) -> ReturnCode {
    match error {
        KeyError::BadKey => counters.rx_key_unknown += 1,
        KeyError::OutOfRange => counters.rx_out_of_range += 1,
        KeyError::Permission => counters.rx_not_permitted += 1,
        // The peer has a valid key, so it may learn this reason.
        KeyError::Uncopied => return ReturnCode::HostUnsuccessCmpl,
    }
    ReturnCode::BadMkey
}

/// Writes a packet's payload. The access is checked for the whole range of the operation, so that a
/// write is all or nothing as far as keys and bounds are concerned.
fn write_payload<M: Memory>(
    mem: &mut M,
    request: &StdRequest,
    total: u64,
    offset: u64,
    payload: Payload<'_>,
) -> Result<RegionId, WriteRefusal> {
    let (key, base) = (request.match_bits, request.buffer_offset);
    let whole = mem.resolve(key, base, total, Access::RemoteWrite)?;
    let len = payload.len();
    let had = |had: bool| if had { Ok(()) } else { Err(WriteRefusal::Gone) };
    if offset + len <= whole.len {
        had(len == 0 || payload.place(mem, whole.part(offset, len), 0))?;
        return Ok(whole.region);
    }
    let mut done = 0;
    while done < len {
        let at = base.wrapping_add(offset + done);
        let mut piece = mem.resolve(key, at, len - done, Access::RemoteWrite)?;
        piece.len = piece.len.min(len - done);
        if piece.len == 0 {
            return Err(KeyError::OutOfRange.into());
        }
        had(payload.place(mem, piece, done))?;
        done += piece.len;
    }
    Ok(whole.region)
}

/// Returns all contiguous pieces of a registered range, and its region.
fn resolve_all<M: Memory>(
    mem: &M,
    key: u64,
    address: u64,
    len: u64,
) -> Result<(Buf, RegionId), KeyError> {
    let first = mem.resolve(key, address, len, Access::RemoteRead)?;
    let region = first.region;
    if len == 0 {
        return Ok((Buf::Empty, region));
    }
    if first.len >= len {
        return Ok((Buf::One(UserSlice { len, ..first }), region));
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
    Ok((Buf::from_slices(&pieces), region))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_for_refusing_a_key_is_counted_but_not_sent() {
        let mut counters = Counters::default();
        let all = [KeyError::BadKey, KeyError::OutOfRange, KeyError::Permission];
        let codes = all.map(|error| count_refusal(&mut counters, error));
        assert_eq!(codes, [ReturnCode::BadMkey; 3]);
        assert_eq!(count_refusal(&mut counters, KeyError::Uncopied), ReturnCode::HostUnsuccessCmpl);
        let Counters { rx_key_unknown, rx_out_of_range, rx_not_permitted, .. } = counters;
        assert_eq!([rx_key_unknown, rx_out_of_range, rx_not_permitted], [1; 3]);
    }
}
