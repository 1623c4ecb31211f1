//! The engine's descriptors of the packets that it gives to the transport.

use crate::slab::Key;

/// The engine's descriptor of a packet: the part of an operation, in bytes, that the packet
/// carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) op: Key,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}
