//! The pull pacer step by step: pulls of 4 packets of 5120 bytes are 20480, and at 8.192 Gb/s a byte
//! takes 0.9765625 ns, so that a pull takes 20 us.

use super::*;
use crate::controller::{credit_bytes, credit_units};

const PULL: u64 = 20_480;
const PULL_TIME: u64 = 20_000;

fn config() -> CreditConfig {
    CreditConfig {
        line: Rate(8_192_000_000),
        mtu: 5120,
        share: 1.0,
        pull: 20_480,
        idle: 0,
        catch_up: Span::ZERO,
        in_acks: true,
        core_period: Span::ZERO,
    }
}

fn wants(pacer: &mut CreditReceiver, now: u64, flow: &mut RxFlow, demand: u64) {
    let meta = ReceivedPacket { bytes: 5120, demand: Some(demand), ..ReceivedPacket::default() };
    pacer.on_rx(Time(now), flow, &meta);
}

/// All pulls until the pacer has nothing more, each at its time.
fn pulls(pacer: &mut CreditReceiver) -> Vec<(u64, u32, u64)> {
    let mut all = Vec::new();
    while let Some(at) = pacer.next_timer() {
        let Some(ReceiverAction::Credit { flow, cumulative }) = pacer.poll(at) else {
            panic!("a timer without a pull");
        };
        assert_eq!(pacer.poll(at), None, "two pulls at a time");
        all.push((at.0, flow, cumulative));
    }
    all
}

#[test]
fn a_flow_gets_what_it_wants_at_the_pace_of_the_line_and_no_more() {
    let mut pacer = CreditReceiver::new(config());
    let mut flow = RxFlow::new(7);
    assert_eq!((pacer.next_timer(), pacer.poll(Time(0))), (None, None));
    wants(&mut pacer, 1_000, &mut flow, 50_000);
    assert_eq!(pacer.poll(Time(999)), None, "not before it was asked for");
    // Two whole pulls and 9040 bytes, which are 36 units of 256: 9216.
    let all = [
        (1_000, 7, PULL),
        (1_000 + PULL_TIME, 7, 2 * PULL),
        (1_000 + 2 * PULL_TIME, 7, 2 * PULL + 9_216),
    ];
    assert_eq!(pulls(&mut pacer), all);
    // Repeated demand, and less demand, are nothing new.
    wants(&mut pacer, 90_000, &mut flow, 50_000);
    wants(&mut pacer, 90_000, &mut flow, 10);
    assert_eq!(pacer.next_timer(), None);
    // 50177 is one unit more than was granted, and more than a kilobyte's worth of time later.
    wants(&mut pacer, 90_000, &mut flow, 50_177);
    wants(&mut pacer, 90_000, &mut flow, 50_178);
    assert_eq!(pulls(&mut pacer), [(90_000, 7, 50_432)]);
    wants(&mut pacer, 90_001, &mut flow, 50_433);
    assert_eq!(pulls(&mut pacer), [(91_000, 7, 50_688)]);
}

#[test]
fn flows_take_turns() {
    let mut pacer = CreditReceiver::new(config());
    let mut flows = [RxFlow::new(1), RxFlow::new(2), RxFlow::new(3)];
    for (flow, pulls) in flows.iter_mut().zip([3, 1, 2]) {
        wants(&mut pacer, 0, flow, pulls * PULL);
    }
    let order: Vec<(u32, u64)> =
        pulls(&mut pacer).iter().map(|&(_, flow, credit)| (flow, credit / PULL)).collect();
    assert_eq!(order, [(1, 1), (2, 1), (3, 1), (1, 2), (3, 2), (1, 3)]);
}

#[test]
fn a_trimmed_packet_is_paid_for_again_once() {
    let mut pacer = CreditReceiver::new(config());
    let mut flow = RxFlow::new(1);
    let trimmed = ReceivedPacket {
        bytes: 150,
        trimmed: true,
        demand: Some(5_120),
        ..ReceivedPacket::default()
    };
    pacer.on_rx(Time(0), &mut flow, &trimmed);
    // Its own demand and one packet more.
    assert_eq!(pulls(&mut pacer), [(0, 1, 10_240)]);
    // The retransmission says the same, absolutely: nothing more.
    wants(&mut pacer, 50_000, &mut flow, 10_240);
    // Nor for the remains of a packet that is here already.
    pacer.on_rx(Time(60_000), &mut flow, &ReceivedPacket { duplicate: true, ..trimmed });
    assert_eq!(pacer.next_timer(), None);
    assert_eq!(flow.received(), 5_120);
    // Demand unknown, the flow is not this object's business.
    let mut other = RxFlow::new(2);
    pacer.on_rx(Time(60_000), &mut other, &ReceivedPacket { demand: None, ..trimmed });
    assert_eq!(pacer.next_timer(), None);
}

