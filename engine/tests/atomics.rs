//! Atomic operations: whatever the network does, each is executed once or refused.

use super::world::*;
use squall_base::{RegionId, Span};
use squall_engine::*;

const KEY: u64 = 7;
/// A network that drops, duplicates and reorders packets.
const BAD: Faults = Faults {
    drop: 0.1,
    duplicate: 0.2,
    reorder: 0.5,
    trim: 0.05,
    ce: 0.0,
    black_hole: None,
    first_set: false,
    dead_spine: None,
};

/// Description of an atomic operation in a test.
struct Asked<'a> {
    op: AmoOp,
    data_type: AmoType,
    /// Remote ranges: address, length and key.
    segs: &'a [(u64, u64, u64)],
    operand: &'a [u8],
    compare: Option<&'a [u8]>,
    fetch: bool,
    options: Options,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            op: AmoOp::Sum,
            data_type: AmoType::Uint64,
            segs: &[(0, 8, KEY)],
            operand: &[1, 0, 0, 0, 0, 0, 0, 0],
            compare: None,
            fetch: false,
            options: Options::default(),
        }
    }
}

impl Asked<'_> {
    /// Submits the operation from host `from` to host `to`. Returns the address of the result
    /// buffer.
    fn ask(&self, w: &mut World, from: usize, to: usize, context: u64) -> Result<u64, SubmitError> {
        let peer = w.peer(from, to);
        let total: u64 = self.segs.iter().map(|seg| seg.1).sum();
        let memory = &mut w.hosts[from].memory;
        let segs = self.segs.iter().map(|&(address, len, key)| RemoteSeg { address, len, key });
        let result = memory.alloc(total as usize);
        // The operands are in two pieces of arbitrary length.
        let half = (self.operand.len() / 2) | 1;
        let pieces: Vec<_> = self
            .operand
            .chunks(half)
            .map(|piece| (memory.put(piece), piece.len() as u64))
            .collect();
        let slices: Vec<_> =
            pieces.iter().map(|(base, len)| squall_base::UserSlice::lent(*base, *len)).collect();
        let compare = self.compare.map(|c| Buf::new(memory.put(c), c.len() as u64));
        let atomic = Atomic {
            op: self.op,
            data_type: self.data_type,
            remote: RemoteIov::Many(segs.collect()),
            compare,
            result: self.fetch.then(|| Buf::new(result, total)),
        };
        let action = Action::Atomic(Box::new(atomic));
        let (buf, options) = (Buf::from_slices(&slices), self.options);
        w.submit(from, Operation { peer, action, buf, data: None, context, options })?;
        // The engine has copied the operands.
        for (base, _) in pieces {
            w.hosts[from].memory.revoke(base);
        }
        Ok(result)
    }
}

/// Registers `len` bytes at host 1 and returns their address.
fn region(w: &mut World, len: usize) -> u64 {
    let base = w.hosts[1].memory.alloc(len);
    w.hosts[1].memory.register(KEY, base, len as u64, true, true);
    base
}

fn word(w: &World, at: usize, base: u64) -> u64 {
    u64::from_ne_bytes(w.hosts[at].memory.get(base, 8).try_into().unwrap())
}

/// Returns the status of each ended operation of host `at`, by context.
fn ends(w: &World, at: usize) -> Vec<(u64, Result<(), OpError>)> {
    let mut all: Vec<_> = w.hosts[at].done.iter().map(|c| (c.context, c.status)).collect();
    all.sort_by_key(|(context, _)| *context);
    all
}

