//! Handling of the packets that arrive on a packet delivery context.

use super::{Outcome, Pdc, Phase};
use crate::base::{Psn, Time};
use crate::cc::{self, ReceiverCc};
use crate::config::{NOMINAL_OVERHEAD, nominal};
use crate::rx::{AckBody, PsnPlace, ReceivedPsn};
use crate::shared::Shared;
use crate::tx::{AckFacts, LossEvent, NackFlags, Verdict, on_ack};
use crate::types::{Arrival, Contact, Delivery, Event, PdcFailure, PdcId, Refusal, RxVerdict};
use crate::wire::{
    Ack, AckExt, AckRequest, Control, ControlKind, Dest, Nack, NackAction, NackCode, Request,
    Response,
};

/// A data packet that the engine is processing, until the engine spends its [`Delivery`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    id: PdcId,
    received: ReceivedPsn,
    arrival: Arrival,
    /// Total credit that the peer wants since the context opened, in nominal bytes.
    demand: Option<u64>,
}

impl Pending {
    /// Returns whether the pending packet is packet `psn` of context `id`.
    #[inline]
    pub(crate) fn is(&self, id: PdcId, psn: Psn) -> bool {
        self.id == id && self.received.psn == psn
    }
}

impl<D: Copy> Pdc<D> {
    /// Handles a data packet of this context's peer. A packet that the engine must process is put
    /// into `pending`.
    #[inline]
    pub(crate) fn on_request(
        &mut self,
        now: Time,
        pds: &Request,
        arrival: &Arrival,
        pending: &mut Option<Pending>,
        shared: &mut Shared<D>,
    ) -> RxVerdict {
        let place = self.rx.place(pds.psn, shared.config.recv_window_packets);
        if matches!(place, PsnPlace::Nonsense | PsnPlace::Ahead) {
            shared.counters.rx_out_of_window += 1;
            if place == PsnPlace::Ahead {
                self.send_nack(pds.psn, (pds.retx, arrival.ce), NackCode::PsnOorWindow, shared);
            }
            return RxVerdict::Refused(Refusal::OutOfWindow);
        }
        // From here on the packet counts as valid.
        self.life.on_data(now);
        self.numbers.connect(pds.spdcid);
        let counters = &mut shared.counters;
        counters.rx_ce += u64::from(arrival.ce);
        let duplicate = place == PsnPlace::Duplicate;
        if arrival.trimmed {
            counters.rx_trimmed += 1;
        } else {
            counters.rx_packets += 1;
            counters.rx_bytes += u64::from(arrival.bytes);
            counters.rx_duplicates += u64::from(duplicate);
        }
        if pds.clear_psn_offset <= 0 {
            let clear = pds.psn.offset(pds.clear_psn_offset);
            self.rx.on_cleared(clear);
            self.control_path.confirm(clear);
        }
        // Switches, not this end, use the congestion-control state of speculative packets.
        let ccc = pds.ccc.filter(|_| !shared.config.uses_rates());
        let demand = ccc.map(|ccc| self.rx.rare_mut().on_demand(ccc.credit_target));
        if duplicate || arrival.trimmed {
            self.count_arrival(now, arrival, duplicate, demand, shared);
            if duplicate {
                self.rx.on_duplicate(now, pds.psn, pds.retx);
                // This end's acknowledgement may have been lost.
                let again = self.change_control_path(shared);
                if again && pds.retx {
                    self.count_question(now, shared);
                }
            } else {
                let trimmed =
                    if arrival.last_hop { NackCode::TrimmedLastHop } else { NackCode::Trimmed };
                self.send_nack(pds.psn, (pds.retx, arrival.ce), trimmed, shared);
            }
            return if arrival.trimmed { RxVerdict::Trimmed } else { RxVerdict::Duplicate };
        }
        let received = ReceivedPsn {
            psn: pds.psn,
            bytes: arrival.bytes,
            ce: arrival.ce,
            retx: pds.retx,
            ask: pds.ack_request,
            prompt: matches!(pds.dest, Dest::Syn { .. }),
        };
        *pending = Some(Pending { id: self.numbers.id, received, arrival: *arrival, demand });
        RxVerdict::Deliver(Delivery::new(self.numbers.id, pds.psn, !self.life.is_initiator()))
    }

