//! The two doors of an unlocked gate: the owner's, which costs a store and a load, and the visitor's, which
//! pays for both (the asymmetric form of Dekker's algorithm).
//!
//! Each announces itself and then looks for the other. The processor may do the owner's two steps in the other
//! order; the visitor makes every thread of the process pass a memory barrier (membarrier(2)) between its own
//! two steps. So either the owner's look comes after that barrier and sees the announcement, or its
//! announcement came before it, and the visitor sees that.

use core::sync::atomic::Ordering;

/// An atomic flag: the processor's, or a model's.
pub(super) trait Flag {
    fn new(value: bool) -> Self;
    fn load(&self, order: Ordering) -> bool;
    fn store(&self, value: bool, order: Ordering);
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

/// What keeps the steps of either side in order.
pub(super) trait Fences {
    type Flag: Flag;
    /// Between the owner's steps: nothing for the processor, but the compiler keeps to it.
    fn owner();
    /// Between the visitor's steps: every thread of the process passes a full barrier.
    fn visitor();
}

/// See the module's documentation.
pub(super) struct Doors<F: Fences> {
    /// The owner is inside.
    busy: F::Flag,
    /// A visitor is inside, or wants to be.
    visited: F::Flag,
}

impl<F: Fences> Doors<F> {
    pub(super) fn new() -> Self {
        Self { busy: F::Flag::new(false), visited: F::Flag::new(false) }
    }

    /// Whether the owner is inside, as the owner itself knows for sure.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether a visitor is inside or wants to be.
    #[inline]
    pub(super) fn is_visited(&self) -> bool {
        self.visited.load(Ordering::Acquire)
    }

    /// The owner goes in, unless a visitor is there. Whether it is in.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        self.busy.store(true, Ordering::Relaxed);
        F::owner();
        if self.is_visited() {
            self.busy.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// The owner goes out.
    #[inline]
    pub(super) fn leave(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// A visitor goes in, unless the owner or another one is there. Whether it is in.
    pub(super) fn visit(&self) -> bool {
        if self.visited.swap(true, Ordering::SeqCst) {
            return false;
        }
        F::visitor();
        if self.busy.load(Ordering::Acquire) {
            self.visited.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// The visitor goes out.
    pub(super) fn depart(&self) {
        self.visited.store(false, Ordering::Release);
    }
}

/// Every interleaving that the memory model of C11 allows, by loom.
///
/// loom does not know membarrier(2). Where it stands the model has a full fence on *both* sides: the
/// assumption is that a barrier which the kernel makes every running thread pass orders the owner's store and
/// load as a fence of its own there would. What is proved under it is the protocol.
#[cfg(test)]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicBool, fence};

    use super::*;

    impl Flag for AtomicBool {
        fn new(value: bool) -> Self {
            Self::new(value)
        }
        fn load(&self, order: Ordering) -> bool {
            self.load(order)
        }
        fn store(&self, value: bool, order: Ordering) {
            self.store(value, order);
        }
        fn swap(&self, value: bool, order: Ordering) -> bool {
            self.swap(value, order)
        }
    }

    /// As assumed of membarrier(2).
    struct Assumed;

    impl Fences for Assumed {
        type Flag = AtomicBool;
        fn owner() {
            fence(Ordering::SeqCst);
        }
        fn visitor() {
            fence(Ordering::SeqCst);
        }
    }

    /// Without the barrier.
    struct Missing;

    impl Fences for Missing {
        type Flag = AtomicBool;
        fn owner() {}
        fn visitor() {}
    }

    struct Room<F: Fences> {
        doors: Doors<F>,
        /// loom fails when two threads are at it, or one does not see what the other left.
        value: UnsafeCell<u32>,
    }

    // SAFETY: loom runs one thread at a time and itself checks every access to `value`, which is what the
    // model is for; the flags are Sync.
    unsafe impl<F: Fences> Sync for Room<F> {}
    // SAFETY: the fields are loom's flags and a cell with a number, of which none belongs to a thread; `F` is a
    // type without a value.
    unsafe impl<F: Fences> Send for Room<F> {}

    impl<F: Fences> Room<F> {
        fn work(&self) {
            self.value.with_mut(|value| {
                // SAFETY: whoever calls this is through a door; loom fails the model if another is, too.
                unsafe { *value += 1 };
            });
        }
    }

    fn owner_and_visitors<F: Fences + 'static>(entries: usize, visitors: usize) {
        loom::model(move || {
            let room: Arc<Room<F>> =
                Arc::new(Room { doors: Doors::new(), value: UnsafeCell::new(0) });
            let threads: Vec<_> = (0..visitors)
                .map(|_| {
                    let room = Arc::clone(&room);
                    loom::thread::spawn(move || {
                        if room.doors.visit() {
                            room.work();
                            room.doors.depart();
                        }
                    })
                })
                .collect();
            for _ in 0..entries {
                if room.doors.enter() {
                    room.work();
                    room.doors.leave();
                }
            }
            for thread in threads {
                thread.join().expect("no panic");
            }
        });
    }

    #[test]
    fn owner_and_visitor_exclude_each_other() {
        owner_and_visitors::<Assumed>(2, 1);
    }

    #[test]
    fn so_do_two_visitors() {
        owner_and_visitors::<Assumed>(1, 2);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn without_the_barrier_they_do_not() {
        owner_and_visitors::<Missing>(1, 1);
    }
}
