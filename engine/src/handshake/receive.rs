//! Processing of received handshake packets.

use core::net::SocketAddr;

use super::Handshakes;
use super::proofs::Transcript;
use crate::base::{Instance, Purpose, Time};
use crate::completion::OpError;
use crate::config::Config;
use crate::contexts::Contexts;
use crate::counters::Counters;
use crate::operation::PeerId;
use crate::part::Part;
use crate::peers::{Confirmation, PeerInstance, Peers};
use crate::reliability::{Pdcs, PeerKey};
use crate::wire::{Handshake, Reason, ReturnCode, Stage, WIRE_VERSION};

/// The outcome of a handshake packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeOutcome {
    /// The packet changes nothing for any peer.
    Nothing,
    /// The peer is verified, and contexts in both directions may be used.
    Verified(PeerId),
    /// Another instance is at the peer's address. The engine must end what the former instance left
    /// and then process the packet again.
    Replaced(PeerId),
    /// The handshake failed. All operations to the peer end with this error.
    Failed(PeerId, OpError),
}

/// The parts of an engine that a handshake packet may change.
pub(crate) struct HandshakeContext<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a Config,
    pub(crate) peers: &'a mut Peers,
    pub(crate) pdcs: &'a mut Pdcs<Part>,
    pub(crate) contexts: &'a Contexts,
    pub(crate) counters: &'a mut Counters,
}

impl HandshakeContext<'_> {
    /// Completes the handshake with a peer. Contexts that waited for it continue now, or, if
    /// `asked` and rate packets are in use, after the peer's welcome.
    fn complete_handshake(
        &mut self,
        peer: PeerId,
        exchange: &Transcript,
        asked: bool,
    ) -> HandshakeOutcome {
        let association = exchange.association(self.config.key.as_ref());
        if !self.pdcs.admissions().record_handshake(PeerKey(peer.0), association, asked) {
            // The packet is late: it belongs to an association that ended.
            self.counters.rx_bad_handshakes += 1;
            return HandshakeOutcome::Nothing;
        }
        let outside = self.peers.is_outside(self.config, peer);
        self.pdcs.admissions().set_outside(PeerKey(peer.0), outside);
        // A rate packet would overtake the confirmation and get no answer, although the links of
        // the path had already counted it. An encrypted packet would overtake it, too, and be
        // dropped, because the peer does not know its sender.
        if !(asked && (self.pdcs.config().uses_rates() || self.config.encrypts)) {
            self.contexts.release_peer(self.now, peer, self.pdcs);
        }
        HandshakeOutcome::Verified(peer)
    }
}

impl Handshakes {
    /// Processes a handshake packet from an endpoint whose port is that of `from`.
    pub(crate) fn handle_handshake(
        &mut self,
        mut cx: HandshakeContext<'_>,
        from: SocketAddr,
        packet: &Handshake,
    ) -> HandshakeOutcome {
        match packet.stage {
            Stage::Hello => {
                if !self.may_answer(cx.now) {
                    cx.counters.rx_unanswered += 1;
                } else if self.check_compatibility(cx.config, from, packet)
                    && self.check_admission(&mut cx, from, packet)
                {
                    self.send_challenge(cx.now, cx.config, (cx.peers, from), packet);
                }
                HandshakeOutcome::Nothing
            }
            Stage::Confirm => self.handle_confirmation(cx, from, packet),
            Stage::Challenge | Stage::Welcome | Stage::Refuse => {
                if let Some(peer) = self.find_pending(cx.peers, from, packet.nonce) {
                    return self.handle_answer(cx, peer, packet);
                }
                cx.counters.rx_bad_handshakes += 1;
                HandshakeOutcome::Nothing
            }
        }
    }

    /// Returns whether an endpoint is admitted: its user named it, or unnamed endpoints are
    /// admitted too. One that is not admitted is notified and asks again, because the user may be
    /// about to name it.
    fn check_admission(
        &mut self,
        cx: &mut HandshakeContext<'_>,
        from: SocketAddr,
        packet: &Handshake,
    ) -> bool {
        let listed = Instance::new(packet.instance)
            .is_some_and(|instance| cx.peers.is_named(from, instance));
        if listed || !cx.config.named_only {
            return true;
        }
        cx.counters.rx_unlisted += 1;
        self.send_refusal(cx.config, from, packet, Reason::Unlisted);
        false
    }

