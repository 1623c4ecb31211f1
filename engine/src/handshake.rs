//! The handshake, by which two endpoints verify each other's address before they open contexts.
//!
//! Before an endpoint opens a context, it sends a question (*hello*) to the peer and returns the
//! cookie of the peer's answer (*challenge*). Until then the peer keeps no state. The values that
//! both then know let either open contexts to the other without another handshake
//! ([`crate::reliability::Association`]). An attacker who does not receive packets at an address
//! cannot be verified as its owner. Answers to unverified peers are never larger than the question,
//! so they do not amplify an attack.
//!
//! With a job key, every packet but the question carries a proof of it that covers the addresses of
//! both ends. An answer without a valid proof changes nothing. It is kept as the probable reason if
//! no proven answer follows, because a peer with another key cannot prove anything.

mod proofs;
mod receive;
mod recent_questions;
mod secrets;

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use siphasher::sip::SipHasher24;

use crate::base::{Instance, Purpose, SecretRng, Span, Time, entropy_count};
use crate::completion::OpError;
use crate::config::Config;
use crate::liveness::{LONG_SILENCE, REFUSED_DEADLINE};
use crate::operation::PeerId;
use crate::peers::{Confirmation, PeerState, Peers};
use crate::wire::{Handshake, Reason, Stage, WIRE_VERSION};
use proofs::{Party, Transcript};
use recent_questions::RecentQuestions;

pub use proofs::RecordedHandshake;
pub(crate) use receive::{HandshakeContext, HandshakeOutcome};
pub use secrets::{SecretEvent, SharedSecret};

/// Wait for the answer to the first question of a handshake. It doubles with each repetition.
const FIRST_WAIT: Span = Span::millis(5);
/// Wait between questions from which on the questions may use all path sets: questions on several
/// paths had no answer, so all paths of the usual set may be broken.
const LONG_WAIT: Span = Span::millis(40);
/// Number of packets for each consecutive question while the peer does not answer, each packet on a path
/// of its own. Paths may have failed in both directions, and trying one after the other takes long. If
/// half of the paths lose every packet in either direction, the first four questions (35 ms) stay
/// unanswered for one peer in 400, and the first five (75 ms) for one in 4000. After those, the peer
/// itself is probably not there yet.
const COPIES: [u32; 6] = [1, 4, 8, 8, 8, 4];
/// Largest number of additional packets of questions in a row, and per second. An endpoint that asks
/// many absent peers at once sends little more than one packet for each question.
const COPY_BURST: u64 = 1024;
const COPIES_A_SECOND: u64 = 10_000;
/// Longest wait between two questions of a handshake that has no answer.
const LONGEST_WAIT: Span = Span::secs(1);
/// Time for which a proven answer may follow the first unproven one. A peer with the key answers the
/// next question. An attacker on the path who drops its answers can keep the two apart anyway.
const UNPROVEN_DEADLINE: Span = Span::secs(3);
/// Largest number of answers to unverified peers in a row, and per second. An answer costs as much
/// as a small packet and is not larger than the question.
const BURST: u64 = 4096;
const ANSWERS_A_SECOND: u64 = 50_000;
/// Largest number of handshake packets that wait in the queue to be sent.
const MAX_OUT: usize = 1 << 16;
/// Longest time that the network may hold a packet back.
const LIFETIME: Span = Span::secs(1);

/// Generator of cookies. The receiver of an answer proves its address by returning the cookie,
/// without state at the sender.
///
/// A cookie depends on the last confirmation of the same peer that was accepted. The next one that is
/// accepted invalidates it. Otherwise an attacker that has recorded a handshake could repeat its
/// confirmation after a later handshake, and then the packets that followed it.
#[derive(Debug)]
struct Cookies {
    keys: [u64; 2],
}

impl Cookies {
    /// Binary logarithm of the cookie period in nanoseconds. A cookie is valid for at least one
    /// period (69 s) and at most two.
    const AGE_BITS: u32 = 36;

