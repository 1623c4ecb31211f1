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
    dead_spine: None,
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

/// An operation of several ranges is one access, which is reported when the last of its requests has ended.
#[test]
fn operation_of_several_ranges_is_reported_once() {
    for seed in 0..10 {
        let mut w = World::new(2, seed, BAD);
        w.hosts[1].engine.report_accesses();
        let base = region(&mut w, 10_000);
        let start = w.hosts[1].memory.regions[&KEY].0.base;
        let value = vec![7; 3030];
        let from = w.hosts[0].memory.put(&value);
        let segs = [(100, 10), (5000, 3000), (200, 20)].map(|(address, len)| RemoteSeg {
            address,
            len,
            key: KEY,
        });
        let peer = w.peer(0, 1);
        let write = RmaOp {
            peer,
            buf: Buf::new(from, 3030),
            remote: RemoteIov::Many(segs.into()),
            data: Some(9),
            context: 1,
        };
        w.submit(0, write.write()).unwrap();
        access(&mut w, &[11, 3001], None, true);
        access(&mut w, &[30, 0, 4], None, false);
        while w.hosts[1].done.iter().all(|done| done.data != Some(9)) {
            assert!(w.step(), "seed {seed}");
        }
        for (at, len) in [(100, 10), (5000, 3000), (200, 20)] {
            let bytes = w.hosts[1].memory.get(start + at, len);
            assert!(bytes.iter().all(|byte| *byte == 7), "seed {seed}: range at {at}");
        }
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 3));
        w.run(Span::secs(1), |_| false);
        let done = &w.hosts[1].done;
        let mut lens: Vec<(u64, Option<u64>)> = done.iter().map(|t| (t.len, t.data)).collect();
        lens.sort_unstable();
        assert_eq!(lens, [(34, None), (3012, None), (3030, Some(9))]);
        assert!(done.iter().all(|t| t.region == base));
        assert_eq!(w.hosts[1].engine.holdings().access_groups, 0);
    }
}

/// An operation of which a range is refused is not reported, even if the other ranges were written.
#[test]
fn operation_with_a_refused_range_is_not_reported() {
    let mut w = World::new(2, 3, Faults::default());
    w.hosts[1].engine.report_accesses();
    region(&mut w, 100);
    for (data, read) in [(None, false), (Some(3), false), (None, true)] {
        access(&mut w, &[50, 51], data, read);
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 3));
    assert!(w.hosts[0].done.iter().all(|done| done.status.is_err()));
    assert!(w.hosts[1].done.is_empty());
    access(&mut w, &[50, 50], Some(4), false);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 4 && w.hosts[1].done.len() == 1));
}

/// The counters of each region count an operation once, and those of the endpoint count it once in all.
#[test]
fn operation_on_several_regions_is_reported_once_for_each() {
    let mut w = World::new(2, 4, Faults::default());
    w.hosts[1].engine.report_accesses();
    let regions = [KEY, KEY + 1].map(|key| {
        let base = w.hosts[1].memory.alloc(100);
        w.hosts[1].memory.register(key, base, 100, true, true)
    });
    let segs = [(KEY, 0), (KEY + 1, 0), (KEY, 50)];
    let segs = segs.map(|(key, address)| RemoteSeg { address, len: 10, key });
    let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.alloc(30));
    let remote = RemoteIov::Many(segs.into());
    let op = RmaOp { peer, buf: Buf::new(base, 30), remote, data: None, context: 1 };
    w.submit(0, op.write()).unwrap();
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1));
    let mut done: Vec<_> =
        w.hosts[1].done.iter().map(|t| (t.len, t.visibility == Visibility::CountOnly)).collect();
    done.sort_unstable();
    assert_eq!(done, [(0, false), (30, true)]);
    let mut seen: Vec<u32> = w.hosts[1].done.iter().map(|t| t.region.0).collect();
    seen.sort_unstable();
    assert_eq!(seen, regions.map(|region| region.0));
}
