//! The domain: one network interface, its memory regions, and the progress model of the objects that are opened on it.

pub(crate) mod calls;

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use squall_base::RegionId;

use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::mr_mode;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::host::job::AuthKey;
use crate::mr::Regions;
use crate::network::addr::Name;
use crate::network::nic::Nic;
use crate::objects::{Cell, ObjectRef, Process, Users};
use crate::optional::triggered_work;
use crate::queues::cntr::Cntr;
use crate::waiting::endpoint_lock::EndpointLock;
use crate::waiting::progress::Progress;

/// An enabled endpoint, which may name regions, and has an address.
struct EnabledEndpoint {
    endpoint: Weak<Endpoint>,
    name: Name,
}

/// The reason why a counter concerns every endpoint of the domain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CounterScope {
    /// The counter counts the accesses of peers to memory regions.
    Accesses,
    /// Reading the counter makes progress on all endpoints of the domain.
    Progress,
}

impl CounterScope {
    fn begin(self, endpoint: &Arc<Endpoint>, cntr: &Arc<Cntr>) -> Result<()> {
        endpoint.attach_counter(cntr, self == Self::Accesses)
    }
}

/// A domain: `struct fid_domain` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Domain {
    fid: Cell<ffi::fid_domain>,
    users: Users,
    fabric: ObjectRef<Fabric>,
    nic: Nic,
    locks: bool,
    virtual_addresses: bool,
    provider_keys: bool,
    /// Device memory may be registered, and is known by its descriptors (FI_MR_HMEM).
    devices: bool,
    auth_key: AuthKey,
    regions: Arc<EndpointLock<Regions>>,
    endpoints: Mutex<Vec<EnabledEndpoint>>,
    /// Counters that concern every endpoint of the domain, each with the reason.
    counters: Mutex<Vec<(Weak<Cntr>, CounterScope)>>,
    progress: Option<Progress>,
    work: triggered_work::WorkQueue,
    process: Process,
}

impl Domain {
    /// Returns the name of the domain, which is that of its network interface.
    pub(crate) fn name(&self) -> &str {
        &self.nic.name
    }

    /// Returns the network interface of the domain.
    pub(crate) fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Returns the libfabric API version that the application asked for.
    pub(crate) fn api_version(&self) -> u32 {
        self.fabric.api_version()
    }

    /// Returns whether peers address registered memory by virtual addresses, not by offsets (FI_MR_VIRT_ADDR).
    pub(crate) fn uses_virtual_addresses(&self) -> bool {
        self.virtual_addresses
    }

    /// Returns the memory registration modes of the domain (`mr_mode`).
    pub(crate) fn registration_modes(&self) -> i32 {
        let of = |has, mode| if has { mode } else { 0 };
        of(self.virtual_addresses, mr_mode::VIRT_ADDR)
            | of(self.provider_keys, mr_mode::PROV_KEY)
            | of(self.devices, mr_mode::HMEM)
    }

    /// Returns whether device memory may be registered (FI_MR_HMEM).
    pub(crate) fn has_device_memory(&self) -> bool {
        self.devices
    }

    /// Returns whether the provider chooses the keys of memory regions (FI_MR_PROV_KEY).
    pub(crate) fn chooses_keys(&self) -> bool {
        self.provider_keys
    }

    /// Returns the authorisation key of endpoints that are opened without one of their own.
    pub(crate) fn auth_key(&self) -> &AuthKey {
        &self.auth_key
    }

    /// Returns the memory regions that peers may access.
    pub(crate) fn regions(&self) -> &Arc<EndpointLock<Regions>> {
        &self.regions
    }

