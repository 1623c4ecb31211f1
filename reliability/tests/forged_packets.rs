//! Forged, corrupt and random packets are counted and dropped, and change nothing. Random histories
//! with such packets (`hostile/mod.rs`; for many of them `ci/run suite fuzz`): nothing panics, and
//! everything ends.

use crate::link::{Faults, PEER, Wire, World, fixed, response};
use crate::{histories, hostile};
use squall_reliability::base::{Psn, Span};
use squall_reliability::cc::Hops;
use squall_reliability::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Control, ControlKind, Dest, Mode, Nack, NackCode,
    NextHeader, NsccState, Request,
};
use squall_reliability::{Arrival, NewPacket, PdcInfo, PeerKey, RxVerdict, SendError};

/// Returns a world with a connected context: some packets are acknowledged, twenty are in flight,
/// and the link is cut.
fn world() -> World {
    let mut world = World::new(fixed(1 << 20, 1), fixed(1 << 20, 2), Faults::default(), 3);
    world.hosts[1].echo = Some(100);
    world.send(0, 0..30, 1000);
    assert!(world.settle(Span::millis(5)));
    world.run(world.now + Span::millis(1));
    world.faults.cut = true;
    world.trace = Some(Vec::new());
    world.hosts[1].echo = None;
    world.send(0, 30..50, 1000);
    world.drop_flying();
    world
}

/// Returns the packets that host 0 has outstanding.
fn outstanding(world: &World) -> Vec<Request> {
    let trace = world.trace.as_ref().unwrap();
    trace
        .iter()
        .filter_map(|(_, wire)| match wire {
            Wire::Data { pds, .. } => Some(*pds),
            Wire::Control(_) => None,
        })
        .collect()
}

fn info(world: &World) -> PdcInfo {
    world.hosts[0].pdcs.info(world.hosts[0].id.unwrap()).unwrap()
}

fn ack(cack: Psn, spdcid: u16, dpdcid: u16) -> Ack {
    Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn: cack,
        spdcid,
        dpdcid,
        ext: AckExt::Cc(AckCc {
            mpr: 16,
            sack_psn_offset: 1,
            sack_bitmap: 0,
            state: CcState::Nscc(NsccState { service_time: 1, ..NsccState::default() }),
        }),
    }
}

#[test]
fn a_forged_acknowledgement_changes_nothing() {
    let mut world = world();
    let now = world.now;
    let sent = outstanding(&world);
    let (first, last) = (sent[0].psn, sent[19].psn);
    let before = info(&world);
    assert_eq!(before.outstanding, 20);
    let sack = |offset: i16, map: u64| {
        let mut ack = ack(first.minus(1), 1, 1);
        ack.ext = AckExt::Cc(AckCc {
            mpr: 255,
            sack_psn_offset: offset,
            sack_bitmap: map,
            state: CcState::Nscc(NsccState::default()),
        });
        ack
    };
    let about = |offset: i16| Ack { ack_psn_offset: offset, ..ack(first.minus(1), 1, 1) };
    let forged = [
        // Never sent.
        ack(last.plus(1), 1, 1),
        ack(last.plus(1 << 30), 1, 1),
        Ack { probe: true, ..ack(last.plus(1), 1, 1) },
        sack(1, 1 << 20),
        sack(1, 1 << 63),
        sack(i16::MAX, 1),
        about(21),
        about(i16::MAX),
        // Wrong numbers: of no context, or not the peer's.
        ack(first, 1, 2),
        ack(first, 1, 0),
        ack(first, 2, 1),
        // Too old to be a late ACK.
        ack(first.minus(10_000), 1, 1),
    ];
    for ack in forged {
        assert!(!world.hosts[0].pdcs.rx_ack(now, PEER, &ack, None, Hops::NONE), "{ack:?}");
        assert_eq!(info(&world), before, "{ack:?}");
    }
    // The right packet from the wrong peer.
    assert!(!world.hosts[0].pdcs.rx_ack(now, PeerKey(5), &ack(first, 1, 1), None, Hops::NONE));
    assert_eq!(info(&world), before);
    assert_eq!(world.hosts[0].pdcs.poll_event(), None);
    let counters = world.hosts[0].pdcs.counters();
    assert_eq!(counters.rx_bad_ack, 8);
    assert_eq!(counters.rx_unknown_context, 2);
    assert_eq!(counters.rx_mismatch, 2);
    assert_eq!(counters.rx_stale, 1);
    // A genuine one is accepted.
    assert!(world.hosts[0].pdcs.rx_ack(now, PEER, &ack(last, 1, 1), None, Hops::NONE));
    assert_eq!(info(&world).outstanding, 0);
}

