//! Packets that arrive together: processing them as runs has the same effect as processing them one
//! by one.

use crate::world::*;
use squall_base::{Batch, Span, UserSlice};
use squall_engine::*;

const LEN: u64 = 40_000;
const PAYLOAD: u64 = 1344;
fn bytes() -> Vec<u8> {
    content(0, LEN)
}

/// Creates two hosts that have verified each other, in a network that keeps packets together.
/// Messages are eager.
fn world(seed: u64, faults: Faults, config: impl Fn(&mut Config)) -> World {
    let mut w = World::with(2, seed, Faults::default(), |engine, _| {
        engine.rendezvous_threshold = LEN;
        config(engine);
    });
    w.gathers = true;
    let region = w.hosts[1].memory.put(&bytes());
    w.hosts[1].memory.regions.insert(7, (UserSlice::lent(region, LEN), true, true));
    let landing = w.hosts[1].memory.alloc(1);
    receive(&mut w, Buf::new(landing, 1));
    message(&mut w, 1);
    finish(&mut w, 1);
    w.faults = faults;
    w
}

fn receive(w: &mut World, buf: Buf) {
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag: 1,
        ignore: 0,
        buf,
        context: 5,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    let host = &mut w.hosts[1];
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

fn message(w: &mut World, len: u64) {
    let base = w.hosts[0].memory.put(&bytes());
    message_of(w, Buf::new(base, len));
}

fn message_of(w: &mut World, buf: Buf) {
    let peer = w.peer(0, 1);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag: 1 },
        buf,
        data: None,
        context: 6,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(0, op).unwrap();
}

/// Runs until host 0 has nothing to do and host 1 has received `messages`.
fn finish(w: &mut World, messages: usize) {
    let received = |w: &World| w.hosts[1].done.iter().filter(|c| c.kind == OpKind::Recv).count();
    assert!(w.run(Span::secs(5), |w| w.hosts[0].engine.is_idle() && received(w) == messages));
}

/// Returns the number of packets that host `n` took as parts of runs.
fn runs(w: &World, n: usize) -> u64 {
    w.hosts[n].engine.counters().0.rx_run_packets
}

#[test]
fn most_packets_of_a_message_form_a_run() {
    let mut w = world(1, Faults::default(), |_| {});
    let base = w.hosts[1].memory.alloc(LEN as usize);
    receive(&mut w, Buf::new(base, LEN));
    message(&mut w, LEN);
    finish(&mut w, 2);
    assert_eq!(w.hosts[1].memory.get(base, LEN), bytes());
    // At most the first and the last packet of each train are not part of a run.
    assert!(runs(&w, 1) + 6 >= LEN.div_ceil(PAYLOAD), "{}", runs(&w, 1));
    let (_, transport) = w.hosts[1].engine.counters();
    assert_eq!((transport.rx_duplicates, transport.rx_out_of_order), (0, 0));
}

#[test]
fn a_batch_does_not_cut_a_train() {
    let mut w = world(9, Faults::default(), |config| config.batch_packets = 8);
    let base = w.hosts[1].memory.alloc(LEN as usize);
    receive(&mut w, Buf::new(base, LEN));
    message(&mut w, LEN);
    let mut batch = Batch::default();
    w.hosts[0].engine.poll_transmit(w.now, &mut batch);
    assert_eq!(batch.packets.len() as u64, LEN.div_ceil(PAYLOAD));
    assert!(batch.packets.iter().all(|packet| packet.path == batch.packets[0].path));
}

#[test]
fn message_of_several_pieces_forms_a_run() {
    let mut w = world(8, Faults::default(), |_| {});
    let all = bytes();
    // The pieces end inside the first packet, inside one in the middle, inside the last, and at a
    // packet boundary.
    let cuts = [[100, 20_000, LEN - 1], [PAYLOAD, 20 * PAYLOAD, 20 * PAYLOAD + 1]];
    for (n, cuts) in cuts.into_iter().enumerate() {
        let mut from = 0;
        let mut pieces = Vec::new();
        for to in cuts.into_iter().chain([LEN]) {
            let base = w.hosts[0].memory.put(&all[from as usize..to as usize]);
            pieces.push(UserSlice::lent(base, to - from));
            from = to;
        }
        let (base, before) = (w.hosts[1].memory.alloc(LEN as usize), runs(&w, 1));
        receive(&mut w, Buf::new(base, LEN));
        message_of(&mut w, Buf::from_slices(&pieces));
        finish(&mut w, n + 2);
        assert_eq!(w.hosts[1].memory.get(base, LEN), all);
        assert!(runs(&w, 1) - before + 6 >= LEN.div_ceil(PAYLOAD), "{}", runs(&w, 1) - before);
    }
}

