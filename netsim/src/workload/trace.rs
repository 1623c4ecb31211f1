//! Message traces: one message a line, as comma-separated values.
//!
//! ```text
//! id,src,dst,bytes,start_us,after
//! 1,0,5,131072,0.0,
//! 2,5,7,131072,,1
//! 3,7,0,4096,2.5,1 2
//! ```
//!
//! `start_us` (may be a fraction) is when a message starts; with `after`, numbers of messages
//! separated by spaces, it starts when all of these were received, and `start_us` must be empty or
//! zero. `after` may be missing. Lines that begin with `#` are comments.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Flow, PS_PER_US, Start, Trigger, TriggerKind, Workload, WorkloadError};
use crate::formats::read_text;

/// An error in a message trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A line is no message: it does not parse, or its values are impossible.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// Value in the line that is wrong, and what was expected there.
        what: String,
    },
}

/// The columns of a message trace: name, and whether the column must be there.
const COLUMNS: [(&str, bool); 6] = [
    ("id", true),
    ("src", true),
    ("dst", true),
    ("bytes", true),
    ("start_us", false),
    ("after", false),
];

/// A line of a message trace: one message.
struct Row {
    line: u64,
    id: u32,
    src: u32,
    dst: u32,
    bytes: u64,
    start_us: f64,
    after: String,
}

/// Returns the place of each of [`COLUMNS`], or what is wrong with the names.
fn columns(names: &csv::StringRecord) -> Result<[Option<usize>; 6], String> {
    let expected = "expected the columns id, src, dst, bytes and perhaps start_us and after";
    let mut places = [None; 6];
    for (place, name) in names.iter().enumerate() {
        let Some(column) = COLUMNS.iter().position(|(known, _)| *known == name) else {
            return Err(format!("column `{name}`, {expected}"));
        };
        if places[column].replace(place).is_some() {
            return Err(format!("column `{name}` twice, {expected}"));
        }
    }
    match COLUMNS.iter().zip(places).find(|((_, needed), place)| *needed && place.is_none()) {
        Some(((name, _), _)) => Err(format!("no column `{name}`, {expected}")),
        None => Ok(places),
    }
}

impl Row {
    fn read(
        record: &csv::StringRecord,
        places: &[Option<usize>; 6],
        hosts: u32,
    ) -> Result<Self, String> {
        let field = |column: usize| places[column].and_then(|at| record.get(at)).unwrap_or("");
        fn number<N: FromStr>(
            column: usize,
            text: &str,
            least: u64,
            most: u64,
        ) -> Result<N, String> {
            let found = text.parse::<u64>().ok().filter(|n| (least..=most).contains(n));
            // The number is in range, so it parses.
            found.and_then(|_| text.parse().ok()).ok_or_else(|| {
                let name = COLUMNS[column].0;
                format!("{name} = `{text}`, expected a whole number from {least} to {most}")
            })
        }
        let last = u64::from(hosts.saturating_sub(1));
        let row = Self {
            line: record.position().map_or(0, csv::Position::line),
            id: number(0, field(0), 1, u32::MAX.into())?,
            src: number(1, field(1), 0, last)?,
            dst: number(2, field(2), 0, last)?,
            bytes: number(3, field(3), 1, u64::MAX)?,
            start_us: match field(4) {
                "" => 0.0,
                text => {
                    let start = text.parse().ok().filter(|start| (0.0..1e12).contains(start));
                    start.ok_or_else(|| {
                        format!("start_us = `{text}`, expected 0 to 1e12 microseconds")
                    })?
                }
            },
            after: field(5).to_owned(),
        };
        if row.src == row.dst {
            return Err(format!("src and dst are both {}, expected two hosts", row.src));
        }
        if row.start_us > 0.0 && !row.after.is_empty() {
            return Err("expected start_us or after, not both".to_owned());
        }
        if record.len() > places.iter().flatten().count() {
            return Err(format!("the line has {} fields, expected one per column", record.len()));
        }
        Ok(row)
    }
}

/// Reads a trace for a network of `hosts` hosts.
///
/// # Errors
/// Returns file, line and what was expected there.
pub fn read(path: &Path, hosts: u32) -> Result<Workload, TraceError> {
    let text =
        read_text(path).map_err(|error| TraceError::Read { path: path.to_owned(), error })?;
    parse(text.as_bytes(), path, hosts)
}

