//! Configuration of a simulation.

use core::fmt;

use crate::Picos;
use crate::model::{FailureEvent, NetworkOptions, OptionError};
use crate::topology::Topology;
use crate::workload::WorkloadError;
use squall_base::Rate;
use squall_cc::{PathsConfig, Scope, SenderConfig};

/// Mapping of flows to connections: packet delivery contexts, or groups of queue pairs of the
/// baseline.
///
/// Where each flow has its own connection, it must learn everything anew (window or rate, good
/// paths, round trip), and flows of one pair compete with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contexts {
    /// Each flow has its own connection from the start to the end, as a line of htsim's connection
    /// matrix is a connection (`UecSrc` of uet-htsim's `uec.h`, one a line in `main_uec.cpp`).
    #[default]
    PerFlow,
    /// Flows between the same two hosts follow one another on one long-lived connection, as
    /// messages of the engine do on their context, and messages of a collective on the queue pairs
    /// of a RoCE connection (`QPS_PER_CONN` of STrack, section 1).
    PerPair,
}

/// The transport of this project.
#[derive(Clone, PartialEq, Debug)]
pub struct SquallConfig {
    /// Congestion control, as a user writes it: `nscc`, `nscc:quick_adapt=0`; see
    /// [`squall_cc::SenderConfig`].
    pub cc: String,
    /// Path selection, as a user writes it: `reps`.
    pub lb: String,
    /// Loss detection, as a user writes it: any of `trim,ooo,path,probe,rto`, or `all`.
    pub loss: String,
    /// Contexts of a host that share one instance of congestion control, as a user writes it:
    /// `flow`, `pair`, ..; see [`squall_cc::Scope`]. A host has one endpoint, so `pair` and
    /// `destination` are the same. The service level is [`crate::workload::Flow::level`], the group
    /// its job.
    pub scope: String,
    /// Number of entropies (paths) over which a context spreads its packets; a power of two.
    pub paths: u16,
    /// Minimum retransmission timeout; `None` for 15 us plus the time of six full queues, as in
    /// htsim.
    pub rto_min: Option<Picos>,
    /// The transport gives a flow up when its peer is silent for this long.
    pub give_up: Picos,
    /// A receiver acknowledges after this many bytes at the latest; 0 acknowledges every packet.
    pub ack_bytes: u32,
    /// Maximum number of consecutive bytes on one path. With 0, each packet chooses its path, as a
    /// network card does; software with segmentation offload uses 65487.
    pub train_bytes: u32,
    /// Mapping of flows to packet delivery contexts: one for each flow, or for each pair of hosts.
    pub contexts: Contexts,
    /// True to open as many contexts as hosts have links, each of which sends in one plane and has a
    /// window for it. A flow's next packet goes to the context whose window has room. Otherwise one
    /// context, and so one window, serves all planes.
    pub per_plane: bool,
    /// Flows to one host that begin within this time of the first of them are an incast, and the
    /// first packet of each lists all its senders, 2 bytes each (Dart's look-ahead, section III-D).
    /// `None` disables these lists.
    pub look_ahead: Option<Picos>,
}

impl Default for SquallConfig {
    fn default() -> Self {
        Self {
            cc: SenderConfig::DEFAULT.into(),
            lb: PathsConfig::DEFAULT.into(),
            loss: "all".into(),
            scope: Scope::AUTO.into(),
            paths: 64,
            rto_min: None,
            give_up: Picos::micros(200_000),
            ack_bytes: 16_384,
            train_bytes: 0,
            contexts: Contexts::PerFlow,
            per_plane: false,
            look_ahead: None,
        }
    }
}

/// The baseline: RoCEv2 as the papers compare with it, with go-back-N, one path per queue pair, and
/// DCQCN.
#[derive(Clone, PartialEq, Debug)]
pub struct RoceConfig {
    /// Congestion control, as a user writes it: `dcqcn`.
    pub cc: String,
    /// Number of queue pairs among which the bytes of a flow are divided.
    pub qps: u16,
    /// Retransmission timeout of a queue pair.
    pub rto: Picos,
    /// Mapping of flows to connections, that is, to groups of queue pairs.
    pub contexts: Contexts,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self { cc: "dcqcn".into(), qps: 1, rto: Picos::micros(4_000), contexts: Contexts::PerFlow }
    }
}

