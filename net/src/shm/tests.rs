//! Tests of what every message port must do, with two ports of one process.

use super::*;
use crate::base::Rng;

pub(super) fn config(name: &str) -> ShmConfig {
    ShmConfig { name: format!("squall-test-{}-{name}", std::process::id()), ring: MIN_SIZE }
}

pub(super) fn port(name: &str) -> ShmPort {
    ShmPort::open(&config(name)).expect("it opens")
}

/// Opens two ports with a channel between them. Returns each with its number of the channel.
fn pair(name: &str) -> [(ShmPort, ShmChannelId); 2] {
    let (mut a, mut b) = (port(&format!("{name}-a")), port(&format!("{name}-b")));
    let [channel, there] = join(&mut a, (&mut b, format!("{name}-b").as_str()));
    [(a, channel), (b, there)]
}

/// Connects a port to another one with this name. Returns the numbers of the channel at both ports.
pub(super) fn join(a: &mut ShmPort, (b, name): (&mut ShmPort, &str)) -> [ShmChannelId; 2] {
    let channel = a.connect(&config(name).name, b"hello").expect("b listens");
    b.poll_connections();
    b.poll_connections();
    let Some(ChannelEvent::Requested(there, text)) = b.next_event() else { panic!("asked") };
    assert_eq!(text, b"hello");
    b.accept(there, b"welcome").expect("a waits");
    a.poll_connections();
    assert_eq!(a.next_event(), Some(ChannelEvent::Accepted(channel, b"welcome".to_vec())));
    [channel, there]
}

/// The position of the ring that the creator of the connection writes.
const OF_CREATOR: RingLayout = RingLayout { control: 0, base: CONTROL_PAGE, size: MIN_SIZE };

/// A process that lives until it is killed, and takes no part in the test.
struct Bystander(std::process::Child);

impl Bystander {
    fn new() -> Self {
        Self(std::process::Command::new("sleep").arg("600").spawn().expect("coreutils"))
    }

    fn process(&self) -> PeerProcess {
        let pid = libc::pid_t::try_from(self.0.id()).expect("a process");
        PeerProcess::open(pid).expect("a kernel with process descriptors")
    }