#[test]
fn a_request_is_answered_without_new_credit() {
    let mut pacer = CreditReceiver::new(config());
    let mut flow = RxFlow::new(1);
    pacer.on_request(Time(0), &mut flow, 0);
    assert_eq!(pulls(&mut pacer), [(0, 1, 0)]);
    pacer.on_request(Time(5_000), &mut flow, 256);
    pacer.on_request(Time(5_000), &mut flow, 256);
    assert_eq!(pulls(&mut pacer), [(5_000, 1, 256)]);
    pacer.on_request(Time(9_000), &mut flow, 256);
    assert_eq!(pulls(&mut pacer), [(9_000, 1, 256)]);
}

#[test]
fn flows_without_demand_get_credit_when_no_other_flow_asks() {
    let mut pacer = CreditReceiver::new(CreditConfig { idle: 2 * PULL, ..config() });
    let (mut a, mut b) = (RxFlow::new(1), RxFlow::new(2));
    wants(&mut pacer, 0, &mut a, PULL);
    // One pull for what it wanted, two for later.
    let all = [(0, 1, PULL), (PULL_TIME, 1, 2 * PULL), (2 * PULL_TIME, 1, 3 * PULL)];
    assert_eq!(pulls(&mut pacer), all);
    // It spends one of them; the credit for later is made up.
    wants(&mut pacer, 100_000, &mut a, 2 * PULL);
    assert_eq!(pacer.next_timer(), None, "it has what it wants, and one pull for later");
    wants(&mut pacer, 100_000, &mut a, 3 * PULL + 1);
    assert_eq!(pacer.poll(Time(100_000)), Some(credit(1, 3 * PULL + 256)));
    // Demand goes first.
    wants(&mut pacer, 100_001, &mut b, PULL);
    let order: Vec<u32> = pulls(&mut pacer).iter().map(|pull| pull.1).collect();
    assert_eq!(order, [2, 1, 2, 1, 2]);
}

fn credit(flow: u32, cumulative: u64) -> ReceiverAction {
    ReceiverAction::Credit { flow, cumulative }
}

#[test]
fn a_pacer_that_is_woken_late_catches_up_a_little() {
    let mut pacer = CreditReceiver::new(CreditConfig { catch_up: Span(2 * PULL_TIME), ..config() });
    let mut flow = RxFlow::new(1);
    wants(&mut pacer, 0, &mut flow, 100 * PULL);
    // Due at 0, looked at five pulls late: two pulls' worth of the delay is made up for, besides the
    // one that is due.
    let now = Time(5 * PULL_TIME);
    let mut at_once = 0;
    while pacer.poll(now).is_some() {
        at_once += 1;
    }
    assert_eq!(at_once, 3);
    assert_eq!(pacer.next_timer(), Some(Time(6 * PULL_TIME)));
}

#[test]
fn an_idle_pacer_earns_no_credit() {
    let config = CreditConfig { catch_up: Span::secs(1), ..config() };
    let mut pacer = CreditReceiver::new(config);
    let mut flow = RxFlow::new(1);
    wants(&mut pacer, 0, &mut flow, PULL);
    assert_eq!(pulls(&mut pacer), [(0, 1, PULL)]);
    wants(&mut pacer, 1_000_000, &mut flow, 3 * PULL);
    let all = [(1_000_000, 1, 2 * PULL), (1_000_000 + PULL_TIME, 1, 3 * PULL)];
    assert_eq!(pulls(&mut pacer), all);
}

