//! A host's transport: its packet delivery contexts, out of which the card pulls packets.

use std::collections::{HashMap, VecDeque};

use super::flows::Running;
use super::host::{News, Sizes, hash};
use super::packet::Body;
use crate::Picos;
use crate::base::Time;
use crate::model::{Class, Head};
use crate::reliability::{
    Blocked, Config, ControlOut, ControlPacket, Event, NOMINAL_OVERHEAD, PdcId, Pdcs, PeerKey,
    RxMeta, RxVerdict, TxPacket,
};

/// What comes back with a packet's fate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desc {
    flow: u32,
    payload: u32,
}

/// A context that this host opened.
#[derive(Debug)]
struct Context {
    id: PdcId,
    dst: u32,
    /// Flows that still have something to send, the current one first.
    flows: VecDeque<u32>,
    /// It is in [`Endpoint::active`].
    active: bool,
    /// What switches hash besides the entropy.
    flow_hash: u32,
}

/// The transport of a host.
#[derive(Debug)]
pub(super) struct Endpoint {
    pdcs: Pdcs<Desc>,
    number: u32,
    /// Contexts that may have something to send, in turn.
    active: VecDeque<u32>,
    contexts: Vec<Context>,
    /// The context behind a slot of `pdcs`.
    by_slot: Vec<u32>,
    /// The context of a connection.
    by_connection: HashMap<u64, u32>,
    /// Packets without data that wait for the card.
    control: VecDeque<ControlOut>,
}

impl Endpoint {
    pub(super) fn new(number: u32, config: Config) -> Self {
        Self {
            pdcs: Pdcs::new(config),
            number,
            active: VecDeque::new(),
            contexts: Vec::new(),
            by_slot: Vec::new(),
            by_connection: HashMap::new(),
            control: VecDeque::new(),
        }
    }

    /// Reads what will be needed of it; the value means nothing.
    pub(super) fn glance(&self) -> u64 {
        let timeout = self.pdcs.poll_timeout().map_or(0, |when| when.0);
        timeout
            ^ self.active.len() as u64
            ^ self.control.len() as u64
            ^ self.pdcs.counters().rx_packets
    }

    /// Starts flow `index` on its `connection`; false if there is no room for another context.
    pub(super) fn start(
        &mut self,
        now: Picos,
        index: u32,
        connection: u64,
        flow: &mut Running,
    ) -> bool {
        let context = match self.by_connection.get(&connection) {
            Some(&context) => context,
            None => {
                let Some(id) = self.pdcs.open(now.time(), PeerKey(flow.dst)) else { return false };
                // At most 65535 contexts.
                let context = self.contexts.len() as u32;
                self.contexts.push(Context {
                    id,
                    dst: flow.dst,
                    flows: VecDeque::new(),
                    active: false,
                    flow_hash: hash(hash(self.number, flow.dst), connection as u32),
                });
                self.by_connection.insert(connection, context);
                if self.by_slot.len() <= id.index() {
                    self.by_slot.resize(id.index() + 1, u32::MAX);
                }
                self.by_slot[id.index()] = context;
                context
            }
        };
        flow.context = context;
        self.contexts[context as usize].flows.push_back(index);
        self.activate(context);
        true
    }

    /// Window and bytes in flight of a context.
    pub(super) fn window(&self, context: u32) -> (u64, u64) {
        let context = self.contexts.get(context as usize);
        let info = context.and_then(|context| self.pdcs.info(context.id));
        info.map_or((0, 0), |info| (info.cwnd.unwrap_or(0), info.in_flight))
    }

    /// Acknowledgements and negative ones sent.
    pub(super) fn answers(&self) -> (u64, u64) {
        let counters = self.pdcs.counters();
        (counters.tx_acks, counters.tx_nacks.iter().sum())
    }

    pub(super) fn poll_timeout(&self) -> Option<Picos> {
        self.pdcs.poll_timeout().map(Picos::from_time)
    }

    pub(super) fn handle_timeout(&mut self, now: Picos, _flows: &mut [Running]) {
        self.pdcs.handle_timeout(now.time());
    }

    fn activate(&mut self, context: u32) {
        let entry = &mut self.contexts[context as usize];
        if !entry.active {
            entry.active = true;
            self.active.push_back(context);
        }
    }

    fn of(&self, id: PdcId) -> Option<u32> {
        let context = *self.by_slot.get(id.index())?;
        let entry = self.contexts.get(context as usize)?;
        (entry.id == id).then_some(context)
    }

