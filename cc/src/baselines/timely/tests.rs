//! Every branch of algorithm 1, with numbers worked by hand on a network of 100 Gb/s and 12 us that
//! drops: T_low 30 us, T_high 300 us, delta 100 Mb/s, segments of four packets of 4096 bytes.

use super::*;
use crate::network::NetworkProfile;
use crate::testing::close;
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

const G: f32 = 1e9;

fn network(trimming: bool) -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, trimming)
}

/// A context at `gbps` whose previous sample was `prev_us`.
fn with(gbps: f32, prev_us: f32) -> Timely {
    let config = TimelyConfig::new(&network(false));
    config.check().expect("in range");
    let mut timely = Timely::new(Arc::new(config), Time::ZERO);
    timely.rate = gbps * G;
    timely.prev_rtt = prev_us * 1e3;
    timely
}

/// A segment acknowledged after `rtt_us`; returns the rate in Gb/s.
fn segment(timely: &mut Timely, rtt_us: u64) -> f32 {
    let rtt = Some(Span::micros(rtt_us));
    timely.on_feedback(&Feedback { bytes: 16_384, packets: 4, rtt, ..Feedback::default() });
    timely.rate / G
}

#[test]
fn parameters_follow_the_network() {
    let drops = TimelyConfig::new(&network(false));
    assert_eq!((drops.t_low, drops.t_high), (Span::micros(30), Span::micros(300)));
    assert_eq!((drops.delta, drops.segment), (Rate(100_000_000), 16_384));
    let trims = TimelyConfig::new(&network(true));
    assert_eq!((trims.t_low, trims.t_high), (Span::micros(15), Span::micros(21)));
    let budget = Timely::new(Arc::new(drops), Time::ZERO).budget(Time::ZERO);
    assert_eq!((budget.rate, budget.burst, budget.window), (Some(Rate::gbps(100)), 16_384, None));
    // 1.5 * 150000 B.
    let config = TimelyConfig { window: 1.5, ..trims };
    let budget = Timely::new(Arc::new(config), Time::ZERO).budget(Time::ZERO);
    assert_eq!(budget.window, Some(225_000));
}

/// `new_rtt < T_low`.
#[test]
fn below_t_low_the_rate_rises_whatever_the_gradient() {
    close(segment(&mut with(50.0, 12.0), 29), 50.1);
    close(segment(&mut with(50.0, 100.0), 12), 50.1);
    // Never above the line.
    close(segment(&mut with(99.95, 12.0), 12), 100.0);
}

/// `new_rtt > T_high`.
#[test]
fn above_t_high_the_rate_falls_whatever_the_gradient() {
    // 1 - 0.8 * (1 - 300/400) = 0.8.
    close(segment(&mut with(50.0, 400.0), 400), 40.0);
    close(segment(&mut with(50.0, 900.0), 400), 40.0);
    // Never below a thousandth of the line: 1 - 0.8 * (1 - 300/30000) = 0.208; 0.1 is the least.
    close(segment(&mut with(0.2, 30_000.0), 30_000), 0.1);
}

/// A positive gradient.
#[test]
fn a_rising_delay_costs_in_proportion_to_its_gradient() {
    // diff = 0.875 * (42 - 40) = 1.75 us; gradient = 1.75 / 12 = 0.1458333;
    // 1 - 0.8 * 0.1458333 = 0.8833333.
    let mut timely = with(60.0, 40.0);
    close(segment(&mut timely, 42), 53.0);
    // diff = 0.125 * 1.75 + 0.875 * 1 = 1.09375; 1 - 0.8 * 1.09375 / 12 = 0.9270833.
    close(segment(&mut timely, 43), 49.135_417);
    assert_eq!(timely.falling, 0);
    // A leap of 100 us asks for less than nothing: the least rate it is.
    close(segment(&mut with(60.0, 100.0), 200), 0.1);
}

/// A negative gradient, and hyper-active increase.
#[test]
fn a_falling_delay_pays_once_and_after_five_times_five_times() {
    let mut timely = with(50.0, 100.0);
    for (rtt, rate) in [(99, 50.1), (98, 50.2), (97, 50.3), (96, 50.4), (95, 50.9), (94, 51.4)] {
        close(segment(&mut timely, rtt), rate);
    }
    // A rise ends it: diff = 0.125 * -1.000 + 0.875 * 3 = 2.5 us (the old one within 1e-5 of -1);
    // 1 - 0.8 * 2.5 / 12 = 0.8333333; * 51.4 = 42.83333.
    let is = segment(&mut timely, 97);
    assert!((is - 42.833).abs() < 0.01, "{is}");
    // diff = 0.125 * 2.5 - 0.875 * 4 < 0: one step again.
    close(segment(&mut timely, 93), is + 0.1);
}

