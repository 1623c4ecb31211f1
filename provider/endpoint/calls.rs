//! The C functions of the data calls, such as `fi_send`, `fi_trecv` and `fi_writemsg`. Each converts its arguments to
//! one description of the call, which `transmit.rs` and `receive.rs` execute.

use core::ffi::c_void;

use squall_engine::{Action, MatchSpace, RemoteIov, RemoteSeg};

pub(crate) use super::receive::Receive;
pub(crate) use super::transmit::Transmit;
use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi::{self, fid_ep};
use crate::endpoint::buffer::{context_of, gather, lend};
use crate::endpoint::{Endpoint, alias};
use crate::host::limits;
use crate::objects::{self, Table};

/// Local buffer from which a call sends or writes.
type In = *const c_void;
/// Local buffer into which a call receives or reads; also a descriptor or a context.
type Out = *mut c_void;
/// Descriptors of the several pieces of a buffer.
type Descs = *mut *mut c_void;
/// Descriptor of the inject calls, which have none, because they copy host memory.
const NO_DESC: Out = core::ptr::null_mut();
/// Several pieces of a buffer (an iovec).
type Iov = *const ffi::iovec;

/// Defines functions of libfabric's tables that convert their arguments to the description of a call and pass it to a
/// method of the endpoint.
macro_rules! calls {
    ($method:ident: $($rows:tt)*) => {
        calls! { $method(ep): $($rows)* }
    };
    ($method:ident($ep:ident): $($name:ident($($argument:ident: $type:ty),*) => $call:expr;)*) => {
        $(
            unsafe extern "C" fn $name($ep: *mut fid_ep, $($argument: $type),*) -> isize {
                boundary::transfer(|| {
                    // SAFETY: only libfabric's inline functions call this, through the table of an
                    // endpoint that we published, for an application that keeps to the manual page of the
                    // call: the endpoint stays open until the call returns; an array of pieces has as many as the
                    // count beside it says, and a message is NULL or a structure of its type, neither
                    // written to before the call returns (`gather` and `ranges` copy what they say); the
                    // bytes that they or `buf` name stay mapped until the operation completes, or, when it
                    // is injected, until the call returns, which is what `transmit` and `receive` rely on.
                    // An alias, which has the same tables, is looked for when it is no endpoint.
                    unsafe {
                        match objects::get::<Endpoint, _>($ep) {
                            Ok($ep) => $ep.$method($call),
                            Err(_) => alias::get($ep)?.$method(|$ep| {
                                let _ = $ep;
                                Ok($call)
                            }),
                        }
                    }
                })
            }
        )*
    };
}

mod atomic;
mod collective;

/// The calls of `fi_msg(3)`: untagged sends and receives.
mod msg {
    use super::*;
    use MatchSpace::Untagged;

    calls! { transmit:
        send(buf: In, len: usize, d: Out, to: u64, cx: Out) =>
            message(Untagged, 0, lend(buf, len, d)?, to).context(cx);
        sendv(iov: Iov, d: Descs, n: usize, to: u64, cx: Out) =>
            message(Untagged, 0, gather(iov, d, n)?, to).context(cx);
        senddata(buf: In, len: usize, d: Out, data: u64, to: u64, cx: Out) =>
            message(Untagged, 0, lend(buf, len, d)?, to).context(cx).data(data);
        inject(buf: In, len: usize, to: u64) =>
            message(Untagged, 0, lend(buf, len, NO_DESC)?, to).with_inject();
        injectdata(buf: In, len: usize, data: u64, to: u64) =>
            message(Untagged, 0, lend(buf, len, NO_DESC)?, to).with_inject().data(data);
        sendmsg(msg: *const ffi::fi_msg, flags: u64) => send_msg(msg, flags)?;
    }

    calls! { receive:
        recv(buf: Out, len: usize, d: Out, from: u64, cx: Out) =>
            receive(Untagged, 0, 0, lend(buf, len, d)?, from, cx);
        recvv(iov: Iov, d: Descs, n: usize, from: u64, cx: Out) =>
            receive(Untagged, 0, 0, gather(iov, d, n)?, from, cx);
        recvmsg(msg: *const ffi::fi_msg, flags: u64) => receive_msg(msg, flags)?;
    }

