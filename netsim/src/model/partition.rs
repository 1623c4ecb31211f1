//! Partition of a network into parts that are stepped in parallel: which part has which host and
//! switch.
//!
//! A part has a range of hosts, the switches that they are connected to, and those of the other
//! switches that are connected mostly to its own. A packet from one part to another takes at least
//! [`Partition::ahead`], so parts need not synchronize more often than that.

use core::ops::Range;

use crate::Picos;
use crate::topology::{Node, Topology};

/// Assignment of hosts and switches to the parts of a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// First host of each part, followed by the number of hosts.
    firsts: Vec<u32>,
    /// The part of each switch.
    switches: Vec<u32>,
}

/// The share of a network that one simulation steps: all of it, or one part.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a>(Option<(&'a Partition, u32)>);

impl<'a> Share<'a> {
    /// The share that is the whole network.
    pub const WHOLE: Self = Self(None);

    /// Returns the share that is part `part` of the network.
    #[must_use]
    pub const fn of(partition: &'a Partition, part: u32) -> Self {
        Self(Some((partition, part)))
    }

    /// Returns whether a host or a switch is in the share.
    #[must_use]
    pub fn has(self, node: Node) -> bool {
        self.0.is_none_or(|(partition, part)| partition.of(node) == part)
    }

    /// Returns whether this share counts the events that happen in all parts alike; one part does.
    #[must_use]
    pub const fn counts(self) -> bool {
        matches!(self.0, None | Some((_, 0)))
    }
}

/// Marks a switch that belongs to no part yet.
const NOBODY: u32 = u32::MAX;

impl Partition {
    /// Divides a network into `parts` parts, or fewer. Hosts of one switch stay together, and so do
    /// all hosts from the first to the last of each of the `joined` ranges. The topology must have
    /// passed [`Topology::check`].
    #[must_use]
    pub fn new(topology: &Topology, parts: usize, joined: &[Range<u32>]) -> Self {
        let firsts = cut(topology, parts, joined);
        let mut partition = Self { firsts, switches: vec![NOBODY; topology.switches.len()] };
        partition.share_switches(topology);
        partition
    }

    /// Returns the number of parts.
    #[must_use]
    pub fn parts(&self) -> u32 {
        // There are at most as many parts as hosts.
        self.firsts.len() as u32 - 1
    }

    /// Returns the hosts of a part.
    ///
    /// # Panics
    /// Panics if there is no such part.
    #[must_use]
    pub fn hosts(&self, part: u32) -> Range<u32> {
        self.firsts[part as usize]..self.firsts[part as usize + 1]
    }

    /// Returns the part that has a host or a switch.
    ///
    /// # Panics
    /// Panics if there is no such switch.
    #[must_use]
    pub fn of(&self, node: Node) -> u32 {
        match node {
            Node::Host(host) => self.firsts[1..].partition_point(|&first| first <= host) as u32,
            Node::Switch(switch) => self.switches[switch as usize],
        }
    }

    /// Returns the minimum time that anything takes from one switch to another; `None` if no switch
    /// is connected with another, or if some link between switches takes no time. It does not
    /// depend on the partition.
    #[must_use]
    pub fn ahead(topology: &Topology) -> Option<Picos> {
        let between = topology
            .links
            .iter()
            .filter(|link| matches!((link.a, link.b), (Node::Switch(_), Node::Switch(_))));
        between.map(|link| link.latency).min().filter(|least| *least > Picos::ZERO)
    }

    /// Assigns the remaining switches in rings around the hosts. A switch next to assigned ones
    /// goes to the part that has most of its neighbours; if several parts have as many, it goes to
    /// the one with the fewest links.
    fn share_switches(&mut self, topology: &Topology) {
        let mut neighbours = vec![Vec::new(); self.switches.len()];
        for link in &topology.links {
            for (node, other) in [(link.a, link.b), (link.b, link.a)] {
                if let Node::Switch(switch) = node {
                    neighbours[switch as usize].push(other);
                }
            }
        }
        let parts = self.parts() as usize;
        let mut links = vec![0; parts];
        loop {
            let mut found = Vec::new();
            for switch in (0..self.switches.len()).filter(|&at| self.switches[at] == NOBODY) {
                let mut has = vec![0u32; parts];
                for &node in &neighbours[switch] {
                    if let Some(count) = has.get_mut(self.of(node) as usize) {
                        *count += 1;
                    }
                }
                let best = (0..parts)
                    .max_by_key(|&part| (has[part], core::cmp::Reverse((links[part], part))));
                if let Some(part) = best.filter(|&part| has[part] > 0) {
                    links[part] += neighbours[switch].len();
                    found.push((switch, part as u32));
                }
            }
            if found.is_empty() {
                break;
            }
            for (switch, part) in found {
                self.switches[switch] = part;
            }
        }
        // No packet ever reaches the remaining switches.
        self.switches.iter_mut().filter(|part| **part == NOBODY).for_each(|part| *part = 0);
    }
}

