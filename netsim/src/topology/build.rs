//! Small topologies: star, dumbbell, leaf-spine and the accelerators of Snyder's thesis.

use super::{Link, Node, Switch, Topology};
use crate::Picos;
use squall_base::Rate;

impl Topology {
    /// Returns a star: `hosts` hosts around one switch.
    #[must_use]
    pub fn star(hosts: u32, rate: Rate, latency: Picos, switch_latency: Picos) -> Self {
        let switches = vec![Switch { name: "star".into(), latency: switch_latency, tier: 0 }];
        let links = (0..hosts)
            .map(|host| Link { a: Node::Host(host), b: Node::Switch(0), rate, latency })
            .collect();
        Self { hosts, switches, links }
    }

    /// Returns a dumbbell: `left` hosts on one switch, `right` on another, and one link of rate
    /// `middle` between the two. Hosts on the left have the lower numbers.
    #[must_use]
    pub fn dumbbell(
        left: u32,
        right: u32,
        rate: Rate,
        middle: Rate,
        latency: Picos,
        switch_latency: Picos,
    ) -> Self {
        let switch = |name: &str| Switch { name: name.into(), latency: switch_latency, tier: 0 };
        let mut links: Vec<Link> = (0..left + right)
            .map(|host| {
                let b = Node::Switch(u32::from(host >= left));
                Link { a: Node::Host(host), b, rate, latency }
            })
            .collect();
        links.push(Link { a: Node::Switch(0), b: Node::Switch(1), rate: middle, latency });
        Self { hosts: left + right, switches: vec![switch("left"), switch("right")], links }
    }

    /// Returns a leaf-spine network: `leaves` switches of `hosts_per_leaf` hosts, each connected to
    /// each of `spines` switches.
    #[must_use]
    pub fn leaf_spine(
        leaves: u32,
        spines: u32,
        hosts_per_leaf: u32,
        rate: Rate,
        uplink: Rate,
        latency: Picos,
        switch_latency: Picos,
    ) -> Self {
        let hosts = leaves * hosts_per_leaf;
        let switch = |name: String, tier| Switch { name, latency: switch_latency, tier };
        let mut switches: Vec<Switch> =
            (0..leaves).map(|leaf| switch(format!("leaf{leaf}"), 0)).collect();
        switches.extend((0..spines).map(|spine| switch(format!("spine{spine}"), 1)));
        let mut links: Vec<Link> = (0..hosts)
            .map(|host| {
                let leaf = Node::Switch(host / hosts_per_leaf);
                Link { a: Node::Host(host), b: leaf, rate, latency }
            })
            .collect();
        for leaf in 0..leaves {
            for spine in 0..spines {
                let (a, b) = (Node::Switch(leaf), Node::Switch(leaves + spine));
                links.push(Link { a, b, rate: uplink, latency });
            }
        }
        Self { hosts, switches, links }
    }

    /// Returns the accelerators of Snyder's thesis, section 6.3.1: eight to a switch, as many links
    /// up as down, 64 below four upper switches or 128 below 16. Returns `None` for another number.
    #[must_use]
    pub fn mc(hosts: u32, rate: Rate, latency: Picos, switch_latency: Picos) -> Option<Self> {
        // The last number is that of the links between two switches. 128 hosts have twice the links
        // up: every switch is connected to every upper one.
        let (leaves, spines, bundle) = match hosts {
            64 => (8, 4, 2),
            128 => (16, 16, 1),
            _ => return None,
        };
        let mut topology = Self::leaf_spine(leaves, spines, 8, rate, rate, latency, switch_latency);
        let between = topology.links.split_off(hosts as usize);
        topology.links.extend(between.into_iter().flat_map(|link| (0..bundle).map(move |_| link)));
        Some(topology)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_are_sound() {
        let (rate, latency) = (Rate::gbps(100), Picos::micros(1));
        let star = Topology::star(4, rate, latency, Picos::ZERO);
        assert_eq!((star.links.len(), star.check()), (4, Ok(())));
        let bell = Topology::dumbbell(2, 3, rate, Rate::gbps(40), latency, Picos::ZERO);
        assert_eq!((bell.links.len(), bell.check()), (6, Ok(())));
        assert_eq!(bell.port_name(10), "left->right");
        let spine = Topology::leaf_spine(4, 2, 2, rate, rate, latency, Picos::ZERO);
        assert_eq!((spine.hosts, spine.links.len(), spine.check()), (8, 16, Ok(())));
        // Link 8 is the first after those of the hosts: leaf 0 to spine 0.
        assert_eq!(
            (spine.port_name(16), spine.port_name(17)),
            ("leaf0->spine0".into(), "spine0->leaf0".into())
        );
        assert_eq!(spine.host_rate(), rate);
    }

    #[test]
    fn accelerators_have_a_link_up_each_at_least() {
        let build = |hosts| Topology::mc(hosts, Rate::gbps(200), Picos::ZERO, Picos::nanos(96));
        for (hosts, leaves, spines, up) in [(64, 8, 4, 8), (128, 16, 16, 16)] {
            let mc = build(hosts).expect("one of the two");
            assert_eq!((mc.hosts, mc.check()), (hosts, Ok(())));
            assert_eq!(mc.switches.len(), leaves + spines);
            assert_eq!(mc.links.len(), hosts as usize + leaves * up);
        }
        assert_eq!(build(32), None);
    }

    #[test]
    fn impossible_ones_are_named() {
        let mut star = Topology::star(3, Rate::gbps(1), Picos::ZERO, Picos::ZERO);
        star.links.pop();
        assert_eq!(star.check().unwrap_err().0, "host h2 has 0 links; connect it to a switch");
        let one = Topology::star(1, Rate::gbps(1), Picos::ZERO, Picos::ZERO);
        assert_eq!(one.check().unwrap_err().0, "a network of 1 hosts; at least 2 are needed");
    }
}
