//! One random history, and what must be true of it.

use std::collections::BTreeMap;

use squall_base::{Rate, Rng, Span};
use squall_cc::{NetworkProfile, PathsConfig, Scope, SenderConfig};
use squall_emulator::Emulation;
use squall_engine::{
    Action as Work, Buf, Completion, Config, Level, MatchSpace, OpError, OpKind, Operation,
    Options, RecvMode, RecvOp, RemoteIov, RemoteSeg, Visibility,
};
use squall_netsim::Picos;
use squall_netsim::model::{Failure, NetworkConfig};
use squall_netsim::topology::Topology;
use squall_reliability::NOMINAL_OVERHEAD;
use squall_wire::ReturnCode;

use super::world::{BEGIN, World, configured};

/// Size of the regions that peers read and write.
const REGION: u64 = 60_000;
/// Key of the region that peers read, and of the one that they write.
const READ: u64 = 7;
const WRITE: u64 = 8;
/// After the last action everything must have ended within this.
const PATIENCE: Picos = Picos::micros(300_000_000);

/// What happened in histories.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) crashes: u64,
    pub(crate) restarts: u64,
    pub(crate) failures: u64,
    pub(crate) retransmitted: u64,
    pub(crate) trimmed: u64,
    pub(crate) lost: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.failures += other.failures;
        self.retransmitted += other.retransmitted;
        self.trimmed += other.trimmed;
        self.lost += other.lost;
    }
}

/// A message that some host sends to another.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    tag: u64,
    len: u64,
    inject: bool,
    /// What its bytes are made of.
    seed: u64,
}

/// Something to do at a time.
#[derive(Clone, Copy, Debug)]
enum Action {
    Send(usize),
    Recv(usize),
    Read { at: usize, peer: usize, offset: u64, len: u64 },
    Write { at: usize, peer: usize, offset: u64, len: u64, seed: u64, notified: bool },
    Fail(Failure),
    Crash(usize),
    Restart(usize),
}

/// What an operation was, to judge its end.
#[derive(Clone, Copy, Debug)]
enum What {
    Send(usize),
    Recv { message: usize, base: u64 },
    Read { peer: usize, offset: u64, base: u64, len: u64 },
    Write { peer: usize, offset: u64, len: u64, seed: u64, notified: bool },
}

#[derive(Clone, Debug)]
struct Op {
    host: usize,
    /// Of the host, when it was posted.
    life: u32,
    what: What,
    ends: Vec<Completion>,
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len as usize);
    bytes
}

/// Sizes around every threshold.
fn size(rng: &mut Rng) -> u64 {
    let most = [1, 257, 1500, 20_000, 40_000, 150_000][rng.below(6) as usize];
    u64::from(rng.below(most))
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(u32::try_from(from.len()).unwrap()) as usize]
}

/// A history in progress.
struct History {
    world: World,
    messages: Vec<Message>,
    /// By context minus one.
    ops: Vec<Op>,
    /// Ends of peers' writes with data, by (host, life, data).
    notified: BTreeMap<(usize, u32, u64), u32>,
    crashed: Vec<bool>,
    /// Messages in the order they were sent.
    order: Vec<usize>,
    /// Receives whose sender crashed may wait for ever.
    may_wait: bool,
    totals: Totals,
}

