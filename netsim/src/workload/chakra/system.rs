//! ASTRA-sim's system files (`Sys::initialize_sys` and `CollectiveImplLookup.cc`, version 2.2): how
//! the collectives of traces are run.
//!
//! | key | effect |
//! |---|---|
//! | `all-reduce-implementation`, and of `all-gather`, `reduce-scatter`, `all-to-all` | algorithm, a list of one |
//! | `preferred-dataset-splits` | splits of each collective |
//! | `active-chunks-per-dimension` | splits of a collective that a rank runs at a time |
//! | `endpoint-delay` | nanoseconds from the arrival of a message to its use |
//! | `local-mem-bw` | GB/s (10^9 bytes) with which a reduction reads two buffers and writes one |
//!
//! Other keys are ignored if they cannot change these, and refused otherwise.

use std::path::Path;

use serde_json::{Map, Value};
use squall_base::Rate;

use super::super::collectives::CollectiveAlgorithms;
use crate::Picos;
use crate::formats::{FormatError, read_text};

/// Maximum number of splits of a collective.
const MOST_SPLITS: u64 = 1 << 16;
/// Maximum delay in nanoseconds, and rate of the memory in gigabytes per second.
const MOST_NANOS: f64 = 1e9;
const MAX_GIGABYTES_PER_S: f64 = 1e6;

/// How a rank runs a collective: number of splits, splits at a time, delay and reduction rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveSettings {
    /// Number of splits into which each collective is divided.
    pub splits: u32,
    /// Number of splits of a collective that a rank runs at a time.
    pub active_splits: u32,
    /// Time from the arrival of a message of a collective to its use.
    pub delay: Picos,
    /// Rate with which a reduction reads two buffers and writes one; `None` if it takes no time.
    pub memory_rate: Option<Rate>,
}

impl Default for CollectiveSettings {
    fn default() -> Self {
        Self { splits: 1, active_splits: 1, delay: Picos::ZERO, memory_rate: None }
    }
}

impl CollectiveSettings {
    /// Returns how long a rank needs before it may use a message that it received, and that it adds
    /// to its own buffer if `adds` is set.
    pub(super) fn delay(&self, bytes: u64, adds: bool) -> Picos {
        let reduction = match self.memory_rate {
            Some(rate) if adds => Picos::transmit(rate, bytes.saturating_mul(3)),
            _ => Picos::ZERO,
        };
        Picos(self.delay.0.saturating_add(reduction.0))
    }
}

/// A system file: how the collectives of a job are run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SystemFile {
    /// Algorithms of the collectives.
    pub algorithms: CollectiveAlgorithms,
    /// How a rank runs them.
    pub settings: CollectiveSettings,
}

/// Reads a system file.
///
/// # Errors
/// Returns an error for a key or value that is not supported, with the values that are.
pub fn read(path: &Path) -> Result<SystemFile, FormatError> {
    let file = path.display().to_string();
    match read_text(path) {
        Ok(text) => parse(&file, &text),
        Err(error) => Err(FormatError { file, line: 0, what: error.to_string() }),
    }
}

/// Parses the text of a system file; error messages name it `file`.
///
/// # Errors
/// See [`read`].
pub fn parse(file: &str, text: &str) -> Result<SystemFile, FormatError> {
    let fault = |line, what| FormatError { file: file.to_owned(), line, what };
    let keys: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        fault(error.line(), format!("{error}; expected a system file of ASTRA-sim"))
    })?;
    // The place of a key is that of its name.
    let line = |key: &str| {
        let name = format!("\"{key}\"");
        text.lines().position(|line| line.contains(&name)).map_or(0, |line| line + 1)
    };
    let mut system = SystemFile::default();
    let mut algorithms = Vec::new();
    for (key, value) in &keys {
        let read = match key.strip_suffix("-implementation") {
            Some(kind) => algorithm(kind, value).map(|choice| algorithms.push(choice)),
            None => system.settings.set(key, value),
        };
        read.map_err(|what| fault(line(key), format!("{key}: {what}")))?;
    }
    let algorithms = algorithms.join(",");
    system.algorithms = algorithms.parse().map_err(|what| fault(0, what))?;
    Ok(system)
}

/// Returns the algorithm of a kind of collectives as `kind=algorithm`.
fn algorithm(kind: &str, value: &Value) -> Result<String, String> {
    let name = match value.as_array().map(Vec::as_slice) {
        Some([Value::String(name)]) => name.as_str(),
        Some(list) if list.len() > 1 => {
            let hierarchical = format!("{kind}=hierarchical");
            let two = match hierarchical.parse::<CollectiveAlgorithms>() {
                Ok(_) => format!(", or use --collective {hierarchical} with --ranks-per-host"),
                Err(_) => String::new(),
            };
            return Err(format!(
                "{} dimensions are not simulated; give one algorithm{two}",
                list.len()
            ));
        }
        _ => return Err(format!("{value}, expected a list of one name, such as [\"ring\"]")),
    };
    // ASTRA-sim's names that begin with `one` join all dimensions to one.
    let algorithm = match name {
        "ring" | "oneRing" => "ring",
        "direct" | "oneDirect" => "direct",
        "halvingDoubling" | "oneHalvingDoubling" => "halving-doubling",
        "doubleBinaryTree" => "double-binary-tree",
        _ => {
            return Err(format!(
                "`{name}` is not simulated, expected ring, direct, halvingDoubling or doubleBinaryTree"
            ));
        }
    };
    let choice = format!("{kind}={algorithm}");
    choice.parse::<CollectiveAlgorithms>().map(|_| choice)
}

impl CollectiveSettings {
    /// Applies a key that is not an algorithm.
    fn set(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let number = |most: f64| {
            let number = value.as_f64().filter(|number| (0.0..=most).contains(number));
            number.ok_or_else(|| format!("{value} is not a number in 0..={most}"))
        };
        let count = || {
            let count = value.as_u64().filter(|count| (1..=MOST_SPLITS).contains(count));
            let count = count.and_then(|count| u32::try_from(count).ok());
            count.ok_or_else(|| format!("{value} is not a whole number in 1..={MOST_SPLITS}"))
        };
        match key {
            "preferred-dataset-splits" => self.splits = count()?,
            "active-chunks-per-dimension" => self.active_splits = count()?,
            "endpoint-delay" => self.delay = Picos((number(MOST_NANOS)? * 1000.0).round() as u64),
            "local-mem-bw" => {
                let rate = Rate((number(MAX_GIGABYTES_PER_S)? * 8e9).round() as u64);
                self.memory_rate = (rate.0 > 0).then_some(rate);
            }
            // These features are not simulated, so they must be off.
            "model-shared-bus" | "roofline-enabled" | "replay-only" | "boost-mode" => {
                if value.as_f64() != Some(0.0) {
                    return Err(format!("{value} is not simulated, expected 0"));
                }
            }
            // The collectives of a group run in the order of the files.
            "scheduling-policy" if !matches!(value.as_str(), Some("FIFO" | "LIFO")) => {
                return Err(format!("{value} is not simulated, expected \"FIFO\" or \"LIFO\""));
            }
            // These have an effect with a shared bus, a roofline or several dimensions alone, or on
            // what is recorded.
            "scheduling-policy"
            | "collective-optimization"
            | "intra-dimension-scheduling"
            | "inter-dimension-scheduling"
            | "local-reduction-delay"
            | "peak-perf"
            | "L"
            | "o"
            | "g"
            | "G"
            | "trace-enabled"
            | "track-local-mem"
            | "local-mem-trace-filename" => {}
            _ => {
                return Err(
                    "this key is not supported; remove it (collective algorithms can be given with --collective)"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}
