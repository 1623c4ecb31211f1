//! Paths that carry less than the endpoints would send, from the beginning or later, with and
//! without a report of the network. Everything arrives, whole and once, and afterwards all new
//! packets fit.

use crate::world::*;
use squall_base::Span;
use squall_engine::*;

/// A length of some hundred packets in bytes.
const LEN: u64 = 100_000;
/// The initial packet size in bytes.
const WIDE: u32 = 8968;

/// Creates two hosts with long packets.
fn wide(seed: u64, rendezvous_threshold: u64) -> World {
    World::with(2, seed, Faults::default(), |engine, pdc| {
        (engine.max_packet, engine.rendezvous_threshold, pdc.mtu) =
            (WIDE, rendezvous_threshold, WIDE);
    })
}

/// Sends message `tag` from host 0 to host 1. Returns the address of the receive buffer.
fn exchange(w: &mut World, tag: u64) -> u64 {
    let (to, from) = (w.peer(0, 1), w.peer(1, 0));
    let host = &mut w.hosts[1];
    let at = host.memory.alloc(LEN as usize);
    let op = RecvOp {
        source: Some(from),
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(at, LEN),
        context: tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    let base = w.hosts[0].memory.put(&content(tag, LEN));
    let op = Operation {
        peer: to,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, LEN),
        data: None,
        context: tag,
        options: Options::default(),
    };
    w.submit(0, op).unwrap();
    at
}

/// Checks that messages arrive within `limit`.
fn arrive(w: &mut World, tags: std::ops::Range<u64>, limit: Span) {
    let before = [0, 1].map(|n| w.hosts[n].done.len());
    let places: Vec<_> = tags.map(|tag| (tag, exchange(w, tag))).collect();
    let all = move |w: &World| (0..2).all(|n| w.hosts[n].done.len() == before[n] + places.len());
    finish(w, limit, all);
}

fn finish(w: &mut World, limit: Span, done: impl Fn(&World) -> bool) {
    assert!(
        w.run(limit, done),
        "all of it ends: {:?} {:?}",
        w.narrow,
        w.hosts[0].engine.counters()
    );
    for host in &w.hosts {
        assert!(host.done.iter().all(|c| c.status.is_ok()), "{:?}", host.done);
    }
}

fn size(w: &World) -> u32 {
    w.hosts[0].engine.packet_size(w.hosts[1].addr)
}

/// Returns how often the sender's packets became smaller.
fn shrunk(w: &World) -> u64 {
    w.hosts[0].engine.counters().0.path_shrunk
}

fn vanished(w: &World) -> u64 {
    w.narrow.expect("it is narrow").vanished
}

/// Narrows the path to `bytes` in the middle of a stream, or at its `beginning`. Returns the
/// sender's final packet size.
fn stream(seed: u64, bytes: usize, tells: bool, beginning: bool, threshold: u64) -> u32 {
    let mut w = wide(seed, threshold);
    if beginning {
        w.narrow = Some(ReducedPath::new(bytes, tells));
    } else {
        arrive(&mut w, 0..3, Span::secs(1));
    }
    let places: Vec<_> = (10..20).map(|tag| (tag, exchange(&mut w, tag))).collect();
    let done = |n: usize| move |w: &World| w.hosts[1].done.len() >= n;
    if !beginning {
        assert!(w.run(Span::secs(1), done(5)));
        w.narrow = Some(ReducedPath::new(bytes, tells));
    }
    let all = if beginning { 10 } else { 13 };
    finish(&mut w, Span::secs(10), |w| w.hosts.iter().all(|host| host.done.len() == all));
    for (tag, at) in places {
        assert_eq!(w.hosts[1].memory.get(at, LEN), content(tag, LEN), "message {tag}");
    }
    let narrow = w.narrow.expect("it is narrow");
    let fragments =
        |w: &World| w.hosts.iter().map(|h| h.engine.counters().0.tx_fragments).sum::<u64>();
    let before = fragments(&w);
    assert!(narrow.vanished > 0 && before > 0, "{narrow:?}, {before} fragments");
    // From now on no packet vanishes, and no packet needs to be cut again.
    arrive(&mut w, 30..40, Span::secs(1));
    let after = w.narrow.expect("it is narrow");
    assert_eq!((after.vanished, fragments(&w)), (narrow.vanished, before));
    let (counters, _) = w.hosts[0].engine.counters();
    assert!(counters.path_shrunk > 0);
    size(&w)
}

#[test]
fn reported_packet_size_is_used() {
    for seed in 0..5 {
        for beginning in [false, true] {
            assert_eq!(stream(seed, 1372, true, beginning, 1 << 20), 1372);
            assert_eq!(stream(seed, 1372, true, beginning, 16 << 10), 1372);
        }
    }
}

#[test]
fn path_that_drops_long_packets_is_detected() {
    for seed in 0..5 {
        for beginning in [false, true] {
            for (bytes, found) in
                [(4000, 1468), (1468, 1468), (1372, 1248), (1200, 1168), (700, 544)]
            {
                assert_eq!(stream(seed, bytes, false, beginning, 1 << 20), found);
                assert_eq!(stream(seed, bytes, false, beginning, 16 << 10), found);
            }
        }
    }
}

