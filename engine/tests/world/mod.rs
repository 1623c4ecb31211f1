//! The environment of the tests: engines joined by a virtual network with faults, in virtual time.
#![allow(dead_code, unreachable_pub)] // each test program uses its own part

mod memory;
mod sealed;
mod shm;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};

pub use memory::VecMemory;
pub use sealed::{Audit, Keys};
use squall_base::{Batch, Rng, SecretRng, Span, Time, TrafficClass};
use squall_cc::{PathsConfig, SenderConfig};
use squall_engine::{
    Action, Buf, Completion, Config, DestinationError, Engine, MatchSpace, OpKind, Operation,
    Options, PacketMarks, PeerId, RemoteIov, SubmitError, TransportConfig, Visibility,
};

/// True in the module `over_shm`, which contains some suites again: its hosts open channels when they
/// have verified each other.
pub const OVER_SHM: bool = contains(module_path!(), "::over_shm::");

const fn contains(path: &str, part: &str) -> bool {
    let (path, part) = (path.as_bytes(), part.as_bytes());
    let mut start = 0;
    while start + part.len() <= path.len() {
        let mut at = 0;
        while at < part.len() && path[start + at] == part[at] {
            at += 1;
        }
        if at == part.len() {
            return true;
        }
        start += 1;
    }
    false
}

/// Number of paths of the tests' endpoints.
pub const PATHS: u16 = 16;
/// Deadline after which the tests' endpoints give a peer up.
pub const DEADLINE: Span = Span::secs(10);

/// The Linux value of ECONNREFUSED.
const REFUSED: i32 = 111;

/// Probabilities with which the network harms packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub drop: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub trim: f64,
    pub ce: f64,
    /// A path whose packets are all dropped.
    pub black_hole: Option<u16>,
    /// Packets on every path of the first set are dropped.
    pub first_set: bool,
    /// A network with two spines, one of which drops every packet. Switches hash the addresses and
    /// the path, with this seed.
    pub dead_spine: Option<u32>,
}

struct Flying {
    at: Time,
    order: u64,
    dst: SocketAddr,
    src: SocketAddr,
    meta: PacketMarks,
    bytes: Vec<u8>,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Flying {}
impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A path that drops long packets, including those that routers may fragment unless its routers do so.
#[derive(Clone, Copy, Debug)]
pub struct ReducedPath {
    /// Longest UDP payload in bytes that passes.
    pub bytes: usize,
    /// True if the sender is notified of each dropped packet.
    pub tells: bool,
    /// Whether routers on the path fragment packets that may be fragmented.
    pub fragments: bool,
    /// The number of packets that the path has dropped.
    pub vanished: u64,
}

impl ReducedPath {
    pub fn new(bytes: usize, tells: bool) -> Self {
        Self { bytes, tells, fragments: false, vanished: 0 }
    }

    /// Returns whether a packet of `len` bytes passes.
    const fn takes(&mut self, len: usize, may_fragment: bool) -> bool {
        let fits = len <= self.bytes || self.fragments && may_fragment;
        self.vanished += !fits as u64;
        fits
    }
}

/// A packet as an observer on the path sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub bytes: Vec<u8>,
}

/// Returns whether a completion is that of a peer's access, not of an own operation.
pub const fn is_remote(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::RemoteWrite | OpKind::RemoteRead | OpKind::RemoteUpdate | OpKind::RemoteFetch
    )
}

/// One endpoint and its host.
pub struct Host {
    pub engine: Engine,
    pub memory: VecMemory,
    pub addr: SocketAddr,
    pub done: Vec<Completion>,
    /// Buffers that the completion with this context returns, or, for multi-receives, the
    /// completion that releases them.
    pub lent: HashMap<u64, Lent>,
    /// Packets to the host vanish, and it does nothing.
    pub dead: bool,
    /// The process is stopped, and packets to it wait in its socket.
    pub stopped: bool,
    socket: Vec<(SocketAddr, PacketMarks, Vec<u8>)>,
    /// The secrets of a host that encrypts its packets.
    pub keys: Option<Keys>,
}

