//! Credits step by step: 100 Gb/s times 8 us is 100000 bytes, so the largest window and the speculative
//! credit are 150000, or 30 packets of 5000.

use super::*;
use crate::baselines::Mprdma;
use crate::controller::{ReceiverConfig, SenderParameters};
use crate::network::NetworkProfile;
use crate::nscc::Nscc;
use crate::tuning::Tunable;
use squall_base::{Rate, Span};

const MTU: u32 = 5000;

fn network() -> NetworkProfile {
    NetworkProfile::new(Rate::gbps(100), Span::micros(8), MTU, true)
}

fn eqds() -> Eqds {
    let config = EqdsConfig::new(&network());
    config.check().expect("in range");
    Eqds::new(Arc::new(config), Time::ZERO)
}

/// As in company of a window: ACKs carry no credit.
fn silent_acks() -> Eqds {
    let config = EqdsConfig { in_acks: false, ..EqdsConfig::new(&network()) };
    Eqds::new(Arc::new(config), Time::ZERO)
}

fn credit(eqds: &Eqds) -> u64 {
    eqds.budget(Time::ZERO).credit.expect("lives on credit")
}

fn send(eqds: &mut Eqds, packets: u32, mut backlog: u64) -> u64 {
    let mut demand = 0;
    for _ in 0..packets {
        backlog -= u64::from(MTU);
        let sending = SentPacket { bytes: MTU, backlog, ..SentPacket::default() };
        demand = eqds.on_send(Time::ZERO, &sending).demand().expect("a demand");
    }
    demand
}

fn report(eqds: &mut Eqds, kind: FeedbackKind, grant: Option<u64>) {
    let extension = grant.map_or(FeedbackExtension::None, FeedbackExtension::Credit);
    let packet = Feedback { bytes: MTU, packets: 1, in_flight: 20_000, ..Feedback::default() };
    eqds.on_feedback(&Feedback { kind, extension, ..packet });
}

fn block(eqds: &mut Eqds, now: u64, backlog: u64) {
    eqds.on_event(Time(now), FlowEvent::Blocked { backlog });
}

const NACK: FeedbackKind = FeedbackKind::Nacked { trimmed: true, last_hop: true };

#[test]
fn a_flow_starts_with_speculative_credit_and_asks_for_what_it_spends() {
    let mut eqds = eqds();
    assert_eq!(credit(&eqds), 150_000);
    // target = granted - balance + min(backlog, window)
    // after one packet of a long message: 0 - 145000 + 150000
    assert_eq!(send(&mut eqds, 1, 1_000_000), 5_000);
    assert_eq!(send(&mut eqds, 1, 995_000), 10_000);
    assert_eq!(credit(&eqds), 140_000);
    // All of it spent, the demand is one window ahead.
    assert_eq!(send(&mut eqds, 28, 990_000), 150_000);
    assert_eq!(credit(&eqds), 0);
}

#[test]
fn a_short_flow_asks_for_one_packet_while_it_speculates() {
    let mut eqds = eqds();
    // 0 - 145000 + 10000 is below zero: one MTU while something waits
    assert_eq!(send(&mut eqds, 1, 15_000), 5_000);
    assert_eq!(send(&mut eqds, 1, 10_000), 5_000);
    // The last packet asks for nothing.
    assert_eq!(send(&mut eqds, 1, 5_000), 0);
}

#[test]
fn the_first_answer_ends_speculation() {
    for (what, kind, grant, after) in [
        ("an ACK that grants nothing yet", FeedbackKind::Acked, Some(0), 0),
        ("an ACK that grants", FeedbackKind::Acked, Some(20_480), 20_480),
        ("a credit packet", FeedbackKind::Control, Some(20_480), 20_480),
        ("a NACK", NACK, None, 0),
        ("a probe's answer", FeedbackKind::ProbeAnswered, None, 0),
        ("an inferred loss is no answer", FeedbackKind::Lost, None, 145_000),
        ("nor is a time-out", FeedbackKind::TimedOut, None, 145_000),
    ] {
        let mut eqds = eqds();
        send(&mut eqds, 1, 1_000_000);
        report(&mut eqds, kind, grant);
        assert_eq!(credit(&eqds), after, "{what}");
    }
}

#[test]
fn grants_are_cumulative_and_capped_at_a_window() {
    let mut eqds = eqds();
    send(&mut eqds, 30, 10_000_000);
    for (grant, after) in [
        (20_480, 20_480),
        (20_480, 20_480),   // repeated
        (10_240, 20_480),   // late
        (40_960, 40_960),   // one in between was lost
        (300_032, 150_000), // more than a window is not kept
    ] {
        report(&mut eqds, FeedbackKind::Acked, Some(grant));
        assert_eq!(credit(&eqds), after, "after {grant}");
    }
    // What was not kept is asked for again: 300032 - 145000 + 150000.
    assert_eq!(send(&mut eqds, 1, 1_000_000), 305_032);
}

