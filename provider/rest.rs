//! What a thread does that polls in vain.
//!
//! It spins while the processor would be idle otherwise. While others want the processor, it sleeps for moments until a
//! packet arrives: one of those others may be the peer that is polled for, or a thread with something to send. Of several
//! threads that poll one queue one sleeps on the sockets; the rest sleep until something is added to the queue.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::RawFd;

use parking_lot::Mutex;
use squall_base::{Span, Time};

use crate::clock;

/// Polls in a row that find nothing before a thread looks whether others want the processor, and offers it.
const LOOK_AFTER: u32 = 64;
/// Polls in a row that find nothing before it sleeps while they do.
const SLEEP_AFTER: u32 = 8;
/// Longest sleep: whoever polls may wait for more than packets.
const NAP: Span = Span::micros(100);
/// Two times that the scheduler took the processor away within this time are a sign that others want it.
const CLOSE: Span = Span::millis(20);
/// How long such a sign counts.
const VALID: Span = Span::millis(100);

/// What one thread knows of who else wants its processor.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    /// How often the scheduler took the processor away.
    losses: i64,
    /// When that was last noticed.
    lost_at: Time,
    /// Until then others are believed to want it.
    until: Time,
}

thread_local! {
    static CROWD: Cell<Crowd> = const { Cell::new(Crowd::NONE) };
}

impl Crowd {
    const NONE: Self = Self { losses: 0, lost_at: Time::ZERO, until: Time::ZERO };

    /// At `now` the scheduler has taken the processor away `losses` times.
    fn look(&mut self, now: Time, losses: i64) {
        if losses <= self.losses {
            return;
        }
        if losses > self.losses + 1 || now.since(self.lost_at) < CLOSE {
            self.until = now + VALID;
        }
        (self.losses, self.lost_at) = (losses, now);
    }
}

/// How often the scheduler took the processor away from the calling thread.
fn losses() -> i64 {
    // SAFETY: a `rusage` is a structure of integers, for which zero is a value, and getrusage(2) writes one, into a
    // local variable.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw
    }
}

/// How polling one queue or counter goes.
#[derive(Default)]
pub(crate) struct Rest {
    /// Polls in a row that found nothing.
    idle: AtomicU32,
    /// What arrivals show at.
    sockets: Mutex<Vec<RawFd>>,
    /// Somebody sleeps on them.
    watched: AtomicBool,
    /// Threads that sleep otherwise, and a number that changes when they shall wake up.
    sleepers: AtomicU32,
    events: AtomicU32,
}

impl Rest {
    /// Arrivals for it show at these sockets, too.
    pub(crate) fn watch(&self, sockets: &[RawFd]) {
        self.sockets.lock().extend_from_slice(sockets);
    }

    /// These are about to be closed.
    pub(crate) fn forget(&self, sockets: &[RawFd]) {
        self.sockets.lock().retain(|fd| !sockets.contains(fd));
    }

