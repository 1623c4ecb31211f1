//! The simulation itself: the network stepped in virtual time, and what hosts do.

use core::ops::ControlFlow;
use std::time::Instant;

use super::config::{SimConfig, SimError};
use super::flows::{Fired, Flows};
use super::host::{Host, News, Sizes};
use super::outbox::Extra;
use super::packet::Bodies;
use super::results::{End, Observer, PortLoad, Results, Totals};
use super::series::Recorder;
use super::setup::Setup;
use super::told::Told;
use crate::Picos;
use crate::base::Rng;
use crate::cc::Hops;
use crate::model::{Coming, Ends, FailureEvent, Network, Note, Step};
use crate::topology::Node;
use crate::workload::{Start, Workload};

/// Events between two looks of the observer.
const LOOK: u64 = 1 << 16;

/// What hosts and schedules have happen, packed into 63 bits: seven of kind, 24 of `a`, 32 of `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Happening {
    /// The card of host `a` is free.
    Card { host: u32 },
    /// A timer of host `a`.
    Wake { host: u32 },
    /// Packet `b` gets through to the transport of host `a`.
    Seen { host: u32, packet: u32 },
    /// Flow `b` starts.
    Start { flow: u32 },
    /// Failure `b` of the schedule.
    Fail { index: u32 },
    /// Time for samples: queues (`b` is 0) or windows.
    Sample { windows: bool },
    /// Trigger `b` is pulled by another one.
    Pull { trigger: u32 },
}

impl Happening {
    const fn pack(self) -> u64 {
        let (kind, a, b) = match self {
            Self::Card { host } => (0, host, 0),
            Self::Wake { host } => (1, host, 0),
            Self::Seen { host, packet } => (2, host, packet),
            Self::Start { flow } => (3, 0, flow),
            Self::Fail { index } => (4, 0, index),
            Self::Sample { windows } => (5, 0, windows as u32),
            Self::Pull { trigger } => (6, 0, trigger),
        };
        kind << 56 | (a as u64) << 32 | b as u64
    }

    const fn unpack(packed: u64) -> Self {
        let (a, b) = ((packed >> 32) as u32 & 0xff_ffff, packed as u32);
        match packed >> 56 {
            0 => Self::Card { host: a },
            1 => Self::Wake { host: a },
            2 => Self::Seen { host: a, packet: b },
            3 => Self::Start { flow: b },
            4 => Self::Fail { index: b },
            6 => Self::Pull { trigger: b },
            _ => Self::Sample { windows: b != 0 },
        }
    }
}

/// The hosts, and what is on its way between them.
#[derive(Debug)]
struct Hosts {
    hosts: Vec<Host>,
    bodies: Bodies,
    flows: Flows,
    /// There are more contexts than the cache holds.
    large: bool,
}

impl Ends for Hosts {
    fn copy(&mut self, from: u32, to: u32) {
        let body = *self.bodies.of(from);
        self.bodies.put(to, body);
        self.bodies.copy_rest(from, to);
    }

    fn glance(&self, coming: Coming) -> u64 {
        match coming {
            Coming::Arrival { host, packet } => {
                self.hosts[host as usize].glance() ^ u64::from(self.bodies.of(packet).is_data())
            }
            Coming::Call(what) => match Happening::unpack(what) {
                Happening::Card { host } => self.hosts[host as usize].glance(),
                _ => 0,
            },
        }
    }

