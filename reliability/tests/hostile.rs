//! Forged, corrupt and random packets: counted, dropped, and nothing changes; and nothing panics.

mod link;

use link::{Faults, PEER, Wire, World, fixed, named, response};
use proptest::prelude::*;
use squall_reliability::base::{Psn, Span};
use squall_reliability::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Ccc, Control, ControlKind, Dest, Mode, Nack, NackCode,
    NextHeader, NsccState, Request,
};
use squall_reliability::{Arrival, Blocked, Config, NewPacket, PdcInfo, PeerKey, RxVerdict, cc};

/// A world with a connected context: some packets acknowledged, twenty on their way, cut off.
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

/// The packets host 0 has outstanding.
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
        // Of no context, of another peer's number.
        ack(first, 1, 2),
        ack(first, 1, 0),
        ack(first, 2, 1),
        // So old that it cannot be late.
        ack(first.minus(10_000), 1, 1),
    ];
    for ack in forged {
        assert!(!world.hosts[0].pdcs.rx_ack(now, PEER, &ack, None), "{ack:?}");
        assert_eq!(info(&world), before, "{ack:?}");
    }
    // The right packet from the wrong peer.
    assert!(!world.hosts[0].pdcs.rx_ack(now, PeerKey(5), &ack(first, 1, 1), None));
    assert_eq!(info(&world), before);
    assert_eq!(world.hosts[0].pdcs.poll_event(), None);
    let counters = world.hosts[0].pdcs.counters();
    assert_eq!(counters.rx_bad_ack, 8);
    assert_eq!(counters.rx_unknown_context, 2);
    assert_eq!(counters.rx_mismatch, 2);
    assert_eq!(counters.rx_stale, 1);
    // A true one does.
    assert!(world.hosts[0].pdcs.rx_ack(now, PEER, &ack(last, 1, 1), None));
    assert_eq!(info(&world).outstanding, 0);
}

#[test]
fn a_response_to_what_is_not_outstanding_is_ignored() {
    let mut world = world();
    let now = world.now;
    let first = outstanding(&world)[0].psn;
    let late = Ack { next: NextHeader::Response, ..ack(first.minus(5), 1, 1) };
    let before = info(&world);
    world.hosts[0].pdcs.rx_ack(now, PEER, &late, Some(&response(1)));
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
            // About a retransmission that never was.
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
        // A close at the wrong place in the sequence.
        (ControlKind::CloseCommand, next.plus(1), 1, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next.minus(1), 1, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next, 2, Dest::Pdc(1)),
        (ControlKind::CloseCommand, next, 1, Dest::Pdc(2)),
        (ControlKind::CloseCommand, next, 1, syn),
        // Only targets ask.
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
    // The initiator does not take orders to close.
    let id = world.hosts[0].id.unwrap();
    let close = control(ControlKind::CloseCommand, next, 1, Dest::Pdc(1));
    assert!(!world.hosts[0].pdcs.rx_control(now, PEER, &close));
    assert!(world.hosts[0].pdcs.info(id).is_some());
}

/// Whoever closed now could not send, on the same context, what an answer on its way asks for.
#[test]
fn a_request_to_close_waits_for_what_is_on_its_way() {
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
    assert!(pdcs.rx_ack(now, PEER, &asks, None));
    // The last one is answered: the engine looks at the answer first.
    let last = Ack { next: NextHeader::Response, ..asks };
    let last = Ack { cack_psn: sent[19].psn, ..last };
    assert!(pdcs.rx_ack(now, PEER, &last, Some(&response(1))));
    let more = pdcs.next_packet(now, id, &packet);
    let Ok(grant) = more else { panic!("{more:?}") };
    // When all is acknowledged it closes.
    let done = Ack { cack_psn: grant.psn, ..asks };
    assert!(pdcs.rx_ack(now, PEER, &done, None));
    assert_eq!(pdcs.next_packet(now, id, &packet), Err(Blocked::Closing));
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
        // Where distances change their sign.
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

#[derive(Clone, Copy, Debug)]
enum Any {
    Request(Request, Arrival, u8),
    Ack(Ack, bool),
    Nack(Nack),
    Control(Control),
    Pass(u32),
    Send(u32),
    Close,
}

/// PSNs near the real ones, as a distance.
fn near() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..70, 2 => (0u32..5000).prop_map(u32::wrapping_neg), 1 => any::<u32>()]
}

