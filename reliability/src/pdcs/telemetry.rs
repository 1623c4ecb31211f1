//! In-band telemetry: packets are handed in with the records that switches wrote into them, and
//! acknowledgements echo the records.

use super::Pdcs;
use crate::base::Time;
use crate::cc::{Hops, ReceiverCc as _, SenderList};
use crate::types::Delivery;

impl<D: Copy> Pdcs<D> {
    /// Handles a list of senders that the packet to be handed in next carries (Dart's look-ahead).
    /// The list names peers by their keys. An invalid list is ignored and counted.
    pub fn handle_sender_list(&mut self, now: Time, list: &SenderList<'_>) {
        let valid = self.shared.receiver.on_sender_list(now, list);
        self.shared.counters.rx_bad_lists += u64::from(!valid);
    }

    /// Keeps the records that switches wrote into a new data packet, in the order of the path. Where congestion control
    /// wants them ([`crate::cc::AckStyle::telemetry`]), the acknowledgement sends the records back: see
    /// [`Pdcs::telemetry_echo`].
    pub fn keep_telemetry(&mut self, delivery: &Delivery, telemetry: &Hops) {
        if self.shared.config.acks.telemetry
            && let Some(pdc) = self.table.get_mut(delivery.id())
        {
            pdc.rx_mut().rare_mut().keep_telemetry(telemetry);
        }
    }

    /// Returns the telemetry that the packet which [`Pdcs::poll_control`] returned last sends back. There is none unless that
    /// packet is an acknowledgement and congestion control wants telemetry.
    #[must_use]
    pub fn telemetry_echo(&self) -> &Hops {
        &self.shared.echo
    }
}
