//! What follows the first packet of an operation in its train: packets that differ from it in their numbers alone, and the
//! last.

use super::packet;
use crate::base::{Batch, Datagram, UserSlice};
use crate::memory::Buf;
use crate::ops::{Bytes, Part, Progress, TxOp};
use crate::reliability::{NewPacket, PdcId, TxGrant};
use crate::step::Step;
use crate::wire::Run;

/// What is left of an operation behind a packet of it that left.
pub(super) struct Rest {
    /// Bytes, at least one.
    pub(super) left: u64,
    /// Packets that the batch has room for.
    pub(super) room: usize,
    /// Nothing waits behind the operation.
    pub(super) alone: bool,
    /// Its last packet asks for an acknowledgement.
    pub(super) prompt: bool,
}

/// Sends what follows the `first` packet of an operation, just built, in its train, as far as it may go. Whether that is
/// all.
#[inline]
pub(super) fn follow(
    step: &mut Step<'_>,
    batch: &mut Batch,
    id: PdcId,
    op: &mut TxOp,
    first: (&TxGrant, Part),
    rest: &Rest,
) -> bool {
    let Some(front) = batch.packets.len().checked_sub(1) else { return false };
    let ended = append(step, batch, id, op, first, rest);
    batch.join(front);
    ended
}

#[inline]
fn append(
    step: &mut Step<'_>,
    batch: &mut Batch,
    id: PdcId,
    op: &mut TxOp,
    (grant, first): (&TxGrant, Part),
    rest: &Rest,
) -> bool {
    let headers = packet::headers_len(&op.work);
    let Some(like) = batch.packets.last().cloned() else { return false };
    let start = like.header.start as usize;
    let written = &batch.bytes[start..start + headers as usize];
    let Some(mut template) = packet::run_after(written, op, grant, first) else { return false };
    let (all, lends) = (op.payload_len(), op.lends());
    let Some(payload) = Payload::of(&op.bytes, all, lends) else { return false };
    let len = first.len;
    let mut at = first.offset + len;
    // Of what is left the last packet is another.
    let alike = (rest.left - 1) / u64::from(len.max(1));
    let most = u64::from(template.most()).min(rest.room as u64).min(u64::from(u16::MAX));
    // Fewer than 65536.
    let count = alike.min(most) as u16;
    if count > 0 {
        // `request_length` has 32 bits.
        let part = |n: u16| Part { offset: at + len * u32::from(n), ..first };
        let bytes = headers as u32 + len;
        let Some(sent) = step.pdcs.runs(id).send(step.now, (bytes, count), part) else {
            return false;
        };
        let asks = sent.last.pds.ack_request;
        build(batch, (&like, sent.path), (&mut template, sent.count, asks), payload, (at, len));
        if let Some(packet) = batch.packets.last_mut() {
            packet.path = sent.last.path;
        }
        at += len * u32::from(sent.count);
        account(step, &mut op.progress, sent.count, u64::from(sent.count) * u64::from(len));
        if u64::from(sent.count) < alike || sent.last.pds.ack_request || sent.last.path != sent.path
        {
            return false;
        }
    }
    if usize::from(count) == rest.room {
        return false;
    }
    let Some(len) = template.end() else { return false };
    let desc = Part { offset: at, len, ..first };
    let bytes = headers as u32 + len;
    let wanted = NewPacket { desc, bytes, last: rest.alone, prompt: rest.prompt, backlog: 0 };
    let Some(end) = step.pdcs.runs(id).send_end(step.now, &wanted) else { return false };
    let asks = end.pds.ack_request;
    build(batch, (&like, end.path), (&mut template, 1, asks), payload, (at, len));
    account(step, &mut op.progress, 1, len.into());
    true
}

/// Accounts for packets of an operation that were built behind its first.
#[inline]
fn account(step: &mut Step<'_>, progress: &mut Progress, packets: u16, bytes: u64) {
    progress.packed += bytes;
    progress.in_flight += u32::from(packets);
    step.report.counters.tx_payload_bytes += bytes;
}

/// Where an operation's bytes are, in one piece.
#[derive(Clone, Copy)]
enum Payload<'a> {
    /// Copied.
    Copied(&'a [u8]),
    /// In memory that the user lends.
    Lent(UserSlice),
}

impl<'a> Payload<'a> {
    /// Of an operation with `all` these bytes, which it `lends` unless they are copied; `None` where they are in pieces, or
    /// nowhere.
    #[inline]
    fn of(bytes: &'a Bytes, all: u64, lends: bool) -> Option<Self> {
        match (&bytes.copied, &bytes.buf) {
            (Some(copied), _) => Some(Self::Copied(copied)),
            (None, Buf::One(piece)) if lends && bytes.offset + all <= piece.len => {
                Some(Self::Lent(piece.part(bytes.offset, all)))
            }
            _ => None,
        }
    }

    const fn is_lent(self) -> bool {
        matches!(self, Self::Lent(_))
    }
}

/// Builds `count` packets with the headers of a `template`, of which the last may ask for an acknowledgement, and `len` bytes
/// each from `offset` on, that leave by a `path` and are otherwise `like` the first.
#[inline]
fn build(
    batch: &mut Batch,
    (like, path): (&Datagram, u16),
    (template, count, asks): (&mut Run, u16, bool),
    payload: Payload<'_>,
    (offset, len): (u32, u32),
) {
    let (start, slices) = (batch.bytes.len() as u32, batch.slices.len() as u32);
    let mut at = offset;
    for n in 1..=count {
        if asks && n == count {
            template.ask();
        }
        batch.bytes.extend_from_slice(template.headers());
        if let Payload::Copied(bytes) = payload {
            batch.bytes.extend_from_slice(&bytes[at as usize..(at + len) as usize]);
        }
        template.advance();
        at += len;
    }
    let (headers, pieces) = (template.headers_len() as u32, u32::from(payload.is_lent()));
    let header = if pieces > 0 { headers } else { headers + len };
    if let Payload::Lent(piece) = payload {
        let parts = (0..u64::from(count)).map(|n| u64::from(offset) + n * u64::from(len));
        batch.slices.extend(parts.map(|from| piece.part(from, len.into())));
    }
    batch.packets.extend((0..u32::from(count)).map(|n| {
        let (from, first) = (start + n * header, slices + n * pieces);
        let end = from + header;
        Datagram {
            path,
            len: headers + len,
            header: from..end,
            payload: first..first + pieces,
            trailer: end..end,
            ..*like
        }
    }));
}
