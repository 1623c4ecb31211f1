//! What switches write into packets: it goes in with a packet, and out with its acknowledgement.

use super::Pdcs;
use crate::base::Time;
use crate::cc::{Hops, ReceiverCc as _, SenderList};
use crate::tx::AckFacts;
use crate::types::{Arrival, PeerKey, RxVerdict};
use crate::wire::{Ack, Request, Response};

/// The contexts of an endpoint, told what switches wrote into the packet that is handed in next.
#[derive(Debug)]
pub struct Told<'a, D> {
    pdcs: &'a mut Pdcs<D>,
    telemetry: &'a Hops,
}

impl<'a, D: Copy> Told<'a, D> {
    /// By these records, in the order of the path.
    pub const fn by(pdcs: &'a mut Pdcs<D>, telemetry: &'a Hops) -> Self {
        Self { pdcs, telemetry }
    }

    /// The packet that is handed in next says who else sends to this endpoint (Dart's look-ahead). Peers are named by their
    /// keys; a list that makes no sense is counted.
    pub fn announce(pdcs: &mut Pdcs<D>, now: Time, ahead: &SenderList<'_>) {
        let believed = pdcs.shared.receiver.on_sender_list(now, ahead);
        pdcs.shared.counters.rx_bad_lists += u64::from(!believed);
    }

    /// [`Pdcs::rx_request`]. Where congestion control wants it ([`crate::cc::AckStyle::telemetry`]), the acknowledgement
    /// sends the records back: see [`Told::echo`].
    pub fn rx_request(
        self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        arrival: &Arrival,
    ) -> RxVerdict {
        let Self { pdcs, telemetry } = self;
        let verdict = pdcs.rx_request(now, peer, pds, arrival);
        if let RxVerdict::Deliver(delivery) = &verdict
            && pdcs.shared.config.acks.telemetry
            && let Some(pdc) = pdcs.table.get_mut(delivery.id())
        {
            pdc.tx_mut().rare_mut().keep_telemetry(telemetry);
        }
        verdict
    }

    /// [`Pdcs::rx_ack`] of an ACK that sends back what switches wrote into the packet it is about.
    #[inline]
    pub fn rx_ack(self, now: Time, peer: PeerKey, ack: &Ack, response: Option<&Response>) -> bool {
        let Self { pdcs, telemetry } = self;
        let Ok(slot) =
            pdcs.table.find(&mut pdcs.shared.counters, peer, ack.dpdcid, Some(ack.spdcid))
        else {
            return false;
        };
        let Some(pdc) = pdcs.table.at_mut(slot) else { return false };
        let facts = AckFacts::new(ack, response, telemetry);
        let outcome = pdc.on_ack(now, ack, &facts, &mut pdcs.shared);
        pdcs.conclude_believed(now, slot, outcome)
    }

    /// What the packet that [`Pdcs::poll_control`] gave last sends back of what switches wrote: nothing unless it is an
    /// acknowledgement, and that is wanted.
    #[must_use]
    pub fn echo(pdcs: &Pdcs<D>) -> &Hops {
        &pdcs.shared.echo
    }
}
