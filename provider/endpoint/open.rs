//! Opening of endpoints, and the tables of the libfabric calls that endpoints have.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::bindings::Bindings;
use super::{Endpoint, Inner, Settings, bindings, calls, cm, options};
use crate::abi::boundary::{self, Out};
use crate::abi::compat::{OpsEp, no_export_xpu};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::domain::Domain;
use crate::host::job::Job;
use crate::host::limits;
use crate::host::param::params;
use crate::info::{self, ChosenAttributes};
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::waiting::endpoint_lock::EndpointLock;

// SAFETY: `Endpoint` is repr(C) and begins with the cell of a `fid_ep`, which begins with a `fid`;
// `create` alone puts `FI_OPS` into one.
unsafe impl Object for Endpoint {
    type Fid = ffi::fid_ep;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> =
    Table(objects::fi_ops!(close: close, bind: bindings::bind, control: options::control));

static OPS: Table<OpsEp> = Table(OpsEp {
    size: size_of::<OpsEp>(),
    cancel: options::cancel,
    getopt: options::getopt,
    setopt: options::setopt,
    tx_ctx: options::tx_ctx,
    rx_ctx: options::rx_ctx,
    rx_size_left: options::size_left,
    tx_size_left: options::size_left,
    export_xpu: no_export_xpu,
});

/// Number of endpoints that this process has opened so far.
static NUMBER: AtomicU32 = AtomicU32::new(0);

boundary::exports! {
    /// Opens an endpoint: `fi_endpoint`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        info: *mut ffi::fi_info,
        ep: *mut *mut ffi::fid_ep,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(ep)?;
        place.write(Endpoint::create(objects::share(domain)?, &info::read_attributes(info)?, context)?)
    };

    /// Opens an endpoint with flags: `fi_endpoint2`. The flags ask for peer-provider objects, which are not supported.
    pub(crate) status open2(
        domain: *mut ffi::fid_domain,
        info: *mut ffi::fi_info,
        ep: *mut *mut ffi::fid_ep,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let place = Out::new(ep)?;
        place.write(Endpoint::create(objects::share(domain)?, &info::read_attributes(info)?, context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(ep) = objects::retire::<Endpoint, _>(fid)? {
            ep.close();
        }
        Ok(())
    };
}

/// Returns a `struct fid_ep` with the tables that endpoints and their aliases have.
pub(super) fn with_tables(fid: ffi::fid) -> ffi::fid_ep {
    ffi::fid_ep {
        fid,
        ops: objects::table(&OPS),
        cm: objects::table(&cm::OPS),
        msg: objects::table(&calls::MSG),
        rma: objects::table(&calls::RMA),
        tagged: objects::table(&calls::TAGGED),
        atomic: objects::table(&calls::ATOMIC),
        collective: objects::table(&calls::COLLECTIVE),
    }
}

impl Endpoint {
    /// Opens an endpoint, which does nothing before it is enabled.
    fn create(
        domain: Arc<Domain>,
        chosen: &ChosenAttributes,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_ep> {
        domain.process().check()?;
        let source = chosen.source.unwrap_or_else(|| SocketAddr::new(domain.ip(), 0));
        let caps = if chosen.caps == 0 { limits::CAPS } else { chosen.caps };
        let job = Job::of(params(), &chosen.endpoint_key, domain.auth_key())?;
        let opened = Arc::new_cyclic(|me| Self {
            fid: Cell::new(with_tables(objects::fid(class::EP, context, &FI_OPS.0))),
            users: Users::default(),
            settings: Settings {
                source,
                directed: caps & flags::DIRECTED_RECV != 0,
                names_source: caps & flags::SOURCE != 0,
                devices: caps & flags::HMEM != 0 && domain.has_device_memory(),
                triggers: caps & flags::TRIGGER != 0,
                collective: caps & flags::COLLECTIVE != 0,
                groups: AtomicU64::new(1),
                tx_flags: AtomicU64::new(chosen.tx_op_flags),
                rx_flags: AtomicU64::new(chosen.rx_op_flags),
                msg_order: chosen.msg_order,
                min_multi_recv: AtomicU64::new(64),
                shared_memory: AtomicBool::new(true),
                job,
            },
            inner: EndpointLock::new(
                domain.needs_locks(),
                Inner { bindings: Bindings::default(), core: None },
            ),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            process: domain.process(),
            closed: AtomicBool::new(false),
            me: Weak::clone(me),
            stalled: AtomicBool::new(false),
            domain: ObjectRef::new(domain),
        });
        Ok(objects::publish(opened))
    }
}
