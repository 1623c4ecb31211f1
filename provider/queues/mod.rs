//! Where completions and events are read: queues, counters, poll sets, and how reading drives endpoints.

pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod endpoint_driver;
pub(crate) mod eq;
pub(crate) mod poll;
pub(crate) mod trywait;
