//! Endpoints that contact each other for the first time or again, and unverified peers that try to
//! interfere.

use std::net::SocketAddr;

use crate::world::*;
use squall_base::{Instance, Psn, Span};
use squall_engine::*;
use squall_wire::{
    Dest, Extension, Handshake, Mode, NextHeader, Opcode, Packet, Reason, Request, Ses, Stage,
    StdBody, StdRequest, WIRE_VERSION, parse,
};

const UNVERIFIED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), 4000);

fn send_to(w: &mut World, from: usize, peer: PeerId, tag: u64, len: u64) {
    let base = w.hosts[from].memory.put(&vec![tag as u8; len as usize]);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, len),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

fn send(w: &mut World, from: usize, to: usize, tag: u64, len: u64) {
    let peer = w.peer(from, to);
    send_to(w, from, peer, tag, len);
}

fn recv(w: &mut World, at: usize, tag: u64, len: u64) -> u64 {
    let base = w.hosts[at].memory.alloc(len as usize);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, len),
        context: 1000 + tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    base
}

/// Returns the status of the operation with this context at a host, if it has ended.
fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|c| c.context == context).map(|c| c.status)
}

fn counters(w: &World, at: usize) -> Counters {
    *w.hosts[at].engine.counters().0
}

/// Builds a request that opens a context, as an endpoint that listens at `port` would send it.
fn syn(opcode: Opcode, port: u16, tag: u16, number: u16, payload: &[u8]) -> Vec<u8> {
    let pds = Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: false,
        ack_request: true,
        clear_psn_offset: 0,
        psn: Psn(0x2000_0000),
        spdcid: number,
        dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
        ccc: None,
    };
    let ses = StdRequest {
        opcode,
        delivery_complete: false,
        initiator_error: false,
        relative: false,
        header_data_present: false,
        eom: true,
        som: true,
        message_id: 0,
        ri_generation: 0,
        job_id: 1,
        pid_on_fep: 0,
        resource_index: 0,
        buffer_offset: 0,
        initiator: u32::from(tag) << 16 | u32::from(port),
        match_bits: 5,
        body: StdBody::First { header_data: 0 },
        request_length: if opcode == Opcode::Read { 1 << 20 } else { payload.len() as u32 },
        extension: Extension::None,
    };
    let packet = Packet::Request { pds, ses: Ses::Std(ses), payload };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    bytes
}

/// Delivers a packet from `src` to host `to`.
fn strike(w: &mut World, src: SocketAddr, to: usize, bytes: &[u8]) {
    let dst = w.hosts[to].addr;
    w.inject(src, dst, PacketMarks::default(), bytes);
}

/// Returns the numbers of packets and bytes that were sent to `dst` since the tap was opened.
fn sent_to(w: &World, dst: SocketAddr) -> (usize, usize) {
    let seen = w.tap.as_ref().unwrap().iter().filter(|seen| seen.dst.ip() == dst.ip());
    seen.fold((0, 0), |(packets, bytes), seen| (packets + 1, bytes + seen.bytes.len()))
}

#[test]
fn first_contact_costs_one_round_trip_and_later_contexts_none() {
    let mut w = World::new(2, 1, Faults::default());
    recv(&mut w, 1, 5, 10);
    let begin = w.now;
    send(&mut w, 0, 1, 5, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    // One way takes five microseconds: a question, its answer, and the data. One more round trip
    // follows if the data has overtaken the handshake.
    let took = w.now.since(begin);
    assert!(took < Span::micros(15 + 22), "{took:?}");
    // Idle contexts close, and the next context needs no handshake.
    w.run(Span::secs(200), |w| w.hosts.iter().all(|h| h.engine.contexts().count() == 0));
    let met = counters(&w, 1).rx_handshakes;
    recv(&mut w, 1, 6, 10);
    let begin = w.now;
    send(&mut w, 0, 1, 6, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1006).is_some()));
    let took = w.now.since(begin);
    // The data takes one way. The world sees the completion at the next event, the acknowledgement.
    assert!(took < Span::micros(12), "{took:?}");
    assert_eq!(counters(&w, 1).rx_handshakes, met);
    // The other direction needs no handshake either.
    recv(&mut w, 0, 7, 10);
    send(&mut w, 1, 0, 7, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1007).is_some()));
    assert_eq!(counters(&w, 1).rx_handshakes, met);
}

