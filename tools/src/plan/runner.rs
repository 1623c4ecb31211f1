//! Runs scenes and plans. Points and seeds run in parallel, and results keep their order. Each
//! worker writes a finished run to disk before it begins another.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Experiment, Plan, PlanError, Point, PreparedSimulation, SceneError};
use squall_netsim::Picos;
use squall_netsim::facts::Facts;
use squall_netsim::model::FeatureCounters;
use squall_netsim::output::files::{self, FileError};
use squall_netsim::output::{
    FlowResult, LinkLoad, NetworkFacts, Origin, Provenance, Run, Series, SeriesKind, Table, Totals,
};
use squall_netsim::sim::{End, Observer, Results, RunSettings, Simulation, WindowSeries};
use squall_netsim::workload::MessageTimes;

/// Number of queues and flows whose samples are kept. A report cannot show more.
const KEPT_QUEUES: usize = 12;
const KEPT_FLOWS: usize = 16;

/// Receives the progress of runs. All threads call it.
pub trait Progress: Sync {
    /// Reports that run `run` has finished a share of its flows, at simulated time `now`.
    fn running(&self, run: usize, share: f64, now: Picos) {
        let (_, _, _) = (run, share, now);
    }

    /// Reports that run `run` has ended.
    fn finished(&self, run: usize) {
        let _ = run;
    }
}

/// Ignores the progress of runs.
impl Progress for () {}

/// A part of a plan's runs, for one of several machines. Runs are dealt out in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Number of the part that this machine runs, from 1.
    pub part: usize,
    /// Number of parts into which the runs are divided.
    pub of: usize,
}

impl Shard {
    /// Returns whether run number `run`, from 0, belongs to this part.
    const fn has(self, run: usize) -> bool {
        run % self.of == self.part - 1
    }

    /// Returns how many of `runs` runs belong to this part.
    #[must_use]
    pub const fn share(self, runs: usize) -> usize {
        (runs + self.of - self.part) / self.of
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(part, of)| {
            let (part, of) = (part.trim().parse().ok()?, of.trim().parse().ok()?);
            (1 <= part && part <= of).then_some(Self { part, of })
        });
        numbers.ok_or_else(|| format!("`{text}` is no shard; of four, expected 1/4 to 4/4"))
    }
}

/// Options for running a plan.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The part of the runs to run; `None` for all.
    pub shard: Option<Shard>,
    /// Number of simulations that run at a time, at least one.
    pub threads: usize,
    /// Folder for results. Without a folder, nothing is written.
    pub out: Option<PathBuf>,
    /// True to write the tables of flows and runs as Parquet, too.
    pub parquet: bool,
    /// The program that makes the runs, and the time; results carry it.
    pub origin: Origin,
}

/// The reason why a plan was not run to its end.
#[derive(Debug)]
pub enum RunnerError {
    /// The simulator refuses a scene of the plan.
    Plan(PlanError),
    /// Results could not be written. Files that were written before are complete.
    File(FileError),
}

impl std::fmt::Display for RunnerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunnerError {}

