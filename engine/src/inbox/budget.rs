//! Memory budget for messages that wait for a receive or for their turn.
//!
//! The budget charges the bytes that were allocated for received payload plus the cost of a header,
//! not the length that a packet announces. A message is kept as long as the endpoint's memory
//! ([`crate::Config::unexpected_bytes`]) and its peer's share of it last. Where there are several
//! peers, the share is a quarter. Of further messages only the header is kept, up to
//! [`crate::Config::max_unexpected`] headers, and these messages are *deferred*:
//!
//! 1. The receiver acknowledges their packets and drops the payload, so that nothing behind them
//!    waits. One of the acknowledgements carries NO_MATCH.
//! 2. The sender stops sending the payload. When the packets in flight are acknowledged, so that
//!    none of them can arrive late, it sends the same message, with the same id, as a
//!    RENDEZVOUS_(T)SEND without eager part. Payload that was copied stays at the sender until
//!    then; the number of outstanding operations is bounded.
//! 3. The receiver reads the payload when a receive matches, as for any rendezvous. Messages are
//!    matched in the order of their ids as before: a deferred message matches as soon as its first
//!    packet or the offer has arrived.
//!
//! So every completion is correct: the completion of a copied message was, a sender that waits for
//! its buffer gets it back after it has been read, and a sender that waits for a match is notified
//! after the match. When the headers are used up too, packets are refused, and the sender
//! retransmits them later.
//!
//! # Accounts
//!
//! Headers and bytes are charged to the peer that sent the message, empty messages included:
//!
//! | | headers | bytes |
//! |---|---|---|
//! | all peers | `max_unexpected` | `unexpected_bytes` |
//! | one peer of the job | all of that | a quarter of that, where there are several peers |
//! | reserved for each peer of the job | 1/1024 of all, 1 to 64, beyond all | none: a header is enough |
//! | all peers outside the job | a quarter of all | a quarter of all |
//! | one peer outside the job | a sixteenth of all | a sixteenth of all |
//!
//! A peer is *outside the job* if the application has not inserted its address and there is no job key that the peer
//! knows. Any process that receives at its address can become such a peer. The peer's state when a message arrives
//! decides which account the message is charged to.
//!
//! # Shared-memory channels
//!
//! A record that waited in a ring would hold up all records behind it, including answers that the peer owes this
//! endpoint. So a message on a channel is always taken, and the receiver shows the sender how much room is left
//! ([`Room`]). With little room the sender sends only very short messages, which take about as much memory as a header.
//! With none it sends no message until there is room again. The sender reads the state once in a ring's length, so an
//! honest sender exceeds the limits by at most what the ring holds. A sender that exceeds them by more than any ring
//! holds is not honest, and its channel ends.

use crate::config::Config;
use crate::holdings::Holdings;
use crate::messages::{
    Charge, HeaderKind, Message, MessageBuffer, MessageHeader, MessagePart, Pull,
};
use crate::operation::PeerId;
use crate::peers::Peers;
use crate::shm::record::MAX_SHORT;
use crate::shm::{MAX_RING, Room};
use crate::step::Step;

/// Bytes of the budget that a message is charged for its header, in addition to its payload.
const HEADER_COST: u64 = 256;

/// Number of peers up to which each may use all of an endpoint's memory for unmatched messages. If
/// there are more peers, each has a share.
const ALONE: usize = 1;
/// Divisor of an endpoint's memory for unmatched messages that gives the share of one peer of the
/// job, where there are several peers.
const SHARES: u64 = 4;
/// Divisors for the share of all peers outside the job together, and for the share of one of them.
const OUTSIDE: u64 = 4;
const ONE_OUTSIDE: u64 = 16;
/// Divisor that gives the number of headers reserved for each peer of the job, and the largest such
/// number.
const RESERVE: u64 = 1024;
const MAX_RESERVE: u64 = 64;

/// Largest number of bytes of a channel's messages that are kept beyond all limits. An honest
/// sender puts at most a ring's length into the ring after it was shown that there is no room, and
/// the receiver shows that a few records late; hence the factor of two.
const MAX_BEYOND: u64 = 2 * MAX_RING;

/// Memory and headers that a set of messages is charged for.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    bytes: u64,
    /// Number of charged headers of messages that wait for a receive.
    waiting: u64,
    /// Number of charged headers of messages that arrived before their turn in the sender's order.
    early: u64,
    /// Ring bytes of messages that were kept although the budget had no room for their headers, or
    /// for their bytes.
    beyond_headers: u64,
    beyond_bytes: u64,
}

