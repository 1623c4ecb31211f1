//! Aliases of an endpoint (fi_ep_alias): the same endpoint with other default operation flags.
//!
//! An alias has the endpoint's own tables, whose calls look for it when what they were given is no endpoint. All calls
//! without flags of their own have those of the alias.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi::{self, fid_ep};
use crate::abi::flags::{self, class};
use crate::endpoint::{Endpoint, Receive, Transmit};
use crate::host::limits;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};

/// An alias of an endpoint, `struct fid_ep`, and the provider's state behind it.
#[repr(C)]
pub(crate) struct Alias {
    fid: Cell<fid_ep>,
    users: Users,
    endpoint: ObjectRef<Endpoint>,
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
}

// SAFETY: `Alias` is repr(C) and begins with the cell of a `fid_ep`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for Alias {
    type Fid = fid_ep;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, control: control));

/// Flags an alias may have besides those that may be an endpoint's default.
const MORE_FLAGS: u64 = flags::TRIGGER;

boundary::exports! {
    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(alias) = objects::retire::<Alias, _>(fid)? {
            alias.endpoint.release();
        }
        Ok(())
    };

    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        let alias = objects::get::<Alias, _>(fid)?;
        match u32::try_from(command) {
            Ok(ffi::FI_GETOPSFLAG) => {
                let which = arg.cast::<u64>().as_mut().ok_or(Errno::INVAL)?;
                *which = alias.side(*which)?.0.load(Ordering::Relaxed);
                Ok(())
            }
            Ok(ffi::FI_SETOPSFLAG) => alias.set(*arg.cast::<u64>().as_ref().ok_or(Errno::INVAL)?),
            _ => Err(Errno::NOSYS),
        }
    };
}

impl Alias {
    /// Returns the operation flags of the side that `which` names, and the flags that the side may have.
    fn side(&self, which: u64) -> Result<(&AtomicU64, u64)> {
        match which & (flags::TRANSMIT | flags::RECV) {
            flags::TRANSMIT => Ok((&self.tx_flags, limits::TX_OP_FLAGS | MORE_FLAGS)),
            flags::RECV => Ok((&self.rx_flags, limits::RX_OP_FLAGS | MORE_FLAGS)),
            _ => Err(Errno::INVAL),
        }
    }

    /// Sets the operation flags of the side (FI_TRANSMIT or FI_RECV) that `value` contains.
    fn set(&self, value: u64) -> Result<()> {
        let (slot, known) = self.side(value)?;
        let given = value & !(flags::TRANSMIT | flags::RECV);
        if given & !known != 0 {
            return Err(Errno::BADFLAGS);
        }
        slot.store(given, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the alias behind a pointer that is not an endpoint.
///
/// # Safety
/// `ptr` is NULL or an open object that stays open for `'a`.
#[cold]
pub(crate) unsafe fn get<'a, P>(ptr: *const P) -> Result<&'a Alias> {
    // SAFETY: `ptr` is NULL or an object that stays open for 'a, by this function's contract; `get` looks whether it is
    // an alias of ours.
    unsafe { objects::get::<Alias, P>(ptr) }
}

impl Alias {
    /// # Safety
    /// As [`Endpoint::transmit`].
    #[cold]
    pub(crate) unsafe fn transmit(
        &self,
        make: impl FnOnce(&Endpoint) -> Result<Transmit>,
    ) -> Result<()> {
        let call = make(&self.endpoint)?.with_default_flags(self.tx_flags.load(Ordering::Relaxed));
        // SAFETY: the caller promised of the bytes that the call names what `transmit` asks; only its flags have
        // changed.
        unsafe { self.endpoint.transmit(call) }
    }

    /// # Safety
    /// As [`Endpoint::receive`].
    #[cold]
    pub(crate) unsafe fn receive(
        &self,
        make: impl FnOnce(&Endpoint) -> Result<Receive>,
    ) -> Result<()> {
        let call = make(&self.endpoint)?.with_default_flags(self.rx_flags.load(Ordering::Relaxed));
        // SAFETY: the caller promised of the bytes that the call names what `receive` asks; only its flags have
        // changed.
        unsafe { self.endpoint.receive(call) }
    }
}

/// Implements `fi_control(FI_ALIAS)`. `with_tables` returns a `fid_ep` with the endpoint's own tables.
///
/// # Errors
/// `FI_EINVAL` unless the flags say which side they are of, `FI_EBADFLAGS` for those it cannot have.
pub(crate) fn open(
    endpoint: &Arc<Endpoint>,
    with_tables: fn(ffi::fid) -> fid_ep,
    out: Out<*mut ffi::fid>,
    flags: u64,
) -> Result<()> {
    let fid = objects::fid(class::EP, core::ptr::null_mut(), &FI_OPS.0);
    let alias = Arc::new(Alias {
        fid: Cell::new(with_tables(fid)),
        users: Users::default(),
        endpoint: ObjectRef::new(Arc::clone(endpoint)),
        tx_flags: AtomicU64::new(endpoint.tx_flags()),
        rx_flags: AtomicU64::new(endpoint.rx_flags()),
    });
    alias.set(flags)?;
    out.write(objects::publish(alias).cast())
}

/// Returns the endpoint behind a pointer, or the endpoint of the alias behind it.
///
/// # Safety
/// `ptr` is NULL or an open object that stays open for `'a`.
///
/// # Errors
/// `FI_EINVAL` for all else.
pub(crate) unsafe fn endpoint<'a, P>(ptr: *const P) -> Result<&'a Endpoint>
where
    P: 'a,
{
    // SAFETY: `ptr` is NULL or an object that stays open for 'a, which is what both ask; an alias keeps its endpoint
    // open as long as it is open itself.
    unsafe {
        match objects::get::<Endpoint, P>(ptr) {
            Ok(endpoint) => Ok(endpoint),
            Err(_) => get(ptr).map(|alias| &**alias.endpoint),
        }
    }
}

/// Returns the endpoint as [`endpoint`] does, with a reference that keeps it alive.
///
/// # Safety
/// `ptr` is NULL or an open object.
///
/// # Errors
/// As [`endpoint`].
pub(crate) unsafe fn share<P>(ptr: *const P) -> Result<Arc<Endpoint>> {
    // SAFETY: `ptr` is NULL or an open object, of which both look whose it is; the alias is not used after this
    // function.
    unsafe {
        match objects::share::<Endpoint, P>(ptr) {
            Ok(endpoint) => Ok(endpoint),
            Err(_) => get(ptr).map(|alias| Arc::clone(&alias.endpoint)),
        }
    }
}
