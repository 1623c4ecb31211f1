//! What a part of the engine may use while it works.

use crate::api::PeerId;
use crate::base::Time;
use crate::config::Config;
use crate::contexts::Contexts;
use crate::introductions::Introductions;
use crate::liveness::Liveness;
use crate::ops::Part;
use crate::peers::Peers;
use crate::reliability::{PdcId, Pdcs, PeerKey};
use crate::report::Report;

/// The parts that every other part needs, lent for one call.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) peers: &'a Peers,
    pub(crate) pdcs: &'a mut Pdcs<Part>,
    pub(crate) contexts: &'a mut Contexts,
    pub(crate) report: &'a mut Report,
    pub(crate) liveness: &'a mut Liveness,
    pub(crate) introductions: &'a mut Introductions,
}

impl Step<'_> {
    /// Something is owed to us from now on.
    #[inline]
    pub(crate) fn watch(&mut self) {
        self.liveness.watch(self.now);
    }

    /// The context we opened to a peer, opened now if there is none.
    #[inline]
    pub(crate) fn context_to(&mut self, peer: PeerId) -> Option<PdcId> {
        if let Some(id) = self.contexts.to(peer) {
            return Some(id);
        }
        self.open(peer)
    }

    #[cold]
    fn open(&mut self, peer: PeerId) -> Option<PdcId> {
        let (id, state) = (self.pdcs.open(self.now, PeerKey(peer.0))?, self.peers.get(peer));
        let addr = state.addr();
        self.contexts.add(id, peer, (addr, self.peers.paths.get(addr.ip())), true);
        if !self.pdcs.admissions().knows(PeerKey(peer.0)) {
            self.introductions.ask(self.now, self.config, peer, state);
        }
        Some(id)
    }

    /// Whether a peer has ever answered.
    #[inline]
    pub(crate) fn is_known(&self, peer: PeerId) -> bool {
        self.peers.get(peer).has_answered()
    }
}
