//! Attackers without the job's key who return, forward, replay, change or forge packets of the
//! handshake. `handshake_search.rs` tries all orders of such packets; here is one test for each
//! attack that did harm.

use std::net::SocketAddr;

use crate::world::*;
use squall_base::{Instance, JobKey, Span};
use squall_engine::*;
use squall_wire::{Handshake, Packet, Reason, Stage, WIRE_VERSION, parse};

/// An address that the attacker has, where no host of the test's network is.
const ATTACKER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), 4000);

/// Host `at` posts a receive with a tag. The operation's context is `1000 + tag`.
fn post(w: &mut World, at: usize, source: Option<PeerId>, tag: u64) {
    let base = w.hosts[at].memory.alloc(3000);
    let host = &mut w.hosts[at];
    let op = RecvOp {
        source,
        space: MatchSpace::Tagged,
        tag,
        ignore: 0,
        buf: Buf::new(base, 3000),
        context: 1000 + tag,
        visibility: Visibility::Entry,
        mode: RecvMode::Post,
    };
    host.engine.receive(w.now, &mut host.memory, op).unwrap();
}

/// Host `from` sends bytes with a tag, which is also the operation's context.
fn send_to(w: &mut World, from: usize, peer: PeerId, tag: u64, bytes: &[u8]) {
    let base = w.hosts[from].memory.put(bytes);
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag },
        buf: Buf::new(base, bytes.len() as u64),
        data: None,
        context: tag,
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

fn exchange(w: &mut World, from: usize, to: usize, tag: u64) {
    post(w, to, None, tag);
    let peer = w.peer(from, to);
    send_to(w, from, peer, tag, &[tag as u8; 3000]);
}

/// Returns the status of the operation with this context at a host, if it has ended.
fn end(w: &World, at: usize, context: u64) -> Option<Result<(), OpError>> {
    w.hosts[at].done.iter().find(|c| c.context == context).map(|c| c.status)
}

/// Creates hosts with one key, which encrypt or not.
fn keyed(hosts: usize, seed: u64, encrypts: bool) -> World {
    let mut w = World::with(hosts, seed, Faults::default(), |config, _| {
        config.key = Some(JobKey::new(&[7; 16]));
        config.encrypts = encrypts;
    });
    if encrypts {
        w.seal_packets();
    }
    w
}

/// Creates two hosts that encrypt, of which host 0 has sent a message to host 1. Host 1 is busy, and
/// host 0 repeats the handshake because it has not answered the next message, operation 6.
fn renewing(seed: u64, named: bool) -> World {
    let mut w = keyed(2, seed, true);
    let r = w.hosts[1].addr;
    if named {
        let instance = w.hosts[1].engine.shm().instance();
        w.hosts[0].engine.peer_at(r, Some(instance));
    }
    exchange(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some()));
    w.hosts[1].stopped = true;
    w.tap = Some(vec![]);
    exchange(&mut w, 0, 1, 6);
    assert!(w.run(Span::secs(5), |w| seen(w, r, Stage::Hello).is_some()));
    w
}

fn handshake(bytes: &[u8]) -> Option<Handshake> {
    match parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
        _ => None,
    }
}

/// Returns the last handshake packet of a stage that left for `dst`.
fn seen(w: &World, dst: SocketAddr, stage: Stage) -> Option<Handshake> {
    let all = w.tap.iter().flatten().filter(|seen| seen.dst == dst);
    all.filter_map(|seen| handshake(&seen.bytes)).rfind(|it| it.stage == stage)
}

/// Delivers a handshake packet at `dst` as if the endpoint at `from` had sent it. `from` decides the
/// port at which that endpoint listens.
fn inject(w: &mut World, from: SocketAddr, dst: SocketAddr, packet: Handshake) {
    let mut out = vec![0; Handshake::LEN];
    let len = Handshake { port: from.port(), ..packet }.emit(&mut out);
    let src = SocketAddr::new(from.ip(), 40_000);
    w.inject(src, dst, PacketMarks::default(), &out[..len]);
}

