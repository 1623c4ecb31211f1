//! Bounds on the state that an endpoint keeps for foreign peers which the application has not named.
//! Such a peer is an address that nothing proves.

use std::net::SocketAddr;

use squall_base::{Psn, Span};
use squall_engine::ForeignWire;
use squall_wire::{
    Ack, Dest, Extension, Mode, NextHeader, Opcode, Packet, Request, Ses, StdBody, StdRequest,
    parse,
};

use super::endpoint::Endpoint;
use super::golden::{TAG, golden};

const SUET: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 40_123);

/// Start PSN of the contexts of these tests.
const START: u32 = 0x10000;

/// Returns the first packet, of one byte, of a write of 1000 bytes. It clears all earlier responses.
fn write(n: u32, dest: Dest, change: impl Fn(&mut StdRequest)) -> Vec<u8> {
    let pds = Request {
        mode: Mode::Rud,
        next: NextHeader::RequestStd,
        retx: false,
        ack_request: true,
        clear_psn_offset: if n > 0 { -1 } else { 0 },
        psn: Psn(START + n),
        spdcid: 7,
        dest,
        ccc: None,
    };
    let mut ses = StdRequest {
        opcode: Opcode::Write,
        delivery_complete: false,
        initiator_error: false,
        relative: true,
        header_data_present: false,
        eom: false,
        som: true,
        message_id: n as u16,
        ri_generation: 0,
        job_id: 0,
        pid_on_fep: 0,
        resource_index: 0,
        buffer_offset: 0,
        initiator: 0,
        match_bits: 0xbad_4e4,
        body: StdBody::First { header_data: 0 },
        request_length: 1000,
        extension: Extension::None,
    };
    change(&mut ses);
    let packet = Packet::Request { pds, ses: Ses::Std(ses), payload: b"x" };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    bytes
}

const SYN: Dest = Dest::Syn { use_rsv_pdc: false, psn_offset: 0 };

/// Sends `count` such writes on one context. Returns how many of them were answered.
fn send_writes(endpoint: &mut Endpoint, count: u32, change: impl Fn(&mut StdRequest)) -> u32 {
    let (mut dest, mut answered) = (SYN, 0);
    for n in 0..count {
        endpoint.feed(SUET, &write(n, dest, &change));
        for (_, sent) in endpoint.take_sent() {
            if let Ok(Packet::Ack { pds: Ack { spdcid, .. }, .. }) = parse(&sent) {
                dest = Dest::Pdc(spdcid);
                answered += 1;
            }
        }
    }
    answered
}

/// Regression test: 65,536 addresses, all of which an unprivileged process can have, kept every later
/// peer out until the endpoint closed.
#[test]
fn peers_that_open_no_context_are_forgotten() {
    let mut endpoint = Endpoint::new(1, ForeignWire::suet(1416));
    // A packet beyond the window opens no context.
    let refused = write(4000, Dest::Syn { use_rsv_pdc: false, psn_offset: 4000 }, |_| {});
    for n in 0..1u32 << 16 {
        let host = [10, 0, 1 + (n >> 15) as u8, 9];
        endpoint.feed(SocketAddr::from((host, 1024 + (n & 0x7fff) as u16)), &refused);
    }
    assert_eq!(endpoint.engine.contexts().count(), 0);
    endpoint.pass(Span::secs(2));
    let buffer = endpoint.receive(Some(TAG), 100);
    endpoint.feed(SUET, &golden("suet_syn_tagged"));
    endpoint.poll();
    assert!(endpoint.completion(buffer).is_some(), "{:?}", endpoint.engine.counters().0);
    assert_eq!(endpoint.engine.peers().count(), 1);
}

