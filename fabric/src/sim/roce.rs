//! The baseline of the papers: RoCEv2, that is, queue pairs of one path each, go-back-N, and a congestion
//! control of `squall-cc` (DCQCN). Meant for a lossless network.
//!
//! A receiver takes packets in order only. It acknowledges every few packets, and says "not this one"
//! (NAK) once for each gap; the sender then starts again from there, as it does when its timer fires
//! (InfiniBand specification, section 9.7.5).

use std::collections::HashMap;
use std::sync::Arc;

use super::flows::Running;
use super::host::{Adapter, Sizes, Work};
use super::outbox::Lane;
use super::packet::Body;
use crate::Picos;
use crate::base::{Rate, Rng, Time};
use crate::cc::{
    Feedback, FlowEvent, Kind, Receiver, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow,
    RxMeta, Sender, SenderCc, SenderConfig, Sending,
};
use crate::model::Head;

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
    entropy: u32,
    lane: Lane,
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
    parameters: Arc<RoceParameters>,
    qps: Vec<Qp>,
    /// Where a flow's queue pairs are in `qps`.
    of_flow: HashMap<u32, u32>,
    /// Queue pairs that are not done.
    open: Vec<u32>,
    rx: Vec<Rx>,
    rx_of: HashMap<(u32, u16), u32>,
    receiver: Receiver,
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
    pub(super) fn new(parameters: Arc<RoceParameters>, seed: u64) -> Self {
        Self {
            qps: Vec::new(),
            of_flow: HashMap::new(),
            open: Vec::new(),
            rx: Vec::new(),
            rx_of: HashMap::new(),
            receiver: Receiver::new(&parameters.receiver),
            rng: Rng::new(seed),
            acks: 0,
            naks: 0,
            parameters,
        }
    }

    /// The queue pair that a packet is of.
    fn place(&self, packet: &RocePacket) -> Option<u32> {
        let first = self.of_flow.get(&packet.flow)?;
        Some(first + u32::from(packet.qp))
    }

    /// The receiving half of a packet's queue pair.
    fn rx_place(&mut self, source: u32, packet: &RocePacket) -> u32 {
        let RocePacket { flow, qp, .. } = *packet;
        *self.rx_of.entry((flow, qp)).or_insert_with(|| {
            let place = self.rx.len() as u32;
            let state = RxFlow::new(place);
            let (expected, unacked, complained) = (0, 0, false);
            self.rx.push(Rx { source, flow, qp, expected, unacked, complained, state });
            place
        })
    }

    /// Data arrived; `last` if nothing follows it.
    fn data(
        &mut self,
        source: u32,
        head: &Head,
        packet: &RocePacket,
        last: bool,
        work: &mut Work<'_>,
    ) {
        let place = self.rx_place(source, packet);
        let rx = &mut self.rx[place as usize];
        let duplicate = packet.psn < rx.expected;
        let meta =
            RxMeta { bytes: head.bytes, ecn: head.ce, duplicate, source, ..RxMeta::default() };
        self.receiver.on_rx(work.now.time(), &mut rx.state, &meta);
        let mut answer = None;
        if packet.psn == rx.expected {
            rx.expected += 1;
            rx.complained = false;
            rx.unacked += 1;
            work.arrived(packet.flow, packet.payload);
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
            answer_with(work, source, RocePacket { kind, psn: rx.expected, payload: 0, ..*packet });
        }
    }

    /// All before the packet's number arrived; that one did not if there is a `gap`.
    fn acknowledged(&mut self, packet: &RocePacket, gap: bool, work: &mut Work<'_>) {
        let Some(place) = self.place(packet) else { return };
        let sizes = self.parameters.sizes;
        let qp = &mut self.qps[place as usize];
        // One that an earlier go-back made meaningless.
        if packet.psn < qp.acked || packet.psn > qp.newest {
            return;
        }
        let packets = packet.psn - qp.acked;
        let time = work.now.time();
        if packets > 0 {
            let payload: u64 =
                (qp.acked..packet.psn).map(|psn| u64::from(qp.payload(psn, sizes.payload()))).sum();
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
            work.acknowledged(packet.flow, payload);
        }
        if gap {
            qp.next = qp.acked;
        }
        if qp.done() {
            qp.cc.on_event(time, FlowEvent::Closed);
            self.open.retain(|&other| other != place);
        } else {
            work.outbox.activate(place, &mut qp.lane);
        }
    }
}

