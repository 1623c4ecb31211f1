//! Fenced operations and promised orders: operations that start only when others have ended.

use super::world::*;
use squall_base::Span;
use squall_engine::*;

const KEY: u64 = 7;
const FENCED: Options = Options { fence: true, ..DELIVERED };
const DELIVERED: Options =
    Options { inject: false, level: Level::Delivery, visibility: Visibility::Entry, fence: false };

/// A network that drops and reorders packets.
const BAD: Faults = Faults {
    drop: 0.05,
    duplicate: 0.05,
    reorder: 0.5,
    trim: 0.0,
    ce: 0.0,
    black_hole: None,
    first_set: false,
    dead_spine: None,
};

/// Registers `len` zero bytes at host 1 and returns their address.
fn region(w: &mut World, len: usize) -> u64 {
    let base = w.hosts[1].memory.alloc(len);
    w.hosts[1].memory.register(KEY, base, len as u64, true, true);
    base
}

/// Writes `len` bytes of `value` from host 0 to `address`.
fn write(w: &mut World, address: u64, len: u64, value: u8, options: Options) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(&vec![value; len as usize]);
    let action = Action::Write(RemoteIov::One(RemoteSeg { address, len, key: KEY }));
    let (buf, context) = (Buf::new(base, len), u64::from(value));
    w.submit(0, Operation { peer, action, buf, data: None, context, options }).unwrap();
}

fn read(w: &mut World, address: u64, len: u64, context: u64) -> u64 {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.alloc(len as usize);
    let action = Action::Read(RemoteIov::One(RemoteSeg { address, len, key: KEY }));
    let (buf, options) = (Buf::new(base, len), DELIVERED);
    w.submit(0, Operation { peer, action, buf, data: None, context, options }).unwrap();
    base
}

#[test]
fn fenced_write_takes_effect_after_all_earlier_operations() {
    for seed in 0..20 {
        let mut w = World::new(2, seed, BAD);
        let base = region(&mut w, 40_001);
        write(&mut w, 0, 40_000, 1, DELIVERED);
        write(&mut w, 40_000, 1, 2, FENCED);
        // Operations behind a fenced one wait as well.
        write(&mut w, 0, 10, 3, DELIVERED);
        let flag = |w: &World| w.hosts[1].memory.get(base + 40_000, 1)[0] == 2;
        let after = |w: &World| w.hosts[1].memory.get(base, 10).contains(&3);
        while !flag(&w) && !after(&w) {
            assert!(w.step());
        }
        let before = w.hosts[1].memory.get(base + 10, 39_990);
        assert!(before.iter().all(|byte| *byte == 1), "seed {seed}");
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 3));
        assert!(w.hosts[0].done.iter().all(|done| done.status.is_ok()));
    }
}

/// The parts of one operation wait neither for each other nor for ever.
#[test]
fn fenced_operation_of_several_ranges_ends() {
    let mut w = World::new(2, 5, BAD);
    region(&mut w, 1000);
    write(&mut w, 0, 100, 1, DELIVERED);
    for (context, options) in [(2, FENCED), (3, FENCED), (4, DELIVERED)] {
        let peer = w.peer(0, 1);
        let base = w.hosts[0].memory.put(&[9; 300]);
        let segs = (0..3).map(|n| RemoteSeg { address: 300 * n, len: 100, key: KEY });
        let action = Action::Write(RemoteIov::Many(segs.collect()));
        let (buf, data) = (Buf::new(base, 300), Some(77));
        w.submit(0, Operation { peer, action, buf, data, context, options }).unwrap();
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 4));
    let order: Vec<u64> = w.hosts[0].done.iter().map(|done| done.context).collect();
    assert_eq!(order[..3], [1, 2, 3]);
    assert_eq!(w.hosts[0].engine.counters().0.op_errors, 0);
}

/// Parked operations end with their peer, once.
#[test]
fn parked_operations_to_a_dead_peer_end() {
    let mut w = World::new(2, 6, Faults::default());
    region(&mut w, 1000);
    w.hosts[1].dead = true;
    write(&mut w, 0, 100, 1, DELIVERED);
    write(&mut w, 0, 100, 2, FENCED);
    write(&mut w, 0, 100, 3, DELIVERED);
    assert!(w.run(Span::secs(60), |w| w.hosts[0].done.len() == 3));
    assert!(w.hosts[0].done.iter().all(|done| done.status == Err(OpError::Unreachable)));
    assert!(w.run(Span::secs(60), |w| w.hosts[0].engine.is_idle()));
    assert_eq!(w.hosts[0].done.len(), 3);
}

/// A fence for one peer does not delay operations to another.
#[test]
fn fence_concerns_only_one_peer() {
    let mut w = World::new(3, 7, Faults::default());
    region(&mut w, 1000);
    w.hosts[1].dead = true;
    write(&mut w, 0, 100, 1, DELIVERED);
    write(&mut w, 0, 100, 2, FENCED);
    let peer = w.peer(0, 2);
    let base = w.hosts[2].memory.alloc(8);
    w.hosts[2].memory.register(KEY, base, 8, true, true);
    let from = w.hosts[0].memory.put(&[5; 8]);
    let action = Action::Write(RemoteIov::One(RemoteSeg { address: 0, len: 8, key: KEY }));
    let buf = Buf::new(from, 8);
    w.submit(0, Operation { peer, action, buf, data: None, context: 9, options: FENCED }).unwrap();
    assert!(w.run(Span::secs(1), |w| w.hosts[0].done.iter().any(|done| done.context == 9)));
}

