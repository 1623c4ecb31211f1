//! The packets by which two endpoints find out which of their network cards (rails) reach each
//! other: one type-length-value of a Negotiation control packet.
//!
//! An endpoint is known by one address, that of its first card. It tells a peer the addresses of
//! its other cards ([`RailStage::Ask`], [`RailStage::Offer`]). A pair of cards carries data only
//! after three more packets between these two cards have proved that both receive
//! ([`RailStage::Probe`] to [`RailStage::Welcome`]). All packets have one length, so that an answer
//! is never larger than its question. `docs/wire.md` gives the layout and the order.

use core::net::{IpAddr, Ipv6Addr};

use crate::base::{Proof, Psn};
use crate::codes::{ControlKind, code_points};
use crate::error::ParseError;
use crate::pds::{Control, Dest};
use crate::view::{be16, be32, be64, be128};

/// Largest number of network cards of an endpoint.
pub const MAX_RAILS: usize = 8;

/// Type of the type-length-value, from the vendors' range as that of the handshake.
const TYPE: u8 = 0xf1;
/// Version of this exchange. An endpoint ignores packets of other versions, and so uses one card
/// with their senders.
const VERSION: u8 = 1;

code_points! {
    /// Step of the exchange about network cards.
    RailStage {
        /// The initiator asks at the responder's first card for the addresses of the other cards.
        Ask = 1, "ASK";
        /// The responder answers with its addresses, and a cookie for the initiator's first card.
        Offer = 2, "OFFER";
        /// The initiator asks from one of its cards whether it reaches one of the responder's.
        Probe = 3, "PROBE";
        /// The responder answers from that card, with a cookie for the initiator's card.
        Reply = 4, "REPLY";
        /// The initiator returns both cookies, and its own addresses.
        Confirm = 5, "CONFIRM";
        /// The responder uses the pair of cards from now on, and so may the initiator.
        Welcome = 6, "WELCOME";
        /// A question whether a pair of cards that was in use still works.
        Ping = 7, "PING";
        /// The answer to it.
        Pong = 8, "PONG";
    }
}

/// The addresses of an endpoint's network cards, with their speeds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RailList {
    count: u8,
    /// Addresses as IPv6 addresses, to which IPv4 addresses are mapped.
    addresses: [u128; MAX_RAILS],
    speeds: [u32; MAX_RAILS],
}

impl RailList {
    /// Adds a card with its speed in Mb/s, 0 if unknown. Returns false, and adds nothing, if there
    /// are [`MAX_RAILS`] already.
    pub fn push(&mut self, ip: IpAddr, mbps: u32) -> bool {
        let at = usize::from(self.count);
        if at == MAX_RAILS {
            return false;
        }
        (self.addresses[at], self.speeds[at]) = (to_bits(ip), mbps);
        self.count += 1;
        true
    }

    /// Returns the number of cards.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns whether there is no card.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the address of card `index` and its speed in Mb/s.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(IpAddr, u32)> {
        (index < self.len()).then(|| (from_bits(self.addresses[index]), self.speeds[index]))
    }

    /// Returns the addresses of all cards, the first card first.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u32)> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// The content of a packet about network cards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RailPacket {
    /// Step of the exchange that the packet is.
    pub stage: RailStage,
    /// The UDP port on which the sender listens, on each of its cards, not 0.
    pub port: u16,
    /// Index of the sender's card from which the packet leaves.
    pub from: u8,
    /// Index of the receiver's card to which the packet goes.
    pub to: u8,
    /// Random number of the question, which the answers repeat.
    pub nonce: u64,
    /// Random number that the sender drew when it opened its endpoint.
    pub session: u64,
    /// Cookie by which the initiator proves that it receives at its first card; else 0.
    pub first_cookie: u64,
    /// Cookie by which the initiator proves that it receives at the card `from`; else 0.
    pub card_cookie: u64,
    /// IP address of the sender's first card, by which peers know it.
    pub first: IpAddr,
    /// The sender's cards, in Ask, Offer and Confirm; else none.
    pub rails: RailList,
    /// Proof that the sender knows the key of its job; 0 if the job has no key.
    pub proof: Proof,
}

