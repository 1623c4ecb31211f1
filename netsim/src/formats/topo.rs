//! htsim's `.topo` files: a fat tree, tier by tier (`FatTreeTopologyCfg::read_cfg` of uet-htsim).
//!
//! ```text
//! # a comment
//! Nodes 128
//! Tiers 3
//! Podsize 16
//!
//! Tier 0
//! Downlink_speed_Gbps 100
//! Radix_Down 4
//! Radix_Up 4
//! Oversubscribed 1
//! Downlink_Latency_ns 1000
//! Switch_Latency_ns 0
//! Bundle 1
//! Queue_Down 88
//! Queue_Up 88
//! ```
//!
//! Words are not case sensitive. Queues are bytes and may be missing, as may `Oversubscribed`,
//! `Bundle` (both 1) and the latencies (0). No key may occur twice. `Oversubscribed` is kept but
//! has no effect, because the radices determine the oversubscription. Queues are kept but have no
//! effect: htsim sizes all queues alike, whatever the file says (`set_queue_sizes`), and so does
//! the simulator.

use core::fmt::Write as _;

use super::{DefinedNames, FormatError, Place};
use crate::Picos;
use crate::topology::{FatTree, Tier};
use squall_base::Rate;

const EMPTY: Tier = Tier {
    oversubscribed: 1,
    downlink: Rate(0),
    radix_down: 0,
    radix_up: 0,
    downlink_latency: Picos::ZERO,
    switch_latency: Picos::ZERO,
    bundle: 1,
    queue_up: None,
    queue_down: None,
};

/// Reads a fat tree from the text of a `.topo` file. Errors name it `file`.
///
/// # Errors
/// Returns the first line that is wrong, or numbers that do not fit each other.
pub fn read(file: &str, text: &str) -> Result<FatTree, FormatError> {
    let mut tree = FatTree { hosts: 0, pod_hosts: 0, tiers: Vec::new() };
    let mut tiers = None;
    // The tier to which the current lines belong.
    let mut current: Option<usize> = None;
    let mut defined_names = DefinedNames::default();
    let whole = Place { file, line: 0 };
    for (index, line) in text.lines().enumerate() {
        let at = Place { file, line: index + 1 };
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(key) = words.next() else { continue };
        let Some(value) = words.next() else {
            return at.error(format!("'{key}' without a value; expected '{key} NUMBER'"));
        };
        if let Some(more) = words.next() {
            return at.error(format!("'{more}' after '{key} {value}', where the line should end"));
        }
        let number: u64 = at.number(value, key)?;
        let small = || at.number::<u32>(value, key);
        let lower = key.to_ascii_lowercase();
        match (lower.as_str(), current) {
            ("tier", _) => defined_names.once(at, format!("Tier {number}"))?,
            ("nodes" | "tiers" | "podsize", _) | (_, None) => {
                defined_names.once(at, lower.as_str())?;
            }
            (_, Some(tier)) => defined_names.once(at, format!("{lower} of tier {tier}"))?,
        }
        if let "nodes" | "tiers" | "podsize" | "tier" = lower.as_str() {
            match lower.as_str() {
                "nodes" => tree.hosts = small()?,
                "podsize" => tree.pod_hosts = small()?,
                "tiers" if !matches!(number, 2 | 3) => {
                    return at.error(format!("Tiers {number} is out of range 2 to 3"));
                }
                "tiers" => tiers = Some(number as usize),
                _ => {
                    let Some(tiers) = tiers else {
                        return at
                            .error("'Tier' before 'Tiers', which must say how many there are");
                    };
                    if number >= tiers as u64 {
                        return at
                            .error(format!("Tier {number} is out of range 0 to {}", tiers - 1));
                    }
                    tree.tiers.resize(tiers, EMPTY);
                    current = Some(number as usize);
                }
            }
            continue;
        }
        let Some(tier) = current.and_then(|tier| tree.tiers.get_mut(tier)) else {
            return at.error(format!(
                "'{key}' where 'Nodes', 'Tiers', 'Podsize' or 'Tier' was expected"
            ));
        };
        match lower.as_str() {
            "downlink_speed_gbps" => tier.downlink = at.rate(value, key, 1_000_000_000)?,
            "radix_down" => tier.radix_down = small()?,
            "radix_up" => tier.radix_up = small()?,
            "oversubscribed" if number == 0 => {
                return at.error("Oversubscribed 0 is too small; at least 1 is possible");
            }
            "oversubscribed" => tier.oversubscribed = small()?,
            "bundle" => tier.bundle = small()?,
            "downlink_latency_ns" => tier.downlink_latency = at.latency(value, key)?,
            "switch_latency_ns" => tier.switch_latency = at.latency(value, key)?,
            "queue_up" => tier.queue_up = Some(number),
            "queue_down" => tier.queue_down = Some(number),
            _ => {
                return at.error(format!(
                    "'{key}' is unknown; a tier has Downlink_speed_Gbps, Radix_Down, Radix_Up, Oversubscribed, \
                     Bundle, Downlink_Latency_ns, Switch_Latency_ns, Queue_Up and Queue_Down"
                ));
            }
        }
    }
    let Some(tiers) = tiers else {
        return whole.error("no 'Tiers' line; expected 'Tiers 2' or 'Tiers 3'");
    };
    if tree.hosts == 0 {
        return whole.error("no hosts; expected 'Nodes NUMBER' above zero");
    }
    for tier in 0..tiers {
        if tree.tiers.get(tier).is_none_or(|tier| tier.radix_down == 0) {
            return whole.error(format!(
                "tier {tier} has no Radix_Down; expected 'Tier {tier}' and its lines"
            ));
        }
    }
    if tiers == 2 || tree.pod_hosts == 0 {
        tree.pod_hosts = tree.hosts;
    }
    match tree.switches() {
        Ok(_) => Ok(tree),
        Err(error) => whole.error(error.0),
    }
}

/// Returns a fat tree as the text of a `.topo` file that [`read`] reads back.
#[must_use]
pub fn write(tree: &FatTree) -> String {
    let mut text =
        format!("Nodes {}\nTiers {}\nPodsize {}\n", tree.hosts, tree.tiers.len(), tree.pod_hosts);
    for (index, tier) in tree.tiers.iter().enumerate() {
        let mut line = |key: &str, value: u64| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{key} {value}");
        };
        line("\nTier", index as u64);
        line("Oversubscribed", tier.oversubscribed.into());
        line("Downlink_speed_Gbps", tier.downlink.0 / 1_000_000_000);
        line("Radix_Down", tier.radix_down.into());
        if tier.radix_up > 0 {
            line("Radix_Up", tier.radix_up.into());
        }
        line("Downlink_Latency_ns", tier.downlink_latency.0 / 1000);
        line("Switch_Latency_ns", tier.switch_latency.0 / 1000);
        line("Bundle", tier.bundle.into());
        for (key, queue) in [("Queue_Up", tier.queue_up), ("Queue_Down", tier.queue_down)] {
            if let Some(bytes) = queue {
                line(key, bytes);
            }
        }
    }
    text
}
