//! An endpoint whose receives another provider has (`peer.rs`): every message that comes is shown to the owner, which
//! names a receive for it, or lets it wait until there is one.
//!
//! For the engine none is ever expected: it keeps the message, and it is claimed when the owner has a receive. The owner
//! is asked only when it makes us move, by reading our side of its queue, for it holds its lock then, and never from
//! under our endpoint lock.

use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use squall_engine::{Buf, Completion, MatchSpace, OpError, OpKind, RecvMode, RecvOp, Visibility};

use super::buffer::gather;
use super::flow::{entry_of, error_entry_of};
use super::{Endpoint, Inner};
use crate::addr::Name;
use crate::boundary;
use crate::clock;
use crate::cq::Cq;
use crate::errno::{Errno, Result};
use crate::flags;
use crate::mr::UserMemory;
use crate::peer::{self, Arrival, Lent, Matched, RxEntry, Srx, SrxPeer};

/// What the engine knows these operations by: no pointer of an application is up there, nor deferred work (`work.rs`).
const OURS: u64 = 3 << 62;

/// A message that waits at the owner.
struct Waiting {
    endpoint: Weak<Endpoint>,
    id: u64,
    from: Option<Name>,
}

/// A receive that has ended, and who sent the message.
struct Finished {
    entry: Lent,
    done: Completion,
    source: u64,
}

/// Messages on their way through the owner.
#[derive(Default)]
pub(super) struct Shared {
    next: u64,
    /// What the last look at the messages found.
    found: Option<(Completion, u64)>,
    /// By id; in boxes, for the owner's entries point to them.
    waiting: HashMap<u64, Box<Waiting>>,
    /// Receives of the owner's that messages are on their way into, by id.
    taken: HashMap<u64, Lent>,
    finished: Vec<Finished>,
    /// The address vector's when the owner was last told of changes.
    revision: u64,
}

impl Shared {
    /// Whether a completion with this context concerns it.
    pub(super) const fn owns(context: u64) -> bool {
        context & OURS == OURS
    }

    /// Something of the engine's has ended; who sent the message.
    pub(super) fn note(&mut self, done: &Completion, source: u64) {
        if done.kind == OpKind::Peek {
            if done.status.is_ok() {
                self.found = Some((done.clone(), source));
            }
        } else if let Some(entry) = self.taken.remove(&done.context) {
            self.finished.push(Finished { entry, done: done.clone(), source });
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next | OURS
    }
}

/// A receive of one message that is known to be there.
const fn claim(mode: RecvMode, space: MatchSpace, buf: Buf, context: u64) -> RecvOp {
    let (source, visibility) = (None, Visibility::Kept);
    RecvOp { mode, source, space, tag: 0, ignore: u64::MAX, buf, context, visibility }
}

/// An endpoint and the context that it shares, under the owner's lock and outside of our endpoint lock.
struct Sharing<'a> {
    ep: &'a Endpoint,
    srx: Arc<Srx>,
}

/// Shows the owner of an endpoint's receives what has come and what has ended. Under the owner's lock, outside of our
/// endpoint lock.
pub(super) fn share(ep: &Endpoint) {
    if let Some(sharing) = Sharing::of(ep) {
        sharing.turn();
    }
}

impl<'a> Sharing<'a> {
    /// `None` for an endpoint with receives of its own.
    fn of(ep: &'a Endpoint) -> Option<Self> {
        let srx = ep.inner.lock().bindings.srx.as_deref().cloned()?;
        Some(Self { ep, srx })
    }

    fn turn(&self) {
        self.tell_sources();
        loop {
            self.tell_finished();
            let Some((id, from, arrival)) = self.next_arrival() else { return };
            match self.srx.get(&arrival) {
                Ok(Matched::Receive(entry)) => self.begin(id, entry),
                Ok(Matched::Wait(entry)) => {
                    let waiting = self.keep_waiting(id, from);
                    if self.srx.queue(&arrival, entry, waiting.cast()).is_err() {
                        self.discard(id);
                    }
                }
                // Said by `get`: nobody will ever ask for the message.
                Err(_) => self.discard(id),
            }
        }
    }

    /// The next message that the owner was not shown, claimed under its id, and who sent it.
    fn next_arrival(&self) -> Option<(u64, Option<Name>, Arrival)> {
        let mut inner = self.ep.inner.lock();
        let Inner { bindings, core } = &mut *inner;
        let core = core.as_mut()?;
        for space in [MatchSpace::Tagged, MatchSpace::Untagged] {
            if core.engine.unexpected_messages() == 0 {
                return None;
            }
            let id = core.shared.next_id();
            let look = claim(RecvMode::PeekClaim, space, Buf::Empty, id);
            let looked = core.engine.receive(clock::now(), &mut UserMemory(&core.regions), look);
            if looked.is_err() {
                continue;
            }
            core.complete(self.ep, bindings);
            if let Some((done, source)) = core.shared.found.take() {
                let Completion { tag, len, data, peer, .. } = done;
                let tagged = space == MatchSpace::Tagged;
                let from = peer.map(|peer| core.name_of(peer));
                return Some((id, from, Arrival { tagged, tag, len, source, data }));
            }
        }
        None
    }

