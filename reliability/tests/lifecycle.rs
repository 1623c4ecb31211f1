//! Opening and closing of contexts.

use crate::link::{Faults, PEER, SlotState, Wire, World, fixed, nscc};
use squall_reliability::base::{Psn, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{
    Ack, AckExt, AckRequest, ControlKind, Dest, Nack, NackCode, NextHeader,
};
use squall_reliability::{
    Arrival, ControlPacket, Event, NewPacket, PdcFailure, Pdcs, PeerKey, Refusal, RxVerdict,
    SendError,
};

fn world() -> World {
    World::new(fixed(1 << 20, 1), fixed(1 << 20, 2), Faults::default(), 3)
}

fn packet(desc: u32) -> NewPacket<u32> {
    NewPacket { desc, bytes: 1000, last: false, prompt: false, backlog: 0 }
}

/// Returns the requests that a host sent, from its trace.
fn requests(world: &World, host: usize) -> Vec<squall_reliability::wire::Request> {
    let trace = world.trace.as_ref().unwrap();
    trace
        .iter()
        .filter_map(|(from, wire)| match wire {
            Wire::Data { pds, .. } if *from == host => Some(*pds),
            _ => None,
        })
        .collect()
}

/// Returns the kinds of control packets that a host sent.
fn controls(world: &World, host: usize) -> Vec<ControlKind> {
    let trace = world.trace.as_ref().unwrap();
    trace
        .iter()
        .filter_map(|(from, wire)| match wire {
            Wire::Control(ControlPacket::Control(control)) if *from == host => Some(control.kind),
            _ => None,
        })
        .collect()
}

#[test]
fn packets_carry_syn_until_the_target_is_heard_of() {
    let mut world = world();
    world.trace = Some(Vec::new());
    world.send(0, 0..5, 1000);
    world.settle(Span::millis(1));
    world.send(0, 5..6, 1000);
    world.settle(Span::millis(1));
    let sent = requests(&world, 0);
    assert_eq!(sent.len(), 6);
    let start = sent[0].psn;
    for (at, pds) in (0u16..).zip(&sent[..5]) {
        assert_eq!(pds.dest, Dest::Syn { use_rsv_pdc: false, psn_offset: at });
        assert_eq!(pds.psn, start.plus(u32::from(at)));
        assert_eq!(pds.spdcid, 1);
    }
    assert_eq!(sent[5].dest, Dest::Pdc(1));
    assert_eq!(world.hosts[1].pdcs.counters().accepted, 1);
}

#[test]
fn start_psns_are_random_and_far_from_the_last_ones() {
    let mut pdcs: Pdcs<u32> = Pdcs::new(fixed(1 << 20, 7));
    let mut starts = Vec::new();
    for n in 0..2000u32 {
        let now = Time(u64::from(n));
        let id = pdcs.open(now, PEER).unwrap();
        let grant = pdcs.next_packet(now, id, &packet(n)).unwrap();
        starts.push((grant.pds.spdcid, grant.psn));
        pdcs.abort(id);
    }
    for (spdcid, psn) in &starts {
        assert_ne!(*spdcid, 0);
        let others = starts.iter().filter(|(other, _)| other == spdcid);
        let mut last: Option<Psn> = None;
        for (_, psn) in others {
            if let Some(last) = last {
                assert!(psn.distance(last).unsigned_abs() >= 1 << 16);
            }
            last = Some(psn.plus(1));
        }
        assert!(starts.iter().filter(|(_, other)| other == psn).count() == 1);
    }
    // A number is reused only after 64 others.
    let again = starts[1..].iter().position(|(spdcid, _)| *spdcid == starts[0].0).unwrap() + 1;
    assert!(again > 64, "{again}");
}

#[test]
fn the_window_is_the_smaller_of_both_ends() {
    let mut left = fixed(1 << 30, 1);
    left.max_window_packets = 300;
    let mut right = fixed(1 << 30, 2);
    right.recv_window_packets = 130; // advertised as 128
    let mut world = World::new(left, right, Faults::default(), 3);
    world.send(0, 0..1, 100);
    world.settle(Span::millis(1));
    world.faults.cut = true;
    world.send(0, 1..1000, 100);
    let id = world.hosts[0].id.unwrap();
    // The peer's MPR does not reduce the first window: 300 packets from the start.
    assert_eq!(world.hosts[0].pdcs.info(id).unwrap().outstanding, 299);
    // A larger MPR does not raise this end's own limit.
    let mut left = fixed(1 << 30, 1);
    left.max_window_packets = 300;
    let mut world = World::new(left, fixed(1 << 30, 2), Faults::default(), 3);
    world.send(0, 0..1, 100);
    world.settle(Span::millis(1));
    world.faults.cut = true;
    world.send(0, 1..1000, 100);
    let id = world.hosts[0].id.unwrap();
    assert_eq!(world.hosts[0].pdcs.info(id).unwrap().outstanding, 300);
    let mut world = World::new(fixed(1 << 30, 1), fixed(1 << 30, 2), Faults::default(), 3);
    world.faults.cut = true;
    world.send(0, 0..5000, 100);
    let id = world.hosts[0].id.unwrap();
    assert_eq!(world.hosts[0].pdcs.info(id).unwrap().outstanding, 2048);
}

#[test]
fn an_unreachable_peer_ends_in_an_error_at_the_deadline() {
    let mut world = world();
    world.faults.cut = true;
    world.trace = Some(Vec::new());
    let start = world.now;
    world.send(0, 0..50, 1000);
    world.run(start + Span::millis(9_999));
    assert_eq!(world.hosts[0].failures, []);
    world.run(start + Span::millis(10_001));
    let host = &world.hosts[0];
    assert_eq!(host.failures, [PdcFailure::Unreachable]);
    assert!((0..50).all(|n| host.fates.get(&n) == Some(&SlotState::Lost)), "{:?}", host.fates);
    assert!(host.pdcs.count() == 0);
    // 50 packets once, then one every 5 ms for the first tenth of a second, and then one per timeout
    // of 10, 20, .. 1000 ms.
    let sent = requests(&world, 0).len();
    assert!((80..105).contains(&sent), "{sent} packets sent");
    assert_eq!(host.pdcs.poll_timeout(), None);
}

#[test]
fn a_peer_that_falls_silent_ends_in_an_error_at_the_deadline() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    world.faults.cut = true;
    let cut = world.now;
    world.send(0, 10..20, 1000);
    world.run(cut + Span::millis(9_999));
    assert_eq!(world.hosts[0].failures, []);
    world.run(cut + Span::millis(10_001));
    assert_eq!(world.hosts[0].failures, [PdcFailure::Silent]);
    assert!((10..20).all(|n| world.hosts[0].fates[&n] == SlotState::Lost));
    assert!((0..10).all(|n| world.hosts[0].fates[&n] == SlotState::Acked));
}

