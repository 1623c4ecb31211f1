//! Endpoints (FI_EP_RDM), each with an engine and a packet port.

mod algorithms;
pub(crate) mod alias;
pub(crate) mod bindings;
pub(crate) mod buffer;
pub(crate) mod calls;
mod cm;
pub(crate) mod delivery;
pub(crate) mod endpoint_core;
pub(crate) mod open;
mod options;
pub(crate) mod peer_cache;
pub(crate) mod poller;
mod receive;
mod setup;
mod shutdown;
mod transmit;

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use squall_base::{RegionId, Span, Time};

use crate::abi::errno::Result;
use crate::abi::ffi;
use crate::domain::Domain;
use crate::host::job::Job;
use crate::objects::{Cell, ObjectRef, Process, Users};
use crate::optional::peer_provider::receives::notify_owner;
use crate::queues::cntr::Cntr;
use crate::reports::process_report;
use crate::reports::stats;
use crate::waiting::background;
use crate::waiting::endpoint_lock::{EndpointGuard, EndpointLock};
use crate::waiting::open_endpoints::OpenEndpoint;
use bindings::Bindings;
use endpoint_core::Core;
pub(crate) use receive::Receive;
pub(crate) use transmit::Transmit;

/// Time after which an endpoint is asked again for its next timer, if another thread held its lock.
const ASK_AGAIN: Span = Span::micros(50);

/// The attributes that the application chose when it opened the endpoint.
pub(crate) struct Settings {
    /// The local address that the endpoint binds to; port 0 lets the provider choose.
    pub(crate) source: SocketAddr,
    /// Receives may name the source whose messages they accept (FI_DIRECTED_RECV).
    pub(crate) directed: bool,
    /// Completions of receives name the source of the message (FI_SOURCE).
    pub(crate) names_source: bool,
    /// Buffers of operations may be in device memory (FI_HMEM).
    pub(crate) devices: bool,
    /// Default operation flags of transmit calls.
    pub(crate) tx_flags: AtomicU64,
    /// Default operation flags of receive calls.
    pub(crate) rx_flags: AtomicU64,
    /// Operations may be triggered by counters (FI_TRIGGER).
    pub(crate) triggers: bool,
    /// The endpoint may join groups for collective operations (FI_COLLECTIVE).
    pub(crate) collective: bool,
    /// Number of groups for collective operations that the endpoint has joined.
    pub(crate) groups: AtomicU64,
    /// Order guarantees of transmit calls (`msg_order`).
    pub(crate) msg_order: u64,
    /// Value of FI_OPT_MIN_MULTI_RECV: free bytes below which a multi-receive buffer is returned.
    pub(crate) min_multi_recv: AtomicU64,
    /// Value of FI_OPT_SHARED_MEMORY_PERMITTED: the endpoint may use shared memory with peers on this host.
    pub(crate) shared_memory: AtomicBool,
    pub(crate) job: Job,
}

/// The state of an endpoint that its lock protects.
pub(crate) struct Inner {
    pub(crate) bindings: Bindings,
    /// The parts of the endpoint, once it is enabled.
    pub(crate) core: Option<Box<Core>>,
}

/// An endpoint: `struct fid_ep` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Endpoint {
    fid: Cell<ffi::fid_ep>,
    users: Users,
    pub(crate) domain: ObjectRef<Domain>,
    pub(crate) settings: Settings,
    inner: EndpointLock<Inner>,
    number: u32,
    process: Process,
    closed: AtomicBool,
    /// A weak reference to this endpoint itself, for work that begins later.
    me: Weak<Self>,
    /// Set when the background progress thread looks at the endpoint, and cleared when the application makes progress
    /// on it.
    stalled: AtomicBool,
}

/// The state of an endpoint, locked for a call. The call may set a timer that is earlier than the end of a thread's
/// sleep: when it ends, it wakes that thread.
pub(crate) struct EndpointCall<'a> {
    endpoint: &'a Endpoint,
    inner: EndpointGuard<'a, Inner>,
}

impl Deref for EndpointCall<'_> {
    type Target = Inner;
    #[inline]
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for EndpointCall<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for EndpointCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(core) = &mut self.inner.core
            && let Some(until) = core.sleeps_until()
        {
            self.wake_sleeper(until);
        }
    }
}

impl EndpointCall<'_> {
    /// Wakes a thread that sleeps until this time if a timer is earlier.
    #[cold]
    fn wake_sleeper(&mut self, until: Time) {
        let Inner { bindings, core } = &mut *self.inner;
        if core.as_mut().is_some_and(|core| core.is_due_before(until)) {
            match self.endpoint.domain.progress() {
                Some(progress) => progress.wake_for_timer(),
                None => bindings.wake(),
            }
        }
    }
}

impl Endpoint {
    /// Returns a reference that does not keep the endpoint open.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Returns whether the endpoint was opened on this domain.
    pub(crate) fn belongs_to(&self, domain: &Domain) -> bool {
        core::ptr::eq(&raw const **self.domain, domain)
    }

    /// Returns the libfabric API version that the application asked for.
    pub(crate) fn api_version(&self) -> u32 {
        self.domain.api_version()
    }