impl RailPacket {
    /// Bytes of the value in front of the proof.
    const PROVED: usize = 60 + MAX_RAILS * 20;
    /// Bytes of the type-length-value.
    const VALUE: usize = Self::PROVED + size_of::<Proof>();
    /// Length of each of these packets in bytes.
    pub const LEN: usize = Control::LEN + Self::VALUE;

    /// Writes the whole packet.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Control {
            kind: ControlKind::Negotiation,
            isrod: false,
            retx: false,
            ack_request: false,
            probe_opaque: 0,
            psn: Psn(0),
            // The packet names no context, but the field must not be 0.
            spdcid: 1,
            dest: Dest::Syn { use_rsv_pdc: false, psn_offset: 0 },
            payload: 0,
        };
        let at = header.emit(out);
        let value = &mut out[at..];
        value.fill(0);
        value[0..4].copy_from_slice(&[TYPE, (Self::VALUE / 4) as u8, self.stage.to_u8(), VERSION]);
        value[4..6].copy_from_slice(&self.port.to_be_bytes());
        value[6..8].copy_from_slice(&[self.from, self.to]);
        value[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        value[16..24].copy_from_slice(&self.session.to_be_bytes());
        value[24..32].copy_from_slice(&self.first_cookie.to_be_bytes());
        value[32..40].copy_from_slice(&self.card_cookie.to_be_bytes());
        value[40..56].copy_from_slice(&to_bits(self.first).to_be_bytes());
        value[56] = self.rails.count;
        for index in 0..self.rails.len() {
            let at = 60 + 20 * index;
            value[at..at + 16].copy_from_slice(&self.rails.addresses[index].to_be_bytes());
            value[at + 16..at + 20].copy_from_slice(&self.rails.speeds[index].to_be_bytes());
        }
        value[Self::PROVED..].copy_from_slice(&self.proof);
    }

    /// Returns the packet as the words that a proof of the job key covers: all but the proof.
    #[must_use]
    pub fn proved_words(&self) -> [u64; Self::PROVED.div_ceil(8)] {
        let mut bytes = [0; Self::LEN];
        self.emit(&mut bytes);
        let mut padded = [0; Self::PROVED.next_multiple_of(8)];
        padded[..Self::PROVED].copy_from_slice(&bytes[Control::LEN..Control::LEN + Self::PROVED]);
        core::array::from_fn(|word| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&padded[8 * word..8 * word + 8]);
            u64::from_be_bytes(eight)
        })
    }

    /// Returns whether a packet may be one of these: [`Self::read`] returns an error for all others.
    #[must_use]
    #[inline]
    pub fn is_rail_packet(bytes: &[u8]) -> bool {
        bytes.len() == Self::LEN && bytes[Control::LEN] == TYPE && {
            let kind = ControlKind::Negotiation.to_u8();
            Control::read(bytes).is_ok_and(|control| control.kind.to_u8() == kind)
        }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// Returns the rule that the packet breaks.
    pub fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        if !Self::is_rail_packet(bytes) {
            return Err(ParseError::Kind);
        }
        let value = bytes[Control::LEN..].first_chunk::<{ Self::VALUE }>();
        let b = value.ok_or(ParseError::Truncated)?;
        if usize::from(b[1]) * 4 != Self::VALUE || b[3] != VERSION {
            return Err(ParseError::Kind);
        }
        let (port, count) = (be16(b, 4), b[56]);
        if port == 0 || usize::from(count) > MAX_RAILS || b[57..60] != [0; 3] {
            return Err(ParseError::Reserved);
        }
        if usize::from(b[6].max(b[7])) >= MAX_RAILS {
            return Err(ParseError::Reserved);
        }
        let mut rails = RailList::default();
        for index in 0..usize::from(count) {
            rails.push(from_bits(be128(b, 60 + 20 * index)), be32(b, 76 + 20 * index));
        }
        let mut proof = Proof::default();
        proof.copy_from_slice(&b[Self::PROVED..]);
        Ok(Self {
            stage: RailStage::from_u8(b[2]).ok_or(ParseError::Kind)?,
            port,
            from: b[6],
            to: b[7],
            nonce: be64(b, 8),
            session: be64(b, 16),
            first_cookie: be64(b, 24),
            card_cookie: be64(b, 32),
            first: from_bits(be128(b, 40)),
            rails,
            proof,
        })
    }
}

