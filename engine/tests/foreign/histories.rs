//! Random histories: an endpoint and a model of another implementation send each other messages over a
//! network that loses, repeats and delays packets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use squall_base::{Rng, Span, Time};
use squall_engine::{ForeignWire, OpKind};

use super::endpoint::Endpoint;
use super::model::{Kind, Message, Model};

/// A packet on its way: the time of its arrival, its number, whether the model gets it, its bytes.
type Flying = (Time, u64, bool, Vec<u8>);

/// Messages in each direction.
const MESSAGES: usize = 25;

fn messages(rng: &mut Rng, payload: usize) -> Vec<Message> {
    let random = |rng: &mut Rng| match rng.below(8) {
        0 => 0,
        1 => payload - 1,
        2 => payload,
        3 => payload + 1,
        4 => 3 * payload,
        5 => rng.below(200_000) as usize,
        _ => rng.below(100) as usize,
    };
    let message = |n: usize, rng: &mut Rng| {
        let len = random(rng);
        let bytes = (0..len).map(|_| rng.next_u32() as u8).collect();
        Message { tag: n as u64, bytes }
    };
    (0..MESSAGES).map(|n| message(n, rng)).collect()
}

/// Plays a history. Returns how often the peer refused a message for want of a receive.
fn play(kind: Kind, seed: u64, loss: f64, repeat: f64) -> u32 {
    let (wire, from) = match kind {
        Kind::Suet => (ForeignWire::suet(1416), SocketAddr::from(([10, 0, 0, 2], 40_123))),
        Kind::Reference => (ForeignWire::standard(1024), SocketAddr::from(([10, 0, 0, 2], 4793))),
    };
    let payload = usize::from(wire.payload);
    let mut rng = Rng::new(seed);
    let (theirs, ours) = (messages(&mut rng, payload), messages(&mut rng, payload));
    let mut model = Model::new(kind, payload, rng.next_u64(), theirs.clone());
    let mut endpoint = Endpoint::new(seed, wire);
    let peer = endpoint.engine.foreign_peer(from, None);
    let mut buffers = vec![None; MESSAGES];
    let mut flying: BinaryHeap<Reverse<Flying>> = BinaryHeap::new();
    let (mut sent, mut order) = (0, 0);
    let end = endpoint.now + Span::secs(30);
    loop {
        // The application acts at random times, so some messages arrive before their receive.
        if sent < MESSAGES && rng.chance(0.3) {
            let Message { tag, bytes } = &ours[sent];
            endpoint.send(peer, Some(*tag), None, bytes).expect("there is room");
            sent += 1;
        }
        if let Some(next) = buffers.iter().position(Option::is_none)
            && rng.chance(0.3)
        {
            buffers[next] = Some(endpoint.receive(Some(next as u64), theirs[next].bytes.len()));
        }
        while flying.peek().is_some_and(|Reverse(packet)| packet.0 <= endpoint.now) {
            let Reverse((_, _, to_model, bytes)) = flying.pop().expect("a peeked packet");
            if to_model {
                model.receive(endpoint.now, &bytes);
            } else {
                endpoint.feed(from, &bytes);
            }
        }
        model.tick(endpoint.now);
        let sent_now = endpoint.take_sent().into_iter().map(|(to, bytes)| {
            assert_eq!(to, from);
            (true, bytes)
        });
        let packets: Vec<_> =
            sent_now.chain(model.out.drain(..).map(|bytes| (false, bytes))).collect();
        for (to_model, bytes) in packets {
            let copies = u32::from(!rng.chance(loss)) + u32::from(rng.chance(repeat));
            for _ in 0..copies {
                let late = if rng.chance(repeat) { rng.below(300_000) } else { 0 };
                let at = endpoint.now + Span(5_000 + u64::from(late));
                order += 1;
                flying.push(Reverse((at, order, to_model, bytes.clone())));
            }
        }
        let received = endpoint.done.iter().filter(|done| done.kind == OpKind::Recv).count();
        let all = received == MESSAGES && endpoint.done.len() == 2 * MESSAGES;
        if all && model.is_done() {
            break;
        }
        assert!(
            endpoint.now < end,
            "{kind:?} {seed}: {received} received, {} done, {} answered, {:?}",
            endpoint.done.len(),
            model.answered,
            endpoint.engine.counters()
        );
        endpoint.pass(Span::micros(20));
    }
    let failed: Vec<_> = endpoint.done.iter().filter(|done| done.status.is_err()).collect();
    assert!(failed.is_empty(), "{kind:?} {seed}: {failed:?} {:?}", endpoint.engine.counters().1);
    for (buffer, message) in buffers.iter().zip(&theirs) {
        let seen = endpoint.memory.get(buffer.expect("it was posted"), message.bytes.len() as u64);
        assert!(seen == message.bytes, "{kind:?} {seed}: message {}", message.tag);
    }
    assert_eq!(model.received, ours, "{kind:?} {seed}");
    model.refusals
}

#[test]
fn messages_pass_both_ways_between_suet_and_this_endpoint() {
    for seed in 0..20 {
        play(Kind::Suet, seed, 0.0, 0.0);
        play(Kind::Suet, seed, 0.02, 0.02);
    }
}

#[test]
fn messages_pass_both_ways_between_the_reference_and_this_endpoint() {
    let mut refusals = 0;
    for seed in 0..20 {
        refusals += play(Kind::Reference, seed, 0.0, 0.0);
        refusals += play(Kind::Reference, seed, 0.02, 0.02);
    }
    assert!(refusals > 20, "the peer refused some messages");
}
