//! Virtual time of this process: which calls advance its clock, and by how much.
//!
//! An emulator whose clock is virtual (`squall run --virtual`) has the clock of each process in
//! [`squall_net::emulator::virtual_time`]. Here the provider's calls use it:
//!
//! - When a call begins, the clock first advances by the CPU time that the thread has used since
//!   its last call ([`enter`]). The transport handles the packets and timers of that time at their
//!   virtual times, in place of the progress threads of a real host, which do not run.
//! - Calls take constant virtual times ([`charge_send`] and the other `charge` functions). Their
//!   real duration does not count.
//! - A thread that polls and finds nothing waits for the next packet or timer ([`on_empty_poll`]).
//!   So does a thread that peeks at messages, when it repeats a peek ([`begin_peek`]).
//!
//! The preloaded time library answers the application's own time functions from the same clock.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::Once;
use std::time::Duration;

use parking_lot::Mutex;
use squall_base::{Span, Time};
use squall_net::EmulatorSpec;
use squall_net::emulator::frame::{VirtualTimeRules, WaitReason};
use squall_net::emulator::virtual_time::{self, Progress, VirtualClock};

use crate::logger::USER;
use crate::open_endpoints;
use crate::param::params;

/// Empty polls in a row after which a thread waits for a packet or timer.
const IDLE_AFTER: i32 = 2;
/// Empty polls after a new peek that count as part of it, so that the thread does not wait. MPI
/// libraries read their queues several times in one MPI_Iprobe, and the program may look for another
/// message next, which is there already.
const FREE_POLLS_AFTER_PEEK: i32 = 16;
/// Virtual time of computation between two empty polls below which a thread does nothing but poll.
const POLLING: Span = Span::micros(2);

/// Yields after a call of the provider that return at once.
const YIELDS_PER_CALL: u32 = 2;

/// Number of different peeks that are remembered. A program may look for messages of each rank.
const MOST_PEEKS: usize = 4096;

/// Pairs of readings of the CPU time from which the cost of one is taken.
const READINGS: u32 = 64;

/// Most rounds of [`serve_endpoints`]. A round follows if the one before made progress.
const MOST_TURNS: u32 = 64;

/// Number of empty polls in a row, between which the application did nothing else. A new peek makes it
/// negative: see [`FREE_POLLS_AFTER_PEEK`].
static EMPTY_POLLS: AtomicI32 = AtomicI32::new(0);
/// Different peeks that found nothing since the last progress of an endpoint. Each of them would find
/// nothing again. The application's other work clears them as well.
static EMPTY_PEEKS: Mutex<BTreeSet<Peek>> = Mutex::new(BTreeSet::new());
/// Number of times that operations completed, for which the application may be waiting.
static COMPLETIONS: AtomicU64 = AtomicU64::new(0);
/// Clock readings of the application before the start of the job. The clock of the process stands
/// still then.
static EARLY_READINGS: AtomicU64 = AtomicU64::new(0);
/// Early readings that show the same time. The number of readings depends on real time, and what the
/// application sees after the start must not.
const EQUAL_READINGS: u64 = 1 << 24;
/// Nanoseconds that each further reading adds, so that a loop which waits for a time ends.
const EARLY_STEP: u64 = 1_000;
/// Yields of the application since it last called the provider.
static YIELDS: AtomicU32 = AtomicU32::new(0);
/// Virtual nanoseconds for which the application has computed since the last empty poll.
static COMPUTED: AtomicU64 = AtomicU64::new(0);
/// CPU time that a reading of the CPU time takes, in nanoseconds.
static READING_COST: AtomicU64 = AtomicU64::new(0);
/// The latest time that the application has read, if computation takes time. It may lie ahead of the
/// clock of the process, which advances by a computation at the next call of the provider.
static LAST_SHOWN: AtomicU64 = AtomicU64::new(0);

/// Real time for which a helper thread sleeps between two readings of the clock.
const SHORT_SLEEP: Duration = Duration::from_millis(1);
/// Short sleeps without an advance of the clock after which a helper thread advances it.
const MOST_SHORT_SLEEPS: u32 = 50;

thread_local! {
    /// The thread has called libfabric, so it may advance the clock of the process.
    static DRIVES: Cell<bool> = const { Cell::new(false) };
    /// Nesting depth of calls of the provider in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// CPU time of the thread when its last call ended; zero before that.
    static LEFT_AT: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the process is to be in virtual time once it has an endpoint.
pub(crate) fn is_wanted() -> bool {
    params().emulator.parse().is_ok_and(|spec: EmulatorSpec| spec.virtual_time)
}

/// A call of the provider in virtual time. Dropping it ends the call.
pub(crate) struct Call(&'static VirtualClock);

impl Drop for Call {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            self.0.flush();
            if self.0.rules().cpu_scale > 0 {
                LEFT_AT.set(cpu_time());
            }
        }
    }
}