/// Peers whose contexts have ended are forgotten, too.
#[test]
fn silent_peers_are_forgotten() {
    let mut endpoint = Endpoint::new(2, ForeignWire::suet(1416));
    for n in 0..2000u32 {
        let src = SocketAddr::from(([10, 0, 1, 9], 1024 + n as u16));
        endpoint.feed(src, &write(0, SYN, |_| {}));
        let _ = endpoint.take_sent();
    }
    assert_eq!(endpoint.engine.peers().count(), 2000);
    endpoint.pass(Span::secs(1000));
    endpoint.feed(SUET, &write(0, SYN, |_| {}));
    assert_eq!(endpoint.engine.peers().count(), 1);
}

/// Regression test: an address that the application had removed was admitted.
#[test]
fn removed_addresses_are_not_admitted() {
    let mut endpoint =
        Endpoint::with(3, ForeignWire::suet(1416), |config, _| config.named_only = true);
    let buffer = endpoint.receive(Some(TAG), 100);
    let now = endpoint.now;
    endpoint.engine.name_peers(now, [(SUET, None)]);
    endpoint.engine.name_peers(now, []);
    endpoint.feed(SUET, &golden("suet_syn_tagged"));
    endpoint.poll();
    assert!(endpoint.completion(buffer).is_none());
    assert_eq!(endpoint.engine.counters().0.rx_unlisted, 1);
    endpoint.engine.name_peers(now, [(SUET, None)]);
    endpoint.feed(SUET, &golden("suet_syn_tagged"));
    endpoint.poll();
    assert!(endpoint.completion(buffer).is_some());
}

/// Regression test: a peer that the application had inserted and removed kept the limits of a peer of
/// the job.
#[test]
fn peers_that_were_removed_are_outside_the_job() {
    let opened = |named: &[&[SocketAddr]]| {
        let mut endpoint = Endpoint::new(4, ForeignWire::suet(1416));
        for names in named {
            let now = endpoint.now;
            endpoint.engine.name_peers(now, names.iter().map(|addr| (*addr, None)));
        }
        for n in 1..100u16 {
            let mut syn = write(0, SYN, |_| {});
            syn[8..10].copy_from_slice(&n.to_be_bytes());
            endpoint.feed(SUET, &syn);
        }
        endpoint.engine.contexts().count()
    };
    let (never, now, formerly) = (opened(&[]), opened(&[&[SUET]]), opened(&[&[SUET], &[]]));
    assert!(never < now, "{never} contexts of an unknown peer, {now} of one of the job");
    assert_eq!(formerly, never);
}

/// Regression test: each refused write left an entry of a table, which was searched for each packet.
#[test]
fn refused_and_unreported_writes_leave_no_ids() {
    let mut endpoint = Endpoint::new(5, ForeignWire::suet(1416));
    let data = |request: &mut StdRequest| request.header_data_present = true;
    assert!(send_writes(&mut endpoint, 1000, data) >= 1000);
    assert_eq!(endpoint.engine.holdings().foreign_ids, 0);
    let mut endpoint = Endpoint::new(6, ForeignWire::suet(1416));
    let base = endpoint.memory.alloc(1000);
    endpoint.memory.register(0xbad_4e4, base, 1000, false, true);
    assert!(send_writes(&mut endpoint, 1000, |_| {}) >= 1000);
    assert_eq!(endpoint.engine.holdings().foreign_ids, 0);
    assert_eq!(endpoint.engine.holdings().partial_writes, 0);
}

/// A peer that may write can leave writes with remote CQ data incomplete, but only so many.
#[test]
fn ids_of_incomplete_writes_are_bounded() {
    let mut endpoint = Endpoint::new(7, ForeignWire::suet(1416));
    let base = endpoint.memory.alloc(1000);
    endpoint.memory.register(0xbad_4e4, base, 1000, false, true);
    let data = |request: &mut StdRequest| request.header_data_present = true;
    assert!(send_writes(&mut endpoint, 40_000, data) >= 40_000);
    let holdings = endpoint.engine.holdings();
    assert!((2000..=4096).contains(&holdings.foreign_ids), "{holdings:?}");
    assert!((2000..=8192).contains(&holdings.partial_writes), "{holdings:?}");
}
