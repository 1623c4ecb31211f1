//! Functions that sleep for a time or yield the processor. In virtual time no signal ends a sleep, except that
//! of a timer of the program.

use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;

use libc::{clockid_t, timespec};

use crate::real::{self, set_errno};
use crate::time_value::{NS_PER_SECOND, duration, nanoseconds, timespec_of_duration};
use crate::timers;
use crate::virtual_clock::{Axis, VirtualClock};

/// End of a sleep in virtual time.
#[derive(Clone, Copy)]
enum Slept {
    /// The time has passed.
    Whole,
    /// A signal ended the sleep, with this many nanoseconds left.
    Interrupted(u64),
}

/// Sleeps for a duration in virtual time. Returns `None` if nothing was done, because the process is in real time.
fn sleep_for(span: u64) -> Option<Slept> {
    let clock = VirtualClock::get()?;
    let now = clock.now()?;
    Some(sleep_until(clock, now.saturating_add(span)))
}

/// Sleeps until a virtual time. If virtual time ends before, the rest is slept in real time.
fn sleep_until(clock: VirtualClock, until: u64) -> Slept {
    let before = timers::signals();
    loop {
        let end = timers::first_signal().map_or(until, |due| due.min(until));
        if let Err(left) = clock.sleep(end) {
            let left = timespec_of_duration(left + (until - end));
            // SAFETY: the duration is a local variable, and nanosleep(2) accepts NULL for the time that
            // is left.
            unsafe { real::nanosleep(&raw const left, null_mut()) };
            return Slept::Whole;
        }
        if end == until {
            return Slept::Whole;
        }
        if timers::signals() != before {
            return Slept::Interrupted(until - end);
        }
    }
}

/// Returns the status of a function that has slept, -1 with EINTR after a signal, and writes the time that is left.
///
/// # Safety
/// `left` is NULL or may be written.
unsafe fn status_of(slept: Slept, left: *mut timespec) -> c_int {
    let Slept::Interrupted(rest) = slept else { return 0 };
    if !left.is_null() {
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { left.write(timespec_of_duration(rest)) };
    }
    set_errno(libc::EINTR);
    -1
}

/// Sleeps for a time: nanosleep(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller of nanosleep passes NULL, for which as_ref has a case, or a readable time, and NULL or room for the
    // time that is left.
    unsafe {
        if let Some(slept) = span.as_ref().and_then(duration).and_then(sleep_for) {
            return status_of(slept, left);
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what nanosleep(2) demands.
    unsafe { real::nanosleep(span, left) }
}

/// Sleeps for a time or until a time of a clock: clock_nanosleep(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // The real function handles the other clocks: it waits for CPU-time clocks, or refuses.
    let axis = match clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME => Some(Axis::Monotonic),
        libc::CLOCK_REALTIME | libc::CLOCK_TAI => Some(Axis::Calendar),
        _ => None,
    };
    // SAFETY: the caller of clock_nanosleep passes NULL, for which as_ref has a case, or a readable
    // time.
    if let (Some(axis), Some(given)) = (axis, unsafe { time.as_ref() }) {
        if flags & libc::TIMER_ABSTIME == 0 {
            if let Some(slept) = duration(given).and_then(sleep_for) {
                // SAFETY: the caller of clock_nanosleep passes NULL or room for the time that is left.
                return if unsafe { status_of(slept, left) } == 0 { 0 } else { libc::EINTR };
            }
        } else if let (Some(clock), Some(given)) = (VirtualClock::get(), nanoseconds(given))
            && given >= 0
            && clock.now().is_some()
        {
            return match sleep_until(clock, clock.instant(given, axis)) {
                Slept::Whole => 0,
                Slept::Interrupted(_) => libc::EINTR,
            };
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what clock_nanosleep(2) demands.
    unsafe { real::clock_nanosleep(clock, flags, time, left) }
}

/// Sleeps for microseconds: usleep(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn usleep(microseconds: c_uint) -> c_int {
    if let Some(slept) = sleep_for(u64::from(microseconds) * 1000) {
        // SAFETY: no time that is left is asked for.
        return unsafe { status_of(slept, null_mut()) };
    }
    // SAFETY: usleep(3) takes a number, and any number is allowed there.
    unsafe { real::usleep(microseconds) }
}

/// Sleeps for seconds: sleep(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    let second = NS_PER_SECOND.unsigned_abs();
    match sleep_for(u64::from(seconds) * second) {
        Some(Slept::Whole) => return 0,
        Some(Slept::Interrupted(left)) => {
            return c_uint::try_from(left.div_ceil(second)).unwrap_or(seconds);
        }
        None => {}
    }
    // SAFETY: sleep(3) takes a number, and any number is allowed there.
    unsafe { real::sleep(seconds) }
}

/// Sleeps for a time: thrd_sleep(3) of C11.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_sleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller of thrd_sleep passes NULL, for which as_ref has a case, or a readable time, and NULL or room for the
    // time that is left.
    unsafe {
        if let Some(slept) = span.as_ref().and_then(duration).and_then(sleep_for) {
            return status_of(slept, left);
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what thrd_sleep(3) demands.
    unsafe { real::thrd_sleep(span, left) }
}

/// Yields the processor: sched_yield(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sched_yield() -> c_int {
    if VirtualClock::get().is_some_and(|clock| !clock.yields()) {
        return 0;
    }
    // SAFETY: sched_yield(2) has no arguments and affects only the calling thread.
    unsafe { real::sched_yield() }
}

/// Yields the processor: thrd_yield(3) of C11.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_yield() {
    // SAFETY: the function above has no arguments and affects only the calling thread.
    unsafe { sched_yield() };
}
