//! Random histories, each of which follows from its seed: their findings, their size, and the
//! program that plays many. The directories `hostile/` of this crate's tests and of the engine's
//! define the histories.
#![allow(dead_code, unreachable_pub)] // each program uses its own part

pub mod guard;
pub mod program;

use core::fmt;

/// A finding; `kind` is equal for histories that show the same fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: String,
    pub text: String,
}

impl Finding {
    pub fn new(kind: &str, text: impl Into<String>) -> Self {
        Self { kind: kind.into(), text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// The number of events in a history, or in many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    pub operations: u64,
    pub forged: u64,
    pub troubles: u64,
}

impl Amount {
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.forged += other.forged;
        self.troubles += other.troubles;
    }
}

/// Seeds that have shown a fault, by mode: a line each, with a description behind the seed. Lines
/// that begin with `#` are comments.
///
/// # Panics
/// Panics if a line has another form.
pub fn corpus(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split_whitespace();
        let mode = words.next().expect("a mode");
        (mode, words.next().and_then(|seed| seed.parse().ok()).expect("a seed"))
    })
}

/// Plays the seeds of a mode in the corpus, then the first seeds: as many as take a second or a
/// few.
///
/// # Panics
/// Panics with the first finding.
pub fn survive(mode: &str, text: &str, play: impl Fn(u64) -> Result<Amount, Finding>) {
    const HISTORIES: u64 = if cfg!(debug_assertions) { 400 } else { 10_000 };
    let known = corpus(text).filter(|(of, _)| *of == mode).map(|(_, seed)| seed);
    for seed in known.chain(0..HISTORIES) {
        if let Err(finding) = play(seed) {
            panic!("{mode} {seed}: {finding}");
        }
    }
}
