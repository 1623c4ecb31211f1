//! First contact: who asks whom for an introduction, and how a stranger is answered at no cost.
//!
//! Before a context is opened, its initiator asks the peer who it is, and repeats the cookie of the answer.
//! The peer keeps nothing until then. What both know afterwards lets either open contexts to the other
//! without asking again ([`crate::reliability::Association`]). Nobody who does not receive at an address can
//! be introduced as its owner, and nothing larger than a question is ever answered to a stranger.

mod proofs;
mod receive;
mod recent_questions;

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use siphasher::sip::SipHasher24;

use crate::api::{OpError, PeerId};
use crate::base::{Instance, Purpose, SecretRng, Span, Time, entropy_count};
use crate::config::Config;
use crate::peers::{PeerState, Peers};
use crate::wire::{Handshake, Reason, Stage, WIRE_VERSION};
use proofs::Transcript;
use recent_questions::RecentQuestions;

pub(crate) use receive::{HandshakeContext, HandshakeOutcome};

/// First wait for an answer; it doubles with each question.
const FIRST_WAIT: Span = Span::millis(5);
/// Who waits so long for its answer has asked on three paths, and may be on the wrong ones.
const LONG_WAIT: Span = Span::millis(40);
/// Longest wait between two questions.
const LONGEST_WAIT: Span = Span::secs(1);
/// Answers to strangers in a row, and a second. Each costs as much as a small packet, and is not larger than
/// what caused it.
const BURST: u64 = 4096;
const ANSWERS_A_SECOND: u64 = 50_000;
/// Handshakes that wait to be sent.
const MAX_OUT: usize = 1 << 16;
/// A packet does not stay in the network for longer.
const LIFETIME: Span = Span::secs(1);
/// How long a host may say that nobody listens at a peer's port before it is believed: a peer may be about
/// to open its endpoint.
pub(crate) const REFUSED_PATIENCE: Span = Span::secs(3);
/// Silence that the user is told of.
pub(crate) const LONG_SILENCE: Span = Span::secs(10);

/// Cookies: what an answer tells and only its receiver can repeat.
#[derive(Debug)]
struct Cookies {
    keys: [u64; 2],
}

impl Cookies {
    /// A cookie is good for at least as long as this power of two of nanoseconds, 69 s, and at most for
    /// twice as long.
    const AGE_BITS: u32 = 36;

    fn make(&self, age: u64, asker: SocketAddr, intro: &Handshake) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.keys[0], self.keys[1]);
        hasher.write_u64(age);
        match asker.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write_u16(asker.port());
        hasher.write_u32(intro.instance);
        hasher.write_u64(intro.nonce);
        hasher.finish()
    }

    fn bake(&self, now: Time, asker: SocketAddr, intro: &Handshake) -> u64 {
        self.make(now.0 >> Self::AGE_BITS, asker, intro)
    }

    fn is_good(&self, now: Time, asker: SocketAddr, intro: &Handshake) -> bool {
        let age = now.0 >> Self::AGE_BITS;
        [age, age.wrapping_sub(1)].iter().any(|age| self.make(*age, asker, intro) == intro.cookie)
    }
}

/// The number of answers that unverified peers may still cause.
#[derive(Debug)]
struct AnswerAllowance {
    left: u64,
    at: Time,
}

impl AnswerAllowance {
    fn take(&mut self, now: Time) -> bool {
        let earned = now.since(self.at).0 / (1_000_000_000 / ANSWERS_A_SECOND);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.at = now;
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// The reaction to a peer that does not know this endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownReply {
    /// We are being introduced.
    Wait,
    /// It knows us by now: contexts go on.
    GoOn,
    /// It has forgotten us, and is asked again.
    Forget,
}

/// A peer that does not answer the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SilentPeer {
    /// It has not answered for so long, and will be asked again.
    For(PeerId, Span),
    /// It has said for so long that its user has not named us, and will be asked again.
    Unlisted(PeerId, Span),
    /// For as long as anybody waits: this is what its operations come to.
    ForGood(PeerId, OpError),
}

/// The paths on which a handshake packet leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandshakePaths {
    /// One of those that serve as a rule.
    Near,
    /// One of any set: those may be dead, however many there are ([`entropy_count`]).
    Wide,
}

