//! Waiting: what stands behind the wait objects, fi_cq_sread and its kin, fi_trywait and wait sets.
//!
//! Threads sleep on an epoll set ([`Waiter`]): an eventfd for completions and fi_cq_signal, under manual
//! progress also the sockets of the endpoints and a timer for the next retransmission, so that a
//! sleeping application wakes up for whatever needs progress. Of several threads in a waiting call one sleeps there, on
//! behalf of all ([`leadership`]). FI_WAIT_FD hands it out; for FI_WAIT_MUTEX_COND a thread
//! sleeps on it in the application's place ([`cond_notifier`]); a wait set ([`set`]) is an epoll set of epoll sets.

pub(crate) mod background;
pub(crate) mod backoff;
mod cond_notifier;
pub(crate) mod endpoint_lock;
mod leadership;
pub(crate) mod open_endpoints;
mod prepare;
pub(crate) mod progress;
pub(crate) mod set;
mod waiter;

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use std::sync::{Arc, Weak};

use squall_base::{Span, Time};

use crate::abi::boundary::Out;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::clock::{self, hooks};
use crate::objects::{self, ObjectRef};
use cond_notifier::CondNotifier;
pub(crate) use prepare::Sleeper;
use set::WaitSet;
pub(crate) use waiter::Waiter;

/// The wait object (`fi_wait_obj`) of a queue or counter, and its implementation.
pub(crate) struct Waits {
    obj: ffi::fi_wait_obj,
    waiter: Option<Arc<Waiter>>,
    notifier: Option<CondNotifier>,
    set: Option<ObjectRef<WaitSet>>,
}

/// A queue or counter for which threads of the application can wait.
pub(crate) trait Waitable: Send + Sync {
    /// Returns the wait object of the queue or counter.
    fn waits(&self) -> &Waits;

    /// Arranges that the next event wakes the sleeper.
    ///
    /// # Errors
    /// `FI_EAGAIN` when something is there already, `FI_ENOSYS` when it is not there to be waited for.
    fn try_wait(&self, sleeper: Sleeper) -> Result<()>;
}

impl Waits {
    /// Opens the wait object that `obj` names; FI_WAIT_SET joins the wait set `set`.
    ///
    /// # Errors
    /// `FI_ENOSYS` for an unknown wait object, `FI_EINVAL` for an invalid set, the system's error
    /// if it lacks descriptors or threads.
    pub(crate) fn open(obj: ffi::fi_wait_obj, set: Option<Arc<WaitSet>>) -> Result<Self> {
        let slept_on = match obj {
            ffi::FI_WAIT_NONE | ffi::FI_WAIT_YIELD => false,
            ffi::FI_WAIT_UNSPEC | ffi::FI_WAIT_FD | ffi::FI_WAIT_POLLFD => true,
            ffi::FI_WAIT_MUTEX_COND | ffi::FI_WAIT_SET => true,
            other => {
                log::info!("wait object refused: wait_obj {other} is unknown");
                return Err(Errno::NOSYS);
            }
        };
        let waiter = if slept_on { Some(Arc::new(Waiter::new()?)) } else { None };
        let notifier = match &waiter {
            Some(waiter) if obj == ffi::FI_WAIT_MUTEX_COND => Some(CondNotifier::start(waiter)?),
            _ => None,
        };
        let set = if obj == ffi::FI_WAIT_SET {
            Some(ObjectRef::new(set.ok_or_else(|| {
                log::info!("FI_WAIT_SET refused: the attributes name no wait set of squall");
                Errno::INVAL
            })?))
        } else {
            None
        };
        Ok(Self { obj, waiter, notifier, set })
    }