#[test]
fn an_interruption_shorter_than_the_deadline_is_survived() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    world.faults.cut = true;
    world.send(0, 10..500, 1000);
    world.run(world.now + Span::secs(8));
    world.faults.cut = false;
    assert!(world.settle(Span::secs(2)));
    assert!((0..500).all(|n| world.hosts[1].got[&n] == 1));
    // One packet per timeout, not a window.
    assert!(world.hosts[0].pdcs.counters().tx_packets < 1100);
}

#[test]
fn a_target_that_forgot_the_context_makes_it_fail() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    world.hosts[1].pdcs = Pdcs::new(fixed(1 << 20, 9));
    world.hosts[1].last_from = None;
    world.send(0, 10..12, 1000);
    world.run(world.now + Span::millis(1));
    let host = &world.hosts[0];
    assert_eq!(host.failures, [PdcFailure::PeerRestarted]);
    assert_eq!((host.fates[&10], host.fates[&11]), (SlotState::Lost, SlotState::Lost));
    let unknown = world.hosts[1].pdcs.counters();
    assert_eq!(unknown.rx_unknown_context, 2);
    assert_eq!(unknown.tx_nacks[usize::from(NackCode::InvDpdcid.to_u8())], 2);
    // The next packets open another context.
    world.send(0, 20..25, 1000);
    assert!(world.settle(Span::millis(5)));
    assert!((20..25).all(|n| world.hosts[1].got[&n] == 1));
}

