//! Real packets in the model of a network. This module has no clock and no sockets: the live relay
//! passes the time of the real clock, and tests pass a virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use squall_net::emulator::frame::PacketFrame;

use squall_cc::Hops;
use squall_netsim::Picos;
use squall_netsim::model::{
    Class, Ends, Failure, MessagePacket, Network, NetworkConfig, PacketHeader, PacketOptions,
    Share, Step, SwitchProgram,
};
use squall_netsim::topology::{Node, Topology};
use squall_reliability::{emit_rates, rates_of, record_of, speculation_of};
use squall_wire::{Packet, RatePacket, Ses, Telemetry, TelemetryKind, parse};

use super::card::{CardModel, CardPacket, Cards, Pending};
use super::inner_path::{InnerPath, InnerPaths};

/// A packet that has arrived at its destination host.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Time at which the packet's last bit arrived.
    pub at: Picos,
    /// The host that sent the packet.
    pub from: u32,
    /// The host at which the packet arrived.
    pub host: u32,
    /// The tag that the sender attached; see [`Emulation::send`].
    pub tag: u64,
    /// The packet's header as given to [`Emulation::send`], with the marks and trimming of the
    /// network.
    pub frame: &'a PacketFrame,
    /// The packet's UDP payload.
    pub payload: &'a [u8],
}

/// Everything that a packet carries besides the header that switches read. Later packets reuse its
/// memory.
struct CarriedFrame {
    tag: u64,
    frame: PacketFrame,
    payload: Vec<u8>,
}

/// A packet whose arrival is known, and which the network no longer carries.
struct ArrivingPacket {
    from: u32,
    host: u32,
    tag: u64,
    frame: PacketFrame,
    payload: Vec<u8>,
}

/// A simulated network that carries real packets, with their bytes.
pub struct Emulation {
    network: Network,
    /// Bytes of a packet on the wire beyond its UDP payload.
    overhead: u32,
    carried: Loads,
    /// The network cards, if senders run ahead of the network.
    cards: Option<Cards>,
    /// The paths between ranks of one host, if these do not cross the network.
    inner: Option<InnerPaths>,
    /// Packets with a known time of arrival: those on inner paths and, if [`Self::orders_arrivals`], those that have left
    /// their last switch.
    arriving: BinaryHeap<Reverse<Pending<ArrivingPacket>>>,
    /// Number of packets that were put into `arriving`.
    arriving_number: u64,
    /// Time at which the card of each host has written all packets to memory; empty if that takes no time.
    written_at: Vec<Picos>,
    /// Latency from the last switch to the memory of each host, which is added to the time of a delivery; empty if the
    /// network includes it.
    last_latencies: Vec<Picos>,
    /// The smallest of `last_latencies`.
    last_latency: Picos,
    /// Buffers of payloads that have arrived, for further packets.
    spare: Vec<Vec<u8>>,
}

/// Contents of the packets in the network, indexed by packet number.
#[derive(Default)]
struct Loads(Vec<CarriedFrame>);

impl Loads {
    /// Stores the content of a packet that leaves a card under the packet's number. Returns the
    /// buffer of the packet that had the number before.
    fn put_owned(
        &mut self,
        packet: u32,
        tag: u64,
        frame: PacketFrame,
        payload: Vec<u8>,
    ) -> Vec<u8> {
        let packet = packet as usize;
        if packet == self.0.len() {
            self.0.push(CarriedFrame { tag, frame, payload });
            return Vec::new();
        }
        let carried = &mut self.0[packet];
        (carried.tag, carried.frame) = (tag, frame);
        core::mem::replace(&mut carried.payload, payload)
    }

    fn put(&mut self, packet: u32, tag: u64, frame: PacketFrame, payload: &[u8]) {
        let packet = packet as usize;
        // The network numbers packets without gaps.
        if packet == self.0.len() {
            self.0.push(CarriedFrame { tag, frame, payload: Vec::new() });
        }
        let carried = &mut self.0[packet];
        (carried.tag, carried.frame) = (tag, frame);
        carried.payload.clear();
        carried.payload.extend_from_slice(payload);
    }
}

impl Ends for Loads {
    fn copy(&mut self, from: u32, to: u32) {
        let CarriedFrame { tag, frame, ref mut payload } = self.0[from as usize];
        let payload = core::mem::take(payload);
        self.put(to, tag, frame, &payload);
        self.0[from as usize].payload = payload;
    }
}

