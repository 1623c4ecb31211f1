//! Promises of the engine, one per test.

use super::world::*;
use squall_base::{Span, UserSlice};
use squall_engine::*;

fn send_op(peer: PeerId, tag: u64, base: u64, len: u64, context: u64) -> Operation {
    Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, len),
        data: None,
        context,
        options: Options { level: Level::Transmit, ..Options::default() },
    }
}

fn recv_op(source: Option<PeerId>, tag: u64, base: u64, len: u64, context: u64) -> RecvOp {
    RecvOp {
        source,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, len),
        context,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    }
}

fn send(w: &mut World, from: usize, to: usize, tag: u64, data: &[u8]) {
    let peer = w.peer(from, to);
    let base = w.hosts[from].memory.put(data);
    let op = send_op(peer, tag, base, data.len() as u64, 900 + tag);
    w.submit(from, op).unwrap();
}

fn recv(w: &mut World, at: usize, tag: u64, len: u64, context: u64) -> u64 {
    let base = w.hosts[at].memory.alloc(len as usize);
    let host = &mut w.hosts[at];
    let op = recv_op(None, tag, base, len, context);
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    base
}

fn settle(w: &mut World) {
    w.run(Span::secs(2), |w| w.hosts.iter().all(|h| h.dead || h.engine.is_idle()));
    w.run(Span::millis(5), |_| false);
}

fn of_kind(w: &World, at: usize, kind: OpKind) -> Vec<&Completion> {
    w.hosts[at].done.iter().filter(|c| c.kind == kind).collect()
}

fn bytes(len: usize) -> Vec<u8> {
    content(0, len as u64)
}

#[test]
fn inline_eager_and_rendezvous_messages_arrive() {
    for len in [0, 1, 256, 1344, 1345, 16 * 1024, 16 * 1024 + 1, 1_000_000] {
        for early in [false, true] {
            let mut w = World::new(2, len as u64, Faults::default());
            let data = bytes(len);
            let mut base = 0;
            if early {
                base = recv(&mut w, 1, 5, len as u64, 1);
            }
            send(&mut w, 0, 1, 5, &data);
            if !early {
                for _ in 0..20 {
                    w.step();
                }
                assert_eq!(w.hosts[1].engine.unexpected_messages(), 1);
                base = recv(&mut w, 1, 5, len as u64, 1);
            }
            settle(&mut w);
            assert_eq!(of_kind(&w, 0, OpKind::Send).len(), 1, "{len} {early}");
            let got = of_kind(&w, 1, OpKind::Recv);
            assert_eq!((got.len(), got[0].len, got[0].status), (1, len as u64, Ok(())));
            assert!(w.hosts[1].memory.get(base, len as u64) == data);
        }
    }
}

#[test]
fn truncation_fills_the_buffer_and_frees_the_sender() {
    for len in [1000u64, 100_000] {
        let mut w = World::new(2, 3, Faults::default());
        let base = recv(&mut w, 1, 5, 600, 1);
        send(&mut w, 0, 1, 5, &bytes(len as usize));
        settle(&mut w);
        let got = of_kind(&w, 1, OpKind::Recv);
        assert_eq!(got[0].status, Err(OpError::Truncated { excess: len - 600 }));
        assert_eq!(got[0].len, 600);
        assert!(w.hosts[1].memory.get(base, 600) == &bytes(len as usize)[..600]);
        assert_eq!(of_kind(&w, 0, OpKind::Send)[0].status, Ok(()));
    }
}

#[test]
fn delivery_complete_waits_for_the_match() {
    let mut w = World::new(2, 4, Faults::default());
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(b"hello");
    for (tag, len) in [(1, 5), (2, 0)] {
        let mut op = send_op(peer, tag, base, len, tag);
        op.options.level = Level::Match;
        w.submit(0, op).unwrap();
    }
    for _ in 0..100 {
        w.step();
    }
    assert!(of_kind(&w, 0, OpKind::Send).is_empty(), "no receive has taken the message");
    recv(&mut w, 1, 1, 5, 1);
    recv(&mut w, 1, 2, 5, 2);
    settle(&mut w);
    assert_eq!(of_kind(&w, 0, OpKind::Send).len(), 2);
    assert_eq!(of_kind(&w, 1, OpKind::Recv).len(), 2);
}

