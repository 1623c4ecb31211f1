//! The program that plays histories, one seed after another:
//!
//! ```text
//! PROGRAM [--mode MODE] [--from SEED] [--histories N] [--one SEED]
//! ```
//!
//! Prints how many histories it plays per second, and the findings by kind with the first seed that
//! shows each. Exits with status 1 after any finding. `--one` plays one history and prints
//! everything known about its finding.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // a program: it reads the clock and prints

use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::{Amount, Finding};

/// Interval of the progress reports.
const INTERVAL: Duration = Duration::from_secs(30);

struct Arguments {
    mode: &'static str,
    from: u64,
    histories: u64,
    one: bool,
}

impl Arguments {
    /// The options of the command line; without a mode, the first of `modes`.
    fn read(modes: &[&'static str]) -> Result<Self, String> {
        let mut parsed = Self { mode: modes[0], from: 0, histories: 10_000, one: false };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number =
                || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
            match word.as_str() {
                "--mode" => {
                    let known = modes.iter().find(|mode| **mode == value);
                    let all = modes.join(", ");
                    parsed.mode = known.ok_or_else(|| format!("{value:?} is no mode: {all}"))?;
                }
                "--from" => parsed.from = number()?,
                "--histories" => parsed.histories = number()?,
                "--one" => (parsed.from, parsed.histories, parsed.one) = (number()?, 1, true),
                _ => return Err(format!("{word} is unknown: --mode, --from, --histories, --one")),
            }
        }
        Ok(parsed)
    }
}

/// Findings of one kind.
struct Kind {
    times: u64,
    seed: u64,
    first: Finding,
}

/// All of it: `play` plays the history of a mode and a seed.
pub fn run(modes: &[&'static str], play: fn(&str, u64) -> Result<Amount, Finding>) -> ExitCode {
    let Arguments { mode, from, histories, one } = match Arguments::read(modes) {
        Ok(arguments) => arguments,
        Err(why) => {
            println!("{why}");
            return ExitCode::from(2);
        }
    };
    let (start, mut said) = (Instant::now(), Instant::now());
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    let mut total = Amount::default();
    let mut slowest = (Duration::ZERO, from);
    for seed in from..from.saturating_add(histories) {
        let began = Instant::now();
        match play(mode, seed) {
            Ok(amount) => total.add(amount),
            Err(first) => {
                let kind = first.kind.clone();
                kinds.entry(kind).or_insert(Kind { times: 0, seed, first }).times += 1;
            }
        }
        slowest = slowest.max((began.elapsed(), seed));
        if said.elapsed() > INTERVAL {
            said = Instant::now();
            let found: u64 = kinds.values().map(|kind| kind.times).sum();
            println!("{mode}: at seed {seed}, {found} findings");
        }
    }
    let rate = histories as f64 / start.elapsed().as_secs_f64();
    println!(
        "{mode}: {histories} histories from seed {from}, {rate:.0} a second, {} operations, {} forged \
         packets and {} troubles; slowest: seed {}, {} ms",
        total.operations,
        total.forged,
        total.troubles,
        slowest.1,
        slowest.0.as_millis(),
    );
    for (kind, Kind { times, seed, first }) in &kinds {
        println!("{times} x {kind} (first seed {seed})");
        if one {
            println!("{first}");
        }
    }
    ExitCode::from(u8::from(!kinds.is_empty()))
}