#[test]
fn handshakes_survive_loss_duplication_and_reordering() {
    for seed in 0..200 {
        let faults = Faults { drop: 0.3, duplicate: 0.3, reorder: 0.5, ..Faults::default() };
        let mut w = World::new(3, seed, faults);
        for (n, (from, to)) in [(0, 1), (1, 0), (1, 2), (2, 0)].into_iter().enumerate() {
            recv(&mut w, to, n as u64, 5000);
            send(&mut w, from, to, n as u64, 5000);
        }
        let all = |w: &World| w.hosts.iter().map(|h| h.done.len()).sum::<usize>() == 8;
        assert!(w.run(Span::secs(9), all), "seed {seed}");
        assert!(w.hosts.iter().all(|h| h.done.iter().all(|c| c.status.is_ok())), "seed {seed}");
    }
}

/// Regression test: one packet from any address put its payload into a receive, and the genuine
/// message was lost.
#[test]
fn forged_message_is_not_received() {
    let mut w = World::new(2, 2, Faults::default());
    let to = recv(&mut w, 1, 5, 64);
    let claimed = w.hosts[0].addr;
    let forged = syn(Opcode::TaggedSend, claimed.port(), 0x4242, 77, &[0xba; 64]);
    strike(&mut w, claimed, 1, &forged);
    strike(&mut w, UNVERIFIED, 1, &forged);
    w.run(Span::millis(50), |_| false);
    assert_eq!(end(&w, 1, 1005), None);
    send(&mut w, 0, 1, 5, 64);
    strike(&mut w, claimed, 1, &forged);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    assert_eq!(end(&w, 1, 1005), Some(Ok(())));
    assert_eq!(w.hosts[1].memory.get(to, 64), [5; 64]);
}

/// Regression test: one packet with another instance number ended a job.
#[test]
fn forged_packet_restarts_no_peer() {
    let mut w = World::new(2, 3, Faults::default());
    send(&mut w, 0, 1, 1, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    send(&mut w, 0, 1, 5, 100_000);
    w.run(Span::micros(20), |_| false);
    let (claimed, victim) = (w.hosts[0].addr, w.hosts[1].addr);
    let intro = Handshake {
        stage: Stage::Confirm,
        version: WIRE_VERSION,
        port: claimed.port(),
        reason: Reason::None,
        nonce: 7,
        instance: 0x1234_5678,
        expected: 0,
        cookie: 99,
        job_id: 1,
        capabilities: 0,
        proof: [0; 16],
    };
    let mut out = [0; Handshake::LEN];
    for stage in [Stage::Hello, Stage::Challenge, Stage::Confirm, Stage::Welcome, Stage::Refuse] {
        Handshake { stage, ..intro }.emit(&mut out);
        strike(&mut w, claimed, 1, &out);
        strike(&mut w, victim, 0, &out);
    }
    let forged = syn(Opcode::NoOp, claimed.port(), 0x4242, 1, &[]);
    strike(&mut w, claimed, 1, &forged);
    recv(&mut w, 1, 5, 100_000);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 5).is_some() && end(w, 1, 1005).is_some()));
    assert_eq!((end(&w, 0, 5), end(&w, 1, 1005)), (Some(Ok(())), Some(Ok(()))));
}

