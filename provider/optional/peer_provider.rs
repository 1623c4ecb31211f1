//! Peer providers (fi_peer(3)): completion queues and receive contexts of another provider, the *owner*, which we use
//! so that the two serve one application together. `lnx` combines shared memory and us in this way.
//!
//! The structures are those of libfabric 2.3 and later; earlier releases have others under the same names. They are no
//! part of the stable interface, so the release of the libfabric that loaded us decides whether we know them, whatever
//! version an application asked for.

pub(crate) mod receives;

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::CqErrEntry;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::domain::Domain;
use crate::host::libfabric::host;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::queues::cq::{Entry, ErrorEntry};

/// Checks that the structures for FI_PEER of the libfabric that loaded the provider are known.
///
/// # Errors
/// `FI_EINVAL`, as fi_peer(3) has it.
fn check() -> Result<()> {
    if host().has_peer_providers() {
        return Ok(());
    }
    log::info!("FI_PEER refused: it needs libfabric 2.3 or later, and the one in use is older");
    Err(Errno::INVAL)
}

/// `struct fid_peer_cq`: the completion queue of the peer-provider owner.
#[repr(C)]
struct PeerCq {
    fid: ffi::fid,
    owner_ops: *const CqOwnerOps,
}

/// `struct fi_ops_cq_owner`: the functions by which completions are written to the owner's queue.
#[repr(C)]
struct CqOwnerOps {
    size: usize,
    write: unsafe extern "C" fn(
        *mut PeerCq,
        *mut c_void,
        u64,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
    ) -> isize,
    writeerr: unsafe extern "C" fn(*mut PeerCq, *const CqErrEntry) -> isize,
}

/// `struct fi_peer_cq_context`, and the structure of the same form for receive contexts: a size and a pointer.
#[repr(C)]
struct Context<T> {
    size: usize,
    object: *mut T,
}

/// Returns the owner's object that an application's context names.
///
/// # Safety
/// `context` is NULL or a context of the call that it came with.
///
/// # Errors
/// `FI_EINVAL` for none, and where peers are not known.
unsafe fn import<T>(context: *mut c_void) -> Result<*mut T> {
    check()?;
    // SAFETY: NULL, which is refused, or a context by this function's contract.
    let context = unsafe { context.cast::<Context<T>>().as_ref() }.ok_or(Errno::INVAL)?;
    if context.object.is_null() { Err(Errno::INVAL) } else { Ok(context.object) }
}

/// The completion queue of the peer-provider owner, into which this provider's completions go.
pub(crate) struct OwnerCq(*mut PeerCq);

// SAFETY: the owner's queue is shared by all who write to it, and the owner does the locking (fi_peer(3), "write()").
unsafe impl Send for OwnerCq {}
// SAFETY: its functions may be called by several threads at once, for the owner locks; nothing else of it is touched.
unsafe impl Sync for OwnerCq {}

impl OwnerCq {
    /// Imports the queue named by the context of fi_cq_open with FI_PEER.
    ///
    /// # Safety
    /// `context` is NULL or a `fi_peer_cq_context` whose queue stays valid until ours is closed.
    ///
    /// # Errors
    /// `FI_EINVAL` for none, and where peers are not known.
    pub(crate) unsafe fn new(context: *mut c_void) -> Result<Self> {
        // SAFETY: the context is NULL or one of a queue by this function's contract.
        unsafe { import(context) }.map(Self)
    }

    /// Writes a completion into the owner's completion queue.
    pub(crate) fn write(&self, entry: &Entry) {
        let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
        // SAFETY: `new` was promised that the queue, and so its table, is valid until the queue that holds this value
        // is closed; both functions are there (fi_peer(3)). The pointers are passed on as the application gave them.
        let rc = unsafe {
            let write = (*(*self.0).owner_ops).write;
            let (context, buf) = (pointer(entry.context), pointer(entry.buf));
            write(self.0, context, entry.flags, len, buf, entry.data, entry.tag, entry.source)
        };
        if rc < 0 {
            log::error!(
                "the owner of a shared completion queue did not take a completion: error {rc}"
            );
        }
    }

    /// Writes an error entry into the owner's completion queue.
    pub(crate) fn write_error(&self, failure: &ErrorEntry) {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let ErrorEntry { entry, excess, errno, code, .. } = failure;
        // The text was logged: the owner has no way to ask us for one.
        let entry = CqErrEntry {
            op_context: pointer(entry.context),
            flags: entry.flags,
            len: size(entry.len),
            buf: pointer(entry.buf),
            data: entry.data,
            tag: entry.tag,
            olen: size(*excess),
            err: errno.0,
            prov_errno: *code,
            err_data: core::ptr::null_mut(),
            err_data_size: 0,
            src_addr: entry.source,
        };
        // SAFETY: `new` was promised that the queue and its table are valid until the queue that holds this value is
        // closed; the entry is a whole `fi_cq_err_entry` of the release that we know, a local variable that lives
        // through the call.
        let rc = unsafe { ((*(*self.0).owner_ops).writeerr)(self.0, &raw const entry) };
        if rc < 0 {
            log::error!(
                "the owner of a shared completion queue refused an error entry: error {rc}"
            );
        }
    }
}

