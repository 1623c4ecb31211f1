//! The calls that bring packets: which context each is for, and what comes of it.

use super::Pdcs;
use crate::base::{Psn, Time};
use crate::cc::{self, ReceiverCc as _};
use crate::pdc::Outcome;
use crate::types::{Arrival, Contact, Delivery, Label, PdcFailure, PeerKey, Refusal, RxVerdict};
use crate::wire::{Ack, Control, ControlKind, Dest, Mode, Nack, NackCode, Request, Response};

/// The divisor for the share of all contexts that peers outside the job may open together, and for the share of a
/// peer's contexts that one of them may open.
const OUTSIDE: usize = 4;
/// The divisor for the share of all contexts that is reserved for those that this endpoint opens.
const OWN: usize = 4;

impl<D: Copy> Pdcs<D> {
    /// Whose context a packet without SYN names with `dpdcid`. The engine compares the peer's address
    /// with the packet's source before it hands the packet in.
    #[must_use]
    pub fn peer_of(&self, dpdcid: u16) -> Option<PeerKey> {
        Some(self.table.numbered(dpdcid)?.numbers().peer)
    }

    /// A data packet arrived from `peer` (for a SYN, resolved from its address and instance; else from
    /// [`Pdcs::peer_of`] and compared with its source address).
    pub fn rx_request(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        arrival: &Arrival,
    ) -> RxVerdict {
        debug_assert!(self.pending.is_none(), "the token of the packet before was not spent");
        self.pending = None;
        if pds.mode != Mode::Rud {
            self.shared.counters.rx_mismatch += 1;
            return RxVerdict::Refused(Refusal::Mismatch);
        }
        let found = match pds.dest {
            Dest::Pdc(dpdcid) => {
                self.table.find(&mut self.shared.counters, peer, dpdcid, Some(pds.spdcid))
            }
            Dest::Syn { psn_offset, .. } => {
                let start = pds.psn.minus(u32::from(psn_offset));
                self.for_syn(now, peer, pds, start, arrival.trimmed)
            }
        };
        let slot = match found {
            Ok(slot) => slot,
            Err(refusal) => return RxVerdict::Refused(refusal),
        };
        let Some(pdc) = self.table.at_mut(slot) else {
            return RxVerdict::Refused(Refusal::UnknownContext);
        };
        let verdict = pdc.on_request(now, pds, arrival, &mut self.pending, &mut self.shared);
        if matches!(verdict, RxVerdict::Duplicate | RxVerdict::Trimmed) {
            self.conclude(now, slot, Outcome::Alive);
        }
        verdict
    }

    /// What to answer to a data packet for a context that does not exist here ([`Pdcs::peer_of`] said
    /// `None`), or to one that opens a context although its sender was not introduced; counted. The engine
    /// sends it to the packet's sender if it can tell the address. `peer` is
    /// that sender, if this instance of it was heard of before: then the answer tells a context that we
    /// gave up on, which is gone, from one that we never had, whose sender must take us for restarted.
    pub fn reject(&mut self, peer: Option<PeerKey>, pds: &Request) -> Option<Nack> {
        let dpdcid = match pds.dest {
            Dest::Pdc(dpdcid) => dpdcid,
            Dest::Syn { psn_offset, .. } => {
                let start = pds.psn.minus(u32::from(psn_offset));
                let had = |peer| self.table.is_replay(peer, pds.spdcid, start);
                // What it took before must not be sent again under other numbers.
                let code = match peer {
                    Some(peer) if had(peer) => NackCode::ClosingInErr,
                    _ => NackCode::NewStartPsn,
                };
                self.shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
                let nack = stateless(pds, code, false);
                // A closing code names a context; it is gone, and any number does.
                let spdcid = u16::from(code == NackCode::ClosingInErr);
                return Some(Nack { spdcid, ..nack });
            }
        };
        let closed = peer.is_some_and(|peer| self.table.was_closed(peer, pds.spdcid));
        let nack = if closed {
            Nack { spdcid: dpdcid, ..stateless(pds, NackCode::ClosingInErr, false) }
        } else {
            stateless(pds, NackCode::InvDpdcid, false)
        };
        self.shared.counters.rx_unknown_context += 1;
        self.shared.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        Some(nack)
    }

    /// The engine took the packet of `delivery`. `response`, if any, is delivered with certainty; without
    /// one, the peer learns the default response.
    pub fn accept(&mut self, now: Time, delivery: Delivery, response: Option<Response>) {
        let (id, psn) = delivery.spend();
        // Where it lies: to move it costs more than all else here.
        let pending = self.pending.as_ref().filter(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.accept(now, pending, response, &mut self.shared);
            let concluded = pdc.conclude_arrival(now, &mut self.shared);
            self.pending = None;
            if !concluded {
                self.conclude(now, id.slot_number(), Outcome::Alive);
            }
        }
    }

    /// The engine cannot take the packet of `delivery` now: the peer gets a NACK with `code`, and sends it again
    /// later.
    pub fn refuse(&mut self, now: Time, delivery: Delivery, code: NackCode) {
        let (id, psn) = delivery.spend();
        let pending = self.pending.take_if(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.refuse(&pending, code, &mut self.shared);
            self.conclude(now, id.slot_number(), Outcome::Alive);
        }
    }

