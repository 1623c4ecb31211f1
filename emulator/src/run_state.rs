//! State of the job that runs over an emulator: the timeline of changes, the record, and whether
//! the job can still send its first packet.

use super::recorder::Recorder;
use super::{Command, Timeline};
use squall_base::{Span, Time};
use squall_netsim::Picos;
use squall_netsim::model::Switches;

/// Time that a job may be idle after one of its ranks was refused. As a rule, that rank ends, and
/// the launcher ends the others within a second. On a busy machine MPICH's launcher sometimes does
/// not notice the end, and the other ranks would wait for ever.
const PATIENCE: Span = Span::secs(10);

/// State of the job that runs over an emulator.
#[derive(Debug, Default)]
pub(super) struct RunState {
    /// Time at which the first packet of the job entered the network.
    began: Option<Time>,
    timeline: Timeline,
    /// Index of the timeline's next event.
    next: usize,
    applied: Timeline,
    recorder: Option<Recorder>,
    /// True if the emulator serves one job and ends with it.
    serves_one_job: bool,
    /// Time at which a job with a refused endpoint is given up, unless a packet enters before.
    given_up: Option<Time>,
}

impl RunState {
    /// Creates the state of the one job that the emulator serves. `record` starts a recorder with that
    /// interval between samples.
    pub(super) fn new(timeline: Timeline, record: Option<Span>) -> Self {
        let recorder = record.map(Recorder::new);
        Self { timeline, recorder, serves_one_job: true, ..Self::default() }
    }

    /// Records that an endpoint was refused. If the emulator serves one job, this starts the time
    /// after which the job is given up.
    pub(super) fn refused(&mut self, now: Time) {
        if self.serves_one_job {
            self.given_up.get_or_insert(now + PATIENCE);
        }
    }

    /// Returns whether the job still waits for an endpoint that was refused.
    pub(super) fn is_stuck(&self, now: Time) -> bool {
        self.began.is_none() && self.given_up.is_some_and(|at| at <= now)
    }

    /// Records that a packet of `bytes` bytes entered the network.
    pub(super) fn entered(&mut self, now: Time, pair: (u32, u32), bytes: u64) {
        // In virtual time packets enter in the order in which the processes happen to run.
        self.began = Some(self.began.map_or(now, |began| began.min(now)));
        if let Some(recorder) = &mut self.recorder {
            recorder.entered(pair, bytes);
        }
    }

    /// Returns the next command of the timeline that is due. Before the first packet, only events
    /// at time 0 are due.
    pub(super) fn due(&mut self, now: Time) -> Option<Command> {
        let (at, command) = self.timeline.events().get(self.next)?;
        let due = self.began.map_or(at.0 == 0, |began| began + *at <= now);
        due.then(|| {
            self.next += 1;
            command.clone()
        })
    }

    /// Records a command that was applied, from the timeline or from a user.
    pub(super) fn record_command(&mut self, now: Time, command: Command) {
        let since = self.began.map_or_else(Default::default, |began| now.since(began));
        self.applied.add(since, command);
    }

    /// Takes a sample for the job's record if one is due.
    pub(super) fn sample_if_due(&mut self, now: Time, model: Picos, switches: &Switches<u32>) {
        if let (Some(began), Some(recorder)) = (self.began, &mut self.recorder)
            && began + recorder.due() <= now
        {
            recorder.sample(now.since(began), model, switches);
        }
    }

    /// Returns the next time at which the relay must act although no packet arrives: for the
    /// timeline, for the recorder, or to end a job that waits.
    pub(super) fn next(&self) -> Option<Time> {
        let Some(began) = self.began else { return self.given_up };
        let event = self.timeline.events().get(self.next).map(|(at, _)| began + *at);
        let sample = self.recorder.as_ref().map(|recorder| began + recorder.due());
        event.into_iter().chain(sample).min()
    }

    /// Returns the commands that were applied so far, with their times.
    pub(super) const fn history(&self) -> &Timeline {
        &self.applied
    }

    /// Returns the recorder of samples, if the job is recorded.
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
        let mut state = RunState::new(Timeline::default(), None);
        assert!(state.next().is_none() && !state.is_stuck(end));
        state.refused(start);
        state.refused(start + Span::secs(3));
        assert_eq!(state.next(), Some(end), "counted from the first");
        assert!(!state.is_stuck(end - Span(1)) && state.is_stuck(end));
        // The job goes on without the refused endpoint.
        state.entered(end, (0, 1), 100);
        assert!(state.next().is_none() && !state.is_stuck(end + PATIENCE));
        // An emulator that serves no particular job waits for other endpoints.
        let mut state = RunState::default();
        state.refused(start);
        assert!(state.next().is_none() && !state.is_stuck(end));
    }

    #[test]
    fn the_job_begins_with_the_earliest_packet_in_whatever_order_they_enter() {
        let mut state = RunState::new(Timeline::default(), Some(Span::micros(10)));
        state.entered(Time(500), (0, 1), 100);
        let first = state.next();
        let mut state = RunState::new(Timeline::default(), Some(Span::micros(10)));
        state.entered(Time(900), (1, 0), 100);
        state.entered(Time(500), (0, 1), 100);
        assert_eq!(state.next(), first);
    }
}
