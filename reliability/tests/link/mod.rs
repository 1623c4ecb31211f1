//! Two endpoints joined by a link in virtual time that loses, duplicates, delays, trims and marks
//! packets. Every packet carries a number, by which deliveries to the engine's side are counted.

#![allow(dead_code)] // each test file uses a part of it

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use squall_reliability::base::{Psn, Rate, Rng, Span, Time};
use squall_reliability::cc::Hops;
use squall_reliability::{
    Arrival, Config, ControlOut, ControlPacket, Event, NewPacket, PdcFailure, PdcId, Pdcs, PeerKey,
    RxVerdict, SendError, TxGrant, cc, wire,
};

/// The number of paths of the test endpoints.
pub(crate) const PATHS: u16 = 16;

/// Returns a random half of the paths for each end.
pub(crate) fn half(rng: &mut Rng) -> [u16; 2] {
    [(); 2].map(|()| {
        let mut dead = 0u16;
        while dead.count_ones() < u32::from(PATHS) / 2 {
            dead |= 1 << rng.below(u32::from(PATHS));
        }
        dead
    })
}

/// The deadline that the tests assume.
pub(crate) const DEADLINE: Span = Span::secs(10);

/// Sets shorter deadlines than the default, so that tests are short.
fn impatient(config: Config) -> Config {
    Config { contact_deadline: DEADLINE, progress_deadline: DEADLINE, ..config }
}

/// Returns parameters with a fixed window of `window` bytes over oblivious paths.
pub(crate) fn fixed(window: u64, seed: u64) -> Config {
    let paths = cc::PathsConfig::oblivious(PATHS).unwrap();
    impatient(Config::new(4096, cc::SenderConfig::fixed(window), paths, seed))
}

/// Returns parameters with NSCC for a 10 Gb/s network of 20 us, over REPS.
pub(crate) fn nscc(seed: u64) -> Config {
    let cc = cc::NetworkProfile::new(Rate::gbps(10), Span::micros(20), 4096, true);
    let paths = cc::PathsConfig::reps(PATHS).unwrap();
    impatient(Config::new(4096, cc::SenderConfig::by_name("nscc", &cc).unwrap(), paths, seed))
}

/// Returns a network of 10 Gb/s and 20 us that trims.
pub(crate) fn network() -> cc::NetworkProfile {
    cc::NetworkProfile::new(Rate::gbps(10), Span::micros(20), 4096 + 48, true)
}

/// Returns parameters with both algorithms by name and all loss detectors.
pub(crate) fn named(sender: &str, paths: &str, seed: u64) -> Config {
    let sender = cc::SenderConfig::by_name(sender, &network()).unwrap();
    let paths = cc::PathsConfig::by_name(paths, PATHS).unwrap();
    impatient(Config::new(4096, sender, paths, seed).reciprocal(&network()))
}

/// The faults and delays of the link.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) mark: f64,
    pub(crate) trim: f64,
    /// Delay of every packet.
    pub(crate) delay: Span,
    /// Largest additional delay, drawn for each packet.
    pub(crate) jitter: Span,
    /// Data packets on this path are lost.
    pub(crate) black_hole: Option<u16>,
    /// Packets without data on this path are lost.
    pub(crate) control_black_hole: Option<u16>,
    /// For each end, a bit set of the paths on which its packets are lost.
    pub(crate) dead: [u16; 2],
    /// In the further sets of paths every other path is dead, not the same ones.
    pub(crate) detours: bool,
    /// Probability that the engine refuses a packet it could take.
    pub(crate) refuse: f64,
    /// All packets are lost.
    pub(crate) cut: bool,
    /// Packets that match this are lost.
    pub(crate) drop: Option<fn(&Wire) -> bool>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            mark: 0.0,
            trim: 0.0,
            delay: Span::micros(10),
            jitter: Span::ZERO,
            black_hole: None,
            control_black_hole: None,
            dead: [0; 2],
            detours: false,
            refuse: 0.0,
            cut: false,
            drop: None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Wire {
    Data { pds: wire::Request, number: u32, meta: Arrival },
    Control(ControlPacket),
}

/// One endpoint of the link.
pub(crate) struct Host {
    pub(crate) pdcs: Pdcs<u32>,
    /// The context on which packets are sent.
    pub(crate) id: Option<PdcId>,
    /// Numbers waiting to be sent, with lengths.
    pub(crate) backlog: VecDeque<(u32, u32)>,
    /// The deliveries of each number at this end.
    pub(crate) got: BTreeMap<u32, u32>,
    /// The fate of each number sent from this end.
    pub(crate) fates: BTreeMap<u32, SlotState>,
    pub(crate) failures: Vec<PdcFailure>,
    /// The reported waiting times of packets.
    pub(crate) reported_waits: Vec<Span>,
    pub(crate) closed: u32,
    /// Answers each forward packet with one of this length on the same context.
    pub(crate) echo: Option<u32>,
    /// Answers every nth packet with a response of its own.
    pub(crate) respond_each: Option<u32>,
    pub(crate) last_from: Option<PdcId>,
    pub(crate) prompt: bool,
    /// Sends packets in runs where possible.
    pub(crate) runs: bool,
    /// Packets that left in runs.
    pub(crate) in_runs: u32,
    /// Packets that ended runs.
    pub(crate) ends: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Acked,
    Responded(u16),
    Lost,
}

