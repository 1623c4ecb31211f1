//! Optional facilities of libfabric, which an endpoint without them does not pay for.

pub(crate) mod collectives;
pub(crate) mod device_memory;
pub(crate) mod peer_provider;
pub(crate) mod triggered_work;
