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
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use squall_base::{Span, Time};
use squall_net::emulator::virtual_time::VirtualClock;

use super::{clock_of, read_cpu_clock};

/// Real time for which a thread that polls lets the others run.
const NAP: Duration = Duration::from_micros(50);

/// A thread that calls libfabric.
struct Caller {
    /// Number of the thread in the kernel.
    tid: libc::pid_t,
    /// The thread waits for the emulator, so it sends nothing.
    waits: AtomicBool,
    /// CPU time of the thread, in nanoseconds, when another thread last looked.
    seen: AtomicU64,
}

/// All threads that have called libfabric and live.
static CALLERS: Mutex<Vec<Arc<Caller>>> = Mutex::new(Vec::new());
/// More than one thread has called libfabric.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The thread that waits for the emulator holds this lock. There is one at a time, because the answer to the wait of a
/// second one could come after the first has gone on.
static WAITING: Mutex<()> = Mutex::new(());
/// The latest virtual time up to which a thread that has ended had computed.
static ENDED_AT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The registration of the calling thread, which ends with the thread.
    static OWN: RefCell<Option<Registration>> = const { RefCell::new(None) };
    /// The virtual time of the thread in nanoseconds when it last left the provider, or was created; zero if unknown.
    static LOCAL: Cell<u64> = const { Cell::new(0) };
    /// The thread found that others run, and is to let them.
    static YIELDS: Cell<bool> = const { Cell::new(false) };
    /// Ends the thread's computation when the thread ends.
    static COMPUTATION: RefCell<Option<Computation>> = const { RefCell::new(None) };
}

/// The place of a thread among the callers. Dropping it removes the thread.
struct Registration(Arc<Caller>);

impl Drop for Registration {
    fn drop(&mut self) {
        CALLERS.lock().retain(|caller| !Arc::ptr_eq(caller, &self.0));
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

/// Adds the calling thread to those that call libfabric. Returns true for the second one of the process.
pub(super) fn register() -> bool {
    OWN.with_borrow_mut(|own| {
        if own.is_some() {
            return false;
        }
        // SAFETY: gettid(2) takes nothing and does not fail.
        let tid = unsafe { libc::gettid() };
        let (waits, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let caller = Arc::new(Caller { tid, waits, seen });
        let mut callers = CALLERS.lock();
        callers.push(Arc::clone(&caller));
        *own = Some(Registration(caller));
        callers.len() > 1 && !SEVERAL.swap(true, Ordering::Relaxed)
    })
}

/// Returns whether more than one thread has called libfabric.
#[inline]
pub(super) fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// Begins the life of a thread that was created at the virtual time `created`.
pub(super) fn begin(created: Time) {
    LOCAL.set(created.0);
    COMPUTATION.set(Some(Computation));
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

/// Returns whether another thread that calls libfabric runs or has run since the last call of this function: it uses
/// CPU time, or the kernel would let it. The calling thread then must not advance the clock.
pub(super) fn others_run() -> bool {
    if !are_several() {
        return false;
    }
    let own = OWN.with_borrow(|own| own.as_ref().map(|own| Arc::clone(&own.0)));
    let callers = CALLERS.lock();
    let others =
        callers.iter().filter(|caller| own.as_ref().is_none_or(|own| !Arc::ptr_eq(own, caller)));
    // Every thread is looked at, so that the next look finds its CPU time.
    let run = others.filter(|caller| caller.runs()).count() > 0;
    YIELDS.set(run);
    run
}

impl Caller {
    fn runs(&self) -> bool {
        let cpu = read_cpu_clock(clock_of(self.tid));
        let moved = self.seen.swap(cpu, Ordering::Relaxed) != cpu;
        !self.waits.load(Ordering::Relaxed) && (moved || is_runnable(self.tid))
    }
}

/// Returns whether the kernel would let a thread of this process run, or it waits for a disk.
fn is_runnable(tid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    matches!(state, Some('R' | 'D'))
}

/// Lets other threads run, if the calling one found that they do. It naps in real time, and outside of locks of the MPI
/// library if that yields without them.
pub(super) fn let_others_run() -> bool {
    let yields = YIELDS.take();
    if yields {
        std::thread::sleep(NAP);
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
        std::thread::sleep(NAP);
        return None;
    };
    let set = |waits| {
        OWN.with_borrow(|own| {
            if let Some(own) = own {
                own.0.waits.store(waits, Ordering::Relaxed);
            }
        });
    };
    set(true);
    let result = wait();
    set(false);
    Some(result)
}
