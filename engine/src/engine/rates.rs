//! Rate packets (s-PERC): requests of endpoints to the links of a path, and their replies. They
//! have no PSN and belong to no context at the receiver; like requests, they carry the identity of
//! the initiator.

use super::receive::PacketReceiver;
use super::{Engine, step};
use crate::base::{Batch, Time};
use crate::memory::Memory;
use crate::operation::PeerId;
use crate::outbound::push_whole;
use crate::peers::Initiator;
use crate::reliability::{PeerKey, emit_rates, rates_of};
use crate::wire;

impl Engine {
    /// Adds the rate packets that wait to be sent to `batch`, and releases data that waited for
    /// them.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_rates(&mut self, now: Time, batch: &mut Batch) {
        let who = Initiator { port: self.config.port, tag: self.config.instance.tag() };
        while let Some(out) = self.pdcs.poll_rate_packet(now) {
            let dst = self.peers.get(PeerId(out.peer.0)).addr();
            push_whole(batch, (dst, out.packet.path), wire::RatePacket::MAX_LEN, |bytes| {
                emit_rates(&out.packet, who.field(), bytes)
            });
        }
        self.drain_events(now);
    }
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a rate packet, by which the links of a path report the rate that a flow may use.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_rates(&mut self, packet: &wire::RatePacket<'_>) {
        let who = Initiator::from_field(packet.head.initiator);
        let step = step!(self.engine, self.now);
        let Some(peer) = step.peers.find_verified(self.src.ip(), who) else {
            step.report.counters.rx_foreign += 1;
            return;
        };
        if step.pdcs.rx_rate_packet(self.now, PeerKey(peer.0), &rates_of(packet)) {
            self.record_rx(peer);
        }
    }
}
