//! The sending half of a context: what is outstanding, what may be sent, and what was lost.

mod ack;
mod control;
mod loss;
mod rare;

use std::collections::VecDeque;

use crate::base::{Psn, Rng, Span, Time};
use crate::cc::{self, PathSelector, SenderCc};
use crate::config::{Config, NOMINAL_OVERHEAD};
use crate::context::{Context, Groups};
use crate::shared::Shared;
use crate::types::{Event, PdcId, TxPacket};

pub(crate) use ack::{AckIn, Verdict};
pub(crate) use loss::Marks;
use rare::Rare;

/// Why a packet is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Trimmed,
    Nacked,
    OutOfOrder,
    Probe,
    Timeout,
}

/// Where an outstanding packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// In the network, as far as one knows.
    InFlight,
    /// Waiting to be sent again.
    Queued(Cause),
    /// The peer has it; packets before it are missing.
    Acked,
}

/// One outstanding packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<D> {
    desc: D,
    /// When it was last sent.
    sent_at: Time,
    /// UDP payload length.
    bytes: u32,
    /// What the context had delivered when it was last sent; wraps.
    delivered: u32,
    /// The path it was last sent on.
    path: u16,
    /// Times it was sent again, saturating.
    tries: u8,
    fate: Fate,
    /// Nothing waited behind it, and there was room for more.
    app_limited: bool,
}

impl<D> Slot<D> {
    const fn nominal(&self) -> u32 {
        nominal(self.bytes)
    }
}

/// The path of a packet for which one of `paths` was chosen: congestion control may insist on another.
fn insisted(stamp: &cc::Stamp, chosen: u16, paths: u16) -> u16 {
    stamp.path.map_or(chosen, |path| path % paths)
}

/// Bytes the congestion control counts for a packet of `bytes`.
pub(crate) const fn nominal(bytes: u32) -> u32 {
    bytes.saturating_add(NOMINAL_OVERHEAD)
}

/// What is needed to send one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) psn: Psn,
    pub(crate) path: u16,
    /// Ask for a prompt acknowledgement.
    pub(crate) ask: bool,
    pub(crate) retx: bool,
    pub(crate) clear_psn_offset: i16,
    /// Credit wanted in all.
    pub(crate) demand: Option<u64>,
}

/// What became of a departure.
struct Left {
    path: u16,
    /// Credit wanted in all.
    demand: Option<u64>,
    /// After it not another packet fits.
    cramped: bool,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Tx<D> {
    /// The oldest outstanding PSN; `ring[0]`.
    base: Psn,
    /// The PSN of the next new packet.
    next: Psn,
    /// One past the newest PSN acknowledged.
    top: Psn,
    ring: VecDeque<Slot<D>>,
    /// Nominal bytes of the packets in flight; at most 4095 packets of 64 KiB.
    in_flight: u32,
    /// Nominal bytes acknowledged; wraps.
    delivered: u32,
    /// Packets waiting to be sent again.
    queued: u16,
    /// No packet before this one waits.
    cursor: Psn,
    /// The newest PSN the peer's MPR allows.
    limit: Psn,
    /// Everything before this PSN was sent at least one round trip ago.
    round: Psn,
    // Round-trip time and retransmission timer (RFC 6298 with the peer's service time taken out).
    /// In nanoseconds; zero before the first sample. A round trip of more than 4 s counts as 4 s.
    srtt_ns: u32,
    rttvar_ns: u32,
    backoff: u8,
    /// The one packet that may be sent after a timeout was not yet.
    lifeline: bool,
    /// When to look for packets in flight for too long; `NEVER` when none are.
    rto_at: Time,
    /// Since when the peer took nothing although something is outstanding.
    stalled_since: Time,
    // Loss detection.
    /// While `recovering`, SLEEK recovers up to this PSN.
    recovery: Psn,
    recovering: bool,
    /// SLEEK already dealt with what comes before.
    swept: Psn,
    probe_at: Time,
    probe_sent: Time,
    probe_opaque: u16,
    /// Probes unanswered in a row.
    probes: u8,
    probe_due: bool,
    /// What most contexts never need.
    rare: Option<Box<Rare>>,
    /// The peer's other receiver mode was reported.
    odd_peer: bool,
    // Trains.
    train_path: u16,
    train_packets: u16,
    train_bytes: u32,
    // Wake-up of the engine.
    /// Nominal bytes of the packet the engine could not send; zero for none.
    wanted: u32,
    ready_said: bool,
    /// It is in its group's list of flows that wait for room.
    waiting: bool,
    pub(crate) context: Context,
    paths: cc::Paths,
}

impl<D: Copy> Tx<D> {
    /// A half whose flow has `context`.
    pub(crate) fn new(
        start: Psn,
        now: Time,
        context: Context,
        config: &Config,
        rng: &mut Rng,
    ) -> Self {
        Self {
            base: start,
            next: start,
            top: start,
            ring: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            queued: 0,
            cursor: start,
            limit: start.plus(u32::from(config.max_window_packets)).minus(1),
            round: start,
            srtt_ns: 0,
            rttvar_ns: 0,
            backoff: 0,
            lifeline: false,
            rto_at: Time::NEVER,
            stalled_since: now,
            recovery: start,
            recovering: false,
            swept: start,
            probe_at: Time::NEVER,
            probe_sent: Time::NEVER,
            probe_opaque: 0,
            probes: 0,
            probe_due: false,
            rare: None,
            odd_peer: false,
            train_path: 0,
            train_packets: 0,
            train_bytes: 0,
            wanted: 0,
            ready_said: false,
            waiting: false,
            context,
            paths: cc::Paths::new(&config.paths, Rng::new(rng.next_u64())),
        }
    }

