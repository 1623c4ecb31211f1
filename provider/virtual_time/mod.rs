//! Virtual time of this process: which calls advance its clock, and by how much.
//!
//! An emulator whose clock is virtual (`squall run --virtual`) has the clock of each process in
//! [`squall_net::emulator::virtual_time`]. The hooks ([`hooks`]) are the points of the provider's calls that use it:
//!
//! - When a call begins, the clock first advances by the CPU time that the thread has used since
//!   its last call. The transport handles the packets and timers of that time at their
//!   virtual times, in place of the progress threads of a real host, which do not run.
//! - Calls take constant virtual times. Their real duration does not count.
//! - A thread that polls and finds nothing waits for the next packet or timer. So does a thread that
//!   peeks at messages, when it repeats a peek.
//!
//! The preloaded time library answers the application's own time functions from the same clock ([`library`]).

mod library;
mod threads;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use squall_base::{Span, Time};
use squall_engine::{Action, Operation};
use squall_net::emulator::frame::{Deviation, DeviationKind, WaitReason};
use squall_net::emulator::host_overhead::HostWork;
use squall_net::emulator::virtual_time::{self, Progress, VirtualClock};

use crate::clock::hooks::{self, Hooks, Peek, ReadCompletion};
use crate::waiting::open_endpoints::{self, OpenEndpoint};

/// Number of empty polls in a row after which a thread waits for a packet or timer.
const IDLE_AFTER: i32 = 2;
/// Empty polls after a new peek that count as part of it, so that the thread does not wait. MPI
/// libraries read their queues several times in one MPI_Iprobe, and the program may look for another
/// message next, which is there already.
const FREE_POLLS_AFTER_PEEK: i32 = 16;
/// Virtual time of computation between two empty polls below which a thread counts as polling only.
const POLLING: Span = Span::micros(2);

/// Shortest step of the clock of a process that polls, finds nothing and reads the clock between polls.
const SHORTEST_STEP: Span = Span::nanos(100);
/// Divisor of the virtual time for which such a process has polled, which gives its next step: a loop that polls until
/// a time ends at most this part later.
const STEP_DIVISOR: u64 = 4;

/// Number of such steps that a loop takes at least.
const STEPS_OF_LOOP: u32 = 4;

/// Largest number of different peeks that are remembered. A program may look for messages of each rank.
const MOST_PEEKS: usize = 4096;

/// Number of pairs of readings of the CPU time from which the cost of one reading is taken.
const READINGS: u32 = 64;

/// Largest number of rounds of [`serve_endpoints`]. A round follows if the one before made progress and left something
/// that is due.
const MOST_TURNS: u32 = 64;

/// Number of empty polls in a row, between which the application did nothing else. A new peek makes it
/// negative: see [`FREE_POLLS_AFTER_PEEK`].
static EMPTY_POLLS: AtomicI32 = AtomicI32::new(0);
/// Virtual time of the first empty poll since the application did something else; zero for none.
static POLLS_SINCE: AtomicU64 = AtomicU64::new(0);
/// The application has read the clock since then, perhaps to end a loop of polls at a time.
static READS_CLOCK: AtomicBool = AtomicBool::new(false);
/// Number of readings of the clock since the last empty poll.
static LOOP_READINGS: AtomicU32 = AtomicU32::new(0);
/// Number of steps of the clock since [`POLLS_SINCE`].
static STEPS: AtomicU32 = AtomicU32::new(0);
/// Different peeks that have found nothing since an endpoint last made progress. Each of them would find nothing again.
/// Other work of the application clears them as well.
static EMPTY_PEEKS: Mutex<BTreeSet<Peek>> = Mutex::new(BTreeSet::new());
/// Number of times so far that operations completed for which the application may be waiting.
static COMPLETIONS: AtomicU64 = AtomicU64::new(0);
/// Number of yields of the application since it last called the provider.
static YIELDS: AtomicU32 = AtomicU32::new(0);
/// Virtual nanoseconds for which the application has computed since the last empty poll.
static COMPUTED: AtomicU64 = AtomicU64::new(0);
/// CPU time in nanoseconds that reading the CPU time takes.
static READING_COST: AtomicU64 = AtomicU64::new(0);
thread_local! {
    /// The thread has called libfabric, so it may advance the virtual clock of the process.
    static DRIVES: Cell<bool> = const { Cell::new(false) };
    /// The thread sleeps in a function of the time library and never calls libfabric.
    static HELPS: Cell<bool> = const { Cell::new(false) };
    /// Nesting depth of calls of the provider in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// CPU time of the thread when its last call of the provider ended; zero before the first call.
    static LEFT_AT: Cell<u64> = const { Cell::new(0) };
}

