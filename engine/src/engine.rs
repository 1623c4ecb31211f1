//! The endpoint's state machine.

mod complete;
mod fail;
mod inbound;
mod one_sided;
mod outbound;
mod receive;
mod send;

use core::net::{IpAddr, SocketAddr};
use std::collections::{HashMap, VecDeque};

pub use inbound::RxMeta;

use crate::api::{Completion, PeerId, Trouble};
use crate::base::{Rng, Time};
use crate::config::Config;
use crate::counters::Counters;
use crate::matching::{Posted, Unexpected};
use crate::messages::Messages;
use crate::ops::Ops;
use crate::order::Order;
use crate::reliability::{self, PdcId, PdcInfo, Pdcs, PeerKey};
use crate::wire::Nack;

/// Resource index of registered memory in requests.
const RESOURCE_MEMORY: u16 = 0;
/// Resource index of buffers offered by rendezvous.
const RESOURCE_RENDEZVOUS: u16 = 1;

/// The engine's descriptor of a packet: which part of which operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    op: u32,
    offset: u32,
    len: u16,
}

/// What the engine knows of a peer endpoint.
#[derive(Debug)]
struct Peer {
    addr: SocketAddr,
    /// The instance we heard last.
    epoch: Option<u16>,
    /// The context we opened to it.
    ours: Option<PdcId>,
    /// The context it opened to us.
    theirs: Option<PdcId>,
    /// Instances that are gone, the latest first.
    old_epochs: [Option<u16>; 4],
    last_heard: Time,
    /// A NO_OP that asks for a sign of life is on its way.
    hello: bool,
    trouble: Option<Trouble>,
}

/// What the engine keeps beside a packet delivery context.
#[derive(Debug)]
struct Context {
    id: PdcId,
    peer: PeerId,
    initiator: bool,
    /// Operations with packets still to build, in order.
    queue: VecDeque<u32>,
    /// Something sent since the queue was last empty waits for its acknowledgement.
    prompt: bool,
    /// In the list of contexts that may have something to send.
    active: bool,
    next_message: u16,
    next_rma: u16,
    /// Two-sided messages arriving on it.
    order: Order,
    /// RMA writes with remote CQ data of which packets are missing: id, bytes so far, data.
    writes: HashMap<u16, PartialWrite>,
    /// READs by id: the operation that fetches.
    reads: Vec<Option<u32>>,
    free_reads: Vec<u16>,
    /// Rendezvous sends whose header went out and that were not read to their end.
    offers: u32,
}

impl Context {
    /// Whether the peer still owes something on it: data of a read, a confirmation, or the reads of a
    /// rendezvous. If it closed meanwhile, a restart of the peer would go unnoticed.
    fn is_awaiting(&self) -> bool {
        self.offers > 0 || self.free_reads.len() < self.reads.len()
    }

    /// Whether the operation at the head of the queue has sent some of its packets.
    fn is_half_way(&self, ops: &Ops) -> bool {
        self.queue.front().and_then(|&ix| ops.get(ix)).is_some_and(|op| op.packed > 0)
    }
}

/// A multi-packet write that reports remote CQ data.
#[derive(Clone, Copy, Debug, Default)]
struct PartialWrite {
    received: u64,
    data: Option<u64>,
}

/// One endpoint's messages: see the crate's documentation for the contract.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    pdcs: Pdcs<Part>,
    peers: Vec<Peer>,
    by_addr: HashMap<SocketAddr, PeerId>,
    /// Hosts by number, for congestion control.
    hosts: HashMap<IpAddr, u32>,
    /// A peer whose receiver works in another mode than our congestion control lives on, not yet told.
    other_mode: Option<PeerId>,
    /// By [`PdcId::index`].
    contexts: Vec<Option<Box<Context>>>,
    active: VecDeque<PdcId>,
    ops: Ops,
    messages: Messages,
    posted: Posted,
    unexpected: Unexpected,
    completions: VecDeque<Completion>,
    counters: Counters,
    rng: Rng,
    /// User operations outstanding.
    outstanding: u32,
    keepalive_at: Option<Time>,
    /// NACKs for packets of contexts that are not here.
    strays: VecDeque<(SocketAddr, Nack)>,
}

