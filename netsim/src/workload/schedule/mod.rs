//! Schedules: the messages and computations of each rank of a job, and their dependencies. They are
//! read from GOAL files ([`goal`](super::goal)) and Chakra traces ([`chakra`](super::chakra)).
//!
//! A send has ended when its last byte was acknowledged, and a receive when it was posted and its
//! message has arrived. A processor of a rank runs one calculation at a time, in the order in which
//! they may begin.
//!
//! Messages and receives are matched in advance, as if the network took no time: by source and tag,
//! in the order in which messages are sent and receives posted. Of two events at one time, the one
//! after the shorter chain of messages comes first, as on a network where every message takes equally
//! long. So a schedule that ends over a network without delays ends over every network.

pub(super) mod matching;
mod times;

use std::collections::HashMap;

use squall_base::Rate;

use super::{Flow, Start, Trigger, TriggerDependency, TriggerKind, Workload};
use crate::Picos;
use crate::formats::FormatError;
use matching::Matched;

pub use times::{JobTimes, MessageTimes, RankTimes};

/// Number of picoseconds in a nanosecond.
const PS: u64 = 1000;
/// Maximum number of operations of a schedule; in memory, each takes some hundred bytes.
pub(super) const MOST_OPERATIONS: usize = 1 << 27;

/// Hosts of the ranks of a job, and the path of messages between ranks of one host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// Number of ranks of a host, which share its card: rank `r` is on host `r / ranks_per_host`.
    pub ranks_per_host: u32,
    /// Rate at which a rank copies messages for other ranks of its host.
    pub inner_rate: Rate,
    /// Latency of messages between ranks of one host.
    pub inner_latency: Picos,
}

impl Placement {
    /// Rate between accelerators of one host: NVLink 4 carries 450 GB/s in each direction.
    pub const INNER_RATE: Rate = Rate::gbps(3600);
    /// Latency of a message between accelerators of one host.
    pub const INNER_LATENCY: Picos = Picos::micros(1);

    /// Returns the host of a rank.
    #[must_use]
    pub fn host(&self, rank: u32) -> u32 {
        rank / self.ranks_per_host.max(1)
    }

    /// Returns the number of hosts that `ranks` ranks need.
    #[must_use]
    pub fn hosts(&self, ranks: u32) -> u32 {
        ranks.div_ceil(self.ranks_per_host.max(1))
    }

    /// Returns whether messages between two ranks stay within a host.
    fn is_inner(&self, from: u32, to: u32) -> bool {
        self.host(from) == self.host(to)
    }

    /// Returns how long a rank copies a message of `bytes` bytes for itself (no time) or another
    /// rank of its host, and the latency behind it.
    fn copy(&self, from: u32, to: u32, bytes: u64) -> (Picos, Picos) {
        match from == to {
            true => (Picos::ZERO, Picos::ZERO),
            false => (Picos::transmit(self.inner_rate, bytes), self.inner_latency),
        }
    }
}

impl Default for Placement {
    fn default() -> Self {
        let (inner_rate, inner_latency) = (Self::INNER_RATE, Self::INNER_LATENCY);
        Self { ranks_per_host: 1, inner_rate, inner_latency }
    }
}

/// Kind of an operation of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sends `bytes` to rank `to`.
    Send { to: u32, bytes: u64, tag: u64 },
    /// Receives from a rank, or any, with a tag, or any.
    Receive { from: Option<u32>, tag: Option<u64> },
    /// Computes for `ns` nanoseconds.
    Calc { ns: u64, cpu: u32 },
    /// Takes this time, and no processor; with `exchanges`, the time that the ranks of a host need
    /// to exchange something.
    Delay { time: Picos, exchanges: bool },
}

impl Kind {
    /// An operation that takes no time: it joins those for which it waits.
    pub(super) const JOIN: Self = Self::Delay { time: Picos::ZERO, exchanges: false };
}

/// An operation of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub(super) rank: u32,
    /// Place of the operation in the file, which [`Names`] explains.
    pub(super) place: u32,
    pub(super) kind: Kind,
}

/// A dependency: operation `of` begins when operation `before` has ended, or has begun if `started`
/// is set. Both are indices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    pub(super) of: u32,
    pub(super) before: u32,
    pub(super) started: bool,
}

/// Meaning of the places of operations in files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Names {
    /// The lines of a file.
    Lines(String),
    /// The numbers of the operations of each rank in a file.
    Numbers(String),
    /// Nodes of traces.
    Nodes(NodeNames),
}

/// Names of the nodes of traces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeNames {
    /// Path of the files, with `%d` for the rank.
    pub(super) files: String,
    /// Number and name of each node; the name is an index.
    pub(super) nodes: Vec<(u64, u32)>,
    pub(super) names: Vec<String>,
}

