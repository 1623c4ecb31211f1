//! Arithmetic of atomic operations: the supported combinations of operation and type, and their
//! results.
//!
//! The semantics are those of fi_atomic(3): integers wrap, a comparison with a NaN is false, a
//! logical operation yields one or zero, and a complex value is true if either part is nonzero.
//! `LONG_DOUBLE` is the platform's type: 80 bits in 16 bytes on x86, IEEE 754 quadruple precision
//! elsewhere.

mod number;

use crate::wire::{AmoOp, AmoType};
use number::{BFloat, Complex, Extended, Half, Number};

/// Largest number of bytes of values in one atomic operation: with all headers they fit into one
/// packet of any usual network. Operations that also carry comparands or masks may have half as
/// many.
const MOST: usize = 1024;

/// Size in bytes of a value of the longest atomic data type.
pub(crate) const LONGEST: usize = 32;

/// Returns the size in bytes of one value of an atomic data type.
#[must_use]
pub const fn atomic_size(data_type: AmoType) -> usize {
    match data_type {
        AmoType::LongDouble => 16,
        AmoType::LongDoubleComplex => 32,
        other => match other.size() {
            Some(size) => size,
            // Unreachable: the two types without a portable size are handled above.
            None => LONGEST,
        },
    }
}

/// Returns the alignment in bytes that C requires for a value of a type.
pub(crate) const fn alignment(data_type: AmoType) -> u64 {
    match data_type {
        AmoType::FloatComplex => 4,
        AmoType::DoubleComplex => 8,
        AmoType::LongDoubleComplex => 16,
        other => atomic_size(other) as u64,
    }
}

/// Returns whether an atomic operation takes comparands or masks besides its operands.
#[must_use]
pub const fn atomic_has_comparands(op: AmoOp) -> bool {
    op.is_compare_swap() || matches!(op, AmoOp::Mswap)
}

/// Returns the largest number of values that one operation may have, or `None` if the operation is
/// not defined for the type.
#[must_use]
pub fn max_atomic_count(op: AmoOp, data_type: AmoType) -> Option<usize> {
    let most = if atomic_has_comparands(op) { MOST / 2 } else { MOST };
    is_defined(op, data_type).then_some(most / atomic_size(data_type))
}

/// Returns whether an atomic operation is defined for a data type.
fn is_defined(op: AmoOp, data_type: AmoType) -> bool {
    use AmoType as T;
    let complex = matches!(data_type, T::FloatComplex | T::DoubleComplex | T::LongDoubleComplex);
    let integer = matches!(
        data_type,
        T::Int8
            | T::Uint8
            | T::Int16
            | T::Uint16
            | T::Int32
            | T::Uint32
            | T::Int64
            | T::Uint64
            | T::Int128
            | T::Uint128
    );
    match op {
        AmoOp::Sum | AmoOp::Diff | AmoOp::Prod => true,
        AmoOp::Lor | AmoOp::Land | AmoOp::Lxor => true,
        AmoOp::Read | AmoOp::Write | AmoOp::Cswap | AmoOp::CswapNe => true,
        AmoOp::Min | AmoOp::Max => !complex,
        AmoOp::CswapLe | AmoOp::CswapLt | AmoOp::CswapGe | AmoOp::CswapGt => !complex,
        AmoOp::Bor | AmoOp::Band | AmoOp::Bxor | AmoOp::Mswap => integer,
        AmoOp::Inval | AmoOp::Vendor(_) => false,
    }
}

/// Combines the values at `first` with those at `second`, pairwise, into `to`. All three slices are
/// equally long; a partial value at the end is ignored. Returns false if the operation is not
/// defined for the type or does not combine two values.
pub fn atomic_combine(
    (op, data_type): (AmoOp, AmoType),
    first: &[u8],
    second: &[u8],
    to: &mut [u8],
) -> bool {
    let reads = matches!(op, AmoOp::Read | AmoOp::Write) || atomic_has_comparands(op);
    let Some(calculation) = Calculation::new(op, data_type).filter(|_| !reads) else {
        return false;
    };
    let size = atomic_size(data_type);
    let values = first.chunks_exact(size).zip(second.chunks_exact(size));
    for ((first, second), to) in values.zip(to.chunks_exact_mut(size)) {
        if !calculation.compute(first, second, &[], to) {
            to.copy_from_slice(first);
        }
    }
    true
}