#[test]
fn a_response_to_what_is_not_outstanding_is_ignored() {
    let mut world = world();
    let now = world.now;
    let first = outstanding(&world)[0].psn;
    let late = Ack { next: NextHeader::Response, ..ack(first.minus(5), 1, 1) };
    let before = info(&world);
    world.hosts[0].pdcs.rx_ack(now, PEER, &late, Some(&response(1)), Hops::NONE);
    assert_eq!(info(&world), before);
    assert_eq!(world.hosts[0].pdcs.poll_event(), None);
}

#[test]
fn a_forged_nack_changes_nothing() {
    let mut world = world();
    let now = world.now;
    let sent = outstanding(&world);
    let (first, last) = (sent[0].psn, sent[19].psn);
    let before = info(&world);
    for code in (1..=255u8).filter_map(NackCode::from_u8) {
        let nack = |psn: Psn, spdcid: u16, dpdcid: u16, retx: bool| Nack {
            ce: true,
            retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn,
            spdcid,
            dpdcid,
            payload: 7,
            ccx: None,
        };
        let retransmits = code.action() == squall_reliability::wire::NackAction::Retransmit;
        for forged in [
            nack(first.minus(1), 1, 1, false),
            nack(last.plus(1), 1, 1, false),
            nack(first, 2, 1, false),
            nack(first, 1, 2, false),
            nack(first, 1, 0, false),
            // A NACK of a retransmission that never happened.
            nack(first, 1, 1, retransmits),
        ] {
            if forged.psn == first && forged.spdcid == 1 && forged.dpdcid == 1 && !retransmits {
                continue;
            }
            assert!(!world.hosts[0].pdcs.rx_nack(now, PEER, &forged), "{forged:?}");
            assert!(!world.hosts[0].pdcs.rx_nack(now, PeerKey(5), &forged), "{forged:?}");
            assert_eq!(info(&world), before, "{forged:?}");
        }
    }
    assert_eq!(world.hosts[0].pdcs.poll_event(), None);
    assert_eq!(*world.hosts[0].pdcs.counters().rx_nacks, [0; 256]);
}

#[test]
fn forged_control_packets_change_nothing() {
    let mut world = world();
    let now = world.now;
    let next = outstanding(&world)[0].psn;
    let target = world.hosts[1].last_from.unwrap();
    let before = world.hosts[1].pdcs.info(target);
    let control = |kind, psn, spdcid, dest| Control {
        kind,
        isrod: false,
        retx: false,
        ack_request: true,
        probe_opaque: 0,
        psn,
        spdcid,
        dest,
        payload: 0,
    };
    let syn = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };
    for (kind, psn, spdcid, dest) in [
        // A Close Command at the wrong place in the sequence.
        (ControlKind::CloseCommand, next.plus(1), 1, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next.minus(1), 1, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next, 2, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next, 1, Dest::Pdc(2)),
        (ControlKind::CloseCommand, next, 1, syn),
        // Only targets request the close.
        (ControlKind::CloseRequest, next, 1, Dest::Pdc(1)),
        (ControlKind::Probe, next.plus(1 << 20), 1, Dest::Pdc(1)),
        (ControlKind::Noop, next, 1, syn),
    ] {
        let forged = control(kind, psn, spdcid, dest);
        assert!(!world.hosts[1].pdcs.rx_control(now, PEER, &forged), "{forged:?}");
        assert!(!world.hosts[1].pdcs.rx_control(now, PeerKey(5), &forged), "{forged:?}");
        assert_eq!(world.hosts[1].pdcs.info(target), before);
        assert_eq!(world.hosts[1].pdcs.poll_control(now), None, "{forged:?}");
    }
    // An initiator ignores a Close Command.
    let id = world.hosts[0].id.unwrap();
    let close = control(ControlKind::CloseCommand, next, 1, Dest::Pdc(1));
    assert!(!world.hosts[0].pdcs.rx_control(now, PEER, &close));
    assert!(world.hosts[0].pdcs.info(id).is_some());
}

