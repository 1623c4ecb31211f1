//! Receives of an endpoint that belong to a peer-provider owner (`optional/peer_provider.rs`). The endpoint offers each
//! message that arrives to the owner, which returns a receive for it, or queues it until there is one.
//!
//! For the engine all these messages are unexpected: it keeps them, and this module claims them when the owner has a
//! receive. The owner is called only while it drives us by reading our side of its queue, because it holds its lock
//! then, and never under our endpoint lock.

use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use squall_engine::{Buf, Completion, MatchSpace, OpError, OpKind, RecvMode, RecvOp, Visibility};

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::flags;
use crate::clock;
use crate::endpoint::buffer::gather;
use crate::endpoint::delivery::entry::{entry_of, error_entry_of};
use crate::endpoint::{Endpoint, Inner};
use crate::mr::UserMemory;
use crate::network::addr::Name;
use crate::optional::peer_provider::{
    self, Arrival, MatchResult, OwnerEntry, RxEntry, Srx, SrxPeerOps,
};
use crate::queues::cq::Cq;

/// Bits that mark the contexts of these operations in the engine. No application's pointer has them, nor has deferred
/// work (`optional/triggered_work.rs`).
const OURS: u64 = 3 << 62;

/// A message that waits at the owner for a receive.
struct QueuedMessage {
    endpoint: Weak<Endpoint>,
    id: u64,
    from: Option<Name>,
}

/// A receive of the owner that has ended, with the source of the message.
struct FinishedReceive {
    entry: OwnerEntry,
    done: Completion,
    source: u64,
}

/// The messages of an endpoint whose receives belong to a peer-provider owner.
#[derive(Default)]
pub(crate) struct PeerReceives {
    next: u64,
    /// The message that the last claim found, and its source.
    found: Option<(Completion, u64)>,
    /// Messages that wait at the owner, by id. They are boxed because the owner's entries point to them.
    waiting: HashMap<u64, Box<QueuedMessage>>,
    /// Receives of the owner into which messages are being received, by id.
    active: HashMap<u64, OwnerEntry>,
    finished: Vec<FinishedReceive>,
    /// The address vector's revision when the owner was last notified of changes.
    revision: u64,
}

impl PeerReceives {
    /// Returns whether a completion with this context belongs to these receives.
    pub(crate) const fn is_peer_receive(context: u64) -> bool {
        context & OURS == OURS
    }

    /// Handles the end of an operation for the owner's receives. `source` is the `fi_addr_t` of the message.
    pub(crate) fn handle_end(&mut self, done: &Completion, source: u64) {
        if done.kind == OpKind::Peek {
            if done.status.is_ok() {
                self.found = Some((done.clone(), source));
            }
        } else if let Some(entry) = self.active.remove(&done.context) {
            self.finished.push(FinishedReceive { entry, done: done.clone(), source });
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next | OURS
    }
}

/// Builds the receive operation that claims a message which the engine has.
const fn claim(mode: RecvMode, space: MatchSpace, buf: Buf, context: u64) -> RecvOp {
    let (source, visibility) = (None, Visibility::Kept);
    RecvOp { mode, source, space, tag: 0, ignore: u64::MAX, buf, context, visibility }
}

/// An endpoint and the receive context that it shares with the owner. It is used under the owner's lock, not under our
/// endpoint lock.
struct SharedContext<'a> {
    ep: &'a Endpoint,
    srx: Arc<Srx>,
}

/// Notifies the owner of an endpoint's receives of messages that have arrived and of receives that have ended. The
/// caller holds the owner's lock and not our endpoint lock.
pub(crate) fn notify_owner(ep: &Endpoint) {
    if let Some(context) = SharedContext::of(ep) {
        context.run_turn();
    }
}

impl<'a> SharedContext<'a> {
    /// Returns the shared context of an endpoint; `None` for an endpoint with receives of its own.
    fn of(ep: &'a Endpoint) -> Option<Self> {
        let srx = ep.lock_unchecked().bindings.srx.as_deref().cloned()?;
        Some(Self { ep, srx })
    }

