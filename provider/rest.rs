//! What a thread does that polls in vain.
//!
//! It spins while the processor would be idle otherwise. While others want the processor, it offers it to them: one of those
//! others may be the peer that is polled for, or a thread with something to send. Where they poll as well it comes
//! back within microseconds. Where it does not, somebody computes, and whoever sleeps until something arrives is served sooner
//! than whoever waits for a turn: then it sleeps for moments. Of several threads that poll one queue one sleeps on the
//! sockets; the rest sleep until something is added to the queue.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::RawFd;

use parking_lot::Mutex;
use squall_base::{Span, Time};

use crate::clock;

/// Polls in a row that find nothing before a thread looks whether others want the processor, and offers it.
const LOOK_AFTER: u32 = 64;
/// Polls in a row that find nothing before it offers the processor, or sleeps, while they do.
const REST_AFTER: u32 = 8;
/// Who was away for longer than this when it offered the processor sleeps instead ...
const LONG_AWAY: Span = Span::micros(300);
/// ... for so long.
const SLEEPY: Span = Span::millis(20);
/// Longest sleep: whoever polls may wait for more than packets.
const NAP: Span = Span::micros(100);
/// How long a thread that never sleeps is watched before it is judged by it.
const WATCHED: Span = Span::millis(5);
/// How long a judgement counts.
const VALID: Span = Span::millis(100);

/// What the system says of the time of the calling thread.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// How long it ran.
    ran: Span,
    /// How often it went to sleep, and how often the scheduler took the processor away.
    sleeps: i64,
    losses: i64,
}

impl Usage {
    const NONE: Self = Self { ran: Span::ZERO, sleeps: 0, losses: 0 };

    /// Of the calling thread, until now.
    fn now() -> Self {
        // SAFETY: a `rusage` is a structure of integers, for which zero is a value, and getrusage(2) writes one, into
        // a local variable.
        let usage = unsafe {
            let mut usage: libc::rusage = core::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        let span = |time: libc::timeval| {
            let micros = time.tv_sec * 1_000_000 + time.tv_usec;
            Span::micros(u64::try_from(micros).unwrap_or(0))
        };
        let ran = Span(span(usage.ru_utime).0 + span(usage.ru_stime).0);
        Self { ran, sleeps: usage.ru_nvcsw, losses: usage.ru_nivcsw }
    }
}

/// What one thread knows of who else wants its processor.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    /// When the thread is watched from, and what it had used then.
    since: Time,
    before: Usage,
    /// Until then others are believed to want it ...
    until: Time,
    /// ... and until then to compute.
    sleepy_until: Time,
}

thread_local! {
    static CROWD: Cell<Crowd> = const { Cell::new(Crowd::NONE) };
}

impl Crowd {
    const NONE: Self = Self {
        since: Time::ZERO,
        before: Usage::NONE,
        until: Time::ZERO,
        sleepy_until: Time::ZERO,
    };

    /// The processor was offered to others at `from` and is back at `now`.
    fn came_back(&mut self, from: Time, now: Time) {
        if now.since(from) > LONG_AWAY {
            self.sleepy_until = now + SLEEPY;
        }
    }

    /// Looks at what the thread has used until `now`. Others want its processor when it waited for it more than a
    /// quarter of the time, without ever going to sleep. That somebody else runs for a moment, as happens everywhere, says
    /// nothing; nor does a host that gives this machine less than it shows.
    fn look(&mut self, now: Time, usage: Usage) {
        let watched = now.since(self.since);
        if usage.sleeps == self.before.sleeps && self.since > Time::ZERO {
            if watched < WATCHED {
                return;
            }
            let waited = watched.0.saturating_sub(usage.ran.0.saturating_sub(self.before.ran.0));
            if waited > watched.0 / 4 && usage.losses > self.before.losses {
                self.until = now + VALID;
            }
        }
        (self.since, self.before) = (now, usage);
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
        if idle.is_multiple_of(REST_AFTER) {
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
            crowd.look(now, Usage::now());
        }
        let crowded = now < crowd.until;
        if !crowded {
            crowd.until = Time::ZERO;
        }
        CROWD.set(crowd);
        if crowded && now < crowd.sleepy_until {
            self.nap(next().map_or(NAP, |next| next.since(now)).min(NAP), is_empty);
        } else if crowded {
            std::thread::yield_now();
            crowd.came_back(now, clock::now());
            CROWD.set(crowd);
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
    fn others_want_the_processor_when_a_thread_waits_for_it_long() {
        let at = |us: u64| Time::ZERO + Span::millis(1000) + Span::micros(us);
        let usage = |ran, sleeps, losses| Usage { ran: Span::micros(ran), sleeps, losses };
        let mut crowd = Crowd::NONE;
        crowd.look(at(0), usage(0, 3, 1));
        // Others ran for a tenth of the time: that happens everywhere.
        crowd.look(at(4_000), usage(3_600, 3, 5));
        crowd.look(at(6_000), usage(5_400, 3, 9));
        assert_eq!(crowd.until, Time::ZERO);
        // It slept by itself.
        crowd.look(at(12_000), usage(5_500, 4, 9));
        assert_eq!(crowd.until, Time::ZERO);
        // Nobody took the processor away: the machine is slow.
        crowd.look(at(18_000), usage(8_000, 4, 9));
        assert_eq!(crowd.until, Time::ZERO);
        crowd.look(at(24_000), usage(11_000, 4, 11));
        assert_eq!(crowd.until, at(24_000) + VALID);
    }

    #[test]
    fn who_does_not_get_the_processor_back_soon_sleeps_for_a_while() {
        let at = |us: u64| Time::ZERO + Span::micros(us);
        let mut crowd = Crowd::NONE;
        crowd.came_back(at(1000), at(1020));
        assert!(crowd.sleepy_until <= at(1020), "others polled");
        crowd.came_back(at(2000), at(2900));
        assert!(crowd.sleepy_until > at(2900), "somebody computes");
        assert!(crowd.sleepy_until < at(2900) + VALID, "and may have ended");
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
