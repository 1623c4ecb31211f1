//! The pulse: one thread of the process that answers peers while an application with manual progress
//! stays away.
//!
//! With manual progress nobody reads the socket while the application computes. Its peers would wait
//! for acknowledgements, send again, and in the end take it for dead. So every
//! FI_SQUALL_PULSE this thread looks whether the application made progress on an endpoint since it
//! looked last; if not, it does so once: receives, acknowledges, retransmits. It never completes
//! anything towards the application, which finds that at its own next call. While packets arrive it
//! looks more often.

use core::time::Duration;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::ep::Endpoint;
use crate::gate;
use crate::param::params;
use crate::progress;

/// The pause while packets arrive at an absent application.
const QUICK: Duration = Duration::from_millis(1);

struct State {
    endpoints: Vec<Weak<Endpoint>>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

static STATE: Mutex<State> = Mutex::new(State { endpoints: Vec::new(), thread: None, stop: false });
static WAKE: Condvar = Condvar::new();

/// The pause between looks, unless the pulse is off.
fn pause() -> Option<Duration> {
    let nanos = params().pulse?.0;
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

/// Looks after this endpoint, too.
pub(crate) fn attach(ep: &Arc<Endpoint>) {
    let Some(pause) = pause() else { return };
    if !gate::barrier_available() {
        log::info!(
            "membarrier(2) is not available: peers get no answer while the application makes no \
             progress for long"
        );
        return;
    }
    let mut state = STATE.lock();
    state.endpoints.push(Arc::downgrade(ep));
    if state.thread.is_none() {
        state.stop = false;
        let body = move || crate::boundary::value((), || run(pause));
        match progress::spawn("squall-pulse", body) {
            Ok(thread) => state.thread = Some(thread),
            Err(error) => log::warn!("no thread for the pulse: {error}"),
        }
    }
}

/// Leaves this endpoint alone; the last one takes the thread with it.
pub(crate) fn detach(ep: &Endpoint) {
    let mut state = STATE.lock();
    state.endpoints.retain(|e| e.as_ptr() != core::ptr::from_ref(ep) && e.strong_count() > 0);
    if !state.endpoints.is_empty() {
        return;
    }
    state.stop = true;
    WAKE.notify_all();
    let thread = state.thread.take();
    drop(state);
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        // A panic inside was logged by the boundary.
        let _ = thread.join();
    }
}

/// The process ends: tells the thread to stop, without waiting (it may be gone already).
pub(crate) fn stop() {
    if let Some(mut state) = STATE.try_lock() {
        state.stop = true;
        WAKE.notify_all();
    }
}

fn run(pause: Duration) {
    let mut next = pause;
    loop {
        let endpoints: Vec<Arc<Endpoint>> = {
            let mut state = STATE.lock();
            if !state.stop {
                WAKE.wait_for(&mut state, next);
            }
            if state.stop {
                return;
            }
            state.endpoints.iter().filter_map(Weak::upgrade).collect()
        };
        let mut moved = false;
        for ep in &endpoints {
            moved |= ep.pulse();
        }
        next = if moved { QUICK.min(pause) } else { (next * 2).min(pause) };
    }
}
