//! Reads plans, and reports mistakes with file and line.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::SceneError;
use super::expect::{ExpectTable, Expectation};
use super::point::{self, Axis, Combination, Point};
use super::scene::{Scene, folder_of};
use squall_netsim::output::Metric;

/// A plan: an experiment with its points, seeds and statements.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The plan's name: its file name without the ending.
    pub name: String,
    /// Title of the plan, in one line.
    pub title: String,
    /// The paper, section and figure that the plan reproduces.
    pub source: String,
    /// The quantities that are smaller than in the paper, and the reason; empty if there are none.
    pub scaled: String,
    /// Seeds with which each point of the sweep is run.
    pub seeds: Vec<u64>,
    /// Points of the plan's sweep, each with its scene.
    pub points: Vec<Point>,
    /// Statements about the results, which are judged when the plan has run.
    pub expectations: Vec<Expectation>,
    /// Metrics that the tables of results show.
    pub metrics: Vec<Metric>,
    /// True if the plan has a quick form (a table `[quick]`).
    pub quick: bool,
    /// The folder at which relative paths start.
    pub folder: PathBuf,
    source_text: Source,
}

/// A mistake in a plan, with file and line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    /// File of the plan with the mistake.
    pub file: PathBuf,
    /// Line number from 1, or 0 for the file as a whole.
    pub line: usize,
    /// Text that was found in the plan, and what was expected.
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

/// A plan as it is written. [`Scene::read`] checks the scene's tables at every point.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTable {
    /// The subject of the plan, in one line.
    title: String,
    /// Paper, section and figure that the plan reproduces.
    #[serde(default)]
    source: String,
    /// The differences from the source in size, and the reason for them.
    #[serde(default)]
    scaled: String,
    /// Seeds; every point of the sweep is run with each of them (default 1).
    #[serde(default)]
    seeds: Option<Vec<u64>>,
    /// Metrics to print and to draw.
    #[serde(default)]
    metrics: Vec<String>,
    topology: Option<Value>,
    network: Option<Value>,
    workload: Option<Value>,
    transport: Option<Value>,
    failure: Option<Value>,
    observe: Option<Value>,
    flits: Option<Value>,
    /// Axes: keys of the scene with their values, or named variants that set several keys each.
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

/// The text of a plan and its file.
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

    /// Finds the deepest part of a path of keys that exists. Returns how many words lead to it, and
    /// its place in the text.
    fn find(&self, path: &[&str]) -> (usize, Option<Range<usize>>) {
        let Ok(root) = DeTable::parse(&self.text) else { return (0, None) };
        let mut found = (0, None);
        let mut at: Option<&DeValue<'_>> = None;
        for word in path {
            let next: Option<&Spanned<DeValue<'_>>> = match at {
                None => root.get_ref().get(*word),
                Some(DeValue::Table(table)) => table.get(*word),
                Some(DeValue::Array(items)) => word.parse().ok().and_then(|i: usize| items.get(i)),
                Some(_) => None,
            };
            let Some(next) = next else { break };
            found = (found.0 + 1, Some(next.span()));
            at = Some(next.get_ref());
        }
        found
    }

    /// Makes an error at the line of a path of keys, or of the deepest part of the path that
    /// exists.
    fn at(&self, path: &[&str], what: impl fmt::Display) -> PlanError {
        self.error(self.find(path).1, what)
    }

    /// Makes an error at the line of a key of the scene, such as `topology.hosts` or
    /// `failure[0].link`, at a point. If the sweep sets the key, it is the sweep's line, else the
    /// scene's.
    fn at_point(&self, labels: &BTreeMap<String, String>, error: &SceneError) -> PlanError {
        let words: Vec<String> =
            labels.iter().map(|(axis, value)| format!("{axis} = {value}")).collect();
        let what = match words.is_empty() {
            true => error.to_string(),
            false => format!("{error} (at {})", words.join(", ")),
        };
        let key = error.key.replace('[', ".").replace(']', "");
        let swept = ["sweep", &key];
        if let (2, span) = self.find(&swept) {
            return self.error(span, what);
        }
        for (axis, label) in labels {
            if let (4, span) = self.find(&["sweep", axis, label, &key]) {
                return self.error(span, what);
            }
        }
        self.at(&key.split('.').collect::<Vec<_>>(), what)
    }

    /// Reads the scene of every point. If all points have the same mistake, the error names no
    /// point.
    fn scenes(&self, combinations: Vec<Combination>) -> Result<Vec<Point>, PlanError> {
        let mut points = Vec::with_capacity(combinations.len());
        let mut mistakes = Vec::new();
        let count = combinations.len();
        for (labels, table) in combinations {
            match Scene::read(&table) {
                Ok(scene) => points.push(Point { labels, scene }),
                Err(error) => mistakes.push((labels, error)),
            }
        }
        match mistakes.first() {
            None => Ok(points),
            Some((_, error))
                if mistakes.len() == count && mistakes.iter().all(|(_, other)| other == error) =>
            {
                Err(self.at_point(&BTreeMap::new(), error))
            }
            Some((labels, error)) => Err(self.at_point(labels, error)),
        }
    }
}

