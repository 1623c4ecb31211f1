//! Values that follow from topology and workload alone: round trips without queues, and the time
//! that no transport can beat.

use std::collections::HashMap;

use crate::Picos;
use crate::model::Switching;
use crate::topology::{Node, Topology};
use crate::workload::Workload;
use squall_base::Rate;

/// Bytes of an acknowledgement on the wire, for round trips.
const ACK_BYTES: u64 = 64;

/// Rates and times of a topology and its workload that are known before the simulation runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    /// Longest round trip of any flow without queues: a full packet to the destination, an ACK
    /// back.
    pub base_rtt: Picos,
    /// Rate at which a host sends over all of its links: that of the slowest host link, or of slower
    /// network cards, times the number of its links.
    pub line: Rate,
    /// Time from the first start to the earliest possible last completion. It is the time in which
    /// the busiest host or cut transmits its load, plus the shortest round trip of a flow that
    /// crosses it.
    pub ideal: Picos,
    /// Time that each flow of the workload takes alone, as slowdowns count it (HPCC's simulator):
    /// the round trip of its hosts without queues, plus the transmission of its bytes with headers
    /// at [`Facts::line`]; `None` if there is no route.
    pub time_alone: Vec<Option<Picos>>,
}

impl Facts {
    /// Computes the values of a workload on a topology, in packets of `mtu` bytes of which `header`
    /// are headers, from hosts that send at `line`, through switches of this kind.
    #[must_use]
    pub fn new(
        topology: &Topology,
        workload: &Workload,
        mtu: u32,
        header: u32,
        line: Rate,
        switching: Switching,
    ) -> Self {
        let graph = Graph::new(topology, switching);
        let mut round_trips = HashMap::new();
        let mut memo = HashMap::new();
        for flow in &workload.flows {
            round_trips.entry((flow.src, flow.dst)).or_insert_with(|| {
                let mut of = |bytes| graph.round_trip(flow.src, flow.dst, bytes, &mut memo);
                Some((of(ACK_BYTES as u32)?, of(mtu)?))
            });
        }
        let base_rtt = round_trips
            .values()
            .flatten()
            .map(|(_, full)| full)
            .max()
            .copied()
            .unwrap_or(Picos::ZERO);
        let payload = u64::from(mtu.saturating_sub(header).max(1));
        let mut loads: HashMap<Cut, (u64, Picos)> = HashMap::new();
        let mut time_alone = Vec::with_capacity(workload.flows.len());
        for flow in &workload.flows {
            let headers = flow.bytes.div_ceil(payload).saturating_mul(header.into());
            let wire = flow.bytes.saturating_add(headers);
            let round_trip = round_trips[&(flow.src, flow.dst)];
            time_alone.push(round_trip.map(|(_, full)| full + Picos::transmit(line, wire)));
            let Some((small, full)) = round_trip else { continue };
            // A flow of less than a packet takes less time: time on links grows with bytes.
            let packet = wire.min(mtu.into());
            let more = u128::from((full - small).0) * u128::from(packet.saturating_sub(ACK_BYTES));
            // The quotient is at most the difference itself.
            let more = (more / u128::from(u64::from(mtu).saturating_sub(ACK_BYTES).max(1))) as u64;
            // The transmission of the last packet is also part of the load, so it is subtracted
            // here.
            let beyond = small + Picos(more) - Picos::transmit(topology.host_rate(), packet);
            for cut in graph.crossed(flow.src, flow.dst) {
                let (bytes, shortest) = loads.entry(cut).or_insert((0, Picos::NEVER));
                *bytes = bytes.saturating_add(wire);
                *shortest = (*shortest).min(beyond);
            }
        }
        let ideal = loads
            .iter()
            .map(|(cut, &(bytes, shortest))| {
                let rate = match cut {
                    Cut::Host { out: true, .. } => graph.capacity(*cut).min(line),
                    _ => graph.capacity(*cut),
                };
                Picos::transmit(rate, bytes) + shortest
            })
            .max()
            .unwrap_or(Picos::ZERO);
        Self { base_rtt, line, ideal, time_alone }
    }
}

/// Returns the longest round trip without queues between any two hosts: a full packet to the
/// destination, an ACK back.
#[must_use]
pub fn base_rtt(topology: &Topology, mtu: u32, switching: Switching) -> Picos {
    let graph = Graph::new(topology, switching);
    let mut memo = HashMap::new();
    // The two hosts that are furthest from their switch represent all hosts of the switch.
    let mut farthest: HashMap<u32, Vec<(Picos, u32)>> = HashMap::new();
    for host in 0..topology.hosts {
        if let Some((tor, latency, _)) = graph.access[host as usize] {
            let far = farthest.entry(tor).or_default();
            far.push((latency, host));
            far.sort_by_key(|&(latency, host)| (std::cmp::Reverse(latency), host));
            far.truncate(2);
        }
    }
    let mut hosts: Vec<u32> = farthest.into_values().flatten().map(|(_, host)| host).collect();
    hosts.sort_unstable();
    let first = hosts.first().copied().unwrap_or(0);
    // Trees look the same from every host; other graphs may not, so a few hosts are tried.
    let from = hosts.iter().copied().step_by((hosts.len() / 16).max(1)).chain([first]);
    from.flat_map(|src| hosts.iter().map(move |&dst| (src, dst)))
        .filter(|(src, dst)| src != dst)
        .filter_map(|(src, dst)| graph.round_trip(src, dst, mtu, &mut memo))
        .max()
        .unwrap_or(Picos::ZERO)
}

