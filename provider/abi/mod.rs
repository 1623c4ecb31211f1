//! The C ABI of libfabric: its types, flags and error codes, and the boundary at which Rust meets C.

pub(crate) mod boundary;
pub(crate) mod compat;
pub(crate) mod errno;
pub(crate) mod ffi;
pub(crate) mod flags;
pub(crate) mod order;