/// Returns whether host `at` has verified an endpoint at an address.
fn has_verified(w: &mut World, at: usize, addr: SocketAddr) -> bool {
    let mut hosts: Vec<Instance> = vec![];
    for host in &mut w.hosts {
        hosts.push(host.engine.shm().instance());
    }
    let shm = w.hosts[at].engine.shm();
    hosts.into_iter().any(|instance| shm.find_verified_peer(addr, instance).is_some())
}

/// The attacker has an address to which a host sends, say that of a server that has ended. It
/// returns the host's own packets: the host's question, the host's answer to that, and so on.
#[test]
fn an_endpoint_does_not_prove_the_key_to_itself() {
    for encrypts in [false, true] {
        let mut w = keyed(1, 1, encrypts);
        let v = w.hosts[0].addr;
        w.tap = Some(vec![]);
        let peer = w.hosts[0].engine.peer(ATTACKER);
        send_to(&mut w, 0, peer, 5, b"confidential");
        w.run(Span::millis(1), |_| false);
        for stage in [Stage::Hello, Stage::Challenge, Stage::Confirm] {
            if let Some(own) = seen(&w, ATTACKER, stage) {
                inject(&mut w, ATTACKER, v, own);
                w.run(Span::millis(1), |_| false);
            }
        }
        assert_eq!(seen(&w, ATTACKER, Stage::Welcome), None, "encrypts: {encrypts}");
        assert!(!has_verified(&mut w, 0, ATTACKER), "encrypts: {encrypts}");
        let clear = |bytes: &[u8]| bytes.windows(12).any(|part| part == b"confidential");
        assert!(!w.tap.iter().flatten().any(|seen| clear(&seen.bytes)));
    }
}

/// The attacker forwards the packets of two hosts, so that each proves the key to the other, and
/// both believe that the other one is at the attacker's address.
#[test]
fn proofs_of_two_hosts_do_not_verify_the_attacker_between_them() {
    for encrypts in [false, true] {
        let mut w = keyed(2, 2, encrypts);
        let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
        w.tap = Some(vec![]);
        let peer = w.hosts[0].engine.peer(ATTACKER);
        send_to(&mut w, 0, peer, 5, b"confidential");
        w.run(Span::millis(1), |_| false);
        let ways = [(Stage::Hello, r), (Stage::Challenge, v), (Stage::Confirm, r)];
        for (stage, to) in [&ways[..], &[(Stage::Welcome, v)]].concat() {
            if let Some(packet) = seen(&w, ATTACKER, stage) {
                inject(&mut w, ATTACKER, to, packet);
                w.run(Span::millis(1), |_| false);
            }
        }
        for at in 0..2 {
            assert!(!has_verified(&mut w, at, ATTACKER), "host {at}, encrypts: {encrypts}");
        }
    }
}

/// An attacker on the path lets a third host answer in the place of another one, or confirms another
/// host's handshake from its own address.
#[test]
fn a_proof_holds_for_the_addresses_of_its_handshake() {
    // Host 2 answers for host 1.
    let mut w = keyed(3, 3, false);
    let [v, r, third] = [0, 1, 2].map(|n| w.hosts[n].addr);
    w.hosts[1].stopped = true;
    w.tap = Some(vec![]);
    exchange(&mut w, 0, 1, 5);
    w.run(Span::micros(100), |_| false);
    let hello = seen(&w, r, Stage::Hello).expect("a question");
    inject(&mut w, ATTACKER, third, hello);
    w.run(Span::micros(100), |_| false);
    if let Some(challenge) = seen(&w, ATTACKER, Stage::Challenge) {
        inject(&mut w, r, v, challenge);
    }
    assert!(!has_verified(&mut w, 0, r));
    // The attacker asks host 1 for host 0's cookie, at its own address.
    let mut w = keyed(2, 4, false);
    let [v, r] = [0, 1].map(|n| w.hosts[n].addr);
    w.tap = Some(vec![]);
    w.hosts[1].stopped = true;
    exchange(&mut w, 0, 1, 5);
    w.run(Span::micros(100), |_| false);
    w.hosts[1].stopped = false;
    let hello = seen(&w, r, Stage::Hello).expect("a question");
    inject(&mut w, ATTACKER, r, hello);
    w.run(Span::micros(100), |_| false);
    let challenge = seen(&w, ATTACKER, Stage::Challenge).expect("an answer");
    inject(&mut w, r, v, challenge);
    w.hosts[1].stopped = true;
    w.run(Span::micros(100), |_| false);
    w.hosts[1].stopped = false;
    if let Some(confirm) = seen(&w, r, Stage::Confirm) {
        inject(&mut w, ATTACKER, r, confirm);
    }
    assert!(!has_verified(&mut w, 1, ATTACKER));
}

