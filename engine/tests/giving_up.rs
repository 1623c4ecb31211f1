//! Contexts that end at one end only: every operation in flight ends, no living peer is taken for
//! restarted, and everything works again afterwards.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::world::*;
use squall_base::{Span, UserSlice};
use squall_engine::*;
use squall_wire::{Fragment, Packet, Ses, parse};

/// A length above the rendezvous threshold.
const LONG: u64 = 40_000;

fn world(seed: u64) -> World {
    World::new(2, seed, Faults::default())
}

fn send(w: &mut World, from: usize, tag: u64, len: u64) {
    let peer = w.peer(from, 1 - from);
    let base = w.hosts[from].memory.alloc(len as usize);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, len),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

fn recv(w: &mut World, at: usize, tag: u64, len: u64) {
    let source: Option<PeerId> = Some(w.peer(at, 1 - at));
    let base = w.hosts[at].memory.alloc(len as usize);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, len),
        context: tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Reads or writes the region with `key` of the other host, from host `at`.
fn rma(w: &mut World, at: usize, write: bool, key: u64, len: u64) {
    let peer = w.peer(at, 1 - at);
    let base = w.hosts[at].memory.alloc(len as usize);
    let op = RmaOp {
        peer,
        buf: Buf::new(base, len),
        remote: RemoteIov::One(RemoteSeg { address: 0, len, key }),
        data: None,
        context: 1000,
    };
    w.submit(at, if write { op.write() } else { op.read() }).unwrap();
}

/// Returns the statuses of ended operations of a kind at a host.
fn ends(w: &World, at: usize, kind: OpKind) -> Vec<Result<(), OpError>> {
    w.hosts[at].done.iter().filter(|c| c.kind == kind).map(|c: &Completion| c.status).collect()
}

/// Checks that both hosts can exchange a message each way.
fn all_is_well(w: &mut World) {
    let before = [0, 1].map(|at| w.hosts[at].done.len());
    for at in [0, 1] {
        recv(w, at, 500, LONG);
        send(w, at, 500, LONG);
    }
    let done = |w: &World| (0..2).all(|at| w.hosts[at].done.len() == before[at] + 2);
    assert!(w.run(Span::secs(1), done), "works again");
    for at in [0, 1] {
        let done = &w.hosts[at].done[before[at]..];
        assert!(done.iter().all(|c| c.status.is_ok()), "{done:?}");
    }
    w.run(Span::millis(5), |_| false);
    assert!(w.hosts.iter().all(|host| host.engine.is_idle()));
}

/// Returns a packet without the header that makes it a fragment, if it has one.
fn inner(bytes: &[u8]) -> &[u8] {
    Fragment::read(bytes).map_or(bytes, |fragment| fragment.packet)
}

/// Returns whether a packet of `src` carries read data.
fn is_data(src: SocketAddr, bytes: &[u8]) -> bool {
    let data = matches!(parse(inner(bytes)), Ok(Packet::Request { ses: Ses::ResponseData(_), .. }));
    data && from(src, 0)
}

fn from(src: SocketAddr, host: u8) -> bool {
    src.ip().to_string() == format!("10.0.0.{}", host + 1)
}

/// Returns whether a packet is the first of a message.
fn is_first(bytes: &[u8]) -> bool {
    matches!(parse(inner(bytes)), Ok(Packet::Request { ses: Ses::Std(request), .. }) if request.som)
}

fn is_ack(bytes: &[u8]) -> bool {
    matches!(parse(bytes), Ok(Packet::Ack { .. }))
}

/// Creates a world in which some packets of a message have arrived and its sender is gone.
fn vanished(mute: fn(SocketAddr, &[u8]) -> bool) -> World {
    let mut w = world(1);
    recv(&mut w, 1, 1, 10_000);
    w.mute = Some(mute);
    send(&mut w, 0, 1, 10_000);
    w.run(Span::millis(1), |_| false);
    assert!(w.hosts[1].engine.counters().0.rx_payload_bytes > 0);
    w.hosts[0].dead = true;
    w
}

#[test]
fn incomplete_message_of_a_vanished_sender_ends() {
    let mut w = vanished(|_, bytes| !is_first(bytes));
    assert!(w.run(Span::secs(15), |w| !w.hosts[1].done.is_empty()), "it ends");
    assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Unreachable)]);
}

