//! The tables of a scene as they are written. What is left out has the default stated here; what a
//! `kind` does not use may not be given.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use squall_netsim::Bytes;
use squall_netsim::model::NetworkOptions;

/// Everything a simulation needs but its seed.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scene {
    /// Who is connected to whom.
    pub topology: TopologyTable,
    /// What switches do.
    pub network: NetworkOptions,
    /// Who sends what to whom.
    pub workload: WorkloadTable,
    /// What hosts run.
    pub transport: TransportTable,
    /// What fails when.
    pub failure: Vec<FailureTable>,
    /// What to record.
    pub observe: ObserveTable,
    /// Instead of all but the topology: accelerators whose switches replicate and reduce.
    pub flits: Option<FlitsTable>,
}

/// `[topology]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopologyTable {
    /// `fat-tree`, `leaf-spine`, `star`, `dumbbell`, `mc` (accelerators), or `file` (implied by `file`).
    pub kind: Option<String>,
    /// htsim's `.topo` or a graph, relative to the plan.
    pub file: Option<PathBuf>,
    /// Hosts (fat-tree, star; dumbbell: half of them on each side; mc: 64 or 128).
    pub hosts: Option<u32>,
    /// Tiers of a fat tree, 2 or 3 (default 3).
    pub tiers: Option<u8>,
    /// Hosts below a top-of-rack switch (fat-tree, leaf-spine). For a fat tree of three tiers
    /// the default is that of `k`-port switches, for two the power of two next above the root
    /// of `hosts`.
    pub rack: Option<u32>,
    /// Hosts of a pod (fat tree of three tiers).
    pub pod: Option<u32>,
    /// Bandwidth down over bandwidth up of a fat tree, at the top-of-rack switches as far as they
    /// can, the rest one tier up (default 1).
    pub oversubscription: Option<u32>,
    /// Leaves (leaf-spine).
    pub leaves: Option<u32>,
    /// Spines (leaf-spine).
    pub spines: Option<u32>,
    /// Rate of the hosts' links, Gb/s (default 100; mc: 200, a flit in 0.64 ns).
    pub gbps: Option<u64>,
    /// Rate of the links between switches, Gb/s (leaf-spine, dumbbell; default as the hosts').
    pub uplink_gbps: Option<u64>,
    /// Latency of a link, ns (default 1000, as htsim's; mc: 0).
    pub link_ns: Option<u64>,
    /// Latency of a switch, ns (default 0, as htsim's; mc: 96, which are 150 cycles).
    pub switch_ns: Option<u64>,
    /// Latency of the links of the last half of the hosts, ns: hosts of another base RTT (star,
    /// dumbbell; default as `link_ns`).
    pub far_link_ns: Option<u64>,
}

/// `[workload]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadTable {
    /// `permutation`, `incast`, `outcast-incast`, `all-to-all`, `all-reduce`, `poisson`, `incast-mix`,
    /// `parallel`, `staggered`, `shuffled-overlay`, `trace`, `job`, `goal`, `matrix`.
    pub kind: Option<String>,
    /// htsim's `.cm` (matrix), a message trace, a schedule (goal), or what a job left with FI_SQUALL_TRACE (job: a folder), relative
    /// to the plan.
    pub file: Option<PathBuf>,
    /// What `start` counts in htsim's `.cm`: `ps` (the default) or `us`, as uet-htsim's UEC binary reads it (matrix).
    pub cm_unit: Option<String>,
    /// Length of a flow, or of the data of an all-reduce; of an attacker, or of each rank of an overlay, in all.
    pub bytes: Option<Bytes>,
    /// Length of the first flow (permutation, incast).
    pub larger: Option<Bytes>,
    /// Permutations at a time (default 1).
    pub parallel: Option<u32>,
    /// `hosts`, `racks` or `pods`: ends of a permutation's flows are in different ones.
    pub apart: Option<String>,
    /// Senders of an incast.
    pub senders: Option<u32>,
    /// Flows from the shared source (outcast-incast).
    pub outcast: Option<u32>,
    /// Flows to the shared destination (outcast-incast).
    pub incast: Option<u32>,
    /// Flows under way at a sender (all-to-all; default 1).
    pub window: Option<u32>,
    /// `ring`, `halving-doubling`, `double-binary-tree`.
    pub algorithm: Option<String>,
    /// Length of a message of an all-reduce (default 128 KiB, as STrack, section 4.3).
    pub chunk: Option<Bytes>,
    /// Connections of the attacker (parallel).
    pub qps: Option<u32>,
    /// Bytes of a connection of an attacker, a bandwidth-delay product (staggered, poisson with `split`;
    /// shuffled-overlay, where without it the connections use all rings at once).
    pub bdp: Option<Bytes>,
    /// From the start of one of those to that of the next, microseconds; 0 for all at once.
    pub rtt_us: Option<f64>,
    /// Hosts that send one flow each besides the attacker (parallel, staggered; default 1).
    pub victims: Option<u32>,
    /// Length of such a flow (default as the attacker's bytes).
    pub victim_bytes: Option<Bytes>,
    /// Hosts that receive, attacker and victims in turn (default 1).
    pub receivers: Option<u32>,
    /// Flows longer than this are divided into connections of `bdp` bytes, one every `rtt_us` (poisson).
    pub split: Option<Bytes>,
    /// Senders of an incast (incast-mix; default 16).
    pub degree: Option<u32>,
    /// Share of the load that short flows in incasts have (incast-mix; default 0.4).
    pub short_share: Option<f64>,
    /// Service levels that flows take in turn, for scope `service-level` (default 1).
    pub levels: Option<u8>,
    /// `websearch`, `hadoop`, `alistorage` (poisson).
    pub sizes: Option<String>,
    /// (Bytes, cumulative share) points instead of `sizes` (poisson).
    pub points: Option<Vec<(f64, f64)>>,
    /// Share of the line rate (poisson, incast-mix).
    pub load: Option<f64>,
    /// Flows start for so long (poisson, incast-mix).
    pub duration_us: Option<u64>,
    /// Ranks of a job (default all hosts, shared by the jobs).
    pub ranks: Option<u32>,
    /// Jobs side by side (default 1).
    pub jobs: Option<u16>,
    /// Place ranks at random.
    pub random: bool,
    /// When it starts, microseconds.
    pub start_us: u64,
    /// Flows start up to so many nanoseconds later, at random.
    pub jitter_ns: u64,
    /// Flows start in turn, so many microseconds apart, instead of at once.
    pub stagger_us: Option<u64>,
    /// .. so many at a time (default 1).
    pub together: Option<u32>,
}

