//! htsim's `.cm` files: connections and triggers (`ConnectionMatrix::load` of uet-htsim).
//!
//! ```text
//! Nodes 16
//! Connections 2
//! Triggers 1
//! 2->11 id 1 start 0 size 2000000 send_done_trigger 1
//! 2->4 id 2 trigger 1 size 2000000
//! trigger id 1 oneshot
//! ```
//!
//! Sizes are bytes. Times are picoseconds in the files that htsim's binaries for other transports
//! read, and microseconds in those that its UEC binary reads (`uec.cpp`, `timeFromUs`):
//! [`StartUnit`]. `barrier count N` and `multishot` are the other triggers. `recv_done_trigger K`
//! fires when everything arrived. Connections without `id` are numbered in order. `prio N` is read
//! and ignored. `addon` (csg-htsim, March 2026) has no value. With it, a connection sends again each
//! time its trigger fires. This reader accepts it only if the trigger fires at most once.

use core::fmt::Write as _;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{DefinedNames, FormatError, Place, unmarked};
use crate::workload::{Flow, Start, Trigger, TriggerKind, Workload, WorkloadError};

/// Unit of the start times of connections (`start N`) in a `.cm` file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub enum StartUnit {
    /// Start times are picoseconds, as in htsim's `.cm` files.
    #[default]
    #[serde(rename = "ps")]
    Picoseconds,
    /// Start times are microseconds, as uet-htsim's UEC binary reads them.
    #[serde(rename = "us")]
    Microseconds,
}

/// Plausible times of the last start. Matrices of which all flows start within a microsecond, or
/// one starts after a minute, probably have another unit.
const PLAUSIBLE_PS: core::ops::RangeInclusive<u64> = 1_000_000..=60_000_000_000_000;

impl StartUnit {
    /// Returns the name of the unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Picoseconds => "ps",
            Self::Microseconds => "us",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Picoseconds => Self::Microseconds,
            Self::Microseconds => Self::Picoseconds,
        }
    }

    const fn picoseconds(self) -> u64 {
        match self {
            Self::Picoseconds => 1,
            Self::Microseconds => 1_000_000,
        }
    }

    /// Returns why this unit seems wrong for a workload that was read in it; `None` if it is
    /// plausible.
    #[must_use]
    pub fn doubt(self, workload: &Workload) -> Option<String> {
        let last = workload.flows.iter().filter_map(|flow| match flow.start {
            Start::At(at) => Some(at),
            Start::Trigger(_) => None,
        });
        let last = last.max().filter(|last| *last > 0 && !PLAUSIBLE_PS.contains(last))?;
        let (one, other) = (self.name(), self.other().name());
        Some(format!(
            "the last flow of the matrix starts after {} {one}: uet-htsim's UEC binary takes `start` for microseconds, its \
             others for picoseconds; is it {other}?",
            last / self.picoseconds()
        ))
    }
}

impl core::str::FromStr for StartUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Picoseconds, Self::Microseconds];
        let found = all.into_iter().find(|unit| unit.name() == text);
        found.ok_or_else(|| format!("unit {text:?}; expected ps or us"))
    }
}

/// Numbers of connections and triggers that the header lines of a `.cm` file announce.
#[derive(Default)]
struct Header {
    connections: Option<usize>,
    triggers: Option<usize>,
}

/// Reads a workload from the text of a `.cm` file, whose start times are in picoseconds. Errors
/// name it `file`.
///
/// # Errors
/// Returns the first line that is wrong, or what does not fit together.
pub fn read(file: &str, text: &str) -> Result<Workload, FormatError> {
    read_in(StartUnit::Picoseconds, file, text)
}

