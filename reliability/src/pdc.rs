//! One context at one end: a coordinator over its two halves, its life, its timers and the path of its
//! control packets.

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
use crate::tx::{Expiry, LossEvent, Tx, TxControl, path_metrics};
use crate::types::{
    ControlOut, ControlPacket, Event, Label, NewPacket, PdcFailure, PdcId, PeerKey, TxGrant,
};
use crate::wire::{Control, ControlKind};
use control_path::ControlPath;
use detour::turn_off;
pub(crate) use lifecycle::{Lifecycle, Outcome, Phase};
use numbers::Numbers;
pub(crate) use receive::Pending;
pub(crate) use runs::{accept_run, goes_on_at, send_end, send_run};

/// A packet that had no answer for so long is worth a word with each timeout ([`Event::Waits`]).
const WORRY: Span = Span::secs(1);

/// One context.
#[derive(Debug)]
pub(crate) struct Pdc<D> {
    numbers: Numbers,
    /// Its place in [`Shared::flows`].
    record: u32,
    control_path: ControlPath,
    life: Lifecycle,
    timers: Deadlines,
    tx: Tx<D>,
    rx: Rx,
}

impl<D: Copy> Pdc<D> {
    /// A context with the number `local`, and the peer's number `remote`, zero for an initiator. Without a
    /// start PSN it waits to be introduced.
    pub(crate) fn new(
        now: Time,
        id: PdcId,
        (peer, label): (PeerKey, Label),
        (local, remote): (u16, u16),
        start: Option<Psn>,
        shared: &mut Shared<D>,
    ) -> Self {
        let held = start.is_none();
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
            life: Lifecycle::new(now, remote == 0, held),
            timers,
            tx,
            rx: Rx::new(start, id),
        }
    }

    /// Who it is.
    #[inline]
    pub(crate) const fn numbers(&self) -> &Numbers {
        &self.numbers
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

    /// Starts closing, if it has not.
    pub(crate) fn drain(&mut self, now: Time) -> Outcome {
        self.life.drain(now, &mut self.timers);
        self.step(now)
    }

    pub(crate) fn set_busy(&mut self, now: Time, busy: bool) -> Outcome {
        self.life.set_busy(now, busy);
        self.step(now)
    }

    /// Goes on to the Close Command when everything is acknowledged.
    #[inline]
    fn step(&mut self, now: Time) -> Outcome {
        let (drained, connected) = (self.tx.ring().is_empty(), self.numbers.is_connected());
        self.life.step(now, drained, connected, &mut self.timers)
    }

    /// Whether an initiator should open another context instead, because its target may have forgotten
    /// this one.
    #[inline]
    pub(crate) fn is_stale(&self, now: Time, config: &Config) -> bool {
        self.life.is_stale(now, config) && self.numbers.is_connected() && self.tx.ring().is_empty()
    }

    /// Sends a packet for the first time, if that may be now. If not, and `true` with it, something must
    /// be sent again first.
    // As `Pdcs::next_packet`, and so is what it calls of the sending half.
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
            tx.line_up(self.numbers.id, shared);
            let behind = packet.backlog + u64::from(packet.bytes);
            tx.on_blocked(now, Some(behind), timers, shared);
            // Told what waits, congestion control may let it go; not before the packet that asks for its rate.
            let asks = !shared.config.rates() || shared.asks_for(self.numbers.id);
            if asks || !tx.admit(now, packet.bytes, timers, shared) {
                return Err(first);
            }
        }
        let departure = tx.send(now, packet, timers, shared);
        self.life.on_use(now);
        shared.flows.at(self.record).on_sent(packet.bytes, departure.path);
        Ok(self.numbers.grant(&departure, self.control_path.detour()))
    }

    /// Returns the receiving half for changes.
    pub(crate) const fn rx_mut(&mut self) -> &mut Rx {
        &mut self.rx
    }

    /// Returns the receiving half.
    pub(crate) const fn rx(&self) -> &Rx {
        &self.rx
    }

    /// Sends a packet again, if one waits and may go now.
    #[inline]
    pub(crate) fn resend(&mut self, now: Time, shared: &mut Shared<D>) -> Option<(TxGrant, D)> {
        let who = (self.numbers.id, self.numbers.is_connected());
        let (departure, before, desc) = self.tx.resend(now, who, &mut self.timers, shared)?;
        let record = shared.flows.at(self.record);
        record.on_sent(departure.bytes, departure.path);
        record.on_sent_again(before);
        Some((self.numbers.grant(&departure, self.control_path.detour()), desc))
    }

    /// The engine may not send again what waits: where credit is missing, the congestion control learns it.
    #[inline]
    pub(crate) fn on_blocked(&mut self, now: Time, shared: &mut Shared<D>) {
        self.tx.on_blocked(now, None, &mut self.timers, shared);
    }

    // Packets without data.

    /// Puts it on the list of contexts that have a packet without data to send, if it has.
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

    /// The path of its control packets, and whether some wait.
    #[inline]
    pub(crate) const fn control_path(&self) -> &ControlPath {
        &self.control_path
    }

    /// The next packet without data to send; without one it leaves the list.
    #[inline]
    pub(crate) fn next_control(&mut self, now: Time, shared: &mut Shared<D>) -> Option<ControlOut> {
        let packet = self.poll_control(now, shared);
        self.control_path.set_listed(packet.is_some());
        Some(self.control_path.out(self.numbers.peer, packet?))
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
                self.turn(shared);
                self.tx.probe_went_by(self.control_path.path());
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

    /// The Close Command or Close Request, when it is time to send it (again). The request does not
    /// take a PSN: it may be repeated, and nothing waits for it in order.
    fn next_close(&mut self, now: Time, shared: &mut Shared<D>) -> Option<Control> {
        if !self.timers.is_due(Timer::Close, now) {
            return None;
        }
        let kind = if self.life.phase() == Phase::Closing {
            ControlKind::CloseCommand
        } else {
            ControlKind::CloseRequest
        };
        // Before a control packet is first repeated.
        let config = &shared.config;
        let measured = self.tx.rtt().srtt().map_or(config.rto_init, |srtt| srtt * 4);
        let patience: Span = measured.max(config.rto_min).min(config.rto_max);
        let retx = self.life.ask(now, patience, config.rto_max, &mut self.timers);
        if retx {
            self.turn(shared);
        }
        let next = self.tx.ring().next();
        Some(Control { retx, ack_request: true, ..self.numbers.control(kind, next, 0) })
    }

    /// The answer to a question goes on several paths if earlier ones were lost.
    #[inline]
    fn send_copies(&mut self, packet: ControlPacket, shared: &mut Shared<D>) {
        for _ in 0..self.control_path.copies() {
            shared.control.send(self.control_path.out(self.numbers.peer, packet));
            self.turn(shared);
        }
    }

    /// Control packets seem to get lost: they take another path. As [`ControlPath::turn`].
    fn turn(&mut self, shared: &mut Shared<D>) -> bool {
        self.control_path.turn(self.rx.window().base(), || shared.any_path())
    }

    // Timers.

    /// When a timer is due: what was set, or what follows from the parts.
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
            Timer::Orphan => self.life.orphaned_at(config),
            Timer::Idle if !self.tx.ring().is_empty() => Time::NEVER,
            // Anything received was not yet acknowledged. A response that was not yet cleared does not
            // count: whoever does not clear it has forgotten it, or has nothing to send until it closes.
            Timer::Idle if self.timers.is_running(Timer::Ack) => Time::NEVER,
            Timer::Idle => self.life.idle_at(config),
            Timer::Departure => self.tx.departure_at(now, shared),
        }
    }

    /// When [`Pdc::on_timer`] wants to be called, not counting what waits to be polled.
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

    /// After a packet was taken that says nothing of what we sent: sees to the acknowledgement that is owed for it. False
    /// where something waits to be sent, and all is to be looked after as ever.
    #[inline(always)]
    pub(crate) fn conclude_arrival(&mut self, now: Time, shared: &mut Shared<D>) -> bool {
        if self.tx.wants() > 0 || self.tx.flow().context().index().is_some() {
            return false;
        }
        shared.now = now;
        self.list_control(now, shared);
        if !self.rx.is_ack_requested() {
            let slot = self.numbers.id.slot_number();
            shared.schedule.at_latest(slot, self.timers.get(Timer::Ack));
        }
        true
    }

    /// What a new packet that left may have brought nearer of [`Pdc::next_deadline`]: whatever else the context
    /// waits for is scheduled already.
    #[inline(always)]
    pub(crate) fn deadline_after_send(&self, shared: &Shared<D>) -> Time {
        let congestion = self.tx.flow().next_timer(&shared.groups);
        let silence = self.timers.get(Timer::Retransmit).min(self.timers.get(Timer::Probe));
        // The first packet is the one by which the peer's patience is measured.
        let progress = if self.tx.ring().len() < 2 {
            self.tx.progress_deadline(self.numbers.is_connected(), &shared.config)
        } else {
            Time::NEVER
        };
        silence.min(congestion).min(progress)
    }

    /// Time passed.
    pub(crate) fn on_timer(&mut self, now: Time, shared: &mut Shared<D>) -> Outcome {
        each_timer!(timer => {
            if self.deadline(timer, now, shared) <= now {
                let outcome = self.fire(timer, now, shared);
                if outcome != Outcome::Alive {
                    return outcome;
                }
            }
        });
        self.step(now)
    }

    /// What happens when a timer is due.
    #[inline(always)]
    fn fire(&mut self, timer: Timer, now: Time, shared: &mut Shared<D>) -> Outcome {
        let connected = self.numbers.is_connected();
        let (tx, timers) = (&mut self.tx, &mut self.timers);
        match timer {
            Timer::Ack => self.rx.request_ack(),
            Timer::Congestion => tx.on_congestion_timer(now, timers, shared),
            Timer::Progress if connected => return Outcome::Failed(PdcFailure::Silent),
            Timer::Progress => return Outcome::Failed(PdcFailure::Unreachable),
            Timer::Retransmit => {
                let expiry = LossEvent::new(tx, now, timers, shared).on_retransmit_timer(connected);
                let waited = tx.waited(now);
                if expiry == Expiry::InVain {
                    turn_off(self, shared);
                }
                if expiry != Expiry::None && waited >= WORRY {
                    shared.events.push_back(Event::Waits { id: self.numbers.id, waited });
                }
            }
            Timer::Probe => {
                if LossEvent::new(tx, now, timers, shared).on_probe_timer(connected) {
                    turn_off(self, shared);
                }
            }
            Timer::Close if self.life.gives_up(now, self.rx.has_received(), &shared.config) => {
                return Outcome::Closed;
            }
            Timer::Orphan if tx.ring().is_empty() => return Outcome::Closed,
            Timer::Orphan => return Outcome::Failed(PdcFailure::Silent),
            Timer::Idle => self.life.drain(now, timers),
            // Polled.
            Timer::Clear | Timer::Close | Timer::Departure => {}
        }
        Outcome::Alive
    }

    /// Nobody was here to listen for `absent`, until now: the peer's silence in that time does not count.
    pub(crate) fn excuse(&mut self, now: Time, absent: Span) {
        self.tx.excuse(now, absent);
        self.life.excuse(now, absent);
    }

    // Statistics.

    /// Brings the record of its peer up to date, which is one of these.
    pub(crate) fn sample(&self, records: &mut [FlowRecord], groups: &Groups) {
        let metrics = self.tx.flow().metrics(groups);
        let srtt = self.tx.rtt().srtt();
        records[self.record as usize].sample(&metrics, srtt, path_metrics(&self.tx));
    }

    // The end.

    /// Gives back what it borrowed.
    pub(crate) fn dismantle(&mut self, shared: &mut Shared<D>) {
        self.sample(shared.flows.list_mut(), &shared.groups);
        self.tx.abandon(self.numbers.id, shared);
        let now = shared.now;
        shared.receiver.on_close(now, self.rx.flow_mut());
        self.rx.give_back(&mut shared.pools.holes);
        shared.pools.trim();
        self.tx.on_event(now, cc::FlowEvent::Closed, &mut self.timers, shared);
    }

    /// The peer knows us now: packets go, from `start` on where that is another one than before.
    pub(crate) fn release(&mut self, now: Time, start: Option<Psn>, shared: &mut Shared<D>) {
        self.life.release(now);
        self.tx.on_introduced();
        let Some(start) = start else { return };
        self.numbers.start = start;
        self.tx.restart(start, shared);
        if self.rx.is_untouched() {
            self.rx = Rx::new(start, self.numbers.id);
            self.timers.stop(Timer::Ack);
        }
    }
}

/// The rate packet of what a context sends is back.
pub(crate) fn on_rates<D: Copy>(
    pdc: &mut Pdc<D>,
    now: Time,
    packet: &cc::RatePacket,
    shared: &mut Shared<D>,
) {
    let (kind, grant) = (cc::FeedbackKind::Control, Some(cc::Grant::Rates(packet)));
    let feedback = cc::Feedback { now, kind, grant, ..cc::Feedback::default() };
    pdc.tx.on_feedback(&feedback, &mut pdc.timers, shared);
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
