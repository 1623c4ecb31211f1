//! The functions of the C library that the functions of this library replace.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    ENOSYS, clockid_t, epoll_event, fd_set, itimerspec, itimerval, mqd_t, nfds_t, pollfd,
    pthread_cond_t, pthread_mutex_t, pthread_rwlock_t, pthread_t, sem_t, siginfo_t, sigset_t,
    size_t, ssize_t, time_t, timer_t, timespec, timeval,
};

use crate::clocks::timeb;
use crate::locks::THRD_ERROR;

/// Returns errno, the error number of the calling thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: __errno_location returns the address of an integer of this thread, valid while the
    // thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets errno, the error number of the calling thread.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: __errno_location returns the address of an integer of this thread, valid while the
    // thread lives.
    unsafe { *libc::__errno_location() = error };
}

/// Sets ENOSYS and returns -1, the result of a function that the C library does not have.
pub(crate) fn fail_with_enosys() -> c_int {
    set_errno(ENOSYS);
    -1
}

/// Returns the version of a symbol whose older version has other structures. On x86-64 dlsym(3) of
/// glibc before 2.36 returns the oldest version.
fn symbol_version(name: &CStr) -> Option<&'static CStr> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    match name.to_bytes() {
        b"pthread_cond_signal" | b"pthread_cond_broadcast" | b"pthread_cond_timedwait" => {
            Some(c"GLIBC_2.3.2")
        }
        b"timer_create" | b"timer_delete" | b"timer_settime" | b"timer_gettime" => {
            Some(c"GLIBC_2.3.3")
        }
        _ => None,
    }
}

