//! The timers of one context: what it can wait for, and until when.

use crate::base::Time;

/// Everything a context can wait for.
///
/// The first five are set and stopped, and [`Deadlines`] holds them. The others follow from the state of
/// a part; [`crate::pdc::Pdc::deadline`] says how. A context's timer is the earliest of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// Packets arrived, and nothing but time makes their acknowledgement due.
    Ack,
    /// Packets are in flight, perhaps for too long.
    Retransmit,
    /// The peer is silent although packets are in flight: ask it.
    Probe,
    /// A Clear Command is to be sent, if no request says the same before.
    Clear,
    /// A Close Command or Close Request is to be sent, perhaps again.
    Close,
    /// The congestion control's own.
    Congestion,
    /// The peer takes nothing: the context fails.
    Progress,
    /// A target asked to be closed and its initiator does not answer: the context is given up.
    Orphan,
    /// There is nothing to do: the context closes.
    Idle,
    /// The pacer, the congestion control or a receiver that was not ready lets packets go again.
    Departure,
}

/// Does the same for every kind of timer, in the order in which they act when several are due at once:
/// `each_timer!(timer => { .. })`. The body is written out for each, so that a choice by kind costs nothing.
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
    /// Kinds that are set and stopped.
    const STORED: usize = 5;

    /// Once it is due nothing happens at a time of its own any more, for the caller is asked to poll what
    /// it was about.
    #[inline]
    pub(crate) const fn is_polled(self) -> bool {
        matches!(self, Self::Clear | Self::Close | Self::Departure)
    }
}

/// The deadlines that are set and stopped, by kind. Others have no place here: to name one is an error in
/// this crate.
#[derive(Debug)]
pub(crate) struct Deadlines([Time; Timer::STORED]);

impl Deadlines {
    /// None runs.
    pub(crate) const fn new() -> Self {
        Self([Time::NEVER; Timer::STORED])
    }

    /// When it is due; `NEVER` while it does not run.
    #[inline]
    pub(crate) const fn get(&self, timer: Timer) -> Time {
        self.0[timer as usize]
    }

    /// Starts it, or moves it.
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, when: Time) {
        self.0[timer as usize] = when;
    }

    /// Starts it, or moves it to an earlier time.
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
    fn a_deadline_moves_forward_when_told_so_and_is_due_at_its_time() {
        let mut table = Deadlines::new();
        table.set_earlier(Timer::Ack, Time(7));
        table.set_earlier(Timer::Ack, Time(9));
        assert_eq!(table.get(Timer::Ack), Time(7));
        assert!(table.is_due(Timer::Ack, Time(7)) && !table.is_due(Timer::Ack, Time(6)));
        table.stop(Timer::Ack);
        assert!(!table.is_running(Timer::Ack) && !table.is_due(Timer::Ack, Time(u64::MAX - 1)));
    }
}
