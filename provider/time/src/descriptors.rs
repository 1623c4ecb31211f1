//! Functions that wait for descriptors with a timeout.
//!
//! In virtual time the real function is called with timeout 0, between waits of the provider, which
//! makes the provider's descriptors readable. If no descriptor is the provider's, the process waits
//! for something outside of the simulated network, its launcher for example. Then the real function
//! waits in real time. If its timeout passes, virtual time advances by the timeout as well: an
//! event loop looks at the clock to see which of its timers have ended.

use core::ffi::{c_int, c_void};
use core::mem::size_of;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, ssize_t, timespec, timeval};

use crate::epoll_sets::contains_owned;
use crate::real::{self, set_errno};
use crate::time_value::{
    MILLISECOND, duration, duration_of_timeval, timespec_of_duration, timeval_of_duration,
};
use crate::timers;
use crate::virtual_clock::VirtualClock;

/// Longest wait of the provider, in nanoseconds, before the descriptors are tested again, because some of them may not
/// be the provider's.
const SLICE: u64 = MILLISECOND;

/// The owner of the descriptors for which a call waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nothing,
    /// At least one of the descriptors belongs to the provider, or to a timer in virtual time.
    Owned,
    Foreign,
}

impl Watched {
    /// Returns to whom these descriptors belong; negative ones do not count.
    fn of(clock: VirtualClock, fds: impl Iterator<Item = c_int>) -> Watched {
        let mut watched = Watched::Nothing;
        for fd in fds.filter(|&fd| fd >= 0) {
            if clock.owns(fd) || timers::is_armed(fd) || contains_owned(clock, fd) {
                return Watched::Owned;
            }
            watched = Watched::Foreign;
        }
        watched
    }
}

/// Waits until `wait`, a call of the real function with a timeout in nanoseconds, returns anything
/// but 0, or until the timeout has passed in virtual time. `None` is no timeout. Returns the
/// result, and the time that is left, if it is known.
fn wait_until_ready(
    timeout: Option<u64>,
    watched: impl FnOnce(VirtualClock) -> Watched,
    wait: impl Fn(Option<u64>) -> c_int,
) -> (c_int, Option<u64>) {
    let Some(clock) = VirtualClock::get() else { return (wait(timeout), None) };
    let ready = wait(Some(0));
    if ready != 0 || timeout == Some(0) {
        return (ready, timeout);
    }
    let watched = watched(clock);
    // Without a timeout only a foreign descriptor or a signal ends the wait; no clock is needed unless a timer raises it.
    if timeout.is_none() && watched != Watched::Owned && timers::first_signal().is_none() {
        return (wait(None), None);
    }
    let Some(mut now) = clock.now() else { return (wait(timeout), None) };
    let deadline = timeout.map(|timeout| now.saturating_add(timeout));
    let left = |now: u64| deadline.map(|deadline| deadline.saturating_sub(now));
    match (watched, deadline) {
        (Watched::Nothing, Some(deadline)) => {
            let left = clock.sleep(deadline).err().unwrap_or(0);
            return (wait(Some(left)), Some(0));
        }
        (Watched::Foreign, _) if timers::first_signal().is_none() => {
            let ready = wait(timeout);
            if ready != 0 {
                return (ready, clock.now().and_then(left));
            }
        }
        _ => {}
    }
    // The timeout of foreign descriptors has passed in real time, unless a timer may raise a signal before.
    let before = timers::signals();
    let by_slices = watched == Watched::Foreign && timers::first_signal().is_some();
    let really_left =
        |now: u64| if watched == Watched::Foreign && !by_slices { Some(0) } else { left(now) };
    while left(now) != Some(0) {
        let slice = now.saturating_add(SLICE).min(deadline.unwrap_or(u64::MAX));
        if by_slices {
            // No faster than real time, because the process waits for something outside of the simulated network.
            let ready = wait(Some(slice - now));
            if ready != 0 {
                return (ready, left(now));
            }
        }
        if !clock.wait(slice, true) {
            return (wait(really_left(now)), None);
        }
        match clock.now() {
            Some(later) => now = later,
            None => return (wait(really_left(now)), None),
        }
        if timers::signals() != before {
            set_errno(libc::EINTR);
            return (-1, left(now));
        }
        let ready = wait(Some(0));
        if ready != 0 {
            return (ready, left(now));
        }
    }
    (0, Some(0))
}

