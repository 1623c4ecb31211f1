//! Statements about the results of a plan, and their verdicts.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

use super::point::label;
use crate::samples::half_interval;
use squall_netsim::output::text::number;
use squall_netsim::output::{Metric, Run};

/// A condition on a point of a sweep: each axis that it names has one of the values listed.
type Condition = BTreeMap<String, Vec<String>>;

/// A table `[[expect]]` of a plan: a statement about a metric, with bounds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    /// The statement in words.
    statement: String,
    /// Paper and section that make the statement (default the plan's source).
    #[serde(default)]
    source: Option<String>,
    /// The metric to which the bounds apply, as a mean over the seeds.
    metric: String,
    /// Points of the sweep that the statement covers, by the values of axes (default all).
    #[serde(default, rename = "where")]
    places: BTreeMap<String, Value>,
    /// Further such values, by convention of the axis that `over` or `minus` compares.
    #[serde(default)]
    of: BTreeMap<String, Value>,
    /// Divides the metric by that of the points with these values, all else equal.
    #[serde(default)]
    over: Option<BTreeMap<String, Value>>,
    /// Subtracts the metric of the points with these values, with `over` also from the divisor.
    #[serde(default)]
    minus: Option<BTreeMap<String, Value>>,
    /// Upper bound of the result.
    #[serde(default)]
    at_most: Option<f64>,
    /// Lower bound of the result.
    #[serde(default)]
    at_least: Option<f64>,
    /// One point within the bounds suffices, as for "up to"; otherwise all must be.
    #[serde(default)]
    any: bool,
    /// A quick run, which lacks points of the statement, skips it.
    #[serde(default)]
    full: bool,
    /// The reason why the statement does not hold here. It is then no failure.
    #[serde(default)]
    explained: Option<String>,
}

/// Says with which other points of the sweep a point is compared.
#[derive(Clone, PartialEq, Debug)]
struct Against {
    /// The value of the point is divided by that of the points with these values, all else equal.
    over: Option<Condition>,
    /// The value of the points with these values, all else equal, is subtracted; from the divisor
    /// as well, if there is one.
    minus: Option<Condition>,
}

/// The two other points with which one point is compared: divisor and subtrahend.
#[derive(Clone, Copy)]
struct Partners<'a> {
    over: Option<&'a Group<'a>>,
    minus: Option<&'a Group<'a>>,
}

impl<'a> Partners<'a> {
    /// Returns the names of the points of a comparison, for the verdict.
    fn place(self, group: &Group<'_>) -> String {
        match (self.over, self.minus) {
            (None, None) => group.place(),
            (Some(other), None) | (None, Some(other)) => group.versus(other),
            (Some(over), Some(minus)) => {
                format!("{} less {}", group.versus(over), minus.place())
            }
        }
    }

    /// Applies `number` to the divisor and to the subtrahend.
    fn each<T>(self, number: impl Fn(&Group<'a>) -> T) -> (Option<T>, Option<T>) {
        (self.over.map(&number), self.minus.map(&number))
    }
}

/// A statement of a paper as a bound on a metric. The bound holds at every point (or pair of
/// points) of the statement, or at any.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// The statement of the paper in words.
    pub statement: String,
    /// Source of the statement: paper, section or figure.
    pub source: String,
    /// The metric to which the bounds of the statement apply.
    pub metric: Metric,
    of: Condition,
    against: Against,
    at_most: Option<f64>,
    at_least: Option<f64>,
    /// True if one point within the bounds suffices ("up to"), instead of all.
    any: bool,
    /// If the statement is known not to hold here: the reason in a few words.
    /// `docs/REPRODUCTION.md` has the details.
    pub explained: Option<String>,
}

/// The result of judging a statement by the runs of its plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The statement in words, as the plan has it.
    pub statement: String,
    /// Source of the statement: paper, section or figure.
    pub source: String,
    /// The metric and its bounds, as text.
    pub expected: String,
    /// The measured value furthest on the wrong side, its point, and the number of points.
    pub measured: String,
    /// True if the statement holds; `None` if none of its points was run.
    pub pass: Option<bool>,
    /// The known reason why the statement does not hold, if there is one.
    pub explained: Option<String>,
}

impl Verdict {
    /// Returns `pass`, `FAIL`, `explained` (the statement fails for a known reason) or `not run`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match (self.pass, &self.explained) {
            (None, _) => "not run",
            (Some(true), _) => "pass",
            (Some(false), Some(_)) => "explained",
            (Some(false), None) => "FAIL",
        }
    }
}

