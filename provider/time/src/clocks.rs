//! Time functions of the C library that read a clock, in virtual time.

use core::ffi::{c_int, c_short, c_ushort, c_void};

use libc::{clockid_t, time_t, timespec, timeval};

use crate::real;
use crate::time_value::{NS_PER_SECOND, timespec_from, timeval_from};
use crate::virtual_clock::{Axis, VirtualClock};

/// The structure `timeb` of ftime(3), which the crate libc lacks.
#[repr(C)]
#[allow(non_camel_case_types)]
pub(crate) struct timeb {
    time: time_t,
    millitm: c_ushort,
    timezone: c_short,
    dstflag: c_short,
}

/// Time base TIME_UTC of timespec_get(3): the calendar.
const TIME_UTC: c_int = 1;
/// Time base TIME_MONOTONIC of timespec_get(3) in C23.
const TIME_MONOTONIC: c_int = 2;

/// Returns the virtual time on an axis (monotonic or calendar), or `None` in real time.
fn virtual_time(axis: Axis) -> Option<i64> {
    VirtualClock::get()?.now_on(axis)
}

/// Reads a clock: clock_gettime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn clock_gettime(clock: clockid_t, result: *mut timespec) -> c_int {
    if !result.is_null()
        && let Some(now) = Axis::of_clock(clock).and_then(virtual_time)
    {
        // SAFETY: the caller of clock_gettime passes NULL, tested above, or a structure for the
        // result.
        unsafe { result.write(timespec_from(now)) };
        return 0;
    }
    // SAFETY: the arguments are those of the caller, who promised what clock_gettime(2) demands.
    unsafe { real::clock_gettime(clock, result) }
}

/// Reads the calendar in microseconds: gettimeofday(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn gettimeofday(result: *mut timeval, zone: *mut c_void) -> c_int {
    let now = virtual_time(Axis::Calendar);
    if let (Some(now), false, true) = (now, result.is_null(), zone.is_null()) {
        // SAFETY: the caller of gettimeofday passes NULL, tested above, or a structure for the
        // result.
        unsafe { result.write(timeval_from(now)) };
        return 0;
    }
    // SAFETY: the arguments are those of the caller, who promised what gettimeofday(2) demands.
    let status = unsafe { real::gettimeofday(result, zone) };
    if let (Some(now), 0, false) = (now, status, result.is_null()) {
        // SAFETY: the real function has just written to this address without an error.
        unsafe { result.write(timeval_from(now)) };
    }
    status
}

/// Reads the calendar in seconds: time(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn time(result: *mut time_t) -> time_t {
    let Some(now) = virtual_time(Axis::Calendar) else {
        // SAFETY: the argument is that of the caller, NULL or a place for the result.
        return unsafe { real::time(result) };
    };
    let seconds = now.div_euclid(NS_PER_SECOND);
    if !result.is_null() {
        // SAFETY: the caller of time passes NULL, tested above, or a place for the result.
        unsafe { result.write(seconds) };
    }
    seconds
}

/// Reads the calendar in milliseconds: ftime(3), which old programs still use.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ftime(result: *mut timeb) -> c_int {
    // SAFETY: the argument is that of the caller, a place for the result; time zone and flag come
    // from there.
    let status = unsafe { real::ftime(result) };
    if let (Some(now), 0) = (virtual_time(Axis::Calendar), status) {
        let now = timespec_from(now);
        // SAFETY: the real function has just written to this address without an error.
        unsafe {
            (*result).time = now.tv_sec;
            (*result).millitm = c_ushort::try_from(now.tv_nsec / 1_000_000).unwrap_or(999);
        }
    }
    status
}

/// Reads the clock of a base: timespec_get(3). Returns the base, or 0 if there is no such clock.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timespec_get(result: *mut timespec, base: c_int) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised a place for the result.
    let status = unsafe { real::timespec_get(result, base) };
    let axis = match status {
        TIME_UTC => Axis::Calendar,
        TIME_MONOTONIC => Axis::Monotonic,
        _ => return status,
    };
    if let Some(now) = virtual_time(axis) {
        // SAFETY: the real function has just written to this address without an error.
        unsafe { result.write(timespec_from(now)) };
    }
    status
}
