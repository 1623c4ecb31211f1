//! Engines on an emulated network, in virtual time.

use std::net::SocketAddr;

use squall_base::{Batch, Rng, SecretRng, Time, TrafficClass};
use squall_emulator::{Delivery, Emulation, Route};
use squall_engine::{Completion, Config, Engine, NoChannels, Operation, PacketMarks, PeerId};
use squall_net::emulator::frame::PacketFrame;
use squall_netsim::Picos;

#[allow(dead_code, unreachable_pub)] // the engine's own tests use the rest
#[path = "../../../engine/tests/world/memory.rs"]
mod memory;

pub(crate) use memory::VecMemory;

/// The configuration of an endpoint whose secrets follow from `seed`.
pub(crate) fn configured(seed: u64) -> Config {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&seed.to_ne_bytes());
    let mut secret = SecretRng::from_seed(secret);
    Config::new(secret.instance(), secret.seed())
}

/// Where every host's virtual clock begins.
pub(crate) const BEGIN: Picos = Picos::micros(1_000);

/// An endpoint, one a host.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) memory: VecMemory,
    pub(crate) addr: SocketAddr,
    /// Does nothing, hears nothing.
    pub(crate) dead: bool,
    /// How often it began.
    pub(crate) life: u32,
}

/// A packet that the network delivers a second time.
struct Again {
    at: Picos,
    host: usize,
    src: SocketAddr,
    meta: PacketMarks,
    bytes: Vec<u8>,
}

/// Hosts, the network, and what time it is.
pub(crate) struct World {
    pub(crate) now: Picos,
    pub(crate) hosts: Vec<Host>,
    pub(crate) net: Emulation,
    /// Probability that a packet comes again, up to five milliseconds later.
    pub(crate) again: f64,
    configure: Box<dyn Fn(u64, u16) -> (Config, squall_reliability::Config)>,
    rng: Rng,
    late: Vec<Again>,
    batch: Batch,
}

impl World {
    /// One endpoint on each host of the network. `configure` gets a seed and a UDP port.
    pub(crate) fn new(
        net: Emulation,
        seed: u64,
        configure: impl Fn(u64, u16) -> (Config, squall_reliability::Config) + 'static,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let hosts = (0..net.network().switches().topology().hosts).map(|n| {
            let addr = SocketAddr::from(([10, 0, 0, n as u8 + 1], 5000 + n as u16));
            let (engine, pdc) = configure(rng.next_u64(), addr.port());
            let engine = Engine::new(engine, pdc);
            Host { engine, memory: VecMemory::default(), addr, dead: false, life: 0 }
        });
        Self {
            now: BEGIN,
            hosts: hosts.collect(),
            net,
            again: 0.0,
            configure: Box::new(configure),
            rng,
            late: Vec::new(),
            batch: Batch::default(),
        }
    }

    /// What the engines believe the time is.
    pub(crate) fn time(&self) -> Time {
        self.now.time()
    }

    pub(crate) fn peer(&mut self, of: usize, other: usize) -> PeerId {
        let addr = self.hosts[other].addr;
        self.hosts[of].engine.peer(addr)
    }

    /// The process on a host is gone.
    pub(crate) fn crash(&mut self, at: usize) {
        self.hosts[at].dead = true;
    }

    /// Another one begins at the same address. The memory is what it was.
    pub(crate) fn restart(&mut self, at: usize) {
        let seed = self.rng.next_u64();
        let host = &mut self.hosts[at];
        let (engine, pdc) = (self.configure)(seed, host.addr.port());
        host.engine = Engine::new(engine, pdc);
        host.dead = false;
        host.life += 1;
    }

    /// A host takes an operation.
    pub(crate) fn submit(&mut self, at: usize, op: Operation) {
        let now = self.time();
        let host = &mut self.hosts[at];
        host.engine
            .submit(now, &host.memory, op, None::<&mut NoChannels>)
            .expect("room for operations");
    }

    /// Takes what hosts want to send and to report.
    fn transmit(&mut self, n: usize, done: &mut dyn FnMut(usize, Completion)) {
        let now = self.time();
        loop {
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            let more = self.hosts[n].engine.poll_transmit(now, &mut batch);
            for packet in &batch.packets {
                let mut bytes = batch.header(packet).to_vec();
                for seg in batch.payload(packet) {
                    bytes.extend_from_slice(self.hosts[n].memory.get(seg.base, seg.len));
                }
                assert_eq!(bytes.len(), packet.len as usize, "a packet says how long it is");
                let source = self.hosts[n].addr;
                let Some(to) = self.hosts.iter().position(|h| h.addr == packet.dst) else {
                    continue;
                };
                let entropy = 40_000 + packet.path;
                let control = packet.class == TrafficClass::Control;
                let frame = PacketFrame {
                    addr: SocketAddr::new(source.ip(), entropy),
                    entropy,
                    ecn: if control { 0 } else { 2 },
                    dscp: 0,
                    control,
                    trimmed: false,
                    sent: now,
                    overflow: 0,
                    endpoint: 0,
                };
                let flow = Route::flow(source, packet.dst);
                let route = Route { from: n as u32, to: to as u32, flow, sender: n as u32 };
                self.net.send(self.now, route, frame, &bytes, 0);
            }
            let sent = !batch.packets.is_empty();
            self.batch = batch;
            if !more && !sent {
                break;
            }
        }
        while let Some(completion) = self.hosts[n].engine.poll_completion() {
            done(n, completion);
        }
    }

    /// Lets the next thing happen, if that is not after `end`. False: nothing does.
    pub(crate) fn step(&mut self, end: Picos, done: &mut dyn FnMut(usize, Completion)) -> bool {
        for n in 0..self.hosts.len() {
            if !self.hosts[n].dead {
                self.transmit(n, done);
            }
        }
        let living = self.hosts.iter().filter(|h| !h.dead);
        let timeout = living.filter_map(|h| h.engine.poll_timeout()).min().map(Picos::from_time);
        let late = self.late.iter().map(|l| l.at).min();
        let Some(next) =
            [timeout, late, self.net.network().next_event()].into_iter().flatten().min()
        else {
            return false;
        };
        if next > end {
            return false;
        }
        self.now = self.now.max(next);
        let Self { now, hosts, net, again, rng, late, .. } = self;
        net.run(*now, &mut |arrived: &Delivery<'_>| {
            let meta = PacketMarks { ce: arrived.frame.ecn == 3, trimmed: arrived.frame.trimmed };
            let host = &mut hosts[arrived.host as usize];
            let src = arrived.frame.addr;
            if rng.chance(*again) {
                let at = *now + Picos::micros(u64::from(rng.below(5_000)));
                let (host, bytes) = (arrived.host as usize, arrived.payload.to_vec());
                late.push(Again { at, host, src, meta, bytes });
            }
            if !host.dead {
                host.engine.handle_packet(
                    arrived.at.time(),
                    &mut host.memory,
                    src,
                    meta,
                    arrived.payload,
                );
            }
        });
        while let Some(n) = late.iter().position(|l| l.at <= *now) {
            let packet = late.swap_remove(n);
            let host = &mut hosts[packet.host];
            if !host.dead {
                let (src, meta) = (packet.src, packet.meta);
                host.engine.handle_packet(now.time(), &mut host.memory, src, meta, &packet.bytes);
            }
        }
        let time = now.time();
        for host in hosts.iter_mut().filter(|h| !h.dead) {
            if host.engine.poll_timeout().is_some_and(|at| at <= time) {
                host.engine.handle_timeout(time);
            }
        }
        true
    }
}
