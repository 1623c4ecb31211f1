//! What the network and the peer said: the only input of a sender's congestion control besides its
//! own transmissions.

use squall_base::{Rate, Span, Time};

use crate::receiver::Share;
use crate::sperc::RatePacket;

/// What a [`Feedback`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Kind {
    /// `bytes` were newly acknowledged (by one ACK, which may cover several packets).
    #[default]
    Acked,
    /// The peer refused one packet of `bytes`.
    Nacked {
        /// A switch cut the payload off instead of dropping the packet.
        trimmed: bool,
        /// The trim happened at the peer's own port, that is, the peer knows about the congestion.
        last_hop: bool,
    },
    /// `bytes` are inferred lost (out-of-order count, probe), without a timer having fired.
    Lost,
    /// The retransmission timer of a packet of `bytes` fired.
    TimedOut,
    /// A probe was answered; `bytes` is what the answer newly acknowledged, often zero.
    ProbeAnswered,
    /// A congestion notification packet arrived (DCQCN's CNP); it acknowledges nothing.
    Notified,
    /// A packet without data brought a [`Feedback::grant`], and acknowledges nothing.
    Control,
}

/// One hop of in-band telemetry, taken when the packet left the queue (HPCC section 3.1).
///
/// Keyed by `hop`, not by position: sprayed packets meet different queues at the same distance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IntHop {
    /// Which queue: switch and port, folded to one number by the fabric.
    pub hop: u32,
    /// The switch's clock at dequeue.
    pub at: Time,
    /// Bytes this port has sent since it came up.
    pub tx_bytes: u64,
    /// Bytes left in the queue.
    pub queue: u32,
    /// Line rate of the port.
    pub line: Rate,
}

/// Most records of telemetry that a packet carries; later switches add none.
pub const MOST_HOPS: usize = 8;

/// The records of telemetry in one packet, in the order of its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hops {
    hops: [IntHop; MOST_HOPS],
    len: u8,
}

impl Default for Hops {
    fn default() -> Self {
        Self { hops: [IntHop::default(); MOST_HOPS], len: 0 }
    }
}

impl Hops {
    /// Adds a record, if there is room for it.
    pub fn push(&mut self, hop: IntHop) {
        if let Some(place) = self.hops.get_mut(usize::from(self.len)) {
            *place = hop;
            self.len += 1;
        }
    }

    /// What `hops` says instead, as far as there is room.
    pub fn set(&mut self, hops: &[IntHop]) {
        self.len = 0;
        hops.iter().for_each(|&hop| self.push(hop));
    }

    /// The records.
    #[must_use]
    pub fn as_slice(&self) -> &[IntHop] {
        self.hops.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// What somebody else allowed this sender.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Grant<'a> {
    /// The links of the flow's path: its rate packet is back (s-PERC, 1RC).
    Rates(&'a RatePacket),
    /// Cumulative credit in bytes since the flow opened (EQDS, RCCC, ExpressPass).
    Credit(u64),
}

/// What the network and the peer said about one packet, or about one ACK that covers several. Every
/// signal except `now` and `kind` may be absent, and its default means "nothing said".
///
/// The caller, not the algorithm, derives the signals: it takes the host's delay out of `rtt`, turns
/// cumulative counters into differences, finds the end of rounds. `bytes` are *nominal* bytes (whole
/// packets as [`crate::ReceivedPacket::bytes`] counts them), so that sender and receiver agree.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Feedback<'a> {
    /// When it was learnt.
    pub now: Time,
    /// What is reported.
    pub kind: Kind,
    /// The path (entropy index, see [`crate::PathSelector::pick`]) of the packet that caused it.
    pub path: u16,
    /// Bytes newly acknowledged, refused or lost.
    pub bytes: u32,
    /// Packets those bytes were sent in.
    pub packets: u16,
    /// Whether the packet that caused the report (or any the ACK covers) was marked Congestion
    /// Experienced.
    pub ecn: bool,
    /// Of `packets`, those known to be marked; zero with `ecn` set when the peer does not count.
    pub marked: u16,
    /// Round-trip time without the peer's service time; `None` when no valid sample exists
    /// (retransmitted packet, service time missing).
    pub rtt: Option<Span>,
    /// Bytes acknowledged to this context between the departure of the packet and now, for delivery
    /// rate samples over `rtt` (BBR).
    pub delivered: Option<u64>,
    /// Switches on the path (Swift's topology scaling), where there is telemetry: no acknowledgement of UE 1.0 carries it,
    /// and what an IP header tells of the way back would cost every packet a control message of the socket. Otherwise
    /// [`crate::SwiftConfig::hops`] says it for a network.
    pub hops: Option<u8>,
    /// Bytes in flight in this context after this report was booked.
    pub in_flight: u64,
    /// The peer's count of packets received out of order (UET `ooo_count`).
    pub ooo: Option<u16>,
    /// The receiver's penalty, 0 to 127 (UET `rcv_cwnd_pend`; 0 none, 64 halves the window each
    /// round trip, 127 leaves one packet a round trip).
    pub penalty: Option<u8>,
    /// The receiver's wish that the window from before the penalty be restored (UET `rc`).
    pub restore_cwnd: bool,
    /// The sender's share of the receiver (Dart).
    pub share: Option<Share>,
    /// A rate or credit that came with it.
    pub grant: Option<Grant<'a>>,
    /// In-band telemetry, in path order.
    pub int: &'a [IntHop],
    /// Everything sent before the previous round's end is now acknowledged: one round trip passed.
    pub round_end: bool,
    /// The sender was limited by its application, not by its budget, when the packet left.
    pub app_limited: bool,
    /// The report is about a retransmission.
    pub retransmitted: bool,
}
