//! Peer endpoints: who they are, by address and instance, and what is known of them.

use core::net::{IpAddr, SocketAddr};
use std::collections::{HashMap, HashSet};

use crate::api::{PeerId, Trouble};
use crate::base::{Instance, Span, Time};
use crate::config::Config;
use crate::path_sizes::PathSizes;

/// The time between two reports that a peer is silent.
const REPEAT_SILENCE: Span = Span::secs(60);

/// What is known of a peer.
#[derive(Debug)]
pub struct PeerState {
    addr: SocketAddr,
    /// The instance that the user means; `None` for whoever is at the address.
    expected: Option<Instance>,
    /// The instance that was introduced.
    instance: Option<Instance>,
    last_rx: Time,
    trouble: Option<Trouble>,
    /// When its host last said that nobody listens there.
    refused: Time,
    /// The time at which the peer's silence is to be reported again, if the peer stays silent.
    silence_told: Time,
    /// When it was last introduced to us, or we to it.
    welcomed: Time,
    /// Its process is known to have died, although nothing was asked of it then.
    died: bool,
    /// The time at which the peer last closed a channel in the way of an endpoint that closes.
    parted: Option<Time>,
    /// Another instance at the same address.
    sibling: Option<PeerId>,
    standing: PeerOrigin,
}

/// The time for which packets of a peer that has closed its endpoint may still arrive.
const STRAGGLERS: Span = Span::secs(1);

/// The way in which a peer came here, and whether it may be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerOrigin {
    /// The user means it.
    Named,
    /// The user meant it once.
    Unnamed,
    /// It came by itself.
    Stranger,
    /// It is forgotten, and its place is free.
    Forgotten,
}

impl PeerState {
    /// Its address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The instance that is there, or was meant; `None` while nobody knows.
    #[must_use]
    pub fn instance(&self) -> Option<Instance> {
        self.instance.or(self.expected)
    }

    /// The instance that the user means.
    pub(crate) const fn expected(&self) -> Option<Instance> {
        self.expected
    }

    /// Whether the user means it now.
    pub(crate) fn is_named(&self) -> bool {
        self.standing == PeerOrigin::Named
    }

    /// Whether anything it sent was ever believed.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.last_rx > Time::ZERO
    }

    /// The last thing the network said about its reachability.
    #[must_use]
    pub const fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// When something it sent was last believed.
    pub(crate) const fn last_rx(&self) -> Time {
        self.last_rx
    }

    /// Something it sent was believed. True when that was the first time.
    #[inline]
    pub(crate) fn note_rx(&mut self, now: Time) -> bool {
        self.silence_told = Time::ZERO;
        core::mem::replace(&mut self.last_rx, now) == Time::ZERO
    }

    /// Whether its host said, after all that was heard of it, that nobody listens there.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused > self.last_rx
    }

    /// Returns whether the peer's silence is to be reported now: when it begins, and then once a minute.
    pub(crate) fn tell_silence(&mut self, now: Time) -> bool {
        let due = self.silence_told <= now;
        if due {
            self.silence_told = now + REPEAT_SILENCE;
        }
        due
    }

    /// Whether anybody was introduced from its address.
    pub(crate) const fn is_met(&self) -> bool {
        self.instance.is_some()
    }

    /// Whether a request's `initiator` field names the instance that was introduced.
    #[inline]
    pub(crate) fn is_instance(&self, who: Initiator) -> bool {
        who.port == self.addr.port() && self.instance.is_some_and(|it| it.tag() == who.tag)
    }

    /// An instance has proven that it is at this address.
    pub(crate) fn meet(&mut self, instance: Instance) -> PeerInstance {
        if self.expected.is_some_and(|expected| expected != instance) {
            return PeerInstance::Impostor;
        }
        if self.instance.is_some_and(|known| known != instance) {
            return PeerInstance::Successor;
        }
        self.instance = Some(instance);
        self.trouble = None;
        self.died = false;
        self.parted = None;
        PeerInstance::Known
    }

    /// We were introduced.
    pub(crate) fn note_welcome(&mut self, now: Time) {
        self.welcomed = now;
    }

    /// When we were last introduced.
    pub(crate) const fn welcomed(&self) -> Time {
        self.welcomed
    }

    /// Whoever was there is gone, as far as we know.
    pub(crate) fn part(&mut self) {
        self.instance = None;
        self.last_rx = Time::ZERO;
    }

    /// Records that the peer closed a channel in the way of an endpoint that closes.
    pub(crate) fn note_parting(&mut self, now: Time) {
        self.parted = Some(now);
    }

    /// Returns whether the peer closed its endpoint in good order, as far as this endpoint knows: since then it
    /// received nothing from the peer except packets that were already in flight.
    #[must_use]
    pub fn has_parted(&self) -> bool {
        self.parted.is_some_and(|at| self.last_rx <= at + STRAGGLERS)
    }

    /// Its process has died. Known until somebody is met there.
    pub(crate) fn die(&mut self) {
        self.died = true;
    }

    /// Whether its process is known to have died, and nobody was met there since.
    pub(crate) const fn is_dead(&self) -> bool {
        self.died
    }
}

