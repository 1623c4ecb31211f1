//! Host memory that stands in for device memory, which the CPU cannot access (bounce buffers).

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use squall_base::{Space, UserSlice};

use super::{Device, device};

/// Smallest size in bytes of a pinned bounce buffer.
const SHORTEST: usize = 64 << 10;
/// Largest size in bytes of a pinned bounce buffer: longer ones take as long to pin as to copy.
const LONGEST: usize = 4 << 20;
/// Bytes of unused pinned memory that are kept for later bounce buffers.
const KEPT: usize = 64 << 20;

/// A piece of host memory that a device's driver has pinned.
struct Pinned {
    memory: *mut u8,
    len: usize,
    device: Arc<Device>,
}

// SAFETY: memory that this value alone names; the driver's functions that give it back may be called by any thread.
unsafe impl Send for Pinned {}

/// Pinned pieces that are not in use, kept because pinning is slow.
static POOL: Mutex<Vec<Pinned>> = Mutex::new(Vec::new());

/// A piece of the host's memory, not initialised, aligned for every type.
pub(crate) struct Bounce {
    memory: NonNull<u8>,
    len: usize,
    /// The device that pinned the memory, to whose pool it returns; `None` if it is not pinned.
    pinned: Option<Arc<Device>>,
}

// SAFETY: memory that this value alone owns, and that is accessed by pointers alone.
unsafe impl Send for Bounce {}
// SAFETY: as for `Send`: shared, nothing but its address and length can be had.
unsafe impl Sync for Bounce {}

/// Returns the size of the pinned piece for a bounce buffer of `len` bytes; `None` if that is too long to pin.
fn class(len: usize) -> Option<usize> {
    Some(len.next_power_of_two().max(SHORTEST)).filter(|class| *class <= LONGEST)
}

impl Bounce {
    const ALIGN: usize = 64;

    /// Allocates host memory of `len` bytes. The system provides its pages when they are written.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), Self::ALIGN).ok()?;
        // SAFETY: a layout of at least one byte; NULL when there is no memory.
        let memory = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        Some(Self { memory, len: layout.size(), pinned: None })
    }

    /// Allocates host memory as [`Self::new`] does, with all bytes zero.
    pub(crate) fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), Self::ALIGN).ok()?;
        // SAFETY: a layout of at least one byte; NULL when there is no memory.
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Self { memory, len: layout.size(), pinned: None })
    }

    /// Allocates host memory that the driver of `space` has pinned, if it supports that, so that copies are
    /// asynchronous.
    pub(crate) fn pinned(len: usize, space: Space) -> Option<Self> {
        let (Some(class), Ok(of)) = (class(len), device(space)) else { return Self::new(len) };
        let Device::Cuda(context) = &*of else { return Self::new(len) };
        let mut pool = POOL.lock();
        let fits = |piece: &Pinned| piece.len == class && Arc::ptr_eq(&piece.device, &of);
        let found = pool.iter().position(fits).map(|at| pool.swap_remove(at).memory);
        drop(pool);
        match found.or_else(|| context.pin(class)).and_then(NonNull::new) {
            Some(memory) => Some(Self { memory, len: class, pinned: Some(of) }),
            None => Self::new(len),
        }
    }

    /// Returns the address of the byte at `offset` of the host memory.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len);
        self.memory.as_ptr().wrapping_add(offset)
    }

    /// Returns the first `len` bytes of the host memory as the engine names memory.
    pub(crate) fn slice(&self, len: usize) -> UserSlice {
        debug_assert!(len <= self.len);
        UserSlice::lent(self.memory.as_ptr().expose_provenance() as u64, len as u64)
    }

    /// Returns the offset of an address that is inside the host memory.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.memory.as_ptr().addr() as u64)?;
        (offset < self.len as u64).then_some(offset)
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        let Some(of) = self.pinned.take() else {
            // Checked when it was made.
            if let Ok(layout) = Layout::from_size_align(self.len, Self::ALIGN) {
                // SAFETY: the memory that `new` got with this layout, given back once.
                unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout) };
            }
            return;
        };
        let mut pool = POOL.lock();
        let kept: usize = pool.iter().map(|piece| piece.len).sum();
        if kept + self.len <= KEPT {
            pool.push(Pinned { memory: self.memory.as_ptr(), len: self.len, device: of });
            return;
        }
        drop(pool);
        if let Device::Cuda(context) = &*of {
            // SAFETY: the memory that `pin` of this context got; nothing names it any more.
            unsafe { context.unpin(self.memory.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_pinned_in_few_sizes() {
        let classes = [1, SHORTEST, SHORTEST + 1, LONGEST, LONGEST + 1].map(class);
        assert_eq!(
            classes,
            [Some(SHORTEST), Some(SHORTEST), Some(2 * SHORTEST), Some(LONGEST), None]
        );
    }

    #[test]
    fn what_is_inside_is_found() {
        let bounce = Bounce::new(100).expect("memory");
        let slice = bounce.slice(100);
        assert_eq!((slice.len, slice.base % 64, slice.space), (100, 0, Space::HOST));
        assert_eq!(bounce.offset_of(slice.base + 99), Some(99));
        assert_eq!(bounce.offset_of(slice.base + 100), None);
        assert_eq!(bounce.offset_of(slice.base.wrapping_sub(1)), None);
    }
}
