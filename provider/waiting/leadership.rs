//! The choice of the thread that sleeps on the descriptors of a waiter.
//!
//! Several threads may wait for one queue or counter. One of them, the leader, sleeps on the descriptors: it sees packets,
//! timers and the event of completions. The others, its followers, sleep on a number in memory, which every event
//! changes. Only the leader takes the event (`prepare.rs`): a thread for which an event means nothing takes it from no
//! thread for which it does, and each event costs each thread one look. When the leader stops waiting it wakes a follower,
//! which becomes the leader.

use core::sync::atomic::{AtomicU32, Ordering};

/// Bit of the leadership word: a leader sleeps on the descriptors, or is about to.
const LED: u32 = 1;
/// Bit of the leadership word: followers sleep on the word (futex), or are about to.
const FOLLOWED: u32 = 2;
/// Unit of the count of events, which takes the bits from here on.
const EVENT: u32 = 4;
/// The bits of the leadership word that count events. They overflow to zero; no thread is so slow that all counts pass
/// between its two steps.
const EVENTS: u32 = !(LED | FOLLOWED);

/// An atomic number: the processor's, or one of loom's model.
pub(super) trait Word {
    fn new() -> Self;
    fn load(&self) -> u32;
    /// Replaces the newest value of the word unless `change` returns `None`. Returns that value, as an error if it was
    /// not replaced.
    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32>;
}

impl Word for AtomicU32 {
    fn new() -> Self {
        Self::new(0)
    }
    fn load(&self) -> u32 {
        self.load(Ordering::SeqCst)
    }
    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
    }
}

/// The leader, the followers and the events of a waiter, in one atomic word.
pub(super) struct Leadership<W> {
    word: W,
}

impl<W: Word> Leadership<W> {
    pub(super) fn new() -> Self {
        Self { word: W::new() }
    }

    /// Returns the word on which followers sleep (futex).
    pub(super) const fn word(&self) -> &W {
        &self.word
    }

    /// Returns the number of events so far. A thread calls this before it looks for entries, so that it notices later
    /// events.
    pub(super) fn events(&self) -> u32 {
        self.word.load() & EVENTS
    }

    /// Returns whether a thread is the leader, which sleeps on the descriptors.
    pub(super) fn is_led(&self) -> bool {
        self.word.load() & LED != 0
    }

    /// Makes the calling thread the leader unless another thread is the leader.
    pub(super) fn try_lead(&self) -> bool {
        self.word.update(|word| (word & LED == 0).then_some(word | LED)).is_ok()
    }

    /// Returns the value of the word on which a follower must sleep, or `None` if it must look again: because there
    /// were events after the first `seen`, or because no thread leads.
    pub(super) fn follow(&self, seen: u32) -> Option<u32> {
        let current = |word: u32| word & (EVENTS | LED) == seen | LED;
        self.word
            .update(|word| current(word).then_some(word | FOLLOWED))
            .ok()
            .map(|word| word | FOLLOWED)
    }

    /// Counts an event. Returns whether followers may be asleep, all of which must be woken.
    pub(super) fn count_event(&self) -> bool {
        let next = |word: u32| Some(word.wrapping_add(EVENT) & !FOLLOWED);
        self.word.update(next).is_ok_and(|word| word & FOLLOWED != 0)
    }

    /// Ends the leadership of the caller. Returns whether followers may be asleep, one of which must be woken.
    pub(super) fn resign(&self) -> bool {
        self.word.update(|word| Some(word & !LED)).is_ok_and(|word| word & FOLLOWED != 0)
    }

    /// Returns whether followers may be asleep without a leader. A follower that stops waiting asks this: it may have
    /// been woken to lead, and must then wake another one.
    pub(super) fn is_orphaned(&self) -> bool {
        self.word.update(Some).is_ok_and(|word| word & (LED | FOLLOWED) == FOLLOWED)
    }
}