/// The instance that answers at the address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerInstance {
    /// The instance we knew, or the first.
    Known,
    /// Another instance than the one we know, which must [`PeerState::part`] first.
    Successor,
    /// Not the instance that the user means.
    Impostor,
}

/// The `initiator` field of a request: the low half of the instance's number above, UDP port below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Initiator {
    pub(crate) port: u16,
    pub(crate) tag: u16,
}

impl Initiator {
    #[inline]
    pub(crate) const fn from_field(field: u32) -> Self {
        Self { port: (field & 0xffff) as u16, tag: (field >> 16) as u16 }
    }

    #[inline]
    pub(crate) const fn field(self) -> u32 {
        (self.tag as u32) << 16 | self.port as u32
    }
}

/// All peers of an endpoint.
#[derive(Debug)]
pub struct Peers {
    states: Vec<PeerState>,
    /// Places in `states` of those that were forgotten.
    free: Vec<PeerId>,
    /// The newest peer at an address; the others hang on it.
    by_addr: HashMap<SocketAddr, PeerId>,
    hosts: Hosts,
    strangers: PeerCounts,
    /// The addresses that the application has inserted. It may never talk to many of them.
    roll: HashSet<SocketAddr>,
    /// What the paths to the hosts carry.
    pub(crate) paths: PathSizes,
}

/// Peers that may come by themselves, so that who has many addresses does not take all memory. Those that the
/// user names do not count.
const MAX_STRANGERS: u32 = 1 << 16;
/// So many may stay although they are of no use.
const FEW_STRANGERS: u32 = 1 << 10;
/// Silence after which a stranger that is of no use may be forgotten: longer than a cookie is good for, so that
/// no introduction of before can be repeated.
const FORGET_AFTER: Span = Span::secs(140);
/// Between two looks at who may be forgotten.
const LOOK_EVERY: Span = Span::secs(1);

/// The number of peers that the user does not mean, which came by themselves, and of the others.
#[derive(Debug)]
struct PeerCounts {
    count: u32,
    /// Peers that the user meant once.
    unnamed: u32,
    /// At how many of both it is worth to look whom to forget: twice as many as stayed the last time.
    look_at: u32,
    /// When that was.
    looked: Time,
    /// Changes when peers were forgotten.
    epoch: u64,
}

impl PeerCounts {
    /// One that had this standing has another one now.
    fn leave(&mut self, standing: PeerOrigin) {
        match standing {
            PeerOrigin::Stranger => self.count -= 1,
            PeerOrigin::Unnamed => self.unnamed -= 1,
            PeerOrigin::Named | PeerOrigin::Forgotten => {}
        }
    }
}

/// Hosts by number, for congestion control, and how many peers live there.
#[derive(Debug, Default)]
struct Hosts {
    by_ip: HashMap<IpAddr, (u32, u32)>,
    next: u32,
}

impl Hosts {
    /// A peer lives at a host: the host's number.
    fn enter(&mut self, ip: IpAddr) -> u32 {
        let (number, peers) = self.by_ip.entry(ip).or_insert_with(|| {
            let number = self.next;
            // After 2^32 hosts two may share what is known of a path.
            self.next = self.next.wrapping_add(1);
            (number, 0)
        });
        *peers += 1;
        *number
    }

    /// A peer of a host is forgotten. Whether it was the last.
    fn leave(&mut self, ip: IpAddr) -> bool {
        let Some((_, peers)) = self.by_ip.get_mut(&ip) else { return false };
        *peers -= 1;
        let last = *peers == 0;
        if last {
            self.by_ip.remove(&ip);
        }
        last
    }
}

