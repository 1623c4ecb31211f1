//! The course of a job over a fabric, from its first packet on: what happens by the timeline, and what is kept of it.

use super::recorder::Recorder;
use super::{Command, Timeline};
use crate::Picos;
use crate::base::Time;
use crate::model::Switches;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// When the first packet entered.
    began: Option<Time>,
    timeline: Timeline,
    /// The event of the timeline that comes next.
    next: usize,
    happened: Timeline,
    recorder: Option<Recorder>,
}

impl Course {
    /// With things to happen, and perhaps a record of how they go.
    pub(super) fn new(timeline: Timeline, record: bool) -> Self {
        let recorder = record.then(Recorder::default);
        Self { timeline, recorder, ..Self::default() }
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
        let began = self.began?;
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
