//! The parts of a sending half that most contexts never need. They are made when they are first needed.

use crate::base::{Psn, Rng, Span, Time};
use crate::cc;
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::tx::loss_timer::MAX_BACKOFF;
use crate::tx::overtaken::PathOrder;
use crate::tx::prober::SentProbe;
use crate::tx::question_count::QuestionCount;
use crate::tx::stuck_packet::StuckPacket;

/// The state of a sending half that most contexts never need.
#[derive(Debug, Default)]
pub(crate) struct RareTx {
    pub(super) pause: Pause,
    pub(super) probe: SentProbe,
    pub(super) clear: Clear,
    pub(crate) credit: Credit,
    pub(super) order: PathOrder,
    pub(super) stuck: StuckPacket,
    pub(crate) asked: QuestionCount,
    /// How long to wait for the peer's answers, where that is longer than the configured time.
    pub(crate) patience: Span,
    /// The time at which the newest packet left that arrived although older ones did not.
    pub(super) arrived: Time,
}

/// The pause of a sender whose receiver lacks resources ("receiver not ready").
#[derive(Debug)]
pub(super) struct Pause {
    doublings: u8,
    /// The time at which the pause began. Packets sent no later were in flight when it did.
    since: Time,
    until: Time,
}

impl Default for Pause {
    fn default() -> Self {
        Self { doublings: 0, since: Time::NEVER, until: Time::ZERO }
    }
}

impl Pause {
    /// Returns the end of the current or last pause for a receiver that is not ready.
    #[inline]
    pub(super) const fn until(&self) -> Time {
        self.until
    }

    /// Begins a pause because a packet sent at `sent_at` found no room at the receiver. The pause
    /// doubles each time, but only once for all packets that were in flight. A quarter of it is
    /// random, so that senders do not resume in step.
    pub(super) fn begin(&mut self, now: Time, sent_at: Time, config: &Config, rng: &mut Rng) {
        if self.since != Time::NEVER && sent_at <= self.since {
            return;
        }
        let pause = (config.rnr_min * (1 << self.doublings.min(MAX_BACKOFF))).min(config.rnr_max);
        let jitter = u32::try_from(pause.0 / 4).unwrap_or(u32::MAX);
        self.since = now;
        self.until = now + pause + Span(u64::from(rng.below(jitter)));
        self.doublings = self.doublings.saturating_add(1).min(MAX_BACKOFF);
    }

    /// Ends the first pause in a row, because another sign shows that the receiver is ready. Later
    /// pauses stay.
    pub(super) fn end_first(&mut self) {
        if self.doublings <= 1 {
            self.until = Time::ZERO;
        }
    }

    /// Makes the next pause for a receiver that is not ready a short one, because the receiver
    /// accepted a packet.
    pub(super) fn on_progress(&mut self) {
        self.doublings = 0;
    }
}

/// Guaranteed delivery: informs the peer which of its responses arrived. [`Timer::Clear`] holds
/// when a Clear Command leaves.
#[derive(Debug)]
pub(super) struct Clear {
    /// The PSN up to which the scheduled Clear Command will clear responses, while the timer runs.
    upto: Psn,
    /// The PSN up to which the last Clear Command cleared responses, if one was sent.
    sent: Option<Psn>,
    /// The acknowledged packets whose response the peer has not made yet, oldest first. The peer
    /// must keep what it needs for the response.
    held: Vec<Psn>,
}

impl Default for Clear {
    fn default() -> Self {
        Self { upto: Psn(0), sent: None, held: Vec::new() }
    }
}

impl Clear {
    /// Records that the peer will send the response to packet `psn` later.
    pub(super) fn hold(&mut self, psn: Psn) {
        let at = self.held.partition_point(|held| held.is_before(psn));
        if self.held.get(at) != Some(&psn) {
            self.held.insert(at, psn);
        }
    }

    /// Records that the peer has sent the response to packet `psn`.
    pub(super) fn release(&mut self, psn: Psn) {
        self.held.retain(|held| *held != psn);
    }

    /// Returns the PSN up to which responses may be cleared, where the packets up to `psn` are
    /// acknowledged.
    #[inline]
    pub(super) fn limit(&self, psn: Psn) -> Psn {
        match self.held.first() {
            Some(held) if !held.is_after(psn) => held.minus(1),
            _ => psn,
        }
    }

    /// Schedules a Clear Command for the responses up to `psn`, to leave at `when` or earlier.
    pub(super) fn send_by(&mut self, when: Time, psn: Psn, timers: &mut Deadlines) {
        if !timers.is_running(Timer::Clear) || psn.is_after(self.upto) {
            self.upto = psn;
        }
        timers.set_earlier(Timer::Clear, when);
    }

    /// Handles the peer's request for a Clear Command for all up to `psn`. If one was sent before,
    /// it may have been lost, but the request may also have crossed it, so the command is repeated
    /// only after `rto`.
    pub(super) fn on_request(&mut self, now: Time, psn: Psn, rto: Span, timers: &mut Deadlines) {
        let news = self.sent.is_none_or(|sent| psn.is_after(sent));
        let when = if news { now } else { now + rto };
        self.send_by(when, psn, timers);
    }

