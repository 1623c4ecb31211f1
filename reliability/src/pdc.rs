//! One context at one end: it coordinates its two halves, its lifecycle, its timers and the path of
//! its control packets.

mod control_path;
mod detour;
mod lifecycle;
mod numbers;
mod packets;
mod receive;
mod runs;

use crate::base::{Psn, Span, Time};
use crate::cc::{self, ReceiverCc};
use crate::config::{Config, MPR_UNIT};
use crate::context::Groups;
use crate::deadlines::{Deadlines, Timer, each_timer};
use crate::flows::FlowRecord;
use crate::rx::Rx;
use crate::shared::Shared;
use crate::tx::{Departure, Expiry, LossEvent, Tx, TxControl, forget_route, path_metrics};
use crate::types::{
    ControlOut, ControlPacket, Event, Label, NewPacket, PdcFailure, PdcId, PeerKey, TxGrant,
};
use crate::wire::{Control, ControlKind, Mode};
use control_path::ControlPath;
pub(crate) use lifecycle::{Lifecycle, Outcome, Phase};
use numbers::Numbers;
pub(crate) use receive::Pending;
pub(crate) use runs::{accept_run, send_end, send_run};

/// Time without an answer to a packet after which every timeout is reported to the engine
/// ([`Event::Waits`]).
const REPORT_WAIT: Span = Span::secs(1);

/// One end of a packet delivery context (PDC).
#[derive(Debug)]
pub(crate) struct Pdc<D> {
    numbers: Numbers,
    /// The index in [`Shared::flows`] of the record that counts this context's flow.
    record: u32,
    control_path: ControlPath,
    life: Lifecycle,
    timers: Deadlines,
    tx: Tx<D>,
    rx: Rx,
}

impl<D: Copy> Pdc<D> {
    /// Makes a context with the number `local`; `remote` is the peer's number, zero for an
    /// initiator. Without a start PSN the context waits until the handshake with its peer is
    /// complete.
    pub(crate) fn new(
        now: Time,
        id: PdcId,
        (peer, label): (PeerKey, Label),
        (local, remote): (u16, u16),
        start: Option<Psn>,
        shared: &mut Shared<D>,
    ) -> Self {
        let awaits_handshake = start.is_none();
        let start = start.unwrap_or(Psn(0));
        let config = &shared.config;
        let (scope, slot) = (config.scope, id.slot_number());
        let context = shared.groups.join(scope, slot, (peer, label), &config.cc, now);
        let mut tx = Tx::new(start, now, context, config, &mut shared.rng);
        let mut timers = Deadlines::new();
        tx.on_event(now, cc::FlowEvent::Opened { flow: id.to_u32() }, &mut timers, shared);
        Self {
            numbers: Numbers { id, peer, local, remote, start },
            record: shared.flows.open(peer, remote == 0),
            control_path: ControlPath::new(shared.any_path(), start),
            life: Lifecycle::new(now, remote == 0, awaits_handshake),
            timers,
            tx,
            rx: Rx::new(start, id),
        }
    }

    /// Returns the numbers that identify the context at this end and on the wire.
    #[inline]
    pub(crate) const fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Sets the delivery mode of the context (RUD or ROD), which its initiator chose.
    pub(crate) const fn set_mode(&mut self, mode: Mode) {
        self.life.set_mode(mode);
    }

    #[inline]
    pub(crate) const fn life(&self) -> &Lifecycle {
        &self.life
    }

    #[inline]
    pub(crate) const fn tx(&self) -> &Tx<D> {
        &self.tx
    }

    #[inline]
    pub(crate) fn tx_mut(&mut self) -> &mut Tx<D> {
        &mut self.tx
    }

    // Commands.

    /// Starts to close the context, unless it is closing already.
    pub(crate) fn drain(&mut self, now: Time) -> Outcome {
        self.life.drain(now, &mut self.timers);
        self.step(now)
    }

    pub(crate) fn set_busy(&mut self, now: Time, busy: bool) -> Outcome {
        self.life.set_busy(now, busy);
        self.step(now)
    }

