//! The numbers by which targets recognise the requests of one operation of several ranges.

use std::collections::{HashMap, VecDeque};

use crate::access_groups::{GroupTag, MAX_SPAN};
use crate::operation::PeerId;
use crate::ops::Ops;
use crate::slab::Key;

/// The numbers of the operations of several ranges to one peer. They are consecutive.
#[derive(Debug)]
struct PeerNumbers {
    next: u16,
    /// The operations with the numbers before `next`, the oldest first. The front one has not ended, but those behind it
    /// may have.
    open: VecDeque<Key>,
}

/// The numbers of the operations of several ranges to all peers.
#[derive(Debug, Default)]
pub(super) struct GroupNumbers {
    peers: HashMap<PeerId, PeerNumbers>,
    /// The number after the newest of any peer, with which a new peer begins. A peer that this
    /// endpoint has forgotten and meets again may still hold groups that never ended.
    first: u16,
}

impl GroupNumbers {
    /// Returns whether another operation to a peer may begin: the numbers of open ones stay close enough together for
    /// the target to tell them from those of old ones.
    pub(super) fn has_room(&mut self, peer: PeerId, ops: &Ops) -> bool {
        let Some(of) = self.peers.get_mut(&peer) else { return true };
        while of.open.front().is_some_and(|oldest| ops.get(*oldest).is_none()) {
            of.open.pop_front();
        }
        of.open.len() + 1 < usize::from(MAX_SPAN)
    }

    /// Returns the tag of the requests of an operation of `parts` ranges, for which there is room.
    pub(super) fn add(&mut self, peer: PeerId, group: Key, parts: usize) -> GroupTag {
        let fresh = || PeerNumbers { next: self.first, open: VecDeque::new() };
        let of = self.peers.entry(peer).or_insert_with(fresh);
        let number = of.next;
        of.next = number.wrapping_add(1);
        of.open.push_back(group);
        self.first = of.next;
        GroupTag::new(number, parts)
    }
}
