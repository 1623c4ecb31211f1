//! Metrics: numbers that are computed from a run, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::sizes::Sizes;
use super::{FlowResult, Run, SeriesKind, bottleneck};
use crate::model::{FeatureMetric, registered};

/// A number that is computed from a run, such as `p99_slowdown`, or from those of its flows whose
/// length is in a range, such as `p99_slowdown(1MB..)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Metric {
    /// Index in [`METRICS`], continued by the metrics of switch features.
    index: usize,
    /// Lengths of the flows that count; `None` for all flows.
    sizes: Option<Sizes>,
}

/// The error that there is no metric of a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no metric is called `{name}`; there are {allowed}")]
pub struct UnknownMetric {
    name: String,
    allowed: String,
}

type Compute = fn(&Run) -> Option<f64>;

/// Name, unit, meaning and computation of each metric. The computation returns `None` if a run has
/// no such number. Switch features add their own metrics.
const METRICS: &[(&str, &str, &str, Compute)] = &[
    ("max_fct", "us", "completion time of the slowest flow", |run| last(&run.completion_times())),
    ("mean_fct", "us", "mean completion time", |run| mean(&run.completion_times())),
    ("min_fct", "us", "completion time of the fastest flow", |run| {
        run.completion_times().first().copied()
    }),
    ("p50_fct", "us", "median completion time", |run| percentile(&run.completion_times(), 0.5)),
    ("p99_fct", "us", "99th percentile of completion times", |run| {
        percentile(&run.completion_times(), 0.99)
    }),
    ("spread", "us", "slowest minus fastest completion", |run| {
        let times = run.completion_times();
        Some(last(&times)? - times.first()?)
    }),
    ("spread_share", "", "spread over the slowest completion", |run| {
        let times = run.completion_times();
        per(last(&times)? - times.first()?, last(&times)?)
    }),
    ("max_fct_rtts", "RTT", "slowest completion in base round trips", |run| {
        per(last(&run.completion_times())?, run.network.base_rtt_us)
    }),
    ("finish", "us", "from the first start to the last completion", finish),
    (
        "makespan",
        "us",
        "from the beginning to the end of a schedule, what ranks compute too",
        |run| run.makespan_us,
    ),
    (
        "network_share",
        "%",
        "share of a schedule's time that it would not take over a network without delays",
        |run| run.job_times.as_ref().map(|times| 100.0 * times.network_share()),
    ),
    (
        "mean_exposed",
        "us",
        "mean over ranks of the time in which messages are on their way and nothing is computed",
        |run| {
            let ranks = &run.job_times.as_ref()?.ranks;
            mean(&ranks.iter().map(|rank| rank.exposed_us).collect::<Vec<_>>())
        },
    ),
    (
        "max_exposed",
        "us",
        "longest time of any rank in which messages are on their way and nothing is computed",
        |run| {
            let ranks = &run.job_times.as_ref()?.ranks;
            ranks.iter().map(|rank| rank.exposed_us).max_by(f64::total_cmp)
        },
    ),
    (
        "host_link_use",
        "%",
        "share of a schedule's time that the busiest link of a host needs for its bytes",
        |run| link_use(run, false),
    ),
    (
        "switch_link_use",
        "%",
        "share of a schedule's time that the busiest link between switches needs for its bytes",
        |run| link_use(run, true),
    ),
    ("over_ideal", "", "finish over the time no transport can beat", |run| {
        per(finish(run)?, run.network.ideal_us)
    }),
    ("goodput", "Gb/s", "payload of finished flows over finish, of all hosts together", |run| {
        per(finished(run).map(|flow| flow.bytes as f64).sum::<f64>() * 8e-3, finish(run)?)
    }),
    ("flow_goodput", "Gb/s", "mean over flows of payload over completion time", |run| {
        mean(&rates(run))
    }),
    ("slowest_goodput", "Gb/s", "least over flows of payload over completion time", |run| {
        rates(run).into_iter().min_by(f64::total_cmp)
    }),
    ("jain", "", "Jain's fairness index of the flows' rates, 1 for equal", |run| {
        let rates = rates(run);
        let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
        per(sum * sum, rates.len() as f64 * squares)
    }),
    ("largest_fct", "us", "completion time of the longest flow", |run| {
        finished(run).max_by_key(|flow| flow.bytes).and_then(|flow| flow.fct_us)
    }),
    ("p50_slowdown", "", "median of completion times over those of each flow alone", |run| {
        percentile(&slowdowns(run), 0.5)
    }),
    (
        "p99_slowdown",
        "",
        "99th percentile of completion times over those of each flow alone",
        |run| percentile(&slowdowns(run), 0.99),
    ),
    (
        "p999_slowdown",
        "",
        "99.9th percentile of completion times over those of each flow alone",
        |run| percentile(&slowdowns(run), 0.999),
    ),
    (
        "p999_packet",
        "us",
        "99.9th percentile over flows of the longest that one of their packets was on its way, if recorded",
        |run| {
            let mut times: Vec<f64> = run.flows.iter().filter_map(|flow| flow.slowest_us).collect();
            times.sort_by(f64::total_cmp);
            percentile(&times, 0.999)
        },
    ),
    (
        "group_p99_slowdown",
        "",
        "99th percentile of the first job's completion times over those of each flow alone",
        |run| percentile(&slowdowns_of(run.flows.iter().filter(|flow| flow.job == 0)), 0.99),
    ),
    ("finish_spread", "us", "from the first completion to the last", |run| {
        let ends = starts_and_ends(run);
        let by_end = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        Some(ends.iter().max_by(by_end)?.1 - ends.iter().min_by(by_end)?.1)
    }),
    ("finish_slope", "", "least-squares slope of when flows end over when they start", slope),
    (
        "last_in_first_out",
        "",
        "share of the flows that started last that end before all others",
        |run| last_in_first_out(run),
    ),
    (
        "jain_mean",
        "",
        "mean over time of Jain's index, from the last start to the first completion",
        jain_mean,
    ),
    (
        "queue_together",
        "KB",
        "mean of the longest queue, from the last start to the first completion",
        |run| {
            let (from, to) = together(run)?;
            Some(longest_mean(run, from, to)? * 1e-3)
        },
    ),
    ("queue_steady", "KB", "mean of the longest queue, second half of the run", |run| {
        let (from, to) = late(run)?;
        Some(longest_mean(run, from, to)? * 1e-3)
    }),
    ("job_max", "us", "completion time of the slowest job", |run| last(&jobs(run))),
    ("job_spread", "us", "slowest minus fastest job", |run| {
        let times = jobs(run);
        Some(last(&times)? - times.first()?)
    }),
    ("packets", "", "data packets, without retransmissions", |run| Some(run.totals.packets as f64)),
    ("retransmitted", "", "data packets sent again", |run| Some(run.totals.retransmitted as f64)),
    ("trimmed", "", "data packets trimmed", |run| Some(run.totals.trimmed as f64)),
    (
        "dropped",
        "",
        "data packets lost at full queues, dead links or hosts without room, by bit errors or a switch feature; not acknowledgements",
        |run| Some(run.network.dropped as f64),
    ),
    ("dropped_dead", "", "data packets that a dead link took", |run| {
        Some(run.network.dropped_dead as f64)
    }),
    ("dropped_host", "", "data packets that hosts had no room for", |run| {
        Some(run.network.dropped_host as f64)
    }),
    ("last_loss_rtts", "RTT", "when the last data packet was trimmed or dropped", |run| {
        per(run.network.last_loss_us, run.network.base_rtt_us)
    }),
    ("pauses", "", "PFC pause frames", |run| Some(run.network.pauses as f64)),
    ("hops", "", "switches that a packet passed, by telemetry", |run| run.network.hops),
    ("seen_queue", "B", "queue that a packet left behind at a switch, by telemetry", |run| {
        run.network.seen_queue
    }),
    ("seen_longest", "B", "longest queue that a packet left behind, by telemetry", |run| {
        run.network.seen_longest
    }),
    ("lost", "", "data packets trimmed or dropped", |run| {
        Some((run.totals.trimmed + run.network.dropped) as f64)
    }),
    ("resent_in_vain", "", "data packets sent again beyond those lost, of all", |run| {
        let lost = run.totals.trimmed + run.network.dropped;
        per(run.totals.retransmitted.saturating_sub(lost) as f64, run.totals.packets as f64)
    }),
    ("nacks", "", "NACKs", |run| Some(run.totals.nacks as f64)),
    ("marked", "", "data packets marked", |run| Some(run.network.marked as f64)),
    ("marked_share", "", "share of a flow's packets that arrived marked", |run| {
        let of = |count: fn(&FlowResult) -> u64| run.flows.iter().map(count).sum::<u64>() as f64;
        per(of(|flow| flow.marked), of(|flow| flow.packets))
    }),
    ("unfinished", "", "flows that did not finish", |run| Some(run.unfinished() as f64)),
    ("queue_late", "RTT", "mean delay of the longest queue, second half of the run", |run| {
        queue_delay_late(run)
    }),
    ("queue_early", "RTT", "mean delay of the longest queue, first ten round trips", |run| {
        queue_delay(run, 0.0, run.network.base_rtt_us * 10.0)
    }),
    (
        "queue_calm",
        "RTT",
        "since when no recorded queue delays by more than a base round trip",
        |run| per(queues_calm(run)?, run.network.base_rtt_us),
    ),
    ("queue_calm_share", "", "the same over finish", |run| per(queues_calm(run)?, finish(run)?)),
    ("window_early", "KB", "mean of the flows' windows, first ten round trips", |run| {
        let values = windows(run).flat_map(|points| begun(run, points));
        mean(&values.collect::<Vec<_>>()).map(|bytes| bytes * 1e-3)
    }),
    (
        "window_low",
        "KB",
        "lowest that the flows' mean window ever was, up to 90 % of the run",
        |run| window_low(run),
    ),
    ("window_swing", "", "deviation over mean of a flow's window, second half of the run", |run| {
        window_swing(run)
    }),
    ("queue_max", "RTT", "largest delay of any recorded queue", |run| {
        let bytes = queues(run).map(peak).max_by(f64::total_cmp)?;
        per(bytes * 8e-3 / run.network.line_gbps, run.network.base_rtt_us)
    }),
    (
        "group_share",
        "",
        "share of the first job in what arrived until one of the jobs was done",
        |run| {
            let all: u64 = run.job_bytes.iter().sum();
            per(*run.job_bytes.first()? as f64, all as f64)
        },
    ),
    (
        "group_goodput",
        "Gb/s",
        "payload of the first job over the time from its first start to its last completion",
        |run| {
            let group = run.flows.iter().filter(|flow| flow.job == 0);
            let bytes = group.map(|flow| flow.bytes as f64).sum::<f64>();
            per(bytes * 8e-3, group_time(run)?)
        },
    ),
    (
        "group_time",
        "us",
        "from the first start of the first job to its last completion",
        group_time,
    ),
    (
        "victim_goodput",
        "Gb/s",
        "mean over the flows of all jobs but the first of payload over completion time",
        |run| {
            let victims = finished(run).filter(|flow| flow.job > 0);
            mean(&victims.filter_map(rate).collect::<Vec<_>>())
        },
    ),
    (
        "settle",
        "RTT",
        "from the arrival of the last flow's first packet, half a round trip after its start, until the rates of all are \
         within 1 % of equal shares of the line and stay so; all the time there is if they do not",
        |run| settle(run),
    ),
    (
        "effective_bandwidth",
        "flits/cycle",
        "flits that a member got, or would have got were answers not reduced, over cycles",
        |run| {
            let operations = run.operations?;
            per(operations.effective_flits as f64, operations.cycles as f64)
        },
    ),
    (
        "mean_latency",
        "cycles",
        "mean time of an operation, from its departure to its answer",
        |run| Some(run.operations?.mean_latency),
    ),
    ("max_latency", "cycles", "longest time of an operation", |run| {
        Some(run.operations?.max_latency)
    }),
    ("events", "", "events of the simulator", |run| Some(run.totals.events as f64)),
    ("wall", "s", "seconds it took to simulate", |run| Some(run.totals.wall_s)),
];

