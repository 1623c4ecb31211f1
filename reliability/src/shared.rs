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
use crate::wire::Nack;
use crate::{Config, ControlOut, ControlPacket, Counters, Event, PdcId, PeerKey};

/// Rings kept for the next active context; more are given back to the allocator.
const POOL: usize = 1024;

/// Packets without data that may wait to be sent, besides those a context makes when asked, and rate packets; more are
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
    /// The latest time known.
    pub(crate) now: Time,
    /// When somebody listened again after a pause.
    pub(crate) resumed: Time,
    pub(crate) pools: Pools<D>,
    pub(crate) control: ControlQueue,
    /// What the acknowledgement made last sends back of switches' records.
    pub(crate) echo: cc::Hops,
    /// Rate packets that wait to be sent: those of the peer that is named are on their way back to it.
    pub(crate) rates: VecDeque<(Option<PeerKey>, cc::RatePacket)>,
    pub(crate) schedule: Schedule,
    pub(crate) rng: Rng,
    /// Number of paths.
    pub(crate) paths: u16,
    /// A fragment was taken, on any context.
    pub(crate) fragmented: bool,
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

/// Packets without data that wait to be sent, and the contexts that have some when asked.
#[derive(Debug)]
pub(crate) struct ControlQueue {
    /// Packets that no living context makes.
    out: VecDeque<ControlOut>,
    /// Slots whose contexts have a packet without data to send.
    pub(crate) slots: VecDeque<u16>,
}

impl ControlQueue {
    /// Sends a packet without data that no context makes when asked.
    pub(crate) fn send(&mut self, packet: ControlOut) {
        if self.out.len() < OUT {
            self.out.push_back(packet);
        }
    }

    /// The next packet that no context makes.
    #[inline]
    pub(crate) fn next_out(&mut self) -> Option<ControlOut> {
        self.out.pop_front()
    }
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
            now: Time::ZERO,
            resumed: Time::ZERO,
            pools: Pools { rings: Vec::new(), holes: Vec::new() },
            control: ControlQueue { out: VecDeque::new(), slots: VecDeque::new() },
            echo: cc::Hops::default(),
            rates: VecDeque::new(),
            schedule: Schedule::default(),
            rng: Rng::new(seed),
            paths: paths.max(1),
            fragmented: false,
            config,
        }
    }

    /// Sends a rate packet: of a flow of this end, or back to a peer.
    pub(crate) fn send_rate_packet(&mut self, to: Option<PeerKey>, packet: cc::RatePacket) {
        if self.rates.len() < OUT {
            self.rates.push_back((to, packet));
        }
    }

    /// Whether the newest rate packet that waits to leave is that of context `id`.
    pub(crate) fn asks_for(&self, id: PdcId) -> bool {
        self.rates.back().is_some_and(|(to, packet)| to.is_none() && packet.flow == id.to_u32())
    }

    /// A random path.
    pub(crate) fn any_path(&mut self) -> u16 {
        // `below(paths)` is less than `paths`, which has 16 bits.
        self.rng.below(u32::from(self.paths)) as u16
    }

    /// Sends a NACK from an end that has no context to `peer` for it.
    pub(crate) fn send_stateless_nack(&mut self, peer: PeerKey, nack: Nack) {
        self.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        let path = self.any_path();
        self.control.send(ControlOut { peer, path, packet: ControlPacket::Nack(nack) });
    }
}