#[test]
fn every_atomic_is_executed_once() {
    for seed in 0..30 {
        let mut w = World::new(3, seed, BAD);
        let base = region(&mut w, 16);
        let mut results = vec![];
        for n in 0..40 {
            for from in [0, 2] {
                let fetch = n % 2 == 0;
                let asked = Asked { fetch, ..Asked::default() };
                let result = asked.ask(&mut w, from, 1, n).unwrap();
                if fetch {
                    results.push((from, result));
                }
            }
        }
        let all = |w: &World| [0, 2].iter().all(|at| w.hosts[*at].done.len() == 40);
        assert!(w.run(Span::secs(9), all), "seed {seed}");
        assert_eq!(word(&w, 1, base), 80, "seed {seed}");
        // All values before the operations are different, so the operations were executed one after
        // the other.
        let mut seen: Vec<u64> =
            results.iter().map(|(at, result)| word(&w, *at, *result)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len(), seen.last().unwrap() < &80), (40, true), "seed {seed}");
        w.run(Span::secs(1), |_| false);
        assert_eq!(word(&w, 1, base), 80);
        assert!(w.hosts.iter().all(|host| host.engine.is_idle()), "seed {seed}");
        for host in [0, 2] {
            assert!(w.hosts[host].done.iter().all(|c| c.status.is_ok() && c.len == 8));
        }
        assert_eq!(w.hosts[1].engine.counters().0.rx_atomics, 80);
    }
}

/// All operations on all types return the previous values, and the results agree with a calculation
/// value by value.
#[test]
fn all_operations_work_on_one_and_many_values_of_all_types() {
    let mut w = World::new(2, 3, BAD);
    let base = region(&mut w, 2048);
    let mut context = 0;
    for op in AmoOp::ALL {
        for data_type in AmoType::ALL {
            let size = atomic_size(*data_type);
            let Some(most) = max_atomic_count(*op, *data_type) else { continue };
            for count in [1, 2, most] {
                let len = count * size;
                // The bytes are small numbers in every integer type, and arbitrary floats.
                let bytes = |salt: usize| -> Vec<u8> {
                    (0..len).map(|n| ((n / 3 + salt) % 5 * usize::from(n % 3 == 0)) as u8).collect()
                };
                let (old, operand, compare) = (bytes(1), bytes(count % 3), bytes(1));
                w.hosts[1].memory.bytes[base as usize..][..len].copy_from_slice(&old);
                let asked = Asked {
                    op: *op,
                    data_type: *data_type,
                    segs: &[(0, len as u64, KEY)],
                    operand: if *op == AmoOp::Read { &[] } else { &operand },
                    compare: atomic_has_comparands(*op).then_some(&compare),
                    fetch: true,
                    ..Asked::default()
                };
                let result = asked.ask(&mut w, 0, 1, context).unwrap();
                context += 1;
                let done = |w: &World| w.hosts[0].done.len() as u64 == context;
                assert!(w.run(Span::secs(5), done));
                let last = &w.hosts[0].done[context as usize - 1];
                assert_eq!((last.status, last.len), (Ok(()), len as u64), "{op} {data_type}");
                assert_eq!(w.hosts[0].memory.get(result, len as u64), old, "{op} {data_type}");
                let now = w.hosts[1].memory.get(base, len as u64);
                // Not every bit pattern is a valid number of this type; the arithmetic's own tests
                // cover those.
                let long = matches!(data_type, AmoType::LongDouble | AmoType::LongDoubleComplex);
                match op {
                    _ if long && atomic_has_comparands(*op) => {}
                    AmoOp::Read => assert_eq!(now, old),
                    AmoOp::Write => assert_eq!(now, operand),
                    // The comparands equal the present values.
                    AmoOp::Cswap | AmoOp::CswapLe | AmoOp::CswapGe => assert_eq!(now, operand),
                    AmoOp::CswapNe | AmoOp::CswapLt | AmoOp::CswapGt => assert_eq!(now, old),
                    _ => {}
                }
            }
        }
    }
    assert!(context > 600);
}

#[test]
fn atomic_on_several_ranges_is_one_operation() {
    let mut w = World::new(2, 4, BAD);
    let base = region(&mut w, 100);
    let segs = [(0, 8, KEY), (16, 16, KEY), (64, 8, KEY)];
    let operand: Vec<u8> = (1..=4u64).flat_map(u64::to_ne_bytes).collect();
    for (n, fetch) in [(0, false), (1, true), (2, true)] {
        let options = Options { fence: true, ..Options::default() };
        let asked = Asked { segs: &segs, operand: &operand, fetch, options, ..Asked::default() };
        let result = asked.ask(&mut w, 0, 1, n).unwrap();
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() as u64 == n + 1));
        if fetch {
            let before: Vec<u64> = (0..4).map(|k| word(&w, 0, result + 8 * k)).collect();
            assert_eq!(before, [n, 2 * n, 3 * n, 4 * n]);
        }
    }
    let now: Vec<u64> = [0, 16, 24, 64].iter().map(|at| word(&w, 1, base + at)).collect();
    assert_eq!(now, [3, 6, 9, 12]);
}

