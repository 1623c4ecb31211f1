//! How losses are found: NACKs, the out-of-order count, probes, the retransmission timer.

use super::{Cause, Fate, Slot, Tx, nominal};
use crate::base::{Psn, Span, Time};
use crate::cc::{self, PathSelector, PathSignal, SenderCc};
use crate::config::Config;
use crate::shared::Shared;
use crate::types::Failure;
use crate::wire::NackCode;

/// Longest back-off: 2^16 times the timeout, far beyond any `rto_max`.
const MAX_BACKOFF: u8 = 16;

/// Longest back-off while the peer was heard lately: four times the timeout. Half of the network may be
/// dead without anybody saying so, and then it takes some tries to find a way there and back.
const HEARD_BACKOFF: u8 = 2;

/// How long ago "lately" is: some twenty of those, after which the peer itself is in doubt.
const LATELY: Span = Span::millis(500);

/// How much longer than the timer the last resort waits.
const LAST_RESORT: u64 = 10;

impl<D: Copy> Tx<D> {
    /// RTO_TIMER = RTO_INIT_TIME * 2^retry, bounded (UE 1.0 section 3.5.12), and more tightly so while the
    /// peer was heard lately. Once a round-trip time
    /// is known, it and its variation take the place of RTO_INIT_TIME (RFC 6298), plus the time the
    /// peer may sit on an acknowledgement.
    pub(super) fn rto(&self, config: &Config) -> Span {
        let first = match self.srtt() {
            None => config.rto_init,
            Some(_) => self.longest_trip() + config.ack_delay,
        };
        let backed_off = first.max(config.rto_min) * (1 << self.backoff.min(MAX_BACKOFF));
        backed_off.min(config.rto_max)
    }

    /// What a round trip may take: its mean and four times its variation (RFC 6298).
    pub(super) const fn longest_trip(&self) -> Span {
        // 32-bit numbers.
        Span(self.srtt_ns as u64 + self.rttvar_ns as u64 * 4)
    }

    /// How long a packet may be in flight before the timer takes it for lost. Where the timer is not
    /// among the detectors it is the last resort, and takes ten times as long.
    pub(super) fn loss_timeout(&self, config: &Config) -> Span {
        let patience = if config.loss.rto { 1 } else { LAST_RESORT };
        (self.rto(config) * patience).min(config.rto_max)
    }

    /// A round trip without queues; before the first answer, what the network is said to take.
    pub(super) fn unloaded(&self, shared: &Shared<D>) -> Span {
        let now = Span(u64::from(self.srtt_ns));
        let known = self.metrics(&shared.groups).base_rtt.unwrap_or(now);
        if self.srtt_ns == 0 { known } else { known.min(now) }
    }

    /// How long the peer may stay silent before it is probed: three unloaded round trips (STrack section
    /// 3.3.2, uet-htsim `probe_first_trial_time`), two when nothing is left to be sent, for then it is the
    /// tail that is out (uet-htsim `_base_rtt + _target_Qdelay`), but one as they are now: a peer that is
    /// asked too early takes the path of its acknowledgements for broken. Each probe doubles it.
    pub(super) fn probe_interval(&self, shared: &Shared<D>) -> Span {
        let config = &shared.config;
        let tail = self.ring.back().is_some_and(|newest| newest.app_limited);
        let trips = if tail { 2 } else { 3 };
        let now = Span(u64::from(self.srtt_ns));
        let first = (self.unloaded(shared) * trips).max(now).max(config.probe_min);
        (first * (1 << self.probes.min(MAX_BACKOFF))).min(config.rto_max)
    }

    /// The packet `psn` was refused. `false` when it is not in flight, or the NACK is about an earlier
    /// transmission of it.
    pub(crate) fn on_nack(
        &mut self,
        now: Time,
        psn: Psn,
        code: NackCode,
        marks: Marks,
        shared: &mut Shared<D>,
    ) -> bool {
        let Some(at) = self.index(psn) else { return false };
        let slot = self.ring[at];
        if slot.fate != Fate::InFlight || marks.retx != (slot.tries > 0) {
            return false;
        }
        let trimmed = matches!(code, NackCode::Trimmed | NackCode::TrimmedLastHop);
        if trimmed && !shared.config.loss.trim {
            // The peer lives. That the packet is gone is for others to find out.
            self.heard(now, &shared.config);
            return true;
        }
        let (cause, signal) = match code {
            NackCode::Trimmed => (Cause::Trimmed, PathSignal::Nack),
            _ if marks.ce => (cause_of(code), PathSignal::Ecn),
            _ => (cause_of(code), PathSignal::Good),
        };
        let not_ready = is_not_ready(code);
        if not_ready {
            self.hold(now, slot.sent_at, shared);
        }
        self.queue(at, cause, shared);
        self.paths.on_feedback(now, slot.path, signal);
        let feedback = cc::Feedback {
            now,
            kind: cc::Kind::Nacked { trimmed, last_hop: code == NackCode::TrimmedLastHop },
            path: slot.path,
            bytes: slot.nominal(),
            packets: 1,
            ecn: marks.ce,
            marked: u16::from(marks.ce),
            retransmitted: slot.tries > 0,
            ..cc::Feedback::default()
        };
        self.tell(&feedback, shared);
        // The peer lives, whatever it refuses.
        if not_ready {
            self.stalled_since = now;
        }
        self.heard(now, &shared.config);
        true
    }