#[test]
fn incomplete_message_without_its_first_packet_is_forgotten() {
    let mut w = vanished(|_, bytes| is_first(bytes));
    assert!(w.hosts[1].engine.counters().0.unexpected_bytes > 0);
    w.run(Span::secs(15), |_| false);
    assert_eq!(w.hosts[1].engine.counters().0.unexpected_bytes, 0);
    // The message never matched the receive, which ends because the sender that it names is gone.
    assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Unreachable)]);
    assert!(!w.hosts[1].engine.cancel(w.now, 1));
}

#[test]
fn incomplete_message_of_a_sender_that_gave_up_ends() {
    for again in [false, true] {
        let mut w = world(2);
        recv(&mut w, 1, 1, 10_000);
        // An incomplete message arrives, and a write that is refused; the sender receives nothing.
        w.mute = Some(|src, bytes| from(src, 1) || from(src, 0) && !is_first(bytes));
        send(&mut w, 0, 1, 10_000);
        rma(&mut w, 0, true, 99, 100);
        w.run(Span::secs(11), |_| false);
        assert_eq!(w.hosts[0].done.len(), 2);
        w.mute = None;
        if again {
            // The sender continues on another context, so this one will not be completed.
            recv(&mut w, 1, 2, 10);
            send(&mut w, 0, 2, 10);
            w.run(Span::millis(30), |_| false);
            assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Closed), Ok(())]);
        } else {
            w.run(Span::secs(140), |w| !w.hosts[1].done.is_empty());
            assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Closed)]);
        }
        all_is_well(&mut w);
    }
}

/// The receiver has read everything, and only its acknowledgements do not arrive.
#[test]
fn rendezvous_whose_answers_are_not_acknowledged_ends() {
    let mut w = world(3);
    recv(&mut w, 1, 1, LONG);
    send(&mut w, 0, 1, LONG);
    // The header arrived on the receiver's first context; the receiver reads on another one.
    static FIRST: AtomicU16 = AtomicU16::new(0);
    w.mute = Some(|src, bytes| {
        let number = match parse(bytes) {
            Ok(Packet::Ack { pds, .. }) if from(src, 1) => pds.spdcid,
            Ok(Packet::Control(control)) if from(src, 1) => control.spdcid,
            _ => return false,
        };
        let first = FIRST.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|first| first != number)
    });
    assert!(w.run(Span::secs(60), |w| w.hosts.iter().all(|h| h.done.len() == 1)), "both end");
    assert_eq!(ends(&w, 1, OpKind::Recv), [Ok(())]);
    assert_eq!(ends(&w, 0, OpKind::Send), [Err(OpError::TimedOut)]);
    w.mute = None;
    // The receiver notices the end of its context only when it uses the context.
    rma(&mut w, 1, false, 7, 1000);
    assert!(w.run(Span::millis(1), |w| w.hosts[1].done.len() == 2));
    assert_eq!(ends(&w, 1, OpKind::Read), [Err(OpError::Closed)]);
    all_is_well(&mut w);
}

/// The sender gives up on the context on which its receiver reads.
#[test]
fn reader_that_was_given_up_gets_no_restart_error() {
    let mut w = world(4);
    recv(&mut w, 1, 1, LONG);
    send(&mut w, 0, 1, LONG);
    w.mute = Some(is_data);
    assert!(w.run(Span::secs(60), |w| w.hosts.iter().all(|h| h.done.len() == 1)), "both end");
    assert_eq!(ends(&w, 0, OpKind::Send), [Err(OpError::TimedOut)]);
    assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Closed)]);
    w.mute = None;
    all_is_well(&mut w);
}

/// Creates a world in which host 0 has given up the context on which a read of host 1 waits, and
/// host 1 does not know that yet. A rendezvous of host 0 waits for host 1.
fn given_up(seed: u64) -> World {
    let mut w = world(seed);
    let region = w.hosts[0].memory.alloc(1000);
    w.hosts[0].memory.regions.insert(7, (UserSlice::lent(region, 1000), true, false));
    send(&mut w, 0, 1, LONG);
    w.run(Span::millis(1), |_| false);
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 1);
    w.mute = Some(is_data);
    rma(&mut w, 1, false, 7, 1000);
    w.run(Span::millis(1), |_| false);
    assert_eq!(w.hosts[0].engine.contexts().count(), 2);
    assert!(w.run(Span::secs(20), |w| w.hosts[0].engine.contexts().count() == 1));
    w.mute = None;
    w
}