/// A test case: ranges (address, length, key), operation, operands, and the expected status.
type Case<'a> = (&'a [(u64, u64, u64)], AmoOp, &'a [u8], Result<(), OpError>);

/// Each invalid operation fails once, the target memory is unchanged, and both endpoints continue.
#[test]
fn invalid_atomics_are_refused_by_the_target_and_change_nothing() {
    let mut w = World::new(2, 5, BAD);
    let base = region(&mut w, 64);
    let readable = w.hosts[1].memory.alloc(64);
    w.hosts[1].memory.register(8, readable, 64, true, false);
    let writable = w.hosts[1].memory.alloc(64);
    w.hosts[1].memory.register(9, writable, 64, false, true);
    let bad_key = Err(OpError::Remote(ReturnCode::BadMkey));
    let unaligned = Err(OpError::Remote(ReturnCode::AmoUnaligned));
    let two = [1; 16];
    let cases: &[Case<'_>] = &[
        (&[(0, 8, 99)], AmoOp::Sum, &two[..8], bad_key),
        (&[(57, 8, KEY)], AmoOp::Sum, &two[..8], bad_key),
        (&[(56, 16, KEY)], AmoOp::Sum, &two, bad_key),
        (&[(u64::MAX - 3, 8, KEY)], AmoOp::Sum, &two[..8], bad_key),
        (&[(0, 8, 8)], AmoOp::Sum, &two[..8], bad_key),
        (&[(0, 8, 9)], AmoOp::Read, &[], bad_key),
        (&[(4, 8, KEY)], AmoOp::Sum, &two[..8], unaligned),
        (&[(1, 16, KEY)], AmoOp::Bor, &two, unaligned),
        (&[(0, 8, 8)], AmoOp::Read, &[], Ok(())),
        (&[(0, 8, 9)], AmoOp::Sum, &two[..8], Ok(())),
    ];
    let mut context = 0;
    let mut expected = vec![];
    for (segs, op, operand, end) in cases {
        for fetch in [true, false] {
            if !fetch && *op == AmoOp::Read {
                continue;
            }
            let asked = Asked { op: *op, segs, operand, fetch, ..Asked::default() };
            asked.ask(&mut w, 0, 1, context).unwrap();
            // This fetching atomic reads a region that peers may only write.
            let shows = fetch && segs[0].2 == 9;
            expected.push((context, if shows { bad_key } else { *end }));
            context += 1;
        }
    }
    assert!(w.run(Span::secs(9), |w| w.hosts[0].done.len() as u64 == context));
    assert_eq!(ends(&w, 0), expected);
    assert_eq!(w.hosts[1].memory.get(base, 64), [0; 64]);
    assert_eq!(w.hosts[1].memory.get(readable, 64), [0; 64]);
    let counters = *w.hosts[1].engine.counters().0;
    assert_eq!((counters.rx_atomics, counters.rx_atomics_refused), (2, 4));
    Asked::default().ask(&mut w, 0, 1, context).unwrap();
    assert!(w.run(Span::secs(1), |w| w.hosts[0].done.len() as u64 == context + 1));
    assert_eq!(word(&w, 1, base), 1);
}

