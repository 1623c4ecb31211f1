//! One context at one end: its two halves, its life, and what it has to say.

use crate::base::{Psn, Span, Time};
use crate::bitmap::Bitmap;
use crate::cc::{self, ReceiverCc};
use crate::config::{Config, MPR_UNIT};
use crate::rx::{AckBody, Rx};
use crate::shared::Shared;
use crate::tx::{Departure, Tx};
use crate::types::{ControlPacket, Failure, PdcId, PeerKey, TxGrant};
use crate::wire::{
    Ack, AckCc, AckExt, AckRequest, CcState, Ccc, Control, ControlKind, Dest, Mode, Nack, NackCode,
    NextHeader, NsccState, Request,
};

/// A target asks for the close of an idle context after this many times the initiator's patience.
const TARGET_PATIENCE: u64 = 4;

/// How often a Close Command is sent to a target that never sent data. Everything was acknowledged before,
/// so giving up costs nothing but the peer's memory, which its own patience frees.
const CLOSE_TRIES: u8 = 6;

/// Where a context is in its life. Whether the peer's context number is known is another matter
/// ([`Pdc::connected`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    /// An initiator waits for its last acknowledgements. A target asks to be closed.
    Draining,
    /// An initiator sent, or is about to send, its Close Command. Its PSN is the one after the last
    /// packet's.
    Closing,
}

/// What a call did to a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Alive,
    Closed,
    Failed(Failure),
}

/// One context.
#[derive(Debug)]
pub(crate) struct Pdc<D> {
    pub(crate) id: PdcId,
    pub(crate) peer: PeerKey,
    pub(crate) initiator: bool,
    /// This end's number on the wire.
    pub(crate) local: u16,
    /// The peer's number; zero until it is known.
    pub(crate) remote: u16,
    pub(crate) start: Psn,
    pub(crate) phase: Phase,
    busy: bool,
    /// It is in [`Shared::talkative`].
    pub(crate) talking: bool,
    /// The path of control packets; another one once there is a sign that it loses them.
    control_path: u16,
    /// The path on which an acknowledgement last came through for certain, if it was not left since for
    /// losing one.
    proven_path: Option<u16>,
    /// The first packet that can only have been acknowledged on `control_path`.
    since_turn: Psn,
    /// The last sign of the peer's life, or of ours.
    used_at: Time,
    /// When to send the Close Command or Close Request (again), and how often it was.
    ask_at: Time,
    asked: u8,
    pub(crate) tx: Tx<D>,
    pub(crate) rx: Rx,
}

impl<D: Copy> Pdc<D> {
    /// A context with the peer's number `remote`, zero for an initiator.
    pub(crate) fn new(
        now: Time,
        id: PdcId,
        local: u16,
        peer: PeerKey,
        remote: u16,
        start: Psn,
        shared: &mut Shared<D>,
    ) -> Self {
        let config = &shared.config;
        let place = (peer.0, shared.host_of(peer));
        let context = shared.groups.join(config.scope, id.slot_number(), place, &config.cc, now);
        let mut tx = Tx::new(start, now, context, config, &mut shared.rng);
        tx.event(now, cc::FlowEvent::Opened { bytes: None }, shared);
        Self {
            id,
            peer,
            initiator: remote == 0,
            local,
            remote,
            start,
            phase: Phase::Open,
            busy: false,
            talking: false,
            control_path: shared.any_path(),
            proven_path: None,
            since_turn: start,
            used_at: now,
            ask_at: Time::NEVER,
            asked: 0,
            tx,
            rx: Rx::new(start, id),
        }
    }

    /// The peer's context number is known: it was heard of.
    pub(crate) const fn connected(&self) -> bool {
        self.remote != 0
    }

    pub(crate) fn used(&mut self, now: Time) {
        self.used_at = now;
    }

    pub(crate) const fn last_used(&self) -> Time {
        self.used_at
    }

    pub(crate) fn set_busy(&mut self, now: Time, busy: bool) {
        self.busy = busy;
        self.used_at = now;
    }

    /// Whether new packets are refused. A target that asked to be closed still answers.
    pub(crate) fn refuses(&self) -> bool {
        self.initiator && self.phase != Phase::Open
    }

    /// Reads a little of everything that packets need.
    pub(crate) fn glance(&self) -> u64 {
        self.used_at.0 ^ u64::from(self.local) ^ self.tx.glance() ^ self.rx.glance()
    }