impl Account {
    /// Returns the number of headers that compete with another one of this kind. Early messages count waiting ones too,
    /// so that they leave room for the message whose turn it is: otherwise all would wait for ever.
    const fn competing_headers(&self, kind: HeaderKind) -> u64 {
        match kind {
            HeaderKind::Waiting => self.waiting,
            HeaderKind::Early | HeaderKind::None => self.waiting + self.early,
        }
    }

    const fn header_mut(&mut self, kind: HeaderKind) -> Option<&mut u64> {
        match kind {
            HeaderKind::None => None,
            HeaderKind::Early => Some(&mut self.early),
            HeaderKind::Waiting => Some(&mut self.waiting),
        }
    }
}

/// The accounts of each peer, of all peers together, and of all peers outside the job together.
#[derive(Debug, Default)]
pub(super) struct Budget {
    peers: Vec<Account>,
    all: Account,
    outside: Account,
}

impl Budget {
    /// Returns whether the budget has room for the header of another message of a peer.
    pub(super) fn has_room(
        &self,
        (config, peers): (&Config, &Peers),
        peer: PeerId,
        kind: HeaderKind,
    ) -> bool {
        let most = config.max_unexpected as u64;
        let (own, all) =
            (self.account(peer).competing_headers(kind), self.all.competing_headers(kind));
        if peers.is_outside(config, peer) {
            all < most
                && own < most.div_ceil(ONE_OUTSIDE)
                && self.outside.competing_headers(kind) < most.div_ceil(OUTSIDE)
        } else {
            all < most || own < most.div_ceil(RESERVE).min(MAX_RESERVE)
        }
    }

    /// Returns the room for messages that a peer sends on a shared-memory channel.
    #[inline]
    pub(super) fn room(&self, (config, peers): (&Config, &Peers), peer: PeerId) -> Room {
        // Nearly always no unmatched message is kept.
        if self.all.waiting == 0 && self.all.bytes == 0 && config.unexpected_bytes > 0 {
            return Room::Ample;
        }
        self.room_left((config, peers), peer)
    }

    fn room_left(&self, (config, peers): (&Config, &Peers), peer: PeerId) -> Room {
        let own = self.account(peer);
        // While the engine keeps something beyond its limits, the peer may send nothing more of that kind.
        if own.beyond_headers > 0 || !self.has_room((config, peers), peer, HeaderKind::Waiting) {
            return Room::None;
        }
        let outside = peers.is_outside(config, peer);
        let (own_most, all_most) = (peer_share(config, peers, outside), config.unexpected_bytes);
        let lean = own.beyond_bytes > 0
            || own.bytes >= own_most.div_ceil(2)
            || self.all.bytes >= all_most.div_ceil(2)
            || outside && self.outside.bytes >= (all_most / OUTSIDE).div_ceil(2);
        if lean { Room::Little } else { Room::Ample }
    }

    /// Keeps the bytes of an unmatched message, or only its header when the budget for bytes is spent. The caller has
    /// checked that there is room for the header. Returns `None` when the message cannot be deferred.
    pub(super) fn buffer_unmatched(
        &mut self,
        step: &mut Step<'_>,
        kind: HeaderKind,
        mut head: MessageHeader,
        piece: MessagePart<'_>,
    ) -> Option<Message> {
        let mut charge = Charge { outside: step.is_outside(head.peer()), ..Charge::default() };
        if head.extent.eager > 0 {
            // The bytes end within the message: the caller has checked that.
            let end = piece.offset + piece.bytes.len() as u64;
            if self.charge(step, head.peer(), &mut charge, Self::cost(end)) {
                head.extent.received = piece.bytes.len() as u64;
                step.report.counters.rx_payload_bytes += head.extent.received;
                let mut bytes = Vec::with_capacity(end as usize);
                bytes.resize(piece.offset as usize, 0);
                bytes.extend_from_slice(piece.bytes);
                self.charge_header(head.peer(), &mut charge, kind);
                let message = head.message(step.now, MessageBuffer::Stash(bytes));
                return Some(Message { charge, ..message });
            }
            if head.pull != Pull::No || step.config.wire.is_some() {
                // The message is a rendezvous already, and there is no room for its eager part. Or
                // the sender does not know rendezvous.
                return None;
            }
            Self::defer(step, &mut head);
        }
        self.charge_header(head.peer(), &mut charge, kind);
        Some(Message { charge, ..head.message(step.now, MessageBuffer::None) })
    }

