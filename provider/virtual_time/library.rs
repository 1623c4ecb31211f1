//! The preloaded time library (provider/time/): it answers the application's own time functions by functions of this file.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use squall_base::{Span, Time};
use squall_net::emulator::frame::{Deviation, DeviationKind, VirtualTimeRules};
use squall_net::emulator::virtual_time::{self, VirtualClock};

use super::{
    DEPTH, DRIVES, HELPS, YIELDS, advance_busy, computed_since_call, note_clock_reading,
    read_cpu_clock, threads, wait,
};
use crate::host::logger::USER;

/// Number of yields after a call of the provider that return at once, without reaching the kernel.
const YIELDS_PER_CALL: u32 = 2;

/// Number of readings of the clock by the application before the start of the job. The clock of the process stands
/// still then.
static EARLY_READINGS: AtomicU64 = AtomicU64::new(0);
/// Number of early readings that show the same time. The number of readings depends on real time, but what the
/// application sees after the start must not.
const EQUAL_READINGS: u64 = 1 << 24;
/// Virtual nanoseconds that each further early reading of the clock adds, so that a loop which waits for a time ends.
const EARLY_STEP: u64 = 1_000;
/// The latest time that the application has read, if computation takes time. It may lie ahead of the
/// clock of the process, which advances by a computation at the next call of the provider.
static LAST_SHOWN: AtomicU64 = AtomicU64::new(0);

/// Real time for which a helper thread, which never calls libfabric, sleeps between two readings of the clock.
const SHORT_SLEEP: Duration = Duration::from_millis(1);
/// Number of short sleeps without an advance of the virtual clock after which a helper thread advances it.
const MOST_SHORT_SLEEPS: u32 = 50;

/// The table of functions that the preloaded time library calls, in the library's layout.
#[repr(C)]
struct ClockTable {
    size: usize,
    now: extern "C" fn() -> u64,
    wait: extern "C" fn(until: u64, wakes: c_int) -> c_int,
    owns: extern "C" fn(fd: c_int) -> c_int,
    calendar: i64,
    ending: extern "C" fn(),
    create: extern "C" fn() -> u64,
    begin: extern "C" fn(created: u64),
    yields: extern "C" fn() -> c_int,
    set_timer: extern "C" fn(next: u64, expire: Expire),
    socket_timeout: extern "C" fn(ns: u64),
    passed_timeout: extern "C" fn(ns: u64),
}

/// Ends the application's timers that are due at a shown time. Returns the shown time of the next one; the highest number is
/// none.
type Expire = extern "C" fn(now: u64) -> u64;

/// The virtual time at which the application's first timer is due.
static APPLICATION_TIMER: AtomicU64 = AtomicU64::new(u64::MAX);
/// The function that ends the application's timers, NULL as long as there are none.
static EXPIRE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns the time of CLOCK_MONOTONIC that the application sees at the virtual time `now`.
fn shown_time(rules: &VirtualTimeRules, now: Time) -> u64 {
    (rules.shown_origin + now.since(rules.origin)).0
}

/// Returns the virtual time at which the application sees the time `shown`.
fn time_of_shown(rules: &VirtualTimeRules, shown: u64) -> Time {
    Time(rules.origin.0.saturating_add(Time(shown).since(rules.shown_origin).0))
}

/// Returns the nanoseconds by which the application's clock has advanced after this many early readings.
const fn early_advance(readings: u64) -> u64 {
    readings.saturating_sub(EQUAL_READINGS) * EARLY_STEP
}

extern "C" fn now_for_library() -> u64 {
    let Some(clock) = virtual_time::clock() else { return 0 };
    let rules = clock.rules();
    if !clock.has_begun() {
        let readings = EARLY_READINGS.fetch_add(1, Ordering::Relaxed);
        return shown_time(rules, clock.now()) + early_advance(readings);
    }
    // A thread inside a call reads the clock for the provider, for instance to log.
    let mut now = clock.now();
    if DEPTH.get() == 0 {
        charge_reading(clock);
        note_clock_reading(clock);
        // Show the computation before the next call, but do not advance the clock by it: the transport
        // would have to act meanwhile, and a signal handler may read the clock.
        now = local_time(clock);
    }
    // The application's clock must not go back.
    let early = early_advance(EARLY_READINGS.load(Ordering::Relaxed));
    let shown = shown_time(rules, now).max(rules.shown_origin.0 + early);
    match rules.cpu_scale {
        0 => shown,
        _ => LAST_SHOWN.fetch_max(shown, Ordering::Relaxed).max(shown),
    }
}

