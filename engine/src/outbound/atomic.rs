//! Outbound atomic operations. Their operands are copied during the call and sent in one packet per
//! remote range.

use super::Outbound;
use super::submit::{OpDraft, op_owner};
use crate::atomics::atomic_size;
use crate::channel::ChannelId;
use crate::completion::OpKind;
use crate::fences::OperationClasses;
use crate::memory::{Buf, Memory};
use crate::operation::{Atomic, MatchSpace, Operation};
use crate::ops::{AtomicFields, OpBytes, OpWork, SesLabel};
use crate::policy::{Copy, Plan};
use crate::step::Step;
use crate::wire::AmoOp;

/// Largest value in bytes that fits into the compare-swap header.
const IN_HEADER: u64 = 16;

impl Outbound {
    /// Starts an atomic operation, which was checked. Each of several ranges becomes a request of
    /// its own, in a group.
    pub(super) fn submit_atomic<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &M,
        id: ChannelId,
        op: &Operation,
        atomic: &Atomic,
        plan: Plan,
    ) {
        let (kind, classes) = match atomic.result {
            Some(_) if atomic.op == AmoOp::Read => (OpKind::Fetch, OperationClasses::FETCH),
            Some(_) => (OpKind::Fetch, OperationClasses::FETCH | OperationClasses::UPDATE),
            None => (OpKind::Update, OperationClasses::UPDATE),
        };
        let mut turn = self.fences.order_constraints(id, classes, op.options.fence);
        let peer = op.peer;
        let label = |len| SesLabel { space: MatchSpace::Untagged, tag: 0, data: None, len };
        let segs = atomic.remote.segs();
        let mut owner = op_owner(kind, op, plan);
        if segs.len() > 1 {
            owner = self.add_group(step, peer, (segs.len(), label(atomic.remote.len())), owner);
        }
        // The buffer of the operation is the one for its results, so it is not copied.
        let plan = Plan { copy: Copy::Never, ..plan };
        let mut at = 0;
        for seg in segs {
            let mut operands = Vec::new();
            if atomic.op != AmoOp::Read {
                operands = self.ops.copy_payload(mem, &op.buf, at, seg.len);
            }
            if let Some(compare) = &atomic.compare {
                operands.extend(self.ops.copy_payload(mem, compare, at, seg.len));
            }
            let amo = atomic_fields(atomic, seg.len);
            let work = match kind {
                OpKind::Fetch => OpWork::Fetch { remote: *seg, amo, slot: 0, received: 0 },
                _ => OpWork::Update { remote: *seg, amo },
            };
            let buf = atomic.result.as_ref().map_or(Buf::Empty, |result| result.part(at, seg.len));
            let draft = OpDraft { work, peer, label: label(seg.len), owner, plan, turn };
            let key = self.start(step, mem, id, buf.clone(), draft);
            self.ops.set_bytes(key, OpBytes { buf, offset: 0, copied: Some(operands) });
            at += seg.len;
            turn.before = OperationClasses::NONE;
        }
    }
}

/// Returns the wire's codes for an atomic request with `len` bytes of values. A comparing operation
/// has its operands in the header if they fit there.
fn atomic_fields(atomic: &Atomic, len: u64) -> AtomicFields {
    let Atomic { op, data_type, .. } = *atomic;
    let one = len == atomic_size(data_type) as u64 && len <= IN_HEADER;
    let op = op.with_payload().filter(|_| !one).unwrap_or(op);
    AtomicFields { op, data_type }
}
