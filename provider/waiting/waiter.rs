//! The epoll set on which the threads that wait for a queue or counter sleep.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use squall_base::Time;

use super::leadership::Leadership;
use super::prepare::{Event, Sleeper};
use crate::abi::errno::{Errno, Result};
use crate::clock;
use crate::objects::{PerProcess, Process};

/// Takes ownership of a descriptor that a system call returned.
///
/// # Safety
/// `fd` is negative, or a descriptor that is open and that no other code owns.
unsafe fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: not negative, so open and without another owner by this function's contract.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An epoll set with an eventfd and a timer in it. Every descriptor is close-on-exec. A forked child shares them with
/// its parent, whose wake-ups it must neither consume nor cause.
pub(crate) struct Waiter {
    process: Process,
    set: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    /// The leader and the followers among the threads that are in one of the provider's waiting calls.
    leadership: Leadership<AtomicU32>,
}

/// A thread in one of the provider's waiting calls, until this value is dropped.
pub(crate) struct Guest<'a> {
    waiter: &'a Waiter,
    /// The number of events before the thread last looked for something to read.
    seen: u32,
    /// The way in which the thread sleeps (leader or follower), once it has slept.
    role: Option<Sleeper>,
}

impl Guest<'_> {
    /// Notes that the thread is about to look for what it waits for. An event after this call wakes it.
    pub(crate) fn begin_look(&mut self) {
        self.seen = self.waiter.leadership.events();
    }

    /// Returns how the thread is about to sleep: as the leader unless another thread leads.
    pub(crate) fn choose_role(&mut self) -> Sleeper {
        let leads = self.role == Some(Sleeper::Leader) || self.waiter.leadership.try_lead();
        let role = if leads { Sleeper::Leader } else { Sleeper::Follower };
        self.role = Some(role);
        role
    }

    /// Sleeps until an event that the last look did not see, or until `deadline` passes.
    ///
    /// # Errors
    /// `FI_EINTR` when a signal handler ran, `FI_ENODEV` in a forked child.
    pub(crate) fn sleep(&self, deadline: Time) -> Result<()> {
        if self.role == Some(Sleeper::Leader) {
            return self.waiter.sleep(deadline);
        }
        let Some(value) = self.waiter.leadership.follow(self.seen) else { return Ok(()) };
        self.waiter.sleep_as_follower(value, deadline)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let leadership = &self.waiter.leadership;
        let wake = match self.role {
            Some(Sleeper::Leader) => leadership.resign(),
            Some(_) => leadership.is_orphaned(),
            // Nothing has woken a thread that never slept.
            None => false,
        };
        if wake {
            self.waiter.wake_followers(1);
        }
    }
}

impl Event for Waiter {
    fn put_back(&self) {
        self.raise();
    }

    fn take(&self) -> bool {
        self.take()
    }

    fn is_led(&self) -> bool {
        self.leadership.is_led()
    }
}

/// The descriptors of all waiters' epoll sets in this process.
static OWNED: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new();

/// Returns whether `fd` is the epoll set of one of the provider's waiters.
pub(crate) fn owns(fd: RawFd) -> bool {
    OWNED.get().lock().contains(&fd)
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let fd = self.fd();
        OWNED.get().lock().retain(|other| *other != fd);
    }
}

