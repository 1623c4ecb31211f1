//! A packet-level model of one congested port: flows with endless backlogs, one FIFO queue that marks
//! on dequeue (RED) and trims or drops when it is full, acknowledgements per packet that never queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use squall_cc::base::{Rate, Rng, Span, Time};
use squall_cc::{Action, Feedback, Kind, NsccConfig, Sender, SenderCc, SenderConfig};

/// Nominal bytes of every packet.
pub(crate) const MTU: u32 = 4096;

/// The port and its flows.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Line rate of the port and of every sender.
    pub(crate) line: Rate,
    /// When each flow starts and stops, and its unloaded round-trip time.
    pub(crate) flows: Vec<(Time, Time, Span)>,
    /// Parameters of all flows.
    pub(crate) config: NsccConfig,
    /// Decides the marks.
    pub(crate) seed: u64,
}

/// What a run showed.
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
}

impl Outcome {
    /// Jain's index over the flows that got anything asked of them: `(sum x)^2 / (n sum x^2)`.
    pub(crate) fn jain(&self) -> f64 {
        let sum: f64 = self.acked.iter().map(|&x| x as f64).sum();
        let squares: f64 = self.acked.iter().map(|&x| (x as f64).powi(2)).sum();
        sum * sum / (self.acked.len() as f64 * squares)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A flow may try to send.
    Wake(usize),
    /// A packet, sent at the given time, reaches the queue.
    Arrive(usize, Time),
    /// The head of the queue has left it.
    Depart,
    /// An acknowledgement is back: when its packet was sent, and whether it was marked.
    Ack(usize, Time, bool),
    /// A refusal is back.
    Nack(usize),
    /// The answer to a probe is back; probes pass the queue by.
    Probed(usize),
    /// A dropped packet's timer fired.
    TimedOut(usize),
}

struct Flow {
    cc: Sender,
    in_flight: u64,
    /// When the sender's own link is free.
    link_free: Time,
    acked: u64,
}

struct Run<'a> {
    scene: &'a Scene,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    flows: Vec<Flow>,
    queue: VecDeque<(usize, Time)>,
    queued: u64,
    rng: Rng,
    bdp: u64,
    measure_from: Time,
    samples: (u64, u64),
    outcome: Outcome,
}

/// Runs `scene` until `end`, measuring from `from`.
pub(crate) fn run(scene: &Scene, from: Time, end: Time) -> Outcome {
    let config = SenderConfig::nscc(scene.config.clone()).expect("parameters in range");
    let flows = scene.flows.iter().map(|&(start, _, _)| Flow {
        cc: Sender::new(&config, start),
        in_flight: 0,
        link_free: start,
        acked: 0,
    });
    let mut run = Run {
        scene,
        events: BinaryHeap::new(),
        order: 0,
        flows: flows.collect(),
        queue: VecDeque::new(),
        queued: 0,
        rng: Rng::new(scene.seed),
        bdp: scene.line.bytes_in(scene.config.base_rtt),
        measure_from: from,
        samples: (0, 0),
        outcome: Outcome::default(),
    };
    for (flow, &(start, _, _)) in scene.flows.iter().enumerate() {
        run.at(start, Event::Wake(flow));
    }
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        if now >= end {
            break;
        }
        run.step(now, event);
    }
    let mut outcome = run.outcome;
    outcome.acked = run.flows.iter().map(|flow| flow.acked).collect();
    let sum: u64 = outcome.acked.iter().sum();
    outcome.utilisation = sum as f64 / scene.line.bytes_in(end.since(from)) as f64;
    outcome.mean_queue = run.samples.0 / run.samples.1.max(1);
    outcome
}

