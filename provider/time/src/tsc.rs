//! The time-stamp counter of x86-64 processors, for programs that read it themselves (RDTSC, RDTSCP)
//! instead of a clock.
//!
//! With `SQUALL_TIME_TSC=trap`, and by default under an MPI library whose MPI_Wtime reads the counter, the instructions raise SIGSEGV from the moment at which the process
//! enters virtual time, in the thread that enters it and those that it creates from then on. The
//! handler puts virtual time into their results, at the counter's own frequency. The kernel's vDSO
//! reads the counter as well; it gets the real one.
//!
//! A program inherits the trap from the thread that executes it, and its dynamic loader, which
//! reads the counter, would crash. So forked children, and threads that execute or spawn programs
//! by functions of the C library, can read the counter again.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use crate::real;
use crate::virtual_clock::VirtualClock;

/// Environment variable by which the user chooses what happens when a program reads the time-stamp counter (TSC).
const VARIABLE: &core::ffi::CStr = c"SQUALL_TIME_TSC";
/// Value of SQUALL_TIME_TSC with which reading the counter traps, so that the program gets virtual time.
const TRAP: &[u8] = b"trap";
/// Beginnings of the version texts of MPI libraries whose own clock is the time-stamp counter.
const READ_COUNTER: [&[u8]; 2] = [b"Intel(R) MPI", b"Open MPI v4."];
/// Room for the version text of an MPI library: MPI_MAX_LIBRARY_VERSION_STRING of those that there are is at most this.
const LONGEST_VERSION: usize = 8192;
/// Largest size in bytes of the code of the kernel's vDSO.
const VDSO_SIZE: usize = 64 << 10;
/// Number of pairs of readings of counter and clock, of which the tightest counts.
const PAIRS: usize = 16;
/// Number of fractional bits of the fixed-point number [`TICKS_PER_NS`].
const FRACTION: u32 = 32;

/// Time-stamp counter, and real time in nanoseconds, when this library was loaded.
static LOADED_TICKS: AtomicU64 = AtomicU64::new(0);
static LOADED_NS: AtomicI64 = AtomicI64::new(0);
/// Time-stamp counter, and virtual time in nanoseconds, when the process entered virtual time.
static BASE_TICKS: AtomicU64 = AtomicU64::new(0);
static BASE_NS: AtomicU64 = AtomicU64::new(0);
/// Ticks of the time-stamp counter in a nanosecond, as a fixed-point number.
static TICKS_PER_NS: AtomicU64 = AtomicU64::new(0);
/// Reading the time-stamp counter traps in this process.
static TRAPPED: AtomicBool = AtomicBool::new(false);
/// Address of the kernel's vDSO in this process.
static VDSO: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The program's own action for SIGSEGV: a function's address, SIG_DFL or SIG_IGN; and the flags of the action.
static ACTION: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static ACTION_FLAGS: AtomicI64 = AtomicI64::new(0);

/// Reads the time-stamp counter of the processor.
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; where it is trapped, the handler emulates it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the real time of the monotonic clock, in nanoseconds.
fn read_clock() -> i64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the structure is a local variable, and zero is a value of it.
    let now = unsafe {
        real::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr());
        now.assume_init()
    };
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Returns the time-stamp counter and the real time in nanoseconds at one moment. The tightest of several pairs of readings
/// counts, because the thread may be interrupted between two readings.
fn read_together() -> (u64, i64) {
    let pair = |_| {
        let before = read_counter();
        let ns = read_clock();
        let span = read_counter().wrapping_sub(before);
        (span, before.wrapping_add(span / 2), ns)
    };
    let (_, ticks, ns) = (0..PAIRS).map(pair).min().unwrap_or_default();
    (ticks, ns)
}

/// Makes the instructions that read the counter trap in this thread, or allows them. Returns whether that is possible.
fn set_trap(trapped: bool) -> bool {
    let mode = if trapped { libc::PR_TSC_SIGSEGV } else { libc::PR_TSC_ENABLE };
    // SAFETY: prctl(2) with PR_SET_TSC takes a number and changes a flag of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TSC, mode) == 0 }
}

