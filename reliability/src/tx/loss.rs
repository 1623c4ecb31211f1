//! Detection of losses by NACKs, the retransmission timer and silence.

use super::prober::FIRST_PROBES;
use super::ring::RetransmitCause;
use super::{Slot, Tx};
use crate::base::{Psn, Span, Time};
use crate::cc::{self, PathSignal};
use crate::deadlines::{Deadlines, Timer};
use crate::shared::Shared;
use crate::wire::NackCode;

/// The flags CE and RETX of a NACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NackFlags {
    pub(crate) ce: bool,
    pub(crate) retx: bool,
}

impl<D: Copy> Tx<D> {
    /// Returns how long the peer may be silent before it is probed. This is three unloaded round
    /// trips (STrack section 3.3.2, uet-htsim `probe_first_trial_time`), or two when nothing is
    /// left to send, because then the tail is outstanding (uet-htsim `_base_rtt + _target_Qdelay`).
    /// It is at least one current round trip plus the time for which the peer may delay an
    /// acknowledgement that was not requested: a peer that is probed too early would conclude that
    /// its acknowledgements are lost. Each probe doubles the interval.
    #[inline]
    pub(super) fn probe_interval(&self, shared: &Shared<D>) -> Span {
        let config = &shared.config;
        let tail = self.ring.newest().is_some_and(|newest| newest.app_limited);
        let trips = if tail { 2 } else { 3 };
        let unloaded = self.rtt.unloaded_rtt(self.flow.base_rtt(&shared.groups));
        let hold =
            if self.prober.allows_delayed_ack() { config.max_ack_delay() } else { Span::ZERO };
        let answered = self.rtt.mean() + hold;
        let first = (unloaded * trips).max(answered).max(config.probe_min);
        self.prober.interval(first, config.rto_max)
    }

    /// Takes the packet at place `at` of the ring out of flight and queues it for retransmission.
    #[inline]
    pub(super) fn enqueue(&mut self, at: usize, cause: RetransmitCause, shared: &mut Shared<D>) {
        self.flow.remove_in_flight(self.ring.slot(at).nominal(), &mut shared.groups);
        self.ring.enqueue(at, cause);
    }
}

/// The state while a possible sign of loss is handled: a NACK, silence, or a gap in an ACK.
pub(crate) struct LossEvent<'a, D> {
    tx: &'a mut Tx<D>,
    now: Time,
    timers: &'a mut Deadlines,
    shared: &'a mut Shared<D>,
}

impl<'a, D: Copy> LossEvent<'a, D> {
    /// Creates the event at `now` for the sending half `tx` with its `timers`.
    #[inline]
    pub(crate) fn new(
        tx: &'a mut Tx<D>,
        now: Time,
        timers: &'a mut Deadlines,
        shared: &'a mut Shared<D>,
    ) -> Self {
        Self { tx, now, timers, shared }
    }

    /// Declares the packets in flight in `first..end` that match `which` lost: queues them for
    /// retransmission and informs path selection and congestion control.
    pub(super) fn mark_lost(
        &mut self,
        (first, end): (Psn, Psn),
        cause: RetransmitCause,
        which: impl Fn(Psn, &Slot<D>) -> bool,
    ) {
        let (mut bytes, mut packets, mut blamed) = (0u32, 0u16, None);
        let signal = match cause {
            // Packets of other paths overtook the packet; its path may only be congested.
            RetransmitCause::OutOfOrder => PathSignal::Lost,
            // Packets on the same path overtook the packet, so the path works: a queue there was
            // full, or a wire corrupted the packet.
            RetransmitCause::Overtaken => PathSignal::Nack,
            // The packet was lost although a probe arrived. Where switches trim, that is not
            // congestion, so the path may be broken.
            RetransmitCause::Probe if !self.shared.config.uses_trimming() => PathSignal::Lost,
            _ => PathSignal::Timeout,
        };
        let mut path = self.tx.route.path();
        for at in self.tx.ring.places(first, end) {
            let slot = *self.tx.ring.slot(at);
            if !slot.is_in_flight() || !which(self.tx.ring.psn(at), &slot) {
                continue;
            }
            self.tx.enqueue(at, cause, self.shared);
            bytes += slot.nominal();
            packets += 1;
            path = slot.path;
            if blamed != Some(path) {
                blamed = Some(path);
                let freezes = self.tx.route.on_loss(self.now, path, signal);
                self.shared.counters.path_freezes += u64::from(freezes);
            }
        }
        if packets > 0 {
            let kind = if cause == RetransmitCause::Timeout {
                cc::FeedbackKind::TimedOut
            } else {
                cc::FeedbackKind::Lost
            };
            let feedback = cc::Feedback {
                now: self.now,
                kind,
                path,
                bytes,
                packets,
                ..cc::Feedback::default()
            };
            self.tx.on_feedback(&feedback, self.timers, self.shared);
        }
    }

