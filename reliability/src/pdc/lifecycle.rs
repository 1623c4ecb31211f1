//! The lifecycle of a context: open, draining, closing, and the time that both ends wait for each
//! other.

use crate::base::{Span, Time};
use crate::config::Config;
use crate::deadlines::{Deadlines, Timer};
use crate::types::PdcFailure;
use crate::wire::Mode;

/// Multiple of the initiator's idle time after which a target requests the close of an idle
/// context.
const TARGET_PATIENCE: u64 = 4;

/// Times that a Close Command is sent to a target that never sent data. Everything was acknowledged
/// before, so giving up costs nothing but the peer's memory, which its own timeout frees.
const CLOSE_TRIES: u8 = 6;

/// The phase of a context's life. Whether the peer's context number is known is independent of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    /// Nothing new is sent: an initiator waits for its last acknowledgements, and a target requests
    /// the close.
    Draining,
    /// An initiator has sent, or is about to send, its Close Command. Its PSN is the one after the
    /// last packet's.
    Closing,
}

/// Whether a context lives on after a call, and if not, how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Alive,
    Closed,
    Failed(PdcFailure),
}

/// The lifecycle of a context. [`Timer::Close`] holds when the Close Command or Close Request
/// leaves (again).
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// This endpoint opened the context.
    initiator: bool,
    phase: Phase,
    /// The engine expects more data on the context, so that it must not be closed as idle.
    busy: bool,
    /// The context waits for the handshake with its peer: nothing may be sent.
    awaits_handshake: bool,
    /// The peer asked for the close although the context had been in use lately.
    parting: bool,
    /// The delivery mode of the context (RUD or ROD), which its initiator chose.
    mode: Mode,
    /// Times that this end sent a Close Command or Close Request.
    asked: u8,
    /// The time at which a packet was last sent or something new was received; while draining, at
    /// which anything was received.
    used_at: Time,
}

impl Lifecycle {
    pub(super) const fn new(now: Time, initiator: bool, awaits_handshake: bool) -> Self {
        Self {
            initiator,
            phase: Phase::Open,
            busy: false,
            awaits_handshake,
            parting: false,
            mode: Mode::Rud,
            asked: 0,
            used_at: now,
        }
    }

    #[inline]
    pub(crate) const fn is_initiator(&self) -> bool {
        self.initiator
    }

    /// Returns the delivery mode of the context (RUD or ROD).
    #[inline]
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    /// Sets the delivery mode of the context (RUD or ROD).
    pub(super) const fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    #[inline]
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    pub(crate) const fn last_used(&self) -> Time {
        self.used_at
    }

    /// Records that a packet was sent or something new was received. Once the Close Command has
    /// been sent, only data keep the context alive: the peer accepts the command, or the two ends
    /// do not agree about what there is to close.
    #[inline]
    pub(crate) fn on_use(&mut self, now: Time) {
        if self.phase != Phase::Closing {
            self.used_at = now;
        }
    }

    /// Records that the peer sent a packet with nothing new. It shows that the peer is alive, which
    /// matters to a target that requests the close. It does not keep an idle context open.
    #[inline]
    pub(crate) fn on_repeated_message(&mut self, now: Time) {
        if self.phase == Phase::Draining {
            self.used_at = now;
        }
    }

    /// Records that a data packet arrived at `now`, which keeps the context alive in any phase.
    #[inline]
    pub(crate) fn on_data(&mut self, now: Time) {
        self.used_at = now;
    }

    /// Ignores the peer's silence during the last `absent`, because this process did not run then.
    /// An open context is not affected, because the peer judges by its own clock whether it is
    /// idle.
    pub(super) fn exclude_absence(&mut self, now: Time, absent: Span) {
        if self.phase != Phase::Open {
            self.used_at = (self.used_at + absent).min(now);
        }
    }

    pub(super) fn set_busy(&mut self, now: Time, busy: bool) {
        self.busy = busy;
        self.used_at = now;
    }

    /// Holds back all packets until another handshake with the peer is complete.
    pub(super) fn await_handshake(&mut self) {
        self.awaits_handshake = true;
    }