/// Notes counter and clock, from which [`begin_trapping`] computes the counter's frequency.
/// Switches the trap off, in case that a thread with a trap has executed this program.
pub(crate) fn initialize() {
    set_trap(false);
    let (ticks, ns) = read_together();
    LOADED_TICKS.store(ticks, Ordering::Relaxed);
    LOADED_NS.store(ns, Ordering::Relaxed);
}

/// Returns whether reads of the time-stamp counter are to trap: because the user says so (SQUALL_TIME_TSC=trap), or,
/// where the user says nothing, because the MPI library of this process reads the counter.
fn is_wanted() -> bool {
    // SAFETY: getenv(3) takes a C string, and returns NULL or one that lasts until the environment
    // changes, which no thread of this process does while it enters virtual time.
    unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if !value.is_null() {
            return core::ffi::CStr::from_ptr(value).to_bytes() == TRAP;
        }
    }
    let mut name = [0; LONGEST_VERSION];
    let len = crate::mpi::library_version(&mut name);
    reads_counter(name.get(..len).unwrap_or_default())
}

/// Returns whether an MPI library with this version text reads the time-stamp counter in MPI_Wtime.
fn reads_counter(version: &[u8]) -> bool {
    READ_COUNTER.iter().any(|begin| version.starts_with(begin))
}

/// Makes reads of the time-stamp counter trap, if the user asks for it, because the process enters virtual time.
pub(crate) fn begin_trapping() {
    if !is_wanted() || TRAPPED.load(Ordering::Acquire) {
        return;
    }
    let Some(now) = VirtualClock::get().and_then(VirtualClock::now) else { return };
    let (ticks, ns) = read_together();
    let elapsed = ns.saturating_sub(LOADED_NS.load(Ordering::Relaxed)).max(1) as u128;
    let counted = u128::from(ticks.wrapping_sub(LOADED_TICKS.load(Ordering::Relaxed)));
    TICKS_PER_NS.store(((counted << FRACTION) / elapsed) as u64, Ordering::Relaxed);
    BASE_TICKS.store(ticks, Ordering::Relaxed);
    BASE_NS.store(now, Ordering::Relaxed);
    // SAFETY: getauxval(3) reads a number that the kernel has left for the process.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    VDSO.store(vdso as *mut c_void, Ordering::Relaxed);
    TRAPPED.store(true, Ordering::Release);
    // SAFETY: zero is a value of a mask, and both functions change a local variable or this thread's mask.
    unsafe {
        let mut own: libc::sigset_t = core::mem::zeroed();
        libc::sigaddset(&raw mut own, libc::SIGSEGV);
        real::pthread_sigmask(libc::SIG_UNBLOCK, &raw const own, null_mut());
    }
    install(handle_trap as *const () as usize);
    unblock_in_handlers();
    if !set_trap(true) {
        TRAPPED.store(false, Ordering::Release);
    }
}

/// Installs a handler of SIGSEGV, and stores the action that the program had set.
fn install(handler: usize) {
    // SAFETY: zero is a value of the structure: the default action without flags. The structures are
    // local variables, and the handler is a function of this library, which is never unloaded, of the
    // type that SA_SIGINFO demands.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        real::sigaction(libc::SIGSEGV, &raw const action, &raw mut old);
        if old.sa_sigaction != handler {
            store_action(&old);
        }
    }
}

/// Takes SIGSEGV out of the masks of the program's handlers: the kernel ends a process that is trapped while the signal is
/// blocked, and a handler may read the counter.
fn unblock_in_handlers() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: zero is a value of the structure, a local variable that the first call writes; the second call changes
        // nothing but the mask of the program's action. Signals that have no action are refused.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if signal != libc::SIGSEGV
                && real::sigaction(signal, null(), &raw mut action) == 0
                && libc::sigismember(&raw const action.sa_mask, libc::SIGSEGV) == 1
            {
                libc::sigdelset(&raw mut action.sa_mask, libc::SIGSEGV);
                real::sigaction(signal, &raw const action, null_mut());
            }
        }
    }
}

