//! The atomic calls, `fi_atomic(3)`.

use core::ffi::{c_int, c_void};

use squall_engine::{
    Action, AmoOp, AmoType, Atomic, Buf, RemoteIov, RemoteSeg, atomic_has_comparands, atomic_size,
    max_atomic_count,
};

use super::{Descs, In, NO_DESC, Out, Transmit};
use crate::abi::boundary;
use crate::abi::compat::version;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi::{self, fi_datatype, fi_op, fid_domain, fid_ep};
use crate::domain::Domain;
use crate::endpoint::buffer::{Desc, gather_with, lend};
use crate::endpoint::{Endpoint, alias};
use crate::host::limits;
use crate::objects::{self, Table};

/// Several pieces of a local buffer with values (`fi_ioc`), which are read.
type Ioc = *const ffi::fi_ioc;
/// Several pieces of a local buffer for values (`fi_ioc`), which are written.
type IocOut = *mut ffi::fi_ioc;
/// The pieces of a buffer, their descriptors, and the number of pieces.
type Pieces<T> = (T, *const Desc, usize);
/// Pointer to the argument of `fi_atomicmsg` and its kin.
type Message = *const ffi::fi_msg_atomic;

/// The data types of atomic operations in the order of `enum fi_datatype`.
const TYPES: [AmoType; 18] = [
    AmoType::Int8,
    AmoType::Uint8,
    AmoType::Int16,
    AmoType::Uint16,
    AmoType::Int32,
    AmoType::Uint32,
    AmoType::Int64,
    AmoType::Uint64,
    AmoType::Float,
    AmoType::Double,
    AmoType::FloatComplex,
    AmoType::DoubleComplex,
    AmoType::LongDouble,
    AmoType::LongDoubleComplex,
    AmoType::Int128,
    AmoType::Uint128,
    AmoType::Fp16,
    AmoType::Bf16,
];
/// The atomic operations in the order of `enum fi_op`.
const OPS_BY_NUMBER: [AmoOp; 20] = [
    AmoOp::Min,
    AmoOp::Max,
    AmoOp::Sum,
    AmoOp::Prod,
    AmoOp::Lor,
    AmoOp::Land,
    AmoOp::Bor,
    AmoOp::Band,
    AmoOp::Lxor,
    AmoOp::Bxor,
    AmoOp::Read,
    AmoOp::Write,
    AmoOp::Cswap,
    AmoOp::CswapNe,
    AmoOp::CswapLe,
    AmoOp::CswapLt,
    AmoOp::CswapGe,
    AmoOp::CswapGt,
    AmoOp::Mswap,
    AmoOp::Diff,
];
/// The number of data types and operations that libfabric 1.x has.
const OLD: (usize, usize) = (16, 19);

/// The three families of atomic calls: without result, with result, and with comparands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AtomicFamily {
    /// The calls `fi_atomic`, `fi_atomicv`, `fi_inject_atomic` and so on, which return no values.
    Base,
    /// The calls `fi_fetch_atomic` and so on, which return the previous values.
    Fetch,
    /// The calls `fi_compare_atomic` and so on, which also take values to compare with.
    Compare,
}

/// An atomic operation and its data type, as the application named them.
#[derive(Clone, Copy)]
struct TypedOp {
    op: AmoOp,
    data_type: AmoType,
    /// Largest number of values that one call may change.
    most: usize,
}

impl TypedOp {
    /// # Errors
    /// `FI_EOPNOTSUPP` for what is not there, or not in this family, or not known to the API version asked for.
    fn new(api: u32, family: AtomicFamily, datatype: fi_datatype, op: fi_op) -> Result<Self> {
        let old = api < version(2, 0);
        let (types, ops) = if old { OLD } else { (TYPES.len(), OPS_BY_NUMBER.len()) };
        let of = |number: u32, count| usize::try_from(number).ok().filter(|n| *n < count);
        let data_type = of(datatype, types).map(|n| TYPES[n]).ok_or(Errno::OPNOTSUPP)?;
        let op = of(op, ops).map(|n| OPS_BY_NUMBER[n]).ok_or(Errno::OPNOTSUPP)?;
        let fits = match family {
            AtomicFamily::Base => !atomic_has_comparands(op) && op != AmoOp::Read,
            AtomicFamily::Fetch => !atomic_has_comparands(op),
            AtomicFamily::Compare => atomic_has_comparands(op),
        };
        let most = max_atomic_count(op, data_type).filter(|_| fits).ok_or(Errno::OPNOTSUPP)?;
        Ok(Self { op, data_type, most })
    }

