//! Access control of an endpoint: the job's key, peers that the user named, and the time after
//! which other peers are forgotten.

use std::net::SocketAddr;

use crate::world::*;
use squall_base::{JobKey, Span};
use squall_engine::*;
use squall_wire::{Handshake, Packet, Reason, Stage, parse};

/// Host `from` sends ten bytes with a tag, which is also the operation's context.
fn send(w: &mut World, from: usize, to: usize, tag: u64) {
    let peer = w.peer(from, to);
    let base = w.hosts[from].memory.put(&[tag as u8; 10]);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, 10),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

/// Host `at` posts a receive for ten bytes with a tag. The operation's context is `1000 + tag`.
fn recv(w: &mut World, at: usize, tag: u64) {
    let base = w.hosts[at].memory.alloc(10);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, 10),
        context: 1000 + tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Returns the status of the operation with this context at a host, if it has ended.
fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|c| c.context == context).map(|c| c.status)
}

fn counters(w: &World, at: usize) -> Counters {
    *w.hosts[at].engine.counters().0
}

/// Returns the handshake in a packet, if it has one.
fn introduction(bytes: &[u8]) -> Option<Handshake> {
    match parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
        _ => None,
    }
}

/// Creates two hosts with the given keys; 0 means no key.
fn keyed(seed: u64, keys: [u8; 2]) -> World {
    World::with(2, seed, Faults::default(), |config, _| {
        let key = keys[usize::from(config.port - 5000)];
        config.key = (key > 0).then(|| JobKey::new(&[key; 16]));
    })
}

#[test]
fn endpoints_with_the_same_key_verify_each_other() {
    let mut w = keyed(1, [7, 7]);
    for (from, to, tag) in [(0, 1, 5), (1, 0, 6)] {
        recv(&mut w, to, tag);
        send(&mut w, from, to, tag);
        assert!(w.run(Span::secs(1), |w| end(w, to, 1000 + tag).is_some()));
        assert_eq!(end(&w, to, 1000 + tag), Some(Ok(())));
    }
    assert_eq!(counters(&w, 0).rx_unauthorised + counters(&w, 1).rx_unauthorised, 0);
}

/// Both directions are tested, because either side may lack the key. An answer without a proof may be
/// an attacker's, so an endpoint with a key waits a while for another one.
#[test]
fn endpoints_with_different_keys_get_an_error_and_deliver_nothing() {
    for keys in [[7, 8], [0, 7], [7, 0]] {
        let mut w = keyed(2, keys);
        recv(&mut w, 1, 5);
        send(&mut w, 0, 1, 5);
        assert!(w.run(Span::secs(5), |w| end(w, 0, 5).is_some()), "{keys:?}");
        assert_eq!(end(&w, 0, 5), Some(Err(OpError::OtherKey)), "{keys:?}");
        w.run(Span::secs(5), |_| false);
        assert_eq!(end(&w, 1, 1005), None, "{keys:?}");
        assert!(w.hosts[1].engine.contexts().next().is_none(), "{keys:?}");
        assert_eq!(counters(&w, 0).rx_unauthorised + counters(&w, 1).rx_unauthorised, 1);
    }
}

