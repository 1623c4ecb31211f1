//! Known answers, an independent implementation of the cipher, and a model of the key ring.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aes_gcm::aead::AeadInOut as _;
use aes_gcm::{Aes256Gcm, KeyInit as _};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::base::{Instance, JobKey, PairSecret, Purpose};
use crate::pair::PairState;
use crate::wire::Tss;

fn vectors() -> Value {
    serde_json::from_str(include_str!("tests/vectors.json")).unwrap()
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    hex(value).try_into().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Splits a nonce whose mask is 0 into its parts.
fn split(iv: [u8; 12]) -> (u32, u64) {
    let (prefix, counter) = iv.split_at(4);
    (
        u32::from_be_bytes(prefix.try_into().unwrap()),
        u64::from_be_bytes(counter.try_into().unwrap()),
    )
}

#[test]
fn keys_are_derived_as_in_the_reference() {
    let mut published = 0;
    for known in vectors()["kdf"].as_array().unwrap() {
        let label = match &hex(&known["label"])[..] {
            b"U1" => KeyLabel::Cluster,
            b"U2" => KeyLabel::Server,
            other => panic!("{other:?}"),
        };
        let source = match (hex(&known["source"]), known["name"].as_str().unwrap()) {
            (bytes, _) if bytes.len() == 16 => {
                KeySource::V6(<[u8; 16]>::try_from(bytes).unwrap().into())
            }
            (bytes, name) if name.contains("IPv4") => {
                KeySource::V4(<[u8; 4]>::try_from(bytes).unwrap().into())
            }
            (bytes, _) => KeySource::Id(u32::from_be_bytes(bytes.try_into().unwrap())),
        };
        let (epoch, interval) = (number(&known["epoch"]) as u16, number(&known["rekey"]) as u32);
        let derived = derive_key(&array(&known["sdk"]), label, epoch, interval, source);
        assert_eq!(derived.key, array(&known["key"]), "{}", known["name"]);
        assert_eq!(derived.iv_mask, array(&known["ivmask"]), "{}", known["name"]);
        published += usize::from(known["checked_against_reference"] == true);
    }
    assert_eq!(published, 4);
}

#[test]
fn the_secret_of_a_pair_is_derived_from_the_key_of_the_job() {
    let known = &vectors()["pair_secrets"][0];
    let input = hex(&known["hmac_input"]);
    let fields: Vec<u64> =
        input[1..].chunks(8).map(|field| u64::from_be_bytes(field.try_into().unwrap())).collect();
    assert_eq!(input[0], Purpose::PairSecret as u8);
    let key = JobKey::new(&hex(&known["job_key"]));
    assert_eq!(key.derive_secret(&fields).expose(), &array(&known["sdk"]));
}

/// Returns the outer header of a packet over UDP.
fn outer(packet: &Value) -> OuterHeader {
    let ip = |value: &Value| match <[u8; 4]>::try_from(hex(value)) {
        Ok(v4) => IpAddr::from(v4),
        Err(v6) => IpAddr::from(<[u8; 16]>::try_from(v6).unwrap()),
    };
    let ports = hex(&packet["outer_header_as_authenticated"]);
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    OuterHeader {
        source: SocketAddr::new(ip(&packet["ip_source"]), port(0)),
        destination: SocketAddr::new(ip(&packet["ip_destination"]), port(2)),
    }
}

#[test]
fn packets_are_sealed_and_opened_to_the_byte() {
    for packet in vectors()["packets"].as_array().unwrap() {
        let name = packet["name"].as_str().unwrap();
        let cipher = Cipher::new(&DerivedKey { key: array(&packet["key"]), iv_mask: [0; 12] });
        let over_udp = packet["encapsulation"] == "udp";
        // Directly over IP, a header of 4 bytes with the entropy precedes the TSS header.
        let payload = hex(&packet["payload"]).split_off(if over_udp { 0 } else { 4 });
        let header = Tss::read(&payload).unwrap();
        let tsc = number(&packet["epoch"]) << 48 | number(&packet["tsc"]);
        let ssi = packet["ssi"].as_u64();
        assert_eq!(
            (u64::from(header.key), u64::from(header.sdi), header.ssi.map(u64::from), header.tsc),
            (number(&packet["an"]), number(&packet["sdi"]), ssi, tsc),
            "{name}"
        );
        let head = &payload[..header.len()];
        let aad = hex(&packet["aad"]);
        if over_udp {
            assert_eq!(outer(packet).authenticated(head, payload.len()).bytes(), aad, "{name}");
        }
        let mask: [u8; 12] = array(&packet["ivmask"]);
        let iv: [u8; 12] = array(&packet["iv"]);
        let mut plain_iv = iv;
        plain_iv.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        let masked = Cipher::new(&DerivedKey { key: array(&packet["key"]), iv_mask: mask });
        let mut bytes = hex(&packet["plaintext"]);
        let icv = masked.seal(split(plain_iv), &aad, &mut bytes);
        assert_eq!([head, &bytes, &icv].concat(), payload, "{name}");
        assert!(cipher.open(split(iv), &aad, &mut bytes, icv), "{name}");
        assert_eq!(bytes, hex(&packet["plaintext"]), "{name}");
    }
}

#[test]
fn changed_packets_are_refused() {
    for change in vectors()["must_fail"].as_array().unwrap() {
        let cipher = Cipher::new(&DerivedKey { key: array(&change["key"]), iv_mask: [0; 12] });
        let mut sealed = hex(&change["sealed"]);
        let icv = *sealed.last_chunk::<ICV_LEN>().unwrap();
        sealed.truncate(sealed.len() - ICV_LEN);
        let iv = split(array(&change["iv"]));
        assert!(!cipher.open(iv, &hex(&change["aad"]), &mut sealed, icv), "{}", change["what"]);
    }
}

proptest! {
    /// The cipher agrees with an implementation by other authors, for every length of packet.
    #[test]
    fn the_cipher_is_aes_256_gcm(
        key: [u8; 32], mask: [u8; 12], prefix: u32, counter: u64,
        aad in prop::collection::vec(any::<u8>(), 0..60),
        plain in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut iv = [0; 12];
        iv[..4].copy_from_slice(&prefix.to_be_bytes());
        iv[4..].copy_from_slice(&counter.to_be_bytes());
        iv.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        let other = Aes256Gcm::new(&key.into());
        let mut expected = plain.clone();
        let tag = other.encrypt_inout_detached(&iv.into(), &aad, (&mut expected[..]).into()).unwrap();

        let cipher = Cipher::new(&DerivedKey { key, iv_mask: mask });
        let mut bytes = plain.clone();
        let icv = cipher.seal((prefix, counter), &aad, &mut bytes);
        prop_assert_eq!((&bytes, &icv[..]), (&expected, &tag[..]));
        prop_assert!(cipher.open((prefix, counter), &aad, &mut bytes, icv));
        prop_assert_eq!(bytes, plain);
    }
}

fn instance(number: u32) -> Instance {
    Instance::new(number).unwrap()
}

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4793))
}