#[test]
fn directed_receives_take_only_their_source() {
    let mut w = World::new(3, 5, Faults::default());
    let (one, two) = (w.peer(0, 1), w.peer(0, 2));
    let (a, b) = (w.hosts[0].memory.alloc(8), w.hosts[0].memory.alloc(8));
    let host = &mut w.hosts[0];
    host.engine.receive(w.now, &mut host.memory, recv_op(Some(two), 7, a, 8, 2)).unwrap();
    host.engine.receive(w.now, &mut host.memory, recv_op(Some(one), 7, b, 8, 1)).unwrap();
    send(&mut w, 1, 0, 7, b"from 1");
    send(&mut w, 2, 0, 7, b"from 2");
    settle(&mut w);
    assert_eq!(w.hosts[0].memory.get(a, 6), b"from 2");
    assert_eq!(w.hosts[0].memory.get(b, 6), b"from 1");
    for c in of_kind(&w, 0, OpKind::Recv) {
        assert_eq!(c.peer, Some(if c.context == 1 { one } else { two }));
    }
}

#[test]
fn peek_claim_and_discard_find_unexpected_messages() {
    let mut w = World::new(2, 6, Faults::default());
    let probe = |w: &mut World, mode| {
        let host = &mut w.hosts[1];
        let op = RecvOp { mode, ..recv_op(None, 5, 0, 0, 77) };
        host.engine.receive(w.now, &mut host.memory, op)
    };
    probe(&mut w, RecvMode::Peek).unwrap();
    for len in [10, 50_000, 20, 60_000] {
        send(&mut w, 0, 1, 5, &bytes(len));
    }
    for _ in 0..100 {
        w.step();
    }
    probe(&mut w, RecvMode::Peek).unwrap();
    probe(&mut w, RecvMode::PeekClaim).unwrap();
    probe(&mut w, RecvMode::PeekDiscard).unwrap();
    let base = w.hosts[1].memory.alloc(10);
    let claim = RecvOp { mode: RecvMode::Claim, ..recv_op(None, 5, base, 10, 77) };
    let host = &mut w.hosts[1];
    host.engine.receive(w.now, &mut host.memory, claim.clone()).unwrap();
    let again = host.engine.receive(w.now, &mut host.memory, claim);
    assert_eq!(again, Err(SubmitError::NotClaimed));
    probe(&mut w, RecvMode::PeekClaim).unwrap();
    probe(&mut w, RecvMode::ClaimDiscard).unwrap();
    let last = recv(&mut w, 1, 5, 60_000, 1);
    settle(&mut w);
    let seen: Vec<_> = w.hosts[1].done.iter().map(|c| (c.len, c.status)).collect();
    let peeks = of_kind(&w, 1, OpKind::Peek).len();
    assert_eq!(peeks, 5, "a peek has its own kind of completion");
    assert_eq!(
        w.hosts[1].engine.counters().0.op_errors,
        0,
        "a peek without a message is not counted as an error"
    );
    let expected = [
        (0, Err(OpError::NoMessage)),
        (10, Ok(())),
        (10, Ok(())),
        (50_000, Ok(())),
        (10, Ok(())),
        (20, Ok(())),
        (20, Ok(())),
        (60_000, Ok(())),
    ];
    assert_eq!(seen, expected);
    assert!(w.hosts[1].memory.get(base, 10) == bytes(10));
    assert!(w.hosts[1].memory.get(last, 60_000) == bytes(60_000));
    assert_eq!(of_kind(&w, 0, OpKind::Send).len(), 4, "discarded sends complete too");
    assert_eq!(w.hosts[1].engine.counters().0.unexpected_bytes, 0);
}

