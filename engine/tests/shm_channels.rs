//! Shared-memory channels between endpoints of one host: the change from packets to records, and
//! the ends of channels.

use crate::world::*;
use squall_base::{Rng, Span};
use squall_engine::*;

const DONE: Span = Span::secs(5);

/// Creates two hosts that open a channel when they have verified each other.
fn world(seed: u64, faults: Faults) -> World {
    World::with(2, seed, faults, |config, _| config.shm = true)
}

fn send(w: &mut World, from: usize, tag: u64, data: &[u8], level: Level) {
    let peer = w.peer(from, 1 - from);
    let base = w.hosts[from].memory.put(data);
    let options = Options { level, ..Options::default() };
    let action = Action::Message { space: MatchSpace::Tagged, tag };
    let buf = Buf::new(base, data.len() as u64);
    let op = Operation { peer, action, buf, data: None, context: tag, options };
    w.submit(from, op).expect("there is room");
}

/// Posts a receive for one tag, or for any.
fn recv(w: &mut World, at: usize, tag: Option<u64>, len: usize, context: u64) -> u64 {
    let base = w.hosts[at].memory.alloc(len);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag: tag.unwrap_or(0),
        ignore: if tag.is_some() { 0 } else { u64::MAX },
        buf: Buf::new(base, len as u64),
        context,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).expect("it may be posted");
    base
}

fn of_kind(w: &World, at: usize, kind: OpKind) -> Vec<Completion> {
    w.hosts[at].done.iter().filter(|c| c.kind == kind).cloned().collect()
}

fn shm_channels(w: &World) -> [u64; 2] {
    [0, 1].map(|n| w.hosts[n].engine.counters().0.shm_channels)
}

/// Lets the hosts verify each other and open a channel.
fn meet(w: &mut World) {
    recv(w, 1, Some(1), 1, 1);
    send(w, 0, 1, b"!", Level::Transmit);
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| !h.done.is_empty() && h.engine.is_idle())));
    assert_eq!(shm_channels(w), [1, 1]);
    w.hosts.iter_mut().for_each(|host| host.done.clear());
}

/// Messages of every size are sent during the change, over a network that drops, duplicates and
/// reorders packets. They match in the order in which they were sent.
#[test]
fn message_order_survives_the_change_to_a_channel() {
    let rough = Faults { drop: 0.1, duplicate: 0.05, reorder: 0.3, ..Faults::default() };
    let mut by_both = 0;
    for seed in 0..60 {
        let mut w = world(seed, rough);
        w.shm.room = 300;
        let mut rng = Rng::new(seed);
        let sizes: Vec<usize> =
            (0..60).map(|_| [0, 30, 1500, 9000, 40_000][rng.below(5) as usize]).collect();
        for at in [0, 1] {
            for (n, size) in sizes.iter().enumerate() {
                recv(&mut w, at, None, *size, n as u64);
            }
        }
        for (n, size) in sizes.iter().enumerate() {
            for from in [0, 1] {
                send(&mut w, from, n as u64, &vec![n as u8; *size], Level::Default);
            }
            w.run(Span::micros(u64::from(rng.below(60))), |_| false);
        }
        let all = |w: &World, at: usize| of_kind(w, at, OpKind::Recv).len() == sizes.len();
        assert!(w.run(Span::secs(30), |w| all(w, 0) && all(w, 1)), "seed {seed}");
        for at in [0, 1] {
            for got in of_kind(&w, at, OpKind::Recv) {
                assert_eq!((got.tag, got.status), (got.context, Ok(())), "seed {seed}");
                let bytes = w.hosts[at].memory.get(got.buf, got.len);
                assert!(bytes.iter().all(|byte| u64::from(*byte) == got.tag), "seed {seed}");
            }
        }
        let records = w.hosts[0].engine.counters().0.shm_tx_records;
        by_both += u32::from(records > 0 && w.hosts[0].engine.counters().1.tx_packets > 0);
    }
    assert!(by_both > 50, "packets and records: {by_both}");
}

#[test]
fn no_packets_are_sent_once_there_is_a_channel() {
    let mut w = world(1, Faults::default());
    meet(&mut w);
    let packets = [0, 1].map(|n| w.hosts[n].engine.counters().1.tx_packets);
    for (n, len) in [0usize, 1, 8000, 16_000, 60_000, 1_000_000].into_iter().enumerate() {
        let tag = 10 + n as u64;
        let base = recv(&mut w, 1, Some(tag), len, tag);
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + n) as u8).collect();
        send(&mut w, 0, tag, &data, Level::Match);
        assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Send).len() > n));
        assert!(w.hosts[1].memory.get(base, len as u64) == data);
    }
    assert_eq!([0, 1].map(|n| w.hosts[n].engine.counters().1.tx_packets), packets);
}

