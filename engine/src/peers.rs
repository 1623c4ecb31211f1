//! Peer endpoints, identified by address and instance, and the state kept for them.

use core::net::{IpAddr, SocketAddr};
use std::collections::{HashMap, HashSet};

use crate::base::{Instance, Span, Time};
use crate::config::Config;
use crate::foreign_wire::PeerAddress;
use crate::operation::PeerId;
use crate::path_sizes::PathSizes;

/// The time between two reports that the same peer is silent.
const REPEAT_SILENCE: Span = Span::secs(60);

/// A socket error or ICMP error about a destination, as `net` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestinationError {
    /// Error number of the failed send, or the one that the kernel derives from the ICMP message.
    pub errno: i32,
    /// Address of the destination to which the send failed.
    pub peer: SocketAddr,
}

impl DestinationError {
    /// ECONNREFUSED on Linux: the host answers, but no socket is bound to the port.
    const REFUSED: i32 = 111;

    /// Returns whether the host reported that no socket is bound to the port.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.errno == Self::REFUSED
    }
}

/// The state that this endpoint keeps for a peer.
#[derive(Debug)]
pub struct PeerState {
    addr: SocketAddr,
    /// The fields by which requests name the peer, if it is of another implementation.
    address: PeerAddress,
    /// The instance that the user named; `None` if any instance is accepted.
    expected: Option<Instance>,
    /// The user named the address without an instance: the name means whichever endpoint is there,
    /// and so this peer for as long as the named instance is there.
    any_instance: bool,
    /// Another instance than the named one has answered at the address.
    succeeded: bool,
    /// The instance that proved in the handshake that it is at the peer's address.
    instance: Option<Instance>,
    last_rx: Time,
    destination_error: Option<DestinationError>,
    /// Time at which the host last reported that no socket is bound to the port.
    refused: Time,
    /// The time at which the peer's silence is to be reported again, if the peer stays silent.
    next_silence_report: Time,
    /// Time at which a handshake with the peer was last completed.
    last_handshake: Time,
    /// The peer's last handshake confirmation that this endpoint accepted.
    confirmation: Option<Confirmation>,
    /// The peer's process is known to have died, although no operation waited for it.
    died: bool,
    /// The time at which the peer last closed a channel in the manner of an endpoint that shuts
    /// down.
    closed_at: Option<Time>,
    /// The next older entry for a peer at the same address.
    sibling: Option<PeerId>,
    origin: PeerOrigin,
}

/// Time for which packets of a peer that has closed its endpoint may still arrive.
const STRAGGLERS: Span = Span::secs(1);

/// A handshake confirmation of a peer that was accepted. Each handshake that the peer begins has
/// other values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    pub(crate) nonce: u64,
    pub(crate) cookie: u64,
    /// Time at which this endpoint accepted the confirmation.
    pub(crate) at: Time,
}

/// The way in which a peer became known, which decides whether its entry may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerOrigin {
    /// The user named the peer: an operation is addressed to it, or its address was inserted.
    Named,
    /// The user named the peer earlier, but has replaced the set of names since.
    Unnamed,
    /// The peer contacted this endpoint, and the user never named it.
    Unsolicited,
    /// The entry was evicted, and its place is free for another peer.
    Forgotten,
}

impl PeerState {
    /// Returns the address of the peer.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the fields by which requests name the peer, if it is of another implementation.
    pub(crate) const fn address(&self) -> PeerAddress {
        self.address
    }

    /// Sets the fields by which requests name the peer, which is of another implementation.
    pub(crate) const fn set_address(&mut self, address: PeerAddress) {
        self.address = address;
    }

    /// Returns the verified instance, or else the one that the user named; `None` if neither is
    /// known.
    #[must_use]
    pub fn instance(&self) -> Option<Instance> {
        self.instance.or(self.expected)
    }

    /// Returns the instance that the user named for the peer's address, if any.
    pub(crate) const fn named_instance(&self) -> Option<Instance> {
        self.expected
    }

