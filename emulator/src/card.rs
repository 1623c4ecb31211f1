//! The network cards of hosts in virtual time.
//!
//! A process may send a packet before the network knows of all packets that other processes of the
//! host sent earlier. So a card keeps packets until no earlier one can come any more, and only then
//! serialises them: control packets first, then the processes of the host in turn, and packets of a
//! process in the order of their times.
//!
//! With a [`CardModel`] a packet needs a time between the memory of its host and the card in either direction. Data
//! packets then pass two stages of the card before they join the queues for the wire, in the order of their times: a
//! message begins at the earliest one interval after the one before, and the card reads the payload of one packet after
//! the other. A card that receives writes one payload after the other to memory.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use squall_base::Rate;
use squall_net::emulator::frame::PacketFrame;
use squall_netsim::Picos;
use squall_netsim::model::{Class, PacketHeader, PacketOptions};

use super::emulation::Route;

/// Times of the network cards of hosts in addition to those of their wires. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardModel {
    /// Time that each packet takes from memory to the card, and from the card to memory.
    pub dma: Picos,
    /// Shortest time from the beginning of a message to that of the next one of the host.
    pub message_interval: Picos,
    /// Rate at which a card reads payload from memory, and at which it writes payload to memory; `None` if that takes no
    /// time.
    pub pcie: Option<Rate>,
}

impl CardModel {
    /// Returns the time that the payload of a packet takes between card and memory.
    pub(super) fn payload_time(&self, bytes: usize) -> Picos {
        self.pcie.map_or(Picos::ZERO, |rate| Picos::transmit(rate, bytes as u64))
    }

    /// Returns whether data packets pass the stages before the queues of a card.
    const fn has_stages(&self) -> bool {
        self.message_interval.0 > 0 || self.pcie.is_some()
    }

    /// Returns how much longer the card makes the round trip of a packet with a payload of `bytes`, whose acknowledgement has
    /// none.
    pub(super) fn round_trip(&self, bytes: usize) -> Picos {
        self.dma * 4 + self.payload_time(bytes) * 2
    }
}

/// A packet that waits in a network card.
pub(super) struct CardPacket {
    pub(super) header: PacketHeader,
    pub(super) options: Option<PacketOptions>,
    pub(super) tag: u64,
    pub(super) frame: PacketFrame,
    pub(super) payload: Vec<u8>,
    /// The packet is the first of a message.
    pub(super) begins_message: bool,
}

/// An item that is due at a time. Items that are due at the same time are ordered by `tie_break`.
pub(super) struct Pending<T> {
    pub(super) at: Picos,
    /// Number of the packet's flow, for a packet of a host, so that the order does not depend on which process is faster
    /// in real time.
    pub(super) tie_break: u64,
    /// Number in the order in which the items were handed over.
    pub(super) number: u64,
    pub(super) item: T,
}

impl<T> Pending<T> {
    const fn key(&self) -> (Picos, u64, u64) {
        (self.at, self.tie_break, self.number)
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
    /// Data packets that have entered the stages, with the times at which they leave them and their processes, in order.
    staged: VecDeque<(Picos, u32, CardPacket)>,
    /// Earliest time at which the next message begins.
    next_message: Picos,
    /// Time at which the card has read the payload of all staged packets.
    read_at: Picos,
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
        let pending = self.pending.peek().map(|Reverse(pending)| pending.at);
        let staged = self.staged.front().map(|(at, ..)| *at);
        pending.into_iter().chain(staged).min().map(|at| at.max(self.free_at))
    }

    /// Returns the packet that leaves the card at `at`. Returns `None` if packets only entered the stages.
    fn pop(&mut self, at: Picos, model: &CardModel) -> Option<CardPacket> {
        while self.pending.peek().is_some_and(|Reverse(pending)| pending.at <= at) {
            let Some(Reverse(Pending { at, item: (sender, packet), .. })) = self.pending.pop()
            else {
                break;
            };
            match packet.header.class {
                Class::Data if model.has_stages() => self.stage(at, sender, packet, model),
                Class::Data => self.queue(sender, packet),
                Class::Control | Class::Rate => self.control.push_back(packet),
            }
        }
        while self.staged.front().is_some_and(|(ready, ..)| *ready <= at) {
            if let Some((_, sender, packet)) = self.staged.pop_front() {
                self.queue(sender, packet);
            }
        }
        self.control.pop_front().or_else(|| self.pop_data())
    }

    /// Lets a data packet that reached the card at `at` pass the stages: the packets before it, the interval of messages, and
    /// the reading of its payload.
    fn stage(&mut self, at: Picos, sender: u32, packet: CardPacket, model: &CardModel) {
        // No packet passes the one before it, even if that is the first of a message which has to wait.
        let mut begins = at.max(self.read_at);
        if packet.begins_message {
            begins = begins.max(self.next_message);
            self.next_message = begins + model.message_interval;
        }
        self.read_at = begins + model.payload_time(packet.payload.len());
        self.staged.push_back((self.read_at, sender, packet));
    }