/// Converts a timeout in milliseconds to nanoseconds; `None` means that there is no timeout.
fn from_milliseconds(timeout: c_int) -> Option<u64> {
    u64::try_from(timeout).ok().map(|timeout| timeout * MILLISECOND)
}

/// Converts a timeout to milliseconds, rounded up; -1 means that there is no timeout.
fn to_milliseconds(timeout: Option<u64>) -> c_int {
    timeout
        .map_or(-1, |timeout| c_int::try_from(timeout.div_ceil(MILLISECOND)).unwrap_or(c_int::MAX))
}

/// A timeout that a caller passed by address, after it was checked.
enum Given {
    Valid(Option<u64>),
    /// The timeout is invalid, for which the real function returns an error.
    Invalid,
}

impl Given {
    /// # Safety
    /// `timeout` is NULL, which is no timeout, or points to a readable time.
    unsafe fn from_timespec(timeout: *const timespec) -> Given {
        // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
        match unsafe { timeout.as_ref() } {
            None => Given::Valid(None),
            Some(timeout) => match duration(timeout) {
                None => Given::Invalid,
                valid => Given::Valid(valid),
            },
        }
    }

    /// # Safety
    /// `timeout` is NULL, which is no timeout, or points to a readable time.
    unsafe fn from_timeval(timeout: *const timeval) -> Given {
        // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable time.
        match unsafe { timeout.as_ref() } {
            None => Given::Valid(None),
            Some(timeout) => match duration_of_timeval(timeout) {
                None => Given::Invalid,
                valid => Given::Valid(valid),
            },
        }
    }
}

/// Calls `wait` with the timeout as a structure, or with NULL for no timeout.
fn with_timespec(timeout: Option<u64>, wait: impl FnOnce(*const timespec) -> c_int) -> c_int {
    let timeout = timeout.map(timespec_of_duration);
    wait(timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref))
}

/// Returns the file descriptors of a call of poll(2).
///
/// # Safety
/// `fds` points to `count` structures while the iterator is used.
unsafe fn poll_fds(fds: *const pollfd, count: nfds_t) -> impl Iterator<Item = c_int> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the index is below the number of structures that the caller promised.
    (0..count).map(move |index| unsafe { (*fds.add(index)).fd })
}

/// Waits in virtual time until the armed timer of a descriptor has ended, if a read would wait for it.
fn await_timer(fd: c_int) {
    // SAFETY: fcntl(2) with F_GETFL reads the flags of a descriptor, and refuses one that is not open.
    let flags = || unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if !timers::is_armed(fd) || flags() & libc::O_NONBLOCK != 0 {
        return;
    }
    let mut readable = pollfd { fd, events: libc::POLLIN, revents: 0 };
    let readable = &raw mut readable;
    wait_until_ready(
        None,
        |_| Watched::Owned,
        // SAFETY: the array is one structure, a local variable of this function.
        |timeout| unsafe { real::poll(readable, 1, to_milliseconds(timeout)) },
    );
}

/// Reads from a descriptor, which may be a timer's: read(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, size: size_t) -> ssize_t {
    await_timer(fd);
    // SAFETY: the arguments are those of the caller, who promised what read(2) demands.
    unsafe { real::read(fd, to, size) }
}

/// Reads from a descriptor: read(2) of programs that were compiled with _FORTIFY_SOURCE.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    size: size_t,
    room: size_t,
) -> ssize_t {
    await_timer(fd);
    // SAFETY: the arguments are those of the caller; the real function ends the process if there is no room.
    unsafe { real::__read_chk(fd, to, size, room) }
}

/// Waits for descriptors: poll(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let (ready, _) = wait_until_ready(
        from_milliseconds(timeout),
        // SAFETY: the array is the caller's, and the real function has just read all of it without
        // an error.
        |clock| Watched::of(clock, unsafe { poll_fds(fds, count) }),
        // SAFETY: the array is the caller's, who promised what poll(2) demands.
        |timeout| unsafe { real::poll(fds, count, to_milliseconds(timeout)) },
    );
    ready
}

/// Waits for descriptors, of which there must be room for `count`: poll(2) of programs that were
/// compiled with _FORTIFY_SOURCE.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < usize::try_from(count).unwrap_or(usize::MAX) {
        // SAFETY: the real function ends the process, for the array is too short, and does not read
        // it.
        return unsafe { real::__poll_chk(fds, count, timeout, size) };
    }
    // SAFETY: the arguments are those of the caller, who promised what poll(2) demands.
    unsafe { poll(fds, count, timeout) }
}

