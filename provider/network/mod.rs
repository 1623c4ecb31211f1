//! The network as an endpoint finds it before it opens: formats of addresses, interfaces, and the wire of its peers.

pub(crate) mod addr;
pub(crate) mod nic;
pub(crate) mod wire;
