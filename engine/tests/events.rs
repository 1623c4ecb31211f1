//! Reports of peers' accesses to a user that requested all of them.

use super::world::*;
use squall_base::{RegionId, Span};
use squall_engine::*;

const KEY: u64 = 7;

/// A network that drops, duplicates and reorders packets.
const BAD: Faults = Faults {
    drop: 0.05,
    duplicate: 0.1,
    reorder: 0.3,
    trim: 0.0,
    ce: 0.0,
    black_hole: None,
    first_set: false,
};

struct Access {
    len: u64,
    data: Option<u64>,
    read: bool,
}

/// Accesses memory of host 1 from host 0, in ranges of the given lengths.
fn access(w: &mut World, lens: &[u64], data: Option<u64>, read: bool) {
    let peer = w.peer(0, 1);
    let total = lens.iter().sum();
    let base = w.hosts[0].memory.alloc(total as usize);
    let mut at = 0;
    let segs = lens.iter().map(|&len| {
        at += len;
        RemoteSeg { address: at - len, len, key: KEY }
    });
    let remote = RemoteIov::Many(segs.collect());
    let op = RmaOp { peer, buf: Buf::new(base, total), remote, data, context: base };
    w.submit(0, if read { op.read() } else { op.write() }).unwrap();
}

/// Registers memory of host 1 and returns the region.
fn region(w: &mut World, len: usize) -> RegionId {
    let base = w.hosts[1].memory.alloc(len);
    w.hosts[1].memory.register(KEY, base, len as u64, true, true)
}

#[test]
fn every_finished_access_is_reported_once() {
    for seed in 0..10 {
        let mut w = World::new(2, seed, BAD);
        w.hosts[1].engine.report_accesses();
        let region = region(&mut w, 100_000);
        let all = [
            Access { len: 8, data: None, read: false },
            Access { len: 60_000, data: None, read: false },
            Access { len: 60_001, data: Some(4), read: false },
            Access { len: 0, data: None, read: false },
            Access { len: 0, data: Some(5), read: false },
            Access { len: 9, data: None, read: true },
            Access { len: 60_002, data: None, read: true },
            Access { len: 0, data: None, read: true },
        ];
        for one in &all {
            access(&mut w, &[one.len], one.data, one.read);
        }
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == all.len()), "seed {seed}");
        w.run(Span::secs(1), |_| false);
        let told = &w.hosts[1].done;
        assert_eq!(told.len(), all.len(), "seed {seed}: {told:?}");
        for one in &all {
            let kind = if one.read { OpKind::RemoteRead } else { OpKind::RemoteWrite };
            let visibility =
                if one.data.is_some() { Visibility::Entry } else { Visibility::CountOnly };
            let same = told.iter().filter(|t| {
                (t.kind, t.len, t.data, t.visibility) == (kind, one.len, one.data, visibility)
            });
            assert_eq!(same.count(), 1, "{}", one.len);
        }
        assert!(told.iter().all(|t| t.region == region && t.status.is_ok()));
    }
}

/// A refused access is not an access.
#[test]
fn refused_accesses_are_not_reported() {
    let mut w = World::new(2, 3, Faults::default());
    w.hosts[1].engine.report_accesses();
    region(&mut w, 100);
    access(&mut w, &[101], None, false);
    access(&mut w, &[101], None, true);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 2));
    assert!(w.hosts[0].done.iter().all(|done| done.status.is_err()));
    assert!(w.hosts[1].done.is_empty());
}

/// Each range of an operation counts as an access.
#[test]
fn ranges_are_reported_one_by_one() {
    let mut w = World::new(2, 4, BAD);
    w.hosts[1].engine.report_accesses();
    region(&mut w, 10_000);
    access(&mut w, &[10, 3000, 20], Some(9), false);
    access(&mut w, &[11, 3001], None, true);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 2));
    w.run(Span::secs(1), |_| false);
    let mut lens: Vec<(u64, Option<u64>)> =
        w.hosts[1].done.iter().map(|t| (t.len, t.data)).collect();
    lens.sort_unstable();
    assert_eq!(lens, [(10, None), (11, None), (20, Some(9)), (3000, None), (3001, None)]);
}
