//! Operations that wait at the sender until earlier operations to the same peer have ended: those
//! with `FI_FENCE`, and those whose order the endpoint promised (`msg_order`), because packets arrive
//! in any order.
//!
//! This module states which operations may overtake which, once for both ways to a peer. An endpoint promises an
//! [`Order`] between classes of operations, and a fence stands for the order of all classes. Packets keep
//! no order, so an operation waits for all that the order names. A shared-memory channel keeps every
//! order except that after a read, whose source is read only when its answer leaves
//! ([`Fences::order_constraints`]). Where such a channel has no room for an operation, others overtake it
//! if the same order lets them (`must_wait` in `outbound/records.rs`).
//!
//! An operation that must wait is *parked*, and so is every later operation to that peer. No other
//! part of the engine sees it before it is released. Operations of the engine itself are never
//! parked, or two ends could wait for each other.

use core::ops::BitOr;
use std::collections::VecDeque;

use crate::channel::ChannelId;
use crate::operation::PeerId;
use crate::slab::Key;

/// The kinds of access that an operation makes, for ordering. It is a set, since a fetching atomic
/// both reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationClasses(u8);

impl OperationClasses {
    /// The empty set. The engine's own operations have it, such as the answers to a peer's reads,
    /// so they neither wait for operations of the user nor make those wait.
    pub const NONE: Self = Self(0);
    /// Class of operations that send a message.
    pub const SEND: Self = Self(1);
    /// Class of operations that read the peer's memory.
    pub const READ: Self = Self(1 << 1);
    /// Class of operations that write the peer's memory.
    pub const WRITE: Self = Self(1 << 2);
    /// Class of atomic operations that return a value.
    pub const FETCH: Self = Self(1 << 3);
    /// Class of atomic operations that change a value.
    pub const UPDATE: Self = Self(1 << 4);
    /// Set of all classes of operations.
    pub const ALL: Self = Self(0x1f);
    /// Number of classes of operations.
    const COUNT: usize = 5;

    /// Returns whether the set of classes is empty.
    #[must_use]
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of two sets of classes.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of two sets of classes.
    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn each(self) -> impl Iterator<Item = usize> {
        (0..Self::COUNT).filter(move |bit| self.0 >> bit & 1 != 0)
    }
}

impl BitOr for OperationClasses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

/// Order guarantees between operations to one peer, beyond the matching order of messages: for each
/// class of operations, the classes of earlier operations that must end first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order([OperationClasses; OperationClasses::COUNT]);

impl Order {
    /// No order guarantee beyond the matching order of messages.
    pub const NONE: Self = Self([OperationClasses::NONE; OperationClasses::COUNT]);

    /// Adds the guarantee that operations of the classes `later` take effect after those of
    /// `earlier`.
    #[must_use]
    pub fn with(mut self, later: OperationClasses, earlier: OperationClasses) -> Self {
        for class in later.each() {
            self.0[class] = self.0[class] | earlier;
        }
        self
    }

    /// Returns whether an operation of the classes `later` must not overtake one of the classes `earlier`.
    #[inline]
    pub(crate) fn follows(&self, later: OperationClasses, earlier: OperationClasses) -> bool {
        !self.before(later).and(earlier).is_none()
    }

    /// Returns the classes of the earlier operations for which an operation of these classes must
    /// wait.
    #[inline]
    fn before(&self, classes: OperationClasses) -> OperationClasses {
        classes.each().fold(OperationClasses::NONE, |sum, class| sum | self.0[class])
    }
}

/// The classes of an operation, and those of the earlier operations that it waits for.
#[derive(Clone, Copy)]
pub(crate) struct FenceRequest {
    pub(crate) classes: OperationClasses,
    pub(crate) before: OperationClasses,
}

/// The user's unfinished operations to one peer, for ordering.
#[derive(Debug, Default)]
struct OpenOperations {
    /// Number of operations of each class that have started and not ended.
    begun: [u32; OperationClasses::COUNT],
    /// Parked operations in order: the key, the classes, and the classes for which each waits.
    parked: VecDeque<(Key, OperationClasses, OperationClasses)>,
}

