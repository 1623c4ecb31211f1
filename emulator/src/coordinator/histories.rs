//! Random histories of processes in virtual time, in random orders of real time.
//!
//! The processes of a history compute, send bursts, answer, poll, sleep and end, as programs with the
//! provider do. A second random number generator decides which process the machine runs next, how
//! long a process keeps packets before it writes them, and when the coordinator looks. `SQUALL_SEEDS`
//! is the number of histories, `SQUALL_SEED` the first one or, alone, the only one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use squall_base::{Rate, Rng, Span, Time};
use squall_net::emulator::frame::{PacketFrame, Resume, Wait, WaitReason};
use squall_netsim::Picos;
use squall_netsim::model::{Failure, NetworkConfig};
use squall_netsim::topology::{FatTree, Node, Tier, Topology};

use super::super::card::CardModel;
use super::super::emulation::{Delivery, Emulation, Route};
use super::super::inner_path::InnerPath;
use super::{Activity, Coordinator, Pace};

/// Number of histories that a run checks unless `SQUALL_SEEDS` is set.
const SEEDS: u64 = 500;
/// Bytes of a packet on the wire beyond its UDP payload.
const OVERHEAD: u32 = 48;
/// Time at which the clocks of histories begin.
const ORIGIN: Time = Time(5_000_000_000);

/// Returns a random span of at most `most` nanoseconds, of any order of magnitude.
fn span(rng: &mut Rng, most: u32) -> Span {
    let bits = rng.below(32 - most.leading_zeros() + 1);
    Span(u64::from(rng.below(1 << bits).min(most)))
}

fn is_data(id: u64) -> bool {
    id & 1 == 0
}

/// A packet between two processes: the number of the sender, the number of the packet, and whether
/// it asks for an answer.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at: Time,
    to: u32,
    id: u64,
    len: usize,
}

/// Something that a process does until it has ended: waits for a time, or for a packet.
#[derive(Clone, Copy, Debug)]
struct Goal {
    until: Time,
    reason: WaitReason,
    /// A packet ends it, too.
    polls: bool,
}

/// The state of a process as the real machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Waiting(Wait),
    Ended,
}

/// A process with the clock that the port of `squall-net` keeps for it.
struct Rank {
    rng: Rng,
    number: u32,
    now: Time,
    horizon: Time,
    mailbox: VecDeque<Packet>,
    goal: Option<Goal>,
    actions: u32,
    state: State,
    /// Packets that the process has not written to its socket.
    outgoing: Vec<Packet>,
    sent: u64,
    /// Time of the latest arrival.
    arrived: Time,
    /// Times and packets in the order in which the process received them.
    received: Vec<(Time, u64)>,
}

impl Rank {
    fn send(&mut self, ranks: u32, answers: Option<u64>) {
        // Every second number is that of an answer, which is not answered.
        self.sent += 1;
        let id = u64::from(self.number) << 32 | self.sent << 1 | u64::from(answers.is_some());
        let to = answers.map_or_else(|| self.rng.below(ranks), |asked| (asked >> 32) as u32);
        let len = if self.rng.chance(0.5) { 16 } else { 16 + self.rng.below(1000) as usize };
        self.outgoing.push(Packet { at: self.now, to, id, len });
        self.now += span(&mut self.rng, 300);
    }

    /// Receives everything up to now, all of which is known, and answers some.
    fn receive(&mut self) {
        let now = self.now;
        let due = self.mailbox.iter().take_while(|packet| packet.at <= now).count();
        for packet in self.mailbox.drain(..due).collect::<Vec<_>>() {
            self.received.push((now, packet.id));
            if is_data(packet.id) && self.rng.chance(0.7) {
                self.send(0, Some(packet.id));
            }
        }
    }

    fn next_arrival(&self) -> Option<Time> {
        self.mailbox.iter().map(|packet| packet.at).find(|at| *at > self.now)
    }

    fn ask(&mut self, until: Time, reason: WaitReason) {
        let (now, overhead) = (self.now, Span(1));
        self.state = State::Waiting(Wait { now, until, reason, computed: Span::ZERO, overhead });
    }

