//! Does NSCC converge to a fair and full bottleneck? The table is a snapshot, to be read as text: when
//! it changes on purpose, replace `convergence.txt` by what the failing test prints.

mod bed;

use std::fmt::Write;

use bed::{MTU, Outcome, Scene, run};
use squall_cc::base::{Rate, Span, Time};
use squall_cc::{Averaging, Network, NsccConfig, Scaling};

const LINE: Rate = Rate::gbps(100);
const BASE: Span = Span::micros(12);
const NEVER: Time = Time::NEVER;

fn config(trimming: bool) -> NsccConfig {
    NsccConfig::new(&Network::new(LINE, BASE, MTU, trimming))
}

fn millis(n: u64) -> Time {
    Time::ZERO + Span::millis(n)
}

/// `n` equal flows, started `apart`; measured from 2 to 6 ms.
fn equal_flows(n: u64, apart: Span, trimming: bool) -> Outcome {
    let flows = (0..n).map(|i| (Time::ZERO + apart * i, NEVER, BASE)).collect();
    run(&Scene { line: LINE, flows, config: config(trimming), seed: n }, millis(2), millis(6))
}

#[test]
fn flows_converge_to_a_fair_and_full_link() {
    let mut table = String::from(
        "flows start      full  jain   used  mean queue  max queue   lost, of it after 2 ms\n",
    );
    for trimming in [true, false] {
        for (start, apart) in [("together", Span::ZERO), ("staggered", Span::micros(50))] {
            for n in [2, 4, 8, 16] {
                let outcome = equal_flows(n, apart, trimming);
                writeln!(
                    table,
                    "{n:>5} {start:<10} {:<5} {:.3}  {:.3}  {:>10}  {:>9}  {:>5} {:>5}",
                    if trimming { "trim" } else { "drop" },
                    outcome.jain(),
                    outcome.utilisation,
                    outcome.mean_queue,
                    outcome.max_queue,
                    outcome.lost.0,
                    outcome.lost.1,
                )
                .expect("a string takes everything");
                assert!(outcome.jain() > 0.9, "unfair:\n{table}");
                assert!(outcome.utilisation > 0.95, "idle:\n{table}");
            }
        }
    }
    assert!(table == include_str!("convergence.txt"), "the table is now:\n{table}");
}

/// FastIncrease (SMaRTT v2 section III-F, Fig. 10): when seven of eight flows end, the eighth takes the
/// link within a few round trips.
#[test]
fn a_lone_survivor_takes_the_link_back() {
    let mut flows = vec![(Time::ZERO, millis(2), BASE); 7];
    flows.push((Time::ZERO, NEVER, BASE));
    let scene = Scene { line: LINE, flows, config: config(true), seed: 1 };
    let from = millis(2) + Span::micros(100);
    let outcome = run(&scene, from, from + Span::micros(500));
    assert!(outcome.utilisation > 0.9, "used {:.3}", outcome.utilisation);
    let without = NsccConfig { fast_increase_below: Span::ZERO, ..config(true) };
    let slower = run(&Scene { config: without, ..scene }, from, from + Span::micros(500));
    assert!(slower.utilisation < outcome.utilisation, "fast increase made no difference");
}

/// QuickAdapt (section III-E, Figs. 8 and 9): switches that drop have five BDPs of queue, and an
/// incast fills them; with QuickAdapt they are drained sooner, and the line is no less used.
#[test]
fn quick_adapt_drains_an_incast_sooner() {
    for n in [16, 32] {
        let flows = vec![(Time::ZERO, NEVER, BASE); n];
        let with = Scene { line: LINE, flows, config: config(false), seed: 1 };
        let never = NsccConfig { quick_adapt: false, ..config(false) };
        let without = Scene { config: never, ..with.clone() };
        let (from, to) = (Time::ZERO + Span::micros(60), Time::ZERO + Span::micros(260));
        let (with, without) = (run(&with, from, to), run(&without, from, to));
        let (queue, reference) = (with.mean_queue, without.mean_queue);
        assert!(queue * 10 < reference * 9, "{n} flows: {queue} against {reference}");
        assert!(with.utilisation >= without.utilisation, "{n} flows: idle");
    }
}

/// Four flows of 12 us and four of 4 us.
fn mixed_flows(config: NsccConfig) -> f64 {
    let flows = (0..8).map(|i| (Time::ZERO, NEVER, BASE / if i < 4 { 1 } else { 3 })).collect();
    run(&Scene { line: LINE, flows, config, seed: 1 }, millis(2), millis(10)).jain()
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

/// Why there is a probe (UE 1.0 section 3.6.13.7): flows that start together measure each other's
/// queue, and a microsecond of error in the base RTT is worth several fair shares.
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
        let flows = (0..8).map(|i| (Time::ZERO + Span::micros(50) * i, NEVER, BASE)).collect();
        let config = NsccConfig { averaging, ..config(false) };
        run(&Scene { line: LINE, flows, config, seed: 8 }, millis(2), millis(6)).jain()
    };
    let (window, packet) = (staggered(Averaging::Window), staggered(Averaging::Packet(0.0125)));
    assert!(window > 0.95 && packet < 0.9, "window {window:.3}, packet {packet:.3}");
}