/// Converts a number of the engine to the application's pointer.
fn pointer(address: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// `struct fi_peer_rx_entry`: the owner's entry for one message that is matched or waits.
#[repr(C)]
pub(crate) struct RxEntry {
    srx: *mut PeerSrx,
    addr: u64,
    msg_size: usize,
    tag: u64,
    cq_data: u64,
    flags: u64,
    context: *mut c_void,
    count: usize,
    desc: *mut *mut c_void,
    peer_context: *mut c_void,
    owner_context: *mut c_void,
    iov: *mut ffi::iovec,
}

/// `struct fi_peer_match_attr`: the source, tag and size of a message that the owner is to match.
#[repr(C)]
struct MatchAttr {
    addr: u64,
    msg_size: usize,
    tag: u64,
}

type GetEntryFn = unsafe extern "C" fn(*mut PeerSrx, *mut MatchAttr, *mut *mut RxEntry) -> c_int;
type EntryFn = unsafe extern "C" fn(*mut RxEntry) -> c_int;

/// `struct fi_ops_srx_owner`: the functions of the owner's shared receive context.
#[repr(C)]
struct SrxOwnerOps {
    size: usize,
    get_msg: GetEntryFn,
    get_tag: GetEntryFn,
    queue_msg: EntryFn,
    queue_tag: EntryFn,
    /// Makes the owner ask again for unknown sources. Some owners do not have this function.
    foreach_unspec_addr:
        Option<unsafe extern "C" fn(*mut PeerSrx, unsafe extern "C" fn(*mut RxEntry) -> u64)>,
    free_entry: unsafe extern "C" fn(*mut RxEntry),
}

/// `struct fi_ops_srx_peer`: the functions of this provider that the owner calls.
#[repr(C)]
pub(crate) struct SrxPeerOps {
    pub(crate) size: usize,
    pub(crate) start_msg: EntryFn,
    pub(crate) start_tag: EntryFn,
    pub(crate) discard_msg: EntryFn,
    pub(crate) discard_tag: EntryFn,
}

/// `struct fid_peer_srx`: the shared receive context of the owner.
#[repr(C)]
struct PeerSrx {
    ep_fid: ffi::fid_ep,
    owner_ops: *const SrxOwnerOps,
    peer_ops: *mut SrxPeerOps,
}

/// A message for which the owner is asked for a matching receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) tagged: bool,
    pub(crate) tag: u64,
    pub(crate) len: u64,
    /// Source of the message (`fi_addr_t`), as far as it is known.
    pub(crate) source: u64,
    pub(crate) data: Option<u64>,
}

/// An entry that the owner has given to this provider, until it is given back.
pub(crate) struct OwnerEntry(*mut RxEntry);

// SAFETY: an entry belongs to one side at a time, and the owner gives and takes it under its lock (fi_peer(3)); which
// thread of ours looks at it then does not matter.
unsafe impl Send for OwnerEntry {}

/// The owner's answer to the question for a receive that matches a message.
pub(crate) enum MatchResult {
    /// The owner has a receive for the message, which this entry describes.
    Receive(OwnerEntry),
    /// The message must wait at the owner for a receive. This entry stands for it.
    Wait(OwnerEntry),
}

impl OwnerEntry {
    /// Returns the entry's pointer, to give the entry back to the owner.
    fn into_raw(self) -> *mut RxEntry {
        self.0
    }

    /// Returns the application's context of the receive.
    pub(crate) fn context(&self) -> u64 {
        // SAFETY: the owner lent the entry, so it is there until it is given back.
        unsafe { (*self.0).context }.expose_provenance() as u64
    }

    /// Returns the flags of the receive, such as FI_COMPLETION.
    pub(crate) fn flags(&self) -> u64 {
        // SAFETY: the owner lent the entry, so it is there until it is given back.
        unsafe { (*self.0).flags }
    }

    /// Returns the pieces of the receive's buffer and their number.
    pub(crate) fn pieces(&self) -> (*const ffi::iovec, usize) {
        // SAFETY: the owner lent the entry, so it is there until it is given back.
        unsafe { ((*self.0).iov.cast_const(), (*self.0).count) }
    }
}

