//! Results as text tables for people.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::files::parameter_names;
use super::{Bottleneck, Metric, Run};
use crate::workload::{JobTimes, RankTimes};

/// Formats a number with three to four significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.2e}")
    }
}

/// Formats a table in the common style of the commands: no lines except one below the header.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head.iter().map(|name| Cell::new(*name)));
    // Numbers are aligned to the right. A column is numeric if all its cells parse as numbers.
    let numeric = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).all(|cell| {
            let cell = cell.trim_end_matches(['%', 'x']).trim_start_matches(['<', '>', '=', ' ']);
            cell.is_empty() || cell == "-" || cell.parse::<f64>().is_ok()
        })
    };
    let right: Vec<bool> = (0..head.len()).map(numeric).collect();
    for row in rows {
        table.add_row(row.iter().zip(&right).map(|(cell, right)| {
            let align = if *right { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(cell).set_alignment(align)
        }));
    }
    for (index, right) in right.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            let align = if *right { CellAlignment::Right } else { CellAlignment::Left };
            column.set_cell_alignment(align);
            column.set_padding((0, 2));
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

/// Formats one run in a few lines, and the flows that did not finish.
#[must_use]
pub fn summary(run: &Run) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    let finished = run.flows.len() - run.unfinished();
    let bytes = run.flows.iter().map(|flow| flow.bytes).fold(0, u64::saturating_add);
    let derived = |key| run.provenance.as_ref().and_then(|origin| origin.derived.get(key));
    let planes = derived("topology.planes").zip(derived("topology.link_gbps"));
    line(format!(
        "{finished} of {} flows finished; {} bytes between {} hosts at {} Gb/s{}, base RTT {} us",
        run.flows.len(),
        bytes,
        run.network.hosts,
        number(run.network.line_gbps),
        planes.map_or_else(String::new, |(links, gbps)| format!(" ({links} links of {gbps})")),
        number(run.network.base_rtt_us),
    ));
    if let Some(why) = &run.stopped {
        line(format!("stopped: {why}"));
    }
    if let Some(makespan) = run.makespan_us {
        line(format!("the schedule took {} us, with what ranks compute", number(makespan)));
    }
    if let Some(times) = &run.job_times {
        text.push_str(&job(times));
        if let Some(bottleneck) = Bottleneck::of(run) {
            text.push_str(&format!("bottleneck: {bottleneck}\n"));
        }
    }
    let metric = |name: &str| {
        let value = name.parse::<Metric>().ok().and_then(|metric| metric.of(run));
        value.map_or("-".to_owned(), number)
    };
    let row = |cells: &[&str]| cells.iter().map(|name| metric(name)).collect::<Vec<_>>();
    text.push_str(&table(
        &["fct us: min", "mean", "p50", "p99", "max", "over ideal", "goodput Gb/s", "Jain"],
        &[row(&[
            "min_fct",
            "mean_fct",
            "p50_fct",
            "p99_fct",
            "max_fct",
            "over_ideal",
            "goodput",
            "jain",
        ])],
    ));
    let totals = &run.totals;
    let counts = [
        totals.packets,
        totals.retransmitted,
        totals.trimmed,
        run.network.dropped,
        run.network.marked,
        totals.nacks,
        totals.acks,
        totals.events,
    ];
    text.push_str(&table(
        &["packets", "retransmitted", "trimmed", "dropped", "marked", "nacks", "acks", "events"],
        &[counts.iter().map(u64::to_string).collect()],
    ));
    text.push_str(&format!(
        "{} s, {} MB at most\n",
        number(totals.wall_s),
        number(totals.peak_bytes as f64 / 1e6)
    ));
    text.push_str(&unfinished(run));
    text
}

/// Largest number of ranks of which each has a row.
const RANKS: usize = 16;

/// Formats what the ranks of a job did: all of them, or the extremes of many.
fn job(times: &JobTimes) -> String {
    let mut text = format!(
        "over a network without delays it would take {} us: the network costs {} %\n",
        number(times.without_network_us),
        number(100.0 * times.network_share())
    );
    let columns: [fn(&RankTimes) -> f64; 3] =
        [|of| of.computing_us, |of| of.exposed_us, |of| of.waiting_us];
    let row = |name: String, of: &dyn Fn(fn(&RankTimes) -> f64) -> f64| {
        core::iter::once(name).chain(columns.iter().map(|column| number(of(*column)))).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    if times.ranks.len() <= RANKS {
        let ranks = times.ranks.iter().enumerate();
        rows.extend(ranks.map(|(rank, of)| row(rank.to_string(), &|column| column(of))));
    } else {
        let values = |column: fn(&RankTimes) -> f64| times.ranks.iter().map(column);
        let count = times.ranks.len() as f64;
        rows.push(row("least".to_owned(), &|of| values(of).fold(f64::INFINITY, f64::min)));
        rows.push(row("mean".to_owned(), &|of| values(of).sum::<f64>() / count));
        rows.push(row("most".to_owned(), &|of| values(of).fold(0.0, f64::max)));
    }
    text.push_str(&table(&["rank", "computing us", "exposed us", "waiting us"], &rows));
    text
}

/// Formats the flows that did not finish, by reason, with the first few of each.
#[must_use]
pub fn unfinished(run: &Run) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for flow in run.flows.iter().filter(|flow| flow.fct_us.is_none()) {
        let reason = flow.reason.as_deref().unwrap_or("not finished");
        let name = format!("{} ({}->{})", flow.id, flow.src, flow.dst);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, flows)) => flows.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let mut text = String::new();
    for (reason, flows) in reasons {
        let shown = flows.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let more = if flows.len() > 8 { ", .." } else { "" };
        text.push_str(&format!("{} flows: {reason}: {shown}{more}\n", flows.len()));
    }
    text
}

/// Formats a table with the given metrics, one line for each run.
#[must_use]
pub fn runs(runs: &[Run], metrics: &[Metric]) -> String {
    let names = parameter_names(runs);
    let mut head: Vec<String> = names.clone();
    head.push("seed".to_owned());
    head.extend(metrics.iter().map(|metric| match metric.unit() {
        "" => metric.to_string(),
        unit => format!("{metric} {unit}"),
    }));
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let mut row: Vec<String> = names
                .iter()
                .map(|name| run.parameters.get(name).cloned().unwrap_or_default())
                .collect();
            row.push(run.seed.to_string());
            row.extend(metrics.iter().map(|metric| metric.of(run).map_or("-".to_owned(), number)));
            row
        })
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table(&head, &rows)
}
