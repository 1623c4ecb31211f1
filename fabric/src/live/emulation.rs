//! Real packets through the model, in whatever time the driver keeps: no clock, no socket. The live
//! relay drives it with the real clock, tests with a virtual one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use squall_net::fabric::frame::PacketFrame;

use crate::Picos;
use crate::model::{Arrival, Class, Drop, Enqueued, Failure, Head, Network, NetworkConfig};
use crate::topology::Topology;

/// A packet at its destination.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// When its last bit arrived.
    pub at: Picos,
    /// The host it arrived at.
    pub host: u32,
    /// What the sender attached to it: see [`Emulation::send`].
    pub tag: u64,
    /// Its head as given to [`Emulation::send`], but marked or trimmed on the way.
    pub frame: &'a PacketFrame,
    /// Its UDP payload.
    pub payload: &'a [u8],
}

/// What the network lost, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Data queues were full.
    pub queue_full: u64,
    /// Control queues were full.
    pub control_full: u64,
    /// Links or switches were down.
    pub down: u64,
    /// Swallowed unnoticed.
    pub black_hole: u64,
    /// Bit errors.
    pub corrupt: u64,
    /// No way to the destination.
    pub no_route: u64,
}

impl Losses {
    fn count(&mut self, why: Drop) {
        *match why {
            Drop::QueueFull => &mut self.queue_full,
            Drop::ControlFull => &mut self.control_full,
            Drop::Down => &mut self.down,
            Drop::BlackHole => &mut self.black_hole,
            Drop::Corrupt => &mut self.corrupt,
            Drop::NoRoute => &mut self.no_route,
        } += 1;
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full
            + self.control_full
            + self.down
            + self.black_hole
            + self.corrupt
            + self.no_route
    }
}

/// A packet on its way. Its memory is used again.
struct Carried {
    tag: u64,
    frame: PacketFrame,
    head: Head,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A packet is at its host's port.
    Enter { item: u32, port: u32 },
    /// The wire of a port is free.
    Free { port: u32 },
    /// A packet is at the end of a port's link.
    Land { item: u32, port: u32 },
    /// A pause frame arrived.
    Pause { port: u32, stop: bool },
    /// Routing learns of failures.
    Reroute,
}

/// Real packets in the model of a network.
pub struct Emulation {
    network: Network<u32>,
    /// Bytes of a packet on the wire beyond its UDP payload.
    overhead: u32,
    host_ports: Vec<u32>,
    carried: Vec<Carried>,
    spare: Vec<u32>,
    /// By time, then by order of scheduling.
    events: BinaryHeap<Reverse<(Picos, u64, What)>>,
    order: u64,
    now: Picos,
    losses: Losses,
}

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Sending host.
    pub from: u32,
    /// Receiving host.
    pub to: u32,
    /// The part of the ECMP hash that all packets between two endpoints share: [`Route::flow`].
    pub flow: u32,
}

impl Route {
    /// Hashes the addresses of two endpoints: what switches see of a UDP packet without its source
    /// port, the entropy (FNV-1a).
    #[must_use]
    pub fn flow(source: SocketAddr, destination: SocketAddr) -> u32 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for addr in [source, destination] {
            match addr.ip() {
                IpAddr::V4(ip) => add(&ip.octets()),
                IpAddr::V6(ip) => add(&ip.octets()),
            }
        }
        add(&destination.port().to_be_bytes());
        (hash >> 32) as u32
    }
}

impl Emulation {
    /// A network at rest, at time zero. The topology must have passed [`Topology::check`]. `overhead`
    /// is what a packet has on the wire beyond its UDP payload; [`NetworkConfig::trim`] counts it,
    /// too.
    #[must_use]
    pub fn new(topology: Topology, config: NetworkConfig, overhead: u32) -> Self {
        let hosts = topology.hosts;
        let network = Network::new(topology, config);
        Self {
            host_ports: (0..hosts).map(|host| network.host_port(host)).collect(),
            network,
            overhead,
            carried: Vec::new(),
            spare: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            now: Picos::ZERO,
            losses: Losses::default(),
        }
    }

    /// The model, to look at.
    #[must_use]
    pub const fn network(&self) -> &Network<u32> {
        &self.network
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Packets on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.carried.len() - self.spare.len()
    }

    /// Data bytes that wait in the network card of a host.
    #[must_use]
    pub fn backlog(&self, host: u32) -> u64 {
        self.network.port(self.host_ports[host as usize]).queued(self.now)
    }

