//! The ends of contexts and peers: closed, failed, restarted, silent.

use super::Engine;
use crate::api::{OpError, PeerId};
use crate::base::Time;
use crate::messages::{Place, Pull};
use crate::ops::Work;
use crate::reliability::{PdcFailure, PdcId};

impl Engine {
    /// A context ended in good order. What was queued meanwhile moves to a new one.
    pub(super) fn context_closed(&mut self, now: Time, id: PdcId) {
        let Some(context) = self.remove_context(id) else { return };
        let peer = context.peer;
        for message in context.order.open() {
            self.break_message(now, message, OpError::Closed);
        }
        if !context.initiator {
            // Answers to a peer that does not want them any more.
            for op in context.queue {
                self.drop_answer(now, op, OpError::Closed);
            }
            return;
        }
        self.move_queue(now, peer, context.queue);
    }

    /// The context to a peer takes no more packets: what has not begun goes on another one.
    pub(super) fn reopen(&mut self, now: Time, id: PdcId) {
        let Some(context) = self.context_mut(id) else { return };
        let (peer, initiator) = (context.peer, context.initiator);
        if !initiator {
            return;
        }
        let queue = core::mem::take(&mut context.queue);
        if self.peers[peer.0 as usize].ours == Some(id) {
            self.peers[peer.0 as usize].ours = None;
        }
        self.move_queue(now, peer, queue);
    }

    fn move_queue(
        &mut self,
        now: Time,
        peer: PeerId,
        queue: impl IntoIterator<Item = u32, IntoIter: ExactSizeIterator>,
    ) {
        let queue = queue.into_iter();
        if queue.len() == 0 {
            return;
        }
        match self.context_to(now, peer) {
            Some(fresh) => {
                for op in queue {
                    self.queue_on(fresh, op);
                }
            }
            None => {
                for op in queue {
                    self.finish_op(now, op, Some(OpError::Closed));
                }
            }
        }
    }

    fn remove_context(&mut self, id: PdcId) -> Option<Box<super::Context>> {
        self.context(id)?;
        let context = self.contexts[id.index()].take()?;
        let peer = &mut self.peers[context.peer.0 as usize];
        if peer.ours == Some(id) {
            peer.ours = None;
        }
        if peer.theirs == Some(id) {
            peer.theirs = None;
        }
        Some(context)
    }

    /// A context failed: so does everything that needs its peer.
    pub(super) fn context_failed(&mut self, now: Time, id: PdcId, why: PdcFailure) {
        let Some(context) = self.remove_context(id) else { return };
        let error = match why {
            PdcFailure::Unreachable => OpError::Unreachable,
            PdcFailure::Silent => OpError::TimedOut,
            PdcFailure::PeerRestarted => OpError::PeerRestarted,
            PdcFailure::Forgotten | PdcFailure::Nacked(_) | PdcFailure::Aborted => OpError::Closed,
        };
        if !context.initiator && !matches!(why, PdcFailure::PeerRestarted) {
            // The peer stopped fetching answers. Its own requests are its own to report; the
            // messages it did not finish will not be.
            for message in context.order.open() {
                self.break_message(now, message, error);
            }
            let answers: Vec<u32> = self.ops_of(context.peer, |pdc, work| {
                pdc as usize == id.index() && matches!(work, Work::Response { .. })
            });
            for op in answers {
                self.drop_answer(now, op, error);
            }
            return;
        }
        // The context is not among the peer's any more, so its messages end here.
        for message in context.order.open() {
            self.break_message(now, message, error);
        }
        if error == OpError::Closed {
            // The peer lives, and so do its contexts to us: if they ended as well, and with them what
            // it sends there meanwhile, each end could go on failing the other's new contexts for ever.
            let index = id.index();
            let lost = self.ops_of(context.peer, |pdc, work| {
                pdc as usize == index && !matches!(work, Work::Group { .. })
            });
            self.fail_ops(now, lost, error);
            return;
        }
        self.fail_peer(now, context.peer, error);
    }

    /// An answer will not be heard. If it was part of a rendezvous, the receiver does not read on, or has
    /// read all and cannot be told apart from one that has not: nothing else would end the send.
    fn drop_answer(&mut self, now: Time, ix: u32, error: OpError) {
        let work = self.ops.get(ix).map(|op| op.work);
        self.ops.remove(ix);
        if let Some(Work::Response { source: Some((source, key)), .. }) = work
            && self
                .ops
                .get(source)
                .is_some_and(|op| matches!(op.work, Work::Rendezvous { nonce, .. } if nonce == key))
        {
            self.finish_op(now, source, Some(error));
        }
    }

