//! A time that takes little room, for silences that are told within a second.

use crate::base::{Span, Time};

/// A time in some milliseconds, which wraps in weeks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick(u32);

impl Tick {
    const BITS: u32 = 20;

    #[inline]
    pub(crate) const fn at(now: Time) -> Self {
        Self((now.0 >> Self::BITS) as u32) // wraps
    }

    pub(crate) const fn until(self, now: Time) -> Span {
        Span((Self::at(now).0.wrapping_sub(self.0) as u64) << Self::BITS)
    }
}
