//! Random histories of two engines with an attacker between them: see `hostile/mod.rs`. For many of them:
//! `ci/run fuzz`.

#[path = "hostile/mod.rs"]
mod hostile_histories;
mod world;

use hostile_histories::{Mode, guard};

/// Histories that a test plays: a second's worth.
const HISTORIES: u64 = if cfg!(debug_assertions) { 400 } else { 10_000 };

/// Seeds that have shown something, with the mode.
fn corpus() -> impl Iterator<Item = (Mode, u64)> {
    let lines = include_str!("hostile/corpus.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut words = line.split_whitespace();
        let mode = words.next().and_then(|mode| mode.parse().ok());
        let seed = words.next().and_then(|seed| seed.parse().ok());
        (mode.expect("a mode"), seed.expect("a seed"))
    })
}

/// Plays the corpus of a mode, then other seeds; fails at the first finding.
fn survive(mode: Mode) {
    let known = corpus().filter(|(of, _)| *of == mode).map(|(_, seed)| seed);
    for seed in known.chain(0..HISTORIES) {
        if let Err(finding) = guard::play(mode, seed) {
            panic!("{} {seed}: {finding}", mode.name());
        }
    }
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

#[test]
fn trouble_is_borne_and_nobody_is_told_what_is_not_so() {
    survive(Mode::Trouble);
}