    /// Longest time for which a handshake cookie is valid.
    const LIFETIME: Span = Span(2 << Self::AGE_BITS);

    fn compute(
        &self,
        age: u64,
        asker: SocketAddr,
        packet: &Handshake,
        last: Option<Confirmation>,
    ) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.keys[0], self.keys[1]);
        hasher.write_u64(age);
        match asker.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(asker.port());
        hasher.write_u32(packet.instance);
        hasher.write_u64(packet.nonce);
        // The cookie is a keyed hash of the nonce, so it stands for both.
        hasher.write_u64(last.map_or(0, |last| last.cookie));
        hasher.finish()
    }

    fn issue(
        &self,
        now: Time,
        asker: SocketAddr,
        packet: &Handshake,
        last: Option<Confirmation>,
    ) -> u64 {
        self.compute(now.0 >> Self::AGE_BITS, asker, packet, last)
    }

    /// Returns whether the sender of a confirmation has received its cookie at the address that it
    /// claims, after the confirmation `last`.
    fn is_valid(
        &self,
        now: Time,
        asker: SocketAddr,
        packet: &Handshake,
        last: Option<Confirmation>,
    ) -> bool {
        let age = now.0 >> Self::AGE_BITS;
        [age, age.wrapping_sub(1)]
            .iter()
            .any(|age| self.compute(*age, asker, packet, last) == packet.cookie)
    }
}

/// A token bucket: the number of packets of one kind that may still be sent now.
#[derive(Debug)]
struct Allowance {
    left: u64,
    at: Time,
    burst: u64,
    a_second: u64,
}

impl Allowance {
    const fn new(burst: u64, a_second: u64) -> Self {
        Self { left: burst, at: Time::ZERO, burst, a_second }
    }

    fn try_take(&mut self, now: Time) -> bool {
        let earned = now.since(self.at).0 / (1_000_000_000 / self.a_second);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(self.burst);
            self.at = now;
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// The reaction to a peer that reports that it does not know this endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownReply {
    /// A handshake is already under way, so there is nothing to do.
    Wait,
    /// The peer has verified this endpoint by now, so the contexts continue.
    GoOn,
    /// The peer has forgotten this endpoint, so a new handshake starts.
    Forget,
}

/// A peer that does not answer the handshake of this endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SilentPeer {
    /// The peer has not answered for this time. The handshake is repeated.
    For(PeerId, Span),
    /// The peer has reported for this time that its user has not named this endpoint. The handshake
    /// is repeated.
    Unlisted(PeerId, Span),
    /// The deadline has passed. All operations to the peer fail with this error.
    ForGood(PeerId, OpError),
}

/// The set of paths from which the path of a handshake packet is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandshakePaths {
    /// The paths that data packets normally use (the usual path set).
    Near,
    /// All path sets, because every path of the usual set may be broken
    /// ([`entropy_count`]).
    Wide,
}

/// A handshake that this endpoint began and that is not finished.
#[derive(Debug)]
struct PendingHandshake {
    nonce: u64,
    /// Cookie of the answer, once it has arrived. From then on the question is a confirmation,
    /// repeated until the peer's welcome.
    cookie: Option<u64>,
    since: Time,
    next: Time,
    wait: Span,
    /// Set of paths from which the handshake packets take theirs.
    reach: HandshakePaths,
    /// Index in [`COPIES`], the number of packets per question, for the next question.
    urgency: u8,
    /// The user was notified that the handshake takes long, so no other notice is needed.
    reported: bool,
    /// The peer answers that its user does not name this endpoint, so it is not admitted yet.
    unlisted: bool,
    /// The peer is verified already, and may have forgotten this endpoint. If it does not answer,
    /// its contexts decide how long to wait for it.
    renews: bool,
    /// Number of cookies returned to the peer that it did not accept.
    stale: u32,
    /// The first answer that had no valid proof of the job key, and when it arrived.
    unproven: Option<(OpError, Time)>,
}