#[test]
fn a_flow_that_left_is_forgotten_and_its_place_taken() {
    let mut pacer = CreditReceiver::new(CreditConfig { idle: PULL, ..config() });
    let (mut a, mut b, mut c) = (RxFlow::new(1), RxFlow::new(2), RxFlow::new(3));
    wants(&mut pacer, 0, &mut a, 10 * PULL);
    wants(&mut pacer, 0, &mut b, PULL);
    assert_eq!(pacer.poll(Time(0)), Some(credit(1, PULL)));
    pacer.on_close(Time(1), &mut a);
    pacer.on_close(Time(1), &mut a); // twice is once
    wants(&mut pacer, 2, &mut c, 5);
    let order: Vec<(u32, u64)> = pulls(&mut pacer).iter().map(|p| (p.1, p.2)).collect();
    assert_eq!(order, [(2, PULL), (3, 256), (2, 2 * PULL), (3, 256 + PULL)]);
    assert_eq!(pacer.accounts.len(), 2);
    // Idle flows leave too.
    pacer.on_close(Time(1), &mut b);
    pacer.on_close(Time(1), &mut c);
    assert_eq!((pacer.next_timer(), pacer.free.len()), (None, 2));
}

#[test]
fn acks_carry_the_granted_credit_unless_a_window_needs_the_field() {
    for (in_acks, credit) in [(true, Some(PULL)), (false, None)] {
        let mut pacer = CreditReceiver::new(CreditConfig { in_acks, ..config() });
        let mut flow = RxFlow::new(1);
        wants(&mut pacer, 0, &mut flow, PULL);
        pulls(&mut pacer);
        let mut ack = AckSignals::default();
        pacer.fill_ack(Time(0), &mut flow, &mut ack);
        assert_eq!((ack.received, ack.credit), (5_120, credit));
        // A sender that lives without credit gets ordinary ACKs.
        let mut ack = AckSignals::default();
        pacer.fill_ack(Time(0), &mut RxFlow::new(2), &mut ack);
        assert_eq!(ack.credit, None);
    }
}

#[test]
fn credit_on_the_wire_rounds_up_and_wraps() {
    for (bytes, units) in [(0, 0), (1, 1), (256, 1), (257, 2), (1 << 32, 0), ((1 << 32) + 1, 1)] {
        assert_eq!(credit_units(bytes), units, "{bytes}");
    }
    let wrap = 1u64 << 32;
    for (near, units, bytes) in [
        (0, 0, 0),
        (0, 5, 1280),
        (1280, 4, 1024),                     // a little behind
        (100, 0xff_ffff, 0xff_ffff * 256),   // nothing lies before the beginning
        (wrap - 256, 3, wrap + 3 * 256),     // across the wrap
        (wrap + 256, 0xff_ffff, wrap - 256), // and back
        (5 * wrap, 0x7f_ffff, 5 * wrap + 0x7f_ffff * 256),
        (5 * wrap, 0x80_0000, 5 * wrap - 0x80_0000 * 256),
    ] {
        assert_eq!(credit_bytes(near, units), bytes, "{units:#x} near {near}");
        assert_eq!(credit_units(bytes), units);
    }
}

#[test]
fn parameters_are_checked() {
    assert_eq!(config().check(), Ok(()));
    for (config, parameter) in [
        (CreditConfig { line: Rate(1), ..config() }, "line"),
        (CreditConfig { mtu: 0, ..config() }, "mtu"),
        (CreditConfig { share: 1.01, ..config() }, "share"),
        (CreditConfig { pull: 255, ..config() }, "pull"),
        (CreditConfig { idle: 3_000_000_000, ..config() }, "idle"),
        (CreditConfig { catch_up: Span::secs(2), ..config() }, "catch_up_us"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
    assert_eq!(size_of::<RxFlow>(), 16);
}

/// The next pull after half of what arrived was trimmed, before the port or at it, for two periods.
fn pull_after_trims(last_hop: bool) -> u64 {
    let mut pacer = CreditReceiver::new(CreditConfig { core_period: Span(1000), ..config() });
    let mut flow = RxFlow::new(1);
    for n in 0..12 {
        let trimmed = n % 2 == 0;
        let at_port = trimmed && last_hop;
        let packet =
            ReceivedPacket { bytes: 5120, trimmed, last_hop: at_port, ..Default::default() };
        pacer.on_rx(Time(n * 200), &mut flow, &packet);
    }
    wants(&mut pacer, 3000, &mut flow, 3 * PULL);
    let times: Vec<u64> = pulls(&mut pacer).iter().map(|pull| pull.0).collect();
    times[2] - times[1]
}

#[test]
fn a_receiver_grants_less_when_the_network_before_its_port_trims() {
    assert_eq!(pull_after_trims(true), PULL_TIME);
    assert!(pull_after_trims(false) > PULL_TIME * 11 / 10, "{}", pull_after_trims(false));
}
