//! Timers that end in a signal or make a descriptor readable, in virtual time: `timerfd_settime`, `timer_settime`,
//! `setitimer` and `alarm`.
//!
//! The kernel's timer of the program stays disarmed. This module keeps the virtual time at which it is due, and tells the
//! provider the first of these times, so that no wait passes it. When the clock has reached it, the kernel's timer is set to
//! the shortest time, and ends as it would: with the program's signal, handler or descriptor.
//!
//! A program that computes and makes no call does not advance the clock. For it a timer of the process's CPU time runs as
//! well, whose private signal looks whether a timer is due.
//!
//! Expirations that the program has not read yet are not counted: a descriptor shows one. A signal does not end a wait for
//! something else, such as a read of a pipe, because the clock of a process that sleeps in the kernel stands still.

use core::ffi::{c_int, c_uint};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use libc::{clockid_t, itimerspec, itimerval, pollfd, sigevent, timer_t};

use crate::real::{self, errno, set_errno};
use crate::time_value::{
    NS_PER_SECOND, duration_of_timeval, nanoseconds, timespec_of_duration, timeval_of_duration,
};
use crate::virtual_clock::{VirtualClock, outside_provider};

/// Number of timers that a process can have in virtual time. Further ones run in real time.
const SLOTS: usize = 256;
/// Name of a slot that no timer has.
const FREE: u64 = u64::MAX;
/// Bit of the names of timers other than those of timer_create(2), whose names have only the highest bit or small numbers.
const NAMED: u64 = 1 << 62;
/// Name of the one timer of setitimer(2) and alarm(2).
const REAL_ITIMER: u64 = NAMED | 1 << 32;
/// Number of looks at a kernel's timer that was set to the shortest time, until it has ended.
const MOST_LOOKS: u32 = 100_000;
/// Shortest CPU time in nanoseconds between two looks at a program that computes.
const SHORTEST_LOOK: u64 = 1_000_000;
/// Number of the private signal, counted down from the highest.
const SIGNAL_BELOW_HIGHEST: c_int = 3;
/// Virtual nanoseconds from one look to the next, below which the clock stands still: looks read it, which takes time.
const STANDS_STILL: u64 = 1_000;

/// A timer of the program.
struct Slot {
    name: AtomicU64,
    /// The virtual time in nanoseconds at which the timer ends; zero if it is disarmed.
    due: AtomicU64,
    /// Nanoseconds from one end to the next; zero for a timer that ends once.
    interval: AtomicU64,
    /// The signal that the timer raises; zero for none.
    signal: AtomicI32,
}

static TIMERS: [Slot; SLOTS] = [const {
    Slot {
        name: AtomicU64::new(FREE),
        due: AtomicU64::new(0),
        interval: AtomicU64::new(0),
        signal: AtomicI32::new(0),
    }
}; SLOTS];
/// A slot has been taken in this process.
static USED: AtomicBool = AtomicBool::new(false);
/// Number of signals that timers of this process have raised and that a handler has taken.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// The kernel's timer of CPU time, plus one; zero if there is none yet.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
/// The virtual time at the last look.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);

/// State of a timer: nanoseconds to its end, zero if it is disarmed, and from one end to the next.
#[derive(Clone, Copy, Default)]
struct Setting {
    left: u64,
    interval: u64,
}

impl Setting {
    fn as_timespecs(self) -> itimerspec {
        itimerspec {
            it_value: timespec_of_duration(self.left),
            it_interval: timespec_of_duration(self.interval),
        }
    }

    fn as_timevals(self) -> itimerval {
        itimerval {
            it_value: timeval_of_duration(self.left),
            it_interval: timeval_of_duration(self.interval),
        }
    }
}

/// The shortest setting of a kernel's timer, which ends it at once.
const SHORTEST: Setting = Setting { left: 1, interval: 0 };

fn name_of_descriptor(fd: c_int) -> u64 {
    NAMED | u64::from(fd.cast_unsigned())
}

fn name_of_created(timer: timer_t) -> u64 {
    timer as usize as u64
}