/// The two ends of a handshake: what the asker installs, and what the answerer does.
fn pairs(asker: (u8, u32), answerer: (u8, u32), secret: u8) -> (Pair, Pair) {
    let pair = |own: (u8, u32), peer: (u8, u32), asked| {
        let secret = PairSecret::new([secret; 32]);
        let peer = (addr(peer.0), instance(peer.1));
        Pair::from_handshake(7, instance(own.1), peer, secret, asked)
    };
    (pair(asker, answerer, true), pair(answerer, asker, false))
}

/// Both ends derive the same identifiers, with opposite roles. Only the end that answers may encrypt
/// before a packet arrives, because only it knows that the other end has the secret.
#[test]
fn both_ends_of_a_handshake_agree_on_the_pair() {
    // Equal instance numbers are the hard case: only the roles tell the two ends apart.
    let (asker, answerer) = pairs((1, 9), (2, 9), 3);
    assert_eq!((asker.own, asker.theirs), (answerer.theirs, answerer.own));
    assert_ne!(asker.own, asker.theirs);
    assert_eq!((asker.peer, answerer.peer), (addr(2), addr(1)));
    assert_eq!((asker.domain, &asker.secret), (answerer.domain, &answerer.secret));
    assert_eq!((asker.confirmed, answerer.confirmed), (false, true));
}

fn path(from: u8, to: u8) -> OuterHeader {
    OuterHeader { source: SocketAddr::new(addr(from).ip(), 50_000), destination: addr(to) }
}

fn sealed(ring: &mut KeyRing, path: &OuterHeader, packet: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = [&[0; Tss::LEN_SSI], packet, &[0; ICV_LEN]].concat();
    ring.seal(path, &mut bytes).ok().map(|()| bytes)
}

