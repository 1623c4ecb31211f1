//! Replay of recorded jobs (`FI_SQUALL_TRACE`) over another network.
//!
//! A trace holds the order in which a process saw events. Before a process began a message, it had
//! begun the message before, had received certain messages and had seen certain operations end;
//! then it computed for some time. A replay keeps these dependencies: a message starts when all
//! these events have happened again, and the computing time has passed. A trace cannot distinguish
//! the events that a program waited for from those that had merely happened before.
//!
//! - [`read`]: the files, whole or cut.
//! - [`Recording`]: the messages of all ranks, who received which, and the workload they make.
//! - [`Beside`]: recorded and simulated times next to each other.

mod beside;
mod logs;
mod recording;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use crate::formats::FormatError;

pub use beside::Beside;
pub use recording::{Message, Recording};

/// Name of the folder of traces in the record of a job.
pub const TRACE: &str = "trace";

/// Error of reading or replaying traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// A trace file is damaged, or cannot be read.
    File(FormatError),
    /// The traces do not belong together, or do not fit the network; the text says what was
    /// expected.
    Job(String),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Job(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Reads the traces of a job: a file, a folder of them, or the folder that `squall run --record`
/// wrote.
///
/// # Errors
/// Returns the file and line that is damaged, or that the traces are not of one job. A file that
/// was cut in the middle is no error: see [`Recording::doubts`].
pub fn read(path: &Path) -> Result<Recording, ReplayError> {
    Recording::new(path, &logs::read(path).map_err(ReplayError::File)?).map_err(ReplayError::Job)
}
