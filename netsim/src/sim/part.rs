//! The hosts of a simulation, or of a part of one, with a network that is stepped in virtual time.

use core::ops::{Index, IndexMut, Range};
use std::sync::Arc;

use super::config::{Intake, SimConfig, SimError};
use super::flows::{FiredTrigger, FlowGraph, Flows};
use super::host::{Host, News, Sizes};
use super::lockstep::{CarriedPacket, Parcel};
use super::outbox::Extra;
use super::packet::{Bodies, Body};
use super::series::Recorder;
use super::setup::Setup;
use crate::Picos;
use crate::chance::Chance;
use crate::model::{
    Border, Drop, Ends, FailureEvent, Network, Partition, Share, Step, Transfer, Turn,
    UpcomingEvent,
};
use crate::topology::Node;
use crate::workload::{Start, Workload};
use squall_base::Rng;
use squall_cc::Hops;

/// An event of a host or of a schedule, packed into 63 bits: seven of kind, 24 of `a`, 32 of `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostEvent {
    /// The network card of host `a` is free for the next packet.
    Card { host: u32 },
    /// A timer of host `a` expires.
    Wake { host: u32 },
    /// Packet `b` reaches the transport of host `a`.
    Delivered { host: u32, packet: u32 },
    /// Flow `b` starts.
    Start { flow: u32 },
    /// The failure of index `b` in the schedule of failures happens.
    Fail { index: u32 },
    /// Samples are due: of queues (`b` is 0) or of windows.
    Sample { windows: bool },
    /// Another trigger activates trigger `b`.
    Activate { trigger: u32 },
}

impl HostEvent {
    const fn pack(self) -> u64 {
        let (kind, a, b) = match self {
            Self::Card { host } => (0, host, 0),
            Self::Wake { host } => (1, host, 0),
            Self::Delivered { host, packet } => (2, host, packet),
            Self::Start { flow } => (3, 0, flow),
            Self::Fail { index } => (4, 0, index),
            Self::Sample { windows } => (5, 0, windows as u32),
            Self::Activate { trigger } => (6, 0, trigger),
        };
        kind << 56 | (a as u64) << 32 | b as u64
    }

    /// Returns the order of the event among those of the same time. Failures come first, then
    /// samples, which show the state before all other events of that time.
    const fn turn(self) -> Turn {
        match self {
            Self::Fail { index } => Turn::first(index),
            Self::Sample { windows } => Turn::first(u32::MAX - windows as u32),
            Self::Activate { trigger } => Turn::early(0, trigger),
            Self::Start { flow } => Turn::early(1, flow),
            Self::Delivered { host, .. } => Turn::at_host(1, host),
            Self::Wake { host } => Turn::at_host(2, host),
            Self::Card { host } => Turn::at_host(3, host),
        }
    }

    /// Schedules the event at `at`.
    fn schedule(self, network: &mut Network, at: Picos) {
        network.call(at, self.pack(), self.turn());
    }

    const fn unpack(packed: u64) -> Self {
        let (a, b) = ((packed >> 32) as u32 & 0xff_ffff, packed as u32);
        match packed >> 56 {
            0 => Self::Card { host: a },
            1 => Self::Wake { host: a },
            2 => Self::Delivered { host: a, packet: b },
            3 => Self::Start { flow: b },
            4 => Self::Fail { index: b },
            6 => Self::Activate { trigger: b },
            _ => Self::Sample { windows: b != 0 },
        }
    }
}

/// The hosts of a part, by their numbers in the network.
#[derive(Debug)]
pub(super) struct Residents {
    first: u32,
    pub(super) all: Vec<Host>,
}

impl Index<u32> for Residents {
    type Output = Host;

    fn index(&self, host: u32) -> &Host {
        &self.all[host.wrapping_sub(self.first) as usize]
    }
}

impl IndexMut<u32> for Residents {
    fn index_mut(&mut self, host: u32) -> &mut Host {
        &mut self.all[host.wrapping_sub(self.first) as usize]
    }
}