/// A handshake that this endpoint began.
#[derive(Debug)]
struct PendingHandshake {
    nonce: u64,
    /// What the answer told, once it is here; then it is confirmed until the peer welcomes us.
    cookie: Option<u64>,
    since: Time,
    next: Time,
    wait: Span,
    /// Which paths it is asked on.
    reach: HandshakePaths,
    /// That it takes long was told.
    told: bool,
    /// It answers that its user has not named us.
    unlisted: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Handshakes {
    cookies: Cookies,
    random: SecretRng,
    allowance: AnswerAllowance,
    asking: BTreeMap<PeerId, PendingHandshake>,
    /// Not later than the next question.
    due: Option<Time>,
    out: VecDeque<(SocketAddr, Handshake, HandshakePaths)>,
    repeats: RecentQuestions,
    /// Those for which there was no room, not yet counted.
    dropped: u64,
}

impl Handshakes {
    pub(crate) fn new(mut random: SecretRng) -> Self {
        let keys = [random.next_u64(), random.next_u64()];
        Self {
            cookies: Cookies { keys },
            random,
            allowance: AnswerAllowance { left: BURST, at: Time::ZERO },
            asking: BTreeMap::new(),
            due: None,
            out: VecDeque::new(),
            repeats: RecentQuestions::new(),
            dropped: 0,
        }
    }

    /// What this endpoint says of itself.
    const fn about_us(config: &Config, stage: Stage) -> Handshake {
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
            capabilities: 0,
            proof: [0; 16],
        }
    }

    fn send(&mut self, to: SocketAddr, intro: Handshake, reach: HandshakePaths) {
        if self.out.len() < MAX_OUT {
            self.out.push_back((to, intro, reach));
        } else {
            self.dropped += 1;
        }
    }

    /// Packets that found no room since this was asked last. Questions among them are repeated.
    #[inline]
    pub(crate) const fn take_dropped(&mut self) -> u64 {
        core::mem::replace(&mut self.dropped, 0)
    }

    /// The next packet to send, to whom, and on which of `paths` or of their further sets: one that does not arrive is
    /// repeated on another.
    #[inline]
    pub(crate) fn next(&mut self, paths: u16) -> Option<(SocketAddr, Handshake, u16)> {
        let (to, intro, reach) = self.out.pop_front()?;
        let all = match reach {
            HandshakePaths::Wide => entropy_count(paths),
            HandshakePaths::Near => paths.max(1),
        };
        // Fewer than 65536.
        Some((to, intro, (self.random.next_u32() % u32::from(all)) as u16))
    }

    /// Answers a stranger, at the address from which it asked.
    fn answer(&mut self, to: SocketAddr, intro: Handshake) {
        let reach = if self.repeats.is_frequent(intro.nonce) {
            HandshakePaths::Wide
        } else {
            HandshakePaths::Near
        };
        self.send(to, intro, reach);
    }

    // Asking.

    /// Asks a peer to be introduced, if that is not under way.
    pub(crate) fn ask(&mut self, now: Time, config: &Config, peer: PeerId, state: &PeerState) {
        if self.asking.get(&peer).is_some_and(|asking| asking.cookie.is_none()) {
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
            told: false,
            unlisted: false,
        };
        self.due = Some(self.due.map_or(asking.next, |due| due.min(asking.next)));
        self.question(config, &asking, state);
        self.asking.insert(peer, asking);
    }

    /// Sends what the peer is to answer.
    fn question(&mut self, config: &Config, asking: &PendingHandshake, state: &PeerState) {
        let stage = if asking.cookie.is_some() { Stage::Confirm } else { Stage::Hello };
        let expected = state.expected().map_or(0, Instance::get);
        let (nonce, cookie) = (asking.nonce, asking.cookie.unwrap_or(0));
        let mut intro = Handshake { nonce, cookie, expected, ..Self::about_us(config, stage) };
        if let (Some(key), Some(answerer), Stage::Confirm) = (&config.key, state.instance(), stage)
        {
            let exchange = Transcript::new(config.instance, answerer, &intro);
            intro.proof = exchange.prove(key, Purpose::Confirm);
        }
        self.send(state.addr(), intro, asking.reach);
    }

    /// The peer that answers a question of ours, if it is its nonce.
    fn answered(&self, peers: &Peers, from: SocketAddr, nonce: u64) -> Option<PeerId> {
        let asked = |peer: &PeerId| self.asking.get(peer).is_some_and(|it| it.nonce == nonce);
        peers.at(from).find(asked)
    }

    /// Whether a peer's challenge is the first to our question.
    fn is_open(&self, peer: PeerId) -> bool {
        self.asking.get(&peer).is_some_and(|asking| asking.cookie.is_none())
    }