    /// Returns whether the user names the peer now, in the address vector or as a destination.
    pub(crate) fn is_named(&self) -> bool {
        self.origin == PeerOrigin::Named
    }

    /// Returns whether the peer has sent anything that was accepted since it was last verified.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.last_rx > Time::ZERO
    }

    /// Returns the last report of the network about the peer's reachability.
    #[must_use]
    pub const fn last_destination_error(&self) -> Option<DestinationError> {
        self.destination_error
    }

    /// Returns when a packet of the peer was last accepted; [`Time::ZERO`] if never.
    pub(crate) const fn last_rx(&self) -> Time {
        self.last_rx
    }

    /// Records that a packet of the peer was accepted. Returns true if it was the first.
    #[inline]
    pub(crate) fn record_rx(&mut self, now: Time) -> bool {
        self.next_silence_report = Time::ZERO;
        core::mem::replace(&mut self.last_rx, now) == Time::ZERO
    }

    /// Returns whether the peer's host reported that no socket is bound to the port, and nothing
    /// was heard of the peer since.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused > self.last_rx
    }

    /// Returns whether the peer's host reported at `since` or later that no socket is bound to the
    /// port.
    pub(crate) fn was_refused_since(&self, since: Time) -> bool {
        self.refused >= since && self.refused > Time::ZERO
    }

    /// Returns whether the peer's silence is to be reported now: when it begins, and then once a minute.
    pub(crate) fn should_report_silence(&mut self, now: Time) -> bool {
        let due = self.next_silence_report <= now;
        if due {
            self.next_silence_report = now + REPEAT_SILENCE;
        }
        due
    }

    /// Returns whether an instance at the peer's address is verified.
    pub(crate) const fn is_verified(&self) -> bool {
        self.instance.is_some()
    }

    /// Returns whether a request's `initiator` field names the verified instance.
    #[inline]
    pub(crate) fn is_instance(&self, who: Initiator) -> bool {
        who.port == self.addr.port() && self.instance.is_some_and(|it| it.tag() == who.tag)
    }

    /// Records that an instance has proved that it is at this address, unless it is not the one
    /// that is named or verified.
    pub(crate) fn record_instance(&mut self, instance: Instance) -> PeerInstance {
        self.succeeded = self.expected.is_some_and(|expected| expected != instance);
        if self.succeeded {
            return PeerInstance::Impostor;
        }
        if self.instance.is_some_and(|known| known != instance) {
            return PeerInstance::Successor;
        }
        self.instance = Some(instance);
        self.destination_error = None;
        self.died = false;
        self.closed_at = None;
        PeerInstance::Known
    }

    /// Records that a handshake with the peer was completed.
    pub(crate) fn record_handshake(&mut self, now: Time) {
        self.last_handshake = now;
    }

    /// Records that a handshake confirmation of the peer was accepted.
    pub(crate) fn record_confirmation(&mut self, confirmation: Confirmation) {
        self.confirmation = Some(confirmation);
    }

    /// Returns the time at which a handshake with the peer was last completed.
    pub(crate) const fn last_handshake(&self) -> Time {
        self.last_handshake
    }

    /// Forgets the verified instance of the peer, because that instance is gone.
    pub(crate) fn forget_instance(&mut self) {
        self.instance = None;
        self.last_rx = Time::ZERO;
    }

    /// Records that the peer closed a channel in the manner of an endpoint that shuts down.
    pub(crate) fn record_close(&mut self, now: Time) {
        self.closed_at = Some(now);
    }

    /// Returns whether the peer closed its endpoint in good order, as far as this endpoint knows: since then it
    /// received nothing from the peer except packets that were already in flight.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.closed_at.is_some_and(|at| self.last_rx <= at + STRAGGLERS)
    }

    /// Returns whether the instance that the user named is not at the address any more, as far as this endpoint knows.
    fn is_named_instance_gone(&self) -> bool {
        self.expected.is_some() && (self.succeeded || self.died || self.has_closed())
    }

    /// Records that the peer's process has died. This holds until an instance is verified at the
    /// address.
    pub(crate) fn mark_dead(&mut self) {
        self.died = true;
    }

    /// Returns whether the peer's process is known to have died, and no instance was verified
    /// since.
    pub(crate) const fn is_dead(&self) -> bool {
        self.died
    }
}

