//! Flows and triggers while they run.

use core::ops::Range;
use std::sync::Arc;

use super::packet::Body;
use super::results::{FlowResult, UnfinishedReason};
use crate::Picos;
use crate::model::{FeatureCounters, NetworkFeature, PacketOptions, ReceivedPacket};
use crate::workload::{Flow, Start, TriggerKind, Workload};
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

#[derive(Clone, Debug)]
struct TriggerState {
    kind: TriggerKind,
    delay: Picos,
    processor: Option<u32>,
    activations: u32,
    /// Range in `Flows::waiting` of the flows that the trigger starts.
    flows: Range<u32>,
    /// Range in `Flows::dependents` of the triggers that this one activates.
    dependents: Range<u32>,
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
    pub(super) spec: Vec<Flow>,
    triggers: Vec<TriggerState>,
    /// Waiting flows, sorted by the trigger that starts them.
    waiting: Vec<u32>,
    /// Dependent triggers, sorted by the trigger that activates them.
    dependents: Vec<u32>,
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
    fn new(workload: &Workload) -> Self {
        let jobs = usize::from(workload.jobs());
        let mut left = vec![0; if jobs > 1 { jobs } else { 0 }];
        for flow in &workload.flows {
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

/// Returns the range in `pairs` of the pairs that begin with `trigger`. The list is sorted, and
/// shorter than 2^32.
fn of(pairs: &[(u32, u32)], trigger: u32) -> Range<u32> {
    let first = pairs.partition_point(|&(of, _)| of < trigger);
    first as u32..pairs.partition_point(|&(of, _)| of <= trigger) as u32
}

impl Flows {
    /// Creates the flows of a workload; `features` count the packets of each flow.
    pub(super) fn new(workload: &Workload, features: &[Arc<dyn NetworkFeature>]) -> Self {
        let mut from = 0;
        let features = features.iter().map(|feature| {
            let place = from..from + feature.flow_counters().len();
            from = place.end;
            (Arc::clone(feature), place)
        });
        let features: Vec<_> = features.filter(|(_, place)| !place.is_empty()).collect();
        let counted = if features.is_empty() { 0 } else { workload.flows.len() };
        let running = workload.flows.iter().map(|flow| RunningFlow {
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
        let mut waiting: Vec<(u32, u32)> = (0u32..)
            .zip(&workload.flows)
            .filter_map(|(index, flow)| match flow.start {
                Start::Trigger(trigger) => Some((trigger, index)),
                Start::At(_) => None,
            })
            .collect();
        waiting.sort_unstable();
        let mut dependents: Vec<(u32, u32)> = workload
            .dependencies
            .iter()
            .map(|dependency| (dependency.from, dependency.to))
            .collect();
        dependents.sort_unstable();
        let triggers = (0u32..).zip(&workload.triggers).map(|(index, trigger)| TriggerState {
            kind: trigger.kind,
            delay: Picos(trigger.delay),
            processor: trigger.processor,
            activations: 0,
            flows: of(&waiting, index),
            dependents: of(&dependents, index),
        });
        let processors = workload.triggers.iter().filter_map(|trigger| trigger.processor);
        let processors = processors.max().map_or(0, |last| last as usize + 1);
        Self {
            triggers: triggers.collect(),
            dependents: dependents.into_iter().map(|(_, to)| to).collect(),
            processors: vec![Picos::ZERO; processors],
            running: running.collect(),
            spec: workload.flows.clone(),
            waiting: waiting.into_iter().map(|(_, flow)| flow).collect(),
            finished: 0,
            contest: Contest::new(workload),
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
        let waiting = self.triggers.get_mut(trigger as usize)?;
        waiting.activations = waiting.activations.saturating_add(1);
        let activations = waiting.activations;
        let all = waiting.flows.clone();
        let flows = match waiting.kind {
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
        let flows = self.triggers[trigger as usize].flows.clone();
        self.fire(trigger, flows, Picos::ZERO)
    }

    fn fire(&mut self, trigger: u32, flows: Range<u32>, now: Picos) -> FiredTrigger<'_> {
        let TriggerState { delay, processor, ref dependents, .. } = self.triggers[trigger as usize];
        let mut at = now + delay;
        if let Some(processor) = processor {
            let free = &mut self.processors[processor as usize];
            at = now.max(*free) + delay;
            *free = at;
        }
        let of = |range: &Range<u32>| range.start as usize..range.end as usize;
        FiredTrigger {
            at,
            flows: &self.waiting[of(&flows)],
            triggers: &self.dependents[of(dependents)],
        }
    }

    /// Counts a flow as finished: all its bytes arrived, or the transport gave it up.
    pub(super) fn finish(&mut self, flow: u32) {
        self.finished += 1;
        if self.contest.is_won(self.spec[flow as usize].job) {
            let mut bytes = vec![0; self.contest.left.len()];
            for (flow, spec) in self.running.iter().zip(&self.spec) {
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
            (&self.running[index], &self.spec[index], &there.running[index]);
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
