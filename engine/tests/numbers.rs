//! Tests that table entries named by numbers that wrap are gone before their numbers are used again.

use crate::world::*;
use squall_base::Span;
use squall_engine::*;

fn write(w: &mut World, key: u64, bytes: &[u8], data: Option<u64>, context: u64) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(bytes);
    let len = bytes.len() as u64;
    let remote = RemoteIov::One(RemoteSeg { address: 0, len, key });
    let buf = Buf::new(base, len);
    w.submit(0, RmaOp { peer, buf, remote, data, context }.write()).expect("there is room");
}

/// Returns how many of the `len` bytes of host 1 from `base` on are `value`.
fn count(w: &World, base: u64, len: usize, value: u8) -> usize {
    w.hosts[1].memory.get(base, len as u64).iter().filter(|byte| **byte == value).count()
}

/// A region is closed in the middle of a write with remote CQ data. As many operations later as there are ids, another
/// write has the same id. Its data must be reported when all its own bytes are in place, and must be its own.
fn reuse_the_id_of_a_write(over_shm: bool) {
    const LEN: usize = 600_000;
    let mut w = World::with(2, 5, Faults::default(), |config, _| config.shm = over_shm);
    w.shm.unfetchable = true;
    let base = w.hosts[1].memory.alloc(LEN);
    w.hosts[1].memory.register(7, base, LEN as u64, true, true);
    write(&mut w, 7, &[1], None, 1);
    assert!(w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty()));
    w.run(Span::millis(10), |_| false);
    write(&mut w, 7, &[2; LEN], Some(2), 2);
    assert!(w.run(Span::secs(1), |w| count(w, base, LEN, 2) >= LEN / 2));
    assert!(count(&w, base, LEN, 2) < LEN, "the region is closed in the middle of the write");
    w.unregister(1, 7);
    let ended = |context| move |w: &World| w.hosts[0].done.iter().any(|c| c.context == context);
    assert!(w.run(Span::secs(20), ended(2)));
    let base = w.hosts[1].memory.alloc(LEN);
    w.hosts[1].memory.register(9, base, LEN as u64, true, true);
    for n in 0..u64::from(u16::MAX) {
        write(&mut w, 9, &[0], None, 10 + n);
        if n % 500 == 0 {
            assert!(w.run(Span::secs(1), ended(10 + n)));
            w.hosts[0].done.clear();
        }
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[0].engine.is_idle()));
    w.hosts.iter_mut().for_each(|host| host.done.clear());
    write(&mut w, 9, &[3; LEN], Some(3), 3);
    let reported = |w: &World| w.hosts[1].done.iter().any(|c| c.kind == OpKind::RemoteWrite);
    assert!(w.run(Span::secs(5), reported));
    assert_eq!(count(&w, base, LEN, 3), LEN, "remote CQ data come behind the bytes");
    let landed = &w.hosts[1].done[0];
    assert_eq!((landed.data, landed.len), (Some(3), LEN as u64));
}

#[test]
fn ids_of_writes_are_reused_on_a_context() {
    reuse_the_id_of_a_write(false);
}

#[test]
fn ids_of_writes_are_reused_on_a_channel() {
    reuse_the_id_of_a_write(true);
}

/// A rendezvous message waits for its receive while as many further messages arrive as there are ids, so that a later
/// message has the same id. The end of the later message must not make the receiver forget the older one, about which
/// its sender still asks.
#[test]
fn id_of_a_waiting_message_is_reused() {
    const LONG: usize = 20_000;
    let mut w = World::new(2, 6, Faults::default());
    let peer = w.peer(0, 1);
    let send = |w: &mut World, tag: u64, len: usize| {
        let base = w.hosts[0].memory.put(&vec![tag as u8; len]);
        let action = Action::Message { space: MatchSpace::Tagged, tag };
        let (buf, options) = (Buf::new(base, len as u64), Options::default());
        let op = Operation { peer, action, buf, data: None, context: tag, options };
        w.submit(0, op).expect("there is room");
    };
    let receive = |w: &mut World, tag: u64, len: usize| {
        let base = w.hosts[1].memory.alloc(len);
        let op = RecvOp {
            source: None,
            space: MatchSpace::Tagged,
            tag,
            ignore: 0,
            buf: Buf::new(base, len as u64),
            context: tag,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        let host = &mut w.hosts[1];
        host.engine.receive(w.now, &mut host.memory, op).expect("it may be posted");
        base
    };
    let got = |w: &World, tag| w.hosts[1].done.iter().any(|c| c.context == tag);
    send(&mut w, 1, LONG);
    for n in 0..u64::from(u16::MAX) {
        receive(&mut w, 2, 0);
        send(&mut w, 2, 0);
        if n % 500 == 0 {
            let here = |w: &World| w.hosts[1].engine.counters().0.rx_expected > n;
            assert!(w.run(Span::secs(1), here));
            w.hosts.iter_mut().for_each(|host| host.done.clear());
        }
    }
    receive(&mut w, 3, LONG);
    send(&mut w, 3, LONG);
    assert!(w.run(Span::secs(5), |w| got(w, 3)));
    w.run(Span::secs(10), |_| false);
    let failed = |w: &World| w.hosts[0].done.iter().any(|c| c.status.is_err());
    assert!(!failed(&w), "the message still waits for its receive");
    let base = receive(&mut w, 1, LONG);
    assert!(w.run(Span::secs(5), |w| got(w, 1)));
    assert_eq!(w.hosts[1].memory.get(base, LONG as u64), [1; LONG]);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].engine.is_idle()) && !failed(&w));
}