    /// The receiver is not ready: pause, twice as long each time, but once for all packets that were
    /// already under way. A quarter of it is random, so that senders do not return in step.
    fn hold(&mut self, now: Time, sent_at: Time, shared: &mut Shared<D>) {
        let rare = self.rare();
        if rare.rnr_since != Time::NEVER && sent_at <= rare.rnr_since {
            return;
        }
        let config = &shared.config;
        let pause =
            (config.rnr_min * (1 << rare.rnr_doublings.min(MAX_BACKOFF))).min(config.rnr_max);
        let jitter = u32::try_from(pause.0 / 4).unwrap_or(u32::MAX);
        rare.rnr_since = now;
        rare.rnr_until = now + pause + Span(u64::from(shared.rng.below(jitter)));
        rare.rnr_doublings = rare.rnr_doublings.saturating_add(1).min(MAX_BACKOFF);
    }

    /// Starts again at `start`, with the same packets (NEW_START_PSN). Only before anything was
    /// acknowledged.
    pub(crate) fn restart(&mut self, start: Psn, shared: &mut Shared<D>) {
        for at in 0..self.ring.len() {
            if self.ring[at].fate == Fate::InFlight {
                self.queue(at, Cause::Nacked, shared);
            }
            self.ring[at].tries = 0;
        }
        for psn in
            [&mut self.base, &mut self.top, &mut self.cursor, &mut self.round, &mut self.swept]
        {
            *psn = start;
        }
        // At most 4095 packets.
        self.next = start.plus(self.ring.len() as u32);
        self.limit = start.plus(u32::from(shared.config.max_window_packets)).minus(1);
    }

    /// A packet in flight is to be sent again.
    fn queue(&mut self, at: usize, cause: Cause, shared: &mut Shared<D>) {
        debug_assert_eq!(self.ring[at].fate, Fate::InFlight);
        self.lands(self.ring[at].nominal(), shared);
        self.ring[at].fate = Fate::Queued(cause);
        self.queued += 1;
        let psn = self.base.plus(at as u32); // an index below 4096
        if self.queued == 1 || psn.is_before(self.cursor) {
            self.cursor = psn;
        }
    }

    /// SLEEK (uet-htsim `UecSrc::runSleek`): with more packets out of order than spraying explains, the
    /// oldest window's worth of what is missing is lost. Only what a later packet overtook can be.
    pub(super) fn sleek(&mut self, now: Time, ooo: u16, shared: &mut Shared<D>) {
        if !shared.config.loss.out_of_order {
            return;
        }
        if !self.base.is_before(self.recovery) {
            self.recovering = false;
        }
        if !self.recovering {
            if u32::from(ooo) < self.reordering(now, shared) || self.queued > 0 {
                return;
            }
            self.recovering = true;
            self.recovery = self.next;
            self.swept = self.base;
        }
        let size = self.ring.front().map_or(1, Slot::nominal);
        let mut end = self.base.plus(self.window_in(size, now, shared));
        for bound in [self.recovery, self.top] {
            if bound.is_before(end) {
                end = bound;
            }
        }
        let from = self.swept;
        if end.is_after(from) {
            self.swept = end;
            self.lose(now, from, end, Cause::OutOfOrder, shared, |slot| slot.tries == 0);
        }
    }

    /// Packets out of order that spraying may explain: one and a half windows (SLEEK), a few packets at
    /// least, and, when there are paths to choose from, a whole train on another path besides.
    fn reordering(&self, now: Time, shared: &Shared<D>) -> u32 {
        let config = &shared.config;
        // Windows are bytes; what is missing says how long packets are now.
        let size = self.ring.front().map_or(nominal(config.mtu), Slot::nominal);
        let window = f64::from(self.window_in(size, now, shared));
        let most = self.metrics(&shared.groups).max_cwnd.unwrap_or(u64::MAX) / u64::from(size);
        let share = (window * f64::from(config.sleek_factor)).min(most as f64);
        let train = if shared.paths > 1 {
            u32::from(config.train_packets).min(config.train_bytes / config.mtu.max(1))
        } else {
            0
        };
        let least = u32::from(config.sleek_min_packets) + train;
        // A window beyond the PSN window can never be overtaken; a quarter of it is late enough.
        let cap = u32::from(config.max_window_packets) / 4;
        // The share is at most 1.5 times 4095.
        (share as u32).max(least).min(cap.max(least))
    }

