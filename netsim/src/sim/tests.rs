//! Tests of whole simulations.

use super::{
    Contexts, End, HostConfig, Intake, Observe, Results, RoceConfig, SimConfig, Simulation,
    SquallConfig, Transport, UnfinishedReason,
};
use crate::model::{Failure, FailureEvent, Marks};
use crate::topology::{FatTree, Tier, Topology};
use crate::workload::{Flow, Start, Trigger, TriggerKind, Workload};
use crate::{Bytes, Picos};
use squall_base::Rate;

mod networks;
mod planes;

use networks::{US, conserved, flow, incast, leaf_spine, run, shifted, squall, star, workload};

/// Returns the results without the values that may differ between two runs.
fn essence(mut results: Results) -> Results {
    results.totals.wall_s = 0.0;
    results.totals.peak_bytes = 0;
    results
}

#[test]
fn one_flow_takes_what_the_wire_takes() {
    // The flow has 40 packets of 4032 bytes: 161280 bytes.
    let mut config = star(2);
    // The test uses no congestion control, because NSCC would send a probe in between.
    squall(&mut config).cc = "none".into();
    let results = run(&config, &workload(2, vec![flow(7, 0, 1, 161_280)]));
    assert_eq!(results.end, End::Done);
    let only = results.flows[0];
    assert_eq!((only.id, only.packets, only.retransmitted), (7, 40, 0));
    // The time is that of 40 packets of 327.68 ns one after another, the last once more over the
    // second link, and two links of 1 us: 40 * 327.68 + 327.68 + 2000 = 15434.88 ns.
    assert_eq!(only.received, Some(Picos(15_434_880)));
    // The acknowledgement of 64 bytes takes two links of 5.12 ns and 1 us each.
    assert_eq!(only.fct, Some(Picos(15_434_880 + 2_010_240)));
    conserved(&results);
}

#[test]
fn the_same_seed_gives_the_same_results_and_another_one_others() {
    let (config, load) = (leaf_spine(2), shifted(16, 5, 400_000));
    let first = essence(run(&config, &load));
    assert_eq!(first, essence(run(&config, &load)));
    let other = essence(run(&SimConfig { seed: 2, ..config }, &load));
    assert_ne!(first, other);
}

#[test]
fn a_card_that_many_things_wake_has_one_event_a_packet() {
    // With credits, timers of a host and events of its card fall on the same time. When each of
    // them left behind an event of the card, a packet of this run took a hundred events.
    let mut config = leaf_spine(1);
    squall(&mut config).cc = "eqds".into();
    let results = run(&config, &shifted(16, 4, 2_000_000));
    assert_eq!(results.end, End::Done);
    let totals = &results.totals;
    // A packet, whole or trimmed, passes at most three switches, each with an arrival and a
    // departure, a host, a card and a timer. The same applies to its answer: an ACK, a NACK or a
    // pull request.
    let sent = totals.packets + totals.retransmitted;
    assert!(totals.events < 2 * 9 * sent, "{totals:?}");
}

#[test]
fn every_selector_loss_set_and_jitter_conserves_packets() {
    for lb in ["reps", "oblivious", "single"] {
        for (trimming, loss) in [(true, "trim,rto"), (false, "ooo,probe,rto"), (false, "rto")] {
            let mut config = leaf_spine(1);
            config.network.trimming = Some(trimming);
            config.host.jitter = Picos::nanos(300);
            squall(&mut config).lb = lb.into();
            squall(&mut config).loss = loss.into();
            config.network.queue = Some(Bytes(100_000));
            let results = run(&config, &shifted(16, 4, 300_000));
            assert_eq!(results.end, End::Done, "{lb} {loss}");
            assert_eq!(results.totals.trimmed > 0, trimming, "{lb} {loss} {:?}", results.totals);
            assert_eq!(results.totals.dropped > 0, !trimming, "{lb} {loss} {:?}", results.totals);
            conserved(&results);
        }
    }
}

#[test]
fn an_incast_is_as_fast_as_the_last_link_and_no_faster() {
    let results = run(&star(9), &incast(9, 1_000_000));
    let last = results.flows.iter().filter_map(|flow| flow.received).max().expect("all arrived");
    // The load is 8 flows of 249 packets, 8 * (1e6 + 249 * 64) bytes at 80 ps each.
    let ideal = Picos(8 * (1_000_000 + 249 * 64) * 80);
    assert!(last >= ideal && last < ideal + ideal, "{last} against {ideal}");
    conserved(&results);
}

