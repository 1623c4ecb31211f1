//! The receiver's side: one object per host or endpoint, because sender counts and credits are
//! properties of a port, not of a flow. State of a flow lives in [`RxFlow`], which the packet
//! delivery context owns and lends.

use squall_base::{Span, Time};

use super::credit::CreditConfig;
use super::share::{Congestion, LineShare, ShareConfig};

/// Properties of one data packet that arrived.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ReceivedPacket {
    /// Nominal bytes of the packet: UDP length plus 40, the IPv6 header (UE 1.0 section 3.6.13.6,
    /// `nominal_pktsize`); for a trimmed packet, the bytes that remain.
    pub bytes: u32,
    /// The packet was marked Congestion Experienced.
    pub ecn: bool,
    /// A switch cut off the payload and forwarded the headers.
    pub trimmed: bool,
    /// The switch port that leads to this host trimmed the packet.
    pub last_hop: bool,
    /// The packet is a duplicate: the receiver had it already.
    pub duplicate: bool,
    /// The packet is the first of its message.
    pub message_start: bool,
    /// The packet is the last of its message.
    pub message_end: bool,
    /// Credit the sender wants in all, in bytes since the flow opened (UET's `credit_target`); on
    /// trimmed packets too.
    pub demand: Option<u64>,
    /// Number that the caller derives from the sender's address, for counting senders.
    pub source: u32,
}

/// A list of the senders of an incast, which the first message of each sender carries (Dart,
/// section III-D).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderList<'a> {
    /// Number of the group of senders that take part in the incast.
    pub group: u32,
    /// Number of this incast among those of its group; wraps.
    pub round: u32,
    /// The senders, numbered as in [`ReceivedPacket::source`]; at least two.
    pub sources: &'a [u32],
}

/// State of one flow at the receiver, 16 bytes. The packet delivery context owns it and lends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxFlow {
    /// Nominal bytes of all packets received on the flow that were neither trimmed nor duplicates.
    received: u64,
    id: u32,
    /// Slot of the flow in the receiver's own table, plus one; zero if the flow has none.
    slot: u32,
}

impl RxFlow {
    /// Creates the state of a flow from which nothing arrived yet. `id` is the caller's own number
    /// for the flow, by which a [`ReceiverAction`] names it.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self { received: 0, id, slot: 0 }
    }

    /// Returns the slot that holds the receiver's state of this flow.
    pub(crate) const fn slot(&self) -> Option<u32> {
        self.slot.checked_sub(1)
    }

    pub(crate) fn set_slot(&mut self, slot: Option<u32>) {
        self.slot = slot.map_or(0, |slot| slot.saturating_add(1));
    }

    /// Adds `bytes` to the bytes received on the flow: the nominal size of a packet that is neither
    /// trimmed nor a duplicate.
    pub(crate) fn count(&mut self, bytes: u32) {
        self.received = self.received.saturating_add(u64::from(bytes));
    }

    /// Returns the number by which the caller names the flow.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Returns the nominal bytes received on the flow so far, without duplicates and trimmed
    /// packets.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }
}

/// Signals that an ACK carries besides the acknowledgement of packets; the receiver fills them in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckSignals {
    /// Nominal bytes received on the flow since it opened; on the wire 24 bits of 256-byte units,
    /// see [`AckSignals::received_units`].
    pub received: u64,
    /// Number of packets currently received out of order. The caller owns the bitmap and sets the
    /// number before [`ReceiverCc::fill_ack`]; the receiver may remove it.
    pub ooo: Option<u16>,
    /// Penalty by which the sender lowers its window, 0 (none) to 127 (UET `rcv_cwnd_pend`).
    pub penalty: u8,
    /// Asks the sender to restore the window from before the penalty.
    pub restore_cwnd: bool,
    /// The sender's share of this receiver's line (Dart).
    pub share: Option<LineShare>,
    /// Congestion that this receiver observes: none, at its own port or elsewhere (Dart).
    pub state: Congestion,
    /// The acknowledgement must not report that packets were marked.
    pub hide_marks: bool,
    /// Total credit granted to the flow since it opened, in bytes.
    pub credit: Option<u64>,
}

impl AckSignals {
    /// Returns `received` as UET's `rcvd_bytes`: `ceil(bytes / 256)` modulo 2^24.
    #[must_use]
    pub const fn received_units(&self) -> u32 {
        (self.received.div_ceil(RCVD_UNIT) & RCVD_MASK as u64) as u32
    }
}