/// The network and the transports of a history.
fn world(rng: &mut Rng) -> (World, String, Scope) {
    let rate = Rate::gbps(10);
    let latency = Picos::micros(1);
    let topology = Topology::leaf_spine(2, 2, 2, rate, rate, latency, Picos::nanos(300));
    let trimming = rng.chance(0.6);
    let max_packet = pick(rng, &[1400, 4096]);
    let bdp = 20_000;
    let mut config = NetworkConfig::new(bdp, trimming, rng.next_u64());
    config.queue = config.queue.max(u64::from(max_packet) * 8);
    config.control_queue = config.queue * 2;
    config.trim = trimming.then_some(64 + NOMINAL_OVERHEAD);
    config.reroute = Picos::micros(u64::from(rng.below(2_000)));
    let net = Emulation::new(topology, config, NOMINAL_OVERHEAD).expect("small");
    let known =
        NetworkProfile::new(rate, Span::micros(30), max_packet + NOMINAL_OVERHEAD, trimming);
    let sender = pick(rng, SenderConfig::NAMES).0;
    let selector = pick(rng, PathsConfig::NAMES).0;
    let loss =
        pick(rng, &["all", "trim", "ooo", "path", "probe", "rto", "trim,rto", "ooo,probe,rto"]);
    let scopes: Vec<Scope> = Scope::all().collect();
    let scope = pick(rng, &scopes);
    let words = format!(
        "{sender} {selector} {loss} {scope:?}, trimming {trimming}, packets of {max_packet}"
    );
    let tight = rng.chance(0.2);
    let world = World::new(net, rng.next_u64(), move |seed, port| {
        let mut rng = Rng::new(seed);
        let sender = SenderConfig::by_name(sender, &known).expect("a listed name");
        let paths = PathsConfig::by_name(selector, 16).expect("a listed name");
        let mut pdc = squall_reliability::Config::new(max_packet, sender, paths, rng.next_u64());
        pdc.trim_enabled = trimming;
        pdc.train_packets = 4;
        let mut pdc = pdc.reciprocal(&known);
        let usual = pdc.clone();
        (pdc.loss, pdc.scope) = (loss.parse().expect("a set of detectors"), scope);
        // Not everything goes together.
        let pdc = if pdc.check().is_ok() { pdc } else { usual };
        let engine = Config {
            max_packet,
            rendezvous_threshold: 16 * 1024,
            unexpected_bytes: if tight { 60_000 } else { 1 << 30 },
            port,
            ..configured(rng.next_u64())
        };
        (engine, pdc)
    });
    (world, words, scope)
}

/// Says which history it was when a check fails.
struct Banner(u64, String);

impl Drop for Banner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, words) = self;
            eprintln!(
                "history {seed} failed ({words}); again: SQUALL_SEED={seed} cargo test -p \
                 squall-emulator --test tests whole_engine -- --nocapture"
            );
        }
    }
}

