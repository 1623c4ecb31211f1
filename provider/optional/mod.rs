//! Optional facilities of libfabric, which cost an endpoint without them nothing.

pub(crate) mod collectives;
pub(crate) mod peer_provider;
pub(crate) mod staging;
pub(crate) mod triggered_work;

use squall_engine::{Completion, Engine, Operation};

use crate::abi::flags::ADDR_UNSPEC;
use crate::endpoint::bindings::Bindings;
use crate::endpoint::endpoint_core::Core;
use crate::endpoint::peer_cache::PeerCache;
use collectives::Collectives;
use peer_provider::receives::PeerReceives;
use staging::Staging;
use triggered_work::operations::TriggeredOperations;

/// The optional facilities of an enabled endpoint. The data path asks them at two points: before an operation is
/// submitted ([`Facilities::must_stage`]), and after an operation of theirs has ended
/// ([`Facilities::after_completion`]).
pub(crate) struct Facilities {
    /// Triggered and deferred operations of the endpoint that have begun.
    pub(crate) triggered: TriggeredOperations,
    /// Receives that a peer-provider owner posted for the endpoint.
    pub(crate) peer_receives: PeerReceives,
    /// Groups for collective operations, and their operations, since the first group was joined.
    pub(crate) collectives: Option<Box<Collectives>>,
    /// Operations on device memory, if the endpoint supports it (FI_HMEM).
    pub(crate) staging: Option<Box<Staging>>,
}

impl Facilities {
    /// Creates the facilities of an endpoint, with device memory if `devices`.
    pub(crate) fn new(devices: bool) -> Self {
        Self {
            triggered: TriggeredOperations::default(),
            peer_receives: PeerReceives::default(),
            collectives: None,
            staging: devices.then(Box::default),
        }
    }

    /// Returns whether an operation must go through host memory, or wait behind one that does, instead of entering the
    /// engine.
    #[inline]
    pub(crate) fn must_stage(&self, op: &Operation) -> bool {
        !op.is_host() || self.staging.as_ref().is_some_and(|staging| staging.is_waiting())
    }

    /// Returns whether a copy between device memory and host memory is in progress.
    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.is_busy())
    }

    /// Returns whether work waits for something that no event announces, so that polling must continue.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.is_copying() || self.collectives.as_ref().is_some_and(|all| all.is_blocked())
    }

    /// Returns whether the endpoint is joining a group for collective operations.
    pub(crate) fn is_joining(&self) -> bool {
        self.collectives.as_ref().is_some_and(|all| all.is_joining())
    }

    /// Handles the end of an operation that a facility has submitted. Returns what the application sees of it, if
    /// anything.
    #[cold]
    #[inline(never)]
    pub(crate) fn after_completion(
        &mut self,
        bindings: &Bindings,
        peers: &mut PeerCache,
        engine: &mut Engine,
        done: &Completion,
    ) -> Option<Completion> {
        if PeerReceives::is_peer_receive(done.context) {
            let source = match (&bindings.av, done.peer) {
                (Some(av), Some(peer)) => peers.fi_addr(av, engine, peer),
                _ => ADDR_UNSPEC,
            };
            self.peer_receives.handle_end(done, source);
            return None;
        }
        if self.collectives.as_mut().is_some_and(|all| all.end(done)) {
            return None;
        }
        self.triggered.end(done)
    }
}

impl Core {
    /// Continues copies of device memory and collective operations that can go on. Returns whether a copy has ended.
    #[inline]
    pub(crate) fn advance_facilities(&mut self, bindings: &Bindings) -> bool {
        let busy = self.optional.is_copying() && self.advance_copies(bindings);
        if self.optional.collectives.as_ref().is_some_and(|all| all.is_due()) {
            self.finish_collectives(bindings);
        }
        busy
    }
}