    fn kill(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("ours");
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Duplicates a descriptor, as a child of fork would hold it.
fn duplicate(fd: RawFd) -> OwnedFd {
    // SAFETY: dup(2) takes a number and returns a new descriptor, which goes nowhere but into the `OwnedFd`.
    unsafe { OwnedFd::from_raw_fd(check(libc::dup(fd)).expect("a descriptor")) }
}

fn collect(port: &mut ShmPort) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    port.recv(1000, &mut |_, record, _| {
        got.push(record.to_vec());
        RecordVerdict::Consumed
    });
    got
}

#[test]
fn records_arrive_whole_and_in_order_both_ways() {
    let [(mut a, to_b), (mut b, to_a)] = pair("order");
    let mut rng = Rng::new(3);
    let (mut sent, mut got) = ([0u32; 2], [0u32; 2]);
    while got.iter().any(|n| *n < 3000) {
        for (n, (port, channel)) in [(&mut a, to_b), (&mut b, to_a)].into_iter().enumerate() {
            for _ in 0..rng.below(20) {
                let bytes = vec![sent[n] as u8; 4 + rng.below(3000) as usize];
                if port.send(channel, OutgoingRecord::from_copies(&sent[n].to_le_bytes(), &bytes)) {
                    sent[n] += 1;
                }
            }
        }
        for (n, port) in [(1, &mut a), (0, &mut b)] {
            for record in collect(port) {
                assert_eq!(record[..4], got[n].to_le_bytes());
                assert!(record[4..].iter().all(|byte| *byte == got[n] as u8));
                got[n] += 1;
            }
        }
        a.publish_taken(to_b, got[1].into());
        b.publish_taken(to_a, got[0].into());
    }
    collect(&mut a);
    assert_eq!(a.peer_taken(to_b), u64::from(got[0]));
}

#[test]
fn a_deferred_record_is_offered_again_before_later_ones() {
    let [(mut a, to_b), (mut b, _)] = pair("again");
    for n in 0..3 {
        assert!(a.send(to_b, OutgoingRecord::from_copies(&[n], &[])));
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        b.recv(10, &mut |_, record, _| {
            seen.push(record[0]);
            if seen.len() < 3 { RecordVerdict::Deferred } else { RecordVerdict::Consumed }
        });
    }
    assert_eq!(seen, [0, 0, 0, 1, 2]);
}

/// A sender learns within a ring's length that its peer has no room for messages, sends other records nevertheless, and
/// is woken once when there is room again.
#[test]
fn messages_stop_within_one_ring_without_room() {
    let [(mut a, to_b), (mut b, to_a)] = pair("room");
    let record = OutgoingRecord::from_copies(&[1; 100], &[]);
    assert!(a.send_message(to_b, record) && a.has_message_room(to_b));
    b.publish_room(to_a, MessageRoom::Little);
    assert_eq!((a.peer_room(to_b), a.has_message_room(to_b)), (MessageRoom::Little, true));
    b.publish_room(to_a, MessageRoom::None);
    b.wake_peers();
    let mut sent = 0;
    while a.send_message(to_b, record) {
        sent += 1;
        collect(&mut b);
        b.publish_taken(to_a, sent);
        assert!(sent < 10_000);
    }
    assert!(sent as usize <= MIN_SIZE / 128, "{sent} messages of 128 bytes");
    assert!(!a.has_message_room(to_b) && a.send(to_b, record));
    collect(&mut b);
    b.publish_taken(to_a, sent + 1);
    b.wake_peers();
    collect(&mut a);
    assert!(a.announce_sleep(), "nothing has come");
    b.publish_room(to_a, MessageRoom::Ample);
    assert!(b.touched_channels().contains(&to_a));
    b.wake_peers();
    let mut poll = libc::pollfd { fd: a.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) writes the results of one `pollfd`, a local variable.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 1, "it is woken");
    assert!(!a.announce_sleep(), "there is room again");
    assert!(a.announce_sleep(), "a sender with nothing to send may sleep");
    assert!(a.send_message(to_b, record));
}

#[test]
fn connecting_to_a_missing_port_is_refused() {
    let mut a = port("alone");
    let error = a.connect("squall-test-nobody", b"hello").expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(ShmPort::open(&config("alone")).is_err(), "the name is taken");
    drop(a);
    port("alone");
}

#[test]
fn records_before_a_close_are_all_delivered() {
    let [(mut a, to_b), (mut b, to_a)] = pair("end");
    assert!(a.send(to_b, OutgoingRecord::from_copies(b"last", b" words")));
    drop(a);
    b.poll_connections();
    assert_eq!(b.next_event(), None, "not before its records");
    assert_eq!(collect(&mut b), [b"last words"]);
    assert_eq!(b.next_event(), Some(ChannelEvent::Ended(to_a, EndReason::Closed)));
    assert!(b.send(to_a, OutgoingRecord::from_copies(b"x", b"")), "lost");
    b.close(to_a);
    assert_eq!(collect(&mut b), Vec::<Vec<u8>>::new());
}

#[test]
fn a_connection_that_is_refused_is_over() {
    let (mut a, mut b) = (port("no-a"), port("no-b"));
    let channel = a.connect(&config("no-b").name, b"hello").expect("b listens");
    b.poll_connections();
    b.poll_connections();
    let Some(ChannelEvent::Requested(there, _)) = b.next_event() else { panic!("asked") };
    b.close(there);
    a.poll_connections();
    assert_eq!(a.next_event(), Some(ChannelEvent::Ended(channel, EndReason::PeerDied)));
}

