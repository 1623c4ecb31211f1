//! Loss detectors: each alone and all together find every loss, and a detector outside of the set
//! finds none.

use crate::link::{Faults, SlotState, World, nscc};
use squall_reliability::base::Span;
use squall_reliability::{Config, Counters, LossDetection, cc};

/// Transfers `packets` with faults under `loss`. All of them must arrive.
fn transfer(loss: &str, packets: u32, faults: &Faults, within: Span) -> Counters {
    let loss: LossDetection = loss.parse().unwrap();
    let config = |seed| Config { loss, ..nscc(seed) };
    let mut world = World::new(config(1), config(2), faults.clone(), 3);
    world.send(0, 0..packets, 4096);
    let start = world.now;
    assert!(world.settle(within), "{loss}: unfinished after {:?}", world.now.since(start));
    assert!(world.hosts[0].fates.values().all(|fate| *fate == SlotState::Acked), "{loss}");
    assert_eq!(world.hosts[1].got.len(), packets as usize, "{loss}");
    assert!(world.hosts[1].got.values().all(|times| *times == 1), "{loss}");
    world.hosts[0].pdcs.counters().clone()
}

/// Returns the retransmissions by trim, out-of-order count, later packets of the path, probe and
/// timer.
fn causes(counters: &Counters) -> [u64; 5] {
    let Counters { retx_trimmed, retx_out_of_order, retx_overtaken, .. } = *counters;
    let Counters { retx_probe, retx_timeout, .. } = *counters;
    [retx_trimmed, retx_out_of_order, retx_overtaken, retx_probe, retx_timeout]
}

#[test]
fn every_set_delivers_over_a_link_that_loses_and_trims() {
    let faults = Faults { loss: 0.01, trim: 0.01, ..Faults::default() };
    for bits in 0..32u8 {
        let on = |bit: u8| bits & (1 << bit) != 0;
        let (probe, rto) = (on(2), on(3));
        let loss = LossDetection { trim: on(0), out_of_order: on(1), overtaken: on(4), probe, rto };
        let counters = transfer(&loss.to_string(), 3000, &faults, Span::secs(60));
        let [trimmed, order, path, probe, timer] = causes(&counters);
        assert_eq!(trimmed > 0, loss.trim, "{loss}");
        assert!(loss.out_of_order || order == 0, "{loss}");
        assert!(loss.probe || probe == 0, "{loss}");
        // Congestion control requests a probe when a flow starts.
        assert!(loss.probe || counters.tx_probes <= 1, "{loss}");
        // A detector must find the losses on the way to the switch.
        assert!(order + path + probe + timer > 0, "{loss}");
        assert!(loss.overtaken || path == 0, "{loss}");
    }
}

#[test]
fn each_detector_alone_delivers_with_the_last_resort() {
    let lossy = Faults { loss: 0.01, ..Faults::default() };
    let trimming = Faults { trim: 0.01, ..Faults::default() };
    // Every trimmed packet is reported, and no other detector is needed.
    let [trimmed, order, path, probe, timer] =
        causes(&transfer("trim", 3000, &trimming, Span::secs(5)));
    assert!(trimmed > 20 && (order, path, probe, timer) == (0, 0, 0, 0));
    // The count finds losses that are followed by other packets. Packets lost again and the last
    // packets wait for the last resort.
    let [_, order, path, probe, timer] = causes(&transfer("ooo", 3000, &lossy, Span::secs(60)));
    assert!(order > 20 && order > 5 * timer && (path, probe) == (0, 0), "{order} {timer}");
    // Probes find every loss eventually.
    let [_, order, path, probe, timer] = causes(&transfer("probe", 3000, &lossy, Span::secs(5)));
    assert!(probe > 20 && (order, path, timer) == (0, 0, 0), "{probe} {timer}");
    // Later packets of a path show all losses but those of the last three of a train, one in five,
    // and of packets lost again.
    let [_, order, path, probe, timer] = causes(&transfer("path", 3000, &lossy, Span::secs(20)));
    assert!(
        path > 20 && path > 2 * timer && (order, probe) == (0, 0),
        "{order} {path} {probe} {timer}"
    );
    let [_, order, path, probe, timer] = causes(&transfer("rto", 3000, &lossy, Span::secs(20)));
    assert!(timer > 20 && (order, path, probe) == (0, 0, 0));
}

#[test]
fn without_the_timer_the_last_resort_comes_at_ten_times_its_setting() {
    // Before a round trip is measured the timer is at `rto_init`, 5 ms: the first packet is lost,
    // and leaves again 5 ms or 50 ms later. It arrives 10 us after that.
    for (loss, expected) in [("rto", Span::millis(5)), ("none", Span::millis(50))] {
        let config = |seed| Config { loss: loss.parse().unwrap(), ..nscc(seed) };
        let mut world = World::new(config(1), config(2), Faults::default(), 3);
        let start = world.now;
        world.faults.cut = true;
        world.send(0, 0..1, 64);
        world.faults.cut = false;
        assert!(!world.run(start + expected));
        assert!(world.hosts[1].got.is_empty(), "{loss}");
        world.run(start + expected + Span::micros(11));
        assert_eq!(world.hosts[1].got.len(), 1, "{loss}");
    }
}

#[test]
fn a_selector_that_avoids_broken_paths_needs_a_detector_that_recognises_them() {
    let config = |paths: &str, loss: &str| Config {
        paths: cc::PathsConfig::by_name(paths, 16).unwrap(),
        loss: loss.parse().unwrap(),
        ..nscc(1)
    };
    for (paths, loss, fits) in [
        ("reps", "trim", false),
        ("reps", "none", false),
        ("reps:freeze=0", "trim", true),
        ("oblivious", "none", true),
        ("reps", "trim,rto", true),
        ("reps", "ooo", true),
        ("reps", "probe", true),
    ] {
        let checked = config(paths, loss).check();
        assert_eq!(checked.is_ok(), fits, "{paths} {loss}");
        if let Err(conflict) = checked {
            let said = conflict.to_string();
            assert!(said.contains("add ooo, probe or rto"), "{said}");
        }
    }
}