    /// Processes a confirmation, whose sender claims to have received the challenge.
    fn handle_confirmation(
        &mut self,
        mut cx: HandshakeContext<'_>,
        from: SocketAddr,
        packet: &Handshake,
    ) -> HandshakeOutcome {
        let HandshakeContext { now, config, .. } = cx;
        let Some(instance) = Instance::new(packet.instance) else {
            return HandshakeOutcome::Nothing;
        };
        let ours = Self::own_handshake(config, Stage::Challenge);
        let alike = packet.version == WIRE_VERSION
            && packet.job_id == config.job_id
            && packet.capabilities == ours.capabilities;
        let last = cx.peers.last_confirmation(from, instance);
        let repeated = Self::is_repeated(now, packet, last);
        if !alike || !(repeated || self.cookies.is_valid(now, from, packet, last)) {
            cx.counters.rx_bad_handshakes += 1;
            // This endpoint has not sent the peer a challenge lately.
            if alike && self.may_answer(now) {
                self.send_refusal(config, from, packet, Reason::Stale);
            }
            return HandshakeOutcome::Nothing;
        }
        let exchange = Transcript::new(instance, config.instance, packet);
        if !exchange.is_proven(config.key.as_ref(), Purpose::Confirm, packet) {
            cx.counters.rx_unauthorised += 1;
            self.send_refusal(config, from, packet, Reason::Key);
            return HandshakeOutcome::Nothing;
        }
        if !self.check_admission(&mut cx, from, packet) {
            return HandshakeOutcome::Nothing;
        }
        let peer = match cx.peers.find_instance(from, instance) {
            Some(peer) => peer,
            None => match cx.peers.find_without_instance(from) {
                // Another instance used this address before. Ask at the address itself for the
                // present instance, and trust that answer rather than the claim of this packet.
                Some(former) => {
                    self.start(now, config, former, cx.peers.get(former));
                    return HandshakeOutcome::Nothing;
                }
                None => {
                    let Some((peer, host)) = cx.peers.add_unsolicited(from) else {
                        cx.counters.rx_crowded += 1;
                        self.send_refusal(config, from, packet, Reason::Crowded);
                        return HandshakeOutcome::Nothing;
                    };
                    cx.pdcs.set_host(PeerKey(peer.0), host);
                    peer
                }
            },
        };
        if cx.peers.get_mut(peer).record_instance(instance) != PeerInstance::Known {
            return HandshakeOutcome::Nothing;
        }
        if self.is_open(peer) {
            // The confirmation answers this endpoint's own question as well.
            self.stop(peer);
        }
        if cx.complete_handshake(peer, &exchange, false) == HandshakeOutcome::Nothing {
            self.send_refusal(config, from, packet, Reason::Stale);
            return HandshakeOutcome::Nothing;
        }
        cx.peers.get_mut(peer).record_handshake(now);
        if !repeated {
            let Handshake { nonce, cookie, .. } = *packet;
            cx.peers.get_mut(peer).record_confirmation(Confirmation { nonce, cookie, at: now });
            self.share_secret(config, (from, instance), &exchange, false);
        }
        self.send_welcome(config, from, packet);
        HandshakeOutcome::Verified(peer)
    }

    /// Processes a peer's answer to a question of this endpoint.
    fn handle_answer(
        &mut self,
        mut cx: HandshakeContext<'_>,
        peer: PeerId,
        packet: &Handshake,
    ) -> HandshakeOutcome {
        let Some(instance) = Instance::new(packet.instance) else {
            return HandshakeOutcome::Nothing;
        };
        // A verified peer knows the key, so the contexts to it end only if the answer is proven. An
        // attacker who has seen the question can send any other answer.
        let renews = self.renews(peer);
        match packet.stage {
            Stage::Refuse if packet.reason == Reason::Stale => {
                self.stop(peer);
                self.ask(cx.now, cx.config, (peer, cx.peers.get(peer)), renews);
                HandshakeOutcome::Nothing
            }
            // Refusals carry no proof.
            Stage::Refuse if renews => {
                cx.counters.rx_bad_handshakes += 1;
                HandshakeOutcome::Nothing
            }
            Stage::Refuse if packet.reason == Reason::Unlisted => {
                self.postpone(peer);
                HandshakeOutcome::Nothing
            }
            Stage::Refuse => {
                self.stop(peer);
                let error = match packet.reason {
                    Reason::Version => OpError::OtherVersion { theirs: packet.version },
                    Reason::Job => OpError::Remote(ReturnCode::BadJobId),
                    Reason::Key => OpError::OtherKey,
                    Reason::Encryption => OpError::OtherEncryption {
                        theirs: packet.capabilities & Handshake::ENCRYPTS != 0,
                    },
                    Reason::None | Reason::Stale | Reason::Crowded | Reason::Unlisted => {
                        OpError::Closed
                    }
                };
                HandshakeOutcome::Failed(peer, error)
            }
            Stage::Challenge if self.is_open(peer) => {
                let config = cx.config;
                let ours = Self::own_handshake(config, Stage::Hello);
                let exchange = Transcript::new(config.instance, instance, packet);
                let proven = exchange.is_proven(config.key.as_ref(), Purpose::Answer, packet);
                if renews && !proven {
                    cx.counters.rx_bad_handshakes += 1;
                    return HandshakeOutcome::Nothing;
                }
                if packet.capabilities != ours.capabilities {
                    self.stop(peer);
                    let theirs = packet.capabilities & Handshake::ENCRYPTS != 0;
                    return HandshakeOutcome::Failed(peer, OpError::OtherEncryption { theirs });
                }
                if !proven {
                    self.stop(peer);
                    cx.counters.rx_unauthorised += 1;
                    return HandshakeOutcome::Failed(peer, OpError::OtherKey);
                }
                match cx.peers.get_mut(peer).record_instance(instance) {
                    PeerInstance::Known => {}
                    PeerInstance::Successor => return HandshakeOutcome::Replaced(peer),
                    PeerInstance::Impostor => {
                        self.stop(peer);
                        return HandshakeOutcome::Failed(
                            peer,
                            OpError::OtherInstance { found: instance },
                        );
                    }
                }
                let state = cx.peers.get(peer);
                let addr = state.addr();
                self.send_confirmation(cx.now, config, (peer, state), packet.cookie);
                let outcome = cx.complete_handshake(peer, &exchange, true);
                if outcome != HandshakeOutcome::Nothing {
                    self.share_secret(config, (addr, instance), &exchange, true);
                }
                outcome
            }
            Stage::Welcome => {
                self.stop(peer);
                // Packets that overtook the confirmation may be sent again.
                cx.peers.get_mut(peer).record_handshake(cx.now);
                self.confirm_secret(cx.config, cx.peers.get(peer).addr());
                cx.contexts.release_peer(cx.now, peer, cx.pdcs);
                HandshakeOutcome::Nothing
            }
            // The packet is a duplicate.
            _ => HandshakeOutcome::Nothing,
        }
    }
}