#[test]
fn triggers_start_flows_when_they_should() {
    let kinds = [TriggerKind::OneShot, TriggerKind::Barrier(2), TriggerKind::MultiShot];
    let triggers = (1u32..)
        .zip(kinds)
        .map(|(id, kind)| Trigger { id, kind, delay: 0, processor: None })
        .collect();
    let after = |id, src, dst, trigger| Flow {
        start: Start::Trigger(trigger),
        ..flow(id, src, dst, 10_000)
    };
    let flows = vec![
        Flow { on_received: Some(0), ..flow(1, 0, 1, 10_000) },
        // These two start when the first arrived; the barrier needs both of them acknowledged.
        Flow { on_sent: Some(1), ..after(2, 1, 2, 0) },
        Flow { on_sent: Some(1), ..after(3, 1, 3, 0) },
        Flow { on_sent: Some(2), ..after(4, 2, 0, 1) },
        // These start one after another, in this order.
        Flow { on_sent: Some(2), ..after(5, 0, 3, 2) },
        after(6, 0, 2, 2),
    ];
    let results = run(&star(4), &Workload { hosts: 4, flows, triggers, ..Workload::default() });
    assert_eq!(results.end, End::Done);
    let start = |id: usize| results.flows[id - 1].start.expect("started");
    let end = |id: usize| start(id) + results.flows[id - 1].fct.expect("finished");
    assert_eq!(start(2), results.flows[0].received.expect("arrived"));
    assert_eq!(start(2), start(3));
    assert_eq!(start(4), end(2).max(end(3)));
    assert_eq!((start(5), start(6)), (end(4), end(5)));
}

#[test]
fn flows_of_a_pair_share_a_context_with_per_pair() {
    let load = workload(2, (1..=50).map(|id| flow(id, 0, 1, 8_000)).collect());
    let mut config = star(2);
    squall(&mut config).contexts = Contexts::PerPair;
    let results = run(&config, &load);
    let fct: Vec<_> = results.flows.iter().map(|flow| flow.fct).collect();
    // The flows finish one after another, in their order.
    assert!(fct.is_sorted() && fct[0].is_some(), "{fct:?}");
    assert_eq!(results.end, End::Done);
}

#[test]
fn a_scope_decides_who_shares_a_window() {
    // Host 0 sends eight flows, host 1 sends one, all to host 2. With a window for each flow, host
    // 1 has a ninth of the last link; with a window for each destination or host, about a half.
    let mut flows: Vec<_> = (1..=8).map(|id| flow(id, 0, 2, 2_000_000)).collect();
    flows.push(flow(9, 1, 2, 2_000_000));
    let load = workload(4, flows);
    let took = |scope: &str| {
        let mut config = star(4);
        squall(&mut config).scope = scope.into();
        let results = run(&config, &load);
        assert_eq!(results.end, End::Done, "{scope}");
        results.flows[8].fct.expect("finished")
    };
    let own = took("flow");
    for shared in ["pair", "destination", "host"] {
        let fct = took(shared);
        assert!(fct.0 * 2 < own.0, "{shared}: {fct} against {own}");
    }
}

#[test]
fn only_a_host_scope_slows_flows_to_other_destinations() {
    // Host 0 is one of eight that send to host 9, and alone sends to host 10.
    let mut flows: Vec<_> = (0..8).map(|src| flow(src + 1, src, 9, 1_000_000)).collect();
    flows.push(flow(9, 0, 10, 1_000_000));
    let load = workload(11, flows);
    let took = |scope: &str| {
        let mut config = star(11);
        squall(&mut config).scope = scope.into();
        run(&config, &load).flows[8].fct.expect("finished")
    };
    let (flow, destination, host) = (took("flow"), took("destination"), took("host"));
    assert_eq!(flow, destination);
    assert!(host.0 > flow.0 * 3 / 2, "{host} against {flow}");
}

