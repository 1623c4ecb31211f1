//! Runs a schedule: over a network without delays, to match messages with receives and to check
//! that the schedule ends; or with the times that messages took in a simulation, to see what each
//! rank did when.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::times::MessageTimes;
use super::{Kind, NONE, Operation, PS, Placement, Schedule};
use crate::Picos;
use crate::formats::FormatError;
use crate::workload::IndexLists;

/// Maximum number of operations that an error names.
const SHOWN: usize = 8;

/// Result of matching the sends of a schedule with its receives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::workload) struct Matched {
    /// Index of the receive that matches each send; `u32::MAX` for other operations.
    receives: Vec<u32>,
    /// Time at which the last operation ended.
    pub(in crate::workload) lasts: Picos,
}

impl Matched {
    /// Returns the receive that matches send `send`.
    pub(in crate::workload) fn receive_of(&self, send: u32) -> u32 {
        self.receives[send as usize]
    }
}

/// Part of a run of a schedule that a rank spends with one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// The rank computes.
    Computes,
    /// A message to or from the rank is on its way.
    Communicates,
}

/// An event of an operation. Events of one time are handled in this order, and in that of the
/// operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum OperationEvent {
    /// The message of a receive arrives.
    Arrives,
    Ends,
    /// The operation begins, because no operation is left for which it waits.
    Begins,
}

/// Matches the messages of a schedule.
///
/// # Errors
/// Returns the operations that wait for ever and what they wait for, or a message without a
/// receive.
pub(in crate::workload) fn run(
    schedule: &Schedule,
    placement: &Placement,
) -> Result<Matched, FormatError> {
    let matching = Matching::new(schedule);
    let mut run = Run::new(schedule, placement, Messages::Matching(matching));
    let lasts = run.finish(&mut |_, _, _, _| {});
    let Messages::Matching(matching) = &mut run.messages else { return Ok(Matched::default()) };
    let receives = std::mem::take(&mut matching.receives);
    run.report_remaining()?;
    Ok(Matched { receives, lasts })
}

/// Runs a schedule with the times that its messages took in a simulation, in the order of its flows.
/// Calls `record` with the rank, what it does, and from when to when. Returns when the last
/// operation ended.
pub(super) fn replay(
    schedule: &Schedule,
    placement: &Placement,
    matched: &Matched,
    times: &[MessageTimes],
    record: &mut dyn FnMut(u32, Activity, Picos, Picos),
) -> Picos {
    let mut next = 0;
    let flow_of = |operation: &Operation| match operation.kind {
        Kind::Send { to, .. } if !placement.is_inner(operation.rank, to) => {
            next += 1;
            next - 1
        }
        _ => NONE,
    };
    let flows = schedule.operations.iter().map(flow_of).collect();
    let messages = Messages::Recorded { receives: &matched.receives, times, flows };
    Run::new(schedule, placement, messages).finish(record)
}

/// Messages and receives that wait for each other.
struct Matching {
    /// Receive of each send, as far as it is known.
    receives: Vec<u32>,
    /// Channel of each send and receive. `NONE` if only one send and one receive have this source and
    /// tag: `new` has matched them already.
    channels: Vec<u32>,
    channel_queues: Vec<Channel>,
}

/// The messages and receives of a rank that have one source and tag. The whole rank is one channel
/// if it has a receive from any source or with any tag.
#[derive(Default)]
struct Channel {
    /// Receives without a message, and (next field) messages without a receive with the time and
    /// chain length of their arrival, in their order.
    posted: VecDeque<u32>,
    unexpected: VecDeque<(u32, (Picos, u32))>,
}

