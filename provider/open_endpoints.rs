//! The enabled endpoints of this process.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::objects::PerProcess;

/// The enabled endpoints.
static OPEN: PerProcess<Mutex<Vec<Weak<Endpoint>>>> = PerProcess::new();

/// Adds an endpoint, which was enabled.
pub(crate) fn add(ep: &Arc<Endpoint>) {
    OPEN.get().lock().push(Arc::downgrade(ep));
}

/// Removes an endpoint, which closes.
pub(crate) fn remove(ep: &Endpoint) {
    OPEN.get().lock().retain(|other| !core::ptr::eq(other.as_ptr(), ep));
}

/// Returns the enabled endpoints.
pub(crate) fn all() -> Vec<Arc<Endpoint>> {
    OPEN.get().lock().iter().filter_map(Weak::upgrade).collect()
}

/// Returns whether no endpoint of this process is enabled.
pub(crate) fn is_empty() -> bool {
    OPEN.get().lock().is_empty()
}

/// Handles the end of the process: sends what endpoints that are still open have queued, and
/// reports their statistics.
pub(crate) fn report() {
    let open: Vec<Weak<Endpoint>> = core::mem::take(&mut *OPEN.get().lock());
    for ep in open.iter().filter_map(Weak::upgrade) {
        ep.drain();
        ep.close_reports();
    }
}