#[test]
fn a_disconnected_flow_is_named_and_the_others_finish() {
    let mut config = leaf_spine(2);
    config.until = US * 100_000;
    // Link 3 is that of host 3.
    config.failures = vec![FailureEvent { at: Picos::ZERO, what: Failure::LinkDown(3) }];
    let results = run(&config, &workload(16, vec![flow(1, 0, 3, 50_000), flow(2, 0, 9, 50_000)]));
    assert_eq!(results.end, End::Stuck);
    assert_eq!(results.flows[0].unfinished, Some(UnfinishedReason::Disconnected));
    assert!(results.flows[1].fct.is_some() && results.flows[1].unfinished.is_none());
}

#[test]
fn a_dead_peer_is_given_up() {
    let mut config = leaf_spine(2);
    squall(&mut config).give_up = US * 2_000;
    // Routing treats the link as up.
    config.failures = vec![FailureEvent { at: Picos::ZERO, what: Failure::BlackHole(3) }];
    let results = run(&config, &workload(16, vec![flow(1, 0, 3, 50_000)]));
    assert_eq!(
        (results.end, results.flows[0].unfinished),
        (End::Stuck, Some(UnfinishedReason::Failed))
    );
}

#[test]
fn traffic_goes_round_a_link_that_fails() {
    let mut config = leaf_spine(4);
    // The link from leaf 0 to spine 1 fails during the run, and routing learns of it 50 us later.
    let link = 16 + 1;
    config.network.reroute_us = Some(50.0);
    config.failures = vec![FailureEvent { at: US * 30, what: Failure::LinkDown(link) }];
    config.observe = Observe { ports: true, ..Observe::default() };
    let results = run(&config, &shifted(16, 4, 2_000_000));
    assert_eq!(results.end, End::Done);
    assert!(results.totals.dropped > 0 && results.totals.retransmitted >= results.totals.dropped);
    let bytes = |port: u32| results.ports[port as usize].bytes;
    // The neighbouring links carried more.
    assert!(bytes(link * 2) * 2 < bytes((link + 1) * 2));
    conserved(&results);
}

#[test]
fn a_slow_link_carries_less() {
    let mut config = leaf_spine(4);
    let link = 16;
    config.failures =
        vec![FailureEvent { at: Picos::ZERO, what: Failure::Rate(link, Rate::gbps(50)) }];
    config.observe.ports = true;
    let results = run(&config, &shifted(16, 4, 4_000_000));
    let bytes = |port: u32| results.ports[port as usize].bytes;
    let (slow, others) = (bytes(link * 2), (bytes((link + 1) * 2) + bytes((link + 2) * 2)) / 2);
    assert!(slow * 4 < others * 3, "{slow} {others}");
}

#[test]
fn bit_errors_lose_packets_and_the_transport_recovers() {
    let mut config = leaf_spine(2);
    // A packet of 4096 bytes survives with (1 - 1e-6)^32768 = 0.968.
    config.failures = vec![FailureEvent { at: Picos::ZERO, what: Failure::BitErrors(0, 1e-6) }];
    let results = run(&config, &workload(16, vec![flow(1, 0, 9, 4_032_000)]));
    assert_eq!(results.end, End::Done);
    let lost = results.totals.dropped as f64
        / (results.totals.packets + results.totals.retransmitted) as f64;
    assert!((0.015..0.055).contains(&lost), "{lost}");
}

fn roce(config: &mut SimConfig, qps: u16) {
    config.host.transport =
        Transport::Roce(RoceConfig { qps, rto: US * 4_000, ..RoceConfig::default() });
    config.network.lossless = true;
}

#[test]
fn a_lossless_network_loses_nothing() {
    for qps in [1, 4] {
        let mut config = leaf_spine(2);
        roce(&mut config, qps);
        config.observe.ports = true;
        let results = run(&config, &incast(16, 1_000_000));
        assert_eq!(results.end, End::Done);
        let totals = results.totals;
        assert_eq!((totals.dropped, totals.retransmitted, totals.trimmed), (0, 0, 0), "{totals:?}");
        assert!(totals.pauses > 0, "{totals:?}");
        conserved(&results);
    }
}

#[test]
fn go_back_n_recovers_from_drops() {
    let mut config = star(5);
    roce(&mut config, 1);
    (config.network.lossless, config.network.trimming) = (false, Some(false));
    config.network.queue = Some(Bytes(30_000));
    let results = run(&config, &incast(5, 500_000));
    assert_eq!(results.end, End::Done);
    assert!(results.totals.dropped > 0, "{results:?}");
    // Gaps cause NAKs; the timer of 4 ms is needed only for a lost tail, once.
    assert!(results.totals.nacks > 0 && results.totals.end < US * 5_000);
    // Every packet after a gap is sent again.
    assert!(results.totals.retransmitted > results.totals.dropped);
    conserved(&results);
}

