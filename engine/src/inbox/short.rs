//! Messages of one record on shared-memory channels. They arrive in order, and the sender keeps no
//! copy.

use super::Inbox;
use super::ends::complete_receive;
use crate::channel::ChannelId;
use crate::completion::OpError;
use crate::matching::{Envelope, UnexpectedMessage};
use crate::memory::{Memory, Payload};
use crate::messages::{MessageExtent, MessageHeader, Pull};
use crate::operation::PeerId;
use crate::order::IdState;
use crate::packet_outcome::PacketOutcome;
use crate::shm::record::Short;
use crate::step::Step;

impl Inbox {
    /// Handles a message that arrived as one shared-memory record.
    #[inline]
    pub(crate) fn handle_short_message<M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (shm, peer): (ChannelId, PeerId),
        short: &Short,
        payload: Payload<'_>,
    ) -> PacketOutcome {
        let Some(order) = self.streams.order(shm) else { return PacketOutcome::No };
        let in_turn = order.is_next(short.id) && order.state(short.id) == Some(IdState::No);
        if !in_turn || short.job_id != step.config.job_id {
            return PacketOutcome::No;
        }
        let envelope = Envelope { space: short.space, source: peer, tag: short.tag };
        let total = payload.len();
        let head = MessageHeader {
            context: shm,
            id: short.id,
            envelope,
            data: short.data,
            extent: MessageExtent {
                total,
                eager: total,
                received: total,
                started: true,
                deferred: false,
            },
            pull: Pull::No,
            confirm: None,
        };
        let target = self.posted.find(&envelope).and_then(|slot| self.posted.claim(slot, total));
        if let Some(target) = target {
            if !target.place(mem, payload) {
                // The receive has matched a message that cannot be copied, so it must complete with
                // an error here.
                let mut completion = head.completion();
                target.describe(&mut completion, total, Some(OpError::Closed));
                complete_receive(&mut self.posted, step, completion, target.multi);
                return PacketOutcome::No;
            }
            step.report.counters.rx_expected += 1;
            step.report.counters.rx_payload_bytes += total;
            self.complete_message(step, &head, &target);
        } else {
            let Some(bytes) = payload.copy(mem) else { return PacketOutcome::No };
            if self.messages.len() == 0 {
                self.streams.clear_overflow();
            }
            let Some(message) = self.budget.buffer_short(step, head, bytes) else {
                return PacketOutcome::No;
            };
            if message.charge.beyond_headers > 0 {
                self.streams.report_overflow(step, &head);
            }
            step.report.counters.rx_unexpected += 1;
            let message = self.messages.add(message);
            self.unexpected.push(UnexpectedMessage { envelope, message });
        }
        self.finish_turn(step, mem, shm, short.id, IdState::Done);
        PacketOutcome::Yes(None)
    }
}
