//! Only verified peers open contexts.

use crate::link::{PEER, fixed};
use squall_reliability::base::{Psn, Rng, Seed, Span, Time};
use squall_reliability::wire::{Dest, NackCode, Request};
use squall_reliability::{
    Arrival, Association, Config, Contact, Event, NewPacket, PdcId, Pdcs, PeerKey, Refusal,
    RxVerdict, SendError, TxGrant,
};

const NOW: Time = Time(1_000_000);

/// Returns an end that requires a handshake.
fn end(seed: u8) -> Pdcs<u32> {
    let contact = Contact::Introduced(Seed::new([seed; 32]));
    Pdcs::new(Config { contact, ..fixed(1 << 20, u64::from(seed)) })
}

/// Returns two ends after a handshake.
fn verified_ends() -> [Pdcs<u32>; 2] {
    let mut ends = [end(1), end(2)];
    shake_hands(&mut ends, 5);
    ends
}

fn shake_hands(ends: &mut [Pdcs<u32>; 2], nonce: u64) {
    let association = Association::new(77, nonce);
    ends[0].admissions().record_handshake(PEER, association, true);
    ends[1].admissions().record_handshake(PEER, association, false);
}

fn send(pdcs: &mut Pdcs<u32>, id: PdcId, desc: u32) -> Result<TxGrant, SendError> {
    let packet = NewPacket { desc, bytes: 1000, last: false, prompt: false, backlog: 0 };
    pdcs.next_packet(NOW, id, &packet)
}

/// Hands in a packet and accepts it if it is delivered. Returns the verdict otherwise.
fn arrive(pdcs: &mut Pdcs<u32>, pds: &Request) -> Result<(), RxVerdict> {
    match pdcs.rx_request(NOW, PEER, pds, &Arrival { bytes: 1000, ..Arrival::default() }) {
        RxVerdict::Deliver(delivery) => {
            pdcs.accept(NOW, delivery, None);
            Ok(())
        }
        verdict => Err(verdict),
    }
}

const UNVERIFIED: Result<(), RxVerdict> = Err(RxVerdict::Refused(Refusal::Unverified));

fn events(pdcs: &mut Pdcs<u32>) -> Vec<Event<u32>> {
    std::iter::from_fn(|| pdcs.poll_event()).collect()
}

#[test]
fn a_context_waits_for_the_handshake_and_then_costs_no_round_trip() {
    let mut ends = [end(1), end(2)];
    let id = ends[0].open(NOW, PEER).unwrap();
    assert_eq!(send(&mut ends[0], id, 1), Err(SendError::Wait));
    ends[0].release(NOW, id);
    assert_eq!(send(&mut ends[0], id, 1), Err(SendError::Wait), "the peer is not verified");
    shake_hands(&mut ends, 5);
    ends[0].release(NOW, id);
    assert!(events(&mut ends[0]).contains(&Event::Ready { id }));
    let grant = send(&mut ends[0], id, 1).unwrap();
    assert_eq!(arrive(&mut ends[1], &grant.pds), Ok(()));
    // Later contexts need no handshake.
    let second = ends[0].open(NOW, PEER).unwrap();
    let grant = send(&mut ends[0], second, 2).unwrap();
    assert_eq!(arrive(&mut ends[1], &grant.pds), Ok(()));
    // Contexts of the other direction need none either.
    let back = ends[1].open(NOW, PEER).unwrap();
    let grant = send(&mut ends[1], back, 3).unwrap();
    assert_eq!(arrive(&mut ends[0], &grant.pds), Ok(()));
}

#[test]
fn another_handshake_with_a_target_that_forgot_its_peer_loses_and_duplicates_nothing() {
    let mut ends = verified_ends();
    ends[1].admissions().forget(PEER);
    let id = ends[0].open(NOW, PEER).unwrap();
    let grants: Vec<_> = (0..3).map(|n| send(&mut ends[0], id, n).unwrap()).collect();
    for grant in &grants {
        assert_eq!(arrive(&mut ends[1], &grant.pds), UNVERIFIED);
        let nack = ends[1].reject(None, &grant.pds).unwrap();
        assert_eq!((nack.code, nack.payload), (NackCode::NewStartPsn, 0));
        ends[0].rx_nack(NOW, PEER, &nack);
    }
    assert_eq!(ends[1].count(), 0);
    let unknown = Event::Unknown { peer: PEER, sent_at: NOW };
    assert_eq!(events(&mut ends[0]).iter().filter(|e| **e == unknown).count(), 1);
    assert_eq!(ends[0].poll_retransmit(NOW, id), None, "held");
    assert_eq!(send(&mut ends[0], id, 3), Err(SendError::Wait));
    ends[0].admissions().forget(PEER);
    shake_hands(&mut ends, 6);
    ends[0].release(NOW, id);
    let later = NOW + Span::millis(10);
    let mut again = Vec::new();
    while let Some((grant, desc)) = ends[0].poll_retransmit(later, id) {
        assert_eq!(arrive(&mut ends[1], &grant.pds), Ok(()));
        again.push(desc);
    }
    assert_eq!(again, [0, 1, 2]);
    for late in &grants {
        assert_eq!(arrive(&mut ends[1], &late.pds), UNVERIFIED);
    }
}