    /// What is in flight in `first..end` and fits `which` is lost.
    pub(super) fn lose(
        &mut self,
        now: Time,
        first: Psn,
        end: Psn,
        cause: Cause,
        shared: &mut Shared<D>,
        which: impl Fn(&Slot<D>) -> bool,
    ) {
        let first = usize::try_from(first.distance(self.base)).unwrap_or(0);
        let end = usize::try_from(end.distance(self.base)).unwrap_or(0).min(self.ring.len());
        let (mut bytes, mut packets, mut blamed) = (0u32, 0u16, None);
        let signal = match cause {
            // Overtaken by many: perhaps only a congested path.
            Cause::OutOfOrder => PathSignal::Lost,
            // Lost although a probe came through. Where switches trim, that is not congestion, so the
            // path may be broken.
            Cause::Probe if !shared.config.trims() => PathSignal::Lost,
            _ => PathSignal::Timeout,
        };
        let mut path = self.train_path;
        for at in first..end {
            let slot = self.ring[at];
            if slot.fate != Fate::InFlight || !which(&slot) {
                continue;
            }
            self.queue(at, cause, shared);
            bytes += slot.nominal();
            packets += 1;
            path = slot.path;
            if blamed != Some(path) {
                blamed = Some(path);
                self.blame(now, path, signal, shared);
            }
        }
        if packets > 0 {
            let kind = if cause == Cause::Timeout { cc::Kind::TimedOut } else { cc::Kind::Lost };
            let feedback =
                cc::Feedback { now, kind, path, bytes, packets, ..cc::Feedback::default() };
            self.tell(&feedback, shared);
        }
    }

    fn blame(&mut self, now: Time, path: u16, signal: PathSignal, shared: &mut Shared<D>) {
        if path == self.train_path {
            // The rest of the train goes another way.
            self.train_packets = 0;
        }
        let before = self.paths.metrics().freezes;
        self.paths.on_feedback(now, path, signal);
        let after = self.paths.metrics().freezes;
        shared.counters.path_freezes += u64::from(after.saturating_sub(before));
    }

    /// Time passed. An error means that the context is beyond hope.
    pub(crate) fn on_timer(
        &mut self,
        now: Time,
        connected: bool,
        shared: &mut Shared<D>,
    ) -> Result<(), Failure> {
        let cc = &mut self.context.get_mut(&mut shared.groups).cc;
        if cc.next_timer().is_some_and(|when| when <= now) {
            cc.on_timer(now);
            self.act(now, shared);
        }
        if self.ring.is_empty() {
            return Ok(());
        }
        if self.hopeless_at(connected, &shared.config) <= now {
            return Err(if connected { Failure::Silent } else { Failure::Unreachable });
        }
        if self.rto_at <= now {
            self.on_rto(now, shared, connected);
        }
        if self.probe_at <= now {
            self.on_probe_timer(now, connected, shared);
        }
        Ok(())
    }

    fn hopeless_at(&self, connected: bool, config: &Config) -> Time {
        let deadline = if connected { config.progress_deadline } else { config.contact_deadline };
        self.stalled_since + deadline
    }

    /// The timer is set when the first packet departs and not moved when others do, so it fires early:
    /// then it is set to when the oldest transmission in flight will have waited long enough.
    ///
    /// Where probes are answered, a timeout means that the peer is silent, not that all is lost: only
    /// the oldest packet is sent again, and the answer tells about the others. A peer that was never
    /// heard of, or is never probed, has lost everything that is late.
    fn on_rto(&mut self, now: Time, shared: &mut Shared<D>, connected: bool) {
        let rto = self.loss_timeout(&shared.config);
        let flying = self.ring.iter().filter(|slot| slot.fate == Fate::InFlight);
        let Some(oldest) = flying.map(|slot| slot.sent_at).min() else {
            self.rto_at = Time::NEVER;
            if self.queued > 0 && self.backoff > 0 {
                // The lifeline was refused, or the engine has not sent it yet.
                self.lifeline = true;
                self.rto_at = now + rto;
            }
            return;
        };
        if oldest + rto > now {
            self.rto_at = oldest + rto;
            return;
        }
        shared.counters.timeouts += 1;
        let late = now - rto;
        let end = if connected && shared.config.loss.probe {
            let first = self.ring.iter().position(|slot| slot.fate == Fate::InFlight);
            // An index below 4096.
            self.base.plus(first.map_or(0, |at| at as u32) + 1)
        } else {
            self.next
        };
        let base = self.base;
        self.lose(now, base, end, Cause::Timeout, shared, |slot| slot.sent_at <= late || connected);
        let lately = connected && now.since(self.stalled_since) < LATELY;
        let most = if lately { HEARD_BACKOFF } else { MAX_BACKOFF };
        self.backoff = (self.backoff + 1).min(most);
        if lately {
            // Ask at once, on another path, what became of the others.
            self.probes = 0;
            self.probe_at = now;
        }
        self.lifeline = true;
        self.recovering = false;
        self.rto_at = now + self.loss_timeout(&shared.config);
    }

