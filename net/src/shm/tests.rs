//! What every message port must do, as far as two ports of one process can show it.

use super::*;
use crate::base::Rng;

fn config(name: &str) -> ShmConfig {
    ShmConfig { name: format!("squall-test-{}-{name}", std::process::id()), ring: LEAST }
}

fn port(name: &str) -> ShmPort {
    ShmPort::open(&config(name)).expect("it opens")
}

/// Two ports that are connected, and the connection's numbers.
fn pair(name: &str) -> [(ShmPort, LinkNo); 2] {
    let (mut a, mut b) = (port(&format!("{name}-a")), port(&format!("{name}-b")));
    let link = a.connect(&config(&format!("{name}-b")).name, b"hello").expect("b listens");
    b.look();
    b.look();
    let Some(LinkEvent::Asked(there, text)) = b.next_event() else { panic!("asked") };
    assert_eq!(text, b"hello");
    b.accept(there, b"welcome").expect("a waits");
    a.look();
    assert_eq!(a.next_event(), Some(LinkEvent::Accepted(link, b"welcome".to_vec())));
    [(a, link), (b, there)]
}

fn collect(port: &mut ShmPort) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    port.recv(1000, &mut |_, frame, _| {
        got.push(frame.to_vec());
        Verdict::Taken
    });
    got
}

#[test]
fn frames_arrive_whole_and_in_order_both_ways() {
    let [(mut a, to_b), (mut b, to_a)] = pair("order");
    let mut rng = Rng::new(3);
    let (mut sent, mut got) = ([0u32; 2], [0u32; 2]);
    while got.iter().any(|n| *n < 3000) {
        for (n, (port, link)) in [(&mut a, to_b), (&mut b, to_a)].into_iter().enumerate() {
            for _ in 0..rng.below(20) {
                let bytes = vec![sent[n] as u8; 4 + rng.below(3000) as usize];
                if port.send(link, Outgoing::of_copies(&sent[n].to_le_bytes(), &bytes)) {
                    sent[n] += 1;
                }
            }
        }
        for (n, port) in [(1, &mut a), (0, &mut b)] {
            for frame in collect(port) {
                assert_eq!(frame[..4], got[n].to_le_bytes());
                assert!(frame[4..].iter().all(|byte| *byte == got[n] as u8));
                got[n] += 1;
            }
        }
        a.show_taken(to_b, got[1].into());
        b.show_taken(to_a, got[0].into());
    }
    collect(&mut a);
    assert_eq!(a.taken(to_b), u64::from(got[0]));
}

#[test]
fn a_frame_that_is_not_taken_now_comes_again_before_others() {
    let [(mut a, to_b), (mut b, _)] = pair("again");
    for n in 0..3 {
        assert!(a.send(to_b, Outgoing::of_copies(&[n], &[])));
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        b.recv(10, &mut |_, frame, _| {
            seen.push(frame[0]);
            if seen.len() < 3 { Verdict::NotNow } else { Verdict::Taken }
        });
    }
    assert_eq!(seen, [0, 0, 0, 1, 2]);
}

/// A sender learns within a ring's length that its peer has no room for messages, sends other frames nevertheless, and is
/// woken when there is room again.
#[test]
fn messages_stop_within_a_ring_where_there_is_no_room_for_them() {
    let [(mut a, to_b), (mut b, to_a)] = pair("room");
    let frame = Outgoing::of_copies(&[1; 100], &[]);
    assert!(a.send_message(to_b, frame) && a.takes_messages(to_b));
    b.show_room(to_a, MessageRoom::Little);
    assert_eq!((a.room(to_b), a.takes_messages(to_b)), (MessageRoom::Little, true));
    b.show_room(to_a, MessageRoom::None);
    b.ring();
    let mut sent = 0;
    while a.send_message(to_b, frame) {
        sent += 1;
        collect(&mut b);
        b.show_taken(to_a, sent);
        assert!(sent < 10_000);
    }
    assert!(sent as usize <= LEAST / 128, "{sent} messages of 128 bytes");
    assert!(!a.takes_messages(to_b) && a.send(to_b, frame));
    collect(&mut b);
    b.show_taken(to_a, sent + 1);
    b.ring();
    collect(&mut a);
    assert!(a.doze(), "nothing has come");
    b.show_room(to_a, MessageRoom::Ample);
    assert!(b.touched().contains(&to_a));
    b.ring();
    let mut poll = libc::pollfd { fd: a.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) writes the results of one `pollfd`, a local variable.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 1, "it is woken");
    assert!(!a.doze() && a.send_message(to_b, frame));
}

