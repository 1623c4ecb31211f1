//! The simulation itself: events, and what each of them does.

use core::ops::ControlFlow;
use std::time::Instant;

use super::config::{SimConfig, SimError};
use super::flows::Flows;
use super::host::{Host, News, Sizes};
use super::packet::{NO_WAY, Packets};
use super::results::{End, Observer, PortLoad, Results, Totals};
use super::series::Recorder;
use super::setup::Setup;
use super::wheel::{BATCH, Wheel};
use crate::Picos;
use crate::base::Rng;
use crate::model::{Arrival, Departure, Drop, FailureEvent, Network, Passed, Pause};
use crate::topology::Node;
use crate::workload::{Start, Workload};

/// Events between two looks of the observer.
const LOOK: u64 = 1 << 16;

/// What an event is about, packed into 64 bits: eight of kind, 24 of `a`, 32 of `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Happening {
    /// Packet `b` is at switch `a`.
    AtSwitch { switch: u32, packet: u32 },
    /// Packet `b` is at host `a`.
    AtHost { host: u32, packet: u32 },
    /// The wire of port `a` is free.
    Free { port: u32 },
    /// The card of host `a` is free.
    Card { host: u32 },
    /// A timer of host `a`.
    Wake { host: u32 },
    /// Packet `b` gets through to the transport of host `a`.
    Seen { host: u32, packet: u32 },
    /// Flow `b` starts.
    Start { flow: u32 },
    /// Port `a` must stop data (`b` is 1) or may go on.
    Pause { port: u32, stop: bool },
    /// Failure `b` of the schedule.
    Fail { index: u32 },
    /// Routing learns what is up.
    Reroute,
    /// Time for samples: queues (`b` is 0) or windows.
    Sample { windows: bool },
}

impl Happening {
    const fn pack(self) -> u64 {
        let (kind, a, b) = match self {
            Self::AtSwitch { switch, packet } => (0, switch, packet),
            Self::AtHost { host, packet } => (10, host, packet),
            Self::Free { port } => (1, port, 0),
            Self::Card { host } => (2, host, 0),
            Self::Wake { host } => (3, host, 0),
            Self::Seen { host, packet } => (4, host, packet),
            Self::Start { flow } => (5, 0, flow),
            Self::Pause { port, stop } => (6, port, stop as u32),
            Self::Fail { index } => (7, 0, index),
            Self::Reroute => (8, 0, 0),
            Self::Sample { windows } => (9, 0, windows as u32),
        };
        kind << 56 | (a as u64) << 32 | b as u64
    }

    const fn unpack(packed: u64) -> Self {
        let (a, b) = ((packed >> 32) as u32 & 0xff_ffff, packed as u32);
        match packed >> 56 {
            0 => Self::AtSwitch { switch: a, packet: b },
            10 => Self::AtHost { host: a, packet: b },
            1 => Self::Free { port: a },
            2 => Self::Card { host: a },
            3 => Self::Wake { host: a },
            4 => Self::Seen { host: a, packet: b },
            5 => Self::Start { flow: b },
            6 => Self::Pause { port: a, stop: b != 0 },
            7 => Self::Fail { index: b },
            8 => Self::Reroute,
            _ => Self::Sample { windows: b != 0 },
        }
    }
}

/// A network, its hosts and a workload, ready to run.
///
/// ```
/// use squall_fabric::base::Rate;
/// use squall_fabric::sim::{SimConfig, Simulation};
/// use squall_fabric::topology::Topology;
/// use squall_fabric::{Picos, formats};
///
/// let topology = Topology::star(2, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
/// let workload = formats::cm::read("example", "Nodes 2\nConnections 1\n0->1 start 0 size 100000\n")?;
/// let results = Simulation::new(&SimConfig::new(topology), &workload)?.run(&mut ());
/// assert!(results.flows[0].fct.is_some_and(|fct| fct < Picos::micros(20)));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Simulation {
    now: Picos,
    until: Picos,
    wheel: Wheel,
    network: Network<u32>,
    packets: Packets,
    /// For [`Simulation::look_ahead`].
    ahead: Vec<u32>,
    /// There are more contexts than the cache holds.
    large: bool,
    hosts: Vec<Host>,
    flows: Flows,
    news: Vec<News>,
    sizes: Sizes,
    failures: Vec<FailureEvent>,
    /// The hosts' own delay, and the jitter on top.
    delay: Picos,
    jitter: Picos,
    rng: Rng,
    recorder: Recorder,
    per_port: bool,
    /// Flows between the same two hosts share a context.
    per_pair: bool,
    reroute_armed: bool,
    events: u64,
    totals: Totals,
}

