//! The pairs of network cards that carry packets to each peer: how they are found, watched and left.
//!
//! The table sends nothing itself. [`RailTable::handle_packet`] and [`RailTable::tick`] queue
//! packets, which the port takes by [`RailTable::pop_packet`].

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use squall_wire::{MAX_RAILS, RailList, RailPacket, RailStage};

use crate::base::{JobKey, Proof, Purpose, SecretRng, Span, Time};

/// Number of entries of the table that maps a path to a pair of cards. A multiple of the usual
/// numbers of paths, so that all entries are used equally.
const SLOTS: usize = 64;
/// Wait for the answer to the first question of a kind. It doubles with each repetition.
pub(super) const FIRST_WAIT: Span = Span::millis(5);
/// Longest wait between two questions to a peer that never answered one, as a peer without rails.
const LONGEST_WAIT: Span = Span::secs(8);
/// Longest wait between two probes of a pair of cards. The first ones follow each other closely, but all of them may be
/// lost while the kernel looks for the hardware addresses of neighbours.
const LONGEST_PROBE_WAIT: Span = Span::secs(10);
/// Number of unanswered confirmations after which a pair is probed anew, because its cookie may be too old.
const CONFIRMATIONS: u8 = 5;
/// Time without a packet from a pair that was sent one, after which it is asked whether it works.
/// An acknowledgement comes within this time on any network of a data centre.
const QUIET: Span = Span::millis(6);
/// Time between two questions to a quiet pair, and the number of them after which the pair is left,
/// if the peer is heard through another pair: 6 + 3 * 3 ms after the first lost packet.
const PING_EVERY: Span = Span::millis(3);
const PINGS: u8 = 3;
/// Shortest time between two measurements of a pair's delay.
const SAMPLE_EVERY: Span = Span::millis(10);
/// Number of pairs of cards, over all peers, up to which the delay of each is measured every [`SAMPLE_EVERY`]. More are
/// measured less often.
const SAMPLED_PAIRS: u64 = 64;
/// Share of the paths of the fastest pair of cards; those of the others are relative to it.
const MOST_SHARE: u32 = 1024;
const LEAST_SHARE: u32 = 16;
/// Time by which a pair's delay must exceed one and a half times the shortest one before its share falls: hosts that are busy answer
/// some of the questions late.
const DELAY_NOISE: Span = Span::micros(500);
/// Bounds of the time between two questions to a pair that was left.
const RETURN_FIRST: Span = Span::millis(20);
const RETURN_LONGEST: Span = Span::millis(200);
/// Time after the last packet to a peer during which its cards are watched.
const ACTIVE: Span = Span::secs(2);
/// Interval of the checks of all peers, for each 64 of them: a check of more peers takes longer.
const TICK: Span = Span::millis(1);
/// Time without packets after which a peer is forgotten.
const FORGET: Span = Span::secs(300);
/// Largest number of peers that others may add, by asking this endpoint before it sends to them.
const MAX_UNSOLICITED: usize = 4096;
/// Largest number of answers in a row, and per second.
const ANSWER_BURST: u64 = 4096;
const ANSWERS_A_SECOND: u64 = 20_000;
/// Largest number of packets that wait to be sent.
pub(super) const MAX_OUT: usize = 1 << 14;
/// Binary logarithm of the cookie period in nanoseconds, as that of the handshake: a cookie is valid
/// for at least one period (69 s) and at most two.
const COOKIE_AGE_BITS: u32 = 36;

/// The state of a pair of cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PairState {
    /// The initiator sends probes: it does not know whether the cards reach each other.
    Probing,
    /// The probe was answered. The initiator returns this cookie until it is welcomed.
    Confirming(u64),
    /// The pair carries packets.
    Up,
    /// The pair worked, and then nothing came back through it.
    Down,
}

/// A card of this endpoint with one of a peer.
#[derive(Clone, Debug)]
struct Pair {
    local: u8,
    remote: u8,
    to: SocketAddr,
    state: PairState,
    /// Time of the first packet sent since something was last heard through the pair, or NEVER; of a pair that is
    /// down, the time at which it was left.
    waiting: Time,
    /// Number of questions sent since then.
    asked: u8,
    /// Time of the next question.
    next: Time,
    wait: Span,
    /// Random number of the pings since the pair became quiet.
    ping: u64,
    /// The question that measures the delay of the pair: its random number, and when it was or will be sent.
    sample: u64,
    sampled: Time,
    next_sample: Time,
    /// Moving average of the round trip of these questions; zero before the first.
    delay: Span,
    /// Share of the paths, up to `most`, which is that of the cards' speeds; and the one with which the paths were last
    /// distributed.
    share: u32,
    most: u32,
    assigned: u32,
}

/// The knowledge of a peer's cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Discovery {
    /// The peer has not said which cards it has.
    Asking {
        /// Time of the next question.
        next: Time,
        /// Wait between two questions.
        wait: Span,
    },
    /// The peer's cards are known.
    Known,
}

