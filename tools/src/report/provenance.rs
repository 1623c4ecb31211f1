//! Shows the origin of results, and the settings in which several inputs differ.

use std::collections::{BTreeMap, BTreeSet};

use super::compose::{legend, overview};
use super::{Document, Line, Plot, ReportTable};
use squall_netsim::output::{Metric, Origin, Run, SeriesKind};
use squall_netsim::settings::Settings;

/// Largest number of values of a setting, or of programs, that a report lists.
const VALUES: usize = 8;

/// A setting whose values differ between inputs: its key, and its values in each input.
type Difference = (String, Vec<BTreeSet<String>>);

/// Selects the settings or the derived values from a run's provenance.
type Part = fn(&Run) -> Option<&Settings>;

/// The results of one file or folder.
#[derive(Clone, Debug)]
pub struct Input {
    /// The file or folder as the user named it.
    pub name: String,
    /// Runs in the file or folder.
    pub runs: Vec<Run>,
}

impl Input {
    /// Returns whether any run records its settings.
    fn has_provenance(&self) -> bool {
        self.runs.iter().any(|run| run.provenance.is_some())
    }
}

/// Returns one sentence for each program that made the runs.
pub(super) fn origins(runs: &[Run]) -> Vec<String> {
    let mut sentences = Vec::new();
    for made in runs.iter().filter_map(|run| run.provenance.as_ref()) {
        let Origin { date, command, .. } = &made.origin;
        let sentence = format!("{}, {date}: {command}", made.origin.program());
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    if sentences.len() > VALUES {
        let more = sentences.len() - VALUES;
        sentences.truncate(VALUES);
        sentences.push(format!(".. and {more} others"));
    }
    sentences
}

/// Returns a folded table of all settings, given and derived; `None` if no run states any.
pub(super) fn parameters(runs: &[Run]) -> Option<ReportTable> {
    let parts: [(&str, Part); 2] = [
        ("setting", |run| Some(&run.provenance.as_ref()?.settings)),
        ("derived", |run| Some(&run.provenance.as_ref()?.derived)),
    ];
    let mut rows = Vec::new();
    for (how, part) in parts {
        let values = values(runs, part).into_iter();
        rows.extend(values.map(|(key, values)| vec![key, words(&values), how.to_owned()]));
    }
    (!rows.is_empty()).then(|| ReportTable {
        title: "Parameters: settings, given or default, and the values derived from them"
            .to_owned(),
        head: ["key", "value", ""].map(str::to_owned).to_vec(),
        rows,
        folded: true,
    })
}

/// Returns all values that each setting has in the runs.
fn values(
    runs: &[Run],
    part: impl Fn(&Run) -> Option<&Settings>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in runs.iter().filter_map(part).flat_map(Settings::iter) {
        values.entry(key.to_owned()).or_default().insert(value.to_owned());
    }
    values
}

fn words(values: &BTreeSet<String>) -> String {
    let mut shown: Vec<&str> = values.iter().take(VALUES).map(String::as_str).collect();
    if values.len() > VALUES {
        shown.push("..");
    }
    shown.join(", ")
}

/// Compares several inputs in one document, where each is named by the settings that differ.
/// Returns `None` for a single input.
#[must_use]
pub fn beside(inputs: &[Input], metrics: &[Metric]) -> Option<Document> {
    if inputs.len() < 2 {
        return None;
    }
    let differing = differences(inputs);
    let names = names(inputs, &differing);
    let mut runs = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let name = names.as_ref().map(|names| names[at].as_str());
        runs.extend(input.runs.iter().map(|run| named(run, name, &differing)));
    }
    // The series of each run are in the input's own part of the report.
    let mut document = overview("Beside each other", &runs, metrics);
    document.tables.insert(0, table(inputs, &differing));
    document.plots.extend(over_one_another(&runs));
    Some(document)
}

/// Returns a run whose parameters include the settings that distinguish its input.
fn named(run: &Run, name: Option<&str>, differing: &[Difference]) -> Run {
    let mut run = run.clone();
    let Some(made) = &run.provenance else {
        run.parameters.extend(name.map(|name| ("result".to_owned(), name.to_owned())));
        return run;
    };
    // Swept values are among the run's parameters already.
    let known: BTreeSet<&String> = run.parameters.values().collect();
    let more: Vec<(String, String)> = differing
        .iter()
        .filter(|(key, _)| key != "seed")
        .filter_map(|(key, _)| Some((short(key, differing), made.settings.get(key)?.to_owned())))
        .filter(|(_, value)| !known.contains(value))
        .collect();
    run.parameters.extend(more);
    run.parameters.extend(name.map(|name| ("result".to_owned(), name.to_owned())));
    run
}

