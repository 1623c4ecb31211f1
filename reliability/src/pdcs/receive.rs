//! The calls by which the engine hands in packets: they find the context of each and handle it
//! there.

use std::sync::Arc;

use super::Pdcs;
use crate::base::{Psn, Span, Time};
use crate::cc::{self, ReceiverCc as _};
use crate::pdc::Outcome;
use crate::tx::AckFacts;
use crate::types::{
    Arrival, Contact, Delivery, Label, NamedContext, Origin, PdcFailure, PdcId, PeerKey, Refusal,
    RxVerdict,
};
use crate::wire::{Ack, Control, ControlKind, Dest, Mode, Nack, NackCode, Request, Response};

/// The divisor for the share of all contexts that peers outside the job may open together, and for the share of a
/// peer's contexts that one of them may open.
const OUTSIDE: usize = 4;
/// The divisor that gives the share of all contexts that is reserved for those that this endpoint
/// opens.
const OWN: usize = 4;

impl<D: Copy> Pdcs<D> {
    /// Returns the context that a packet without SYN names by `dpdcid`. This is the one search in
    /// the table that a packet needs: the calls that hand it in take the result.
    #[must_use]
    #[inline]
    pub fn find_context(&self, dpdcid: u16) -> Option<NamedContext> {
        let numbers = self.table.by_number(dpdcid)?.numbers();
        Some(NamedContext { id: numbers.id, peer: numbers.peer })
    }

    /// Handles a data packet. For a SYN, the engine finds the peer by the packet's address and
    /// instance; otherwise the context by [`Pdcs::find_context`].
    pub fn rx_request(
        &mut self,
        now: Time,
        from: impl Into<Origin>,
        pds: &Request,
        arrival: &Arrival,
    ) -> RxVerdict {
        debug_assert!(self.pending.is_none(), "the token of the packet before was not spent");
        self.pending = None;
        let from = from.into();
        let found = match pds.dest {
            Dest::Pdc(dpdcid) => {
                self.table.find(&mut self.shared.counters, from, dpdcid, Some(pds.spdcid))
            }
            Dest::Syn { psn_offset, .. } => {
                let start = pds.psn.minus(u32::from(psn_offset));
                let slot = self.context_of_syn(now, from.peer(), pds, start, arrival.trimmed);
                slot.and_then(|slot| self.table.at_mut(slot).ok_or(Refusal::UnknownContext))
            }
        };
        let pdc = match found {
            Ok(pdc) => pdc,
            Err(refusal) => return RxVerdict::Refused(refusal),
        };
        // Nearly all packets belong to contexts of unordered delivery.
        if (pds.mode != Mode::Rud || pdc.life().mode() != Mode::Rud)
            && let Some(refusal) = pdc.check_order(pds, arrival, &mut self.shared)
        {
            return RxVerdict::Refused(refusal);
        }
        let verdict = pdc.on_request(now, pds, arrival, &mut self.pending, &mut self.shared);
        if matches!(verdict, RxVerdict::Duplicate | RxVerdict::Trimmed) {
            let slot = pdc.numbers().id.slot_number();
            self.apply_outcome(now, slot, Outcome::Alive);
        }
        verdict
    }

    /// Returns the NACK for a data packet of a context that does not exist here ([`Pdcs::find_context`]
    /// returned `None`), or of one that an unverified peer opens, and counts it. The engine sends
    /// the NACK to the packet's sender if it knows the address. `peer` is that sender, if this
    /// instance of it is known. The NACK then distinguishes a context that this end gave up from
    /// one that it never had, whose sender must conclude that this end restarted.
    pub fn reject(&mut self, peer: Option<PeerKey>, pds: &Request) -> Option<Nack> {
        let dpdcid = match pds.dest {
            Dest::Pdc(dpdcid) => dpdcid,
            Dest::Syn { psn_offset, .. } => {
                let start = pds.psn.minus(u32::from(psn_offset));
                let had = |peer| self.table.is_replay(peer, pds.spdcid, start);
                // Packets that this end accepted before must not be sent again under other numbers.
                let code = match peer {
                    Some(peer) if had(peer) => NackCode::ClosingInErr,
                    _ => NackCode::NewStartPsn,
                };
                self.shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
                let nack = stateless_nack(pds, code, false);
                // A closing code names a context. The context is gone, so any number will do.
                let spdcid = u16::from(code == NackCode::ClosingInErr);
                return Some(Nack { spdcid, ..nack });
            }
        };
        let closed = peer.is_some_and(|peer| self.table.was_closed(peer, pds.spdcid));
        let nack = if closed {
            Nack { spdcid: dpdcid, ..stateless_nack(pds, NackCode::ClosingInErr, false) }
        } else {
            stateless_nack(pds, NackCode::InvDpdcid, false)
        };
        self.shared.counters.rx_unknown_context += 1;
        self.shared.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        Some(nack)
    }

