//! The baseline of the papers: RoCEv2, that is, queue pairs of one path each, go-back-N, and a congestion
//! control of `squall-cc` (DCQCN). Meant for a lossless network.
//!
//! A receiver takes packets in order only. It acknowledges every few packets, and says "not this one"
//! (NAK) once for each gap; the sender then starts again from there, as it does when its timer fires
//! (InfiniBand specification, section 9.7.5).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::flows::Running;
use super::host::{News, Sizes, hash};
use super::packet::Body;
use crate::Picos;
use crate::base::{Rate, Rng, Time};
use crate::cc::{
    Feedback, FlowEvent, Kind, Receiver, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow,
    RxMeta, Sender, SenderCc, SenderConfig, Sending,
};
use crate::model::{Class, Head};

/// What all hosts of a simulation share.
#[derive(Debug)]
pub(super) struct RoceParameters {
    pub(super) sender: SenderConfig,
    pub(super) receiver: ReceiverConfig,
    pub(super) line: Rate,
    pub(super) qps: u16,
    pub(super) rto: Picos,
    /// Packets an acknowledgement stands for.
    pub(super) ack_packets: u32,
    pub(super) sizes: Sizes,
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoceKind {
    /// Data.
    Data {
        /// Nothing follows.
        last: bool,
    },
    /// Everything before `psn` arrived.
    Ack,
    /// Everything before `psn` arrived, and that one did not.
    Nak,
    /// Packets are being marked.
    Notice,
}

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RocePacket {
    pub(super) kind: RoceKind,
    /// The flow, by index, and which of its queue pairs.
    flow: u32,
    qp: u16,
    /// Number of the packet within the queue pair, from 0.
    psn: u32,
    /// Payload bytes.
    payload: u32,
}

/// The sending half of a queue pair.
#[derive(Debug)]
struct Qp {
    flow: u32,
    qp: u16,
    dst: u32,
    entropy: u32,
    flow_hash: u32,
    /// Payload bytes in all.
    bytes: u64,
    /// Packets in all.
    packets: u32,
    /// The oldest unacknowledged packet, the next one to send, and one past the newest ever sent.
    acked: u32,
    next: u32,
    newest: u32,
    pace_at: Time,
    /// Pacing, and nothing else, holds the next packet back.
    pacing: bool,
    rto_at: Time,
    /// It is in [`Roce::active`].
    active: bool,
    cc: Sender,
}

/// The receiving half.
#[derive(Debug)]
struct Rx {
    source: u32,
    flow: u32,
    qp: u16,
    expected: u32,
    /// Packets since the last acknowledgement.
    unacked: u32,
    /// The gap was already complained of.
    complained: bool,
    state: RxFlow,
}

/// A host's queue pairs.
#[derive(Debug)]
pub(super) struct Roce {
    number: u32,
    parameters: Arc<RoceParameters>,
    qps: Vec<Qp>,
    /// Where a flow's queue pairs are in `qps`.
    of_flow: HashMap<u32, u32>,
    /// Queue pairs that may have something to send, in turn.
    active: VecDeque<u32>,
    /// Queue pairs that are not done.
    open: Vec<u32>,
    rx: Vec<Rx>,
    rx_of: HashMap<(u32, u16), u32>,
    receiver: Receiver,
    control: VecDeque<(u32, RocePacket)>,
    rng: Rng,
    acks: u64,
    naks: u64,
}

impl Qp {
    const fn payload(&self, psn: u32, full: u32) -> u32 {
        let rest = self.bytes - psn as u64 * full as u64;
        // At most `full`.
        if rest < full as u64 { rest as u32 } else { full }
    }

    const fn done(&self) -> bool {
        self.acked == self.packets
    }

