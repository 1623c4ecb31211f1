//! Backoff of threads whose polls find nothing.
//!
//! A thread spins while the processor would be idle otherwise. While other threads want the processor, it yields: one
//! of those may be the peer that it polls for, or have something to send. If the others poll as well, the processor
//! comes back within microseconds. If it does not, another thread computes, and a thread that sleeps until something
//! arrives gets the processor sooner than one that waits for its turn: then it sleeps for up to 100 us instead of
//! yielding. A thread that polls between pieces of its work would lose time by sleeping, so it sleeps the less often, the
//! more of its sleeps end without an arrival. Of several threads that poll one queue one sleeps on the sockets; the rest
//! sleep until something is added to the queue.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::RawFd;

use parking_lot::Mutex;
use squall_base::{Span, Time};

use crate::clock;

/// Polls in a row that find nothing before a thread checks whether others want the processor, and yields.
const CHECK_AFTER: u32 = 64;
/// Polls in a row that find nothing before a thread yields or sleeps while others want the processor.
const YIELD_AFTER: u32 = 8;
/// If `sched_yield` took longer than this, the thread sleeps instead of yielding ...
const LONG_YIELD: Span = Span::micros(300);
/// ... for this long.
const SLEEP_PERIOD: Span = Span::millis(20);
/// Longest short sleep. It bounds the delay of what shows at no socket, because a polling thread may wait for more than
/// packets.
const SHORT_SLEEP: Span = Span::micros(100);
/// Polls in a row that find nothing before a thread sleeps, if most of its sleeps end without an arrival. They take about
/// as long as a sleep.
const SLEEP_AFTER_AT_MOST: u32 = 256;
/// Shortest time over which the processor's load is estimated from a thread that never sleeps.
const SAMPLE: Span = Span::millis(5);
/// The time for which an estimate is valid.
const VALID: Span = Span::millis(100);

/// Processor time of the calling thread, from getrusage(2).
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// The processor time that it used.
    ran: Span,
    /// The number of times that it went to sleep, and that the scheduler took the processor away.
    sleeps: i64,
    losses: i64,
}

impl Usage {
    const NONE: Self = Self { ran: Span::ZERO, sleeps: 0, losses: 0 };

    /// Returns the usage of the calling thread until now.
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

/// A thread's estimate of the contention for its processor.
#[derive(Clone, Copy, Debug)]
struct Contention {
    /// Begin of the current sample, and the thread's usage then.
    since: Time,
    before: Usage,
    /// Other threads are taken to want the processor until this time ...
    until: Time,
    /// ... and to compute, rather than poll, until this time.
    sleep_until: Time,
    /// Polls in a row that find nothing before the thread sleeps.
    sleep_after: u32,
}

thread_local! {
    static CONTENTION: Cell<Contention> = const { Cell::new(Contention::NONE) };
}

impl Contention {
    const NONE: Self = Self {
        since: Time::ZERO,
        before: Usage::NONE,
        until: Time::ZERO,
        sleep_until: Time::ZERO,
        sleep_after: YIELD_AFTER,
    };

    /// Notes that the thread yielded the processor at `from` and got it back at `now`.
    fn record_yield(&mut self, from: Time, now: Time) {
        if now.since(from) > LONG_YIELD {
            self.sleep_until = now + SLEEP_PERIOD;
        }
    }

    /// Notes that the thread slept, and whether something arrived meanwhile. If nothing did, the thread may have other
    /// work, for which it loses the time of its sleeps.
    fn record_sleep(&mut self, arrived: bool) {
        let next = if arrived { self.sleep_after / 2 } else { self.sleep_after * 2 };
        self.sleep_after = next.clamp(YIELD_AFTER, SLEEP_AFTER_AT_MOST);
    }