impl Plan {
    /// Reads a plan from a file. With `quick`, the plan's `[quick]` table applies.
    ///
    /// # Errors
    /// The file and line of the mistake, and what was expected there.
    pub fn read(file: &Path, quick: bool) -> Result<Self, PlanError> {
        let text = crate::shipped::read_text(file).map_err(|error| PlanError {
            file: file.to_owned(),
            line: 0,
            what: format!("cannot read: {error}"),
        })?;
        Self::parse(file, text, quick)
    }

    /// Parses the text of a plan. `file` gives the plan's name and the folder at which relative
    /// paths start.
    ///
    /// # Errors
    /// See [`Plan::read`].
    pub fn parse(file: &Path, text: String, quick: bool) -> Result<Self, PlanError> {
        // Plans name switch features and their metrics, which must be registered first.
        squall_research::register();
        let source = Source { file: file.to_owned(), text };
        let read: PlanTable = toml::from_str(&source.text)
            .map_err(|error| source.error(error.span(), error.message()))?;
        let tables = [
            read.topology,
            read.network,
            read.workload,
            read.transport,
            read.failure,
            read.observe,
            read.flits,
        ];
        let given = |(name, table): (&str, Option<Value>)| Some((name.to_owned(), table?));
        let mut base: Table = Scene::TABLES.into_iter().zip(tables).filter_map(given).collect();
        // Conditions may name values that a quick run leaves out, but only axes that exist.
        let names: Vec<(String, Vec<String>)> = read
            .sweep
            .iter()
            .filter_map(|(key, value)| point::axis(key, value).ok())
            .map(|axis| (axis.name, axis.values.into_iter().map(|value| value.0).collect()))
            .collect();
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
                    let what = format!("`{key}` is no axis of [sweep]; a quick run has no others");
                    return Err(source.at(&["quick", "sweep", &key], what));
                }
                sweep.insert(key, value);
            }
        }
        if seeds.is_empty() {
            return Err(source.at(&["seeds"], "the list of seeds is empty, expected one at least"));
        }
        let axes = sweep
            .iter()
            .map(|(key, value)| {
                point::axis(key, value)
                    .map_err(|what| source.at(&["sweep", key], format!("sweep.{key}: {what}")))
            })
            .collect::<Result<Vec<Axis>, _>>()?;
        let combinations = point::combinations(base, &axes).map_err(|(axis, what)| {
            source.at(&["sweep", &axis], format!("sweep.{axis}: {what}"))
        })?;
        let points = source.scenes(combinations)?;
        let metric = |(index, name): (usize, &String)| {
            name.parse().map_err(|error| source.at(&["metrics", &index.to_string()], error))
        };
        let metrics = read.metrics.iter().enumerate().map(metric).collect::<Result<_, _>>()?;
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

    /// Makes an error for a mistake in the scene of a point, at the line of the key.
    #[must_use]
    pub fn blame(&self, point: &Point, error: &SceneError) -> PlanError {
        self.source_text.at_point(&point.labels, error)
    }

    /// Returns the number of simulations that the plan asks for: points times seeds.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.points.len() * self.seeds.len()
    }
}
