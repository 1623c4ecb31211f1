//! Files: htsim's topologies and connection matrices, and any network as a graph. Errors name the file, the line and what was
//! expected there.

pub mod cm;
pub mod graph;
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

/// Reads a topology of either kind: a graph begins with the word `Graph`, htsim's `.topo` does not.
///
/// # Errors
/// The first line that is wrong, or what is wrong with the whole.
pub fn topology(file: &str, text: &str) -> Result<crate::topology::Topology, FormatError> {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
    if first.eq_ignore_ascii_case("graph") {
        return graph::read(file, text);
    }
    match topo::read(file, text)?.build() {
        Ok(topology) => Ok(topology),
        Err(error) => Place { file, line: 0 }.error(error.0),
    }
}

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