/// The hooks of a process that has attached to an emulator in virtual time. A forked child has no virtual clock.
struct ProcessHooks;

impl Hooks for ProcessHooks {
    fn now(&self) -> Option<Time> {
        virtual_time::now()
    }

    fn begin_call(&self) -> bool {
        let Some(clock) = virtual_time::clock() else { return false };
        DRIVES.set(true);
        begin_call(clock);
        true
    }

    fn end_call(&self) {
        end_call();
    }

    fn charge_send(&self, op: &Operation) {
        if let Some(clock) = virtual_time::clock() {
            end_polling();
            clock.charge(clock.rules().overhead.cost(work_of(op)).time(op.buf.len()));
        }
    }

    fn charge_completions(&self, read: &mut dyn Iterator<Item = ReadCompletion>) {
        if let Some(clock) = virtual_time::clock() {
            end_polling();
            for ReadCompletion { is_own, bytes } in read {
                let work = if is_own { HostWork::Sent } else { HostWork::Receive };
                clock.charge(clock.rules().overhead.cost(work).time(bytes));
            }
        }
    }

    fn charge_unexpected(&self, bytes: u64) {
        if let Some(clock) = virtual_time::clock() {
            clock.charge(clock.rules().overhead.cost(HostWork::Unexpected).time(bytes));
        }
    }

    fn note_progress(&self) {
        if virtual_time::now().is_some() {
            EMPTY_PEEKS.lock().clear();
        }
    }

