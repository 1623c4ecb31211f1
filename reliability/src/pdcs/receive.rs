//! The calls that bring packets.

use super::Pdcs;
use crate::base::{Psn, Time};
use crate::cc::{self, ReceiverCc};
use crate::pdc::{Life, Pdc, Phase};
use crate::rx::{Arrival, Place};
use crate::tx::{AckIn, Marks, Verdict, nominal};
use crate::types::{ControlOut, Failure, PdcId, PeerKey, Refusal, RxMeta, RxVerdict};
use crate::wire::{
    Ack, AckExt, AckRequest, Control, ControlKind, Dest, Mode, Nack, NackAction, NackCode, Request,
    Response,
};

/// A packet that was handed to the engine, until it is accepted or refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    id: PdcId,
    arrival: Arrival,
    meta: RxMeta,
    /// Credit the peer wants in all.
    demand: Option<u64>,
}

impl Pending {
    fn is(&self, id: PdcId, psn: Psn) -> bool {
        self.id == id && self.arrival.psn == psn
    }
}

/// The contexts a peer had here last, so that their packets do not open them again.
#[derive(Debug, Default)]
pub(super) struct Graves {
    last: [(u16, Psn); Graves::DEPTH],
    next: usize,
}

impl Graves {
    const DEPTH: usize = 8;

    pub(super) fn bury(&mut self, number: u16, start: Psn) {
        self.last[self.next] = (number, start);
        self.next = (self.next + 1) % Self::DEPTH;
    }

    /// Number 0 is nobody's, so unused places match nothing.
    fn holds(&self, number: u16, start: Psn) -> bool {
        self.last.contains(&(number, start))
    }
}

impl<D: Copy> Pdcs<D> {
    /// Whose context a packet without SYN names with `dpdcid`. The engine compares the peer's address
    /// with the packet's source before it hands the packet in.
    #[must_use]
    pub fn peer_of(&self, dpdcid: u16) -> Option<PeerKey> {
        let entry = self.entries.get(usize::from(dpdcid.checked_sub(1)?))?;
        entry.pdc.as_ref().map(|pdc| pdc.peer)
    }

    /// A data packet arrived from `peer` (for a SYN, resolved from its address and epoch; else from
    /// [`Pdcs::peer_of`] and compared with its source address).
    pub fn rx_request(
        &mut self,
        now: Time,
        peer: PeerKey,
        pds: &Request,
        meta: &RxMeta,
    ) -> RxVerdict {
        self.pending = None;
        if pds.mode != Mode::Rud {
            self.shared.counters.rx_mismatch += 1;
            return RxVerdict::Refused(Refusal::Mismatch);
        }
        let found = match pds.dest {
            Dest::Pdc(dpdcid) => self.known(peer, dpdcid, pds.spdcid),
            Dest::Syn { psn_offset, .. } => {
                let start = pds.psn.minus(u32::from(psn_offset));
                self.for_syn(now, peer, pds, start, meta.trimmed)
            }
        };
        let slot = match found {
            Ok(slot) => slot,
            Err(refusal) => return RxVerdict::Refused(refusal),
        };
        let Some(pdc) = self.entries[usize::from(slot)].pdc.as_deref_mut() else {
            return RxVerdict::Refused(Refusal::UnknownContext);
        };
        let shared = &mut self.shared;
        let place = pdc.rx.place(pds.psn, shared.config.recv_window_packets);
        if matches!(place, Place::Nonsense | Place::Ahead) {
            shared.counters.rx_out_of_window += 1;
            if place == Place::Ahead {
                nack(pdc, pds, meta, NackCode::PsnOorWindow, shared);
            }
            return RxVerdict::Refused(Refusal::OutOfWindow);
        }
        // From here on the packet is believed.
        pdc.used(now);
        if !pdc.connected() {
            pdc.remote = pds.spdcid;
        }
        let counters = &mut shared.counters;
        counters.rx_ce += u64::from(meta.ce);
        let duplicate = place == Place::Duplicate;
        if meta.trimmed {
            counters.rx_trimmed += 1;
        } else {
            counters.rx_packets += 1;
            counters.rx_bytes += u64::from(meta.bytes);
            counters.rx_duplicates += u64::from(duplicate);
        }
        if pds.clear_psn_offset <= 0 {
            let clear = pds.psn.offset(pds.clear_psn_offset);
            pdc.rx.cleared(clear);
            pdc.confirmed(clear);
        }
        if duplicate || meta.trimmed {
            let demand = pds.ccc.map(|ccc| pdc.tx.demand(ccc.credit_target));
            let source = shared.host_of(pdc.peer);
            let seen = rx_meta(meta, source, duplicate, demand);
            shared.receiver.on_rx(now, &mut pdc.rx.flow, &seen);
            if duplicate {
                pdc.rx.again(now, pds.psn, pds.retx);
                // Our acknowledgement may have got lost.
                pdc.turn(shared);
            } else {
                let code = if meta.last_hop { NackCode::TrimmedLastHop } else { NackCode::Trimmed };
                nack(pdc, pds, meta, code, shared);
            }
            self.settle(now, slot, Life::Alive);
            return if meta.trimmed { RxVerdict::Trimmed } else { RxVerdict::Duplicate };
        }
        let (id, forward) = (pdc.id, !pdc.initiator);
        let syn = matches!(pds.dest, Dest::Syn { .. });
        self.pending = Some(Pending {
            id,
            arrival: Arrival {
                psn: pds.psn,
                bytes: meta.bytes,
                ce: meta.ce,
                retx: pds.retx,
                ask: pds.ack_request,
                prompt: syn,
            },
            meta: *meta,
            demand: pds.ccc.map(|ccc| pdc.tx.demand(ccc.credit_target)),
        });
        RxVerdict::Deliver { id, psn: pds.psn, forward }
    }

