//! Atomic changes of values in memory.
//!
//! A value of 1, 2, 4 or 8 bytes that is aligned to its length changes by an atomic instruction of the CPU, so that the
//! application's own atomics see it before or after, as do those of other processes that have the same memory. All
//! others (128-bit integers, complex doubles, long doubles, complex floats that are aligned to 4 bytes) change under
//! one lock of this process: at once towards peers, by whichever endpoint of the process, but not towards the CPU. So
//! do those in a device's memory.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use squall_base::UserSlice;

use crate::device_memory::{self, CopyDirection, CopyError};

/// Lock held while an atomic operation changes a value that is too wide for the processor's atomic instructions.
static WIDE: Mutex<()> = Mutex::new(());

/// Changes a value by compare-and-swap, which is repeated until no other change came between. `old` gets the value
/// before the change.
macro_rules! by_instruction {
    ($atomic:ty, $value:ty, $at:expr, $old:expr, $next:expr) => {{
        // SAFETY: `at` is aligned to the value's length, which the caller of this macro looked at, and valid for reads
        // and writes by this function's contract. Others access it meanwhile by atomic instructions, or, where the
        // application does without them, by plain ones of whole values, which is its own affair, as with a peer's
        // write; we make no reference to it but this one, which allows that.
        let atomic = unsafe { <$atomic>::from_ptr($at.cast()) };
        let mut before = atomic.load(Ordering::SeqCst);
        loop {
            $old.copy_from_slice(&before.to_ne_bytes());
            let mut new = <$value>::to_ne_bytes(before);
            if !$next($old, &mut new) {
                return;
            }
            let new = <$value>::from_ne_bytes(new);
            match atomic.compare_exchange(before, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }};
}

/// Replaces the value at `at`, of the length of `old`, by what `next` computes from it, and stores the previous value
/// in `old`.
///
/// # Safety
/// `at` points to as many bytes as `old` has, at most 32, which stay mapped during the call and may be read, and, unless
/// `next` always says no, written.
pub(super) unsafe fn update(
    at: *mut u8,
    old: &mut [u8],
    next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
) {
    if at.addr().is_multiple_of(old.len().max(1)) {
        match old.len() {
            1 => by_instruction!(AtomicU8, u8, at, old, next),
            2 => by_instruction!(AtomicU16, u16, at, old, next),
            4 => by_instruction!(AtomicU32, u32, at, old, next),
            8 => by_instruction!(AtomicU64, u64, at, old, next),
            _ => {}
        }
    }
    let _changes = WIDE.lock();
    // SAFETY: `at` has `old.len()` readable bytes by this function's contract; `old` is the engine's own.
    unsafe { core::ptr::copy(at, old.as_mut_ptr(), old.len()) };
    let mut new = [0; 32];
    let new = &mut new[..old.len()];
    if next(old, new) {
        // SAFETY: as many bytes, which may be written, for `next` has said yes; `new` is on the stack.
        unsafe { core::ptr::copy(new.as_ptr(), at, new.len()) };
    }
}

/// Changes a value as [`update`] does, in memory that the CPU may not touch. For peers the change
/// is atomic, whichever endpoint of the process makes it. For the device it is one copy to the host
/// and one back.
///
/// # Errors
/// The error of the driver. If the second copy failed, it is not known whether the value has changed.
pub(super) fn update_device(
    at: UserSlice,
    old: &mut [u8],
    next: &mut dyn FnMut(&[u8], &mut [u8]) -> bool,
) -> Result<(), CopyError> {
    let _changes = WIDE.lock();
    // SAFETY: `old` is as long as `at`, by the contract of `Memory::update`; it is the engine's own.
    unsafe { device_memory::copy(CopyDirection::ToHost, at, old.as_mut_ptr())? };
    let mut new = [0; 32];
    let new = &mut new[..old.len()];
    if next(old, new) {
        // SAFETY: `new` is as long as `old`, hence as `at`, and on the stack.
        unsafe { device_memory::copy(CopyDirection::ToDevice, at, new.as_mut_ptr())? };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one to a value of `N` bytes at `at`; the value before.
    fn add_one<const N: usize>(at: *mut u8) -> u128 {
        let number = |bytes: &[u8]| {
            let mut all = [0; 16];
            all[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(all)
        };
        let mut old = [0; N];
        let mut next = |old: &[u8], new: &mut [u8]| {
            new.copy_from_slice(&(number(old) + 1).to_le_bytes()[..N]);
            true
        };
        // SAFETY: every caller here gives a pointer to `N` bytes or more of an array of its own test.
        unsafe { update(at, &mut old, &mut next) };
        number(&old)
    }

    /// Threads change one value of `N` bytes, and the CPU's own instructions a value of 8 beside them.
    fn together<const N: usize>(with_cpu: bool) {
        const ROUNDS: u64 = 2000;
        #[repr(align(16))]
        struct Place(core::cell::UnsafeCell<[u8; 16]>);
        // SAFETY: the threads of this test touch it by `update` and by atomic instructions alone.
        unsafe impl Sync for Place {}
        impl Place {
            fn at(&self) -> *mut u8 {
                self.0.get().cast()
            }
        }
        let place = Place(core::cell::UnsafeCell::new([0; 16]));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        add_one::<N>(place.at());
                    }
                });
            }
            if with_cpu {
                // SAFETY: the place is aligned to 16 bytes and lives until the scope ends; all access is atomic.
                let word = unsafe { AtomicU64::from_ptr(place.at().cast()) };
                for _ in 0..ROUNDS {
                    word.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let total = u128::from(ROUNDS) * if with_cpu { 3 } else { 2 };
        assert_eq!(add_one::<N>(place.at()), total, "{N} bytes");
    }

    #[test]
    fn no_change_is_lost() {
        together::<2>(false);
        together::<4>(false);
        together::<8>(true);
        together::<16>(false);
    }

    #[test]
    fn what_is_not_wanted_stays_and_neighbours_do() {
        let mut bytes = [7u8; 24];
        let mut old = [0; 8];
        // SAFETY: bytes 4 to 12 of the array, not aligned on purpose.
        unsafe { update(bytes.as_mut_ptr().wrapping_add(4), &mut old, &mut |_, _| false) };
        assert_eq!((old, bytes), ([7; 8], [7; 24]));
        add_one::<8>(bytes.as_mut_ptr().wrapping_add(4));
        assert_eq!(bytes.iter().filter(|byte| **byte != 7).count(), 1);
    }
}
