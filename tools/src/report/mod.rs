//! Reports: one HTML file that opens offline, with tables, and plots as SVG. [`render`] makes it
//! from [`Document`]s, which are made from runs and verdicts; other programs may write documents as
//! JSON. [`figures`] writes the same plots as files.

mod compose;
mod html;
mod provenance;
mod svg;
mod sweep;

pub use compose::{from_runs, from_verdicts};
pub use html::render;
pub use provenance::{Input, beside};
pub use svg::{PlotError, figures};

use serde::{Deserialize, Serialize};

/// A section of a report. Its parts are shown in the order of the fields.
///
/// The JSON form is `{"title": .., "text": [..], "tables": [..], "plots": [..], "gantts": [..], "bars": [..]}`; all
/// but the title are optional.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Heading of the section.
    pub title: String,
    /// Paragraphs of text.
    #[serde(default)]
    pub text: Vec<String>,
    /// Tables of the section.
    #[serde(default)]
    pub tables: Vec<ReportTable>,
    /// Plots with curves.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Charts of the states of ranks over time.
    #[serde(default)]
    pub gantts: Vec<Gantt>,
    /// Bar charts.
    #[serde(default)]
    pub bars: Vec<Bars>,
}

/// A table in a section of a report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportTable {
    /// Caption of the table.
    pub title: String,
    /// Headings of the columns.
    pub head: Vec<String>,
    /// Cells by row. The words `pass`, `FAIL` and `explained` are coloured.
    pub rows: Vec<Vec<String>>,
    /// True if the table is folded until the reader opens it.
    #[serde(default)]
    pub folded: bool,
}

/// A plot with curves over one axis.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Caption of the plot.
    pub title: String,
    /// Name and unit of the plot's horizontal axis.
    pub x: String,
    /// Name and unit of the vertical axis, which begins at zero.
    pub y: String,
    /// The curves, in the order of the legend.
    pub lines: Vec<Line>,
    /// Plots of one family on a page have the same axis ranges. If the name is empty, the plot has
    /// its own.
    #[serde(default)]
    pub family: String,
    /// True if the horizontal axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// True if curves are drawn as steps: a value holds until the next point.
    #[serde(default)]
    pub steps: bool,
    /// Events, each a place on the horizontal axis and a name. They are drawn as vertical lines.
    #[serde(default)]
    pub marks: Vec<(f64, String)>,
}

/// A curve of a plot.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Name of the curve in the legend.
    pub name: String,
    /// Points of the curve, in ascending order of x.
    pub points: Vec<(f64, f64)>,
    /// Half of the 95 % confidence interval of each point; empty if it is unknown.
    #[serde(default)]
    pub half: Vec<f64>,
}

/// A bar chart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Caption of the chart.
    pub title: String,
    /// Name and unit of the chart's vertical axis.
    pub y: String,
    /// Name and height of each bar.
    pub bars: Vec<(String, f64)>,
    /// Half of the 95 % confidence interval of each bar; empty if it is unknown.
    #[serde(default)]
    pub half: Vec<f64>,
    /// Height and name of a horizontal reference line, such as the mean.
    #[serde(default)]
    pub mark: Option<(String, f64)>,
}

/// A Gantt chart, with a row for each rank of a job. Time runs to the right, and the colour of a row
/// shows the state that the rank is in at each time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gantt {
    /// Caption of the chart.
    pub title: String,
    /// Label of the time axis, with its unit. The axis begins at zero.
    pub x: String,
    /// Time at which the axis ends, in that unit.
    pub end: f64,
    /// Name of each state, for the legend. The number of a state is its index here.
    pub states: Vec<String>,
    /// Label of each row, and its changes of state in the order of time: the time of the change and
    /// the number of the new state. The last state lasts until `end`.
    pub rows: Vec<(String, Vec<(f64, u8)>)>,
}

#[cfg(test)]
mod tests;
