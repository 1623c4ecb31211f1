//! Receiving packet runs (`wire/src/packet_run.rs`) of the answer to a read: only the payload has to
//! be copied to its place. The last packet of the answer is never part of a run.

use super::Outbound;
use crate::channel::ChannelId;
use crate::memory::Memory;
use crate::ops::OpWork;
use crate::step::Step;

impl Outbound {
    /// Copies consecutive payloads of `len` bytes in all into the buffer of the read that waits in
    /// `slot` of a channel, from `offset` on. Changes nothing and returns false if they cannot simply
    /// be copied or would complete the read.
    pub(crate) fn place_run<'a, M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (channel, slot): (ChannelId, u16),
        (offset, len): (u64, u64),
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let key = step.contexts.get(channel).and_then(|context| context.slots.get(slot));
        let Some(op) = key.and_then(|key| self.ops.get_mut(key)) else { return false };
        let OpWork::Read { received, .. } = &mut op.work else { return false };
        let inside = *received + len < op.label.len && offset + len <= op.label.len;
        if !inside || op.error.is_some() {
            return false;
        }
        *received += len;
        let mut at = offset;
        for payload in payloads {
            let len = payload.len() as u64;
            op.bytes.buf.for_range(op.bytes.offset + at, len, |piece, position| {
                let from = position as usize;
                mem.write(piece, &payload[from..from + piece.len as usize]);
            });
            at += len;
        }
        step.report.counters.rx_payload_bytes += len;
        true
    }
}
