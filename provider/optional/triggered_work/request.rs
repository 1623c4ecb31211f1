//! Deferred work requests: `struct fi_deferred_work`, and the fi_control commands for them.

use core::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use super::operations::Deferred;
use super::{Condition, Task, Work};
use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, alias, calls};
use crate::objects;
use crate::queues::cntr::Cntr;

boundary::exports! {
    /// Handles `fi_control` of a domain, which queues and cancels deferred work.
    pub(crate) status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        let domain = objects::get::<Domain, _>(fid)?;
        match u32::try_from(command) {
            Ok(ffi::FI_QUEUE_WORK) => {
                let request = arg.cast::<ffi::fi_deferred_work>().as_ref().ok_or(Errno::INVAL)?;
                let (cntr, work) = work_of(domain, request)?;
                domain.work().submit(&cntr, work);
                Ok(())
            }
            Ok(ffi::FI_CANCEL_WORK) if !arg.is_null() => domain.work().cancel(arg.addr()),
            Ok(ffi::FI_CANCEL_WORK) => Err(Errno::INVAL),
            Ok(ffi::FI_FLUSH_WORK) if arg.is_null() => {
                domain.work().flush(None);
                Ok(())
            }
            Ok(ffi::FI_FLUSH_WORK) => {
                domain.work().flush(Some(objects::get::<Cntr, _>(arg.cast::<ffi::fid>())?));
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    };
}

/// Returns the counter for which a request waits, and its work. Everything in the request is copied, because the
/// application may use the same structure for several requests.
///
/// # Safety
/// The structure of the operation that `request` names is one of its `op_type`, as are the arrays in it; the objects are
/// NULL or open. The bytes that the operation names stay mapped until it has ended or was taken back.
///
/// # Errors
/// `FI_ENOSYS` for an unknown operation, `FI_EINVAL` for objects that are not of this domain, and
/// the errors of the operation's own call.
unsafe fn work_of(domain: &Domain, request: &ffi::fi_deferred_work) -> Result<(Arc<Cntr>, Work)> {
    // SAFETY: NULL, which is refused, or open counters by this function's contract.
    let (cntr, completion) = unsafe {
        let completion = request.completion_cntr;
        let completion =
            if completion.is_null() { None } else { Some(counter(domain, completion)?) };
        (counter(domain, request.triggering_cntr)?, completion)
    };
    // SAFETY: the structure of the operation is one of its type by this function's contract.
    let (task, context) = unsafe { task_of(domain, request)? };
    let counts = matches!(task, Task::Set(..) | Task::Add(..));
    if counts && completion.is_some() {
        log::info!(
            "deferred counter operation refused: it cannot have a completion_cntr; set that to NULL"
        );
        return Err(Errno::INVAL);
    }
    let changed = match &task {
        Task::Set(cntr, _) | Task::Add(cntr, _) => cntr.upgrade(),
        _ => completion.clone(),
    };
    changed.map_or(Ok(()), |cntr| domain.attach_work_counter(&cntr))?;
    let condition = Condition { threshold: request.threshold, errors_count: true };
    let completion = completion.map(|cntr| Arc::downgrade(&cntr));
    let address = core::ptr::from_ref(request).addr();
    let deferred = Some(Deferred { address, completion, context });
    Ok((cntr, Work { condition, task, deferred }))
}

/// Returns a counter that must belong to the domain.
///
/// # Safety
/// `cntr` is NULL or an open object.
unsafe fn counter(domain: &Domain, cntr: *mut ffi::fid_cntr) -> Result<Arc<Cntr>> {
    // SAFETY: NULL, which is refused, or an open object by this function's contract.
    let cntr = unsafe { objects::share::<Cntr, _>(cntr)? };
    if cntr.belongs_to(domain) { Ok(cntr) } else { Err(Errno::INVAL) }
}

/// Returns the task of a deferred work request, and the operation's context.
///
/// # Safety
/// As for [`work_of`].
unsafe fn task_of(domain: &Domain, request: &ffi::fi_deferred_work) -> Result<(Task, u64)> {
    // SAFETY: by this function's contract `op` is a pointer to the structure of `op_type`, or NULL, which `as_ref`
    // looks at, and everything that it names is what its type says; endpoints and counters are NULL or open. What makes
    // calls of messages asks no more, and copies what they say.
    unsafe {
        let op = &request.op;
        match request.op_type {
            ffi::FI_OP_RECV => {
                let op = op.msg.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                receive(&ep, calls::receive_msg(&op.msg, op.flags)?)
            }
            ffi::FI_OP_TRECV => {
                let op = op.tagged.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                receive(&ep, calls::receive_tagged(&op.msg, op.flags)?)
            }
            ffi::FI_OP_SEND => {
                let op = op.msg.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::send_msg(&op.msg, op.flags)?)
            }
            ffi::FI_OP_TSEND => {
                let op = op.tagged.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::send_tagged(&op.msg, op.flags)?)
            }
            ffi::FI_OP_READ => {
                let op = op.rma.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::read_msg(&op.msg, op.flags)?)
            }
            ffi::FI_OP_WRITE => {
                let op = op.rma.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::write_msg(&op.msg, op.flags)?)
            }
            ffi::FI_OP_ATOMIC => {
                let op = op.atomic.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::atomic_msg(&ep, &op.msg, op.flags)?)
            }
            ffi::FI_OP_FETCH_ATOMIC => {
                let op = op.fetch_atomic.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::fetch_msg(&ep, &op.msg, &op.fetch, op.flags)?)
            }
            ffi::FI_OP_COMPARE_ATOMIC => {
                let op = op.compare_atomic.as_ref().ok_or(Errno::INVAL)?;
                let ep = endpoint(domain, op.ep)?;
                transmit(&ep, calls::compare_msg(&ep, &op.msg, &op.fetch, &op.compare, op.flags)?)
            }
            ffi::FI_OP_CNTR_SET => {
                let op = op.cntr.as_ref().ok_or(Errno::INVAL)?;
                Ok((Task::Set(Arc::downgrade(&counter(domain, op.cntr)?), op.value), 0))
            }
            ffi::FI_OP_CNTR_ADD => {
                let op = op.cntr.as_ref().ok_or(Errno::INVAL)?;
                Ok((Task::Add(Arc::downgrade(&counter(domain, op.cntr)?), op.value), 0))
            }
            other => {
                log::info!("deferred work refused: op_type {other} is unknown");
                Err(Errno::NOSYS)
            }
        }
    }
}

/// Returns an endpoint of the domain, or the endpoint of an alias.
///
/// # Safety
/// `ep` is NULL or an open object.
unsafe fn endpoint(domain: &Domain, ep: *mut ffi::fid_ep) -> Result<Arc<Endpoint>> {
    // SAFETY: NULL, which is refused, or an open object by this function's contract.
    let ep = unsafe { alias::share(ep)? };
    if ep.belongs_to(domain) { Ok(ep) } else { Err(Errno::INVAL) }
}

fn transmit(ep: &Arc<Endpoint>, call: calls::Transmit) -> Result<(Task, u64)> {
    ep.check_transmit(&call)?;
    let context = call.context_value();
    Ok((Task::Transmit(weak(ep), call), context))
}

fn receive(ep: &Arc<Endpoint>, call: calls::Receive) -> Result<(Task, u64)> {
    ep.check_receive(&call)?;
    let context = call.context_value();
    Ok((Task::Receive(weak(ep), call), context))
}

fn weak(ep: &Arc<Endpoint>) -> Weak<Endpoint> {
    Arc::downgrade(ep)
}