    /// A message goes into a receive of the owner's.
    fn begin(&self, id: u64, entry: Lent) {
        let mut inner = self.ep.inner.lock();
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return };
        core.shared.waiting.remove(&id);
        let (iov, count) = entry.pieces();
        // SAFETY: the entry's pieces are the owner's copy of those that the application named, as many as it says, and
        // nobody changes them while the entry is lent; no descriptors are given.
        let buf = unsafe { gather(iov, core::ptr::null(), count) };
        core.shared.taken.insert(id, entry);
        let begun = buf.and_then(|buf| {
            let op = claim(RecvMode::Claim, MatchSpace::Untagged, buf, id);
            Ok(core.engine.receive(clock::now(), &mut UserMemory(&core.regions), op)?)
        });
        if begun.is_ok() {
            core.flush(clock::now());
            core.complete(self.ep, bindings);
        } else if let Some(entry) = core.shared.taken.remove(&id) {
            // Whoever sent it is gone, and the message with it.
            let done = super::work::unbegun(OpKind::Recv, MatchSpace::Untagged, 0, 0);
            let done = Completion { status: Err(OpError::Closed), ..done };
            core.shared.finished.push(Finished { entry, done, source: flags::ADDR_UNSPEC });
        }
    }

    /// A message waits at the owner: what its entry is to point to.
    fn keep_waiting(&self, id: u64, from: Option<Name>) -> *mut Waiting {
        let mut inner = self.ep.inner.lock();
        let waiting = Box::new(Waiting { endpoint: self.ep.weak(), id, from });
        let Some(core) = inner.core.as_mut() else { return core::ptr::null_mut() };
        let kept = core.shared.waiting.entry(id).or_insert(waiting);
        core::ptr::from_mut(&mut **kept)
    }

    /// Nobody wants a message any more.
    fn discard(&self, id: u64) {
        let mut inner = self.ep.inner.lock();
        let Inner { bindings, core } = &mut *inner;
        let Some(core) = core else { return };
        core.shared.waiting.remove(&id);
        let op = claim(RecvMode::ClaimDiscard, MatchSpace::Untagged, Buf::Empty, id);
        // One that went with its sender is not there to be dropped.
        let dropped = core.engine.receive(clock::now(), &mut UserMemory(&core.regions), op);
        if dropped.is_ok() {
            core.flush(clock::now());
            core.complete(self.ep, bindings);
        }
    }

    /// Tells the owner's queue, and our counters, what ended, and gives the entries back.
    fn tell_finished(&self) {
        let (finished, queue) = {
            let mut inner = self.ep.inner.lock();
            let Inner { bindings, core } = &mut *inner;
            let Some(core) = core else { return };
            let finished = core::mem::take(&mut core.shared.finished);
            for Finished { done, .. } in &finished {
                bindings.count(OpKind::Recv, done.status.is_ok());
            }
            (finished, bindings.rx.cq.as_deref().cloned())
        };
        for Finished { entry, mut done, source } in finished {
            done.context = entry.context();
            if let Some(cq) = &queue {
                tell(cq, &done, entry.flags(), source);
            }
            self.srx.free(entry);
        }
    }

    /// After an address has come or gone, messages whose source nobody knew may have one.
    fn tell_sources(&self) {
        let changed = {
            let mut inner = self.ep.inner.lock();
            let Inner { bindings, core } = &mut *inner;
            let (Some(core), Some(av)) = (core, &bindings.av) else { return };
            let before = core::mem::replace(&mut core.shared.revision, av.revision());
            before != core.shared.revision && !core.shared.waiting.is_empty()
        };
        if changed {
            self.srx.sources_changed(source_of);
        }
    }
}

/// The source of a message that waits.
fn waiting_source(ep: &Endpoint, id: u64) -> u64 {
    let inner = ep.inner.lock();
    let waiting = inner.core.as_ref().and_then(|core| core.shared.waiting.get(&id));
    match (&inner.bindings.av, waiting.and_then(|waiting| waiting.from)) {
        (Some(av), Some(from)) => av.addresses().called(&from),
        _ => flags::ADDR_UNSPEC,
    }
}

/// Writes a completion to a queue, as far as the receive's `given` flags want one.
fn tell(cq: &Cq, done: &Completion, given: u64, source: u64) {
    if let Err(error) = done.status {
        cq.fail(error_entry_of(done, error, source, None));
        return;
    }
    if given & flags::COMPLETION != 0 || done.data.is_some() {
        let mut entry = entry_of(done, source);
        // The owner says whether a buffer for several messages is used up.
        entry.flags |= given & flags::MULTI_RECV;
        cq.push(entry);
    }
}

/// What waits behind an entry.
///
/// # Safety
/// The owner gives the entry back, or asks about it, as fi_peer(3) has it.
unsafe fn waiting_of(entry: *mut RxEntry) -> Result<(Arc<Endpoint>, u64, Lent)> {
    // SAFETY: the entry is one that was queued with a `Waiting`, which stays where it is until its message begins or is
    // dropped; both are read out of it here.
    let (waiting, entry) = unsafe { peer::given_back::<Waiting>(entry)? };
    Ok((waiting.endpoint.upgrade().ok_or(Errno::INVAL)?, waiting.id, entry))
}

boundary::exports! {
    /// There is a receive for a message that waited.
    status start(entry: *mut RxEntry) -> c_int => {
        let (ep, id, entry) = waiting_of(entry)?;
        let sharing = Sharing::of(&ep).ok_or(Errno::INVAL)?;
        sharing.begin(id, entry);
        sharing.tell_finished();
        Ok(())
    };

    /// There will be none.
    status discard(entry: *mut RxEntry) -> c_int => {
        let (ep, id, _) = waiting_of(entry)?;
        Sharing::of(&ep).ok_or(Errno::INVAL)?.discard(id);
        Ok(())
    };

    counter source_of(entry: *mut RxEntry) -> u64 => {
        Ok(waiting_of(entry).map_or(flags::ADDR_UNSPEC, |(ep, id, _)| waiting_source(&ep, id)))
    };
}

/// What the owner calls.
pub(crate) static OPS: SrxPeer = SrxPeer {
    size: size_of::<SrxPeer>(),
    start_msg: start,
    start_tag: start,
    discard_msg: discard,
    discard_tag: discard,
};
