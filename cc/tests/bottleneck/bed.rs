//! A packet-level model of one congested port: flows with endless backlogs, one FIFO queue that
//! marks on dequeue (RED) and trims or drops when it is full, the receiver behind it.
//! Acknowledgements, refusals, grants and notifications go back without queueing; rate packets
//! neither queue nor use the line.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use squall_cc::base::{Rng, Span, Time};
use squall_cc::{
    AckSignals, Feedback, FeedbackExtension, FeedbackKind, FlowEvent, Hops, IntHop, LineShare,
    NetworkProfile, RatePacket, ReceivedPacket, Receiver, ReceiverAction, ReceiverCc,
    ReceiverConfig, RxFlow, Sender, SenderAction, SenderCc, SenderConfig, SentPacket, SpercLink,
    SpercLinkParameters,
};

/// Nominal bytes of every packet.
pub(crate) const MTU: u32 = 4096;
/// Bytes that a switch leaves of a trimmed packet.
const HEADER: u32 = 64;
/// Backlog that every flow reports.
const BACKLOG: u64 = 1 << 24;

/// One flow: when it starts and stops, and its unloaded round-trip time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowSpec {
    pub(crate) start: Time,
    pub(crate) stop: Time,
    pub(crate) base_rtt: Span,
}

/// The port and its flows.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Network profile of the flows; every link has its rate.
    pub(crate) network: NetworkProfile,
    /// Algorithm of all flows.
    pub(crate) cc: SenderConfig,
    pub(crate) flows: Vec<FlowSpec>,
    /// Seed of marks and jitter.
    pub(crate) seed: u64,
}

/// Results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes each flow got acknowledged in the measured interval.
    pub(crate) acked: Vec<u64>,
    /// Share of the line's capacity used in the measured interval.
    pub(crate) utilisation: f64,
    /// Mean queue in bytes, sampled at dequeue in the measured interval.
    pub(crate) mean_queue: u64,
    /// Largest queue in the whole run.
    pub(crate) max_queue: u64,
    /// Packets trimmed or dropped in the whole run, and in the measured interval.
    pub(crate) lost: (u64, u64),
    /// Samples every few microseconds: time, bytes queued, each flow's window in bytes.
    pub(crate) series: Vec<(Time, u64, Vec<u64>)>,
}

impl Outcome {
    /// Jain's index over the flows: `(sum x)^2 / (n sum x^2)`.
    pub(crate) fn jain(&self) -> f64 {
        let sum: f64 = self.acked.iter().map(|&x| x as f64).sum();
        let squares: f64 = self.acked.iter().map(|&x| (x as f64).powi(2)).sum();
        sum * sum / (self.acked.len() as f64 * squares)
    }
}

/// A packet, with the state that its sender keeps about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Packet {
    flow: usize,
    number: u64,
    sent: Time,
    /// Acknowledged bytes of the flow when it left.
    delivered: u64,
    demand: Option<u64>,
    /// Departure from the queue, the bytes that had departed by then, and the bytes that remained.
    left: (Time, u64, u64),
}

/// Contents of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AckContents {
    ecn: bool,
    credit: Option<u64>,
    share: Option<(u16, u16)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A flow joins.
    Open(usize),
    /// A flow may try to send.
    Wake(usize),
    /// A timer of a flow's congestion control may be due.
    Timer(usize),
    /// The receiver's timer may be due.
    ReceiverTimer,
    /// A packet reaches the queue.
    Arrive(Packet),
    /// The head of the queue departs.
    Depart,
    /// An acknowledgement reaches the sender.
    Ack(Packet, AckContents),
    /// A refusal reaches the sender.
    Nack(Packet),
    /// The answer to a probe reaches the sender; probes bypass the queue.
    Probed(usize),
    /// A request for credit reaches the receiver.
    Requested(usize, u64),
    /// A grant reaches the sender.
    Granted(usize, u64),
    /// A notification reaches the sender.
    Notified(usize),
    /// A rate packet reaches the port.
    Asked(usize),
    /// A rate packet is back at its sender.
    Rated(usize),
    /// A dropped packet's timer fired.
    TimedOut(Packet),
    /// Sample queue and windows.
    Sample,
}