#[test]
fn multi_receive_packs_messages_and_returns_the_buffer() {
    let mut w = World::new(2, 7, Faults::default());
    send(&mut w, 0, 1, 0, &bytes(300)); // unexpected, goes in as well
    for _ in 0..20 {
        w.step();
    }
    let base = w.hosts[1].memory.alloc(2000);
    let mut op = recv_op(None, 0, base, 2000, 9);
    op.mode = RecvMode::Multi { least: 500 };
    let host = &mut w.hosts[1];
    host.engine.receive(w.now, &mut host.memory, op.clone()).unwrap();
    for len in [400, 700, 200] {
        send(&mut w, 0, 1, 0, &bytes(len));
    }
    settle(&mut w);
    let got = of_kind(&w, 1, OpKind::Recv);
    let spans: Vec<_> = got.iter().map(|c| (c.buf - base, c.len, c.released)).collect();
    // 300 + 400 + 700 leave 600 bytes, and 200 more leave 400: fewer than 500.
    assert_eq!(spans, [(0, 300, false), (300, 400, false), (700, 700, false), (1400, 200, true)]);
    // Another buffer is partly used and then cancelled.
    let host = &mut w.hosts[1];
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
    send(&mut w, 0, 1, 0, &bytes(100));
    settle(&mut w);
    assert!(w.hosts[1].engine.cancel(w.now, 9) && !w.hosts[1].engine.cancel(w.now, 9));
    settle(&mut w);
    let got = of_kind(&w, 1, OpKind::Recv);
    let last = got.last().unwrap();
    assert_eq!((got.len(), last.status, last.released), (6, Err(OpError::Cancelled), true));
}

#[test]
fn cancelled_receives_do_not_match() {
    let mut w = World::new(2, 8, Faults::default());
    recv(&mut w, 1, 5, 10, 1);
    let second = recv(&mut w, 1, 5, 10, 2);
    assert!(w.hosts[1].engine.cancel(w.now, 1));
    send(&mut w, 0, 1, 5, b"second");
    settle(&mut w);
    assert_eq!(w.hosts[1].memory.get(second, 6), b"second");
    let got = of_kind(&w, 1, OpKind::Recv);
    assert_eq!((got[0].context, got[0].status), (1, Err(OpError::Cancelled)));
    assert_eq!((got[1].context, got[1].status), (2, Ok(())));
}

#[test]
fn remote_access_is_checked() {
    let mut w = World::new(2, 9, Faults::default());
    let region = w.hosts[1].memory.put(&bytes(1000));
    w.hosts[1].memory.regions.insert(1, (UserSlice::lent(region, 1000), true, false));
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.alloc(5000);
    let op = |w: &mut World, write: bool, key, address, len, context| {
        let op = RmaOp {
            peer,
            buf: Buf::new(base, len),
            remote: RemoteIov::One(RemoteSeg { address, len, key }),
            data: None,
            context,
        };
        w.submit(0, if write { op.write() } else { op.read() }).unwrap();
    };
    op(&mut w, false, 1, 0, 1000, 0); // fine
    op(&mut w, false, 2, 0, 10, 1); // no such key
    op(&mut w, false, 1, 995, 10, 2); // beyond the end
    op(&mut w, false, 1, u64::MAX, 10, 3); // wraps
    op(&mut w, true, 1, 0, 10, 4); // not writable
    op(&mut w, true, 2, 0, 5000, 5); // several packets, all refused
    op(&mut w, false, 1, 1000, 0, 6); // nothing, at the end: fine
    settle(&mut w);
    let mut ends: Vec<_> = w.hosts[0].done.iter().map(|c| (c.context, c.status.is_ok())).collect();
    ends.sort_unstable();
    let fine = |c: u64| c == 0 || c == 6;
    assert_eq!(ends, (0..7).map(|c| (c, fine(c))).collect::<Vec<_>>());
    assert!(w.hosts[0].memory.get(base, 1000) == bytes(1000));
    assert!(w.hosts[1].memory.get(region, 1000) == bytes(1000), "nothing was overwritten");
    assert!(w.hosts[0].engine.is_idle());
}

