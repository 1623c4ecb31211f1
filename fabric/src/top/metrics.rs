//! Counters as collectors read them: Prometheus' text format 0.0.4 and OpenMetrics 1.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use squall_monitor::Counter;

use super::rates::Row;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exposition {
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    /// What a request accepts.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// As answers name it.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A label's value, as both formats quote it.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(row: &Row) -> String {
    let of = &row.seen.snapshot.description;
    let rank = of.place.rank.map_or_else(String::new, |rank| rank.to_string());
    format!(
        "{{job_name=\"{}\",rank=\"{rank}\",pid=\"{}\",endpoint=\"{}\",program=\"{}\",local=\"{}\"}}",
        quoted(&of.place.job),
        of.pid,
        of.endpoint,
        quoted(&of.program),
        quoted(&of.local),
    )
}

/// A counter of several endpoints.
struct Family<'a> {
    counter: &'a Counter,
    /// By the place of the endpoint.
    samples: Vec<(usize, u64)>,
}

/// All counters of all endpoints: what adds up as counters, the rest as gauges, each family in one place.
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
    let mut text = String::new();
    for (name, Family { counter, samples }) in families {
        let adds_up = counter.merge == "sum";
        let kind = if adds_up { "counter" } else { "gauge" };
        let suffix = if adds_up { "_total" } else { "" };
        // OpenMetrics names the family, Prometheus the samples.
        let family = if format == Exposition::Prometheus { suffix } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP squall_{name}{family} {}", quoted(&counter.help));
        let _ = writeln!(text, "# TYPE squall_{name}{family} {kind}");
        for (i, value) in samples {
            let _ = writeln!(text, "squall_{name}{suffix}{} {value}", labels[i]);
        }
    }
    if format == Exposition::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}
