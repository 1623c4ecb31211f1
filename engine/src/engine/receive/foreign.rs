//! Packets of peers of other implementations ([`crate::Config::wire`]). Such peers pass no handshake:
//! the source address of a packet names its sender, and any request may open a context.

use core::net::SocketAddr;

use super::PacketReceiver;
use super::requests::refuse_access;
use crate::base::Time;
use crate::channel::ChannelId;
use crate::completion::{Notice, OpError};
use crate::engine::{Engine, step};
use crate::foreign_wire::ForeignWire;
use crate::memory::{Memory, Payload};
use crate::message_ids::MessagePacket;
use crate::operation::PeerId;
use crate::ops::ReadPart;
use crate::outbound::Answer;
use crate::packet_outcome::PacketOutcome;
use crate::peers::DestinationError;
use crate::reliability::cc::{AckStyle, Hops};
use crate::reliability::{
    self, Arrival, Contact, NamedContext, Origin, PdcId, PeerKey, Refusal, RxVerdict,
};
use crate::wire::{
    self, Dest, Extension, List, NackCode, Opcode, Packet, Response, ResponseData, ResponseOpcode,
    ReturnCode, Ses, StdBody, StdRequest,
};

/// EMSGSIZE on Linux: a packet is too long for its path.
const TOO_LONG: i32 = 90;

/// Changes the configuration of the contexts to what peers of a foreign wire handle.
pub(in crate::engine) fn adapt_transport(pdc: &mut reliability::Config, wire: &ForeignWire) {
    if let Contact::Introduced(seed) = &pdc.contact {
        pdc.contact = Contact::Unverified(seed.clone());
    }
    pdc.dialect = wire.dialect;
    pdc.max_window_packets = pdc.max_window_packets.min(ForeignWire::WINDOW);
    // Peers give up after a few milliseconds without an acknowledgement.
    pdc.ack_linger = crate::base::Span::ZERO;
    pdc.ack_trigger = pdc.ack_trigger.min(16 << 10);
    pdc.loss.probe = false;
    pdc.loss.out_of_order = false;
    pdc.receiver = reliability::cc::ReceiverConfig::Plain;
    pdc.acks = AckStyle { each_packet: false, lowest_segment: false, telemetry: false };
}

impl Engine {
    /// Handles a report that packets of the wire's size do not pass to `dst`. The wire has no smaller
    /// ones, so operations fail when their deadline expires, with this report as the reason.
    #[cold]
    pub(in crate::engine) fn report_small_path(&mut self, now: Time, dst: SocketAddr, bytes: u32) {
        if self.peers.has_host(dst.ip()) && bytes < self.config.max_packet {
            let Some(wire) = &self.config.wire else { return };
            let peer = wire.peer_addr(dst);
            self.peers.record_destination_error(now, DestinationError { errno: TOO_LONG, peer });
            self.report.push_notice(Notice::PacketSize { host: dst.ip(), bytes, guessed: false });
        }
    }

    /// Fails the operations of peers that owe an answer and were silent for the deadline. Peers of
    /// another implementation cannot be asked for a sign of life.
    #[cold]
    pub(in crate::engine) fn fail_silent_peers(&mut self, now: Time) {
        let deadline = self.pdcs.config().progress_deadline;
        let owing = self.outbound.ops().select(|op| op.is_owed() || op.is_unmatched());
        for key in owing {
            let Some(peer) = self.outbound.ops().get(key).map(|op| op.peer) else { continue };
            if now.since(self.peers.get(peer).last_rx()) >= deadline {
                self.teardown(now).fail_peer(peer, OpError::TimedOut);
            }
        }
    }

