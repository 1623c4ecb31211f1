//! Senders on credit, one receiver, and a port between them that trims; everything that travels may be
//! lost, and credit is cut to the 24 bits it has on the wire.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{
    AckSignals, Feedback, FeedbackExtension, FeedbackKind, FlowEvent, NetworkProfile,
    ReceivedPacket, Receiver, ReceiverAction, ReceiverCc, ReceiverConfig, RxFlow, Sender,
    SenderAction, SenderCc, SenderConfig, SentPacket, credit_bytes, credit_units,
};

/// Nominal bytes of a packet.
pub(crate) const MTU: u32 = 4096;
const LINE: Rate = Rate::gbps(100);
const BASE_RTT: Span = Span::micros(12);
/// The 1 % of the line that is not granted drains a bandwidth-delay product of 150000 B in 1.2 ms.
pub(crate) const LATE: Time = Time(1_300_000);
/// Timeout, longer than any queue here.
const RTO: Span = Span::micros(200);

/// The network every test here runs on.
pub(crate) fn network() -> NetworkProfile {
    NetworkProfile::new(LINE, BASE_RTT, MTU, true)
}

/// Description of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The senders' algorithm.
    pub(crate) cc: &'static str,
    /// The receiver; `None` for the one that the algorithm needs.
    pub(crate) receiver: Option<ReceiverConfig>,
    /// Packets of each flow, and when it starts.
    pub(crate) flows: Vec<(u32, Time)>,
    /// Share of all packets, of whatever kind, that are lost.
    pub(crate) loss: f64,
    pub(crate) seed: u64,
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Time at which each flow had everything acknowledged; `None` for never.
    pub(crate) finished: Vec<Option<Time>>,
    /// Largest queue in bytes after [`LATE`].
    pub(crate) late_queue: u64,
    /// Packets trimmed.
    pub(crate) trimmed: u64,
    /// Packets sent, retransmissions included.
    pub(crate) sent: u64,
    /// For each sender, true if it reports that it receives no grants.
    pub(crate) ungranted: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Wake(usize),
    Arrive(usize, u32, u32, Time),
    Depart,
    Receive(usize, u32, u32, bool, Time),
    Ack(usize, u32, Option<u32>, Time),
    Nack(usize, u32),
    Credit(usize, u32),
    Request(usize, u32),
    Timer(usize),
    Pull,
    TimedOut(usize, u32, Time),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unsent,
    InFlight(Time),
    Queued,
    Acked,
}

struct Flow {
    cc: Sender,
    rx: RxFlow,
    /// Reference for the 24 bits of a credit, at the sender and at the receiver.
    granted: u64,
    demanded: u64,
    packets: Vec<Fate>,
    received: Vec<bool>,
    next: u32,
    again: VecDeque<u32>,
    in_flight: u64,
    link_free: Time,
    left: u32,
    start: Time,
    finished: Option<Time>,
    /// Scheduled timer.
    timer: Option<Time>,
}

struct World<'a> {
    scene: &'a Scene,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    flows: Vec<Flow>,
    receiver: Receiver,
    /// The receiver's scheduled timer, if any.
    pulling: Option<Time>,
    queue: VecDeque<(usize, u32, u32, Time)>,
    rng: Rng,
    outcome: Outcome,
}

/// Runs until all flows have finished, or nothing happens any more, or `end`.
pub(crate) fn run(scene: &Scene, end: Time) -> Outcome {
    let config = SenderConfig::by_name(scene.cc, &network()).expect("an algorithm");
    let receiver = scene.receiver.clone().unwrap_or_else(|| config.receiver(&network()));
    let flow = |(id, &(packets, start)): (usize, &(u32, Time))| Flow {
        cc: Sender::new(&config, start),
        rx: RxFlow::new(u32::try_from(id).expect("few flows")),
        granted: 0,
        demanded: 0,
        packets: vec![Fate::Unsent; packets as usize],
        received: vec![false; packets as usize],
        next: 0,
        again: VecDeque::new(),
        in_flight: 0,
        link_free: start,
        left: packets,
        start,
        finished: None,
        timer: None,
    };
    let mut world = World {
        scene,
        events: BinaryHeap::new(),
        order: 0,
        flows: scene.flows.iter().enumerate().map(flow).collect(),
        receiver: Receiver::new(&receiver),
        pulling: None,
        queue: VecDeque::new(),
        rng: Rng::new(scene.seed),
        outcome: Outcome {
            finished: Vec::new(),
            late_queue: 0,
            trimmed: 0,
            sent: 0,
            ungranted: Vec::new(),
        },
    };
    for (flow, &(_, start)) in scene.flows.iter().enumerate() {
        world.at(start, Event::Wake(flow));
    }
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        if now >= end || world.flows.iter().all(|flow| flow.left == 0) {
            break;
        }
        world.step(now, event);
    }
    let World { mut outcome, flows, .. } = world;
    outcome.finished = flows.iter().map(|flow| flow.finished).collect();
    outcome.ungranted = flows.iter().map(|flow| flow.cc.metrics().ungranted).collect();
    outcome
}

