//! Detection of losses by a sender, and its reaction to NACKs.

use std::collections::BTreeSet;

use crate::link::{Faults, PATHS, PEER, SlotState, Wire, World, fixed, nscc};
use crate::sender::{PLAIN, Says, Sender};
use squall_reliability::base::{Psn, Span, Time};
use squall_reliability::wire::NackCode;
use squall_reliability::{Config, Event, NewPacket, Pdcs, SendError};

const NOMINAL: u64 = 4096 + 48;

#[test]
fn the_window_limits_bytes_and_acknowledgements_open_it() {
    let mut sender = Sender::new(fixed(10 * NOMINAL, 1));
    let sent = sender.send(10);
    assert_eq!(sender.in_flight(), 10 * NOMINAL);
    // Only the packet that fills the window asks for an acknowledgement.
    let asked: Vec<bool> = sent.iter().map(|pds| pds.ack_request).collect();
    assert_eq!(asked[..9], [false; 9]);
    assert!(asked[9]);
    assert_eq!(sender.try_send(4096), Err(SendError::Wait));
    assert!(!sender.ready());
    assert!(sender.ack(Says { cack: 3, about: 3, ..PLAIN }));
    let events = sender.events();
    let acked = [1, 2, 3].map(|desc| Event::Acked { id: sender.id, desc, count: 1 });
    assert_eq!(events[..3], acked);
    assert_eq!(events[3..], [Event::Ready { id: sender.id }]);
    assert_eq!(sender.in_flight(), 7 * NOMINAL);
    sender.send(3);
    assert_eq!(sender.try_send(4096), Err(SendError::Wait));
}

#[test]
fn ignored_readiness_is_reported_again() {
    let mut sender = Sender::new(fixed(10 * NOMINAL, 1));
    sender.send(10);
    assert_eq!(sender.try_send(4096), Err(SendError::Wait));
    for n in 1..4 {
        assert!(sender.ack(Says { cack: n, about: n, ..PLAIN }));
        assert!(sender.ready());
        assert!(!sender.ready());
    }
}

#[test]
fn one_packet_may_always_be_sent() {
    let mut sender = Sender::new(fixed(1, 1));
    sender.send(1);
    assert_eq!(sender.try_send(100), Err(SendError::Wait));
    assert!(sender.ack(Says { cack: 1, about: 1, ..PLAIN }));
    sender.send(1);
}

#[test]
fn prompt_and_last_together_ask_for_an_acknowledgement() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    for (last, prompt) in [(false, false), (false, true), (true, false), (true, true)] {
        let packet = NewPacket { desc: sender.sent, bytes: 100, last, prompt, backlog: 0 };
        let grant = sender.pdcs.next_packet(sender.now, sender.id, &packet).unwrap();
        assert_eq!(grant.pds.ack_request, last && prompt);
    }
}

#[test]
fn selective_acknowledgements_take_packets_out_of_the_flight() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    // Packets 2 and 4 arrived.
    assert!(sender.ack(Says { map: 0b1010, about: 4, ooo: 2, ..PLAIN }));
    let descs: Vec<u32> = sender
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Acked { desc, .. } => Some(desc),
            _ => None,
        })
        .collect();
    assert_eq!(descs, [2, 4]);
    assert_eq!(sender.in_flight(), 8 * NOMINAL);
    // A duplicate of the ACK changes nothing.
    assert!(sender.ack(Says { map: 0b1010, about: 4, ooo: 2, ..PLAIN }));
    assert_eq!(sender.events(), []);
    assert_eq!(sender.in_flight(), 8 * NOMINAL);
    assert!(sender.ack(Says { cack: 10, about: 10, ..PLAIN }));
    assert_eq!(sender.events().len(), 8);
    assert_eq!(sender.in_flight(), 0);
}