impl Matching {
    fn new(schedule: &Schedule) -> Self {
        let operations = &schedule.operations;
        let receiver = |operation: &Operation| match operation.kind {
            Kind::Send { to, .. } => Some(to),
            Kind::Receive { .. } => Some(operation.rank),
            _ => None,
        };
        let mut is_any = vec![false; schedule.ranks as usize];
        for operation in operations {
            if let Kind::Receive { from, tag } = operation.kind {
                is_any[operation.rank as usize] |= from.is_none() || tag.is_none();
            }
        }
        let of_ranks = IndexLists::new(is_any.len(), || {
            let all = (0..).zip(operations);
            all.filter_map(|(place, operation)| Some((receiver(operation)?, place)))
        });
        let mut matching = Self {
            receives: vec![NONE; operations.len()],
            channels: vec![NONE; operations.len()],
            channel_queues: Vec::new(),
        };
        // Sort key: source, tag, is-receive, operation index.
        let mut all: Vec<(u32, u64, bool, u32)> = Vec::new();
        for (rank, &is_any) in (0..).zip(&is_any) {
            all.clear();
            let key = |place: u32| match operations[place as usize] {
                _ if is_any => (0, 0, false, place),
                Operation { rank, kind: Kind::Send { tag, .. }, .. } => (rank, tag, false, place),
                Operation { kind: Kind::Receive { from, tag }, .. } => {
                    (from.unwrap_or_default(), tag.unwrap_or_default(), true, place)
                }
                _ => (0, 0, false, place),
            };
            all.extend(of_ranks.get(rank).iter().map(|&place| key(place)));
            all.sort_unstable();
            for channel in all.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
                match *channel {
                    [(_, _, false, send), (_, _, true, receive)] => {
                        matching.receives[send as usize] = receive;
                    }
                    _ => matching.add_channel(channel.iter().map(|of| of.3)),
                }
            }
        }
        matching
    }

    fn add_channel(&mut self, operations: impl Iterator<Item = u32>) {
        // The cast cannot overflow, because every channel has an operation and those have u32 indices.
        let channel = self.channel_queues.len() as u32;
        self.channel_queues.push(Channel::default());
        operations.for_each(|place| self.channels[place as usize] = channel);
    }

    /// Matches a send, whose message arrives at `arrived` (time, chain length). Returns its receive,
    /// which may not be posted yet if the pair was known in advance. Returns `None` and queues the
    /// message if no posted receive fits.
    fn send(&mut self, schedule: &Schedule, send: u32, arrived: (Picos, u32)) -> Option<u32> {
        let Some(channel) = self.channel_queues.get_mut(self.channels[send as usize] as usize)
        else {
            return Some(self.receives[send as usize]);
        };
        let fits = |&receive: &u32| fits(schedule, send, receive);
        let receive = channel.posted.iter().position(fits);
        let receive = receive.and_then(|at| channel.posted.remove(at));
        match receive {
            Some(receive) => self.receives[send as usize] = receive,
            None => channel.unexpected.push_back((send, arrived)),
        }
        receive
    }

    /// Matches a posted receive with the first queued message that fits, and returns that message's
    /// arrival. If none fits, queues the receive and returns `None`. Also returns `None` if the pair
    /// was known in advance: its send schedules the arrival.
    fn post(&mut self, schedule: &Schedule, receive: u32) -> Option<(Picos, u32)> {
        let channel = self.channel_queues.get_mut(self.channels[receive as usize] as usize)?;
        let fits = |&(send, _): &(u32, (Picos, u32))| fits(schedule, send, receive);
        let found = channel.unexpected.iter().position(fits);
        match found.and_then(|at| channel.unexpected.remove(at)) {
            Some((send, arrived)) => {
                self.receives[send as usize] = receive;
                Some(arrived)
            }
            None => {
                channel.posted.push_back(receive);
                None
            }
        }
    }
}

/// Source of the times and receives of messages.
enum Messages<'a> {
    /// Messages between hosts take no time, and are matched.
    Matching(Matching),
    Recorded {
        receives: &'a [u32],
        times: &'a [MessageTimes],
        /// Number of the flow of each send between hosts.
        flows: Vec<u32>,
    },
}

struct Run<'a> {
    schedule: &'a Schedule,
    placement: &'a Placement,
    /// Number of operations that each operation still waits for.
    missing: Vec<u32>,
    /// Operations that wait for the beginning of each operation, and (next field) for its end.
    after_begin: IndexLists,
    after_end: IndexLists,
    ended: Vec<bool>,
    /// True for receives that were posted, or whose message has arrived: the other half ends them.
    is_half_done: Vec<bool>,
    /// Pending events: time, length of the chain of messages before the event, kind, operation.
    due: BinaryHeap<Reverse<(Picos, u32, OperationEvent, u32)>>,
    /// Length of the longest chain of messages between hosts that leads to the current event. It
    /// orders events at one time, so that messages, which take no time here, match as on a network
    /// where every message takes equally long.
    chain_length: u32,
    /// Time from which each processor of a rank is free; `None` is the one that copies messages.
    processors: HashMap<(u32, Option<u32>), Picos>,
    messages: Messages<'a>,
}

