//! Threads of a process in virtual time: the clock of the process is one, and its threads compute side by side.
//!
//! - A thread that polls and finds nothing advances the clock only when no other thread that calls libfabric runs, because
//!   that one may be about to send.
//! - Each thread counts its own CPU time from the virtual time at which it last left the provider, or at which it was
//!   created. So threads that compute at the same time advance the clock once, and not by their sum.
//! - The computation of a thread that ends counts as well: its creator may wait for it without a call.
//!
//! All of it depends on how the machine schedules threads. A process reports the second thread that calls, and the run is
//! then said to be not repeatable.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs;
use std::time::Duration;

use parking_lot::Mutex;
use squall_base::{Span, Time};
use squall_net::emulator::virtual_time::VirtualClock;

use super::{clock_of, read_cpu_clock};

/// Real time for which a thread that polls lets the others run.
const NAP: Duration = Duration::from_micros(50);

/// CPU time since its last poll, in nanoseconds, below which a thread does nothing but poll.
const POLL_CPU: u64 = 20_000;
/// Number of looks in a row, with naps between, at which all other threads must sleep before a thread that polls waits.
const QUIET_LOOKS: u32 = 20;

/// A thread that calls libfabric.
struct Caller {
    /// Number of the thread in the kernel.
    tid: libc::pid_t,
    /// The thread waits for the emulator, so it sends nothing.
    waits: bool,
    /// CPU time of the thread, in nanoseconds, when it last polled and found nothing; `None` if it did something else since.
    polled_at: Option<u64>,
    /// CPU time of the thread, in nanoseconds, when another thread last looked.
    seen: u64,
}

/// All threads that have called libfabric and live.
static CALLERS: Mutex<Vec<Caller>> = Mutex::new(Vec::new());
/// More than one thread has called libfabric.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The thread that waits for the emulator holds this lock. There is one at a time, because the answer to the wait of a
/// second one could come after the first has gone on.
static WAITING: Mutex<()> = Mutex::new(());
/// The latest virtual time up to which a thread that has ended had computed.
static ENDED_AT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The registration of the calling thread, which ends with the thread.
    static REGISTRATION: RefCell<Option<Registration>> = const { RefCell::new(None) };
    /// Number of the thread in the kernel, once it has called libfabric; zero before.
    static TID: Cell<libc::pid_t> = const { Cell::new(0) };
    /// The virtual time of the thread in nanoseconds when it last left the provider, or was created; zero if unknown.
    static LOCAL: Cell<u64> = const { Cell::new(0) };
    /// The thread found that others run, and is to let them.
    static YIELDS: Cell<bool> = const { Cell::new(false) };
    /// Number of looks in a row at which the thread found the others asleep.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    /// Ends the thread's computation when the thread ends.
    static COMPUTATION: RefCell<Option<Computation>> = const { RefCell::new(None) };
}

/// The place of a thread among the callers. Dropping it removes the thread.
struct Registration(libc::pid_t);

impl Drop for Registration {
    fn drop(&mut self) {
        CALLERS.lock().retain(|caller| caller.tid != self.0);
    }
}

/// The computation of a thread that was created in virtual time. Dropping it counts what the thread has computed.
struct Computation;

impl Drop for Computation {
    fn drop(&mut self) {
        let Some(clock) = squall_net::emulator::virtual_time::clock() else { return };
        let computed = super::computed_since_call(clock).unwrap_or_default();
        ENDED_AT.fetch_max(LOCAL.try_with(Cell::get).unwrap_or(0) + computed.0, Ordering::Relaxed);
    }
}

/// Sleeps for [`NAP`] in real time. The time library answers the C library's sleeps, and not a system call.
fn nap() {
    let nanos = i64::from(NAP.subsec_nanos());
    let span = libc::timespec { tv_sec: 0, tv_nsec: nanos };
    // SAFETY: nanosleep(2) reads one timespec, a local variable, and writes nothing to a null pointer.
    unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const span, core::ptr::null_mut::<libc::timespec>())
    };
}

/// Adds the calling thread to those that call libfabric. Returns true for the second one of the process.
pub(super) fn register() -> bool {
    if TID.get() != 0 {
        return false;
    }
    // SAFETY: gettid(2) only returns the number of this thread, which TID keeps for the looks of others. It is a system
    // call here because glibc 2.28 has no function of that name.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
    TID.set(tid);
    // A thread that ends calls libfabric in destructors: then nothing removes it but the end of the process.
    let _ = REGISTRATION.try_with(|own| own.replace(Some(Registration(tid))));
    let mut callers = CALLERS.lock();
    callers.push(Caller { tid, waits: false, polled_at: None, seen: 0 });
    callers.len() > 1 && !SEVERAL.swap(true, Ordering::Relaxed)
}

