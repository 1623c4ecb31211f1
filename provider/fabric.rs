//! The fabric: an IP network. Opens domains and event queues.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::boundary::{self, Out};
use crate::domain;
use crate::eq;
use crate::errno::Errno;
use crate::ffi;
use crate::flags::class;
use crate::info;
use crate::objects::{self, Cell, Object, Table, Users};
use crate::wait;

/// `struct fid_fabric` and what is behind it.
#[repr(C)]
pub(crate) struct Fabric {
    fid: Cell<ffi::fid_fabric>,
    users: Users,
    name: String,
}

// SAFETY: `Fabric` is repr(C) and begins with the cell of a `fid_fabric`, which begins with a `fid`;
// `create` alone puts `FI_OPS` into one.
unsafe impl Object for Fabric {
    type Fid = ffi::fid_fabric;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close));

static OPS: Table<ffi::fi_ops_fabric> = Table(ffi::fi_ops_fabric {
    size: size_of::<ffi::fi_ops_fabric>(),
    domain: Some(domain_open),
    passive_ep: Some(passive_ep),
    eq_open: Some(eq::open),
    wait_open: Some(wait::set::open),
    trywait: Some(wait::trywait),
    domain2: Some(domain2),
});

impl Fabric {
    /// The network's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The libfabric API version that the application asked for.
    pub(crate) fn api_version(&self) -> u32 {
        // SAFETY: the cell holds an initialised `fid_fabric`. libfabric's fi_fabric() writes this field once,
        // after our `open` and before the application gets the fabric, without which no code calls us with
        // it; after that everyone only reads.
        unsafe { (*self.fid.get()).api_version }
    }

    /// Opens a fabric for an application of this API version.
    fn create(name: String, api_version: u32, context: *mut c_void) -> *mut ffi::fid_fabric {
        objects::publish(Arc::new(Self {
            fid: Cell::new(ffi::fid_fabric {
                fid: objects::fid(class::FABRIC, context, &FI_OPS.0),
                ops: objects::table(&OPS),
                api_version,
            }),
            users: Users::default(),
            name,
        }))
    }
}

boundary::exports! {
    /// `fi_provider::fabric`.
    pub(crate) status open(
        attr: *mut ffi::fi_fabric_attr,
        fabric: *mut *mut ffi::fid_fabric,
        context: *mut c_void,
    ) -> c_int => {
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        let name = boundary::text(attr.name).unwrap_or_default();
        Out::new(fabric)?.write(Fabric::create(name, attr.api_version, context))
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<Fabric, _>(fid).map(drop);

    status domain_open(
        fabric: *mut ffi::fid_fabric,
        info: *mut ffi::fi_info,
        domain: *mut *mut ffi::fid_domain,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(domain)?;
        place.write(domain::open(objects::share(fabric)?, &info::read_attributes(info)?, context)?)
    };

    /// `fi_domain2`: flags ask for another provider's domain, and domains are not shared.
    status domain2(
        fabric: *mut ffi::fid_fabric,
        info: *mut ffi::fi_info,
        domain: *mut *mut ffi::fid_domain,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        if flags & crate::flags::PEER != 0 {
            // fi_peer(3).
            return Err(Errno::INVAL);
        }
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let place = Out::new(domain)?;
        place.write(domain::open(objects::share(fabric)?, &info::read_attributes(info)?, context)?)
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

#[cfg(test)]
mod tests {
    use core::ptr::{null, null_mut};

    use super::*;
    use crate::objects::ObjectRef;

    #[test]
    fn a_fabric_is_counted_until_it_closes() {
        let fid = Fabric::create("10.0.0.0/8".to_owned(), 7, null_mut());
        // SAFETY: `create` published the fabric, and it is still open.
        let shared = unsafe { objects::share::<Fabric, _>(fid) }.expect("ours");
        assert_eq!((shared.name(), shared.api_version()), ("10.0.0.0/8", 7));
        assert_eq!(Arc::strong_count(&shared), 2);
        let held = ObjectRef::new(shared);
        // SAFETY: the fabric is open; it is used again only because this is refused.
        let refused = unsafe { objects::retire::<Fabric, _>(fid) };
        assert_eq!(refused.err(), Some(Errno::BUSY));
        drop(held);
        // SAFETY: the fabric is open, and `fid` is not used afterwards.
        let last = unsafe { objects::retire::<Fabric, _>(fid) }.expect("nobody holds it");
        assert_eq!(last.as_ref().map(Arc::strong_count), Some(1));
    }

    #[test]
    fn an_object_of_another_provider_is_not_ours() {
        let foreign = ffi::fid { fclass: class::FABRIC, context: null_mut(), ops: null_mut() };
        // SAFETY: NULL, and a `struct fid` that outlives the call. What is behind it is not looked at, because
        // its table is not ours.
        let found = unsafe {
            (
                objects::get::<Fabric, ffi::fid>(null()).err(),
                objects::get::<Fabric, _>(&raw const foreign).err(),
            )
        };
        assert_eq!(found, (Some(Errno::INVAL), Some(Errno::INVAL)));
    }
}
