//! An exhaustive search for attacks on the handshake.
//!
//! Honest endpoints, which are real engines, begin handshakes. An attacker without the key delivers
//! any packet that it knows to any of them, from any address, in any order and any number of times.
//! The attacker also changes and forges packets. The search visits every state that so many packets can lead
//! to, and checks these goals in each:
//!
//! - Where a key is set, nobody without it is verified.
//! - Who is verified at an address is there. Without a key, this holds for attackers off the path.
//! - Between endpoints that encrypt, no packet of an attacker ends an established pair. In the clear,
//!   none of an attacker off the path does.
//! - What is sealed was sealed by the peer: a responder shares a secret only with the endpoint that the
//!   proofs name, and two ends that have talked can go on.
//!
//! How it works:
//!
//! - An endpoint is a function of what it has received. So each of its states is kept as a list of
//!   inputs, and is computed again by playing them. States whose handshakes and peers are equal count
//!   as one.
//! - A packet that an endpoint answers without a change of its state costs the attacker nothing. The
//!   attacker has all such answers at once.
//! - A packet that the network drops is one that the attacker never delivers.
//! - No proof can be computed without the key. The attacker puts the proofs that it knows into other
//!   packets, but changes no bits of them.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::world::*;
use squall_base::{Instance, JobKey, Span};
use squall_engine::*;
use squall_seal::{ICV_LEN, OuterHeader};
use squall_wire::{Handshake, Packet, Reason, Stage, Tss, WIRE_VERSION, parse};

/// An address of the attacker, where no host of the test's network is.
const ATTACKER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), 4000);
/// The instance and the nonce of the attacker's own questions, and a cookie that no host has issued.
const OWN_INSTANCE: u32 = 0xa77a;
const OWN_NONCE: u64 = 0xa77a_c4e2;
const NO_COOKIE: u64 = 0xbad;
/// Context of an operation that is addressed to the attacker.
const TO_ATTACKER: u64 = 9;
/// Inputs after which an engine is built anew, so that the limit of answers is never reached.
const TRIALS: usize = 2000;

/// The endpoints of a search, and their first steps.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    hosts: usize,
    /// The keys of the hosts; 0 for none.
    keys: [u8; 3],
    encrypts: bool,
    /// The attacker reads all packets. Otherwise it reads those that are sent to its address.
    on_path: bool,
    begin: fn(&mut World),
    /// Hosts 0 and 1 have talked, and must be able to go on.
    established: bool,
}

/// Hosts 0 and 1 send to each other.
fn two_questions(w: &mut World) {
    for (from, to) in [(0, 1), (1, 0)] {
        let to = w.hosts[to].addr;
        send(w, from, to);
    }
}

/// Hosts 0 and 1 send to each other, and host 0 sends to the attacker's address.
fn first_contact(w: &mut World) {
    two_questions(w);
    send(w, 0, ATTACKER);
}

/// Host 0 sends to host 1 alone.
fn one_question(w: &mut World) {
    let to = w.hosts[1].addr;
    send(w, 0, to);
}

/// Host 2, which has no key or another one, sends to the others, which send to each other.
fn outsider(w: &mut World) {
    for (from, to) in [(0, 1), (2, 0), (2, 1)] {
        let to = w.hosts[to].addr;
        send(w, from, to);
    }
}

/// Host 0 has sent a message to host 1, and sends to the attacker's address.
fn established(w: &mut World) {
    w.faults.drop = 0.0;
    let to = w.hosts[1].addr;
    send(w, 0, to);
    assert!(w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty()));
    w.faults.drop = 1.0;
    send(w, 0, ATTACKER);
}