struct Flow {
    cc: Sender,
    in_flight: u64,
    /// Time at which the sender's own link is free, and at which its rate allows the next packet.
    link_free: Time,
    pace_free: Time,
    /// The flow's rate packet under way.
    asks: RatePacket,
    /// Earliest scheduled wake-up and timer.
    wake_at: Time,
    timer_at: Time,
    sent: u64,
    delivered: u64,
    /// The first packet of this round.
    round: u64,
    /// Bytes acknowledged in the measured interval.
    acked: u64,
}

struct Run<'a> {
    scene: &'a Scene,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    flows: Vec<Flow>,
    /// The port's state of flows that ask for a rate.
    link: SpercLink,
    receiver: Receiver,
    rx: Vec<RxFlow>,
    receiver_at: Time,
    queue: VecDeque<Packet>,
    queued: u64,
    /// Bytes that left the queue.
    departed: u64,
    rng: Rng,
    bdp: u64,
    measure_from: Time,
    samples: (u64, u64),
    outcome: Outcome,
}

/// Runs `scene` until `end`, measuring from `from`.
pub(crate) fn run(scene: &Scene, from: Time, end: Time) -> Outcome {
    let flows = scene.flows.iter().map(|spec| Flow {
        cc: Sender::new(&scene.cc, spec.start),
        in_flight: 0,
        link_free: spec.start,
        pace_free: spec.start,
        asks: RatePacket::default(),
        wake_at: Time::NEVER,
        timer_at: Time::NEVER,
        sent: 0,
        delivered: 0,
        round: 0,
        acked: 0,
    });
    let mut run = Run {
        scene,
        events: BinaryHeap::new(),
        order: 0,
        flows: flows.collect(),
        link: SpercLink::new(
            0.96 * scene.network.line.0 as f64,
            SpercLinkParameters { round: scene.network.base_rtt * 2, forget: Span::ZERO },
        ),
        receiver: Receiver::new(&scene.cc.receiver(&scene.network)),
        rx: (0u32..).take(scene.flows.len()).map(RxFlow::new).collect(),
        receiver_at: Time::NEVER,
        queue: VecDeque::new(),
        queued: 0,
        departed: 0,
        rng: Rng::new(scene.seed),
        bdp: scene.network.line.bytes_in(scene.network.base_rtt),
        measure_from: from,
        samples: (0, 0),
        outcome: Outcome::default(),
    };
    for (flow, spec) in scene.flows.iter().enumerate() {
        run.at(spec.start, Event::Open(flow));
    }
    run.at(Time::ZERO, Event::Sample);
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        if now >= end {
            run.at(now, event);
            break;
        }
        run.step(now, event);
    }
    run.conserves();
    let mut outcome = run.outcome;
    outcome.acked = run.flows.iter().map(|flow| flow.acked).collect();
    let sum: u64 = outcome.acked.iter().sum();
    outcome.utilisation = sum as f64 / scene.network.line.bytes_in(end.since(from)) as f64;
    outcome.mean_queue = run.samples.0 / run.samples.1.max(1);
    outcome
}

