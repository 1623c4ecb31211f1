//! Receiving packet runs (`wire/src/packet_run.rs`) of a message, with their end. The first packet of
//! the message has been received by then, so only the payload has to be copied to its place.

use super::Inbox;
use crate::channel::ChannelId;
use crate::memory::Memory;
use crate::messages::MessageBuffer;
use crate::order::IdState;
use crate::step::Step;

impl Inbox {
    /// Copies consecutive payloads of `len` bytes in all into message `id` of a channel, from `offset`
    /// on. Changes nothing and returns false if there is no place for them yet, or if they exceed the
    /// message; each packet is then handled by itself.
    pub(crate) fn place_run<'a, M: Memory>(
        &mut self,
        step: &mut Step<'_>,
        mem: &mut M,
        (channel, id): (ChannelId, u16),
        (offset, len): (u64, u64),
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let state = self.streams.order(channel).and_then(|order| order.state(id));
        let Some(IdState::Open(key)) = state else { return false };
        let Some(message) = self.messages.get_mut(key) else { return false };
        let extent = message.head.extent;
        let inside = extent.received + len <= extent.eager && offset + len <= extent.eager;
        if !inside || extent.deferred {
            return false;
        }
        if matches!(message.place, MessageBuffer::Stash(_))
            && !self.budget.grow_buffer(step, message, offset + len)
        {
            return false;
        }
        match &mut message.place {
            MessageBuffer::User(target) => target.write_all(mem, (offset, len), payloads),
            MessageBuffer::Stash(bytes) => {
                let mut from = offset as usize;
                for payload in payloads {
                    bytes[from..from + payload.len()].copy_from_slice(payload);
                    from += payload.len();
                }
            }
            MessageBuffer::None | MessageBuffer::Discard => return false,
        }
        message.record_packet(step.now, len, None);
        step.report.counters.rx_payload_bytes += len;
        if message.head.extent.has_arrived() {
            self.advance_matching(step, mem, key, channel, id);
        }
        true
    }
}
