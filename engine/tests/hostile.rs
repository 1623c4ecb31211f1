//! Random histories of two engines with an attacker between them: see `hostile/mod.rs`. For many of them:
//! `ci/run fuzz`.

#[path = "hostile/mod.rs"]
mod hostile_histories;
mod world;

use hostile_histories::{Mode, guard};

/// Histories that a test plays: a few seconds' worth.
const HISTORIES: u64 = if cfg!(debug_assertions) { 300 } else { 10_000 };

fn survive(mode: Mode) {
    for seed in 0..HISTORIES {
        if let Err(finding) = guard::play(mode, seed) {
            panic!("seed {seed}: {finding}");
        }
    }
}

#[test]
fn nobody_is_taken_for_an_attacker() {
    survive(Mode::Honest);
}

#[test]
fn any_packets_do_no_harm_to_memory_and_every_operation_ends() {
    survive(Mode::OnPath);
}

#[test]
fn an_attacker_who_sees_nothing_changes_nothing() {
    survive(Mode::OffPath);
}
