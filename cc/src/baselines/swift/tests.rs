//! Every branch of algorithm 1 and section 3.5, with numbers worked by hand on a network of 100 Gb/s and
//! 12 us that drops, with packets of 4096 bytes: base target 1.2 * 12 = 14.4 us, per hop 0.48 * 12 = 5.76 us,
//! `fs_range` 72 us. With 1/sqrt(0.1) = 3.162278 and 1/sqrt(100) = 0.1,
//! alpha = 72000 / 3.062278 = 23511.91 ns and beta = -0.1 alpha = -2351.19 ns.

use super::*;
use crate::network::NetworkProfile;
use crate::tuning::Tunable;
use squall_base::Rate;

const MTU: f32 = 4096.0;

fn reference() -> SwiftConfig {
    SwiftConfig::new(&NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, false))
}

/// A context with a window of `packets`, 100 us old.
fn with_cwnd(packets: f32) -> Swift {
    let config = reference();
    config.check().expect("in range");
    let mut swift = Swift::new(Arc::new(config), Time::ZERO);
    swift.cwnd = packets * MTU;
    swift
}

/// Feeds a report of `bytes` at 100 us and returns the window in packets.
fn feed(swift: &mut Swift, kind: FeedbackKind, bytes: u32, rtt: Option<u64>) -> f32 {
    let now = Time(100_000);
    let rtt = rtt.map(Span);
    swift.on_feedback(&Feedback { now, kind, bytes, packets: 1, rtt, ..Feedback::default() });
    swift.cwnd / MTU
}

fn ack(swift: &mut Swift, rtt: u64) -> f32 {
    feed(swift, FeedbackKind::Acked, 4096, Some(rtt))
}

#[track_caller]
fn close(is: f32, should: f32) {
    assert!((is - should).abs() <= should.abs() * 2e-5, "is {is}, should be {should}");
}

#[test]
fn with_trimming_no_target_is_beyond_the_queue() {
    let config =
        SwiftConfig::new(&NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, true));
    // 1.2 + 0.24 + 0.4 = 1.84 base RTTs, where the queue is full at 2.
    assert_eq!((config.per_hop, config.fs_range), (Span(2_880), Span(4_800)));
    assert_eq!(config.base_target + config.per_hop + config.fs_range, Span(22_080));
}

#[test]
fn a_flow_starts_at_line_rate() {
    let swift = Swift::new(Arc::new(reference()), Time::ZERO);
    // 150000 / 4096 = 36.62 packets of at most 54.93.
    assert_eq!(swift.budget(Time::ZERO), Budget { window: Some(150_000), ..Budget::default() });
    assert_eq!(swift.metrics().max_cwnd, Some(225_000));
}

/// Section 3.5: base target + hops * per hop + clamp(alpha / sqrt(cwnd) + beta, 0, fs_range).
#[test]
fn the_target_scales_with_hops_and_window() {
    for (packets, hops, target) in [
        // 23511.91 / 4 - 2351.19 = 3526.79; + 14400 + 5760.
        (16.0, None, 23_686.79),
        (16.0, Some(0), 17_926.79),
        (16.0, Some(3), 14_400.0 + 3.0 * 5_760.0 + 3_526.79),
        // 23511.91 / 2 - 2351.19 = 9404.76.
        (4.0, Some(0), 23_804.76),
        (1.0, Some(0), 14_400.0 + 21_160.72),
        // At fs_max_cwnd and above nothing, at fs_min_cwnd and below all.
        (100.0, Some(0), 14_400.0),
        (400.0, Some(0), 14_400.0),
        (0.1, Some(0), 86_400.0),
        (0.01, Some(0), 86_400.0),
    ] {
        close(with_cwnd(packets).target(hops), target);
    }
}