    /// Keeps a message of one record that came on a shared-memory channel. Returns `None` when the message exceeds what
    /// an honest peer sends.
    pub(super) fn buffer_short(
        &mut self,
        step: &mut Step<'_>,
        head: MessageHeader,
        bytes: Vec<u8>,
    ) -> Option<Message> {
        let (peer, len) = (head.peer(), bytes.len() as u64);
        let mut charge = Charge { outside: step.is_outside(peer), ..Charge::default() };
        let charged = self.charge(step, peer, &mut charge, Self::cost(len));
        let room = self.has_room((step.config, step.peers), peer, HeaderKind::Waiting);
        // Very short messages are bounded by the number of headers.
        let fits = charged || bytes.len() <= MAX_SHORT;
        let kept = if room {
            fits || self.charge_beyond_bytes(peer, &mut charge, len)
        } else {
            self.charge_beyond_headers(peer, &mut charge, len)
        };
        if !kept {
            self.release_bytes(step, peer, &mut charge);
            return None;
        }
        self.charge_header(peer, &mut charge, HeaderKind::Waiting);
        step.report.counters.rx_payload_bytes += len;
        Some(Message { charge, ..head.message(step.now, MessageBuffer::Stash(bytes)) })
    }

    /// Records that a message of a channel is kept although there is no room for its header. Returns whether an honest
    /// peer may have sent it.
    pub(super) fn charge_beyond_headers(
        &mut self,
        peer: PeerId,
        charge: &mut Charge,
        len: u64,
    ) -> bool {
        let (record, account) = (ring_bytes(len), self.account_mut(peer));
        let fits = account.beyond_headers + record <= MAX_BEYOND;
        if fits {
            account.beyond_headers += record;
            charge.beyond_headers += record;
        }
        fits
    }

    /// Records that a message of a channel is kept although there is no room for its bytes. Returns whether an honest
    /// peer may have sent it.
    fn charge_beyond_bytes(&mut self, peer: PeerId, charge: &mut Charge, len: u64) -> bool {
        let (record, account) = (ring_bytes(len), self.account_mut(peer));
        let fits = account.beyond_bytes + record <= MAX_BEYOND;
        if fits {
            account.beyond_bytes += record;
            charge.beyond_bytes += record;
        }
        fits
    }

    /// Extends the buffer of an unmatched message to `end` bytes. Returns whether the budget
    /// allowed it; if not, the message is deferred.
    pub(super) fn grow_or_defer(
        &mut self,
        step: &mut Step<'_>,
        message: &mut Message,
        end: u64,
    ) -> bool {
        if self.grow_buffer(step, message, end) {
            return true;
        }
        if message.head.pull != Pull::No || step.config.wire.is_some() {
            return false;
        }
        message.place = MessageBuffer::None;
        Self::defer(step, &mut message.head);
        self.release_bytes(step, message.head.peer(), &mut message.charge);
        false
    }

    /// Extends the buffer of an unmatched message to `end` bytes. Returns whether the buffer is
    /// long enough then; if the budget does not allow it, nothing changes.
    pub(super) fn grow_buffer(
        &mut self,
        step: &mut Step<'_>,
        message: &mut Message,
        end: u64,
    ) -> bool {
        let MessageBuffer::Stash(bytes) = &mut message.place else { return true };
        let (held, extent) = (bytes.len() as u64, message.head.extent);
        if end <= held {
            return true;
        }
        // The buffer at least doubles each time, so that each byte is moved only a few times.
        let size = extent.eager.min(held * 2).max(end);
        if self.charge(step, message.head.envelope.source, &mut message.charge, size - held) {
            bytes.resize(size as usize, 0);
            return true;
        }
        false
    }

    /// Defers a message: its payload stays at the sender, which must offer it later.
    fn defer(step: &mut Step<'_>, head: &mut MessageHeader) {
        step.start_liveness_timer();
        step.report.counters.rx_deferred += 1;
        head.extent.deferred = true;
        head.confirm = None;
    }

    /// Returns the bytes that a new message with `bytes` bytes of payload is charged for.
    const fn cost(bytes: u64) -> u64 {
        bytes.saturating_add(HEADER_COST)
    }

    fn account(&self, peer: PeerId) -> Account {
        self.peers.get(peer.0 as usize).copied().unwrap_or_default()
    }

    fn account_mut(&mut self, peer: PeerId) -> &mut Account {
        let at = peer.0 as usize;
        if self.peers.len() <= at {
            self.peers.resize(at + 1, Account::default());
        }
        &mut self.peers[at]
    }