/// A peer, known by the address of its first card.
#[derive(Debug)]
struct Peer {
    addr: SocketAddr,
    discovery: Discovery,
    nonce: u64,
    /// Number of the peer's session, 0 while it is unknown.
    session: u64,
    /// Cookie by which this endpoint proves to the peer that it receives at its first card.
    first_cookie: u64,
    rails: RailList,
    /// The pairs of cards. The first one is that of the first cards, which is used without a proof:
    /// the handshake proves these two addresses.
    pairs: Vec<Pair>,
    /// Index in `pairs` for each path, modulo [`SLOTS`].
    slots: [u8; SLOTS],
    last_sent: Time,
    /// Another endpoint added this one by its question.
    unsolicited: bool,
}

/// An IP address from which packets come.
#[derive(Debug)]
struct Source {
    /// First card of the host that has this address.
    first: IpAddr,
    /// Time of the last packet from the address, for each card of this endpoint.
    heard: [Time; MAX_RAILS],
}

/// Where a packet goes: the card of this endpoint, and the address of the peer's card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Route {
    pub(super) local: usize,
    pub(super) to: SocketAddr,
}

/// A change that the log reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RailEvent {
    pub(super) peer: SocketAddr,
    pub(super) local: usize,
    pub(super) remote: IpAddr,
    pub(super) text: &'static str,
}

/// The cards of an endpoint and of its peers.
pub(super) struct RailTable {
    own: RailList,
    port: u16,
    key: Option<JobKey>,
    session: u64,
    cookie_keys: [u64; 2],
    random: SecretRng,
    peers: Vec<Peer>,
    by_addr: HashMap<SocketAddr, usize>,
    /// Destination of the last packet and its peer: most packets in a row go to one.
    last: Option<(SocketAddr, usize)>,
    sources: Vec<Source>,
    by_ip: HashMap<IpAddr, usize>,
    /// For each card of this endpoint, the address of its last packet and that packet's source. Most packets of a card come
    /// from one card of a peer, which then need not be looked up.
    last_sources: [Option<(IpAddr, usize)>; MAX_RAILS],
    out: VecDeque<(Route, RailPacket)>,
    events: VecDeque<RailEvent>,
    next_tick: Time,
    /// Shortest time between two ticks.
    interval: Span,
    answers: u64,
    answers_at: Time,
    unsolicited: usize,
    /// Packets about cards that were refused: no proof, a wrong cookie, an address of others.
    pub(super) refused: u64,
    /// Packets of the exchange about cards that were dropped because [`MAX_OUT`] others waited to be sent.
    pub(super) dropped: u64,
}

/// Returns the time between two measurements of a pair's delay, from the number of pairs of a peer and the number of peers.
/// An endpoint sends at most [`SAMPLED_PAIRS`] questions in [`SAMPLE_EVERY`], which are 6,400 a second: fewer than
/// [`ANSWERS_A_SECOND`].
pub(super) const fn sample_interval(pairs: u64, peers: u64) -> Span {
    Span(SAMPLE_EVERY.0 * (1 + pairs / 8 + pairs * peers / SAMPLED_PAIRS))
}

impl RailTable {
    /// Creates the table of an endpoint with these cards, all of which listen on `port`.
    pub(super) fn new(
        own: RailList,
        port: u16,
        key: Option<JobKey>,
        mut random: SecretRng,
    ) -> Self {
        let cookie_keys = [random.next_u64(), random.next_u64()];
        Self {
            own,
            port,
            key,
            session: random.next_u64().max(1),
            cookie_keys,
            random,
            peers: Vec::new(),
            by_addr: HashMap::new(),
            last: None,
            sources: Vec::new(),
            by_ip: HashMap::new(),
            last_sources: [None; MAX_RAILS],
            out: VecDeque::new(),
            events: VecDeque::new(),
            next_tick: Time::NEVER,
            interval: TICK,
            answers: ANSWER_BURST,
            answers_at: Time::ZERO,
            unsolicited: 0,
            refused: 0,
            dropped: 0,
        }
    }

    /// Returns the route of a packet to `dst` on `path`, and notes that the packet is sent now.
    #[inline]
    pub(super) fn route(&mut self, now: Time, dst: SocketAddr, path: u16) -> Route {
        let index = match self.last {
            Some((addr, index)) if addr == dst => index,
            _ => self.find_or_add(now, dst),
        };
        let peer = &mut self.peers[index];
        peer.last_sent = now;
        let pair = &mut peer.pairs[usize::from(peer.slots[usize::from(path) % SLOTS])];
        if pair.waiting == Time::NEVER {
            pair.waiting = now;
            self.next_tick = self.next_tick.min(Time(now.0 + self.interval.0));
        }
        Route { local: usize::from(pair.local), to: pair.to }
    }

    /// Returns the route of a packet of the handshake, which proves the addresses of the first
    /// cards: it goes from one to the other, unless that pair was left.
    pub(super) fn handshake_route(&mut self, now: Time, dst: SocketAddr, path: u16) -> Route {
        let index = self.find_or_add(now, dst);
        match &self.peers[index].pairs[0] {
            pair if pair.state == PairState::Up => Route { local: 0, to: pair.to },
            _ => self.route(now, dst, path),
        }
    }

