//! Requests from the receiving half of the engine to the sending half, such as a rendezvous read.

use std::collections::VecDeque;

use crate::channel::ChannelId;
use crate::messages::{Message, MessageBuffer, MessageHeader, Offer, Pull};
use crate::operation::{PeerId, RemoteSeg};
use crate::ops::{OpWork, ReadOwner, TxOp};
use crate::slab::Key;

/// A request from the receiving half of the engine to the sending half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendRequest {
    /// Read the payload that a rendezvous offered ([`super::Inbox::pull_read`]).
    Pull(Key),
    /// Notify the sender of a rendezvous that no more of the message will be read, because
    /// everything was read or because reading `failed`.
    EndPull { peer: PeerId, offer: Offer, total: u64, failed: bool },
    /// Stop a read whose message has ended: its buffer must not be written any more.
    WithdrawPull(Key),
    /// Notify the sender of a message that a receive has matched it.
    Confirm { context: ChannelId, slot: u16 },
}

impl SendRequest {
    /// Returns the read that [`SendRequest::EndPull`] requests: an empty one at the end of the
    /// message.
    pub(crate) fn end_of_pull_read(peer: PeerId, offer: Offer, total: u64, failed: bool) -> TxOp {
        let remote = RemoteSeg { address: offer.offset + total, len: 0, key: offer.key };
        let owner = ReadOwner::End { failed };
        let work = OpWork::Read { remote, resource: offer.resource, slot: 0, received: 0, owner };
        TxOp::new_internal(work, peer)
    }
}

/// The queue of requests from the receiving half of the engine to the sending half.
#[derive(Debug, Default)]
pub(crate) struct SendRequestQueue {
    send_requests: VecDeque<SendRequest>,
}

impl SendRequestQueue {
    /// Returns the number of waiting requests to the sending half.
    pub(super) fn len(&self) -> usize {
        self.send_requests.len()
    }

    /// Returns whether no request to the sending half waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.send_requests.is_empty()
    }

    /// Takes the oldest request to the sending half.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SendRequest> {
        self.send_requests.pop_front()
    }

    pub(super) fn push(&mut self, request: SendRequest) {
        self.send_requests.push_back(request);
    }

    /// Requests a confirmation, if the sender waits for one, that a receive has matched its
    /// message.
    #[inline]
    pub(super) fn request_confirmation(&mut self, head: &MessageHeader) {
        if let Some(slot) = head.confirm {
            self.send_requests.push_back(SendRequest::Confirm { context: head.context, slot });
        }
    }

    /// Requests the read of a rendezvous message, as far as the receive has room.
    pub(super) fn request_pull(&mut self, key: Key, message: &mut Message) {
        let Pull::Offered(offer) = message.head.pull else { return };
        let room = match &message.place {
            MessageBuffer::User(target) => target.room,
            MessageBuffer::Discard => 0,
            MessageBuffer::None | MessageBuffer::Stash(_) => return,
        };
        if message.broken.is_some() {
            return;
        }
        let extent = message.head.extent;
        if room.min(extent.total) > extent.eager {
            self.send_requests.push_back(SendRequest::Pull(key));
        } else {
            message.head.pull = Pull::Done;
            self.request_end_of_pull(message.head.peer(), offer, extent.total);
        }
    }

    /// Requests that the sender of a rendezvous be notified that everything wanted was read.
    pub(super) fn request_end_of_pull(&mut self, peer: PeerId, offer: Offer, total: u64) {
        self.send_requests.push_back(SendRequest::EndPull { peer, offer, total, failed: false });
    }
}