fn link_use(run: &Run, between_switches: bool) -> Option<f64> {
    per(100.0 * bottleneck::busiest(run, between_switches)?, run.makespan_us?)
}

/// Returns name, unit, meaning and computation of the metric at `index`: those of [`METRICS`], then
/// those of switch features.
fn definition(index: usize) -> (&'static str, &'static str, &'static str, Compute) {
    let features = || registered().iter().flat_map(|feature| feature.metrics());
    let found = METRICS.get(index).copied().or_else(|| {
        let &FeatureMetric { name, unit, help, compute } = features().nth(index - METRICS.len())?;
        Some((name, unit, help, compute))
    });
    // The default is never used: indices come from `Metric::all` only, and the table of features
    // never changes.
    found.unwrap_or(("", "", "", |_| None))
}

impl Metric {
    /// Returns all metrics, those of the registered switch features last.
    pub fn all() -> impl Iterator<Item = Self> {
        let features: usize = registered().iter().map(|feature| feature.metrics().len()).sum();
        (0..METRICS.len() + features).map(|index| Self { index, sizes: None })
    }

    /// Returns the name of the metric, without its range of flow lengths.
    #[must_use]
    pub fn name(self) -> &'static str {
        definition(self.index).0
    }

    /// Returns the unit of the metric; empty for a plain number.
    #[must_use]
    pub fn unit(self) -> &'static str {
        definition(self.index).1
    }

    /// Returns the meaning of the metric, in words.
    #[must_use]
    pub fn what(self) -> &'static str {
        definition(self.index).2
    }

    /// Returns the value for a run; `None` if the run has none (no flow finished, nothing
    /// recorded).
    #[must_use]
    pub fn of(self, run: &Run) -> Option<f64> {
        let compute = definition(self.index).3;
        let value = match self.sizes {
            None => compute(run),
            Some(sizes) => {
                let flows = run.flows.iter().filter(|flow| sizes.contains(flow.bytes));
                compute(&Run {
                    flows: flows.cloned().collect(),
                    totals: run.totals,
                    network: run.network,
                    features: run.features.clone(),
                    series: run.series.clone(),
                    operations: run.operations,
                    ..Run::default()
                })
            }
        };
        value.filter(|value| value.is_finite())
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sizes {
            None => f.write_str(self.name()),
            Some(sizes) => write!(f, "{}({sizes})", self.name()),
        }
    }
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Self, UnknownMetric> {
        let unknown = |allowed| UnknownMetric { name: text.to_owned(), allowed };
        let (name, sizes) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            None => (text, None),
            Some((name, sizes)) => (name, Some(sizes.parse().map_err(unknown)?)),
        };
        let found = Self::all().find(|metric| metric.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            unknown(names.join(", "))
        })?;
        Ok(Self { sizes, ..found })
    }
}

