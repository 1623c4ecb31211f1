//! Algorithm 4 line by line, on eight paths.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

fn reps(explore: u32) -> RepsV1 {
    RepsV1::new(Arc::new(RepsV1Config { explore, ..RepsV1Config::new(8) }), Rng::new(1))
}

fn picks(reps: &mut RepsV1, n: usize, cwnd: u32) -> alloc::vec::Vec<u16> {
    (0..n).map(|_| reps.pick(T0, cwnd)).collect()
}

#[test]
fn the_first_window_goes_round_and_then_the_cached_one_is_taken() {
    // Five packets are a window: lines 5-6 five times, then line 8 with nothing cached yet (line 3).
    assert_eq!(picks(&mut reps(0), 8, 5), [0, 1, 2, 3, 4, 0, 0, 0]);
    // A configured bandwidth-delay product overrules the window.
    assert_eq!(picks(&mut reps(3), 5, 100), [0, 1, 2, 0, 0]);
    // Every path tried once: no second round although the window is larger.
    assert_eq!(picks(&mut reps(0), 10, 100), [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]);
}

#[test]
fn the_latest_ack_decides() {
    let mut reps = reps(2);
    assert_eq!(picks(&mut reps, 2, 1), [0, 1]);
    for (path, signal, next) in [
        (1, Good, 1),    // line 16: cached
        (0, Good, 0),    // the later one wins
        (1, Ecn, 2),     // line 14: next_entropy++ was at 2
        (2, Good, 2),    // line 16
        (2, Nack, 3),    // as a mark
        (3, Timeout, 4), // as a mark
        (0, Ecn, 5),
        (0, Ecn, 6),
        (0, Ecn, 7),
        (0, Ecn, 0), // modulo 8
    ] {
        reps.on_feedback(T0, path, signal);
        // Line 8 any number of times.
        assert_eq!(picks(&mut reps, 2, 50), [next, next], "after {signal:?} on {path}");
    }
}

#[test]
fn a_mark_in_the_first_window_takes_its_turn_from_the_round() {
    let mut reps = reps(4);
    assert_eq!(picks(&mut reps, 2, 1), [0, 1]);
    reps.on_feedback(T0, 0, Ecn); // cached = 2, next = 3
    assert_eq!(picks(&mut reps, 4, 1), [3, 4, 2, 2]);
}

#[test]
fn a_window_that_grows_does_not_start_a_second_exploration() {
    let mut reps = reps(0);
    assert_eq!(picks(&mut reps, 3, 2), [0, 1, 0]);
    assert_eq!(picks(&mut reps, 2, 100), [0, 0]);
}

#[test]
fn paths_that_do_not_exist_are_ignored_and_one_path_is_enough() {
    let mut one = RepsV1::new(Arc::new(RepsV1Config::new(1)), Rng::new(1));
    one.on_feedback(T0, 1, Good);
    assert_eq!(picks(&mut one, 3, 9), [0, 0, 0]);
    one.on_feedback(T0, 0, Ecn);
    assert_eq!(one.pick(T0, 9), 0);
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<RepsV1>() <= 24, "{}", size_of::<RepsV1>());
    assert_eq!(RepsV1Config::new(0).check().map_err(|error| error.parameter), Err("paths"));
    let config = RepsV1Config { explore: 1_000_001, ..RepsV1Config::new(1) };
    assert_eq!(config.check().map_err(|error| error.parameter), Err("explore"));
}
