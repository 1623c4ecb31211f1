//! The end of an MPI program: in MPI_Finalize, implementations wait in memory that the ranks of a host
//! share, where virtual time does not see them wait.

use core::ffi::c_int;

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