impl Expectation {
    /// Checks names and bounds of a statement. An error carries the key. Returns `None` in a
    /// `quick` run if the statement needs points of the full run.
    pub(super) fn new(
        table: ExpectTable,
        source: &str,
        axes: &[(String, Vec<String>)],
        quick: bool,
    ) -> Result<Option<Self>, (&'static str, String)> {
        let metric = table
            .metric
            .parse()
            .map_err(|error: squall_netsim::output::UnknownMetric| ("metric", error.to_string()))?;
        let read = |key, condition: &BTreeMap<String, Value>| {
            conditions(condition, axes).map_err(|what| (key, what))
        };
        let mut of = read("of", &table.of)?;
        of.extend(read("where", &table.places)?);
        let other = |key, table: &Option<BTreeMap<String, Value>>| {
            table.as_ref().map(|table| read(key, table)).transpose()
        };
        let against =
            Against { over: other("over", &table.over)?, minus: other("minus", &table.minus)? };
        if table.full && quick {
            // The quick run leaves out points that the statement needs.
            return Ok(None);
        }
        if table.at_most.is_none() && table.at_least.is_none() {
            return Err(("metric", "expected a bound: `at_most`, `at_least` or both".to_owned()));
        }
        Ok(Some(Self {
            statement: table.statement,
            source: table.source.unwrap_or_else(|| source.to_owned()),
            metric,
            of,
            against,
            at_most: table.at_most,
            at_least: table.at_least,
            any: table.any,
            explained: table.explained,
        }))
    }

    fn bound(&self) -> String {
        let unit = if self.against.over.is_some() { "x" } else { self.metric.unit() };
        let sep = if unit.is_empty() || unit == "x" { "" } else { " " };
        match (self.at_least, self.at_most) {
            (Some(low), Some(high)) if low == high => format!("= {}{sep}{unit}", number(low)),
            (Some(low), Some(high)) => {
                format!("{} to {}{sep}{unit}", number(low), number(high))
            }
            (Some(low), None) => format!(">= {}{sep}{unit}", number(low)),
            (None, Some(high)) => format!("<= {}{sep}{unit}", number(high)),
            (None, None) => String::new(),
        }
    }

    /// Returns the distance of a value from the bounds: positive on the wrong side, negative on the
    /// right one.
    fn excess(&self, value: f64) -> f64 {
        let above = self.at_most.map_or(f64::NEG_INFINITY, |high| value - high);
        let below = self.at_least.map_or(f64::NEG_INFINITY, |low| low - value);
        above.max(below)
    }

    /// Returns all points, or pairs of points, with which a point is compared.
    fn partners<'a>(&self, group: &Group<'_>, groups: &'a [Group<'a>]) -> Vec<Partners<'a>> {
        let like = |condition: &Option<Condition>| match condition {
            None => vec![None],
            Some(other) => {
                groups.iter().filter(|candidate| candidate.pairs(group, other)).map(Some).collect()
            }
        };
        let (overs, minuses) = (like(&self.against.over), like(&self.against.minus));
        let with = |over: Option<&'a Group<'a>>| {
            minuses.iter().map(move |&minus| Partners { over, minus }).collect::<Vec<_>>()
        };
        overs.into_iter().flat_map(with).collect()
    }

    /// Returns the compared value of the metric for each seed with which all points were run.
    fn by_seed(&self, group: &Group<'_>, partners: Partners<'_>) -> Vec<f64> {
        let like = |run: &Run, group: &Group<'_>| {
            let run = group.runs.iter().find(|other| other.seed == run.seed)?;
            self.metric.of(run)
        };
        let compare =
            |run: &&Run| compare(self.metric.of(run), partners.each(|partner| like(run, partner)));
        group.runs.iter().filter_map(compare).collect()
    }

    /// Judges the statement by the runs of all points.
    fn judge(&self, groups: &[Group<'_>]) -> Verdict {
        let mut worst: Option<(f64, f64, Option<f64>, String)> = None;
        let (mut count, mut missing) = (0, None);
        for group in groups.iter().filter(|group| group.matches(&self.of)) {
            for partners in self.partners(group, groups) {
                let place = partners.place(group);
                let others = partners.each(|other| other.mean(self.metric));
                let value = compare(group.mean(self.metric), others);
                count += 1;
                match value {
                    None => missing = Some(place),
                    Some(value) => {
                        let excess = self.excess(value);
                        let decides = worst.as_ref().is_none_or(|known| {
                            (excess > known.0) != self.any && excess != known.0
                        });
                        if decides {
                            let interval = half_interval(&self.by_seed(group, partners));
                            worst = Some((excess, value, interval, place));
                        }
                    }
                }
            }
        }
        let mut words = match &worst {
            Some((_, value, interval, place)) => {
                let times = if self.against.over.is_some() { "x" } else { "" };
                let end = if self.any { "best" } else { "worst" };
                let of = if count > 1 { format!(" ({end} of {count})") } else { String::new() };
                let at = if place.is_empty() { String::new() } else { format!(" {place}") };
                let spread = interval.map_or(String::new(), |half| format!(" ± {}", number(half)));
                format!("{}{times}{spread}{at}{of}", number(*value))
            }
            None => "-".to_owned(),
        };
        if let Some(place) = &missing {
            words.push_str(&format!("; nothing to measure at {place}"));
        }
        let pass = (count > 0)
            .then(|| missing.is_none() && worst.is_some_and(|(excess, ..)| excess <= 0.0));
        Verdict {
            statement: self.statement.clone(),
            source: self.source.clone(),
            expected: format!("{} {}", self.metric, self.bound()),
            measured: words,
            pass,
            explained: self.explained.clone(),
        }
    }
}