/// Returns the slot of a timer, if it has one.
fn find(name: u64) -> Option<&'static Slot> {
    if !USED.load(Ordering::Relaxed) {
        return None;
    }
    TIMERS.iter().find(|slot| slot.name.load(Ordering::Acquire) == name)
}

/// Returns the slot of a timer, a new one if it has none; `None` if there are too many timers.
fn find_or_take(name: u64) -> Option<&'static Slot> {
    USED.store(true, Ordering::Relaxed);
    find(name).or_else(|| {
        TIMERS.iter().find(|slot| {
            slot.name.compare_exchange(FREE, name, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    })
}

impl Slot {
    fn free(&self) {
        self.due.store(0, Ordering::Relaxed);
        self.signal.store(0, Ordering::Relaxed);
        self.name.store(FREE, Ordering::Release);
    }
}

/// Frees the slot of a timer that is no more.
fn forget(name: u64) {
    let Some(slot) = find(name) else { return };
    let armed = slot.due.load(Ordering::Acquire) > 0;
    slot.free();
    if let (true, Some(clock)) = (armed, VirtualClock::get()) {
        clock.set_timer(first_due(), expire);
    }
}

/// Forgets all timers in a forked child, which is in real time and has not inherited those that raise signals.
pub(crate) fn forget_all() {
    TIMERS.iter().for_each(Slot::free);
    LOOKING.store(0, Ordering::Relaxed);
}

/// Gives armed timers what is left of them in real time, because virtual time ended at `now`.
pub(crate) fn resume_in_real_time(now: u64) {
    for slot in &TIMERS {
        let due = slot.due.swap(0, Ordering::AcqRel);
        if due > 0 {
            let left = due.saturating_sub(now).max(1);
            let interval = slot.interval.load(Ordering::Relaxed);
            set_kernel_timer(slot.name.load(Ordering::Acquire), Setting { left, interval });
        }
    }
}

/// Takes over the timer of setitimer(2) or alarm(2) that the program has set before virtual time.
pub(crate) fn adopt(clock: VirtualClock) {
    // SAFETY: zero is a value of the structure, a local variable that getitimer(2) writes.
    let set = unsafe {
        let mut set: itimerval = zeroed();
        real::getitimer(libc::ITIMER_REAL, &raw mut set);
        set
    };
    let left = duration_of_timeval(&set.it_value).unwrap_or(0);
    if left == 0 {
        return;
    }
    let interval = duration_of_timeval(&set.it_interval).unwrap_or(0);
    let due = clock.now().unwrap_or(0).saturating_add(left);
    if arm(clock, REAL_ITIMER, libc::SIGALRM, due, interval) {
        set_kernel_timer(REAL_ITIMER, Setting::default());
    }
}

/// Returns the virtual time at which the first timer ends, or the highest number if none is armed.
fn first_due() -> u64 {
    let dues = TIMERS.iter().map(|slot| slot.due.load(Ordering::Acquire)).filter(|&due| due > 0);
    dues.min().unwrap_or(u64::MAX)
}

/// Returns whether this is the descriptor of an armed timer in virtual time.
pub(crate) fn is_armed(fd: c_int) -> bool {
    find(name_of_descriptor(fd)).is_some_and(|slot| slot.due.load(Ordering::Acquire) > 0)
}

/// Returns whether this is the descriptor of a timer in virtual time.
pub(crate) fn is_descriptor(fd: c_int) -> bool {
    find(name_of_descriptor(fd)).is_some()
}

/// Returns the virtual time at which the first timer that raises a signal ends; `None` if there is none.
pub(crate) fn first_signal() -> Option<u64> {
    if !USED.load(Ordering::Relaxed) {
        return None;
    }
    let raises = |slot: &&Slot| slot.signal.load(Ordering::Relaxed) != 0;
    let dues = TIMERS.iter().filter(raises).map(|slot| slot.due.load(Ordering::Acquire));
    dues.filter(|&due| due > 0).min()
}

/// Returns the number of signals that timers of this process have raised so far.
pub(crate) fn signals() -> u64 {
    SIGNALS.load(Ordering::Acquire)
}

/// Returns the state of a timer, disarmed if it has no slot.
fn state(clock: VirtualClock, name: u64) -> Setting {
    let Some(slot) = find(name) else { return Setting::default() };
    let due = slot.due.load(Ordering::Acquire);
    let interval = slot.interval.load(Ordering::Relaxed);
    if due == 0 {
        return Setting { left: 0, interval };
    }
    // A timer that is due and has not ended yet is armed.
    Setting { left: due.saturating_sub(clock.now().unwrap_or(0)).max(1), interval }
}

/// Arms a timer for a virtual time, or disarms it if `due` is zero. A `signal` of zero leaves the one that the timer has.
/// Returns false if there are too many timers.
fn arm(clock: VirtualClock, name: u64, signal: c_int, due: u64, interval: u64) -> bool {
    let Some(slot) = find_or_take(name) else { return false };
    if signal != 0 {
        slot.signal.store(signal, Ordering::Relaxed);
    }
    let now = clock.now().unwrap_or(0);
    LOOKED_AT.store(now, Ordering::Relaxed);
    slot.interval.store(interval, Ordering::Relaxed);
    slot.due.store(due, Ordering::Release);
    let next = if due > 0 && due <= now { expire(now) } else { first_due() };
    clock.set_timer(next, expire);
    if next != u64::MAX {
        look_after(next.saturating_sub(now));
    }
    true
}

/// Ends the timers that are due at the virtual time `now`. Returns the time of the next one. The provider calls this when
/// its clock has reached the time that it was given.
extern "C" fn expire(now: u64) -> u64 {
    outside_provider(|| {
        for slot in &TIMERS {
            let due = slot.due.load(Ordering::Acquire);
            if due == 0 || due > now {
                continue;
            }
            let interval = slot.interval.load(Ordering::Relaxed);
            let passed = now.saturating_sub(due).checked_div(interval);
            let next = passed.map_or(0, |passed| due.saturating_add((passed + 1) * interval));
            // A handler of a signal may have set the timer anew.
            let ours = slot.due.compare_exchange(due, next, Ordering::AcqRel, Ordering::Relaxed);
            if ours.is_ok() {
                end(slot);
            }
        }
    });
    first_due()
}

/// Sets the kernel's timer of a name. Returns false if there is none any more.
fn set_kernel_timer(name: u64, setting: Setting) -> bool {
    if name == REAL_ITIMER {
        let setting = setting.as_timevals();
        // SAFETY: the setting is a local variable, and the old one is not asked for.
        return unsafe { real::setitimer(libc::ITIMER_REAL, &raw const setting, null_mut()) } == 0;
    }
    let setting = setting.as_timespecs();
    if name & NAMED != 0 {
        let fd = (name as u32).cast_signed();
        // SAFETY: the setting is a local variable; a descriptor that is no timer any more is refused.
        return unsafe { real::timerfd_settime(fd, 0, &raw const setting, null_mut()) } == 0;
    }
    let timer = name as usize as timer_t;
    // SAFETY: the program created this timer, and deletes it by a function of this file, which frees the slot; the setting
    // is a local variable.
    name != FREE && unsafe { real::timer_settime(timer, 0, &raw const setting, null_mut()) } == 0
}

/// Returns whether the kernel's timer of a name has ended, or made its descriptor readable.
fn has_ended(name: u64) -> bool {
    // SAFETY: zero is a value of these structures, local variables that the functions write; the array is one structure; and
    // the program deletes its timer by a function of this file alone, which frees the slot with this name.
    unsafe {
        if name == REAL_ITIMER {
            let mut left: itimerval = zeroed();
            real::getitimer(libc::ITIMER_REAL, &raw mut left) != 0
                || left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0
        } else if name & NAMED != 0 {
            let fd = (name as u32).cast_signed();
            let mut readable = pollfd { fd, events: libc::POLLIN, revents: 0 };
            real::poll(&raw mut readable, 1, 0) != 0
        } else {
            let mut left: itimerspec = zeroed();
            real::timer_gettime(name as usize as timer_t, &raw mut left) != 0
                || left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0
        }
    }
}

/// Ends a kernel's timer now, and waits until it has ended. A signal for this thread arrives by the end of the last look.
fn end(slot: &Slot) {
    let (saved, name) = (errno(), slot.name.load(Ordering::Acquire));
    let signal = slot.signal.load(Ordering::Relaxed);
    if signal != 0 && is_handled(signal) {
        SIGNALS.fetch_add(1, Ordering::Release);
    }
    if !set_kernel_timer(name, SHORTEST) {
        slot.free();
    } else {
        let _ = (0..MOST_LOOKS).find(|_| has_ended(name));
    }
    set_errno(saved);
}

/// Returns whether a handler takes this signal in the calling thread.
fn is_handled(signal: c_int) -> bool {
    // SAFETY: zero is a value of these structures, local variables that the functions write; nothing is changed.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let mut blocked: libc::sigset_t = zeroed();
        real::sigaction(signal, null(), &raw mut action);
        real::pthread_sigmask(libc::SIG_BLOCK, null(), &raw mut blocked);
        action.sa_sigaction != libc::SIG_IGN && libc::sigismember(&raw const blocked, signal) == 0
    }
}

/// Lets the private signal look after this CPU time, in nanoseconds, whether a timer is due.
fn look_after(left: u64) {
    let mut timer = LOOKING.load(Ordering::Acquire);
    if timer == 0 {
        // SAFETY: zero is a value of these structures, all of them local variables. The handler is a function of this
        // library, which is never unloaded, of the type that an action without SA_SIGINFO has.
        unsafe {
            let signal = libc::SIGRTMAX() - SIGNAL_BELOW_HIGHEST;
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = look as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            real::sigaction(signal, &raw const action, null_mut());
            let mut event: sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            let mut created: timer_t = null_mut();
            let clock = libc::CLOCK_PROCESS_CPUTIME_ID;
            if real::timer_create(clock, &raw mut event, &raw mut created) != 0 {
                return;
            }
            timer = created as usize + 1;
        }
        LOOKING.store(timer, Ordering::Release);
    }
    let setting = Setting { left: left.max(SHORTEST_LOOK), interval: 0 }.as_timespecs();
    // SAFETY: this library created the timer and never deletes it; the setting is a local variable.
    unsafe { real::timer_settime((timer - 1) as timer_t, 0, &raw const setting, null_mut()) };
}

/// Ends the timers that are due while the program computes without a call. Where computation takes no virtual time, the
/// clock stands still then, and the timer ends after as much CPU time.
extern "C" fn look(_signal: c_int) {
    let saved = errno();
    if let Some(clock) = VirtualClock::get() {
        let (now, due) = (clock.now().unwrap_or(0), first_due());
        let stands = now.saturating_sub(LOOKED_AT.swap(now, Ordering::Relaxed)) < STANDS_STILL;
        let now = if stands && due != u64::MAX { now.max(due) } else { now };
        let next = if due <= now { expire(now) } else { due };
        clock.set_timer(next, expire);
        if next != u64::MAX {
            look_after(next.saturating_sub(now));
        }
    } else if crate::virtual_clock::is_registered() {
        // The thread is inside the provider, whose clock ends the timer.
        look_after(SHORTEST_LOOK);
    }
    set_errno(saved);
}

/// Sets a timer in virtual time: returns what it was set to before. `None` means that the kernel must set it, because the
/// process is in real time, the setting is invalid, or there are too many timers. `disarm` disarms the kernel's timer, and
/// returns false if that fails.
///
/// # Safety
/// `setting` is NULL or points to a readable setting.
unsafe fn set(
    name: u64,
    setting: *const itimerspec,
    absolute: bool,
    disarm: impl FnOnce() -> bool,
) -> Option<Result<Setting, ()>> {
    // SAFETY: the caller passes NULL, for which as_ref has a case, or a readable setting.
    let setting = unsafe { setting.as_ref() }?;
    let value = nanoseconds(&setting.it_value).filter(|&value| value >= 0)?;
    let interval = crate::time_value::duration(&setting.it_interval)?;
    let clock = VirtualClock::get()?;
    let now = clock.now()?;
    find_or_take(name)?;
    if !disarm() {
        forget(name);
        return Some(Err(()));
    }
    let before = state(clock, name);
    let due = match value {
        0 => 0,
        // A time that has passed ends the timer at once; zero would disarm it.
        _ if absolute => clock.instant(value, clock.guess_axis(value)).max(1),
        _ => now.saturating_add(value.unsigned_abs()),
    };
    arm(clock, name, 0, due, interval);
    Some(Ok(before))
}

/// Returns the state of a timer that runs in virtual time; `None` if the kernel knows it.
fn get(name: u64) -> Option<Setting> {
    let clock = VirtualClock::get()?;
    find(name).map(|_| state(clock, name))
}

/// Writes a result of type T unless the caller gave NULL for it.
///
/// # Safety
/// `to` is NULL or may be written.
unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { to.write(value) };
    }
}