#[test]
fn killed_peer_is_noticed_at_once_and_its_messages_are_received() {
    let mut w = world(2, Faults::default());
    meet(&mut w);
    let base = recv(&mut w, 0, Some(5), 10, 5);
    send(&mut w, 1, 5, b"last words", Level::Default);
    send(&mut w, 0, 6, &[1; 100_000], Level::Default);
    w.transmit_once(1);
    w.crash(1);
    let start = w.now;
    assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Send).is_empty()));
    assert_eq!(of_kind(&w, 0, OpKind::Send)[0].status, Err(OpError::TimedOut));
    assert!(w.now.since(start) < Span::millis(10), "the death is noticed before any deadline");
    assert_eq!(of_kind(&w, 0, OpKind::Recv)[0].status, Ok(()));
    assert_eq!(w.hosts[0].memory.get(base, 10), b"last words");
}

/// No operation waited for the peer when it died. A later receive that names it does not wait for
/// ever, unless another process is there.
#[test]
fn receive_that_names_a_dead_peer_ends_at_once() {
    let mut w = world(13, Faults::default());
    meet(&mut w);
    w.crash(1);
    w.run(Span::millis(10), |_| false);
    assert!(w.hosts[0].done.is_empty());
    let directed = |w: &mut World, context: u64| {
        let (source, base) = (Some(w.peer(0, 1)), w.hosts[0].memory.alloc(5));
        let host = &mut w.hosts[0];
        let op = RecvOp {
            source,
            space: MatchSpace::Tagged,
            tag: 0,
            ignore: u64::MAX,
            buf: Buf::new(base, 5),
            context,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        host.engine.receive(w.now, &mut host.memory, op).expect("it may be posted");
    };
    directed(&mut w, 1);
    w.transmit_once(0);
    assert_eq!(of_kind(&w, 0, OpKind::Recv)[0].status, Err(OpError::TimedOut));
    w.restart(1, |config, _| config.shm = true);
    send(&mut w, 1, 5, b"again", Level::Default);
    assert!(w.run(DONE, |w| w.hosts[0].engine.unexpected_messages() == 1));
    directed(&mut w, 2);
    assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Recv).len() == 2));
    assert_eq!(of_kind(&w, 0, OpKind::Recv)[1].status, Ok(()));
}

#[test]
fn operations_use_packets_after_the_peer_closed_the_channel() {
    let mut w = world(3, Faults::default());
    meet(&mut w);
    w.hosts[1].engine.shutdown(w.now).step();
    w.run(Span::millis(1), |_| false);
    w.shm.lose(1);
    w.run(Span::millis(1), |_| false);
    assert!(w.hosts[0].done.is_empty(), "nothing failed");
    recv(&mut w, 1, Some(7), 5, 7);
    send(&mut w, 0, 7, b"still", Level::Delivery);
    assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Send).is_empty()));
    assert_eq!(of_kind(&w, 0, OpKind::Send)[0].status, Ok(()));
    assert!(w.hosts[0].engine.counters().1.tx_packets > 0);
}

/// Regression test: writes that moved from a channel to packets overtook each other, because over a
/// channel they need not wait for each other.
#[test]
fn order_is_kept_when_operations_move_to_packets() {
    let bad = Faults { drop: 0.1, reorder: 0.5, ..Faults::default() };
    let order = Order::NONE.with(OperationClasses::WRITE, OperationClasses::WRITE);
    for seed in 0..40 {
        let mut w =
            World::with(2, seed, bad, |config, _| (config.shm, config.order) = (true, order));
        meet(&mut w);
        let base = w.hosts[1].memory.alloc(4000);
        w.hosts[1].memory.register(78, base, 4000, false, true);
        for value in 1..=12 {
            let peer = w.peer(0, 1);
            let from = w.hosts[0].memory.put(&[value; 4000]);
            let remote = RemoteIov::One(RemoteSeg { address: 0, len: 4000, key: 78 });
            let context = u64::from(value);
            let op = RmaOp { peer, buf: Buf::new(from, 4000), remote, data: None, context };
            w.submit(0, op.write()).expect("there is room");
        }
        w.end_channels();
        assert!(w.run(DONE, |w| w.hosts[0].done.len() == 12), "seed {seed}");
        assert!(w.hosts[0].done.iter().all(|c| c.status.is_ok()), "seed {seed}");
        assert!(w.hosts[1].memory.get(base, 4000).iter().all(|b| *b == 12), "seed {seed}");
    }
}

#[test]
fn refused_channel_changes_nothing() {
    let mut w = world(4, Faults::default());
    w.shm.refused = true;
    recv(&mut w, 1, Some(1), 5, 1);
    send(&mut w, 0, 1, b"hello", Level::Match);
    assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Send).is_empty()));
    assert_eq!((shm_channels(&w), w.shm.carried), ([0, 0], 0));
}