fn finished(run: &Run) -> impl Iterator<Item = &FlowResult> {
    run.flows.iter().filter(|flow| flow.fct_us.is_some())
}

fn rates(run: &Run) -> Vec<f64> {
    finished(run).filter_map(rate).collect()
}

/// Returns the goodput of a flow: its payload over its completion time, Gb/s.
fn rate(flow: &FlowResult) -> Option<f64> {
    Some(flow.bytes as f64 * 8e-3 / flow.fct_us?)
}

/// Returns the slowdowns of all flows, rising: completion times over those of each flow alone.
fn slowdowns(run: &Run) -> Vec<f64> {
    slowdowns_of(run.flows.iter())
}

/// Returns the slowdowns of `flows` that finished, rising: completion times over those of each flow
/// alone.
fn slowdowns_of<'a>(flows: impl Iterator<Item = &'a FlowResult>) -> Vec<f64> {
    let slowdown = |flow: &FlowResult| per(flow.fct_us?, flow.alone_us?);
    let mut slowdowns: Vec<f64> = flows.filter_map(slowdown).collect();
    slowdowns.sort_by(f64::total_cmp);
    slowdowns
}

/// Returns when each finished flow started and ended, in microseconds.
fn starts_and_ends(run: &Run) -> Vec<(f64, f64)> {
    let ends = |flow: &FlowResult| Some((flow.start_us?, flow.start_us? + flow.fct_us?));
    run.flows.iter().filter_map(ends).collect()
}