    /// Adds a data packet to the queue of its process.
    fn queue(&mut self, sender: u32, packet: CardPacket) {
        match self.data.iter_mut().find(|(other, _)| *other == sender) {
            Some((_, queue)) => queue.push_back(packet),
            None => self.data.push((sender, VecDeque::from([packet]))),
        }
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
    model: CardModel,
    cards: Vec<Card>,
    /// The time of the next departure and the host, for each card that has packets.
    departures: BTreeSet<(Picos, u32)>,
    number: u64,
}

impl Cards {
    pub(super) fn new(hosts: u32, model: CardModel) -> Self {
        let cards = (0..hosts).map(|_| Card::default()).collect();
        Self { model, cards, departures: BTreeSet::new(), number: 0 }
    }

    pub(super) const fn model(&self) -> &CardModel {
        &self.model
    }

    /// Hands a packet to the card of the host `route.from` at `at`. It reaches the card after [`CardModel::dma`], which must
    /// not be earlier than a departure that [`Cards::pop`] has returned.
    pub(super) fn push(&mut self, at: Picos, route: Route, packet: CardPacket) {
        let at = at + self.model.dma;
        let Route { from: host, flow, sender, .. } = route;
        let card = &mut self.cards[host as usize];
        let before = card.next_departure();
        self.number += 1;
        let item = (sender, packet);
        let tie_break = flow.into();
        card.pending.push(Reverse(Pending { at, tie_break, number: self.number, item }));
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

    /// Removes the packet that leaves any card next. Returns it with the time and its host. Returns `None` if there is none,
    /// or packets only advanced inside of the card; call again then while [`Cards::next_departure`] returns a time.
    pub(super) fn pop(&mut self) -> Option<(Picos, u32, CardPacket)> {
        let &(at, host) = self.departures.first()?;
        let packet = self.cards[host as usize].pop(at, &self.model);
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
        CardPacket { header, options: None, tag, frame, payload: vec![0; 10], begins_message: true }
    }

    /// Takes all packets, each of which occupies the wire for 10 ps. Returns times, hosts and tags.
    fn drain(cards: &mut Cards) -> Vec<(u64, u32, u64)> {
        let mut all = Vec::new();
        while cards.next_departure().is_some() {
            let Some((at, host, packet)) = cards.pop() else { continue };
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
        let mut cards = Cards::new(1, CardModel::default());
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

    /// Hands packets over at these times: of process 0 or 1, with a tag, of this class. Returns when each leaves.
    fn departures(model: CardModel, packets: &[(u64, u32, u64, Class)]) -> Vec<(u64, u64)> {
        let mut cards = Cards::new(1, model);
        for (at, sender, tag, class) in packets {
            // Packets of tags above 100 are not the first of a message.
            let packet = CardPacket { begins_message: *tag < 100, ..packet(*tag, *class) };
            cards.push(Picos(*at), route(0, *sender, *sender), packet);
        }
        let all = drain(&mut cards).into_iter().map(|(at, _, tag)| (at, tag)).collect();
        assert!(cards.is_empty());
        all
    }

    #[test]
    fn a_packet_reaches_the_card_after_its_way_from_memory() {
        let model = CardModel { dma: Picos(100), ..CardModel::default() };
        let packets = [(5, 0, 1, Class::Data), (7, 0, 2, Class::Control)];
        assert_eq!(departures(model, &packets), [(105, 1), (115, 2)]);
    }

    #[test]
    fn messages_of_a_host_begin_in_order_with_an_interval() {
        let model = CardModel { message_interval: Picos(30), ..CardModel::default() };
        // Messages begin at 5, 35 and 65. The second packet of message 2 is ready with it, and those of other processes
        // are not ahead of it. The acknowledgement does not wait for messages.
        let packets = [
            (5, 0, 1, Class::Data),
            (6, 0, 2, Class::Data),
            (6, 0, 102, Class::Data),
            (7, 1, 3, Class::Data),
            (8, 0, 4, Class::Control),
            (200, 1, 5, Class::Data),
        ];
        let expected = [(5, 1), (15, 4), (35, 2), (45, 102), (65, 3), (200, 5)];
        assert_eq!(departures(model, &packets), expected);
    }

    #[test]
    fn processes_of_a_host_share_the_bandwidth_to_memory() {
        // A payload of 10 bytes takes 20 ps, and as long on the wire as all packets here: 10 ps.
        let model = CardModel { pcie: Some(Rate::gbps(4_000)), ..CardModel::default() };
        assert_eq!(model.payload_time(10), Picos(20));
        let packets = [
            (5, 0, 1, Class::Data),
            (5, 1, 2, Class::Data),
            (6, 0, 3, Class::Control),
            (60, 0, 4, Class::Data),
        ];
        // Payloads are read until 25, 45 and 80.
        assert_eq!(departures(model, &packets), [(6, 3), (25, 1), (45, 2), (80, 4)]);
        let all = CardModel { dma: Picos(7), message_interval: Picos(30), ..model };
        // Messages begin at 12 and 42, and at 72 the one that is ready at 67.
        assert_eq!(departures(all, &packets), [(13, 3), (32, 1), (62, 2), (92, 4)]);
        assert_eq!(all.round_trip(10), Picos(4 * 7 + 2 * 20));
    }

    #[test]
    fn packets_leave_in_the_order_of_their_times_and_control_first() {
        let mut cards = Cards::new(2, CardModel::default());
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