#[test]
fn unreachable_peer_fails_every_operation() {
    let mut w = World::new(2, 10, Faults::default());
    w.hosts[1].dead = true;
    let peer = w.peer(0, 1);
    for tag in 0..5 {
        send(&mut w, 0, 1, tag, &bytes(if tag == 4 { 100_000 } else { 100 }));
    }
    let base = w.hosts[0].memory.put(b"x");
    w.submit(0, injected(peer, MatchSpace::Tagged, 9, Buf::new(base, 1), None)).unwrap();
    let start = w.now;
    w.run(Span::secs(60), |w| w.hosts[0].done.len() == 6);
    let took = w.now.since(start);
    assert!(w.hosts[0].done.iter().all(|c| c.status == Err(OpError::Unreachable)));
    assert!(took >= Span::secs(5) && took <= Span::secs(15), "after the deadline, {took}");
    assert!(w.hosts[0].engine.is_idle());
}

#[test]
fn death_of_a_rendezvous_receiver_is_noticed() {
    let mut w = World::new(2, 11, Faults::default());
    send(&mut w, 0, 1, 5, &bytes(100_000));
    for _ in 0..100 {
        w.step();
    }
    w.hosts[1].dead = true;
    w.run(Span::secs(60), |w| !w.hosts[0].done.is_empty());
    assert_eq!(w.hosts[0].done[0].status, Err(OpError::TimedOut));
}

#[test]
fn malformed_and_foreign_packets_change_nothing() {
    let mut w = World::new(2, 12, Faults::default());
    w.tap = Some(vec![]);
    let base = recv(&mut w, 1, 5, 3000, 1);
    send(&mut w, 0, 1, 5, &bytes(3000));
    let src = w.hosts[0].addr;
    for _ in 0..2000 {
        let mut packet: Vec<u8> = match w.tap.as_ref().and_then(|t| t.last()) {
            Some(real) if w.rng.chance(0.7) => real.bytes.clone(),
            _ => (0..w.rng.below(200)).map(|_| w.rng.next_u32() as u8).collect(),
        };
        // This is a genuine packet for another context, with other numbers. (One with a SYN could
        // open a context: only TSS can tell a forged SYN from a genuine one.)
        if packet.len() > 12 {
            if packet[1] & 0x04 != 0 {
                continue;
            }
            packet[11] ^= 1 + (w.rng.below(255) as u8);
            for _ in 0..3 {
                let at = 2 + w.rng.below(8) as usize;
                packet[at] ^= 1 << w.rng.below(8);
            }
        }
        let now = w.now;
        let meta = PacketMarks { ce: false, trimmed: w.rng.chance(0.1) };
        for host in &mut w.hosts {
            host.engine.handle_packet(now, &mut host.memory, src, meta, &packet);
        }
        if w.rng.chance(0.1) {
            w.step();
        }
    }
    settle(&mut w);
    assert!(w.hosts[1].memory.get(base, 3000) == bytes(3000));
    assert_eq!(of_kind(&w, 1, OpKind::Recv).len(), 1);
    assert_eq!(of_kind(&w, 0, OpKind::Send)[0].status, Ok(()));
}

#[test]
fn request_completes_before_its_answer() {
    for seed in 0..50 {
        let faults = Faults { reorder: 0.5, drop: 0.1, ..Faults::default() };
        let mut w = World::new(2, seed, faults);
        let peer = w.peer(0, 1);
        let question = w.hosts[0].memory.put(b"how many?");
        recv(&mut w, 0, 6, 10, 1);
        recv(&mut w, 1, 5, 10, 1);
        let mut op = send_op(peer, 5, question, 9, 77);
        op.options.level = Level::Default;
        w.submit(0, op).unwrap();
        // No answer has arrived yet, so a failure must still be reportable.
        assert!(w.hosts[0].engine.poll_completion().is_none());
        w.run(Span::secs(5), |w| !w.hosts[1].done.is_empty());
        send(&mut w, 1, 0, 6, b"seven");
        w.run(Span::secs(5), |w| w.hosts[0].done.len() == 2);
        let kinds: Vec<_> = w.hosts[0].done.iter().map(|c| (c.kind, c.context)).collect();
        assert_eq!(kinds, [(OpKind::Send, 77), (OpKind::Recv, 1)], "seed {seed}");
        // From now on the buffer belongs to the user; retransmissions use a copy.
        w.hosts[0].memory.bytes[question as usize] = b'x';
        settle(&mut w);
        assert!(w.hosts[0].engine.is_idle());
    }
}

