//! The timers of one packet delivery context.

use crate::base::Time;

/// The kinds of timers that a context can wait for.
///
/// The first five are set and stopped explicitly, and [`Deadlines`] holds them. The others follow
/// from the state of a part of the context; [`crate::pdc::Pdc::deadline`] computes them. The
/// context's timer is the earliest of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// An acknowledgement is sent for received packets that nothing else makes due.
    Ack,
    /// The packets in flight have been unacknowledged for the retransmission timeout.
    Retransmit,
    /// The peer is probed, because it has been silent although packets are in flight.
    Probe,
    /// A Clear Command is sent, unless a request clears the same responses before.
    Clear,
    /// A Close Command or Close Request is sent, for the first time or again.
    Close,
    /// The timer that the congestion control asked for
    /// ([`cc::SenderCc::next_timer`](crate::cc::SenderCc::next_timer)).
    Congestion,
    /// The context fails, because the peer has not acknowledged the oldest packet.
    Progress,
    /// A target gives up the context, because its initiator does not answer the Close Request.
    Orphan,
    /// The context closes, because nothing was sent or received on it for long.
    Idle,
    /// The pacer, the congestion control or the pause after a "receiver not ready" NACK lets
    /// packets leave again.
    Departure,
}

/// Runs a body for every kind of timer, in the order in which timers act when several are due at
/// once: `each_timer!(timer => { .. })`. The body is written out for each kind, so that the
/// selection by kind costs nothing at run time.
macro_rules! each_timer {
    ($timer:ident => $body:block) => {
        crate::deadlines::each_timer!(
            @ $timer $body Ack Congestion Progress Retransmit Probe Clear Close Orphan Idle Departure
        )
    };
    (@ $timer:ident $body:block $($kind:ident)+) => {
        $({
            let $timer = crate::deadlines::Timer::$kind;
            $body
        })+
    };
}
pub(crate) use each_timer;

impl Timer {
    /// The number of timers that are stored in [`Deadlines`], because they are set and stopped
    /// explicitly.
    const STORED: usize = 5;

    /// Returns whether the caller polls for the work of this timer once it is due. The context then
    /// needs no wake-up for it any more.
    #[inline]
    pub(crate) const fn is_polled(self) -> bool {
        matches!(self, Self::Clear | Self::Close | Self::Departure)
    }
}

/// The deadlines of the timers that are set and stopped, by kind. Indexing with another kind is an
/// error in this crate and panics.
#[derive(Debug)]
pub(crate) struct Deadlines([Time; Timer::STORED]);

impl Deadlines {
    /// Returns deadlines with all timers stopped.
    pub(crate) const fn new() -> Self {
        Self([Time::NEVER; Timer::STORED])
    }

    /// Returns the time at which the timer is due; `NEVER` while it does not run.
    #[inline]
    pub(crate) const fn get(&self, timer: Timer) -> Time {
        self.0[timer as usize]
    }

    /// Starts the timer, or moves it, to expire at `when`.
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, when: Time) {
        self.0[timer as usize] = when;
    }

    /// Starts the timer, or moves it to `when` if that is earlier.
    #[inline]
    pub(crate) fn set_earlier(&mut self, timer: Timer, when: Time) {
        self.set(timer, self.get(timer).min(when));
    }

    #[inline]
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.set(timer, Time::NEVER);
    }

    #[inline]
    pub(crate) fn is_running(&self, timer: Timer) -> bool {
        self.get(timer) != Time::NEVER
    }

    #[inline]
    pub(crate) fn is_due(&self, timer: Timer, now: Time) -> bool {
        self.get(timer) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_visited_once_and_the_stored_ones_have_a_place_each() {
        let (mut seen, mut table) = (Vec::new(), Deadlines::new());
        each_timer!(timer => {
            assert!(!seen.contains(&(timer as usize)), "{timer:?} twice");
            seen.push(timer as usize);
            if (timer as usize) < Timer::STORED {
                assert!(!table.is_running(timer));
                table.set(timer, Time(seen.len() as u64));
            }
        });
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..=Timer::Departure as usize));
        let mut set = Vec::new();
        each_timer!(timer => {
            if (timer as usize) < Timer::STORED {
                set.push(table.get(timer).0);
            }
        });
        set.dedup();
        assert_eq!(set.len(), Timer::STORED);
    }

    #[test]
    fn a_deadline_only_moves_earlier_by_set_earlier_and_is_due_at_its_time() {
        let mut table = Deadlines::new();
        table.set_earlier(Timer::Ack, Time(7));
        table.set_earlier(Timer::Ack, Time(9));
        assert_eq!(table.get(Timer::Ack), Time(7));
        assert!(table.is_due(Timer::Ack, Time(7)) && !table.is_due(Timer::Ack, Time(6)));
        table.stop(Timer::Ack);
        assert!(!table.is_running(Timer::Ack) && !table.is_due(Timer::Ack, Time(u64::MAX - 1)));
    }
}
