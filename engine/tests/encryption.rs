//! Endpoints that encrypt: who talks to whom, lost and late packets, and peers that have forgotten
//! the secret.

use std::net::SocketAddr;

use crate::world::*;
use squall_base::{JobKey, Span};
use squall_engine::*;
use squall_seal::OpenError;
use squall_wire::{Handshake, Packet, Reason, Stage, parse};

/// Host `from` sends 3000 bytes with a tag, which is also the operation's context. Host `to`
/// receives them; the context there is `1000 + tag`.
fn exchange(w: &mut World, from: usize, to: usize, tag: u64) {
    let base = w.hosts[to].memory.alloc(3000);
    let host = &mut w.hosts[to];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, 3000),
        context: 1000 + tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    let peer = w.peer(from, to);
    let base = w.hosts[from].memory.put(&[tag as u8; 3000]);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, 3000),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

/// Returns the status of the operation with this context at a host, if it has ended.
fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|c| c.context == context).map(|c| c.status)
}

/// Creates two hosts with one key, which encrypt or not.
fn hosts(seed: u64, faults: Faults, encrypts: [bool; 2]) -> World {
    let mut w = World::with(2, seed, faults, |config, _| {
        config.key = Some(JobKey::new(&[7; 16]));
        config.encrypts = encrypts[usize::from(config.port - 5000)];
    });
    for (host, encrypts) in w.hosts.iter_mut().zip(encrypts) {
        host.keys = encrypts.then(Keys::default);
    }
    w
}

fn handshake(bytes: &[u8]) -> Option<Handshake> {
    match parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
        _ => None,
    }
}

#[test]
fn all_packets_but_those_of_the_handshake_are_encrypted() {
    let mut w = hosts(1, Faults::default(), [true; 2]);
    w.tap = Some(vec![]);
    for (from, to, tag) in [(0, 1, 5), (1, 0, 6)] {
        exchange(&mut w, from, to, tag);
        assert!(w.run(Span::secs(1), |w| end(w, to, 1000 + tag).is_some()));
        assert_eq!(end(&w, to, 1000 + tag), Some(Ok(())));
    }
    let seen = w.tap.take().unwrap();
    let clear = seen.iter().filter(|seen| !matches!(parse(&seen.bytes), Ok(Packet::Tss { .. })));
    assert!(clear.clone().all(|seen| handshake(&seen.bytes).is_some()));
    assert!(clear.count() < seen.len());
    for host in &w.hosts {
        let keys = host.keys.as_ref().unwrap();
        assert_eq!((keys.unsealable, &keys.refused[..]), (0, &[][..]));
    }
}

#[test]
fn handshakes_that_begin_at_both_ends_lose_no_packet() {
    let mut w = hosts(2, Faults::default(), [true; 2]);
    exchange(&mut w, 0, 1, 5);
    exchange(&mut w, 1, 0, 6);
    let done = |w: &World| end(w, 1, 1005).is_some() && end(w, 0, 1006).is_some();
    assert!(w.run(Span::secs(1), done));
    for host in &w.hosts {
        let keys = host.keys.as_ref().unwrap();
        assert_eq!((keys.unsealable, &keys.refused[..]), (0, &[][..]));
    }
}

#[test]
fn loss_reordering_and_trimming_are_repaired() {
    let faults =
        Faults { drop: 0.05, duplicate: 0.05, reorder: 0.2, trim: 0.05, ..Faults::default() };
    for seed in 0..20 {
        let mut w = hosts(seed, faults, [true; 2]);
        for tag in 0..20 {
            exchange(&mut w, (tag % 2) as usize, 1 - (tag % 2) as usize, tag);
        }
        let received = |w: &World, tag: u64| end(w, 1 - (tag % 2) as usize, 1000 + tag);
        assert!(w.run(Span::secs(60), |w| (0..20).all(|tag| received(w, tag).is_some())));
        assert!((0..20).all(|tag| received(&w, tag) == Some(Ok(()))), "seed {seed}");
        // Duplicates are what the receiver has opened before; nothing else is wrong with a packet.
        let refused = w.hosts.iter().flat_map(|host| &host.keys.as_ref().unwrap().refused);
        assert!(refused.clone().all(|error| *error == OpenError::Replayed), "seed {seed}");
        assert!(refused.count() > 0);
    }
}

