//! The ports of a topology, its routes and its failures.

use super::NetworkConfig;
use super::config::{HEADER_BYTES, Switching};
use super::event::Failure;
use super::header::PacketHeader;
use super::lane;
use super::lossless::Inputs;
use super::partition::Share;
use super::port::{Departure, Drop, ELSEWHERE, EnqueueOutcome, Port};
use super::queue::Queues;
use super::route::Routes;
use crate::Picos;
use crate::chance::{Chance, mix};
use crate::topology::{Node, Topology};
use squall_base::{Rate, Rng};

/// Outcome of forwarding a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassOutcome<T> {
    /// The packet left at once by this port, which was idle.
    Left(u32, Departure<T>),
    /// The packet waits at this port, perhaps without its payload: see [`PacketHeader::trimmed`].
    Waits(u32),
    /// The packet was dropped.
    Dropped(Drop),
}

/// Node at which a packet arrives after a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The packet is at its destination, or at whatever host the link leads to.
    Host(u32),
    /// The packet is at a switch; the caller must [`Switches::forward`] it.
    Switch(u32),
    /// The link lost the packet.
    Lost(Drop),
}

/// A pause frame. Once it has arrived, the sender of `port` must stop data of a lane, or may resume
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// The port that the frame stops or resumes, see [`Switches::pause`].
    pub port: u32,
    /// Virtual lane that the frame concerns; most networks have only lane 0.
    pub lane: u8,
    /// True to stop the lane, false to resume it.
    pub stop: bool,
    /// Time that the frame takes over the link.
    pub delay: Picos,
}

/// Failure state of one direction of a link.
#[derive(Clone, Copy, Debug)]
struct Wire {
    down: bool,
    black_hole: bool,
    /// Packets that were on the link at or before this time are lost.
    cut_at: Option<Picos>,
    /// Probability that a bit arrives unchanged over the link.
    right: f64,
    /// Probability that a packet arrives whose bits are all right (the link may lose packets
    /// whatever their length).
    whole: f64,
}

/// Bit that distinguishes switches from hosts in encoded node numbers.
const SWITCH: u32 = 1 << 31;

const fn encode(node: Node) -> u32 {
    match node {
        Node::Host(host) => host,
        Node::Switch(switch) => switch | SWITCH,
    }
}

const fn decode(to: u32) -> Node {
    let number = to & !(SWITCH | ELSEWHERE);
    if to & SWITCH == 0 { Node::Host(number) } else { Node::Switch(number) }
}

/// The ports, wires and routes of a network that carries packets `T`. It has no clock: a
/// [`super::Network`] does, and calls it in the order of the module's documentation.
#[derive(Clone, Debug)]
pub struct Switches<T> {
    topology: Topology,
    config: NetworkConfig,
    ports: Vec<Port>,
    /// The packets that wait at the ports.
    queues: Queues<T>,
    wires: Vec<Wire>,
    /// True if any link has ever failed.
    faulty: bool,
    routes: Routes,
    /// True for each link that routing treats as up.
    assumed_up: Vec<bool>,
    /// Time at which routing learns of the latest failure or repair.
    reroute_at: Option<Picos>,
    salts: Vec<u64>,
    chance: Chance,
    /// Bytes that wait in the switches from each of their inputs, if the network is lossless.
    inputs: Option<Inputs>,
    pauses: Vec<Pause>,
}

/// Returns `base` to the power of `n` by multiplications only, so that the result is the same on
/// every machine.
fn power(mut base: f64, mut n: u32) -> f64 {
    let mut product = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            product *= base;
        }
        base *= base;
        n >>= 1;
    }
    product
}

