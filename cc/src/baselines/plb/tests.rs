//! PLB branch by branch, with windows of four packets: four reports are a round trip.

use super::*;
use PathSignal::{Ecn, Good, Nack, Timeout};

const T0: Time = Time::ZERO;

fn plb() -> Plb {
    Plb::new(Arc::new(PlbConfig::new(64)), Rng::new(2))
}

/// One round trip with `marked` marks of four; the path afterwards.
fn round(plb: &mut Plb, now: Time, marked: usize) -> u16 {
    let path = plb.pick(now, 4);
    for n in 0..4 {
        plb.on_feedback(now, path, if n < marked { Ecn } else { Good });
    }
    plb.pick(now, 4)
}

#[test]
fn twelve_congested_round_trips_in_a_row_change_the_path() {
    let mut plb = plb();
    let path = plb.pick(T0, 4);
    for _ in 0..11 {
        // Two of four is half, which is the threshold.
        assert_eq!(round(&mut plb, T0, 2), path);
    }
    let other = round(&mut plb, T0, 4);
    assert_ne!(other, path);
    // The count starts again.
    for _ in 0..11 {
        assert_eq!(round(&mut plb, T0, 4), other);
    }
    assert_ne!(round(&mut plb, T0, 4), other);
    assert_eq!(plb.metrics().changes, 2);
}

#[test]
fn one_round_trip_below_the_threshold_starts_the_count_again() {
    let mut plb = plb();
    let path = plb.pick(T0, 4);
    for n in 1..=40 {
        // Every eleventh has one mark of four, a quarter.
        assert_eq!(round(&mut plb, T0, if n % 11 == 0 { 1 } else { 4 }), path);
    }
}

#[test]
fn refusals_count_as_marks_and_other_paths_do_not_count() {
    let mut plb = plb();
    let path = plb.pick(T0, 1);
    for _ in 0..100 {
        plb.on_feedback(T0, (path + 1) % 64, Ecn);
        plb.on_feedback(T0, 1000, Timeout);
    }
    assert_eq!(plb.pick(T0, 1), path);
    for _ in 0..12 {
        plb.on_feedback(T0, path, Nack);
    }
    assert_ne!(plb.pick(T0, 1), path);
}

#[test]
fn an_idle_flow_changes_after_three() {
    let mut plb = plb();
    let path = plb.pick(T0, 4);
    for congested in 1..=3 {
        plb.on_idle(T0);
        assert_eq!(plb.pick(T0, 4), path, "after {} round trips", congested - 1);
        round(&mut plb, T0, 4);
    }
    plb.on_idle(T0);
    let other = plb.pick(T0, 4);
    assert_ne!(other, path);
    plb.on_idle(T0);
    assert_eq!(plb.pick(T0, 4), other);
}

#[test]
fn a_time_out_changes_at_once_and_then_not_for_a_minute_or_two() {
    let mut plb = plb();
    let path = plb.pick(T0, 4);
    plb.on_feedback(T0, path, Timeout);
    let other = plb.pick(T0, 4);
    assert_ne!(other, path);
    let (almost, later) = (Time(59_999_999_999), Time(120_000_000_000));
    for _ in 0..20 {
        assert_eq!(round(&mut plb, almost, 4), other);
        plb.on_idle(almost);
    }
    // The count went on: the next congested round trip after the pause is enough.
    assert_ne!(round(&mut plb, later, 4), other);
}

#[test]
fn every_other_path_can_be_drawn_and_a_single_one_stays() {
    let mut plb = Plb::new(Arc::new(PlbConfig::new(4)), Rng::new(1));
    let mut used = [false; 4];
    for _ in 0..100 {
        let path = plb.pick(T0, 1);
        plb.on_feedback(T0, path, Timeout);
        assert_ne!(plb.pick(T0, 1), path);
        used[usize::from(plb.pick(T0, 1))] = true;
    }
    assert_eq!(used, [true; 4]);
    let mut one = Plb::new(Arc::new(PlbConfig::new(1)), Rng::new(1));
    one.on_feedback(T0, 0, Timeout);
    assert_eq!((one.pick(T0, 1), one.metrics().changes), (0, 0));
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<Plb>() <= 48, "{}", size_of::<Plb>());
    let good = PlbConfig::new(8);
    for (config, parameter) in [
        (PlbConfig::new(0), "paths"),
        (PlbConfig { threshold: 1.5, ..good.clone() }, "threshold"),
        (PlbConfig { idle_rounds: 0, ..good.clone() }, "idle_rounds"),
        (PlbConfig { rounds: 0, ..good.clone() }, "rounds"),
        (PlbConfig { suspend: Span::MAX, ..good.clone() }, "suspend"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
}
