//! A lock of two sides: the fast side costs a store and a load, and the slow side pays for both (the asymmetric form of
//! Dekker's algorithm).
//!
//! Each side sets its flag and then reads the other's. The processor may do the fast side's two steps in the other
//! order; the slow side makes every thread of the process pass a memory barrier (membarrier(2)) between its own
//! two steps. So either the fast side reads after that barrier and sees the slow side's flag, or it set its own
//! flag before the barrier, and the slow side sees that.

use core::sync::atomic::Ordering;

/// An atomic flag of the processor, or of loom's model.
pub(super) trait Flag {
    fn new(value: bool) -> Self;
    fn load(&self, order: Ordering) -> bool;
    fn store(&self, value: bool, order: Ordering);
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

/// The fences that keep the two steps of each side in order.
pub(super) trait Fences {
    type Flag: Flag;
    /// Executes between the steps of the fast side. It orders the compiler alone, not the processor.
    fn fast();
    /// Executes between the steps of the slow side. Every thread of the process passes a full barrier.
    fn slow();
}

/// A lock that is cheap for the one thread of the fast side and expensive for the others; see the module's
/// documentation.
pub(super) struct AsymmetricLock<F: Fences> {
    /// The thread of the fast side holds the lock.
    fast: F::Flag,
    /// A thread of the slow side holds the lock, or waits for it.
    slow: F::Flag,
}

impl<F: Fences> AsymmetricLock<F> {
    pub(super) fn new() -> Self {
        Self { fast: F::Flag::new(false), slow: F::Flag::new(false) }
    }

    /// Returns whether the fast side holds the lock. Only a thread of the fast side knows for sure.
    #[inline]
    pub(super) fn is_fast_held(&self) -> bool {
        self.fast.load(Ordering::Relaxed)
    }

    /// Returns whether a thread of the slow side holds the lock or tries to take it.
    #[inline]
    pub(super) fn is_slow_wanted(&self) -> bool {
        self.slow.load(Ordering::Acquire)
    }

    /// Takes the lock for the fast side, unless the slow side wants it. Returns whether it was taken.
    #[inline]
    pub(super) fn try_lock_fast(&self) -> bool {
        self.fast.store(true, Ordering::Relaxed);
        F::fast();
        if self.is_slow_wanted() {
            self.fast.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// Releases the lock, held by the thread of the fast side.
    #[inline]
    pub(super) fn unlock_fast(&self) {
        self.fast.store(false, Ordering::Release);
    }

    /// Takes the lock for the slow side, unless any thread holds it. Returns whether it was taken.
    pub(super) fn try_lock_slow(&self) -> bool {
        if self.slow.swap(true, Ordering::SeqCst) {
            return false;
        }
        F::slow();
        if self.fast.load(Ordering::Acquire) {
            self.slow.store(false, Ordering::Release);
            return false;
        }
        true
    }

    /// Releases the lock, held by a thread of the slow side.
    pub(super) fn unlock_slow(&self) {
        self.slow.store(false, Ordering::Release);
    }
}

/// A model in loom, which tries every interleaving that the memory model of C11 allows.
///
/// loom does not know membarrier(2). Where it stands the model has a full fence on *both* sides: the
/// assumption is that a barrier which the kernel makes every running thread pass orders the fast side's store and
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

    /// Full memory fences on both sides, as the model assumes of membarrier(2).
    struct FullFences;

    impl Fences for FullFences {
        type Flag = AtomicBool;
        fn fast() {
            fence(Ordering::SeqCst);
        }
        fn slow() {
            fence(Ordering::SeqCst);
        }
    }

    /// No memory fence at all, with which the model must find an error.
    struct NoFences;

    impl Fences for NoFences {
        type Flag = AtomicBool;
        fn fast() {}
        fn slow() {}
    }

    struct Guarded<F: Fences> {
        lock: AsymmetricLock<F>,
        /// loom fails when two threads access it at once, or one does not see what the other wrote.
        value: UnsafeCell<u32>,
    }

    // SAFETY: loom runs one thread at a time and itself checks every access to `value`, which is what the
    // model is for; the flags are Sync.
    unsafe impl<F: Fences> Sync for Guarded<F> {}
    // SAFETY: the fields are loom's flags and a cell with a number, of which none belongs to a thread; `F` is a
    // type without a value.
    unsafe impl<F: Fences> Send for Guarded<F> {}

    impl<F: Fences> Guarded<F> {
        fn work(&self) {
            self.value.with_mut(|value| {
                // SAFETY: the caller has the lock; loom fails the model if another thread has it, too.
                unsafe { *value += 1 };
            });
        }
    }

    fn try_sides<F: Fences + 'static>(fast: usize, slow: usize) {
        loom::model(move || {
            let guarded: Arc<Guarded<F>> =
                Arc::new(Guarded { lock: AsymmetricLock::new(), value: UnsafeCell::new(0) });
            let threads: Vec<_> = (0..slow)
                .map(|_| {
                    let guarded = Arc::clone(&guarded);
                    loom::thread::spawn(move || {
                        if guarded.lock.try_lock_slow() {
                            guarded.work();
                            guarded.lock.unlock_slow();
                        }
                    })
                })
                .collect();
            for _ in 0..fast {
                if guarded.lock.try_lock_fast() {
                    guarded.work();
                    guarded.lock.unlock_fast();
                }
            }
            for thread in threads {
                thread.join().expect("no panic");
            }
        });
    }

    #[test]
    fn fast_and_slow_side_exclude_each_other() {
        try_sides::<FullFences>(2, 1);
    }

    #[test]
    fn two_slow_threads_exclude_each_other() {
        try_sides::<FullFences>(1, 2);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn without_fences_they_do_not_exclude_each_other() {
        try_sides::<NoFences>(1, 1);
    }
}