    /// Lets packets leave, because the handshake with the peer is complete.
    pub(super) fn release(&mut self, now: Time) {
        self.awaits_handshake = false;
        self.used_at = now;
    }

    #[inline]
    pub(crate) fn awaits_handshake(&self) -> bool {
        self.awaits_handshake
    }

    /// Returns whether new packets are refused. A target that requested the close still answers.
    #[inline]
    pub(crate) fn refuses_new_packets(&self) -> bool {
        self.initiator && self.phase != Phase::Open
    }

    /// Handles the target's request to close. A busy context goes on, because a message that is
    /// half sent must not be continued on another context. The target will request again.
    pub(super) fn on_close_request(&mut self, now: Time, timers: &mut Deadlines) {
        if !self.busy {
            self.drain(now, timers);
        }
    }

    /// Handles the peer's request to close the context. An endpoint that stays open sends one only when the context is
    /// idle, so a request on a busy context shows that the peer closes its endpoint.
    pub(super) fn detect_peer_shutdown(&mut self, now: Time, config: &Config) {
        let lately = now.since(self.used_at) < config.idle_close / 2;
        self.parting |= self.phase == Phase::Open && lately;
    }

    /// Returns whether the peer asked for the close although the context had been in use lately.
    pub(crate) const fn is_peer_closing(&self) -> bool {
        self.parting
    }