/// What happens when, in microseconds. With `crashing` or `long` failures, every message has a tag of its own,
/// so that what belongs to which incarnation, or arrives at all, does not depend on order. With `long`
/// failures some of it happens while they last and after them, when contexts were given up at one end or
/// at both.
fn script(
    rng: &mut Rng,
    messages: &mut Vec<Message>,
    crashing: bool,
    long: bool,
) -> Vec<(u64, Action)> {
    let hosts = 4;
    let mut script = Vec::new();
    let length = 200 + u64::from(rng.below(20_000));
    let time = |rng: &mut Rng| {
        let late = if long && rng.chance(0.3) { rng.below(25_000_000) } else { 0 };
        u64::from(rng.below(length as u32)) + u64::from(late)
    };
    let mut used = [0u64; 4];
    for n in 0..8 + rng.below(80) {
        let at = u64::from(rng.below(hosts)) as usize;
        let peer = (at + 1 + rng.below(hosts - 1) as usize) % hosts as usize;
        let when = time(rng);
        match rng.below(10) {
            0..=6 => {
                let tag =
                    if crashing || long { 1000 + u64::from(n) } else { u64::from(rng.below(3)) };
                let len = size(rng);
                let inject = len <= 256 && rng.chance(0.5);
                messages.push(Message {
                    from: at,
                    to: peer,
                    tag,
                    len,
                    inject,
                    seed: rng.next_u64(),
                });
                script.push((when, Action::Send(messages.len() - 1)));
                script.push((time(rng), Action::Recv(messages.len() - 1)));
            }
            7 | 8 => {
                let len = u64::from(rng.below(30_000));
                let offset = u64::from(rng.below((REGION - len) as u32));
                script.push((when, Action::Read { at, peer, offset, len }));
            }
            _ => {
                // Each write has a range of its own, so that their order does not matter.
                let len = u64::from(rng.below(6_000)).min(REGION - used[peer]);
                let offset = used[peer];
                used[peer] += len;
                let (seed, notified) = (rng.next_u64(), rng.chance(0.5));
                script.push((when, Action::Write { at, peer, offset, len, seed, notified }));
            }
        }
    }
    // Links 0 to 3 are the hosts', 4 to 7 those between leaves and spines.
    for _ in 0..rng.below(5) {
        let link = if rng.chance(0.2) { rng.below(4) } else { 4 + rng.below(4) };
        let what = match rng.below(6) {
            0 | 1 => Failure::LinkDown(link),
            2 => Failure::BlackHole(link),
            3 => Failure::BitErrors(link, 1e-7 * f64::from(1 + rng.below(100))),
            4 => Failure::Rate(link, Rate(1_000_000 * u64::from(100 + rng.below(9_000)))),
            _ => Failure::SwitchDown(2 + rng.below(2)),
        };
        let repair = match what {
            Failure::SwitchDown(switch) => Failure::SwitchUp(switch),
            Failure::Rate(link, _) => Failure::Rate(link, Rate::gbps(10)),
            _ => Failure::LinkUp(link),
        };
        let when = u64::from(rng.below(length as u32));
        let lasts = if long { 12_000_000 } else { 100 + u64::from(rng.below(60_000)) };
        script.push((when, Action::Fail(what)));
        script.push((when + lasts, Action::Fail(repair)));
    }
    if crashing {
        for _ in 0..1 + rng.below(2) {
            let host = rng.below(hosts) as usize;
            let when = u64::from(rng.below(length as u32));
            script.push((when, Action::Crash(host)));
            if rng.chance(0.8) {
                let later = u64::from(pick(rng, &[0u32, 1, 100, 5_000, 1_000_000, 20_000_000]));
                script.push((when + later, Action::Restart(host)));
            }
        }
    }
    script.sort_by_key(|(at, _)| *at);
    script
}

/// Lives through the history of `seed`; what happens in it is printed if it is to be `shown`.
pub(crate) fn run(seed: u64, shown: bool) -> Totals {
    let mut rng = Rng::new(seed ^ 0x6869_7374_6f72_7900);
    let crashing = rng.chance(0.4);
    // Longer than the transport's deadlines: then errors are right between any two.
    let long = rng.chance(0.1);
    let (mut world, words, scope) = world(&mut rng);
    let _banner = Banner(seed, format!("{words}, crashes {crashing}, long {long}"));
    world.again = if rng.chance(0.5) { 0.005 } else { 0.0 };
    let mut messages = Vec::new();
    let script = script(&mut rng, &mut messages, crashing, long);
    // What is in flight to a dead process fills a window that all share.
    let one = [Scope::PerHost, Scope::PerServiceLevel, Scope::PerGroup];
    let long = long || (crashing && one.contains(&scope));
    for (n, host) in world.hosts.iter_mut().enumerate() {
        let base = host.memory.put(&pattern(n as u64, REGION));
        host.memory.register(READ, base, REGION, true, false);
        let base = host.memory.alloc(REGION as usize);
        host.memory.register(WRITE, base, REGION, false, true);
    }
    let mut history = History {
        crashed: vec![false; world.hosts.len()],
        world,
        messages,
        ops: Vec::new(),
        notified: BTreeMap::new(),
        order: Vec::new(),
        may_wait: true,
        totals: Totals::default(),
    };
    for (at, action) in script {
        if shown {
            eprintln!("{at} us: {action:?}");
        }
        history.advance(BEGIN + Picos::micros(at), false);
        history.act(&mut rng, action);
    }
    let end = history.world.now + PATIENCE;
    history.advance(end, true);
    // Receives of messages that will not come any more.
    for n in 0..history.ops.len() {
        let op = &history.ops[n];
        let host = &mut history.world.hosts[op.host];
        if matches!(op.what, What::Recv { .. }) && op.ends.is_empty() && host.life == op.life {
            host.engine.cancel(history.world.now.time(), n as u64 + 1);
        }
    }
    // What is half here cannot be cancelled, and fails when its sender is known to be gone.
    history.may_wait = false;
    let end = history.world.now + PATIENCE;
    history.advance(end, true);
    history.judge(crashing, long);
    let lost = history.world.net.network().totals().lost().total();
    for host in &history.world.hosts {
        let counters = host.engine.counters().1;
        history.totals.retransmitted += counters.retransmissions();
        history.totals.trimmed += counters.rx_trimmed;
    }
    history.totals.lost += lost;
    history.totals
}

