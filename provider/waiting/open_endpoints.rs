//! The enabled endpoints of this process, and what the provider's threads do with them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use squall_base::Time;

use crate::objects::PerProcess;

/// An enabled endpoint, as far as the provider's threads and the end of the process need it.
pub(crate) trait OpenEndpoint: Send + Sync {
    /// Makes progress as the application does, on a progress thread, unless another thread does so now. Returns whether
    /// anything happened.
    fn try_progress(&self) -> bool;

    /// Returns whether the application has made no progress since the last call.
    fn check_stalled(&self) -> bool;

    /// Runs a turn on the background progress thread, unless the application makes progress again. Returns whether
    /// packets had arrived.
    fn progress_in_background(&self) -> bool;

    /// Runs a background turn for a thread that waits for an event, which may be another one than the endpoint's own.
    /// Returns whether the event is still to come.
    fn progress_for_waiter(&self) -> bool;

    /// Prepares for a thread to sleep on the sockets: peers on this host must wake it. Returns false when something of
    /// theirs has arrived already, and `None` when another thread holds the lock and drives it: a thread of the
    /// application, or the background progress thread, which wakes sleepers when it finds something.
    fn prepare_sleep(&self) -> Option<bool>;

    /// Notes that the progress thread no longer sleeps, so that calls need not wake it.
    fn end_sleep_of_progress_thread(&self);

    /// Returns the time at which the endpoint needs a turn although nothing arrives. While another thread holds the
    /// lock, that is soon: the thread may set a timer, and may have reported it before the caller sleeps.
    fn next_timeout(&self) -> Option<Time>;

    /// Returns the endpoint's next timer as [`Self::next_timeout`] does, for a thread that is about to sleep until
    /// then. A call that sets an earlier timer wakes that thread, unless background progress serves the timer.
    fn next_timeout_of_sleeper(&self) -> Option<Time>;

    /// Waits, when the process ends with the endpoint open, until the data of operations that completed when they were
    /// copied has arrived. It gives up if another thread holds the lock, because that thread may be stuck for good.
    fn drain(&self);

    /// Writes the statistics of the endpoint, once, and ends its statistics page and trace.
    fn close_reports(&self);
}

/// The enabled endpoints of this process.
static OPEN: PerProcess<Mutex<Vec<Weak<dyn OpenEndpoint>>>> = PerProcess::new();

/// Adds an endpoint that was enabled to the list of this process.
pub(crate) fn add(ep: Weak<dyn OpenEndpoint>) {
    OPEN.get().lock().push(ep);
}

/// Removes an endpoint, which closes, from the list of this process.
pub(crate) fn remove(ep: &dyn OpenEndpoint) {
    OPEN.get().lock().retain(|other| !core::ptr::addr_eq(other.as_ptr(), ep));
}

/// Returns the enabled endpoints of this process.
pub(crate) fn all() -> Vec<Arc<dyn OpenEndpoint>> {
    OPEN.get().lock().iter().filter_map(Weak::upgrade).collect()
}

/// Returns whether no endpoint of this process is enabled.
pub(crate) fn is_empty() -> bool {
    OPEN.get().lock().is_empty()
}

/// Makes peers on this host wake the thread that is about to sleep. Returns the endpoints whose peers do, and whether
/// nothing has arrived. For an endpoint that another thread drives now, the answer is `driven`.
pub(crate) fn prepare_sleep<E: OpenEndpoint + ?Sized>(
    endpoints: &[Arc<E>],
    driven: bool,
) -> (Vec<Arc<E>>, bool) {
    let mut sleeping = Vec::new();
    for endpoint in endpoints {
        match endpoint.prepare_sleep() {
            Some(true) => sleeping.push(Arc::clone(endpoint)),
            None if driven => {}
            _ => return (sleeping, false),
        }
    }
    (sleeping, true)
}

/// Handles the end of the process: sends what endpoints that are still open have queued, and
/// reports their statistics.
pub(crate) fn report() {
    let open: Vec<Weak<dyn OpenEndpoint>> = core::mem::take(&mut *OPEN.get().lock());
    for ep in open.iter().filter_map(Weak::upgrade) {
        ep.drain();
        ep.close_reports();
    }
}