impl Peers {
    /// None yet; packets to them have `max_packet` bytes at most.
    pub(crate) fn new(max_packet: u32) -> Self {
        Self {
            states: Vec::new(),
            free: Vec::new(),
            by_addr: HashMap::new(),
            hosts: Hosts::default(),
            roll: HashSet::new(),
            strangers: PeerCounts {
                count: 0,
                unnamed: 0,
                look_at: FEW_STRANGERS,
                looked: Time::ZERO,
                epoch: 0,
            },
            paths: PathSizes::new(max_packet),
        }
    }

    /// The newest peer with this address, if one is known.
    #[must_use]
    pub fn find(&self, addr: SocketAddr) -> Option<PeerId> {
        self.by_addr.get(&addr).copied()
    }

    /// Whether any peer lives at this address.
    pub(crate) fn has_host(&self, ip: IpAddr) -> bool {
        self.hosts.by_ip.contains_key(&ip)
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// One more than the largest number of a peer.
    pub(crate) const fn places(&self) -> usize {
        self.states.len()
    }

    /// Changes when peers were forgotten: their [`PeerId`]s may be others' from then on.
    #[must_use]
    #[inline]
    pub const fn epoch(&self) -> u64 {
        self.strangers.epoch
    }

    /// What is known of a peer.
    ///
    /// # Panics
    /// When `peer` is not one of this engine's.
    #[must_use]
    #[inline]
    pub fn get(&self, peer: PeerId) -> &PeerState {
        &self.states[peer.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, peer: PeerId) -> &mut PeerState {
        &mut self.states[peer.0 as usize]
    }

    /// Returns whether a peer is outside the job: the application has not inserted its address, and the peer has not
    /// proved in the handshake that it knows a job key.
    #[inline]
    pub(crate) fn is_outside(&self, config: &Config, peer: PeerId) -> bool {
        config.key.is_none() && !self.get(peer).is_named()
    }

    /// All peers with this address, the newest first.
    pub(crate) fn at(&self, addr: SocketAddr) -> impl Iterator<Item = PeerId> + '_ {
        std::iter::successors(self.find(addr), |peer| self.get(*peer).sibling)
    }

    /// The peer that has introduced itself as `who` from a host.
    pub(crate) fn introduced(&self, ip: IpAddr, who: Initiator) -> Option<PeerId> {
        self.at(SocketAddr::new(ip, who.port)).find(|peer| self.get(*peer).is_instance(who))
    }

    /// The peer that `instance` at `addr` is, or may be if nobody was met there yet: one that the user
    /// means, before one that may be anybody.
    pub(crate) fn is_or_may_be(&self, addr: SocketAddr, instance: Instance) -> Option<PeerId> {
        let named = |peer: &PeerId| self.get(*peer).instance() == Some(instance);
        let nobody = |peer: &PeerId| self.get(*peer).instance().is_none();
        self.at(addr).find(named).or_else(|| self.at(addr).find(nobody))
    }

    /// The peer at `addr` that may be anybody.
    pub(crate) fn anybody(&self, addr: SocketAddr) -> Option<PeerId> {
        self.at(addr).find(|peer| self.get(*peer).expected.is_none())
    }

    /// Finds or adds the peer that the user means; the number of its host when it is new.
    pub(crate) fn resolve(
        &mut self,
        addr: SocketAddr,
        expected: Option<Instance>,
    ) -> (PeerId, Option<u32>) {
        let known = match expected {
            None => self.find(addr),
            Some(instance) => self.is_or_may_be(addr, instance),
        };
        let Some(peer) = known else {
            let (peer, host) = self.add(addr, expected, PeerOrigin::Named);
            return (peer, Some(host));
        };
        let state = self.get_mut(peer);
        if expected.is_some() {
            state.expected = expected;
        }
        let before = core::mem::replace(&mut state.standing, PeerOrigin::Named);
        self.strangers.leave(before);
        (peer, None)
    }

    /// Adds addresses that the application has inserted to those that are known already, or replaces these if `anew` is
    /// set. Returns the peers at these addresses that were not named before.
    pub(crate) fn enroll(
        &mut self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        anew: bool,
    ) -> Vec<PeerId> {
        if anew {
            self.roll.clear();
        }
        let mut fresh = Vec::new();
        for addr in addresses {
            self.roll.insert(addr);
            let mut next = self.find(addr);
            while let Some(peer) = next {
                let state = self.get_mut(peer);
                next = state.sibling;
                let before = core::mem::replace(&mut state.standing, PeerOrigin::Named);
                if before != PeerOrigin::Named {
                    self.strangers.leave(before);
                    fresh.push(peer);
                }
            }
        }
        fresh
    }

    /// Whether the user means the instance at an address, or whoever is there.
    pub(crate) fn is_named(&self, addr: SocketAddr, instance: Instance) -> bool {
        self.at(addr).map(|peer| self.get(peer)).any(|state| {
            state.is_named() && state.expected.is_none_or(|expected| expected == instance)
        })
    }

    /// The user means nobody any more. Whom it meant.
    pub(crate) fn unname_all(&mut self) -> Vec<PeerId> {
        let named = self.which(PeerState::is_named);
        for peer in &named {
            self.get_mut(*peer).standing = PeerOrigin::Unnamed;
        }
        // Fewer than 2^32, as `add` sees to.
        self.strangers.unnamed += named.len() as u32;
        named
    }

    /// Whether there are so many whom the user does not mean that it is time to look whom to forget.
    pub(crate) fn should_forget(&mut self, now: Time) -> bool {
        let strangers = &mut self.strangers;
        let many = strangers.count + strangers.unnamed >= strangers.look_at
            || strangers.count >= MAX_STRANGERS - 1;
        let due = many && now.since(strangers.looked) >= LOOK_EVERY;
        if due {
            strangers.looked = now;
        }
        due
    }

    /// Forgets those that the user does not mean, that were silent for long, and whose number is not among
    /// `used`. Returns them, and the hosts where nobody is left.
    pub(crate) fn forget(&mut self, now: Time, used: &[bool]) -> (Vec<PeerId>, Vec<IpAddr>) {
        let is_used = |peer: &PeerId| used.get(peer.0 as usize).copied().unwrap_or(false);
        let idle = |state: &PeerState| now.since(state.last_rx.max(state.welcomed)) >= FORGET_AFTER;
        let mut gone = self.which(|state| {
            matches!(state.standing, PeerOrigin::Unnamed | PeerOrigin::Stranger) && idle(state)
        });
        gone.retain(|peer| !is_used(peer));
        let mut left = Vec::new();
        for peer in &gone {
            let (addr, sibling) = (self.get(*peer).addr, self.get(*peer).sibling);
            self.unlink(addr, *peer, sibling);
            if self.hosts.leave(addr.ip()) {
                left.push(addr.ip());
            }
            let before =
                core::mem::replace(&mut self.get_mut(*peer).standing, PeerOrigin::Forgotten);
            self.strangers.leave(before);
        }
        self.strangers.epoch += u64::from(!gone.is_empty());
        let stayed = self.strangers.count + self.strangers.unnamed;
        self.strangers.look_at = (stayed * 2).max(FEW_STRANGERS);
        self.free.extend(&gone);
        (gone, left)
    }

    /// Takes a peer, on which `sibling` hangs, out of those at its address.
    fn unlink(&mut self, addr: SocketAddr, peer: PeerId, sibling: Option<PeerId>) {
        let before = self.at(addr).find(|other| self.get(*other).sibling == Some(peer));
        match (before, sibling) {
            (Some(before), _) => self.get_mut(before).sibling = sibling,
            (None, Some(sibling)) => {
                self.by_addr.insert(addr, sibling);
            }
            (None, None) => {
                self.by_addr.remove(&addr);
            }
        }
    }

    /// Adds a peer that contacted this endpoint by itself. Returns the peer and the number of its host, or `None` when
    /// there are too many such peers. A peer whose address the application has inserted does not count towards that
    /// limit.
    pub(crate) fn add_stranger(&mut self, addr: SocketAddr) -> Option<(PeerId, u32)> {
        if self.roll.contains(&addr) {
            return Some(self.add(addr, None, PeerOrigin::Named));
        }
        if self.strangers.count >= MAX_STRANGERS {
            return None;
        }
        self.strangers.count += 1;
        Some(self.add(addr, None, PeerOrigin::Stranger))
    }

    /// Adds a peer; also the number of its host.
    fn add(
        &mut self,
        addr: SocketAddr,
        expected: Option<Instance>,
        standing: PeerOrigin,
    ) -> (PeerId, u32) {
        let fresh = || PeerId(u32::try_from(self.states.len()).expect("fewer than 2^32 peers"));
        let peer = self.free.pop().unwrap_or_else(fresh);
        let sibling = self.by_addr.insert(addr, peer);
        let state = PeerState {
            addr,
            expected,
            instance: None,
            last_rx: Time::ZERO,
            trouble: None,
            refused: Time::ZERO,
            silence_told: Time::ZERO,
            died: false,
            parted: None,
            welcomed: Time::ZERO,
            sibling,
            standing,
        };
        match self.states.get_mut(peer.0 as usize) {
            Some(place) => *place = state,
            None => self.states.push(state),
        }
        (peer, self.hosts.enter(addr.ip()))
    }

    /// All of them.
    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.which(|state| state.standing != PeerOrigin::Forgotten)
    }