impl History {
    /// Lets time pass until `end`, or until everything that must end has ended.
    fn advance(&mut self, end: Picos, until_over: bool) {
        loop {
            let Self { world, ops, notified, .. } = self;
            let lives: Vec<u32> = world.hosts.iter().map(|h| h.life).collect();
            let mut count = |host: usize, done: Completion| {
                if done.kind == OpKind::RemoteWrite {
                    let data = done.data.expect("a write with a notification has data");
                    *notified.entry((host, lives[host], data)).or_default() += 1;
                } else if done.context > 0 {
                    // Injected messages have none.
                    ops[done.context as usize - 1].ends.push(done);
                }
            };
            let stepped = world.step(end, &mut count);
            if !stepped {
                world.now = world.now.max(end);
                return;
            }
            if until_over && self.is_over() {
                return;
            }
        }
    }

    /// Whether an operation's process still lives.
    fn lives(&self, op: &Op) -> bool {
        let host = &self.world.hosts[op.host];
        !host.dead && host.life == op.life
    }

    /// The other host of an operation.
    fn peer(&self, op: &Op) -> usize {
        match op.what {
            What::Send(message) => self.messages[message].to,
            What::Recv { message, .. } => self.messages[message].from,
            What::Read { peer, .. } | What::Write { peer, .. } => peer,
        }
    }

    /// Whether an operation is between processes that never crashed.
    fn is_safe(&self, op: &Op) -> bool {
        !self.crashed[op.host] && !self.crashed[self.peer(op)]
    }

    /// Nothing is outstanding but receives that may wait for ever.
    fn is_over(&self) -> bool {
        let waits = |op: &Op| {
            let is_recv = matches!(op.what, What::Recv { .. });
            let may_wait = self.may_wait && is_recv && !self.is_safe(op);
            op.ends.is_empty() && self.lives(op) && !may_wait
        };
        let idle = self.world.hosts.iter().all(|h| h.dead || h.engine.is_idle());
        idle && self.world.net.network().in_flight() == 0 && !self.ops.iter().any(waits)
    }

