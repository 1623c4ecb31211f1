//! Recorded messages of a job, with their senders, receivers and dependencies.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;

use squall_monitor::trace::{EventKind, OperationKind, TraceEvent};

use super::ReplayError;
use super::logs::Log;
use crate::output::FlowResult;
use crate::workload::{Flow, Start, Trigger, TriggerKind, Workload};

/// Number of picoseconds in a nanosecond.
const PS: u64 = 1000;

/// A message, or another operation that transfers bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Rank that began the operation.
    pub rank: u32,
    /// Rank at the other end of the operation.
    pub peer: u32,
    /// Kind of the operation; the bytes of a [`OperationKind::Read`] come from the peer.
    pub class: OperationKind,
    /// Number of bytes that the operation transfers.
    pub bytes: u64,
    /// Time at which the operation began, ns after the first operation of the job.
    pub began: u64,
    /// Time from the beginning of the operation until the peer received it, ns; if there is no
    /// receive, until it ended.
    pub took: Option<u64>,
    /// Events that the rank saw after it began its previous message and before it began this one:
    /// messages received and operations ended, by their indices in [`Recording::messages`].
    after: Vec<(EventKind, usize)>,
    /// Index of the rank's previous message in [`Recording::messages`].
    before: Option<usize>,
    /// Time that the rank computed: from the last of the events before the message to its
    /// beginning, ns.
    gap: u64,
}

impl Message {
    /// Returns the rank from which the operation's bytes come, and the rank to which they go.
    const fn way(&self) -> (u32, u32) {
        match self.class {
            OperationKind::Read => (self.peer, self.rank),
            _ => (self.rank, self.peer),
        }
    }
}

/// A recorded job: the messages between its ranks, with their times and dependencies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// Name of the recording: its file or folder.
    name: String,
    ranks: u32,
    messages: Vec<Message>,
    parameters: BTreeMap<String, String>,
    doubts: Vec<String>,
}

/// An event of a rank, at a time in ns on the clock that all ranks share.
#[derive(Clone, Copy, Debug)]
struct RankEvent {
    at: u64,
    here: SocketAddr,
    there: SocketAddr,
    event: TraceEvent,
}

/// Key by which begins, ends and receives are matched. Messages with the same key arrive in order,
/// or their order makes no difference.
type Alike = (SocketAddr, SocketAddr, OperationKind, u64, u64);

impl Recording {
    pub(super) fn new(path: &Path, logs: &[Log]) -> Result<Self, String> {
        let mut recording = Self { name: path.display().to_string(), ..Self::default() };
        for log in logs {
            if let Some(line) = log.cut {
                let doubt = format!(
                    "{} was cut: it is read up to line {line}, and what its rank did later is missing",
                    log.file
                );
                recording.doubts.push(doubt);
            }
        }
        let of = |log: &Log| log.header.parameters.clone();
        recording.parameters = logs.first().map(of).unwrap_or_default();
        let all = |name: &String, value: &mut String| {
            logs.iter().all(|log| log.header.parameters.get(name) == Some(value))
        };
        recording.parameters.retain(all);
        let ranks = ranks(logs)?;
        recording.ranks = ranks.values().max().map_or(0, |rank| rank + 1);
        let announced = logs.iter().filter_map(|log| log.header.ranks).max().unwrap_or(0);
        if announced > recording.ranks
            || (0..recording.ranks).any(|rank| !ranks.values().any(|r| *r == rank))
        {
            let here: HashSet<u32> = ranks.values().copied().collect();
            let doubt = format!(
                "traces of {} ranks are there, of {}: messages with the others are left out",
                here.len(),
                announced.max(recording.ranks)
            );
            recording.doubts.push(doubt);
        }
        recording.link_messages(&timed(logs, &ranks), &ranks);
        if recording.messages.is_empty() {
            return Err(format!("{}: no message between ranks in the traces", recording.name));
        }
        Ok(recording)
    }