/// The instance that answers at the address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerInstance {
    /// The instance that was verified before, or the first one.
    Known,
    /// Another instance than the verified one, which must be forgotten first ([`PeerState::forget_instance`]).
    Successor,
    /// An instance that is not the one that the user named for this address.
    Impostor,
}

/// The `initiator` field of a request: the low half of the instance number in the upper 16 bits,
/// the UDP port in the lower 16.
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

/// All peers that an endpoint knows.
#[derive(Debug)]
pub struct Peers {
    states: Vec<PeerState>,
    /// Entries of `states` whose peers were evicted, for reuse.
    free: Vec<PeerId>,
    /// The newest peer at each address. Older ones follow through [`PeerState`]'s `sibling`.
    by_addr: HashMap<SocketAddr, PeerId>,
    hosts: Hosts,
    counts: PeerCounts,
    /// The addresses that the application has inserted. It may never talk to many of them.
    inserted: HashSet<SocketAddr>,
    /// Largest packet sizes of the paths to the peers' hosts.
    pub(crate) paths: PathSizes,
}

/// Largest number of peers that contacted this endpoint without being named, so that an attacker
/// with many addresses cannot use all memory. Peers that the user named do not count.
const MAX_UNNAMED_PEERS: u32 = 1 << 16;
/// Number of unnamed peers up to which the engine forgets none of them.
const FORGET_FROM: u32 = 1 << 10;
/// Silence after which an unused, unnamed peer may be forgotten. It is longer than the validity of
/// a cookie, so that no handshake of before can be replayed.
const FORGET_AFTER: Span = Span::secs(140);
/// Time between two searches for idle peers that can be forgotten.
const SEARCH_INTERVAL: Span = Span::secs(1);

/// Numbers of unnamed peers: those that were never named, and those that the user named once.
#[derive(Debug)]
struct PeerCounts {
    count: u32,
    /// Number of peers that the user named earlier and does not name now.
    unnamed: u32,
    /// Number of unnamed peers at which the next search for peers to forget is worthwhile: twice as
    /// many as the last search left.
    search_from: u32,
    /// Time of the last search for peers to forget.
    last_search: Time,
    /// Number that changes whenever peers were forgotten.
    epoch: u64,
}

impl PeerCounts {
    /// Subtracts a peer of this origin from the counts.
    fn remove(&mut self, origin: PeerOrigin) {
        match origin {
            PeerOrigin::Unsolicited => self.count -= 1,
            PeerOrigin::Unnamed => self.unnamed -= 1,
            PeerOrigin::Named | PeerOrigin::Forgotten => {}
        }
    }
}

/// Numbers of hosts, for congestion control, and how many peers each host has.
#[derive(Debug, Default)]
struct Hosts {
    by_ip: HashMap<IpAddr, (u32, u32)>,
    next: u32,
}

impl Hosts {
    /// Counts a new peer at a host. Returns the number of the host.
    fn add_peer(&mut self, ip: IpAddr) -> u32 {
        let (number, peers) = self.by_ip.entry(ip).or_insert_with(|| {
            let number = self.next;
            // After 2^32 hosts, two may share a number and thus the state of a path.
            self.next = self.next.wrapping_add(1);
            (number, 0)
        });
        *peers += 1;
        *number
    }

