//! Chakra execution traces of AI jobs (MLCommons Chakra, schema 0.0.4; Sridharan et al., "Chakra",
//! 2023): for each rank a file with its nodes, which compute, send, receive or take part in a
//! collective, and their dependencies.
//!
//! - Rank `r` is the file whose name has `r` in place of `%d`. The ranks are 0 and so on without a
//!   gap.
//! - A node begins when all nodes of its data dependencies and control dependencies have ended. A
//!   control dependency on a node that is not in the file has no effect: Chakra's converter removes
//!   nodes. In traces converted from PyTorch, control dependencies are call-stack parents and are
//!   ignored.
//! - A computation takes `duration_micros`. One of the accelerator runs at a time; those of the
//!   host's processors (`is_cpu_op`), loads and stores take their time beside them. So do
//!   host-side calls of a communication library (`is_cpu_op`, no `comm_*` attribute): the node of
//!   their kernel sends the messages.
//! - Sends and receives match by rank and `comm_tag`.
//! - The collectives of a process group (`pg_name`) are the same on all its ranks, in the order of
//!   their nodes in the files, and a rank runs them one after another, as NCCL does. Groups are
//!   those of a file, and those that PyTorch's node `process_group:init` lists; no name and a
//!   group "0" that is not listed stand for all ranks. The root is the first rank of the group.
//! - `workload::collectives` has the messages of collectives. A collective among ranks
//!   of one host begins when the last of them has begun it, and takes the time of its messages
//!   within the host, without any other.

mod expansion;
mod messages;
pub mod system;
mod transformer;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;

use super::collectives::{Collective, CollectiveAlgorithms, CollectiveKind, Plan};
use super::schedule::{
    Kind, MOST_OPERATIONS, Names, NodeNames, Operation, Placement, Schedule, Wait, trace_name,
};
use crate::Picos;
use crate::formats::{FormatError, read_text};
use expansion::{Step, add_messages, time_within_host};
use messages::{Attribute, GlobalMetadata, Messages, Node, VERSION, Value};
use system::CollectiveSettings;

pub use transformer::{Training, TrainingBytes};

/// Extension of the file names of traces.
const EXTENSION: &str = "et";
/// Name of the metadata with the schema of PyTorch's trace.
const SCHEMA: &str = "schema";
/// Number of picoseconds in a microsecond, and of nanoseconds.
const PS: u64 = super::PS_PER_US;
const NS: u64 = 1000;
/// Processor of a rank that runs the accelerator's computations.
const ACCELERATOR: u32 = 0;
/// Tags of the messages of collectives begin here; those of nodes are below.
const FIRST_TAG: u64 = 1 << 32;
/// Maximum number of dependencies of a job.
const MOST_WAITS: usize = 1 << 29;
/// Number of different collectives whose messages are kept for the next of the same size.
const KEPT_PLANS: usize = 32;