#[test]
fn queue_pairs_of_a_pair_live_on_with_per_pair() {
    // The load is twelve flows one after another, from leaf 0 to leaf 1, over four spines.
    let mut flows: Vec<_> =
        (0..12).map(|id| Flow { on_sent: Some(id), ..flow(id + 1, 0, 5, 40_000) }).collect();
    for (index, flow) in (0u32..).zip(&mut flows).skip(1) {
        flow.start = Start::Trigger(index - 1);
    }
    let kind = TriggerKind::OneShot;
    let triggers = (1..=12).map(|id| Trigger { id, kind, delay: 0, processor: None }).collect();
    let load = Workload { hosts: 16, flows, triggers, ..Workload::default() };
    let spines = |qps, contexts| {
        let mut config = leaf_spine(4);
        roce(&mut config, qps);
        if let Transport::Roce(roce) = &mut config.host.transport {
            roce.contexts = contexts;
        }
        config.observe.ports = true;
        let results = run(&config, &load);
        assert_eq!(results.end, End::Done);
        // Each flow has 10 packets of 4032 bytes; divided among four queue pairs, these are 3 each.
        assert_eq!(results.totals.packets, 12 * if qps == 1 { 10 } else { 12 });
        results.ports[32..40].iter().filter(|port| port.up && port.bytes > 30_000).count()
    };
    // Each new queue pair takes a path of its own; one that stays open keeps its path.
    assert!(spines(1, Contexts::PerFlow) > 1);
    assert_eq!(spines(1, Contexts::PerPair), 1);
    assert!(spines(4, Contexts::PerPair) > 1);
}

#[test]
fn queue_pairs_that_live_on_recover_from_drops() {
    // The load is flows of all lengths, from one byte, three at a time at each of eight senders.
    let flows = (0..240u32).map(|n| {
        let bytes = 1 + u64::from(n) * u64::from(n) * 7;
        Flow { start: Start::At(u64::from(n / 24) * 2_000_000), ..flow(n + 1, n % 8 + 1, 0, bytes) }
    });
    let load = workload(9, flows.collect());
    for qps in [1, 3] {
        let mut config = star(9);
        roce(&mut config, qps);
        (config.network.lossless, config.network.trimming) = (false, Some(false));
        config.network.queue = Some(Bytes(30_000));
        if let Transport::Roce(roce) = &mut config.host.transport {
            roce.contexts = Contexts::PerPair;
        }
        let results = run(&config, &load);
        assert_eq!(results.end, End::Done);
        assert!(results.totals.dropped > 0 && results.flows.iter().all(|flow| flow.fct.is_some()));
        conserved(&results);
    }
}

#[test]
fn samples_are_taken() {
    let mut config = star(5);
    config.observe =
        Observe { queues: Some(US), windows: Some(US * 2), ports: true, packets: true };
    let results = run(&config, &incast(5, 500_000));
    let series = &results.series;
    // Only the port to host 0 ever has a queue.
    assert_eq!(series.queues.iter().map(|queue| queue.port).collect::<Vec<_>>(), [1]);
    assert_eq!(series.queues[0].bytes.len(), series.queue_times.len());
    assert_eq!(series.windows.len(), 4);
    assert!(series.windows[0].cwnd[1] > 0);
    assert_eq!(series.windows[0].delivered.len(), series.window_times.len());
    assert_eq!(results.ports[1].name, "star->h0");
    // A packet takes two links of 1 us, and the queue between; all of it is within the flow's time.
    let slowest = |flow: &super::FlowResult| flow.slowest.zip(flow.fct);
    for (packet, flow) in results.flows.iter().map(|flow| slowest(flow).expect("recorded")) {
        assert!(US * 3 < packet && packet < flow, "{packet} of {flow}");
    }
}

#[test]
fn an_observer_may_break_off() {
    struct Impatient;
    impl super::Observer for Impatient {
        fn progress(&mut self, _: Picos, _: usize, _: u64) -> core::ops::ControlFlow<()> {
            core::ops::ControlFlow::Break(())
        }
    }
    let simulation = Simulation::new(&star(9), &incast(9, 50_000_000)).expect("sound");
    let results = simulation.run(&mut Impatient);
    assert_eq!(results.end, End::Interrupted);
    assert!(results.flows.iter().all(|flow| flow.unfinished == Some(UnfinishedReason::Running)));
}

