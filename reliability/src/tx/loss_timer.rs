//! The retransmission timer's state: back-off, and what may be sent while the peer is silent.

use super::RttEstimator;
use crate::base::{Span, Time};
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::tick::Tick;
use crate::wait::Wait;

/// Longest back-off: 2^16 times the timeout, far beyond any `rto_max`.
pub(super) const MAX_BACKOFF: u8 = 16;

/// Longest back-off while the peer answered lately: four times the timeout. Half of the network may be
/// dead without anybody saying so, and then it takes some tries to find a way there and back.
const ANSWERED_BACKOFF: u8 = 2;

/// How long ago "lately" is: some twenty of those, after which the peer itself is in doubt.
const LATELY: Span = Span::millis(500);

/// For how long a silent peer is only asked: a process that waits for a processor is back within this time.
const ASKED: Span = Span::millis(100);

/// How long a peer must have taken nothing before it is tried on other paths: a process that shares its processor is often
/// back within this time.
const SILENT: Span = Span::millis(10);

/// Timeouts in a row after which a peer that cannot be asked is tried on other paths. A peer that is about to start is
/// silent as well, and no worse off for it.
const IN_VAIN: u8 = 3;

/// How much longer than the timer the last resort waits.
const LAST_RESORT: u64 = 10;

/// Timeouts in a row, and for how long the peer has owed an answer.
#[derive(Debug)]
pub(super) struct LossTimer {
    backoff: u8,
    /// The one packet that may be sent after a timeout was not yet.
    lone_resend: bool,
    /// Since when the peer took nothing although something is outstanding.
    stalled_since: Tick,
    /// For how long the oldest outstanding packet has been that.
    waiting: Wait,
}

