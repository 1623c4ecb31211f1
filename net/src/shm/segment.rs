//! Memory that two processes share: a sealed memfd and its mapping.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Seals on the size of the memfd. Without them a peer could truncate it, and an access to the
/// missing pages would raise a signal.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Advice `MADV_POPULATE_WRITE` for madvise(2), since Linux 5.14 (linux/mman.h): allocate the pages now.
const POPULATE_WRITE: libc::c_int = 23;

/// A shared mapping. The other process may change its contents at any time. So words are accessed
/// as atomics and bytes by raw copies, and no reference to bytes exists.
///
/// The memfd may have holes, so that a pair of endpoints only takes the memory that it uses. Code
/// that touches bytes for the first time must call [`Segment::populate`] first: an access for which
/// the kernel has no memory raises a signal.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    len: usize,
    /// All pages of the segment have been allocated.
    fully_populated: bool,
}

// SAFETY: `base` is a mapping of this value's own, which any thread of the process may use and unmap.
unsafe impl Send for Segment {}
// SAFETY: several threads of the process may access it at once, as the other process does: words are accessed as atomics,
// and bytes by copies alone.
unsafe impl Sync for Segment {}

/// Converts the return value of a system call: -1 becomes the error of the thread.
pub(crate) fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Returns the size limit of files (RLIMIT_FSIZE), which applies to memfds, too. A write beyond it
/// raises a signal.
pub(crate) fn largest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes the two numbers of `limit`, which is a local variable.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

