//! The network that both drivers step: the simulator with virtual time, the live relay with the real clock.
//!
//! # How a driver uses a [`Network`]
//!
//! 1. A packet is a number. Its [`PacketHeader`], the part that switches read, is the network's; what it carries is the
//!    driver's, who keeps it by the same number. It enters by [`Network::enter`], and waits at its host while the
//!    wire is taken, or by [`Network::transmit`], if the driver plays the network card itself.
//! 2. [`Network::step`] lets happen what happens until a moment, and returns at what concerns the driver: a packet
//!    at a host, which [`Network::take`] takes out, a host that may go on after a pause, and what the driver asked to
//!    be [called](Network::call) for.
//! 3. [`Network::next_event`] says when it is worth coming back.
//! 4. [`Network::fail`] breaks and repairs links and switches.
//! 5. [`Network::program`] gives switches a [`SwitchProgram`], before the first packet; programs write into a packet's
//!    [`Network::options`].
//!
//! # What is inside
//!
//! [`Switches`] keeps no time: it is told what happens to which port when, and answers. Packets are handles `T`
//! with a header. Whenever something was queued on a port that is not [armed](Switches::arm), [`Switches::serve`] is
//! called when the wire is free: it says which packet leaves and when it arrives at the other end
//! ([`Departure::arrives`], which includes the next switch's latency). Then [`Switches::land`] says whether it was
//! lost on the way, and at a switch [`Switches::pass`] routes it on. In a lossless network,
//! [`Switches::poll_pause`] comes after each of these.

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

pub use config::{Ground, Marks, NetworkArgs, NetworkConfig, NetworkOptions, OptionError};
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