#[test]
fn a_constant_delay_pays_but_does_not_count() {
    let mut timely = with(50.0, 100.0);
    for n in 1..10_u8 {
        close(segment(&mut timely, 100), 50.0 + 0.1 * f32::from(n));
    }
    assert_eq!(timely.falling, 0);
    // Neither does T_low; T_high ends a count.
    segment(&mut timely, 99);
    segment(&mut timely, 98);
    segment(&mut timely, 20);
    assert_eq!(timely.falling, 2);
    segment(&mut timely, 301);
    assert_eq!(timely.falling, 0);
}

#[test]
fn the_first_sample_has_no_gradient() {
    let mut timely = with(50.0, 0.0);
    close(segment(&mut timely, 100), 50.1);
    close(timely.rtt_diff, 0.0);
    close(timely.prev_rtt, 100_000.0);
}

#[test]
fn a_completion_event_is_a_segment_and_needs_a_sample() {
    let mut timely = with(50.0, 12.0);
    let ack = |bytes, rtt| Feedback { bytes, packets: 1, rtt, ..Feedback::default() };
    let rtt = Some(Span::micros(12));
    for _ in 0..3 {
        timely.on_feedback(&ack(4096, rtt));
    }
    close(timely.rate / G, 50.0);
    // The fourth is of a retransmission; the fifth tells.
    timely.on_feedback(&ack(4096, None));
    close(timely.rate / G, 50.0);
    timely.on_feedback(&ack(4096, rtt));
    close(timely.rate / G, 50.1);
    assert_eq!(timely.acked, 0);
}

#[test]
fn a_loss_halves_once_a_round_trip() {
    let mut timely = with(80.0, 40.0);
    let lose = |at: u64, kind| Feedback { now: Time(at), kind, bytes: 4096, ..Feedback::default() };
    let trimmed = FeedbackKind::Nacked { trimmed: true, last_hop: false };
    for (at, kind, rate) in [
        (39_999, FeedbackKind::Lost, 80.0), // within a round trip, of 40 us lately, of the start
        (40_000, FeedbackKind::Lost, 40.0),
        (79_999, trimmed, 40.0),
        (80_000, trimmed, 20.0),
        (120_000, FeedbackKind::TimedOut, 10.0),
    ] {
        timely.on_feedback(&lose(at, kind));
        close(timely.rate / G, rate);
    }
    // No round trip is shorter than the base RTT.
    let mut timely = with(80.0, 0.0);
    timely.on_feedback(&lose(11_999, FeedbackKind::Lost));
    close(timely.rate / G, 80.0);
    timely.on_feedback(&lose(12_000, FeedbackKind::Lost));
    close(timely.rate / G, 40.0);
}

#[test]
fn what_is_no_sample_changes_nothing() {
    let mut timely = with(50.0, 40.0);
    for kind in [FeedbackKind::ProbeAnswered, FeedbackKind::Notified, FeedbackKind::Control] {
        let rtt = Some(Span::micros(400));
        timely.on_feedback(&Feedback { kind, bytes: 90_000, rtt, ..Feedback::default() });
        close(timely.rate / G, 50.0);
    }
}

#[test]
fn thresholds_out_of_order_are_refused() {
    let config = TimelyConfig { t_low: Span::micros(400), ..TimelyConfig::new(&network(false)) };
    let error = config.check().expect_err("T_low above T_high");
    assert_eq!((error.parameter, error.value), ("t_low_us", 400.0));
}

#[test]
fn state_is_small() {
    assert_eq!(size_of::<Timely>(), 32);
}

/// The paper's own numbers, on the network they are for: 10 Gb/s, 20 us.
#[test]
fn the_papers_network_has_the_papers_constants() {
    let config =
        TimelyConfig::new(&NetworkProfile::new(Rate::gbps(10), Span::micros(20), 1500, false));
    let times = [config.min_rtt, config.t_low, config.t_high].map(|time| time.0 / 1000);
    assert_eq!(times, [20, 50, 500]);
    assert_eq!((config.alpha, config.beta), (0.875, 0.8));
    assert_eq!((config.delta, config.hai, config.hai_after), (Rate(10_000_000), 5, 5));
}