fn opened(ring: &mut KeyRing, path: &OuterHeader, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
    let mut bytes = datagram.to_vec();
    ring.open(path, &mut bytes, &mut Vec::new()).map(<[u8]>::to_vec)
}

#[test]
fn the_asker_seals_once_the_answerer_has_proven_that_it_has_the_secret() {
    let (mut a, mut b) = (KeyRing::new(), KeyRing::new());
    let (for_a, for_b) = pairs((1, 11), (2, 22), 5);
    a.install(&for_a);
    let mut early = [0; OVERHEAD + 4];
    assert_eq!(a.seal(&path(1, 2), &mut early), Err(SealError::NoSecret));
    b.install(&for_b);
    let hello = sealed(&mut b, &path(2, 1), b"hello").unwrap();
    assert_eq!(opened(&mut a, &path(2, 1), &hello).unwrap(), b"hello");
    let back = sealed(&mut a, &path(1, 2), b"back").unwrap();
    assert_eq!(opened(&mut b, &path(1, 2), &back).unwrap(), b"back");
    // A packet that is replayed, or reflected to its sender, is refused.
    assert_eq!(opened(&mut b, &path(1, 2), &back), Err(OpenError::Replayed));
    assert_eq!(opened(&mut a, &path(2, 1), &back), Err(OpenError::UnknownSender));
}

#[test]
fn every_changed_bit_and_every_cut_is_refused() {
    let (mut a, mut b) = (KeyRing::new(), KeyRing::new());
    let (for_a, for_b) = pairs((1, 11), (2, 22), 5);
    a.install(&for_a);
    b.install(&for_b);
    let packet = sealed(&mut b, &path(2, 1), b"some bytes").unwrap();
    for bit in 0..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(opened(&mut a, &path(2, 1), &changed).is_err(), "bit {bit}");
    }
    for len in 0..packet.len() {
        assert!(opened(&mut a, &path(2, 1), &packet[..len]).is_err(), "{len} bytes");
    }
    let elsewhere = OuterHeader { source: SocketAddr::new(addr(2).ip(), 50_001), ..path(2, 1) };
    assert_eq!(opened(&mut a, &elsewhere, &packet), Err(OpenError::BadTag));
    // Refused packets neither mark a counter as arrived nor change a secret.
    assert_eq!(opened(&mut a, &path(2, 1), &packet).unwrap(), b"some bytes");
    assert_eq!(opened(&mut a, &path(2, 1), b"\x10clear"), Err(OpenError::Clear));
}

#[test]
fn a_recording_is_decrypted_in_both_directions_and_any_order() {
    let (mut a, mut b) = (KeyRing::new(), KeyRing::new());
    let (for_a, for_b) = pairs((1, 11), (2, 22), 5);
    let other = pairs((1, 11), (3, 33), 6).0;
    a.install(&Pair { confirmed: true, ..for_a.clone() });
    b.install(&for_b);
    let mut keys = RecordingKeys::new();
    assert!(keys.is_empty());
    let mut packet = b"former content".to_vec();
    let to_a = sealed(&mut b, &path(2, 1), b"to a").unwrap();
    assert_eq!(keys.open(&path(2, 1), &to_a, &mut packet), Err(OpenError::UnknownSender));
    assert!(packet.is_empty());
    // The secret of another pair with the same sender comes first.
    for pair in [&other, &for_a, &for_a] {
        keys.add(pair.domain, &pair.secret, [pair.own, pair.theirs]);
    }
    // The former key interval is met again after later ones.
    let (mut late, outer) = (PairState::new(&for_a, (1 << 24) * 3), path(1, 2));
    let seal = |state: &mut PairState, content: &[u8]| {
        let mut bytes = vec![0; OVERHEAD + content.len()];
        bytes[Tss::LEN_SSI..][..content.len()].copy_from_slice(content);
        assert!(state.seal(&outer, &mut bytes));
        bytes
    };
    let first = seal(&mut PairState::new(&for_a, 0), b"first");
    let recorded = [first, seal(&mut late, b"late"), seal(&mut late, b"later")];
    for _ in 0..2 {
        for (bytes, content) in recorded.iter().zip([&b"first"[..], b"late", b"later"]) {
            assert_eq!(keys.open(&outer, bytes, &mut packet), Ok(()));
            assert_eq!(packet, content);
        }
        assert_eq!(keys.open(&path(2, 1), &to_a, &mut packet), Ok(()));
        assert_eq!(packet, b"to a");
    }
    assert_eq!(keys.open(&path(2, 3), &to_a, &mut packet), Err(OpenError::BadTag));
    assert_eq!(keys.open(&path(2, 1), &to_a[..20], &mut packet), Err(OpenError::BadTag));
    assert_eq!(keys.open(&path(2, 1), b"\x10clear", &mut packet), Err(OpenError::Clear));
    let mut elsewhere = to_a.clone();
    elsewhere[3] ^= 1;
    assert_eq!(keys.open(&path(2, 1), &elsewhere, &mut packet), Err(OpenError::UnknownSender));
    assert!(packet.is_empty());
}

