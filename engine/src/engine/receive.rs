//! Commands that receive, and what becomes of a message once it has met its receive.

use super::Engine;
use crate::api::{Completion, OpError, OpKind, Peek, PeerId, RecvOp, Refused, RemoteSeg};
use crate::base::Time;
use crate::matching::{PostedRecv, Wanted};
use crate::memory::{Buf, Memory};
use crate::messages::{Message, Offer, Place, Pull, Target};
use crate::ops::{NewOp, ReadOwner, Work};
use crate::reliability::PdcId;

impl Engine {
    /// Posts a receive. The buffer must stay until the completion, a multi-receive buffer until the
    /// completion that releases it.
    ///
    /// # Errors
    /// None at present; receives are bounded by memory alone.
    pub fn recv<M: Memory>(&mut self, now: Time, mem: &mut M, op: RecvOp) -> Result<(), Refused> {
        let wanted = wanted(&op);
        if op.multi_recv.is_none() {
            if let Some(waiting) =
                self.unexpected.find(&wanted).and_then(|number| self.unexpected.take(number))
            {
                self.attach(now, mem, waiting.message, target(op));
            } else {
                self.posted.post(posted(wanted, op));
            }
            return Ok(());
        }
        let slot = self.posted.post(posted(wanted, op));
        while self.posted.get_mut(slot).is_some_and(|p| p.wanted == wanted && !p.released) {
            let Some(number) = self.unexpected.find(&wanted) else { break };
            let Some(waiting) = self.unexpected.take(number) else { break };
            let total = self.messages.get(waiting.message).map_or(0, |m| m.total);
            let Some(target) = self.claim_posted(slot, total) else { break };
            self.attach(now, mem, waiting.message, target);
        }
        Ok(())
    }

    /// Looks for a message without receiving it (FI_PEEK). The completion, of kind
    /// [`OpKind::Recv`], describes it or says [`OpError::NoMessage`]; no data moves.
    pub fn peek(&mut self, now: Time, op: &RecvOp, how: Peek) {
        let found = self.unexpected.find(&wanted(op));
        let waiting = found.and_then(|number| match how {
            Peek::Look => self.unexpected.get(number),
            Peek::Claim | Peek::Discard => self.unexpected.take(number),
        });
        let message = waiting.and_then(|w| self.messages.get_mut(w.message));
        let Some(message) = message else {
            self.complete(Completion {
                context: op.context,
                kind: OpKind::Recv,
                class: op.class,
                len: 0,
                buf: 0,
                data: None,
                tag: op.tag,
                peer: op.source,
                notify: op.notify,
                released: false,
                status: Err(OpError::NoMessage),
            });
            return;
        };
        let mut completion = description(message);
        completion.context = op.context;
        completion.notify = op.notify;
        if how == Peek::Claim {
            message.claimed = Some(op.context);
        }
        self.complete(completion);
        if let (Peek::Discard, Some(waiting)) = (how, waiting) {
            self.discard(now, waiting.message);
        }
    }

