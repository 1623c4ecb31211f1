//! Jobs that were recorded (`FI_SQUALL_TRACE`), to be run again over another network.
//!
//! A trace says in which order a process saw things happen. Before a message began its process had begun the one before,
//! had received certain messages and had seen certain operations end, and then it computed for some time. A replay keeps
//! just that: a message starts when all of it has happened again, and that time has passed. What a program did not wait
//! for, although it had happened, a trace does not tell from what it waited for.
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

/// Why traces cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// A file is damaged, or cannot be read.
    File(FormatError),
    /// They do not belong together, or do not fit the network: says what was expected.
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

/// Reads the traces of a job: a file, a folder of them, or the folder that `squall emulate run --record` left.
///
/// # Errors
/// The file and line that is damaged; that the traces are not of one job. A file that was cut in the middle is none: see
/// [`Recording::doubts`].
pub fn read(path: &Path) -> Result<Recording, ReplayError> {
    Recording::new(path, &logs::read(path).map_err(ReplayError::File)?).map_err(ReplayError::Job)
}