    /// When something happens next.
    #[must_use]
    pub fn next_event(&self) -> Option<Picos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// A packet is handed to the network card of host `route.from` at `at`, or now if [`Self::run`] is
    /// further. Frame and tag come back in the [`Delivery`].
    pub fn send(&mut self, at: Picos, route: Route, frame: PacketFrame, payload: &[u8], tag: u64) {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let head = Head {
            dst: route.to,
            flow: route.flow,
            entropy: u32::from(frame.entropy),
            bytes: bytes.saturating_add(self.overhead),
            class: if frame.control { Class::Control } else { Class::Data },
            ..Head::default()
        };
        let item = match self.spare.pop() {
            Some(item) => item,
            None => {
                let payload = Vec::new();
                self.carried.push(Carried { tag, frame, head, payload });
                u32::try_from(self.carried.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let carried = &mut self.carried[item as usize];
        (carried.tag, carried.frame, carried.head) = (tag, frame, head);
        carried.payload.clear();
        carried.payload.extend_from_slice(payload);
        let port = self.host_ports[route.from as usize];
        self.schedule(at.max(self.now), What::Enter { item, port });
    }

    /// Something fails, or works again, now.
    pub fn fail(&mut self, at: Picos, failure: Failure) {
        self.network.fail(at.max(self.now), failure);
        if let Some(at) = self.network.poll_reroute() {
            self.schedule(at, What::Reroute);
        }
    }

    /// Lets happen what happens up to and at `until`; gives what arrives at hosts to `deliver`.
    pub fn run(&mut self, until: Picos, deliver: &mut dyn FnMut(&Delivery<'_>)) {
        while let Some(&Reverse((at, _, what))) = self.events.peek() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            match what {
                What::Enter { item, port } => {
                    let head = &mut self.carried[item as usize].head;
                    let verdict = self.network.enqueue(self.now, port, item, head);
                    self.queued(port, item, verdict);
                }
                What::Free { port } => self.depart(port),
                What::Land { item, port } => self.land(item, port, deliver),
                What::Pause { port, stop } => {
                    self.network.pause(port, stop);
                    self.depart(port);
                }
                // Another change may have put it off.
                What::Reroute => {
                    if self.network.poll_reroute().is_some_and(|at| at <= self.now) {
                        self.network.reroute();
                    }
                }
            }
            while let Some(pause) = self.network.poll_pause() {
                let (port, stop) = (pause.port, pause.stop);
                self.schedule(self.now + pause.delay, What::Pause { port, stop });
            }
        }
        self.now = self.now.max(until);
    }

    fn schedule(&mut self, at: Picos, what: What) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, what)));
    }

    /// A packet was offered to a port.
    fn queued(&mut self, port: u32, item: u32, verdict: Enqueued) {
        match verdict {
            Enqueued::Queued => {}
            Enqueued::Trimmed => {
                let carried = &mut self.carried[item as usize];
                let rest = carried.head.bytes.saturating_sub(self.overhead);
                carried.payload.truncate(rest as usize);
                carried.frame.trimmed = true;
            }
            Enqueued::Dropped(why) => {
                self.losses.count(why);
                self.spare.push(item);
                return;
            }
        }
        // If the wire is taken, a `Free` event is on its way: one is made whenever something is left
        // waiting, below or here.
        let state = self.network.port(port);
        if state.free_at() <= self.now {
            self.depart(port);
        } else if state.len() == 1 {
            let free_at = state.free_at();
            self.schedule(free_at, What::Free { port });
        }
    }

    /// Sends what a port can send.
    fn depart(&mut self, port: u32) {
        if let Some(departure) = self.network.depart(self.now, port) {
            let carried = &mut self.carried[departure.item as usize];
            // ECT(0) and ECT(1) become CE; what is not ECN-capable stays what it is.
            if departure.mark && carried.frame.ecn != 0 {
                carried.frame.ecn = 3;
            }
            self.schedule(departure.arrives, What::Land { item: departure.item, port });
            if !self.network.port(port).is_empty() {
                self.schedule(departure.free_at, What::Free { port });
            }
        }
    }

    fn land(&mut self, item: u32, port: u32, deliver: &mut dyn FnMut(&Delivery<'_>)) {
        let carried = &mut self.carried[item as usize];
        match self.network.land(self.now, port, &carried.head) {
            Arrival::Host(host) => {
                let Carried { tag, frame, payload, .. } = &*carried;
                deliver(&Delivery { at: self.now, host, tag: *tag, frame, payload });
                self.spare.push(item);
            }
            Arrival::Switch(switch) => {
                let (out, verdict) =
                    self.network.forward(self.now, switch, port, item, &mut carried.head);
                self.queued(out, item, verdict);
            }
            Arrival::Lost(why) => {
                self.losses.count(why);
                self.spare.push(item);
            }
        }
    }
}
