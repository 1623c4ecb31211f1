//! The calls of a domain, which open its endpoints, queues and other objects, and the opening of a domain itself.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Domain;
use crate::abi::boundary;
use crate::abi::compat::{OpsDomain, no_xpu_ctx};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{class, mr_mode, progress, threading};
use crate::av;
use crate::endpoint;
use crate::fabric::Fabric;
use crate::host::logger::USER;
use crate::host::param::params;
use crate::host::secret;
use crate::info::ChosenAttributes;
use crate::mr::{self, Regions};
use crate::network::nic;
use crate::objects::{self, Cell, Object, ObjectRef, Process, Table, Users};
use crate::optional::peer_provider;
use crate::optional::triggered_work;
use crate::queues::cntr;
use crate::queues::cq;
use crate::queues::poll;
use crate::waiting::endpoint_lock::{self, EndpointLock};
use crate::waiting::progress::Progress;

// SAFETY: `Domain` is repr(C) and begins with the cell of a `fid_domain`, which begins with a `fid`;
// `open` alone puts `FI_OPS` into one.
unsafe impl Object for Domain {
    type Fid = ffi::fid_domain;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> =
    Table(objects::fi_ops!(close: close, control: triggered_work::control));

static OPS: Table<OpsDomain> = Table(OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: endpoint::open::open,
    scalable_ep,
    cntr_open: cntr::open,
    poll_open: poll::open,
    stx_ctx,
    srx_ctx: peer_provider::open,
    query_atomic: endpoint::calls::query_atomic,
    query_collective: endpoint::calls::query_collective,
    endpoint2: endpoint::open::open2,
    xpu_ctx: no_xpu_ctx,
});

/// Opens a domain on the network interface that the `fi_info` names.
///
/// # Errors
/// `FI_ENODATA` when that interface is gone; `FI_EINVAL` when a parameter that protects the endpoint is not understood,
/// with a warning; the system's, when descriptors or random bits are short.
pub(crate) fn open(
    fabric: Arc<Fabric>,
    chosen: &ChosenAttributes,
    context: *mut c_void,
) -> Result<*mut ffi::fid_domain> {
    // `fi_getinfo` lists squall nevertheless: an MPI would otherwise choose another provider, which does not protect.
    if let Some(parameter) = params().misunderstood.first() {
        log::warn!(target: USER, "cannot open a domain: {parameter}");
        return Err(Errno::INVAL);
    }
    let ip = chosen.source.map(|s| s.ip()).filter(|ip| !ip.is_unspecified());
    let nic = nic::find(chosen.domain_name.as_deref(), ip)?;
    let automatic = chosen.data_progress == progress::AUTO;
    let basic = chosen.mr_mode == mr_mode::BASIC;
    log::info!(
        "domain {} on {}: threading {}, {} progress, mr_mode {:#x}",
        nic.name,
        nic.ip,
        chosen.threading,
        if automatic { "automatic" } else { "manual" },
        chosen.mr_mode
    );
    let domain = Arc::new(Domain {
        fid: Cell::new(ffi::fid_domain {
            fid: objects::fid(class::DOMAIN, context, &FI_OPS.0),
            ops: objects::table(&OPS),
            mr: objects::table(&mr::OPS),
        }),
        users: Users::default(),
        fabric: ObjectRef::new(fabric),
        // FI_THREAD_COMPLETION lets the queues of one endpoint's two sides have a thread each. Where the kernel has no
        // membarrier(2), or a container forbids it, the background progress thread needs a lock to enter the domain. In
        // virtual time, threads that sleep drive its endpoints.
        locks: chosen.threading != threading::DOMAIN
            || automatic
            || !endpoint_lock::barrier_available()
            || params().is_virtual(),
        virtual_addresses: basic || chosen.mr_mode & mr_mode::VIRT_ADDR != 0,
        auth_key: chosen.domain_key.clone(),
        devices: !basic && chosen.mr_mode & mr_mode::HMEM != 0,
        provider_keys: basic || chosen.mr_mode & mr_mode::PROV_KEY != 0,
        // A mutex in any case: background progress reads it while the application may be registering.
        regions: Arc::new(EndpointLock::new(
            true,
            Regions::new(secret::generator("the keys of memory regions")?),
        )),
        endpoints: Mutex::default(),
        counters: Mutex::default(),
        // In virtual time the application's calls do what the thread would have done meanwhile.
        progress: if automatic && !params().is_virtual() { Some(Progress::start()?) } else { None },
        work: triggered_work::WorkQueue::default(),
        process: Process::current(),
        nic,
    });
    Ok(objects::publish(domain))
}

boundary::exports! {
    status close(fid: *mut ffi::fid) -> c_int => {
        if let Some(domain) = objects::retire::<Domain, _>(fid)? {
            domain.close();
        }
        Ok(())
    };
}

unsafe extern "C" fn scalable_ep(
    _: *mut ffi::fid_domain,
    _: *mut ffi::fi_info,
    _: *mut *mut ffi::fid_ep,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn stx_ctx(
    _: *mut ffi::fid_domain,
    _: *mut ffi::fi_tx_attr,
    _: *mut *mut ffi::fid_stx,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}
