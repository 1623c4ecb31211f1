//! Runs a schedule over a network without delays, to match messages with receives, and to check
//! that the schedule ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::text::Fault;
use super::{Kind, Operation};

/// Result of matching the sends of a schedule with its receives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MatchedOperations {
    /// Index of the receive that matches each send; `u32::MAX` for other operations.
    receives: Vec<u32>,
    /// Time at which the last operation ended, ns.
    pub(super) lasts: u64,
}

impl MatchedOperations {
    /// Returns the receive that matches the send at place `send`.
    pub(super) fn receive_of(&self, send: u32) -> u32 {
        self.receives[send as usize]
    }
}

/// An event of an operation. Events of one time are handled in this order, and in that of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum OperationEvent {
    Ends,
    /// The operation begins, because no operation is left for which it waits.
    Begins,
}

/// Runs the operations of all ranks.
///
/// # Errors
/// Returns the line of an operation that waits for ever and what it waits for, or of a message
/// without a receive.
pub(super) fn run(operations: &[Operation]) -> Result<MatchedOperations, Fault> {
    let mut run = Run::new(operations);
    while let Some(Reverse((now, what, place))) = run.due.pop() {
        run.matched.lasts = now;
        match what {
            OperationEvent::Begins => run.begin(now, place),
            OperationEvent::Ends => {
                run.ended[place as usize] = true;
                let next = std::mem::take(&mut run.after_end[place as usize]);
                run.release(now, &next);
            }
        }
    }
    run.report_remaining()?;
    Ok(run.matched)
}

struct Run<'a> {
    operations: &'a [Operation],
    /// Number of operations that each operation still waits for.
    missing: Vec<usize>,
    /// Operations that wait for the beginning of each operation, and (next field) for its end.
    after_begin: Vec<Vec<u32>>,
    after_end: Vec<Vec<u32>>,
    ended: Vec<bool>,
    due: BinaryHeap<Reverse<(u64, OperationEvent, u32)>>,
    /// Receives of each rank without a message, and (next field) messages without a receive, in
    /// their order.
    posted: HashMap<u32, VecDeque<u32>>,
    unexpected: HashMap<u32, VecDeque<u32>>,
    /// Time from which each processor of a rank is free, ns.
    processors: HashMap<(u32, u32), u64>,
    matched: MatchedOperations,
}

impl<'a> Run<'a> {
    fn new(operations: &'a [Operation]) -> Self {
        let count = operations.len();
        let mut run = Self {
            operations,
            missing: vec![0; count],
            after_begin: vec![Vec::new(); count],
            after_end: vec![Vec::new(); count],
            ended: vec![false; count],
            due: BinaryHeap::new(),
            posted: HashMap::new(),
            unexpected: HashMap::new(),
            processors: HashMap::new(),
            matched: MatchedOperations {
                receives: vec![u32::MAX; count],
                ..MatchedOperations::default()
            },
        };
        for (place, operation) in (0..).zip(operations) {
            run.missing[place as usize] = operation.requires.len() + operation.irequires.len();
            operation.requires.iter().for_each(|&of| run.after_end[of as usize].push(place));
            operation.irequires.iter().for_each(|&of| run.after_begin[of as usize].push(place));
            if run.missing[place as usize] == 0 {
                run.due.push(Reverse((0, OperationEvent::Begins, place)));
            }
        }
        run
    }

    fn release(&mut self, now: u64, waiting: &[u32]) {
        for &place in waiting {
            let missing = &mut self.missing[place as usize];
            *missing -= 1;
            if *missing == 0 {
                self.due.push(Reverse((now, OperationEvent::Begins, place)));
            }
        }
    }

