//! The order of a context's messages. Packets arrive in any order, but messages are matched in the
//! order of their ids (FI_ORDER_SAS).

use std::collections::VecDeque;

use crate::slab::Key;

/// Largest distance of a message id from the oldest unfinished one. An honest peer never reaches
/// it: its packet window is a fourth. One window may follow a message before the sender learns that
/// the message is deferred, and another window may follow the offer.
pub(crate) const MAX_AHEAD: u16 = 16384;

/// Largest distance of a message id from the oldest unfinished one for a peer outside the job. It
/// is lower because every id before an early message takes memory, although nothing has arrived for
/// that id.
pub(crate) const MAX_AHEAD_OUTSIDE: u16 = 256;

/// The state of a message id in the window of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdState {
    /// No packet of the message with this id has arrived.
    No,
    /// Packets of the message have arrived but not all, or the message waits for its turn.
    Open(Key),
    /// All packets of the message have arrived.
    Done,
}

/// The window of message ids of a channel that are not yet matched or not yet complete.
#[derive(Debug, Default)]
pub(crate) struct MessageOrder {
    /// The oldest id that is not matched or of which a packet is missing.
    base: u16,
    /// The id of the next message to be matched; `base <= next`.
    next: u16,
    window: VecDeque<IdState>,
}

impl MessageOrder {
    /// Returns the state of `id`, or `None` if it lies outside the window (old, or implausibly
    /// new).
    pub(crate) fn state(&self, id: u16) -> Option<IdState> {
        let ahead = id.wrapping_sub(self.base);
        if ahead >= MAX_AHEAD {
            return None;
        }
        Some(self.window.get(usize::from(ahead)).copied().unwrap_or(IdState::No))
    }

    /// Returns how far `id` is ahead of the oldest id that is not finished.
    pub(crate) const fn distance(&self, id: u16) -> u16 {
        id.wrapping_sub(self.base)
    }

    /// Returns whether `id` is the id of the next message to be matched.
    pub(crate) const fn is_next(&self, id: u16) -> bool {
        self.next == id
    }

    /// Returns whether `id`, which must be inside the window, has been matched.
    pub(crate) const fn is_past(&self, id: u16) -> bool {
        id.wrapping_sub(self.base) < self.next.wrapping_sub(self.base)
    }

    /// Returns the next message to match, if any packet of it has arrived.
    pub(crate) fn next_open(&self) -> Option<Key> {
        match self.state(self.next) {
            Some(IdState::Open(message)) => Some(message),
            _ => None,
        }
    }

    /// Sets the state of a message id inside the window.
    pub(crate) fn set_state(&mut self, id: u16, seen: IdState) {
        let ahead = usize::from(id.wrapping_sub(self.base));
        if ahead >= self.window.len() {
            self.window.resize(ahead + 1, IdState::No);
        }
        self.window[ahead] = seen;
        self.shrink();
    }

    /// Records that the message with the next id has matched a receive or has begun to wait for
    /// one.
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.shrink();
    }

    /// Handles the usual case of a message in order: the next message arrived in one packet and
    /// matched at once, and no other id is open. Returns false, and changes nothing, in any other
    /// case.
    pub(crate) fn advance_whole(&mut self) -> bool {
        if self.window.is_empty() && self.base == self.next {
            self.base = self.base.wrapping_add(1);
            self.next = self.base;
            return true;
        }
        false
    }

    /// Returns the messages of which a packet is missing or whose turn has not come.
    pub(crate) fn open_messages(&self) -> impl Iterator<Item = Key> + '_ {
        self.window.iter().filter_map(|seen| match seen {
            IdState::Open(message) => Some(*message),
            IdState::No | IdState::Done => None,
        })
    }

    /// Returns the oldest id of which packets are missing, for which all later messages wait, and
    /// its message if any packet of it has arrived.
    pub(crate) fn first_missing(&self) -> (u16, Option<Key>) {
        let ahead = self.window.iter().position(|seen| *seen != IdState::Done);
        let ahead = ahead.unwrap_or(self.window.len());
        // The window has fewer entries than there are ids, so the index fits.
        let id = self.base.wrapping_add(ahead as u16);
        match self.window.get(ahead) {
            Some(IdState::Open(message)) => (id, Some(*message)),
            _ => (id, None),
        }
    }

    /// Returns whether `id` comes before `other`. Both must be inside the window.
    pub(crate) const fn is_before(&self, id: u16, other: u16) -> bool {
        id.wrapping_sub(self.base) < other.wrapping_sub(self.base)
    }

    fn shrink(&mut self) {
        while self.base != self.next && self.window.front() == Some(&IdState::Done) {
            self.window.pop_front();
            self.base = self.base.wrapping_add(1);
        }
    }

    /// Gives up all incomplete messages and returns them. Further packets of them are ignored.
    pub(crate) fn abandon_incomplete(&mut self) -> Vec<Key> {
        let mut open = Vec::new();
        for seen in &mut self.window {
            if let IdState::Open(message) = *seen {
                open.push(message);
                *seen = IdState::Done;
            }
        }
        self.shrink();
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn messages_match_in_order_and_complete_in_any_order() {
        let mut slab = Slab::default();
        let (seven, eight) = (slab.add(7), slab.add(8));
        let mut order = MessageOrder { base: u16::MAX, next: u16::MAX, window: VecDeque::new() };
        assert_eq!(order.state(1), Some(IdState::No));
        order.set_state(1, IdState::Done); // Id 1 is two ahead: early and complete.
        assert_eq!(order.next_open(), None);
        order.set_state(u16::MAX, IdState::Open(seven));
        assert_eq!(order.next_open(), Some(seven));
        order.advance();
        assert!(order.is_next(0));
        order.set_state(0, IdState::Open(eight));
        assert!(!order.advance_whole());
        order.advance();
        order.advance(); // Id 1 was waiting.
        order.set_state(u16::MAX, IdState::Done);
        assert_eq!(order.state(u16::MAX), None, "an old id is outside the window");
        assert_eq!(order.abandon_incomplete(), [eight]);
        assert_eq!(order.abandon_incomplete(), []);
        assert!(order.window.is_empty());
        assert!(order.advance_whole() && order.is_next(3));
        assert_eq!(order.state(2u16.wrapping_add(MAX_AHEAD + 1)), None);
    }
}
