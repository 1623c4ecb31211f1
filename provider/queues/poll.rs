//! Poll sets: several queues and counters that the application polls together.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::class;
use crate::domain::Domain;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::queues::cntr::Cntr;
use crate::queues::cq::Cq;

/// A queue or counter in a poll set.
#[derive(Clone)]
enum Member {
    Cq(ObjectRef<Cq>),
    Cntr(ObjectRef<Cntr>),
}

/// A poll set: `struct fid_poll` and the provider's state behind it.
#[repr(C)]
pub(crate) struct PollSet {
    fid: Cell<ffi::fid_poll>,
    users: Users,
    _domain: ObjectRef<Domain>,
    members: Mutex<Vec<Member>>,
}

// SAFETY: `PollSet` is repr(C) and begins with the cell of a `fid_poll`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for PollSet {
    type Fid = ffi::fid_poll;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close));

static OPS: Table<ffi::fi_ops_poll> = Table(ffi::fi_ops_poll {
    size: size_of::<ffi::fi_ops_poll>(),
    poll: Some(poll),
    poll_add: Some(add),
    poll_del: Some(delete),
});

boundary::exports! {
    /// Opens a poll set: `fi_poll_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut ffi::fi_poll_attr,
        set: *mut *mut ffi::fid_poll,
    ) -> c_int => {
        let place = Out::new(set)?;
        if attr.as_ref().is_some_and(|attr| attr.flags != 0) {
            return Err(Errno::INVAL);
        }
        place.write(PollSet::create(objects::share(domain)?))
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<PollSet, _>(fid).map(drop);

    count poll(set: *mut ffi::fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int => {
        let set = objects::get::<PollSet, _>(set)?;
        let room = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if contexts.is_null() && room > 0 {
            return Err(Errno::INVAL);
        }
        let found = set.poll(room);
        for (i, context) in found.iter().enumerate() {
            contexts.add(i).write(*context);
        }
        Ok(found.len())
    };

    status add(set: *mut ffi::fid_poll, fid: *mut ffi::fid, flags: u64) -> c_int => {
        let (set, member) = (objects::get::<PollSet, _>(set)?, member(fid)?);
        set.add(member, flags)
    };

    status delete(set: *mut ffi::fid_poll, fid: *mut ffi::fid, flags: u64) -> c_int => {
        let (set, member) = (objects::get::<PollSet, _>(set)?, member(fid)?);
        set.delete(&member, flags)
    };
}

/// Returns the queue or counter behind a pointer.
///
/// # Safety
/// `fid` is NULL or an open object that stays open during the call.
///
/// # Errors
/// `FI_EINVAL` for all else.
unsafe fn member(fid: *mut ffi::fid) -> Result<Member> {
    // SAFETY: NULL, which is refused, or an open object by this function's contract; `share` looks whose it is.
    unsafe {
        match fid.as_ref().ok_or(Errno::INVAL)?.fclass {
            class::CQ => Ok(Member::Cq(ObjectRef::new(objects::share(fid)?))),
            class::CNTR => Ok(Member::Cntr(ObjectRef::new(objects::share(fid)?))),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Member {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cq(a), Self::Cq(b)) => Arc::ptr_eq(a, b),
            (Self::Cntr(a), Self::Cntr(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Returns the context of the queue or counter if there is something new to read.
    fn ready_context(&self) -> Option<*mut c_void> {
        match self {
            Self::Cq(cq) => cq.is_ready().then(|| cq.context()),
            Self::Cntr(cntr) => cntr.take_ready().then(|| cntr.context()),
        }
    }
}

impl Member {
    fn progress(&self) {
        match self {
            Self::Cq(cq) => cq.progress(),
            Self::Cntr(cntr) => cntr.progress(),
        };
    }
}

impl PollSet {
    /// Creates an empty poll set.
    fn create(domain: Arc<Domain>) -> *mut ffi::fid_poll {
        objects::publish(Arc::new(Self {
            fid: Cell::new(ffi::fid_poll {
                fid: objects::fid(class::POLL, core::ptr::null_mut(), &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            _domain: ObjectRef::new(domain),
            members: Mutex::default(),
        }))
    }

    fn add(&self, member: Member, flags: u64) -> Result<()> {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let mut members = self.members.lock();
        if !members.iter().any(|other| other.is_same(&member)) {
            members.push(member);
        }
        Ok(())
    }

    fn delete(&self, member: &Member, flags: u64) -> Result<()> {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let mut members = self.members.lock();
        let at = members.iter().position(|other| other.is_same(member)).ok_or(Errno::INVAL)?;
        members.remove(at);
        Ok(())
    }

    /// Returns the contexts of at most `room` members that have something new to read. All members make progress; those
    /// for which there was no room are found again by the next call.
    fn poll(&self, room: usize) -> Vec<*mut c_void> {
        // Not under the lock: members make progress.
        let members = self.members.lock().clone();
        let mut found = Vec::new();
        members.iter().for_each(Member::progress);
        for member in &members {
            if found.len() < room {
                found.extend(member.ready_context());
            }
        }
        found
    }
}