#[test]
fn message_in_one_train_is_taken_as_a_whole() {
    let mut w = world(6, Faults::default(), |_| {});
    // The last packet is a byte short of full, full, or a byte long.
    let lengths = [PAYLOAD + 1, 2 * PAYLOAD - 1, 2 * PAYLOAD, 2 * PAYLOAD + 1, 5 * PAYLOAD - 7];
    for (n, len) in lengths.into_iter().enumerate() {
        let (base, before) = (w.hosts[1].memory.alloc(len as usize), runs(&w, 1));
        let (_, transport) = w.hosts[1].engine.counters();
        let (packets, acks) = (transport.rx_packets, transport.tx_acks);
        receive(&mut w, Buf::new(base, len));
        message(&mut w, len);
        finish(&mut w, n + 2);
        assert_eq!(w.hosts[1].memory.get(base, len), &bytes()[..len as usize]);
        let all = len.div_ceil(PAYLOAD);
        assert_eq!(
            runs(&w, 1) - before,
            all - 1,
            "all packets but the first are in the run, {len} bytes"
        );
        let (_, transport) = w.hosts[1].engine.counters();
        assert_eq!((transport.rx_packets - packets, transport.tx_acks - acks), (all, 1));
    }
    // A receive that is too short reports how much was lost.
    let base = w.hosts[1].memory.alloc(2000);
    receive(&mut w, Buf::new(base, 2000));
    message(&mut w, 3 * PAYLOAD);
    finish(&mut w, lengths.len() + 2);
    assert_eq!(w.hosts[1].memory.get(base, 2000), &bytes()[..2000]);
    let status = w.hosts[1].done.last().map(|c| c.status);
    assert_eq!(status, Some(Err(OpError::Truncated { excess: 3 * PAYLOAD - 2000 })));
}

#[test]
fn message_without_a_receive_is_kept() {
    let mut w = world(2, Faults::default(), |_| {});
    message(&mut w, LEN);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].engine.is_idle()));
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 1);
    assert!(runs(&w, 1) > 15, "{}", runs(&w, 1));
    let (first, second) = (w.hosts[1].memory.alloc(30_001), w.hosts[1].memory.alloc(20_000));
    let pieces = [UserSlice::lent(first, 30_001), UserSlice::lent(second, 20_000)];
    receive(&mut w, Buf::from_slices(&pieces));
    finish(&mut w, 2);
    assert_eq!(w.hosts[1].memory.get(first, 30_001), &bytes()[..30_001]);
    assert_eq!(w.hosts[1].memory.get(second, LEN - 30_001), &bytes()[30_001..]);
}

#[test]
fn message_without_room_is_deferred() {
    let mut w = world(3, Faults::default(), |config| config.unexpected_bytes = 9_000);
    message(&mut w, LEN);
    w.run(Span::secs(1), |_| false);
    let (counters, _) = w.hosts[1].engine.counters();
    assert_eq!(counters.rx_deferred, 1);
    assert!(counters.unexpected_bytes_peak <= 9_000);
    let base = w.hosts[1].memory.alloc(LEN as usize);
    receive(&mut w, Buf::new(base, LEN));
    finish(&mut w, 2);
    assert_eq!(w.hosts[1].memory.get(base, LEN), bytes());
}

#[test]
fn short_receive_gets_the_bytes_that_fit() {
    let mut w = world(4, Faults::default(), |_| {});
    let base = w.hosts[1].memory.alloc(10_000);
    receive(&mut w, Buf::new(base, 10_000));
    message(&mut w, LEN);
    finish(&mut w, 2);
    assert_eq!(w.hosts[1].memory.get(base, 10_000), &bytes()[..10_000]);
    let status = w.hosts[1].done.last().map(|c| c.status);
    assert_eq!(status, Some(Err(OpError::Truncated { excess: LEN - 10_000 })));
}

