//! Counters: how many operations of an endpoint succeeded, and how many failed.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary;
use crate::domain::Domain;
use crate::ep::Endpoint;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags::class;
use crate::object::{self, Cell, Hold, Object, Table, Users};
use crate::wait::{self, Waiter, Wanted};

/// `struct fid_cntr` and what is behind it.
#[repr(C)]
pub(crate) struct Cntr {
    fid: Cell<ffi::fid_cntr>,
    users: Users,
    domain: Hold<Domain>,
    value: AtomicU64,
    errors: AtomicU64,
    waiter: Option<Waiter>,
    wanted: ffi::fi_wait_obj,
    armed: AtomicBool,
    /// Endpoints to drive; control path and reads only.
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
}

// SAFETY: the fid is only read after the counter was published; the rest is atomic or guarded.
unsafe impl Send for Cntr {}
// SAFETY: as above.
unsafe impl Sync for Cntr {}

// SAFETY: repr(C), and fid_cntr is first.
unsafe impl Object for Cntr {
    type Fid = ffi::fid_cntr;
    const CLASS: usize = class::CNTR;
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(object::fi_ops!(close: close, control: control));

static OPS: Table<ffi::fi_ops_cntr> = Table(ffi::fi_ops_cntr {
    size: size_of::<ffi::fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
});

/// `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut ffi::fid_domain,
    attr: *mut ffi::fi_cntr_attr,
    cntr: *mut *mut ffi::fid_cntr,
    context: *mut c_void,
) -> c_int {
    boundary::status(|| {
        if cntr.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open domain; NULL or a valid attribute.
        let (domain, attr) =
            unsafe { (object::share::<Domain, _>(domain)?, attr.as_ref().ok_or(Errno::INVAL)?) };
        if attr.events != ffi::FI_CNTR_EVENTS_COMP {
            log::info!("counter events {} are not there, only completions", attr.events);
            return Err(Errno::NOSYS);
        }
        let opened = Arc::new(Cntr {
            fid: Cell::new(ffi::fid_cntr {
                fid: object::fid(class::CNTR, context, &FI_OPS.0),
                ops: object::table(&OPS),
            }),
            users: Users::default(),
            domain: Hold::new(domain),
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            waiter: Wanted::from_attr(attr.wait_obj)?.open()?,
            wanted: attr.wait_obj,
            armed: AtomicBool::new(false),
            endpoints: Mutex::default(),
        });
        // SAFETY: checked for NULL.
        unsafe { *cntr = object::publish(opened) };
        Ok(())
    })
}

impl Cntr {
    /// An operation ended.
    #[inline]
    pub(crate) fn count(&self, success: bool) {
        let which = if success { &self.value } else { &self.errors };
        which.fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// As [`crate::cq::Cq::nudge`].
    pub(crate) fn nudge(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.signal();
        }
    }

    fn changed(&self) {
        if self.armed.load(Ordering::Acquire)
            && self.armed.swap(false, Ordering::AcqRel)
            && let Some(waiter) = &self.waiter
        {
            waiter.signal();
        }
    }

    /// From now on reading drives this endpoint.
    pub(crate) fn attach(&self, endpoint: &Arc<Endpoint>, sockets: &[RawFd]) -> Result<()> {
        if let (Some(waiter), None) = (&self.waiter, self.domain.progress()) {
            for fd in sockets {
                waiter.add(*fd)?;
            }
        }
        let mut endpoints = self.endpoints.lock();
        if !endpoints.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            endpoints.push(Arc::clone(endpoint));
        }
        Ok(())
    }

    /// The endpoint closes.
    pub(crate) fn detach(&self, endpoint: &Endpoint, sockets: &[RawFd]) {
        if let Some(waiter) = &self.waiter {
            for fd in sockets {
                waiter.remove(*fd);
            }
        }
        self.endpoints.lock().retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
    }

    fn progress(&self) {
        let mut i = 0;
        loop {
            let endpoint = self.endpoints.lock().get(i).cloned();
            let Some(endpoint) = endpoint else { return };
            endpoint.progress();
            i += 1;
        }
    }

    /// Makes sure that the next change wakes the waiter.
    ///
    /// # Errors
    /// `FI_ENOSYS` without a wait object.
    pub(crate) fn try_wait(&self) -> Result<()> {
        let waiter = self.waiter.as_ref().ok_or(Errno::NOSYS)?;
        let before = self.snapshot();
        self.progress();
        if self.domain.progress().is_none() {
            let endpoints = self.endpoints.lock().clone();
            waiter.arm(endpoints.iter().filter_map(|e| e.next_timeout()).min());
        }
        waiter.clear();
        self.armed.store(true, Ordering::Release);
        if before == self.snapshot() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    fn snapshot(&self) -> (u64, u64) {
        (self.value.load(Ordering::Acquire), self.errors.load(Ordering::Acquire))
    }
}