    /// Makes messages of the events, each with its duration and the events on which it depends.
    fn link_messages(&mut self, events: &[(u32, RankEvent)], ranks: &HashMap<SocketAddr, u32>) {
        let first =
            events.iter().filter(|(_, s)| s.event.moment == EventKind::Begin).map(|(_, s)| s.at);
        let first = first.min().unwrap_or(0);
        let mut begun: HashMap<Alike, VecDeque<usize>> = HashMap::new();
        let mut open: HashMap<Alike, VecDeque<usize>> = HashMap::new();
        let mut threads: HashMap<u32, Thread> = HashMap::new();
        let mut untraced = 0;
        // Events are handled in the order of their times, so that a message has begun before it is
        // received. The receive of a message whose sender's clock is ahead finds no message, and is
        // ignored.
        for (rank, RankEvent { at, here, there, event }) in events.iter().copied() {
            let TraceEvent { moment, class, bytes, tag, .. } = event;
            let Some(&peer) = ranks.get(&there) else {
                untraced += usize::from(moment == EventKind::Begin);
                continue;
            };
            // A message of a rank to itself crosses no network, and its order is that of the rank.
            if peer == rank {
                continue;
            }
            let thread = threads.entry(rank).or_default();
            let ours = (here, there, class, tag, bytes);
            match moment {
                EventKind::Begin => {
                    let place = self.messages.len();
                    let (after, before, gap) = thread.begin(place, at);
                    let began = at.saturating_sub(first);
                    let took = None;
                    self.messages.push(Message {
                        rank,
                        peer,
                        class,
                        bytes,
                        began,
                        took,
                        after,
                        before,
                        gap,
                    });
                    begun.entry(ours).or_default().push_back(place);
                    open.entry(ours).or_default().push_back(place);
                }
                EventKind::End | EventKind::Receive => {
                    let waiting = match moment {
                        EventKind::End => open.get_mut(&ours),
                        _ => begun.get_mut(&(there, here, class, tag, bytes)),
                    };
                    let Some(place) = waiting.and_then(VecDeque::pop_front) else { continue };
                    let message = &mut self.messages[place];
                    let took = at.saturating_sub(first).saturating_sub(message.began);
                    if moment == EventKind::Receive || !is_message(class) {
                        message.took = Some(took);
                    }
                    thread.see(moment, place, at);
                }
            }
        }
        if untraced > 0 {
            self.doubts
                .push(format!("{untraced} messages to endpoints without a trace are left out"));
        }
    }

    /// Returns the defects of the recording: files that were cut, ranks without a trace.
    #[must_use]
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// Returns the parameters of the provider that are the same in all ranks, with their defaults,
    /// by their environment variables.
    #[must_use]
    pub const fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }

    /// Returns the number of ranks of the job.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns all messages, in the order in which they began; the flows of the workload have their
    /// numbers, from 1.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the time from the first message's beginning to the last arrival, ns.
    #[must_use]
    pub fn lasted(&self) -> u64 {
        let ends = self.messages.iter().map(|message| message.began + message.took.unwrap_or(0));
        ends.max().unwrap_or(0)
    }

    /// Returns the messages as flow results, with hosts, starts and durations.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowResult> {
        let micros = |ns: u64| ns as f64 / 1e3;
        let messages = (1..).zip(&self.messages);
        let result = messages.map(|(id, message): (u32, _)| {
            let (src, dst) = message.way();
            let took = message.took.map(micros);
            FlowResult {
                id,
                src,
                dst,
                bytes: message.bytes,
                start_us: Some(micros(message.began)),
                fct_us: took,
                received_us: took,
                reason: took.is_none().then(|| "its receive was not recorded".to_owned()),
                ..FlowResult::default()
            }
        });
        result.collect()
    }

    /// Returns the workload for a network of `hosts` hosts, of which rank `i` is host `i`.
    ///
    /// # Errors
    /// Returns an error if there are more ranks than hosts.
    pub fn workload(&self, hosts: u32) -> Result<Workload, ReplayError> {
        if self.ranks > hosts {
            let (name, ranks) = (&self.name, self.ranks);
            return Err(ReplayError::Job(format!(
                "{name}: {ranks} ranks, expected as many hosts or more; the network has {hosts}"
            )));
        }
        let mut workload = Workload { hosts, ..Workload::default() };
        for (id, message) in (1..).zip(&self.messages) {
            let (src, dst) = message.way();
            let start = Start::At(message.began.saturating_mul(PS));
            let (on_started, on_sent, on_received) = (None, None, None);
            // A flow has at least one byte; an empty message still sends its header.
            let bytes = message.bytes.max(1);
            let (job, level) = (0, 0);
            let flow =
                Flow { id, src, dst, bytes, start, on_started, on_sent, on_received, job, level };
            workload.flows.push(flow);
        }
        for (place, message) in self.messages.iter().enumerate() {
            let causes = message.after.len() + usize::from(message.before.is_some());
            let kind = match u32::try_from(causes) {
                Ok(0) => continue,
                Ok(1) => TriggerKind::OneShot,
                count => TriggerKind::Barrier(count.unwrap_or(u32::MAX)),
            };
            let trigger = u32::try_from(workload.triggers.len()).unwrap_or(u32::MAX);
            let (id, delay) = (trigger.saturating_add(1), message.gap.saturating_mul(PS));
            workload.triggers.push(Trigger { id, kind, delay, processor: None });
            workload.flows[place].start = Start::Trigger(trigger);
            if let Some(before) = message.before {
                workload.flows[before].on_started = Some(trigger);
            }
            for &(moment, cause) in &message.after {
                // The data of a read is available when it has arrived.
                let arrives = moment == EventKind::Receive
                    || self.messages[cause].class == OperationKind::Read;
                let flow = &mut workload.flows[cause];
                let activated = if arrives { &mut flow.on_received } else { &mut flow.on_sent };
                *activated = Some(trigger);
            }
        }
        Ok(workload)
    }
}