/// The hosts of a part, the contents of the packets between them, and their flows.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) hosts: Residents,
    bodies: Bodies,
    pub(super) flows: Flows,
    /// True if there are more contexts than the processor's cache holds, so that they are
    /// prefetched.
    large: bool,
}

impl Ends for Hosts {
    fn copy(&mut self, from: u32, to: u32) {
        let body = *self.bodies.of(from);
        self.bodies.put(to, body);
        self.bodies.copy_rest(from, to);
    }

    fn prefetch(&self, event: UpcomingEvent) -> u64 {
        match event {
            UpcomingEvent::Arrival { host, packet } => {
                self.hosts[host].prefetch() ^ u64::from(self.bodies.of(packet).is_data())
            }
            UpcomingEvent::Call(what) => match HostEvent::unpack(what) {
                HostEvent::Card { host } => self.hosts[host].prefetch(),
                _ => 0,
            },
        }
    }

    fn prefetch_next(&self, event: UpcomingEvent) -> u64 {
        if !self.large {
            return 0;
        }
        let (host, body) = match event {
            UpcomingEvent::Arrival { host, packet } => (host, Some(self.bodies.of(packet))),
            UpcomingEvent::Call(what) => match HostEvent::unpack(what) {
                HostEvent::Card { host } => (host, None),
                _ => return 0,
            },
        };
        self.hosts[host].prefetch_packet(body, &self.flows.running)
    }
}

/// A network, or a part of one, with its hosts, flows and failures.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) network: Network,
    pub(super) ends: Hosts,
    news: Vec<News>,
    sizes: Sizes,
    failures: Vec<FailureEvent>,
    /// Delay of the hosts, and (next field) the maximum of the random time added to it.
    delay: Picos,
    jitter: Picos,
    intake: Option<Intake>,
    /// Source of the random delays of hosts (jitter).
    chance: Chance,
    pub(super) recorder: Recorder,
    /// True to record how long packets are in flight.
    timed: bool,
    /// True if flows between the same two hosts share a context.
    per_pair: bool,
    pub(super) computed: PendingComputations,
    /// Data packets that hosts received, not trimmed, duplicates included.
    pub(super) delivered: u64,
    /// Time at which a flow last finished, or an operation ended.
    pub(super) last: Picos,
    /// List that [`Part::hand_over`] fills and empties. It is kept only so that its memory is
    /// reused.
    transfers: Vec<Transfer>,
}

/// Computations of ranks that have not ended, where a workload has any.
#[derive(Debug)]
pub(super) struct PendingComputations {
    /// Number of triggers that other triggers will still activate.
    pub(super) pending: usize,
    /// Latest time at which an operation ends, of those that have begun.
    pub(super) ended: Picos,
}

impl PendingComputations {
    /// Schedules the flows and triggers that a trigger starts.
    fn schedule_started(&mut self, network: &mut Network, fired: FiredTrigger<'_>) {
        for &flow in fired.flows {
            HostEvent::Start { flow }.schedule(network, fired.at);
        }
        for &trigger in fired.triggers {
            HostEvent::Activate { trigger }.schedule(network, fired.at);
        }
        self.pending += fired.triggers.len();
        self.ended = self.ended.max(fired.at);
    }
}

impl Part {
    /// Creates part `part` with its network, hosts and first events.
    pub(super) fn new(
        config: &SimConfig,
        (setup, workload, graph): (&Setup, &Workload, &Arc<FlowGraph>),
        (partition, part): (&Partition, u32),
    ) -> Result<Self, SimError> {
        // A few events happen in so many picoseconds; larger networks have more of them.
        let tick = Picos(match config.topology.hosts {
            0..=255 => 1 << 10,
            256..=2047 => 1 << 8,
            _ => 1 << 6,
        });
        let (topology, options) = (config.topology.clone(), setup.network.clone());
        let network = Network::new(topology, options, tick, Share::of(partition, part))
            .map_err(SimError::Parameter)?;
        let hosts = partition
            .hosts(part)
            .map(|host| Host::new(host, network.host_port(host), setup.stack(host), setup.extra()));
        let mut built = Self {
            ends: Hosts {
                hosts: Residents { first: partition.hosts(part).start, all: hosts.collect() },
                bodies: Bodies::default(),
                flows: Flows::new(graph, &setup.network.features),
                large: config.topology.hosts > 512,
            },
            news: Vec::new(),
            sizes: setup.sizes,
            failures: config.failures.clone(),
            delay: config.host.delay,
            jitter: config.host.jitter,
            intake: config.host.intake,
            chance: Chance::of(&mut Rng::new(config.seed ^ 0x686f_7374_7300)),
            recorder: Recorder::new(&config.observe, network.switches()),
            timed: config.observe.packets,
            per_pair: setup.per_pair,
            computed: PendingComputations { pending: 0, ended: Picos::ZERO },
            delivered: 0,
            last: Picos::ZERO,
            transfers: Vec::new(),
            network,
        };
        built.schedule(config, workload, &partition.hosts(part));
        Ok(built)
    }