impl World<'_> {
    fn at(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// Schedules an event half a round trip later, unless the packet is lost.
    fn travel(&mut self, now: Time, event: Event) {
        if !self.rng.chance(self.scene.loss) {
            let jitter = Span(u64::from(self.rng.below(300)));
            self.at(now + BASE_RTT / 2 + jitter, event);
        }
    }

    fn step(&mut self, now: Time, event: Event) {
        match event {
            Event::Wake(flow) => self.send(now, flow),
            Event::Arrive(flow, seq, demand, sent) => self.enqueue(now, flow, seq, demand, sent),
            Event::Depart => self.dequeue(now),
            Event::Receive(flow, seq, demand, trimmed, sent) => {
                self.receive(now, flow, seq, demand, trimmed, sent);
            }
            Event::Ack(flow, seq, credit, sent) => {
                let acked = self.settle(flow, seq, Fate::Acked);
                let it = &mut self.flows[flow];
                it.left -= u32::from(acked);
                if acked && it.left == 0 {
                    it.finished = Some(now);
                }
                let rtt = Some(now.since(sent));
                let signals = Feedback { rtt, ..Feedback::default() };
                self.report(now, flow, FeedbackKind::Acked, acked, credit, &signals);
            }
            Event::Nack(flow, seq) => {
                let known = self.settle(flow, seq, Fate::Queued);
                let kind = FeedbackKind::Nacked { trimmed: true, last_hop: true };
                self.report(now, flow, kind, known, None, &Feedback::default());
            }
            Event::Credit(flow, units) => {
                self.report(
                    now,
                    flow,
                    FeedbackKind::Control,
                    false,
                    Some(units),
                    &Feedback::default(),
                );
            }
            Event::Request(flow, units) => {
                let it = &mut self.flows[flow];
                it.demanded = credit_bytes(it.demanded, units);
                self.receiver.on_request(now, &mut it.rx, it.demanded);
                self.pull(now);
            }
            Event::Timer(flow) => {
                let it = &mut self.flows[flow];
                if it.timer == Some(now) {
                    it.timer = None;
                    it.cc.on_timer(now);
                    self.send(now, flow);
                }
            }
            Event::Pull => {
                if self.pulling == Some(now) {
                    self.pulling = None;
                    self.pull(now);
                }
            }
            Event::TimedOut(flow, seq, sent) => {
                let it = &self.flows[flow];
                if it.packets[seq as usize] == Fate::InFlight(sent) {
                    self.settle(flow, seq, Fate::Queued);
                    self.report(
                        now,
                        flow,
                        FeedbackKind::TimedOut,
                        true,
                        None,
                        &Feedback::default(),
                    );
                }
            }
        }
    }

    /// Records the fate of a packet. Returns false if it was known before.
    fn settle(&mut self, flow: usize, seq: u32, fate: Fate) -> bool {
        let it = &mut self.flows[flow];
        let packet = &mut it.packets[seq as usize];
        match *packet {
            Fate::InFlight(_) => it.in_flight -= u64::from(MTU),
            Fate::Queued if fate == Fate::Acked => it.again.retain(|&other| other != seq),
            Fate::Unsent | Fate::Queued | Fate::Acked => return false,
        }
        *packet = fate;
        if fate == Fate::Queued {
            it.again.push_back(seq);
        }
        true
    }

    fn report(
        &mut self,
        now: Time,
        flow: usize,
        kind: FeedbackKind,
        counts: bool,
        credit: Option<u32>,
        signals: &Feedback<'_>,
    ) {
        let it = &mut self.flows[flow];
        let extension = credit.map_or(FeedbackExtension::None, |units| {
            it.granted = it.granted.max(credit_bytes(it.granted, units));
            FeedbackExtension::Credit(it.granted)
        });
        let (bytes, packets) = if counts { (MTU, 1) } else { (0, 0) };
        let in_flight = it.in_flight;
        it.cc.on_feedback(&Feedback {
            now,
            kind,
            bytes,
            packets,
            extension,
            in_flight,
            ..*signals
        });
        self.send(now, flow);
    }

    fn backlog(&self, flow: usize) -> u64 {
        let it = &self.flows[flow];
        let unsent = it.packets.len() - it.next as usize;
        (unsent + it.again.len()) as u64 * u64::from(MTU)
    }

    /// Sends one packet if allowed, and schedules the next attempt for when the link is free.
    fn send(&mut self, now: Time, flow: usize) {
        let backlog = self.backlog(flow);
        let it = &mut self.flows[flow];
        if now < it.start {
            return;
        }
        let budget = it.cc.budget(now);
        let allowed = budget.allows(now, it.in_flight, MTU);
        if backlog > 0 && !allowed && budget.credit.is_some_and(|credit| credit < u64::from(MTU)) {
            it.cc.on_event(now, FlowEvent::Blocked { backlog });
        }
        if backlog == 0 && it.in_flight == 0 {
            it.cc.on_event(now, FlowEvent::Idle);
        }
        if backlog > 0 && allowed && now >= it.link_free {
            let seq = it.again.pop_front().unwrap_or_else(|| {
                it.next += 1;
                it.next - 1
            });
            let backlog = backlog - u64::from(MTU);
            let sending = SentPacket { bytes: MTU, backlog, ..SentPacket::default() };
            let demand = it.cc.on_send(now, &sending).demand().map_or(0, credit_units);
            it.packets[seq as usize] = Fate::InFlight(now);
            it.in_flight += u64::from(MTU);
            it.link_free = now + LINE.transmit_time(u64::from(MTU));
            let free = it.link_free;
            self.outcome.sent += 1;
            self.at(free, Event::Wake(flow));
            self.at(now + RTO, Event::TimedOut(flow, seq, now));
            self.travel(now, Event::Arrive(flow, seq, demand, now));
        }
        self.act(now, flow);
    }

    /// Performs the sender's actions and schedules its timer.
    fn act(&mut self, now: Time, flow: usize) {
        while let Some(action) = self.flows[flow].cc.poll(now) {
            if let SenderAction::RequestCredit { target } = action {
                self.travel(now, Event::Request(flow, credit_units(target)));
            }
        }
        let timer = self.flows[flow].cc.next_timer().map(|at| at.max(now));
        if self.flows[flow].timer != timer {
            self.flows[flow].timer = timer;
            if let Some(at) = timer {
                self.at(at, Event::Timer(flow));
            }
        }
    }

    /// Queues a packet. The port trims when a bandwidth-delay product waits; a trimmed packet
    /// overtakes the queue.
    fn enqueue(&mut self, now: Time, flow: usize, seq: u32, demand: u32, sent: Time) {
        let queued = self.queue.len() as u64 * u64::from(MTU);
        if queued >= LINE.bytes_in(BASE_RTT) {
            self.outcome.trimmed += 1;
            self.at(now, Event::Receive(flow, seq, demand, true, sent));
            return;
        }
        if now >= LATE {
            self.outcome.late_queue = self.outcome.late_queue.max(queued);
        }
        self.queue.push_back((flow, seq, demand, sent));
        if self.queue.len() == 1 {
            self.at(now + LINE.transmit_time(u64::from(MTU)), Event::Depart);
        }
    }

    fn dequeue(&mut self, now: Time) {
        if let Some((flow, seq, demand, sent)) = self.queue.pop_front() {
            self.at(now, Event::Receive(flow, seq, demand, false, sent));
        }
        if !self.queue.is_empty() {
            self.at(now + LINE.transmit_time(u64::from(MTU)), Event::Depart);
        }
    }

    fn receive(
        &mut self,
        now: Time,
        flow: usize,
        seq: u32,
        demand: u32,
        trimmed: bool,
        sent: Time,
    ) {
        let it = &mut self.flows[flow];
        it.demanded = it.demanded.max(credit_bytes(it.demanded, demand));
        let duplicate = it.received[seq as usize];
        let meta = ReceivedPacket {
            bytes: if trimmed { 150 } else { MTU },
            trimmed,
            duplicate,
            demand: Some(it.demanded),
            ..ReceivedPacket::default()
        };
        self.receiver.on_rx(now, &mut it.rx, &meta);
        if trimmed && !duplicate {
            self.travel(now, Event::Nack(flow, seq));
        } else {
            it.received[seq as usize] = true;
            let mut signals = AckSignals::default();
            self.receiver.fill_ack(now, &mut it.rx, &mut signals);
            self.travel(now, Event::Ack(flow, seq, signals.credit.map(credit_units), sent));
        }
        self.pull(now);
    }

    fn pull(&mut self, now: Time) {
        while let Some(action) = self.receiver.poll(now) {
            if let ReceiverAction::Credit { flow, cumulative } = action {
                self.travel(now, Event::Credit(flow as usize, credit_units(cumulative)));
            }
        }
        let timer = self.receiver.next_timer().map(|at| at.max(now));
        if self.pulling != timer {
            self.pulling = timer;
            if let Some(at) = timer {
                self.at(at, Event::Pull);
            }
        }
    }
}
