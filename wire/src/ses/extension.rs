//! Extension headers, which stand between a request header and the payload.

use crate::codes::{AmoOp, AmoType, Opcode};
use crate::error::ParseError;
use crate::view::{be32, be64, be128, view};

view! {
    /// Extension header of an atomic operation.
    AtomicView [4] if |_b| true;
    /// Number of the atomic operation ([`AmoOp`]).
    op: u8 = |b| b[0];
    /// Number of the operands' data type ([`AmoType`]).
    data_type: u8 = |b| b[1];
    /// Flags of the atomic operation: 0x01 cacheable, 0x02 coherent with the CPU.
    semantic_control: u8 = |b| b[2];
    /// Reserved field, zero.
    reserved: u8 = |b| b[3];
}

view! {
    /// Extension header of a compare-swap operation. Its first 4 bytes are an [`AtomicView`].
    CompareSwapView [36] if |b| matches!(b[0], 0x0D..=0x12);
    /// Value to compare with the value at the target, high half first.
    compare: u128 = |b| be128(b, 4);
    /// Value to store at the target if the comparison holds, high half first.
    swap: u128 = |b| be128(b, 20);
}

view! {
    /// Extension header of a rendezvous message, whose rest the receiver reads.
    RendezvousView [24] if |_b| true;
    /// Bytes of the message that the packets of the request carry.
    eager_length: u32 = |b| be32(b, 0);
    /// Generation of the resource from which the receiver reads.
    ri_generation: u8 = |b| b[4];
    /// Process number (PIDonFEP) from whose memory the receiver reads, 12 bits.
    pid_on_fep: u16 = |b| (be32(b, 4) >> 12 & 0xFFF) as u16;
    /// Index of the resource from which the receiver reads, 12 bits.
    resource_index: u16 = |b| (be32(b, 4) & 0xFFF) as u16;
    /// Offset at which the receiver begins to read, in bytes.
    read_offset: u64 = |b| be64(b, 8);
    /// Key of the memory region from which the receiver reads.
    memory_key: u64 = |b| be64(b, 16);
}

/// Extension header of an atomic operation, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Atomic {
    /// Atomic operation to perform.
    pub op: AmoOp,
    /// Data type of the operands.
    pub data_type: AmoType,
    /// The target may keep the value in a cache.
    pub cacheable: bool,
    /// The result is coherent with the target's CPU.
    pub cpu_coherent: bool,
}

/// Compare-swap extension header, 36 bytes. Operands are right-aligned: a 4-byte value is in the
/// low 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CompareSwap {
    /// Atomic operation, one of [`AmoOp::is_compare_swap`], and data type.
    pub atomic: Atomic,
    /// Value to compare with the value at the target.
    pub compare: u128,
    /// Value to store at the target if the comparison holds.
    pub swap: u128,
}

/// Rendezvous extension header, 24 bytes: the source from which the receiver reads the rest of the
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rendezvous {
    /// Bytes of the message that the packets of the request carry; at most request_length.
    pub eager_length: u32,
    /// Generation of the resource from which the receiver reads.
    pub ri_generation: u8,
    /// Process number (PIDonFEP) from whose memory the receiver reads, 12 bits.
    pub pid_on_fep: u16,
    /// Index of the resource from which the receiver reads, 12 bits.
    pub resource_index: u16,
    /// Offset at which the receiver begins to read, in bytes.
    pub read_offset: u64,
    /// Key of the memory region from which the receiver reads.
    pub memory_key: u64,
}

/// The extension header of a request, as its opcode requires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Extension {
    /// No extension: the opcode has none, or the packet is a continuation.
    #[default]
    None,
    /// Extension header of an atomic operation, see [`Opcode::is_atomic`].
    Atomic(Atomic),
    /// Extension header of a compare-swap operation, see [`Opcode::is_atomic`] and
    /// [`AmoOp::is_compare_swap`].
    CompareSwap(CompareSwap),
    /// Extension header of a rendezvous message, see [`Opcode::is_rendezvous`].
    Rendezvous(Rendezvous),
}

impl Atomic {
    /// Length of the extension header in bytes.
    pub const LEN: usize = 4;

    fn bytes(&self) -> [u8; Self::LEN] {
        let control = u8::from(self.cacheable) | u8::from(self.cpu_coherent) << 1;
        [self.op.to_u8(), self.data_type.to_u8(), control, 0]
    }

