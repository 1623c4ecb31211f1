//! Random histories, each of which follows from its seed: what is wrong with one, how much happened in it, and the
//! program that plays many. Which histories there are, is for others to say: `hostile/` of this crate's tests, and
//! of those of the engine.
#![allow(dead_code, unreachable_pub)] // each program uses its own part

pub mod guard;
pub mod program;

use core::fmt;

/// What is wrong: `kind` is the same for histories that show the same.
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

/// How much happened in a history, or in many.
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

/// Seeds that have shown something, by mode: a line each, which goes on with what it was. Lines that begin with `#`
/// are comments.
///
/// # Panics
/// When a line is not of this form.
pub fn corpus(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split_whitespace();
        let mode = words.next().expect("a mode");
        (mode, words.next().and_then(|seed| seed.parse().ok()).expect("a seed"))
    })
}

/// Plays what the corpus has of a mode, then the first seeds: as many as take a second or a few.
///
/// # Panics
/// With the first finding.
pub fn survive(mode: &str, text: &str, play: impl Fn(u64) -> Result<Amount, Finding>) {
    const HISTORIES: u64 = if cfg!(debug_assertions) { 400 } else { 10_000 };
    let known = corpus(text).filter(|(of, _)| *of == mode).map(|(_, seed)| seed);
    for seed in known.chain(0..HISTORIES) {
        if let Err(finding) = play(seed) {
            panic!("{mode} {seed}: {finding}");
        }
    }
}
