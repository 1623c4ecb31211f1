//! Every step of RFC 8257 section 3.3 and the branches of RFC 5681 around it, with numbers worked by
//! hand: packets of 4096 bytes, g = 1/16.

use super::*;
use crate::fair::{FairCc, Fairness, Reference};
use crate::network::NetworkProfile;
use crate::testing::{close, fairness};
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

const MTU: u32 = 4096;

fn reference() -> DctcpConfig {
    DctcpConfig::new(&NetworkProfile::new(Rate::gbps(100), Span::micros(12), MTU, true))
}

/// A context in congestion avoidance with a window of `packets` and `alpha`.
fn with(packets: u32, alpha: f32) -> Dctcp {
    let config = reference();
    config.check().expect("in range");
    let mut dctcp = Dctcp::new(Arc::new(config), Time::ZERO);
    dctcp.cwnd = (packets * MTU) as f32;
    dctcp.ssthresh = dctcp.cwnd;
    dctcp.alpha = alpha;
    dctcp
}

/// An ACK of `packets`, of which `marked` are marked, that leaves `in_flight` packets; returns the
/// window in packets.
fn ack(dctcp: &mut Dctcp, packets: u16, marked: u16, in_flight: u32) -> f32 {
    dctcp.on_feedback(&Feedback {
        bytes: u32::from(packets) * MTU,
        packets,
        ecn: marked > 0,
        marked,
        in_flight: u64::from(in_flight * MTU),
        ..Feedback::default()
    });
    dctcp.cwnd / MTU as f32
}

/// A loss of one packet that leaves `in_flight` packets.
fn lose(dctcp: &mut Dctcp, kind: FeedbackKind, in_flight: u32) -> f32 {
    let in_flight = u64::from(in_flight * MTU);
    dctcp.on_feedback(&Feedback { kind, bytes: MTU, packets: 1, in_flight, ..Feedback::default() });
    dctcp.cwnd / MTU as f32
}

#[test]
fn a_flow_starts_slowly() {
    let mut dctcp = Dctcp::new(Arc::new(reference()), Time::ZERO);
    assert_eq!(dctcp.budget(Time::ZERO).window, Some(40_960));
    // Slow start: as many bytes as were acknowledged, 10 + 1, + 4.
    close(ack(&mut dctcp, 1, 0, 9), 11.0);
    close(ack(&mut dctcp, 4, 0, 7), 15.0);
    // 5 * 150000 B are 183.1 packets.
    dctcp.cwnd = 183.0 * MTU as f32;
    close(ack(&mut dctcp, 4, 0, 180), 750_000.0 / 4096.0);
}

#[test]
fn congestion_avoidance_adds_a_packet_a_window() {
    let mut dctcp = with(20, 0.0);
    // 1/20, and an ACK of four: 4/20.05.
    close(ack(&mut dctcp, 1, 0, 19), 20.05);
    close(ack(&mut dctcp, 4, 0, 15), 20.05 + 4.0 / 20.05);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    // 2 * (8 + 1) < 20 <= 2 * (9 + 1).
    close(ack(&mut with(20, 0.0), 1, 0, 8), 20.0);
    close(ack(&mut with(20, 0.0), 1, 0, 9), 20.05);
}

/// Steps 1 to 8: alpha moves once an observation window, by g of what it was wrong.
#[test]
fn alpha_follows_the_share_of_marked_bytes() {
    let mut dctcp = with(20, 0.5);
    // The first ACK ends the (empty) first window: none of 1 marked, alpha = 0.5 * 15/16.
    ack(&mut dctcp, 1, 0, 19);
    close(dctcp.alpha, 0.468_75);
    // The next lasts until the 19 packets then in flight have their fate. 12 without a mark, then 4 of
    // which 2 are, then 2 lost that count neither way: no change yet.
    ack(&mut dctcp, 12, 0, 20);
    ack(&mut dctcp, 4, 2, 20);
    lose(&mut dctcp, FeedbackKind::Lost, 20);
    lose(&mut dctcp, FeedbackKind::Lost, 20);
    close(dctcp.alpha, 0.468_75);
    // The last one: 3 of 17 marked, alpha = 0.46875 * 15/16 + 3/17/16 = 0.4394531 + 0.0110294.
    ack(&mut dctcp, 1, 1, 20);
    close(dctcp.alpha, 0.450_482_5);
    assert_eq!((dctcp.acked, dctcp.marked, dctcp.window_left), (0.0, 0.0, 20 * 4096));
}