    fn glance_on(&self, coming: Coming) -> u64 {
        if !self.large {
            return 0;
        }
        let (host, body) = match coming {
            Coming::Arrival { host, packet } => (host, Some(self.bodies.of(packet))),
            Coming::Call(what) => match Happening::unpack(what) {
                Happening::Card { host } => (host, None),
                _ => return 0,
            },
        };
        self.hosts[host as usize].glance_at(body, &self.flows.running)
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
    told: Told,
    until: Picos,
    network: Network,
    ends: Hosts,
    news: Vec<News>,
    sizes: Sizes,
    failures: Vec<FailureEvent>,
    /// The hosts' own delay, and the jitter on top.
    delay: Picos,
    jitter: Picos,
    rng: Rng,
    recorder: Recorder,
    per_port: bool,
    /// How long packets are on their way is asked for.
    timed: bool,
    /// Flows between the same two hosts share a context.
    per_pair: bool,
    computed: Computed,
    totals: Totals,
}

/// What ranks compute, where a workload says so.
#[derive(Debug)]
struct Computed {
    there: bool,
    /// Triggers that are about to be pulled by others.
    pending: usize,
    /// When the last operation ended so far.
    ended: Picos,
}

impl Computed {
    /// What a trigger starts happens in its time.
    fn follow(&mut self, network: &mut Network, fired: Fired<'_>) {
        for &flow in fired.flows {
            network.call(fired.at, Happening::Start { flow }.pack());
        }
        for &trigger in fired.triggers {
            network.call(fired.at, Happening::Pull { trigger }.pack());
        }
        self.pending += fired.triggers.len();
        self.ended = self.ended.max(fired.at);
    }
}

impl Simulation {
    /// Puts everything in place.
    ///
    /// # Errors
    /// What about the topology, the workload, the algorithms or other parameters is impossible.
    pub fn new(config: &SimConfig, workload: &Workload) -> Result<Self, SimError> {
        let setup = Setup::new(config, workload)?;
        // A few things happen in so many picoseconds.
        let tick = Picos(match config.topology.hosts {
            0..=255 => 1 << 10,
            256..=2047 => 1 << 8,
            _ => 1 << 6,
        });
        let network = Network::new(config.topology.clone(), setup.network.clone(), tick)
            .map_err(SimError::Parameter)?;
        let hosts = (0..config.topology.hosts)
            .map(|host| Host::new(host, network.host_port(host), setup.stack(host), setup.extra()));
        let mut simulation = Self {
            told: Told::of(config, &setup),
            until: config.until,
            ends: Hosts {
                hosts: hosts.collect(),
                bodies: Bodies::default(),
                flows: Flows::new(workload, setup.network.deflection.is_some()),
                large: config.topology.hosts > 512,
            },
            news: Vec::new(),
            sizes: setup.sizes,
            failures: config.failures.clone(),
            delay: config.host.delay,
            jitter: config.host.jitter,
            rng: Rng::new(config.seed ^ 0x686f_7374_7300),
            recorder: Recorder::new(&config.observe, network.switches()),
            per_port: config.observe.ports,
            timed: config.observe.packets,
            per_pair: setup.per_pair,
            computed: Computed {
                there: !workload.chains.is_empty(),
                pending: 0,
                ended: Picos::ZERO,
            },
            totals: Totals::default(),
            network,
        };
        simulation.schedule(config, workload);
        Ok(simulation)
    }

    fn schedule(&mut self, config: &SimConfig, workload: &Workload) {
        // Failures come first among what happens at one time.
        for (index, failure) in (0u32..).zip(&config.failures) {
            self.call(failure.at, Happening::Fail { index });
        }
        for (flow, spec) in (0u32..).zip(&workload.flows) {
            if let Start::At(at) = spec.start {
                self.call(Picos(at), Happening::Start { flow });
            }
        }
        for trigger in workload.begins() {
            let fired = self.ends.flows.begin(trigger);
            self.computed.follow(&mut self.network, fired);
        }
        for (windows, every) in [(false, config.observe.queues), (true, config.observe.windows)] {
            if every.is_some() {
                self.call(Picos::ZERO, Happening::Sample { windows });
            }
        }
    }

    fn call(&mut self, at: Picos, what: Happening) {
        self.network.call(at, what.pack());
    }

    /// What it runs with.
    #[must_use]
    pub const fn told(&self) -> &Told {
        &self.told
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
        let all = self.ends.flows.running.len();
        let mut look = LOOK;
        while self.ends.flows.finished < all || self.computed.pending > 0 {
            match self.network.step(self.until, &mut self.ends) {
                Some(Step::Arrived { host, packet }) => self.arrived(host, packet),
                Some(Step::Called(what)) => self.happen(Happening::unpack(what)),
                Some(Step::Resumed { host }) => self.resume(host),
                None if self.network.is_idle() => return End::Stuck,
                None => {
                    self.network.rest(self.until);
                    return End::TimeUp;
                }
            }
            if self.network.events() >= look {
                look = self.network.events() + LOOK;
                let finished = self.ends.flows.finished;
                if observer.progress(self.network.now(), finished, self.network.events())
                    == ControlFlow::Break(())
                {
                    return End::Interrupted;
                }
            }
        }
        End::Done
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Card { host } => self.card(host),
            Happening::Wake { host } => self.wake(host),
            Happening::Seen { host, packet } => self.seen(host, packet),
            Happening::Start { flow } => self.start(flow),
            Happening::Fail { index } => {
                let failure = self.failures[index as usize];
                self.network.fail(failure.at, failure.what);
            }
            Happening::Sample { windows } => self.sample(windows),
            Happening::Pull { trigger } => {
                self.computed.pending -= 1;
                self.pull(trigger);
            }
        }
    }