impl Segment {
    /// Creates a zeroed segment of `len` bytes and its descriptor. The segment has no pages yet,
    /// except on kernels that cannot add them later ([`Segment::populate`]); there it has all of
    /// them.
    ///
    /// # Errors
    /// The error of the system; `FileTooLarge` if RLIMIT_FSIZE forbids the size, since the kernel
    /// would end the process.
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        if largest_file() < len as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: memfd_create(2) reads a literal with a terminator and returns a new descriptor, which goes nowhere
        // but into the `OwnedFd`.
        let fd = unsafe {
            let fd = check(libc::memfd_create(c"squall".as_ptr(), flags))?;
            OwnedFd::from_raw_fd(fd)
        };
        let size = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: ftruncate(2) takes numbers and no pointer; it changes the new file alone, of which nothing is mapped
        // yet.
        unsafe { check(libc::ftruncate(fd.as_raw_fd(), size))? };
        let mut segment = Self::map(fd.as_fd(), len)?;
        if !segment.populate(0, 1) {
            // SAFETY: fallocate(2) takes numbers and no pointer; it gives pages to the file behind `segment`, whose
            // bytes stay 0.
            unsafe { check(libc::fallocate(fd.as_raw_fd(), 0, 0, size))? };
            segment.fully_populated = true;
        }
        // SAFETY: F_ADD_SEALS of fcntl(2) takes a number and no pointer; it forbids the file behind `segment` to change
        // its size.
        unsafe { check(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS))? };
        Ok((segment, fd))
    }

    /// Maps the segment of a peer.
    ///
    /// # Errors
    /// The error of the system; the segment is not sealed, or its size is not between `least` and
    /// `most` bytes.
    pub(crate) fn open(fd: BorrowedFd<'_>, least: usize, most: usize) -> io::Result<Self> {
        // SAFETY: fcntl(2) with F_GET_SEALS takes numbers alone; of another file than a memfd it fails.
        let seals = unsafe { check(libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS))? };
        // SAFETY: a stat is a record of integers, for which zero is a value; fstat(2) writes one.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            check(libc::fstat(fd.as_raw_fd(), &raw mut stat))?;
            stat
        };
        let len = usize::try_from(stat.st_size).unwrap_or(0);
        if seals & SEALS != SEALS || !(least..=most).contains(&len) {
            return Err(io::Error::other(
                "the peer's shared memory is refused: it is not sealed, or its size is out of range",
            ));
        }
        let mut segment = Self::map(fd, len)?;
        // `st_blocks` counts 512 bytes each. On kernels that support it, `populate` fills holes
        // later.
        segment.fully_populated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 >= len as u64;
        if !segment.populate(0, 1) {
            return Err(io::Error::other(
                "the peer's shared memory is refused: it has holes that this kernel cannot fill; use Linux 5.14 or newer",
            ));
        }
        Ok(segment)
    }

    /// Allocates the pages of `len` bytes at `at`, so that touching them cannot fail. Returns false
    /// if there is no memory for them or the kernel cannot allocate them.
    ///
    /// # Panics
    /// The range is not inside the segment.
    #[cold]
    pub(crate) fn populate(&self, at: usize, len: usize) -> bool {
        assert!(at <= self.len && len <= self.len - at, "what is populated is inside");
        if self.fully_populated || len == 0 {
            return true;
        }
        // SAFETY: sysconf(3) takes a number and touches no memory of the program.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let from = at - at % page;
        // SAFETY: the range begins at a page of the mapping, and ends inside it (the kernel rounds the length up to the
        // page that is mapped anyway); populating changes no byte of it.
        let rc = unsafe {
            let base = self.base.as_ptr().add(from);
            libc::madvise(base.cast(), at + len - from, POPULATE_WRITE)
        };
        rc == 0
    }

    fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use. A child of fork
        // does not get it: it is not the endpoint's owner.
        let base = unsafe {
            let base = libc::mmap(ptr::null_mut(), len, access, flags, fd.as_raw_fd(), 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            // If the call fails, a child merely has a mapping that it does not use.
            libc::madvise(base, len, libc::MADV_DONTFORK);
            base
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, fully_populated: false })
    }

    /// Creates a private mapping, which Miri and the thread sanitizer understand.
    #[cfg(test)]
    pub(super) fn anonymous(len: usize) -> Self {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of no file, at an address of the kernel's choice, touches no memory that is in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: NonNull::new(base.cast()).expect("not at 0"), len, fully_populated: true }
    }

    /// Returns the number of bytes of the segment that have memory pages.
    #[cfg(test)]
    pub(super) fn resident(&self) -> usize {
        // SAFETY: sysconf(3) takes a number and touches no memory of the program.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mut pages = vec![0u8; self.len.div_ceil(page)];
        // SAFETY: mincore(2) writes a byte for each page of the mapping, as many as `pages` has, and reads nothing of
        // it.
        let rc = unsafe { libc::mincore(self.base.as_ptr().cast(), self.len, pages.as_mut_ptr()) };
        assert_eq!(rc, 0);
        pages.iter().filter(|page| **page & 1 != 0).count() * page
    }

    /// Returns the size of the segment in bytes.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the 64-bit word at `at`.
    ///
    /// # Panics
    /// The word is not inside the segment, or not aligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < self.len - 7, "a word is inside the segment");
        // SAFETY: inside the mapping, which begins at a page, and aligned, as was just checked; the mapping lives as
        // long as the reference, and here the word is accessed as an atomic alone (`read` and `write` leave out
        // the words of `ring.rs`). What another process does to it is no access of this program.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Returns the 32-bit word at `at`.
    ///
    /// # Panics
    /// The word is not inside the segment, or not aligned.
    #[inline]
    pub(crate) fn flag(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < self.len - 3, "a flag is inside the segment");
        // SAFETY: the four bytes are inside the mapping, which begins at a page, and aligned, as was just checked; the
        // mapping lives as long as the reference. What another process does to it is no access of this program.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// Copies the bytes at `at` to `out`.
    ///
    /// # Panics
    /// They are not inside the segment.
    #[inline]
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at <= self.len && out.len() <= self.len - at, "what is read is inside");
        // SAFETY: inside the mapping, as was just checked; `out` is memory of ours, which a mapping does not overlap.
        // If the peer writes meanwhile the copy is a mixture, of bytes.
        unsafe {
            let from = self.base.as_ptr().add(at);
            ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
    }

    /// Copies `len` bytes at `at` to `to`.
    ///
    /// # Safety
    /// `to` may be written for `len` bytes.
    ///
    /// # Panics
    /// The bytes are not inside the segment.
    #[inline]
    pub(super) unsafe fn read_to(&self, at: usize, to: *mut u8, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "what is read is inside");
        // SAFETY: inside the mapping, as was just checked, and `to` may be written by this function's contract. An
        // application cannot lend memory of this mapping, of which it knows nothing. If the peer writes meanwhile the
        // copy is a mixture, of bytes.
        unsafe { ptr::copy_nonoverlapping(self.base.as_ptr().add(at), to, len) };
    }

    /// Copies `len` bytes from `from` to `at`.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, even if others write to them meanwhile.
    ///
    /// # Panics
    /// They do not fit inside the segment.
    #[inline]
    pub(crate) unsafe fn write(&self, at: usize, from: *const u8, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "what is written is inside");
        // SAFETY: inside the mapping, as was just checked, and readable by this function's contract. An application
        // cannot lend memory of this mapping, of which it knows nothing.
        unsafe { ptr::copy_nonoverlapping(from, self.base.as_ptr().add(at), len) };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, to which no reference is left: they borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_cannot_be_taken_away() {
        let (_segment, fd) = Segment::create(8192).expect("memory");
        // SAFETY: ftruncate(2) on a descriptor of this test touches no memory of the program: the segment stays mapped.
        let rc = unsafe { libc::ftruncate(fd.as_raw_fd(), 0) };
        assert_eq!((rc, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
        assert!(Segment::open(fd.as_fd(), 8192, 8192).is_ok());
        assert!(Segment::open(fd.as_fd(), 8193, 9000).is_err());
        assert!(Segment::open(fd.as_fd(), 1, 8191).is_err());
    }

    #[test]
    fn unsealed_segments_are_not_mapped() {
        // SAFETY: memfd_create(2) reads a literal and returns a new descriptor; ftruncate(2) takes numbers.
        let fd = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags));
            assert_eq!(libc::ftruncate(fd.as_raw_fd(), 8192), 0);
            fd
        };
        assert!(Segment::open(fd.as_fd(), 1, 1 << 20).is_err(), "not sealed");
        // SAFETY: fcntl(2) seals the descriptor of this test, and follows no pointer.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) }, 0);
        assert!(Segment::open(fd.as_fd(), 1, 1 << 20).is_ok_and(|it| it.populate(0, 8192)));
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert!(Segment::open(file.as_fd(), 0, 1 << 20).is_err(), "not memory");
    }

    #[test]
    fn a_segment_has_the_pages_that_were_asked_for() {
        let blocks = |fd: &OwnedFd| {
            // SAFETY: a stat is a record of integers, for which zero is a value; fstat(2) writes one.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                assert_eq!(libc::fstat(fd.as_raw_fd(), &raw mut stat), 0);
                usize::try_from(stat.st_blocks).expect("not negative") * 512
            }
        };
        let (segment, fd) = Segment::create(1 << 20).expect("memory");
        if segment.fully_populated {
            // This kernel cannot add pages later.
            assert!(blocks(&fd) >= 1 << 20);
            return;
        }
        assert!(blocks(&fd) < 1 << 20, "not all");
        assert!(segment.populate(300_000, 100_000));
        assert!((100_000..1 << 20).contains(&blocks(&fd)));
        segment.word(300_000).store(1, std::sync::atomic::Ordering::Relaxed);
        assert!(segment.populate((1 << 20) - 8, 8));
    }
}
