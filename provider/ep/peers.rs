//! The endpoint's cache between `fi_addr_t` and the engine's peers, both ways.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use squall_engine::{Engine, PeerId};

use crate::addr::Name;
use crate::av::Av;
use crate::errno::{Errno, Result};
use crate::flags::ADDR_UNSPEC;

/// No peer cached.
const NONE: u32 = u32::MAX;

/// Valid for one generation of the address vector.
#[derive(Default)]
pub(super) struct Peers {
    generation: u64,
    /// By fi_addr: the peer.
    by_addr: Vec<u32>,
    /// By peer: the fi_addr.
    by_peer: Vec<u64>,
    /// Hosts that were ever looked up.
    hosts: HashSet<IpAddr>,
    /// Of those, the ones whose path nobody has looked at.
    new_hosts: Vec<SocketAddr>,
}

impl Peers {
    #[inline]
    fn refresh(&mut self, av: &Av) {
        let generation = av.generation();
        if generation != self.generation {
            self.generation = generation;
            self.by_addr.clear();
            self.by_peer.clear();
        }
    }

    /// The peer behind a `fi_addr_t`.
    ///
    /// # Errors
    /// `FI_EINVAL` when nothing was inserted there, `FI_EADDRNOTAVAIL` when who was inserted has an address that
    /// is an endpoint's of ours.
    #[inline]
    pub(super) fn peer(&mut self, av: &Av, engine: &mut Engine, fi_addr: u64) -> Result<PeerId> {
        self.refresh(av);
        let at = usize::try_from(fi_addr).map_err(|_| Errno::INVAL)?;
        match self.by_addr.get(at) {
            Some(&id) if id != NONE => Ok(PeerId(id)),
            _ => self.look_up(av, engine, fi_addr, at),
        }
    }

    #[cold]
    fn look_up(&mut self, av: &Av, engine: &mut Engine, fi_addr: u64, at: usize) -> Result<PeerId> {
        let name = av.addresses().get(fi_addr).ok_or_else(|| {
            log::warn!(
                "fi_addr {fi_addr} was never inserted into the address vector, or is removed"
            );
            Errno::INVAL
        })?;
        // Looked at again: it may have been inserted before the endpoint had its address.
        av.reachable(&name)?;
        let peer = engine.peer_at(name.addr, name.instance);
        if self.hosts.insert(name.addr.ip()) {
            self.new_hosts.push(name.addr);
        }
        if self.by_addr.len() <= at {
            self.by_addr.resize(at + 1, NONE);
        }
        self.by_addr[at] = peer.0;
        Ok(peer)
    }

    /// Whether [`Peers::next_new_host`] has one.
    #[inline]
    pub(super) fn has_new_hosts(&self) -> bool {
        !self.new_hosts.is_empty()
    }

    /// An address at the next host that was not looked up before.
    pub(super) fn next_new_host(&mut self) -> Option<SocketAddr> {
        self.new_hosts.pop()
    }

    /// The `fi_addr_t` of a peer; FI_ADDR_NOTAVAIL when it is not in the address vector.
    #[inline]
    pub(super) fn fi_addr(&mut self, av: &Av, engine: &Engine, peer: PeerId) -> u64 {
        self.refresh(av);
        let at = peer.0 as usize;
        if let Some(&fi_addr) = self.by_peer.get(at)
            && fi_addr != ADDR_UNSPEC
        {
            return fi_addr;
        }
        let state = engine.peers().get(peer);
        let name = Name { addr: state.addr(), instance: state.instance() };
        let fi_addr = av.addresses().index_of(&name);
        if self.by_peer.len() <= at {
            self.by_peer.resize(at + 1, ADDR_UNSPEC);
        }
        self.by_peer[at] = fi_addr;
        fi_addr
    }
}