    /// Ends the exponential backoff of the retransmission timeout, because the peer answers.
    #[inline]
    fn on_answer(&mut self) {
        let config = &self.shared.config;
        self.tx.loss_timer.on_answer(self.now, &self.tx.rtt, self.timers, config);
    }

    /// Queues the newest `packets` that were sent once for retransmission, because switches dropped
    /// these speculative packets as expected.
    pub(super) fn rewind(&mut self, packets: u32) {
        let end = self.tx.ring.next();
        for at in self.tx.ring.places(end.minus(packets), end) {
            let slot = self.tx.ring.slot(at);
            if slot.is_in_flight() && slot.tries == 0 {
                self.tx.enqueue(at, RetransmitCause::Speculative, self.shared);
            }
        }
    }

    /// Handles a NACK of the packet `psn`. Returns `false` when the packet is not in flight, or the
    /// NACK is about an earlier transmission of it.
    pub(crate) fn on_nack(&mut self, psn: Psn, (code, flags): (NackCode, NackFlags)) -> bool {
        let Some(at) = self.tx.ring.index(psn) else { return false };
        let slot = *self.tx.ring.slot(at);
        if !slot.is_in_flight() || flags.retx != (slot.tries > 0) {
            return false;
        }
        let trimmed = matches!(code, NackCode::Trimmed | NackCode::TrimmedLastHop);
        if trimmed && !self.shared.config.loss.trim {
            // The peer is alive. Another detector has to find that the packet is lost.
            self.on_answer();
            return true;
        }
        let (cause, signal) = match code {
            NackCode::Trimmed => (RetransmitCause::Trimmed, PathSignal::Nack),
            _ if flags.ce => (cause_of(code), PathSignal::Ecn),
            _ => (cause_of(code), PathSignal::Good),
        };
        let not_ready = is_not_ready(code);
        // A peer that does not know this end yet will know it after the handshake.
        if not_ready || code == NackCode::NewStartPsn {
            self.tx.rare_mut().pause.begin(
                self.now,
                slot.sent_at,
                &self.shared.config,
                &mut self.shared.rng,
            );
        }
        self.tx.enqueue(at, cause, self.shared);
        self.tx.route.on_feedback(self.now, slot.path, signal);
        let feedback = cc::Feedback {
            now: self.now,
            kind: cc::FeedbackKind::Nacked { trimmed, last_hop: code == NackCode::TrimmedLastHop },
            path: slot.path,
            bytes: slot.nominal(),
            packets: 1,
            ecn: flags.ce,
            marked: u16::from(flags.ce),
            retransmitted: slot.tries > 0,
            ..cc::Feedback::default()
        };
        self.tx.on_feedback(&feedback, self.timers, self.shared);
        // The NACK shows that the peer is alive.
        if not_ready {
            self.tx.loss_timer.on_progress(self.now);
        }
        // The time without progress does not pass while the peer reports that it is not ready for
        // the oldest packet. That packet is never ahead of the window of a peer that has all
        // earlier ones, so such a NACK does not count.
        if not_ready && at == 0 && code != NackCode::PsnOorWindow {
            self.tx.loss_timer.begin_wait(self.now);
        }
        self.on_answer();
        true
    }

    /// Handles [`Timer::Retransmit`]. The timer is set when the first packet departs and not moved
    /// when others do, so it may be early. Then it is set to the time at which the oldest
    /// transmission in flight is late.
    ///
    /// With probes, a timeout means that the peer is silent, not that everything is lost. Only the
    /// oldest packet is retransmitted, and the answer shows the fate of the others. For a peer that
    /// has never answered or is never probed, every late packet is taken for lost.
    pub(crate) fn on_retransmit_timer(&mut self, connected: bool) -> Expiry {
        let timeout = self.tx.loss_timer.timeout(&self.tx.rtt, &self.shared.config);
        let in_flight = self.tx.ring.iter().filter(|slot| slot.is_in_flight());
        let config = &self.shared.config;
        let asks = connected && config.loss.probe;
        let due = |slot: &Slot<D>| (slot.sent_at + timeout).max(slot.loss_allowed_at(config));
        let Some(due) = in_flight.map(due).min() else {
            self.timers.stop(Timer::Retransmit);
            if self.tx.ring.queued() > 0 && self.tx.loss_timer.is_backing_off() {
                // The one packet that may be retransmitted was refused, or the engine has not sent
                // it yet.
                self.tx.loss_timer.allow_resend();
                self.timers.set(Timer::Retransmit, self.now + timeout);
            }
            return Expiry::None;
        };
        if due > self.now {
            self.timers.set(Timer::Retransmit, due);
            return Expiry::None;
        }
        if asks && self.tx.loss_timer.only_probes(self.now) {
            self.probe_again();
            return Expiry::None;
        }
        self.shared.counters.timeouts += 1;
        let late = self.now - timeout;
        let range = if asks {
            let (now, config) = (self.now, &self.shared.config);
            let tired = |slot: &Slot<D>| slot.loss_allowed_at(config) > now;
            let first = self.tx.ring.iter().position(|slot| slot.is_in_flight() && !tired(slot));
            let first = self.tx.ring.psn(first.unwrap_or(0));
            (first, first.plus(1))
        } else {
            (self.tx.ring.base(), self.tx.ring.next())
        };
        let which = |_, slot: &Slot<D>| slot.sent_at <= late || connected;
        self.mark_lost(range, RetransmitCause::Timeout, which);
        if self.tx.loss_timer.on_expiry(self.now, connected) {
            // Probe at once, on another path, to learn the fate of the others.
            self.tx.prober.reset_interval();
            self.timers.set(Timer::Probe, self.now);
        } else if connected && self.tx.ring.is_stuck() {
            // Only a packet that may be too long for its path is sent any more. The
            // answer to a probe, which is short, shows that the peer is present.
            self.tx.prober.request();
        }
        self.tx.recovery.stop();
        let timeout = self.tx.loss_timer.timeout(&self.tx.rtt, &self.shared.config);
        self.timers.set(Timer::Retransmit, self.now + timeout);
        // Before it takes a detour, the sender tries all paths by probes where it can.
        let paths_exhausted = !asks && self.tx.loss_timer.exhausted_timeouts();
        if paths_exhausted { Expiry::TryOtherPaths } else { Expiry::Timeout }
    }

