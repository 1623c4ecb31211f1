//! In-band telemetry: packets are handed in with the records that switches wrote into them, and
//! acknowledgements echo the records.

use super::Pdcs;
use crate::base::Time;
use crate::cc::{Hops, ReceiverCc as _, SenderList};
use crate::tx::AckFacts;
use crate::types::{Arrival, PeerKey, RxVerdict};
use crate::wire::{Ack, Request, Response};

impl<D: Copy> Pdcs<D> {
    /// Handles a list of senders that the packet to be handed in next carries (Dart's look-ahead).
    /// The list names peers by their keys. An invalid list is ignored and counted.
    pub fn handle_sender_list(&mut self, now: Time, list: &SenderList<'_>) {
        let valid = self.shared.receiver.on_sender_list(now, list);
        self.shared.counters.rx_bad_lists += u64::from(!valid);
    }

    /// Handles a request like [`Pdcs::rx_request`], with the records that switches wrote into it, in the order of the path.
    /// Where congestion control wants them ([`crate::cc::AckStyle::telemetry`]), the acknowledgement sends the records back:
    /// see [`Pdcs::telemetry_echo`].
    pub fn rx_request_with_telemetry(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        arrival: &Arrival,
        telemetry: &Hops,
    ) -> RxVerdict {
        let verdict = self.rx_request(now, peer, pds, arrival);
        if let RxVerdict::Deliver(delivery) = &verdict
            && self.shared.config.acks.telemetry
            && let Some(pdc) = self.table.get_mut(delivery.id())
        {
            pdc.rx_mut().rare_mut().keep_telemetry(telemetry);
        }
        verdict
    }

    /// Handles an ACK like [`Pdcs::rx_ack`], with the records that it sends back: those that switches wrote into the packet
    /// that the ACK is about.
    #[inline]
    pub fn rx_ack_with_telemetry(
        &mut self,
        now: Time,
        peer: PeerKey,
        ack: &Ack,
        response: Option<&Response>,
        telemetry: &Hops,
    ) -> bool {
        let Ok(slot) =
            self.table.find(&mut self.shared.counters, peer, ack.dpdcid, Some(ack.spdcid))
        else {
            return false;
        };
        let Some(pdc) = self.table.at_mut(slot) else { return false };
        let facts = AckFacts::new(ack, response, telemetry);
        let outcome = pdc.on_ack(now, ack, &facts, &mut self.shared);
        self.apply_if_valid(now, slot, outcome)
    }

    /// Returns the telemetry that the packet which [`Pdcs::poll_control`] returned last sends back. There is none unless that
    /// packet is an acknowledgement and congestion control wants telemetry.
    #[must_use]
    pub fn telemetry_echo(&self) -> &Hops {
        &self.shared.echo
    }
}
