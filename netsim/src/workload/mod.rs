//! Workloads: the messages that the hosts of a network send each other, as flows that start at a
//! time or when other flows are done. A workload is made by a generator ([`Spec`]), or read from a
//! message trace ([`trace`]), a schedule ([`goal`]), traces of an AI job ([`chakra`]) or a connection
//! matrix.
//!
//! A dependency is a [`Trigger`], as in htsim's connection matrices: flows name the trigger they
//! activate when they are sent or received, and the trigger starts the flows that wait for it. That
//! is enough for collectives: a step of a ring is a one-shot trigger for each message, a node of a
//! reduction tree is a barrier of two. In a recorded job ([`crate::replay`]), everything that a
//! rank did before a message is a barrier, with the time it computed in between as the delay. A
//! computation without a message before or after it ([`goal`]) is a trigger that other triggers
//! activate ([`TriggerDependency`]).
//!
//! ```
//! use squall_netsim::Bytes;
//! use squall_netsim::workload::{Layout, Pattern, Spec};
//!
//! let spec = Spec::new(Pattern::Incast { senders: 8, bytes: Bytes(2 << 20), larger: None });
//! let workload = spec.generate(&Layout::flat(128), 1)?;
//! assert_eq!(workload.flows.len(), 8);
//! workload.check()?;
//! # Ok::<(), squall_netsim::workload::WorkloadError>(())
//! ```

mod allreduce;
mod attacks;
mod builder;
pub mod chakra;
mod collectives;
pub mod goal;
mod homes;
mod lists;
mod mix;
mod patterns;
mod poisson;
mod schedule;
mod spec;
pub mod trace;

use core::ops::Range;

pub(crate) use lists::IndexLists;

pub use collectives::{CollectiveAlgorithm, CollectiveAlgorithms, CollectiveKind};
pub use mix::Mix;
pub use poisson::{Distribution, DistributionError};
pub use schedule::{JobTimes, MessageTimes, Placement, RankTimes, Schedule, ScheduledJob};
pub use spec::{Algorithm, Apart, JobOptions, Layout, Pattern, Spec};

/// Number of picoseconds in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;

/// A workload: the messages that a network has to carry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// Number of hosts that the workload is written for; flows name hosts `0..hosts`.
    pub hosts: u32,
    /// Messages that the hosts send each other.
    pub flows: Vec<Flow>,
    /// Triggers, which start the flows that do not start by the clock.
    pub triggers: Vec<Trigger>,
    /// Dependencies of triggers that other triggers activate.
    pub dependencies: Vec<TriggerDependency>,
}

/// One message from one host to another.
///
/// A flow names no connection. Whether flows between the same two hosts share a connection is not a
/// property of the workload but of the transport, and the same workload can be run both ways: see
/// [`crate::sim::Contexts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Number of the flow in results and connection matrices: not zero, unique in the workload.
    pub id: u32,
    /// Number of the sending host.
    pub src: u32,
    /// Number of the receiving host, different from the sending one.
    pub dst: u32,
    /// Length of the message in bytes, not zero.
    pub bytes: u64,
    /// Condition on which the flow starts.
    pub start: Start,
    /// Index of the trigger that the flow activates when it starts.
    pub on_started: Option<u32>,
    /// Index of the trigger that the flow activates when its last byte was acknowledged at the
    /// sender.
    pub on_sent: Option<u32>,
    /// Index of the trigger that the flow activates when its last byte arrived.
    pub on_received: Option<u32>,
    /// Number of its job, from 0; results are summed up by job when there are several.
    pub job: u16,
    /// Service level, by which scope `service-level` of congestion control distinguishes flows.
    /// Queues do not depend on it.
    pub level: u8,
}

/// Condition on which a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The flow starts at this time, in picoseconds.
    At(u64),
    /// The flow starts when the trigger of this index fires.
    Trigger(u32),
}

