//! Hosts with several links: networks of planes, and networks of rails.
//!
//! Planes are separate networks, each with a link of every host. Rails share the upper switches: link
//! `k` of each host of a group leads to leaf `k` of the group. Both are numbered by the place of a
//! link among the links of its host.

use super::{Link, Node, Switch, Topology, TopologyError};
use crate::Picos;
use squall_base::Rate;

/// Maximum number of planes.
pub const MOST_PLANES: u32 = 16;

/// Returns an error unless `planes` is a possible number of planes.
fn possible(planes: u32, what: &str) -> Result<(), TopologyError> {
    if planes.is_power_of_two() && planes <= MOST_PLANES {
        return Ok(());
    }
    Err(TopologyError(format!("{planes} {what}; expected 1, 2, 4, 8 or {MOST_PLANES}")))
}

/// Checks the numbers of links of all hosts.
pub(super) fn check(degree: &[u32]) -> Result<(), TopologyError> {
    let planes = degree.first().copied().unwrap_or(1);
    if let Some(host) = degree.iter().position(|&count| count == 0) {
        return Err(TopologyError(format!("host h{host} has 0 links; connect it to a switch")));
    }
    if let Some(host) = degree.iter().position(|&count| count != planes) {
        return Err(TopologyError(format!(
            "host h{host} has {} links, and h0 has {planes}; give all hosts as many",
            degree[host]
        )));
    }
    possible(planes, "links of each host")
}

impl Topology {
    /// Returns the number of planes, which is the number of links of each host.
    #[must_use]
    pub fn planes(&self) -> u32 {
        let of_hosts = self.links.iter().filter(|link| host_of(link).is_some()).count();
        (of_hosts as u32).checked_div(self.hosts).unwrap_or(1).max(1)
    }

    /// Returns the rate at which a host sends over all of its links together.
    #[must_use]
    pub fn total_host_rate(&self) -> Rate {
        Rate(self.host_rate().0.saturating_mul(self.planes().into()))
    }

    /// Returns the plane of each host's link, in the order of [`Topology::links`]: its place among
    /// the links of its host. Returns `None` for links between switches.
    #[must_use]
    pub fn link_planes(&self) -> Vec<Option<u32>> {
        let mut next = vec![0; self.hosts as usize];
        let plane_of = |link: &Link| {
            let next = next.get_mut(host_of(link)? as usize)?;
            *next += 1;
            Some(*next - 1)
        };
        self.links.iter().map(plane_of).collect()
    }

