//! NSCC and its parts, one at a time.

use squall_cc::base::{Span, Time};
use squall_cc::{Averaging, NsccConfig, NsccParts, Scaling, SenderConfig};

use super::bed::{FlowSpec, Scene, run};
use super::{BASE, equal_flows, flows, millis, network, scene};

fn config(trimming: bool) -> NsccConfig {
    NsccConfig::new(&network(trimming))
}

fn nscc(config: NsccConfig) -> SenderConfig {
    SenderConfig::nscc(config).expect("parameters in range")
}

/// FastIncrease (SMaRTT v2 section III-F, Fig. 10): when seven of eight flows end, the eighth takes the
/// link within a few round trips.
#[test]
fn a_lone_survivor_takes_the_link_back() {
    let mut eight = flows(8, Span::ZERO);
    eight[..7].iter_mut().for_each(|flow| flow.stop = millis(2));
    let from = millis(2) + Span::micros(100);
    let used = |parts| {
        let cc = nscc(NsccConfig { parts, ..config(true) });
        run(&scene(cc, eight.clone(), true, 1), from, from + Span::micros(500)).utilisation
    };
    let with = used(NsccParts::PUBLISHED);
    let without = used(NsccParts { fast_increase: false, ..NsccParts::PUBLISHED });
    assert!(with > 0.9, "used {with:.3}");
    assert!(without < with, "fast increase made no difference");
}

/// QuickAdapt (section III-E, Figs. 8 and 9): switches that drop have five BDPs of queue, and an
/// incast fills them; with QuickAdapt they are drained sooner, and the line is no less used.
#[test]
fn quick_adapt_drains_an_incast_sooner() {
    for n in [16, 32] {
        let (from, to) = (Time::ZERO + Span::micros(60), Time::ZERO + Span::micros(260));
        let outcome = |quick_adapt| {
            let cc = nscc(NsccConfig { quick_adapt, ..config(false) });
            run(&scene(cc, flows(n, Span::ZERO), false, 1), from, to)
        };
        let (with, without) = (outcome(true), outcome(false));
        let (queue, reference) = (with.mean_queue, without.mean_queue);
        assert!(queue * 10 < reference * 9, "{n} flows: {queue} against {reference}");
        assert!(with.utilisation >= without.utilisation, "{n} flows: idle");
    }
}

/// Four flows of 12 us and four of 4 us.
fn mixed_flows(config: NsccConfig) -> f64 {
    let flow = |i| FlowSpec {
        start: Time::ZERO,
        stop: Time::NEVER,
        base_rtt: BASE / if i < 4 { 1 } else { 3 },
    };
    let scene = Scene {
        network: network(true),
        cc: nscc(config),
        flows: (0..8).map(flow).collect(),
        seed: 1,
    };
    run(&scene, millis(2), millis(10)).jain()
}

/// Fig. 6: flows with three times the base RTT get a fair share. Because decreases happen once per
/// measured base RTT, gains of the network are the fairer ones here; gains scaled by the path
/// (section III-J) lean towards the long flows by about two to one.
#[test]
fn flows_of_different_base_rtt_share() {
    let jain = |scaling| mixed_flows(NsccConfig { scaling, ..config(true) });
    let (network, path) = (jain(Scaling::Network), jain(Scaling::Path));
    assert!(network > 0.95, "network {network:.3}");
    assert!(path > 0.8, "path {path:.3}");
}

/// Shows the need for the probe (UE 1.0 section 3.6.13.7): flows that start together measure each
/// other's queue, and a microsecond of error in the base RTT is worth several fair shares.
#[test]
fn without_the_probe_base_rtts_are_wrong_and_shares_too() {
    let silent = mixed_flows(NsccConfig { probe: false, ..config(true) });
    assert!(silent < 0.7, "the probe would not be needed: {silent:.3}");
}

/// The mean over a round trip against uet-htsim's weight per packet: late starters are the test, for
/// the early ones remember the transient.
#[test]
fn an_average_per_packet_starves_the_small() {
    let staggered = |averaging| {
        let cc = nscc(NsccConfig { averaging, ..config(false) });
        equal_flows(&cc, 8, Span::micros(50), false).jain()
    };
    let (window, packet) = (staggered(Averaging::Window), staggered(Averaging::Packet(0.0125)));
    assert!(window > 0.95 && packet < 0.9, "window {window:.3}, packet {packet:.3}");
}

/// Section III-G: "SMaRTT working well even when sampling every 8 packets or accumulating for up to an
/// RTT worth of time".
#[test]
fn sampling_or_accumulating_changes_little() {
    for change in [
        |config: &mut NsccConfig| config.sample = 8,
        |config: &mut NsccConfig| config.adjust_bytes = u32::MAX,
    ] {
        for n in [2, 8, 16] {
            let mut config = config(true);
            change(&mut config);
            let outcome = equal_flows(&nscc(config), n, Span::ZERO, true);
            assert!(outcome.jain() > 0.9, "{n} flows: {:.3}", outcome.jain());
            assert!(outcome.utilisation > 0.95, "{n} flows: used {:.3}", outcome.utilisation);
        }
    }
}