/// A trigger, which starts flows when other flows are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Number of the trigger in connection matrices, not zero.
    pub id: u32,
    /// Condition on which the trigger fires, and the flows it then starts.
    pub kind: TriggerKind,
    /// Delay after which the flows start, picoseconds: the time that a program computes before it
    /// continues.
    pub delay: u64,
    /// Number of a processor that is busy for that time. A further computation of the processor
    /// waits until it is free.
    pub processor: Option<u32>,
}

/// A dependency between triggers: when trigger `from` starts its flows, it activates trigger `to`.
/// Both are indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TriggerDependency {
    /// Index of the trigger that activates the other.
    pub from: u32,
    /// Index of the trigger that is activated.
    pub to: u32,
}

/// Condition on which a trigger fires, and the flows it then starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// The first activation starts all flows.
    OneShot,
    /// Every activation starts the next flow, in the order of the workload; further activations do
    /// nothing.
    MultiShot,
    /// The activation of this number starts all flows; with 0, the trigger fires at the beginning.
    Barrier(u32),
}

/// Error in a workload, or in the parameters of a generator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A flow names a host that does not exist.
    #[error("flow {flow} names host {host}, but hosts are 0 to {last}")]
    NoSuchHost {
        /// Number of the flow in the workload.
        flow: u32,
        /// Host that the flow names and that does not exist.
        host: u32,
        /// Largest number of a host in the network.
        last: u32,
    },
    /// A flow goes from a host to itself.
    #[error("flow {0} has one host for source and destination")]
    ToItself(u32),
    /// A flow has no bytes.
    #[error("flow {0} has no bytes; a flow needs one at least")]
    Empty(u32),
    /// Two flows have the same number, or a flow has number zero.
    #[error("flow number {0} is not allowed: numbers are unique and not zero")]
    BadId(u32),
    /// A flow names a trigger index that is out of range.
    #[error("flow {flow} names trigger index {trigger}, but there are {triggers}")]
    NoSuchTrigger {
        /// Number of the flow in the workload.
        flow: u32,
        /// Index of a trigger that the flow names and that does not exist.
        trigger: u32,
        /// Number of triggers in the workload.
        triggers: usize,
    },
    /// A dependency names a trigger index that is out of range.
    #[error("a dependency names trigger index {trigger}, but there are {triggers}")]
    NoSuchLink {
        /// Index of a trigger that the dependency names and that does not exist.
        trigger: u32,
        /// Number of triggers in the workload.
        triggers: usize,
    },
    /// The workload has flows that will never start.
    #[error(
        "{count} flows can never start (the first is flow {first}): nothing activates their trigger \
         often enough"
    )]
    NeverStarts {
        /// Number of the flows that can never start.
        count: usize,
        /// Number of the first flow that can never start.
        first: u32,
    },
    /// A parameter of a generator is out of range.
    #[error("{parameter} = {given} does not fit: {allowed}")]
    Parameter {
        /// Name of the generator's parameter.
        parameter: &'static str,
        /// Value of the parameter that was given.
        given: String,
        /// Values of the parameter that are allowed.
        allowed: String,
    },
}

impl Workload {
    /// Returns the sum of the bytes of all flows.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the number of jobs: one more than the largest job number, at least one.
    #[must_use]
    pub fn jobs(&self) -> u16 {
        self.flows.iter().map(|flow| flow.job).max().unwrap_or(0).saturating_add(1)
    }