/// A buffer of an operation that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    pub base: u64,
    pub multi: bool,
}

impl Host {
    /// Returns whether the host runs.
    const fn runs(&self) -> bool {
        !self.dead && !self.stopped
    }

    /// Handles a completion like a user.
    fn complete(&mut self, completion: Completion) {
        let own = !is_remote(completion.kind) && completion.kind != OpKind::Peek;
        if own
            && let Some(lent) = self.lent.get(&completion.context).copied()
            && (!lent.multi || completion.released)
        {
            self.lent.remove(&completion.context);
            self.memory.revoke(lent.base);
        }
        self.done.push(completion);
    }
}

/// Hosts and the network between them.
pub struct World {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub rng: Rng,
    /// Drops the packets from an address that this filter selects, except handshakes.
    pub mute: Option<fn(SocketAddr, &[u8]) -> bool>,
    pub narrow: Option<ReducedPath>,
    /// Hosts whose process is gone report the closed port to senders.
    pub refuses: bool,
    /// Every packet that was sent, for tests that examine them.
    pub tap: Option<Vec<Seen>>,
    /// Record of the packets of hosts that encrypt.
    pub audit: Audit,
    /// Shared-memory channels between hosts.
    pub shm: shm::MockChannels,
    /// Packets of equal length that left together may arrive together, as trains.
    pub gathers: bool,
    flying: BinaryHeap<Reverse<Flying>>,
    /// Arrival time of the packets that leave together now, once it is known.
    arrival: Option<Time>,
    order: u64,
    batch: Batch,
}

/// Description of a one-sided operation in a test.
pub struct RmaOp {
    pub peer: PeerId,
    pub buf: Buf,
    pub remote: RemoteIov,
    pub data: Option<u64>,
    pub context: u64,
}

impl RmaOp {
    pub fn write(self) -> Operation {
        let Self { peer, buf, remote, data, context } = self;
        let (action, options) = (Action::Write(remote), Options::default());
        Operation { peer, action, buf, data, context, options }
    }

    pub fn read(self) -> Operation {
        let Self { peer, buf, remote, data, context } = self;
        let (action, options) = (Action::Read(remote), Options::default());
        Operation { peer, action, buf, data, context, options }
    }
}

/// Builds a message that is copied at the call, as the inject calls send it.
pub fn injected(
    peer: PeerId,
    space: MatchSpace,
    tag: u64,
    buf: Buf,
    data: Option<u64>,
) -> Operation {
    let options = Options { inject: true, visibility: Visibility::CountOnly, ..Options::default() };
    let action = Action::Message { space, tag };
    Operation { peer, action, buf, data, context: 0, options }
}

/// Returns whether a packet is part of a handshake.
pub fn introduces(bytes: &[u8]) -> bool {
    matches!(squall_wire::parse(bytes), Ok(squall_wire::Packet::Negotiation { .. }))
}

