//! Messages on packet delivery contexts.
#![forbid(unsafe_code)]
pub use squall_reliability::{base, cc, wire};
