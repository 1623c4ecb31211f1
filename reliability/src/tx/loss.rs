//! How losses are found: NACKs, the retransmission timer, silence.

use super::prober::SentProbe;
use super::ring::Cause;
use super::{Slot, Tx};
use crate::base::{Psn, Span, Time};
use crate::cc::{self, PathSignal};
use crate::deadlines::{Deadlines, Timer};
use crate::shared::Shared;
use crate::wire::NackCode;

/// The flags of a NACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NackFlags {
    pub(crate) ce: bool,
    pub(crate) retx: bool,
}

impl<D: Copy> Tx<D> {
    /// A round trip without queues; before the first answer, what the network is said to take.
    #[inline]
    pub(super) fn unloaded(&self, shared: &Shared<D>) -> Span {
        self.rtt.unloaded(self.flow.metrics(&shared.groups).base_rtt)
    }

    /// How long the peer may stay silent before it is probed: three unloaded round trips (STrack section
    /// 3.3.2, uet-htsim `probe_first_trial_time`), two when nothing is left to be sent, for then it is the
    /// tail that is out (uet-htsim `_base_rtt + _target_Qdelay`), but one as they are now: a peer that is
    /// asked too early takes the path of its acknowledgements for broken. Each probe doubles it.
    #[inline]
    pub(super) fn probe_interval(&self, shared: &Shared<D>) -> Span {
        let config = &shared.config;
        let tail = self.ring.newest().is_some_and(|newest| newest.app_limited);
        let trips = if tail { 2 } else { 3 };
        let first = (self.unloaded(shared) * trips).max(self.rtt.mean()).max(config.probe_min);
        self.prober.interval(first, config.rto_max)
    }

    /// A packet in flight is to be sent again.
    #[inline]
    pub(super) fn enqueue(&mut self, at: usize, cause: Cause, shared: &mut Shared<D>) {
        self.flow.remove_in_flight(self.ring.slot(at).nominal(), &mut shared.groups);
        self.ring.enqueue(at, cause);
    }

    /// What is in flight in `first..end` and fits `which` is lost.
    pub(super) fn lose(
        &mut self,
        now: Time,
        (first, end): (Psn, Psn),
        cause: Cause,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
        which: impl Fn(&Slot<D>) -> bool,
    ) {
        let (mut bytes, mut packets, mut blamed) = (0u32, 0u16, None);
        let signal = match cause {
            // Overtaken by many: perhaps only a congested path.
            Cause::OutOfOrder => PathSignal::Lost,
            // Lost although a probe came through. Where switches trim, that is not congestion, so the
            // path may be broken.
            Cause::Probe if !shared.config.trims() => PathSignal::Lost,
            _ => PathSignal::Timeout,
        };
        let mut path = self.route.path();
        for at in self.ring.places(first, end) {
            let slot = *self.ring.slot(at);
            if !slot.is_in_flight() || !which(&slot) {
                continue;
            }
            self.enqueue(at, cause, shared);
            bytes += slot.nominal();
            packets += 1;
            path = slot.path;
            if blamed != Some(path) {
                blamed = Some(path);
                let freezes = self.route.on_loss(now, path, signal);
                shared.counters.path_freezes += u64::from(freezes);
            }
        }
        if packets > 0 {
            let kind = if cause == Cause::Timeout { cc::Kind::TimedOut } else { cc::Kind::Lost };
            let feedback =
                cc::Feedback { now, kind, path, bytes, packets, ..cc::Feedback::default() };
            self.on_feedback(&feedback, timers, shared);
        }
    }

    /// The peer answers: timeouts in a row are over.
    #[inline]
    pub(super) fn on_answer(&mut self, now: Time, timers: &mut Deadlines, shared: &Shared<D>) {
        if self.loss_timer.on_answer() {
            let timeout = self.loss_timer.timeout(&self.rtt, &shared.config);
            timers.set(Timer::Retransmit, now + timeout);
        }
    }

    /// The packet `psn` was refused. `false` when it is not in flight, or the NACK is about an earlier
    /// transmission of it.
    pub(crate) fn on_nack(
        &mut self,
        now: Time,
        psn: Psn,
        (code, flags): (NackCode, NackFlags),
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) -> bool {
        let Some(at) = self.ring.index(psn) else { return false };
        let slot = *self.ring.slot(at);
        if !slot.is_in_flight() || flags.retx != (slot.tries > 0) {
            return false;
        }
        let trimmed = matches!(code, NackCode::Trimmed | NackCode::TrimmedLastHop);
        if trimmed && !shared.config.loss.trim {
            // The peer lives. That the packet is gone is for others to find out.
            self.on_answer(now, timers, shared);
            return true;
        }
        let (cause, signal) = match code {
            NackCode::Trimmed => (Cause::Trimmed, PathSignal::Nack),
            _ if flags.ce => (cause_of(code), PathSignal::Ecn),
            _ => (cause_of(code), PathSignal::Good),
        };
        let not_ready = is_not_ready(code);
        if not_ready {
            self.rare_mut().pause.begin(now, slot.sent_at, &shared.config, &mut shared.rng);
        }
        self.enqueue(at, cause, shared);
        self.route.on_feedback(now, slot.path, signal);
        let feedback = cc::Feedback {
            now,
            kind: cc::Kind::Nacked { trimmed, last_hop: code == NackCode::TrimmedLastHop },
            path: slot.path,
            bytes: slot.nominal(),
            packets: 1,
            ecn: flags.ce,
            marked: u16::from(flags.ce),
            retransmitted: slot.tries > 0,
            ..cc::Feedback::default()
        };
        self.on_feedback(&feedback, timers, shared);
        // The peer lives, whatever it refuses.
        if not_ready {
            self.loss_timer.on_progress(now);
        }
        self.on_answer(now, timers, shared);
        true
    }