impl PendingHandshake {
    /// Returns whether only an unproven answer has arrived, for so long that no other is expected.
    fn is_refused(&self, now: Time) -> bool {
        let refused = self.unproven.is_some_and(|(_, at)| now.since(at) >= UNPROVEN_DEADLINE);
        refused && self.cookie.is_none()
    }

    /// Returns the error of an operation whose peer has not answered until the deadline.
    fn failure(&self) -> OpError {
        match self.unproven {
            Some((error, _)) => error,
            None if self.unlisted => OpError::NotListed,
            None => OpError::Unreachable,
        }
    }
}

/// State of all handshakes of an endpoint. The module's documentation describes the protocol.
#[derive(Debug)]
pub(crate) struct Handshakes {
    cookies: Cookies,
    random: SecretRng,
    /// Limit on the answers to unverified peers.
    answers: Allowance,
    /// Limit on the additional packets that repeat a handshake question on other paths.
    copies: Allowance,
    asking: BTreeMap<PeerId, PendingHandshake>,
    /// Time of the next check of all handshakes, not later than the next question.
    due: Option<Time>,
    /// Handshake packets that wait to be sent, each with the number that selects its path.
    out: VecDeque<(SocketAddr, Handshake, HandshakePaths, u32)>,
    repeats: RecentQuestions,
    /// Number of packets that were dropped because the queue was full and that no counter has
    /// counted yet.
    dropped: u64,
    /// Changes of shared secrets that the driver has not taken yet.
    secrets: VecDeque<SecretEvent>,
}

impl Handshakes {
    pub(crate) fn new(mut random: SecretRng) -> Self {
        let keys = [random.next_u64(), random.next_u64()];
        Self {
            cookies: Cookies { keys },
            random,
            answers: Allowance::new(BURST, ANSWERS_A_SECOND),
            copies: Allowance::new(COPY_BURST, COPIES_A_SECOND),
            asking: BTreeMap::new(),
            due: None,
            out: VecDeque::new(),
            repeats: RecentQuestions::new(),
            dropped: 0,
            secrets: VecDeque::new(),
        }
    }

    /// Returns a handshake packet of a given stage with this endpoint's own identity.
    const fn own_handshake(config: &Config, stage: Stage) -> Handshake {
        Handshake {
            stage,
            version: WIRE_VERSION,
            port: config.port,
            reason: Reason::None,
            nonce: 0,
            instance: config.instance.get(),
            expected: 0,
            cookie: 0,
            job_id: config.job_id,
            capabilities: if config.encrypts { Handshake::ENCRYPTS } else { 0 },
            proof: [0; 16],
        }
    }