/// Reads a workload from the text of a `.cm` file, whose start times are in `unit`. Errors name it
/// `file`.
///
/// # Errors
/// Returns the errors of [`read`].
pub fn read_in(unit: StartUnit, file: &str, text: &str) -> Result<Workload, FormatError> {
    let mut workload = Workload::default();
    let mut header = Header::default();
    // `named` holds the line that first names each trigger number, `defined` the index of each
    // defined trigger.
    let mut named: HashMap<u32, usize> = HashMap::new();
    let mut defined: HashMap<u32, u32> = HashMap::new();
    let mut defined_names = DefinedNames::default();
    // The lines of flows, by flow number.
    let mut lines: HashMap<u32, usize> = HashMap::new();
    // The lines of connections that may send again.
    let mut again: Vec<(usize, Start)> = Vec::new();
    for (index, line) in unmarked(text).lines().enumerate() {
        let at = Place { file, line: index + 1 };
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        let lower = first.to_ascii_lowercase();
        match lower.as_str() {
            "nodes" | "connections" | "triggers" | "failures" => {
                let &[_, value] = words.as_slice() else {
                    return at.error(format!("no number; expected '{first} NUMBER'"));
                };
                defined_names.once(at, lower.as_str())?;
                match lower.as_str() {
                    "nodes" => workload.hosts = at.number(value, first)?,
                    "connections" => header.connections = Some(at.number(value, first)?),
                    "triggers" => header.triggers = Some(at.number(value, first)?),
                    _ if value != "0" => {
                        return at.error(
                            "failures belong into the simulator's failure schedule, not here",
                        );
                    }
                    _ => {}
                }
            }
            "trigger" => {
                let trigger = read_trigger(at, &words)?;
                let place = workload.triggers.len() as u32;
                if defined.insert(trigger.id, place).is_some() {
                    return at.error(format!("trigger {} is defined twice; keep one", trigger.id));
                }
                workload.triggers.push(trigger);
            }
            _ if first.contains("->") => {
                if workload.hosts == 0 {
                    return at.error(format!(
                        "'{first}' is used before the line 'Nodes NUMBER'; move that line up"
                    ));
                }
                let mut words = words;
                let all = words.len();
                words.retain(|word| *word != "addon");
                let flow = read_flow(at, &words, unit, &mut named, workload.flows.len())?;
                if words.len() < all {
                    again.push((at.line, flow.start));
                }
                if let Some(before) = lines.insert(flow.id, at.line) {
                    let id = flow.id;
                    return at.error(format!("id {id} is that of line {before}; expected another"));
                }
                for host in [flow.src, flow.dst] {
                    if host >= workload.hosts {
                        let hosts = workload.hosts;
                        return at.error(format!(
                            "host {host} does not exist; 'Nodes {hosts}' allows 0 to {}",
                            i64::from(hosts) - 1
                        ));
                    }
                }
                workload.flows.push(flow);
            }
            _ => {
                return at.error(format!(
                    "'{first}' where 'Nodes', 'Connections', 'Triggers', 'trigger' or 'SRC->DST' was expected"
                ));
            }
        }
    }
    let whole = Place { file, line: 0 };
    if workload.hosts == 0 {
        return whole.error("no hosts; expected 'Nodes NUMBER' above zero");
    }
    if workload.flows.is_empty() {
        return whole.error("no connection; expected lines 'SRC->DST start TIME size BYTES'");
    }
    let counts = [
        ("Connections", header.connections, workload.flows.len()),
        ("Triggers", header.triggers, workload.triggers.len()),
    ];
    for (what, announced, found) in counts {
        if announced.is_some_and(|count| count != found) {
            let line = defined_names.line(&what.to_ascii_lowercase());
            return Place { file, line }.error(format!(
                "the file says '{what} {}', but there are {found}; correct the number",
                announced.unwrap_or_default()
            ));
        }
    }
    // This replaces the trigger numbers of the file by indices.
    let resolve = |number: &mut u32| match defined.get(number) {
        Some(&index) => {
            *number = index;
            Ok(())
        }
        None => {
            let line = named.get(number).copied().unwrap_or_default();
            let at = Place { file, line };
            at.error(format!(
                "trigger {number} is used but not defined; expected a line 'trigger id {number} ..'"
            ))
        }
    };
    for (line, start) in again {
        let Start::Trigger(mut number) = start else { continue };
        resolve(&mut number)?;
        let trigger = workload.triggers[number as usize];
        let activates = |of: &Flow| {
            [of.on_sent, of.on_received].iter().filter(|on| **on == Some(trigger.id)).count()
        };
        let activations: usize = workload.flows.iter().map(activates).sum();
        let fires = match trigger.kind {
            TriggerKind::OneShot => 1,
            TriggerKind::MultiShot => activations,
            TriggerKind::Barrier(count) => activations / (count as usize).max(1),
        };
        if fires > 1 {
            return Place { file, line }.error(format!(
                "'addon' is not supported with trigger {}, which fires {fires} times: a connection sends once; write one \
                 connection for each message",
                trigger.id
            ));
        }
    }
    for flow in &mut workload.flows {
        if let Start::Trigger(number) = &mut flow.start {
            resolve(number)?;
        }
        for number in [&mut flow.on_sent, &mut flow.on_received].into_iter().flatten() {
            resolve(number)?;
        }
    }
    match workload.check() {
        Ok(()) => Ok(workload),
        Err(error) => {
            let line = match error {
                WorkloadError::NeverStarts { first, .. } => lines.get(&first).copied(),
                _ => None,
            };
            Place { file, line: line.unwrap_or(0) }.error(error.to_string())
        }
    }
}

fn read_trigger(at: Place<'_>, words: &[&str]) -> Result<Trigger, FormatError> {
    let expected =
        "expected 'trigger id NUMBER oneshot', '.. multishot' or '.. barrier count NUMBER'";
    match *words {
        [_, "id", id, ref kind @ ..] => {
            let id = at.number(id, "the trigger's id")?;
            if id == 0 {
                return at.error("trigger 0 is too small; at least 1 is possible");
            }
            let kind = match *kind {
                ["oneshot"] => TriggerKind::OneShot,
                ["multishot"] => TriggerKind::MultiShot,
                ["barrier", "count", count] => match at.number(count, "the barrier's count")? {
                    0 => return at.error("a barrier of 0 is too small; at least 1 is possible"),
                    count => TriggerKind::Barrier(count),
                },
                _ => return at.error(expected),
            };
            Ok(Trigger { id, kind, delay: 0, processor: None })
        }
        _ => at.error(expected),
    }
}

