//! Reader of the trace files of a job.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use squall_monitor::trace::{EXTENSION, TraceEvent, TraceHeader, TraceLine};

use super::TRACE;
use crate::formats::{FormatError, read_text};

/// Trace of one endpoint: the operations of its application.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) file: String,
    pub(super) header: TraceHeader,
    pub(super) peers: HashMap<u32, SocketAddr>,
    pub(super) events: Vec<TraceEvent>,
    /// Last complete line of a trace without an end; `None` if the trace is complete.
    pub(super) cut: Option<usize>,
}

fn fault(file: &str, line: usize, what: impl Into<String>) -> FormatError {
    FormatError { file: file.to_owned(), line, what: what.into() }
}

/// Reads all traces of a job from a file, a folder of files, or the record of a job that contains
/// such a folder.
pub(super) fn read(path: &Path) -> Result<Vec<Log>, FormatError> {
    let read_error =
        |error: std::io::Error| fault(&path.display().to_string(), 0, error.to_string());
    let kind = fs::metadata(path).map_err(read_error)?;
    if !kind.is_dir() {
        return Ok(vec![log(path)?]);
    }
    let within = path.join(TRACE);
    let folder = if within.is_dir() { &within } else { path };
    let entries = fs::read_dir(folder).map_err(read_error)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(read_error)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == EXTENSION));
    files.sort();
    if files.is_empty() {
        let what = format!("no `*.{EXTENSION}` in it, expected what FI_SQUALL_TRACE leaves");
        return Err(fault(&folder.display().to_string(), 0, what));
    }
    files.iter().map(|file| log(file)).collect()
}

fn log(path: &Path) -> Result<Log, FormatError> {
    let file = path.display().to_string();
    let text = read_text(path).map_err(|error| fault(&file, 0, error.to_string()))?;
    parse(&file, &text)
}

/// Parses the text of a trace. Text after the last line break was cut, and is ignored.
pub(super) fn parse(file: &str, text: &str) -> Result<Log, FormatError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = (1..).zip(whole.split('\n'));
    let first = lines.next().map_or("", |(_, line)| line);
    let header = first.parse().map_err(|what: String| fault(file, 1, what))?;
    let mut log = Log {
        file: file.to_owned(),
        header,
        peers: HashMap::new(),
        events: Vec::new(),
        cut: Some(1),
    };
    for (number, line) in lines {
        if log.cut.is_none() {
            return Err(fault(file, number, "expected nothing behind `closed`"));
        }
        log.cut = Some(number);
        match line.parse().map_err(|what: String| fault(file, number, what))? {
            TraceLine::Peer { number, address } => {
                log.peers.insert(number, address);
            }
            TraceLine::Event(event) if log.peers.contains_key(&event.peer) => {
                log.events.push(event);
            }
            TraceLine::Event(event) => {
                let what = format!("peer {}, expected one that a line above names", event.peer);
                return Err(fault(file, number, what));
            }
            TraceLine::Closed { .. } => log.cut = None,
        }
    }
    Ok(log)
}
