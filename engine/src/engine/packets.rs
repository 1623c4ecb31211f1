//! Arriving packets: identification of the sender and the context, and delivery of the payload.

use core::net::SocketAddr;

use super::{Engine, step};
use crate::access_groups::GroupTag;
use crate::base::{Psn, Time, Train};
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::config::Config;
use crate::handshake::{HandshakeContext, HandshakeOutcome};
use crate::memory::{KeyError, Memory, Payload};
use crate::operation::PeerId;
use crate::ops::{RESOURCE_MEMORY, RESOURCE_RENDEZVOUS};
use crate::outbound::PeerQuestion;
use crate::packet_form::PacketForm;
use crate::packet_outcome::PacketOutcome;
use crate::peers::{Initiator, PeerState};
use crate::reliability::{self, Delivery, PdcId, PeerKey, Refusal, RxVerdict, cc};
use crate::report::Report;
use crate::step::Step;
use crate::target::{self, AtomicRefusal, WriteRefusal};
use crate::unmatched_packets::UnmatchedPackets;
use crate::wire::{
    self, Dest, Handshake, NackCode, Opcode, Packet, ReturnCode, Ses, Stage, StdRequest,
};

/// Marks that the network put on a packet, besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketMarks {
    /// The packet is marked Congestion Experienced.
    pub ce: bool,
    /// A switch removed the payload (known from the DSCP).
    pub trimmed: bool,
}

/// A data packet that the transport delivered, the argument of [`PacketReceiver::process_delivered`].
pub(super) struct DeliveredPacket<'a> {
    pub(super) id: PdcId,
    pub(super) peer: PeerId,
    pub(super) pds: &'a wire::Request,
    pub(super) ses: &'a Ses,
    pub(super) headers: &'a [u8],
    pub(super) payload: &'a [u8],
    /// The context's initiator sent the packet.
    pub(super) forward: bool,
}

/// State for processing one packet: the engine, the time, and the source address.
pub(super) struct PacketReceiver<'a, M> {
    pub(super) engine: &'a mut Engine,
    pub(super) mem: &'a mut M,
    pub(super) now: Time,
    pub(super) src: SocketAddr,
    /// Telemetry that switches wrote into the packet, or into the packet that it acknowledges.
    pub(super) telemetry: &'a cc::Hops,
    /// The PSN of the original packet if this packet is a fragment, and the number of fragments of that original.
    pub(super) fragment: Option<(Psn, u8)>,
}

impl<'a, M: Memory> PacketReceiver<'a, M> {
    /// Creates the state for a packet without telemetry, or for a shared-memory record.
    #[inline]
    pub(super) const fn new(
        engine: &'a mut Engine,
        mem: &'a mut M,
        now: Time,
        src: SocketAddr,
    ) -> Self {
        Self { engine, mem, now, src, telemetry: cc::Hops::NONE, fragment: None }
    }