/// A set of links that a flow cannot avoid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cut {
    /// The link of a host, in one direction.
    Host { host: u32, out: bool },
    /// The links out of, or into, a group of switches that are connected below a tier.
    Group { tier: u8, group: u32, out: bool },
}

/// Latency and transmission time of a full packet and of an ACK along a route, and the rates of its first and its last
/// link between switches, if it has any.
type RouteTime = (Picos, Picos, Option<(Rate, Rate)>);

struct Graph<'a> {
    topology: &'a Topology,
    switching: Switching,
    /// Switch of each host, with latency and rate of the host's link; of several links the first,
    /// which stands for all planes.
    access: Vec<Option<(u32, Picos, Rate)>>,
    /// Rate of each host's links together.
    rates: Vec<Rate>,
    /// Neighbours of each switch: (other switch, latency and rate of the link).
    neighbours: Vec<Vec<(u32, Picos, Rate)>>,
    /// Groups of switches that are connected without higher tiers, for each tier but the highest:
    /// the group of each switch, and the rate out of each group in bits per second.
    groups: Vec<(Vec<u32>, Vec<u64>)>,
}

impl<'a> Graph<'a> {
    fn new(topology: &'a Topology, switching: Switching) -> Self {
        let switches = topology.switches.len();
        let mut access: Vec<Option<(u32, Picos, Rate)>> = vec![None; topology.hosts as usize];
        let mut rates = vec![Rate::default(); topology.hosts as usize];
        let mut neighbours = vec![Vec::new(); switches];
        // Switches with links of the same host.
        let mut siblings = vec![Vec::new(); switches];
        for link in &topology.links {
            match (link.a, link.b) {
                (Node::Host(host), Node::Switch(switch))
                | (Node::Switch(switch), Node::Host(host)) => {
                    let of_host = &mut access[host as usize];
                    let (first, ..) = *of_host.get_or_insert((switch, link.latency, link.rate));
                    if first != switch {
                        siblings[first as usize].push(switch);
                        siblings[switch as usize].push(first);
                    }
                    let sum = &mut rates[host as usize];
                    sum.0 = sum.0.saturating_add(link.rate.0);
                }
                (Node::Switch(a), Node::Switch(b)) => {
                    neighbours[a as usize].push((b, link.latency, link.rate));
                    neighbours[b as usize].push((a, link.latency, link.rate));
                }
                (Node::Host(_), Node::Host(_)) => {}
            }
        }
        let top = topology.switches.iter().map(|switch| switch.tier).max().unwrap_or(0);
        let groups =
            (0..top.max(1)).map(|tier| group(topology, &neighbours, &siblings, tier)).collect();
        Self { topology, switching, access, rates, neighbours, groups }
    }

    /// Returns the time of a full packet to the destination and an ACK back on the shortest route,
    /// without queues; `None` if there is no route.
    fn round_trip(
        &self,
        src: u32,
        dst: u32,
        mtu: u32,
        memo: &mut HashMap<(u32, u32), Vec<Option<RouteTime>>>,
    ) -> Option<Picos> {
        let (from, up, up_rate) = self.access[src as usize]?;
        let (to, down, down_rate) = self.access[dst as usize]?;
        let routes = memo.entry((from, mtu)).or_insert_with(|| self.routes(from, mtu));
        let (packet, ack, inner) = routes[to as usize]?;
        let hop = |rate, bytes| Picos::transmit(rate, bytes);
        let mtu = u64::from(mtu);
        let there = up + down + packet + hop(up_rate, mtu) + hop(down_rate, mtu);
        let saved = match inner {
            Some((first, last)) => {
                self.saved(mtu, up_rate, first) + self.saved(mtu, last, down_rate)
            }
            None => self.saved(mtu, up_rate, down_rate),
        };
        let back = up + down + ack + hop(up_rate, ACK_BYTES) + hop(down_rate, ACK_BYTES);
        Some(there - saved + back)
    }

    /// Returns the time by which a switch sends a packet of `mtu` bytes on before it has arrived.
    fn saved(&self, mtu: u64, from: Rate, to: Rate) -> Picos {
        let seen = self.switching.bytes_before(mtu as u32, from, to);
        Picos::transmit(from, mtu) - Picos::transmit(from, seen.into())
    }