/// Receives the parts of a run: the rank, what it does, and from when to when.
type Record<'a> = &'a mut dyn FnMut(u32, Activity, Picos, Picos);

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule, placement: &'a Placement, messages: Messages<'a>) -> Self {
        let count = schedule.operations.len();
        let mut run = Self {
            schedule,
            placement,
            missing: vec![0; count],
            after_begin: dependents(schedule, true),
            after_end: dependents(schedule, false),
            ended: vec![false; count],
            is_half_done: vec![false; count],
            due: BinaryHeap::new(),
            chain_length: 0,
            processors: HashMap::new(),
            messages,
        };
        schedule.waits.iter().for_each(|wait| run.missing[wait.of as usize] += 1);
        for place in 0..count as u32 {
            if run.missing[place as usize] == 0 {
                run.schedule_event(Picos::ZERO, OperationEvent::Begins, place);
            }
        }
        run
    }

    /// Runs until no event is left. Returns the time of the last one.
    fn finish(&mut self, record: Record<'_>) -> Picos {
        let mut last = Picos::ZERO;
        while let Some(Reverse((now, chain_length, what, place))) = self.due.pop() {
            (last, self.chain_length) = (now, chain_length);
            match what {
                OperationEvent::Arrives => self.complete_half(now, place),
                OperationEvent::Begins => self.begin(now, place, record),
                OperationEvent::Ends => {
                    self.ended[place as usize] = true;
                    self.release(now, false, place);
                }
            }
        }
        last
    }

    fn schedule_event(&mut self, at: Picos, what: OperationEvent, place: u32) {
        self.due.push(Reverse((at, self.chain_length, what, place)));
    }

    /// Adds the arrival of the message of a receive.
    fn schedule_arrival(&mut self, (at, chain_length): (Picos, u32), receive: u32) {
        self.due.push(Reverse((at, chain_length, OperationEvent::Arrives, receive)));
    }

    fn release(&mut self, now: Picos, started: bool, place: u32) {
        let lists = if started { &self.after_begin } else { &self.after_end };
        for &waiting in lists.get(place) {
            let missing = &mut self.missing[waiting as usize];
            *missing -= 1;
            if *missing == 0 {
                self.due.push(Reverse((now, self.chain_length, OperationEvent::Begins, waiting)));
            }
        }
    }

    /// Occupies a processor of a rank for some time. Returns when it begins and ends.
    fn occupy(&mut self, now: Picos, of: (u32, Option<u32>), time: Picos) -> (Picos, Picos) {
        let free = self.processors.entry(of).or_default();
        let from = now.max(*free);
        *free = from + time;
        (from, *free)
    }

    fn begin(&mut self, now: Picos, place: u32, record: Record<'_>) {
        self.release(now, true, place);
        let operation = self.schedule.operations[place as usize];
        let rank = operation.rank;
        match operation.kind {
            Kind::Calc { ns, cpu } => {
                let time = Picos(ns.saturating_mul(PS));
                let (from, to) = self.occupy(now, (rank, Some(cpu)), time);
                record(rank, Activity::Computes, from, to);
                self.schedule_event(to, OperationEvent::Ends, place);
            }
            Kind::Delay { time, exchanges } => {
                if exchanges {
                    record(rank, Activity::Communicates, now, now + time);
                }
                self.schedule_event(now + time, OperationEvent::Ends, place);
            }
            Kind::Send { to, bytes, .. } => {
                let (from, sent, arrived) = self.message(now, place, rank, to, bytes);
                record(rank, Activity::Communicates, from, sent);
                record(to, Activity::Communicates, from, arrived);
                let crosses = !self.placement.is_inner(rank, to);
                let (arrival_chain, ack_chain, receive) = match &mut self.messages {
                    Messages::Recorded { receives, .. } => {
                        (self.chain_length, self.chain_length, Some(receives[place as usize]))
                    }
                    Messages::Matching(matching) => {
                        // The acknowledgement takes as long as the message.
                        let arrival_chain = self.chain_length.saturating_add(u32::from(crosses));
                        let ack_chain = arrival_chain.saturating_add(u32::from(crosses));
                        (
                            arrival_chain,
                            ack_chain,
                            matching.send(self.schedule, place, (arrived, arrival_chain)),
                        )
                    }
                };
                self.due.push(Reverse((sent.max(now), ack_chain, OperationEvent::Ends, place)));
                if let Some(receive) = receive {
                    self.schedule_arrival((arrived.max(now), arrival_chain), receive);
                }
            }
            Kind::Receive { .. } => {
                let arrives = match &mut self.messages {
                    Messages::Matching(matching) => matching.post(self.schedule, place),
                    Messages::Recorded { .. } => None,
                };
                if let Some(arrived) = arrives {
                    self.schedule_arrival(arrived.max((now, self.chain_length)), place);
                }
                self.complete_half(now, place);
            }
        }
    }

    /// Returns when a message begins to leave, when its sender is done with it, and when it has
    /// arrived.
    fn message(
        &mut self,
        now: Picos,
        place: u32,
        rank: u32,
        to: u32,
        bytes: u64,
    ) -> (Picos, Picos, Picos) {
        if self.placement.is_inner(rank, to) {
            let (time, latency) = self.placement.copy(rank, to, bytes);
            let (from, sent) = match time {
                Picos::ZERO => (now, now),
                time => self.occupy(now, (rank, None), time),
            };
            return (from, sent, sent + latency);
        }
        let recorded = match &self.messages {
            Messages::Recorded { times, flows, .. } => times.get(flows[place as usize] as usize),
            Messages::Matching(_) => None,
        };
        recorded.map_or((now, now, now), |times| (times.started, times.sent, times.arrived))
    }

    /// Ends a receive that was posted and whose message has arrived.
    fn complete_half(&mut self, now: Picos, receive: u32) {
        if std::mem::replace(&mut self.is_half_done[receive as usize], true) {
            self.schedule_event(now, OperationEvent::Ends, receive);
        }
    }

    /// Returns an error for operations that are left when no event is left.
    fn report_remaining(&self) -> Result<(), FormatError> {
        let Messages::Matching(matching) = &self.messages else { return Ok(()) };
        let schedule = self.schedule;
        let count = schedule.operations.len() as u32;
        let is_posted = |&place: &u32| {
            let receives = matches!(schedule.operations[place as usize].kind, Kind::Receive { .. });
            receives && self.missing[place as usize] == 0 && !self.ended[place as usize]
        };
        let posted: Vec<u32> = (0..count).filter(is_posted).collect();
        if let Some(&first) = posted.first() {
            let reasons = posted.iter().take(SHOWN).map(|&receive| self.reason(receive));
            let mut what =
                format!("the job cannot finish: {}", reasons.collect::<Vec<_>>().join("; "));
            if posted.len() > SHOWN {
                what += &format!("; and {} more receives", posted.len() - SHOWN);
            }
            return Err(schedule.fault(first, what));
        }
        // Each remaining operation waits for another remaining one, so there is a circle.
        if let Some(first) = self.missing.iter().position(|&missing| missing > 0) {
            let circle = self.circle(first as u32);
            let shown = circle.iter().take(SHOWN).map(|&of| schedule.describe(of));
            let mut what = format!(
                "operations that wait for each other: {}",
                shown.collect::<Vec<_>>().join(", ")
            );
            if circle.len() > SHOWN {
                what += &format!(" and {} more", circle.len() - SHOWN);
            }
            return Err(schedule.fault(circle[0], what));
        }
        let unexpected = matching.channel_queues.iter().flat_map(|channel| &channel.unexpected);
        let Some((send, _)) = unexpected.min() else { return Ok(()) };
        let what = match schedule.operations[*send as usize].kind {
            Kind::Send { to, tag, .. } => format!(
                "{} sends to rank {to} with tag {tag}, and no matching receive is left; add the receive",
                schedule.describe(*send)
            ),
            _ => String::new(),
        };
        Err(schedule.fault(*send, what))
    }

    /// Says for what a receive waits.
    fn reason(&self, receive: u32) -> String {
        let schedule = self.schedule;
        let Kind::Receive { from, tag } = schedule.operations[receive as usize].kind else {
            return String::new();
        };
        let from = from.map_or_else(|| "any rank".to_owned(), |rank| format!("rank {rank}"));
        let tag = tag.map_or_else(|| "any tag".to_owned(), |tag| format!("tag {tag}"));
        let late = (0..schedule.operations.len() as u32)
            .filter(|&place| self.missing[place as usize] > 0)
            .find(|&send| fits(schedule, send, receive));
        let why = match late {
            Some(send) => format!("{}, which would send it, waits itself", schedule.describe(send)),
            None => "no message that fits is left".to_owned(),
        };
        format!("{} waits for a message from {from} with {tag}: {why}", schedule.describe(receive))
    }

    /// Returns operations that wait for each other in a circle, which begins behind `first`.
    fn circle(&self, first: u32) -> Vec<u32> {
        let left = self.schedule.waits.iter().filter(|wait| !self.ended[wait.before as usize]);
        // One remaining wait of each operation is enough.
        let before: HashMap<u32, u32> = left.map(|wait| (wait.of, wait.before)).collect();
        let mut passed = HashMap::new();
        let (mut way, mut place) = (Vec::new(), first);
        loop {
            if let Some(start) = passed.insert(place, way.len()) {
                way.drain(..start);
                way.sort_unstable();
                return way;
            }
            way.push(place);
            match before.get(&place) {
                Some(&next) => place = next,
                None => return way,
            }
        }
    }
}

/// Returns the operations that wait for the beginning of each operation (`started`), or for its end.
fn dependents(schedule: &Schedule, started: bool) -> IndexLists {
    IndexLists::new(schedule.operations.len(), || {
        let waits = schedule.waits.iter().filter(move |wait| wait.started == started);
        waits.map(|wait| (wait.before, wait.of))
    })
}

/// Returns whether a send and a receive match: in ranks and tag.
fn fits(schedule: &Schedule, send: u32, receive: u32) -> bool {
    let message = &schedule.operations[send as usize];
    let wanted = &schedule.operations[receive as usize];
    match (message.kind, wanted.kind) {
        (Kind::Send { to, tag: of, .. }, Kind::Receive { from, tag }) => {
            to == wanted.rank
                && from.is_none_or(|from| from == message.rank)
                && tag.is_none_or(|tag| tag == of)
        }
        _ => false,
    }
}