    /// Nominal bytes in flight, about.
    const fn in_flight(&self, mtu: u32) -> u64 {
        (self.next - self.acked) as u64 * mtu as u64
    }
}

impl Roce {
    pub(super) fn new(number: u32, parameters: Arc<RoceParameters>, seed: u64) -> Self {
        Self {
            number,
            qps: Vec::new(),
            of_flow: HashMap::new(),
            active: VecDeque::new(),
            open: Vec::new(),
            rx: Vec::new(),
            rx_of: HashMap::new(),
            receiver: Receiver::new(&parameters.receiver),
            control: VecDeque::new(),
            rng: Rng::new(seed),
            acks: 0,
            naks: 0,
            parameters,
        }
    }

    pub(super) fn start(
        &mut self,
        now: Picos,
        index: u32,
        _connection: u64,
        flow: &mut Running,
    ) -> bool {
        let time = now.time();
        let parameters = Arc::clone(&self.parameters);
        let full = u64::from(parameters.sizes.mtu - parameters.sizes.header);
        // No queue pair is left without a byte.
        let qps = u64::from(parameters.qps).min(flow.bytes.div_ceil(full)).max(1);
        flow.context = self.qps.len() as u32;
        self.of_flow.insert(index, flow.context);
        flow.unsent = 0;
        for qp in 0..qps {
            let bytes = flow.bytes / qps + u64::from(qp < flow.bytes % qps);
            let Ok(packets) = u32::try_from(bytes.div_ceil(full)) else { return false };
            let mut cc = Sender::new(&parameters.sender, time);
            cc.on_event(time, FlowEvent::Opened { bytes: Some(bytes) });
            let place = self.qps.len() as u32;
            self.qps.push(Qp {
                flow: index,
                // At most as many as the parameter says.
                qp: qp as u16,
                dst: flow.dst,
                entropy: self.rng.next_u32() & 0xffff,
                flow_hash: hash(hash(self.number, flow.dst), index),
                bytes,
                packets,
                acked: 0,
                next: 0,
                newest: 0,
                pace_at: time,
                pacing: false,
                rto_at: Time::NEVER,
                active: true,
                cc,
            });
            self.active.push_back(place);
            self.open.push(place);
        }
        true
    }

    pub(super) fn receive(
        &mut self,
        now: Picos,
        source: u32,
        head: &Head,
        body: &Body,
        flows: &mut [Running],
        news: &mut Vec<News>,
    ) {
        let Body::Roce(packet) = body else { return };
        match packet.kind {
            // There is nothing to be made of a trimmed packet: the gap will show.
            RoceKind::Data { .. } if head.trimmed => {}
            RoceKind::Data { last } => self.data(now, source, head, packet, last, flows, news),
            RoceKind::Ack => self.acknowledged(now, packet, false, flows, news),
            RoceKind::Nak => self.acknowledged(now, packet, true, flows, news),
            RoceKind::Notice => {
                if let Some(place) = self.place(packet) {
                    let feedback =
                        Feedback { now: now.time(), kind: Kind::Notified, ..Feedback::default() };
                    self.qps[place as usize].cc.on_feedback(&feedback);
                }
            }
        }
    }

    fn place(&self, packet: &RocePacket) -> Option<u32> {
        let first = self.of_flow.get(&packet.flow)?;
        Some(first + u32::from(packet.qp))
    }

