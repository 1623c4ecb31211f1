//! The endpoint's cache between `fi_addr_t` and the engine's peers, both ways.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use squall_engine::{Engine, PeerId};

use crate::abi::errno::{Errno, Result};
use crate::abi::flags::ADDR_UNSPEC;
use crate::av::Av;
use crate::clock;
use crate::host::logger::USER;
use crate::network::addr::Name;

/// Number in the cache that stands for no peer.
const NONE: u32 = u32::MAX;

/// The cache that maps addresses (`fi_addr_t`) to the engine's peers and back, for one generation of the address
/// vector.
#[derive(Default)]
pub(crate) struct PeerCache {
    generation: u64,
    /// The engine's epoch at which the peer numbers in `by_peer` were valid.
    epoch: u64,
    /// The vector's revision whose names the engine was given, if the endpoint talks to named peers only.
    named: Option<u64>,
    /// The addresses of the vector that the engine was given, if the endpoint also talks to peers outside the vector.
    known: KnownAddresses,
    /// The peer of each `fi_addr_t`, and the engine's epoch of these peer numbers.
    by_addr: Vec<u32>,
    by_addr_epoch: u64,
    /// The `fi_addr_t` of each peer.
    by_peer: Vec<u64>,
    /// Hosts of peers whose path was checked for its MTU, or is about to be.
    hosts: HashSet<IpAddr>,
    /// Addresses at hosts whose path was not checked for its MTU yet.
    new_hosts: Vec<SocketAddr>,
}

/// The addresses of the address vector that the engine was given.
#[derive(Default)]
struct KnownAddresses {
    /// The vector's revision and generation when the engine was last given its addresses.
    revision: u64,
    generation: u64,
    /// The number of indices at the last update, and whether all of them were in use. If they were, new addresses get
    /// higher indices.
    len: usize,
    dense: bool,
}

impl PeerCache {
    /// Creates an empty cache. With `named_only` the endpoint talks only to peers in the address vector.
    pub(crate) fn new(named_only: bool) -> Self {
        // No vector has so many.
        Self { named: named_only.then_some(u64::MAX), ..Self::default() }
    }

    #[inline]
    fn refresh(&mut self, av: &Av, engine: &mut Engine) {
        let generation = av.generation();
        if generation != self.generation {
            self.generation = generation;
            self.renew(engine);
        }
    }

    /// Empties the cache after an address was removed from the address vector.
    #[cold]
    fn renew(&mut self, engine: &mut Engine) {
        self.by_addr.clear();
        self.by_peer.clear();
        if self.named.is_none() {
            engine.name_peers(clock::now(), []);
        }
    }

    /// Discards the cached peers after one of the addresses got another meaning in the engine.
    #[inline]
    pub(crate) fn sync_peers(&mut self, engine: &Engine) {
        let epoch = engine.peers().epoch();
        if epoch != self.by_addr_epoch {
            self.by_addr_epoch = epoch;
            self.by_addr.clear();
        }
    }

    /// Reports to the engine which addresses are in the address vector, if the vector has changed. Peers at other
    /// addresses share a bounded part of the endpoint's resources, or are not talked to at all.
    #[inline]
    pub(crate) fn sync_addresses(&mut self, av: Option<&Av>, engine: &mut Engine) {
        let Some(av) = av else { return };
        let revision = av.revision();
        match self.named {
            Some(named) if named != revision => self.name_peers(av, engine),
            None if self.known.revision != revision => self.add_addresses(av, engine),
            _ => {}
        }
    }

    #[cold]
    fn add_addresses(&mut self, av: &Av, engine: &mut Engine) {
        // A peer whose address was removed from the vector is not named any more.
        self.refresh(av, engine);
        // The revision is read before the addresses, so that an address inserted meanwhile is seen next time.
        let (revision, generation) = (av.revision(), av.generation());
        let addresses = av.addresses();
        let before = &self.known;
        let anew = before.generation != generation || !before.dense;
        let from = if anew { 0 } else { before.len };
        engine.add_addresses(addresses.names_from(from).map(|name| name.addr), anew);
        let (len, dense) = (addresses.len(), addresses.is_dense());
        self.known = KnownAddresses { revision, generation, len, dense };
    }