#[test]
fn only_a_sleeping_peer_is_woken_and_only_once() {
    let readable = |port: &ShmPort| {
        let mut poll = libc::pollfd { fd: port.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    };
    let [(mut a, to_b), (mut b, to_a)] = pair("sleep");
    b.poll_connections();
    a.send(to_b, OutgoingRecord::from_copies(b"1", b""));
    a.wake_peers();
    assert!(!readable(&b), "it is awake");
    assert!(!b.announce_sleep(), "something is there");
    assert_eq!(collect(&mut b).len(), 1);
    assert!(b.announce_sleep() && !readable(&b));
    a.send(to_b, OutgoingRecord::from_copies(b"2", b""));
    a.wake_peers();
    assert!(readable(&b));
    b.poll_connections();
    assert!(!readable(&b));
    a.send(to_b, OutgoingRecord::from_copies(b"3", b""));
    a.wake_peers();
    assert!(!readable(&b), "it knows");
    assert_eq!(collect(&mut b).len(), 2);
    // Records that were taken wake the peer as well.
    assert!(a.announce_sleep());
    b.publish_taken(to_a, 3);
    b.wake_peers();
    assert!(readable(&a));
    assert_eq!((collect(&mut a).len(), a.peer_taken(to_b)), (0, 3));
}

#[test]
fn two_threads_ping_and_pong() {
    const ROUNDS: u32 = 20_000;
    let [(a, to_b), (b, to_a)] = pair("threads");
    let run = |mut port: ShmPort, channel: ShmChannelId, first: bool| {
        let (mut got, mut sent) = (0u32, 0u32);
        while got < ROUNDS || sent < ROUNDS {
            if sent < ROUNDS && sent < got + u32::from(first) {
                assert!(
                    port.send(channel, OutgoingRecord::from_copies(&sent.to_le_bytes(), &[7; 60]))
                );
                sent += 1;
            }
            port.recv(16, &mut |_, record, _| {
                assert_eq!(record[..4], got.to_le_bytes());
                got += 1;
                RecordVerdict::Consumed
            });
            port.publish_taken(channel, got.into());
        }
        port
    };
    let other = std::thread::spawn(move || run(b, to_a, false));
    run(a, to_b, true);
    other.join().expect("no panic");
}

#[test]
fn referenced_memory_can_be_fetched_until_it_is_revoked() {
    let [(mut a, to_b), (mut b, _)] = pair("refer");
    let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    let (one, two) = bytes.split_at(30_000);
    let lend = |bytes: &[u8]| {
        UserSlice::lent(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
    };
    let mut place = vec![0u8; 90_000];
    let to = UserSlice::lent(place.as_mut_ptr().expose_provenance() as u64, 90_000);
    for revoked in [false, true] {
        place.fill(0);
        // SAFETY: the pieces are of `bytes`, whose address was exposed, and which lives to the end of the test.
        let sent = unsafe { a.send_reference(to_b, b"head", &[lend(one), lend(two)], 5) };
        assert_eq!(sent, ReferenceOutcome::Sent);
        if revoked {
            a.revoke_memory(to_b, 5);
        }
        let mut fetched = None;
        b.recv(9, &mut |_, record, source| {
            assert_eq!(record, b"head");
            // SAFETY: `place` has 90000 bytes, whose address was exposed, and lives to the end of the test.
            fetched = source.map(|source| unsafe { source.fetch(to, 10_000) });
            RecordVerdict::Consumed
        });
        assert_eq!(fetched, Some(!revoked));
        assert!(revoked || place == bytes[10_000..]);
    }
}

/// The connection to one peer is closed, another gets its number, and then the first peer's process ends, while a child
/// of fork holds the descriptors of both: the second peer lives.
#[test]
fn the_end_of_a_closed_peer_does_not_end_its_successor() {
    let [(mut a, to_b), (b, _)] = pair("left");
    let mut process = Bystander::new();
    // The bystander stands in for the peer's process.
    let peer = process.process();
    let generation = a.connections[0].as_ref().expect("b").generation;
    a.watch(peer.fd(), u64::from(generation) << 33 | PROCESS_EVENT).expect("room");
    let connection = a.connections[0].as_mut().expect("b");
    let held = [
        duplicate(connection.socket.as_raw_fd()),
        duplicate(peer.fd()),
        duplicate(connection.process.as_ref().expect("this kernel has them").fd()),
    ];
    connection.process = Some(peer);
    a.close(to_b);
    let mut c = port("left-c");
    let [to_c, from_a] = join(&mut a, (&mut c, "left-c"));
    assert_eq!(to_b, to_c, "the number is used again");
    process.kill();
    drop(b);
    for _ in 0..3 {
        a.poll_connections();
        assert_eq!(a.next_event(), None, "c lives");
    }
    assert!(a.send(to_c, OutgoingRecord::from_copies(b"still", b" here")));
    assert_eq!(collect(&mut c), [b"still here"]);
    // An event about the first process was in flight as well.
    assert_eq!(a.channel_of_event(u64::from(generation) << 33), None);
    assert!(c.send(from_a, OutgoingRecord::from_copies(b"so", b" do I")));
    assert_eq!(collect(&mut a), [b"so do I"]);
    drop(held);
}

/// An event may report the end of a process that still lives.
#[test]
fn a_process_has_ended_only_if_its_pidfd_reports_it() {
    let [(mut a, to_b), (_b, _)] = pair("lives");
    let mut process = Bystander::new();
    a.connections[0].as_mut().expect("b").process = Some(process.process());
    a.handle_process_event(to_b);
    collect(&mut a);
    assert_eq!(a.next_event(), None);
    process.kill();
    a.handle_process_event(to_b);
    collect(&mut a);
    assert_eq!(a.next_event(), Some(ChannelEvent::Ended(to_b, EndReason::PeerDied)));
}

/// The receiver cannot read the sender's memory any more. The sender then copies the payload of records in flight, and
/// uses no references for later records.
#[test]
fn unreadable_payload_is_copied_by_its_owner() {
    let [(mut a, to_b), (mut b, to_a)] = pair("copy");
    // The addresses of this test mean nothing in that process.
    let bystander = Bystander::new();
    b.connections[0].as_mut().expect("a").process = Some(bystander.process());
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n >> 3) as u8).collect();
    let (one, two) = bytes.split_at(100_001);
    let lend = |bytes: &[u8]| {
        UserSlice::lent(bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64)
    };
    let mut place = vec![0u8; 299_000];
    let to = UserSlice::lent(place.as_mut_ptr().expose_provenance() as u64, 299_000);
    for (tag, revoked) in [(1, None), (2, None), (3, Some(0)), (4, Some(2))] {
        place.fill(0);
        let pieces = [lend(one), lend(two)];
        // The first read that fails shows the sender that no more references are wanted. The references that follow
        // were sent before.
        let rings = a.connections[0].as_ref().and_then(|c| c.rings.as_ref()).expect("open");
        fetch::allow_references(&rings.segment, OF_CREATOR);
        // SAFETY: the pieces are of `bytes`, whose address was exposed, and which lives to the end of the test.
        let sent = unsafe { a.send_reference(to_b, b"head", &pieces, tag) };
        assert_eq!(sent, ReferenceOutcome::Sent);
        let (mut fetched, mut rounds) = (None, 0);
        while fetched.is_none() {
            assert!(rounds < 100, "it does not come");
            if revoked == Some(rounds) {
                a.revoke_memory(to_b, tag);
            }
            b.recv(9, &mut |_, record, source| {
                assert_eq!(record, b"head");
                let source = source.expect("it refers to something");
                // SAFETY: `place` has 299000 bytes, whose address was exposed, and lives to the end of the test.
                let had = unsafe { source.fetch(to, 1000) };
                if source.is_delayed() {
                    assert!(!had);
                    return RecordVerdict::Deferred;
                }
                fetched = Some(had);
                RecordVerdict::Consumed
            });
            a.poll_connections();
            rounds += 1;
        }
        assert_eq!(fetched, Some(revoked.is_none()));
        assert!(revoked.is_some() || place == bytes[1000..], "message {tag}");
        assert!(revoked.is_some() || rounds > 4, "64 KiB at a time");
        b.publish_taken(to_a, tag);
        collect(&mut a);
        if revoked != Some(0) {
            // SAFETY: `bytes`, which `pieces` name, lives until the end of the test, and no code writes to it.
            let next = unsafe { a.send_reference(to_b, b"head", &pieces, tag) };
            assert_eq!(next, ReferenceOutcome::Impossible);
        }
    }
    assert!(b.send(to_a, OutgoingRecord::from_copies(b"all", b" well")));
    assert_eq!(collect(&mut a), [b"all well"]);
}

