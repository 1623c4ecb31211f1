//! Flows and triggers while they run.

use core::ops::Range;
use std::sync::Arc;

use super::packet::Body;
use super::results::{FlowResult, UnfinishedReason};
use crate::Picos;
use crate::model::{FeatureCounters, NetworkFeature, PacketOptions, ReceivedPacket};
use crate::workload::{Flow, IndexLists, Start, Trigger, TriggerKind, Workload};
use squall_base::Psn;
use squall_reliability::Label;

/// A flow while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningFlow {
    pub(super) label: Label,
    pub(super) src: u32,
    pub(super) dst: u32,
    /// Total payload bytes of the flow.
    pub(super) bytes: u64,
    /// Payload bytes of the flow that were not sent yet.
    pub(super) unsent: u64,
    pub(super) acked: u64,
    pub(super) received: u64,
    pub(super) packets: u64,
    pub(super) retransmitted: u64,
    /// Packets of the flow that arrived marked Congestion Experienced.
    pub(super) marked: u64,
    /// Longest time that a packet of the flow was in flight, if it is recorded.
    pub(super) slowest: Picos,
    pub(super) start: Picos,
    pub(super) done: Picos,
    pub(super) arrived: Picos,
    /// Place of the flow's context in the host's list of contexts.
    pub(super) context: u32,
    pub(super) failed: bool,
    /// Number of the flow's first packet, if that packet lists the senders of an incast.
    pub(super) first: Option<Psn>,
}

/// The flows and triggers of a workload, with the flows and triggers that each trigger starts. All
/// parts of a simulation share it.
#[derive(Debug)]
pub(super) struct FlowGraph {
    workload: Arc<Workload>,
    /// Flows that each trigger starts.
    waiting: IndexLists,
    /// Triggers that each trigger activates.
    dependents: IndexLists,
    /// Number of processors that compute.
    processors: usize,
}

impl FlowGraph {
    pub(super) fn new(workload: Arc<Workload>) -> Self {
        let count = workload.triggers.len();
        let waiting = IndexLists::new(count, || {
            (0u32..).zip(&workload.flows).filter_map(|(index, flow)| match flow.start {
                Start::Trigger(trigger) => Some((trigger, index)),
                Start::At(_) => None,
            })
        });
        // Triggers that fire together act in their order.
        let dependents = IndexLists::new(count, || {
            workload.dependencies.iter().map(|dependency| (dependency.from, dependency.to))
        });
        let processors = workload.triggers.iter().filter_map(|trigger| trigger.processor);
        let processors = processors.max().map_or(0, |last| last as usize + 1);
        Self { waiting, dependents: dependents.sorted(), processors, workload }
    }

    pub(super) fn flows(&self) -> &[Flow] {
        &self.workload.flows
    }
}

/// A trigger that fired, with the flows and triggers that it starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct FiredTrigger<'a> {
    /// Time at which the flows and triggers start that the fired trigger starts.
    pub(super) at: Picos,
    pub(super) flows: &'a [u32],
    /// Indices of the triggers that the fired trigger activates.
    pub(super) triggers: &'a [u32],
}

/// All flows and triggers of a simulation.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) running: Vec<RunningFlow>,
    pub(super) graph: Arc<FlowGraph>,
    /// Number of activations of each trigger.
    activations: Vec<u32>,
    /// Time from which each processor is free to run another computation.
    processors: Vec<Picos>,
    pub(super) finished: usize,
    contest: Contest,
    /// Features that count packets of each flow, and the ranges of their counters.
    features: Vec<(Arc<dyn NetworkFeature>, Range<usize>)>,
    /// Counters of each flow; empty if no feature counts flows.
    counted: Vec<CountedFlow>,
}

/// Counters that switch features keep for one flow.
#[derive(Clone, Copy, Debug, Default)]
struct CountedFlow {
    counters: FeatureCounters,
    /// Newest packet of the flow that arrived, in the order of sending.
    newest: Option<Psn>,
}