#[test]
fn any_credit_lets_a_packet_out_and_the_rest_is_owed() {
    let mut eqds = eqds();
    send(&mut eqds, 30, 1_000_000);
    report(&mut eqds, FeedbackKind::Acked, Some(256));
    assert_eq!(credit(&eqds), 5_000);
    // 256 - 5000 = -4744; target = 256 + 4744 + 150000
    assert_eq!(send(&mut eqds, 1, 1_000_000), 155_000);
    assert_eq!(credit(&eqds), 0);
    report(&mut eqds, FeedbackKind::Acked, Some(4_864));
    assert_eq!(credit(&eqds), 0, "still owes 136");
    report(&mut eqds, FeedbackKind::Acked, Some(5_120));
    assert_eq!(credit(&eqds), 5_000);
}

#[test]
fn a_blocked_flow_requests_unknown_demand_at_once_and_any_demand_later() {
    let mut eqds = eqds();
    // A message that was sent whole: its receiver knows of no demand.
    send(&mut eqds, 1, 5_000);
    report(&mut eqds, FeedbackKind::Acked, Some(0));
    assert_eq!(eqds.next_timer(), None);
    // A new one of 12000 bytes: 0 + 0 + 12000.
    block(&mut eqds, 1_000, 12_000);
    assert_eq!(eqds.poll(Time(1_000)), Some(SenderAction::RequestCredit { target: 12_000 }));
    assert_eq!(eqds.poll(Time(1_000)), None);
    // Being blocked is said again and again; the question is not.
    block(&mut eqds, 2_000, 12_000);
    assert_eq!(eqds.poll(Time(2_000)), None);
    // 8 base round trips of 8 us, then twice that, and so on.
    assert_eq!(eqds.next_timer(), Some(Time(65_000)));
    eqds.on_timer(Time(64_999));
    assert_eq!(eqds.poll(Time(64_999)), None);
    eqds.on_timer(Time(65_000));
    assert_eq!(eqds.poll(Time(65_000)), Some(SenderAction::RequestCredit { target: 12_000 }));
    assert_eq!(eqds.next_timer(), Some(Time(65_000 + 128_000)));
    eqds.on_timer(Time(193_000));
    assert!(eqds.poll(Time(193_000)).is_some());
    assert_eq!(eqds.next_timer(), Some(Time(193_000 + 256_000)));
    // An answer ends it.
    report(&mut eqds, FeedbackKind::Control, Some(12_032));
    assert_eq!((eqds.next_timer(), credit(&eqds)), (None, 12_032));
}

#[test]
fn a_flow_whose_demand_is_known_waits_before_it_asks() {
    let mut eqds = eqds();
    send(&mut eqds, 30, 1_000_000);
    block(&mut eqds, 0, 850_000);
    assert_eq!(eqds.poll(Time::ZERO), None);
    assert_eq!(eqds.next_timer(), Some(Time(64_000)));
    eqds.on_timer(Time(64_000));
    assert_eq!(eqds.poll(Time(64_000)), Some(SenderAction::RequestCredit { target: 150_000 }));
}

#[test]
fn a_flow_without_a_blocked_event_still_requests_credit() {
    // Its last credit spent with work behind it...
    let mut one = eqds();
    send(&mut one, 30, 155_000);
    assert_eq!(one.next_timer(), Some(Time(64_000)));
    // ... or a packet refused that nothing else is said about.
    let mut eqds = eqds();
    send(&mut eqds, 30, 150_000);
    report(&mut eqds, FeedbackKind::Acked, Some(0));
    assert_eq!(eqds.next_timer(), None);
    report(&mut eqds, NACK, None);
    eqds.on_timer(Time(64_000));
    assert_eq!(eqds.poll(Time(64_000)), Some(SenderAction::RequestCredit { target: 5_000 }));
}

#[test]
fn idle_flows_and_flows_with_credit_do_not_ask() {
    let mut one = eqds();
    block(&mut one, 0, 10_000);
    assert_eq!(one.next_timer(), None, "it has speculative credit");
    let mut eqds = eqds();
    send(&mut eqds, 30, 150_000);
    block(&mut eqds, 0, 0);
    assert_eq!(eqds.next_timer(), None, "nothing waits");
    block(&mut eqds, 0, 5_000);
    eqds.on_event(Time(1), FlowEvent::Idle);
    assert_eq!((eqds.next_timer(), eqds.poll(Time(1))), (None, None));
}