#[test]
fn receiver_that_cannot_read_notifies_the_sender() {
    let mut w = given_up(5);
    recv(&mut w, 1, 1, LONG);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1), "the send ends");
    assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Closed)]);
    assert_eq!(ends(&w, 1, OpKind::Read), [Err(OpError::Closed)]);
    assert_eq!(ends(&w, 0, OpKind::Send), [Err(OpError::Closed)]);
    all_is_well(&mut w);
}

#[test]
fn notification_that_nothing_will_be_read_moves_to_a_new_context() {
    let mut w = given_up(6);
    recv(&mut w, 1, 1, 0);
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() == 1), "the send ends");
    assert_eq!(ends(&w, 1, OpKind::Recv), [Err(OpError::Truncated { excess: LONG })]);
    assert_eq!(ends(&w, 0, OpKind::Send), [Ok(())]);
    all_is_well(&mut w);
}

/// Both hosts send all the time. One gives up because it receives no acknowledgement for so long,
/// then the other is notified, and so on. This must come to an end.
#[test]
fn both_endpoints_continue_after_one_gave_up() {
    for seed in 0..4 {
        let mut w = world(100 + seed);
        let mut tag = 0;
        let mut talk = |w: &mut World, span: Span| {
            let end = w.now + span;
            while w.now < end {
                tag += 1;
                for at in [0, 1] {
                    recv(w, at, tag, 3000);
                    send(w, at, tag, 3000);
                }
                w.run(Span::millis(7), |_| false);
            }
        };
        talk(&mut w, Span::millis(50));
        w.mute = Some(|src, bytes| from(src, 0) && is_ack(bytes));
        while w.hosts[1].done.iter().all(|c| c.status.is_ok()) {
            talk(&mut w, Span::millis(7));
        }
        w.mute = None;
        talk(&mut w, Span::secs(1));
        let errors = |w: &World, at: usize| {
            let all = ends(w, at, OpKind::Send);
            all.into_iter().filter_map(Result::err).collect::<Vec<_>>()
        };
        // Every loss was reported, and correctly.
        assert!(errors(&w, 1).contains(&OpError::TimedOut));
        assert!(errors(&w, 0).iter().all(|error| *error == OpError::Closed));
        let before = [errors(&w, 0).len(), errors(&w, 1).len()];
        assert!(before[0] > 0);
        talk(&mut w, Span::secs(11));
        let after = [errors(&w, 0).len(), errors(&w, 1).len()];
        assert_eq!(after, before, "seed {seed}: later operations succeed");
    }
}

/// A sender waits on one context while its peer sends on another one all the time.
#[test]
fn forgotten_rendezvous_ends_even_if_the_peer_sends_much() {
    let mut w = World::with(2, 6, Faults::default(), |config, _| config.keepalive = Span::secs(20));
    send(&mut w, 0, 1, LONG);
    w.run(Span::millis(1), |_| false);
    // The receiver considers the sender gone, and then sends to it.
    w.mute = Some(|src, _| from(src, 0));
    rma(&mut w, 1, false, 7, 1000);
    assert!(w.run(Span::secs(12), |w| !w.hosts[1].done.is_empty()));
    w.mute = None;
    for n in 0..400 {
        recv(&mut w, 0, 10 + n, 100);
        send(&mut w, 1, 10 + n, 100);
        w.run(Span::millis(100), |_| false);
    }
    assert_eq!(ends(&w, 0, OpKind::Send), [Err(OpError::Closed)]);
    all_is_well(&mut w);
}

#[test]
fn context_of_a_refused_write_closes_when_idle() {
    let mut w = world(7);
    // The write is long enough for the refusal to arrive before the last packet is sent.
    rma(&mut w, 0, true, 99, 4_000_000);
    assert!(w.run(Span::secs(5), |w| !w.hosts[0].done.is_empty()));
    assert!(matches!(ends(&w, 0, OpKind::Write)[..], [Err(OpError::Remote(_))]));
    w.run(Span::secs(40), |_| false);
    assert_eq!(w.hosts[0].engine.contexts().count(), 0);
}