    /// The peer is silent. One that was never heard of cannot be asked, for only data introduces a sender:
    /// the oldest packet goes again in the place of a probe (compare RFC 8985 section 7). That is no
    /// sign of loss yet, so nobody is told of one.
    fn on_probe_timer(&mut self, now: Time, connected: bool, shared: &mut Shared<D>) {
        let loss = shared.config.loss;
        self.probe_at = Time::NEVER;
        // Where the timer is no detector, probes must not give up before the context does.
        let tired = loss.rto && self.probes >= shared.config.probe_max;
        if !loss.probe || self.in_flight == 0 || tired {
            return;
        }
        self.probes = self.probes.saturating_add(1);
        if connected {
            self.probe_due = true;
        } else if self.ring.front().is_some_and(|oldest| oldest.fate == Fate::InFlight) {
            self.queue(0, Cause::Probe, shared);
        }
        self.probe_at = now + self.probe_interval(shared);
    }

    /// Asks what became of the other packets, unless a question is on its way.
    pub(super) fn ask(&mut self, now: Time, shared: &Shared<D>) {
        let asked = self.probe_sent != Time::NEVER
            && now.since(self.probe_sent) < Span(u64::from(self.srtt_ns));
        if !asked && shared.config.loss.probe {
            self.probe_due = true;
            self.probe_at = now + self.probe_interval(shared);
        }
    }

    pub(crate) const fn probe_due(&self) -> bool {
        self.probe_due
    }

    /// The probe to send, if one is due: its opaque number.
    pub(crate) fn take_probe(&mut self, now: Time) -> Option<u16> {
        if !core::mem::replace(&mut self.probe_due, false) || self.ring.is_empty() {
            return None;
        }
        self.probe_opaque = self.probe_opaque.wrapping_add(1);
        self.probe_sent = now;
        Some(self.probe_opaque)
    }

    /// The next moment at which something happens here, not counting what only waits for the engine.
    pub(crate) fn timer(&self, now: Time, connected: bool, shared: &Shared<D>) -> Time {
        let clear_at = self.clear_at();
        let mut when = if clear_at > now { clear_at } else { Time::NEVER };
        if let Some(timer) = self.context.get(&shared.groups).cc.next_timer() {
            when = when.min(timer);
        }
        if self.ring.is_empty() && self.wanted == 0 {
            return when;
        }
        if !self.ring.is_empty() {
            when = when
                .min(self.rto_at)
                .min(self.probe_at)
                .min(self.hopeless_at(connected, &shared.config));
        }
        if (self.queued > 0 || self.wanted > 0) && !self.ready_said {
            let budget = self.budget(now, shared);
            for pause in [self.rnr_until(), self.pace_end(&budget, shared), budget.not_before] {
                if pause > now {
                    when = when.min(pause);
                }
            }
        }
        when
    }

    /// When the pacer lets the next packet go.
    fn pace_end(&self, budget: &cc::Budget, shared: &Shared<D>) -> Time {
        let Some(rate) = budget.rate else { return Time::ZERO };
        let lead = rate.transmit_time(u64::from(budget.burst.min(shared.config.train_bytes)));
        self.context.get(&shared.groups).pace_at - lead
    }
}

/// The flags of a NACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) ce: bool,
    pub(crate) retx: bool,
}

const fn cause_of(code: NackCode) -> Cause {
    match code {
        NackCode::Trimmed | NackCode::TrimmedLastHop => Cause::Trimmed,
        _ => Cause::Nacked,
    }
}

/// NACKs that mean "later": the target lacks something that comes back.
const fn is_not_ready(code: NackCode) -> bool {
    matches!(
        code,
        NackCode::NoPdcAvail
            | NackCode::NoCccAvail
            | NackCode::NoBitmap
            | NackCode::NoPktBuffer
            | NackCode::NoGtdDelAvail
            | NackCode::NoSesMsgAvail
            | NackCode::NoResource
            | NackCode::PsnOorWindow
    )
}
