//! Packets that follow the first one of an operation in its GSO train: packets that differ from it
//! only in their numbers, and the last one.

use core::ops::Range;

use super::packet;
use crate::base::{Batch, Datagram, UserSlice};
use crate::memory::Buf;
use crate::ops::{OpBytes, TxOp, TxProgress};
use crate::part::Part;
use crate::reliability::{NewPacket, PdcId, TxGrant};
use crate::step::Step;
use crate::wire::PacketRun;

/// The part of an operation that is left after one of its packets was sent.
pub(super) struct TrainRest {
    /// Number of payload bytes of the operation that are left, at least one.
    pub(super) left: u64,
    /// No other operation is queued behind this one on the context.
    pub(super) alone: bool,
    /// The last packet of the operation requests an acknowledgement.
    pub(super) prompt: bool,
}

/// Sends the packets that follow the `first` packet of an operation, which was just built, in its
/// train, as far as the transport allows. Returns whether the operation is completely sent.
#[inline]
pub(super) fn send_rest_of_train(
    step: &mut Step<'_>,
    batch: &mut Batch,
    id: PdcId,
    op: &mut TxOp,
    first: (&TxGrant, Part),
    rest: &TrainRest,
) -> bool {
    let Some(front) = batch.packets.len().checked_sub(1) else { return false };
    let Some(like) = batch.packets.last().cloned() else { return false };
    let start = like.header.start as usize;
    let written = &batch.bytes[start..start + packet::headers_len(&op.work) as usize];
    let Some(template) = packet::following_run(written, op, first.0, first.1) else { return false };
    let (all, lends) = (op.payload_len(), op.lends());
    let OpBytes { buf, offset, copied } = &op.bytes;
    let mut train = TrainBuilder { step, batch, id, progress: &mut op.progress, like, template };
    let ended = match (copied, buf) {
        (Some(copied), _) => train.append_packets(first.1, rest, &copied[..]),
        (None, Buf::One(piece)) if lends && offset + all <= piece.len => {
            train.append_packets(first.1, rest, piece.part(*offset, all))
        }
        // With several ranges, one packet may have more pieces than the next, so the packets are
        // not joined.
        (None, Buf::Many(_)) if lends => {
            return train.append_packets(first.1, rest, LentRanges(buf, *offset));
        }
        _ => return false,
    };
    batch.mark_runs(front);
    ended
}

/// A train of packets of one operation, under construction.
struct TrainBuilder<'a, 's> {
    step: &'a mut Step<'s>,
    batch: &'a mut Batch,
    id: PdcId,
    progress: &'a mut TxProgress,
    /// The first packet of the train, which the others resemble.
    like: Datagram,
    /// The headers of the next packet of the train.
    template: PacketRun,
}

impl TrainBuilder<'_, '_> {
    /// Appends the packets behind the first one. Returns whether the operation is completely sent.
    #[inline]
    fn append_packets(&mut self, first: Part, rest: &TrainRest, payload: impl Payload) -> bool {
        let headers = self.template.headers_len() as u32;
        let len = first.len;
        let mut at = first.offset + len;
        // The last packet is not like the others.
        let alike = (rest.left - 1) / u64::from(len.max(1));
        let most = u64::from(self.template.max_packets()).min(u64::from(u16::MAX));
        // The minimum is at most 65535, so it fits.
        let count = alike.min(most) as u16;
        if count > 0 {
            // `request_length` has 32 bits.
            let part = |n: u16| Part { offset: at + len * u32::from(n), ..first };
            let (now, bytes) = (self.step.now, headers + len);
            let Some(sent) = self.step.pdcs.send_run(self.id, now, (bytes, count), part) else {
                return false;
            };
            let asks = sent.last.pds.ack_request;
            self.build_packets((sent.count, asks), sent.path, payload, (at, len));
            if let Some(packet) = self.batch.packets.last_mut() {
                packet.path = sent.last.path;
            }
            at += len * u32::from(sent.count);
            if u64::from(sent.count) < alike || asks || sent.last.path != sent.path {
                return false;
            }
        }
        let Some(len) = self.template.end_message() else { return false };
        let desc = Part { offset: at, len, ..first };
        let bytes = headers + len;
        let wanted = NewPacket { desc, bytes, last: rest.alone, prompt: rest.prompt, backlog: 0 };
        let Some(end) = self.step.pdcs.send_run_end(self.id, self.step.now, &wanted) else {
            return false;
        };
        self.build_packets((1, end.pds.ack_request), end.path, payload, (at, len));
        true
    }

