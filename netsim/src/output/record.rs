//! What is kept of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Provenance;

/// One run: one workload over one network with one transport and one seed.
///
/// In JSON the flows and totals have the names of these fields; what is empty is left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// What it is called, for legends and tables; made from the parameters that differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Parameters that tell it from its neighbours (`cc`, `oversubscription`, ..), as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Decides everything random in it.
    #[serde(default)]
    pub seed: u64,
    /// Every flow.
    pub flows: Vec<FlowResult>,
    /// Sums over the run.
    pub totals: Totals,
    /// The network, and what is not in the totals.
    #[serde(default)]
    pub network: NetworkFacts,
    /// Counters of switch features over the whole network, by name: `deflection.packets`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, u64>,
    /// What was recorded over time, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// What each link carried, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkLoad>,
    /// Payload bytes that had arrived of each job when the first of several was done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_bytes: Vec<u64>,
    /// When the last operation of a schedule ended, what ranks compute among them, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makespan_us: Option<f64>,
    /// What happened to the network, by rising time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Of operations instead of flows, where those are what is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
    /// Why it ended before its time; such a run holds what was done until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// What became of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowResult {
    /// Its number in the workload.
    pub id: u32,
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Length.
    pub bytes: u64,
    /// When it started, in microseconds; `None` if it never did.
    pub start_us: Option<f64>,
    /// From the start to the last acknowledgement at the sender, in microseconds; `None` if it did
    /// not finish.
    pub fct_us: Option<f64>,
    /// From the start until all of it had arrived, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_us: Option<f64>,
    /// Packets that it was cut into; 0 where nobody counted.
    #[serde(default)]
    pub packets: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Packets that arrived marked Congestion Experienced.
    #[serde(default)]
    pub marked: u64,
    /// Longest that one of its packets was on its way, in microseconds, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_us: Option<f64>,
    /// Counters of switch features for this flow, by name: `deflection.links`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, u64>,
    /// What its completion takes without any other flow, in microseconds: the round trip of its hosts without queues, and
    /// its bytes with headers at line rate; `None` if there is no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone_us: Option<f64>,
    /// Why it did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub job: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(job: &u16) -> bool {
    *job == 0
}

/// Sums over a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that a switch trimmed.
    pub trimmed: u64,
    /// NACKs that arrived.
    pub nacks: u64,
    /// ACKs that arrived.
    pub acks: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Seconds it took.
    pub wall_s: f64,
    /// Most memory the simulator held.
    pub peak_bytes: u64,
}

/// Reads and writes of a multicast group, in a network that counts flits. Times are cycles.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Operations {
    /// How many were answered.
    pub count: u64,
    /// Flits that each member got, or would have got were answers not reduced in the network.
    pub effective_flits: u64,
    /// From the first start to the last answer.
    pub cycles: u64,
    /// From the departure of an operation to its answer, in the mean.
    pub mean_latency: f64,
    /// .. and the longest.
    pub max_latency: f64,
}

/// The network of a run, and the sums that are its own.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// Hosts.
    #[serde(default)]
    pub hosts: u32,
    /// Line rate of a host.
    #[serde(default)]
    pub line_gbps: f64,
    /// Longest round trip without queues, in microseconds.
    #[serde(default)]
    pub base_rtt_us: f64,
    /// No transport can be done sooner: the busiest host, rack or core link at line rate, and one
    /// way across; in microseconds after the first start.
    #[serde(default)]
    pub ideal_us: f64,
    /// Packets that a full queue, a dead link or a bit error took.
    #[serde(default)]
    pub dropped: u64,
    /// Those of them that a link took which was down, or a black hole.
    #[serde(default)]
    pub dropped_dead: u64,
    /// Those of them that the receive buffer of a slow host had no room for.
    #[serde(default)]
    pub dropped_host: u64,
    /// Data packets marked Congestion Experienced.
    #[serde(default)]
    pub marked: u64,
    /// When a data packet was last trimmed or dropped, in microseconds; zero if none was.
    #[serde(default)]
    pub last_loss_us: f64,
    /// PFC pause frames.
    #[serde(default)]
    pub pauses: u64,
    /// With telemetry: switches that a packet passed, in the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<f64>,
    /// With telemetry: bytes of the queue that a packet left behind at a switch, in the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_queue: Option<f64>,
    /// With telemetry: .. and the longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_longest: Option<f64>,
}

/// What a series shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeriesKind {
    /// Bytes in a queue.
    Queue,
    /// Bytes of a congestion window.
    Window,
    /// Gb/s of a flow.
    Throughput,
    /// Gb/s on a link.
    Load,
    /// Jain's fairness index of the rates, from one sample to the next, of the flows that share a bottleneck.
    Jain,
    /// Gb/s that congestion control allows a flow.
    Rate,
}

/// Something over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// What it shows.
    pub kind: SeriesKind,
    /// Of which queue or flow.
    pub name: String,
    /// (Time in microseconds, value in the kind's unit), by rising time.
    pub points: Vec<(f64, f64)>,
}

/// Something that happened to the network.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Event {
    /// When, microseconds.
    pub at_us: f64,
    /// What, as `squall emulate` calls it: `fail-link leaf0-spine1`.
    pub what: String,
}

/// What one direction of a link carried.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LinkLoad {
    /// From and to.
    pub name: String,
    /// Tier of the end nearer to the core plus one, 0 for links of hosts.
    pub tier: u8,
    /// Towards the core.
    pub up: bool,
    /// What it carried.
    pub bytes: u64,
    /// Packets dropped before it.
    #[serde(default)]
    pub dropped: u64,
    /// Packets trimmed before it.
    #[serde(default)]
    pub trimmed: u64,
}

impl Run {
    /// Completion times of the flows that finished, in microseconds, rising.
    #[must_use]
    pub fn completion_times(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.flows.iter().filter_map(|flow| flow.fct_us).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Flows that did not finish.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.flows.iter().filter(|flow| flow.fct_us.is_none()).count()
    }
}
