//! Paths that carry less than the endpoints would send: from the beginning or in mid-stream, with and without
//! a word from the network. Everything arrives, whole and once, and afterwards all new packets fit.

mod world;

use squall_base::Span;
use squall_engine::*;
use world::*;

/// Some hundred packets.
const LEN: u64 = 100_000;
/// Sent in one piece at first.
const WIDE: u32 = 8968;

/// Two hosts with long packets.
fn wide(seed: u64, rendezvous_threshold: u64) -> World {
    World::with(2, seed, Faults::default(), |engine, pdc| {
        (engine.max_packet, engine.rendezvous_threshold, pdc.mtu) =
            (WIDE, rendezvous_threshold, WIDE);
    })
}

/// What message `tag` says.
fn content(tag: u64) -> Vec<u8> {
    (0..LEN).map(|at| (at * 7 + tag * 13 + at / 1000) as u8).collect()
}

/// Host 0 sends message `tag`, host 1 waits for it. Where it will be.
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
    let base = w.hosts[0].memory.put(&content(tag));
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

/// Messages arrive, in at most `limit`.
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

/// Times the sender's packets became smaller.
fn shrunk(w: &World) -> u64 {
    w.hosts[0].engine.counters().0.path_shrunk
}

fn vanished(w: &World) -> u64 {
    w.narrow.expect("it is narrow").vanished
}

/// A path of `bytes` from the middle of a stream on, or from the `beginning`; where the sender's size ends.
fn stream(seed: u64, bytes: usize, tells: bool, beginning: bool, threshold: u64) -> u32 {
    let mut w = wide(seed, threshold);
    if beginning {
        w.narrow = Some(Narrow::new(bytes, tells));
    } else {
        arrive(&mut w, 0..3, Span::secs(1));
    }
    let places: Vec<_> = (10..20).map(|tag| (tag, exchange(&mut w, tag))).collect();
    let done = |n: usize| move |w: &World| w.hosts[1].done.len() >= n;
    if !beginning {
        assert!(w.run(Span::secs(1), done(5)));
        w.narrow = Some(Narrow::new(bytes, tells));
    }
    let all = if beginning { 10 } else { 13 };
    finish(&mut w, Span::secs(10), |w| w.hosts.iter().all(|host| host.done.len() == all));
    for (tag, at) in places {
        assert_eq!(w.hosts[1].memory.get(at, LEN), content(tag), "message {tag}");
    }
    let narrow = w.narrow.expect("it is narrow");
    assert!(narrow.vanished > 0 && narrow.fragmented > 0, "{narrow:?}");
    // From now on, nothing vanishes, and nothing needs to be fragmented.
    arrive(&mut w, 30..40, Span::secs(1));
    let after = w.narrow.expect("it is narrow");
    assert_eq!((after.vanished, after.fragmented), (narrow.vanished, narrow.fragmented));
    let (counters, _) = w.hosts[0].engine.counters();
    let (other, _) = w.hosts[1].engine.counters();
    assert_eq!(counters.tx_fragmentable + other.tx_fragmentable, after.fragmented);
    assert!(counters.path_shrunk > 0);
    size(&w)
}

#[test]
fn a_path_that_says_how_much_it_carries_is_believed() {
    for seed in 0..5 {
        for beginning in [false, true] {
            assert_eq!(stream(seed, 1372, true, beginning, 1 << 20), 1372);
            assert_eq!(stream(seed, 1372, true, beginning, 16 << 10), 1372);
        }
    }
}