    fn begin(&mut self, now: u64, place: u32) {
        let next = std::mem::take(&mut self.after_begin[place as usize]);
        self.release(now, &next);
        match self.operations[place as usize].kind {
            Kind::Calc { ns, cpu } => {
                let rank = self.operations[place as usize].rank;
                let free = self.processors.entry((rank, cpu)).or_default();
                *free = now.max(*free).saturating_add(ns);
                let at = *free;
                self.ends(at, place);
            }
            Kind::Send { to, .. } => {
                self.ends(now, place);
                let posted = self.posted.entry(to).or_default();
                let fits = |&receive: &u32| fits(self.operations, place, receive);
                match posted.iter().position(fits).and_then(|at| posted.remove(at)) {
                    Some(receive) => self.matches(now, place, receive),
                    None => self.unexpected.entry(to).or_default().push_back(place),
                }
            }
            Kind::Receive { .. } => {
                let rank = self.operations[place as usize].rank;
                let messages = self.unexpected.entry(rank).or_default();
                let fits = |&send: &u32| fits(self.operations, send, place);
                match messages.iter().position(fits).and_then(|at| messages.remove(at)) {
                    Some(send) => self.matches(now, send, place),
                    None => self.posted.entry(rank).or_default().push_back(place),
                }
            }
        }
    }

    fn ends(&mut self, at: u64, place: u32) {
        self.due.push(Reverse((at, OperationEvent::Ends, place)));
    }

    fn matches(&mut self, now: u64, send: u32, receive: u32) {
        self.matched.receives[send as usize] = receive;
        self.ends(now, receive);
    }

    /// Returns an error for operations that are left when no event is left.
    fn report_remaining(&self) -> Result<(), Fault> {
        let line = |place: u32| self.operations[place as usize].line;
        let posted = self.posted.values().flatten().min();
        if let Some(&receive) = posted {
            let places = 0..self.operations.len() as u32;
            let late = places
                .filter(|&place| self.missing[place as usize] > 0)
                .find(|&send| fits(self.operations, send, receive));
            let what = match late {
                Some(send) => format!(
                    "its message is never sent: what line {} waits for does not end before this receive does",
                    line(send)
                ),
                None => "no message that fits is left for this receive".to_owned(),
            };
            return Err((line(receive), what));
        }
        // Each remaining operation waits for another remaining one, so there is a circle.
        if let Some(mut place) = self.missing.iter().position(|&missing| missing > 0) {
            let mut passed = vec![false; self.missing.len()];
            while !std::mem::replace(&mut passed[place], true) {
                let operation = &self.operations[place];
                let mut before = operation.requires.iter().chain(&operation.irequires);
                let left = before.find(|&&of| !self.ended[of as usize]);
                place = left.map_or(place, |&of| of as usize);
            }
            let lines: Vec<String> =
                self.circle(place).into_iter().map(|of| line(of).to_string()).collect();
            let what =
                format!("operations that wait for each other: those of lines {}", lines.join(", "));
            return Err((line(place as u32), what));
        }
        match self.unexpected.values().flatten().min() {
            Some(&send) => {
                Err((line(send), "no matching receive is left for this message".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Returns operations that wait for each other in a circle, from `first` back to itself.
    fn circle(&self, first: usize) -> Vec<u32> {
        let (mut circle, mut place) = (Vec::new(), first);
        loop {
            circle.push(place as u32);
            let operation = &self.operations[place];
            let mut before = operation.requires.iter().chain(&operation.irequires);
            let Some(&next) = before.find(|&&of| !self.ended[of as usize]) else { return circle };
            place = next as usize;
            if place == first || circle.len() == self.operations.len() {
                return circle;
            }
        }
    }
}

/// Returns whether a send and a receive match: in hosts and tag.
fn fits(operations: &[Operation], send: u32, receive: u32) -> bool {
    let (message, wanted) = (&operations[send as usize], &operations[receive as usize]);
    match (message.kind, wanted.kind) {
        (Kind::Send { to, tag: of, .. }, Kind::Receive { from, tag }) => {
            to == wanted.rank
                && from.is_none_or(|from| from == message.rank)
                && tag.is_none_or(|tag| tag == of)
        }
        _ => false,
    }
}
