//! Whole simulations with the switch features of this crate.

use squall_base::Rate;
use squall_netsim::Picos;
use squall_netsim::model::Marks;
use squall_netsim::sim::{
    End, Results, RoceConfig, SimConfig, Simulation, SquallConfig, Transport,
};
use squall_netsim::topology::Topology;
use squall_netsim::workload::{Flow, Start, Workload};

#[path = "../../netsim/src/sim/tests/networks.rs"]
mod networks;

use networks::{US, conserved, flow, incast, leaf_spine, run, shifted, squall, star, workload};

/// Rates of all flows at a sample taken `us` microseconds from the start, in tenths of Gb/s.
fn rates_at(results: &Results, us: usize) -> Vec<u64> {
    let windows = &results.series.windows;
    windows.iter().map(|series| (series.rate[us] + 50_000_000) / 100_000_000).collect()
}

/// A network whose switches compute rates, and drop nothing otherwise; flows have samples.
fn rated(mut config: SimConfig, cc: &str) -> SimConfig {
    squall_research::register();
    config.network.features = Some("rates".parse().expect("a list"));
    config.network.trimming = Some(false);
    config.network.queue_bdp = Some(100.0);
    config.network.ecn = Some(Marks::NONE);
    squall(&mut config).cc = cc.into();
    squall(&mut config).loss = "rto".into();
    config.observe.windows = Some(US);
    config
}

/// s-PERC: rates are max-min fair whatever links limit whom, and others take what those who are done had; queues stay empty.
#[test]
fn switches_compute_rates_and_flows_obey_them() {
    let mut config = rated(leaf_spine(4), "sperc");
    config.observe.queues = Some(US);
    // Hosts 4 to 9 to host 0, and host 4 to host 5 below the same leaf: a sixth for six flows, the rest of host 4's link for
    // the seventh.
    let mut flows: Vec<Flow> = (4..10).map(|host| flow(host, host, 0, 1_500_000)).collect();
    flows.push(flow(10, 4, 5, 12_000_000));
    let results = run(&config, &workload(16, flows));
    assert_eq!((results.end, results.totals.retransmitted), (End::Done, 0));
    assert_eq!(rates_at(&results, 80), [160, 160, 160, 160, 160, 160, 800]);
    // Six of 1.5 MB at 16 Gb/s take 750 us.
    assert_eq!(rates_at(&results, 790), [0, 0, 0, 0, 0, 0, 960]);
    // The first asked before the others were counted: what they sent too much, some 160 KB, drains at 4 Gb/s.
    let longest = |bytes: &Vec<u64>| bytes[450..700].iter().copied().max();
    let longest = results.series.queues.iter().filter_map(|queue| longest(&queue.bytes)).max();
    // One of each flow may come at a time, and behind a packet of the seventh flow one of host 4 comes late.
    assert!(longest.expect("queues") <= 7 * 4096, "{longest:?}");
}

/// 1RC: of what a flow sends before it has a rate the switch lets a fair part through, in order; the flow knows which without a word,
/// and sends the others once more.
#[test]
fn what_is_beyond_a_new_flows_rate_is_dropped_and_sent_once_more() {
    for (cc, exact) in [("sperc:one_rtt=1", true), ("sperc", false)] {
        let config = rated(star(6), cc);
        let mut load = incast(6, 2_000_000);
        for (late, flow) in (0..).zip(&mut load.flows) {
            flow.start = Start::At(late * 50_000_000);
        }
        let results = run(&config, &load);
        let totals = &results.totals;
        assert_eq!(results.end, End::Done, "{cc}");
        // 50, 33, 25 and 20 % of a bandwidth-delay product of 14 packets pass of those that start late.
        assert_eq!(totals.dropped > 20, exact, "{cc}: {totals:?}");
        assert_eq!(
            totals.retransmitted, totals.dropped,
            "{cc}: each dropped packet is sent once more, and no other"
        );
        assert_eq!((totals.control_dropped, totals.ignored), (0, 0), "{cc}");
        conserved(&results);
    }
}

/// A host that opens many connections gets the share of one, if they weigh less.
#[test]
fn connections_of_one_host_share_its_weight() {
    for (weights, each) in [(0, [192; 5]), (1, [120, 120, 120, 120, 480])] {
        let cc = format!("sperc:weights={weights}");
        let mut flows: Vec<Flow> = (0..4).map(|id| flow(id + 1, 1, 0, 1_500_000)).collect();
        flows.push(flow(5, 2, 0, 1_500_000));
        let results = run(&rated(star(3), &cc), &workload(3, flows));
        assert_eq!(rates_at(&results, 60), each, "{cc}");
    }
}

#[test]
fn rates_are_refused_where_nobody_computes_them_or_they_would_be_shared() {
    let load = incast(4, 1000);
    let refused =
        |config: &SimConfig| Simulation::new(config, &load).expect_err("refused").to_string();
    let mut config = rated(star(4), "sperc");
    squall(&mut config).scope = "pair".into();
    let message = refused(&config);
    assert!(message.contains("allowed: scope flow"), "{message}");
    config.network.features = None;
    assert!(refused(&config).contains("a feature that does (`rates`)"));
    config.host.transport =
        Transport::Roce(RoceConfig { cc: "sperc".into(), ..RoceConfig::default() });
    assert!(refused(&config).contains("stack `squall`"));
}