impl<T: Copy> Switches<T> {
    /// Creates an empty network, or a share of one. The topology must have passed
    /// [`Topology::check`].
    #[must_use]
    pub fn new(topology: Topology, config: NetworkConfig, share: Share<'_>) -> Self {
        let mut rng = Rng::new(config.seed ^ 0x6e65_7477_6f72_6b00);
        let count = topology.links.len() as u32 * 2;
        let cuts_through = config.options.switching() == Switching::CutThrough;
        let salts = topology.switches.iter().map(|_| rng.next_u64()).collect();
        let well = Wire { down: false, black_hole: false, cut_at: None, right: 1.0, whole: 1.0 };
        let ports = (0..count).map(|port| {
            let rate = topology.links[port as usize / 2].rate;
            let to = topology.to(port);
            let port_config = match topology.from(port) {
                Node::Host(_) => config.card(rate),
                Node::Switch(_) => config.port(rate, matches!(to, Node::Host(_))),
            };
            let behind = match to {
                Node::Host(_) => Picos::ZERO,
                Node::Switch(switch) => topology.switches[switch as usize].latency,
            };
            let mut built = Port::new(port_config);
            built.latency = topology.links[port as usize / 2].latency + behind;
            built.to = encode(to) | if share.has(to) { 0 } else { ELSEWHERE };
            built.cuts_through = cuts_through && matches!(to, Node::Switch(_));
            built
        });
        let ports: Vec<Port> = ports.collect();
        Self {
            routes: Routes::new(&topology, |_| true),
            assumed_up: vec![true; topology.links.len()],
            reroute_at: None,
            inputs: config.lossless.map(|limits| Inputs::new(&topology, limits, config.lanes())),
            pauses: Vec::new(),
            topology,
            config,
            wires: vec![well; ports.len()],
            faulty: false,
            ports,
            queues: Queues::default(),
            salts,
            chance: Chance::of(&mut rng),
        }
    }

    /// Returns the topology of the network before any failure.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the routes that packets take now.
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the configuration of the network.
    #[must_use]
    pub const fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Returns the port of this number.
    ///
    /// # Panics
    /// Panics if there is no such port.
    #[must_use]
    pub fn port(&self, port: u32) -> &Port {
        &self.ports[port as usize]
    }

    /// Returns the node at the other end of `port`.
    ///
    /// # Panics
    /// Panics if there is no such port.
    #[must_use]
    pub fn behind(&self, port: u32) -> Node {
        decode(self.ports[port as usize].to)
    }

    /// Returns the number of ports: two for each link.
    #[must_use]
    pub fn len(&self) -> u32 {
        // The number is twice that of the links, which fits.
        self.ports.len() as u32
    }

    /// Returns whether the network has no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Changes the queue limits, thresholds and trimming of one port, for topologies that specify
    /// them.
    pub fn configure(&mut self, port: u32, change: impl FnOnce(&mut super::PortConfig)) {
        let port = &mut self.ports[port as usize];
        let mut config = *port.config();
        change(&mut config);
        port.reconfigure(config);
    }

    /// Returns the port by which host `host` sends.
    ///
    /// # Panics
    /// Panics if there is no such host.
    #[must_use]
    pub fn host_port(&self, host: u32) -> u32 {
        let link = self
            .topology
            .links
            .iter()
            .position(|link| [link.a, link.b].contains(&Node::Host(host)));
        let link = link.expect("a host of a checked topology has a link") as u32;
        link * 2 + u32::from(self.topology.links[link as usize].b == Node::Host(host))
    }

    /// Puts a packet into the queue of `port`, as a host does.
    pub fn enqueue(
        &mut self,
        now: Picos,
        port: u32,
        item: T,
        header: &mut PacketHeader,
    ) -> EnqueueOutcome {
        self.ports[port as usize].enqueue(&mut self.queues, now, item, header, lane::HOST)
    }

    /// Forwards a packet that is at switch `at`, having come in by port `ingress` (the upstream
    /// sender's port): chooses the egress port and queues the packet there. Returns the port and
    /// the outcome.
    pub fn forward(
        &mut self,
        now: Picos,
        at: u32,
        ingress: u32,
        item: T,
        header: &mut PacketHeader,
    ) -> (u32, EnqueueOutcome) {
        let Some(port) = self.route(now, at, header) else {
            return (ingress, EnqueueOutcome::Dropped(self.refuse(ingress, Drop::NoRoute)));
        };
        (port, self.admit(now, port, ingress, item, header))
    }

    /// Queues a forwarded packet, and pauses the upstream sender if its input exceeds the limit.
    fn admit(
        &mut self,
        now: Picos,
        port: u32,
        ingress: u32,
        item: T,
        header: &mut PacketHeader,
    ) -> EnqueueOutcome {
        let verdict =
            self.ports[port as usize].enqueue(&mut self.queues, now, item, header, ingress);
        if let Some(inputs) = &mut self.inputs
            && verdict == EnqueueOutcome::Queued
            && header.class == super::Class::Data
            && inputs.take(ingress, header.bytes)
        {
            let (port, lane) = (lane::port(ingress), lane::came(ingress));
            let delay = self.frame_delay(port);
            self.pauses.push(Pause { port, lane, stop: true, delay });
        }
        verdict
    }