#[test]
fn a_path_that_swallows_long_packets_is_found_out() {
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
fn a_wider_path_is_found_again() {
    let mut w = wide(1, 1 << 20);
    w.narrow = Some(Narrow::new(1400, true));
    arrive(&mut w, 0..3, Span::secs(10));
    assert_eq!(size(&w), 1400);
    // Contexts end meanwhile; what is known of paths does not.
    w.run(Span::secs(500), |_| false);
    arrive(&mut w, 3..6, Span::secs(1));
    assert_eq!(size(&w), 1400);
    w.narrow = None;
    w.run(Span::secs(100), |_| false);
    arrive(&mut w, 6..9, Span::secs(1));
    // The next timer that fires for whatever reason.
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
fn a_path_that_stays_narrow_costs_little() {
    let mut w = wide(2, 1 << 20);
    w.narrow = Some(Narrow::new(1400, false));
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
    // It is tried after 2, 4, 8 .. seconds.
    assert!(costs[0] > 0 && costs[5] <= costs[0] / 2, "{costs:?}");
}

#[test]
fn a_peer_that_computes_does_not_make_packets_smaller() {
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

/// It has introduced itself, and waits for a processor before it takes the first packet.
#[test]
fn a_peer_that_waits_for_a_processor_at_first_does_not_make_packets_smaller() {
    for away in [Span::millis(40), Span::millis(100), Span::millis(250)] {
        let mut w = wide(5, 1 << 20);
        exchange(&mut w, 0);
        assert!(w.run(Span::secs(1), |w| w.hosts[0].engine.counters().1.tx_packets > 0));
        w.hosts[1].stopped = true;
        w.run(away, |_| false);
        assert!(w.hosts[0].engine.counters().1.timeouts >= 3, "{away:?}");
        w.resume(1, usize::MAX);
        finish(&mut w, Span::secs(10), |w| w.hosts.iter().all(|host| host.done.len() == 1));
        assert_eq!((size(&w), w.hosts[0].engine.counters().0.path_shrunk), (WIDE, 0), "{away:?}");
    }
}

#[test]
fn a_network_that_loses_much_does_not_make_packets_small() {
    for (seed, drop) in (0..10).flat_map(|seed| [(seed, 0.05), (seed, 0.3)]) {
        let mut w = wide(seed, 1 << 20);
        w.faults.drop = drop;
        arrive(&mut w, 0..40, Span::secs(30));
        assert_eq!((size(&w), shrunk(&w)), (WIDE, 0), "seed {seed}, {drop} lost");
    }
}

#[test]
fn forged_sizes_change_little() {
    let mut w = wide(4, 1 << 20);
    arrive(&mut w, 0..1, Span::secs(1));
    let (now, there) = (w.now, w.hosts[1].addr);
    let engine = &mut w.hosts[0].engine;
    for bytes in [0, 1, 68, 543, WIDE, WIDE + 1, u32::MAX] {
        engine.handle_packet_size(now, there, bytes);
        assert_eq!(engine.packet_size(there), WIDE);
    }
    // Of hosts nobody talks to, nothing is remembered.
    let elsewhere = "10.9.9.9:1".parse().expect("literal");
    engine.handle_packet_size(now, elsewhere, 1000);
    assert_eq!((engine.packet_size(elsewhere), engine.counters().0.path_shrunk), (WIDE, 0));
    engine.handle_packet_size(now, there, 544);
    arrive(&mut w, 1..4, Span::secs(1));
    assert_eq!(size(&w), 544);
}

/// A link fails, and after a while packets take another one, which carries less. Whatever was sent meanwhile is lost,
/// the questions about it as well, and all that is sent again is too long.
#[test]
fn a_path_that_swallows_long_packets_after_an_outage_is_found_out() {
    for seed in 0..5 {
        for outage in [Span::millis(20), Span::secs(2)] {
            let mut w = wide(seed, 1 << 20);
            arrive(&mut w, 0..3, Span::secs(1));
            w.mute = Some(|_, _| true);
            let places: Vec<_> = (10..20).map(|tag| (tag, exchange(&mut w, tag))).collect();
            w.run(outage, |_| false);
            (w.mute, w.narrow) = (None, Some(Narrow::new(1468, false)));
            finish(&mut w, Span::secs(6), |w| w.hosts.iter().all(|host| host.done.len() == 13));
            for (tag, at) in places {
                assert_eq!(w.hosts[1].memory.get(at, LEN), content(tag), "message {tag}");
            }
            assert_eq!(size(&w), 1468);
        }
    }
}