    /// Reads a little of everything that packets need.
    pub(crate) fn glance(&self) -> u64 {
        let oldest = self.ring.front().map_or(0, |slot| slot.sent_at.0);
        let own = match &self.context {
            Context::Own(governor) => governor.pace_at.0,
            Context::Shared(at) => u64::from(*at),
        };
        oldest ^ own ^ self.rto_at.0 ^ self.probe_at.0 ^ u64::from(self.base.0)
    }

    /// The oldest outstanding PSN.
    pub(crate) const fn base(&self) -> Psn {
        self.base
    }

    /// The PSN of the next new packet.
    pub(crate) const fn next(&self) -> Psn {
        self.next
    }

    /// Nothing is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.ring.len()
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) const fn srtt(&self) -> Option<Span> {
        if self.srtt_ns == 0 { None } else { Some(Span(self.srtt_ns as u64)) }
    }

    pub(crate) fn metrics(&self, groups: &Groups) -> cc::Metrics {
        self.context.get(groups).cc.metrics()
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn clear_at(&self) -> Time {
        self.rare.as_ref().map_or(Time::NEVER, |rare| rare.clear_at)
    }

    fn rnr_until(&self) -> Time {
        self.rare.as_ref().map_or(Time::ZERO, |rare| rare.rnr_until)
    }

    /// Whether the peer's receiver works in another mode.
    pub(crate) const fn is_odd(&self) -> bool {
        self.odd_peer
    }

    /// What congestion control allows now.
    fn budget(&self, now: Time, shared: &Shared<D>) -> cc::Budget {
        self.context.get(&shared.groups).cc.budget(now)
    }

    /// Nominal bytes in flight in the context that this flow is part of.
    pub(crate) fn context_in_flight(&self, shared: &Shared<D>) -> u64 {
        self.context.in_flight(self.in_flight, &shared.groups)
    }

    /// `bytes` take off.
    fn takes_off(&mut self, bytes: u32, shared: &mut Shared<D>) {
        self.in_flight += bytes;
        if let Some(group) = self.context.group(&mut shared.groups) {
            group.in_flight += u64::from(bytes);
        }
    }

    /// `bytes` are not in flight any more.
    fn lands(&mut self, bytes: u32, shared: &mut Shared<D>) {
        self.in_flight -= bytes;
        if let Some(group) = self.context.group(&mut shared.groups) {
            group.in_flight -= u64::from(bytes);
        }
    }

    /// Whether retransmissions wait.
    pub(crate) const fn must_retransmit(&self) -> bool {
        self.queued > 0
    }

    /// Whether a new packet of `nominal` bytes may go. What was refused goes first, so new packets
    /// wait with it until the receiver is ready.
    fn may_send(&self, now: Time, nominal: u32, shared: &Shared<D>) -> bool {
        self.queued == 0
            && self.ring.len() < usize::from(shared.config.max_window_packets)
            && !self.next.is_after(self.limit)
            && self.budget_allows(now, nominal, shared)
    }

    /// Whether a packet that was sent before may go again. While losses are being recovered it may
    /// exceed the window (uet-htsim main path `:1130`). After a timeout a single packet may, and no
    /// other before the peer answers: a silent peer gets one packet a timeout, not a window.
    fn may_resend(&self, now: Time, nominal: u32, shared: &Shared<D>) -> bool {
        if now < self.rnr_until() {
            return false;
        }
        if self.backoff > 0 {
            return self.lifeline;
        }
        if self.recovering {
            let credit = self.budget(now, shared).credit;
            return credit.is_none_or(|credit| credit >= u64::from(nominal));
        }
        self.budget_allows(now, nominal, shared)
    }

    /// Whether [`Tx::resend`] would find something.
    pub(crate) fn may_retransmit(&self, now: Time, shared: &Shared<D>) -> bool {
        self.queued > 0 && self.may_resend(now, self.wants(), shared)
    }

    /// Window, credit and pacing. One packet may always be in flight: a window smaller than it would
    /// otherwise stop the flow for good.
    fn budget_allows(&self, now: Time, nominal: u32, shared: &Shared<D>) -> bool {
        let governor = self.context.get(&shared.groups);
        let budget = governor.cc.budget(now);
        if let Some(rate) = budget.rate {
            let lead = rate.transmit_time(u64::from(budget.burst.min(shared.config.train_bytes)));
            if governor.pace_at > now + lead {
                return false;
            }
        }
        let in_flight = self.context_in_flight(shared);
        if in_flight == 0 {
            let credit = budget.credit.is_none_or(|credit| credit >= u64::from(nominal));
            return credit && now >= budget.not_before;
        }
        budget.allows(now, in_flight, nominal)
    }

    /// Whether the packet may go now; if not, remembers to say so when it may.
    pub(crate) fn admit(&mut self, now: Time, bytes: u32, shared: &Shared<D>) -> bool {
        self.ready_said = false;
        let nominal = nominal(bytes);
        if self.may_send(now, nominal, shared) {
            self.wanted = 0;
            return true;
        }
        self.wanted = nominal;
        if self.shut_out() && self.clear_at() == Time::NEVER {
            self.clear_by(now + self.rto(&shared.config), self.base.minus(1));
        }
        false
    }

    /// What a packet that left may have changed about [`Tx::timer`], unless it is the only one.
    pub(crate) fn timer_after_send(&self, shared: &Shared<D>) -> Option<Time> {
        if self.ring.len() < 2 {
            return None;
        }
        let cc = self.context.get(&shared.groups).cc.next_timer().unwrap_or(Time::NEVER);
        Some(self.rto_at.min(self.probe_at).min(cc))
    }

    /// Nothing is outstanding, and still the peer's window is closed: it waits for a Clear Command,
    /// or its ACK that opened the window got lost. Nobody but us can break the silence.
    fn shut_out(&self) -> bool {
        self.wanted > 0 && self.ring.is_empty() && self.next.is_after(self.limit)
    }

    /// Sends an admitted packet.
    pub(crate) fn send(
        &mut self,
        now: Time,
        packet: &TxPacket<D>,
        shared: &mut Shared<D>,
    ) -> Departure {
        if self.ring.is_empty() {
            if self.ring.capacity() == 0
                && let Some(ring) = shared.rings.pop()
            {
                self.ring = ring;
            }
            self.stalled_since = now;
            self.round = self.next;
            self.resume(now, shared);
        }
        if shared.config.credits() {
            self.rare().backlog = packet.backlog;
        }
        let psn = self.next;
        self.next = psn.plus(1);
        let path = self.choose_path(now, packet.bytes, None, shared);
        self.ring.push_back(Slot {
            desc: packet.desc,
            sent_at: now,
            bytes: packet.bytes,
            delivered: 0,
            path,
            tries: 0,
            fate: Fate::InFlight,
            app_limited: false,
        });
        let Left { path, demand, cramped } = self.depart(now, psn, packet.last, shared, path);
        // Not limited by its budget, then.
        if packet.last
            && !cramped
            && let Some(slot) = self.ring.back_mut()
        {
            slot.app_limited = true;
        }
        Departure {
            psn,
            path,
            ask: packet.last && packet.prompt || cramped,
            retx: false,
            clear_psn_offset: self.clear_with(psn),
            demand,
        }
    }

    /// The next packet to send again, if it may go.
    pub(crate) fn resend(&mut self, now: Time, shared: &mut Shared<D>) -> Option<(Departure, D)> {
        self.ready_said = false;
        if self.queued == 0 {
            return None;
        }
        let from = self.index(self.cursor).unwrap_or(0);
        let (at, cause) = (from..self.ring.len()).find_map(|at| match self.ring[at].fate {
            Fate::Queued(cause) => Some((at, cause)),
            _ => None,
        })?;
        // `at` is below the ring's length, at most 4095.
        let psn = self.base.plus(at as u32);
        self.cursor = psn;
        let Slot { bytes, path: old_path, desc, .. } = self.ring[at];
        if !self.may_resend(now, nominal(bytes), shared) {
            return None;
        }
        let counters = &mut shared.counters;
        let avoid = match cause {
            Cause::Trimmed => {
                counters.retx_trimmed += 1;
                None
            }
            Cause::Nacked => {
                counters.retx_nacked += 1;
                None
            }
            Cause::OutOfOrder => {
                counters.retx_out_of_order += 1;
                Some(old_path)
            }
            Cause::Probe => {
                counters.retx_probe += 1;
                Some(old_path)
            }
            Cause::Timeout => {
                counters.retx_timeout += 1;
                Some(old_path)
            }
        };
        self.queued -= 1;
        self.lifeline = false;
        let path = self.choose_path(now, bytes, avoid, shared);
        let slot = &mut self.ring[at];
        slot.sent_at = now;
        slot.fate = Fate::InFlight;
        slot.tries = slot.tries.saturating_add(1);
        slot.path = path;
        let Left { path, demand, .. } = self.depart(now, psn, false, shared, path);
        let clear_psn_offset = self.clear_with(psn);
        let departure = Departure { psn, path, ask: true, retx: true, clear_psn_offset, demand };
        Some((departure, desc))
    }

    /// Books a departure; the slot is already in flight on `path`. Congestion control may insist on
    /// another path, which is then the slot's.
    fn depart(
        &mut self,
        now: Time,
        psn: Psn,
        last: bool,
        shared: &mut Shared<D>,
        path: u16,
    ) -> Left {
        let Some(at) = self.index(psn) else { return Left { path, demand: None, cramped: false } };
        let backlog = self.backlog(shared);
        let delivered = self.context.delivered(self.delivered, &shared.groups);
        let slot = &mut self.ring[at];
        let nominal = slot.nominal();
        let sending = cc::Sending {
            bytes: nominal,
            retransmitted: slot.tries > 0,
            app_limited: last,
            backlog,
        };
        let governor = self.context.get_mut(&mut shared.groups);
        let stamp = governor.cc.on_send(now, &sending);
        let budget = governor.cc.budget(now);
        if let Some(rate) = budget.rate {
            governor.pace_at = governor.pace_at.max(now) + rate.transmit_time(u64::from(nominal));
        }
        let path = insisted(&stamp, path, shared.paths);
        slot.path = path;
        slot.delivered = delivered;
        shared.counters.tx_packets += 1;
        shared.counters.tx_bytes += u64::from(slot.bytes);
        self.takes_off(nominal, shared);
        if self.rto_at == Time::NEVER {
            self.rto_at = now + self.loss_timeout(&shared.config);
        }
        if self.probes == 0 || self.probe_at == Time::NEVER {
            self.probe_at = now + self.probe_interval(shared);
        }
        Left { path, demand: stamp.demand, cramped: self.cramped(&budget, shared) }
    }

    /// After this packet not another one fits: the acknowledgement is what the flow waits for (UE 1.0
    /// section 3.6.12: `cwnd - inflight < MTU`).
    fn cramped(&self, budget: &cc::Budget, shared: &Shared<D>) -> bool {
        let config = &shared.config;
        let room = budget.room(self.context_in_flight(shared));
        room < u64::from(nominal(config.mtu))
            || self.ring.len() >= usize::from(config.max_window_packets)
            || self.next.is_after(self.limit)
    }

    /// The path of the train, or of a new one; never `avoid` if there is another.
    fn choose_path(
        &mut self,
        now: Time,
        bytes: u32,
        avoid: Option<u16>,
        shared: &mut Shared<D>,
    ) -> u16 {
        let over = self.train_packets == 0 || self.train_bytes < bytes;
        if over || self.in_flight == 0 || avoid == Some(self.train_path) {
            let window = self.window_packets(now, shared);
            let mut path = self.paths.pick(now, window);
            if avoid == Some(path) {
                path = self.paths.pick(now, window);
            }
            if avoid == Some(path) && shared.paths > 1 {
                path = (path + 1) % shared.paths;
            }
            self.train_path = path;
            self.train_packets = shared.config.train_packets.max(1);
            self.train_bytes = shared.config.train_bytes.max(bytes);
            shared.counters.tx_trains += 1;
        }
        self.train_packets -= 1;
        self.train_bytes -= bytes;
        self.train_path
    }

    /// The congestion window in packets of full size, at least one.
    fn window_packets(&self, now: Time, shared: &Shared<D>) -> u32 {
        self.window_in(nominal(shared.config.mtu), now, shared)
    }

    /// The congestion window in packets of `size` nominal bytes, at least one.
    fn window_in(&self, size: u32, now: Time, shared: &Shared<D>) -> u32 {
        let most = u32::from(shared.config.max_window_packets);
        let window = self.budget(now, shared).window.unwrap_or(u64::MAX);
        let packets = window / u64::from(size.max(1));
        u32::try_from(packets).unwrap_or(u32::MAX).clamp(1, most)
    }

    /// `clear_psn_offset` of packet `psn`: everything before the oldest outstanding packet was
    /// answered, and the answers arrived.
    fn clear_with(&mut self, psn: Psn) -> i16 {
        let clear = self.base.minus(1);
        if let Some(rare) = &mut self.rare
            && rare.clear_at != Time::NEVER
            && !rare.clear_for.is_after(clear)
        {
            rare.clear_at = Time::NEVER;
        }
        i16::try_from(clear.distance(psn)).unwrap_or(0)
    }

    /// Whether a Clear Command is due, and up to which PSN.
    pub(crate) fn take_clear(&mut self, now: Time, config: &Config) -> Option<Psn> {
        if !self.clear_due(now) {
            return None;
        }
        let next = if self.shut_out() { now + self.rto(config) } else { Time::NEVER };
        let clear = self.base.minus(1);
        let rare = self.rare();
        rare.clear_at = next;
        rare.clear_told = Some(clear);
        Some(clear)
    }

    /// The peer asks for a Clear Command. If it was told all there is to tell, that may have got lost;
    /// but then the peer's question may also have crossed it, so there is no hurry.
    pub(crate) fn clear_asked(&mut self, now: Time, config: &Config) {
        let clear = self.base.minus(1);
        let told = self.rare().clear_told;
        let news = told.is_none_or(|told| clear.is_after(told));
        let when = if news { now } else { now + self.rto(config) };
        self.clear_by(when, clear);
    }

    /// A Clear Command for `psn` shall leave at `when`.
    fn clear_by(&mut self, when: Time, psn: Psn) {
        let rare = self.rare();
        if rare.clear_at == Time::NEVER || psn.is_after(rare.clear_for) {
            rare.clear_for = psn;
        }
        rare.clear_at = rare.clear_at.min(when);
    }

    pub(crate) fn clear_due(&self, now: Time) -> bool {
        self.clear_at() <= now
    }

    /// Where in the ring an outstanding packet is.
    fn index(&self, psn: Psn) -> Option<usize> {
        let at = usize::try_from(psn.distance(self.base)).ok()?;
        (at < self.ring.len()).then_some(at)
    }

    /// Nothing is outstanding any more: no timer runs, and the ring is somebody else's.
    fn rest(&mut self, now: Time, shared: &mut Shared<D>) {
        self.rto_at = Time::NEVER;
        self.probe_at = Time::NEVER;
        self.probe_due = false;
        self.probes = 0;
        self.backoff = 0;
        self.recovering = false;
        let all = self.pause(shared);
        if self.wanted == 0 {
            self.paths.on_idle(now);
            if all {
                self.event(now, cc::FlowEvent::Idle, shared);
            }
        }
        shared.recycle(core::mem::take(&mut self.ring));
    }

    /// Nothing of this flow is outstanding any more; whether that is so of its whole context.
    fn pause(&mut self, shared: &mut Shared<D>) -> bool {
        let Some(group) = self.context.group(&mut shared.groups) else { return true };
        group.active -= 1;
        group.active == 0 && group.waiting.is_empty()
    }

    /// Gives up on everything: one [`Event::Lost`] for each packet the peer may not have.
    pub(crate) fn abandon(&mut self, id: PdcId, shared: &mut Shared<D>) {
        if !self.ring.is_empty() {
            self.pause(shared);
        }
        self.lands(self.in_flight, shared);
        for slot in self.ring.drain(..) {
            if slot.fate != Fate::Acked {
                shared.events.push_back(Event::Lost { id, desc: slot.desc });
            }
        }
        self.queued = 0;
        shared.recycle(core::mem::take(&mut self.ring));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_may_insist_on_a_path() {
        let on = |path| insisted(&cc::Stamp { path, ..cc::Stamp::default() }, 3, 16);
        assert_eq!([on(None), on(Some(0)), on(Some(15)), on(Some(21))], [3, 0, 15, 5]);
    }
}
