//! Triggered operations of an endpoint: calls that become deferred work, their begin, and their end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use squall_base::RegionId;
use squall_engine::{Completion, MatchSpace, OpError, OpKind, Visibility};

use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags;
use crate::endpoint::bindings::Bindings;
use crate::endpoint::delivery::entry::entry_of;
use crate::endpoint::{Endpoint, Receive, Transmit};
use crate::objects;
use crate::optional::triggered_work::{Condition, Task, Work};
use crate::queues::cntr::Cntr;
use crate::queues::cq::ErrorEntry;
use crate::reports::fault::Fault;

/// The identity of a deferred work request, and the counter that counts its end.
#[derive(Clone)]
pub(crate) struct Deferred {
    /// Address of the application's work structure, by which FI_CANCEL_WORK names it.
    pub(crate) address: usize,
    pub(crate) completion: Option<Weak<Cntr>>,
    /// The application's context of the operation.
    pub(crate) context: u64,
}

/// The deferred work of an endpoint that has begun, by its context in the engine.
#[derive(Default)]
pub(crate) struct TriggeredOperations {
    next: u64,
    all: HashMap<u64, (Deferred, bool)>,
}

impl TriggeredOperations {
    /// Adds work that begins, and returns its context for the engine. `shown` says that the queue shows its end.
    pub(crate) fn insert(&mut self, deferred: &Deferred, shown: bool) -> u64 {
        // No pointer of an application is up there, so that none is taken for it by fi_cancel.
        let id = self.next | 1 << 63;
        self.next += 1;
        self.all.insert(id, (deferred.clone(), shown));
        id
    }

    /// Returns the engine's context of the work with this application context.
    pub(crate) fn id_of(&self, context: u64) -> Option<u64> {
        self.all.iter().find(|(_, (deferred, _))| deferred.context == context).map(|(id, _)| *id)
    }

