//! Which operations wait at the sender for others to the same peer: those that the user fenced, and those whose order
//! was promised although packets arrive in any.
//!
//! An operation that must wait is *parked*, and so is what follows it to that peer; nobody else sees it before it is
//! let go. What the engine itself sends is never parked, or two ends could wait for each other.

use core::ops::BitOr;
use std::collections::VecDeque;

use crate::api::PeerId;
use crate::channel::ChannelId;
use crate::slab::Key;

/// What an operation does, for the sake of order: a set, since a fetching atomic reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationClasses(u8);

impl OperationClasses {
    /// None: an operation of the engine itself.
    pub const NONE: Self = Self(0);
    /// It sends a message.
    pub const SEND: Self = Self(1);
    /// It reads the peer's memory.
    pub const READ: Self = Self(1 << 1);
    /// It writes the peer's memory.
    pub const WRITE: Self = Self(1 << 2);
    /// It is an atomic that brings a value back.
    pub const FETCH: Self = Self(1 << 3);
    /// It is an atomic that changes a value.
    pub const UPDATE: Self = Self(1 << 4);
    /// Everything.
    pub const ALL: Self = Self(0x1f);
    /// How many there are.
    const COUNT: usize = 5;

    /// Whether it is empty.
    #[must_use]
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What is in either.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
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

/// What was promised about the order of operations to one peer, besides that messages match in order: for each class,
/// which earlier ones it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order([OperationClasses; OperationClasses::COUNT]);

impl Order {
    /// Nothing.
    pub const NONE: Self = Self([OperationClasses::NONE; OperationClasses::COUNT]);

    /// Besides, `later` comes after `earlier`.
    #[must_use]
    pub fn with(mut self, later: OperationClasses, earlier: OperationClasses) -> Self {
        for class in later.each() {
            self.0[class] = self.0[class] | earlier;
        }
        self
    }

    /// Returns whether an operation of these classes must not overtake messages.
    #[inline]
    pub(crate) fn follows_sends(&self, classes: OperationClasses) -> bool {
        !self.before(classes).and(OperationClasses::SEND).is_none()
    }

    /// What an operation waits for.
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

/// The operations to a peer that have not ended.
#[derive(Debug, Default)]
struct OpenOperations {
    /// Of those that were not parked, or are not any more: how many, by class.
    begun: [u32; OperationClasses::COUNT],
    /// Those that wait, and for what.
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
}

/// Open operations of the user, by peer.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    open: Vec<OpenOperations>,
    order: Order,
}

impl Fences {
    pub(crate) fn new(order: Order) -> Self {
        Self { open: Vec::new(), order }
    }

    /// What an operation on a channel is and must wait for.
    #[inline]
    pub(crate) fn turn(
        &self,
        id: ChannelId,
        classes: OperationClasses,
        fence: bool,
    ) -> FenceRequest {
        FenceRequest { classes, before: self.before(classes, fence, id.context().is_none()) }
    }

    /// What an operation must wait for. On a link all arrives in order, but that data are read when they leave.
    #[inline]
    fn before(&self, classes: OperationClasses, fence: bool, linked: bool) -> OperationClasses {
        if fence {
            return OperationClasses::ALL;
        }
        let before = self.order.before(classes);
        if linked { before.and(OperationClasses::READ) } else { before }
    }

    #[inline]
    fn of(&mut self, peer: PeerId) -> &mut OpenOperations {
        let at = peer.0 as usize;
        if self.open.len() <= at {
            self.open.resize_with(at + 1, OpenOperations::default);
        }
        &mut self.open[at]
    }

    /// An operation is to begin after others. Whether it may now; it is parked otherwise.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        peer: PeerId,
        key: Key,
        classes: OperationClasses,
        before: OperationClasses,
    ) -> bool {
        let open = self.of(peer);
        if !open.parked.is_empty() || !before.is_none() && open.has(before) {
            open.parked.push_back((key, classes, before));
            return false;
        }
        open.begin(classes);
        true
    }

