//! Fragments of packets that were sent and turn out to be too long for their path.
//!
//! A UDP socket without privileges cannot make IP fragment a packet that fits the route's MTU, and
//! a router that silently drops long packets does not fragment either. So this module cuts the
//! payload of such a packet again. The first fragment replaces the packet under its PSN. The other
//! fragments wait until they may leave under PSNs of their own, before any new packet of their
//! context. `crate::fragments` keeps them, and `reliability::Fragments` is the receiver's half.

use super::telemetry::extra_bytes;
use super::{Outbound, packet, transmit};
use crate::base::Batch;
use crate::contexts::Context;
use crate::fragments::Original;
use crate::ops::{OpWork, Ops, TxOp};
use crate::part::Part;
use crate::path_sizes;
use crate::reliability::{NewPacket, PdcId, QueuedPacket, SendError};
use crate::step::Step;
use crate::wire::Fragment;

impl Ops {
    /// Returns the header that precedes a packet with this `part`, if the packet is a fragment.
    #[cold]
    pub(super) fn fragment_header(
        &self,
        step: &mut Step<'_>,
        id: PdcId,
        part: Part,
    ) -> Option<[u8; Fragment::LEN]> {
        let Original { index, count, .. } = self.fragments.original(part)?;
        let start = step.pdcs.start_psn(id);
        Some(Fragment::head(start.plus(index), count))
    }

    /// Cuts the packet that is to be retransmitted next, if it is longer than its path carries now.
    /// Atomics are not cut. Neither is a packet whose payload may not be read any more, because it
    /// carries no payload.
    #[cold]
    pub(super) fn cut_queued(&mut self, step: &mut Step<'_>, id: PdcId) {
        let Some(context) = step.contexts.get(id.into()) else { return };
        let (most, host) = (context.max_packet, context.dst.ip());
        let Some(packet) = step.pdcs.next_queued(id) else { return };
        let part = packet.desc;
        let Some(op) = self.get_mut(part.op).filter(|op| packet.bytes > most && is_divisible(op))
        else {
            return;
        };
        let before = extra_bytes(step) + Fragment::LEN as u32;
        let size = path_sizes::min_packet(host).saturating_sub(before);
        // The header's payload length has 14 bits.
        let room = context.form.max_payload(size, packet::headers_len(&op.work)) as u32;
        let Ok(count) = u8::try_from(part.len.div_ceil(room)) else { return };
        if count < 2 {
            return;
        }
        op.progress.in_flight += u32::from(count) - 1;
        step.report.counters.tx_fragments += u64::from(count);
        let start = step.pdcs.start_psn(id);
        // The difference is not negative: the packet belongs to the context.
        let index = packet.psn.distance(start).cast_unsigned();
        step.pdcs.shorten_queued(
            id,
            QueuedPacket {
                bytes: packet.bytes - (part.len - room) + Fragment::LEN as u32,
                desc: Part { len: room, ..part },
                ..packet
            },
        );
        let original = Original { len: part.len, index, count };
        let rest = (1..u32::from(count)).map(|n| {
            let at = n * room;
            Part { offset: part.offset + at, len: room.min(part.len - at), ..part }
        });
        self.fragments.add(id, part, original, rest);
        self.hold_for_fragments(step, id, true);
    }

    /// Keeps a context open while fragments wait (`waits`), and allows it to close afterwards.
    fn hold_for_fragments(&self, step: &mut Step<'_>, id: PdcId, waits: bool) {
        if let Some(context) = step.contexts.get_mut(id.into()) {
            context.set_fragments_wait(waits);
            context.update_busy(step.now, step.pdcs);
        }
    }
}

/// Returns whether the packets of an operation may be cut into fragments.
const fn is_divisible(op: &TxOp) -> bool {
    let cut_off = matches!(op.work, OpWork::Response { cut: Some(_), .. });
    op.work.amo().is_none() && !op.over && !cut_off
}

impl Outbound {
    /// Sends the next fragment that waits on a context. Returns `None` when no fragment waits.
    #[cold]
    pub(super) fn send_fragment(
        &mut self,
        step: &mut Step<'_>,
        id: PdcId,
        batch: &mut Batch,
    ) -> Option<Result<(), SendError>> {
        let (part, alone) = self.ops.fragments.next_waiting(id)?;
        let wanted = self.ops.get(part.op).is_some_and(|op| !op.over && op.error.is_none());
        if wanted && let Err(blocked) = self.send_part(step, id, part, alone, batch) {
            return Some(Err(blocked));
        }
        self.ops.fragments.pop_waiting(id);
        if alone {
            self.ops.hold_for_fragments(step, id, false);
        }
        if !wanted {
            // The fragment's operation has ended or was refused, so the fragment counts as delivered.
            self.handle_ack(step, part, 1);
        }
        Some(Ok(()))
    }

    /// Sends one fragment as a packet with its own PSN. `alone` says that no other fragment waits.
    fn send_part(
        &mut self,
        step: &mut Step<'_>,
        id: PdcId,
        part: Part,
        alone: bool,
        batch: &mut Batch,
    ) -> Result<(), SendError> {
        let before = extra_bytes(step) + Fragment::LEN as u32;
        let needs_backlog = step.pdcs.config().needs_backlog();
        let backlog = if needs_backlog { self.ops.backlog(step.contexts, id) } else { 0 };
        let (Some(op), Some(context)) = (self.ops.get(part.op), step.contexts.get(id.into()))
        else {
            return Err(SendError::Gone);
        };
        let Context { dst, form, prompt, ref queue, .. } = *context;
        let wanted = NewPacket {
            desc: part,
            bytes: packet::headers_len(&op.work) as u32 + part.len + before,
            last: alone && queue.is_empty(),
            prompt: prompt || op.should_request_ack(),
            backlog,
        };
        let grant = step.pdcs.next_packet(step.now, id, &wanted)?;
        let header = self.ops.fragment_header(step, id, part);
        transmit::emit_with_prefixes(step, batch, (dst, &form), op, (&grant, part), header);
        Ok(())
    }

    /// Discards the fragments that wait on a context that has ended.
    pub(crate) fn forget_fragments(&mut self, id: PdcId) {
        self.ops.fragments.forget_waiting(id);
    }
}
