//! Decisions to give peers up or to wait: some packets never arrive while others do, processes
//! stop, and hosts report closed ports.

use crate::world::*;
use squall_base::{Span, Time, UserSlice};
use squall_engine::*;
use squall_wire::{Ack, AckExt, AckRequest, Dest, NextHeader, Packet, parse};

/// A length above the rendezvous threshold.
const LONG: u64 = 40_000;
/// The key of a region of host 1 that peers may read.
const KEY: u64 = 7;
/// The Linux value of ECONNREFUSED.
const REFUSED: i32 = 111;

fn world() -> World {
    let mut w = World::new(2, 1, Faults::default());
    let base = w.hosts[1].memory.alloc(LONG as usize);
    w.hosts[1].memory.regions.insert(KEY, (UserSlice::lent(base, LONG), true, false));
    w
}

/// Creates a world with the default timeouts.
fn patient() -> World {
    let mut w = World::with(2, 1, Faults::default(), |_, transport| {
        let fresh = TransportConfig::new(1400, transport.cc.clone(), transport.paths.clone(), 1);
        transport.contact_deadline = fresh.contact_deadline;
        transport.progress_deadline = fresh.progress_deadline;
    });
    let base = w.hosts[1].memory.alloc(LONG as usize);
    w.hosts[1].memory.regions.insert(KEY, (UserSlice::lent(base, LONG), true, false));
    w
}

fn send(w: &mut World, tag: u64, len: u64, level: Level) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.alloc(len as usize);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, len),
        data: None,
        context: tag,
        options: Options { level, ..Options::default() },
    };
    w.submit(0, op).unwrap();
}

