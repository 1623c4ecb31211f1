//! Messages that arrived as a whole, in one packet or in the packets of one train.

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
    #[inline]
    pub(crate) fn take_whole<'a, M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (context, peer): (ChannelId, PeerId),
        request: &StdRequest,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let id = request.message_id;
        // A message that comes before its turn waits, see `begin_early_message`.
        let Some(order) = self.streams.order(context) else { return false };
        if !order.is_next(id) || order.state(id) != Some(IdState::No) {
            return false;
        }
        let envelope = envelope_of(request, peer);
        let total = u64::from(request.request_length);
        let target = self.posted.find(&envelope).and_then(|slot| self.posted.claim(slot, total));
        let Some(target) = target else { return false };
        let turn_is_over = order.advance_whole();
        target.write_all(mem, (0, total), payloads);
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
        // The messages behind it complete later.
        if !turn_is_over {
            self.finish_turn(step, mem, context, id, IdState::Done);
        }
        true
    }
}