#[test]
fn messages_without_room_stay_at_their_sender() {
    let mut w = World::with(2, 5, Faults::default(), |config, _| {
        (config.shm, config.unexpected_bytes) = (true, 10_000);
    });
    meet(&mut w);
    // Messages in the ring are kept, however short memory is.
    w.shm.room = 10_000;
    for tag in 100..120 {
        send(&mut w, 0, tag, &[tag as u8; 3000], Level::Default);
    }
    send(&mut w, 0, 7, b"behind", Level::Default);
    recv(&mut w, 1, Some(7), 6, 7);
    assert!(
        w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).len() == 1),
        "no operation behind them waits"
    );
    assert!(w.hosts[0].engine.counters().0.tx_deferred > 0);
    for tag in 100..120 {
        recv(&mut w, 1, Some(tag), 3000, tag);
    }
    assert!(w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).len() == 21));
    for got in of_kind(&w, 1, OpKind::Recv).iter().skip(1) {
        assert!(w.hosts[1].memory.get(got.buf, 3000).iter().all(|b| u64::from(*b) == got.tag));
    }
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
}

#[test]
fn short_message_is_sent_in_the_call_and_completes_at_its_level() {
    let mut w = world(8, Faults::default());
    meet(&mut w);
    let before = (w.hosts[0].engine.counters().0.shm_tx_records, w.hosts[0].done.len());
    for (tag, level) in [(1, Level::Default), (2, Level::Delivery), (3, Level::Match)] {
        send(&mut w, 0, tag, &[tag as u8; 200], level);
    }
    // The last one waits for an answer, so it is queued.
    assert_eq!(
        w.hosts[0].engine.counters().0.shm_tx_records - before.0,
        2,
        "the records are sent in the call"
    );
    w.run(Span::millis(1), |_| false);
    let ended = |w: &World| w.hosts[0].done[before.1..].iter().map(|c| c.tag).collect::<Vec<_>>();
    assert_eq!(ended(&w), [1, 2]);
    for tag in 1..=3 {
        recv(&mut w, 1, Some(tag), 200, tag);
    }
    assert!(w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).len() == 3));
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
    assert_eq!(ended(&w), [1, 2, 3]);
}

/// The sender keeps no copy of a message that it sends in the call. So the receiver keeps the
/// message, and shows when memory gets short. After that, only very short messages are sent in the
/// call.
#[test]
fn message_of_one_frame_is_sent_in_the_call_while_the_peer_has_memory() {
    let mut w = World::with(2, 22, Faults::default(), |config, _| {
        (config.shm, config.unexpected_bytes) = (true, 100_000);
    });
    w.peer(1, 0);
    meet(&mut w);
    let left_at_once = |w: &mut World, tag: u64, len: usize| {
        let before = w.hosts[0].engine.counters().0.shm_tx_records;
        send(w, 0, tag, &vec![tag as u8; len], Level::Default);
        let left = w.hosts[0].engine.counters().0.shm_tx_records - before;
        w.run(Span::millis(1), |_| false);
        left == 1
    };
    let early: Vec<bool> = (0..8).map(|tag| left_at_once(&mut w, tag, 16_384)).collect();
    assert_eq!(early, [true, true, true, true, false, false, false, false]);
    assert!(left_at_once(&mut w, 8, 200));
    let counters = *w.hosts[1].engine.counters().0;
    assert!(counters.unexpected_bytes <= 100_000 && counters.rx_deferred > 0, "{counters:?}");
    for tag in 0..9 {
        recv(&mut w, 1, Some(tag), 16_384, tag);
    }
    assert!(w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).len() == 9));
    for got in of_kind(&w, 1, OpKind::Recv) {
        assert_eq!((got.tag, got.status), (got.context, Ok(())));
        assert!(w.hosts[1].memory.get(got.buf, got.len).iter().all(|b| u64::from(*b) == got.tag));
    }
    // The room shown last is that before the receives.
    left_at_once(&mut w, 9, 16_384);
    assert!(left_at_once(&mut w, 10, 16_384), "there is room again");
    assert!(!left_at_once(&mut w, 11, 16_385), "more than a record");
}

/// A peer that announces bytes that it does not supply loses the channel. The receive that matched
/// its message ends with an error.
#[test]
fn receive_does_not_wait_for_missing_bytes_of_a_record() {
    let mut w = world(23, Faults::default());
    meet(&mut w);
    recv(&mut w, 1, Some(5), 4000, 5);
    send(&mut w, 0, 5, &[5; 4000], Level::Default);
    w.shm.empty_split_records();
    assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()), "it ends");
    assert_eq!(of_kind(&w, 1, OpKind::Recv)[0].status, Err(OpError::Closed));
    assert_eq!(w.hosts[1].engine.counters().0.rx_inconsistent, 1);
}

