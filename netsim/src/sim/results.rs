//! Results of a simulation.

use core::fmt;
use core::ops::ControlFlow;

use crate::Picos;
use crate::model::{FeatureCounters, TelemetryTotals};
use squall_base::Rate;

/// Receives progress reports while a simulation runs.
pub trait Observer {
    /// Receives the simulated time, the number of finished flows and the number of events. The
    /// simulator calls this every 65536 events, about thirty times a second. Breaking ends the
    /// simulation with the results so far.
    fn progress(&mut self, now: Picos, finished: usize, events: u64) -> ControlFlow<()> {
        let (_, _, _) = (now, finished, events);
        ControlFlow::Continue(())
    }
}

/// An observer that ignores all reports.
impl Observer for () {}

/// Reason why the simulation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All flows finished.
    Done,
    /// The simulation reached [`super::SimConfig::until`].
    TimeUp,
    /// No event was left, so that the remaining flows cannot finish.
    Stuck,
    /// The [`Observer`] stopped the simulation.
    Interrupted,
}

/// Reason why a flow did not finish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnfinishedReason {
    /// The flow was waiting for a trigger that did not fire.
    NotStarted,
    /// The flow was still running.
    Running,
    /// There was no route to its destination when the simulation ended.
    Disconnected,
    /// The transport gave up: the peer was not reachable, or made no progress.
    Failed,
}

impl fmt::Display for UnfinishedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "not started: what it waits for did not happen",
            Self::Running => "still running at the end",
            Self::Disconnected => "no route to its destination",
            Self::Failed => "given up by the transport",
        })
    }
}

/// Result of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowResult {
    /// Number of the flow in the workload.
    pub id: u32,
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// Payload bytes of the flow.
    pub bytes: u64,
    /// Number of the job that the flow belongs to.
    pub job: u16,
    /// Time at which the flow started; `None` if it did not.
    pub start: Option<Picos>,
    /// Flow completion time: from its start until the sender knew that everything arrived.
    pub fct: Option<Picos>,
    /// Time from the start until all bytes had arrived.
    pub received: Option<Picos>,
    /// Number of packets of the flow.
    pub packets: u64,
    /// Packets of the flow that were retransmitted.
    pub retransmitted: u64,
    /// Packets of the flow that arrived marked Congestion Experienced.
    pub marked: u64,
    /// Longest time that one of its packets was in flight, if [`super::Observe::packets`] is set.
    pub slowest: Option<Picos>,
    /// Counters of switch features, named by [`Results::flow_counter_names`]; `None` if no feature
    /// counts flows.
    pub features: Option<FeatureCounters>,
    /// Reason why there is no [`FlowResult::fct`].
    pub unfinished: Option<UnfinishedReason>,
}

/// Sums over all hosts and ports of a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Data packets that hosts sent for the first time.
    pub packets: u64,
    /// Data packets that were retransmitted.
    pub retransmitted: u64,
    /// Data packets that hosts received, not trimmed, duplicates included.
    pub delivered: u64,
    /// Data packets trimmed by switches.
    pub trimmed: u64,
    /// Data packets marked Congestion Experienced; each port that marks counts.
    pub marked: u64,
    /// Data packets, trimmed ones too, dropped by full queues and receive buffers or lost on links.
    pub dropped: u64,
    /// Dropped data packets for which the receive buffer of a slow host had no room.
    pub dropped_host: u64,
    /// Dropped data packets that were lost on a failed link or a black hole.
    pub dropped_dead: u64,
    /// Time at which a data packet was last trimmed or dropped; zero if none was.
    pub last_loss: Picos,
    /// Data packets, trimmed ones too, that were neither received nor lost when the simulation
    /// ended.
    pub under_way: u64,
    /// Packets without data that were dropped or lost.
    pub control_dropped: u64,
    /// Negative acknowledgements that hosts sent.
    pub nacks: u64,
    /// Acknowledgements that hosts sent.
    pub acks: u64,
    /// Number of events that the simulator processed.
    pub events: u64,
    /// PFC pause frames that switches sent to stop a sender.
    pub pauses: u64,
    /// Sums of the in-band telemetry in received packets.
    pub telemetry: TelemetryTotals,
    /// Counters of switch features, named by [`Results::counter_names`].
    pub features: FeatureCounters,
    /// Number of packet options that switches ignored because their content was invalid, such as
    /// stale epochs of 1RC.
    pub ignored: u64,
    /// Simulated time at which the simulation ended.
    pub end: Picos,
    /// Wall-clock time of the simulation, seconds.
    pub wall_s: f64,
    /// Largest memory of the process so far, bytes; zero where the system does not report it.
    pub peak_bytes: u64,
}