#[test]
fn writes_and_reads_arrive_in_runs() {
    let mut w = world(5, Faults::default(), |_| {});
    let (peer, base) = (w.peer(0, 1), w.hosts[0].memory.alloc(LEN as usize));
    let remote = |address, len| RemoteIov::One(RemoteSeg { address, len, key: 7 });
    let op = |buf, remote| RmaOp { peer, buf, remote, data: None, context: 9 };
    w.submit(0, op(Buf::new(base, LEN), remote(0, LEN)).read()).unwrap();
    finish(&mut w, 1);
    assert_eq!(w.hosts[0].memory.get(base, LEN), bytes());
    assert!(runs(&w, 0) > 15, "{}", runs(&w, 0));
    let other: Vec<u8> = bytes().iter().map(|byte| !byte).collect();
    let source = w.hosts[0].memory.put(&other);
    let before = runs(&w, 1);
    w.submit(0, op(Buf::new(source, LEN - 10), remote(10, LEN - 10)).write()).unwrap();
    finish(&mut w, 1);
    let region = w.hosts[1].memory.regions[&7].0.base;
    assert_eq!(w.hosts[1].memory.get(region, 10), &bytes()[..10]);
    assert_eq!(w.hosts[1].memory.get(region + 10, LEN - 10), &other[..LEN as usize - 10]);
    assert!(runs(&w, 1) > before + 15, "{}", runs(&w, 1) - before);
}

#[test]
fn short_messages_stay_whole_and_in_order_under_loss() {
    for seed in 0..200 {
        let rough = Faults {
            drop: 0.05,
            duplicate: 0.03,
            reorder: 0.03,
            trim: 0.02,
            ce: 0.02,
            black_hole: None,
            first_set: false,
            dead_spine: None,
        };
        let mut w = world(seed, rough, |_| {});
        let lengths: Vec<u64> = (0..24).map(|n| 100 + (n * 977 + seed * 131) % 6000).collect();
        let bases: Vec<u64> =
            lengths.iter().map(|&len| w.hosts[1].memory.alloc(len as usize)).collect();
        // Half of the receives are posted late.
        for (&base, &len) in bases.iter().zip(&lengths).take(12) {
            receive(&mut w, Buf::new(base, len));
        }
        lengths.iter().for_each(|&len| message(&mut w, len));
        w.run(Span::millis(1), |_| false);
        for (&base, &len) in bases.iter().zip(&lengths).skip(12) {
            receive(&mut w, Buf::new(base, len));
        }
        finish(&mut w, 25);
        for (&base, &len) in bases.iter().zip(&lengths) {
            assert_eq!(w.hosts[1].memory.get(base, len), &bytes()[..len as usize], "seed {seed}");
        }
        let ends = w.hosts[1].done.iter().filter(|c| c.kind == OpKind::Recv);
        assert!(ends.clone().all(|c| c.status.is_ok()), "seed {seed}");
    }
}

#[test]
fn gaps_duplicates_and_marks_change_nothing() {
    for seed in 0..200 {
        let rough = Faults {
            drop: 0.03,
            duplicate: 0.02,
            reorder: 0.02,
            trim: 0.01,
            ce: 0.02,
            black_hole: None,
            first_set: false,
            dead_spine: None,
        };
        let mut w = world(seed, rough, |_| {});
        let bases: Vec<u64> = (0..4).map(|_| w.hosts[1].memory.alloc(LEN as usize)).collect();
        for (n, &base) in bases.iter().enumerate() {
            if n % 2 == 0 {
                receive(&mut w, Buf::new(base, LEN));
            }
            message(&mut w, LEN);
        }
        w.run(Span::millis(3), |_| false);
        for &base in bases.iter().skip(1).step_by(2) {
            receive(&mut w, Buf::new(base, LEN));
        }
        finish(&mut w, 5);
        for base in bases {
            assert_eq!(w.hosts[1].memory.get(base, LEN), bytes(), "seed {seed}");
        }
    }
}
