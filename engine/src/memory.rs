//! User memory, named but never touched: buffers are address ranges in a space that only the
//! [`Memory`] implementation understands.

use core::fmt;

use crate::base::UserSlice;

/// A user buffer: nothing, one range (no allocation), or an iovec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Buf {
    /// No bytes.
    #[default]
    Empty,
    /// One contiguous range.
    One(UserSlice),
    /// Several ranges, in order.
    Many(Box<[UserSlice]>),
}

impl Buf {
    /// A contiguous buffer that an operation lends.
    #[must_use]
    pub const fn new(base: u64, len: u64) -> Self {
        Self::One(UserSlice::lent(base, len))
    }

    /// A buffer of several ranges; a single one is stored without allocation.
    #[must_use]
    pub fn from_slices(slices: &[UserSlice]) -> Self {
        match slices {
            [] => Self::Empty,
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }

    /// The ranges in order.
    #[must_use]
    pub fn slices(&self) -> &[UserSlice] {
        match self {
            Self::Empty => &[],
            Self::One(slice) => core::slice::from_ref(slice),
            Self::Many(slices) => slices,
        }
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(slice) => slice.len,
            Self::Many(slices) => slices.iter().fold(0, |sum, s| sum.saturating_add(s.len)),
        }
    }

    /// Whether the CPU may touch all of it.
    #[must_use]
    #[inline]
    pub fn is_host(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::One(slice) => slice.space.is_host(),
            Self::Many(slices) => slices.iter().all(|slice| slice.space.is_host()),
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
        self.slices().first().map_or(0, |s| s.base)
    }

    /// Calls `f(piece, position)` for each contiguous piece of `offset .. offset + len`, where `position`
    /// counts from `offset`. Parts beyond the end of the buffer are left out.
    #[inline]
    pub fn for_range(&self, offset: u64, len: u64, mut f: impl FnMut(UserSlice, u64)) {
        if let Self::One(slice) = self {
            let take = len.min(slice.len.saturating_sub(offset));
            if take > 0 {
                f(slice.part(offset, take), 0);
            }
            return;
        }
        let (mut skip, mut done) = (offset, 0);
        for slice in self.slices() {
            if done == len {
                return;
            }
            if skip >= slice.len {
                skip -= slice.len;
                continue;
            }
            let take = (len - done).min(slice.len - skip);
            f(slice.part(skip, take), done);
            done += take;
            skip = 0;
        }
    }

    /// A part of the buffer as a buffer, without what lies beyond its end.
    #[must_use]
    pub fn part(&self, offset: u64, len: u64) -> Self {
        if let Self::One(slice) = self {
            return Self::One(slice.part(offset, len.min(slice.len.saturating_sub(offset))));
        }
        let mut pieces: Vec<UserSlice> = Vec::new();
        self.for_range(offset, len, |piece, _| pieces.push(piece));
        Self::from_slices(&pieces)
    }
}

/// What came with a packet or frame for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// The bytes.
    Here(&'a [u8]),
    /// So many bytes, which are to be fetched ([`Memory::fetch`]).
    Elsewhere(u64),
}

impl Payload<'_> {
    /// Bytes.
    pub(crate) const fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::Elsewhere(len) => *len,
        }
    }

    /// Copies the bytes from `at` on into all of `to`. Whether they could be had.
    #[inline]
    pub(crate) fn place<M: Memory>(&self, mem: &mut M, to: UserSlice, at: u64) -> bool {
        match self {
            Self::Here(bytes) => {
                let from = at as usize;
                mem.put(to, &bytes[from..from + to.len as usize])
            }
            Self::Elsewhere(_) => mem.fetch(to, at),
        }
    }

    /// A copy of it, if it could be had.
    pub(crate) fn copy<M: Memory>(&self, mem: &mut M) -> Option<Vec<u8>> {
        match self {
            Self::Here(bytes) => Some(bytes.to_vec()),
            Self::Elsewhere(len) => {
                let mut bytes = vec![0; usize::try_from(*len).ok()?];
                mem.fetch_out(&mut bytes, 0).then_some(bytes)
            }
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
    /// FI_REMOTE_READ together with FI_REMOTE_WRITE: an atomic that changes values and also returns or compares the old
    /// ones.
    RemoteReadWrite,
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
    /// All is well with the key, but what moves bytes to and from the memory, which the CPU may not touch, failed.
    Uncopied,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadKey => "no memory region has this key",
            Self::OutOfRange => "the range is not inside the memory region",
            Self::Permission => "the memory region does not allow this access",
            Self::Uncopied => "the memory region could not be copied",
        })
    }
}