extern "C" fn wait_for_library(until: u64, wakes: c_int) -> c_int {
    let Some(clock) = virtual_time::clock() else { return -1 };
    let until = time_of_shown(clock.rules(), until);
    let drives = DRIVES.get();
    // A helper thread that sleeps is none of the threads that call libfabric.
    HELPS.set(!drives);
    if !drives && sleep_without_advancing(clock, until, wakes != 0) {
        return 0;
    }
    let status = crate::abi::boundary::value(-1, || {
        // `boundary::value` has advanced the clock by the time that the thread computed.
        if wakes == 0 {
            if !drives {
                let (kind, time) = (DeviationKind::HelperSleep, until.since(clock.now()));
                clock.announce_deviation(Deviation { kind, time });
            }
            advance_busy(clock, until);
        } else {
            wait(clock, until);
        }
        0
    });
    DRIVES.set(drives);
    HELPS.set(false);
    status
}

/// Returns the virtual time of the calling thread, with what it has computed since it last called the provider.
fn local_time(clock: &VirtualClock) -> Time {
    threads::computed_until(clock, computed_since_call(clock).unwrap_or_default())
}

/// Advances the clock by the time that the application takes to read it.
fn charge_reading(clock: &VirtualClock) {
    let span = Span(clock.rules().overhead.clock.into());
    if threads::are_several() {
        // Only this thread is later: the others compute meanwhile.
        threads::charge(span);
    } else {
        clock.charge(span);
    }
}

extern "C" fn create_for_library() -> u64 {
    virtual_time::clock().map_or(0, |clock| local_time(clock).0)
}

extern "C" fn begin_for_library(created: u64) {
    threads::begin(Time(created));
}

extern "C" fn end_for_library() {
    if let Some(clock) = virtual_time::clock() {
        clock.announce_end();
    }
}

/// Returns 1 if a call of sched_yield is to reach the kernel, and 0 if it is to return at once.
///
/// A loop that polls the provider and yields after each poll gets 0: the emulator stops it inside of a
/// poll when other processes have to run, and each yield would cost two switches of processes. A loop
/// that yields without a call gets 1, because it may wait for memory that another process has to write.
/// So does every loop before the start of the job, when the emulator does not stop any process yet.
extern "C" fn must_yield_for_library() -> c_int {
    if threads::let_others_run() {
        return 1;
    }
    let begun = virtual_time::clock().is_some_and(VirtualClock::has_begun);
    let polls = YIELDS.fetch_add(1, Ordering::Relaxed) < YIELDS_PER_CALL;
    c_int::from(!begun || !polls || DEPTH.get() > 0)
}

extern "C" fn owns_for_library(fd: c_int) -> c_int {
    c_int::from(crate::waiting::owns(fd))
}

extern "C" fn note_socket_timeout_for_library(ns: u64) {
    // The provider's own sockets have timeouts, too.
    if let Some(clock) = virtual_time::clock().filter(|_| DEPTH.get() == 0) {
        let kind = DeviationKind::SocketTimeout;
        clock.announce_deviation(Deviation { kind, time: Span(ns) });
    }
}

extern "C" fn note_passed_timeout_for_library(ns: u64) {
    /// The longest such timeout. Shorter ones are not announced, so that a loop of them does not fill the memory.
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    // The provider's own threads wait like this inside of calls.
    if let Some(clock) = virtual_time::clock().filter(|_| DEPTH.get() == 0)
        && clock.has_begun()
        && LONGEST.fetch_max(ns, Ordering::Relaxed) < ns
    {
        clock.announce_deviation(Deviation { kind: DeviationKind::RealTimeout, time: Span(ns) });
    }
}

extern "C" fn set_timer_for_library(next: u64, expire: Expire) {
    let Some(clock) = virtual_time::clock() else { return };
    EXPIRE.store(expire as *mut c_void, Ordering::Release);
    store_timer(clock, next);
}

