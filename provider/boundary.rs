//! The one place where Rust meets C: every `extern "C"` body runs inside one of these functions, so
//! that no panic crosses the boundary, and turns its result into what libfabric expects.

use core::any::Any;
use core::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::{Errno, Result};

fn report(panic: &(dyn Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    log::error!("internal error, please report it: {text}");
}

/// Runs `f`; a panic is logged and becomes `fallback`.
pub(crate) fn value<T>(fallback: T, f: impl FnOnce() -> T) -> T {
    // What a panicking operation leaves half done is at worst a lost operation of this endpoint:
    // the state behind the gates is plain data, valid at every step.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(panic) => {
            report(&*panic);
            fallback
        }
    }
}

/// For calls that return 0 or a negative error.
pub(crate) fn status(f: impl FnOnce() -> Result<()>) -> c_int {
    value(Errno::OTHER.code(), || match f() {
        Ok(()) => 0,
        Err(errno) => errno.code(),
    })
}

/// For calls that return a small count or a negative error.
pub(crate) fn count(f: impl FnOnce() -> Result<usize>) -> c_int {
    value(Errno::OTHER.code(), || match f() {
        Ok(n) => c_int::try_from(n).unwrap_or(c_int::MAX),
        Err(errno) => errno.code(),
    })
}

/// For data calls: 0 or a negative error as `ssize_t`.
pub(crate) fn transfer(f: impl FnOnce() -> Result<()>) -> isize {
    value(Errno::OTHER.code() as isize, || match f() {
        Ok(()) => 0,
        Err(errno) => errno.code() as isize,
    })
}

/// For queue reads: a count or a negative error as `ssize_t`.
pub(crate) fn sized(f: impl FnOnce() -> Result<usize>) -> isize {
    value(Errno::OTHER.code() as isize, || match f() {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(errno) => errno.code() as isize,
    })
}

/// Copies `text` and its terminator into `buf` as far as they fit, always terminated.
///
/// # Safety
/// `buf` is NULL or has room for `len` bytes.
pub(crate) unsafe fn copy_text(text: &str, buf: *mut c_char, len: usize) {
    if buf.is_null() || len == 0 {
        return;
    }
    let take = text.len().min(len - 1);
    // SAFETY: the caller gives `len` writable bytes, and take + 1 <= len; a Rust string cannot
    // overlap a buffer the C caller lent for writing.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), take);
        *buf.add(take) = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(status(|| panic!("boom")), Errno::OTHER.code());
        assert_eq!(sized(|| Ok(3)), 3);
        assert_eq!(transfer(|| Err(Errno::AGAIN)), -11);
    }

    #[test]
    fn text_is_cut_and_terminated() {
        let mut buf = [1 as c_char; 4];
        // SAFETY: the buffer has four bytes.
        unsafe { copy_text("hello", buf.as_mut_ptr(), 4) };
        assert_eq!(buf.map(|c| c as u8), *b"hel\0");
    }
}
