//! Plays histories of two engines with an attacker or trouble between them (`tests/hostile`):
//!
//! ```text
//! hostile [--mode on-path|honest|off-path|sealed|trouble|long] [--from SEED] [--histories N] [--one SEED]
//! ```
//!
//! See `reliability/tests/histories/program.rs`.
#![allow(missing_docs)]

#[path = "../../reliability/tests/histories/mod.rs"]
mod histories;
#[path = "../tests/hostile/mod.rs"]
mod hostile_histories;
#[path = "../tests/world/mod.rs"]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let modes = hostile_histories::Mode::ALL.map(hostile_histories::Mode::name);
    histories::program::run(&modes, |mode, seed| {
        let mode = mode.parse().expect("the program knows the modes");
        hostile_histories::play(mode, seed)
    })
}