    /// Builds `count` packets of `len` payload bytes each, from `offset` on. They leave on `path`
    /// and are otherwise like the first packet. If `asks`, the last one requests an
    /// acknowledgement.
    #[inline]
    fn build_packets<P: Payload>(
        &mut self,
        (count, asks): (u16, bool),
        path: u16,
        payload: P,
        (offset, len): (u32, u32),
    ) {
        let Self { batch, template, like, .. } = self;
        let (start, slices) = (batch.bytes.len() as u32, batch.slices.len() as u32);
        let mut at = offset as usize;
        let mut write = |headers: &[u8]| {
            batch.bytes.extend_from_slice(headers);
            payload.copy_payload(&mut batch.bytes, at..at + len as usize);
            at += len as usize;
        };
        template.write_next(count - u16::from(asks), &mut write);
        if asks {
            template.request_ack();
            template.write_next(1, &mut write);
        }
        let headers = template.headers_len() as u32;
        let header = if P::COPIED { headers + len } else { headers };
        batch.packets.extend((0..u32::from(count)).map(|n| {
            let (from, first) = (start + n * header, slices + n * P::PIECES);
            let end = from + header;
            Datagram {
                path,
                len: headers + len,
                header: from..end,
                payload: first..first + P::PIECES,
                trailer: end..end,
                ..*like
            }
        }));
        payload.push_payload(batch, count, offset.into(), len.into());
        let bytes = u64::from(count) * u64::from(len);
        self.progress.packed += bytes;
        self.progress.in_flight += u32::from(count);
        self.step.report.counters.tx_payload_bytes += bytes;
    }
}

/// The payload of an operation. Trains are compiled separately for each kind of payload, so that
/// none pays for the others.
trait Payload: Copy {
    /// The packets contain a copy of the payload, instead of referring to user memory.
    const COPIED: bool = false;
    /// Number of pieces of user memory to which each packet refers, if it is the same for all.
    const PIECES: u32 = 0;

    /// Appends a copy of the payload of one packet to the packet's bytes.
    fn copy_payload(self, to: &mut Vec<u8>, range: Range<usize>) {
        let _ = (to, range);
    }

    /// Adds the pieces of user memory of the last `count` packets, `len` bytes each from `offset`
    /// on.
    fn push_payload(self, batch: &mut Batch, count: u16, offset: u64, len: u64) {
        let _ = (batch, count, offset, len);
    }
}

/// A payload that was copied when the operation was submitted.
impl Payload for &[u8] {
    const COPIED: bool = true;

    #[inline]
    fn copy_payload(self, to: &mut Vec<u8>, range: Range<usize>) {
        to.extend_from_slice(&self[range]);
    }
}

/// A payload in one contiguous piece of lent user memory.
impl Payload for UserSlice {
    const PIECES: u32 = 1;

    #[inline]
    fn push_payload(self, batch: &mut Batch, count: u16, offset: u64, len: u64) {
        let parts = (0..u64::from(count)).map(|n| self.part(offset + n * len, len));
        batch.slices.extend(parts);
    }
}

/// A payload in several lent ranges of user memory, from an offset on.
#[derive(Clone, Copy)]
struct LentRanges<'a>(&'a Buf, u64);

impl Payload for LentRanges<'_> {
    fn push_payload(self, batch: &mut Batch, count: u16, offset: u64, len: u64) {
        let (Self(buf, mut at), Batch { packets, slices, .. }) = (self, batch);
        at += offset;
        let built = packets.len() - usize::from(count);
        for packet in &mut packets[built..] {
            let first = slices.len() as u32;
            buf.for_range(at, len, |piece, _| slices.push(piece));
            packet.payload = first..slices.len() as u32;
            at += len;
        }
    }
}