impl OpenOperations {
    fn has(&self, classes: OperationClasses) -> bool {
        classes.each().any(|class| self.begun[class] > 0)
    }

    #[inline]
    fn begin(&mut self, classes: OperationClasses) {
        for (class, begun) in self.begun.iter_mut().enumerate() {
            *begun += u32::from(classes.0 >> class & 1);
        }
    }

    #[inline]
    fn end(&mut self, classes: OperationClasses) {
        for (class, begun) in self.begun.iter_mut().enumerate() {
            *begun -= u32::from(classes.0 >> class & 1);
        }
    }
}

/// The user's unfinished operations by peer, for ordering.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    open: Vec<OpenOperations>,
    order: Order,
}

impl Fences {
    pub(crate) fn new(order: Order) -> Self {
        Self { open: Vec::new(), order }
    }

    /// Returns the classes of an operation on a channel and those that it must wait for.
    #[inline]
    pub(crate) fn order_constraints(
        &self,
        id: ChannelId,
        classes: OperationClasses,
        fence: bool,
    ) -> FenceRequest {
        FenceRequest {
            classes,
            before: self.classes_before(classes, fence, id.context().is_none()),
        }
    }

    /// Returns the classes that an operation must wait for. On a shared-memory channel (`over_shm`)
    /// everything takes effect in order, except that the source of an RMA read is read when its
    /// data leaves, so only reads have to be waited for.
    #[inline]
    fn classes_before(
        &self,
        classes: OperationClasses,
        fence: bool,
        over_shm: bool,
    ) -> OperationClasses {
        if fence {
            return OperationClasses::ALL;
        }
        let before = self.order.before(classes);
        if over_shm { before.and(OperationClasses::READ) } else { before }
    }

    #[inline]
    fn peer_mut(&mut self, peer: PeerId) -> &mut OpenOperations {
        let at = peer.0 as usize;
        if self.open.len() <= at {
            self.open.resize_with(at + 1, OpenOperations::default);
        }
        &mut self.open[at]
    }

