//! SMaRTT v1 and its parts on the network of its evaluation (section 4): 800 Gb/s, 12 us, switches that
//! trim at one bandwidth-delay product (BDP).

use squall_cc::base::{Rate, Span, Time};
use squall_cc::{NetworkProfile, SenderConfig};

use super::bed::{FlowSpec, MTU, Outcome, Scene, run};
use super::millis;

const BASE: Span = Span::micros(12);
const NETWORK: NetworkProfile = NetworkProfile::new(Rate::gbps(800), BASE, MTU, true);

/// `n` flows of `text` from the start to 2 ms, measured from 0.5 ms; all but the last end at `stop`.
fn incast(text: &str, n: usize, stop: Time) -> Outcome {
    let cc = SenderConfig::by_name(text, &NETWORK).expect("parameters of smartt");
    let flow = |i| FlowSpec {
        start: Time::ZERO,
        stop: if i + 1 < n { stop } else { Time::NEVER },
        base_rtt: BASE,
    };
    let flows = (0..n).map(flow).collect();
    let scene = Scene { network: NETWORK, cc, flows, seed: 3 };
    run(&scene, Time::ZERO + Span::micros(500), millis(2))
}

/// The queue in BDP, every half base round trip.
fn queue(outcome: &Outcome) -> Vec<f64> {
    outcome.series.iter().map(|sample| sample.1 as f64 / NETWORK.bdp()).collect()
}

/// Section 3.5, "QuickAdapt scaling": 1 would leave the round-trip time at its target, half a BDP of
/// queue; 0.8 leaves it at `0.8 * 1.5 = 1.2` base round-trip times, a fifth of a BDP. Both are reached
/// in four base round trips after the start of an incast, the burst's own included.
#[test]
fn quick_adapt_leaves_the_queue_that_its_scaling_says() {
    for n in [8, 16] {
        for (scaling, should) in [("0.8", 0.2), ("1", 0.5)] {
            let outcome = incast(&format!("smartt:qa_scaling={scaling}"), n, Time::NEVER);
            let is = queue(&outcome)[8];
            assert!((is - should).abs() < 0.1, "{n} flows, {scaling}: queue {is:.2} BDP");
        }
    }
}

/// Section 3.3: without QuickAdapt four flows, too large for their windows to come down by trims alone,
/// trim again and again and leave the line idle between.
#[test]
fn quick_adapt_ends_the_trimming_at_once() {
    let (with, without) =
        (incast("smartt", 4, Time::NEVER), incast("smartt:quick_adapt=0", 4, Time::NEVER));
    assert_eq!(with.lost.1, 0, "trimmed after half a millisecond");
    assert!(without.lost.0 > 2 * with.lost.0, "{:?} against {:?}", with.lost, without.lost);
    assert!(with.utilisation > 0.99 && without.utilisation < 0.95, "{:.3}", without.utilisation);
    assert!(with.jain() > 0.99 && without.jain() < 0.95, "{:.3}", without.jain());
}

/// Figs. 2 and 3(a): marks bring the windows down sooner, delay shares more fairly, and both together
/// have the virtue of each.
#[test]
fn marks_are_fast_and_delay_is_fair() {
    for n in [8, 16] {
        let run = |signals| incast(&format!("smartt:quick_adapt=0{signals}"), n, Time::NEVER);
        let (marks, delay, both) = (run(",delay=0"), run(",ecn=0"), run(""));
        // When the queue of the first burst is half gone.
        let drained = |outcome: &Outcome| {
            let queue = queue(outcome);
            let full = queue.iter().position(|&queue| queue > 0.9).expect("a full queue");
            full + queue[full..].iter().position(|&queue| queue < 0.5).expect("it drains")
        };
        assert!(drained(&marks) < drained(&delay), "{n} flows: marks are no faster");
        assert!(drained(&both) <= drained(&delay), "{n} flows: both are slower");
        let unfair = |outcome: &Outcome| 1.0 - outcome.jain();
        assert!(unfair(&delay) < unfair(&marks) / 4.0, "{n} flows: delay is no fairer");
        assert!(unfair(&both) < unfair(&marks) / 4.0, "{n} flows: both are no fairer");
    }
}

/// Section 3.4: when seven of eight flows end, the eighth takes the line back.
#[test]
fn a_lone_survivor_takes_the_line_back() {
    // In base round trips after the others ended, the window is a whole BDP again.
    let back = |text| {
        let outcome = incast(text, 8, millis(1));
        let ended = |at: Time| at.since(millis(1)) > Span::ZERO;
        let whole = |windows: &[u64]| windows[7] as f64 >= NETWORK.bdp();
        let then = outcome.series.iter().find(|sample| ended(sample.0) && whole(&sample.2));
        then.map_or(u64::MAX, |sample| sample.0.since(millis(1)).0 / BASE.0)
    };
    let (with, without) = (back("smartt"), back("smartt:fast_increase=0"));
    assert!(with <= 8, "{with} round trips");
    assert!(without > 2 * with, "{without} round trips without, {with} with FastIncrease");
}