/// The successor of a process is not asked for what the process offered.
#[test]
fn offer_ends_with_the_process_that_made_it() {
    let mut w = world(9);
    send(&mut w, 0, 1, LONG);
    w.run(Span::millis(5), |_| false);
    assert_eq!(w.hosts[1].engine.unexpected_messages(), 1);
    w.crash(0);
    w.restart(0, |_, _| {});
    // The receiver learns of the new instance by its first message.
    recv(&mut w, 1, 2, 100);
    send(&mut w, 0, 2, 100);
    assert!(w.run(Span::secs(5), |w| ends(w, 1, OpKind::Recv) == [Ok(())]));
    recv(&mut w, 1, 1, LONG);
    assert!(w.run(Span::secs(1), |w| ends(w, 1, OpKind::Recv).len() == 2));
    assert_eq!(ends(&w, 1, OpKind::Recv)[1], Err(OpError::PeerRestarted));
    assert_eq!(
        w.hosts[0].engine.counters().0.rx_access_refused,
        0,
        "the new instance is not asked for the old offer"
    );
    w.run(Span::millis(5), |_| false);
    all_is_well(&mut w);
}

/// Posts a receive of 100 bytes at host 0: from host 1, from any peer, or a multi-receive buffer
/// for any peer.
fn wait(w: &mut World, context: u64, source: Option<PeerId>, mode: RecvMode) {
    let base = w.hosts[0].memory.alloc(100);
    let host = &mut w.hosts[0];
    let op = RecvOp {
        source,
        space: MatchSpace::Tagged,
        tag: context,
        ignore: 0,
        buf: Buf::new(base, 100),
        context,
        visibility: Visibility::Entry,
        mode,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Sends 8 bytes from host 0 that complete when they are copied, or leave no entry at all.
fn send_short(w: &mut World, visibility: Visibility) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.alloc(8);
    let options = Options { inject: true, visibility, ..Options::default() };
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag: 1 },
        buf: Buf::new(base, 8),
        data: None,
        context: 1,
        options,
    };
    w.submit(0, op).unwrap();
}

/// Creates a world in which host 0 has verified host 1, which then dies.
fn widowed(seed: u64) -> World {
    let mut w = world(seed);
    recv(&mut w, 1, 9, 8);
    send(&mut w, 0, 9, 8);
    w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty());
    w.hosts[1].dead = true;
    w.hosts[0].done.clear();
    w
}

/// Returns the failed receives of host 0 by context. Each names the lost peer.
fn told(w: &World) -> Vec<(u64, OpError)> {
    let failed = w.hosts[0].done.iter().filter(|done| done.kind == OpKind::Recv);
    let failed = failed.filter_map(|done| done.status.err().map(|error| (done, error)));
    failed
        .map(|(done, error)| {
            assert!(done.peer.is_some(), "{done:?}");
            (done.context, error)
        })
        .collect()
}

/// A sender waits for the answer of a dead peer to a short message. The send completed when it was
/// copied, so only a receive can report the loss.
#[test]
fn receives_from_a_peer_that_was_given_up_end() {
    for visibility in [Visibility::Entry, Visibility::CountOnly] {
        let mut w = widowed(31);
        let peer = w.peer(0, 1);
        wait(&mut w, 5, Some(peer), RecvMode::Post);
        wait(&mut w, 6, None, RecvMode::Post);
        wait(&mut w, 7, Some(peer), RecvMode::Multi { least: 1 });
        send_short(&mut w, visibility);
        w.run(Span::secs(60), |w| told(w).len() == 2);
        assert_eq!(told(&w), [(5, OpError::TimedOut), (7, OpError::TimedOut)], "{visibility:?}");
    }
}

/// No operation was sent to the dead peer; only the receive waits for it.
#[test]
fn receive_that_names_an_absent_peer_fails() {
    let mut w = widowed(35);
    let peer = w.peer(0, 1);
    wait(&mut w, 5, Some(peer), RecvMode::Post);
    wait(&mut w, 6, None, RecvMode::Post);
    w.run(Span::secs(60), |w| !told(w).is_empty());
    assert_eq!(told(&w), [(5, OpError::TimedOut)]);
}

