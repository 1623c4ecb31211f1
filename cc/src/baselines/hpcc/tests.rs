//! Algorithm 1 of HPCC with the numbers worked by hand: 100 Gb/s (12.5 B/ns), T = 4 us, so 50000 B.

use alloc::sync::Arc;
extern crate std;
use std::vec::Vec;

use squall_base::{Rate, Span, Time};

use super::{Hpcc, HpccConfig};
use crate::NetworkProfile;
use crate::controller::{Feedback, FeedbackExtension, FeedbackKind, Hops, IntHop, SenderCc};

const LINE: Rate = Rate::gbps(100);
const T: u64 = 4_000;

fn config() -> HpccConfig {
    HpccConfig::new(&NetworkProfile::new(LINE, Span(T), 1_000, false))
}

fn hpcc(config: HpccConfig) -> Hpcc {
    Hpcc::new(Arc::new(config), Time(1))
}

/// A record of queue `hop`: when, how many bytes were sent, how many wait.
fn hop(hop: u32, at: u64, tx_bytes: u64, queue: u32) -> IntHop {
    IntHop { hop, at: Time(at), tx_bytes, queue, line: LINE }
}

/// The rate in Gb/s after an acknowledgement with these records.
fn ack(hpcc: &mut Hpcc, int: &[IntHop], round_end: bool) -> f32 {
    hpcc.on_feedback(&Feedback {
        now: Time(10_000),
        bytes: 1_000,
        packets: 1,
        rtt: Some(Span(T)),
        extension: FeedbackExtension::Telemetry(&int.iter().copied().collect()),
        round_end,
        ..Feedback::default()
    });
    hpcc.rate / 1e9
}

fn close(is: f32, expected: f32) {
    assert!((is - expected).abs() < expected * 1e-4, "is {is}, should be {expected}");
}

#[test]
fn it_starts_at_line_rate_and_looks_first() {
    let mut hpcc = hpcc(config());
    let budget = hpcc.budget(Time(1));
    assert_eq!((budget.window, budget.rate, budget.burst), (Some(50_000), Some(LINE), 1_000));
    close(ack(&mut hpcc, &[hop(7, 1_000, 1_000_000, 900_000)], true), 100.0);
}

/// `u` = txRate / B + min(qlen) / (B T), smoothed over `T`, and the rate that makes it `eta`.
#[test]
fn a_full_link_takes_the_rate_down_at_each_ack() {
    let mut hpcc = hpcc(config());
    ack(&mut hpcc, &[hop(7, 1_000, 1_000_000, 25_600)], true);
    // In 1 us 12500 B: u = 1 + 25600 / 50000 = 1.512, the shorter of both queues. U = 0.75 x 1 + 0.25 x 1.512 = 1.128.
    // 100 / (1.128 / 0.95) + 0.05 = 84.2698.
    close(ack(&mut hpcc, &[hop(7, 2_000, 1_012_500, 51_200)], false), 84.269_86);
    // From the reference, which has not moved: u = 1 + 51200 / 50000 = 2.024, U = 0.75 x 1.128 + 0.25 x 2.024 = 1.352.
    // 100 / (1.352 / 0.95) + 0.05 = 70.3163.
    close(ack(&mut hpcc, &[hop(7, 3_000, 1_025_000, 51_200)], true), 70.316_27);
    close(hpcc.reference / 1e9, 70.316_27);
    // U = 0.75 x 1.352 + 0.25 x 1 = 1.264: 70.3163 / (1.264 / 0.95) + 0.05 = 52.8979. The window: 52.8979 / 8 x 4000.
    close(ack(&mut hpcc, &[hop(7, 4_000, 1_037_500, 0)], false), 52.897_93);
    assert_eq!(hpcc.metrics().cwnd, Some(26_449));
}

/// The busiest link counts, by its own rate; one that is not met again says nothing.
#[test]
fn the_busiest_link_decides() {
    let mut hpcc = hpcc(config());
    let fast = |at, tx, queue| IntHop { line: Rate::gbps(400), ..hop(9, at, tx, queue) };
    ack(&mut hpcc, &[hop(7, 1_000, 0, 0), fast(1_100, 0, 0)], true);
    // Half of 100 Gb/s, 6250 B; of 400 Gb/s 25000 B are a half, too, and 51200 B wait: of 200000 B 0.256.
    // U = 0 x 1 + 1 x 0.756 after 4 us or more.
    let hops = [hop(7, 5_000, 25_000, 0), fast(5_100, 100_000, 51_200)];
    ack(&mut hpcc, &hops, false);
    close(hpcc.utilisation, 0.5);
    let hops = [hop(7, 9_000, 50_000, 0), fast(9_100, 200_000, 51_200)];
    ack(&mut hpcc, &hops, false);
    close(hpcc.utilisation, 0.756);
}

#[test]
fn below_the_target_it_adds_five_times_and_then_multiplies() {
    let mut hpcc = hpcc(config());
    hpcc.reference = 10e9;
    ack(&mut hpcc, &[hop(7, 4_000, 0, 0)], true);
    let mut rates = Vec::new();
    for round in 2..9 {
        // A link that is 19 % busy: C = 0.2.
        let at = round * T;
        rates.push(ack(&mut hpcc, &[hop(7, at, at * 19 / 8 * 1_000 / 1_000, 0)], true));
    }
    // 50 Mb/s a round trip, five times, then 10.25 / 0.2 + 0.05 = 51.3, and again by steps.
    for (rate, expected) in rates.iter().zip([10.05, 10.1, 10.15, 10.2, 10.25, 51.3, 51.35]) {
        close(*rate, expected);
    }
}

