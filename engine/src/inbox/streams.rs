//! The messages of each context: their order, and those that wait for room.

use crate::api::Notice;
use crate::base::{Span, Time};
use crate::channel::ChannelId;
use crate::messages::MessageHeader;
use crate::order::{IdState, MessageOrder};
use crate::packet_outcome::PacketOutcome;
use crate::slab::Key;
use crate::step::Step;
use crate::wire::NackCode;

/// The messages of a context.
#[derive(Debug)]
struct Stream {
    context: ChannelId,
    order: MessageOrder,
    /// The first message of which packets are refused because there is no room: it, and those after it, wait
    /// for us.
    held_back: HeldMessage,
}

/// A message that waits for room.
#[derive(Clone, Copy, Debug, Default)]
struct HeldMessage {
    id: u16,
    /// When a packet of it was refused last.
    at: Time,
}

impl HeldMessage {
    /// Senders try again far more often.
    const FRESH: Span = Span::secs(5);

    /// A packet of message `id` is refused.
    fn refuse(&mut self, now: Time, id: u16, order: &MessageOrder) {
        if now.since(self.at) > Self::FRESH || !order.is_before(self.id, id) {
            *self = Self { id, at: now };
        }
    }

    /// Whether a message waits for room.
    fn excuses(&self, now: Time, id: u16, order: &MessageOrder) -> bool {
        now.since(self.at) <= Self::FRESH && !order.is_before(id, self.id)
    }
}

/// The contexts that peers opened to us.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By [`ChannelId::index`].
    open: Vec<Option<Stream>>,
    /// It was said that too many messages wait.
    overflow_told: bool,
}

impl Streams {
    /// A peer opened a context to us.
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

    /// The order of a context's messages.
    #[inline]
    pub(super) fn order(&mut self, context: ChannelId) -> Option<&mut MessageOrder> {
        self.get(context).map(|stream| &mut stream.order)
    }

    /// Whether packets of a message are still to come.
    pub(super) fn expects(&mut self, key: Key, head: &MessageHeader) -> bool {
        let seen = self.order(head.context).and_then(|order| order.seen(head.id));
        seen == Some(IdState::Open(key))
    }

    /// A context is gone.
    pub(super) fn close(&mut self, context: ChannelId) {
        if let Some(stream) = self.open.get_mut(context.index())
            && stream.as_ref().is_some_and(|stream| stream.context == context)
        {
            *stream = None;
        }
    }

    /// Refuses a packet of a message for which there is no room now, and reports that once. On a shared-memory channel,
    /// which always has room for an honest peer's messages, the frame is not taken at all.
    #[cold]
    pub(super) fn hold_back(&mut self, step: &mut Step<'_>, head: &MessageHeader) -> PacketOutcome {
        if head.context.context().is_none() {
            return PacketOutcome::No;
        }
        if let Some(stream) = self.get(head.context) {
            stream.held_back.refuse(step.now, head.id, &stream.order);
        }
        self.tell_overflow(step, head);
        PacketOutcome::Later(NackCode::NoSesMsgAvail)
    }

    /// Reports, once, that there is no room for a message.
    #[cold]
    pub(super) fn tell_overflow(&mut self, step: &mut Step<'_>, head: &MessageHeader) {
        if !core::mem::replace(&mut self.overflow_told, true) {
            let (peer, tag) = (head.peer(), head.envelope.tag);
            step.report.notice(Notice::TooManyUnexpected { peer, tag });
        }
    }

    /// Returns the number of message ids that are open, summed over all contexts.
    pub(super) fn open_ids(&self) -> usize {
        self.open.iter().flatten().map(|stream| stream.order.open().count()).sum()
    }

    /// There is room, and no message waits: should there be none later, that is news.
    #[inline]
    pub(super) const fn note_room(&mut self) {
        self.overflow_told = false;
    }

    /// Contexts with half a message of which nothing has come for `patience`, for no want of room here.
    /// `touched` says when a packet of a message came last.
    pub(super) fn stalled(
        &self,
        now: Time,
        patience: Span,
        touched: impl Fn(Key) -> Option<Time>,
    ) -> Vec<ChannelId> {
        let stalled = self.open.iter().flatten().filter(|stream| {
            let (id, first) = stream.order.first_missing();
            let since = match first {
                Some(key) => touched(key),
                // Nothing of it came, for as long as others have been waiting for it.
                None => stream.order.open().filter_map(&touched).min(),
            };
            since.is_some_and(|since| now.since(since) > patience)
                && !stream.held_back.excuses(now, id, &stream.order)
        });
        stalled.map(|stream| stream.context).collect()
    }

    /// Moves by `shift` when packets were refused.
    pub(super) fn shift(&mut self, shift: impl Fn(&mut Time)) {
        self.open.iter_mut().flatten().for_each(|stream| shift(&mut stream.held_back.at));
    }
}