    /// Receives the message that was claimed with this context (FI_CLAIM).
    ///
    /// # Errors
    /// [`Refused::NotClaimed`].
    pub fn recv_claimed<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        op: RecvOp,
    ) -> Result<(), Refused> {
        let ix = self.take_claimed(op.context)?;
        self.attach(now, mem, ix, target(op));
        Ok(())
    }

    /// Drops the message that was claimed with this context (FI_CLAIM | FI_DISCARD).
    ///
    /// # Errors
    /// [`Refused::NotClaimed`].
    pub fn discard_claimed(&mut self, now: Time, op: &RecvOp) -> Result<(), Refused> {
        let ix = self.take_claimed(op.context)?;
        if let Some(message) = self.messages.get(ix) {
            let mut completion = description(message);
            completion.context = op.context;
            completion.notify = op.notify;
            self.complete(completion);
        }
        self.discard(now, ix);
        Ok(())
    }

    fn take_claimed(&mut self, context: u64) -> Result<u32, Refused> {
        let ix = self
            .messages
            .indices()
            .find(|&ix| self.messages.get(ix).is_some_and(|m| m.claimed == Some(context)))
            .ok_or(Refused::NotClaimed)?;
        if let Some(message) = self.messages.get_mut(ix) {
            message.claimed = None;
        }
        Ok(ix)
    }

    /// Cancels the oldest posted receive with this context that has not matched. Its completion says
    /// [`OpError::Cancelled`]. False when there is none.
    pub fn cancel(&mut self, context: u64) -> bool {
        let Some(slot) = self.posted.find_context(context) else { return false };
        if self.posted.get_mut(slot).is_some_and(|p| p.busy > 0) {
            self.posted.release(slot);
            if let Some(recv) = self.posted.get_mut(slot) {
                recv.cancelled = true;
            }
        } else if let Some(recv) = self.posted.take(slot) {
            self.complete_cancelled(&recv);
        }
        true
    }

    fn complete_cancelled(&mut self, recv: &PostedRecv) {
        self.complete(Completion {
            context: recv.context,
            kind: OpKind::Recv,
            class: recv.wanted.class,
            len: 0,
            buf: recv.buf.base(),
            data: None,
            tag: recv.wanted.tag,
            peer: recv.wanted.source,
            notify: recv.notify,
            released: recv.multi_recv.is_some(),
            status: Err(OpError::Cancelled),
        });
    }

    /// Takes the posted receive in `slot` (or its share of a multi-receive buffer) for a message of
    /// `total` bytes.
    pub(super) fn claim_posted(&mut self, slot: u32, total: u64) -> Option<Target> {
        let recv = self.posted.get_mut(slot)?;
        let Some(least) = recv.multi_recv else {
            let recv = self.posted.take(slot)?;
            let room = recv.buf.len();
            return Some(Target {
                buf: recv.buf,
                at: 0,
                room,
                context: recv.context,
                notify: recv.notify,
                multi: None,
            });
        };
        let size = recv.buf.len();
        let at = recv.used;
        let room = size - at;
        recv.used += total.min(room);
        recv.busy += 1;
        let spent = size - recv.used < least.max(1);
        let target = Target {
            buf: recv.buf.clone(),
            at,
            room,
            context: recv.context,
            notify: recv.notify,
            multi: Some(slot),
        };
        if spent {
            self.posted.release(slot);
        }
        Some(target)
    }

    /// A message of a multi-receive buffer is complete. True when the buffer goes back to the user
    /// with it.
    fn leave_multi(&mut self, slot: u32) -> bool {
        let Some(recv) = self.posted.get_mut(slot) else { return false };
        recv.busy -= 1;
        recv.busy == 0 && recv.released
    }

    /// A message meets its receive: what has arrived moves, the rest will come straight into place.
    pub(super) fn attach<M: Memory>(&mut self, now: Time, mem: &mut M, ix: u32, target: Target) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        if let Place::Stash(bytes) = &message.place {
            let fits = target.room.min(bytes.len() as u64);
            target.buf.for_range(target.at, fits, |address, position, len| {
                let from = position as usize;
                mem.write(address, &bytes[from..from + len as usize]);
            });
        }
        message.place = Place::User(target);
        let charged = core::mem::take(&mut message.charged);
        self.counters.unexpected_bytes -= charged;
        self.pull(now, ix);
        self.settle_message(now, ix);
    }

    fn discard(&mut self, now: Time, ix: u32) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        message.place = Place::Discard;
        let charged = core::mem::take(&mut message.charged);
        self.counters.unexpected_bytes -= charged;
        self.pull(now, ix);
        self.settle_message(now, ix);
    }

    /// Fetches what a rendezvous offered, as far as the receive has room.
    pub(super) fn pull(&mut self, now: Time, ix: u32) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        let Pull::Offered(offer) = message.pull else { return };
        if message.broken.is_some() {
            return;
        }
        let (peer, eager, total) = (message.peer, message.eager, message.total);
        let (buf, at, room) = match &message.place {
            Place::User(target) => (target.buf.clone(), target.at, target.room),
            Place::Discard => (Buf::Empty, 0, 0),
            Place::None | Place::Stash(_) => return,
        };
        let want = room.min(total).saturating_sub(eager);
        if want == 0 {
            message.pull = Pull::Done;
            self.end_pull(now, ix, offer, total, false);
            return;
        }
        let remote = RemoteSeg { address: offer.offset + eager, len: want, key: offer.key };
        let work = Work::Read {
            remote,
            resource: offer.resource,
            slot: 0,
            received: 0,
            owner: ReadOwner::Message(ix),
        };
        let mut new = NewOp::internal(work, peer);
        new.buf = buf;
        new.len = want;
        if let Some(op) = self.start_internal(now, new) {
            if let Some(op) = self.ops.get_mut(op) {
                op.buf_offset = at + eager;
            }
            if let Some(message) = self.messages.get_mut(ix) {
                message.pull = Pull::Reading(offer);
            }
        }
        self.watch(now);
    }

    /// Tells the sender that no more will be read, whether because that is all or because reading `failed`:
    /// an empty read at the end.
    fn end_pull(&mut self, now: Time, ix: u32, offer: Offer, total: u64, failed: bool) {
        let Some(peer) = self.messages.get(ix).map(|m| m.peer) else { return };
        let work = Work::Read {
            remote: RemoteSeg { address: offer.offset + total, len: 0, key: offer.key },
            resource: offer.resource,
            slot: 0,
            received: 0,
            owner: ReadOwner::End { failed },
        };
        self.start_internal(now, NewOp::internal(work, peer));
    }

    /// The read of a rendezvous message ended.
    pub(super) fn pull_done(&mut self, now: Time, ix: u32, error: Option<OpError>) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        let Pull::Reading(offer) = message.pull else { return };
        message.pull = Pull::Done;
        message.broken = message.broken.or(error);
        let room = match &message.place {
            Place::User(target) => target.room,
            _ => 0,
        };
        let total = message.total;
        // When the peer itself is gone there is nobody to tell, and what it refused it knows.
        let failed = error == Some(OpError::Closed);
        if failed || error.is_none() && room < total {
            self.end_pull(now, ix, offer, total, failed);
        }
        self.settle_message(now, ix);
    }

    /// Completes a message that has met its receive, once nothing more will come.
    pub(super) fn settle_message(&mut self, _now: Time, ix: u32) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        let finished = message.broken.is_some()
            || (message.arrived() && matches!(message.pull, Pull::No | Pull::Done));
        if !finished || !matches!(message.place, Place::User(_) | Place::Discard) {
            return;
        }
        let mut completion = description(message);
        let place = core::mem::replace(&mut message.place, Place::None);
        let (broken, total) = (message.broken, message.total);
        let confirmation = broken.is_none().then_some((message.pdc, message.peer, message.confirm));
        self.messages.remove(ix);
        if let Some((pdc, peer, Some(slot))) = confirmation {
            self.confirm(pdc, peer, slot);
        }
        let Place::User(target) = place else { return };
        finish_description(&mut completion, &target, total, broken);
        self.deliver(completion, target.multi);
    }

    /// Tells the sender that a receive has taken its message: empty response data.
    pub(super) fn confirm(&mut self, pdc: PdcId, peer: PeerId, slot: u16) {
        if self.context(pdc).is_none() {
            return;
        }
        let work = Work::Response { read_id: slot, source: None, end: 0 };
        let op = self.ops.add(NewOp::internal(work, peer));
        if let Some(op) = self.ops.get_mut(op) {
            op.silent = true;
        }
        self.queue_on(pdc, op);
    }

    /// Reports a received message, and a multi-receive buffer that it was the last of.
    pub(super) fn deliver(&mut self, mut completion: Completion, multi: Option<u32>) {
        let over = multi.is_some_and(|slot| self.leave_multi(slot));
        let recv = if over { multi.and_then(|slot| self.posted.take(slot)) } else { None };
        completion.released = recv.as_ref().is_some_and(|recv| !recv.cancelled);
        self.complete(completion);
        if let Some(recv) = recv.filter(|recv| recv.cancelled) {
            self.complete_cancelled(&recv);
        }
    }

    /// Drops a message that nobody will ever see.
    pub(super) fn forget_message(&mut self, ix: u32) {
        if let Some(message) = self.messages.get_mut(ix) {
            let charged = core::mem::take(&mut message.charged);
            self.counters.unexpected_bytes -= charged;
        }
        self.messages.remove(ix);
    }
}