/// Returns the first host of each part, followed by the number of hosts: cut near equal shares,
/// where that is possible.
fn cut(topology: &Topology, parts: usize, joined: &[Range<u32>]) -> Vec<u32> {
    let hosts = topology.hosts;
    // The hosts of a switch widen its range.
    let nowhere = Range { start: u32::MAX, end: 0 };
    let mut ranges = vec![nowhere; topology.switches.len()];
    for link in &topology.links {
        if let (Node::Host(host), Node::Switch(switch)) | (Node::Switch(switch), Node::Host(host)) =
            (link.a, link.b)
        {
            let range = &mut ranges[switch as usize];
            *range = range.start.min(host)..range.end.max(host + 1);
        }
    }
    // The array counts the ranges that begin, less those that end, before each host. Where no range
    // is open, the hosts before and after share none.
    let mut open = vec![0i64; hosts as usize + 1];
    for range in ranges.iter().chain(joined).filter(|range| range.len() > 1) {
        open[range.start as usize + 1] += 1;
        open[range.end as usize] -= 1;
    }
    let mut depth = 0;
    let possible = (0..hosts).filter(|&host| {
        depth += open[host as usize];
        depth == 0 && host > 0
    });
    let possible: Vec<u32> = possible.collect();
    let mut firsts = vec![0];
    for part in 1..parts as u64 {
        let wanted = (u64::from(hosts) * part / parts as u64) as u32;
        let behind = possible.partition_point(|&host| host < wanted);
        let near = possible[behind.saturating_sub(1)..].iter().take(2);
        let nearest = near.min_by_key(|host| host.abs_diff(wanted));
        firsts.extend(nearest.filter(|host| Some(*host) > firsts.last()));
    }
    firsts.push(hosts);
    firsts
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Rate;

    fn leaves(count: u32) -> Topology {
        let rate = Rate::gbps(100);
        Topology::leaf_spine(count, 4, 8, rate, rate, Picos::micros(1), Picos::ZERO)
    }

    #[test]
    fn hosts_of_a_switch_stay_together() {
        let partition = Partition::new(&leaves(3), 2, &[]);
        assert_eq!((partition.parts(), partition.hosts(0), partition.hosts(1)), (2, 0..8, 8..24));
        assert_eq!([0, 7, 8, 23].map(|host| partition.of(Node::Host(host))), [0, 0, 1, 1]);
    }

    #[test]
    fn what_is_joined_is_not_cut() {
        let parts = |joined: &[Range<u32>]| Partition::new(&leaves(4), 4, joined).parts();
        assert_eq!(parts(&[]), 4);
        let (one, other, all) = (7..9, 15..25, 0..32);
        assert_eq!(parts(core::slice::from_ref(&one)), 3);
        assert_eq!(parts(&[one, other]), 1);
        assert_eq!(parts(&[all]), 1);
        let star = Topology::star(9, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        assert_eq!((Partition::new(&star, 3, &[]).parts(), Partition::ahead(&star)), (1, None));
    }

    /// Checks that parts have about equal shares, and that every switch belongs to a part.
    #[test]
    fn shares_are_about_equal() {
        for parts in 1..=5 {
            let topology = leaves(10);
            let partition = Partition::new(&topology, parts, &[]);
            let mut count = vec![(0u32, 0u32); parts];
            for switch in 0..topology.switches.len() as u32 {
                count[partition.of(Node::Switch(switch)) as usize].1 += 1;
            }
            for host in 0..topology.hosts {
                count[partition.of(Node::Host(host)) as usize].0 += 1;
            }
            let least = count.iter().map(|of| of.0).min().unwrap();
            assert!(count.iter().all(|of| of.0 - least <= 8), "{count:?}");
            assert_eq!(count.iter().map(|of| of.1).sum::<u32>(), 14);
            for switch in 0..10 {
                let host = Node::Host(switch * 8);
                assert_eq!(partition.of(Node::Switch(switch)), partition.of(host));
            }
        }
        assert_eq!(Partition::ahead(&leaves(2)), Some(Picos::micros(1)));
    }
}