/// A shared receive context, `struct fid_ep`, which refers to the one of the peer-provider owner.
#[repr(C)]
pub(crate) struct Srx {
    fid: Cell<ffi::fid_ep>,
    users: Users,
    domain: ObjectRef<Domain>,
    owner: *mut PeerSrx,
}

// SAFETY: the owner's context is valid until ours is closed (fi_peer(3)), and of it only the functions are used, which
// the owner's own lock serialises; the rest of `Srx` may be shared anyway.
unsafe impl Send for Srx {}
// SAFETY: as for `Send`: what is used at once by several threads is locked by the owner.
unsafe impl Sync for Srx {}

// SAFETY: `Srx` is repr(C) and begins with the cell of a `fid_ep`, which begins with a `fid`; `open` alone puts
// `FI_OPS` into one.
unsafe impl Object for Srx {
    type Fid = ffi::fid_ep;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close));

boundary::exports! {
    /// Imports the shared receive context of a peer-provider owner: `fi_srx_context`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut ffi::fi_rx_attr,
        srx: *mut *mut ffi::fid_ep,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(srx)?;
        if attr.as_ref().is_none_or(|attr| attr.op_flags & flags::PEER == 0) {
            log::info!(
                "fi_srx_context refused: squall supports it for peer providers only (FI_PEER in op_flags)"
            );
            return Err(Errno::NOSYS);
        }
        place.write(Srx::import(objects::share(domain)?, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<Srx, _>(fid).map(drop);
}

impl Srx {
    /// # Safety
    /// `context` is NULL or a `fi_peer_srx_context` whose receive context stays valid until ours is closed.
    unsafe fn import(domain: Arc<Domain>, context: *mut c_void) -> Result<*mut ffi::fid_ep> {
        // SAFETY: the context is NULL or one of a receive context by this function's contract.
        let owner: *mut PeerSrx = unsafe { import(context)? };
        // SAFETY: the owner's context is valid by this function's contract; its peer's functions are ours to set.
        unsafe {
            (*owner).peer_ops = core::ptr::from_ref(&receives::OPS).cast_mut();
        };
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_ep {
                fid: objects::fid(class::SRX_CTX, core::ptr::null_mut(), &FI_OPS.0),
                ops: core::ptr::null_mut(),
                cm: core::ptr::null_mut(),
                msg: objects::table(&MSG),
                rma: core::ptr::null_mut(),
                tagged: objects::table(&TAGGED),
                atomic: core::ptr::null_mut(),
                collective: core::ptr::null_mut(),
            }),
            users: Users::default(),
            domain: ObjectRef::new(domain),
            owner,
        });
        Ok(objects::publish(opened))
    }

    /// Returns whether the context was opened on this domain.
    pub(crate) fn belongs_to(&self, domain: &Domain) -> bool {
        core::ptr::eq(&raw const **self.domain, domain)
    }

    /// Returns the functions of the owner's shared receive context.
    fn owner_ops(&self) -> &SrxOwnerOps {
        // SAFETY: `import` was promised that the owner's context, whose table this is, stays valid until this object is
        // closed.
        unsafe { &*(*self.owner).owner_ops }
    }

    /// Asks the owner for a receive that matches a message.
    ///
    /// # Errors
    /// The owner's error.
    pub(crate) fn get(&self, arrival: &Arrival) -> Result<MatchResult> {
        let msg_size = usize::try_from(arrival.len).unwrap_or(usize::MAX);
        let mut attr = MatchAttr { addr: arrival.source, msg_size, tag: arrival.tag };
        let mut entry: *mut RxEntry = core::ptr::null_mut();
        let get = if arrival.tagged { self.owner_ops().get_tag } else { self.owner_ops().get_msg };
        // SAFETY: the owner's function, with its own context, and places that live through the call; the caller that
        // makes us progress holds the owner's lock (fi_peer(3)).
        let rc = unsafe { get(self.owner, &raw mut attr, &raw mut entry) };
        match (rc, entry.is_null()) {
            (0, false) => Ok(MatchResult::Receive(OwnerEntry(entry))),
            (rc, false) if rc == Errno::NOENT.code() => Ok(MatchResult::Wait(OwnerEntry(entry))),
            (rc, _) => {
                log::error!(
                    "the owner of a shared receive context found no place for a message: error {rc}"
                );
                Err(Errno(rc.saturating_neg().max(1)))
            }
        }
    }

    /// Queues a message at the owner, which later gives `entry` back through `start_*` or `discard_*`. These find
    /// `waiting` in the entry.
    ///
    /// # Errors
    /// The owner's error; then it does not have the message.
    pub(crate) fn queue(
        &self,
        arrival: &Arrival,
        entry: OwnerEntry,
        waiting: *mut c_void,
    ) -> Result<()> {
        let queue =
            if arrival.tagged { self.owner_ops().queue_tag } else { self.owner_ops().queue_msg };
        let entry = entry.into_raw();
        // SAFETY: the owner lent the entry for this message, and its other fields are the owner's; `import` was
        // promised that its table is valid, and the caller that makes us progress holds its lock (fi_peer(3)).
        let rc = unsafe {
            (*entry).peer_context = waiting;
            if let Some(data) = arrival.data {
                (*entry).cq_data = data;
                (*entry).flags |= flags::REMOTE_CQ_DATA;
            }
            queue(entry)
        };
        if rc == 0 { Ok(()) } else { Err(Errno(rc.saturating_neg().max(1))) }
    }

    /// Gives an entry that is not used any more back to the owner.
    pub(crate) fn free(&self, entry: OwnerEntry) {
        // SAFETY: the owner lent it, and nothing of ours names it after `into_raw`; `import` was
        // promised that the table is valid, and the caller that makes us progress holds the owner's lock (fi_peer(3)).
        unsafe { (self.owner_ops().free_entry)(entry.into_raw()) }
    }

    /// Makes the owner ask again for the sources of waiting messages whose source was not known.
    pub(crate) fn refresh_sources(&self, source: unsafe extern "C" fn(*mut RxEntry) -> u64) {
        if let Some(each) = self.owner_ops().foreach_unspec_addr {
            // SAFETY: the owner's function with its own context; it calls `source` with entries that wait.
            unsafe { each(self.owner, source) }
        }
    }
}

