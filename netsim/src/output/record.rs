//! Record of a run, as it is stored in files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Provenance;
use crate::workload::JobTimes;

/// A run: one workload over one network with one transport and one seed.
///
/// In JSON, the flows and totals have the names of these fields; empty fields are left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run, for legends and tables; made from the parameters that differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Parameters that distinguish the run from others of its series (`cc`, `oversubscription`,
    /// ..), as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Origin of the run: program, command and settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// Results of all flows.
    pub flows: Vec<FlowResult>,
    /// Sums over all hosts and switches.
    pub totals: Totals,
    /// Properties of the network, and sums that are not in [`Run::totals`].
    #[serde(default)]
    pub network: NetworkFacts,
    /// Counters of switch features over the whole network, by name: `deflection.packets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, u64>,
    /// Queues, windows and rates over time, if the run recorded them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Load of each direction of a link, if the run recorded it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkLoad>,
    /// Payload bytes of each job that had arrived when the first of several jobs was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_bytes: Vec<u64>,
    /// Time at which the last operation of a schedule ended, including what ranks compute, in
    /// microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makespan_us: Option<f64>,
    /// Times that the ranks of a schedule computed, communicated and waited, if all its messages ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_times: Option<JobTimes>,
    /// Failures and other events of the network, by rising time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Results of operations, in runs that send operations instead of flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
    /// Reason why the run ended early. Such a run holds the results until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// Result of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowResult {
    /// Number of the flow in the workload.
    pub id: u32,
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Payload bytes of the flow.
    pub bytes: u64,
    /// Time at which the flow started, in microseconds; `None` if it never did.
    pub start_us: Option<f64>,
    /// Flow completion time: from the start to the last acknowledgement at the sender, in
    /// microseconds; `None` if the flow did not finish.
    pub fct_us: Option<f64>,
    /// Time from the start until all bytes had arrived, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_us: Option<f64>,
    /// Number of packets of the flow; 0 if it was not counted.
    #[serde(default)]
    pub packets: u64,
    /// Packets of the flow that were retransmitted.
    pub retransmitted: u64,
    /// Packets of the flow that arrived marked Congestion Experienced.
    #[serde(default)]
    pub marked: u64,
    /// Longest time that one of its packets was in flight, in microseconds, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_us: Option<f64>,
    /// Counters of switch features for this flow, by name: `deflection.links`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, u64>,
    /// Completion time without any other flow, in microseconds: the round trip of its hosts without
    /// queues, plus its bytes with headers at line rate; `None` if there is no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_us: Option<f64>,
    /// Reason why the flow did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of the job that the flow belongs to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub job: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(job: &u16) -> bool {
    *job == 0
}

/// Sums over all hosts and switches of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Data packets that hosts sent for the first time.
    pub packets: u64,
    /// Data packets that were retransmitted.
    pub retransmitted: u64,
    /// Data packets that a switch trimmed.
    pub trimmed: u64,
    /// Negative acknowledgements that hosts sent.
    pub nacks: u64,
    /// Acknowledgements that hosts sent.
    pub acks: u64,
    /// Number of events that the simulator processed.
    pub events: u64,
    /// Wall-clock time of the simulation, seconds.
    pub wall_s: f64,
    /// Largest memory that the simulator's process used, bytes.
    pub peak_bytes: u64,
}

/// Reads and writes of a multicast group, in a run of the credit network model. Times are in
/// cycles.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Operations {
    /// Number of operations that were answered.
    pub count: u64,
    /// Flits that each member received, or would have received if answers were not reduced in the
    /// network.
    pub effective_flits: u64,
    /// Cycles from the start of the first operation to the answer of the last one.
    pub cycles: u64,
    /// Mean number of cycles from the departure of an operation to its answer.
    pub mean_latency: f64,
    /// Largest number of cycles from the departure of an operation to its answer.
    pub max_latency: f64,
}

/// Properties of the network of a run, and the sums that belong to it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// Number of hosts.
    #[serde(default)]
    pub hosts: u32,
    /// Rate at which a host can send, Gb/s.
    #[serde(default)]
    pub line_gbps: f64,
    /// Longest round trip without queues, in microseconds.
    #[serde(default)]
    pub base_rtt_us: f64,
    /// Earliest time at which any transport could be done, in microseconds after the first start:
    /// the busiest host, rack or core link at line rate, plus the shortest round trip over it.
    #[serde(default)]
    pub ideal_us: f64,
    /// Data packets lost for any reason ([`crate::model::Losses`]), also after they were trimmed.
    #[serde(default)]
    pub dropped: u64,
    /// Dropped packets that were lost on a failed link or a black hole.
    #[serde(default)]
    pub dropped_dead: u64,
    /// Dropped packets for which the receive buffer of a slow host had no room.
    #[serde(default)]
    pub dropped_host: u64,
    /// Data packets marked Congestion Experienced.
    #[serde(default)]
    pub marked: u64,
    /// Time at which a data packet was last trimmed or dropped, in microseconds; zero if none was.
    #[serde(default)]
    pub last_loss_us: f64,
    /// Number of PFC pause frames that stopped a sender.
    #[serde(default)]
    pub pauses: u64,
    /// Mean number of switches that a packet passed, by telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<f64>,
    /// Mean length of the queue that a packet left behind at a switch, in bytes, by telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_queue: Option<f64>,
    /// Longest queue that a packet left behind at a switch, in bytes, by telemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_longest: Option<f64>,
}

/// Kind of a series, which also gives the unit of its values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesKind {
    /// Length of a queue, bytes.
    Queue,
    /// Congestion window, bytes.
    Window,
    /// Throughput of a flow, Gb/s.
    Throughput,
    /// Load of a link, Gb/s.
    Load,
    /// Jain's fairness index of the rates of the flows that share a bottleneck, from one sample to
    /// the next.
    Jain,
    /// Rate that congestion control allows a flow, Gb/s.
    Rate,
}

/// A value of the simulation or of a job over time: its samples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Kind and unit of the sampled values.
    pub kind: SeriesKind,
    /// Name of the queue, link or flow.
    pub name: String,
    /// Samples, by rising time: (time in microseconds, value in the unit of the kind).
    pub points: Vec<(f64, f64)>,
}

/// An event of the network, such as a failure.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Event {
    /// Time of the event, microseconds after the start of the run.
    pub at_us: f64,
    /// Description of the event, in the words of `squall emulate`: `fail-link leaf0-spine1`.
    pub what: String,
}

/// Load of one direction of a link.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LinkLoad {
    /// Name of the direction, with both ends.
    pub name: String,
    /// Tier of the switch at the end nearer to the core; 0 for links of hosts and of leaf switches
    /// among themselves.
    pub tier: u8,
    /// True if the direction leads towards the core.
    pub up: bool,
    /// Rate of the link in Gb/s, before any failure; 0 if it was not recorded.
    #[serde(default)]
    pub gbps: f64,
    /// Bytes that were sent in this direction.
    pub bytes: u64,
    /// Packets dropped in the queue of the port that sends in this direction.
    #[serde(default)]
    pub dropped: u64,
    /// Packets trimmed at the queue of the port that sends in this direction.
    #[serde(default)]
    pub trimmed: u64,
}

impl Run {
    /// Returns the completion times of the flows that finished, in microseconds, rising.
    #[must_use]
    pub fn completion_times(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.flows.iter().filter_map(|flow| flow.fct_us).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Returns the number of flows that did not finish.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.flows.iter().filter(|flow| flow.fct_us.is_none()).count()
    }
}
