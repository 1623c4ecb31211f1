//! Receiving packet runs (`wire/src/packet_run.rs`) of a message, with their end. The first packet of
//! the message has been received by then, so only the payload has to be copied to its place.

use super::Inbox;
use crate::memory::Memory;
use crate::messages::{MessageBuffer, MessageHeader};
use crate::order::IdState;
use crate::reliability::PdcId;
use crate::slab::Key;
use crate::step::Step;

/// A message that has room for the payload of a packet run.
#[derive(Clone, Copy)]
pub(crate) struct RunMessage(Key);

impl RunMessage {
    /// Returns message `id` of a context if `len` bytes from `offset` on can be copied into it.
    /// Returns `None` if there is no place for them yet, or if they exceed the message; each packet
    /// is then handled by itself.
    pub(crate) fn find_run_message(
        inbox: &mut Inbox,
        step: &mut Step<'_>,
        (context, id): (PdcId, u16),
        (offset, len): (u64, u64),
    ) -> Option<Self> {
        let IdState::Open(key) = inbox.streams.order(context.into())?.state(id)? else {
            return None;
        };
        let message = inbox.messages.get_mut(key)?;
        let extent = message.head.extent;
        let inside = extent.received + len <= extent.eager && offset + len <= extent.eager;
        if !inside || extent.deferred {
            return None;
        }
        let room = match message.place {
            MessageBuffer::User(_) => true,
            MessageBuffer::Stash(_) => inbox.budget.grow_buffer(step, message, offset + len),
            MessageBuffer::None | MessageBuffer::Discard => false,
        };
        room.then_some(Self(key))
    }

    /// Copies consecutive payloads into the message, from `offset` on.
    pub(crate) fn copy_payloads<'a, M: Memory>(
        self,
        inbox: &mut Inbox,
        step: &mut Step<'_>,
        mem: &mut M,
        offset: u64,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(message) = inbox.messages.get_mut(self.0) else { return };
        let mut end = offset;
        for payload in payloads {
            match &mut message.place {
                MessageBuffer::User(target) => target.write(mem, end, payload),
                MessageBuffer::Stash(bytes) => {
                    let from = end as usize;
                    bytes[from..from + payload.len()].copy_from_slice(payload);
                }
                MessageBuffer::None | MessageBuffer::Discard => {}
            }
            end += payload.len() as u64;
        }
        message.record_packet(step.now, end - offset, None);
        step.report.counters.rx_payload_bytes += end - offset;
        let MessageHeader { context, id, extent, .. } = message.head;
        if extent.has_arrived() {
            inbox.advance_matching(step, mem, self.0, context, id);
        }
    }
}