/// A pair of an atomic operation and a data type for which it is defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calculation {
    op: AmoOp,
    data_type: AmoType,
}

impl Calculation {
    pub(crate) fn new(op: AmoOp, data_type: AmoType) -> Option<Self> {
        is_defined(op, data_type).then_some(Self { op, data_type })
    }

    /// Returns whether the atomic operation never changes the target, like an atomic read.
    pub(crate) const fn is_read_only(self) -> bool {
        matches!(self.op, AmoOp::Read)
    }

    /// Computes the new value `new` from the old value `old`. All slices are one value long, except
    /// those that the operation does not use. Returns false if the value stays as it is.
    pub(crate) fn compute(
        self,
        old: &[u8],
        operand: &[u8],
        compare: &[u8],
        new: &mut [u8],
    ) -> bool {
        match self.op {
            AmoOp::Read => return false,
            AmoOp::Write => {
                new.copy_from_slice(operand);
                return true;
            }
            _ => {}
        }
        let all = (old, operand, compare);
        let op = self.op;
        match self.data_type {
            AmoType::Int8 => compute_value::<i8>(op, all, new),
            AmoType::Uint8 => compute_value::<u8>(op, all, new),
            AmoType::Int16 => compute_value::<i16>(op, all, new),
            AmoType::Uint16 => compute_value::<u16>(op, all, new),
            AmoType::Int32 => compute_value::<i32>(op, all, new),
            AmoType::Uint32 => compute_value::<u32>(op, all, new),
            AmoType::Int64 => compute_value::<i64>(op, all, new),
            AmoType::Uint64 => compute_value::<u64>(op, all, new),
            AmoType::Int128 => compute_value::<i128>(op, all, new),
            AmoType::Uint128 => compute_value::<u128>(op, all, new),
            AmoType::Float => compute_value::<f32>(op, all, new),
            AmoType::Double => compute_value::<f64>(op, all, new),
            AmoType::LongDouble => compute_value::<Extended>(op, all, new),
            AmoType::Fp16 => compute_value::<Half>(op, all, new),
            AmoType::Bf16 => compute_value::<BFloat>(op, all, new),
            AmoType::FloatComplex => compute_value::<Complex<f32>>(op, all, new),
            AmoType::DoubleComplex => compute_value::<Complex<f64>>(op, all, new),
            AmoType::LongDoubleComplex => compute_value::<Complex<Extended>>(op, all, new),
        }
    }
}

/// Implements [`Calculation::compute`] for values of one number type.
fn compute_value<N: Number>(op: AmoOp, all: (&[u8], &[u8], &[u8]), new: &mut [u8]) -> bool {
    let (old, operand) = (N::load(all.0), N::load(all.1));
    let swap = |yes: bool, new: &mut [u8]| {
        if yes {
            new.copy_from_slice(all.1);
        }
        yes
    };
    if atomic_has_comparands(op) {
        let compare = N::load(all.2);
        return match op {
            AmoOp::Cswap => swap(compare == old, new),
            AmoOp::CswapNe => swap(compare != old, new),
            AmoOp::CswapLe => swap(compare <= old, new),
            AmoOp::CswapLt => swap(compare < old, new),
            AmoOp::CswapGe => swap(compare >= old, new),
            AmoOp::CswapGt => swap(compare > old, new),
            _ => {
                let masked = (all.0.iter().zip(all.1)).zip(all.2);
                for (new, ((old, operand), mask)) in new.iter_mut().zip(masked) {
                    *new = operand & mask | old & !mask;
                }
                true
            }
        };
    }
    let value = match op {
        AmoOp::Min => return swap(old > operand, new),
        AmoOp::Max => return swap(old < operand, new),
        AmoOp::Sum => old.sum(operand),
        AmoOp::Diff => old.diff(operand),
        AmoOp::Prod => old.prod(operand),
        AmoOp::Lor => N::truth(old.is_true() || operand.is_true()),
        AmoOp::Land => N::truth(old.is_true() && operand.is_true()),
        AmoOp::Lxor => N::truth(old.is_true() != operand.is_true()),
        _ => {
            for (new, (old, operand)) in new.iter_mut().zip(all.0.iter().zip(all.1)) {
                *new = match op {
                    AmoOp::Bor => old | operand,
                    AmoOp::Band => old & operand,
                    _ => old ^ operand,
                };
            }
            return true;
        }
    };
    value.store(new);
    true
}

#[cfg(test)]
mod tests;
