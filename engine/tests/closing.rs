//! An endpoint that closes before a peer has heard that what it sent arrived.

mod world;

use std::net::SocketAddr;

use squall_base::{Span, Time};
use squall_engine::*;
use world::*;

/// After this time whoever waits for an acknowledgement sends again.
const PATIENT: Span = Span::millis(200);

/// No process waits longer for its peers.
const LONG: Span = Span::secs(30);

fn world(seed: u64) -> World {
    World::with(2, seed, Faults::default(), |_, transport| {
        (transport.rto_init, transport.rto_min) = (PATIENT, PATIENT);
    })
}

fn send(w: &mut World, context: u64) {
    send_bytes(w, context, 100, Level::Transmit);
}

fn send_bytes(w: &mut World, context: u64, len: usize, level: Level) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(&vec![7; len]);
    let action = Action::Message { space: MatchSpace::Tagged, tag: context };
    let options = Options { level, ..Options::default() };
    let buf = Buf::new(base, len as u64);
    w.submit(0, Operation { peer, action, buf, data: None, context, options }).unwrap();
}

fn receive(w: &mut World, context: u64) {
    receive_bytes(w, context, 100);
}

fn receive_bytes(w: &mut World, context: u64, len: usize) {
    let base = w.hosts[1].memory.alloc(len);
    let host = &mut w.hosts[1];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag: context,
        ignore: 0,
        buf: Buf::new(base, len as u64),
        context,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|done| done.context == context).map(|done| done.status)
}

fn from_receiver(src: SocketAddr, _: &[u8]) -> bool {
    src.ip().to_string() == "10.0.0.2"
}

/// A message that arrived; its sender has not heard of it.
fn unconfirmed(seed: u64) -> World {
    let mut w = world(seed);
    for context in 1..=2 {
        receive(&mut w, context);
    }
    send(&mut w, 1);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    w.mute = Some(from_receiver);
    send(&mut w, 2);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 2) == Some(Ok(()))));
    w.run(Span::micros(100), |_| false);
    w
}

/// Host 1 closes as a process does that ends: until nobody needs it. When that was.
fn leave(w: &mut World) -> Time {
    close(w, 1)
}

fn close(w: &mut World, at: usize) -> Time {
    let limit = w.now + LONG;
    while w.hosts[at].engine.closing(w.now).step() {
        assert!(w.now < limit, "leaves some day");
        w.run(Span::millis(1), |_| false);
    }
    w.hosts[at].dead = true;
    w.now
}

#[test]
fn who_closes_stays_until_its_peers_know_that_what_they_sent_arrived() {
    let mut w = unconfirmed(1);
    w.mute = None;
    let begun = w.now;
    let left = leave(&mut w);
    assert!(w.run(DEADLINE * 2, |w| end(w, 0, 2).is_some()));
    assert_eq!(end(&w, 0, 2), Some(Ok(())));
    assert!(left.since(begun) < PATIENT * 2, "and no longer: {:?}", left.since(begun));
}

#[test]
fn who_closes_does_not_wait_where_everything_is_known() {
    let mut w = unconfirmed(2);
    w.mute = None;
    assert!(w.run(Span::secs(1), |w| end(w, 0, 2).is_some()));
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= Span::millis(2), "{:?}", left.since(begun));
}

#[test]
fn who_closes_does_not_wait_for_a_peer_that_is_gone() {
    let mut w = unconfirmed(3);
    (w.mute, w.refuses) = (None, true);
    w.crash(0);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= PATIENT, "its host says so: {:?}", left.since(begun));

    let mut w = unconfirmed(4);
    w.crash(0);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= Span::secs(3), "nobody says so: {:?}", left.since(begun));

    // One of which nothing was heard for so long that it would have asked again.
    let mut w = unconfirmed(5);
    w.hosts[0].stopped = true;
    w.run(Span::secs(5), |_| false);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= Span::millis(2), "{:?}", left.since(begun));
}

/// Two that know each other.
fn acquainted(seed: u64, adjust: impl Fn(&mut Config)) -> World {
    let mut w = World::with(2, seed, Faults::default(), |config, _| adjust(config));
    receive(&mut w, 1);
    send(&mut w, 1);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some() && end(w, 1, 1).is_some()));
    w
}

/// fi_endpoint(3): outstanding operations are discarded, with no completions reported.
#[test]
fn who_closes_does_not_wait_for_receives() {
    for (seed, len, level) in [(6, 100_000, Level::Default), (7, 100, Level::Match)] {
        let mut w = acquainted(seed, |_| {});
        send_bytes(&mut w, 2, len, level);
        w.run(Span::secs(1), |_| false);
        assert!(!w.hosts[0].engine.idle(), "a message of {len} waits");
        w.hosts[0].engine.closing(w.now).drop_untaken();
        assert!(w.run(Span::millis(1), |w| w.hosts[0].engine.idle()), "a message of {len}");
        assert_eq!(end(&w, 0, 2), None, "without a word");
        close(&mut w, 0);
        // Who receives it later has its bytes, or learns that nobody has them.
        w.refuses = true;
        receive_bytes(&mut w, 2, len);
        assert!(w.run(DEADLINE * 2, |w| end(w, 1, 2).is_some()), "a receive of {len} ends");
        assert_eq!(end(&w, 1, 2) == Some(Ok(())), level == Level::Match);
    }
}

/// What has a receive goes on, and what was complete when it was copied is waited for.
#[test]
fn who_closes_finishes_what_is_read_and_what_it_believes_sent() {
    let mut w = acquainted(8, |_| {});
    send_bytes(&mut w, 2, 1_000_000, Level::Default);
    receive_bytes(&mut w, 2, 1_000_000);
    assert!(w.run(Span::secs(1), |w| w.hosts[1].engine.counters().0.rx_payload_bytes > 1000));
    assert_eq!(end(&w, 1, 2), None, "half-way");
    w.hosts[0].engine.closing(w.now).drop_untaken();
    assert!(w.run(Span::secs(1), |w| end(w, 1, 2).is_some() && end(w, 0, 2).is_some()));
    assert_eq!((end(&w, 1, 2), end(&w, 0, 2)), (Some(Ok(())), Some(Ok(()))));

    // The receiver keeps none that it has no receive for: the sender does, in copies.
    let mut w = acquainted(9, |config| config.max_unexpected = 0);
    send_bytes(&mut w, 2, 5000, Level::Default);
    w.run(Span::secs(1), |_| false);
    assert_eq!(end(&w, 0, 2), Some(Ok(())), "complete when it was copied");
    assert!(w.hosts[0].engine.copied_bytes() > 0, "and deferred");
    w.hosts[0].engine.closing(w.now).drop_untaken();
    w.run(Span::secs(1), |_| false);
    assert!(!w.hosts[0].engine.idle(), "it is waited for");
    receive_bytes(&mut w, 2, 5000);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 2).is_some() && w.hosts[0].engine.idle()));
    assert_eq!(end(&w, 1, 2), Some(Ok(())));
}
