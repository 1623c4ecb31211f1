//! Ultra Ethernet packets.
#![no_std]
#![forbid(unsafe_code)]
pub use squall_base as base;
