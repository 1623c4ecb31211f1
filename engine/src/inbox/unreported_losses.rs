//! What receives learn of a peer that was given up: those that name it end, and a loss that no other
//! operation told is told to a receive that may have waited for the peer.

use super::Inbox;
use super::recv::ended;
use crate::api::{Completion, OpError, PeerId};
use crate::matching::PostedRecv;
use crate::report::Losses;
use crate::step::Step;

/// Losses that are not reported to the user yet: at most one for each peer that was given up.
#[derive(Debug, Default)]
pub(super) struct UnreportedLosses(Vec<(PeerId, OpError)>);

impl UnreportedLosses {
    fn add(&mut self, peer: PeerId, error: OpError) {
        self.0.retain(|(other, _)| *other != peer);
        self.0.push((peer, error));
    }

    /// Peers whose losses are to be told.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.0.iter().map(|(peer, _)| *peer)
    }

    /// Ends a receive that is about to be posted, if it has a loss to tell, or names a peer that is known to be dead.
    /// Whether it had.
    #[inline]
    pub(super) fn told_by(&mut self, step: &mut Step<'_>, recv: &PostedRecv) -> bool {
        if let Some(peer) = recv.wanted.source
            && step.peers.get(peer).is_dead()
        {
            step.report.complete(lost(recv, peer, OpError::TimedOut));
            return true;
        }
        if self.0.is_empty() {
            return false;
        }
        let may_wait_for = |peer| recv.wanted.source.is_none_or(|source| source == peer);
        let found = self.0.iter().position(|(peer, _)| may_wait_for(*peer));
        let Some((peer, error)) = found.map(|at| self.0.remove(at)) else { return false };
        step.report.complete(lost(recv, peer, error));
        true
    }
}

impl Inbox {
    /// A peer was given up. Receives that name it end, unless they may mean the instance that has taken its
    /// place. What a dead one has not got of operations that were complete when copied, or that
    /// leave no entry, is told to a receive from anybody if nothing else has told it since `before`.
    pub(crate) fn give_up(
        &mut self,
        step: &mut Step<'_>,
        peer: PeerId,
        error: OpError,
        before: Losses,
    ) {
        if error != OpError::PeerRestarted || step.peers.get(peer).expected().is_some() {
            for recv in self.posted.take_directed(peer) {
                step.report.complete(lost(&recv, peer, error));
            }
        }
        // Who closed its endpoint, or was replaced, may well have had enough of what was sent to it: a process that
        // was spawned, and ended. A receive for others is not to fail for that.
        let died = matches!(error, OpError::TimedOut | OpError::Unreachable);
        if !died || !step.report.losses().has_untold(before) {
            return;
        }
        match self.posted.take_undirected() {
            Some(recv) => step.report.complete(lost(&recv, peer, error)),
            None => self.untold.add(peer, error),
        }
    }

    /// Peers that receives name.
    pub(crate) fn awaited_peers(&self) -> Vec<PeerId> {
        self.posted.sources()
    }
}

/// The completion of a receive that names the peer of which nothing will come.
fn lost(recv: &PostedRecv, peer: PeerId, error: OpError) -> Completion {
    Completion { peer: Some(peer), ..ended(recv, error) }
}
