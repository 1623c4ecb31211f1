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

use serde::Deserialize;

use super::{Flow, PS_PER_US, Start, Trigger, TriggerKind, Workload, WorkloadError};

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read, or a line does not parse.
    #[error("{}: {error}", path.display())]
    Csv {
        /// File.
        path: PathBuf,
        /// Says line and field.
        error: csv::Error,
    },
    /// A line that parses and makes no sense.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What was expected.
        what: String,
    },
    /// The messages make no workload.
    #[error("{}: {error}", path.display())]
    Workload {
        /// File.
        path: PathBuf,
        /// What is wrong.
        error: WorkloadError,
    },
}

#[derive(Deserialize)]
struct Row {
    id: u32,
    src: u32,
    dst: u32,
    bytes: u64,
    start_us: Option<f64>,
    #[serde(default)]
    after: Option<String>,
}

/// Reads a trace for a network of `hosts` hosts.
///
/// # Errors
/// File, line and what was expected there.
pub fn read(path: &Path, hosts: u32) -> Result<Workload, TraceError> {
    let text = std::fs::read(path)
        .map_err(|error| TraceError::Csv { path: path.to_owned(), error: error.into() })?;
    parse(&text, path, hosts)
}

/// Parses the text of a trace; `path` is for messages.
///
/// # Errors
/// See [`read`].
pub fn parse(text: &[u8], path: &Path, hosts: u32) -> Result<Workload, TraceError> {
    let csv_error = |error| TraceError::Csv { path: path.to_owned(), error };
    let fault = |line, what: String| TraceError::Line { path: path.to_owned(), line, what };
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(text);
    let headers = reader.headers().map_err(csv_error)?.clone();
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(csv_error)? {
        let line = record.position().map_or(0, csv::Position::line);
        rows.push((line, record.deserialize::<Row>(Some(&headers)).map_err(csv_error)?));
    }

    let mut workload = Workload { hosts, ..Workload::default() };
    let index: HashMap<u32, usize> =
        rows.iter().enumerate().map(|(index, (_, row))| (row.id, index)).collect();
    let mut waits: Vec<(u64, usize, Vec<usize>)> = Vec::new();
    for (place, (line, row)) in rows.iter().enumerate() {
        let start = row.start_us.unwrap_or(0.0);
        if !(0.0..1e12).contains(&start) {
            let what = format!("start_us = {start}, expected 0 to 1e12 microseconds");
            return Err(fault(*line, what));
        }
        workload.flows.push(Flow {
            id: row.id,
            src: row.src,
            dst: row.dst,
            bytes: row.bytes,
            start: Start::At((start * PS_PER_US as f64) as u64),
            on_sent: None,
            on_received: None,
            job: 0,
        });
        let mut before = Vec::new();
        for word in row.after.as_deref().unwrap_or("").split_whitespace() {
            let found = word.parse().ok().and_then(|id: u32| index.get(&id));
            before.push(*found.ok_or_else(|| {
                fault(*line, format!("after = `{word}`, expected the id of a message of this file"))
            })?);
        }
        if !before.is_empty() {
            if start > 0.0 {
                let what = "expected start_us or after, not both".to_owned();
                return Err(fault(*line, what));
            }
            before.sort_unstable();
            before.dedup();
            waits.push((*line, place, before));
        }
    }
    tie(&mut workload, &waits).map_err(|(line, what)| fault(line, what))?;
    workload.check().map_err(|error| TraceError::Workload { path: path.to_owned(), error })?;
    Ok(workload)
}

/// Turns "after these" into triggers. A message pulls one trigger at its arrival, so those that
/// share a predecessor have to wait for the same set.
fn tie(workload: &mut Workload, waits: &[(u64, usize, Vec<usize>)]) -> Result<(), (u64, String)> {
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
                workload.triggers.push(Trigger { id: trigger.saturating_add(1), kind });
                sets.insert(before, trigger);
                for &index in before {
                    let flow = &mut workload.flows[index];
                    // A message pulls two triggers at most: at its arrival, and when its sender
                    // knows of it, which is a little later.
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
