//! What all contexts of an endpoint share, and what they give back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Rng, Time};
use crate::cc;
use crate::context::Groups;
use crate::flows::FlowRecords;
use crate::rx::Holes;
use crate::schedule::Schedule;
use crate::tx::Slot;
use crate::{Config, ControlOut, Counters, Event, PeerKey};

/// Rings kept for the next active context; more are given back to the allocator.
const POOL: usize = 1024;

/// Packets without data that may wait to be sent, besides those a context makes when asked; more are
/// dropped, as a network would.
const OUT: usize = 4096;

/// Everything a context uses but does not own.
#[derive(Debug)]
pub(crate) struct Shared<D> {
    pub(crate) config: Arc<Config>,
    pub(crate) counters: Counters,
    pub(crate) flows: FlowRecords,
    pub(crate) events: VecDeque<Event<D>>,
    pub(crate) receiver: cc::Receiver,
    pub(crate) groups: Groups,
    /// The host of each peer, as far as known.
    hosts: Vec<u32>,
    /// The latest time known.
    pub(crate) now: Time,
    pub(crate) pools: Pools<D>,
    /// Packets that no living context makes.
    out: VecDeque<ControlOut>,
    /// Slots whose contexts have a packet without data to send.
    pub(crate) with_control: VecDeque<u16>,
    pub(crate) schedule: Schedule,
    pub(crate) rng: Rng,
    /// Number of paths.
    pub(crate) paths: u16,
}

/// Memory that contexts borrow while they are active, so that an idle one is small and an active one
/// allocates nothing a packet.
#[derive(Debug)]
pub(crate) struct Pools<D> {
    /// Empty rings for sending halves.
    pub(crate) rings: Vec<VecDeque<Slot<D>>>,
    /// For receiving halves.
    pub(crate) holes: Vec<Holes>,
}

impl<D> Pools<D> {
    /// Takes back an empty ring.
    #[inline]
    pub(crate) fn recycle(&mut self, ring: VecDeque<Slot<D>>) {
        debug_assert!(ring.is_empty());
        if self.rings.len() < POOL && ring.capacity() > 0 {
            self.rings.push(ring);
        }
    }

    /// Keeps the pool of holes bounded.
    pub(crate) fn trim(&mut self) {
        self.holes.truncate(POOL);
    }
}

impl<D> Shared<D> {
    pub(crate) fn new(config: Arc<Config>, seed: u64) -> Self {
        let paths = config.paths.paths();
        Self {
            counters: Counters::default(),
            flows: FlowRecords::default(),
            events: VecDeque::new(),
            receiver: cc::Receiver::new(&config.receiver),
            groups: Groups::default(),
            hosts: Vec::new(),
            now: Time::ZERO,
            pools: Pools { rings: Vec::new(), holes: Vec::new() },
            out: VecDeque::new(),
            with_control: VecDeque::new(),
            schedule: Schedule::default(),
            rng: Rng::new(seed),
            paths: paths.max(1),
            config,
        }
    }

    /// The host on which `peer` lives.
    #[inline]
    pub(crate) fn host_of(&self, peer: PeerKey) -> u32 {
        self.hosts.get(peer.0 as usize).copied().unwrap_or(peer.0)
    }

    /// `peer` lives on `host`; until then each peer is a host of its own.
    pub(crate) fn set_host(&mut self, peer: PeerKey, host: u32) {
        let at = peer.0 as usize;
        for unknown in self.hosts.len()..=at {
            // Not above `peer`, which has 32 bits.
            self.hosts.push(unknown as u32);
        }
        self.hosts[at] = host;
    }

    /// A random path.
    pub(crate) fn any_path(&mut self) -> u16 {
        // `below(paths)` is less than `paths`, which has 16 bits.
        self.rng.below(u32::from(self.paths)) as u16
    }

    /// Sends a packet without data that no context makes when asked.
    pub(crate) fn send_control(&mut self, packet: ControlOut) {
        if self.out.len() < OUT {
            self.out.push_back(packet);
        }
    }

    /// The next of those.
    #[inline]
    pub(crate) fn next_control(&mut self) -> Option<ControlOut> {
        self.out.pop_front()
    }
}