    /// Updates the estimate from the thread's usage until `now`. Other threads want its processor when it waited for it
    /// more than a quarter of the time without ever going to sleep. Shorter waits occur on any machine. Waits without a
    /// context switch come from a virtual machine that gets less than it shows.
    fn update(&mut self, now: Time, usage: Usage) {
        let elapsed = now.since(self.since);
        if usage.sleeps == self.before.sleeps && self.since > Time::ZERO {
            if elapsed < SAMPLE {
                return;
            }
            let waited = elapsed.0.saturating_sub(usage.ran.0.saturating_sub(self.before.ran.0));
            if waited > elapsed.0 / 4 && usage.losses > self.before.losses {
                self.until = now + VALID;
            }
        }
        (self.since, self.before) = (now, usage);
    }
}

/// Estimates whether other threads want the processor of the calling thread, which polls. Reads the thread's processor
/// time anew if the last reading is older than [`SAMPLE`].
#[inline]
pub(crate) fn check_contention(now: Time) -> bool {
    let mut contention = CONTENTION.get();
    if now.since(contention.since) >= SAMPLE {
        contention.update(now, Usage::now());
        CONTENTION.set(contention);
    }
    now < contention.until
}

/// Backoff of the threads that poll one queue or counter.
#[derive(Default)]
pub(crate) struct Backoff {
    /// Polls in a row that found nothing.
    idle: AtomicU32,
    /// Sockets that become readable when something arrives.
    sockets: Mutex<Vec<RawFd>>,
    /// A thread sleeps on the sockets.
    has_watcher: AtomicBool,
    /// Threads that sleep on a futex, and the number in it, which changes when they shall wake up.
    sleepers: AtomicU32,
    events: AtomicU32,
}

impl Backoff {
    /// Adds sockets at which arrivals show.
    pub(crate) fn add_sockets(&self, sockets: &[RawFd]) {
        self.sockets.lock().extend_from_slice(sockets);
    }

    /// Removes sockets that are about to be closed.
    pub(crate) fn remove_sockets(&self, sockets: &[RawFd]) {
        self.sockets.lock().retain(|fd| !sockets.contains(fd));
    }

