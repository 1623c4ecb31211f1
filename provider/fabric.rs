//! The fabric: an IP network. Opens domains and event queues.

use core::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use crate::boundary;
use crate::domain;
use crate::eq;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags::class;
use crate::object::{self, Cell, Object, Table, Users};
use crate::wait;

/// `struct fid_fabric` and what is behind it.
#[repr(C)]
pub(crate) struct Fabric {
    fid: Cell<ffi::fid_fabric>,
    users: Users,
    name: String,
}

// SAFETY: the fid is written by the host before the fabric is given to the application and only
// read afterwards; the rest is immutable or atomic.
unsafe impl Send for Fabric {}
// SAFETY: as above.
unsafe impl Sync for Fabric {}

// SAFETY: repr(C), and fid_fabric is first.
unsafe impl Object for Fabric {
    type Fid = ffi::fid_fabric;
    const CLASS: usize = class::FABRIC;
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(object::fi_ops!(close: close));

static OPS: Table<ffi::fi_ops_fabric> = Table(ffi::fi_ops_fabric {
    size: size_of::<ffi::fi_ops_fabric>(),
    domain: Some(domain_open),
    passive_ep: Some(passive_ep),
    eq_open: Some(eq::open),
    wait_open: Some(wait_open),
    trywait: Some(wait::trywait),
    domain2: Some(domain2),
});

impl Fabric {
    /// Tells our objects from others'.
    pub(crate) fn ops() -> *mut ffi::fi_ops {
        object::table(&FI_OPS)
    }

    /// The network's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The libfabric API version that the application asked for.
    pub(crate) fn api_version(&self) -> u32 {
        // SAFETY: the host wrote it before the application got the fabric.
        unsafe { (*self.fid.get()).api_version }
    }
}

/// `fi_provider::fabric`.
pub(crate) unsafe extern "C" fn open(
    attr: *mut ffi::fi_fabric_attr,
    fabric: *mut *mut ffi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    boundary::status(|| {
        if attr.is_null() || fabric.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: libfabric passes a valid attribute with NULL or terminated strings.
        let (name, version) = unsafe { ((*attr).name, (*attr).api_version) };
        let name = if name.is_null() {
            String::new()
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let opened = Arc::new(Fabric {
            fid: Cell::new(ffi::fid_fabric {
                fid: object::fid(class::FABRIC, context, &FI_OPS.0),
                ops: object::table(&OPS),
                api_version: version,
            }),
            users: Users::default(),
            name,
        });
        // SAFETY: checked for NULL.
        unsafe { *fabric = object::publish(opened) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut ffi::fid) -> c_int {
    // SAFETY: libfabric passes the object being closed.
    boundary::status(|| unsafe { object::retire::<Fabric, _>(fid).map(drop) })
}

unsafe extern "C" fn domain_open(
    fabric: *mut ffi::fid_fabric,
    info: *mut ffi::fi_info,
    domain: *mut *mut ffi::fid_domain,
    context: *mut c_void,
) -> c_int {
    boundary::status(|| {
        if domain.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an open fabric and a valid info, as fi_domain(3) says.
        let opened: Result<_> = unsafe { domain::open(object::share(fabric)?, info, context) };
        // SAFETY: checked for NULL.
        unsafe { *domain = opened? };
        Ok(())
    })
}

unsafe extern "C" fn domain2(
    fabric: *mut ffi::fid_fabric,
    info: *mut ffi::fi_info,
    domain: *mut *mut ffi::fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return Errno::BADFLAGS.code();
    }
    // SAFETY: the caller's promises are passed on.
    unsafe { domain_open(fabric, info, domain, context) }
}

unsafe extern "C" fn passive_ep(
    _: *mut ffi::fid_fabric,
    _: *mut ffi::fi_info,
    _: *mut *mut ffi::fid_pep,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn wait_open(
    _: *mut ffi::fid_fabric,
    _: *mut ffi::fi_wait_attr,
    _: *mut *mut ffi::fid_wait,
) -> c_int {
    Errno::NOSYS.code()
}
