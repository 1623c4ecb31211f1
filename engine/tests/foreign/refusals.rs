//! Errors between foreign peers: other jobs, packets lost on ordered contexts (ROD), operations that
//! foreign peers do not support, and peers that do not answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use squall_base::Span;
use squall_cc::PathsConfig;
use squall_engine::{
    Action, Buf, ForeignWire, MatchSpace, NoChannels, OpError, Operation, Options, ReturnCode,
    SubmitError,
};
use squall_wire::{Ack, NackCode, Packet, Response, Ses, parse};

use super::endpoint::Endpoint;
use super::golden::{TAG, golden, reference};
use crate::world::DEADLINE;

/// Returns the response on the only packet that left.
fn response(endpoint: &mut Endpoint) -> Response {
    acknowledgement(endpoint).1
}

/// Returns the only packet that left: an ACK with its response.
fn acknowledgement(endpoint: &mut Endpoint) -> (Ack, Response) {
    let sent = endpoint.take_sent();
    let [(_, ack)] = &sent[..] else { panic!("{sent:02x?}") };
    match parse(ack) {
        Ok(Packet::Ack { pds, ses: Ses::Response(response), .. }) => (pds, response),
        other => panic!("{other:?} has no response"),
    }
}

#[test]
fn requests_of_another_job_are_refused() {
    let mut endpoint = Endpoint::new(1, ForeignWire::standard(1024));
    let buffer = endpoint.receive(Some(TAG), 100);
    let mut packet = golden("ref_syn_tagged");
    packet[19] = 9;
    endpoint.feed(reference(), &packet);
    assert_eq!(response(&mut endpoint).return_code, ReturnCode::BadJobId);
    assert_eq!(endpoint.engine.counters().0.rx_misaddressed, 1);
    assert!(endpoint.completion(buffer).is_none());
}

/// The reference provider waits without end for a response to a packet that an ACK without one acknowledged.
#[test]
fn no_acknowledgement_of_data_lacks_a_response() {
    let mut endpoint = Endpoint::new(6, ForeignWire::standard(1024));
    let buffer = endpoint.receive(Some(TAG), 100);
    endpoint.feed(reference(), &golden("ref_syn_tagged"));
    let (pds, taken) = acknowledgement(&mut endpoint);
    assert_eq!(taken.return_code, ReturnCode::Ok);
    assert!(endpoint.completion(buffer).is_some());
    let mut packet = golden("ref_syn_tagged");
    packet[4..8].copy_from_slice(&(pds.cack_psn.0 + 1).to_be_bytes());
    packet[11] = 1;
    packet[19] = 9;
    endpoint.feed(reference(), &packet);
    assert_eq!(response(&mut endpoint).return_code, ReturnCode::BadJobId);
    // The response was lost.
    packet[1] |= 0x10;
    for _ in 0..2 {
        endpoint.pass(Span::millis(5));
        endpoint.feed(reference(), &packet);
        let (again, refusal) = acknowledgement(&mut endpoint);
        assert_eq!(refusal.return_code, ReturnCode::BadJobId);
        assert_eq!(again.cack_psn, pds.cack_psn);
    }
    // The peer has the response and clears it, which moves the window.
    let mut clear = golden("clear_to_ref");
    clear[8..10].copy_from_slice(&packet[8..10]);
    clear[10..12].copy_from_slice(&pds.spdcid.to_be_bytes());
    clear[12..16].copy_from_slice(&packet[4..8]);
    endpoint.feed(reference(), &clear);
    let (last, response) = acknowledgement(&mut endpoint);
    assert_eq!((last.cack_psn, last.ack_psn()), (pds.cack_psn.plus(1), pds.ack_psn()));
    assert_eq!(response, taken);
    endpoint.pass(Span::millis(100));
    assert_eq!(endpoint.take_sent(), []);
}

#[test]
fn ordered_contexts_go_back_to_the_missing_packet() {
    let mut endpoint = Endpoint::new(2, ForeignWire::standard(1024));
    let buffer = endpoint.receive(None, 2500);
    let packets = ["ref_multi_0", "ref_multi_1", "ref_multi_2"].map(|name| {
        let mut packet = golden(name);
        packet[0] = 3 << 3 | packet[0] & 7;
        packet
    });
    endpoint.feed(reference(), &packets[0]);
    let _ = endpoint.take_sent();
    for _ in 0..2 {
        endpoint.feed(reference(), &packets[2]);
    }
    let sent = endpoint.take_sent();
    let [(_, nack)] = &sent[..] else { panic!("{sent:02x?}") };
    let Ok(Packet::Nack(nack)) = parse(nack) else { panic!("{nack:02x?}") };
    assert_eq!((nack.code, nack.psn.0, nack.payload), (NackCode::RodOoo, 0x0020_0001, 0));
    for packet in &packets[1..] {
        endpoint.feed(reference(), packet);
    }
    endpoint.poll();
    assert!(endpoint.completion(buffer).is_some_and(|completion| completion.status.is_ok()));
}