impl NodeNames {
    /// Returns the name of the file of a rank.
    pub(super) fn file(&self, rank: u32) -> String {
        trace_name(&self.files, rank)
    }
}

/// Returns the name of the trace of a rank, which is `%d` in the name of all.
pub(super) fn trace_name(files: &str, rank: u32) -> String {
    files.replacen("%d", &rank.to_string(), 1)
}

/// A schedule: the operations of all ranks of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    pub(super) ranks: u32,
    pub(super) operations: Vec<Operation>,
    pub(super) waits: Vec<Wait>,
    pub(super) names: Names,
}

impl Schedule {
    /// Returns the number of ranks.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the schedule has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Describes the place of an operation.
    fn describe(&self, operation: u32) -> String {
        let Operation { rank, place, .. } = self.operations[operation as usize];
        match &self.names {
            Names::Lines(_) => format!("rank {rank} (line {place})"),
            Names::Numbers(_) => format!("rank {rank} (operation {place})"),
            Names::Nodes(names) => {
                let (id, name) = names.nodes.get(place as usize).copied().unwrap_or_default();
                let name = names.names.get(name as usize).map_or("", String::as_str);
                format!("rank {rank} (node {id} `{name}`)")
            }
        }
    }

    /// Makes an error at an operation.
    fn fault(&self, operation: u32, what: String) -> FormatError {
        let Operation { rank, place, .. } = self.operations[operation as usize];
        let (file, line) = match &self.names {
            Names::Lines(file) => (file.clone(), place as usize),
            Names::Numbers(file) => (file.clone(), 0),
            Names::Nodes(names) => (names.file(rank), 0),
        };
        FormatError { file, line, what }
    }

    /// Places the ranks on a network of `hosts` hosts. Returns the job, and its workload.
    ///
    /// # Errors
    /// Returns an error if there are more ranks than the hosts have places, if no message goes from
    /// one host to another, or if the job cannot finish: the ranks that wait, and for what.
    pub fn place(
        self,
        placement: Placement,
        hosts: u32,
    ) -> Result<(ScheduledJob, Workload), FormatError> {
        let file = match &self.names {
            Names::Lines(file) | Names::Numbers(file) => file.clone(),
            Names::Nodes(names) => names.files.clone(),
        };
        let fault = |what| FormatError { file, line: 0, what };
        let needed = placement.hosts(self.ranks);
        if needed > hosts {
            let (ranks, each) = (self.ranks, placement.ranks_per_host);
            return Err(fault(format!(
                "{ranks} ranks with {each} on a host need {needed} hosts, and the network has {hosts}; give a larger \
                 network or more ranks per host"
            )));
        }
        let matched = matching::run(&self, &placement)?;
        let workload = WorkloadBuilder::build(&self, &matched, &placement, hosts);
        if workload.flows.is_empty() {
            return Err(fault("no message between hosts; there is nothing to simulate".to_owned()));
        }
        Ok((ScheduledJob { schedule: self, matched, placement }, workload))
    }
}

/// A schedule whose ranks have hosts, and whose messages have receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduledJob {
    schedule: Schedule,
    matched: Matched,
    placement: Placement,
}

impl ScheduledJob {
    /// Returns how long the job takes over a network without delays, which is no bound that a real
    /// network could reach.
    #[must_use]
    pub const fn lasts(&self) -> Picos {
        self.matched.lasts
    }
}

/// Triggers of a schedule. The trigger of index `ended[i]` fires when operation `i` has ended.
struct WorkloadBuilder<'a> {
    schedule: &'a Schedule,
    placement: &'a Placement,
    workload: Workload,
    ended: Vec<u32>,
    /// Trigger that fires when each operation begins, or `NONE`. Most operations need none: the
    /// trigger of their end waits for all that they wait for.
    begun: Vec<u32>,
    /// Number in the workload of each processor, by its rank and its number in the schedule; `None`
    /// is the one that copies messages within the host.
    processors: HashMap<(u32, Option<u32>), u32>,
}

const NONE: u32 = u32::MAX;

impl<'a> WorkloadBuilder<'a> {
    fn build(
        schedule: &'a Schedule,
        matched: &Matched,
        placement: &'a Placement,
        hosts: u32,
    ) -> Workload {
        let count = schedule.operations.len();
        let mut builder = Self {
            schedule,
            placement,
            workload: Workload { hosts, ..Workload::default() },
            ended: vec![NONE; count],
            begun: vec![NONE; count],
            processors: HashMap::new(),
        };
        builder.add_triggers();
        for wait in &schedule.waits {
            let from = match wait.started {
                true => builder.begun[wait.before as usize],
                false => builder.ended[wait.before as usize],
            };
            // A begin that is the end of another operation has no dependency of its own.
            let to = match builder.begun[wait.of as usize] {
                NONE => builder.ended[wait.of as usize],
                begun => begun,
            };
            if from != to {
                builder.add_dependency(from, to);
            }
        }
        for (place, operation) in (0..).zip(&schedule.operations) {
            builder.operation(matched, place, operation);
        }
        builder.workload
    }

