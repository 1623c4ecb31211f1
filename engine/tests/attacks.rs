//! Single packets by which an attacker on the path, or a broken peer, could do harm.

use crate::world::*;
use squall_base::{Psn, Span};
use squall_engine::*;
use squall_wire::{
    Dest, Extension, Opcode, Packet, Rendezvous, Request, Ses, StdBody, StdRequest, Telemetry,
    TelemetryKind, TelemetryRecord, parse,
};

fn send(w: &mut World, from: usize, tag: u64, len: u64) {
    let peer = w.peer(from, 1 - from);
    let base = w.hosts[from].memory.put(&content(0, len));
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

fn recv(w: &mut World, at: usize, tag: u64, len: u64) -> u64 {
    let base = w.hosts[at].memory.alloc(len as usize);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, len),
        context: tag,
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

/// Creates two hosts of which host 0 has sent a message. Returns the last request that it sent.
fn acquainted(seed: u64) -> (World, Request, StdRequest) {
    acquainted_in(World::new(2, seed, Faults::default()))
}

fn acquainted_in(mut w: World) -> (World, Request, StdRequest) {
    w.tap = Some(vec![]);
    recv(&mut w, 1, 1, 10);
    send(&mut w, 0, 1, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some() && end(w, 1, 1).is_some()));
    let (pds, ses) = last_request(&w);
    // The peer's number of the context is known by now.
    let number = w.tap.as_ref().unwrap().iter().find_map(|seen| match parse(&seen.bytes) {
        Ok(Packet::Ack { pds, .. }) => Some(pds.spdcid),
        _ => None,
    });
    (w, Request { dest: Dest::Pdc(number.unwrap()), ..pds }, ses)
}

fn last_request(w: &World) -> (Request, StdRequest) {
    let tap = w.tap.as_ref().unwrap();
    let last = tap.iter().rev().find_map(|seen| match parse(&seen.bytes) {
        Ok(Packet::Request { pds, ses: Ses::Std(ses), .. }) => Some((pds, ses)),
        _ => None,
    });
    last.unwrap()
}

/// Delivers a packet to host 1 as if host 0 had sent it.
fn forge(w: &mut World, pds: Request, ses: StdRequest, payload: &[u8]) {
    let packet = Packet::Request { pds, ses: Ses::Std(ses), payload };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    assert!(parse(&bytes).is_ok(), "it is well-formed: {ses:?}");
    let (src, dst) = (w.hosts[0].addr, w.hosts[1].addr);
    w.inject(src, dst, PacketMarks::default(), &bytes);
}

/// Telemetry that is malformed, or precedes a packet of the wrong kind, is counted and dropped
/// together with that packet. Valid telemetry that was not requested is ignored.
#[test]
fn malformed_telemetry_is_counted_and_dropped() {
    let (mut w, pds, ses) = acquainted(11);
    let (pds, ses) = next(&pds, &ses, 10);
    let ses = StdRequest { eom: true, ..ses };
    let packet = Packet::Request { pds, ses: Ses::Std(ses), payload: &[7; 10] };
    let mut good = vec![0; packet.len()];
    packet.emit(&mut good);
    let (src, dst) = (w.hosts[0].addr, w.hosts[1].addr);
    let malformed = |w: &World| w.hosts[1].engine.counters().0.rx_malformed;
    let behind = |head: [u8; 4], records: usize| {
        [&head[..], &vec![1; records * TelemetryRecord::LEN], &good].concat()
    };
    let (own, echo) = (TelemetryKind::Own, TelemetryKind::Echo);
    let base = recv(&mut w, 1, 1, 10);
    let bad = [
        behind([31 << 3 | 5, 0, 0, 0], 0),
        behind([31 << 3, 9, 0, 0], 9),
        behind([31 << 3, 0, 1, 0], 0),
        behind(Telemetry::head(echo, 1), 1),
        Telemetry::head(own, 8).to_vec(),
        Telemetry::head(own, 0).to_vec(),
        vec![31 << 3],
    ];
    for (count, bytes) in (1..).zip(&bad) {
        w.inject(src, dst, PacketMarks::default(), bytes);
        assert_eq!(malformed(&w), count, "{:x?}", &bytes[..bytes.len().min(8)]);
    }
    assert_eq!(w.hosts[1].done.iter().filter(|done| done.context == 1).count(), 1);
    w.inject(src, dst, PacketMarks::default(), &behind(Telemetry::head(own, 2), 2));
    assert!(
        w.run(Span::secs(1), |w| w.hosts[1].done.iter().filter(|d| d.context == 1).count() == 2)
    );
    assert_eq!(malformed(&w), bad.len() as u64);
    assert_eq!(w.hosts[1].memory.get(base, 10), [7; 10]);
}

