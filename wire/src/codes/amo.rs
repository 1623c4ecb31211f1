//! Atomic operations and their data types (UE 1.0.x, SES atomics).

use super::code_points;

code_points! {
    /// Operation that an atomic request applies to the value at the target.
    AmoOp Vendor 0xE0..=0xFE {
        /// Minimum.
        Min = 0x00, "MIN";
        /// Maximum.
        Max = 0x01, "MAX";
        /// Sum.
        Sum = 0x02, "SUM";
        /// Difference.
        Diff = 0x03, "DIFF";
        /// Product.
        Prod = 0x04, "PROD";
        /// Logical or.
        Lor = 0x05, "LOR";
        /// Logical and.
        Land = 0x06, "LAND";
        /// Bitwise or.
        Bor = 0x07, "BOR";
        /// Bitwise and.
        Band = 0x08, "BAND";
        /// Logical exclusive or.
        Lxor = 0x09, "LXOR";
        /// Bitwise exclusive or.
        Bxor = 0x0A, "BXOR";
        /// Atomic read.
        Read = 0x0B, "READ";
        /// Atomic write.
        Write = 0x0C, "WRITE";
        /// Swap if equal.
        Cswap = 0x0D, "CSWAP";
        /// Swap if not equal.
        CswapNe = 0x0E, "CSWAP_NE";
        /// Swap if less or equal.
        CswapLe = 0x0F, "CSWAP_LE";
        /// Swap if less.
        CswapLt = 0x10, "CSWAP_LT";
        /// Swap if greater or equal.
        CswapGe = 0x11, "CSWAP_GE";
        /// Swap if greater.
        CswapGt = 0x12, "CSWAP_GT";
        /// Swap under a mask.
        Mswap = 0x13, "MSWAP";
        /// Invalidate a cached value.
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
        /// Signed, 8 bits.
        Int8 = 0x00, "INT8";
        /// Unsigned, 8 bits.
        Uint8 = 0x01, "UINT8";
        /// Signed, 16 bits.
        Int16 = 0x02, "INT16";
        /// Unsigned, 16 bits.
        Uint16 = 0x03, "UINT16";
        /// Signed, 32 bits.
        Int32 = 0x04, "INT32";
        /// Unsigned, 32 bits.
        Uint32 = 0x05, "UINT32";
        /// Signed, 64 bits.
        Int64 = 0x06, "INT64";
        /// Unsigned, 64 bits.
        Uint64 = 0x07, "UINT64";
        /// Signed, 128 bits.
        Int128 = 0x08, "INT128";
        /// Unsigned, 128 bits.
        Uint128 = 0x09, "UINT128";
        /// IEEE 754, 32 bits.
        Float = 0x0A, "FLOAT";
        /// IEEE 754, 64 bits.
        Double = 0x0B, "DOUBLE";
        /// Two [`AmoType::Float`].
        FloatComplex = 0x0C, "FLOAT_COMPLEX";
        /// Two [`AmoType::Double`].
        DoubleComplex = 0x0D, "DOUBLE_COMPLEX";
        /// The platform's `long double`.
        LongDouble = 0x0E, "LONG_DOUBLE";
        /// Two [`AmoType::LongDouble`].
        LongDoubleComplex = 0x0F, "LONG_DOUBLE_COMPLEX";
        /// Brain float, 16 bits.
        Bf16 = 0x10, "BF16";
        /// IEEE 754, 16 bits.
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
