//! Rate packets (s-PERC) between endpoints, attacks on them, and the requests of a slow host.

use crate::world::*;
use squall_base::{Rate, Span};
use squall_engine::*;
use squall_reliability::cc::{NetworkProfile, SenderConfig};
use squall_wire::{
    LinkRate, Packet, RateEntry, RateHead, RatePacket, RateStage, RateState, Ses, parse,
};

const LEN: u64 = 2_000_000;

/// Creates two hosts with the given algorithm. No switch computes rates.
fn world(cc: &str) -> World {
    let network = NetworkProfile::new(Rate::gbps(10), Span::micros(20), 1448, false);
    let cc = SenderConfig::by_name(cc, &network).expect("the algorithm is in the registry");
    let mut w = World::with(2, 5, Faults::default(), move |engine, pdc| {
        (engine.shm, engine.rendezvous_threshold) = (false, 1 << 30);
        pdc.cc = cc.clone();
        *pdc = pdc.clone().reciprocal(&network);
    });
    w.tap = Some(vec![]);
    w
}

/// Sends a message with `tag` from host 0, which arrives.
fn exchange(w: &mut World, tag: u64) {
    let bytes: Vec<u8> = (0..LEN).map(|n| (n * 7 + tag) as u8).collect();
    let to = w.hosts[1].memory.alloc(LEN as usize);
    let host = &mut w.hosts[1];
    let recv = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(to, LEN),
        context: tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, recv).unwrap();
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(&bytes);
    let send = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, LEN),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(0, send).unwrap();
    let ended = |w: &World, at: usize| {
        w.hosts[at].done.iter().any(|done| done.context == tag && done.status == Ok(()))
    };
    assert!(w.run(Span::secs(1), |w| ended(w, 0) && ended(w, 1)));
    assert_eq!(w.hosts[1].memory.get(to, LEN), bytes);
}

/// Returns the rate packets that a host sent.
fn sent(w: &World, host: usize) -> Vec<(RateHead, usize)> {
    let src = w.hosts[host].addr.ip();
    let own = w.tap.as_ref().unwrap().iter().filter(|seen| seen.src.ip() == src);
    own.filter_map(|seen| match parse(&seen.bytes) {
        Ok(Packet::Rates(packet)) => Some((packet.head, packet.entries().count())),
        _ => None,
    })
    .collect()
}

fn bytes_of(head: RateHead, entries: &[RateEntry]) -> Vec<u8> {
    let entries: Vec<_> = entries.iter().map(RateEntry::to_bytes).collect();
    let packet = RatePacket::new(head, &entries);
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    bytes
}

/// Returns the entry of a link that grants the flow this many b/s.
fn entry(rate: f32) -> RateEntry {
    let rate = LinkRate::new(rate);
    let state = RateState::Here;
    RateEntry {
        link: 3,
        bottleneck: rate,
        allocated: rate,
        weight: 1,
        state,
        fresh: true,
        ..RateEntry::default()
    }
}

/// Returns the rate at which host 0's context may send.
fn rate(w: &World) -> Option<Rate> {
    w.hosts[0].engine.contexts().find(|context| context.initiator).and_then(|context| context.rate)
}

#[test]
fn rate_request_is_answered_and_is_optional_without_link_support() {
    for cc in ["sperc", "sperc:one_rtt=1"] {
        let mut w = world(cc);
        exchange(&mut w, 1);
        let (asked, answered) = (sent(&w, 0), sent(&w, 1));
        assert_eq!((asked[0].0.stage, answered[0].0.stage), (RateStage::Asks, RateStage::Back));
        assert_eq!((asked[0].0.flow, asked[0].1), (answered[0].0.flow, 0));
        assert_eq!(asked[0].0.serial, answered[0].0.serial);
        // Each packet names its own sender.
        assert_eq!(asked[0].0.initiator & 0xffff, u32::from(w.hosts[0].addr.port()));
        assert_eq!(answered[0].0.initiator & 0xffff, u32::from(w.hosts[1].addr.port()));
        assert_eq!((asked.len(), answered.len()), (1, 1), "{cc}");
        assert!(w.hosts[0].engine.contexts().any(|context| context.other_mode));
        for host in &w.hosts {
            assert_eq!(host.engine.counters().0.rx_malformed, 0);
        }
    }
}

