//! Groups of endpoints for collective operations: `fi_join_collective`, and the `fid_mc` that it gives.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::av::AvSet;
use crate::endpoint::{Endpoint, Inner, alias};
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::optional::collectives::{EndReport, Group};

/// Membership in a group: `struct fid_mc` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Membership {
    fid: Cell<ffi::fid_mc>,
    users: Users,
    endpoint: ObjectRef<Endpoint>,
    /// The address of the group that collective calls use (`coll_addr`).
    address: u64,
}

// SAFETY: `Membership` is repr(C) and begins with the cell of a `fid_mc`, which begins with a `fid`; `join` alone puts
// `FI_OPS` into one.
unsafe impl Object for Membership {
    type Fid = ffi::fid_mc;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close));

/// Flags that restrict the group to a direction; there is none that is not needed.
const DIRECTIONS: u64 = flags::SEND | flags::RECV;

boundary::exports! {
    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(membership) = objects::retire::<Membership, _>(fid)? {
            let mut inner = membership.endpoint.lock_unchecked();
            let Inner { bindings, core } = &mut *inner;
            if let Some(core) = core {
                core.leave_group(bindings, membership.address);
            }
            drop(inner);
            membership.endpoint.release();
        }
        Ok(())
    };

    /// Implements `fi_join_collective`. A group is made of an address-vector set; groups that a fabric
    /// manager makes are not supported.
    pub(crate) status join(
        ep: *mut ffi::fid_ep,
        addr: *const c_void,
        flags: u64,
        mc: *mut *mut ffi::fid_mc,
        context: *mut c_void,
    ) -> c_int => {
        if flags & flags::COLLECTIVE == 0 {
            return Err(Errno::NOSYS);
        }
        if flags & !(flags::COLLECTIVE | DIRECTIONS) != 0 {
            return Err(Errno::BADFLAGS);
        }
        alias::endpoint(ep)?;
        let (place, ep) = (Out::new(mc)?, objects::share::<Endpoint, _>(ep)?);
        let addr = addr.cast::<ffi::fi_collective_addr>().as_ref().ok_or(Errno::INVAL)?;
        let set = objects::get::<AvSet, _>(addr.set)?;
        place.write(begin(&ep, set, context)?)
    };
}

/// Begins to join the group of a set's members, which all members do in the same way.
fn begin(ep: &Arc<Endpoint>, set: &AvSet, context: *mut c_void) -> Result<*mut ffi::fid_mc> {
    if !ep.settings.collective {
        log::info!("fi_join_collective refused: the endpoint was opened without FI_COLLECTIVE");
        return Err(Errno::OPNOTSUPP);
    }
    let address = ep.settings.groups.fetch_add(1, Ordering::Relaxed) | 1 << 63;
    let mut inner = ep.lock()?;
    let Inner { bindings, core } = &mut *inner;
    let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
    let av = bindings.av.as_ref().ok_or(Errno::NOAV)?;
    if !bindings.has_events() {
        log::info!("fi_join_collective refused: no event queue is bound");
        return Err(Errno::NOEQ);
    }
    if !core::ptr::eq(&raw const ***av, set.av()) {
        log::info!("fi_join_collective refused: the set belongs to another address vector");
        return Err(Errno::INVAL);
    }
    let group = Group::of(set, core.name())?;
    let membership = Arc::new(Membership {
        fid: Cell::new(ffi::fid_mc {
            fid: objects::fid(class::MC, context, &FI_OPS.0),
            fi_addr: address,
        }),
        users: Users::default(),
        endpoint: ObjectRef::new(Arc::clone(ep)),
        address,
    });
    let end = EndReport::Join { fid: Arc::as_ptr(&membership).addr(), context: context.addr() };
    let began = core.join_group(bindings, address, group, end);
    if ep.domain.progress().is_none() {
        bindings.await_join(ep.weak());
    }
    drop(inner);
    if let Err(error) = began {
        membership.endpoint.release();
        return Err(error);
    }
    Ok(objects::publish(membership))
}
