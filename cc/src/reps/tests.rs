//! REPS branch by branch, on paths numbered so that a recycled one differs from a random one: the
//! random ones of these seeds are compared with a second generator.

use super::*;
use PathSignal::{Ecn, Good, Lost, Nack, Timeout};

const T0: Time = Time::ZERO;

fn reps(paths: u16) -> Reps {
    Reps::new(Arc::new(RepsConfig { avoiding: true, ..RepsConfig::new(paths) }), Rng::new(1))
}

/// All as in uet-htsim.
fn plain(paths: u16) -> Reps {
    let config = RepsConfig::new(paths);
    Reps::new(Arc::new(config), Rng::new(1))
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
    assert_eq!(
        reps.metrics(),
        PathMetrics {
            frozen: true,
            freezes: 1,
            remembered: 3,
            changes: 0,
            avoided: 1 << (200 % 32)
        }
    );
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
    let (mut reps, mut random) = (plain(256), random(256));
    reps.on_feedback(T0, 3, Timeout);
    assert_eq!(reps.pick(T0, 1), random());
    assert_eq!(reps.pick(T0, 1), random());
}

#[test]
fn as_in_htsim_thawing_forgets_and_sixteen_packets_explore_without_freezing() {
    let (mut reps, mut random) = (plain(256), random(256));
    reps.on_feedback(T0, 9, Good);
    reps.on_feedback(T0, 3, Timeout);
    // The report that thaws it is remembered in the emptied ring.
    reps.on_feedback(Time(10_000_001), 44, Good);
    assert_eq!(
        reps.metrics(),
        PathMetrics { frozen: false, freezes: 1, remembered: 1, changes: 0, avoided: 0 }
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
fn a_path_that_swallows_is_avoided_until_it_answers() {
    for signal in [Lost, Timeout] {
        let mut reps = reps(8);
        for path in 0..8 {
            reps.on_feedback(T0, path, Good);
        }
        for path in [0, 1, 2, 4, 5, 6] {
            reps.on_feedback(Time(5), path, signal);
        }
        // Neither recycled, nor cycled through, nor drawn.
        for path in picks(&mut reps, 40) {
            assert!([3, 7].contains(&path), "{signal:?}: {path}");
        }
        reps.on_feedback(Time(6), 4, Good);
        assert!(picks(&mut reps, 40).contains(&4), "{signal:?}");
    }
    // A trimmed packet or a mark is congestion.
    let mut reps = reps(8);
    reps.on_feedback(T0, 3, Good);
    reps.on_feedback(T0, 3, Nack);
    reps.on_feedback(T0, 3, Ecn);
    assert_eq!(reps.pick(T0, 1), 3);
}

#[test]
fn sound_paths_are_drawn_alike_however_many_there_are() {
    // 256 paths in 32 classes: a suspect stands for its class. 80 paths: classes 0 to 15 have three.
    for (paths, suspects) in [(8, [1, 2]), (256, [7, 8]), (80, [0, 31])] {
        let mut reps = reps(paths);
        for path in suspects {
            reps.on_feedback(T0, path, Lost);
        }
        let mut drawn = alloc::vec![0u32; paths.into()];
        for path in picks(&mut reps, 1000 * usize::from(paths)) {
            drawn[usize::from(path)] += 1;
        }
        for (path, &n) in (0u16..).zip(&drawn) {
            if suspects.contains(&(path % 32)) {
                assert_eq!(n, 0, "{paths}: {path}");
            } else {
                assert!((800..2000).contains(&n), "{paths}: {n} times {path}");
            }
        }
    }
}

#[test]
fn when_all_paths_swallow_any_will_do() {
    let (mut reps, mut random) = (reps(4), random(4));
    for path in 0..4 {
        reps.on_feedback(T0, path, Lost);
    }
    assert_eq!(reps.pick(T0, 1), random());
    assert_eq!(reps.pick(T0, 1), random());
}

#[test]
fn thawing_goes_on_with_what_is_known_and_explores_with_every_fourth_packet() {
    let (mut reps, mut random) = (reps(256), random(256));
    for path in 100..104 {
        reps.on_feedback(T0, path, Good);
    }
    reps.on_feedback(T0, 3, Timeout);
    reps.on_feedback(Time(10_000_001), 104, Good);
    assert_eq!(
        reps.metrics(),
        PathMetrics { frozen: false, freezes: 1, remembered: 5, changes: 0, avoided: 0 }
    );
    assert_eq!(picks(&mut reps, 3), [100, 101, 102]);
    assert_eq!(reps.pick(T0, 1), random());
    assert_eq!(picks(&mut reps, 2), [103, 104]);
    // Nothing is known any more.
    assert_eq!(picks(&mut reps, 2), [random(), random()]);
    reps.on_feedback(Time(10_000_002), 3, Timeout);
    assert!(!reps.metrics().frozen, "not while exploring");
}

#[test]
fn what_was_used_while_frozen_is_not_recycled_after_it() {
    let mut reps = reps(256);
    for path in 100..108 {
        reps.on_feedback(T0, path, Good);
    }
    reps.on_feedback(T0, 3, Timeout);
    assert_eq!(picks(&mut reps, 2), [100, 101]);
    reps.on_feedback(Time(1), 108, Good); // in the place of 100
    assert_eq!(picks(&mut reps, 2), [102, 103]);
    reps.on_feedback(Time(10_000_001), 5, Ecn);
    assert_eq!(picks(&mut reps, 3), [104, 105, 106]);
    reps.pick(T0, 1);
    assert_eq!(picks(&mut reps, 2), [107, 108]);
}

#[test]
fn trouble_that_returns_is_remembered_twice_as_long() {
    let mut reps = reps(8);
    let mut now = 1_000_000_000;
    for doublings in [0, 1, 2, 3, 4, 5, 6, 6] {
        reps.on_feedback(Time(now), 3, Lost);
        now += 10_000_000 << doublings;
        reps.on_feedback(Time(now), 5, Ecn);
        assert!(reps.is_suspect(3), "{doublings}: the time is not over");
        now += 1;
        reps.on_feedback(Time(now), 5, Ecn);
        assert!(!reps.is_suspect(3), "{doublings}: it is over");
    }
    // After as long a time of peace it is new trouble.
    now += 640_000_000;
    reps.on_feedback(Time(now), 3, Lost);
    reps.on_feedback(Time(now + 10_000_001), 5, Ecn);
    assert!(!reps.is_suspect(3));
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
