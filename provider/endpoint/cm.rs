//! `fi_getname` and the connection calls that an RDM endpoint does not have.

use core::ffi::{c_int, c_void};

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::av;
use crate::endpoint::{Endpoint, alias};
use crate::network::addr::Name;
use crate::objects::Table;
use crate::optional::collectives::group;

pub(crate) static OPS: Table<ffi::fi_ops_cm> = Table(ffi::fi_ops_cm {
    size: size_of::<ffi::fi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: Some(listen),
    accept: Some(accept),
    reject: Some(reject),
    shutdown: Some(shutdown),
    join: Some(group::join),
});

boundary::exports! {
    /// Returns the endpoint's address and instance: `fi_getname`. If the buffer is too short, the result is
    /// -FI_ETOOSMALL and the length needed.
    status getname(fid: ffi::fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int => {
        let name = alias::endpoint(fid)?.name()?;
        if av::write_address(&name, addr, addrlen)? { Ok(()) } else { Err(Errno::TOOSMALL) }
    };
}

impl Endpoint {
    /// Returns the address and instance of the endpoint.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` before it is enabled.
    fn name(&self) -> Result<Name> {
        let inner = self.lock()?;
        Ok(inner.core.as_ref().ok_or(Errno::OPBADSTATE)?.name())
    }
}

unsafe extern "C" fn setname(_: ffi::fid_t, _: *mut c_void, _: usize) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn getpeer(_: *mut ffi::fid_ep, _: *mut c_void, _: *mut usize) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn connect(
    _: *mut ffi::fid_ep,
    _: *const c_void,
    _: *const c_void,
    _: usize,
) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn listen(_: *mut ffi::fid_pep) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn accept(_: *mut ffi::fid_ep, _: *const c_void, _: usize) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn reject(
    _: *mut ffi::fid_pep,
    _: ffi::fid_t,
    _: *const c_void,
    _: usize,
) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn shutdown(_: *mut ffi::fid_ep, _: u64) -> c_int {
    Errno::NOSYS.code()
}