/// A setting that disarms a timer.
const DISARMED: Setting = Setting { left: 0, interval: 0 };

/// Creates a timer that makes a descriptor readable: timerfd_create(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timerfd_create(clock: clockid_t, flags: c_int) -> c_int {
    // SAFETY: timerfd_create(2) takes two numbers, and refuses those that it does not allow.
    let fd = unsafe { real::timerfd_create(clock, flags) };
    if fd >= 0 {
        forget(name_of_descriptor(fd));
        find_or_take(name_of_descriptor(fd));
    }
    fd
}

/// Sets the timer of a descriptor: timerfd_settime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timerfd_settime(
    fd: c_int,
    flags: c_int,
    setting: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let disarmed = DISARMED.as_timespecs();
    let known = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
    // SAFETY: the setting is a local variable. It fails for a descriptor without a timer.
    let disarm = || unsafe { real::timerfd_settime(fd, 0, &raw const disarmed, null_mut()) } == 0;
    if flags & !known == 0 {
        let absolute = flags & libc::TFD_TIMER_ABSTIME != 0;
        // SAFETY: the caller of timerfd_settime passes NULL or a readable setting, and NULL or room for the old one.
        unsafe {
            match set(name_of_descriptor(fd), setting, absolute, disarm) {
                Some(Ok(before)) => {
                    write(old, before.as_timespecs());
                    return 0;
                }
                Some(Err(())) => return -1,
                None => {}
            }
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what timerfd_settime(2) demands.
    unsafe { real::timerfd_settime(fd, flags, setting, old) }
}

/// Reads the timer of a descriptor: timerfd_gettime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timerfd_gettime(fd: c_int, setting: *mut itimerspec) -> c_int {
    // SAFETY: the caller of timerfd_gettime passes room for a setting; NULL is left to the kernel's answer.
    unsafe {
        match get(name_of_descriptor(fd)) {
            Some(found) if !setting.is_null() => {
                setting.write(found.as_timespecs());
                0
            }
            _ => real::timerfd_gettime(fd, setting),
        }
    }
}

