//! Automatic progress: one named thread per domain that serves its endpoints, polling briefly after
//! the last thing that happened, then asleep on their sockets.
//!
//! While the application polls by itself, the thread leaves it to that and only looks now and then whether it still
//! does: two threads that serve one endpoint wait for each other, and take each other's processor.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use squall_base::{Span, Time};

use crate::abi::errno::{Errno, Result};
use crate::clock;
use crate::host::param::params;
use crate::host::thread;
use crate::objects::PerProcess;
use crate::waiting::open_endpoints::{OpenEndpoint, prepare_sleep};
use crate::waiting::{SPIN, Waiter};

/// Time for which the progress thread leaves alone the endpoints whose application makes progress by itself.
const CHECK_EVERY: Duration = Duration::from_micros(200);

/// Time for which the end of a process waits for all progress threads.
const PATIENCE: Span = Span::secs(1);

/// State that the progress thread and the domain share.
struct Shared {
    waiter: Waiter,
    endpoints: Mutex<Vec<Arc<dyn OpenEndpoint>>>,
    stop: AtomicBool,
    /// The progress thread leaves all progress to the application at the moment.
    away: AtomicBool,
    /// Handle of the progress thread, until a caller waits for its end.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The progress thread of a domain with automatic progress.
pub(crate) struct Progress {
    shared: Arc<Shared>,
}

/// Number that the next progress thread gets in its name.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The progress threads that run, which `cleanup` must end.
static RUNNING: PerProcess<Mutex<Vec<Arc<Shared>>>> = PerProcess::new();

impl Progress {
    /// Starts the progress thread of a domain.
    ///
    /// # Errors
    /// The system's error, if threads or descriptors are short.
    pub(crate) fn start() -> Result<Self> {
        let shared = Arc::new(Shared {
            waiter: Waiter::new()?,
            endpoints: Mutex::default(),
            stop: AtomicBool::new(false),
            away: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let name = format!("squall-prog-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(&name, move || {
            crate::abi::boundary::value((), || {
                if let Some(cpu) = params().progress_cpu {
                    pin(cpu);
                }
                of_thread.run();
            });
        })
        .map_err(Errno::from)?;
        *shared.thread.lock() = Some(thread);
        RUNNING.get().lock().push(Arc::clone(&shared));
        Ok(Self { shared })
    }

    /// Adds an endpoint to those on which the thread makes progress.
    pub(crate) fn attach(&self, ep: Arc<dyn OpenEndpoint>, sockets: &[i32]) -> Result<()> {
        for fd in sockets {
            self.shared.waiter.add(*fd)?;
        }
        self.shared.endpoints.lock().push(ep);
        self.shared.waiter.signal();
        Ok(())
    }

    /// Removes this endpoint, which has these sockets, from the thread's work. If a child of fork holds the sockets,
    /// closing them does not remove them from the epoll set: the thread would find packets there that no endpoint
    /// reads, and never sleep.
    pub(crate) fn detach(&self, ep: &dyn OpenEndpoint, sockets: &[i32]) {
        for fd in sockets {
            self.shared.waiter.remove(*fd);
        }
        self.shared.endpoints.lock().retain(|e| !core::ptr::addr_eq(Arc::as_ptr(e), ep));
    }

    /// Wakes the sleeping progress thread for a timer that expires before the end of its sleep.
    pub(crate) fn wake_for_timer(&self) {
        self.shared.waiter.signal();
    }

    /// Wakes the progress thread for work that no socket shows.
    pub(crate) fn wake(&self) {
        self.take_over();
        self.shared.waiter.signal();
    }

    /// Makes the progress thread serve the endpoints at once, because the application stops polling.
    pub(crate) fn take_over(&self) {
        if self.shared.away.swap(false, Ordering::SeqCst)
            && let Some(thread) = &*self.shared.thread.lock()
        {
            thread.thread().unpark();
        }
    }

    /// Ends the progress thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.shared.request_stop();
        let thread = self.shared.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic inside was logged by the boundary.
            let _ = thread.join();
        }
        RUNNING.get().lock().retain(|other| !Arc::ptr_eq(other, &self.shared));
    }
}

/// Stops every thread, because libfabric ends. It waits for them for a limited time: a process that ends in the middle
/// of a call keeps locks that a thread may be waiting for.
pub(crate) fn stop_all() {
    let stopped: Vec<_> = RUNNING.get().lock().drain(..).collect();
    stopped.iter().for_each(|shared| shared.request_stop());
    let begun = clock::now();
    for shared in stopped {
        let Some(thread) = shared.thread.lock().take() else { continue };
        while !thread.is_finished() && clock::now().since(begun) < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // A panic inside was logged by the boundary.
            let _ = thread.join();
        }
    }
}

/// Binds the calling thread to a processor, whose number the parameter's syntax check has accepted.
fn pin(cpu: usize) {
    // SAFETY: a `cpu_set_t` is an array of integers, for which zero is a value: the empty set. CPU_SET
    // indexes it as a Rust array, with the bound checked, and sched_setaffinity(2) reads as many bytes as
    // it has.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if rc != 0 {
        log::warn!(
            "FI_SQUALL_PROGRESS_CPU={cpu}: {}; the progress thread runs where the system puts it",
            std::io::Error::last_os_error()
        );
    }
}

impl Shared {
    /// Asks the progress thread to end.
    fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waiter.signal();
    }

    fn run(&self) {
        let mut last_busy = clock::now();
        while !self.stop.load(Ordering::Acquire) {
            let endpoints = self.endpoints.lock().clone();
            let mut busy = false;
            let mut left = false;
            for ep in &endpoints {
                if ep.check_stalled() {
                    left = true;
                    busy |= ep.try_progress();
                }
            }
            if !left && !endpoints.is_empty() {
                self.wait_while_application_polls();
                continue;
            }
            let now = clock::now();
            if busy {
                last_busy = now;
            } else if now.since(last_busy) < SPIN {
                core::hint::spin_loop();
            } else {
                self.sleep();
                last_busy = clock::now();
            }
        }
    }

    /// Waits as long as the application makes progress on every endpoint by itself.
    fn wait_while_application_polls(&self) {
        self.away.store(true, Ordering::SeqCst);
        std::thread::park_timeout(CHECK_EVERY);
        self.away.store(false, Ordering::SeqCst);
    }

    /// Sleeps until a packet arrives, a timer expires or the thread is woken.
    fn sleep(&self) {
        // Only this thread sleeps here. It handles the reasons for a signal afterwards: a new endpoint, or work that is
        // due.
        self.waiter.take();
        let endpoints = self.endpoints.lock().clone();
        let busy = endpoints.iter().fold(false, |busy, endpoint| busy | endpoint.try_progress());
        if !busy {
            self.sleep_on(&endpoints);
        }
    }

    fn sleep_on(&self, endpoints: &[Arc<dyn OpenEndpoint>]) {
        // A call that sets an earlier timer from now on wakes this thread.
        let next = endpoints.iter().filter_map(|e| e.next_timeout_of_sleeper()).min();
        self.waiter.arm(next);
        let (sleeping, quiet) = prepare_sleep(endpoints, false);
        if quiet && !self.stop.load(Ordering::Acquire) {
            // Interrupted by a signal: one more turn does no harm.
            let _ = self.waiter.sleep(Time::NEVER);
        }
        sleeping.iter().for_each(|e| e.end_sleep_of_progress_thread());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last that fits into a set, which hardly a machine has: it is said, and the thread goes on.
    #[test]
    fn a_processor_that_is_not_there_does_not_end_the_thread() {
        std::thread::spawn(|| pin(1023)).join().expect("no panic");
    }
}