    /// Returns whether a message crosses the network.
    fn crosses(&self, operation: &Operation) -> bool {
        match operation.kind {
            Kind::Send { to, .. } => !self.placement.is_inner(operation.rank, to),
            _ => false,
        }
    }

    fn add_triggers(&mut self) {
        let schedule = self.schedule;
        let count = schedule.operations.len();
        // Number of operations for which each one waits, and whether another waits for its begin.
        let mut waits = vec![0u32; count];
        let mut is_begin_awaited = vec![false; count];
        for wait in &schedule.waits {
            waits[wait.of as usize] += 1;
            is_begin_awaited[wait.before as usize] |= wait.started;
        }
        for (place, operation) in schedule.operations.iter().enumerate() {
            let receives = matches!(operation.kind, Kind::Receive { .. });
            let begins = is_begin_awaited[place]
                || self.crosses(operation) && waits[place] != 1
                // The run of a workload with computations depends on there being dependencies.
                || receives && waits[place] == 0;
            let mut activations = waits[place];
            if begins {
                self.begun[place] = self.trigger(activations);
                activations = 1;
            } else if self.crosses(operation) {
                // The send begins with the end of the only operation for which it waits, and ends
                // with its acknowledgement.
                activations = 0;
            }
            let more = u32::from(receives || self.crosses(operation) && !begins);
            self.ended[place] = self.trigger(activations + more);
        }
        // Only now do all operations have the trigger of their end.
        for wait in &schedule.waits {
            let of = wait.of as usize;
            if self.begun[of] == NONE && self.crosses(&schedule.operations[of]) {
                self.begun[of] = match wait.started {
                    true => self.begun[wait.before as usize],
                    false => self.ended[wait.before as usize],
                };
            }
        }
    }

    /// Adds a trigger that fires after `activations` activations. Returns its index.
    fn trigger(&mut self, activations: u32) -> u32 {
        let triggers = &mut self.workload.triggers;
        // There are fewer than 2^29 triggers: three for each operation at most.
        let index = triggers.len() as u32;
        let (id, kind) = (index + 1, TriggerKind::Barrier(activations));
        triggers.push(Trigger { id, kind, delay: 0, processor: None });
        index
    }

    fn add_dependency(&mut self, from: u32, to: u32) {
        self.workload.dependencies.push(TriggerDependency { from, to });
    }

    /// Makes the end of an operation take time, and a processor.
    fn delay(&mut self, place: u32, time: Picos, processor: Option<(u32, Option<u32>)>) {
        let processor = processor.map(|processor| {
            let next = self.processors.len() as u32;
            *self.processors.entry(processor).or_insert(next)
        });
        let end = &mut self.workload.triggers[self.ended[place as usize] as usize];
        (end.delay, end.processor) = (time.0, processor);
    }

    fn operation(&mut self, matched: &Matched, place: u32, operation: &Operation) {
        let (begun, ended) = (self.begun[place as usize], self.ended[place as usize]);
        let rank = operation.rank;
        if begun != NONE && !self.crosses(operation) {
            self.add_dependency(begun, ended);
        }
        match operation.kind {
            Kind::Calc { ns, cpu } => {
                let time = Picos(ns.saturating_mul(PS));
                self.delay(place, time, Some((rank, Some(cpu))));
            }
            Kind::Delay { time, .. } => self.delay(place, time, None),
            // The arrival of its message activates its end.
            Kind::Receive { .. } => {}
            Kind::Send { to, bytes, .. } if self.crosses(operation) => {
                let id = self.workload.flows.len() as u32 + 1;
                let receive = self.ended[matched.receive_of(place) as usize];
                self.workload.flows.push(Flow {
                    id,
                    src: self.placement.host(rank),
                    dst: self.placement.host(to),
                    // A flow has at least one byte; an empty message still sends its header.
                    bytes: bytes.max(1),
                    start: Start::Trigger(begun),
                    on_started: None,
                    on_sent: Some(ended),
                    on_received: Some(receive),
                    job: 0,
                    level: 0,
                });
            }
            Kind::Send { to, bytes, .. } => {
                let receive = self.ended[matched.receive_of(place) as usize];
                let (time, latency) = self.placement.copy(rank, to, bytes);
                if time > Picos::ZERO {
                    self.delay(place, time, Some((rank, None)));
                }
                let mut arrives = ended;
                if latency > Picos::ZERO {
                    arrives = self.trigger(1);
                    self.workload.triggers[arrives as usize].delay = latency.0;
                    self.add_dependency(ended, arrives);
                }
                self.add_dependency(arrives, receive);
            }
        }
    }
}

#[cfg(test)]
mod tests;
