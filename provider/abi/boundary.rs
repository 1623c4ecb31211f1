//! The one place where Rust meets C: every `extern "C"` body runs inside one of these functions, so
//! that no panic crosses the boundary, and turns its result into what libfabric expects. What comes from
//! C becomes a Rust value here: a place for a result, an array, a string.

use core::any::Any;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::errno::{Errno, Result};
use crate::clock::hooks;

fn report(panic: &(dyn Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    log::error!("internal error, please report it: {text}");
}

/// Runs `f`, the body of a C function. A panic is logged, and the C function returns `fallback`.
pub(crate) fn value<T>(fallback: T, f: impl FnOnce() -> T) -> T {
    let _call = hooks::begin_call();
    // What a panicking operation leaves half done is at worst a lost operation of this endpoint:
    // the state behind the endpoint locks is plain data, valid at every step.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(panic) => {
            report(&*panic);
            fallback
        }
    }
}

/// Runs the body of a libfabric call that returns 0 or a negative error.
pub(crate) fn status(f: impl FnOnce() -> Result<()>) -> c_int {
    value(Errno::OTHER.code(), || match f() {
        Ok(()) => 0,
        Err(errno) => errno.code(),
    })
}

/// Runs the body of a libfabric call that returns a small count or a negative error.
pub(crate) fn count(f: impl FnOnce() -> Result<usize>) -> c_int {
    value(Errno::OTHER.code(), || match f() {
        Ok(n) => c_int::try_from(n).unwrap_or(c_int::MAX),
        Err(errno) => errno.code(),
    })
}

/// Runs the body of a data call, which returns 0 or a negative error as `ssize_t`.
pub(crate) fn transfer(f: impl FnOnce() -> Result<()>) -> isize {
    value(Errno::OTHER.code() as isize, || match f() {
        Ok(()) => 0,
        Err(errno) => errno.code() as isize,
    })
}

/// Runs the body of a call that reads a queue and returns a count or a negative error as `ssize_t`.
pub(crate) fn sized(f: impl FnOnce() -> Result<usize>) -> isize {
    value(Errno::OTHER.code() as isize, || match f() {
        Ok(n) => isize::try_from(n).unwrap_or(isize::MAX),
        Err(errno) => errno.code() as isize,
    })
}

/// Runs the body of a call that returns a counter's number and cannot report errors; it returns 0 instead.
pub(crate) fn counter(f: impl FnOnce() -> Result<u64>) -> u64 {
    value(0, || f().unwrap_or(0))
}

/// Runs the body of a call that returns a string; it returns an empty string instead of an error.
pub(crate) fn string(f: impl FnOnce() -> Result<*const c_char>) -> *const c_char {
    value(c"".as_ptr(), || f().unwrap_or(c"".as_ptr()))
}

/// Functions of libfabric's tables, a row each: what the call returns (one of the functions of this
/// module), its name and arguments, and one expression that makes values of them and enters a method.
macro_rules! exports {
    ($(
        $(#[$about:meta])*
        $visible:vis $answer:ident $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty
            => $call:expr;
    )*) => {
        $(
            $(#[$about])*
            $visible unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                $crate::abi::boundary::$answer(|| {
                    // SAFETY: only libfabric's inline functions call this, through the table of an object
                    // that we published or the record that `fi_prov_ini` gave away, for an application
                    // that keeps to the manual page of the call: what is to be a `fid` is NULL or an
                    // object that no other code closes before the call returns (`objects::get` looks at NULL and
                    // the table); every other pointer is NULL or points, until the call returns, to a
                    // structure, string or place of its type, or to as many elements or bytes as the
                    // count or length beside it says. The expression passes each argument on as what it
                    // is, and no reference made of one outlives the call.
                    unsafe { $call }
                })
            }
        )*
    };
}

pub(crate) use exports;

/// The place that a C caller provides for a result, checked for NULL.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `place` is NULL, or a `T` may be written to it, aligned, until this value is gone.
    ///
    /// # Errors
    /// `FI_EINVAL` for NULL.
    pub(crate) unsafe fn new(place: *mut T) -> Result<Self> {
        NonNull::new(place).map(Self).ok_or(Errno::INVAL)
    }

    /// Writes the result to the C caller's place. Never fails, because a call ends with it.
    pub(crate) fn write(self, value: T) -> Result<()> {
        // SAFETY: not NULL, so `new` was promised that a `T` may be written here. `write` does not look at
        // what was there, which the caller need not have initialised.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Returns the array that the C caller lends for the time of the call as a slice.
///
/// # Safety
/// `array` is NULL or points to `count` initialised `T`, aligned, which no other code writes to for `'a`.
///
/// # Errors
/// `FI_EINVAL` for elements at NULL.
#[inline]
pub(crate) unsafe fn slice<'a, T>(array: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: neither NULL nor empty, so there are `count` elements by this function's contract; C has
    // no array longer than half of the address space.
    Ok(unsafe { core::slice::from_raw_parts(array, count) })
}

/// Returns a copy of a C string, if there is one that is valid UTF-8; no other string names anything of this provider.
///
/// # Safety
/// `string` is NULL or terminated, and no other code writes to it meanwhile.
pub(crate) unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not NULL, so it is terminated by this function's contract; the borrow ends with the copy.
    Some(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
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
    // SAFETY: not NULL, so `buf` has room for `len` bytes by this function's contract, and take + 1 <= len;
    // `text` is a Rust string, which cannot overlap what C lent us for writing.
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
        // SAFETY: `buf` is an array of four bytes, borrowed mutably for this call.
        unsafe { copy_text("hello", buf.as_mut_ptr(), 4) };
        assert_eq!(buf.map(|c| c as u8), *b"hel\0");
    }

    #[test]
    fn what_is_null_is_refused_or_empty() {
        let mut place = 1u32;
        // SAFETY: NULL, which `new` refuses, and a local variable that outlives its `Out`.
        let outs = unsafe { (Out::<u32>::new(core::ptr::null_mut()), Out::new(&raw mut place)) };
        assert!(outs.0.is_err());
        assert_eq!(outs.1.and_then(|out| out.write(7)), Ok(()));
        assert_eq!(place, 7);
        // SAFETY: NULL with and without elements, and an array of two.
        let (none, missing, two) = unsafe {
            (
                slice::<u16>(core::ptr::null(), 0),
                slice::<u16>(core::ptr::null(), 1),
                slice([5u16, 6].as_ptr(), 2).map(<[u16]>::to_vec),
            )
        };
        assert!(none.is_ok_and(<[u16]>::is_empty));
        assert_eq!(missing.err(), Some(Errno::INVAL));
        assert_eq!(two, Ok(vec![5, 6]));
        // SAFETY: NULL, of which nothing is read, and a literal with its terminator.
        let texts = unsafe { (text(core::ptr::null()), text(c"abc".as_ptr())) };
        assert_eq!(texts, (None, Some("abc".to_owned())));
    }
}
