//! The calls of a fabric, which open domains, event queues and wait sets.

use core::ffi::{c_int, c_void};

use super::Fabric;
use crate::abi::boundary::{self, Out};
use crate::abi::errno::Errno;
use crate::abi::ffi;
use crate::abi::flags;
use crate::domain;
use crate::info;
use crate::objects::{self, Table};
use crate::queues::eq;
use crate::queues::trywait;
use crate::waiting::set;

pub(super) static OPS: Table<ffi::fi_ops_fabric> = Table(ffi::fi_ops_fabric {
    size: size_of::<ffi::fi_ops_fabric>(),
    domain: Some(domain_open),
    passive_ep: Some(passive_ep),
    eq_open: Some(eq::open),
    wait_open: Some(set::open),
    trywait: Some(trywait::trywait),
    domain2: Some(domain2),
});

boundary::exports! {
    /// Opens a fabric: `fi_provider::fabric`.
    pub(crate) status open(
        attr: *mut ffi::fi_fabric_attr,
        fabric: *mut *mut ffi::fid_fabric,
        context: *mut c_void,
    ) -> c_int => {
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        let name = boundary::text(attr.name).unwrap_or_default();
        Out::new(fabric)?.write(Fabric::create(name, attr.api_version, context, &OPS))
    };

    status domain_open(
        fabric: *mut ffi::fid_fabric,
        info: *mut ffi::fi_info,
        domain: *mut *mut ffi::fid_domain,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(domain)?;
        place.write(domain::calls::open(objects::share(fabric)?, &info::read_attributes(info)?, context)?)
    };

    /// Opens a domain with flags: `fi_domain2`. The flags ask for another provider's domain, which is not supported.
    status domain2(
        fabric: *mut ffi::fid_fabric,
        info: *mut ffi::fi_info,
        domain: *mut *mut ffi::fid_domain,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        if flags & flags::PEER != 0 {
            // fi_peer(3).
            return Err(Errno::INVAL);
        }
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let place = Out::new(domain)?;
        place.write(domain::calls::open(objects::share(fabric)?, &info::read_attributes(info)?, context)?)
    };
}

unsafe extern "C" fn passive_ep(
    _: *mut ffi::fid_fabric,
    _: *mut ffi::fi_info,
    _: *mut *mut ffi::fid_pep,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}
