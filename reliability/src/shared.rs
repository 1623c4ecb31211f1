//! State that all contexts of an endpoint share, and pools of memory that they borrow.

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

/// Most rings that are kept for contexts that become active; further ones are returned to the
/// allocator.
const MAX_POOLED: usize = 1024;

/// Most packets without data in the queue of [`ControlQueue::send`], and most rate packets in
/// theirs. Further ones are dropped, as a network would drop them.
const MAX_QUEUED: usize = 4096;

/// State of an endpoint that its contexts use and share.
#[derive(Debug)]
pub(crate) struct Shared<D> {
    pub(crate) config: Arc<Config>,
    pub(crate) counters: Counters,
    pub(crate) flows: FlowRecords,
    pub(crate) events: VecDeque<Event<D>>,
    pub(crate) receiver: cc::Receiver,
    pub(crate) groups: Groups,
    /// The time of the latest call that changed a context.
    pub(crate) now: Time,
    /// The time at which this process last resumed after an absence.
    pub(crate) resumed: Time,
    pub(crate) pools: Pools<D>,
    pub(crate) control: ControlQueue,
    /// The telemetry that the ACK built last echoes to the peer.
    pub(crate) echo: cc::Hops,
    /// Rate packets that wait to be sent: the endpoint's own, and with a peer those to return to
    /// that peer.
    pub(crate) rates: VecDeque<(Option<PeerKey>, cc::RatePacket)>,
    pub(crate) schedule: Schedule,
    pub(crate) rng: Rng,
    /// The number of paths (UDP source ports) to choose from.
    pub(crate) paths: u16,
    /// True once a fragment was accepted on any context of the endpoint.
    pub(crate) fragmented: bool,
}

/// Memory that contexts borrow while they are active, so that an idle context is small and an
/// active one allocates nothing per packet.
#[derive(Debug)]
pub(crate) struct Pools<D> {
    /// Empty ring buffers for the outstanding packets of sending halves.
    pub(crate) rings: Vec<VecDeque<Slot<D>>>,
    /// Maps of packets received ahead of a missing one, for receiving halves.
    pub(crate) holes: Vec<Holes>,
}

/// Control packets that wait to be sent, and the contexts that have some to build.
#[derive(Debug)]
pub(crate) struct ControlQueue {
    /// Packets that are complete, and need no context to build them.
    out: VecDeque<ControlOut>,
    /// Slots of contexts that have a control packet to send.
    pub(crate) slots: VecDeque<u16>,
}

impl ControlQueue {
    /// Queues a control packet that is complete; drops it if the queue is full.
    pub(crate) fn send(&mut self, packet: ControlOut) {
        if self.out.len() < MAX_QUEUED {
            self.out.push_back(packet);
        }
    }

    /// Returns whether a control packet is queued, or a context may have one.
    #[inline]
    pub(crate) fn has_packets(&self) -> bool {
        !self.slots.is_empty() || !self.out.is_empty()
    }

    /// Returns the next packet without data that is complete.
    #[inline]
    pub(crate) fn next_out(&mut self) -> Option<ControlOut> {
        self.out.pop_front()
    }
}

impl<D> Pools<D> {
    /// Returns the empty ring buffer of a sending half to the pool.
    #[inline]
    pub(crate) fn release_ring(&mut self, ring: VecDeque<Slot<D>>) {
        debug_assert!(ring.is_empty());
        if self.rings.len() < MAX_POOLED && ring.capacity() > 0 {
            self.rings.push(ring);
        }
    }

    /// Frees maps of received packets beyond the most that the pool may keep.
    pub(crate) fn trim_pool(&mut self) {
        self.holes.truncate(MAX_POOLED);
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

    /// Queues a rate packet of a flow of this end, or back to a peer. Drops it if the queue is
    /// full.
    pub(crate) fn send_rate_packet(&mut self, to: Option<PeerKey>, packet: cc::RatePacket) {
        if self.rates.len() < MAX_QUEUED {
            self.rates.push_back((to, packet));
        }
    }

    /// Returns whether the newest rate packet in the queue belongs to context `id`.
    pub(crate) fn has_rate_packet_of(&self, id: PdcId) -> bool {
        self.rates.back().is_some_and(|(to, packet)| to.is_none() && packet.flow == id.to_u32())
    }

    /// Returns a random path out of the endpoint's.
    pub(crate) fn any_path(&mut self) -> u16 {
        // `below(paths)` is less than `paths`, which has 16 bits.
        self.rng.below(u32::from(self.paths)) as u16
    }

    /// Queues a NACK to `peer` about a packet for which this end has no context.
    pub(crate) fn send_stateless_nack(&mut self, peer: PeerKey, nack: Nack) {
        self.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        let path = self.any_path();
        self.control.send(ControlOut { peer, path, packet: ControlPacket::Nack(nack) });
    }
}