    fn size(self) -> usize {
        atomic_size(self.data_type)
    }

    /// Returns a contiguous buffer of `count` values.
    fn lend(self, base: *const c_void, count: usize, desc: Desc) -> Result<Buf> {
        lend(base, count.checked_mul(self.size()).ok_or(Errno::INVAL)?, desc)
    }

    /// Returns the buffer of the operands. Those of an atomic read are ignored.
    fn operands(self, base: *const c_void, count: usize, desc: Desc) -> Result<Buf> {
        if self.op == AmoOp::Read { Ok(Buf::Empty) } else { self.lend(base, count, desc) }
    }

    /// Returns the values in several pieces as a buffer.
    ///
    /// # Safety
    /// `iov` is NULL or points to `count` pieces that no other code writes to during the call.
    unsafe fn gather(self, iov: Ioc, descs: *const Desc, count: usize) -> Result<Buf> {
        let piece = |ioc: &ffi::fi_ioc| {
            let len = ioc.count.checked_mul(self.size()).ok_or(Errno::INVAL)?;
            Ok((ioc.addr.cast_const(), len))
        };
        // SAFETY: `iov` is NULL or points to `count` pieces, a `fi_ioc` each; no other code writes to them meanwhile.
        unsafe { gather_with(iov, descs, count, piece) }
    }

    /// Returns the operands in several pieces as a buffer.
    ///
    /// # Safety
    /// As [`Self::gather`].
    unsafe fn gather_operands(self, iov: Ioc, descs: *const Desc, count: usize) -> Result<Buf> {
        if self.op == AmoOp::Read {
            return Ok(Buf::Empty);
        }
        // SAFETY: `iov` is NULL or points to `count` pieces, of which `gather` copies what they say.
        unsafe { self.gather(iov, descs, count) }
    }

    /// Returns the range of `count` values in the peer's memory.
    fn remote(self, count: usize, address: u64, key: u64) -> Result<RemoteIov> {
        let len = count.checked_mul(self.size()).ok_or(Errno::INVAL)? as u64;
        Ok(RemoteIov::One(RemoteSeg { address, len, key }))
    }

    /// Returns the remote ranges of an atomic message.
    ///
    /// # Safety
    /// `message.rma_iov` is NULL or points to as many ranges as the count beside it says.
    unsafe fn ranges(self, message: &ffi::fi_msg_atomic) -> Result<RemoteIov> {
        let count = message.rma_iov_count;
        if !(1..=limits::RMA_IOV_LIMIT).contains(&count) || message.rma_iov.is_null() {
            log::info!(
                "rma_iov_count {count} is out of range 1..={}, or rma_iov is NULL",
                limits::RMA_IOV_LIMIT
            );
            return Err(Errno::INVAL);
        }
        // SAFETY: `rma_iov` points to `count` ranges by this function's contract; they are copied here.
        let ranges = unsafe { boundary::slice(message.rma_iov, count)? };
        let seg = |range: &ffi::fi_rma_ioc| {
            let len = range.count.checked_mul(self.size()).ok_or(Errno::INVAL)? as u64;
            Ok(RemoteSeg { address: range.addr, len, key: range.key })
        };
        match ranges {
            [one] => seg(one).map(RemoteIov::One),
            many => many.iter().map(seg).collect::<Result<_>>().map(RemoteIov::Many),
        }
    }

    /// Returns the description of a transmit call for the atomic operation.
    fn call(
        self,
        operands: Buf,
        remote: RemoteIov,
        (compare, result): (Option<Buf>, Option<Buf>),
        peer: u64,
    ) -> Transmit {
        let Self { op, data_type, .. } = self;
        let atomic = Atomic { op, data_type, remote, compare, result };
        Transmit::new(Action::Atomic(Box::new(atomic)), operands, peer)
    }
}

/// Converts a `fi_datatype` to the type of the values.
///
/// # Errors
/// `FI_EOPNOTSUPP` for what is not there, or not known to the API version asked for.
pub(super) fn data_type(api: u32, datatype: fi_datatype) -> Result<AmoType> {
    TypedOp::new(api, AtomicFamily::Base, datatype, ffi::FI_ATOMIC_WRITE).map(|what| what.data_type)
}

