//! Sends, writes, reads and atomics: the description of a transmit call, and its execution.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use squall_engine::{
    Action, Buf, Completion, Level, MatchSpace, OpKind, Operation, Options, SubmitError, Submitted,
    Visibility,
};

use crate::abi::errno::{Errno, Result};
use crate::abi::flags;
use crate::clock;
use crate::endpoint::bindings::Queue;
use crate::endpoint::buffer::context_of;
use crate::endpoint::{Endpoint, Inner};
use crate::host::limits;
use crate::host::logger::USER;
use crate::optional::triggered_work::operations::{self, Deferred};
use crate::reports::trace::TracedOperation;

/// The source of the operation flags of a transmit call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlagSource {
    /// The endpoint's default operation flags apply.
    Endpoint,
    /// The call has operation flags of its own.
    Call(u64),
    /// The call is an inject call, which takes no flags and leaves no entry.
    Inject,
}

/// The direction in which the bytes of a transmit call travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DataDirection {
    /// The bytes go to the peer, with remote CQ data if the call has any.
    Out,
    /// The bytes are operands of an atomic operation, which the peer executes.
    Operands,
    /// Bytes come back from the peer, also if operands of an atomic go there.
    Back,
}

impl DataDirection {
    #[inline]
    fn of(action: &Action) -> Self {
        match action {
            Action::Read(_) => Self::Back,
            Action::Atomic(atomic) if atomic.result.is_some() => Self::Back,
            Action::Atomic(_) => Self::Operands,
            Action::Message { .. } | Action::Write(_) => Self::Out,
        }
    }
}

/// The description of a transmit call: a send, write, read or atomic operation.
#[derive(Clone)]
pub(crate) struct Transmit {
    action: Action,
    buf: Buf,
    peer: u64,
    data: Option<u64>,
    context: u64,
    flags: FlagSource,
}

impl Transmit {
    #[inline]
    pub(crate) fn new(action: Action, buf: Buf, peer: u64) -> Self {
        let (data, context, flags) = (None, 0, FlagSource::Endpoint);
        Self { action, buf, peer, data, context, flags }
    }

    #[inline]
    pub(crate) fn context(self, context: *mut c_void) -> Self {
        Self { context: context_of(context), ..self }
    }

    /// Adds remote CQ data to the call.
    #[inline]
    pub(crate) fn data(self, data: u64) -> Self {
        Self { data: Some(data), ..self }
    }

    #[inline]
    pub(crate) fn with_inject(self) -> Self {
        Self { flags: FlagSource::Inject, ..self }
    }

    /// Sets the operation flags of the call, and remote CQ data if the flags ask for it.
    #[inline]
    pub(crate) fn with_flags(self, flags: u64, data: u64) -> Self {
        let data = (flags & flags::REMOTE_CQ_DATA != 0).then_some(data);
        Self { data, flags: FlagSource::Call(flags), ..self }
    }

    /// Sets the operation flags of the call if it has none of its own.
    pub(crate) fn with_default_flags(self, flags: u64) -> Self {
        match self.flags {
            FlagSource::Endpoint => {
                let back = DataDirection::of(&self.action) == DataDirection::Back;
                let flags = if back { flags & !flags::INJECT } else { flags };
                Self { flags: FlagSource::Call(flags), ..self }
            }
            _ => self,
        }
    }

    /// Removes FI_TRIGGER from the flags of the call; returns `None` if the call does not have it.
    pub(crate) fn without_trigger(self) -> Option<Self> {
        match self.flags {
            FlagSource::Call(given) if given & flags::TRIGGER != 0 => {
                Some(Self { flags: FlagSource::Call(given & !flags::TRIGGER), ..self })
            }
            _ => None,
        }
    }

    /// Builds an empty message that only its context identifies.
    #[cfg(test)]
    pub(crate) fn with_context(context: u64) -> Self {
        let action = Action::Message { space: MatchSpace::Tagged, tag: 0 };
        Self { context, ..Self::new(action, Buf::Empty, 0) }
    }

    /// Returns the application's context of the call, as a number.
    pub(crate) fn context_value(&self) -> u64 {
        self.context
    }

    /// Returns the completion of a call that never begins.
    pub(crate) fn unstarted_completion(&self) -> Completion {
        let (kind, space, tag) = match &self.action {
            Action::Message { space, tag } => (OpKind::Send, *space, *tag),
            Action::Write(_) => (OpKind::Write, MatchSpace::Untagged, 0),
            Action::Read(_) => (OpKind::Read, MatchSpace::Untagged, 0),
            Action::Atomic(atomic) if atomic.result.is_some() => {
                (OpKind::Fetch, MatchSpace::Untagged, 0)
            }
            Action::Atomic(_) => (OpKind::Update, MatchSpace::Untagged, 0),
        };
        operations::unstarted_completion(kind, space, tag, self.context)
    }
}

