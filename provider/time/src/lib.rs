//! Time library: a shared object, `libsquall_time.so`, that is preloaded (LD_PRELOAD) into the
//! processes of a job and answers their time functions from the provider's virtual clock.
//!
//! The provider finds [`squall_time_register`] with dlsym(3) and calls it when its process has been
//! attached to a network in virtual time. Until then every function here is the one of the C
//! library. The same holds after the provider reports the end of virtual time, in a forked child,
//! and in a thread while one of the provider's functions runs in it.
//!
//! In virtual time:
//!
//! - `clock_gettime`, `gettimeofday`, `time`, `ftime` and `timespec_get` return virtual time.
//!   CPU-time clocks stay real.
//! - `nanosleep`, `clock_nanosleep`, `usleep`, `sleep` and `thrd_sleep` wait in virtual time.
//! - `poll`, `select`, `epoll_wait` and their variants have timeouts in virtual time if they watch
//!   a descriptor of the provider, or nothing. Otherwise they wait in real time, for the process
//!   waits for something outside of the simulated network; after a timeout, virtual time advances
//!   by as much.
//! - `sched_yield` and `thrd_yield` return at once in a loop that also calls the provider, because the
//!   emulator stops such a loop inside of these calls.
//! - Waits for condition variables, semaphores, locks, threads and message queues until an absolute
//!   time last as long in virtual time as in real time.
//! - Waits for a futex by `syscall`, as in the standard library of Rust, end after the time that is
//!   left on the virtual clock, in real time. Virtual time does not advance by it. Such a timeout that passes is reported,
//!   and a sleep by `syscall`.
//!
//! - Timers end in virtual time: `timerfd_settime`, `timer_settime`, `setitimer` and `alarm`. The clock
//!   of an absolute time is guessed from the value.
//! - `pause`, `sigsuspend`, `sigtimedwait` and their kin wait in virtual time if they have a timeout or a
//!   timer of the program is to end.
//!
//! Programs that read the time-stamp counter of an x86-64 processor get virtual time with
//! SQUALL_TIME_TSC=trap. Not covered are programs that call the kernel's vDSO themselves, other
//! system calls by `syscall`, timeouts of sockets (SO_RCVTIMEO), which are reported, and sets of `select` with more
//! than FD_SETSIZE bits. A signal ends a wait in virtual time late, unless it is that of a timer: the
//! wait runs to its end, or to the end of its slice of 1 ms.
//!
//! The library also interposes `pthread_create`, so that threads compute beside each other, MPI_Finalize, to report the end of the program, and the functions
//! that set signal handlers and masks or execute programs (see the module `tsc`).
//!
//! The functions that a signal handler or a memory allocator may call allocate no memory and take
//! no lock of this library. The provider takes locks in functions that wait. All functions are
//! `extern "C-unwind"` because pthread_cancel(3) unwinds through them. They contain no code that
//! panics and no destructors.

mod clocks;
mod descriptors;
mod epoll_sets;
mod locks;
mod mpi;
mod real;
mod signals;
mod sleeps;
mod system_calls;
mod threads;
mod time_value;
mod timers;
#[cfg(target_arch = "x86_64")]
mod tsc;
mod virtual_clock;

use core::ffi::c_int;

/// Functions and constants of the provider's virtual clock, which the provider registers.
#[repr(C)]
pub struct ClockTable {
    /// Size of this structure in bytes, by which the library detects another version of it.
    pub size: usize,
    /// Returns the virtual time in nanoseconds on the axis of CLOCK_MONOTONIC, or 0 once the
    /// process is no longer in virtual time. Each call may advance the time a little.
    pub now: extern "C" fn() -> u64,
    /// Waits in virtual time until `until` (nanoseconds as `now`). With `wakes` nonzero it may
    /// return earlier, for instance when something has arrived for the process; the caller checks
    /// its condition and waits again. The provider makes progress meanwhile. Returns 0, or -1 if
    /// the process is not in virtual time.
    pub wait: extern "C" fn(until: u64, wakes: c_int) -> c_int,
    /// Returns 1 if the descriptor is one that the provider handed out for waiting (FI_WAIT_FD),
    /// that is, one that becomes readable by the provider's progress; otherwise 0.
    pub owns: extern "C" fn(fd: c_int) -> c_int,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC in virtual time, in nanoseconds, for the calendar.
    pub calendar: i64,
    /// Function that is called when the process enters MPI_Finalize.
    pub ending: extern "C" fn(),
    /// Returns the virtual time at which a thread begins that the calling thread creates. Its axis is the provider's.
    pub create: extern "C" fn() -> u64,
    /// Called by a new thread, which counts its computation from the time `created` that `create` returned.
    pub begin: extern "C" fn(created: u64),
    /// Called by sched_yield. Returns 1 if the call is to reach the kernel, 0 if it is to return at once.
    pub yields: extern "C" fn() -> c_int,
    /// Has the provider call `expire` with the time of its clock (as `now`) when this is `next` or later. `expire` ends the
    /// timers of the program that are due, and returns the next such time; the highest number is none.
    pub set_timer: extern "C" fn(next: u64, expire: extern "C" fn(u64) -> u64),
    /// Called when the program sets a timeout of a socket, of `ns` nanoseconds, which passes in real time.
    pub socket_timeout: extern "C" fn(ns: u64),
    /// Called when a timeout of `ns` nanoseconds has passed in real time.
    pub passed_timeout: extern "C" fn(ns: u64),
}

/// Puts the process into virtual time. The table must stay valid for the life of the process.
/// Returns 0, or -1 if `table` is NULL or of another size than [`ClockTable`].
///
/// # Safety
/// `table` is NULL, or points to a `size` and, if that is the size of [`ClockTable`], to such a
/// table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn squall_time_register(table: *const ClockTable) -> c_int {
    // SAFETY: the provider passes NULL or a table that begins with its size, and that it never
    // frees or changes.
    match unsafe { virtual_clock::register(table) } {
        true => 0,
        false => -1,
    }
}

/// Registers the function that ends virtual time in forked children, and finds the real functions,
/// so that a signal handler does not have to.
extern "C" fn initialize() {
    real::resolve_all();
    #[cfg(target_arch = "x86_64")]
    tsc::initialize();
    // SAFETY: the handler is a function of this library, which is never unloaded, and it only
    // stores an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(virtual_clock::unregister_after_fork)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZE: extern "C" fn() = initialize;