    /// Returns the time of the route from `from` to every switch, its own latency included. The
    /// route has the fewest hops (as routing chooses) and, among these, the shortest time.
    fn routes(&self, from: u32, mtu: u32) -> Vec<Option<RouteTime>> {
        let mut routes: Vec<Option<RouteTime>> = vec![None; self.neighbours.len()];
        let latency = |switch: u32| self.topology.switches[switch as usize].latency;
        routes[from as usize] = Some((latency(from), latency(from), None));
        let mut front = vec![from];
        while !front.is_empty() {
            let mut next: HashMap<u32, RouteTime> = HashMap::new();
            for &at in &front {
                let Some((packet, ack, inner)) = routes[at as usize] else { continue };
                for &(to, link, rate) in &self.neighbours[at as usize] {
                    if routes[to as usize].is_some() {
                        continue;
                    }
                    let more = link + latency(to);
                    let saved = inner.map(|(_, last)| self.saved(mtu.into(), last, rate));
                    let route = (
                        packet - saved.unwrap_or_default()
                            + more
                            + Picos::transmit(rate, mtu.into()),
                        ack + more + Picos::transmit(rate, ACK_BYTES),
                        Some((inner.map_or(rate, |(first, _)| first), rate)),
                    );
                    let known = next.entry(to).or_insert(route);
                    *known = route.min(*known);
                }
            }
            for (&switch, &route) in &next {
                routes[switch as usize] = Some(route);
            }
            front = next.into_keys().collect();
        }
        routes
    }

    /// Returns the cuts that a flow between two hosts crosses: the links of both hosts, the links
    /// out of the groups of switches at the source, and those into the groups at the destination.
    fn crossed(&self, src: u32, dst: u32) -> impl Iterator<Item = Cut> {
        let ends = self.access[src as usize].zip(self.access[dst as usize]);
        let groups = self.groups.iter().zip(0u8..).filter_map(move |((group, _), tier)| {
            let ((from, ..), (to, ..)) = ends?;
            let (from, to) = (group[from as usize], group[to as usize]);
            let cut = |group, out| Cut::Group { tier, group, out };
            (from != to).then(|| [cut(from, true), cut(to, false)])
        });
        let hosts = [Cut::Host { host: src, out: true }, Cut::Host { host: dst, out: false }];
        hosts.into_iter().chain(groups.flatten())
    }

    fn capacity(&self, cut: Cut) -> Rate {
        match cut {
            Cut::Host { host, .. } => self.rates[host as usize],
            Cut::Group { tier, group, .. } => Rate(self.groups[tier as usize].1[group as usize]),
        }
    }
}

/// Returns the groups of switches of tiers up to `tier` that are connected without higher tiers, or
/// by a host, and the rate out of each group. If there is only one tier, each switch is a group with
/// those that have links of the same hosts.
fn group(
    topology: &Topology,
    neighbours: &[Vec<(u32, Picos, Rate)>],
    siblings: &[Vec<u32>],
    tier: u8,
) -> (Vec<u32>, Vec<u64>) {
    let tiers: Vec<u8> = topology.switches.iter().map(|switch| switch.tier).collect();
    let flat = tiers.iter().all(|&tier| tier == 0);
    let joined = |a: u32, b: u32| !flat && tiers[a as usize] <= tier && tiers[b as usize] <= tier;
    let mut groups = vec![u32::MAX; neighbours.len()];
    let mut count = 0;
    for start in 0..neighbours.len() {
        if groups[start] != u32::MAX {
            continue;
        }
        let mut stack = vec![start as u32];
        groups[start] = count;
        while let Some(at) = stack.pop() {
            let below = neighbours[at as usize].iter().map(|&(to, ..)| to);
            let below = below.filter(|&to| joined(at, to));
            for to in below.chain(siblings[at as usize].iter().copied()) {
                if groups[to as usize] == u32::MAX {
                    groups[to as usize] = count;
                    stack.push(to);
                }
            }
        }
        count += 1;
    }
    let mut out = vec![0u64; count as usize];
    for (from, links) in neighbours.iter().enumerate() {
        for &(to, _, rate) in links {
            if groups[from] != groups[to as usize] {
                let sum = &mut out[groups[from] as usize];
                *sum = sum.saturating_add(rate.0);
            }
        }
    }
    (groups, out)
}

/// Returns the grouping of hosts for workload generators: hosts of one switch are a rack, and hosts
/// that are connected below the top tier are a pod. The groups of host 0 represent all.
#[must_use]
pub fn layout(topology: &Topology) -> crate::workload::Layout {
    let graph = Graph::new(topology, Switching::default());
    let switch = |host: usize| graph.access[host].map(|route| route.0);
    let like_first = |same: &dyn Fn(u32, u32) -> bool| {
        let Some(first) = graph.access.first().copied().flatten() else { return topology.hosts };
        let hosts = 0..topology.hosts;
        let count =
            hosts.filter(|&host| switch(host as usize).is_some_and(|at| same(at, first.0))).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let rack = like_first(&|a, b| a == b);
    let pod = match graph.groups.last() {
        Some((groups, _)) => like_first(&|a, b| groups[a as usize] == groups[b as usize]),
        None => rack,
    };
    let line_bps = topology.total_host_rate().0;
    crate::workload::Layout { hosts: topology.hosts, rack, pod, line_bps }
}
