//! The integration tests of this crate, in one program.

mod relay;
mod whole_engine;