    /// Performs the process' next action, if its clock may advance that far.
    fn act(&mut self, ranks: u32) {
        let Some(goal) = self.goal else { return self.begin_action(ranks) };
        // A port asks for everything up to now before it receives.
        if self.mailbox.front().is_some_and(|packet| packet.at <= self.now) {
            if self.now >= self.horizon {
                return self.ask(self.now, WaitReason::Sync);
            }
            self.receive();
            if goal.polls || self.now >= goal.until {
                self.goal = None;
            }
            return;
        }
        if self.now >= goal.until && self.now < self.horizon {
            self.goal = None;
            return;
        }
        let next = self.next_arrival().map_or(goal.until, |at| at.min(goal.until)).max(self.now);
        if next < self.horizon {
            self.now = next;
        } else {
            self.ask(next, goal.reason);
        }
    }

    fn begin_action(&mut self, ranks: u32) {
        let Some(left) = self.actions.checked_sub(1) else {
            self.state = State::Ended;
            return;
        };
        self.actions = left;
        let (reason, most, polls) = match self.rng.below(8) {
            0 | 1 => {
                for _ in 0..=self.rng.below(12) {
                    self.send(ranks, None);
                }
                return;
            }
            2 => {
                self.now += span(&mut self.rng, 4_000);
                return;
            }
            3 => (WaitReason::Sync, 0, false),
            4 => (WaitReason::Busy, 20_000, false),
            5 => (WaitReason::Timer, 20_000, true),
            6 => (WaitReason::Idle, 1_000, true),
            _ => (WaitReason::Idle, 100_000, true),
        };
        let until = if most == 0 { self.now } else { self.now + span(&mut self.rng, most) };
        self.goal = Some(Goal { until, reason, polls });
    }

    fn resume(&mut self, resume: Resume) {
        let State::Waiting(wait) = self.state else { panic!("a process that runs was resumed") };
        // A process that was outside may come back later than it waited.
        assert!(resume.now >= wait.now && resume.horizon > resume.now && resume.now >= self.now);
        assert!(resume.horizon >= self.horizon, "a horizon goes back");
        (self.now, self.horizon, self.state) = (resume.now, resume.horizon, State::Ready);
        if self.goal.is_some_and(|goal| goal.reason == WaitReason::Sync) {
            self.receive();
            self.goal = None;
        }
    }
}

/// A network with its changes, and processes on its hosts.
struct World {
    real: Rng,
    emulation: Emulation,
    coordinator: Coordinator,
    ranks: Vec<Rank>,
    hosts: Vec<u32>,
    /// Times at which the network changes, and the changes.
    changes: VecDeque<(Time, Failure)>,
    goes_outside: bool,
    latest: Time,
    /// Packets that entered, and all arrivals in their order.
    entered: u64,
    deliveries: Vec<(Time, u32, u64)>,
}

/// Returns a small topology.
fn topology(rng: &mut Rng) -> Topology {
    let rates = [1, 10, 100, 400, 800];
    let rate = |rng: &mut Rng| Rate::gbps(rates[rng.below(5) as usize]);
    // Latencies need not be whole nanoseconds.
    let latency = |rng: &mut Rng| Picos(1_000 + 10 * span(rng, 100_000).0);
    let (rate, uplink, latency, switch) = (rate(rng), rate(rng), latency(rng), latency(rng));
    match rng.below(4) {
        0 => Topology::star(2 + rng.below(5), rate, latency, switch),
        1 => Topology::dumbbell(1 + rng.below(3), 1 + rng.below(3), rate, uplink, latency, switch),
        2 => Topology::leaf_spine(
            2,
            1 + rng.below(3),
            1 + rng.below(3),
            rate,
            uplink,
            latency,
            switch,
        ),
        _ => {
            let tier = |radix_down, radix_up| Tier {
                oversubscribed: 1,
                downlink: rate,
                radix_down,
                radix_up,
                downlink_latency: latency,
                switch_latency: switch,
                bundle: 1,
                queue_up: None,
                queue_down: None,
            };
            let tiers = vec![tier(2, 2), tier(2, 2), tier(2, 0)];
            FatTree { hosts: 8, pod_hosts: 4, tiers }.build().expect("numbers that fit")
        }
    }
}

