//! The state of the retransmission timer: the backoff, and what may be sent while the peer is
//! silent.

use super::RttEstimator;
use crate::base::{Span, Time};
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::tick::Tick;
use crate::wait::Wait;

/// Largest exponent of the exponential backoff: 2^16 times the timeout, far beyond any `rto_max`.
pub(super) const MAX_BACKOFF: u8 = 16;

/// Largest exponent of the backoff while the peer answered within [`RECENT_ANSWER`]: four times the
/// timeout. Half of the network may be dead without any report, and then it takes several tries to
/// find a working path in both directions.
const ANSWERED_BACKOFF: u8 = 2;

/// Largest exponent of the backoff while a peer that has not answered yet was sent its first packet
/// within [`RECENT_ANSWER`]: as many timeouts as it takes to try other paths.
const FIRST_BACKOFF: u8 = MAX_TIMEOUTS;

/// Age of the last answer up to which the backoff stays short: some twenty timeouts. After that the
/// peer itself may be gone.
const RECENT_ANSWER: Span = Span::millis(500);

/// Time for which a silent peer is only probed: a process that waits for a processor is back within
/// this time.
const PROBE_ONLY: Span = Span::millis(100);

/// Silence of a peer after which other paths to it are tried: a process that shares its processor
/// is often back within this time.
const PATHS_IN_DOUBT: Span = Span::millis(10);

/// Consecutive timeouts after which a peer that cannot be probed is tried on other paths. A peer
/// that is about to start is silent as well, and trying other paths does not harm it.
const MAX_TIMEOUTS: u8 = 3;

/// Factor by which the retransmission timeout is longer where it is only the last resort.
const LAST_RESORT: u64 = 10;

/// The consecutive timeouts, and the time for which the peer has owed an answer.
#[derive(Debug)]
pub(super) struct LossTimer {
    backoff: u8,
    /// True if the one packet that may be retransmitted after a timeout has not been retransmitted
    /// yet.
    resend_allowed: bool,
    /// The time since which the peer has acknowledged nothing although packets are outstanding.
    stalled_since: Tick,
    /// How long the peer has owed an answer about the oldest outstanding packet.
    waiting: Wait,
}

impl LossTimer {
    pub(super) const fn new(now: Time) -> Self {
        Self {
            backoff: 0,
            resend_allowed: false,
            stalled_since: Tick::at(now),
            waiting: Wait::start(now),
        }
    }

    /// Returns the retransmission timeout: RTO_TIMER = RTO_INIT_TIME * 2^retry, bounded (UE 1.0
    /// section 3.5.12), and more tightly while the peer has recently answered. Once a round-trip
    /// time is known, it and its variation replace RTO_INIT_TIME (RFC 6298), plus the time for
    /// which the peer may delay an acknowledgement.
    #[inline]
    pub(super) fn rto(&self, rtt: &RttEstimator, config: &Config) -> Span {
        let first = match rtt.srtt() {
            None => config.rto_init,
            Some(_) => rtt.longest() + config.ack_delay,
        };
        let backed_off = first.max(config.rto_min) * (1 << self.backoff.min(MAX_BACKOFF));
        backed_off.min(config.rto_max)
    }

    /// Returns how long a packet may be in flight before the timer takes it for lost. Where the
    /// timer is not among the detectors it is the last resort and waits ten times as long.
    #[inline]
    pub(super) fn timeout(&self, rtt: &RttEstimator, config: &Config) -> Span {
        let patience = if config.loss.rto { 1 } else { LAST_RESORT };
        (self.rto(rtt, config) * patience).min(config.rto_max)
    }

    /// Returns whether the retransmission timer has expired and the peer has not answered since.
    #[inline]
    pub(super) const fn is_backing_off(&self) -> bool {
        self.backoff > 0
    }

    /// Returns whether the peer has been silent for so long that its paths may be the cause.
    pub(super) fn is_silent(&self, now: Time) -> bool {
        self.stalled_since.time_until(now) >= PATHS_IN_DOUBT
    }

    /// Returns whether a peer that cannot be probed should be tried on other paths after so many
    /// consecutive timeouts.
    pub(super) const fn exhausted_timeouts(&self) -> bool {
        self.backoff >= MAX_TIMEOUTS
    }

    /// Returns whether the one packet that may be retransmitted after a timeout has not been yet.
    #[inline]
    pub(super) const fn may_resend(&self) -> bool {
        self.resend_allowed
    }