    /// Checks a header's rules and returns its operation and type.
    fn check(view: AtomicView<'_>) -> Result<(AmoOp, AmoType), ParseError> {
        let op = AmoOp::from_u8(view.op()).ok_or(ParseError::Amo)?;
        let data_type = AmoType::from_u8(view.data_type()).ok_or(ParseError::Amo)?;
        if view.semantic_control() & !0x03 != 0 || view.reserved() != 0 {
            return Err(ParseError::Reserved);
        }
        Ok((op, data_type))
    }

    const fn build(view: AtomicView<'_>, op: AmoOp, data_type: AmoType) -> Self {
        let control = view.semantic_control();
        Self { op, data_type, cacheable: control & 1 != 0, cpu_coherent: control & 2 != 0 }
    }
}

impl CompareSwap {
    /// Length of the extension header in bytes.
    pub const LEN: usize = 36;
}

impl Rendezvous {
    /// Length of the extension header in bytes.
    pub const LEN: usize = 24;
}

impl Extension {
    /// Returns the length of the extension header in bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // `Extension::None` is the empty one
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Atomic(_) => Atomic::LEN,
            Self::CompareSwap(_) => CompareSwap::LEN,
            Self::Rendezvous(_) => Rendezvous::LEN,
        }
    }

    /// Writes the header and returns its length.
    ///
    /// # Panics
    /// Panics if `out` is shorter than [`Self::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self {
            Self::None => {}
            Self::Atomic(a) => out[..Atomic::LEN].copy_from_slice(&a.bytes()),
            Self::CompareSwap(c) => {
                out[..4].copy_from_slice(&c.atomic.bytes());
                out[4..20].copy_from_slice(&c.compare.to_be_bytes());
                out[20..36].copy_from_slice(&c.swap.to_be_bytes());
            }
            Self::Rendezvous(r) => {
                let word = u32::from(r.ri_generation) << 24
                    | u32::from(r.pid_on_fep & 0xFFF) << 12
                    | u32::from(r.resource_index & 0xFFF);
                out[0..4].copy_from_slice(&r.eager_length.to_be_bytes());
                out[4..8].copy_from_slice(&word.to_be_bytes());
                out[8..16].copy_from_slice(&r.read_offset.to_be_bytes());
                out[16..24].copy_from_slice(&r.memory_key.to_be_bytes());
            }
        }
        self.len()
    }

    /// Reads the header that `opcode` demands at the start of `bytes`; [`Extension::None`] for an
    /// opcode without one.
    ///
    /// # Errors
    /// Returns the rule that the header breaks.
    pub fn read(opcode: Opcode, bytes: &[u8]) -> Result<Self, ParseError> {
        CheckedExtension::new(opcode, bytes).map(CheckedExtension::build)
    }
}

/// An extension header that obeys its rules, as a reference to its bytes, which is smaller than the
/// value.
#[derive(Clone, Copy)]
pub(crate) enum CheckedExtension<'a> {
    None,
    Atomic(AtomicView<'a>, AmoOp, AmoType),
    CompareSwap(AtomicView<'a>, CompareSwapView<'a>, AmoOp, AmoType),
    Rendezvous(RendezvousView<'a>),
}

impl<'a> CheckedExtension<'a> {
    #[inline]
    pub(super) fn new(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, ParseError> {
        if opcode.is_rendezvous() {
            return RendezvousView::new(bytes).map(Self::Rendezvous);
        }
        if !opcode.is_atomic() {
            return Ok(Self::None);
        }
        let view = AtomicView::new(bytes)?;
        let (op, data_type) = Atomic::check(view)?;
        if !op.is_compare_swap() {
            return Ok(Self::Atomic(view, op, data_type));
        }
        Ok(Self::CompareSwap(view, CompareSwapView::new(bytes)?, op, data_type))
    }

    #[inline]
    pub(super) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Atomic(..) => Atomic::LEN,
            Self::CompareSwap(..) => CompareSwap::LEN,
            Self::Rendezvous(_) => Rendezvous::LEN,
        }
    }

    #[inline]
    pub(super) const fn build(self) -> Extension {
        match self {
            Self::None => Extension::None,
            Self::Atomic(view, op, data_type) => {
                Extension::Atomic(Atomic::build(view, op, data_type))
            }
            Self::CompareSwap(start, view, op, data_type) => Extension::CompareSwap(CompareSwap {
                atomic: Atomic::build(start, op, data_type),
                compare: view.compare(),
                swap: view.swap(),
            }),
            Self::Rendezvous(view) => Extension::Rendezvous(Rendezvous {
                eager_length: view.eager_length(),
                ri_generation: view.ri_generation(),
                pid_on_fep: view.pid_on_fep(),
                resource_index: view.resource_index(),
                read_offset: view.read_offset(),
                memory_key: view.memory_key(),
            }),
        }
    }
}
