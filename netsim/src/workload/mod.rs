//! What the hosts of a network send each other: flows that start at a time or when other flows are
//! done, made by a generator ([`Spec`]), read from a message trace ([`trace`]), a schedule ([`goal`]) or a connection
//! matrix.
//!
//! A dependency is a [`Trigger`], as in htsim's connection matrices: flows name the trigger they
//! activate when they are sent or received, and the trigger starts the flows that wait for it. That is
//! enough for collectives: a step of a ring is a one-shot trigger a message, a node of a reduction
//! tree is a barrier of two; and what a rank did before a message of a recorded job ([`crate::replay`]) is a barrier of
//! all that, with the time it computed in between. What a program computes without a message before or behind it ([`goal`]) is a
//! trigger that triggers activate ([`TriggerDependency`]).
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
pub mod goal;
mod homes;
mod mix;
mod patterns;
mod poisson;
mod spec;
pub mod trace;

use core::ops::Range;

pub use mix::Mix;
pub use poisson::{Distribution, DistributionError};
pub use spec::{Algorithm, Apart, JobOptions, Layout, Pattern, Spec};

/// Picoseconds in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;

/// What a network has to carry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// Hosts it is written for; flows name hosts `0..hosts`.
    pub hosts: u32,
    /// Messages.
    pub flows: Vec<Flow>,
    /// What starts the flows that do not start by the clock.
    pub triggers: Vec<Trigger>,
    /// Triggers that activate others.
    pub dependencies: Vec<TriggerDependency>,
}

/// One message from one host to another.
///
/// It names no connection. That flows between the same two hosts share one is not a property of what is
/// to be carried but of the transport that carries it, and the same workload is run both ways: see
/// [`crate::sim::Contexts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Its name in results and connection matrices: not zero, unique in the workload.
    pub id: u32,
    /// Sending host.
    pub src: u32,
    /// Receiving host, another one.
    pub dst: u32,
    /// Length in bytes, not zero.
    pub bytes: u64,
    /// When it starts.
    pub start: Start,
    /// Index of the trigger it activates when it starts.
    pub on_started: Option<u32>,
    /// Index of the trigger it activates when its last byte was acknowledged at the sender.
    pub on_sent: Option<u32>,
    /// Index of the trigger it activates when its last byte arrived.
    pub on_received: Option<u32>,
    /// Which job it belongs to, from 0; results are summed up by job when there are several.
    pub job: u16,
    /// Its service level: what scope `service-level` of congestion control tells flows by. Nothing queues by it.
    pub level: u8,
}

/// When a flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this time, in picoseconds.
    At(u64),
    /// When the trigger of this index fires.
    Trigger(u32),
}

/// Starts flows when other flows are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// Its name in connection matrices, not zero.
    pub id: u32,
    /// When it starts which of its flows.
    pub kind: TriggerKind,
    /// How much later they start, picoseconds: the time that a program computes before it goes on.
    pub delay: u64,
    /// The number of a processor that is busy for that time: what it is to do meanwhile waits until it is free.
    pub processor: Option<u32>,
}

/// When trigger `from` starts its flows, it activates trigger `to`. Both are indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TriggerDependency {
    /// Trigger that activates the other.
    pub from: u32,
    /// Trigger that is activated.
    pub to: u32,
}

/// When a trigger starts which of its flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TriggerKind {
    /// Activated once, it starts all of them.
    OneShot,
    /// Every activation starts the next of them, in the order of the workload; further activations do nothing.
    MultiShot,
    /// Activated so many times, it starts all of them; of 0 at the beginning.
    Barrier(u32),
}