#[test]
fn an_ack_without_credit_means_a_peer_that_does_not_grant() {
    let mut eqds = eqds();
    send(&mut eqds, 1, 1_000_000);
    report(&mut eqds, NACK, None);
    assert!(!eqds.metrics().ungranted, "a NACK never carries credit");
    report(&mut eqds, FeedbackKind::Acked, None);
    assert!(eqds.metrics().ungranted);
    let budget = eqds.budget(Time::ZERO);
    assert_eq!((budget.window, budget.credit), (Some(150_000), None));
    // Spending is not counted, asking is not needed.
    let before = send(&mut eqds, 1, 1_000_000);
    assert_eq!(send(&mut eqds, 1, 1_000_000), before);
    block(&mut eqds, 0, 10_000);
    assert_eq!((eqds.next_timer(), eqds.poll(Time::ZERO)), (None, None));
    // A grant after all: back to credits, of which there are as many as it says.
    report(&mut eqds, FeedbackKind::Acked, Some(10_240));
    assert!(!eqds.metrics().ungranted);
    assert_eq!(credit(&eqds), 10_240);
    // Now an ACK without credit is an oddity, no more.
    report(&mut eqds, FeedbackKind::Acked, None);
    assert!(!eqds.metrics().ungranted);
}

#[test]
fn where_acks_carry_no_credit_silence_after_four_questions_means_the_same() {
    let mut eqds = silent_acks();
    send(&mut eqds, 30, 1_000_000);
    report(&mut eqds, FeedbackKind::Acked, None);
    assert!(!eqds.metrics().ungranted);
    block(&mut eqds, 0, 850_000);
    let mut questions = 0;
    while let Some(at) = eqds.next_timer() {
        eqds.on_timer(at);
        questions += u32::from(eqds.poll(at).is_some());
    }
    assert_eq!(questions, 4);
    assert!(eqds.metrics().ungranted);
}

#[test]
fn silence_before_any_ack_or_after_a_grant_lets_one_packet_out_at_a_time() {
    for granted in [false, true] {
        let mut eqds = silent_acks();
        send(&mut eqds, 30, 1_000_000);
        if granted {
            report(&mut eqds, FeedbackKind::Acked, Some(0));
        }
        block(&mut eqds, 0, 850_000);
        for _ in 0..4 {
            let at = eqds.next_timer().expect("asks again");
            eqds.on_timer(at);
            assert_eq!(credit(&eqds), 0);
        }
        let at = eqds.next_timer().expect("asks again");
        eqds.on_timer(at);
        assert_eq!(credit(&eqds), 5_000);
        send(&mut eqds, 1, 850_000);
        assert_eq!(credit(&eqds), 0);
        // It goes on asking, at the longest interval of 64 times the first: here 2^5.
        block(&mut eqds, at.0, 845_000);
        assert!(eqds.next_timer().is_some() && !eqds.metrics().ungranted);
    }
}

#[test]
fn a_lost_first_packet_can_be_retransmitted_without_a_grant() {
    let mut eqds = eqds();
    send(&mut eqds, 30, 150_000);
    assert_eq!(credit(&eqds), 0);
    report(&mut eqds, FeedbackKind::TimedOut, None);
    assert_eq!(credit(&eqds), 5_000);
    // Not once the receiver grants.
    send(&mut eqds, 1, 5_000);
    report(&mut eqds, FeedbackKind::Acked, Some(0));
    report(&mut eqds, FeedbackKind::TimedOut, None);
    assert_eq!(credit(&eqds), 0);
}

#[test]
fn a_flow_of_which_all_was_trimmed_sends_one_packet_at_a_time() {
    let mut eqds = eqds();
    send(&mut eqds, 3, 15_000);
    let mut nack = |in_flight| {
        let kind = NACK;
        eqds.on_feedback(&Feedback { kind, bytes: MTU, in_flight, ..Feedback::default() });
        credit(&eqds)
    };
    assert_eq!((nack(10_000), nack(5_000)), (0, 0), "the others may still come through");
    assert_eq!(nack(0), 5_000);
    assert_eq!(nack(0), 5_000, "one, not two");
    send(&mut eqds, 1, 15_000);
    assert_eq!(credit(&eqds), 0);
    // Once the receiver grants, it answers for its port.
    report(&mut eqds, FeedbackKind::Acked, Some(0));
    report(&mut eqds, NACK, None);
    assert_eq!(credit(&eqds), 0);
}

