//! Buffers of the application as the engine names them.

use core::ffi::c_void;

use squall_base::UserSlice;
use squall_engine::Buf;

use crate::boundary;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::info::limits;

/// A piece of the application's memory. From here on its address is a number; `mr.rs` and the network's
/// ports make a pointer of it again.
///
/// # Errors
/// `FI_EINVAL` for bytes at NULL.
#[inline]
fn piece(base: *const c_void, len: usize) -> Result<UserSlice> {
    if base.is_null() && len > 0 {
        return Err(Errno::INVAL);
    }
    Ok(UserSlice::lent(base.expose_provenance() as u64, len as u64))
}

/// A buffer in one piece.
///
/// # Errors
/// As [`piece`].
#[inline]
pub(super) fn lend(base: *const c_void, len: usize) -> Result<Buf> {
    Ok(Buf::One(piece(base, len)?))
}

/// A buffer in several pieces; a single one needs no allocation.
///
/// # Safety
/// `iov` is NULL or points to `count` iovecs that nobody writes to during the call. What they name is only
/// noted here, not looked at.
///
/// # Errors
/// `FI_EINVAL` for more pieces than the limit we report, for pieces at NULL, and as [`piece`].
#[inline]
pub(super) unsafe fn gather(iov: *const ffi::iovec, count: usize) -> Result<Buf> {
    if count > limits::IOV_LIMIT || (iov.is_null() && count > 0) {
        log::info!("a buffer of {count} pieces at {iov:?}: at most {}", limits::IOV_LIMIT);
        return Err(Errno::INVAL);
    }
    // SAFETY: `iov` points to `count` iovecs by this function's contract, for the call that the slice
    // does not outlive.
    match unsafe { boundary::slice(iov, count)? } {
        [] => Ok(Buf::Empty),
        [one] => lend(one.iov_base, one.iov_len),
        many => {
            let mut slices = [UserSlice::default(); limits::IOV_LIMIT];
            for (to, from) in slices.iter_mut().zip(many) {
                *to = piece(from.iov_base, from.iov_len)?;
            }
            Ok(Buf::from_slices(&slices[..many.len()]))
        }
    }
}

/// A context as the engine carries it.
#[inline]
pub(super) fn context_of(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}