/// Returns the settings that differ between the inputs, of those inputs that state settings.
fn differences(inputs: &[Input]) -> Vec<Difference> {
    let settings =
        |input: &Input| values(&input.runs, |run| Some(&run.provenance.as_ref()?.settings));
    let each: Vec<_> = inputs.iter().map(settings).collect();
    let keys: BTreeSet<&String> = each.iter().flat_map(BTreeMap::keys).collect();
    let row = |key: &String| -> Vec<BTreeSet<String>> {
        each.iter().map(|values| values.get(key).cloned().unwrap_or_default()).collect()
    };
    let rows = keys.into_iter().map(|key| (key.clone(), row(key)));
    let differ = |values: &[BTreeSet<String>]| {
        let mut stated = inputs.iter().zip(values).filter(|(input, _)| input.has_provenance());
        let first = stated.next();
        stated.any(|(_, values)| first.is_some_and(|(_, first)| first != values))
    };
    rows.filter(|(_, values)| differ(values)).collect()
}

/// Returns names for inputs that settings do not distinguish: their programs if those differ, else
/// their files. Returns `None` if settings suffice.
fn names(inputs: &[Input], differing: &[Difference]) -> Option<Vec<String>> {
    let alike = |a: usize, b: usize| differing.iter().all(|(_, values)| values[a] == values[b]);
    let all_have_provenance = inputs.iter().all(Input::has_provenance);
    if all_have_provenance && (0..inputs.len()).all(|b| (0..b).all(|a| !alike(a, b))) {
        return None;
    }
    let program = |input: &Input| {
        let made = input.runs.iter().find_map(|run| run.provenance.as_ref());
        made.map_or_else(String::new, |made| made.origin.program())
    };
    let programs: Vec<String> = inputs.iter().map(program).collect();
    let different: BTreeSet<&String> = programs.iter().collect();
    Some(match all_have_provenance && different.len() == inputs.len() {
        true => programs,
        false => inputs.iter().map(|input| input.name.clone()).collect(),
    })
}

/// Returns the last word of a setting's key, or the whole key if another differing setting ends in
/// the same word.
fn short(key: &str, differing: &[Difference]) -> String {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let word = last(key);
    match differing.iter().filter(|(other, _)| last(other) == word).count() {
        1 => word,
        _ => key.to_owned(),
    }
}

/// Returns the table of the settings that differ, with one column per input.
fn table(inputs: &[Input], differing: &[Difference]) -> ReportTable {
    let mut head = vec!["what differs".to_owned()];
    head.extend(inputs.iter().map(|input| input.name.clone()));
    let origin = |what: &str, of: fn(&Origin) -> String| {
        let cell = |input: &Input| {
            let made = input.runs.iter().filter_map(|run| run.provenance.as_ref());
            words(&made.map(|made| of(&made.origin)).collect())
        };
        let mut row = vec![what.to_owned()];
        row.extend(inputs.iter().map(cell));
        row
    };
    let mut rows = vec![
        origin("program", Origin::program),
        origin("date", |origin| origin.date.clone()),
        origin("command", |origin| origin.command.clone()),
    ];
    rows.retain(|row| row[1..].windows(2).any(|pair| pair[0] != pair[1]));
    rows.extend(differing.iter().map(|(key, values)| {
        let mut row = vec![key.clone()];
        row.extend(values.iter().map(words));
        row
    }));
    ReportTable { title: "What differs".to_owned(), head, rows, folded: false }
}

/// Plots the first series of each run (the longest queue, the first flow) together, one plot per
/// kind of series.
fn over_one_another(runs: &[Run]) -> Vec<Plot> {
    let plot = |(kind, title, y, scale): (SeriesKind, &str, &str, f64)| {
        let mut lines: Vec<Line> = Vec::new();
        for run in runs {
            let Some(series) = run.series.iter().find(|series| series.kind == kind) else {
                continue;
            };
            let name = legend(run);
            if lines.iter().all(|line| line.name != name) {
                let points = series.points.iter().map(|&(at, value)| (at, value * scale)).collect();
                lines.push(Line { name, points, ..Line::default() });
            }
        }
        let (title, x, y) = (title.to_owned(), "time (us)".to_owned(), y.to_owned());
        (lines.len() > 1).then(|| Plot { title, x, y, lines, ..Plot::default() })
    };
    let kinds = [
        (
            SeriesKind::Queue,
            "The longest queue of each over time",
            "bytes waiting (KiB)",
            1.0 / 1024.0,
        ),
        (
            SeriesKind::Window,
            "The first flow's window of each over time",
            "window (KiB)",
            1.0 / 1024.0,
        ),
        (SeriesKind::Throughput, "The first flow's throughput of each over time", "Gb/s", 1.0),
        (SeriesKind::Jain, "Fairness of each over time", "Jain's index", 1.0),
    ];
    kinds.into_iter().filter_map(plot).collect()
}