/// Tick of the model's event queue, in picoseconds: at the rates that a relay can carry, only a few
/// events fall into one tick.
const TICK: Picos = Picos(1 << 12);

/// The two hosts between which a packet travels, and its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Number of the sending host.
    pub from: u32,
    /// Number of the receiving host.
    pub to: u32,
    /// The part of the ECMP hash that all packets between two endpoints share: [`Route::flow`].
    pub flow: u32,
    /// Number of the process or endpoint that sends. The senders of a host share its card in turns.
    pub sender: u32,
}

impl Route {
    /// Hashes the addresses of two endpoints (FNV-1a). Switches hash a UDP packet by its addresses
    /// and its source port; this is the part without the source port, which is the entropy.
    #[must_use]
    pub fn flow(source: SocketAddr, destination: SocketAddr) -> u32 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for addr in [source, destination] {
            match addr.ip() {
                IpAddr::V4(ip) => add(&ip.octets()),
                IpAddr::V6(ip) => add(&ip.octets()),
            }
        }
        add(&destination.port().to_be_bytes());
        (hash >> 32) as u32
    }
}

impl Emulation {
    /// Creates an idle network at time zero. The topology must have passed [`Topology::check`].
    /// `overhead` is the number of bytes that a packet has on the wire beyond its UDP payload;
    /// [`NetworkConfig::trim`] counts it, too.
    ///
    /// # Errors
    /// The topology is too large.
    pub fn new(topology: Topology, config: NetworkConfig, overhead: u32) -> Result<Self, String> {
        let network = Network::new(topology, config, TICK, Share::WHOLE)?;
        Ok(Self {
            network,
            overhead,
            carried: Loads::default(),
            cards: None,
            inner: None,
            arriving: BinaryHeap::new(),
            arriving_number: 0,
            written_at: Vec::new(),
            last_latencies: Vec::new(),
            last_latency: Picos::ZERO,
            spare: Vec::new(),
        })
    }

    /// Lets hosts run ahead of the network. Packets of senders wait in network cards like `model` until
    /// [`Self::step`] knows that no earlier ones can come, and packets are delivered when the last
    /// switch has sent them, with the later time of their arrival. Call this before the first packet
    /// enters.
    pub fn use_cards(&mut self, model: CardModel) {
        let topology = self.network.switches().topology();
        self.cards = Some(Cards::new(topology.hosts, model));
        self.last_latencies = vec![Picos::ZERO; topology.hosts as usize];
        if model.pcie.is_some() {
            self.written_at = vec![Picos::ZERO; topology.hosts as usize];
        }
        for link in &topology.links {
            for end in [link.a, link.b] {
                if let Node::Host(host) = end {
                    self.last_latencies[host as usize] = link.latency + model.dma;
                }
            }
        }
        self.last_latency = self.last_latencies.iter().copied().min().unwrap_or_default();
        self.network.end_at_last_switch();
    }

    /// Lets packets between two ranks of one host take an inner path of this rate and latency. Otherwise they
    /// cross the host's card and its switch.
    pub fn use_inner_paths(&mut self, path: InnerPath) {
        self.inner = Some(InnerPaths::new(path));
    }

    /// Returns the rate and latency of the inner paths, if there are any.
    #[must_use]
    pub fn inner_path(&self) -> Option<InnerPath> {
        self.inner.as_ref().map(InnerPaths::path)
    }

    /// Returns the smallest time from the hand-over of a packet by its sender until it can leave the card of its host.
    #[must_use]
    pub fn first_latency(&self) -> Picos {
        self.cards.as_ref().map_or(Picos::ZERO, |cards| cards.model().dma)
    }

    /// Returns the smallest time from the delivery of a packet by [`Self::step`] to its arrival at the
    /// host.
    #[must_use]
    pub const fn last_latency(&self) -> Picos {
        self.last_latency
    }

    /// Returns the smallest time from the departure of a packet at any host until something outside of
    /// that host can observe it: the latency of the host's link and of the switch behind it.
    #[must_use]
    pub fn lookahead(&self) -> Picos {
        let topology = self.network.switches().topology();
        let latency = |link: &squall_netsim::topology::Link| {
            let switch = match (link.a, link.b) {
                (Node::Host(_), Node::Switch(switch)) | (Node::Switch(switch), Node::Host(_)) => {
                    switch
                }
                _ => return None,
            };
            Some(link.latency + topology.switches[switch as usize].latency)
        };
        topology.links.iter().filter_map(latency).min().unwrap_or_default()
    }