/// What is wrong with a workload, or with what was asked of a generator.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A host that is not there.
    #[error("flow {flow} names host {host}, but hosts are 0 to {last}")]
    NoSuchHost {
        /// Flow.
        flow: u32,
        /// Host it names.
        host: u32,
        /// Largest host number.
        last: u32,
    },
    /// A flow from a host to itself.
    #[error("flow {0} has one host for source and destination")]
    ToItself(u32),
    /// A flow without bytes.
    #[error("flow {0} has no bytes; a flow needs one at least")]
    Empty(u32),
    /// Two flows with one number, or zero for a number.
    #[error("flow number {0} is not allowed: numbers are unique and not zero")]
    BadId(u32),
    /// A trigger index out of range.
    #[error("flow {flow} names trigger index {trigger}, but there are {triggers}")]
    NoSuchTrigger {
        /// Flow.
        flow: u32,
        /// Index.
        trigger: u32,
        /// Number of triggers.
        triggers: usize,
    },
    /// A trigger index of a dependency out of range.
    #[error("a dependency names trigger index {trigger}, but there are {triggers}")]
    NoSuchLink {
        /// Index.
        trigger: u32,
        /// Number of triggers.
        triggers: usize,
    },
    /// Flows that nothing will ever start.
    #[error(
        "{count} flows can never start (the first is flow {first}): nothing activates their trigger \
         often enough"
    )]
    NeverStarts {
        /// How many.
        count: usize,
        /// The first of them.
        first: u32,
    },
    /// A generator's parameter out of range.
    #[error("{parameter} = {given} does not fit: {allowed}")]
    Parameter {
        /// Which.
        parameter: &'static str,
        /// What was given.
        given: String,
        /// What is allowed here.
        allowed: String,
    },
}

impl Workload {
    /// Sum of the bytes of all flows.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.bytes).fold(0, u64::saturating_add)
    }

    /// Number of jobs: one more than the largest job number, at least one.
    #[must_use]
    pub fn jobs(&self) -> u16 {
        self.flows.iter().map(|flow| flow.job).max().unwrap_or(0).saturating_add(1)
    }

    /// Whether it can be run at all: hosts and triggers exist, numbers are unique, and every flow
    /// starts once the flows before it are done.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let mut ids = std::collections::HashSet::with_capacity(self.flows.len());
        for flow in &self.flows {
            if flow.id == 0 || !ids.insert(flow.id) {
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

    /// Triggers that nothing activates and that fire at the beginning, by index.
    pub fn begins(&self) -> impl Iterator<Item = u32> {
        let first = |&(_, trigger): &(u32, &Trigger)| trigger.kind == TriggerKind::Barrier(0);
        (0u32..).zip(&self.triggers).filter(first).map(|(index, _)| index)
    }

    /// Of each trigger, the hosts from the first to the last of those that activate it, that it makes send, or that something
    /// at its hosts depends on without any time between; of one that concerns nobody, the first.
    #[must_use]
    pub fn homes(&self) -> Vec<Range<u32>> {
        homes::of(self)
    }

    /// Runs the triggers as if every flow finished at once, and sees who was never started.
    fn starts(&self) -> Result<(), WorkloadError> {
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.triggers.len()];
        let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); self.triggers.len()];
        let mut ready = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            match flow.start {
                Start::At(_) => ready.push(index),
                Start::Trigger(trigger) => waiting[trigger as usize].push(index),
            }
        }
        self.dependencies
            .iter()
            .for_each(|dependency| dependents[dependency.from as usize].push(dependency.to));
        let mut activations = vec![0u32; self.triggers.len()];
        let mut started = vec![false; self.flows.len()];
        let mut activated = Vec::new();
        for trigger in self.begins() {
            ready.extend(&waiting[trigger as usize]);
            activated.extend(&dependents[trigger as usize]);
        }
        while !ready.is_empty() || !activated.is_empty() {
            while let Some(index) = ready.pop() {
                started[index] = true;
                let flow = &self.flows[index];
                let triggers = [flow.on_started, flow.on_sent, flow.on_received];
                activated.extend(triggers.into_iter().flatten());
            }
            while let Some(trigger) = activated.pop() {
                let waiting = &waiting[trigger as usize];
                let before = activations[trigger as usize];
                activations[trigger as usize] = before.saturating_add(1);
                let (flows, fires) = match self.triggers[trigger as usize].kind {
                    TriggerKind::OneShot => (&waiting[..], before == 0),
                    TriggerKind::Barrier(count) => {
                        (&waiting[..], before.saturating_add(1) == count)
                    }
                    TriggerKind::MultiShot => {
                        (waiting.get(before as usize..=before as usize).unwrap_or(&[]), true)
                    }
                };
                if fires {
                    ready.extend(flows);
                    activated.extend(&dependents[trigger as usize]);
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
