//! `UecMpBitmap` branch by branch. A twin of the order says whose turn it is.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

fn bitmap(paths: u16) -> BitmapPaths {
    BitmapPaths::new(Arc::new(BitmapConfig::new(paths)), Rng::new(5))
}

fn order(paths: u16) -> ObliviousPaths {
    ObliviousPaths::with_paths(paths, Rng::new(5))
}

#[test]
fn without_penalties_it_sprays() {
    let (mut bitmap, mut order) = (bitmap(16), order(16));
    for _ in 0..64 {
        assert_eq!(bitmap.pick(T0, 1), order.pick(T0, 1));
    }
}

#[test]
fn reports_cost_one_four_and_all_turns_and_never_more_than_fifteen() {
    let mut bitmap = bitmap(8);
    for (signal, total) in [
        (Good, 0),
        (Ecn, 1),
        (Ecn, 2),
        (Nack, 6),
        (Good, 6), // forgives nothing
        (Nack, 10),
        (Nack, 14),
        (Nack, 15), // 18 is too much
        (Timeout, 15),
    ] {
        bitmap.on_feedback(T0, 3, signal);
        assert_eq!(bitmap.penalties[3], total, "after {signal:?}");
    }
    bitmap.on_feedback(T0, 4, Timeout);
    assert_eq!(bitmap.penalties[4], 15);
    assert_eq!(bitmap.metrics().remembered, 6);
}

#[test]
fn a_path_is_skipped_for_as_many_turns_as_its_penalty() {
    let (mut bitmap, order) = (bitmap(8), order(8));
    let first = order.peek();
    bitmap.on_feedback(T0, first, Ecn);
    bitmap.on_feedback(T0, first, Ecn);
    // Two rounds without it: in each the turn goes to the next, and costs one of the two.
    let mut picked = alloc::vec::Vec::new();
    for _ in 0..14 {
        picked.push(bitmap.pick(T0, 1));
    }
    assert!(!picked.contains(&first), "{picked:?} has {first}");
    assert_eq!(*bitmap.penalty(first), 0);
    // The third round has it again.
    let third: alloc::vec::Vec<u16> = (0..8).map(|_| bitmap.pick(T0, 1)).collect();
    assert!(third.contains(&first));
}

#[test]
fn only_the_first_bad_path_met_is_forgiven_a_turn() {
    let (mut bitmap, mut order) = (bitmap(8), order(8));
    let turn: [u16; 3] = core::array::from_fn(|_| order.pick(T0, 1));
    bitmap.on_feedback(T0, turn[0], Nack);
    bitmap.on_feedback(T0, turn[1], Nack);
    assert_eq!(bitmap.pick(T0, 1), turn[2]);
    assert_eq!((*bitmap.penalty(turn[0]), *bitmap.penalty(turn[1])), (3, 4));
}

#[test]
fn when_all_paths_are_bad_one_is_taken_all_the_same() {
    let mut bitmap = bitmap(4);
    for path in 0..4 {
        bitmap.on_feedback(T0, path, Timeout);
    }
    for turn in 1..=8u32 {
        assert!(bitmap.pick(T0, 1) < 4);
        let left: u32 = bitmap.penalties.iter().map(|&penalty| u32::from(penalty)).sum();
        assert_eq!(left, 60 - turn, "each pick forgives one turn");
    }
}

#[test]
fn a_path_out_of_range_is_ignored_and_one_path_works() {
    let mut one = bitmap(1);
    one.on_feedback(T0, 1, Timeout);
    one.on_feedback(T0, 0, Ecn);
    assert_eq!((one.pick(T0, 1), one.pick(T0, 1)), (0, 0));
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<BitmapPaths>() <= 48, "{}", size_of::<BitmapPaths>());
    for (config, parameter) in [
        (BitmapConfig::new(0), "paths"),
        (BitmapConfig::new(48), "paths"),
        (BitmapConfig { most: 0, ..BitmapConfig::new(8) }, "most"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
}
