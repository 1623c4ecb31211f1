//! Processing of received handshake packets.

use core::net::SocketAddr;

use super::Handshakes;
use super::proofs::Transcript;
use crate::api::{OpError, PeerId};
use crate::base::{Instance, Purpose, Time};
use crate::config::Config;
use crate::contexts::Contexts;
use crate::counters::Counters;
use crate::ops::Part;
use crate::peers::{PeerInstance, Peers};
use crate::reliability::{Pdcs, PeerKey};
use crate::wire::{Handshake, Reason, ReturnCode, Stage, WIRE_VERSION};

/// The outcome of a handshake packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeOutcome {
    /// The packet changes nothing for any peer.
    Nothing,
    /// The peer is verified, and contexts in both directions may be used.
    Met(PeerId),
    /// Another instance is at the peer's address. The engine must end what the former instance left
    /// and then process the packet again.
    Succeeded(PeerId),
    /// The handshake failed. All operations to the peer end with this error.
    Ended(PeerId, OpError),
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
    fn introduce(&mut self, peer: PeerId, exchange: &Transcript, asked: bool) -> HandshakeOutcome {
        let association = exchange.association(self.config.key.as_ref());
        if !self.pdcs.admissions().learn(PeerKey(peer.0), association, asked) {
            // The packet is late: it belongs to an association that ended.
            self.counters.rx_bad_handshakes += 1;
            return HandshakeOutcome::Nothing;
        }
        let outside = self.peers.is_outside(self.config, peer);
        self.pdcs.admissions().set_outside(PeerKey(peer.0), outside);
        // A rate packet would overtake the confirmation and get no answer, although the links of
        // the path had already counted it.
        if !(asked && self.pdcs.config().rates()) {
            self.contexts.release(self.now, peer, self.pdcs);
        }
        HandshakeOutcome::Met(peer)
    }
}

impl Handshakes {
    /// Processes a handshake packet from an endpoint whose port is that of `from`.
    pub(crate) fn hear(
        &mut self,
        mut around: HandshakeContext<'_>,
        from: SocketAddr,
        intro: &Handshake,
    ) -> HandshakeOutcome {
        match intro.stage {
            Stage::Hello => {
                if !self.may_answer(around.now) {
                    around.counters.rx_unanswered += 1;
                } else if self.accepts(around.config, from, intro)
                    && self.lists(&mut around, from, intro)
                {
                    self.challenge(around.now, around.config, from, intro);
                }
                HandshakeOutcome::Nothing
            }
            Stage::Confirm => self.hear_confirm(around, from, intro),
            Stage::Challenge | Stage::Welcome | Stage::Refuse => {
                if let Some(peer) = self.answered(around.peers, from, intro.nonce) {
                    return self.hear_answer(around, peer, intro);
                }
                around.counters.rx_bad_handshakes += 1;
                HandshakeOutcome::Nothing
            }
        }
    }

    /// Returns whether an endpoint is admitted: its user named it, or unnamed endpoints are
    /// admitted too. One that is not admitted is notified and asks again, because the user may be
    /// about to name it.
    fn lists(
        &mut self,
        around: &mut HandshakeContext<'_>,
        from: SocketAddr,
        intro: &Handshake,
    ) -> bool {
        let listed = Instance::new(intro.instance)
            .is_some_and(|instance| around.peers.is_named(from, instance));
        if listed || !around.config.named_only {
            return true;
        }
        around.counters.rx_unlisted += 1;
        self.refuse(around.config, from, intro, Reason::Unlisted);
        false
    }