#[test]
fn two_handshakes_at_once_leave_both_ends_able_to_talk() {
    let (mut a, mut b) = (KeyRing::new(), KeyRing::new());
    let (first_a, first_b) = pairs((1, 11), (2, 22), 5);
    let (second_b, second_a) = pairs((2, 22), (1, 11), 6);
    a.install(&first_a);
    b.install(&second_b);
    a.install(&second_a);
    b.install(&first_b);
    for _ in 0..3 {
        let to_b = sealed(&mut a, &path(1, 2), b"to b").unwrap();
        assert_eq!(opened(&mut b, &path(1, 2), &to_b).unwrap(), b"to b");
        let to_a = sealed(&mut b, &path(2, 1), b"to a").unwrap();
        assert_eq!(opened(&mut a, &path(2, 1), &to_a).unwrap(), b"to a");
    }
}

#[test]
fn a_later_handshake_of_the_same_ends_replaces_the_secret_without_a_gap() {
    let (mut a, mut b) = (KeyRing::new(), KeyRing::new());
    let mut late = Vec::new();
    for secret in 1..=9 {
        let (for_a, for_b) = pairs((1, 11), (2, 22), secret);
        a.install(&for_a);
        if let Some(packet) = sealed(&mut a, &path(1, 2), &[secret]) {
            late.push(packet);
        }
        b.install(&for_b);
        let to_a = sealed(&mut b, &path(2, 1), &[secret]).unwrap();
        assert_eq!(opened(&mut a, &path(2, 1), &to_a).unwrap(), [secret]);
    }
    // The packets under the two secrets before the last one still open, and no older ones.
    let open = late.iter().filter(|packet| opened(&mut b, &path(1, 2), packet).is_ok()).count();
    assert_eq!((late.len(), open), (8, 2));
    a.remove(addr(2));
    assert!(sealed(&mut a, &path(1, 2), b"").is_none());
    assert_eq!((a.peers(), b.peers()), (0, 1));
}

/// An endpoint may be its own peer. Then it begins and answers the same handshake.
/// A handshake that ends before the welcome leaves a secret that the peer may not have.
#[test]
fn secrets_of_unfinished_handshakes_do_not_displace_the_one_in_use() {
    let mut ring = KeyRing::new();
    let in_use = pairs((1, 11), (2, 22), 1).1;
    ring.install(&in_use);
    for secret in 2..10 {
        let (unfinished, _) = pairs((2, 22), (1, 11), secret);
        assert!(!unfinished.confirmed);
        ring.install(&Pair { peer: in_use.peer, ..unfinished });
        assert_eq!(ring.sending_secret(in_use.peer), Some([1; 32]), "after secret {secret}");
    }
    // A later secret that the peer has takes its place, and the one before stays for late packets.
    ring.confirm(in_use.peer);
    assert_eq!(ring.sending_secret(in_use.peer), Some([9; 32]));
}

#[test]
fn an_endpoint_talks_to_itself() {
    let mut a = KeyRing::new();
    let (asker, answerer) = pairs((1, 11), (1, 11), 5);
    a.install(&asker);
    a.install(&answerer);
    for packet in [b"one", b"two"] {
        let sealed = sealed(&mut a, &path(1, 1), packet).unwrap();
        assert_eq!(opened(&mut a, &path(1, 1), &sealed).unwrap(), packet);
    }
}

