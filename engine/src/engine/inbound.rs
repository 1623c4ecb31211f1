//! Packets that arrive: who sent them, which context they belong to, where their bytes go.

mod message;
mod remote;

use core::net::SocketAddr;

use super::Engine;
use crate::api::PeerId;
use crate::base::Time;
use crate::memory::Memory;
use crate::reliability::{self, Delivery, PeerKey, Refusal, RxVerdict};
use crate::wire::{self, Dest, NackCode, Packet, Response, ReturnCode, Ses, StdRequest};

/// What the network said about a packet, besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxMeta {
    /// Marked Congestion Experienced.
    pub ce: bool,
    /// A switch cut its payload off (known from the DSCP).
    pub trimmed: bool,
}

/// What the message layer makes of a packet.
#[derive(Clone, Copy)]
pub(super) enum Taken {
    /// It is in place; the response, if any, is not the default one.
    Yes(Option<Response>),
    /// Not now: there is no room.
    Later(NackCode),
    /// Never: it contradicts itself or what came before.
    No,
}

impl Engine {
    /// A packet arrived. `bytes` is the UDP payload without CRC trailer.
    pub fn handle_packet<M: Memory>(
        &mut self,
        now: Time,
        mem: &mut M,
        src: SocketAddr,
        meta: RxMeta,
        bytes: &[u8],
    ) {
        let meta = reliability::Arrival {
            ce: meta.ce,
            trimmed: meta.trimmed,
            last_hop: false,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        if meta.trimmed {
            self.handle_trimmed(now, mem, src, &meta, bytes);
            return;
        }
        let Ok(packet) = wire::parse(bytes) else {
            self.counters.rx_malformed += 1;
            return;
        };
        match packet {
            Packet::Request { pds, ses, payload } => {
                self.handle_request(now, mem, src, &pds, &ses, payload, &meta);
            }
            Packet::Ack { pds, ses, .. } => {
                let Some(peer) = self.owner(src, pds.dpdcid) else { return };
                let response = match &ses {
                    Ses::Response(response) => Some(response),
                    _ => None,
                };
                if self.pdcs.rx_ack(now, PeerKey(peer.0), &pds, response) {
                    self.heard(now, mem, peer);
                }
                self.drain_events(now);
            }
            Packet::Nack(nack) => {
                let Some(peer) = self.owner(src, nack.dpdcid) else { return };
                if self.pdcs.rx_nack(now, PeerKey(peer.0), &nack) {
                    self.heard(now, mem, peer);
                }
                self.drain_events(now);
            }
            Packet::Control(control) => {
                let Dest::Pdc(dpdcid) = control.dest else {
                    // No context of ours is opened by a control packet.
                    self.counters.rx_foreign += 1;
                    return;
                };
                let Some(peer) = self.owner(src, dpdcid) else { return };
                if self.pdcs.rx_control(now, PeerKey(peer.0), &control) {
                    self.heard(now, mem, peer);
                }
                self.drain_events(now);
            }
            // RUDI, UUD and TSS are not used between our endpoints.
            _ => self.counters.rx_foreign += 1,
        }
    }

    /// A data packet whose payload a switch cut off: the sender learns at once.
    fn handle_trimmed<M: Memory>(
        &mut self,
        now: Time,
        mem: &M,
        src: SocketAddr,
        meta: &reliability::Arrival,
        bytes: &[u8],
    ) {
        let Ok(trimmed) = wire::parse_trimmed(bytes) else {
            self.counters.rx_malformed += 1;
            return;
        };
        let peer = match (trimmed.pds.dest, &trimmed.ses) {
            (Dest::Pdc(dpdcid), _) => self.owner(src, dpdcid),
            (Dest::Syn { .. }, Some(ses)) => self.initiator(now, src, ses),
            (Dest::Syn { .. }, None) => {
                // Cut so short that it does not say who opens the context; the sender's timer helps.
                self.counters.rx_foreign += 1;
                None
            }
        };
        let Some(peer) = peer else { return };
        let verdict = self.pdcs.rx_request(now, PeerKey(peer.0), &trimmed.pds, meta);
        if matches!(verdict, RxVerdict::Trimmed | RxVerdict::Duplicate) {
            self.heard(now, mem, peer);
        }
        self.drain_events(now);
    }

    /// A peer said something that was believed.
    fn heard<M: Memory>(&mut self, now: Time, mem: &M, peer: PeerId) {
        let last = core::mem::replace(&mut self.peers[peer.0 as usize].last_heard, now);
        if last == Time::ZERO {
            self.complete_early(mem, peer);
        }
    }

    /// The peer whose context `dpdcid` is, if the packet came from its address.
    fn owner(&mut self, src: SocketAddr, dpdcid: u16) -> Option<PeerId> {
        let peer = self.pdcs.peer_of(dpdcid).map(|key| PeerId(key.0));
        match peer {
            Some(peer) if self.peers[peer.0 as usize].addr.ip() == src.ip() => Some(peer),
            _ => {
                self.counters.rx_foreign += 1;
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
        meta: &reliability::Arrival,
    ) {
        let peer = match pds.dest {
            Dest::Syn { .. } => self.initiator(now, src, ses),
            Dest::Pdc(dpdcid) if self.pdcs.peer_of(dpdcid).is_none() => {
                self.reject(src, pds, ses);
                None
            }
            Dest::Pdc(dpdcid) => self.owner(src, dpdcid),
        };
        let Some(peer) = peer else { return };
        if let Ses::Std(request) = ses
            && !self.is_ours(peer, request)
        {
            self.counters.rx_foreign += 1;
            if self.peers[peer.0 as usize].epoch.is_none() {
                // It has a context to us, it thinks: to one who was here before us.
                self.reject(src, pds, ses);
            }
            return;
        }
        let verdict = self.pdcs.rx_request(now, PeerKey(peer.0), pds, meta);
        let delivery = match verdict {
            RxVerdict::Deliver(delivery) => delivery,
            RxVerdict::Duplicate | RxVerdict::Trimmed => {
                self.heard(now, mem, peer);
                self.drain_events(now);
                return;
            }
            RxVerdict::Refused(Refusal::Mismatch) if matches!(pds.dest, Dest::Pdc(_)) => {
                // The number names another context here than there: one of us has restarted.
                self.reject(src, pds, ses);
                return;
            }
            RxVerdict::Refused(_) => return,
        };
        let (id, forward) = (delivery.id(), delivery.is_forward());
        self.heard(now, mem, peer);
        if self.context(id).is_none() {
            self.meet_context(now, id, peer);
        }
        let taken = match ses {
            Ses::Std(request) if forward => self.take_request(now, mem, id, peer, request, payload),
            Ses::ResponseData(header) if !forward => {
                self.take_response(now, mem, id, header, payload)
            }
            _ => Taken::No,
        };
        self.answer(now, delivery, taken);
        self.drain_events(now);
    }

    fn answer(&mut self, now: Time, delivery: Delivery, taken: Taken) {
        match taken {
            Taken::Yes(response) => self.pdcs.accept(now, delivery, response),
            Taken::Later(code) => {
                self.counters.rx_held_back += 1;
                self.pdcs.refuse(now, delivery, code);
            }
            Taken::No => {
                self.counters.rx_inconsistent += 1;
                self.pdcs.drop_malformed(delivery);
            }
        }
    }

    /// The peer behind a SYN: its address, the port it says it listens on, and its epoch.
    fn initiator(&mut self, now: Time, src: SocketAddr, ses: &Ses) -> Option<PeerId> {
        let Ses::Std(request) = ses else {
            self.counters.rx_foreign += 1;
            return None;
        };
        let (port, epoch) = split_initiator(request.initiator);
        if port == 0 || request.job_id != self.config.job_id {
            self.counters.rx_foreign += 1;
            return None;
        }
        let peer = self.peer(SocketAddr::new(src.ip(), port));
        let state = &mut self.peers[peer.0 as usize];
        match state.epoch {
            Some(known) if known == epoch => {}
            Some(known) => {
                if state.old_epochs.contains(&Some(epoch)) {
                    // A packet of an instance that is gone.
                    self.counters.rx_foreign += 1;
                    return None;
                }
                state.old_epochs.rotate_right(1);
                state.old_epochs[0] = Some(known);
                state.epoch = Some(epoch);
                self.peer_restarted(now, peer);
            }
            None => state.epoch = Some(epoch),
        }
        Some(peer)
    }

    /// Whether a request is meant for this endpoint and comes from the instance that owns the
    /// context.
    fn is_ours(&self, peer: PeerId, request: &StdRequest) -> bool {
        let state = &self.peers[peer.0 as usize];
        let (port, epoch) = split_initiator(request.initiator);
        request.job_id == self.config.job_id
            && request.pid_on_fep == self.config.pid_on_fep
            && port == state.addr.port()
            && state.epoch == Some(epoch)
    }

    /// Tells the sender of a packet for a context that is not here, if it said where it listens.
    fn reject(&mut self, src: SocketAddr, pds: &wire::Request, ses: &Ses) {
        let Ses::Std(request) = ses else { return };
        let (port, _) = split_initiator(request.initiator);
        let known = self.by_addr.get(&SocketAddr::new(src.ip(), port));
        let key = known.map(|peer| PeerKey(peer.0));
        let Some(nack) = self.pdcs.reject(key, pds) else { return };
        // Bounded, so that a flood of forged packets costs no memory.
        if port != 0 && request.job_id == self.config.job_id && self.strays.len() < 64 {
            self.strays.push_back((SocketAddr::new(src.ip(), port), nack));
        }
    }

    /// A peer has opened a context to us.
    fn meet_context(&mut self, now: Time, id: reliability::PdcId, peer: PeerId) {
        self.add_context(id, peer, false);
        let former = self.peers[peer.0 as usize].theirs.replace(id);
        // An initiator has one context to us at a time: what the former left open will not be
        // finished.
        let open: Vec<u32> = former
            .and_then(|former| self.context(former))
            .map(|context| context.order.open().collect())
            .unwrap_or_default();
        for message in open {
            self.break_message(now, message, crate::api::OpError::Closed);
        }
    }

    /// A response that is not the default one.
    pub(super) fn response(&self, code: ReturnCode, message_id: u16) -> Option<Response> {
        Some(Response {
            list: wire::List::Expected,
            opcode: wire::ResponseOpcode::Response,
            return_code: code,
            message_id,
            ri_generation: 0,
            job_id: self.config.job_id,
            modified_length: 0,
        })
    }
}

/// The `initiator` field: epoch nonce above, UDP port below.
const fn split_initiator(initiator: u32) -> (u16, u16) {
    ((initiator & 0xffff) as u16, (initiator >> 16) as u16)
}