/// Begins a call of the provider; returns `None` in real time.
#[inline]
pub(crate) fn enter() -> Option<Call> {
    virtual_time::clock().map(|clock| {
        DRIVES.set(true);
        begin_call(clock)
    })
}

#[cold]
fn begin_call(clock: &'static VirtualClock) -> Call {
    DEPTH.set(DEPTH.get() + 1);
    YIELDS.store(0, Ordering::Relaxed);
    let call = Call(clock);
    if DEPTH.get() == 1
        && let Some(computed) = computed_since_call(clock)
    {
        COMPUTED.fetch_add(computed.0, Ordering::Relaxed);
        clock.count_computation(computed);
        advance_busy(clock, clock.now() + computed);
    }
    call
}

/// Returns the virtual time for which this thread has computed since its last call of the provider.
/// Returns `None` if computation takes no time, the job has not begun, or the thread has made no call.
fn computed_since_call(clock: &VirtualClock) -> Option<Span> {
    let (scale, left_at) = (clock.rules().cpu_scale, LEFT_AT.get());
    if scale == 0 || left_at == 0 || !clock.has_begun() {
        return None;
    }
    // One reading lies between the two at the ends of the computation.
    let since = left_at + READING_COST.load(Ordering::Relaxed);
    let used = u128::from(cpu_time().saturating_sub(since));
    Some(Span(u64::try_from(used * u128::from(scale) / 1_000_000).unwrap_or(u64::MAX)))
}

/// Measures what a reading of the CPU time takes.
fn measure_reading() {
    let costs = (0..READINGS).map(|_| {
        let before = cpu_time();
        cpu_time().saturating_sub(before)
    });
    READING_COST.store(costs.min().unwrap_or(0), Ordering::Relaxed);
}

/// Returns the CPU time that this thread has used, in nanoseconds.
fn cpu_time() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable. Every Linux has the clock of the
    // calling thread, so it does not fail. The time library passes this clock on to the system.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}

/// Returns the earliest time after `after` at which an endpoint has to act: the time of a timer, or
/// of an arrival that the emulator has announced.
fn first_timer(after: Time) -> Time {
    let timers = open_endpoints::all().into_iter().filter_map(|ep| ep.next_timeout());
    timers.filter(|at| *at > after).min().unwrap_or(Time::NEVER)
}

/// Serves the endpoints if a timer is due, and returns the time of the next timer. Returns `None`
/// if a packet had arrived as well.
fn serve_due_timers(clock: &VirtualClock) -> Option<Time> {
    let timer = first_timer(Time::ZERO);
    if timer > clock.now() {
        return Some(timer);
    }
    // Ask for arrivals up to now: whether the emulator has announced them depends on real time, and
    // the result must not.
    clock.sync();
    let arrived = clock.has_arrival();
    serve_endpoints();
    (!arrived).then(|| first_timer(clock.now()))
}

/// Makes every endpoint receive packets, answer them and handle its timers. The caller holds no
/// lock of an endpoint. Returns whether an endpoint made progress.
fn serve_endpoints() -> bool {
    let endpoints = open_endpoints::all();
    let mut busy = false;
    for _ in 0..MOST_TURNS {
        let again = endpoints.iter().fold(false, |busy, ep| busy | ep.try_progress());
        busy |= again;
        if !again {
            break;
        }
    }
    busy
}

/// Advances the clock to `until`, because the application computes or sleeps until then.
fn advance_busy(clock: &VirtualClock, until: Time) {
    loop {
        if clock.now() >= until {
            return;
        }
        let timer = serve_due_timers(clock).unwrap_or_else(|| first_timer(clock.now()));
        clock.advance(timer.min(until), WaitReason::Busy);
        if clock.now() < until {
            serve_endpoints();
        }
    }
}

/// Waits for the next packet, but not beyond `until` or the longest idle step. The transport
/// handles its timers meanwhile. Returns whether an endpoint made progress. The caller holds no
/// lock of an endpoint.
fn wait(clock: &VirtualClock, until: Time) -> bool {
    let longest = clock.now() + clock.rules().longest_idle;
    let until = until.min(longest);
    let done = COMPLETIONS.load(Ordering::Relaxed);
    // Serve a packet that has already arrived at once, or the time of the return would depend on
    // when the emulator announced it.
    if clock.has_arrival() {
        return serve_endpoints();
    }
    loop {
        let Some(timer) = serve_due_timers(clock) else { return true };
        let reason = if timer <= longest { WaitReason::Timer } else { WaitReason::Idle };
        let progress = clock.advance(timer.min(until.max(clock.now())), reason);
        let busy = serve_endpoints();
        // A timer by which the transport only sent something is not what the application waits for.
        let visible = progress == Progress::Arrival || COMPLETIONS.load(Ordering::Relaxed) != done;
        if visible || clock.now() >= until {
            return busy;
        }
    }
}

