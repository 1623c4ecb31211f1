//! `fi_read`, `fi_write` and their variants.

use core::ffi::c_void;

use squall_engine::{RemoteIov, RemoteSeg, RmaOp};

use super::msg::{SEND_FLAGS, known, one};
use super::ops::{Gathered, buffer, context_of, notify};
use super::{Endpoint, iovecs};
use crate::boundary;
use crate::clock;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags;
use crate::info::limits;
use crate::object::{self, Table};

pub(super) static OPS: Table<ffi::fi_ops_rma> = Table(ffi::fi_ops_rma {
    size: size_of::<ffi::fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
});

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

/// An operation of any kind.
struct Access<'a> {
    way: Way,
    iov: &'a [libc::iovec],
    peer: u64,
    remote: RemoteIov,
    data: Option<u64>,
    context: *mut c_void,
    /// `None`: the endpoint's default flags.
    flags: Option<u64>,
    /// Copied now, and no completion entry (fi_inject_write).
    silent: bool,
}

/// The remote side of a call with one range.
fn range(address: u64, iov: &[libc::iovec], key: u64) -> RemoteIov {
    let len = iov.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.iov_len as u64));
    RemoteIov::One(RemoteSeg { address, len, key })
}

/// # Safety
/// An open endpoint, and buffers as fi_rma(3) wants them.
#[inline]
unsafe fn start(ep: *mut ffi::fid_ep, access: Access<'_>) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        // SAFETY: the caller's promise.
        unsafe { ep.access(access) }
    })
}

impl Endpoint {
    /// # Safety
    /// The local buffers are valid until the completion, or readable now when injected.
    unsafe fn access(&self, access: Access<'_>) -> Result<()> {
        let flags = access.flags.unwrap_or_else(|| self.tx_flags());
        let mut inner = self.enter()?;
        let shows = !access.silent && inner.bindings.tx.shows(flags);
        // A read cannot be injected: its buffer is written later. Fewer bytes than a packet are
        // copied at once, also when the flags ask for it.
        let inject = access.silent || (access.way == Way::Write && flags & flags::INJECT != 0);
        let len;
        let result = if let (true, RemoteIov::One(remote)) = (inject, &access.remote) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { Gathered::new(access.iov)? };
            let payload = bytes.as_slice();
            len = payload.len() as u64;
            let (core, peer) = inner.peer(access.peer)?;
            core.engine.inject_write(clock::now(), peer, payload, *remote, access.data)
        } else {
            let buf = buffer(access.iov)?;
            len = buf.len();
            let (core, peer) = inner.peer(access.peer)?;
            let op = RmaOp {
                peer,
                buf,
                remote: access.remote,
                data: access.data,
                context: context_of(access.context),
                notify: notify(shows),
            };
            match access.way {
                Way::Read => core.engine.read(clock::now(), op),
                Way::Write => core.engine.write(clock::now(), op),
            }
        };
        match result {
            Ok(()) => {
                if let Some(core) = inner.core.as_mut() {
                    let bytes = if access.way == Way::Write { len } else { 0 };
                    self.posted(core, clock::now(), bytes, flags);
                }
                if inject && shows {
                    inner.bindings.show(access.context, flags::RMA | flags::WRITE);
                }
                Ok(())
            }
            Err(refused) => Err(self.refused(&mut inner, refused)),
        }
    }
}

/// # Safety
/// As [`start`], with a valid message.
unsafe fn message(
    ep: *mut ffi::fid_ep,
    msg: *const ffi::fi_msg_rma,
    flags: u64,
    way: Way,
) -> isize {
    // SAFETY: NULL is refused, else a valid message.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return Errno::INVAL.code() as isize };
    if let Err(errno) = known(flags, SEND_FLAGS) {
        return errno.code() as isize;
    }
    if msg.rma_iov_count > limits::RMA_IOV_LIMIT || msg.rma_iov.is_null() {
        return Errno::INVAL.code() as isize;
    }
    // SAFETY: the message names `rma_iov_count` remote ranges and `iov_count` local pieces.
    let (ranges, iov) = unsafe {
        (
            core::slice::from_raw_parts(msg.rma_iov, msg.rma_iov_count),
            iovecs(msg.msg_iov.cast(), msg.iov_count),
        )
    };
    let seg = |r: &ffi::fi_rma_iov| RemoteSeg { address: r.addr, len: r.len as u64, key: r.key };
    let remote = match ranges {
        [one] => RemoteIov::One(seg(one)),
        many => RemoteIov::Many(many.iter().map(seg).collect()),
    };
    let data = (flags & flags::REMOTE_CQ_DATA != 0).then_some(msg.data);
    let access = Access {
        way,
        iov,
        peer: msg.addr,
        remote,
        data,
        context: msg.context,
        flags: Some(flags),
        silent: false,
    };
    // SAFETY: the caller's promise.
    unsafe { start(ep, access) }
}

unsafe extern "C" fn read(
    ep: *mut ffi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let iov = &one(buf, len);
    let remote = range(addr, iov, key);
    // SAFETY: fi_read(3).
    unsafe {
        let way = Way::Read;
        start(
            ep,
            Access { way, iov, peer, remote, data: None, context, flags: None, silent: false },
        )
    }
}

unsafe extern "C" fn readv(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_readv(3): `count` iovecs.
    unsafe {
        let iov = iovecs(iov.cast(), count);
        let (way, remote) = (Way::Read, range(addr, iov, key));
        start(
            ep,
            Access { way, iov, peer, remote, data: None, context, flags: None, silent: false },
        )
    }
}

unsafe extern "C" fn readmsg(
    ep: *mut ffi::fid_ep,
    msg: *const ffi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: fi_readmsg(3).
    unsafe { message(ep, msg, flags & !flags::REMOTE_CQ_DATA, Way::Read) }
}

unsafe extern "C" fn write(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let iov = &one(buf, len);
    let (way, remote) = (Way::Write, range(addr, iov, key));
    // SAFETY: fi_write(3).
    unsafe {
        start(
            ep,
            Access { way, iov, peer, remote, data: None, context, flags: None, silent: false },
        )
    }
}

unsafe extern "C" fn writev(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_writev(3): `count` iovecs.
    unsafe {
        let iov = iovecs(iov.cast(), count);
        let (way, remote) = (Way::Write, range(addr, iov, key));
        start(
            ep,
            Access { way, iov, peer, remote, data: None, context, flags: None, silent: false },
        )
    }
}

unsafe extern "C" fn writemsg(
    ep: *mut ffi::fid_ep,
    msg: *const ffi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: fi_writemsg(3).
    unsafe { message(ep, msg, flags, Way::Write) }
}

unsafe extern "C" fn inject(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    let iov = &one(buf, len);
    let (way, remote, context) = (Way::Write, range(addr, iov, key), core::ptr::null_mut());
    // SAFETY: fi_inject_write(3).
    unsafe {
        start(ep, Access { way, iov, peer, remote, data: None, context, flags: None, silent: true })
    }
}

unsafe extern "C" fn writedata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let iov = &one(buf, len);
    let (way, remote, data) = (Way::Write, range(addr, iov, key), Some(data));
    // SAFETY: fi_writedata(3).
    unsafe {
        start(ep, Access { way, iov, peer, remote, data, context, flags: None, silent: false })
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    let iov = &one(buf, len);
    let (way, remote, data) = (Way::Write, range(addr, iov, key), Some(data));
    let context = core::ptr::null_mut();
    // SAFETY: fi_inject_writedata(3).
    unsafe {
        start(ep, Access { way, iov, peer, remote, data, context, flags: None, silent: true })
    }
}
