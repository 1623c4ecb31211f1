//! Descriptions of user memory. Buffers are address ranges in a space that only the [`Memory`]
//! implementation can access.

use core::fmt;

use crate::base::UserSlice;

/// A user buffer: no bytes, one range (without allocation), or an iovec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Buf {
    /// A buffer of no bytes.
    #[default]
    Empty,
    /// A buffer that is one contiguous range of memory.
    One(UserSlice),
    /// A buffer of several ranges of memory, in order (an iovec).
    Many(Box<[UserSlice]>),
}

impl Buf {
    /// Creates a contiguous buffer at address `base` that the application lends to an operation.
    #[must_use]
    pub const fn new(base: u64, len: u64) -> Self {
        Self::One(UserSlice::lent(base, len))
    }

    /// Creates a buffer of several ranges. A single range is stored without allocation.
    #[must_use]
    pub fn from_slices(slices: &[UserSlice]) -> Self {
        match slices {
            [] => Self::Empty,
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }

    /// Returns the memory ranges of the buffer in order.
    #[must_use]
    pub fn slices(&self) -> &[UserSlice] {
        match self {
            Self::Empty => &[],
            Self::One(slice) => core::slice::from_ref(slice),
            Self::Many(slices) => slices,
        }
    }

    /// Returns the total length of the buffer in bytes, saturating.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(slice) => slice.len,
            Self::Many(slices) => slices.iter().fold(0, |sum, s| sum.saturating_add(s.len)),
        }
    }

    /// Returns whether the CPU may access all of the buffer.
    #[must_use]
    #[inline]
    pub fn is_host(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::One(slice) => slice.space.is_host(),
            Self::Many(slices) => slices.iter().all(|slice| slice.space.is_host()),
        }
    }

    /// Returns whether the buffer has a length of zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte; zero if there is no range.
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

    /// Returns the part of the buffer from `offset` on, of `len` bytes or as many as there are.
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

/// The payload of a packet or shared-memory record, at hand or still to be fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// The payload bytes themselves.
    Here(&'a [u8]),
    /// A payload of this length in bytes that must be fetched ([`Memory::fetch`]).
    Elsewhere(u64),
}

impl Payload<'_> {
    /// Returns the length of the payload in bytes.
    pub(crate) const fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::Elsewhere(len) => *len,
        }
    }

    /// Copies the payload bytes from `at` on into all of `to`. Returns whether that was possible.
    #[inline]
    pub(crate) fn place<M: Memory>(&self, mem: &mut M, to: UserSlice, at: u64) -> bool {
        match self {
            Self::Here(bytes) => {
                let from = at as usize;
                mem.write_any(to, &bytes[from..from + to.len as usize])
            }
            Self::Elsewhere(_) => mem.fetch(to, at),
        }
    }

    /// Returns a copy of the payload, or `None` if it cannot be fetched.
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

/// The kind of access to a registered memory region that a remote operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The peer reads the region (FI_REMOTE_READ).
    RemoteRead,
    /// The peer writes the region (FI_REMOTE_WRITE).
    RemoteWrite,
    /// The peer reads and writes the region (FI_REMOTE_READ and FI_REMOTE_WRITE): an atomic that
    /// changes values and also returns or compares the old ones.
    RemoteReadWrite,
}

/// The reason why a peer's access to memory by key was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// No registered memory region has this key.
    BadKey,
    /// The range of the access is not inside the registered region.
    OutOfRange,
    /// The region was registered without permission for this kind of access.
    Permission,
    /// The key is valid, but copying to or from the region's device memory, which the CPU cannot
    /// access, failed.
    Uncopied,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadKey => "no memory region has this key",
            Self::OutOfRange => "the range is not inside the memory region",
            Self::Permission => "the memory region does not allow this access",
            Self::Uncopied => "the device memory of the region could not be copied",
        })
    }
}

/// Access to user memory: copying, reading and checking. The provider implements it over pointers,
/// the simulator over byte vectors. The engine calls it only with addresses inside buffers that it
/// was given, or inside ranges that `resolve` returned. Buffers of operations are host memory;
/// ranges of regions may be in any [`Space`](crate::base::Space).
pub trait Memory {
    /// Copies `data` to the start of `to`, host memory that is at least as long.
    fn write(&mut self, to: UserSlice, data: &[u8]);
    /// Copies `data` to the start of `to`, memory of any kind that is at least as long. Returns
    /// whether the copy succeeded.
    #[inline]
    fn write_any(&mut self, to: UserSlice, data: &[u8]) -> bool {
        self.write(to, data);
        true
    }
    /// Returns a copy of the bytes of a region's pieces if the CPU cannot access them, so that they
    /// cannot be sent from where they are. Returns `None` if it can.
    ///
    /// # Errors
    /// [`KeyError::Uncopied`].
    #[inline]
    fn copy_device_memory(&self, from: &Buf) -> Result<Option<Vec<u8>>, KeyError> {
        let _ = from;
        Ok(None)
    }
    /// Copies from the start of `from`, host memory that is at least as long, into all of `out`.
    fn read(&self, from: UserSlice, out: &mut [u8]);
    /// Copies the payload that the current shared-memory record refers to, or that was not handed
    /// out with it, from byte `at` on into all of `to` ([`crate::RecordOutput`]). Returns whether the
    /// whole copy succeeded and is valid: the owner may revoke the memory at any time.
    fn fetch(&mut self, to: UserSlice, at: u64) -> bool {
        let _ = (to, at);
        false
    }
    /// Copies payload like [`Memory::fetch`], but into a buffer `out` of the engine.
    fn fetch_out(&mut self, out: &mut [u8], at: u64) -> bool {
        let _ = (out, at);
        false
    }
    /// Returns whether the last fetch failed only because this process cannot read the memory of
    /// the peer. The peer still lends it, and copies it into the channel if the record is left in
    /// place ([`crate::RecordOutcome::Later`]).
    fn is_delayed(&self) -> bool {
        false
    }
    /// Replaces the value in all of `at` atomically. Atomic means: with respect to every other call
    /// of this method for the same value, and, if the value is aligned to its length of at most 8
    /// bytes, to the CPU's atomic instructions. `next` computes the new value from the old one and
    /// returns whether there is a new one; it may be called several times. `old` is as long as `at`
    /// and receives the previous value. Returns whether the access succeeded.
    fn update(
        &mut self,
        at: UserSlice,
        old: &mut [u8],
        next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
    ) -> bool;
    /// Checks that all of `len` bytes at `address` of the registration `key` may be accessed.
    /// Returns the first contiguous piece of them, of at least one byte if `len > 0`.
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
    fn ranges_span_segments_and_stop_at_the_end_of_the_buffer() {
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