impl Simulation {
    /// Puts everything in place.
    ///
    /// # Errors
    /// What about the topology, the workload, the algorithms or other parameters is impossible.
    pub fn new(config: &SimConfig, workload: &Workload) -> Result<Self, SimError> {
        let setup = Setup::new(config, workload)?;
        let network: Network<u32> = Network::new(config.topology.clone(), setup.network.clone());
        if network.len() >= 1 << 24 || config.topology.hosts >= 1 << 24 {
            return Err(SimError::Parameter(
                "at most 2^24 hosts and 2^23 links are possible".into(),
            ));
        }
        let mut ports = vec![u32::MAX; config.topology.hosts as usize];
        for port in 0..network.len() {
            if let Node::Host(host) = config.topology.from(port) {
                ports[host as usize] = port;
            }
        }
        let mut network = network;
        if let Some(rate) = config.host.nic {
            for &port in &ports {
                network.configure(port, |port| port.rate = rate);
            }
        }
        let hosts =
            (0u32..).zip(&ports).map(|(host, &port)| Host::new(host, port, setup.stack(host)));
        let mut simulation = Self {
            now: Picos::ZERO,
            until: config.until,
            // A fine slot holds a few events.
            wheel: Wheel::new(match config.topology.hosts {
                0..=255 => 10,
                256..=2047 => 8,
                _ => 6,
            }),
            packets: Packets::default(),
            ahead: Vec::new(),
            large: config.topology.hosts > 512,
            hosts: hosts.collect(),
            flows: Flows::new(workload),
            news: Vec::new(),
            sizes: setup.sizes,
            failures: config.failures.clone(),
            delay: config.host.delay,
            jitter: config.host.jitter,
            rng: Rng::new(config.seed ^ 0x686f_7374_7300),
            recorder: Recorder::new(&config.observe, &network),
            per_port: config.observe.ports,
            per_pair: setup.per_pair,
            reroute_armed: false,
            events: 0,
            totals: Totals::default(),
            network,
        };
        simulation.schedule(config, workload);
        Ok(simulation)
    }

    fn schedule(&mut self, config: &SimConfig, workload: &Workload) {
        // Failures come first among what happens at one time.
        for (index, failure) in (0u32..).zip(&config.failures) {
            self.push(failure.at, Happening::Fail { index });
        }
        for (flow, spec) in (0u32..).zip(&workload.flows) {
            if let Start::At(at) = spec.start {
                self.push(Picos(at), Happening::Start { flow });
            }
        }
        for (windows, every) in [(false, config.observe.queues), (true, config.observe.windows)] {
            if every.is_some() {
                self.push(Picos::ZERO, Happening::Sample { windows });
            }
        }
    }

    fn push(&mut self, at: Picos, what: Happening) {
        self.wheel.push(at, what.pack());
    }

    /// Runs to the end: until all flows are finished, nothing can happen any more, the time is up, or
    /// the observer breaks off.
    pub fn run(mut self, observer: &mut dyn Observer) -> Results {
        // The only clock: how long it took is not part of what is simulated.
        #[allow(clippy::disallowed_methods)]
        let started = Instant::now();
        let end = self.go(observer);
        self.finish(end, started.elapsed().as_secs_f64())
    }

    fn go(&mut self, observer: &mut dyn Observer) -> End {
        let all = self.flows.running.len();
        // Events that were looked at ahead, more or less.
        let mut seen = 0;
        while self.flows.finished < all {
            if seen == 0 {
                if !self.wheel.turn() {
                    return End::Stuck;
                }
                self.look_ahead();
                seen = BATCH;
            }
            let Some((at, what)) = self.wheel.pop() else {
                seen = 0;
                continue;
            };
            seen -= 1;
            if at > self.until {
                self.now = self.until;
                return End::TimeUp;
            }
            debug_assert!(at >= self.now);
            self.now = at;
            self.events += 1;
            self.happen(Happening::unpack(what));
            if self.events.is_multiple_of(LOOK)
                && observer.progress(self.now, self.flows.finished, self.events)
                    == ControlFlow::Break(())
            {
                return End::Interrupted;
            }
        }
        End::Done
    }