/// Counters of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortLoad {
    /// Number of the port, see [`crate::topology::Topology`].
    pub port: u32,
    /// Name of the port, such as `tor0->agg1`.
    pub name: String,
    /// Tier of the sending switch; `None` for a host.
    pub tier: Option<u8>,
    /// True if the port leads away from the hosts.
    pub up: bool,
    /// Rate of the port's link in the topology.
    pub rate: Rate,
    /// Bytes that the port sent.
    pub bytes: u64,
    /// Packets that the port sent.
    pub packets: u64,
    /// Packets that the port marked Congestion Experienced.
    pub marked: u64,
    /// Packets that the port trimmed.
    pub trimmed: u64,
    /// Packets that the port dropped, or that its link lost.
    pub dropped: u64,
    /// Largest length that the port's data queue had, in bytes.
    pub max_queue: u64,
}

/// Data bytes in the queue of a port over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSeries {
    /// Number of the port, see [`crate::topology::Topology`].
    pub port: u32,
    /// Name of the port.
    pub name: String,
    /// Data bytes in the queue, one value for each sample.
    pub bytes: Vec<u64>,
}

/// Window, rate and progress of a flow over time, as samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowSeries {
    /// Number of the flow in the workload.
    pub flow: u32,
    /// Congestion window in bytes, one value for each sample; zero when there is none.
    pub cwnd: Vec<u64>,
    /// Bytes of the flow in flight, one value for each sample.
    pub in_flight: Vec<u64>,
    /// Rate that congestion control allows the flow, bits per second, one value for each sample;
    /// zero when it sets none.
    pub rate: Vec<u64>,
    /// Payload bytes of the flow that had arrived, one value for each sample.
    pub delivered: Vec<u64>,
}

/// Samples of queues and flows over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// Times at which the lengths of queues were sampled.
    pub queue_times: Vec<Picos>,
    /// Lengths of queues over time, one series for each switch port that ever had a queue.
    pub queues: Vec<PortSeries>,
    /// Times at which the windows of flows were sampled.
    pub window_times: Vec<Picos>,
    /// Windows over time, one series for each flow that ran.
    pub windows: Vec<WindowSeries>,
}

/// All results of a simulation. They are a function of its configuration, workload and seed, except
/// for [`Totals::wall_s`] and [`Totals::peak_bytes`].
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// Reason why the simulation ended.
    pub end: End,
    /// All flows, in the order of the workload.
    pub flows: Vec<FlowResult>,
    /// Sums over all hosts and ports.
    pub totals: Totals,
    /// Loads of all ports, if [`super::Observe::ports`] is set.
    pub ports: Vec<PortLoad>,
    /// Samples over time, as far as the configuration asked for them.
    pub series: Series,
    /// Payload bytes of each job that had arrived when the first of several jobs was done; empty if
    /// none was.
    pub job_bytes: Vec<u64>,
    /// Names of the counters in [`Totals::features`].
    pub counter_names: Vec<String>,
    /// Names of the counters in [`FlowResult::features`].
    pub flow_counter_names: Vec<String>,
    /// Time at which the last operation of a schedule ended, including what ranks compute; `None`
    /// if the workload has no [`crate::workload::TriggerDependency`], or some flow did not finish.
    pub makespan: Option<Picos>,
}