/// The sender does not copy memory that was taken or taken back, whatever the peer asks for.
#[test]
fn revoked_payload_is_not_copied() {
    for revoked in [false, true] {
        let [(mut a, to_b), (mut b, to_a)] = pair("late");
        let bytes = vec![9u8; 70_000];
        let piece = UserSlice::lent(bytes.as_ptr().expose_provenance() as u64, 70_000);
        // SAFETY: the piece is `bytes`, whose address was exposed, and which lives longer than the ports use it.
        assert_eq!(unsafe { a.send_reference(to_b, b"head", &[piece], 1) }, ReferenceOutcome::Sent);
        if revoked {
            a.revoke_memory(to_b, 1);
        } else {
            assert_eq!(collect(&mut b).len(), 1);
            b.publish_taken(to_a, 1);
            collect(&mut a);
        }
        let rings = b.connections[0].as_mut().and_then(|c| c.rings.as_mut()).expect("open");
        let Rings { segment, copier, .. } = rings;
        // These are the first slot that is given out, and the generation that the segment shows.
        let (slot, generation) = (63, u32::from(revoked));
        assert!(fetch::is_valid_reference(segment, OF_CREATOR, (slot, generation)));
        copier.begin(segment, copy::PayloadToCopy { slot, generation, len: 70_000 });
        assert_eq!(copier.poll(segment), CopyProgress::Pending);
        a.poll_connections();
        assert_eq!(copier.poll(segment), CopyProgress::Aborted, "{revoked}");
    }
}