    /// Processes a confirmation, whose sender claims to have received the challenge.
    fn hear_confirm(
        &mut self,
        mut around: HandshakeContext<'_>,
        from: SocketAddr,
        intro: &Handshake,
    ) -> HandshakeOutcome {
        let HandshakeContext { now, config, .. } = around;
        let Some(instance) = Instance::new(intro.instance) else {
            return HandshakeOutcome::Nothing;
        };
        let alike = intro.version == WIRE_VERSION && intro.job_id == config.job_id;
        if !alike || !self.is_proven(now, from, intro) {
            around.counters.rx_bad_handshakes += 1;
            // This endpoint has not sent the peer a challenge lately.
            if alike && self.may_answer(now) {
                self.refuse(config, from, intro, Reason::Stale);
            }
            return HandshakeOutcome::Nothing;
        }
        let exchange = Transcript::new(instance, config.instance, intro);
        if !exchange.is_proven(config.key.as_ref(), Purpose::Confirm, intro) {
            around.counters.rx_unauthorised += 1;
            self.refuse(config, from, intro, Reason::Key);
            return HandshakeOutcome::Nothing;
        }
        if !self.lists(&mut around, from, intro) {
            return HandshakeOutcome::Nothing;
        }
        let peer = match around.peers.is_or_may_be(from, instance) {
            Some(peer) => peer,
            None => match around.peers.anybody(from) {
                // Another instance used this address before. Ask at the address itself for the
                // present instance, and trust that answer rather than the claim of this packet.
                Some(former) => {
                    self.ask(now, config, former, around.peers.get(former));
                    return HandshakeOutcome::Nothing;
                }
                None => {
                    let Some((peer, host)) = around.peers.add_uninvited(from) else {
                        around.counters.rx_crowded += 1;
                        self.refuse(config, from, intro, Reason::Crowded);
                        return HandshakeOutcome::Nothing;
                    };
                    around.pdcs.set_host(PeerKey(peer.0), host);
                    peer
                }
            },
        };
        if around.peers.get_mut(peer).meet(instance) != PeerInstance::Known {
            return HandshakeOutcome::Nothing;
        }
        if self.is_open(peer) {
            // The confirmation answers this endpoint's own question as well.
            self.stop(peer);
        }
        if around.introduce(peer, &exchange, false) == HandshakeOutcome::Nothing {
            self.refuse(config, from, intro, Reason::Stale);
            return HandshakeOutcome::Nothing;
        }
        around.peers.get_mut(peer).note_welcome(now);
        self.welcome(config, from, intro);
        HandshakeOutcome::Met(peer)
    }

    /// Processes a peer's answer to a question of this endpoint.
    fn hear_answer(
        &mut self,
        mut around: HandshakeContext<'_>,
        peer: PeerId,
        intro: &Handshake,
    ) -> HandshakeOutcome {
        let Some(instance) = Instance::new(intro.instance) else {
            return HandshakeOutcome::Nothing;
        };
        match intro.stage {
            Stage::Refuse if intro.reason == Reason::Stale => {
                self.stop(peer);
                self.ask(around.now, around.config, peer, around.peers.get(peer));
                HandshakeOutcome::Nothing
            }
            Stage::Refuse if intro.reason == Reason::Unlisted => {
                self.put_off(peer);
                HandshakeOutcome::Nothing
            }
            Stage::Refuse => {
                self.stop(peer);
                let error = match intro.reason {
                    Reason::Version => OpError::OtherVersion { theirs: intro.version },
                    Reason::Job => OpError::Remote(ReturnCode::BadJobId),
                    Reason::Key => OpError::OtherKey,
                    Reason::None | Reason::Stale | Reason::Crowded | Reason::Unlisted => {
                        OpError::Closed
                    }
                };
                HandshakeOutcome::Ended(peer, error)
            }
            Stage::Challenge if self.is_open(peer) => {
                let config = around.config;
                let exchange = Transcript::new(config.instance, instance, intro);
                if !exchange.is_proven(config.key.as_ref(), Purpose::Answer, intro) {
                    self.stop(peer);
                    around.counters.rx_unauthorised += 1;
                    return HandshakeOutcome::Ended(peer, OpError::OtherKey);
                }
                match around.peers.get_mut(peer).meet(instance) {
                    PeerInstance::Known => {}
                    PeerInstance::Successor => return HandshakeOutcome::Succeeded(peer),
                    PeerInstance::Impostor => {
                        self.stop(peer);
                        return HandshakeOutcome::Ended(
                            peer,
                            OpError::OtherInstance { found: instance },
                        );
                    }
                }
                let state = around.peers.get(peer);
                self.confirm(around.now, config, (peer, state), intro.cookie);
                around.introduce(peer, &exchange, true)
            }
            Stage::Welcome => {
                self.stop(peer);
                // Packets that overtook the confirmation may be sent again.
                around.peers.get_mut(peer).note_welcome(around.now);
                around.contexts.release(around.now, peer, around.pdcs);
                HandshakeOutcome::Nothing
            }
            // The packet is a duplicate.
            _ => HandshakeOutcome::Nothing,
        }
    }
}
