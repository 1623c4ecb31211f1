//! Files: htsim's topologies and connection matrices. Errors name the file, the line and what was
//! expected there.

pub mod cm;
pub mod topo;

use core::fmt;

/// What is wrong in a file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatError {
    /// The file, as the caller calls it.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What was found and what was expected.
    pub what: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

impl core::error::Error for FormatError {}

/// Where a reader is.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: usize,
}

impl Place<'_> {
    fn error<T>(self, what: impl Into<String>) -> Result<T, FormatError> {
        Err(FormatError { file: self.file.into(), line: self.line, what: what.into() })
    }

    /// `word` as a number.
    fn number<N: core::str::FromStr>(self, word: &str, what: &str) -> Result<N, FormatError> {
        match word.parse() {
            Ok(number) => Ok(number),
            Err(_) => self.error(format!("'{word}' where a whole number was expected: {what}")),
        }
    }
}

#[cfg(test)]
mod tests;
