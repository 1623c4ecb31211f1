//! The MPI library of the process: the end of a program, and which library it is. In MPI_Finalize, implementations wait in
//! memory that the ranks of a host share, where virtual time does not see them wait.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;

use crate::real;
use crate::virtual_clock::VirtualClock;

/// Announces the end to the provider, and ends MPI: MPI_Finalize.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn MPI_Finalize() -> c_int {
    if let Some(clock) = VirtualClock::get() {
        clock.announce_end();
    }
    // SAFETY: MPI_Finalize takes nothing; the program calls it where MPI allows it.
    unsafe { real::MPI_Finalize() }
}

/// Names under which MPICH and Intel MPI, Open MPI, and libraries of the standard ABI are loaded.
const LIBRARIES: [&CStr; 4] =
    [c"libmpi.so.12", c"libmpi.so.40", c"libmpi_abi.so.0", c"libmpi_abi.so.1"];

/// Returns a function of an MPI library that was loaded with RTLD_LOCAL, as Python loads extensions and the MPI that they
/// need; or NULL if no such library is loaded.
fn find_in_local_library(name: &CStr) -> *mut c_void {
    for library in LIBRARIES {
        // SAFETY: the name is a NUL-terminated literal, and with RTLD_NOLOAD dlopen loads nothing.
        let library: *mut c_void =
            unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            continue;
        }
        // SAFETY: the handle is that of a library which dlopen found; `name` is NUL-terminated.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    null_mut()
}

/// Calls MPI_Finalize of an MPI library that was loaded with RTLD_LOCAL. Returns -1 and sets `errno` if no such library is
/// loaded.
pub(crate) fn call_in_local_library() -> c_int {
    type Function = unsafe extern "C-unwind" fn() -> c_int;
    let found = find_in_local_library(c"MPI_Finalize");
    if found.is_null() {
        return real::fail_with_enosys();
    }
    // SAFETY: the symbol of this name in a library of MPI is a function of this type, by the
    // standard. The program calls it where MPI allows it.
    unsafe { transmute::<*mut c_void, Function>(found)() }
}

/// Writes the version text of the MPI library of this process to `text`, whose length is at least that of the longest.
/// Returns its length: zero if there is no MPI library.
pub(crate) fn library_version(text: &mut [u8]) -> usize {
    type Function = unsafe extern "C-unwind" fn(*mut c_char, *mut c_int) -> c_int;
    const NAME: &CStr = c"MPI_Get_library_version";
    // SAFETY: the name is a NUL-terminated literal, and RTLD_DEFAULT is a handle that every caller may use.
    let mut found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) };
    if found.is_null() {
        found = find_in_local_library(NAME);
    }
    if found.is_null() {
        return 0;
    }
    let mut len = 0;
    // SAFETY: the symbol of this name is a function of this type, by the MPI standard, which allows the call at any time,
    // before MPI_Init too. It writes at most MPI_MAX_LIBRARY_VERSION_STRING bytes, for which the caller has room.
    unsafe { transmute::<*mut c_void, Function>(found)(text.as_mut_ptr().cast(), &raw mut len) };
    usize::try_from(len).unwrap_or(0).min(text.len())
}