    /// What to answer to a data packet for a context that does not exist here ([`Pdcs::peer_of`] said
    /// `None`); counted. The engine sends it to the packet's sender if it can tell the address. `peer` is
    /// that sender, if this instance of it was heard of before: then the answer tells a context that we
    /// gave up on, which is gone, from one that we never had, whose sender must take us for restarted.
    pub fn reject(&mut self, peer: Option<PeerKey>, pds: &Request) -> Option<Nack> {
        let Dest::Pdc(dpdcid) = pds.dest else { return None };
        let graves = peer.and_then(|peer| self.graves.get(&peer));
        let nack = if graves.is_some_and(|graves| graves.knows(pds.spdcid)) {
            Nack { spdcid: dpdcid, ..stateless(pds, NackCode::ClosingInErr, false) }
        } else {
            stateless(pds, NackCode::InvDpdcid, false)
        };
        self.shared.counters.rx_unknown_context += 1;
        self.shared.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        Some(nack)
    }

    /// The engine took the packet that was delivered last. `response`, if any, is delivered with
    /// certainty; without one, the peer learns the default response.
    pub fn accept(&mut self, now: Time, id: PdcId, psn: Psn, response: Option<Response>) {
        // Where it lies: to move it costs more than all else here.
        let Some(pending) = self.pending.as_ref().filter(|pending| pending.is(id, psn)) else {
            return;
        };
        let Some(pdc) = self.entries[id.slot()].pdc.as_deref_mut() else { return };
        let shared = &mut self.shared;
        shared.counters.rx_accepted += 1;
        if psn != pdc.rx.base() {
            shared.counters.rx_out_of_order += 1;
        }
        let source = shared.host_of(pdc.peer);
        let seen = rx_meta(&pending.meta, source, false, pending.demand);
        shared.receiver.on_rx(now, &mut pdc.rx.flow, &seen);
        pdc.rx.record(now, &pending.arrival, response, &shared.config, &mut shared.bitmaps);
        self.pending = None;
        self.settle(now, id.slot_number(), Life::Alive);
    }

    /// The engine cannot take the packet that was delivered last: the peer is told `code`, and sends
    /// it again later.
    pub fn refuse(&mut self, now: Time, id: PdcId, psn: Psn, code: NackCode) {
        let Some(pending) = self.take_pending(id, psn) else { return };
        let Some(pdc) = self.entries[id.slot()].pdc.as_deref_mut() else { return };
        let Pending { arrival, meta, .. } = pending;
        let shared = &mut self.shared;
        shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
        let packet = pdc.nack(psn, arrival.retx, meta.ce, code);
        shared.say(ControlOut { peer: pdc.peer, path: pdc.control_path(), packet });
        self.settle(now, id.slot_number(), Life::Alive);
    }

