//! The baseline of the papers: RoCEv2, that is, queue pairs of one path each, go-back-N, and a
//! congestion control of `squall-cc` (DCQCN). The baseline is meant for a lossless network.
//!
//! A receiver accepts packets in order only. It acknowledges every few packets, and sends one
//! negative acknowledgement (NAK) for each gap. The sender then starts again from the gap, as it
//! does when its timer expires (InfiniBand specification, section 9.7.5).

mod qp;

use std::collections::HashMap;
use std::sync::Arc;

use super::flows::RunningFlow;
use super::host::{Adapter, Allowance, Sizes, Work};
use super::outbox::Lane;
use super::packet::Body;
use crate::Picos;
use crate::model::PacketHeader;
use qp::Qp;
use squall_base::{Rate, Rng, Time};
use squall_cc::{
    Feedback, FeedbackKind, Hops, ReceivedPacket, Receiver, ReceiverAction, ReceiverCc,
    ReceiverConfig, RxFlow, SenderCc, SenderConfig,
};

/// Parameters that the RoCEv2 transports of all hosts share.
#[derive(Debug)]
pub(super) struct RoceParameters {
    pub(super) sender: SenderConfig,
    pub(super) receiver: ReceiverConfig,
    pub(super) line: Rate,
    pub(super) qps: u16,
    /// True if queue pairs stay open when a flow is done, for the next flow to the same host.
    pub(super) keep: bool,
    pub(super) rto: Picos,
    /// Number of packets after which the receiver sends an acknowledgement.
    pub(super) ack_packets: u32,
    pub(super) sizes: Sizes,
}

/// Kind of a RoCEv2 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoceKind {
    /// A data packet.
    Data {
        /// True if the packet is the last one of a flow on this queue pair.
        last: bool,
    },
    /// Acknowledgement: everything before `psn` arrived.
    Ack,
    /// Negative acknowledgement: everything before `psn` arrived, and packet `psn` did not.
    Nak,
    /// Congestion notification packet (CNP): the receiver asks the sender for a lower rate, because
    /// marked packets arrive.
    Notice,
}

/// A packet of the RoCEv2 baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RocePacket {
    pub(super) kind: RoceKind,
    /// Connection, named by the first flow it carried, and (next field) the number of the queue
    /// pair in it.
    connection: u32,
    qp: u16,
    /// Index of the flow that the packet belongs to.
    pub(super) flow: u32,
    /// Number of the packet within the queue pair, from 0.
    psn: u32,
    /// Payload bytes of the packet.
    payload: u32,
}

/// The receiving half of a queue pair.
#[derive(Debug)]
struct Rx {
    source: u32,
    connection: u32,
    qp: u16,
    expected: u32,
    /// Packets that arrived since the receiver last acknowledged any.
    unacked: u32,
    /// True if a NAK was already sent for the current gap.
    nak_sent: bool,
    state: RxFlow,
}

/// The queue pairs of a host: the sending and the receiving halves.
#[derive(Debug)]
pub(super) struct Roce {
    parameters: Arc<RoceParameters>,
    qps: Vec<Qp>,
    /// Index in `qps` of the first queue pair of each connection.
    of_connection: HashMap<u32, u32>,
    /// Connections that stay open: the first flow of each, and the queue pair whose turn it is to
    /// take a small flow.
    kept: HashMap<u64, (u32, u16)>,
    /// Indices of the queue pairs that have something to send or to be acknowledged.
    open: Vec<u32>,
    rx: Vec<Rx>,
    rx_of: HashMap<(u32, u16), u32>,
    receiver: Receiver,
    rng: Rng,
    acks: u64,
    naks: u64,
}