impl LossTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            backoff: 0,
            lone_resend: false,
            stalled_since: Tick::at(now),
            waiting: Wait::begin(now),
        }
    }

    /// RTO_TIMER = RTO_INIT_TIME * 2^retry, bounded (UE 1.0 section 3.5.12), and more tightly so while the
    /// peer answered lately. Once a round-trip time is known, it and its variation take the place of
    /// RTO_INIT_TIME (RFC 6298), plus the time the peer may sit on an acknowledgement.
    #[inline]
    pub(super) fn rto(&self, rtt: &RttEstimator, config: &Config) -> Span {
        let first = match rtt.srtt() {
            None => config.rto_init,
            Some(_) => rtt.longest() + config.ack_delay,
        };
        let backed_off = first.max(config.rto_min) * (1 << self.backoff.min(MAX_BACKOFF));
        backed_off.min(config.rto_max)
    }

    /// How long a packet may be in flight before the timer takes it for lost. Where the timer is not
    /// among the detectors it is the last resort, and takes ten times as long.
    #[inline]
    pub(super) fn timeout(&self, rtt: &RttEstimator, config: &Config) -> Span {
        let patience = if config.loss.rto { 1 } else { LAST_RESORT };
        (self.rto(rtt, config) * patience).min(config.rto_max)
    }

    /// The timer fired and the peer has not answered since.
    #[inline]
    pub(super) const fn is_backing_off(&self) -> bool {
        self.backoff > 0
    }

    /// Whether the peer took nothing for so long that its paths may be why.
    pub(super) fn is_silent(&self, now: Time) -> bool {
        self.stalled_since.until(now) >= SILENT
    }

    /// So many timeouts in a row that other paths should be tried, where nobody can be asked.
    pub(super) const fn is_in_vain(&self) -> bool {
        self.backoff >= IN_VAIN
    }

    /// After a timeout, whether the one packet that may be sent was not yet.
    #[inline]
    pub(super) const fn may_resend(&self) -> bool {
        self.lone_resend
    }

    /// One packet may be sent again.
    pub(super) fn allow_resend(&mut self) {
        self.lone_resend = true;
    }

    /// A packet was sent again.
    #[inline]
    pub(super) fn on_resend(&mut self) {
        self.lone_resend = false;
    }

    /// Packets were in flight for too long: the next timeout is twice as long, and one packet may go
    /// until the peer answers. Whether a `connected` peer answered lately.
    pub(super) fn on_expiry(&mut self, now: Time, connected: bool) -> bool {
        let lately = connected && self.stalled_since.until(now) < LATELY;
        let most = if lately { ANSWERED_BACKOFF } else { MAX_BACKOFF };
        self.backoff = (self.backoff + 1).min(most);
        self.lone_resend = true;
        lately
    }

    /// Whether a peer that took nothing for so long is to be asked what arrived, before anything is sent twice.
    pub(super) fn only_asks(&self, now: Time) -> bool {
        self.stalled_since.until(now) < ASKED
    }

    /// The peer answers: timeouts in a row are over.
    #[inline]
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        rtt: &RttEstimator,
        timers: &mut Deadlines,
        config: &Config,
    ) {
        if self.backoff > 0 {
            self.backoff = 0;
            self.lone_resend = false;
            timers.set(Timer::Retransmit, now + self.timeout(rtt, config));
        }
    }

    /// The peer took something, or it said that it lacks room.
    #[inline]
    pub(super) fn on_progress(&mut self, now: Time) {
        self.stalled_since = Tick::at(now);
    }

    /// Another packet is the oldest outstanding one now, or the peer holds the one that is: from here on an
    /// answer to it is waited for.
    #[inline]
    pub(super) fn begin_wait(&mut self, now: Time) {
        self.waiting = Wait::begin(now);
    }

    /// For how long an answer has been waited for.
    pub(super) fn waited(&self, now: Time) -> Span {
        self.waiting.waited(now)
    }

    /// Nobody was here to listen for `absent`, until now: that does not count.
    pub(super) fn excuse(&mut self, now: Time, absent: Span) {
        self.waiting.excuse(now, absent);
    }

    /// Nothing is outstanding any more.
    #[inline]
    pub(super) fn on_idle(&mut self) {
        self.backoff = 0;
    }

    /// Returns when a peer that does not answer the oldest packet is given up. A peer that is `connected` is waited for
    /// at least `longer`.
    #[inline]
    pub(super) fn deadline(&self, connected: bool, longer: Span, config: &Config) -> Time {
        let patience =
            if connected { config.progress_deadline.max(longer) } else { config.contact_deadline };
        self.waiting.end(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{PathsConfig, SenderConfig};

    fn config() -> Config {
        Config::new(4096, SenderConfig::fixed(1), PathsConfig::single(1).expect("one path"), 1)
    }

    #[test]
    fn the_timeout_doubles_until_its_bound_and_starts_again_with_an_answer() {
        let (config, rtt) = (config(), RttEstimator::default());
        let mut timer = LossTimer::new(Time::ZERO);
        assert_eq!(timer.rto(&rtt, &config), config.rto_init);
        for doublings in 1..=7 {
            assert!(!timer.on_expiry(Time::ZERO + Span::secs(1), false));
            assert_eq!(timer.rto(&rtt, &config), config.rto_init * (1 << doublings));
        }
        for _ in 0..300 {
            timer.on_expiry(Time::ZERO + Span::secs(1), false);
        }
        assert_eq!(timer.rto(&rtt, &config), config.rto_max);
        let mut timers = Deadlines::new();
        timer.on_answer(Time(7), &rtt, &mut timers, &config);
        assert_eq!(timer.rto(&rtt, &config), config.rto_init);
        assert_eq!(timers.get(Timer::Retransmit), Time(7) + config.rto_init);
        // It is not moved by another answer.
        timer.on_answer(Time(9), &rtt, &mut timers, &config);
        assert_eq!(timers.get(Timer::Retransmit), Time(7) + config.rto_init);
    }

    #[test]
    fn a_peer_that_answered_lately_is_asked_more_often() {
        let (config, rtt) = (config(), RttEstimator::default());
        let mut timer = LossTimer::new(Time::ZERO);
        for _ in 0..10 {
            assert!(timer.on_expiry(Time::ZERO + Span::millis(499), true));
        }
        assert_eq!(timer.rto(&rtt, &config), config.rto_init * 4);
        assert!(!timer.on_expiry(Time::ZERO + Span::millis(502), true));
        assert_eq!(timer.rto(&rtt, &config), config.rto_init * 8);
    }

    #[test]
    fn one_packet_goes_after_a_timeout() {
        let mut timer = LossTimer::new(Time::ZERO);
        assert!(!timer.may_resend() && !timer.is_backing_off());
        timer.on_expiry(Time(1), true);
        assert!(timer.may_resend() && timer.is_backing_off());
        timer.on_resend();
        assert!(!timer.may_resend() && timer.is_backing_off());
        timer.allow_resend();
        assert!(timer.may_resend());
        timer.on_answer(Time(2), &RttEstimator::default(), &mut Deadlines::new(), &config());
        assert!(!timer.may_resend());
    }

    #[test]
    fn what_the_oldest_packet_waited_counts_but_not_while_nobody_listened() {
        let (config, mut timer) = (config(), LossTimer::new(Time(5)));
        timer.begin_wait(Time(7));
        timer.on_progress(Time(9));
        assert_eq!(timer.deadline(true, Span::ZERO, &config), Time(7) + config.progress_deadline);
        timer.excuse(Time(100), Span(60));
        assert_eq!(timer.waited(Time(100)), Span(33));
        // Never into the future.
        timer.excuse(Time(101), Span(1000));
        assert_eq!(timer.waited(Time(101)), Span::ZERO);
    }

    #[test]
    fn without_the_detector_the_timer_is_the_last_resort() {
        let (mut config, rtt) = (config(), RttEstimator::default());
        config.loss.rto = false;
        let timer = LossTimer::new(Time::ZERO);
        assert_eq!(timer.timeout(&rtt, &config), config.rto_init * 10);
        assert_eq!(
            timer.deadline(true, Span::ZERO, &config),
            Time::ZERO + config.progress_deadline
        );
        assert_eq!(
            timer.deadline(false, Span::ZERO, &config),
            Time::ZERO + config.contact_deadline
        );
    }
}
