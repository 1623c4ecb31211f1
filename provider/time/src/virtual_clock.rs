//! State of the process: in virtual time, with the provider's table, or in real time.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::ClockTable;
use crate::real::{errno, set_errno};

/// The table of clock functions that the provider registered, or NULL in real time.
static TABLE: AtomicPtr<ClockTable> = AtomicPtr::new(null_mut());
/// The latest virtual time that was read.
static LATEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// True while a function of the provider runs in this thread. The functions that it calls are
    /// the real ones, because it may hold locks of the provider, and waits for other processes in
    /// real time.
    static INSIDE_PROVIDER: Cell<bool> = const { Cell::new(false) };
}

/// Puts the process into virtual time. Returns false if `table` is NULL or has another size.
///
/// # Safety
/// `table` is NULL, or points to a `size` and, if that is the size of [`ClockTable`], to such a
/// table, which stays valid for the life of the process.
pub(crate) unsafe fn register(table: *const ClockTable) -> bool {
    // SAFETY: the caller of this function passes NULL, which is tested first, or the address of a
    // readable size.
    if table.is_null() || unsafe { (*table).size } != size_of::<ClockTable>() {
        return false;
    }
    TABLE.store(table.cast_mut(), Ordering::Release);
    #[cfg(target_arch = "x86_64")]
    crate::tsc::begin_trapping();
    if let Some(clock) = VirtualClock::get() {
        crate::timers::adopt(clock);
    }
    true
}

/// Puts a forked child into real time, because only its parent is attached to the network.
pub(crate) unsafe extern "C" fn unregister_after_fork() {
    TABLE.store(null_mut(), Ordering::Release);
    crate::timers::forget_all();
    #[cfg(target_arch = "x86_64")]
    crate::tsc::end_in_child();
}

/// Returns whether the provider has registered its table, so that the process is in virtual time.
pub(crate) fn is_registered() -> bool {
    !TABLE.load(Ordering::Acquire).is_null()
}

/// The origin from which a program counts a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Times since the origin of CLOCK_MONOTONIC.
    Monotonic,
    /// Times since the origin of CLOCK_REALTIME (1970).
    Calendar,
}

impl Axis {
    /// Returns the axis of a system clock; `None` for clocks that show real time even in virtual time.
    pub(crate) fn of_clock(clock: libc::clockid_t) -> Option<Axis> {
        match clock {
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME
            | libc::CLOCK_BOOTTIME_ALARM => Some(Axis::Monotonic),
            libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_REALTIME_ALARM
            | libc::CLOCK_TAI => Some(Axis::Calendar),
            _ => None,
        }
    }
}