/// Host 0 has sent a message to host 1, and repeats the handshake because the next one has no
/// answer.
fn renewal(w: &mut World) {
    w.faults.drop = 0.0;
    let to = w.hosts[1].addr;
    send(w, 0, to);
    assert!(w.run(Span::secs(1), |w| !w.hosts[0].done.is_empty()));
    w.faults.drop = 1.0;
    send(w, 0, to);
    let is_question =
        |seen: &Seen| handshake(&seen.bytes).is_some_and(|it| it.stage == Stage::Hello);
    let asked = |w: &World| w.tap.iter().flatten().filter(|seen| is_question(seen)).count() == 2;
    assert!(w.run(Span::secs(5), asked));
}

/// Begins as [`renewal`], but the user has named the instance of host 1.
fn named_renewal(w: &mut World) {
    let (addr, instance) = (w.hosts[1].addr, w.hosts[1].engine.shm().instance());
    w.hosts[0].engine.peer_at(addr, Some(instance));
    renewal(w);
}

const SCENARIOS: [Scenario; 8] = {
    let base = Scenario {
        name: "",
        hosts: 2,
        keys: [7, 7, 7],
        encrypts: false,
        on_path: true,
        begin: one_question,
        established: false,
    };
    [
        Scenario { name: "off the path", on_path: false, begin: first_contact, ..base },
        Scenario { name: "on the path", begin: two_questions, ..base },
        Scenario { name: "a third host", hosts: 3, encrypts: true, ..base },
        Scenario {
            name: "a host without a key",
            hosts: 3,
            keys: [7, 7, 0],
            begin: outsider,
            ..base
        },
        Scenario {
            name: "a host with another key",
            hosts: 3,
            keys: [7, 7, 8],
            begin: outsider,
            ..base
        },
        Scenario { name: "renewal", encrypts: true, begin: renewal, established: true, ..base },
        Scenario {
            name: "named renewal",
            encrypts: true,
            begin: named_renewal,
            established: true,
            ..base
        },
        Scenario {
            name: "no key, off the path",
            keys: [0; 3],
            on_path: false,
            begin: established,
            established: true,
            ..base
        },
    ]
};

fn send(w: &mut World, from: usize, to: SocketAddr) {
    let peer = w.hosts[from].engine.peer(to);
    let base = w.hosts[from].memory.put(b"payload");
    let op = Operation {
        peer,
        action: Action::Message { space: MatchSpace::Tagged, tag: 5 },
        buf: Buf::new(base, 7),
        data: None,
        // The attacker may let operations fail that are addressed to it.
        context: if to == ATTACKER { TO_ATTACKER } else { 5 },
        options: Options { level: Level::Transmit, ..Options::default() },
    };
    w.submit(from, op).unwrap();
}

fn handshake(bytes: &[u8]) -> Option<Handshake> {
    match parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
        _ => None,
    }
}

impl Scenario {
    /// Builds the hosts and lets them begin. Nothing that they send arrives.
    fn world(&self) -> World {
        let mut w = World::with(self.hosts, 1, Faults::default(), |config, _| {
            let key = self.keys[usize::from(config.port - 5000)];
            config.key = (key > 0).then(|| JobKey::new(&[key; 16]));
            config.encrypts = self.encrypts && key > 0;
        });
        if self.encrypts {
            w.seal_packets();
        }
        w.tap = Some(vec![]);
        w.faults.drop = 1.0;
        (self.begin)(&mut w);
        (0..self.hosts).for_each(|n| w.transmit_once(n));
        w
    }
}

/// A handshake packet, and the endpoint from whose address it comes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Message {
    from: SocketAddr,
    to: SocketAddr,
    packet: Handshake,
}

/// An event that an endpoint handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Input {
    Message(Message),
    /// The endpoint's next timer.
    Timer,
}

type StateId = usize;

/// A state of one endpoint.
struct State {
    host: usize,
    inputs: Vec<Input>,
    /// Peers that the endpoint has verified.
    verified: Vec<(SocketAddr, Instance)>,
    /// An operation has failed.
    failed: bool,
    /// The secrets that the endpoint has derived: the peer's address, whether this endpoint asked,
    /// and the secret.
    secrets: Vec<(SocketAddr, bool, [u8; 32])>,
}

