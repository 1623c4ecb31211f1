//! Functions that wait for another thread, until an absolute time.
//!
//! The other thread must be able to run, so these wait in real time, in slices. After each slice
//! that ended without success, virtual time advances by the same duration.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use libc::{
    ETIMEDOUT, clockid_t, mqd_t, pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t,
    sem_t, size_t, ssize_t, timespec,
};

use crate::real;
use crate::time_value::{MILLISECOND, nanoseconds, timespec_from};
use crate::virtual_clock::{Axis, VirtualClock, is_registered};

/// Result codes of the C11 thread functions in glibc.
pub(crate) const THRD_ERROR: c_int = 2;
const THRD_TIMEDOUT: c_int = 4;

/// Longest wait in real time, in nanoseconds, before virtual time advances by as much.
const SLICE: u64 = MILLISECOND;
/// An absolute time that has passed on every clock.
const PASSED: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// The clock to which an absolute time refers.
#[derive(Clone, Copy)]
enum TimeBase {
    Clock(clockid_t),
    /// The time refers to the condition variable's own clock, CLOCK_REALTIME or CLOCK_MONOTONIC.
    OfCondition,
}

/// Returns the real time of a clock that is a span of nanoseconds after now.
pub(crate) fn real_time_after(clock: clockid_t, span: u64) -> timespec {
    let mut now = PASSED;
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable.
    unsafe { real::clock_gettime(clock, &raw mut now) };
    let span = i64::try_from(span).unwrap_or(i64::MAX);
    timespec_from(nanoseconds(&now).unwrap_or(0).saturating_add(span))
}

/// Calls the real function `wait`, which waits until the absolute time that it is given, until it
/// returns anything but a timeout or until the virtual time `time` has come. `between` advances
/// virtual time after each slice by calling its argument; a result of its own ends the wait.
fn wait_in_slices<R: Copy>(
    base: TimeBase,
    time: *const timespec,
    wait: impl Fn(*const timespec) -> R,
    is_timeout: impl Fn(R) -> bool,
    mut between: impl FnMut(&dyn Fn()) -> Option<R>,
) -> R {
    // SAFETY: the callers of these functions pass a readable time, or NULL, for which as_ref has a
    // case.
    let given = unsafe { time.as_ref() }.and_then(nanoseconds);
    let (Some(clock), Some(given)) = (VirtualClock::get(), given) else { return wait(time) };
    let (axis, real_clock) = match base {
        TimeBase::Clock(id) => match Axis::of_clock(id) {
            Some(axis) => (axis, id),
            None => return wait(time),
        },
        TimeBase::OfCondition => match clock.guess_axis(given) {
            Axis::Calendar => (Axis::Calendar, libc::CLOCK_REALTIME),
            Axis::Monotonic => (Axis::Monotonic, libc::CLOCK_MONOTONIC),
        },
    };
    let deadline = clock.instant(given, axis);
    let Some(mut now) = clock.now() else { return wait(time) };
    loop {
        let left = deadline.saturating_sub(now);
        let slice = left.min(SLICE);
        let until = if left == 0 { PASSED } else { real_time_after(real_clock, slice) };
        let result = wait(&raw const until);
        if left == 0 || !is_timeout(result) {
            return result;
        }
        let is_virtual = Cell::new(true);
        if let Some(result) =
            between(&|| is_virtual.set(clock.wait(now.saturating_add(slice), true)))
        {
            return result;
        }
        match is_virtual.get().then(|| clock.now()).flatten() {
            Some(later) => now = later,
            None => {
                let until = real_time_after(real_clock, left - slice);
                return wait(&raw const until);
            }
        }
    }
}

/// Waits in slices for something that no lock of the caller protects, such as a semaphore.
fn wait_unlocked<R: Copy>(
    clock: clockid_t,
    time: *const timespec,
    wait: impl Fn(*const timespec) -> R,
    is_timeout: impl Fn(R) -> bool,
) -> R {
    let base = TimeBase::Clock(clock);
    wait_in_slices(base, time, wait, is_timeout, |advance| {
        advance();
        None
    })
}

/// Returns whether the result of a pthread function is ETIMEDOUT.
fn is_timeout(result: c_int) -> bool {
    result == ETIMEDOUT
}

/// Returns whether a function returned -1 and set errno to ETIMEDOUT.
fn is_timeout_in_errno(result: c_int) -> bool {
    result == -1 && real::errno() == ETIMEDOUT
}