    /// Returns the switches that only packets of plane `plane` reach. Switches that several planes
    /// share, such as the spines of a network of rails, are in none of them.
    #[must_use]
    pub fn switches_of_plane(&self, plane: u32) -> Vec<u32> {
        // A bit for each plane whose packets may reach a switch.
        let mut reached = vec![0u32; self.switches.len()];
        let mut is_edge = vec![false; self.switches.len()];
        for (link, of) in self.links.iter().zip(self.link_planes()) {
            if let (Some(of), (Node::Switch(at), _) | (_, Node::Switch(at))) =
                (of, (link.a, link.b))
            {
                reached[at as usize] |= 1 << of;
                is_edge[at as usize] = true;
            }
        }
        // Planes spread over links between switches, but a packet never passes through a switch with
        // hosts of other planes only, because shortest routes end there.
        loop {
            let mut changed = false;
            for link in &self.links {
                let (Node::Switch(a), Node::Switch(b)) = (link.a, link.b) else { continue };
                for (from, to) in [(a as usize, b as usize), (b as usize, a as usize)] {
                    if !is_edge[to] && reached[from] & !reached[to] != 0 {
                        reached[to] |= reached[from];
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        (0u32..).zip(reached).filter(|(_, of)| *of == 1 << plane).map(|(at, _)| at).collect()
    }

    /// Returns `planes` copies of the network, in which every host has a link to each copy. Names of
    /// switches begin with their plane: `p1.leaf0`. One plane is the network itself.
    ///
    /// # Errors
    /// Returns an error if the number of planes, or of links, is impossible.
    pub fn in_planes(self, planes: u32) -> Result<Self, TopologyError> {
        possible(planes, "planes")?;
        possible(planes * self.planes(), "planes and rails")?;
        Self::fits(self.links.len() as u64 * u64::from(planes))?;
        if planes == 1 {
            return Ok(self);
        }
        let mut all = Self { hosts: self.hosts, ..Self::default() };
        for plane in 0..planes {
            let before = all.switches.len() as u32;
            let moved = |node: Node| match node {
                Node::Host(_) => node,
                Node::Switch(at) => Node::Switch(at + before),
            };
            all.switches.extend(self.switches.iter().map(|switch| Switch {
                name: format!("p{plane}.{}", switch.name),
                ..switch.clone()
            }));
            let links = self.links.iter();
            all.links.extend(links.map(|link| Link {
                a: moved(link.a),
                b: moved(link.b),
                ..*link
            }));
        }
        Ok(all)
    }

    /// Returns a leaf-spine network of `rails` rails: `leaves` switches in groups of `rails`, and
    /// `rack` hosts below each group, with a link to each of its leaves. Each leaf is connected to
    /// each of `spines` switches.
    ///
    /// # Errors
    /// Returns an error if the number of rails is impossible, or does not divide that of leaves.
    pub fn rails(
        (leaves, spines, rack): (u32, u32, u32),
        rails: u32,
        (rate, uplink): (Rate, Rate),
        latency: Picos,
        switch_latency: Picos,
    ) -> Result<Self, TopologyError> {
        possible(rails, "rails")?;
        if !leaves.is_multiple_of(rails) {
            return Err(TopologyError(format!(
                "{leaves} leaves in groups of {rails}; give a multiple of the rails"
            )));
        }
        let mut topology =
            Self::leaf_spine(leaves, spines, rack, rate, uplink, latency, switch_latency);
        topology.hosts = leaves / rails * rack;
        let mut of_leaf = vec![0; leaves as usize];
        for link in &mut topology.links {
            if let (Node::Host(_), Node::Switch(leaf)) = (link.a, link.b) {
                let place = &mut of_leaf[leaf as usize];
                link.a = Node::Host(leaf / rails * rack + *place);
                *place += 1;
            }
        }
        Ok(topology)
    }
}

/// Returns the host at which a link ends, if any.
fn host_of(link: &Link) -> Option<u32> {
    match (link.a, link.b) {
        (Node::Host(host), _) | (_, Node::Host(host)) => Some(host),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::gbps(100);

    fn leaf_spine() -> Topology {
        Topology::leaf_spine(2, 2, 4, RATE, RATE, Picos::micros(1), Picos::ZERO)
    }

    fn rails(rails: u32) -> Result<Topology, TopologyError> {
        Topology::rails((4, 2, 3), rails, (RATE, RATE), Picos::micros(1), Picos::ZERO)
    }

    #[test]
    fn planes_are_separate_copies() {
        let one = leaf_spine();
        let two = one.clone().in_planes(2).expect("possible");
        assert_eq!((two.check(), two.hosts, two.planes()), (Ok(()), 8, 2));
        assert_eq!((two.host_rate(), two.total_host_rate()), (RATE, Rate::gbps(200)));
        assert_eq!(two.longest_route(), one.longest_route());
        // Links 12 to 19 are those of the hosts in the second plane.
        assert_eq!(two.port_name(26), "h1->p1.leaf0");
        let planes = two.link_planes();
        assert_eq!(
            [0, 7, 8, 12, 19, 20].map(|link| planes[link]),
            [Some(0), Some(0), None, Some(1), Some(1), None]
        );
        assert_eq!(two.switches_of_plane(0), [0, 1, 2, 3]);
        assert_eq!(two.switches_of_plane(1), [4, 5, 6, 7]);
        assert_eq!(two.switches_of_plane(2), [0u32; 0]);
        assert_eq!(one.clone().in_planes(1).expect("itself"), one);
    }

    #[test]
    fn rails_share_spines_and_divide_leaves() {
        let two = rails(2).expect("possible");
        assert_eq!((two.check(), two.hosts, two.planes()), (Ok(()), 6, 2));
        // Hosts 3 to 5 are below leaves 2 and 3.
        assert_eq!((two.port_name(0), two.port_name(6)), ("h0->leaf0".into(), "h0->leaf1".into()));
        assert_eq!(
            (two.port_name(12), two.port_name(18)),
            ("h3->leaf2".into(), "h3->leaf3".into())
        );
        assert_eq!((two.switches_of_plane(0), two.switches_of_plane(1)), (vec![0, 2], vec![1, 3]));
        assert_eq!(
            rails(1),
            Ok(Topology::leaf_spine(4, 2, 3, RATE, RATE, Picos::micros(1), Picos::ZERO))
        );
        // In one group, packets of a rail cross its leaf alone, and never a spine.
        let one_group = Topology::rails((2, 2, 3), 2, (RATE, RATE), Picos::micros(1), Picos::ZERO)
            .expect("fine");
        assert_eq!(one_group.longest_route().links, 2);
    }

    #[test]
    fn impossible_numbers_are_named() {
        let said = |result: Result<Topology, TopologyError>| result.expect_err("refused").0;
        assert_eq!(said(leaf_spine().in_planes(3)), "3 planes; expected 1, 2, 4, 8 or 16");
        assert_eq!(said(leaf_spine().in_planes(0)), "0 planes; expected 1, 2, 4, 8 or 16");
        assert_eq!(said(rails(32)), "32 rails; expected 1, 2, 4, 8 or 16");
        assert_eq!(said(rails(8)), "4 leaves in groups of 8; give a multiple of the rails");
        let many = leaf_spine().in_planes(8).and_then(|eight| eight.in_planes(4));
        assert_eq!(said(many), "32 planes and rails; expected 1, 2, 4, 8 or 16");
        let mut uneven = leaf_spine().in_planes(2).expect("possible");
        uneven.links.remove(13);
        let error = uneven.check().expect_err("uneven").0;
        assert_eq!(error, "host h1 has 1 links, and h0 has 2; give all hosts as many");
    }
}
