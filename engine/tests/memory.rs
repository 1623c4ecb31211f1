//! Memory that is returned to the user is never accessed again: regions that close, operations that
//! end.

use std::net::{IpAddr, SocketAddr};

use crate::world::*;
use squall_base::{Batch, Span};
use squall_engine::*;
use squall_wire::{Packet, ReturnCode, Ses, parse};

const KEY: u64 = 7;

/// A filter that selects the packets of an address to drop.
type Mute = fn(SocketAddr, &[u8]) -> bool;

/// Reads all of a region of `len` bytes of host 1 from host 0. Returns the address of the
/// destination.
fn read(w: &mut World, len: u64) -> u64 {
    let peer = w.peer(0, 1);
    let from = w.hosts[1].memory.put(&content(0, len));
    w.hosts[1].memory.register(KEY, from, len, true, true);
    let base = w.hosts[0].memory.alloc(len as usize);
    let remote = RemoteIov::One(RemoteSeg { address: 0, len, key: KEY });
    let op = RmaOp { peer, buf: Buf::new(base, len), remote, data: None, context: base };
    w.submit(0, op.read()).unwrap();
    base
}

/// Returns whether a packet carries read data.
fn is_data(_: SocketAddr, bytes: &[u8]) -> bool {
    matches!(parse(bytes), Ok(Packet::Request { ses: Ses::ResponseData(_), .. }))
}

fn is_ack_of(host: u8, src: SocketAddr, bytes: &[u8]) -> bool {
    src.ip() == IpAddr::from([10, 0, 0, host]) && matches!(parse(bytes), Ok(Packet::Ack { .. }))
}

fn is_ack(src: SocketAddr, bytes: &[u8]) -> bool {
    is_ack_of(1, src, bytes)
}

fn ends(w: &World, at: usize) -> Vec<Result<(), OpError>> {
    w.hosts[at].done.iter().map(|c| c.status).collect()
}

/// Checks that both hosts can still exchange messages on their contexts.
fn all_is_well(w: &mut World) {
    w.mute = None;
    for at in [0, 1] {
        w.hosts[at].done.clear();
        let peer = w.peer(at, 1 - at);
        let (from, into) =
            (w.hosts[at].memory.put(&content(0, 40_000)), w.hosts[at].memory.alloc(40_000));
        let host = &mut w.hosts[at];
        let op = RecvOp {
            mode: RecvMode::Post,
            source: None,
            space: MatchSpace::Tagged,
            tag: 5,
            ignore: 0,
            buf: Buf::new(into, 40_000),
            context: 2,
            visibility: Visibility::Entry,
        };
        host.engine.receive(w.now, &mut host.memory, op).unwrap();
        let action = Action::Message { space: MatchSpace::Tagged, tag: 5 };
        let (buf, options) = (Buf::new(from, 40_000), Options::default());
        let op = Operation { peer, action, buf, data: None, context: 3, options };
        w.submit(at, op).unwrap();
    }
    let done = |w: &World| w.hosts.iter().all(|h| h.done.len() == 2 && h.engine.is_idle());
    assert!(w.run(Span::secs(2), done), "the contexts have no gap in their PSNs");
    assert!(ends(w, 0).iter().chain(&ends(w, 1)).all(Result::is_ok));
}

#[test]
fn region_may_close_before_its_answer_is_retransmitted() {
    // Three cases: the first copies are lost, only acknowledgements are lost, or nothing is lost.
    let mutes: [Option<Mute>; 3] = [Some(is_data), Some(is_ack), None];
    for (n, mute) in mutes.into_iter().enumerate() {
        for len in [1, 1000, 20_000, 600_000] {
            for steps in [3, 5, 8, 20] {
                let mut w = World::new(2, n as u64 + len + steps, Faults::default());
                w.mute = mute;
                let into = read(&mut w, len);
                for _ in 0..steps {
                    w.step();
                }
                // From here on every access to the region fails the test.
                w.unregister(1, KEY);
                w.mute = None;
                assert!(w.run(Span::secs(3), |w| w.hosts[0].done.len() == 1), "the read ends");
                let context = format!("{n}: {len} bytes, closed after {steps}");
                match w.hosts[0].done[0].status {
                    // The peer had received everything.
                    Ok(()) => {
                        assert!(w.hosts[0].memory.get(into, len) == content(0, len), "{context}");
                    }
                    Err(error) => {
                        assert_eq!(error, OpError::Remote(ReturnCode::BadMkey), "{context}");
                    }
                }
                all_is_well(&mut w);
            }
        }
    }
}

