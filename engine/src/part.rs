//! Descriptors of packets.

use crate::slab::Key;

/// The engine's descriptor of a packet: the part of an operation that the packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) op: Key,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}
