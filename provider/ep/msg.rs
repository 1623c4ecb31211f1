//! `fi_send`, `fi_recv` and their variants.

use core::ffi::c_void;

use squall_engine::Class;

use super::ops::{Recv, Send};
use super::{Endpoint, iovecs};
use crate::boundary;
use crate::errno::{Errno, Result};
use crate::ffi;
use crate::flags;
use crate::object::{self, Table};

pub(super) static OPS: Table<ffi::fi_ops_msg> = Table(ffi::fi_ops_msg {
    size: size_of::<ffi::fi_ops_msg>(),
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

/// Flags that mean something with a receive.
const RECV_FLAGS: u64 = flags::COMPLETION | flags::MULTI_RECV | flags::MORE;
/// Flags that mean something with a send.
pub(super) const SEND_FLAGS: u64 = crate::info::limits::TX_OP_FLAGS
    | flags::MORE
    | flags::REMOTE_CQ_DATA
    | flags::FENCE
    | flags::COMMIT_COMPLETE;

/// One buffer as an iovec.
#[inline]
pub(super) fn one(buf: *const c_void, len: usize) -> [libc::iovec; 1] {
    [libc::iovec { iov_base: buf.cast_mut(), iov_len: len }]
}

/// What remains of flags that nobody knows is an error.
#[inline]
pub(super) fn known(given: u64, known: u64) -> Result<()> {
    if given & !known == 0 { Ok(()) } else { Err(Errno::BADFLAGS) }
}

/// What differs between the sending calls.
struct Call {
    to: u64,
    data: Option<u64>,
    context: *mut c_void,
    flags: Option<u64>,
}

/// # Safety
/// An open endpoint, and a buffer as `fi_send` wants it.
#[inline]
unsafe fn transmit(ep: *mut ffi::fid_ep, iov: &[libc::iovec], call: &Call) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        let send = Send {
            iov,
            to: call.to,
            class: Class::Msg,
            tag: 0,
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
unsafe fn injected(ep: *mut ffi::fid_ep, iov: &[libc::iovec], to: u64, data: Option<u64>) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        let context = core::ptr::null_mut();
        let send = Send { iov, to, class: Class::Msg, tag: 0, data, context, flags: 0 };
        // SAFETY: the caller's promise.
        unsafe { ep.inject(&send, false) }
    })
}

/// # Safety
/// An open endpoint, and a buffer as `fi_recv` wants it.
#[inline]
unsafe fn receive(
    ep: *mut ffi::fid_ep,
    iov: &[libc::iovec],
    from: u64,
    context: *mut c_void,
    flags: Option<u64>,
) -> isize {
    boundary::transfer(|| {
        // SAFETY: the caller's promise.
        let ep: &Endpoint = unsafe { object::get(ep)? };
        let flags = flags.unwrap_or_else(|| ep.rx_flags());
        ep.recv(&Recv { iov, from, class: Class::Msg, tag: 0, ignore: 0, context, flags })
    })
}

unsafe extern "C" fn recv(
    ep: *mut ffi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_recv(3).
    unsafe { receive(ep, &one(buf, len), from, context, None) }
}

unsafe extern "C" fn recvv(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_recvv(3): `count` iovecs.
    unsafe { receive(ep, iovecs(iov.cast(), count), from, context, None) }
}

unsafe extern "C" fn recvmsg(ep: *mut ffi::fid_ep, msg: *const ffi::fi_msg, flags: u64) -> isize {
    // SAFETY: fi_recvmsg(3): NULL is refused, else a valid message.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return Errno::INVAL.code() as isize };
    if let Err(errno) = known(flags, RECV_FLAGS) {
        return errno.code() as isize;
    }
    // SAFETY: as above.
    unsafe {
        let iov = iovecs(msg.msg_iov.cast(), msg.iov_count);
        receive(ep, iov, msg.addr, msg.context, Some(flags))
    }
}

unsafe extern "C" fn send(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_send(3).
    unsafe { transmit(ep, &one(buf, len), &Call { to, data: None, context, flags: None }) }
}

unsafe extern "C" fn sendv(
    ep: *mut ffi::fid_ep,
    iov: *const ffi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_sendv(3): `count` iovecs.
    unsafe {
        transmit(ep, iovecs(iov.cast(), count), &Call { to, data: None, context, flags: None })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut ffi::fid_ep, msg: *const ffi::fi_msg, flags: u64) -> isize {
    // SAFETY: fi_sendmsg(3): NULL is refused, else a valid message.
    let Some(msg) = (unsafe { msg.as_ref() }) else { return Errno::INVAL.code() as isize };
    if let Err(errno) = known(flags, SEND_FLAGS) {
        return errno.code() as isize;
    }
    let data = (flags & flags::REMOTE_CQ_DATA != 0).then_some(msg.data);
    let call = Call { to: msg.addr, data, context: msg.context, flags: Some(flags) };
    // SAFETY: as above.
    unsafe { transmit(ep, iovecs(msg.msg_iov.cast(), msg.iov_count), &call) }
}

unsafe extern "C" fn inject(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    to: u64,
) -> isize {
    // SAFETY: fi_inject(3).
    unsafe { injected(ep, &one(buf, len), to, None) }
}

unsafe extern "C" fn senddata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: fi_senddata(3).
    unsafe { transmit(ep, &one(buf, len), &Call { to, data: Some(data), context, flags: None }) }
}

unsafe extern "C" fn injectdata(
    ep: *mut ffi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
) -> isize {
    // SAFETY: fi_injectdata(3).
    unsafe { injected(ep, &one(buf, len), to, Some(data)) }
}
