//! Background progress: a thread that drives endpoints under manual progress while their application computes.
//!
//! Manual progress leaves protocol work to the application's calls. But a peer cannot distinguish a
//! process that computes for a minute from one that died: its sends would run into the deadline, and the last
//! acknowledgement before a long computation would leave it waiting. So an endpoint whose application made no
//! progress for FI_SQUALL_ATTEND gets a turn from this thread, and as many more as packets come. It
//! receives, acknowledges and retransmits; completions wait in the engine for the application's next
//! call. The application pays nothing for it on its own path (`endpoint_lock.rs`).

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use squall_base::Span;

use crate::host::param::params;
use crate::host::thread;
use crate::objects::PerProcess;
use crate::waiting::open_endpoints::OpenEndpoint;

/// Number of turns in a row for one endpoint before the next endpoint gets its turns.
const TURNS: u32 = 64;

#[derive(Default)]
struct State {
    endpoints: Vec<Weak<dyn OpenEndpoint>>,
    thread: Option<JoinHandle<()>>,
}

/// Standard locks, because the thread sleeps on them: parking_lot keeps its sleepers in a table of the
/// process, and in a forked child that table names a thread which is not there.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

static SHARED: PerProcess<Shared> = PerProcess::new();

/// Returns the longest time for which an endpoint may make no progress; `None` without background progress.
fn interval() -> Option<Span> {
    params().attend.filter(|span| *span > Span::ZERO)
}

/// Returns whether there is background progress for endpoints under manual progress.
pub(crate) fn is_available() -> bool {
    interval().is_some()
}

/// Starts background progress for an endpoint that was enabled.
pub(crate) fn attach(ep: Weak<dyn OpenEndpoint>) {
    // In virtual time the application's calls do what would have been due meanwhile.
    if params().is_virtual() {
        return;
    }
    let Some(interval) = interval() else { return };
    let shared = SHARED.get();
    let mut state = shared.lock();
    state.endpoints.push(ep);
    if state.thread.is_none() {
        shared.stop.store(false, Ordering::Release);
        let body = move || crate::abi::boundary::value((), || shared.run(interval));
        match thread::spawn("squall-attend", body) {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => log::warn!(
                "cannot start the background progress thread: {error}; endpoints make progress only in calls of the application"
            ),
        }
    }
    shared.changed.notify_one();
}

/// Ends background progress for an endpoint, which closes.
pub(crate) fn detach(ep: &dyn OpenEndpoint) {
    SHARED.get().lock().endpoints.retain(|other| !core::ptr::addr_eq(other.as_ptr(), ep));
}

/// Stops the thread and waits for it, because the process ends. If libfabric unloads this library late, the thread may
/// have ended already.
pub(crate) fn stop() {
    let shared = SHARED.get();
    let thread = {
        let mut state = shared.lock();
        shared.stop.store(true, Ordering::Release);
        shared.changed.notify_one();
        state.endpoints.clear();
        state.thread.take()
    };
    if let Some(thread) = thread {
        // It sleeps, or is in the middle of a turn; a panic inside was logged.
        let _ = thread.join();
    }
}

impl Shared {
    /// Locks the state, which is valid at every step, so that a poisoned lock is taken as well.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, interval: Span) {
        let mut endpoints = Vec::new();
        loop {
            {
                endpoints.clear();
                let mut state = self.lock();
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                if state.endpoints.is_empty() {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                } else {
                    let pause = Duration::from_nanos(interval.0);
                    let woken = self.changed.wait_timeout(state, pause);
                    state = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
                endpoints.extend(state.endpoints.iter().filter_map(Weak::upgrade));
            }
            // An endpoint is stalled when its application made no progress since the last round, until it does.
            let mut stalled: Vec<&Arc<dyn OpenEndpoint>> =
                endpoints.iter().filter(|ep| ep.check_stalled()).collect();
            while !stalled.is_empty() && !self.stop.load(Ordering::Acquire) {
                stalled.retain(|ep| (0..TURNS).all(|_| ep.progress_in_background()));
            }
        }
    }
}