    fn take_pending(&mut self, id: PdcId, psn: Psn) -> Option<Pending> {
        self.pending.take_if(|pending| pending.is(id, psn))
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
        let Ok(slot) = self.known(peer, ack.dpdcid, ack.spdcid) else { return false };
        let Some(pdc) = self.entries[usize::from(slot)].pdc.as_deref_mut() else { return false };
        if pdc.phase == Phase::Closing && ack.cack_psn == pdc.tx.next() {
            self.end(slot, Life::Closed);
            return true;
        }
        let said = AckIn::new(ack, response);
        let shared = &mut self.shared;
        match pdc.tx.judge(&said) {
            Verdict::Credible => {}
            Verdict::Stale => {
                shared.counters.rx_stale += 1;
                return false;
            }
            Verdict::Impossible => {
                shared.counters.rx_bad_ack += 1;
                return false;
            }
        }
        if !pdc.connected() {
            pdc.remote = ack.spdcid;
        }
        pdc.used(now);
        pdc.tx.on_ack(now, pdc.id, &said, shared);
        if ack.ce && ack.ext == AckExt::None {
            shared.counters.rx_notifications += 1;
            pdc.tx.notified(now, shared);
        }
        match ack.request {
            AckRequest::None => {}
            AckRequest::Clear => pdc.tx.clear_asked(now, &shared.config),
            AckRequest::Close if pdc.initiator => pdc.asked_to_close(now),
            AckRequest::Close => {}
        }
        let life = pdc.step(now);
        self.settle(now, slot, life);
        true
    }

    /// A NACK arrived from `peer`. `false` when it was not believed.
    pub fn rx_nack(&mut self, now: Time, peer: PeerKey, nack: &Nack) -> bool {
        // A peer without the context has no number of its own to give.
        let number =
            if nack.code.needs_context() || nack.spdcid != 0 { Some(nack.spdcid) } else { None };
        let found = match number {
            Some(spdcid) => self.known(peer, nack.dpdcid, spdcid),
            None => self.theirs(peer, nack.dpdcid),
        };
        let Ok(slot) = found else { return false };
        let Some(pdc) = self.entries[usize::from(slot)].pdc.as_deref_mut() else { return false };
        let shared = &mut self.shared;
        let code = usize::from(nack.code.to_u8());
        if pdc.phase == Phase::Closing
            && nack.psn == pdc.tx.next()
            && nack.code.action() == NackAction::Close
        {
            // The peer has already forgotten it.
            shared.counters.rx_nacks[code] += 1;
            self.end(slot, Life::Closed);
            return true;
        }
        let outstanding = !nack.psn.is_before(pdc.tx.base()) && nack.psn.is_before(pdc.tx.next());
        let mut life = Life::Alive;
        let believed = outstanding
            && match nack.code.action() {
                NackAction::Retransmit => {
                    let marks = Marks { ce: nack.ce, retx: nack.retx };
                    pdc.tx.on_nack(now, nack.psn, nack.code, marks, shared)
                }
                NackAction::Close => {
                    life = Life::Failed(match nack.code {
                        NackCode::InvDpdcid => Failure::PeerRestarted,
                        code => Failure::Nacked(code),
                    });
                    true
                }
                NackAction::Restart => {
                    let fresh = pdc.initiator && pdc.tx.base() == pdc.start;
                    if fresh {
                        let start = Psn(nack.payload);
                        pdc.restart(start, shared);
                    }
                    fresh
                }
                NackAction::Ignore => true,
            };
        if !believed {
            shared.counters.rx_stale += 1;
            return false;
        }
        shared.counters.rx_nacks[code] += 1;
        pdc.used(now);
        self.settle(now, slot, life);
        true
    }