    fn run_turn(&self) {
        self.refresh_sources();
        loop {
            self.report_finished();
            let Some((id, from, arrival)) = self.next_arrival() else { return };
            match self.srx.get(&arrival) {
                Ok(MatchResult::Receive(entry)) => self.begin(id, entry),
                Ok(MatchResult::Wait(entry)) => {
                    let waiting = self.keep_waiting(id, from);
                    if self.srx.queue(&arrival, entry, waiting.cast()).is_err() {
                        self.discard(id);
                    }
                }
                // `get` has logged it. No receive will ever ask for the message.
                Err(_) => self.discard(id),
            }
        }
    }

    /// Claims the next message that the owner has not seen. Returns its id and sender.
    fn next_arrival(&self) -> Option<(u64, Option<Name>, Arrival)> {
        let mut inner = self.ep.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        let core = core.as_mut()?;
        for space in [MatchSpace::Tagged, MatchSpace::Untagged] {
            if core.engine.unexpected_messages() == 0 {
                return None;
            }
            let id = core.optional.peer_receives.next_id();
            let look = claim(RecvMode::PeekClaim, space, Buf::Empty, id);
            let looked = core.engine.receive(clock::now(), &mut UserMemory(&core.regions), look);
            if looked.is_err() {
                continue;
            }
            core.deliver_completions(bindings);
            if let Some((done, source)) = core.optional.peer_receives.found.take() {
                let Completion { tag, len, data, peer, .. } = done;
                let tagged = space == MatchSpace::Tagged;
                let from = peer.map(|peer| core.name_of(peer));
                return Some((id, from, Arrival { tagged, tag, len, source, data }));
            }
        }
        None
    }

    /// Receives a message into the buffer of an owner's entry.
    fn begin(&self, id: u64, entry: OwnerEntry) {
        let mut inner = self.ep.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return };
        core.optional.peer_receives.waiting.remove(&id);
        let (iov, count) = entry.pieces();
        // SAFETY: the entry's pieces are the owner's copy of those that the application named, as many as it says, and
        // no other code changes them while we have the entry; no descriptors are given.
        let buf = unsafe { gather(iov, core::ptr::null(), count) };
        core.optional.peer_receives.active.insert(id, entry);
        let begun = buf.and_then(|buf| {
            let op = claim(RecvMode::Claim, MatchSpace::Untagged, buf, id);
            Ok(core.engine.receive(clock::now(), &mut UserMemory(&core.regions), op)?)
        });
        if begun.is_ok() {
            core.flush(clock::now());
            core.deliver_completions(bindings);
        } else if let Some(entry) = core.optional.peer_receives.active.remove(&id) {
            // The sender is gone, and the message with it.
            let done = crate::optional::triggered_work::operations::unstarted_completion(
                OpKind::Recv,
                MatchSpace::Untagged,
                0,
                0,
            );
            let done = Completion { status: Err(OpError::Closed), ..done };
            core.optional.peer_receives.finished.push(FinishedReceive {
                entry,
                done,
                source: flags::ADDR_UNSPEC,
            });
        }
    }

    /// Stores a message that waits at the owner. Returns the address for the owner's entry.
    fn keep_waiting(&self, id: u64, from: Option<Name>) -> *mut QueuedMessage {
        let mut inner = self.ep.lock_unchecked();
        let waiting = Box::new(QueuedMessage { endpoint: self.ep.weak(), id, from });
        let Some(core) = inner.core.as_mut() else { return core::ptr::null_mut() };
        let kept = core.optional.peer_receives.waiting.entry(id).or_insert(waiting);
        core::ptr::from_mut(&mut **kept)
    }

    /// Discards a message in the engine that no receive will ask for.
    fn discard(&self, id: u64) {
        let mut inner = self.ep.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return };
        core.optional.peer_receives.waiting.remove(&id);
        let op = claim(RecvMode::ClaimDiscard, MatchSpace::Untagged, Buf::Empty, id);
        // A message that went with its sender cannot be discarded, which is no error.
        let dropped = core.engine.receive(clock::now(), &mut UserMemory(&core.regions), op);
        if dropped.is_ok() {
            core.flush(clock::now());
            core.deliver_completions(bindings);
        }
    }

    /// Reports receives that have ended to the owner's queue and to our counters, and gives the entries back.
    fn report_finished(&self) {
        let (finished, queue) = {
            let mut inner = self.ep.lock_unchecked();
            let Inner { bindings, core } = &mut *inner;
            let Some(core) = core else { return };
            let finished = core::mem::take(&mut core.optional.peer_receives.finished);
            for FinishedReceive { done, .. } in &finished {
                bindings.count(OpKind::Recv, done.status.is_ok());
            }
            (finished, bindings.rx.cq.as_deref().cloned())
        };
        for FinishedReceive { entry, mut done, source } in finished {
            done.context = entry.context();
            if let Some(cq) = &queue {
                report(cq, &done, entry.flags(), source);
            }
            self.srx.free(entry);
        }
    }

    /// Makes the owner ask again for unknown sources of messages, if the address vector has changed.
    fn refresh_sources(&self) {
        let changed = {
            let mut inner = self.ep.lock_unchecked();
            let Inner { bindings, core } = &mut *inner;
            let (Some(core), Some(av)) = (core, &bindings.av) else { return };
            let before =
                core::mem::replace(&mut core.optional.peer_receives.revision, av.revision());
            before != core.optional.peer_receives.revision
                && !core.optional.peer_receives.waiting.is_empty()
        };
        if changed {
            self.srx.refresh_sources(source_of);
        }
    }
}