unsafe extern "C" fn close(fid: *mut ffi::fid) -> c_int {
    // SAFETY: libfabric passes the object being closed.
    boundary::status(|| unsafe { object::retire::<Cntr, _>(fid).map(drop) })
}

unsafe extern "C" fn control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open counter, and an argument of the command's type.
    boundary::status(|| unsafe {
        let cntr: &Cntr = object::get(fid)?;
        wait::control(cntr.waiter.as_ref(), cntr.wanted, command, arg)
    })
}

unsafe extern "C" fn read(cntr: *mut ffi::fid_cntr) -> u64 {
    boundary::value(0, || {
        // SAFETY: an open counter.
        let Ok(cntr) = (unsafe { object::get::<Cntr, _>(cntr) }) else { return 0 };
        cntr.progress();
        cntr.value.load(Ordering::Acquire)
    })
}

unsafe extern "C" fn readerr(cntr: *mut ffi::fid_cntr) -> u64 {
    boundary::value(0, || {
        // SAFETY: an open counter.
        let Ok(cntr) = (unsafe { object::get::<Cntr, _>(cntr) }) else { return 0 };
        cntr.progress();
        cntr.errors.load(Ordering::Acquire)
    })
}

unsafe extern "C" fn add(cntr: *mut ffi::fid_cntr, value: u64) -> c_int {
    boundary::status(|| {
        // SAFETY: an open counter.
        let cntr: &Cntr = unsafe { object::get(cntr)? };
        cntr.value.fetch_add(value, Ordering::AcqRel);
        cntr.changed();
        Ok(())
    })
}

unsafe extern "C" fn set(cntr: *mut ffi::fid_cntr, value: u64) -> c_int {
    boundary::status(|| {
        // SAFETY: an open counter.
        let cntr: &Cntr = unsafe { object::get(cntr)? };
        cntr.value.store(value, Ordering::Release);
        cntr.changed();
        Ok(())
    })
}

unsafe extern "C" fn adderr(cntr: *mut ffi::fid_cntr, value: u64) -> c_int {
    boundary::status(|| {
        // SAFETY: an open counter.
        let cntr: &Cntr = unsafe { object::get(cntr)? };
        cntr.errors.fetch_add(value, Ordering::AcqRel);
        cntr.changed();
        Ok(())
    })
}

unsafe extern "C" fn seterr(cntr: *mut ffi::fid_cntr, value: u64) -> c_int {
    boundary::status(|| {
        // SAFETY: an open counter.
        let cntr: &Cntr = unsafe { object::get(cntr)? };
        cntr.errors.store(value, Ordering::Release);
        cntr.changed();
        Ok(())
    })
}

/// Waits until the value reaches the threshold (0), an error is counted (-FI_EAVAIL), or time is up
/// (-FI_ETIMEDOUT).
unsafe extern "C" fn wait(cntr: *mut ffi::fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    boundary::status(|| {
        // SAFETY: an open counter.
        let cntr: &Cntr = unsafe { object::get(cntr)? };
        let errors = cntr.errors.load(Ordering::Acquire);
        let check = || {
            cntr.progress();
            if cntr.value.load(Ordering::Acquire) >= threshold {
                return Some(Ok(()));
            }
            (cntr.errors.load(Ordering::Acquire) != errors).then_some(Err(Errno::AVAIL))
        };
        match wait::until(wait::deadline(timeout), cntr.waiter.as_ref(), check, || {
            cntr.try_wait().is_ok()
        }) {
            Ok(answer) => answer,
            Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
            Err(other) => Err(other),
        }
    })
}