    /// Removes a forgotten peer from the count of its host. Returns whether it was the last one
    /// there.
    fn remove_peer(&mut self, ip: IpAddr) -> bool {
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
    /// Creates an empty table of peers. Packets have at most `max_packet` bytes.
    pub(crate) fn new(max_packet: u32) -> Self {
        Self {
            states: Vec::new(),
            free: Vec::new(),
            by_addr: HashMap::new(),
            hosts: Hosts::default(),
            inserted: HashSet::new(),
            counts: PeerCounts {
                count: 0,
                unnamed: 0,
                search_from: FORGET_FROM,
                last_search: Time::ZERO,
                epoch: 0,
            },
            paths: PathSizes::new(max_packet),
        }
    }

    /// Returns the newest peer with this address, if one is known.
    #[must_use]
    pub fn find(&self, addr: SocketAddr) -> Option<PeerId> {
        self.by_addr.get(&addr).copied()
    }

    /// Returns whether any known peer is at this host address.
    pub(crate) fn has_host(&self, ip: IpAddr) -> bool {
        self.hosts.by_ip.contains_key(&ip)
    }

    /// Returns the number of peers that this endpoint knows.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// Returns one more than the largest peer id in use, the length of tables by peer.
    pub(crate) const fn places(&self) -> usize {
        self.states.len()
    }

    /// Returns a number that changes whenever peers were forgotten, or when an address without an instance means another
    /// peer than before. A [`PeerId`] may name another peer after that, and an address must be looked up again.
    #[must_use]
    #[inline]
    pub const fn epoch(&self) -> u64 {
        self.counts.epoch
    }

    /// Returns the state of a peer.
    ///
    /// # Panics
    /// Panics if `peer` does not belong to this engine.
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

    /// Returns the peers with this address, the newest first; each is another instance.
    pub(crate) fn at(&self, addr: SocketAddr) -> impl Iterator<Item = PeerId> + '_ {
        std::iter::successors(self.find(addr), |peer| self.get(*peer).sibling)
    }

    /// Returns the peer at a host that was verified with the port and tag of `who`.
    pub(crate) fn find_verified(&self, ip: IpAddr, who: Initiator) -> Option<PeerId> {
        self.at(SocketAddr::new(ip, who.port)).find(|peer| self.get(*peer).is_instance(who))
    }

    /// Returns the peer that is `instance` at `addr`, or else one there without an instance. Peers
    /// for which the user named an instance have precedence over those that accept any.
    pub(crate) fn find_instance(&self, addr: SocketAddr, instance: Instance) -> Option<PeerId> {
        let named = |peer: &PeerId| self.get(*peer).instance() == Some(instance);
        let nobody = |peer: &PeerId| self.get(*peer).instance().is_none();
        self.at(addr).find(named).or_else(|| self.at(addr).find(nobody))
    }

    /// Returns the last confirmation that was accepted of the peer for which a handshake of this
    /// instance would be recorded.
    pub(crate) fn last_confirmation(
        &self,
        addr: SocketAddr,
        instance: Instance,
    ) -> Option<Confirmation> {
        let peer = self.find_instance(addr, instance).or_else(|| self.find_without_instance(addr));
        peer.and_then(|peer| self.get(peer).confirmation)
    }

    /// Returns the peer at `addr` for which the user named no instance.
    pub(crate) fn find_without_instance(&self, addr: SocketAddr) -> Option<PeerId> {
        self.at(addr).find(|peer| self.get(*peer).expected.is_none())
    }

    /// Finds or adds a peer that the user names. Returns the number of its host if the peer is new.
    ///
    /// An address without an instance shares the peer of a named instance while that is there, so that messages to both
    /// keep their order.
    pub(crate) fn resolve(
        &mut self,
        addr: SocketAddr,
        expected: Option<Instance>,
    ) -> (PeerId, Option<u32>) {
        let known = match expected {
            None => self.at(addr).find(|peer| !self.get(*peer).is_named_instance_gone()),
            Some(instance) => self.find_instance(addr, instance),
        };
        let Some(peer) = known else {
            let (peer, host) = self.add(addr, expected, PeerOrigin::Named);
            return (peer, Some(host));
        };
        let state = self.get_mut(peer);
        if expected.is_some() {
            state.expected = expected;
        } else {
            state.any_instance = true;
        }
        let before = core::mem::replace(&mut state.origin, PeerOrigin::Named);
        self.counts.remove(before);
        (peer, None)
    }

