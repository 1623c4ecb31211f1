//! Teardown of contexts and peers that closed, failed, restarted or fell silent.

use std::collections::BTreeSet;

use super::{Engine, step};
use crate::base::{Span, Time};
use crate::channel::{ChannelId, ShmId};
use crate::completion::{Notice, OpError, WaitLimit};
use crate::contexts::Context;
use crate::liveness::{LONG_SILENCE, Liveness, REFUSED_DEADLINE, SilenceTimes};
use crate::operation::PeerId;
use crate::outbound::report_lost_short;
use crate::peers::{DestinationError, Peers};
use crate::reliability::{PdcFailure, PdcId, PeerKey};
use crate::report::Losses;

/// Largest number of peers on the host of a silent peer that are asked for a sign of life at a
/// time.
const MOST_ASKED: usize = 4;

/// An engine and the time, for ending operations, channels and peers.
pub(super) struct Teardown<'a> {
    engine: &'a mut Engine,
    now: Time,
}

impl Teardown<'_> {
    /// Removes a channel and everything kept for it, except the operations queued on it, which the
    /// caller handles.
    fn remove_context(&mut self, id: ChannelId, error: OpError) -> Option<Box<Context>> {
        let context = self.engine.contexts.remove(id)?;
        if let ChannelId::Shm(id) = id
            && let Some(shm) = self.engine.shm.remove(id)
        {
            report_lost_short(
                &mut step!(self.engine, self.now),
                shm.peer,
                shm.into_unacknowledged(),
                error,
            );
        }
        if let ChannelId::Context(id) = id {
            self.engine.outbound.forget_fragments(id);
        }
        self.engine.target.close(id);
        self.engine.message_ids.close(id);
        self.engine.write_ids.close(id);
        self.engine.inbox.close_stream(&mut step!(self.engine, self.now), id, error);
        Some(context)
    }

    /// Handles a context that the peer or this endpoint closed in good order.
    pub(super) fn handle_context_closed(&mut self, id: PdcId) {
        if let Some(context) = self.remove_context(id.into(), OpError::Closed) {
            self.engine.outbound.handle_context_closed(&mut step!(self.engine, self.now), *context);
        }
    }

    /// Handles the failure of a context. Depending on the reason, everything that needs its peer
    /// fails as well.
    pub(super) fn handle_context_failed(&mut self, id: PdcId, why: PdcFailure) {
        let error = match why {
            PdcFailure::Unreachable => OpError::Unreachable,
            PdcFailure::Silent => OpError::TimedOut,
            PdcFailure::PeerRestarted => OpError::PeerRestarted,
            PdcFailure::Forgotten
            | PdcFailure::Nacked(_)
            | PdcFailure::Malformed
            | PdcFailure::Aborted => OpError::Closed,
        };
        let channel = ChannelId::Context(id);
        let Some(peer) = self.engine.contexts.get(channel).map(|context| context.peer) else {
            return;
        };
        let refused = error == OpError::Unreachable && self.engine.handshakes.is_unlisted(peer);
        let error = if refused { OpError::NotListed } else { error };
        let before = self.engine.report.losses();
        let Some(context) = self.remove_context(channel, error) else { return };
        if !context.initiator && error != OpError::PeerRestarted {
            // The peer stopped fetching answers. The peer reports the failure of its own requests;
            // the messages that it did not finish are not reported.
            self.engine.outbound.drop_answers(&mut step!(self.engine, self.now), channel, error);
        } else if error == OpError::Closed {
            // The peer lives, and so do its contexts to this endpoint. If those ended too, with
            // everything the peer sends on them meanwhile, each end could go on failing the other's
            // new contexts for ever.
            self.engine.outbound.fail_selected(&mut step!(self.engine, self.now), error, |op| {
                op.context == Some(channel)
            });
        } else {
            self.end_peer(context.peer, error, before);
        }
    }

    /// Handles a packet for which the peer has sent no answer for the time `waited`.
    pub(super) fn handle_unanswered_packet(&mut self, id: PdcId, waited: Span) {
        let Some(context) = self.engine.contexts.get(id.into()) else { return };
        let peer = context.peer;
        let state = self.engine.peers.get(peer);
        let heeded = self.engine.config.wire.is_none_or(|wire| wire.heeds_refusals);
        if heeded && waited >= REFUSED_DEADLINE && state.is_refused() {
            let met = state.has_answered();
            self.fail_peer(peer, if met { OpError::TimedOut } else { OpError::Unreachable });
            return;
        }
        let Engine { config, handshakes, peers, .. } = &mut *self.engine;
        let state = peers.get(peer);
        if config.encrypts && state.is_verified() {
            // A peer that has forgotten this endpoint drops its encrypted packets without an answer.
            handshakes.renew(self.now, config, peer, state);
        }
        let (limit, longest) = self.wait_limit(peer, waited);
        self.engine.pdcs.set_patience(self.now, id, longest);
        self.report_silence(peer, waited, limit);
    }

    /// Returns the limit of the wait for a peer that has not answered for `waited`. Asks other endpoints on its host for
    /// a sign of life where the limit depends on them.
    fn wait_limit(&mut self, peer: PeerId, waited: Span) -> (WaitLimit, Span) {
        let Engine { config, peers, pdcs, .. } = &*self.engine;
        let times = SilenceTimes::new(config, pdcs.config().progress_deadline);
        if !times.depends_on_host(waited) {
            return times.limit(false);
        }
        let host = peers.get(peer).addr().ip();
        let others = peers.others_at(host, peer);
        let heard_within = |age: Span| {
            others.iter().any(|other| self.now.since(peers.get(*other).last_rx()) < age)
        };
        let answers = config.host == Some(host) || heard_within(times.host_answers_for());
        // The other peers are asked before the deadline, and repeatedly as long as this peer is
        // silent.
        if !heard_within(times.host_asked_after()) {
            let step = &mut step!(self.engine, self.now);
            for other in others.into_iter().take(MOST_ASKED) {
                if let Some(id) = step.context_to(other) {
                    self.engine.outbound.ask_for_sign_of_life(step, id);
                }
            }
        }
        times.limit(answers)
    }

    /// Returns whether the engine still waits for the rest of a message whose sender has been silent for long, because
    /// the sender's process is probably stopped.
    fn is_awaited(&mut self, peer: PeerId, channel: ChannelId) -> bool {
        match channel {
            ChannelId::Shm(id) => self.engine.shm.get(id).is_some_and(|shm| shm.watched),
            ChannelId::Context(_) => {
                let silent = self.now.since(self.engine.peers.get(peer).last_rx());
                let (limit, longest) = self.wait_limit(peer, silent);
                limit == WaitLimit::HostAnswers && silent < longest
            }
        }
    }

    /// Reports the silence of a peer that owes an answer, if the silence is long enough.
    pub(super) fn report_silence(&mut self, peer: PeerId, since: Span, limit: WaitLimit) {
        if since >= LONG_SILENCE && self.engine.peers.get_mut(peer).should_report_silence(self.now)
        {
            self.engine.report.push_notice(Notice::Silent { peer, since, limit });
        }
    }

    /// Ends every operation, every half-received message and every context of a peer, and the receives that
    /// wait for it.
    pub(super) fn fail_peer(&mut self, peer: PeerId, error: OpError) {
        let before = self.engine.report.losses();
        self.end_peer(peer, error, before);
    }

    /// Implements [`Self::fail_peer`] for a caller whose earlier steps may have reported failures
    /// since `before`.
    fn end_peer(&mut self, peer: PeerId, error: OpError, before: Losses) {
        let of_peer = self.engine.contexts.iter().filter(|c| c.peer == peer);
        let ids: Vec<ChannelId> = of_peer.map(|c| c.id).collect();
        for id in ids {
            self.remove_context(id, error);
            if let ChannelId::Context(id) = id {
                self.engine.pdcs.abort(id);
            }
        }
        self.engine.inbox.abort_offers_of(&mut step!(self.engine, self.now), peer, error);
        self.engine.contexts.set_question_open(peer, false);
        self.engine.report.access_groups().forget(peer);
        // The peer must be verified again.
        self.engine.pdcs.admissions().forget(PeerKey(peer.0));
        self.engine.peers.get_mut(peer).forget_instance();
        self.engine
            .outbound
            .fail_selected(&mut step!(self.engine, self.now), error, |op| op.peer == peer);
        self.engine.inbox.fail_receives(&mut step!(self.engine, self.now), peer, error, before);
    }

    /// Handles the end of a shared-memory channel. If the peer closed it, nothing else of the peer
    /// ends; otherwise the peer is gone.
    pub(super) fn handle_shm_end(&mut self, id: ShmId, error: OpError) {
        let Some(shm) = self.engine.shm.get(id) else { return };
        let (peer, parting) = (shm.peer, shm.peer_closed);
        if error != OpError::Closed {
            self.fail_peer(peer, error);
            // Perhaps no operation waited for the peer, but later receives may name it.
            self.engine.peers.get_mut(peer).mark_dead();
            self.engine.peers.release_address(peer);
            return;
        }
        let open = |engine: &Engine| (engine.outbound.ops().len(), engine.report.losses());
        let before = open(self.engine);
        let Some(context) = self.remove_context(ChannelId::Shm(id), error) else { return };
        if parting {
            self.engine.peers.get_mut(peer).record_close(self.now);
            self.engine.peers.release_address(peer);
        }
        let step = &mut step!(self.engine, self.now);
        self.engine.outbound.handle_shm_closed(step, *context, error);
        let lost = open(self.engine) != before;
        let step = &mut step!(self.engine, self.now);
        if lost && let Some(id) = step.contexts.opened_context_to(peer) {
            // The context that existed before the shared-memory channel is older than the reason
            // for the close. If the peer has forgotten this endpoint, the context is gone there as
            // well. Later operations must not fail for a failure that was reported already.
            self.engine.outbound.requeue_unstarted(step, id);
            self.engine.pdcs.close(self.now, id);
        }
    }

    /// Fails peers that do not take the records that were sent to them. A peer whose process the kernel watches is
    /// exempt: the kernel will report when that process ends.
    pub(super) fn check_slow_channels(&mut self) {
        let deadline = self.engine.pdcs.config().progress_deadline;
        let slow = self.engine.shm.take_slow(self.now, LONG_SILENCE.min(deadline), deadline);
        for (id, waited) in slow {
            let Some(shm) = self.engine.shm.get(id) else { continue };
            let (peer, watched) = (shm.peer, shm.watched);
            if watched {
                self.report_silence(peer, waited, WaitLimit::ProcessLives);
            } else if waited >= deadline {
                self.fail_peer(peer, OpError::TimedOut);
            } else {
                self.report_silence(peer, waited, WaitLimit::Deadline);
            }
        }
    }

    /// Handles a handshake in which another instance has answered at the peer's address.
    pub(super) fn handle_peer_restart(&mut self, peer: PeerId) {
        let addr = self.engine.peers.get(peer).addr();
        self.engine.handshakes.end_secrets(&self.engine.config, addr);
        self.engine.pdcs.peer_restarted(PeerKey(peer.0));
        self.engine.drain_events(self.now);
        self.fail_peer(peer, OpError::PeerRestarted);
        self.engine.drain_events(self.now);
    }
}