#[test]
fn wider_path_is_detected_again() {
    let mut w = wide(1, 1 << 20);
    w.narrow = Some(ReducedPath::new(1400, true));
    arrive(&mut w, 0..3, Span::secs(10));
    assert_eq!(size(&w), 1400);
    // Contexts end meanwhile, but the state of paths stays.
    w.run(Span::secs(500), |_| false);
    arrive(&mut w, 3..6, Span::secs(1));
    assert_eq!(size(&w), 1400);
    w.narrow = None;
    w.run(Span::secs(100), |_| false);
    arrive(&mut w, 6..9, Span::secs(1));
    // The size grows at the next timer, whatever it is for.
    w.run(Span::secs(100), |_| false);
    assert_eq!(size(&w), WIDE);
    arrive(&mut w, 9..12, Span::secs(1));
    let notices = std::iter::from_fn(|| w.hosts[0].engine.poll_notice());
    let sizes = notices.map(|notice| match notice {
        Notice::PacketSize { bytes, guessed, .. } => (bytes, guessed),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(1400, false), (WIDE, true)]);
}

#[test]
fn path_that_stays_narrow_costs_few_packets() {
    let mut w = wide(2, 1 << 20);
    w.narrow = Some(ReducedPath::new(1400, false));
    let mut tags = 0..;
    let mut costs = vec![];
    for _ in 0..6 {
        let before = vanished(&w);
        let begin = w.now;
        while w.now < begin + Span::secs(60) {
            let tag = tags.next().expect("endless");
            arrive(&mut w, tag..tag + 1, Span::secs(5));
            w.run(Span::millis(200), |_| false);
        }
        costs.push(vanished(&w) - before);
    }
    // The full size is tried after 2, 4, 8 .. seconds.
    assert!(costs[0] > 0 && costs[5] <= costs[0] / 2, "{costs:?}");
}

#[test]
fn busy_peer_does_not_reduce_the_packet_size() {
    let mut w = wide(3, 1 << 20);
    arrive(&mut w, 0..3, Span::secs(1));
    exchange(&mut w, 3);
    w.hosts[1].dead = true;
    w.run(Span::secs(1), |_| false);
    assert!(w.hosts[0].engine.counters().1.timeouts > 3);
    w.hosts[1].dead = false;
    finish(&mut w, Span::secs(10), |w| w.hosts.iter().all(|host| host.done.len() == 4));
    assert_eq!(size(&w), WIDE);
}

/// The peer has passed the handshake, and waits for a processor before it takes the first packet.
#[test]
fn peer_that_starts_late_does_not_reduce_the_packet_size() {
    for away in [Span::millis(40), Span::millis(100), Span::millis(250)] {
        let mut w = wide(5, 1 << 20);
        exchange(&mut w, 0);
        assert!(w.run(Span::secs(1), |w| w.hosts[0].engine.counters().1.tx_packets > 0));
        w.hosts[1].stopped = true;
        w.run(away, |_| false);
        assert!(w.hosts[0].engine.counters().1.retransmissions() >= 6, "{away:?}");
        w.resume(1, usize::MAX);
        finish(&mut w, Span::secs(10), |w| w.hosts.iter().all(|host| host.done.len() == 1));
        assert_eq!((size(&w), w.hosts[0].engine.counters().0.path_shrunk), (WIDE, 0), "{away:?}");
    }
}

#[test]
fn lossy_network_does_not_reduce_the_packet_size() {
    for (seed, drop) in (0..10).flat_map(|seed| [(seed, 0.05), (seed, 0.3)]) {
        let mut w = wide(seed, 1 << 20);
        w.faults.drop = drop;
        arrive(&mut w, 0..40, Span::secs(30));
        assert_eq!((size(&w), shrunk(&w)), (WIDE, 0), "seed {seed}, {drop} lost");
    }
}

#[test]
fn forged_packet_sizes_have_little_effect() {
    let mut w = wide(4, 1 << 20);
    arrive(&mut w, 0..1, Span::secs(1));
    let (now, there) = (w.now, w.hosts[1].addr);
    let engine = &mut w.hosts[0].engine;
    for bytes in [0, 1, 68, 543, WIDE, WIDE + 1, u32::MAX] {
        engine.handle_packet_size(now, there, bytes);
        assert_eq!(engine.packet_size(there), WIDE);
    }
    // No state is kept for hosts without a peer.
    let elsewhere = "10.9.9.9:1".parse().expect("literal");
    engine.handle_packet_size(now, elsewhere, 1000);
    assert_eq!((engine.packet_size(elsewhere), engine.counters().0.path_shrunk), (WIDE, 0));
    engine.handle_packet_size(now, there, 544);
    arrive(&mut w, 1..4, Span::secs(1));
    assert_eq!(size(&w), 544);
}