const fn to_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn from_bits(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Packet, parse};

    fn packet(stage: RailStage) -> RailPacket {
        let mut rails = RailList::default();
        assert!(rails.push(IpAddr::from([192, 0, 2, 1]), 25_000));
        assert!(rails.push("2001:db8::1".parse().expect("an address"), 0));
        RailPacket {
            stage,
            port: 4793,
            from: 1,
            to: 7,
            nonce: 0x0102_0304_0506_0708,
            session: 0x1112_1314_1516_1718,
            first_cookie: 0x2122_2324_2526_2728,
            card_cookie: 0x3132_3334_3536_3738,
            first: IpAddr::from([192, 0, 2, 1]),
            rails,
            proof: [0x61; 16],
        }
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        for stage in (1..=8).map(|code| RailStage::from_u8(code).expect("a stage")) {
            let packet = packet(stage);
            let mut out = [0xee; RailPacket::LEN];
            packet.emit(&mut out);
            assert_eq!(RailPacket::read(&out), Ok(packet));
            assert!(matches!(parse(&out), Ok(Packet::Negotiation { .. })));
            // Endpoints that do not know these packets skip the value.
            let Ok(Packet::Negotiation { values, .. }) = parse(&out) else { panic!("{out:?}") };
            assert_eq!(crate::Handshake::read(values), Ok(None));
        }
    }

    #[test]
    fn broken_packets_are_refused_and_every_byte_in_front_of_the_proof_is_proved() {
        let packet = packet(RailStage::Confirm);
        let mut out = [0; RailPacket::LEN];
        packet.emit(&mut out);
        for cut in 0..out.len() {
            assert!(RailPacket::read(&out[..cut]).is_err());
        }
        // Type, length, stage, version, port, cards, their number, reserved bytes.
        for (at, byte) in
            [(0, 0xf0), (1, 3), (2, 0), (2, 9), (3, 2), (6, 8), (7, 8), (56, 9), (57, 1), (59, 1)]
        {
            let mut bad = out;
            bad[Control::LEN + at] = byte;
            assert!(RailPacket::read(&bad).is_err(), "{at}");
        }
        let mut no_port = out;
        no_port[Control::LEN + 4..Control::LEN + 6].fill(0);
        assert_eq!(RailPacket::read(&no_port), Err(ParseError::Reserved));
        let words = packet.proved_words();
        for at in (4..8).chain(8..56).chain(60..100) {
            let mut other = out;
            other[Control::LEN + at] ^= 1;
            if let Ok(other) = RailPacket::read(&other) {
                assert_ne!(other.proved_words(), words, "byte {at}");
            }
        }
    }

    #[test]
    fn a_list_has_a_bound() {
        let mut list = RailList::default();
        for n in 0..8 {
            assert!(list.push(IpAddr::from([10, 0, 0, n]), 1));
        }
        assert!(!list.push(IpAddr::from([10, 0, 0, 9]), 1));
        assert_eq!((list.len(), list.get(8)), (8, None));
        assert_eq!(list.iter().last(), Some((IpAddr::from([10, 0, 0, 7]), 1)));
    }
}