/// Returns a value after subtraction and division, if the statement asks for them.
fn compare(
    value: Option<f64>,
    (over, minus): (Option<Option<f64>>, Option<Option<f64>>),
) -> Option<f64> {
    let less = |value: Option<f64>| match minus {
        None => value,
        Some(minus) => Some(value? - minus?),
    };
    match over {
        None => less(value),
        Some(over) => ratio(less(value), less(over)?),
    }
}

/// Divides two values. Zero over zero is one, because both are equal.
fn ratio(value: Option<f64>, other: f64) -> Option<f64> {
    let value = value?;
    if value == 0.0 && other == 0.0 {
        return Some(1.0);
    }
    Some(value / other)
}

fn conditions(
    table: &BTreeMap<String, Value>,
    axes: &[(String, Vec<String>)],
) -> Result<Condition, String> {
    let mut condition = Condition::new();
    for (name, value) in table {
        let Some((_, known)) = axes.iter().find(|axis| axis.0 == *name) else {
            let names: Vec<&str> = axes.iter().map(|axis| axis.0.as_str()).collect();
            return Err(format!(
                "`{name}` is no axis of the sweep; there are {}",
                names.join(", ")
            ));
        };
        let values: Vec<String> = match value {
            Value::Array(values) => values.iter().map(label).collect(),
            value => vec![label(value)],
        };
        if let Some(stranger) = values.iter().find(|value| !known.contains(value)) {
            let known = known.join(", ");
            return Err(format!("`{name}` is never `{stranger}`; it is one of {known}"));
        }
        condition.insert(name.clone(), values);
    }
    Ok(condition)
}

/// All runs of one point of the sweep, one per seed.
struct Group<'a> {
    labels: &'a BTreeMap<String, String>,
    runs: Vec<&'a Run>,
}

impl Group<'_> {
    fn matches(&self, condition: &Condition) -> bool {
        condition
            .iter()
            .all(|(axis, values)| self.labels.get(axis).is_some_and(|mine| values.contains(mine)))
    }

    /// Returns whether this point has the values of `other`, and those of the point `like` on every
    /// axis that `other` does not name.
    fn pairs(&self, like: &Self, other: &Condition) -> bool {
        let alike = |(axis, mine): (&String, &String)| {
            other.contains_key(axis) || like.labels.get(axis) == Some(mine)
        };
        self.matches(other) && self.labels.iter().all(alike) && self.labels != like.labels
    }

    /// Returns the mean of the metric over all seeds; `None` if a run lacks the metric.
    fn mean(&self, metric: Metric) -> Option<f64> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| metric.of(run)).collect();
        let values = values.filter(|values| !values.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    fn place(&self) -> String {
        self.labels.values().cloned().collect::<Vec<_>>().join(" ")
    }

    /// Names a pair of points as in `nscc/eqds 8`: values that differ are joined by a slash, equal
    /// ones appear once.
    fn versus(&self, other: &Self) -> String {
        let word = |(axis, mine): (&String, &String)| match other.labels.get(axis) {
            Some(theirs) if theirs != mine => format!("{mine}/{theirs}"),
            _ => mine.clone(),
        };
        self.labels.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Judges all statements of a plan by its runs, beginning with whether every flow finished.
#[must_use]
pub fn judge(plan: &super::Plan, runs: &[Run]) -> Vec<Verdict> {
    let groups: Vec<Group<'_>> = plan
        .points
        .iter()
        .map(|point| {
            let runs = runs.iter().filter(|run| run.parameters == point.labels).collect();
            Group { labels: &point.labels, runs }
        })
        .filter(|group: &Group<'_>| !group.runs.is_empty())
        .collect();
    let short: Vec<&Run> =
        runs.iter().filter(|run| run.unfinished() > 0 || run.stopped.is_some()).collect();
    let flows: usize = short.iter().map(|run| run.unfinished()).sum();
    let mut verdicts = Vec::new();
    if plan.expectations.iter().all(|expectation| expectation.metric.name() != "unfinished") {
        let measured = match short.first() {
            None => "all".to_owned(),
            Some(first) => {
                format!("{flows} flows did not, in {} runs, first {}", short.len(), first.name)
            }
        };
        verdicts.push(Verdict {
            statement: "every flow finishes".to_owned(),
            source: String::new(),
            expected: "all".to_owned(),
            measured,
            pass: (!runs.is_empty()).then_some(short.is_empty()),
            explained: None,
        });
    }
    verdicts.extend(plan.expectations.iter().map(|expectation| expectation.judge(&groups)));
    verdicts
}
