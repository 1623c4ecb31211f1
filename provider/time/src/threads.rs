//! Threads that the application creates in virtual time. Each begins at the virtual time of its creator, and computes beside
//! the others.

use core::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::real::{self, ThreadStart};
use crate::virtual_clock::VirtualClock;

/// Arguments of [`begin_thread`]: the application's function, and the virtual time at which its thread begins.
struct Beginning {
    clock: VirtualClock,
    /// Virtual time at which the thread was created, as the provider counts it.
    created: u64,
    start: ThreadStart,
    argument: *mut c_void,
}

/// Creates a thread, which counts its computation from the virtual time of its creator: pthread_create.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: ThreadStart,
    argument: *mut c_void,
) -> c_int {
    let Some(clock) = VirtualClock::get() else {
        // SAFETY: all four arguments go on unchanged from a caller of this function, which has the contract of
        // pthread_create(3).
        return unsafe { real::pthread_create(thread, attributes, start, argument) };
    };
    let created = clock.time_of_new_thread();
    let beginning = Box::into_raw(Box::new(Beginning { clock, created, start, argument }));
    // SAFETY: `thread` and `attributes` are the caller's; `begin_thread` takes the beginning, which stays
    // allocated until it does.
    let error = unsafe { real::pthread_create(thread, attributes, begin_thread, beginning.cast()) };
    if error != 0 {
        // SAFETY: no thread was created that could take the beginning, which `Box::into_raw` returned.
        drop(unsafe { Box::from_raw(beginning) });
    }
    error
}

/// Begins a thread in virtual time, and runs the application's function.
extern "C-unwind" fn begin_thread(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` above passes a boxed beginning, once, and leaves it to this thread.
    let beginning = unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    // The thread may end by pthread_exit(3), which unwinds: nothing may be left to drop then.
    let Beginning { clock, created, start, argument } = *beginning;
    clock.begin_thread(created);
    start(argument)
}
