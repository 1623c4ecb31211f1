//! The receiving half of two-sided messages: receives that wait for messages, messages that wait for
//! receives, and messages on their way.

mod arrive;
mod budget;
mod ends;
mod recv;

use std::collections::{BTreeMap, VecDeque};

use crate::api::PeerId;
use crate::base::{Span, Time};
use crate::matching::{Posted, Unexpected};
use crate::messages::{Message, Offer, Place, Pull};
use crate::order::Order;
use crate::reliability::PdcId;
use crate::slab::{Key, Slab};
use budget::Budget;

/// What receiving a message asks of the sending half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    /// Fetch what a rendezvous offered ([`Inbox::pull_read`]).
    Pull(Key),
    /// Tell the sender of a rendezvous that no more will be read, because that is all or because reading
    /// `failed`.
    EndPull { peer: PeerId, offer: Offer, total: u64, failed: bool },
    /// The message that is being fetched has ended: its buffer is not to be written to any more.
    WithdrawPull(Key),
    /// Tell the sender of a message that a receive has taken it.
    Confirm { context: PdcId, slot: u16 },
}

/// The messages of a context.
#[derive(Debug)]
struct Stream {
    context: PdcId,
    order: Order,
    /// The first message of which packets are refused because there is no room: it, and those after it, wait
    /// for us.
    held_back: HeldBack,
}

/// A message that waits for room.
#[derive(Clone, Copy, Debug, Default)]
struct HeldBack {
    id: u16,
    /// When a packet of it was refused last.
    at: Time,
}

impl HeldBack {
    /// Senders try again far more often.
    const FRESH: Span = Span::secs(5);

    /// A packet of message `id` is refused.
    fn refuse(&mut self, now: Time, id: u16, order: &Order) {
        if now.since(self.at) > Self::FRESH || !order.is_before(self.id, id) {
            *self = Self { id, at: now };
        }
    }

    /// Whether a message waits for room.
    fn excuses(&self, now: Time, id: u16, order: &Order) -> bool {
        now.since(self.at) <= Self::FRESH && !order.is_before(id, self.id)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Inbox {
    posted: Posted,
    unexpected: Unexpected,
    messages: Slab<Message>,
    /// By [`PdcId::index`].
    streams: Vec<Option<Stream>>,
    asks: VecDeque<Ask>,
    /// Messages whose senders wait for more than acknowledgements: by [`PdcId::index`], and the number there.
    awaited: BTreeMap<(usize, u16), Key>,
    budget: Budget,
    /// It was said that too many messages wait.
    overflow_told: bool,
}

impl Inbox {
    /// An empty one; the seeds are of the hash tables.
    pub(crate) fn new(posted: u64, unexpected: u64) -> Self {
        Self {
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected),
            messages: Slab::default(),
            streams: Vec::new(),
            asks: VecDeque::new(),
            awaited: BTreeMap::new(),
            budget: Budget::default(),
            overflow_told: false,
        }
    }

    /// A peer opened a context to us.
    pub(crate) fn open(&mut self, context: PdcId) {
        if self.streams.len() <= context.index() {
            self.streams.resize_with(context.index() + 1, || None);
        }
        self.streams[context.index()] =
            Some(Stream { context, order: Order::default(), held_back: HeldBack::default() });
    }

    #[inline]
    fn stream(&mut self, context: PdcId) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(context.index())?.as_mut()?;
        (stream.context == context).then_some(stream)
    }

    #[inline]
    fn order(&mut self, context: PdcId) -> Option<&mut Order> {
        self.stream(context).map(|stream| &mut stream.order)
    }

    /// The next thing to ask of the sending half.
    #[inline]
    pub(crate) fn next_ask(&mut self) -> Option<Ask> {
        self.asks.pop_front()
    }

    /// Messages that wait for a receive.
    pub(crate) const fn unexpected_messages(&self) -> usize {
        self.unexpected.len()
    }

    /// Messages that are not finished.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Keeps a message that is not finished.
    fn add(&mut self, message: Message) -> Key {
        let head = message.head;
        let key = self.messages.add(message);
        if head.pull != Pull::No || head.confirm.is_some() {
            self.awaited.insert((head.context.index(), head.id), key);
        }
        key
    }

    /// A message is finished, or nobody will ever see it.
    fn remove(&mut self, key: Key) -> Option<Message> {
        let message = self.messages.remove(key)?;
        let name = (message.head.context.index(), message.head.id);
        if !self.awaited.is_empty() && self.awaited.get(&name) == Some(&key) {
            self.awaited.remove(&name);
        }
        Some(message)
    }

    /// Whether the sender of message `id` of a context rightly waits: for a receive, or for reads of it.
    pub(crate) fn awaits(&self, context: PdcId, id: u16) -> bool {
        let key = self.awaited.get(&(context.index(), id));
        let message = key.and_then(|key| self.messages.get(*key));
        message.is_some_and(|m| m.head.context == context && m.broken.is_none())
    }

    /// Peers of which packets of a message are missing.
    pub(crate) fn owing_peers(&self) -> Vec<PeerId> {
        let owed = |m: &Message| !m.head.extent.arrived() && m.broken.is_none();
        let mut peers: Vec<PeerId> =
            self.messages.iter().filter(|(_, m)| owed(m)).map(|(_, m)| m.head.peer()).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    /// Contexts with half a message of which nothing has come for `patience`, longer than its sender would
    /// have waited for an acknowledgement: it knows nothing of the message.
    pub(crate) fn stalled(&self, now: Time, patience: Span) -> Vec<PdcId> {
        let streams = self.streams.iter().flatten();
        let touched = |key: Key| self.messages.get(key).map(|message| message.touched);
        let stalled = streams.filter(|stream| {
            let (id, first) = stream.order.first_missing();
            let since = match first {
                Some(key) => touched(key),
                // Nothing of it came, for as long as others have been waiting for it.
                None => stream.order.open().filter_map(touched).min(),
            };
            since.is_some_and(|since| now.since(since) > patience)
                && !stream.held_back.excuses(now, id, &stream.order)
        });
        stalled.map(|stream| stream.context).collect()
    }

    /// Nobody was here to take packets for `absent`, until now.
    pub(crate) fn excuse(&mut self, now: Time, absent: Span) {
        let shift = |at: &mut Time| *at = (*at + absent).min(now);
        self.messages.iter_mut().for_each(|message| shift(&mut message.touched));
        self.streams.iter_mut().flatten().for_each(|stream| shift(&mut stream.held_back.at));
    }

    /// Asks again for the reads that found no room for a context.
    pub(crate) fn retry_pulls(&mut self) {
        let waits = |m: &Message| {
            matches!(m.head.pull, Pull::Offered(_))
                && matches!(m.place, Place::User(_) | Place::Discard)
        };
        for (key, message) in self.messages.iter() {
            if waits(message) {
                self.asks.push_back(Ask::Pull(key));
            }
        }
    }
}
