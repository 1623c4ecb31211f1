//! Messages that arrive before their receives, more than there is memory for: all arrive in order,
//! and only senders that must wait do so.

use super::world::*;
use squall_base::Span;
use squall_engine::*;

/// Sends message `n` from host `from` to host 1.
fn send(w: &mut World, from: usize, tag: u64, n: u64, len: u64, options: Options) {
    let peer = w.peer(from, 1);
    let base = w.hosts[from].memory.put(&content(n, len));
    let action = Action::Message { space: MatchSpace::Tagged, tag };
    let buf = Buf::new(base, len);
    w.submit(from, Operation { peer, action, buf, data: Some(n), context: n, options }).unwrap();
    if options.inject {
        w.hosts[from].memory.revoke(base);
    } else {
        w.hosts[from].lent.insert(n, Lent { base, multi: false });
    }
}

/// Posts a receive for a tag at host 1.
fn recv(w: &mut World, tag: u64, context: u64, room: u64) {
    let base = w.hosts[1].memory.alloc(room as usize);
    let host = &mut w.hosts[1];
    host.lent.insert(context, Lent { base, multi: false });
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, room),
        context,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Returns the status of the operation with this context at a host, if it has ended.
fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|c| c.context == context).map(|c| c.status)
}

/// Receives `count` messages of a tag, which must be the sent ones from `first` on.
fn receive_all(w: &mut World, tag: u64, first: u64, count: u64, len: impl Fn(u64) -> u64) {
    const CONTEXT: u64 = 1 << 32;
    w.hosts[1].done.clear();
    for n in 0..count {
        recv(w, tag, CONTEXT + n, len(first + n));
    }
    let over = |w: &World| w.hosts[1].done.len() as u64 == count;
    assert!(w.run(Span::secs(60), over), "{} of {count}", w.hosts[1].done.len());
    for n in first..first + count {
        let done = &w.hosts[1].done;
        let c = done
            .iter()
            .find(|c| c.context == CONTEXT + n - first)
            .expect("the operation has ended");
        assert_eq!((c.status, c.len, c.data), (Ok(()), len(n), Some(n)));
        assert!(w.hosts[1].memory.get(c.buf, c.len) == content(n, c.len), "message {n}");
    }
    let idle = |w: &World| w.hosts.iter().all(|host| host.engine.is_idle());
    assert!(w.run(Span::secs(10), idle), "the send completes too");
    w.run(Span::millis(1), |_| false);
    assert_eq!(w.hosts[1].engine.counters().0.unexpected_bytes, 0);
}

fn lent() -> Options {
    Options { level: Level::Transmit, ..Options::default() }
}

fn world(seed: u64, faults: Faults, bytes: u64) -> World {
    World::with(2, seed, faults, |config, _| {
        config.unexpected_bytes = bytes;
        config.rendezvous_threshold = 64 * 1024;
    })
}

#[test]
fn wanted_message_passes_five_thousand_unexpected_ones() {
    const COUNT: u64 = 5000;
    const LEN: u64 = 60_000;
    let mut w = world(1, Faults::default(), 16 << 20);
    for n in 0..COUNT {
        send(&mut w, 0, 1, n, LEN, lent());
    }
    send(&mut w, 0, 2, COUNT, LEN, lent());
    recv(&mut w, 2, 9, LEN);
    assert!(
        w.run(Span::secs(10), |w| end(w, 1, 9).is_some()),
        "the wanted message does not wait for the others"
    );
    assert_eq!(end(&w, 1, 9), Some(Ok(())));
    let counters = w.hosts[1].engine.counters().0;
    assert!(counters.unexpected_bytes_peak <= 16 << 20, "{counters:?}");
    assert!(counters.rx_deferred > 4000 && counters.rx_held_back == 0, "{counters:?}");
    receive_all(&mut w, 1, 0, COUNT, |_| LEN);
    for n in 0..=COUNT {
        assert_eq!(end(&w, 0, n), Some(Ok(())), "message {n}");
    }
}