/// Restarts host `at` as another instance at the same address.
fn restart(w: &mut World, at: usize, seed: u64) {
    let port = w.hosts[at].addr.port();
    let (engine, pdc) = (engine_config(seed, port), pdc_config(seed));
    w.hosts[at].engine = squall_engine::Engine::new(engine, pdc);
    w.hosts[at].done.clear();
}

#[test]
fn restarted_peer_is_a_new_instance() {
    if OVER_SHM {
        return; // Over a shared-memory channel the death is noticed earlier.
    }
    let mut w = World::new(2, 21, Faults::default());
    recv(&mut w, 1, 1, 10, 1);
    send(&mut w, 0, 1, 1, b"before");
    settle(&mut w);
    restart(&mut w, 1, 0x5555);
    // The new instance does not know the old one's context: the operation fails early instead of
    // hanging.
    send(&mut w, 0, 1, 2, b"lost");
    let start = w.now;
    w.run(Span::secs(20), |w| w.hosts[0].done.len() == 2);
    assert_eq!(w.hosts[0].done[1].status, Err(OpError::PeerRestarted));
    assert!(w.now.since(start) < Span::secs(1), "the failure is reported before the timeout");
    // Afterwards it is a peer like any other.
    let base = recv(&mut w, 1, 3, 10, 3);
    send(&mut w, 0, 1, 3, b"after");
    settle(&mut w);
    assert_eq!(w.hosts[1].memory.get(base, 5), b"after");
}

#[test]
fn new_instance_ends_the_operations_of_the_old_one() {
    let mut w = World::new(2, 22, Faults::default());
    // The rendezvous will never be read by host 1. Host 0 has not verified host 1 yet, so it asks
    // for a sign of life, and the new instance does not know the context.
    send(&mut w, 0, 1, 1, &bytes(100_000));
    for _ in 0..50 {
        w.step();
    }
    restart(&mut w, 1, 0x7777);
    let base = recv(&mut w, 0, 9, 10, 9);
    send(&mut w, 1, 0, 9, b"I am new");
    settle(&mut w);
    assert_eq!(w.hosts[0].memory.get(base, 8), b"I am new");
    w.run(Span::secs(5), |w| w.hosts[0].done.len() == 2);
    let failed: Vec<_> = w.hosts[0].done.iter().filter(|c| c.status.is_err()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].status, Err(OpError::PeerRestarted));
}

#[test]
fn packets_of_a_former_instance_are_ignored() {
    let mut w = World::new(2, 23, Faults::default());
    w.tap = Some(vec![]);
    recv(&mut w, 0, 1, 10, 1);
    send(&mut w, 1, 0, 1, b"old");
    settle(&mut w);
    let replay = w.tap.take().unwrap();
    restart(&mut w, 1, 0x9999);
    recv(&mut w, 0, 2, 10, 2);
    send(&mut w, 1, 0, 2, b"new");
    settle(&mut w);
    // All packets of the old instance are replayed.
    recv(&mut w, 0, 1, 10, 3);
    let src = w.hosts[1].addr;
    for packet in &replay {
        let now = w.now;
        let host = &mut w.hosts[0];
        host.engine.handle_packet(
            now,
            &mut host.memory,
            src,
            PacketMarks::default(),
            &packet.bytes,
        );
    }
    settle(&mut w);
    assert_eq!(of_kind(&w, 0, OpKind::Recv).len(), 2, "the receive with context 3 still waits");
    assert!(w.hosts[0].engine.counters().0.rx_foreign > 0);
    // The new instance is still verified.
    recv(&mut w, 0, 4, 10, 4);
    send(&mut w, 1, 0, 4, b"still");
    settle(&mut w);
    assert!(w.hosts[1].done.iter().all(|c| c.status.is_ok()));
}