    /// Reads what the coming events will need, one level of pointers after the other, so that the
    /// processor waits for all of them at once and not for each by itself: in a large network little of
    /// it is in the cache. But for the ways of packets, nothing depends on what is read.
    fn look_ahead(&mut self) {
        let mut sum = 0;
        for what in self.wheel.coming() {
            match Happening::unpack(what) {
                Happening::AtSwitch { packet, .. } => {
                    sum ^= u64::from(self.packets.flying[packet as usize].head.dst);
                }
                Happening::AtHost { host, packet } => {
                    sum ^= u64::from(self.packets.flying[packet as usize].head.dst);
                    sum ^= self.hosts[host as usize].glance();
                    sum ^= u64::from(self.packets.body(packet).is_data());
                }
                Happening::Card { host } => sum ^= self.hosts[host as usize].glance(),
                _ => {}
            }
        }
        self.ahead.clear();
        for what in self.wheel.coming() {
            match Happening::unpack(what) {
                Happening::AtSwitch { switch, packet } => {
                    let flying = &mut self.packets.flying[packet as usize];
                    let way = self.network.way(switch, &flying.head);
                    flying.way = way.unwrap_or(NO_WAY);
                    self.ahead.extend(way);
                }
                Happening::Free { port } => self.ahead.push(port),
                Happening::AtHost { host, packet } if self.large => {
                    let body = Some(self.packets.body(packet));
                    sum ^= self.hosts[host as usize].glance_at(body, &self.flows.running);
                }
                Happening::Card { host } if self.large => {
                    sum ^= self.hosts[host as usize].glance_at(None, &self.flows.running);
                }
                _ => {}
            }
        }
        for &port in &self.ahead {
            sum ^= self.network.port(port).free_at().0;
        }
        // Of the ports that are busy, the queues; of those, the packet that leaves next.
        let (network, now) = (&self.network, self.now);
        self.ahead.retain(|&port| network.port(port).free_at() >= now);
        for &port in &self.ahead {
            sum ^= network.port(port).queued(now);
        }
        for port in &mut self.ahead {
            *port = network.front(*port).unwrap_or(0);
        }
        for &packet in &self.ahead {
            if let Some(flying) = self.packets.flying.get(packet as usize) {
                sum ^= u64::from(flying.port);
            }
        }
        core::hint::black_box(sum);
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::AtSwitch { switch, packet } => self.at_switch(switch, packet),
            Happening::AtHost { host, packet } => self.at_host(host, packet),
            Happening::Free { port } => self.serve(port),
            Happening::Card { host } => self.card(host),
            Happening::Wake { host } => self.wake(host),
            Happening::Seen { host, packet } => self.seen(host, packet),
            Happening::Start { flow } => self.start(flow),
            Happening::Pause { port, stop } => {
                self.network.pause(port, stop);
                if !stop {
                    self.resume(port);
                }
            }
            Happening::Fail { index } => {
                let failure = self.failures[index as usize];
                self.network.fail(self.now, failure.what);
                if let Some(at) = self.network.poll_reroute()
                    && !self.reroute_armed
                {
                    self.reroute_armed = true;
                    self.push(at, Happening::Reroute);
                }
            }
            Happening::Reroute => self.reroute(),
            Happening::Sample { windows } => self.sample(windows),
        }
    }

    fn reroute(&mut self) {
        self.reroute_armed = false;
        match self.network.poll_reroute() {
            Some(at) if at > self.now => {
                self.reroute_armed = true;
                self.push(at, Happening::Reroute);
            }
            Some(_) => {
                self.network.reroute();
                self.packets.flying.iter_mut().for_each(|flying| flying.way = NO_WAY);
            }
            None => {}
        }
    }

    fn sample(&mut self, windows: bool) {
        let every = if windows {
            self.recorder.windows(self.now, &self.hosts, &self.flows)
        } else {
            self.recorder.queues(self.now, &self.network)
        };
        // Samples alone do not keep a simulation going.
        if self.wheel.len() > 0 {
            self.push(self.now + every, Happening::Sample { windows });
        }
    }

    /// Whether something on its last link took the packet.
    fn is_lost(&mut self, packet: u32) -> bool {
        if self.network.is_well() {
            return false;
        }
        let flying = &self.packets.flying[packet as usize];
        match self.network.land(self.now, flying.port, &flying.head) {
            Arrival::Lost(why) => {
                self.lose(packet, why);
                true
            }
            Arrival::Host(_) | Arrival::Switch(_) => false,
        }
    }

    fn at_switch(&mut self, switch: u32, packet: u32) {
        if self.is_lost(packet) {
            return;
        }
        let flying = &mut self.packets.flying[packet as usize];
        let whole = !flying.head.trimmed;
        let way = core::mem::replace(&mut flying.way, NO_WAY);
        let way = (way != NO_WAY).then_some(way);
        match self.network.pass(self.now, (switch, way), flying.port, packet, &mut flying.head) {
            Passed::Left(port, departure) => self.left(port, &departure),
            Passed::Waits(port) => {
                if whole && flying.head.trimmed {
                    self.totals.trimmed += 1;
                    self.totals.last_loss = self.now;
                }
                self.arm(port);
            }
            Passed::Dropped(why) => self.lose(packet, why),
        }
        self.pauses();
    }

    fn at_host(&mut self, host: u32, packet: u32) {
        if self.is_lost(packet) {
            return;
        }
        if self.delay == Picos::ZERO && self.jitter == Picos::ZERO {
            return self.seen(host, packet);
        }
        let extra =
            if self.jitter == Picos::ZERO { 0 } else { self.rng.next_u64() % self.jitter.0 };
        let entry = &mut self.hosts[host as usize];
        entry.seen_at = entry.seen_at.max(self.now + self.delay + Picos(extra));
        let at = entry.seen_at;
        self.push(at, Happening::Seen { host, packet });
    }

    /// A packet left by `port`.
    fn left(&mut self, port: u32, departure: &Departure<u32>) {
        self.packets.flying[departure.item as usize].port = port;
        self.arrive(port, departure.item, departure.arrives);
    }

    fn arrive(&mut self, port: u32, packet: u32, at: Picos) {
        let what = match self.network.behind(port) {
            Node::Switch(switch) => Happening::AtSwitch { switch, packet },
            Node::Host(host) => Happening::AtHost { host, packet },
        };
        self.push(at, what);
    }

    fn lose(&mut self, packet: u32, why: Drop) {
        if self.packets.body(packet).is_data() {
            self.totals.dropped += 1;
            self.totals.dropped_dead += u64::from(matches!(why, Drop::Down | Drop::BlackHole));
            self.totals.last_loss = self.now;
        } else {
            self.totals.control_dropped += 1;
        }
        self.packets.free(packet);
    }

    fn pauses(&mut self) {
        while let Some(Pause { port, stop, delay }) = self.network.poll_pause() {
            self.totals.pauses += u64::from(stop);
            self.push(self.now + delay, Happening::Pause { port, stop });
        }
    }

    /// Something waits at `port`: an event comes for it.
    fn arm(&mut self, port: u32) {
        if let Some(at) = self.network.arm(port) {
            self.push(at.max(self.now), Happening::Free { port });
        }
    }

    fn serve(&mut self, port: u32) {
        if let Some(departure) = self.network.serve(self.now, port) {
            if departure.mark {
                self.packets.flying[departure.item as usize].head.ce = true;
                self.totals.marked += 1;
            }
            self.left(port, &departure);
            self.pauses();
        }
        self.arm(port);
    }

    /// A paused port may go on.
    fn resume(&mut self, port: u32) {
        match self.network.topology().from(port) {
            Node::Host(host) => {
                self.send(host);
                // What may not go yet, because it is paced, sets a timer; nothing else may follow.
                self.set_timer(host);
            }
            Node::Switch(_) => self.arm(port),
        }
    }

    fn seen(&mut self, host: u32, packet: u32) {
        let (head, source, body) = self.packets.take(packet);
        self.totals.delivered += u64::from(!head.trimmed && body.is_data());
        let entry = &mut self.hosts[host as usize];
        entry.receive(self.now, source, head, body, &mut self.flows.running, &mut self.news);
        self.attend(host);
    }

    fn wake(&mut self, host: u32) {
        let entry = &mut self.hosts[host as usize];
        if entry.wake_at != self.now {
            // A later one that an earlier one replaced.
            return;
        }
        entry.wake_at = Picos::NEVER;
        entry.handle_timeout(self.now, &mut self.flows.running, &mut self.news);
        self.attend(host);
    }

    fn start(&mut self, flow: u32) {
        let spec = &self.flows.spec[flow as usize];
        let flows = &mut self.flows.running;
        flows[flow as usize].start = self.now;
        let (host, dst) = (spec.src, spec.dst);
        let connection = if self.per_pair { u64::from(dst) } else { 1 << 32 | u64::from(spec.id) };
        let entry = &mut self.hosts[host as usize];
        entry.start(self.now, flow, connection, flows, &mut self.news);
        self.attend(host);
    }

    /// After the transport of `host` was touched.
    fn attend(&mut self, host: u32) {
        let entry = &mut self.hosts[host as usize];
        entry.attend(self.now, &mut self.flows.running, &mut self.news);
        if !self.news.is_empty() {
            self.tell();
        }
        self.send(host);
        self.set_timer(host);
    }

    /// The transport wants to be called no later than it says.
    fn set_timer(&mut self, host: u32) {
        let entry = &mut self.hosts[host as usize];
        if let Some(at) = entry.poll_timeout() {
            let at = at.max(self.now + Picos(1));
            if at < entry.wake_at {
                entry.wake_at = at;
                self.push(at, Happening::Wake { host });
            }
        }
    }

    fn tell(&mut self) {
        for at in 0..self.news.len() {
            let trigger = match self.news[at] {
                News::Done(flow) => {
                    self.flows.finished += 1;
                    self.flows.spec[flow as usize].on_sent
                }
                News::Arrived(flow) => self.flows.spec[flow as usize].on_received,
                News::Failed(_) => {
                    self.flows.finished += 1;
                    None
                }
            };
            let now = self.now;
            for &flow in self.flows.pull(trigger) {
                self.wheel.push(now, Happening::Start { flow }.pack());
            }
        }
        self.news.clear();
    }

    /// The card of `host` is free and may have something to send.
    fn card(&mut self, host: u32) {
        let entry = &mut self.hosts[host as usize];
        if entry.card_at != self.now {
            // Something else that happened at this time sent a packet already.
            return;
        }
        entry.card_at = Picos::NEVER;
        self.send(host);
        // A packet that may not go yet, because it is paced, sets one.
        self.set_timer(host);
    }

    /// The card is looked at once it is free: one event at a time, however many reasons there are.
    fn arm_card(&mut self, host: u32, at: Picos) {
        let entry = &mut self.hosts[host as usize];
        if entry.card_at != at {
            entry.card_at = at;
            self.push(at, Happening::Card { host });
        }
    }

    /// The card of `host` sends what it can.
    fn send(&mut self, host: u32) {
        let entry = &mut self.hosts[host as usize];
        if !entry.eager() {
            return;
        }
        if entry.busy_until > self.now {
            let at = entry.busy_until;
            return self.arm_card(host, at);
        }
        let port = entry.port;
        let paused = self.network.port(port).is_paused();
        let Some((head, body)) = entry.next(self.now, self.sizes, paused, &mut self.flows.running)
        else {
            return;
        };
        let (free_at, arrives) = self.network.transmit(self.now, port, head.bytes);
        entry.busy_until = free_at;
        let more = entry.eager();
        let packet = self.packets.make(host, port, head, body);
        self.arrive(port, packet, arrives);
        if more {
            self.arm_card(host, free_at);
        }
    }

    fn finish(mut self, end: End, wall_s: f64) -> Results {
        self.sum();
        self.totals.wall_s = wall_s;
        let routes = self.network.routes();
        let reachable = |index: usize| {
            let flow = &self.flows.running[index];
            routes.connected(flow.src, flow.dst)
        };
        let flows: Vec<_> = (0..self.flows.running.len())
            .map(|index| self.flows.result(index, reachable(index)))
            .collect();
        let lost = |flow: &super::FlowResult| {
            flow.unfinished.is_none_or(|why| {
                matches!(why, super::Unfinished::Disconnected | super::Unfinished::Failed)
            })
        };
        let end = match end {
            // What is left will never finish, however long it goes on.
            End::TimeUp | End::Done
                if flows.iter().any(|flow| flow.fct.is_none()) && flows.iter().all(lost) =>
            {
                End::Stuck
            }
            other => other,
        };
        let ports = if self.per_port { self.loads() } else { Vec::new() };
        let series = self.recorder.finish();
        Results { end, flows, totals: self.totals, ports, series }
    }

    fn sum(&mut self) {
        let totals = &mut self.totals;
        totals.events = self.events;
        totals.end = self.now;
        totals.under_way = self.packets.data_in_flight();
        totals.peak_bytes = super::memory::peak_bytes();
        for flow in &self.flows.running {
            totals.packets += flow.packets;
            totals.retransmitted += flow.retransmitted;
        }
        for host in &self.hosts {
            let (acks, nacks) = host.answers();
            totals.acks += acks;
            totals.nacks += nacks;
        }
    }

    fn loads(&self) -> Vec<PortLoad> {
        let topology = self.network.topology();
        let tier = |node: Node| match node {
            Node::Host(_) => None,
            Node::Switch(switch) => Some(topology.switches[switch as usize].tier),
        };
        (0..self.network.len())
            .map(|port| {
                let counters = self.network.port(port).counters();
                let (from, to) = (tier(topology.from(port)), tier(topology.to(port)));
                PortLoad {
                    port,
                    name: topology.port_name(port),
                    tier: from,
                    up: from < to,
                    bytes: counters.bytes,
                    packets: counters.packets,
                    marked: counters.marked,
                    trimmed: counters.trimmed,
                    dropped: counters.dropped,
                    max_queue: counters.max_queue,
                }
            })
            .collect()
    }
}