    /// The header of a departing packet.
    pub(crate) fn grant(&self, departure: &Departure) -> TxGrant {
        let psn = departure.psn;
        let dest = if self.connected() {
            Dest::Pdc(self.remote)
        } else {
            // Unconnected, the window starts at `start`, and is at most 4095 packets.
            let psn_offset = psn.distance(self.start).clamp(0, 4095) as u16;
            Dest::Syn { use_rsv_pdc: false, psn_offset }
        };
        TxGrant {
            psn,
            path: departure.path,
            pds: Request {
                mode: Mode::Rud,
                next: NextHeader::None,
                retx: departure.retx,
                ack_request: departure.ask,
                clear_psn_offset: departure.clear_psn_offset,
                psn,
                spdcid: self.local,
                dest,
                ccc: departure
                    .demand
                    .map(|target| Ccc { ccc_id: 0, credit_target: cc::credit_units(target) }),
            },
        }
    }

    /// A NACK for the packet `psn`.
    pub(crate) fn nack(&self, psn: Psn, retx: bool, ce: bool, code: NackCode) -> ControlPacket {
        ControlPacket::Nack(Nack {
            ce,
            retx,
            rudi: false,
            code,
            vendor_code: 0,
            psn,
            spdcid: self.local,
            dpdcid: self.remote,
            payload: self.rx.end().0,
            ccx: None,
        })
    }

    pub(crate) const fn control_path(&self) -> u16 {
        self.control_path
    }

    /// Control packets seem to get lost: send them another way. Every other time that is the path on
    /// which they came through last, for the sign may have been a false one, or another loss's.
    pub(crate) fn turn(&mut self, shared: &mut Shared<D>) {
        self.control_path = match self.proven_path {
            Some(path) if path != self.control_path => path,
            _ => shared.any_path(),
        };
        self.since_turn = self.rx.base();
    }

    /// The peer asks although `base` was acknowledged: the path loses what is sent on it.
    pub(crate) fn turn_away(&mut self, base: Psn, shared: &mut Shared<D>) {
        let unheard = base.is_before(self.rx.base());
        if unheard && self.proven_path == Some(self.control_path) {
            self.proven_path = None;
        }
        self.turn(shared);
    }

    /// The peer knows that everything up to `psn` arrived.
    pub(crate) fn confirmed(&mut self, psn: Psn) {
        if !psn.is_before(self.since_turn) {
            self.proven_path = Some(self.control_path);
        }
    }

    /// The target wants to close. A busy context goes on: a message that is half sent must not be
    /// continued on another one. The target will ask again.
    pub(crate) fn asked_to_close(&mut self, now: Time) {
        if !self.busy {
            self.drain(now);
        }
    }