/// The effect of an input on an endpoint.
#[derive(Clone)]
struct Effect {
    next: StateId,
    sent: Rc<[MessageId]>,
}

/// The endpoint that was computed last.
struct Live {
    state: StateId,
    world: World,
    trials: usize,
    /// The endpoint has sent packets since it was built, so its generator of random numbers is not
    /// where it was.
    sent: bool,
}

struct Search {
    scenario: Scenario,
    addrs: Vec<SocketAddr>,
    instances: Vec<Instance>,
    states: Vec<State>,
    /// States by host and content.
    known: HashMap<(usize, String), StateId>,
    messages: Messages,
    /// The packets that the attacker makes of a packet that it knows, or of two.
    derived: HashMap<(MessageId, MessageId), Rc<[MessageId]>>,
    effects: HashMap<(StateId, Option<MessageId>), Effect>,
    /// Whether what one state seals is opened in another.
    talks: HashMap<(StateId, StateId), bool>,
    live: Option<Live>,
    timers: usize,
}

/// Endpoints and knowledge of the attacker.
#[derive(Clone)]
struct Situation {
    states: Vec<StateId>,
    /// Packets that the attacker knows.
    read: BTreeSet<MessageId>,
    /// Packets that it cannot read, and that the network may deliver.
    unread: BTreeSet<MessageId>,
    trace: Vec<Input>,
}

/// Number of a packet in [`Messages`].
type MessageId = u32;

/// All packets, each with a number.
#[derive(Default)]
struct Messages {
    all: Vec<Message>,
    numbers: HashMap<Message, MessageId>,
}

impl Messages {
    fn number(&mut self, message: Message) -> MessageId {
        *self.numbers.entry(message).or_insert_with(|| {
            self.all.push(message);
            self.all.len() as MessageId - 1
        })
    }
}

impl Search {
    fn new(scenario: Scenario, timers: usize) -> Self {
        let mut w = scenario.world();
        Self {
            scenario,
            addrs: w.hosts.iter().map(|host| host.addr).collect(),
            instances: w.hosts.iter_mut().map(|host| host.engine.shm().instance()).collect(),
            states: vec![],
            known: HashMap::new(),
            messages: Messages::default(),
            derived: HashMap::new(),
            effects: HashMap::new(),
            talks: HashMap::new(),
            live: None,
            timers,
        }
    }

    /// Computes an endpoint again.
    fn build(&self, host: usize, inputs: &[Input]) -> World {
        let mut w = self.scenario.world();
        inputs.iter().for_each(|input| feed(&mut w, host, input));
        w
    }

    /// Returns the state that `inputs` lead to.
    fn intern(&mut self, host: usize, inputs: Vec<Input>, w: &mut World) -> StateId {
        let content = content(w, host);
        if let Some(state) = self.known.get(&(host, content.clone())) {
            return *state;
        }
        let mut peers = self.addrs.clone();
        peers.push(ATTACKER);
        let mut instances = self.instances.clone();
        instances.extend(Instance::new(OWN_INSTANCE));
        let found = &mut w.hosts[host];
        let mut verified = vec![];
        for peer in peers {
            for instance in &instances {
                if found.engine.shm().find_verified_peer(peer, *instance).is_some() {
                    verified.push((peer, *instance));
                }
            }
        }
        let secrets = found.keys.iter().flat_map(|keys| &keys.shared);
        let secrets = secrets.map(|it| (it.peer, it.asked, *it.secret.expose())).collect();
        let failed = has_failed(found);
        self.states.push(State { host, inputs, verified, failed, secrets });
        self.known.insert((host, content), self.states.len() - 1);
        self.states.len() - 1
    }