/// Switches that deflect: short messages go round, in order, and each flow says what its packets passed. Who cannot take part
/// is refused.
#[test]
fn short_messages_go_round_full_queues_in_order() {
    let mut config = leaf_spine(2);
    config.network.lossless = true;
    config.network.ecn = Some(Marks::between(0.2, 0.2));
    // Nothing is lost, and nothing is sent again.
    squall(&mut config).loss = "rto".into();
    squall(&mut config).rto_min = Some(Picos::micros(20_000));
    squall(&mut config).lb = "ecmp".into();
    // Four hosts of a leaf each send long and short messages to those of the next.
    let mut load = shifted(16, 4, 400_000);
    let short: Vec<_> = (0..400u32)
        .map(|nth| Flow {
            start: Start::At(u64::from(nth) * 100_000),
            ..flow(1_000 + nth, nth % 16, (nth % 16 + 4) % 16, 8192)
        })
        .collect();
    load.flows.extend(short);
    let without = run(&config, &load);
    assert!(without.flows.iter().all(|flow| flow.features.is_none()));
    squall_research::register();
    config.network.features = Some("deflection".parse().expect("a list"));
    let results = run(&config, &load);
    assert_eq!(results.end, End::Done);
    assert_eq!(results.counter_names[..2], ["deflection.packets", "deflection.messages"]);
    let [packets, messages, ..] = results.totals.features;
    assert!(messages > 20, "{messages} messages");
    let mut counted = 0;
    for flow in &results.flows {
        let counters = flow.features.expect("counted");
        let [links, fewest, byte_links, byte_fewest, deflections, most, late, _] = counters;
        assert!(late == 0 && most <= 4, "{flow:?}");
        // A link to the leaf, two between leaves and spines, and one down.
        assert_eq!(fewest, 4 * flow.packets);
        assert!(links >= fewest && byte_links >= byte_fewest);
        assert!(flow.bytes <= 8192 || deflections == 0, "long ones stay: {flow:?}");
        counted += deflections;
    }
    assert_eq!(counted, packets);
    let refused = |config: &SimConfig| Simulation::new(config, &load).expect_err("no").to_string();
    squall(&mut config).lb = "reps".into();
    assert!(refused(&config).contains("expected `ecmp` or `single`"));
    config.host.transport = Transport::Roce(RoceConfig::default());
    assert!(refused(&config).contains("expected stack `squall`"));
}

/// Telemetry and the deflection header travel in the same packet, and each switch runs both programs.
#[test]
fn a_packet_carries_telemetry_and_a_deflection_header() {
    squall_research::register();
    let mut config = leaf_spine(2);
    (config.network.lossless, config.network.telemetry) = (true, true);
    config.network.ecn = Some(Marks::between(0.2, 0.2));
    config.network.features = Some("deflection".parse().expect("a list"));
    (squall(&mut config).cc, squall(&mut config).lb) = ("hpcc".into(), "ecmp".into());
    squall(&mut config).loss = "rto".into();
    squall(&mut config).rto_min = Some(Picos::micros(20_000));
    let mut load = shifted(16, 4, 400_000);
    load.flows.extend((0..200).map(|nth| flow(1_000 + nth, nth % 16, (nth % 16 + 4) % 16, 8192)));
    let results = run(&config, &load);
    assert_eq!(results.end, End::Done);
    let (telemetry, [packets, ..]) = (results.totals.telemetry, results.totals.features);
    assert!(
        telemetry.records >= 3 * telemetry.packets && packets > 0,
        "{telemetry:?}, {packets} deflected"
    );
}

/// A network whose parts run on several threads counts and computes what it does as a whole.
#[test]
fn parts_find_what_the_whole_finds() {
    let mut deflecting = leaf_spine(2);
    squall_research::register();
    (deflecting.network.lossless, squall(&mut deflecting).lb) = (true, "ecmp".into());
    deflecting.network.features = Some("deflection".parse().expect("a list"));
    (squall(&mut deflecting).cc, squall(&mut deflecting).loss) = ("dcqcn".into(), "rto".into());
    let mut rates = rated(leaf_spine(3), "sperc");
    rates.observe.windows = None;
    for config in [deflecting, rates] {
        let mut load = shifted(16, 5, 200_000);
        load.flows
            .extend((0..100).map(|nth| flow(1_000 + nth, nth % 16, (nth % 16 + 4) % 16, 8192)));
        let found = |threads| {
            let config = SimConfig { threads, ..config.clone() };
            let simulation = Simulation::new(&config, &load).expect("sound");
            let parts = simulation.parts();
            let mut results = simulation.run(&mut ());
            (results.totals.wall_s, results.totals.peak_bytes) = (0.0, 0);
            (parts, results)
        };
        let (one, whole) = found(1);
        assert_eq!((one, whole.end), (1, End::Done));
        for threads in [2, 4] {
            let (parts, results) = found(threads);
            assert_eq!(parts as usize, threads);
            assert_eq!(results, whole);
        }
    }
}