/// With a key, an observer of a handshake who repeats its values opens no context, because the
/// values do not reveal the shared secret.
#[test]
fn observed_handshake_does_not_allow_a_confirmation_without_the_key() {
    let mut w = keyed(3, [7, 7]);
    w.tap = Some(vec![]);
    send(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 5).is_some()));
    let seen: Vec<Handshake> =
        w.tap.take().unwrap().iter().filter_map(|seen| introduction(&seen.bytes)).collect();
    let of =
        |stage| *seen.iter().find(|intro| intro.stage == stage).expect("the challenge was sent");
    let (hello, confirm) = (of(Stage::Hello), of(Stage::Confirm));
    assert!(hello.proof == [0; 16] && confirm.proof != [0; 16]);
    // An observer at its own address asks, and answers with the proof that it saw.
    let observer = SocketAddr::from(([10, 0, 0, 9], 4000));
    let ask = |w: &mut World, intro: Handshake| {
        let mut out = [0; Handshake::LEN];
        let len = intro.emit(&mut out);
        w.tap = Some(vec![]);
        let to = w.hosts[1].addr;
        w.inject(observer, to, PacketMarks::default(), &out[..len]);
        w.run(Span::millis(1), |_| false);
        let seen = w.tap.take().unwrap();
        seen.iter().find(|seen| seen.dst == observer).and_then(|seen| introduction(&seen.bytes))
    };
    let challenge = ask(&mut w, Handshake { port: 4000, ..hello }).expect("an answer");
    assert_eq!(challenge.stage, Stage::Challenge);
    let forged = Handshake { port: 4000, cookie: challenge.cookie, ..confirm };
    let answer = ask(&mut w, forged).expect("an answer");
    assert_eq!((answer.stage, answer.reason), (Stage::Refuse, Reason::Key));
    // The answerer's own proof does not help either.
    let forged = Handshake { proof: challenge.proof, ..forged };
    assert_eq!(ask(&mut w, forged).expect("an answer").reason, Reason::Key);
    assert_eq!(w.hosts[1].engine.peers().find(observer), None);
}

/// Creates a world whose second host admits only peers that its user names.
fn choosy(seed: u64) -> World {
    World::with(2, seed, Faults::default(), |config, _| config.named_only = config.port == 5001)
}

#[test]
fn unnamed_peer_waits_and_fails_at_the_deadline() {
    let mut w = choosy(4);
    recv(&mut w, 1, 5);
    send(&mut w, 0, 1, 5);
    w.run(Span::secs(2), |_| false);
    assert_eq!((end(&w, 0, 5), end(&w, 1, 1005)), (None, None));
    assert!(counters(&w, 1).rx_unlisted > 3);
    // The user of host 1 names host 0.
    let (addr, now) = (w.hosts[0].addr, w.now);
    w.hosts[1].engine.name_peers(now, [(addr, None)]);
    assert!(w.run(Span::secs(2), |w| end(w, 1, 1005).is_some() && end(w, 0, 5).is_some()));
    assert_eq!((end(&w, 0, 5), end(&w, 1, 1005)), (Some(Ok(())), Some(Ok(()))));
    // The user takes the name back: existing contexts end, and new operations fail.
    let now = w.now;
    w.hosts[1].engine.name_peers(now, []);
    assert!(w.hosts[1].engine.contexts().next().is_none());
    for (tag, error) in [(6, OpError::Closed), (7, OpError::NotListed)] {
        recv(&mut w, 1, tag);
        send(&mut w, 0, 1, tag);
        assert!(w.run(Span::secs(40), |w| end(w, 0, tag).is_some()));
        assert_eq!((end(&w, 0, tag), end(&w, 1, 1000 + tag)), (Some(Err(error)), None));
    }
}

#[test]
fn only_the_named_instance_at_an_address_is_accepted() {
    for right in [true, false] {
        let mut w = choosy(7);
        let config = engine_config(76, 5000);
        let own = config.instance;
        w.hosts[0].engine = Engine::new(config, pdc_config(76));
        let (addr, now) = (w.hosts[0].addr, w.now);
        let other = engine_config(77, 5000);
        let meant = if right { own } else { other.instance };
        w.hosts[1].engine.name_peers(now, [(addr, Some(meant))]);
        recv(&mut w, 1, 5);
        send(&mut w, 0, 1, 5);
        assert_eq!(w.run(Span::secs(2), |w| end(w, 1, 1005).is_some()), right);
    }
}