/// Which stack hosts run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// This project's.
    #[default]
    Squall,
    /// RoCEv2 with go-back-N, one path a queue pair.
    Roce,
}

/// `[transport]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportTable {
    /// `squall` or `roce`.
    pub stack: Stack,
    /// Congestion control (default `nscc`, of a RoCE host `dcqcn`).
    pub cc: Option<String>,
    /// Path selection (default `reps-avoid`).
    pub lb: Option<String>,
    /// Loss detection (default `all`).
    pub loss: Option<String>,
    /// Which contexts share one of congestion control: `flow`, `service-level`, `pair`, `destination`,
    /// `destination-unsplit`, `host` or `group`, which is a job (default `auto`: `host` with 3cpo, `flow` with all others).
    pub scope: Option<String>,
    /// Entropies (default 64).
    pub paths: Option<u16>,
    /// Queue pairs of a RoCE connection (default 1).
    pub qps: Option<u16>,
    /// Bytes of a full packet on the wire, 64 of them headers (default 4096, as htsim's).
    pub mtu: Option<u32>,
    /// A receiver acknowledges after so many bytes (default 16384).
    pub ack_bytes: Option<u32>,
    /// Most bytes in a row on one path (default a packet).
    pub train_bytes: Option<u32>,
    /// Dart's look-ahead: flows to one host that begin within so many microseconds of the first of them are an incast, and the
    /// first packet of each names all its senders, 2 bytes each (default no such lists).
    pub look_ahead_us: Option<u64>,
    /// Smallest retransmission timeout, microseconds.
    pub rto_us: Option<u64>,
    /// Flows between the same hosts follow one another on one context, or on the queue pairs of one
    /// connection; otherwise each has its own.
    pub per_pair: bool,
    /// Delay of each packet at the receiver, ns.
    pub host_delay_ns: u64,
    /// Further delay of each packet, at random, up to this, ns.
    pub host_jitter_ns: u64,
    /// Hosts take in no more than this, Gb/s (default: whatever arrives).
    pub host_gbps: Option<u64>,
    /// .. and keep so many bytes meanwhile, as a socket's receive buffer; what finds no room is lost (default 4 MiB).
    pub host_buffer: Option<Bytes>,
}

/// `[[failure]]`
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FailureTable {
    /// `link-down`, `link-up`, `black-hole`, `rate`, `slow`, `bit-errors`, `switch-down`, `switch-up`.
    pub what: String,
    /// When, microseconds.
    pub at_us: f64,
    /// A link by its ends: `tor0-agg1`.
    pub link: Option<String>,
    /// A switch: `spine1`.
    pub switch: Option<String>,
    /// Random links between switches instead, so many; of `slow`, the first of the top tier.
    pub links: Option<u32>,
    /// .. that all leave so many top-of-rack switches, evenly.
    pub of_racks: Option<u32>,
    /// Rate from then on (rate).
    pub gbps: Option<u64>,
    /// Share of its rate that a link of the top tier keeps downwards, its queue and thresholds with it (slow;
    /// default 0.25, as uet-htsim's -failed).
    pub share: Option<f64>,
    /// Probability that a bit is wrong (bit-errors).
    pub probability: Option<f64>,
}

/// `[observe]`
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveTable {
    /// Length of queues, this often.
    pub queues_us: Option<f64>,
    /// Windows and throughput of flows, this often.
    pub windows_us: Option<f64>,
    /// Bytes of each link.
    pub links: bool,
    /// How long the slowest packet of each flow was on its way.
    pub packets: bool,
    /// Give up after so many simulated microseconds (default one second).
    pub until_us: Option<u64>,
}

/// `[flits]`: an all-reduce over accelerators whose switches replicate writes and reduce reads; times are cycles, of which a link
/// carries a flit each.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlitsTable {
    /// What throttles operations: `none`, `window`, `aimd` or `3cpo`, with parameters if wanted (default `3cpo`).
    pub control: String,
    /// Members that send, drawn at random (default all).
    pub senders: Option<u16>,
    /// Reads of each, each followed by a write of what it brought (default 128).
    pub transactions: u32,
    /// Senders begin up to so many cycles late, at random (default 0).
    pub skew: u32,
    /// Cycles that a memory takes to answer (default 180).
    pub memory: u32,
    /// Flits of answers that wait in a member for its link, beyond which its memory takes no request (default no limit).
    pub answers: Option<u32>,
    /// Flits of a virtual channel that wait before a link, and as many behind it (default as many as fit into the round trip
    /// between two switches).
    pub buffer: Option<u32>,
}

impl Default for FlitsTable {
    fn default() -> Self {
        Self {
            control: "3cpo".to_owned(),
            senders: None,
            transactions: 128,
            skew: 0,
            memory: 180,
            answers: None,
            buffer: None,
        }
    }
}