/// Returns whether a path names traces.
#[must_use]
pub fn is_chakra(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Options for reading the traces of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ChakraOptions {
    /// Hosts of the ranks.
    pub placement: Placement,
    /// Algorithms of the collectives.
    pub algorithms: CollectiveAlgorithms,
    /// Maximum number of bytes of a message of a collective; 0 for no limit.
    pub chunk: u64,
    /// How a rank runs a collective.
    pub settings: CollectiveSettings,
    /// File with the process groups, as ASTRA-sim's `--comm-group-configuration` takes it: an object
    /// with the ranks of each group.
    pub groups: Option<PathBuf>,
}

/// Reads the traces of a job, whose files have the number of the rank in place of `%d`.
///
/// # Errors
/// Returns the file, the node and what is wrong: another format or version, an end within a
/// message, a rank without a file, a node of an unknown kind, one that lacks an attribute or that
/// depends on a node that does not exist, or collectives that differ between ranks.
pub fn read(files: &Path, options: &ChakraOptions) -> Result<Schedule, FormatError> {
    let files = files.display().to_string();
    let fault = |what: String| FormatError { file: files.clone(), line: 0, what };
    let ranks = count_ranks(Path::new(&files)).map_err(fault)?;
    let groups = match &options.groups {
        Some(path) => read_groups(path, ranks)?,
        None => Groups::new(),
    };
    let open = |rank| File::open(trace_name(&files, rank)).map(BufReader::new);
    read_from(&files, ranks, open, groups, options)
}

/// Reads the traces of a job from memory: one for each rank. Error messages take their names from
/// `files`, as in [`read`]. The process groups of `options` are not read.
///
/// # Errors
/// Returns the errors of [`read`].
pub fn parse(
    files: &str,
    traces: &[&[u8]],
    options: &ChakraOptions,
) -> Result<Schedule, FormatError> {
    let open = |rank: u32| Ok(traces[rank as usize]);
    read_from(files, traces.len() as u32, open, Groups::new(), options)
}

/// Reads the traces of all ranks, each of which `open` opens.
fn read_from<R: Read>(
    files: &str,
    ranks: u32,
    open: impl Fn(u32) -> io::Result<R>,
    groups: Groups,
    options: &ChakraOptions,
) -> Result<Schedule, FormatError> {
    let mut job = JobReader::new(files, ranks, groups);
    for rank in 0..ranks {
        let error = |what| FormatError { file: trace_name(files, rank), line: 0, what };
        let opened = open(rank).map_err(|why| error(why.to_string()))?;
        job.rank(rank, opened).map_err(error)?;
    }
    job.finish(options)
}

/// Makes the schedule of a training step, as [`read`] does from the files that [`Training::write`]
/// writes.
///
/// # Errors
/// Returns the number that is out of range, or what an algorithm cannot do.
pub fn training(training: &Training, options: &ChakraOptions) -> Result<Schedule, FormatError> {
    let files = "training";
    let fault = |what: String| FormatError { file: files.to_owned(), line: 0, what };
    training.check().map_err(fault)?;
    let mut job = JobReader::new(files, training.ranks(), training.groups());
    let mut trace = Vec::new();
    for rank in 0..training.ranks() {
        trace.clear();
        training.write_rank(rank, &mut trace).map_err(|error| fault(error.to_string()))?;
        job.rank(rank, trace.as_slice()).map_err(fault)?;
    }
    job.finish(options)
}

/// Returns the number of ranks that have a file.
fn count_ranks(files: &Path) -> Result<u32, String> {
    let name = files.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((front, behind)) = name.split_once("%d") else {
        return Err(format!(
            "the name is that of one rank; expected %d in place of its number, such as job.%d.{EXTENSION}"
        ));
    };
    let folder = files.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut found: Vec<u32> = Vec::new();
    let entries = folder.read_dir().map_err(|error| format!("cannot list the files: {error}"))?;
    for entry in entries {
        let entry = entry.map_err(|error| format!("cannot list the files: {error}"))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(front)?.strip_suffix(behind));
        let digits = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        // A number with leading zeros is not the name that `%d` stands for.
        let rank = digits.and_then(|text| Some((text, text.parse::<u32>().ok()?)));
        found.extend(rank.filter(|(text, rank)| rank.to_string() == *text).map(|(_, rank)| rank));
    }
    found.sort_unstable();
    match (0..).zip(&found).find(|(expected, rank)| expected != *rank) {
        Some((missing, _)) => Err(format!(
            "rank {missing} has no file, and rank {} has; expected one for each rank from 0 on",
            found[found.len() - 1]
        )),
        None if found.is_empty() => {
            Err("no file has a number in place of %d; expected one for each rank".to_owned())
        }
        None => Ok(found.len() as u32),
    }
}

/// Ranks of each process group, by name.
type Groups = BTreeMap<String, Vec<u32>>;

/// Returns what is wrong with the ranks of a group, if anything is.
fn group_error(name: &str, members: &[u32], ranks: u32) -> Option<String> {
    if let Some(rank) = members.iter().find(|rank| **rank >= ranks) {
        return Some(format!("group {name} has rank {rank}, expected 0 to {}", ranks - 1));
    }
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    if sorted.is_empty() {
        return Some(format!("group {name} has no rank, expected one at least"));
    }
    let twice = sorted.windows(2).find(|pair| pair[0] == pair[1])?;
    Some(format!("group {name} has rank {} twice, expected once", twice[0]))
}