    /// A control packet arrived from `peer`. `false` when it was not believed.
    pub fn rx_control(&mut self, now: Time, peer: PeerKey, control: &Control) -> bool {
        let Dest::Pdc(dpdcid) = control.dest else {
            // Only a data packet says who opens a context.
            self.shared.counters.rx_mismatch += 1;
            return false;
        };
        let Ok(slot) = self.known(peer, dpdcid, control.spdcid) else {
            if control.kind == ControlKind::CloseCommand {
                self.answer_late_close(peer, control);
            }
            return false;
        };
        let Some(pdc) = self.entries[usize::from(slot)].pdc.as_deref_mut() else { return false };
        if !pdc.connected() {
            // Nothing but data or an acknowledgement of it introduces a peer.
            self.shared.counters.rx_mismatch += 1;
            return false;
        }
        let shared = &mut self.shared;
        let window = shared.config.recv_window_packets;
        let payload = Psn(control.payload);
        let believed = match control.kind {
            ControlKind::Probe => {
                let near = pdc.rx.place(control.psn, window) != Place::Nonsense;
                if near {
                    shared.counters.rx_probes += 1;
                    pdc.rx.probed(now, control.probe_opaque, payload);
                    // It would not ask if it had our acknowledgements.
                    pdc.turn_away(payload, shared);
                }
                near
            }
            ControlKind::AckRequest => match pdc.rx.place(control.psn, window) {
                Place::Duplicate => {
                    pdc.rx.again(now, control.psn, control.retx);
                    true
                }
                Place::New => {
                    let code = NackCode::PktNotRcvd;
                    shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
                    let packet = pdc.nack(control.psn, control.retx, false, code);
                    shared.say(ControlOut { peer, path: pdc.control_path(), packet });
                    true
                }
                Place::Ahead | Place::Nonsense => false,
            },
            ControlKind::ClearCommand => {
                let received = payload.is_before(pdc.rx.end());
                if received {
                    pdc.rx.cleared(payload);
                    // The window may have moved.
                    pdc.rx.say_so();
                }
                received
            }
            ControlKind::ClearRequest => {
                pdc.tx.clear_asked(now, &shared.config);
                true
            }
            ControlKind::CloseCommand => {
                let last = !pdc.initiator && pdc.tx.is_empty() && control.psn == pdc.rx.base();
                if last {
                    let packet = pdc.last_ack(now, control.psn, shared);
                    shared.say(ControlOut { peer, path: pdc.control_path(), packet });
                    self.end(slot, Life::Closed);
                    return true;
                }
                false
            }
            ControlKind::CloseRequest if pdc.initiator => {
                pdc.asked_to_close(now);
                // A sign of life, for the close may have to wait.
                pdc.rx.say_so();
                true
            }
            ControlKind::CloseRequest => false,
            ControlKind::Credit => {
                // Where nobody lives on credit it means nothing.
                if shared.config.credits() {
                    shared.counters.rx_credits += 1;
                    pdc.tx.granted(now, control.payload, shared);
                }
                true
            }
            ControlKind::CreditRequest => {
                let target = pdc.tx.demand(control.payload);
                shared.receiver.on_request(now, &mut pdc.rx.flow, target);
                true
            }
            ControlKind::Noop | ControlKind::Negotiation => true,
        };
        if !believed {
            shared.counters.rx_stale += 1;
            return false;
        }
        pdc.used(now);
        let life = pdc.step(now);
        self.settle(now, slot, life);
        true
    }

    /// A Close Command for a context that is gone: our last acknowledgement got lost. Say so, that the
    /// initiator may stop asking.
    fn answer_late_close(&mut self, peer: PeerKey, control: &Control) {
        let gone = self.graves.get(&peer).is_some_and(|graves| graves.knows(control.spdcid));
        if !gone {
            return;
        }
        let code = NackCode::InvDpdcid;
        let nack = Nack {
            ce: false,
            retx: control.retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn: control.psn,
            spdcid: 0,
            dpdcid: control.spdcid,
            payload: 0,
            ccx: None,
        };
        self.answer(peer, nack);
    }

    /// The context with the number `dpdcid`, if it is `peer`'s and its number there is `spdcid` (or not
    /// yet known). Counts what does not fit.
    fn known(&mut self, peer: PeerKey, dpdcid: u16, spdcid: u16) -> Result<u16, Refusal> {
        let slot = self.theirs(peer, dpdcid)?;
        let pdc = self.entries[usize::from(slot)].pdc.as_deref();
        if pdc.is_some_and(|pdc| spdcid != 0 && (pdc.remote == spdcid || pdc.remote == 0)) {
            Ok(slot)
        } else {
            self.shared.counters.rx_mismatch += 1;
            Err(Refusal::Mismatch)
        }
    }

