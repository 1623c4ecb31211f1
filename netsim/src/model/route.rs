//! Routing: all shortest routes to every switch with hosts, as groups of equally good ports.

use std::collections::{HashMap, VecDeque};

use super::planes::Planes;
use crate::topology::{Node, Topology};

/// Marks a missing port, a missing group of ports, or an unknown distance.
const NOWHERE: u32 = u32::MAX;

/// The shortest routes of a network: for every switch, the ports that lead nearer to each host.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    planes: Planes,
    /// Index in `edges` of the switch to which each address of a host is connected.
    edge_of: Vec<u32>,
    /// Port by which the last switch sends to each address.
    port_of: Vec<u32>,
    /// The edge switches: all switches that have hosts.
    edges: Vec<u32>,
    /// Group of ports from each switch to each edge switch: an index into `groups`, at place
    /// `switch * edges + edge`.
    table: Vec<u32>,
    /// Start and length in `ports` of each group of equally good ports.
    groups: Vec<(u32, u32)>,
    ports: Vec<u32>,
}

impl Routes {
    /// Computes the shortest routes, counted in links, over the links for which `alive` returns
    /// true.
    #[must_use]
    pub fn new(topology: &Topology, alive: impl Fn(u32) -> bool) -> Self {
        let switches = topology.switches.len();
        let planes = Planes::of(topology);
        let addresses = topology.hosts as usize * planes.count() as usize;
        let mut routes = Self {
            planes,
            edge_of: vec![NOWHERE; addresses],
            port_of: vec![NOWHERE; addresses],
            ..Self::default()
        };
        let mut edge_at = vec![NOWHERE; switches];
        // Ports and neighbours of each sending switch.
        let mut out: Vec<Vec<(u32, u32)>> = vec![Vec::new(); switches];
        let plane_of = topology.link_planes();
        for (link, ends) in (0u32..).zip(&topology.links) {
            match (ends.a, ends.b) {
                (Node::Host(host), Node::Switch(switch))
                | (Node::Switch(switch), Node::Host(host)) => {
                    let edge = &mut edge_at[switch as usize];
                    if *edge == NOWHERE {
                        // There are fewer edges than switches.
                        *edge = routes.edges.len() as u32;
                        routes.edges.push(switch);
                    }
                    let plane = plane_of[link as usize].unwrap_or_default();
                    let address = planes.address(host, plane) as usize;
                    routes.edge_of[address] = *edge;
                    if alive(link) {
                        let down = u32::from(matches!(ends.a, Node::Host(_)));
                        routes.port_of[address] = link * 2 + down;
                    }
                }
                (Node::Switch(a), Node::Switch(b)) if alive(link) => {
                    out[a as usize].push((link * 2, b));
                    out[b as usize].push((link * 2 + 1, a));
                }
                _ => {}
            }
        }
        routes.fill(&out);
        routes
    }

    fn fill(&mut self, out: &[Vec<(u32, u32)>]) {
        let (switches, edges) = (out.len(), self.edges.len());
        self.table = vec![NOWHERE; switches * edges];
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let mut distance = vec![NOWHERE; switches];
        let mut queue = VecDeque::new();
        let mut group = Vec::new();
        for (edge, &root) in self.edges.iter().enumerate() {
            distance.fill(NOWHERE);
            distance[root as usize] = 0;
            queue.push_back(root);
            while let Some(at) = queue.pop_front() {
                for &(_, next) in &out[at as usize] {
                    if distance[next as usize] == NOWHERE {
                        distance[next as usize] = distance[at as usize] + 1;
                        queue.push_back(next);
                    }
                }
            }
            for (at, ports) in out.iter().enumerate() {
                if distance[at] == 0 || distance[at] == NOWHERE {
                    continue;
                }
                group.clear();
                let nearer = |next: u32| distance[next as usize] < distance[at];
                group
                    .extend(ports.iter().filter(|&&(_, next)| nearer(next)).map(|&(port, _)| port));
                let index = match known.get(&group) {
                    Some(&index) => index,
                    None => {
                        let index = self.groups.len() as u32;
                        self.groups.push((self.ports.len() as u32, group.len() as u32));
                        self.ports.extend(&group);
                        known.insert(group.clone(), index);
                        index
                    }
                };
                self.table[at * edges + edge] = index;
            }
        }
    }

    /// Returns the equally good ports of switch `at` towards address `dst` of a host (its number, if
    /// hosts have one link); none if there is no route.
    #[inline]
    #[must_use]
    pub fn ports(&self, at: u32, dst: u32) -> &[u32] {
        let Some(&edge) = self.edge_of.get(dst as usize) else { return &[] };
        if edge == NOWHERE {
            return &[];
        }
        if self.edges[edge as usize] == at {
            let port = &self.port_of[dst as usize];
            return if *port == NOWHERE { &[] } else { core::slice::from_ref(port) };
        }
        let group = self.table[at as usize * self.edges.len() + edge as usize];
        let Some(&(start, len)) = self.groups.get(group as usize) else { return &[] };
        &self.ports[start as usize..(start + len) as usize]
    }

    /// Returns whether there is a route from host `src` to host `dst`, in any plane.
    #[must_use]
    pub fn connected(&self, src: u32, dst: u32) -> bool {
        let of = |host, plane| self.planes.address(host, plane);
        (0..self.planes.count()).any(|plane| self.joined(of(src, plane), of(dst, plane)))
    }

    /// Returns whether there is a route between two addresses of one plane.
    fn joined(&self, src: u32, dst: u32) -> bool {
        let up = [src, dst]
            .iter()
            .all(|&at| self.port_of.get(at as usize).is_some_and(|&port| port != NOWHERE));
        let edge = self.edge_of.get(src as usize).and_then(|&edge| self.edges.get(edge as usize));
        up && edge.is_some_and(|&switch| !self.ports(switch, dst).is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Picos;
    use squall_base::Rate;

    #[test]
    fn all_shortest_ways_and_no_others() {
        let rate = Rate::gbps(100);
        let topology = Topology::leaf_spine(4, 2, 2, rate, rate, Picos::ZERO, Picos::ZERO);
        let routes = Routes::new(&topology, |_| true);
        // The links from number 8 on are leaf 0 to spine 0, leaf 0 to spine 1, leaf 1 to spine 0,
        // and so on.
        assert_eq!(routes.ports(0, 7), [16, 18]);
        // Spine 0 (switch 4) reaches host 7 at leaf 3 by link 8 + 3 * 2, downwards.
        assert_eq!(routes.ports(4, 7), [29]);
        // Leaf 3 reaches its own host 7 by link 7, downwards.
        assert_eq!(routes.ports(3, 7), [15]);
        assert_eq!(routes.ports(3, 99), [0u32; 0]);
        // Without the link of leaf 0 to spine 0, spine 0 reaches host 0 by no route of two links,
        // but by another leaf, spine 1 and leaf 0.
        let routes = Routes::new(&topology, |link| link != 8);
        assert_eq!(routes.ports(0, 7), [18]);
        assert_eq!(routes.ports(1, 0), [22]);
        assert_eq!(routes.ports(4, 0), [21, 25, 29]);
    }
}