    /// Returns the other known peers at the address of a host, the most recently heard one first.
    pub(crate) fn others_at(&self, host: IpAddr, peer: PeerId) -> Vec<PeerId> {
        let at = |state: &PeerState| {
            state.addr.ip() == host && state.standing != PeerOrigin::Forgotten && !state.died
        };
        let mut others = self.which(at);
        others.retain(|other| *other != peer);
        others.sort_by_key(|other| core::cmp::Reverse(self.get(*other).last_rx));
        others
    }

    fn which(&self, wanted: impl Fn(&PeerState) -> bool) -> Vec<PeerId> {
        // Fewer than 2^32, as `add` sees to.
        let all = (0..self.states.len() as u32).map(PeerId);
        all.filter(|peer| wanted(self.get(*peer))).collect()
    }

    /// The network said that a destination cannot be reached. Only remembered: an ICMP message can be
    /// forged, and a peer that is not there yet may come.
    pub(crate) fn note_trouble(&mut self, now: Time, trouble: Trouble) {
        let mut next = self.find(trouble.peer);
        while let Some(peer) = next {
            let state = self.get_mut(peer);
            state.trouble = Some(trouble);
            if trouble.is_refusal() {
                state.refused = now;
            }
            next = state.sibling;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(number: u32) -> Instance {
        Instance::new(number).expect("not 0")
    }

    #[test]
    fn whoever_is_there_may_be_followed_by_another() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (peer, host) = peers.resolve(addr, None);
        assert_eq!((peers.find(addr), host), (Some(peer), Some(0)));
        let neighbour = peers.resolve(SocketAddr::from(([10, 0, 0, 1], 8)), None);
        assert_eq!(neighbour.1, Some(0), "one host");
        let who = Initiator { port: 7, tag: 3 };
        assert_eq!(peers.introduced(addr.ip(), who), None);
        assert_eq!(peers.is_or_may_be(addr, instance(3)), Some(peer));
        assert_eq!(peers.get_mut(peer).meet(instance(3)), PeerInstance::Known);
        assert_eq!(peers.get_mut(peer).meet(instance(3)), PeerInstance::Known);
        assert_eq!(peers.introduced(addr.ip(), who), Some(peer));
        assert_eq!(peers.is_or_may_be(addr, instance(4)), None);
        assert_eq!(peers.anybody(addr), Some(peer));
        assert_eq!(peers.get_mut(peer).meet(instance(4)), PeerInstance::Successor);
        assert_eq!(peers.introduced(addr.ip(), who), Some(peer), "until it has parted");
        peers.get_mut(peer).part();
        assert_eq!(peers.get_mut(peer).meet(instance(4)), PeerInstance::Known);
        assert_eq!(peers.introduced(addr.ip(), who), None);
        let state = peers.get_mut(peer);
        assert!(!state.is_instance(Initiator { port: 8, tag: 4 }));
        assert!(state.note_rx(Time(5)) && !state.note_rx(Time(6)) && state.has_answered());
        state.part();
        assert!(!state.has_answered());
        assert_eq!(state.meet(instance(9)), PeerInstance::Known);
    }

    #[test]
    fn strangers_take_a_bounded_number_of_places() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        assert!((0..MAX_STRANGERS).all(|n| peers.add_stranger(addr(n)).is_some()));
        assert_eq!(peers.add_stranger(addr(MAX_STRANGERS)), None);
        assert!(peers.resolve(addr(MAX_STRANGERS), None).1.is_some(), "who is named has a place");
    }