impl Roce {
    pub(super) fn new(parameters: Arc<RoceParameters>, seed: u64) -> Self {
        Self {
            qps: Vec::new(),
            of_connection: HashMap::new(),
            kept: HashMap::new(),
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

    /// Returns the queue pair that a packet belongs to.
    fn place(&self, packet: &RocePacket) -> Option<u32> {
        let first = self.of_connection.get(&packet.connection)?;
        Some(first + u32::from(packet.qp))
    }

    /// Returns the receiving half of a packet's queue pair, and creates it if it is new.
    fn rx_place(&mut self, source: u32, packet: &RocePacket) -> u32 {
        let RocePacket { connection, qp, .. } = *packet;
        *self.rx_of.entry((connection, qp)).or_insert_with(|| {
            let place = self.rx.len() as u32;
            let state = RxFlow::new(place);
            let (expected, unacked, nak_sent) = (0, 0, false);
            self.rx.push(Rx { source, connection, qp, expected, unacked, nak_sent, state });
            place
        })
    }

    /// Opens `qps` queue pairs to host `dst`, of which flow `index` is the first flow.
    fn open(&mut self, index: u32, dst: u32, qps: u16, work: &Work<'_>) {
        self.of_connection.insert(index, self.qps.len() as u32);
        for qp in 0..qps {
            let lane = Lane::new(work.outbox.host(), dst, index);
            let entropy = self.rng.next_u32() & 0xffff;
            let sender = &self.parameters.sender;
            self.qps.push(Qp::new(work.now.time(), sender, (index, qp), lane, entropy));
        }
    }

    /// Handles a data packet; `last` is true if it ends a flow's share of the queue pair.
    fn data(
        &mut self,
        source: u32,
        header: &PacketHeader,
        packet: &RocePacket,
        last: bool,
        work: &mut Work<'_>,
    ) {
        let place = self.rx_place(source, packet);
        let rx = &mut self.rx[place as usize];
        let duplicate = packet.psn < rx.expected;
        let meta = ReceivedPacket {
            bytes: header.bytes,
            ecn: header.ce,
            duplicate,
            source,
            ..ReceivedPacket::default()
        };
        self.receiver.on_rx(work.now.time(), &mut rx.state, &meta);
        let mut answer = None;
        if packet.psn == rx.expected {
            rx.expected += 1;
            rx.nak_sent = false;
            rx.unacked += 1;
            work.arrived(packet.flow, packet.payload);
            if last || rx.unacked >= self.parameters.ack_packets {
                answer = Some(RoceKind::Ack);
            }
        } else if duplicate {
            answer = Some(RoceKind::Ack);
        } else if !rx.nak_sent {
            rx.nak_sent = true;
            answer = Some(RoceKind::Nak);
        }
        if let Some(kind) = answer {
            rx.unacked = 0;
            self.acks += u64::from(kind == RoceKind::Ack);
            self.naks += u64::from(kind == RoceKind::Nak);
            answer_with(work, source, RocePacket { kind, psn: rx.expected, payload: 0, ..*packet });
        }
    }

    /// Handles an acknowledgement: all packets before its number arrived, and the packet of that
    /// number did not if there is a `gap`.
    fn acknowledged(&mut self, packet: &RocePacket, gap: bool, work: &mut Work<'_>) {
        let Some(place) = self.place(packet) else { return };
        let (sizes, rto) = (self.parameters.sizes, self.parameters.rto.span());
        let qp = &mut self.qps[place as usize];
        if !qp.acknowledged(packet.psn, gap, sizes, rto, work) {
            return;
        }
        if qp.is_done() {
            qp.notify_idle(work.now.time(), self.parameters.keep);
            self.open.retain(|&other| other != place);
        } else {
            work.outbox.activate(place, &mut qp.lane);
        }
    }
}

/// Sends a packet without data to host `dst`.
fn answer_with(work: &mut Work<'_>, dst: u32, packet: RocePacket) {
    work.outbox.answer(
        dst,
        packet.connection ^ u32::from(packet.qp),
        Body::Roce(packet),
        Hops::NONE,
    );
}

impl Adapter for Roce {
    /// Divides a flow among the queue pairs of its connection. If each flow has its own connection,
    /// it gets no more queue pairs than packets; where connections stay open, small flows use the
    /// queue pairs in turn.
    fn start(&mut self, index: u32, connection: u64, work: &mut Work<'_>) -> bool {
        let RunningFlow { bytes, dst, .. } = work.flows[index as usize];
        let full = self.parameters.sizes.payload();
        // The number of shares is at least one, and at most the configured number of queue pairs.
        let parts = u64::from(self.parameters.qps).min(bytes.div_ceil(full.into())).max(1) as u16;
        let (first, turn) = if self.parameters.keep {
            let qps = self.parameters.qps;
            let known = self.kept.get(&connection).copied();
            let (first, turn) = known.unwrap_or_else(|| {
                self.open(index, dst, qps, work);
                (index, 0)
            });
            self.kept.insert(connection, (first, (turn + parts) % qps));
            (first, turn)
        } else {
            self.open(index, dst, parts, work);
            (index, 0)
        };
        let base = self.of_connection[&first];
        let flow = &mut work.flows[index as usize];
        flow.context = base + u32::from(turn);
        flow.unsent = 0;
        for part in 0..parts {
            let share =
                bytes / u64::from(parts) + u64::from(u64::from(part) < bytes % u64::from(parts));
            let place = base + u32::from((turn + part) % self.parameters.qps);
            let qp = &mut self.qps[place as usize];
            let idle = qp.is_done();
            if !qp.begin(work.now.time(), index, share, full) {
                return false;
            }
            if idle {
                self.open.push(place);
            }
            work.outbox.activate(place, &mut qp.lane);
        }
        true
    }

    fn receive(&mut self, source: u32, header: &PacketHeader, body: &Body, work: &mut Work<'_>) {
        let Body::Roce(packet) = body else { return };
        match packet.kind {
            // A trimmed packet is ignored: the receiver will detect the gap.
            RoceKind::Data { .. } if header.trimmed => {}
            RoceKind::Data { last } => self.data(source, header, packet, last, work),
            RoceKind::Ack => self.acknowledged(packet, false, work),
            RoceKind::Nak => self.acknowledged(packet, true, work),
            RoceKind::Notice => {
                if let Some(place) = self.place(packet) {
                    let (now, kind) = (work.now.time(), FeedbackKind::Notified);
                    let feedback = Feedback { now, kind, ..Feedback::default() };
                    self.qps[place as usize].cc.on_feedback(&feedback);
                }
            }
        }
    }

    fn handle_timeout(&mut self, work: &mut Work<'_>) {
        let (time, rto) = (work.now.time(), self.parameters.rto.span());
        for &place in &self.open {
            let qp = &mut self.qps[place as usize];
            if qp.handle_timeout(time, self.parameters.sizes, rto) {
                work.outbox.activate(place, &mut qp.lane);
            }
        }
    }

    fn collect_output(&mut self, work: &mut Work<'_>) {
        while let Some(action) = self.receiver.poll(work.now.time()) {
            if let ReceiverAction::Notify { flow } = action
                && let Some(rx) = self.rx.get(flow as usize)
            {
                let &Rx { source, connection, qp, expected: psn, .. } = rx;
                let (kind, flow, payload) = (RoceKind::Notice, connection, 0);
                let notice = RocePacket { kind, connection, qp, flow, psn, payload };
                answer_with(work, source, notice);
            }
        }
    }

    fn next_packet(
        &mut self,
        now: Time,
        context: u32,
        sizes: Sizes,
        flows: &mut [RunningFlow],
    ) -> Option<(PacketHeader, Body)> {
        let (line, rto) = (self.parameters.line, self.parameters.rto.span());
        let qp = &mut self.qps[context as usize];
        let (packet, again) = qp.next_packet(now, sizes, line, rto)?;
        let flow = &mut flows[packet.flow as usize];
        flow.retransmitted += u64::from(again);
        flow.packets += u64::from(!again);
        let bytes = packet.payload + sizes.header;
        Some((qp.lane.header(qp.entropy, bytes), Body::Roce(packet)))
    }

    fn lane(&mut self, context: u32) -> &mut Lane {
        &mut self.qps[context as usize].lane
    }

    fn poll_timeout(&self) -> Option<Picos> {
        let of_qps = self.open.iter().map(|&place| self.qps[place as usize].poll_timeout());
        let when = of_qps.chain(self.receiver.next_timer()).min()?;
        (when != Time::NEVER).then(|| Picos::from_time(when))
    }

    /// Returns the sending limits of the flow's first queue pair.
    fn allowance(&self, context: u32) -> Allowance {
        let Some(qp) = self.qps.get(context as usize) else { return Allowance::default() };
        let metrics = qp.cc.metrics();
        Allowance {
            window: metrics.cwnd.unwrap_or(0),
            in_flight: qp.in_flight(self.parameters.sizes.mtu),
            rate: metrics.rate.map_or(0, |rate| rate.0),
        }
    }

    fn answers(&self) -> (u64, u64) {
        (self.acks, self.naks)
    }

    fn prefetch(&self) -> u64 {
        0
    }
}