#[test]
fn nonsense_is_refused_in_words() {
    let refusal = |change: fn(&mut SimConfig)| {
        let mut config = star(4);
        change(&mut config);
        let load = incast(4, 1000);
        Simulation::new(&config, &load).map(drop).expect_err("nonsense").to_string()
    };
    assert!(refusal(|config| squall(config).cc = "nscc:gamma=7".into()).contains("gamma"));
    assert!(refusal(|config| squall(config).cc = "reno".into()).contains("nscc"));
    assert!(refusal(|config| squall(config).lb = "magic".into()).contains("reps"));
    assert!(refusal(|config| squall(config).loss = "luck".into()).contains("probe"));
    assert!(refusal(|config| squall(config).scope = "galaxy".into()).contains("destination"));
    // Credit cannot be shared.
    let shared = refusal(|config| {
        (squall(config).cc, squall(config).scope) = ("eqds".into(), "host".into());
    });
    assert!(shared.contains("scope flow"), "{shared}");
    assert!(refusal(|config| config.network.queue = Some(Bytes(100))).contains("4096"));
    assert!(refusal(|config| config.network.ecn = Some(Marks::between(0.8, 0.2))).contains("0.8"));
    assert!(refusal(|config| config.host.mtu = 60).contains("65000"));
    assert!(refusal(|config| config.topology.hosts = 3).contains("h3"));
    let apart = refusal(|config| {
        let (rate, none) = (Rate::gbps(1), Picos::ZERO);
        config.topology = Topology::leaf_spine(4, 0, 1, rate, rate, none, none);
    });
    assert!(apart.contains("no two hosts are connected"), "{apart}");
    assert!(
        refusal(|config| config.topology = Topology::star(2, Rate::gbps(1), US, US))
            .contains("4 hosts")
    );
}

/// Returns a tree of three tiers, `half`-ary.
fn tree(half: u32) -> Topology {
    let tier = |down, up| Tier {
        oversubscribed: 1,
        downlink: Rate::gbps(100),
        radix_down: down,
        radix_up: up,
        downlink_latency: US,
        switch_latency: Picos::ZERO,
        bundle: 1,
        queue_up: None,
        queue_down: None,
    };
    let tiers = vec![tier(half, half), tier(half, half), tier(half * 2, 0)];
    let hosts = half * half * half * 2;
    FatTree { hosts, pod_hosts: half * half, tiers }.build().expect("a full tree")
}

#[test]
fn spraying_loads_all_links_of_a_tier_alike_and_one_path_does_not() {
    let spread = |lb: &str| {
        let mut config = SimConfig::new(tree(2));
        config.observe.ports = true;
        squall(&mut config).lb = lb.into();
        let results = run(&config, &shifted(16, 7, 1_000_000));
        let cores: Vec<u64> = results
            .ports
            .iter()
            .filter(|port| port.tier == Some(1) && port.up)
            .map(|port| port.bytes)
            .collect();
        assert_eq!(cores.len(), 16);
        *cores.iter().max().expect("some") as f64
            / *cores.iter().min().expect("some").max(&1) as f64
    };
    let (sprayed, single) = (spread("oblivious"), spread("ecmp"));
    assert!(sprayed < 1.8 && single > 2.0, "{sprayed} {single}");
}

#[test]
fn the_default_host_is_a_network_card() {
    let HostConfig { mtu, header, control, .. } = star(2).host;
    assert_eq!((mtu, header, control), (4096, 64, 64));
}

#[test]
fn telemetry_says_what_packets_met() {
    let load = incast(16, 200_000);
    let mut config = leaf_spine(2);
    let without = run(&config, &load);
    assert_eq!(without.totals.telemetry.packets, 0);
    config.network.telemetry = true;
    let with = run(&config, &load);
    // Telemetry that no algorithm reads changes nothing.
    assert_eq!((&with.flows, with.totals.events), (&without.flows, without.totals.events));
    let telemetry = with.totals.telemetry;
    let hops = telemetry.records as f64 / telemetry.packets as f64;
    // Three of fifteen senders are connected to the receiver's leaf.
    assert!(telemetry.packets > 0 && (2.4..2.8).contains(&hops), "{telemetry:?}");
    assert!(u64::from(telemetry.longest) > 100_000, "{telemetry:?}");
}