    #[allow(clippy::too_many_arguments)] // all of it is the packet
    fn data(
        &mut self,
        now: Picos,
        source: u32,
        head: &Head,
        packet: &RocePacket,
        last: bool,
        flows: &mut [Running],
        news: &mut Vec<News>,
    ) {
        let key = (packet.flow, packet.qp);
        let place = match self.rx_of.get(&key) {
            Some(&place) => place,
            None => {
                let place = self.rx.len() as u32;
                self.rx.push(Rx {
                    source,
                    flow: packet.flow,
                    qp: packet.qp,
                    expected: 0,
                    unacked: 0,
                    complained: false,
                    state: RxFlow::new(place),
                });
                self.rx_of.insert(key, place);
                place
            }
        };
        let rx = &mut self.rx[place as usize];
        let duplicate = packet.psn < rx.expected;
        let meta =
            RxMeta { bytes: head.bytes, ecn: head.ce, duplicate, source, ..RxMeta::default() };
        self.receiver.on_rx(now.time(), &mut rx.state, &meta);
        let mut answer = None;
        if packet.psn == rx.expected {
            rx.expected += 1;
            rx.complained = false;
            rx.unacked += 1;
            let flow = &mut flows[packet.flow as usize];
            flow.received += u64::from(packet.payload);
            if flow.received == flow.bytes {
                flow.arrived = now;
                news.push(News::Arrived(packet.flow));
            }
            if last || rx.unacked >= self.parameters.ack_packets {
                answer = Some(RoceKind::Ack);
            }
        } else if duplicate {
            answer = Some(RoceKind::Ack);
        } else if !rx.complained {
            rx.complained = true;
            answer = Some(RoceKind::Nak);
        }
        if let Some(kind) = answer {
            rx.unacked = 0;
            self.acks += u64::from(kind == RoceKind::Ack);
            self.naks += u64::from(kind == RoceKind::Nak);
            let answer = RocePacket { kind, psn: rx.expected, payload: 0, ..*packet };
            self.control.push_back((source, answer));
        }
    }

    fn acknowledged(
        &mut self,
        now: Picos,
        packet: &RocePacket,
        gap: bool,
        flows: &mut [Running],
        news: &mut Vec<News>,
    ) {
        let Some(place) = self.place(packet) else { return };
        let sizes = self.parameters.sizes;
        let full = sizes.mtu - sizes.header;
        let qp = &mut self.qps[place as usize];
        // One that an earlier go-back made meaningless.
        if packet.psn < qp.acked || packet.psn > qp.newest {
            return;
        }
        let packets = packet.psn - qp.acked;
        let time = now.time();
        if packets > 0 {
            let payload: u64 =
                (qp.acked..packet.psn).map(|psn| u64::from(qp.payload(psn, full))).sum();
            qp.acked = packet.psn;
            qp.next = qp.next.max(qp.acked);
            qp.rto_at =
                if qp.next == qp.acked { Time::NEVER } else { time + self.parameters.rto.span() };
            qp.cc.on_feedback(&Feedback {
                now: time,
                bytes: u32::try_from(u64::from(packets) * u64::from(sizes.mtu)).unwrap_or(u32::MAX),
                packets: u16::try_from(packets).unwrap_or(u16::MAX),
                in_flight: qp.in_flight(sizes.mtu),
                ..Feedback::default()
            });
            let flow = &mut flows[packet.flow as usize];
            flow.acked += payload;
            if flow.acked == flow.bytes {
                flow.done = now;
                news.push(News::Done(packet.flow));
            }
        }
        if gap {
            qp.next = qp.acked;
        }
        let done = qp.done();
        if done {
            qp.cc.on_event(time, FlowEvent::Closed);
            self.open.retain(|&other| other != place);
        } else {
            self.activate(place);
        }
    }

    fn activate(&mut self, place: u32) {
        let qp = &mut self.qps[place as usize];
        if !qp.active {
            qp.active = true;
            self.active.push_back(place);
        }
    }

    pub(super) fn attend(&mut self, now: Picos, _flows: &mut [Running], _news: &mut Vec<News>) {
        while let Some(action) = self.receiver.poll(now.time()) {
            if let ReceiverAction::Notify { flow } = action
                && let Some(rx) = self.rx.get(flow as usize)
            {
                let notice = RocePacket {
                    kind: RoceKind::Notice,
                    flow: rx.flow,
                    qp: rx.qp,
                    psn: rx.expected,
                    payload: 0,
                };
                self.control.push_back((rx.source, notice));
            }
        }
    }

    pub(super) fn eager(&self) -> bool {
        !self.control.is_empty() || !self.active.is_empty()
    }

    pub(super) fn next(
        &mut self,
        now: Picos,
        sizes: Sizes,
        paused: bool,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        if let Some((dst, packet)) = self.control.pop_front() {
            let head = Head {
                dst,
                flow: hash(self.number, dst),
                entropy: packet.flow ^ u32::from(packet.qp),
                bytes: sizes.control,
                class: Class::Control,
                ..Head::default()
            };
            return Some((head, Body::Roce(packet)));
        }
        if paused {
            return None;
        }
        while let Some(place) = self.active.pop_front() {
            let packet = self.pull(now.time(), place, sizes, flows);
            if packet.is_some() {
                self.active.push_back(place);
                return packet;
            }
            self.qps[place as usize].active = false;
        }
        None
    }

