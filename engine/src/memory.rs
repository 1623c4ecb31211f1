//! User memory, named but never touched: buffers are address ranges in a space that only the
//! [`Memory`] implementation understands.

use core::fmt;

/// A contiguous range in the address space of the driver's [`Memory`]: for the provider real
/// addresses, for the simulator offsets into a byte vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seg {
    /// First byte.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A user buffer: nothing, one range (no allocation), or an iovec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Buf {
    /// No bytes.
    #[default]
    Empty,
    /// One contiguous range.
    One(Seg),
    /// Several ranges, in order.
    Many(Box<[Seg]>),
}

impl Buf {
    /// A contiguous buffer.
    #[must_use]
    pub const fn new(base: u64, len: u64) -> Self {
        Self::One(Seg { base, len })
    }

    /// A buffer of several ranges; a single one is stored without allocation.
    #[must_use]
    pub fn from_segs(segs: &[Seg]) -> Self {
        match segs {
            [] => Self::Empty,
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }

    /// The ranges in order.
    #[must_use]
    pub fn segs(&self) -> &[Seg] {
        match self {
            Self::Empty => &[],
            Self::One(seg) => core::slice::from_ref(seg),
            Self::Many(segs) => segs,
        }
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(seg) => seg.len,
            Self::Many(segs) => segs.iter().fold(0, |sum, s| sum.saturating_add(s.len)),
        }
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte; zero when there is no range.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.segs().first().map_or(0, |s| s.base)
    }

    /// Calls `f(address, position, length)` for each contiguous piece of `offset .. offset + len`,
    /// where `position` counts from `offset`. Parts beyond the end of the buffer are left out.
    pub fn for_range(&self, offset: u64, len: u64, mut f: impl FnMut(u64, u64, u64)) {
        if let Self::One(seg) = self {
            let take = len.min(seg.len.saturating_sub(offset));
            if take > 0 {
                f(seg.base.wrapping_add(offset), 0, take);
            }
            return;
        }
        let (mut skip, mut done) = (offset, 0);
        for seg in self.segs() {
            if done == len {
                return;
            }
            if skip >= seg.len {
                skip -= seg.len;
                continue;
            }
            let take = (len - done).min(seg.len - skip);
            f(seg.base.wrapping_add(skip), done, take);
            done += take;
            skip = 0;
        }
    }
}

/// What a remote operation wants to do with a registered range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// FI_REMOTE_READ.
    RemoteRead,
    /// FI_REMOTE_WRITE.
    RemoteWrite,
}

/// Why a key was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// No registration has this key.
    BadKey,
    /// The range is not inside the registration.
    OutOfRange,
    /// The registration does not allow this access.
    Permission,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadKey => "no memory region has this key",
            Self::OutOfRange => "the range is not inside the memory region",
            Self::Permission => "the memory region does not allow this access",
        })
    }
}

/// What copies, reads and checks user memory. The provider implements it over pointers, the
/// simulator over byte vectors; the engine calls it only with addresses inside buffers it was given,
/// or inside ranges `resolve` returned.
pub trait Memory {
    /// Copies `data` to `address`.
    fn write(&mut self, address: u64, data: &[u8]);
    /// Copies from `address` into all of `out`.
    fn read(&self, address: u64, out: &mut [u8]);
    /// Checks that all of `len` bytes at `address` of the registration `key` may be accessed, and
    /// returns the first contiguous piece of them (at least one byte when `len > 0`).
    ///
    /// # Errors
    /// [`KeyError`] says which check failed.
    fn resolve(&self, key: u64, address: u64, len: u64, access: Access) -> Result<Seg, KeyError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_segments_and_stop_at_the_end() {
        let buf = Buf::from_segs(&[
            Seg { base: 100, len: 3 },
            Seg { base: 0, len: 0 },
            Seg { base: 200, len: 5 },
        ]);
        assert_eq!(buf.len(), 8);
        let mut seen = vec![];
        buf.for_range(2, 100, |a, p, n| seen.push((a, p, n)));
        assert_eq!(seen, [(102, 0, 1), (200, 1, 5)]);
        seen.clear();
        Buf::new(7, 4).for_range(1, 2, |a, p, n| seen.push((a, p, n)));
        assert_eq!(seen, [(8, 0, 2)]);
    }
}
