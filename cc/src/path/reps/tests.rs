//! REPS branch by branch, on paths numbered so that a recycled one is told from a random one: the
//! random ones of these seeds are compared with a second generator.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

fn reps(paths: u16) -> Reps {
    Reps::new(Arc::new(RepsConfig::new(paths)), Rng::new(1))
}

/// What a selector with nothing to recycle picks: the generator's own numbers.
fn random(paths: u16) -> impl FnMut() -> u16 {
    let mut rng = Rng::new(1);
    move || u16::try_from(rng.below(u32::from(paths))).expect("below a u16")
}

fn picks(reps: &mut Reps, n: usize) -> alloc::vec::Vec<u16> {
    (0..n).map(|_| reps.pick(T0, 1)).collect()
}

#[test]
fn explores_at_random_until_it_knows_a_path() {
    let (mut reps, mut random) = (reps(256), random(256));
    for signal in [Ecn, Nack, Good, Ecn] {
        let path = reps.pick(T0, 1);
        if signal == Good {
            assert_eq!(path, random());
            reps.on_feedback(T0, 77, Good);
            assert_eq!(reps.pick(T0, 1), 77, "a good path is used once more");
        } else {
            assert_eq!(path, random());
            reps.on_feedback(T0, path, signal);
        }
    }
    assert_eq!(reps.pick(T0, 1), random(), "lifetime 1");
}

#[test]
fn recycles_the_oldest_fresh_path_and_keeps_the_last_eight() {
    let mut reps = reps(256);
    for path in 100..110 {
        reps.on_feedback(T0, path, Good);
    }
    // 100 and 101 were overwritten.
    assert_eq!(picks(&mut reps, 4), [102, 103, 104, 105]);
    reps.on_feedback(T0, 110, Good);
    // 106 to 109 and 110 are left, in that order.
    assert_eq!(picks(&mut reps, 5), [106, 107, 108, 109, 110]);
    assert_eq!(reps.pick(T0, 1), random(256)());
}

#[test]
fn a_smaller_buffer_keeps_fewer() {
    for (buffer, kept) in [(1, alloc::vec![109]), (3, alloc::vec![107, 108, 109])] {
        let config = RepsConfig { buffer, ..RepsConfig::new(256) };
        let mut reps = Reps::new(Arc::new(config), Rng::new(1));
        for path in 100..110 {
            reps.on_feedback(T0, path, Good);
        }
        assert_eq!(picks(&mut reps, kept.len()), kept);
        assert_eq!(reps.pick(T0, 1), random(256)());
        assert_eq!(reps.metrics().remembered, u16::from(buffer));
        // Frozen, it cycles through as many.
        reps.on_feedback(Time(5), 200, Timeout);
        let (first, second) = (picks(&mut reps, kept.len()), picks(&mut reps, kept.len()));
        assert_eq!(first, second);
    }
}

#[test]
fn a_time_out_freezes_it_on_what_worked_used_or_not() {
    let mut reps = reps(256);
    for path in [10, 11, 12] {
        reps.on_feedback(T0, path, Good);
    }
    assert_eq!(picks(&mut reps, 2), [10, 11]);
    reps.on_feedback(Time(5), 200, Timeout);
    assert_eq!(reps.metrics(), PathMetrics { frozen: true, freezes: 1, remembered: 3, changes: 0 });
    assert_eq!(picks(&mut reps, 7), [10, 11, 12, 10, 11, 12, 10]);
    // Good paths still join the ring: the cycle is four long now.
    reps.on_feedback(Time(6), 13, Good);
    assert_eq!(picks(&mut reps, 5), [11, 12, 13, 10, 11]);
    // Frozen already: not counted, not prolonged.
    reps.on_feedback(Time(9_000_000), 201, Timeout);
    assert_eq!(reps.metrics().freezes, 1);
    reps.on_feedback(Time(10_000_005), 10, Ecn);
    assert!(reps.metrics().frozen, "10 ms are not over");
    reps.on_feedback(Time(10_000_006), 10, Ecn);
    assert!(!reps.metrics().frozen);
}

#[test]
fn frozen_without_a_known_path_it_stays_random() {
    let (mut reps, mut random) = (reps(256), random(256));
    reps.on_feedback(T0, 3, Timeout);
    assert_eq!(reps.pick(T0, 1), random());
    assert_eq!(reps.pick(T0, 1), random());
}

#[test]
fn after_thawing_it_explores_sixteen_packets_and_does_not_freeze_meanwhile() {
    let (mut reps, mut random) = (reps(256), random(256));
    reps.on_feedback(T0, 9, Good);
    reps.on_feedback(T0, 3, Timeout);
    // The report that thaws it is remembered in the emptied ring.
    reps.on_feedback(Time(10_000_001), 44, Good);
    assert_eq!(
        reps.metrics(),
        PathMetrics { frozen: false, freezes: 1, remembered: 1, changes: 0 }
    );
    for _ in 0..16 {
        reps.on_feedback(Time(10_000_002), 3, Timeout);
        assert!(!reps.metrics().frozen);
        assert_eq!(reps.pick(T0, 1), random());
    }
    assert_eq!(reps.pick(T0, 1), 44);
    reps.on_feedback(Time(10_000_003), 3, Timeout);
    assert_eq!(reps.metrics().freezes, 2);
}

#[test]
fn freezing_can_be_turned_off() {
    let config = RepsConfig { freezing: false, ..RepsConfig::new(8) };
    let mut reps = Reps::new(Arc::new(config), Rng::new(1));
    reps.on_feedback(T0, 3, Timeout);
    assert!(!reps.metrics().frozen);
}

#[test]
fn a_path_out_of_range_is_ignored() {
    let mut reps = reps(8);
    reps.on_feedback(T0, 8, Good);
    reps.on_feedback(T0, u16::MAX, Timeout);
    assert_eq!(reps.metrics(), PathMetrics::default());
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<Reps>() <= 64, "{}", size_of::<Reps>());
    assert_eq!(RepsConfig::new(0).check().map_err(|error| error.parameter), Err("paths"));
    assert_eq!(RepsConfig::new(1).check(), Ok(()));
    for buffer in [0, 9] {
        let config = RepsConfig { buffer, ..RepsConfig::new(1) };
        assert_eq!(config.check().map_err(|error| error.parameter), Err("buffer"));
    }
}