/// What copies, reads and checks user memory. The provider implements it over pointers, the
/// simulator over byte vectors; the engine calls it only with addresses inside buffers it was given,
/// or inside ranges `resolve` returned. Buffers of operations are memory of the host; ranges of regions may be of any
/// [`Space`](crate::base::Space).
pub trait Memory {
    /// Copies `data` to the start of `to`, memory of the host that is at least as long.
    fn write(&mut self, to: UserSlice, data: &[u8]);
    /// As [`Memory::write`], to memory of any kind. Whether it is there.
    #[inline]
    fn put(&mut self, to: UserSlice, data: &[u8]) -> bool {
        self.write(to, data);
        true
    }
    /// A copy of the bytes of a region's pieces, if the CPU may not touch them, so that they cannot be sent from where
    /// they are.
    ///
    /// # Errors
    /// [`KeyError::Uncopied`].
    #[inline]
    fn lift(&self, from: &Buf) -> Result<Option<Vec<u8>>, KeyError> {
        let _ = from;
        Ok(None)
    }
    /// Copies from the start of `from`, memory of the host that is at least as long, into all of `out`.
    fn read(&self, from: UserSlice, out: &mut [u8]);
    /// Copies into all of `to` what the frame that is being handled refers to, or what of it was not handed out, from
    /// byte `at` on ([`crate::FrameSink`]). Whether that was possible, and true to the end: its owner may have taken it back.
    fn fetch(&mut self, to: UserSlice, at: u64) -> bool {
        let _ = (to, at);
        false
    }
    /// The same into memory of the engine.
    fn fetch_out(&mut self, out: &mut [u8], at: u64) -> bool {
        let _ = (out, at);
        false
    }
    /// Returns whether the last fetch failed only because this process cannot read the bytes where they are. Their
    /// owner still lends them, and copies them if the frame is left where it is ([`crate::FrameTaken::Later`]).
    fn is_delayed(&self) -> bool {
        false
    }
    /// Makes a new value of the one in all of `at`, at once towards every other call of this for the same value, and,
    /// where it is aligned to a length of at most 8 bytes, towards the CPU's atomic instructions. `next` makes it of
    /// the old value, and says whether there is a new one; it may be asked several times. `old` is as long as `at`, and
    /// holds the value before. Whether that could be done.
    fn update(
        &mut self,
        at: UserSlice,
        old: &mut [u8],
        next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool;
    /// Checks that all of `len` bytes at `address` of the registration `key` may be accessed, and
    /// returns the first contiguous piece of them (at least one byte when `len > 0`).
    ///
    /// # Errors
    /// [`KeyError`] says which check failed.
    fn resolve(
        &self,
        key: u64,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<UserSlice, KeyError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RegionId;

    #[test]
    fn ranges_cross_segments_and_stop_at_the_end() {
        let buf = Buf::from_slices(&[
            UserSlice::lent(100, 3),
            UserSlice::lent(0, 0),
            UserSlice { region: RegionId(4), ..UserSlice::lent(200, 5) },
        ]);
        assert_eq!(buf.len(), 8);
        let mut seen = vec![];
        buf.for_range(2, 100, |piece, at| seen.push((piece.base, at, piece.len, piece.region.0)));
        assert_eq!(seen, [(102, 0, 1, 0), (200, 1, 5, 4)]);
        assert_eq!(buf.part(1, 3).slices().len(), 2);
        assert_eq!(Buf::new(7, 4).part(1, 2), Buf::new(8, 2));
        assert_eq!(Buf::new(7, 4).part(3, 9).len(), 1);
    }
}
