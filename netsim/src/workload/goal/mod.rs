//! GOAL schedules: the messages and computations of each rank of a job, and their dependencies
//! (Hoefler, Siebert and Lumsdaine, "Group Operation Assembly Language", ICPP 2009), in the text
//! form that LogGOPSim's `txt2bin` takes, or in the binary form that it makes.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 1000
//! l2: send 8192b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 8192b from 0 tag 7
//! l2: calc 500 cpu 1
//! l2 irequires l1
//! }
//! ```
//!
//! `calc` takes a time in nanoseconds. An operation that `requires` another begins when that has
//! ended, and one that `irequires` another when that has begun. A `cpu` of a rank runs one
//! calculation at a time; `nic` is read and has no effect. `-1` for a source or a tag matches any.

mod binary;
mod text;

use std::path::Path;

use super::schedule::{Names, Schedule};
use crate::formats::{FormatError, read_bytes, utf8};

/// Extensions of the file names of schedules: LogGOPSim's and ATLAHS's, of either form.
const EXTENSIONS: [&str; 2] = ["goal", "bin"];

/// Returns whether a file is a schedule, by its name.
#[must_use]
pub fn is_goal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| *known == extension))
}

/// Reads a schedule of either form.
///
/// # Errors
/// Returns the file and line that is wrong: no GOAL, or a rank or a label that does not exist.
pub fn read(path: &Path) -> Result<Schedule, FormatError> {
    let file = path.display().to_string();
    let fault = |error: std::io::Error| FormatError {
        file: file.clone(),
        line: 0,
        what: error.to_string(),
    };
    parse_bytes(&file, read_bytes(path).map_err(fault)?)
}

/// Parses the bytes of a schedule of either form; error messages name it `file`.
///
/// # Errors
/// See [`read`].
pub fn parse_bytes(file: &str, bytes: Vec<u8>) -> Result<Schedule, FormatError> {
    if binary::is_binary(&bytes) {
        return binary::parse(file, &bytes);
    }
    let text = utf8(bytes).map_err(|error| FormatError {
        file: file.to_owned(),
        line: 0,
        what: error.to_string(),
    })?;
    parse(file, &text)
}

/// Parses the text of a schedule; error messages name it `file`.
///
/// # Errors
/// See [`read`].
pub fn parse(file: &str, text: &str) -> Result<Schedule, FormatError> {
    let fault = |(line, what)| FormatError { file: file.to_owned(), line, what };
    let text::ParsedSchedule { ranks, operations, waits } = text::parse(text).map_err(fault)?;
    Ok(Schedule { ranks, operations, waits, names: Names::Lines(file.to_owned()) })
}

#[cfg(test)]
mod tests;
