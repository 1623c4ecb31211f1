//! Waits by the function `syscall`: for a futex until an absolute time, which is converted, and others, whose timeouts
//! pass in real time.
//!
//! The standard library of Rust waits for a futex in `Condvar::wait_timeout` and `thread::park_timeout`, with times that
//! it computes from virtual clocks. The time that is left is waited for in real time, and virtual time does not advance by
//! it: the provider itself is such a program, and its threads must not wait in virtual time. A timeout that has passed
//! is reported to the provider, because it depends on this machine.

use core::ffi::{c_int, c_long};

use libc::timespec;

use crate::locks::real_time_after;
use crate::real;
use crate::time_value::{duration, nanoseconds};
use crate::virtual_clock::{Axis, VirtualClock};

/// A wait with a timeout in real time.
struct TimedWait {
    clock: VirtualClock,
    /// The timeout in nanoseconds.
    timeout: u64,
    /// The real time at which the wait ends, in place of the virtual one that the program gave; `None` if it gave a span.
    end: Option<timespec>,
}

/// Returns a wait for a futex, or `None` if the call is another one, it has no timeout or the process is in real time.
///
/// # Safety
/// `time` is NULL or points to a readable time if the operation is such a wait.
unsafe fn futex_wait(operation: c_long, time: *const timespec) -> Option<TimedWait> {
    let operation = c_int::try_from(operation).ok()?;
    let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    let kind = operation & !flags;
    if kind != libc::FUTEX_WAIT_BITSET && kind != libc::FUTEX_WAIT {
        return None;
    }
    let clock = VirtualClock::get()?;
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
    let given = unsafe { time.as_ref() }?;
    if kind == libc::FUTEX_WAIT {
        // The timeout of a plain FUTEX_WAIT is relative.
        return duration(given).map(|timeout| TimedWait { clock, timeout, end: None });
    }
    let (axis, real_clock) = match operation & libc::FUTEX_CLOCK_REALTIME {
        0 => (Axis::Monotonic, libc::CLOCK_MONOTONIC),
        _ => (Axis::Calendar, libc::CLOCK_REALTIME),
    };
    let timeout = clock.instant(nanoseconds(given)?, axis).saturating_sub(clock.now()?);
    let end = Some(real_time_after(real_clock, timeout));
    Some(TimedWait { clock, timeout, end })
}

/// Returns a sleep for a span, or `None` if the process is in real time.
///
/// # Safety
/// `span` is NULL or points to a readable time.
unsafe fn sleep(span: *const timespec) -> Option<TimedWait> {
    let clock = VirtualClock::get()?;
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
    let timeout = duration(unsafe { span.as_ref() }?)?;
    Some(TimedWait { clock, timeout, end: None })
}

/// Returns a pointer that the program has passed as a number.
fn pointer(argument: c_long) -> *const timespec {
    core::ptr::with_exposed_provenance(argument.cast_unsigned() as usize)
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
    // SAFETY: the fourth argument of futex(2) is a timeout, or NULL, for the operations that wait. That of nanosleep(2) and of
    // a relative clock_nanosleep(2) is the time to sleep.
    let wait = unsafe {
        match number {
            libc::SYS_futex => futex_wait(b, pointer(d)),
            libc::SYS_nanosleep => sleep(pointer(a)),
            libc::SYS_clock_nanosleep if b == 0 => sleep(pointer(c)),
            _ => None,
        }
    };
    let Some(TimedWait { clock, timeout, end }) = wait else {
        // SAFETY: the arguments are those of the caller, who promised what the system call demands.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    };
    let d = match &end {
        Some(end) => core::ptr::from_ref(end).expose_provenance().cast_signed() as c_long,
        None => d,
    };
    // SAFETY: the arguments are the caller's, except for a timeout in a local variable.
    let result = unsafe { real::syscall(number, a, b, c, d, e, f) };
    let passed = match number {
        libc::SYS_futex => result == -1 && real::errno() == libc::ETIMEDOUT,
        _ => result == 0,
    };
    if passed && timeout > 0 {
        clock.note_passed_timeout(timeout);
    }
    result
}