#[test]
fn a_trimmed_packet_and_no_other_is_sent_again() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    assert!(sender.nack(4, NackCode::Trimmed, false));
    assert_eq!(sender.in_flight(), 9 * NOMINAL);
    assert!(sender.ready());
    assert_eq!(sender.try_send(100), Err(SendError::Retransmit));
    assert_eq!(sender.resent(), [4]);
    assert_eq!(sender.in_flight(), 10 * NOMINAL);
    let counters = sender.pdcs.counters();
    assert_eq!((counters.retx_trimmed, counters.retransmissions()), (1, 1));
    assert_eq!(counters.rx_nacks[1], 1);
    // A copy of that NACK is about the first transmission and changes nothing.
    assert!(!sender.nack(4, NackCode::Trimmed, false));
    assert_eq!(sender.resent(), []);
    // A NACK of the second transmission is valid.
    assert!(sender.nack(4, NackCode::TrimmedLastHop, true));
    assert_eq!(sender.resent(), [4]);
}

#[test]
fn every_code_has_its_action() {
    use squall_reliability::wire::NackAction;
    for code in (1..=255u8).filter_map(NackCode::from_u8) {
        let mut sender = Sender::new(fixed(1 << 20, 1));
        sender.send(3);
        let believed = sender.nack(2, code, false);
        sender.wait(Span::micros(30));
        let (resent, events) = (sender.resent(), sender.events());
        let failed = events.iter().any(|event| matches!(event, Event::Failed { .. }));
        let expect = match code.action() {
            NackAction::Retransmit => (true, vec![2], false),
            NackAction::Close => (true, vec![], true),
            // Packet 0 was acknowledged, so it is too late for another start PSN.
            NackAction::Restart => (false, vec![], false),
            NackAction::Ignore => (true, vec![], false),
        };
        assert_eq!((believed, resent, failed), expect, "{code:?}");
        if failed {
            let lost = events.iter().filter(|event| matches!(event, Event::Lost { .. }));
            assert_eq!(lost.count(), 3);
            assert_eq!(sender.try_send(10), Err(SendError::Gone));
        }
    }
}

#[test]
fn a_receiver_that_is_not_ready_is_asked_ever_more_rarely() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(3);
    let mut pauses = Vec::new();
    let mut retx = false;
    for _ in 0..14 {
        // All three packets were refused, which counts as one refusal.
        for n in 1..4 {
            assert!(sender.nack(n, NackCode::NoSesMsgAvail, retx));
        }
        retx = true;
        assert_eq!(sender.try_send(100), Err(SendError::Wait));
        let start = sender.now;
        assert_eq!(sender.resent(), []);
        sender.events();
        while sender.resent().is_empty() {
            let when = sender.pdcs.poll_timeout().unwrap();
            sender.now = sender.now.max(when);
            sender.pdcs.handle_timeout(sender.now);
        }
        pauses.push(sender.now.since(start));
        sender.now += Span::micros(20);
    }
    for (n, pause) in pauses.iter().enumerate() {
        let least = Span::micros((20u64 << n).min(10_000));
        assert!(*pause >= least && pause.0 <= least.0 * 5 / 4, "{n}: {pause}");
    }
    // An accepted packet ends the pause.
    sender.ack(Says { cack: 2, about: 2, retx: true, ..PLAIN });
    assert!(sender.nack(3, NackCode::NoSesMsgAvail, true));
    let start = sender.now;
    sender.wait(Span::micros(25));
    assert!(sender.ready());
    assert_eq!(sender.resent(), [3]);
    assert!(sender.now.since(start) <= Span::micros(25));
}

#[test]
fn a_receiver_may_refuse_for_longer_than_any_deadline() {
    let mut world = World::new(nscc(1), nscc(2), Faults { refuse: 1.0, ..Faults::default() }, 3);
    world.send(0, 0..50, 1000);
    world.run(world.now + Span::secs(60));
    assert_eq!(world.hosts[0].failures, []);
    assert!(world.hosts[1].got.is_empty());
    world.faults.refuse = 0.0;
    assert!(world.settle(Span::millis(100)));
    assert!((0..50).all(|n| world.hosts[1].got[&n] == 1));
}