/// A pair that exchanges little data uses little memory, and a pair that exchanges much uses all of it.
#[test]
fn a_pair_allocates_only_the_memory_it_uses() {
    const RING: usize = 1 << 20;
    let large = ShmConfig { ring: RING, ..config("small-a") };
    let (mut a, mut b) = (ShmPort::open(&large).expect("it opens"), port("small-b"));
    let [to_b, to_a] = join(&mut a, (&mut b, "small-b"));
    let resident = |port: &ShmPort| {
        let rings = port.connections[0].as_ref().and_then(|c| c.rings.as_ref()).expect("open");
        rings.segment.resident()
    };
    if resident(&a) == segment_size(RING) {
        // This kernel cannot add memory later.
        return;
    }
    let mut taken = 0;
    while taken < 2000 {
        assert!(a.send(to_b, OutgoingRecord::from_copies(&[1; 64], &[])));
        assert_eq!(collect(&mut b).len(), 1);
        taken += 1;
        b.publish_taken(to_a, taken);
    }
    assert!(resident(&a) <= 96 << 10, "{} of {} bytes", resident(&a), segment_size(RING));
    for _ in 0..20 {
        let full =
            |n: &usize| *n < 1000 && a.send(to_b, OutgoingRecord::from_copies(&[1; 4000], &[]));
        let sent = (0..).take_while(full).count();
        assert_eq!(collect(&mut b).len(), sent);
        taken += sent as u64;
        b.publish_taken(to_a, taken);
    }
    assert!(resident(&a) >= RING);
}