/// Passes a simulation's progress on, and stops the simulation when the user asks.
struct Watch<'a> {
    run: usize,
    flows: usize,
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, now: Picos, finished: usize, _events: u64) -> ControlFlow<()> {
        self.progress.running(self.run, finished as f64 / self.flows.max(1) as f64, now);
        match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Runs one scene. When `stop` becomes true, the run ends early with the results so far.
///
/// # Errors
/// The key of a setting that the simulator refuses, and the reason.
pub fn run_scene(
    prepared: &PreparedSimulation,
    origin: &Origin,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Run, SceneError> {
    simulate(prepared, origin, 0, stop, progress)
}

fn simulate(
    prepared: &PreparedSimulation,
    origin: &Origin,
    run: usize,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Run, SceneError> {
    let PreparedSimulation { config, workload, job, facts, settings } = prepared;
    let mut watch = Watch { run, flows: workload.flows.len(), progress, stop };
    let simulation = Simulation::from_shared(config, workload)?;
    let RunSettings { settings: run_settings, derived } = simulation.run_settings().clone();
    let results = simulation.run(&mut watch);
    let mut kept = keep(&results, facts);
    kept.job_times = job.as_ref().and_then(|job| Some(job.times(&message_times(&results)?)));
    let mut settings = settings.clone();
    settings.extend(run_settings);
    kept.provenance = Some(Provenance { origin: origin.clone(), settings, derived });
    kept.seed = config.seed;
    kept.network.hosts = config.topology.hosts;
    Ok(kept)
}

/// Returns the times of all messages; `None` if one did not end.
fn message_times(results: &Results) -> Option<Vec<MessageTimes>> {
    let times = |flow: &squall_netsim::sim::FlowResult| {
        let started = flow.start?;
        Some(MessageTimes { started, sent: started + flow.fct?, arrived: started + flow.received? })
    };
    results.flows.iter().map(times).collect()
}

/// Runs a scene of packets or of accelerators.
fn execute(
    experiment: Experiment,
    origin: &Origin,
    run: usize,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<Run, SceneError> {
    match experiment {
        Experiment::Packets(prepared) => simulate(&prepared, origin, run, stop, progress),
        Experiment::CreditNetwork(scene) => {
            let mut watch = Watch { run, flows: scene.senders(), progress, stop };
            Ok(scene.run(origin, &mut watch))
        }
    }
}

/// Runs every point of a plan with every seed. When `stop` becomes true, the runs in progress end
/// early and are marked as interrupted, and no others begin. The second return value is the reason
/// why runs are missing or not on disk.
pub fn run_plan(
    plan: &Plan,
    options: &RunOptions,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> (Vec<Run>, Option<RunnerError>) {
    let tasks: Vec<(usize, (&Point, u64))> = tasks(plan)
        .enumerate()
        .filter(|(run, _)| options.shard.is_none_or(|shard| shard.has(*run)))
        .collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let done: Mutex<(BTreeMap<usize, Run>, Option<RunnerError>)> = Mutex::default();
    // A worker that panics ends the program when the scope ends. The data that other workers left
    // in the lock is complete.
    let lock = || done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let fail = |error| {
        failed.store(true, Ordering::Relaxed);
        lock().1.get_or_insert(error);
    };
    let worker = || {
        loop {
            if stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed) {
                return;
            }
            let task = tasks.get(next.fetch_add(1, Ordering::Relaxed));
            let Some(&(index, (point, seed))) = task else { return };
            let ran = point
                .scene
                .experiment(&plan.folder, seed)
                .and_then(|experiment| execute(experiment, &options.origin, index, stop, progress));
            let mut run = match ran {
                Ok(run) => run,
                Err(error) => return fail(RunnerError::Plan(plan.blame(point, &error))),
            };
            run.parameters = point.labels.clone();
            run.name = name(plan, point, seed);
            if let Some(folder) = &options.out
                && let Err(error) = write_run(folder, index, &run)
            {
                fail(RunnerError::File(error));
            }
            progress.finished(index);
            lock().0.insert(index, run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            scope.spawn(worker);
        }
        worker();
    });
    let (runs, mut error) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runs: Vec<Run> = runs.into_values().collect();
    if let Some(folder) = &options.out
        && let Err(file) = write_sums(folder, &runs, options.parquet)
    {
        error.get_or_insert(RunnerError::File(file));
    }
    (runs, error)
}

/// Returns the runs of a plan in order, each as its point and its seed.
fn tasks(plan: &Plan) -> impl Iterator<Item = (&Point, u64)> {
    plan.points.iter().flat_map(|point| plan.seeds.iter().map(move |&seed| (point, seed)))
}

/// Puts a plan's runs into their order, wherever they were run, and returns the names of missing
/// runs. Runs that belong to no point of the plan, and duplicates, are dropped.
#[must_use]
pub fn merge(plan: &Plan, mut runs: Vec<Run>) -> (Vec<Run>, Vec<String>) {
    let (mut merged, mut missing) = (Vec::new(), Vec::new());
    for (point, seed) in tasks(plan) {
        let like = |run: &Run| run.seed == seed && run.parameters == point.labels;
        match runs.iter().position(like) {
            Some(place) => merged.push(runs.swap_remove(place)),
            None => missing.push(name(plan, point, seed)),
        }
    }
    (merged, missing)
}

/// Writes the runs of a plan into a folder, as [`run_plan`] does. With `parquet`, the tables are
/// written as Parquet, too.
///
/// # Errors
/// The file that could not be written.
pub fn write_runs(folder: &Path, runs: &[Run], parquet: bool) -> Result<(), FileError> {
    for (index, run) in runs.iter().enumerate() {
        write_run(folder, index, run)?;
    }
    write_sums(folder, runs, parquet)
}

fn name(plan: &Plan, point: &Point, seed: u64) -> String {
    let labels: Vec<&str> = point.labels.values().map(String::as_str).collect();
    let place = if labels.is_empty() { plan.name.clone() } else { labels.join(" ") };
    if plan.seeds.len() > 1 { format!("{place} seed {seed}") } else { place }
}

fn write_run(folder: &Path, index: usize, run: &Run) -> Result<(), FileError> {
    let words: String = run
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "+-_.".contains(c) { c } else { '-' })
        .collect();
    let path = folder.join("runs").join(format!("{index:04}-{words}.json"));
    files::write_whole(&path, |to| files::json(std::slice::from_ref(run), to))
}

fn write_sums(folder: &Path, runs: &[Run], parquet: bool) -> Result<(), FileError> {
    for (name, table) in [("runs", Table::runs(runs)), ("flows", Table::flows(runs))] {
        files::write_whole(&folder.join(format!("{name}.csv")), |to| table.csv(to))?;
        if parquet {
            files::write_whole(&folder.join(format!("{name}.parquet")), |to| table.parquet(to))?;
        }
    }
    Ok(())
}

/// Returns the values of the switch features' counters, by their names.
fn counted(names: &[String], counters: Option<&FeatureCounters>) -> BTreeMap<String, u64> {
    let values = counters.into_iter().flatten().copied();
    names.iter().cloned().zip(values).collect()
}

/// Converts a simulation's results to the run that is kept.
fn keep(results: &Results, facts: &Facts) -> Run {
    let totals = &results.totals;
    let flows = results
        .flows
        .iter()
        .zip(&facts.time_alone)
        .map(|(flow, time_alone)| FlowResult {
            id: flow.id,
            src: flow.src,
            dst: flow.dst,
            bytes: flow.bytes,
            start_us: flow.start.map(Picos::as_micros),
            fct_us: flow.fct.map(Picos::as_micros),
            received_us: flow.received.map(Picos::as_micros),
            packets: flow.packets,
            retransmitted: flow.retransmitted,
            marked: flow.marked,
            slowest_us: flow.slowest.map(Picos::as_micros),
            features: counted(&results.flow_counter_names, flow.features.as_ref()),
            alone_us: time_alone.map(Picos::as_micros),
            reason: flow.unfinished.map(|reason| reason.to_string()),
            job: flow.job,
        })
        .collect();
    let stopped = match results.end {
        End::Done => None,
        End::TimeUp => Some("the time limit came first".to_owned()),
        End::Stuck => Some("nothing could happen any more".to_owned()),
        End::Interrupted => Some("interrupted".to_owned()),
    };
    Run {
        flows,
        totals: Totals {
            packets: totals.packets,
            retransmitted: totals.retransmitted,
            trimmed: totals.trimmed,
            nacks: totals.nacks,
            acks: totals.acks,
            events: totals.events,
            wall_s: totals.wall_s,
            peak_bytes: totals.peak_bytes,
        },
        network: NetworkFacts {
            line_gbps: facts.line.0 as f64 / 1e9,
            base_rtt_us: facts.base_rtt.as_micros(),
            ideal_us: facts.ideal.as_micros(),
            dropped: totals.dropped,
            dropped_dead: totals.dropped_dead,
            dropped_host: totals.dropped_host,
            marked: totals.marked,
            last_loss_us: totals.last_loss.as_micros(),
            pauses: totals.pauses,
            hops: mean(totals.telemetry.records, totals.telemetry.packets),
            seen_queue: mean(totals.telemetry.queued, totals.telemetry.records),
            seen_longest: (totals.telemetry.records > 0).then_some(totals.telemetry.longest.into()),
            ..NetworkFacts::default()
        },
        features: counted(&results.counter_names, Some(&totals.features)),
        series: series(results),
        links: links(results),
        job_bytes: results.job_bytes.clone(),
        makespan_us: results.makespan.map(Picos::as_micros),
        job_times: None,
        stopped,
        ..Run::default()
    }
}

/// Returns `sum / count`, or `None` if `count` is zero.
fn mean(sum: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum as f64 / count as f64)
}

fn links(results: &Results) -> Vec<LinkLoad> {
    // In a network with thousands of ports, only those between switches are kept, to save space.
    let many = results.ports.len() > 1024;
    results
        .ports
        .iter()
        .filter(|port| !many || port.tier.is_some_and(|tier| tier > 0 || port.up))
        .map(|port| LinkLoad {
            name: port.name.clone(),
            tier: port.tier.map_or(0, |tier| tier + u8::from(port.up)),
            up: port.up,
            gbps: port.rate.0 as f64 / 1e9,
            bytes: port.bytes,
            dropped: port.dropped,
            trimmed: port.trimmed,
        })
        .collect()
}

/// Returns Jain's fairness index over time of the flows that share a bottleneck: those to the host
/// with the most flows. A flow counts between two samples if it is active all the time between
/// them. Returns `None` without samples, or if no two flows share the bottleneck.
fn jain(results: &Results, times: &[f64]) -> Option<Series> {
    let mut receivers: BTreeMap<u32, usize> = BTreeMap::new();
    for flow in &results.flows {
        *receivers.entry(flow.dst).or_default() += 1;
    }
    let (&busiest, _) = receivers.iter().max_by_key(|(_, flows)| **flows)?;
    let sharing: Vec<(&WindowSeries, f64, f64)> = results
        .series
        .windows
        .iter()
        .zip(&results.flows)
        .filter(|(_, flow)| flow.dst == busiest)
        .filter_map(|(series, flow)| {
            let start = flow.start?.as_micros();
            let end = flow.received.map_or(f64::INFINITY, |span| start + span.as_micros());
            Some((series, start, end))
        })
        .collect();
    let mut points = Vec::new();
    for at in 1..times.len() {
        let (from, to) = (times[at - 1], times[at]);
        let (mut flows, mut sum, mut squares) = (0, 0.0, 0.0);
        for (series, ..) in sharing.iter().filter(|(_, start, end)| *start <= from && *end >= to) {
            let more = series.delivered[at].saturating_sub(series.delivered[at - 1]) as f64;
            (flows, sum, squares) = (flows + 1, sum + more, squares + more * more);
        }
        if flows > 1 && squares > 0.0 {
            points.push(((from + to) / 2.0, sum * sum / (f64::from(flows) * squares)));
        }
    }
    (!points.is_empty()).then(|| Series {
        kind: SeriesKind::Jain,
        name: "Jain's index".to_owned(),
        points,
    })
}

/// Returns the time series that are kept: lengths of the queues with the most bytes, Jain's index,
/// and windows, rates and throughput of the first flows.
fn series(results: &Results) -> Vec<Series> {
    let mut kept = Vec::new();
    let sampled = &results.series;
    let micros = |times: &[Picos]| -> Vec<f64> { times.iter().map(|at| at.as_micros()).collect() };
    let join = |times: &[f64], values: &[u64]| -> Vec<(f64, f64)> {
        times.iter().copied().zip(values.iter().map(|&value| value as f64)).collect()
    };
    let times = micros(&sampled.queue_times);
    let mut queues: Vec<_> = sampled.queues.iter().collect();
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.bytes.iter().sum::<u64>()));
    for queue in queues.into_iter().take(KEPT_QUEUES) {
        let points = join(&times, &queue.bytes);
        kept.push(Series { kind: SeriesKind::Queue, name: queue.name.clone(), points });
    }
    let times = micros(&sampled.window_times);
    kept.extend(jain(results, &times));
    for window in sampled.windows.iter().take(KEPT_FLOWS) {
        let name = format!("flow {}", window.flow);
        let points = join(&times, &window.cwnd);
        kept.push(Series { kind: SeriesKind::Window, name: name.clone(), points });
        if window.rate.iter().any(|&rate| rate > 0) {
            let points =
                times.iter().copied().zip(window.rate.iter().map(|&bps| bps as f64 * 1e-9));
            let points = points.filter(|(_, gbps)| *gbps > 0.0).collect();
            kept.push(Series { kind: SeriesKind::Rate, name: name.clone(), points });
        }
        // The throughput is averaged over four samples, so that one packet more or less does not
        // show.
        let points = times
            .iter()
            .zip(&window.delivered)
            .zip(times.iter().zip(&window.delivered).skip(4))
            .filter(|((from, _), (to, _))| to > from)
            .map(|((from, before), (to, after))| {
                (*to, after.saturating_sub(*before) as f64 * 8e-3 / (to - from))
            })
            .collect();
        kept.push(Series { kind: SeriesKind::Throughput, name, points });
    }
    kept
}
