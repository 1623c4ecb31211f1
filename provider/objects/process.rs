//! The identity of the process that an object belongs to. A forked child must not use the objects of its parent.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
#[cfg(not(miri))]
use std::sync::Once;

use crate::abi::errno::{Errno, Result};

/// Number of forks between the process that loaded the provider and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
#[cfg(not(miri))]
static AT_FORK: Once = Once::new();

#[cfg(not(miri))]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process to which an object belongs. After a fork the child's copies of the parent's objects are unusable (they
/// share sockets with the parent), and calls on them return -FI_ENODEV.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the identity of this process.
    pub(crate) fn current() -> Self {
        // Miri does not know pthread_atfork, nor fork.
        #[cfg(not(miri))]
        AT_FORK.call_once(|| {
            // SAFETY: `in_child` has the signature of a handler, takes nothing that could have gone, and
            // only adds to an atomic, which is allowed in a forked child; the code stays mapped until the
            // process ends (`-z nodelete` in build.rs).
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this process is still the one that opened the object.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `FI_ENODEV` in a forked child.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Errno::NODEV) }
    }
}

/// A value of the current process. A forked child starts with a new value, because the parent's may be locked by a
/// thread that the child does not have. Values are never freed.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<(Process, T)>);

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns the value of this process; a forked child gets a value of its own.
    pub(crate) fn get(&self) -> &'static T {
        let process = Process::current();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is NULL or came from `Box::into_raw` below, with `Acquire` seeing all that was
        // written before; what is stored here is never freed, only replaced in a forked child.
        if let Some((owner, value)) = unsafe { found.as_ref() }
            && *owner == process
        {
            return value;
        }
        let fresh = Box::into_raw(Box::new((process, T::default())));
        match self.0.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `fresh` came from `Box::into_raw` and is now stored, hence never freed, and only
            // shared references are made of it.
            Ok(_) => unsafe { &(*fresh).1 },
            Err(_) => {
                // SAFETY: `fresh` came from `Box::into_raw`, and was not stored: another thread was faster,
                // so no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                self.get()
            }
        }
    }
}