/// Sprayed packets meet other queues at the same place: they are told apart, as far as there is room.
#[test]
fn records_are_compared_by_queue() {
    let mut hpcc = hpcc(config());
    ack(&mut hpcc, &[hop(7, 1_000, 1_000, 0)], true);
    // Queue 8 for the first time: nothing is known. By its place it would be 10^9 bytes in a microsecond.
    close(ack(&mut hpcc, &[hop(8, 2_000, 1_000_000_000, 0)], false), 100.0);
    close(hpcc.utilisation, 1.0);
    // Queue 7 again after 4 us: half of the line.
    ack(&mut hpcc, &[hop(7, 5_000, 26_000, 0)], false);
    close(hpcc.utilisation, 0.5);
    ack(&mut hpcc, &[hop(8, 6_000, 1_000_050_000, 0)], false);
    close(hpcc.utilisation, 1.0);
    // One that was overtaken.
    ack(&mut hpcc, &[hop(8, 5_900, 1_000_049_000, 0)], false);
    close(hpcc.utilisation, 1.0);
    // Five others, and queue 7 is forgotten.
    for other in 20..25 {
        ack(&mut hpcc, &[hop(other, 7_000 + u64::from(other), 0, 0)], false);
    }
    ack(&mut hpcc, &[hop(7, 9_000, 30_000, 0)], false);
    close(hpcc.utilisation, 1.0);
}

#[test]
fn counters_wrap() {
    let mut hpcc = hpcc(config());
    let (at, tx) = ((1 << 32) - 1_000, (1 << 32) - 5_000);
    ack(&mut hpcc, &[hop(7, at, tx, 0)], true);
    ack(&mut hpcc, &[hop(7, at + T, tx + 25_000, 0)], false);
    close(hpcc.utilisation, 0.5);
}

#[test]
fn rates_keep_to_their_bounds() {
    let mut hpcc = hpcc(config());
    ack(&mut hpcc, &[hop(7, 1_000, 0, 7_000_000)], true);
    for round in 1..20 {
        ack(&mut hpcc, &[hop(7, 1_000 + round * T, round * 50_000, 7_000_000)], true);
    }
    close(hpcc.rate / 1e9, 0.1);
    assert_eq!(hpcc.budget(Time(1)).window, Some(1_000), "a packet");
    for round in 20..200 {
        ack(&mut hpcc, &[hop(7, 1_000 + round * T, 1_000_000, 0)], true);
    }
    close(hpcc.rate / 1e9, 100.0);
}

/// With `global_t=0` a flow that is nearer than the longest path counts with its own round trip.
#[test]
fn a_flow_may_have_its_own_base_round_trip() {
    for (global_t, window) in [(true, 50_000), (false, 25_000)] {
        let mut hpcc = hpcc(HpccConfig { global_t, ..config() });
        hpcc.on_feedback(&Feedback {
            rtt: Some(Span(T / 2)),
            extension: FeedbackExtension::Telemetry(&Hops::from_iter([hop(7, 1_000, 0, 0)])),
            ..Feedback::default()
        });
        assert_eq!(hpcc.metrics().cwnd, Some(window));
    }
}

#[test]
fn a_loss_halves_once_a_round_trip() {
    let mut hpcc = hpcc(config());
    let lost = |hpcc: &mut Hpcc, kind| {
        hpcc.on_feedback(&Feedback { kind, bytes: 1_000, packets: 1, ..Feedback::default() });
        hpcc.rate / 1e9
    };
    close(lost(&mut hpcc, FeedbackKind::Lost), 50.0);
    close(lost(&mut hpcc, FeedbackKind::TimedOut), 50.0);
    close(lost(&mut hpcc, FeedbackKind::Nacked { trimmed: false, last_hop: false }), 50.0);
    ack(&mut hpcc, &[hop(7, 1_000, 0, 0)], true);
    close(lost(&mut hpcc, FeedbackKind::Nacked { trimmed: true, last_hop: false }), 25.0);
}

/// Where no switch writes, the round trip stands for it, and the context says so.
#[test]
fn without_telemetry_it_goes_by_the_round_trip() {
    let mut hpcc = hpcc(config());
    assert!(!hpcc.metrics().ungranted, "nothing came back yet");
    // U = 3 x 3 / 4: 100 / (2.25 / 0.95) + 0.05 = 42.2722.
    hpcc.on_feedback(&Feedback { rtt: Some(Span(3 * T)), packets: 1, ..Feedback::default() });
    close(hpcc.rate / 1e9, 42.272_22);
    assert!(hpcc.metrics().ungranted);
    ack(&mut hpcc, &[hop(7, 1_000, 0, 0)], false);
    assert!(!hpcc.metrics().ungranted);
}

#[test]
fn a_context_is_small() {
    assert_eq!(hpcc(config()).state_bytes(), 104);
    // A box, and a record each.
    let more = hpcc(HpccConfig { queues: 15, ..config() });
    assert_eq!(more.state_bytes(), 104 + 16 + 10 * 12);
}