#[test]
fn forged_rate_packets_are_counted_and_change_nothing() {
    let mut w = world("sperc");
    exchange(&mut w, 1);
    let (asks, answers) = (sent(&w, 0)[0].0, sent(&w, 1)[0].0);
    let (here, there) = (w.hosts[0].addr, w.hosts[1].addr);
    let counts = |w: &World| {
        let all = w.hosts.iter().map(|host| host.engine.counters());
        let sums = |(a, b, c): (u64, u64, u64),
                    (e, r): (&Counters, &squall_reliability::Counters)| {
            (a + e.rx_malformed, b + e.rx_foreign, c + r.rx_unknown_context)
        };
        all.fold((0, 0, 0), sums)
    };
    let (before, was) = (counts(&w), rate(&w));
    let plain = PacketMarks::default();
    // The packets are malformed, from both ends.
    let good = bytes_of(asks, &[entry(1e9)]);
    for bad in [&good[..31], &good[..51], &[&good[..], &[0]].concat()] {
        w.inject(here, there, plain, bad);
    }
    let mut negative = good.clone();
    negative[36] |= 0x80;
    w.inject(here, there, plain, &negative);
    assert_eq!(counts(&w), (before.0 + 4, before.1, before.2));
    // The packets come from an unverified peer, or from another address.
    let unverified = RateHead { initiator: asks.initiator ^ 0x1_0000, ..asks };
    w.inject(here, there, plain, &bytes_of(unverified, &[]));
    let elsewhere = std::net::SocketAddr::from(([10, 9, 9, 9], here.port()));
    w.inject(elsewhere, there, plain, &good);
    assert_eq!(counts(&w), (before.0 + 4, before.1 + 2, before.2));
    // One answer is for an unknown flow, and one answers no request.
    let nobody = RateHead { flow: !answers.flow, ..answers };
    w.inject(there, here, plain, &bytes_of(nobody, &[entry(1e6)]));
    w.inject(there, here, plain, &bytes_of(answers, &[entry(1e6)]));
    assert_eq!(counts(&w), (before.0 + 4, before.1 + 2, before.2 + 1));
    assert_eq!(rate(&w), was);
    // None of these packets was answered, and everything continues.
    w.step_host(1);
    assert_eq!(sent(&w, 1).len(), 1);
    exchange(&mut w, 2);
}

/// An endpoint with another congestion control counts rate packets and does not answer. The
/// requester gives up and continues without them.
#[test]
fn endpoint_with_another_algorithm_answers_no_rate_packets() {
    let mut asks = world("sperc");
    exchange(&mut asks, 1);
    let head = sent(&asks, 0)[0].0;
    let mut w = world("none");
    exchange(&mut w, 1);
    assert_eq!(sent(&w, 0).len(), 0);
    let (here, there) = (w.hosts[0].addr, w.hosts[1].addr);
    let who = w.tap.as_ref().unwrap().iter().find_map(|seen| match parse(&seen.bytes) {
        Ok(Packet::Request { ses: squall_wire::Ses::Std(request), .. }) => Some(request.initiator),
        _ => None,
    });
    let head = RateHead { initiator: who.expect("host 0 sent"), ..head };
    w.inject(here, there, PacketMarks::default(), &bytes_of(head, &[]));
    assert_eq!(w.hosts[1].engine.counters().1.rx_mismatch, 1);
    w.step_host(1);
    assert_eq!(sent(&w, 1).len(), 0);
}

/// Lost rate packets are repeated. If none is answered, a plain window is used.
#[test]
fn lost_rate_packets_are_repeated_for_a_while() {
    let mut w = world("sperc");
    w.mute = Some(|_, bytes| matches!(parse(bytes), Ok(Packet::Rates(_))));
    exchange(&mut w, 1);
    // Nine rate packets are sent before any data, and nine while data is acknowledged.
    assert_eq!((sent(&w, 0).len(), sent(&w, 1).len()), (18, 0));
    assert!(w.hosts[0].engine.contexts().any(|context| context.other_mode));
}

/// Tests the packets by which a full receive buffer reduces the sender's window.
#[test]
fn overloaded_host_reduces_its_senders_until_it_recovers() {
    let mut w = world("nscc");
    let penalties = |w: &World| w.hosts[0].engine.counters().1.rx_penalties;
    exchange(&mut w, 1);
    assert_eq!(penalties(&w), 0);
    w.hosts[1].engine.handle_buffer_overflow(100_000, 100_000);
    exchange(&mut w, 2);
    let asked = penalties(&w);
    assert!(asked > 0);
    w.hosts[1].engine.handle_buffer_drained();
    exchange(&mut w, 3);
    assert_eq!(penalties(&w), asked, "the host sends no more penalties");
}

/// Returns for each packet of a host's answers to reads whether it requests an acknowledgement.
fn answers(w: &World, host: usize) -> Vec<bool> {
    let src = w.hosts[host].addr.ip();
    let own = w.tap.as_ref().unwrap().iter().filter(|seen| seen.src.ip() == src);
    own.filter_map(|seen| match parse(&seen.bytes) {
        Ok(Packet::Request { pds, ses: Ses::ResponseData(_), .. }) => Some(pds.ack_request),
        _ => None,
    })
    .collect()
}

/// A requested acknowledgement costs a system call between the reader and its application.
#[test]
fn only_long_answers_to_reads_request_an_acknowledgement() {
    for (len, asks) in [(8, false), (16 << 10, false), ((16 << 10) + 1, true)] {
        let mut w = world("nscc");
        let from = w.hosts[1].memory.put(&vec![9; len]);
        w.hosts[1].memory.register(5, from, len as u64, true, false);
        let to = w.hosts[0].memory.alloc(len);
        let seg = RemoteSeg { address: 0, len: len as u64, key: 5 };
        let peer = w.peer(0, 1);
        let buf = Buf::new(to, len as u64);
        let read = RmaOp { peer, buf, remote: RemoteIov::One(seg), data: None, context: 3 }.read();
        w.submit(0, read).unwrap();
        assert!(w.run(Span::secs(1), |w| w.hosts[0].done.iter().any(|done| done.context == 3)));
        assert!(w.hosts[0].memory.get(to, len as u64).iter().all(|byte| *byte == 9));
        let asked = answers(&w, 1);
        assert_eq!(asked.last(), Some(&asks), "{len} bytes: {asked:?}");
    }
}
