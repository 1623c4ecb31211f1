//! A host's transport: its packet delivery contexts, out of which the card takes packets.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::flows::RunningFlow;
use super::host::{Adapter, Allowance, Sizes, Work};
use super::incasts::Incasts;
use super::outbox::{Lane, Outbox};
use super::packet::Body;
use crate::Picos;
use crate::model::{PacketHeader, Planes};
use squall_base::Time;
use squall_cc::RatePacket;
use squall_reliability::{
    Arrival, Config, ControlPacket, Event, NOMINAL_OVERHEAD, NewPacket, PdcId, Pdcs, PeerKey,
    RatePacketOut, RxVerdict,
};

/// Descriptor of a packet, which the transport returns with the packet's outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desc {
    flow: u32,
    payload: u32,
}

/// A packet delivery context that this host opened.
#[derive(Debug)]
struct Context {
    id: PdcId,
    /// Plane of the context's packets, if each plane has contexts of its own; else 0.
    plane: u32,
    /// Flows that still have something to send, the current one first.
    flows: VecDeque<u32>,
    lane: Lane,
}

/// The transport of a host: its packet delivery contexts.
#[derive(Debug)]
pub(super) struct Endpoint {
    pdcs: Pdcs<Desc>,
    contexts: Vec<Context>,
    /// Index in `contexts` of the context in each slot of `pdcs`; `u32::MAX` without one.
    by_slot: Vec<u32>,
    /// Index in `contexts` of the context that each connection has.
    by_connection: HashMap<u64, u32>,
    /// Incasts that senders announce; `None` if they announce none.
    incasts: Option<Arc<Incasts>>,
    /// The planes of which each has contexts of its own. Peers are then addresses in a plane, and
    /// paths are entropies of that plane. Otherwise a single plane, whose addresses are hosts.
    planes: Planes,
}

impl Endpoint {
    /// Creates the transport of a host. All hosts have the same `config`, but each has its own
    /// `seed`. Each of `planes` has contexts of its own.
    pub(super) fn new(
        config: Arc<Config>,
        seed: u64,
        incasts: Option<Arc<Incasts>>,
        planes: Planes,
    ) -> Self {
        Self {
            pdcs: Pdcs::with(config, seed),
            contexts: Vec::new(),
            by_slot: Vec::new(),
            by_connection: HashMap::new(),
            incasts,
            planes,
        }
    }

    /// Opens the contexts of flow `index`, one in each plane, and returns the first. Returns `None`
    /// if there is no room for them.
    fn open(&mut self, connection: u64, index: u32, work: &Work<'_>) -> Option<u32> {
        let RunningFlow { dst, label, .. } = work.flows[index as usize];
        // There are at most 65535 contexts.
        let first = self.contexts.len() as u32;
        for plane in 0..self.planes.count() {
            let peer = PeerKey(self.planes.address(dst, plane));
            let id = self.pdcs.open(work.now.time(), (peer, label))?;
            let lane = Lane::new(work.outbox.host(), dst, connection as u32);
            self.contexts.push(Context { id, plane, flows: VecDeque::new(), lane });
            if self.by_slot.len() <= id.index() {
                self.by_slot.resize(id.index() + 1, u32::MAX);
            }
            self.by_slot[id.index()] = first + plane;
        }
        self.by_connection.insert(connection, first);
        Some(first)
    }

    /// Returns the index in `contexts` of the context that this host opened as `id`.
    fn of(&self, id: PdcId) -> Option<u32> {
        let context = *self.by_slot.get(id.index())?;
        let entry = self.contexts.get(context as usize)?;
        (entry.id == id).then_some(context)
    }
}

impl Adapter for Endpoint {
    fn start(&mut self, index: u32, connection: u64, work: &mut Work<'_>) -> bool {
        let known = self.by_connection.get(&connection).copied();
        let Some(place) = known.or_else(|| self.open(connection, index, work)) else {
            return false;
        };
        work.flows[index as usize].context = place;
        for place in place..place + self.planes.count() {
            let context = &mut self.contexts[place as usize];
            context.flows.push_back(index);
            work.outbox.activate(place, &mut context.lane);
        }
        true
    }