    /// Whether an operation to a peer would begin at once.
    #[inline]
    pub(crate) fn lets_pass(&self, peer: PeerId, before: OperationClasses) -> bool {
        let Some(open) = self.open.get(peer.0 as usize) else { return true };
        open.parked.is_empty() && (before.is_none() || !open.has(before))
    }

    /// An operation begins whatever waits.
    pub(crate) fn begin(&mut self, peer: PeerId, classes: OperationClasses) {
        self.of(peer).begin(classes);
    }

    /// An operation that had begun has ended. Whether others wait.
    #[inline]
    pub(crate) fn end(&mut self, peer: PeerId, classes: OperationClasses) -> bool {
        let open = self.of(peer);
        for (class, begun) in open.begun.iter_mut().enumerate() {
            *begun -= u32::from(classes.0 >> class & 1);
        }
        !open.parked.is_empty()
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

    /// Peers with operations that wait.
    pub(crate) fn waiting(&self) -> Vec<PeerId> {
        let all = (0..).zip(&self.open).filter(|(_, open)| !open.parked.is_empty());
        all.map(|(peer, _)| PeerId(peer)).collect()
    }

    /// Nothing that waits for others to this peer will begin.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.of(peer).parked.clear();
    }

    /// An operation ended before it began.
    pub(crate) fn withdraw(&mut self, peer: PeerId, key: Key) {
        self.of(peer).parked.retain(|(parked, ..)| *parked != key);
    }

    /// The next operation to a peer that waited and may begin.
    pub(crate) fn next(&mut self, peer: PeerId) -> Option<Key> {
        let open = self.of(peer);
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
    fn a_fence_waits_for_everything_and_holds_everything_back() {
        let mut slab = Slab::default();
        let mut key = || slab.add(());
        let mut fences = Fences::default();
        let admit = |fences: &mut Fences, key, classes, fence| {
            let before = fences.before(classes, fence, true);
            fences.admit(PEER, key, classes, before)
        };
        let (send, write) = (OperationClasses::SEND, OperationClasses::WRITE);
        assert!(admit(&mut fences, key(), send, true), "nothing came before");
        assert!(admit(&mut fences, key(), write, false));
        let (fenced, after) = (key(), key());
        assert!(!admit(&mut fences, fenced, write, true));
        assert!(!admit(&mut fences, after, send, false));
        assert!(fences.end(PEER, send) && fences.next(PEER).is_none());
        assert!(fences.end(PEER, write));
        assert_eq!((fences.next(PEER), fences.next(PEER)), (Some(fenced), Some(after)));
        assert!(!fences.end(PEER, write) && fences.next(PEER).is_none());
        assert!(fences.admit(PeerId(0), key(), send, OperationClasses::ALL), "another peer's");
    }

    #[test]
    fn what_was_promised_waits_for_that_alone() {
        let mut slab = Slab::default();
        let order = Order::default()
            .with(
                OperationClasses::READ | OperationClasses::FETCH,
                OperationClasses::WRITE | OperationClasses::UPDATE,
            )
            .with(OperationClasses::WRITE, OperationClasses::READ);
        let mut fences = Fences::new(order);
        let both = OperationClasses::FETCH | OperationClasses::UPDATE;
        assert_eq!(fences.before(OperationClasses::SEND, false, false), OperationClasses::NONE);
        assert_eq!(
            fences.before(both, false, false),
            OperationClasses::WRITE | OperationClasses::UPDATE
        );
        assert_eq!(fences.before(both, false, true), OperationClasses::NONE);
        assert_eq!(fences.before(OperationClasses::WRITE, false, true), OperationClasses::READ);
        let (first, second) = (slab.add(()), slab.add(()));
        assert!(fences.admit(PEER, first, both, OperationClasses::UPDATE));
        assert!(!fences.admit(PEER, second, both, OperationClasses::UPDATE));
        fences.withdraw(PEER, second);
        assert!(!fences.end(PEER, both) && fences.next(PEER).is_none());
    }
}