#[test]
fn a_lost_tail_is_found_by_a_probe() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    sender.now += Span::micros(20);
    assert!(sender.ack(Says { cack: 5, about: 5, ..PLAIN }));
    sender.events();
    sender.wait(Span::micros(199));
    assert_eq!(sender.probe(), None);
    sender.wait(Span::micros(1));
    let opaque = sender.probe().expect("a probe after 200 us of silence");
    sender.now += Span::micros(20);
    // An answer to another probe is ignored; this one shows that nothing after 5 arrived.
    assert!(sender.ack(Says { cack: 5, about: 5, probe: Some(opaque ^ 1), ..PLAIN }));
    assert_eq!(sender.resent(), []);
    assert!(sender.ack(Says { cack: 5, about: 5, probe: Some(opaque), ..PLAIN }));
    assert!(sender.ready());
    assert_eq!(sender.resent(), [6, 7, 8, 9, 10]);
    let counters = sender.pdcs.counters();
    assert_eq!((counters.retx_probe, counters.timeouts), (5, 0));
    assert_eq!((counters.tx_probes, counters.rx_probe_answers), (1, 1));
}

#[test]
fn a_lost_packet_is_retransmitted_on_another_path() {
    for seed in 0..50 {
        let mut sender = Sender::new(fixed(1 << 20, seed));
        let packet = |desc| NewPacket { desc, bytes: 1000, last: false, prompt: false, backlog: 0 };
        let first = sender.pdcs.next_packet(sender.now, sender.id, &packet(1)).unwrap();
        sender.wait(Span::micros(200));
        let opaque = sender.probe().expect("a probe");
        // The train goes on, on the same path.
        let second = sender.pdcs.next_packet(sender.now, sender.id, &packet(2)).unwrap();
        assert_eq!(first.path, second.path);
        sender.now += Span::micros(20);
        assert!(sender.ack(Says { probe: Some(opaque), ..PLAIN }));
        let (again, desc) = sender.pdcs.poll_retransmit(sender.now, sender.id).unwrap();
        assert_eq!(desc, 1);
        assert_ne!(again.path, first.path);
    }
}

#[test]
fn a_probe_does_not_judge_packets_sent_with_it() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(2);
    sender.wait(Span::micros(195));
    sender.send(2);
    sender.wait(Span::micros(220));
    let opaque = sender.probe().expect("a probe");
    sender.send(1);
    sender.now += Span::micros(20);
    assert!(sender.ack(Says { probe: Some(opaque), ..PLAIN }));
    assert_eq!(sender.resent(), [1, 2, 3, 4]);
}

#[test]
fn a_partial_probe_answer_only_judges_the_packets_it_covers() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(100);
    sender.wait(Span::micros(200));
    let opaque = sender.probe().expect("a probe");
    sender.now += Span::micros(20);
    // The 64 bits show two packets, and the peer has three out of order.
    assert!(sender.ack(Says { map: 0b110, ooo: 3, probe: Some(opaque), ..PLAIN }));
    let resent = sender.resent();
    let expect: Vec<u32> = (1..=64).filter(|n| ![2, 3].contains(n)).collect();
    assert_eq!(resent, expect);
}

#[test]
fn a_tail_that_no_bitmap_shows_does_not_stay_in_flight() {
    // 300 packets leave. Of the first 200 every fourth arrives, and none of the rest. Counted as in
    // flight, the rest would fill a window that was reduced since, and nothing could be
    // retransmitted.
    let mut config = fixed(1 << 21, 1);
    config.loss.overtaken = false;
    let mut sender = Sender::new(config);
    sender.send(300);
    sender.now += Span::micros(20);
    let map = 0x8888_8888_8888_8888u64;
    let mut ooo = 0;
    for base in [1, 65, 129] {
        ooo += 16;
        assert!(sender.ack(Says { map, map_at: base, ooo, about: base + 3, ..PLAIN }));
    }
    assert_eq!(sender.in_flight(), (300 - 48) * NOMINAL);
    sender.wait(Span::micros(200));
    let probe = sender.probe();
    assert!(probe.is_some(), "a probe after 200 us of silence");
    sender.now += Span::micros(20);
    // One bitmap shows 16 of the 48 that arrived; earlier ones showed the others.
    assert!(sender.ack(Says { map, ooo, probe, ..PLAIN }));
    assert_eq!(sender.in_flight(), 0);
    let resent = sender.resent();
    let expect: Vec<u32> = (1..=300).filter(|n| n % 4 != 0 || *n > 192).collect();
    assert_eq!(resent, expect);
}