/// Returns the atomic operation that a collective operation uses to combine values of a type.
///
/// # Errors
/// The errors of [`data_type`]; the same one for operations whose result depends on the order of the members.
pub(super) fn reduction(api: u32, datatype: fi_datatype, op: fi_op) -> Result<(AmoOp, AmoType)> {
    let what = TypedOp::new(api, AtomicFamily::Base, datatype, op)?;
    match what.op {
        AmoOp::Write | AmoOp::Diff => Err(Errno::OPNOTSUPP),
        op => Ok((op, what.data_type)),
    }
}

impl Endpoint {
    fn atomic(&self, family: AtomicFamily, datatype: fi_datatype, op: fi_op) -> Result<TypedOp> {
        TypedOp::new(self.api_version(), family, datatype, op)
    }
}

/// Returns the argument of a call such as `fi_atomicmsg`, and the operation and type that it names.
///
/// # Safety
/// `message` is NULL or points to a message that no other code writes to during the call.
unsafe fn message<'a>(
    ep: &Endpoint,
    family: AtomicFamily,
    message: Message,
) -> Result<(&'a ffi::fi_msg_atomic, TypedOp)> {
    // SAFETY: NULL, which is refused, or a message by this function's contract; the reference does not outlive the
    // call that it is of.
    let message = unsafe { message.as_ref() }.ok_or(Errno::INVAL)?;
    Ok((message, ep.atomic(family, message.datatype, message.op)?))
}

calls! { transmit(ep):
    write(
        buf: In, count: usize, d: Out, to: u64, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Base, datatype, op)?;
        let remote = what.remote(count, addr, key)?;
        what.call(what.lend(buf, count, d)?, remote, (None, None), to).context(cx)
    };
    writev(
        iov: Ioc, d: Descs, n: usize, to: u64, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Base, datatype, op)?;
        let buf = what.gather(iov, d, n)?;
        let remote = what.remote(count_of(&buf, what), addr, key)?;
        what.call(buf, remote, (None, None), to).context(cx)
    };
    writemsg(msg: Message, flags: u64) => atomic_msg(ep, msg, flags)?;
    inject(
        buf: In, count: usize, to: u64, addr: u64, key: u64, datatype: fi_datatype, op: fi_op
    ) => {
        let what = ep.atomic(AtomicFamily::Base, datatype, op)?;
        let remote = what.remote(count, addr, key)?;
        what.call(what.lend(buf, count, NO_DESC)?, remote, (None, None), to).with_inject()
    };
    readwrite(
        buf: In, count: usize, d: Out, result: Out, rd: Out, to: u64, addr: u64, key: u64, datatype: fi_datatype,
        op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Fetch, datatype, op)?;
        let (remote, result) = (what.remote(count, addr, key)?, what.lend(result, count, rd)?);
        what.call(what.operands(buf, count, d)?, remote, (None, Some(result)), to).context(cx)
    };
    readwritev(
        iov: Ioc, d: Descs, n: usize, result: IocOut, rd: Descs, results: usize, to: u64, addr: u64, key: u64,
        datatype: fi_datatype, op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Fetch, datatype, op)?;
        let result = what.gather(result, rd, results)?;
        let remote = what.remote(count_of(&result, what), addr, key)?;
        let buf = what.gather_operands(iov, d, n)?;
        what.call(buf, remote, (None, Some(result)), to).context(cx)
    };
    readwritemsg(msg: Message, result: IocOut, rd: Descs, results: usize, flags: u64) =>
        fetch(ep, msg, (result, rd, results), flags)?;
    compwrite(
        buf: In, count: usize, d: Out, compare: In, cd: Out, result: Out, rd: Out, to: u64, addr: u64, key: u64,
        datatype: fi_datatype, op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Compare, datatype, op)?;
        let remote = what.remote(count, addr, key)?;
        let others = (Some(what.lend(compare, count, cd)?), Some(what.lend(result, count, rd)?));
        what.call(what.lend(buf, count, d)?, remote, others, to).context(cx)
    };
    compwritev(
        iov: Ioc, d: Descs, n: usize, compare: Ioc, cd: Descs, compares: usize, result: IocOut, rd: Descs,
        results: usize, to: u64, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, cx: Out
    ) => {
        let what = ep.atomic(AtomicFamily::Compare, datatype, op)?;
        let buf = what.gather(iov, d, n)?;
        let remote = what.remote(count_of(&buf, what), addr, key)?;
        let others = (Some(what.gather(compare, cd, compares)?), Some(what.gather(result, rd, results)?));
        what.call(buf, remote, others, to).context(cx)
    };
    compwritemsg(
        msg: Message, compare: Ioc, cd: Descs, compares: usize, result: IocOut, rd: Descs, results: usize, flags: u64
    ) => compare_and(ep, msg, (compare, cd, compares), (result, rd, results), flags)?;
}

