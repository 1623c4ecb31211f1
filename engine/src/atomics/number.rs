//! Number types for atomic arithmetic, in the byte order of the host.

use core::cmp::Ordering;

use rustc_apfloat::Float;
use rustc_apfloat::ieee;

/// A value of an atomic operation. Incomparable values, such as NaN, are neither less nor greater.
pub(super) trait Number: Copy + PartialEq + PartialOrd {
    fn load(bytes: &[u8]) -> Self;
    fn store(self, out: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn diff(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn is_true(self) -> bool;
    fn truth(yes: bool) -> Self;
}

/// Returns the first `N` bytes of a value, or zeros if it is shorter.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

macro_rules! primitives {
    ($($type:ty, $zero:literal, $one:literal, $sum:expr, $diff:expr, $prod:expr;)*) => {
        $(impl Number for $type {
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(first(bytes))
            }
            #[inline]
            fn store(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_ne_bytes());
            }
            #[inline]
            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }
            #[inline]
            fn diff(self, other: Self) -> Self {
                $diff(self, other)
            }
            #[inline]
            fn prod(self, other: Self) -> Self {
                $prod(self, other)
            }
            #[inline]
            fn is_true(self) -> bool {
                self != $zero
            }
            #[inline]
            fn truth(yes: bool) -> Self {
                if yes { $one } else { $zero }
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ty)*) => {
        primitives! {
            $($type, 0, 1, Self::wrapping_add, Self::wrapping_sub, Self::wrapping_mul;)*
        }
    };
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 u128 }
primitives! {
    f32, 0.0, 1.0, |a, b| a + b, |a, b| a - b, |a, b| a * b;
    f64, 0.0, 1.0, |a, b| a + b, |a, b| a - b, |a, b| a * b;
}

/// A floating-point type that Rust lacks, emulated in software. It occupies `N` bytes in memory;
/// the last may be padding.
#[derive(Clone, Copy)]
pub(super) struct Soft<F, const N: usize>(F);

/// Floating-point number of 16 bits in the half-precision format of IEEE 754.
pub(super) type Half = Soft<ieee::Half, 2>;
/// Floating-point number of 16 bits in the bfloat16 format.
pub(super) type BFloat = Soft<ieee::BFloat, 2>;
/// The platform's `long double`: the 80-bit x87 format, in 16 bytes.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
pub(super) type Extended = Soft<ieee::X87DoubleExtended, 16>;
/// The platform's `long double`: the 128-bit quadruple-precision format of IEEE 754.
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
pub(super) type Extended = Soft<ieee::Quad, 16>;

impl<F: Float, const N: usize> PartialEq for Soft<F, N> {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl<F: Float, const N: usize> PartialOrd for Soft<F, N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.0.partial_cmp(&other.0)
    }
}

impl<F: Float, const N: usize> Number for Soft<F, N> {
    fn load(bytes: &[u8]) -> Self {
        let mut all = [0; 16];
        // Padding bytes are ignored.
        let used = F::BITS.div_ceil(8);
        if cfg!(target_endian = "little") {
            all[..used].copy_from_slice(&first::<N>(bytes)[..used]);
        } else {
            all[16 - used..].copy_from_slice(&first::<N>(bytes)[..used]);
        }
        Self(F::from_bits(u128::from_ne_bytes(all)))
    }

    fn store(self, out: &mut [u8]) {
        let all = self.0.to_bits().to_ne_bytes();
        let from = if cfg!(target_endian = "little") { 0 } else { 16 - N };
        out.copy_from_slice(&all[from..from + N]);
    }

    fn sum(self, other: Self) -> Self {
        Self((self.0 + other.0).value)
    }

    fn diff(self, other: Self) -> Self {
        Self((self.0 - other.0).value)
    }

    fn prod(self, other: Self) -> Self {
        Self((self.0 * other.0).value)
    }

    fn is_true(self) -> bool {
        !self.0.is_zero()
    }

    fn truth(yes: bool) -> Self {
        Self(if yes { F::from_u128(1).value } else { F::ZERO })
    }
}

/// A complex number: the real part, then the imaginary part.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Complex<N>(N, N);

impl<N: Number> PartialOrd for Complex<N> {
    /// Complex numbers have equality but no order.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl<N: Number> Number for Complex<N> {
    fn load(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        Self(N::load(real), N::load(imaginary))
    }

    fn store(self, out: &mut [u8]) {
        let (real, imaginary) = out.split_at_mut(out.len() / 2);
        self.0.store(real);
        self.1.store(imaginary);
    }

    fn sum(self, other: Self) -> Self {
        Self(self.0.sum(other.0), self.1.sum(other.1))
    }

    fn diff(self, other: Self) -> Self {
        Self(self.0.diff(other.0), self.1.diff(other.1))
    }

    fn prod(self, other: Self) -> Self {
        let real = self.0.prod(other.0).diff(self.1.prod(other.1));
        Self(real, self.0.prod(other.1).sum(self.1.prod(other.0)))
    }

    fn is_true(self) -> bool {
        self.0.is_true() || self.1.is_true()
    }

    fn truth(yes: bool) -> Self {
        Self(N::truth(yes), N::truth(false))
    }
}