    /// Notes a packet that arrived at card `local` from `src`. Returns the address by which the
    /// transport knows its sender.
    #[inline]
    pub(super) fn record_arrival(
        &mut self,
        now: Time,
        local: usize,
        src: SocketAddr,
    ) -> SocketAddr {
        let index = match self.last_sources[local] {
            Some((ip, index)) if ip == src.ip() => index,
            _ => match self.by_ip.get(&src.ip()) {
                Some(&index) => index,
                None => return src,
            },
        };
        self.last_sources[local] = Some((src.ip(), index));
        let source = &mut self.sources[index];
        source.heard[local] = now;
        SocketAddr::new(source.first, src.port())
    }

    #[cold]
    fn find_or_add(&mut self, now: Time, dst: SocketAddr) -> usize {
        let index = match self.by_addr.get(&dst) {
            Some(&index) => index,
            None => self.add_peer(now, dst, false),
        };
        self.last = Some((dst, index));
        index
    }

    fn add_peer(&mut self, now: Time, addr: SocketAddr, unsolicited: bool) -> usize {
        self.unsolicited += usize::from(unsolicited);
        let first = Pair::new(0, 0, addr, PairState::Up);
        // An address that was a further card of another host is a first card from now on.
        self.add_source(addr.ip(), addr.ip());
        self.peers.push(Peer {
            addr,
            discovery: Discovery::Asking { next: now, wait: FIRST_WAIT },
            nonce: self.random.next_u64(),
            session: 0,
            first_cookie: 0,
            rails: RailList::default(),
            pairs: vec![first],
            slots: [0; SLOTS],
            last_sent: now,
            unsolicited,
        });
        self.next_tick = Time::ZERO;
        let index = self.peers.len() - 1;
        self.interval = Span(TICK.0 * (1 + index as u64 / 64));
        self.by_addr.insert(addr, index);
        index
    }

    /// Records that packets from `ip` are those of the host whose first card is `first`. The pairs
    /// of another host that had the address until now are left.
    fn add_source(&mut self, ip: IpAddr, first: IpAddr) {
        let Some(&index) = self.by_ip.get(&ip) else {
            self.by_ip.insert(ip, self.sources.len());
            self.sources.push(Source { first, heard: [Time::ZERO; MAX_RAILS] });
            return;
        };
        let former = core::mem::replace(&mut self.sources[index].first, first);
        if former == first {
            return;
        }
        self.last_sources = [None; MAX_RAILS];
        for peer in self.peers.iter_mut().filter(|peer| peer.addr.ip() == former) {
            if peer.pairs.iter().skip(1).any(|pair| pair.to.ip() == ip) {
                peer.pairs.retain(|pair| pair.to.ip() != ip || pair.remote == 0);
                peer.assign_slots(&self.own);
            }
        }
    }

