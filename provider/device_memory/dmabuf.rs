//! DMA-bufs (Linux, Documentation/driver-api/dma-buf.rst): memory of any device behind a file descriptor, mapped so
//! that the CPU copies it.

use core::ffi::c_void;

use super::copy_request::{CopyDirection, CopyError, CopyRequest};
use crate::abi::errno::{Errno, Result};

/// `struct fi_mr_dmabuf` (libfabric 1.20): a DMA-buf that describes a memory region.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmaBufAttr {
    pub(crate) fd: libc::c_int,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) base_addr: *mut c_void,
}

/// The request `DMA_BUF_IOCTL_SYNC`, `_IOW('b', 0, struct dma_buf_sync)`, one u64 of flags.
const SYNC: libc::c_ulong = 0x4008_6200;
const SYNC_READ: u64 = 1;
const SYNC_WRITE: u64 = 2;
const SYNC_END: u64 = 4;

/// A mapped part of a DMA-buf, whose bytes the CPU can access.
pub(super) struct DmaBuf {
    fd: libc::c_int,
    /// Address of the mapped pages.
    map: *mut u8,
    mapped: usize,
    /// Offset in bytes of the part in the mapped pages.
    skip: usize,
    len: usize,
    /// The address by which the application knows the first byte of the part.
    base: u64,
}

// SAFETY: the mapping belongs to this value alone, and is copied to and from by pointers; no reference to it is made.
unsafe impl Send for DmaBuf {}
// SAFETY: as for `Send`: copies of several threads may mix, as they may with what the device does.
unsafe impl Sync for DmaBuf {}

/// Notifies the exporter of the buffer that the CPU begins or ends to access it.
fn sync(fd: libc::c_int, mut flags: u64) -> std::io::Result<()> {
    // SAFETY: the request reads one u64, a local variable; whatever the descriptor is, the kernel says if it is no
    // DMA-buf.
    if unsafe { libc::ioctl(fd, SYNC, &raw mut flags) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}

impl DmaBuf {
    /// Maps a part of a DMA-buf, writable if peers or receives may write to it.
    ///
    /// # Errors
    /// As [`super::dmabuf()`].
    pub(super) fn map(described: &DmaBufAttr, writable: bool) -> Result<Self> {
        let DmaBufAttr { fd, offset, len, base_addr } = *described;
        if let Err(error) = sync(fd, SYNC_READ).and_then(|()| sync(fd, SYNC_READ | SYNC_END)) {
            log::info!("FI_MR_DMABUF refused: descriptor {fd} is not a DMA-buf: {error}");
            return Err(Errno::INVAL);
        }
        let page = 4096;
        let skip = usize::try_from(offset % page).map_err(|_| Errno::INVAL)?;
        let mapped = len.checked_add(skip).filter(|_| len > 0).ok_or(Errno::INVAL)?;
        let at = libc::off_t::try_from(offset - offset % page).map_err(|_| Errno::INVAL)?;
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: new pages, wherever the kernel has room, so that nothing of ours is replaced; what they are of is the
        // descriptor's to say.
        let (map, own) = unsafe {
            (
                libc::mmap(core::ptr::null_mut(), mapped, access, libc::MAP_SHARED, fd, at),
                libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0),
            )
        };
        if map == libc::MAP_FAILED || own < 0 {
            let error = std::io::Error::last_os_error();
            if map != libc::MAP_FAILED {
                // SAFETY: the pages that were just mapped, of which no other code knows.
                unsafe { libc::munmap(map, mapped) };
            }
            log::info!(
                "FI_MR_DMABUF: the exporter of descriptor {fd} does not let the CPU map {len} bytes from {offset} on: \
                 {error}; register the memory with its interface (FI_HMEM_CUDA and others) instead"
            );
            return Err(Errno::OPNOTSUPP);
        }
        let base = (base_addr.addr() as u64).wrapping_add(offset);
        Ok(Self { fd: own, map: map.cast(), mapped, skip, len, base })
    }

    /// Returns the address and length by which the application knows the part.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.base, self.len as u64)
    }

    /// Copies between the DMA-buf and host memory.
    ///
    /// # Safety
    /// `order.host` may be read or written, as its direction says, for `order.len` bytes.
    pub(super) unsafe fn copy(&self, order: CopyRequest) -> core::result::Result<(), CopyError> {
        let CopyRequest { direction, device, host, len } = order;
        let at = usize::try_from(device.wrapping_sub(self.base)).unwrap_or(usize::MAX);
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(CopyError(format!(
                "{len} bytes at {device:#x} are not inside of the DMA-buf"
            )));
        }
        let failed = |error: std::io::Error| CopyError(format!("DMA_BUF_IOCTL_SYNC: {error}"));
        let which = if direction == CopyDirection::ToHost { SYNC_READ } else { SYNC_WRITE };
        sync(self.fd, which).map_err(failed)?;
        // SAFETY: within the mapping, as was just checked, which lasts as long as this value and was made writable when
        // the region's access says that something writes; `host` has `len` bytes by this function's contract. Others
        // may write to either meanwhile: no reference is made.
        unsafe {
            let inside = self.map.add(self.skip + at);
            match direction {
                CopyDirection::ToHost => core::ptr::copy(inside, host, len),
                CopyDirection::ToDevice => core::ptr::copy(host, inside, len),
            }
        }
        sync(self.fd, which | SYNC_END).map_err(failed)
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: the pages and the descriptor that `map` made, given back once; copies hold the value.
        unsafe {
            libc::munmap(self.map.cast(), self.mapped);
            libc::close(self.fd);
        }
    }
}
