//! The course of a job over an emulator, from its first packet on: what happens by the timeline, and what is kept of it; and
//! whether there will be a first packet.

use super::recorder::Recorder;
use super::{Command, Timeline};
use squall_base::{Span, Time};
use squall_netsim::Picos;
use squall_netsim::model::Switches;

/// How long a job may do nothing after one of its ranks was refused. That rank ends, and launchers end the others, as a rule within
/// a second; but now and then MPICH's, on a busy machine, does not see it, and they wait for it for ever.
const PATIENCE: Span = Span::secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RunState {
    /// When the first packet entered.
    began: Option<Time>,
    timeline: Timeline,
    /// The event of the timeline that comes next.
    next: usize,
    happened: Timeline,
    recorder: Option<Recorder>,
    /// The emulator is for one job.
    alone: bool,
    /// When the job is given up that was refused a host, unless a packet enters before.
    given_up: Option<Time>,
}

impl RunState {
    /// Of the one job that the emulator is for, with things to happen, and perhaps a record of how they go.
    pub(super) fn new(timeline: Timeline, record: bool) -> Self {
        let recorder = record.then(Recorder::default);
        Self { timeline, recorder, alone: true, ..Self::default() }
    }

    /// An endpoint of it was refused.
    pub(super) fn refused(&mut self, now: Time) {
        if self.alone {
            self.given_up.get_or_insert(now + PATIENCE);
        }
    }

    /// Whether the job waits for an endpoint that was refused.
    pub(super) fn is_stuck(&self, now: Time) -> bool {
        self.began.is_none() && self.given_up.is_some_and(|at| at <= now)
    }

    /// A packet of so many bytes entered.
    pub(super) fn entered(&mut self, now: Time, pair: (u32, u32), bytes: u64) {
        self.began.get_or_insert(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.entered(pair, bytes);
        }
    }

    /// What is due by the timeline: before the first packet what happens at 0.
    pub(super) fn due(&mut self, now: Time) -> Option<Command> {
        let (at, command) = self.timeline.events().get(self.next)?;
        let due = self.began.map_or(at.0 == 0, |began| began + *at <= now);
        due.then(|| {
            self.next += 1;
            command.clone()
        })
    }

    /// Something happened, by the timeline or because somebody said so.
    pub(super) fn happened(&mut self, now: Time, command: Command) {
        let since = self.began.map_or_else(Default::default, |began| now.since(began));
        self.happened.add(since, command);
    }

    /// Takes a sample if it is time.
    pub(super) fn look(&mut self, now: Time, model: Picos, switches: &Switches<u32>) {
        if let (Some(began), Some(recorder)) = (self.began, &mut self.recorder)
            && began + recorder.due() <= now
        {
            recorder.sample(now.since(began), model, switches);
        }
    }

    /// When something is to be done without a packet's coming.
    pub(super) fn next(&self) -> Option<Time> {
        let Some(began) = self.began else { return self.given_up };
        let event = self.timeline.events().get(self.next).map(|(at, _)| began + *at);
        let sample = self.recorder.as_ref().map(|recorder| began + recorder.due());
        event.into_iter().chain(sample).min()
    }

    /// All that happened.
    pub(super) const fn history(&self) -> &Timeline {
        &self.happened
    }

    /// The record, if one was wanted.
    pub(super) const fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_was_refused_a_host_is_given_up_when_nothing_comes() {
        let (start, end) = (Time(1), Time(1) + PATIENCE);
        let mut state = RunState::new(Timeline::default(), false);
        assert!(state.next().is_none() && !state.is_stuck(end));
        state.refused(start);
        state.refused(start + Span::secs(3));
        assert_eq!(state.next(), Some(end), "counted from the first");
        assert!(!state.is_stuck(end - Span(1)) && state.is_stuck(end));
        // It does without.
        state.entered(end, (0, 1), 100);
        assert!(state.next().is_none() && !state.is_stuck(end + PATIENCE));
        // Others may come to an emulator that is nobody's.
        let mut state = RunState::default();
        state.refused(start);
        assert!(state.next().is_none() && !state.is_stuck(end));
    }
}
