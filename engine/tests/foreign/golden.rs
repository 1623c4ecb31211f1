//! Exchanges of golden packets.

use std::net::SocketAddr;

use squall_base::Span;
use squall_engine::{ForeignWire, OpKind};

use super::endpoint::Endpoint;

const ROWS: &str = include_str!("../../../wire/tests/data/foreign_packets.txt");

/// The numbers of this endpoint in the golden packets.
const CONTEXT: u16 = 0x2a01;
const START_PSN: u32 = 0x12345;

pub(crate) const TAG: u64 = 0x1122_3344_5566_7788;
const TEXT: &[u8] = b"a tagged message of 37 bytes, sealed.";

fn suet() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 40_123))
}

pub(crate) fn reference() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 4793))
}

/// Returns the golden packet with this name.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let row = ROWS.lines().find(|row| row.split_whitespace().next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("there is no golden packet {name}"));
    let hex = row.split_whitespace().nth(1).expect("a row has a packet");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The payload of the long golden messages.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + 3) as u8).collect()
}

/// This endpoint's own numbers, and those that stand for them in the golden packets.
#[derive(Clone, Copy, Default)]
struct Numbers {
    context: u16,
    start: u32,
    message: (u16, u16),
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn replace16(bytes: &mut [u8], at: usize, from: u16, to: u16) {
    if bytes.len() >= at + 2 && get16(bytes, at) == from {
        bytes[at..at + 2].copy_from_slice(&to.to_be_bytes());
    }
}

/// Moves a PSN that is within a window of `from` to the same place after `to`.
fn move32(bytes: &mut [u8], at: usize, from: u32, to: u32) {
    let distance = get32(bytes, at).wrapping_sub(from).wrapping_add(1);
    if distance < 200 {
        let moved = to.wrapping_add(distance).wrapping_sub(1);
        bytes[at..at + 4].copy_from_slice(&moved.to_be_bytes());
    }
}

impl Numbers {
    /// Reads the numbers from a SYN of this endpoint. `golden` is the golden message id.
    fn of_syn(bytes: &[u8], golden: u16) -> Self {
        let offset = u32::from(get16(bytes, 10) & 0xfff);
        let start = get32(bytes, 4) - offset;
        Self { context: get16(bytes, 8), start, message: (get16(bytes, 14), golden) }
    }

    /// Reads the number of a context from an acknowledgement of this endpoint.
    fn of_ack(bytes: &[u8]) -> Self {
        Self { context: get16(bytes, 8), ..Self::default() }
    }

    /// Puts the golden numbers in the place of this endpoint's.
    fn to_golden(self, mut bytes: Vec<u8>) -> Vec<u8> {
        let kind = bytes[0] >> 3;
        replace16(&mut bytes, 8, self.context, CONTEXT);
        if self.start != 0 {
            move32(&mut bytes, 4, self.start, START_PSN);
            if kind == 11 {
                move32(&mut bytes, 12, self.start, START_PSN);
            }
        }
        if kind == 2 {
            replace16(&mut bytes, 14, self.message.0, self.message.1);
        }
        bytes
    }