/// In a third of the histories, gives each link of a host a latency of its own. In another third, makes all latencies the
/// same whole number of nanoseconds, so that more packets arrive at the same time.
fn make_uneven(topology: &mut Topology, rng: &mut Rng) {
    let (kind, shared) = (rng.below(3), Picos::nanos(1 + span(rng, 1_000).0));
    for link in &mut topology.links {
        let ends_at_host = matches!((link.a, link.b), (Node::Host(_), _) | (_, Node::Host(_)));
        match kind {
            0 if ends_at_host => link.latency = Picos(1_000 + 10 * span(rng, 100_000).0),
            1 => link.latency = shared,
            _ => {}
        }
    }
}

impl World {
    /// Creates the processes and the network of the random history that follows from `seed`. The
    /// real-time order in which the processes run is random, too, and follows from `order`; results
    /// must not depend on it.
    fn new(seed: u64, order: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut topology = topology(&mut rng);
        make_uneven(&mut topology, &mut Rng::new(!seed));
        let (trimming, queue) = (rng.chance(0.5), 1_000 + u64::from(rng.below(40_000)));
        let mut config = NetworkConfig::new(queue, trimming, seed);
        config.trim = trimming.then_some(64 + OVERHEAD);
        config.reroute = Picos::nanos(u64::from(rng.below(3_000)));
        let count = 2 + rng.below(11);
        let hosts = (0..count).map(|_| rng.below(topology.hosts)).collect();
        let inner: Vec<u32> = (0..topology.links.len() as u32)
            .filter(|link| matches!(topology.links[*link as usize].a, Node::Switch(_)))
            .collect();
        let goes_outside = rng.chance(0.3);
        let mut changes = VecDeque::new();
        if rng.chance(0.3) && !inner.is_empty() {
            let link = inner[rng.below(inner.len() as u32) as usize];
            let down = ORIGIN + Span(1 + u64::from(rng.below(20_000)));
            let up = down + Span(u64::from(rng.below(20_000)));
            changes.extend([(down, Failure::LinkDown(link)), (up, Failure::LinkUp(link))]);
        }
        let mut emulation = Emulation::new(topology, config, OVERHEAD).expect("it is small");
        let mut model = CardModel::default();
        if rng.chance(0.5) {
            model.dma = Picos::nanos(u64::from(rng.below(800)));
            model.message_interval = Picos(u64::from(rng.below(2)) * 150_500);
            model.pcie = rng.chance(0.5).then(|| Rate::gbps([1, 100, 1000][rng.below(3) as usize]));
        }
        emulation.use_cards(model);
        if rng.chance(0.5) {
            let rate = Rate::gbps([1, 100, 1000][rng.below(3) as usize]);
            let latency = Picos(1_000 + 10 * span(&mut rng, 200_000).0);
            emulation.use_inner_paths(InnerPath { rate, latency });
        }
        let mut coordinator = Coordinator::new(ORIGIN, &emulation);
        let ranks = (0..count)
            .map(|number| Rank {
                rng: Rng::new(rng.next_u64()),
                number: coordinator.add(),
                now: ORIGIN,
                horizon: ORIGIN,
                mailbox: VecDeque::new(),
                goal: None,
                actions: 1 + rng.below(20) + number / 100,
                state: State::Ready,
                outgoing: Vec::new(),
                sent: 0,
                arrived: ORIGIN,
                received: Vec::new(),
            })
            .collect();
        Self {
            real: Rng::new(order),
            emulation,
            coordinator,
            ranks,
            hosts,
            changes,
            goes_outside,
            latest: ORIGIN,
            entered: 0,
            deliveries: Vec::new(),
        }
    }