#[test]
fn keys_change_with_the_interval_and_late_packets_of_the_former_still_open() {
    let (for_a, for_b) = pairs((1, 11), (2, 22), 5);
    let for_a = Pair { confirmed: true, ..for_a };
    let edge = 1 << 24;
    let (mut a, mut b) = (PairState::new(&for_a, edge - 2), PairState::new(&for_b, 0));
    let mut packets = Vec::new();
    for _ in 0..4 {
        let mut bytes = vec![1; OVERHEAD + 1];
        assert!(a.seal(&path(1, 2), &mut bytes));
        packets.push(bytes);
    }
    for at in [3, 0, 2, 1] {
        let header = Tss::read(&packets[at]).unwrap();
        assert!(b.open(&path(1, 2), &header, &mut packets[at]).is_ok(), "packet {at}");
        assert_eq!(packets[at][Tss::LEN_SSI], 1);
    }
}

#[test]
fn sealing_ends_with_the_last_counter() {
    let (_, for_b) = pairs((1, 11), (2, 22), 5);
    let mut b = PairState::new(&for_b, (1 << 48) - 1);
    let mut bytes = vec![0; OVERHEAD];
    assert!(b.seal(&path(2, 1), &mut bytes));
    assert!(!b.seal(&path(2, 1), &mut bytes));
}

#[test]
fn peers_whose_identifiers_are_equal_are_told_apart_by_their_tags() {
    let mut a = KeyRing::new();
    let mut senders = Vec::new();
    for (port, secret) in [(1, 5), (2, 6), (3, 7)] {
        let (for_a, for_b) = pairs((1, 11), (2, 22), secret);
        a.install(&Pair { peer: SocketAddr::new(addr(2).ip(), port), ..for_a });
        let mut ring = KeyRing::new();
        ring.install(&for_b);
        senders.push(ring);
    }
    for ring in &mut senders {
        let packet = sealed(ring, &path(2, 1), b"mine").unwrap();
        assert_eq!(opened(&mut a, &path(2, 1), &packet).unwrap(), b"mine");
    }
    a.remove(SocketAddr::new(addr(2).ip(), 2));
    let packet = sealed(&mut senders[1], &path(2, 1), b"gone").unwrap();
    assert_eq!(opened(&mut a, &path(2, 1), &packet), Err(OpenError::BadTag));
    let packet = sealed(&mut senders[2], &path(2, 1), b"mine").unwrap();
    assert_eq!(opened(&mut a, &path(2, 1), &packet).unwrap(), b"mine");
}

#[derive(Clone, Debug)]
enum Step {
    Handshake { peer: u8, secret: u8, asked: bool },
    Seal { peer: u8 },
    Forget { peer: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (2u8..5, 0u8..4, any::<bool>())
            .prop_map(|(peer, secret, asked)| Step::Handshake { peer, secret, asked }),
        6 => (2u8..5).prop_map(|peer| Step::Seal { peer }),
        1 => (2u8..5).prop_map(|peer| Step::Forget { peer }),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// No pair of secret, source identifier and counter is used twice, whatever handshakes are
    /// repeated and whichever peers are forgotten in between. Key and nonce follow from the three.
    #[test]
    fn no_nonce_repeats(steps in steps()) {
        let mut ring = KeyRing::new();
        let mut used = HashSet::new();
        let mut latest = BTreeMap::new();
        for step in steps {
            match step {
                Step::Handshake { peer, secret, asked } => {
                    // Each peer has its own secrets, and a repeated handshake yields the same one.
                    let secret = peer * 16 + secret * 2 + u8::from(asked);
                    let (asker, answerer) = if asked {
                        pairs((1, 11), (peer, 20 + u32::from(peer)), secret)
                    } else {
                        pairs((peer, 20 + u32::from(peer)), (1, 11), secret)
                    };
                    let pair = if asked { Pair { confirmed: true, ..asker } } else { answerer };
                    ring.install(&pair);
                    latest.insert(peer, ());
                }
                Step::Seal { peer } => {
                    let Some(bytes) = sealed(&mut ring, &path(1, peer), b"packet") else {
                        prop_assert!(!latest.contains_key(&peer));
                        continue;
                    };
                    let header = Tss::read(&bytes).unwrap();
                    let secret = ring.sending_secret(addr(peer)).unwrap();
                    prop_assert!(used.insert((secret, header.ssi, header.tsc)));
                }
                Step::Forget { peer } => {
                    ring.remove(addr(peer));
                    latest.remove(&peer);
                }
            }
        }
    }
}
