//! Makes documents from runs and verdicts.

use std::collections::BTreeMap;

use super::{Bars, Document, Gantt, Line, Plot, ReportTable, provenance, sweep};
use crate::plan::Verdict;
use squall_netsim::output::files::parameter_names;
use squall_netsim::output::text::number;
use squall_netsim::output::{Bottleneck, LinkLoad, Metric, Run, SeriesKind};
use squall_netsim::workload::RankTimes;

/// Largest number of curves in a plot. If there are more, the title says so.
const CURVES: usize = 64;

/// Makes a document of runs: a table of `metrics`, the distribution of completion times, the series
/// of the first run of each point (queues, windows, throughput, links), and the provenance.
#[must_use]
pub fn from_runs(title: &str, text: &[String], runs: &[Run], metrics: &[Metric]) -> Document {
    let mut document = Document { text: text.to_vec(), ..overview(title, runs, metrics) };
    let mut seen = Vec::new();
    for run in runs {
        if seen.contains(&&run.parameters) {
            continue;
        }
        seen.push(&run.parameters);
        recorded(&mut document, run);
    }
    document.text.extend(provenance::origins(runs));
    document.tables.extend(provenance::parameters(runs));
    document
}

/// Makes the part of a document that shows all runs together.
pub(super) fn overview(title: &str, runs: &[Run], metrics: &[Metric]) -> Document {
    let mut document = Document { title: title.to_owned(), ..Document::default() };
    document.tables.extend(jobs(runs));
    document.tables.push(table(runs, metrics));
    let (sweeps, bars) = sweep::sweeps(runs, metrics);
    document.plots.extend(sweeps);
    document.bars.extend(bars);
    document.plots.push(distribution(runs));
    document
}

fn table(runs: &[Run], metrics: &[Metric]) -> ReportTable {
    let names = parameter_names(runs);
    let mut head = names.clone();
    head.push("seed".to_owned());
    head.extend(metrics.iter().map(|metric| match metric.unit() {
        "" => metric.to_string(),
        unit => format!("{metric} ({unit})"),
    }));
    let rows = runs
        .iter()
        .map(|run| {
            let parameter =
                |name: &String| run.parameters.get(name).cloned().unwrap_or_else(|| "-".to_owned());
            let mut row: Vec<String> = names.iter().map(parameter).collect();
            row.push(run.seed.to_string());
            row.extend(metrics.iter().map(|metric| metric.of(run).map_or("-".to_owned(), number)));
            row
        })
        .collect();
    ReportTable { title: "Runs".to_owned(), head, rows, folded: false }
}

/// Plots the share of flows that finished within a time. Runs of one point with different seeds
/// form one curve.
fn distribution(runs: &[Run]) -> Plot {
    let mut curves: Vec<(&BTreeMap<String, String>, String, Vec<f64>)> = Vec::new();
    for run in runs {
        let times = run.completion_times();
        match curves.iter_mut().find(|curve| *curve.0 == run.parameters) {
            Some(curve) => curve.2.extend(times),
            None => curves.push((&run.parameters, legend(run), times)),
        }
    }
    let all = curves.len();
    let lines = curves
        .into_iter()
        .take(CURVES)
        .map(|(_, name, mut times)| {
            times.sort_by(f64::total_cmp);
            let count = times.len() as f64;
            let first = (times.first().copied().unwrap_or(0.0), 0.0);
            let done = (1..).zip(times).map(|(done, time)| (time, f64::from(done) / count));
            let points = core::iter::once(first).chain(done).collect();
            Line { name, points, ..Line::default() }
        })
        .collect();
    Plot {
        title: format!("Flow completion times: share of flows done{}", shown(all)),
        steps: true,
        x: "completion time (us)".to_owned(),
        y: "share of flows".to_owned(),
        lines,
        ..Plot::default()
    }
}