    /// The packet of `delivery` contradicts itself or what came before. To ask for it again would bring
    /// the same: the context ends, here and, by a NACK that closes it, at the peer.
    pub fn drop_malformed(&mut self, delivery: Delivery) {
        self.shared.counters.rx_malformed += 1;
        let (id, psn) = delivery.spend();
        let pending = self.pending.take_if(|pending| pending.is(id, psn));
        if let (Some(pending), Some(pdc)) = (pending, self.table.get_mut(id)) {
            pdc.refuse(&pending, NackCode::UnexpEvent, &mut self.shared);
            self.end(id.slot_number(), Outcome::Failed(PdcFailure::Malformed));
        }
    }

    /// Packets of `lost` bytes found no room in this host's receive buffer (the socket's, say), which holds `buffer` bytes.
    #[cold]
    pub fn handle_buffer_overflow(&mut self, lost: u64, buffer: u64) {
        self.shared.receiver.on_overflow(lost, buffer);
    }

    /// This host's receive buffer is empty, for the first time after it overflowed.
    #[cold]
    pub fn handle_buffer_drained(&mut self) {
        self.shared.receiver.on_drained();
    }

    /// An ACK arrived from `peer`, with the SES response if it carried one. `false` when it was not
    /// believed.
    pub fn rx_ack(
        &mut self,
        now: Time,
        peer: PeerKey,
        ack: &Ack,
        response: Option<&Response>,
    ) -> bool {
        self.rx_ack_with_telemetry(now, peer, ack, response, cc::Hops::NONE)
    }

    /// A NACK arrived from `peer`. `false` when it was not believed.
    pub fn rx_nack(&mut self, now: Time, peer: PeerKey, nack: &Nack) -> bool {
        // A peer without the context has no number of its own to give.
        let numbered = nack.code.needs_context() || nack.spdcid != 0;
        let found = self.table.find(
            &mut self.shared.counters,
            peer,
            nack.dpdcid,
            numbered.then_some(nack.spdcid),
        );
        let Ok(slot) = found else { return false };
        let Some(pdc) = self.table.at_mut(slot) else { return false };
        let outcome = pdc.on_nack(now, nack, &mut self.shared);
        self.conclude_believed(now, slot, outcome)
    }

    /// A control packet arrived from `peer`. `false` when it was not believed.
    pub fn rx_control(&mut self, now: Time, peer: PeerKey, control: &Control) -> bool {
        let Dest::Pdc(dpdcid) = control.dest else {
            // Only a data packet says who opens a context.
            self.shared.counters.rx_mismatch += 1;
            return false;
        };
        let Ok(slot) =
            self.table.find(&mut self.shared.counters, peer, dpdcid, Some(control.spdcid))
        else {
            let late = control.kind == ControlKind::CloseCommand;
            if late && self.table.was_closed(peer, control.spdcid) {
                // Our last acknowledgement got lost.
                self.shared.send_stateless_nack(peer, late_close(control));
            }
            return false;
        };
        let Some(pdc) = self.table.at_mut(slot) else { return false };
        let outcome = pdc.on_control(now, control, &mut self.shared);
        self.conclude_believed(now, slot, outcome)
    }

    /// [`Pdcs::conclude`], if the packet was believed; whether it was.
    #[inline]
    pub(super) fn conclude_believed(
        &mut self,
        now: Time,
        slot: u16,
        outcome: Option<Outcome>,
    ) -> bool {
        if let Some(outcome) = outcome {
            self.conclude(now, slot, outcome);
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
        let all = self.table.accepted_in_all();
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
        self.table.outside() < usize::from(self.shared.config.max_contexts).div_ceil(OUTSIDE)
    }

    /// The context a SYN packet belongs to, opened if it is new.
    fn for_syn(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        start: Psn,
        trimmed: bool,
    ) -> Result<u16, Refusal> {
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
            Contact::Open => None,
            Contact::Introduced(_) => {
                let admission = self.admissions.check(peer, pds.spdcid, start);
                if admission.is_none() {
                    self.shared.counters.rx_unverified += 1;
                    return Err(Refusal::Stranger);
                }
                admission
            }
        };
        if trimmed {
            // What is left of it need not say what a SYN must, so it opens nothing; but the sender
            // learns that it must send it again.
            self.shared.counters.rx_trimmed += 1;
            self.shared.send_stateless_nack(peer, stateless(pds, NackCode::Trimmed, true));
            return Err(Refusal::NoContext);
        }
        if let Some(slot) = former {
            // The peer uses the number again, so it has forgotten the context that had it.
            let unanswered = self.table.at(slot).is_some_and(|pdc| !pdc.tx().ring().is_empty());
            let forgotten = Outcome::Failed(PdcFailure::Forgotten);
            self.end(slot, if unanswered { forgotten } else { Outcome::Closed });
        }
        let vacancy = if self.may_open(peer) {
            self.table.vacancy(self.shared.config.max_contexts)
        } else {
            None
        };
        let Some(slot) = vacancy else {
            self.shared.counters.rx_no_context += 1;
            self.shared.send_stateless_nack(peer, stateless(pds, NackCode::NoPdcAvail, false));
            return Err(Refusal::NoContext);
        };
        // What we send on it answers the peer, at whatever level.
        self.install(now, slot, (peer, Label::default()), pds.spdcid, Some(start));
        if let Some(admission) = admission {
            self.admissions.spend(peer, admission);
        }
        if self.admissions.is_outside(peer) {
            self.table.count_outside(slot);
        }
        self.shared.counters.accepted += 1;
        Ok(slot)
    }
}

/// A NACK from an end that has no context to speak for it.
const fn stateless(pds: &Request, code: NackCode, ce: bool) -> Nack {
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

/// The answer to a Close Command for a context that is gone, that the initiator may stop asking.
const fn late_close(control: &Control) -> Nack {
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