    /// Returns what a packet, or a timer, does in a state.
    fn effect(&mut self, state: StateId, message: Option<MessageId>) -> Effect {
        if let Some(effect) = self.effects.get(&(state, message)) {
            return effect.clone();
        }
        let input = self.input(message);
        let host = self.states[state].host;
        let mut live = match self.live.take() {
            Some(live) if live.state == state && live.trials < TRIALS => live,
            _ => self.fresh(state),
        };
        let before = content(&mut live.world, host);
        let (effect, live) = loop {
            live.world.tap = Some(vec![]);
            feed(&mut live.world, host, &input);
            let sent = self.sent(&mut live.world);
            live.trials += 1;
            if content(&mut live.world, host) == before {
                live.sent |= !sent.is_empty();
                break (Effect { next: state, sent }, Some(live));
            }
            if live.sent {
                live = self.fresh(state);
                continue;
            }
            let mut inputs = self.states[state].inputs.clone();
            inputs.push(input);
            let next = self.intern(host, inputs, &mut live.world);
            break (Effect { next, sent }, None);
        };
        self.live = live;
        self.effects.insert((state, message), effect.clone());
        effect
    }

    fn input(&self, message: Option<MessageId>) -> Input {
        message.map_or(Input::Timer, |number| Input::Message(self.messages.all[number as usize]))
    }

    fn fresh(&self, state: StateId) -> Live {
        let world = self.build(self.states[state].host, &self.states[state].inputs);
        Live { state, world, trials: 0, sent: false }
    }

    /// Returns the handshake packets that were sent.
    fn sent(&mut self, w: &mut World) -> Rc<[MessageId]> {
        let seen = w.tap.take().unwrap_or_default();
        let Self { addrs, messages, .. } = self;
        let sent = seen.iter().filter_map(|seen| {
            let from = *addrs.iter().find(|addr| addr.ip() == seen.src.ip())?;
            let packet = handshake(&seen.bytes)?;
            Some(messages.number(Message { from, to: seen.dst, packet }))
        });
        sent.collect()
    }

    /// Returns what the attacker makes of two packets that it knows, or of one if they are the same.
    fn derive(&mut self, one: MessageId, other: MessageId) -> Rc<[MessageId]> {
        if let Some(known) = self.derived.get(&(one, other)) {
            return known.clone();
        }
        let mut sources = self.addrs.clone();
        sources.push(ATTACKER);
        let mut all = vec![];
        let mut put = |from: SocketAddr, to: SocketAddr, packet: Handshake| {
            let packet = Handshake { port: from.port(), ..packet };
            if self.addrs.contains(&to) {
                all.push(Message { from, to, packet });
            }
        };
        let [Message { from, to, packet }, Message { packet: second, .. }] =
            [one, other].map(|number| self.messages.all[number as usize]);
        let is_question = matches!(packet.stage, Stage::Hello | Stage::Confirm);
        if one == other {
            for source in &sources {
                self.addrs.iter().for_each(|addr| put(*source, *addr, packet));
            }
            if is_question {
                for forged in answers(&packet, &self.instances) {
                    put(to, from, forged);
                }
                for changed in changes(&packet) {
                    for source in [from, ATTACKER] {
                        self.addrs.iter().for_each(|addr| put(source, *addr, changed));
                    }
                }
            }
        } else if packet.nonce == second.nonce && second.proof != [0; 16] && is_question {
            for forged in answers(&packet, &[]) {
                let Handshake { instance, proof, .. } = second;
                for cookie in [packet.cookie, second.cookie] {
                    put(to, from, Handshake { instance, cookie, proof, ..forged });
                }
            }
        }
        if packet.stage == Stage::Challenge && packet.nonce == second.nonce {
            for proof in [second.proof, [0; 16]] {
                let (instance, expected) = (packet.expected, packet.instance);
                let stage = Stage::Confirm;
                put(to, from, Handshake { stage, instance, expected, proof, ..packet });
            }
        }
        // The goals do not protect a host with another key, or without one among those with one, so
        // the attacker forges nothing for it.
        let keys = self.scenario.keys;
        let is_open =
            |to| (0..self.addrs.len()).any(|at| self.addrs[at] == to && keys[at] != keys[0]);
        let original = self.messages.all[one as usize];
        all.retain(|it| *it == original || !is_open(it.to));
        let numbers: Rc<[MessageId]> =
            all.into_iter().map(|message| self.messages.number(message)).collect();
        self.derived.insert((one, other), numbers.clone());
        numbers
    }

