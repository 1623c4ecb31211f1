//! Mutual exclusion decided when an object is opened.
//!
//! Under FI_THREAD_DOMAIN (and, for endpoints and queues, FI_THREAD_COMPLETION) the application
//! promises that one thread at a time uses an object. Then entering its gate costs two plain stores;
//! otherwise, or with a progress thread of our own, it is a mutex.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use parking_lot::lock_api::RawMutex as _;

/// A value that one thread at a time may use.
pub(crate) struct Gate<T> {
    locked: bool,
    mutex: parking_lot::RawMutex,
    /// Set while somebody is inside an unlocked gate: turns a broken promise (two threads, or a call
    /// from inside) into a refusal instead of a data race most of the time.
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard; with `locked` the mutex makes guards exclusive,
// without it the application's threading promise does (libfabric's FI_THREAD_* contract).
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// A gate that locks, or one that relies on the application's promise.
    pub(crate) const fn new(locked: bool, value: T) -> Self {
        Self {
            locked,
            mutex: parking_lot::RawMutex::INIT,
            busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Enters, waiting for another thread if the gate locks.
    ///
    /// # Panics
    /// When an unlocked gate is entered twice at once: the application broke its threading promise.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_, T> {
        if self.locked {
            self.mutex.lock();
        } else {
            assert!(
                !self.busy.load(Ordering::Relaxed),
                "two threads use one object, although the application asked for a threading level \
                 that forbids it (FI_THREAD_DOMAIN or FI_THREAD_COMPLETION); ask for FI_THREAD_SAFE"
            );
            self.busy.store(true, Ordering::Relaxed);
        }
        Inside { gate: self }
    }

    /// Enters unless somebody is inside.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Inside<'_, T>> {
        if self.locked {
            if !self.mutex.try_lock() {
                return None;
            }
        } else {
            if self.busy.load(Ordering::Relaxed) {
                return None;
            }
            self.busy.store(true, Ordering::Relaxed);
        }
        Some(Inside { gate: self })
    }
}

/// Exclusive use of a gate's value until dropped.
pub(crate) struct Inside<'a, T> {
    gate: &'a Gate<T>,
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see `Gate`'s Sync).
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.gate.value.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.gate.locked {
            // SAFETY: this guard's construction locked the mutex.
            unsafe { self.gate.mutex.unlock() };
        } else {
            self.gate.busy.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_locked_gate_excludes() {
        let gate = Arc::new(Gate::new(true, 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || (0..1000).for_each(|_| *gate.enter() += 1))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(*gate.enter(), 4000);
        let _inside = gate.enter();
        assert!(gate.try_enter().is_none());
    }

    #[test]
    fn an_unlocked_gate_notices_a_second_entry() {
        let gate = Gate::new(false, ());
        let inside = gate.enter();
        assert!(gate.try_enter().is_none());
        drop(inside);
        assert!(gate.try_enter().is_some());
    }
}
