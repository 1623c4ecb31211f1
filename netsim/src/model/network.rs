//! The network that both drivers step: its ports and switches, the packets in flight, and its event
//! queue. The driver decides how far time advances; the network does not know whether that time is
//! virtual.

use super::flight::{Flights, NO_ROUTE};
use super::header::PacketHeader;
use super::lane;
use super::packet_options::PacketOptions;
use super::partition::Share;
use super::planes::HostPorts;
use super::port::{Departure, Drop};
use super::program::{FeatureProgram, Place, Programs, SwitchProgram, Verdict};
use super::switches::{Arrival, PassOutcome, Pause, Switches};
use super::totals::Totals;
use super::turn::Turn;
use super::wheel::{BATCH, Wheel};
use super::{Failure, NetworkConfig, Switching};
use crate::Picos;
use crate::topology::{Node, Topology};

mod transfer;

use transfer::TransferKind;
pub use transfer::{Border, Transfer};

/// The hosts of a network, as far as the network has to know them.
pub trait Ends {
    /// Gives the new packet `to` the contents of packet `from`.
    fn copy(&mut self, from: u32, to: u32);

    /// Prefetches the memory that `event` needs, so that the processor waits for many reads at
    /// once. The returned value has no meaning, and nothing may depend on it.
    fn prefetch(&self, event: UpcomingEvent) -> u64 {
        let _ = event;
        0
    }

    /// Prefetches the memory that is one pointer further than what [`Ends::prefetch`] read.
    fn prefetch_next(&self, event: UpcomingEvent) -> u64 {
        let _ = event;
        0
    }
}

/// Hosts whose packets have no contents.
impl Ends for () {
    fn copy(&mut self, _from: u32, _to: u32) {}
}

/// An event at a host that will happen soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpcomingEvent {
    /// A packet arrives at a host.
    Arrival {
        /// Host at which the packet arrives.
        host: u32,
        /// Number of the packet, for [`Network::take`].
        packet: u32,
    },
    /// A call of the driver, with the value that [`Network::call`] was given.
    Call(u64),
}

/// An event of the network that the driver must handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A packet is at its destination, or at whatever host its last link leads to; the driver must
    /// call [`Network::take`].
    Arrived {
        /// Host at which the packet is.
        host: u32,
        /// Number of the packet.
        packet: u32,
    },
    /// The link of a host was paused, and the host may send data again.
    Resumed {
        /// Host that may send data again.
        host: u32,
    },
    /// The time of a [`Network::call`] has come.
    Called(u64),
}

/// An event, packed into 64 bits: eight of kind, 24 of `a`, 32 of `b`. The first bit is set in the
/// driver's own events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// Packet `b` is at switch `a`.
    AtSwitch { switch: u32, packet: u32 },
    /// Packet `b` is at host `a`.
    AtHost { host: u32, packet: u32 },
    /// The wire of port `a` is free.
    Free { port: u32 },
    /// The host hands packet `b` to port `a`.
    Enter { port: u32, packet: u32 },
    /// Port `a` must stop (the lowest bit of `b` is 1) or may resume the data of a lane (the other
    /// bits of `b`).
    Pause { port: u32, lane: u8, stop: bool },
    /// Routing learns which links are up.
    Reroute,
    /// A timer of the program of switch `a` expires.
    Timer { switch: u32 },
    /// The rest of packet `b`, which switch `a` must not cut through, is at the switch.
    Rest { switch: u32, packet: u32 },
    /// A call that the driver scheduled with [`Network::call`].
    Call(u64),
}

/// Bit of a packed event that marks a call of the driver.
const CALL: u64 = 1 << 63;

impl Event {
    const fn pack(self) -> u64 {
        let (kind, a, b) = match self {
            Self::AtSwitch { switch, packet } => (0, switch, packet),
            Self::AtHost { host, packet } => (1, host, packet),
            Self::Free { port } => (2, port, 0),
            Self::Enter { port, packet } => (3, port, packet),
            Self::Pause { port, lane, stop } => (4, port, (lane as u32) << 1 | stop as u32),
            Self::Reroute => (5, 0, 0),
            Self::Timer { switch } => (6, switch, 0),
            Self::Rest { switch, packet } => (7, switch, packet),
            Self::Call(what) => return what | CALL,
        };
        kind << 56 | (a as u64) << 32 | b as u64
    }

