//! The command line of `squall report`, which makes one HTML page of results.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use crate::report::{Document, Input, beside, figures, from_runs, render};
use squall_netsim::output::files::{self, FileError, write_whole};
use squall_netsim::output::{Metric, Run, perfetto};

/// Makes one HTML page with tables and plots of results: of simulations (JSON of `squall sim`, the
/// `runs` folder of `squall plan run`) and of documents that other programs wrote. Several results are also drawn over one
/// another, each named by what differs between them.
#[derive(Args, Debug)]
#[command(after_long_help = list_of_metrics())]
pub(super) struct ReportArgs {
    /// JSON files or folders of them, shown in this order.
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// HTML file to write.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Draw each plot as an SVG file into this folder, too: `01-finish-over-senders.svg`.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write a timeline of all messages, queues, links and failures, too, which ui.perfetto.dev and chrome://tracing open.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Heading of the report.
    #[arg(long, default_value = "Squall report")]
    title: String,
    /// Columns of the table of runs. Default: max_fct, mean_fct, p99_fct, spread, over_ideal, goodput, jain,
    /// retransmitted, trimmed.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "METRIC,..",
        // Without a space in it, no line of the manual can hold it.
        hide_default_value = true,
        default_value = "max_fct,mean_fct,p99_fct,spread,over_ideal,goodput,jain,retransmitted,trimmed"
    )]
    metrics: Vec<Metric>,
}

/// Returns the end of `--help`: name, unit and meaning of each metric.
fn list_of_metrics() -> String {
    let mut text = "Metrics, for --metrics and for plans:\n".to_owned();
    for metric in Metric::all() {
        let unit = match metric.unit() {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        // A manual page breaks its lines before those that begin with spaces.
        text.push_str(&format!("  {metric}{unit}: {}\n", metric.what()));
    }
    text
}

pub(super) fn run(args: &ReportArgs) -> Result<u8, Failure> {
    let (mut documents, mut results) = (Vec::new(), Vec::new());
    for input in &args.inputs {
        match document(input)? {
            Some(document) => documents.push(document),
            None => {
                let runs: Vec<Run> = files::read_runs(input).map_err(Failure::usage)?;
                if runs.is_empty() {
                    let what = format!(
                        "{}: no results in it; give a folder with *.json files",
                        input.display()
                    );
                    return Err(Failure::usage(what));
                }
                let name = input.display().to_string();
                documents.push(from_runs(&name, &[], &runs, &args.metrics));
                results.push(Input { name, runs });
            }
        }
    }
    if let Some(path) = &args.perfetto {
        write_whole(path, |to| perfetto(&timeline(&results), to))?;
    }
    if let Some(all) = beside(&results, &args.metrics) {
        documents.insert(0, all);
    }
    if let Some(folder) = &args.svg {
        write_figures(folder, &documents)?;
    }
    write_report(&args.out, &args.title, &documents)?;
    Ok(0)
}

/// Returns the runs of all inputs for the timeline. If there are several inputs, the name of each
/// run begins with that of its input.
fn timeline(results: &[Input]) -> Vec<Run> {
    let named = |input: &Input, run: &Run| {
        let name = match (results.len(), run.name.as_str()) {
            (1, name) => name.to_owned(),
            (_, "") => input.name.clone(),
            (_, name) => format!("{}: {name}", input.name),
        };
        Run { name, ..run.clone() }
    };
    results.iter().flat_map(|input| input.runs.iter().map(|run| named(input, run))).collect()
}

/// Reads a document from a file. Returns `None` for a folder or a file of runs.
fn document(path: &Path) -> Result<Option<Document>, Failure> {
    if path.is_dir() {
        return Ok(None);
    }
    let text = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    let json = |error| FileError::Json { path: path.to_owned(), error };
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| Failure::usage(json(error)))?;
    if value.get("title").is_none() {
        return Ok(None);
    }
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| Failure::usage(json(error)))
}

/// Writes every plot as an SVG file into a folder.
fn write_figures(folder: &Path, documents: &[Document]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::failed(format!("cannot make {}: {error}", folder.display())))?;
    for (name, figure) in figures(documents).map_err(Failure::failed)? {
        write_whole(&folder.join(name), |to| to.write_all(figure.as_bytes()))?;
    }
    Ok(())
}

/// Renders and writes an HTML page.
pub(super) fn write_report(
    path: &Path,
    title: &str,
    documents: &[Document],
) -> Result<(), Failure> {
    let page = render(title, documents).map_err(Failure::failed)?;
    Ok(write_whole(path, |to| to.write_all(page.as_bytes()))?)
}
