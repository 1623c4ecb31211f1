//! Backoff of threads whose polls find nothing.
//!
//! A thread spins while the processor would be idle otherwise. While other threads want the processor, it yields: one
//! of those may be the peer that it polls for, or have something to send. If the others poll as well, the processor
//! comes back within microseconds. If it does not, another thread computes, and a thread that sleeps until something
//! arrives gets the processor sooner than one that waits for its turn: then it sleeps for up to 100 us instead of
//! yielding. A thread that polls between pieces of its work would lose time by sleeping, so it sleeps the less often, the
//! more of its sleeps end without an arrival. A thread never sleeps while other threads of its process poll as well: MPI
//! libraries poll with a lock held, and the others would wait for the sleeper.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::os::fd::RawFd;

use parking_lot::Mutex;
use squall_base::{Span, Time};

use crate::clock;

/// Number of polls in a row that find nothing before a thread checks whether others want the processor, and yields.
const CHECK_AFTER: u32 = 64;
/// Number of polls in a row that find nothing before a thread yields or sleeps while others want the processor.
const YIELD_AFTER: u32 = 8;
/// Duration above which a `sched_yield` shows that other threads ran on the processor.
const OTHERS_RAN: Span = Span::micros(5);
/// Duration of a `sched_yield` above which the thread sleeps from then on instead of yielding.
const LONG_YIELD: Span = Span::micros(300);
/// Time for which the thread sleeps instead of yielding after a long `sched_yield`.
const SLEEP_PERIOD: Span = Span::millis(20);
/// Longest short sleep. It bounds the delay of events that show at no socket, because a polling thread may wait for
/// more than packets.
const SHORT_SLEEP: Span = Span::micros(100);
/// Number of polls in a row that find nothing before a thread sleeps, if most of its sleeps end without an arrival.
/// That many polls take about as long as a sleep.
const SLEEP_AFTER_AT_MOST: u32 = 256;
/// Shortest time over which the processor's load is estimated from a thread that never sleeps.
const SAMPLE: Span = Span::millis(5);
/// Time for which an estimate of the contention for the processor is valid.
const VALID: Span = Span::millis(100);

/// Use of the processor by the calling thread, from getrusage(2).
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// The processor time that the thread has used.
    ran: Span,
    /// The number of times that the thread went to sleep, and that the scheduler took the processor away.
    sleeps: i64,
    losses: i64,
}

impl Usage {
    const NONE: Self = Self { ran: Span::ZERO, sleeps: 0, losses: 0 };

    /// Returns the use of the processor by the calling thread until now.
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
    /// Beginning of the current sample of the processor's load, and the thread's processor time then.
    since: Time,
    before: Usage,
    /// The thread assumes until this time that other threads want the processor.
    until: Time,
    /// The thread assumes until this time that the other threads compute rather than poll, so it sleeps.
    sleep_until: Time,
    /// Number of polls in a row that find nothing before the thread sleeps.
    sleep_after: u32,
    /// Other threads ran during the last yield that checked for them.
    others_ran: bool,
    /// The thread assumes until this time that other threads of the process poll as well.
    awake_until: Time,
}