/// Without the promise a short read overtakes a long write where packets are reordered, so the test
/// shows the effect of the promise.
#[test]
fn promised_order_of_reads_and_writes_is_kept() {
    let (reads, writes) = (OperationClasses::READ, OperationClasses::WRITE);
    let order = Order::NONE.with(reads, writes).with(writes, reads | writes);
    let mut early = [0; 2];
    for (promised, early) in early.iter_mut().enumerate() {
        for seed in 0..30 {
            let mut w = World::with(2, seed, BAD, |config, _| {
                config.order = if promised == 1 { order } else { Order::NONE };
            });
            region(&mut w, 20_000);
            let mut seen = vec![];
            for value in 1..=4 {
                write(&mut w, 0, 20_000, value, DELIVERED);
                seen.push(read(&mut w, 19_000, 1000, 100 + u64::from(value)));
            }
            assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 8), "seed {seed}");
            for (at, value) in seen.into_iter().zip(1..) {
                *early += u32::from(w.hosts[0].memory.get(at, 1000).iter().any(|b| *b != value));
            }
        }
    }
    assert_eq!(early[1], 0);
    assert!(early[0] > 0, "the order differs without the promise");
}

/// Sends eight bytes from host 0 to host 1.
fn send(w: &mut World, context: u64) {
    let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.put(&[1; 8]));
    let action = Action::Message { space: MatchSpace::Untagged, tag: 0 };
    let (buf, options) = (Buf::new(base, 8), Options::default());
    w.submit(0, Operation { peer, action, buf, data: None, context, options }).unwrap();
}

/// Posts a receive of eight bytes at host 1.
fn post(w: &mut World) {
    let base = w.hosts[1].memory.alloc(8);
    let op = RecvOp {
        mode: RecvMode::Post,
        space: MatchSpace::Untagged,
        source: None,
        tag: 0,
        ignore: 0,
        buf: Buf::new(base, 8),
        context: 0,
        visibility: Visibility::Entry,
    };
    let (now, host) = (w.now, &mut w.hosts[1]);
    host.engine.receive(now, &mut host.memory, op).expect("the receive is accepted");
}

fn received(w: &World) -> usize {
    w.hosts[1].done.iter().filter(|done| done.kind == OpKind::Recv).count()
}

/// Operations behind a write of several ranges with remote CQ data take effect after all its ranges.
#[test]
fn promised_order_holds_behind_a_write_of_several_ranges_with_data() {
    let (sends, reads, writes) =
        (OperationClasses::SEND, OperationClasses::READ, OperationClasses::WRITE);
    let order = Order::NONE.with(reads | writes | sends, writes);
    for (seed, faults) in (0..20).zip([Faults::default(), BAD].into_iter().cycle()) {
        let mut w = World::with(2, seed, faults, |config, _| config.order = order);
        let base = region(&mut w, 20_000);
        // The first message opens the channel.
        post(&mut w);
        send(&mut w, 0);
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1 && received(w) == 1));
        w.run(Span::millis(10), |_| false);
        for round in 1..5u8 {
            let (peer, from) = (w.peer(0, 1), w.hosts[0].memory.put(&[10 * round; 18_000]));
            let segs = [(0, 9000), (10_000, 9000)];
            let segs = segs.map(|(address, len)| RemoteSeg { address, len, key: KEY });
            let remote = RemoteIov::Many(segs.into());
            let buf = Buf::new(from, 18_000);
            let op = RmaOp { peer, buf, remote, data: Some(5), context: 1 };
            w.submit(0, op.write()).unwrap();
            let seen = read(&mut w, 18_999, 1, 2);
            write(&mut w, 10_000, 4000, 10 * round + 1, DELIVERED);
            post(&mut w);
            send(&mut w, 3);
            while received(&w) <= usize::from(round) {
                assert!(w.step(), "seed {seed}");
            }
            let bytes = [10_000, 18_999].map(|at| w.hosts[1].memory.get(base + at, 1)[0]);
            assert_eq!(bytes, [10 * round + 1, 10 * round], "seed {seed}: at the message");
            assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1 + 4 * usize::from(round)));
            let bytes = [10_000, 18_999].map(|at| w.hosts[1].memory.get(base + at, 1)[0]);
            assert_eq!(bytes, [10 * round + 1, 10 * round], "seed {seed}: at the end");
            assert_eq!(w.hosts[0].memory.get(seen, 1), [10 * round], "seed {seed}: the read");
        }
    }
}

/// A read must not overtake a write that follows messages for which the peer has no room, even where nothing orders
/// reads and messages.
#[test]
fn promised_order_holds_while_a_peer_has_no_room_for_messages() {
    const COUNT: usize = 2000;
    let (sends, reads, writes) =
        (OperationClasses::SEND, OperationClasses::READ, OperationClasses::WRITE);
    let order = Order::NONE.with(writes, sends).with(reads, writes);
    let mut w = World::with(2, 3, Faults::default(), |config, _| {
        config.order = order;
        config.max_unexpected = 8;
    });
    region(&mut w, 100);
    // The first message opens the channel.
    post(&mut w);
    send(&mut w, 0);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1 && received(w) == 1));
    w.run(Span::millis(10), |_| false);
    for _ in 0..COUNT {
        send(&mut w, 0);
        w.run(Span::micros(10), |_| false);
    }
    write(&mut w, 0, 8, 9, DELIVERED);
    let seen = read(&mut w, 0, 8, 2);
    w.run(Span::millis(20), |_| false);
    assert!(w.hosts[1].engine.unexpected_messages() < COUNT, "all messages found room");
    for _ in 0..COUNT {
        post(&mut w);
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == COUNT + 3));
    assert_eq!(w.hosts[0].memory.get(seen, 8), [9; 8]);
}