/// Creates a timer of the process: timer_create(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timer_create(
    clock: clockid_t,
    event: *mut sigevent,
    timer: *mut timer_t,
) -> c_int {
    // SAFETY: the arguments are those of the caller, who promised what timer_create(2) demands; after success the timer's
    // name is there, and the event is NULL or readable.
    unsafe {
        let status = real::timer_create(clock, event, timer);
        let in_real_time = crate::virtual_clock::Axis::of_clock(clock).is_none();
        if status != 0 || in_real_time {
            return status;
        }
        let signal = match event.as_ref() {
            None => libc::SIGALRM,
            Some(event) if event.sigev_notify == libc::SIGEV_NONE => 0,
            Some(event) if event.sigev_notify == libc::SIGEV_THREAD => 0,
            Some(event) => event.sigev_signo,
        };
        if let Some(slot) = find_or_take(name_of_created(*timer)) {
            slot.signal.store(signal, Ordering::Relaxed);
        }
        status
    }
}

/// Sets a timer of the process: timer_settime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timer_settime(
    timer: timer_t,
    flags: c_int,
    setting: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let name = name_of_created(timer);
    // A timer of CPU time has no slot.
    if find(name).is_some() {
        let disarmed = DISARMED.as_timespecs();
        // SAFETY: the timer is the caller's, and the setting is a local variable.
        let disarm =
            || unsafe { real::timer_settime(timer, 0, &raw const disarmed, null_mut()) } == 0;
        // SAFETY: the caller of timer_settime passes NULL or a readable setting, and NULL or room for the old one.
        unsafe {
            match set(name, setting, flags & libc::TIMER_ABSTIME != 0, disarm) {
                Some(Ok(before)) => {
                    write(old, before.as_timespecs());
                    return 0;
                }
                Some(Err(())) => return -1,
                None => {}
            }
        }
    }
    // SAFETY: the arguments are those of the caller, who promised what timer_settime(2) demands.
    unsafe { real::timer_settime(timer, flags, setting, old) }
}

