//! Memory for messages that wait for a receive, or for their turn.
//!
//! What is charged is what was allocated for bytes that came, and a header's cost; not what a packet announces.
//! A message is kept while the endpoint's memory lasts ([`crate::Config::unexpected_bytes`]), and its peer's share
//! of it: a quarter, where there are several peers. Of one beyond that the header alone is held, up to
//! [`crate::Config::max_unexpected`] of them, and it is *deferred*:
//!
//! 1. Its packets are acknowledged and their bytes dropped, so that nothing behind them waits. One of the
//!    acknowledgements says NO_MATCH.
//! 2. The sender stops sending its bytes. When the packets on their way are acknowledged, so that nothing of them
//!    can come late, it turns the message into a rendezvous: the same message, by its id, in a
//!    RENDEZVOUS_(T)SEND without eager part. What was copied stays there as long; outstanding operations are
//!    bounded.
//! 3. The receiver reads the bytes when a receive matches, as those of any rendezvous. The order of messages is
//!    that of their ids, and is not touched: a deferred message matches as soon as its first packet or the offer
//!    is here, whichever comes first.
//!
//! A message of one frame that came by a link is kept in any case, for nobody could offer it later. A very short one takes
//! as much as a header; the sender of others is told when half of what its messages may take is taken, and sends no more of
//! them then, so that what comes beyond that is bounded by what a link holds.
//!
//! So a sender that was told of completion when its bytes were copied was told the truth, one that waits for its
//! buffer gets it back when it has been read, and one that waits for a match when there was one. Beyond the
//! headers packets are refused, and come again later.

use super::arrive::Piece;
use crate::api::PeerId;
use crate::config::Config;
use crate::messages::{Head, Message, Place, Pull};
use crate::peers::Peers;
use crate::step::Step;

/// What keeping a message costs beside its bytes.
const HEADER_COST: u64 = 256;

/// Peers that may have all of an endpoint's memory; of more, each has a share.
const ALONE: usize = 1;
/// Shares of an endpoint's memory.
const SHARES: u64 = 4;

/// What each peer's messages take.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// By peer, bytes.
    charged: Vec<u64>,
}

impl Budget {
    /// Keeps a packet's bytes for a message without a receive, or, when the budget is spent, its header.
    /// `None` when it cannot be deferred.
    pub(super) fn keep(
        &mut self,
        step: &mut Step<'_>,
        mut head: Head,
        piece: Piece<'_>,
    ) -> Option<Message> {
        let extent = &mut head.extent;
        if extent.eager == 0 {
            return Some(head.message(step.now, Place::None));
        }
        // What comes is no more than the whole message, as was checked.
        let end = piece.offset + piece.bytes.len() as u64;
        let cost = Self::cost(end);
        if self.charge(step, head.envelope.source, cost) {
            extent.received = piece.bytes.len() as u64;
            step.report.counters.rx_payload_bytes += extent.received;
            let mut bytes = Vec::with_capacity(end as usize);
            bytes.resize(piece.offset as usize, 0);
            bytes.extend_from_slice(piece.bytes);
            let message = head.message(step.now, Place::Stash(bytes));
            return Some(Message { charged: cost, ..message });
        }
        if head.pull != Pull::No {
            // It is a rendezvous already, and its eager part has nowhere to go.
            return None;
        }
        Self::defer(step, &mut head);
        Some(head.message(step.now, Place::None))
    }

    /// Keeps a message of one frame that came by a link.
    pub(super) fn keep_short(
        &mut self,
        step: &mut Step<'_>,
        head: Head,
        bytes: Vec<u8>,
    ) -> Message {
        let len = bytes.len() as u64;
        let cost = Self::cost(len);
        let charged = if self.charge(step, head.envelope.source, cost) { cost } else { 0 };
        step.report.counters.rx_payload_bytes += len;
        Message { charged, ..head.message(step.now, Place::Stash(bytes)) }
    }

    /// Whether half of the memory is taken that a peer's messages may have, or all peers', of whose messages `held` bytes
    /// wait.
    #[inline]
    pub(super) fn is_half_spent(
        &self,
        peer: PeerId,
        (whole, share): (u64, u64),
        held: u64,
    ) -> bool {
        let of_peer = self.charged.get(peer.0 as usize).copied().unwrap_or(0);
        of_peer >= share.div_ceil(2) || held >= whole.div_ceil(2)
    }

    /// Makes room for what belongs before `end` of a message that is kept. Whether there is memory for it;
    /// if not, the message is deferred.
    pub(super) fn grow(&mut self, step: &mut Step<'_>, message: &mut Message, end: u64) -> bool {
        if self.stretch(step, message, end) {
            return true;
        }
        if message.head.pull != Pull::No {
            return false;
        }
        message.place = Place::None;
        Self::defer(step, &mut message.head);
        self.release(step, message);
        false
    }

    /// Makes room for what belongs before `end` of a message, if it is kept and there is memory for it; changes
    /// nothing if there is not.
    pub(super) fn stretch(&mut self, step: &mut Step<'_>, message: &mut Message, end: u64) -> bool {
        let Place::Stash(bytes) = &mut message.place else { return true };
        let (held, extent) = (bytes.len() as u64, message.head.extent);
        if end <= held {
            return true;
        }
        // Twice as much each time, so that each byte is moved a few times at most.
        let size = extent.eager.min(held * 2).max(end);
        if self.charge(step, message.head.envelope.source, size - held) {
            message.charged += size - held;
            bytes.resize(size as usize, 0);
            return true;
        }
        false
    }

    /// The bytes of a message stay at its sender, who owes an offer of them from now on.
    fn defer(step: &mut Step<'_>, head: &mut Head) {
        step.watch();
        step.report.counters.rx_deferred += 1;
        head.extent.deferred = true;
        head.confirm = None;
    }

    /// What a new message with `bytes` costs.
    const fn cost(bytes: u64) -> u64 {
        bytes.saturating_add(HEADER_COST)
    }

    /// Charges `bytes` more to a peer's messages. Whether there was room.
    fn charge(&mut self, step: &mut Step<'_>, peer: PeerId, bytes: u64) -> bool {
        let (whole, share) = shares(step.config, step.peers);
        let at = peer.0 as usize;
        if self.charged.len() <= at {
            self.charged.resize(at + 1, 0);
        }
        let counters = &mut step.report.counters;
        let fits = |held: u64, most: u64| held.checked_add(bytes).is_some_and(|sum| sum <= most);
        if !fits(self.charged[at], share) || !fits(counters.unexpected_bytes, whole) {
            return false;
        }
        self.charged[at] += bytes;
        counters.unexpected_bytes += bytes;
        counters.unexpected_bytes_peak =
            counters.unexpected_bytes_peak.max(counters.unexpected_bytes);
        true
    }

    /// Gives back what was charged for a message.
    pub(super) fn release(&mut self, step: &mut Step<'_>, message: &mut Message) {
        let bytes = core::mem::take(&mut message.charged);
        if let Some(charged) = self.charged.get_mut(message.head.peer().0 as usize) {
            *charged -= bytes;
            step.report.counters.unexpected_bytes -= bytes;
        }
    }
}

/// What all messages of an endpoint may take, and those of one peer.
#[inline]
pub(super) const fn shares(config: &Config, peers: &Peers) -> (u64, u64) {
    let whole = config.unexpected_bytes;
    (whole, if peers.count() > ALONE { whole / SHARES } else { whole })
}