    /// Allows one packet to be retransmitted before the peer answers.
    pub(super) fn allow_resend(&mut self) {
        self.resend_allowed = true;
    }

    /// Records that the one packet allowed after a timeout was retransmitted.
    #[inline]
    pub(super) fn on_resend(&mut self) {
        self.resend_allowed = false;
    }

    /// Handles a timeout: the next one is twice as long, and one packet may be retransmitted until
    /// the peer answers. Returns whether a `connected` peer recently acknowledged something.
    pub(super) fn on_expiry(&mut self, now: Time, connected: bool) -> bool {
        let lately = self.stalled_since.time_until(now) < RECENT_ANSWER;
        let most = match (lately, connected) {
            (true, true) => ANSWERED_BACKOFF,
            (true, false) => FIRST_BACKOFF,
            (false, _) => MAX_BACKOFF,
        };
        self.backoff = (self.backoff + 1).min(most);
        self.resend_allowed = true;
        lately && connected
    }

    /// Returns whether the peer is only probed about what arrived, because it has not been silent
    /// for long, before anything is retransmitted.
    pub(super) fn only_probes(&self, now: Time) -> bool {
        self.stalled_since.time_until(now) < PROBE_ONLY
    }

    /// Ends the exponential backoff of the retransmission timeout, because the peer answers.
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
            self.resend_allowed = false;
            timers.set(Timer::Retransmit, now + self.timeout(rtt, config));
        }
    }

    /// Records that the peer acknowledged something, or reported that it lacks room.
    #[inline]
    pub(super) fn on_progress(&mut self, now: Time) {
        self.stalled_since = Tick::at(now);
    }

    /// Begins the wait for an answer about the oldest packet, because another packet is the oldest
    /// now, or the peer reports that it is not ready for it.
    #[inline]
    pub(super) fn begin_wait(&mut self, now: Time) {
        self.waiting = Wait::start(now);
    }

    /// Returns how long the peer has owed an answer about the oldest outstanding packet.
    pub(super) fn waiting_time(&self, now: Time) -> Span {
        self.waiting.elapsed(now)
    }

    /// Excludes the last `absent`, in which this process did not run, from the time that the peer
    /// owes an answer.
    pub(super) fn exclude_absence(&mut self, now: Time, absent: Span) {
        self.waiting.exclude_absence(now, absent);
    }

    /// Ends the exponential backoff of the retransmission timeout, because nothing is outstanding
    /// any more.
    #[inline]
    pub(super) fn on_idle(&mut self) {
        self.backoff = 0;
    }

    /// Returns when a peer that does not answer the oldest packet is given up. The wait for a
    /// `connected` peer is at least `longer`.
    #[inline]
    pub(super) fn deadline(&self, connected: bool, longer: Span, config: &Config) -> Time {
        let patience =
            if connected { config.progress_deadline.max(longer) } else { config.contact_deadline };
        self.waiting.deadline(patience)
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
        // Another answer does not move the timer.
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
    fn a_peer_that_has_not_answered_yet_is_asked_more_often_at_first() {
        let (config, rtt) = (config(), RttEstimator::default());
        let mut timer = LossTimer::new(Time::ZERO);
        for _ in 0..10 {
            assert!(!timer.on_expiry(Time::ZERO + Span::millis(499), false));
        }
        assert_eq!(timer.rto(&rtt, &config), config.rto_init * 8);
        assert!(timer.exhausted_timeouts());
        assert!(!timer.on_expiry(Time::ZERO + Span::millis(502), false));
        assert_eq!(timer.rto(&rtt, &config), config.rto_init * 16);
    }

    #[test]
    fn one_packet_may_be_retransmitted_after_a_timeout() {
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
    fn absences_do_not_count_toward_the_progress_deadline() {
        let (config, mut timer) = (config(), LossTimer::new(Time(5)));
        timer.begin_wait(Time(7));
        timer.on_progress(Time(9));
        assert_eq!(timer.deadline(true, Span::ZERO, &config), Time(7) + config.progress_deadline);
        timer.exclude_absence(Time(100), Span(60));
        assert_eq!(timer.waiting_time(Time(100)), Span(33));
        // The wait never begins in the future.
        timer.exclude_absence(Time(101), Span(1000));
        assert_eq!(timer.waiting_time(Time(101)), Span::ZERO);
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