#[test]
fn a_probe_answer_does_not_judge_packets_still_in_queues() {
    // The round trip grows from 20 us to 120 us while a queue fills. A packet that left 150 us
    // before the probe may still be in the queue, because the last round trips vary so much, unless
    // nothing at all arrived since.
    for (silent, resent) in [(false, vec![]), (true, vec![3, 4, 5, 6])] {
        let mut sender = Sender::new(fixed(1 << 20, 1));
        sender.send(6);
        let left = sender.now;
        sender.now = left + Span::micros(120);
        assert!(sender.ack(Says { cack: 1, about: 1, ..PLAIN }));
        sender.wait(Span::micros(200));
        let probe = sender.probe();
        assert!(probe.is_some());
        if !silent {
            assert!(sender.ack(Says { cack: 2, about: 2, ..PLAIN }));
        }
        sender.now += Span::micros(20);
        assert!(sender.ack(Says { cack: 2, about: 2, probe, ..PLAIN }));
        assert_eq!(sender.resent(), resent, "silent: {silent}");
    }
}

#[test]
fn packets_that_a_probe_finds_lost_are_retransmitted_within_the_window() {
    // A recovery by out-of-order count may exceed the window, but the loss of a whole tail may not.
    // NSCC's window is nine packets here, and as many packets out of order are a loss.
    let mut config = nscc(1);
    config.train_packets = 1;
    let mut sender = Sender::new(config);
    let mut newest = 0;
    for n in 1..=10i32 {
        while sender.try_send(4096).is_ok() {}
        sender.now += Span::micros(20);
        if n > 1 {
            // Packet 1 is lost.
            let map = ((1u64 << (n - 1)) - 1) << 1;
            let ooo = u16::try_from(n - 1).unwrap();
            assert!(sender.ack(Says { map, ooo, about: n, ..PLAIN }));
            while sender.probe().is_some() {}
        }
        newest = n;
    }
    assert_eq!(sender.resent(), [1], "recovering");
    assert_eq!(sender.pdcs.counters().retx_out_of_order, 1);
    while sender.try_send(4096).is_ok() {}
    assert!(sender.in_flight() > 6 * NOMINAL);
    sender.wait(Span::micros(600));
    let probe = core::iter::from_fn(|| sender.probe()).last();
    sender.now += Span::micros(20);
    let ooo = u16::try_from(newest - 1).unwrap();
    let map = ((1u64 << ooo) - 1) << 1;
    assert!(sender.ack(Says { map, ooo, probe, ..PLAIN }));
    assert_eq!(sender.in_flight(), 0, "all that is out is lost");
    assert_eq!(sender.resent().len(), 1, "and the window is one packet");
}

#[test]
fn an_arrived_retransmission_triggers_a_probe_about_older_packets() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(8);
    sender.wait(Span::micros(300));
    assert!(sender.nack(2, NackCode::Trimmed, false));
    assert_eq!(sender.resent(), [2]);
    while sender.probe().is_some() {}
    sender.now += Span::micros(20);
    // Packet 2 left 300 us after 1 and arrived, so the sender asks about 1 and those after it.
    assert!(sender.ack(Says { map: 0b10, ooo: 1, about: 2, retx: true, ..PLAIN }));
    let probe = sender.probe();
    assert!(probe.is_some(), "asks at once");
    sender.now += Span::micros(20);
    assert!(sender.ack(Says { map: 0b10, ooo: 1, probe, ..PLAIN }));
    assert_eq!(sender.resent(), [1, 3, 4, 5, 6, 7, 8]);
    assert_eq!(sender.pdcs.counters().timeouts, 0);
}