/// Returns the headers of the packet after `pds`, of the message after `ses`, which is longer than
/// the packet.
fn next(pds: &Request, ses: &StdRequest, length: u32) -> (Request, StdRequest) {
    let psn = Psn(pds.psn.0.wrapping_add(1));
    let pds = Request { psn, clear_psn_offset: -1, ..*pds };
    let ses = StdRequest {
        message_id: ses.message_id.wrapping_add(1),
        request_length: length,
        eom: false,
        ..*ses
    };
    (pds, ses)
}

/// Checks that both hosts can exchange a message each way and that no state is left.
fn all_is_well(w: &mut World) {
    for at in [0, 1] {
        send(w, at, 500, 40_000);
        recv(w, 1 - at, 501, 40_000);
        recv(w, 1 - at, 500, 40_000);
        send(w, at, 501, 3_000);
    }
    let over = |w: &World| {
        let done =
            |at: usize, tag| w.hosts[at].done.iter().filter(|c| c.context == tag).count() == 2;
        (0..2).all(|at| done(at, 500) && done(at, 501))
    };
    assert!(w.run(Span::secs(5), over), "works again");
    for host in &w.hosts {
        let after = host.done.iter().filter(|c| matches!(c.context, 500 | 501));
        assert!(after.clone().all(|c| c.status.is_ok()));
        assert_eq!(host.engine.counters().0.unexpected_bytes, 0);
    }
}

/// A forged packet makes the next message look like the continuation of another one, which
/// contradicts its header.
#[test]
fn contradictory_packet_ends_the_context_at_both_ends() {
    for waiting in [false, true] {
        let (mut w, mut pds, mut ses) = acquainted(1);
        if waiting {
            // The rendezvous has no receive, so it keeps its context open and asks for signs of
            // life.
            send(&mut w, 0, 9, 100_000);
            w.run(Span::millis(5), |_| false);
            let last = last_request(&w);
            pds.psn = last.0.psn;
            (ses.message_id, ses.match_bits) = (last.1.message_id, 77);
        }
        let (pds, ses) = next(&pds, &StdRequest { match_bits: 77, ..ses }, 5000);
        forge(&mut w, pds, ses, &[0xee; 100]);
        assert!(w.hosts[1].engine.counters().0.unexpected_bytes > 0);
        send(&mut w, 0, 6, 3000);
        assert!(w.run(Span::secs(3), |w| end(w, 0, 6).is_some()), "waiting: {waiting}");
        assert_eq!(end(&w, 0, 6), Some(Err(OpError::Closed)));
        if waiting {
            assert_eq!(end(&w, 0, 9), Some(Err(OpError::Closed)));
        }
        // A message whose header was received reports to its receive that the rest will not arrive.
        recv(&mut w, 1, 77, 5000);
        w.run(Span::millis(1), |_| false);
        assert_eq!(end(&w, 1, 77), Some(Err(OpError::Closed)));
        if waiting {
            recv(&mut w, 1, 9, 100_000);
            w.run(Span::millis(1), |_| false);
        }
        all_is_well(&mut w);
    }
}