#[test]
fn order_and_contents_survive_loss_and_a_small_memory() {
    for seed in 0..40 {
        let faults =
            Faults { drop: 0.05, reorder: 0.3, duplicate: 0.05, trim: 0.03, ..Faults::default() };
        let mut w = world(seed, faults, [0, 3_000, 30_000, 200_000][seed as usize % 4]);
        // Injected and longer messages, of one packet and of many.
        let len = |n: u64| [0, 30, 200, 1000, 5000, 60_000][n as usize * 7 % 6];
        for n in 0..60 {
            let levels = [Level::Default, Level::Transmit, Level::Delivery, Level::Match];
            let level = levels[n as usize % 4];
            let options = Options { inject: len(n) <= 256, level, ..Options::default() };
            send(&mut w, 0, 1, n, len(n), options);
        }
        send(&mut w, 0, 2, 60, 3000, lent());
        recv(&mut w, 2, 9, 3000);
        assert!(w.run(Span::secs(20), |w| end(w, 1, 9).is_some()), "seed {seed}");
        receive_all(&mut w, 1, 0, 60, len);
        for n in 0..=60 {
            assert_eq!(end(&w, 0, n), Some(Ok(())), "seed {seed}: message {n}");
        }
        for host in &w.hosts {
            let counters = host.engine.counters().0;
            assert_eq!((counters.rx_inconsistent, counters.lost_after_completion), (0, 0));
        }
    }
}

/// Receives that are posted while a message is being deferred match it.
#[test]
fn receive_posted_between_a_message_and_its_offer_matches() {
    for seed in 0..60 {
        let mut w = world(seed, Faults { reorder: 0.2, ..Faults::default() }, 5_000);
        for n in 0..8 {
            send(&mut w, 0, 1, n, 20_000, lent());
        }
        for _ in 0..seed {
            w.step();
        }
        receive_all(&mut w, 1, 0, 8, |_| 20_000);
    }
}

#[test]
fn deferred_send_completes_at_its_level() {
    let mut w = world(3, Faults::default(), 0);
    // Once the peers have verified each other, copied messages complete at the call.
    recv(&mut w, 7, 1 << 40, 10);
    send(&mut w, 0, 7, 100, 10, lent());
    assert!(w.run(Span::secs(1), |w| end(w, 0, 100).is_some()));
    let inject = Options { inject: true, ..Options::default() };
    send(&mut w, 0, 1, 0, 200, inject);
    send(&mut w, 0, 1, 1, 2_000, lent());
    send(&mut w, 0, 1, 2, 2_000, Options { level: Level::Match, ..Options::default() });
    w.run(Span::secs(3), |_| false);
    let ended = [0, 1, 2].map(|n| end(&w, 0, n));
    assert_eq!(ended, [Some(Ok(())), None, None], "the copy is kept, buffers are lent");
    // A short message on a shared-memory channel is kept in any case.
    let kept = u64::from(w.shm.carried > 0);
    assert_eq!(w.hosts[0].engine.counters().0.tx_deferred, 3 - kept);
    recv(&mut w, 1, 50, 200);
    recv(&mut w, 1, 51, 2_000);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 1).is_some()));
    assert_eq!([1, 2].map(|n| end(&w, 0, n)), [Some(Ok(())), None]);
    recv(&mut w, 1, 52, 500);
    assert!(w.run(Span::secs(1), |w| end(w, 0, 2).is_some()));
    assert_eq!(end(&w, 1, 52), Some(Err(OpError::Truncated { excess: 1_500 })));
    assert_eq!(end(&w, 0, 2), Some(Ok(())));
}

/// The context on which a message is deferred stays until the message has been read.
#[test]
fn closing_endpoint_finishes_deferred_messages() {
    for steps in 0..60 {
        let mut w = world(steps, Faults { reorder: 0.3, ..Faults::default() }, 0);
        for n in 0..4 {
            send(&mut w, 0, 1, n, 4_000, lent());
        }
        for _ in 0..steps {
            w.step();
        }
        let now = w.now;
        w.hosts[0].engine.shutdown(now).step();
        w.run(Span::millis(200), |_| false);
        receive_all(&mut w, 1, 0, 4, |_| 4_000);
        assert!((0..4).all(|n| end(&w, 0, n) == Some(Ok(()))), "{steps}");
        let now = w.now;
        w.hosts.iter_mut().for_each(|host| _ = host.engine.shutdown(now).step());
        let gone = |w: &World| w.hosts.iter().all(|host| host.engine.contexts().next().is_none());
        assert!(w.run(Span::secs(1), gone), "{steps}: all contexts end");
    }
}

#[test]
fn announced_length_is_not_charged() {
    let mut w = world(4, Faults::default(), 256 << 20);
    // One packet of a message of 255 MiB is in flight when its sender vanishes.
    w.hosts[0].engine = Engine::new(
        Config { rendezvous_threshold: 1 << 30, ..engine_config(1, w.hosts[0].addr.port()) },
        pdc_config(1),
    );
    send(&mut w, 0, 1, 0, 255 << 20, lent());
    assert!(w.run(Span::secs(1), |w| w.hosts[1].engine.counters().0.unexpected_bytes > 0));
    w.hosts[0].dead = true;
    let held = w.hosts[1].engine.counters().0.unexpected_bytes;
    assert!(held > 0 && held < 1 << 20, "{held} bytes are charged");
}