    /// Probes the peer again instead of retransmitting: it has been silent for as long as the timer
    /// waits, but not longer than a process that waits for a processor. The answer to the probe
    /// shows the losses, on whichever path it arrives.
    fn probe_again(&mut self) {
        self.tx.loss_timer.on_expiry(self.now, true);
        self.tx.prober.reset_interval();
        self.timers.set(Timer::Probe, self.now);
        let timeout = self.tx.loss_timer.timeout(&self.tx.rtt, &self.shared.config);
        self.timers.set(Timer::Retransmit, self.now + timeout);
    }

    /// Handles [`Timer::Probe`]: probes the silent peer. A peer that has never answered cannot be
    /// probed, because only data open a context, so the oldest packet is retransmitted in place of
    /// a probe (compare RFC 8985 section 7). That is no sign of loss yet, so congestion control is
    /// not informed. Returns whether all paths were tried without an answer.
    ///
    /// Before its first answer a peer is probed more often, at intervals of at most the first
    /// retransmission timeout: nothing is known yet about the paths in either direction, and the
    /// backoff of that timeout is for a peer that is gone.
    pub(crate) fn on_probe_timer(&mut self, connected: bool) -> bool {
        let config = &self.shared.config;
        let (loss, longest) = (config.loss, config.rto_init);
        self.timers.stop(Timer::Probe);
        // Where the timer is not a detector, probes must go on for as long as the context lives.
        let most = if connected { config.probe_max } else { config.probe_max.max(FIRST_PROBES) };
        let given_up = loss.rto && self.tx.prober.unanswered() >= most;
        if !loss.probe || given_up {
            return false;
        }
        if self.tx.flow.in_flight() == 0 {
            if !connected {
                // The oldest packet is about to be retransmitted for another reason.
                self.timers.set(Timer::Probe, self.now + longest);
            }
            return false;
        }
        self.tx.prober.on_silence();
        let mut paths_exhausted = false;
        if connected {
            self.tx.prober.request();
            let long = self.tx.loss_timer.is_silent(self.now);
            paths_exhausted = self.tx.rare_mut().probe.escalate_probes(self.shared.paths, long);
        } else if self.tx.ring.oldest().is_some_and(Slot::is_in_flight) {
            self.tx.enqueue(0, RetransmitCause::Probe, self.shared);
            self.tx.loss_timer.allow_resend();
            paths_exhausted = self.tx.prober.exhausted_first_paths();
        }
        let mut interval = self.tx.probe_interval(self.shared);
        if !connected {
            interval = interval.min(longest);
        }
        self.timers.set(Timer::Probe, self.now + interval);
        paths_exhausted
    }

    /// Requests a probe about the packets in flight, unless one is unanswered.
    pub(super) fn request_probe(&mut self) {
        let trip = self.tx.rtt.mean();
        let rare = self.tx.rare.as_ref();
        let out = rare.is_some_and(|rare| rare.probe.awaits_answer(self.now, trip));
        if !out && self.shared.config.loss.probe {
            self.tx.prober.request();
            self.timers.set(Timer::Probe, self.now + self.tx.probe_interval(self.shared));
        }
    }
}

const fn cause_of(code: NackCode) -> RetransmitCause {
    match code {
        NackCode::Trimmed | NackCode::TrimmedLastHop => RetransmitCause::Trimmed,
        _ => RetransmitCause::Nacked,
    }
}

/// The result of an expiry of the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// No packet had been in flight for a whole timeout.
    None,
    /// A packet had been in flight for a whole timeout.
    Timeout,
    /// A packet had been in flight for a whole timeout, as several times before, and the peer
    /// cannot be probed: other paths should be tried.
    TryOtherPaths,
}

/// Returns whether a NACK's code means that the target temporarily lacks a resource.
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
