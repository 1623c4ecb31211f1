//! Signals of the network and the peer: the only input of a sender's congestion control besides its
//! own transmissions.

use squall_base::{Rate, Span, Time};

use crate::controller::{LineShare, RatePacket};

/// The event that a [`Feedback`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FeedbackKind {
    /// One ACK newly acknowledged `bytes`; it may cover several packets.
    #[default]
    Acked,
    /// The peer refused one packet of `bytes` nominal bytes with a NACK.
    Nacked {
        /// A switch cut off the payload instead of dropping the packet.
        trimmed: bool,
        /// The switch port in front of the peer trimmed the packet, so the peer knows about the
        /// congestion.
        last_hop: bool,
    },
    /// Packets of `bytes` nominal bytes are inferred to be lost (out-of-order count, probe) before
    /// any timer fired.
    Lost,
    /// The retransmission timer of a packet of `bytes` nominal bytes expired.
    TimedOut,
    /// The peer answered a probe; the answer newly acknowledges `bytes`, often zero.
    ProbeAnswered,
    /// A congestion notification packet arrived (DCQCN's CNP); it acknowledges nothing.
    Notified,
    /// A packet without data brought a rate or credit ([`FeedbackExtension`]), and acknowledges
    /// nothing.
    Control,
}

/// Telemetry of one hop, taken when the packet left the queue (HPCC section 3.1).
///
/// Records are keyed by `hop`, not by position, because sprayed packets meet different queues at
/// the same distance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IntHop {
    /// Number of the queue that the packet left: switch and port, folded to one number by the
    /// emulated network.
    pub hop: u32,
    /// Time by the switch's clock at which the packet left the queue.
    pub at: Time,
    /// Bytes that this switch port has sent since it came up.
    pub tx_bytes: u64,
    /// Bytes left in the queue after the packet.
    pub queue: u32,
    /// Rate of the switch port's link.
    pub line: Rate,
}

impl IntHop {
    /// Returns the bytes that the hop's link carries in a nanosecond.
    pub(crate) fn carries(&self) -> f32 {
        // No rate uses bit 63, so the signed conversion is exact; it is one instruction.
        (self.line.0.cast_signed() as f32).max(1.0) * 1.25e-10
    }
}

/// Largest number of telemetry records in a packet; later switches add none.
pub const MOST_HOPS: usize = 8;

/// Telemetry records of one packet, in the order of its path.
///
/// The records are stored field by field so that several can be processed at a time; unused places
/// are zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hops {
    hop: [u32; MOST_HOPS],
    /// Low halves of the times at dequeue and of the bytes sent; `high` has the high halves.
    at: [u32; MOST_HOPS],
    tx_bytes: [u32; MOST_HOPS],
    queue: [u32; MOST_HOPS],
    line: [Rate; MOST_HOPS],
    /// Line rates in bytes per nanosecond, the unit of the divisor; never zero in a valid record.
    carries: [f32; MOST_HOPS],
    high: [(u32, u32); MOST_HOPS],
    len: u8,
}

/// Number of telemetry records that are processed together, in one vector register.
pub(crate) const LANES: usize = 4;

/// First records of a path, field by field; unused places are zero. Times and bytes are the low 32
/// bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes<'a> {
    pub hop: &'a [u32; LANES],
    pub at: &'a [u32; LANES],
    pub tx_bytes: &'a [u32; LANES],
    pub queue: &'a [u32; LANES],
    pub carries: &'a [f32; LANES],
}

impl Hops {
    /// Telemetry of a packet to which no switch added a record.
    pub const NONE: &'static Self = &Self::new();

    const fn new() -> Self {
        let zero = [0; MOST_HOPS];
        Self {
            hop: zero,
            at: zero,
            tx_bytes: zero,
            queue: zero,
            line: [Rate(0); MOST_HOPS],
            carries: [0.0; MOST_HOPS],
            high: [(0, 0); MOST_HOPS],
            len: 0,
        }
    }

    /// Adds the telemetry record of the next hop, if there is room for it.
    #[allow(clippy::cast_possible_truncation)] // splits into halves
    pub fn push(&mut self, hop: IntHop) {
        let at = usize::from(self.len);
        if at >= MOST_HOPS {
            return;
        }
        self.hop[at] = hop.hop;
        self.at[at] = hop.at.0 as u32;
        self.tx_bytes[at] = hop.tx_bytes as u32;
        self.queue[at] = hop.queue;
        self.line[at] = hop.line;
        self.carries[at] = hop.carries();
        self.high[at] = ((hop.at.0 >> 32) as u32, (hop.tx_bytes >> 32) as u32);
        self.len += 1;
    }

    /// Removes all telemetry records; almost free when there are none.
    pub fn clear(&mut self) {
        if self.len > 0 {
            *self = Self::new();
        }
    }