    /// Returns the peer that sent a packet from `src`, adding it if it is new. Returns `None` if the
    /// peer is not admitted, or if there are too many peers that the application does not know.
    fn foreign_sender(&mut self, now: Time, src: SocketAddr) -> Option<PeerId> {
        let addr = self.config.wire.as_ref()?.peer_addr(src);
        let known = self.peers.find(addr);
        if self.config.named_only && !known.is_some_and(|peer| self.peers.get(peer).is_named()) {
            self.report.counters.rx_unlisted += 1;
            return None;
        }
        if known.is_some() {
            return known;
        }
        self.forget_peers(now);
        let Some((peer, host)) = self.peers.add_unsolicited(addr) else {
            self.report.counters.rx_crowded += 1;
            return None;
        };
        let key = PeerKey(peer.0);
        self.pdcs.set_host(key, host);
        let outside = self.peers.is_outside(&self.config, peer);
        self.pdcs.admissions().add_unverified(key, outside);
        Some(peer)
    }
}

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a packet from a peer of another implementation.
    #[cold]
    pub(super) fn handle_foreign(&mut self, arrival: &Arrival, bytes: &[u8]) {
        if arrival.trimmed {
            return self.handle_foreign_trimmed(arrival, bytes);
        }
        let Ok(packet) = wire::parse(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let (context, accepted) = match packet {
            Packet::Request { pds, ses, payload } => {
                return self.handle_foreign_request(&pds, &ses, payload, arrival);
            }
            Packet::Ack { pds, ses, payload } => {
                let Some(context) = self.find_foreign_context(pds.dpdcid) else { return };
                let (id, peer) = (context.id, PeerId(context.peer.0));
                let awaited = pds
                    .ack_psn()
                    .and_then(|psn| self.engine.outbound.find_unmatched(id.into(), psn));
                let response = match &ses {
                    Ses::Response(response) if awaited.is_some() || says_more(response) => {
                        Some(response)
                    }
                    _ => None,
                };
                let pdcs = &mut self.engine.pdcs;
                let accepted = pdcs.rx_ack(self.now, context, &pds, response, Hops::NONE);
                if let (true, Some(response), Some(op)) = (accepted, response, awaited) {
                    let step = &mut step!(self.engine, self.now);
                    self.engine.outbound.handle_late_response(step, op, response);
                }
                if let (true, Ses::ResponseData(header)) = (accepted, &ses) {
                    // The data of a short read may come on the acknowledgement.
                    let data = Ses::ResponseData(self.check_read_data(header, payload));
                    self.deliver((id.into(), peer), false, (&data, payload));
                }
                (context, accepted)
            }
            Packet::Nack(nack) => {
                let Some(context) = self.find_foreign_context(nack.dpdcid) else { return };
                (context, self.engine.pdcs.rx_nack(self.now, context, &nack))
            }
            Packet::Control(control) => {
                let Dest::Pdc(dpdcid) = control.dest else {
                    self.engine.report.counters.rx_foreign += 1;
                    return;
                };
                let Some(context) = self.find_foreign_context(dpdcid) else { return };
                (context, self.engine.pdcs.rx_control(self.now, context, &control))
            }
            _ => {
                self.engine.report.counters.rx_foreign += 1;
                return;
            }
        };
        if accepted {
            self.record_rx(PeerId(context.peer.0));
        }
    }

    /// Handles a request whose payload a switch cut off: the sender is notified if the context
    /// exists.
    fn handle_foreign_trimmed(&mut self, arrival: &Arrival, bytes: &[u8]) {
        let Ok(trimmed) = wire::parse_trimmed(bytes) else {
            self.engine.report.counters.rx_malformed += 1;
            return;
        };
        let Dest::Pdc(dpdcid) = trimmed.pds.dest else {
            self.engine.report.counters.rx_foreign += 1;
            return;
        };
        let Some(context) = self.find_foreign_context(dpdcid) else { return };
        let verdict = self.engine.pdcs.rx_request(self.now, context, &trimmed.pds, arrival);
        if matches!(verdict, RxVerdict::Trimmed | RxVerdict::Duplicate) {
            self.record_rx(PeerId(context.peer.0));
        }
    }

    /// Returns the context with the number `dpdcid`, if the packet came from its peer's address.
    fn find_foreign_context(&mut self, dpdcid: u16) -> Option<NamedContext> {
        let from = self.engine.config.wire.as_ref().map(|wire| wire.peer_addr(self.src));
        let found =
            self.engine.pdcs.find_context(dpdcid).filter(|context| {
                Some(self.engine.peers.get(PeerId(context.peer.0)).addr()) == from
            });
        self.engine.report.counters.rx_foreign += u64::from(found.is_none());
        found
    }

    /// Sends the sender of a request the NACK that its context is unknown here.
    fn refuse_foreign_context(&mut self, pds: &wire::Request) {
        let Some(wire) = &self.engine.config.wire else { return };
        let listens = wire.peer_addr(self.src);
        let step = &mut step!(self.engine, self.now);
        self.engine.unmatched.refuse_context(step, listens, pds);
    }

    /// Handles a request of a foreign peer, or the data that answers a read.
    fn handle_foreign_request(
        &mut self,
        pds: &wire::Request,
        ses: &Ses,
        payload: &[u8],
        arrival: &Arrival,
    ) {
        let origin: Option<Origin> = match pds.dest {
            Dest::Syn { .. } => {
                let peer = self.engine.foreign_sender(self.now, self.src);
                peer.map(|peer| PeerKey(peer.0).into())
            }
            Dest::Pdc(dpdcid) => {
                let context = self.find_foreign_context(dpdcid);
                if context.is_none() {
                    self.refuse_foreign_context(pds);
                }
                context.map(Into::into)
            }
        };
        let Some(origin) = origin else { return };
        let (key, peer) = (origin.peer(), PeerId(origin.peer().0));
        let verdict = self.engine.pdcs.rx_request(self.now, origin, pds, arrival);
        let delivery = match verdict {
            RxVerdict::Deliver(delivery) => delivery,
            RxVerdict::Duplicate | RxVerdict::Trimmed => {
                if let Some(response) = default_response(ses) {
                    self.engine.pdcs.answer_again(self.now, key, pds, response);
                }
                self.record_rx(peer);
                return;
            }
            RxVerdict::Refused(Refusal::Mismatch) if matches!(pds.dest, Dest::Pdc(_)) => {
                self.refuse_foreign_context(pds);
                return;
            }
            RxVerdict::Refused(_) => return,
        };
        let (id, psn, forward) = (delivery.id(), delivery.psn(), delivery.is_forward());
        self.record_rx(peer);
        if self.engine.contexts.get(ChannelId::Context(id)).is_none() {
            self.register_context(id, peer);
        }
        let outcome = self.deliver_foreign((id, peer), forward, ses, payload);
        self.conclude_one(delivery, outcome);
        if let (PacketOutcome::Yes(None), Some(response)) = (outcome, default_response(ses)) {
            // Peers wait for the acknowledgement of the first and of the last packet of a message
            // without asking for it.
            let prompt = match ses {
                Ses::Std(request) => request.som || request.eom,
                Ses::ResponseData(data) => {
                    let end = data.message_offset.saturating_add(data.payload_length.into());
                    end >= data.modified_length
                }
                _ => false,
            };
            self.engine.pdcs.answer(self.now, id, psn, response, prompt);
        }
    }

    /// Passes the content of a foreign peer's packet to the part of the engine that handles it.
    fn deliver_foreign(
        &mut self,
        (id, peer): (PdcId, PeerId),
        forward: bool,
        ses: &Ses,
        payload: &[u8],
    ) -> PacketOutcome {
        let from = (ChannelId::Context(id), peer);
        let request = match ses {
            Ses::Std(request) => request,
            Ses::ResponseData(header) => {
                let data = Ses::ResponseData(self.check_read_data(header, payload));
                return self.deliver(from, forward, (&data, payload));
            }
            _ => return self.deliver(from, forward, (ses, payload)),
        };
        if !forward {
            return PacketOutcome::No;
        }
        if let Some(code) = self.find_address_error(request) {
            self.engine.report.counters.rx_misaddressed += 1;
            return refused(code, request);
        }
        match request.opcode {
            Opcode::Send
            | Opcode::DeferrableSend
            | Opcode::TaggedSend
            | Opcode::DeferrableTsend => self.handle_foreign_message(from, request, payload),
            Opcode::Write => self.handle_foreign_write(from, request, payload),
            Opcode::Read => self.handle_foreign_read(from, request),
            Opcode::NoOp => PacketOutcome::Yes(None),
            _ => refused(ReturnCode::UnsupportedOp, request),
        }
    }

    /// Returns the code with which a request is refused because it is addressed to another job or
    /// process.
    fn find_address_error(&self, request: &StdRequest) -> Option<ReturnCode> {
        let config = &self.engine.config;
        if !config.wire.is_some_and(|wire| wire.checks_job) {
            return None;
        }
        if request.job_id != config.job_id {
            return Some(ReturnCode::BadJobId);
        }
        (request.pid_on_fep != config.pid_on_fep).then_some(ReturnCode::Undeliverable)
    }

    /// Checks that data of a read are what one request asked for. A peer with packets of another size
    /// answers with more or less, and the bytes of its answers would not add up to the read, so the read
    /// fails instead.
    fn check_read_data(&mut self, header: &ResponseData, payload: &[u8]) -> ResponseData {
        let (at, total) = (header.message_offset, header.modified_length);
        let unit = self.engine.config.wire.map_or(u32::MAX, |wire| wire.payload.into());
        let wanted = unit.min(total.saturating_sub(at));
        let is_refusal = !matches!(header.return_code, ReturnCode::Ok | ReturnCode::Null);
        if is_refusal || at.is_multiple_of(unit) && payload.len() == wanted as usize {
            return *header;
        }
        self.engine.report.counters.rx_other_payload += 1;
        ResponseData { return_code: ReturnCode::OpViolation, modified_length: wanted, ..*header }
    }

    /// Counts a packet of a message or write that its sender cut into packets of another size. It is taken
    /// nevertheless, because it says where its payload belongs.
    fn count_other_payload(&mut self, request: &StdRequest, payload: &[u8]) {
        let unit = self.engine.config.wire.map_or(0, |wire| usize::from(wire.payload));
        let other = payload.len() > unit || !request.eom && payload.len() < unit;
        self.engine.report.counters.rx_other_payload += u64::from(other);
    }

    /// Handles a packet of a write. Writes that are reported when all of their packets have arrived
    /// are counted under their numbers in the order of arrival. No number is kept for other writes, nor
    /// for those that are refused, so a peer without a memory key cannot fill the table.
    fn handle_foreign_write(
        &mut self,
        from: (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> PacketOutcome {
        self.count_other_payload(request, payload);
        let packet = message_packet(request, payload);
        let number = self.engine.write_ids.number(from.0, &packet);
        // Other implementations have no groups, and every index means this endpoint.
        let plain = StdRequest { ri_generation: 0, resource_index: 0, ..*request };
        let numbered = StdRequest { message_id: number, ..plain };
        let outcome = match self.handle_write(from, &numbered, Payload::Here(payload)) {
            PacketOutcome::Yes(Some(response)) => {
                PacketOutcome::Yes(Some(Response { message_id: request.message_id, ..response }))
            }
            outcome => outcome,
        };
        let counted = packet.len < packet.total && self.engine.target.reports_write(request);
        if counted && matches!(outcome, PacketOutcome::Yes(None)) {
            self.engine.write_ids.record_packet(from.0, &packet);
        }
        outcome
    }

    /// Answers a packet of a read, which asks for the payload of one packet.
    fn handle_foreign_read(
        &mut self,
        (id, peer): (ChannelId, PeerId),
        request: &StdRequest,
    ) -> PacketOutcome {
        let total = request.request_length;
        let payload = self.engine.config.wire.map_or(0, |wire| u32::from(wire.payload));
        let (offset, len) = match request.body {
            StdBody::First { .. } => (0, total.min(payload)),
            StdBody::Next { payload_length, message_offset } => {
                (message_offset, u32::from(payload_length))
            }
        };
        if offset.checked_add(len).is_none_or(|end| end > total) || len > payload {
            self.engine.report.counters.rx_other_payload += u64::from(len > payload);
            return refused(ReturnCode::OpViolation, request);
        }
        let mut step = step!(self.engine, self.now);
        if !self.engine.outbound.may_answer(&step, id, peer) {
            step.report.counters.rx_unanswerable += 1;
            return PacketOutcome::Later(NackCode::NoSesMsgAvail);
        }
        let Some(address) = request.buffer_offset.checked_add(offset.into()) else {
            return refused(ReturnCode::BadAddr, request);
        };
        let part = StdRequest {
            buffer_offset: address,
            request_length: len,
            ri_generation: 0,
            resource_index: 0,
            ..*request
        };
        match self.engine.target.read(self.mem, &part) {
            Ok(answer) => {
                let answer = Answer { part: Some(ReadPart { offset, total }), ..answer };
                self.engine.outbound.queue_answer(&mut step, id, peer, answer);
                PacketOutcome::Yes(None)
            }
            Err(error) => {
                refuse_access(&mut self.engine.report, &self.engine.config, error, request)
            }
        }
    }

    /// Handles a packet of a message. The message gets a number in order of arrival, because the
    /// peer's id says nothing about order. A deferrable send is accepted as a send.
    fn handle_foreign_message(
        &mut self,
        (channel, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payload: &[u8],
    ) -> PacketOutcome {
        self.count_other_payload(request, payload);
        let packet = message_packet(request, payload);
        let tagged = matches!(request.opcode, Opcode::TaggedSend | Opcode::DeferrableTsend);
        let message = StdRequest {
            opcode: if tagged { Opcode::TaggedSend } else { Opcode::Send },
            message_id: self.engine.message_ids.number(channel, &packet),
            // The acknowledgement confirms the delivery, and every index means this endpoint.
            delivery_complete: false,
            resource_index: 0,
            extension: Extension::None,
            ..*request
        };
        let outcome = self.engine.inbox.handle_message_packet(
            &mut step!(self.engine, self.now),
            self.mem,
            (channel, peer),
            &message,
            Payload::Here(payload),
        );
        if matches!(outcome, PacketOutcome::Yes(_)) {
            self.engine.message_ids.record_packet(channel, &packet);
        }
        outcome
    }
}

/// Returns the facts about a packet by which its message is recognised.
fn message_packet(request: &StdRequest, payload: &[u8]) -> MessagePacket {
    MessagePacket {
        id: request.message_id,
        first: matches!(request.body, StdBody::First { .. }),
        len: payload.len() as u64,
        total: request.request_length.into(),
    }
}

/// Returns the outcome that refuses a request with the return code `code`.
const fn refused(code: ReturnCode, request: &StdRequest) -> PacketOutcome {
    PacketOutcome::refused(request.job_id, code, request)
}

/// Returns whether a response says more than that its packet was accepted.
const fn says_more(response: &Response) -> bool {
    !(matches!(response.opcode, ResponseOpcode::Default)
        && matches!(response.return_code, ReturnCode::Ok | ReturnCode::Null))
}

/// Returns the response that a peer gets for a packet that was accepted without anything special to
/// report.
const fn default_response(ses: &Ses) -> Option<Response> {
    let (message_id, ri_generation, job_id, modified_length) = match ses {
        Ses::Std(request) => {
            (request.message_id, request.ri_generation, request.job_id, request.request_length)
        }
        Ses::ResponseData(data) => (data.response_message_id, 0, data.job_id, data.modified_length),
        _ => return None,
    };
    Some(Response {
        list: List::Expected,
        opcode: ResponseOpcode::Default,
        return_code: ReturnCode::Ok,
        message_id,
        ri_generation,
        job_id,
        modified_length,
    })
}