#[test]
fn credits_and_window_apply_together() {
    let mut config = CreditedConfig::<Mprdma>::new(&network());
    assert_eq!(config.set("start_window", 20_000.0), Some(Ok(())));
    let mut both = CreditedSender::new(Arc::new(config), Time::ZERO);
    let budget = both.budget(Time::ZERO);
    assert_eq!((budget.window, budget.credit), (Some(20_000), Some(150_000)));
    // No more is asked for than the window can use, plus a packet:
    // 0 - 145000 + min(995000, 20000 + 5000) < 0, so one MTU while it speculates.
    let sending = SentPacket { bytes: MTU, backlog: 995_000, ..SentPacket::default() };
    assert_eq!(both.on_send(Time::ZERO, &sending).demand(), Some(5_000));
    // A credit packet moves the credit only, an ACK moves both: 20000 + 5000 * 5000 / 20000.
    let extension = FeedbackExtension::Credit(5_120);
    both.on_feedback(&Feedback { kind: FeedbackKind::Control, extension, ..Feedback::default() });
    let budget = both.budget(Time::ZERO);
    assert_eq!((budget.window, budget.credit), (Some(20_000), Some(5_120)));
    both.on_feedback(&Feedback { bytes: MTU, packets: 1, ..Feedback::default() });
    assert_eq!(both.budget(Time::ZERO).window, Some(21_250));
    // 5120 - 120 + min(995000, 21250 + 5000)
    assert_eq!(both.on_send(Time::ZERO, &sending).demand(), Some(31_250));
    assert_eq!(both.metrics().cwnd, Some(21_250));
    // Blocked, it asks; silent after an ACK but having granted, it is not plain.
    both.on_event(Time::ZERO, FlowEvent::Blocked { backlog: 995_000 });
    assert_eq!(both.next_timer(), None, "120 bytes of credit are left");
    both.on_send(Time::ZERO, &sending);
    both.on_event(Time::ZERO, FlowEvent::Blocked { backlog: 990_000 });
    assert_eq!(both.next_timer(), Some(Time(64_000)));
    both.on_timer(Time(64_000));
    assert!(matches!(both.poll(Time(64_000)), Some(SenderAction::RequestCredit { .. })));
}

#[test]
fn without_a_granting_peer_the_window_alone_applies() {
    let config = CreditedConfig::<Mprdma>::new(&network());
    let mut both = CreditedSender::new(Arc::new(config), Time::ZERO);
    both.on_feedback(&Feedback { bytes: MTU, packets: 1, ..Feedback::default() });
    both.on_event(Time::ZERO, FlowEvent::Blocked { backlog: 850_000 });
    while let Some(at) = both.next_timer() {
        both.on_timer(at);
        let _ = both.poll(at);
    }
    let budget = both.budget(Time::ZERO);
    // 100000 + 5000 * 5000 / 100000
    assert_eq!((budget.window, budget.credit), (Some(100_250), None));
    assert!(both.metrics().ungranted);
}

#[test]
fn it_is_small_and_its_parameters_are_checked() {
    assert!(size_of::<Eqds>() <= 64, "{}", size_of::<Eqds>());
    let good = EqdsConfig::new(&network());
    for (config, parameter) in [
        (EqdsConfig { mtu: 1, ..good.clone() }, "mtu"),
        (EqdsConfig { max_credit: 4_999, ..good.clone() }, "max_credit"),
        (EqdsConfig { start_credit: 150_001, ..good.clone() }, "start_credit"),
        (EqdsConfig { ask_after: Span::ZERO, ..good.clone() }, "ask_after_us"),
        (EqdsConfig { patience: 0, ..good.clone() }, "patience"),
        (EqdsConfig { share: 0.0, ..good.clone() }, "share"),
        (EqdsConfig { pull: 0, ..good.clone() }, "pull"),
    ] {
        assert_eq!(config.check().map_err(|error| error.parameter), Err(parameter));
    }
}

#[test]
fn both_have_the_parameters_of_both_and_the_receiver_of_the_credits() {
    let mut config = CreditedConfig::<Nscc>::new(&network());
    assert!(config.window.rccc, "last-hop trims are the receiver's business");
    assert_eq!(config.set("share", 0.9), Some(Ok(())));
    assert_eq!(config.set("gamma", 0.5), Some(Ok(())));
    assert!(config.set("gamma", 2.0).is_some_and(|set| set.is_err()));
    assert_eq!(config.set("beta", 0.5), None);
    let names: alloc::vec::Vec<&str> = config.settings().iter().map(|it| it.name).collect();
    for (i, name) in names.iter().enumerate() {
        assert!(!names[..i].contains(name), "{name} is twice there");
    }
    let ReceiverConfig::Credits(receiver) = config.receiver(&network()) else {
        panic!("credits need a receiver that grants");
    };
    assert_eq!((receiver.share, receiver.in_acks), (0.9, false));
    assert!(EqdsConfig::new(&network()).in_acks);
    assert!(CreditedSender::<Nscc>::boxed_bytes() <= 128);
}