    /// Returns the attacker's own question to each host.
    fn own_questions(&mut self) -> Vec<MessageId> {
        let capabilities = if self.scenario.encrypts { Handshake::ENCRYPTS } else { 0 };
        let packet = Handshake {
            stage: Stage::Hello,
            version: WIRE_VERSION,
            port: ATTACKER.port(),
            reason: Reason::None,
            nonce: OWN_NONCE,
            instance: OWN_INSTANCE,
            expected: 0,
            cookie: 0,
            job_id: 1,
            capabilities,
            proof: [0; 16],
        };
        let Self { addrs, messages, .. } = self;
        addrs
            .iter()
            .map(|to| messages.number(Message { from: ATTACKER, to: *to, packet }))
            .collect()
    }

    /// Adds to the attacker's knowledge what it learns without changing an endpoint, and returns the
    /// situations that follow from the other packets.
    fn expand(&mut self, mut now: Situation) -> Vec<Situation> {
        let mut tried: HashSet<MessageId> = HashSet::new();
        let mut changing: Vec<(usize, Option<MessageId>, Effect)> = vec![];
        let mut used: Vec<MessageId> = vec![];
        loop {
            let mut fresh: Vec<MessageId> = now.unread.iter().copied().collect();
            let new: Vec<MessageId> =
                now.read.iter().copied().filter(|number| !used.contains(number)).collect();
            for number in new {
                used.push(number);
                for known in used.clone() {
                    fresh.extend(self.derive(number, known).iter());
                    fresh.extend(self.derive(known, number).iter());
                }
            }
            fresh.retain(|number| tried.insert(*number));
            if fresh.is_empty() {
                break;
            }
            fresh.sort_by_key(|number| self.messages.all[*number as usize].to);
            for number in fresh {
                let to = self.messages.all[number as usize].to;
                let at = self.addrs.iter().position(|addr| *addr == to).expect("a host");
                let effect = self.effect(now.states[at], Some(number));
                if effect.next == now.states[at] {
                    self.learn(&mut now, &effect.sent);
                } else {
                    changing.push((at, Some(number), effect));
                }
            }
        }
        for at in 0..self.addrs.len() {
            let timers = self.states[now.states[at]].inputs.iter();
            if timers.filter(|input| **input == Input::Timer).count() < self.timers {
                let effect = self.effect(now.states[at], None);
                changing.push((at, None, effect));
            }
        }
        let next = changing.into_iter().map(|(at, message, effect)| {
            let mut next = now.clone();
            next.states[at] = effect.next;
            next.trace.push(self.input(message));
            self.learn(&mut next, &effect.sent);
            next
        });
        next.collect()
    }

    fn learn(&self, now: &mut Situation, sent: &[MessageId]) {
        for number in sent {
            let to = self.messages.all[*number as usize].to;
            if self.scenario.on_path || to == ATTACKER {
                now.read.insert(*number);
            } else {
                now.unread.insert(*number);
            }
        }
    }