/// Returns the least-squares slope of the times at which flows ended over those at which they
/// started; `None` if all flows start at once.
fn slope(run: &Run) -> Option<f64> {
    let flows = starts_and_ends(run);
    let count = flows.len() as f64;
    let (starts, ends) = flows.iter().fold((0.0, 0.0), |(s, e), flow| (s + flow.0, e + flow.1));
    let (start, end) = (starts / count, ends / count);
    let (above, below) = flows.iter().fold((0.0, 0.0), |(above, below), flow| {
        let late = flow.0 - start;
        (above + late * (flow.1 - end), below + late * late)
    });
    per(above, below)
}

/// Returns the share of the flows that started last which end before all that started sooner.
fn last_in_first_out(run: &Run) -> Option<f64> {
    let flows = starts_and_ends(run);
    let latest = flows.iter().map(|flow| flow.0).max_by(f64::total_cmp)?;
    let first = flows.iter().filter(|flow| flow.0 < latest).map(|flow| flow.1);
    let first = first.min_by(f64::total_cmp)?;
    let last: Vec<&(f64, f64)> = flows.iter().filter(|flow| flow.0 >= latest).collect();
    let out = last.iter().filter(|flow| flow.1 < first).count();
    per(out as f64, last.len() as f64)
}

/// Returns the time in which all flows are active: from the last start to the first completion, in
/// microseconds.
fn together(run: &Run) -> Option<(f64, f64)> {
    let flows = starts_and_ends(run);
    let last_start = flows.iter().map(|flow| flow.0).max_by(f64::total_cmp)?;
    let first_end = flows.iter().map(|flow| flow.1).min_by(f64::total_cmp)?;
    Some((last_start, first_end))
}