fn store_action(action: &libc::sigaction) {
    ACTION.store(action.sa_sigaction as *mut c_void, Ordering::Relaxed);
    ACTION_FLAGS.store(action.sa_flags.into(), Ordering::Relaxed);
}

/// Lets a forked child, which is in real time, read the counter.
pub(crate) fn end_in_child() {
    if TRAPPED.swap(false, Ordering::AcqRel) {
        set_trap(false);
    }
}

/// Returns the virtual value of the counter; the real one inside of the provider, or after the end of
/// virtual time.
fn virtual_counter() -> u64 {
    let Some(now) = VirtualClock::get().and_then(VirtualClock::now) else {
        return real_counter();
    };
    let elapsed = u128::from(now.saturating_sub(BASE_NS.load(Ordering::Relaxed)));
    let ticks = (elapsed * u128::from(TICKS_PER_NS.load(Ordering::Relaxed))) >> FRACTION;
    BASE_TICKS.load(Ordering::Relaxed).wrapping_add(ticks as u64)
}

/// Reads the real time-stamp counter in a thread in which such reads trap.
fn real_counter() -> u64 {
    set_trap(false);
    let ticks = read_counter();
    set_trap(true);
    ticks
}

/// Handles SIGSEGV: emulates a trapped read of the time-stamp counter, or takes the program's own action.
extern "C" fn handle_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread to a handler with SA_SIGINFO, and
    // nobody else uses it meanwhile.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as usize;
    // SAFETY: the kernel passes the signal's information to a handler with SA_SIGINFO.
    let from_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    // SAFETY: a general protection fault (SI_KERNEL) is raised by the instruction at this address, which
    // the processor has just read; page faults have other codes. The longer instruction may end at
    // most two bytes behind the first, in the same page unless the program jumped to a page's end, and
    // then the next page holds the rest of an instruction that was decoded.
    let length = match from_kernel.then(|| unsafe { (*(at as *const [u8; 2]), at) }) {
        Some(([0x0f, 0x31], _)) => 2,
        // SAFETY: an instruction that begins with these two bytes and raised the fault was decoded whole, so
        // that its third byte, behind them, is mapped and readable.
        Some(([0x0f, 0x01], at)) if unsafe { *((at + 2) as *const u8) } == 0xf9 => 3,
        _ => return pass_on(signal, info, context),
    };
    let vdso = VDSO.load(Ordering::Relaxed) as usize;
    let in_vdso = vdso > 0 && (vdso..vdso + VDSO_SIZE).contains(&at);
    let ticks = if in_vdso { real_counter() } else { virtual_counter() };
    registers[libc::REG_RAX as usize] = (ticks & 0xffff_ffff).cast_signed();
    registers[libc::REG_RDX as usize] = (ticks >> 32).cast_signed();
    if length == 3 {
        // The number of processor and node, which virtual time does not know.
        registers[libc::REG_RCX as usize] = 0;
    }
    registers[libc::REG_RIP as usize] = (at + length).cast_signed() as i64;
}

/// Takes the program's own action for a SIGSEGV that no read of the counter caused.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = ACTION.load(Ordering::Relaxed) as usize;
    if action == libc::SIG_DFL || action == libc::SIG_IGN {
        // The instruction runs again and ends the process.
        // SAFETY: zero is a value of the structure: the default action; it is a local variable.
        unsafe {
            let default: libc::sigaction = core::mem::zeroed();
            real::sigaction(signal, &raw const default, null_mut());
        }
        return;
    }
    let with_info = ACTION_FLAGS.load(Ordering::Relaxed) & i64::from(libc::SA_SIGINFO) != 0;
    // SAFETY: the program installed the address of a function of the type that its flags say, and the
    // arguments are those of the kernel.
    unsafe {
        if with_info {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                core::mem::transmute(action);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = core::mem::transmute(action);
            handler(signal);
        }
    }
}