    /// [`Timer::Retransmit`] is set when the first packet departs and not moved when others do, so it is
    /// due early: then it is set to when the oldest transmission in flight will have waited long enough.
    ///
    /// Where probes are answered, a timeout means that the peer is silent, not that all is lost: only
    /// the oldest packet is sent again, and the answer tells about the others. A peer that was never
    /// heard of, or is never probed, has lost everything that is late.
    pub(crate) fn on_retransmit_timer(
        &mut self,
        now: Time,
        connected: bool,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        let timeout = self.loss_timer.timeout(&self.rtt, &shared.config);
        let in_flight = self.ring.iter().filter(|slot| slot.is_in_flight());
        let Some(oldest) = in_flight.map(|slot| slot.sent_at).min() else {
            timers.stop(Timer::Retransmit);
            if self.ring.queued() > 0 && self.loss_timer.is_backing_off() {
                // The one packet that may go was refused, or the engine has not sent it yet.
                self.loss_timer.allow_resend();
                timers.set(Timer::Retransmit, now + timeout);
            }
            return;
        };
        if oldest + timeout > now {
            timers.set(Timer::Retransmit, oldest + timeout);
            return;
        }
        shared.counters.timeouts += 1;
        let late = now - timeout;
        let end = if connected && shared.config.loss.probe {
            let first = self.ring.iter().position(Slot::is_in_flight);
            self.ring.psn(first.unwrap_or(0)).plus(1)
        } else {
            self.ring.next()
        };
        let range = (self.ring.base(), end);
        let which = |slot: &Slot<D>| slot.sent_at <= late || connected;
        self.lose(now, range, Cause::Timeout, timers, shared, which);
        if self.loss_timer.on_expiry(now, connected) {
            // Ask at once, on another path, what became of the others.
            self.prober.start_over();
            timers.set(Timer::Probe, now);
        }
        self.recovery.stop();
        let timeout = self.loss_timer.timeout(&self.rtt, &shared.config);
        timers.set(Timer::Retransmit, now + timeout);
    }

    /// The peer is silent. One that was never heard of cannot be asked, for only data introduces a sender:
    /// the oldest packet goes again in the place of a probe (compare RFC 8985 section 7). That is no
    /// sign of loss yet, so nobody is told of one.
    pub(crate) fn on_probe_timer(
        &mut self,
        now: Time,
        connected: bool,
        timers: &mut Deadlines,
        shared: &mut Shared<D>,
    ) {
        let loss = shared.config.loss;
        timers.stop(Timer::Probe);
        // Where the timer is no detector, probes must not give up before the context does.
        let given_up = loss.rto && self.prober.unanswered() >= shared.config.probe_max;
        if !loss.probe || self.flow.in_flight() == 0 || given_up {
            return;
        }
        self.prober.on_silence();
        if connected {
            self.prober.request();
        } else if self.ring.oldest().is_some_and(Slot::is_in_flight) {
            self.enqueue(0, Cause::Probe, shared);
        }
        timers.set(Timer::Probe, now + self.probe_interval(shared));
    }

    /// Asks what became of the other packets, unless a question is on its way.
    pub(super) fn request_probe(&mut self, now: Time, timers: &mut Deadlines, shared: &Shared<D>) {
        let trip = self.rtt.mean();
        let out = self.sent_probe().is_some_and(|probe| probe.is_out(now, trip));
        if !out && shared.config.loss.probe {
            self.prober.request();
            timers.set(Timer::Probe, now + self.probe_interval(shared));
        }
    }

    /// The probe to send, if one is due: its opaque number.
    #[inline]
    pub(crate) fn take_probe(&mut self, now: Time) -> Option<u16> {
        if !self.prober.take() || self.ring.is_empty() {
            return None;
        }
        Some(self.rare_mut().probe.send(now))
    }

    /// The newest probe, if one was ever sent.
    #[inline]
    pub(super) fn sent_probe(&self) -> Option<SentProbe> {
        self.rare.as_ref().map(|rare| rare.probe)
    }
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