/// Returns the part of a plot's title that says how many of `all` curves are shown; empty if all
/// are.
fn shown(all: usize) -> String {
    if all > CURVES { format!(" (the first {CURVES} of {all})") } else { String::new() }
}

pub(super) fn legend(run: &Run) -> String {
    let words: Vec<&str> = run.parameters.values().map(String::as_str).collect();
    match (words.is_empty(), run.name.is_empty()) {
        (false, _) => words.join(" "),
        (true, false) => run.name.clone(),
        (true, true) => format!("seed {}", run.seed),
    }
}

/// Adds the recorded queues, windows, throughput and links of one run.
fn recorded(document: &mut Document, run: &Run) {
    let of = match legend(run) {
        name if run.parameters.is_empty() && run.name.is_empty() => format!(" ({name})"),
        name => format!(", {name}"),
    };
    for (kind, what, unit, scale) in [
        (SeriesKind::Queue, "Queues", "bytes waiting (KiB)", 1.0 / 1024.0),
        (SeriesKind::Window, "Congestion windows", "window (KiB)", 1.0 / 1024.0),
        (SeriesKind::Throughput, "Throughput", "Gb/s", 1.0),
        (SeriesKind::Load, "Load of links", "Gb/s", 1.0),
        (SeriesKind::Jain, "Fairness", "Jain's index", 1.0),
        (SeriesKind::Rate, "Rates", "allowed by congestion control (Gb/s)", 1.0),
    ] {
        let all = run.series.iter().filter(|series| series.kind == kind);
        let lines: Vec<Line> = all
            .clone()
            .take(CURVES)
            .map(|series| {
                let points = series.points.iter().map(|&(at, value)| (at, value * scale)).collect();
                Line { name: series.name.clone(), points, ..Line::default() }
            })
            .collect();
        if !lines.is_empty() {
            let title = format!("{what} over time{of}{}", shown(all.count()));
            let (x, y) = ("time (us)".to_owned(), unit.to_owned());
            let marks = (1..).zip(&run.events);
            let marks = marks.map(|(n, event): (u32, _)| (event.at_us, n.to_string())).collect();
            let family = what.to_owned();
            document.plots.push(Plot { title, x, y, lines, marks, family, ..Plot::default() });
        }
    }
    document.tables.extend(events(run, &of));
    document.tables.extend(ranks(run, &of));
    document.tables.extend(link_use(run, &of));
    document.gantts.extend(timelines(run, &of));
    document.bars.extend(link_load(run, &of));
    let has_details = !run.parameters.is_empty() || !run.series.is_empty() || !run.links.is_empty();
    // The messages of a job are too many, and differ too much in length.
    if has_details && run.job_times.is_none() {
        document.bars.extend(shares(run, &of));
    }
}