    /// Counts a packet that came in by `ingress` and was dropped, and returns `why`.
    pub fn refuse(&mut self, ingress: u32, why: Drop) -> Drop {
        self.ports[ingress as usize].count_drop();
        why
    }

    /// Chooses the port by which a packet leaves switch `at`, if there is a route.
    pub fn route(&mut self, now: Picos, at: u32, header: &PacketHeader) -> Option<u32> {
        let ports = self.routes.ports(at, header.dst);
        match *ports {
            [] => None,
            [port] => Some(port),
            _ if self.config.options.adaptive => {
                let count = ports.len() as u32;
                // Several packets may arrive at one time, so the packet is part of the seed.
                let packet = u64::from(header.flow) << 32 | u64::from(header.entropy);
                let mut rng = self.chance.at(now, mix(packet) ^ u64::from(at));
                let mut draw = || ports[rng.below(count) as usize];
                let (one, other) = (draw(), draw());
                let queued = |port: u32| self.ports[port as usize].queued(now);
                Some(if queued(other) < queued(one) { other } else { one })
            }
            _ => Some(self.hashed(at, header, ports)),
        }
    }

    fn hashed(&self, at: u32, header: &PacketHeader, ports: &[u32]) -> u32 {
        let key = u64::from(header.flow) << 32 | u64::from(header.entropy);
        let hash = mix(key ^ self.salts[at as usize]) >> 32;
        // The index is below the number of ports.
        ports[((hash * ports.len() as u64) >> 32) as usize]
    }

    /// Forwards a packet as [`Switches::forward`] does, except that a packet that meets an idle
    /// port leaves at once. `route` is the result of [`Switches::known_route`], if the caller asked
    /// since routing last changed.
    pub fn pass(
        &mut self,
        now: Picos,
        (at, route): (u32, Option<u32>),
        ingress: u32,
        item: T,
        header: &mut PacketHeader,
    ) -> PassOutcome<T> {
        let Some(port) = route.or_else(|| self.route(now, at, header)) else {
            return PassOutcome::Dropped(self.refuse(lane::port(ingress), Drop::NoRoute));
        };
        if let Some(departure) = self.ports[port as usize].pass(now, item, header, ingress) {
            return PassOutcome::Left(port, departure);
        }
        match self.admit(now, port, ingress, item, header) {
            EnqueueOutcome::Queued | EnqueueOutcome::Trimmed => PassOutcome::Waits(port),
            EnqueueOutcome::Dropped(why) => PassOutcome::Dropped(why),
        }
    }

    /// Hands a packet of a host to its `port`: it leaves at once, or waits.
    pub fn enter(
        &mut self,
        now: Picos,
        port: u32,
        item: T,
        header: &mut PacketHeader,
    ) -> PassOutcome<T> {
        if let Some(departure) = self.ports[port as usize].pass(now, item, header, lane::HOST) {
            return PassOutcome::Left(port, departure);
        }
        match self.enqueue(now, port, item, header) {
            EnqueueOutcome::Queued | EnqueueOutcome::Trimmed => PassOutcome::Waits(port),
            EnqueueOutcome::Dropped(why) => PassOutcome::Dropped(why),
        }
    }

    /// Returns whether `port` exists and is a port of switch `at`.
    #[must_use]
    pub fn leads_from(&self, port: u32, at: u32) -> bool {
        (port as usize) < self.ports.len() && self.topology.from(port) == Node::Switch(at)
    }

    /// Cuts off the payload of a data packet that will leave by `port`. Returns false if the
    /// network does not trim.
    pub fn trim(&mut self, port: u32, header: &mut PacketHeader) -> bool {
        header.class != super::Class::Data || self.ports[port as usize].trim(header)
    }

    /// Returns the port by which a packet at switch `at` will leave, if that is known in advance:
    /// for drivers that prefetch the memory they will need. Adaptive routing chooses only when the
    /// packet is forwarded.
    #[must_use]
    pub fn known_route(&self, at: u32, header: &PacketHeader) -> Option<u32> {
        let ports = self.routes.ports(at, header.dst);
        match *ports {
            [] => None,
            [port] => Some(port),
            _ if self.config.options.adaptive => None,
            _ => Some(self.hashed(at, header, ports)),
        }
    }

    /// Returns the packet that leaves `port` next, if any waits.
    #[must_use]
    pub fn front(&self, port: u32) -> Option<T> {
        self.ports[port as usize].front(&self.queues)
    }