#[test]
fn short_message_does_not_overtake_queued_operations() {
    let mut w = world(9, Faults::default());
    meet(&mut w);
    w.shm.room = 20_000;
    for tag in 0..40 {
        let len = if tag % 4 == 3 { 10 } else { 16_000 };
        send(&mut w, 0, tag, &vec![tag as u8; len], Level::Default);
        if tag % 4 == 2 {
            // The peer takes what is in the ring. There is room again, and the last message waits.
            w.step();
        }
    }
    for context in 0..40 {
        recv(&mut w, 1, None, 16_000, context);
    }
    assert!(w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).len() == 40));
    let mut got: Vec<(u64, u64)> =
        of_kind(&w, 1, OpKind::Recv).iter().map(|c| (c.context, c.tag)).collect();
    got.sort_unstable();
    assert_eq!(got, (0..40).map(|n| (n, n)).collect::<Vec<_>>(), "they match in order");
}

#[test]
fn loss_of_untaken_short_messages_is_reported() {
    let mut w = world(10, Faults::default());
    meet(&mut w);
    w.crash(1);
    send(&mut w, 0, 1, b"told", Level::Default);
    send(&mut w, 0, 2, b"to be told", Level::Delivery);
    let failed = |w: &World| -> Vec<_> {
        let sends = of_kind(w, 0, OpKind::Send).into_iter();
        sends.filter(|c| c.status.is_err()).map(|c| (c.tag, c.status)).collect()
    };
    assert!(w.run(DONE, |w| !failed(w).is_empty()));
    assert_eq!(failed(&w), [(2, Err(OpError::TimedOut))]);
    assert_eq!(w.hosts[0].engine.counters().0.lost_after_completion, 1);
    let lost = |n: &Notice| matches!(n, Notice::LostAfterCompletion { .. });
    assert!(notices(&mut w, 0).iter().any(lost));
}

/// A receiver without room for messages takes what is in the ring already, and the sender sends no more messages.
/// Frames of all other kinds go on, whichever end sends them.
#[test]
fn answers_do_not_wait_for_messages_without_room() {
    for ordered in [false, true] {
        let mut w = World::with(2, 6, Faults::default(), |config, _| {
            (config.shm, config.max_unexpected) = (true, 4);
            if ordered {
                config.order = Order::NONE.with(OperationClasses::WRITE, OperationClasses::SEND);
            }
        });
        // These are so many that the ring does not hold all of them.
        w.shm.room = 2000;
        w.peer(1, 0);
        meet(&mut w);
        // Both ends offer a long message, and have sent more messages behind it than there is room for.
        let (long, short) = (vec![7; 100_000], [9; 9]);
        for from in [0, 1] {
            send(&mut w, from, 1000, &long, Level::Default);
            (0..200).for_each(|tag| send(&mut w, from, tag, &short, Level::Default));
        }
        w.run(Span::millis(1), |_| false);
        for at in [0, 1] {
            let waiting = w.hosts[at].engine.unexpected_messages();
            assert!((4..100).contains(&waiting), "{waiting}");
        }
        // Each end receives the long message first, then reads and writes memory of the other end
        // and gets its answers.
        let places = [0, 1].map(|at| recv(&mut w, at, Some(1000), 100_000, 1000));
        let (bytes, base) = read(&mut w, 50_000);
        let (written, region) = write(&mut w, 50_000);
        let got = |w: &World, at| of_kind(w, at, OpKind::Recv).iter().any(|c| c.context == 1000);
        assert!(w.run(DONE, |w| got(w, 0) && got(w, 1)));
        for at in [0, 1] {
            assert_eq!(w.hosts[at].memory.get(places[at], 100_000), long);
        }
        assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Read).is_empty()));
        assert_eq!(w.hosts[0].memory.get(base, 50_000), bytes);
        // Writes would wait if the application had been promised that writes follow messages.
        let there = |w: &World| !of_kind(w, 1, OpKind::RemoteWrite).is_empty();
        assert_eq!(w.run(Span::secs(2), there), !ordered);
        // No peer is given up. Once receives are posted, all messages arrive in their order.
        w.run(Span::secs(100), |_| false);
        for at in [0, 1] {
            w.hosts[at].done.retain(|c| c.kind != OpKind::Recv);
            for n in 0..200 {
                recv(&mut w, at, None, 9, n);
            }
            assert!(w.run(DONE, |w| of_kind(w, at, OpKind::Recv).len() == 200));
            let mut all = of_kind(&w, at, OpKind::Recv);
            all.sort_by_key(|c| c.context);
            assert!(all.iter().all(|c| c.status.is_ok() && c.tag == c.context));
        }
        assert!(w.run(DONE, |w| w.hosts.iter().all(|host| host.engine.is_idle())));
        assert_eq!(w.hosts[1].memory.get(region, 50_000), written);
        assert!(w.hosts.iter().all(|host| host.done.iter().all(|c| c.status.is_ok())));
    }
}