    fn schedule(&mut self, config: &SimConfig, workload: &Workload, hosts: &Range<u32>) {
        for (index, failure) in (0u32..).zip(&config.failures) {
            self.call(failure.at, HostEvent::Fail { index });
        }
        for (flow, spec) in (0u32..).zip(&workload.flows) {
            if let Start::At(at) = spec.start
                && hosts.contains(&spec.src)
            {
                self.call(Picos(at), HostEvent::Start { flow });
            }
        }
        let home = workload.homes();
        for trigger in workload.begins().filter(|&at| hosts.contains(&home[at as usize].start)) {
            let fired = self.ends.flows.begin(trigger);
            self.computed.schedule_started(&mut self.network, fired);
        }
        for (windows, every) in [(false, config.observe.queues), (true, config.observe.windows)] {
            if every.is_some() {
                self.call(Picos::ZERO, HostEvent::Sample { windows });
            }
        }
    }

    fn call(&mut self, at: Picos, what: HostEvent) {
        what.schedule(&mut self.network, at);
    }

    /// Processes all events up to and including `until`.
    pub(super) fn step(&mut self, until: Picos) {
        while let Some(step) = self.network.step(until, &mut self.ends) {
            match step {
                Step::Arrived { host, packet } => self.arrived(host, packet),
                Step::Called(what) => self.handle(HostEvent::unpack(what)),
                Step::Resumed { host } => self.resume(host),
            }
        }
    }

    /// Removes packets and pause frames for other parts from this one, in the order in which they
    /// left. Calls `to` for each with the switch that receives it.
    pub(super) fn hand_over(&mut self, mut to: impl FnMut(Node, Parcel)) {
        let mut border = Border(&mut self.network);
        border.drain(&mut self.transfers);
        for what in self.transfers.drain(..) {
            let packet = what.packet().map(|packet| {
                let (header, source, options) = border.hand_over(packet);
                CarriedPacket {
                    header,
                    source,
                    options: options.map(Box::new),
                    rest: self.ends.bodies.whole(packet),
                }
            });
            to(border.destination(&what), Parcel { what, packet });
        }
    }

    /// Accepts a packet or pause frame that another part handed over.
    pub(super) fn take(&mut self, Parcel { what, packet }: Parcel) {
        match packet {
            Some(CarriedPacket { header, source, options, rest }) => {
                let packet = Border(&mut self.network).accept_packet(
                    &what,
                    header,
                    source,
                    options.as_deref(),
                );
                self.ends.bodies.put_whole(packet, rest);
            }
            None => Border(&mut self.network).apply_pause(&what),
        }
    }

    fn handle(&mut self, what: HostEvent) {
        match what {
            HostEvent::Card { host } => self.card(host),
            HostEvent::Wake { host } => self.wake(host),
            HostEvent::Delivered { host, packet } => self.deliver(host, packet),
            HostEvent::Start { flow } => self.start(flow),
            HostEvent::Fail { index } => {
                let failure = self.failures[index as usize];
                self.network.fail(failure.at, failure.what);
            }
            HostEvent::Sample { windows } => self.sample(windows),
            HostEvent::Activate { trigger } => {
                self.computed.pending -= 1;
                self.last = self.network.now();
                self.activate(trigger);
            }
        }
    }