#[test]
fn invalid_atomics_are_refused_at_the_call() {
    let mut w = World::new(2, 6, Faults::default());
    region(&mut w, 4096);
    let long = [1; 1032];
    let inject = Options { inject: true, ..Options::default() };
    let mut refused = |asked: Asked<'_>| asked.ask(&mut w, 0, 1, 1).err();
    let swap = Asked { op: AmoOp::Cswap, compare: Some(&[0; 8]), fetch: true, ..Asked::default() };
    assert_eq!(refused(swap), None);
    let ask = |op, fetch| Asked { op, fetch, ..Asked::default() };
    assert_eq!(refused(ask(AmoOp::Cswap, true)), Some(SubmitError::UnsupportedAtomic));
    assert_eq!(refused(ask(AmoOp::Read, false)), Some(SubmitError::UnsupportedAtomic));
    assert_eq!(refused(ask(AmoOp::Inval, false)), Some(SubmitError::UnsupportedAtomic));
    let float = Asked { op: AmoOp::Bor, data_type: AmoType::Double, ..Asked::default() };
    assert_eq!(refused(float), Some(SubmitError::UnsupportedAtomic));
    let compared = Asked { compare: Some(&[0; 8]), ..Asked::default() };
    assert_eq!(refused(compared), Some(SubmitError::UnsupportedAtomic));
    let too_long = Asked { segs: &[(0, 1032, KEY)], operand: &long, ..Asked::default() };
    assert_eq!(refused(too_long), Some(SubmitError::TooLong));
    let half = Asked { segs: &[(0, 12, KEY)], operand: &long[..12], ..Asked::default() };
    assert_eq!(refused(half), Some(SubmitError::LengthMismatch));
    let none = Asked { segs: &[], operand: &[], ..Asked::default() };
    assert_eq!(refused(none), Some(SubmitError::LengthMismatch));
    let other = Asked { segs: &[(0, 16, KEY)], ..Asked::default() };
    assert_eq!(refused(other), Some(SubmitError::LengthMismatch));
    let injected = Asked { options: inject, fetch: true, ..Asked::default() };
    assert_eq!(refused(injected), None);
    let injected = Asked { options: inject, ..Asked::default() };
    assert_eq!(refused(injected), None);
}

/// The packet of an atomic is longer than a narrow path carries. The engine does not cut it, but
/// routers may fragment it.
#[test]
fn narrow_paths_carry_long_atomics() {
    let mut w = World::with(2, 7, Faults::default(), |config, _| config.max_packet = 576);
    let base = region(&mut w, 1024);
    let asked =
        Asked { segs: &[(0, 1024, KEY)], operand: &[1; 1024], fetch: true, ..Asked::default() };
    asked.ask(&mut w, 0, 1, 1).unwrap();
    w.narrow = Some(ReducedPath { fragments: true, ..ReducedPath::new(576, false) });
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1));
    assert_eq!(ends(&w, 0), [(1, Ok(()))]);
    assert_eq!(w.hosts[1].memory.get(base, 1024), [1; 1024]);
}

/// An atomic to a lost peer may or may not have been executed, but it ends, once.
#[test]
fn atomics_end_with_their_peer() {
    // A shared-memory channel has no network that loses packets.
    for muted in [false, true].into_iter().filter(|muted| !(*muted && OVER_SHM)) {
        let mut w = World::new(2, 8, Faults::default());
        region(&mut w, 8);
        Asked::default().ask(&mut w, 0, 1, 0).unwrap();
        assert!(w.run(Span::secs(1), |w| w.hosts[0].done.len() == 1));
        for n in 1..10 {
            Asked { fetch: n % 2 == 0, ..Asked::default() }.ask(&mut w, 0, 1, n).unwrap();
        }
        if muted {
            // Requests arrive, but no packet comes back.
            w.mute = Some(|src, _| src.ip() == std::net::IpAddr::from([10, 0, 0, 2]));
        } else {
            w.hosts[1].dead = true;
        }
        assert!(w.run(Span::secs(60), |w| w.hosts[0].done.len() == 10));
        w.run(Span::secs(60), |_| false);
        let ends = ends(&w, 0);
        assert!(ends[1..].iter().all(|(_, end)| *end == Err(OpError::TimedOut)), "{ends:?}");
        assert_eq!(ends.len(), 10);
    }
}