#[test]
fn a_peer_never_heard_of_gets_the_oldest_packet_in_a_probes_place() {
    // The whole first window is lost. NSCC is configured with a round trip of 20 us.
    let mut config = nscc(1);
    config.probe_min = Span::ZERO;
    let mut pdcs = Pdcs::new(config);
    let now = Time(1_000_000);
    let id = pdcs.open(now, PEER).unwrap();
    let mut sender = Sender { pdcs, id, now, start: Psn(0), sent: 0 };
    sender.start = sender.send(5)[0].psn;
    let window = sender.pdcs.info(id).unwrap().cwnd;
    sender.wait(Span::micros(59));
    assert_eq!(sender.resent(), []);
    sender.wait(Span::micros(1));
    assert!(sender.ready());
    assert_eq!(sender.resent(), [0]);
    assert_eq!(sender.probe(), None, "nobody to be asked");
    assert_eq!(sender.pdcs.info(id).unwrap().cwnd, window, "no sign of loss yet");
    sender.now += Span::micros(30);
    assert!(sender.ack(Says { retx: true, ..PLAIN }));
    let probe = sender.probe();
    assert!(probe.is_some(), "now there is");
    sender.now += Span::micros(20);
    assert!(sender.ack(Says { probe, ..PLAIN }));
    assert_eq!(sender.resent(), [1, 2, 3, 4]);
    assert_eq!(sender.pdcs.counters().timeouts, 0);
}

#[test]
fn a_timeout_sends_a_probe_at_once() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    let sent = sender.now;
    let mut last = None;
    while sender.now.since(sent) < Span::micros(4_990) {
        sender.wait(Span::micros(10));
        if sender.probe().is_some() {
            last = Some(sender.now.since(sent));
        }
    }
    assert!(last.is_some_and(|last| last < Span::millis(2)), "probes ceased: {last:?}");
    sender.wait(Span::micros(10));
    assert!(sender.probe().is_some());
    // No packet is known to be lost, because the peer's process may wait for a processor.
    assert_eq!(sender.resent(), []);
    assert_eq!(sender.pdcs.counters().timeouts, 0);
}

/// With more processes than processors a peer may not run for tens of milliseconds. Its packets
/// wait in its socket, and every retransmission is a waste.
#[test]
fn a_peer_that_waits_for_a_processor_gets_no_duplicates() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    let sent = sender.now;
    while sender.now.since(sent) < Span::millis(90) {
        sender.wait(Span::micros(50));
        while sender.probe().is_some() {}
        assert_eq!(sender.resent(), []);
    }
    assert!(sender.ack(Says { cack: 10, about: 10, ..PLAIN }));
    let counters = sender.pdcs.counters();
    assert_eq!((counters.timeouts, counters.path_freezes), (0, 0));
    assert!(counters.tx_probes < 100, "{} probes", counters.tx_probes);
}

#[test]
fn unanswered_probes_stop_and_the_timer_sends_one_packet() {
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(10);
    let sent = sender.now;
    let mut probes = 0;
    while sender.now.since(sent) < Span::millis(4) {
        sender.wait(Span::micros(10));
        while sender.probe().is_some() {
            probes += 1;
        }
        assert_eq!(sender.resent(), []);
    }
    // Three probes, each in twice as many copies.
    assert_eq!(probes, 1 + 2 + 4);
    let mut times = Vec::new();
    while sender.now.since(sent) < Span::secs(3) {
        sender.wait(Span::micros(100));
        let resent = sender.resent();
        if !resent.is_empty() {
            assert_eq!(resent, [1]);
            times.push(sender.now.since(sent).0 / 1_000_000);
        }
    }
    // The timer expires after 5 ms, 10 more, 20, and again 20 while the peer answered in the last
    // half second, because only the path may be dead; then after 40, 80, .. and at most a second.
    // For the first 100 ms it only probes.
    let mut expect: Vec<u64> = (115..=515).step_by(20).collect();
    expect.extend([555, 635, 795, 1115, 1755, 2755]);
    assert_eq!(times, expect);
    assert_eq!(sender.pdcs.counters().timeouts, expect.len() as u64);
    // The answer shows the losses: other packets are not retransmitted, and probing goes on.
    assert!(sender.ack(Says { cack: 8, about: 1, ..PLAIN }));
    assert_eq!(sender.resent(), []);
    assert_eq!(sender.in_flight(), 2 * NOMINAL);
    sender.wait(Span::micros(500));
    assert!(sender.probe().is_some());
}

