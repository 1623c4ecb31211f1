//! Ordered sets of addresses of a vector (fi_av_set(3)), which name the members of collective operations.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Av;
use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, ADDR_UNSPEC, class};
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};

/// A set of addresses: `struct fid_av_set` and the provider's state behind it.
#[repr(C)]
pub(crate) struct AvSet {
    fid: Cell<ffi::fid_av_set>,
    users: Users,
    av: ObjectRef<Av>,
    members: Mutex<Vec<u64>>,
}

// SAFETY: `AvSet` is repr(C) and begins with the cell of a `fid_av_set`, which begins with a `fid`; `create` alone puts
// `FI_OPS` into one.
unsafe impl Object for AvSet {
    type Fid = ffi::fid_av_set;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close));

static OPS: Table<ffi::fi_ops_av_set> = Table(ffi::fi_ops_av_set {
    size: size_of::<ffi::fi_ops_av_set>(),
    set_union: Some(union),
    intersect: Some(intersect),
    diff: Some(diff),
    insert: Some(insert),
    remove: Some(remove),
    addr: Some(addr),
});

boundary::exports! {
    /// Creates a set of addresses of an address vector: `fi_av_set`.
    pub(super) status open(
        av: *mut ffi::fid_av,
        attr: *mut ffi::fi_av_set_attr,
        set: *mut *mut c_void,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(set.cast::<*mut ffi::fid_av_set>())?;
        let attr = attr.as_ref().ok_or(Errno::INVAL)?;
        place.write(AvSet::create(objects::share(av)?, attr, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<AvSet, _>(fid).map(drop);

    status union(to: *mut ffi::fid_av_set, from: *const ffi::fid_av_set) -> c_int =>
        objects::get::<AvSet, _>(to)?.change(objects::get(from)?, |members, others| {
            let new: Vec<u64> = others.iter().copied().filter(|addr| !members.contains(addr)).collect();
            members.extend(new);
        });

    status intersect(to: *mut ffi::fid_av_set, from: *const ffi::fid_av_set) -> c_int =>
        objects::get::<AvSet, _>(to)?
            .change(objects::get(from)?, |members, others| members.retain(|addr| others.contains(addr)));

    status diff(to: *mut ffi::fid_av_set, from: *const ffi::fid_av_set) -> c_int =>
        objects::get::<AvSet, _>(to)?
            .change(objects::get(from)?, |members, others| members.retain(|addr| !others.contains(addr)));

    status insert(set: *mut ffi::fid_av_set, fi_addr: u64) -> c_int => {
        let set = objects::get::<AvSet, _>(set)?;
        let mut members = set.members.lock();
        if members.contains(&fi_addr) || set.av.addresses().get(fi_addr).is_none() {
            return Err(Errno::INVAL);
        }
        members.push(fi_addr);
        Ok(())
    };

    status remove(set: *mut ffi::fid_av_set, fi_addr: u64) -> c_int => {
        let set = objects::get::<AvSet, _>(set)?;
        let mut members = set.members.lock();
        let at = members.iter().position(|addr| *addr == fi_addr).ok_or(Errno::INVAL)?;
        members.remove(at);
        Ok(())
    };

    /// Returns `FI_ADDR_UNSPEC` as the address for a join, because the set itself says everything.
    status addr(set: *mut ffi::fid_av_set, coll_addr: *mut u64) -> c_int => {
        objects::get::<AvSet, _>(set)?;
        Out::new(coll_addr)?.write(ADDR_UNSPEC)
    };
}

impl AvSet {
    fn create(
        av: Arc<Av>,
        attr: &ffi::fi_av_set_attr,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_av_set> {
        if attr.comm_key_size > 0 {
            log::info!(
                "fi_av_set refused: comm_key needs a fabric manager, which squall does not have"
            );
            return Err(Errno::NOSYS);
        }
        let empty = attr.start_addr == ADDR_UNSPEC && attr.end_addr == ADDR_UNSPEC;
        let range = match (empty, attr.flags & flags::UNIVERSE != 0) {
            (true, false) => None,
            (true, true) => Some((0, u64::MAX, 1)),
            (false, _) => Some((attr.start_addr, attr.end_addr, attr.stride.max(1))),
        };
        let mut members = Vec::new();
        if let Some((start, end, stride)) = range {
            if start > end {
                return Err(Errno::INVAL);
            }
            let addresses = av.addresses();
            let last = end.min((addresses.len() as u64).saturating_sub(1));
            let mut at = start;
            while at <= last {
                if addresses.get(at).is_some() {
                    members.push(at);
                }
                let Some(next) = at.checked_add(stride) else { break };
                at = next;
            }
        }
        Ok(objects::publish(Arc::new(Self {
            fid: Cell::new(ffi::fid_av_set {
                fid: objects::fid(class::AV_SET, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            av: ObjectRef::new(av),
            members: Mutex::new(members),
        })))
    }

    /// Changes the set by the members of another set of the same address vector, or by its own.
    fn change(&self, other: &Self, change: impl FnOnce(&mut Vec<u64>, &[u64])) -> Result<()> {
        if !core::ptr::eq(&raw const **self.av, &raw const **other.av) {
            log::info!(
                "AV set operation refused: the two sets belong to different address vectors"
            );
            return Err(Errno::INVAL);
        }
        let others = other.members();
        change(&mut self.members.lock(), &others);
        Ok(())
    }

    /// Returns the members of the set as indexes of the address vector, in order.
    pub(crate) fn members(&self) -> Vec<u64> {
        self.members.lock().clone()
    }

    /// Returns the address vector to which the set belongs.
    pub(crate) fn av(&self) -> &Av {
        &self.av
    }
}
