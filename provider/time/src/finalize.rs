//! The end of an MPI program: in MPI_Finalize, implementations wait in memory that the ranks of a host
//! share, where virtual time does not see them wait.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;

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

/// Calls MPI_Finalize of an MPI library that was loaded with RTLD_LOCAL, as Python loads extensions
/// and the MPI that they need. Returns -1 and sets `errno` if no such library is loaded.
pub(crate) fn call_in_local_library() -> c_int {
    type Function = unsafe extern "C-unwind" fn() -> c_int;
    for name in LIBRARIES {
        // SAFETY: the name is a NUL-terminated literal, and with RTLD_NOLOAD dlopen loads nothing.
        let library: *mut c_void =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            continue;
        }
        // SAFETY: the handle is that of a library which dlopen found; the name is a NUL-terminated
        // literal.
        let found = unsafe { libc::dlsym(library, c"MPI_Finalize".as_ptr()) };
        if !found.is_null() {
            // SAFETY: the symbol of this name in a library of MPI is a function of this type, by the
            // standard. The program calls it where MPI allows it.
            return unsafe { transmute::<*mut c_void, Function>(found)() };
        }
    }
    real::fail_with_enosys()
}