#[test]
fn answer_that_was_cut_off_is_counted_and_carries_the_reason() {
    let mut w = World::new(2, 1, Faults::default());
    w.mute = Some(is_data);
    read(&mut w, 100_000);
    assert!(w.run(Span::secs(1), |w| w.hosts[1].engine.counters().1.tx_packets > 0));
    w.unregister(1, KEY);
    w.mute = None;
    assert!(w.run(Span::secs(3), |w| w.hosts[0].done.len() == 1));
    assert_eq!(ends(&w, 0), [Err(OpError::Remote(ReturnCode::BadMkey))]);
    assert_eq!(w.hosts[1].engine.counters().0.tx_answers_cut, 1);
    // Several reads are answered. Late packets of an answer must not reach the next read in the
    // same slot.
    for round in 0..5 {
        w.hosts[0].done.clear();
        w.faults = Faults { reorder: 0.5, drop: 0.1, ..Faults::default() };
        read(&mut w, 50_000);
        for _ in 0..8 + round {
            w.step();
        }
        w.unregister(1, KEY);
        let into = read(&mut w, 50_000);
        assert!(w.run(Span::secs(9), |w| w.hosts[0].done.len() == 2), "round {round}");
        let ended = w.hosts[0].done.iter().find(|c| c.context == into).map(|c| c.status);
        assert_eq!(ended, Some(Ok(())), "round {round}");
        assert!(w.hosts[0].memory.get(into, 50_000) == content(0, 50_000));
        w.unregister(1, KEY);
    }
}

/// Returns whether a packet carries read data and is not the first of its answer.
fn is_later_data(_: SocketAddr, bytes: &[u8]) -> bool {
    let Ok(Packet::Request { ses: Ses::ResponseData(data), .. }) = parse(bytes) else {
        return false;
    };
    data.message_offset > 0
}

/// The first packet of an answer that was cut off may arrive before the acknowledgement of the
/// read, and that before the other packets.
#[test]
fn read_whose_answer_was_cut_off_waits_for_packets_in_flight() {
    let mut w = World::new(2, 1, Faults::default());
    w.mute = Some(|src, bytes| is_data(src, bytes) || is_ack_of(2, src, bytes));
    read(&mut w, 6000);
    w.run(Span::millis(1), |_| false);
    w.unregister(1, KEY);
    w.mute = Some(|src, bytes| is_later_data(src, bytes) || is_ack_of(2, src, bytes));
    w.run(Span::millis(200), |_| false);
    w.mute = Some(is_later_data);
    w.run(Span::millis(200), |_| false);
    assert!(w.hosts[0].done.is_empty(), "packets are under way");
    w.mute = None;
    assert!(w.run(Span::secs(2), |w| w.hosts.iter().all(|host| host.engine.is_idle())));
    assert_eq!(ends(&w, 0), [Err(OpError::Remote(ReturnCode::BadMkey))]);
    assert_eq!(w.hosts[0].engine.counters().0.rx_inconsistent, 0);
}

#[test]
fn writes_to_a_closed_region_are_refused_and_change_nothing() {
    for steps in [2, 4, 6, 10] {
        let mut w = World::new(2, steps, Faults { drop: 0.2, ..Faults::default() });
        let peer = w.peer(0, 1);
        let base = w.hosts[1].memory.alloc(30_000);
        w.hosts[1].memory.register(KEY, base, 30_000, true, true);
        let from = w.hosts[0].memory.put(&content(0, 30_000));
        let remote = RemoteIov::One(RemoteSeg { address: 0, len: 30_000, key: KEY });
        let buf = Buf::new(from, 30_000);
        let op = RmaOp { peer, buf, remote, data: Some(1), context: 1 };
        w.submit(0, op.write()).unwrap();
        for _ in 0..steps {
            w.step();
        }
        w.unregister(1, KEY);
        assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1));
        w.faults = Faults::default();
        all_is_well(&mut w);
    }
}