fn recv(w: &mut World, tag: u64) {
    let base = w.hosts[1].memory.alloc(LONG as usize);
    let host = &mut w.hosts[1];
    let op = RecvOp {
        source: None,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, LONG),
        context: tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

fn read(w: &mut World) {
    let peer = w.peer(0, 1);
    let base = w.hosts[0].memory.alloc(LONG as usize);
    let op = RmaOp {
        peer,
        buf: Buf::new(base, LONG),
        remote: RemoteIov::One(RemoteSeg { address: 0, len: LONG, key: KEY }),
        data: None,
        context: 1000,
    };
    w.submit(0, op.read()).unwrap();
}

/// Lets the two hosts exchange messages.
fn meet(w: &mut World) {
    recv(w, 1);
    send(w, 1, 10, Level::Transmit);
    assert!(w.run(Span::secs(1), |w| w.hosts[0].done.len() == 1));
    w.run(Span::millis(5), |_| false);
}

fn ends(w: &World, at: usize) -> Vec<(u64, Result<(), OpError>)> {
    w.hosts[at].done.iter().skip(1).map(|c| (c.context, c.status)).collect()
}

fn notices(w: &mut World, at: usize) -> Vec<Notice> {
    std::iter::from_fn(|| w.hosts[at].engine.poll_notice()).collect()
}

/// The path drops only large packets, and the peer keeps sending signs of life.
#[test]
fn message_ends_if_large_packets_vanish_while_keepalives_are_answered() {
    for waiting in [false, true] {
        let mut w = world();
        meet(&mut w);
        if waiting {
            send(&mut w, 9, 100_000, Level::Transmit);
            w.run(Span::millis(5), |_| false);
        }
        // Even fragments are longer than 300 bytes.
        w.mute = Some(|_, bytes| bytes.len() > 300);
        let begin = w.now;
        send(&mut w, 6, 1200, Level::Transmit);
        let ended = |w: &World| w.hosts[0].done.iter().any(|c| c.context == 6);
        assert!(w.run(Span::secs(60), ended), "it ends");
        let took = w.now.since(begin);
        assert!(took >= DEADLINE && took < DEADLINE + Span::secs(1), "{took:?}");
        assert!(ends(&w, 0).contains(&(6, Err(OpError::TimedOut))));
        // One packet is sent per timeout, not a storm.
        let (_, transport) = w.hosts[0].engine.counters();
        assert!(transport.retransmissions() < 250, "{waiting}");
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Contact,
    Eager,
    Rendezvous,
    Fetching,
    Read,
}

/// Stops processes while operations are in progress. Everything completes when they continue.
fn stop(w: &mut World, phase: Phase, who: &[usize], pause: Span, fits: usize) {
    let label = format!("{phase:?}, {who:?} for {pause:?}, {fits} packets kept");
    if phase != Phase::Contact {
        meet(w);
    }
    match phase {
        Phase::Contact | Phase::Eager => {
            recv(w, 2);
            send(w, 2, 15_000, Level::Transmit);
        }
        Phase::Rendezvous => send(w, 2, LONG, Level::Transmit),
        Phase::Fetching => {
            recv(w, 2);
            send(w, 2, LONG, Level::Transmit);
        }
        Phase::Read => read(w),
    }
    w.run(Span::micros(if phase == Phase::Rendezvous { 2_500_000 } else { 7 }), |_| false);
    let sent: usize = w.hosts[0].done.len();
    who.iter().for_each(|&n| w.hosts[n].stopped = true);
    w.run(pause, |_| false);
    who.iter().for_each(|&n| w.resume(n, fits));
    if phase == Phase::Rendezvous {
        w.run(Span::secs(15), |_| false);
        recv(w, 2);
    }
    assert!(w.run(Span::secs(5), |w| w.hosts[0].done.len() > sent), "{label}: {:?}", ends(w, 0));
    for at in 0..2 {
        assert!(ends(w, at).iter().all(|(_, end)| end.is_ok()), "{label}: {:?}", ends(w, at));
    }
    assert!(w.run(Span::secs(1), |w| w.hosts.iter().all(|host| host.engine.is_idle())), "{label}");
}

const PHASES: [Phase; 5] =
    [Phase::Contact, Phase::Eager, Phase::Rendezvous, Phase::Fetching, Phase::Read];

#[test]
fn all_operations_continue_after_all_processes_were_stopped() {
    for phase in PHASES {
        for pause in [13, 60, 1000] {
            for fits in [0, 3, usize::MAX] {
                stop(&mut world(), phase, &[0, 1], Span::secs(pause), fits);
            }
        }
    }
}

#[test]
fn all_operations_continue_after_one_process_was_stopped() {
    for phase in PHASES {
        for pause in [13, 50] {
            for fits in [0, 3, usize::MAX] {
                for who in [0, 1] {
                    stop(&mut patient(), phase, &[who], Span::secs(pause), fits);
                }
            }
        }
    }
}

#[test]
fn long_silence_is_reported_each_minute_without_an_error() {
    for met in [true, false] {
        let mut w = patient();
        if met {
            meet(&mut w);
        }
        let begin = w.now;
        w.hosts[1].dead = true;
        for tag in 2..5 {
            send(&mut w, tag, 15_000, Level::Transmit);
        }
        w.run(Span::millis(9_900), |_| false);
        assert_eq!(notices(&mut w, 0), []);
        let told = w.run(Span::secs(2), |_| false);
        assert!(!told);
        let peer = w.peer(0, 1);
        let [Notice::Silent { peer: silent, since, limit: WaitLimit::Deadline }] =
            notices(&mut w, 0)[..]
        else {
            panic!("one notice")
        };
        assert!(silent == peer && since >= Span::secs(10) && since < Span::secs(12), "{since:?}");
        let patience = if met { 120 } else { 60 };
        let ended = |w: &World| w.hosts[0].done.iter().filter(|c| c.status.is_err()).count() == 3;
        assert!(w.run(Span::secs(200), ended));
        let took = w.now.since(begin);
        assert!(took >= Span::secs(patience) && took < Span::secs(patience + 2), "{took:?}");
        // The report is repeated each minute.
        let again = notices(&mut w, 0);
        assert_eq!(again.len(), usize::from(met), "{again:?}");
        let error = if met { OpError::TimedOut } else { OpError::Unreachable };
        assert!(w.hosts[0].done.iter().all(|c| c.status.is_ok() || c.status == Err(error)));
    }
}

#[test]
fn silence_is_reported_again_after_a_sign_of_life() {
    let mut w = patient();
    meet(&mut w);
    for tag in [2, 3] {
        w.mute = Some(|_, _| true);
        send(&mut w, tag, 100, Level::Transmit);
        w.run(Span::secs(20), |_| false);
        assert_eq!(notices(&mut w, 0).len(), 1);
        w.mute = None;
        w.run(Span::secs(2), |_| false);
        assert!(ends(&w, 0).contains(&(tag, Ok(()))));
    }
}

/// The peer's process has ended, and its host reports the closed port.
#[test]
fn peer_is_given_up_early_if_its_host_reports_a_closed_port() {
    for (refuses, errno) in [(true, REFUSED), (true, 113), (false, REFUSED)] {
        let mut w = patient();
        let addr = w.hosts[1].addr;
        if !refuses {
            // Nothing was heard of the peer yet, so it may be about to start.
            let at = w.now;
            w.hosts[0].engine.peer(addr);
            w.hosts[0].engine.handle_destination_error(at, DestinationError { errno, peer: addr });
        }
        meet(&mut w);
        send(&mut w, 9, LONG, Level::Transmit);
        w.run(Span::secs(3), |_| false);
        w.hosts[1].dead = true;
        let begin = w.now;
        send(&mut w, 2, 100, Level::Transmit);
        if refuses {
            let at = w.now + Span::millis(1);
            w.hosts[0].engine.handle_destination_error(at, DestinationError { errno, peer: addr });
        }
        let ended = |w: &World| ends(w, 0).len() == 2;
        assert!(w.run(Span::secs(200), ended));
        let took = w.now.since(begin);
        let soon = refuses && errno == REFUSED;
        let (least, most) = if soon { (3, 5) } else { (119, 122) };
        assert!(took >= Span::secs(least) && took < Span::secs(most), "{took:?}");
        let lost = [(2, Err(OpError::TimedOut)), (9, Err(OpError::TimedOut))];
        assert!(lost.iter().all(|end| ends(&w, 0).contains(end)), "{:?}", ends(&w, 0));
        assert!(w.now > Time::ZERO);
    }
}

/// Builds an acknowledgement of a packet, as an attacker who saw the packet would.
fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let Ok(Packet::Request { pds, .. }) = parse(bytes) else { return None };
    let Dest::Pdc(target) = pds.dest else { return None };
    let ack = Ack {
        next: NextHeader::None,
        ce: false,
        retx: false,
        probe: false,
        request: AckRequest::None,
        ack_psn_offset: 0,
        cack_psn: pds.psn,
        spdcid: target,
        dpdcid: pds.spdcid,
        ext: AckExt::None,
    };
    let mut out = vec![0; 64];
    let len = ack.emit(&mut out);
    out.truncate(len);
    Some(out)
}

/// The request never arrives, and an attacker acknowledges it. The peer does not know the operation
/// and answers so.
#[test]
fn operation_unknown_to_its_peer_ends() {
    for op in 0..3 {
        let mut w = world();
        meet(&mut w);
        w.tap = Some(Vec::new());
        w.mute = Some(|_, _| true);
        match op {
            0 => read(&mut w),
            1 => send(&mut w, 2, LONG, Level::Transmit),
            _ => send(&mut w, 2, 100, Level::Match),
        }
        w.run(Span::micros(3), |_| false);
        let seen = w.tap.take().unwrap();
        let ack = seen.iter().find_map(|seen| forged(&seen.bytes)).expect("a request left");
        let (from, to) = (w.hosts[1].addr, w.hosts[0].addr);
        w.inject(from, to, PacketMarks::default(), &ack);
        w.mute = None;
        assert!(w.run(Span::secs(5), |w| ends(w, 0).len() == 1), "operation {op} ends");
        assert_eq!(ends(&w, 0)[0].1, Err(OpError::Closed));
        // Everything works again.
        recv(&mut w, 3);
        send(&mut w, 3, LONG, Level::Match);
        assert!(w.run(Span::secs(1), |w| ends(w, 0).contains(&(3, Ok(())))), "after {op}");
    }
}

#[test]
fn operations_known_to_the_peer_wait_without_limit() {
    let mut w = world();
    meet(&mut w);
    for tag in 0..100 {
        let (len, level) = if tag % 2 == 0 { (LONG, Level::Transmit) } else { (100, Level::Match) };
        send(&mut w, 2 + tag, len, level);
    }
    w.run(Span::secs(1000), |_| false);
    assert_eq!(ends(&w, 0), []);
    assert!(
        w.hosts[0].engine.counters().0.hellos > 10_000,
        "the engine asked about each operation"
    );
    (0..100).for_each(|tag| recv(&mut w, 2 + tag));
    assert!(w.run(Span::secs(1), |w| ends(w, 0).len() == 100));
    assert!((0..2).all(|at| ends(&w, at).iter().all(|(_, end)| end.is_ok())));
}

/// Builds a world of three endpoints: 1 and 2 share a host, 0 is on another one.
fn neighbours(adjust: impl Fn(&mut Config)) -> World {
    let addrs = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 2]];
    let addrs: Vec<_> =
        (5000..).zip(addrs).map(|(port, ip)| std::net::SocketAddr::from((ip, port))).collect();
    let mut w = World::at(&addrs, 3, Faults::default(), |config, transport| {
        let fresh = TransportConfig::new(1400, transport.cc.clone(), transport.paths.clone(), 1);
        transport.contact_deadline = fresh.contact_deadline;
        transport.progress_deadline = fresh.progress_deadline;
        adjust(config);
    });
    // Address vectors name all endpoints of a job, even those that have not exchanged a packet.
    w.peer(0, 2);
    meet(&mut w);
    w
}