impl Engine {
    /// Returns the view of the engine that ends operations, channels and peers.
    pub(super) const fn teardown(&mut self, now: Time) -> Teardown<'_> {
        Teardown { engine: self, now }
    }

    /// Excludes the time since the earliest due timeout from all waits for peers, because this
    /// process did not run and could not hear them.
    #[cold]
    pub(super) fn exclude_absence(&mut self, now: Time) {
        let Some(due) = self.poll_timeout() else { return };
        let absent = self.pdcs.exclude_absence(now, due);
        self.handshakes.exclude_absence(now, absent);
        self.inbox.exclude_absence(now, absent);
        self.shm.exclude_absence(now, absent);
    }

    /// Ends every operation, and every receive that names a peer, because this endpoint has lost
    /// its network for good. `errno` is the system's error number.
    pub fn handle_isolation(&mut self, now: Time, errno: i32) {
        for peer in self.peers.ids() {
            let state = self.peers.get(peer);
            let error = if state.has_answered() { OpError::TimedOut } else { OpError::Unreachable };
            self.peers.record_destination_error(
                now,
                DestinationError { errno, peer: self.peers.get(peer).addr() },
            );
            self.teardown(now).fail_peer(peer, error);
        }
    }

    /// Asks silent peers for signs of life. A peer that owes the end of an operation is asked
    /// whether it knows the operation. A silent peer that owes packets of a message, or that a
    /// receive names, is asked for a sign of life. If it does not answer, the context's deadline
    /// ends the wait.
    pub(super) fn check_silent_peers(&mut self, now: Time) {
        self.inbox.retry_pulls();
        self.drain_events(now);
        self.outbound.start_all_unblocked(&mut step!(self, now));
        let awaited = self.inbox.awaited_peers();
        if self.outbound.ops().len() + self.inbox.pending().len() + awaited.len() > 0 {
            self.liveness.start_timer(now);
        }
        let times = SilenceTimes::new(&self.config, self.pdcs.config().progress_deadline);
        for id in self.inbox.stalled_channels(now, times.until_message_stalls()) {
            let peer = self.contexts.get(id).map(|context| context.peer);
            let waits = peer.is_some_and(|peer| self.teardown(now).is_awaited(peer, id));
            if !waits {
                step!(self, now).abort(id);
            }
        }
        self.drain_events(now);
        if self.config.wire.is_some() {
            self.fail_silent_peers(now);
        }
        self.outbound.ask_about_owed(&mut step!(self, now));
        let (owing, seldom) = (self.inbox.pending().owing_peers(), times.until_question());
        for peer in select_silent_peers(now, &self.peers, &self.liveness, owing, awaited, seldom) {
            let mut step = step!(self, now);
            if let Some(id) = step.context_to(peer) {
                self.outbound.ask_for_sign_of_life(&mut step, id);
            }
        }
    }
}

/// Selects the peers to ask for a sign of life: silent peers that owe something, and silent peers
/// that receives name. The latter promised nothing and may have nothing to send for hours, so they
/// are asked only after a silence of `seldom`. A peer that was never heard may not have started yet
/// and is not asked.
fn select_silent_peers(
    now: Time,
    peers: &Peers,
    liveness: &Liveness,
    owing: Vec<PeerId>,
    awaited: Vec<PeerId>,
    seldom: Span,
) -> BTreeSet<PeerId> {
    let since = |peer: &PeerId| peers.get(*peer).last_rx();
    let owing = owing.into_iter().filter(|peer| liveness.is_silent(now, since(peer)));
    let met = awaited.into_iter().filter(|peer| peers.get(*peer).has_answered());
    let awaited = met.filter(|peer| now.since(since(peer)) >= seldom);
    owing.chain(awaited).collect()
}