    /// Returns the number of telemetry records, one per hop.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns whether there are no telemetry records.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the telemetry record of hop `at` of the path, counted from 0.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<IntHop> {
        (at < usize::from(self.len)).then(|| {
            let whole = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
            let (time, bytes) = self.high[at];
            IntHop {
                hop: self.hop[at],
                at: Time(whole(time, self.at[at])),
                tx_bytes: whole(bytes, self.tx_bytes[at]),
                queue: self.queue[at],
                line: self.line[at],
            }
        })
    }

    /// Returns an iterator over the telemetry records, in path order.
    pub fn iter(&self) -> impl Iterator<Item = IntHop> + '_ {
        (0..usize::from(self.len)).filter_map(|at| self.get(at))
    }

    /// Returns the telemetry records of the first [`LANES`] hops.
    #[inline(always)]
    pub(crate) fn lanes(&self) -> Option<Lanes<'_>> {
        Some(Lanes {
            hop: self.hop.first_chunk()?,
            at: self.at.first_chunk()?,
            tx_bytes: self.tx_bytes.first_chunk()?,
            queue: self.queue.first_chunk()?,
            carries: self.carries.first_chunk()?,
        })
    }

    /// Returns the length in bytes of the longest queue in the telemetry.
    #[inline(always)]
    pub(crate) fn longest(&self) -> u32 {
        self.queue[..usize::from(self.len).min(MOST_HOPS)]
            .iter()
            .fold(0, |longest, &queue| longest.max(queue))
    }
}

impl Default for Hops {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for &Hops {
    fn default() -> Self {
        Hops::NONE
    }
}

impl FromIterator<IntHop> for Hops {
    fn from_iter<I: IntoIterator<Item = IntHop>>(hops: I) -> Self {
        let mut all = Self::new();
        hops.into_iter().for_each(|hop| all.push(hop));
        all
    }
}

/// A signal that only some algorithms read. A report carries at most one, because an endpoint runs
/// one algorithm.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum FeedbackExtension<'a> {
    /// The report carries no such signal.
    #[default]
    None,
    /// Total credit in bytes that the receiver granted since the flow opened (EQDS, RCCC,
    /// ExpressPass).
    Credit(u64),
    /// A rate packet is back with the entries of the links on the flow's path (s-PERC, 1RC).
    Rates(&'a RatePacket),
    /// The sender's share of the receiver's line (Dart).
    Share(LineShare),
    /// In-band telemetry of the hops, in path order (HPCC, Swift).
    Telemetry(&'a Hops),
}

/// A report of the network or the peer about one packet, or about one ACK that covers several.
/// Every signal except `now` and `kind` may be absent; its default means that nothing is known.
///
/// The caller, not the algorithm, derives the signals: it subtracts the host's delay from `rtt`,
/// turns cumulative counters into differences and detects the end of rounds. `bytes` are *nominal*
/// bytes (whole packets as [`crate::ReceivedPacket::bytes`] counts them), so that sender and
/// receiver agree.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Feedback<'a> {
    /// Time at which the caller makes the report.
    pub now: Time,
    /// Event that is reported.
    pub kind: FeedbackKind,
    /// Path of the packet that caused the report (entropy index, see
    /// [`crate::PathSelector::pick`]).
    pub path: u16,
    /// Nominal bytes that were newly acknowledged, refused or lost.
    pub bytes: u32,
    /// Number of packets that were newly acknowledged, refused or lost.
    pub packets: u16,
    /// The packet that caused the report, or any that the ACK covers, was marked Congestion
    /// Experienced.
    pub ecn: bool,
    /// Number of `packets` known to be marked; zero with `ecn` set when the peer does not count
    /// marks.
    pub marked: u16,
    /// Round-trip time without the peer's service time; `None` when no valid sample exists
    /// (retransmitted packet, service time missing).
    pub rtt: Option<Span>,
    /// Bytes acknowledged to this context between the departure of the packet and now, for delivery
    /// rate samples over `rtt` (BBR).
    pub delivered: Option<u64>,
    /// Bytes in flight in this context after the caller processed this report.
    pub in_flight: u64,
    /// The peer's count of packets received out of order (UET `ooo_count`).
    pub ooo: Option<u16>,
    /// The receiver's penalty, 0 to 127 (UET `rcv_cwnd_pend`; 0 none, 64 halves the window each
    /// round trip, 127 leaves one packet a round trip).
    pub penalty: Option<u8>,
    /// The receiver asks to restore the window from before the penalty (UET `rc`).
    pub restore_cwnd: bool,
    /// Everything sent before the end of the previous round is now acknowledged: one round trip
    /// passed.
    pub round_end: bool,
    /// The application, not the budget, limited the sender when the packet left.
    pub app_limited: bool,
    /// The packet that caused the report was a retransmission.
    pub retransmitted: bool,
    /// Signal that only some algorithms read, such as credit or telemetry.
    pub extension: FeedbackExtension<'a>,
}

impl<'a> Feedback<'a> {
    /// Returns the telemetry of the path; [`Hops::NONE`] if there is none.
    #[must_use]
    #[inline]
    pub const fn telemetry(&self) -> &'a Hops {
        match self.extension {
            FeedbackExtension::Telemetry(hops) => hops,
            _ => Hops::NONE,
        }
    }

    /// Returns the number of switches on the path (Swift's topology scaling), where telemetry
    /// exists. No acknowledgement of UE 1.0 carries it, and reading it from the IP header of the way
    /// back would cost a control message of the socket per packet. Without it
    /// [`crate::SwiftConfig::hops`] applies to the whole network.
    #[must_use]
    #[inline]
    pub const fn hops(&self) -> Option<u8> {
        match self.extension {
            FeedbackExtension::Telemetry(hops) if !hops.is_empty() => Some(hops.len()),
            _ => None,
        }
    }
}
