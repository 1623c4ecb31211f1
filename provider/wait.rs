//! Waiting: what stands behind FI_WAIT_FD, fi_cq_sread and fi_trywait.
//!
//! The descriptor an application polls is an epoll set: an eventfd for completions and fi_cq_signal,
//! under manual progress also the sockets of the endpoints and a timer for the next
//! retransmission, so that a sleeping application wakes up for whatever needs progress.

use core::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use squall_base::Time;

use crate::boundary::{self, Out};
use crate::clock;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags::class;
use crate::object::{self, Process};
use crate::param::params;

/// Which wait object a queue was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitKind {
    /// Nobody waits (FI_WAIT_NONE).
    Nothing,
    /// Blocking reads only (FI_WAIT_UNSPEC, FI_WAIT_YIELD).
    Inside,
    /// The application gets the descriptor (FI_WAIT_FD).
    Descriptor,
}

impl WaitKind {
    /// Reads a `fi_wait_obj`.
    ///
    /// # Errors
    /// `FI_ENOSYS` for wait sets, mutexes and poll arrays.
    pub(crate) fn from_attr(wait_obj: ffi::fi_wait_obj) -> Result<Self> {
        match wait_obj {
            ffi::FI_WAIT_NONE => Ok(Self::Nothing),
            ffi::FI_WAIT_UNSPEC | ffi::FI_WAIT_YIELD => Ok(Self::Inside),
            ffi::FI_WAIT_FD => Ok(Self::Descriptor),
            other => {
                log::info!("wait object {other} is not there; have NONE, UNSPEC, YIELD, FD");
                Err(Errno::NOSYS)
            }
        }
    }

    /// The wait object, if one is needed.
    ///
    /// # Errors
    /// The system's, when descriptors are short.
    pub(crate) fn open(self) -> Result<Option<Waiter>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Inside | Self::Descriptor => Ok(Some(Waiter::new()?)),
        }
    }
}

/// Takes a descriptor that a system call returned.
///
/// # Safety
/// `fd` is negative, or a descriptor that is open and that nobody else owns.
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
        let waiter = Self { process: Process::current(), set, event, timer };
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

    /// Wakes whoever waits.
    pub(crate) fn signal(&self) {
        if !self.process.is_current() {
            return;
        }
        let one = 1u64;
        // SAFETY: write(2) reads the eight bytes of `one`, a local variable. (When the counter is full it fails,
        // which is as good as one more.)
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes back earlier signals.
    pub(crate) fn clear(&self) {
        if !self.process.is_current() {
            return;
        }
        let mut count = 0u64;
        // SAFETY: read(2) writes at most the eight bytes of `count`, a local variable.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
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
        // SAFETY: epoll_wait(2) writes at most the one event that it is told of, into a local variable.
        let rc = unsafe { libc::epoll_wait(self.set.as_raw_fd(), &raw mut event, 1, timeout) };
        if rc < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
            return Err(Errno::INTR);
        }
        Ok(())
    }
}

/// When a wait that may last `timeout` milliseconds (negative: for ever) ends.
pub(crate) fn deadline(timeout: c_int) -> Time {
    match u64::try_from(timeout) {
        Ok(ms) => Time(clock::now().0.saturating_add(ms.saturating_mul(1_000_000))),
        Err(_) => Time::NEVER,
    }
}

/// Polls `check` until it has an answer or `deadline` comes: first busily for the spin time, then
/// asleep on `waiter` between polls. `prepare` is called before each sleep; false means that there
/// is something already.
pub(crate) fn until<T>(
    deadline: Time,
    waiter: Option<&Waiter>,
    mut check: impl FnMut() -> Option<T>,
    mut prepare: impl FnMut() -> bool,
) -> Result<T> {
    let start = clock::now();
    let spin = params().progress_spin.unwrap_or_default();
    loop {
        if let Some(answer) = check() {
            return Ok(answer);
        }
        let now = clock::now();
        if now >= deadline {
            return Err(Errno::AGAIN);
        }
        match waiter {
            Some(waiter) if now.since(start) >= spin => {
                if prepare() {
                    waiter.sleep(deadline)?;
                }
            }
            _ => core::hint::spin_loop(),
        }
    }
}

boundary::exports! {
    /// `fi_trywait`: whether the application may block on these objects' descriptors.
    pub(crate) status trywait(
        _fabric: *mut ffi::fid_fabric,
        fids: *mut *mut ffi::fid,
        count: c_int,
    ) -> c_int => {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        for &fid in boundary::slice(fids.cast_const(), count)? {
            match fid.as_ref().ok_or(Errno::INVAL)?.fclass {
                class::CQ => object::get::<Cq, _>(fid)?.try_wait()?,
                class::CNTR => object::get::<Cntr, _>(fid)?.try_wait()?,
                class::EQ => object::get::<Eq, _>(fid)?.try_wait()?,
                _ => return Err(Errno::NOSYS),
            }
        }
        Ok(())
    };
}

/// `fi_control(FI_GETWAIT)` and `FI_GETWAITOBJ` for an object with this waiter.
///
/// # Safety
/// `arg` is NULL or, for FI_GETWAIT on an object opened with FI_WAIT_FD, an int that may be written to, for
/// FI_GETWAITOBJ an `enum fi_wait_obj`.
pub(crate) unsafe fn control(
    waiter: Option<&Waiter>,
    wait_obj: ffi::fi_wait_obj,
    command: c_int,
    arg: *mut core::ffi::c_void,
) -> Result<()> {
    if arg.is_null() {
        return Err(Errno::INVAL);
    }
    match u32::try_from(command) {
        Ok(ffi::FI_GETWAIT) => {
            let fd = waiter.map(Waiter::fd).filter(|_| wait_obj == ffi::FI_WAIT_FD);
            let fd = fd.ok_or(Errno::NODATA)?;
            // SAFETY: the command is FI_GETWAIT and the object was opened with FI_WAIT_FD, so `arg` is NULL or
            // an int by this function's contract.
            unsafe { Out::new(arg.cast::<c_int>()) }?.put(fd)
        }
        Ok(ffi::FI_GETWAITOBJ) => {
            // SAFETY: the command is FI_GETWAITOBJ, so `arg` is NULL or an `enum fi_wait_obj` by this
            // function's contract.
            unsafe { Out::new(arg.cast::<ffi::fi_wait_obj>()) }?.put(wait_obj)
        }
        _ => Err(Errno::NOSYS),
    }
}
