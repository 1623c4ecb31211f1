//! Atomic operations of peers on registered memory. All checks come before the first change.

use super::Target;
use crate::access_groups::{GroupTag, PeerAccess};
use crate::atomics::{
    Calculation, LONGEST, alignment, atomic_has_comparands, atomic_size, max_atomic_count,
};
use crate::base::RegionId;
use crate::channel::ChannelId;
use crate::completion::OpKind;
use crate::memory::{Access, Buf, KeyError, Memory};
use crate::operation::PeerId;
use crate::outbound::Answer;
use crate::step::Step;
use crate::wire::{AmoOp, AmoType, CompareSwap, Extension, Opcode, ReturnCode, StdRequest};

/// The reason why a peer's atomic operation is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicRefusal {
    /// The memory key does not permit the access to the range.
    Access(KeyError),
    /// The atomic operation is not defined, or not for this type, size or alignment.
    Operation(ReturnCode),
}

impl From<KeyError> for AtomicRefusal {
    fn from(error: KeyError) -> Self {
        Self::Access(error)
    }
}

/// A peer's atomic request after the checks that need no access to memory.
struct AtomicRequest<'a> {
    calculation: Calculation,
    data_type: AmoType,
    /// Total length of the values in the target memory, in bytes.
    len: usize,
    operands: &'a [u8],
    compares: &'a [u8],
}

/// Buffer for the two operands of a compare-swap header, in memory order.
type Operands = [[u8; 16]; 2];

impl<'a> AtomicRequest<'a> {
    fn read(
        request: &StdRequest,
        payload: &'a [u8],
        header: &'a mut Operands,
    ) -> Result<Self, AtomicRefusal> {
        let unmet = |code| Err(AtomicRefusal::Operation(code));
        let (op, data_type) = match request.extension {
            Extension::Atomic(atomic) => (atomic.op, atomic.data_type),
            Extension::CompareSwap(CompareSwap { atomic, compare, swap }) => {
                *header = [
                    to_memory_bytes(swap, atomic.data_type),
                    to_memory_bytes(compare, atomic.data_type),
                ];
                (atomic.op, atomic.data_type)
            }
            _ => return unmet(ReturnCode::AmoUnsupportedOp),
        };
        let plain = op.without_payload().unwrap_or(op);
        let Some(calculation) = Calculation::new(plain, data_type) else {
            // The operation is not defined for the type.
            return unmet(ReturnCode::AmoUnsupportedOp);
        };
        let fetches = request.opcode == Opcode::FetchingAtomic;
        if calculation.is_read_only() && !fetches {
            return unmet(ReturnCode::AmoUnsupportedOp);
        }
        let size = atomic_size(data_type);
        let total = request.request_length as usize;
        let (len, operands, compares): (usize, &[u8], &[u8]) = if op.is_compare_swap() {
            if total != size || size > 16 {
                return unmet(ReturnCode::AmoUnsupportedSize);
            }
            let [swap, compare] = header;
            (size, &swap[..size], &compare[..size])
        } else if op == AmoOp::Read {
            (total, &[], &[])
        } else {
            let parts = if atomic_has_comparands(plain) { 2 } else { 1 };
            let (operands, compares) = payload.split_at(payload.len() / parts);
            if total != payload.len() || operands.len() * parts != total {
                return unmet(ReturnCode::AmoUnsupportedSize);
            }
            (operands.len(), operands, compares)
        };
        let most = max_atomic_count(plain, data_type).unwrap_or(0) * size;
        let one_packet = request.eom && request.som;
        if !one_packet || len == 0 || len > most || !len.is_multiple_of(size) {
            return unmet(ReturnCode::AmoUnsupportedSize);
        }
        Ok(Self { calculation, data_type, len, operands, compares })
    }

