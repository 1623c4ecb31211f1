//! The last step of receiving: the transport learns the outcome of a packet, so that it
//! acknowledges, refuses or drops it.

use super::PacketReceiver;
use super::place::Placed;
use crate::memory::Memory;
use crate::packet_outcome::PacketOutcome;
use crate::reliability::{Arrival, Delivery};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Reports to the transport the outcome of a packet that it delivered, and of those that were
    /// placed with it.
    #[inline]
    pub(super) fn conclude(&mut self, delivery: Delivery, placed: &Placed, arrival: &Arrival) {
        let id = delivery.id();
        self.conclude_one(delivery, placed.outcome);
        if let Some(run) = placed.followers {
            let accepted = self.engine.pdcs.accept_run(id, self.now, run, arrival);
            debug_assert!(accepted, "the run does not continue the context's PSNs");
            self.engine.report.counters.rx_run_packets += u64::from(run.packets());
        }
    }

    /// Reports to the transport how the engine handled a packet that the transport delivered.
    #[inline]
    pub(super) fn conclude_one(&mut self, delivery: Delivery, outcome: PacketOutcome) {
        let (now, pdcs) = (self.now, &mut self.engine.pdcs);
        match outcome {
            PacketOutcome::Yes(response) => pdcs.accept(now, delivery, response),
            PacketOutcome::Later(code) => {
                self.engine.report.counters.rx_held_back += 1;
                pdcs.refuse(now, delivery, code);
            }
            PacketOutcome::No => {
                self.engine.report.counters.rx_inconsistent += 1;
                pdcs.drop_malformed(delivery);
            }
        }
    }
}
