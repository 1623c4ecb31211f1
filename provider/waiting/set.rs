//! Wait sets: several queues and counters that are waited for as one.

use core::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Sleeper, Waitable, Waits, deadline, poll_until};
use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::class;
use crate::fabric::Fabric;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};

/// A member of a wait set, and the epoll set on which threads sleep for it.
struct Member {
    object: Weak<dyn Waitable>,
    fd: RawFd,
}

/// A wait set: `struct fid_wait` and the provider's state behind it.
#[repr(C)]
pub(crate) struct WaitSet {
    fid: Cell<ffi::fid_wait>,
    users: Users,
    _fabric: ObjectRef<Fabric>,
    waits: Waits,
    members: Mutex<Vec<Member>>,
}

// SAFETY: `WaitSet` is repr(C) and begins with the cell of a `fid_wait`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for WaitSet {
    type Fid = ffi::fid_wait;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, control: control));

static OPS: Table<ffi::fi_ops_wait> =
    Table(ffi::fi_ops_wait { size: size_of::<ffi::fi_ops_wait>(), wait: Some(wait) });

boundary::exports! {
    /// Opens a wait set: `fi_wait_open`.
    pub(crate) status open(
        fabric: *mut ffi::fid_fabric,
        attr: *mut ffi::fi_wait_attr,
        set: *mut *mut ffi::fid_wait,
    ) -> c_int => {
        let (place, attr) = (Out::new(set)?, attr.as_ref().ok_or(Errno::INVAL)?);
        place.write(WaitSet::create(objects::share(fabric)?, attr)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<WaitSet, _>(fid).map(drop);

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut core::ffi::c_void) -> c_int =>
        objects::get::<WaitSet, _>(fid)?.waits.control(command, arg);

    status wait(set: *mut ffi::fid_wait, timeout: c_int) -> c_int =>
        objects::get::<WaitSet, _>(set)?.wait(timeout);
}

impl WaitSet {
    /// Opens an empty wait set.
    ///
    /// # Errors
    /// `FI_EINVAL` for flags, and for a set in a set or of nothing to wait with.
    fn create(fabric: Arc<Fabric>, attr: &ffi::fi_wait_attr) -> Result<*mut ffi::fid_wait> {
        let nothing = matches!(attr.wait_obj, ffi::FI_WAIT_NONE | ffi::FI_WAIT_SET);
        if attr.flags != 0 || nothing {
            log::info!(
                "wait set refused: wait_obj {} is none, or flags {:#x} are not 0",
                attr.wait_obj,
                attr.flags
            );
            return Err(Errno::INVAL);
        }
        Ok(objects::publish(Arc::new(Self {
            fid: Cell::new(ffi::fid_wait {
                fid: objects::fid(class::WAIT, core::ptr::null_mut(), &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            _fabric: ObjectRef::new(fabric),
            waits: Waits::open(attr.wait_obj, None)?,
            members: Mutex::default(),
        })))
    }

    /// Adds `object` to the wait set. Threads that wait for the set also sleep on `fd`.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn insert(&self, object: Weak<dyn Waitable>, fd: RawFd) -> Result<()> {
        if let Some(waiter) = self.waits.waiter() {
            waiter.add(fd)?;
        }
        self.members.lock().push(Member { object, fd });
        Ok(())
    }

    /// Removes a member, which closes and for which threads slept on `fd`, from the wait set.
    pub(super) fn remove(&self, fd: RawFd) {
        self.members.lock().retain(|member| member.fd != fd);
        if let Some(waiter) = self.waits.waiter() {
            waiter.remove(fd);
        }
    }

    /// Waits until a member of the wait set has an event.
    ///
    /// # Errors
    /// `FI_ETIMEDOUT` when time is up, `FI_EINTR` when a signal handler ran.
    fn wait(&self, timeout: c_int) -> Result<()> {
        let check = || match self.try_wait(Sleeper::Application) {
            Ok(()) => None,
            Err(Errno::AGAIN) => Some(Ok(())),
            Err(other) => Some(Err(other)),
        };
        // The look has prepared the sleep.
        match poll_until(deadline(timeout), self.waits.waiter(), check, |_| true) {
            Ok(answer) => answer,
            Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
            Err(other) => Err(other),
        }
    }
}

impl Waitable for WaitSet {
    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn try_wait(&self, _: Sleeper) -> Result<()> {
        // Not under the lock: members make progress.
        let members: Vec<_> =
            self.members.lock().iter().filter_map(|member| member.object.upgrade()).collect();
        // No thread sleeps on a member by itself.
        members.iter().try_for_each(|member| member.try_wait(Sleeper::Application))
    }
}