/// The provider's virtual clock, for a process that is in virtual time.
#[derive(Clone, Copy)]
pub(crate) struct VirtualClock(&'static ClockTable);

impl VirtualClock {
    /// Returns the virtual clock, or `None` if the caller must use the real functions.
    pub(crate) fn get() -> Option<VirtualClock> {
        let table = TABLE.load(Ordering::Acquire);
        if table.is_null() || INSIDE_PROVIDER.get() {
            return None;
        }
        // SAFETY: a registered table was checked for its size, and the provider keeps it unchanged
        // for ever.
        Some(VirtualClock(unsafe { &*table }))
    }

    /// Returns the virtual time in nanoseconds, or `None` if virtual time has ended.
    pub(crate) fn now(self) -> Option<u64> {
        match call_provider(|| (self.0.now)()) {
            0 => {
                self.end();
                None
            }
            now => {
                LATEST.fetch_max(now, Ordering::Relaxed);
                Some(now)
            }
        }
    }

    /// Has the provider call `expire` when its clock reaches `next`, the time at which the first timer of the program is due.
    pub(crate) fn set_timer(self, next: u64, expire: extern "C" fn(u64) -> u64) {
        call_provider(|| (self.0.set_timer)(next, expire));
    }

    /// Returns the virtual time on an axis in nanoseconds, or `None` if virtual time has ended.
    pub(crate) fn now_on(self, axis: Axis) -> Option<i64> {
        let now = i64::try_from(self.now()?).unwrap_or(i64::MAX);
        Some(match axis {
            Axis::Monotonic => now,
            Axis::Calendar => now.saturating_add(self.0.calendar),
        })
    }

    /// Returns a time of `axis` on the axis of [`Self::now`]; one before its origin becomes 0.
    pub(crate) fn instant(self, time: i64, axis: Axis) -> u64 {
        let time = match axis {
            Axis::Monotonic => time,
            Axis::Calendar => time.saturating_sub(self.0.calendar),
        };
        u64::try_from(time).unwrap_or(0)
    }

    /// Guesses the axis of an absolute time whose clock is unknown. A time of CLOCK_REALTIME is at
    /// least `calendar`, its value when CLOCK_MONOTONIC was 0, minus a year for times in the past.
    /// A time of CLOCK_MONOTONIC is smaller, since virtual time does not last for decades.
    pub(crate) fn guess_axis(self, time: i64) -> Axis {
        const YEAR: i64 = 365 * 86_400 * crate::time_value::NS_PER_SECOND;
        let earliest = self.0.calendar.saturating_sub(YEAR);
        if time >= earliest { Axis::Calendar } else { Axis::Monotonic }
    }

    /// Waits until the virtual time `until`. With `wakes` it may return earlier, for instance when
    /// something has arrived for the process. Returns false if virtual time has ended.
    pub(crate) fn wait(self, until: u64, wakes: bool) -> bool {
        let waited = call_provider(|| (self.0.wait)(until, c_int::from(wakes))) == 0;
        if !waited {
            self.end();
        }
        waited
    }

    /// Waits until the virtual time `until`. If virtual time ends before, it returns the
    /// nanoseconds that are left as an error.
    pub(crate) fn sleep(self, until: u64) -> Result<(), u64> {
        let mut left = 0;
        while let Some(now) = self.now() {
            left = until.saturating_sub(now);
            if left == 0 {
                return Ok(());
            }
            if !self.wait(until, false) {
                break;
            }
        }
        Err(left)
    }

    /// Reports to the provider that the program has set a timeout of a socket, in nanoseconds.
    pub(crate) fn note_socket_timeout(self, ns: u64) {
        call_provider(|| (self.0.socket_timeout)(ns));
    }

    /// Reports to the provider that a timeout of a system call has passed in real time, in nanoseconds.
    pub(crate) fn note_passed_timeout(self, ns: u64) {
        call_provider(|| (self.0.passed_timeout)(ns));
    }

    /// Reports to the provider that the program ends.
    pub(crate) fn announce_end(self) {
        call_provider(|| (self.0.ending)());
    }

    /// Returns the virtual time at which a thread begins that the calling thread creates.
    pub(crate) fn time_of_new_thread(self) -> u64 {
        call_provider(|| (self.0.create)())
    }

    /// Begins the calling thread, which was created at `created`.
    pub(crate) fn begin_thread(self, created: u64) {
        call_provider(|| (self.0.begin)(created));
    }

    /// Returns whether a call of sched_yield must reach the kernel.
    pub(crate) fn yields(self) -> bool {
        call_provider(|| (self.0.yields)()) != 0
    }

    /// Returns whether progress of the provider makes a descriptor readable.
    pub(crate) fn owns(self, fd: c_int) -> bool {
        fd >= 0 && call_provider(|| (self.0.owns)(fd)) != 0
    }

    /// Puts the process into real time, unless the provider has registered another table since.
    fn end(self) {
        let table = core::ptr::from_ref(self.0).cast_mut();
        let ended = TABLE.compare_exchange(table, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        if ended.is_ok() {
            crate::timers::resume_in_real_time(LATEST.load(Ordering::Relaxed));
        }
    }
}

/// Calls a function of the provider. The functions of this library keep errno if they succeed.
fn call_provider<T>(function: impl FnOnce() -> T) -> T {
    let saved = errno();
    INSIDE_PROVIDER.set(true);
    let result = function();
    INSIDE_PROVIDER.set(false);
    set_errno(saved);
    result
}

/// Calls `function`, a part of this library that the provider calls, as if it were called by the program: a signal handler
/// that runs meanwhile sees virtual time.
pub(crate) fn outside_provider<T>(function: impl FnOnce() -> T) -> T {
    let inside = INSIDE_PROVIDER.replace(false);
    let result = function();
    INSIDE_PROVIDER.set(inside);
    result
}

/// Returns whether a function of the provider is running in this thread.
pub(crate) fn is_inside_provider() -> bool {
    INSIDE_PROVIDER.get()
}
