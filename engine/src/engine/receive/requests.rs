//! Requests of a peer: messages, and accesses to memory. They arrive in packets or in shared-memory
//! records.

use super::PacketReceiver;
use crate::access_groups::GroupTag;
use crate::channel::ChannelId;
use crate::config::Config;
use crate::engine::step;
use crate::memory::{KeyError, Memory, Payload};
use crate::operation::PeerId;
use crate::ops::{RESOURCE_MEMORY, RESOURCE_RENDEZVOUS};
use crate::outbound::PeerQuestion;
use crate::packet_outcome::PacketOutcome;
use crate::report::Report;
use crate::target::{self, AtomicRefusal, WriteRefusal};
use crate::wire::{NackCode, Opcode, ReturnCode, StdRequest};

impl<M: Memory> PacketReceiver<'_, M> {
    /// Handles a request from the endpoint that opened the context.
    #[inline]
    pub(in crate::engine) fn handle_initiator_request(
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

    /// Handles a packet of a peer's RMA write.
    pub(in crate::engine) fn handle_write(
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

    /// Handles a peer's atomic operation.
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

    /// Answers a peer's question whether this endpoint knows an operation; see
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