/// Notes that operations completed, for which the application may be waiting.
#[inline]
pub(crate) fn note_completion() {
    if virtual_time::now().is_some() {
        COMPLETIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits as [`wait`] does. Returns false if time is real.
pub(crate) fn wait_until(until: Time) -> bool {
    virtual_time::clock().map(|clock| wait(clock, until)).is_some()
}

/// Waits as [`wait`] does in virtual time, for a loop that drives an endpoint. In real time, yields
/// the processor to other threads.
pub(crate) fn wait_or_yield() {
    if !wait_until(Time::NEVER) {
        std::thread::yield_now();
    }
}

/// Notes that an endpoint made progress, so that a peek may find a message.
#[inline]
pub(crate) fn note_progress() {
    if virtual_time::now().is_some() {
        EMPTY_PEEKS.lock().clear();
    }
}

/// Notes that the application does something else than to look for messages and completions.
fn end_polling() {
    EMPTY_POLLS.store(0, Ordering::Relaxed);
    EMPTY_PEEKS.lock().clear();
}

/// Notes that a poll found something.
#[inline]
pub(crate) fn on_busy_poll() {
    if let Some(clock) = virtual_time::clock() {
        end_polling();
        clock.charge(Span(clock.rules().overhead.poll.into()));
    }
}

/// Notes that a poll found nothing. If the thread does nothing but poll, it waits for the next packet
/// or timer. The caller holds no lock of an endpoint. Returns false if time is real.
#[inline]
pub(crate) fn on_empty_poll() -> bool {
    let Some(clock) = virtual_time::clock() else { return false };
    handle_empty_poll(clock);
    true
}

#[cold]
fn handle_empty_poll(clock: &VirtualClock) {
    clock.charge(Span(clock.rules().overhead.poll.into()));
    end_polling_after_computation();
    let polls = EMPTY_POLLS.fetch_add(1, Ordering::Relaxed) + 1;
    if polls >= IDLE_AFTER && wait(clock, Time::NEVER) {
        EMPTY_POLLS.store(0, Ordering::Relaxed);
    }
}

/// Ends polling if the application has computed since the last poll.
fn end_polling_after_computation() {
    if Span(COMPUTED.swap(0, Ordering::Relaxed)) >= POLLING {
        end_polling();
    }
}

/// A search for an unexpected message (FI_PEEK), which finds the same until an endpoint makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peek {
    /// Address of the endpoint, which is only compared.
    pub(crate) endpoint: usize,
    /// The source that the application asked for.
    pub(crate) from: u64,
    pub(crate) tag: u64,
    /// Bits of the tag that the match ignores.
    pub(crate) ignore: u64,
}

/// Begins a peek, which takes the time of a poll. If the same peek has found nothing before and nothing
/// has happened since, the thread waits for the next packet or timer. Another peek does not wait: a
/// program may look for several sources or tags in turn, and the next one may be there. The caller
/// holds no lock of an endpoint, and searches for the message afterwards.
#[inline]
pub(crate) fn begin_peek(peek: Peek) {
    if let Some(clock) = virtual_time::clock() {
        handle_peek(clock, peek);
    }
}

#[cold]
fn handle_peek(clock: &VirtualClock, peek: Peek) {
    clock.charge(Span(clock.rules().overhead.poll.into()));
    end_polling_after_computation();
    if note_peek(&mut EMPTY_PEEKS.lock(), peek) {
        wait(clock, Time::NEVER);
    } else {
        EMPTY_POLLS.store(-FREE_POLLS_AFTER_PEEK, Ordering::Relaxed);
    }
}

/// Adds a peek to those that find nothing. Returns whether it was there already.
fn note_peek(peeks: &mut BTreeSet<Peek>, peek: Peek) -> bool {
    if peeks.len() >= MOST_PEEKS && !peeks.contains(&peek) {
        peeks.clear();
    }
    !peeks.insert(peek)
}

/// Advances the clock by the time that a call takes which posts an operation.
#[inline]
pub(crate) fn charge_send() {
    if let Some(clock) = virtual_time::clock() {
        end_polling();
        clock.charge(Span(clock.rules().overhead.send.into()));
    }
}

/// Advances the clock by the time that the application takes to read completions.
#[inline]
pub(crate) fn charge_completions(count: usize) {
    if let Some(clock) = virtual_time::clock() {
        end_polling();
        clock.charge(Span(u64::from(clock.rules().overhead.receive) * count as u64));
    }
}

/// The functions that the preloaded time library calls, as it declares them.
#[repr(C)]
struct ClockTable {
    size: usize,
    now: extern "C" fn() -> u64,
    wait: extern "C" fn(until: u64, wakes: c_int) -> c_int,
    owns: extern "C" fn(fd: c_int) -> c_int,
    calendar: i64,
    ending: extern "C" fn(),
    yields: extern "C" fn() -> c_int,
}

/// Returns the time of CLOCK_MONOTONIC that the application sees at `now`.
fn shown_time(rules: &VirtualTimeRules, now: Time) -> u64 {
    (rules.shown_origin + now.since(rules.origin)).0
}

/// Returns the time of the clock at which the application sees `shown`.
fn time_of_shown(rules: &VirtualTimeRules, shown: u64) -> Time {
    Time(rules.origin.0.saturating_add(Time(shown).since(rules.shown_origin).0))
}

/// Returns the nanoseconds by which the application's clock has advanced after so many early readings.
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
    let mut computed = None;
    if DEPTH.get() == 0 {
        clock.charge(Span(rules.overhead.clock.into()));
        // Show the computation before the next call, but do not advance the clock by it: the transport
        // would have to act meanwhile, and a signal handler may read the clock.
        computed = computed_since_call(clock);
    }
    // The application's clock must not go back.
    let early = early_advance(EARLY_READINGS.load(Ordering::Relaxed));
    let now = clock.now() + computed.unwrap_or_default();
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
    if !drives && sleep_without_advancing(clock, until, wakes != 0) {
        return 0;
    }
    let status = crate::boundary::value(-1, || {
        // `boundary::value` has advanced the clock by the time that the thread computed.
        if wakes == 0 {
            advance_busy(clock, until);
        } else {
            wait(clock, until);
        }
        0
    });
    DRIVES.set(drives);
    status
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
    let begun = virtual_time::clock().is_some_and(VirtualClock::has_begun);
    let polls = YIELDS.fetch_add(1, Ordering::Relaxed) < YIELDS_PER_CALL;
    c_int::from(!begun || !polls || DEPTH.get() > 0)
}

