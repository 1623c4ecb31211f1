//! What the user will see: the completions of operations in the order in which they ended, notices that
//! belong to none, and counters.

use std::collections::VecDeque;

use crate::api::{Completion, MatchSpace, Notice, OpError, OpKind, PeerId, Visibility};
use crate::counters::Counters;

/// Notices kept until somebody takes them; of more, those that came first.
const MAX_NOTICES: usize = 64;

/// How many operations have failed, by whether the user is shown it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses {
    /// Their errors leave an entry.
    shown: u64,
    /// They were complete when they were copied, or they only count.
    hidden: u64,
}

impl Losses {
    /// Whether something was lost since `before` and nothing has shown it.
    pub(crate) const fn has_untold(self, before: Self) -> bool {
        self.hidden > before.hidden && self.shown == before.shown
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    completions: VecDeque<Completion>,
    notices: VecDeque<Notice>,
    losses: Losses,
    pub(crate) counters: Counters,
}

impl Report {
    /// The end of an operation.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        match completion.status {
            Ok(()) => {}
            // An answer to a question, not a failure.
            Err(OpError::NoMessage) => {}
            Err(_) => {
                self.counters.op_errors += 1;
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

    /// An operation whose end was reported when it was copied has failed.
    pub(crate) fn lose(&mut self, peer: PeerId, error: OpError) {
        self.counters.lost_after_completion += 1;
        self.losses.hidden += 1;
        self.notice(Notice::LostAfterCompletion { peer, error });
    }

    /// What has failed so far.
    pub(crate) const fn losses(&self) -> Losses {
        self.losses
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    /// Peers of which something is still to be told.
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
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The next completion in a matching space, whatever comes before it.
    pub(crate) fn next_of(&mut self, space: MatchSpace) -> Option<Completion> {
        let message = |done: &Completion| matches!(done.kind, OpKind::Send | OpKind::Recv);
        let at = self.completions.iter().position(|done| done.space == space && message(done))?;
        self.completions.remove(at)
    }

    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