    /// If a packet waits on `port` and no call is scheduled yet, marks the call as scheduled and
    /// returns the time at which the caller must call [`Switches::serve`].
    pub fn arm(&mut self, port: u32) -> Option<Picos> {
        let port = &mut self.ports[port as usize];
        if port.armed || !port.sendable(&self.queues) {
            return None;
        }
        port.armed = true;
        Some(port.free_at())
    }

    /// Serves `port` at the time that [`Switches::arm`] returned: calls [`Switches::depart`].
    pub fn serve(&mut self, now: Picos, port: u32) -> Option<Departure<T>> {
        self.ports[port as usize].armed = false;
        self.depart(now, port)
    }

    /// Returns the time that a pause frame of 64 bytes takes back over the link of `port`.
    fn frame_delay(&self, port: u32) -> Picos {
        let back = port ^ 1;
        self.ports[back as usize].transmit_time(64) + self.topology.links[port as usize / 2].latency
    }

    /// Returns the next pause frame to deliver: the caller must call [`Switches::pause`] after
    /// [`Pause::delay`].
    pub fn poll_pause(&mut self) -> Option<Pause> {
        self.pauses.pop()
    }

    /// Handles a pause frame for a lane that arrived at the sender of `port`. If the frame resumes
    /// the lane, the caller must check whether the port can [`Switches::depart`].
    pub fn pause(&mut self, port: u32, lane: u8, stop: bool) {
        self.ports[port as usize].pause(lane, stop);
    }

    /// Returns whether a packet waits on `port` that could leave at `now`.
    #[must_use]
    pub fn ready(&self, now: Picos, port: u32) -> bool {
        self.ports[port as usize].ready(&self.queues, now)
    }

    /// Returns the next packet of `port`, if its wire is free and a packet waits that may leave.
    pub fn depart(&mut self, now: Picos, port: u32) -> Option<Departure<T>> {
        let mut rng = self.chance.at(now, port.into());
        let departure = self.ports[port as usize].depart(&mut self.queues, now, &mut rng)?;
        let from = departure.ingress;
        if let Some(inputs) = &mut self.inputs
            && from != lane::HOST
            && departure.data
            && inputs.release(from, departure.bytes)
        {
            let (port, lane) = (lane::port(from), lane::came(from));
            let delay = self.frame_delay(port);
            self.pauses.push(Pause { port, lane, stop: false, delay });
        }
        Some(departure)
    }

    /// Reports packets as arrived when the last port of a switch has sent them. The driver adds the
    /// latency of the host's link.
    pub(super) fn end_at_last_port(&mut self) {
        for port in 0..self.ports.len() as u32 {
            if matches!(self.behind(port), Node::Host(_)) {
                self.ports[port as usize].latency = Picos::ZERO;
            }
        }
    }

    /// Occupies the wire of `port` with `bytes` bytes from outside its queues, for a driver that
    /// acts as the network card itself. Returns the time at which the wire is free again, and the
    /// time of arrival.
    pub fn transmit(&mut self, now: Picos, port: u32, bytes: u32) -> (Picos, Picos) {
        let port = &mut self.ports[port as usize];
        let start = now.max(port.free_at());
        let free_at = port.transmit(now, bytes);
        (free_at, port.arrival(start, bytes, free_at))
    }

    /// Returns the time until a packet that is at switch `at` before it has arrived may leave by its route, because
    /// the link there is faster than the one by which it comes in; `None` if it may leave now. Also returns that route.
    #[cold]
    pub(super) fn rest_of(
        &mut self,
        now: Picos,
        (at, route): (u32, Option<u32>),
        ingress: u32,
        header: &PacketHeader,
    ) -> Option<(Picos, u32)> {
        let route = route.or_else(|| self.route(now, at, header))?;
        let (from, to) = (&self.ports[ingress as usize], &self.ports[route as usize]);
        let seen =
            Switching::CutThrough.bytes_before(header.bytes, from.config().rate, to.config().rate);
        if !from.cuts_through || seen < header.bytes || header.bytes <= HEADER_BYTES {
            return None;
        }
        Some((from.transmit_time(header.bytes) - from.transmit_time(HEADER_BYTES), route))
    }

    /// Returns where a packet that left by `port` arrives, or why the link lost it.
    pub fn land(&mut self, now: Picos, port: u32, header: &PacketHeader) -> Arrival {
        if self.faulty
            && let Some(lost) = self.lost(now, port, header)
        {
            self.ports[port as usize].count_drop();
            return Arrival::Lost(lost);
        }
        match self.behind(port) {
            Node::Host(host) => Arrival::Host(host),
            Node::Switch(switch) => Arrival::Switch(switch),
        }
    }

