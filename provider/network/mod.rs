//! What an endpoint knows of the network before it opens: formats of addresses, interfaces, and the wire of its peers.

pub(crate) mod addr;
pub(crate) mod nic;
pub(crate) mod wire;
