//! Packet runs (`wire/src/packet_run.rs`) of a context that is named by its number.

use super::Pdcs;
use crate::base::Time;
use crate::pdc::{Outcome, accept_run, send_end, send_run};
use crate::tx::RunPackets;
use crate::types::{Arrival, Delivery, NewPacket, PdcId, RunArrival, RunGrant, TxGrant};

impl<D: Copy> Pdcs<D> {
    /// Returns whether the next `count` packets behind the packet of `delivery` are all new and fit the window. If that packet
    /// is [accepted](Pdcs::accept) without a response, [`Pdcs::accept_run`] then accepts them.
    #[must_use]
    pub fn accepts_run_behind(&self, delivery: &Delivery, count: u16) -> bool {
        let window = self.shared.config.recv_window_packets;
        let pdc = self.table.get(delivery.id());
        pdc.is_some_and(|pdc| pdc.rx().takes_run_behind(delivery.psn(), count, window))
    }

    /// Accepts the data packets of `run`, which follow the newest packet that was [accepted](Pdcs::accept) on context `id`, came
    /// from its sender, and for all of which the engine has room. All but the end are like `arrival`, which is not trimmed.
    /// Older packets may be missing. Returns false and changes nothing where packets at or after the run arrived before, or
    /// the run is beyond the window; then the caller [hands in](Pdcs::rx_request) each packet.
    pub fn accept_run(&mut self, id: PdcId, now: Time, run: RunArrival, arrival: &Arrival) -> bool {
        debug_assert!(self.pending.is_none() && !arrival.trimmed);
        let Some(pdc) = self.table.get_mut(id) else { return false };
        let taken = accept_run(pdc, now, run, arrival, &mut self.shared);
        if taken && !pdc.conclude_arrival(now, &mut self.shared) {
            self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        }
        taken
    }

    /// Asks to send up to `count` packets of `bytes` of UDP payload each for the first time. They follow the packet for which
    /// [`Pdcs::next_packet`] gave permission at this very moment, and something waits behind each of them. `desc` returns the
    /// descriptor of the n-th. Returns `None` when no packet may go this way; then the caller asks for each.
    pub fn send_run(
        &mut self,
        id: PdcId,
        now: Time,
        (bytes, count): (u32, u16),
        desc: impl FnMut(u16) -> D,
    ) -> Option<RunGrant> {
        let pdc = self.table.get_mut(id)?;
        let shared = &mut self.shared;
        let grant = send_run(pdc, now, RunPackets { bytes, count }, desc, shared);
        let when = pdc.deadline_after_send(shared);
        shared.schedule.schedule_by(id.slot_number(), when);
        grant
    }

    /// Asks to send a packet for the first time that follows, in its train, the one for which [`Pdcs::next_packet`] or
    /// [`Pdcs::send_run`] gave permission at this very moment. Returns `None` when it may not go this way; then the caller asks
    /// by [`Pdcs::next_packet`].
    pub fn send_run_end(&mut self, id: PdcId, now: Time, packet: &NewPacket<D>) -> Option<TxGrant> {
        let pdc = self.table.get_mut(id)?;
        let shared = &mut self.shared;
        let grant = send_end(pdc, now, packet, shared)?;
        let when = pdc.deadline_after_send(shared);
        shared.schedule.schedule_by(id.slot_number(), when);
        Some(grant)
    }
}