/// Converts the arguments of `fi_atomicmsg` to the description of a transmit call.
///
/// # Safety
/// `msg` is NULL or a message that no other code writes to during the call, with as many pieces and ranges as it says.
///
/// # Errors
/// `FI_EINVAL` for what makes no sense, `FI_EOPNOTSUPP` for what is not there.
#[inline]
pub(crate) unsafe fn atomic_msg(ep: &Endpoint, msg: Message, flags: u64) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message with its pieces and ranges by this function's contract.
    unsafe {
        let (msg, what) = message(ep, AtomicFamily::Base, msg)?;
        let (buf, remote) = (what.gather(msg.msg_iov, msg.desc, msg.iov_count)?, what.ranges(msg)?);
        let call = what.call(buf, remote, (None, None), msg.addr);
        Ok(call.context(msg.context).with_flags(flags, msg.data))
    }
}

/// Converts the arguments of `fi_fetch_atomicmsg`, with the pieces for the results and their number.
///
/// # Safety
/// As [`atomic_msg`], and as many pieces for the results as are said to be there.
#[inline]
unsafe fn fetch(
    ep: &Endpoint,
    msg: Message,
    (result, rd, results): Pieces<IocOut>,
    flags: u64,
) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message with its pieces and ranges by this function's contract, as are the
    // results' pieces.
    unsafe {
        let (msg, what) = message(ep, AtomicFamily::Fetch, msg)?;
        let (buf, remote) =
            (what.gather_operands(msg.msg_iov, msg.desc, msg.iov_count)?, what.ranges(msg)?);
        let result = what.gather(result, rd, results)?;
        let call = what.call(buf, remote, (None, Some(result)), msg.addr);
        Ok(call.context(msg.context).with_flags(flags, msg.data))
    }
}

/// Converts the arguments of `fi_compare_atomicmsg`, with the pieces of the comparands and of the results, and their
/// numbers.
///
/// # Safety
/// As [`fetch`], and as many pieces to compare with as are said to be there.
#[inline]
unsafe fn compare_and(
    ep: &Endpoint,
    msg: Message,
    (compare, cd, compares): Pieces<Ioc>,
    (result, rd, results): Pieces<IocOut>,
    flags: u64,
) -> Result<Transmit> {
    // SAFETY: NULL, which is refused, or a message with its pieces and ranges by this function's contract, as are the
    // other two arrays of pieces.
    unsafe {
        let (msg, what) = message(ep, AtomicFamily::Compare, msg)?;
        let (buf, remote) = (what.gather(msg.msg_iov, msg.desc, msg.iov_count)?, what.ranges(msg)?);
        let others =
            (Some(what.gather(compare, cd, compares)?), Some(what.gather(result, rd, results)?));
        let call = what.call(buf, remote, others, msg.addr);
        Ok(call.context(msg.context).with_flags(flags, msg.data))
    }
}

/// Converts the arguments of `fi_fetch_atomicmsg` in a deferred work request.
///
/// # Safety
/// As [`atomic_msg`], and `result` has as many pieces as it says.
///
/// # Errors
/// As [`atomic_msg`].
pub(crate) unsafe fn fetch_msg(
    ep: &Endpoint,
    msg: Message,
    result: &ffi::fi_msg_fetch,
    flags: u64,
) -> Result<Transmit> {
    // SAFETY: `msg` is NULL or a message with its pieces and ranges, and `result` says how many pieces it has.
    unsafe { fetch(ep, msg, (result.msg_iov, result.desc, result.iov_count), flags) }
}

/// Converts the arguments of `fi_compare_atomicmsg` in a deferred work request.
///
/// # Safety
/// As [`fetch_msg`], and `compare` has as many pieces as it says.
///
/// # Errors
/// As [`atomic_msg`].
pub(crate) unsafe fn compare_msg(
    ep: &Endpoint,
    msg: Message,
    result: &ffi::fi_msg_fetch,
    compare: &ffi::fi_msg_compare,
    flags: u64,
) -> Result<Transmit> {
    let compare = (compare.msg_iov, compare.desc.cast_const(), compare.iov_count);
    let result = (result.msg_iov, result.desc.cast_const(), result.iov_count);
    // SAFETY: `msg` is NULL or a message with its pieces and ranges; the other two say how many pieces they have.
    unsafe { compare_and(ep, msg, compare, result, flags) }
}

