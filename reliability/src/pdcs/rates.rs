//! Rate packets (s-PERC): they go the way of a flow's data, and come back from whoever is at its end. No context there knows of
//! them, so the first may leave before the first data.

use super::Pdcs;
use crate::base::Time;
use crate::cc::RatePacket;
use crate::pdc::{Outcome, on_rates};
use crate::types::{PdcId, PeerKey};

/// A rate packet to send.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateOut {
    /// To whom.
    pub peer: PeerKey,
    /// The context whose data goes the same way; of one that goes back, none.
    pub id: Option<PdcId>,
    /// It, with its path ([`RatePacket::path`]).
    pub packet: RatePacket,
}

/// The rate packets of an endpoint whose congestion control lives on them ([`crate::Config::rates`]).
#[derive(Debug)]
pub struct Rates<'a, D>(&'a mut Pdcs<D>);

impl<'a, D: Copy> Rates<'a, D> {
    /// Of this endpoint.
    pub const fn of(pdcs: &'a mut Pdcs<D>) -> Self {
        Self(pdcs)
    }

    /// Whether some wait to be sent.
    #[must_use]
    pub fn wait(pdcs: &Pdcs<D>) -> bool {
        !pdcs.shared.rates.is_empty()
    }

    /// The next one to send, before any data that is sent from now on: its context may have some, too
    /// ([`crate::Event::Ready`]).
    pub fn poll(self, now: Time) -> Option<RateOut> {
        let Self(pdcs) = self;
        while let Some((back_to, packet)) = pdcs.shared.rates.pop_front() {
            if let Some(peer) = back_to {
                return Some(RateOut { peer, id: None, packet });
            }
            let id = PdcId::from_u32(packet.flow);
            // One whose context is gone says nothing to anybody.
            if let Some(pdc) = pdcs.table.get(id) {
                let peer = pdc.numbers().peer;
                let packet = RatePacket { path: packet.path % pdcs.shared.paths, ..packet };
                pdcs.conclude(now, id.slot_number(), Outcome::Alive);
                return Some(RateOut { peer, id: Some(id), packet });
            }
        }
        None
    }

    /// One arrived from `peer`. `false` when it was not believed.
    pub fn rx(self, now: Time, peer: PeerKey, packet: &RatePacket) -> bool {
        let Self(pdcs) = self;
        if !pdcs.shared.config.rates() {
            pdcs.shared.counters.rx_mismatch += 1;
            return false;
        }
        if !packet.back {
            if !packet.leaving {
                let answer = RatePacket { back: true, ..*packet };
                pdcs.shared.send_rate_packet(Some(peer), answer);
            }
            return true;
        }
        let id = PdcId::from_u32(packet.flow);
        let Some(pdc) = pdcs.table.get_mut(id).filter(|pdc| pdc.numbers().peer == peer) else {
            pdcs.shared.counters.rx_unknown_context += 1;
            return false;
        };
        on_rates(pdc, now, packet, &mut pdcs.shared);
        pdcs.conclude(now, id.slot_number(), Outcome::Alive);
        true
    }
}