    /// Hands all packets that a process has kept to its card.
    fn flush(&mut self, number: usize) {
        let rank = &mut self.ranks[number];
        for packet in rank.outgoing.drain(..) {
            let at = self.coordinator.check_sent(rank.number, packet.at);
            let at = at.unwrap_or_else(|broken| panic!("{broken:?}, {:?}", rank.state));
            let addr = SocketAddr::from(([10, 0, 0, 1], 50_000));
            let control = packet.len == 16;
            let frame = PacketFrame {
                addr,
                entropy: (packet.id % 4) as u16,
                ecn: if control { 0 } else { 2 },
                dscp: 0,
                control,
                trimmed: false,
                sent: packet.at,
                overflow: 0,
                endpoint: 0,
            };
            let mut payload = vec![0; packet.len];
            payload[..8].copy_from_slice(&packet.id.to_le_bytes());
            let (from, to) = (self.hosts[number], self.hosts[packet.to as usize]);
            let (flow, sender) = (rank.number << 8 | packet.to, rank.number);
            let route = Route { from, to, flow, sender };
            self.emulation.send(at, route, frame, &payload, packet.to.into());
            self.entered += 1;
        }
    }

    /// Runs the next action of a process, or reports to the coordinator that the process waits or
    /// has ended.
    fn serve(&mut self, number: usize) {
        let count = self.ranks.len() as u32;
        let rank = &mut self.ranks[number];
        match rank.state {
            State::Ready => {
                rank.act(count);
                if self.real.chance(0.2) {
                    self.flush(number);
                    if self.real.chance(0.2) {
                        let mut at = self.ranks[number].now;
                        // A guess of the emulator may be too late, which changes results.
                        if self.goes_outside {
                            at += span(&mut self.real, 20_000);
                        }
                        let passes_arrivals = self.goes_outside && self.real.chance(0.3);
                        self.coordinator.raise_bound(number as u32, at, passes_arrivals);
                    }
                }
            }
            State::Waiting(wait) => {
                self.flush(number);
                self.coordinator.note_wait(number as u32, wait);
            }
            State::Ended => {
                self.flush(number);
                self.coordinator.set_absent(number as u32, Activity::Ended);
            }
        }
    }

    fn activity(&self, number: usize) -> Activity {
        self.coordinator.processes[number].activity
    }