/// Lists the changes to the network, with the numbers that mark them in plots.
fn events(run: &Run, of: &str) -> Option<ReportTable> {
    let rows = (1..).zip(&run.events).map(|(n, event): (u32, _)| {
        vec![n.to_string(), format!("{:.3}", event.at_us / 1e3), event.what.clone()]
    });
    (!run.events.is_empty()).then(|| ReportTable {
        title: format!("What happened to the network, marked in the plots{of}"),
        head: ["mark", "time (ms)", "event"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        folded: false,
    })
}

/// Returns the Gantt chart of a run: when its ranks computed, communicated and waited. Only ranks with a
/// recorded timeline have a row. Returns `None` if the run has no job.
fn timelines(run: &Run, of: &str) -> Option<Gantt> {
    let times = run.job_times.as_ref()?;
    let ranks = times.ranks.iter().enumerate().filter(|(_, rank)| !rank.timeline.is_empty());
    let ms = |&(at, what): &(f64, u8)| (at / 1e3, what);
    let row = |(rank, times): (usize, &RankTimes)| {
        (format!("rank {rank}"), times.timeline.iter().map(ms).collect())
    };
    Some(Gantt {
        title: format!("Ranks over time{of}"),
        x: "time (ms)".to_owned(),
        end: times.lasted_us / 1e3,
        states: ["waits", "communicates only", "computes"].map(str::to_owned).to_vec(),
        rows: ranks.map(row).collect(),
    })
}

/// Lists how long each job took, the network's share of that time, and the bottleneck. Returns `None` if
/// no run has a job.
fn jobs(runs: &[Run]) -> Option<ReportTable> {
    let names = parameter_names(runs);
    let metrics =
        ["network_share", "mean_exposed", "max_exposed", "host_link_use", "switch_link_use"];
    let metric = |run: &Run, name: &str| {
        let value = name.parse::<Metric>().ok().and_then(|metric| metric.of(run));
        value.map_or("-".to_owned(), number)
    };
    let ms = |us: f64| number(us / 1e3);
    let rows = runs.iter().filter_map(|run| {
        let times = run.job_times.as_ref()?;
        let parameter =
            |name: &String| run.parameters.get(name).cloned().unwrap_or_else(|| "-".to_owned());
        let mut row: Vec<String> = names.iter().map(parameter).collect();
        row.extend([run.seed.to_string(), ms(times.lasted_us), ms(times.without_network_us)]);
        row.extend(metrics.iter().map(|name| metric(run, name)));
        row.push(Bottleneck::of(run).map_or("-".to_owned(), |limit| limit.to_string()));
        Some(row)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = [
        "seed",
        "time (ms)",
        "without network (ms)",
        "network share (%)",
        "mean exposed (us)",
        "max exposed (us)",
        "busiest host link (%)",
        "busiest switch link (%)",
        "bottleneck",
    ];
    (!rows.is_empty()).then(|| ReportTable {
        title: "Jobs: cost of the network, and bottlenecks".to_owned(),
        head: names.into_iter().chain(columns.map(str::to_owned)).collect(),
        rows,
        folded: false,
    })
}

/// Lists the utilization of the links of each kind and plane.
fn link_use(run: &Run, of: &str) -> Option<ReportTable> {
    /// Tier, whether the links lead down, and plane.
    type Kind = (u8, bool, Option<u32>);
    let lasted = run.makespan_us?;
    let plane = |link: &LinkLoad| -> Option<u32> {
        let host = link.name.split("->").find(|end| end.contains("-p"))?;
        host.rsplit_once("-p")?.1.parse().ok()
    };
    let mut kinds: BTreeMap<Kind, Vec<(f64, &str)>> = BTreeMap::new();
    for link in run.links.iter().filter(|link| link.gbps > 0.0) {
        let share = link.bytes as f64 * 8e-3 / link.gbps / lasted * 100.0;
        let kind = kinds.entry((link.tier, !link.up, plane(link))).or_default();
        kind.push((share, link.name.as_str()));
    }
    let rows = kinds.into_iter().map(|((tier, down, plane), links)| {
        let kind = match (tier, down) {
            (0, false) => "hosts to leaves".to_owned(),
            (0, true) => "leaves to hosts".to_owned(),
            (tier, false) => format!("up to tier {tier}"),
            (tier, true) => format!("down from tier {tier}"),
        };
        let count = links.len();
        let mean = links.iter().map(|link| link.0).sum::<f64>() / count as f64;
        let most = links.iter().max_by(|a, b| a.0.total_cmp(&b.0)).copied().unwrap_or_default();
        vec![
            kind,
            plane.map_or("-".to_owned(), |plane| plane.to_string()),
            count.to_string(),
            number(mean),
            number(most.0),
            most.1.to_owned(),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| ReportTable {
        title: format!(
            "Link utilization: time to send a link's bytes at its rate, as a share of the job's time{of}"
        ),
        head: ["kind", "plane", "links", "mean (%)", "busiest (%)", "busiest link"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        folded: false,
    })
}

/// Largest number of ranks of which each has a row.
const RANKS: usize = 64;

/// Lists the times that each rank of a schedule computed, communicated and waited. If there are many
/// ranks, lists the minimum, mean and maximum of each time.
fn ranks(run: &Run, of: &str) -> Option<ReportTable> {
    let job = run.job_times.as_ref()?;
    let columns: [fn(&RankTimes) -> f64; 3] =
        [|rank| rank.computing_us, |rank| rank.exposed_us, |rank| rank.waiting_us];
    let row = |name: String, value: &dyn Fn(fn(&RankTimes) -> f64) -> f64| {
        let values = columns.iter().map(|column| number(value(*column)));
        core::iter::once(name).chain(values).collect::<Vec<_>>()
    };
    let rows = if job.ranks.len() <= RANKS {
        let ranks = job.ranks.iter().enumerate();
        ranks.map(|(rank, times)| row(rank.to_string(), &|column| column(times))).collect()
    } else {
        let values = |column: fn(&RankTimes) -> f64| job.ranks.iter().map(column);
        vec![
            row("minimum".to_owned(), &|of| values(of).fold(f64::INFINITY, f64::min)),
            row("mean".to_owned(), &|of| values(of).sum::<f64>() / job.ranks.len() as f64),
            row("maximum".to_owned(), &|of| values(of).fold(0.0, f64::max)),
        ]
    };
    let each = if job.ranks.len() > RANKS { " (each column on its own)" } else { "" };
    Some(ReportTable {
        title: format!(
            "Ranks: the job took {} us, and {} us over a network without delays{each}{of}",
            number(job.lasted_us),
            number(job.without_network_us)
        ),
        head: ["rank", "computing (us)", "exposed (us)", "waiting (us)"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        folded: false,
    })
}

/// Shows the bytes of each upward link between switches, and their mean.
fn link_load(run: &Run, of: &str) -> Option<Bars> {
    let links: Vec<_> = run.links.iter().filter(|link| link.up && link.tier > 0).collect();
    let bars: Vec<(String, f64)> =
        links.iter().map(|link| (link.name.clone(), link.bytes as f64 / 1e6)).collect();
    let mean = bars.iter().map(|bar| bar.1).sum::<f64>() / bars.len() as f64;
    (!bars.is_empty()).then(|| Bars {
        title: format!("Load of the paths: links from the racks upwards{of}"),
        y: "bytes carried (MB)".to_owned(),
        bars,
        half: Vec::new(),
        mark: Some((format!("mean {}", number(mean)), mean)),
    })
}

/// Shows the mean rate of each flow, and the mean over all flows.
fn shares(run: &Run, of: &str) -> Option<Bars> {
    let bars: Vec<(String, f64)> = run
        .flows
        .iter()
        .filter_map(|flow| Some((flow.id.to_string(), flow.bytes as f64 * 8e-3 / flow.fct_us?)))
        .collect();
    let mean = bars.iter().map(|bar| bar.1).sum::<f64>() / bars.len() as f64;
    (bars.len() > 1).then(|| Bars {
        title: format!("Share of the throughput: mean rate of each flow{of}"),
        y: "Gb/s".to_owned(),
        bars: bars.into_iter().map(|(id, rate)| (format!("flow {id}"), rate)).collect(),
        half: Vec::new(),
        mark: Some((format!("mean {}", number(mean)), mean)),
    })
}

/// Makes a table of statements and their verdicts.
#[must_use]
pub fn from_verdicts(title: &str, verdicts: &[Verdict]) -> ReportTable {
    let head = ["statement", "source", "expected", "measured", "pass"].map(str::to_owned).to_vec();
    let rows = verdicts
        .iter()
        .map(|verdict| {
            let words = [&verdict.statement, &verdict.source, &verdict.expected, &verdict.measured];
            let mut row: Vec<String> = words.into_iter().cloned().collect();
            row.push(verdict.word().to_owned());
            row
        })
        .collect();
    ReportTable { title: title.to_owned(), head, rows, folded: false }
}