impl Host {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            pdcs: Pdcs::new(config),
            id: None,
            backlog: VecDeque::new(),
            got: BTreeMap::new(),
            fates: BTreeMap::new(),
            failures: Vec::new(),
            reported_waits: Vec::new(),
            closed: 0,
            echo: None,
            respond_each: None,
            last_from: None,
            prompt: true,
            runs: false,
            in_runs: 0,
            ends: 0,
        }
    }

    /// Returns the packet at the head of the backlog.
    fn next(&self) -> Option<NewPacket<u32>> {
        let &(desc, bytes) = self.backlog.front()?;
        let others = self.backlog.iter().skip(1);
        Some(NewPacket {
            desc,
            bytes,
            last: self.backlog.len() == 1,
            prompt: self.prompt,
            backlog: others.map(|packet| u64::from(packet.1)).sum(),
        })
    }

    /// Sends the packets that follow packet `number` of `bytes`, for which there is a `grant`, in
    /// its train. Returns them.
    fn follow(
        &mut self,
        (now, id): (Time, PdcId),
        grant: &TxGrant,
        (number, bytes): (u32, u32),
    ) -> Vec<(TxGrant, u32, u32)> {
        if !self.runs || !matches!(grant.pds.dest, wire::Dest::Pdc(_)) {
            return vec![];
        }
        let mut sent = vec![];
        // The last packet is not part of a run.
        let others = self.backlog.len().saturating_sub(1);
        let alike = self.backlog.iter().take(others).zip(number + 1..);
        let count = alike.take_while(|(next, n)| **next == (*n, bytes)).count() as u16;
        if count > 0 {
            let desc = |n| number + 1 + u32::from(n);
            let Some(run) = self.pdcs.send_run(id, now, (bytes, count), desc) else { return sent };
            self.in_runs += u32::from(run.count);
            self.backlog.drain(..usize::from(run.count));
            let single = |n: u16| {
                let psn = grant.psn.plus(n.into());
                let clear_psn_offset = grant.pds.clear_psn_offset - n.cast_signed();
                let pds = wire::Request { psn, clear_psn_offset, ..grant.pds };
                (TxGrant { psn, path: run.path, pds }, number + u32::from(n), bytes)
            };
            sent.extend((1..run.count).map(single));
            let stops = run.count < count || run.last.pds.ack_request;
            sent.push((run.last, number + u32::from(run.count), bytes));
            if stops {
                return sent;
            }
        }
        if let Some(packet) = self.next().filter(|packet| packet.desc < ECHO)
            && let Some(end) = self.pdcs.send_run_end(id, now, &packet)
        {
            self.ends += 1;
            self.backlog.pop_front();
            sent.push((end, packet.desc, packet.bytes));
        }
        sent
    }
}