    #[test]
    fn strangers_of_no_use_are_forgotten_and_their_places_are_used_again() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        let later = Time::ZERO + FORGET_AFTER;
        for n in 0..FEW_STRANGERS {
            assert!(!peers.should_forget(later));
            let _ = peers.add_stranger(addr(n));
        }
        assert!(peers.should_forget(later) && !peers.should_forget(later), "not all the time");
        // The user means the first, something of the second is in use, the third was heard lately.
        let named = peers.resolve(addr(0), None).0;
        let (used, lively) =
            (peers.find(addr(1)).expect("here"), peers.find(addr(2)).expect("here"));
        let _ = peers.get_mut(lively).note_rx(Time(1));
        let mut uses = vec![false; used.0 as usize + 1];
        uses[used.0 as usize] = true;
        let (epoch, count) = (peers.epoch(), FEW_STRANGERS as usize - 3);
        let (gone, hosts) = peers.forget(later, &uses);
        assert_eq!((gone.len(), hosts.len(), peers.count()), (count, count, 3));
        assert!(![named, used, lively].iter().any(|peer| gone.contains(peer)));
        assert_ne!(peers.epoch(), epoch);
        assert!(!peers.has_host(addr(3).ip()) && peers.find(addr(3)).is_none());
        // Somebody else takes a place, and nothing of the former is left in it.
        let (new, host) = peers.add_stranger(addr(9999)).expect("room");
        assert!(gone.contains(&new) && host >= FEW_STRANGERS);
        assert_eq!(peers.get(new).addr(), addr(9999));
        assert!(!peers.get(new).is_met() && peers.states.len() == FEW_STRANGERS as usize);
    }

    #[test]
    fn those_that_the_user_meant_once_are_forgotten_as_well() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        let later = Time::ZERO + FORGET_AFTER;
        for n in 0..FEW_STRANGERS {
            let _ = peers.resolve(addr(n), None);
        }
        assert!(!peers.should_forget(later), "they are meant");
        assert_eq!(peers.unname_all().len(), FEW_STRANGERS as usize);
        let _ = peers.resolve(addr(0), None);
        assert!(!peers.should_forget(later), "one is again");
        let _ = peers.add_stranger(addr(9999));
        assert!(peers.should_forget(later));
        let (gone, _) = peers.forget(later, &[]);
        assert_eq!((gone.len(), peers.count()), (FEW_STRANGERS as usize, 1));
        assert_eq!((peers.strangers.count, peers.strangers.unnamed), (0, 0));
    }

    #[test]
    fn of_two_at_an_address_the_one_of_no_use_is_forgotten() {
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        for old_goes in [true, false] {
            let mut peers = Peers::new(1400);
            let (old, _) = peers.resolve(addr, Some(instance(1)));
            let (new, _) = peers.resolve(addr, Some(instance(2)));
            let (goes, stays) = if old_goes { (old, new) } else { (new, old) };
            let meant = peers.get(stays).expected();
            peers.unname_all();
            assert!(!peers.is_named(addr, instance(1)) && !peers.is_named(addr, instance(2)));
            assert_eq!(peers.resolve(addr, meant), (stays, None));
            let (gone, hosts) = peers.forget(Time::ZERO + FORGET_AFTER, &[]);
            assert_eq!((gone, hosts), (vec![goes], vec![]));
            assert_eq!(peers.at(addr).collect::<Vec<_>>(), [stays]);
            assert!(peers.is_named(addr, meant.expect("it was given")));
        }
    }

    #[test]
    fn instances_that_the_user_tells_apart_are_peers_of_their_own() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (old, _) = peers.resolve(addr, Some(instance(1)));
        let (new, host) = peers.resolve(addr, Some(instance(2)));
        assert!(old != new && host == Some(0));
        assert_eq!(peers.resolve(addr, Some(instance(1))), (old, None));
        assert_eq!(peers.resolve(addr, None), (new, None), "the newest");
        assert_eq!(peers.get_mut(old).meet(instance(2)), PeerInstance::Impostor);
        assert_eq!(peers.get_mut(new).meet(instance(2)), PeerInstance::Known);
        assert_eq!(peers.introduced(addr.ip(), Initiator { port: 7, tag: 2 }), Some(new));
        assert_eq!(peers.anybody(addr), None);
        assert_eq!(peers.is_or_may_be(addr, instance(1)), Some(old));
    }

    #[test]
    fn who_was_met_before_its_address_was_given_is_the_same_peer() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (peer, _) = peers.add_stranger(addr).expect("room");
        let _ = peers.get_mut(peer).meet(instance(5));
        assert_eq!(peers.resolve(addr, Some(instance(5))), (peer, None));
        assert_eq!(peers.get(peer).expected(), Some(instance(5)));
        assert_ne!(peers.resolve(addr, Some(instance(6))).0, peer);
    }
}
