//! Conversion of the application's buffers to the form in which the engine names them.

use core::ffi::c_void;

use squall_base::UserSlice;
use squall_engine::Buf;

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::device_memory;
use crate::host::limits;

/// A descriptor of a memory region (`fi_mr_desc`), or NULL.
pub(crate) type Desc = *mut c_void;

/// Returns a piece of the application's memory as the engine names it. Its address is a number from here on;
/// `mr/mod.rs` and the network's ports make a pointer of it again.
///
/// # Errors
/// `FI_EINVAL` for bytes at NULL.
#[inline]
fn piece(base: *const c_void, len: usize, desc: Desc) -> Result<UserSlice> {
    let space = device_memory::space_of(desc);
    // A DMA-buf may begin at no address at all.
    if base.is_null() && len > 0 && space.is_host() {
        return Err(Errno::INVAL);
    }
    Ok(UserSlice { space, ..UserSlice::lent(base.expose_provenance() as u64, len as u64) })
}

/// Returns a contiguous buffer of the application as the engine names it.
///
/// # Errors
/// As [`piece`].
#[inline]
pub(crate) fn lend(base: *const c_void, len: usize, desc: Desc) -> Result<Buf> {
    Ok(Buf::One(piece(base, len, desc)?))
}

/// Returns a buffer of several pieces as the engine names it. A single piece needs no allocation.
///
/// # Safety
/// `iov` is NULL or points to `count` iovecs, and `descs` is NULL or points to as many descriptors. No
/// other code writes to either during the call. The memory that they name is only noted here, not read.
///
/// # Errors
/// `FI_EINVAL` for more pieces than the limit we report, for pieces at NULL, and as [`piece`].
#[inline]
pub(crate) unsafe fn gather(
    iov: *const ffi::iovec,
    descs: *const Desc,
    count: usize,
) -> Result<Buf> {
    // SAFETY: `iov` is NULL or points to `count` iovecs that no other code writes to during the call, `descs` is NULL or
    // points to as many descriptors, as `gather_with` asks of pieces of any kind.
    unsafe { gather_with(iov, descs, count, |iov| Ok((iov.iov_base.cast_const(), iov.iov_len))) }
}

/// Gathers a buffer as [`gather`] does, from pieces of any type. `of` returns the address and
/// length of a piece.
///
/// # Safety
/// As for [`gather`].
///
/// # Errors
/// As [`gather`], and those of `piece`.
#[inline]
pub(crate) unsafe fn gather_with<T>(
    iov: *const T,
    descs: *const Desc,
    count: usize,
    of: impl Fn(&T) -> Result<(*const c_void, usize)>,
) -> Result<Buf> {
    if count > limits::IOV_LIMIT || (iov.is_null() && count > 0) {
        log::info!(
            "iov_count {count} is out of range 0..={}, or iov ({iov:?}) is NULL",
            limits::IOV_LIMIT
        );
        return Err(Errno::INVAL);
    }
    let desc = |at: usize| {
        // Applications that registered only memory of the host may leave anything in the
        // descriptors.
        if descs.is_null() || !device_memory::has_descriptors() {
            return core::ptr::null_mut();
        }
        // SAFETY: one of the `count` descriptors at `descs`, by this function's contract.
        unsafe { *descs.add(at) }
    };
    // SAFETY: `iov` points to `count` pieces by this function's contract, for the call that the slice
    // does not outlive.
    match unsafe { boundary::slice(iov, count)? } {
        [] => Ok(Buf::Empty),
        [one] => of(one).and_then(|(base, len)| lend(base, len, desc(0))),
        many => {
            let mut slices = [UserSlice::default(); limits::IOV_LIMIT];
            for (at, (to, from)) in slices.iter_mut().zip(many).enumerate() {
                let (base, len) = of(from)?;
                *to = piece(base, len, desc(at))?;
            }
            Ok(Buf::from_slices(&slices[..many.len()]))
        }
    }
}

/// Returns an operation's context as a number, as the engine keeps it.
#[inline]
pub(crate) fn context_of(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: Desc = core::ptr::null_mut();
    const NONE: *const Desc = core::ptr::null();

    fn piece_of(bytes: &[u8]) -> ffi::iovec {
        ffi::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn a_buffer_is_its_address_and_length() {
        let bytes = [1u8; 10];
        let slice = UserSlice::lent(bytes.as_ptr().addr() as u64, 10);
        assert_eq!(lend(bytes.as_ptr().cast(), 10, NO), Ok(Buf::One(slice)));
        assert_eq!(lend(core::ptr::null(), 0, NO), Ok(Buf::One(UserSlice::lent(0, 0))));
        assert_eq!(lend(core::ptr::null(), 1, NO), Err(Errno::INVAL));
    }

    #[test]
    fn no_pieces_are_no_bytes() {
        // SAFETY: no iovec is there, and none is said to be.
        unsafe {
            assert_eq!(gather(core::ptr::null(), NONE, 0), Ok(Buf::Empty));
            assert_eq!(gather(core::ptr::NonNull::dangling().as_ptr(), NONE, 0), Ok(Buf::Empty));
        }
    }

    #[test]
    fn pieces_keep_their_order_up_to_the_limit() {
        let bytes = [0u8; 64];
        let all: Vec<_> = bytes.chunks(16).map(piece_of).collect();
        assert_eq!(all.len(), limits::IOV_LIMIT);
        let base = bytes.as_ptr().addr() as u64;
        for count in 1..=all.len() {
            // Exactly as many as are said to be there: to read one more would leave the allocation.
            let some: Box<[_]> = all[..count].into();
            // SAFETY: `some` is a boxed slice of exactly `count` iovecs over `bytes`, and both outlive the call.
            let buf = unsafe { gather(some.as_ptr(), NONE, count) };
            let slices: Vec<_> =
                (0..count as u64).map(|i| UserSlice::lent(base + 16 * i, 16)).collect();
            let expected = if count == 1 { Buf::One(slices[0]) } else { Buf::from_slices(&slices) };
            assert_eq!(buf, Ok(expected));
        }
    }

    #[test]
    fn what_cannot_be_a_buffer_is_refused_unread() {
        let nowhere = ffi::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 };
        let empty = ffi::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        // SAFETY: as many iovecs as said, or none at NULL; more than the limit must not be looked at, so that
        // a pointer to nothing will do.
        unsafe {
            assert_eq!(gather(core::ptr::null(), NONE, 1), Err(Errno::INVAL));
            let dangling = core::ptr::NonNull::dangling().as_ptr();
            assert_eq!(gather(dangling, NONE, limits::IOV_LIMIT + 1), Err(Errno::INVAL));
            assert_eq!(gather(dangling, NONE, usize::MAX), Err(Errno::INVAL));
            assert_eq!(gather([nowhere].as_ptr(), NONE, 1), Err(Errno::INVAL));
            assert_eq!(gather([empty, nowhere].as_ptr(), NONE, 2), Err(Errno::INVAL));
            assert!(gather([empty, empty].as_ptr(), NONE, 2).is_ok());
        }
    }
}