#[test]
fn idle_contexts_close_and_open_again() {
    if OVER_SHM {
        return; // The test counts packet delivery contexts.
    }
    let mut w = World::new(2, 24, Faults::default());
    for round in 0..3 {
        recv(&mut w, 1, round, 10, round);
        send(&mut w, 0, 1, round, b"ping");
        settle(&mut w);
        assert!(w.hosts[0].engine.contexts().count() > 0);
        w.run(Span::secs(200), |w| w.hosts.iter().all(|h| h.engine.contexts().count() == 0));
        assert_eq!(w.hosts[0].engine.contexts().count(), 0, "idle contexts close");
        assert_eq!(w.hosts[1].engine.contexts().count(), 0, "both ends close their contexts");
    }
    assert_eq!(of_kind(&w, 1, OpKind::Recv).len(), 3);
    assert_eq!(w.hosts[0].engine.counters().1.opened, 3);
}

#[test]
fn senders_wait_for_room_and_nothing_is_lost() {
    let mut w = World::with(2, 25, Faults::default(), |config, _| config.max_unexpected = 10);
    for tag in 0..40 {
        send(&mut w, 0, 1, tag, &bytes(2_000));
    }
    w.run(Span::millis(200), |_| false);
    let held = w.hosts[1].engine.counters().0;
    assert!(held.rx_held_back > 0 && w.hosts[1].engine.unexpected_messages() <= 10, "{held:?}");
    for tag in 0..40 {
        recv(&mut w, 1, tag, 2_000, tag);
    }
    settle(&mut w);
    assert_eq!(of_kind(&w, 1, OpKind::Recv).len(), 40);
    assert!(w.hosts[0].done.iter().all(|c| c.status.is_ok()));
}

/// Messages for which there was room wait behind one for which there is none, for longer than any
/// sender waits for an acknowledgement.
#[test]
fn sender_that_waits_a_minute_for_room_is_not_given_up() {
    let mut w = World::with(2, 26, Faults::default(), |config, _| config.max_unexpected = 9);
    w.faults.reorder = 0.5;
    for tag in 0..40 {
        send(&mut w, 0, 1, tag, &bytes(if tag % 2 == 0 { 3_000 } else { 300 }));
    }
    w.run(Span::secs(60), |_| false);
    assert!(w.hosts[1].engine.counters().0.rx_held_back > 0);
    for tag in 0..40 {
        recv(&mut w, 1, tag, 3_000, tag);
    }
    settle(&mut w);
    assert_eq!(of_kind(&w, 1, OpKind::Recv).len(), 40);
    assert!(w.hosts.iter().flat_map(|host| &host.done).all(|c| c.status.is_ok()));
}

/// The peer is notified of a write with remote CQ data when all of its ranges are in place, in
/// whatever order packets arrive.
#[test]
fn remote_cq_data_arrives_after_every_range() {
    const LEN: u64 = 6000;
    for seed in 0..20 {
        let faults = Faults { drop: 0.2, reorder: 0.3, ..Faults::default() };
        let mut w = World::new(2, seed, faults);
        let into = w.hosts[1].memory.alloc(3 * LEN as usize);
        w.hosts[1].memory.register(7, into, 3 * LEN, true, true);
        let data = bytes(3 * LEN as usize);
        let base = w.hosts[0].memory.put(&data);
        let peer = w.peer(0, 1);
        let range = |n| RemoteSeg { address: n * LEN, len: LEN, key: 7 };
        let remote = RemoteIov::Many((0..3).map(range).collect());
        let buf = Buf::new(base, 3 * LEN);
        let op = RmaOp { peer, buf, remote, data: Some(9), context: 4 };
        w.submit(0, op.write()).unwrap();
        w.run(Span::secs(20), |w| !w.hosts[1].done.is_empty());
        assert_eq!(of_kind(&w, 1, OpKind::RemoteWrite).len(), 1, "seed {seed}");
        assert_eq!(w.hosts[1].done[0].data, Some(9));
        assert!(w.hosts[1].memory.get(into, 3 * LEN) == data, "seed {seed}: data first");
        w.run(Span::secs(20), |w| !w.hosts[0].done.is_empty());
        assert_eq!(of_kind(&w, 0, OpKind::Write).len(), 1, "seed {seed}");
        assert_eq!(w.hosts[0].done[0].status, Ok(()));
    }
}