#[test]
fn invalid_frames_end_only_their_channel() {
    for seed in 0..300 {
        let mut w = world(7 + seed, Faults::default());
        meet(&mut w);
        let mut rng = Rng::new(seed);
        recv(&mut w, 1, Some(3), 5000, 3);
        recv(&mut w, 1, Some(4), 100_000, 4);
        send(&mut w, 0, 3, &[3; 5000], Level::Default);
        send(&mut w, 0, 4, &[4; 100_000], Level::Default);
        w.shm.scribble = Some(rng.next_u64());
        w.run(Span::secs(30), |w| w.hosts.iter().all(|h| h.engine.is_idle()));
        w.shm.scribble = None;
        // Both endpoints live and can communicate.
        let base = recv(&mut w, 1, Some(9), 5, 9);
        w.run(Span::secs(1), |_| false);
        send(&mut w, 0, 9, b"after", Level::Match);
        let got = |c: &Completion| c.kind == OpKind::Recv && c.context == 9;
        assert!(w.run(Span::secs(60), |w| w.hosts[1].done.iter().any(got)), "seed {seed}");
        let status = w.hosts[1].done.iter().find(|c| got(c)).expect("it is there").status;
        assert!(status.is_err() || w.hosts[1].memory.get(base, 5) == b"after", "seed {seed}");
    }
}

/// Registers `len` bytes at host 1 and reads them from host 0. Returns the bytes and the address of
/// the destination.
fn read(w: &mut World, len: usize) -> (Vec<u8>, u64) {
    let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
    let region = w.hosts[1].memory.put(&bytes);
    w.hosts[1].memory.register(77, region, len as u64, true, false);
    let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.alloc(len));
    let remote = RemoteIov::One(RemoteSeg { address: 0, len: len as u64, key: 77 });
    let buf = Buf::new(base, len as u64);
    w.submit(0, RmaOp { peer, buf, remote, data: None, context: 8 }.read()).expect("room");
    (bytes, base)
}

#[test]
fn long_answers_are_fetched_or_carried_in_records() {
    for unfetchable in [false, true] {
        let mut w = world(11, Faults::default());
        w.shm.unfetchable = unfetchable;
        meet(&mut w);
        let (bytes, base) = read(&mut w, 3_000_000);
        assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Read).is_empty()));
        assert_eq!(of_kind(&w, 0, OpKind::Read)[0].status, Ok(()));
        assert!(w.hosts[0].memory.get(base, bytes.len() as u64) == bytes);
        assert_eq!(w.shm.referred, if unfetchable { 0 } else { 3 });
    }
}

/// An offer to a waiting receive is copied at once. A receive that comes later reads the message.
#[test]
fn offer_is_fetched_if_a_receive_waits() {
    for (posted, unfetchable) in [(true, false), (false, false), (true, true)] {
        let mut w = world(20, Faults::default());
        meet(&mut w);
        w.shm.unfetchable = unfetchable;
        let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        let before = w.shm.carried;
        let mut base = 0;
        if posted {
            base = recv(&mut w, 1, Some(5), 100_000, 5);
        }
        send(&mut w, 0, 5, &data, Level::Default);
        if posted && !unfetchable {
            assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()));
            assert!(
                w.shm.carried - before <= 2,
                "one record for the offer, one for the end of the read"
            );
        } else {
            w.run(Span::millis(1), |_| false);
            if !posted {
                base = recv(&mut w, 1, Some(5), 100_000, 5);
            }
            assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()));
        }
        assert_eq!(of_kind(&w, 1, OpKind::Recv)[0].status, Ok(()));
        assert_eq!(w.hosts[1].memory.get(base, 100_000), data);
        assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Send).iter().any(|c| c.tag == 5)));
        assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
        assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()));
        assert_eq!(w.shm.referred, if unfetchable { 0 } else { 1 + u64::from(!posted) });
    }
}

/// An offer that does not fit is not copied as a whole: the receive reads as much as it has room
/// for.
#[test]
fn offer_is_read_as_far_as_it_fits() {
    let mut w = world(21, Faults::default());
    meet(&mut w);
    let base = recv(&mut w, 1, Some(5), 60_000, 5);
    send(&mut w, 0, 5, &[9; 100_000], Level::Default);
    assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()));
    let status = of_kind(&w, 1, OpKind::Recv)[0].status;
    assert_eq!(status, Err(OpError::Truncated { excess: 40_000 }));
    assert_eq!(w.hosts[1].memory.get(base, 60_000), [9; 60_000]);
    assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Send).iter().any(|c| c.tag == 5)));
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
    assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()));
}

fn write(w: &mut World, len: usize) -> (Vec<u8>, u64) {
    let bytes: Vec<u8> = (0..len).map(|n| (n * 5 + n / 253) as u8).collect();
    let region = w.hosts[1].memory.alloc(len);
    w.hosts[1].memory.register(78, region, len as u64, false, true);
    let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.put(&bytes));
    let remote = RemoteIov::One(RemoteSeg { address: 0, len: len as u64, key: 78 });
    let buf = Buf::new(base, len as u64);
    w.submit(0, RmaOp { peer, buf, remote, data: Some(7), context: 9 }.write()).expect("room");
    (bytes, region)
}