    const fn unpack(packed: u64) -> Self {
        let (a, b) = ((packed >> 32) as u32 & 0xff_ffff, packed as u32);
        match packed >> 56 {
            0 => Self::AtSwitch { switch: a, packet: b },
            1 => Self::AtHost { host: a, packet: b },
            2 => Self::Free { port: a },
            3 => Self::Enter { port: a, packet: b },
            4 => Self::Pause { port: a, lane: (b >> 1) as u8, stop: b & 1 != 0 },
            5 => Self::Reroute,
            6 => Self::Timer { switch: a },
            7 => Self::Rest { switch: a, packet: b },
            _ => Self::Call(packed & !CALL),
        }
    }
}

/// A network while it runs: its switches, its packets in flight and its event queue.
#[derive(Debug)]
pub struct Network {
    now: Picos,
    wheel: Wheel,
    switches: Switches<u32>,
    flights: Flights,
    /// Programs of switches; most networks have none.
    programs: Option<Box<Programs>>,
    /// The ports by which hosts send.
    host_ports: HostPorts,
    /// Approximate number of events until the memory of further events is prefetched.
    until_prefetch: usize,
    /// List of ports that [`Network::prefetch`] fills and uses. It is kept only so that its memory
    /// is reused.
    ahead: Vec<u32>,
    reroute_armed: bool,
    events: u64,
    totals: Totals,
    /// Transfers to other parts of the network, in the order in which they left.
    transfers: Vec<Transfer>,
    /// True if another part of the network counts the events that all parts process, such as
    /// failures.
    silent: bool,
    /// True if switches send packets on before these have arrived.
    cuts_through: bool,
}

/// Upper limit of the number of ports and of hosts: an event has 24 bits for them.
const MOST_PORTS: u32 = 1 << 24;

impl Network {
    /// Creates a network, or a share of one, at time zero. `tick` is approximately the time in
    /// which a few events happen. The topology must have passed [`Topology::check`].
    ///
    /// # Errors
    /// Returns an error if the topology has more hosts or links than are possible.
    pub fn new(
        topology: Topology,
        config: NetworkConfig,
        tick: Picos,
        share: Share<'_>,
    ) -> Result<Self, String> {
        let hosts = topology.hosts;
        let switches = Switches::new(topology, config, share);
        if switches.len() >= MOST_PORTS || hosts >= MOST_PORTS {
            return Err("at most 2^24 hosts and 2^23 links are possible".to_owned());
        }
        let host_ports = HostPorts::of(switches.topology());
        let config = switches.config().clone();
        let mut network = Self {
            now: Picos::ZERO,
            wheel: Wheel::new(tick.0.max(1).ilog2()),
            switches,
            flights: Flights::default(),
            programs: None,
            host_ports,
            until_prefetch: 0,
            ahead: Vec::new(),
            reroute_armed: false,
            events: 0,
            totals: Totals::default(),
            transfers: Vec::new(),
            silent: !share.counts(),
            cuts_through: config.options.switching() == Switching::CutThrough,
        };
        network.load(|switch| match share.has(Node::Switch(switch)) {
            true => config.programs(switch),
            false => Vec::new(),
        });
        Ok(network)
    }

    /// Gives each switch its program, instead of those of the configuration. Call this before the
    /// first packet.
    pub fn program(&mut self, program: impl Fn(u32) -> Option<Box<dyn SwitchProgram>>) {
        self.load(|switch| {
            program(switch).map(FeatureProgram::without_feature).into_iter().collect()
        });
    }

    /// Reports packets as arrived when the last switch has sent their last bit. The driver adds the
    /// latency of the host's link, and so learns of an arrival that long before it happens. A failure
    /// of the host's link no longer affects packets that have left the switch. Call this before the
    /// first packet.
    pub fn end_at_last_switch(&mut self) {
        self.switches.end_at_last_port();
    }