    /// Returns the access that the region must allow. An atomic that returns values, or compares them with the
    /// initiator's, reads the region and writes it. If FI_REMOTE_WRITE were enough, a bitwise OR with zero could read
    /// the whole region.
    const fn access(&self, fetches: bool) -> Access {
        if self.calculation.is_read_only() {
            Access::RemoteRead
        } else if fetches || !self.compares.is_empty() {
            Access::RemoteReadWrite
        } else {
            Access::RemoteWrite
        }
    }

    /// Returns the operand and the comparand of the value at offset `at`; empty slices where there
    /// are none.
    fn value(&self, at: usize, size: usize) -> (&'a [u8], &'a [u8]) {
        let of = |all: &'a [u8]| all.get(at..at + size).unwrap_or_default();
        (of(self.operands), of(self.compares))
    }
}

/// Converts a number of the compare-swap header to a value in memory.
fn to_memory_bytes(number: u128, data_type: AmoType) -> [u8; 16] {
    let mut all = number.to_ne_bytes();
    if cfg!(target_endian = "big") {
        all.rotate_left(16 - atomic_size(data_type).min(16));
    }
    all
}

impl Target {
    /// Executes an ATOMIC or FETCHING_ATOMIC. Returns the answer of a fetching one.
    ///
    /// # Errors
    /// [`AtomicRefusal`]. Nothing was changed, unless copying to device memory failed after the
    /// checks.
    pub(crate) fn atomic<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> Result<Option<Answer>, AtomicRefusal> {
        let mut header = Operands::default();
        let asked = AtomicRequest::read(request, payload, &mut header)?;
        let fetches = request.opcode == Opcode::FetchingAtomic;
        if !fetches {
            // The id of a fetching atomic is a slot number.
            self.record_operation(context, request.message_id);
        }
        let access = asked.access(fetches);
        let (key, address) = (request.match_bits, request.buffer_offset);
        let (size, len) = (atomic_size(asked.data_type), asked.len as u64);
        // The whole range must be accessible, and each value must be contiguous and aligned as in
        // C.
        let whole = mem.resolve(key, address, len, access)?;
        let region = whole.region;
        let place = |mem: &M, at: usize| {
            let at = if whole.len >= len {
                // Nearly always the range is contiguous, so there is nothing more to look up.
                whole.part(at as u64, size as u64)
            } else {
                mem.resolve(key, address.wrapping_add(at as u64), size as u64, access)?
            };
            if at.len < size as u64 || !at.base.is_multiple_of(alignment(asked.data_type)) {
                return Err(AtomicRefusal::Operation(ReturnCode::AmoUnaligned));
            }
            Ok(at.part(0, size as u64))
        };
        for at in (0..asked.len).step_by(size) {
            place(mem, at)?;
        }
        let mut results = Vec::with_capacity(if fetches { asked.len } else { 0 });
        for at in (0..asked.len).step_by(size) {
            let slice = place(mem, at)?;
            let (operand, compare) = asked.value(at, size);
            let mut old = [0; LONGEST];
            let done = mem.update(slice, &mut old[..size], &mut |old, new| {
                asked.calculation.compute(old, operand, compare, new)
            });
            if !done {
                return Err(KeyError::Uncopied.into());
            }
            if fetches {
                results.extend_from_slice(&old[..size]);
            }
        }
        step.report.counters.rx_atomics += 1;
        step.report.counters.rx_payload_bytes += payload.len() as u64;
        if self.reports {
            let kind = match (fetches, asked.calculation.is_read_only()) {
                (_, true) => OpKind::RemoteRead,
                (true, false) => OpKind::RemoteFetch,
                (false, false) => OpKind::RemoteUpdate,
            };
            let access = PeerAccess { kind, region, len, data: None };
            step.report_access(peer, GroupTag::read(request).0, access);
        }
        Ok(fetches.then_some(Answer {
            read_id: request.message_id,
            bytes: Buf::Empty,
            copied: Some(results),
            len,
            region: RegionId::LENT,
            offered: None,
            counts: false,
            group: GroupTag::NONE,
            part: None,
        }))
    }
}
