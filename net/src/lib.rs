//! Packet I/O.
pub use squall_wire::base;
