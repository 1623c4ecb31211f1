//! Topology files of ASTRA-sim's ns-3 backend (`scratch/topology` of astra-network-ns3), which has
//! them from the simulator of HPCC.
//!
//! ```text
//! 3 1 2                       nodes, switches, links
//! 2                           numbers of the switches
//! 2 0 400Gbps 0.0005ms 0      a link: two nodes, rate, latency, error rate
//! 2 1 400Gbps 0.0005ms 0
//! ```
//!
//! Nodes that are no switches are hosts, in the order of their numbers.

use super::{FormatError, MOST_NANOS, MOST_RATE, Place};
use crate::Picos;
use crate::topology::{Link, MOST_HOSTS, Node, Switch, Topology};
use squall_base::Rate;

/// Units of rates, in bits per second, and of times, in picoseconds.
const RATES: [(&str, f64); 5] =
    [("Gbps", 1e9), ("Mbps", 1e6), ("Kbps", 1e3), ("kbps", 1e3), ("bps", 1.0)];
const TIMES: [(&str, f64); 5] = [("ms", 1e9), ("us", 1e6), ("ns", 1e3), ("ps", 1.0), ("s", 1e12)];

/// Returns whether the first line of a text is one of such a file: numbers alone.
pub(super) fn is_ns3(first: &str) -> bool {
    let mut words = first.split_whitespace();
    words.clone().count() > 1
        && words.all(|word| word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        && first.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads a topology from the text of a file. Errors name it `file`.
///
/// # Errors
/// Returns the first line that is wrong, or what is wrong with the whole.
pub fn read(file: &str, text: &str) -> Result<Topology, FormatError> {
    let whole = Place { file, line: 0 };
    let mut lines = text.lines().zip(1..).map(|(line, number)| {
        (line.split('#').next().unwrap_or_default().trim(), Place { file, line: number })
    });
    let mut next = |what: &str| match lines.by_ref().find(|(line, _)| !line.is_empty()) {
        Some(found) => Ok(found),
        None => whole.error(format!("the file ends where {what} was expected")),
    };
    let (first, at) = next("'NODES SWITCHES LINKS'")?;
    let head: Vec<&str> = first.split_whitespace().collect();
    let &[nodes, switches, links] = head.as_slice() else {
        return at.error(format!(
            "the first line has {} words, expected three: 'NODES SWITCHES LINKS'",
            head.len()
        ));
    };
    let nodes: u32 = at.number(nodes, "nodes")?;
    let (switches, links): (u32, u32) =
        (at.number(switches, "switches")?, at.number(links, "links")?);
    if nodes > MOST_HOSTS || switches > nodes {
        return at.error(format!(
            "{nodes} nodes with {switches} switches, expected at most {MOST_HOSTS} nodes, some of them switches"
        ));
    }
    // Switch index of each node; `None` for a host.
    let mut kinds: Vec<Option<u32>> = vec![None; nodes as usize];
    let mut topology = Topology { hosts: nodes - switches, ..Topology::default() };
    while (topology.switches.len() as u32) < switches {
        let (line, at) = next("the numbers of the switches")?;
        for word in line.split_whitespace() {
            let number: u32 = at.number(word, "a switch")?;
            let count = topology.switches.len() as u32;
            match kinds.get_mut(number as usize) {
                Some(kind @ None) if count < switches => *kind = Some(count),
                _ => {
                    return at.error(format!(
                        "switch number {number} is repeated, out of range 0..={} or one too many; list {switches} different \
                         numbers",
                        i64::from(nodes) - 1
                    ));
                }
            }
            let name = format!("switch{number}");
            topology.switches.push(Switch { name, latency: Picos::ZERO, tier: 0 });
        }
    }
    let mut hosts = 0..topology.hosts;
    let kinds: Vec<Node> = kinds
        .into_iter()
        .map(|switch| switch.map_or_else(|| Node::Host(hosts.next().unwrap_or(0)), Node::Switch))
        .collect();
    for _ in 0..links {
        let (line, at) = next("a link")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[a, b, rate, latency, errors] = words.as_slice() else {
            return at
                .error(format!("'{line}' where 'NODE NODE RATE LATENCY ERRORS' was expected"));
        };
        let end = |word| {
            let number: u32 = at.number(word, "a node")?;
            match kinds.get(number as usize) {
                Some(node) => Ok(*node),
                None => at.error(format!("node {number}, expected 0 to {}", i64::from(nodes) - 1)),
            }
        };
        if errors.parse() != Ok(0.0) {
            return at.error(format!("error rate {errors} is not simulated; set it to 0"));
        }
        let rate = measure(at, "a rate such as 400Gbps", rate, &RATES, MOST_RATE as f64)?;
        let latency =
            measure(at, "a latency such as 0.0005ms", latency, &TIMES, MOST_NANOS as f64 * 1e3)?;
        topology.links.push(Link {
            a: end(a)?,
            b: end(b)?,
            rate: Rate(rate),
            latency: Picos(latency),
        });
    }
    if let Ok((line, at)) = next("the end") {
        return at.error(format!(
            "'{line}' follows the last of the {links} links that the first line announces; correct the first line"
        ));
    }
    mark_tiers(&mut topology);
    match topology.check() {
        Ok(()) => Ok(topology),
        Err(error) => whole.error(error.0),
    }
}

/// Parses a number with a unit.
fn measure(
    at: Place<'_>,
    what: &str,
    word: &str,
    units: &[(&str, f64)],
    most: f64,
) -> Result<u64, FormatError> {
    let unit = units.iter().find_map(|(unit, size)| Some((word.strip_suffix(unit)?, size)));
    let number = unit.and_then(|(number, size)| Some(number.parse::<f64>().ok()? * size));
    match number.filter(|number| (0.0..=most).contains(number)) {
        Some(number) => Ok(number.round() as u64),
        None => at.error(format!("'{word}', expected {what}")),
    }
}

/// Sets tiers: 0 for switches with hosts, and for every other switch one more than its lowest
/// neighbour (0 if it reaches no host).
fn mark_tiers(topology: &mut Topology) {
    let mut tiers = vec![u8::MAX; topology.switches.len()];
    for link in &topology.links {
        if let (Node::Host(_), Node::Switch(at)) | (Node::Switch(at), Node::Host(_)) =
            (link.a, link.b)
        {
            tiers[at as usize] = 0;
        }
    }
    for tier in 0..u8::MAX - 1 {
        let mut changed = false;
        for link in &topology.links {
            let (Node::Switch(a), Node::Switch(b)) = (link.a, link.b) else { continue };
            for (from, to) in [(a, b), (b, a)] {
                if tiers[from as usize] == tier && tiers[to as usize] == u8::MAX {
                    tiers[to as usize] = tier + 1;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    for (switch, tier) in topology.switches.iter_mut().zip(tiers) {
        switch.tier = if tier == u8::MAX { 0 } else { tier };
    }
}