    /// Starts closing, if it has not.
    pub(crate) fn drain(&mut self, now: Time) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.used_at = now;
            if !self.initiator {
                self.ask_at = now;
            }
        }
    }

    /// Goes on to the Close Command when everything is acknowledged.
    pub(crate) fn step(&mut self, now: Time) -> Life {
        let drained = self.tx.is_empty() && !self.busy;
        if self.phase != Phase::Draining || !self.initiator || !drained {
            return Life::Alive;
        }
        if !self.connected() {
            // The peer never heard of it.
            return Life::Closed;
        }
        self.phase = Phase::Closing;
        self.ask_at = now;
        Life::Alive
    }

    /// Whether [`Pdc::say`] has something to say.
    pub(crate) fn has_words(&self, now: Time) -> bool {
        self.rx.ack_due()
            || self.tx.probe_due()
            || self.tx.request_due()
            || self.connected() && self.tx.clear_due(now)
            || self.ask_at <= now
    }

    /// The next packet without data to send.
    pub(crate) fn say(&mut self, now: Time, shared: &mut Shared<D>) -> Option<ControlPacket> {
        if !self.connected() {
            return None;
        }
        if let Some(body) = self.rx.next_ack(now, &shared.config) {
            shared.counters.tx_acks += 1;
            return Some(self.ack(now, &body, shared));
        }
        if let Some(clear) = self.tx.take_clear(now, &shared.config) {
            let command = self.control(ControlKind::ClearCommand, Psn(0), clear.0);
            return Some(ControlPacket::Control(command));
        }
        if let Some(opaque) = self.tx.take_probe(now) {
            shared.counters.tx_probes += 1;
            self.turn(shared);
            let newest = self.tx.next().minus(1);
            let probe = self.control(ControlKind::Probe, newest, self.tx.base().0);
            let probe = Control { probe_opaque: opaque, ack_request: true, ..probe };
            return Some(ControlPacket::Control(probe));
        }
        if let Some(target) = self.tx.take_request() {
            shared.counters.tx_credit_requests += 1;
            let newest = self.tx.next().minus(1);
            let units = cc::credit_units(target);
            return Some(ControlPacket::Control(self.control(
                ControlKind::CreditRequest,
                newest,
                units,
            )));
        }
        self.ask(now, shared).map(ControlPacket::Control)
    }

    /// Tells the peer that it may have sent `cumulative` bytes in all.
    pub(crate) fn credit(&self, cumulative: u64) -> ControlPacket {
        let units = cc::credit_units(cumulative);
        ControlPacket::Control(self.control(ControlKind::Credit, self.tx.next().minus(1), units))
    }

    /// A congestion notification packet: an ACK that is marked and carries no congestion-control state.
    pub(crate) fn notification(&self) -> ControlPacket {
        ControlPacket::Ack {
            pds: Ack {
                next: NextHeader::None,
                ce: true,
                retx: false,
                probe: false,
                request: AckRequest::None,
                ack_psn_offset: 0,
                cack_psn: self.rx.cack(),
                spdcid: self.local,
                dpdcid: self.remote,
                ext: AckExt::None,
            },
            response: None,
        }
    }

    /// The Close Command or Close Request, when it is time to send it (again). The request does not
    /// take a PSN: it may be repeated, and nothing waits for it in order.
    fn ask(&mut self, now: Time, shared: &mut Shared<D>) -> Option<Control> {
        if self.ask_at > now {
            return None;
        }
        let kind = if self.phase == Phase::Closing {
            ControlKind::CloseCommand
        } else {
            ControlKind::CloseRequest
        };
        let wait = self.patience(&shared.config) * (1 << self.asked.min(16));
        let retx = self.asked > 0;
        self.ask_at = now + wait.min(shared.config.rto_max);
        self.asked = self.asked.saturating_add(1);
        if retx {
            self.turn(shared);
        }
        Some(Control { retx, ack_request: true, ..self.control(kind, self.tx.next(), 0) })
    }

    /// Before a control packet is first repeated.
    fn patience(&self, config: &Config) -> Span {
        let measured = self.tx.srtt().map_or(config.rto_init, |srtt| srtt * 4);
        measured.max(config.rto_min).min(config.rto_max)
    }

    const fn control(&self, kind: ControlKind, psn: Psn, payload: u32) -> Control {
        Control {
            kind,
            isrod: false,
            retx: false,
            ack_request: false,
            probe_opaque: 0,
            psn,
            spdcid: self.local,
            dest: Dest::Pdc(self.remote),
            payload,
        }
    }

    fn ack(&mut self, now: Time, body: &AckBody, shared: &mut Shared<D>) -> ControlPacket {
        let mut signals =
            cc::AckSignals { ooo: Some(self.rx.ahead()), ..cc::AckSignals::default() };
        shared.receiver.fill_ack(now, &mut self.rx.flow, &mut signals);
        // Offsets reach at most two windows.
        let offset = |psn: Psn| i16::try_from(psn.distance(body.cack)).unwrap_or(0);
        let request = match self.phase {
            Phase::Draining if !self.initiator => AckRequest::Close,
            // The initiator clears of its own accord when it gets a response.
            _ if self.rx.wants_clear() && body.response.is_none() => AckRequest::Clear,
            _ => AckRequest::None,
        };
        let ooo_count = signals.ooo.unwrap_or(u16::MAX);
        let state = match signals.credit {
            Some(credit) => CcState::Credit { credit: cc::credit_units(credit), ooo_count },
            None => CcState::Nscc(NsccState {
                service_time: body.service_time,
                restore_cwnd: signals.restore_cwnd,
                rcv_cwnd_pend: signals.penalty,
                rcvd_bytes: signals.received_units(),
                ooo_count,
            }),
        };
        let pds = Ack {
            next: if body.response.is_some() { NextHeader::Response } else { NextHeader::None },
            ce: signals.echo_ecn.unwrap_or(body.ce),
            retx: body.retx,
            probe: body.probe.is_some(),
            request: if self.initiator { AckRequest::None } else { request },
            ack_psn_offset: match body.probe {
                Some(opaque) => opaque.cast_signed(),
                None => offset(body.ack_psn),
            },
            cack_psn: body.cack,
            spdcid: self.local,
            dpdcid: self.remote,
            ext: AckExt::Cc(AckCc {
                mpr: mpr(&shared.config),
                sack_psn_offset: offset(body.sack_base),
                sack_bitmap: body.bitmap,
                state,
            }),
        };
        ControlPacket::Ack { pds, response: body.response }
    }

    /// The acknowledgement of a Close Command, with which the context ends.
    pub(crate) fn last_ack(
        &mut self,
        now: Time,
        psn: Psn,
        shared: &mut Shared<D>,
    ) -> ControlPacket {
        let body = AckBody {
            cack: psn,
            ack_psn: psn,
            probe: None,
            sack_base: psn.plus(1),
            bitmap: 0,
            service_time: 1,
            ce: false,
            retx: false,
            response: None,
        };
        shared.counters.tx_acks += 1;
        self.ack(now, &body, shared)
    }

    /// Time passed.
    pub(crate) fn on_timer(&mut self, now: Time, shared: &mut Shared<D>) -> Life {
        self.rx.on_timer(now);
        let connected = self.connected();
        if let Err(failure) = self.tx.on_timer(now, connected, shared) {
            return Life::Failed(failure);
        }
        if self.phase == Phase::Closing
            && self.ask_at <= now
            && self.asked_enough(now, &shared.config)
        {
            return Life::Closed;
        }
        if self.unheard_at(&shared.config) <= now {
            let lost = !self.tx.is_empty();
            return if lost { Life::Failed(Failure::Silent) } else { Life::Closed };
        }
        if self.idle_at(&shared.config) <= now {
            self.drain(now);
        }
        self.step(now)
    }

    /// Whether an initiator gives up on its Close Command. A target that sent data refuses it until all of
    /// that is acknowledged; if we were gone it would never learn that it arrived, and fail what the data
    /// was for. So it is given the time that it gives us.
    fn asked_enough(&self, now: Time, config: &Config) -> bool {
        let silent = self.used_at + config.progress_deadline <= now;
        self.asked >= CLOSE_TRIES && (self.rx.flow.received() == 0 || silent)
    }

    /// When a target that asks to be closed gives up on its initiator. One that is still alive, but not
    /// ready to close, acknowledges the request.
    fn unheard_at(&self, config: &Config) -> Time {
        if self.initiator || self.phase != Phase::Draining {
            return Time::NEVER;
        }
        self.used_at + config.progress_deadline
    }

    /// Whether an initiator should not use the context again, because its target may have forgotten it:
    /// it has been idle for so long that it should have been closed, had the process been running.
    pub(crate) fn stale(&self, now: Time, config: &Config) -> bool {
        self.initiator
            && self.phase == Phase::Open
            && !self.busy
            && self.connected()
            && self.tx.is_empty()
            && self.used_at + config.idle_close <= now
    }

    /// When it is closed for having nothing to do.
    fn idle_at(&self, config: &Config) -> Time {
        let idle =
            self.phase == Phase::Open && !self.busy && self.tx.is_empty() && !self.rx.unsettled();
        if !idle {
            return Time::NEVER;
        }
        let patience = if self.initiator { 1 } else { TARGET_PATIENCE };
        self.used_at + config.idle_close * patience
    }

    /// When [`Pdc::on_timer`] wants to be called, not counting what waits to be said.
    pub(crate) fn timer(&self, now: Time, shared: &Shared<D>) -> Time {
        let config = &shared.config;
        let mut when = self.rx.timer().min(self.tx.timer(now, self.connected(), shared));
        if self.ask_at > now {
            when = when.min(self.ask_at);
        }
        when.min(self.idle_at(config)).min(self.unheard_at(config))
    }

    /// Gives back what it borrowed.
    pub(crate) fn dismantle(&mut self, shared: &mut Shared<D>) {
        self.tx.abandon(self.id, shared);
        let now = shared.now;
        shared.receiver.on_close(now, &mut self.rx.flow);
        self.rx.give_back(&mut shared.bitmaps);
        shared.trim_pools();
    }
}

/// The MPR field that advertises the receive window.
fn mpr(config: &Config) -> u8 {
    // At most 31: the window has 12 bits.
    (recv_window(config) / MPR_UNIT) as u8
}

/// The receive window in packets: what MPR can say.
pub(crate) fn recv_window(config: &Config) -> u16 {
    (config.recv_window_packets / MPR_UNIT).clamp(1, 31) * MPR_UNIT
}

impl Rx {
    fn give_back(&mut self, pool: &mut Vec<Bitmap>) {
        if let Some(mut bits) = self.take_bits() {
            bits.clear();
            pool.push(bits);
        }
    }
}
