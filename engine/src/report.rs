//! Everything that the user sees: completions of operations in the order in which they ended,
//! notices that belong to no operation, and counters.

use std::collections::VecDeque;

use crate::access_groups::{AccessGroups, GroupTag, PeerAccess};
use crate::base::RegionId;
use crate::completion::{Completion, Notice, OpError, OpKind};
use crate::counters::Counters;
use crate::operation::{MatchSpace, PeerId, Visibility};

/// Largest number of notices kept until the user takes them. Later ones are dropped.
const MAX_NOTICES: usize = 64;

/// Numbers of failed operations, by whether the user sees an entry for the failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Losses {
    /// Number of failed operations whose failure was reported by an error entry.
    shown: u64,
    /// Number of failed operations without an error entry, because they completed when they were
    /// copied.
    hidden: u64,
}

impl Losses {
    /// Returns whether operations were lost since `before` without any entry that reports an error.
    pub(crate) const fn has_unreported(self, before: Self) -> bool {
        self.hidden > before.hidden && self.shown == before.shown
    }
}

/// The completions, notices and counters of an endpoint, until the user takes them.
#[derive(Debug, Default)]
pub(crate) struct Report {
    completions: VecDeque<Completion>,
    notices: VecDeque<Notice>,
    losses: Losses,
    access_groups: AccessGroups,
    pub(crate) counters: Counters,
}

impl Report {
    /// Reports the end of an operation by a completion.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        match completion.status {
            Ok(()) => {}
            // A peek that found nothing is an answer, not a failure.
            Err(OpError::NoMessage) => {}
            Err(error) => {
                self.counters.op_errors += 1;
                self.counters.op_cancelled += u64::from(error == OpError::Cancelled);
                self.losses.shown += 1;
            }
        }
        self.completions.push_back(completion);
    }

    /// Reports an access of a peer to registered memory: by an entry if it carries remote CQ data,
    /// and otherwise by a count.
    #[inline]
    pub(crate) fn complete_access(&mut self, peer: PeerId, access: PeerAccess) {
        let entry = if access.data.is_some() { Visibility::Entry } else { Visibility::CountOnly };
        self.complete_visible_access(peer, access, entry);
    }

    fn complete_visible_access(
        &mut self,
        peer: PeerId,
        access: PeerAccess,
        visibility: Visibility,
    ) {
        let PeerAccess { kind, region, len, data } = access;
        self.complete(Completion {
            context: 0,
            kind,
            space: MatchSpace::Untagged,
            len,
            buf: 0,
            data,
            tag: 0,
            peer: Some(peer),
            region,
            visibility,
            released: false,
            status: Ok(()),
        });
    }

    /// Records the end of one request of an operation of several ranges, and reports the operation if that was its last
    /// request. `outside` says that the peer is outside the job.
    #[cold]
    pub(crate) fn end_group_request(
        &mut self,
        (peer, outside): (PeerId, bool),
        tag: GroupTag,
        access: PeerAccess,
    ) {
        let ended = self.access_groups.end_request((peer, outside), tag, access);
        let Some((access, regions)) = ended else { return };
        self.complete_access(peer, PeerAccess { region: regions[0], ..access });
        for region in regions.into_iter().skip(1).filter(|region| *region != RegionId::LENT) {
            let also = PeerAccess { region, len: 0, data: None, ..access };
            self.complete_visible_access(peer, also, Visibility::RegionOnly);
        }
    }

    /// Returns the state of the operations of several ranges that peers have begun.
    pub(crate) const fn access_groups(&mut self) -> &mut AccessGroups {
        &mut self.access_groups
    }

    /// Returns the number of operations of several ranges of which some requests have ended.
    pub(crate) fn open_access_groups(&self) -> usize {
        self.access_groups.len()
    }

    /// Records the failure of an operation whose success was reported when its payload was copied.
    pub(crate) fn record_loss(&mut self, peer: PeerId, error: OpError) {
        self.counters.lost_after_completion += 1;
        self.losses.hidden += 1;
        self.push_notice(Notice::LostAfterCompletion { peer, error });
    }

    /// Returns the numbers of failed operations so far.
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

    /// Returns the completion that was reported last, if it waits to be taken.
    pub(crate) fn last_completion(&self) -> Option<&Completion> {
        self.completions.back()
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
