//! Receiving packet runs (`wire/src/packet_run.rs`) of the answer to a read: only the payload has to
//! be copied to its place. The last packet of the answer is never part of a run.

use super::Outbound;
use crate::memory::Memory;
use crate::ops::OpWork;
use crate::reliability::PdcId;
use crate::slab::Key;
use crate::step::Step;

/// A read to which the payload of a packet run belongs.
#[derive(Clone, Copy)]
pub(crate) struct RunRead(Key);

impl RunRead {
    /// Returns the read that waits in `slot` of a context, if `len` bytes from `offset` on can
    /// simply be copied into its buffer and do not complete it.
    pub(crate) fn find_run_read(
        outbound: &mut Outbound,
        step: &Step<'_>,
        (id, slot): (PdcId, u16),
        (offset, len): (u64, u64),
    ) -> Option<Self> {
        let key = step.contexts.get(id.into())?.slots.get(slot)?;
        let op = outbound.ops.get_mut(key)?;
        let OpWork::Read { received, .. } = op.work else { return None };
        let inside = received + len < op.label.len && offset + len <= op.label.len;
        (inside && op.error.is_none()).then_some(Self(key))
    }

    /// Copies consecutive payloads into the read's buffer, from `offset` on.
    pub(crate) fn copy_payloads<'a, M: Memory>(
        self,
        outbound: &mut Outbound,
        step: &mut Step<'_>,
        mem: &mut M,
        offset: u64,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(op) = outbound.ops.get_mut(self.0) else { return };
        let mut end = offset;
        for payload in payloads {
            let len = payload.len() as u64;
            op.bytes.buf.for_range(op.bytes.offset + end, len, |piece, position| {
                let from = position as usize;
                mem.write(piece, &payload[from..from + piece.len as usize]);
            });
            end += len;
        }
        if let OpWork::Read { received, .. } = &mut op.work {
            *received += end - offset;
        }
        step.report.counters.rx_payload_bytes += end - offset;
    }
}
