//! Plays histories of two engines with an attacker between them (`tests/hostile`), one seed after another:
//!
//! ```text
//! hostile [--mode honest|on-path|off-path|trouble] [--from SEED] [--histories N] [--one SEED]
//! ```
//!
//! Says how many it plays a second, and what was found by kind, with the first seed that shows it; ends
//! with status 1 when anything was. `--one` plays one and says all that is known of what is wrong.
#![allow(clippy::disallowed_methods, clippy::print_stdout)] // a program: it reads the clock and prints
#![allow(missing_docs)]

#[path = "../tests/hostile/mod.rs"]
mod hostile_histories;
#[path = "../tests/world/mod.rs"]
mod world;

use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hostile_histories::{Amount, Finding, Mode, guard};

/// How often it says how far it is.
const INTERVAL: Duration = Duration::from_secs(30);

struct Arguments {
    mode: Mode,
    from: u64,
    histories: u64,
    one: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { mode: Mode::OnPath, from: 0, histories: 10_000, one: false };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--mode" => parsed.mode = value.parse()?,
            "--from" => parsed.from = number()?,
            "--histories" => parsed.histories = number()?,
            "--one" => (parsed.from, parsed.histories, parsed.one) = (number()?, 1, true),
            _ => return Err(format!("{word} is unknown: --mode, --from, --histories, --one")),
        }
    }
    Ok(parsed)
}

/// Findings of one kind.
struct Kind {
    times: u64,
    seed: u64,
    first: Finding,
}

fn main() -> ExitCode {
    let Arguments { mode, from, histories, one } = match arguments() {
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
        match guard::play(mode, seed) {
            Ok(amount) => {
                total.operations += amount.operations;
                total.forged += amount.forged;
                total.troubles += amount.troubles;
            }
            Err(first) => {
                let kind = first.kind.clone();
                kinds.entry(kind).or_insert(Kind { times: 0, seed, first }).times += 1;
            }
        }
        slowest = slowest.max((began.elapsed(), seed));
        if said.elapsed() > INTERVAL {
            said = Instant::now();
            let found: u64 = kinds.values().map(|kind| kind.times).sum();
            println!("{}: at seed {seed}, {found} findings", mode.name());
        }
    }
    let rate = histories as f64 / start.elapsed().as_secs_f64();
    println!(
        "{}: {histories} histories from seed {from}, {rate:.0} a second, {} operations, {} forged \
         packets and {} troubles; slowest: seed {}, {} ms",
        mode.name(),
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
