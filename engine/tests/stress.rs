//! Many concurrent operations of one kind over a lossy network: the endpoints lose nothing.

use super::world::*;
use squall_base::{Rng, Span, UserSlice};
use squall_engine::*;

const ROUGH: Faults = Faults {
    drop: 0.015,
    duplicate: 0.005,
    reorder: 0.02,
    trim: 0.0,
    ce: 0.0,
    black_hole: None,
    first_set: false,
    dead_spine: None,
};

/// Plays operations like those of MPI active messages and one-sided operations: short and medium
/// untagged sends into multi-receive buffers, and reads in both directions.
fn active_messages(seed: u64) {
    let mut w = World::new(2, seed, ROUGH);
    let mut rng = Rng::new(seed);
    let region = 100_000u64;
    for n in 0..2 {
        let bytes: Vec<u8> = (0..region).map(|i| (i * 13 + n) as u8).collect();
        let base = w.hosts[n as usize].memory.put(&bytes);
        let all = (UserSlice::lent(base, region), true, true);
        w.hosts[n as usize].memory.regions.insert(1, all);
        for context in 0..4 {
            post_multi(&mut w, n as usize, context);
        }
    }
    let mut expected = [(0usize, 0usize, 0usize); 2];
    let mut reposted = [0usize; 2];
    for _ in 0..200 {
        let me = rng.below(2) as usize;
        let peer = w.peer(me, 1 - me);
        match rng.below(4) {
            0 | 1 => {
                let len = u64::from(rng.below(6000)) + 1;
                let base = w.hosts[me].memory.alloc(len as usize);
                let third = len / 3;
                let segs = [
                    UserSlice::lent(base, third),
                    UserSlice::lent(base + third, third),
                    UserSlice::lent(base + 2 * third, len - 2 * third),
                ];
                let op = Operation {
                    peer,
                    action: Action::Message { space: MatchSpace::Untagged, tag: 0 },
                    buf: Buf::from_slices(&segs),
                    data: None,
                    context: 1,
                    options: Options { level: Level::Transmit, ..Options::default() },
                };
                w.submit(me, op).unwrap();
                expected[me].0 += 1;
                expected[1 - me].1 += 1;
            }
            2 => {
                let len = u64::from(rng.below(30_000));
                let base = w.hosts[me].memory.alloc(len as usize);
                let op = RmaOp {
                    peer,
                    buf: Buf::new(base, len),
                    remote: RemoteIov::One(RemoteSeg { address: 5, len, key: 1 }),
                    data: None,
                    context: 2,
                };
                w.submit(me, op.read()).unwrap();
                expected[me].2 += 1;
            }
            _ => {
                for _ in 0..rng.below(40) {
                    w.step();
                }
            }
        }
        refill(&mut w, &mut reposted);
    }
    let count = |w: &World, n: usize, kind| {
        w.hosts[n].done.iter().filter(|c| c.kind == kind && c.status.is_ok()).count()
    };
    let end = w.now + Span::secs(20);
    loop {
        let over = (0..2).all(|n| {
            (count(&w, n, OpKind::Send), count(&w, n, OpKind::Recv), count(&w, n, OpKind::Read))
                == expected[n]
        });
        if over {
            break;
        }
        assert!(w.now < end, "seed {seed}: {:?}", {
            let seen = |n| {
                (count(&w, n, OpKind::Send), count(&w, n, OpKind::Recv), count(&w, n, OpKind::Read))
            };
            (seen(0), seen(1), expected)
        });
        w.step();
        refill(&mut w, &mut reposted);
    }
}

fn post_multi(w: &mut World, at: usize, context: u64) {
    let base = w.hosts[at].memory.alloc(20_000);
    let op = RecvOp {
        source: None,
        space: MatchSpace::Untagged,
        tag: 0,
        ignore: 0,
        buf: Buf::new(base, 20_000),
        context,
        visibility: Visibility::Entry,
        mode: RecvMode::Multi { least: 8000 },
    };
    let host = &mut w.hosts[at];
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Posts a new buffer for each that was returned.
fn refill(w: &mut World, reposted: &mut [usize; 2]) {
    for (n, reposted) in reposted.iter_mut().enumerate() {
        while *reposted < w.hosts[n].done.iter().filter(|c| c.released).count() {
            *reposted += 1;
            post_multi(w, n, 100);
        }
    }
}

#[test]
fn active_messages_and_reads_all_complete() {
    for seed in 0..300 {
        active_messages(seed);
    }
}