    /// Checks that the workload can run: hosts and triggers exist, numbers are unique, and every
    /// flow starts once the flows before it are done.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), WorkloadError> {
        // Most workloads number their flows in order, so that no set is needed.
        let mut last = 0;
        let rises = self.flows.iter().all(|flow| flow.id > std::mem::replace(&mut last, flow.id));
        let mut ids = std::collections::HashSet::new();
        for flow in &self.flows {
            if flow.id == 0 || !rises && !ids.insert(flow.id) {
                return Err(WorkloadError::BadId(flow.id));
            }
            for host in [flow.src, flow.dst] {
                if host >= self.hosts {
                    let last = self.hosts.saturating_sub(1);
                    return Err(WorkloadError::NoSuchHost { flow: flow.id, host, last });
                }
            }
            if flow.src == flow.dst {
                return Err(WorkloadError::ToItself(flow.id));
            }
            if flow.bytes == 0 {
                return Err(WorkloadError::Empty(flow.id));
            }
            let waits = match flow.start {
                Start::Trigger(trigger) => Some(trigger),
                Start::At(_) => None,
            };
            let activated = [flow.on_started, flow.on_sent, flow.on_received];
            for trigger in activated.into_iter().chain([waits]).flatten() {
                if trigger as usize >= self.triggers.len() {
                    let triggers = self.triggers.len();
                    return Err(WorkloadError::NoSuchTrigger { flow: flow.id, trigger, triggers });
                }
            }
        }
        for trigger in
            self.dependencies.iter().flat_map(|dependency| [dependency.from, dependency.to])
        {
            if trigger as usize >= self.triggers.len() {
                let triggers = self.triggers.len();
                return Err(WorkloadError::NoSuchLink { trigger, triggers });
            }
        }
        self.starts()
    }

    /// Returns the indices of the triggers that fire at the beginning: barriers of 0.
    pub fn begins(&self) -> impl Iterator<Item = u32> {
        let first = |&(_, trigger): &(u32, &Trigger)| trigger.kind == TriggerKind::Barrier(0);
        (0u32..).zip(&self.triggers).filter(first).map(|(index, _)| index)
    }

    /// Returns the range of hosts of each trigger: from the first to the last host that activates
    /// it, that it makes send, or that depends on it with no time in between. The range of a
    /// trigger without hosts is that of host 0.
    #[must_use]
    pub fn homes(&self) -> Vec<Range<u32>> {
        homes::of(self)
    }

    /// Runs the triggers as if every flow finished at once, and checks that every flow was started.
    fn starts(&self) -> Result<(), WorkloadError> {
        let count = self.triggers.len();
        let waiting = IndexLists::new(count, || {
            (0..).zip(&self.flows).filter_map(|(index, flow)| match flow.start {
                Start::Trigger(trigger) => Some((trigger, index)),
                Start::At(_) => None,
            })
        });
        let dependents = IndexLists::new(count, || {
            self.dependencies.iter().map(|dependency| (dependency.from, dependency.to))
        });
        let by_clock = |flow: &Flow| matches!(flow.start, Start::At(_));
        let mut ready: Vec<u32> =
            (0..).zip(&self.flows).filter(|(_, flow)| by_clock(flow)).map(|(at, _)| at).collect();
        let mut activations = vec![0u32; self.triggers.len()];
        let mut started = vec![false; self.flows.len()];
        let mut activated = Vec::new();
        for trigger in self.begins() {
            ready.extend(waiting.get(trigger));
            activated.extend(dependents.get(trigger));
        }
        while !ready.is_empty() || !activated.is_empty() {
            while let Some(index) = ready.pop() {
                started[index as usize] = true;
                let flow = &self.flows[index as usize];
                let triggers = [flow.on_started, flow.on_sent, flow.on_received];
                activated.extend(triggers.into_iter().flatten());
            }
            while let Some(trigger) = activated.pop() {
                let waiting = waiting.get(trigger);
                let before = activations[trigger as usize];
                activations[trigger as usize] = before.saturating_add(1);
                let (flows, fires) = match self.triggers[trigger as usize].kind {
                    TriggerKind::OneShot => (waiting, before == 0),
                    TriggerKind::Barrier(count) => (waiting, before.saturating_add(1) == count),
                    TriggerKind::MultiShot => {
                        (waiting.get(before as usize..=before as usize).unwrap_or(&[]), true)
                    }
                };
                if fires {
                    ready.extend(flows);
                    activated.extend(dependents.get(trigger));
                }
            }
        }
        let count = started.iter().filter(|&&started| !started).count();
        match started.iter().position(|&started| !started) {
            None => Ok(()),
            Some(first) => Err(WorkloadError::NeverStarts { count, first: self.flows[first].id }),
        }
    }
}

#[cfg(test)]
mod tests;