/// The transport that hosts run.
#[derive(Clone, PartialEq, Debug)]
pub enum Transport {
    /// The transport of this project: `squall-reliability` with `squall-cc`.
    Squall(SquallConfig),
    /// The RoCEv2 baseline of the papers, which is meant for a lossless network.
    Roce(RoceConfig),
}

/// Configuration of the hosts: their transport, their packets and their delays.
#[derive(Clone, PartialEq, Debug)]
pub struct HostConfig {
    /// Transport of the hosts.
    pub transport: Transport,
    /// Bytes of a full data packet on the wire, headers included.
    pub mtu: u32,
    /// Bytes of headers in a full data packet (IP, UDP, PDS, SES): htsim counts 64.
    pub header: u32,
    /// Bytes of a packet without data, and of a trimmed one, on the wire: htsim counts 64.
    pub control: u32,
    /// Minimum delay in the host before the transport sees a received packet.
    pub delay: Picos,
    /// Maximum of the random time that is added to `delay`.
    pub jitter: Picos,
    /// Rate at which hosts take in packets, if slower than any link.
    pub intake: Option<Intake>,
}

/// A host that is slower than its link: packets wait in its receive buffer, one after the other,
/// and those that find it full are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intake {
    /// Rate at which the host takes packets in.
    pub rate: Rate,
    /// Capacity of the host's receive buffer, bytes.
    pub buffer: u64,
}

/// The samples and statistics to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observe {
    /// Interval at which the lengths of all switch queues are sampled.
    pub queues: Option<Picos>,
    /// Interval at which windows, bytes in flight and bytes delivered of all flows are sampled.
    pub windows: Option<Picos>,
    /// True to report bytes and packets of each port at the end.
    pub ports: bool,
    /// True to record how long packets are in flight.
    pub packets: bool,
}

/// Configuration of a simulation, apart from its workload.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The topology before any failure.
    pub topology: Topology,
    /// Configuration of all hosts.
    pub host: HostConfig,
    /// Options of the ports and switches.
    pub network: NetworkOptions,
    /// Failures and repairs, with their times.
    pub failures: Vec<FailureEvent>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Simulated time at which the simulation stops at the latest.
    pub until: Picos,
    /// The samples and statistics to record.
    pub observe: Observe,
    /// Maximum number of parts of the network that are simulated in parallel, one thread each. The
    /// results do not depend on it.
    pub threads: usize,
}

impl SimConfig {
    /// Returns the defaults: the transport of this project as network cards would run it, in a
    /// network that trims, with the queues of the second SMaRTT paper, and at most one simulated
    /// second.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            host: HostConfig {
                transport: Transport::Squall(SquallConfig::default()),
                mtu: 4096,
                header: 64,
                control: 64,
                delay: Picos::ZERO,
                jitter: Picos::ZERO,
                intake: None,
            },
            network: NetworkOptions::default(),
            failures: Vec::new(),
            seed: 1,
            until: Picos::micros(1_000_000),
            observe: Observe::default(),
            threads: 1,
        }
    }
}

/// Reason why a simulation cannot start.
#[derive(Clone, PartialEq, Debug)]
pub enum SimError {
    /// The topology is impossible.
    Topology(String),
    /// The workload makes no sense.
    Workload(WorkloadError),
    /// An algorithm or parameter is refused; the text gives the allowed values.
    Transport(String),
    /// An option of the network is refused.
    Network(OptionError),
    /// Another parameter is out of range; the text gives the allowed values.
    Parameter(String),
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(text) | Self::Transport(text) | Self::Parameter(text) => {
                f.write_str(text)
            }
            Self::Workload(error) => error.fmt(f),
            Self::Network(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SimError {}

impl From<OptionError> for SimError {
    fn from(error: OptionError) -> Self {
        Self::Network(error)
    }
}

impl From<WorkloadError> for SimError {
    fn from(error: WorkloadError) -> Self {
        Self::Workload(error)
    }
}
