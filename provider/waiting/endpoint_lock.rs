//! The lock of an endpoint and of the queues and regions that it uses. Its kind is chosen when the object is opened.
//!
//! - With FI_THREAD_DOMAIN the application promises that one thread at a time uses a domain's objects. The
//!   lock is then an [`AsymmetricLock`]: the application pays a load and two plain stores.
//! - With any other threading level, or with a progress thread of ours, it is a mutex. It is also a mutex where
//!   the kernel does not offer membarrier(2).
//!
//! The background progress thread (`background.rs`) takes the slow side of an asymmetric lock, rarely, and pays
//! for both sides.

mod asymmetric;

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::OnceLock;

use parking_lot::lock_api::RawMutex as _;

use asymmetric::{AsymmetricLock, Fences, Flag};

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

/// Fences of an asymmetric lock: a compiler fence on the fast side, and membarrier(2) on the slow side.
struct Membarrier;

impl Fences for Membarrier {
    type Flag = AtomicBool;
    #[inline]
    fn fast() {
        compiler_fence(Ordering::SeqCst);
    }
    fn slow() {
        barrier();
    }
}

/// The lock of an endpoint, a queue or the regions: a value that one thread at a time may use.
pub(crate) struct EndpointLock<T> {
    locked: bool,
    mutex: parking_lot::RawMutex,
    /// The lock that is used instead of the mutex unless `locked`. It usually turns a broken promise of the application
    /// (two threads at once, or a call from a callback) into a panic instead of a data race.
    asymmetric: AsymmetricLock<Membarrier>,
    value: UnsafeCell<T>,
}

// SAFETY: beside the value, which is not Sync, there are a mutex and the asymmetric lock's two atomics, which are. The
// value is reached only through an `EndpointGuard`, of which there is one at a time. With `locked` the mutex sees
// to it. Without, FI_THREAD_DOMAIN does among the application's threads: it promised that no two of them
// are in calls on one domain's objects at once (the assertion in `lock` notices most breaches;
// `Domain::needs_locks` says when the promise counts), and hands over between them with an ordering of its own;
// the asymmetric lock does between it and the background progress thread. T: Send, because the guard that reaches
// the value may be in another thread each time.
unsafe impl<T: Send> Sync for EndpointLock<T> {}

impl<T> EndpointLock<T> {
    /// Creates a mutex if `locked`, else a lock that relies on the application's threading promise.
    pub(crate) fn new(locked: bool, value: T) -> Self {
        Self {
            locked,
            mutex: parking_lot::RawMutex::INIT,
            asymmetric: AsymmetricLock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks for a thread of the application. It waits for any other thread with a mutex, and for the background
    /// progress thread otherwise.
    ///
    /// # Panics
    /// When an asymmetric lock is taken twice at once: the application broke its threading promise.
    #[inline]
    pub(crate) fn lock(&self) -> EndpointGuard<'_, T> {
        if self.locked {
            self.mutex.lock();
            return EndpointGuard::new(self, false);
        }
        assert!(
            !self.asymmetric.is_fast_held(),
            "two threads use one object, although the application asked for a threading level \
             that forbids it (FI_THREAD_DOMAIN); ask for FI_THREAD_SAFE"
        );
        while !self.asymmetric.try_lock_fast() {
            self.await_background();
        }
        EndpointGuard::new(self, false)
    }

    /// Takes the lock unless another thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<EndpointGuard<'_, T>> {
        let acquired = if self.locked {
            self.mutex.try_lock()
        } else {
            !self.asymmetric.is_fast_held() && self.asymmetric.try_lock_fast()
        };
        // `then_some` would create the guard even without the lock, and drop would then unlock.
        acquired.then(|| EndpointGuard::new(self, false))
    }

    #[cold]
    fn await_background(&self) {
        while self.asymmetric.is_slow_wanted() {
            std::thread::yield_now();
        }
    }

    /// Locks from a background thread, unless another thread holds the lock. An asymmetric lock needs membarrier(2);
    /// where the kernel does not have it, domains choose a mutex.
    pub(crate) fn try_lock_background(&self) -> Option<EndpointGuard<'_, T>> {
        if self.locked {
            return self.try_lock();
        }
        if !barrier_available() || !self.asymmetric.try_lock_slow() {
            return None;
        }
        Some(EndpointGuard::new(self, true))
    }
}

/// Guard of an endpoint lock: it gives exclusive use of the value until it is dropped.
pub(crate) struct EndpointGuard<'a, T> {
    lock: &'a EndpointLock<T>,
    is_background: bool,
    /// Makes the guard `!Send`, because a mutex must be unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

impl<'a, T> EndpointGuard<'a, T> {
    #[inline]
    const fn new(lock: &'a EndpointLock<T>, is_background: bool) -> Self {
        Self { lock, is_background, not_send: PhantomData }
    }
}

impl<T> Deref for EndpointGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised, and this guard is the lock's only one (`EndpointLock`'s Sync says
        // why), so that for the borrow of the guard no `&mut T` is made.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for EndpointGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the value is initialised, and this guard, borrowed mutably, is the lock's only one
        // (`EndpointLock`'s Sync says why), so that for the borrow no other reference to the value is made.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for EndpointGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.locked {
            // SAFETY: `lock` or `try_lock` locked the mutex for this guard, which drops once, in the
            // thread that locked: it is not Send.
            unsafe { self.lock.mutex.unlock() };
        } else if self.is_background {
            self.lock.asymmetric.unlock_slow();
        } else {
            self.lock.asymmetric.unlock_fast();
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

/// Returns whether the kernel can make the process's other threads pass a barrier (Linux 4.14; a container
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
    fn a_mutex_excludes() {
        let lock = Arc::new(EndpointLock::new(true, 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || (0..1000).for_each(|_| *lock.lock() += 1))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(*lock.lock(), 4000);
        let _guard = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "a refused attempt must not unlock");
        assert!(lock.try_lock_background().is_none());
    }

    #[test]
    fn an_asymmetric_lock_notices_a_second_thread() {
        let lock = EndpointLock::new(false, ());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock_background().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
        let background = lock.try_lock_background();
        assert_eq!(background.is_some(), barrier_available());
        assert_eq!(lock.try_lock().is_none(), barrier_available());
    }

    #[test]
    fn application_and_background_thread_exclude_each_other() {
        if !barrier_available() {
            return;
        }
        let lock = Arc::new(EndpointLock::new(false, (0u64, 0u64)));
        let turns = Arc::new(AtomicU64::new(0));
        let (of_background, count) = (Arc::clone(&lock), Arc::clone(&turns));
        let background = std::thread::spawn(move || {
            for _ in 0..20_000 {
                if let Some(mut guard) = of_background.try_lock_background() {
                    // Both halves move together, or the other thread had the lock as well.
                    guard.0 += 1;
                    std::hint::black_box(&mut *guard);
                    guard.1 += 1;
                    assert_eq!(guard.0, guard.1);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut entries = 0;
        while !background.is_finished() {
            let mut guard = lock.lock();
            guard.0 += 1;
            std::hint::black_box(&mut *guard);
            guard.1 += 1;
            assert_eq!(guard.0, guard.1);
            drop(guard);
            entries += 1;
            // Leaves the background thread a chance.
            (0..entries % 50).for_each(|_| core::hint::spin_loop());
        }
        background.join().expect("no panic");
        assert_eq!(lock.lock().0, entries + turns.load(Ordering::Relaxed));
        assert!(turns.load(Ordering::Relaxed) > 0);
    }
}
