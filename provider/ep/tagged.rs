//! `fi_tsend`, `fi_trecv` and their variants.

use core::ffi::c_void;

use squall_engine::Class;

use super::msg::{SEND_FLAGS, known, one};
use super::ops::{Recv, Send};
use super::{Endpoint, iovecs};
use crate::boundary;
use crate::errno::Errno;
use crate::ffi;
use crate::flags;
use crate::object::{self, Table};

pub(super) static OPS: Table<ffi::fi_ops_tagged> = Table(ffi::fi_ops_tagged {
    size: size_of::<ffi::fi_ops_tagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
});

/// Flags that mean something with a tagged receive.
const RECV_FLAGS: u64 =
    flags::COMPLETION | flags::MORE | flags::PEEK | flags::CLAIM | flags::DISCARD;

/// What differs between the sending calls.
struct Call {
    to: u64,
    tag: u64,
    data: Option<u64>,
    context: *mut c_void,
    flags: Option<u64>,
}

/// # Safety
/// An open endpoint, and a buffer as `fi_tsend` wants it.
#[inline]
unsafe fn transmit(ep: *mut ffi::fid_ep, iov: &[libc::iovec], call: &Call) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        let send = Send {
            iov,
            to: call.to,
            class: Class::Tagged,
            tag: call.tag,
            data: call.data,
            context: call.context,
            flags: call.flags.unwrap_or_else(|| ep.tx_flags()),
        };
        // SAFETY: the caller's promise.
        unsafe { ep.send(&send) }
    })
}

/// # Safety
/// As [`transmit`].
#[inline]
unsafe fn injected(
    ep: *mut ffi::fid_ep,
    iov: &[libc::iovec],
    to: u64,
    tag: u64,
    data: Option<u64>,
) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        let context = core::ptr::null_mut();
        let send = Send { iov, to, class: Class::Tagged, tag, data, context, flags: 0 };
        // SAFETY: the caller's promise.
        unsafe { ep.inject(&send, false) }
    })
}

/// What differs between the receiving calls.
struct Want {
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
    flags: Option<u64>,
}

/// # Safety
/// An open endpoint, and a buffer as `fi_trecv` wants it.
#[inline]
unsafe fn receive(ep: *mut ffi::fid_ep, iov: &[libc::iovec], want: &Want) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        // FI_MULTI_RECV is for untagged receives.
        let default = || ep.rx_flags() & !flags::MULTI_RECV;
        ep.recv(&Recv {
            iov,
            from: want.from,
            class: Class::Tagged,
            tag: want.tag,
            ignore: want.ignore,
            context: want.context,
            flags: want.flags.unwrap_or_else(default),
        })
    })
}

unsafe extern "C" fn recv(
    ep: *mut ffi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_trecv(3).
    unsafe { receive(ep, &one(buf, len), &Want { from, tag, ignore, context, flags: None }) }
}

unsafe extern "C" fn recvv(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let want = Want { from, tag, ignore, context, flags: None };
    // SAFETY: fi_trecvv(3): `count` iovecs.
    unsafe { receive(ep, iovecs(iov.cast(), count), &want) }
}

unsafe extern "C" fn recvmsg(
    ep: *mut ffi::fid_ep,
    msg: *const ffi::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: fi_trecvmsg(3): NULL is refused, else a valid message.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return Errno::INVAL.code() as isize };
    if let Err(errno) = known(flags, RECV_FLAGS) {
        return errno.code() as isize;
    }
    let want = Want {
        from: msg.addr,
        tag: msg.tag,
        ignore: msg.ignore,
        context: msg.context,
        flags: Some(flags),
    };
    // SAFETY: as above.
    unsafe { receive(ep, iovecs(msg.msg_iov.cast(), msg.iov_count), &want) }
}

unsafe extern "C" fn send(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let call = Call { to, tag, data: None, context, flags: None };
    // SAFETY: fi_tsend(3).
    unsafe { transmit(ep, &one(buf, len), &call) }
}

unsafe extern "C" fn sendv(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let call = Call { to, tag, data: None, context, flags: None };
    // SAFETY: fi_tsendv(3): `count` iovecs.
    unsafe { transmit(ep, iovecs(iov.cast(), count), &call) }
}

unsafe extern "C" fn sendmsg(
    ep: *mut ffi::fid_ep,
    msg: *const ffi::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: fi_tsendmsg(3): NULL is refused, else a valid message.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return Errno::INVAL.code() as isize };
    if let Err(errno) = known(flags, SEND_FLAGS) {
        return errno.code() as isize;
    }
    let data = (flags & flags::REMOTE_CQ_DATA != 0).then_some(msg.data);
    let call = Call { to: msg.addr, tag: msg.tag, data, context: msg.context, flags: Some(flags) };
    // SAFETY: as above.
    unsafe { transmit(ep, iovecs(msg.msg_iov.cast(), msg.iov_count), &call) }
}

unsafe extern "C" fn inject(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: fi_tinject(3).
    unsafe { injected(ep, &one(buf, len), to, tag, None) }
}

unsafe extern "C" fn senddata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let call = Call { to, tag, data: Some(data), context, flags: None };
    // SAFETY: fi_tsenddata(3).
    unsafe { transmit(ep, &one(buf, len), &call) }
}

unsafe extern "C" fn injectdata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: fi_tinjectdata(3).
    unsafe { injected(ep, &one(buf, len), to, tag, Some(data)) }
}
