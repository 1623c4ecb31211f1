//! Lengths of routes between hosts.

use std::collections::VecDeque;

use super::{Node, Topology};
use crate::Picos;
use crate::model::Switching;
use squall_base::Rate;

/// Length of a route from one host to another, in links and in latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// Number of links on the route.
    pub links: u32,
    /// Sum of the latencies of the links and switches on the route.
    pub latency: Picos,
}

impl Route {
    /// Returns the round trip without queues of a packet of `there` bytes on the wire and an answer
    /// of `back` bytes. All links are counted at `rate`, as htsim does (`calculate_rtt` of its
    /// `main_uec.cpp`).
    #[must_use]
    pub fn round_trip(self, rate: Rate, there: u32, back: u32, switching: Switching) -> Picos {
        let one_way = |bytes: u32| {
            let at_switch = Picos::transmit(rate, switching.bytes_before(bytes, rate, rate).into());
            let last = Picos::transmit(rate, bytes.into());
            last + at_switch * u64::from(self.links.saturating_sub(1))
        };
        self.latency * 2 + one_way(there) + one_way(back)
    }
}

impl Topology {
    /// Returns the longest of the shortest routes (in links) between any two hosts, in any plane.
    /// Among routes of equal length, the slowest counts.
    #[must_use]
    pub fn longest_route(&self) -> Route {
        let switches = self.switches.len();
        let mut out: Vec<Vec<(u32, Picos)>> = vec![Vec::new(); switches];
        // For each switch, the latency of its slowest host link, and (next line) the number of its
        // hosts.
        let mut hosts: Vec<Option<Picos>> = vec![None; switches];
        let mut count = vec![0u32; switches];
        // A bit for each plane of its hosts' links.
        let mut planes = vec![0u32; switches];
        for (link, plane) in self.links.iter().zip(self.link_planes()) {
            match (link.a, link.b) {
                (Node::Switch(a), Node::Switch(b)) => {
                    out[a as usize].push((b, link.latency));
                    out[b as usize].push((a, link.latency));
                }
                (Node::Host(_), Node::Switch(at)) | (Node::Switch(at), Node::Host(_)) => {
                    let slowest = &mut hosts[at as usize];
                    *slowest = Some(slowest.unwrap_or_default().max(link.latency));
                    count[at as usize] += 1;
                    planes[at as usize] |= 1 << plane.unwrap_or_default();
                }
                _ => {}
            }
        }
        let mut longest = Route::default();
        let mut distance: Vec<Option<Route>> = vec![None; switches];
        let mut queue = VecDeque::new();
        for (root, first) in hosts.iter().enumerate() {
            let Some(first) = *first else { continue };
            distance.fill(None);
            let start = Route { links: 1, latency: first + self.switches[root].latency };
            distance[root] = Some(start);
            queue.push_back(root);
            while let Some(at) = queue.pop_front() {
                let Some(so_far) = distance[at] else { continue };
                for &(next, latency) in &out[at] {
                    let route = Route {
                        links: so_far.links + 1,
                        latency: so_far.latency + latency + self.switches[next as usize].latency,
                    };
                    match &mut distance[next as usize] {
                        None => {
                            distance[next as usize] = Some(route);
                            queue.push_back(next as usize);
                        }
                        Some(known) if known.links == route.links => {
                            known.latency = known.latency.max(route.latency);
                        }
                        Some(_) => {}
                    }
                }
            }
            for (at, last) in hosts.iter().enumerate() {
                let (Some(route), Some(last)) = (distance[at], *last) else { continue };
                if at == root && count[at] < 2 || planes[at] & planes[root] == 0 {
                    continue;
                }
                let whole = Route { links: route.links + 1, latency: route.latency + last };
                if (whole.links, whole.latency) > (longest.links, longest.latency) {
                    longest = whole;
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_links_and_three_switches_through_a_leaf_spine() {
        let (link, switch) = (Picos::nanos(600), Picos::nanos(400));
        let rate = Rate::gbps(800);
        let spine = Topology::leaf_spine(4, 2, 2, rate, rate, link, switch);
        // 4 * 600 + 3 * 400 ns
        assert_eq!(spine.longest_route(), Route { links: 4, latency: Picos::nanos(3600) });
        let star = Topology::star(2, rate, link, switch);
        assert_eq!(star.longest_route(), Route { links: 2, latency: Picos::nanos(1600) });
        let bell = Topology::dumbbell(1, 1, rate, rate, link, switch);
        assert_eq!(bell.longest_route(), Route { links: 3, latency: Picos::nanos(2600) });
    }
}