    fn act(&mut self, rng: &mut Rng, action: Action) {
        match action {
            Action::Send(message) => self.send(rng, message),
            // A process that came back has posted its receives.
            Action::Recv(message) => {
                let to = self.messages[message].to;
                if self.world.hosts[to].life == 0 && !self.world.hosts[to].dead {
                    self.recv(message);
                }
            }
            Action::Read { at, peer, offset, len } => {
                if self.world.hosts[at].dead {
                    return;
                }
                let base = self.world.hosts[at].memory.alloc(len as usize);
                let remote = RemoteIov::One(RemoteSeg { address: offset, len, key: READ });
                let op = self.rma(at, peer, Work::Read(remote), Buf::new(base, len), None);
                self.world.submit(at, op);
                self.posted(at, What::Read { peer, offset, base, len });
            }
            Action::Write { at, peer, offset, len, seed, notified } => {
                if self.world.hosts[at].dead {
                    return;
                }
                let base = self.world.hosts[at].memory.put(&pattern(seed, len));
                let data = notified.then_some(self.ops.len() as u64);
                let remote = RemoteIov::One(RemoteSeg { address: offset, len, key: WRITE });
                let op = self.rma(at, peer, Work::Write(remote), Buf::new(base, len), data);
                self.world.submit(at, op);
                self.posted(at, What::Write { peer, offset, len, seed, notified });
            }
            Action::Fail(what) => {
                self.world.net.fail(self.world.now, what);
                self.totals.failures += 1;
            }
            Action::Crash(host) => {
                if !self.world.hosts[host].dead {
                    self.totals.crashes += 1;
                    self.crashed[host] = true;
                    self.world.crash(host);
                }
            }
            Action::Restart(host) => {
                if self.world.hosts[host].dead {
                    self.totals.restarts += 1;
                    self.world.restart(host);
                    // Whatever was sent to it may come to the new process, too.
                    for message in 0..self.messages.len() {
                        if self.messages[message].to == host {
                            self.recv(message);
                        }
                    }
                }
            }
        }
    }

    fn posted(&mut self, host: usize, what: What) {
        let life = self.world.hosts[host].life;
        self.ops.push(Op { host, life, what, ends: Vec::new() });
    }

    fn rma(
        &mut self,
        at: usize,
        peer: usize,
        action: Work,
        buf: Buf,
        data: Option<u64>,
    ) -> Operation {
        let peer = self.world.peer(at, peer);
        let context = self.ops.len() as u64 + 1;
        Operation { peer, action, buf, data, context, options: Options::default() }
    }

    fn send(&mut self, rng: &mut Rng, message: usize) {
        let Message { from, to, tag, len, inject, seed } = self.messages[message];
        if self.world.hosts[from].dead {
            return;
        }
        self.order.push(message);
        let peer = self.world.peer(from, to);
        let data = rng.chance(0.5).then_some(seed);
        let base = self.world.hosts[from].memory.put(&pattern(seed, len));
        let action = Work::Message { space: MatchSpace::Tagged, tag };
        let buf = Buf::new(base, len);
        if inject {
            // It has no end that the sender could see.
            let options =
                Options { inject, visibility: Visibility::CountOnly, ..Options::default() };
            self.world.submit(from, Operation { peer, action, buf, data, context: 0, options });
            return;
        }
        let level = match rng.below(20) {
            0 => Level::Match,
            1..10 => Level::Transmit,
            _ => Level::Default,
        };
        let context = self.ops.len() as u64 + 1;
        let options = Options { level, ..Options::default() };
        self.world.submit(from, Operation { peer, action, buf, data, context, options });
        self.posted(from, What::Send(message));
    }

    /// Posts the receive of a message, from its sender alone.
    fn recv(&mut self, message: usize) {
        let Message { from, to, tag, .. } = self.messages[message];
        // Of equal tags any message may come, so there is room for the largest.
        let room = 150_000;
        let source = Some(self.world.peer(to, from));
        let now = self.world.time();
        let context = self.ops.len() as u64 + 1;
        let host = &mut self.world.hosts[to];
        let base = host.memory.alloc(room as usize);
        let op = RecvOp {
            source,
            space: MatchSpace::Tagged,
            tag,
            ignore: 0,
            buf: Buf::new(base, room),
            context,
            visibility: Visibility::Entry,
            mode: RecvMode::Post,
        };
        host.engine.receive(now, &mut host.memory, op).expect("room for operations");
        self.posted(to, What::Recv { message, base });
    }

