//! File formats: htsim's topologies and connection matrices, ASTRA-sim's networks, and any network as
//! a graph. Errors name the file, the line and what was expected there.

pub mod astra;
pub mod cm;
pub mod graph;
pub mod ns3;
pub mod topo;

use core::fmt;
use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::{fs, io};

use crate::Picos;
use squall_base::Rate;

/// An error in a file of a topology or workload, with file and line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Description of what was found in the file and what was expected there.
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

/// Reads a topology of any kind: a graph begins with the word `Graph`, and ASTRA-sim's networks with
/// a key and a colon or, those of its ns-3 backend, with numbers; other files are htsim's `.topo`.
///
/// # Errors
/// Returns the first line that is wrong, or what is wrong with the whole.
pub fn topology(file: &str, text: &str) -> Result<crate::topology::Topology, FormatError> {
    let text = unmarked(text);
    if is_graph(text) {
        return graph::read(file, text);
    }
    let first = first_line(text);
    if astra::is_astra(first) {
        return astra::read(file, text);
    }
    if ns3::is_ns3(first) {
        return ns3::read(file, text);
    }
    if first.starts_with('{') {
        let what = "a JSON file is not a topology: ASTRA-sim's logical-dims files list no links; give its network.yml or \
                    its ns-3 topology";
        return Place { file, line: 0 }.error(what);
    }
    match topo::read(file, text)?.build() {
        Ok(topology) => Ok(topology),
        Err(error) => Place { file, line: 0 }.error(error.0),
    }
}

/// Returns whether a text is that of a graph.
#[must_use]
pub fn is_graph(text: &str) -> bool {
    first_line(unmarked(text)).eq_ignore_ascii_case("graph")
}

/// Returns the first line that has more than a comment, without it.
fn first_line(text: &str) -> &str {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

/// Reads the text of a file.
///
/// # Errors
/// Returns the error of the operating system, that the file is a device (which may have no end), or
/// the line that is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    utf8(read_bytes(path)?)
}

/// Reads a file.
///
/// # Errors
/// Returns the error of the operating system, or that the file is a device (which may have no end).
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a device, expected a file"));
    }
    fs::read(path)
}

/// Converts the bytes of a file to text.
///
/// # Errors
/// Returns the line that is not UTF-8.
pub(crate) fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..good].iter().filter(|&&byte| byte == b'\n').count();
        let what = format!("line {line} is not UTF-8, expected text");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Returns the text without the byte order mark that some editors write first.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Names that a file has defined so far, with their lines.
#[derive(Default)]
struct DefinedNames(HashMap<String, usize>);

impl DefinedNames {
    /// Records that `what` is defined at a place, or returns an error if it was defined before.
    fn once(&mut self, at: Place<'_>, what: impl Into<String>) -> Result<(), FormatError> {
        let what = what.into();
        match self.0.get(&what) {
            Some(first) => {
                at.error(format!("'{what}' appears twice, first in line {first}; keep one"))
            }
            None => {
                self.0.insert(what, at.line);
                Ok(())
            }
        }
    }

    /// Returns the line that defined `what`; 0 if there is none.
    fn line(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or(0)
    }
}

/// Place in a file that is being read: the name of the file and the line, which errors state.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    line: usize,
}

impl Place<'_> {
    fn error<T>(self, what: impl Into<String>) -> Result<T, FormatError> {
        Err(FormatError { file: self.file.into(), line: self.line, what: what.into() })
    }

    /// Parses `word` as a whole number. Errors say that it was expected as `what`.
    fn number<N: TryFrom<u64>>(self, word: &str, what: &str) -> Result<N, FormatError> {
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if !digits {
            return self.error(format!("'{word}' where a whole number was expected: {what}"));
        }
        match word.parse().ok().and_then(|number: u64| N::try_from(number).ok()) {
            Some(number) => Ok(number),
            None => {
                // The shift gives the largest value of `N`, because all number types are unsigned.
                let most = u64::MAX >> (64 - 8 * size_of::<N>());
                self.error(format!("{what} {word} is too large; at most {most} is possible"))
            }
        }
    }

    /// Parses a rate in units of `unit` bits per second.
    fn rate(self, word: &str, what: &str, unit: u64) -> Result<Rate, FormatError> {
        let number: u64 = self.number(word, what)?;
        match number.checked_mul(unit).filter(|&rate| rate <= MOST_RATE) {
            Some(rate) => Ok(Rate(rate)),
            None => self.error(format!(
                "{what} {number} is too large; at most {} is possible",
                MOST_RATE / unit
            )),
        }
    }

    /// Parses the latency of a link or switch, a whole number of nanoseconds.
    fn latency(self, word: &str, what: &str) -> Result<Picos, FormatError> {
        let nanos: u64 = self.number(word, what)?;
        if nanos > MOST_NANOS {
            let text = format!("{what} {nanos} is too large; at most {MOST_NANOS} is possible");
            return self.error(text);
        }
        Ok(Picos::nanos(nanos))
    }
}

/// Maximum rate of a link, bits per second: 100 Tb/s.
const MOST_RATE: u64 = 100_000_000_000_000;
/// Maximum latency of a link or a switch that a file may give, nanoseconds: one second.
const MOST_NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
