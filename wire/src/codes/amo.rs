//! Atomic operations and their data types (UE 1.0.x, SES atomics).

use super::code_points;

code_points! {
    /// Operation that an atomic request applies to the value at the target.
    AmoOp Vendor 0xE0..=0xFE {
        /// The smaller of the operand and the value at the target.
        Min = 0x00, "MIN";
        /// The larger of the operand and the value at the target.
        Max = 0x01, "MAX";
        /// Sum of the operand and the value at the target.
        Sum = 0x02, "SUM";
        /// Difference of the value at the target and the operand.
        Diff = 0x03, "DIFF";
        /// Product of the operand and the value at the target.
        Prod = 0x04, "PROD";
        /// Logical OR of the operand and the value at the target.
        Lor = 0x05, "LOR";
        /// Logical AND of the operand and the value at the target.
        Land = 0x06, "LAND";
        /// Bitwise OR of the operand and the value at the target.
        Bor = 0x07, "BOR";
        /// Bitwise AND of the operand and the value at the target.
        Band = 0x08, "BAND";
        /// Logical exclusive OR of the operand and the value at the target.
        Lxor = 0x09, "LXOR";
        /// Bitwise exclusive OR of the operand and the value at the target.
        Bxor = 0x0A, "BXOR";
        /// Atomic read of the value at the target.
        Read = 0x0B, "READ";
        /// Atomic write of the value at the target.
        Write = 0x0C, "WRITE";
        /// Swap if the comparison operand equals the value at the target.
        Cswap = 0x0D, "CSWAP";
        /// Swap if the comparison operand does not equal the value at the target.
        CswapNe = 0x0E, "CSWAP_NE";
        /// Swap if the comparison operand is less than or equal to the value at the target.
        CswapLe = 0x0F, "CSWAP_LE";
        /// Swap if the comparison operand is less than the value at the target.
        CswapLt = 0x10, "CSWAP_LT";
        /// Swap if the comparison operand is greater than or equal to the value at the target.
        CswapGe = 0x11, "CSWAP_GE";
        /// Swap if the comparison operand is greater than the value at the target.
        CswapGt = 0x12, "CSWAP_GT";
        /// Swap of the bits that a mask selects.
        Mswap = 0x13, "MSWAP";
        /// Invalidation of a value that the target has cached.
        Inval = 0x14, "INVAL";
    }
}

impl AmoOp {
    /// Returns whether the operands are in a [`CompareSwap`](crate::CompareSwap) extension header (0x0D to
    /// 0x12).
    #[inline]
    #[must_use]
    pub const fn is_compare_swap(self) -> bool {
        matches!(
            self,
            Self::Cswap
                | Self::CswapNe
                | Self::CswapLe
                | Self::CswapLt
                | Self::CswapGe
                | Self::CswapGt
        )
    }

    /// Returns the vendor operation that replaces this compare-swap operation when its operands
    /// travel in the payload: for several values, or for values too long for the extension header.
    /// Returns `None` for an operation that is no compare-swap. The numbers are this project's
    /// choice from the vendors' range.
    #[inline]
    #[must_use]
    pub const fn with_payload(self) -> Option<Self> {
        if self.is_compare_swap() { Self::from_u8(0xE0 + self.to_u8() - 0x0D) } else { None }
    }

    /// Returns the compare-swap operation for which [`Self::with_payload`] returns this one.
    #[inline]
    #[must_use]
    pub const fn without_payload(self) -> Option<Self> {
        match self {
            Self::Vendor(number @ 0xE0..=0xE5) => Self::from_u8(number - 0xE0 + 0x0D),
            _ => None,
        }
    }
}

code_points! {
    /// The type of an atomic's operands.
    AmoType {
        /// Signed integer of 8 bits.
        Int8 = 0x00, "INT8";
        /// Unsigned integer of 8 bits.
        Uint8 = 0x01, "UINT8";
        /// Signed integer of 16 bits.
        Int16 = 0x02, "INT16";
        /// Unsigned integer of 16 bits.
        Uint16 = 0x03, "UINT16";
        /// Signed integer of 32 bits.
        Int32 = 0x04, "INT32";
        /// Unsigned integer of 32 bits.
        Uint32 = 0x05, "UINT32";
        /// Signed integer of 64 bits.
        Int64 = 0x06, "INT64";
        /// Unsigned integer of 64 bits.
        Uint64 = 0x07, "UINT64";
        /// Signed integer of 128 bits.
        Int128 = 0x08, "INT128";
        /// Unsigned integer of 128 bits.
        Uint128 = 0x09, "UINT128";
        /// Floating-point number of 32 bits (IEEE 754).
        Float = 0x0A, "FLOAT";
        /// Floating-point number of 64 bits (IEEE 754).
        Double = 0x0B, "DOUBLE";
        /// Complex number: two [`AmoType::Float`].
        FloatComplex = 0x0C, "FLOAT_COMPLEX";
        /// Complex number: two [`AmoType::Double`].
        DoubleComplex = 0x0D, "DOUBLE_COMPLEX";
        /// Floating-point number of the platform's type `long double`.
        LongDouble = 0x0E, "LONG_DOUBLE";
        /// Complex number: two [`AmoType::LongDouble`].
        LongDoubleComplex = 0x0F, "LONG_DOUBLE_COMPLEX";
        /// Floating-point number of 16 bits in the format bfloat16.
        Bf16 = 0x10, "BF16";
        /// Floating-point number of 16 bits (IEEE 754).
        Fp16 = 0x11, "FP16";
    }
}

impl AmoType {
    /// Returns the bytes of one value; `None` for the two types whose size depends on the platform.
    #[must_use]
    pub const fn size(self) -> Option<usize> {
        Some(match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 | Self::Bf16 | Self::Fp16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::Int128 | Self::Uint128 | Self::DoubleComplex => 16,
            Self::LongDouble | Self::LongDoubleComplex => return None,
        })
    }
}
