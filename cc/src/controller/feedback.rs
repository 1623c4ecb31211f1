//! What the network and the peer said: the only input of a sender's congestion control besides its
//! own transmissions.

use squall_base::{Rate, Span, Time};

use crate::controller::{LineShare, RatePacket};

/// What a [`Feedback`] reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FeedbackKind {
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

impl IntHop {
    /// Bytes that the link carries in a nanosecond.
    pub(crate) fn carries(&self) -> f32 {
        // No rate has 64 bits.
        (self.line.0.cast_signed() as f32).max(1.0) * 1.25e-10
    }
}

/// Most records of telemetry that a packet carries; later switches add none.
pub const MOST_HOPS: usize = 8;

/// The records of telemetry in one packet, in the order of its path.
///
/// Kept field by field, so that what is made of them is made of several at a time; what is not used is zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hops {
    hop: [u32; MOST_HOPS],
    /// Low halves of times and of bytes sent, and then the high ones.
    at: [u32; MOST_HOPS],
    tx_bytes: [u32; MOST_HOPS],
    queue: [u32; MOST_HOPS],
    line: [Rate; MOST_HOPS],
    /// The same in bytes a nanosecond, which is what a divisor is wanted in; never zero of a record.
    carries: [f32; MOST_HOPS],
    high: [(u32, u32); MOST_HOPS],
    len: u8,
}

/// As many records as a vector register holds.
pub(crate) const LANES: usize = 4;

/// The first records of a path, field by field; unused ones are zero. Times and bytes are the low 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes<'a> {
    pub hop: &'a [u32; LANES],
    pub at: &'a [u32; LANES],
    pub tx_bytes: &'a [u32; LANES],
    pub queue: &'a [u32; LANES],
    pub carries: &'a [f32; LANES],
}

impl Hops {
    /// No records.
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

    /// Adds a record, if there is room for it.
    #[allow(clippy::cast_possible_truncation)] // the halves
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

    /// Forgets all; costs next to nothing where there are none.
    pub fn clear(&mut self) {
        if self.len > 0 {
            *self = Self::new();
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One of them, by its place in the path.
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

    /// The records.
    pub fn iter(&self) -> impl Iterator<Item = IntHop> + '_ {
        (0..usize::from(self.len)).filter_map(|at| self.get(at))
    }

    /// The first of them.
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

    /// Bytes in the longest queue.
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
    pub kind: FeedbackKind,
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
    pub share: Option<LineShare>,
    /// A rate or credit that came with it.
    pub grant: Option<Grant<'a>>,
    /// In-band telemetry, in path order.
    pub int: &'a Hops,
    /// Everything sent before the previous round's end is now acknowledged: one round trip passed.
    pub round_end: bool,
    /// The sender was limited by its application, not by its budget, when the packet left.
    pub app_limited: bool,
    /// The report is about a retransmission.
    pub retransmitted: bool,
}