#[test]
fn long_writes_are_fetched_or_carried_in_records() {
    for unfetchable in [false, true] {
        for len in [0x4000, 0x4001, 2_500_000] {
            let mut w = world(11, Faults::default());
            w.shm.unfetchable = unfetchable;
            meet(&mut w);
            let (bytes, region) = write(&mut w, len);
            assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Write).is_empty()));
            assert_eq!(of_kind(&w, 0, OpKind::Write)[0].status, Ok(()));
            assert!(w.hosts[1].memory.get(region, len as u64) == bytes);
            let landed = of_kind(&w, 1, OpKind::RemoteWrite);
            assert_eq!((landed.len(), landed[0].data, landed[0].len), (1, Some(7), len as u64));
            let records = if unfetchable || len == 0x4000 { 0 } else { len.div_ceil(1 << 20) };
            assert_eq!(w.shm.referred, records as u64);
        }
    }
}

/// The engine waits for a payload that this process cannot read where it is, while its owner still lends it. The record
/// counts as taken when the bytes are in place, and not before.
#[test]
fn receiver_waits_for_a_delayed_payload() {
    for (kind, target) in [(OpKind::Read, 0), (OpKind::Write, 1)] {
        let mut w = world(13, Faults::default());
        meet(&mut w);
        w.hosts[target].memory.delays = 3;
        let (bytes, base) = match kind {
            OpKind::Read => read(&mut w, 2_500_000),
            _ => write(&mut w, 2_500_000),
        };
        assert!(w.run(Span::secs(60), |w| !of_kind(w, 0, kind).is_empty()));
        assert_eq!(of_kind(&w, 0, kind)[0].status, Ok(()));
        assert!(w.hosts[target].memory.get(base, bytes.len() as u64) == bytes);
        assert_eq!(w.shm.referred, 3);
        let held_back = w.hosts[target].engine.counters().0.rx_held_back;
        assert_eq!((w.hosts[target].memory.delays, held_back), (0, 3));
    }
}

/// The engine accepts an offer whose payload is delayed, and reads the message.
#[test]
fn delayed_offer_is_read() {
    let mut w = world(14, Faults::default());
    meet(&mut w);
    w.hosts[1].memory.delays = 1;
    let data: Vec<u8> = (0..100_000u32).map(|n| (n % 241) as u8).collect();
    let base = recv(&mut w, 1, Some(5), 100_000, 5);
    send(&mut w, 0, 5, &data, Level::Default);
    assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()));
    assert_eq!(of_kind(&w, 1, OpKind::Recv)[0].status, Ok(()));
    assert!(w.hosts[1].memory.get(base, 100_000) == data);
    assert_eq!(w.hosts[1].engine.counters().0.rx_held_back, 0);
    assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Send).iter().any(|c| c.tag == 5)));
}

#[test]
fn message_of_16_kib_is_one_record() {
    let mut w = world(20, Faults::default());
    meet(&mut w);
    let before = w.hosts[0].engine.counters().0.shm_tx_records;
    let base = recv(&mut w, 1, Some(5), 20_000, 5);
    let data: Vec<u8> = (0..0x4000).map(|n| (n * 3 + n / 255) as u8).collect();
    send(&mut w, 0, 5, &data, Level::Delivery);
    assert!(w.run(DONE, |w| !of_kind(w, 1, OpKind::Recv).is_empty()));
    assert!(w.hosts[1].memory.get(base, 0x4000) == data);
    assert_eq!(w.hosts[0].engine.counters().0.shm_tx_records - before, 1);
}

/// The key is checked for each record, so none of the remaining bytes is fetched.
#[test]
fn write_into_a_closed_region_is_refused() {
    let mut w = world(19, Faults::default());
    meet(&mut w);
    write(&mut w, 3_000_000);
    w.transmit_once(0);
    w.unregister(1, 78);
    assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Write).is_empty()));
    let refused = Err(OpError::Remote(ReturnCode::BadMkey));
    assert_eq!(of_kind(&w, 0, OpKind::Write)[0].status, refused);
    assert!(of_kind(&w, 1, OpKind::RemoteWrite).is_empty());
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
}

#[test]
fn revoked_memory_is_not_fetched() {
    let mut w = world(12, Faults::default());
    meet(&mut w);
    read(&mut w, 3_000_000);
    w.transmit_once(0);
    w.hosts[0].stopped = true;
    w.run(Span::millis(1), |_| false);
    assert_eq!(w.shm.referred, 3);
    w.unregister(1, 77);
    w.run(Span::millis(1), |_| false);
    w.resume(0, 0);
    assert!(w.run(DONE, |w| !of_kind(w, 0, OpKind::Read).is_empty()));
    let refused = Err(OpError::Remote(ReturnCode::BadMkey));
    assert_eq!(of_kind(&w, 0, OpKind::Read)[0].status, refused);
    assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())));
}

fn notices(w: &mut World, at: usize) -> Vec<Notice> {
    std::iter::from_fn(|| w.hosts[at].engine.poll_notice()).collect()
}

