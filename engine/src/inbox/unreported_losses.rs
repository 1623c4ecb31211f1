//! Reports to receives when a peer is given up. Receives that name the peer fail. A loss that no
//! other operation reported is reported by a receive that may have waited for the peer.

use super::Inbox;
use super::recv::failed_completion;
use crate::completion::{Completion, OpError};
use crate::matching::PostedRecv;
use crate::operation::PeerId;
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

    /// Returns the lost peers whose loss no receive has reported yet.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.0.iter().map(|(peer, _)| *peer)
    }

    /// Fails a receive that is about to be posted if a loss must be reported by it, or if it names
    /// a peer that is known to be dead. Returns whether it did.
    #[inline]
    pub(super) fn report_to(&mut self, step: &mut Step<'_>, recv: &PostedRecv) -> bool {
        if let Some(peer) = recv.wanted.source
            && step.peers.get(peer).is_dead()
        {
            step.report.complete(lost_peer_completion(recv, peer, OpError::TimedOut));
            return true;
        }
        if self.0.is_empty() {
            return false;
        }
        let may_wait_for = |peer| recv.wanted.source.is_none_or(|source| source == peer);
        let found = self.0.iter().position(|(peer, _)| may_wait_for(*peer));
        let Some((peer, error)) = found.map(|at| self.0.remove(at)) else { return false };
        step.report.complete(lost_peer_completion(recv, peer, error));
        true
    }
}

impl Inbox {
    /// Handles the loss of a peer. Receives that name it fail, unless they may mean the instance
    /// that has taken its place. If the peer died and operations were lost since `before` that were
    /// complete when they were copied, and no other entry reported a loss, then one undirected
    /// receive fails to report it.
    pub(crate) fn fail_receives(
        &mut self,
        step: &mut Step<'_>,
        peer: PeerId,
        error: OpError,
        before: Losses,
    ) {
        if error != OpError::PeerRestarted || step.peers.get(peer).named_instance().is_some() {
            for recv in self.posted.take_directed(peer) {
                step.report.complete(lost_peer_completion(&recv, peer, error));
            }
        }
        // A peer that closed its endpoint or was replaced may well have received enough: a spawned
        // process that has ended, for example. A receive from other peers must not fail for that.
        let died = matches!(error, OpError::TimedOut | OpError::Unreachable);
        if !died || !step.report.losses().has_unreported(before) {
            return;
        }
        match self.posted.take_undirected() {
            Some(recv) => step.report.complete(lost_peer_completion(&recv, peer, error)),
            None => self.unreported.add(peer, error),
        }
    }

    /// Returns the peers that posted receives name as their source.
    pub(crate) fn awaited_peers(&self) -> Vec<PeerId> {
        self.posted.source_peers()
    }
}

/// Returns the completion of a receive that fails because of a lost peer.
fn lost_peer_completion(recv: &PostedRecv, peer: PeerId, error: OpError) -> Completion {
    Completion { peer: Some(peer), ..failed_completion(recv, error) }
}
