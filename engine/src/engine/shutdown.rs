//! The end of an engine: what its user waits for before, and how its peers learn of it.

use super::{Engine, step};
use crate::base::Time;
use crate::channel::ChannelId;
use crate::outbound::drop_untaken;

/// The end of an engine, at a time. Until [`Engine::idle`] its user may wait, for as long as
/// [`Shutdown::last_sign`] leaves hope, and give up what nobody will take ([`Shutdown::drop_untaken`]); then come the
/// [`Shutdown::step`]s.
#[derive(Debug)]
pub struct Shutdown<'a> {
    engine: &'a mut Engine,
    now: Time,
}

impl<'a> Shutdown<'a> {
    pub(super) const fn new(engine: &'a mut Engine, now: Time) -> Self {
        Self { engine, now }
    }

    /// When one of the peers of open operations was last heard; [`Time::ZERO`] when none was, or none is open.
    #[must_use]
    pub fn last_sign(&self) -> Time {
        let Engine { outbound, peers, .. } = &*self.engine;
        let signs = outbound.ops().peers().map(|peer| peers.get(peer).last_rx());
        signs.max().unwrap_or(Time::ZERO)
    }

    /// The user waits no longer for receives of its peers: sends that have arrived and that no receive has taken are
    /// dropped without a completion (fi_endpoint(3), fi_close). Those that were complete when they were copied stay.
    pub fn drop_untaken(&mut self) {
        drop_untaken(&mut self.engine.outbound, &mut step!(self.engine, self.now));
        self.engine.drain_events(self.now);
    }

    /// Starts an orderly end, or goes on with it: contexts close on which no operation is open, peers are asked to close
    /// theirs; others do when they are idle. Keep calling `handle_*` and `poll_*` until [`Engine::contexts`] is empty, or
    /// for as long as seems right.
    ///
    /// Whether a peer may still need this endpoint: it has not answered yet, so what it sent last may be unconfirmed, and
    /// it would send that again, for it was heard not long ago and its host does not say that it is gone.
    pub fn step(&mut self) -> bool {
        let Self { engine, now } = self;
        let now = *now;
        // What is on its way may have to be offered on the same context.
        let used = engine.outbound.ops().contexts();
        let idle = engine.contexts.iter().filter(|c| !used.contains(&c.id));
        let ids: Vec<ChannelId> = idle.map(|c| c.id).collect();
        for id in &ids {
            match *id {
                ChannelId::Context(id) => engine.pdcs.close(now, id),
                ChannelId::Link(id) => engine.links().part(id),
            }
        }
        engine.drain_events(now);
        // Whoever waits for an acknowledgement sends again by then, once at least.
        let patience = engine.pdcs.config().rto_max * 2;
        ids.iter().filter(|id| matches!(id, ChannelId::Context(_))).any(|id| {
            let peer = engine.contexts.get(*id).map(|context| engine.peers.get(context.peer));
            peer.is_some_and(|peer| !peer.is_refused() && now.since(peer.last_rx()) < patience)
        })
    }
}