    fn pull(&mut self, trigger: u32) {
        if let Some(fired) = self.ends.flows.pull(trigger, self.network.now()) {
            self.computed.follow(&mut self.network, fired);
        }
    }

    fn sample(&mut self, windows: bool) {
        let now = self.network.now();
        let every = if windows {
            self.recorder.windows(now, &self.ends.hosts, &self.ends.flows)
        } else {
            self.recorder.queues(now, self.network.switches())
        };
        // Samples alone do not keep a simulation going.
        if !self.network.is_idle() {
            self.call(now + every, Happening::Sample { windows });
        }
    }

    fn arrived(&mut self, host: u32, packet: u32) {
        if self.delay == Picos::ZERO && self.jitter == Picos::ZERO {
            return self.seen(host, packet);
        }
        let extra =
            if self.jitter == Picos::ZERO { 0 } else { self.rng.next_u64() % self.jitter.0 };
        let entry = &mut self.ends.hosts[host as usize];
        entry.seen_at = entry.seen_at.max(self.network.now() + self.delay + Picos(extra));
        let at = entry.seen_at;
        self.call(at, Happening::Seen { host, packet });
    }

    /// A paused host may go on.
    fn resume(&mut self, host: u32) {
        self.send(host);
        // What may not go yet, because it is paced, sets a timer; nothing else may follow.
        self.set_timer(host);
    }

    fn seen(&mut self, host: u32, packet: u32) {
        let now = self.network.now();
        let (&head, source) = self.network.take(packet);
        let Hosts { hosts, bodies, flows, .. } = &mut self.ends;
        let body = bodies.of(packet);
        self.totals.delivered += u64::from(!head.trimmed && body.is_data());
        if head.ce {
            flows.marked(body);
        }
        if self.timed {
            flows.took(body, bodies.sent(packet), now);
        }
        let telemetry = match self.network.note(packet) {
            Some(Note::Rates(rates)) => {
                let entry = &mut hosts[host as usize];
                entry.rated(now, (source, rates), &mut flows.running, &mut self.news);
                return self.attend(host);
            }
            Some(Note::Message(message)) => {
                let tokens = self.network.switches().config().deflection;
                flows.travelled(body, head.bytes, message, tokens.as_ref());
                Hops::NONE
            }
            Some(note) if body.is_data() => note.hops(),
            _ => bodies.echo(packet),
        };
        let entry = &mut hosts[host as usize];
        let (carried, running) = ((body, telemetry), &mut flows.running);
        entry.receive(now, source, &head, carried, running, &mut self.news);
        self.attend(host);
    }

    fn wake(&mut self, host: u32) {
        let now = self.network.now();
        let entry = &mut self.ends.hosts[host as usize];
        if entry.wake_at != now {
            // A later one that an earlier one replaced.
            return;
        }
        entry.wake_at = Picos::NEVER;
        entry.handle_timeout(now, &mut self.ends.flows.running, &mut self.news);
        self.attend(host);
    }

    fn start(&mut self, flow: u32) {
        let now = self.network.now();
        let Hosts { hosts, flows, .. } = &mut self.ends;
        let spec = &flows.spec[flow as usize];
        let running = &mut flows.running;
        running[flow as usize].start = now;
        let (host, dst) = (spec.src, spec.dst);
        // Of one job and level, or scopes could not tell them.
        let kind = u64::from(spec.job) << 41 | u64::from(spec.level) << 33;
        let connection =
            if self.per_pair { kind | u64::from(dst) } else { 1 << 32 | u64::from(spec.id) };
        let pulled = spec.on_started;
        let entry = &mut hosts[host as usize];
        entry.start(now, flow, connection, running, &mut self.news);
        pulled.into_iter().for_each(|trigger| self.pull(trigger));
        self.attend(host);
    }