#[test]
fn a_peer_that_does_not_count_marks_all_or_nothing() {
    let mut dctcp = with(20, 0.0);
    dctcp.on_feedback(&Feedback { bytes: 4 * MTU, packets: 4, ecn: true, ..Feedback::default() });
    close(dctcp.alpha, 1.0 / 16.0);
    // A count of more than there are packets, or of no packets, is no more than all.
    let mut dctcp = with(20, 0.0);
    dctcp.on_feedback(&Feedback { bytes: MTU, ecn: true, marked: 9, ..Feedback::default() });
    close(dctcp.alpha, 1.0 / 16.0);
}

/// Step 9.
#[test]
fn a_mark_cuts_by_half_of_alpha_once_a_window() {
    let mut dctcp = with(20, 0.4);
    dctcp.window_left = 10 * u64::from(MTU);
    // 20 * (1 - 0.4 / 2); alpha itself is not due before ten packets.
    close(ack(&mut dctcp, 1, 1, 19), 16.0);
    // The 19 in flight then: neither cut again, nor grown.
    close(ack(&mut dctcp, 8, 8, 16), 16.0);
    close(ack(&mut dctcp, 10, 0, 16), 16.0);
    // Nor the nineteenth; the next is grown again, 16 + 1/16.
    close(ack(&mut dctcp, 1, 0, 16), 16.0);
    close(ack(&mut dctcp, 1, 0, 15), 16.0625);
    // Meanwhile the observation window of ten ended with 1 + 8 + 10 packets, 9 of them marked:
    // 0.4 * 15/16 + 9/19/16 = 0.4046053. The rest is of the next. 16.0625 * (1 - 0.4046053 / 2).
    close(dctcp.alpha, 0.404_605_3);
    close(ack(&mut dctcp, 1, 1, 15), 12.813_014);
    assert_eq!(dctcp.ssthresh, dctcp.cwnd);
}

#[test]
fn a_mark_ends_slow_start() {
    let mut dctcp = Dctcp::new(Arc::new(reference()), Time::ZERO);
    // alpha = 1 * 15/16 + 1/16 = 1: halved.
    close(ack(&mut dctcp, 1, 1, 0), 5.0);
    close(ack(&mut dctcp, 1, 0, 4), 5.2);
}

#[test]
fn losses_halve_as_tcp_does() {
    for kind in [FeedbackKind::Lost, FeedbackKind::Nacked { trimmed: true, last_hop: true }] {
        let mut dctcp = with(20, 0.1);
        close(lose(&mut dctcp, kind, 3), 10.0);
        close(lose(&mut dctcp, kind, 2), 10.0);
        close(lose(&mut dctcp, kind, 1), 10.0);
        // With the third all have their fate: the next loss is news. Two packets is the least.
        close(lose(&mut dctcp, kind, 0), 10.0);
        close(lose(&mut dctcp, kind, 0), 5.0);
        close(lose(&mut dctcp, kind, 0), 2.5);
        close(lose(&mut dctcp, kind, 0), 2.0);
    }
}

#[test]
fn a_time_out_leaves_one_packet_and_half_the_threshold() {
    let mut dctcp = with(20, 0.1);
    close(lose(&mut dctcp, FeedbackKind::TimedOut, 2), 1.0);
    assert_eq!(dctcp.ssthresh, 40_960.0);
    // The others of the same window of data change nothing.
    close(lose(&mut dctcp, FeedbackKind::TimedOut, 1), 1.0);
    assert_eq!(dctcp.ssthresh, 40_960.0);
    // Then slow start up to ten packets: 1 + 1, + 2, .., and avoidance from there on.
    close(ack(&mut dctcp, 1, 0, 0), 2.0);
    close(ack(&mut dctcp, 8, 0, 2), 10.0);
    close(ack(&mut dctcp, 1, 0, 9), 10.1);
}

#[test]
fn what_acknowledges_nothing_changes_nothing() {
    let mut dctcp = with(20, 0.4);
    for kind in [
        FeedbackKind::Acked,
        FeedbackKind::ProbeAnswered,
        FeedbackKind::Notified,
        FeedbackKind::Control,
    ] {
        dctcp.on_feedback(&Feedback { kind, ecn: true, in_flight: 9, ..Feedback::default() });
        assert_eq!((dctcp.cwnd, dctcp.alpha), (81_920.0, 0.4));
    }
}

#[test]
fn a_pacer_may_let_the_window_fall_below_a_packet() {
    use crate::controller::SenderParameters;
    let mut config = reference();
    assert_eq!(config.min_wnd, 8192);
    assert!(config.set_floor(64));
    assert_eq!(config.min_wnd, 64);
    assert!(config.set_floor(4096));
    assert_eq!(config.min_wnd, 8192);
}