/// Returns the source (`fi_addr_t`) of a message that waits at the owner.
fn waiting_source(ep: &Endpoint, id: u64) -> u64 {
    let inner = ep.lock_unchecked();
    let waiting = inner.core.as_ref().and_then(|core| core.optional.peer_receives.waiting.get(&id));
    match (&inner.bindings.av, waiting.and_then(|waiting| waiting.from)) {
        (Some(av), Some(from)) => av.addresses().fi_addr_of(&from),
        _ => flags::ADDR_UNSPEC,
    }
}

/// Writes a completion to a queue, if the `given` flags of the receive want one.
fn report(cq: &Cq, done: &Completion, given: u64, source: u64) {
    if let Err(error) = done.status {
        cq.push_error(error_entry_of(done, error, source, None));
        return;
    }
    if given & flags::COMPLETION != 0 || done.data.is_some() {
        let mut entry = entry_of(done, source);
        // The owner says whether a buffer for several messages is used up.
        entry.flags |= given & flags::MULTI_RECV;
        cq.push(entry);
    }
}

/// Returns the message that waits behind an entry.
///
/// # Safety
/// The owner gives the entry back, or asks about it, as fi_peer(3) has it.
unsafe fn waiting_of(entry: *mut RxEntry) -> Result<(Arc<Endpoint>, u64, OwnerEntry)> {
    // SAFETY: the entry is one that was queued with a `QueuedMessage`, which stays where it is until its message begins
    // or is dropped; both are read out of it here.
    let (waiting, entry) = unsafe { peer_provider::take_back_entry::<QueuedMessage>(entry)? };
    Ok((waiting.endpoint.upgrade().ok_or(Errno::INVAL)?, waiting.id, entry))
}

boundary::exports! {
    /// Begins the receive of a message that waited, for which the owner has a receive now: `start_msg` and `start_tag`.
    status start(entry: *mut RxEntry) -> c_int => {
        let (ep, id, entry) = waiting_of(entry)?;
        let context = SharedContext::of(&ep).ok_or(Errno::INVAL)?;
        context.begin(id, entry);
        context.report_finished();
        Ok(())
    };

    /// Discards a message for which no receive will ask: `discard_msg` and `discard_tag`.
    status discard(entry: *mut RxEntry) -> c_int => {
        let (ep, id, _) = waiting_of(entry)?;
        SharedContext::of(&ep).ok_or(Errno::INVAL)?.discard(id);
        Ok(())
    };

    counter source_of(entry: *mut RxEntry) -> u64 => {
        Ok(waiting_of(entry).map_or(flags::ADDR_UNSPEC, |(ep, id, _)| waiting_source(&ep, id)))
    };
}

/// The functions of this provider that the owner of a shared receive context calls.
pub(crate) static OPS: SrxPeerOps = SrxPeerOps {
    size: size_of::<SrxPeerOps>(),
    start_msg: start,
    start_tag: start,
    discard_msg: discard,
    discard_tag: discard,
};