/// Checks that the telemetry of switches comes back to the sender: HPCC keeps queues short. A
/// network without telemetry is refused.
#[test]
fn telemetry_comes_back_to_the_sender() {
    let load = incast(16, 2_000_000);
    let mut config = leaf_spine(2);
    squall(&mut config).cc = "hpcc:queues=64".into();
    let refused = Simulation::new(&config, &load).expect_err("nobody writes").to_string();
    assert!(refused.contains("hpcc needs what switches write"), "{refused}");
    config.network.telemetry = true;
    config.network.trimming = Some(false);
    config.network.queue_bdp = Some(100.0);
    config.observe.queues = Some(Picos::micros(5));
    let results = run(&config, &load);
    assert_eq!(results.end, End::Done);
    // The queue is checked in the middle of the run. Controlled by the delay alone, without
    // telemetry, it would have a third of a bandwidth-delay product: 50 KB.
    let middle = |bytes: &[u64]| bytes[bytes.len() / 2..bytes.len() * 3 / 4].iter().copied().max();
    let longest = results.series.queues.iter().filter_map(|queue| middle(&queue.bytes)).max();
    assert!(longest.expect("queues") < 25_000, "{longest:?}");
    // Fifteen senders of 2 MB share 100 Gb/s at 95 %, and the slowest runs alone for a while.
    assert!(results.totals.end < Picos::micros(3_200), "{}", results.totals.end);
}

#[test]
fn adaptive_switches_spread_what_one_entropy_would_not() {
    let spread = |adaptive: bool| {
        let mut config = leaf_spine(4);
        squall(&mut config).lb = "ecmp".into();
        config.network.adaptive = adaptive;
        let results = run(&config, &shifted(16, 4, 500_000));
        assert_eq!(results.end, End::Done);
        results.totals.end
    };
    let (hashed, adaptive) = (spread(false), spread(true));
    assert!(adaptive.0 * 5 < hashed.0 * 4, "{adaptive} against {hashed}");
}

/// Returns the rates of all flows at the sample taken `us` microseconds from the start, in tenths
/// of Gb/s.
fn rates_at(results: &Results, us: usize) -> Vec<u64> {
    let windows = &results.series.windows;
    windows.iter().map(|series| (series.rate[us] + 50_000_000) / 100_000_000).collect()
}

/// Checks section III-B of Dart: each sender has an equal share among the active senders, and
/// finished senders do not count.
#[test]
fn senders_of_an_incast_share_the_line_as_dart_counts_them() {
    let mut config = star(8);
    // The network is lossless, because DCQCN also acts where packets are lost.
    config.network.lossless = true;
    squall(&mut config).cc = "dart".into();
    squall(&mut config).ack_bytes = 0;
    config.observe.windows = Some(US);
    let mut load = incast(8, 700_000);
    // The last three flows have a fifth of the bytes.
    load.flows[4..].iter_mut().for_each(|flow| flow.bytes = 140_000);
    let results = run(&config, &load);
    assert_eq!(results.end, End::Done);
    // Every flow has 100 / 7 = 14.3 Gb/s, at which 140 kB take 78 us.
    assert_eq!(rates_at(&results, 50), [143; 7]);
    // The remaining flows have 100 / 4; the others are done.
    assert_eq!(rates_at(&results, 160), [250, 250, 250, 250, 0, 0, 0]);
}

#[test]
fn dart_needs_acknowledgements_that_carry_shares() {
    let mut config = star(3);
    let roce = RoceConfig { cc: "dart".into(), ..RoceConfig::default() };
    config.host.transport = Transport::Roce(roce);
    let error = Simulation::new(&config, &incast(3, 1000)).expect_err("refused").to_string();
    assert!(error.contains("stack `squall`"), "{error}");
}

/// Checks section III-C of Dart: two flows meet on the route to two receivers, each of which has
/// one sender; marks reach them, and DCQCN acts.
#[test]
fn dart_leaves_congestion_on_the_way_to_dcqcn() {
    for (cc, cut) in [("dart", true), ("none", false)] {
        let mut config = leaf_spine(1);
        squall(&mut config).cc = cc.into();
        squall(&mut config).ack_bytes = 0;
        config.observe.windows = Some(US);
        let results =
            run(&config, &workload(16, vec![flow(1, 0, 4, 3_000_000), flow(2, 1, 8, 3_000_000)]));
        assert_eq!(results.end, End::Done);
        assert!(results.totals.marked > 0);
        let rates = rates_at(&results, 100);
        assert_eq!(rates.iter().all(|&rate| rate > 0 && rate < 900), cut, "{rates:?}");
    }
}

