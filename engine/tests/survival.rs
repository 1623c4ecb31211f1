//! Random histories of two engines with an attacker or trouble between them; see `hostile/mod.rs`.
//! `ci/run suite fuzz` plays many of them.

use crate::histories;
use crate::hostile::{Mode, play};

fn survive(mode: Mode) {
    histories::survive(mode.name(), include_str!("hostile/corpus.txt"), |seed| play(mode, seed));
}

#[test]
fn honest_peers_are_not_taken_for_attackers() {
    survive(Mode::Honest);
}

#[test]
fn every_operation_ends_despite_an_attacker_on_the_path() {
    survive(Mode::OnPath);
}

#[test]
fn off_path_attacker_changes_nothing() {
    survive(Mode::OffPath);
}

#[test]
fn encrypted_data_are_right_despite_an_attacker_on_the_path() {
    survive(Mode::Sealed);
}

/// A long history takes seconds instead of milliseconds.
#[test]
fn engine_survives_wrapping_numbers_and_full_tables() {
    for seed in 0..if cfg!(debug_assertions) { 2 } else { 20 } {
        if let Err(finding) = play(Mode::Long, seed) {
            panic!("long {seed}: {finding}");
        }
    }
}

#[test]
fn trouble_causes_no_wrong_report() {
    survive(Mode::Trouble);
}