    /// Starts to send the Close Command if the context is draining and everything is acknowledged.
    #[inline]
    fn step(&mut self, now: Time) -> Outcome {
        let (drained, connected) = (self.tx.ring().is_empty(), self.numbers.is_connected());
        self.life.step(now, drained, connected, &mut self.timers)
    }

    /// Returns whether an initiator should open another context instead, because the target may
    /// have forgotten this one.
    #[inline]
    pub(crate) fn is_stale(&self, now: Time, config: &Config) -> bool {
        self.life.is_stale(now, config) && self.numbers.is_connected() && self.tx.ring().is_empty()
    }

    /// Sends a packet for the first time, if it may leave now. An error of `true` means that
    /// another packet must be retransmitted first.
    // Inlined for the same reason as `Pdcs::next_packet`, and so are the functions of the sending
    // half that it calls.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        now: Time,
        packet: &NewPacket<D>,
        shared: &mut Shared<D>,
    ) -> Result<TxGrant, bool> {
        let (tx, timers) = (&mut self.tx, &mut self.timers);
        if !tx.admit(now, packet.bytes, timers, shared) {
            let first = tx.may_retransmit(now, shared);
            tx.queue_for_room(self.numbers.id, shared);
            let behind = packet.backlog + u64::from(packet.bytes);
            tx.on_blocked(now, Some(behind), timers, shared);
            // Congestion control may let the packet go once it knows the backlog, but not before
            // the packet that asks for the flow's rate.
            let asks = !shared.config.uses_rates() || shared.has_rate_packet_of(self.numbers.id);
            if asks || !tx.admit(now, packet.bytes, timers, shared) {
                return Err(first);
            }
        }
        let departure = tx.send(now, packet, timers, shared);
        self.life.on_use(now);
        shared.flows.at(self.record).on_sent(packet.bytes, departure.path);
        Ok(self.numbers.grant(&departure, self.control_path.detour(), self.life.mode()))
    }

    /// Returns the receiving half of the context for changes.
    pub(crate) const fn rx_mut(&mut self) -> &mut Rx {
        &mut self.rx
    }

    /// Returns the receiving half of the context.
    pub(crate) const fn rx(&self) -> &Rx {
        &self.rx
    }

    /// Retransmits the next packet that waits to be, if it may leave now.
    #[inline]
    pub(crate) fn resend(&mut self, now: Time, shared: &mut Shared<D>) -> Option<(TxGrant, D)> {
        let who = (self.numbers.id, self.numbers.is_connected());
        let (departure, before, desc) = self.tx.resend(now, who, &mut self.timers, shared)?;
        let record = shared.flows.at(self.record);
        record.on_sent(departure.bytes, departure.path);
        record.on_sent_again(before);
        Some((self.numbers.grant(&departure, self.control_path.detour(), self.life.mode()), desc))
    }

    /// Returns the header fields for sending the acknowledged packet `psn` once more.
    pub(crate) fn repeat(&self, psn: Psn) -> TxGrant {
        let clear = self.tx.clear_limit();
        let departure = Departure {
            psn,
            path: self.control_path.path(),
            bytes: 0,
            ask: true,
            retx: true,
            clear_psn_offset: i16::try_from(clear.distance(psn)).unwrap_or(0).min(0),
            state: None,
        };
        self.numbers.grant(&departure, self.control_path.detour(), self.life.mode())
    }

    /// Changes the context to other entropies, because its peer answers on none of the paths, if the
    /// peer takes packets from other source ports.
    #[cold]
    pub(super) fn take_detour(&mut self, shared: &mut Shared<D>) {
        if !shared.config.dialect.takes_detours {
            return;
        }
        shared.counters.detours += 1;
        self.control_path.take_detour(shared.paths);
        forget_route(&mut self.tx);
    }

    /// Counts a repeated probe or retransmission since which no new packet arrived. If they go on,
    /// the peer receives no answers, and the context takes a detour.
    #[cold]
    pub(super) fn count_question(&mut self, now: Time, shared: &mut Shared<D>) {
        let received = self.rx.window().base();
        if self.tx.rare_mut().asked.count_question(now, received) {
            self.take_detour(shared);
        }
    }

    /// Informs congestion control that the packets to retransmit are blocked, if credit is missing.
    #[inline]
    pub(crate) fn on_blocked(&mut self, now: Time, shared: &mut Shared<D>) {
        self.tx.on_blocked(now, None, &mut self.timers, shared);
    }

    // Packets without data.

    /// Adds the context to the list of those that have a packet without data to send, if it has
    /// one.
    #[inline]
    pub(crate) fn list_control(&mut self, now: Time, shared: &mut Shared<D>) {
        if self.control_path.is_listed() || !self.numbers.is_connected() {
            return;
        }
        let due = self.rx.is_ack_due()
            || self.tx.is_control_due()
            || self.timers.is_due(Timer::Clear, now)
            || self.timers.is_due(Timer::Close, now);
        if due {
            self.control_path.set_listed(true);
            shared.control.slots.push_back(self.numbers.id.slot_number());
        }
    }

    /// Returns the state of the path on which the context sends control packets.
    #[inline]
    pub(crate) const fn control_path(&self) -> &ControlPath {
        &self.control_path
    }

    /// Returns the next packet without data to send. If there is none, the context leaves the list.
    #[inline]
    pub(crate) fn next_control(&mut self, now: Time, shared: &mut Shared<D>) -> Option<ControlOut> {
        let packet = self.poll_control(now, shared);
        self.control_path.set_listed(packet.is_some());
        Some(self.control_path.control_out(self.numbers.peer, packet?))
    }

    fn poll_control(&mut self, now: Time, shared: &mut Shared<D>) -> Option<ControlPacket> {
        if !self.numbers.is_connected() {
            return None;
        }
        if let Some(body) = self.rx.next_ack(now, &mut self.timers, &shared.config) {
            let packet = self.ack(now, &body, shared);
            if body.probe.is_some() {
                self.send_copies(packet, shared);
            }
            return Some(packet);
        }
        let newest = self.tx.ring().next().minus(1);
        let packet = match self.tx.next_control(now, &mut self.timers, &shared.config) {
            Some(TxControl::Clear(psn)) => {
                self.numbers.control(ControlKind::ClearCommand, Psn(0), psn.0)
            }
            Some(TxControl::Probe(opaque)) => {
                shared.counters.tx_probes += 1;
                self.change_control_path(shared);
                self.tx.set_probe_path(self.control_path.path());
                let base = self.tx.ring().base();
                let probe = self.numbers.control(ControlKind::Probe, newest, base.0);
                Control { probe_opaque: opaque, ack_request: true, ..probe }
            }
            Some(TxControl::CreditRequest(target)) => {
                shared.counters.tx_credit_requests += 1;
                let units = cc::credit_units(target);
                self.numbers.control(ControlKind::CreditRequest, newest, units)
            }
            None => return self.next_close(now, shared).map(ControlPacket::Control),
        };
        Some(ControlPacket::Control(packet))
    }

    /// Returns the Close Command or Close Request when it is time to send it (again). The request
    /// takes no PSN: it may be repeated, and nothing waits for it in order.
    fn next_close(&mut self, now: Time, shared: &mut Shared<D>) -> Option<Control> {
        if !self.timers.is_due(Timer::Close, now) {
            return None;
        }
        let kind = if self.life.phase() == Phase::Closing {
            ControlKind::CloseCommand
        } else {
            ControlKind::CloseRequest
        };
        // The time before a control packet is first repeated.
        let config = &shared.config;
        let measured = self.tx.rtt().srtt().map_or(config.rto_init, |srtt| srtt * 4);
        let patience: Span = measured.max(config.rto_min).min(config.rto_max);
        let retx = self.life.count_close_attempt(now, patience, config.rto_max, &mut self.timers);
        if retx {
            self.change_control_path(shared);
        }
        let next = self.tx.ring().next();
        Some(Control { retx, ack_request: true, ..self.numbers.control(kind, next, 0) })
    }

    /// Sends copies of a probe's answer on further paths if earlier answers seem lost.
    #[inline]
    fn send_copies(&mut self, packet: ControlPacket, shared: &mut Shared<D>) {
        for _ in 0..self.control_path.copies() {
            shared.control.send(self.control_path.control_out(self.numbers.peer, packet));
            self.change_control_path(shared);
        }
    }

    /// Moves control packets to another path because they seem to be lost. See
    /// [`ControlPath::change_path`].
    fn change_control_path(&mut self, shared: &mut Shared<D>) -> bool {
        self.control_path.change_path(self.rx.window().base(), || shared.any_path())
    }

    // Timers.

    /// Returns when a timer is due: the time it was set to, or the time that follows from a part of
    /// the context.
    #[inline(always)]
    fn deadline(&self, timer: Timer, now: Time, shared: &Shared<D>) -> Time {
        let config = &shared.config;
        match timer {
            Timer::Ack if self.rx.is_ack_requested() => Time::NEVER,
            Timer::Retransmit | Timer::Probe if self.tx.ring().is_empty() => Time::NEVER,
            Timer::Ack | Timer::Retransmit | Timer::Probe | Timer::Clear | Timer::Close => {
                self.timers.get(timer)
            }
            Timer::Congestion => self.tx.flow().next_timer(&shared.groups),
            Timer::Progress => self.tx.progress_deadline(self.numbers.is_connected(), config),
            Timer::Orphan => self.life.close_request_deadline(config),
            Timer::Idle if !self.tx.ring().is_empty() => Time::NEVER,
            // A received packet was not yet acknowledged. A response that was not yet cleared does
            // not count: a peer that does not clear it has forgotten it, or has nothing to send
            // until it closes.
            Timer::Idle if self.timers.is_running(Timer::Ack) => Time::NEVER,
            Timer::Idle => self.life.idle_at(config),
            Timer::Departure => self.tx.departure_at(now, shared),
        }
    }

    /// Returns when [`Pdc::on_timer`] must be called next. Work that waits to be polled does not
    /// count.
    #[inline]
    pub(crate) fn next_deadline(&self, now: Time, shared: &Shared<D>) -> Time {
        let mut next = Time::NEVER;
        each_timer!(timer => {
            let when = self.deadline(timer, now, shared);
            if !timer.is_polled() || when > now {
                next = next.min(when);
            }
        });
        next
    }

    /// Handles the acknowledgement that is due for an accepted packet which carried no
    /// acknowledgement itself. Returns false where a packet waits to be sent, so that the caller
    /// must conclude the call in full.
    #[inline(always)]
    pub(crate) fn conclude_arrival(&mut self, now: Time, shared: &mut Shared<D>) -> bool {
        if self.tx.next_packet_size() > 0 || self.tx.flow().context().index().is_some() {
            return false;
        }
        shared.now = now;
        self.list_control(now, shared);
        if !self.rx.is_ack_requested() {
            let slot = self.numbers.id.slot_number();
            shared.schedule.schedule_by(slot, self.timers.get(Timer::Ack));
        }
        true
    }

    /// Returns the earliest deadline that a newly sent packet may have moved forward. All other
    /// deadlines of the context are scheduled already.
    #[inline(always)]
    pub(crate) fn deadline_after_send(&self, shared: &Shared<D>) -> Time {
        let congestion = self.tx.flow().next_timer(&shared.groups);
        let silence = self.timers.get(Timer::Retransmit).min(self.timers.get(Timer::Probe));
        // The time without progress is measured from the oldest packet.
        let progress = if self.tx.ring().len() < 2 {
            self.tx.progress_deadline(self.numbers.is_connected(), &shared.config)
        } else {
            Time::NEVER
        };
        silence.min(congestion).min(progress)
    }

    /// Handles all timers of the context that are due at `now`.
    pub(crate) fn on_timer(&mut self, now: Time, shared: &mut Shared<D>) -> Outcome {
        each_timer!(timer => {
            if self.deadline(timer, now, shared) <= now {
                let outcome = self.handle_timer(timer, now, shared);
                if outcome != Outcome::Alive {
                    return outcome;
                }
            }
        });
        self.step(now)
    }

    /// Handles the timer `timer` of the context, which is due.
    #[inline(always)]
    fn handle_timer(&mut self, timer: Timer, now: Time, shared: &mut Shared<D>) -> Outcome {
        let connected = self.numbers.is_connected();
        let (tx, timers) = (&mut self.tx, &mut self.timers);
        match timer {
            Timer::Ack => self.rx.request_ack(),
            Timer::Congestion => tx.on_congestion_timer(now, timers, shared),
            Timer::Progress if connected => return Outcome::Failed(PdcFailure::Silent),
            Timer::Progress => return Outcome::Failed(PdcFailure::Unreachable),
            Timer::Retransmit => {
                let expiry = LossEvent::new(tx, now, timers, shared).on_retransmit_timer(connected);
                let waited = tx.waiting_time(now);
                if expiry == Expiry::TryOtherPaths {
                    self.take_detour(shared);
                }
                if expiry != Expiry::None && waited >= REPORT_WAIT {
                    shared.events.push_back(Event::Waits { id: self.numbers.id, waited });
                }
            }
            Timer::Probe => {
                if LossEvent::new(tx, now, timers, shared).on_probe_timer(connected) {
                    self.take_detour(shared);
                }
            }
            Timer::Close
                if self.life.should_give_up(now, self.rx.has_received(), &shared.config) =>
            {
                return Outcome::Closed;
            }
            Timer::Orphan if tx.ring().is_empty() => return Outcome::Closed,
            Timer::Orphan => return Outcome::Failed(PdcFailure::Silent),
            // The peer does not handle the request to close the context.
            Timer::Idle if !self.life.is_initiator() && !shared.config.dialect.asks_close => {
                return Outcome::Closed;
            }
            Timer::Idle => self.life.drain(now, timers),
            // The caller polls for these.
            Timer::Clear | Timer::Close | Timer::Departure => {}
        }
        Outcome::Alive
    }

    /// Ignores the peer's silence during the last `absent`, because this process did not run then.
    pub(crate) fn exclude_absence(&mut self, now: Time, absent: Span) {
        self.tx.exclude_absence(now, absent);
        self.life.exclude_absence(now, absent);
    }

    // Statistics.

    /// Updates the record, among `records`, that counts this context's flow.
    pub(crate) fn sample(&self, records: &mut [FlowRecord], groups: &Groups) {
        let metrics = self.tx.flow().metrics(groups);
        let srtt = self.tx.rtt().srtt();
        records[self.record as usize].sample(&metrics, srtt, path_metrics(&self.tx));
    }

    // The end of the context.

    /// Returns all borrowed memory to the pools, and leaves shared congestion control, because the
    /// context ends.
    pub(crate) fn release_resources(&mut self, shared: &mut Shared<D>) {
        self.sample(shared.flows.list_mut(), &shared.groups);
        self.tx.abandon(self.numbers.id, shared);
        let now = shared.now;
        shared.receiver.on_close(now, self.rx.flow_mut());
        self.rx.return_holes(&mut shared.pools.holes);
        shared.pools.trim_pool();
        self.tx.on_event(now, cc::FlowEvent::Closed, &mut self.timers, shared);
    }

    /// Lets packets leave because the handshake with the peer is complete. The PSNs begin at
    /// `start` if that changed.
    pub(crate) fn release(&mut self, now: Time, start: Option<Psn>, shared: &mut Shared<D>) {
        self.life.release(now);
        self.tx.on_verified();
        let Some(start) = start else { return };
        self.numbers.start = start;
        self.tx.restart(start, shared);
        if self.rx.is_untouched() {
            self.rx = Rx::new(start, self.numbers.id);
            self.timers.stop(Timer::Ack);
        }
    }
}

/// Handles a rate packet of this context's flow that the peer has returned.
pub(crate) fn on_rates<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    packet: &cc::RatePacket,
    shared: &mut Shared<D>,
) {
    let (kind, extension) = (cc::FeedbackKind::Control, cc::FeedbackExtension::Rates(packet));
    let feedback = cc::Feedback { now, kind, extension, ..cc::Feedback::default() };
    pdc.tx.on_feedback(&feedback, &mut pdc.timers, shared);
}

/// Returns the value of an ACK's field MPR (maximum PSN range) that advertises the receive window.
fn mpr(config: &Config) -> u8 {
    // At most 31: the window has 12 bits.
    (recv_window(config) / MPR_UNIT) as u8
}

/// Returns the receive window in packets, rounded to a value that MPR can express.
pub(crate) fn recv_window(config: &Config) -> u16 {
    (config.recv_window_packets / MPR_UNIT).clamp(1, 31) * MPR_UNIT
}
