//! The times for which the engine waits for silent peers, and the timer of the check for them.

use crate::base::{Span, Time};
use crate::completion::WaitLimit;
use crate::config::Config;

/// Time for which a host may report that no socket is bound to a peer's port before the engine
/// gives the peer up. The peer may be about to open its endpoint.
pub(crate) const REFUSED_DEADLINE: Span = Span::secs(3);
/// Time for which a peer must be silent before the user is notified.
pub(crate) const LONG_SILENCE: Span = Span::secs(10);

/// The times for which the engine waits for silent peers. They follow from the two deadlines of the
/// configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SilenceTimes {
    /// The longest wait for a silent peer ([`crate::TransportConfig::progress_deadline`]), unless
    /// more is known about it.
    deadline: Span,
    /// The longest wait for a silent peer whose host answers ([`crate::Config::stopped_deadline`]).
    stopped_deadline: Span,
}

impl SilenceTimes {
    /// Returns the times that follow from a configuration and from the transport's deadline for
    /// progress.
    pub(crate) const fn new(config: &Config, deadline: Span) -> Self {
        Self { deadline, stopped_deadline: config.stopped_deadline }
    }

    /// Returns the silence after which the engine asks for signs of life: a peer that owes nothing,
    /// or other endpoints on the host of a peer. The rest of the deadline leaves time for answers.
    pub(crate) fn until_question(self) -> Span {
        self.deadline / 4
    }

    /// Returns whether the engine may wait longer than the deadline for a peer that has not
    /// answered for `waited`, if it knows that the peer's host answers.
    pub(crate) fn depends_on_host(self, waited: Span) -> bool {
        self.stopped_deadline > self.deadline && waited >= self.until_question()
    }

    /// Returns the age up to which a packet of another endpoint on the peer's host shows that the
    /// host answers.
    pub(crate) fn host_answers_for(self) -> Span {
        self.deadline / 2
    }

    /// Returns the age up to which such a packet makes another question unnecessary. It is short
    /// enough that the next answer arrives before the last one is too old.
    pub(crate) fn host_asked_after(self) -> Span {
        self.deadline / 8
    }

    /// Returns the longest wait for a peer, and its reason. A stopped process and a process that has
    /// ended are both silent; other endpoints on a stopped process's host still answer.
    pub(crate) const fn limit(self, host_answers: bool) -> (WaitLimit, Span) {
        if host_answers {
            (WaitLimit::HostAnswers, self.stopped_deadline)
        } else {
            (WaitLimit::Deadline, self.deadline)
        }
    }

    /// Returns the time without packets after which the receiver gives up an incomplete message.
    /// The sender gives it up when one of its packets stays unacknowledged for the deadline.
    pub(crate) fn until_message_stalls(self) -> Span {
        self.deadline * 2
    }
}

/// The timer of the check for silent peers. It runs while a peer owes something.
#[derive(Debug)]
pub(crate) struct Liveness {
    interval: Span,
    at: Option<Time>,
}

impl Liveness {
    pub(crate) const fn new(interval: Span) -> Self {
        Self { interval, at: None }
    }

    /// Starts the timer, unless it runs, because a peer owes something.
    #[inline]
    pub(crate) fn start_timer(&mut self, now: Time) {
        if self.at.is_none() {
            self.at = Some(now + self.interval);
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Returns whether the check is due. The timer stops until the next [`Self::start_timer`].
    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            self.at = None;
        }
        due
    }

    /// Returns whether nothing was heard of a peer for the keepalive interval; its last packet
    /// arrived at `last`.
    pub(crate) fn is_silent(&self, now: Time, last: Time) -> bool {
        now.since(last) >= self.interval
    }
}