#[test]
fn peer_does_not_use_the_share_of_another() {
    let mut w = World::with(3, 5, Faults::default(), |config, _| config.unexpected_bytes = 400_000);
    for n in 0..100 {
        send(&mut w, 0, 1, n, 10_000, lent());
    }
    // The receiver knows both peers, so each has a share.
    w.peer(1, 2);
    w.run(Span::secs(1), |_| false);
    let held = *w.hosts[1].engine.counters().0;
    assert!(held.unexpected_bytes <= 100_000 && held.rx_deferred >= 90, "{held:?}");
    for n in 0..9 {
        send(&mut w, 2, 1, n, 10_000, lent());
    }
    let done = |w: &World| w.hosts[2].done.len() == 9;
    assert!(w.run(Span::secs(1), done), "there is room for the other peer's messages");
    assert_eq!(w.hosts[1].engine.counters().0.rx_deferred, held.rx_deferred);
}

#[test]
fn senders_wait_beyond_the_header_limit_and_one_notice_reports_it() {
    let mut w = World::with(2, 6, Faults::default(), |config, _| config.max_unexpected = 100);
    w.peer(1, 0);
    for n in 0..300 {
        send(&mut w, 0, 1, n, 100, lent());
    }
    w.run(Span::millis(500), |_| false);
    let engine = &mut w.hosts[1].engine;
    // Messages whose turn has come have room beyond that of early messages, and messages that are in a channel's ring
    // already are taken.
    let most = if w.shm.carried > 0 { 301 } else { 200 };
    assert!((100..most).contains(&engine.unexpected_messages()));
    let told = engine.poll_notice();
    assert!(matches!(told, Some(Notice::TooManyUnexpected { tag: 1, .. })), "{told:?}");
    assert_eq!(engine.poll_notice(), None);
    receive_all(&mut w, 1, 0, 300, |_| 100);
}

/// One peer's messages have taken all headers. Another peer has a reserve, so that a wanted message
/// of that peer is not stuck behind an unwanted one.
#[test]
fn each_peer_has_a_reserve_of_headers() {
    let mut w = World::with(3, 8, Faults::default(), |config, _| config.max_unexpected = 2000);
    w.peer(1, 0);
    w.peer(1, 2);
    for n in 0..2100 {
        send(&mut w, 0, 1, n, 10, lent());
    }
    w.run(Span::millis(500), |_| false);
    assert!(w.hosts[1].engine.unexpected_messages() >= 2000);
    w.hosts[1].done.clear();
    recv(&mut w, 6, 7, 10);
    for tag in [5, 6] {
        send(&mut w, 2, tag, tag, 10, lent());
    }
    assert!(w.run(Span::secs(5), |w| end(w, 1, 7).is_some()), "the message does not match");
    assert_eq!(end(&w, 1, 7), Some(Ok(())));
}

/// Reads wait for their answers in slots with 16-bit numbers. Further reads wait for a free slot.
#[test]
fn more_rendezvous_than_slots_are_read_at_once() {
    const COUNT: u64 = 70_000;
    let mut w = World::with(2, 7, Faults::default(), |config, _| {
        config.rendezvous_threshold = 1;
        config.max_outstanding = 100_000;
    });
    // A peer that is not named would have room for fewer messages.
    w.peer(1, 0);
    for n in 0..COUNT {
        send(&mut w, 0, 1, n, 300, lent());
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[1].engine.unexpected_messages() as u64 == COUNT));
    // No answer arrives for a while.
    w.mute = Some(|_, bytes| {
        let packet = squall_wire::parse(bytes);
        matches!(
            packet,
            Ok(squall_wire::Packet::Request { ses: squall_wire::Ses::ResponseData(_), .. })
        )
    });
    for n in 0..COUNT {
        recv(&mut w, 1, (1 << 33) + n, 300);
    }
    w.run(Span::secs(2), |_| false);
    w.mute = None;
    assert!(w.run(Span::secs(60), |w| w.hosts[1].done.len() as u64 == COUNT));
    for c in &w.hosts[1].done {
        let n = c.context - (1 << 33);
        assert_eq!((c.status, c.data), (Ok(()), Some(n)));
        assert!(w.hosts[1].memory.get(c.buf, c.len) == content(n, 300), "message {n}");
    }
}
