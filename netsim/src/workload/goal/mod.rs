//! GOAL schedules: the messages and computations of each rank of a job, and their dependencies
//! (Hoefler, Siebert and Lumsdaine, "Group Operation Assembly Language", ICPP 2009), in the text
//! form that LogGOPSim's `txt2bin` takes.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 1000
//! l2: send 8192b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 8192b from 0 tag 7
//! l2: calc 500 cpu 1
//! l2 irequires l1
//! }
//! ```
//!
//! `calc` takes a time in nanoseconds. An operation that `requires` another begins when that has
//! ended, and one that `irequires` another when that has begun. A send has ended when its last byte
//! was acknowledged, and a receive when it was posted and its message has arrived. A `cpu` of a
//! rank runs one calculation at a time, in the order in which they may begin; `nic` is read and has
//! no effect. `-1` for a source or a tag matches any.
//!
//! Messages and receives are matched in advance, as if the network took no time: by source and tag,
//! in the order in which messages are sent and receives posted. So a schedule that ends over a
//! network without delays ends over every network.

mod matching;
mod text;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use super::{Flow, Start, Trigger, TriggerDependency, TriggerKind, Workload};
use crate::formats::{FormatError, read_text};
use matching::MatchedOperations;

/// Extension of the file names of schedules.
pub const EXTENSION: &str = "goal";
/// Number of picoseconds in a nanosecond.
const PS: u64 = 1000;

/// Returns whether a file is a schedule, by its name.
#[must_use]
pub fn is_goal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Kind of an operation of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Sends `bytes` to rank `to`.
    Send { to: u32, bytes: u64, tag: u64 },
    /// Receives from a rank, or any, with a tag, or any.
    Receive { from: Option<u32>, tag: Option<u64> },
    /// Computes for `ns` nanoseconds.
    Calc { ns: u64, cpu: u32 },
}

/// An operation of a rank: a send, a receive or a calculation.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Operation {
    rank: u32,
    line: usize,
    kind: Kind,
    /// Indices of the operations that must have ended before this one begins.
    requires: Vec<u32>,
    /// Indices of the operations that must have begun before this one begins.
    irequires: Vec<u32>,
}

/// A GOAL schedule: the operations of all ranks of a job, and their matched messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoalSchedule {
    file: String,
    ranks: u32,
    /// Line of the file that holds the number of ranks.
    line: usize,
    operations: Vec<Operation>,
    matched: MatchedOperations,
}

/// Reads a schedule.
///
/// # Errors
/// Returns the file and line that is wrong: no GOAL text, a rank or a label that does not exist,
/// operations that wait for each other, a receive without a message or a message without a receive.
pub fn read(path: &Path) -> Result<GoalSchedule, FormatError> {
    let file = path.display().to_string();
    let text = read_text(path).map_err(|error| FormatError {
        file: file.clone(),
        line: 0,
        what: match error.kind() {
            // LogGOPSim itself reads a binary form.
            ErrorKind::InvalidData => format!(
                "{error}; the binary form of GOAL is not read, so give the text from which txt2bin made it"
            ),
            _ => error.to_string(),
        },
    })?;
    parse(&file, &text)
}

/// Parses the text of a schedule; error messages name it `file`.
///
/// # Errors
/// See [`read`].
pub fn parse(file: &str, text: &str) -> Result<GoalSchedule, FormatError> {
    let fault = |(line, what)| FormatError { file: file.to_owned(), line, what };
    let text::ParsedSchedule { ranks, line, operations } = text::parse(text).map_err(fault)?;
    let matched = matching::run(&operations).map_err(fault)?;
    Ok(GoalSchedule { file: file.to_owned(), ranks, line, operations, matched })
}

impl GoalSchedule {
    /// Returns how long the schedule takes over a network without delays, ns. No network is faster.
    #[must_use]
    pub const fn lasts(&self) -> u64 {
        self.matched.lasts
    }