/// Reads a timer of the process: timer_gettime(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timer_gettime(timer: timer_t, setting: *mut itimerspec) -> c_int {
    // SAFETY: the caller of timer_gettime passes a timer and room for a setting; NULL is left to the kernel's answer.
    unsafe {
        match get(name_of_created(timer)) {
            Some(found) if !setting.is_null() => {
                setting.write(found.as_timespecs());
                0
            }
            _ => real::timer_gettime(timer, setting),
        }
    }
}

/// Deletes a timer of the process: timer_delete(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn timer_delete(timer: timer_t) -> c_int {
    forget(name_of_created(timer));
    // SAFETY: the argument is that of the caller, who promised what timer_delete(2) demands.
    unsafe { real::timer_delete(timer) }
}

/// Sets an interval timer: setitimer(2). Those of CPU time stay the kernel's.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setitimer(
    which: c_int,
    setting: *const itimerval,
    old: *mut itimerval,
) -> c_int {
    // SAFETY: the caller of setitimer passes NULL, for which as_ref has a case, or a readable setting.
    let given = unsafe { setting.as_ref() };
    if which == libc::ITIMER_REAL
        && let Some(given) = given
        && let (Some(left), Some(interval)) =
            (duration_of_timeval(&given.it_value), duration_of_timeval(&given.it_interval))
        && let Some(before) = set_itimer(left, interval)
    {
        // SAFETY: the caller of setitimer passes NULL or room for the old setting.
        unsafe { write(old, before.as_timevals()) };
        return 0;
    }
    // SAFETY: the arguments are those of the caller, who promised what setitimer(2) demands.
    unsafe { real::setitimer(which, setting, old) }
}