    /// Locks the endpoint.
    ///
    /// # Errors
    /// `FI_ENODEV` in a forked child.
    #[inline]
    pub(crate) fn lock(&self) -> Result<EndpointCall<'_>> {
        self.process.check()?;
        Ok(self.lock_unchecked())
    }

    /// Locks the endpoint for a caller that knows to be in the process that opened it.
    #[inline]
    pub(crate) fn lock_unchecked(&self) -> EndpointCall<'_> {
        EndpointCall { endpoint: self, inner: self.inner.lock() }
    }

    /// Makes progress for the application: packets, timers and completions. Returns whether anything happened.
    ///
    /// If another thread makes progress, this one sleeps until that is done. It would take the processor from it
    /// otherwise.
    #[inline]
    pub(crate) fn progress(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let mut inner = self.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        self.stalled.store(false, Ordering::Relaxed);
        let busy = core.as_mut().is_some_and(|core| core.run_turn(bindings));
        let shares = bindings.srx.is_some();
        drop(inner);
        if shares {
            notify_owner(self);
        }
        self.begin_work_after(busy);
        busy
    }

    /// Begins the deferred work that is due, after an operation may have ended on this endpoint.
    #[inline]
    pub(crate) fn begin_work(&self) {
        self.begin_work_after(true);
    }

    /// Begins the deferred work that is due. This also runs after a turn in which no operation ended (`busy` is false):
    /// a full queue may have room by now, and a turn inside another call may have made work due.
    #[inline]
    fn begin_work_after(&self, busy: bool) {
        if self.domain.work().has_due() {
            self.domain.work().run(busy.then_some(self));
        }
    }

    /// Notes that the application is about to sleep, and will not make progress.
    pub(crate) fn mark_idle(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Notes that a thread for which [`Endpoint::prepare_sleep`] was called sleeps no more.
    pub(crate) fn end_sleep(&self) {
        if self.process.is_current()
            && let Some(core) = &mut self.inner.lock().core
        {
            core.end_sleep();
        }
    }

    /// Returns the descriptors that become readable when packets arrive.
    pub(crate) fn sockets(&self) -> Vec<i32> {
        self.inner.lock().core.as_ref().map_or_else(Vec::new, |core| core.sockets())
    }

    /// Attaches a counter of the domain, whose readers make progress on this endpoint from now on. With `accesses` the
    /// endpoint reports the accesses of peers.
    pub(crate) fn attach_counter(self: &Arc<Self>, cntr: &Arc<Cntr>, accesses: bool) -> Result<()> {
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return Ok(()) };
        bindings.add_follower(cntr);
        if accesses {
            core.engine.report_accesses();
        }
        cntr.attach(self, &core.sockets())
    }

    /// Ends all uses of a memory region that is being closed. When this returns, nothing in the endpoint refers to it.
    pub(crate) fn release_region(&self, region: RegionId) {
        if !self.process.is_current() {
            return;
        }
        let mut inner = self.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        if let Some(core) = core {
            let now = crate::clock::now();
            core.engine.release_region(now, region);
            // Accesses that wait to be counted name the region by its number, which the next region will get.
            core.deliver_completions(bindings);
            core.flush(now);
        }
        drop(inner);
        // The closed region's accesses may have brought a counter to the threshold of waiting work.
        self.begin_work();
    }
}

impl OpenEndpoint for Endpoint {
    fn try_progress(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return false };
        let Inner { bindings, core } = &mut *inner;
        let busy = core.as_mut().is_some_and(|core| core.run_turn(bindings));
        drop(inner);
        self.begin_work_after(busy);
        busy
    }

    fn check_stalled(&self) -> bool {
        self.stalled.swap(true, Ordering::Relaxed)
    }

    fn progress_in_background(&self) -> bool {
        if !self.process.is_current() || !self.stalled.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock_background() else { return false };
        let Inner { bindings, core } = &mut *inner;
        core.as_mut().is_some_and(|core| core.run_background_turn(bindings))
    }

    fn progress_for_waiter(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        // Another thread drives the endpoint.
        let Some(inner) = self.inner.try_lock_background() else { return true };
        let mut inner = EndpointCall { endpoint: self, inner };
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return false };
        core.run_background_turn(bindings);
        core.optional.is_joining()
    }

    fn prepare_sleep(&self) -> Option<bool> {
        if !self.process.is_current() {
            return Some(true);
        }
        let mut inner = self.inner.try_lock()?;
        Some(inner.core.as_mut().is_none_or(|core| core.prepare_sleep()))
    }

    fn end_sleep_of_progress_thread(&self) {
        if self.process.is_current()
            && let Some(core) = &mut self.inner.lock().core
        {
            core.end_sleep();
            core.set_sleeps_until(None);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self.inner.try_lock() {
            Some(inner) => inner.core.as_ref()?.next_timeout(),
            None => Some(crate::clock::now() + ASK_AGAIN),
        }
    }

    fn next_timeout_of_sleeper(&self) -> Option<Time> {
        let Some(mut inner) = self.inner.try_lock() else {
            return Some(crate::clock::now() + ASK_AGAIN);
        };
        let core = inner.core.as_mut()?;
        let at = core.next_timeout();
        let is_served = self.domain.progress().is_none() && background::is_available();
        core.set_sleeps_until((!is_served).then(|| at.unwrap_or(Time::NEVER)));
        at
    }

    fn drain(&self) {
        shutdown::drain(self);
    }

    fn close_reports(&self) {
        if let Some(mut inner) = self.inner.try_lock()
            && let Some(core) = &mut inner.core
            && !self.closed.swap(true, Ordering::AcqRel)
        {
            let statistics = core.statistics();
            stats::report(self.number, &statistics);
            process_report::add(&core.engine, &statistics);
            core.close_reports();
        }
    }
}
