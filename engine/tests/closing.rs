//! Shutdown of an endpoint before its peers have received acknowledgements of what they sent.

use std::net::SocketAddr;

use crate::world::*;
use squall_base::{Span, Time};
use squall_engine::*;

/// Time within which a sender that waits for an acknowledgement retransmits.
const PATIENT: Span = Span::millis(200);

/// Longest time that a process waits for its peers at shutdown.
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

/// Creates a world in which a message has arrived whose sender has received no acknowledgement.
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

/// Closes host 1 like a process that exits, as soon as no peer needs it. Returns the time at which
/// that is.
fn leave(w: &mut World) -> Time {
    close(w, 1)
}

fn close(w: &mut World, at: usize) -> Time {
    let limit = w.now + LONG;
    while w.hosts[at].engine.shutdown(w.now).step() {
        assert!(w.now < limit, "the endpoint closes within the limit");
        w.run(Span::millis(1), |_| false);
    }
    w.hosts[at].dead = true;
    w.now
}

#[test]
fn closing_endpoint_stays_until_its_peers_have_their_acknowledgements() {
    let mut w = unconfirmed(1);
    w.mute = None;
    let begun = w.now;
    let left = leave(&mut w);
    assert!(w.run(DEADLINE * 2, |w| end(w, 0, 2).is_some()));
    assert_eq!(end(&w, 0, 2), Some(Ok(())));
    assert!(
        left.since(begun) < PATIENT * 2,
        "the endpoint waits no longer: {:?}",
        left.since(begun)
    );
}

#[test]
fn closing_endpoint_does_not_wait_if_everything_is_acknowledged() {
    let mut w = unconfirmed(2);
    w.mute = None;
    assert!(w.run(Span::secs(1), |w| end(w, 0, 2).is_some()));
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= Span::millis(2), "{:?}", left.since(begun));
}

#[test]
fn closing_endpoint_does_not_wait_for_a_lost_peer() {
    let mut w = unconfirmed(3);
    (w.mute, w.refuses) = (None, true);
    w.crash(0);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(
        left.since(begun) <= PATIENT,
        "the peer's host reports the closed port: {:?}",
        left.since(begun)
    );

    let mut w = unconfirmed(4);
    w.crash(0);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(
        left.since(begun) <= Span::secs(3),
        "the peer's host reports nothing: {:?}",
        left.since(begun)
    );

    // The peer was silent for so long that it would have retransmitted.
    let mut w = unconfirmed(5);
    w.hosts[0].stopped = true;
    w.run(Span::secs(5), |_| false);
    let begun = w.now;
    let left = leave(&mut w);
    assert!(left.since(begun) <= Span::millis(2), "{:?}", left.since(begun));
}

/// Creates two hosts that have verified each other.
fn acquainted(seed: u64, adjust: impl Fn(&mut Config)) -> World {
    let mut w = World::with(2, seed, Faults::default(), |config, _| adjust(config));
    receive(&mut w, 1);
    send(&mut w, 1);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some() && end(w, 1, 1).is_some()));
    w
}

/// fi_endpoint(3): outstanding operations are discarded, with no completions reported.
#[test]
fn closing_endpoint_does_not_wait_for_receives() {
    for (seed, len, level) in [(6, 100_000, Level::Default), (7, 100, Level::Match)] {
        let mut w = acquainted(seed, |_| {});
        send_bytes(&mut w, 2, len, level);
        w.run(Span::secs(1), |_| false);
        assert!(!w.hosts[0].engine.is_idle(), "the message of {len} bytes waits for a receive");
        w.hosts[0].engine.shutdown(w.now).drop_unmatched_sends();
        assert!(w.run(Span::millis(1), |w| w.hosts[0].engine.is_idle()), "a message of {len}");
        assert_eq!(end(&w, 0, 2), None, "no completion is reported");
        close(&mut w, 0);
        // A later receive gets the data, or an error if no process has it.
        w.refuses = true;
        receive_bytes(&mut w, 2, len);
        assert!(w.run(DEADLINE * 2, |w| end(w, 1, 2).is_some()), "a receive of {len} ends");
        assert_eq!(end(&w, 1, 2) == Some(Ok(())), level == Level::Match);
    }
}

/// A send with a receive continues, and sends that completed when they were copied are waited for.
#[test]
fn closing_endpoint_finishes_reads_and_completed_sends() {
    let mut w = acquainted(8, |_| {});
    send_bytes(&mut w, 2, 1_000_000, Level::Default);
    receive_bytes(&mut w, 2, 1_000_000);
    assert!(w.run(Span::secs(1), |w| w.hosts[1].engine.counters().0.rx_payload_bytes > 1000));
    assert_eq!(end(&w, 1, 2), None, "the operation is incomplete");
    w.hosts[0].engine.shutdown(w.now).drop_unmatched_sends();
    assert!(w.run(Span::secs(1), |w| end(w, 1, 2).is_some() && end(w, 0, 2).is_some()));
    assert_eq!((end(&w, 1, 2), end(&w, 0, 2)), (Some(Ok(())), Some(Ok(()))));

    // The receiver keeps no message without a receive, so the sender keeps copies.
    let mut w = acquainted(9, |config| config.max_unexpected = 0);
    send_bytes(&mut w, 2, 5000, Level::Default);
    w.run(Span::secs(1), |_| false);
    assert_eq!(end(&w, 0, 2), Some(Ok(())), "the send completes when it is copied");
    assert!(w.hosts[0].engine.copied_bytes() > 0, "the message is deferred");
    w.hosts[0].engine.shutdown(w.now).drop_unmatched_sends();
    w.run(Span::secs(1), |_| false);
    assert!(!w.hosts[0].engine.is_idle(), "it is waited for");
    receive_bytes(&mut w, 2, 5000);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 2).is_some() && w.hosts[0].engine.is_idle()));
    assert_eq!(end(&w, 1, 2), Some(Ok(())));
}