/// Takes back an entry from the owner. Returns the message that waited with it, and the entry.
///
/// # Safety
/// `entry` is NULL or one that [`Srx::queue`] left to an owner, which gives it back.
///
/// # Errors
/// `FI_EINVAL` for none.
pub(crate) unsafe fn take_back_entry<'a, T>(entry: *mut RxEntry) -> Result<(&'a T, OwnerEntry)> {
    // SAFETY: NULL, which is refused, or an entry by this function's contract, whose peer's context `queue` set; what
    // that points to lives until the message is taken out of the list of those that wait.
    unsafe {
        let waiting = entry.as_ref().ok_or(Errno::INVAL)?.peer_context.cast::<T>();
        Ok((waiting.as_ref().ok_or(Errno::INVAL)?, OwnerEntry(entry)))
    }
}

macro_rules! refused {
    ($($name:ident($($type:ty),*);)*) => {
        $(unsafe extern "C" fn $name($(_: $type),*) -> isize {
            Errno::NOSYS.code() as isize
        })*
    };
}

type Ep = *mut ffi::fid_ep;
type VoidPtr = *mut c_void;

// Receives are posted to the owner, not to our context.
refused! {
    recv(Ep, VoidPtr, usize, VoidPtr, u64, VoidPtr);
    recvv(Ep, *const ffi::iovec, *mut VoidPtr, usize, u64, VoidPtr);
    recvmsg(Ep, *const ffi::fi_msg, u64);
    trecv(Ep, VoidPtr, usize, VoidPtr, u64, u64, u64, VoidPtr);
    trecvv(Ep, *const ffi::iovec, *mut VoidPtr, usize, u64, u64, u64, VoidPtr);
    trecvmsg(Ep, *const ffi::fi_msg_tagged, u64);
}

static MSG: Table<ffi::fi_ops_msg> = Table(ffi::fi_ops_msg {
    size: size_of::<ffi::fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: None,
    sendv: None,
    sendmsg: None,
    inject: None,
    senddata: None,
    injectdata: None,
});

static TAGGED: Table<ffi::fi_ops_tagged> = Table(ffi::fi_ops_tagged {
    size: size_of::<ffi::fi_ops_tagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: None,
    sendv: None,
    sendmsg: None,
    inject: None,
    senddata: None,
    injectdata: None,
});

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn the_structures_are_those_of_fi_peer() {
        assert_eq!((size_of::<PeerCq>(), offset_of!(PeerCq, owner_ops)), (32, 24));
        assert_eq!(size_of::<CqOwnerOps>(), 24);
        assert_eq!(size_of::<Context<PeerCq>>(), 16);
        assert_eq!(size_of::<RxEntry>(), 96);
        assert_eq!(offset_of!(RxEntry, peer_context), 72);
        assert_eq!(offset_of!(RxEntry, iov), 88);
        assert_eq!(size_of::<MatchAttr>(), 24);
        assert_eq!(size_of::<SrxOwnerOps>(), 56);
        assert_eq!(size_of::<SrxPeerOps>(), 40);
        assert_eq!((size_of::<PeerSrx>(), offset_of!(PeerSrx, owner_ops)), (96, 80));
    }
}
