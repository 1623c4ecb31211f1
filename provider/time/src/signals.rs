//! Functions that wait for signals. In virtual time, a program that waits for a signal of one of its timers goes on when the
//! clock has reached the timer's end.

use core::ffi::c_int;
use core::ptr::null_mut;

use libc::{EAGAIN, EINTR, siginfo_t, sigset_t, timespec};

use crate::real::{self, errno, set_errno};
use crate::time_value::{MILLISECOND, duration};
use crate::timers;
use crate::virtual_clock::VirtualClock;

/// Longest wait of the provider, in virtual nanoseconds, before the process looks for signals that do not come from its
/// timers.
const SLICE: u64 = MILLISECOND;

/// Waits until a timer of the program has raised a signal that a handler took. Returns false if no timer will raise one, so
/// that the caller has to wait in real time.
fn await_timer_signal() -> bool {
    let Some(clock) = VirtualClock::get() else { return false };
    let before = timers::signals();
    while let Some(due) = timers::first_signal() {
        if clock.sleep(due).is_err() {
            return false;
        }
        if timers::signals() != before {
            return true;
        }
    }
    false
}

/// Waits for a signal: pause(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pause() -> c_int {
    if await_timer_signal() {
        set_errno(EINTR);
        return -1;
    }
    // SAFETY: pause(2) takes nothing, and a handler that unwinds out of it finds no value with a destructor here.
    unsafe { real::pause() }
}

/// Waits for a signal with another signal mask: sigsuspend(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigsuspend(mask: *const sigset_t) -> c_int {
    if VirtualClock::get().is_none() || timers::first_signal().is_none() {
        // SAFETY: the argument is that of the caller, who promised what sigsuspend(2) demands.
        return unsafe { real::sigsuspend(mask) };
    }
    // SAFETY: the mask is the caller's, who promised what sigsuspend(2) demands; zero is a value of a mask, and the others are
    // local variables. A signal that is pending is taken when the mask changes, by a handler that the timers do not count.
    unsafe {
        let mut pending: sigset_t = core::mem::zeroed();
        libc::sigpending(&raw mut pending);
        let waits = |signal| libc::sigismember(&raw const pending, signal) == 1;
        if (1..=libc::SIGRTMAX())
            .any(|signal| waits(signal) && libc::sigismember(mask, signal) == 0)
        {
            return real::sigsuspend(mask);
        }
        let mut old: sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, &raw mut old);
        let raised = await_timer_signal();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, null_mut());
        if !raised {
            return real::sigsuspend(mask);
        }
    }
    set_errno(EINTR);
    -1
}

/// Waits in virtual time for a signal of a set, which is blocked. `None` is no timeout.
///
/// # Safety
/// The arguments are those that sigtimedwait(2) demands.
unsafe fn await_signal(set: *const sigset_t, info: *mut siginfo_t, timeout: Option<u64>) -> c_int {
    let none = timespec { tv_sec: 0, tv_nsec: 0 };
    let begin = VirtualClock::get().and_then(VirtualClock::now);
    let deadline = begin.and_then(|begin| timeout.map(|timeout| begin.saturating_add(timeout)));
    loop {
        let clock = VirtualClock::get().filter(|_| begin.is_some());
        let (Some(clock), Some(end)) =
            (clock, deadline.into_iter().chain(timers::first_signal()).min())
        else {
            // SAFETY: the arguments are those of the caller, who promised what sigwaitinfo(2) demands.
            return unsafe { real::sigwaitinfo(set, info) };
        };
        // SAFETY: set and room for information are the caller's, and the timeout is a local variable.
        let signal = unsafe { real::sigtimedwait(set, info, &raw const none) };
        if signal >= 0 || errno() != EAGAIN {
            return signal;
        }
        let now = clock.now().unwrap_or(u64::MAX);
        if deadline.is_some_and(|deadline| now >= deadline) {
            set_errno(EAGAIN);
            return -1;
        }
        clock.wait(end.min(now.saturating_add(SLICE)), true);
    }
}

/// Waits for a signal, with a timeout: sigtimedwait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller of sigtimedwait passes NULL, for which as_ref has a case, or a readable time.
    let given = unsafe { timeout.as_ref() };
    let span = given.and_then(duration);
    if VirtualClock::get().is_none() || given.is_some() && span.is_none() {
        // SAFETY: the arguments are those of the caller, who promised what sigtimedwait(2) demands.
        return unsafe { real::sigtimedwait(set, info, timeout) };
    }
    // SAFETY: the arguments are those of the caller, who promised what sigtimedwait(2) demands.
    unsafe { await_signal(set, info, span) }
}

/// Waits for a signal: sigwaitinfo(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised what sigwaitinfo(2) demands.
    unsafe { await_signal(set, info, None) }
}

/// Waits for a signal and returns its number: sigwait(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    if VirtualClock::get().is_none() || timers::first_signal().is_none() {
        // SAFETY: the arguments are those of the caller, who promised what sigwait(3) demands.
        return unsafe { real::sigwait(set, signal) };
    }
    loop {
        // SAFETY: the set is the caller's, and no information is asked for.
        let found = unsafe { await_signal(set, null_mut(), None) };
        if found >= 0 {
            // SAFETY: the caller of sigwait passes room for the number of a signal.
            unsafe { signal.write(found) };
            return 0;
        }
        if errno() != EINTR {
            return errno();
        }
    }
}