impl Waiter {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the three system calls take numbers alone, and return a negative number or a new
        // descriptor, which goes nowhere but to `owned`.
        let (set, event, timer) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
                owned(libc::timerfd_create(
                    libc::CLOCK_MONOTONIC,
                    libc::TFD_CLOEXEC | libc::TFD_NONBLOCK,
                ))?,
            )
        };
        let leadership = Leadership::new();
        let waiter = Self { process: Process::current(), set, event, timer, leadership };
        OWNED.get().lock().push(waiter.fd());
        waiter.add(waiter.event.as_raw_fd())?;
        waiter.add(waiter.timer.as_raw_fd())?;
        Ok(waiter)
    }

    /// Returns the descriptor of the epoll set, which the application may poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Adds `fd` to the epoll set, so that its arrivals wake a sleeper. Adding it twice is no error.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: epoll_ctl(2) reads `event`, a local variable, and touches no other memory; a `fd` that is not
        // open is refused.
        let rc = unsafe {
            libc::epoll_ctl(self.set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        match rc {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Removes `fd` from the epoll set.
    pub(crate) fn remove(&self, fd: RawFd) {
        if !self.process.is_current() {
            return;
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: epoll_ctl(2) reads at most `event`, a local variable, and touches no other memory; a `fd` that
        // is not in the set is refused.
        unsafe { libc::epoll_ctl(self.set.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, &raw mut event) };
    }

    /// Wakes the threads that wait for the queue or counter.
    pub(crate) fn signal(&self) {
        if !self.process.is_current() {
            return;
        }
        if self.leadership.count_event() {
            self.wake_followers(c_int::MAX);
        }
        self.raise();
    }

    /// Raises the event, which wakes the leader and the application.
    fn raise(&self) {
        let one = 1u64;
        // SAFETY: write(2) reads the eight bytes of `one`, a local variable. (When the counter is full it fails,
        // which is as good as one more.)
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Begins the wait of a thread, which the returned guest stands for.
    pub(crate) const fn enter(&self) -> Guest<'_> {
        Guest { waiter: self, seen: 0, role: None }
    }

    /// Wakes up to `count` threads that sleep as followers.
    fn wake_followers(&self, count: c_int) {
        // SAFETY: futex(2) with FUTEX_WAKE touches no memory; the address is that of a field, and only names the
        // followers.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.leadership.word().as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                count,
            );
        }
    }

    /// Sleeps while the followers' number has this value, or until `deadline` comes.
    ///
    /// # Errors
    /// As [`Waiter::sleep`].
    fn sleep_as_follower(&self, value: u32, deadline: Time) -> Result<()> {
        self.process.check()?;
        let left = deadline.since(clock::now()).0;
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(left / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::try_from(left % 1_000_000_000).unwrap_or_default(),
        };
        let limit = if deadline == Time::NEVER { core::ptr::null() } else { &raw const time };
        // SAFETY: futex(2) with FUTEX_WAIT reads the number at the address, that of a field, and `time`, a local
        // variable, unless `limit` is NULL.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.leadership.word().as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                limit,
            )
        };
        if rc < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            return Err(Errno::INTR);
        }
        Ok(())
    }

    /// Clears earlier signals. Returns whether there were any. The caller must look afterwards for the entries that the
    /// signals announced.
    pub(crate) fn take(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let mut count = 0u64;
        // SAFETY: read(2) writes at most the eight bytes of `count`, a local variable.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
        count > 0
    }

    /// Sets the timer that wakes a sleeper at `at`, in place of the time set before.
    pub(crate) fn arm(&self, at: Option<Time>) {
        if !self.process.is_current() {
            return;
        }
        // A zero time would disarm, so a time in the past is one nanosecond after the origin.
        let at = at.filter(|t| *t != Time::NEVER).map_or(0, |t| t.0.max(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0),
            },
        };
        // SAFETY: timerfd_settime(2) reads `spec`, a local variable, and writes nothing, because it gets NULL
        // as the place for the old setting.
        unsafe {
            libc::timerfd_settime(
                self.timer.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                core::ptr::null_mut(),
            )
        };
    }

    /// Sleeps until an event or until `deadline` passes.
    ///
    /// # Errors
    /// `FI_EINTR` when a signal handler ran, `FI_ENODEV` in a forked child.
    pub(crate) fn sleep(&self, deadline: Time) -> Result<()> {
        self.process.check()?;
        let timeout = match deadline {
            Time::NEVER => -1,
            at => {
                let left = at.since(clock::now()).0.div_ceil(1_000_000);
                c_int::try_from(left).unwrap_or(c_int::MAX)
            }
        };
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: epoll_wait(2) writes at most the one event that it is allowed, into a local variable.
        let rc = unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, timeout) };
        if rc < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            return Err(Errno::INTR);
        }
        Ok(())
    }
}