fn jain_mean(run: &Run) -> Option<f64> {
    let (from, to) = together(run)?;
    let series = run.series.iter().find(|series| series.kind == SeriesKind::Jain)?;
    mean(&between(&series.points, from, to))
}

/// Returns (first start, last completion) of some flows, in microseconds.
fn ends<'a>(flows: impl Iterator<Item = &'a FlowResult>) -> Option<(f64, f64)> {
    let mut ends: Option<(f64, f64)> = None;
    for flow in flows {
        let (Some(start), Some(fct)) = (flow.start_us, flow.fct_us) else { continue };
        let (first, last) = ends.unwrap_or((start, start + fct));
        ends = Some((first.min(start), last.max(start + fct)));
    }
    ends
}

/// Returns how long job 0, the first one, took in microseconds; `None` unless all its flows
/// finished.
fn group_time(run: &Run) -> Option<f64> {
    let flows = || run.flows.iter().filter(|flow| flow.job == 0);
    let (first, last) = ends(flows())?;
    flows().all(|flow| flow.fct_us.is_some()).then_some(last - first)
}

fn finish(run: &Run) -> Option<f64> {
    ends(run.flows.iter()).map(|(first, last)| last - first)
}

/// Returns the completion times of the jobs in microseconds, rising. A job with a flow that did not
/// finish has none.
fn jobs(run: &Run) -> Vec<f64> {
    let mut by_job: BTreeMap<u16, Vec<&FlowResult>> = BTreeMap::new();
    for flow in &run.flows {
        by_job.entry(flow.job).or_default().push(flow);
    }
    let mut times: Vec<f64> = by_job
        .values()
        .filter(|flows| flows.iter().all(|flow| flow.fct_us.is_some()))
        .filter_map(|flows| ends(flows.iter().copied()))
        .map(|(first, last)| last - first)
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

fn queues(run: &Run) -> impl Iterator<Item = &[(f64, f64)]> {
    run.series
        .iter()
        .filter(|series| series.kind == SeriesKind::Queue)
        .map(|series| series.points.as_slice())
}

fn peak(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).fold(0.0, f64::max)
}

/// Returns start and end, in microseconds, of a steady part of the run: from half of its duration
/// to 90 % of it. The end, when flows finish, does not belong to it.
fn late(run: &Run) -> Option<(f64, f64)> {
    finish(run).map(|finish| (finish * 0.5, finish * 0.9))
}

fn queue_delay_late(run: &Run) -> Option<f64> {
    let (from, to) = late(run)?;
    queue_delay(run, from, to)
}

/// Returns the mean of the longest queue from `from` to `to`, as delay at line rate in base round
/// trips.
fn queue_delay(run: &Run, from: f64, to: f64) -> Option<f64> {
    let bytes = longest_mean(run, from, to)?;
    per(bytes * 8e-3 / run.network.line_gbps, run.network.base_rtt_us)
}