/// Returns the next definition of a symbol behind this library, which is then in `cache`; or NULL.
fn resolve(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let cached = cache.load(Ordering::Relaxed);
    if !cached.is_null() {
        return cached;
    }
    let mut found = null_mut();
    if let Some(version) = symbol_version(name) {
        // SAFETY: both names are C strings, and RTLD_NEXT is a handle that every caller may use.
        found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
    }
    if found.is_null() {
        // SAFETY: the name is a C string, and RTLD_NEXT is a handle that every caller may use.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// Converts a string literal that ends with a zero byte to a C string.
const fn c_string(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// Defines for each function of the C library one of the same name that calls it. The expression is
/// the result where the C library lacks the function.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $missing:expr;)*) => {
        /// Addresses of the real functions of the C library that were found.
        #[allow(non_upper_case_globals)]
        mod found {
            use super::{AtomicPtr, c_void, null_mut};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(null_mut());)*
        }

        /// Finds all real functions of the C library with dlsym(3).
        pub(crate) fn resolve_all() {
            $(resolve(&found::$name, const { c_string(concat!(stringify!($name), "\0")) });)*
        }

        $(
            /// Calls the function of this name of the C library, or of MPI.
            ///
            /// # Safety
            /// The arguments are those that the manual page of the function demands.
            #[allow(non_snake_case)]
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                const NAME: &CStr = c_string(concat!(stringify!($name), "\0"));
                let found = resolve(&found::$name, NAME);
                if found.is_null() {
                    return $missing;
                }
                // SAFETY: the symbol of this name in the C library is a function of this type, by
                // its manual page.
                let function = unsafe { transmute::<*mut c_void, Function>(found) };
                // SAFETY: the caller passes the arguments that the manual page of the function
                // demands.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

type Time = *const timespec;
type Mask = *const sigset_t;
type Mutex = *mut pthread_mutex_t;
type Cond = *mut pthread_cond_t;
type Words = *const *mut c_char;
type RwLock = *mut pthread_rwlock_t;

/// The function that a thread runs.
pub(crate) type ThreadStart = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

functions! {
    fn pthread_create(
        thread: *mut pthread_t, attributes: *const libc::pthread_attr_t, start: ThreadStart, argument: *mut c_void
    ) -> c_int = ENOSYS;
    fn MPI_Finalize() -> c_int = crate::mpi::call_in_local_library();

    fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int = fail_with_enosys();
    fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int = fail_with_enosys();
    fn time(result: *mut time_t) -> time_t = fail_with_enosys().into();
    fn ftime(result: *mut timeb) -> c_int = fail_with_enosys();
    fn timespec_get(time: *mut timespec, base: c_int) -> c_int = 0;

    fn nanosleep(span: Time, left: *mut timespec) -> c_int = fail_with_enosys();
    fn clock_nanosleep(
        clock: clockid_t, flags: c_int, time: Time, left: *mut timespec
    ) -> c_int = ENOSYS;
    fn usleep(microseconds: c_uint) -> c_int = fail_with_enosys();
    fn sleep(seconds: c_uint) -> c_uint = seconds;
    fn sched_yield() -> c_int = fail_with_enosys();
    fn thrd_sleep(span: Time, left: *mut timespec) -> c_int = -2;

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = fail_with_enosys();
    fn __poll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t
    ) -> c_int = fail_with_enosys();
    fn ppoll(
        fds: *mut pollfd, count: nfds_t, timeout: Time, mask: Mask
    ) -> c_int = fail_with_enosys();
    fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: Time, mask: Mask, size: size_t
    ) -> c_int = fail_with_enosys();
    fn select(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut
        timeval
    ) -> c_int = fail_with_enosys();
    fn pselect(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: Time,
        mask: Mask
    ) -> c_int = fail_with_enosys();
    fn epoll_create(size: c_int) -> c_int = fail_with_enosys();
    fn epoll_create1(flags: c_int) -> c_int = fail_with_enosys();
    fn epoll_ctl(
        set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event
    ) -> c_int = fail_with_enosys();
    fn epoll_wait(
        set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int
    ) -> c_int = fail_with_enosys();
    fn epoll_pwait(
        set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: Mask
    ) -> c_int = fail_with_enosys();
    fn epoll_pwait2(
        set: c_int, events: *mut epoll_event, room: c_int, timeout: Time, mask: Mask
    ) -> c_int = fail_with_enosys();

    fn pthread_cond_signal(cond: Cond) -> c_int = ENOSYS;
    fn pthread_cond_broadcast(cond: Cond) -> c_int = ENOSYS;
    fn pthread_cond_timedwait(cond: Cond, mutex: Mutex, time: Time) -> c_int = ENOSYS;
    fn pthread_cond_clockwait(
        cond: Cond, mutex: Mutex, clock: clockid_t, time: Time
    ) -> c_int = ENOSYS;
    fn cnd_signal(cond: Cond) -> c_int = THRD_ERROR;
    fn cnd_broadcast(cond: Cond) -> c_int = THRD_ERROR;
    fn cnd_timedwait(cond: Cond, mutex: Mutex, time: Time) -> c_int = THRD_ERROR;
    fn mtx_timedlock(mutex: Mutex, time: Time) -> c_int = THRD_ERROR;
    fn sem_timedwait(semaphore: *mut sem_t, time: Time) -> c_int = fail_with_enosys();
    fn sem_clockwait(
        semaphore: *mut sem_t, clock: clockid_t, time: Time
    ) -> c_int = fail_with_enosys();
    fn pthread_mutex_timedlock(mutex: Mutex, time: Time) -> c_int = ENOSYS;
    fn pthread_mutex_clocklock(mutex: Mutex, clock: clockid_t, time: Time) -> c_int = ENOSYS;
    fn pthread_rwlock_timedrdlock(lock: RwLock, time: Time) -> c_int = ENOSYS;
    fn pthread_rwlock_timedwrlock(lock: RwLock, time: Time) -> c_int = ENOSYS;
    fn pthread_rwlock_clockrdlock(lock: RwLock, clock: clockid_t, time: Time) -> c_int = ENOSYS;
    fn pthread_rwlock_clockwrlock(lock: RwLock, clock: clockid_t, time: Time) -> c_int = ENOSYS;
    fn pthread_timedjoin_np(
        thread: pthread_t, result: *mut *mut c_void, time: Time
    ) -> c_int = ENOSYS;
    fn pthread_clockjoin_np(
        thread: pthread_t, result: *mut *mut c_void, clock: clockid_t, time: Time
    ) -> c_int = ENOSYS;
    fn mq_timedsend(
        queue: mqd_t, message: *const c_char, size: size_t, priority: c_uint, time: Time
    ) -> c_int = fail_with_enosys();
    fn mq_timedreceive(
        queue: mqd_t, message: *mut c_char, size: size_t, priority: *mut c_uint, time: Time
    ) -> ssize_t = fail_with_enosys() as ssize_t;

    fn timerfd_create(clock: clockid_t, flags: c_int) -> c_int = fail_with_enosys();
    fn timerfd_gettime(fd: c_int, setting: *mut itimerspec) -> c_int = fail_with_enosys();
    fn timerfd_settime(
        fd: c_int, flags: c_int, setting: *const itimerspec, old: *mut itimerspec
    ) -> c_int = fail_with_enosys();
    fn timer_create(
        clock: clockid_t, event: *mut libc::sigevent, timer: *mut timer_t
    ) -> c_int = fail_with_enosys();
    fn timer_delete(timer: timer_t) -> c_int = fail_with_enosys();
    fn timer_gettime(timer: timer_t, setting: *mut itimerspec) -> c_int = fail_with_enosys();
    fn timer_settime(
        timer: timer_t, flags: c_int, setting: *const itimerspec, old: *mut itimerspec
    ) -> c_int = fail_with_enosys();

    fn setitimer(
        which: c_int, setting: *const itimerval, old: *mut itimerval
    ) -> c_int = fail_with_enosys();
    fn getitimer(which: c_int, setting: *mut itimerval) -> c_int = fail_with_enosys();
    fn alarm(seconds: c_uint) -> c_uint = 0;
    fn read(fd: c_int, to: *mut c_void, size: size_t) -> ssize_t = fail_with_enosys() as ssize_t;
    fn __read_chk(
        fd: c_int, to: *mut c_void, size: size_t, room: size_t
    ) -> ssize_t = fail_with_enosys() as ssize_t;
    fn close(fd: c_int) -> c_int = fail_with_enosys();
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: libc::socklen_t
    ) -> c_int = fail_with_enosys();

    fn pause() -> c_int = fail_with_enosys();
    fn sigsuspend(mask: Mask) -> c_int = fail_with_enosys();
    fn sigwaitinfo(set: Mask, info: *mut siginfo_t) -> c_int = fail_with_enosys();
    fn sigtimedwait(set: Mask, info: *mut siginfo_t, timeout: Time) -> c_int = fail_with_enosys();
    fn sigwait(set: Mask, signal: *mut c_int) -> c_int = ENOSYS;
    fn sigaction(
        signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int = fail_with_enosys();
    fn pthread_sigmask(how: c_int, set: Mask, old: *mut sigset_t) -> c_int = ENOSYS;
    fn sigprocmask(how: c_int, set: Mask, old: *mut sigset_t) -> c_int = fail_with_enosys();
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t = libc::SIG_ERR;
    fn execve(path: *const c_char, words: Words, environment: Words) -> c_int = fail_with_enosys();
    fn execv(path: *const c_char, words: Words) -> c_int = fail_with_enosys();
    fn execvp(name: *const c_char, words: Words) -> c_int = fail_with_enosys();
    fn execvpe(name: *const c_char, words: Words, environment: Words) -> c_int = fail_with_enosys();
    fn fexecve(fd: c_int, words: Words, environment: Words) -> c_int = fail_with_enosys();
    fn execveat(
        folder: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int
    ) -> c_int = fail_with_enosys();
    fn system(command: *const c_char) -> c_int = fail_with_enosys();
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE = null_mut();
    fn posix_spawn(
        pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const
        c_void, words: Words, environment: Words
    ) -> c_int = ENOSYS;
    fn posix_spawnp(
        pid: *mut libc::pid_t, name: *const c_char, actions: *const c_void, attributes: *const
        c_void, words: Words, environment: Words
    ) -> c_int = ENOSYS;

    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long = fail_with_enosys().into();
}
