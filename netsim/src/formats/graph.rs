//! Files that describe any network, link by link.
//!
//! ```text
//! Graph
//! Hosts 3
//! Switch left latency_ns 400
//! Switch right latency_ns 400 tier 1
//! Link h0 left gbps 100 latency_ns 1000
//! Link h1 left gbps 100 latency_ns 1000
//! Link h2 right gbps 100 latency_ns 1000
//! Link left right mbps 2500 latency_ns 5000
//! ```
//!
//! Hosts are `h0`, `h1` and so on, and all have one link, or all have 2, 4, 8 or 16: the first link
//! of each host is in plane 0, the second in plane 1. Switches have names of their own, and
//! come before the links that name them. Latencies may be missing (0), as may the tier (0: the
//! switch has hosts). Routing does not use the tier; reports, lower bounds of completion times and
//! some switch features do.

use core::fmt::Write as _;
use std::collections::HashMap;

use super::{DefinedNames, FormatError, Place};
use crate::Picos;
use crate::topology::{Link, Node, Switch, Topology};
use squall_base::Rate;

/// Reads a topology from the text of a graph. Errors name it `file`.
///
/// # Errors
/// Returns an error for the first line that is wrong, or for the topology as a whole.
pub fn read(file: &str, text: &str) -> Result<Topology, FormatError> {
    let mut topology = Topology::default();
    let mut names: HashMap<&str, u32> = HashMap::new();
    let mut begun = false;
    let mut defined_names = DefinedNames::default();
    for (index, line) in text.lines().enumerate() {
        let at = Place { file, line: index + 1 };
        let words: Vec<&str> =
            line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let Some((&first, rest)) = words.split_first() else { continue };
        match (first.to_ascii_lowercase().as_str(), rest) {
            ("graph", []) if !begun => begun = true,
            _ if !begun => return at.error(format!("'{first}' where 'Graph' was expected")),
            ("hosts", &[count]) => {
                defined_names.once(at, "Hosts")?;
                topology.hosts = at.number(count, "Hosts")?;
            }
            ("switch", &[name, ref options @ ..]) => {
                if is_host(name).is_some() {
                    return at.error(format!("'{name}' is what a host is called; rename it"));
                }
                // There are fewer switches than lines.
                if names.insert(name, topology.switches.len() as u32).is_some() {
                    return at.error(format!("two switches are named '{name}'; names must differ"));
                }
                topology.switches.push(read_switch(at, name, options)?);
            }
            ("link", &[a, b, ref options @ ..]) => {
                let end = |name: &str| match (is_host(name), names.get(name)) {
                    (Some(host), _) if host < topology.hosts => Ok(Node::Host(host)),
                    (Some(_), _) if topology.hosts == 0 => at.error(format!(
                        "'{name}' is used before the line 'Hosts NUMBER'; move that line up"
                    )),
                    (Some(_), _) => at.error(format!(
                        "host '{name}' is out of range h0 to h{}",
                        i64::from(topology.hosts) - 1
                    )),
                    (None, Some(&switch)) => Ok(Node::Switch(switch)),
                    (None, None) => {
                        at.error(format!("'{name}' is neither a host nor a switch named above"))
                    }
                };
                let (from, to) = (end(a)?, end(b)?);
                if from == to {
                    return at.error(format!("link connects '{a}' with itself; name two nodes"));
                }
                if let (Node::Host(_), Node::Host(_)) = (from, to) {
                    return at.error(format!(
                        "link connects hosts '{a}' and '{b}' directly; connect each to a switch"
                    ));
                }
                let (a, b) = (from, to);
                topology.links.push(read_link(at, a, b, options)?);
            }
            _ => {
                return at.error(format!(
                    "'{}' where 'Hosts NUMBER', 'Switch NAME ..' or 'Link A B ..' was expected",
                    words.join(" ")
                ));
            }
        }
    }
    match topology.check() {
        Ok(()) => Ok(topology),
        Err(error) => Place { file, line: 0 }.error(error.0),
    }
}

/// Returns the number of the host that is called `name`, such as `h3`; `None` if hosts have no such
/// name.
fn is_host(name: &str) -> Option<u32> {
    name.strip_prefix('h')?.parse().ok()
}

fn read_switch(at: Place<'_>, name: &str, options: &[&str]) -> Result<Switch, FormatError> {
    let mut switch = Switch { name: name.into(), latency: Picos::ZERO, tier: 0 };
    for option in options.chunks(2) {
        match *option {
            ["latency_ns", value] => switch.latency = at.latency(value, "latency_ns")?,
            ["tier", value] => switch.tier = at.number(value, "tier")?,
            _ => {
                let found = option.join(" ");
                return at.error(format!(
                    "'{found}' where 'latency_ns NUMBER' or 'tier NUMBER' was expected"
                ));
            }
        }
    }
    Ok(switch)
}

fn read_link(at: Place<'_>, a: Node, b: Node, options: &[&str]) -> Result<Link, FormatError> {
    let mut link = Link { a, b, rate: Rate(0), latency: Picos::ZERO };
    for option in options.chunks(2) {
        match *option {
            ["gbps", value] => link.rate = at.rate(value, "gbps", 1_000_000_000)?,
            ["mbps", value] => link.rate = at.rate(value, "mbps", 1_000_000)?,
            ["latency_ns", value] => link.latency = at.latency(value, "latency_ns")?,
            _ => {
                let found = option.join(" ");
                return at.error(format!(
                    "'{found}' where 'gbps NUMBER', 'mbps NUMBER' or 'latency_ns NUMBER' was expected"
                ));
            }
        }
    }
    if link.rate.0 == 0 {
        return at
            .error("a link without a rate; expected 'gbps NUMBER' or 'mbps NUMBER' above zero");
    }
    Ok(link)
}

/// Returns a topology as the text of a graph that [`read`] reads back, if switches have names of
/// their own, rates are whole megabits and latencies whole nanoseconds.
#[must_use]
pub fn write(topology: &Topology) -> String {
    let mut text = format!("Graph\nHosts {}\n", topology.hosts);
    // Writing to a string cannot fail.
    for switch in &topology.switches {
        let (name, latency, tier) = (&switch.name, switch.latency.0 / 1000, switch.tier);
        let _ = writeln!(text, "Switch {name} latency_ns {latency} tier {tier}");
    }
    for link in &topology.links {
        let (a, b) = (topology.name(link.a), topology.name(link.b));
        let mbps = link.rate.0 / 1_000_000;
        let (unit, rate) =
            if mbps.is_multiple_of(1000) { ("gbps", mbps / 1000) } else { ("mbps", mbps) };
        let _ = writeln!(text, "Link {a} {b} {unit} {rate} latency_ns {}", link.latency.0 / 1000);
    }
    text
}