    fn activate(&mut self, trigger: u32) {
        if let Some(fired) = self.ends.flows.activate(trigger, self.network.now()) {
            self.computed.schedule_started(&mut self.network, fired);
        }
    }

    fn sample(&mut self, windows: bool) {
        let now = self.network.now();
        let every = if windows {
            self.recorder.windows(now, &self.ends.hosts.all, &self.ends.flows)
        } else {
            self.recorder.queues(now, self.network.switches())
        };
        // Samples alone do not keep a simulation running.
        if !self.network.is_idle() {
            self.call(now + every, HostEvent::Sample { windows });
        }
    }

    fn arrived(&mut self, host: u32, packet: u32) {
        if self.delay == Picos::ZERO && self.jitter == Picos::ZERO && self.intake.is_none() {
            return self.deliver(host, packet);
        }
        let taken_in = match self.intake {
            Some(intake) => match self.queue(host, packet, intake) {
                Some(at) => at,
                None => return self.overflow(host, packet),
            },
            None => self.network.now(),
        };
        let now = self.network.now();
        // One packet arrives over a link at a time, so time and host are seed enough.
        let mut rng = self.chance.at(now, host.into());
        let extra = if self.jitter == Picos::ZERO { 0 } else { rng.next_u64() % self.jitter.0 };
        let entry = &mut self.ends.hosts[host];
        entry.delivered_at = entry.delivered_at.max(taken_in + self.delay + Picos(extra));
        let at = entry.delivered_at;
        self.call(at, HostEvent::Delivered { host, packet });
    }

    /// Queues a packet in the receive buffer of `host`. Returns the time at which the host has
    /// taken it in, or `None` if there is no room.
    fn queue(&mut self, host: u32, packet: u32, Intake { rate, buffer }: Intake) -> Option<Picos> {
        let now = self.network.now();
        let bytes = self.network.flights().header(packet).bytes.into();
        let slow = &mut self.ends.hosts[host].intake;
        let begin = slow.taken_in_at.max(now);
        if rate.bytes_in(begin.since(now).span()) + bytes > buffer {
            return None;
        }
        slow.taken_in_at = begin + Picos::transmit(rate, bytes);
        Some(slow.taken_in_at)
    }

    /// Counts and drops a packet for which `host` has no room.
    #[cold]
    fn overflow(&mut self, host: u32, packet: u32) {
        self.ends.hosts[host].intake.lost += u64::from(self.network.flights().header(packet).bytes);
        self.network.lose(packet, Drop::HostFull);
    }

    /// Lets a host send again after a pause.
    fn resume(&mut self, host: u32) {
        self.send(host);
        // A paced packet that may not leave yet needs a timer, and no other event may follow that
        // would set one.
        self.set_timer(host);
    }

    fn deliver(&mut self, host: u32, packet: u32) {
        let now = self.network.now();
        let (&header, source) = self.network.take(packet);
        let Hosts { hosts, bodies, flows, .. } = &mut self.ends;
        let body = bodies.of(packet);
        self.delivered += u64::from(!header.trimmed && body.is_data());
        if header.ce {
            flows.marked(body);
        }
        if self.timed {
            flows.record_flight_time(body, bodies.sent(packet), now);
        }
        let options = self.network.options(packet);
        if let (Some(options), Body::Rates) = (options, body) {
            if let Some(rates) = options.read() {
                let entry = &mut hosts[host];
                entry.rated(now, (source, &rates), &mut flows.running, &mut self.news);
            }
            return self.collect_output(host);
        }
        let mut hops = Hops::default();
        let telemetry = match options {
            Some(options) if body.is_data() => {
                flows.count_features(body, header.bytes, options);
                hops = options.read().unwrap_or(hops);
                &hops
            }
            _ => bodies.echo(packet),
        };
        let entry = &mut hosts[host];
        if let Some(intake) = self.intake {
            entry.report_overflow(now, intake.buffer);
        }
        let (carried, running) = ((body, telemetry), &mut flows.running);
        entry.receive(now, source, &header, carried, running, &mut self.news);
        self.collect_output(host);
    }

