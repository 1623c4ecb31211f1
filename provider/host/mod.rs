//! The process that the provider runs in and the libfabric that loaded it: parameters, log, limits, the job and its
//! keys, threads.

pub(crate) mod activation;
pub(crate) mod announced;
pub(crate) mod job;
pub(crate) mod libfabric;
pub(crate) mod limits;
pub(crate) mod logger;
pub(crate) mod memory_limit;
pub(crate) mod param;
pub(crate) mod secret;
pub(crate) mod standard_error;
pub(crate) mod thread;
