//! Plots metrics over the swept parameter: means over seeds, with their confidence intervals.

use std::collections::BTreeMap;

use super::{Bars, Line, Plot};
use crate::samples::{half_interval, mean};
use squall_netsim::Bytes;
use squall_netsim::output::files::parameter_names;
use squall_netsim::output::{Metric, Run};

/// Ratio of the largest to the smallest value on an axis above which the axis is logarithmic.
const WIDE: f64 = 30.0;

/// The runs of one point of a sweep, with all its seeds.
struct Point<'a> {
    parameters: &'a BTreeMap<String, String>,
    runs: Vec<&'a Run>,
}

impl Point<'_> {
    /// Returns the mean of the metric over seeds, and half of its confidence interval; `None` if no
    /// run has the metric.
    fn value(&self, metric: Metric) -> Option<(f64, f64)> {
        let samples: Vec<f64> = self.runs.iter().filter_map(|run| metric.of(run)).collect();
        Some((mean(&samples)?, half_interval(&samples).unwrap_or(0.0)))
    }

    /// Returns the position of the point on the axis of parameter `name`; `None` if its value is no
    /// number.
    fn place(&self, name: &str) -> Option<f64> {
        self.parameters.get(name).and_then(|text| value(text))
    }

    /// Returns the values of all parameters but `name`, as one label.
    fn others(&self, name: &str) -> String {
        let others = self.parameters.iter().filter(|(other, _)| *other != name);
        others.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the number in a parameter's value, such as `0.5`, or bytes as in `64KiB`.
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

/// Returns the parameter for the horizontal axis: the one with the most values, of those whose
/// values are all numbers.
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

/// Plots each metric over the swept parameter, with one curve for each combination of the other
/// parameters. If no swept parameter is a number, bars are drawn. A single point gives no plot.
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

/// Returns the halves of the confidence intervals, or nothing if all are zero because there are
/// single seeds only.
fn known(half: Vec<f64>) -> Vec<f64> {
    if half.iter().any(|half| *half > 0.0) { half } else { Vec::new() }
}

/// Returns the note in titles that values are means over seeds, if any point has several seeds.
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
