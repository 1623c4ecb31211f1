//! Everything that the user sees: completions of operations in the order in which they ended,
//! notices that belong to no operation, and counters.

use std::collections::VecDeque;

use crate::completion::{Completion, Notice, OpError, OpKind};
use crate::counters::Counters;
use crate::operation::{MatchSpace, PeerId, Visibility};

/// Largest number of notices kept until the user takes them. Later ones are dropped.
const MAX_NOTICES: usize = 64;

/// Numbers of failed operations, by whether the user sees an entry for the failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses {
    /// Failures with an error entry.
    shown: u64,
    /// Failures without an entry: operations that completed when they were copied, or that only
    /// count.
    hidden: u64,
}

impl Losses {
    /// Returns whether operations were lost since `before` without any entry that reports an error.
    pub(crate) const fn has_unreported(self, before: Self) -> bool {
        self.hidden > before.hidden && self.shown == before.shown
    }
}

/// The completions, notices and counters of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Report {
    completions: VecDeque<Completion>,
    notices: VecDeque<Notice>,
    losses: Losses,
    pub(crate) counters: Counters,
}

impl Report {
    /// Reports the end of an operation.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        match completion.status {
            Ok(()) => {}
            // A peek that found nothing is an answer, not a failure.
            Err(OpError::NoMessage) => {}
            Err(error) => {
                self.counters.op_errors += 1;
                self.counters.op_cancelled += u64::from(error == OpError::Cancelled);
                match completion.visibility {
                    Visibility::CountOnly => self.losses.hidden += 1,
                    Visibility::Entry | Visibility::ErrorEntry | Visibility::Kept => {
                        self.losses.shown += 1;
                    }
                }
            }
        }
        self.completions.push_back(completion);
    }

    /// Records the failure of an operation whose success was reported when it was copied.
    pub(crate) fn record_loss(&mut self, peer: PeerId, error: OpError) {
        self.counters.lost_after_completion += 1;
        self.losses.hidden += 1;
        self.push_notice(Notice::LostAfterCompletion { peer, error });
    }

    /// Returns the numbers of failures so far.
    pub(crate) const fn losses(&self) -> Losses {
        self.losses
    }

    pub(crate) fn push_notice(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    /// Returns the peers of completions and notices that the user has not taken. They must not be
    /// forgotten.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let noticed = self.notices.iter().filter_map(Notice::peer);
        self.completions.iter().filter_map(|done| done.peer).chain(noticed)
    }

    /// Returns the number of completions that wait to be taken.
    #[inline]
    pub(crate) fn completions(&self) -> usize {
        self.completions.len()
    }

    #[inline]
    pub(crate) fn pop_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Takes the next completion of a message in a matching space, even if others precede it.
    pub(crate) fn next_completion_of(&mut self, space: MatchSpace) -> Option<Completion> {
        let message = |done: &Completion| matches!(done.kind, OpKind::Send | OpKind::Recv);
        let at = self.completions.iter().position(|done| done.space == space && message(done))?;
        self.completions.remove(at)
    }

    pub(crate) fn pop_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