/// Sets the timer of setitimer(2) and alarm(2) in virtual time. Returns its state before; `None` in real time.
fn set_itimer(left: u64, interval: u64) -> Option<Setting> {
    let clock = VirtualClock::get()?;
    let now = clock.now()?;
    let before = state(clock, REAL_ITIMER);
    let due = if left == 0 { 0 } else { now.saturating_add(left) };
    arm(clock, REAL_ITIMER, libc::SIGALRM, due, interval).then_some(before)
}

/// Reads an interval timer: getitimer(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getitimer(which: c_int, setting: *mut itimerval) -> c_int {
    // SAFETY: the caller of getitimer passes room for a setting; NULL is left to the kernel's answer.
    unsafe {
        match get(REAL_ITIMER) {
            Some(found) if which == libc::ITIMER_REAL && !setting.is_null() => {
                setting.write(found.as_timevals());
                0
            }
            _ => real::getitimer(which, setting),
        }
    }
}

/// Raises SIGALRM after seconds: alarm(2). Returns the seconds that were left of the alarm before.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn alarm(seconds: c_uint) -> c_uint {
    let second = NS_PER_SECOND.unsigned_abs();
    match set_itimer(u64::from(seconds) * second, 0) {
        Some(before) => c_uint::try_from(before.left.div_ceil(second)).unwrap_or(c_uint::MAX),
        // SAFETY: alarm(2) takes a number, and any number is allowed there.
        None => unsafe { real::alarm(seconds) },
    }
}

/// Closes a descriptor, whose number a timer may have: close(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    forget(name_of_descriptor(fd));
    // SAFETY: the argument is that of the caller, who promised what close(2) demands.
    unsafe { real::close(fd) }
}