#[test]
fn an_endpoint_that_encrypts_does_not_talk_to_one_that_does_not() {
    for encrypts in [[true, false], [false, true]] {
        for from in 0..2 {
            let mut w = hosts(3, Faults::default(), encrypts);
            exchange(&mut w, from, 1 - from, 5);
            assert!(w.run(Span::secs(1), |w| end(w, from, 5).is_some()));
            let theirs = encrypts[1 - from];
            assert_eq!(end(&w, from, 5), Some(Err(OpError::OtherEncryption { theirs })));
            assert_eq!(end(&w, 1 - from, 1005), None);
        }
    }
}

/// An attacker between two endpoints that encrypt makes one believe that the other does not. Its
/// refusal has no proof of what the other one asked, so they encrypt all the same.
#[test]
fn encryption_cannot_be_negotiated_away() {
    let mut w = hosts(4, Faults::default(), [true, true]);
    exchange(&mut w, 0, 1, 5);
    w.tap = Some(vec![]);
    // Host 1 hears the question as if it came from an endpoint that does not encrypt.
    w.step_before(w.now);
    let hello = w.tap.take().unwrap().iter().find_map(|seen| handshake(&seen.bytes)).unwrap();
    let mut out = [0; Handshake::LEN];
    let len = Handshake { capabilities: 0, ..hello }.emit(&mut out);
    let (src, dst) = (SocketAddr::from(([10, 0, 0, 1], 40_000)), w.hosts[1].addr);
    w.tap = Some(vec![]);
    w.inject(src, dst, PacketMarks::default(), &out[..len]);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 5).is_some()));
    assert_eq!(end(&w, 0, 5), Some(Ok(())));
    let all = w.tap.take().unwrap();
    assert!(all.iter().all(|seen| handshake(&seen.bytes).is_some()
        || matches!(parse(&seen.bytes), Ok(Packet::Tss { .. }))));
}