/// Flags that a transmit call may have besides those that may be an endpoint's default.
const CALL_FLAGS: u64 = limits::TX_OP_FLAGS | flags::MORE | flags::REMOTE_CQ_DATA | flags::FENCE;
/// The flags that reads and atomics may have, which deliver no remote CQ data. The engine refuses FI_INJECT where it is
/// not allowed.
const QUIET_FLAGS: u64 = CALL_FLAGS & !flags::REMOTE_CQ_DATA;
/// Flags of libfabric that this provider lacks. They are refused, because an application that sets
/// them relies on them.
const NOT_OFFERED: u64 = flags::COMMIT_COMPLETE;

/// Returns the engine's options for the flags of a call, and whether more calls are announced (FI_MORE).
///
/// # Errors
/// `FI_EOPNOTSUPP` for FI_COMMIT_COMPLETE, `FI_EBADFLAGS` for flags that mean nothing here.
#[inline]
fn options(
    source: FlagSource,
    defaults: u64,
    direction: DataDirection,
    queue: &Queue,
) -> Result<(Options, bool)> {
    let given = match source {
        FlagSource::Inject => {
            let visibility = Visibility::CountOnly;
            return Ok((Options { inject: true, visibility, ..Options::default() }, false));
        }
        // What is read cannot be injected; as a default the flag is for sends and writes.
        FlagSource::Endpoint if direction == DataDirection::Back => defaults & !flags::INJECT,
        FlagSource::Endpoint => defaults,
        FlagSource::Call(given) => {
            if given & NOT_OFFERED != 0 {
                log::info!(
                    "FI_COMMIT_COMPLETE refused: squall does not offer it; use FI_DELIVERY_COMPLETE"
                );
                return Err(Errno::OPNOTSUPP);
            }
            let known = if direction == DataDirection::Out { CALL_FLAGS } else { QUIET_FLAGS };
            if given & !known != 0 {
                return Err(Errno::BADFLAGS);
            }
            given
        }
    };
    let level = if given & flags::MATCH_COMPLETE != 0 {
        Level::Match
    } else if given & flags::DELIVERY_COMPLETE != 0 {
        Level::Delivery
    } else if given & flags::TRANSMIT_COMPLETE != 0 {
        Level::Transmit
    } else if given & flags::INJECT_COMPLETE != 0 {
        Level::Inject
    } else {
        Level::Default
    };
    let visibility = queue.visibility(given);
    let inject = given & flags::INJECT != 0;
    let fence = given & flags::FENCE != 0;
    Ok((Options { inject, level, visibility, fence }, given & flags::MORE != 0))
}

impl From<SubmitError> for Errno {
    fn from(refused: SubmitError) -> Self {
        match refused {
            SubmitError::Again => Self::AGAIN,
            SubmitError::TooLong => Self::MSGSIZE,
            SubmitError::InjectedRead => Self::BADFLAGS,
            SubmitError::UnsupportedAtomic => Self::OPNOTSUPP,
            SubmitError::UnsupportedByPeer => {
                log::warn!(
                    target: USER,
                    "the operation has no form that peers of another implementation handle; set FI_SQUALL_WIRE=squall, or do \
                     without collective messages and atomics"
                );
                Self::OPNOTSUPP
            }
            SubmitError::InjectTooLong | SubmitError::LengthMismatch | SubmitError::NotClaimed => {
                Self::INVAL
            }
        }
    }
}

impl Endpoint {
    /// Returns the default operation flags of transmit calls.
    #[inline]
    pub(crate) fn tx_flags(&self) -> u64 {
        self.settings.tx_flags.load(Ordering::Relaxed)
    }

    /// Submits a transmit call to the engine.
    ///
    /// # Safety
    /// The bytes that `call` names, whose addresses `buffer.rs` exposed, stay mapped and are the endpoint's
    /// until the completion, or, when it is injected, until this returns: it reads them, or, when it is a
    /// read of remote memory, or the result of an atomic, writes to them.
    ///
    /// # Errors
    /// The errors in the call's manual page. The call has no effect then.
    #[inline]
    pub(crate) unsafe fn transmit(&self, call: Transmit) -> Result<()> {
        // SAFETY: `submit_transmit` asks of the bytes that the call names what this function does.
        unsafe { self.submit_transmit(call, self.tx_flags(), None) }
    }

