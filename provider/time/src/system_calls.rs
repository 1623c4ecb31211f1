//! Waits by the function `syscall`: for a futex until an absolute time, which is converted, and for descriptors, signals
//! and spans, whose timeouts pass in real time.
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

/// Returns a wait for a span, or `None` if there is no timeout or the process is in real time.
///
/// # Safety
/// `span` is NULL or points to a readable time.
unsafe fn wait_for_span(span: *const timespec) -> Option<TimedWait> {
    let clock = VirtualClock::get()?;
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
    let timeout = duration(unsafe { span.as_ref() }?)?;
    Some(TimedWait { clock, timeout, end: None })
}

/// Returns a wait for milliseconds, or `None` if they are negative, which is no timeout, or the process is in real time.
fn wait_for_millis(millis: c_long) -> Option<TimedWait> {
    let clock = VirtualClock::get()?;
    // The kernel reads an int.
    let timeout = u64::try_from(millis as c_int).ok()? * 1_000_000;
    Some(TimedWait { clock, timeout, end: None })
}

/// Returns the wait that a system call is, or `None` if it is none with a timeout.
///
/// # Safety
/// The arguments are those that the system call demands.
unsafe fn timed_wait(number: c_long, [a, b, c, d, e]: [c_long; 5]) -> Option<TimedWait> {
    #[cfg(target_arch = "x86_64")]
    match number {
        libc::SYS_poll => return wait_for_millis(c),
        libc::SYS_epoll_wait => return wait_for_millis(d),
        _ => {}
    }
    // SAFETY: these arguments are timeouts, or NULL: of futex(2) the fourth, for operations that wait; of nanosleep(2) the
    // first; of ppoll(2), rt_sigtimedwait(2) and a relative clock_nanosleep(2) the third; of pselect(2) the fifth.
    unsafe {
        match number {
            libc::SYS_futex => futex_wait(b, pointer(d)),
            libc::SYS_nanosleep => wait_for_span(pointer(a)),
            libc::SYS_clock_nanosleep if b == 0 => wait_for_span(pointer(c)),
            libc::SYS_ppoll | libc::SYS_rt_sigtimedwait => wait_for_span(pointer(c)),
            libc::SYS_pselect6 => wait_for_span(pointer(e)),
            libc::SYS_epoll_pwait => wait_for_millis(d),
            _ => None,
        }
    }
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
    // SAFETY: the caller of syscall(2) promises what the system call demands.
    let wait = unsafe { timed_wait(number, [a, b, c, d, e]) };
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
        libc::SYS_rt_sigtimedwait => result == -1 && real::errno() == libc::EAGAIN,
        _ => result == 0,
    };
    if passed && timeout > 0 {
        clock.note_passed_timeout(timeout);
    }
    result
}
