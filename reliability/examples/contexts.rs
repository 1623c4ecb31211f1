//! Plays histories of two endpoints' contexts and somebody who sends them any packets (`tests/hostile`):
//!
//! ```text
//! contexts [--mode contexts] [--from SEED] [--histories N] [--one SEED]
//! ```
//!
//! See `tests/histories/program.rs`.
#![allow(missing_docs)]

#[path = "../tests/histories/mod.rs"]
mod histories;
#[path = "../tests/hostile/mod.rs"]
mod hostile_histories;
#[path = "../tests/link/mod.rs"]
mod link;

use std::process::ExitCode;

fn main() -> ExitCode {
    histories::program::run(&[hostile_histories::MODE], |_, seed| hostile_histories::play(seed))
}