/// Bytes that each job had received when the first job was done. Shares at a later time have no
/// meaning, because the remaining jobs then have the whole network.
#[derive(Debug)]
struct Contest {
    /// Number of unfinished flows of each job; empty if there is only one job.
    left: Vec<u32>,
    /// Bytes of each job that had arrived when the first job was done; empty before.
    bytes: Vec<u64>,
}

impl Contest {
    fn new(flows: &[Flow]) -> Self {
        let last = flows.iter().map(|flow| flow.job).max().unwrap_or(0);
        let mut left = vec![0; if last > 0 { usize::from(last) + 1 } else { 0 }];
        for flow in flows {
            if let Some(left) = left.get_mut(usize::from(flow.job)) {
                *left += 1;
            }
        }
        Self { left, bytes: Vec::new() }
    }

    /// Counts a finished flow of `job`, and returns whether `job` is the first job to be done.
    fn is_won(&mut self, job: u16) -> bool {
        let Some(left) = self.left.get_mut(usize::from(job)) else { return false };
        *left -= 1;
        *left == 0 && self.bytes.is_empty()
    }
}

impl Flows {
    /// Creates the flows of a graph; `features` count the packets of each flow.
    pub(super) fn new(graph: &Arc<FlowGraph>, features: &[Arc<dyn NetworkFeature>]) -> Self {
        let mut from = 0;
        let features = features.iter().map(|feature| {
            let place = from..from + feature.flow_counters().len();
            from = place.end;
            (Arc::clone(feature), place)
        });
        let features: Vec<_> = features.filter(|(_, place)| !place.is_empty()).collect();
        let counted = if features.is_empty() { 0 } else { graph.flows().len() };
        let running = graph.flows().iter().map(|flow| RunningFlow {
            label: Label { level: flow.level, group: flow.job },
            src: flow.src,
            dst: flow.dst,
            bytes: flow.bytes,
            unsent: flow.bytes,
            acked: 0,
            received: 0,
            packets: 0,
            retransmitted: 0,
            marked: 0,
            slowest: Picos::ZERO,
            start: Picos::NEVER,
            done: Picos::NEVER,
            arrived: Picos::NEVER,
            context: u32::MAX,
            failed: false,
            first: None,
        });
        Self {
            activations: vec![0; graph.workload.triggers.len()],
            processors: vec![Picos::ZERO; graph.processors],
            running: running.collect(),
            graph: Arc::clone(graph),
            finished: 0,
            contest: Contest::new(graph.flows()),
            features,
            counted: vec![CountedFlow::default(); counted],
        }
    }

    /// Counts a packet with this body that arrived marked Congestion Experienced.
    #[cold]
    pub(super) fn marked(&mut self, body: &Body) {
        if let Some(flow) = body.flow() {
            self.running[flow as usize].marked += 1;
        }
    }

    /// Records how long a packet with this body was in flight that was sent at `sent`.
    #[cold]
    pub(super) fn record_flight_time(&mut self, body: &Body, sent: Option<Picos>, now: Picos) {
        if let (Some(flow), Some(sent)) = (body.flow(), sent) {
            let slowest = &mut self.running[flow as usize].slowest;
            *slowest = now.since(sent).max(*slowest);
        }
    }

    /// Lets switch features count a data packet that arrived with `bytes` bytes on the wire and
    /// these options.
    pub(super) fn count_features(&mut self, body: &Body, bytes: u32, options: &PacketOptions) {
        let &Body::Data { ref pds, flow, .. } = body else { return };
        let Some(counted) = self.counted.get_mut(flow as usize) else { return };
        let overtaken = counted.newest.is_some_and(|newest| pds.psn.is_before(newest));
        if !overtaken {
            counted.newest = Some(pds.psn);
        }
        let message_bytes = self.running[flow as usize].bytes;
        // A retransmission naturally arrives after packets that were sent later, so it never counts
        // as late.
        let late = overtaken && !pds.retx;
        let packet = ReceivedPacket { bytes, message_bytes, late, options };
        for (feature, place) in &self.features {
            if let Some(counters) = counted.counters.get_mut(place.clone()) {
                feature.on_receive(&packet, counters);
            }
        }
    }