/// An attacker on the path returns the question of a repeated handshake, and the challenge that the
/// host gives itself. Before, the host took its peer for restarted.
#[test]
fn a_returned_question_ends_no_established_pair() {
    for named in [false, true] {
        let mut w = renewing(2, named);
        let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
        for stage in [Stage::Hello, Stage::Challenge] {
            if let Some(own) = seen(&w, r, stage) {
                inject(&mut w, r, v, own);
                w.run(Span::micros(20), |_| false);
            }
        }
        w.resume(1, usize::MAX);
        assert!(w.run(Span::secs(20), |w| end(w, 0, 6).is_some()));
        assert_eq!(end(&w, 0, 6), Some(Ok(())), "named: {named}");
    }
}

/// The attacker changes a question on its way, so that the peer refuses it. The refusal has a proof,
/// but not one of what the host asked.
#[test]
fn refusals_of_a_changed_question_end_no_established_pair() {
    for change in 0..5 {
        let mut w = renewing(3, true);
        let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
        let hello = seen(&w, r, Stage::Hello).expect("a question");
        w.resume(1, 0);
        let changed = match change {
            0 => Handshake { capabilities: 0, ..hello },
            1 => Handshake { job_id: hello.job_id + 1, ..hello },
            2 => Handshake { expected: hello.instance, ..hello },
            3 => Handshake { version: WIRE_VERSION - 1, ..hello },
            // A confirmation without a valid cookie.
            _ => Handshake { stage: Stage::Confirm, ..hello },
        };
        inject(&mut w, v, r, changed);
        assert!(w.run(Span::secs(20), |w| end(w, 0, 6).is_some()));
        assert_eq!(end(&w, 0, 6), Some(Ok(())), "{changed:?}");
    }
}

/// The attacker removes the proof of a confirmation, so that the peer refuses it.
#[test]
fn a_removed_proof_ends_no_established_pair() {
    let mut w = renewing(11, false);
    let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
    let hello = seen(&w, r, Stage::Hello).expect("a question");
    w.resume(1, 0);
    inject(&mut w, v, r, hello);
    let confirmed = |w: &World| seen(w, r, Stage::Confirm).filter(|it| it.nonce == hello.nonce);
    assert!(w.run(Span::secs(1), |w| confirmed(w).is_some()));
    let confirm = confirmed(&w).expect("a confirmation");
    inject(&mut w, v, r, Handshake { proof: [0; 16], ..confirm });
    assert!(w.run(Span::secs(20), |w| end(w, 0, 6).is_some()));
    assert_eq!(end(&w, 0, 6), Some(Ok(())));
}

/// Behind each confirmation of a repeated handshake the attacker sends STALE. Before, three such
/// packets removed the secret in use, and the host asked as fast as the network could carry.
#[test]
fn forged_refusals_of_the_cookie_neither_end_a_pair_nor_cause_a_flood() {
    let mut w = renewing(4, false);
    let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
    w.resume(1, usize::MAX);
    let before = w.hosts[0].engine.counters().0.tx_handshakes;
    let (begin, mut later) = (w.now, false);
    let mut at = 0;
    while w.now < begin + Span::secs(40) && w.step_before(begin + Span::secs(40)) {
        if !later && w.now > begin + Span::secs(2) {
            later = true;
            exchange(&mut w, 0, 1, 7);
        }
        let tap = w.tap.as_ref().unwrap();
        let to_peer = tap[at..].iter().filter(|seen| seen.dst == r);
        let confirms: Vec<Handshake> = to_peer
            .filter_map(|seen| handshake(&seen.bytes))
            .filter(|it| it.stage == Stage::Confirm)
            .collect();
        at = tap.len();
        for confirm in confirms {
            let stale = Handshake {
                stage: Stage::Refuse,
                reason: Reason::Stale,
                cookie: 0,
                proof: [0; 16],
                instance: w.hosts[1].engine.shm().instance().get(),
                ..confirm
            };
            inject(&mut w, r, v, stale);
        }
    }
    assert_eq!((end(&w, 0, 6), end(&w, 0, 7)), (Some(Ok(())), Some(Ok(()))));
    let asked = w.hosts[0].engine.counters().0.tx_handshakes - before;
    assert!(asked < 50, "{asked} handshake packets");
}