fn dest() -> impl Strategy<Value = Dest> {
    prop_oneof![
        4 => (1u16..4).prop_map(Dest::Pdc),
        1 => (0u16..4096).prop_map(|psn_offset| Dest::Syn { use_rsv_pdc: false, psn_offset }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    (near(), 0u16..4, dest(), any::<(bool, bool)>(), -5000i16..50, any::<Option<u32>>()).prop_map(
        |(psn, spdcid, dest, (retx, ack_request), clear_psn_offset, target)| Request {
            mode: Mode::Rud,
            next: NextHeader::RequestStd,
            retx,
            ack_request,
            clear_psn_offset,
            psn: Psn(psn),
            spdcid,
            dest,
            ccc: target.map(|target| Ccc { ccc_id: 0, credit_target: target & 0xff_ffff }),
        },
    )
}

fn any_packet() -> impl Strategy<Value = Any> {
    let meta = (any::<bool>(), 0u32..10).prop_map(|(ce, trimmed)| Arrival {
        ce,
        trimmed: trimmed == 0,
        last_hop: false,
        bytes: 500,
    });
    let ack = (
        near(),
        (0u16..4, 1u16..4),
        prop_oneof![(-80i16..80).boxed(), any::<i16>().boxed()],
        prop_oneof![(-80i16..80).boxed(), any::<i16>().boxed()],
        prop_oneof![Just(0u64).boxed(), (0u64..256).boxed(), any::<u64>().boxed()],
        any::<(bool, bool, bool, u8)>(),
        any::<(u16, u8, u32, u16)>(),
        0u8..3,
    )
        .prop_map(|(psn, ids, about, base, map, (ce, retx, probe, mpr), state, request)| Ack {
            next: NextHeader::None,
            ce,
            retx,
            probe,
            request: [AckRequest::None, AckRequest::Clear, AckRequest::Close][usize::from(request)],
            ack_psn_offset: about,
            cack_psn: Psn(psn),
            spdcid: ids.0,
            dpdcid: ids.1,
            ext: AckExt::Cc(AckCc {
                mpr,
                sack_psn_offset: base,
                sack_bitmap: map,
                state: if state.1 > 0x7f {
                    CcState::Credit { credit: state.2 & 0xff_ffff, ooo_count: state.3 }
                } else {
                    CcState::Nscc(NsccState {
                        service_time: state.0,
                        restore_cwnd: probe,
                        rcv_cwnd_pend: state.1,
                        rcvd_bytes: state.2 & 0xff_ffff,
                        ooo_count: state.3,
                    })
                },
            }),
        })
        // Some without any state: plain ones, and congestion notifications.
        .prop_flat_map(|ack| {
            let bare = Ack { ext: AckExt::None, ..ack };
            prop_oneof![7 => Just(ack), 1 => Just(bare)]
        });
    let nack = (near(), 0u16..4, 1u16..4, any::<u8>(), any::<bool>(), any::<u32>())
        .prop_filter_map("a NACK code", |(psn, spdcid, dpdcid, code, retx, payload)| {
            Some(Nack {
                ce: false,
                retx,
                rudi: false,
                code: NackCode::from_u8(code % 28)?,
                vendor_code: 0,
                psn: Psn(psn),
                spdcid,
                dpdcid,
                payload,
                ccx: None,
            })
        });
    let control = (near(), 0u16..4, dest(), 0u8..10, any::<u16>(), near()).prop_filter_map(
        "a kind",
        |(psn, spdcid, dest, kind, probe_opaque, payload)| {
            Some(Control {
                kind: ControlKind::from_u8(kind)?,
                isrod: false,
                retx: false,
                ack_request: true,
                probe_opaque,
                psn: Psn(psn),
                spdcid,
                dest,
                payload,
            })
        },
    );
    prop_oneof![
        4 => (request(), meta, any::<u8>()).prop_map(|(pds, meta, n)| Any::Request(pds, meta, n)),
        4 => (ack, any::<bool>()).prop_map(|(ack, response)| Any::Ack(ack, response)),
        2 => nack.prop_map(Any::Nack),
        2 => control.prop_map(Any::Control),
        2 => (0u32..10_000_000).prop_map(Any::Pass),
        2 => (1u32..60).prop_map(Any::Send),
        1 => Just(Any::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Random packets aimed at living contexts, from either end: no panic, no arithmetic overflow
    /// (tests check it), and nothing is outstanding for ever.
    #[test]
    fn nothing_panics(
        seed in any::<u64>(),
        (sender, paths, scope) in any::<(u8, u8, u8)>(),
        packets in prop::collection::vec((0usize..2, any_packet()), 1..200),
    ) {
        let config = |seed| {
            let pick = |names: &[(&'static str, _)], n: u8| names[usize::from(n) % names.len()].0;
            let sender = pick(cc::SenderConfig::NAMES, sender);
            let config = named(sender, pick(cc::PathsConfig::NAMES, paths), seed);
            let scope = if config.credits() { "flow" } else { pick(cc::Scope::NAMES, scope) };
            Config { scope: scope.parse().unwrap(), ..config }
        };
        let mut world = World::new(config(seed), config(2), Faults::default(), 3);
        world.strict = false;
        world.hosts[1].echo = Some(100);
        world.send(0, 0..40, 1000);
        world.run(world.now + Span::micros(35));
        world.trace = Some(Vec::new());
        let start = seed_start(seed);
        for (host, packet) in packets {
            let now = world.now;
            let shift = |psn: Psn| start.plus(psn.0);
            match packet {
                Any::Request(pds, meta, n) => {
                    let pds = Request { psn: shift(pds.psn), ..pds };
                    let pdcs = &mut world.hosts[host].pdcs;
                    if let RxVerdict::Deliver(delivery) =
                        pdcs.rx_request(now, PEER, &pds, &meta)
                    {
                        match n {
                            // Rarely: it ends the context.
                            255 => pdcs.drop_malformed(delivery),
                            _ if n % 3 == 0 => pdcs.refuse(now, delivery, NackCode::NoResource),
                            _ if n % 3 == 1 => pdcs.accept(now, delivery, Some(response(7))),
                            _ => pdcs.accept(now, delivery, None),
                        }
                    }
                }
                Any::Ack(ack, answered) => {
                    let ack = Ack { cack_psn: shift(ack.cack_psn), ..ack };
                    let response = answered.then(|| response(1));
                    world.hosts[host].pdcs.rx_ack(now, PEER, &ack, response.as_ref());
                }
                Any::Nack(nack) => {
                    let nack = Nack { psn: shift(nack.psn), ..nack };
                    world.hosts[host].pdcs.rx_nack(now, PEER, &nack);
                }
                Any::Control(control) => {
                    let payload = shift(Psn(control.payload)).0;
                    let control = Control { psn: shift(control.psn), payload, ..control };
                    world.hosts[host].pdcs.rx_control(now, PEER, &control);
                }
                Any::Pass(ns) => {
                    world.run(now + Span::nanos(u64::from(ns)));
                }
                Any::Send(count) => {
                    let from = 1000 + u32::try_from(world.trace.as_ref().unwrap().len()).unwrap();
                    world.send(host, from..from + count, 800);
                }
                Any::Close => {
                    if let Some(id) = world.hosts[host].id {
                        world.hosts[host].pdcs.close(now, id);
                    }
                }
            }
            world.pump(host);
            for host in &world.hosts {
                if let Some(info) = host.id.and_then(|id| host.pdcs.info(id)) {
                    prop_assert!(info.in_flight <= 1 << 28);
                    prop_assert!(info.outstanding <= 2048);
                }
            }
        }
        // In peace whatever was sent is acknowledged, or its context fails.
        world.run(world.now + Span::secs(120));
        for host in &world.hosts {
            let info = host.id.and_then(|id| host.pdcs.info(id));
            prop_assert!(info.is_none_or(|info| info.outstanding == 0), "{info:?}");
        }
    }
}

/// The start PSN of the first context an endpoint of this seed opens.
fn seed_start(seed: u64) -> Psn {
    let mut pdcs = squall_reliability::Pdcs::new(fixed(1 << 18, seed));
    let id = pdcs.open(squall_reliability::base::Time(0), PEER).unwrap();
    let packet =
        squall_reliability::NewPacket { desc: 0, bytes: 1, last: false, prompt: false, backlog: 0 };
    pdcs.next_packet(squall_reliability::base::Time(0), id, &packet).unwrap().psn
}