    /// Handles a packet that was not trimmed, and the packets behind it in the train that form a
    /// run with it.
    #[inline(always)]
    pub(super) fn handle_untrimmed(
        mut self,
        arrival: &reliability::Arrival,
        bytes: &[u8],
        train: &mut Train<'_>,
    ) {
        let Ok(packet) = wire::parse(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let (peer, accepted) = match packet {
            Packet::Request { pds, ses, payload } => {
                let headers = &bytes[..bytes.len() - payload.len()];
                return self.handle_request((&pds, &ses), (headers, payload), arrival, train);
            }
            Packet::Ack { pds, ses, .. } => {
                let Some(peer) = self.find_context_peer(pds.dpdcid) else { return };
                let response = match &ses {
                    Ses::Response(response) => Some(response),
                    _ => None,
                };
                let (key, telemetry) = (PeerKey(peer.0), self.telemetry);
                let pdcs = &mut self.engine.pdcs;
                (peer, pdcs.rx_ack_with_telemetry(self.now, key, &pds, response, telemetry))
            }
            Packet::Nack(nack) => {
                let Some(peer) = self.find_context_peer(nack.dpdcid) else { return };
                (peer, self.engine.pdcs.rx_nack(self.now, PeerKey(peer.0), &nack))
            }
            Packet::Control(control) => {
                let Dest::Pdc(dpdcid) = control.dest else {
                    // Control packets never open a context.
                    self.engine.report.counters.rx_foreign += 1;
                    return;
                };
                let Some(peer) = self.find_context_peer(dpdcid) else { return };
                (peer, self.engine.pdcs.rx_control(self.now, PeerKey(peer.0), &control))
            }
            Packet::Negotiation { values, .. } => return self.handle_negotiation(values),
            Packet::Rates(packet) => return self.handle_rates(&packet),
            // RUDI and UUD are not used between our endpoints. The driver of an endpoint that encrypts
            // opens TSS packets before the engine gets them.
            _ => {
                self.engine.report.counters.rx_foreign += 1;
                return;
            }
        };
        if accepted {
            self.record_rx(peer);
        }
    }

    /// Handles a data packet whose payload a switch cut off. The transport notifies the sender at
    /// once.
    pub(super) fn handle_trimmed(mut self, arrival: &reliability::Arrival, bytes: &[u8]) {
        let Ok(trimmed) = wire::parse_trimmed(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let peer = match (trimmed.pds.dest, &trimmed.ses) {
            (Dest::Pdc(dpdcid), _) => self.find_context_peer(dpdcid),
            (Dest::Syn { .. }, Some(ses)) => find_initiator(
                &mut self.engine.unmatched,
                &mut step!(self.engine, self.now),
                self.src,
                (&trimmed.pds, ses),
            ),
            (Dest::Syn { .. }, None) => {
                // The packet is cut so short that it does not name the initiator. The sender's
                // timer recovers.
                self.engine.report.counters.rx_foreign += 1;
                None
            }
        };
        let Some(peer) = peer else { return };
        let verdict = self.engine.pdcs.rx_request(self.now, PeerKey(peer.0), &trimmed.pds, arrival);
        if matches!(verdict, RxVerdict::Trimmed | RxVerdict::Duplicate) {
            self.record_rx(peer);
        }
    }

    /// Records that a packet of a peer was accepted.
    #[inline]
    pub(super) fn record_rx(&mut self, peer: PeerId) {
        if self.engine.peers.get_mut(peer).record_rx(self.now) {
            self.engine.outbound.complete_short_sends(
                &mut step!(self.engine, self.now),
                self.mem,
                peer,
            );
        }
    }

    /// Returns the peer of context `dpdcid`, if the packet came from that peer's address.
    #[inline]
    fn find_context_peer(&mut self, dpdcid: u16) -> Option<PeerId> {
        let peer = self.engine.pdcs.peer_of(dpdcid).map(|key| PeerId(key.0));
        match peer {
            Some(peer) if self.engine.peers.get(peer).addr().ip() == self.src.ip() => Some(peer),
            _ => {
                self.engine.report.counters.rx_foreign += 1;
                None
            }
        }
    }

    /// Handles a data packet, and the packets behind it in the train that form a run with it.
    fn handle_request(
        &mut self,
        (pds, ses): (&wire::Request, &Ses),
        (headers, payload): (&[u8], &[u8]),
        arrival: &reliability::Arrival,
        train: &mut Train<'_>,
    ) {
        let peer = match pds.dest {
            Dest::Syn { .. } => find_initiator(
                &mut self.engine.unmatched,
                &mut step!(self.engine, self.now),
                self.src,
                (pds, ses),
            ),
            Dest::Pdc(dpdcid) if self.engine.pdcs.peer_of(dpdcid).is_none() => {
                self.engine.unmatched.send_nack(
                    &mut step!(self.engine, self.now),
                    self.src,
                    (pds, ses),
                );
                None
            }
            Dest::Pdc(dpdcid) => self.find_context_peer(dpdcid),
        };
        let Some(peer) = peer else { return };
        if let Ses::Std(request) = ses
            && !is_addressed_to_us(&self.engine.config, self.engine.peers.get(peer), request)
        {
            self.engine.report.counters.rx_foreign += 1;
            if !self.engine.peers.get(peer).is_verified() {
                // The peer believes that it has a context to us; that context belonged to an
                // earlier endpoint at this address.
                self.engine.unmatched.send_nack(
                    &mut step!(self.engine, self.now),
                    self.src,
                    (pds, ses),
                );
            }
            return;
        }
        let (key, pdcs) = (PeerKey(peer.0), &mut self.engine.pdcs);
        let verdict = if self.telemetry.is_empty() {
            pdcs.rx_request(self.now, key, pds, arrival)
        } else {
            pdcs.rx_request_with_telemetry(self.now, key, pds, arrival, self.telemetry)
        };
        let delivery = match verdict {
            RxVerdict::Deliver(delivery) => delivery,
            RxVerdict::Duplicate | RxVerdict::Trimmed => {
                self.record_rx(peer);
                return;
            }
            RxVerdict::Refused(Refusal::Unverified) => {
                self.engine.unmatched.send_nack(
                    &mut step!(self.engine, self.now),
                    self.src,
                    (pds, ses),
                );
                return;
            }
            RxVerdict::Refused(Refusal::Mismatch) if matches!(pds.dest, Dest::Pdc(_)) => {
                // The number names different contexts at the two ends, so one of them has
                // restarted.
                self.engine.unmatched.send_nack(
                    &mut step!(self.engine, self.now),
                    self.src,
                    (pds, ses),
                );
                return;
            }
            RxVerdict::Refused(_) => return,
        };
        let (id, forward) = (delivery.id(), delivery.is_forward());
        self.record_rx(peer);
        let channel = ChannelId::Context(id);
        if self.engine.contexts.get(channel).is_none() {
            self.register_context(id, peer);
        }
        if self.fragment.is_some() || self.engine.pdcs.has_fragments() {
            return self.deliver_beside_fragments((id, peer), (ses, payload), delivery);
        }
        let packet = DeliveredPacket { id, peer, pds, ses, headers, payload, forward };
        self.process_delivered(&packet, delivery, arrival, train);
    }

    /// Hands the content of a packet to the part of the engine that handles it. `forward` says that the context's
    /// initiator sent the packet.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        from: (ChannelId, PeerId),
        forward: bool,
        (ses, payload): (&Ses, &[u8]),
    ) -> PacketOutcome {
        match ses {
            Ses::Std(request) if forward => self.handle_initiator_request(from, request, payload),
            Ses::ResponseData(header) if !forward => self.engine.outbound.handle_response_data(
                &mut step!(self.engine, self.now),
                self.mem,
                from.0,
                header,
                Payload::Here(payload),
            ),
            _ => PacketOutcome::No,
        }
    }

    /// Handles a delivered packet that is a fragment, or that may be a late copy of an original that was replaced by
    /// fragments. A fragment whose original arrived whole is acknowledged and not processed. A late copy of an original
    /// whose fragments were taken is dropped.
    #[cold]
    fn deliver_beside_fragments(
        &mut self,
        (id, peer): (PdcId, PeerId),
        content: (&Ses, &[u8]),
        delivery: Delivery,
    ) {
        let forward = delivery.is_forward();
        let pdcs = &mut self.engine.pdcs;
        let wanted = match self.fragment {
            None => pdcs.discard_original(delivery),
            Some((original, _)) if pdcs.is_fragment_repeated(id, original) => {
                self.engine.report.counters.rx_fragments_repeated += 1;
                let step = &mut step!(self.engine, self.now);
                return conclude_delivery(step, delivery, PacketOutcome::Yes(None));
            }
            Some((original, count)) if !pdcs.accepts_fragment(id, original, count) => {
                return conclude_delivery(
                    &mut step!(self.engine, self.now),
                    delivery,
                    PacketOutcome::No,
                );
            }
            Some(_) => Some(delivery),
        };
        let Some(delivery) = wanted else {
            self.engine.report.counters.rx_originals_replaced += 1;
            return;
        };
        let taken = self.deliver((id.into(), peer), forward, content);
        if let (Some((original, count)), PacketOutcome::Yes(_)) = (self.fragment, taken) {
            self.engine.pdcs.take_fragment(id, original, count);
        }
        conclude_delivery(&mut step!(self.engine, self.now), delivery, taken);
    }

    /// Handles a request of the context's initiator.
    #[inline]
    pub(super) fn handle_initiator_request(
        &mut self,
        (id, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> PacketOutcome {
        let mut step = step!(self.engine, self.now);
        let answered = matches!(request.opcode, Opcode::Read | Opcode::FetchingAtomic);
        if answered && !self.engine.outbound.may_answer(&step, id, peer) {
            step.report.counters.rx_unanswerable += 1;
            return PacketOutcome::Later(NackCode::NoSesMsgAvail);
        }
        if !GroupTag::read(request).0.is_none() {
            let outside = step.is_outside(peer);
            if !step.report.access_groups().has_room(outside) {
                return PacketOutcome::Later(NackCode::NoSesMsgAvail);
            }
        }
        let answer = match request.opcode {
            Opcode::Send
            | Opcode::TaggedSend
            | Opcode::RendezvousSend
            | Opcode::RendezvousTsend => {
                return self.engine.inbox.handle_message_packet(
                    &mut step,
                    self.mem,
                    (id, peer),
                    request,
                    Payload::Here(payload),
                );
            }
            Opcode::Write => return self.handle_write((id, peer), request, Payload::Here(payload)),
            Opcode::Atomic | Opcode::FetchingAtomic => {
                return self.handle_atomic((id, peer), request, payload);
            }
            Opcode::NoOp => return self.answer_question((id, peer), request),
            Opcode::Read if GroupTag::read(request).1 == RESOURCE_MEMORY => {
                self.engine.target.read(self.mem, request)
            }
            Opcode::Read if request.resource_index == RESOURCE_RENDEZVOUS => {
                self.engine.outbound.answer_offer_read(&mut step, peer, request)
            }
            Opcode::Read => {
                return PacketOutcome::refused(
                    self.engine.config.job_id,
                    ReturnCode::BadIndex,
                    request,
                );
            }
            _ => {
                return PacketOutcome::refused(
                    self.engine.config.job_id,
                    ReturnCode::UnsupportedOp,
                    request,
                );
            }
        };
        match answer {
            Ok(answer) => {
                self.engine.outbound.queue_answer(&mut step, id, peer, answer);
                PacketOutcome::Yes(None)
            }
            Err(error) => {
                refuse_access(&mut self.engine.report, &self.engine.config, error, request)
            }
        }
    }

    /// Handles a write.
    pub(super) fn handle_write(
        &mut self,
        from: (ChannelId, PeerId),
        request: &StdRequest,
        payload: Payload<'_>,
    ) -> PacketOutcome {
        let step = &mut step!(self.engine, self.now);
        match self.engine.target.write(step, self.mem, from, request, payload) {
            Ok(()) => PacketOutcome::Yes(None),
            Err(WriteRefusal::Refused(error)) => {
                refuse_access(&mut self.engine.report, &self.engine.config, error, request)
            }
            Err(WriteRefusal::Gone) if self.mem.is_delayed() => {
                PacketOutcome::Later(NackCode::NoSesMsgAvail)
            }
            // The owner revoked the memory. The response contains only that the write failed.
            Err(WriteRefusal::Gone) => {
                let code = ReturnCode::HostUnsuccessCmpl;
                PacketOutcome::refused(self.engine.config.job_id, code, request)
            }
            Err(WriteRefusal::Inconsistent) => PacketOutcome::No,
            Err(WriteRefusal::NoRoom) => PacketOutcome::Later(NackCode::NoSesMsgAvail),
        }
    }

    /// Handles an atomic operation.
    fn handle_atomic(
        &mut self,
        (id, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> PacketOutcome {
        let mut step = step!(self.engine, self.now);
        match self.engine.target.atomic(&mut step, self.mem, (id, peer), request, payload) {
            Ok(answer) => {
                if let Some(answer) = answer {
                    self.engine.outbound.queue_answer(&mut step, id, peer, answer);
                }
                PacketOutcome::Yes(None)
            }
            Err(AtomicRefusal::Access(error)) => {
                refuse_access(&mut self.engine.report, &self.engine.config, error, request)
            }
            Err(AtomicRefusal::Operation(code)) => {
                self.engine.report.counters.rx_atomics_refused += 1;
                PacketOutcome::refused(self.engine.config.job_id, code, request)
            }
        }
    }

    /// Answers whether this endpoint knows the operation that a peer asks about; see
    /// `outbound::questions`.
    fn answer_question(
        &mut self,
        (id, peer): (ChannelId, PeerId),
        request: &StdRequest,
    ) -> PacketOutcome {
        self.engine.target.record_operation(id, request.message_id);
        let known = match PeerQuestion::read(request) {
            PeerQuestion::Nothing => true,
            PeerQuestion::Read(read) => self.engine.outbound.is_answering(id, read),
            PeerQuestion::Send(message, slot) => {
                self.engine.inbox.pending().is_awaited(id, message)
                    || self.engine.outbound.is_answering(id, slot)
            }
            PeerQuestion::Rendezvous(message, key) => {
                self.engine.inbox.pending().is_awaited(id, message)
                    || self.engine.outbound.is_reading(peer, key)
            }
            PeerQuestion::Unknown => false,
        };
        if known {
            PacketOutcome::Yes(None)
        } else {
            PacketOutcome::refused(self.engine.config.job_id, ReturnCode::BadIndex, request)
        }
    }

    /// Handles a Negotiation control packet, which carries a handshake.
    #[cold]
    fn handle_negotiation(&mut self, values: &[u8]) {
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

    /// Registers a context that a peer has opened. An initiator has only one open context at a
    /// time, so messages that are incomplete on the previous one fail.
    pub(super) fn register_context(&mut self, id: PdcId, peer: PeerId) {
        let state = self.engine.peers.get(peer);
        let addr = state.addr();
        let form = PacketForm::new(&self.engine.config, state, false);
        let former = self.engine.contexts.add(
            id.into(),
            peer,
            (addr, self.engine.peers.paths.get(addr.ip()), form),
            false,
        );
        self.engine.inbox.open_stream(id.into());
        if let Some(former) = former {
            let (step, former) = (&mut step!(self.engine, self.now), former.into());
            self.engine.inbox.abort_incomplete(step, former, OpError::Closed);
        }
    }
}

/// Returns the verified peer that sent a SYN, identified by its address, the port that it claims to
/// listen on, and its instance. An unverified peer is sent a rejection.
fn find_initiator(
    unmatched: &mut UnmatchedPackets,
    step: &mut Step<'_>,
    src: SocketAddr,
    (pds, ses): (&wire::Request, &Ses),
) -> Option<PeerId> {
    let request = match ses {
        Ses::Std(request) if request.job_id == step.config.job_id => request,
        _ => {
            step.report.counters.rx_foreign += 1;
            return None;
        }
    };
    let peer = step.peers.find_verified(src.ip(), Initiator::from_field(request.initiator));
    if peer.is_none() {
        unmatched.send_nack(step, src, (pds, ses));
    }
    peer
}

/// Reports to the transport what became of a packet that it delivered.
#[inline]
pub(super) fn conclude_delivery(step: &mut Step<'_>, delivery: Delivery, taken: PacketOutcome) {
    match taken {
        PacketOutcome::Yes(response) => step.pdcs.accept(step.now, delivery, response),
        PacketOutcome::Later(code) => {
            step.report.counters.rx_held_back += 1;
            step.pdcs.refuse(step.now, delivery, code);
        }
        PacketOutcome::No => {
            step.report.counters.rx_inconsistent += 1;
            step.pdcs.drop_malformed(delivery);
        }
    }
}

/// Returns whether a request is meant for this endpoint and comes from the instance that owns the
/// context.
#[inline]
pub(super) fn is_addressed_to_us(config: &Config, peer: &PeerState, request: &StdRequest) -> bool {
    request.job_id == config.job_id
        && request.pid_on_fep == config.pid_on_fep
        && peer.is_instance(Initiator::from_field(request.initiator))
}

/// Refuses an access to memory that the peer is not allowed to use.
pub(super) fn refuse_access(
    report: &mut Report,
    config: &Config,
    error: KeyError,
    request: &StdRequest,
) -> PacketOutcome {
    report.counters.rx_access_refused += 1;
    let code = target::count_refusal(&mut report.counters, error);
    PacketOutcome::refused(config.job_id, code, request)
}