#[test]
fn guessed_numbers_open_no_context() {
    let mut ends = verified_ends();
    let id = ends[0].open(NOW, PEER).unwrap();
    let seen = send(&mut ends[0], id, 1).unwrap();
    assert_eq!(arrive(&mut ends[1], &seen.pds), Ok(()));
    let mut rng = Rng::new(9);
    for n in 0..100_000 {
        let spdcid = rng.below(65_535) as u16 + 1;
        let forged = Request {
            spdcid,
            psn: Psn(if n % 2 == 0 { rng.next_u32() } else { seen.pds.psn.0.wrapping_add(n) }),
            dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
            ..seen.pds
        };
        if spdcid != seen.pds.spdcid {
            assert_eq!(arrive(&mut ends[1], &forged), UNVERIFIED);
        }
    }
    assert_eq!(ends[1].count(), 1);
    assert!(ends[1].counters().rx_unverified > 99_000);
    // A replay from another address opens nothing either.
    let stolen = ends[1].rx_request(NOW, PeerKey(9), &seen.pds, &Arrival::default());
    assert_eq!(stolen, RxVerdict::Refused(Refusal::Unverified));
}

#[test]
fn one_peer_cannot_take_all_contexts() {
    let mut ends = verified_ends();
    let mut last = None;
    for n in 0..65 {
        let id = ends[0].open(NOW, PEER).unwrap();
        let grant = send(&mut ends[0], id, n).unwrap();
        last = Some(arrive(&mut ends[1], &grant.pds));
    }
    assert_eq!(last, Some(Err(RxVerdict::Refused(Refusal::NoContext))));
    assert_eq!(ends[1].count(), 64);
}

#[test]
fn context_numbers_on_the_wire_do_not_reveal_their_order() {
    let mut ends = verified_ends();
    let mut numbers = Vec::new();
    for n in 0..50 {
        let id = ends[0].open(NOW, PEER).unwrap();
        numbers.push(send(&mut ends[0], id, n).unwrap().pds.spdcid);
    }
    let steps = numbers.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 256).count();
    assert!(steps < 5, "{numbers:?}");
    assert!(!numbers.contains(&0));
}

/// Opens a context of the peer `from` at `victim`, where the peer is known as `peer`. Returns whether there was room.
fn open_at(victim: &mut Pdcs<u32>, peer: PeerKey, from: &mut Pdcs<u32>) -> bool {
    let id = from.open(NOW, PEER).expect("it has room itself");
    let grant = send(from, id, 0).expect("the peer is verified");
    let arrival = Arrival { bytes: 1000, ..Arrival::default() };
    match victim.rx_request(NOW, peer, &grant.pds, &arrival) {
        RxVerdict::Deliver(delivery) => {
            victim.accept(NOW, delivery, None);
            true
        }
        verdict => {
            assert_eq!(verdict, RxVerdict::Refused(Refusal::NoContext));
            false
        }
    }
}

/// Peers outside the job have a quarter of all contexts together, and each has a quarter of the contexts of a peer of
/// the job. That leaves room for peers of the job, for the first context of each even where others of them have many,
/// and for the victim's own contexts.
#[test]
fn peers_outside_the_job_leave_contexts_to_others() {
    const MOST: u16 = 256;
    let contact = Contact::Introduced(Seed::new([1; 32]));
    let mut victim =
        Pdcs::new(Config { contact, max_contexts: MOST, max_accepted: 32, ..fixed(1 << 20, 1) });
    let peer = |victim: &mut Pdcs<u32>, key: u32, outside: bool| {
        let (mut from, association) = (end(key as u8), Association::new(key.into(), 5));
        from.admissions().record_handshake(PEER, association, true);
        victim.admissions().record_handshake(PeerKey(key), association, false);
        victim.admissions().set_outside(PeerKey(key), outside);
        from
    };
    // One peer outside the job opens contexts.
    let mut from = peer(&mut victim, 1, true);
    let opened = (0..40).take_while(|_| open_at(&mut victim, PeerKey(1), &mut from)).count();
    assert_eq!(opened, 8);
    // All peers outside the job together open contexts.
    let all: usize = (2..60)
        .map(|key| {
            let mut from = peer(&mut victim, key, true);
            (0..8).take_while(|_| open_at(&mut victim, PeerKey(key), &mut from)).count()
        })
        .sum();
    assert_eq!(opened + all, 64);
    // A peer has joined the job since: its earlier contexts count as before.
    victim.admissions().set_outside(PeerKey(1), false);
    assert!(open_at(&mut victim, PeerKey(1), &mut from));
    // Peers of the job have all contexts except those reserved for the victim's own.
    let mut count = victim.count();
    for key in 100..110 {
        let mut from = peer(&mut victim, key, false);
        count += (0..40).take_while(|_| open_at(&mut victim, PeerKey(key), &mut from)).count();
    }
    assert_eq!((count, victim.count()), (192 + 6, 192 + 6), "and a first one for each");
    let newcomers = (110..150).filter(|key| {
        let mut from = peer(&mut victim, *key, false);
        open_at(&mut victim, PeerKey(*key), &mut from)
    });
    assert_eq!(newcomers.count(), 26);
    let mut outsider = peer(&mut victim, 60, true);
    assert!(!open_at(&mut victim, PeerKey(60), &mut outsider));
    // The victim opens its own contexts, but none to answer peers that have reached their limit.
    assert!(victim.open(NOW, PeerKey(2)).is_none());
    let ours = (0..100).filter(|_| victim.open(NOW, PeerKey(1)).is_some()).count();
    assert_eq!(ours, 32);
}