/// Regression test: contexts of one address used up the limit, and new peers were neither admitted
/// nor notified.
#[test]
fn flood_of_unverified_peers_denies_no_service() {
    let mut w = World::new(2, 4, Faults::default());
    for number in 1..=u16::MAX {
        let forged = syn(Opcode::NoOp, UNVERIFIED.port(), 1, number, &[]);
        strike(&mut w, UNVERIFIED, 1, &forged);
    }
    assert_eq!(w.hosts[1].engine.contexts().count(), 0);
    assert_eq!(w.hosts[1].engine.peers().find(UNVERIFIED), None, "nothing is kept");
    recv(&mut w, 1, 5, 10);
    send(&mut w, 0, 1, 5, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
}

/// Regression test: a read of 56 bytes was answered by 692 kB to an unverified address.
#[test]
fn unverified_peers_receive_no_more_than_they_send() {
    let mut w = World::new(2, 5, Faults::default());
    let base = w.hosts[1].memory.alloc(1 << 20);
    w.hosts[1].memory.register(5, base, 1 << 20, true, true);
    w.tap = Some(vec![]);
    let mut sent = 0;
    let hello = Handshake {
        stage: Stage::Hello,
        version: WIRE_VERSION,
        port: UNVERIFIED.port(),
        reason: Reason::None,
        nonce: 1,
        instance: 9,
        expected: 0,
        cookie: 0,
        job_id: 1,
        capabilities: 0,
        proof: [0; 16],
    };
    let mut out = [0; Handshake::LEN];
    for n in 0..1000 {
        let read = syn(Opcode::Read, UNVERIFIED.port(), 9, n + 1, &[]);
        Handshake { nonce: n.into(), ..hello }.emit(&mut out);
        for bytes in [&read[..], &out] {
            strike(&mut w, UNVERIFIED, 1, bytes);
            sent += bytes.len();
        }
        w.step();
    }
    w.run(Span::secs(5), |_| false);
    let (packets, bytes) = sent_to(&w, UNVERIFIED);
    assert!(packets >= 1000 && bytes <= sent, "{packets} packets, {bytes} bytes for {sent}");
    assert_eq!(w.hosts[1].engine.peers().find(UNVERIFIED), None);
}

/// Regression test: context numbers and PSNs were predictable from each other, because one small
/// generator produced both and contexts were counted from one.
#[test]
fn values_visible_to_peers_do_not_repeat() {
    let mut seen: Vec<(u16, u32)> = Vec::new();
    for seed in 0..20 {
        let mut w = World::new(3, seed, Faults::default());
        w.tap = Some(vec![]);
        for to in [1, 2] {
            send(&mut w, 0, to, 1, 10);
        }
        w.run(Span::millis(1), |_| false);
        seen.extend(w.tap.as_ref().unwrap().iter().filter_map(|s| match parse(&s.bytes) {
            Ok(Packet::Request { pds, .. }) if !pds.retx => Some((pds.spdcid, pds.psn.0)),
            _ => None,
        }));
    }
    assert!(seen.len() >= 40);
    let distinct = |mut all: Vec<u32>| {
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let numbers = distinct(seen.iter().map(|(number, _)| (*number).into()).collect());
    let psns = distinct(seen.iter().map(|(_, psn)| psn >> 16).collect());
    assert!(numbers >= seen.len() - 2 && psns >= seen.len() - 2, "{seen:x?}");
}

/// The process at an address is replaced. The new one is accepted because it answers at the
/// address.
#[test]
fn instance_at_an_address_may_be_succeeded_by_another() {
    let mut w = World::new(2, 6, Faults::default());
    send(&mut w, 0, 1, 1, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    send(&mut w, 0, 1, 2, 100_000);
    w.run(Span::millis(1), |_| false);
    let port = w.hosts[1].addr.port();
    w.hosts[1].engine = Engine::new(engine_config(4711, port), pdc_config(4711));
    // Either the new process sends first, or the other host does.
    send(&mut w, 1, 0, 3, 10);
    recv(&mut w, 0, 3, 10);
    assert!(w.run(Span::secs(5), |w| end(w, 0, 1003).is_some() && end(w, 0, 2).is_some()));
    assert_eq!(end(&w, 0, 2), Some(Err(OpError::PeerRestarted)));
    assert_eq!(end(&w, 0, 1003), Some(Ok(())));
    recv(&mut w, 1, 4, 10);
    send(&mut w, 0, 1, 4, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1004).is_some()));
}

/// A process that is spawned on the port of one that ended is not a restart of the old one.
#[test]
fn named_instance_is_not_succeeded_by_another() {
    let mut w = World::new(2, 7, Faults::default());
    let instance = |seed| engine_config(seed, 1).instance;
    let (addr, port) = (w.hosts[1].addr, w.hosts[1].addr.port());
    w.hosts[1].engine = Engine::new(engine_config(1, port), pdc_config(1));
    let old = w.hosts[0].engine.peer_at(addr, Some(instance(1)));
    send_to(&mut w, 0, old, 1, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    w.hosts[1].engine = Engine::new(engine_config(2, port), pdc_config(2));
    let new = w.hosts[0].engine.peer_at(addr, Some(instance(2)));
    assert_ne!(old, new);
    send_to(&mut w, 0, new, 2, 10);
    recv(&mut w, 1, 2, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 2).is_some() && end(w, 1, 1002).is_some()));
    assert_eq!(end(&w, 0, 2), Some(Ok(())), "the new instance is a peer of its own");
    send_to(&mut w, 0, old, 3, 10);
    assert!(w.run(Span::secs(30), |w| end(w, 0, 3).is_some()));
    assert!(end(&w, 0, 3).unwrap().is_err(), "the old instance is gone");
    // No such instance ever existed.
    let nobody = w.hosts[0].engine.peer_at(addr, Instance::new(99));
    send_to(&mut w, 0, nobody, 4, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 4).is_some()));
    assert_eq!(end(&w, 0, 4), Some(Err(OpError::OtherInstance { found: instance(2) })));
}