#[test]
fn a_restarted_peer_takes_all_its_contexts_with_it() {
    let mut pdcs: Pdcs<u32> = Pdcs::new(fixed(1 << 20, 7));
    let now = Time(5);
    let [a, b] = [PeerKey(1), PeerKey(2)].map(|peer| pdcs.open(now, peer).unwrap());
    for id in [a, b] {
        let _ = pdcs.next_packet(now, id, &packet(id.index() as u32)).unwrap();
    }
    pdcs.peer_restarted(PeerKey(1));
    assert_eq!(pdcs.poll_event(), Some(Event::Lost { id: a, desc: 0 }));
    let why = PdcFailure::PeerRestarted;
    assert_eq!(
        pdcs.poll_event(),
        Some(Event::Failed { id: a, peer: PeerKey(1), why, parting: false })
    );
    assert_eq!(pdcs.poll_event(), None);
    assert_eq!(pdcs.next_packet(now, a, &packet(9)), Err(SendError::Gone));
    assert!(pdcs.next_packet(now, b, &packet(9)).is_ok());
}

#[test]
fn the_initiator_closes_after_its_last_acknowledgement() {
    let mut world = world();
    world.trace = Some(Vec::new());
    world.send(0, 0..100, 1000);
    let id = world.hosts[0].id.unwrap();
    let now = world.now;
    world.hosts[0].pdcs.close(now, id);
    assert_eq!(world.hosts[0].pdcs.next_packet(now, id, &packet(0)), Err(SendError::Closing));
    world.run(now + Span::millis(10));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
    assert_eq!(world.hosts[0].failures, []);
    assert!((0..100).all(|n| world.hosts[0].fates[&n] == SlotState::Acked));
    assert!(world.hosts[0].pdcs.count() == 0 && world.hosts[1].pdcs.count() == 0);
    assert_eq!(controls(&world, 0), [ControlKind::CloseCommand]);
    assert_eq!(world.hosts[0].pdcs.next_packet(now, id, &packet(0)), Err(SendError::Gone));
}

#[test]
fn a_syn_that_its_target_refuses_without_a_context_ends_the_context() {
    for code in [NackCode::PdcHdrMismatch, NackCode::PdcModeMismatch] {
        let mut pdcs: Pdcs<u32> = Pdcs::new(fixed(1 << 20, 7));
        let now = Time(5);
        let id = pdcs.open(now, PEER).unwrap();
        let syn = pdcs.next_packet(now, id, &packet(1)).unwrap();
        let nack = Nack {
            ce: false,
            retx: false,
            rudi: false,
            code,
            vendor_code: 0,
            psn: syn.psn,
            spdcid: 0,
            dpdcid: syn.pds.spdcid,
            payload: 0,
            ccx: None,
        };
        assert!(pdcs.rx_nack(now, PEER, &nack), "{code}");
        assert_eq!(pdcs.poll_event(), Some(Event::Lost { id, desc: 1 }));
        let why = PdcFailure::Nacked(code);
        assert_eq!(pdcs.poll_event(), Some(Event::Failed { id, peer: PEER, why, parting: false }));
    }
}

#[test]
fn an_acknowledgement_with_an_expected_psn_ends_a_context_that_closes() {
    let mut pdcs: Pdcs<u32> = Pdcs::new(fixed(1 << 20, 7));
    let now = Time(5);
    let id = pdcs.open(now, PEER).unwrap();
    let syn = pdcs.next_packet(now, id, &packet(1)).unwrap();
    let ack = |n: u32, ext| Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn: syn.psn.plus(n),
        spdcid: 9,
        dpdcid: syn.pds.spdcid,
        ext,
    };
    assert!(pdcs.rx_ack(now, PEER, &ack(0, AckExt::None), None, Hops::NONE));
    assert_eq!(pdcs.poll_event(), Some(Event::Acked { id, desc: 1, count: 1 }));
    pdcs.close(now, id);
    let close = pdcs.poll_control(now).expect("the context closes").packet;
    assert!(
        matches!(close, ControlPacket::Control(it) if it.kind == ControlKind::CloseCommand),
        "{close:?}"
    );
    assert!(pdcs.rx_ack(
        now,
        PEER,
        &ack(1, AckExt::ExpectedPsn(syn.psn.plus(2))),
        None,
        Hops::NONE
    ));
    let events: Vec<_> = core::iter::from_fn(|| pdcs.poll_event()).collect();
    assert_eq!(events.last(), Some(&Event::Closed { id, peer: PEER, parting: false }));
}