    /// Processes a packet about cards that arrived at card `local`.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        local: usize,
        src: SocketAddr,
        packet: &RailPacket,
    ) {
        // This endpoint's own packets come back from a network that reflects them.
        let own = packet.session == self.session || packet.session == 0;
        if own || usize::from(packet.to) != local || !self.is_proven(local, src.ip(), packet) {
            self.refused += 1;
            return;
        }
        let handled = match packet.stage {
            RailStage::Ask => {
                packet.from == 0
                    && local == 0
                    && packet.first == src.ip()
                    && self.answer(now, local, src, packet, RailStage::Offer)
            }
            RailStage::Probe => {
                self.has_first_cookie(now, packet)
                    && self.answer(now, local, src, packet, RailStage::Reply)
            }
            RailStage::Ping => self.answer(now, local, src, packet, RailStage::Pong),
            RailStage::Confirm => self.handle_confirm(now, local, src, packet),
            RailStage::Offer => self.handle_offer(now, packet),
            RailStage::Reply | RailStage::Welcome | RailStage::Pong => {
                self.handle_pair_answer(now, local, src, packet)
            }
        };
        self.refused += u64::from(!handled);
    }

    /// Sends an answer of the same length without keeping state.
    fn answer(
        &mut self,
        now: Time,
        local: usize,
        src: SocketAddr,
        packet: &RailPacket,
        stage: RailStage,
    ) -> bool {
        let earned = now.since(self.answers_at).0 / (1_000_000_000 / ANSWERS_A_SECOND);
        if earned > 0 {
            self.answers = self.answers.saturating_add(earned).min(ANSWER_BURST);
            self.answers_at = now;
        }
        if self.answers == 0 {
            return false;
        }
        self.answers -= 1;
        let age = now.0 >> COOKIE_AGE_BITS;
        let mut answer = self.packet(stage, packet.nonce, local, usize::from(packet.from));
        match stage {
            RailStage::Offer => {
                answer.first_cookie = self.cookie(age, 1, packet.first, packet);
                answer.rails = self.own;
            }
            RailStage::Reply => answer.card_cookie = self.cookie(age, 2, src.ip(), packet),
            _ => {}
        }
        let to = SocketAddr::new(src.ip(), packet.port);
        self.send(Route { local, to }, answer);
        true
    }

    fn cookie(&self, age: u64, kind: u8, ip: IpAddr, packet: &RailPacket) -> u64 {
        let [one, two] = self.cookie_keys;
        let mut hasher = SipHasher24::new_with_keys(one, two);
        hasher.write_u64(age);
        hasher.write_u8(kind);
        for ip in [ip, packet.first] {
            hasher.write_u128(ip_bits(ip));
        }
        hasher.write_u16(packet.port);
        hasher.write_u64(packet.nonce);
        hasher.write_u64(packet.session);
        hasher.finish()
    }

    /// Returns whether the sender has received an offer at the address that it calls its first card's.
    fn has_first_cookie(&self, now: Time, packet: &RailPacket) -> bool {
        self.accepts_cookie(now, 1, packet.first, packet, packet.first_cookie)
    }

    /// Returns whether `cookie` is one that this endpoint issued for `ip` in this cookie period or the last one.
    fn accepts_cookie(
        &self,
        now: Time,
        kind: u8,
        ip: IpAddr,
        packet: &RailPacket,
        cookie: u64,
    ) -> bool {
        let age = now.0 >> COOKIE_AGE_BITS;
        [age, age.wrapping_sub(1)].iter().any(|age| self.cookie(*age, kind, ip, packet) == cookie)
    }

    fn handle_offer(&mut self, now: Time, packet: &RailPacket) -> bool {
        let addr = SocketAddr::new(packet.first, packet.port);
        let Some(&index) = self.by_addr.get(&addr) else { return false };
        let peer = &mut self.peers[index];
        if peer.nonce != packet.nonce || packet.rails.get(0).map(|(ip, _)| ip) != Some(packet.first)
        {
            return false;
        }
        if peer.discovery == Discovery::Known {
            return true;
        }
        peer.discovery = Discovery::Known;
        peer.session = packet.session;
        peer.first_cookie = packet.first_cookie;
        peer.rails = packet.rails;
        for (local, (own, _)) in self.own.iter().enumerate() {
            for (remote, (ip, _)) in packet.rails.iter().enumerate() {
                let (local, remote) = (local as u8, remote as u8); // below MAX_RAILS
                let known = peer.pairs.iter().any(|p| (p.local, p.remote) == (local, remote));
                if !known && own.is_ipv4() == ip.is_ipv4() {
                    let to = SocketAddr::new(ip, packet.port);
                    peer.pairs.push(Pair::new(local, remote, to, PairState::Probing));
                }
            }
        }
        self.next_tick = now;
        true
    }

    fn handle_confirm(
        &mut self,
        now: Time,
        local: usize,
        src: SocketAddr,
        packet: &RailPacket,
    ) -> bool {
        let card = self.accepts_cookie(now, 2, src.ip(), packet, packet.card_cookie);
        let from = usize::from(packet.from);
        let listed = packet.rails.get(from).map(|(ip, _)| ip) == Some(src.ip())
            && packet.rails.get(0).map(|(ip, _)| ip) == Some(packet.first);
        if !card || !listed || !self.has_first_cookie(now, packet) {
            return false;
        }
        let addr = SocketAddr::new(packet.first, packet.port);
        let index = match self.by_addr.get(&addr) {
            Some(&index) => index,
            None if self.unsolicited >= MAX_UNSOLICITED => return false,
            None => self.add_peer(now, addr, true),
        };
        if self.peers[index].session != packet.session {
            self.peers[index].forget_rails(packet.session);
        }
        let peer = &mut self.peers[index];
        peer.discovery = Discovery::Known;
        peer.rails = packet.rails;
        if !self.use_pair(now, index, local, from, src.ip()) {
            return false;
        }
        let welcome = self.packet(RailStage::Welcome, packet.nonce, local, from);
        let to = SocketAddr::new(src.ip(), packet.port);
        self.send(Route { local, to }, welcome);
        true
    }

    fn handle_pair_answer(
        &mut self,
        now: Time,
        local: usize,
        src: SocketAddr,
        packet: &RailPacket,
    ) -> bool {
        let addr = SocketAddr::new(packet.first, packet.port);
        let Some(&index) = self.by_addr.get(&addr) else { return false };
        let peer = &mut self.peers[index];
        let pair = peer.pairs.iter_mut().find(|pair| {
            usize::from(pair.local) == local
                && pair.remote == packet.from
                && pair.to.ip() == src.ip()
        });
        let Some(pair) = pair else { return false };
        match (packet.stage, pair.state) {
            (RailStage::Pong, PairState::Up)
                if packet.nonce == pair.sample && packet.session == peer.session =>
            {
                // The answer shows that the peer is alive, even while data sent through another card are lost.
                if let Some(source) = self.by_ip.get(&src.ip()) {
                    self.sources[*source].heard[local] = now;
                }
                let trip = now.since(pair.sampled);
                pair.delay = if pair.delay == Span::ZERO { trip } else { (pair.delay + trip) / 2 };
                (pair.waiting, pair.asked, pair.sample) = (Time::NEVER, 0, 0);
                peer.share_by_delay(local as u8, packet.from, &self.own);
            }
            (RailStage::Pong, _) if packet.nonce != pair.ping => return false,
            (RailStage::Pong, _) if packet.session != peer.session && peer.session != 0 => {
                // Another endpoint has the address now. It does not know the cards of this one.
                peer.forget_rails(0);
                self.next_tick = now;
            }
            (RailStage::Pong, PairState::Down) => {
                self.use_pair(now, index, local, usize::from(packet.from), src.ip());
            }
            (RailStage::Pong, _) => (pair.waiting, pair.asked) = (Time::NEVER, 0),
            _ if packet.nonce != peer.nonce => return false,
            (RailStage::Reply, PairState::Probing) => {
                pair.state = PairState::Confirming(packet.card_cookie);
                (pair.next, pair.wait, pair.asked) = (now, FIRST_WAIT, 0);
                self.next_tick = now;
            }
            (RailStage::Welcome, PairState::Confirming(_)) => {
                self.use_pair(now, index, local, usize::from(packet.from), src.ip());
            }
            // A repetition.
            _ => {}
        }
        true
    }

    /// Makes a pair carry packets. Returns false if its address is the first card of another host.
    fn use_pair(
        &mut self,
        now: Time,
        index: usize,
        local: usize,
        remote: usize,
        ip: IpAddr,
    ) -> bool {
        let addr = self.peers[index].addr;
        let known = self.by_ip.get(&ip).map(|source| self.sources[*source].first);
        if known == Some(ip) && ip != addr.ip() {
            return false;
        }
        self.add_source(ip, addr.ip());
        if let Some(&source) = self.by_ip.get(&ip) {
            self.sources[source].heard[local] = now;
        }
        let peer = &mut self.peers[index];
        let to = SocketAddr::new(ip, addr.port());
        let (local, remote) = (local as u8, remote as u8); // below MAX_RAILS
        let at = peer.pairs.iter().position(|p| (p.local, p.remote) == (local, remote));
        let at = at.unwrap_or_else(|| {
            peer.pairs.push(Pair::new(local, remote, to, PairState::Probing));
            peer.pairs.len() - 1
        });
        let pair = &mut peer.pairs[at];
        let former = core::mem::replace(&mut pair.state, PairState::Up);
        (pair.to, pair.waiting, pair.asked) = (to, Time::NEVER, 0);
        if former != PairState::Up {
            if former != PairState::Down {
                peer.share_by_speed(&self.own);
            }
            peer.assign_slots(&self.own);
            let text = if former == PairState::Down { "works again" } else { "is used" };
            self.report(addr, usize::from(local), ip, text);
        }
        true
    }

    fn report(&mut self, peer: SocketAddr, local: usize, remote: IpAddr, text: &'static str) {
        if self.events.len() < MAX_OUT {
            self.events.push_back(RailEvent { peer, local, remote, text });
        }
    }

    /// Sends the questions that are due. The port calls it when [`Self::next_tick`] has come.
    pub(super) fn tick(&mut self, now: Time) {
        let mut next = Time::NEVER;
        for index in 0..self.peers.len() {
            let since = now.since(self.peers[index].last_sent);
            if since >= ACTIVE {
                self.peers[index].stop_watching();
                continue;
            }
            next = next.min(self.tick_peer(now, index));
        }
        self.next_tick =
            if next == Time::NEVER { next } else { next.max(Time(now.0 + self.interval.0)) };
        self.forget_idle(now);
    }

    /// Returns the time at which [`Self::tick`] is to be called next.
    #[inline]
    pub(super) const fn next_tick(&self) -> Time {
        self.next_tick
    }

    fn tick_peer(&mut self, now: Time, index: usize) -> Time {
        let peer = &mut self.peers[index];
        let mut due = Time::NEVER;
        if let Discovery::Asking { next, wait } = &mut peer.discovery {
            if now >= *next {
                *next = Time(now.0 + wait.0);
                *wait = Span((wait.0 * 2).min(LONGEST_WAIT.0));
                let (to, nonce) = (peer.addr, peer.nonce);
                let mut ask = self.packet(RailStage::Ask, nonce, 0, 0);
                ask.rails = self.own;
                self.send(Route { local: 0, to }, ask);
            }
            if let Discovery::Asking { next, .. } = self.peers[index].discovery {
                due = next;
            }
        }
        for pair in 0..self.peers[index].pairs.len() {
            due = due.min(self.tick_pair(now, index, pair));
        }
        due
    }

    fn tick_pair(&mut self, now: Time, index: usize, at: usize) -> Time {
        let peer = &self.peers[index];
        let pair = &peer.pairs[at];
        let (local, remote) = (usize::from(pair.local), usize::from(pair.remote));
        let state = pair.state;
        if state == PairState::Up {
            if peer.pairs.len() > 1 && now >= pair.next_sample {
                self.sample(now, index, at);
            }
            let (peer, pair) = (&self.peers[index], &self.peers[index].pairs[at]);
            let heard = self.heard(pair);
            if pair.waiting != Time::NEVER && heard >= pair.waiting {
                let pair = &mut self.peers[index].pairs[at];
                (pair.waiting, pair.asked) = (Time::NEVER, 0);
                return pair.next_sample;
            }
            if pair.waiting == Time::NEVER {
                return pair.next_sample;
            }
            let quiet = Time(pair.waiting.0 + QUIET.0);
            if now < quiet {
                return quiet;
            }
            if pair.asked > 0 && now < pair.next {
                return pair.next;
            }
            // A peer that does not run answers through no pair.
            let every = if pair.asked <= PINGS { PING_EVERY } else { RETURN_FIRST };
            let last_ping = Time(pair.next.0.saturating_sub(every.0));
            let elsewhere = peer.pairs.iter().enumerate().any(|(other, pair)| {
                other != at && pair.state == PairState::Up && self.heard(pair) > last_ping
            });
            if pair.asked >= PINGS && elsewhere {
                self.leave(now, index, at, "is silent");
                return now;
            }
            let every = if pair.asked < PINGS { PING_EVERY } else { RETURN_FIRST };
            return self.ping(now, index, at, every);
        }
        if now < pair.next {
            return pair.next;
        }
        if state == PairState::Down {
            if self.heard(pair) >= pair.waiting {
                let ip = pair.to.ip();
                self.use_pair(now, index, local, remote, ip);
                return now;
            }
            let wait = Span((pair.wait.0 * 2).clamp(RETURN_FIRST.0, RETURN_LONGEST.0));
            self.peers[index].pairs[at].wait = wait;
            return self.ping(now, index, at, wait);
        }
        let (to, nonce) = (pair.to, peer.nonce);
        let first_cookie = peer.first_cookie;
        let stage = match state {
            PairState::Confirming(_) => RailStage::Confirm,
            _ => RailStage::Probe,
        };
        let mut packet = self.packet(stage, nonce, local, remote);
        packet.first_cookie = first_cookie;
        if let PairState::Confirming(cookie) = state {
            (packet.card_cookie, packet.rails) = (cookie, self.own);
        }
        self.send(Route { local, to }, packet);
        let pair = &mut self.peers[index].pairs[at];
        pair.asked = pair.asked.saturating_add(1);
        pair.next = Time(now.0 + pair.wait.0);
        pair.wait = Span((pair.wait.0 * 2).min(LONGEST_PROBE_WAIT.0));
        if stage == RailStage::Confirm && pair.asked >= CONFIRMATIONS {
            (pair.state, pair.asked) = (PairState::Probing, 0);
        }
        pair.next
    }

    fn ping(&mut self, now: Time, index: usize, at: usize, every: Span) -> Time {
        let fresh = self.random.next_u64();
        let peer = &mut self.peers[index];
        let pair = &mut peer.pairs[at];
        // A question that is repeated keeps its number: where queues are long, the answer comes late.
        if pair.asked == 0 && pair.state == PairState::Up {
            pair.ping = fresh;
        }
        let nonce = pair.ping;
        pair.asked = pair.asked.saturating_add(1);
        pair.next = Time(now.0 + every.0);
        let (next, to) = (pair.next, pair.to);
        let (local, remote) = (usize::from(pair.local), usize::from(pair.remote));
        let packet = self.packet(RailStage::Ping, nonce, local, remote);
        self.send(Route { local, to }, packet);
        next
    }

    /// Sends a question through a pair that measures its delay.
    fn sample(&mut self, now: Time, index: usize, at: usize) {
        let nonce = self.random.next_u64();
        let peers = self.peers.len() as u64;
        let peer = &mut self.peers[index];
        let pairs = peer.pairs.len() as u64;
        let pair = &mut peer.pairs[at];
        (pair.sample, pair.sampled) = (nonce, now);
        pair.next_sample = now + sample_interval(pairs, peers);
        let (local, remote) = (usize::from(pair.local), usize::from(pair.remote));
        let to = pair.to;
        let packet = self.packet(RailStage::Ping, nonce, local, remote);
        self.send(Route { local, to }, packet);
    }

    /// Returns when a packet was last heard through a pair.
    fn heard(&self, pair: &Pair) -> Time {
        let source = self.by_ip.get(&pair.to.ip()).map(|index| &self.sources[*index]);
        source.map_or(Time::ZERO, |source| source.heard[usize::from(pair.local)])
    }

    /// Leaves a pair that stopped working.
    fn leave(&mut self, now: Time, index: usize, at: usize, text: &'static str) {
        let peer = &mut self.peers[index];
        let pair = &mut peer.pairs[at];
        pair.state = PairState::Down;
        (pair.waiting, pair.next, pair.wait, pair.asked) = (now, now, RETURN_FIRST, 0);
        let (card, other_card) = (pair.local, pair.remote);
        // Probably one of the two cards is dead, so the other pairs of both are asked at once.
        for pair in peer.pairs.iter_mut().filter(|pair| {
            pair.state == PairState::Up && (pair.local == card || pair.remote == other_card)
        }) {
            pair.waiting = pair.waiting.min(Time(now.0.saturating_sub(QUIET.0)));
        }
        let pair = &peer.pairs[at];
        let (addr, local, ip) = (peer.addr, usize::from(pair.local), pair.to.ip());
        peer.assign_slots(&self.own);
        self.next_tick = self.next_tick.min(now);
        self.report(addr, local, ip, text);
    }

    /// Handles the error that the system reported for a packet from card `local` to `to`. Returns
    /// the peer that cannot be reached, if no other pair of cards reaches it.
    pub(super) fn handle_error(
        &mut self,
        now: Time,
        local: usize,
        to: SocketAddr,
    ) -> Option<SocketAddr> {
        let first = self.by_ip.get(&to.ip()).map(|source| self.sources[*source].first);
        let addr = SocketAddr::new(first.unwrap_or(to.ip()), to.port());
        let Some(&index) = self.by_addr.get(&addr) else { return Some(addr) };
        let peer = &self.peers[index];
        let at = peer.pairs.iter().position(|p| usize::from(p.local) == local && p.to == to);
        let others = peer.pairs.iter().enumerate();
        let others =
            others.filter(|(other, p)| Some(*other) != at && p.state == PairState::Up).count();
        match at {
            Some(at) if others > 0 => {
                if peer.pairs[at].state == PairState::Up {
                    self.leave(now, index, at, "was refused by the system");
                }
                None
            }
            // A probe that does not leave is an answer, too.
            Some(at) if peer.pairs[at].state != PairState::Up && at > 0 => None,
            _ => Some(addr),
        }
    }

    /// Returns the address by which the transport knows the peer that has the card `to`.
    pub(super) fn first_address(&self, to: SocketAddr) -> SocketAddr {
        let first = self.by_ip.get(&to.ip()).map(|source| self.sources[*source].first);
        SocketAddr::new(first.unwrap_or(to.ip()), to.port())
    }

    /// Returns the routes to a peer that carry packets now.
    pub(super) fn routes(&self, dst: SocketAddr) -> Vec<Route> {
        let Some(&index) = self.by_addr.get(&dst) else {
            return vec![Route { local: 0, to: dst }];
        };
        let up = self.peers[index].pairs.iter().filter(|pair| pair.state == PairState::Up);
        up.map(|pair| Route { local: usize::from(pair.local), to: pair.to }).collect()
    }

    /// Forgets the peers to which nothing was sent for a long time.
    fn forget_idle(&mut self, now: Time) {
        if !self.peers.iter().any(|peer| now.since(peer.last_sent) >= FORGET) {
            return;
        }
        self.peers.retain(|peer| now.since(peer.last_sent) < FORGET);
        self.last = None;
        self.interval = Span(TICK.0 * (1 + self.peers.len() as u64 / 64));
        self.by_addr = self.peers.iter().enumerate().map(|(at, peer)| (peer.addr, at)).collect();
        self.unsolicited = self.peers.iter().filter(|peer| peer.unsolicited).count();
        let kept: std::collections::HashSet<IpAddr> =
            self.peers.iter().map(|peer| peer.addr.ip()).collect();
        self.last_sources = [None; MAX_RAILS];
        let (sources, by_ip) =
            (core::mem::take(&mut self.sources), core::mem::take(&mut self.by_ip));
        let mut sources: Vec<Option<Source>> = sources.into_iter().map(Some).collect();
        for (ip, index) in by_ip {
            if let Some(source) = sources[index].take_if(|source| kept.contains(&source.first)) {
                self.by_ip.insert(ip, self.sources.len());
                self.sources.push(source);
            }
        }
    }

    /// Takes the next packet to send.
    #[inline]
    pub(super) fn pop_packet(&mut self) -> Option<(Route, RailPacket)> {
        self.out.pop_front()
    }

    /// Takes the next change to report.
    #[inline]
    pub(super) fn pop_event(&mut self) -> Option<RailEvent> {
        self.events.pop_front()
    }

    fn packet(&self, stage: RailStage, nonce: u64, from: usize, to: usize) -> RailPacket {
        let first = self.own.get(0).map(|(ip, _)| ip);
        RailPacket {
            stage,
            port: self.port,
            from: from as u8, // below MAX_RAILS
            to: to as u8,     // below MAX_RAILS
            nonce,
            session: self.session,
            first_cookie: 0,
            card_cookie: 0,
            first: first.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)),
            rails: RailList::default(),
            proof: Proof::default(),
        }
    }

    /// Queues a packet with its proof.
    fn send(&mut self, route: Route, mut packet: RailPacket) {
        let from = self.own.get(route.local).map(|(ip, _)| ip);
        if let (Some(key), Some(from)) = (&self.key, from) {
            packet.proof = key.prove(Purpose::Rails, &proved_words(&packet, [from, route.to.ip()]));
        }
        if self.out.len() < MAX_OUT {
            self.out.push_back((route, packet));
        } else {
            self.dropped += 1;
        }
    }

    /// Returns whether the sender knows the key of this job, if there is one. The proof covers the
    /// addresses of both cards, so that nobody can return or forward it.
    fn is_proven(&self, local: usize, src: IpAddr, packet: &RailPacket) -> bool {
        let Some(key) = &self.key else { return true };
        let Some((own, _)) = self.own.get(local) else { return false };
        key.verify(Purpose::Rails, &proved_words(packet, [src, own]), &packet.proof)
    }
}

