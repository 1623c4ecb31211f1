//! Processing of received handshake packets.

use core::net::SocketAddr;

use super::Handshakes;
use super::proofs::{Party, Transcript};
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

/// The outcome of processing a received handshake packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeOutcome {
    /// The handshake packet changes nothing for any peer.
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
        let own = cx.config.address();
        if packet.instance == cx.config.instance.get()
            && own.is_some_and(|own| own != from)
            && self.is_own_nonce(packet.nonce)
        {
            // This endpoint's question returns from elsewhere. An equal instance alone is chance:
            // each pair of a job has it with a probability of 2^-32.
            cx.counters.rx_bad_handshakes += 1;
            return HandshakeOutcome::Nothing;
        }
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
        let capabilities = Self::own_handshake(config, Stage::Challenge).capabilities;
        let alike = packet.version == WIRE_VERSION
            && packet.job_id == config.job_id
            && packet.capabilities == capabilities;
        let last = cx.peers.last_confirmation(from, instance);
        let repeated = Self::is_repeated(now, packet, last);
        let ours = Self::is_addressed_to_us(config, packet);
        if !alike || !ours || !(repeated || self.cookies.is_valid(now, from, packet, last)) {
            cx.counters.rx_bad_handshakes += 1;
            // This endpoint has not sent the peer a challenge lately.
            if alike && self.may_answer(now) {
                self.send_refusal(config, from, packet, Reason::Stale);
            }
            return HandshakeOutcome::Nothing;
        }
        // A valid cookie may be returned any number of times.
        if !self.may_answer(now) {
            cx.counters.rx_unanswered += 1;
            return HandshakeOutcome::Nothing;
        }
        let exchange = Transcript::new(Party { instance, addr: from }, Party::own(config), packet);
        if !exchange.is_proven(config.key.as_ref(), Purpose::Confirm, packet) {
            cx.counters.rx_unauthorised += 1;
            self.send_refusal(config, from, packet, Reason::Key);
            return HandshakeOutcome::Nothing;
        }
        if !self.check_admission(&mut cx, from, packet) {
            return HandshakeOutcome::Nothing;
        }
        let found = cx.peers.find_instance(from, instance);
        if repeated {
            // An attacker can repeat the packet for as long as the cookie is valid, so it is no sign
            // of life.
            let association = exchange.association(config.key.as_ref());
            let mut known = found.filter(|peer| cx.peers.get(*peer).is_verified());
            known = known.filter(|peer| {
                cx.pdcs.admissions().association(PeerKey(peer.0), false) == Some(association)
            });
            match known {
                Some(_) => self.send_welcome(config, from, packet, &exchange),
                None => self.send_refusal(config, from, packet, Reason::Stale),
            }
            return HandshakeOutcome::Nothing;
        }
        let peer = match found {
            Some(peer) => peer,
            None => match cx.peers.find_without_instance(from) {
                // Another instance used this address before. Ask at the address itself for the
                // present instance, and trust that answer rather than the claim of this packet.
                Some(former) => {
                    let state = cx.peers.get(former);
                    self.ask(now, config, (former, state), state.is_verified());
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
        let Handshake { nonce, cookie, .. } = *packet;
        cx.peers.get_mut(peer).record_confirmation(Confirmation { nonce, cookie, at: now });
        self.share_secret(config, (from, instance), &exchange, false);
        self.send_welcome(config, from, packet, &exchange);
        HandshakeOutcome::Verified(peer)
    }

    /// Processes a peer's answer to a question of this endpoint.
    fn handle_answer(
        &mut self,
        cx: HandshakeContext<'_>,
        peer: PeerId,
        packet: &Handshake,
    ) -> HandshakeOutcome {
        let (Some(instance), Some(asking)) =
            (Instance::new(packet.instance), self.asking.get(&peer))
        else {
            return HandshakeOutcome::Nothing;
        };
        let awaited = match packet.stage {
            Stage::Challenge => asking.cookie.is_none(),
            Stage::Welcome => asking.cookie == Some(packet.cookie),
            _ => true,
        };
        if !awaited {
            // A challenge is a duplicate. A welcome is, too, or it is forged.
            cx.counters.rx_bad_handshakes += u64::from(packet.stage == Stage::Welcome);
            return HandshakeOutcome::Nothing;
        }
        let responder = Party { instance, addr: cx.peers.get(peer).addr() };
        let exchange = Transcript::new(Party::own(cx.config), responder, packet);
        let key = cx.config.key.as_ref();
        let proven = match packet.stage {
            Stage::Challenge => exchange.is_proven(key, Purpose::Answer, packet),
            Stage::Welcome => exchange.is_proven(key, Purpose::Welcome, packet),
            // A peer with the key refuses no valid proof. It may do so if an attacker has changed the
            // proof on its way.
            _ if packet.reason == Reason::Key && key.is_some() => false,
            _ => {
                let question = Self::question(cx.config, asking, cx.peers.get(peer));
                let own = Party::own(cx.config);
                Transcript::of_refusal(own, responder, &question, packet).is_proven(
                    key,
                    Purpose::Refuse,
                    packet,
                )
            }
        };
        if !proven {
            // A peer with another key cannot prove its answer. An attacker who has seen the question
            // can send any.
            let error = failure(packet, instance, false);
            if error.is_some_and(|error| self.keep_unproven(cx.now, peer, error)) {
                cx.counters.rx_unauthorised += 1;
            } else {
                cx.counters.rx_bad_handshakes += 1;
            }
            return HandshakeOutcome::Nothing;
        }
        match packet.stage {
            Stage::Challenge => self.handle_challenge(cx, (peer, instance), packet, &exchange),
            Stage::Welcome => {
                self.stop(peer);
                // Packets that overtook the confirmation may be sent again.
                cx.peers.get_mut(peer).record_handshake(cx.now);
                self.confirm_secret(cx.config, cx.peers.get(peer).addr());
                cx.contexts.release_peer(cx.now, peer, cx.pdcs);
                HandshakeOutcome::Nothing
            }
            _ => {
                match packet.reason {
                    Reason::Stale => self.begin_anew(cx.now, peer),
                    Reason::Unlisted => self.postpone(peer),
                    _ => {}
                }
                let Some(error) = failure(packet, instance, true) else {
                    return HandshakeOutcome::Nothing;
                };
                self.stop(peer);
                HandshakeOutcome::Failed(peer, error)
            }
        }
    }

    /// Processes a peer's first challenge, which is proven if there is a key.
    fn handle_challenge(
        &mut self,
        mut cx: HandshakeContext<'_>,
        (peer, instance): (PeerId, Instance),
        packet: &Handshake,
        exchange: &Transcript,
    ) -> HandshakeOutcome {
        let config = cx.config;
        if packet.capabilities != Self::own_handshake(config, Stage::Hello).capabilities {
            self.stop(peer);
            return HandshakeOutcome::Failed(peer, other_encryption(packet));
        }
        match cx.peers.get_mut(peer).record_instance(instance) {
            PeerInstance::Known => {}
            PeerInstance::Successor => return HandshakeOutcome::Replaced(peer),
            PeerInstance::Impostor => {
                self.stop(peer);
                return HandshakeOutcome::Failed(peer, OpError::OtherInstance { found: instance });
            }
        }
        let state = cx.peers.get(peer);
        let addr = state.addr();
        self.send_confirmation(cx.now, config, (peer, state), packet.cookie);
        let outcome = cx.complete_handshake(peer, exchange, true);
        if outcome != HandshakeOutcome::Nothing {
            self.share_secret(config, (addr, instance), exchange, true);
        }
        outcome
    }
}

/// Returns the error with which a handshake ends because of an answer, if it does. An answer that is
/// not `proven` may end it later.
fn failure(packet: &Handshake, found: Instance, proven: bool) -> Option<OpError> {
    match (packet.stage, packet.reason) {
        (Stage::Refuse, Reason::Stale) => None,
        (Stage::Refuse, Reason::Unlisted) => (!proven).then_some(OpError::NotListed),
        (Stage::Refuse, Reason::Version) => Some(OpError::OtherVersion { theirs: packet.version }),
        (Stage::Refuse, Reason::Job) => Some(OpError::Remote(ReturnCode::BadJobId)),
        (Stage::Refuse, Reason::Key) => Some(OpError::OtherKey),
        (Stage::Refuse, Reason::Encryption) => Some(other_encryption(packet)),
        (Stage::Refuse, Reason::Instance) => Some(OpError::OtherInstance { found }),
        (Stage::Refuse, Reason::None | Reason::Crowded) => Some(OpError::Closed),
        _ => Some(OpError::OtherKey),
    }
}

/// Returns the error for a peer that encrypts where this endpoint does not, or the reverse.
const fn other_encryption(packet: &Handshake) -> OpError {
    OpError::OtherEncryption { theirs: packet.capabilities & Handshake::ENCRYPTS != 0 }
}