#[test]
fn operations_without_a_form_on_the_wire_are_refused() {
    let mut endpoint = Endpoint::new(3, ForeignWire::standard(1024));
    let peer = endpoint.engine.foreign_peer(reference(), None);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Collective, tag: 1 },
        buf: Buf::Empty,
        data: None,
        context: 0,
        options: Options::default(),
    };
    let refused =
        endpoint.engine.submit(endpoint.now, &endpoint.memory, op, None::<&mut NoChannels>);
    assert_eq!(refused.err(), Some(SubmitError::UnsupportedByPeer));
}

#[test]
fn sends_to_a_silent_peer_end_with_the_deadline() {
    let mut endpoint = Endpoint::new(4, ForeignWire::standard(1024));
    let peer = endpoint.engine.foreign_peer(reference(), None);
    endpoint.send(peer, Some(1), None, b"hello").unwrap();
    endpoint.pass(DEADLINE + Span::secs(1));
    let statuses: Vec<_> = endpoint.done.iter().map(|done| done.status).collect();
    assert_eq!(statuses, [Err(OpError::Unreachable)]);
    // Each packet is the same request. There is no probe.
    let sent = endpoint.take_sent();
    assert!(sent.len() > 3 && sent.iter().all(|(_, bytes)| bytes[0] >> 3 == 2), "{sent:02x?}");
}

/// SUET drops what comes from another source port than the peer's, and takes none of its requests.
#[test]
fn packets_for_suet_leave_from_one_source_port_while_it_does_not_answer() {
    let open = |seed| {
        Endpoint::with(seed, ForeignWire::suet(1416), |_, pdc| {
            pdc.paths = PathsConfig::reps(1).expect("a power of two");
        })
    };
    let peer = SocketAddr::from(([10, 0, 0, 2], 40_123));
    let mut sender = open(7);
    let id = sender.engine.foreign_peer(peer, None);
    sender.send(id, Some(1), None, b"hello").unwrap();
    sender.pass(DEADLINE);
    assert!(sender.take_sent().len() > 8);
    assert_eq!(sender.paths, BTreeSet::from([0]));
    // The answers do not arrive, so the peer repeats its request.
    let mut receiver = open(8);
    receiver.receive(Some(TAG), 100);
    let mut request = golden("suet_syn_tagged");
    for _ in 0..100 {
        receiver.feed(peer, &request);
        receiver.pass(Span::millis(1));
        request[1] |= 0x10;
    }
    assert!(receiver.take_sent().len() > 8);
    assert_eq!(receiver.paths, BTreeSet::from([0]));
}

/// Regression test: closing an endpoint took two seconds if SUET had talked to it lately, because SUET
/// does not close its contexts when it is asked.
#[test]
fn closing_does_not_wait_long_for_peers_that_do_not_close() {
    for (wire, name, src, longest) in [
        (
            ForeignWire::suet(1416),
            "suet_syn_tagged",
            SocketAddr::from(([10, 0, 0, 2], 40_123)),
            300,
        ),
        (ForeignWire::standard(1024), "ref_syn_tagged", reference(), 2500),
    ] {
        let mut endpoint = Endpoint::new(9, wire);
        endpoint.receive(Some(TAG), 100);
        endpoint.feed(src, &golden(name));
        let begin = endpoint.now;
        let mut waits = 0;
        while endpoint.engine.shutdown(endpoint.now).step() {
            endpoint.pass(Span::millis(10));
            waits += 1;
        }
        let took = endpoint.now.since(begin);
        // The last acknowledgement may have been lost.
        assert!(waits >= 10 && took < Span::millis(longest), "{name}: {took:?}");
    }
}

#[test]
fn packets_of_other_addresses_reach_no_context() {
    let mut endpoint = Endpoint::new(5, ForeignWire::standard(1024));
    let buffer = endpoint.receive(None, 100);
    endpoint.feed(reference(), &golden("ref_syn_tagged"));
    let sent = endpoint.take_sent();
    let mut close = golden("ref_close");
    close[10..12].copy_from_slice(&sent[0].1[8..10]);
    endpoint.feed(SocketAddr::from(([10, 0, 0, 3], 4793)), &close);
    assert_eq!(endpoint.take_sent(), []);
    assert_eq!(endpoint.engine.contexts().count(), 1);
    assert_eq!(endpoint.engine.counters().0.rx_foreign, 1);
    assert!(endpoint.completion(buffer).is_none());
}
