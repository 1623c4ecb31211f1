//! The network that both drivers step: the simulator with virtual time, the live relay with the real clock.
//!
//! # How a driver uses a [`Network`]
//!
//! 1. A packet is a number. Its [`Head`], the part that switches read, is the network's; what it carries is the
//!    driver's, who keeps it by the same number. It enters by [`Network::enter`], and waits at its host while the
//!    wire is taken, or by [`Network::transmit`], if the driver plays the network card itself.
//! 2. [`Network::step`] lets happen what happens until a moment, and returns at what concerns the driver: a packet
//!    at a host, which [`Network::take`] takes out, a host that may go on after a pause, and what the driver asked to
//!    be [called](Network::call) for.
//! 3. [`Network::next_event`] says when it is worth coming back.
//! 4. [`Network::fail`] breaks and repairs links and switches.
//!
//! # What is inside
//!
//! [`Switches`] keeps no time: it is told what happens to which port when, and answers. Packets are handles `T`
//! with a head. Whenever something was queued on a port that is not [armed](Switches::arm), [`Switches::serve`] is
//! called when the wire is free: it says which packet leaves and when it arrives at the other end
//! ([`Departure::arrives`], which includes the next switch's latency). Then [`Switches::land`] says whether it was
//! lost on the way, and at a switch [`Switches::pass`] routes it on. In a lossless network,
//! [`Switches::poll_pause`] comes after each of these.

mod event;
mod flight;
mod head;
mod network;
mod port;
mod queue;
mod route;
mod switches;
mod totals;
mod wheel;

pub use event::{Failure, FailureEvent, LinkId};
pub use head::{Class, Head};
pub use network::{Coming, Ends, Network, Step};
pub use port::{Departure, Drop, Enqueued, Port, PortConfig, PortCounters};
pub use queue::Queues;
pub use route::Routes;
pub use switches::{Arrival, Passed, Pause, Switches};
pub use totals::{Losses, Totals};

use crate::base::Rate;

/// What all queues of a network are like.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Data queue of a port, bytes, whatever its rate; the packet being sent counts.
    pub queue: u64,
    /// Control queue of a port, bytes. htsim: twice the data queue.
    pub control_queue: u64,
    /// A port marks when the data queue left behind a departing packet exceeds this many bytes:
    /// with a probability that rises from 0 ..
    pub ecn_min: u64,
    /// .. to 1 at this many. Both `u64::MAX`: no marks.
    pub ecn_max: u64,
    /// Whether ports to hosts mark too.
    pub ecn_last_hop: bool,
    /// Trim packets that find the queue full to this many bytes on the wire; `None` drops them.
    pub trim: Option<u32>,
    /// Pause upstream instead of dropping (IEEE 802.1Qbb): data queues are then unlimited, and a
    /// switch pauses an input that owns more than `xoff` of its bytes until it owns less than `xon`.
    pub lossless: Option<Lossless>,
    /// Switches choose the shorter of two random queues instead of hashing the entropy.
    pub adaptive: bool,
    /// Take in-band telemetry at each departure.
    pub telemetry: bool,
    /// After a link or switch failed, routing avoids it this much later.
    pub reroute: crate::Picos,
    /// Rate of the hosts' network cards; `None` for that of their links.
    pub nic: Option<Rate>,
    /// Seed of marking, hashing and adaptive routing.
    pub seed: u64,
}

/// When a switch pauses an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lossless {
    /// Bytes from one input that pause it.
    pub xoff: u64,
    /// Bytes at which it may go on.
    pub xon: u64,
}

impl NetworkConfig {
    /// The defaults of the second SMaRTT paper for a bandwidth-delay product of `bdp` bytes: queues of
    /// one bandwidth-delay product with trimming and of five without, marks from 20 % to 80 % of it.
    #[must_use]
    pub const fn new(bdp: u64, trimming: bool, seed: u64) -> Self {
        let queue = if trimming { bdp } else { bdp * 5 };
        Self {
            queue,
            control_queue: queue * 2,
            ecn_min: queue / 5,
            ecn_max: queue * 4 / 5,
            ecn_last_hop: true,
            trim: if trimming { Some(64) } else { None },
            lossless: None,
            adaptive: false,
            telemetry: false,
            reroute: crate::Picos::ZERO,
            nic: None,
            seed,
        }
    }

    /// The port of a link of `rate`; `last_hop` if it leads to a host.
    #[must_use]
    pub const fn port(&self, rate: Rate, last_hop: bool) -> PortConfig {
        let marks = self.ecn_last_hop || !last_hop;
        PortConfig {
            rate,
            queue: if self.lossless.is_some() { u64::MAX } else { self.queue },
            control_queue: self.control_queue,
            ecn_min: if marks { self.ecn_min } else { u64::MAX },
            ecn_max: if marks { self.ecn_max } else { u64::MAX },
            trim: if self.lossless.is_some() { None } else { self.trim },
            last_hop,
        }
    }
}

#[cfg(test)]
mod tests;
