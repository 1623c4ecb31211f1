//! Reading a plan, with mistakes by file and line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::SceneError;
use super::expect::{ExpectTable, Expectation};
use super::point::{self, Axis, Point};
use super::scene::folder_of;
use super::tables::{
    FailureTable, FlitsTable, ObserveTable, TopologyTable, TransportTable, WorkloadTable,
};
use squall_netsim::model::NetworkOptions;
use squall_netsim::output::Metric;

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name: that of its file, without folder and ending.
    pub name: String,
    /// One line.
    pub title: String,
    /// Paper, section and figure.
    pub source: String,
    /// What was made smaller than in the paper and why; empty if nothing was.
    pub scaled: String,
    /// Seeds to run each point with.
    pub seeds: Vec<u64>,
    /// Points of the sweep.
    pub points: Vec<Point>,
    /// What should come out.
    pub expectations: Vec<Expectation>,
    /// What tables show.
    pub metrics: Vec<Metric>,
    /// It is among the quick ones.
    pub quick: bool,
    /// Where relative paths start.
    pub folder: PathBuf,
    source_text: Source,
}

/// What is wrong with a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What was found and what was expected.
    pub what: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.line {
            0 => write!(f, "{file}: {}", self.what),
            line => write!(f, "{file}:{line}: {}", self.what),
        }
    }
}

impl std::error::Error for PlanError {}

/// A plan as it is written. The scene's tables are here only so that their mistakes are found
/// where they are; points are made from the text's table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the scene's tables are read to be checked in place")]
struct PlanTable {
    /// One line: what is tried.
    title: String,
    /// Paper, section and figure.
    #[serde(default)]
    source: String,
    /// What was made smaller than there, and why.
    #[serde(default)]
    scaled: String,
    /// Every point of the sweep is run with each (default 1).
    #[serde(default)]
    seeds: Option<Vec<u64>>,
    /// What is printed and drawn.
    #[serde(default)]
    metrics: Vec<String>,
    #[serde(default)]
    topology: TopologyTable,
    #[serde(default)]
    network: NetworkOptions,
    #[serde(default)]
    workload: WorkloadTable,
    #[serde(default)]
    transport: TransportTable,
    #[serde(default)]
    failure: Vec<FailureTable>,
    #[serde(default)]
    observe: ObserveTable,
    #[serde(default)]
    flits: Option<FlitsTable>,
    /// What is varied: keys of the scene with their values, or axes of named variants that set several keys each.
    #[serde(default)]
    sweep: Table,
    #[serde(default)]
    expect: Vec<ExpectTable>,
    #[serde(default)]
    quick: Option<QuickTable>,
}

/// `[quick]`: what is different in a quick run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickTable {
    /// Seeds (default the first).
    #[serde(default)]
    seeds: Option<Vec<u64>>,
    /// Axes of the sweep, with fewer values.
    #[serde(default)]
    sweep: Table,
    /// Keys of the scene.
    #[serde(default)]
    set: Table,
}

/// The text of a plan and where it came from.
#[derive(Clone, Debug)]
struct Source {
    file: PathBuf,
    text: String,
}

impl Source {
    fn error(&self, span: Option<Range<usize>>, what: impl fmt::Display) -> PlanError {
        let line = span.map_or(0, |span| {
            let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
            before.iter().filter(|&&byte| byte == b'\n').count() + 1
        });
        PlanError { file: self.file.clone(), line, what: what.to_string() }
    }

    /// The line of the deepest part of a path of keys that is there.
    fn at(&self, path: &[&str], what: impl fmt::Display) -> PlanError {
        let span = DeTable::parse(&self.text).ok().and_then(|root| {
            let mut span = None;
            let mut at: Option<&DeValue<'_>> = None;
            for word in path {
                let next: Option<&Spanned<DeValue<'_>>> = match at {
                    None => root.get_ref().get(*word),
                    Some(DeValue::Table(table)) => table.get(*word),
                    Some(DeValue::Array(items)) => {
                        word.parse().ok().and_then(|i: usize| items.get(i))
                    }
                    Some(_) => None,
                };
                let Some(next) = next else { break };
                span = Some(next.span());
                at = Some(next.get_ref());
            }
            span
        });
        self.error(span, what)
    }

    /// The line of a key of the scene: `topology.hosts`, `failure[0].link`.
    fn at_key(&self, key: &str, what: impl fmt::Display) -> PlanError {
        let words = key.replace('[', ".").replace(']', "");
        self.at(&words.split('.').collect::<Vec<_>>(), what)
    }
}