    /// Wakes the threads that sleep because something was added. The caller has made it visible before: a thread looks
    /// for it once more before it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
        // SAFETY: futex(2) with FUTEX_WAKE touches no memory; the address is that of a field, and only names the
        // sleepers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.events.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            );
        }
    }

    /// Notes that a poll found something.
    #[inline]
    pub(crate) fn on_busy(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Notes that a poll found nothing, and may yield or sleep until `next`, when the endpoints have a timer.
    /// `is_empty` checks once more that there is nothing. The caller must hold no lock.
    #[inline]
    pub(crate) fn on_idle(
        &self,
        next: impl FnOnce() -> Option<Time>,
        is_empty: impl FnOnce() -> bool,
    ) {
        // Threads may overwrite each other's count; nothing depends on its exact value.
        let idle = self.idle.load(Ordering::Relaxed).wrapping_add(1);
        self.idle.store(idle, Ordering::Relaxed);
        if idle.is_multiple_of(YIELD_AFTER) {
            self.pause(idle, next, is_empty);
        }
    }

    fn pause(
        &self,
        idle: u32,
        next: impl FnOnce() -> Option<Time>,
        is_empty: impl FnOnce() -> bool,
    ) {
        let mut contention = CONTENTION.get();
        let check = idle.is_multiple_of(CHECK_AFTER);
        if !check && contention.until == Time::ZERO {
            return;
        }
        let now = clock::now();
        if check {
            contention.update(now, Usage::now());
        }
        let contended = now < contention.until;
        if !contended {
            contention.until = Time::ZERO;
        }
        CONTENTION.set(contention);
        if contended && now < contention.sleep_until {
            if !idle.is_multiple_of(contention.sleep_after) {
                return;
            }
            let longest = next().map_or(SHORT_SLEEP, |next| next.since(now)).min(SHORT_SLEEP);
            contention.record_sleep(self.short_sleep(longest, is_empty));
            CONTENTION.set(contention);
        } else if contended {
            std::thread::yield_now();
            contention.record_yield(now, clock::now());
            CONTENTION.set(contention);
        } else if check {
            std::thread::yield_now();
        }
    }

    /// Sleeps until something arrives or is added, or for `longest`. Returns whether something was there.
    fn short_sleep(&self, longest: Span, is_empty: impl FnOnce() -> bool) -> bool {
        debug_assert!(longest < Span::secs(1));
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::c_long::try_from(longest.0).unwrap_or_default(),
        };
        if !self.has_watcher.swap(true, Ordering::Acquire) {
            if !is_empty() {
                self.has_watcher.store(false, Ordering::Release);
                return true;
            }
            let mut polled: Vec<libc::pollfd> = self
                .sockets
                .lock()
                .iter()
                .map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 })
                .collect();
            // SAFETY: ppoll(2) reads `time` and as many structures as the length says, and writes to those: a local
            // variable and a vector of this length. A descriptor that was closed meanwhile is reported, and one that
            // was opened again for another file at most ends the sleep.
            let ready = unsafe {
                libc::ppoll(
                    polled.as_mut_ptr(),
                    polled.len() as libc::nfds_t,
                    &raw const time,
                    core::ptr::null(),
                )
            };
            self.has_watcher.store(false, Ordering::Release);
            return ready > 0;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let events = self.events.load(Ordering::SeqCst);
        if is_empty() {
            // SAFETY: futex(2) with FUTEX_WAIT reads the number at the address, that of a field, and `time`, a local
            // variable.
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
        self.events.load(Ordering::SeqCst) != events
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
        let mut contention = Contention::NONE;
        contention.update(at(0), usage(0, 3, 1));
        // Others ran for a tenth of the time: that happens everywhere.
        contention.update(at(4_000), usage(3_600, 3, 5));
        contention.update(at(6_000), usage(5_400, 3, 9));
        assert_eq!(contention.until, Time::ZERO);
        // It slept by itself.
        contention.update(at(12_000), usage(5_500, 4, 9));
        assert_eq!(contention.until, Time::ZERO);
        // No other process took the processor away: the machine is slow.
        contention.update(at(18_000), usage(8_000, 4, 9));
        assert_eq!(contention.until, Time::ZERO);
        contention.update(at(24_000), usage(11_000, 4, 11));
        assert_eq!(contention.until, at(24_000) + VALID);
        CONTENTION.set(contention);
        assert!(check_contention(at(24_000)), "the sample is new");
        CONTENTION.set(Contention { until: at(24_000), ..contention });
        assert!(!check_contention(at(24_000)));
    }

    #[test]
    fn a_long_yield_makes_the_thread_sleep_for_a_while() {
        let at = |us: u64| Time::ZERO + Span::micros(us);
        let mut contention = Contention::NONE;
        contention.record_yield(at(1000), at(1020));
        assert!(contention.sleep_until <= at(1020), "others polled");
        contention.record_yield(at(2000), at(2900));
        assert!(contention.sleep_until > at(2900), "another thread computes");
        assert!(contention.sleep_until < at(2900) + VALID, "and may have ended");
    }

    #[test]
    fn a_thread_sleeps_less_often_if_nothing_arrives() {
        let mut contention = Contention::NONE;
        let mut sleep = |arrived, times| {
            (0..times).for_each(|_| contention.record_sleep(arrived));
            contention.sleep_after
        };
        assert_eq!(sleep(true, 1), YIELD_AFTER);
        assert_eq!(sleep(false, 3), 8 * YIELD_AFTER);
        assert_eq!(sleep(false, 99), SLEEP_AFTER_AT_MOST);
        assert_eq!(sleep(true, 2), SLEEP_AFTER_AT_MOST / 4);
        assert!(SLEEP_AFTER_AT_MOST.is_multiple_of(YIELD_AFTER) && YIELD_AFTER.is_power_of_two());
    }

    #[test]
    fn one_sleeps_on_the_sockets_and_the_others_until_something_is_added() {
        let (near, far) = UnixDatagram::pair().expect("two sockets");
        let backoff = Arc::new(Backoff::default());
        backoff.add_sockets(&[near.as_raw_fd()]);
        let sleep = || {
            let backoff = Arc::clone(&backoff);
            std::thread::spawn(move || backoff.short_sleep(LONG, || true))
        };
        let begin = clock::now();
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                assert!(clock::now().since(begin) < LONG / 2, "too slow to tell");
                std::thread::yield_now();
            }
        };
        let watcher = sleep();
        until(&|| backoff.has_watcher.load(Ordering::SeqCst));
        let sleepers = [sleep(), sleep()];
        until(&|| backoff.sleepers.load(Ordering::SeqCst) == 2);
        far.send(b"x").expect("a packet");
        assert!(watcher.join().expect("no panic"), "an arrival");
        assert_eq!(backoff.sleepers.load(Ordering::SeqCst), 2, "an arrival wakes the one");
        // A thread that counted itself may not sleep yet; then it sees that the number has changed.
        backoff.wake();
        sleepers.into_iter().for_each(|thread| assert!(thread.join().expect("no panic")));
        assert!(clock::now().since(begin) < LONG, "nobody slept to the end");
    }

    #[test]
    fn nobody_sleeps_when_something_is_there() {
        let backoff = Backoff::default();
        let begin = clock::now();
        assert!(backoff.short_sleep(LONG, || false));
        backoff.has_watcher.store(true, Ordering::Relaxed);
        backoff.short_sleep(LONG, || false);
        assert!(clock::now().since(begin) < LONG);
    }
}