#[test]
fn more_packets_out_of_order_than_spraying_explains_are_a_loss() {
    // SLEEK waits for one and a half windows, but no more than the largest window: 20 packets.
    let mut config = fixed(20 * NOMINAL, 1);
    config.loss.probe = false;
    config.train_packets = 1;
    let mut sender = Sender::new(config);
    sender.send(20);
    let mut resent = Vec::new();
    let mut ahead = 0u32;
    while resent.is_empty() {
        // Packet 1 is lost; in each round one more arrives.
        ahead += 1;
        let map = if ahead < 64 { ((1u64 << ahead) - 1) << 1 } else { !1 };
        let about = i32::try_from(ahead + 1).unwrap();
        assert!(sender.ack(Says { map, about, ooo: u16::try_from(ahead).unwrap(), ..PLAIN }));
        resent = sender.resent();
        if resent.is_empty() {
            sender.send(1);
        }
    }
    assert_eq!((resent, ahead), (vec![1], 20));
    assert_eq!(sender.pdcs.counters().retx_out_of_order, 1);
    // With the detector off, nothing is ever lost.
    let mut config = fixed(20 * NOMINAL, 1);
    (config.loss.out_of_order, config.loss.overtaken) = (false, false);
    let mut sender = Sender::new(config);
    sender.send(20);
    assert!(sender.ack(Says { map: 0x7fffe, about: 19, ooo: 60, ..PLAIN }));
    assert_eq!(sender.resent(), []);
}

#[test]
fn packets_behind_a_trimmed_one_are_not_lost() {
    // 30 packets, the first of which was trimmed and is being retransmitted. Of the other 29, one
    // is only slow. The others are out of order because of the trimmed packet.
    let mut config = fixed(20 * NOMINAL, 1);
    (config.loss.probe, config.loss.overtaken, config.train_packets) = (false, false, 1);
    let mut sender = Sender::new(config);
    sender.send(20);
    assert!(sender.nack(1, NackCode::Trimmed, false));
    assert_eq!(sender.resent(), [1]);
    // All packets but 1 and 10 of the first 20 arrive, then ten more.
    let first = 0xffffe & !(1 << 9);
    sender.ack(Says { map: first >> 1 << 1, about: 20, ooo: 18, ..PLAIN });
    sender.send(10);
    sender.ack(Says { map: ((1 << 30) - 2) & !(1 << 9), about: 30, ooo: 28, ..PLAIN });
    assert_eq!(sender.resent(), []);
    // Now packet 10 is the oldest missing one, and as many packets as before have overtaken it.
    sender.ack(Says { cack: 9, map: (1 << 20) - 2, about: 30, ooo: 20, ..PLAIN });
    assert_eq!(sender.resent(), [10]);
}

#[test]
fn a_single_loss_in_a_stream_costs_no_timeout() {
    for seed in 0..20 {
        let faults = Faults { loss: 0.001, ..Faults::default() };
        let mut world = World::new(nscc(seed), nscc(!seed), faults, seed);
        world.send(0, 0..3000, 4096);
        assert!(world.settle(Span::millis(100)), "seed {seed}");
        assert_eq!(world.hosts[0].pdcs.counters().timeouts, 0, "seed {seed}");
    }
}

