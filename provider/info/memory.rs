//! Allocation in memory of libc, which the application frees with fi_freeinfo(3).

use core::ffi::c_char;
use core::ptr::null_mut;
use std::ffi::CString;

/// Returns zeroed memory of libc, or NULL when memory is short.
pub(super) fn zeroed<T>(bytes: usize) -> *mut T {
    // SAFETY: calloc takes any size, and what it returns is not touched here. It is NULL or as aligned as any
    // of C's types.
    unsafe { libc::calloc(1, bytes) }.cast()
}

/// Returns a copy of a string in memory of libc, or NULL when memory is short.
pub(super) fn string(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return null_mut() };
    // SAFETY: strdup reads up to the terminator, which a `CString` has, and `text` lives through the call.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// Returns a copy of bytes in memory of libc and their number, or NULL and zero when memory is short.
pub(super) fn copy(bytes: &[u8]) -> (*mut u8, usize) {
    let copy: *mut u8 = zeroed(bytes.len());
    if copy.is_null() {
        return (null_mut(), 0);
    }
    // SAFETY: `copy` is not NULL, so `zeroed` got `bytes.len()` bytes for it, new memory that `bytes` cannot
    // overlap.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
    (copy, bytes.len())
}
