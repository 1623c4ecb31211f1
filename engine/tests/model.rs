//! Random operations between two endpoints over a faulty network, against a model: every message
//! arrives exactly once, in order, byte for byte, at the receive that FI_ORDER_SAS says.

use super::world::*;
use proptest::prelude::*;
use squall_base::{Rng, Span, UserSlice};
use squall_engine::*;

/// A message of the model.
struct Sent {
    space: MatchSpace,
    tag: u64,
    data: Option<u64>,
    bytes: Vec<u8>,
}

/// A receive of the model.
struct MatchRequest {
    space: MatchSpace,
    tag: u64,
    ignore: u64,
    base: u64,
    room: u64,
}

impl MatchRequest {
    fn matches(&self, sent: &Sent) -> bool {
        self.space == sent.space && (self.tag ^ sent.tag) & !self.ignore == 0
    }
}

fn pattern(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        let word = rng.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

fn size(rng: &mut Rng) -> usize {
    let top = [1, 40, 300, 3_000, 20_000, 100_000][rng.below(6) as usize];
    rng.below(top) as usize
}

/// Sometimes splits a buffer into an iovec.
fn buf(rng: &mut Rng, base: u64, len: u64) -> Buf {
    if len < 3 || rng.chance(0.7) {
        return Buf::new(base, len);
    }
    let a = 1 + u64::from(rng.below((len - 2) as u32));
    let segs = [UserSlice::lent(base, a), UserSlice::lent(base + a, len - a)];
    Buf::from_slices(&segs)
}

#[derive(Default)]
struct Direction {
    sent: Vec<Sent>,
    wanted: Vec<MatchRequest>,
    reads: Vec<(u64, u64, u64)>,
    writes: Vec<(u64, u64, u64)>,
}

/// Plays one random history. Every host both sends to and receives from the other.
fn history(seed: u64) {
    let mut rng = Rng::new(seed);
    let rough = rng.chance(0.8);
    let mut some = |p: f64| if rough { rng.unit() * p } else { 0.0 };
    let mut faults = Faults {
        drop: some(0.05),
        duplicate: some(0.05),
        reorder: some(0.3),
        trim: some(0.05),
        ce: some(0.2),
        black_hole: None,
        first_set: false,
        dead_spine: None,
    };
    if rng.chance(0.1) {
        faults.black_hole = Some(rng.below(16) as u16);
    }
    let tight = rng.chance(0.2);
    let mut w = World::with(2, rng.next_u64(), faults, |config, _| {
        if tight {
            // The budget is less than what is sent ahead of the receives, so senders must wait.
            config.unexpected_bytes = 40_000;
        }
    });
    w.gathers = seed % 2 == 1;
    let mut sides = [Direction::default(), Direction::default()];
    let region = 60_000u64;
    let mut shadow = Vec::new();
    for n in 0..2 {
        let bytes = pattern(&mut rng, region as usize);
        let base = w.hosts[n].memory.put(&bytes);
        w.hosts[n].memory.regions.insert(7, (UserSlice::lent(base, region), true, false));
        let base = w.hosts[n].memory.alloc(region as usize);
        w.hosts[n].memory.regions.insert(8, (UserSlice::lent(base, region), false, true));
        shadow.push((bytes, 0u64));
    }
    let steps = 5 + rng.below(60);
    for step in 0..steps {
        let me = rng.below(2) as usize;
        let peer = w.peer(me, 1 - me);
        let space = if rng.chance(0.8) { MatchSpace::Tagged } else { MatchSpace::Untagged };
        let tag = if space == MatchSpace::Tagged { u64::from(rng.below(6)) } else { 0 };
        match rng.below(20) {
            0..=8 => {
                let len = size(&mut rng);
                let bytes = pattern(&mut rng, len);
                let data = rng.chance(0.5).then(|| rng.next_u64());
                if len <= 256 && rng.chance(0.5) {
                    let base = w.hosts[me].memory.put(&bytes);
                    let copied = Buf::new(base, len as u64);
                    w.submit(me, injected(peer, space, tag, copied, data)).unwrap();
                    w.hosts[me].memory.revoke(base);
                } else {
                    let base = w.hosts[me].memory.put(&bytes);
                    let level = if rng.chance(0.1) { Level::Delivery } else { Level::Transmit };
                    let op = Operation {
                        peer,
                        action: Action::Message { space, tag },
                        buf: buf(&mut rng, base, len as u64),
                        data,
                        context: u64::from(step),
                        options: Options {
                            level: if rng.chance(0.5) { Level::Default } else { level },
                            ..Options::default()
                        },
                    };
                    w.submit(me, op).unwrap();
                }
                sides[1 - me].sent.push(Sent { space, tag, data, bytes });
            }
            9..=16 => {
                let room = if rng.chance(0.9) { 100_000 } else { size(&mut rng) as u64 };
                let ignore = match space {
                    MatchSpace::Tagged => [0, 0, 3, !0][rng.below(4) as usize],
                    MatchSpace::Untagged | MatchSpace::Collective => 0,
                };
                post(&mut w, &mut sides[me], me, space, tag, ignore, room, &mut rng);
            }
            17 => {
                let len = u64::from(rng.below(region as u32));
                let at = u64::from(rng.below((region - len) as u32 + 1));
                let base = w.hosts[me].memory.alloc(len as usize);
                let remote = two_ranges(&mut rng, at, len, 7);
                let op = RmaOp {
                    peer,
                    buf: buf(&mut rng, base, len),
                    remote,
                    data: None,
                    context: base,
                };
                w.submit(me, op.read()).unwrap();
                sides[me].reads.push((base, at, len));
            }
            18 => {
                // Each write has its own range, so the order of writes does not matter.
                let used = &mut shadow[1 - me].1;
                let len = u64::from(rng.below(5_000)).min(region - *used);
                let bytes = pattern(&mut rng, len as usize);
                let base = w.hosts[me].memory.put(&bytes);
                let op = RmaOp {
                    peer,
                    buf: Buf::new(base, len),
                    remote: two_ranges(&mut rng, *used, len, 8),
                    data: Some(u64::from(step)),
                    context: base,
                };
                w.submit(me, op.write()).unwrap();
                sides[1 - me].writes.push((base, *used, len));
                *used += len;
            }
            _ => {
                for _ in 0..rng.below(200) {
                    w.step();
                }
            }
        }
    }
    // Posts receives for messages that have none yet.
    for (me, side) in sides.iter_mut().enumerate() {
        while let Some(next) = matching(side).iter().position(Option::is_none) {
            let (space, tag) = (side.sent[next].space, side.sent[next].tag);
            post(&mut w, side, me, space, tag, 0, 100_000, &mut rng);
        }
    }
    let wanted = |w: &World, me: usize, sides: &[Direction; 2]| {
        let received = w.hosts[me].done.iter().filter(|c| c.kind == OpKind::Recv).count();
        let landed = w.hosts[me].done.iter().filter(|c| c.kind == OpKind::RemoteWrite).count();
        received >= sides[me].sent.len() && landed >= sides[me].writes.len()
    };
    let over = |w: &World| (0..2).all(|me| wanted(w, me, &sides) && w.hosts[me].engine.is_idle());
    assert!(w.run(Span::secs(120), over), "seed {seed}: not finished at {:?}", w.now);
    for me in 0..2 {
        check(&w, &sides, me, &shadow, seed);
    }
}

#[allow(clippy::too_many_arguments)]
fn post(
    w: &mut World,
    side: &mut Direction,
    me: usize,
    space: MatchSpace,
    tag: u64,
    ignore: u64,
    room: u64,
    rng: &mut Rng,
) {
    let base = w.hosts[me].memory.alloc(room as usize);
    let source = rng.chance(0.5).then(|| w.peer(me, 1 - me));
    let op = RecvOp {
        source,
        space,
        tag,
        ignore,
        buf: buf(rng, base, room),
        context: side.wanted.len() as u64,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    let host = &mut w.hosts[me];
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    side.wanted.push(MatchRequest { space, tag, ignore, base, room });
}

fn two_ranges(rng: &mut Rng, at: u64, len: u64, key: u64) -> RemoteIov {
    if len < 2 || rng.chance(0.7) {
        return RemoteIov::One(RemoteSeg { address: at, len, key });
    }
    let a = 1 + u64::from(rng.below((len - 1) as u32));
    RemoteIov::Many(Box::new([
        RemoteSeg { address: at, len: a, key },
        RemoteSeg { address: at + a, len: len - a, key },
    ]))
}

/// Computes the receive that each message must match. With one source the result does not depend on
/// timing: the first message and the oldest receive that accepts it always match, and so on.
fn matching(side: &Direction) -> Vec<Option<usize>> {
    let mut free: Vec<bool> = vec![true; side.wanted.len()];
    side.sent
        .iter()
        .map(|sent| {
            let hit = side.wanted.iter().enumerate().position(|(n, w)| free[n] && w.matches(sent));
            if let Some(n) = hit {
                free[n] = false;
            }
            hit
        })
        .collect()
}

fn check(w: &World, sides: &[Direction; 2], me: usize, shadow: &[(Vec<u8>, u64)], seed: u64) {
    let host = &w.hosts[me];
    let side = &sides[me];
    let mut seen = 0;
    for (sent, met) in side.sent.iter().zip(matching(side)) {
        let n = met.expect("every message has a receive");
        let of: Vec<_> =
            host.done.iter().filter(|c| c.kind == OpKind::Recv && c.context == n as u64).collect();
        assert_eq!(of.len(), 1, "seed {seed}: receive {n} completes once");
        let (c, want) = (of[0], &side.wanted[n]);
        let fits = (sent.bytes.len() as u64).min(want.room);
        let status = if sent.bytes.len() as u64 > want.room {
            Err(OpError::Truncated { excess: sent.bytes.len() as u64 - want.room })
        } else {
            Ok(())
        };
        assert_eq!((c.status, c.len, c.tag, c.data), (status, fits, sent.tag, sent.data));
        let got = host.memory.get(want.base, fits);
        assert!(got == &sent.bytes[..fits as usize], "seed {seed}: receive {n} differs");
        seen += 1;
    }
    let received = host.done.iter().filter(|c| c.kind == OpKind::Recv).count();
    assert_eq!(received, seen, "seed {seed}: nothing arrives twice");
    let other = &shadow[1 - me].0;
    for &(base, at, len) in &side.reads {
        let c = host.done.iter().filter(|c| c.kind == OpKind::Read && c.context == base);
        assert!(c.clone().all(|c| c.status.is_ok()) && c.count() >= 1);
        assert!(host.memory.get(base, len) == &other[at as usize..(at + len) as usize]);
    }
    let (written, _, writable) = host.memory.regions[&8];
    assert!(writable);
    for &(from, at, len) in &side.writes {
        let sent = w.hosts[1 - me].memory.get(from, len);
        assert!(host.memory.get(written.base + at, len) == sent, "seed {seed}: write differs");
    }
    for c in &host.done {
        let fine = c.status.is_ok() || matches!(c.status, Err(OpError::Truncated { .. }));
        assert!(fine, "seed {seed}: {c:?}");
    }
    assert_eq!(host.engine.counters().0.unexpected_bytes, 0, "seed {seed}: the budget is released");
}

proptest! {
    #![proptest_config(ProptestConfig::default())]
    #[test]
    fn every_message_once_in_order_byte_for_byte(seed in any::<u64>()) {
        history(seed);
    }
}