    /// Something was added. After that has become visible: who goes to sleep looks for it once more.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
        // SAFETY: futex(2) with FUTEX_WAKE touches no memory; the address is that of a field, and only names the sleepers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.events.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            );
        }
    }

    /// A poll found something.
    #[inline]
    pub(crate) fn on_busy(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// A poll found nothing. The next is needed at `next` even if nothing happens; `is_empty` says whether still nothing is there. Not
    /// to be called with anything locked.
    #[inline]
    pub(crate) fn on_idle(
        &self,
        next: impl FnOnce() -> Option<Time>,
        is_empty: impl FnOnce() -> bool,
    ) {
        // Threads may overwrite each other's count; it is none that anything depends on.
        let idle = self.idle.load(Ordering::Relaxed).wrapping_add(1);
        self.idle.store(idle, Ordering::Relaxed);
        if idle.is_multiple_of(SLEEP_AFTER) {
            self.pause(idle, next, is_empty);
        }
    }

    fn pause(
        &self,
        idle: u32,
        next: impl FnOnce() -> Option<Time>,
        is_empty: impl FnOnce() -> bool,
    ) {
        let mut crowd = CROWD.get();
        let look = idle.is_multiple_of(LOOK_AFTER);
        if !look && crowd.until == Time::ZERO {
            return;
        }
        let now = clock::now();
        if look {
            crowd.look(now, losses());
        }
        let crowded = now < crowd.until;
        if !crowded {
            crowd.until = Time::ZERO;
        }
        CROWD.set(crowd);
        if crowded {
            self.nap(next().map_or(NAP, |next| next.since(now)).min(NAP), is_empty);
        } else if look {
            std::thread::yield_now();
        }
    }

    /// Sleeps until something arrives or is added, but `most` at most.
    fn nap(&self, most: Span, is_empty: impl FnOnce() -> bool) {
        debug_assert!(most < Span::secs(1));
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::c_long::try_from(most.0).unwrap_or_default(),
        };
        if !self.watched.swap(true, Ordering::Acquire) {
            if !is_empty() {
                self.watched.store(false, Ordering::Release);
                return;
            }
            let mut polled: Vec<libc::pollfd> = self
                .sockets
                .lock()
                .iter()
                .map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 })
                .collect();
            // SAFETY: ppoll(2) reads `time` and as many structures as it is told of, and writes to those: a local variable and a
            // vector of this length. A descriptor that was closed meanwhile is reported, and one that is somebody else's by now
            // at most ends the sleep.
            unsafe {
                libc::ppoll(
                    polled.as_mut_ptr(),
                    polled.len() as libc::nfds_t,
                    &raw const time,
                    core::ptr::null(),
                );
            }
            self.watched.store(false, Ordering::Release);
            return;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let events = self.events.load(Ordering::SeqCst);
        if is_empty() {
            // SAFETY: futex(2) with FUTEX_WAIT reads the number at the address, that of a field, and `time`, a local variable.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.events.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    events,
                    &raw const time,
                );
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Arc;

    /// Longer than any machine takes to wake a thread up, and shorter than a second.
    const LONG: Span = Span::millis(900);

    #[test]
    fn others_want_the_processor_when_it_was_taken_twice_in_a_short_time() {
        let at = |ms: u64| Time::ZERO + Span::millis(1000 + ms);
        let mut crowd = Crowd::NONE;
        crowd.look(at(0), 1);
        crowd.look(at(19), 1);
        crowd.look(at(20), 2);
        assert_eq!(crowd.until, Time::ZERO, "now and then somebody else runs everywhere");
        crowd.look(at(39), 3);
        assert_eq!(crowd.until, at(39) + VALID);
        // Twice since the last look.
        crowd.look(at(500), 5);
        assert_eq!(crowd.until, at(500) + VALID);
    }

    #[test]
    fn one_sleeps_on_the_sockets_and_the_others_until_something_is_added() {
        let (near, far) = UnixDatagram::pair().expect("two sockets");
        let rest = Arc::new(Rest::default());
        rest.watch(&[near.as_raw_fd()]);
        let sleep = || {
            let rest = Arc::clone(&rest);
            std::thread::spawn(move || rest.nap(LONG, || true))
        };
        let begin = clock::now();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                assert!(clock::now().since(begin) < LONG / 2, "too slow to tell");
                std::thread::yield_now();
            }
        };
        let watcher = sleep();
        until(&|| rest.watched.load(Ordering::SeqCst));
        let sleepers = [sleep(), sleep()];
        until(&|| rest.sleepers.load(Ordering::SeqCst) == 2);
        far.send(b"x").expect("a packet");
        watcher.join().expect("no panic");
        assert_eq!(rest.sleepers.load(Ordering::SeqCst), 2, "an arrival wakes the one");
        // Who counted itself may not sleep yet; then the number tells it.
        rest.wake();
        sleepers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(clock::now().since(begin) < LONG, "nobody slept to the end");
    }

    #[test]
    fn nobody_sleeps_when_something_is_there() {
        let rest = Rest::default();
        let begin = clock::now();
        rest.nap(LONG, || false);
        rest.watched.store(true, Ordering::Relaxed);
        rest.nap(LONG, || false);
        assert!(clock::now().since(begin) < LONG);
    }
}