    fn note_completion(&self) {
        if virtual_time::now().is_some() {
            COMPLETIONS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_busy_poll(&self) {
        if let Some(clock) = virtual_time::clock() {
            end_polling();
            clock.charge(Span(clock.rules().overhead.poll.into()));
        }
    }

    fn on_empty_poll(&self) -> bool {
        virtual_time::clock().map(handle_empty_poll).is_some()
    }

    fn begin_peek(&self, peek: Peek) {
        if let Some(clock) = virtual_time::clock() {
            handle_peek(clock, peek);
        }
    }

    fn wait_until(&self, until: Time) -> bool {
        let Some(clock) = virtual_time::clock() else { return false };
        if threads::others_run() {
            threads::let_others_run();
        } else {
            wait(clock, until);
        }
        true
    }
}

/// Returns the work of the call that posted an operation.
const fn work_of(op: &Operation) -> HostWork {
    match op.action {
        Action::Read(_) => HostWork::Read,
        Action::Atomic(_) => HostWork::Atomic,
        _ if op.options.inject => HostWork::Inject,
        Action::Write(_) => HostWork::Write,
        Action::Message { .. } => HostWork::Send,
    }
}

/// Begins virtual time in this process, after its first endpoint has attached.
pub(crate) fn begin_process() {
    static BEGUN: Once = Once::new();
    let Some(clock) = virtual_time::clock() else { return };
    BEGUN.call_once(|| {
        hooks::install(&ProcessHooks);
        measure_reading();
        library::register(clock);
    });
}

fn begin_call(clock: &'static VirtualClock) {
    DEPTH.set(DEPTH.get() + 1);
    YIELDS.store(0, Ordering::Relaxed);
    if DEPTH.get() > 1 {
        return;
    }
    if !HELPS.get() && threads::register() {
        clock.announce_deviation(Deviation { kind: DeviationKind::Threads, time: Span::ZERO });
    }
    if let Some(computed) = computed_since_call(clock) {
        COMPUTED.fetch_add(computed.0, Ordering::Relaxed);
        let until = threads::computed_until(clock, computed);
        clock.count_computation(until.since(clock.now()));
        threads::wait_in_turn(|| advance_busy(clock, until));
    }
}

fn end_call() {
    let depth = DEPTH.get() - 1;
    DEPTH.set(depth);
    if depth == 0
        && let Some(clock) = virtual_time::clock()
    {
        clock.flush();
        if clock.rules().cpu_scale > 0 {
            LEFT_AT.set(cpu_time());
        }
        threads::leave(clock.now());
    }
}

/// Returns the virtual time for which this thread has computed since its last call of the provider.
/// Returns `None` if computation takes no time, the job has not begun, or the thread has made no call.
fn computed_since_call(clock: &VirtualClock) -> Option<Span> {
    let (scale, left_at) = (clock.rules().cpu_scale, LEFT_AT.get());
    if scale == 0 || left_at == 0 && !threads::was_created() || !clock.has_begun() {
        return None;
    }
    // One reading lies between the two at the ends of the computation.
    let since = left_at + READING_COST.load(Ordering::Relaxed);
    let used = u128::from(cpu_time().saturating_sub(since));
    Some(Span(u64::try_from(used * u128::from(scale) / 1_000_000).unwrap_or(u64::MAX)))
}

/// Measures the CPU time that one reading of the CPU time takes.
fn measure_reading() {
    let costs = (0..READINGS).map(|_| {
        let before = cpu_time();
        cpu_time().saturating_sub(before)
    });
    READING_COST.store(costs.min().unwrap_or(0), Ordering::Relaxed);
}

/// Returns the CPU time that this thread has used, in nanoseconds.
fn cpu_time() -> u64 {
    read_cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the clock of the CPU time of a thread of this process (clock_getcpuclockid(3), for a thread).
const fn clock_of(tid: libc::pid_t) -> libc::clockid_t {
    !tid << 3 | 6
}

/// Returns the time of a clock of CPU time in nanoseconds; zero if its thread has ended.
fn read_cpu_clock(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec, into a local variable, or fails and leaves it zero. The time
    // library passes clocks of CPU time on to the system.
    unsafe { libc::clock_gettime(clock, &raw mut ts) };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(ts.tv_nsec).unwrap_or(0)
}

/// Returns the earliest time after `after` at which an endpoint has to act, because of a timer or of an arrival that the
/// emulator has announced, or at which a timer of the application is due.
fn first_timer(after: Time) -> Time {
    let timers = open_endpoints::all().into_iter().filter_map(|ep| ep.next_timeout());
    let timers = timers.chain([library::application_timer()]);
    timers.filter(|at| *at > after).min().unwrap_or(Time::NEVER)
}

/// Serves the endpoints if a timer is due, and returns the time of the next timer. Returns `None` if a packet had
/// arrived as well.
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
    let Some(clock) = virtual_time::clock() else { return false };
    let endpoints = open_endpoints::all();
    let mut busy = false;
    for _ in 0..MOST_TURNS {
        let again = endpoints.iter().fold(false, |busy, ep| busy | ep.try_progress());
        busy |= again;
        // A turn handles everything that is due, unless that is too much for one.
        let is_due =
            |ep: &Arc<dyn OpenEndpoint>| ep.next_timeout().is_some_and(|at| at <= clock.now());
        if !again || !endpoints.iter().any(is_due) {
            break;
        }
    }
    busy
}

/// Advances the clock to `until`, because the application computes or sleeps until then.
fn advance_busy(clock: &VirtualClock, until: Time) {
    loop {
        library::expire_application_timers(clock);
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

/// Returns the largest step of the clock of a process that polls and finds nothing. A program that reads the clock
/// between polls gets small steps that grow with the time for which it polls: it may stop polling at a time. So does one
/// with several threads, of which another may be about to go on.
fn idle_step(clock: &VirtualClock) -> Span {
    let longest = clock.rules().longest_idle;
    let since = POLLS_SINCE.load(Ordering::Relaxed);
    let short = READS_CLOCK.load(Ordering::Relaxed) || threads::are_several();
    if since == 0 || !short {
        return longest;
    }
    STEPS.fetch_add(1, Ordering::Relaxed);
    let polled = clock.now().since(Time(since));
    Span(polled.0 / STEP_DIVISOR).max(SHORTEST_STEP).min(longest)
}

/// Notes that the application reads the clock outside of a call.
fn note_clock_reading(clock: &VirtualClock) {
    if POLLS_SINCE.load(Ordering::Relaxed) == 0 {
        return;
    }
    READS_CLOCK.store(true, Ordering::Relaxed);
    // The reading that ends a loop and the one that begins the next have no poll between them. A loop that reads the
    // clock twice in each round does not begin anew in each.
    let again = LOOP_READINGS.fetch_add(1, Ordering::Relaxed) > 0;
    if again && STEPS.load(Ordering::Relaxed) >= STEPS_OF_LOOP {
        STEPS.store(0, Ordering::Relaxed);
        POLLS_SINCE.store(clock.now().0, Ordering::Relaxed);
    }
}

/// Waits for the next packet, but not beyond `until` or the longest idle step. The transport
/// handles its timers meanwhile. Returns whether an endpoint made progress. The caller holds no
/// lock of an endpoint.
fn wait(clock: &VirtualClock, until: Time) -> bool {
    threads::wait_alone(|| wait_for_packet(clock, until)).unwrap_or(false)
}

/// Waits as [`wait`] says, while no other thread of the process does.
fn wait_for_packet(clock: &VirtualClock, until: Time) -> bool {
    let longest = clock.now() + idle_step(clock);
    let until = until.min(longest);
    let done = COMPLETIONS.load(Ordering::Relaxed);
    // Serve a packet that has already arrived at once, or the time of the return would depend on
    // when the emulator announced it.
    if clock.has_arrival() {
        return serve_endpoints();
    }
    if library::expire_application_timers(clock) {
        return false;
    }
    loop {
        let Some(timer) = serve_due_timers(clock) else { return true };
        let reason = if timer <= longest { WaitReason::Timer } else { WaitReason::Idle };
        let progress = clock.advance(timer.min(until.max(clock.now())), reason);
        let busy = serve_endpoints();
        // A timer by which the transport only sent something is not what the application waits for.
        let visible = progress == Progress::Arrival || COMPLETIONS.load(Ordering::Relaxed) != done;
        let expired = library::expire_application_timers(clock);
        if visible || expired || clock.now() >= until {
            return busy;
        }
    }
}

/// Notes that the application does something other than looking for messages and completions.
fn end_polling() {
    EMPTY_POLLS.store(0, Ordering::Relaxed);
    POLLS_SINCE.store(0, Ordering::Relaxed);
    READS_CLOCK.store(false, Ordering::Relaxed);
    EMPTY_PEEKS.lock().clear();
    threads::note_activity();
}

/// Notes that the application polls and has found nothing.
fn note_polling(clock: &VirtualClock) {
    let now = clock.now().0;
    LOOP_READINGS.store(0, Ordering::Relaxed);
    let _ = POLLS_SINCE.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
}

/// Handles a poll that found nothing. If the thread does nothing but poll, it waits for the next packet or timer.
fn handle_empty_poll(clock: &VirtualClock) {
    if threads::others_run() {
        // One of them may be about to send: this poll takes no time, and waits for nothing.
        return;
    }
    clock.charge(Span(clock.rules().overhead.poll.into()));
    end_polling_after_computation();
    note_polling(clock);
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

/// Handles a peek, which takes the time of a poll. If the same peek has found nothing before and nothing has happened
/// since, the thread waits for the next packet or timer. Another peek does not wait: a program may look for several
/// sources or tags in turn, and the next one may be there.
fn handle_peek(clock: &VirtualClock, peek: Peek) {
    if threads::others_run() {
        return;
    }
    clock.charge(Span(clock.rules().overhead.poll.into()));
    end_polling_after_computation();
    note_polling(clock);
    if note_peek(&mut EMPTY_PEEKS.lock(), peek) {
        wait(clock, Time::NEVER);
    } else {
        EMPTY_POLLS.store(-FREE_POLLS_AFTER_PEEK, Ordering::Relaxed);
    }
}

/// Adds a peek to those that found nothing. Returns whether it was there already.
fn note_peek(peeks: &mut BTreeSet<Peek>, peek: Peek) -> bool {
    if peeks.len() >= MOST_PEEKS && !peeks.contains(&peek) {
        peeks.clear();
    }
    !peeks.insert(peek)
}

#[cfg(test)]
mod tests {
    use super::*;

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