#[derive(Clone, Debug)]
struct Flying {
    at: Time,
    order: u64,
    to: usize,
    packet: Wire,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Flying {}
impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flying {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The two ends, the link and the time.
pub(crate) struct World {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Time,
    pub(crate) faults: Faults,
    rng: Rng,
    flying: BinaryHeap<Flying>,
    order: u64,
    /// True when a packet may end only once. That does not hold with forged acknowledgements.
    pub(crate) strict: bool,
    /// The path of the newest data packet.
    pub(crate) last_path: u16,
    /// The path of each end's newest packet without data.
    pub(crate) last_control_path: [u16; 2],
    /// The trace of the packets that were sent, if a test needs it.
    pub(crate) trace: Option<Vec<(usize, Wire)>>,
}

/// The peer's key at both ends.
pub(crate) const PEER: PeerKey = PeerKey(0);

impl World {
    pub(crate) fn new(left: Config, right: Config, faults: Faults, seed: u64) -> Self {
        Self {
            hosts: [Host::new(left), Host::new(right)],
            now: Time::ZERO + Span::millis(1),
            faults,
            rng: Rng::new(seed),
            flying: BinaryHeap::new(),
            order: 0,
            strict: true,
            last_path: 0,
            last_control_path: [0; 2],
            trace: None,
        }
    }

    /// Queues packets `numbers` of `bytes` at `host`, opening a context if there is none.
    pub(crate) fn send(&mut self, host: usize, numbers: core::ops::Range<u32>, bytes: u32) {
        self.hosts[host].backlog.extend(numbers.map(|number| (number, bytes)));
        self.pump(host);
    }

    /// Runs until `until` or until no event is left. Returns whether none is left.
    pub(crate) fn run(&mut self, until: Time) -> bool {
        loop {
            let flight = self.flying.peek().map(|flying| flying.at);
            let timers = self.hosts.iter().filter_map(|host| host.pdcs.poll_timeout()).min();
            let next = match (flight, timers) {
                (None, None) => return true,
                (a, b) => a.unwrap_or(Time::NEVER).min(b.unwrap_or(Time::NEVER)),
            };
            if next > until {
                self.now = until;
                return false;
            }
            self.now = self.now.max(next);
            // Everything that arrives at this moment is one batch.
            while self.flying.peek().is_some_and(|flying| flying.at <= self.now) {
                let Flying { to, packet, .. } = self.flying.pop().unwrap();
                self.deliver(to, packet);
            }
            for host in 0..2 {
                self.hosts[host].pdcs.handle_timeout(self.now);
                self.pump(host);
            }
        }
    }

    /// Runs for `span`, or until the fate of every packet is known.
    pub(crate) fn settle(&mut self, span: Span) -> bool {
        let end = self.now + span;
        while self.now < end {
            if self.quiet() {
                return true;
            }
            let step = (self.now + Span::micros(50)).min(end);
            if self.run(step) {
                return self.quiet();
            }
        }
        self.quiet()
    }

    fn quiet(&self) -> bool {
        self.hosts.iter().all(|host| {
            let outstanding = [host.id, host.last_from]
                .into_iter()
                .flatten()
                .filter_map(|id| host.pdcs.info(id))
                .any(|info| info.outstanding > 0);
            host.backlog.is_empty() && !outstanding
        })
    }

    pub(crate) fn deliver(&mut self, to: usize, packet: Wire) {
        let (now, rng) = (self.now, &mut self.rng);
        let host = &mut self.hosts[to];
        match packet {
            Wire::Data { pds, number, meta } => {
                if let wire::Dest::Pdc(id) = pds.dest
                    && host.pdcs.find_context(id).map(|found| found.peer) != Some(PEER)
                {
                    if let Some(nack) = host.pdcs.reject(Some(PEER), &pds) {
                        self.launch(to, 0, Wire::Control(ControlPacket::Nack(nack)));
                    }
                    return;
                }
                if let RxVerdict::Deliver(delivery) = host.pdcs.rx_request(now, PEER, &pds, &meta) {
                    let (id, forward) = (delivery.id(), delivery.is_forward());
                    if rng.chance(self.faults.refuse) {
                        host.pdcs.refuse(now, delivery, wire::NackCode::NoSesMsgAvail);
                        return;
                    }
                    let response = host
                        .respond_each
                        .filter(|each| number.is_multiple_of(*each))
                        .map(|_| response(number));
                    host.pdcs.accept(now, delivery, response);
                    *host.got.entry(number).or_default() += 1;
                    if forward {
                        host.last_from = Some(id);
                        if let Some(bytes) = host.echo {
                            host.backlog.push_back((number + ECHO, bytes));
                        }
                    }
                }
            }
            Wire::Control(ControlPacket::Ack { pds, response }) => {
                host.pdcs.rx_ack(now, PEER, &pds, response.as_ref(), Hops::NONE);
            }
            Wire::Control(ControlPacket::Nack(nack)) => {
                host.pdcs.rx_nack(now, PEER, &nack);
            }
            Wire::Control(ControlPacket::Control(control)) => {
                host.pdcs.rx_control(now, PEER, &control);
            }
        }
    }

    /// Does the work of the engine: events, retransmissions, new packets, control packets.
    pub(crate) fn pump(&mut self, from: usize) {
        let now = self.now;
        loop {
            let host = &mut self.hosts[from];
            while let Some(event) = host.pdcs.poll_event() {
                host.on_event(event, self.strict);
            }
            let mut sent = Vec::new();
            for id in [host.id, host.last_from].into_iter().flatten() {
                while let Some((grant, number)) = host.pdcs.poll_retransmit(now, id) {
                    sent.push((grant, number, 4096));
                }
            }
            while let Some(packet) = host.next() {
                let (number, bytes) = (packet.desc, packet.bytes);
                let id = if number >= ECHO { host.last_from } else { host.id };
                let id = match id {
                    Some(id) => id,
                    None if number >= ECHO => break,
                    None => *host.id.insert(host.pdcs.open(now, PEER).unwrap()),
                };
                match host.pdcs.next_packet(now, id, &packet) {
                    Ok(grant) => {
                        host.backlog.pop_front();
                        let run = host.follow((now, id), &grant, (number, bytes));
                        sent.push((grant, number, bytes));
                        sent.extend(run);
                    }
                    Err(SendError::Closing | SendError::Gone) if number < ECHO => {
                        host.id = host.pdcs.open(now, PEER);
                    }
                    Err(SendError::Gone) => {
                        host.backlog.pop_front();
                    }
                    Err(_) => break,
                }
            }
            let idle = sent.is_empty();
            for (grant, number, bytes) in sent {
                self.launch_data(from, &grant, number, bytes);
            }
            while let Some(ControlOut { path, packet, .. }) =
                self.hosts[from].pdcs.poll_control(now)
            {
                self.launch(from, path, Wire::Control(packet));
            }
            if idle {
                return;
            }
        }
    }

    fn launch_data(&mut self, from: usize, grant: &TxGrant, number: u32, bytes: u32) {
        assert_eq!(grant.psn, grant.pds.psn);
        let meta = Arrival {
            ce: self.rng.chance(self.faults.mark),
            trimmed: self.rng.chance(self.faults.trim),
            last_hop: false,
            bytes,
            ..Arrival::default()
        };
        self.last_path = grant.path;
        if self.faults.black_hole == Some(grant.path) {
            return;
        }
        self.launch(from, grant.path, Wire::Data { pds: grant.pds, number, meta });
    }

    fn launch(&mut self, from: usize, path: u16, packet: Wire) {
        if let Some(trace) = &mut self.trace {
            trace.push((from, packet));
        }
        if let Wire::Control(_) = packet {
            self.last_control_path[from] = path;
            if self.faults.control_black_hole == Some(path) {
                return;
            }
        }
        let dead = if path < PATHS || !self.faults.detours {
            self.faults.dead[from] & (1 << (path % PATHS)) != 0
        } else {
            path % 2 == 1
        };
        if dead {
            return;
        }
        if self.faults.cut || self.faults.drop.is_some_and(|drop| drop(&packet)) {
            return;
        }
        let copies = 1 + u32::from(self.rng.chance(self.faults.duplicate));
        for _ in 0..copies {
            if self.rng.chance(self.faults.loss) {
                continue;
            }
            let jitter = u64::from(self.rng.below(u32::try_from(self.faults.jitter.0).unwrap()));
            self.order += 1;
            let at = self.now + self.faults.delay + Span(jitter);
            self.flying.push(Flying { at, order: self.order, to: 1 - from, packet });
        }
    }

    /// Drops all packets in flight.
    pub(crate) fn drop_flying(&mut self) {
        self.flying.clear();
    }

    /// Returns the bytes that the congestion control of `host` has in flight.
    pub(crate) fn total_in_flight(&self, host: usize) -> u64 {
        let host = &self.hosts[host];
        host.id.and_then(|id| host.pdcs.info(id)).map_or(0, |info| info.in_flight)
    }
}

/// The offset that an echo adds to a packet's number.
pub(crate) const ECHO: u32 = 1_000_000;

impl Host {
    fn on_event(&mut self, event: Event<u32>, strict: bool) {
        match event {
            Event::Acked { desc, count, .. } => {
                for number in desc..desc + u32::from(count) {
                    self.fate(number, SlotState::Acked, strict);
                }
            }
            Event::Responded { desc, response, .. } => {
                self.fate(desc, SlotState::Responded(response.message_id), strict);
            }
            Event::Lost { desc, .. } => self.fate(desc, SlotState::Lost, strict),
            Event::Failed { id, why, .. } => {
                self.failures.push(why);
                if self.id == Some(id) {
                    self.id = None;
                }
            }
            Event::Closed { id, .. } => {
                self.closed += 1;
                if self.id == Some(id) {
                    self.id = None;
                }
            }
            Event::Waits { waited, .. } => self.reported_waits.push(waited),
            Event::Ready { .. }
            | Event::OtherMode { .. }
            | Event::Unknown { .. }
            | Event::Stuck { .. } => {}
        }
    }

    fn fate(&mut self, number: u32, fate: SlotState, strict: bool) {
        let before = self.fates.insert(number, fate);
        assert!(!strict || before.is_none(), "packet {number} ended twice");
    }
}

/// Returns the response to packet `number`.
pub(crate) fn response(number: u32) -> wire::Response {
    wire::Response {
        list: wire::List::Expected,
        opcode: wire::ResponseOpcode::Response,
        return_code: wire::ReturnCode::NoMatch,
        message_id: (number & 0xffff) as u16,
        ri_generation: 0,
        job_id: 0,
        modified_length: 0,
    }
}

/// A PSN for tests.
pub(crate) const fn psn(n: u32) -> Psn {
    Psn(n)
}