fn read_groups(path: &Path, ranks: u32) -> Result<Groups, FormatError> {
    let fault = |what: String| FormatError { file: path.display().to_string(), line: 0, what };
    let text = read_text(path).map_err(|error| fault(error.to_string()))?;
    let groups: Groups = serde_json::from_str(&text).map_err(|error| FormatError {
        line: error.line(),
        ..fault(format!("{error}; expected the ranks of each group, such as {{\"1\": [0, 1]}}"))
    })?;
    match groups.iter().find_map(|(name, members)| group_error(name, members, ranks)) {
        Some(what) => Err(fault(what)),
        None => Ok(groups),
    }
}

/// The participation of a rank in a collective, or in a split of one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Participation {
    kind: CollectiveKind,
    bytes: u64,
    /// Operations that begin and end the rank's participation.
    begin: u32,
    end: u32,
}

/// The traces of a job while they are read.
struct JobReader {
    ranks: u32,
    operations: Vec<Operation>,
    waits: Vec<Wait>,
    names: NodeNames,
    /// Index of each name of a node.
    known: HashMap<String, u32>,
    groups: Groups,
    /// Collectives of each rank in each group, in the order of its file.
    parts: BTreeMap<String, BTreeMap<u32, Vec<Participation>>>,
    /// Tag of the next message of a collective.
    tag: u64,
    /// Messages of collectives, and the time of those within a host.
    plans: HashMap<Collective, Rc<Plan>>,
    inner: HashMap<Collective, Picos>,
}

impl JobReader {
    fn new(files: &str, ranks: u32, groups: Groups) -> Self {
        Self {
            ranks,
            operations: Vec::new(),
            waits: Vec::new(),
            names: NodeNames { files: files.to_owned(), ..NodeNames::default() },
            known: HashMap::new(),
            groups,
            parts: BTreeMap::new(),
            tag: FIRST_TAG,
            plans: HashMap::new(),
            inner: HashMap::new(),
        }
    }

    fn operation(&mut self, rank: u32, place: u32, kind: Kind) -> Result<u32, String> {
        let index = self.operations.len();
        if index == MOST_OPERATIONS || self.waits.len() > MOST_WAITS {
            return Err(format!(
                "the job has more than {MOST_OPERATIONS} operations or {MOST_WAITS} dependencies, the most possible; \
                 choose a larger chunk"
            ));
        }
        self.operations.push(Operation { rank, place, kind });
        Ok(index as u32)
    }

    fn wait(&mut self, of: u32, before: u32) {
        self.waits.push(Wait { of, before, started: false });
    }