/// Parses the line of a connection, which becomes a flow. The triggers of the result are still
/// numbers of the file, not indices.
fn read_flow(
    at: Place<'_>,
    words: &[&str],
    unit: StartUnit,
    named: &mut HashMap<u32, usize>,
    before: usize,
) -> Result<Flow, FormatError> {
    let Some((src, dst)) = words[0].split_once("->") else {
        return at.error("expected 'SRC->DST'");
    };
    let number = u32::try_from(before + 1).unwrap_or(u32::MAX);
    let mut flow = Flow {
        id: number,
        src: at.number(src, "the sending host")?,
        dst: at.number(dst, "the receiving host")?,
        bytes: 0,
        start: Start::At(0),
        on_started: None,
        on_sent: None,
        on_received: None,
        job: 0,
        level: 0,
    };
    let mut started = false;
    let mut keys: Vec<&str> = Vec::new();
    for pair in words[1..].chunks(2) {
        let &[key, value] = pair else {
            return at.error(format!("'{}' without a value", pair[0]));
        };
        if keys.contains(&key) {
            return at.error(format!("'{key}' appears twice; keep one"));
        }
        keys.push(key);
        let mut trigger = || -> Result<u32, FormatError> {
            let number = at.number(value, key)?;
            named.entry(number).or_insert(at.line);
            Ok(number)
        };
        match key {
            "id" => flow.id = at.number(value, key)?,
            "size" => flow.bytes = at.number(value, key)?,
            "start" | "trigger" if started => {
                return at.error("one of 'start' and 'trigger' is enough; drop the other");
            }
            "start" => {
                let Some(start) = read_start(at, value, unit)? else {
                    return at.error(format!("start {value} {} is beyond 2^64 ps", unit.name()));
                };
                flow.start = Start::At(start);
            }
            "trigger" => flow.start = Start::Trigger(trigger()?),
            "send_done_trigger" => flow.on_sent = Some(trigger()?),
            "recv_done_trigger" => flow.on_received = Some(trigger()?),
            "prio" => {
                let _: u32 = at.number(value, key)?;
            }
            _ => {
                return at.error(format!(
                    "'{key}' is unknown; a connection has id, start, trigger, size, send_done_trigger, \
                     recv_done_trigger, prio and addon"
                ));
            }
        }
        started |= matches!(key, "start" | "trigger");
    }
    if flow.id == 0 {
        return at.error("id 0 is too small; at least 1 is possible");
    }
    if flow.src == flow.dst {
        return at.error(format!("flow from host {} to itself; name two hosts", flow.src));
    }
    if flow.bytes == 0 {
        return at.error("no size; expected 'size BYTES' above zero");
    }
    Ok(flow)
}

/// Parses a start, which may have decimals. Returns picoseconds, or `None` if there are too many.
fn read_start(at: Place<'_>, word: &str, unit: StartUnit) -> Result<Option<u64>, FormatError> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match word.split_once('.') {
        Some((whole, decimals)) if !whole.is_empty() && is_digits(whole) && is_digits(decimals) => {
            let start = word.parse::<f64>().unwrap_or(f64::MAX) * unit.picoseconds() as f64;
            Ok((start < u64::MAX as f64).then(|| start.round() as u64))
        }
        _ => Ok(at.number::<u64>(word, "start")?.checked_mul(unit.picoseconds())),
    }
}

/// Returns a workload as the text of a `.cm` file that [`read`] reads back. The text leaves out
/// jobs, delays of triggers, dependencies, and the triggers that flows activate when they start.
#[must_use]
pub fn write(workload: &Workload) -> String {
    let mut text = format!("Nodes {}\nConnections {}\n", workload.hosts, workload.flows.len());
    // Writing to a string cannot fail, so the results are ignored.
    if !workload.triggers.is_empty() {
        let _ = writeln!(text, "Triggers {}", workload.triggers.len());
    }
    let id = |index: u32| workload.triggers[index as usize].id;
    for flow in &workload.flows {
        let _ = write!(text, "{}->{} id {} ", flow.src, flow.dst, flow.id);
        let _ = match flow.start {
            Start::At(time) => write!(text, "start {time}"),
            Start::Trigger(index) => write!(text, "trigger {}", id(index)),
        };
        let _ = write!(text, " size {}", flow.bytes);
        for (key, trigger) in [("send", flow.on_sent), ("recv", flow.on_received)] {
            if let Some(index) = trigger {
                let _ = write!(text, " {key}_done_trigger {}", id(index));
            }
        }
        text.push('\n');
    }
    for trigger in &workload.triggers {
        let _ = write!(text, "trigger id {} ", trigger.id);
        let _ = match trigger.kind {
            TriggerKind::OneShot => writeln!(text, "oneshot"),
            TriggerKind::MultiShot => writeln!(text, "multishot"),
            TriggerKind::Barrier(count) => writeln!(text, "barrier count {count}"),
        };
    }
    text
}