/// Fills in where a message went and how that ended.
pub(super) fn finish_description(
    completion: &mut Completion,
    target: &Target,
    total: u64,
    broken: Option<OpError>,
) {
    completion.context = target.context;
    completion.notify = target.notify;
    completion.len = total.min(target.room);
    target.buf.for_range(target.at, 1, |address, _, _| completion.buf = address);
    completion.status = match broken {
        Some(error) => Err(error),
        None if total > target.room => Err(OpError::Truncated { excess: total - target.room }),
        None => Ok(()),
    };
}

/// What a completion says about a message that is not in any buffer.
fn description(message: &Message) -> Completion {
    Completion {
        context: 0,
        kind: OpKind::Recv,
        class: message.envelope.class,
        len: message.total,
        buf: 0,
        data: message.data,
        tag: message.envelope.tag,
        peer: Some(message.peer),
        notify: crate::api::Notify::Entry,
        released: false,
        status: Ok(()),
    }
}

const fn wanted(op: &RecvOp) -> Wanted {
    Wanted { class: op.class, source: op.source, tag: op.tag, ignore: op.ignore }
}

fn target(op: RecvOp) -> Target {
    let room = op.buf.len();
    Target { buf: op.buf, at: 0, room, context: op.context, notify: op.notify, multi: None }
}

fn posted(wanted: Wanted, op: RecvOp) -> PostedRecv {
    PostedRecv {
        wanted,
        buf: op.buf,
        context: op.context,
        notify: op.notify,
        multi_recv: op.multi_recv,
        used: 0,
        busy: 0,
        released: false,
        cancelled: false,
    }
}
