//! Networks and workloads of whole simulations. The tests of `research` include this file: what it uses is what the module
//! around it imports.

use super::{
    Flow, Picos, Rate, Results, SimConfig, Simulation, SquallConfig, Start, Topology, Transport,
    Workload,
};

pub(crate) const US: Picos = Picos::micros(1);

pub(crate) fn flow(id: u32, src: u32, dst: u32, bytes: u64) -> Flow {
    let start = Start::At(0);
    Flow {
        id,
        src,
        dst,
        bytes,
        start,
        on_started: None,
        on_sent: None,
        on_received: None,
        job: 0,
        level: 0,
    }
}

pub(crate) fn workload(hosts: u32, flows: Vec<Flow>) -> Workload {
    Workload { hosts, flows, ..Workload::default() }
}

/// Returns flows in which host `i` sends to host `i + shift`.
pub(crate) fn shifted(hosts: u32, shift: u32, bytes: u64) -> Workload {
    let flows = (0..hosts).map(|host| flow(host + 1, host, (host + shift) % hosts, bytes));
    workload(hosts, flows.collect())
}

pub(crate) fn incast(hosts: u32, bytes: u64) -> Workload {
    workload(hosts, (1..hosts).map(|host| flow(host, host, 0, bytes)).collect())
}

pub(crate) fn star(hosts: u32) -> SimConfig {
    SimConfig::new(Topology::star(hosts, Rate::gbps(100), US, Picos::ZERO))
}

/// Returns a network of four leaves of four hosts and `spines` spines.
pub(crate) fn leaf_spine(spines: u32) -> SimConfig {
    let rate = Rate::gbps(100);
    SimConfig::new(Topology::leaf_spine(4, spines, 4, rate, rate, US, Picos::ZERO))
}

pub(crate) fn squall(config: &mut SimConfig) -> &mut SquallConfig {
    match &mut config.host.transport {
        Transport::Squall(squall) => squall,
        Transport::Roce(_) => panic!("another transport"),
    }
}

pub(crate) fn run(config: &SimConfig, workload: &Workload) -> Results {
    Simulation::new(config, workload).expect("a sound configuration").run(&mut ())
}

/// Checks that every packet that was sent was received, trimmed or dropped, once no packet is in
/// flight.
pub(crate) fn conserved(results: &Results) {
    let totals = &results.totals;
    let sent = totals.packets + totals.retransmitted;
    let accounted = totals.delivered + totals.dropped + totals.trimmed;
    // A trimmed packet may be dropped later, and the last copies may still be in flight.
    assert!(accounted <= sent + totals.control_dropped, "{totals:?}");
    assert!(sent <= accounted + totals.under_way, "{totals:?}");
}