    /// Everything that must be true at the end.
    fn judge(&mut self, crashing: bool, long: bool) {
        if !crashing && !long {
            self.match_equal_tags();
        }
        for n in 0..self.ops.len() {
            let op = self.ops[n].clone();
            if self.lives(&op) {
                assert_eq!(op.ends.len(), 1, "operation {n} ends once: {op:?}");
            } else {
                assert!(op.ends.len() <= 1, "operation {n} ends at most once: {op:?}");
            }
            let Some(end) = op.ends.first() else { continue };
            match end.status {
                Ok(()) => {
                    self.totals.succeeded += 1;
                    self.check_bytes(n, &op, end);
                }
                Err(error) => {
                    self.totals.failed += 1;
                    let fine = !self.is_safe(&op) || long;
                    assert!(fine, "operation {n} fails without a reason: {error:?}, {op:?}");
                    let known = matches!(
                        error,
                        OpError::Cancelled
                            | OpError::Unreachable
                            | OpError::TimedOut
                            | OpError::PeerRestarted
                            | OpError::Closed
                            // What a process that came back does not know.
                            | OpError::Remote(ReturnCode::BadMkey)
                    );
                    assert!(known, "operation {n}: {error:?}");
                    let restarted = self.world.hosts[self.peer(&op)].life > 0;
                    let fine = error != OpError::PeerRestarted || restarted;
                    assert!(fine, "operation {n}: its peer never restarted: {op:?}");
                }
            }
        }
        for (&(host, _, data), &count) in &self.notified {
            assert_eq!(count, 1, "write {data} is reported once to host {host}");
        }
        if !crashing && !long {
            for (n, op) in self.ops.iter().enumerate() {
                let What::Write { peer, notified, .. } = op.what else { continue };
                let reported = self.notified.contains_key(&(peer, 0, n as u64));
                assert_eq!(reported, notified, "write {n} is reported to its target");
            }
            for host in &self.world.hosts {
                assert!(host.engine.is_idle(), "nothing is left to do");
                assert_eq!(host.engine.unexpected_messages(), 0, "nothing came twice");
                assert_eq!(
                    host.engine.counters().0.unexpected_bytes,
                    0,
                    "the budget is given back"
                );
            }
        }
    }

    /// When nothing fails, messages with equal tags between two hosts arrive in the order they were sent: the
    /// n-th receive gets the n-th message.
    fn match_equal_tags(&mut self) {
        let mut sent: BTreeMap<(usize, usize, u64), Vec<usize>> = BTreeMap::new();
        for &message in &self.order {
            let m = &self.messages[message];
            sent.entry((m.from, m.to, m.tag)).or_default().push(message);
        }
        let mut met: BTreeMap<(usize, usize, u64), usize> = BTreeMap::new();
        for op in &mut self.ops {
            if let What::Recv { message, .. } = &mut op.what {
                let m = &self.messages[*message];
                let key = (m.from, m.to, m.tag);
                let n = met.entry(key).or_default();
                *message = sent[&key][*n];
                *n += 1;
            }
        }
    }

    fn check_bytes(&self, n: usize, op: &Op, end: &Completion) {
        match op.what {
            What::Send(_) => {}
            What::Recv { message, base } => {
                let m = &self.messages[message];
                assert_eq!((end.len, end.tag), (m.len, m.tag), "receive {n}");
                assert!(end.data.is_none_or(|data| data == m.seed), "receive {n} has its data");
                let got = self.world.hosts[op.host].memory.get(base, m.len);
                assert!(got == pattern(m.seed, m.len), "receive {n} differs");
            }
            What::Read { peer, offset, base, len } => {
                let got = self.world.hosts[op.host].memory.get(base, len);
                let all = pattern(peer as u64, REGION);
                assert!(got == &all[offset as usize..(offset + len) as usize], "read {n} differs");
            }
            What::Write { peer, offset, len, seed, .. } => {
                let memory = &self.world.hosts[peer].memory;
                let region = memory.regions[&WRITE].0;
                let got = memory.get(region.base + offset, len);
                assert!(got == pattern(seed, len), "write {n} differs");
            }
        }
    }
}