/// Number of wake-ups of condition variables in virtual time, counted by a hash of their address.
static WAKEUPS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Returns the counter of wake-ups of a condition variable. Variables that share a counter wake up together.
fn wakeups(cond: *const pthread_cond_t) -> &'static AtomicU32 {
    // Condition variables are 48 bytes long and often members of equal structures.
    let hash = cond.addr().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
    &WAKEUPS[hash % WAKEUPS.len()]
}

/// Counts a wake-up of a condition variable, before it happens.
fn count_wakeup(cond: *const pthread_cond_t) {
    if is_registered() {
        wakeups(cond).fetch_add(1, Ordering::SeqCst);
    }
}

/// Number of slices after which a wait returns without a wake-up. POSIX allows that, and callers
/// check their condition. It limits the delay if a process signals a condition variable that it
/// shares with this one, since that is not counted here.
const SLICES_WITHOUT_WAKEUP: u32 = 100;

/// Waits for a condition variable in slices.
///
/// The caller holds the mutex whenever `wait` has returned. It is unlocked while virtual time
/// advances, for the provider waits there for other processes, and these perhaps for a thread of
/// this process that needs the mutex. A wake-up between two slices finds no waiter; the counter
/// shows it, and the wait returns as after a spurious wake-up.
///
/// # Safety
/// `cond` and `mutex` are initialized, and this thread has locked the mutex.
unsafe fn wait_for_condition(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    base: TimeBase,
    time: *const timespec,
    wait: impl Fn(*const timespec) -> c_int,
    timed_out: c_int,
) -> c_int {
    let counter = wakeups(cond);
    // The mutex is locked: nothing that the caller waits for has happened yet.
    let before = counter.load(Ordering::SeqCst);
    let mut slices = 0;
    wait_in_slices(
        base,
        time,
        wait,
        |result| result == timed_out,
        |advance| {
            if counter.load(Ordering::SeqCst) != before {
                return Some(0);
            }
            // SAFETY: the wait that has just returned has locked the caller's mutex for this
            // thread.
            unsafe { libc::pthread_mutex_unlock(mutex) };
            advance();
            // SAFETY: the mutex is the caller's, which is not destroyed while this thread waits
            // with it.
            let locked = unsafe { libc::pthread_mutex_lock(mutex) };
            slices += 1;
            let wakes = slices == SLICES_WITHOUT_WAKEUP || counter.load(Ordering::SeqCst) != before;
            (locked != 0 || wakes).then_some(locked)
        },
    )
}

/// Wakes up a waiter of a condition variable: pthread_cond_signal(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_signal(cond: *mut pthread_cond_t) -> c_int {
    count_wakeup(cond);
    // SAFETY: the argument is that of the caller, who promised an initialized condition variable.
    unsafe { real::pthread_cond_signal(cond) }
}

/// Wakes up all waiters of a condition variable: pthread_cond_broadcast(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_broadcast(cond: *mut pthread_cond_t) -> c_int {
    count_wakeup(cond);
    // SAFETY: the argument is that of the caller, who promised an initialized condition variable.
    unsafe { real::pthread_cond_broadcast(cond) }
}

/// Waits for a condition variable until a time of its clock: pthread_cond_timedwait(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised what pthread_cond_timedwait(3)
    // demands.
    let wait = |time: *const timespec| unsafe { real::pthread_cond_timedwait(cond, mutex, time) };
    // SAFETY: the caller has initialized both and has locked the mutex.
    unsafe { wait_for_condition(cond, mutex, TimeBase::OfCondition, time, wait, ETIMEDOUT) }
}

/// Waits for a condition variable until a time of a clock: pthread_cond_clockwait(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    time: *const timespec,
) -> c_int {
    let wait = |time: *const timespec| {
        // SAFETY: the arguments are those of the caller, who promised what
        // pthread_cond_clockwait(3) demands.
        unsafe { real::pthread_cond_clockwait(cond, mutex, clock, time) }
    };
    // SAFETY: the caller has initialized both and has locked the mutex.
    unsafe { wait_for_condition(cond, mutex, TimeBase::Clock(clock), time, wait, ETIMEDOUT) }
}

/// Wakes up a waiter of a condition variable: cnd_signal(3) of C11.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn cnd_signal(cond: *mut pthread_cond_t) -> c_int {
    count_wakeup(cond);
    // SAFETY: the argument is that of the caller, who promised an initialized condition variable.
    unsafe { real::cnd_signal(cond) }
}