/// Bytes per unit of UET's ACK field `rcvd_bytes`.
pub const RCVD_UNIT: u64 = 256;
const RCVD_MASK: u32 = (1 << 24) - 1;

/// Returns the bytes between two `rcvd_bytes` fields, of which `before` arrived earlier: `256 *
/// (now - before)` modulo 2^24 units. An older ACK that arrives late yields a difference of more
/// than half the number circle, which counts as zero.
#[must_use]
pub const fn received_between(before: u32, now: u32) -> u32 {
    let units = now.wrapping_sub(before) & RCVD_MASK;
    if units > RCVD_MASK / 2 { 0 } else { units * RCVD_UNIT as u32 }
}

/// Packets without data that the receiver wants to send on its own initiative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverAction {
    /// Send a congestion notification packet to the flow's sender (DCQCN).
    Notify {
        /// Number of the flow to notify ([`RxFlow::id`]).
        flow: u32,
    },
    /// Send the flow's credit to its sender in a packet of its own.
    Credit {
        /// Number of the flow whose credit changed ([`RxFlow::id`]).
        flow: u32,
        /// Total credit granted to the flow since it opened, in bytes.
        cumulative: u64,
    },
}

/// The receiver's part of congestion control, for one host or endpoint.
pub trait ReceiverCc {
    /// Processes a data packet that arrived on `flow`.
    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket);

    /// Processes `count` data packets that arrived together on `flow`, all like `meta`.
    #[inline]
    fn on_rx_run(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket, count: u16) {
        for _ in 0..count {
            self.on_rx(now, flow, meta);
        }
    }

    /// Processes the sender list of the packet that is about to be reported. Returns false if the
    /// receiver ignores the list.
    fn on_sender_list(&mut self, now: Time, ahead: &SenderList<'_>) -> bool {
        let (_, _) = (now, ahead);
        false
    }

    /// Processes a credit request of the sender of `flow`, which wants `target` bytes in all since
    /// the flow opened. The sender wants an answer even if the credit has not changed.
    fn on_request(&mut self, now: Time, flow: &mut RxFlow, target: u64) {
        let (_, _, _) = (now, flow, target);
    }

    /// Reports that this host's receive buffer of `buffer` bytes had no room for packets of `lost`
    /// bytes that had crossed the network.
    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        let (_, _) = (lost, buffer);
    }

    /// Reports that the receive buffer of this host is empty.
    fn on_drained(&mut self) {}

    /// Completes the signals of an ACK that is about to leave on `flow`.
    fn fill_ack(&mut self, now: Time, flow: &mut RxFlow, signals: &mut AckSignals);

    /// Forgets `flow`, which has closed.
    fn on_close(&mut self, now: Time, flow: &mut RxFlow) {
        let (_, _) = (now, flow);
    }

    /// Returns the next action of the receiver, if any. Call until `None` after packets and timers.
    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        let _ = now;
        None
    }

    /// Returns when [`poll`](Self::poll) has an action next; `None` for never.
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// Duties of the receiver of an endpoint. They follow from the senders' algorithm, see
/// [`crate::SenderConfig::receiver`].
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ReceiverConfig {
    /// Count bytes and echo marks, which is enough for most senders.
    #[default]
    Plain,
    /// Count bytes, echo marks, and notify senders of marked packets ([`crate::NotifyReceiver`]).
    Notifying {
        /// Shortest time between two congestion notifications to one flow.
        interval: Span,
    },
    /// Count bytes, echo marks, and grant credit to senders ([`crate::CreditReceiver`]).
    Credits(CreditConfig),
    /// Count bytes, echo marks, and divide the line among the senders (Dart).
    Shares(ShareConfig),
    /// Count bytes, echo marks, and return rate packets to their senders, which needs no state at
    /// the receiver.
    Rates,
}

impl ReceiverConfig {
    /// Returns the name of the kind of receiver, for output.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Notifying { .. } => "notifying",
            Self::Credits(_) => "credits",
            Self::Shares(_) => "dart",
            Self::Rates => "rates",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_units_wrap_and_late_acks_count_nothing() {
        let ack = AckSignals { received: (1 << 32) + 1, ..AckSignals::default() };
        assert_eq!(ack.received_units(), 1);
        // 0xff_fffe -> 1 is three units.
        assert_eq!(received_between(0xff_fffe, 1), 768);
        assert_eq!(received_between(1, 0xff_fffe), 0);
        assert_eq!(received_between(5, 5), 0);
    }
}
