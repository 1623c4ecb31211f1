//! Shutdown of an engine: what its user may wait for, and how its peers are notified.

use super::{Engine, step};
use crate::base::{Span, Time};
use crate::channel::ChannelId;
use crate::outbound::drop_untaken;

/// Time for which a peer that does not close its contexts on request may still retransmit its last
/// packets. Such peers retransmit within milliseconds, and soon give up.
const UNASKED_PATIENCE: Span = Span::millis(200);

/// The shutdown of an engine at a given time. The user may wait until [`Engine::is_idle`], as long as
/// [`Shutdown::last_rx`] shows that peers are alive, and may drop sends that no receive will take
/// ([`Shutdown::drop_unmatched_sends`]). Calls of [`Shutdown::step`] follow.
#[derive(Debug)]
pub struct Shutdown<'a> {
    engine: &'a mut Engine,
    now: Time,
}

impl<'a> Shutdown<'a> {
    pub(super) const fn new(engine: &'a mut Engine, now: Time) -> Self {
        Self { engine, now }
    }

    /// Returns when any peer with open operations was last heard; [`Time::ZERO`] if there is none
    /// or none was ever heard.
    #[must_use]
    pub fn last_rx(&self) -> Time {
        let Engine { outbound, peers, .. } = &*self.engine;
        let signs = outbound.ops().peers().map(|peer| peers.get(peer).last_rx());
        signs.max().unwrap_or(Time::ZERO)
    }

    /// Drops sends that have arrived and that no receive has taken, without a completion
    /// (fi_endpoint(3), fi_close), because the user waits no longer for receives of its peers.
    /// Sends that completed when they were copied stay.
    pub fn drop_unmatched_sends(&mut self) {
        drop_untaken(&mut self.engine.outbound, &mut step!(self.engine, self.now));
        self.engine.drain_events(self.now);
    }

    /// Starts an orderly shutdown or continues it. Contexts without open operations close, and
    /// peers are asked to close theirs; the other contexts close when they become idle. Keep
    /// calling `handle_*` and `poll_*` until [`Engine::contexts`] is empty, or until a time limit
    /// of your choice.
    ///
    /// Returns whether a peer may still need this endpoint: its last packets may be unacknowledged,
    /// so that it would retransmit them. Such a peer was heard a short time ago, and its host has
    /// not reported it gone.
    pub fn step(&mut self) -> bool {
        let Self { engine, now } = self;
        let now = *now;
        // Operations that are in flight may have to be offered again on the same context.
        let used = engine.outbound.ops().contexts();
        let idle = engine.contexts.iter().filter(|c| !used.contains(&c.id));
        let ids: Vec<ChannelId> = idle.map(|c| c.id).collect();
        for id in &ids {
            match *id {
                ChannelId::Context(id) => engine.pdcs.close(now, id),
                ChannelId::Shm(id) => engine.shm().send_close_notification(id),
            }
        }
        engine.drain_events(now);
        // A peer that waits for an acknowledgement retransmits at least once within this time.
        let config = engine.pdcs.config();
        let patience =
            if config.dialect.asks_close { config.rto_max * 2 } else { UNASKED_PATIENCE };
        ids.iter().filter(|id| matches!(id, ChannelId::Context(_))).any(|id| {
            let peer = engine.contexts.get(*id).map(|context| engine.peers.get(context.peer));
            peer.is_some_and(|peer| !peer.is_refused() && now.since(peer.last_rx()) < patience)
        })
    }
}
