//! Runs: packets of one context that follow each other and differ in their numbers alone.

use super::Pdcs;
use crate::base::{Psn, Time};
use crate::pdc::{Outcome, accept_run, goes_on_at, send_end, send_run};
use crate::tx::Following;
use crate::types::{Arrival, NewPacket, PdcId, RunArrival, RunGrant, TxGrant};

/// What can be done with many packets of a context at once.
#[derive(Debug)]
pub struct Runs<'a, D> {
    pdcs: &'a mut Pdcs<D>,
    id: PdcId,
}

impl<D: Copy> Pdcs<D> {
    /// The runs of context `id`.
    pub const fn runs(&mut self, id: PdcId) -> Runs<'_, D> {
        Runs { pdcs: self, id }
    }
}

impl<D: Copy> Runs<'_, D> {
    /// Whether all that came before `psn` was accepted and nothing that came after it: what comes from there on without a
    /// gap is new.
    #[must_use]
    pub fn go_on_at(self, psn: Psn) -> bool {
        self.pdcs.table.get_mut(self.id).is_some_and(|pdc| goes_on_at(pdc, psn))
    }

    /// The data packets of `run` follow the newest that was [accepted](Pdcs::accept), on this
    /// context and from its sender, whatever is missing before; all but the end are like `arrival`, which is not
    /// trimmed. Takes them, for the engine has room for all. `false`, and nothing is changed, where others at or after them
    /// came already, or they are beyond the window; then each is [handed in](Pdcs::rx_request) as ever.
    pub fn accept(self, now: Time, run: RunArrival, arrival: &Arrival) -> bool {
        let Self { pdcs, id } = self;
        debug_assert!(pdcs.pending.is_none() && !arrival.trimmed);
        let Some(pdc) = pdcs.table.get_mut(id) else { return false };
        let taken = accept_run(pdc, now, run, arrival, &mut pdcs.shared);
        if taken && !pdc.conclude_arrival(now, &mut pdcs.shared) {
            pdcs.conclude(now, id.slot_number(), Outcome::Alive);
        }
        taken
    }

    /// Asks to send up to `count` packets of `bytes` of UDP payload each for the first time, that follow the one
    /// for which [`Pdcs::next_packet`] gave permission at this very moment; something waits behind each of them.
    /// `desc` tells what the engine needs to build the n-th again. `None` when none may go this way; then each
    /// is asked for as ever.
    pub fn send(
        self,
        now: Time,
        (bytes, count): (u32, u16),
        desc: impl FnMut(u16) -> D,
    ) -> Option<RunGrant> {
        let Self { pdcs, id } = self;
        let pdc = pdcs.table.get_mut(id)?;
        let shared = &mut pdcs.shared;
        let grant = send_run(pdc, now, Following { bytes, count }, desc, shared);
        let when = pdc.deadline_after_send(shared);
        shared.schedule.at_latest(id.slot_number(), when);
        grant
    }

    /// Asks to send a packet for the first time, that follows in its train the one for which [`Pdcs::next_packet`] or
    /// [`Runs::send`] gave permission at this very moment. `None` when it may not go this way; then it is asked for as ever.
    pub fn send_end(self, now: Time, packet: &NewPacket<D>) -> Option<TxGrant> {
        let Self { pdcs, id } = self;
        let pdc = pdcs.table.get_mut(id)?;
        let shared = &mut pdcs.shared;
        let grant = send_end(pdc, now, packet, shared)?;
        let when = pdc.deadline_after_send(shared);
        shared.schedule.at_latest(id.slot_number(), when);
        Some(grant)
    }
}
