//! Random histories of two engines with an attacker or trouble between them: see `hostile/mod.rs`. For many of
//! them: `ci/run suite fuzz`.

#[path = "../../reliability/tests/histories/mod.rs"]
mod histories;
#[path = "hostile/mod.rs"]
mod hostile_histories;
mod world;

use hostile_histories::{Mode, play};

fn survive(mode: Mode) {
    histories::survive(mode.name(), include_str!("hostile/corpus.txt"), |seed| play(mode, seed));
}

#[test]
fn nobody_is_taken_for_an_attacker() {
    survive(Mode::Honest);
}

#[test]
fn every_operation_ends_whatever_packets_come() {
    survive(Mode::OnPath);
}

#[test]
fn an_attacker_who_sees_nothing_changes_nothing() {
    survive(Mode::OffPath);
}

/// A long history takes seconds, and not milliseconds.
#[test]
fn numbers_that_wrap_and_full_tables_are_borne() {
    for seed in 0..if cfg!(debug_assertions) { 2 } else { 20 } {
        if let Err(finding) = play(Mode::Long, seed) {
            panic!("long {seed}: {finding}");
        }
    }
}

#[test]
fn trouble_is_borne_and_nobody_is_told_what_is_not_so() {
    survive(Mode::Trouble);
}
