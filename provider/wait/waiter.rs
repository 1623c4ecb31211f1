//! The descriptor on which a waiting thread sleeps.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use squall_base::Time;

use super::prepare::{Event, Sleeper};
use crate::clock;
use crate::errno::{Errno, Result};
use crate::objects::{PerProcess, Process};

/// Takes a descriptor that a system call returned.
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
/// its parent, whose wake-ups it must neither take nor give.
pub(crate) struct Waiter {
    process: Process,
    set: OwnedFd,
    event: OwnedFd,
    timer: OwnedFd,
    /// Threads that are in one of our waiting calls.
    guests: AtomicU32,
}

/// A thread in one of our waiting calls, until this is gone.
pub(crate) struct Guest<'a>(&'a Waiter);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Event for Waiter {
    fn raise(&self) {
        self.signal();
    }

    fn take(&self) -> bool {
        self.take()
    }

    fn is_shared(&self, sleeper: Sleeper) -> bool {
        self.guests.load(Ordering::SeqCst) > u32::from(sleeper == Sleeper::Guest)
    }
}

/// The epoll sets of all waiters.
static OWNED: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new();

/// Returns whether `fd` is the epoll set of a waiter.
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
        let guests = AtomicU32::new(0);
        let waiter = Self { process: Process::current(), set, event, timer, guests };
        OWNED.get().lock().push(waiter.fd());
        waiter.add(waiter.event.as_raw_fd())?;
        waiter.add(waiter.timer.as_raw_fd())?;
        Ok(waiter)
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Wakes up when `fd` is readable, too. Adding one twice is no error.
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

    /// No longer watches `fd`.
    pub(crate) fn remove(&self, fd: RawFd) {
        if !self.process.is_current() {
            return;
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: epoll_ctl(2) reads at most `event`, a local variable, and touches no other memory; a `fd` that
        // is not in the set is refused.
        unsafe { libc::epoll_ctl(self.set.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, &raw mut event) };
    }

    /// Wakes the waiting threads.
    pub(crate) fn signal(&self) {
        if !self.process.is_current() {
            return;
        }
        let one = 1u64;
        // SAFETY: write(2) reads the eight bytes of `one`, a local variable. (When the counter is full it fails,
        // which is as good as one more.)
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// A thread begins to wait, and looks for what it waits for after this.
    pub(crate) fn enter(&self) -> Guest<'_> {
        self.guests.fetch_add(1, Ordering::SeqCst);
        Guest(self)
    }

    /// Takes back earlier signals. Returns whether there were any. The caller must look afterwards for the entries that
    /// the signals announced.
    pub(crate) fn take(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let mut count = 0u64;
        // SAFETY: read(2) writes at most the eight bytes of `count`, a local variable.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
        count > 0
    }

    /// Wakes up at `at`, too, instead of at the time set before.
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

    /// Sleeps until something happens or `deadline` comes.
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