    /// Starts an operation after those that it must wait for. Returns whether it may start now;
    /// otherwise it is parked.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        peer: PeerId,
        key: Key,
        classes: OperationClasses,
        before: OperationClasses,
    ) -> bool {
        let open = self.peer_mut(peer);
        if !open.parked.is_empty() || !before.is_none() && open.has(before) {
            open.parked.push_back((key, classes, before));
            return false;
        }
        open.begin(classes);
        true
    }

    /// Returns whether an operation to a peer would start at once if it must wait for the classes
    /// `before`.
    #[inline]
    pub(crate) fn can_start(&self, peer: PeerId, before: OperationClasses) -> bool {
        let Some(open) = self.open.get(peer.0 as usize) else { return true };
        open.parked.is_empty() && (before.is_none() || !open.has(before))
    }

    /// Counts the end of an operation that had started. Returns whether operations to the peer are
    /// parked.
    #[inline]
    pub(crate) fn end(&mut self, peer: PeerId, classes: OperationClasses) -> bool {
        let open = self.peer_mut(peer);
        open.end(classes);
        !open.parked.is_empty()
    }

    /// Puts operations that had begun on a shared-memory channel, which has ended, back at the head of
    /// the parked queue. Packets do not keep the order that the channel kept, so these and the parked
    /// operations wait for all earlier ones that they must not overtake.
    pub(crate) fn park_again(
        &mut self,
        peer: PeerId,
        begun: impl DoubleEndedIterator<Item = (Key, OperationClasses)>,
    ) {
        let order = self.order;
        let open = self.peer_mut(peer);
        for (_, classes, before) in &mut open.parked {
            *before = before.or(order.before(*classes));
        }
        for (key, classes) in begun.rev() {
            open.end(classes);
            open.parked.push_front((key, classes, order.before(classes)));
        }
    }

    /// Returns the number of operations that have begun, each counted once for each of its classes, plus the number
    /// that wait.
    pub(crate) fn len(&self) -> u64 {
        let count = |open: &OpenOperations| {
            let begun: u64 = open.begun.iter().copied().map(u64::from).sum();
            begun + open.parked.len() as u64
        };
        self.open.iter().map(count).sum()
    }

    /// Returns the peers to which operations are parked, waiting for earlier ones.
    pub(crate) fn waiting_peers(&self) -> Vec<PeerId> {
        let all = (0..).zip(&self.open).filter(|(_, open)| !open.parked.is_empty());
        all.map(|(peer, _)| PeerId(peer)).collect()
    }

    /// Drops all parked operations to a peer that is gone.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.peer_mut(peer).parked.clear();
    }

    /// Removes an operation that ended while it was parked.
    pub(crate) fn remove(&mut self, peer: PeerId, key: Key) {
        self.peer_mut(peer).parked.retain(|(parked, ..)| *parked != key);
    }

    /// Starts the next parked operation to a peer, if it no longer has to wait, and returns it.
    pub(crate) fn start_next(&mut self, peer: PeerId) -> Option<Key> {
        let open = self.peer_mut(peer);
        let &(key, classes, before) = open.parked.front()?;
        if open.has(before) {
            return None;
        }
        open.parked.pop_front();
        open.begin(classes);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    const PEER: PeerId = PeerId(3);

    #[test]
    fn fenced_operation_waits_for_all_earlier_and_delays_all_later_ones() {
        let mut slab = Slab::default();
        let mut key = || slab.add(());
        let mut fences = Fences::default();
        let admit = |fences: &mut Fences, key, classes, fence| {
            let before = fences.classes_before(classes, fence, true);
            fences.admit(PEER, key, classes, before)
        };
        let (send, write) = (OperationClasses::SEND, OperationClasses::WRITE);
        assert!(admit(&mut fences, key(), send, true), "no earlier operation is open");
        assert!(admit(&mut fences, key(), write, false));
        let (fenced, after) = (key(), key());
        assert!(!admit(&mut fences, fenced, write, true));
        assert!(!admit(&mut fences, after, send, false));
        assert!(fences.end(PEER, send) && fences.start_next(PEER).is_none());
        assert!(fences.end(PEER, write));
        assert_eq!((fences.start_next(PEER), fences.start_next(PEER)), (Some(fenced), Some(after)));
        assert!(!fences.end(PEER, write) && fences.start_next(PEER).is_none());
        assert!(
            fences.admit(PeerId(0), key(), send, OperationClasses::ALL),
            "a fence concerns only its own peer"
        );
    }

    #[test]
    fn ordered_classes_wait_only_for_the_promised_classes() {
        let mut slab = Slab::default();
        let order = Order::default()
            .with(
                OperationClasses::READ | OperationClasses::FETCH,
                OperationClasses::WRITE | OperationClasses::UPDATE,
            )
            .with(OperationClasses::WRITE, OperationClasses::READ);
        let mut fences = Fences::new(order);
        let both = OperationClasses::FETCH | OperationClasses::UPDATE;
        assert_eq!(
            fences.classes_before(OperationClasses::SEND, false, false),
            OperationClasses::NONE
        );
        assert_eq!(
            fences.classes_before(both, false, false),
            OperationClasses::WRITE | OperationClasses::UPDATE
        );
        assert_eq!(fences.classes_before(both, false, true), OperationClasses::NONE);
        assert_eq!(
            fences.classes_before(OperationClasses::WRITE, false, true),
            OperationClasses::READ
        );
        let (first, second) = (slab.add(()), slab.add(()));
        assert!(fences.admit(PEER, first, both, OperationClasses::UPDATE));
        assert!(!fences.admit(PEER, second, both, OperationClasses::UPDATE));
        fences.remove(PEER, second);
        assert!(!fences.end(PEER, both) && fences.start_next(PEER).is_none());
    }
}
