//! Rate packets (s-PERC): they take the path of a flow's data, and the endpoint at its end sends them back. That endpoint
//! needs no context for them, so the first may leave before the first data.

use super::Pdcs;
use crate::base::Time;
use crate::cc::RatePacket;
use crate::pdc::{Outcome, on_rates};
use crate::types::{PdcId, PeerKey};

/// A rate packet to send to a peer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatePacketOut {
    /// The peer to which the packet goes.
    pub peer: PeerKey,
    /// The context whose data takes the same path; `None` for a packet that goes back to its sender.
    pub id: Option<PdcId>,
    /// The content of the packet, and the path that it takes ([`RatePacket::path`]).
    pub packet: RatePacket,
}

impl<D: Copy> Pdcs<D> {
    /// Returns whether rate packets of this endpoint wait to be sent.
    #[must_use]
    #[inline]
    pub fn has_rate_packets(&self) -> bool {
        !self.shared.rates.is_empty()
    }

    /// Returns the next rate packet to send. It must leave before any data that is sent from now on: its context may have some,
    /// too ([`crate::Event::Ready`]).
    pub fn poll_rate_packet(&mut self, now: Time) -> Option<RatePacketOut> {
        while let Some((back_to, packet)) = self.shared.rates.pop_front() {
            if let Some(peer) = back_to {
                return Some(RatePacketOut { peer, id: None, packet });
            }
            let id = PdcId::from_u32(packet.flow);
            // The packet of a context that has ended is discarded.
            if let Some(pdc) = self.table.get(id) {
                let peer = pdc.numbers().peer;
                let packet = RatePacket { path: packet.path % self.shared.paths, ..packet };
                self.apply_outcome(now, id.slot_number(), Outcome::Alive);
                return Some(RatePacketOut { peer, id: Some(id), packet });
            }
        }
        None
    }

    /// Handles a rate packet of `peer`. Returns false when it is not valid.
    pub fn rx_rate_packet(&mut self, now: Time, peer: PeerKey, packet: &RatePacket) -> bool {
        if !self.shared.config.uses_rates() {
            self.shared.counters.rx_mismatch += 1;
            return false;
        }
        if !packet.back {
            if !packet.leaving {
                let answer = RatePacket { back: true, ..*packet };
                self.shared.send_rate_packet(Some(peer), answer);
            }
            return true;
        }
        let id = PdcId::from_u32(packet.flow);
        let Some(pdc) = self.table.get_mut(id).filter(|pdc| pdc.numbers().peer == peer) else {
            self.shared.counters.rx_unknown_context += 1;
            return false;
        };
        on_rates(pdc, now, packet, &mut self.shared);
        self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        true
    }
}
