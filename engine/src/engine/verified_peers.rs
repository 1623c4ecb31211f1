//! Membership of peers in the application's address vector, and eviction of idle peers.

use core::net::SocketAddr;

use super::Engine;
use crate::base::{Instance, Time};
use crate::completion::OpError;
use crate::reliability::PeerKey;

impl Engine {
    /// Replaces the set of peers that the user named. Later operations may name further ones. If
    /// only named peers are admitted ([`crate::Config::named_only`]), all communication with other
    /// peers ends.
    pub fn name_peers(
        &mut self,
        now: Time,
        names: impl IntoIterator<Item = (SocketAddr, Option<Instance>)>,
    ) {
        let mut former = self.peers.clear_names();
        for peer in &former {
            let outside = self.peers.is_outside(&self.config, *peer);
            self.pdcs.admissions().set_outside(PeerKey(peer.0), outside);
        }
        for (addr, instance) in names {
            self.peer_at(addr, instance);
        }
        if self.config.named_only {
            former.retain(|peer| !self.peers.get(*peer).is_named());
            for peer in former {
                self.teardown(now).fail_peer(peer, OpError::Closed);
            }
            self.drain_events(now);
        }
    }

    /// Records which addresses the application has inserted. They are added to those that the
    /// engine knows already, or replace them if `anew` is set. Peers at these addresses belong to
    /// the job, even if the application never talks to them.
    pub fn add_addresses(&mut self, addresses: impl IntoIterator<Item = SocketAddr>, anew: bool) {
        for peer in self.peers.insert_addresses(addresses, anew) {
            self.pdcs.admissions().set_outside(PeerKey(peer.0), false);
        }
    }

    /// Forgets peers that the user did not name, that were silent for long and for which no state
    /// is kept, if many such peers have contacted this endpoint. A forgotten peer must pass the
    /// handshake again.
    pub(super) fn forget_peers(&mut self, now: Time) {
        if !self.peers.is_forgetting_due(now) {
            return;
        }
        let mut used = vec![false; self.peers.places()];
        let contexts = self.contexts.iter().map(|context| context.peer);
        let operations = self.outbound.ops().peers().chain(self.inbox.peers());
        let others =
            self.report.peers().chain(self.handshakes.pending_peers()).chain(self.shm.peers());
        for peer in contexts.chain(operations).chain(others) {
            used[peer.0 as usize] = true;
        }
        let (peers, hosts) = self.peers.forget(now, &used);
        self.report.counters.peers_forgotten += peers.len() as u64;
        for peer in peers {
            let addr = self.peers.get(peer).addr();
            // A later instance at this address may use secrets that the driver keeps by address.
            if self.peers.at(addr).next().is_none() {
                self.handshakes.end_secrets(&self.config, addr);
            }
            self.pdcs.forget_peer(PeerKey(peer.0));
            self.contexts.set_question_open(peer, false);
            self.report.access_groups().forget(peer);
        }
        for host in hosts {
            self.peers.paths.forget(host);
        }
    }
}