#[test]
fn reordering_by_spraying_is_not_taken_for_loss() {
    // This link reorders packets of one path, too.
    let config = |seed| {
        let mut config = nscc(seed);
        config.loss.overtaken = false;
        config
    };
    let faults = Faults { jitter: Span::micros(10), ..Faults::default() };
    let mut world = World::new(config(1), config(2), faults, 3);
    world.send(0, 0..5000, 4096);
    assert!(world.settle(Span::millis(100)));
    assert_eq!(world.hosts[0].pdcs.counters().retransmissions(), 0);
    assert!(world.hosts[1].pdcs.counters().rx_out_of_order > 1000);
}

#[test]
fn a_network_that_reorders_packets_of_a_path_is_detected() {
    for seed in 0..8 {
        let faults = Faults { jitter: Span::micros(10), ..Faults::default() };
        let mut world = World::new(nscc(seed), nscc(!seed), faults, seed);
        world.send(0, 0..20_000, 4096);
        assert!(world.settle(Span::millis(400)));
        let counters = world.hosts[0].pdcs.counters();
        // Some of the first packets are retransmitted without need.
        assert!(counters.retransmissions() < 200, "{}", counters.retransmissions());
    }
}

#[test]
fn a_loss_in_a_message_is_found_in_a_round_trip_by_what_follows_on_its_path() {
    // Twelve packets of one train, of which the sixth is lost: a probe would leave only after three
    // round trips.
    let mut sender = Sender::new(fixed(1 << 20, 1));
    sender.send(12);
    sender.now += Span::micros(20);
    assert!(sender.ack(Says { cack: 5, map_at: 6, map: 0x7e, ooo: 6, about: 12, ..PLAIN }));
    assert_eq!(sender.resent(), [6]);
    assert_eq!(sender.pdcs.counters().retx_overtaken, 1);
}

#[test]
fn a_train_shares_a_path() {
    let mut config = fixed(1 << 30, 1);
    config.train_packets = 8;
    config.train_bytes = 5 * 4096;
    let mut sender = Sender::new(config);
    let paths = |sender: &mut Sender, bytes: u32| -> Vec<u16> {
        (0..40)
            .map(|_| {
                let packet =
                    NewPacket { desc: sender.sent, bytes, last: false, prompt: false, backlog: 0 };
                sender.sent += 1;
                sender.pdcs.next_packet(sender.now, sender.id, &packet).unwrap().path
            })
            .collect()
    };
    let before = sender.pdcs.counters().tx_trains;
    for train in paths(&mut sender, 4096).chunks(5) {
        assert!(train.iter().all(|path| *path == train[0]));
    }
    assert_eq!(sender.pdcs.counters().tx_trains - before, 8);
    let before = sender.pdcs.counters().tx_trains;
    let small = paths(&mut sender, 64);
    assert_eq!(sender.pdcs.counters().tx_trains - before, 5);
    for train in small.chunks(8) {
        assert!(train.iter().all(|path| *path == train[0]));
    }
    assert!(small.iter().collect::<BTreeSet<_>>().len() > 2);
}

#[test]
fn a_path_that_breaks_costs_little() {
    let mut world = World::new(nscc(1), nscc(2), Faults::default(), 3);
    world.send(0, 0..20_000, 4096);
    let start = world.now;
    world.run(start + Span::millis(5));
    world.faults.black_hole = Some(world.last_path);
    assert!(world.settle(Span::secs(1)));
    let took = world.now.since(start);
    assert!((0..20_000).all(|n| world.hosts[1].got[&n] == 1));
    let counters = world.hosts[0].pdcs.counters();
    // With even spraying, a sixteenth of the packets would be lost; when the path is avoided, far
    // fewer are.
    let lost = counters.retransmissions();
    assert!(lost > 0 && lost < 20_000 / u64::from(PATHS) / 2, "{lost} lost");
    assert!(counters.path_freezes > 0);
    // Without losses the transfer takes 80 MB / (37.5 kB / 20 us), which is 44 ms.
    assert!(took < Span::millis(100), "{took}");
}