    pub(in crate::endpoint) static OPS: Table<ffi::fi_ops_msg> = Table(ffi::fi_ops_msg {
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
}

/// The calls of `fi_tagged(3)`: tagged sends and receives.
mod tagged {
    use super::*;
    use MatchSpace::Tagged;

    calls! { transmit:
        send(buf: In, len: usize, d: Out, to: u64, tag: u64, cx: Out) =>
            message(Tagged, tag, lend(buf, len, d)?, to).context(cx);
        sendv(iov: Iov, d: Descs, n: usize, to: u64, tag: u64, cx: Out) =>
            message(Tagged, tag, gather(iov, d, n)?, to).context(cx);
        senddata(buf: In, len: usize, d: Out, data: u64, to: u64, tag: u64, cx: Out) =>
            message(Tagged, tag, lend(buf, len, d)?, to).context(cx).data(data);
        inject(buf: In, len: usize, to: u64, tag: u64) =>
            message(Tagged, tag, lend(buf, len, NO_DESC)?, to).with_inject();
        injectdata(buf: In, len: usize, data: u64, to: u64, tag: u64) =>
            message(Tagged, tag, lend(buf, len, NO_DESC)?, to).with_inject().data(data);
        sendmsg(msg: *const ffi::fi_msg_tagged, flags: u64) => send_tagged(msg, flags)?;
    }

    calls! { receive:
        recv(buf: Out, len: usize, d: Out, from: u64, tag: u64, ignore: u64, cx: Out) =>
            receive(Tagged, tag, ignore, lend(buf, len, d)?, from, cx);
        recvv(iov: Iov, d: Descs, n: usize, from: u64, tag: u64, ignore: u64, cx: Out) =>
            receive(Tagged, tag, ignore, gather(iov, d, n)?, from, cx);
        recvmsg(msg: *const ffi::fi_msg_tagged, flags: u64) => receive_tagged(msg, flags)?;
    }

    pub(in crate::endpoint) static OPS: Table<ffi::fi_ops_tagged> = Table(ffi::fi_ops_tagged {
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
}

/// The calls of `fi_rma(3)`: reads and writes of remote memory.
mod rma {
    use super::*;
    use Action::{Read, Write};

    calls! { transmit:
        read(buf: Out, len: usize, d: Out, from: u64, addr: u64, key: u64, cx: Out) =>
            access(Read, lend(buf, len, d)?, from, addr, key).context(cx);
        readv(iov: Iov, d: Descs, n: usize, from: u64, addr: u64, key: u64, cx: Out) =>
            access(Read, gather(iov, d, n)?, from, addr, key).context(cx);
        readmsg(msg: *const ffi::fi_msg_rma, flags: u64) => ranges(Read, msg, flags)?;
        write(buf: In, len: usize, d: Out, to: u64, addr: u64, key: u64, cx: Out) =>
            access(Write, lend(buf, len, d)?, to, addr, key).context(cx);
        writev(iov: Iov, d: Descs, n: usize, to: u64, addr: u64, key: u64, cx: Out) =>
            access(Write, gather(iov, d, n)?, to, addr, key).context(cx);
        writemsg(msg: *const ffi::fi_msg_rma, flags: u64) => ranges(Write, msg, flags)?;
        inject(buf: In, len: usize, to: u64, addr: u64, key: u64) =>
            access(Write, lend(buf, len, NO_DESC)?, to, addr, key).with_inject();
        writedata(buf: In, len: usize, d: Out, data: u64, to: u64, addr: u64, key: u64, cx: Out) =>
            access(Write, lend(buf, len, d)?, to, addr, key).context(cx).data(data);
        injectdata(buf: In, len: usize, data: u64, to: u64, addr: u64, key: u64) =>
            access(Write, lend(buf, len, NO_DESC)?, to, addr, key).with_inject().data(data);
    }

    pub(in crate::endpoint) static OPS: Table<ffi::fi_ops_rma> = Table(ffi::fi_ops_rma {
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
}

pub(in crate::endpoint) use atomic::OPS as ATOMIC;
pub(crate) use atomic::query as query_atomic;
pub(crate) use atomic::{atomic_msg, compare_msg, fetch_msg};
pub(in crate::endpoint) use collective::OPS as COLLECTIVE;
pub(crate) use collective::query as query_collective;
pub(in crate::endpoint) use msg::OPS as MSG;
pub(in crate::endpoint) use rma::OPS as RMA;
pub(in crate::endpoint) use tagged::OPS as TAGGED;

#[inline]
fn message(space: MatchSpace, tag: u64, buf: squall_engine::Buf, to: u64) -> Transmit {
    Transmit::new(Action::Message { space, tag }, buf, to)
}

#[inline]
fn receive(
    space: MatchSpace,
    tag: u64,
    ignore: u64,
    buf: squall_engine::Buf,
    from: u64,
    context: *mut c_void,
) -> Receive {
    Receive { space, tag, ignore, buf, from, context: context_of(context), flags: None }
}

/// Converts the arguments of `fi_sendmsg` to the description of a transmit call.
///
/// # Safety
/// `msg` is NULL or a message that no other code writes to during the call, with as many pieces as it says.
///
/// # Errors
/// `FI_EINVAL` for NULL, and as [`gather`].
#[inline]
pub(crate) unsafe fn send_msg(msg: *const ffi::fi_msg, flags: u64) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message with its pieces by this function's contract.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVAL)?;
        let buf = gather(msg.msg_iov, msg.desc, msg.iov_count)?;
        let call = message(MatchSpace::Untagged, 0, buf, msg.addr);
        Ok(call.context(msg.context).with_flags(flags, msg.data))
    }
}

/// Converts the arguments of `fi_tsendmsg` to the description of a transmit call.
///
/// # Safety
/// As [`send_msg`].
///
/// # Errors
/// As [`send_msg`].
#[inline]
pub(crate) unsafe fn send_tagged(msg: *const ffi::fi_msg_tagged, flags: u64) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message with its pieces by this function's contract.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVAL)?;
        let buf = gather(msg.msg_iov, msg.desc, msg.iov_count)?;
        let call = message(MatchSpace::Tagged, msg.tag, buf, msg.addr);
        Ok(call.context(msg.context).with_flags(flags, msg.data))
    }
}

/// Converts the arguments of `fi_recvmsg` to the description of a receive call.
///
/// # Safety
/// As [`send_msg`].
///
/// # Errors
/// As [`send_msg`].
#[inline]
pub(crate) unsafe fn receive_msg(msg: *const ffi::fi_msg, flags: u64) -> Result<Receive> {
    // SAFETY: NULL, which is refused, or a message with its pieces by this function's contract.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVAL)?;
        let buf = gather(msg.msg_iov, msg.desc, msg.iov_count)?;
        Ok(receive(MatchSpace::Untagged, 0, 0, buf, msg.addr, msg.context).with_flags(flags))
    }
}

/// Converts the arguments of `fi_trecvmsg` to the description of a receive call.
///
/// # Safety
/// As [`send_msg`].
///
/// # Errors
/// As [`send_msg`].
#[inline]
pub(crate) unsafe fn receive_tagged(msg: *const ffi::fi_msg_tagged, flags: u64) -> Result<Receive> {
    // SAFETY: NULL, which is refused, or a message with its pieces by this function's contract.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::INVAL)?;
        let buf = gather(msg.msg_iov, msg.desc, msg.iov_count)?;
        Ok(receive(MatchSpace::Tagged, msg.tag, msg.ignore, buf, msg.addr, msg.context)
            .with_flags(flags))
    }
}