    /// Handles that the engine accepted the packet of `delivery`. Its `response`, if any, is
    /// delivered reliably; without one, the peer gets the default response.
    pub fn accept(&mut self, now: Time, delivery: Delivery, response: Option<Response>) {
        let (id, psn) = delivery.into_parts();
        // The packet is used in place, because moving it would cost more than all else here.
        let pending = self.pending.as_ref().filter(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.accept(now, pending, response, &mut self.shared);
            let concluded = pdc.conclude_arrival(now, &mut self.shared);
            self.pending = None;
            if !concluded {
                self.apply_outcome(now, id.slot_number(), Outcome::Alive);
            }
        }
    }

    /// Handles that the engine cannot accept the packet of `delivery` now: the peer gets a NACK
    /// with `code`, and retransmits the packet later.
    pub fn refuse(&mut self, now: Time, delivery: Delivery, code: NackCode) {
        let (id, psn) = delivery.into_parts();
        let pending = self.pending.take_if(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.refuse(&pending, code, &mut self.shared);
            self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        }
    }

    /// Gives the response that the next acknowledgement of packet `psn` carries, where ACKs carry one
    /// ([`crate::Dialect::answers`]). The engine accepted the packet with the default response. With
    /// `prompt` the acknowledgement leaves in this round.
    pub fn answer(&mut self, now: Time, id: PdcId, psn: Psn, response: Response, prompt: bool) {
        if let Some(pdc) = self.table.get_mut(id) {
            pdc.answer(psn, response, prompt);
            self.apply_outcome(now, id.slot_number(), Outcome::Alive);
        }
    }

    /// Gives the response for a packet that arrived again ([`RxVerdict::Duplicate`]), like
    /// [`Pdcs::answer`].
    pub fn answer_again(&mut self, now: Time, peer: PeerKey, pds: &Request, response: Response) {
        let slot = match pds.dest {
            Dest::Pdc(dpdcid) => self.table.by_number(dpdcid).map(|pdc| pdc.numbers().id),
            Dest::Syn { .. } => {
                let slot = self.table.accepted(peer, pds.spdcid);
                slot.and_then(|slot| self.table.at(slot)).map(|pdc| pdc.numbers().id)
            }
        };
        if let Some(id) = slot {
            self.answer(now, id, pds.psn, response, true);
        }
    }

    /// Ends the context of `delivery`, whose packet contradicts itself or earlier packets. Its
    /// sender would only send the same again. A NACK closes the context at the peer, too.
    pub fn drop_malformed(&mut self, delivery: Delivery) {
        self.shared.counters.rx_malformed += 1;
        let (id, psn) = delivery.into_parts();
        let pending = self.pending.take_if(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.refuse(&pending, NackCode::UnexpEvent, &mut self.shared);
            self.remove_context(id.slot_number(), Outcome::Failed(PdcFailure::Malformed));
        }
    }

    /// Handles that packets of `lost` bytes found no room in this host's receive buffer (such as
    /// the socket's), which holds `buffer` bytes.
    #[cold]
    pub fn handle_buffer_overflow(&mut self, lost: u64, buffer: u64) {
        self.shared.receiver.on_overflow(lost, buffer);
    }

    /// Sets [`Config::ack_delay`](crate::Config::ack_delay), for the packets that arrive from now on.
    pub fn set_ack_delay(&mut self, delay: Span) {
        Arc::make_mut(&mut self.shared.config).ack_delay = delay;
    }

