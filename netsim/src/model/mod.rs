//! The network that both drivers step: the simulator with virtual time, the live relay with the
//! real clock.
//!
//! # How a driver uses a [`Network`]
//!
//! 1. A packet is a number. The network holds its [`PacketHeader`], the part that switches read;
//!    the driver holds its contents under the same number. A packet enters by [`Network::enter`],
//!    and then waits at its host while the wire is busy, or by [`Network::transmit`], if the driver
//!    acts as the network card itself.
//! 2. [`Network::step`] processes the events up to a time, and returns at those that concern the
//!    driver: a packet at a host, which [`Network::take`] removes, a host that may send again after
//!    a pause, and a time for which the driver asked with [`Network::call`].
//! 3. [`Network::next_event`] returns the time of the next event, before which no step is needed.
//! 4. [`Network::fail`] breaks and repairs links and switches.
//! 5. [`Network::program`] gives switches a [`SwitchProgram`], before the first packet; programs
//!    write into a packet's [`Network::options`].
//!
//! # Inside the network
//!
//! [`Switches`] has no clock: the network calls it with the time and the port of each event.
//! Packets are handles `T` with a header. Whenever a packet was queued on a port that is not
//! [armed](Switches::arm), the network calls [`Switches::serve`] when the wire is free. That
//! returns the packet that leaves and the time at which it arrives at the other end
//! ([`Departure::arrives`], which includes the next switch's latency; at a switch that cuts through, when its
//! header does). Then [`Switches::land`]
//! returns whether the link lost it, and at a switch [`Switches::pass`] forwards it. In a lossless
//! network, the network calls [`Switches::poll_pause`] after each of these.

mod config;
mod event;
mod feature;
mod flight;
mod header;
mod lane;
mod lossless;
mod network;
mod packet_options;
mod partition;
mod planes;
mod port;
mod program;
mod queue;
mod rate_options;
mod route;
mod switches;
mod telemetry;
mod totals;
mod turn;
mod wheel;

pub use config::{
    Ground, HEADER_BYTES, Marks, NetworkArgs, NetworkConfig, NetworkOptions, OptionError, Switching,
};
pub use event::{Failure, FailureEvent, LinkId};
pub use feature::{
    FEATURE_COUNTERS, FeatureArguments, FeatureContext, FeatureCounters, FeatureList,
    FeatureMetric, FeatureParameter, HostSupport, MessagePacket, NetworkFeature, ReceivedPacket,
    SwitchFeature, register, registered,
};
pub use flight::Flights;
pub use header::{Class, PacketHeader};
pub use lane::MOST as MOST_LANES;
pub use lossless::Lossless;
pub use network::{Border, Ends, Network, Step, Transfer, UpcomingEvent};
pub use packet_options::{Decoder, Encoder, PacketOption, PacketOptions};
pub use partition::{Partition, Share};
pub use planes::Planes;
pub use port::{Departure, Drop, EnqueueOutcome, Port, PortConfig, PortCounters};
pub use program::{IncomingPacket, Packet, Place, SwitchProgram, Verdict};
pub use queue::Queues;
pub use route::Routes;
pub use switches::{Arrival, PassOutcome, Pause, Switches};
pub use telemetry::Telemetry;
pub use totals::{Losses, TelemetryTotals, Totals};
pub use turn::Turn;

#[cfg(test)]
mod tests;
