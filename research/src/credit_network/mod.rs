//! Networks of accelerators whose switches take part in collectives: a write to a multicast group is replicated on its way to
//! all members, a read is sent to all and their answers are reduced to one (Klenk et al., "An In-Network Architecture for
//! Accelerating Shared-Memory Multiprocessor Collectives", ISCA 2020, SMMC for short), as J. Snyder's thesis (Duke 2022, chapter 6)
//! runs its congestion control over them. Sections below are the thesis'.
//!
//! A model of its own beside [`squall_netsim::sim`], since nothing here is a packet that is lost: links carry a flit a cycle, on virtual
//! channels, each with credits for the buffer behind it. What is full holds up what is before it.
//!
//! - [`CreditNetworkConfig`]: which network, and what its members do; [`CreditNetwork`] steps it cycle by cycle.
//! - `tree`: the way of an operation, from a topology of two tiers.
//! - `channel`: one direction of a link: output queues, arbitration, credits, buffers.
//! - `member`: what hangs on it: a memory that answers, and operations to send, as [`squall_cc::Injection`] lets them go.
//!
//! What the thesis does not say: packets are cut through, and a queue takes a packet while it has any room, since as much leaves it
//! meanwhile as comes in; copies of a packet leave when their own queues have room; a credit is back as soon as its
//! packet is out of the buffer; a memory takes whatever comes, since it always takes as long; a switch has room to reduce whatever is under way; a member belongs to the groups it sends
//! to, and its own memory is asked as any other.

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

/// Bytes of a flit (section 6.1.4).
pub const FLIT_BYTES: u64 = 16;
/// Bytes of data in a packet that has any: eight flits, and one of header.
pub const PAYLOAD_BYTES: u64 = 128;

/// A read of a group: the data is in the answer.
const READ: OperationFlits = OperationFlits { request: 1, response: 9 };
/// A write to a group.
const WRITE: OperationFlits = OperationFlits { request: 9, response: 1 };

/// An all-reduce: each sender reads from the group, and writes to it what each read brought.
#[derive(Clone, Debug)]
pub struct CreditNetworkConfig {
    /// Two tiers, all links alike, every switch of the lower connected to every one of the upper.
    pub topology: Topology,
    /// What throttles the operations of a member.
    pub injection: InjectionConfig,
    /// Members that send, drawn at random; the others answer.
    pub senders: u16,
    /// Reads, and as many writes, of each sender.
    pub transactions: u32,
    /// Senders begin up to so many cycles late, at random.
    pub skew: u32,
    /// From the arrival of a request to its answer, in cycles.
    pub memory: u32,
    /// Flits of answers that wait in a member for their link, beyond which its memory takes no request; `None` for no limit, so
    /// that a memory always takes as long.
    pub answers: Option<u32>,
    /// Flits of each virtual channel that wait behind a link, and as many before it; `None` for what is under way in a
    /// round trip between switches.
    pub buffer: Option<u32>,
    /// Decides everything that is random.
    pub seed: u64,
}

impl CreditNetworkConfig {
    /// What a cycle lasts: a flit on a link.
    #[must_use]
    pub fn cycle(&self) -> Picos {
        Picos::transmit(self.topology.host_rate(), FLIT_BYTES)
    }
}

/// Why such a network cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditNetworkError {
    /// The field of [`CreditNetworkConfig`] that is wrong.
    pub field: &'static str,
    /// What was found and what is allowed.
    pub what: String,
}

impl fmt::Display for CreditNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl core::error::Error for CreditNetworkError {}

/// What came out, in cycles from the start of the network.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CreditNetworkResults {
    /// Of each sender.
    pub senders: Vec<SenderResult>,
    /// Operations that were answered.
    pub operations: u64,
    /// Flits that a member got, or would have got had answers not been reduced: of each operation its request and its response.
    pub effective_flits: u64,
    /// From the first start to the last answer.
    pub cycles: u64,
    /// Sum over operations of the time from the first flit's departure to the answer's last.
    pub latency_sum: u64,
    /// The longest of these.
    pub latency_max: u64,
    /// Packets on links.
    pub packets: u64,
    /// Why it ended before all was answered.
    pub stopped: Option<&'static str>,
}

/// A member that sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderResult {
    /// Its number.
    pub member: u16,
    /// When it began.
    pub start: u64,
    /// When the last of its writes was answered.
    pub end: Option<u64>,
}

/// A packet: its operation, and whether it is the answer. Operations are numbered sender by sender, reads and writes in turn.
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