/// Waits for descriptors with another signal mask: ppoll(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller of ppoll passes NULL or a readable timeout.
    let Given::Valid(given) = (unsafe { Given::from_timespec(timeout) }) else {
        // SAFETY: the arguments are those of the caller; the real function refuses the timeout.
        return unsafe { real::ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: array and mask are the caller's, who promised what ppoll(2) demands.
    let wait = |timeout: *const timespec| unsafe { real::ppoll(fds, count, timeout, mask) };
    let (ready, _) = wait_until_ready(
        given,
        // SAFETY: the array is the caller's, and the real function has just read all of it without
        // an error.
        |clock| Watched::of(clock, unsafe { poll_fds(fds, count) }),
        |timeout| with_timespec(timeout, wait),
    );
    ready
}

/// Waits for descriptors, of which there must be room for `count`: ppoll(2) of programs that were
/// compiled with _FORTIFY_SOURCE.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: size_t,
) -> c_int {
    if size / size_of::<pollfd>() < usize::try_from(count).unwrap_or(usize::MAX) {
        // SAFETY: the real function ends the process, for the array is too short, and does not read
        // it.
        return unsafe { real::__ppoll_chk(fds, count, timeout, mask, size) };
    }
    // SAFETY: the arguments are those of the caller, who promised what ppoll(2) demands.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// Bits of the largest sets that select(2) can have in virtual time, FD_SETSIZE.
const SET_BITS: usize = libc::FD_SETSIZE;
const WORD_BITS: usize = u64::BITS as usize;

/// The three sets of select(2) as the caller passed them, since the real function writes its result
/// there.
struct Sets {
    addresses: [*mut fd_set; 3],
    words: usize,
    saved: [[u64; SET_BITS / WORD_BITS]; 3],
}

impl Sets {
    /// Copies the sets; returns `None` if `count` is invalid or larger than FD_SETSIZE.
    ///
    /// # Safety
    /// Each address is NULL or points to a set of `count` bits, rounded up to 64.
    unsafe fn save(count: c_int, addresses: [*mut fd_set; 3]) -> Option<Sets> {
        let count = usize::try_from(count).ok().filter(|&count| count <= SET_BITS)?;
        let words = count.div_ceil(WORD_BITS);
        let mut saved = [[0; SET_BITS / WORD_BITS]; 3];
        for (copy, address) in saved.iter_mut().zip(addresses) {
            if !address.is_null() {
                // SAFETY: both hold `words` words: the copy has FD_SETSIZE bits, and the caller
                // passes such a set.
                unsafe { address.cast::<u64>().copy_to(copy.as_mut_ptr(), words) };
            }
        }
        Some(Sets { addresses, words, saved })
    }

    /// Writes the saved sets back to the application's memory.
    ///
    /// # Safety
    /// The sets are still there.
    unsafe fn restore(&self) {
        for (copy, address) in self.saved.iter().zip(self.addresses) {
            if !address.is_null() {
                // SAFETY: both hold `words` words, and the caller's set was there when it was
                // saved.
                unsafe { address.cast::<u64>().copy_from(copy.as_ptr(), self.words) };
            }
        }
    }

    /// Returns the file descriptors that are in the sets of a select(2) call.
    fn fds(&self) -> impl Iterator<Item = c_int> {
        let sets = self.saved.iter().flat_map(|set| set.iter().enumerate());
        sets.flat_map(|(word, &bits)| {
            let in_word = (0..WORD_BITS).filter(move |bit| bits >> bit & 1 != 0);
            in_word.filter_map(move |bit| c_int::try_from(word * WORD_BITS + bit).ok())
        })
    }
}

/// Waits for the descriptors of three sets: select(2). Sets of more than FD_SETSIZE bits wait in
/// real time.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the sets are the caller's, who promised what select(2) demands.
    let wait = |timeout: *mut timeval| unsafe { real::select(count, read, write, except, timeout) };
    // SAFETY: the caller of select passes NULL or a readable timeout.
    let (Some(_), Given::Valid(given)) =
        (VirtualClock::get(), unsafe { Given::from_timeval(timeout) })
    else {
        return wait(timeout);
    };
    // SAFETY: the caller of select passes NULL or sets of `count` bits in whole words.
    let Some(sets) = (unsafe { Sets::save(count, [read, write, except]) }) else {
        return wait(timeout);
    };
    let (ready, left) = wait_until_ready(
        given,
        |clock| Watched::of(clock, sets.fds()),
        |timeout| {
            // SAFETY: the caller's sets stay in place until select returns.
            unsafe { sets.restore() };
            let mut timeout = timeout.map(timeval_of_duration);
            wait(timeout.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut))
        },
    );
    // Linux reports the time that is left.
    if let (false, Some(left)) = (timeout.is_null(), left) {
        // SAFETY: the timeout is not NULL, and the caller of select lets it be written, as Linux
        // does.
        unsafe { timeout.write(timeval_of_duration(left)) };
    }
    ready
}