/// The same with the thesis' numbers: base 5 us, range 25 us, fs_max 50 packets of 1000 bytes give
/// alpha 8.276 us and beta -1.170 us, so 25, 7.11, 1.45 and 0 us at 0.1, 1, 10 and 50 packets.
#[test]
fn flow_scaling_as_the_thesis_has_it() {
    let config = SwiftConfig {
        mtu: 1000,
        base_target: Span::micros(5),
        fs_range: Span::micros(25),
        fs_max_cwnd: 50.0,
        ..reference()
    };
    let mut swift = Swift::new(Arc::new(config), Time::ZERO);
    for (packets, added) in [(0.1, 25.0), (1.0, 7.106), (10.0, 1.447), (50.0, 0.0)] {
        swift.cwnd = packets * 1000.0;
        let is = (swift.target(Some(0)) - 5_000.0) / 1e3;
        assert!((is - added).abs() < 0.01, "{packets} packets: {is} us, not {added}");
    }
}

/// Additive increase. At 16 packets the target is 23.69 us.
#[test]
fn below_the_target_the_window_grows_additively() {
    // ai / cwnd * num_acked = 1/16.
    close(ack(&mut with_cwnd(16.0), 12_000), 16.0625);
    // An ACK of four packets: 4/16. Just below the target is below.
    close(feed(&mut with_cwnd(16.0), FeedbackKind::Acked, 4 * 4096, Some(23_686)), 16.25);
    // Below one packet, ai per packet: 0.5 + 1, and then 1.5 + 1/1.5.
    let mut swift = with_cwnd(0.5);
    close(ack(&mut swift, 12_000), 1.5);
    close(ack(&mut swift, 12_000), 1.5 + 1.0 / 1.5);
    // Never above max_cwnd, 225000 B = 54.93 packets.
    close(ack(&mut with_cwnd(54.93), 12_000), 225_000.0 / 4096.0);
}

/// Multiplicative decrease.
#[test]
fn above_the_target_the_window_shrinks_with_the_excess() {
    // 1 - 0.8 * (30000 - 23686.79) / 30000 = 0.831648; * 16 = 13.30637.
    close(ack(&mut with_cwnd(16.0), 30_000), 13.306_37);
    // Exactly on the target is not below; but nothing is in excess: 16 packets, hops given so that the
    // target is a whole number: fs_max_cwnd packets and more have 14400 + 5760.
    let mut swift = with_cwnd(50.0);
    swift.fs_alpha = 0.0;
    swift.fs_beta = 0.0;
    close(ack(&mut swift, 20_160), 50.0);
    // 1 - 0.8 * (100000 - 23686.79) / 100000 = 0.3895, but at most max_mdf = 0.5 is lost.
    close(ack(&mut with_cwnd(16.0), 100_000), 8.0);
}

/// `can_decrease`: the smoothed RTT is 12000 + (30000 - 12000) / 8 = 14250 ns after the first late ACK.
#[test]
fn it_shrinks_once_a_round_trip() {
    let mut swift = with_cwnd(16.0);
    close(ack(&mut swift, 30_000), 13.306_37);
    close(ack(&mut swift, 30_000), 13.306_37);
    // The second moved it to 14250 + 15750 / 8 = 16218.75, the third at 116 us to 17941.4: too early.
    let late = |at| Feedback {
        now: Time(at),
        bytes: 4096,
        rtt: Some(Span(30_000)),
        ..Feedback::default()
    };
    swift.on_feedback(&late(116_000));
    close(swift.cwnd / MTU, 13.306_37);
    // The fourth to 19448.7: at 119 us still too early; the fifth to 20767.6: 121 us is late enough.
    // Target: 20160 + 23511.91 / sqrt(13.30637) - 2351.19 = 24254.33;
    // 1 - 0.8 * (30000 - 24254.33) / 30000 = 0.8467822; * 13.30637 = 11.26760.
    swift.on_feedback(&late(119_000));
    close(swift.cwnd / MTU, 13.306_37);
    swift.on_feedback(&late(121_000));
    close(swift.cwnd / MTU, 11.267_6);
}

#[test]
fn losses_cost_the_largest_share_once_a_round_trip() {
    for kind in [FeedbackKind::Lost, FeedbackKind::Nacked { trimmed: true, last_hop: false }] {
        let mut swift = with_cwnd(16.0);
        swift.timeouts = 3;
        close(feed(&mut swift, kind, 4096, None), 8.0);
        close(feed(&mut swift, kind, 4096, None), 8.0);
        assert_eq!(swift.timeouts, 0, "a loss is no time-out");
    }
}