    /// Repeats the cookie of a peer's challenge, now and until it welcomes us.
    fn confirm(
        &mut self,
        now: Time,
        config: &Config,
        (peer, state): (PeerId, &PeerState),
        cookie: u64,
    ) {
        let Some(mut asking) = self.asking.remove(&peer) else { return };
        (asking.cookie, asking.wait, asking.next) = (Some(cookie), FIRST_WAIT, now + FIRST_WAIT);
        self.due = Some(self.due.map_or(asking.next, |due| due.min(asking.next)));
        self.question(config, &asking, state);
        self.asking.insert(peer, asking);
    }

    /// The peer answered a packet that was sent at `sent_at` by saying that it does not know us.
    ///
    /// What was to introduce us may have been overtaken by that packet. Only a packet that was sent so long
    /// after our welcome that nothing of before is under way any more tells that the peer has forgotten us:
    /// contexts begin anew after that, and what the peer had taken would be taken twice.
    pub(crate) fn on_unknown(
        &mut self,
        now: Time,
        config: &Config,
        (peer, state): (PeerId, &PeerState),
        sent_at: Time,
    ) -> UnknownReply {
        if let Some(asking) = self.asking.remove(&peer) {
            if asking.cookie.is_some() {
                self.question(config, &asking, state);
            }
            self.asking.insert(peer, asking);
            return UnknownReply::Wait;
        }
        if sent_at < state.welcomed() + LIFETIME {
            return UnknownReply::GoOn;
        }
        self.ask(now, config, peer, state);
        UnknownReply::Forget
    }

    /// A peer does not want to know us yet: it is asked again, from the beginning.
    fn put_off(&mut self, peer: PeerId) {
        if let Some(asking) = self.asking.get_mut(&peer) {
            (asking.unlisted, asking.cookie) = (true, None);
        }
    }

    /// Whether a peer's answer is that its user has not named us.
    pub(crate) fn is_unlisted(&self, peer: PeerId) -> bool {
        self.asking.get(&peer).is_some_and(|asking| asking.unlisted)
    }

    /// Peers that are asked.
    pub(crate) fn asked(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.asking.keys().copied()
    }

    /// There is nothing more to ask of a peer.
    fn stop(&mut self, peer: PeerId) {
        self.asking.remove(&peer);
    }

    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Nobody was here to hear answers for `absent`, until now.
    pub(crate) fn excuse(&mut self, now: Time, absent: Span) {
        for asking in self.asking.values_mut() {
            asking.since = (asking.since + absent).min(now);
        }
    }

    /// Time passed: repeats questions. A peer that has not answered for `deadline`, or for a shorter time when
    /// its host says that nobody is there, or that has not for long, once, if there is one; then call it again.
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
            let refused = state.trouble().is_some_and(|trouble| trouble.is_refusal());
            let patience = if refused { deadline.min(REFUSED_PATIENCE) } else { deadline };
            if now.since(asking.since) >= patience {
                if asking.cookie.is_none() {
                    let error =
                        if asking.unlisted { OpError::NotListed } else { OpError::Unreachable };
                    return Some(SilentPeer::ForGood(peer, error));
                }
                // It answered, and whether it takes contexts they will tell.
                continue;
            }
            asking.wait = (asking.wait * 2).min(LONGEST_WAIT);
            asking.next = now + asking.wait;
            if asking.wait >= LONG_WAIT {
                asking.reach = HandshakePaths::Wide;
            }
            self.question(config, &asking, state);
            let silent = now.since(asking.since);
            let tell = silent >= LONG_SILENCE && asking.cookie.is_none() && !asking.told;
            asking.told |= tell;
            let unlisted = asking.unlisted;
            self.asking.insert(peer, asking);
            if tell {
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

    // Answering.

    /// Whether a stranger may be answered now.
    pub(crate) fn may_answer(&mut self, now: Time) -> bool {
        self.allowance.take(now)
    }

    /// Whether a stranger may be introduced; one that may not is told why.
    fn accepts(&mut self, config: &Config, asker: SocketAddr, intro: &Handshake) -> bool {
        let reason = if intro.version != WIRE_VERSION {
            Reason::Version
        } else if intro.job_id != config.job_id {
            Reason::Job
        } else {
            return true;
        };
        self.refuse(config, asker, intro, reason);
        false
    }

    /// Tells an endpoint why it is not introduced.
    fn refuse(&mut self, config: &Config, asker: SocketAddr, intro: &Handshake, reason: Reason) {
        let us = Self::about_us(config, Stage::Refuse);
        self.answer(asker, Handshake { reason, nonce: intro.nonce, ..us });
    }

    /// Tells a stranger a cookie.
    fn challenge(&mut self, now: Time, config: &Config, asker: SocketAddr, intro: &Handshake) {
        let cookie = self.cookies.bake(now, asker, intro);
        let us = Self::about_us(config, Stage::Challenge);
        let (nonce, expected) = (intro.nonce, intro.instance);
        let mut answer = Handshake { nonce, cookie, expected, ..us };
        if let (Some(key), Some(instance)) = (&config.key, Instance::new(intro.instance)) {
            let exchange = Transcript::new(instance, config.instance, &answer);
            answer.proof = exchange.prove(key, Purpose::Answer);
        }
        self.answer(asker, answer);
    }

    /// Whether somebody who confirms has received our challenge at the address it gives.
    fn is_proven(&self, now: Time, asker: SocketAddr, intro: &Handshake) -> bool {
        self.cookies.is_good(now, asker, intro)
    }

    /// Welcomes an endpoint that was introduced.
    fn welcome(&mut self, config: &Config, asker: SocketAddr, intro: &Handshake) {
        let us = Self::about_us(config, Stage::Welcome);
        let (nonce, expected) = (intro.nonce, intro.instance);
        self.answer(asker, Handshake { nonce, expected, ..us });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(seed: u8) -> (Handshakes, Config) {
        let instance = Instance::new(u32::from(seed) + 1).expect("not 0");
        let config = Config::new(instance, crate::base::Seed::new([seed; 32]));
        (Handshakes::new(SecretRng::from_seed([seed; 32])), config)
    }

    const ASKER: SocketAddr =
        SocketAddr::new(IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2)), 5000);