/// Waits for the descriptors of three sets with another signal mask: pselect(2). Sets of more than
/// FD_SETSIZE bits wait in real time.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let wait = |timeout: *const timespec| {
        // SAFETY: sets and mask are the caller's, who promised what pselect(2) demands.
        unsafe { real::pselect(count, read, write, except, timeout, mask) }
    };
    // SAFETY: the caller of pselect passes NULL or a readable timeout.
    let (Some(_), Given::Valid(given)) =
        (VirtualClock::get(), unsafe { Given::from_timespec(timeout) })
    else {
        return wait(timeout);
    };
    // SAFETY: the caller of pselect passes NULL or sets of `count` bits in whole words.
    let Some(sets) = (unsafe { Sets::save(count, [read, write, except]) }) else {
        return wait(timeout);
    };
    let (ready, _) = wait_until_ready(
        given,
        |clock| Watched::of(clock, sets.fds()),
        |timeout| {
            // SAFETY: the caller's sets stay in place until pselect returns.
            unsafe { sets.restore() };
            with_timespec(timeout, wait)
        },
    );
    ready
}

/// Waits for the descriptors of an epoll set: epoll_wait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the array is the caller's, who promised what epoll_wait(2) demands.
    let wait = |timeout: c_int| unsafe { real::epoll_wait(set, events, room, timeout) };
    wait_for_set(set, from_milliseconds(timeout), |timeout| wait(to_milliseconds(timeout)))
}

/// Waits for the descriptors of an epoll set with another signal mask: epoll_pwait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: array and mask are the caller's, who promised what epoll_pwait(2) demands.
    let wait = |timeout: c_int| unsafe { real::epoll_pwait(set, events, room, timeout, mask) };
    wait_for_set(set, from_milliseconds(timeout), |timeout| wait(to_milliseconds(timeout)))
}

/// Waits for the descriptors of an epoll set with another signal mask: epoll_pwait2(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let wait = |timeout: *const timespec| {
        // SAFETY: array and mask are the caller's, who promised what epoll_pwait2(2) demands.
        unsafe { real::epoll_pwait2(set, events, room, timeout, mask) }
    };
    // SAFETY: the caller of epoll_pwait2 passes NULL or a readable timeout.
    match unsafe { Given::from_timespec(timeout) } {
        Given::Invalid => wait(timeout),
        Given::Valid(given) => wait_for_set(set, given, |timeout| with_timespec(timeout, wait)),
    }
}

/// Waits for an epoll set. `wait` calls the real function with a timeout in nanoseconds.
fn wait_for_set(set: c_int, timeout: Option<u64>, wait: impl Fn(Option<u64>) -> c_int) -> c_int {
    wait_until_ready(timeout, |clock| Watched::of(clock, [set].into_iter()), wait).0
}

/// Sets an option of a socket: setsockopt(2). Reports timeouts to the provider, because they pass in real time.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised what setsockopt(2) demands.
    let status = unsafe { real::setsockopt(fd, level, name, value, len) };
    if status == 0
        && level == libc::SOL_SOCKET
        && [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].contains(&name)
    {
        // SAFETY: the kernel has read a time of this type from the address, for it has accepted the option; the address
        // need not be aligned.
        let timeout = unsafe { value.cast::<timeval>().read_unaligned() };
        let timeout = duration_of_timeval(&timeout).filter(|timeout| *timeout > 0);
        if let (Some(timeout), Some(clock)) = (timeout, VirtualClock::get()) {
            clock.note_socket_timeout(timeout);
        }
    }
    status
}