/// Sets or returns the action for a signal: sigaction(2). The action for SIGSEGV is kept for [`pass_on`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if signal != libc::SIGSEGV || !TRAPPED.load(Ordering::Acquire) {
        // SAFETY: the caller of sigaction(2) passes NULL, for which as_ref has a case, or structures of this type; the copy
        // lives until the call returns.
        return unsafe {
            let mut copy = action.as_ref().copied();
            if let Some(copy) = copy.as_mut().filter(|_| TRAPPED.load(Ordering::Acquire)) {
                libc::sigdelset(&raw mut copy.sa_mask, libc::SIGSEGV);
            }
            real::sigaction(signal, copy.as_ref().map_or(null(), core::ptr::from_ref), old)
        };
    }
    // SAFETY: the caller passes NULL or structures of this type; zero is a value of it.
    unsafe {
        let (handler, flags) =
            (ACTION.load(Ordering::Relaxed) as usize, ACTION_FLAGS.load(Ordering::Relaxed));
        if let Some(action) = action.as_ref() {
            store_action(action);
        }
        if !old.is_null() {
            let mut kept: libc::sigaction = core::mem::zeroed();
            (kept.sa_sigaction, kept.sa_flags) = (handler, flags as c_int);
            old.write(kept);
        }
    }
    0
}

/// Sets the action for a signal: signal(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    if signal != libc::SIGSEGV || !TRAPPED.load(Ordering::Acquire) {
        // SAFETY: signal(2) takes two numbers; the caller passes SIG_DFL, SIG_IGN or a function that handles signals.
        return unsafe { real::signal(signal, handler) };
    }
    ACTION_FLAGS.store(0, Ordering::Relaxed);
    ACTION.swap(handler as *mut c_void, Ordering::Relaxed) as libc::sighandler_t
}

/// Returns a mask without SIGSEGV, if the process is trapped and the mask blocks signals: the kernel ends a
/// process whose thread is trapped while the signal is blocked.
///
/// # Safety
/// `set` is NULL or points to a mask.
unsafe fn mask_without_sigsegv(how: c_int, set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    if set.is_null() || how == libc::SIG_UNBLOCK || !TRAPPED.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: not NULL, so a mask by this function's contract; the copy is a local variable.
    unsafe {
        let mut copy = *set;
        libc::sigdelset(&raw mut copy, libc::SIGSEGV);
        Some(copy)
    }
}

/// Changes the signal mask of this thread: pthread_sigmask(3). SIGSEGV stays unblocked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the arguments are those of the caller, and the copy lives until the call returns.
    unsafe {
        let copy = mask_without_sigsegv(how, set);
        real::pthread_sigmask(how, copy.as_ref().map_or(set, core::ptr::from_ref), old)
    }
}

/// Changes the signal mask of this thread: sigprocmask(2). SIGSEGV stays unblocked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the arguments are those of the caller, and the copy lives until the call returns.
    unsafe {
        let copy = mask_without_sigsegv(how, set);
        real::sigprocmask(how, copy.as_ref().map_or(set, core::ptr::from_ref), old)
    }
}

/// Calls `function`, which executes a program, while reads of the counter do not trap in this thread.
fn without_trap<T>(function: impl FnOnce() -> T) -> T {
    let trapped = TRAPPED.load(Ordering::Acquire);
    if trapped {
        set_trap(false);
    }
    let result = function();
    if trapped {
        set_trap(true);
    }
    result
}

type Strings = *const *mut c_char;

/// Defines replacements of functions that execute programs, which run with the trap off.
macro_rules! executing {
    ($($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$about])*
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the arguments are those of the caller, who promised what the manual page
                // demands.
                without_trap(|| unsafe { real::$name($($argument),*) })
            }
        )*
    };
}