    fn receive(&mut self, source: u32, header: &PacketHeader, body: &Body, work: &mut Work<'_>) {
        let peer = PeerKey(self.planes.address(source, header.entropy));
        let time = work.now.time();
        match body {
            &Body::Data { ref pds, flow, payload, bytes } => {
                let bytes = if header.trimmed {
                    header.bytes.saturating_sub(NOMINAL_OVERHEAD)
                } else {
                    bytes
                };
                let running = &work.flows[flow as usize];
                let meta = Arrival {
                    ce: header.ce,
                    trimmed: header.trimmed,
                    last_hop: header.last_hop,
                    bytes,
                    begins: running.received == 0,
                    ends: running.received + u64::from(payload) == running.bytes,
                };
                if !header.trimmed
                    && let Some(incasts) = &self.incasts
                    && running.first == Some(pds.psn)
                    && let Some(list) = incasts.list(flow)
                {
                    self.pdcs.handle_sender_list(time, &list);
                }
                let verdict = self.pdcs.rx_request(time, peer, pds, &meta);
                if let RxVerdict::Deliver(delivery) = verdict {
                    if !work.telemetry.is_empty() {
                        self.pdcs.keep_telemetry(&delivery, work.telemetry);
                    }
                    self.pdcs.accept(time, delivery, None);
                    work.arrived(flow, payload);
                }
            }
            Body::Rates | Body::Roce(_) => {}
            Body::Control(ControlPacket::Ack { pds, response }) => {
                let (response, telemetry) = (response.as_ref(), work.telemetry);
                self.pdcs.rx_ack(time, peer, pds, response, telemetry);
            }
            Body::Control(ControlPacket::Nack(nack)) => {
                self.pdcs.rx_nack(time, peer, nack);
            }
            Body::Control(ControlPacket::Control(control)) => {
                self.pdcs.rx_control(time, peer, control);
            }
        }
    }

    fn handle_overflow(&mut self, lost: u64, buffer: u64) {
        self.pdcs.handle_buffer_overflow(lost, buffer);
    }

    fn handle_drained(&mut self) {
        self.pdcs.handle_buffer_drained();
    }

    fn handle_timeout(&mut self, work: &mut Work<'_>) {
        self.pdcs.handle_timeout(work.now.time());
    }

    fn collect_output(&mut self, work: &mut Work<'_>) {
        let time = work.now.time();
        while let Some(out) = self.pdcs.poll_control(time) {
            let (body, echo) = (Body::Control(out.packet), self.pdcs.telemetry_echo());
            let (host, plane) = self.planes.host_and_plane(out.peer.0);
            work.outbox.answer(host, self.planes.entropy(out.path.into(), plane), body, echo);
        }
        while let Some(event) = self.pdcs.poll_event() {
            match event {
                Event::Acked { desc, .. } | Event::Responded { desc, .. } => {
                    work.acknowledged(desc.flow, desc.payload.into());
                }
                Event::Ready { id } => {
                    if let Some(place) = self.of(id) {
                        work.outbox.activate(place, self.lane(place));
                    }
                }
                // Simulated peers need no handshake.
                Event::OtherMode { .. }
                | Event::Unknown { .. }
                | Event::Waits { .. }
                | Event::Stuck { .. } => {}
                Event::Lost { desc, .. } => work.given_up(desc.flow),
                Event::Failed { id, .. } | Event::Closed { id, .. } => {
                    if let Some(place) = self.of(id) {
                        for flow in core::mem::take(&mut self.contexts[place as usize].flows) {
                            work.given_up(flow);
                        }
                    }
                }
            }
        }
    }

