//! Packet delivery contexts.
#![forbid(unsafe_code)]
pub use squall_wire::base;
pub use squall_cc as cc;
pub use squall_wire as wire;
