//! The messages that arrive on each channel: their order, and those that wait for room.

use crate::base::{Span, Time};
use crate::channel::ChannelId;
use crate::completion::Notice;
use crate::messages::MessageHeader;
use crate::order::{IdState, MessageOrder};
use crate::packet_outcome::PacketOutcome;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::NackCode;

/// The messages that arrive on one channel: their order, and the one that waits for room.
#[derive(Debug)]
struct Stream {
    context: ChannelId,
    order: MessageOrder,
    /// The first message of which packets are refused for want of room. The sender retransmits its
    /// packets and those behind it.
    held_back: HeldMessage,
}

/// The first message of which packets are refused because the receiver has no room for it.
#[derive(Clone, Copy, Debug, Default)]
struct HeldMessage {
    id: u16,
    /// Time at which a packet of the message was last refused.
    at: Time,
}

impl HeldMessage {
    /// Time after which the refusal of a packet no longer excuses a missing message. Senders retry
    /// far more often.
    const FRESH: Span = Span::secs(5);

    /// Records that the receiver refused a packet of message `id` for want of room.
    fn record_refusal(&mut self, now: Time, id: u16, order: &MessageOrder) {
        if now.since(self.at) > Self::FRESH || !order.is_before(self.id, id) {
            *self = Self { id, at: now };
        }
    }

    /// Returns whether message `id` is incomplete because it, or an earlier message, waits for room
    /// here.
    fn is_waiting(&self, now: Time, id: u16, order: &MessageOrder) -> bool {
        now.since(self.at) <= Self::FRESH && !order.is_before(id, self.id)
    }
}

/// The message streams of all channels, one for each.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Message streams, indexed by [`ChannelId::index`].
    open: Vec<Option<Stream>>,
    /// The user was notified that too many messages wait for a receive.
    overflow_reported: bool,
}

impl Streams {
    /// Opens the message stream of a new channel.
    pub(super) fn open(&mut self, context: ChannelId) {
        if self.open.len() <= context.index() {
            self.open.resize_with(context.index() + 1, || None);
        }
        self.open[context.index()] = Some(Stream {
            context,
            order: MessageOrder::default(),
            held_back: HeldMessage::default(),
        });
    }

    #[inline]
    fn get(&mut self, context: ChannelId) -> Option<&mut Stream> {
        let stream = self.open.get_mut(context.index())?.as_mut()?;
        (stream.context == context).then_some(stream)
    }

    /// Returns the ordering table of the messages on a channel.
    #[inline]
    pub(super) fn order(&mut self, context: ChannelId) -> Option<&mut MessageOrder> {
        self.get(context).map(|stream| &mut stream.order)
    }

    /// Returns whether packets of a message have yet to arrive.
    pub(super) fn is_incomplete(&mut self, key: Key, head: &MessageHeader) -> bool {
        let seen = self.order(head.context).and_then(|order| order.state(head.id));
        seen == Some(IdState::Open(key))
    }

    /// Closes the message stream of a channel that has ended.
    pub(super) fn close(&mut self, context: ChannelId) {
        if let Some(stream) = self.open.get_mut(context.index())
            && stream.as_ref().is_some_and(|stream| stream.context == context)
        {
            *stream = None;
        }
    }

    /// Refuses a packet of a message for which there is no room now, and reports that once.
    /// Shared-memory channels always have room for an honest peer's messages, so there the record
    /// is invalid.
    #[cold]
    pub(super) fn refuse_packet(
        &mut self,
        step: &mut Step<'_>,
        head: &MessageHeader,
    ) -> PacketOutcome {
        if head.context.context().is_none() {
            return PacketOutcome::No;
        }
        if let Some(stream) = self.get(head.context) {
            stream.held_back.record_refusal(step.now, head.id, &stream.order);
        }
        self.report_overflow(step, head);
        PacketOutcome::Later(NackCode::NoSesMsgAvail)
    }

    /// Reports, once, that there is no room for a message.
    #[cold]
    pub(super) fn report_overflow(&mut self, step: &mut Step<'_>, head: &MessageHeader) {
        if !core::mem::replace(&mut self.overflow_reported, true) {
            let (peer, tag) = (head.peer(), head.envelope.tag);
            step.report.push_notice(Notice::TooManyUnexpected { peer, tag });
        }
    }

    /// Returns the number of message ids that are open, summed over all contexts.
    pub(super) fn open_ids(&self) -> usize {
        self.open.iter().flatten().map(|stream| stream.order.open_messages().count()).sum()
    }

    /// Records that no message waits for room, so that the next lack of room is reported again.
    #[inline]
    pub(super) const fn clear_overflow(&mut self) {
        self.overflow_reported = false;
    }

    /// Returns the contexts with an incomplete message of which nothing has arrived for `limit`,
    /// unless that is for want of room here. `touched` returns the time at which the last packet of
    /// a message arrived.
    pub(super) fn stalled_channels(
        &self,
        now: Time,
        limit: Span,
        touched: impl Fn(Key) -> Option<Time>,
    ) -> Vec<ChannelId> {
        let stalled = self.open.iter().flatten().filter(|stream| {
            let (id, first) = stream.order.first_missing();
            let since = match first {
                Some(key) => touched(key),
                // No packet of the first missing message has arrived. It is overdue for as long as
                // later messages have waited for it.
                None => stream.order.open_messages().filter_map(&touched).min(),
            };
            since.is_some_and(|since| now.since(since) > limit)
                && !stream.held_back.is_waiting(now, id, &stream.order)
        });
        stalled.map(|stream| stream.context).collect()
    }

    /// Applies `shift` to the times at which packets were refused for want of room.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Time)) {
        self.open.iter_mut().flatten().for_each(|stream| shift(&mut stream.held_back.at));
    }
}