    /// Returns whether routing treats the link of a port as up. It learns of a failure late, and of
    /// some failures never.
    ///
    /// # Panics
    /// Panics if there is no such port.
    #[must_use]
    pub fn is_assumed_up(&self, port: u32) -> bool {
        self.assumed_up[port as usize / 2]
    }

    /// Returns whether no link has ever failed.
    #[must_use]
    pub const fn is_well(&self) -> bool {
        !self.faulty
    }

    /// Returns why the link lost a packet, or `None` if it did not.
    fn lost(&mut self, now: Picos, port: u32, header: &PacketHeader) -> Option<Drop> {
        let wire = &self.wires[port as usize];
        let latency = self.ports[port as usize].latency;
        let cut = wire.cut_at.is_some_and(|cut| now.since(latency) <= cut);
        if wire.down || cut {
            Some(Drop::Down)
        } else if wire.black_hole {
            Some(Drop::BlackHole)
        } else if wire.right < 1.0 || wire.whole < 1.0 {
            let right = wire.whole * power(wire.right, header.bytes.saturating_mul(8));
            // Of each port, only one packet arrives at a time, so time and port are seed enough.
            // Bit 32 keeps this draw apart from that of the port's queue.
            let mut rng = self.chance.at(now, 1 << 32 | u64::from(port));
            (!rng.chance(right)).then_some(Drop::Corrupt)
        } else {
            None
        }
    }

    /// Applies a failure or a repair. Routing may learn of it later: see
    /// [`Switches::poll_reroute`]. Links and switches that do not exist are ignored.
    pub fn fail(&mut self, now: Picos, failure: Failure) {
        let links = 0..self.topology.links.len() as u32;
        self.faulty = true;
        match failure {
            Failure::LinkDown(link) if links.contains(&link) => self.set_link(now, link, false),
            Failure::LinkUp(link) if links.contains(&link) => self.set_link(now, link, true),
            Failure::SwitchDown(switch) | Failure::SwitchUp(switch) => {
                let up = matches!(failure, Failure::SwitchUp(_));
                for link in links {
                    let ends = self.topology.links[link as usize];
                    if [ends.a, ends.b].contains(&Node::Switch(switch)) {
                        self.set_link(now, link, up);
                    }
                }
            }
            Failure::Rate(link, rate) if links.contains(&link) => self.set_rate(link, rate),
            Failure::Degrade(port, rate) if (port as usize) < self.ports.len() => {
                self.configure(port, |port| port.degrade(rate));
            }
            Failure::BlackHole(link) if links.contains(&link) => {
                self.each_way(link, |wire| wire.black_hole = true);
            }
            Failure::BitErrors(link, rate) if links.contains(&link) => {
                let right = 1.0 - rate.clamp(0.0, 1.0);
                self.each_way(link, |wire| wire.right = right);
            }
            Failure::Loss(link, share) if links.contains(&link) => {
                self.each_way(link, |wire| wire.whole = 1.0 - share.clamp(0.0, 1.0));
            }
            _ => {}
        }
    }

    fn each_way(&mut self, link: u32, mut change: impl FnMut(&mut Wire)) {
        for port in [link * 2, link * 2 + 1] {
            change(&mut self.wires[port as usize]);
        }
    }

    fn set_rate(&mut self, link: u32, rate: Rate) {
        for port in [link * 2, link * 2 + 1] {
            self.ports[port as usize].set_rate(rate);
        }
    }

    fn set_link(&mut self, now: Picos, link: u32, up: bool) {
        self.each_way(link, |wire| {
            wire.down = !up;
            if up {
                wire.black_hole = false;
                (wire.right, wire.whole) = (1.0, 1.0);
            } else {
                wire.cut_at = Some(now);
            }
        });
        self.reroute_at = Some(now + self.config.reroute);
    }

    /// Returns the time at which routing learns of the last failure or repair; the caller must call
    /// [`Switches::reroute`] then.
    #[must_use]
    pub const fn poll_reroute(&self) -> Option<Picos> {
        self.reroute_at
    }

    /// Changes the routes to those over the links that are up.
    pub fn reroute(&mut self) {
        self.reroute_at = None;
        for (link, assumed_up) in self.assumed_up.iter_mut().enumerate() {
            *assumed_up = !self.wires[link * 2].down;
        }
        self.routes = Routes::new(&self.topology, |link| self.assumed_up[link as usize]);
    }
}