    /// Lets the network and processes go on. Returns whether any process did.
    fn go_on(&mut self) -> bool {
        loop {
            let next = self.changes.front().copied();
            let limit = next.map(|(at, _)| self.coordinator.limit_before(at));
            let (ranks, deliveries) = (&mut self.ranks, &mut self.deliveries);
            self.coordinator.run(&mut self.emulation, limit, &mut |at, delivery: &Delivery<'_>| {
                let id = delivery.payload.first_chunk().map(|id| u64::from_le_bytes(*id));
                let id = id.expect("trimmed packets keep it");
                let rank = &mut ranks[delivery.tag as usize];
                assert!(at >= rank.horizon, "a packet came after its horizon: {at:?}");
                assert!(at >= rank.arrived, "time went back for a process");
                rank.arrived = at;
                deliveries.push((at, rank.number, id));
                let to = rank.number;
                rank.mailbox.push_back(Packet { at, to, id, len: 0 });
                (rank.state != State::Ended).then_some(to)
            });
            if let (Some((at, failure)), Some(limit)) = (next, limit)
                && self.coordinator.has_reached(limit, &self.emulation)
            {
                let at = Picos::from_span(at.since(ORIGIN));
                self.emulation.advance_to(at);
                self.emulation.fail(at, failure);
                self.changes.pop_front();
                continue;
            }
            let outside = self.coordinator.processes.iter();
            let outside = outside.filter(|p| p.activity == Activity::Outside).count() > 0;
            let latest = self.latest;
            let pace = outside.then_some(Pace { latest, for_all: true });
            // At least one process must run, or the history could not end.
            let max_running =
                if self.real.chance(0.3) { usize::MAX } else { 1 + self.real.below(4) as usize };
            let (woken, held) = self.coordinator.wake(limit, pace, max_running);
            for &(number, resume) in &woken {
                self.ranks[number as usize].resume(resume);
            }
            if let (true, Some(held)) = (woken.is_empty(), held) {
                self.latest = held;
                continue;
            }
            return !woken.is_empty();
        }
    }

    /// Plays the history to its end.
    fn play(&mut self) {
        while !self.coordinator.is_started() {
            let number = self.real.below(self.ranks.len() as u32) as usize;
            if let Activity::Running(_) = self.activity(number) {
                // A process sends nothing before the job begins, and waits for that.
                self.ranks[number].ask(ORIGIN, WaitReason::Idle);
                self.serve(number);
            }
            let waits = |p: &super::Process| matches!(p.activity, Activity::Waiting(_));
            if self.coordinator.processes.iter().all(waits) {
                self.coordinator.start();
            }
        }
        let mut idle = 0;
        loop {
            let can_act: Vec<usize> = (0..self.ranks.len())
                .filter(|number| {
                    matches!(self.activity(*number), Activity::Running(_) | Activity::Outside)
                })
                .collect();
            if self.coordinator.processes.iter().all(|p| p.activity == Activity::Ended) {
                break;
            }
            if can_act.is_empty() || self.real.chance(0.3) {
                let went_on = self.go_on();
                assert!(went_on || !can_act.is_empty(), "nobody can go on");
            }
            if !can_act.is_empty() {
                let number = can_act[self.real.below(can_act.len() as u32) as usize];
                let running = matches!(self.activity(number), Activity::Running(_));
                if self.goes_outside && running && self.real.chance(0.02) {
                    self.coordinator.set_absent(number as u32, Activity::Outside);
                } else if running || self.real.chance(0.1) {
                    self.serve(number);
                }
            }
            idle += 1;
            assert!(idle < 1_000_000, "the history does not end");
        }
        self.go_on();
        assert!(self.emulation.is_empty(), "packets stay in the network");
    }

    fn check_end(&self) {
        let totals = self.emulation.network().totals();
        let lost = totals.data.total() + totals.control.total();
        assert_eq!(self.entered, self.deliveries.len() as u64 + lost, "sent, and arrived or lost");
        let mut ids: Vec<u64> = self.deliveries.iter().map(|(.., id)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), self.deliveries.len(), "a packet arrived twice");
        assert_eq!(self.coordinator.deliveries, self.deliveries.len() as u64);
        for rank in &self.ranks {
            let left = rank.mailbox.iter().map(|packet| packet.id);
            let all: Vec<u64> = rank.received.iter().map(|(_, id)| *id).chain(left).collect();
            let arrived = self.deliveries.iter().filter(|(_, to, _)| *to == rank.number);
            assert!(all.into_iter().eq(arrived.map(|(.., id)| *id)), "a packet was not received");
        }
    }
}

/// Plays a history in two orders of real time, and compares them if no process goes outside.
fn play(seed: u64) {
    let [one, other] = [1, 2].map(|order| {
        let mut world = World::new(seed, seed << 2 | order);
        world.play();
        world.check_end();
        world
    });
    if one.goes_outside {
        return;
    }
    let parted = one.deliveries.iter().zip(&other.deliveries).find(|(a, b)| a != b);
    assert_eq!(parted, None, "deliveries of two orders");
    assert_eq!(one.deliveries.len(), other.deliveries.len());
    assert_eq!(one.coordinator.hash(), other.coordinator.hash());
    for (a, b) in one.ranks.iter().zip(&other.ranks) {
        assert_eq!((a.now, &a.received), (b.now, &b.received), "process {}", a.number);
    }
}

/// Returns a number that the environment gives.
#[allow(clippy::disallowed_methods)] // which history to see is not a parameter of the provider
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[test]
fn histories_keep_all_promises_and_do_not_depend_on_real_time() {
    let first = number("SQUALL_SEED");
    let seeds = number("SQUALL_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(0);
    let last = first.saturating_add(seeds);
    let next = AtomicU64::new(first);
    let broken = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    if catch_unwind(AssertUnwindSafe(|| play(seed))).is_err() {
                        broken.lock().expect("whole").push(seed);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("whole");
    assert!(broken.is_empty(), "SQUALL_SEED of histories that fail: {broken:?}");
}