    #[test]
    fn a_cookie_is_good_for_its_asker_and_for_a_while() {
        let (part, config) = part(1);
        let hello = Handshake { nonce: 9, ..Handshakes::about_us(&config, Stage::Hello) };
        let now = Time(1 << 40);
        let cookie = part.cookies.bake(now, ASKER, &hello);
        let confirm = Handshake { cookie, ..hello };
        assert!(part.is_proven(now, ASKER, &confirm));
        assert!(part.is_proven(now + Span::secs(68), ASKER, &confirm));
        assert!(!part.is_proven(now + Span::secs(140), ASKER, &confirm));
        let mut other = ASKER;
        other.set_port(5001);
        assert!(!part.is_proven(now, other, &confirm));
        let elsewhere = SocketAddr::from(([10, 0, 0, 3], 5000));
        assert!(!part.is_proven(now, elsewhere, &confirm));
        for bad in [
            Handshake { nonce: 8, ..confirm },
            Handshake { instance: 77, ..confirm },
            Handshake { cookie: cookie ^ 1, ..confirm },
            Handshake { cookie: 0, ..confirm },
        ] {
            assert!(!part.is_proven(now, ASKER, &bad));
        }
    }

    #[test]
    fn questions_are_repeated_ever_more_rarely_until_patience_ends() {
        let (mut part, config) = part(1);
        let mut peers = Peers::new(1400);
        let (peer, _) = peers.resolve(ASKER, None);
        let mut now = Time(1_000_000);
        let begin = now;
        part.ask(now, &config, peer, peers.get(peer));
        part.ask(now, &config, peer, peers.get(peer));
        let (mut questions, mut told) = (0, Vec::new());
        let lost = loop {
            while let Some((to, intro, _)) = part.next(8) {
                assert_eq!((to, intro.stage), (ASKER, Stage::Hello));
                questions += 1;
            }
            now = part.deadline().expect("it goes on");
            match part.handle_timeout(now, &config, &peers, Span::secs(12)) {
                Some(SilentPeer::ForGood(peer, OpError::Unreachable)) => break peer,
                Some(SilentPeer::ForGood(..)) => panic!("it is not there"),
                Some(SilentPeer::For(silent, since)) => told.push((silent, since)),
                Some(SilentPeer::Unlisted(..)) => panic!("nobody said so"),
                None => {}
            }
        };
        assert_eq!((lost, questions), (peer, 19));
        let [(silent, since)] = told[..] else { panic!("{told:?}") };
        assert!(silent == peer && since >= LONG_SILENCE && since <= Span::secs(11));
        let took = now.since(begin);
        assert!(took >= Span::secs(12) && took <= Span::secs(13), "{took:?}");
        assert!(!part.is_open(peer));
    }

    #[test]
    fn strangers_cause_a_bounded_number_of_answers() {
        let mut allowance = AnswerAllowance { left: BURST, at: Time::ZERO };
        let taken = (0..10 * BURST).filter(|_| allowance.take(Time(5))).count() as u64;
        assert_eq!(taken, BURST);
        let later = Time(5) + Span::millis(10);
        let taken = (0..10 * BURST).filter(|_| allowance.take(later)).count() as u64;
        assert_eq!(taken, ANSWERS_A_SECOND / 100);
    }
}
