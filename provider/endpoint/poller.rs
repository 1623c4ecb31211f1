//! Packets and shared-memory records between the engine and the ports.

pub(crate) mod outbox;
pub(crate) mod shared_memory;
pub(crate) mod socket_buffer;
