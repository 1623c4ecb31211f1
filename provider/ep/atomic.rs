//! Atomics: not offered (getinfo refuses FI_ATOMIC), so every call says so. The table exists because
//! MPICH and Sandia OpenSHMEM ask which operations are valid whatever the capabilities are.

use core::ffi::{c_int, c_void};

use crate::errno::Errno;
use crate::ffi::{self, fi_datatype, fi_ioc, fi_msg_atomic, fi_op, fid_ep};
use crate::object::Table;

/// Local data.
type In = *const c_void;
/// Local result, descriptor or context.
type Out = *mut c_void;
/// Descriptors of several pieces.
type Descs = *mut *mut c_void;
/// Several pieces.
type Ioc = *const fi_ioc;
/// Several result pieces.
type IocOut = *mut fi_ioc;

macro_rules! unsupported {
    ($($name:ident($($argument:ty),*);)*) => {
        $(
            unsafe extern "C" fn $name(_: *mut fid_ep, $(_: $argument),*) -> isize {
                Errno::OPNOTSUPP.code() as isize
            }
        )*
    };
}

unsupported! {
    write(In, usize, Out, u64, u64, u64, fi_datatype, fi_op, Out);
    writev(Ioc, Descs, usize, u64, u64, u64, fi_datatype, fi_op, Out);
    writemsg(*const fi_msg_atomic, u64);
    inject(In, usize, u64, u64, u64, fi_datatype, fi_op);
    readwrite(In, usize, Out, Out, Out, u64, u64, u64, fi_datatype, fi_op, Out);
    readwritev(Ioc, Descs, usize, IocOut, Descs, usize, u64, u64, u64, fi_datatype, fi_op, Out);
    readwritemsg(*const fi_msg_atomic, IocOut, Descs, usize, u64);
    compwrite(In, usize, Out, In, Out, Out, Out, u64, u64, u64, fi_datatype, fi_op, Out);
    compwritev(
        Ioc, Descs, usize, Ioc, Descs, usize, IocOut, Descs, usize, u64, u64, u64, fi_datatype, fi_op,
        Out
    );
    compwritemsg(*const fi_msg_atomic, Ioc, Descs, usize, IocOut, Descs, usize, u64);
}

/// No operation on any type is valid.
unsafe extern "C" fn valid(_: *mut fid_ep, _: fi_datatype, _: fi_op, count: *mut usize) -> c_int {
    // SAFETY: fi_atomicvalid(3) and its kin lend NULL or an initialised size_t for the time of the call.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = 0;
    }
    Errno::OPNOTSUPP.code()
}

pub(super) static OPS: Table<ffi::fi_ops_atomic> = Table(ffi::fi_ops_atomic {
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
    writevalid: Some(valid),
    readwritevalid: Some(valid),
    compwritevalid: Some(valid),
});