    /// Checks the goals of the handshake.
    fn check(&mut self, now: &Situation) -> Result<(), String> {
        let keys = self.scenario.keys;
        for &state in &now.states {
            let State { host, verified, failed, .. } = &self.states[state];
            // Without a key, an attacker on the path receives at any address.
            let trusts = keys[*host] != 0 || !self.scenario.on_path;
            for &(addr, instance) in verified.iter().filter(|_| trusts) {
                let there = self.addrs.iter().position(|it| *it == addr);
                let there = there.filter(|at| self.instances[*at] == instance);
                match there {
                    Some(at) if keys[*host] != 0 && keys[at] != keys[*host] => {
                        return Err(format!("host {host} has verified host {at}, without the key"));
                    }
                    None if keys[*host] != 0 || addr != ATTACKER => {
                        return Err(format!("host {host} has verified {instance} at {addr}"));
                    }
                    _ => {}
                }
            }
            if self.scenario.established && *host < 2 {
                let other = (self.addrs[1 - host], self.instances[1 - host]);
                if *failed || !verified.contains(&other) {
                    return Err(format!("the established pair has ended at host {host}"));
                }
            }
        }
        // A peer that confirmed a handshake has derived the same secret.
        for &state in &now.states {
            let State { host, secrets, .. } = &self.states[state];
            for (peer, _, secret) in secrets.iter().filter(|(_, asked, _)| !asked) {
                let at = self.addrs.iter().position(|addr| addr == peer);
                let theirs = at.map(|at| &self.states[now.states[at]].secrets);
                let same = (self.addrs[*host], true, *secret);
                if !theirs.is_some_and(|theirs| theirs.contains(&same)) {
                    return Err(format!("host {host} shares a secret with nobody at {peer}"));
                }
            }
        }
        if self.scenario.established && self.scenario.encrypts {
            for (from, to) in [(0, 1), (1, 0)] {
                if !self.can_talk(now.states[from], now.states[to]) {
                    return Err(format!("host {to} cannot open what host {from} seals"));
                }
            }
        }
        Ok(())
    }

    /// Returns whether an endpoint opens what another one seals for it.
    fn can_talk(&mut self, from: StateId, to: StateId) -> bool {
        if let Some(talks) = self.talks.get(&(from, to)) {
            return *talks;
        }
        let mut worlds =
            [from, to].map(|id| self.build(self.states[id].host, &self.states[id].inputs));
        let [source, destination] = [from, to].map(|id| self.addrs[self.states[id].host]);
        let outer = OuterHeader { source, destination };
        let mut probe = [&[0; Tss::LEN_SSI][..], b"probe", &[0; ICV_LEN]].concat();
        let [sender, receiver] = [from, to].map(|id| self.states[id].host);
        let sender = worlds[0].hosts[sender].keys.as_mut().expect("the host encrypts");
        let sealed = sender.ring.seal(&outer, &mut probe).is_ok();
        let receiver = worlds[1].hosts[receiver].keys.as_mut().expect("the host encrypts");
        let talks = sealed && receiver.ring.open(&outer, &mut probe, &mut vec![]).is_ok();
        self.talks.insert((from, to), talks);
        talks
    }

    /// Visits all situations of at most `depth` packets and timers that change an endpoint, those of
    /// fewer packets first, and no more than `most`. Returns how many it visited, and the number of
    /// packets up to which it has visited all.
    fn run(&mut self, depth: usize, most: usize) -> Result<(usize, usize), String> {
        let mut w = self.scenario.world();
        let states = (0..self.addrs.len()).map(|host| self.intern(host, vec![], &mut w)).collect();
        let (read, unread) = Default::default();
        let mut first = Situation { states, read, unread, trace: vec![] };
        let sent = self.sent(&mut w);
        self.learn(&mut first, &sent);
        for number in self.own_questions() {
            first.read.insert(number);
        }
        let mut visited: HashMap<Vec<StateId>, Vec<[BTreeSet<MessageId>; 2]>> = HashMap::new();
        let mut queue = VecDeque::from([first]);
        let mut count = 0;
        while let Some(now) = queue.pop_front() {
            // Who knows less can do less.
            let before = visited.entry(now.states.clone()).or_default();
            let covers = |[read, unread]: &[BTreeSet<MessageId>; 2]| {
                now.read.is_subset(read) && now.unread.is_subset(unread)
            };
            if before.iter().any(covers) {
                continue;
            }
            if count == most {
                return Ok((count, now.trace.len() - 1));
            }
            before.push([now.read.clone(), now.unread.clone()]);
            count += 1;
            self.check(&now).map_err(|goal| {
                let steps = now.trace.iter().map(|input| format!("\n  {input:?}"));
                format!("{}: {goal} after{}", self.scenario.name, steps.collect::<String>())
            })?;
            if now.trace.len() < depth {
                queue.extend(self.expand(now));
            }
        }
        Ok((count, depth))
    }
}