/// Without a key, an attacker on the path can refuse every cookie. The questions still become rarer,
/// and the deadline still counts from the first one.
#[test]
fn questions_become_rarer_if_every_cookie_is_refused() {
    let mut w = World::new(2, 5, Faults::default());
    let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
    w.hosts[1].dead = true;
    w.tap = Some(vec![]);
    exchange(&mut w, 0, 1, 5);
    let (begin, mut at) = (w.now, 0);
    let (mut questions, mut last) = (0, w.now);
    while w.now < begin + Span::secs(15) && w.step_before(begin + Span::secs(15)) {
        let tap = w.tap.as_ref().unwrap();
        let asked: Vec<Handshake> =
            tap[at..].iter().filter_map(|seen| handshake(&seen.bytes)).collect();
        at = tap.len();
        for asked in asked {
            let answer = Handshake { instance: 77, expected: asked.instance, ..asked };
            let answer = match asked.stage {
                Stage::Hello => {
                    (questions, last) = (questions + 1, w.now);
                    Handshake { stage: Stage::Challenge, cookie: 1 + questions, ..answer }
                }
                _ => Handshake { stage: Stage::Refuse, reason: Reason::Stale, ..answer },
            };
            inject(&mut w, r, v, answer);
        }
    }
    assert!((3..40).contains(&questions), "{questions} questions");
    // The deadline is 10 s.
    assert!(
        last.since(begin) < Span::secs(12),
        "the last question came after {:?}",
        last.since(begin)
    );
}

/// A welcome ends the repetition of the confirmation, not the handshake before the challenge.
#[test]
fn a_forged_welcome_does_not_end_a_handshake() {
    for key in [false, true] {
        let mut w = if key { keyed(2, 6, true) } else { World::new(2, 6, Faults::default()) };
        let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
        w.tap = Some(vec![]);
        exchange(&mut w, 0, 1, 5);
        w.step_before(w.now);
        let hello = seen(&w, r, Stage::Hello).expect("a question");
        inject(&mut w, r, v, Handshake { stage: Stage::Welcome, instance: 1, ..hello });
        assert!(w.run(Span::millis(1), |w| end(w, 0, 5).is_some()), "key: {key}");
        assert_eq!(end(&w, 0, 5), Some(Ok(())), "key: {key}");
    }
}

/// The confirmation is lost, and the attacker welcomes the host. Before, the host sent with a secret
/// that its peer did not have.
#[test]
fn a_forged_welcome_confirms_no_secret() {
    let mut w = keyed(2, 7, true);
    let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
    w.tap = Some(vec![]);
    exchange(&mut w, 0, 1, 5);
    assert!(w.run(Span::secs(1), |w| seen(w, v, Stage::Challenge).is_some()));
    w.hosts[1].stopped = true;
    assert!(w.run(Span::secs(1), |w| seen(w, r, Stage::Confirm).is_some()));
    let confirm = seen(&w, r, Stage::Confirm).expect("a confirmation");
    let instance = w.hosts[1].engine.shm().instance().get();
    let welcome = Handshake { stage: Stage::Welcome, instance, ..confirm };
    inject(&mut w, r, v, welcome);
    w.tap = Some(vec![]);
    w.run(Span::millis(1), |_| false);
    let sealed = w.tap.take().unwrap().iter().filter(|it| handshake(&it.bytes).is_none()).count();
    assert_eq!(sealed, 0, "packets left with a secret that the peer does not have");
    w.resume(1, usize::MAX);
    assert!(w.run(Span::secs(5), |w| end(w, 0, 5).is_some()));
    assert_eq!(end(&w, 0, 5), Some(Ok(())));
}