/// The target is notified of what was changed, and where.
#[test]
fn atomics_are_reported_to_the_target_if_requested() {
    let mut w = World::new(2, 9, BAD);
    w.hosts[1].engine.report_accesses();
    region(&mut w, 8);
    Asked::default().ask(&mut w, 0, 1, 1).unwrap();
    Asked { fetch: true, ..Asked::default() }.ask(&mut w, 0, 1, 2).unwrap();
    Asked { op: AmoOp::Read, operand: &[], fetch: true, ..Asked::default() }
        .ask(&mut w, 0, 1, 3)
        .unwrap();
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 3));
    let mut told: Vec<u8> = w.hosts[1]
        .done
        .iter()
        .map(|t| {
            assert_eq!((t.region, t.visibility), (RegionId(1), Visibility::CountOnly));
            t.kind as u8
        })
        .collect();
    told.sort_unstable();
    let mut expected =
        [OpKind::RemoteUpdate as u8, OpKind::RemoteFetch as u8, OpKind::RemoteRead as u8];
    expected.sort_unstable();
    assert_eq!(told, expected);
    let kinds: Vec<OpKind> = w.hosts[0].done.iter().map(|c| c.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == OpKind::Fetch).count(), 2);
}

/// A fetching atomic takes one packet each way, and at most one acknowledgement for each.
#[test]
fn fetching_atomic_takes_one_packet_each_way() {
    const COUNT: u64 = 50;
    let mut w = World::new(2, 10, Faults::default());
    region(&mut w, 8);
    let asked = Asked { fetch: true, ..Asked::default() };
    for n in 0..=COUNT {
        if n == 1 {
            w.tap = Some(vec![]);
        }
        asked.ask(&mut w, 0, 1, n).unwrap();
        assert!(w.run(Span::secs(1), |w| w.hosts[0].done.len() as u64 == n + 1));
    }
    let seen = w.tap.take().unwrap();
    let (mut data, mut others) = (0, 0);
    for packet in &seen {
        match squall_wire::parse(&packet.bytes) {
            Ok(squall_wire::Packet::Request { .. }) => data += 1,
            _ => others += 1,
        }
    }
    if !OVER_SHM {
        assert_eq!(data, 2 * COUNT);
        assert!(others <= 2 * COUNT, "{others} other packets");
    }
}

/// An atomic that fetches or compares returns the old values, so a region that peers may only write refuses it. One
/// that changes values also needs FI_REMOTE_WRITE (fi_mr(3)).
#[test]
fn fetching_atomics_need_read_access_and_changing_ones_write_access() {
    let secret = [0x11; 8];
    for over_shm in [false, true] {
        let mut w = World::with(2, 9, Faults::default(), |config, _| config.shm = over_shm);
        let mut context = 0;
        for (readable, writable) in [(true, true), (false, true), (true, false), (false, false)] {
            let base = w.hosts[1].memory.put(&secret);
            w.hosts[1].memory.register(KEY, base, 8, readable, writable);
            for (op, operand, fetch) in [
                (AmoOp::Read, &[][..], true),
                (AmoOp::Bor, &[0; 8], true),
                (AmoOp::Bor, &[0; 8], false),
                (AmoOp::Cswap, &secret, true),
                (AmoOp::Mswap, &[0; 8], true),
                (AmoOp::Write, &secret, false),
            ] {
                let compare = atomic_has_comparands(op).then_some(&[0x22; 8][..]);
                let asked = Asked { op, operand, compare, fetch, ..Asked::default() };
                let result = asked.ask(&mut w, 0, 1, context).unwrap();
                let ended =
                    |w: &World| w.hosts[0].done.last().is_some_and(|c| c.context == context);
                assert!(w.run(Span::secs(5), ended));
                let allowed = (readable || !fetch) && (writable || op == AmoOp::Read);
                let name = format!("{op} fetch {fetch} of readable {readable} writable {writable}");
                assert_eq!(w.hosts[0].done.last().unwrap().status.is_ok(), allowed, "{name}");
                let shown = if allowed && fetch { secret } else { [0; 8] };
                assert_eq!(w.hosts[0].memory.get(result, 8), shown, "{name}");
                assert_eq!(w.hosts[1].memory.get(base, 8), secret, "{name}");
                context += 1;
            }
            w.unregister(1, KEY);
        }
    }
}
