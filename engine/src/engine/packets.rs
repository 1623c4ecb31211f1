//! Packets that arrive: who sent them, which context they belong to, who takes their bytes.

use core::net::SocketAddr;

use super::{Engine, step};
use crate::api::{OpError, PeerId};
use crate::base::Time;
use crate::config::Config;
use crate::introductions::{Around, Heard};
use crate::memory::{KeyError, Memory};
use crate::outbound::{Asks, RESOURCE_MEMORY, RESOURCE_RENDEZVOUS};
use crate::peers::{Initiator, PeerState};
use crate::reliability::{self, Delivery, PdcId, PeerKey, Refusal, RxVerdict};
use crate::report::Report;
use crate::step::Step;
use crate::strays::Strays;
use crate::taken::Taken;
use crate::target;
use crate::wire::{self, Dest, Introduction, Opcode, Packet, ReturnCode, Ses, StdRequest};

/// What the network said about a packet, besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketMarks {
    /// Marked Congestion Experienced.
    pub ce: bool,
    /// A switch cut its payload off (known from the DSCP).
    pub trimmed: bool,
}

impl Engine {
    /// A packet arrived. `bytes` is the UDP payload without CRC trailer.
    pub fn handle_packet<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        marks: PacketMarks,
        bytes: &[u8],
    ) {
        if self.pdcs.is_tardy(now) {
            self.excuse_absence(now);
        }
        let arrival = reliability::Arrival {
            ce: marks.ce,
            trimmed: marks.trimmed,
            last_hop: false,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        if arrival.trimmed {
            self.handle_trimmed(now, mem, src, &arrival, bytes);
            return;
        }
        let Ok(packet) = wire::parse(bytes) else {
            self.report.counters.rx_malformed += 1;
            return;
        };
        match packet {
            Packet::Request { pds, ses, payload } => {
                self.handle_request(now, mem, src, &pds, &ses, payload, &arrival);
                return;
            }
            Packet::Ack { pds, ses, .. } => {
                let Some(peer) = self.owner(src, pds.dpdcid) else { return };
                let response = match &ses {
                    Ses::Response(response) => Some(response),
                    _ => None,
                };
                if self.pdcs.rx_ack(now, PeerKey(peer.0), &pds, response) {
                    self.note_rx(now, mem, peer);
                }
            }
            Packet::Nack(nack) => {
                let Some(peer) = self.owner(src, nack.dpdcid) else { return };
                if self.pdcs.rx_nack(now, PeerKey(peer.0), &nack) {
                    self.note_rx(now, mem, peer);
                }
            }
            Packet::Control(control) => {
                let Dest::Pdc(dpdcid) = control.dest else {
                    // No context of ours is opened by a control packet.
                    self.report.counters.rx_foreign += 1;
                    return;
                };
                let Some(peer) = self.owner(src, dpdcid) else { return };
                if self.pdcs.rx_control(now, PeerKey(peer.0), &control) {
                    self.note_rx(now, mem, peer);
                }
            }
            Packet::Negotiation { values, .. } => {
                self.handle_introduction(now, mem, src, values);
                return;
            }
            // RUDI, UUD and TSS are not used between our endpoints.
            _ => {
                self.report.counters.rx_foreign += 1;
                return;
            }
        }
        self.drain_events(now);
    }

    /// A data packet whose payload a switch cut off: the sender learns at once.
    fn handle_trimmed<M: Memory>(
        &mut self,
        now: Time,
        mem: &M,
        src: SocketAddr,
        arrival: &reliability::Arrival,
        bytes: &[u8],
    ) {
        let Ok(trimmed) = wire::parse_trimmed(bytes) else {
            self.report.counters.rx_malformed += 1;
            return;
        };
        let peer = match (trimmed.pds.dest, &trimmed.ses) {
            (Dest::Pdc(dpdcid), _) => self.owner(src, dpdcid),
            (Dest::Syn { .. }, Some(ses)) => {
                initiator(&mut self.strays, &mut step!(self, now), src, (&trimmed.pds, ses))
            }
            (Dest::Syn { .. }, None) => {
                // Cut so short that it does not say who opens the context; the sender's timer helps.
                self.report.counters.rx_foreign += 1;
                None
            }
        };
        let Some(peer) = peer else { return };
        let verdict = self.pdcs.rx_request(now, PeerKey(peer.0), &trimmed.pds, arrival);
        if matches!(verdict, RxVerdict::Trimmed | RxVerdict::Duplicate) {
            self.note_rx(now, mem, peer);
        }
        self.drain_events(now);
    }

    /// Something a peer sent was believed.
    #[inline]
    fn note_rx<M: Memory>(&mut self, now: Time, mem: &M, peer: PeerId) {
        if self.peers.get_mut(peer).note_rx(now) {
            self.outbound.first_contact(&mut step!(self, now), mem, peer);
        }
    }

    /// The peer whose context `dpdcid` is, if the packet came from its address.
    #[inline]
    fn owner(&mut self, src: SocketAddr, dpdcid: u16) -> Option<PeerId> {
        let peer = self.pdcs.peer_of(dpdcid).map(|key| PeerId(key.0));
        match peer {
            Some(peer) if self.peers.get(peer).addr().ip() == src.ip() => Some(peer),
            _ => {
                self.report.counters.rx_foreign += 1;
                None
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // one packet, in its parts
    fn handle_request<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        pds: &wire::Request,
        ses: &Ses,
        payload: &[u8],
        arrival: &reliability::Arrival,
    ) {
        let peer = match pds.dest {
            Dest::Syn { .. } => initiator(&mut self.strays, &mut step!(self, now), src, (pds, ses)),
            Dest::Pdc(dpdcid) if self.pdcs.peer_of(dpdcid).is_none() => {
                self.strays.reject(&mut step!(self, now), src, (pds, ses));
                None
            }
            Dest::Pdc(dpdcid) => self.owner(src, dpdcid),
        };
        let Some(peer) = peer else { return };
        if let Ses::Std(request) = ses
            && !is_ours(&self.config, self.peers.get(peer), request)
        {
            self.report.counters.rx_foreign += 1;
            if !self.peers.get(peer).is_met() {
                // It has a context to us, it thinks: to one who was here before us.
                self.strays.reject(&mut step!(self, now), src, (pds, ses));
            }
            return;
        }
        let verdict = self.pdcs.rx_request(now, PeerKey(peer.0), pds, arrival);
        let delivery = match verdict {
            RxVerdict::Deliver(delivery) => delivery,
            RxVerdict::Duplicate | RxVerdict::Trimmed => {
                self.note_rx(now, mem, peer);
                self.drain_events(now);
                return;
            }
            RxVerdict::Refused(Refusal::Stranger) => {
                self.strays.reject(&mut step!(self, now), src, (pds, ses));
                return;
            }
            RxVerdict::Refused(Refusal::Mismatch) if matches!(pds.dest, Dest::Pdc(_)) => {
                // The number names another context here than there: one of us has restarted.
                self.strays.reject(&mut step!(self, now), src, (pds, ses));
                return;
            }
            RxVerdict::Refused(_) => return,
        };
        let (id, forward) = (delivery.id(), delivery.is_forward());
        self.note_rx(now, mem, peer);
        if self.contexts.get(id).is_none() {
            self.meet_context(now, id, peer);
        }
        let taken = match ses {
            Ses::Std(request) if forward => {
                self.take_request(now, mem, (id, peer), request, payload)
            }
            Ses::ResponseData(header) if !forward => {
                self.outbound.response_data(&mut step!(self, now), mem, id, header, payload)
            }
            _ => Taken::No,
        };
        acknowledge(&mut step!(self, now), delivery, taken);
        self.drain_events(now);
    }

    /// A request of the context's initiator.
    #[inline]
    fn take_request<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        (id, peer): (PdcId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> Taken {
        let mut step = step!(self, now);
        let answer = match request.opcode {
            Opcode::Send
            | Opcode::TaggedSend
            | Opcode::RendezvousSend
            | Opcode::RendezvousTsend => {
                return self.inbox.take_message(&mut step, mem, id, peer, request, payload);
            }
            Opcode::Write => {
                return match self.target.write(&mut step, mem, (id, peer), request, payload) {
                    Ok(Ok(())) => Taken::Yes(None),
                    Ok(Err(error)) => refuse_access(&mut self.report, &self.config, error, request),
                    Err(target::Inconsistent) => Taken::No,
                };
            }
            Opcode::NoOp => return self.answer_question((id, peer), request),
            Opcode::Read if request.resource_index == RESOURCE_MEMORY => target::read(mem, request),
            Opcode::Read if request.resource_index == RESOURCE_RENDEZVOUS => {
                self.outbound.read_offer(&mut step, peer, request)
            }
            Opcode::Read => {
                return Taken::refused(self.config.job_id, ReturnCode::BadIndex, request);
            }
            _ => return Taken::refused(self.config.job_id, ReturnCode::UnsupportedOp, request),
        };
        match answer {
            Ok(answer) => {
                self.outbound.answer(&mut step, id, peer, answer);
                Taken::Yes(None)
            }
            Err(error) => refuse_access(&mut self.report, &self.config, error, request),
        }
    }

    /// Says whether we know of what a peer asks about: see `outbound::questions`.
    fn answer_question(&self, (id, peer): (PdcId, PeerId), request: &StdRequest) -> Taken {
        let known = match Asks::read(request) {
            Asks::Nothing => true,
            Asks::Read(read) => self.outbound.answers(id, read),
            Asks::Send(message, slot) => {
                self.inbox.awaits(id, message) || self.outbound.answers(id, slot)
            }
            Asks::Rendezvous(message, key) => {
                self.inbox.awaits(id, message) || self.outbound.reads(peer, key)
            }
            Asks::Unknown => false,
        };
        if known {
            Taken::Yes(None)
        } else {
            Taken::refused(self.config.job_id, ReturnCode::BadIndex, request)
        }
    }

    /// A Negotiation control packet arrived.
    #[cold]
    fn handle_introduction<M: Memory>(
        &mut self,
        now: Time,
        mem: &M,
        src: SocketAddr,
        values: &[u8],
    ) {
        let intro = match Introduction::read(values) {
            Ok(Some(intro)) => intro,
            Ok(None) => {
                self.report.counters.rx_foreign += 1;
                return;
            }
            Err(_) => {
                self.report.counters.rx_malformed += 1;
                return;
            }
        };
        self.report.counters.rx_introductions += 1;
        let from = SocketAddr::new(src.ip(), intro.port);
        loop {
            let around = Around {
                now,
                config: &self.config,
                peers: &mut self.peers,
                pdcs: &mut self.pdcs,
                contexts: &self.contexts,
                counters: &mut self.report.counters,
            };
            match self.introductions.hear(around, from, &intro) {
                Heard::Nothing => {}
                Heard::Met(peer) => self.note_rx(now, mem, peer),
                Heard::Ended(peer, error) => self.fail_peer(now, peer, error),
                Heard::Succeeded(peer) => {
                    self.peer_restarted(now, peer);
                    continue;
                }
            }
            break;
        }
        self.drain_events(now);
    }

    /// A peer has opened a context to us. An initiator has one at a time: what the former left open will
    /// not be finished.
    fn meet_context(&mut self, now: Time, id: PdcId, peer: PeerId) {
        let addr = self.peers.get(peer).addr();
        let former = self.contexts.add(id, peer, (addr, self.peers.paths.get(addr.ip())), false);
        self.inbox.open(id);
        if let Some(former) = former {
            self.inbox.abandon(&mut step!(self, now), former, OpError::Closed);
        }
    }
}

/// The peer behind a SYN, by its address, the port it says it listens on, and its instance. A stranger is
/// told that it is one.
fn initiator(
    strays: &mut Strays,
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
    let peer = step.peers.introduced(src.ip(), Initiator::from_field(request.initiator));
    if peer.is_none() {
        strays.reject(step, src, (pds, ses));
    }
    peer
}

/// Answers for a packet that the transport delivered.
#[inline]
fn acknowledge(step: &mut Step<'_>, delivery: Delivery, taken: Taken) {
    match taken {
        Taken::Yes(response) => step.pdcs.accept(step.now, delivery, response),
        Taken::Later(code) => {
            step.report.counters.rx_held_back += 1;
            step.pdcs.refuse(step.now, delivery, code);
        }
        Taken::No => {
            step.report.counters.rx_inconsistent += 1;
            step.pdcs.drop_malformed(delivery);
        }
    }
}

/// Whether a request is meant for this endpoint and comes from the instance that owns the context.
#[inline]
fn is_ours(config: &Config, peer: &PeerState, request: &StdRequest) -> bool {
    request.job_id == config.job_id
        && request.pid_on_fep == config.pid_on_fep
        && peer.is_instance(Initiator::from_field(request.initiator))
}

/// A peer asks for memory that it may not have.
fn refuse_access(
    report: &mut Report,
    config: &Config,
    error: KeyError,
    request: &StdRequest,
) -> Taken {
    report.counters.rx_access_refused += 1;
    let told = target::refusal(&mut report.counters, error);
    Taken::refused(config.job_id, told, request)
}