/// Returns whether an operation of this kind is a message, which a receive matches; a read or write
/// is none.
const fn is_message(class: OperationKind) -> bool {
    matches!(class, OperationKind::Message | OperationKind::Tagged | OperationKind::Collective)
}

/// State of a rank while its events are processed.
#[derive(Default)]
struct Thread {
    /// Events that the rank saw since it began its last message.
    after: Vec<(EventKind, usize)>,
    before: Option<usize>,
    /// Time of the rank's last event, ns.
    last: u64,
}

impl Thread {
    fn see(&mut self, moment: EventKind, place: usize, at: u64) {
        self.after.push((moment, place));
        self.last = at;
    }

    /// Begins a message. Returns the events before it, the previous message, and how long the rank
    /// computed.
    fn begin(&mut self, place: usize, at: u64) -> (Vec<(EventKind, usize)>, Option<usize>, u64) {
        let gap = at.saturating_sub(self.last);
        self.last = at;
        (std::mem::take(&mut self.after), self.before.replace(place), gap)
    }
}

/// Returns the rank of each address at which an endpoint of the job is.
fn ranks(logs: &[Log]) -> Result<HashMap<SocketAddr, u32>, String> {
    let mut ranks = HashMap::new();
    let mut processes: HashMap<u32, &Log> = HashMap::new();
    let unnamed = logs.iter().find(|log| log.header.rank.is_none());
    // Without a launcher, processes are numbered in the order in which they began.
    let mut began: Vec<(u64, &str, u32)> = logs
        .iter()
        .map(|log| (log.header.began, log.header.host.as_str(), log.header.pid))
        .collect();
    began.sort_unstable();
    let mut order: Vec<(&str, u32)> = Vec::new();
    for (_, host, pid) in began {
        if !order.contains(&(host, pid)) {
            order.push((host, pid));
        }
    }
    for log in logs {
        let header = &log.header;
        let rank = match (unnamed, header.rank) {
            (None, Some(rank)) => rank,
            (Some(_), None) => {
                let process = (header.host.as_str(), header.pid);
                // There are at most as many processes as files.
                order.iter().position(|known| *known == process).unwrap_or(0) as u32
            }
            (Some(unnamed), _) => {
                return Err(format!(
                    "{} names no rank, but {} does; give the traces of one job",
                    unnamed.file, log.file
                ));
            }
            (None, None) => 0,
        };
        let other = processes.entry(rank).or_insert(log);
        if (&other.header.host, other.header.pid) != (&header.host, header.pid) {
            return Err(format!(
                "{} and {} are both of rank {rank}; give the traces of one job",
                other.file, log.file
            ));
        }
        ranks.insert(header.address, rank);
    }
    Ok(ranks)
}

/// Returns all events of the traces with their ranks, sorted by time. Events of one file keep their
/// order.
fn timed(logs: &[Log], ranks: &HashMap<SocketAddr, u32>) -> Vec<(u32, RankEvent)> {
    let mut events = Vec::new();
    // Processes of one machine share a clock.
    let one_host = logs.windows(2).all(|pair| pair[0].header.host == pair[1].header.host);
    for log in logs {
        let began = if one_host { log.header.opened } else { log.header.began };
        let here = log.header.address;
        let rank = ranks.get(&here).copied().unwrap_or(0);
        let mut last = 0;
        for &event in &log.events {
            // A clock that was read just before another event may be slightly behind, so times
            // never decrease.
            last = began.saturating_add(event.at).max(last);
            let there = log.peers.get(&event.peer).copied().unwrap_or(here);
            events.push((rank, RankEvent { at: last, here, there, event }));
        }
    }
    events.sort_by_key(|(_, event)| event.at);
    events
}
