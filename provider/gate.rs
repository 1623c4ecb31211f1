//! Mutual exclusion decided when an object is opened.
//!
//! Under FI_THREAD_DOMAIN the application
//! promises that one thread at a time uses an object. Then entering its gate costs the application a
//! load and two plain stores; otherwise, or with a progress thread of our own, it is a mutex.
//!
//! If the kernel does not offer membarrier(2), every gate is a mutex.
//!
//! An unlocked gate still admits one kind of stranger, rarely: the attendant (`attend.rs`), which answers
//! peers while the application stays away. It pays for both (`gate/doors.rs`).

mod doors;

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::OnceLock;

use parking_lot::lock_api::RawMutex as _;

use doors::{Doors, Fences, Flag};

impl Flag for AtomicBool {
    fn new(value: bool) -> Self {
        Self::new(value)
    }
    #[inline]
    fn load(&self, order: Ordering) -> bool {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: bool, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}

/// The processor's flags and the kernel's barrier.
struct Membarrier;

impl Fences for Membarrier {
    type Flag = AtomicBool;
    #[inline]
    fn owner() {
        compiler_fence(Ordering::SeqCst);
    }
    fn visitor() {
        barrier();
    }
}

/// A value that one thread at a time may use.
pub(crate) struct Gate<T> {
    locked: bool,
    mutex: parking_lot::RawMutex,
    /// Of an unlocked gate. The owner's also turns a broken promise (two threads, or a call from inside)
    /// into a refusal instead of a data race most of the time.
    doors: Doors<Membarrier>,
    value: UnsafeCell<T>,
}

// SAFETY: beside the value, which is not Sync, there are a mutex and the doors' two atomics, which are. The
// value is reached only through an `Inside`, of which there is one at a time. With `locked` the mutex sees
// to it. Without, FI_THREAD_DOMAIN does among the application's threads: it promised that no two of them
// are in calls on one domain's objects at once (the assertion in `enter` notices most breaches;
// `Domain::locks` says when the promise counts), and hands over between them with an ordering of its own;
// the doors do between it and the attendant. T: Send, because the guard that reaches the value may be in
// another thread each time.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// A gate that locks, or one that relies on the application's promise.
    pub(crate) fn new(locked: bool, value: T) -> Self {
        Self {
            locked,
            mutex: parking_lot::RawMutex::INIT,
            doors: Doors::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Enters, waiting for another thread if the gate locks, or for a visitor.
    ///
    /// # Panics
    /// When an unlocked gate is entered twice at once: the application broke its threading promise.
    #[inline]
    pub(crate) fn enter(&self) -> Inside<'_, T> {
        if self.locked {
            self.mutex.lock();
            return Inside::new(self, false);
        }
        assert!(
            !self.doors.is_busy(),
            "two threads use one object, although the application asked for a threading level \
             that forbids it (FI_THREAD_DOMAIN); ask for FI_THREAD_SAFE"
        );
        while !self.doors.enter() {
            self.await_visitor();
        }
        Inside::new(self, false)
    }

    /// Enters unless somebody is inside.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Inside<'_, T>> {
        let entered = if self.locked {
            self.mutex.try_lock()
        } else {
            !self.doors.is_busy() && self.doors.enter()
        };
        // Not `then_some`: a guard made in vain would still leave on drop.
        entered.then(|| Inside::new(self, false))
    }

    #[cold]
    fn await_visitor(&self) {
        while self.doors.is_visited() {
            std::thread::yield_now();
        }
    }

    /// Enters for a short time from a background thread, unless the owner is inside. If the gate has no lock, the
    /// kernel must have membarrier(2); where it does not, domains open gates with a lock.
    pub(crate) fn visit(&self) -> Option<Inside<'_, T>> {
        if self.locked {
            return self.try_enter();
        }
        if !barrier_available() || !self.doors.visit() {
            return None;
        }
        Some(Inside::new(self, true))
    }
}

/// Exclusive use of a gate's value until dropped.
pub(crate) struct Inside<'a, T> {
    gate: &'a Gate<T>,
    visitor: bool,
    /// Not Send: a mutex is unlocked by the thread that locked it.
    of_thread: PhantomData<*const ()>,
}

impl<'a, T> Inside<'a, T> {
    #[inline]
    const fn new(gate: &'a Gate<T>, visitor: bool) -> Self {
        Self { gate, visitor, of_thread: PhantomData }
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised, and this guard is the gate's only one (`Gate`'s Sync says
        // why), so that for the borrow of the guard no `&mut T` is made.
        unsafe { &*self.gate.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the value is initialised, and this guard, borrowed mutably, is the gate's only one
        // (`Gate`'s Sync says why), so that for the borrow no other reference to the value is made.
        unsafe { &mut *self.gate.value.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.gate.locked {
            // SAFETY: `enter` or `try_enter` locked the mutex for this guard, which drops once, in the
            // thread that locked: it is not Send.
            unsafe { self.gate.mutex.unlock() };
        } else if self.visitor {
            self.gate.doors.depart();
        } else {
            self.gate.doors.leave();
        }
    }
}

// linux/membarrier.h
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) takes three integers, of which the last two mean nothing for these commands, and
    // touches no memory of ours. An unknown command is refused.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel can make the process's other threads pass a barrier (Linux 4.14; a container
/// may forbid it).
pub(crate) fn barrier_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
}

fn barrier() {
    let passed = membarrier(PRIVATE_EXPEDITED);
    assert!(passed, "membarrier(2) was registered and then refused");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

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
        assert!(gate.try_enter().is_none(), "a refused attempt must not open the gate");
        assert!(gate.visit().is_none());
    }

    #[test]
    fn an_unlocked_gate_notices_a_second_entry() {
        let gate = Gate::new(false, ());
        let inside = gate.enter();
        assert!(gate.try_enter().is_none());
        assert!(gate.visit().is_none());
        drop(inside);
        assert!(gate.try_enter().is_some());
        let visitor = gate.visit();
        assert_eq!(visitor.is_some(), barrier_available());
        assert_eq!(gate.try_enter().is_none(), barrier_available());
    }

    #[test]
    fn owner_and_visitor_exclude_each_other() {
        if !barrier_available() {
            return;
        }
        let gate = Arc::new(Gate::new(false, (0u64, 0u64)));
        let visits = Arc::new(AtomicU64::new(0));
        let (of_visitor, count) = (Arc::clone(&gate), Arc::clone(&visits));
        let visitor = std::thread::spawn(move || {
            for _ in 0..20_000 {
                if let Some(mut inside) = of_visitor.visit() {
                    // Both halves move together, or the other thread was inside as well.
                    inside.0 += 1;
                    std::hint::black_box(&mut *inside);
                    inside.1 += 1;
                    assert_eq!(inside.0, inside.1);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut entries = 0;
        while !visitor.is_finished() {
            let mut inside = gate.enter();
            inside.0 += 1;
            std::hint::black_box(&mut *inside);
            inside.1 += 1;
            assert_eq!(inside.0, inside.1);
            drop(inside);
            entries += 1;
            // Leaves the visitor a chance.
            (0..entries % 50).for_each(|_| core::hint::spin_loop());
        }
        visitor.join().expect("no panic");
        assert_eq!(gate.enter().0, entries + visits.load(Ordering::Relaxed));
        assert!(visits.load(Ordering::Relaxed) > 0);
    }
}