/// Returns the mean from `from` to `to`, in bytes, of the queue of which this mean is largest.
fn longest_mean(run: &Run, from: f64, to: f64) -> Option<f64> {
    queues(run).filter_map(|points| mean(&between(points, from, to))).max_by(f64::total_cmp)
}

/// Returns the last time at which a queue was longer than a bandwidth-delay product, in
/// microseconds; zero if none ever was.
fn queues_calm(run: &Run) -> Option<f64> {
    let most = run.network.line_gbps * run.network.base_rtt_us * 1e3 / 8.0;
    let long = |points: &[(f64, f64)]| {
        points.iter().rev().find(|(_, bytes)| *bytes > most).map_or(0.0, |&(at, _)| at)
    };
    queues(run).map(long).max_by(f64::total_cmp)
}

fn between(points: &[(f64, f64)], from: f64, to: f64) -> Vec<f64> {
    let within = points.iter().filter(|(at, _)| (from..=to).contains(at));
    within.map(|&(_, value)| value).collect()
}

/// Returns the time until the rates of all flows stay at their equal shares, in base round trips.
/// Only the time until the first flow is done counts, because the shares change then.
fn settle(run: &Run) -> Option<f64> {
    let rates = || run.series.iter().filter(|series| series.kind == SeriesKind::Rate);
    let rtt = run.network.base_rtt_us;
    let last = run.flows.iter().filter_map(|flow| flow.start_us).max_by(f64::total_cmp)?;
    let ends = finished(run).filter_map(|flow| Some(flow.start_us? + flow.fct_us?));
    let (arrival, end) = (last + rtt / 2.0, ends.min_by(f64::total_cmp)?);
    let share = per(run.network.line_gbps, rates().count() as f64)?;
    let far = |rate: f64| (rate - share).abs() > share * 0.01;
    let mut settled = arrival;
    for series in rates() {
        let points = || series.points.iter().filter(|(at, _)| (arrival..end).contains(at));
        if let Some(&(off, _)) = points().rfind(|(_, rate)| far(*rate)) {
            let next = points().map(|(at, _)| *at).find(|at| *at > off);
            settled = settled.max(next.unwrap_or(end));
        }
    }
    per(settled - arrival, rtt)
}

fn windows(run: &Run) -> impl Iterator<Item = &[(f64, f64)]> {
    let windows = run.series.iter().filter(|series| series.kind == SeriesKind::Window);
    windows.map(|series| series.points.as_slice())
}

/// Returns the values above zero that a series has in the first ten base round trips of the run. A
/// value of zero means that the flow is not active.
fn begun(run: &Run, points: &[(f64, f64)]) -> Vec<f64> {
    let values = between(points, 0.0, run.network.base_rtt_us * 10.0).into_iter();
    values.filter(|&bytes| bytes > 0.0).collect()
}

/// Returns the lowest mean window of the flows, in kB. An inactive flow has a window of zero, which
/// does not count.
fn window_low(run: &Run) -> Option<f64> {
    let to = late(run)?.1;
    let longest = windows(run).max_by_key(|points| points.len())?;
    let times = longest.iter().map(|point| point.0).take_while(|&at| at <= to);
    let means = times.enumerate().filter_map(|(index, _)| {
        let at_once = windows(run).filter_map(|points| points.get(index)).map(|point| point.1);
        mean(&at_once.filter(|&bytes| bytes > 0.0).collect::<Vec<_>>())
    });
    means.min_by(f64::total_cmp).map(|bytes| bytes * 1e-3)
}

fn window_swing(run: &Run) -> Option<f64> {
    let (from, to) = late(run)?;
    let swing = |points: &[(f64, f64)]| {
        let values: Vec<f64> =
            between(points, from, to).into_iter().filter(|&bytes| bytes > 0.0).collect();
        let centre = mean(&values)?;
        let squares: Vec<f64> = values.iter().map(|value| (value - centre).powi(2)).collect();
        per(mean(&squares)?.sqrt(), centre)
    };
    mean(&windows(run).filter_map(swing).collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn last(values: &[f64]) -> Option<f64> {
    values.last().copied()
}

/// Returns the smallest of the rising `values` that a share `p` of them does not exceed (nearest
/// rank).
fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let rank = (p * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

fn per(value: f64, unit: f64) -> Option<f64> {
    (unit > 0.0).then(|| value / unit)
}
