//! What a simulation is told.

use core::fmt;

use crate::Picos;
use crate::model::{FailureEvent, NetworkOptions, OptionError};
use crate::topology::Topology;
use crate::workload::WorkloadError;
use squall_base::Rate;
use squall_cc::{PathsConfig, Scope, SenderConfig};

/// How flows map to connections: packet delivery contexts, or groups of queue pairs of the baseline.
///
/// Everything that a connection learns (window or rate, good paths, round trip) is learned anew where
/// each flow has its own, and flows of one pair then compete with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contexts {
    /// Each flow has its own from the start to the end, as a line of htsim's connection matrix is a
    /// connection (`UecSrc` of uet-htsim's uec.h, one a line in main_uec.cpp).
    #[default]
    PerFlow,
    /// Flows between the same two hosts follow one another on one that lives on, as messages of the engine
    /// do on their context, and messages of a collective on the queue pairs of a RoCE connection
    /// (QPS_PER_CONN of STrack, section 1).
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
    /// Which contexts of a host share one of congestion control, as a user writes it: `flow`, `pair`, ..; see
    /// [`squall_cc::Scope`]. A host has one endpoint, so `pair` and `destination` are the same. The service level is
    /// [`crate::workload::Flow::level`], the group its job.
    pub scope: String,
    /// Number of entropies; a power of two.
    pub paths: u16,
    /// Smallest retransmission timeout; `None` for 15 us and the time of six full queues, as htsim.
    pub rto_min: Option<Picos>,
    /// A flow whose peer is silent for this long is given up.
    pub give_up: Picos,
    /// A receiver acknowledges after this many bytes at the latest; 0 acknowledges every packet.
    pub ack_bytes: u32,
    /// Most bytes in a row on one path. 0: each packet chooses its path, as a network card does;
    /// software with segmentation offload uses 65000.
    pub train_bytes: u32,
    /// Which flows share a context.
    pub contexts: Contexts,
    /// Flows to one host that begin within this time of the first of them are an incast, and the first packet of each names all
    /// its senders, 2 bytes each (Dart's look-ahead, section III-D); `None` for no such lists.
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
            look_ahead: None,
        }
    }
}

/// RoCEv2 as the papers compare with it: go-back-N, one path a queue pair, DCQCN.
#[derive(Clone, PartialEq, Debug)]
pub struct RoceConfig {
    /// Congestion control, as a user writes it: `dcqcn`.
    pub cc: String,
    /// Queue pairs among which the bytes of a flow are divided.
    pub qps: u16,
    /// Retransmission timeout.
    pub rto: Picos,
    /// Which flows share a connection, that is, its queue pairs.
    pub contexts: Contexts,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self { cc: "dcqcn".into(), qps: 1, rto: Picos::micros(4_000), contexts: Contexts::PerFlow }
    }
}

/// What hosts run.
#[derive(Clone, PartialEq, Debug)]
pub enum Transport {
    /// `squall-reliability` with `squall-cc`.
    Squall(SquallConfig),
    /// The baseline; meant for a lossless network.
    Roce(RoceConfig),
}

/// What hosts are like.
#[derive(Clone, PartialEq, Debug)]
pub struct HostConfig {
    /// What they run.
    pub transport: Transport,
    /// Bytes of a full data packet on the wire, headers included.
    pub mtu: u32,
    /// Bytes of headers in it (IP, UDP, PDS, SES): htsim counts 64.
    pub header: u32,
    /// Bytes of a packet without data, and of a trimmed one, on the wire: htsim counts 64.
    pub control: u32,
    /// Each received packet waits this long before the transport sees it ..
    pub delay: Picos,
    /// .. and a random time up to this much longer.
    pub jitter: Picos,
    /// How fast they take in what arrives, if slower than any link.
    pub intake: Option<Intake>,
}

/// A host that is slower than its link: packets wait in its receive buffer, one after the other, and those that find it full
/// are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intake {
    /// How fast it takes packets in.
    pub rate: Rate,
    /// Bytes that wait meanwhile, at most.
    pub buffer: u64,
}

/// What to record on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observe {
    /// Length of all switch queues, this often.
    pub queues: Option<Picos>,
    /// Windows, bytes in flight and bytes delivered of all flows, this often.
    pub windows: Option<Picos>,
    /// Bytes and packets of each port, at the end.
    pub ports: bool,
    /// How long packets are on their way.
    pub packets: bool,
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The network at rest.
    pub topology: Topology,
    /// The hosts.
    pub host: HostConfig,
    /// What ports and switches are like.
    pub network: NetworkOptions,
    /// What fails when.
    pub failures: Vec<FailureEvent>,
    /// Seed of everything.
    pub seed: u64,
    /// Stop here, done or not.
    pub until: Picos,
    /// What to record.
    pub observe: Observe,
    /// In how many parts it runs beside itself, at most; what it finds does not depend on that.
    pub threads: usize,
}

impl SimConfig {
    /// The defaults: the transport of this project as network cards would run it, in a network that
    /// trims, with the second SMaRTT paper's queues; one simulated second at most.
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

/// Why a simulation cannot start.
#[derive(Clone, PartialEq, Debug)]
pub enum SimError {
    /// The topology is impossible.
    Topology(String),
    /// The workload makes no sense.
    Workload(WorkloadError),
    /// An algorithm or parameter is refused; says what is allowed.
    Transport(String),
    /// An option of the network is refused.
    Network(OptionError),
    /// Another parameter is out of range; says what is allowed.
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