/// Sends a packet without data to host `dst`.
fn answer_with(work: &mut Work<'_>, dst: u32, packet: RocePacket) {
    work.outbox.answer(dst, packet.flow ^ u32::from(packet.qp), Body::Roce(packet));
}

impl Adapter for Roce {
    /// Each flow has queue pairs of its own.
    fn start(&mut self, index: u32, _connection: u64, work: &mut Work<'_>) -> bool {
        let time = work.now.time();
        let flow = &mut work.flows[index as usize];
        let parameters = Arc::clone(&self.parameters);
        let full = u64::from(parameters.sizes.payload());
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
            let mut lane = Lane::new(work.outbox.host(), flow.dst, index);
            work.outbox.activate(place, &mut lane);
            self.open.push(place);
            self.qps.push(Qp {
                flow: index,
                // At most as many as the parameter says.
                qp: qp as u16,
                entropy: self.rng.next_u32() & 0xffff,
                lane,
                bytes,
                packets,
                acked: 0,
                next: 0,
                newest: 0,
                pace_at: time,
                pacing: false,
                rto_at: Time::NEVER,
                cc,
            });
        }
        true
    }

    fn receive(&mut self, source: u32, head: &Head, body: &Body, work: &mut Work<'_>) {
        let Body::Roce(packet) = body else { return };
        match packet.kind {
            // There is nothing to be made of a trimmed packet: the gap will show.
            RoceKind::Data { .. } if head.trimmed => {}
            RoceKind::Data { last } => self.data(source, head, packet, last, work),
            RoceKind::Ack => self.acknowledged(packet, false, work),
            RoceKind::Nak => self.acknowledged(packet, true, work),
            RoceKind::Notice => {
                if let Some(place) = self.place(packet) {
                    let (now, kind) = (work.now.time(), Kind::Notified);
                    let feedback = Feedback { now, kind, ..Feedback::default() };
                    self.qps[place as usize].cc.on_feedback(&feedback);
                }
            }
        }
    }

    fn handle_timeout(&mut self, work: &mut Work<'_>) {
        let time = work.now.time();
        for &place in &self.open {
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
                work.outbox.activate(place, &mut qp.lane);
            }
            if qp.pacing && qp.pace_at <= time {
                qp.pacing = false;
                work.outbox.activate(place, &mut qp.lane);
            }
        }
    }

    fn attend(&mut self, work: &mut Work<'_>) {
        while let Some(action) = self.receiver.poll(work.now.time()) {
            if let ReceiverAction::Notify { flow } = action
                && let Some(rx) = self.rx.get(flow as usize)
            {
                let &Rx { source, flow, qp, expected: psn, .. } = rx;
                let kind = RoceKind::Notice;
                answer_with(work, source, RocePacket { kind, flow, qp, psn, payload: 0 });
            }
        }
    }

    fn pull(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [Running],
    ) -> Option<(Head, Body)> {
        let line = self.parameters.line;
        let qp = &mut self.qps[context as usize];
        qp.pacing = qp.next < qp.packets && now < qp.pace_at;
        if qp.pacing || qp.next == qp.packets {
            return None;
        }
        let payload = qp.payload(qp.next, sizes.payload());
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
        let kind = RoceKind::Data { last };
        let packet = RocePacket { kind, flow: qp.flow, qp: qp.qp, psn, payload };
        Some((qp.lane.head(qp.entropy, bytes), Body::Roce(packet)))
    }

    fn lane(&mut self, context: u32) -> &mut Lane {
        &mut self.qps[context as usize].lane
    }

    fn poll_timeout(&self) -> Option<Picos> {
        let of_qps = self.open.iter().map(|&place| {
            let qp = &self.qps[place as usize];
            let pace = if qp.pacing { qp.pace_at } else { Time::NEVER };
            qp.rto_at.min(pace).min(qp.cc.next_timer().unwrap_or(Time::NEVER))
        });
        let when = of_qps.chain(self.receiver.next_timer()).min()?;
        (when != Time::NEVER).then(|| Picos::from_time(when))
    }

    /// A rate-based control has no window; bytes in flight of the flow's first queue pair.
    fn window(&self, context: u32) -> (u64, u64) {
        let Some(qp) = self.qps.get(context as usize) else { return (0, 0) };
        let cwnd = qp.cc.metrics().cwnd.unwrap_or(0);
        (cwnd, qp.in_flight(self.parameters.sizes.mtu))
    }

    fn answers(&self) -> (u64, u64) {
        (self.acks, self.naks)
    }

    fn glance(&self) -> u64 {
        0
    }
}