/// Host 0 offers `len` bytes. Host 1 has started to read them when it reports that it cannot.
#[test]
fn answers_in_flight_do_not_read_the_memory_of_an_ended_rendezvous() {
    let mut cut = 0;
    for steps in 1..40 {
        let len = 200_000;
        let mut w = World::new(2, steps, Faults::default());
        let peer = w.peer(0, 1);
        let from = w.hosts[0].memory.put(&content(0, len));
        let into = w.hosts[1].memory.alloc(len as usize);
        let host = &mut w.hosts[1];
        let op = RecvOp {
            mode: RecvMode::Post,
            source: None,
            space: MatchSpace::Tagged,
            tag: 1,
            ignore: 0,
            buf: Buf::new(into, len),
            context: 1,
            visibility: Visibility::Entry,
        };
        host.engine.receive(w.now, &mut host.memory, op).unwrap();
        let action = Action::Message { space: MatchSpace::Tagged, tag: 1 };
        let (buf, options) = (Buf::new(from, len), Options::default());
        w.submit(0, Operation { peer, action, buf, data: None, context: 9, options }).unwrap();
        for _ in 0..steps {
            w.step();
        }
        // Host 0's own contexts to host 1 end, as after a NACK that closes them, and the send ends
        // with them. The context on which host 1 reads stays.
        w.mute = Some(|src, bytes| {
            src.ip().to_string() == "10.0.0.2" && matches!(parse(bytes), Ok(Packet::Ack { .. }))
        });
        let over = |w: &World| !w.hosts[0].done.is_empty();
        w.run(Span::secs(40), over);
        assert!(over(&w), "the send ends");
        // The buffer belongs to the user again.
        w.hosts[0].memory.revoke(from);
        w.mute = None;
        w.run(Span::secs(40), |w| !w.hosts[1].done.is_empty());
        let receives = w.hosts[1].done.len();
        assert_eq!(receives, 1, "the receive ends");
        if w.hosts[1].done[0].status.is_ok() {
            assert!(w.hosts[1].memory.get(into, len) == content(0, len));
        }
        cut += w.hosts[0].engine.counters().0.tx_answers_cut;
    }
    assert!(cut > 0, "answers are in flight");
}

/// A driver whose socket was full asks before it sends the remaining packets.
#[test]
fn delayed_packets_do_not_read_released_memory() {
    let mut w = World::new(2, 1, Faults::default());
    read(&mut w, 1);
    assert!(w.run(Span::secs(1), |w| w.hosts[0].done.len() == 1), "the first message completes");
    read(&mut w, 50_000);
    let mut batch = Batch::default();
    while batch.slices.is_empty() {
        w.step_host(0);
        batch.clear();
        w.hosts[1].engine.poll_transmit(w.now, &mut batch);
    }
    let host = &mut w.hosts[1];
    assert!(batch.packets.iter().all(|packet| host.engine.may_send(packet)));
    w.unregister(1, KEY);
    let engine = &w.hosts[1].engine;
    let refused = batch.packets.iter().filter(|packet| !engine.may_send(packet));
    assert!(refused.clone().count() > 0, "they name the region");
    assert!(
        refused.clone().all(|packet| !packet.payload.is_empty()),
        "control packets may still be sent"
    );
}