/// Starts an operation of host 0 that a stopped host 1 does not answer: a copied message, a lent
/// one, an offer, a read, or more than the ring holds.
fn begin(w: &mut World, what: usize) {
    match what {
        0 => send(w, 0, 9, b"short", Level::Delivery),
        1 => send(w, 0, 9, &[9; 20_000], Level::Transmit),
        2 => send(w, 0, 9, &[9; 1_000_000], Level::Default),
        3 => drop(read(w, 1_000_000)),
        _ => (0..20).for_each(|n| send(w, 0, 10 + n, &[9; 10_000], Level::Transmit)),
    }
}

/// A peer that lives and takes no records is given up like one over packets: when the deadline has
/// passed since the first untaken record was sent. Later records do not extend the deadline.
#[test]
fn peer_that_takes_no_frames_is_given_up_at_the_deadline() {
    for what in 0..5 {
        let mut w = World::with(2, 14, Faults::default(), |config, transport| {
            config.shm = true;
            transport.progress_deadline = Span::secs(40);
        });
        meet(&mut w);
        w.hosts[1].stopped = true;
        let start = w.now;
        begin(&mut w, what);
        w.run(Span::millis(9_900), |_| false);
        assert_eq!(notices(&mut w, 0), []);
        w.run(Span::secs(25), |_| false);
        let told = notices(&mut w, 0);
        assert!(matches!(told[..], [Notice::Silent { .. }]), "{what}: {told:?}");
        begin(&mut w, 1);
        let kind = if what == 3 { OpKind::Read } else { OpKind::Send };
        assert!(w.run(Span::secs(60), |w| !of_kind(w, 0, kind).is_empty()), "{what}");
        let took = w.now.since(start);
        assert!(took >= Span::secs(40) && took < Span::secs(41), "{what}: {took:?}");
        let ended: Vec<_> = w.hosts[0].done.iter().map(|done| done.status).collect();
        assert!(ended.iter().all(|end| *end == Err(OpError::TimedOut)), "{what}: {ended:?}");
        w.run(Span::secs(1), |_| false);
        assert!(w.hosts[0].engine.is_idle(), "{what}");
        // The peer continues, notices that it was given up, and both verify each other again.
        w.resume(1, usize::MAX);
        w.run(Span::secs(1), |_| false);
        w.hosts.iter_mut().for_each(|host| host.done.clear());
        recv(&mut w, 1, Some(1), 5, 77);
        send(&mut w, 0, 1, b"again", Level::Match);
        assert!(w.run(DONE, |w| of_kind(w, 1, OpKind::Recv).iter().any(|c| c.context == 77)));
        assert!(w.run(DONE, |w| shm_channels(w) == [2, 2]), "{what}");
    }
}

/// A peer that stopped in the middle of its messages is given up, and the receives that name it end with errors, so their
/// buffers belong to the application again. When the peer goes on, neither its earlier data nor its new data may be
/// placed in those buffers.
#[test]
fn late_data_of_a_peer_that_was_given_up_changes_nothing() {
    let mut failed = 0;
    for seed in 0..60 {
        let mut w = world(seed, Faults::default());
        meet(&mut w);
        (w.shm.room, w.shm.unfetchable) = (16 << 10, seed % 2 == 0);
        let from = w.peer(0, 1);
        let sizes = [9, 20_000, 100_000, 300_000, 1_000_000];
        let host = &mut w.hosts[0];
        for (context, len) in (100..).zip(sizes.iter().cycle().take(15)) {
            let base = host.memory.alloc(*len);
            // The loan ends with the receive: from then on a write to the buffer fails the test.
            host.lent.insert(context, Lent { base, multi: false });
            let op = RecvOp {
                source: Some(from),
                space: MatchSpace::Tagged,
                tag: context,
                ignore: 0,
                buf: Buf::new(base, *len as u64),
                context,
                visibility: Visibility::Entry,
                mode: RecvMode::Post,
            };
            host.engine.receive(w.now, &mut host.memory, op).expect("it may be posted");
        }
        for (tag, len) in (100..).zip(sizes.iter().cycle().take(15)) {
            send(&mut w, 1, tag, &vec![7; *len], Level::Default);
        }
        for _ in 0..seed % 12 {
            w.transmit_once(1);
        }
        w.hosts[1].stopped = true;
        send(&mut w, 0, 9, b"are you there?", Level::Delivery);
        w.run(Span::secs(60), |_| false);
        let ended = of_kind(&w, 0, OpKind::Recv);
        assert_eq!(ended.len(), 15, "seed {seed}");
        failed += ended.iter().filter(|done| done.status.is_err()).count();
        w.resume(1, usize::MAX);
        for tag in 100..115 {
            send(&mut w, 1, tag, b"late", Level::Default);
        }
        w.run(Span::secs(5), |_| false);
    }
    assert!(failed > 100, "{failed} receives ended with an error");
}

