//! Hooks of virtual time: the points of the provider's calls at which the clock of a process advances whose time is
//! virtual.
//!
//! Nearly every process is in real time and installs no hooks. Each function here is one load and one predicted branch
//! then. A process that attaches to an emulator in virtual time installs them once (`virtual_time/`).

use std::sync::OnceLock;

use squall_base::Time;
use squall_engine::Operation;

/// The points at which the clock of a process in virtual time may advance, with a function for each. A forked child
/// keeps the hooks and is in real time again, so every hook checks which time applies.
pub(crate) trait Hooks: Sync {
    /// Returns the virtual time, or `None` in real time.
    fn now(&self) -> Option<Time>;

    /// Begins a call of the provider. Returns false in real time, and the call has no end then.
    fn begin_call(&self) -> bool;

    /// Ends a call of the provider in virtual time.
    fn end_call(&self);

    /// Advances the clock by the time that it takes to post an operation.
    fn charge_send(&self, op: &Operation);

    /// Advances the clock by the time that the application takes to read these completions.
    fn charge_completions(&self, read: &mut dyn Iterator<Item = ReadCompletion>);

    /// Advances the clock by the time that it takes to receive a message of `bytes` that arrived before its receive.
    fn charge_unexpected(&self, bytes: u64);

    /// Notes that an endpoint made progress, so that a peek may find a message.
    fn note_progress(&self);

    /// Notes that operations completed, for which the application may be waiting.
    fn note_completion(&self);

    /// Notes that a poll found something, so the thread does more than poll without a result.
    fn on_busy_poll(&self);

    /// Notes that a poll found nothing. Returns false in real time, in which the thread backs off by itself.
    fn on_empty_poll(&self) -> bool;

    /// Begins a peek, which waits for a packet or timer if it would find nothing again.
    fn begin_peek(&self, peek: Peek);

    /// Waits for the next packet or timer, but not beyond `until`. Returns false in real time.
    fn wait_until(&self, until: Time) -> bool;
}

/// A search for an unexpected message (FI_PEEK), which finds the same until an endpoint makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peek {
    /// Memory address of the endpoint, which is only compared with others.
    pub(crate) endpoint: usize,
    /// The source (`fi_addr_t`) whose messages the application asked for.
    pub(crate) from: u64,
    pub(crate) tag: u64,
    /// Bits of the tag that the match of the peek ignores.
    pub(crate) ignore: u64,
}

/// A completion that the application reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadCompletion {
    /// The completion is of an operation that this process posted, and not of a message or an access of a peer.
    pub(crate) is_own: bool,
    /// Number of bytes that the operation transferred.
    pub(crate) bytes: u64,
}

/// The hooks of this process, if it is or was in virtual time.
static INSTALLED: OnceLock<&'static dyn Hooks> = OnceLock::new();

/// Installs the hooks of virtual time, unless the process has installed some.
pub(crate) fn install(hooks: &'static dyn Hooks) {
    let _ = INSTALLED.set(hooks);
}

#[inline]
fn installed() -> Option<&'static dyn Hooks> {
    INSTALLED.get().map(|hooks| {
        mark_unlikely();
        *hooks
    })
}

/// Tells the compiler that the branch from which it is called is rare, so that it lies off the path of real time.
#[cold]
const fn mark_unlikely() {}

/// Returns the virtual time, or `None` in real time.
#[inline]
pub(crate) fn now() -> Option<Time> {
    installed().and_then(Hooks::now)
}

/// A call of the provider in virtual time. Dropping it ends the call.
pub(crate) struct Call(&'static dyn Hooks);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.end_call();
    }
}

/// Begins a call of the provider. Returns `None` in real time.
#[inline]
pub(crate) fn begin_call() -> Option<Call> {
    installed().filter(|hooks| hooks.begin_call()).map(Call)
}

/// Advances the clock by the time that it takes to post an operation.
#[inline]
pub(crate) fn charge_send(op: &Operation) {
    if let Some(hooks) = installed() {
        hooks.charge_send(op);
    }
}

/// Advances the clock by the time that the application takes to read completions, which `read` lists.
#[inline]
pub(crate) fn charge_completions<I: Iterator<Item = ReadCompletion>>(read: impl FnOnce() -> I) {
    if let Some(hooks) = installed() {
        hooks.charge_completions(&mut read());
    }
}

/// Advances the clock by the time that it takes to receive a message which arrived before its receive. `bytes` returns
/// the length of the message, or `None` if not all of it has arrived.
#[inline]
pub(crate) fn charge_unexpected(bytes: impl FnOnce() -> Option<u64>) {
    if let Some(hooks) = installed()
        && let Some(bytes) = bytes()
    {
        hooks.charge_unexpected(bytes);
    }
}

/// Notes that an endpoint made progress, so that a peek may find a message.
#[inline]
pub(crate) fn note_progress() {
    if let Some(hooks) = installed() {
        hooks.note_progress();
    }
}

/// Notes that operations completed, for which the application may be waiting.
#[inline]
pub(crate) fn note_completion() {
    if let Some(hooks) = installed() {
        hooks.note_completion();
    }
}

/// Notes that a poll found something, so the thread does more than poll without a result.
#[inline]
pub(crate) fn on_busy_poll() {
    if let Some(hooks) = installed() {
        hooks.on_busy_poll();
    }
}

/// Notes that a poll found nothing. If the thread does nothing but poll, it waits for the next packet or timer. The
/// caller holds no lock of an endpoint. Returns false in real time, in which the thread backs off by itself.
#[inline]
pub(crate) fn on_empty_poll() -> bool {
    installed().is_some_and(Hooks::on_empty_poll)
}

/// Begins a peek, which waits for the next packet or timer if it would find nothing again. The caller holds no lock of
/// an endpoint, and searches for the message afterwards.
#[inline]
pub(crate) fn begin_peek(peek: Peek) {
    if let Some(hooks) = installed() {
        hooks.begin_peek(peek);
    }
}

/// Waits for the next packet or timer, but not beyond `until`. The caller holds no lock of an endpoint. Returns false
/// in real time.
#[inline]
pub(crate) fn wait_until(until: Time) -> bool {
    installed().is_some_and(|hooks| hooks.wait_until(until))
}

/// Waits for the next packet or timer in virtual time, for a loop that drives an endpoint. In real time, yields the
/// processor to other threads.
pub(crate) fn wait_or_yield() {
    if !wait_until(Time::NEVER) {
        std::thread::yield_now();
    }
}
