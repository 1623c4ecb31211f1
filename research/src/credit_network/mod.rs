//! Networks of accelerators whose switches take part in collectives: a write to a multicast group
//! is replicated on its way to all members, a read is sent to all and their answers are reduced to
//! one (Klenk et al., "An In-Network Architecture for Accelerating Shared-Memory Multiprocessor
//! Collectives", ISCA 2020, SMMC for short), as J. Snyder's thesis (Duke 2022, chapter 6) runs its
//! congestion control over them. Sections below are the thesis'.
//!
//! This is a model of its own beside [`squall_netsim::sim`], because no packet is lost here: links
//! carry one flit per cycle, on virtual channels, each with credits for the buffer behind it. A
//! full buffer blocks the packets before it.
//!
//! - [`CreditNetworkConfig`]: the network, and the operations of its members. [`CreditNetwork`]
//!   steps it cycle by cycle.
//! - `tree`: the route of an operation, from a topology of two tiers.
//! - `channel`: one direction of a link: output queues, arbitration, credits, buffers.
//! - `member`: an accelerator: a memory that answers, and operations to send when
//!   [`squall_cc::Injection`] allows.
//!
//! The thesis leaves some points open. This model makes the following choices:
//!
//! - Packets are cut through, and a queue accepts a packet while it has any room, because flits
//!   leave the queue as fast as others enter it.
//! - Each copy of a packet leaves when its own queue has room.
//! - A credit returns as soon as its packet is out of the buffer.
//! - A memory accepts every request, because it always takes the same time.
//! - A switch has room to reduce all operations in flight.
//! - A member belongs to the groups that it sends to, and its own memory answers like any other.

mod channel;
mod member;
mod network;
#[cfg(test)]
mod tests;
mod tree;

use core::fmt;

use squall_cc::{InjectionConfig, OperationFlits};
use squall_netsim::Picos;
use squall_netsim::topology::Topology;

pub use network::CreditNetwork;

/// Size of a flit, the unit of transmission on links, in bytes (section 6.1.4).
pub const FLIT_BYTES: u64 = 16;
/// Bytes of data in a packet with data: eight flits. Such a packet has a ninth flit, the header.
pub const PAYLOAD_BYTES: u64 = 128;

/// Flits of a read from a multicast group: the answer carries the data.
const READ: OperationFlits = OperationFlits { request: 1, response: 9 };
/// Flits of a write to a multicast group: the request carries the data.
const WRITE: OperationFlits = OperationFlits { request: 9, response: 1 };

/// Configuration of an all-reduce: each sender reads from the group, and writes to it what each
/// read returned.
#[derive(Clone, Debug)]
pub struct CreditNetworkConfig {
    /// The network: two tiers, all links alike, every lower switch connected to every upper switch.
    pub topology: Topology,
    /// Limiter that throttles the operations of each member.
    pub injection: InjectionConfig,
    /// Number of members that send, drawn at random. The others only answer.
    pub senders: u16,
    /// Number of reads of each sender. It makes as many writes.
    pub transactions: u32,
    /// Largest random delay in cycles before a sender starts.
    pub skew: u32,
    /// Cycles from the arrival of a request at a memory to its answer.
    pub memory: u32,
    /// Flits of answers that may wait in a member for its link. Beyond this, the memory accepts no
    /// request. `None` means no limit, so that a memory always takes the same time.
    pub answers: Option<u32>,
    /// Flits of each virtual channel that may wait behind a link, and as many before it. `None`
    /// means as many as are in flight in a round trip between switches.
    pub buffer: Option<u32>,
    /// Seed of all random choices of a run.
    pub seed: u64,
}

impl CreditNetworkConfig {
    /// Returns the duration of a cycle: one flit on a link.
    #[must_use]
    pub fn cycle(&self) -> Picos {
        Picos::transmit(self.topology.host_rate(), FLIT_BYTES)
    }
}

/// The reason why a network cannot be built from a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditNetworkError {
    /// Name of the field of [`CreditNetworkConfig`] that is invalid.
    pub field: &'static str,
    /// The invalid value, and the range that is allowed.
    pub what: String,
}

impl fmt::Display for CreditNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl core::error::Error for CreditNetworkError {}

/// Results of a run; times are in cycles from the start of the network.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CreditNetworkResults {
    /// Results of each member that sent.
    pub senders: Vec<SenderResult>,
    /// Number of operations of all senders that were answered.
    pub operations: u64,
    /// Flits of the request and the response of each operation: those that a member would have
    /// received if answers were not reduced.
    pub effective_flits: u64,
    /// Cycles from the start of the first sender to the last answer.
    pub cycles: u64,
    /// Sum over operations of the time from the first flit's departure to the answer's last flit,
    /// cycles.
    pub latency_sum: u64,
    /// Longest time from the first flit's departure to the answer's last flit, in cycles.
    pub latency_max: u64,
    /// Number of packets sent on all links together.
    pub packets: u64,
    /// The reason why the run ended before all operations were answered, if it did.
    pub stopped: Option<&'static str>,
}

/// Results of one member that sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderResult {
    /// Number of the member in the network.
    pub member: u16,
    /// Cycle in which the member started to send.
    pub start: u64,
    /// Cycle in which the last of the member's writes was answered, if all were.
    pub end: Option<u64>,
}

/// A packet: its operation, and whether it is the answer. Operations are numbered sender by sender;
/// reads and writes alternate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packet {
    op: u32,
    response: bool,
}

impl Packet {
    const fn request(op: u32) -> Self {
        Self { op, response: false }
    }

    const fn response(op: u32) -> Self {
        Self { op, response: true }
    }

    const fn flits(self) -> u32 {
        let flits = flits_of(self.op);
        if self.response { flits.response as u32 } else { flits.request as u32 }
    }
}

const fn is_write(op: u32) -> bool {
    op % 2 == 1
}

const fn flits_of(op: u32) -> OperationFlits {
    if is_write(op) { WRITE } else { READ }
}