    /// Ends the meaning of a peer's address without an instance if the named instance is gone: the address means the next
    /// endpoint there, and must be looked up again.
    pub(crate) fn release_address(&mut self, peer: PeerId) {
        let state = self.get_mut(peer);
        if state.is_named_instance_gone() && core::mem::take(&mut state.any_instance) {
            self.counts.epoch += 1;
        }
    }

    /// Adds addresses that the application has inserted to those that are known already, or replaces these if `anew` is
    /// set. Returns the peers at these addresses that were not named before.
    pub(crate) fn insert_addresses(
        &mut self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        anew: bool,
    ) -> Vec<PeerId> {
        if anew {
            self.inserted.clear();
        }
        let mut fresh = Vec::new();
        for addr in addresses {
            self.inserted.insert(addr);
            let mut next = self.find(addr);
            while let Some(peer) = next {
                let state = self.get_mut(peer);
                next = state.sibling;
                let before = core::mem::replace(&mut state.origin, PeerOrigin::Named);
                if before != PeerOrigin::Named {
                    self.counts.remove(before);
                    fresh.push(peer);
                }
            }
        }
        fresh
    }

    /// Returns whether the user named this instance at an address, or the address without an
    /// instance.
    pub(crate) fn is_named(&self, addr: SocketAddr, instance: Instance) -> bool {
        self.at(addr).map(|peer| self.get(peer)).any(|state| {
            state.is_named() && state.expected.is_none_or(|expected| expected == instance)
        })
    }

    /// Marks all named peers as no longer named, before the user names others. Returns the peers.
    pub(crate) fn clear_names(&mut self) -> Vec<PeerId> {
        let named = self.select(PeerState::is_named);
        for peer in &named {
            self.get_mut(*peer).origin = PeerOrigin::Unnamed;
        }
        // There are fewer than 2^32 peers, as `add` ensures.
        self.counts.unnamed += named.len() as u32;
        named
    }

    /// Returns whether there are so many unnamed peers that a search for peers to forget is due.
    pub(crate) fn is_forgetting_due(&mut self, now: Time) -> bool {
        let counts = &mut self.counts;
        let many = counts.count + counts.unnamed >= counts.search_from
            || counts.count >= MAX_UNNAMED_PEERS - 1;
        let due = many && now.since(counts.last_search) >= SEARCH_INTERVAL;
        if due {
            counts.last_search = now;
        }
        due
    }

    /// Forgets unnamed peers that were silent for long, or of which no packet was ever accepted, and
    /// that are not marked in `used`. Returns them, and the hosts without any peer left.
    pub(crate) fn forget(&mut self, now: Time, used: &[bool]) -> (Vec<PeerId>, Vec<IpAddr>) {
        let is_used = |peer: &PeerId| used.get(peer.0 as usize).copied().unwrap_or(false);
        let idle = |state: &PeerState| {
            let heard = state.last_rx.max(state.last_handshake);
            heard == Time::ZERO || now.since(heard) >= FORGET_AFTER
        };
        let mut gone = self.select(|state| {
            matches!(state.origin, PeerOrigin::Unnamed | PeerOrigin::Unsolicited) && idle(state)
        });
        gone.retain(|peer| !is_used(peer));
        let mut left = Vec::new();
        for peer in &gone {
            let (addr, sibling) = (self.get(*peer).addr, self.get(*peer).sibling);
            self.unlink(addr, *peer, sibling);
            if self.hosts.remove_peer(addr.ip()) {
                left.push(addr.ip());
            }
            let before = core::mem::replace(&mut self.get_mut(*peer).origin, PeerOrigin::Forgotten);
            self.counts.remove(before);
        }
        self.counts.epoch += u64::from(!gone.is_empty());
        let stayed = self.counts.count + self.counts.unnamed;
        self.counts.search_from = (stayed * 2).max(FORGET_FROM);
        self.free.extend(&gone);
        (gone, left)
    }