    /// Removes the record of work that the engine has refused.
    pub(crate) fn forget(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// Handles the end of work. Returns its completion with the application's context, if the queue shows it.
    #[cold]
    pub(crate) fn end(&mut self, done: &Completion) -> Option<Completion> {
        let (deferred, shown) = self.all.remove(&done.context)?;
        if let Some(cntr) = deferred.completion.as_ref().and_then(Weak::upgrade) {
            cntr.count(done.status.is_ok());
        }
        let visibility = if shown { Visibility::Entry } else { Visibility::ErrorEntry };
        let shown = Completion { context: deferred.context, visibility, ..done.clone() };
        (shown.status.is_err() || visibility == Visibility::Entry).then_some(shown)
    }
}

/// Returns the condition in a `fi_triggered_context`, and the counter that it names.
///
/// # Safety
/// `context` is the address of a `fi_triggered_context` whose pointer was exposed, or 0; the counter in it is open.
///
/// # Errors
/// `FI_EINVAL` for none, and a counter that is none; `FI_ENOSYS` for events other than thresholds.
unsafe fn condition(context: u64) -> Result<(Arc<Cntr>, Condition)> {
    let at = usize::try_from(context).map_err(|_| Errno::INVAL)?;
    let at: *const ffi::fi_triggered_context = core::ptr::with_exposed_provenance(at);
    // SAFETY: NULL, which is refused, or a context by this function's contract, with an open counter or NULL in it
    // when the event is a threshold.
    unsafe {
        let context = at.as_ref().ok_or(Errno::INVAL)?;
        if context.event_type != ffi::FI_TRIGGER_THRESHOLD {
            log::info!(
                "trigger event {} refused: only FI_TRIGGER_THRESHOLD is supported",
                context.event_type
            );
            return Err(Errno::NOSYS);
        }
        let threshold = context.trigger.threshold;
        let condition = Condition { threshold: threshold.threshold as u64, errors_count: false };
        Ok((objects::share(threshold.cntr)?, condition))
    }
}

/// Checks whether an endpoint's calls may be triggered.
///
/// # Errors
/// `FI_EBADFLAGS` when it was opened without FI_TRIGGER.
fn check_triggerable(ep: &Endpoint) -> Result<()> {
    if ep.settings.triggers {
        return Ok(());
    }
    log::info!("FI_TRIGGER refused: the endpoint was opened without this capability");
    Err(Errno::BADFLAGS)
}

/// Makes triggered work of a transmit call with FI_TRIGGER. Any other call was refused for `error`.
///
/// # Safety
/// As [`Endpoint::transmit`]; and with FI_TRIGGER the context is a `fi_triggered_context`.
#[cold]
pub(crate) unsafe fn trigger_transmit(ep: &Endpoint, call: Transmit, error: Errno) -> Result<()> {
    let call = call.without_trigger().ok_or(error)?;
    check_triggerable(ep)?;
    ep.check_transmit(&call)?;
    // SAFETY: the context is a triggered one by this function's contract; `context_of` exposed it.
    let (cntr, condition) = unsafe { condition(call.context_value())? };
    submit(ep, &cntr, condition, |ep| Task::Transmit(ep, call))
}

/// Makes triggered work of a receive call, as [`trigger_transmit`] does.
///
/// # Safety
/// As [`Endpoint::receive`]; and with FI_TRIGGER the context is a `fi_triggered_context`.
#[cold]
pub(crate) unsafe fn trigger_receive(ep: &Endpoint, call: Receive, error: Errno) -> Result<()> {
    let call = call.without_trigger().ok_or(error)?;
    check_triggerable(ep)?;
    ep.check_receive(&call)?;
    // SAFETY: the context is a triggered one by this function's contract; `context_of` exposed it.
    let (cntr, condition) = unsafe { condition(call.context_value())? };
    submit(ep, &cntr, condition, |ep| Task::Receive(ep, call))
}

fn submit(
    ep: &Endpoint,
    cntr: &Arc<Cntr>,
    condition: Condition,
    task: impl FnOnce(Weak<Endpoint>) -> Task,
) -> Result<()> {
    if !cntr.belongs_to(&ep.domain) {
        return Err(Errno::INVAL);
    }
    let task = task(ep.weak());
    ep.domain.work().submit(cntr, Work { condition, task, deferred: None });
    Ok(())
}

/// Begins a triggered transmit call whose condition is met.
///
/// # Errors
/// `FI_EAGAIN` when the call has to begin later. All other errors have been reported.
pub(crate) fn begin_transmit(
    ep: &Endpoint,
    call: &Transmit,
    deferred: Option<&Deferred>,
) -> Result<()> {
    // SAFETY: the application gave the buffer when it submitted the work, and leaves it alone until that has ended or
    // was taken back (fi_trigger(3)); neither has happened, for it is beginning.
    let begun = unsafe { ep.submit_transmit(call.clone(), ep.tx_flags(), deferred) };
    begun.or_else(|error| report_not_begun(ep, error, &call.unstarted_completion(), deferred))
}

/// Begins a triggered receive whose condition is met.
///
/// # Errors
/// As [`begin_transmit`].
pub(crate) fn begin_receive(
    ep: &Endpoint,
    call: &Receive,
    deferred: Option<&Deferred>,
) -> Result<()> {
    // SAFETY: the application gave the buffer when it submitted the work, and leaves it alone until that has ended or
    // was taken back (fi_trigger(3)); neither has happened, for it is beginning.
    let begun = unsafe { ep.submit_receive(call.clone(), deferred) };
    begun.or_else(|error| report_not_begun(ep, error, &call.unstarted_completion(), deferred))
}

/// Returns the completion of a call that never began.
pub(crate) const fn unstarted_completion(
    kind: OpKind,
    space: MatchSpace,
    tag: u64,
    context: u64,
) -> Completion {
    Completion {
        context,
        kind,
        space,
        len: 0,
        buf: 0,
        data: None,
        tag,
        peer: None,
        region: RegionId::LENT,
        visibility: Visibility::Entry,
        released: false,
        status: Err(OpError::Cancelled),
    }
}

/// Reports that work could not begin because of `error`, in the queue or counter that would have shown its end.
#[cold]
fn report_not_begun(
    ep: &Endpoint,
    error: Errno,
    end: &Completion,
    deferred: Option<&Deferred>,
) -> Result<()> {
    if error == Errno::AGAIN {
        return Err(error);
    }
    let text = format!(
        "work could not begin when its counter had reached the threshold: {}",
        std::io::Error::from_raw_os_error(error.0)
    );
    log::warn!("{text}");
    let inner = ep.lock_unchecked();
    match deferred {
        None => inner.bindings.count(end.kind, false),
        Some(deferred) => {
            if let Some(cntr) = deferred.completion.as_ref().and_then(Weak::upgrade) {
                cntr.count(false);
            }
        }
    }
    report_end(&inner.bindings, end, error, Some(text));
    Ok(())
}

/// Cancels a triggered operation that has not begun (fi_cancel), and reports its end. Returns whether there was one.
#[cold]
pub(crate) fn cancel(ep: &Endpoint, context: u64) -> bool {
    let end = match ep.domain.work().cancel_triggered(ep, context) {
        Some(Task::Transmit(_, call)) => call.unstarted_completion(),
        Some(Task::Receive(_, call)) => call.unstarted_completion(),
        Some(Task::Set(..) | Task::Add(..)) | None => return false,
    };
    let inner = ep.lock_unchecked();
    inner.bindings.count(end.kind, false);
    report_end(&inner.bindings, &end, Errno::CANCELED, None);
    true
}

/// Reports the completion of a call that never began to its queue or counter.
fn report_end(bindings: &Bindings, end: &Completion, errno: Errno, text: Option<String>) {
    let Some(cq) = bindings.queue(end.kind) else { return };
    let entry = entry_of(end, flags::ADDR_UNSPEC);
    let code = if errno == Errno::CANCELED { Fault::Cancelled as i32 } else { errno.0 };
    cq.push_error(ErrorEntry { entry, excess: 0, errno, code, text, position: 0 });
}
