//! Waits for a futex until an absolute time, by the function `syscall`.
//!
//! The standard library of Rust waits like this in `Condvar::wait_timeout` and
//! `thread::park_timeout`, with times that it computes from virtual clocks. The time that is left
//! is waited for in real time, and virtual time does not advance by it: the provider itself is such
//! a program, and its threads must not call back into it.

use core::ffi::{c_int, c_long};

use libc::timespec;

use crate::locks::real_time_after;
use crate::real;
use crate::time_value::nanoseconds;
use crate::virtual_clock::{Axis, VirtualClock};

/// Returns the real time at which a wait for a futex ends, or `None` if the call is another one or
/// the process is in real time.
///
/// # Safety
/// `time` is NULL or points to a readable time if the operation is such a wait.
unsafe fn real_end(operation: c_long, time: *const timespec) -> Option<timespec> {
    let operation = c_int::try_from(operation).ok()?;
    let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    // A plain FUTEX_WAIT has a relative timeout.
    if operation & !flags != libc::FUTEX_WAIT_BITSET {
        return None;
    }
    let clock = VirtualClock::get()?;
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
    let given = nanoseconds(unsafe { time.as_ref() }?)?;
    let (axis, real_clock) = match operation & libc::FUTEX_CLOCK_REALTIME {
        0 => (Axis::Monotonic, libc::CLOCK_MONOTONIC),
        _ => (Axis::Calendar, libc::CLOCK_REALTIME),
    };
    let left = clock.instant(given, axis).saturating_sub(clock.now()?);
    Some(real_time_after(real_clock, left))
}

/// Performs a system call: syscall(2). In C it is variadic; as in the C library, an argument that
/// the caller did not pass has any value and is passed on.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_futex {
        let time = core::ptr::with_exposed_provenance(d.cast_unsigned() as usize);
        // SAFETY: the fourth argument of futex(2) is a timeout, or NULL, for the operations that
        // wait.
        if let Some(end) = unsafe { real_end(b, time) } {
            let end = (&raw const end).expose_provenance().cast_signed() as c_long;
            // SAFETY: the arguments are the caller's, except for a timeout in a local variable.
            return unsafe { real::syscall(number, a, b, c, end, e, f) };
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what the system call demands.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}