    fn wake(&mut self, host: u32) {
        let now = self.network.now();
        let entry = &mut self.ends.hosts[host];
        if entry.wake_at != now {
            // This timer event was replaced by an earlier one.
            return;
        }
        entry.wake_at = Picos::NEVER;
        entry.handle_timeout(now, &mut self.ends.flows.running, &mut self.news);
        self.collect_output(host);
    }

    fn start(&mut self, flow: u32) {
        let now = self.network.now();
        let Hosts { hosts, flows, .. } = &mut self.ends;
        let spec = &flows.graph.flows()[flow as usize];
        let running = &mut flows.running;
        running[flow as usize].start = now;
        let (host, dst) = (spec.src, spec.dst);
        // Flows share a context only within one job and level, because scopes of congestion control
        // distinguish them.
        let kind = u64::from(spec.job) << 41 | u64::from(spec.level) << 33;
        let connection =
            if self.per_pair { kind | u64::from(dst) } else { 1 << 32 | u64::from(spec.id) };
        let activated = spec.on_started;
        let entry = &mut hosts[host];
        entry.start(now, flow, connection, running, &mut self.news);
        activated.into_iter().for_each(|trigger| self.activate(trigger));
        self.collect_output(host);
    }

    /// Handles the results of an event at the transport of `host`: reports of flows, packets to
    /// send, and timers.
    fn collect_output(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host];
        entry.collect_output(self.network.now(), &mut self.ends.flows.running, &mut self.news);
        if !self.news.is_empty() {
            self.handle_news();
        }
        self.send(host);
        self.set_timer(host);
    }

    /// Schedules a timer event if the transport needs one earlier than scheduled.
    fn set_timer(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host];
        if let Some(at) = entry.poll_timeout() {
            let at = at.max(self.network.now() + Picos(1));
            if at < entry.wake_at {
                entry.wake_at = at;
                self.call(at, HostEvent::Wake { host });
            }
        }
    }

    fn handle_news(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        let now = self.network.now();
        for news in news.drain(..) {
            let flows = &mut self.ends.flows;
            let trigger = match news {
                News::Done(flow) => {
                    flows.finish(flow);
                    self.last = now;
                    flows.graph.flows()[flow as usize].on_sent
                }
                News::Arrived(flow) => flows.graph.flows()[flow as usize].on_received,
                News::Failed(flow) => {
                    flows.finish(flow);
                    self.last = now;
                    None
                }
            };
            trigger.into_iter().for_each(|trigger| self.activate(trigger));
        }
        // The vector is put back so that its memory is reused.
        self.news = news;
    }

    /// Handles the event that the card of `host` is free and may have something to send.
    fn card(&mut self, host: u32) {
        let entry = &mut self.ends.hosts[host];
        if entry.card_at != self.network.now() {
            // An earlier event of this time already sent a packet.
            return;
        }
        entry.card_at = Picos::NEVER;
        self.send(host);
        // A paced packet that may not leave yet sets a timer.
        self.set_timer(host);
    }

    /// Schedules the event that serves the card once it is free: one event at a time, however many
    /// reasons there are.
    fn arm_card(&mut self, host: u32, at: Picos) {
        let entry = &mut self.ends.hosts[host];
        if entry.card_at != at {
            entry.card_at = at;
            self.call(at, HostEvent::Card { host });
        }
    }

    /// Sends the next packet of `host` if its card is free, else schedules that.
    fn send(&mut self, host: u32) {
        let now = self.network.now();
        let Hosts { hosts, bodies, flows, .. } = &mut self.ends;
        let entry = &mut hosts[host];
        if !entry.eager() {
            return;
        }
        if entry.busy_until > now {
            let at = entry.busy_until;
            return self.arm_card(host, at);
        }
        let paused = self.network.switches().port(entry.port).is_paused();
        let Some((header, body)) = entry.next(now, self.sizes, paused, &mut flows.running) else {
            return;
        };
        let extra = entry.extra();
        let options = extra.map(Extra::options);
        let (packet, free_at) = self.network.transmit(host, header, options);
        if let Some(echo) = extra.and_then(Extra::echo) {
            bodies.put_echo(packet, *echo);
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
}
