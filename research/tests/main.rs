//! The integration tests of this crate, in one program.

mod features;
mod options;