#[test]
fn peers_of_other_jobs_or_versions_get_an_error() {
    let mut w = World::with(2, 8, Faults::default(), |config, _| {
        config.job_id = u32::from(config.port);
    });
    send(&mut w, 0, 1, 1, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    assert_eq!(end(&w, 0, 1), Some(Err(OpError::Remote(ReturnCode::BadJobId))));
    // Builds what an endpoint with another wire format would answer to a question.
    let mut w = World::new(2, 9, Faults::default());
    w.hosts[1].dead = true;
    w.tap = Some(vec![]);
    send(&mut w, 0, 1, 1, 10);
    w.run(Span::micros(10), |_| false);
    let asked = match parse(&w.tap.as_ref().unwrap()[0].bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).unwrap().unwrap(),
        other => panic!("{other:?}"),
    };
    let (theirs, other) = (WIRE_VERSION + 1, w.hosts[1].addr);
    let refusal = Handshake {
        stage: Stage::Refuse,
        reason: Reason::Version,
        version: theirs,
        port: w.hosts[1].addr.port(),
        instance: 77,
        ..asked
    };
    let mut out = [0; Handshake::LEN];
    Handshake { nonce: asked.nonce ^ 1, ..refusal }.emit(&mut out);
    strike(&mut w, other, 0, &out);
    assert_eq!(end(&w, 0, 1), None, "the answer came from another address");
    refusal.emit(&mut out);
    strike(&mut w, other, 0, &out);
    w.run(Span::millis(1), |_| false);
    assert_eq!(end(&w, 0, 1), Some(Err(OpError::OtherVersion { theirs })));
    // The reverse case: the answer of this endpoint to a question in another wire format.
    w.tap = Some(vec![]);
    Handshake { stage: Stage::Hello, version: theirs, port: UNVERIFIED.port(), ..asked }
        .emit(&mut out);
    strike(&mut w, UNVERIFIED, 0, &out);
    w.run(Span::millis(1), |_| false);
    let answers = w.tap.as_ref().unwrap().iter().filter(|seen| seen.dst == UNVERIFIED);
    let refusals = answers.filter(|seen| match parse(&seen.bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values)
            .is_ok_and(|intro| intro.is_some_and(|intro| intro.reason == Reason::Version)),
        _ => false,
    });
    assert_eq!(refusals.count(), 1);
}

#[test]
fn absent_peer_fails_early_if_its_host_reports_it() {
    for (refused, longest) in [(true, Span::secs(5)), (false, Span::secs(12))] {
        let mut w = World::new(2, 10, Faults::default());
        w.hosts[1].dead = true;
        send(&mut w, 0, 1, 1, 10);
        w.run(Span::millis(10), |_| false);
        if refused {
            let trouble = DestinationError { errno: 111, peer: w.hosts[1].addr };
            w.hosts[0].engine.handle_destination_error(w.now, trouble);
        }
        let begin = w.now;
        assert!(w.run(Span::secs(60), |w| end(w, 0, 1).is_some()));
        assert_eq!(end(&w, 0, 1), Some(Err(OpError::Unreachable)));
        assert!(w.now.since(begin) < longest, "{:?}", w.now.since(begin));
    }
}

/// The case of a switch that failed before a job began and to which all source ports of the two
/// hosts hash. Packets on other ports must get through before the peer is given up.
#[test]
fn handshake_succeeds_if_all_paths_of_the_first_set_are_broken() {
    for seed in 0..16 {
        let mut w = World::new(2, seed, Faults { first_set: true, ..Faults::default() });
        recv(&mut w, 1, 1, 100);
        send(&mut w, 0, 1, 1, 100);
        let ended = w.run(DEADLINE, |w| end(w, 0, 1).is_some() && end(w, 1, 1001).is_some());
        assert!(ended, "seed {seed}: no message arrived");
        assert_eq!((end(&w, 0, 1), end(&w, 1, 1001)), (Some(Ok(())), Some(Ok(()))), "seed {seed}");
    }
}

/// Regression test: where one of two spines was dead before a job began, some pairs of endpoints
/// needed seconds for their first message, because each further try waited twice as long.
#[test]
fn first_contact_takes_little_time_if_half_of_the_network_is_dead() {
    let mut waits: Vec<Span> = (0..400)
        .map(|seed| {
            let dead_spine = Some(seed);
            let mut w = World::new(2, seed.into(), Faults { dead_spine, ..Faults::default() });
            recv(&mut w, 1, 1, 100);
            let begin = w.now;
            send(&mut w, 0, 1, 1, 100);
            let ended = w.run(DEADLINE, |w| end(w, 0, 1).is_some() && end(w, 1, 1001).is_some());
            assert!(ended, "seed {seed}: no message arrived");
            w.now.since(begin)
        })
        .collect();
    waits.sort_unstable();
    assert!(waits[392] < Span::millis(100), "one of 50 first messages takes {:?}", waits[392]);
    assert!(waits[399] < Span::millis(500), "a first message takes {:?}", waits[399]);
}
