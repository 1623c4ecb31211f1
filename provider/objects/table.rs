//! Operation tables of objects, with functions that refuse what an object does not offer.

use core::ffi::{c_char, c_int, c_void};

use crate::abi::errno::Errno;
use crate::abi::ffi;

/// Returns the pointer that libfabric wants for a static operation table. It never writes through it.
pub(crate) fn table<T, U>(ops: &'static T) -> *mut U {
    core::ptr::from_ref(ops).cast_mut().cast()
}

// What an object does not offer: every table is complete, so that no caller meets a null pointer.

pub(crate) unsafe extern "C" fn no_bind(_: *mut ffi::fid, _: *mut ffi::fid, _: u64) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_control(_: *mut ffi::fid, _: c_int, _: *mut c_void) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_ops_open(
    _: *mut ffi::fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_tostr(
    _: *const ffi::fid,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: fi_tostr's caller gives NULL or room for `len` bytes, which no other code uses meanwhile.
    unsafe { crate::abi::boundary::copy_text("squall", buf, len) };
    0
}

pub(crate) unsafe extern "C" fn no_ops_set(
    _: *mut ffi::fid,
    _: *const c_char,
    _: u64,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

/// Builds a `struct fi_ops` of the functions given; the others return -FI_ENOSYS.
macro_rules! fi_ops {
    (close: $close:expr $(, bind: $bind:expr)? $(, control: $control:expr)? $(,)?) => {
        $crate::abi::ffi::fi_ops {
            size: core::mem::size_of::<$crate::abi::ffi::fi_ops>(),
            close: Some($close),
            bind: $crate::objects::or!($($bind)?, $crate::objects::no_bind),
            control: $crate::objects::or!($($control)?, $crate::objects::no_control),
            ops_open: Some($crate::objects::no_ops_open),
            tostr: Some($crate::objects::no_tostr),
            ops_set: Some($crate::objects::no_ops_set),
        }
    };
}

/// Expands to the first argument if there is one, else to the second.
macro_rules! or {
    (, $default:expr) => {
        Some($default)
    };
    ($given:expr, $default:expr) => {
        Some($given)
    };
}

pub(crate) use {fi_ops, or};

/// An operation table. It holds function pointers and a size alone, so that it is Sync by itself.
#[repr(transparent)]
pub(crate) struct Table<T>(pub(crate) T);
