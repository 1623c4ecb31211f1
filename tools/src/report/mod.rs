//! Reports: one HTML file that opens offline, with tables, and plots as SVG. [`render`] makes it from [`Document`]s, which come
//! from runs and verdicts and which other programs may write as JSON. [`figures`] draws the same plots for files.

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

/// Something to report on, in the order in which it is shown.
///
/// As JSON: `{"title": .., "text": [..], "tables": [..], "plots": [..], "bars": [..]}`, all but the
/// title optional.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Heading.
    pub title: String,
    /// Paragraphs.
    #[serde(default)]
    pub text: Vec<String>,
    /// Tables.
    #[serde(default)]
    pub tables: Vec<ReportTable>,
    /// Curves.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Bars.
    #[serde(default)]
    pub bars: Vec<Bars>,
}

/// A table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportTable {
    /// Caption.
    pub title: String,
    /// Names of columns.
    pub head: Vec<String>,
    /// Cells; `pass`, `FAIL` and `explained` are coloured.
    pub rows: Vec<Vec<String>>,
    /// Shown when it is asked for.
    #[serde(default)]
    pub folded: bool,
}

/// Curves over one axis.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Caption.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x: String,
    /// Name and unit of the vertical axis, which begins at zero.
    pub y: String,
    /// Curves.
    pub lines: Vec<Line>,
    /// Plots of one name on a page have axes with the same ends; empty: the plot's own.
    #[serde(default)]
    pub family: String,
    /// The horizontal axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Curves are stairs: a value holds until the next.
    #[serde(default)]
    pub steps: bool,
    /// What happened at a place of the horizontal axis, with a name: upright lines.
    #[serde(default)]
    pub marks: Vec<(f64, String)>,
}

/// A curve.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points, by rising x.
    pub points: Vec<(f64, f64)>,
    /// Half of the interval in which each lies with a confidence of 95 %; empty where that is not known.
    #[serde(default)]
    pub half: Vec<f64>,
}

/// Bars side by side.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Caption.
    pub title: String,
    /// Name and unit of the vertical axis.
    pub y: String,
    /// Name and height of each.
    pub bars: Vec<(String, f64)>,
    /// As of a [`Line`].
    #[serde(default)]
    pub half: Vec<f64>,
    /// A line across, with its name: what each should be.
    #[serde(default)]
    pub mark: Option<(String, f64)>,
}

#[cfg(test)]
mod tests;