    /// Gives each switch its program. Call this before the first packet enters.
    pub fn program(&mut self, program: impl Fn(u32) -> Option<Box<dyn SwitchProgram>>) {
        self.network.program(program);
    }

    /// Returns the model of the network for inspection.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the data bytes that wait in the network card of a host.
    #[must_use]
    pub fn backlog(&self, host: u32) -> u64 {
        let port = self.network.host_port(host);
        self.network.switches().port(port).queued(self.network.now())
    }

    /// Hands a packet to the network card of host `route.from` at `at`, or now if [`Self::run`] has
    /// already passed that time. Frame and tag come back in the [`Delivery`]. With cards, packets of one
    /// sender and time leave in the order of their flows. A packet to the same host takes the inner path if
    /// there is one.
    pub fn send(&mut self, at: Picos, route: Route, frame: PacketFrame, payload: &[u8], tag: u64) {
        if route.from == route.to
            && let Some(inner) = &mut self.inner
        {
            // With cards, the network may be ahead of the sender.
            let at = if self.cards.is_some() { at } else { at.max(self.network.now()) };
            let at = inner.push(at, route.sender, payload.len());
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(payload);
            let Route { from, to: host, flow, .. } = route;
            self.push_arriving(
                at,
                flow.into(),
                ArrivingPacket { from, host, tag, frame, payload: copy },
            );
            return;
        }
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut header = PacketHeader {
            dst: route.to,
            flow: route.flow,
            entropy: u32::from(frame.entropy),
            bytes: bytes.saturating_add(self.overhead),
            class: if frame.control { Class::Control } else { Class::Data },
            ..PacketHeader::default()
        };
        let config = self.network.switches().config();
        let mut options = (!config.features.is_empty()).then_some(PacketOptions::EMPTY);
        if let Some(options) = &mut options {
            let needs = config.needs();
            if needs.messages
                && let Some(packet) = message_packet(route.flow, payload)
            {
                config.features.iter().for_each(|feature| feature.on_send(&packet, options));
            }
            if needs.rates && write_rate_options(payload, options) {
                header.class = Class::Rate;
            }
        }
        if let Some(cards) = &mut self.cards {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(payload);
            let begins_message =
                cards.model().message_interval > Picos::ZERO && is_first_packet(payload);
            let packet = CardPacket { header, options, tag, frame, payload: copy, begins_message };
            cards.push(at, route, packet);
            return;
        }
        let packet = self.network.enter(at, route.from, header, options.as_ref());
        self.carried.put(packet, tag, frame, payload);
    }

    /// Processes the next events of cards and network that nothing can precede: no packet will reach a
    /// card before `bound`, and none reaches the network sooner than `lookahead` after it
    /// leaves its card. No sender will hand an inner path a packet that arrives before `inner`. Returns
    /// after the first packet that is delivered to a host, which is passed to `deliver`; false if there
    /// was none. The packets of a host are delivered in the order of their arrival.
    pub fn step(
        &mut self,
        bound: Picos,
        lookahead: Picos,
        inner: Picos,
        deliver: &mut dyn FnMut(&Delivery<'_>),
    ) -> bool {
        loop {
            let departure = self.cards.as_ref().and_then(Cards::next_departure);
            let limit = departure.map_or(bound, |at| at.min(bound)) + lookahead;
            // The network reports a packet when the last switch has sent it, before it arrives. All packets that
            // arrive no later than the next one join the order of arrivals before it is delivered.
            let arrival = self.next_arrival().filter(|at| *at < inner);
            let sent = arrival.map(|at| at - self.last_latency);
            let until = sent.map_or(limit, |at| (at + Picos(1)).min(limit));
            if self.network.next_event().is_some_and(|at| at < until) {
                match self.network.step(until - Picos(1), &mut self.carried) {
                    Some(Step::Arrived { host, packet }) if self.orders_arrivals() => {
                        self.await_arrival(host, packet);
                        continue;
                    }
                    Some(Step::Arrived { host, packet }) => {
                        self.arrived(host, packet, deliver);
                        return true;
                    }
                    _ => continue,
                }
            }
            if sent.is_some_and(|at| at < limit) {
                self.deliver_arriving(deliver);
                return true;
            }
            if departure.is_none_or(|at| at >= bound) {
                return false;
            }
            if let Some(cards) = &mut self.cards
                && let Some((at, host, packet)) = cards.pop()
            {
                let CardPacket { header, options, tag, frame, payload, .. } = packet;
                let (number, free_at) = self.network.launch(at, host, header, options.as_ref());
                cards.occupy(host, free_at);
                self.spare.push(self.carried.put_owned(number, tag, frame, payload));
            }
        }
    }

    /// Advances the time to `until`, before which nothing is left to happen.
    pub fn advance_to(&mut self, until: Picos) {
        self.network.advance_to(until);
    }

    /// Returns whether no packet is in a card, in the network or on an inner path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_flight() == 0 && self.cards.as_ref().is_none_or(Cards::is_empty)
    }