    /// Returns the epoll set on which threads sleep, if there is one.
    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_deref()
    }

    /// Returns the waiter to prepare before a sleep, or `None` if waiting calls only yield.
    ///
    /// # Errors
    /// `FI_ENOSYS` if the object was opened with FI_WAIT_NONE.
    pub(crate) fn sleeping_waiter(&self) -> Result<Option<&Waiter>> {
        if self.obj == ffi::FI_WAIT_NONE { Err(Errno::NOSYS) } else { Ok(self.waiter()) }
    }

    /// Prepares a sleep. `look` makes progress and returns an error if an event is there already; otherwise it arranges
    /// that the next event wakes the sleeper.
    ///
    /// # Errors
    /// The errors of [`Waitable::try_wait`] and those of `look`.
    pub(crate) fn prepare(
        &self,
        sleeper: Sleeper,
        look: impl FnOnce(Option<&Waiter>) -> Result<()>,
    ) -> Result<()> {
        let waiter = self.sleeping_waiter()?;
        prepare::prepare(waiter, sleeper, || look(waiter))
    }

    /// Returns an error unless waiting calls are allowed on the object: with FI_WAIT_NONE they are not, and with
    /// FI_WAIT_SET only on the wait set.
    ///
    /// # Errors
    /// `FI_ENOSYS` when they are not.
    pub(crate) fn check_blocking(&self, call: &str) -> Result<()> {
        match self.obj {
            ffi::FI_WAIT_NONE | ffi::FI_WAIT_SET => {
                log::info!("{call} refused: the queue was opened with FI_WAIT_NONE or FI_WAIT_SET");
                Err(Errno::NOSYS)
            }
            _ => Ok(()),
        }
    }

    /// Wakes the threads that wait for the queue or counter.
    pub(crate) fn signal(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.signal();
        }
    }

    /// Adds the new `member` to its wait set, if it has one.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn join_set(&self, member: Weak<dyn Waitable>) -> Result<()> {
        match (&self.set, &self.waiter) {
            (Some(set), Some(waiter)) => set.insert(member, waiter.fd()),
            _ => Ok(()),
        }
    }

    /// Removes the object, whose owner closes, from its wait set.
    pub(crate) fn leave_set(&self) {
        if let (Some(set), Some(waiter)) = (&self.set, &self.waiter) {
            set.remove(waiter.fd());
            set.release();
        }
    }

    /// Arms the thread that broadcasts the condition, because the application is about to sleep on it
    /// (FI_WAIT_MUTEX_COND).
    pub(crate) fn arm_notifier(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.arm();
        }
    }

    /// Returns the wait object or its kind: `fi_control` with FI_GETWAIT or FI_GETWAITOBJ.
    ///
    /// # Safety
    /// `arg` is NULL, or what fi_control(3) says for the command and the wait object: an int for the descriptor, a
    /// `fi_mutex_cond`, a `fi_wait_pollfd` with as many elements as it says, or an `enum fi_wait_obj`; open to writing.
    pub(crate) unsafe fn control(&self, command: c_int, arg: *mut c_void) -> Result<()> {
        if arg.is_null() {
            return Err(Errno::INVAL);
        }
        match u32::try_from(command) {
            // SAFETY: the command is FI_GETWAIT: `arg` is what this function's contract says for the object.
            Ok(ffi::FI_GETWAIT) => unsafe { self.write_wait_object(arg) },
            Ok(ffi::FI_GETWAITOBJ) => {
                // SAFETY: the command is FI_GETWAITOBJ, so `arg` is an `enum fi_wait_obj` by this function's
                // contract.
                unsafe { Out::new(arg.cast::<ffi::fi_wait_obj>()) }?.write(self.obj)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    /// # Safety
    /// `arg` is not NULL, and as for FI_GETWAIT in [`Self::control`].
    unsafe fn write_wait_object(&self, arg: *mut c_void) -> Result<()> {
        let fd = self.waiter().map(Waiter::fd).ok_or(Errno::NODATA)?;
        match (self.obj, &self.notifier) {
            // SAFETY: the object is a descriptor, so `arg` is an int by this function's contract.
            (ffi::FI_WAIT_FD, _) => unsafe { Out::new(arg.cast::<c_int>()) }?.write(fd),
            (ffi::FI_WAIT_MUTEX_COND, Some(notifier)) => {
                // SAFETY: the object is a mutex and a condition, so `arg` is a `fi_mutex_cond` by this function's
                // contract.
                unsafe { Out::new(arg.cast::<ffi::fi_mutex_cond>()) }?.write(notifier.mutex_cond())
            }
            (ffi::FI_WAIT_POLLFD, _) => {
                // SAFETY: the object is an array of descriptors, so `arg` is an initialised `fi_wait_pollfd` by this
                // function's contract, which no other code uses meanwhile.
                let array = unsafe { &mut *arg.cast::<ffi::fi_wait_pollfd>() };
                let room = core::mem::replace(&mut array.nfds, 1);
                let first = NonNull::new(array.fd.cast::<libc::pollfd>()).filter(|_| room > 0);
                let entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                array.change_index = 1;
                // SAFETY: `fd` has an element, which may be written to: there is room for one by the number beside
                // it, and it is not NULL.
                first.map(|at| unsafe { at.write(entry) }).ok_or(Errno::TOOSMALL)
            }
            _ => Err(Errno::NODATA),
        }
    }
}

/// Returns the wait set that an attribute names, if the wait object asks for one.
///
/// # Safety
/// With FI_WAIT_SET, `set` is NULL or an open object that stays open during the call.
pub(crate) unsafe fn set_of(
    obj: ffi::fi_wait_obj,
    set: *mut ffi::fid_wait,
) -> Result<Option<Arc<WaitSet>>> {
    if obj != ffi::FI_WAIT_SET {
        return Ok(None);
    }
    // SAFETY: NULL, which is refused, or an open object by this function's contract.
    unsafe { objects::share(set) }.map(Some)
}

/// Returns whether threads of the application may sleep on the descriptor until the provider wakes them.
pub(crate) fn owns(fd: c_int) -> bool {
    waiter::owns(fd)
}

/// Returns the time at which a wait of at most `timeout` milliseconds ends; a negative `timeout` means never.
pub(crate) fn deadline(timeout: c_int) -> Time {
    match u64::try_from(timeout) {
        Ok(ms) => Time(clock::now().0.saturating_add(ms.saturating_mul(1_000_000))),
        Err(_) => Time::NEVER,
    }
}

/// Time for which a thread polls without a result before it sleeps. A round trip within a rack and the peer's system
/// calls take less, so that a prompt answer finds the thread awake, and an idle thread hardly uses its processor.
pub(crate) const SPIN: Span = Span::micros(50);

/// Polls `check` until it has an answer or `deadline` passes: first without pause for [`SPIN`], then asleep on `waiter`
/// between polls, or, without a waiter, yielding the processor. `prepare` is called before each sleep; it returns false
/// if there is something to read already.
pub(crate) fn poll_until<T>(
    deadline: Time,
    waiter: Option<&Waiter>,
    mut check: impl FnMut() -> Option<T>,
    mut prepare: impl FnMut(Sleeper) -> bool,
) -> Result<T> {
    let start = clock::now();
    let mut guest = waiter.map(Waiter::enter);
    loop {
        if let Some(guest) = &mut guest {
            guest.begin_look();
        }
        if let Some(answer) = check() {
            return Ok(answer);
        }
        let now = clock::now();
        if now >= deadline {
            return Err(Errno::AGAIN);
        }
        if hooks::wait_until(deadline) {
            continue;
        }
        match &mut guest {
            Some(guest) if now.since(start) >= SPIN => {
                if prepare(guest.choose_role()) {
                    guest.sleep(deadline)?;
                } else {
                    // Another thread may be about to take what is there.
                    std::thread::yield_now();
                }
            }
            None if now.since(start) >= SPIN => std::thread::yield_now(),
            _ => core::hint::spin_loop(),
        }
    }
}
