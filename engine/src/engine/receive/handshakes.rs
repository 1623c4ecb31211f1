//! Processing of received packets that carry a handshake.

use core::net::SocketAddr;

use super::PacketReceiver;
use crate::handshake::{HandshakeContext, HandshakeOutcome};
use crate::memory::Memory;
use crate::wire::{Handshake, Stage};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a Negotiation control packet, which carries a step of the handshake.
    #[cold]
    pub(super) fn handle_negotiation(&mut self, values: &[u8]) {
        let packet = match Handshake::read(values) {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                self.engine.report.counters.rx_foreign += 1;
                return;
            }
            Err(_) => {
                self.engine.report.counters.rx_malformed += 1;
                return;
            }
        };
        self.engine.report.counters.rx_handshakes += 1;
        let from = SocketAddr::new(self.src.ip(), packet.port);
        loop {
            let cx = HandshakeContext {
                now: self.now,
                config: &self.engine.config,
                peers: &mut self.engine.peers,
                pdcs: &mut self.engine.pdcs,
                contexts: &self.engine.contexts,
                counters: &mut self.engine.report.counters,
            };
            match self.engine.handshakes.handle_handshake(cx, from, &packet) {
                HandshakeOutcome::Nothing => {}
                HandshakeOutcome::Verified(peer) => {
                    self.record_rx(peer);
                    if self.engine.config.shm {
                        self.engine.shm.add_verified_peer(peer, packet.stage == Stage::Challenge);
                    }
                    self.engine.forget_peers(self.now);
                }
                HandshakeOutcome::Failed(peer, error) => {
                    self.engine.teardown(self.now).fail_peer(peer, error);
                    self.engine.peers.release_address(peer);
                }
                HandshakeOutcome::Replaced(peer) => {
                    self.engine.teardown(self.now).handle_peer_restart(peer);
                    continue;
                }
            }
            break;
        }
    }
}