/// A short send to a peer that never answered is copied, and complete, when the peer first answers.
#[test]
fn buffers_are_not_read_after_a_completion_at_first_contact() {
    let mut w = World::new(2, 1, Faults::default());
    let send = |w: &mut World, from: usize| {
        let peer = w.peer(from, 1 - from);
        let base = w.hosts[from].memory.put(&content(0, 64));
        let action = Action::Message { space: MatchSpace::Tagged, tag: 1 };
        let (buf, options) = (Buf::new(base, 64), Options::default());
        w.submit(from, Operation { peer, action, buf, data: None, context: base, options })
            .unwrap();
        base
    };
    let base = send(&mut w, 0);
    w.mute = Some(|_, bytes| !introduces(bytes));
    assert!(
        w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty()),
        "the send completes at the peer's first answer"
    );
    let done = &w.hosts[0].done[0];
    assert_eq!((done.context, done.status), (base, Ok(())));
    w.hosts[0].memory.revoke(base);
    w.mute = None;
    // The message is retransmitted from the copy.
    w.run(Span::secs(2), |w| w.hosts.iter().all(|h| h.engine.is_idle()));
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 1);
}

/// Sends `len` bytes from host 0 with a completion that concerns only the buffer.
fn send_copied(w: &mut World, len: u64, context: u64, inject: bool) -> Result<(), SubmitError> {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.put(&content(0, len));
    let action = Action::Message { space: MatchSpace::Tagged, tag: context };
    let options = Options { inject, ..Options::default() };
    w.submit(0, Operation { peer, action, buf: Buf::new(base, len), data: None, context, options })
}

/// Creates a world whose first host has verified the second and keeps at most 10 KB of copies, with
/// one message per packet.
fn frugal() -> World {
    let mut w = World::with(2, 9, Faults::default(), |config, _| config.copied_bytes = 10_000);
    send_copied(&mut w, 8, 1, false).unwrap();
    assert!(w.run(Span::secs(1), |w| w.hosts[0].engine.is_idle()));
    w.hosts[0].done.clear();
    w
}

fn contexts_done(w: &mut World) -> Vec<u64> {
    w.step();
    w.hosts[0].done.iter().map(|done| done.context).collect()
}

/// Messages complete at once as long as there is room for copies, and the others when the peer has
/// them. The received bytes are right although the user has its buffers back (`VecMemory` fails if
/// they are read).
#[test]
fn memory_for_copies_is_bounded() {
    let mut w = frugal();
    w.hosts[1].stopped = true;
    for context in 10..18 {
        send_copied(&mut w, 3000, context, false).unwrap();
    }
    assert_eq!(contexts_done(&mut w), [10, 11, 12], "the messages with room for a copy complete");
    assert_eq!(w.hosts[0].engine.copied_bytes(), 9000);
    // An operation that must be copied is refused and must be retried.
    assert_eq!(send_copied(&mut w, 256, 90, true), Ok(()), "744 bytes are left");
    for context in 91..94 {
        let taken = send_copied(&mut w, 250, context, true);
        assert_eq!(taken, if context == 93 { Err(SubmitError::Again) } else { Ok(()) });
    }
    assert_eq!(
        send_copied(&mut w, 250, 95, false),
        Ok(()),
        "this message is sent from the user's buffer"
    );
    assert_eq!(contexts_done(&mut w), [10, 11, 12, 90, 91, 92], "the copies are received");
    w.hosts[1].stopped = false;
    assert!(w.run(Span::secs(2), |w| w.hosts[0].engine.is_idle()));
    assert_eq!(w.hosts[0].engine.copied_bytes(), 0);
    assert!(ends(&w, 0).iter().all(Result::is_ok));
    assert_eq!(contexts_done(&mut w).len(), 12, "{:?}", w.hosts[0].done);
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 13, "with the first");
    for context in 10..18 {
        let into = w.hosts[1].memory.alloc(3000);
        let host = &mut w.hosts[1];
        let op = RecvOp {
            mode: RecvMode::Post,
            source: None,
            space: MatchSpace::Tagged,
            tag: context,
            ignore: 0,
            buf: Buf::new(into, 3000),
            context,
            visibility: Visibility::Entry,
        };
        host.engine.receive(w.now, &mut host.memory, op).unwrap();
        assert_eq!(host.memory.get(into, 3000), content(0, 3000));
    }
}
