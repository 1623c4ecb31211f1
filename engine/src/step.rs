//! The parts of an engine that other parts may use during a call.

use crate::access_groups::{GroupTag, PeerAccess};
use crate::base::Time;
use crate::channel::ChannelId;
use crate::config::Config;
use crate::contexts::Contexts;
use crate::handshake::Handshakes;
use crate::liveness::Liveness;
use crate::operation::PeerId;
use crate::ops::{Ops, TxOp};
use crate::packet_form::PacketForm;
use crate::part::Part;
use crate::peers::Peers;
use crate::reliability::{Pdcs, PeerKey};
use crate::report::Report;
use crate::shm::ShmChannels;
use crate::slab::Key;

/// The parts of an engine that its other parts need, borrowed for one call.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) peers: &'a Peers,
    pub(crate) pdcs: &'a mut Pdcs<Part>,
    pub(crate) contexts: &'a mut Contexts,
    pub(crate) shm: &'a mut ShmChannels,
    pub(crate) report: &'a mut Report,
    pub(crate) liveness: &'a mut Liveness,
    pub(crate) handshakes: &'a mut Handshakes,
}

impl Step<'_> {
    /// Starts the liveness timer, because a peer owes something from now on.
    #[inline]
    pub(crate) fn start_liveness_timer(&mut self) {
        self.liveness.start_timer(self.now);
    }

    /// Returns the channel for the next operation to a peer: the shared-memory channel, or the
    /// context that this endpoint opened. If there is neither, opens a context. Returns `None` if
    /// there is no room for one.
    #[inline]
    pub(crate) fn context_to(&mut self, peer: PeerId) -> Option<ChannelId> {
        if let Some(id) = self.contexts.channel_to(peer) {
            return Some(id);
        }
        self.open_context(peer)
    }

    #[cold]
    fn open_context(&mut self, peer: PeerId) -> Option<ChannelId> {
        let (id, state) = (self.pdcs.open(self.now, PeerKey(peer.0))?, self.peers.get(peer));
        let addr = state.addr();
        let id = ChannelId::Context(id);
        let form = PacketForm::new(self.config, state, true);
        self.contexts.add(id, peer, (addr, self.peers.paths.get(addr.ip()), form), true);
        if self.config.wire.is_none() && !self.pdcs.admissions().is_verified(PeerKey(peer.0)) {
            self.handshakes.start(self.now, self.config, peer, state);
        }
        Some(id)
    }

    /// Queues an operation of the engine itself on a channel.
    pub(crate) fn start(&mut self, ops: &mut Ops, id: ChannelId, mut op: TxOp) -> Key {
        op.context = Some(id);
        if op.work.is_answered() {
            self.start_liveness_timer();
        }
        let key = ops.add(op);
        self.contexts.enqueue(id, key);
        key
    }

    /// Reports that a peer's access to registered memory has ended, once for all requests of its
    /// operation.
    #[inline]
    pub(crate) fn report_access(&mut self, peer: PeerId, group: GroupTag, access: PeerAccess) {
        if group.is_none() {
            self.report.complete_access(peer, access);
        } else {
            let outside = self.is_outside(peer);
            self.report.end_group_request((peer, outside), group, access);
        }
    }

    /// Ends a channel: its operations fail, and the peer is notified.
    pub(crate) fn abort(&mut self, id: ChannelId) {
        match id {
            ChannelId::Context(id) => self.pdcs.abort(id),
            ChannelId::Shm(id) => self.shm.schedule_end(id),
        }
    }

    /// Returns whether a peer is outside the job: the application has not inserted its address, and the peer has not
    /// proved that it knows the job's key. All such peers together have one share of each resource, so that they cannot
    /// take all of it from peers of the job.
    #[inline]
    pub(crate) fn is_outside(&self, peer: PeerId) -> bool {
        self.peers.is_outside(self.config, peer)
    }

    /// Returns whether a peer has answered this endpoint at least once.
    #[inline]
    pub(crate) fn is_known(&self, peer: PeerId) -> bool {
        self.peers.get(peer).has_answered()
    }
}
