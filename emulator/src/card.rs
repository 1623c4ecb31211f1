//! The network cards of hosts in virtual time.
//!
//! A process may send a packet before the network knows of all packets that other processes of the
//! host sent earlier. So a card keeps packets until no earlier one can come any more, and only then
//! serialises them: control packets first, otherwise in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use squall_net::emulator::frame::PacketFrame;
use squall_netsim::Picos;
use squall_netsim::model::{Class, PacketHeader, PacketOptions};

/// A packet that waits in a network card.
pub(super) struct CardPacket {
    pub(super) header: PacketHeader,
    pub(super) options: Option<PacketOptions>,
    pub(super) tag: u64,
    pub(super) frame: PacketFrame,
    pub(super) payload: Vec<u8>,
}

/// A packet that was handed to a card at a time. Packets of one time are ordered by their flow.
struct Pending {
    at: Picos,
    flow: u32,
    /// Number of the packet in the order in which packets of all flows were handed to the cards.
    number: u64,
    packet: CardPacket,
}

impl Pending {
    const fn key(&self) -> (Picos, u32, u64) {
        (self.at, self.flow, self.number)
    }
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[derive(Default)]
struct Card {
    /// Time at which the host's wire is free for the next packet.
    free_at: Picos,
    /// Packets that were handed to the card, the earliest first. They join a queue at the first
    /// departure that is not before their times.
    pending: BinaryHeap<Reverse<Pending>>,
    control: VecDeque<CardPacket>,
    data: VecDeque<CardPacket>,
}

impl Card {
    /// Returns when the card's next packet can leave; `None` if the card is empty.
    fn next_departure(&self) -> Option<Picos> {
        if !self.control.is_empty() || !self.data.is_empty() {
            return Some(self.free_at);
        }
        self.pending.peek().map(|Reverse(pending)| pending.at.max(self.free_at))
    }

    /// Returns the packet that leaves the card at `at`.
    fn pop(&mut self, at: Picos) -> Option<CardPacket> {
        while self.pending.peek().is_some_and(|Reverse(pending)| pending.at <= at) {
            let Some(Reverse(Pending { packet, .. })) = self.pending.pop() else { break };
            match packet.header.class {
                Class::Data => self.data.push_back(packet),
                Class::Control | Class::Rate => self.control.push_back(packet),
            }
        }
        self.control.pop_front().or_else(|| self.data.pop_front())
    }
}

/// The network cards of all hosts.
pub(super) struct Cards {
    cards: Vec<Card>,
    /// The time of the next departure and the host, for each card that has packets.
    departures: BTreeSet<(Picos, u32)>,
    number: u64,
}

impl Cards {
    pub(super) fn new(hosts: u32) -> Self {
        let cards = (0..hosts).map(|_| Card::default()).collect();
        Self { cards, departures: BTreeSet::new(), number: 0 }
    }

    /// Hands a packet of a flow to the card of `host` at `at`, which must not be earlier than a
    /// departure that [`Cards::pop`] has returned.
    pub(super) fn push(&mut self, at: Picos, (host, flow): (u32, u32), packet: CardPacket) {
        let card = &mut self.cards[host as usize];
        let before = card.next_departure();
        self.number += 1;
        card.pending.push(Reverse(Pending { at, flow, number: self.number, packet }));
        self.update(host, before);
    }

    fn update(&mut self, host: u32, before: Option<Picos>) {
        let after = self.cards[host as usize].next_departure();
        if before != after {
            before.map(|at| self.departures.remove(&(at, host)));
            after.map(|at| self.departures.insert((at, host)));
        }
    }

    /// Returns the time at which the next packet leaves any card.
    pub(super) fn next_departure(&self) -> Option<Picos> {
        self.departures.first().map(|(at, _)| *at)
    }

    /// Removes the packet that leaves any card next. Returns it with the time and its host.
    pub(super) fn pop(&mut self) -> Option<(Picos, u32, CardPacket)> {
        let &(at, host) = self.departures.first()?;
        let packet = self.cards[host as usize].pop(at);
        self.update(host, Some(at));
        packet.map(|packet| (at, host, packet))
    }

    /// Marks the wire of a host as busy until `free_at`.
    pub(super) fn occupy(&mut self, host: u32, free_at: Picos) {
        let before = self.cards[host as usize].next_departure();
        self.cards[host as usize].free_at = free_at;
        self.update(host, before);
    }

    /// Returns whether no card has a packet.
    pub(super) fn is_empty(&self) -> bool {
        self.departures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::Time;

    fn packet(tag: u64, class: Class) -> CardPacket {
        let frame = PacketFrame {
            addr: "127.0.0.1:1".parse().expect("literal"),
            entropy: 0,
            ecn: 0,
            dscp: 0,
            control: false,
            trimmed: false,
            sent: Time::ZERO,
            overflow: 0,
            endpoint: 0,
        };
        let header = PacketHeader { class, ..PacketHeader::default() };
        CardPacket { header, options: None, tag, frame, payload: vec![0; 10] }
    }

    /// Takes all packets, each of which occupies the wire for 10 ps. Returns times, hosts and tags.
    fn drain(cards: &mut Cards) -> Vec<(u64, u32, u64)> {
        let mut all = Vec::new();
        while let Some((at, host, packet)) = cards.pop() {
            cards.occupy(host, at + Picos(10));
            all.push((at.0, host, packet.tag));
        }
        all
    }

    #[test]
    fn packets_leave_in_the_order_of_their_times_and_control_first() {
        let mut cards = Cards::new(2);
        // Flow 1 comes before flow 0 in real time.
        cards.push(Picos(5), (0, 1), packet(1, Class::Data));
        cards.push(Picos(5), (0, 0), packet(0, Class::Data));
        cards.push(Picos(7), (0, 1), packet(2, Class::Control));
        cards.push(Picos(30), (0, 0), packet(3, Class::Data));
        cards.push(Picos(29), (1, 2), packet(4, Class::Data));
        assert_eq!(cards.next_departure(), Some(Picos(5)));
        let expected = [(5, 0, 0), (15, 0, 2), (25, 0, 1), (29, 1, 4), (35, 0, 3)];
        assert_eq!(drain(&mut cards), expected);
        assert!(cards.is_empty());
    }
}