/// The thread that last polled without finding anything while others wanted its processor, as an address that no other
/// thread has.
static POLLER: AtomicUsize = AtomicUsize::new(0);

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
        others_ran: false,
        awake_until: Time::ZERO,
    };

    /// Notes that the thread yielded the processor at `from` and got it back at `now`.
    fn record_yield(&mut self, from: Time, now: Time) {
        if now.since(from) > LONG_YIELD {
            self.sleep_until = now + SLEEP_PERIOD;
        }
    }

    /// Notes that the thread yielded at `from` to see whether others want the processor, and got it back at `now`. One
    /// long yield may be an interrupt; after two in a row the processor is contended.
    fn record_check(&mut self, from: Time, now: Time) {
        let others_ran = now.since(from) > OTHERS_RAN;
        if others_ran && self.others_ran {
            self.until = now + VALID;
        }
        self.others_ran = others_ran;
    }

    /// Notes that a poll found nothing at `now`. If the last such poll of the process was another thread's, this thread
    /// does not sleep for a while: it may hold the lock of its MPI library, for which the other one would wait.
    fn note_poller(&mut self, last: &AtomicUsize, now: Time) {
        let this = CONTENTION.with(|own| core::ptr::from_ref(own).addr());
        if last.swap(this, Ordering::Relaxed) != this {
            self.awake_until = now + VALID;
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
    /// Number of polls in a row that found nothing.
    idle: AtomicU32,
    /// Descriptors that become readable when packets or records arrive.
    sockets: Mutex<Vec<RawFd>>,
}

impl Backoff {
    /// Adds descriptors that become readable when packets or records arrive.
    pub(crate) fn add_sockets(&self, sockets: &[RawFd]) {
        self.sockets.lock().extend_from_slice(sockets);
    }

    /// Removes descriptors that are about to be closed.
    pub(crate) fn remove_sockets(&self, sockets: &[RawFd]) {
        self.sockets.lock().retain(|fd| !sockets.contains(fd));
    }

    /// Notes that a poll found something, so the backoff begins anew.
    #[inline]
    pub(crate) fn on_busy(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Notes that a poll found nothing. The thread may yield, or sleep until `next`, when a timer of the endpoints
    /// expires. `is_empty` checks once more that there is nothing. The caller must hold no lock.
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
        if contended {
            contention.note_poller(&POLLER, now);
        }
        CONTENTION.set(contention);
        if contended && now < contention.sleep_until && now >= contention.awake_until {
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
            contention.record_check(now, clock::now());
            CONTENTION.set(contention);
        }
    }

    /// Sleeps until a packet or record arrives, or for `longest`. Returns whether something had arrived.
    fn short_sleep(&self, longest: Span, is_empty: impl FnOnce() -> bool) -> bool {
        debug_assert!(longest < Span::secs(1));
        if !is_empty() {
            return true;
        }
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::c_long::try_from(longest.0).unwrap_or_default(),
        };
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
        ready > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    /// Shorter than a second, as every sleep.
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
    fn two_long_yields_in_a_row_show_that_others_want_the_processor() {
        let at = |us: u64| Time::ZERO + Span::micros(us);
        let mut contention = Contention::NONE;
        contention.record_check(at(100), at(120));
        contention.record_check(at(200), at(201));
        contention.record_check(at(300), at(320));
        assert_eq!(contention.until, Time::ZERO, "interrupts");
        contention.record_check(at(400), at(420));
        assert_eq!(contention.until, at(420) + VALID);
    }

    #[test]
    fn a_thread_stays_awake_while_others_of_its_process_poll() {
        let at = |us: u64| Time::ZERO + Span::micros(us);
        let last = AtomicUsize::new(0);
        let mut contention = Contention::NONE;
        contention.note_poller(&last, at(0));
        let first = contention.awake_until;
        contention.note_poller(&last, at(200_000));
        assert_eq!(contention.awake_until, first, "it polls alone");
        std::thread::scope(|threads| {
            threads.spawn(|| Contention { ..Contention::NONE }.note_poller(&last, at(200_001)));
        });
        contention.note_poller(&last, at(200_002));
        assert_eq!(contention.awake_until, at(200_002) + VALID);
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
    fn a_sleep_ends_when_something_arrives() {
        let (near, far) = UnixDatagram::pair().expect("two sockets");
        let backoff = Backoff::default();
        backoff.add_sockets(&[near.as_raw_fd()]);
        assert!(!backoff.short_sleep(Span::micros(1), || true), "nothing arrived");
        far.send(b"x").expect("a packet");
        assert!(backoff.short_sleep(LONG, || true));
    }

    #[test]
    fn nobody_sleeps_when_something_is_there() {
        assert!(Backoff::default().short_sleep(LONG, || false));
    }
}
