//! Messages of several packets that arrived as a whole in one train.

use super::Inbox;
use super::arrive::{confirm_of, data_of, envelope_of};
use crate::channel::ChannelId;
use crate::memory::Memory;
use crate::messages::{MessageExtent, MessageHeader, Pull};
use crate::operation::PeerId;
use crate::order::IdState;
use crate::step::Step;
use crate::wire::StdRequest;

impl Inbox {
    /// Takes the message that starts with `request` and has the bytes of `payloads`, if it is its
    /// turn and a posted receive matches. Otherwise changes nothing and returns false; its packets
    /// are then handled one by one.
    pub(crate) fn take_whole<'a, M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let id = request.message_id;
        // The message of an honest peer is always in turn, because everything sent before it has
        // arrived.
        let Some(order) = self.streams.order(context) else { return false };
        if !order.is_next(id) || order.state(id) != Some(IdState::No) {
            return false;
        }
        let envelope = envelope_of(request, peer);
        let total = u64::from(request.request_length);
        let target = self.posted.find(&envelope).and_then(|slot| self.posted.claim(slot, total));
        let Some(target) = target else { return false };
        let mut end = 0;
        for payload in payloads {
            target.write(mem, end, payload);
            end += payload.len() as u64;
        }
        debug_assert_eq!(end, total, "the whole message has arrived");
        step.report.counters.rx_expected += 1;
        step.report.counters.rx_payload_bytes += total;
        let head = MessageHeader {
            context,
            id,
            envelope,
            data: data_of(request),
            extent: MessageExtent {
                total,
                eager: total,
                received: total,
                started: true,
                deferred: false,
            },
            pull: Pull::No,
            confirm: confirm_of(request),
        };
        self.complete_message(step, &head, &target);
        self.finish_turn(step, mem, context, id, IdState::Done);
        true
    }
}
