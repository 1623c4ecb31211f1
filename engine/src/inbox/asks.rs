//! What receiving messages asks of the sending half.

use std::collections::VecDeque;

use crate::api::{PeerId, RemoteSeg};
use crate::channel::ChannelId;
use crate::messages::{Head, Message, Offer, Place, Pull};
use crate::ops::{ReadOwner, TxOp, Work};
use crate::slab::Key;

/// What receiving a message asks of the sending half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// Fetch what a rendezvous offered ([`super::Inbox::pull_read`]).
    Pull(Key),
    /// Tell the sender of a rendezvous that no more will be read, because that is all or because reading
    /// `failed`.
    EndPull { peer: PeerId, offer: Offer, total: u64, failed: bool },
    /// The message that is being fetched has ended: its buffer is not to be written to any more.
    WithdrawPull(Key),
    /// Tell the sender of a message that a receive has taken it.
    Confirm { context: ChannelId, slot: u16 },
}

impl Ask {
    /// The read that [`Ask::EndPull`] asks for: an empty one at the end.
    pub(crate) fn end_of_pull(peer: PeerId, offer: Offer, total: u64, failed: bool) -> TxOp {
        let remote = RemoteSeg { address: offer.offset + total, len: 0, key: offer.key };
        let owner = ReadOwner::End { failed };
        let work = Work::Read { remote, resource: offer.resource, slot: 0, received: 0, owner };
        TxOp::internal(work, peer)
    }
}

/// What was asked and not done yet, in order.
#[derive(Debug, Default)]
pub(crate) struct AskQueue {
    asks: VecDeque<Ask>,
}

impl AskQueue {
    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.asks.len()
    }

    /// Whether nothing is asked.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty()
    }

    /// The next one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    pub(super) fn push(&mut self, ask: Ask) {
        self.asks.push_back(ask);
    }

    /// Tells a sender who waits for it that a receive has taken its message.
    #[inline]
    pub(super) fn confirm(&mut self, head: &Head) {
        if let Some(slot) = head.confirm {
            self.asks.push_back(Ask::Confirm { context: head.context, slot });
        }
    }

    /// Fetches what a rendezvous offered, as far as the receive has room.
    pub(super) fn pull(&mut self, key: Key, message: &mut Message) {
        let Pull::Offered(offer) = message.head.pull else { return };
        let room = match &message.place {
            Place::User(target) => target.room,
            Place::Discard => 0,
            Place::None | Place::Stash(_) => return,
        };
        if message.broken.is_some() {
            return;
        }
        let extent = message.head.extent;
        if room.min(extent.total) > extent.eager {
            self.asks.push_back(Ask::Pull(key));
        } else {
            message.head.pull = Pull::Done;
            self.end_pull(message.head.peer(), offer, extent.total);
        }
    }

    /// Tells the sender of a rendezvous that all was read that is wanted of it.
    pub(super) fn end_pull(&mut self, peer: PeerId, offer: Offer, total: u64) {
        self.asks.push_back(Ask::EndPull { peer, offer, total, failed: false });
    }
}
