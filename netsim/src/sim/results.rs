//! What a simulation found.

use core::fmt;
use core::ops::ControlFlow;

use crate::Picos;
use crate::model::{FeatureCounters, TelemetryTotals};

/// Looks on while a simulation runs.
pub trait Observer {
    /// Called every 65536 events, about thirty times a second. Breaking ends the simulation, with what
    /// there is.
    fn progress(&mut self, now: Picos, finished: usize, events: u64) -> ControlFlow<()> {
        let (_, _, _) = (now, finished, events);
        ControlFlow::Continue(())
    }
}

/// Nobody looks.
impl Observer for () {}

/// How the simulation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All flows finished.
    Done,
    /// [`super::SimConfig::until`] came first.
    TimeUp,
    /// Nothing could happen any more: the flows left cannot finish.
    Stuck,
    /// The [`Observer`] said stop.
    Interrupted,
}

/// Reason why a flow did not finish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnfinishedReason {
    /// It was waiting for a trigger that did not fire.
    NotStarted,
    /// It was still going on.
    Running,
    /// There was no route to its destination when the simulation ended.
    Disconnected,
    /// Its transport gave up: the peer was not reachable, or made no progress.
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

/// One flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowResult {
    /// Its number in the workload.
    pub id: u32,
    /// The sending host.
    pub src: u32,
    /// The receiving host.
    pub dst: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Its job.
    pub job: u16,
    /// When it started.
    pub start: Option<Picos>,
    /// Flow completion time: from its start until the sender knew that everything arrived.
    pub fct: Option<Picos>,
    /// From its start until everything had arrived.
    pub received: Option<Picos>,
    /// Packets it was cut into.
    pub packets: u64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Packets that arrived marked.
    pub marked: u64,
    /// Longest that one of its packets was on its way, if that was asked for.
    pub slowest: Option<Picos>,
    /// Counters of switch features, named by [`Results::flow_counter_names`]; `None` where none counts flows.
    pub features: Option<FeatureCounters>,
    /// Why there is no [`FlowResult::fct`].
    pub unfinished: Option<UnfinishedReason>,
}

/// Sums over all hosts and ports.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that hosts received, not trimmed, duplicates included.
    pub delivered: u64,
    /// Data packets trimmed by switches.
    pub trimmed: u64,
    /// Data packets marked Congestion Experienced; each port that marks counts.
    pub marked: u64,
    /// Data packets dropped by full queues and receive buffers, or lost on links; trimmed ones too.
    pub dropped: u64,
    /// Those of them that the receive buffer of a slow host had no room for.
    pub dropped_host: u64,
    /// Those of them that a link took which was down, or a black hole.
    pub dropped_dead: u64,
    /// When a data packet was last trimmed or dropped; zero if none was.
    pub last_loss: Picos,
    /// Data packets, trimmed ones too, that were neither received nor lost when the simulation ended.
    pub under_way: u64,
    /// Control packets dropped or lost.
    pub control_dropped: u64,
    /// Negative acknowledgements sent.
    pub nacks: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Events simulated.
    pub events: u64,
    /// Pause frames sent.
    pub pauses: u64,
    /// What packets had in them of in-band telemetry.
    pub seen: TelemetryTotals,
    /// Counters of switch features, named by [`Results::counter_names`].
    pub features: FeatureCounters,
    /// What switches read in packets and ignored, because it made no sense: 1RC's stale epochs.
    pub ignored: u64,
    /// Simulated time at the end.
    pub end: Picos,
    /// What it took, seconds.
    pub wall_s: f64,
    /// Largest memory of the process so far, bytes; zero where the system does not say.
    pub peak_bytes: u64,
}

/// What one port did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortLoad {
    /// Number, see [`crate::topology::Topology`].
    pub port: u32,
    /// `tor0->agg1`
    pub name: String,
    /// Tier of the sending switch; `None` for a host.
    pub tier: Option<u8>,
    /// Whether it leads away from the hosts.
    pub up: bool,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets trimmed.
    pub trimmed: u64,
    /// Packets dropped, or lost on the link behind.
    pub dropped: u64,
    /// Most data bytes that waited.
    pub max_queue: u64,
}

/// Data bytes in the queue of a port over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSeries {
    /// Number.
    pub port: u32,
    /// Name.
    pub name: String,
    /// One value a sample.
    pub bytes: Vec<u64>,
}

/// A flow over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowSeries {
    /// Its number in the workload.
    pub flow: u32,
    /// Congestion window, bytes, one value a sample; zero when there is none.
    pub cwnd: Vec<u64>,
    /// Bytes in flight.
    pub in_flight: Vec<u64>,
    /// Rate that congestion control allows, bits a second; zero when it says none.
    pub rate: Vec<u64>,
    /// Payload bytes that arrived so far.
    pub delivered: Vec<u64>,
}

/// Samples over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// When queues were sampled.
    pub queue_times: Vec<Picos>,
    /// Switch ports that ever had a queue.
    pub queues: Vec<PortSeries>,
    /// When windows were sampled.
    pub window_times: Vec<Picos>,
    /// All flows that ran.
    pub windows: Vec<WindowSeries>,
}

/// Everything a simulation found. A function of its configuration, workload and seed, but for
/// [`Totals::wall_s`] and [`Totals::peak_bytes`].
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// How it ended.
    pub end: End,
    /// All flows, in the order of the workload.
    pub flows: Vec<FlowResult>,
    /// Sums.
    pub totals: Totals,
    /// All ports, if asked for.
    pub ports: Vec<PortLoad>,
    /// Samples, those that were asked for.
    pub series: Series,
    /// Payload bytes that had arrived of each job when the first of several was done; empty if none was.
    pub job_bytes: Vec<u64>,
    /// Names of [`Totals::features`].
    pub counter_names: Vec<String>,
    /// Names of [`FlowResult::features`].
    pub flow_counter_names: Vec<String>,
    /// When the last operation of a schedule ended, what ranks compute among them; `None` where nothing is said of that, or it did not
    /// come to its end.
    pub makespan: Option<Picos>,
}