impl Run<'_> {
    fn at(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// Checks that the bytes in flight are exactly those of the packets under way.
    fn conserves(&self) {
        let mut somewhere = vec![0; self.flows.len()];
        self.queue.iter().for_each(|packet| somewhere[packet.flow] += u64::from(MTU));
        for Reverse((_, _, event)) in &self.events {
            if let Event::Arrive(packet)
            | Event::Ack(packet, ..)
            | Event::Nack(packet)
            | Event::TimedOut(packet) = event
            {
                somewhere[packet.flow] += u64::from(MTU);
            }
        }
        let in_flight: Vec<_> = self.flows.iter().map(|flow| flow.in_flight).collect();
        assert_eq!(in_flight, somewhere, "bytes in flight that are nowhere");
    }

    fn base(&self, flow: usize) -> Span {
        self.scene.flows[flow].base_rtt
    }

    fn step(&mut self, now: Time, event: Event) {
        match event {
            Event::Open(flow) => {
                self.flows[flow].cc.on_event(now, FlowEvent::Opened { flow: 0 });
                self.after(now, flow);
            }
            Event::Wake(flow) => {
                self.flows[flow].wake_at = Time::NEVER;
                self.send(now, flow);
            }
            Event::Timer(flow) => {
                let it = &mut self.flows[flow];
                it.timer_at = Time::NEVER;
                if it.cc.next_timer().is_some_and(|due| due <= now) {
                    it.cc.on_timer(now);
                }
                self.after(now, flow);
            }
            Event::ReceiverTimer => {
                self.receiver_at = Time::NEVER;
                self.poll_receiver(now);
            }
            Event::Arrive(packet) => self.enqueue(now, packet),
            Event::Depart => self.dequeue(now),
            Event::Ack(packet, contents) => self.acknowledged(now, packet, contents),
            Event::Nack(packet) => {
                let kind = FeedbackKind::Nacked { trimmed: true, last_hop: false };
                self.lost(now, packet, kind);
            }
            Event::TimedOut(packet) => self.lost(now, packet, FeedbackKind::TimedOut),
            Event::Probed(flow) => {
                let (kind, rtt) = (FeedbackKind::ProbeAnswered, Some(self.base(flow)));
                self.report(now, flow, &Feedback { kind, rtt, ..Feedback::default() });
            }
            Event::Requested(flow, target) => {
                self.receiver.on_request(now, &mut self.rx[flow], target);
                self.poll_receiver(now);
            }
            Event::Granted(flow, credit) => {
                let (kind, extension) = (FeedbackKind::Control, FeedbackExtension::Credit(credit));
                self.report(now, flow, &Feedback { kind, extension, ..Feedback::default() });
            }
            Event::Notified(flow) => {
                let kind = FeedbackKind::Notified;
                self.report(now, flow, &Feedback { kind, ecn: true, ..Feedback::default() });
            }
            Event::Asked(flow) => {
                self.link.visit(now, 1, &mut self.flows[flow].asks);
                self.at(now + self.base(flow) / 2, Event::Rated(flow));
            }
            Event::Rated(flow) => {
                let answer = self.flows[flow].asks;
                let (kind, extension) = (FeedbackKind::Control, FeedbackExtension::Rates(&answer));
                self.report(now, flow, &Feedback { kind, extension, ..Feedback::default() });
            }
            Event::Sample => {
                let window = |flow: &Flow| flow.cc.metrics().cwnd.unwrap_or(0);
                let windows = self.flows.iter().map(window).collect();
                self.outcome.series.push((now, self.queued, windows));
                self.at(now + self.scene.network.base_rtt / 2, Event::Sample);
            }
        }
    }

    fn acknowledged(&mut self, now: Time, packet: Packet, contents: AckContents) {
        let AckContents { ecn, credit, share } = contents;
        let measured = now >= self.measure_from;
        let it = &mut self.flows[packet.flow];
        it.acked += if measured { u64::from(MTU) } else { 0 };
        it.delivered += u64::from(MTU);
        it.in_flight -= u64::from(MTU);
        let round_end = packet.number >= it.round;
        if round_end {
            it.round = it.sent;
        }
        let (at, tx_bytes, queue) = packet.left;
        let queue = u32::try_from(queue).expect("a short queue");
        let record = IntHop { hop: 1, at, tx_bytes, queue, line: self.scene.network.line };
        let telemetry = Hops::from_iter([record]);
        let records = FeedbackExtension::Telemetry(&telemetry);
        let share = share.and_then(|(senders, share)| LineShare::new(senders, share));
        let share = share.map(FeedbackExtension::Share);
        let feedback = Feedback {
            kind: FeedbackKind::Acked,
            bytes: MTU,
            packets: 1,
            ecn,
            marked: u16::from(ecn),
            rtt: Some(now.since(packet.sent)),
            delivered: Some(it.delivered - packet.delivered),
            extension: credit.map(FeedbackExtension::Credit).or(share).unwrap_or(records),
            round_end,
            ..Feedback::default()
        };
        self.report(now, packet.flow, &feedback);
    }

    fn lost(&mut self, now: Time, packet: Packet, kind: FeedbackKind) {
        self.flows[packet.flow].in_flight -= u64::from(MTU);
        let feedback = Feedback { kind, bytes: MTU, packets: 1, ..Feedback::default() };
        self.report(now, packet.flow, &feedback);
    }

    fn report(&mut self, now: Time, flow: usize, signals: &Feedback<'_>) {
        let it = &mut self.flows[flow];
        it.cc.on_feedback(&Feedback { now, in_flight: it.in_flight, ..*signals });
        self.after(now, flow);
    }

    /// Performs what follows every call: actions, timers, and sending if possible.
    fn after(&mut self, now: Time, flow: usize) {
        self.act(now, flow);
        self.send(now, flow);
        let it = &mut self.flows[flow];
        if let Some(due) = it.cc.next_timer()
            && due < it.timer_at
        {
            it.timer_at = due;
            self.at(due.max(now), Event::Timer(flow));
        }
    }

    fn act(&mut self, now: Time, flow: usize) {
        while let Some(action) = self.flows[flow].cc.poll(now) {
            let base = self.base(flow);
            match action {
                SenderAction::Probe => self.at(now + base, Event::Probed(flow)),
                SenderAction::RequestCredit { target } => {
                    self.at(now + base / 2, Event::Requested(flow, target));
                }
                SenderAction::SendRatePacket => {
                    let it = &mut self.flows[flow];
                    it.asks = it.cc.rate_packet(now).expect("it asked to send one");
                    self.at(now + base / 2, Event::Asked(flow));
                }
                other @ SenderAction::Rewind { .. } => panic!("nobody here can {other:?}"),
            }
        }
    }

    fn wake(&mut self, flow: usize, when: Time) {
        if when < self.flows[flow].wake_at {
            self.flows[flow].wake_at = when;
            self.at(when, Event::Wake(flow));
        }
    }

    /// Sends one packet if budget and link allow, and schedules the next attempt.
    fn send(&mut self, now: Time, flow: usize) {
        let spec = self.scene.flows[flow];
        if now < spec.start || now >= spec.stop {
            return;
        }
        let it = &mut self.flows[flow];
        let budget = it.cc.budget(now);
        let due = it.link_free.max(it.pace_free).max(budget.not_before);
        if now < due {
            if budget.allows(due, it.in_flight, MTU) {
                self.wake(flow, due);
            }
            return;
        }
        if !budget.allows(now, it.in_flight, MTU) {
            if budget.credit.is_some_and(|credit| credit < u64::from(MTU)) {
                it.cc.on_event(now, FlowEvent::Blocked { backlog: BACKLOG });
                if self.scene.cc.receiver(&self.scene.network) == ReceiverConfig::Rates {
                    self.act(now, flow);
                }
                let it = &mut self.flows[flow];
                if let Some(due) = it.cc.next_timer()
                    && due < it.timer_at
                {
                    it.timer_at = due;
                    self.at(due.max(now), Event::Timer(flow));
                }
            }
            return;
        }
        let window = budget.window.unwrap_or(u64::MAX);
        assert!(it.in_flight + u64::from(MTU) <= window, "more in flight than the window");
        let sending = SentPacket { bytes: MTU, backlog: BACKLOG, ..SentPacket::default() };
        let stamp = it.cc.on_send(now, &sending);
        let packet = Packet {
            flow,
            number: it.sent,
            sent: now,
            delivered: it.delivered,
            demand: stamp.demand(),
            left: (Time::ZERO, 0, 0),
        };
        it.sent += 1;
        it.in_flight += u64::from(MTU);
        it.link_free = now + self.scene.network.line.transmit_time(u64::from(MTU));
        if let Some(rate) = budget.rate {
            it.pace_free = now + rate.transmit_time(u64::from(MTU));
        }
        let next = it.link_free.max(it.pace_free);
        // Without jitter, which flow finds the last free place in the queue would never change.
        let jitter = Span(u64::from(self.rng.below(400)));
        self.at(now + spec.base_rtt / 2 + jitter, Event::Arrive(packet));
        self.wake(flow, next);
    }

    /// Trims at one BDP, or drops at five (UE 1.0 pp. 418-419).
    fn enqueue(&mut self, now: Time, packet: Packet) {
        let trimming = self.scene.network.trimming;
        let limit = if trimming { self.bdp } else { 5 * self.bdp };
        if self.queued + u64::from(MTU) > limit {
            self.outcome.lost.0 += 1;
            self.outcome.lost.1 += u64::from(now >= self.measure_from);
            let base_rtt = self.base(packet.flow);
            if trimming {
                self.receive(now, packet, false, true);
                self.at(now + base_rtt / 2, Event::Nack(packet));
            } else {
                // The timeout exceeds five BDPs of queue and a base RTT.
                self.at(packet.sent + base_rtt * 8, Event::TimedOut(packet));
            }
            return;
        }
        self.queued += u64::from(MTU);
        self.outcome.max_queue = self.outcome.max_queue.max(self.queued);
        self.queue.push_back(packet);
        if self.queue.len() == 1 {
            self.at(now + self.scene.network.line.transmit_time(u64::from(MTU)), Event::Depart);
        }
    }

    /// Marks by the bytes that remain: RED from 0.2 to 0.8 BDP (UE 1.0 pp. 418-419).
    fn dequeue(&mut self, now: Time) {
        let mut packet = self.queue.pop_front().expect("a packet departs");
        self.queued -= u64::from(MTU);
        self.departed += u64::from(MTU);
        packet.left = (now, self.departed, self.queued);
        let (low, high) = (self.bdp as f64 * 0.2, self.bdp as f64 * 0.8);
        let ecn = self.rng.chance((self.queued as f64 - low) / (high - low));
        if now >= self.measure_from {
            self.samples = (self.samples.0 + self.queued, self.samples.1 + 1);
        }
        let contents = self.receive(now, packet, ecn, false);
        // The packet's own transmission belongs to the unloaded round trip.
        let own = self.scene.network.line.transmit_time(u64::from(MTU));
        let back = (self.base(packet.flow) / 2).saturating_sub(own);
        self.at(now + back, Event::Ack(packet, contents));
        if !self.queue.is_empty() {
            self.at(now + own, Event::Depart);
        }
    }

    /// Processes a packet at the receiver. Returns the contents of its acknowledgement.
    fn receive(&mut self, now: Time, packet: Packet, ecn: bool, trimmed: bool) -> AckContents {
        let rx = &mut self.rx[packet.flow];
        let bytes = if trimmed { HEADER } else { MTU };
        let source = u32::try_from(packet.flow).expect("few flows");
        let demand = packet.demand;
        let meta =
            ReceivedPacket { bytes, ecn, trimmed, demand, source, ..ReceivedPacket::default() };
        self.receiver.on_rx(now, rx, &meta);
        let mut signals = AckSignals::default();
        if !trimmed {
            self.receiver.fill_ack(now, rx, &mut signals);
        }
        self.poll_receiver(now);
        AckContents {
            ecn: ecn && !signals.hide_marks,
            credit: signals.credit,
            share: signals.share.map(|share| (share.senders(), share.share())),
        }
    }

    fn poll_receiver(&mut self, now: Time) {
        while let Some(action) = self.receiver.poll(now) {
            let (flow, event): (_, fn(usize, u64) -> Event) = match action {
                ReceiverAction::Credit { flow, .. } => (flow, Event::Granted),
                ReceiverAction::Notify { flow } => (flow, |flow, _| Event::Notified(flow)),
            };
            let cumulative = match action {
                ReceiverAction::Credit { cumulative, .. } => cumulative,
                _ => 0,
            };
            let flow = flow as usize;
            self.at(now + self.base(flow) / 2, event(flow, cumulative));
        }
        if let Some(due) = self.receiver.next_timer()
            && due < self.receiver_at
        {
            self.receiver_at = due;
            self.at(due.max(now), Event::ReceiverTimer);
        }
    }
}