#[test]
fn a_context_never_used_closes_at_once() {
    let mut pdcs: Pdcs<u32> = Pdcs::new(fixed(1 << 20, 7));
    let id = pdcs.open(Time(1), PEER).unwrap();
    pdcs.close(Time(2), id);
    assert_eq!(pdcs.poll_event(), Some(Event::Closed { id, peer: PEER, parting: false }));
    assert!(pdcs.count() == 0);
}

#[test]
fn closing_survives_loss_on_both_ways() {
    for seed in 0..50 {
        let faults = Faults { loss: 0.3, ..Faults::default() };
        let mut world = World::new(fixed(1 << 20, seed), fixed(1 << 20, !seed), faults, seed);
        world.send(0, 0..20, 1000);
        assert!(world.settle(Span::secs(9)));
        let id = world.hosts[0].id.unwrap();
        world.hosts[0].pdcs.close(world.now, id);
        world.run(world.now + Span::secs(2));
        assert_eq!(world.hosts[0].closed, 1, "seed {seed}");
        assert!(world.hosts[0].failures.is_empty());
    }
}

#[test]
fn the_target_asks_and_the_initiator_closes() {
    let mut world = world();
    world.trace = Some(Vec::new());
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[1].last_from.unwrap();
    world.hosts[1].pdcs.close(world.now, id);
    world.pump(1);
    world.run(world.now + Span::millis(5));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
    assert_eq!(controls(&world, 1), [ControlKind::CloseRequest]);
    assert_eq!(controls(&world, 0), [ControlKind::CloseCommand]);
}

#[test]
fn a_target_closes_only_after_its_own_packets_are_acknowledged() {
    let mut world = world();
    world.hosts[1].echo = Some(500);
    world.send(0, 0..10, 1000);
    world.run(world.now + Span::micros(15));
    // The echoes are in flight; the initiator wants to close.
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.close(world.now, id);
    world.run(world.now + Span::millis(50));
    assert_eq!(world.hosts[0].closed, 1);
    assert_eq!(world.hosts[0].got.len(), 10);
    assert_eq!(world.hosts[1].closed, 1);
    assert_eq!(world.hosts[1].failures, []);
    assert_eq!(world.hosts[1].fates.len(), 10);
}

#[test]
fn an_idle_context_sleeps_closes_and_is_reopened() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    world.run(world.now + Span::millis(5));
    let quiet = world.now;
    // Until the context is closed for idleness, no timer is set for other reasons.
    let first = world.hosts[0].pdcs.poll_timeout().unwrap();
    assert!(first >= quiet + Span::secs(29), "{first:?}");
    world.run(quiet + Span::secs(31));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
    assert_eq!(world.hosts[0].pdcs.poll_timeout(), None);
    assert_eq!(world.hosts[1].pdcs.poll_timeout(), None);
    world.send(0, 10..20, 1000);
    assert!(world.settle(Span::millis(5)));
    assert!((0..20).all(|n| world.hosts[1].got[&n] == 1));
    assert_eq!(world.hosts[0].pdcs.counters().opened, 2);
}

#[test]
fn a_busy_context_is_not_idle() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.set_busy(world.now, id, true);
    world.run(world.now + Span::secs(100));
    assert_eq!(world.hosts[0].closed, 0);
    // The expected data and all that follows use the same context.
    world.send(0, 10..20, 1000);
    assert!(world.settle(Span::millis(5)));
    assert_eq!(world.hosts[0].pdcs.counters().opened, 1);
    world.hosts[0].pdcs.set_busy(world.now, id, false);
    world.run(world.now + Span::secs(31));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
}

#[test]
fn a_target_discards_the_context_of_a_vanished_initiator_at_the_deadline() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    world.faults.cut = true;
    world.run(world.now + Span::secs(119));
    assert_eq!(world.hosts[1].closed, 0);
    // Four times the initiator's idle time, and the deadline.
    world.run(world.now + Span::secs(12));
    assert_eq!(world.hosts[1].closed, 1);
    assert!(world.hosts[1].pdcs.count() == 0);
}