    /// Cancels a scheduled Clear Command if a request that leaves clears the same responses, up to
    /// `psn`.
    #[inline]
    pub(super) fn on_cleared(&self, psn: Psn, timers: &mut Deadlines) {
        if timers.is_running(Timer::Clear) && !self.upto.is_after(psn) {
            timers.stop(Timer::Clear);
        }
    }

    /// Records that a Clear Command for the responses up to `psn` leaves.
    pub(super) fn on_sent(&mut self, psn: Psn) {
        self.sent = Some(psn);
    }
}

/// The credit that the peer has granted, and the request for more, where congestion control needs
/// credit.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// Total credit that the peer granted since the context opened, as far as known, in nominal
    /// bytes.
    granted: u64,
    /// Nominal bytes that wait to be sent for the first time, as the engine reported last.
    backlog: u64,
    /// Total credit, in bytes since the context opened, that the next credit request asks for.
    request: Option<u64>,
}

impl Credit {
    /// Returns the total credit granted in bytes; `units` are the low bits of that number on the
    /// wire.
    pub(super) fn on_grant(&mut self, units: u32) -> cc::FeedbackExtension<'static> {
        let cumulative = cc::credit_bytes(self.granted, units);
        self.granted = self.granted.max(cumulative);
        cc::FeedbackExtension::Credit(cumulative)
    }

    /// Returns the nominal bytes that wait to be sent for the first time.
    pub(super) const fn backlog(&self) -> u64 {
        self.backlog
    }

    pub(super) fn set_backlog(&mut self, bytes: u64) {
        self.backlog = bytes;
    }

    /// Makes a credit request due that asks for `target` bytes in all since the context opened.
    pub(super) fn request(&mut self, target: u64) {
        self.request = Some(target);
    }

    /// Returns whether a credit request is due.
    pub(crate) const fn is_requested(&self) -> bool {
        self.request.is_some()
    }

    /// Returns the total credit to ask for in the credit request that is due, and clears the
    /// request.
    pub(crate) fn take_request(&mut self) -> Option<u64> {
        self.request.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    #[test]
    fn pauses_double_once_per_flight_and_start_short_after_progress() {
        let paths = PathsConfig::single(1).expect("one path");
        let config = Config::new(4096, SenderConfig::fixed(1), paths, 1);
        let mut rng = Rng::new(1);
        let (mut pause, mut now) = (Pause::default(), Time::ZERO + Span::millis(1));
        let mut long = config.rnr_min;
        let jittered = |pause: &Pause, now: Time, long: Span| {
            let lasts = pause.until().since(now);
            lasts >= long && lasts.0 < long.0 + long.0 / 4
        };
        for _ in 0..12 {
            pause.begin(now, now, &config, &mut rng);
            assert!(jittered(&pause, now, long));
            // A packet sent before the pause does not extend it.
            let until = pause.until();
            pause.begin(now + Span(5), now, &config, &mut rng);
            assert_eq!(pause.until(), until);
            now = until + Span(1);
            long = (long * 2).min(config.rnr_max);
        }
        assert_eq!(long, config.rnr_max);
        pause.on_progress();
        pause.begin(now, now, &config, &mut rng);
        assert!(jittered(&pause, now, config.rnr_min));
    }

    #[test]
    fn a_clear_command_leaves_at_once_when_it_clears_more() {
        let (mut clear, mut timers) = (Clear::default(), Deadlines::new());
        clear.on_request(Time(5), Psn(9), Span(100), &mut timers);
        assert_eq!(timers.get(Timer::Clear), Time(5));
        clear.on_sent(Psn(9));
        timers.stop(Timer::Clear);
        clear.on_request(Time(6), Psn(9), Span(100), &mut timers);
        assert_eq!(timers.get(Timer::Clear), Time(106));
        clear.on_request(Time(7), Psn(10), Span(100), &mut timers);
        assert_eq!(timers.get(Timer::Clear), Time(7));
        // A request that clears less does not replace the command; one that clears as much does.
        clear.on_cleared(Psn(9), &mut timers);
        assert!(timers.is_running(Timer::Clear));
        clear.on_cleared(Psn(10), &mut timers);
        assert!(!timers.is_running(Timer::Clear));
    }

    #[test]
    fn old_grants_do_not_reduce_the_credit() {
        let mut credit = Credit::default();
        let units = cc::credit_units(1 << 20);
        assert_eq!(credit.on_grant(units), cc::FeedbackExtension::Credit(1 << 20));
        // An old grant changes nothing.
        let _ = credit.on_grant(cc::credit_units(1 << 19));
        assert_eq!(credit.on_grant(units), cc::FeedbackExtension::Credit(1 << 20));
        credit.request(77);
        assert!(credit.is_requested());
        assert_eq!((credit.take_request(), credit.take_request()), (Some(77), None));
    }
}
