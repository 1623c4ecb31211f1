//! FI_WAIT_MUTEX_COND: a thread that sleeps in the application's place, and broadcasts the condition.
//!
//! The application holds the mutex from fi_trywait to pthread_cond_wait(3), as with any condition, and the thread takes
//! it to broadcast: so it broadcasts nothing between the two.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use squall_base::Time;

use super::Waiter;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::host::thread;

/// The time for which the thread waits for a mutex before it checks whether it must end.
const MUTEX_PATIENCE: i64 = 20_000_000;

/// State that the application and the notifying thread share.
struct Shared {
    waiter: Arc<Waiter>,
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condition: UnsafeCell<libc::pthread_cond_t>,
    /// The application sleeps on the condition, or is about to.
    watched: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: the mutex and the condition are used by pthread calls alone, which are made for several threads, and stay
// where they are (an `Arc`); all else is Sync by itself. Neither belongs to a thread while no thread holds the mutex.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it belongs to a thread but the mutex while it is held. When the last owner drops it, no thread
// uses the mutex, for the application has closed the object and the thread has ended.
unsafe impl Send for Shared {}

/// A mutex and a condition of the application, and the thread that broadcasts the condition.
pub(super) struct CondNotifier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CondNotifier {
    /// Starts the thread, which does nothing until [`Self::arm`].
    ///
    /// # Errors
    /// The system's error, if threads are short.
    pub(super) fn start(waiter: &Arc<Waiter>) -> Result<Self> {
        let shared = Arc::new(Shared {
            waiter: Arc::clone(waiter),
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            condition: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            watched: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let body = move || crate::abi::boundary::value((), || of_thread.run());
        let thread = thread::spawn("squall-notify", body).map_err(Errno::from)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the mutex and the condition with which the application waits.
    pub(super) fn mutex_cond(&self) -> ffi::fi_mutex_cond {
        ffi::fi_mutex_cond {
            mutex: self.shared.mutex.get().cast(),
            cond: self.shared.condition.get().cast(),
        }
    }

    /// Notes that the application is about to sleep: the thread broadcasts the next event, once.
    pub(super) fn arm(&self) {
        self.shared.watched.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for CondNotifier {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waiter.signal();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic inside was logged by the boundary.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn run(&self) {
        while !self.is_stopped() {
            if !self.watched.swap(false, Ordering::AcqRel) {
                std::thread::park();
                continue;
            }
            // The application prepared the sleep; an error of it is a reason to look as well.
            let _ = self.waiter.sleep(Time::NEVER);
            self.broadcast();
        }
    }

    /// Broadcasts the condition to the application, unless the object closes.
    fn broadcast(&self) {
        while !self.is_stopped() {
            // SAFETY: clock_gettime(2) writes one `timespec`, a local variable; the mutex was initialised, does not
            // move, and is not destroyed while this thread has the structure.
            let held = unsafe {
                let mut end: libc::timespec = core::mem::zeroed();
                libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut end);
                end.tv_nsec += MUTEX_PATIENCE;
                if end.tv_nsec >= 1_000_000_000 {
                    end.tv_nsec -= 1_000_000_000;
                    end.tv_sec += 1;
                }
                libc::pthread_mutex_timedlock(self.mutex.get(), &raw const end) == 0
            };
            if held {
                // SAFETY: both were initialised and do not move; this thread holds the mutex, and gives it back.
                unsafe {
                    libc::pthread_cond_broadcast(self.condition.get());
                    libc::pthread_mutex_unlock(self.mutex.get());
                }
                return;
            }
        }
    }
}