    #[cold]
    fn name_peers(&mut self, av: &Av, engine: &mut Engine) {
        // Before the names, so that none is missed that comes meanwhile.
        self.named = Some(av.revision());
        let names: Vec<Name> = av.addresses().names().collect();
        engine.name_peers(clock::now(), names.iter().map(|name| (name.addr, name.instance)));
    }

    /// Returns the peer of a `fi_addr_t`.
    ///
    /// # Errors
    /// `FI_EINVAL` when nothing was inserted there, `FI_EADDRNOTAVAIL` when the address is one of an own endpoint.
    #[inline]
    pub(crate) fn peer(&mut self, av: &Av, engine: &mut Engine, fi_addr: u64) -> Result<PeerId> {
        self.refresh(av, engine);
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
                "operation refused: fi_addr {fi_addr} is not in the address vector; insert the address first"
            );
            Errno::INVAL
        })?;
        // Checked again: it may have been inserted before the endpoint had its address.
        av.check_reachable(&name)?;
        let peer = find_peer(engine, &name)?;
        if self.hosts.insert(name.addr.ip()) {
            self.new_hosts.push(name.addr);
        }
        if self.by_addr.len() <= at {
            self.by_addr.resize(at + 1, NONE);
        }
        self.by_addr[at] = peer.0;
        Ok(peer)
    }

    /// Returns whether there is a new host, which [`PeerCache::next_new_host`] returns.
    #[inline]
    pub(crate) fn has_new_hosts(&self) -> bool {
        !self.new_hosts.is_empty()
    }

    /// Returns an address at the next host that was not looked up before.
    pub(crate) fn next_new_host(&mut self) -> Option<SocketAddr> {
        self.new_hosts.pop()
    }

    /// Returns the `fi_addr_t` of a peer; FI_ADDR_NOTAVAIL when it is not in the address vector.
    #[inline]
    pub(crate) fn fi_addr(&mut self, av: &Av, engine: &mut Engine, peer: PeerId) -> u64 {
        self.refresh(av, engine);
        if self.epoch != engine.peers().epoch() {
            self.epoch = engine.peers().epoch();
            self.by_peer.clear();
        }
        let at = peer.0 as usize;
        if let Some(&fi_addr) = self.by_peer.get(at)
            && fi_addr != ADDR_UNSPEC
        {
            return fi_addr;
        }
        let state = engine.peers().get(peer);
        let name = Name { instance: state.instance(), ..state.addr().into() };
        // The address that completions show, which FI_AV_USER_ID may replace.
        let fi_addr = av.addresses().fi_addr_of(&name);
        if self.by_peer.len() <= at {
            self.by_peer.resize(at + 1, ADDR_UNSPEC);
        }
        self.by_peer[at] = fi_addr;
        fi_addr
    }
}

/// Returns the peer with a name, whose address has the form of the wire that the endpoint speaks.
///
/// # Errors
/// `FI_EINVAL`, with a warning, if the name is that of an endpoint which speaks another wire.
fn find_peer(engine: &mut Engine, name: &Name) -> Result<PeerId> {
    let Some(wire) = engine.foreign_wire() else {
        if name.fields.is_none() {
            return Ok(engine.peer_at(name.addr, name.instance));
        }
        log::warn!(
            target: USER,
            "{} is an endpoint of another implementation: set FI_SQUALL_WIRE to uet or suet",
            name.addr
        );
        return Err(Errno::INVAL);
    };
    if let Some(port) = wire.port
        && port != name.addr.port()
    {
        log::warn!(
            target: USER,
            "{} is no address of FI_SQUALL_WIRE=uet: endpoints of that wire listen at port {port}; insert uet:{}",
            name.addr,
            name.addr.ip()
        );
        return Err(Errno::INVAL);
    }
    Ok(engine.foreign_peer(name.addr, name.fields))
}