/// A context that closed at this point could not send, on the same context, what an answer in
/// flight asks for.
#[test]
fn a_close_request_waits_for_packets_in_flight() {
    let mut world = world();
    let now = world.now;
    let sent = outstanding(&world);
    let request = Control {
        kind: ControlKind::CloseRequest,
        isrod: false,
        retx: false,
        ack_request: false,
        probe_opaque: 0,
        psn: sent[0].psn,
        spdcid: 1,
        dest: Dest::Pdc(1),
        payload: 0,
    };
    let id = world.hosts[0].id.unwrap();
    let pdcs = &mut world.hosts[0].pdcs;
    let packet = NewPacket { desc: 99, bytes: 100, last: true, prompt: true, backlog: 0 };
    assert!(pdcs.rx_control(now, PEER, &request));
    let asks = Ack { request: AckRequest::Close, ..ack(sent[5].psn, 1, 1) };
    assert!(pdcs.rx_ack(now, PEER, &asks, None, Hops::NONE));
    // The last packet is answered with a response, which the engine sees before the context closes.
    let last = Ack { next: NextHeader::Response, ..asks };
    let last = Ack { cack_psn: sent[19].psn, ..last };
    assert!(pdcs.rx_ack(now, PEER, &last, Some(&response(1)), Hops::NONE));
    let more = pdcs.next_packet(now, id, &packet);
    let Ok(grant) = more else { panic!("{more:?}") };
    // Once everything is acknowledged the context closes.
    let done = Ack { cack_psn: grant.psn, ..asks };
    assert!(pdcs.rx_ack(now, PEER, &done, None, Hops::NONE));
    assert_eq!(pdcs.next_packet(now, id, &packet), Err(SendError::Closing));
}

#[test]
fn data_of_the_wrong_peer_number_or_mode_is_refused() {
    let mut world = world();
    let (now, pds) = (world.now, outstanding(&world)[0]);
    let target = world.hosts[1].last_from.unwrap();
    let before = world.hosts[1].pdcs.info(target);
    let meta = Arrival { bytes: 1000, ..Arrival::default() };
    let host = &mut world.hosts[1];
    for (peer, forged) in [
        (PeerKey(5), pds),
        (PEER, Request { spdcid: 2, ..pds }),
        (PEER, Request { spdcid: 0, ..pds }),
        (PEER, Request { dest: Dest::Pdc(2), ..pds }),
        (PEER, Request { mode: Mode::Rod, ..pds }),
        (PEER, Request { psn: pds.psn.plus(1 << 20), ..pds }),
        // A PSN at which distances change their sign.
        (PEER, Request { psn: pds.psn.plus((1 << 31) - 2), ..pds }),
        (PEER, Request { psn: pds.psn.plus((1 << 31) - 1), ..pds }),
        (PEER, Request { psn: pds.psn.plus(1 << 31), ..pds }),
    ] {
        let verdict = host.pdcs.rx_request(now, peer, &forged, &meta);
        assert!(matches!(verdict, RxVerdict::Refused(_)), "{forged:?}");
        assert_eq!(host.pdcs.info(target), before);
        assert_eq!(host.pdcs.poll_control(now), None);
    }
    assert!(matches!(host.pdcs.rx_request(now, PEER, &pds, &meta), RxVerdict::Deliver(_)));
}

/// A forged packet gets a response that its supposed sender never clears: the receiver asks again
/// and again for a clear, and the other end clears what it has. No data use the context, and it
/// ends.
#[test]
fn uncleared_responses_do_not_keep_a_context_open() {
    let mut world = World::new(fixed(1 << 20, 1), fixed(1 << 20, 2), Faults::default(), 3);
    world.trace = Some(Vec::new());
    world.send(0, 0..10, 1000);
    assert!(world.settle(Span::millis(5)));
    let last = outstanding(&world).pop().expect("some were sent");
    let pds = Request { psn: last.psn.plus(100), dest: Dest::Pdc(1), ..last };
    let (now, meta) = (world.now, Arrival { bytes: 1000, ..Arrival::default() });
    let pdcs = &mut world.hosts[1].pdcs;
    let RxVerdict::Deliver(forged) = pdcs.rx_request(now, PEER, &pds, &meta) else {
        panic!("it is in the window")
    };
    pdcs.accept(now, forged, Some(response(1)));
    world.pump(1);
    world.send(0, 10..12, 1000);
    world.run(world.now + Span::secs(200));
    assert!(world.hosts.iter().all(|host| host.pdcs.count() == 0), "both ends are gone");
}

#[test]
fn contexts_end_and_others_work_whatever_packets_arrive() {
    let corpus = include_str!("hostile/corpus.txt");
    histories::survive(hostile::MODE, corpus, hostile::play);
}