/// A link fails, and after a while packets take another path, which carries less. Everything sent
/// meanwhile is lost, including the questions about it, and all retransmissions are too long.
#[test]
fn path_that_drops_long_packets_after_an_outage_is_detected() {
    for seed in 0..5 {
        for outage in [Span::millis(20), Span::secs(2)] {
            let mut w = wide(seed, 1 << 20);
            arrive(&mut w, 0..3, Span::secs(1));
            w.mute = Some(|_, _| true);
            let places: Vec<_> = (10..20).map(|tag| (tag, exchange(&mut w, tag))).collect();
            w.run(outage, |_| false);
            (w.mute, w.narrow) = (None, Some(ReducedPath::new(1468, false)));
            finish(&mut w, Span::secs(6), |w| w.hosts.iter().all(|host| host.done.len() == 13));
            for (tag, at) in places {
                assert_eq!(w.hosts[1].memory.get(at, LEN), content(tag, LEN), "message {tag}");
            }
            assert_eq!(size(&w), 1468);
        }
    }
}

/// The packets arrived and only their acknowledgements were lost, and now the path drops packets of that length. The
/// receiver must not take their fragments, because the messages are complete and their buffers belong to the
/// application again.
#[test]
fn fragments_of_received_packets_are_not_processed_again() {
    let (mut repeated, mut messages) = (0, 0);
    for seed in 0..10 {
        let mut w = wide(seed, 1 << 20);
        arrive(&mut w, 0..3, Span::secs(1));
        w.mute = Some(|src, _| src.ip() == std::net::IpAddr::from([10, 0, 0, 2]));
        let places: Vec<_> = (10..13).map(|tag| (tag, exchange(&mut w, tag))).collect();
        // This is as much as a congestion window holds.
        w.run(Span::millis(2), |_| false);
        let taken = w.hosts[1].done.len() - 3;
        for (tag, at) in &places[..taken] {
            assert_eq!(w.hosts[1].memory.get(*at, LEN), content(*tag, LEN), "message {tag}");
            // From now on the buffer belongs to the application: a write to it fails the test.
            w.hosts[1].memory.revoke(*at);
        }
        messages += taken;
        w.narrow = Some(ReducedPath::new(1468, false));
        // Packets of the receiver reach the sender again, but only after the sender's packets became shorter.
        let there = w.hosts[1].addr;
        w.hosts[0].engine.handle_packet_size(w.now, there, 1400);
        w.run(Span::millis(200), |_| false);
        w.mute = None;
        finish(&mut w, Span::secs(10), |w| w.hosts[0].done.len() == 6);
        w.run(Span::secs(1), |_| false);
        repeated += w.hosts[1].engine.counters().0.rx_fragments_repeated;
    }
    assert!(repeated > 0 && messages > 0, "{messages} messages, {repeated} fragments of them");
}

/// The network loses, duplicates and delays packets, and the path is wide and narrow in turn, while messages, writes
/// with remote CQ data and answers to reads go both ways. Each must arrive whole and once.
#[test]
fn changing_path_loses_no_byte() {
    let mut fragments = 0;
    for seed in 0..20 {
        let mut w = wide(seed, if seed % 2 == 0 { 1 << 20 } else { 16 << 10 });
        w.faults = Faults { drop: 0.1, duplicate: 0.2, reorder: 0.3, ..Faults::default() };
        let (to, key) = (w.peer(0, 1), 77);
        let at = w.hosts[1].memory.alloc(6 * LEN as usize);
        w.hosts[1].memory.register(key, at, 6 * LEN, true, true);
        let mut messages = vec![];
        for round in 0..6 {
            messages.push((round, exchange(&mut w, round)));
            let base = w.hosts[0].memory.put(&content(100 + round, LEN));
            let remote = RemoteIov::One(RemoteSeg { address: round * LEN, len: LEN, key });
            let write = RmaOp {
                peer: to,
                buf: Buf::new(base, LEN),
                remote,
                data: Some(round),
                context: 1000 + round,
            };
            w.submit(0, write.write()).unwrap();
            w.run(Span::micros(300), |_| false);
            w.narrow = (round % 2 == 0).then(|| ReducedPath::new(1468, round % 4 == 0));
        }
        let done = |w: &World| {
            let ended = |n: usize, kind: OpKind| {
                w.hosts[n].done.iter().filter(|done| done.kind == kind).count()
            };
            [ended(0, OpKind::Send), ended(1, OpKind::Recv), ended(0, OpKind::Write)] == [6; 3]
                && ended(1, OpKind::RemoteWrite) >= 6
        };
        finish(&mut w, Span::secs(30), done);
        w.run(Span::secs(2), |_| false);
        for (tag, at) in messages {
            assert_eq!(
                w.hosts[1].memory.get(at, LEN),
                content(tag, LEN),
                "message {tag}, seed {seed}"
            );
        }
        for round in 0..6 {
            let there = w.hosts[1].memory.get(at + round * LEN, LEN);
            assert_eq!(there, content(100 + round, LEN), "write {round}, seed {seed}");
        }
        let reported = w.hosts[1].done.iter().filter(|done| done.kind == OpKind::RemoteWrite);
        assert_eq!(reported.count(), 6, "each write is reported once, seed {seed}");
        fragments += w.hosts[0].engine.counters().0.tx_fragments;
    }
    assert!(fragments > 100, "{fragments}");
}