#[test]
fn whoever_is_not_there_is_not_connected_to() {
    let mut a = port("alone");
    let error = a.connect("squall-test-nobody", b"hello").expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(ShmPort::open(&config("alone")).is_err(), "the name is taken");
    drop(a);
    port("alone");
}

#[test]
fn who_hangs_up_is_heard_to_its_last_frame() {
    let [(mut a, to_b), (mut b, to_a)] = pair("end");
    assert!(a.send(to_b, Outgoing::of_copies(b"last", b" words")));
    drop(a);
    b.look();
    assert_eq!(b.next_event(), None, "not before its frames");
    assert_eq!(collect(&mut b), [b"last words"]);
    assert_eq!(b.next_event(), Some(LinkEvent::Over(to_a, Ending::Closed)));
    assert!(b.send(to_a, Outgoing::of_copies(b"x", b"")), "lost");
    b.close(to_a);
    assert_eq!(collect(&mut b), Vec::<Vec<u8>>::new());
}

#[test]
fn a_connection_that_is_refused_is_over() {
    let (mut a, mut b) = (port("no-a"), port("no-b"));
    let link = a.connect(&config("no-b").name, b"hello").expect("b listens");
    b.look();
    b.look();
    let Some(LinkEvent::Asked(there, _)) = b.next_event() else { panic!("asked") };
    b.close(there);
    a.look();
    assert_eq!(a.next_event(), Some(LinkEvent::Over(link, Ending::Died)));
}

#[test]
fn who_sleeps_is_woken_once_and_who_is_awake_is_not() {
    let readable = |port: &ShmPort| {
        let mut poll = libc::pollfd { fd: port.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) reads and writes the one pollfd that it is told of, a local variable.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    };
    let [(mut a, to_b), (mut b, to_a)] = pair("sleep");
    b.look();
    a.send(to_b, Outgoing::of_copies(b"1", b""));
    a.ring();
    assert!(!readable(&b), "it is awake");
    assert!(!b.doze(), "something is there");
    assert_eq!(collect(&mut b).len(), 1);
    assert!(b.doze() && !readable(&b));
    a.send(to_b, Outgoing::of_copies(b"2", b""));
    a.ring();
    assert!(readable(&b));
    b.look();
    assert!(!readable(&b));
    a.send(to_b, Outgoing::of_copies(b"3", b""));
    a.ring();
    assert!(!readable(&b), "it knows");
    assert_eq!(collect(&mut b).len(), 2);
    // What was taken wakes as well.
    assert!(a.doze());
    b.show_taken(to_a, 3);
    b.ring();
    assert!(readable(&a));
    assert_eq!((collect(&mut a).len(), a.taken(to_b)), (0, 3));
}

#[test]
fn two_threads_ping_and_pong() {
    const ROUNDS: u32 = 20_000;
    let [(a, to_b), (b, to_a)] = pair("threads");
    let run = |mut port: ShmPort, link: LinkNo, first: bool| {
        let (mut got, mut sent) = (0u32, 0u32);
        while got < ROUNDS || sent < ROUNDS {
            if sent < ROUNDS && sent < got + u32::from(first) {
                assert!(port.send(link, Outgoing::of_copies(&sent.to_le_bytes(), &[7; 60])));
                sent += 1;
            }
            port.recv(16, &mut |_, frame, _| {
                assert_eq!(frame[..4], got.to_le_bytes());
                got += 1;
                Verdict::Taken
            });
            port.show_taken(link, got.into());
        }
        port
    };
    let other = std::thread::spawn(move || run(b, to_a, false));
    run(a, to_b, true);
    other.join().expect("no panic");
}

#[test]
fn what_a_frame_refers_to_is_fetched_until_it_is_taken_back() {
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
        assert_eq!(a.refer(to_b, b"head", &[lend(one), lend(two)], 5), Reference::Sent);
        if revoked {
            a.revoke(to_b, 5);
        }
        let mut fetched = None;
        b.recv(9, &mut |_, frame, source| {
            assert_eq!(frame, b"head");
            // SAFETY: `place` has 90000 bytes, whose address was exposed, and lives to the end of the test.
            fetched = source.map(|source| unsafe { source.fetch(to, 10_000) });
            Verdict::Taken
        });
        assert_eq!(fetched, Some(!revoked));
        assert!(revoked || place == bytes[10_000..]);
    }
}