/// A packet on a known context is dropped if it names another instance or port than the verified
/// one.
#[test]
fn request_of_another_instance_changes_nothing() {
    for bit in [0, 1 << 3, 1 << 16, 1 << 31] {
        let (mut w, pds, ses) = acquainted(4);
        let (pds, ses) = next(&pds, &ses, 10);
        let base = recv(&mut w, 1, 1, 10);
        let foreign = w.hosts[1].engine.counters().0.rx_foreign;
        let ses = StdRequest { eom: true, initiator: ses.initiator ^ bit, ..ses };
        forge(&mut w, pds, ses, &[7; 10]);
        w.run(Span::millis(1), |_| false);
        let taken = bit == 0;
        let received = w.hosts[1].done.iter().filter(|c| c.context == 1).count();
        assert_eq!(received, 1 + usize::from(taken), "bit {bit:x}");
        assert_eq!(w.hosts[1].memory.get(base, 10), [if taken { 7 } else { 0 }; 10]);
        let counted = w.hosts[1].engine.counters().0.rx_foreign - foreign;
        assert_eq!(counted, u64::from(!taken));
        if !taken {
            all_is_well(&mut w);
        }
    }
}

/// A sender never sends the first packet of a message twice under different PSNs.
#[test]
fn repeated_first_packet_is_refused() {
    let (mut w, pds, ses) = acquainted(2);
    let (pds, ses) = next(&pds, &ses, 5000);
    forge(&mut w, pds, ses, &[1; 100]);
    let (again, _) = next(&pds, &ses, 5000);
    forge(&mut w, again, ses, &[2; 100]);
    recv(&mut w, 1, 1, 5000);
    w.run(Span::millis(1), |_| false);
    let ended = w.hosts[1].done.iter().filter(|c| c.context == 1 && c.status.is_err()).count();
    assert_eq!(ended, 1, "the receive that matched the message ends");
    // The sender notices the end of the context by its next message.
    send(&mut w, 0, 6, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 6) == Some(Err(OpError::Closed))));
    all_is_well(&mut w);
}

#[test]
fn end_of_contradictory_contexts_is_sent_again() {
    let (mut w, pds, ses) = acquainted(3);
    let (pds, ses) = next(&pds, &ses, 5000);
    forge(&mut w, pds, ses, &[1; 100]);
    // All packets of the receiver are lost for a while.
    w.mute = Some(|src, _| src.ip().to_string() == "10.0.0.2");
    send(&mut w, 0, 6, 3000);
    w.run(Span::millis(500), |_| false);
    assert_eq!(end(&w, 0, 6), None);
    w.mute = None;
    assert!(w.run(Span::secs(3), |w| end(w, 0, 6).is_some()));
    assert_eq!(end(&w, 0, 6), Some(Err(OpError::Closed)), "no peer is taken for restarted");
    recv(&mut w, 1, 1, 5000);
    all_is_well(&mut w);
}

/// No sender will send the rest, although the peer that seems to be the sender lives and uses the
/// context.
#[test]
fn incomplete_message_unknown_to_its_sender_ends() {
    for forged_ahead in [0, 20] {
        let (mut w, pds, ses) = acquainted(5);
        let region = w.hosts[1].memory.put(&content(0, 100));
        w.hosts[1].memory.register(7, region, 100, true, false);
        recv(&mut w, 1, 77, 5000);
        let (pds, ses) = next(&pds, &ses, 5000);
        // The PSN is so far ahead that no genuine packet contradicts it.
        let psn = Psn(pds.psn.0.wrapping_add(1000));
        let message_id = ses.message_id.wrapping_add(forged_ahead);
        let ses = StdRequest { match_bits: 77, message_id, ..ses };
        forge(&mut w, Request { psn, ..pds }, ses, &[0xee; 100]);
        let held = w.hosts[1].engine.counters().0.unexpected_bytes > 0;
        assert_eq!(held, forged_ahead > 0, "the message waits for its turn, or is in the buffer");
        for round in 0..25 {
            let base = w.hosts[0].memory.alloc(100);
            let remote = RemoteIov::One(RemoteSeg { address: 0, len: 100, key: 7 });
            let (peer, buf) = (w.peer(0, 1), Buf::new(base, 100));
            let op = RmaOp { peer, buf, remote, data: None, context: 1000 + round };
            w.submit(0, op.read()).unwrap();
            w.run(Span::secs(1), |_| false);
        }
        if forged_ahead == 0 {
            assert_eq!(end(&w, 1, 77), Some(Err(OpError::Closed)));
        }
        assert_eq!(w.hosts[1].engine.counters().0.unexpected_bytes, 0);
        w.run(Span::secs(2), |_| false);
        all_is_well(&mut w);
    }
}