impl Engine {
    /// An endpoint without peers.
    #[must_use]
    pub fn new(config: Config, pdc: reliability::Config) -> Self {
        let mut rng = Rng::new(config.seed);
        let (posted, unexpected) = (rng.next_u64(), rng.next_u64());
        Self {
            pdcs: Pdcs::new(pdc),
            peers: Vec::new(),
            by_addr: HashMap::new(),
            hosts: HashMap::new(),
            other_mode: None,
            contexts: Vec::new(),
            active: VecDeque::new(),
            ops: Ops::default(),
            messages: Messages::default(),
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected),
            completions: VecDeque::new(),
            counters: Counters::default(),
            rng,
            outstanding: 0,
            keepalive_at: None,
            strays: VecDeque::new(),
            config,
        }
    }

    /// The peer with this address, added if new.
    pub fn peer(&mut self, addr: SocketAddr) -> PeerId {
        if let Some(&peer) = self.by_addr.get(&addr) {
            return peer;
        }
        let peer = PeerId(u32::try_from(self.peers.len()).expect("fewer than 2^32 peers"));
        self.peers.push(Peer {
            addr,
            epoch: None,
            old_epochs: [None; 4],
            ours: None,
            theirs: None,
            last_heard: Time::ZERO,
            hello: false,
            trouble: None,
        });
        self.by_addr.insert(addr, peer);
        // Not more hosts than peers.
        let fresh = self.hosts.len() as u32;
        let host = *self.hosts.entry(addr.ip()).or_insert(fresh);
        self.pdcs.set_host(PeerKey(peer.0), host);
        peer
    }

    /// What the packet delivery contexts were told.
    #[must_use]
    pub fn transport(&self) -> &reliability::Config {
        self.pdcs.config()
    }

    /// A peer whose receiver turned out to work in another mode than the congestion control here lives
    /// on, of those since the last call the latest. The flow goes on with a plain window.
    pub fn take_other_mode(&mut self) -> Option<SocketAddr> {
        self.other_mode.take().map(|peer| self.peer_addr(peer))
    }

    /// A peer's address.
    ///
    /// # Panics
    /// When `peer` is not one of this engine's.
    #[must_use]
    pub fn peer_addr(&self, peer: PeerId) -> SocketAddr {
        self.peers[peer.0 as usize].addr
    }

    /// Whether a peer was ever heard of.
    #[must_use]
    pub fn has_answered(&self, peer: PeerId) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|peer| peer.last_heard > Time::ZERO)
    }

    /// The last thing the network said about a peer's reachability.
    #[must_use]
    pub fn peer_trouble(&self, peer: PeerId) -> Option<Trouble> {
        self.peers.get(peer.0 as usize)?.trouble
    }

    /// The network said that a destination cannot be reached. Only remembered, for the error text: an
    /// ICMP message can be forged, and a peer that is not there yet may come.
    pub fn handle_trouble(&mut self, trouble: Trouble) {
        if let Some(&peer) = self.by_addr.get(&trouble.peer) {
            self.peers[peer.0 as usize].trouble = Some(trouble);
        }
    }

    /// The next finished operation.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called; may be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match (self.pdcs.poll_timeout(), self.keepalive_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.pdcs.handle_timeout(now);
        self.drain_events(now);
        if self.keepalive_at.is_some_and(|at| at <= now) {
            self.check_silent_peers(now);
        }
    }

    /// What was counted: messages, and packets below them.
    #[must_use]
    pub const fn counters(&self) -> (&Counters, &reliability::Counters) {
        (&self.counters, self.pdcs.counters())
    }

    /// The living contexts, for statistics.
    pub fn contexts(&self) -> impl Iterator<Item = PdcInfo> + '_ {
        self.contexts.iter().flatten().filter_map(|c| self.pdcs.info(c.id))
    }

    /// Whether nothing is queued, in flight or unacknowledged from this side.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.ops.len() == 0 && self.active.is_empty()
    }

    /// Receives posted and not matched, multi-receive buffers included.
    #[must_use]
    pub fn posted_receives(&self) -> usize {
        self.posted.len()
    }

    /// Messages that wait for a receive.
    #[must_use]
    pub const fn unexpected_messages(&self) -> usize {
        self.unexpected.len()
    }

    /// Starts an orderly end: contexts close once what was sent is acknowledged. Keep calling
    /// `handle_*` and `poll_*` until [`Self::closed`], or for as long as seems right.
    pub fn close(&mut self, now: Time) {
        let ids: Vec<PdcId> = self.contexts.iter().flatten().map(|c| c.id).collect();
        for id in ids {
            let idle = self.context(id).is_some_and(|c| c.initiator && c.queue.is_empty());
            if idle {
                self.pdcs.close(now, id);
            }
        }
        self.drain_events(now);
    }

    /// Whether every context that this side opened is gone.
    #[must_use]
    pub fn closed(&self) -> bool {
        self.contexts.iter().flatten().all(|c| !c.initiator)
    }

    fn context(&self, id: PdcId) -> Option<&Context> {
        self.contexts.get(id.index())?.as_deref().filter(|c| c.id == id)
    }

    fn context_mut(&mut self, id: PdcId) -> Option<&mut Context> {
        self.contexts.get_mut(id.index())?.as_deref_mut().filter(|c| c.id == id)
    }

    fn add_context(&mut self, id: PdcId, peer: PeerId, initiator: bool) {
        if self.contexts.len() <= id.index() {
            self.contexts.resize_with(id.index() + 1, || None);
        }
        self.contexts[id.index()] = Some(Box::new(Context {
            id,
            peer,
            initiator,
            queue: VecDeque::new(),
            prompt: false,
            active: false,
            next_message: 0,
            next_rma: 0,
            order: Order::default(),
            writes: HashMap::new(),
            reads: Vec::new(),
            free_reads: Vec::new(),
            offers: 0,
        }));
    }

    /// The context we opened to a peer, opened now if there is none.
    fn context_to(&mut self, now: Time, peer: PeerId) -> Option<PdcId> {
        if let Some(id) = self.peers[peer.0 as usize].ours {
            return Some(id);
        }
        let id = self.pdcs.open(now, reliability::PeerKey(peer.0))?;
        self.add_context(id, peer, true);
        self.peers[peer.0 as usize].ours = Some(id);
        Some(id)
    }

    /// Puts an operation behind those already queued on a context.
    fn queue_on(&mut self, id: PdcId, op: u32) {
        if let Some(context) = self.contexts.get_mut(id.index()).and_then(Option::as_mut) {
            context.queue.push_back(op);
            if !context.active {
                context.active = true;
                self.active.push_back(id);
            }
        }
        if let Some(op) = self.ops.get_mut(op) {
            op.pdc = u32::try_from(id.index()).unwrap_or(u32::MAX);
        }
    }

    fn activate(&mut self, id: PdcId) {
        if let Some(context) = self.contexts.get_mut(id.index()).and_then(Option::as_mut)
            && context.id == id
            && !context.active
        {
            context.active = true;
            self.active.push_back(id);
        }
    }

    /// Arranges for [`Self::check_silent_peers`] while something is owed to us.
    fn watch(&mut self, now: Time) {
        if self.keepalive_at.is_none() {
            self.keepalive_at = Some(now + self.config.keepalive);
        }
    }
}