/// Returns whether more than one thread has called libfabric.
#[inline]
pub(super) fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Begins the life of a thread that was created at the virtual time `created`.
pub(super) fn begin(created: Time) {
    LOCAL.set(created.0);
    let _ = COMPUTATION.try_with(|own| own.replace(Some(Computation)));
}

/// Returns the virtual time up to which the calling thread has computed: its last time and `computed` since then. A
/// thread that was created before virtual time began counts from the time of the process.
pub(super) fn computed_until(clock: &VirtualClock, computed: Span) -> Time {
    let (now, local) = (clock.now(), Time(LOCAL.get()));
    let ended = Time(ENDED_AT.load(Ordering::Relaxed));
    let since = if are_several() && local != Time::ZERO { local } else { now };
    (since + computed).max(now).max(ended)
}

/// Returns whether the calling thread was created in virtual time.
pub(super) fn was_created() -> bool {
    COMPUTATION.try_with(|computation| computation.borrow().is_some()).unwrap_or(true)
}

/// Adds a time that passes for the calling thread outside of the provider.
pub(super) fn charge(span: Span) {
    if LOCAL.get() != 0 {
        LOCAL.set(LOCAL.get() + span.0);
    }
}

/// Notes that the calling thread leaves the provider at `now`.
pub(super) fn leave(now: Time) {
    LOCAL.set(now.0);
}

/// Returns whether another thread that calls libfabric runs, so that the calling one, which has polled and found nothing,
/// must not advance the clock.
pub(super) fn others_run() -> bool {
    if !are_several() {
        return false;
    }
    if YIELDS.take() {
        // The thread polls without a yield between.
        nap();
    }
    let own = TID.get();
    let mut others = Doing::Polls;
    for caller in CALLERS.lock().iter_mut() {
        if caller.tid == own {
            caller.polled_at = Some(read_cpu_clock(libc::CLOCK_THREAD_CPUTIME_ID));
        } else {
            others = others.max(caller.doing());
        }
    }
    let run = match others {
        Doing::Polls => false,
        Doing::Runs => true,
        // It may be blocked by a lock that this thread holds, and releases between its polls.
        Doing::Sleeps => LOOKS.get() < QUIET_LOOKS,
    };
    LOOKS.set(if others == Doing::Sleeps { LOOKS.get() + 1 } else { 0 });
    YIELDS.set(run);
    run
}

/// Notes that the calling thread did something other than polling.
pub(super) fn note_activity() {
    if are_several() {
        let own = TID.get();
        if let Some(caller) = CALLERS.lock().iter_mut().find(|caller| caller.tid == own) {
            caller.polled_at = None;
        }
    }
}

/// Activity of a thread that calls libfabric, in the order of how much a polling thread must wait for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// The thread polls and finds nothing, or waits for the emulator.
    Polls,
    /// The thread sleeps in the kernel, perhaps for a lock that the polling thread holds.
    Sleeps,
    /// The thread computes, or waits for a processor.
    Runs,
}

impl Caller {
    fn doing(&mut self) -> Doing {
        let cpu = read_cpu_clock(clock_of(self.tid));
        let moved = core::mem::replace(&mut self.seen, cpu) != cpu;
        if self.waits || self.polled_at.is_some_and(|at| cpu.saturating_sub(at) < POLL_CPU) {
            Doing::Polls
        } else if moved || is_runnable(self.tid) {
            Doing::Runs
        } else {
            Doing::Sleeps
        }
    }
}

/// Returns whether the kernel would let a thread of this process run, or it waits for a disk.
fn is_runnable(tid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('R' | 'D'))
}

/// Lets other threads run, if the calling one found that they do: a nap in real time. Returns whether it did. A thread that
/// yields between polls naps there, where it holds no lock of the MPI library.
pub(super) fn let_others_run() -> bool {
    let yields = YIELDS.take();
    if yields {
        nap();
    }
    yields
}

/// Calls `wait`, which waits for the emulator, after the wait of another thread.
pub(super) fn wait_in_turn(wait: impl FnOnce()) {
    let _turn = are_several().then(|| WAITING.lock());
    wait();
}

/// Calls `wait`, which waits for the emulator, unless another thread waits for it. Returns `None` in that case, after a nap.
pub(super) fn wait_alone<T>(wait: impl FnOnce() -> T) -> Option<T> {
    if !are_several() {
        return Some(wait());
    }
    let Some(_alone) = WAITING.try_lock() else {
        nap();
        return None;
    };
    note_waiting(true);
    let result = wait();
    note_waiting(false);
    Some(result)
}

/// Notes whether the calling thread waits for the emulator.
fn note_waiting(waits: bool) {
    let own = TID.get();
    if let Some(caller) = CALLERS.lock().iter_mut().find(|caller| caller.tid == own) {
        caller.waits = waits;
    }
}
