//! The network cards of hosts in virtual time.
//!
//! A process may send a packet before the network knows of all packets that other processes of the
//! host sent earlier. So a card keeps packets until no earlier one can come any more, and only then
//! serialises them: control packets first, then the processes of the host in turn, and packets of a
//! process in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use squall_net::emulator::frame::PacketFrame;
use squall_netsim::Picos;
use squall_netsim::model::{Class, PacketHeader, PacketOptions};

use super::emulation::Route;

/// A packet that waits in a network card.
pub(super) struct CardPacket {
    pub(super) header: PacketHeader,
    pub(super) options: Option<PacketOptions>,
    pub(super) tag: u64,
    pub(super) frame: PacketFrame,
    pub(super) payload: Vec<u8>,
}

/// Something that waits for a time. What waits for one time is ordered by its flow.
pub(super) struct Pending<T> {
    pub(super) at: Picos,
    pub(super) flow: u32,
    /// Number in the order in which packets of all flows were handed over.
    pub(super) number: u64,
    pub(super) item: T,
}

impl<T> Pending<T> {
    const fn key(&self) -> (Picos, u32, u64) {
        (self.at, self.flow, self.number)
    }
}

impl<T> PartialEq for Pending<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Pending<T> {}

impl<T> PartialOrd for Pending<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Pending<T> {
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
    pending: BinaryHeap<Reverse<Pending<(u32, CardPacket)>>>,
    control: VecDeque<CardPacket>,
    /// Waiting data packets of each process that has ever sent one, with the process.
    data: Vec<(u32, VecDeque<CardPacket>)>,
    /// Index in `data` of the process whose turn is next.
    turn: usize,
}

impl Card {
    /// Returns when the card's next packet can leave; `None` if the card is empty.
    fn next_departure(&self) -> Option<Picos> {
        if !self.control.is_empty() || self.data.iter().any(|(_, queue)| !queue.is_empty()) {
            return Some(self.free_at);
        }
        self.pending.peek().map(|Reverse(pending)| pending.at.max(self.free_at))
    }

    /// Returns the packet that leaves the card at `at`.
    fn pop(&mut self, at: Picos) -> Option<CardPacket> {
        while self.pending.peek().is_some_and(|Reverse(pending)| pending.at <= at) {
            let Some(Reverse(Pending { item: (sender, packet), .. })) = self.pending.pop() else {
                break;
            };
            match packet.header.class {
                Class::Data => match self.data.iter_mut().find(|(other, _)| *other == sender) {
                    Some((_, queue)) => queue.push_back(packet),
                    None => self.data.push((sender, VecDeque::from([packet]))),
                },
                Class::Control | Class::Rate => self.control.push_back(packet),
            }
        }
        self.control.pop_front().or_else(|| self.pop_data())
    }

    /// Returns the next data packet of the process whose turn it is.
    fn pop_data(&mut self) -> Option<CardPacket> {
        let count = self.data.len();
        let mut order = (0..count).map(|step| (self.turn + step) % count);
        let next = order.find(|index| !self.data[*index].1.is_empty())?;
        self.turn = next + 1;
        self.data[next].1.pop_front()
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

    /// Hands a packet to the card of the host `route.from` at `at`, which must not be earlier than a
    /// departure that [`Cards::pop`] has returned.
    pub(super) fn push(&mut self, at: Picos, route: Route, packet: CardPacket) {
        let Route { from: host, flow, sender, .. } = route;
        let card = &mut self.cards[host as usize];
        let before = card.next_departure();
        self.number += 1;
        let item = (sender, packet);
        card.pending.push(Reverse(Pending { at, flow, number: self.number, item }));
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

    /// Returns the route of a flow of its own from process `sender` of a host.
    fn route(from: u32, flow: u32, sender: u32) -> Route {
        Route { from, to: 9, flow, sender }
    }

    #[test]
    fn processes_of_a_host_send_in_turn() {
        let mut cards = Cards::new(1);
        for tag in 0..3 {
            cards.push(Picos(5), route(0, 0, 0), packet(tag, Class::Data));
        }
        // Process 1 has two flows, and one turn.
        cards.push(Picos(6), route(0, 1, 1), packet(10, Class::Data));
        cards.push(Picos(6), route(0, 2, 1), packet(11, Class::Data));
        cards.push(Picos(7), route(0, 3, 2), packet(20, Class::Data));
        let tags: Vec<u64> = drain(&mut cards).into_iter().map(|(.., tag)| tag).collect();
        assert_eq!(tags, [0, 10, 20, 1, 11, 2]);
    }

    #[test]
    fn packets_leave_in_the_order_of_their_times_and_control_first() {
        let mut cards = Cards::new(2);
        // Flow 1 comes before flow 0 in real time.
        cards.push(Picos(5), route(0, 1, 0), packet(1, Class::Data));
        cards.push(Picos(5), route(0, 0, 0), packet(0, Class::Data));
        cards.push(Picos(7), route(0, 1, 0), packet(2, Class::Control));
        cards.push(Picos(30), route(0, 0, 0), packet(3, Class::Data));
        cards.push(Picos(29), route(1, 2, 0), packet(4, Class::Data));
        assert_eq!(cards.next_departure(), Some(Picos(5)));
        let expected = [(5, 0, 0), (15, 0, 2), (25, 0, 1), (29, 1, 4), (35, 0, 3)];
        assert_eq!(drain(&mut cards), expected);
        assert!(cards.is_empty());
    }
}
