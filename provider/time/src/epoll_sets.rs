//! A table of the epoll sets that contain a descriptor of the provider, or of a timer in virtual time.
//!
//! A fixed table holds pairs of a set and a descriptor in it. While the provider has not registered
//! its clock, every pair is recorded, for a program may add the provider's descriptor before it
//! attaches; then those of the provider alone. A pair counts only while the provider owns the
//! descriptor, so one that was closed does no harm. The table forgets the oldest pair if it is
//! full.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::epoll_event;

use crate::real;
use crate::timers;
use crate::virtual_clock::{VirtualClock, is_inside_provider, is_registered};

/// Largest number of recorded pairs of an epoll set and a descriptor: more than an MPI library and its launcher's
/// client use.
const PAIRS: usize = 256;
const EMPTY: u64 = u64::MAX;

static TABLE: [AtomicU64; PAIRS] = [const { AtomicU64::new(EMPTY) }; PAIRS];
/// Number of recorded pairs (epoll set, descriptor) that replaced an older pair.
static REPLACED: AtomicUsize = AtomicUsize::new(0);

fn pair(set: c_int, fd: c_int) -> u64 {
    u64::from(set.cast_unsigned()) << 32 | u64::from(fd.cast_unsigned())
}

fn set_of(pair: u64) -> u32 {
    (pair >> 32) as u32
}

/// Returns whether an epoll set contains a descriptor of the provider, or of an armed timer.
pub(crate) fn contains_owned(clock: VirtualClock, set: c_int) -> bool {
    TABLE.iter().map(|slot| slot.load(Ordering::Relaxed)).any(|pair| {
        let fd = (pair as u32).cast_signed();
        let owned = || clock.owns(fd) || timers::is_armed(fd);
        pair != EMPTY && set_of(pair) == set.cast_unsigned() && owned()
    })
}

fn record(pair: u64) {
    if TABLE.iter().any(|slot| slot.load(Ordering::Relaxed) == pair) {
        return;
    }
    let claim = |slot: &AtomicU64| {
        slot.compare_exchange(EMPTY, pair, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    if !TABLE.iter().any(claim) {
        let oldest = REPLACED.fetch_add(1, Ordering::Relaxed) % PAIRS;
        if let Some(slot) = TABLE.get(oldest) {
            slot.store(pair, Ordering::Relaxed);
        }
    }
}

/// Removes the recorded pairs (epoll set, descriptor) for which `select` returns true.
fn forget(select: impl Fn(u64) -> bool) {
    for slot in &TABLE {
        let pair = slot.load(Ordering::Relaxed);
        if pair != EMPTY && select(pair) {
            let _ = slot.compare_exchange(pair, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Changes an epoll set: epoll_ctl(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised what epoll_ctl(2) demands.
    let status = unsafe { real::epoll_ctl(set, operation, fd, event) };
    if status == 0 && !is_inside_provider() {
        match operation {
            libc::EPOLL_CTL_ADD => {
                let counts = !is_registered() || timers::is_descriptor(fd);
                if counts || VirtualClock::get().is_some_and(|clock| clock.owns(fd)) {
                    record(pair(set, fd));
                }
            }
            libc::EPOLL_CTL_DEL => forget(|other| other == pair(set, fd)),
            _ => {}
        }
    }
    status
}

/// Removes the recorded pairs of a closed epoll set whose number a new set has, and returns that number.
fn forget_predecessor(set: c_int) -> c_int {
    if set >= 0 {
        forget(|pair| set_of(pair) == set.cast_unsigned());
    }
    set
}

/// Creates an epoll set: epoll_create(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: epoll_create(2) takes a number, and refuses those that it does not allow.
    forget_predecessor(unsafe { real::epoll_create(size) })
}

/// Creates an epoll set: epoll_create1(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: epoll_create1(2) takes a number, and refuses those that it does not allow.
    forget_predecessor(unsafe { real::epoll_create1(flags) })
}
