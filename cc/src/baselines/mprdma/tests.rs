//! The window step by step: 100 Gb/s times 8 us is 100000 bytes, packets have 5000, so a window is 20
//! packets and its largest 30.

use super::*;
use crate::network::NetworkProfile;
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

fn config() -> MprdmaConfig {
    MprdmaConfig::new(&NetworkProfile::new(Rate::gbps(100), Span::micros(8), 5000, true))
}

fn at(window: u64) -> Mprdma {
    let config = MprdmaConfig { start_window: window, ..config() };
    config.check().expect("in range");
    Mprdma::new(Arc::new(config), Time::ZERO)
}

fn window(mprdma: &Mprdma) -> u64 {
    mprdma.budget(Time::ZERO).window.expect("a window")
}

#[test]
fn it_starts_at_one_bandwidth_delay_product() {
    let config = config();
    assert_eq!((config.start_window, config.max_window), (100_000, 150_000));
    assert_eq!(window(&Mprdma::new(Arc::new(config), Time::ZERO)), 100_000);
}

#[test]
fn every_packet_moves_the_window() {
    let ack = |packets: u16, ecn, marked| Feedback {
        bytes: u32::from(packets) * 5000,
        packets,
        ecn,
        marked,
        ..Feedback::default()
    };
    let nack = |trimmed| {
        let kind = FeedbackKind::Nacked { trimmed, last_hop: false };
        Feedback { kind, bytes: 5000, packets: 1, ..Feedback::default() }
    };
    let kind = |kind| Feedback { kind, bytes: 5000, packets: 1, ..Feedback::default() };
    for (what, before, feedback, after) in [
        // 5000 * 5000 / 100000 = 250: a twentieth of a packet.
        ("a clean packet", 100_000, ack(1, false, 0), 100_250),
        // 4 * 250
        ("four clean packets", 100_000, ack(4, false, 0), 101_000),
        // 5000 / 2
        ("a marked packet", 100_000, ack(1, true, 1), 97_500),
        ("a marked packet, uncounted", 100_000, ack(1, true, 0), 97_500),
        // + 3 * 250, - 2500
        ("one of four marked", 100_000, ack(4, true, 1), 98_250),
        // - 4 * 2500
        ("four, nobody counted", 100_000, ack(4, true, 0), 90_000),
        ("more marks than packets", 100_000, ack(2, true, 9), 95_000),
        // A count without the flag is no mark.
        ("no flag", 100_000, ack(1, false, 1), 100_250),
        ("a trimmed packet", 100_000, nack(true), 95_000),
        ("a refused packet", 100_000, nack(false), 100_000),
        ("a lost packet", 100_000, kind(FeedbackKind::Lost), 95_000),
        ("a time-out", 100_000, kind(FeedbackKind::TimedOut), 95_000),
        ("a probe's answer", 100_000, kind(FeedbackKind::ProbeAnswered), 100_000),
        ("a notification", 100_000, kind(FeedbackKind::Notified), 100_000),
        // 149950 + 166 is above 150000.
        ("the largest window", 149_950, ack(1, false, 0), 150_000),
        // 6000 - 2500 is below one MTU.
        ("the smallest window", 6_000, ack(1, true, 1), 5_000),
        ("the smallest window, lost", 6_000, kind(FeedbackKind::Lost), 5_000),
    ] {
        let mut mprdma = at(before);
        mprdma.on_feedback(&feedback);
        assert_eq!(window(&mprdma), after, "{what}");
    }
}

#[test]
fn a_clean_round_trip_adds_about_a_packet() {
    let mut mprdma = at(100_000);
    for _ in 0..20 {
        let ack = Feedback { bytes: 5000, packets: 1, ..Feedback::default() };
        mprdma.on_feedback(&ack);
    }
    // The harmonic sum: a little less than 20 * 250.
    assert!((104_800..105_000).contains(&window(&mprdma)), "{}", window(&mprdma));
}

#[test]
fn floors_hold_where_hosts_are_slow_and_parameters_are_checked() {
    let network = NetworkProfile {
        min_window: Some(64_000),
        min_base_rtt: Some(Span::micros(80)),
        ..NetworkProfile::new(Rate::gbps(1), Span::micros(8), 5000, true)
    };
    // 1 Gb/s * 80 us = 10000 bytes, below the floor.
    let config = MprdmaConfig::new(&network);
    assert_eq!((config.start_window, config.max_window), (64_000, 64_000));
    for (config, parameter) in [
        (MprdmaConfig { mtu: 1, ..config.clone() }, "mtu"),
        (MprdmaConfig { min_window: 0, ..config.clone() }, "min_window"),
        (MprdmaConfig { max_window: 4_999, ..config.clone() }, "max_window"),
        (MprdmaConfig { start_window: 64_001, ..config.clone() }, "start_window"),
        (MprdmaConfig { increase: f32::NAN, ..config.clone() }, "increase"),
        (MprdmaConfig { decrease: -0.1, ..config.clone() }, "decrease"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
    assert!(size_of::<Mprdma>() <= 16, "{}", size_of::<Mprdma>());
}