/// Returns the number of values in a buffer.
fn count_of(buf: &Buf, what: TypedOp) -> usize {
    usize::try_from(buf.len()).unwrap_or(usize::MAX) / what.size()
}

/// Answers whether an atomic operation is supported, and sets `count` to the largest number of values in a call, or to
/// zero.
fn valid(
    api: u32,
    family: AtomicFamily,
    (datatype, op): (fi_datatype, fi_op),
    count: Option<&mut usize>,
) -> Result<()> {
    let what = TypedOp::new(api, family, datatype, op);
    if let Some(count) = count {
        *count = what.map_or(0, |what| what.most);
    }
    what.map(drop)
}

boundary::exports! {
    status writevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int => {
        let api = alias::endpoint(ep)?.api_version();
        valid(api, AtomicFamily::Base, (datatype, op), count.as_mut())
    };

    status readwritevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int => {
        let api = alias::endpoint(ep)?.api_version();
        valid(api, AtomicFamily::Fetch, (datatype, op), count.as_mut())
    };

    status compwritevalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int => {
        let api = alias::endpoint(ep)?.api_version();
        valid(api, AtomicFamily::Compare, (datatype, op), count.as_mut())
    };

    /// Answers which atomic operations the domain supports: `fi_query_atomic`.
    pub(crate) status query(
        domain: *mut fid_domain,
        datatype: fi_datatype,
        op: fi_op,
        attr: *mut ffi::fi_atomic_attr,
        flags: u64,
    ) -> c_int => {
        let api = objects::get::<Domain, _>(domain)?.api_version();
        let family = match flags {
            0 => AtomicFamily::Base,
            FETCH_ATOMIC => AtomicFamily::Fetch,
            COMPARE_ATOMIC => AtomicFamily::Compare,
            // FI_TAGGED: atomics on tagged buffers.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let what = TypedOp::new(api, family, datatype, op)?;
        let attr = attr.as_mut().ok_or(Errno::INVAL)?;
        (attr.count, attr.size) = (what.most, what.size());
        Ok(())
    };
}

/// Query flag `FI_FETCH_ATOMIC`: the question is about atomic calls with a result.
const FETCH_ATOMIC: u64 = 1 << 58;
/// Query flag `FI_COMPARE_ATOMIC`: the question is about atomic calls with comparands.
const COMPARE_ATOMIC: u64 = 1 << 59;

pub(in crate::endpoint) static OPS: Table<ffi::fi_ops_atomic> = Table(ffi::fi_ops_atomic {
    size: size_of::<ffi::fi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_operations_and_new_ones_are_for_new_applications() {
        let count = |api, family| {
            let all = (0..25).flat_map(|datatype| (0..25).map(move |op| (datatype, op)));
            all.filter(|(datatype, op)| TypedOp::new(api, family, *datatype, *op).is_ok()).count()
        };
        let (old, new) = (version(1, 17), version(2, 0));
        // 16 types: 3 without an order, 10 of integers; two more, and a difference, since.
        assert_eq!(count(old, AtomicFamily::Base), 6 * 16 + 2 * 13 + 3 * 10);
        assert_eq!(count(old, AtomicFamily::Fetch), count(old, AtomicFamily::Base) + 16);
        assert_eq!(count(old, AtomicFamily::Compare), 2 * 16 + 4 * 13 + 10);
        assert_eq!(count(new, AtomicFamily::Base), 7 * 18 + 2 * 15 + 3 * 10);
        assert_eq!(count(new, AtomicFamily::Compare), 2 * 18 + 4 * 15 + 10);
        let mut most = 7;
        let asked =
            valid(old, AtomicFamily::Compare, (ffi::FI_DOUBLE, ffi::FI_MSWAP), Some(&mut most));
        assert_eq!((asked, most), (Err(Errno::OPNOTSUPP), 0));
        let asked = valid(old, AtomicFamily::Fetch, (ffi::FI_UINT64, ffi::FI_SUM), Some(&mut most));
        assert_eq!((asked, most), (Ok(()), 128));
        assert_eq!(valid(old, AtomicFamily::Fetch, (ffi::FI_UINT64, ffi::FI_SUM), None), Ok(()));
    }
}
