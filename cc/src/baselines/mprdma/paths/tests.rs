//! ACK clocking branch by branch. A second generator with the same seed predicts random picks.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

/// Without probes, so that the generator is asked for random paths only.
fn clocked(marked: bool) -> AckClockedPaths {
    let config = AckClockedConfig { probe: 0.0, marked, ..AckClockedConfig::new(256) };
    AckClockedPaths::new(Arc::new(config), Rng::new(4))
}

fn random() -> impl FnMut() -> u16 {
    let mut rng = Rng::new(4);
    move || u16::try_from(rng.below(256)).expect("below a u16")
}

fn picks(paths: &mut AckClockedPaths, n: usize) -> alloc::vec::Vec<u16> {
    (0..n).map(|_| paths.pick(T0, 10)).collect()
}

#[test]
fn the_first_window_takes_random_paths() {
    let (mut paths, mut random) = (clocked(true), random());
    for _ in 0..10 {
        assert_eq!(paths.pick(T0, 10), random());
    }
}

#[test]
fn each_ack_clocks_out_a_packet_on_its_path_and_the_last_one_a_second() {
    let (mut paths, mut random) = (clocked(true), random());
    for path in [7, 8, 7] {
        paths.on_feedback(T0, path, Good);
    }
    // Three ACKs, three packets; a fourth packet rides on the third ACK; a fifth has no ACK.
    assert_eq!(picks(&mut paths, 4), [7, 8, 7, 7]);
    assert_eq!(paths.pick(T0, 10), random());
    // The second use is gone with the next ACK's first one.
    paths.on_feedback(T0, 9, Good);
    assert_eq!(paths.pick(T0, 10), 9);
    paths.on_feedback(T0, 3, Good);
    assert_eq!(picks(&mut paths, 2), [3, 3]);
    assert_eq!(paths.pick(T0, 10), random());
}

#[test]
fn two_marked_acks_clock_out_one_packet() {
    let (mut paths, mut random) = (clocked(true), random());
    paths.on_feedback(T0, 5, Ecn);
    assert_eq!(paths.pick(T0, 10), random());
    paths.on_feedback(T0, 6, Ecn);
    assert_eq!(paths.pick(T0, 10), 6);
    // ... or none at all.
    let mut paths = clocked(false);
    paths.on_feedback(T0, 5, Ecn);
    paths.on_feedback(T0, 6, Ecn);
    assert_eq!(paths.metrics().remembered, 0);
}

#[test]
fn refused_and_lost_packets_clock_out_nothing() {
    let mut paths = clocked(true);
    paths.on_feedback(T0, 5, Nack);
    paths.on_feedback(T0, 5, Timeout);
    paths.on_feedback(T0, 256, Good); // no such path
    assert_eq!(paths.metrics().remembered, 0);
}

#[test]
fn old_clocks_give_way_and_an_idle_flow_has_none() {
    let mut paths = clocked(true);
    for path in 0..15 {
        paths.on_feedback(T0, path, Good);
    }
    assert_eq!(picks(&mut paths, 12), (3..15).collect::<alloc::vec::Vec<u16>>());
    paths.on_feedback(T0, 1, Good);
    paths.on_feedback(T0, 1, Ecn);
    paths.on_idle(T0);
    assert_eq!(paths.pick(T0, 10), random()());
    paths.on_feedback(T0, 1, Ecn);
    assert_eq!(paths.metrics().remembered, 0, "the earlier mark is forgotten");
}

#[test]
fn a_round_of_a_window_probes_with_the_probability_given() {
    let always = AckClockedConfig { probe: 1.0, ..AckClockedConfig::new(256) };
    let mut paths = AckClockedPaths::new(Arc::new(always), Rng::new(4));
    let mut off = 0;
    for n in 1..=400 {
        paths.on_feedback(T0, 7, Good);
        let probed = paths.pick(T0, 4) != 7;
        assert!(!probed || n % 4 == 0, "packet {n} is not the last of its round");
        off += u32::from(probed);
    }
    // Each of 100 rounds probes, and one random path of 256 is the clocked one itself.
    assert!((97..=100).contains(&off), "{off}");
    let mut paths = AckClockedPaths::new(Arc::new(AckClockedConfig::new(65_535)), Rng::new(4));
    let mut probes = 0;
    for _ in 0..100_000 {
        paths.on_feedback(T0, 7, Good);
        probes += u32::from(paths.pick(T0, 1) != 7);
    }
    // 1 % of 100000, five deviations of sqrt(100000 * 0.01 * 0.99) = 31 either way.
    assert!((843..=1157).contains(&probes), "{probes}");
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<AckClockedPaths>() <= 64, "{}", size_of::<AckClockedPaths>());
    for (config, parameter) in [
        (AckClockedConfig::new(0), "paths"),
        (AckClockedConfig { probe: 1.1, ..AckClockedConfig::new(1) }, "probe"),
        (AckClockedConfig { probe: f64::NAN, ..AckClockedConfig::new(1) }, "probe"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
}
