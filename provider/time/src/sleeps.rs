//! Functions that sleep for a time or yield the processor. In virtual time a signal does not end a
//! sleep.

use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;

use libc::{clockid_t, timespec};

use crate::real;
use crate::time_value::{NS_PER_SECOND, duration, nanoseconds, timespec_of_duration};
use crate::virtual_clock::{Axis, VirtualClock};

/// Sleeps for a duration in virtual time. Returns false if nothing was done, because the process is
/// in real time.
fn sleep_for(span: u64) -> bool {
    let Some(clock) = VirtualClock::get() else { return false };
    let Some(now) = clock.now() else { return false };
    sleep_until(clock, now.saturating_add(span));
    true
}

/// Sleeps until a virtual time. If virtual time ends before, the rest is slept in real time.
fn sleep_until(clock: VirtualClock, until: u64) {
    if let Err(left) = clock.sleep(until) {
        let left = timespec_of_duration(left);
        // SAFETY: the duration is a local variable, and nanosleep(2) accepts NULL for the time that
        // is left.
        unsafe { real::nanosleep(&raw const left, null_mut()) };
    }
}

/// Sleeps for a time: nanosleep(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn nanosleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller of nanosleep passes NULL, for which as_ref has a case, or a readable time.
    if unsafe { span.as_ref() }.and_then(duration).is_some_and(sleep_for) {
        return 0;
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
            if duration(given).is_some_and(sleep_for) {
                return 0;
            }
        } else if let (Some(clock), Some(given)) = (VirtualClock::get(), nanoseconds(given))
            && given >= 0
            && clock.now().is_some()
        {
            sleep_until(clock, clock.instant(given, axis));
            return 0;
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what clock_nanosleep(2) demands.
    unsafe { real::clock_nanosleep(clock, flags, time, left) }
}

/// Sleeps for microseconds: usleep(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn usleep(microseconds: c_uint) -> c_int {
    if sleep_for(u64::from(microseconds) * 1000) {
        return 0;
    }
    // SAFETY: usleep(3) takes a number, and any number is allowed there.
    unsafe { real::usleep(microseconds) }
}

/// Sleeps for seconds: sleep(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    if sleep_for(u64::from(seconds) * NS_PER_SECOND.unsigned_abs()) {
        return 0;
    }
    // SAFETY: sleep(3) takes a number, and any number is allowed there.
    unsafe { real::sleep(seconds) }
}

/// Sleeps for a time: thrd_sleep(3) of C11.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_sleep(span: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller of thrd_sleep passes NULL, for which as_ref has a case, or a readable
    // time.
    if unsafe { span.as_ref() }.and_then(duration).is_some_and(sleep_for) {
        return 0;
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