#[test]
fn peer_of_an_endpoint_that_admits_named_peers_may_answer() {
    let mut w = choosy(5);
    send(&mut w, 1, 0, 5);
    recv(&mut w, 0, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1005).is_some()));
    send(&mut w, 0, 1, 6);
    recv(&mut w, 1, 6);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1006).is_some()));
}

/// Unused, unnamed peers are forgotten. In this test each of them has sent a message that no
/// receive took for a while.
#[test]
fn unused_unnamed_peers_are_forgotten() {
    let (mut w, crowd) = (World::new(2, 6, Faults::default()), 1100);
    let mut messages = 0;
    let mut most = 0;
    for round in 0..3u64 {
        for n in 0..crowd {
            // The peer is another process at another port of the first host.
            let port = 10_000 + round as u16 * crowd + n;
            let seed = u64::from(port);
            w.hosts[0].addr.set_port(port);
            w.hosts[0].engine = Engine::new(engine_config(seed, port), pdc_config(seed));
            send(&mut w, 0, 1, 5);
            assert!(w.run(Span::secs(1), |w| end(w, 0, 5).is_some()));
            w.hosts[0].done.clear();
            messages += 1;
            most = most.max(w.hosts[1].engine.peers().count());
        }
        assert_eq!(w.hosts[1].engine.unexpected_messages(), messages);
        // All messages but one are received, and all contexts end.
        while messages > 1 {
            recv(&mut w, 1, 5);
            messages -= 1;
        }
        w.run(Span::secs(200), |_| false);
    }
    // The messages that were left keep their senders known.
    let forgotten = counters(&w, 1).peers_forgotten;
    assert!(
        forgotten >= u64::from(crowd) && most < 2 * usize::from(crowd) + 300,
        "{forgotten} {most}"
    );
    recv(&mut w, 1, 5);
    let last = w.hosts[1].done.last().and_then(|done| done.peer).expect("a message");
    assert_eq!(w.hosts[1].engine.peers().get(last).addr().ip(), w.hosts[0].addr.ip());
}

/// An unreported loss refers to its peer, so another peer must not get the same id.
#[test]
fn peer_with_an_unreported_loss_is_not_forgotten() {
    let mut w = World::new(2, 8, Faults::default());
    send(&mut w, 1, 0, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 5).is_some()));
    let lost = w.hosts[0].addr;
    w.hosts[0].dead = true;
    let (peer, base) = (w.peer(1, 0), w.hosts[1].memory.put(&[1; 10]));
    // The send is complete when it is copied.
    let op = injected(peer, MatchSpace::Tagged, 5, Buf::new(base, 10), None);
    let options = Options { visibility: Visibility::Entry, ..op.options };
    w.submit(1, Operation { options, ..op }).unwrap();
    w.run(Span::secs(60), |_| false);
    // The user no longer names the peer, and enough others connect to start a search for peers to
    // forget.
    let now = w.now;
    w.hosts[1].engine.name_peers(now, []);
    w.hosts[0].dead = false;
    for round in 0..2 {
        for n in 0..1100 {
            let port = 10_000 + round * 1100 + n;
            let seed = u64::from(port);
            w.hosts[0].addr.set_port(port);
            w.hosts[0].engine = Engine::new(engine_config(seed, port), pdc_config(seed));
            send(&mut w, 0, 1, 6);
            assert!(w.run(Span::secs(1), |w| end(w, 0, 6).is_some()));
            w.hosts[0].done.clear();
            recv(&mut w, 1, 6);
        }
        w.run(Span::secs(200), |_| false);
    }
    assert!(counters(&w, 1).peers_forgotten >= 1000);
    assert_eq!(w.hosts[1].engine.peers().find(lost), Some(peer));
    w.hosts[1].done.clear();
    recv(&mut w, 1, 7);
    w.run(Span::millis(1), |_| false);
    let told: Vec<_> = w.hosts[1].done.iter().map(|done| (done.peer, done.status)).collect();
    assert_eq!(told, [(Some(peer), Err(OpError::TimedOut))]);
}
