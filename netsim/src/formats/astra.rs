//! ASTRA-sim's network files, as its analytical backend reads them (`NetworkParser.cpp`, version
//! 2.2). Each dimension has a building block.
//!
//! ```text
//! topology: [ Ring, FullyConnected, Switch ]
//! npus_count: [ 2, 8, 4 ]
//! bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s, of 2^30 bytes
//! latency: [ 50.0, 500.0, 2000.0 ]   # ns
//! ```
//!
//! Accelerators are hosts: their number is the product of all dimensions, and the first dimension
//! varies fastest. A `Switch` has a link to each of its accelerators. Except in a single `Switch`,
//! accelerators forward packets of others. So each host has its own switch without latency, which
//! holds the accelerator's links; the link from host to switch has no latency and the sum of their
//! rates.

use super::{DefinedNames, FormatError, Place};
use crate::Picos;
use crate::topology::{Link, MOST_HOSTS, Node, Switch, Topology};
use squall_base::Rate;

/// Keys of the file.
const KEYS: [&str; 4] = ["topology", "npus_count", "bandwidth", "latency"];
/// Bytes per gigabyte in ASTRA-sim's bandwidths: 2^30 (`bw_GBps_to_Bpns`).
const GIB: f64 = (1u64 << 30) as f64;
/// Maximum bandwidth in gigabytes per second, and latency in nanoseconds.
const MAX_GIGABYTES_PER_S: f64 = 10_000.0;
const MOST_NANOS: f64 = 1e9;

/// Returns whether the first line of a text, without comments, is one of such a file.
pub(super) fn is_astra(first: &str) -> bool {
    first.split_once(':').is_some_and(|(key, _)| KEYS.contains(&key.trim()))
}

/// Building block of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Ring,
    FullyConnected,
    Switch,
}

/// A dimension of the network.
struct Dimension {
    block: Block,
    /// Number of accelerators that a block joins.
    count: u32,
    rate: Rate,
    latency: Picos,
}

impl Dimension {
    /// Returns the number of links of an accelerator.
    fn links_per_accelerator(&self) -> u64 {
        match self.block {
            Block::Switch => 1,
            Block::Ring if self.count == 2 => 1,
            Block::Ring => 2,
            Block::FullyConnected => u64::from(self.count) - 1,
        }
    }
}

/// Reads a network from the text of a file. Errors name it `file`.
///
/// # Errors
/// Returns the first line that is wrong, or numbers that do not fit each other.
pub fn read(file: &str, text: &str) -> Result<Topology, FormatError> {
    let whole = Place { file, line: 0 };
    let mut values: [Option<(usize, Vec<String>)>; 4] = [const { None }; 4];
    let mut defined = DefinedNames::default();
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let at = Place { file, line: number };
        let line = uncommented(line);
        if matches!(line, "" | "---") {
            continue;
        }
        let Some((key, mut value)) = line.split_once(':') else {
            return at.error(format!("'{line}' where 'KEY: [ VALUE, .. ]' was expected"));
        };
        let key = key.trim();
        let Some(index) = KEYS.iter().position(|known| *known == key) else {
            return at.error(format!(
                "'{key}' is not simulated; a network of ASTRA-sim has {} here",
                KEYS.join(", ")
            ));
        };
        defined.once(at, key)?;
        value = value.trim();
        let mut list: Vec<String> = Vec::new();
        if let Some(inner) = value.strip_prefix('[') {
            let Some(inner) = inner.strip_suffix(']') else {
                return at.error(format!("'{value}' has no closing bracket in this line"));
            };
            list.extend(inner.split(',').map(|word| word.trim().to_owned()));
        } else if value.is_empty() {
            // The list has an element in each of the next lines.
            while let Some((line, _)) = lines.peek() {
                let line = uncommented(line);
                match line.strip_prefix('-') {
                    Some(word) => list.push(word.trim().to_owned()),
                    None if line.is_empty() => {}
                    None => break,
                }
                lines.next();
            }
        } else {
            list.push(value.to_owned());
        }
        values[index] = Some((number, list));
    }
    for (key, value) in KEYS.iter().zip(&values) {
        if value.is_none() {
            return whole.error(format!("no '{key}'; expected '{key}: [ .. ]'"));
        }
    }
    let [blocks, counts, rates, latencies] = values.map(Option::unwrap_or_default);
    for ((line, list), key) in [&counts, &rates, &latencies].into_iter().zip(&KEYS[1..]) {
        if list.len() != blocks.1.len() {
            return Place { file, line: *line }.error(format!(
                "{key} has {} values, and topology {}; expected one for each dimension",
                list.len(),
                blocks.1.len()
            ));
        }
    }
    let mut dimensions = Vec::new();
    for index in 0..blocks.1.len() {
        let place = |line| Place { file, line };
        let block = match blocks.1[index].trim_matches(['"', '\'']) {
            "Ring" => Block::Ring,
            "FullyConnected" => Block::FullyConnected,
            "Switch" => Block::Switch,
            other => {
                return place(blocks.0).error(format!(
                    "topology '{other}' is not simulated; expected Ring, FullyConnected or Switch"
                ));
            }
        };
        let at = place(counts.0);
        let count = at.number(&counts.1[index], "npus_count")?;
        if count < 2 {
            return at.error(format!("npus_count {count} is too small; at least 2 are needed"));
        }
        let gigabytes_per_s =
            decimal(place(rates.0), "bandwidth", &rates.1[index], MAX_GIGABYTES_PER_S)?;
        let rate = Rate((gigabytes_per_s * GIB * 8.0).round() as u64);
        if rate.0 == 0 {
            return place(rates.0).error(format!(
                "bandwidth {} GB/s is out of range: it must be above 0 and at most {MAX_GIGABYTES_PER_S}",
                rates.1[index]
            ));
        }
        let nanos = decimal(place(latencies.0), "latency", &latencies.1[index], MOST_NANOS)?;
        let latency = Picos((nanos * 1000.0).round() as u64);
        dimensions.push(Dimension { block, count, rate, latency });
    }
    build(&dimensions).or_else(|what| whole.error(what))
}