/// Converts the arguments of `fi_readmsg` to the description of a transmit call.
///
/// # Safety
/// As [`ranges`].
///
/// # Errors
/// As [`ranges`].
pub(crate) unsafe fn read_msg(msg: *const ffi::fi_msg_rma, flags: u64) -> Result<Transmit> {
    // SAFETY: `msg` is NULL or a message with its pieces and ranges, by this function's contract.
    unsafe { ranges(Action::Read, msg, flags) }
}

/// Converts the arguments of `fi_writemsg` to the description of a transmit call.
///
/// # Safety
/// As [`ranges`].
///
/// # Errors
/// As [`ranges`].
pub(crate) unsafe fn write_msg(msg: *const ffi::fi_msg_rma, flags: u64) -> Result<Transmit> {
    // SAFETY: `msg` is NULL or a message with its pieces and ranges, by this function's contract.
    unsafe { ranges(Action::Write, msg, flags) }
}

/// Returns an RMA operation on one remote range that is as long as the local buffer.
#[inline]
fn access(
    action: impl FnOnce(RemoteIov) -> Action,
    buf: squall_engine::Buf,
    peer: u64,
    address: u64,
    key: u64,
) -> Transmit {
    let len = buf.len();
    Transmit::new(action(RemoteIov::One(RemoteSeg { address, len, key })), buf, peer)
}

/// Returns an RMA operation on several remote ranges.
///
/// # Safety
/// `msg` is NULL or points to a message that no other code writes to during the call, whose `msg_iov` and `rma_iov`
/// are NULL or point to as many elements as their counts say.
///
/// # Errors
/// `FI_EINVAL` for NULL, for no range, and for more ranges than the limit we report.
unsafe fn ranges(
    action: impl FnOnce(RemoteIov) -> Action,
    msg: *const ffi::fi_msg_rma,
    flags: u64,
) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message by this function's contract; the reference does not
    // outlive the call.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::INVAL)?;
    if !(1..=limits::RMA_IOV_LIMIT).contains(&msg.rma_iov_count) || msg.rma_iov.is_null() {
        log::info!(
            "rma_iov_count {} is out of range 1..={}, or rma_iov is NULL",
            msg.rma_iov_count,
            limits::RMA_IOV_LIMIT
        );
        return Err(Errno::INVAL);
    }
    // SAFETY: `rma_iov` points to `rma_iov_count` ranges by this function's contract; they are copied below.
    let ranges = unsafe { boundary::slice(msg.rma_iov, msg.rma_iov_count)? };
    let seg = |r: &ffi::fi_rma_iov| RemoteSeg { address: r.addr, len: r.len as u64, key: r.key };
    let remote = match ranges {
        [one] => RemoteIov::One(seg(one)),
        many => RemoteIov::Many(many.iter().map(seg).collect()),
    };
    // SAFETY: `msg_iov` is NULL or points to `iov_count` iovecs by this function's contract, `desc` to as many
    // descriptors.
    let buf = unsafe { gather(msg.msg_iov, msg.desc, msg.iov_count)? };
    Ok(Transmit::new(action(remote), buf, msg.addr)
        .context(msg.context)
        .with_flags(flags, msg.data))
}