    fn load(&mut self, programs: impl Fn(u32) -> Vec<FeatureProgram>) {
        let switches = self.switches.topology().switches.len() as u32;
        self.programs = Programs::load(switches, programs).map(Box::new);
        for switch in 0..switches {
            self.wake(switch);
        }
    }

    /// Returns the options of a packet with the records of switch programs; `None` if no switch
    /// runs a program. They stay valid until the packet was taken and the next one made.
    #[must_use]
    pub fn options(&self, packet: u32) -> Option<&PacketOptions> {
        self.programs.as_ref().map(|programs| programs.options(packet))
    }

    /// Returns the time of the last event, or the time given to [`Network::advance_to`].
    #[must_use]
    pub const fn now(&self) -> Picos {
        self.now
    }

    /// Returns the number of events that the network has processed.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Returns whether the event queue is empty, so that nothing will happen without the driver.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.wheel.len() == 0
    }

    /// Returns the time of the next event; `None` if none is scheduled.
    #[must_use]
    pub fn next_event(&self) -> Option<Picos> {
        self.wheel.next_time()
    }

    /// Returns the switches of the network with their ports, routes and queues.
    #[must_use]
    pub const fn switches(&self) -> &Switches<u32> {
        &self.switches
    }

    /// Returns the counters of the whole network.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the number of packets in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Returns the packets in flight.
    #[must_use]
    pub const fn flights(&self) -> &Flights {
        &self.flights
    }

    /// Returns the port by which `host` sends; the first one if it has several links.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn host_port(&self, host: u32) -> u32 {
        self.host_ports.first(host)
    }

    /// Schedules a [`Step::Called`] at `at`, or now if that time has passed, with the low 63 bits
    /// of `what`. `turn` orders it among events of the same time.
    pub fn call(&mut self, at: Picos, what: u64, turn: Turn) {
        self.wheel.push(at.max(self.now), turn.0, Event::Call(what).pack());
    }

    /// Hands a packet to the network card of `host` at `at`, or now if that time has passed. The
    /// packet waits there while the wire is busy. Switch programs read its `options`. Returns the
    /// packet's number.
    pub fn enter(
        &mut self,
        at: Picos,
        host: u32,
        header: PacketHeader,
        options: Option<&PacketOptions>,
    ) -> u32 {
        let (port, header) = self.address(host, header);
        let packet = self.make(host, port, header, options);
        self.push(at, Event::Enter { port, packet }, port);
        packet
    }

    /// Sends a packet from `host` now, for a driver that acts as the network card itself and calls
    /// this when the wire is free. Switch programs read its `options`. Returns the packet's number,
    /// and the time from which the card may take the next packet: when the wire is free again, or,
    /// of a host with several links, when not too much waits at the link that the packet took.
    pub fn transmit(
        &mut self,
        host: u32,
        header: PacketHeader,
        options: Option<&PacketOptions>,
    ) -> (u32, Picos) {
        self.launch(self.now, host, header, options)
    }

    /// Sends a packet from `host` at `at`, for a driver that acts as the network card itself and lags
    /// behind the network: `at` may be earlier than [`Network::now`] by less than the latency of the
    /// host's link. The card must be free at `at`. Switch programs read its `options`. Returns the
    /// packet's number, and the time from which the card may take the next packet.
    #[inline]
    pub fn launch(
        &mut self,
        at: Picos,
        host: u32,
        header: PacketHeader,
        options: Option<&PacketOptions>,
    ) -> (u32, Picos) {
        let (port, header) = self.address(host, header);
        let (free_at, arrives) = self.switches.transmit(at, port, header.bytes);
        debug_assert!(arrives >= self.now, "a packet reached its switch in the past");
        let packet = self.make(host, port, header, options);
        self.arrive(port, packet, arrives.max(self.now));
        (packet, self.host_ports.next_at(at, free_at))
    }

    /// Returns the port by which a packet leaves `host`, and its header with the destination's
    /// address in place of its number.
    #[inline]
    fn address(&self, host: u32, header: PacketHeader) -> (u32, PacketHeader) {
        let (ports, entropy) = (&self.host_ports, header.entropy);
        let dst = ports.planes.address(header.dst, entropy);
        (ports.port(ports.planes.address(host, entropy)), PacketHeader { dst, ..header })
    }

    fn make(
        &mut self,
        host: u32,
        port: u32,
        header: PacketHeader,
        options: Option<&PacketOptions>,
    ) -> u32 {
        let packet = self.flights.make(host, port, header);
        if let Some(programs) = &mut self.programs {
            programs.make(packet, None);
            if let Some(options) = options {
                programs.set(packet, options);
            }
        }
        packet
    }

    /// Removes a packet that arrived from the network. Returns its header and the host that sent
    /// it. The number becomes free for another packet; header and contents stay as they are until
    /// that packet is made.
    pub fn take(&mut self, packet: u32) -> (&PacketHeader, u32) {
        self.flights.take(packet)
    }

    /// Applies a failure or a repair at `at`, which must not be earlier than the last event.
    pub fn fail(&mut self, at: Picos, failure: Failure) {
        // Another part counts the driver's event of this failure.
        self.events -= u64::from(self.silent);
        self.switches.fail(at.max(self.now), failure);
        if let Some(at) = self.switches.poll_reroute()
            && !self.reroute_armed
        {
            self.reroute_armed = true;
            self.wheel.push(at, Turn::REROUTE.0, Event::Reroute.pack());
        }
    }

    /// Advances the time to `until`, after [`Network::step`] reported that nothing is left to
    /// happen before.
    pub fn advance_to(&mut self, until: Picos) {
        self.now = self.now.max(until);
    }

    /// Processes events up to and including `until`, and returns at the first that concerns the
    /// driver; `None` when all are done.
    #[inline]
    pub fn step(&mut self, until: Picos, ends: &mut impl Ends) -> Option<Step> {
        loop {
            if self.until_prefetch == 0 {
                if !self.wheel.turn(until) {
                    return None;
                }
                self.prefetch(ends);
                self.until_prefetch = BATCH;
            }
            let Some((at, what)) = self.wheel.pop(until) else {
                if self.wheel.is_turned() {
                    return None;
                }
                self.until_prefetch = 0;
                continue;
            };
            self.until_prefetch -= 1;
            debug_assert!(at >= self.now);
            self.now = at;
            self.events += 1;
            match Event::unpack(what) {
                Event::AtSwitch { switch, packet } => self.at_switch(switch, packet, ends),
                Event::AtHost { host, packet } => {
                    if !self.is_lost(packet) {
                        if let Some(programs) = &self.programs {
                            programs.count(packet, &mut self.totals.telemetry);
                        }
                        return Some(Step::Arrived { host, packet });
                    }
                }
                Event::Free { port } => self.serve(port),
                Event::Enter { port, packet } => self.entered(port, packet),
                Event::Pause { port, lane, stop } => {
                    self.switches.pause(port, lane, stop);
                    if !stop {
                        self.arm(port);
                        if let Node::Host(host) = self.switches.topology().from(port) {
                            return Some(Step::Resumed { host });
                        }
                    }
                }
                Event::Reroute => self.reroute(),
                Event::Timer { switch } => self.timer(switch),
                Event::Rest { switch, packet } => {
                    let flying = &mut self.flights.flying[packet as usize];
                    let route = core::mem::replace(&mut flying.route, NO_ROUTE);
                    self.send_on(switch, (route != NO_ROUTE).then_some(route), packet);
                }
                Event::Call(what) => return Some(Step::Called(what)),
            }
        }
    }

    /// Schedules an event at `at`, with the rank that events at port `port` have among those of one
    /// time.
    #[inline]
    fn push(&mut self, at: Picos, what: Event, port: u32) {
        let at = at.max(self.now);
        let kind = match what {
            Event::Pause { .. } => 0,
            Event::Free { .. } => 1,
            Event::AtSwitch { .. } | Event::Rest { .. } => 2,
            _ => 3,
        };
        self.wheel.push(at, Turn::at_port(kind, port, at).0, what.pack());
    }

    /// Prefetches the memory that upcoming events need, one level of pointers after the other, so
    /// that the processor waits for all reads at once and not for each by itself: in a large
    /// network, little of this memory is in the cache. Except for the routes of packets, nothing
    /// depends on the values read.
    fn prefetch(&mut self, ends: &impl Ends) {
        let mut sum = 0;
        for what in self.wheel.upcoming() {
            match Event::unpack(what) {
                Event::AtSwitch { packet, .. } => {
                    sum ^= u64::from(self.flights.flying[packet as usize].header.dst);
                }
                Event::AtHost { host, packet } => {
                    sum ^= u64::from(self.flights.flying[packet as usize].header.dst);
                    sum ^= ends.prefetch(UpcomingEvent::Arrival { host, packet });
                }
                Event::Call(what) => sum ^= ends.prefetch(UpcomingEvent::Call(what)),
                _ => {}
            }
        }
        self.ahead.clear();
        for what in self.wheel.upcoming() {
            match Event::unpack(what) {
                Event::AtSwitch { switch, packet } => {
                    let flying = &mut self.flights.flying[packet as usize];
                    let route = self.switches.known_route(switch, &flying.header);
                    flying.route = route.unwrap_or(NO_ROUTE);
                    self.ahead.extend(route);
                }
                Event::Free { port } => self.ahead.push(port),
                Event::AtHost { host, packet } => {
                    sum ^= ends.prefetch_next(UpcomingEvent::Arrival { host, packet });
                }
                Event::Call(what) => sum ^= ends.prefetch_next(UpcomingEvent::Call(what)),
                _ => {}
            }
        }
        for &port in &self.ahead {
            sum ^= self.switches.port(port).free_at().0;
        }
        // Next come the queues of the busy ports, then the packet that leaves each of them next.
        let (switches, now) = (&self.switches, self.now);
        self.ahead.retain(|&port| switches.port(port).free_at() >= now);
        for &port in &self.ahead {
            sum ^= switches.port(port).queued(now);
        }
        for port in &mut self.ahead {
            *port = switches.front(*port).unwrap_or(0);
        }
        for &packet in &self.ahead {
            if let Some(flying) = self.flights.flying.get(packet as usize) {
                sum ^= u64::from(flying.port);
            }
        }
        core::hint::black_box(sum);
    }

    /// Returns whether the packet's last link lost it, and then removes the packet.
    fn is_lost(&mut self, packet: u32) -> bool {
        if self.switches.is_well() {
            return false;
        }
        let flying = &self.flights.flying[packet as usize];
        match self.switches.land(self.now, flying.port, &flying.header) {
            Arrival::Lost(why) => {
                self.lose(packet, why);
                true
            }
            Arrival::Host(_) | Arrival::Switch(_) => false,
        }
    }

    fn at_switch(&mut self, switch: u32, packet: u32, ends: &mut impl Ends) {
        if self.is_lost(packet) {
            return;
        }
        if self.programs.is_some() {
            return self.run_ingress_programs(switch, packet, ends);
        }
        let flying = &mut self.flights.flying[packet as usize];
        let route = core::mem::replace(&mut flying.route, NO_ROUTE);
        self.forward(switch, (route != NO_ROUTE).then_some(route), packet);
    }

    /// Forwards a packet at a switch, by `route` if that is known. If the switch cuts through, but must not
    /// send this packet on before it has arrived, schedules that.
    #[inline]
    fn forward(&mut self, switch: u32, route: Option<u32>, packet: u32) {
        if self.cuts_through {
            let flying = &mut self.flights.flying[packet as usize];
            let (port, header) = (lane::port(flying.port), &flying.header);
            if let Some((rest, route)) =
                self.switches.rest_of(self.now, (switch, route), port, header)
            {
                flying.route = route;
                return self.push(self.now + rest, Event::Rest { switch, packet }, port ^ 1);
            }
        }
        self.send_on(switch, route, packet);
    }

    /// Sends a packet at a switch on, by `route` if that is known.
    #[inline]
    fn send_on(&mut self, switch: u32, route: Option<u32>, packet: u32) {
        let flying = &mut self.flights.flying[packet as usize];
        let (ingress, whole) = (flying.port, !flying.header.trimmed);
        match self.switches.pass(self.now, (switch, route), ingress, packet, &mut flying.header) {
            PassOutcome::Left(port, departure) => self.left(port, &departure),
            PassOutcome::Waits(port) => {
                if whole && flying.header.trimmed {
                    self.totals.trimmed += 1;
                    self.totals.last_loss = self.now;
                }
                self.arm(port);
            }
            PassOutcome::Dropped(why) => self.lose(packet, why),
        }
        self.pauses();
    }

    /// Runs the programs of the switch on a packet that came in, and applies their verdict. Like
    /// all code that only networks with programs need, this function is separate, so that the code
    /// for packets in other networks stays in one piece.
    #[cold]
    #[inline(never)]
    fn run_ingress_programs(&mut self, switch: u32, packet: u32, ends: &mut impl Ends) {
        let Some(programs) = &mut self.programs else { return };
        let flying = &mut self.flights.flying[packet as usize];
        let (ingress, known) = (flying.port, core::mem::replace(&mut flying.route, NO_ROUTE));
        let route = match known {
            NO_ROUTE => self.switches.route(self.now, switch, &flying.header),
            route => Some(route),
        };
        let place = Place::new(self.now, switch, &self.switches);
        let came = programs.options(packet).lane;
        let verdict = programs.ingress(&place, (ingress, route), packet, &mut flying.header);
        self.totals.ignored = programs.ignored();
        self.totals.features = programs.counters();
        flying.port = lane::ingress(ingress, came, programs.options(packet).lane);
        self.wake(switch);
        match verdict {
            Verdict::Forward(None) => self.refuse(packet, Drop::NoRoute),
            Verdict::Forward(Some(port)) => self.direct(switch, port, packet),
            Verdict::Drop => self.refuse(packet, Drop::Program),
            Verdict::Trim(port) => {
                let header = &mut self.flights.flying[packet as usize].header;
                let whole = !header.trimmed;
                let there = self.switches.leads_from(port, switch);
                if !there || !self.switches.trim(port, header) {
                    return self.refuse(packet, Drop::Program);
                }
                if whole && header.trimmed {
                    self.totals.trimmed += 1;
                    self.totals.last_loss = self.now;
                }
                self.direct(switch, port, packet);
            }
            Verdict::Replicate => {
                let Some(last) = self.programs.as_mut().and_then(|all| all.next_copy()) else {
                    return self.consume(packet);
                };
                while let Some(port) = self.programs.as_mut().and_then(|all| all.next_copy()) {
                    let copy = self.flights.copy(packet);
                    if let Some(programs) = &mut self.programs {
                        programs.make(copy, Some(packet));
                    }
                    ends.copy(packet, copy);
                    self.totals.copied += 1;
                    self.direct(switch, port, copy);
                }
                self.direct(switch, last, packet);
            }
            Verdict::Consume => self.consume(packet),
        }
    }

    /// Sends a packet on by the port that a program chose; drops it if that is not a port of the
    /// switch.
    fn direct(&mut self, switch: u32, port: u32, packet: u32) {
        if self.switches.leads_from(port, switch) {
            self.forward(switch, Some(port), packet);
        } else {
            self.refuse(packet, Drop::Program);
        }
    }

    /// Drops a packet that came into a switch, and counts it as lost for the reason `why`.
    fn refuse(&mut self, packet: u32, why: Drop) {
        let ingress = lane::port(self.flights.flying[packet as usize].port);
        let why = self.switches.refuse(ingress, why);
        self.lose(packet, why);
    }

    fn consume(&mut self, packet: u32) {
        self.totals.consumed += 1;
        self.flights.free(packet);
    }

    /// Handles a timer event of a switch's program.
    fn timer(&mut self, switch: u32) {
        if let Some(programs) = &mut self.programs {
            programs.timer(&Place::new(self.now, switch, &self.switches));
            self.wake(switch);
        }
    }

    /// Schedules a timer event if a program of the switch wants one.
    fn wake(&mut self, switch: u32) {
        let now = self.now;
        if let Some(at) = self.programs.as_mut().and_then(|all| all.arm(now, switch)) {
            self.wheel.push(at, Turn::timer(switch).0, Event::Timer { switch }.pack());
        }
    }

    /// Handles a packet that its host has handed to the port of its network card.
    fn entered(&mut self, port: u32, packet: u32) {
        let header = &mut self.flights.flying[packet as usize].header;
        match self.switches.enter(self.now, port, packet, header) {
            PassOutcome::Left(port, departure) => self.left(port, &departure),
            PassOutcome::Waits(port) => self.arm(port),
            PassOutcome::Dropped(why) => self.lose(packet, why),
        }
    }

    /// Handles a packet that a port has sent: switch programs learn of it, and its arrival is
    /// scheduled.
    #[inline]
    fn left(&mut self, port: u32, departure: &Departure<u32>) {
        self.flights.flying[departure.item as usize].port = port;
        if self.programs.is_some() {
            self.notify_programs(port, departure.item);
        }
        self.arrive(port, departure.item, departure.arrives);
    }

    /// Notifies the programs of a switch that a packet leaves by `port`.
    #[cold]
    #[inline(never)]
    fn notify_programs(&mut self, port: u32, packet: u32) {
        if let Some(programs) = &mut self.programs
            && let Node::Switch(switch) = self.switches.topology().from(port)
        {
            let place = Place::new(self.now, switch, &self.switches);
            let header = &mut self.flights.flying[packet as usize].header;
            programs.dequeue(&place, port, packet, header);
            self.wake(switch);
        }
    }

    fn arrive(&mut self, port: u32, packet: u32, at: Picos) {
        match self.switches.behind(port) {
            Node::Switch(_) if self.switches.port(port).leads_elsewhere() => {
                self.transfers.push(Transfer { at, port, what: TransferKind::Packet(packet) });
            }
            // The other direction of a link is the port with the neighbouring number.
            Node::Switch(switch) => self.push(at, Event::AtSwitch { switch, packet }, port ^ 1),
            Node::Host(host) => {
                self.wheel.push(
                    at,
                    Turn::at_host(0, host).0,
                    Event::AtHost { host, packet }.pack(),
                );
            }
        }
    }

    /// Counts a packet as lost for the reason `why`, and frees its number.
    pub fn lose(&mut self, packet: u32, why: Drop) {
        let totals = &mut self.totals;
        if self.flights.flying[packet as usize].is_data() {
            totals.data.count(why);
            totals.last_loss = self.now;
        } else {
            totals.control.count(why);
        }
        self.flights.free(packet);
    }

    fn pauses(&mut self) {
        while let Some(Pause { port, lane, stop, delay }) = self.switches.poll_pause() {
            self.totals.pauses += u64::from(stop);
            let at = self.now + delay;
            // The sender to pause is at the far end of the opposite direction.
            if self.switches.port(port ^ 1).leads_elsewhere() {
                self.transfers.push(Transfer {
                    at,
                    port,
                    what: TransferKind::Pause { lane, stop },
                });
            } else {
                self.push(at, Event::Pause { port, lane, stop }, port);
            }
        }
    }

    /// Schedules the event that serves `port` when its wire is free, if a packet waits there and
    /// may leave.
    #[inline]
    fn arm(&mut self, port: u32) {
        if let Some(at) = self.switches.arm(port) {
            self.push(at, Event::Free { port }, port);
        }
    }

    fn serve(&mut self, port: u32) {
        if let Some(departure) = self.switches.serve(self.now, port) {
            if departure.mark {
                self.flights.flying[departure.item as usize].header.ce = true;
                self.totals.marked += 1;
            }
            self.left(port, &departure);
            self.pauses();
        }
        self.arm(port);
    }

    fn reroute(&mut self) {
        self.events -= u64::from(self.silent);
        self.reroute_armed = false;
        match self.switches.poll_reroute() {
            // A later change postponed it.
            Some(at) if at > self.now => {
                self.reroute_armed = true;
                self.wheel.push(at, Turn::REROUTE.0, Event::Reroute.pack());
            }
            Some(_) => {
                self.switches.reroute();
                self.flights.forget_routes();
            }
            None => {}
        }
    }
}