    /// Activates a trigger. Returns the flows and triggers that it starts if it fires.
    pub(super) fn activate(&mut self, trigger: u32, now: Picos) -> Option<FiredTrigger<'_>> {
        let kind = self.graph.workload.triggers.get(trigger as usize)?.kind;
        let activations = &mut self.activations[trigger as usize];
        *activations = activations.saturating_add(1);
        let activations = *activations;
        let all = self.graph.waiting.range(trigger);
        let flows = match kind {
            TriggerKind::OneShot if activations == 1 => all,
            TriggerKind::Barrier(count) if activations == count => all,
            TriggerKind::MultiShot => {
                let next = all.start.saturating_add(activations - 1);
                next.min(all.end)..next.saturating_add(1).min(all.end)
            }
            _ => return None,
        };
        Some(self.fire(trigger, flows, now))
    }

    /// Fires a trigger at the beginning of the simulation. Returns the flows and triggers that it
    /// starts.
    pub(super) fn begin(&mut self, trigger: u32) -> FiredTrigger<'_> {
        let flows = self.graph.waiting.range(trigger);
        self.fire(trigger, flows, Picos::ZERO)
    }

    fn fire(&mut self, trigger: u32, flows: Range<u32>, now: Picos) -> FiredTrigger<'_> {
        let Trigger { delay, processor, .. } = self.graph.workload.triggers[trigger as usize];
        let delay = Picos(delay);
        let mut at = now + delay;
        if let Some(processor) = processor {
            let free = &mut self.processors[processor as usize];
            at = now.max(*free) + delay;
            *free = at;
        }
        let FlowGraph { waiting, dependents, .. } = &*self.graph;
        FiredTrigger { at, flows: waiting.items(&flows), triggers: dependents.get(trigger) }
    }

    /// Counts a flow as finished: all its bytes arrived, or the transport gave it up.
    pub(super) fn finish(&mut self, flow: u32) {
        self.finished += 1;
        if self.contest.is_won(self.graph.flows()[flow as usize].job) {
            let mut bytes = vec![0; self.contest.left.len()];
            for (flow, spec) in self.running.iter().zip(self.graph.flows()) {
                bytes[usize::from(spec.job)] += flow.received;
            }
            self.contest.bytes = bytes;
        }
    }

    /// Returns the bytes of each job that had arrived when the first job was done; empty if none
    /// was, or there is only one.
    pub(super) fn job_bytes(&self) -> &[u64] {
        &self.contest.bytes
    }

    /// Returns the result of flow `index`. `there` is the state in the part of its receiver;
    /// `reachable` is true if there is a route to its destination.
    pub(super) fn result(&self, index: usize, there: &Self, reachable: bool) -> FlowResult {
        let (flow, spec, received) =
            (&self.running[index], &self.graph.flows()[index], &there.running[index]);
        let since = |time: Picos| (time != Picos::NEVER).then(|| time.since(flow.start));
        let unfinished = if flow.done != Picos::NEVER {
            None
        } else if flow.failed {
            Some(UnfinishedReason::Failed)
        } else if !reachable {
            Some(UnfinishedReason::Disconnected)
        } else if flow.start == Picos::NEVER {
            Some(UnfinishedReason::NotStarted)
        } else {
            Some(UnfinishedReason::Running)
        };
        FlowResult {
            id: spec.id,
            src: flow.src,
            dst: flow.dst,
            bytes: flow.bytes,
            job: spec.job,
            start: (flow.start != Picos::NEVER).then_some(flow.start),
            fct: since(flow.done),
            received: since(received.arrived),
            packets: flow.packets,
            retransmitted: flow.retransmitted,
            marked: received.marked,
            slowest: (received.slowest > Picos::ZERO).then_some(received.slowest),
            features: there.counted.get(index).map(|counted| counted.counters),
            unfinished,
        }
    }
}
