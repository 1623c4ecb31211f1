//! Timers that end in a signal or in a descriptor. They run in real time, but one that is set to an
//! absolute time ends after the time that is left on the virtual clock.

use core::ffi::c_int;

use libc::{itimerspec, timer_t};

use crate::real;
use crate::time_value::{nanoseconds, timespec_of_duration};
use crate::virtual_clock::VirtualClock;

/// Returns the relative setting of a timer that is set to a virtual time, or `None` if the process
/// is in real time, the setting is invalid, or it disarms the timer.
///
/// # Safety
/// `setting` is NULL or points to a readable setting.
unsafe fn relative_setting(setting: *const itimerspec) -> Option<itimerspec> {
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable setting.
    let setting = unsafe { setting.as_ref() }?;
    let given = nanoseconds(&setting.it_value).filter(|&given| given > 0)?;
    let clock = VirtualClock::get()?;
    let end = clock.instant(given, clock.guess_axis(given));
    // A timer that is set to 0 would be disarmed.
    let left = end.saturating_sub(clock.now()?).max(1);
    Some(itimerspec { it_value: timespec_of_duration(left), it_interval: setting.it_interval })
}

/// Sets the timer of a descriptor: timerfd_settime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    setting: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    if flags & libc::TFD_TIMER_ABSTIME != 0 {
        // SAFETY: the caller of timerfd_settime passes NULL or a readable setting.
        if let Some(relative) = unsafe { relative_setting(setting) } {
            let flags = flags & !(libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET);
            // SAFETY: the arguments are the caller's, except for a setting in a local variable.
            return unsafe { real::timerfd_settime(fd, flags, &raw const relative, old) };
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what timerfd_settime(2) demands.
    unsafe { real::timerfd_settime(fd, flags, setting, old) }
}

/// Sets a timer of the process: timer_settime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timer_settime(
    timer: timer_t,
    flags: c_int,
    setting: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    if flags & libc::TIMER_ABSTIME != 0 {
        // SAFETY: the caller of timer_settime passes NULL or a readable setting.
        if let Some(relative) = unsafe { relative_setting(setting) } {
            let flags = flags & !libc::TIMER_ABSTIME;
            // SAFETY: the arguments are the caller's, except for a setting in a local variable.
            return unsafe { real::timer_settime(timer, flags, &raw const relative, old) };
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what timer_settime(2) demands.
    unsafe { real::timer_settime(timer, flags, setting, old) }
}
