//! Nothing is allocated per event. The allocator counts; there is one test here, so that no other thread
//! allocates meanwhile.
//!
//! What remains in the second half of a run, a few allocations in 100 000 events, are queues of ports,
//! rings of contexts and the event wheel's pool that reach a new maximum and double. Their number grows
//! with the logarithm of the longest queue, not with events: eight times the events bring half as many
//! again.

use core::ops::ControlFlow;
use std::alloc::System;

use squall_base::Rate;
use squall_netsim::sim::{
    End, Observer, RoceConfig, SimConfig, Simulation, SquallConfig, Transport,
};
use squall_netsim::topology::Topology;
use squall_netsim::workload::{Apart, Layout, Pattern, Spec, Workload};
use squall_netsim::{Bytes, Picos};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Times that memory was asked for, so far.
fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Counts from event `from` on.
#[derive(Default)]
struct Counter {
    from: u64,
    /// Events and allocations when it began, and when it looked last.
    first: Option<(u64, usize)>,
    last: (u64, usize),
}

impl Observer for Counter {
    fn progress(&mut self, _now: Picos, _finished: usize, events: u64) -> ControlFlow<()> {
        if events >= self.from {
            self.last = (events, allocations());
            self.first.get_or_insert(self.last);
        }
        ControlFlow::Continue(())
    }
}

/// Allocations in the second half of a simulation, and the events of it.
fn second_half(name: &str, config: &SimConfig, workload: &Workload) -> (usize, u64) {
    let run = |from| {
        let mut counter = Counter { from, ..Counter::default() };
        let results = Simulation::new(config, workload).expect(name).run(&mut counter);
        assert_eq!(results.end, End::Done, "{name}");
        (counter, results.totals)
    };
    let (_, totals) = run(u64::MAX);
    let (counter, again) = run(totals.events / 2);
    assert_eq!(totals.trimmed, again.trimmed, "{name}");
    let first = counter.first.expect("a long run");
    (counter.last.1 - first.1, counter.last.0 - first.0)
}

fn squall(cc: &str, topology: &Topology) -> SimConfig {
    let mut config = SimConfig::new(topology.clone());
    config.host.transport = Transport::Squall(SquallConfig { cc: cc.into(), ..Default::default() });
    config
}

#[test]
fn a_simulation_in_its_stride_does_not_allocate_per_event() {
    let rate = Rate::gbps(100);
    // Two of three packets find no place on the way up.
    let narrow = Topology::leaf_spine(4, 2, 6, rate, rate, Picos::micros(1), Picos::ZERO);
    let wide = Topology::leaf_spine(4, 6, 6, rate, rate, Picos::micros(1), Picos::ZERO);
    let permutation = |bytes| {
        let pattern = Pattern::Permutation {
            bytes: Bytes(bytes),
            parallel: 1,
            larger: None,
            apart: Apart::Hosts,
        };
        Spec::new(pattern).generate(&Layout::flat(24), 1).expect("a permutation")
    };
    let mut roce = SimConfig::new(narrow.clone());
    roce.host.transport = Transport::Roce(RoceConfig::default());
    roce.network.lossless = true;
    let mut telemetry = squall("nscc", &wide);
    telemetry.network.telemetry = true;
    let mut hpcc = squall("hpcc:queues=64,vai=1,sf=30", &wide);
    hpcc.network.telemetry = true;
    let cases = [
        ("nscc", squall("nscc", &wide), 8_000_000),
        ("nscc, trimmed", squall("nscc", &narrow), 8_000_000),
        ("nscc, telemetry", telemetry, 8_000_000),
        ("hpcc", hpcc, 8_000_000),
        ("eqds", squall("eqds", &wide), 8_000_000),
        ("eqds, trimmed", squall("eqds", &narrow), 4_000_000),
        ("roce", roce, 8_000_000),
    ];
    for (name, config, bytes) in cases {
        let (allocations, events) = second_half(name, &config, &permutation(bytes));
        assert!(events > 100_000, "{name}: {events} events are not many");
        assert!(allocations <= 64, "{name}: {allocations} allocations in {events} events");
    }
}
