//! Metrics against the parameter that was swept: means over seeds, with their confidence.

use std::collections::BTreeMap;

use super::{Bars, Line, Plot};
use crate::samples::{half_interval, mean};
use squall_netsim::Bytes;
use squall_netsim::output::files::parameter_names;
use squall_netsim::output::{Metric, Run};

/// An axis whose ends lie further apart than this is logarithmic.
const WIDE: f64 = 30.0;

/// The runs of one point, whatever their seed.
struct Point<'a> {
    parameters: &'a BTreeMap<String, String>,
    runs: Vec<&'a Run>,
}

impl Point<'_> {
    /// Mean over seeds and half of its interval; `None` if none has such a number.
    fn value(&self, metric: Metric) -> Option<(f64, f64)> {
        let samples: Vec<f64> = self.runs.iter().filter_map(|run| metric.of(run)).collect();
        Some((mean(&samples)?, half_interval(&samples).unwrap_or(0.0)))
    }

    /// Where it lies on the axis of the parameter `name`.
    fn place(&self, name: &str) -> Option<f64> {
        self.parameters.get(name).and_then(|text| value(text))
    }

    /// Its other parameters, in one word.
    fn others(&self, name: &str) -> String {
        let others = self.parameters.iter().filter(|(other, _)| *other != name);
        others.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// The number a parameter's value is: `0.5`, or bytes as in `64KiB`.
fn value(text: &str) -> Option<f64> {
    let plain = text.parse::<f64>().ok().filter(|number| number.is_finite());
    plain.or_else(|| text.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64))
}

fn points(runs: &[Run]) -> Vec<Point<'_>> {
    let mut points: Vec<Point<'_>> = Vec::new();
    for run in runs {
        match points.iter_mut().find(|point| *point.parameters == run.parameters) {
            Some(point) => point.runs.push(run),
            None => points.push(Point { parameters: &run.parameters, runs: vec![run] }),
        }
    }
    points
}

/// The parameter with most values, if every value of it is a number.
fn axis(runs: &[Run], points: &[Point<'_>]) -> Option<String> {
    let numbers = |name: &String| {
        let mut values: Vec<f64> =
            points.iter().map(|point| point.place(name)).collect::<Option<_>>()?;
        values.sort_by(f64::total_cmp);
        values.dedup();
        Some(values.len())
    };
    let counted =
        parameter_names(runs).into_iter().filter_map(|name| Some((numbers(&name)?, name)));
    counted.filter(|(count, _)| *count > 1).max_by_key(|(count, _)| *count).map(|(_, name)| name)
}

/// A plot of each metric over the parameter that was swept, a curve for each combination of the others; where what was swept
/// is no number, bars. Nothing of a single point.
pub(super) fn sweeps(runs: &[Run], metrics: &[Metric]) -> (Vec<Plot>, Vec<Bars>) {
    let points = points(runs);
    if points.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    match axis(runs, &points) {
        Some(name) => (
            metrics.iter().filter_map(|metric| plot(&points, &name, *metric)).collect(),
            Vec::new(),
        ),
        None => (Vec::new(), metrics.iter().filter_map(|metric| bars(&points, *metric)).collect()),
    }
}

/// Intervals, unless there are none: of single seeds.
fn known(half: Vec<f64>) -> Vec<f64> {
    if half.iter().any(|half| *half > 0.0) { half } else { Vec::new() }
}

/// What is said of the means.
fn confidence(points: &[Point<'_>]) -> &'static str {
    if points.iter().any(|point| point.runs.len() > 1) {
        ": mean over seeds, confidence of 95 %"
    } else {
        ""
    }
}

fn unit(metric: Metric) -> String {
    match metric.unit() {
        "" => metric.to_string(),
        unit => format!("{metric} ({unit})"),
    }
}

fn plot(points: &[Point<'_>], name: &str, metric: Metric) -> Option<Plot> {
    let mut curves: BTreeMap<String, Vec<(f64, f64, f64)>> = BTreeMap::new();
    for point in points {
        let Some(((mean, half), at)) = point.value(metric).zip(point.place(name)) else { continue };
        curves.entry(point.others(name)).or_default().push((at, mean, half));
    }
    let places = || curves.values().flatten().map(|point| point.0);
    let least = places().fold(f64::INFINITY, f64::min);
    let log = least > 0.0 && places().fold(0.0, f64::max) > WIDE * least;
    let lines: Vec<Line> = curves
        .into_iter()
        .map(|(name, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let half = known(points.iter().map(|point| point.2).collect());
            Line { name, points: points.into_iter().map(|(x, y, _)| (x, y)).collect(), half }
        })
        .collect();
    (!lines.is_empty()).then(|| Plot {
        title: format!("{metric} over {name}{}", confidence(points)),
        x: name.to_owned(),
        y: unit(metric),
        lines,
        log,
        ..Plot::default()
    })
}

fn bars(points: &[Point<'_>], metric: Metric) -> Option<Bars> {
    let values = points.iter().filter_map(|point| Some((point.others(""), point.value(metric)?)));
    let (bars, half): (Vec<(String, f64)>, Vec<f64>) =
        values.map(|(name, (mean, half))| ((name, mean), half)).unzip();
    (!bars.is_empty()).then(|| Bars {
        title: format!("{metric}{}", confidence(points)),
        y: unit(metric),
        bars,
        half: known(half),
        mark: None,
    })
}