    /// Queues `copies` copies of a handshake packet, each on another path as long as there are more
    /// paths.
    fn send(&mut self, to: SocketAddr, packet: Handshake, reach: HandshakePaths, copies: u32) {
        let first = self.random.next_u32();
        for copy in 0..copies {
            if self.out.len() < MAX_OUT {
                self.out.push_back((to, packet, reach, first.wrapping_add(copy)));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Returns whether packets wait to be sent, or to be counted as dropped.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty() || self.dropped > 0
    }

    /// Returns the number of packets dropped for want of room since the last call. Questions among
    /// them are repeated.
    #[inline]
    pub(crate) const fn take_dropped(&mut self) -> u64 {
        core::mem::replace(&mut self.dropped, 0)
    }

    /// Returns the next packet to send, its destination, and its path, out of `paths` or all path
    /// sets. A packet that does not arrive is repeated on other paths.
    #[inline]
    pub(crate) fn pop_packet(&mut self, paths: u16) -> Option<(SocketAddr, Handshake, u16)> {
        let (to, packet, reach, path) = self.out.pop_front()?;
        let all = match reach {
            HandshakePaths::Wide => entropy_count(paths),
            HandshakePaths::Near => paths.max(1),
        };
        // The modulus is at most 65536, so the remainder fits.
        Some((to, packet, (path % u32::from(all)) as u16))
    }

    /// Sends an answer to an unverified peer, at the address from which it asked.
    fn send_answer(&mut self, to: SocketAddr, packet: Handshake) {
        let reach = if self.repeats.is_frequent(packet.nonce) {
            HandshakePaths::Wide
        } else {
            HandshakePaths::Near
        };
        self.send(to, packet, reach, 1);
    }

    // The asking side.

    /// Starts a handshake with a peer, unless one is waiting for its first answer. The contexts to
    /// the peer wait for it.
    pub(crate) fn start(&mut self, now: Time, config: &Config, peer: PeerId, state: &PeerState) {
        self.ask(now, config, (peer, state), false);
    }

    /// Repeats the handshake with a verified peer, whose contexts continue meanwhile, because the
    /// peer is silent, or another instance claims its address. A peer that encrypts and has
    /// forgotten this endpoint cannot report that, because it drops encrypted packets of senders
    /// that it does not know.
    pub(crate) fn renew(&mut self, now: Time, config: &Config, peer: PeerId, state: &PeerState) {
        self.ask(now, config, (peer, state), true);
    }

    fn ask(
        &mut self,
        now: Time,
        config: &Config,
        (peer, state): (PeerId, &PeerState),
        renews: bool,
    ) {
        if let Some(asking) = self.asking.get_mut(&peer).filter(|asking| asking.cookie.is_none()) {
            asking.renews &= renews;
            return;
        }
        let (nonce, wait) = (self.random.next_u64(), FIRST_WAIT);
        let asking = PendingHandshake {
            nonce,
            cookie: None,
            since: now,
            next: now + wait,
            wait,
            reach: HandshakePaths::Near,
            urgency: 1,
            reported: false,
            unlisted: false,
            renews,
            stale: 0,
            unproven: None,
        };
        self.due = Some(self.due.map_or(asking.next, |due| due.min(asking.next)));
        self.send_question(config, &asking, state, 1);
        self.asking.insert(peer, asking);
    }

    /// Returns the current question of a handshake, without a proof: a hello, or a confirmation once
    /// the cookie is known.
    fn question(config: &Config, asking: &PendingHandshake, state: &PeerState) -> Handshake {
        let nonce = asking.nonce;
        match asking.cookie {
            None => {
                let expected = state.named_instance().map_or(0, Instance::get);
                Handshake { nonce, expected, ..Self::own_handshake(config, Stage::Hello) }
            }
            Some(cookie) => {
                let expected = state.instance().map_or(0, Instance::get);
                Handshake { nonce, cookie, expected, ..Self::own_handshake(config, Stage::Confirm) }
            }
        }
    }

    /// Sends the current question of a handshake in `copies` packets on different paths.
    fn send_question(
        &mut self,
        config: &Config,
        asking: &PendingHandshake,
        state: &PeerState,
        copies: u32,
    ) {
        let mut packet = Self::question(config, asking, state);
        if let (Some(key), Some(instance), Stage::Confirm) =
            (&config.key, state.instance(), packet.stage)
        {
            let responder = Party { instance, addr: state.addr() };
            let exchange = Transcript::new(Party::own(config), responder, &packet);
            packet.proof = exchange.prove(key, Purpose::Confirm);
        }
        self.send(state.addr(), packet, asking.reach, copies);
    }

    /// Returns the number of packets for the repetition of a question. It is more than one only if the
    /// peer is silent, not if it answers without effect or its host answers in its place.
    fn count_copies(&mut self, now: Time, asking: &mut PendingHandshake, absent: bool) -> u32 {
        let wanted = COPIES[usize::from(asking.urgency).min(COPIES.len() - 1)];
        asking.urgency = asking.urgency.saturating_add(1);
        if absent || asking.unlisted || asking.unproven.is_some() {
            return 1;
        }
        1 + (1..wanted).take_while(|_| self.copies.try_take(now)).count() as u32
    }

    /// Returns the peer of the handshake with this nonce, if the answer came from that peer's
    /// address.
    fn find_pending(&self, peers: &Peers, from: SocketAddr, nonce: u64) -> Option<PeerId> {
        let asked = |peer: &PeerId| self.asking.get(peer).is_some_and(|it| it.nonce == nonce);
        peers.at(from).find(asked)
    }

    /// Returns whether one of this endpoint's own handshakes has this nonce.
    fn is_own_nonce(&self, nonce: u64) -> bool {
        self.asking.values().any(|asking| asking.nonce == nonce)
    }

    /// Returns whether a handshake with a peer waits for its first challenge.
    fn is_open(&self, peer: PeerId) -> bool {
        self.asking.get(&peer).is_some_and(|asking| asking.cookie.is_none())
    }

    /// Returns the cookie of a peer's challenge to the peer, now and repeatedly until its welcome.
    fn send_confirmation(
        &mut self,
        now: Time,
        config: &Config,
        (peer, state): (PeerId, &PeerState),
        cookie: u64,
    ) {
        let Some(mut asking) = self.asking.remove(&peer) else { return };
        (asking.cookie, asking.wait, asking.next) = (Some(cookie), FIRST_WAIT, now + FIRST_WAIT);
        (asking.unproven, asking.urgency) = (None, 1);
        self.due = Some(self.due.map_or(asking.next, |due| due.min(asking.next)));
        self.send_question(config, &asking, state, 1);
        self.asking.insert(peer, asking);
    }

    /// Decides how to react when the peer answers a packet that was sent at `sent_at` by reporting
    /// that it does not know this endpoint.
    ///
    /// The packet may have overtaken the handshake. The peer has certainly forgotten this endpoint
    /// only if the packet was sent so long after the peer's welcome that no earlier packet is still
    /// under way. Only then may contexts start anew, because the peer would otherwise take twice
    /// what it had taken already.
    pub(crate) fn handle_unknown(
        &mut self,
        now: Time,
        config: &Config,
        (peer, state): (PeerId, &PeerState),
        sent_at: Time,
    ) -> UnknownReply {
        if let Some(asking) = self.asking.remove(&peer) {
            if asking.cookie.is_some() {
                self.send_question(config, &asking, state, 1);
            }
            self.asking.insert(peer, asking);
            return UnknownReply::Wait;
        }
        if sent_at < state.last_handshake() + LIFETIME {
            return UnknownReply::GoOn;
        }
        self.start(now, config, peer, state);
        UnknownReply::Forget
    }

    /// Restarts the handshake with a peer whose user has not named this endpoint yet.
    fn postpone(&mut self, peer: PeerId) {
        if let Some(asking) = self.asking.get_mut(&peer) {
            (asking.unlisted, asking.cookie) = (true, None);
        }
    }

    /// Begins the handshake with a peer anew, because the peer does not accept the cookie. The next
    /// question waits longer each time, and the deadline stays: a peer, or an attacker, that refuses
    /// every cookie could otherwise cause a question in each round-trip time for ever.
    fn begin_anew(&mut self, now: Time, peer: PeerId) {
        let nonce = self.random.next_u64();
        let Some(asking) = self.asking.get_mut(&peer) else { return };
        (asking.nonce, asking.cookie, asking.urgency) = (nonce, None, 0);
        // A shift of 8 bits is beyond the longest wait.
        asking.wait = (FIRST_WAIT * (1 << asking.stale.min(8))).min(LONGEST_WAIT);
        asking.next = now + asking.wait;
        asking.stale += 1;
        self.due = Some(self.due.map_or(asking.next, |due| due.min(asking.next)));
    }

    /// Keeps the error in an answer without a valid proof, as the error of the handshake if no
    /// proven answer follows. Returns whether it is the first such answer of a handshake that may
    /// fail.
    fn keep_unproven(&mut self, now: Time, peer: PeerId, error: OpError) -> bool {
        let Some(asking) = self.asking.get_mut(&peer) else { return false };
        let first = asking.unproven.is_none() && asking.cookie.is_none() && !asking.renews;
        if first {
            asking.unproven = Some((error, now));
        }
        first
    }

    /// Returns whether a peer reports that its user has not named this endpoint.
    pub(crate) fn is_unlisted(&self, peer: PeerId) -> bool {
        self.asking.get(&peer).is_some_and(|asking| asking.unlisted)
    }

    /// Returns a description of all unfinished handshakes, for the log.
    pub(crate) fn describe_pending(&self) -> String {
        format!("{:?}", self.asking)
    }

    /// Returns the peers with which this endpoint has begun a handshake that is unfinished.
    pub(crate) fn pending_peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.asking.keys().copied()
    }

    /// Ends this endpoint's handshake with a peer without a result.
    fn stop(&mut self, peer: PeerId) {
        self.asking.remove(&peer);
    }

    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Extends all waits by `absent`, because this process did not run and could not hear answers.
    pub(crate) fn exclude_absence(&mut self, now: Time, absent: Span) {
        for asking in self.asking.values_mut() {
            asking.since = (asking.since + absent).min(now);
            if let Some((_, at)) = &mut asking.unproven {
                *at = (*at + absent).min(now);
            }
        }
    }

    /// Repeats due questions. Returns a peer that has been silent for `deadline`, or, once, for
    /// [`LONG_SILENCE`]; call it again then until it returns `None`. If the peer's host reports
    /// that no socket is bound to the port, [`REFUSED_DEADLINE`] replaces a longer `deadline`.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        config: &Config,
        peers: &Peers,
        deadline: Span,
    ) -> Option<SilentPeer> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let due: Vec<PeerId> =
            self.asking.iter().filter(|(_, it)| it.next <= now).map(|(peer, _)| *peer).collect();
        for peer in due {
            let Some(mut asking) = self.asking.remove(&peer) else { continue };
            let state = peers.get(peer);
            let refused =
                state.last_destination_error().is_some_and(|trouble| trouble.is_refusal());
            let deadline = if refused { deadline.min(REFUSED_DEADLINE) } else { deadline };
            // A verified peer has the key, so it is not the one that cannot prove its answers.
            let excluded = asking.is_refused(now) && !state.is_verified();
            if excluded || now.since(asking.since) >= deadline {
                // A peer that has removed this endpoint from its names has ended the contexts, too.
                if asking.cookie.is_none() && (!asking.renews || asking.unlisted) {
                    return Some(SilentPeer::ForGood(peer, asking.failure()));
                }
                // The peer answered, now or before. The contexts themselves will show whether it
                // accepts them.
                continue;
            }
            // No socket was bound to the port when the last question arrived.
            let absent = state.was_refused_since(asking.next - asking.wait);
            asking.wait = (asking.wait * 2).min(LONGEST_WAIT);
            asking.next = now + asking.wait;
            if asking.wait >= LONG_WAIT {
                asking.reach = HandshakePaths::Wide;
            }
            let copies = self.count_copies(now, &mut asking, absent);
            self.send_question(config, &asking, state, copies);
            let silent = now.since(asking.since);
            let first = asking.cookie.is_none() && !asking.renews;
            let notify = silent >= LONG_SILENCE && first && !asking.reported;
            asking.reported |= notify;
            let unlisted = asking.unlisted;
            self.asking.insert(peer, asking);
            if notify {
                return Some(if unlisted {
                    SilentPeer::Unlisted(peer, silent)
                } else {
                    SilentPeer::For(peer, silent)
                });
            }
        }
        self.due = self.asking.values().map(|asking| asking.next).min();
        None
    }

    // The answering side.

    /// Returns whether an unverified peer may be answered now, and counts the answer.
    pub(crate) fn may_answer(&mut self, now: Time) -> bool {
        self.answers.try_take(now)
    }

    /// Returns whether the version, the job and the encryption of an unverified peer are right, and
    /// whether it asks for this instance. Otherwise sends the reason to the peer.
    fn check_compatibility(
        &mut self,
        config: &Config,
        asker: SocketAddr,
        packet: &Handshake,
    ) -> bool {
        let reason = if packet.version != WIRE_VERSION {
            Reason::Version
        } else if packet.job_id != config.job_id {
            Reason::Job
        } else if packet.capabilities != Self::own_handshake(config, Stage::Hello).capabilities {
            Reason::Encryption
        } else if !Self::is_addressed_to_us(config, packet) {
            Reason::Instance
        } else {
            return true;
        };
        self.send_refusal(config, asker, packet, reason);
        false
    }

    /// Returns whether the sender of a question expects this instance, or any.
    fn is_addressed_to_us(config: &Config, packet: &Handshake) -> bool {
        packet.expected == 0 || packet.expected == config.instance.get()
    }

    /// Sends an endpoint the reason why its handshake is refused. The refusal carries no proof for
    /// an endpoint of another version, or with another key, which could not check it.
    fn send_refusal(
        &mut self,
        config: &Config,
        asker: SocketAddr,
        packet: &Handshake,
        reason: Reason,
    ) {
        let us = Self::own_handshake(config, Stage::Refuse);
        let (nonce, expected) = (packet.nonce, packet.instance);
        let mut answer = Handshake { reason, nonce, expected, ..us };
        if let (Some(key), Some(instance)) = (&config.key, Instance::new(packet.instance))
            && !matches!(reason, Reason::Version | Reason::Key)
        {
            let initiator = Party { instance, addr: asker };
            let refusal = Transcript::of_refusal(initiator, Party::own(config), packet, &answer);
            answer.proof = refusal.prove(key, Purpose::Refuse);
        }
        self.send_answer(asker, answer);
    }

    /// Sends a challenge with a cookie to an unverified peer.
    fn send_challenge(
        &mut self,
        now: Time,
        config: &Config,
        (peers, asker): (&Peers, SocketAddr),
        packet: &Handshake,
    ) {
        let last = Instance::new(packet.instance)
            .and_then(|instance| peers.last_confirmation(asker, instance));
        let cookie = self.cookies.issue(now, asker, packet, last);
        let us = Self::own_handshake(config, Stage::Challenge);
        let (nonce, expected) = (packet.nonce, packet.instance);
        let mut answer = Handshake { nonce, cookie, expected, ..us };
        if let (Some(key), Some(instance)) = (&config.key, Instance::new(packet.instance)) {
            let initiator = Party { instance, addr: asker };
            let exchange = Transcript::new(initiator, Party::own(config), &answer);
            answer.proof = exchange.prove(key, Purpose::Answer);
        }
        self.send_answer(asker, answer);
    }

    /// Returns whether a confirmation is the last one that was accepted. Its sender repeats it until
    /// the welcome arrives.
    fn is_repeated(now: Time, packet: &Handshake, last: Option<Confirmation>) -> bool {
        last.is_some_and(|last| {
            (packet.nonce, packet.cookie) == (last.nonce, last.cookie)
                && now.since(last.at) < Cookies::LIFETIME
        })
    }

    /// Notifies an endpoint that its confirmation was accepted, so it is verified.
    fn send_welcome(
        &mut self,
        config: &Config,
        asker: SocketAddr,
        packet: &Handshake,
        exchange: &Transcript,
    ) {
        let us = Self::own_handshake(config, Stage::Welcome);
        let Handshake { nonce, cookie, instance: expected, .. } = *packet;
        let mut answer = Handshake { nonce, cookie, expected, ..us };
        if let Some(key) = &config.key {
            answer.proof = exchange.prove(key, Purpose::Welcome);
        }
        self.send_answer(asker, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshakes(seed: u8) -> (Handshakes, Config) {
        let instance = Instance::new(u32::from(seed) + 1).expect("not 0");
        let config = Config::new(instance, crate::base::Seed::new([seed; 32]));
        (Handshakes::new(SecretRng::from_seed([seed; 32])), config)
    }

    const ASKER: SocketAddr =
        SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2)), 5000);

    #[test]
    fn cookie_is_valid_only_for_its_asker_and_for_a_limited_time() {
        let (part, config) = handshakes(1);
        let hello = Handshake { nonce: 9, ..Handshakes::own_handshake(&config, Stage::Hello) };
        let now = Time(1 << 40);
        let cookie = part.cookies.issue(now, ASKER, &hello, None);
        let confirm = Handshake { cookie, ..hello };
        assert!(part.cookies.is_valid(now, ASKER, &confirm, None));
        assert!(part.cookies.is_valid(now + Span::secs(68), ASKER, &confirm, None));
        assert!(!part.cookies.is_valid(now + Span::secs(140), ASKER, &confirm, None));
        let accepted = Some(Confirmation { nonce: hello.nonce, cookie, at: now });
        assert!(Handshakes::is_repeated(now, &confirm, accepted));
        assert!(!Handshakes::is_repeated(now + Span::secs(140), &confirm, accepted));
        assert!(!Handshakes::is_repeated(now, &hello, accepted));
        assert!(!part.cookies.is_valid(now, ASKER, &confirm, accepted));
        let mut other = ASKER;
        other.set_port(5001);
        assert!(!part.cookies.is_valid(now, other, &confirm, None));
        let elsewhere = SocketAddr::from(([10, 0, 0, 3], 5000));
        assert!(!part.cookies.is_valid(now, elsewhere, &confirm, None));
        for bad in [
            Handshake { nonce: 8, ..confirm },
            Handshake { instance: 77, ..confirm },
            Handshake { cookie: cookie ^ 1, ..confirm },
            Handshake { cookie: 0, ..confirm },
        ] {
            assert!(!part.cookies.is_valid(now, ASKER, &bad, None));
        }
    }

    #[test]
    fn questions_are_repeated_with_backoff_until_the_deadline() {
        let (mut part, config) = handshakes(1);
        let mut peers = Peers::new(1400);
        let (peer, _) = peers.resolve(ASKER, None);
        let mut now = Time(1_000_000);
        let begin = now;
        part.start(now, &config, peer, peers.get(peer));
        part.start(now, &config, peer, peers.get(peer));
        let (mut packets, mut reported) = (0, Vec::new());
        let lost = loop {
            while let Some((to, packet, _)) = part.pop_packet(8) {
                assert_eq!((to, packet.stage), (ASKER, Stage::Hello));
                packets += 1;
            }
            now = part.deadline().expect("the handshake continues");
            match part.handle_timeout(now, &config, &peers, Span::secs(12)) {
                Some(SilentPeer::ForGood(peer, OpError::Unreachable)) => break peer,
                Some(SilentPeer::ForGood(..)) => panic!("the error is another one"),
                Some(SilentPeer::For(silent, since)) => reported.push((silent, since)),
                Some(SilentPeer::Unlisted(..)) => panic!("the peer did not report that"),
                None => {}
            }
        };
        // 19 questions: 1, 4, 8, 8 and 8 packets, and then 4 each.
        assert_eq!((lost, packets), (peer, 29 + 14 * 4));
        let [(silent, since)] = reported[..] else { panic!("{reported:?}") };
        assert!(silent == peer && since >= LONG_SILENCE && since <= Span::secs(11));
        let took = now.since(begin);
        assert!(took >= Span::secs(12) && took <= Span::secs(13), "{took:?}");
        assert!(!part.is_open(peer));
    }

    #[test]
    fn number_of_answers_to_unverified_peers_is_bounded() {
        let mut allowance = Allowance::new(BURST, ANSWERS_A_SECOND);
        let taken = (0..10 * BURST).filter(|_| allowance.try_take(Time(5))).count() as u64;
        assert_eq!(taken, BURST);
        let later = Time(5) + Span::millis(10);
        let taken = (0..10 * BURST).filter(|_| allowance.try_take(later)).count() as u64;
        assert_eq!(taken, ANSWERS_A_SECOND / 100);
    }
}
