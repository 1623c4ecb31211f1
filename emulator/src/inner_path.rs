//! The inner path of hosts, by which the ranks of one host exchange messages: copies through memory, which
//! pass neither a card nor a switch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use squall_base::Rate;
use squall_net::emulator::frame::PacketFrame;
use squall_netsim::Picos;

use super::card::Pending;
use super::emulation::Route;

/// Rate and latency of messages between ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPath {
    /// Rate at which a rank copies its messages, whichever rank of the host receives them.
    pub rate: Rate,
    /// Time from the last copied byte until the receiver sees the packet.
    pub latency: Picos,
}

/// A packet between two ranks of a host.
pub(super) struct InnerPacket {
    pub(super) host: u32,
    pub(super) tag: u64,
    pub(super) frame: PacketFrame,
    pub(super) payload: Vec<u8>,
}

/// The inner paths of all hosts, with the packets on them. A sender copies one packet after the other;
/// senders do not slow one another down.
pub(super) struct InnerPaths {
    path: InnerPath,
    /// Time at which each sender has copied its packets.
    free_at: BTreeMap<u32, Picos>,
    /// Packets that have not arrived, with the times of their arrival.
    pending: BinaryHeap<Reverse<Pending<InnerPacket>>>,
    number: u64,
}

impl InnerPaths {
    pub(super) const fn new(path: InnerPath) -> Self {
        Self { path, free_at: BTreeMap::new(), pending: BinaryHeap::new(), number: 0 }
    }

    pub(super) const fn path(&self) -> InnerPath {
        self.path
    }

    /// Hands a packet of `route.sender` to the inner path of its host at `at`.
    pub(super) fn push(&mut self, at: Picos, route: Route, packet: InnerPacket) {
        let free_at = self.free_at.entry(route.sender).or_default();
        *free_at = at.max(*free_at) + Picos::transmit(self.path.rate, packet.payload.len() as u64);
        let at = *free_at + self.path.latency;
        self.number += 1;
        let (flow, number) = (route.flow, self.number);
        self.pending.push(Reverse(Pending { at, flow, number, item: packet }));
    }

    /// Returns the earliest arrival of a packet, and its host.
    pub(super) fn next_arrival(&self) -> Option<(Picos, u32)> {
        self.pending.peek().map(|Reverse(pending)| (pending.at, pending.item.host))
    }

    /// Removes the packet that arrives next. Returns it with the time of its arrival.
    pub(super) fn pop(&mut self) -> Option<(Picos, InnerPacket)> {
        self.pending.pop().map(|Reverse(pending)| (pending.at, pending.item))
    }

    /// Returns the number of packets that have not arrived.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}