    /// Puts this endpoint's numbers in the place of the golden ones in a packet of the peer.
    fn golden_packet(self, name: &str) -> Vec<u8> {
        let mut bytes = golden(name);
        replace16(&mut bytes, 10, CONTEXT, self.context);
        if self.start != 0 {
            move32(&mut bytes, 4, START_PSN, self.start);
        }
        if bytes[0] >> 3 == 7 && bytes.len() > 16 {
            replace16(&mut bytes, 14, self.message.1, self.message.0);
        }
        bytes
    }
}

/// Checks that exactly these packets left, all to `dst`, and returns the last one untranslated.
fn expect(
    endpoint: &mut Endpoint,
    numbers: Option<Numbers>,
    dst: SocketAddr,
    names: &[&str],
) -> Vec<u8> {
    let sent = endpoint.take_sent();
    let seen: Vec<Vec<u8>> = sent
        .iter()
        .map(|(_, bytes)| {
            numbers.unwrap_or_else(|| Numbers::of_ack(bytes)).to_golden(bytes.clone())
        })
        .collect();
    let wanted: Vec<Vec<u8>> = names.iter().map(|name| golden(name)).collect();
    assert_eq!(seen.len(), wanted.len(), "{names:?}: {seen:02x?}");
    for ((seen, wanted), name) in seen.iter().zip(&wanted).zip(names) {
        assert_eq!(seen, wanted, "{name}");
    }
    assert!(sent.iter().all(|(to, _)| *to == dst), "{sent:02x?}");
    sent.last().map(|(_, bytes)| bytes.clone()).unwrap_or_default()
}

#[test]
fn suet_sends() {
    let mut endpoint = Endpoint::new(1, ForeignWire::suet(1416));
    let tagged = endpoint.receive(Some(TAG), 100);
    let untagged = endpoint.receive(None, 100);
    endpoint.feed(suet(), &golden("suet_syn_tagged"));
    let ack = expect(&mut endpoint, None, suet(), &["ack_to_suet"]);
    let numbers = Numbers::of_ack(&ack);
    assert_eq!(endpoint.memory.get(tagged, TEXT.len() as u64), TEXT);
    endpoint.feed(suet(), &numbers.golden_packet("suet_untagged_hd"));
    expect(&mut endpoint, Some(numbers), suet(), &["ack_to_suet_2"]);
    let completion = endpoint.completion(untagged).expect("the receive has completed");
    assert_eq!((completion.kind, completion.len), (OpKind::Recv, 4));
    assert_eq!(completion.data, Some(0xc0_ffee));
    endpoint.feed(suet(), &numbers.golden_packet("suet_close"));
    expect(&mut endpoint, Some(numbers), suet(), &["close_ack_to_suet"]);
    assert_eq!(endpoint.engine.contexts().count(), 0);
}

#[test]
fn suet_sends_in_three_packets() {
    let mut endpoint = Endpoint::new(2, ForeignWire::suet(1416));
    let (first, long) = (endpoint.receive(Some(1), 1), endpoint.receive(Some(TAG), 3000));
    // The golden packets continue a context. A message of one byte opens it.
    let mut syn = golden("suet_syn_tagged")[..56].to_vec();
    syn[4..8].copy_from_slice(&0x7776_ffff_u32.to_be_bytes());
    syn[36..44].copy_from_slice(&1u64.to_be_bytes());
    syn[52..56].copy_from_slice(&1u32.to_be_bytes());
    syn.push(7);
    endpoint.feed(suet(), &syn);
    let sent = endpoint.take_sent();
    assert_eq!(endpoint.memory.get(first, 1), [7]);
    let numbers = Numbers::of_ack(&sent[0].1);
    // The middle packet comes first.
    for name in ["suet_multi_1", "suet_multi_0", "suet_multi_2"] {
        endpoint.feed(suet(), &numbers.golden_packet(name));
    }
    endpoint.poll();
    assert_eq!(endpoint.memory.get(long, 3000), pattern(3000));
    assert!(endpoint.completion(long).is_some_and(|completion| completion.status.is_ok()));
    let acks = endpoint.take_sent();
    let last = &acks.last().expect("an acknowledgement").1;
    // A plain ACK up to the last packet, with the response of the message.
    assert_eq!((last[0] >> 3, get32(last, 4), get16(last, 14)), (7, 0x7777_0002, 2));
    assert_eq!(get32(last, 20), 3000);
}

#[test]
fn messages_to_suet_wait_for_its_receive() {
    let mut endpoint = Endpoint::new(3, ForeignWire::suet(1416));
    let peer = endpoint.engine.foreign_peer(suet(), None);
    endpoint.send(peer, Some(TAG), None, TEXT).unwrap();
    let syn = endpoint.take_sent();
    let numbers = Numbers::of_syn(&syn[0].1, 5);
    assert_eq!(numbers.to_golden(syn[0].1.clone()), golden("squall_syn_to_suet"));
    assert_eq!(syn[0].0, suet());
    endpoint.feed(suet(), &numbers.golden_packet("suet_ack_no_response"));
    assert_eq!(endpoint.take_sent(), [], "the response is not there yet, so nothing is cleared");
    endpoint.pass(Span::millis(5));
    assert_eq!((endpoint.done.len(), endpoint.take_sent().len()), (0, 0));
    endpoint.feed(suet(), &numbers.golden_packet("suet_ack_overflow"));
    expect(&mut endpoint, Some(numbers), suet(), &["clear_to_suet"]);
    assert_eq!(endpoint.done.len(), 1);
    assert_eq!(endpoint.done[0].status, Ok(()));
}

#[test]
fn reference_sends() {
    let mut endpoint = Endpoint::new(4, ForeignWire::standard(1024));
    let tagged = endpoint.receive(Some(TAG), 100);
    // The source port is the packet's entropy.
    let from = SocketAddr::new(reference().ip(), 51_001);
    endpoint.feed(from, &golden("ref_syn_tagged"));
    let ack = expect(&mut endpoint, None, reference(), &["ack_to_ref"]);
    assert_eq!(endpoint.memory.get(tagged, TEXT.len() as u64), TEXT);
    let numbers = Numbers::of_ack(&ack);
    let from = SocketAddr::new(reference().ip(), 51_002);
    endpoint.feed(from, &numbers.golden_packet("ref_close"));
    expect(&mut endpoint, Some(numbers), reference(), &["close_ack_to_ref"]);
}

#[test]
fn reference_sends_in_three_packets() {
    let mut endpoint = Endpoint::new(5, ForeignWire::standard(1024));
    let untagged = endpoint.receive(None, 2500);
    for name in ["ref_multi_0", "ref_multi_1", "ref_multi_2"] {
        endpoint.feed(reference(), &golden(name));
    }
    expect(&mut endpoint, None, reference(), &["ack_to_ref_multi"]);
    let mut wanted = pattern(1024);
    wanted.extend(pattern(1024));
    wanted.extend(pattern(452));
    let seen = endpoint.memory.get(untagged, 2500);
    assert!(seen == wanted || seen == pattern(2500), "{seen:02x?}");
}

#[test]
fn messages_that_the_reference_cannot_match_are_sent_again() {
    let mut endpoint = Endpoint::new(6, ForeignWire::standard(1024));
    let peer = endpoint.engine.foreign_peer(reference(), None);
    endpoint.send(peer, Some(TAG), None, TEXT).unwrap();
    let syn = endpoint.take_sent();
    let numbers = Numbers::of_syn(&syn[0].1, 9);
    assert_eq!(numbers.to_golden(syn[0].1.clone()), golden("squall_send_to_ref"));
    endpoint.feed(reference(), &numbers.golden_packet("ref_ack_no_match"));
    expect(&mut endpoint, Some(numbers), reference(), &["clear_to_ref"]);
    // A later message must not overtake it.
    endpoint.send(peer, Some(1), None, b"later").unwrap();
    endpoint.pass(Span::millis(49));
    assert_eq!((endpoint.done.len(), endpoint.take_sent().len()), (0, 0));
    endpoint.pass(Span::millis(2));
    expect(&mut endpoint, Some(numbers), reference(), &["squall_send_to_ref_again"]);
    endpoint.feed(reference(), &numbers.golden_packet("ref_ack_ok"));
    let later = endpoint.take_sent();
    assert_eq!((later.len(), &later[0].1[56..]), (1, &b"later"[..]));
    assert_eq!(endpoint.done.len(), 1);
    assert_eq!(endpoint.done[0].status, Ok(()));
    assert_eq!(endpoint.engine.counters().0.tx_no_match, 1);
}

#[test]
fn deferrable_messages_are_taken_like_others() {
    let mut endpoint = Endpoint::new(7, ForeignWire::standard(1024));
    let buffer = endpoint.receive(Some(TAG), 9000);
    let mut packet = golden("ref_deferrable_tagged");
    // The packet opens the context.
    packet[1] |= 0x04;
    packet[10..12].copy_from_slice(&[0, 0]);
    endpoint.feed(reference(), &packet);
    let sent = endpoint.take_sent();
    assert_eq!((sent.len(), sent[0].1[0] >> 3, sent[0].1[13]), (1, 7, 1), "{sent:02x?}");
    assert_eq!(endpoint.memory.get(buffer, 1024), pattern(1024));
}

#[test]
fn reference_reads() {
    let mut endpoint = Endpoint::new(8, ForeignWire::standard(1024));
    let mut bytes = vec![0; 0x3000];
    bytes[0x1000..0x1400].copy_from_slice(&pattern(1024));
    bytes[0x1400..0x15dc].copy_from_slice(&pattern(2048)[1024..1500]);
    let base = endpoint.memory.put(&bytes);
    endpoint.memory.register(0xabcdef, base, 0x3000, true, false);
    for name in ["ref_read_0", "ref_read_1"] {
        endpoint.feed(reference(), &golden(name));
    }
    let names = ["read_ack_to_ref", "read_data_to_ref_0", "read_data_to_ref_1"];
    let sent = expect(&mut endpoint, None, reference(), &names);
    let numbers = Numbers::of_ack(&sent);
    endpoint.feed(reference(), &numbers.golden_packet("ref_ack_of_read_data"));
    endpoint.poll();
    assert!(endpoint.engine.is_idle());
    // A read of one packet has no EOM.
    endpoint.feed(reference(), &numbers.golden_packet("ref_read_small"));
    let sent = endpoint.take_sent();
    assert_eq!(sent.len(), 2, "{sent:02x?}");
    assert_eq!((sent[0].1[0] >> 3, sent[1].1[0] >> 3, sent[1].1.len()), (7, 2, 12 + 20 + 16));
}

#[test]
fn reads_ask_for_one_packet_each_and_take_data_on_the_acknowledgement() {
    let mut endpoint = Endpoint::new(9, ForeignWire::standard(1024));
    let peer = endpoint.engine.foreign_peer(reference(), None);
    let base = endpoint.read(peer, 0x2000, 0x77, 1040).unwrap();
    let request = endpoint.take_sent();
    assert_eq!(request.len(), 1, "one request after the other");
    let (first, numbers) = (&request[0].1, Numbers::of_syn(&request[0].1, 4));
    assert_eq!((first.len(), get32(first, 52)), (56, 1024));
    // The acknowledgement, and the data in the return direction.
    let mut ack = numbers.golden_packet("ref_ack_ok");
    move32(&mut ack, 4, numbers.start + 1, numbers.start);
    ack[14..16].copy_from_slice(&first[14..16]);
    endpoint.feed(reference(), &ack);
    let mut data = golden("read_data_to_ref_0");
    data[4..8].copy_from_slice(&numbers.start.to_be_bytes());
    data[8..10].copy_from_slice(&7u16.to_be_bytes());
    data[10..12].copy_from_slice(&numbers.context.to_be_bytes());
    data[20..22].copy_from_slice(&first[14..16]);
    data[24..28].copy_from_slice(&1024u32.to_be_bytes());
    endpoint.feed(reference(), &data);
    let sent = endpoint.take_sent();
    let acks = sent.iter().filter(|(_, bytes)| bytes[0] >> 3 == 7).count();
    let second = sent.iter().find(|(_, bytes)| bytes[0] >> 3 == 2).expect("the second request");
    assert_eq!((acks, get32(&second.1, 52)), (1, 16), "{sent:02x?}");
    // The rest of the data comes on the acknowledgement.
    let mut inline = golden("read_inline_to_ref");
    inline[2..4].copy_from_slice(&[0, 0]);
    inline[4..8].copy_from_slice(&(numbers.start + 1).to_be_bytes());
    inline[8..10].copy_from_slice(&7u16.to_be_bytes());
    inline[10..12].copy_from_slice(&numbers.context.to_be_bytes());
    inline[20..22].copy_from_slice(&second.1[14..16]);
    endpoint.feed(reference(), &inline);
    endpoint.poll();
    let completion = endpoint.done.first().expect("the read has completed");
    assert_eq!((completion.kind, completion.status), (OpKind::Read, Ok(())));
    let mut wanted = pattern(1024);
    wanted.extend(pattern(16));
    assert_eq!(endpoint.memory.get(base, 1040), wanted);
}
