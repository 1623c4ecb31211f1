//! docs/your-algorithm.md has a complete and correct row for every algorithm.

use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{NetworkProfile, PathSelector, Paths, PathsConfig, Sender, SenderCc, SenderConfig};

const PAGE: &str = include_str!("../../docs/your-algorithm.md");

/// The command that counts bytes and instructions, for the messages of failures.
const MEASURE: &str = "`ci/run bench cc --write` counts them and writes the row";

/// Returns the rows of the table under the heading `title`, with trimmed cells.
fn rows(title: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(&format!("\n## {title}\n")).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let table = section.lines().filter(|line| line.starts_with("| "));
    table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Checks that there is one row of six filled cells, with the bytes of state and instructions as `least to most`.
fn check(title: &str, name: &str, bytes: usize) {
    let all = rows(title);
    let mine: Vec<_> = all.iter().filter(|row| row[0] == name).collect();
    assert_eq!(mine.len(), 1, "{name} has {} rows under {title}", mine.len());
    let row = mine[0];
    assert!(row.len() == 6 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    assert_eq!(row[4], bytes.to_string(), "bytes of {name}: {MEASURE}");
    let range = row[5].split_once(" to ");
    let range = range.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    let (least, most): (u32, u32) =
        range.unwrap_or_else(|| panic!("{:?} instructions of {name}: {MEASURE}", row[5]));
    assert!(0 < least && least <= most, "{least} to {most} instructions of {name}: {MEASURE}");
}

#[test]
fn every_sender_has_a_true_row() {
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
    for &(name, _) in SenderConfig::NAMES {
        let config = SenderConfig::by_name(name, &network).expect("a name of the list");
        check("Senders", name, Sender::new(&config, Time::ZERO).state_bytes());
    }
    assert_eq!(rows("Senders").len(), SenderConfig::NAMES.len() + 1, "and the heading");
}

#[test]
fn every_selector_has_a_true_row() {
    for &(name, _) in PathsConfig::NAMES {
        let config = PathsConfig::by_name(name, 64).expect("a name of the list");
        check("Path selectors", name, Paths::new(&config, Rng::new(1)).state_bytes());
    }
    assert_eq!(rows("Path selectors").len(), PathsConfig::NAMES.len() + 1, "and the heading");
}

/// The limit of the papers' hardware: UE 1.0's own, and the two of the papers.
#[test]
fn the_papers_algorithms_need_at_most_64_bytes_a_flow() {
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true);
    for name in ["nscc", "smartt", "strack"] {
        let config = SenderConfig::by_name(name, &network).expect("a name of the list");
        let bytes = Sender::new(&config, Time::ZERO).state_bytes();
        assert!(bytes <= 64, "{name} needs {bytes}");
    }
    // The enum over all algorithms is no larger than its largest inline context.
    assert_eq!(size_of::<Sender>(), 64);
}
