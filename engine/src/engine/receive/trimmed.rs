//! Handling of data packets whose payload a switch cut off (trimmed).

use super::PacketReceiver;
use crate::memory::Memory;
use crate::operation::PeerId;
use crate::reliability::{Arrival, RxVerdict};
use crate::wire::{self, Dest};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a data packet whose payload a switch cut off. The transport notifies the sender at
    /// once.
    pub(super) fn handle_trimmed(&mut self, arrival: &Arrival, bytes: &[u8]) {
        let Ok(trimmed) = wire::parse_trimmed(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let origin = match (trimmed.pds.dest, &trimmed.ses) {
            (Dest::Pdc(number), _) => self.find_context(number).map(Into::into),
            (Dest::Syn { .. }, Some(ses)) => self.find_initiator(&trimmed.pds, ses),
            (Dest::Syn { .. }, None) => {
                // The packet is cut so short that it does not name the initiator. The sender's
                // timer recovers.
                self.engine.report.counters.rx_foreign += 1;
                None
            }
        };
        let Some(origin) = origin else { return };
        let verdict = self.engine.pdcs.rx_request(self.now, origin, &trimmed.pds, arrival);
        if matches!(verdict, RxVerdict::Trimmed | RxVerdict::Duplicate) {
            self.record_rx(PeerId(origin.peer().0));
        }
    }
}