/// Parses the text of a trace; error messages name it `path`.
///
/// # Errors
/// See [`read`].
pub fn parse(text: &[u8], path: &Path, hosts: u32) -> Result<Workload, TraceError> {
    let fault = |line, what: String| TraceError::Line { path: path.to_owned(), line, what };
    let csv_error = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        fault(line, format!("{error}, expected comma-separated values"))
    };
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(text);
    let places = columns(reader.headers().map_err(csv_error)?).map_err(|what| fault(1, what))?;
    let mut rows: Vec<Row> = Vec::new();
    let mut index: HashMap<u32, usize> = HashMap::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(csv_error)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = Row::read(&record, &places, hosts).map_err(|what| fault(line, what))?;
        if let Some(before) = index.insert(row.id, rows.len()) {
            let what =
                format!("id {} is that of line {}, expected another", row.id, rows[before].line);
            return Err(fault(line, what));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(fault(1, "no message, expected a line for each".to_owned()));
    }

    let mut workload = Workload { hosts, ..Workload::default() };
    let mut waits: Vec<(u64, usize, Vec<usize>)> = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let &Row { id, src, dst, bytes, .. } = row;
        // The start was checked to be in range.
        let start = Start::At((row.start_us * PS_PER_US as f64) as u64);
        let (on_started, on_sent, on_received, job, level) = (None, None, None, 0, 0);
        let flow =
            Flow { id, src, dst, bytes, start, on_started, on_sent, on_received, job, level };
        workload.flows.push(flow);
        let mut before = Vec::new();
        for word in row.after.split_whitespace() {
            let found = word.parse().ok().and_then(|id: u32| index.get(&id));
            before.push(*found.ok_or_else(|| {
                let what = format!("after = `{word}`, expected the id of a message of this file");
                fault(row.line, what)
            })?);
        }
        if !before.is_empty() {
            before.sort_unstable();
            before.dedup();
            waits.push((row.line, place, before));
        }
    }
    add_triggers(&mut workload, &waits).map_err(|(line, what)| fault(line, what))?;
    workload.check().map_err(|error| {
        let line = match &error {
            WorkloadError::NeverStarts { first, .. } => index.get(first).map(|&at| rows[at].line),
            _ => None,
        };
        fault(line.unwrap_or(1), error.to_string())
    })?;
    Ok(workload)
}

/// Turns the `after` lists into triggers. A message can activate two triggers, so messages that
/// share a predecessor have to wait for at most two different sets.
fn add_triggers(
    workload: &mut Workload,
    waits: &[(u64, usize, Vec<usize>)],
) -> Result<(), (u64, String)> {
    let mut sets: HashMap<&[usize], u32> = HashMap::new();
    for (line, place, before) in waits {
        let trigger = match sets.get(before.as_slice()) {
            Some(&trigger) => trigger,
            None => {
                let trigger = u32::try_from(workload.triggers.len()).unwrap_or(u32::MAX);
                let kind = match u32::try_from(before.len()) {
                    Ok(1) => TriggerKind::OneShot,
                    count => TriggerKind::Barrier(count.unwrap_or(u32::MAX)),
                };
                workload.triggers.push(Trigger {
                    id: trigger.saturating_add(1),
                    kind,
                    delay: 0,
                    processor: None,
                });
                sets.insert(before, trigger);
                for &index in before {
                    let flow = &mut workload.flows[index];
                    // A message activates at most two triggers: one at its arrival, and one when
                    // its sender knows of it, which is slightly later.
                    if flow.on_received.is_none() {
                        flow.on_received = Some(trigger);
                    } else if flow.on_sent.is_none() {
                        flow.on_sent = Some(trigger);
                    } else {
                        let what = format!(
                            "message {} is waited for in more than two combinations; expected \
                             messages that wait for it to wait for the same others",
                            flow.id
                        );
                        return Err((*line, what));
                    }
                }
                trigger
            }
        };
        workload.flows[*place].start = Start::Trigger(trigger);
    }
    Ok(())
}
