//! Counters of a network as a whole.

use super::feature::FeatureCounters;
use super::packet_options::PacketOptions;
use super::port::Drop;
use crate::Picos;
use squall_cc::{Hops, RatePacket};

/// Packets lost, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Packets that found a full data queue.
    pub queue_full: u64,
    /// Packets that found a full control queue.
    pub control_full: u64,
    /// Packets that were on a link, or went to one, that was down.
    pub down: u64,
    /// Packets on links that are black holes: they discard packets without any indication.
    pub black_hole: u64,
    /// Packets with bit errors, or lost at random on a link.
    pub corrupt: u64,
    /// Packets to a destination to which there was no route.
    pub no_route: u64,
    /// Packets that a program of a switch dropped.
    pub program: u64,
    /// Packets that found the receive buffer of a slow host full.
    pub host_full: u64,
}

impl Losses {
    pub(super) fn count(&mut self, why: Drop) {
        *match why {
            Drop::QueueFull => &mut self.queue_full,
            Drop::ControlFull => &mut self.control_full,
            Drop::Down => &mut self.down,
            Drop::BlackHole => &mut self.black_hole,
            Drop::Corrupt => &mut self.corrupt,
            Drop::NoRoute => &mut self.no_route,
            Drop::Program => &mut self.program,
            Drop::HostFull => &mut self.host_full,
        } += 1;
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            queue_full: self.queue_full + other.queue_full,
            control_full: self.control_full + other.control_full,
            down: self.down + other.down,
            black_hole: self.black_hole + other.black_hole,
            corrupt: self.corrupt + other.corrupt,
            no_route: self.no_route + other.no_route,
            program: self.program + other.program,
            host_full: self.host_full + other.host_full,
        }
    }

    /// Returns the number of packets lost for any reason.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queue_full
            + self.control_full
            + self.down
            + self.black_hole
            + self.corrupt
            + self.no_route
            + self.program
            + self.host_full
    }
}

/// Counters of a network, summed over all its switches and links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Lost packets that were sent as data, trimmed ones too.
    pub data: Losses,
    /// Lost packets that were not sent as data, such as acknowledgements.
    pub control: Losses,
    /// Data packets trimmed by switches.
    pub trimmed: u64,
    /// Data packets marked Congestion Experienced; each port that marks counts.
    pub marked: u64,
    /// PFC pause frames that switches sent to stop a sender; frames that let it resume are not
    /// counted.
    pub pauses: u64,
    /// Time at which a data packet was last trimmed or lost; zero if none was.
    pub last_loss: Picos,
    /// Packets that were for a switch, and that its program consumed.
    pub consumed: u64,
    /// Number of packet options that switch programs ignored because their content was invalid,
    /// such as stale epochs of 1RC.
    pub ignored: u64,
    /// Number of copies of packets that switch programs made.
    pub copied: u64,
    /// Sums of the telemetry in packets that arrived.
    pub telemetry: TelemetryTotals,
    /// Counters of switch features, in the order of [`super::NetworkConfig::counter_names`].
    pub features: FeatureCounters,
}

/// Telemetry that switches wrote into the packets that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TelemetryTotals {
    /// Packets that arrived with telemetry of switches in them.
    pub packets: u64,
    /// Telemetry records in these packets, one for each switch on the route.
    pub records: u64,
    /// Sum of the queue lengths that the packets left behind, bytes.
    pub queued: u64,
    /// Longest queue that a packet left behind when it was sent, bytes.
    pub longest: u32,
    /// Number of rate packets that links had written into, counted where they arrived at their
    /// destination.
    pub rated: u64,
}

impl TelemetryTotals {
    fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            records: self.records + other.records,
            queued: self.queued + other.queued,
            longest: self.longest.max(other.longest),
            rated: self.rated + other.rated,
        }
    }

    pub(super) fn add(&mut self, options: &PacketOptions) {
        if let Some(packet) = options.read::<RatePacket>() {
            self.rated += u64::from(!packet.back && !packet.links.as_slice().is_empty());
        }
        let Some(hops) = options.read::<Hops>() else { return };
        self.packets += 1;
        self.records += u64::from(hops.len());
        for hop in hops.iter() {
            self.queued += u64::from(hop.queue);
            self.longest = self.longest.max(hop.queue);
        }
    }
}

impl Totals {
    /// Adds up the counters of two parts of a network.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            data: self.data.plus(other.data),
            control: self.control.plus(other.control),
            trimmed: self.trimmed + other.trimmed,
            marked: self.marked + other.marked,
            pauses: self.pauses + other.pauses,
            last_loss: self.last_loss.max(other.last_loss),
            consumed: self.consumed + other.consumed,
            ignored: self.ignored + other.ignored,
            copied: self.copied + other.copied,
            telemetry: self.telemetry.plus(other.telemetry),
            features: core::array::from_fn(|at| self.features[at] + other.features[at]),
        }
    }

    /// Returns the number of lost packets, data and control, by cause.
    #[must_use]
    pub const fn lost(&self) -> Losses {
        self.data.plus(self.control)
    }
}
