//! Peer endpoints: who they are, by address and instance, and what is known of them.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use crate::api::{PeerId, Trouble};
use crate::base::Time;

/// Instances of a peer that are remembered as gone.
const OLD_EPOCHS: usize = 4;

/// What is known of a peer.
#[derive(Debug)]
pub struct PeerState {
    addr: SocketAddr,
    /// The instance that sent something last.
    epoch: Option<u16>,
    /// Instances that are gone, the latest first.
    old_epochs: [Option<u16>; OLD_EPOCHS],
    last_rx: Time,
    trouble: Option<Trouble>,
}

impl PeerState {
    /// Its address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
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
        core::mem::replace(&mut self.last_rx, now) == Time::ZERO
    }

    /// Whether anybody has introduced itself from its address.
    pub(crate) const fn is_introduced(&self) -> bool {
        self.epoch.is_some()
    }

    /// Whether a request's `initiator` field names this instance.
    #[inline]
    pub(crate) fn is_instance(&self, who: Initiator) -> bool {
        who.port == self.addr.port() && self.epoch == Some(who.epoch)
    }

    /// Another instance, or the first, introduces itself.
    pub(crate) fn introduce(&mut self, epoch: u16) -> Introduction {
        match self.epoch {
            Some(known) if known == epoch => Introduction::Known,
            Some(_) if self.old_epochs.contains(&Some(epoch)) => Introduction::Gone,
            Some(known) => {
                self.old_epochs.rotate_right(1);
                self.old_epochs[0] = Some(known);
                self.epoch = Some(epoch);
                Introduction::Restarted
            }
            None => {
                self.epoch = Some(epoch);
                Introduction::Known
            }
        }
    }
}

/// What an introduction means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Introduction {
    /// It is the instance we know, or the first.
    Known,
    /// It is a new instance: the one we knew is gone.
    Restarted,
    /// It is an instance that is gone: a late packet.
    Gone,
}

/// The `initiator` field of a request: epoch nonce above, UDP port below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Initiator {
    pub(crate) port: u16,
    pub(crate) epoch: u16,
}

impl Initiator {
    #[inline]
    pub(crate) const fn from_field(field: u32) -> Self {
        Self { port: (field & 0xffff) as u16, epoch: (field >> 16) as u16 }
    }

    #[inline]
    pub(crate) const fn field(self) -> u32 {
        (self.epoch as u32) << 16 | self.port as u32
    }
}

/// All peers of an endpoint.
#[derive(Debug, Default)]
pub struct Peers {
    states: Vec<PeerState>,
    by_addr: HashMap<SocketAddr, PeerId>,
    /// Hosts by number, for congestion control.
    hosts: HashMap<IpAddr, u32>,
}

impl Peers {
    /// The peer with this address, if it is known.
    #[must_use]
    pub fn find(&self, addr: SocketAddr) -> Option<PeerId> {
        self.by_addr.get(&addr).copied()
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.states.len()
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

    /// Adds a peer that [`Peers::find`] does not know; also the number of its host.
    pub(crate) fn add(&mut self, addr: SocketAddr) -> (PeerId, u32) {
        let peer = PeerId(u32::try_from(self.states.len()).expect("fewer than 2^32 peers"));
        self.states.push(PeerState {
            addr,
            epoch: None,
            old_epochs: [None; OLD_EPOCHS],
            last_rx: Time::ZERO,
            trouble: None,
        });
        self.by_addr.insert(addr, peer);
        // Not more hosts than peers.
        let fresh = self.hosts.len() as u32;
        (peer, *self.hosts.entry(addr.ip()).or_insert(fresh))
    }

    /// The network said that a destination cannot be reached. Only remembered, for the error text: an
    /// ICMP message can be forged, and a peer that is not there yet may come.
    pub(crate) fn note_trouble(&mut self, trouble: Trouble) {
        if let Some(peer) = self.find(trouble.peer) {
            self.get_mut(peer).trouble = Some(trouble);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_come_and_do_not_come_back() {
        let mut peers = Peers::default();
        let addr = SocketAddr::from(([10, 0, 0, 1], 7));
        let (peer, host) = peers.add(addr);
        assert_eq!((peers.find(addr), host), (Some(peer), 0));
        assert_eq!(peers.add(SocketAddr::from(([10, 0, 0, 1], 8))).1, host, "one host");
        let state = peers.get_mut(peer);
        assert!(!state.is_introduced());
        assert_eq!(state.introduce(3), Introduction::Known);
        assert_eq!(state.introduce(3), Introduction::Known);
        assert_eq!(state.introduce(4), Introduction::Restarted);
        assert_eq!(state.introduce(3), Introduction::Gone);
        assert!(state.is_instance(Initiator::from_field(4 << 16 | 7)));
        assert!(!state.is_instance(Initiator { port: 8, epoch: 4 }));
        assert!(state.note_rx(Time(5)) && !state.note_rx(Time(6)) && state.has_answered());
    }
}