/// "On retransmit timeout": halved once a round trip; the fifth in a row leaves 0.1 packets.
#[test]
fn time_outs_in_a_row_reset_the_window() {
    let mut swift = with_cwnd(16.0);
    let time_out = |at| Feedback {
        now: Time(at),
        kind: FeedbackKind::TimedOut,
        bytes: 4096,
        ..Feedback::default()
    };
    for (at, packets) in [
        (100_000, 8.0),
        (100_000, 8.0), // another packet of the same loss
        (111_999, 8.0),
        (112_000, 4.0),
        (200_000, 2.0),
        (300_000, 1.0),
        (400_000, 0.1),
    ] {
        swift.on_feedback(&time_out(at));
        close(swift.cwnd / MTU, packets);
    }
    // An ACK, whatever it says, begins a new count.
    feed(&mut swift, FeedbackKind::Acked, 0, None);
    assert_eq!(swift.timeouts, 0);
}

/// `pacing_delay = rtt / cwnd`.
#[test]
fn below_one_packet_packets_are_spaced() {
    let mut swift = with_cwnd(0.5);
    swift.fs_alpha = 0.0;
    swift.fs_beta = 0.0;
    // Target 20160 ns. RTT 30000: 1 - 0.8 * 9840 / 30000 = 0.7376; * 0.5 = 0.3688 packets. Smoothed RTT
    // 14250 ns; 14250 / 0.3688 = 38638.8 ns.
    close(ack(&mut swift, 30_000), 0.3688);
    let sent = Time(150_000);
    let _ = swift.on_send(sent, &SentPacket { bytes: 4096, ..SentPacket::default() });
    let budget = swift.budget(sent);
    assert_eq!((budget.window, budget.not_before), (Some(4096), sent + Span(38_638)));
    assert!(!budget.allows(Time(188_637), 0, 4096) && budget.allows(Time(188_638), 0, 4096));
    // A good ACK adds a whole packet, and the pacing ends.
    close(ack(&mut swift, 12_000), 1.3688);
    assert_eq!(swift.budget(sent).not_before, Time::ZERO);
}

#[test]
fn what_says_nothing_about_the_path_changes_nothing() {
    let mut swift = with_cwnd(16.0);
    close(feed(&mut swift, FeedbackKind::Acked, 4096, None), 16.0);
    // A probe overtakes the queues.
    close(feed(&mut swift, FeedbackKind::ProbeAnswered, 4096, Some(100_000)), 16.0);
    for kind in [FeedbackKind::Notified, FeedbackKind::Control] {
        close(feed(&mut swift, kind, 4096, Some(100_000)), 16.0);
    }
    close(swift.srtt, 12_000.0);
}

#[test]
fn the_clock_may_wrap() {
    let mut swift = with_cwnd(16.0);
    let late = |at: u64| Feedback {
        now: Time(at),
        bytes: 4096,
        rtt: Some(Span(100_000)),
        ..Feedback::default()
    };
    let wrap = u64::from(u32::MAX);
    swift.on_feedback(&late(wrap - 10_000));
    close(swift.cwnd / MTU, 8.0);
    swift.on_feedback(&late(wrap - 1_000));
    close(swift.cwnd / MTU, 8.0);
    // 100 us later, on the other side.
    swift.on_feedback(&late(wrap + 90_000));
    close(swift.cwnd / MTU, 4.0);
}

#[test]
fn impossible_parameters_are_refused() {
    type Spoil = fn(&mut SwiftConfig);
    let spoilt: [(&str, Spoil); 6] = [
        ("mtu", |c| c.mtu = 0),
        ("base_rtt", |c| c.base_rtt = Span::ZERO),
        ("fs_min_cwnd", |c| c.fs_min_cwnd = 100.0),
        ("beta", |c| c.beta = f32::NAN),
        ("min_cwnd", |c| c.min_cwnd = 0.0),
        ("retx_reset", |c| c.retx_reset = 0),
    ];
    for (name, spoil) in spoilt {
        let mut config = reference();
        spoil(&mut config);
        assert_eq!(config.check().map_err(|error| error.parameter), Err(name));
    }
}

#[test]
fn state_is_small() {
    assert_eq!(size_of::<Swift>(), 48);
}