    /// Adds an endpoint that was enabled to the domain, with its address and instance.
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<Endpoint>, name: Name) {
        self.endpoints.lock().push(EnabledEndpoint { endpoint: Arc::downgrade(endpoint), name });
    }

    /// Attaches a counter that is bound to a region: every endpoint reports the accesses of peers to it.
    ///
    /// # Errors
    /// The system's error, if a wait object cannot watch an endpoint's sockets.
    pub(crate) fn attach_access_counter(&self, cntr: &Arc<Cntr>) -> Result<()> {
        self.attach_counter(cntr, CounterScope::Accesses)
    }

    /// Attaches a counter that deferred work changes. Reading it drives every endpoint, because the work may depend on
    /// any of them.
    ///
    /// # Errors
    /// Returns the errors of [`Self::attach_access_counter`].
    pub(crate) fn attach_work_counter(&self, cntr: &Arc<Cntr>) -> Result<()> {
        self.attach_counter(cntr, CounterScope::Progress)
    }

    fn attach_counter(&self, cntr: &Arc<Cntr>, what: CounterScope) -> Result<()> {
        let mut counters = self.counters.lock();
        counters.retain(|(known, _)| known.strong_count() > 0);
        let is = |known: &Weak<Cntr>| core::ptr::eq(known.as_ptr(), Arc::as_ptr(cntr));
        if counters.iter().any(|(known, which)| is(known) && *which == what) {
            return Ok(());
        }
        counters.push((Arc::downgrade(cntr), what));
        drop(counters);
        self.open_endpoints().iter().try_for_each(|endpoint| what.begin(endpoint, cntr))
    }

    /// Attaches an endpoint that was enabled to the counters that concern every endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Self::attach_access_counter`].
    pub(crate) fn attach_to_counters(&self, endpoint: &Arc<Endpoint>) -> Result<()> {
        let counters = self.counters.lock().clone();
        counters.iter().try_for_each(|(cntr, what)| {
            cntr.upgrade().map_or(Ok(()), |cntr| what.begin(endpoint, &cntr))
        })
    }

    /// Returns the enabled endpoints of the domain.
    fn open_endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints.lock().iter().filter_map(|e| e.endpoint.upgrade()).collect()
    }

    /// Removes an endpoint, which has closed and had these sockets, from the domain.
    pub(crate) fn remove_endpoint(&self, endpoint: &Endpoint, sockets: &[RawFd]) {
        for cntr in self.counters.lock().iter().filter_map(|(cntr, _)| cntr.upgrade()) {
            cntr.detach(endpoint, sockets);
        }
        self.endpoints.lock().retain(|other| !core::ptr::eq(other.endpoint.as_ptr(), endpoint));
    }

    /// Checks that this domain can reach a name. A name with the address of an endpoint of this process and another
    /// instance is refused, because the endpoint would talk to itself.
    ///
    /// # Errors
    /// `FI_EADDRNOTAVAIL`, and a warning that says who is who.
    pub(crate) fn check_reachable(&self, name: &Name) -> Result<()> {
        let contradiction =
            |ours: &EnabledEndpoint| ours.name.contradicts(name).then_some(ours.name);
        let Some(ours) = self.endpoints.lock().iter().find_map(contradiction) else {
            return Ok(());
        };
        let (ours, given) = ours.instance.zip(name.instance).ok_or(Errno::ADDRNOTAVAIL)?;
        log::warn!(
            "{} on {} is this endpoint's own address, but the one given (instance {given}) is another \
             endpoint's (ours is instance {ours}): either two hosts have the same address, and \
             FI_SQUALL_IFACE must name an interface that others can reach, or that endpoint was closed, and this \
             one has its port now",
            name.addr,
            self.nic.name
        );
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Ends the operations of endpoints that still use a region which was removed from the table.
    pub(crate) fn release_region(&self, region: RegionId) {
        // Not under this lock: an endpoint lock may be waited for.
        for endpoint in self.open_endpoints() {
            endpoint.release_region(region);
        }
    }

    /// Returns the progress thread, if the domain has automatic progress.
    pub(crate) fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Returns the deferred work of the domain (fi_trigger(3)).
    #[inline]
    pub(crate) fn work(&self) -> &triggered_work::WorkQueue {
        &self.work
    }

    /// Queues triggered work that is due. The caller may hold an endpoint lock, so the thread that
    /// makes progress next begins the work.
    pub(crate) fn push_work(&self, due: Vec<triggered_work::Work>) {
        self.work.push(due);
        if let Some(progress) = &self.progress {
            progress.wake();
        }
    }

    /// Returns whether endpoints and queues need locks. They need none if the application promises to exclude its own
    /// threads (FI_THREAD_DOMAIN) and no thread of the provider uses them.
    pub(crate) fn needs_locks(&self) -> bool {
        self.locks
    }

    /// Returns the process that opened the domain, which a forked child is not.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// Returns the IP address to which an endpoint without an address of its own binds.
    pub(crate) fn ip(&self) -> IpAddr {
        self.nic.ip
    }

    /// Releases the resources of the domain, which the application closed.
    fn close(&self) {
        if let Some(progress) = &self.progress {
            progress.stop();
        }
        // A thread of ours may keep a closed endpoint, hence the domain, a little longer.
        self.fabric.release();
    }
}
