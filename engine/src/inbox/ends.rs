//! The end of a message: its placement after it has matched a receive, its completion, and its
//! abort when the sender is gone.

use super::recv::cancelled_completion;
use super::{Inbox, SendRequest};
use crate::channel::ChannelId;
use crate::completion::{Completion, OpError};
use crate::matching::Posted;
use crate::memory::Memory;
use crate::messages::{Message, MessageBuffer, Pull};
use crate::operation::{PeerId, RemoteSeg, Visibility};
use crate::ops::{OpWork, ReadOwner, TxOp};
use crate::outbound::PullEnd;
use crate::slab::Key;
use crate::step::Step;

impl Inbox {
    /// Assigns a message to a receive, or to none. The payload that has arrived is copied there,
    /// the rest will be placed there directly, and the message's own buffer is freed.
    pub(super) fn assign_receive<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        key: Key,
        place: MessageBuffer,
    ) {
        let Some(message) = self.messages.get_mut(key) else { return };
        if let (MessageBuffer::User(target), MessageBuffer::Stash(bytes)) = (&place, &message.place)
        {
            target.write(mem, 0, bytes);
        }
        message.place = place;
        self.budget.release(step, message);
        self.send_requests.request_pull(key, message);
        self.finish_if_complete(step, key);
    }

    /// Returns the RMA read that [`SendRequest::Pull`] requests, or `None` if the message needs it
    /// no longer.
    pub(crate) fn pull_read(&self, key: Key) -> Option<TxOp> {
        let message = self.messages.get(key).filter(|m| m.broken.is_none())?;
        let Pull::Offered(offer) = message.head.pull else { return None };
        let MessageBuffer::User(target) = &message.place else { return None };
        let extent = message.head.extent;
        let want = target.room.min(extent.total).saturating_sub(extent.eager);
        let remote = RemoteSeg { address: offer.offset + extent.eager, len: want, key: offer.key };
        let owner = ReadOwner::Message(key);
        let work = OpWork::Read { remote, resource: offer.resource, slot: 0, received: 0, owner };
        let mut op = TxOp::new_internal(work, message.head.peer());
        op.bytes.buf = target.buf.clone();
        op.bytes.offset = target.at + extent.eager;
        op.label.len = want;
        Some(op)
    }

    /// Records that the RMA read of a rendezvous message's payload has started.
    pub(crate) fn mark_pull_started(&mut self, key: Key) {
        if let Some(message) = self.messages.get_mut(key)
            && let Pull::Offered(offer) = message.head.pull
        {
            message.head.pull = Pull::Reading(offer);
        }
    }

    /// Handles the end of the RMA read of a rendezvous message's payload.
    pub(crate) fn handle_pull_end(&mut self, step: &mut Step<'_>, end: PullEnd) {
        let PullEnd { message: key, error } = end;
        let Some(message) = self.messages.get_mut(key) else { return };
        let Pull::Reading(offer) = message.head.pull else { return };
        message.head.pull = Pull::Done;
        message.broken = message.broken.or(error);
        let room = match &message.place {
            MessageBuffer::User(target) => target.room,
            _ => 0,
        };
        let (peer, total) = (message.head.peer(), message.head.extent.total);
        // If the peer itself is gone, there is nothing to notify, and a read that the peer refused
        // needs no notification.
        let failed = error == Some(OpError::Closed);
        if failed || error.is_none() && room < total {
            self.send_requests.push(SendRequest::EndPull { peer, offer, total, failed });
        }
        self.finish_if_complete(step, key);
    }

    /// Completes a message that has matched a receive, once nothing more of it is expected.
    pub(super) fn finish_if_complete(&mut self, step: &mut Step<'_>, key: Key) {
        let Some(message) = self.messages.get_mut(key) else { return };
        let (head, broken) = (message.head, message.broken);
        let arrived = head.extent.has_arrived();
        let complete = broken.is_some() || arrived && matches!(head.pull, Pull::No | Pull::Done);
        if !complete || !matches!(message.place, MessageBuffer::User(_) | MessageBuffer::Discard) {
            return;
        }
        let place = core::mem::replace(&mut message.place, MessageBuffer::Discard);
        // Packets of a message that could not be read may still arrive. They are dropped, but the
        // message keeps its place in the order until they have arrived or the context ends.
        if arrived || !self.streams.is_incomplete(key, &head) {
            self.messages.remove(key);
        }
        if broken.is_none() {
            self.send_requests.request_confirmation(&head);
        }
        let mut completion = head.completion();
        let MessageBuffer::User(target) = place else { return };
        target.describe(&mut completion, head.extent.total, broken);
        complete_receive(&mut self.posted, step, completion, target.multi);
    }

    /// Ends the incomplete messages of a channel on which nothing more will arrive.
    pub(crate) fn abort_incomplete(
        &mut self,
        step: &mut Step<'_>,
        context: ChannelId,
        error: OpError,
    ) {
        let open =
            self.streams.order(context).map(|order| order.abandon_incomplete()).unwrap_or_default();
        for key in open {
            self.abort_message(step, key, error);
        }
    }

    /// Handles the end of a channel: its incomplete messages fail with `error`.
    pub(crate) fn close_stream(&mut self, step: &mut Step<'_>, context: ChannelId, error: OpError) {
        self.abort_incomplete(step, context, error);
        self.streams.close(context);
    }

    /// Ends the messages that a lost peer offered, because its successor at the same address does
    /// not know them.
    pub(crate) fn abort_offers_of(&mut self, step: &mut Step<'_>, peer: PeerId, error: OpError) {
        let offered =
            |m: &Message| m.head.peer() == peer && matches!(m.head.pull, Pull::Offered(_));
        let gone = self.messages.iter().filter(|(_, message)| offered(message));
        let gone: Vec<Key> = gone.map(|(key, _)| key).collect();
        for key in gone {
            self.abort_message(step, key, error);
        }
    }

    /// Ends a message whose remaining data will never arrive.
    fn abort_message(&mut self, step: &mut Step<'_>, key: Key, error: OpError) {
        let Some(message) = self.messages.get_mut(key) else { return };
        message.broken = Some(error);
        match message.place {
            MessageBuffer::User(_) => {
                if matches!(message.head.pull, Pull::Reading(_)) {
                    self.send_requests.push(SendRequest::WithdrawPull(key));
                }
                self.finish_if_complete(step, key);
            }
            // No receive has matched the message. If a receive can find it, that receive will
            // report the error. If it was still waiting for its turn, no receive can ever find it.
            MessageBuffer::None | MessageBuffer::Stash(_) => {
                if message.claimed.is_none() && !self.unexpected.contains(key) {
                    self.drop_message(step, key);
                }
            }
            MessageBuffer::Discard => self.drop_message(step, key),
        }
    }

    /// Drops a message that was kept and that no receive can find any more.
    fn drop_message(&mut self, step: &mut Step<'_>, key: Key) {
        if let Some(mut message) = self.messages.remove(key) {
            self.budget.release(step, &mut message);
        }
    }
}

/// Completes a receive. If the message was the last one in a multi-receive buffer, the completion
/// also returns the buffer.
#[inline]
pub(super) fn complete_receive(
    posted: &mut Posted,
    step: &mut Step<'_>,
    mut completion: Completion,
    multi: Option<u32>,
) {
    let Some(recv) = multi.and_then(|slot| posted.end_message(slot)) else {
        step.report.complete(completion);
        return;
    };
    let was_cancelled = recv.multi.is_some_and(|multi| multi.cancelled);
    if !was_cancelled {
        // Even a receive without completion entries needs this one, because it returns the buffer
        // to the user (fi_msg(3)).
        completion.released = true;
        completion.visibility = Visibility::Entry;
    }
    step.report.complete(completion);
    if was_cancelled {
        step.report.complete(cancelled_completion(&recv));
    }
}