/// A peer that has forgotten this endpoint drops what it sends, and cannot say so.
#[test]
fn a_peer_that_has_lost_the_secret_gets_a_new_one() {
    let mut w = hosts(5, Faults::default(), [true; 2]);
    exchange(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    let lost = w.hosts[0].addr;
    w.hosts[1].keys.as_mut().unwrap().ring.remove(lost);
    exchange(&mut w, 0, 1, 6);
    assert!(w.run(Span::secs(5), |w| end(w, 1, 1006).is_some()));
    assert_eq!(end(&w, 1, 1006), Some(Ok(())));
    let refused = &w.hosts[1].keys.as_ref().unwrap().refused;
    assert!(refused.contains(&OpenError::UnknownSender));
}

/// An attacker on the path answers the challenge of a repeated handshake before the peer does. Its
/// answer has no valid proof, so no operation may fail.
#[test]
fn forged_answers_do_not_end_a_repeated_handshake() {
    for forgery in 0..9 {
        let mut w = hosts(8, Faults::default(), [true; 2]);
        exchange(&mut w, 0, 1, 5);
        assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
        let addrs = [w.hosts[0].addr, w.hosts[1].addr];
        w.hosts[1].keys.as_mut().unwrap().ring.remove(addrs[0]);
        w.tap = Some(vec![]);
        exchange(&mut w, 0, 1, 6);
        let asked = |w: &World| {
            let seen = w.tap.iter().flatten().filter(|seen| seen.dst == addrs[1]);
            seen.filter_map(|seen| handshake(&seen.bytes)).find(|it| it.stage == Stage::Hello)
        };
        assert!(w.run(Span::secs(5), |w| asked(w).is_some()));
        let hello = asked(&w).unwrap();
        let theirs = Handshake {
            instance: w.hosts[1].engine.shm().instance().get(),
            expected: hello.instance,
            port: addrs[1].port(),
            ..hello
        };
        let refuse = |reason| Handshake { stage: Stage::Refuse, reason, ..theirs };
        let challenge = Handshake { stage: Stage::Challenge, cookie: 9, ..theirs };
        let forged = match forgery {
            0 => refuse(Reason::None),
            1 => refuse(Reason::Version),
            2 => refuse(Reason::Job),
            3 => refuse(Reason::Key),
            4 => refuse(Reason::Encryption),
            5 => refuse(Reason::Crowded),
            6 => refuse(Reason::Unlisted),
            7 => challenge,
            _ => Handshake { capabilities: 0, ..challenge },
        };
        let mut out = [0; Handshake::LEN];
        let len = forged.emit(&mut out);
        let src = SocketAddr::new(addrs[1].ip(), 40_000);
        let counters = |w: &World| w.hosts[0].engine.counters().0.rx_bad_handshakes;
        let before = counters(&w);
        w.inject(src, addrs[0], PacketMarks::default(), &out[..len]);
        let counted = counters(&w) - before;
        assert!(w.run(Span::secs(5), |w| end(w, 0, 6).is_some()), "{forged:?}");
        assert_eq!((end(&w, 0, 6), end(&w, 1, 1006)), (Some(Ok(())), Some(Ok(()))), "{forged:?}");
        assert_eq!(counted, 1, "{forged:?}");
    }
}

/// The handshake that looks for a forgotten secret does not shorten the wait for a stopped process.
#[test]
fn a_stopped_peer_is_waited_for() {
    let mut w = World::with(2, 6, Faults::default(), |config, pdc| {
        config.key = Some(JobKey::new(&[7; 16]));
        config.encrypts = true;
        pdc.contact_deadline = Span::secs(2);
    });
    w.seal_packets();
    exchange(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    w.hosts[1].stopped = true;
    exchange(&mut w, 0, 1, 6);
    w.run(Span::secs(8), |_| false);
    assert_eq!(end(&w, 0, 6), None);
    w.resume(1, usize::MAX);
    assert!(w.run(Span::secs(5), |w| end(w, 1, 1006).is_some()));
    assert_eq!(end(&w, 1, 1006), Some(Ok(())));
}

/// Repeats the handshake by which a host began to talk to another one.
fn renew(w: &mut World, tag: u64) {
    w.faults.drop = 1.0;
    exchange(w, 0, 1, tag);
    w.run(Span::millis(1500), |_| false);
    w.faults.drop = 0.0;
    assert!(w.run(Span::secs(5), |w| end(w, 1, 1000 + tag).is_some()));
    assert_eq!(end(w, 1, 1000 + tag), Some(Ok(())));
}

/// An attacker replays a recorded conversation from its handshake on, when several handshakes have
/// followed, so that the secret of the first one was dropped.
#[test]
fn a_replayed_conversation_brings_no_message_again() {
    let mut w = hosts(7, Faults::default(), [true; 2]);
    w.tap = Some(vec![]);
    exchange(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    let recorded = w.tap.take().unwrap();
    for tag in 10..14 {
        renew(&mut w, tag);
    }
    // The contexts are closed when they were idle for 30 s, and their numbers are free.
    w.run(Span::secs(35), |_| false);
    let refused = w.hosts[1].keys.as_ref().unwrap().refused.len();
    let victim = w.hosts[1].addr;
    for seen in recorded.iter().filter(|seen| seen.dst == victim) {
        w.inject(seen.src, seen.dst, PacketMarks::default(), &seen.bytes);
    }
    w.run(Span::secs(1), |_| false);
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 0);
    let refused = &w.hosts[1].keys.as_ref().unwrap().refused[refused..];
    assert!(refused.contains(&OpenError::UnknownSender) || refused.contains(&OpenError::BadTag));
    // The endpoints still talk.
    exchange(&mut w, 0, 1, 6);
    assert!(w.run(Span::secs(5), |w| end(w, 1, 1006).is_some()));
    assert_eq!(end(&w, 1, 1006), Some(Ok(())));
}