/// Keeps the shown time at which the application's first timer is due; the highest number is none.
fn store_timer(clock: &VirtualClock, next: u64) {
    let due = if next == u64::MAX { Time::NEVER } else { time_of_shown(clock.rules(), next) };
    APPLICATION_TIMER.store(due.0, Ordering::Release);
}

/// Returns the time at which the application's first timer is due.
pub(super) fn application_timer() -> Time {
    Time(APPLICATION_TIMER.load(Ordering::Acquire))
}

/// Ends the timers of the application that are due. Returns whether there was one.
pub(super) fn expire_application_timers(clock: &VirtualClock) -> bool {
    if clock.now() < application_timer() {
        return false;
    }
    let expire = EXPIRE.load(Ordering::Acquire);
    if expire.is_null() {
        return false;
    }
    // SAFETY: the address was stored as a function of this type, of the time library, which is never unloaded.
    let expire = unsafe { core::mem::transmute::<*mut c_void, Expire>(expire) };
    store_timer(clock, expire(shown_time(clock.rules(), clock.now())));
    true
}

/// Sleeps in a helper thread, which never calls libfabric, until another thread has advanced the
/// clock to `until`. With `wakes`, returns true after one short sleep. A helper thread does not
/// advance the clock itself, because time would pass while the other threads compute. Returns false
/// if the clock stands still, because the other threads may be waiting for this one.
fn sleep_without_advancing(clock: &VirtualClock, until: Time, wakes: bool) -> bool {
    let (mut before, mut sleeps) = (clock.now(), 0);
    let mut cpu_before = read_cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    while before < until {
        std::thread::sleep(SHORT_SLEEP);
        let (now, cpu) = (clock.now(), read_cpu_clock(libc::CLOCK_PROCESS_CPUTIME_ID));
        // Other threads compute, or the clock advances: neither needs this thread.
        let others_run = Duration::from_nanos(cpu - cpu_before) > SHORT_SLEEP / 10;
        sleeps = if now == before && !others_run { sleeps + 1 } else { 0 };
        (before, cpu_before) = (now, cpu);
        if wakes {
            return true;
        }
        if sleeps >= MOST_SHORT_SLEEPS {
            return false;
        }
    }
    true
}

/// Registers the functions of this file with the time library, which answers from the virtual clock of the process from
/// now on.
pub(super) fn register(clock: &VirtualClock) {
    let table: &'static ClockTable = Box::leak(Box::new(ClockTable {
        size: size_of::<ClockTable>(),
        now: now_for_library,
        wait: wait_for_library,
        owns: owns_for_library,
        calendar: i64::try_from(clock.rules().calendar).unwrap_or(0),
        ending: end_for_library,
        create: create_for_library,
        begin: begin_for_library,
        yields: must_yield_for_library,
        set_timer: set_timer_for_library,
        socket_timeout: note_socket_timeout_for_library,
        passed_timeout: note_passed_timeout_for_library,
    }));
    // SAFETY: dlsym(3) reads the name, a NUL-terminated literal, and looks for it in the time library, which is preloaded.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"squall_time_register".as_ptr()) };
    if symbol.is_null() {
        log::warn!(
            target: USER,
            "the emulator's time is virtual, and libsquall_time.so is not preloaded: the application's own clocks \
             show real time; start the job with squall run --virtual"
        );
        return;
    }
    // SAFETY: only the time library defines this symbol, as a function of this type. It keeps
    // the table, which is leaked and therefore never freed.
    let status = unsafe {
        let register: unsafe extern "C" fn(*const ClockTable) -> c_int =
            core::mem::transmute(symbol);
        register(table)
    };
    if status != 0 {
        log::warn!(target: USER, "libsquall_time.so is of another version than the provider; install both anew");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_early_readings_show_one_time_and_then_the_clock_advances() {
        assert_eq!(early_advance(0), 0);
        assert_eq!(early_advance(EQUAL_READINGS), 0);
        let second = 1_000_000_000;
        assert!(early_advance(EQUAL_READINGS + 1_000_000) >= second, "a loop that waits ends");
    }
}