    /// Starts to close the context, unless it is closing already.
    pub(super) fn drain(&mut self, now: Time, timers: &mut Deadlines) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.used_at = now;
            if !self.initiator {
                timers.set(Timer::Close, now);
            }
        }
    }

    /// Starts to send the Close Command if the context is draining and everything is acknowledged
    /// (`drained`).
    #[inline]
    pub(super) fn step(
        &mut self,
        now: Time,
        drained: bool,
        connected: bool,
        timers: &mut Deadlines,
    ) -> Outcome {
        if self.phase != Phase::Draining || !self.initiator || !drained || self.busy {
            return Outcome::Alive;
        }
        if !connected {
            // The peer does not know the context.
            return Outcome::Closed;
        }
        self.phase = Phase::Closing;
        timers.set(Timer::Close, now);
        Outcome::Alive
    }

    /// Counts a Close Command or Close Request that leaves. The next one leaves after `first`,
    /// doubled each time, but at most `most`. Returns whether one was sent before.
    pub(super) fn count_close_attempt(
        &mut self,
        now: Time,
        first: Span,
        most: Span,
        timers: &mut Deadlines,
    ) -> bool {
        let wait = first * (1 << self.asked.min(16));
        timers.set(Timer::Close, now + wait.min(most));
        let again = self.asked > 0;
        self.asked = self.asked.saturating_add(1);
        again
    }

    /// Returns whether an initiator gives up on its Close Command when that is due again. A target
    /// that sent data (`received`) refuses the command until all of it is acknowledged. If this end
    /// were gone, the target would never learn that the data arrived, and would fail the operations
    /// behind them. It is therefore given the time that it gives this end.
    pub(super) fn should_give_up(&self, now: Time, received: bool, config: &Config) -> bool {
        let silent = self.used_at + config.progress_deadline <= now;
        self.phase == Phase::Closing && self.asked >= CLOSE_TRIES && (!received || silent)
    }

    /// Returns when a target that requests the close gives up on its initiator. An initiator that
    /// is alive but not ready to close acknowledges the request.
    #[inline]
    pub(super) fn close_request_deadline(&self, config: &Config) -> Time {
        if self.initiator || self.phase != Phase::Draining {
            return Time::NEVER;
        }
        self.used_at + config.progress_deadline
    }

    /// Returns whether an initiator should not use the context again, because the target may have
    /// forgotten it: it has been idle for so long that it would have been closed if the process had
    /// been running.
    #[inline]
    pub(super) fn is_stale(&self, now: Time, config: &Config) -> bool {
        self.initiator
            && self.phase == Phase::Open
            && !self.busy
            && self.used_at + config.idle_close <= now
    }

    /// Returns when the context closes for being idle; `NEVER` if it is not open or is busy.
    #[inline]
    pub(super) fn idle_at(&self, config: &Config) -> Time {
        if self.phase != Phase::Open || self.busy {
            return Time::NEVER;
        }
        let patience = if self.initiator { 1 } else { TARGET_PATIENCE };
        self.used_at + config.idle_close * patience
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
    fn a_close_request_for_a_recently_used_context_shows_a_peer_shutdown() {
        let config = config();
        let wanted = |after| {
            let mut life = Lifecycle::new(Time(0), true, false);
            life.detect_peer_shutdown(Time(0) + after, &config);
            life.is_peer_closing()
        };
        assert!(wanted(config.idle_close / 3));
        assert!(!wanted(config.idle_close), "an idle context is closed as well");
    }

    #[test]
    fn an_initiator_sends_the_close_command_when_drained_and_not_busy() {
        let (mut life, mut timers) = (Lifecycle::new(Time(1), true, false), Deadlines::new());
        life.set_busy(Time(1), true);
        life.on_close_request(Time(2), &mut timers);
        assert_eq!(life.phase(), Phase::Open);
        life.drain(Time(3), &mut timers);
        assert!(life.refuses_new_packets() && !timers.is_running(Timer::Close));
        assert_eq!(life.step(Time(4), true, true, &mut timers), Outcome::Alive);
        assert_eq!(life.phase(), Phase::Draining);
        life.set_busy(Time(5), false);
        assert_eq!(life.step(Time(5), false, true, &mut timers), Outcome::Alive);
        assert_eq!(life.step(Time(6), true, false, &mut timers), Outcome::Closed);
        assert_eq!(life.step(Time(7), true, true, &mut timers), Outcome::Alive);
        assert_eq!((life.phase(), timers.get(Timer::Close)), (Phase::Closing, Time(7)));
    }

    #[test]
    fn a_target_requests_the_close_at_once_and_gives_up_at_the_deadline() {
        let (config, mut timers) = (config(), Deadlines::new());
        let mut life = Lifecycle::new(Time(1), false, false);
        assert_eq!(life.close_request_deadline(&config), Time::NEVER);
        life.drain(Time(9), &mut timers);
        assert!(!life.refuses_new_packets());
        assert_eq!(timers.get(Timer::Close), Time(9));
        assert_eq!(life.close_request_deadline(&config), Time(9) + config.progress_deadline);
        assert_eq!(life.step(Time(9), true, true, &mut timers), Outcome::Alive);
    }

    #[test]
    fn a_close_command_is_repeated_and_given_up() {
        let (config, mut timers) = (config(), Deadlines::new());
        let mut life = Lifecycle::new(Time(1), true, false);
        life.drain(Time(1), &mut timers);
        let _ = life.step(Time(1), true, true, &mut timers);
        for tries in 0..CLOSE_TRIES {
            assert!(!life.should_give_up(Time(9), false, &config));
            let again = life.count_close_attempt(Time(9), Span(100), Span(1000), &mut timers);
            assert_eq!(again, tries > 0);
            let wait = (100u64 << tries).min(1000);
            assert_eq!(timers.get(Timer::Close), Time(9 + wait));
        }
        assert!(life.should_give_up(Time(9), false, &config));
        // A target that sent data is given more time.
        assert!(!life.should_give_up(Time(9), true, &config));
        assert!(life.should_give_up(Time(9) + config.progress_deadline, true, &config));
    }

    #[test]
    fn a_target_is_more_patient_than_its_initiator() {
        let config = config();
        let idle = |initiator| Lifecycle::new(Time(0), initiator, false).idle_at(&config);
        assert_eq!(idle(true), Time(0) + config.idle_close);
        assert_eq!(idle(false), Time(0) + config.idle_close * 4);
        let life = Lifecycle::new(Time(0), true, false);
        assert!(life.is_stale(Time(0) + config.idle_close, &config));
        assert!(
            !Lifecycle::new(Time(0), false, false).is_stale(Time(0) + config.idle_close, &config)
        );
    }
}