    /// Removes a peer, whose next older one is `sibling`, from the list of its address.
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
    pub(crate) fn add_unsolicited(&mut self, addr: SocketAddr) -> Option<(PeerId, u32)> {
        if self.inserted.contains(&addr) {
            return Some(self.add(addr, None, PeerOrigin::Named));
        }
        if self.counts.count >= MAX_UNNAMED_PEERS {
            return None;
        }
        self.counts.count += 1;
        Some(self.add(addr, None, PeerOrigin::Unsolicited))
    }

    /// Adds a peer to the table. Returns the peer and the number of its host.
    fn add(
        &mut self,
        addr: SocketAddr,
        expected: Option<Instance>,
        origin: PeerOrigin,
    ) -> (PeerId, u32) {
        let fresh = || PeerId(u32::try_from(self.states.len()).expect("fewer than 2^32 peers"));
        let peer = self.free.pop().unwrap_or_else(fresh);
        let sibling = self.by_addr.insert(addr, peer);
        let state = PeerState {
            addr,
            address: PeerAddress::NONE,
            expected,
            any_instance: origin == PeerOrigin::Named && expected.is_none(),
            succeeded: false,
            instance: None,
            last_rx: Time::ZERO,
            destination_error: None,
            refused: Time::ZERO,
            next_silence_report: Time::ZERO,
            died: false,
            closed_at: None,
            last_handshake: Time::ZERO,
            confirmation: None,
            sibling,
            origin,
        };
        match self.states.get_mut(peer.0 as usize) {
            Some(place) => *place = state,
            None => self.states.push(state),
        }
        (peer, self.hosts.add_peer(addr.ip()))
    }

