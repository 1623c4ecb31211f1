//! The receiver's side: one object a host or endpoint, because sender counts and credits are
//! properties of a port, not of a flow. What belongs to a flow lives in [`RxFlow`], which the
//! packet delivery context keeps and lends.

use squall_base::{Span, Time};

use super::credit::CreditConfig;
use super::share::{Congestion, LineShare, ShareConfig};

/// What the receiver learnt about one data packet that arrived.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ReceivedPacket {
    /// Nominal bytes of the packet: UDP length plus 40, the IPv6 header (UE 1.0 section 3.6.13.6,
    /// `nominal_pktsize`); for a trimmed packet, what is left of it.
    pub bytes: u32,
    /// Marked Congestion Experienced.
    pub ecn: bool,
    /// The payload was cut off by a switch.
    pub trimmed: bool,
    /// ... at this host's own port.
    pub last_hop: bool,
    /// Received before.
    pub duplicate: bool,
    /// First packet of a message.
    pub message_start: bool,
    /// Last packet of a message.
    pub message_end: bool,
    /// Credit the sender wants in all, in bytes since the flow opened (UET's `credit_target`); on
    /// trimmed packets too.
    pub demand: Option<u64>,
    /// Who sent it (folded to a number by the caller), for counting senders.
    pub source: u32,
}

/// A list of senders that comes with the first message of an incast from each of them (Dart, section III-D).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderList<'a> {
    /// The incast's group ..
    pub group: u32,
    /// .. and how many it had before; wraps.
    pub round: u32,
    /// By [`ReceivedPacket::source`]; two at least.
    pub sources: &'a [u32],
}

/// A flow's part of the receiver's state. The packet delivery context owns it and lends it; 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxFlow {
    /// Nominal bytes of all new, untrimmed packets so far.
    received: u64,
    id: u32,
    /// Slot in the receiver's own table, plus one; zero for none.
    slot: u32,
}

impl RxFlow {
    /// A flow from which nothing arrived yet. `id` is the caller's own number for it, by which a
    /// [`ReceiverAction`] names it.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self { received: 0, id, slot: 0 }
    }

    /// Where the receiver keeps what it knows about it.
    pub(crate) const fn slot(&self) -> Option<u32> {
        self.slot.checked_sub(1)
    }

    pub(crate) fn set_slot(&mut self, slot: Option<u32>) {
        self.slot = slot.map_or(0, |slot| slot.saturating_add(1));
    }

    /// A new, whole packet of nominal `bytes` arrived.
    pub(crate) fn count(&mut self, bytes: u32) {
        self.received = self.received.saturating_add(u64::from(bytes));
    }

    /// The caller's number for it.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Nominal bytes received so far.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }
}

/// What an ACK says besides which packets arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckSignals {
    /// Cumulative nominal bytes received; on the wire 24 bits of 256-byte units, see
    /// [`AckSignals::received_units`].
    pub received: u64,
    /// Packets received out of order, instantaneous. The caller, who has the bitmap, puts it in
    /// before [`ReceiverCc::fill_ack`]; the receiver may withhold it.
    pub ooo: Option<u16>,
    /// Window penalty, 0 to 127.
    pub penalty: u8,
    /// Ask the sender to restore the window from before the penalty.
    pub restore_cwnd: bool,
    /// The sender's share of this receiver (Dart).
    pub share: Option<LineShare>,
    /// What congestion this receiver sees (Dart).
    pub state: Congestion,
    /// The acknowledgement does not say that packets were marked.
    pub hide_marks: bool,
    /// Cumulative credit granted.
    pub credit: Option<u64>,
}

impl AckSignals {
    /// `received` as UET's `rcvd_bytes`: `ceil(bytes / 256)` modulo 2^24.
    #[must_use]
    pub const fn received_units(&self) -> u32 {
        (self.received.div_ceil(RCVD_UNIT) & RCVD_MASK as u64) as u32
    }
}

/// Unit of UET's `rcvd_bytes`, in bytes.
pub const RCVD_UNIT: u64 = 256;
const RCVD_MASK: u32 = (1 << 24) - 1;

/// Bytes between two `rcvd_bytes` fields, `before` having been seen earlier: `256 * (now - before)`
/// modulo 2^24 units. An older ACK that arrives late makes a difference of more than half the circle
/// and counts as zero.
#[must_use]
pub const fn received_between(before: u32, now: u32) -> u32 {
    let units = now.wrapping_sub(before) & RCVD_MASK;
    if units > RCVD_MASK / 2 { 0 } else { units * RCVD_UNIT as u32 }
}

/// What the receiver wants sent on its own account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverAction {
    /// A congestion notification packet (DCQCN).
    Notify {
        /// [`RxFlow::id`].
        flow: u32,
    },
    /// A credit update, cumulative bytes.
    Credit {
        /// [`RxFlow::id`].
        flow: u32,
        /// Bytes since the flow opened.
        cumulative: u64,
    },
}

/// The receiver of one host or endpoint.
pub trait ReceiverCc {
    /// A data packet arrived on `flow`.
    fn on_rx(&mut self, now: Time, flow: &mut RxFlow, meta: &ReceivedPacket);

    /// The packet that is about to be reported says who else sends. False where that is not believed.
    fn on_sender_list(&mut self, now: Time, ahead: &SenderList<'_>) -> bool {
        let (_, _) = (now, ahead);
        false
    }

    /// The sender of `flow` asks for credit, `target` bytes in all since the flow opened. It wants an
    /// answer even if there is nothing new to say.
    fn on_request(&mut self, now: Time, flow: &mut RxFlow, target: u64) {
        let (_, _, _) = (now, flow, target);
    }

    /// Packets of `lost` bytes that had crossed the network found no room in this host's receive buffer, which holds
    /// `buffer`.
    fn on_overflow(&mut self, lost: u64, buffer: u64) {
        let (_, _) = (lost, buffer);
    }

    /// All that waited in this host's receive buffer was taken in.
    fn on_drained(&mut self) {}

    /// An ACK is about to leave on `flow`.
    fn fill_ack(&mut self, now: Time, flow: &mut RxFlow, signals: &mut AckSignals);

    /// `flow` is gone.
    fn on_close(&mut self, now: Time, flow: &mut RxFlow) {
        let (_, _) = (now, flow);
    }

    /// What to send next on the receiver's own account. Call until `None` after packets and timers.
    fn poll(&mut self, now: Time) -> Option<ReceiverAction> {
        let _ = now;
        None
    }

    /// When [`poll`](Self::poll) has something next; `None` for never.
    fn next_timer(&self) -> Option<Time> {
        None
    }
}

/// What the receiver of an endpoint must do: a consequence of what its senders run, see
/// [`crate::SenderConfig::receiver`].
#[derive(Clone, PartialEq, Debug, Default)]
pub enum ReceiverConfig {
    /// Count bytes and echo marks, which is all that most senders need.
    #[default]
    Plain,
    /// Also notify a sender of its marked packets ([`crate::NotifyReceiver`]).
    Notifying {
        /// Shortest time between two notifications of a flow.
        interval: Span,
    },
    /// Grant credit ([`crate::CreditReceiver`]).
    Credits(CreditConfig),
    /// Apportion the line to its senders.
    Shares(ShareConfig),
    /// Also send rate packets back, which asks nothing of the receiver itself.
    Rates,
}

impl ReceiverConfig {
    /// What it is called.
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