/// Delivers an input to a host and lets the host send.
fn feed(w: &mut World, host: usize, input: &Input) {
    match input {
        Input::Message(Message { from, to, packet }) => {
            let mut out = [0; Handshake::LEN];
            let len = packet.emit(&mut out);
            let src = SocketAddr::new(from.ip(), 40_000);
            w.inject(src, *to, PacketMarks::default(), &out[..len]);
        }
        Input::Timer => {
            let host = &mut w.hosts[host];
            if let Some(due) = host.engine.poll_timeout() {
                w.now = w.now.max(due);
                host.engine.handle_timeout(w.now);
            }
        }
    }
    w.transmit_once(host);
}

/// Returns what decides how a host reacts to handshake packets, and what the goals depend on.
fn content(w: &mut World, host: usize) -> String {
    let host = &mut w.hosts[host];
    let failed = has_failed(host);
    format!("{failed} {}", host.engine.handshake_state())
}

/// Returns whether an operation to another host has failed.
fn has_failed(host: &Host) -> bool {
    host.done.iter().any(|done| done.status.is_err() && done.context != TO_ATTACKER)
}

/// Returns answers without a proof to a question, of each of these instances and of the attacker's.
fn answers(question: &Handshake, instances: &[Instance]) -> Vec<Handshake> {
    let reasons = Reason::ALL.iter().map(|reason| (Stage::Refuse, *reason));
    let stages = [Stage::Challenge, Stage::Welcome].map(|stage| (stage, Reason::None));
    let mut all = vec![];
    for (stage, reason) in reasons.chain(stages) {
        let (expected, proof) = (question.instance, [0; 16]);
        let cookie = if stage == Stage::Challenge { NO_COOKIE } else { question.cookie };
        for instance in instances.iter().map(|it| it.get()).chain([OWN_INSTANCE]) {
            all.push(Handshake { stage, reason, instance, expected, cookie, proof, ..*question });
        }
    }
    all
}

/// Returns questions that differ from a known one in what has no proof.
fn changes(question: &Handshake) -> Vec<Handshake> {
    let stage = if question.stage == Stage::Hello { Stage::Confirm } else { Stage::Hello };
    vec![
        Handshake { capabilities: question.capabilities ^ Handshake::ENCRYPTS, ..*question },
        Handshake { job_id: question.job_id ^ 2, ..*question },
        Handshake { expected: question.instance, ..*question },
        Handshake { expected: 0, ..*question },
        Handshake { version: WIRE_VERSION - 1, ..*question },
        Handshake { cookie: NO_COOKIE, ..*question },
        Handshake { instance: OWN_INSTANCE, ..*question },
        Handshake { stage, ..*question },
    ]
}

/// Searches all scenarios up to so many packets, of which so many may be timers of each host, and so
/// many situations of each scenario.
fn search(depth: usize, timers: usize, most: usize) {
    for scenario in SCENARIOS {
        let mut search = Search::new(scenario, timers);
        let done = search.run(depth, most);
        let (count, complete) = done.unwrap_or_else(|attack| panic!("{attack}"));
        let (states, reactions) = (search.states.len(), search.effects.len());
        let extent = format!(
            "{}: {count} situations, all of {complete} packets; {states} states, {reactions} reactions",
            scenario.name
        );
        // The figures are for those who watch a search.
        let _ = writeln!(std::io::stderr(), "{extent}");
        assert!(complete > 0 && reactions > 100, "{extent}: too few");
    }
}

#[test]
fn no_attack_on_the_handshake_takes_few_packets() {
    search(2, 1, 60);
}

/// The search of all orders of eight packets takes minutes.
#[test]
#[ignore = "minutes; ci/nightly runs it"]
fn no_attack_on_the_handshake_takes_eight_packets() {
    search(8, 2, 6000);
}
