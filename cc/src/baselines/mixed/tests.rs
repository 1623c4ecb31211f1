//! `UecMpMixed` branch by branch.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

fn mixed(paths: u16) -> (MixedPaths, BitmapPaths) {
    let config = Arc::new(MixedConfig::new(paths));
    let bitmap = BitmapPaths::new(Arc::clone(&config.bitmap), Rng::new(9));
    (MixedPaths::new(config, Rng::new(9)), bitmap)
}

fn picks(mixed: &mut MixedPaths, n: usize) -> alloc::vec::Vec<u16> {
    (0..n).map(|_| mixed.pick(T0, 1)).collect()
}

#[test]
fn good_paths_are_used_once_more_in_their_order_and_then_the_bitmap_decides() {
    let (mut mixed, mut bitmap) = mixed(16);
    assert_eq!(mixed.pick(T0, 1), bitmap.pick(T0, 1));
    for path in [5, 9, 5] {
        mixed.on_feedback(T0, path, Good);
    }
    assert_eq!(mixed.metrics().remembered, 3);
    assert_eq!(picks(&mut mixed, 3), [5, 9, 5]);
    assert_eq!(mixed.pick(T0, 1), bitmap.pick(T0, 1), "nothing left to recycle");
}

#[test]
fn bad_reports_reach_the_bitmap_only() {
    let (mut mixed, mut bitmap) = mixed(8);
    let bad = bitmap.clone().pick(T0, 1);
    for signal in [Ecn, Nack, Timeout] {
        mixed.on_feedback(T0, bad, signal);
        bitmap.on_feedback(T0, bad, signal);
    }
    assert_eq!(mixed.metrics().remembered, 0);
    // 1 + 4 + 15 is at most 15 turns.
    for _ in 0..60 {
        assert_eq!(mixed.pick(T0, 1), bitmap.pick(T0, 1));
    }
}

#[test]
fn a_recycled_path_is_taken_although_it_was_penalised_since() {
    let (mut mixed, _) = mixed(8);
    mixed.on_feedback(T0, 6, Good);
    mixed.on_feedback(T0, 6, Timeout);
    assert_eq!(mixed.pick(T0, 1), 6);
}

#[test]
fn the_newest_good_paths_push_out_the_oldest() {
    let (mut mixed, _) = mixed(4);
    for path in [0, 1, 2, 3, 1, 2] {
        mixed.on_feedback(T0, path, Good);
    }
    assert_eq!(mixed.metrics().remembered, 4);
    assert_eq!(picks(&mut mixed, 4), [2, 3, 1, 2]);
}

#[test]
fn a_path_out_of_range_is_ignored() {
    let (mut mixed, _) = mixed(4);
    mixed.on_feedback(T0, 4, Good);
    mixed.on_feedback(T0, u16::MAX, Timeout);
    assert_eq!(mixed.metrics().remembered, 0);
    assert!(size_of::<MixedPaths>() <= 72, "{}", size_of::<MixedPaths>());
}