    /// Checks a packet where it, or the context, asks for ordered delivery. A new packet is refused while
    /// an earlier one is missing, because its sender goes back to that one.
    #[cold]
    pub(crate) fn check_order(
        &mut self,
        pds: &Request,
        arrival: &Arrival,
        shared: &mut Shared<D>,
    ) -> Option<Refusal> {
        if pds.mode != self.life.mode() {
            shared.counters.rx_mismatch += 1;
            return Some(Refusal::Mismatch);
        }
        let new = self.rx.place(pds.psn, shared.config.recv_window_packets) == PsnPlace::New;
        let expected = self.rx.window().base();
        if !new || pds.psn == expected {
            return None;
        }
        shared.counters.rx_gaps += 1;
        if self.rx.rare_mut().reports_gap(expected) {
            self.send_nack(expected, (false, arrival.ce), NackCode::RodOoo, shared);
        }
        Some(Refusal::OutOfWindow)
    }

    /// Records that the engine accepted the packet. Its `response`, if any, is delivered reliably.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        now: Time,
        pending: &Pending,
        response: Option<Response>,
        shared: &mut Shared<D>,
    ) {
        shared.counters.rx_accepted += 1;
        if pending.received.psn != self.rx.window().base() {
            shared.counters.rx_out_of_order += 1;
        }
        self.count_arrival(now, &pending.arrival, false, pending.demand, shared);
        let (config, pool) = (&shared.config, &mut shared.pools.holes);
        self.rx.record(now, &pending.received, response, config, &mut self.timers, pool);
    }

    /// Sets the response that the acknowledgement of packet `psn` will carry.
    pub(crate) fn answer(&mut self, psn: Psn, response: Response, prompt: bool) {
        self.rx.answer(psn, response);
        if prompt {
            self.rx.request_ack();
        }
    }

    /// Sends a NACK with `code`, because the engine cannot accept the pending packet.
    pub(crate) fn refuse(&mut self, pending: &Pending, code: NackCode, shared: &mut Shared<D>) {
        let ReceivedPsn { psn, retx, .. } = pending.received;
        self.send_nack(psn, (retx, pending.arrival.ce), code, shared);
    }

    /// Reports a data packet that arrived to the receiver's part of congestion control.
    #[inline]
    fn count_arrival(
        &mut self,
        now: Time,
        arrival: &Arrival,
        duplicate: bool,
        demand: Option<u64>,
        shared: &mut Shared<D>,
    ) {
        let meta = self.describe(arrival, duplicate, demand);
        shared.receiver.on_rx(now, self.rx.flow_mut(), &meta);
    }

    /// Reports `count` new data packets, all like `arrival`, to the receiver's part of congestion
    /// control.
    #[inline]
    pub(super) fn count_arrivals(
        &mut self,
        now: Time,
        (arrival, count): (&Arrival, u16),
        shared: &mut Shared<D>,
    ) {
        let meta = self.describe(arrival, false, None);
        shared.receiver.on_rx_run(now, self.rx.flow_mut(), &meta, count);
    }

    /// Returns a description of a data packet for the receiver's part of congestion control.
    #[inline]
    fn describe(
        &self,
        arrival: &Arrival,
        duplicate: bool,
        demand: Option<u64>,
    ) -> cc::ReceivedPacket {
        cc::ReceivedPacket {
            bytes: nominal(arrival.bytes),
            ecn: arrival.ce,
            trimmed: arrival.trimmed,
            last_hop: arrival.last_hop,
            duplicate,
            message_start: arrival.begins,
            message_end: arrival.ends,
            source: self.numbers.peer.0,
            demand,
        }
    }

    fn send_nack(
        &self,
        psn: Psn,
        (retx, ce): (bool, bool),
        code: NackCode,
        shared: &mut Shared<D>,
    ) {
        shared.counters.tx_nacks[usize::from(code.to_u8())] += 1;
        // The newest packet received is for endpoints of this project. The standard has nothing here.
        let end = self.rx.window().end();
        let end = if shared.config.dialect.ack_state { end } else { Psn(0) };
        let nack = self.numbers.nack(psn, retx, ce, code, end);
        shared.control.send(self.control_path.control_out(self.numbers.peer, nack));
    }

    /// Handles an ACK. Returns `None` when it is not valid.
    #[inline]
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        facts: &AckFacts<'_>,
        shared: &mut Shared<D>,
    ) -> Option<Outcome> {
        if self.life.phase() == Phase::Closing && ack.cack_psn == self.tx.ring().next() {
            return Some(Outcome::Closed);
        }
        match facts.check(self.tx.ring()) {
            Verdict::Credible => {}
            Verdict::Stale => {
                shared.counters.rx_stale += 1;
                return None;
            }
            Verdict::Impossible => {
                shared.counters.rx_bad_ack += 1;
                return None;
            }
        }
        self.numbers.connect(ack.spdcid);
        if self.life.awaits_handshake() {
            // The ACK shows that the target knows this end.
            self.life.release(now);
        }
        let (tx, timers) = (&mut self.tx, &mut self.timers);
        let gain = on_ack(tx, now, self.numbers.id, facts, timers, shared);
        if let Some(path) = gain.open_path {
            self.control_path.set_path(path);
        }
        if let Some(path) = gain.marked {
            shared.flows.at(self.record).on_marked(path);
        }
        if gain.packets > 0 {
            self.life.on_use(now);
            let record = shared.flows.at(self.record);
            let headers = NOMINAL_OVERHEAD * u32::from(gain.packets);
            record.on_acked(gain.packets, gain.bytes - headers);
            if gain.round_end {
                record.sample_window(tx.flow().metrics(&shared.groups).cwnd);
            }
        } else {
            self.life.on_repeated_message(now);
        }
        if ack.ce && ack.ext == AckExt::None {
            shared.counters.rx_notifications += 1;
            tx.on_control(now, cc::FeedbackKind::Notified, None, timers, shared);
        }
        match ack.request {
            AckRequest::None => {}
            AckRequest::Clear => tx.on_clear_request(now, timers, &shared.config),
            // The context does not close while anything is in flight, or while the engine has not
            // seen a response yet, after which it may have more to send here. The target requests
            // again.
            AckRequest::Close => {
                self.life.detect_peer_shutdown(now, &shared.config);
                if self.life.is_initiator() && !facts.is_answer() && tx.ring().is_empty() {
                    self.life.on_close_request(now, timers);
                }
            }
        }
        Some(self.step(now))
    }

    /// Handles a NACK. Returns `None` when it is not valid.
    pub(crate) fn on_nack(
        &mut self,
        now: Time,
        nack: &Nack,
        shared: &mut Shared<D>,
    ) -> Option<Outcome> {
        let ring = self.tx.ring();
        let action = nack.code.action();
        let code = usize::from(nack.code.to_u8());
        if self.life.phase() == Phase::Closing
            && nack.psn == ring.next()
            && action == NackAction::Close
        {
            // The peer has already discarded the context.
            shared.counters.rx_nacks[code] += 1;
            return Some(Outcome::Closed);
        }
        let outstanding = !nack.psn.is_before(ring.base()) && nack.psn.is_before(ring.next());
        let untouched = ring.base() == self.numbers.start;
        let mut outcome = Outcome::Alive;
        let accepted = outstanding
            && match action {
                NackAction::Retransmit => {
                    let flags = NackFlags { ce: nack.ce, retx: nack.retx };
                    let (tx, timers) = (&mut self.tx, &mut self.timers);
                    LossEvent::new(tx, now, timers, shared).on_nack(nack.psn, (nack.code, flags))
                }
                NackAction::Close => {
                    outcome = Outcome::Failed(match nack.code {
                        NackCode::InvDpdcid => PdcFailure::PeerRestarted,
                        code => PdcFailure::Nacked(code),
                    });
                    true
                }
                NackAction::Restart => {
                    let opening =
                        self.life.is_initiator() && untouched && !self.numbers.is_connected();
                    opening && self.on_unverified_nack(now, nack, shared)
                }
                NackAction::Ignore => true,
            };
        if !accepted {
            shared.counters.rx_stale += 1;
            return None;
        }
        shared.counters.rx_nacks[code] += 1;
        self.life.on_use(now);
        Some(outcome)
    }

    /// Handles that the target refused to open the context because it does not know this end.
    /// Returns whether the NACK is valid. The target may still accept packets of the context that
    /// arrive after the handshake, so they keep their numbers.
    fn on_unverified_nack(&mut self, now: Time, nack: &Nack, shared: &mut Shared<D>) -> bool {
        if !matches!(shared.config.contact, Contact::Introduced(_)) {
            self.release(now, Some(Psn(nack.payload)), shared);
            return true;
        }
        let flags = NackFlags { ce: nack.ce, retx: nack.retx };
        let (tx, timers) = (&mut self.tx, &mut self.timers);
        let event = (nack.code, flags);
        let sent_at = tx.ring().sent_at(nack.psn);
        if !LossEvent::new(tx, now, timers, shared).on_nack(nack.psn, event) {
            return false;
        }
        if !self.life.awaits_handshake() {
            self.life.await_handshake();
            shared.events.push_back(Event::Unknown { peer: self.numbers.peer, sent_at });
        }
        true
    }

    /// Handles a control packet. Returns `None` when it is not valid.
    pub(crate) fn on_control(
        &mut self,
        now: Time,
        control: &Control,
        shared: &mut Shared<D>,
    ) -> Option<Outcome> {
        if !self.numbers.is_connected() {
            // Only data or an acknowledgement of them connects a context.
            shared.counters.rx_mismatch += 1;
            return None;
        }
        let window = shared.config.recv_window_packets;
        let payload = Psn(control.payload);
        let initiator = self.life.is_initiator();
        let accepted = match control.kind {
            ControlKind::Probe => {
                let near = self.rx.place(control.psn, window) != PsnPlace::Nonsense;
                if near {
                    shared.counters.rx_probes += 1;
                    self.rx.on_probe(now, control.probe_opaque, payload);
                    // The peer would not ask if it had received the acknowledgements.
                    let received = self.rx.window().base();
                    let any = || shared.any_path();
                    let again = self.control_path.leave_silent_path(payload, received, any);
                    if again {
                        self.count_question(now, shared);
                    }
                }
                near
            }
            ControlKind::AckRequest => match self.rx.place(control.psn, window) {
                PsnPlace::Duplicate => {
                    self.rx.on_duplicate(now, control.psn, control.retx);
                    true
                }
                PsnPlace::New => {
                    let code = NackCode::PktNotRcvd;
                    self.send_nack(control.psn, (control.retx, false), code, shared);
                    true
                }
                PsnPlace::Ahead | PsnPlace::Nonsense => false,
            },
            ControlKind::ClearCommand => {
                let received = payload.is_before(self.rx.window().end());
                if received {
                    self.rx.on_cleared(payload);
                    self.rx.report_window();
                }
                received
            }
            ControlKind::ClearRequest => {
                self.tx.on_clear_request(now, &mut self.timers, &shared.config);
                true
            }
            ControlKind::CloseCommand => {
                let drained = self.tx.ring().is_empty();
                if !initiator && drained && control.psn == self.rx.window().base() {
                    let packet = self.ack(now, &AckBody::last(control.psn), shared);
                    shared.control.send(self.control_path.control_out(self.numbers.peer, packet));
                    self.life.detect_peer_shutdown(now, &shared.config);
                    return Some(Outcome::Closed);
                }
                false
            }
            // The target was commanded to close and refuses, because the two ends do not agree
            // about what was sent. Answering would keep both contexts alive without end.
            ControlKind::CloseRequest if self.life.phase() == Phase::Closing => false,
            ControlKind::CloseRequest if initiator => {
                self.life.detect_peer_shutdown(now, &shared.config);
                if self.tx.ring().is_empty() {
                    self.life.on_close_request(now, &mut self.timers);
                }
                // The acknowledgement is a sign of life, because the close may have to wait.
                self.rx.request_ack();
                true
            }
            ControlKind::CloseRequest => false,
            ControlKind::Credit => {
                // Without congestion control by credit it means nothing.
                if shared.config.uses_credits() {
                    shared.counters.rx_credits += 1;
                    let (kind, grant) = (cc::FeedbackKind::Control, Some(control.payload));
                    self.tx.on_control(now, kind, grant, &mut self.timers, shared);
                }
                true
            }
            ControlKind::CreditRequest => {
                let target = self.rx.rare_mut().on_demand(control.payload);
                shared.receiver.on_request(now, self.rx.flow_mut(), target);
                true
            }
            ControlKind::Noop | ControlKind::Negotiation => true,
        };
        if !accepted {
            shared.counters.rx_stale += 1;
            return None;
        }
        // Each of these two may answer one of the other, without end, so they do not keep the
        // context alive.
        match control.kind {
            ControlKind::ClearCommand | ControlKind::ClearRequest => {
                self.life.on_repeated_message(now);
            }
            _ => self.life.on_use(now),
        }
        Some(self.step(now))
    }
}