executing! {
    /// Executes a program: execve(2).
    fn execve(path: *const c_char, words: Strings, environment: Strings) -> c_int;
    /// Executes a program: execv(3).
    fn execv(path: *const c_char, words: Strings) -> c_int;
    /// Executes a program that is searched in PATH: execvp(3).
    fn execvp(name: *const c_char, words: Strings) -> c_int;
    /// Executes a program that is searched in PATH, with an environment: execvpe(3).
    fn execvpe(name: *const c_char, words: Strings, environment: Strings) -> c_int;
    /// Executes the program of a descriptor: fexecve(3).
    fn fexecve(fd: c_int, words: Strings, environment: Strings) -> c_int;
    /// Executes a program of a folder: execveat(2).
    fn execveat(
        folder: c_int, path: *const c_char, words: Strings, environment: Strings, flags: c_int
    ) -> c_int;
    /// Runs a command of the shell: system(3).
    fn system(command: *const c_char) -> c_int;
    /// Runs a command of the shell with a pipe: popen(3).
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    /// Runs a program: posix_spawn(3).
    fn posix_spawn(
        pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        words: Strings, environment: Strings
    ) -> c_int;
    /// Runs a program that is searched in PATH: posix_spawnp(3).
    fn posix_spawnp(
        pid: *mut libc::pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        words: Strings, environment: Strings
    ) -> c_int;
}

/// Largest number of words of a program that `execl` and its kin take here. Programs write such lists by hand.
const MOST_WORDS: usize = 1023;
/// Number of arguments that a function gets in registers.
const IN_REGISTERS: usize = 6;
const EXECL: usize = 0;
const EXECLE: usize = 1;
const EXECLP: usize = 2;

/// Executes a program for a function whose arguments are a path, a list of words that ends with NULL, and with [`EXECLE`] an
/// environment.
///
/// # Safety
/// `first` has the addresses of the first arguments, [`IN_REGISTERS`] of them, and `further` those behind.
unsafe extern "C" fn execute_list(function: usize, first: Strings, further: Strings) -> c_int {
    let argument = |index: usize| match index.checked_sub(IN_REGISTERS) {
        // SAFETY: the first arguments are all there, whether or not the caller gave them.
        None => unsafe { *first.add(index) },
        // SAFETY: an argument is read only if the one before it was given and did not end the list.
        Some(behind) => unsafe { *further.add(behind) },
    };
    let mut words = [null_mut(); MOST_WORDS + 1];
    let mut count = 0;
    loop {
        let word = argument(count + 1);
        if word.is_null() {
            break;
        }
        match words.get_mut(count) {
            Some(place) if count < MOST_WORDS => *place = word,
            _ => {
                real::set_errno(libc::E2BIG);
                return -1;
            }
        }
        count += 1;
    }
    let path = argument(0).cast_const();
    let words: Strings = words.as_ptr();
    // SAFETY: the caller promised a path, words and an environment as execve(2) demands them. The array of the words ends
    // with NULL, and lives until the call returns.
    unsafe {
        match function {
            EXECL => execv(path, words),
            EXECLP => execvp(path, words),
            _ => execve(path, words, argument(count + 2).cast::<*mut c_char>().cast_const()),
        }
    }
}

/// Defines replacements of functions that execute programs with a list of words. Rust cannot define functions with a variable
/// number of arguments, so they store their registers behind each other.
macro_rules! executing_lists {
    ($($(#[$about:meta])* fn $name:ident = $function:ident;)*) => {
        $(
            $(#[$about])*
            // SAFETY: the calling convention of C on x86-64 has the first six arguments in these registers, and further ones
            // above the address of the caller. The stack is aligned to 16 bytes at the call, and has its old height at the return.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn $name() -> c_int {
                core::arch::naked_asm!(
                    "sub rsp, 56",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "mov [rsp + 24], rcx",
                    "mov [rsp + 32], r8",
                    "mov [rsp + 40], r9",
                    "mov edi, {function}",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 64]",
                    "call {execute}",
                    "add rsp, 56",
                    "ret",
                    function = const $function,
                    execute = sym execute_list,
                )
            }
        )*
    };
}

executing_lists! {
    /// Executes a program: execl(3).
    fn execl = EXECL;
    /// Executes a program with an environment: execle(3).
    fn execle = EXECLE;
    /// Executes a program that is searched in PATH: execlp(3).
    fn execlp = EXECLP;
}

/// Creates a child that is about to execute a program: vfork(2). Calls fork(2) instead, for which
/// the C library runs the handler that switches the trap off in the child.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn vfork() -> libc::pid_t {
    // SAFETY: fork(2) takes nothing; what the child may do then is more than after vfork(2).
    unsafe { libc::fork() }
}