/// The kernel would report the end of the peer's process, so the engine waits for the peer, whatever was in progress.
/// The application gets a report each minute. Then every operation ends well.
#[test]
fn engine_waits_for_a_stopped_peer_whose_process_lives() {
    for what in 0..5 {
        let mut w = World::with(2, 14, Faults::default(), |config, transport| {
            config.shm = true;
            transport.progress_deadline = Span::secs(40);
        });
        w.shm.watched = true;
        meet(&mut w);
        w.hosts[1].stopped = true;
        begin(&mut w, what);
        w.run(Span::secs(130), |_| false);
        assert!(of_kind(&w, 0, OpKind::Send).iter().all(|done| done.status.is_ok()), "{what}");
        let told = notices(&mut w, 0);
        let lives = |notice: &Notice| {
            matches!(notice, Notice::Silent { limit: WaitLimit::ProcessLives, .. })
        };
        assert!(told.len() == 3 && told.iter().all(lives), "{what}: {told:?}");
        w.resume(1, usize::MAX);
        for n in 0..21 {
            recv(&mut w, 1, None, 1_000_000, 100 + n);
        }
        assert!(w.run(DONE, |w| w.hosts[0].engine.is_idle()), "{what}");
        assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()), "{what}");
        assert_eq!(shm_channels(&w), [1, 1], "{what}");
    }
}

/// The peer takes some records and then stops. The wait starts when it last took one.
#[test]
fn peer_that_stops_half_way_is_given_up_after_a_deadline() {
    let mut w = world(15, Faults::default());
    meet(&mut w);
    begin(&mut w, 4);
    w.run(Span::secs(8), |_| false);
    w.hosts[1].stopped = true;
    let start = w.now;
    send(&mut w, 0, 9, b"more", Level::Delivery);
    let failed = |w: &World| w.hosts[0].done.iter().any(|done| done.status.is_err());
    assert!(w.run(Span::secs(60), failed));
    let took = w.now.since(start);
    assert!(took >= DEADLINE && took < DEADLINE + Span::secs(1), "{took:?}");
}

#[test]
fn engine_waits_for_a_stopped_process_and_its_own_absence_does_not_count() {
    for who in [0, 1] {
        for what in 0..5 {
            let mut w = world(16, Faults::default());
            meet(&mut w);
            begin(&mut w, what);
            w.transmit_once(0);
            w.hosts[who].stopped = true;
            w.run(Span::secs(if who == 0 { 100 } else { 9 }), |_| false);
            w.resume(who, usize::MAX);
            for tag in 9..30 {
                recv(&mut w, 1, Some(tag), 1_000_000, tag);
            }
            assert!(w.run(DONE, |w| w.hosts.iter().all(|h| h.engine.is_idle())), "{who} {what}");
            assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()), "{who} {what}");
        }
    }
}

/// A peer without room reports that, and the engine waits as long as it does.
#[test]
fn engine_waits_for_a_peer_without_room() {
    let mut w = World::with(2, 17, Faults::default(), |config, _| {
        (config.shm, config.max_unexpected) = (true, 4);
    });
    meet(&mut w);
    for tag in 0..40 {
        send(&mut w, 0, tag, &[tag as u8; 4000], Level::Delivery);
    }
    w.run(Span::secs(1000), |_| false);
    assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()));
    assert_eq!(notices(&mut w, 0), []);
    // The receiver keeps as many messages as it has room for, plus those that were in the ring by
    // then.
    let waiting = w.hosts[1].engine.unexpected_messages();
    assert!((4..30).contains(&waiting), "{waiting}");
    for tag in 0..40 {
        recv(&mut w, 1, Some(tag), 4000, tag);
    }
    assert!(w.run(DONE, |w| of_kind(w, 0, OpKind::Send).len() == 40));
    assert!(w.hosts.iter().all(|h| h.done.iter().all(|done| done.status.is_ok())));
}

/// A peer that no longer admits this endpoint closes the channel. The next operation fails with
/// that close, whether or not it was noticed before; later ones fail because this endpoint is not
/// listed.
#[test]
fn removed_endpoint_gets_one_close_error_and_then_is_not_listed() {
    for noticed in [true, false] {
        let mut w = World::with(2, 18, Faults::default(), |config, _| {
            (config.shm, config.named_only) = (true, config.port == 5001);
        });
        let addr = w.hosts[0].addr;
        w.hosts[1].engine.name_peers(w.now, [(addr, None)]);
        meet(&mut w);
        w.hosts[1].engine.name_peers(w.now, []);
        if noticed {
            w.run(Span::millis(5), |_| false);
        }
        assert!(w.hosts[0].done.is_empty(), "nothing was under way");
        for (n, error) in [OpError::Closed, OpError::NotListed].into_iter().enumerate() {
            send(&mut w, 0, 9, b"hello?", Level::Delivery);
            assert!(w.run(Span::secs(40), |w| w.hosts[0].done.len() > n));
            assert_eq!(w.hosts[0].done[n].status, Err(error), "{noticed}");
        }
    }
}
