//! Unfinished messages, and an index of those whose senders wait for more than acknowledgements.

use std::collections::BTreeSet;

use crate::base::Time;
use crate::channel::ChannelId;
use crate::messages::{Message, Pull};
use crate::operation::{PeerId, SubmitError};
use crate::slab::{Key, Slab};

/// The unfinished inbound messages of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    messages: Slab<Message>,
    /// Messages whose senders wait for more than acknowledgements, as [`ChannelId::index`], message id and message. The
    /// message is part of the key because a message may wait for its receive until its id is used again.
    awaited: BTreeSet<(usize, u16, Key)>,
}

impl Pending {
    /// Adds an unfinished inbound message and returns its key.
    pub(super) fn add(&mut self, message: Message) -> Key {
        let head = message.head;
        let key = self.messages.add(message);
        if head.pull != Pull::No || head.confirm.is_some() {
            self.insert_awaited(head.context, head.id, key);
        }
        key
    }

    /// Records that the sender of a message waits for a read or a confirmation, beyond
    /// acknowledgements.
    pub(super) fn insert_awaited(&mut self, context: ChannelId, id: u16, key: Key) {
        self.awaited.insert((context.index(), id, key));
    }

    /// Removes a message that is finished or that no receive can find.
    pub(super) fn remove(&mut self, key: Key) -> Option<Message> {
        let message = self.messages.remove(key)?;
        if !self.awaited.is_empty() {
            self.awaited.remove(&(message.head.context.index(), message.head.id, key));
        }
        Some(message)
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&Message> {
        self.messages.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Message> {
        self.messages.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Message)> {
        self.messages.iter()
    }

    /// Returns the number of messages whose senders wait for more than acknowledgements.
    pub(super) fn awaited_len(&self) -> usize {
        self.awaited.len()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether message `id` of a context is known and unfinished, so that its sender may go
    /// on waiting for a receive or for reads.
    pub(crate) fn is_awaited(&self, context: ChannelId, id: u16) -> bool {
        let named = (context.index(), id, Key::FIRST)..=(context.index(), id, Key::LAST);
        let mut messages =
            self.awaited.range(named).filter_map(|(.., key)| self.messages.get(*key));
        messages.any(|m| m.head.context == context && m.broken.is_none())
    }

    /// Returns the peers of which packets of a message are missing.
    pub(crate) fn owing_peers(&self) -> Vec<PeerId> {
        let owed = |m: &Message| !m.head.extent.has_arrived() && m.broken.is_none();
        let mut peers: Vec<PeerId> =
            self.messages.iter().filter(|(_, m)| owed(m)).map(|(_, m)| m.head.peer()).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Takes the message that a call with this context has claimed. It is no longer claimed then.
    ///
    /// # Errors
    /// [`SubmitError::NotClaimed`].
    pub(super) fn take_claimed(&mut self, context: u64) -> Result<Key, SubmitError> {
        let claimed = self.messages.iter().find(|(_, m)| m.claimed == Some(context));
        let key = claimed.map(|(key, _)| key).ok_or(SubmitError::NotClaimed)?;
        if let Some(message) = self.messages.get_mut(key) {
            message.claimed = None;
        }
        Ok(key)
    }

    /// Applies `shift` to the time at which the last packet of each message arrived.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Time)) {
        self.messages.iter_mut().for_each(|message| shift(&mut message.touched));
    }
}
