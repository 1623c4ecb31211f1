//! What a part of the engine may use while it works.

use crate::api::PeerId;
use crate::base::Time;
use crate::channel::ChannelId;
use crate::config::Config;
use crate::contexts::Contexts;
use crate::handshake::Handshakes;
use crate::links::Links;
use crate::links::frame::MAX_WHOLE;
use crate::liveness::Liveness;
use crate::ops::Part;
use crate::peers::Peers;
use crate::reliability::{Pdcs, PeerKey};
use crate::report::Report;

/// See [`Step::longest_eager`]. Bytes: what one frame carries.
const LINK_EAGER: u64 = MAX_WHOLE as u64;

/// The parts that every other part needs, lent for one call.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) peers: &'a Peers,
    pub(crate) pdcs: &'a mut Pdcs<Part>,
    pub(crate) contexts: &'a mut Contexts,
    pub(crate) links: &'a mut Links,
    pub(crate) report: &'a mut Report,
    pub(crate) liveness: &'a mut Liveness,
    pub(crate) handshakes: &'a mut Handshakes,
}

impl Step<'_> {
    /// Something is owed to us from now on.
    #[inline]
    pub(crate) fn watch(&mut self) {
        self.liveness.watch(self.now);
    }

    /// What the next operation to a peer travels on: a link, or the context we opened, opened now if there is none.
    #[inline]
    pub(crate) fn context_to(&mut self, peer: PeerId) -> Option<ChannelId> {
        if let Some(id) = self.contexts.to(peer) {
            return Some(id);
        }
        self.open(peer)
    }

    #[cold]
    fn open(&mut self, peer: PeerId) -> Option<ChannelId> {
        let (id, state) = (self.pdcs.open(self.now, PeerKey(peer.0))?, self.peers.get(peer));
        let addr = state.addr();
        let id = ChannelId::Context(id);
        self.contexts.add(id, peer, (addr, self.peers.paths.get(addr.ip())), true);
        if !self.pdcs.admissions().knows(PeerKey(peer.0)) {
            self.handshakes.ask(self.now, self.config, peer, state);
        }
        Some(id)
    }

    /// Nothing more is to come of a channel: its operations end, and the peer learns that it is gone.
    pub(crate) fn abort(&mut self, id: ChannelId) {
        match id {
            ChannelId::Context(id) => self.pdcs.abort(id),
            ChannelId::Link(id) => self.links.give_up(id),
        }
    }

    /// The longest message whose bytes are sent to a peer before it asks for them. Over a link it asks in no time, and
    /// fetches with one copy what otherwise is copied more often.
    #[inline]
    pub(crate) fn longest_eager(&self, peer: PeerId) -> u64 {
        let longest = self.config.rendezvous_threshold;
        if self.contexts.link_to(peer).is_some() { longest.min(LINK_EAGER) } else { longest }
    }

    /// Returns whether a peer is outside the job: the application has not inserted its address, and the peer has not
    /// proved that it knows the job's key. All such peers together have one share of each resource, so that they cannot
    /// take all of it from peers of the job.
    #[inline]
    pub(crate) fn is_outside(&self, peer: PeerId) -> bool {
        self.peers.is_outside(self.config, peer)
    }

    /// Whether a peer has ever answered.
    #[inline]
    pub(crate) fn is_known(&self, peer: PeerId) -> bool {
        self.peers.get(peer).has_answered()
    }
}