impl Run<'_> {
    fn at(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn step(&mut self, now: Time, event: Event) {
        match event {
            Event::Wake(flow) => self.send(now, flow),
            Event::Arrive(flow, sent) => self.enqueue(now, flow, sent),
            Event::Depart => self.dequeue(now),
            Event::Ack(flow, sent, ecn) => {
                if now >= self.measure_from {
                    self.flows[flow].acked += u64::from(MTU);
                }
                let rtt = Some(now.since(sent));
                self.report(now, flow, Kind::Acked, &Feedback { ecn, rtt, ..Feedback::default() });
            }
            Event::Nack(flow) => {
                let kind = Kind::Nacked { trimmed: true, last_hop: false };
                self.report(now, flow, kind, &Feedback::default());
            }
            Event::Probed(flow) => {
                let (kind, rtt) = (Kind::ProbeAnswered, Some(self.scene.flows[flow].2));
                let it = &mut self.flows[flow];
                let in_flight = it.in_flight;
                it.cc.on_feedback(&Feedback { now, kind, rtt, in_flight, ..Feedback::default() });
            }
            Event::TimedOut(flow) => self.report(now, flow, Kind::TimedOut, &Feedback::default()),
        }
    }

    fn report(&mut self, now: Time, flow: usize, kind: Kind, said: &Feedback<'_>) {
        let it = &mut self.flows[flow];
        it.in_flight -= u64::from(MTU);
        let in_flight = it.in_flight;
        it.cc.on_feedback(&Feedback { now, kind, bytes: MTU, packets: 1, in_flight, ..*said });
        if it.cc.poll(now) == Some(Action::Probe) {
            self.at(now + self.scene.flows[flow].2, Event::Probed(flow));
        }
        self.send(now, flow);
    }

    /// Sends one packet if window and link allow, and comes back when the link is free.
    fn send(&mut self, now: Time, flow: usize) {
        let (_, stop, base_rtt) = self.scene.flows[flow];
        let it = &mut self.flows[flow];
        let budget = it.cc.budget(now);
        if now >= stop || now < it.link_free || !budget.allows(now, it.in_flight, MTU) {
            return;
        }
        it.in_flight += u64::from(MTU);
        it.link_free = now + self.scene.line.transmit_time(u64::from(MTU));
        let link_free = it.link_free;
        // Without jitter, which flow finds the last free place in the queue would never change.
        let jitter = Span(u64::from(self.rng.below(400)));
        self.at(now + base_rtt / 2 + jitter, Event::Arrive(flow, now));
        self.at(link_free, Event::Wake(flow));
    }

    /// Trims at one BDP, or drops at five (UE 1.0 pp. 418-419).
    fn enqueue(&mut self, now: Time, flow: usize, sent: Time) {
        let trimming = self.scene.config.trimming;
        let limit = if trimming { self.bdp } else { 5 * self.bdp };
        if self.queued + u64::from(MTU) > limit {
            self.outcome.lost.0 += 1;
            self.outcome.lost.1 += u64::from(now >= self.measure_from);
            let base_rtt = self.scene.flows[flow].2;
            if trimming {
                self.at(now + base_rtt / 2, Event::Nack(flow));
            } else {
                // Five BDPs of queue, one base RTT, and some.
                self.at(sent + base_rtt * 8, Event::TimedOut(flow));
            }
            return;
        }
        self.queued += u64::from(MTU);
        self.outcome.max_queue = self.outcome.max_queue.max(self.queued);
        self.queue.push_back((flow, sent));
        if self.queue.len() == 1 {
            self.at(now + self.scene.line.transmit_time(u64::from(MTU)), Event::Depart);
        }
    }

    /// Marks by what is left behind: RED from 0.2 to 0.8 BDP (UE 1.0 pp. 418-419).
    fn dequeue(&mut self, now: Time) {
        let (flow, sent) = self.queue.pop_front().expect("a packet departs");
        self.queued -= u64::from(MTU);
        let (low, high) = (self.bdp as f64 * 0.2, self.bdp as f64 * 0.8);
        let ecn = self.rng.chance((self.queued as f64 - low) / (high - low));
        if now >= self.measure_from {
            self.samples = (self.samples.0 + self.queued, self.samples.1 + 1);
        }
        // The packet's own transmission belongs to the unloaded round trip.
        let own = self.scene.line.transmit_time(u64::from(MTU));
        let back = (self.scene.flows[flow].2 / 2).saturating_sub(own);
        self.at(now + back, Event::Ack(flow, sent, ecn));
        if !self.queue.is_empty() {
            self.at(now + own, Event::Depart);
        }
    }
}