    /// Reads the trace of a rank.
    fn rank(&mut self, rank: u32, from: impl Read) -> Result<(), String> {
        let mut messages = Messages::new(from);
        let metadata = messages.next::<GlobalMetadata>();
        let metadata = metadata.map_err(|what| format!("the metadata: {what}"))?;
        let metadata = metadata.ok_or("the file is empty; expected a Chakra trace")?;
        check(&metadata)?;
        // Chakra's converter of PyTorch's traces copies their metadata. The converter writes real
        // dependencies as data dependencies and leaves the call-stack parent as a control dependency.
        let from_pytorch = metadata.attr.iter().any(|attr| attr.name == SCHEMA);
        // Operations that end each node, and dependencies on nodes that may be further down.
        let mut ends: HashMap<u64, u32> = HashMap::new();
        let mut waits: Vec<(u32, u64, bool)> = Vec::new();
        let mut last = String::new();
        loop {
            let node = messages.next::<Node>();
            let Some(node) = node.map_err(|what| format!("the message{last}: {what}"))? else {
                break;
            };
            let place = self.name(&node)?;
            let describe = || format!("node {} `{}`", node.id, node.name);
            let (begin, end) =
                self.node(rank, place, &node).map_err(|what| format!("{}: {what}", describe()))?;
            if ends.insert(node.id, end).is_some() {
                return Err(format!("{}: a node before it has the same number", describe()));
            }
            waits.extend(node.data_deps.iter().map(|&id| (begin, id, true)));
            if !from_pytorch {
                waits.extend(node.ctrl_deps.iter().map(|&id| (begin, id, false)));
            }
            last = format!(" behind {}", describe());
        }
        for (begin, id, needed) in waits {
            match ends.get(&id) {
                Some(&end) => self.wait(begin, end),
                None if needed => {
                    let place = self.operations[begin as usize].place as usize;
                    let (node, name) = self.names.nodes[place];
                    return Err(format!(
                        "node {node} `{}`: it depends on node {id}, which is not in the file; write the file again",
                        self.names.names[name as usize]
                    ));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Records number and name of a node. Returns its place.
    fn name(&mut self, node: &Node) -> Result<u32, String> {
        let place = self.names.nodes.len();
        if place >= MOST_OPERATIONS {
            return Err(format!(
                "the job has more than {MOST_OPERATIONS} nodes, the most possible"
            ));
        }
        let name = match self.known.get(&node.name) {
            Some(&name) => name,
            None => {
                let name = self.names.names.len() as u32;
                self.names.names.push(node.name.clone());
                self.known.insert(node.name.clone(), name);
                name
            }
        };
        self.names.nodes.push((node.id, name));
        Ok(place as u32)
    }

    /// Adds the operations of a node. Returns those that begin and end it.
    fn node(&mut self, rank: u32, place: u32, node: &Node) -> Result<(u32, u32), String> {
        let attribute = |name: &str| node.attr.iter().find(|attr| attr.name == name);
        let number = |name: &str| match attribute(name).map(Attribute::number) {
            None => Ok(None),
            Some(Some(number)) => Ok(Some(number)),
            Some(None) => {
                Err(format!("{name} is no number, expected a whole one that is not negative"))
            }
        };
        let needed = |name: &str| {
            number(name)?.ok_or_else(|| {
                format!("it has no attribute {name}, which a node of its kind needs")
            })
        };
        let other = |name: &str| {
            let peer = needed(name)?;
            u32::try_from(peer).ok().filter(|peer| *peer < self.ranks).ok_or_else(|| {
                format!("{name} is {peer}, expected a rank from 0 to {}", self.ranks - 1)
            })
        };
        let own = |name: &str| match number(name)? {
            Some(own) if own != u64::from(rank) => {
                Err(format!("{name} is {own}, expected {rank}: the rank of its file"))
            }
            _ => Ok(()),
        };
        let time = Picos(node.duration_micros.saturating_mul(PS));
        let on_host = attribute("is_cpu_op").is_some_and(|of| of.value == Some(Value::Bool(true)));
        let kind = match node.kind {
            // A simulator skips nodes that are marked invalid, as ASTRA-sim does.
            0 => Kind::JOIN,
            1 => {
                self.pytorch_groups(node)?;
                Kind::JOIN
            }
            // Loads and stores of memory that is not local.
            2 | 3 => Kind::Delay { time, exchanges: false },
            4 if on_host => Kind::Delay { time, exchanges: false },
            // The host-side call; a separate node describes the kernel that communicates.
            5..=7 if on_host && !node.attr.iter().any(|of| of.name.starts_with("comm_")) => {
                Kind::Delay { time, exchanges: false }
            }
            4 => Kind::Calc { ns: node.duration_micros.saturating_mul(NS), cpu: ACCELERATOR },
            5 => {
                own("comm_src")?;
                let tag = number("comm_tag")?.unwrap_or(0) & (FIRST_TAG - 1);
                Kind::Send { to: other("comm_dst")?, bytes: needed("comm_size")?, tag }
            }
            6 => {
                own("comm_dst")?;
                let tag = number("comm_tag")?.unwrap_or(0) & (FIRST_TAG - 1);
                Kind::Receive { from: Some(other("comm_src")?), tag: Some(tag) }
            }
            7 => {
                let kind = collective(needed("comm_type")?)?;
                let bytes = match kind {
                    CollectiveKind::Barrier => 1,
                    _ => needed("comm_size")?,
                };
                if let Some(Value::BoolList(list)) =
                    attribute("involved_dim").and_then(|of| of.value.as_ref())
                    && !list.values.iter().all(|&involved| involved)
                {
                    return Err("involved_dim leaves out a dimension of the network, which has only one here; \
                                give it a process group (pg_name)"
                        .to_owned());
                }
                let group = match attribute("pg_name").and_then(|of| of.value.as_ref()) {
                    Some(Value::String(name)) => name.clone(),
                    Some(Value::Int32(number)) => number.to_string(),
                    Some(Value::Int64(number)) => number.to_string(),
                    _ => String::new(),
                };
                return self.add_participation(rank, place, group, kind, bytes);
            }
            8..=10 => {
                return Err(format!(
                    "it is of kind {}, an operation of storage, which is not simulated; remove such nodes",
                    node.kind
                ));
            }
            other => {
                return Err(format!(
                    "it is of kind {other}, expected 1 to 7: those of schema {VERSION}"
                ));
            }
        };
        let operation = self.operation(rank, place, kind)?;
        Ok((operation, operation))
    }

    /// Adds the participation of a rank in a collective. It begins when the rank's participation before
    /// it in the group has ended.
    fn add_participation(
        &mut self,
        rank: u32,
        place: u32,
        group: String,
        kind: CollectiveKind,
        bytes: u64,
    ) -> Result<(u32, u32), String> {
        let begin = self.operation(rank, place, Kind::JOIN)?;
        let end = self.operation(rank, place, Kind::JOIN)?;
        let parts = self.parts.entry(group).or_default().entry(rank).or_default();
        let before = parts.last().map(|part| part.end);
        parts.push(Participation { kind, bytes, begin, end });
        if let Some(before) = before {
            self.wait(begin, before);
        }
        Ok((begin, end))
    }

    /// Reads the process groups that a node of PyTorch lists in its inputs.
    fn pytorch_groups(&mut self, node: &Node) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Group {
            pg_name: String,
            ranks: Vec<u32>,
        }
        let values = node.inputs.as_ref().map_or("", |inputs| inputs.values.as_str());
        if !node.name.contains("process_group:init") || values.is_empty() {
            return Ok(());
        }
        // A list of Python with one text, which is JSON: ['[{"pg_name": "0", "ranks": []}]']
        let text = values.trim_start_matches("['").trim_end_matches("']");
        let text = text.strip_prefix('[').unwrap_or(text);
        let list = format!("[{}]", text.strip_suffix(']').unwrap_or(text));
        let groups: Vec<Group> = serde_json::from_str(&list)
            .map_err(|error| format!("its list of process groups: {error}"))?;
        for Group { pg_name, ranks } in groups {
            let ranks = if ranks.is_empty() { (0..self.ranks).collect() } else { ranks };
            if let Some(what) = group_error(&pg_name, &ranks, self.ranks) {
                return Err(what);
            }
            self.groups.entry(pg_name).or_insert(ranks);
        }
        Ok(())
    }

    /// Adds the messages of all collectives.
    fn finish(mut self, options: &ChakraOptions) -> Result<Schedule, FormatError> {
        let all: Vec<u32> = (0..self.ranks).collect();
        for (name, mut parts) in std::mem::take(&mut self.parts) {
            let first = parts.iter().find_map(|(_, parts)| parts.first());
            let Some(&first) = first else { continue };
            let members = match self.groups.get(&name) {
                Some(members) => members.clone(),
                None if name.is_empty() || name == "0" => all.clone(),
                None => {
                    let what = format!(
                        "there is no process group {name}; list its ranks in a file (--comm-groups)"
                    );
                    return Err(self.fault(first.begin, &what));
                }
            };
            if let Some((_, other)) = parts.iter().find(|(rank, _)| !members.contains(rank)) {
                let rank = self.operations[other[0].begin as usize].rank;
                let what = format!("rank {rank} is not in process group {name}");
                return Err(self.fault(other[0].begin, &what));
            }
            let parts: Vec<Vec<Participation>> =
                members.iter().map(|rank| parts.remove(rank).unwrap_or_default()).collect();
            self.group(&name, &members, &parts, options)?;
        }
        let Self { ranks, operations, waits, names, .. } = self;
        Ok(Schedule { ranks, operations, waits, names: Names::Nodes(names) })
    }

    /// Makes an error at the node of an operation.
    fn fault(&self, operation: u32, what: &str) -> FormatError {
        let Operation { rank, place, .. } = self.operations[operation as usize];
        let (node, name) = self.names.nodes[place as usize];
        let what = format!("node {node} `{}`: {what}", self.names.names[name as usize]);
        FormatError { file: self.names.file(rank), line: 0, what }
    }

    /// Adds the messages of the collectives of a group. `parts` has the participations of each member.
    fn group(
        &mut self,
        name: &str,
        members: &[u32],
        parts: &[Vec<Participation>],
        options: &ChakraOptions,
    ) -> Result<(), FormatError> {
        let name = if name.is_empty() { "of all ranks" } else { name };
        let most = parts.iter().map(Vec::len).max().unwrap_or(0);
        let mut of_group = Vec::new();
        for number in 0..most {
            of_group.clear();
            let leader = parts.iter().find_map(|parts| parts.get(number));
            let Some(&leader) = leader else { continue };
            for (rank, parts) in members.iter().zip(parts) {
                let Some(part) = parts.get(number) else {
                    let what = format!(
                        "it waits for rank {rank}, which takes part in {} collectives of process group {name}, and this is \
                         number {}; trace all ranks",
                        parts.len(),
                        number + 1
                    );
                    return Err(self.fault(leader.begin, &what));
                };
                if (part.kind, part.bytes) != (leader.kind, leader.bytes) {
                    let what = format!(
                        "collective number {} of process group {name} is {} of {} bytes on rank {rank}, and {} of {} bytes on \
                         rank {}; expected the same",
                        number + 1,
                        part.kind,
                        part.bytes,
                        leader.kind,
                        leader.bytes,
                        self.operations[leader.begin as usize].rank,
                    );
                    return Err(self.fault(part.begin, &what));
                }
                of_group.push(*part);
            }
            let added = self.add_collective(members, &of_group, options);
            added.map_err(|what| self.fault(leader.begin, &what))?;
        }
        Ok(())
    }

    /// Adds the messages of a collective. `parts` has the participation of each member.
    fn add_collective(
        &mut self,
        members: &[u32],
        parts: &[Participation],
        options: &ChakraOptions,
    ) -> Result<(), String> {
        let splits = match parts[0].kind {
            CollectiveKind::Barrier => 1,
            _ => u64::from(options.settings.splits).clamp(1, parts[0].bytes.max(1)),
        };
        if splits == 1 {
            return self.add_split(members, parts, options);
        }
        // Ends of the splits of each member.
        let mut ends: Vec<Vec<u32>> = vec![Vec::new(); parts.len()];
        for split in 0..splits {
            let mut split_parts = parts.to_vec();
            for (part, ends) in split_parts.iter_mut().zip(&mut ends) {
                let Operation { rank, place, .. } = self.operations[part.begin as usize];
                let whole = *part;
                let bound =
                    |split: u64| u128::from(whole.bytes) * u128::from(split) / u128::from(splits);
                // A split is no longer than the whole.
                part.bytes = (bound(split + 1) - bound(split)) as u64;
                part.begin = self.operation(rank, place, Kind::JOIN)?;
                part.end = self.operation(rank, place, Kind::JOIN)?;
                let before = ends.len().checked_sub(options.settings.active_splits as usize);
                self.wait(part.begin, before.map_or(whole.begin, |before| ends[before]));
                self.wait(whole.end, part.end);
                ends.push(part.end);
            }
            self.add_split(members, &split_parts, options)?;
        }
        Ok(())
    }

    /// Adds the messages of a split of a collective, which may be the whole.
    fn add_split(
        &mut self,
        members: &[u32],
        parts: &[Participation],
        options: &ChakraOptions,
    ) -> Result<(), String> {
        let leader = parts[0];
        let collective = collective_of(&leader, members, options);
        if members.len() == 1 {
            self.wait(leader.end, leader.begin);
            Ok(())
        } else if collective.hosts.iter().all(|host| *host == 0) {
            self.add_exchange_within_host(&collective, parts, options)
        } else {
            self.add_messages_between_hosts(collective, members, parts, &options.settings)
        }
    }

    /// Returns the messages of a collective.
    fn plan(&mut self, collective: Collective) -> Result<Rc<Plan>, String> {
        if let Some(plan) = self.plans.get(&collective) {
            return Ok(Rc::clone(plan));
        }
        if self.plans.len() >= KEPT_PLANS {
            self.plans.clear();
        }
        let plan = Rc::new(collective.plan()?);
        self.plans.insert(collective, Rc::clone(&plan));
        Ok(plan)
    }

    /// Adds the messages of a collective between ranks of several hosts.
    fn add_messages_between_hosts(
        &mut self,
        collective: Collective,
        members: &[u32],
        parts: &[Participation],
        settings: &CollectiveSettings,
    ) -> Result<(), String> {
        let first = self.tag;
        let plan = self.plan(collective)?;
        self.tag += plan.transfers.len() as u64;
        add_messages(&plan, members.len() as u32, first, settings, &mut |step| match step {
            Step::Operation(member, kind) => {
                let part = parts[member as usize];
                let place = self.operations[part.begin as usize].place;
                let kind = match kind {
                    Kind::Send { to, bytes, tag } => {
                        Kind::Send { to: members[to as usize], bytes, tag }
                    }
                    Kind::Receive { from, tag } => {
                        Kind::Receive { from: from.map(|from| members[from as usize]), tag }
                    }
                    other => other,
                };
                self.operation(members[member as usize], place, kind)
            }
            Step::AfterBegin { operation, rank } => {
                self.wait(operation, parts[rank as usize].begin);
                Ok(operation)
            }
            Step::After { operation, before } => {
                self.wait(operation, before);
                Ok(operation)
            }
            Step::BeforeEnd { operation, rank } => {
                self.wait(parts[rank as usize].end, operation);
                Ok(operation)
            }
            Step::Idle { rank } => {
                let part = parts[rank as usize];
                self.wait(part.end, part.begin);
                Ok(part.end)
            }
        })
    }

    /// Adds a collective among ranks of one host.
    fn add_exchange_within_host(
        &mut self,
        collective: &Collective,
        parts: &[Participation],
        options: &ChakraOptions,
    ) -> Result<(), String> {
        let time = match self.inner.get(collective) {
            Some(&time) => time,
            None => {
                let time = time_within_host(&collective.plan()?, parts.len() as u32, options)?;
                if self.inner.len() >= KEPT_PLANS {
                    self.inner.clear();
                }
                self.inner.insert(collective.clone(), time);
                time
            }
        };
        let leader = self.operations[parts[0].begin as usize];
        let all = self.operation(leader.rank, leader.place, Kind::JOIN)?;
        for part in parts {
            self.wait(all, part.begin);
            self.wait(part.end, all);
            self.operations[part.end as usize].kind = Kind::Delay { time, exchanges: true };
        }
        Ok(())
    }
}

/// Returns the collective of a participation, among the ranks of its group.
fn collective_of(part: &Participation, members: &[u32], options: &ChakraOptions) -> Collective {
    let mut hosts: Vec<u32> = Vec::new();
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    for &rank in members {
        let next = numbers.len() as u32;
        hosts.push(*numbers.entry(options.placement.host(rank)).or_insert(next));
    }
    let algorithm = options.algorithms.of(part.kind);
    Collective { kind: part.kind, algorithm, bytes: part.bytes, chunk: options.chunk, hosts }
}

/// Checks the version of a trace.
fn check(metadata: &GlobalMetadata) -> Result<(), String> {
    let schema = metadata.attr.iter().find(|attr| attr.name == SCHEMA);
    let schema = schema.and_then(|attr| match &attr.value {
        Some(Value::String(text)) => Some(text.as_str()),
        _ => None,
    });
    // Chakra's converter writes no version, but the schema of PyTorch's trace. Schemas before
    // 1.0.2-chakra.0.0.4 do not name Chakra's.
    let is_known = match metadata.version.as_str() {
        "" => schema.is_none_or(|schema| {
            schema.split_once("chakra.").is_none_or(|(_, version)| version == VERSION)
        }),
        version => version == VERSION,
    };
    if is_known {
        return Ok(());
    }
    let found = if metadata.version.is_empty() { schema.unwrap_or("") } else { &metadata.version };
    Err(format!(
        "schema `{found}`, expected {VERSION}; convert the trace with Chakra of that version"
    ))
}

/// Returns the kind of a collective by its number in the schema.
fn collective(number: u64) -> Result<CollectiveKind, String> {
    Ok(match number {
        0 => CollectiveKind::AllReduce,
        1 => CollectiveKind::Reduce,
        2 => CollectiveKind::AllGather,
        3 => CollectiveKind::Gather,
        4 => CollectiveKind::Scatter,
        5 => CollectiveKind::Broadcast,
        6 => CollectiveKind::AllToAll,
        7 | 8 => CollectiveKind::ReduceScatter,
        9 => CollectiveKind::Barrier,
        other => return Err(format!("comm_type is {other}, expected 0 to 9")),
    })
}

#[cfg(test)]
mod tests;