extern "C" fn owns_for_library(fd: c_int) -> c_int {
    c_int::from(crate::wait::owns(fd))
}

/// Sleeps in a helper thread, which never calls libfabric, until another thread has advanced the
/// clock to `until`. With `wakes`, returns true after one short sleep. A helper thread does not
/// advance the clock itself, because time would pass while the other threads compute. Returns false
/// if the clock stands still, because the other threads may be waiting for this one.
fn sleep_without_advancing(clock: &VirtualClock, until: Time, wakes: bool) -> bool {
    let (mut before, mut sleeps) = (clock.now(), 0);
    while before < until {
        std::thread::sleep(SHORT_SLEEP);
        let now = clock.now();
        sleeps = if now == before { sleeps + 1 } else { 0 };
        before = now;
        if wakes {
            return true;
        }
        if sleeps >= MOST_SHORT_SLEEPS {
            return false;
        }
    }
    true
}

/// Begins virtual time in this process, after its first endpoint has attached: from now on the
/// preloaded time library answers from the clock of the process.
pub(crate) fn begin_process() {
    static BEGUN: Once = Once::new();
    let Some(clock) = virtual_time::clock() else { return };
    BEGUN.call_once(|| {
        measure_reading();
        let table: &'static ClockTable = Box::leak(Box::new(ClockTable {
            size: size_of::<ClockTable>(),
            now: now_for_library,
            wait: wait_for_library,
            owns: owns_for_library,
            calendar: i64::try_from(clock.rules().calendar).unwrap_or(0),
            ending: end_for_library,
            yields: must_yield_for_library,
        }));
        // SAFETY: dlsym(3) reads the name, a NUL-terminated literal, and looks for it in the time library, which is preloaded.
        let symbol =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"squall_time_register".as_ptr()) };
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
    });
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

    #[test]
    fn a_loop_over_peeks_waits_when_it_begins_anew() {
        let peek = |tag| Peek { endpoint: 1, from: 2, tag, ignore: 0 };
        let mut peeks = BTreeSet::new();
        let mut round = || (0..5).map(|tag| note_peek(&mut peeks, peek(tag))).collect::<Vec<_>>();
        assert_eq!(round(), [false; 5], "a message of any of these tags may be there");
        assert_eq!(round(), [true; 5]);
        for tag in 0..3 * MOST_PEEKS as u64 {
            note_peek(&mut peeks, peek(tag));
            assert!(peeks.len() <= MOST_PEEKS, "peeks that never repeat take no more memory");
        }
    }
}