/// The attacker answers the first question before the peer does, without a proof.
#[test]
fn forged_answers_do_not_end_the_first_handshake() {
    let reasons = [
        Reason::None,
        Reason::Version,
        Reason::Job,
        Reason::Stale,
        Reason::Crowded,
        Reason::Key,
        Reason::Unlisted,
        Reason::Encryption,
    ];
    let refusals = reasons.map(|reason| (Stage::Refuse, reason));
    let others = [Stage::Challenge, Stage::Welcome].map(|stage| (stage, Reason::None));
    for (stage, reason) in refusals.into_iter().chain(others) {
        for encrypts in [false, true] {
            let mut w = keyed(2, 8, encrypts);
            let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
            w.tap = Some(vec![]);
            exchange(&mut w, 0, 1, 5);
            w.step_before(w.now);
            let hello = seen(&w, r, Stage::Hello).expect("a question");
            inject(&mut w, r, v, Handshake { stage, reason, instance: 1, ..hello });
            assert!(w.run(Span::secs(9), |w| end(w, 0, 5).is_some()), "{stage:?} {reason:?}");
            assert_eq!(end(&w, 0, 5), Some(Ok(())), "{stage:?} {reason:?}, encrypts: {encrypts}");
        }
    }
}

/// A cookie shows that its holder receives at its address, and nothing else. What it sends besides
/// is answered as rarely as what others send.
#[test]
fn confirmations_without_a_proof_are_answered_within_the_limit() {
    let mut w = keyed(1, 9, true);
    let v = w.hosts[0].addr;
    let hello = Handshake {
        stage: Stage::Hello,
        version: WIRE_VERSION,
        port: ATTACKER.port(),
        reason: Reason::None,
        nonce: 1,
        instance: 2,
        expected: 0,
        cookie: 0,
        job_id: w.hosts[0].engine.job_id(),
        capabilities: Handshake::ENCRYPTS,
        proof: [0; 16],
    };
    w.tap = Some(vec![]);
    inject(&mut w, ATTACKER, v, hello);
    w.step_before(w.now);
    let challenge = seen(&w, ATTACKER, Stage::Challenge).expect("a challenge");
    for _ in 0..20_000 {
        let confirm = Handshake { stage: Stage::Confirm, cookie: challenge.cookie, ..hello };
        inject(&mut w, ATTACKER, v, confirm);
    }
    w.step_before(w.now);
    let counters = w.hosts[0].engine.counters().0;
    assert!(counters.tx_handshakes <= 4096, "{} answers", counters.tx_handshakes);
    assert!(counters.rx_unanswered >= 15_000);
}

/// A confirmation that was accepted may arrive again until the welcome does. It is no sign of life:
/// an attacker can repeat it for two minutes after its sender has ended.
#[test]
fn a_repeated_confirmation_is_no_sign_of_life() {
    for encrypts in [false, true] {
        let mut w =
            if encrypts { keyed(2, 10, true) } else { World::new(2, 10, Faults::default()) };
        let [v, r] = [w.hosts[0].addr, w.hosts[1].addr];
        w.tap = Some(vec![]);
        exchange(&mut w, 0, 1, 5);
        assert!(w.run(Span::secs(1), |w| end(w, 1, 1005).is_some() && end(w, 0, 5).is_some()));
        let confirm = seen(&w, r, Stage::Confirm).expect("a confirmation");
        let peer = w.peer(1, 0);
        w.crash(0);
        post(&mut w, 1, Some(peer), 6);
        for _ in 0..60 {
            inject(&mut w, v, r, confirm);
            w.run(Span::secs(1), |_| false);
        }
        assert!(matches!(end(&w, 1, 1006), Some(Err(_))), "{:?}", end(&w, 1, 1006));
    }
}