/// Returns whether an operation of `len` bytes requests its acknowledgement, once the peers have
/// verified each other.
fn asks_for_acknowledgement(write: bool, len: u64, options: Options) -> bool {
    let mut w = World::new(2, 21, Faults::default());
    let at = w.hosts[1].memory.alloc(len as usize);
    w.hosts[1].memory.register(4, at, len, true, true);
    for context in 0..2 {
        w.tap = Some(vec![]);
        let peer = w.peer(0, 1);
        let buf = Buf::new(w.hosts[0].memory.put(&bytes(len as usize)), len);
        let remote = RemoteIov::One(RemoteSeg { address: 0, len, key: 4 });
        let message = Action::Message { space: MatchSpace::Tagged, tag: 1 };
        let action = if write { Action::Write(remote) } else { message };
        w.submit(0, Operation { peer, action, buf, data: None, context, options }).unwrap();
        w.run(Span::millis(10), |_| false);
        assert_eq!(w.hosts[0].done.len(), context as usize + 1);
    }
    let seen = w.tap.take().unwrap();
    let requests = seen.iter().filter_map(|seen| match squall_wire::parse(&seen.bytes) {
        Ok(squall_wire::Packet::Request { pds, .. }) => Some(pds.ack_request),
        _ => None,
    });
    let asks: Vec<bool> = requests.collect();
    assert_eq!(asks.len() as u64, len.div_ceil(1300), "packets");
    asks.contains(&true)
}

/// A receiver delays acknowledgements that were not requested. Regression test: an injected write
/// was delayed although a flush waits for it.
#[test]
fn awaited_operations_request_their_acknowledgement() {
    if OVER_SHM {
        return; // The test counts packets.
    }
    let base = Options { inject: true, ..Options::default() };
    let counted = Options { visibility: Visibility::CountOnly, ..base };
    let delivered = Options { level: Level::Delivery, ..base };
    for (write, len, options) in [
        (true, 64, counted),
        (true, 64, base),
        (false, 64, delivered),
        (true, 64, Options::default()),
        (true, 5000, Options::default()),
        (false, 5000, Options { level: Level::Transmit, ..Options::default() }),
    ] {
        assert!(asks_for_acknowledgement(write, len, options), "{write} {len} {options:?}");
    }
    // Injected MPI operations, and operations that completed when they were copied, have no waiter.
    for (len, options) in [(64, counted), (64, Options::default()), (5000, Options::default())] {
        assert!(!asks_for_acknowledgement(false, len, options), "{len} {options:?}");
    }
}

/// A longer delay of acknowledgements holds for the packets that arrive from then on.
#[test]
fn acknowledgements_are_delayed_as_long_as_was_set() {
    if OVER_SHM {
        // Records in shared memory are not acknowledged.
        return;
    }
    for delay in [Span::micros(150), Span::millis(1)] {
        let mut w = World::new(2, 1, Faults::default());
        let send = |w: &mut World| {
            let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.put(b"bytes"));
            let op = injected(peer, MatchSpace::Tagged, 1, Buf::new(base, 5), None);
            w.submit(0, op).unwrap();
        };
        let acks = |w: &World| w.hosts[1].engine.counters().1.tx_acks;
        send(&mut w);
        w.run(Span::millis(50), |_| false);
        // The sender would ask earlier for what it misses.
        w.hosts.iter_mut().for_each(|host| host.engine.set_ack_delay(delay));
        let (before, sent_at) = (acks(&w), w.now);
        send(&mut w);
        assert!(w.run(Span::millis(50), |w| acks(w) > before), "the message is acknowledged");
        let after = w.now.since(sent_at);
        assert!(after >= delay && after < delay + Span::micros(100), "{after:?}, not {delay:?}");
    }
}
