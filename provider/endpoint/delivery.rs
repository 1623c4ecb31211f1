//! Delivery of the engine's completions to completion queues and counters.

pub(crate) mod entry;
