//! Every algorithm at the same port: one table per algorithm in `tables/`.
//!
//! `SQUALL_BLESS=1` writes the tables; inspect the difference before it is committed.

use std::fmt::Write;
use std::path::Path;
use std::{fs, thread};

use squall_cc::SenderConfig;
use squall_cc::base::Span;

use super::{draw, equal_flows, network, variable};

/// Values that the algorithms that promise a fair and full link must reach with up to 64 flows,
/// from 2 ms on: Jain's index and the share of the link. The others are DCQCN and TIMELY, whose
/// increase (in units of 5 to 40 Mb/s, made for flows of seconds) is slow beside 6 ms, and BBR,
/// whose flows probe in turn and do not react to loss.
const PROMISES: &[(&str, f64, f64)] = &[
    ("nscc", 0.95, 0.98),
    ("smartt", 0.9, 0.95),
    ("strack", 0.9, 0.95),
    ("mprdma", 0.98, 0.98),
    ("dctcp", 0.98, 0.98),
    ("swift", 0.98, 0.98),
    ("eqds", 0.99, 0.98),
    ("eqds+smartt", 0.99, 0.98),
    ("eqds+nscc", 0.99, 0.98),
    ("eqds+mprdma", 0.99, 0.98),
];

const HEAD: &str =
    "switches flows start      jain   used  mean queue  max queue   lost, of it after 2 ms\n";

/// Returns the table of one algorithm.
fn table(name: &str) -> String {
    let mut table = String::from(HEAD);
    for trimming in [true, false] {
        let cc = SenderConfig::by_name(name, &network(trimming)).expect("a name of the list");
        let together = [2, 4, 8, 16, 32, 64].map(|n| (n, "together", Span::ZERO));
        let staggered = [2, 8, 16].map(|n| (n, "staggered", Span::micros(50)));
        for (n, start, apart) in together.into_iter().chain(staggered) {
            let outcome = equal_flows(&cc, n, apart, trimming);
            let switches = if trimming { "trim" } else { "drop" };
            let (jain, used) = (outcome.jain(), outcome.utilisation);
            writeln!(
                table,
                "{switches:<8} {n:>5} {start:<10} {jain:.3}  {used:.3}  {:>10}  {:>9}  {:>5} {:>6}",
                outcome.mean_queue, outcome.max_queue, outcome.lost.0, outcome.lost.1,
            )
            .expect("a string takes everything");
            if let Some(&(_, fair, full)) = PROMISES.iter().find(|promise| promise.0 == name) {
                assert!(jain >= fair, "{name} is unfair:\n{table}");
                assert!(used >= full, "{name} leaves the link idle:\n{table}");
            }
            draw::on_request(&format!("{name}-{switches}-{n}-{start}"), &outcome);
        }
    }
    table
}

/// Checks one table against its file, or writes the file.
fn review(name: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/bottleneck/tables")
        .join(name)
        .with_extension("txt");
    let table = table(name);
    if variable("SQUALL_BLESS").is_some() {
        return fs::write(&path, table).map_err(|error| format!("{}: {error}", path.display()));
    }
    match fs::read_to_string(&path) {
        Ok(before) if before == table => Ok(()),
        Ok(_) => Err(format!("{name}: the table is now\n{table}")),
        Err(error) => Err(format!("{}: {error}; the table is\n{table}", path.display())),
    }
}

#[test]
fn every_algorithm_meets_the_bottleneck() {
    let reviews: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = SenderConfig::NAMES
            .iter()
            .map(|&(name, _)| scope.spawn(move || review(name)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("kept its promise")).collect()
    });
    let errors: Vec<_> = reviews.into_iter().filter_map(Result::err).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