    fn ops_of(&self, peer: PeerId, wanted: impl Fn(u32, &Work) -> bool) -> Vec<u32> {
        self.ops
            .indices()
            .filter(|&ix| {
                self.ops.get(ix).is_some_and(|op| op.peer == peer && wanted(op.pdc, &op.work))
            })
            .collect()
    }

    /// Ends every operation, every half-received message and every context of a peer.
    fn fail_peer(&mut self, now: Time, peer: PeerId, error: OpError) {
        self.peers[peer.0 as usize].hello = false;
        let contexts: Vec<PdcId> =
            self.contexts.iter().flatten().filter(|c| c.peer == peer).map(|c| c.id).collect();
        let mut open = Vec::new();
        for id in contexts {
            if let Some(context) = self.remove_context(id) {
                open.extend(context.order.open());
            }
            self.pdcs.abort(id);
        }
        for message in open {
            self.break_message(now, message, error);
        }
        // Groups end with their parts.
        let lost = self.ops_of(peer, |_, work| !matches!(work, Work::Group { .. }));
        self.fail_ops(now, lost, error);
    }

    /// Ends operations whose context is gone: their packets will not be sent again.
    fn fail_ops(&mut self, now: Time, lost: Vec<u32>, error: OpError) {
        for ix in lost {
            let Some(op) = self.ops.get_mut(ix) else { continue };
            op.in_flight = 0;
            if matches!(op.work, Work::Hello) {
                self.peers[op.peer.0 as usize].hello = false;
            }
            if op.over || matches!(op.work, Work::Hello | Work::Response { .. }) {
                self.ops.remove(ix);
            } else {
                self.finish_op(now, ix, Some(error));
            }
        }
    }

    /// The rest of a message will not come.
    pub(super) fn break_message(&mut self, now: Time, ix: u32, error: OpError) {
        let Some(message) = self.messages.get_mut(ix) else { return };
        message.broken = Some(error);
        match message.place {
            Place::User(_) => self.settle_message(now, ix),
            // Nobody has matched it. If a receive could see it, the receive will learn; if it was
            // still waiting for its turn, nobody ever will.
            Place::None | Place::Stash(_) if message.claimed.is_none() => {
                if !self.unexpected.holds(ix) {
                    self.forget_message(ix);
                }
            }
            Place::None | Place::Stash(_) => {}
            Place::Discard => self.forget_message(ix),
        }
    }

    /// The peer's address has come back as another instance.
    pub(super) fn peer_restarted(&mut self, now: Time, peer: PeerId) {
        self.pdcs.peer_restarted(crate::reliability::PeerKey(peer.0));
        self.drain_events(now);
        self.fail_peer(now, peer, OpError::PeerRestarted);
    }

    /// Whoever owes us bytes and has been silent is asked for a sign of life; the context's deadline
    /// does the rest. What is owed on a context of ours is asked for there: the peer may have given up on it
    /// and be talkative on others.
    pub(super) fn check_silent_peers(&mut self, now: Time) {
        let mut owing: Vec<PeerId> = Vec::new();
        let mut unsure: Vec<PdcId> = Vec::new();
        for ix in self.ops.indices() {
            if let Some(op) = self.ops.get(ix)
                && matches!(
                    op.work,
                    Work::Rendezvous { .. } | Work::Read { .. } | Work::Confirmed { .. }
                )
                && op.packed_all
                && op.in_flight == 0
                && !op.over
                && let Some(Some(context)) = self.contexts.get(op.pdc as usize)
            {
                unsure.push(context.id);
            }
        }
        let mut stalled: Vec<u32> = Vec::new();
        for ix in self.messages.indices() {
            let Some(message) = self.messages.get(ix) else { continue };
            if !message.arrived() && message.broken.is_none() {
                owing.push(message.peer);
            }
            if matches!(message.pull, Pull::Offered(_)) && matches!(message.place, Place::User(_)) {
                stalled.push(ix);
            }
        }
        // Reads that found no room for a context.
        for ix in stalled {
            self.pull(now, ix);
        }
        self.keepalive_at = None;
        if self.ops.len() + self.messages.len() > 0 {
            self.watch(now);
        }
        unsure.dedup();
        for id in unsure {
            let used = self.pdcs.last_used(id);
            if used.is_some_and(|used| now.since(used) >= self.config.keepalive) {
                self.hello_on(id);
            }
        }
        owing.sort_unstable();
        owing.dedup();
        for peer in owing {
            let silence = now.since(self.peers[peer.0 as usize].last_heard);
            if silence >= self.config.keepalive {
                self.hello(now, peer);
            }
        }
    }
}