impl Plan {
    /// Reads a plan from a file; with `quick`, as its `[quick]` table says.
    ///
    /// # Errors
    /// File, line and what was expected there.
    pub fn read(file: &Path, quick: bool) -> Result<Self, PlanError> {
        let text = crate::shipped::read_text(file).map_err(|error| PlanError {
            file: file.to_owned(),
            line: 0,
            what: format!("cannot read: {error}"),
        })?;
        Self::parse(file, text, quick)
    }

    /// Parses the text of a plan; `file` names it and says where relative paths start.
    ///
    /// # Errors
    /// See [`Plan::read`].
    pub fn parse(file: &Path, text: String, quick: bool) -> Result<Self, PlanError> {
        // Plans name switch features and their metrics.
        squall_research::register();
        let source = Source { file: file.to_owned(), text };
        let read: PlanTable = toml::from_str(&source.text)
            .map_err(|error| source.error(error.span(), error.message()))?;
        let whole: Table = toml::from_str(&source.text)
            .map_err(|error| source.error(error.span(), error.message()))?;

        let keys = ["topology", "network", "workload", "transport", "failure", "observe", "flits"];
        let scene = whole.into_iter().filter(|(key, _)| keys.contains(&key.as_str()));
        let mut base: Table = scene.collect();
        let mut sweep = read.sweep;
        let mut seeds = read.seeds.unwrap_or_else(|| vec![1]);
        let is_quick = read.quick.is_some();
        if let Some(table) = read.quick.filter(|_| quick) {
            seeds = table.seeds.unwrap_or_else(|| seeds.iter().copied().take(1).collect());
            for (key, value) in &table.set {
                point::set(&mut base, key, value)
                    .map_err(|what| source.at(&["quick", "set", key], what))?;
            }
            for (key, value) in table.sweep {
                if !sweep.contains_key(&key) {
                    let what = format!("`{key}` is no axis of [sweep]");
                    return Err(source.at(&["quick", "sweep", &key], what));
                }
                sweep.insert(key, value);
            }
        }
        if seeds.is_empty() {
            return Err(source.at(&["seeds"], "empty, expected one seed at least"));
        }
        let axes = sweep
            .iter()
            .map(|(key, value)| {
                point::axis(key, value)
                    .map_err(|what| source.at(&["sweep", key], format!("sweep.{key}: {what}")))
            })
            .collect::<Result<Vec<Axis>, _>>()?;
        let points = point::points(&base, &axes).map_err(|(axis, what)| {
            source.at(&["sweep", &axis], format!("sweep.{axis}: {what}"))
        })?;
        let metric = |(index, name): (usize, &String)| {
            name.parse().map_err(|error| source.at(&["metrics", &index.to_string()], error))
        };
        let metrics = read.metrics.iter().enumerate().map(metric).collect::<Result<_, _>>()?;
        // Conditions may speak of values that a quick run leaves out, but not of axes.
        let all: Table = read_sweep(&source.text);
        let names: Vec<(String, Vec<String>)> = all
            .iter()
            .filter_map(|(key, value)| point::axis(key, value).ok())
            .map(|axis| (axis.name, axis.values.into_iter().map(|value| value.0).collect()))
            .collect();
        let expectations = read
            .expect
            .into_iter()
            .enumerate()
            .map(|(index, table)| {
                Expectation::new(table, &read.source, &names, quick).map_err(|(key, what)| {
                    source.at(&["expect", &index.to_string(), key], format!("{key}: {what}"))
                })
            })
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name,
            title: read.title,
            source: read.source,
            scaled: read.scaled,
            seeds,
            points,
            expectations,
            metrics,
            quick: is_quick,
            folder: folder_of(file),
            source_text: source,
        })
    }

    /// A mistake in the scene of one of its points, by the line of its key.
    #[must_use]
    pub fn blame(&self, point: &Point, error: &SceneError) -> PlanError {
        let labels: Vec<String> =
            point.labels.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
        let what = match labels.is_empty() {
            true => error.to_string(),
            false => format!("{error} (at {})", labels.join(", ")),
        };
        self.source_text.at_key(&error.key, what)
    }

    /// Number of simulations.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.points.len() * self.seeds.len()
    }
}

fn read_sweep(text: &str) -> Table {
    let whole: Table = toml::from_str(text).unwrap_or_default();
    match whole.get("sweep") {
        Some(Value::Table(sweep)) => sweep.clone(),
        _ => Table::new(),
    }
}