/// Returns a line without its comment.
fn uncommented(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn decimal(at: Place<'_>, key: &str, word: &str, most: f64) -> Result<f64, FormatError> {
    match word.parse().ok().filter(|number: &f64| (0.0..=most).contains(number)) {
        Some(number) => Ok(number),
        None => at.error(format!("{key} '{word}' is not a number in 0..={most}")),
    }
}

/// Returns the network of some dimensions.
fn build(dimensions: &[Dimension]) -> Result<Topology, String> {
    let hosts = dimensions.iter().fold(1u64, |hosts, of| hosts.saturating_mul(of.count.into()));
    if hosts > u64::from(MOST_HOSTS) {
        return Err(format!("{hosts} accelerators; at most {MOST_HOSTS} are possible"));
    }
    let each: u64 = dimensions.iter().map(Dimension::links_per_accelerator).sum();
    Topology::fits(hosts.saturating_mul(1 + each)).map_err(|error| error.0)?;
    let hosts = hosts as u32;
    let mut topology = Topology { hosts, ..Topology::default() };
    if let [Dimension { block: Block::Switch, rate, latency, .. }] = *dimensions {
        topology = Topology::star(hosts, rate, latency, Picos::ZERO);
        return Ok(topology);
    }
    let rate = dimensions.iter().map(|of| of.links_per_accelerator() * of.rate.0).sum();
    let new = |name, tier| Switch { name, latency: Picos::ZERO, tier };
    for host in 0..hosts {
        topology.switches.push(new(format!("npu{host}"), 0));
        let (a, b) = (Node::Host(host), Node::Switch(host));
        topology.links.push(Link { a, b, rate: Rate(rate), latency: Picos::ZERO });
    }
    // Hosts that differ by this number are neighbours in the dimension.
    let mut stride = 1;
    for (number, &Dimension { block, count, rate, latency }) in dimensions.iter().enumerate() {
        for first in (0..hosts).filter(|host| host / stride % count == 0) {
            let of = |place: u32| Node::Switch(first + place * stride);
            let mut connect = |a, b| topology.links.push(Link { a, b, rate, latency });
            match block {
                Block::Ring => {
                    let links = if count == 2 { 1 } else { count };
                    (0..links).for_each(|place| connect(of(place), of((place + 1) % count)));
                }
                Block::FullyConnected => {
                    for place in 0..count {
                        (0..place).for_each(|other| connect(of(other), of(place)));
                    }
                }
                Block::Switch => {
                    let switch = Node::Switch(topology.switches.len() as u32);
                    (0..count).for_each(|place| connect(of(place), switch));
                    topology.switches.push(new(format!("switch{number}-{first}"), 1));
                }
            }
        }
        stride *= count;
    }
    Ok(topology)
}
