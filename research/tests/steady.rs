//! The credit network allocates nothing per cycle. The allocator counts for the whole process, so this file has
//! one test, and no other thread allocates meanwhile.

use core::ops::ControlFlow;
use std::alloc::System;

use squall_base::Rate;
use squall_cc::InjectionConfig;
use squall_netsim::Picos;
use squall_netsim::sim::Observer;
use squall_netsim::topology::Topology;
use squall_research::credit_network::{CreditNetwork, CreditNetworkConfig};
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

/// Returns the number of allocations in the second half of a run, and the cycles of that half.
fn second_half(control: &str) -> (usize, u64) {
    let topology = Topology::mc(64, Rate::gbps(200), Picos::ZERO, Picos::nanos(96));
    let config = CreditNetworkConfig {
        topology: topology.expect("one of its sizes"),
        injection: InjectionConfig::by_name(control).expect("there is one"),
        senders: 64,
        transactions: 128,
        skew: 2000,
        memory: 180,
        answers: None,
        buffer: None,
        seed: 1,
    };
    let run = |from| {
        let mut counter = Counter { from, ..Counter::default() };
        let results = CreditNetwork::new(&config).expect(control).run(&mut counter);
        assert_eq!(results.stopped, None, "{control}");
        (counter, results.cycles)
    };
    let (_, cycles) = run(u64::MAX);
    let (counter, again) = run(cycles / 2);
    assert_eq!(cycles, again, "{control}");
    let first = counter.first.expect("a long run");
    (counter.last.1 - first.1, counter.last.0 - first.0)
}

#[test]
fn a_run_does_not_allocate_per_cycle() {
    for control in ["none", "3cpo"] {
        let (allocations, cycles) = second_half(control);
        assert!(cycles > 20_000, "{control}: {cycles} cycles are too few to judge");
        assert_eq!(allocations, 0, "{control}: {allocations} allocations in {cycles} cycles");
    }
}
