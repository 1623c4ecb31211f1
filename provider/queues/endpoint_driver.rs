//! The endpoints that readers of a completion queue or a counter drive, and the backoff of these readers.

use std::os::fd::RawFd;
use std::sync::Arc;

use squall_base::Time;

use crate::abi::errno::{Errno, Result};
use crate::clock::hooks;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::waiting::backoff::Backoff;
use crate::waiting::endpoint_lock::EndpointLock;
use crate::waiting::open_endpoints::{OpenEndpoint as _, prepare_sleep};
use crate::waiting::{Waiter, Waits};

/// The endpoints on which reading a queue or counter makes progress.
#[derive(Default)]
struct Lists {
    endpoints: Vec<Arc<Endpoint>>,
    /// Endpoints for which [`Endpoint::prepare_sleep`] was called, whose peers wake a sleeping reader.
    sleeping: Vec<Arc<Endpoint>>,
}

/// Makes progress on the endpoints of a queue or counter for the threads that read it.
pub(crate) struct EndpointDriver {
    lists: EndpointLock<Lists>,
    backoff: Backoff,
}

impl EndpointDriver {
    /// Creates a driver without endpoints, whose lock is a mutex if `locked`.
    pub(crate) fn new(locked: bool) -> Self {
        Self { lists: EndpointLock::new(locked, Lists::default()), backoff: Backoff::default() }
    }

    /// Adds an endpoint, on which reading makes progress from now on. Unless the domain has a progress thread, waiting
    /// threads watch the endpoint's sockets.
    ///
    /// # Errors
    /// The system's error, if descriptors are short.
    pub(crate) fn attach(
        &self,
        domain: &Domain,
        waits: &Waits,
        endpoint: &Arc<Endpoint>,
        sockets: &[RawFd],
    ) -> Result<()> {
        if let (Some(waiter), None) = (waits.waiter(), domain.progress()) {
            for fd in sockets {
                waiter.add(*fd)?;
            }
        }
        self.backoff.add_sockets(sockets);
        let mut lists = self.lists.lock();
        if !lists.endpoints.iter().any(|e| Arc::ptr_eq(e, endpoint)) {
            lists.endpoints.push(Arc::clone(endpoint));
        }
        drop(lists);
        // A sleeper under manual progress does not learn of its endpoints' timers by itself.
        waits.signal();
        Ok(())
    }

    /// Removes an endpoint, which closes, from those on which reading makes progress.
    pub(crate) fn detach(&self, waits: &Waits, endpoint: &Endpoint, sockets: &[RawFd]) {
        if let Some(waiter) = waits.waiter() {
            for fd in sockets {
                waiter.remove(*fd);
            }
        }
        self.backoff.remove_sockets(sockets);
        let mut lists = self.lists.lock();
        lists.endpoints.retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
        lists.sleeping.retain(|e| !core::ptr::eq(Arc::as_ptr(e), endpoint));
    }

    /// Makes progress on every endpoint once. Returns whether anything happened. The caller must not hold the lock of
    /// its queue, because endpoints add completions to it.
    pub(crate) fn progress(&self) -> bool {
        let (mut i, mut busy) = (0, false);
        loop {
            // One endpoint per queue is the common case: one clone, one turn.
            let (endpoint, last) = {
                let mut lists = self.lists.lock();
                if !lists.sleeping.is_empty() {
                    let sleeping = core::mem::take(&mut lists.sleeping);
                    drop(lists);
                    sleeping.iter().for_each(|endpoint| endpoint.end_sleep());
                    lists = self.lists.lock();
                }
                let Some(endpoint) = lists.endpoints.get(i) else { return busy };
                (Arc::clone(endpoint), i + 1 == lists.endpoints.len())
            };
            busy |= endpoint.progress();
            if last {
                return busy;
            }
            i += 1;
        }
    }

    /// Makes progress on every endpoint once for a thread that polls. If nothing happened, the thread backs off, unless
    /// `is_unchanged` returns false because there is something to read by now.
    #[inline]
    pub(crate) fn poll(&self, is_unchanged: impl FnOnce() -> bool) {
        if self.progress() {
            self.backoff.on_busy();
            hooks::on_busy_poll();
        } else if !hooks::on_empty_poll() {
            let is_idle = || self.prepare_sleep(true) && is_unchanged();
            self.backoff.on_idle(|| self.next_timeout(), is_idle);
        }
    }

    /// Makes progress on every endpoint once for a thread that is about to sleep, and makes the next arrival or timer
    /// wake it.
    ///
    /// # Errors
    /// `FI_EAGAIN` when something has arrived.
    pub(crate) fn prepare(&self, domain: &Domain, waiter: Option<&Waiter>) -> Result<()> {
        self.progress();
        match domain.progress() {
            None => {
                if let Some(waiter) = waiter {
                    waiter.arm(self.next_timeout_of_sleeper());
                }
                if !self.prepare_sleep(false) {
                    return Err(Errno::AGAIN);
                }
            }
            Some(progress) => {
                self.lists.lock().endpoints.iter().for_each(|ep| ep.mark_idle());
                progress.take_over();
            }
        }
        Ok(())
    }

    /// Returns the time at which one of the endpoints needs a turn although nothing arrives.
    fn next_timeout(&self) -> Option<Time> {
        let endpoints = self.lists.lock().endpoints.clone();
        endpoints.iter().filter_map(|e| e.next_timeout()).min()
    }

    /// Returns the earliest timer of the endpoints, for a thread that is about to sleep until then.
    fn next_timeout_of_sleeper(&self) -> Option<Time> {
        let endpoints = self.lists.lock().endpoints.clone();
        endpoints.iter().filter_map(|e| e.next_timeout_of_sleeper()).min()
    }

    /// Makes peers on this host wake the thread that is about to sleep. Returns whether no packet or record of theirs
    /// has arrived. For an endpoint on which another thread makes progress now, the answer is `driven`.
    fn prepare_sleep(&self, driven: bool) -> bool {
        let endpoints = self.lists.lock().endpoints.clone();
        let (sleeping, quiet) = prepare_sleep(&endpoints, driven);
        self.lists.lock().sleeping.extend(sleeping);
        quiet
    }
}