    /// A packet arrived from host `source`.
    pub(super) fn receive(
        &mut self,
        now: Picos,
        source: u32,
        head: &Head,
        body: &Body,
        flows: &mut [Running],
        news: &mut Vec<News>,
    ) {
        let (time, peer) = (now.time(), PeerKey(source));
        match body {
            &Body::Data { ref pds, flow, payload, bytes } => {
                let bytes =
                    if head.trimmed { head.bytes.saturating_sub(NOMINAL_OVERHEAD) } else { bytes };
                let meta =
                    RxMeta { ce: head.ce, trimmed: head.trimmed, last_hop: head.last_hop, bytes };
                let verdict = self.pdcs.rx_request(time, peer, pds, &meta);
                if let RxVerdict::Deliver { id, psn, .. } = verdict {
                    self.pdcs.accept(time, id, psn, None);
                    let running = &mut flows[flow as usize];
                    running.received += u64::from(payload);
                    if running.received == running.bytes {
                        running.arrived = now;
                        news.push(News::Arrived(flow));
                    }
                }
            }
            Body::Roce(_) => {}
            Body::Control(ControlPacket::Ack { pds, response }) => {
                self.pdcs.rx_ack(time, peer, pds, response.as_ref());
            }
            Body::Control(ControlPacket::Nack(nack)) => {
                self.pdcs.rx_nack(time, peer, nack);
            }
            Body::Control(ControlPacket::Control(control)) => {
                self.pdcs.rx_control(time, peer, control);
            }
        }
    }

    /// After anything happened: what the transport wants sent or told.
    pub(super) fn attend(&mut self, now: Picos, flows: &mut [Running], news: &mut Vec<News>) {
        let time = now.time();
        while let Some(out) = self.pdcs.poll_control(time) {
            self.control.push_back(out);
        }
        while let Some(event) = self.pdcs.poll_event() {
            match event {
                Event::Acked { desc, .. } | Event::Responded { desc, .. } => {
                    let flow = &mut flows[desc.flow as usize];
                    flow.acked += u64::from(desc.payload);
                    if flow.acked == flow.bytes {
                        flow.done = now;
                        news.push(News::Done(desc.flow));
                    }
                }
                Event::Ready { id } => {
                    if let Some(context) = self.of(id) {
                        self.activate(context);
                    }
                }
                Event::OtherMode { .. } => {}
                Event::Lost { desc, .. } => Self::give_up(desc.flow, flows, news),
                Event::Failed { id, .. } | Event::Closed { id, .. } => {
                    if let Some(context) = self.of(id) {
                        for flow in core::mem::take(&mut self.contexts[context as usize].flows) {
                            Self::give_up(flow, flows, news);
                        }
                    }
                }
            }
        }
    }

    fn give_up(flow: u32, flows: &mut [Running], news: &mut Vec<News>) {
        let running = &mut flows[flow as usize];
        if !running.failed && running.done == Picos::NEVER {
            running.failed = true;
            news.push(News::Failed(flow));
        }
    }

    /// Whether the card has anything to try.
    pub(super) fn eager(&self) -> bool {
        !self.control.is_empty() || !self.active.is_empty()
    }

    /// The next packet for the card: packets without data first, then the contexts in turn.
    pub(super) fn next(
        &mut self,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        if let Some(ControlOut { peer, path, packet }) = self.control.pop_front() {
            let head = Head {
                dst: peer.0,
                flow: hash(self.number, peer.0),
                entropy: path.into(),
                bytes: sizes.control,
                class: Class::Control,
                ..Head::default()
            };
            return Some((head, Body::Control(packet)));
        }
        if paused {
            return None;
        }
        while let Some(&context) = self.active.front() {
            let packet = self.pull(now.time(), context, sizes, flows);
            self.active.pop_front();
            if packet.is_some() {
                self.active.push_back(context);
                return packet;
            }
            self.contexts[context as usize].active = false;
        }
        None
    }

    /// The next packet of a context: retransmissions first.
    fn pull(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        let context = &mut self.contexts[context as usize];
        let bytes_of = |payload: u32| (payload + sizes.header).saturating_sub(NOMINAL_OVERHEAD);
        let (grant, desc) = match self.pdcs.poll_retransmit(now, context.id) {
            Some((grant, desc)) => {
                flows[desc.flow as usize].retransmitted += 1;
                (grant, desc)
            }
            None => {
                let &flow = context.flows.front()?;
                let running = &mut flows[flow as usize];
                let full = u64::from(sizes.mtu - sizes.header);
                // At most an MTU.
                let payload = running.unsent.min(full) as u32;
                let rest = running.unsent - u64::from(payload);
                let packet = TxPacket {
                    desc: Desc { flow, payload },
                    bytes: bytes_of(payload),
                    last: rest == 0 && context.flows.len() == 1,
                    prompt: true,
                    backlog: rest,
                };
                let grant = match self.pdcs.next_packet(now, context.id, &packet) {
                    Ok(grant) => grant,
                    Err(Blocked::Wait | Blocked::Retransmit | Blocked::Closing | Blocked::Gone) => {
                        return None;
                    }
                };
                running.unsent = rest;
                running.packets += 1;
                if rest == 0 {
                    context.flows.pop_front();
                }
                (grant, packet.desc)
            }
        };
        let Desc { flow, payload } = desc;
        let head = Head {
            dst: context.dst,
            flow: context.flow_hash,
            entropy: grant.path.into(),
            bytes: payload + sizes.header,
            class: Class::Data,
            ..Head::default()
        };
        Some((head, Body::Data { pds: grant.pds, flow, payload, bytes: bytes_of(payload) }))
    }
}