    /// Returns the ids of all peers that this endpoint knows.
    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.select(|state| state.origin != PeerOrigin::Forgotten)
    }

    /// Returns the other known peers at the address of a host, the most recently heard one first.
    pub(crate) fn others_at(&self, host: IpAddr, peer: PeerId) -> Vec<PeerId> {
        let at = |state: &PeerState| {
            state.addr.ip() == host && state.origin != PeerOrigin::Forgotten && !state.died
        };
        let mut others = self.select(at);
        others.retain(|other| *other != peer);
        others.sort_by_key(|other| core::cmp::Reverse(self.get(*other).last_rx));
        others
    }

    fn select(&self, wanted: impl Fn(&PeerState) -> bool) -> Vec<PeerId> {
        // There are fewer than 2^32 peers, as `add` ensures.
        let all = (0..self.states.len() as u32).map(PeerId);
        all.filter(|peer| wanted(self.get(*peer))).collect()
    }

    /// Records a report of the network that a destination is unreachable. The report has no
    /// immediate effect, because ICMP messages can be forged and the peer may not have started yet.
    pub(crate) fn record_destination_error(&mut self, now: Time, trouble: DestinationError) {
        let mut next = self.find(trouble.peer);
        while let Some(peer) = next {
            let state = self.get_mut(peer);
            state.destination_error = Some(trouble);
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
    fn instance_at_an_address_may_be_succeeded_by_another() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (peer, host) = peers.resolve(addr, None);
        assert_eq!((peers.find(addr), host), (Some(peer), Some(0)));
        let neighbour = peers.resolve(SocketAddr::from(([10, 0, 0, 1], 8)), None);
        assert_eq!(neighbour.1, Some(0), "both peers are on one host");
        let who = Initiator { port: 7, tag: 3 };
        assert_eq!(peers.find_verified(addr.ip(), who), None);
        assert_eq!(peers.find_instance(addr, instance(3)), Some(peer));
        assert_eq!(peers.get_mut(peer).record_instance(instance(3)), PeerInstance::Known);
        assert_eq!(peers.get_mut(peer).record_instance(instance(3)), PeerInstance::Known);
        assert_eq!(peers.find_verified(addr.ip(), who), Some(peer));
        assert_eq!(peers.find_instance(addr, instance(4)), None);
        assert_eq!(peers.find_without_instance(addr), Some(peer));
        assert_eq!(peers.get_mut(peer).record_instance(instance(4)), PeerInstance::Successor);
        assert_eq!(
            peers.find_verified(addr.ip(), who),
            Some(peer),
            "the former instance stays verified until it is forgotten"
        );
        peers.get_mut(peer).forget_instance();
        assert_eq!(peers.get_mut(peer).record_instance(instance(4)), PeerInstance::Known);
        assert_eq!(peers.find_verified(addr.ip(), who), None);
        let state = peers.get_mut(peer);
        assert!(!state.is_instance(Initiator { port: 8, tag: 4 }));
        assert!(state.record_rx(Time(5)) && !state.record_rx(Time(6)) && state.has_answered());
        state.forget_instance();
        assert!(!state.has_answered());
        assert_eq!(state.record_instance(instance(9)), PeerInstance::Known);
    }

    #[test]
    fn number_of_unnamed_peers_is_bounded() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        assert!((0..MAX_UNNAMED_PEERS).all(|n| peers.add_unsolicited(addr(n)).is_some()));
        assert_eq!(peers.add_unsolicited(addr(MAX_UNNAMED_PEERS)), None);
        assert!(
            peers.resolve(addr(MAX_UNNAMED_PEERS), None).1.is_some(),
            "a named peer is always admitted"
        );
    }

    #[test]
    fn unused_unnamed_peers_are_forgotten_and_their_entries_reused() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        let later = Time::ZERO + FORGET_AFTER;
        for n in 0..FORGET_FROM {
            assert!(!peers.is_forgetting_due(later));
            let _ = peers.add_unsolicited(addr(n));
        }
        assert!(
            peers.is_forgetting_due(later) && !peers.is_forgetting_due(later),
            "the search is not repeated at once"
        );
        // The user names the first, state of the second is in use, and the third was heard lately.
        let named = peers.resolve(addr(0), None).0;
        let (used, lively) =
            (peers.find(addr(1)).expect("here"), peers.find(addr(2)).expect("here"));
        let _ = peers.get_mut(lively).record_rx(Time(1));
        let mut uses = vec![false; used.0 as usize + 1];
        uses[used.0 as usize] = true;
        let (epoch, count) = (peers.epoch(), FORGET_FROM as usize - 3);
        let (gone, hosts) = peers.forget(later, &uses);
        assert_eq!((gone.len(), hosts.len(), peers.count()), (count, count, 3));
        assert!(![named, used, lively].iter().any(|peer| gone.contains(peer)));
        assert_ne!(peers.epoch(), epoch);
        assert!(!peers.has_host(addr(3).ip()) && peers.find(addr(3)).is_none());
        // Another peer takes a free entry, and nothing of the former peer is left in it.
        let (new, host) = peers.add_unsolicited(addr(9999)).expect("room");
        assert!(gone.contains(&new) && host >= FORGET_FROM);
        assert_eq!(peers.get(new).addr(), addr(9999));
        assert!(!peers.get(new).is_verified() && peers.states.len() == FORGET_FROM as usize);
    }

    #[test]
    fn peers_that_are_no_longer_named_are_forgotten() {
        let mut peers = Peers::new(1400);
        let addr = |n: u32| SocketAddr::from((core::net::Ipv4Addr::from(0x0a00_0000 + n), 7));
        let later = Time::ZERO + FORGET_AFTER;
        for n in 0..FORGET_FROM {
            let _ = peers.resolve(addr(n), None);
        }
        assert!(!peers.is_forgetting_due(later), "named peers are not searched");
        assert_eq!(peers.clear_names().len(), FORGET_FROM as usize);
        let _ = peers.resolve(addr(0), None);
        assert!(!peers.is_forgetting_due(later), "one peer is named again");
        let _ = peers.add_unsolicited(addr(9999));
        assert!(peers.is_forgetting_due(later));
        let (gone, _) = peers.forget(later, &[]);
        assert_eq!((gone.len(), peers.count()), (FORGET_FROM as usize, 1));
        assert_eq!((peers.counts.count, peers.counts.unnamed), (0, 0));
    }

    #[test]
    fn unused_one_of_two_peers_at_an_address_is_forgotten() {
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        for old_goes in [true, false] {
            let mut peers = Peers::new(1400);
            let (old, _) = peers.resolve(addr, Some(instance(1)));
            let (new, _) = peers.resolve(addr, Some(instance(2)));
            let (goes, stays) = if old_goes { (old, new) } else { (new, old) };
            let meant = peers.get(stays).named_instance();
            peers.clear_names();
            assert!(!peers.is_named(addr, instance(1)) && !peers.is_named(addr, instance(2)));
            assert_eq!(peers.resolve(addr, meant), (stays, None));
            let (gone, hosts) = peers.forget(Time::ZERO + FORGET_AFTER, &[]);
            assert_eq!((gone, hosts), (vec![goes], vec![]));
            assert_eq!(peers.at(addr).collect::<Vec<_>>(), [stays]);
            assert!(peers.is_named(addr, meant.expect("the instance was given")));
        }
    }

    #[test]
    fn named_instances_at_one_address_are_separate_peers() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (old, _) = peers.resolve(addr, Some(instance(1)));
        let (new, host) = peers.resolve(addr, Some(instance(2)));
        assert!(old != new && host == Some(0));
        assert_eq!(peers.resolve(addr, Some(instance(1))), (old, None));
        assert_eq!(peers.resolve(addr, None), (new, None), "the newest peer is found");
        assert_eq!(peers.get_mut(old).record_instance(instance(2)), PeerInstance::Impostor);
        assert_eq!(peers.get_mut(new).record_instance(instance(2)), PeerInstance::Known);
        assert_eq!(peers.find_verified(addr.ip(), Initiator { port: 7, tag: 2 }), Some(new));
        assert_eq!(peers.find_without_instance(addr), None);
        assert_eq!(peers.find_instance(addr, instance(1)), Some(old));
    }

    #[test]
    fn an_address_without_instance_outlives_the_named_instance_there() {
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let ends: [fn(&mut PeerState); 3] = [
            |state| assert_eq!(state.record_instance(instance(2)), PeerInstance::Impostor),
            PeerState::mark_dead,
            |state| state.record_close(Time(5)),
        ];
        for end in ends {
            let mut peers = Peers::new(1400);
            let (peer, _) = peers.resolve(addr, None);
            assert_eq!(peers.get_mut(peer).record_instance(instance(1)), PeerInstance::Known);
            assert_eq!(peers.resolve(addr, Some(instance(1))), (peer, None));
            assert_eq!(peers.resolve(addr, None), (peer, None), "both mean the same endpoint");
            peers.release_address(peer);
            assert_eq!(peers.epoch(), 0, "it is there");
            end(peers.get_mut(peer));
            peers.release_address(peer);
            peers.release_address(peer);
            assert_eq!(peers.epoch(), 1, "the address is looked up again, once");
            let (next, host) = peers.resolve(addr, None);
            assert!(next != peer && host == Some(0));
            assert_eq!(peers.get_mut(next).record_instance(instance(2)), PeerInstance::Known);
            assert_eq!(peers.resolve(addr, None), (next, None));
            assert_eq!(peers.resolve(addr, Some(instance(1))), (peer, None), "the name stays");
            assert_eq!(peers.resolve(addr, Some(instance(2))), (next, None));
        }
    }

    #[test]
    fn peer_verified_before_it_was_named_is_the_same_peer() {
        let mut peers = Peers::new(1400);
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (peer, _) = peers.add_unsolicited(addr).expect("room");
        let _ = peers.get_mut(peer).record_instance(instance(5));
        assert_eq!(peers.resolve(addr, Some(instance(5))), (peer, None));
        assert_eq!(peers.get(peer).named_instance(), Some(instance(5)));
        assert_ne!(peers.resolve(addr, Some(instance(6))).0, peer);
    }
}