impl Pair {
    const fn new(local: u8, remote: u8, to: SocketAddr, state: PairState) -> Self {
        Self {
            local,
            remote,
            to,
            state,
            waiting: Time::NEVER,
            asked: 0,
            next: Time::ZERO,
            wait: FIRST_WAIT,
            ping: 0,
            sample: 0,
            sampled: Time::ZERO,
            next_sample: Time::ZERO,
            delay: Span::ZERO,
            share: MOST_SHARE,
            most: MOST_SHARE,
            assigned: MOST_SHARE,
        }
    }
}

impl Peer {
    /// Forgets the peer's further cards, because another endpoint has its address, of session
    /// `session` (0 if unknown).
    fn forget_rails(&mut self, session: u64) {
        self.pairs.truncate(1);
        self.pairs[0] = Pair::new(0, 0, self.addr, PairState::Up);
        self.slots = [0; SLOTS];
        self.session = session;
        self.rails = RailList::default();
        self.discovery = Discovery::Asking { next: Time::ZERO, wait: FIRST_WAIT };
    }

    /// Ends the watch of the pairs that carry packets: the next packet begins another one.
    fn stop_watching(&mut self) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.state == PairState::Up) {
            (pair.waiting, pair.asked) = (Time::NEVER, 0);
        }
    }

    /// Adapts the share of a pair whose delay was measured: it falls while packets wait longer there than elsewhere, and
    /// rises otherwise. So the queues of all cards become alike, and with them each card carries what it can.
    fn share_by_delay(&mut self, local: u8, remote: u8, own: &RailList) {
        let up = self.pairs.iter().filter(|pair| pair.state == PairState::Up);
        let shortest = up.map(|pair| pair.delay).filter(|delay| *delay > Span::ZERO).min();
        let Some(shortest) = shortest else { return };
        let Some(pair) =
            self.pairs.iter_mut().find(|pair| (pair.local, pair.remote) == (local, remote))
        else {
            return;
        };
        pair.share = if pair.delay > shortest * 3 / 2 + DELAY_NOISE {
            (pair.share - pair.share / 8).max(LEAST_SHARE)
        } else {
            (pair.share + pair.most / 64 + 1).min(pair.most)
        };
        if pair.share.abs_diff(pair.assigned) > pair.assigned / 8 {
            self.assign_slots(own);
        }
    }

    /// Sets the shares of the pairs to the product of their cards' speeds, so that each card has its part of the sum. A
    /// card of unknown speed counts as the fastest one.
    fn share_by_speed(&mut self, own: &RailList) {
        let rails = self.rails;
        let fastest = |list: &RailList| list.iter().map(|(_, mbps)| mbps).max().unwrap_or(0);
        let part = |list: &RailList, index: u8| match list.get(usize::from(index)) {
            Some((_, mbps)) if mbps > 0 => f64::from(mbps) / f64::from(fastest(list)),
            _ => 1.0,
        };
        for pair in &mut self.pairs {
            let product = part(own, pair.local) * part(&rails, pair.remote);
            // Between 0 and MOST_SHARE.
            pair.most = ((f64::from(MOST_SHARE) * product) as u32).max(LEAST_SHARE);
            pair.share = pair.most;
        }
    }

    /// Distributes the paths over the pairs that work: each further path goes to the pair that has the fewest paths for
    /// its share, and among equals to that whose cards have the fewest.
    fn assign_slots(&mut self, own: &RailList) {
        let cards = own.len().max(self.rails.len()).max(1);
        let mut used = [[0u32; MAX_RAILS]; 2];
        let mut paths = vec![0u32; self.pairs.len()];
        let any = self.pairs.iter().any(|pair| pair.state == PairState::Up);
        for pair in &mut self.pairs {
            pair.assigned = pair.share;
        }
        for slot in 0..SLOTS {
            let load = |at: usize| {
                let pair = &self.pairs[at];
                let [locals, remotes] = &used;
                let cards_used =
                    locals[usize::from(pair.local)] + remotes[usize::from(pair.remote)];
                // In the order of diagonals, so that the first paths have all cards.
                let diagonal = (usize::from(pair.remote) + cards - usize::from(pair.local)) % cards;
                ((paths[at] + 1) * (MOST_SHARE << 6) / pair.share, cards_used, diagonal, at)
            };
            let usable = |at: &usize| !any || self.pairs[*at].state == PairState::Up;
            let Some(best) = (0..self.pairs.len()).filter(usable).min_by_key(|at| load(*at)) else {
                return;
            };
            used[0][usize::from(self.pairs[best].local)] += 1;
            used[1][usize::from(self.pairs[best].remote)] += 1;
            paths[best] += 1;
            self.slots[slot] = best as u8; // at most 64 pairs
        }
    }
}

const fn ip_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// Returns the words that the proof of a packet covers: the packet, and the addresses of both cards.
fn proved_words(packet: &RailPacket, addresses: [IpAddr; 2]) -> Vec<u64> {
    let mut words = packet.proved_words().to_vec();
    for ip in addresses {
        let bits = ip_bits(ip);
        words.extend([(bits >> 64) as u64, bits as u64]);
    }
    words
}
