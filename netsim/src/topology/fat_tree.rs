//! Fat trees of two and three tiers, in the terms of htsim's `.topo` files.

use super::{Link, MOST_HOSTS, Node, Switch, Topology, TopologyError};
use crate::Picos;
use squall_base::Rate;

/// The switches of one tier, and the links below them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Ratio of a switch's bandwidth towards the hosts to that towards the core; 1 at the top.
    pub oversubscribed: u32,
    /// Rate of the links to the tier below (to the hosts, for tier 0).
    pub downlink: Rate,
    /// Number of ports of a switch towards the hosts.
    pub radix_down: u32,
    /// Number of ports of a switch towards the core; 0 at the top.
    pub radix_up: u32,
    /// Latency of the links to the tier below.
    pub downlink_latency: Picos,
    /// Latency of the switches of this tier.
    pub switch_latency: Picos,
    /// Number of parallel links to each switch of the tier below.
    pub bundle: u32,
    /// Queue of a port towards the core, bytes, if the file specifies it.
    pub queue_up: Option<u64>,
    /// Queue of a port towards the hosts, bytes, if the file specifies it.
    pub queue_down: Option<u64>,
}

/// A fat tree of two or three tiers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FatTree {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of hosts in a pod; all of them in a tree of two tiers.
    pub pod_hosts: u32,
    /// Tiers of switches, two or three, from the hosts up.
    pub tiers: Vec<Tier>,
}

/// Returns `a / b`, or an error if it is not a positive whole number.
fn divide(a: u64, b: u64, what: &str) -> Result<u64, TopologyError> {
    if b == 0 || a == 0 || !a.is_multiple_of(b) {
        return Err(TopologyError(format!("{what}: {a} / {b} is not a positive whole number")));
    }
    Ok(a / b)
}

impl FatTree {
    /// Returns the number of switches of each tier, from the hosts up.
    ///
    /// # Errors
    /// Returns an error if numbers do not fit each other, or if there are too many hosts or
    /// switches.
    pub fn switches(&self) -> Result<Vec<u32>, TopologyError> {
        let most = u64::from(MOST_HOSTS);
        if self.hosts > MOST_HOSTS {
            return Err(TopologyError(format!(
                "{} hosts; at most {most} are possible",
                self.hosts
            )));
        }
        let counts = self.count()?;
        // The links of hosts, of ToRs, and of the tiers above are below 2^24 times 2^16 each, so
        // the sum does not overflow.
        let ups =
            counts.iter().zip(&self.tiers).map(|(count, tier)| count * u64::from(tier.radix_up));
        let links = u64::from(self.hosts) + ups.sum::<u64>();
        Topology::fits(links)?;
        let small = |&count: &u64| u32::try_from(count).ok().filter(|&count| count <= MOST_HOSTS);
        match counts.iter().map(small).collect() {
            Some(counts) => Ok(counts),
            None => Err(TopologyError(format!(
                "tiers of {counts:?} switches; at most {most} switches a tier are possible"
            ))),
        }
    }

    fn count(&self) -> Result<Vec<u64>, TopologyError> {
        let bad = |text: String| Err(TopologyError(text));
        let tiers = &self.tiers[..];
        if !matches!(tiers.len(), 2 | 3) {
            return bad(format!("a fat tree of {} tiers; 2 or 3 are possible", tiers.len()));
        }
        for (index, tier) in tiers.iter().enumerate() {
            if tier.downlink.0 == 0 {
                return bad(format!("tier {index}: a downlink speed of 0; expected more"));
            }
            if tier.bundle == 0 {
                return bad(format!("tier {index}: a bundle of 0 links; at least 1 is needed"));
            }
            if tier.radix_down.max(tier.radix_up).max(tier.bundle) > 65_535 {
                return bad(format!(
                    "tier {index}: a radix or bundle above 65535, the most possible"
                ));
            }
        }
        let [hosts, pod_hosts] = [self.hosts, self.pod_hosts].map(u64::from);
        let down = |tier: usize| u64::from(tiers[tier].radix_down);
        let up = |tier: usize| u64::from(tiers[tier].radix_up);
        let bundle = |tier: usize| u64::from(tiers[tier].bundle);
        let tors = divide(hosts, down(0), "hosts / radix down of tier 0")?;
        let second = divide(up(0), bundle(1), "radix up of tier 0 / bundle of tier 1")?;
        if tiers.len() == 2 {
            // Every ToR reaches every spine by `bundle` links.
            let needed = tors * bundle(1);
            if down(1) != needed {
                return bad(format!(
                    "tier 1 has radix down {}, but {tors} ToRs need {needed}",
                    down(1)
                ));
            }
            return Ok(vec![tors, second]);
        }
        let pods = divide(hosts, pod_hosts, "hosts / pod size")?;
        let pod_tors = divide(pod_hosts, down(0), "pod size / radix down of tier 0")?;
        let needed = pod_tors * bundle(1);
        if down(1) != needed {
            return bad(format!(
                "tier 1 has radix down {}, but {pod_tors} ToRs a pod need {needed}",
                down(1)
            ));
        }
        divide(up(1), bundle(2), "radix up of tier 1 / bundle of tier 2")?;
        // The product does not overflow: there are below 2^24 pods, 2^16 switches in each, and 2^16
        // uplinks of each.
        let ups = pods * second * up(1);
        let cores = divide(ups, down(2), "uplinks of tier 1 / radix down of tier 2")?;
        Ok(vec![tors, pods * second, cores])
    }