/// Wakes up all waiters of a condition variable: cnd_broadcast(3) of C11.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn cnd_broadcast(cond: *mut pthread_cond_t) -> c_int {
    count_wakeup(cond);
    // SAFETY: the argument is that of the caller, who promised an initialized condition variable.
    unsafe { real::cnd_broadcast(cond) }
}

/// Waits for a condition variable until a time of the calendar: cnd_timedwait(3) of C11. In glibc
/// its types are those of POSIX under other names.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn cnd_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    let base = TimeBase::Clock(libc::CLOCK_REALTIME);
    // SAFETY: the arguments are those of the caller, who promised what cnd_timedwait(3) demands.
    let wait = |time: *const timespec| unsafe { real::cnd_timedwait(cond, mutex, time) };
    // SAFETY: the caller has initialized both and has locked the mutex.
    unsafe { wait_for_condition(cond, mutex, base, time, wait, THRD_TIMEDOUT) }
}

/// Defines functions that call the real ones of the same name in slices. The last argument is the
/// absolute time; the words after `on` name its clock and the test for a timeout.
macro_rules! timed {
    ($($(#[$documentation:meta])*
    fn $name:ident($($argument:ident: $type:ty),*; $time:ident) -> $result:ty,
        on $clock:expr, $is_timeout:expr;)*) => {$(
        $(#[$documentation])*
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type,)* $time: *const timespec) -> $result {
            // SAFETY: the arguments are those of the caller, who promised what the manual page
            // demands.
            let wait = |time: *const timespec| unsafe { real::$name($($argument,)* time) };
            wait_unlocked($clock, $time, wait, $is_timeout)
        }
    )*};
}

timed! {
    /// Waits for a semaphore until a time of the calendar: sem_timedwait(3).
    fn sem_timedwait(semaphore: *mut sem_t; time) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout_in_errno;
    /// Waits for a semaphore until a time of a clock: sem_clockwait(3).
    fn sem_clockwait(semaphore: *mut sem_t, clock: clockid_t; time) -> c_int,
        on clock, is_timeout_in_errno;
    /// Locks a mutex, or fails at a time of the calendar: pthread_mutex_timedlock(3).
    fn pthread_mutex_timedlock(mutex: *mut pthread_mutex_t; time) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout;
    /// Locks a mutex, or fails at a time of a clock: pthread_mutex_clocklock(3).
    fn pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t; time) -> c_int,
        on clock, is_timeout;
    /// Locks a mutex, or fails at a time of the calendar: mtx_timedlock(3) of C11.
    fn mtx_timedlock(mutex: *mut pthread_mutex_t; time) -> c_int,
        on libc::CLOCK_REALTIME, |result| result == THRD_TIMEDOUT;
    /// Locks for reading, or fails at a time of the calendar: pthread_rwlock_timedrdlock(3).
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t; time) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout;
    /// Locks for writing, or fails at a time of the calendar: pthread_rwlock_timedwrlock(3).
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t; time) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout;
    /// Locks for reading, or fails at a time of a clock: pthread_rwlock_clockrdlock(3).
    fn pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t, clock: clockid_t; time) -> c_int,
        on clock, is_timeout;
    /// Locks for writing, or fails at a time of a clock: pthread_rwlock_clockwrlock(3).
    fn pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t, clock: clockid_t; time) -> c_int,
        on clock, is_timeout;
    /// Waits for the end of a thread until a time of the calendar: pthread_timedjoin_np(3).
    fn pthread_timedjoin_np(thread: pthread_t, result: *mut *mut c_void; time) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout;
    /// Waits for the end of a thread until a time of a clock: pthread_clockjoin_np(3).
    fn pthread_clockjoin_np(
        thread: pthread_t, result: *mut *mut c_void, clock: clockid_t; time
    ) -> c_int,
        on clock, is_timeout;
    /// Sends a message, or fails at a time of the calendar: mq_timedsend(3).
    fn mq_timedsend(
        queue: mqd_t, message: *const c_char, size: size_t, priority: c_uint; time
    ) -> c_int,
        on libc::CLOCK_REALTIME, is_timeout_in_errno;
    /// Receives a message, or fails at a time of the calendar: mq_timedreceive(3).
    fn mq_timedreceive(
        queue: mqd_t, message: *mut c_char, size: size_t, priority: *mut c_uint; time
    ) -> ssize_t,
        on libc::CLOCK_REALTIME, |result| result == -1 && real::errno() == ETIMEDOUT;
}
