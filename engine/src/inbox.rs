//! The receiving half of two-sided messages: receives that wait for messages, messages that wait
//! for receives, and messages that are still arriving.

mod arrive;
mod budget;
mod ends;
mod pending;
mod recv;
mod runs;
mod send_requests;
mod short;
mod streams;
mod unreported_losses;
mod whole;

use crate::base::{Span, Time};
use crate::channel::ChannelId;
use crate::config::Config;
use crate::holdings::Holdings;
use crate::matching::{Posted, Unexpected};
use crate::messages::{Message, MessageBuffer, Pull};
use crate::operation::PeerId;
use crate::peers::Peers;
use crate::shm::Room;
use budget::Budget;
use pending::Pending;
use send_requests::SendRequestQueue;
use streams::Streams;
use unreported_losses::UnreportedLosses;

pub(crate) use send_requests::SendRequest;

/// The receiving half of an endpoint's two-sided messages: receives, and messages that arrived.
#[derive(Debug)]
pub(crate) struct Inbox {
    posted: Posted,
    unexpected: Unexpected,
    messages: Pending,
    streams: Streams,
    send_requests: SendRequestQueue,
    budget: Budget,
    /// Losses of peers that no operation has reported to the user, and that a later receive must
    /// report.
    unreported: UnreportedLosses,
}

impl Inbox {
    /// Creates an empty inbox. The arguments seed the hash tables of posted receives and of
    /// unexpected messages.
    pub(crate) fn new(posted: u64, unexpected: u64) -> Self {
        Self {
            posted: Posted::new(posted),
            unexpected: Unexpected::new(unexpected),
            messages: Pending::default(),
            streams: Streams::default(),
            send_requests: SendRequestQueue::default(),
            budget: Budget::default(),
            unreported: UnreportedLosses::default(),
        }
    }

    /// Prepares the ordering table for the messages of a new channel.
    pub(crate) fn open_stream(&mut self, context: ChannelId) {
        self.streams.open(context);
    }

    /// Returns the queue of requests from the receiving half to the sending half.
    #[inline]
    pub(crate) const fn send_requests(&mut self) -> &mut SendRequestQueue {
        &mut self.send_requests
    }

    /// Returns the room for messages that a peer sends on a shared-memory channel.
    #[inline]
    pub(crate) fn room(&self, peer: PeerId, config: &Config, peers: &Peers) -> Room {
        self.budget.room((config, peers), peer)
    }

    /// Returns the number of messages that wait for a receive.
    pub(crate) const fn unexpected_messages(&self) -> usize {
        self.unexpected.len()
    }

    /// Returns the peers whose messages are kept, that receives name, or whose losses are
    /// unreported. They must not be forgotten.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        let senders = self.messages.iter().map(|(_, message)| message.head.peer());
        senders.chain(self.posted.source_peers()).chain(self.unreported.peers())
    }

    /// Counts the entries of the tables for messages and receives.
    pub(crate) fn count_holdings(&self, holdings: &mut Holdings) {
        holdings.messages = self.messages.len();
        holdings.awaited = self.messages.awaited_len();
        let kept = |(_, message): (_, &Message)| match &message.place {
            MessageBuffer::Stash(bytes) => bytes.len() as u64,
            _ => 0,
        };
        holdings.kept_bytes = self.messages.iter().map(kept).sum();
        holdings.unexpected = self.unexpected.len();
        holdings.posted = self.posted.len();
        holdings.open_ids = self.streams.open_ids();
        holdings.send_requests += self.send_requests.len();
        self.budget.count_holdings(holdings);
    }

    /// Returns the inbound messages that are not finished.
    pub(crate) const fn pending(&self) -> &Pending {
        &self.messages
    }

    /// Returns the contexts with an incomplete message of which nothing has arrived for `limit`.
    /// That is longer than a sender waits for an acknowledgement, so the sender has forgotten the
    /// message.
    pub(crate) fn stalled_channels(&self, now: Time, limit: Span) -> Vec<ChannelId> {
        let touched = |key| {
            let message = self.messages.get(key);
            debug_assert!(message.is_some(), "every open id has a message");
            message.map(|message| message.touched)
        };
        self.streams.stalled_channels(now, limit, touched)
    }

    /// Extends all waits by `absent`, because this process did not run and could not take packets.
    pub(crate) fn exclude_absence(&mut self, now: Time, absent: Span) {
        let shift = |at: &mut Time| *at = (*at + absent).min(now);
        self.messages.shift_times(shift);
        self.streams.shift_times(shift);
    }

    /// Requests again the reads that could not start because there was no context for them.
    pub(crate) fn retry_pulls(&mut self) {
        let waits = |m: &Message| {
            matches!(m.head.pull, Pull::Offered(_))
                && matches!(m.place, MessageBuffer::User(_) | MessageBuffer::Discard)
        };
        for (key, message) in self.messages.iter() {
            if waits(message) {
                self.send_requests.push(SendRequest::Pull(key));
            }
        }
    }
}
