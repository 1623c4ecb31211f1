//! What all contexts of an endpoint share.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Rng, Time};
use crate::bitmap::Bitmap;
use crate::cc;
use crate::context::Groups;
use crate::timers::Timers;
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
    pub(crate) events: VecDeque<Event<D>>,
    pub(crate) receiver: cc::Receiver,
    pub(crate) groups: Groups,
    /// The host of each peer, as far as known.
    pub(crate) hosts: Vec<u32>,
    /// The latest time heard of.
    pub(crate) now: Time,
    /// Empty rings for sending halves.
    pub(crate) rings: Vec<VecDeque<Slot<D>>>,
    /// Clear bitmaps for receiving halves.
    pub(crate) bitmaps: Vec<Bitmap>,
    /// Packets that no living context makes.
    pub(crate) out: VecDeque<ControlOut>,
    /// Slots whose contexts have something to say.
    pub(crate) talkative: VecDeque<u16>,
    pub(crate) timers: Timers,
    pub(crate) rng: Rng,
    /// Number of paths.
    pub(crate) paths: u16,
}

impl<D> Shared<D> {
    pub(crate) fn new(config: Arc<Config>, seed: u64) -> Self {
        let paths = config.paths.paths();
        Self {
            counters: Counters::default(),
            events: VecDeque::new(),
            receiver: cc::Receiver::new(&config.receiver),
            groups: Groups::default(),
            hosts: Vec::new(),
            now: Time::ZERO,
            rings: Vec::new(),
            bitmaps: Vec::new(),
            out: VecDeque::new(),
            talkative: VecDeque::new(),
            timers: Timers::default(),
            rng: Rng::new(seed),
            paths: paths.max(1),
            config,
        }
    }

    /// The host on which `peer` lives.
    pub(crate) fn host_of(&self, peer: PeerKey) -> u32 {
        self.hosts.get(peer.0 as usize).copied().unwrap_or(peer.0)
    }

    /// A random path.
    pub(crate) fn any_path(&mut self) -> u16 {
        // `below(paths)` is less than `paths`, which has 16 bits.
        self.rng.below(u32::from(self.paths)) as u16
    }

    pub(crate) fn say(&mut self, packet: ControlOut) {
        if self.out.len() < OUT {
            self.out.push_back(packet);
        }
    }

    /// Takes back an empty ring.
    pub(crate) fn recycle(&mut self, ring: VecDeque<Slot<D>>) {
        debug_assert!(ring.is_empty());
        if self.rings.len() < POOL && ring.capacity() > 0 {
            self.rings.push(ring);
        }
    }

    /// Keeps the pool of bitmaps bounded.
    pub(crate) fn trim_pools(&mut self) {
        self.bitmaps.truncate(POOL);
    }
}