#[test]
fn a_replayed_syn_opens_nothing() {
    let mut world = world();
    world.trace = Some(Vec::new());
    world.send(0, 0..3, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.close(world.now, id);
    world.run(world.now + Span::millis(10));
    assert!(world.hosts[1].pdcs.count() == 0);
    let replayed = requests(&world, 0);
    for pds in &replayed {
        let meta = Arrival { bytes: 1000, ..Arrival::default() };
        let verdict = world.hosts[1].pdcs.rx_request(world.now, PEER, pds, &meta);
        assert_eq!(verdict, RxVerdict::Refused(Refusal::Replayed));
    }
    assert_eq!(world.hosts[1].pdcs.counters().rx_replayed_syn, 3);
    assert!(world.hosts[1].pdcs.count() == 0);
    assert_eq!(world.hosts[1].pdcs.poll_control(world.now), None);
}

#[test]
fn a_target_without_room_refuses_a_context_until_there_is_room() {
    let mut right = fixed(1 << 20, 2);
    right.max_contexts = 1;
    let mut world = World::new(fixed(1 << 20, 1), right, Faults::default(), 3);
    let other = world.hosts[1].pdcs.open(world.now, PeerKey(77)).unwrap();
    world.send(0, 0..3, 1000);
    world.run(world.now + Span::millis(100));
    assert!(world.hosts[1].got.is_empty());
    assert!(world.hosts[1].pdcs.counters().rx_no_context > 0);
    world.hosts[1].pdcs.abort(other);
    assert!(world.settle(Span::millis(100)));
    assert!((0..3).all(|n| world.hosts[1].got[&n] == 1));
    assert_eq!(world.hosts[0].failures, []);
    assert_eq!(world.hosts[0].pdcs.open(world.now, PEER).map(|_| ()), Some(()));
}

#[test]
fn a_number_used_again_replaces_the_forgotten_context() {
    let mut world = world();
    world.send(0, 0..3, 1000);
    world.settle(Span::millis(5));
    // The initiator discards the context without notice, and by chance reuses the number.
    world.hosts[0].pdcs = Pdcs::new(fixed(1 << 20, 99));
    world.hosts[0].id = None;
    world.send(0, 10..13, 1000);
    assert!(world.settle(Span::millis(5)));
    assert!((10..13).all(|n| world.hosts[1].got[&n] == 1));
    assert_eq!(world.hosts[1].pdcs.count(), 1);
    assert_eq!(world.hosts[1].closed, 1);
}

#[test]
fn a_new_start_psn_renumbers_everything_and_numbers_wrap() {
    for before_wrap in [0u32, 1, 50, 63, 64, 500] {
        let mut world = World::new(nscc(1), nscc(2), Faults::default(), 3);
        world.faults.cut = true;
        world.send(0, 0..30, 1000);
        let id = world.hosts[0].id.unwrap();
        world.faults.cut = false;
        let mut probe = Pdcs::<u32>::new(nscc(1));
        let same = probe.open(world.now, PEER).unwrap();
        let first = probe.next_packet(world.now, same, &packet(0)).unwrap();
        let nack = squall_reliability::wire::Nack {
            ce: false,
            retx: false,
            rudi: false,
            code: NackCode::NewStartPsn,
            vendor_code: 0,
            psn: first.psn,
            spdcid: 0,
            dpdcid: first.pds.spdcid,
            payload: 0u32.wrapping_sub(before_wrap),
            ccx: None,
        };
        assert!(world.hosts[0].pdcs.rx_nack(world.now, PEER, &nack));
        world.faults = Faults { loss: 0.05, jitter: Span::micros(30), ..Faults::default() };
        world.hosts[1].echo = Some(800);
        world.send(0, 30..1000, 1000);
        assert!(world.settle(Span::secs(5)), "{before_wrap}");
        assert!((0..1000).all(|n| world.hosts[1].got[&n] == 1));
        assert_eq!(world.hosts[0].got.len(), 1000);
        assert!(world.hosts[0].pdcs.info(id).is_some());
        assert!((0..1000).all(|n| world.hosts[0].fates[&n] == SlotState::Acked));
    }
}

#[test]
fn a_context_idle_during_an_absence_is_not_used_again() {
    let mut world = world();
    world.send(0, 0..3, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[0].id.unwrap();
    // The process did not run for a minute; its first act is to send.
    let late = world.now + Span::secs(60);
    assert_eq!(world.hosts[0].pdcs.next_packet(late, id, &packet(3)), Err(SendError::Closing));
    world.now = late;
    world.send(0, 3..6, 1000);
    assert!(world.settle(Span::millis(5)));
    assert!((0..6).all(|n| world.hosts[1].got[&n] == 1));
    assert_eq!(world.hosts[0].pdcs.counters().opened, 2);
    assert_eq!(world.hosts[0].failures, []);
}

#[test]
fn a_busy_initiator_may_delay_the_close_that_its_target_requests() {
    let mut world = world();
    world.send(0, 0..3, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.set_busy(world.now, id, true);
    let target = world.hosts[1].last_from.unwrap();
    world.hosts[1].pdcs.close(world.now, target);
    world.pump(1);
    world.run(world.now + Span::secs(60));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (0, 0));
    world.send(0, 3..6, 1000);
    assert!(world.settle(Span::millis(5)));
    // The message continued on the same context.
    assert_eq!(world.hosts[0].pdcs.counters().opened, 1);
    world.hosts[0].pdcs.set_busy(world.now, id, false);
    world.run(world.now + Span::secs(3));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
    assert_eq!((&world.hosts[0].failures, &world.hosts[1].failures), (&vec![], &vec![]));
}

#[test]
fn closing_a_context_whose_target_is_gone_ends_soon() {
    let mut world = world();
    world.send(0, 0..3, 1000);
    world.settle(Span::millis(5));
    world.faults.cut = true;
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.close(world.now, id);
    world.pump(0);
    world.run(world.now + Span::secs(1));
    assert_eq!(world.hosts[0].closed, 1);
    assert_eq!(world.hosts[0].failures, []);
}

#[test]
fn a_window_shut_by_responses_opens_although_clears_get_lost() {
    let mut right = fixed(1 << 20, 2);
    right.recv_window_packets = 128;
    let mut left = fixed(1 << 20, 1);
    left.max_window_packets = 128;
    let mut world = World::new(left, right, Faults::default(), 3);
    world.hosts[1].respond_each = Some(1);
    let clear = |wire: &Wire| match wire {
        Wire::Control(ControlPacket::Control(c)) => c.kind == ControlKind::ClearCommand,
        _ => false,
    };
    world.faults.drop = Some(clear);
    world.send(0, 0..300, 100);
    world.run(world.now + Span::millis(100));
    // 128 packets were answered. No request clears the responses, so the target accepts no more
    // packets.
    assert_eq!(world.hosts[1].got.len(), 128);
    assert_eq!(world.hosts[0].fates.len(), 128);
    world.faults.drop = None;
    assert!(world.settle(Span::millis(50)));
    assert_eq!(world.hosts[1].got.len(), 300);
    assert_eq!(world.hosts[0].failures, []);
    assert!(world.hosts[0].fates.values().all(|fate| matches!(fate, SlotState::Responded(_))));
}

#[test]
fn acknowledgements_leave_a_path_that_loses_them() {
    for seed in 0..10 {
        let config = |seed| {
            let mut config = fixed(1 << 20, seed);
            config.loss.probe = false;
            config
        };
        let mut world = World::new(config(seed), config(!seed), Faults::default(), 3);
        world.send(0, 0..3, 1000);
        world.settle(Span::millis(5));
        world.faults.control_black_hole = Some(world.last_control_path[1]);
        world.send(0, 3..6, 1000);
        assert!(world.settle(Span::secs(1)), "seed {seed}");
        assert!((0..6).all(|n| world.hosts[1].got[&n] == 1));
    }
}

#[test]
fn a_target_discards_uncleared_responses_at_the_deadline() {
    let mut world = world();
    world.hosts[1].respond_each = Some(1);
    world.faults.drop = Some(|wire| match wire {
        Wire::Control(ControlPacket::Control(c)) => c.kind == ControlKind::ClearCommand,
        _ => false,
    });
    world.send(0, 0..3, 1000);
    world.run(world.now + Span::millis(5));
    assert_eq!(world.hosts[0].fates.len(), 3);
    world.faults.cut = true;
    world.run(world.now + Span::secs(119));
    assert_eq!(world.hosts[1].closed, 0);
    world.run(world.now + Span::secs(12));
    assert_eq!(world.hosts[1].closed, 1);
    assert_eq!(world.hosts[1].pdcs.poll_timeout(), None);
}

/// Returns a world in which a target's answers arrived but were not acknowledged, when its
/// initiator wants to close and the link drops everything.
fn unacknowledged_answers() -> World {
    let mut world = world();
    world.hosts[1].echo = Some(500);
    world.send(0, 0..10, 1000);
    // The packet and its answer arrive.
    world.run(world.now + Span::micros(25));
    assert_eq!((world.hosts[0].got.len(), world.hosts[1].fates.len()), (10, 0));
    world.faults.cut = true;
    world.drop_flying();
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.close(world.now, id);
    world.pump(0);
    world
}

#[test]
fn an_initiator_that_closes_waits_until_answers_are_acknowledged() {
    let mut world = unacknowledged_answers();
    world.run(world.now + Span::secs(8));
    assert_eq!(world.hosts[0].closed, 0);
    world.faults.cut = false;
    world.run(world.now + Span::secs(3));
    assert_eq!((world.hosts[0].closed, world.hosts[1].closed), (1, 1));
    assert_eq!((&world.hosts[0].failures, &world.hosts[1].failures), (&vec![], &vec![]));
    assert!(world.hosts[1].fates.values().all(|fate| *fate == SlotState::Acked));
}

#[test]
fn an_initiator_waits_no_longer_to_close_than_its_target() {
    let mut world = unacknowledged_answers();
    world.run(world.now + Span::secs(12));
    assert_eq!((world.hosts[0].closed, &world.hosts[0].failures), (1, &vec![]));
    assert_eq!(world.hosts[1].failures, [PdcFailure::Silent]);
    assert!(world.hosts.iter().all(|host| host.pdcs.count() == 0));
}

#[test]
fn a_target_that_gave_up_reports_it_by_a_nack() {
    let mut world = world();
    world.send(0, 0..10, 1000);
    world.settle(Span::millis(5));
    let id = world.hosts[1].last_from.unwrap();
    world.hosts[1].pdcs.abort(id);
    world.send(0, 10..12, 1000);
    world.run(world.now + Span::millis(1));
    // The target did not restart: it remembers the context.
    assert_eq!(world.hosts[0].failures, [PdcFailure::Nacked(NackCode::ClosingInErr)]);
    let counters = world.hosts[1].pdcs.counters();
    assert_eq!(counters.tx_nacks[usize::from(NackCode::ClosingInErr.to_u8())], 2);
    // Another instance of the peer would not be known under that number.
    world.hosts[1].pdcs.peer_restarted(PEER);
    let pds = squall_reliability::wire::Request {
        dest: Dest::Pdc(1),
        ..world.hosts[0]
            .pdcs
            .open(world.now, PEER)
            .map(|id| world.hosts[0].pdcs.next_packet(world.now, id, &packet(0)).unwrap().pds)
            .unwrap()
    };
    for known in [None, Some(PEER)] {
        let nack = world.hosts[1].pdcs.reject(known, &pds).unwrap();
        assert_eq!((nack.code, nack.spdcid), (NackCode::InvDpdcid, 0));
    }
}

#[test]
fn an_initiator_that_reopens_a_given_up_context_has_not_restarted() {
    let mut world = world();
    world.hosts[1].echo = Some(500);
    world.send(0, 0..3, 1000);
    world.run(world.now + Span::micros(15));
    world.drop_flying();
    // The answers are unacknowledged when the number is reused.
    world.hosts[0].pdcs = Pdcs::new(fixed(1 << 20, 99));
    world.hosts[0].id = None;
    world.hosts[1].echo = None;
    world.send(0, 10..13, 1000);
    assert!(world.settle(Span::millis(5)));
    assert_eq!(world.hosts[1].failures, [PdcFailure::Forgotten]);
    assert!((10..13).all(|n| world.hosts[1].got[&n] == 1));
}