    /// Returns the topology. ToRs come first among the switches, then aggregation switches, then
    /// cores. The links of the hosts come first among the links, then those of tier 1, then those
    /// of tier 2.
    ///
    /// # Errors
    /// Returns an error if numbers do not fit each other.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let counts = self.switches()?;
        let tiers = &self.tiers[..];
        let names: [&str; 3] =
            if tiers.len() == 2 { ["leaf", "spine", ""] } else { ["tor", "agg", "core"] };
        let mut topology = Topology { hosts: self.hosts, ..Topology::default() };
        for (tier, &count) in counts.iter().enumerate() {
            topology.switches.extend((0..count).map(|index| Switch {
                name: format!("{}{index}", names[tier]),
                latency: tiers[tier].switch_latency,
                // The index is at most two.
                tier: tier as u8,
            }));
        }
        let mut connect = |a: Node, b: u32, tier: usize| {
            let (rate, latency) = (tiers[tier].downlink, tiers[tier].downlink_latency);
            topology.links.push(Link { a, b: Node::Switch(b), rate, latency });
        };
        for host in 0..self.hosts {
            connect(Node::Host(host), host / tiers[0].radix_down, 0);
        }
        let (tors, second) = (counts[0], counts[1]);
        if tiers.len() == 2 {
            for tor in 0..tors {
                for spine in 0..second {
                    for _ in 0..tiers[1].bundle {
                        connect(Node::Switch(tor), tors + spine, 1);
                    }
                }
            }
            return Ok(topology);
        }
        let pods = self.hosts / self.pod_hosts;
        let (pod_tors, pod_aggs) = (tors / pods, second / pods);
        for tor in 0..tors {
            let pod = tor / pod_tors;
            for agg in 0..pod_aggs {
                for _ in 0..tiers[1].bundle {
                    connect(Node::Switch(tor), tors + pod * pod_aggs + agg, 1);
                }
            }
        }
        let cores = counts[2];
        let reach = tiers[1].radix_up / tiers[2].bundle;
        for agg in 0..second {
            // Each aggregation switch of a pod has its own share of the cores, the same in all
            // pods.
            let first = (agg % pod_aggs) * reach;
            for up in 0..reach {
                for _ in 0..tiers[2].bundle {
                    connect(Node::Switch(tors + agg), tors + second + (first + up) % cores, 2);
                }
            }
        }
        Ok(topology)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(down: u32, up: u32) -> Tier {
        Tier {
            oversubscribed: 1,
            downlink: Rate::gbps(100),
            radix_down: down,
            radix_up: up,
            downlink_latency: Picos::micros(1),
            switch_latency: Picos::ZERO,
            bundle: 1,
            queue_up: None,
            queue_down: None,
        }
    }

    #[test]
    fn the_128_host_tree_of_htsim() {
        let tree =
            FatTree { hosts: 128, pod_hosts: 16, tiers: vec![tier(4, 4), tier(4, 4), tier(8, 0)] };
        // The tree has 128/4 ToRs, 8 pods of 4 aggregation switches, and 32 * 4 / 8 cores.
        assert_eq!(tree.switches(), Ok(vec![32, 32, 16]));
        let topology = tree.build().unwrap();
        assert_eq!(topology.check(), Ok(()));
        assert_eq!(topology.links.len(), 128 * 3);
        // A core has one link to each pod.
        let mut degree = vec![0; topology.switches.len()];
        for link in &topology.links[256..] {
            let Node::Switch(core) = link.b else { panic!("{link:?}") };
            degree[core as usize] += 1;
        }
        assert!(degree[64..].iter().all(|&links| links == 8));
    }

    #[test]
    fn a_leaf_spine_is_a_tree_of_two_tiers() {
        let tree = FatTree { hosts: 16, pod_hosts: 16, tiers: vec![tier(4, 2), tier(4, 0)] };
        assert_eq!(tree.switches(), Ok(vec![4, 2]));
        assert_eq!(tree.build().unwrap().links.len(), 16 + 8);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_refused() {
        let tiers = vec![tier(1, 65_535), tier(1, 65_535), tier(1, 0)];
        let tree = FatTree { hosts: 1_000, pod_hosts: 1, tiers: tiers.clone() };
        assert!(tree.switches().unwrap_err().0.ends_with("links; at most 16777215 are possible"));
        let tree = FatTree { hosts: u32::MAX, pod_hosts: 1, tiers };
        assert_eq!(
            tree.switches().unwrap_err().0,
            "4294967295 hosts; at most 16777215 are possible"
        );
    }

    #[test]
    fn numbers_that_do_not_fit_are_named() {
        let tree =
            FatTree { hosts: 126, pod_hosts: 16, tiers: vec![tier(4, 4), tier(4, 4), tier(8, 0)] };
        let error = tree.build().unwrap_err().0;
        assert_eq!(error, "hosts / radix down of tier 0: 126 / 4 is not a positive whole number");
    }
}