/// Returns `len` bytes that follow from a number. A shorter content is the beginning of a longer one.
pub fn content(number: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut bytes = vec![0; len as usize];
    for chunk in bytes.chunks_mut(8) {
        let word = rng.next_u64().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// Returns the engine parameters of tests.
pub fn engine_config(seed: u64, port: u16) -> Config {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&seed.to_ne_bytes());
    let mut secret = SecretRng::from_seed(secret);
    Config {
        max_packet: 1400,
        rendezvous_threshold: 16 * 1024,
        port,
        shm: OVER_SHM,
        ..Config::new(secret.instance(), secret.seed())
    }
}

/// Returns the context parameters of tests.
pub fn pdc_config(seed: u64) -> TransportConfig {
    let cc = SenderConfig::fixed(256 * 1024);
    let config =
        TransportConfig::new(1400, cc, PathsConfig::reps(PATHS).expect("a power of two"), seed);
    // The deadlines are shorter than the defaults, so that tests are short.
    let (contact_deadline, progress_deadline) = (DEADLINE, DEADLINE);
    TransportConfig { contact_deadline, progress_deadline, ..config }
}

/// Returns whether switches with this hash seed send a packet to the second of two spines.
fn dead_spine_takes(seed: u32, src: IpAddr, dst: IpAddr, path: u16) -> bool {
    let octet = |ip| match ip {
        IpAddr::V4(ip) => u64::from(ip.octets()[3]),
        IpAddr::V6(ip) => u64::from(ip.octets()[15]),
    };
    let flow = u64::from(path) << 16 | octet(src) << 8 | octet(dst);
    Rng::new(u64::from(seed) << 32 | flow).chance(0.5)
}

/// Creates a process's engine at this address.
fn engine(
    rng: &mut Rng,
    addr: SocketAddr,
    adjust: impl Fn(&mut Config, &mut TransportConfig),
) -> Engine {
    let (mut engine, mut pdc) =
        (engine_config(rng.next_u64(), addr.port()), pdc_config(rng.next_u64()));
    engine.host = Some(addr.ip());
    adjust(&mut engine, &mut pdc);
    Engine::new(engine, pdc)
}

impl World {
    pub fn new(hosts: usize, seed: u64, faults: Faults) -> Self {
        Self::with(hosts, seed, faults, |_, _| {})
    }

    /// Builds a world whose configurations `adjust` may change.
    pub fn with(
        hosts: usize,
        seed: u64,
        faults: Faults,
        adjust: impl Fn(&mut Config, &mut TransportConfig),
    ) -> Self {
        let addrs: Vec<_> = (0..hosts)
            .map(|n| SocketAddr::from(([10, 0, 0, n as u8 + 1], 5000 + n as u16)))
            .collect();
        Self::at(&addrs, seed, faults, adjust)
    }

    /// Builds a world with endpoints at these addresses, several of which may be on one host.
    pub fn at(
        addrs: &[SocketAddr],
        seed: u64,
        faults: Faults,
        adjust: impl Fn(&mut Config, &mut TransportConfig),
    ) -> Self {
        let mut rng = Rng::new(seed);
        let hosts = addrs
            .iter()
            .map(|&addr| Host {
                engine: engine(&mut rng, addr, &adjust),
                memory: VecMemory::default(),
                addr,
                done: vec![],
                lent: HashMap::new(),
                dead: false,
                stopped: false,
                socket: vec![],
                keys: None,
            })
            .collect();
        Self {
            now: Time(1_000_000),
            hosts,
            faults,
            rng,
            mute: None,
            narrow: None,
            refuses: false,
            tap: None,
            audit: Audit::default(),
            shm: shm::MockChannels::default(),
            gathers: false,
            flying: BinaryHeap::new(),
            arrival: None,
            order: 0,
            batch: Batch::default(),
        }
    }

    pub fn peer(&mut self, of: usize, other: usize) -> PeerId {
        let addr = self.hosts[other].addr;
        self.hosts[of].engine.peer(addr)
    }

    /// Submits an operation at host `n`.
    pub fn submit(&mut self, n: usize, op: Operation) -> Result<(), SubmitError> {
        let host = &mut self.hosts[n];
        let mut sink = self.shm.sink(n, &host.memory);
        host.engine.submit(self.now, &host.memory, op, Some(&mut sink)).map(|_| ())
    }

    /// Closes the region with this key at host `n`.
    pub fn unregister(&mut self, n: usize, key: u64) {
        let host = &mut self.hosts[n];
        let (slice, ..) = host.memory.regions.remove(&key).expect("the region was registered");
        host.engine.release_region(self.now, slice.region);
        host.memory.revoke(slice.base);
    }

    fn transmit(&mut self, n: usize) {
        loop {
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            self.arrival = None;
            let more = self.hosts[n].engine.poll_transmit(self.now, &mut batch);
            for packet in &batch.packets {
                let mut bytes = batch.header(packet).to_vec();
                for piece in batch.payload(packet) {
                    let memory = &self.hosts[n].memory;
                    memory.check(*piece, piece.len as usize);
                    bytes.extend_from_slice(memory.get(piece.base, piece.len));
                }
                assert_eq!(
                    bytes.len(),
                    packet.len as usize,
                    "the packet's length is that of its parts"
                );
                let src = SocketAddr::new(self.hosts[n].addr.ip(), 40_000 + packet.path);
                let Some(bytes) = self.seal(n, (src, packet.dst), bytes) else { continue };
                if let Some(tap) = &mut self.tap {
                    tap.push(Seen { src, dst: packet.dst, bytes: bytes.clone() });
                }
                if let Some(narrow) = &mut self.narrow
                    && !narrow.takes(bytes.len(), packet.fragment)
                {
                    if narrow.tells {
                        let size = narrow.bytes as u32;
                        self.hosts[n].engine.handle_packet_size(self.now, packet.dst, size);
                    }
                    continue;
                }
                if self.refuses && self.hosts.iter().any(|h| h.dead && h.addr == packet.dst) {
                    let trouble = DestinationError { errno: REFUSED, peer: packet.dst };
                    self.hosts[n].engine.handle_destination_error(self.now, trouble);
                }
                let control = packet.class == TrafficClass::Control;
                self.fly(src, packet.dst, packet.path, control, &bytes);
            }
            let sent = !batch.packets.is_empty();
            self.batch = batch;
            if !more && !sent {
                break;
            }
        }
        self.transmit_records(n);
        while let Some(completion) = self.hosts[n].engine.poll_completion() {
            self.hosts[n].complete(completion);
        }
    }

    fn fly(&mut self, src: SocketAddr, dst: SocketAddr, path: u16, control: bool, bytes: &[u8]) {
        let f = self.faults;
        let muted = !introduces(bytes) && self.mute.is_some_and(|mute| mute(src, bytes));
        if self.rng.chance(f.drop) || f.black_hole == Some(path) || muted {
            return;
        }
        if f.first_set && path < PATHS {
            return;
        }
        if f.dead_spine.is_some_and(|seed| dead_spine_takes(seed, src.ip(), dst.ip(), path)) {
            return;
        }
        let copies = if self.rng.chance(f.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            let mut meta = PacketMarks { ce: self.rng.chance(f.ce), trimmed: false };
            if !control && bytes.len() > 64 && self.rng.chance(f.trim) {
                bytes.truncate(64);
                meta.trimmed = true;
            }
            let late = if self.rng.chance(f.reorder) { self.rng.below(200_000) } else { 0 };
            let mut at = self.now + Span::micros(5) + Span(u64::from(late + self.rng.below(100)));
            if self.gathers && late == 0 && !control {
                at = *self.arrival.get_or_insert(at);
            }
            self.order += 1;
            let order = self.order;
            self.flying.push(Reverse(Flying { at, order, dst, src, meta, bytes }));
        }
    }

    /// Executes the next event. Returns false if there will never be another.
    pub fn step(&mut self) -> bool {
        self.step_before(Time::NEVER)
    }

    /// Lets host `n` send, and delivers all packets in flight.
    pub fn step_host(&mut self, n: usize) {
        self.transmit(n);
        while let Some(Reverse(f)) = self.flying.pop() {
            self.now = self.now.max(f.at);
            if let Some(host) = self.hosts.iter_mut().find(|h| h.addr == f.dst) {
                host.receive(self.now, f.src, f.meta, (&f.bytes, f.bytes.len()));
            }
        }
    }

    /// Delivers a packet at `dst` that no host sent.
    pub fn inject(&mut self, src: SocketAddr, dst: SocketAddr, marks: PacketMarks, bytes: &[u8]) {
        if let Some(host) = self.hosts.iter_mut().find(|h| h.addr == dst) {
            host.receive(self.now, src, marks, (bytes, bytes.len()));
        }
        self.audit_packets();
    }

    /// Executes the next event if it is before `end`.
    pub fn step_before(&mut self, end: Time) -> bool {
        for n in 0..self.hosts.len() {
            if self.hosts[n].runs() {
                self.transmit(n);
            }
        }
        if self.carry_records() {
            return true;
        }
        let timeout =
            self.hosts.iter().filter(|h| h.runs()).filter_map(|h| h.engine.poll_timeout()).min();
        let packet = self.flying.peek().map(|Reverse(f)| f.at);
        let Some(next) = timeout.into_iter().chain(packet).min() else { return false };
        if next > end {
            return false;
        }
        self.now = self.now.max(next);
        while self.flying.peek().is_some_and(|Reverse(f)| f.at <= self.now) {
            let Some(Reverse(f)) = self.flying.pop() else { break };
            let Some(host) = self.hosts.iter_mut().find(|h| h.addr == f.dst && !h.dead) else {
                continue;
            };
            if host.stopped {
                host.socket.push((f.src, f.meta, f.bytes));
                continue;
            }
            let (segment, mut bytes) = (f.bytes.len(), f.bytes);
            while self.gathers && segment > 0 && bytes.len().is_multiple_of(segment) {
                let follows = |Reverse(next): &Reverse<Flying>| {
                    (next.at, next.src, next.dst, next.meta) == (f.at, f.src, f.dst, f.meta)
                        && (1..=segment).contains(&next.bytes.len())
                };
                match self.flying.peek().filter(|next| follows(next)) {
                    Some(_) => bytes.extend(self.flying.pop().expect("a peeked packet").0.bytes),
                    None => break,
                }
            }
            host.receive(self.now, f.src, f.meta, (&bytes, segment));
        }
        self.audit_packets();
        self.show_held();
        for host in self.hosts.iter_mut().filter(|h| h.runs()) {
            if host.engine.poll_timeout().is_some_and(|at| at <= self.now) {
                host.engine.handle_timeout(self.now);
            }
        }
        true
    }

    /// Lets a stopped host continue. What arrived meanwhile is in its socket, as far as it fits.
    pub fn resume(&mut self, n: usize, fits: usize) {
        let host = &mut self.hosts[n];
        host.stopped = false;
        let mut waiting = std::mem::take(&mut host.socket);
        waiting.truncate(fits);
        for (src, meta, bytes) in waiting {
            host.receive(self.now, src, meta, (&bytes, bytes.len()));
        }
    }

    /// Ends the process of host `n`, whatever is in progress.
    pub fn crash(&mut self, n: usize) {
        let host = &mut self.hosts[n];
        while let Some(completion) = host.engine.poll_completion() {
            host.complete(completion);
        }
        (host.dead, host.stopped) = (true, false);
        host.socket.clear();
    }

    /// Starts another process at host `n` after a crash. Returns the memory and the completions of
    /// the former one.
    pub fn restart(
        &mut self,
        n: usize,
        adjust: impl Fn(&mut Config, &mut TransportConfig),
    ) -> (VecMemory, Vec<Completion>) {
        let host = &mut self.hosts[n];
        host.engine = engine(&mut self.rng, host.addr, adjust);
        host.dead = false;
        host.lent.clear();
        host.keys = host.keys.take().map(|_| Keys::default());
        (std::mem::take(&mut host.memory), std::mem::take(&mut host.done))
    }

    /// Runs until `done`, for at most `limit` of virtual time.
    pub fn run(&mut self, limit: Span, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        while !done(self) {
            if !self.step_before(end) {
                if done(self) {
                    return true;
                }
                self.now = end;
                return false;
            }
        }
        true
    }
}