    /// Returns the number of packets in the network and on inner paths.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.network.in_flight() + self.arriving.len()
    }

    /// Returns the time of the next event in the network or on an inner path; `None` if none is scheduled.
    #[must_use]
    pub fn next_event(&self) -> Option<Picos> {
        self.network.next_event().into_iter().chain(self.next_arrival()).min()
    }

    /// Applies a failure or a repair at `at`, or now if [`Self::run`] has already passed that time.
    pub fn fail(&mut self, at: Picos, failure: Failure) {
        self.network.fail(at, failure);
    }

    /// Processes all events up to and including `until`, and passes each packet that arrives at a
    /// host to `deliver`.
    pub fn run(&mut self, until: Picos, deliver: &mut dyn FnMut(&Delivery<'_>)) {
        loop {
            let copied = self.next_arrival().filter(|at| *at <= until);
            let next = copied.unwrap_or(until);
            while let Some(step) = self.network.step(next, &mut self.carried) {
                // A network card that was paused resumes by itself; other steps need no action here.
                if let Step::Arrived { host, packet } = step {
                    self.arrived(host, packet, deliver);
                }
            }
            if copied.is_none() {
                break;
            }
            self.deliver_arriving(deliver);
        }
        self.network.advance_to(until);
    }

    /// Returns whether arrivals must be sorted before packets are delivered. That is so if inner paths or cards
    /// determine arrivals, too. Otherwise the network's events are in the order of the arrivals.
    fn orders_arrivals(&self) -> bool {
        self.inner.is_some() || !self.written_at.is_empty()
    }

    /// Adds a packet that arrives at `at` and that the network does not carry. Packets that arrive at the same time are
    /// delivered in the order of `tie_break`.
    fn push_arriving(&mut self, at: Picos, tie_break: u64, item: ArrivingPacket) {
        self.arriving_number += 1;
        self.arriving.push(Reverse(Pending { at, tie_break, number: self.arriving_number, item }));
    }

    /// Returns the earliest arrival of a packet that the network does not carry.
    fn next_arrival(&self) -> Option<Picos> {
        self.arriving.peek().map(|Reverse(pending)| pending.at)
    }

    /// Delivers the packet of those that the network does not carry which arrives next.
    fn deliver_arriving(&mut self, deliver: &mut dyn FnMut(&Delivery<'_>)) {
        let Some(Reverse(Pending { at, item, .. })) = self.arriving.pop() else { return };
        let ArrivingPacket { from, host, tag, frame, payload } = item;
        deliver(&Delivery { at, from, host, tag, frame: &frame, payload: &payload });
        self.spare.push(payload);
    }

    /// Removes a packet from the network after its last switch has sent it, and queues it until it arrives. The arrival
    /// includes the time in which the card of the host writes this packet, and those queued before it, to memory.
    fn await_arrival(&mut self, host: u32, packet: u32) {
        let mut at = self.network.now() + self.last_latency_of(host);
        let (header, from) = self.finish(packet);
        let carried = &mut self.carried.0[packet as usize];
        let payload =
            core::mem::replace(&mut carried.payload, self.spare.pop().unwrap_or_default());
        let (tag, frame) = (carried.tag, carried.frame);
        // Packets that no card delays follow those of inner paths, in the order of the network.
        let mut tie_break = u64::MAX;
        if let Some(written_at) = self.written_at.get_mut(host as usize)
            && let Some(cards) = &self.cards
        {
            *written_at = at.max(*written_at) + cards.model().payload_time(payload.len());
            (at, tie_break) = (*written_at, header.flow.into());
        }
        self.push_arriving(at, tie_break, ArrivingPacket { from, host, tag, frame, payload });
    }

    /// Returns the latency from the last switch to a host that is added to the time of a delivery.
    fn last_latency_of(&self, host: u32) -> Picos {
        self.last_latencies.get(host as usize).copied().unwrap_or_default()
    }

    fn arrived(&mut self, host: u32, packet: u32, deliver: &mut dyn FnMut(&Delivery<'_>)) {
        let at = self.network.now() + self.last_latency_of(host);
        let (_, from) = self.finish(packet);
        let CarriedFrame { tag, frame, payload } = &self.carried.0[packet as usize];
        deliver(&Delivery { at, from, host, tag: *tag, frame, payload });
    }

    /// Takes a packet that has arrived from the network, and writes into it what switches have done to it. Returns its header
    /// and the host that sent it.
    fn finish(&mut self, packet: u32) -> (PacketHeader, u32) {
        let (&header, from) = self.network.take(packet);
        let carried = &mut self.carried.0[packet as usize];
        if header.trimmed {
            carried.frame.trimmed = true;
            carried.payload.truncate(header.bytes.saturating_sub(self.overhead) as usize);
        }
        if let Some(options) = self.network.options(packet) {
            if let Some(rates) = options.read() {
                write_rates(&mut carried.payload, &rates);
            }
            if Telemetry::is_before(&carried.payload) {
                write_telemetry(&mut carried.payload, &options.read().unwrap_or_default());
            }
        }
        // ECT(0) and ECT(1) become CE. A packet that is not ECN-capable keeps its codepoint.
        if header.ce && carried.frame.ecn != 0 {
            carried.frame.ecn = 3;
        }
        (header, from)
    }
}

/// Returns whether a packet is the first of a message, or may be: it is encrypted.
fn is_first_packet(payload: &[u8]) -> bool {
    match parse(payload) {
        Ok(Packet::Request { ses: Ses::Std(request), .. }) => request.som,
        Ok(Packet::Request { .. }) | Err(_) => true,
        Ok(_) => false,
    }
}

/// Returns the place of a packet in its message, or `None` if the packet carries no message that
/// switches could know. The flow, context and number identify a message of two endpoints.
fn message_packet(flow: u32, payload: &[u8]) -> Option<MessagePacket> {
    let Ok(Packet::Request { pds, ses: Ses::Std(request), .. }) = parse(payload) else {
        return None;
    };
    let (context, number) = (u64::from(pds.spdcid), u64::from(request.message_id));
    Some(MessagePacket {
        message: u64::from(flow) << 32 | context << 16 | number,
        bytes: request.request_length.into(),
        first: request.som,
        last: request.eom,
    })
}

/// Writes the options that switches which compute rates read: that the packet asks for a rate, or
/// that it left before its flow had one. Returns whether it is a rate packet. The endpoint at the
/// other end answers malformed rate packets.
fn write_rate_options(payload: &[u8], options: &mut PacketOptions) -> bool {
    match parse(payload) {
        Ok(Packet::Rates(packet)) => options.write(&rates_of(&packet)),
        Ok(Packet::Request { pds, .. }) => {
            if let Some(speculation) = speculation_of(&pds) {
                options.write(&speculation);
            }
            false
        }
        _ => false,
    }
}

/// Writes the values of links into a rate packet when it arrives at its destination. The model does
/// not count the bytes that these values would occupy on links.
fn write_rates(payload: &mut Vec<u8>, written: &squall_cc::RatePacket) {
    let Ok(Packet::Rates(packet)) = parse(payload) else { return };
    let mut bytes = [0; RatePacket::MAX_LEN];
    let len = emit_rates(written, packet.head.initiator, &mut bytes);
    payload.clear();
    payload.extend_from_slice(&bytes[..len]);
}

/// Writes the records of switches into a packet when it arrives at its destination, if the sender
/// put a well-formed, empty telemetry header before it. The model does not count the bytes that
/// these records would occupy on links.
fn write_telemetry(payload: &mut Vec<u8>, hops: &Hops) {
    let empty = Telemetry::head(TelemetryKind::Own, 0);
    if !payload.starts_with(&empty) {
        return;
    }
    let records = hops.iter().flat_map(|hop| record_of(&hop).to_bytes());
    let header = Telemetry::head(TelemetryKind::Own, hops.len());
    drop(payload.splice(..Telemetry::LEN, header.into_iter().chain(records)));
}