#[test]
fn losses_break_no_path_where_congestion_drops() {
    for (trimming, freezes) in [(true, true), (false, false)] {
        let config = |seed| Config { trim_enabled: trimming, ..nscc(seed) };
        let faults = Faults { loss: 0.01, ..Faults::default() };
        let mut world = World::new(config(1), config(2), faults, 3);
        world.send(0, 0..3000, 4096);
        assert!(world.settle(Span::secs(5)));
        let counters = world.hosts[0].pdcs.counters();
        assert!(counters.retx_probe > 0 && counters.timeouts == 0, "{counters:?}");
        assert_eq!(counters.path_freezes > 0, freezes);
    }
}

#[test]
fn single_packets_survive_a_broken_path_without_waiting_for_a_timeout() {
    let mut world = World::new(nscc(1), nscc(2), Faults::default(), 3);
    world.send(0, 0..1, 64);
    assert!(world.settle(Span::millis(10)));
    for n in 1..200 {
        world.faults.black_hole = Some(world.last_path);
        let start = world.now;
        world.send(0, n..n + 1, 64);
        assert!(world.settle(Span::millis(10)));
        assert!(world.now.since(start) < Span::millis(1), "{n}");
    }
    let found = world.hosts[0].pdcs.counters().retx_probe;
    assert!(found > 0, "{found}");
    assert_eq!(world.hosts[0].pdcs.counters().timeouts, 0);
}

#[test]
fn the_same_seeds_give_the_same_packets() {
    let run = || {
        let faults = Faults { loss: 0.05, jitter: Span::micros(30), ..Faults::default() };
        let mut world = World::new(nscc(1), nscc(2), faults, 3);
        world.trace = Some(Vec::new());
        world.send(0, 0..500, 2000);
        assert!(world.settle(Span::secs(5)));
        assert!(world.hosts[0].fates.values().all(|fate| *fate == SlotState::Acked));
        let trace = world.trace.unwrap();
        format!("{:?}", trace.iter().map(|(host, wire)| (host, flat(wire))).collect::<Vec<_>>())
    };
    assert_eq!(run(), run());
}

fn flat(wire: &Wire) -> String {
    format!("{wire:?}")
}

#[test]
fn a_mark_is_counted_at_both_ends() {
    let faults = Faults { mark: 0.2, ..Faults::default() };
    let mut world = World::new(nscc(1), nscc(2), faults, 3);
    world.send(0, 0..2000, 4096);
    assert!(world.settle(Span::secs(5)));
    let marked = world.hosts[1].pdcs.counters().rx_ce;
    assert!((300..500).contains(&marked), "{marked}");
    assert!(world.hosts[0].pdcs.counters().rx_ce_echoes > 20);
}

/// A lone small message asks for no acknowledgement, and gets one after the peer's delay. A probe
/// before that would cost two more packets for each message.
#[test]
fn a_packet_without_an_ack_request_is_not_probed_early() {
    for (prompt, silence) in [(true, 200), (false, 240)] {
        let mut sender = Sender::new(fixed(1 << 20, 1));
        let one = |sender: &mut Sender| {
            let packet =
                NewPacket { desc: sender.sent, bytes: 100, last: true, prompt, backlog: 0 };
            let sent = sender.pdcs.next_packet(sender.now, sender.id, &packet);
            assert!(sent.is_ok());
            sender.sent += 1;
        };
        // Round trips take 90 us.
        for n in 1..=60 {
            one(&mut sender);
            sender.wait(Span::micros(90));
            assert!(sender.ack(Says { cack: n, about: n, ..PLAIN }));
            assert_eq!(sender.probe(), None);
        }
        one(&mut sender);
        let left = sender.now;
        while sender.probe().is_none() {
            sender.wait(Span::micros(1));
        }
        let silent = sender.now.since(left);
        assert!(silent.0.abs_diff(silence * 1000) <= 1000, "prompt: {prompt}, {silent:?}");
    }
}