    /// Returns the next packet of a context. Retransmissions come first.
    fn next_packet(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        let (planes, incasts) = (self.planes, self.incasts.as_deref());
        let place = context as usize;
        let context = &self.contexts[place];
        let bytes_of = |payload: u32| (payload + sizes.header).saturating_sub(NOMINAL_OVERHEAD);
        let list_of = |flow: u32| incasts.map_or(0, |incasts| incasts.bytes(flow));
        let mut list = 0;
        let (grant, desc) = match self.pdcs.poll_retransmit(now, context.id) {
            Some((grant, desc)) => {
                let running = &mut flows[desc.flow as usize];
                running.retransmitted += 1;
                if running.first == Some(grant.pds.psn) {
                    list = list_of(desc.flow);
                }
                (grant, desc)
            }
            None => {
                let &flow = context.flows.front()?;
                let running = &mut flows[flow as usize];
                if running.packets == 0 {
                    list = list_of(flow);
                }
                // The length is at most a packet's payload.
                let room = sizes.payload().saturating_sub(list).max(1);
                let payload = running.unsent.min(room.into()) as u32;
                let rest = running.unsent - u64::from(payload);
                let packet = NewPacket {
                    desc: Desc { flow, payload },
                    bytes: bytes_of(payload) + list,
                    // With several planes, any of the last packets may be the last one of its plane.
                    last: rest <= u64::from(planes.count() - 1) * u64::from(room)
                        && context.flows.len() == 1,
                    prompt: true,
                    backlog: rest,
                };
                let grant = self.pdcs.next_packet(now, context.id, &packet).ok()?;
                if incasts.is_some() && running.packets == 0 {
                    running.first = Some(grant.pds.psn);
                }
                running.unsent = rest;
                running.packets += 1;
                if rest == 0 {
                    // The contexts of the other planes have nothing more to send, either.
                    let first = running.context as usize;
                    for context in &mut self.contexts[first..first + planes.count() as usize] {
                        context.flows.retain(|&of| of != flow);
                    }
                }
                (grant, packet.desc)
            }
        };
        let Desc { flow, payload } = desc;
        let context = &self.contexts[place];
        let entropy = planes.entropy(grant.path.into(), context.plane);
        let header = context.lane.header(entropy, payload + sizes.header + list);
        Some((
            header,
            Body::Data { pds: grant.pds, flow, payload, bytes: bytes_of(payload) + list },
        ))
    }

    fn next_rate_packet(
        &mut self,
        now: Time,
        outbox: &mut Outbox,
        sizes: Sizes,
    ) -> Option<(PacketHeader, RatePacket)> {
        let RatePacketOut { peer, id, packet } = self.pdcs.poll_rate_packet(now)?;
        let Some(place) = id.and_then(|id| self.of(id)) else {
            return Some((outbox.header_back(peer.0, sizes.control), packet));
        };
        // Networks whose switches answer rate packets have one plane.
        let lane = self.lane(place);
        // The data of the context waited for this packet.
        outbox.activate(place, lane);
        Some((lane.rate_header(packet.path.into(), sizes.control), packet))
    }

    fn has_rate_packet(&self) -> bool {
        self.pdcs.has_rate_packets()
    }

    fn rated(&mut self, source: u32, packet: &RatePacket, work: &mut Work<'_>) {
        self.pdcs.rx_rate_packet(work.now.time(), PeerKey(source), packet);
    }

    fn lane(&mut self, context: u32) -> &mut Lane {
        &mut self.contexts[context as usize].lane
    }

    fn poll_timeout(&self) -> Option<Picos> {
        self.pdcs.poll_timeout().map(Picos::from_time)
    }

    fn allowance(&self, context: u32) -> Allowance {
        let context = self.contexts.get(context as usize);
        let info = context.and_then(|context| self.pdcs.info(context.id));
        info.map_or(Allowance::default(), |info| Allowance {
            window: info.cwnd.unwrap_or(0),
            in_flight: info.in_flight,
            rate: info.rate.map_or(0, |rate| rate.0),
        })
    }

    fn answers(&self) -> (u64, u64) {
        let counters = self.pdcs.counters();
        (counters.tx_acks, counters.tx_nacks.iter().sum())
    }

    fn prefetch(&self) -> u64 {
        let timeout = self.pdcs.poll_timeout().map_or(0, |when| when.0);
        timeout ^ self.pdcs.counters().rx_packets
    }

    fn prefetch_packet(&self, body: &Body, flows: &[RunningFlow]) -> u64 {
        match body {
            Body::Data { flow, .. } => flows[*flow as usize].received,
            Body::Control(_) | Body::Rates | Body::Roce(_) => 0,
        }
    }

    fn prefetch_context(&self, context: u32, flows: &[RunningFlow]) -> u64 {
        let context = &self.contexts[context as usize];
        context.flows.front().map_or(0, |&flow| flows[flow as usize].unsent)
    }
}