    fn pull(
        &mut self,
        now: Time,
        place: u32,
        sizes: Sizes,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        let line = self.parameters.line;
        let qp = &mut self.qps[place as usize];
        qp.pacing = qp.next < qp.packets && now < qp.pace_at;
        if qp.pacing || qp.next == qp.packets {
            return None;
        }
        let payload = qp.payload(qp.next, sizes.mtu - sizes.header);
        let bytes = payload + sizes.header;
        let budget = qp.cc.budget(now);
        let in_flight = qp.in_flight(sizes.mtu);
        if in_flight > 0 && !budget.allows(now, in_flight, bytes) {
            return None;
        }
        let psn = qp.next;
        qp.next += 1;
        let again = psn < qp.newest;
        let flow = &mut flows[qp.flow as usize];
        flow.retransmitted += u64::from(again);
        flow.packets += u64::from(!again);
        qp.newest = qp.newest.max(qp.next);
        let last = qp.next == qp.packets;
        qp.cc.on_send(
            now,
            &Sending { bytes, retransmitted: again, app_limited: last, ..Sending::default() },
        );
        let rate = budget.rate.unwrap_or(line).min(line);
        qp.pace_at = qp.pace_at.max(now) + rate.transmit_time(bytes.into());
        if qp.rto_at == Time::NEVER {
            qp.rto_at = now + self.parameters.rto.span();
        }
        let head = Head {
            dst: qp.dst,
            flow: qp.flow_hash,
            entropy: qp.entropy,
            bytes,
            class: Class::Data,
            ..Head::default()
        };
        let kind = RoceKind::Data { last };
        Some((head, Body::Roce(RocePacket { kind, flow: qp.flow, qp: qp.qp, psn, payload })))
    }

    pub(super) fn poll_timeout(&self) -> Option<Picos> {
        let of_qps = self.open.iter().map(|&place| {
            let qp = &self.qps[place as usize];
            let pace = if qp.pacing { qp.pace_at } else { Time::NEVER };
            qp.rto_at.min(pace).min(qp.cc.next_timer().unwrap_or(Time::NEVER))
        });
        let when = of_qps.chain(self.receiver.next_timer()).min()?;
        (when != Time::NEVER).then(|| Picos::from_time(when))
    }

    pub(super) fn handle_timeout(&mut self, now: Picos, _flows: &mut [Running]) {
        let time = now.time();
        for at in 0..self.open.len() {
            let place = self.open[at];
            let qp = &mut self.qps[place as usize];
            if qp.cc.next_timer().is_some_and(|when| when <= time) {
                qp.cc.on_timer(time);
            }
            if qp.rto_at <= time {
                let bytes = self.parameters.sizes.mtu;
                qp.cc.on_feedback(&Feedback {
                    now: time,
                    kind: Kind::TimedOut,
                    bytes,
                    packets: 1,
                    ..Feedback::default()
                });
                qp.next = qp.acked;
                qp.rto_at = time + self.parameters.rto.span();
                self.activate(place);
            }
            let qp = &mut self.qps[place as usize];
            if qp.pacing && qp.pace_at <= time {
                qp.pacing = false;
                self.activate(place);
            }
        }
    }

    /// A rate-based control has no window; bytes in flight of the flow's first queue pair.
    pub(super) fn window(&self, context: u32) -> (u64, u64) {
        let Some(qp) = self.qps.get(context as usize) else { return (0, 0) };
        let cwnd = qp.cc.metrics().cwnd.unwrap_or(0);
        (cwnd, qp.in_flight(self.parameters.sizes.mtu))
    }

    pub(super) fn answers(&self) -> (u64, u64) {
        (self.acks, self.naks)
    }
}