    /// Returns the workload for a network of `hosts` hosts, of which rank `i` is host `i`.
    ///
    /// # Errors
    /// Returns an error if there are more ranks than hosts, or if no message goes from one rank to
    /// another.
    pub fn workload(&self, hosts: u32) -> Result<Workload, FormatError> {
        let fault = |what| Err(FormatError { file: self.file.clone(), line: self.line, what });
        if self.ranks > hosts {
            let ranks = self.ranks;
            return fault(format!(
                "{ranks} ranks, expected as many hosts or more; the network has {hosts}"
            ));
        }
        let workload = ScheduleBuilder::new(self, hosts).workload;
        if workload.flows.is_empty() {
            return fault("no message between ranks; there is nothing to simulate".to_owned());
        }
        Ok(workload)
    }
}

/// A workload that is being built from a schedule. It has two triggers for each operation: one
/// begins it, and the other fires when it has ended.
struct ScheduleBuilder {
    workload: Workload,
    /// Number in the workload of each processor, by its rank and its number in the schedule.
    processors: HashMap<(u32, u32), u32>,
}

impl ScheduleBuilder {
    fn new(schedule: &GoalSchedule, hosts: u32) -> Self {
        let workload = Workload { hosts, ..Workload::default() };
        let mut woven = Self { workload, processors: HashMap::new() };
        for operation in &schedule.operations {
            let begins = operation.requires.len() + operation.irequires.len();
            woven.trigger(begins);
            let ends = usize::from(matches!(operation.kind, Kind::Receive { .. }));
            woven.trigger(1 + ends);
        }
        for (place, operation) in (0..).zip(&schedule.operations) {
            for &before in &operation.requires {
                woven.add_dependency(ended(before), begun(place));
            }
            for &before in &operation.irequires {
                woven.add_dependency(begun(before), begun(place));
            }
            woven.operation(schedule, place, operation);
        }
        woven
    }

    /// Adds a trigger that fires after `activations` activations.
    fn trigger(&mut self, activations: usize) {
        let triggers = &mut self.workload.triggers;
        // There are fewer than 2^31 operations.
        let id = triggers.len() as u32 + 1;
        triggers.push(Trigger {
            id,
            kind: TriggerKind::Barrier(activations as u32),
            delay: 0,
            processor: None,
        });
    }

    fn add_dependency(&mut self, from: u32, to: u32) {
        self.workload.dependencies.push(TriggerDependency { from, to });
    }

    fn operation(&mut self, schedule: &GoalSchedule, place: u32, operation: &Operation) {
        match operation.kind {
            Kind::Calc { ns, cpu } => {
                self.add_dependency(begun(place), ended(place));
                let next = self.processors.len() as u32;
                let processor = *self.processors.entry((operation.rank, cpu)).or_insert(next);
                let end = &mut self.workload.triggers[ended(place) as usize];
                (end.delay, end.processor) = (ns.saturating_mul(PS), Some(processor));
            }
            // The arrival of its message also activates its end.
            Kind::Receive { .. } => self.add_dependency(begun(place), ended(place)),
            Kind::Send { to, bytes, .. } => {
                let receive = ended(schedule.matched.receive_of(place));
                if to == operation.rank {
                    // A message of a rank to itself crosses no network.
                    self.add_dependency(begun(place), ended(place));
                    return self.add_dependency(begun(place), receive);
                }
                let id = self.workload.flows.len() as u32 + 1;
                self.workload.flows.push(Flow {
                    id,
                    src: operation.rank,
                    dst: to,
                    // A flow has at least one byte; an empty message still sends its header.
                    bytes: bytes.max(1),
                    start: Start::Trigger(begun(place)),
                    on_started: None,
                    on_sent: Some(ended(place)),
                    on_received: Some(receive),
                    job: 0,
                    level: 0,
                });
            }
        }
    }
}

/// Returns the index of the trigger that begins the operation of index `place`.
const fn begun(place: u32) -> u32 {
    2 * place
}

/// Returns the index of the trigger that fires when the operation of index `place` has ended.
const fn ended(place: u32) -> u32 {
    2 * place + 1
}

#[cfg(test)]
mod tests;
