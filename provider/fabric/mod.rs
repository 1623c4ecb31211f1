//! The fabric (`fid_fabric`), which stands for an IP network.

pub(crate) mod calls;

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::boundary;
use crate::abi::ffi;
use crate::abi::flags::class;
use crate::objects::{self, Cell, Object, Table, Users};

/// A fabric: `struct fid_fabric` and the provider's state behind it.
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

impl Fabric {
    /// Returns the name of the fabric: its network, such as `10.0.0.0/24`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the libfabric API version that the application asked for.
    pub(crate) fn api_version(&self) -> u32 {
        // SAFETY: the cell holds an initialised `fid_fabric`. libfabric's fi_fabric() writes this field once,
        // after our `open` and before the application gets the fabric, without which no code calls us with
        // it; after that everyone only reads.
        unsafe { (*self.fid.get()).api_version }
    }

    /// Creates a fabric for an application of this API version, with this table of calls.
    fn create(
        name: String,
        api_version: u32,
        context: *mut c_void,
        calls: &'static Table<ffi::fi_ops_fabric>,
    ) -> *mut ffi::fid_fabric {
        objects::publish(Arc::new(Self {
            fid: Cell::new(ffi::fid_fabric {
                fid: objects::fid(class::FABRIC, context, &FI_OPS.0),
                ops: objects::table(calls),
                api_version,
            }),
            users: Users::default(),
            name,
        }))
    }
}

boundary::exports! {
    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<Fabric, _>(fid).map(drop);
}

#[cfg(test)]
mod tests {
    use core::ptr::{null, null_mut};

    use super::*;
    use crate::abi::errno::Errno;
    use crate::objects::ObjectRef;

    #[test]
    fn a_fabric_is_counted_until_it_closes() {
        let fid = Fabric::create("10.0.0.0/8".to_owned(), 7, null_mut(), &calls::OPS);
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
