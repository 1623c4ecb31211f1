//! A coarse time in 32 bits, for silences that need a precision of about a millisecond.

use crate::base::{Span, Time};

/// A time in units of 2^20 ns (about a millisecond). It wraps after seven weeks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick(u32);

impl Tick {
    const BITS: u32 = 20;

    #[inline]
    pub(crate) const fn at(now: Time) -> Self {
        Self((now.0 >> Self::BITS) as u32) // wraps
    }

    pub(crate) const fn time_until(self, now: Time) -> Span {
        Span((Self::at(now).0.wrapping_sub(self.0) as u64) << Self::BITS)
    }
}