/// The peer lives and sends nothing for much longer than the deadline.
#[test]
fn receive_waits_for_an_idle_peer_that_answers() {
    let mut w = widowed(36);
    w.hosts[1].dead = false;
    let peer = w.peer(0, 1);
    wait(&mut w, 1, Some(peer), RecvMode::Post);
    w.run(Span::secs(300), |_| false);
    assert!(told(&w).is_empty());
    send(&mut w, 1, 1, 8);
    assert!(w.run(Span::secs(1), |w| ends(w, 0, OpKind::Recv) == [Ok(())]));
}

/// A peer that was never heard may not have started.
#[test]
fn receive_waits_for_a_peer_that_has_not_started() {
    let mut w = world(37);
    w.hosts[1].dead = true;
    let peer = w.peer(0, 1);
    wait(&mut w, 1, Some(peer), RecvMode::Post);
    w.run(Span::secs(300), |_| false);
    assert!(told(&w).is_empty());
    w.hosts[1].dead = false;
    send(&mut w, 1, 1, 8);
    assert!(w.run(Span::secs(1), |w| ends(w, 0, OpKind::Recv) == [Ok(())]));
}

#[test]
fn unreported_loss_fails_an_undirected_receive() {
    for mode in [RecvMode::Post, RecvMode::Multi { least: 1 }] {
        let mut w = widowed(32);
        wait(&mut w, 5, None, mode);
        wait(&mut w, 6, None, mode);
        send_short(&mut w, Visibility::Entry);
        w.run(Span::secs(60), |w| !told(w).is_empty());
        assert_eq!(told(&w), [(5, OpError::TimedOut)], "{mode:?}");
    }
}

/// A failed inject call has an error entry of its own, so no receive fails for it as well.
#[test]
fn loss_of_an_operation_that_only_counts_is_reported_once() {
    let mut w = widowed(32);
    wait(&mut w, 5, None, RecvMode::Post);
    send_short(&mut w, Visibility::CountOnly);
    w.run(Span::secs(60), |_| false);
    let failed: Vec<OpKind> = w.hosts[0]
        .done
        .iter()
        .filter(|done| done.status == Err(OpError::TimedOut))
        .map(|done| done.kind)
        .collect();
    assert_eq!(failed, [OpKind::Send]);
    assert!(told(&w).is_empty());
}

#[test]
fn unreported_loss_fails_the_next_receive_once() {
    let mut w = widowed(33);
    send_short(&mut w, Visibility::Entry);
    w.run(Span::secs(20), |_| false);
    assert!(told(&w).is_empty());
    wait(&mut w, 5, None, RecvMode::Post);
    wait(&mut w, 6, None, RecvMode::Post);
    w.run(Span::secs(1), |w| !told(w).is_empty());
    assert_eq!(told(&w), [(5, OpError::TimedOut)]);
}

/// An error entry that the user has seen is enough: undirected receives continue.
#[test]
fn reported_loss_fails_no_undirected_receive() {
    let mut w = widowed(34);
    wait(&mut w, 5, None, RecvMode::Post);
    send(&mut w, 0, 1, LONG);
    send_short(&mut w, Visibility::Entry);
    w.run(Span::secs(20), |_| false);
    assert!(told(&w).is_empty() && w.hosts[0].done.iter().any(|done| done.status.is_err()));
}

/// The port reports that it has lost its network for good: no operation waits any longer, whatever
/// the deadline is.
#[test]
fn all_operations_end_when_the_network_is_lost() {
    let mut w = World::new(3, 38, Faults::default());
    recv(&mut w, 1, 9, 8);
    send(&mut w, 0, 9, 8);
    w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty());
    w.hosts[0].done.clear();
    let (met, other) = (w.peer(0, 1), w.peer(0, 2));
    wait(&mut w, 5, Some(met), RecvMode::Post);
    wait(&mut w, 6, Some(other), RecvMode::Post);
    send(&mut w, 0, 1, LONG);
    w.hosts[0].engine.handle_isolation(w.now, 107);
    let mut ends: Vec<_> = std::iter::from_fn(|| w.hosts[0].engine.poll_completion())
        .map(|c| (c.context, c.status))
        .collect();
    ends.sort_by_key(|end| end.0);
    let expected = [(1, OpError::TimedOut), (5, OpError::TimedOut), (6, OpError::Unreachable)];
    assert_eq!(ends, expected.map(|(context, error)| (context, Err(error))));
    assert_eq!(
        w.hosts[0].engine.peers().get(met).last_destination_error().map(|it| it.errno),
        Some(107)
    );
}