#[test]
fn state_is_small() {
    assert_eq!(size_of::<Dctcp>(), 48);
}

/// RFC 8257 section 3.3 and 4.2, RFC 6928.
#[test]
fn the_constants_are_those_of_the_rfcs() {
    let config = reference();
    assert_eq!((config.g, config.alpha, config.start_cwnd), (1.0 / 16.0, 1.0, 10.0));
    assert_eq!(config.min_wnd, 2 * MTU);
}

/// An acknowledgement of packets that are marked or not, in a full window.
fn fair_ack(
    dctcp: &mut Dctcp,
    fairness: &mut Fairness<Reference>,
    packets: u16,
    marked: bool,
    end: bool,
) -> f32 {
    let feedback = Feedback {
        bytes: u32::from(packets) * MTU,
        packets,
        ecn: marked,
        round_end: end,
        rtt: Some(Span::micros(13)),
        in_flight: dctcp.cwnd as u64,
        ..Feedback::default()
    };
    dctcp.on_feedback_fairly(&feedback, fairness);
    dctcp.cwnd / MTU as f32
}

/// SF: each marked acknowledgement makes a window from the reference, and one in thirty packets moves it.
#[test]
fn with_sf_the_window_is_cut_from_a_reference_after_so_many_packets() {
    let (mut dctcp, mut sf) = (with(40, 0.5), fairness("dctcp:sf=30"));
    dctcp.window_left = u64::MAX; // the estimate stays
    // 40 (1 - 0.5 / 2) + 1 each time, not 31 (1 - 0.25) + 1.
    close(fair_ack(&mut dctcp, &mut sf, 10, true, false), 31.0);
    close(fair_ack(&mut dctcp, &mut sf, 10, true, true), 31.0);
    close(sf.reference(0.0) / MTU as f32, 40.0);
    // Thirty packets: it lasts, and the next is cut from there.
    close(fair_ack(&mut dctcp, &mut sf, 10, true, false), 31.0);
    close(sf.reference(0.0) / MTU as f32, 31.0);
    close(fair_ack(&mut dctcp, &mut sf, 1, true, false), 24.25);
    // Without a mark: the reference and a packet, which lasts once a round trip.
    close(fair_ack(&mut dctcp, &mut sf, 1, false, false), 32.0);
    close(fair_ack(&mut dctcp, &mut sf, 1, false, true), 32.0);
    close(fair_ack(&mut dctcp, &mut sf, 1, false, false), 33.0);
}

/// VAI: what a round trip of queue is worth. 150000 B / 20 / 4096 B are 1.83 tokens at a time.
#[test]
fn with_vai_a_long_queue_raises_what_a_round_trip_adds() {
    let (mut dctcp, mut vai) = (with(40, 0.5), fairness("dctcp:vai=1"));
    close(fair_ack(&mut dctcp, &mut vai, 1, false, true), 41.0);
    let mut late = Feedback {
        bytes: MTU,
        packets: 1,
        round_end: true,
        rtt: Some(Span::micros(25)),
        in_flight: dctcp.cwnd as u64,
        ..Feedback::default()
    };
    // 25 us are more than two base round trips: 25000 / (12000 * 30 / 4160) = 289 tokens, dampener 25 / 24.
    dctcp.on_feedback_fairly(&late, &mut vai);
    let gain = 150_000.0 / 20.0 / 4096.0 / (25.0 / 24.0 / 8.0 + 1.0);
    close(dctcp.cwnd / MTU as f32, 41.0 + gain);
    late.rtt = None;
    dctcp.on_feedback_fairly(&late, &mut vai);
    close(dctcp.cwnd / MTU as f32, 41.0 + 2.0 * gain);
}

#[test]
fn a_loss_moves_the_reference_at_once() {
    let (mut dctcp, mut sf) = (with(40, 0.5), fairness("dctcp:sf=30"));
    dctcp.window_left = u64::MAX;
    close(fair_ack(&mut dctcp, &mut sf, 10, true, false), 31.0);
    let in_flight = u64::from(40 * MTU);
    let lost = Feedback {
        kind: FeedbackKind::Lost,
        bytes: MTU,
        packets: 1,
        in_flight,
        ..Feedback::default()
    };
    dctcp.on_feedback_fairly(&lost, &mut sf);
    close(dctcp.cwnd / MTU as f32, 20.0);
    close(sf.reference(0.0) / MTU as f32, 20.0);
}