    /// Handles that this host's receive buffer is empty for the first time after it overflowed.
    #[cold]
    pub fn handle_buffer_drained(&mut self) {
        self.shared.receiver.on_drained();
    }

    /// Handles an ACK, with the SES response if it carried one, and the records that switches wrote
    /// into the packet that the ACK is about ([`cc::Hops::NONE`] where there are none). Returns
    /// `false` when the ACK is not valid.
    #[inline]
    pub fn rx_ack(
        &mut self,
        now: Time,
        from: impl Into<Origin>,
        ack: &Ack,
        response: Option<&Response>,
        telemetry: &cc::Hops,
    ) -> bool {
        let counters = &mut self.shared.counters;
        let found = self.table.find(counters, from.into(), ack.dpdcid, Some(ack.spdcid));
        let Ok(pdc) = found else { return false };
        let slot = pdc.numbers().id.slot_number();
        let facts = AckFacts::new(ack, response, telemetry);
        let outcome = pdc.on_ack(now, ack, &facts, &mut self.shared);
        self.apply_if_valid(now, slot, outcome)
    }

    /// Handles a NACK. Returns `false` when it is not valid.
    pub fn rx_nack(&mut self, now: Time, from: impl Into<Origin>, nack: &Nack) -> bool {
        // A peer that has no such context cannot name its number of it.
        let names_context = nack.code.needs_context() || nack.spdcid != 0;
        let spdcid = names_context.then_some(nack.spdcid);
        let counters = &mut self.shared.counters;
        let Ok(pdc) = self.table.find(counters, from.into(), nack.dpdcid, spdcid) else {
            return false;
        };
        let slot = pdc.numbers().id.slot_number();
        let outcome = pdc.on_nack(now, nack, &mut self.shared);
        self.apply_if_valid(now, slot, outcome)
    }

    /// Handles a control packet. Returns `false` when it is not valid.
    pub fn rx_control(&mut self, now: Time, from: impl Into<Origin>, control: &Control) -> bool {
        let from = from.into();
        let Dest::Pdc(dpdcid) = control.dest else {
            // Only a data packet names the endpoint instance that opens a context.
            self.shared.counters.rx_mismatch += 1;
            return false;
        };
        let counters = &mut self.shared.counters;
        let Ok(pdc) = self.table.find(counters, from, dpdcid, Some(control.spdcid)) else {
            let (peer, late) = (from.peer(), control.kind == ControlKind::CloseCommand);
            if late && self.table.was_closed(peer, control.spdcid) {
                // This end's last acknowledgement was lost.
                self.shared.send_stateless_nack(peer, late_close_nack(control));
            }
            return false;
        };
        let slot = pdc.numbers().id.slot_number();
        let outcome = pdc.on_control(now, control, &mut self.shared);
        self.apply_if_valid(now, slot, outcome)
    }

    /// Calls [`Pdcs::apply_outcome`] if the packet was valid. Returns whether it was.
    #[inline]
    pub(super) fn apply_if_valid(
        &mut self,
        now: Time,
        slot: u16,
        outcome: Option<Outcome>,
    ) -> bool {
        if let Some(outcome) = outcome {
            self.apply_outcome(now, slot, outcome);
        }
        outcome.is_some()
    }

    /// Returns whether a peer may open another context: see [`crate::Config::max_accepted`].
    fn may_open(&self, peer: PeerKey) -> bool {
        let config = &self.shared.config;
        let (most, most_of_peer) =
            (usize::from(config.max_contexts), usize::from(config.max_accepted));
        let own = self.table.accepted_from(peer);
        if matches!(config.contact, Contact::Open) {
            // Without a handshake there are no forged peers, and none is outside the job.
            return own < most_of_peer;
        }
        let all = self.table.accepted_total();
        if self.admissions.is_outside(peer) {
            return own < most_of_peer.div_ceil(OUTSIDE)
                && self.has_room_outside()
                && all < most - most / OWN;
        }
        // The first context of a peer of the job may use half of the contexts that are reserved for this endpoint's
        // own.
        let kept = if own == 0 { most / OWN / 2 } else { most / OWN };
        own < most_of_peer && all < most - kept
    }