/// Checks that a simulated card has as many queue pairs as needed, while real endpoints let a peer
/// open 64 contexts.
#[test]
fn a_host_may_open_a_hundred_connections_to_another() {
    let flows = (0..100).map(|id| flow(id + 1, 1, 0, 8_000)).collect();
    let results = run(&star(2), &workload(2, flows));
    assert_eq!(results.end, End::Done);
}

/// Checks section III-D of Dart: the first senders learn at once how many senders there will be, so
/// that those who come later find the line free.
#[test]
fn a_list_of_senders_shortens_the_queue_of_an_incast() {
    let longest = |cc: &str, look_ahead| {
        let mut config = star(9);
        config.network.lossless = true;
        config.network.queue = Some(Bytes(8_000_000));
        config.observe.ports = true;
        let transport = squall(&mut config);
        (transport.cc, transport.look_ahead) = (cc.to_owned(), look_ahead);
        (transport.ack_bytes, transport.lb) = (0, "ecmp".to_owned());
        let late = |host: u32| Start::At((US * (100 + 13 * u64::from(host))).0);
        let short = (1..8).map(|host| Flow { start: late(host), ..flow(host, host, 0, 256_000) });
        let flows: Vec<Flow> = short.chain([flow(8, 8, 0, 4_000_000)]).collect();
        let results = run(&config, &workload(9, flows));
        assert_eq!(results.end, End::Done);
        results.ports.iter().map(|port| port.max_queue).max().expect("ports")
    };
    let (with_lists, without_lists) = (longest("dart", Some(US * 100)), longest("dart", None));
    assert!(with_lists as f64 <= 0.6 * without_lists as f64, "{with_lists} {without_lists}");
    let mut config = star(3);
    squall(&mut config).look_ahead = Some(US);
    let error =
        Simulation::new(&config, &incast(3, 1000)).map(|_| ()).expect_err("nscc counts nobody");
    assert!(error.to_string().contains("expected dart"), "{error}");
}

#[test]
fn a_host_that_is_slower_than_its_link_loses_little_and_is_never_idle() {
    let mut config = star(33);
    let intake = Intake { rate: Rate::gbps(50), buffer: 400 << 10 };
    config.host.intake = Some(intake);
    for senders in [1, 16, 32] {
        let bytes = 4 << 20;
        let flows = (1..=senders).map(|n| flow(n, n, 0, bytes)).collect();
        let results = run(&config, &workload(33, flows));
        assert_eq!(results.end, End::Done);
        conserved(&results);
        let totals = &results.totals;
        assert!(totals.dropped == totals.dropped_host, "{totals:?}");
        // The penalty has this effect: without it, a tenth of the packets of 16 senders is lost,
        // and a quarter of those of 32.
        assert!(totals.dropped_host * 200 <= totals.packets, "{senders}: {totals:?}");
        let ideal = Picos::transmit(intake.rate, u64::from(senders) * bytes);
        // Headers are 1.6 %, and the host also takes in acknowledgements and probes.
        assert!(totals.end.0 <= ideal.0 * 105 / 100, "{senders}: {ideal:?} {totals:?}");
    }
}

#[test]
fn what_finds_no_room_at_a_slow_host_is_lost() {
    // 100 packets in 33 us, of which the host takes in four bytes.
    let mut config = star(2);
    config.host.intake = Some(Intake { rate: Rate(1_000_000), buffer: 20 * 4096 });
    config.until = Picos::micros(100);
    squall(&mut config).cc = "none".into();
    squall(&mut config).loss = "rto".into();
    squall(&mut config).rto_min = Some(Picos::micros(1_000));
    let results = run(&config, &workload(2, vec![flow(1, 0, 1, 100 * 4032)]));
    let totals = &results.totals;
    assert_eq!((totals.packets, totals.retransmitted, totals.delivered), (100, 0, 0));
    assert_eq!(totals.dropped_host, 80);
    conserved(&results);
}