    /// Charges `bytes` more to a message of a peer. Returns whether there was room.
    fn charge(
        &mut self,
        step: &mut Step<'_>,
        peer: PeerId,
        charge: &mut Charge,
        bytes: u64,
    ) -> bool {
        let whole = step.config.unexpected_bytes;
        let most = peer_share(step.config, step.peers, charge.outside);
        let fits = |held: u64, most: u64| held.checked_add(bytes).is_some_and(|sum| sum <= most);
        let room = fits(self.account(peer).bytes, most)
            && fits(self.all.bytes, whole)
            && (!charge.outside || fits(self.outside.bytes, whole / OUTSIDE));
        if !room {
            return false;
        }
        self.account_mut(peer).bytes += bytes;
        self.all.bytes += bytes;
        if charge.outside {
            self.outside.bytes += bytes;
        }
        charge.bytes += bytes;
        let counters = &mut step.report.counters;
        counters.unexpected_bytes = self.all.bytes;
        counters.unexpected_bytes_peak = counters.unexpected_bytes_peak.max(self.all.bytes);
        true
    }

    /// Charges the header of a message to the accounts of its peer.
    fn charge_header(&mut self, peer: PeerId, charge: &mut Charge, kind: HeaderKind) {
        charge.header = kind;
        self.change_accounts(peer, charge.outside, |account| {
            account.header_mut(kind).into_iter().for_each(|count| *count += 1);
        });
    }

    /// Charges a message as one that waits for a receive, now that its turn in the sender's order has come.
    pub(super) fn begin_waiting(&mut self, message: &mut Message) {
        let (peer, mut charge) = (message.head.peer(), message.charge);
        self.release_header(peer, &mut charge);
        self.charge_header(peer, &mut charge, HeaderKind::Waiting);
        message.charge = charge;
    }

    fn release_header(&mut self, peer: PeerId, charge: &mut Charge) {
        let kind = core::mem::take(&mut charge.header);
        self.change_accounts(peer, charge.outside, |account| {
            account.header_mut(kind).into_iter().for_each(|count| *count -= 1);
        });
    }

    fn release_bytes(&mut self, step: &mut Step<'_>, peer: PeerId, charge: &mut Charge) {
        let bytes = core::mem::take(&mut charge.bytes);
        self.change_accounts(peer, charge.outside, |account| account.bytes -= bytes);
        step.report.counters.unexpected_bytes = self.all.bytes;
    }

    /// Releases everything that was charged to the budget for a message.
    pub(super) fn release(&mut self, step: &mut Step<'_>, message: &mut Message) {
        let (peer, charge) = (message.head.peer(), &mut message.charge);
        if charge.is_none() {
            return;
        }
        self.release_header(peer, charge);
        self.release_bytes(step, peer, charge);
        let account = self.account_mut(peer);
        account.beyond_headers -= core::mem::take(&mut charge.beyond_headers);
        account.beyond_bytes -= core::mem::take(&mut charge.beyond_bytes);
    }

    /// Counts the memory that is charged, and checks that the accounts agree with each other.
    pub(super) fn count_holdings(&self, holdings: &mut Holdings) {
        let sum = |of: fn(&Account) -> u64| self.peers.iter().map(of).sum::<u64>();
        let (all, outside) = (&self.all, &self.outside);
        let beyond = sum(|account| account.beyond_headers + account.beyond_bytes);
        holdings.headers = all.waiting + all.early;
        holdings.message_bytes = all.bytes + beyond;
        holdings.budget_is_consistent = all.bytes == sum(|account| account.bytes)
            && all.waiting == sum(|account| account.waiting)
            && all.early == sum(|account| account.early)
            && outside.bytes <= all.bytes
            && outside.waiting <= all.waiting
            && outside.early <= all.early;
    }

    /// Changes every account of the budget in which a message of a peer counts.
    fn change_accounts(&mut self, peer: PeerId, outside: bool, change: impl Fn(&mut Account)) {
        change(self.account_mut(peer));
        change(&mut self.all);
        if outside {
            change(&mut self.outside);
        }
    }
}

/// Returns the smallest number of ring bytes that a message of `len` bytes takes: its header word
/// and the shortest head, rounded up to whole cache lines.
const fn ring_bytes(len: u64) -> u64 {
    (24 + len).next_multiple_of(64)
}

/// Returns the bytes that the messages of one peer may take.
#[inline]
const fn peer_share(config: &Config, peers: &Peers, outside: bool) -> u64 {
    let whole = config.unexpected_bytes;
    if outside {
        whole / ONE_OUTSIDE
    } else if peers.count() > ALONE {
        whole / SHARES
    } else {
        whole
    }
}