    /// Submits a call as [`Self::transmit`] does, for the application or for the deferred work `deferred`.
    ///
    /// # Safety
    /// As [`Self::transmit`].
    ///
    /// # Errors
    /// As [`Self::transmit`].
    #[inline]
    pub(crate) unsafe fn submit_transmit(
        &self,
        call: Transmit,
        defaults: u64,
        deferred: Option<&Deferred>,
    ) -> Result<()> {
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        let direction = DataDirection::of(&call.action);
        let (mut options, more) = match options(call.flags, defaults, direction, &bindings.tx) {
            Ok(options) => options,
            Err(error) => {
                drop(inner);
                // SAFETY: the bytes that the call names are left to the endpoint until the operation ends, by this
                // function's contract; and the context of a call with FI_TRIGGER is a triggered one (fi_trigger(3)).
                return unsafe { operations::trigger_transmit(self, call, error) };
            }
        };
        let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
        let av = bindings.av.as_ref().ok_or(Errno::NOAV)?;
        let peer = core.peers.peer(av, &mut core.engine, call.peer)?;
        let bytes = if direction == DataDirection::Back { 0 } else { call.buf.len() };
        let now = clock::now();
        let context = match deferred {
            None => call.context,
            Some(deferred) => {
                let asked = matches!(call.flags, FlagSource::Call(f) if f & flags::COMPLETION != 0);
                let shown = asked && bindings.tx.cq.is_some();
                options.visibility = Visibility::Kept;
                core.optional.triggered.insert(deferred, shown)
            }
        };
        let op = Operation {
            peer,
            action: call.action,
            buf: call.buf,
            data: if direction == DataDirection::Out { call.data } else { None },
            context,
            options,
        };
        let traced = core.trace.is_on().then(|| TracedOperation::of(&op));
        if core.optional.must_stage(&op) {
            let staged = core.stage(bindings, op);
            if let (Some(traced), Ok(())) = (traced, &staged) {
                core.trace.record_begin(&core.engine, now, traced);
                core.trace.end_posting();
            }
            if staged.is_err() && deferred.is_some() {
                core.optional.triggered.forget(context);
            }
            drop(inner);
            self.begin_work();
            return staged;
        }
        match core.submit(now, op) {
            Ok(Submitted::Sent) => {}
            Ok(Submitted::Queued) => core.handle_posted(now, bytes, more),
            Err(refused) => {
                if deferred.is_some() {
                    core.optional.triggered.forget(context);
                }
                if refused == SubmitError::Again {
                    // Progress, before the application tries again.
                    let busy = core.run_turn(bindings);
                    drop(inner);
                    self.begin_work_after(busy);
                }
                return Err(refused.into());
            }
        }
        if let Some(traced) = traced {
            core.trace.record_begin(&core.engine, now, traced);
        }
        let ended = core.deliver_completions(bindings);
        core.trace.end_posting();
        drop(inner);
        if ended {
            self.begin_work();
        }
        Ok(())
    }

    /// Checks whether a transmit call can become deferred work.
    ///
    /// # Errors
    /// The errors of its flags. Deferred work cannot be injected.
    pub(crate) fn check_transmit(&self, call: &Transmit) -> Result<()> {
        let inner = self.lock()?;
        let direction = DataDirection::of(&call.action);
        let (options, _) = options(call.flags, self.tx_flags(), direction, &inner.bindings.tx)?;
        if options.inject { Err(Errno::BADFLAGS) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_obeyed_or_refused() {
        let queue = Queue::default();
        let of = |given| options(FlagSource::Call(given), 0, DataDirection::Out, &queue);
        for bit in (0..64).map(|n| 1u64 << n) {
            let expected = match bit {
                flags::COMMIT_COMPLETE => Err(Errno::OPNOTSUPP),
                bit if bit & CALL_FLAGS != 0 => Ok(()),
                _ => Err(Errno::BADFLAGS),
            };
            assert_eq!(of(bit).map(|_| ()), expected, "{bit:#x}");
        }
        let level = |given| of(given).map(|(options, _)| options.level);
        assert_eq!(level(0), Ok(Level::Default));
        assert_eq!(level(flags::INJECT_COMPLETE), Ok(Level::Inject));
        // Several levels: the one that comes last has them all.
        assert_eq!(level(flags::INJECT_COMPLETE | flags::TRANSMIT_COMPLETE), Ok(Level::Transmit));
        assert_eq!(level(flags::DELIVERY_COMPLETE | flags::TRANSMIT_COMPLETE), Ok(Level::Delivery));
        assert_eq!(level(flags::MATCH_COMPLETE | flags::DELIVERY_COMPLETE), Ok(Level::Match));
        assert_eq!(of(flags::MORE).map(|(_, more)| more), Ok(true));
        let fence = |given| of(given).map(|(options, _)| options.fence);
        assert_eq!((fence(flags::FENCE), fence(flags::MORE)), (Ok(true), Ok(false)));
        // As a default FI_INJECT does not make a read impossible; asked for, the engine refuses it.
        let read = |source| {
            options(source, flags::INJECT, DataDirection::Back, &queue).map(|(o, _)| o.inject)
        };
        assert_eq!(read(FlagSource::Endpoint), Ok(false));
        assert_eq!(read(FlagSource::Call(flags::INJECT)), Ok(true));
        assert_eq!(read(FlagSource::Call(flags::REMOTE_CQ_DATA)), Err(Errno::BADFLAGS));
    }
}