    /// After the transport of `host` was touched.
    fn attend(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host as usize];
        entry.attend(self.network.now(), &mut self.ends.flows.running, &mut self.news);
        if !self.news.is_empty() {
            self.tell();
        }
        self.send(host);
        self.set_timer(host);
    }

    /// The transport wants to be called no later than it says.
    fn set_timer(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host as usize];
        if let Some(at) = entry.poll_timeout() {
            let at = at.max(self.network.now() + Picos(1));
            if at < entry.wake_at {
                entry.wake_at = at;
                self.call(at, Happening::Wake { host });
            }
        }
    }

    fn tell(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        for news in news.drain(..) {
            let flows = &mut self.ends.flows;
            let trigger = match news {
                News::Done(flow) => {
                    flows.finish(flow);
                    flows.spec[flow as usize].on_sent
                }
                News::Arrived(flow) => flows.spec[flow as usize].on_received,
                News::Failed(flow) => {
                    flows.finish(flow);
                    None
                }
            };
            trigger.into_iter().for_each(|trigger| self.pull(trigger));
        }
        // Its memory is used again.
        self.news = news;
    }

    /// The card of `host` is free and may have something to send.
    fn card(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host as usize];
        if entry.card_at != self.network.now() {
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
        let entry = &mut self.ends.hosts[host as usize];
        if entry.card_at != at {
            entry.card_at = at;
            self.call(at, Happening::Card { host });
        }
    }

    /// The card of `host` sends what it can.
    fn send(&mut self, host: u32) {
        let now = self.network.now();
        let Hosts { hosts, bodies, flows, .. } = &mut self.ends;
        let entry = &mut hosts[host as usize];
        if !entry.eager() {
            return;
        }
        if entry.busy_until > now {
            let at = entry.busy_until;
            return self.arm_card(host, at);
        }
        let paused = self.network.switches().port(entry.port).is_paused();
        let Some((head, body)) = entry.next(now, self.sizes, paused, &mut flows.running) else {
            return;
        };
        let extra = entry.extra();
        let note = extra.and_then(Extra::note);
        let (packet, free_at) = self.network.transmit(host, head, note);
        if let Some(Extra::Echo { last, .. }) = extra {
            bodies.put_echo(packet, *last);
        }
        entry.busy_until = free_at;
        let more = entry.eager();
        bodies.put(packet, body);
        if self.timed {
            bodies.put_sent(packet, now);
        }
        if more {
            self.arm_card(host, free_at);
        }
    }

    fn finish(mut self, end: End, wall_s: f64) -> Results {
        self.sum();
        self.totals.wall_s = wall_s;
        let (routes, flows) = (self.network.switches().routes(), &self.ends.flows);
        let reachable = |index: usize| {
            let flow = &flows.running[index];
            routes.connected(flow.src, flow.dst)
        };
        let flows: Vec<_> =
            (0..flows.running.len()).map(|index| flows.result(index, reachable(index))).collect();
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
        let job_bytes = self.ends.flows.job_bytes().to_vec();
        let whole = end == End::Done && flows.iter().all(|flow| flow.fct.is_some());
        let makespan = (self.computed.there && whole).then_some(self.computed.ended);
        Results { end, flows, totals: self.totals, ports, series, job_bytes, makespan }
    }

    fn sum(&mut self) {
        let totals = &mut self.totals;
        let network = self.network.totals();
        totals.trimmed = network.trimmed;
        totals.marked = network.marked;
        totals.dropped = network.data.total();
        totals.dropped_dead = network.data.down + network.data.black_hole;
        totals.control_dropped = network.control.total();
        totals.last_loss = network.last_loss;
        totals.pauses = network.pauses;
        totals.seen = network.seen;
        totals.ignored = network.ignored;
        totals.deflections = network.deflections;
        totals.events = self.network.events();
        totals.end = self.network.now();
        totals.under_way = self.network.data_in_flight();
        totals.peak_bytes = super::memory::peak_bytes();
        for flow in &self.ends.flows.running {
            totals.packets += flow.packets;
            totals.retransmitted += flow.retransmitted;
        }
        for host in &self.ends.hosts {
            let (acks, nacks) = host.answers();
            totals.acks += acks;
            totals.nacks += nacks;
        }
    }

    fn loads(&self) -> Vec<PortLoad> {
        let switches = self.network.switches();
        let topology = switches.topology();
        let tier = |node: Node| match node {
            Node::Host(_) => None,
            Node::Switch(switch) => Some(topology.switches[switch as usize].tier),
        };
        (0..switches.len())
            .map(|port| {
                let counters = switches.port(port).counters();
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