    /// Returns whether there may be another context with a peer outside the job.
    pub(super) fn has_room_outside(&self) -> bool {
        self.table.outside_count() < usize::from(self.shared.config.max_contexts).div_ceil(OUTSIDE)
    }

    /// Returns the slot of the context that a SYN packet belongs to, and opens the context if it is
    /// new.
    fn context_of_syn(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        start: Psn,
        trimmed: bool,
    ) -> Result<u16, Refusal> {
        if pds.mode != Mode::Rud && !self.shared.config.dialect.takes_ordered {
            self.shared.counters.rx_mismatch += 1;
            return Err(Refusal::Mismatch);
        }
        let former = self.table.accepted(peer, pds.spdcid);
        if let Some(slot) = former
            && self.table.at(slot).is_some_and(|pdc| pdc.numbers().start == start)
        {
            return Ok(slot);
        }
        if self.table.is_replay(peer, pds.spdcid, start) {
            self.shared.counters.rx_replayed_syn += 1;
            return Err(Refusal::Replayed);
        }
        let window = self.shared.config.recv_window_packets;
        if pds.spdcid == 0 || pds.psn.distance(start) >= i32::from(window) {
            self.shared.counters.rx_out_of_window += 1;
            return Err(Refusal::OutOfWindow);
        }
        let admission = match self.shared.config.contact {
            Contact::Open | Contact::Unverified(_) => None,
            Contact::Introduced(_) => {
                let admission = self.admissions.check(peer, pds.spdcid, start);
                if admission.is_none() {
                    self.shared.counters.rx_unverified += 1;
                    return Err(Refusal::Unverified);
                }
                admission
            }
        };
        if trimmed {
            // The remainder of a trimmed packet may lack what a SYN must carry, so it opens no
            // context. Its sender learns that it must retransmit the packet.
            self.shared.counters.rx_trimmed += 1;
            self.shared.send_stateless_nack(peer, stateless_nack(pds, NackCode::Trimmed, true));
            return Err(Refusal::NoContext);
        }
        if let Some(slot) = former {
            // The peer uses the number again, so it has discarded the context that had it.
            let unanswered = self.table.at(slot).is_some_and(|pdc| !pdc.tx().ring().is_empty());
            let forgotten = Outcome::Failed(PdcFailure::Forgotten);
            self.remove_context(slot, if unanswered { forgotten } else { Outcome::Closed });
        }
        let free_slot = if self.may_open(peer) {
            self.table.free_slot(self.shared.config.max_contexts)
        } else {
            None
        };
        let Some(slot) = free_slot else {
            self.shared.counters.rx_no_context += 1;
            self.shared.send_stateless_nack(peer, stateless_nack(pds, NackCode::NoPdcAvail, false));
            return Err(Refusal::NoContext);
        };
        // Packets of this end on the context are responses, so it needs no label.
        self.insert_context(now, slot, (peer, Label::default()), pds.spdcid, Some(start));
        if let Some(pdc) = self.table.at_mut(slot) {
            pdc.set_mode(pds.mode);
        }
        if let Some(admission) = admission {
            self.admissions.consume(peer, admission);
        }
        if self.admissions.is_outside(peer) {
            self.table.count_outside(slot);
        }
        self.shared.counters.accepted += 1;
        Ok(slot)
    }
}

/// Returns a NACK for a packet of whose context this end knows nothing.
const fn stateless_nack(pds: &Request, code: NackCode, ce: bool) -> Nack {
    Nack {
        ce,
        retx: pds.retx,
        rudi: false,
        code,
        vendor_code: 0,
        psn: pds.psn,
        spdcid: 0,
        dpdcid: pds.spdcid,
        payload: 0,
        ccx: None,
    }
}

/// Returns the answer to a Close Command for a context that is gone, so that the initiator stops
/// sending it.
const fn late_close_nack(control: &Control) -> Nack {
    Nack {
        ce: false,
        retx: control.retx,
        rudi: false,
        code: NackCode::InvDpdcid,
        vendor_code: 0,
        psn: control.psn,
        spdcid: 0,
        dpdcid: control.spdcid,
        payload: 0,
        ccx: None,
    }
}