    /// The context with the number `dpdcid`, if it is `peer`'s. Counts what does not fit.
    fn theirs(&mut self, peer: PeerKey, dpdcid: u16) -> Result<u16, Refusal> {
        match self.peer_of(dpdcid) {
            // A number with a context is not zero.
            Some(owner) if owner == peer => Ok(dpdcid - 1),
            Some(_) => {
                self.shared.counters.rx_mismatch += 1;
                Err(Refusal::Mismatch)
            }
            None => {
                self.shared.counters.rx_unknown_context += 1;
                Err(Refusal::UnknownContext)
            }
        }
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
        let key = (peer, pds.spdcid);
        if let Some(&slot) = self.accepted.get(&key) {
            let same =
                self.entries[usize::from(slot)].pdc.as_ref().is_some_and(|p| p.start == start);
            if same {
                return Ok(slot);
            }
        }
        if self.graves.get(&peer).is_some_and(|graves| graves.holds(pds.spdcid, start)) {
            self.shared.counters.rx_replayed_syn += 1;
            return Err(Refusal::Replayed);
        }
        let window = self.shared.config.recv_window_packets;
        if pds.spdcid == 0 || pds.psn.distance(start) >= i32::from(window) {
            self.shared.counters.rx_out_of_window += 1;
            return Err(Refusal::OutOfWindow);
        }
        if trimmed {
            // What is left of it need not say what a SYN must, so it opens nothing; but the sender
            // learns that it must send it again.
            self.shared.counters.rx_trimmed += 1;
            self.answer(peer, stateless(pds, NackCode::Trimmed, true));
            return Err(Refusal::NoContext);
        }
        if let Some(slot) = self.accepted.remove(&key) {
            // The peer uses the number again, so it has forgotten the context that had it.
            let pdc = self.entries[usize::from(slot)].pdc.as_ref();
            let unanswered = pdc.is_some_and(|pdc| !pdc.tx.is_empty());
            let life = if unanswered { Life::Failed(Failure::Forgotten) } else { Life::Closed };
            self.end(slot, life);
        }
        let Some(slot) = self.vacancy() else {
            self.shared.counters.rx_no_context += 1;
            self.answer(peer, stateless(pds, NackCode::NoPdcAvail, false));
            return Err(Refusal::NoContext);
        };
        self.install(now, slot, peer, pds.spdcid, start);
        self.accepted.insert(key, slot);
        self.shared.counters.accepted += 1;
        Ok(slot)
    }

    fn answer(&mut self, peer: PeerKey, nack: Nack) {
        self.shared.counters.tx_nacks[usize::from(nack.code.to_u8())] += 1;
        let path = self.shared.any_path();
        self.shared.say(ControlOut { peer, path, packet: crate::ControlPacket::Nack(nack) });
    }
}

impl Graves {
    /// Whether a context of this number lies here.
    fn knows(&self, number: u16) -> bool {
        self.last.iter().any(|&(buried, _)| buried == number)
    }
}

impl<D: Copy> Pdc<D> {
    /// The target wants another start PSN.
    fn restart(&mut self, start: Psn, shared: &mut crate::shared::Shared<D>) {
        self.start = start;
        self.tx.restart(start, shared);
        if self.rx.untouched() {
            self.rx = crate::rx::Rx::new(start, self.id);
        }
    }
}

fn nack<D: Copy>(
    pdc: &Pdc<D>,
    pds: &Request,
    meta: &RxMeta,
    code: NackCode,
    shared: &mut crate::shared::Shared<D>,
) {
    shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
    let packet = pdc.nack(pds.psn, pds.retx, meta.ce, code);
    shared.say(ControlOut { peer: pdc.peer, path: pdc.control_path(), packet });
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

fn rx_meta(
    meta: &RxMeta,
    source: u32,
    duplicate: bool,
    demand: Option<u64>,
) -> cc::RxMeta<'static> {
    cc::RxMeta {
        bytes: nominal(meta.bytes),
        ecn: meta.ce,
        trimmed: meta.trimmed,
        last_hop: meta.last_hop,
        duplicate,
        source,
        demand,
        ..cc::RxMeta::default()
    }
}