/// Offsets from the peer are added to lengths, which must not overflow.
#[test]
fn offer_beyond_the_address_space_is_refused() {
    for (room, offset) in [(50_000, u64::MAX), (50_000, u64::MAX - 40_000), (0, u64::MAX)] {
        let (mut w, pds, ses) = acquainted(4);
        recv(&mut w, 1, 7, room);
        let (pds, ses) = next(&pds, &ses, 50_000);
        let offer = Rendezvous {
            eager_length: 100,
            ri_generation: 0,
            pid_on_fep: 0,
            resource_index: 1,
            read_offset: offset,
            memory_key: 3,
        };
        let ses = StdRequest {
            opcode: Opcode::RendezvousTsend,
            match_bits: 7,
            eom: true,
            body: StdBody::First { header_data: 0 },
            extension: Extension::Rendezvous(offer),
            ..ses
        };
        forge(&mut w, pds, ses, &[1; 100]);
        w.run(Span::millis(1), |_| false);
        assert_eq!(w.hosts[1].engine.counters().0.rx_inconsistent, 1);
        let now = w.now;
        assert!(w.hosts[1].engine.cancel(now, 7), "no receive has matched the message");
    }
}

/// A message that arrives in one packet finds no room and is deferred. It matches a receive and
/// waits for an offer that will never come, because the supposed sender does not know the message.
#[test]
fn deferred_message_that_is_never_offered_ends() {
    let cramped = World::with(2, 6, Faults::default(), |config, _| config.unexpected_bytes = 0);
    let (mut w, pds, ses) = acquainted_in(cramped);
    let (pds, ses) = next(&pds, &ses, 100);
    forge(&mut w, pds, StdRequest { match_bits: 77, eom: true, ..ses }, &[0xee; 100]);
    recv(&mut w, 1, 77, 5000);
    assert_eq!(w.hosts[1].engine.counters().0.rx_deferred, 1);
    w.run(Span::secs(25), |_| false);
    assert_eq!(end(&w, 1, 77), Some(Err(OpError::Closed)));
    // The sender notices the end of the context by its next message.
    send(&mut w, 0, 6, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 6) == Some(Err(OpError::Closed))));
    all_is_well(&mut w);
}

/// A receive ends when the offered message cannot be read although packets of the message are
/// missing. Later messages must not wait for those packets for ever.
#[test]
fn incomplete_message_behind_an_unreadable_one_ends() {
    let (mut w, pds, ses) = acquainted(7);
    recv(&mut w, 1, 76, 50_000);
    recv(&mut w, 1, 77, 5000);
    let (pds, ses) = next(&pds, &ses, 50_000);
    let offer = Rendezvous {
        eager_length: 200,
        ri_generation: 0,
        pid_on_fep: 0,
        resource_index: 1,
        read_offset: 0,
        memory_key: 3,
    };
    let half = StdRequest {
        opcode: Opcode::RendezvousTsend,
        match_bits: 76,
        body: StdBody::First { header_data: 0 },
        extension: Extension::Rendezvous(offer),
        ..ses
    };
    forge(&mut w, pds, half, &[1; 100]);
    w.run(Span::millis(100), |_| false);
    assert!(matches!(end(&w, 1, 76), Some(Err(OpError::Remote(_)))), "{:?}", end(&w, 1, 76));
    let (pds, ses) = next(&pds, &ses, 5000);
    // The PSN is so far ahead that no genuine packet contradicts it.
    let psn = Psn(pds.psn.0.wrapping_add(1000));
    forge(&mut w, Request { psn, ..pds }, StdRequest { match_bits: 77, ..ses }, &[0xee; 100]);
    w.run(Span::secs(25), |_| false);
    assert_eq!(end(&w, 1, 77), Some(Err(OpError::Closed)));
    // The sender notices the end of the context by its next message.
    send(&mut w, 0, 6, 10);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 6) == Some(Err(OpError::Closed))));
    all_is_well(&mut w);
}