fn all_sent(w: &World) -> bool {
    w.hosts[0].done.len() == 3
}

/// A stopped process answers nothing, but its neighbour does, which shows that the host is up.
#[test]
fn engine_waits_for_a_stopped_peer_while_its_host_answers() {
    for pause in [130, 600] {
        let mut w = neighbours(|_| {});
        w.hosts[0].done.clear();
        w.hosts[1].stopped = true;
        for tag in 2..5 {
            send(&mut w, tag, 15_000, Level::Delivery);
        }
        w.run(Span::secs(pause), |_| false);
        assert!(w.hosts[0].done.is_empty(), "{:?}", ends(&w, 0));
        let told = notices(&mut w, 0);
        let minutes = usize::try_from(pause / 60).unwrap();
        assert!(told.len() >= minutes && told.len() <= minutes + 1, "{told:?}");
        let why = |notice: &Notice| match notice {
            Notice::Silent { limit, .. } => *limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(told.last().map(why), Some(WaitLimit::HostAnswers));
        w.resume(1, usize::MAX);
        assert!(w.run(Span::secs(10), all_sent), "{pause}");
        assert!(ends(&w, 0).iter().all(|(_, end)| end.is_ok()), "{:?}", ends(&w, 0));
    }
}

/// When no endpoint at the silent peer's host answers, the engine gives the peer up after the ordinary deadline. When
/// one answers, the engine gives the peer up after the longer deadline.
#[test]
fn silent_hosts_and_stopped_peers_are_given_up_at_their_deadlines() {
    let minutes = |n: u64| Span::secs(60 * n);
    for (neighbour, most, expected) in [
        (false, minutes(15), minutes(2)),
        (true, minutes(5), minutes(5)),
        (true, Span::ZERO, minutes(2)),
    ] {
        let mut w = neighbours(|config| config.stopped_deadline = most);
        w.hosts[0].done.clear();
        (w.hosts[1].stopped, w.hosts[2].stopped) = (true, !neighbour);
        let begin = w.now;
        for tag in 2..5 {
            send(&mut w, tag, 15_000, Level::Delivery);
        }
        assert!(w.run(minutes(20), all_sent));
        let took = w.now.since(begin);
        // The world sees completions at the next event, which may be a question to the neighbour.
        assert!(took >= expected && took < expected + Span::secs(20), "{neighbour}: {took:?}");
        assert!(ends(&w, 0).iter().all(|(_, end)| *end == Err(OpError::TimedOut)));
    }
}

/// The neighbour answers at first and ends later.
#[test]
fn host_that_falls_silent_later_is_given_up_later() {
    let mut w = neighbours(|_| {});
    w.hosts[0].done.clear();
    w.hosts[1].stopped = true;
    for tag in 2..5 {
        send(&mut w, tag, 15_000, Level::Delivery);
    }
    w.run(Span::secs(200), |_| false);
    assert!(w.hosts[0].done.is_empty());
    w.hosts[2].stopped = true;
    assert!(w.run(Span::secs(120), all_sent), "the peer is given up within one more deadline");
    assert!(ends(&w, 0).iter().all(|(_, end)| *end == Err(OpError::TimedOut)));
}

/// A peer on this endpoint's own host needs no neighbour to show that the host is up.
#[test]
fn engine_waits_for_a_stopped_peer_on_this_host() {
    let mut w = neighbours(|config| {
        if config.port == 5000 {
            config.host = Some([10, 0, 0, 2].into());
        }
    });
    w.hosts[0].done.clear();
    (w.hosts[1].stopped, w.hosts[2].stopped) = (true, true);
    for tag in 2..5 {
        send(&mut w, tag, 15_000, Level::Delivery);
    }
    w.run(Span::secs(300), |_| false);
    assert!(w.hosts[0].done.is_empty(), "{:?}", ends(&w, 0));
    w.resume(1, usize::MAX);
    assert!(w.run(Span::secs(10), all_sent));
    assert!(ends(&w, 0).iter().all(|(_, end)| end.is_ok()), "{:?}", ends(&w, 0));
}
