//! Writes counters in Prometheus' text format 0.0.4 and in OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use squall_monitor::{ADDRESS, COLLECTED_FLOWS, Counter, PATH, PathValues, address_from_words};

use super::rates::Row;

/// The text format in which a collector gets the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exposition {
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    /// Returns the format that a request's `Accept` header asks for.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the `Content-Type` header of the format.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns a label's value with the escapes of both formats.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(row: &Row) -> String {
    let of = &row.seen.snapshot.description;
    let rank = of.place.rank.map_or_else(String::new, |rank| rank.to_string());
    format!(
        "job_name=\"{}\",rank=\"{rank}\",pid=\"{}\",endpoint=\"{}\",program=\"{}\",local=\"{}\"",
        quoted(&of.place.job),
        of.pid,
        of.endpoint,
        quoted(&of.program),
        quoted(&of.local),
    )
}

/// A counter with its values at several endpoints (a metric family of the formats).
struct Family<'a> {
    counter: &'a Counter,
    /// Index of the endpoint, and the counter's value there.
    samples: Vec<(usize, u64)>,
}

/// A path that a flow used, with its labels and counters.
struct Path {
    labels: String,
    values: PathValues,
}

/// Returns the paths of the endpoint's busiest flows, with their counters.
fn paths(row: &Row) -> Vec<Path> {
    let shown = &row.seen.snapshot;
    let word = |flow: &[u64], name: &str| shown.flow_value(flow, name).unwrap_or(0);
    let mut flows: Vec<&Vec<u64>> = shown.flows.iter().collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(word(flow, "bytes")));
    let of = |flow: &Vec<u64>| {
        let peer = address_from_words(ADDRESS.map(|name| word(flow, name)));
        let initiator = word(flow, "initiator");
        let used = shown.path_values(flow).into_iter().enumerate();
        let used = used.filter(|(_, [packets, ..])| *packets > 0);
        let path = |(path, values)| Path {
            labels: format!("peer=\"{peer}\",initiator=\"{initiator}\",path=\"{path}\""),
            values,
        };
        used.map(path).collect::<Vec<_>>()
    };
    flows.into_iter().take(COLLECTED_FLOWS).flat_map(of).collect()
}

/// Builds the text that a collector gets.
struct Text {
    text: String,
    format: Exposition,
}

impl Text {
    /// Writes the lines `# HELP` and `# TYPE` of a counter. `adds_up` selects the type counter
    /// instead of gauge.
    fn head(&mut self, name: &str, help: &str, adds_up: bool) {
        let kind = if adds_up { "counter" } else { "gauge" };
        // OpenMetrics names the family here, Prometheus the samples.
        let suffix = if self.format == Exposition::Prometheus { suffix(adds_up) } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP squall_{name}{suffix} {}", quoted(help));
        let _ = writeln!(self.text, "# TYPE squall_{name}{suffix} {kind}");
    }

    fn sample(&mut self, name: &str, adds_up: bool, labels: &str, value: u64) {
        let _ = writeln!(self.text, "squall_{name}{}{{{labels}}} {value}", suffix(adds_up));
    }
}

/// Returns the suffix of a counter's name (`_total`); gauges have none.
const fn suffix(adds_up: bool) -> &'static str {
    if adds_up { "_total" } else { "" }
}

/// Writes all counters of all endpoints and of their paths. Values that add up become counters,
/// others gauges; each family is contiguous.
pub(super) fn exposition(rows: &[Row], format: Exposition) -> String {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        for (counter, value) in row.seen.snapshot.counters() {
            let family = families.entry(&counter.name);
            let family = family.or_insert_with(|| Family { counter, samples: Vec::new() });
            family.samples.push((i, value));
        }
    }
    let labels: Vec<String> = rows.iter().map(labels).collect();
    let mut text = Text { text: String::new(), format };
    for (name, Family { counter, samples }) in families {
        text.head(name, &counter.help, counter.merge == "sum");
        for (i, value) in samples {
            text.sample(name, counter.merge == "sum", &labels[i], value);
        }
    }
    let paths: Vec<Vec<Path>> = rows.iter().map(paths).collect();
    for (place, (name, help)) in PATH.iter().enumerate() {
        let name = format!("path_{name}");
        if paths.iter().all(Vec::is_empty) {
            continue;
        }
        text.head(&name, help, true);
        for (paths, endpoint) in paths.iter().zip(&labels) {
            for Path { labels, values } in paths {
                text.sample(&name, true, &format!("{endpoint},{labels}"), values[place]);
            }
        }
    }
    let Text { mut text, .. } = text;
    if format == Exposition::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}
