//! The command line of `squall sim`, which simulates one workload over one network.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use super::bar::Bar;
use super::report::write_report;
use super::{Failure, Format, choices, interrupts};
use crate::plan::{
    ChakraTable, FailureKind, FailureTable, FailureTime, GoalTable, HostTable, LinkChoice,
    LinkFailure, ObserveTable, PacketScene, PlaceFailure, PreparedSimulation, SquallTable, Stack,
    TopologyTable, TransportTable, WorkloadFile, WorkloadTable, run_scene,
};
use crate::report::from_runs;
use crate::run::record::{NETWORK, OPTIONS, TIMELINE};
use squall_base::Rate;
use squall_cc::{PathsConfig, Scope};
use squall_emulator::Timeline;
use squall_netsim::Bytes;
use squall_netsim::formats::{self, cm::StartUnit};
use squall_netsim::model::{NetworkArgs, NetworkOptions};
use squall_netsim::output::{Metric, Origin, Table, files, text};
use squall_netsim::replay::{self, Beside, Recording};
use squall_netsim::sim::{RoceConfig, SquallConfig, Transport, divide};
use squall_netsim::workload::{chakra, goal};

/// Simulates flows over a topology and prints when each finished.
///
/// A topology and a load are files, or words: `squall sim --topo fat-tree:128:4 --load incast:32x2MiB`. Behind a word stand
/// keys as plans have them, `,key=value`. Flows that do not finish are listed with the reason, and the exit status is then 1.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(super) struct SimArgs {
    /// Topology: htsim's `.topo`, a graph or ASTRA-sim's network.yml; or fat-tree:HOSTS:OVERSUBSCRIPTION, leaf-spine:LEAVESxSPINESxHOSTS, star:HOSTS,
    /// dumbbell:HOSTS, mc:HOSTS; or one of a paper by its name: fat-320, dart-64, dart-1024. `,planes=4` gives hosts a link to
    /// each of four copies.
    #[arg(long, value_name = "FILE|WORD")]
    topo: Option<String>,
    /// Load: htsim's `.cm`, a message trace if it ends in `.csv`, a GOAL schedule if it ends in `.goal` or `.bin`, Chakra traces
    /// if it ends in `.et`; or permutation:BYTES, incast:SENDERSxBYTES,
    /// all-to-all:BYTES:WINDOW, all-reduce:ALGORITHM:BYTES, poisson:SIZES:LOAD:DURATION_US,
    /// training:COPIES.
    #[arg(long, visible_alias = "cm", value_name = "FILE|WORD")]
    load: Option<String>,
    /// Instead of a load, a job that was recorded: what `squall run --record` or FI_SQUALL_TRACE left. Without --topo
    /// over the network that a record has, with its options unless any is given, and what happened to it; rank i is host i. Recorded and simulated times are
    /// printed beside each other. Or a GOAL schedule, if it ends in `.goal` or `.bin`; or the Chakra traces of an AI job, with %d
    /// in place of the rank: `job.%d.et`.
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "load")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// File with failures of links, switches and planes, one line each: `200us fail-link leaf0-spine1`.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Unit of `start` in the `.cm` file: `us`, as uet-htsim's UEC binary reads it, or `ps`, as its others do.
    #[arg(long, value_name = "UNIT", default_value = "ps")]
    cm_unit: StartUnit,
    /// Congestion control, with parameters if wanted: `nscc`, `nscc:quick_adapt=0`. Default: `nscc`, and
    /// `dcqcn` with --roce. `help` lists them, with every parameter and its default; so it does for the next three.
    #[arg(long)]
    pub(super) cc: Option<String>,
    /// Path selection: `reps-avoid`, `reps`, `oblivious`, `ecmp`, ..
    #[arg(long, default_value = PathsConfig::DEFAULT)]
    pub(super) lb: String,
    /// Loss detection: any of `trim,ooo,path,probe,rto`, or `all`.
    #[arg(long, default_value = "all")]
    pub(super) loss: String,
    /// Flows that share a congestion control: `flow` (none), `pair`, `destination-unsplit`, `host`, ..; `auto` for
    /// what the algorithm is made for.
    #[arg(long, default_value = Scope::AUTO)]
    pub(super) scope: String,
    #[command(flatten)]
    network: NetworkArgs,
    /// Bytes of a full packet on the wire, 64 of them headers, as htsim counts.
    #[arg(long, default_value_t = 4096)]
    pub(super) mtu: u32,
    /// Number of random links between switches that are down from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fail_links: u32,
    /// So many links of the top tier run at a quarter of their rate downwards, or at this share of it: uet-htsim's
    /// -failed.
    #[arg(long, visible_alias = "failed", value_name = "N[:SHARE]")]
    slow_links: Option<SlowLinks>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of threads, each with a part of the network, if the network is large enough. The result is the same to
    /// the last digit.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Output format of the results.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Number of entropies (paths) to spread packets over.
    #[arg(long, default_value_t = 64)]
    pub(super) paths: u16,
    /// Rate at which a host takes packets in, Gb/s. Packets that find its receive buffer full are lost.
    #[arg(long, value_name = "GBPS", value_parser = clap::value_parser!(u64).range(1..))]
    host_gbps: Option<u64>,
    /// Bytes of the receive buffer of such a host: `400KiB`. Default: 4 MiB.
    #[arg(long, value_name = "BYTES", requires = "host_gbps")]
    host_buffer: Option<Bytes>,
    /// Hosts run RoCEv2 (go-back-N) with so many queue pairs a flow instead; the network is lossless
    /// then.
    #[arg(long, value_name = "QPS", conflicts_with_all = ["lb", "loss", "scope", "paths"])]
    roce: Option<u16>,
    /// Give up after so many simulated microseconds.
    #[arg(long, value_name = "US")]
    end: Option<u64>,
    /// Record queues, windows and throughput every so many microseconds, and the load of links.
    #[arg(long, value_name = "US")]
    sample: Option<f64>,
    /// Also write an HTML page with the results to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write results into this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw no progress bar.
    #[arg(short, long)]
    quiet: bool,
}

/// Default time limit of the simulation of a recorded job: 100 times the recorded duration plus 1
/// s.
const PATIENCE: u64 = 100;
const PATIENCE_US: u64 = 1_000_000;

pub(super) fn run(args: &SimArgs, origin: &Origin) -> Result<u8, Failure> {
    let help = choices::help(args);
    if !help.is_empty() {
        io::stdout().write_all(help.as_bytes())?;
        return Ok(0);
    }
    if args.trace.is_none() && (args.topo.is_none() || args.load.is_none()) {
        return Err(Failure::usage(
            "nothing to simulate: give --topo and --load, or --trace; --help describes them",
        ));
    }
    if args.format == Format::Parquet {
        Table::check_parquet().map_err(Failure::usage)?;
    }
    if args.format == Format::Parquet && args.out.is_none() && io::stdout().is_terminal() {
        return Err(Failure::usage("Parquet cannot be printed on a terminal; give --out FILE"));
    }
    let recorded = args.trace.as_deref().filter(|path| !is_schedule(path));
    let recording = recorded.map(replay::read).transpose().map_err(Failure::usage)?;
    for doubt in recording.iter().flat_map(Recording::doubts) {
        writeln!(io::stderr(), "squall: {doubt}")?;
    }
    let prepared = prepare(args, recording.as_ref())?;
    say_doubts(args, &prepared)?;
    let stop = interrupts()?;
    let bar = Bar::new(1, args.quiet);
    let run = run_scene(&prepared, origin, &stop, &bar).map_err(Failure::usage)?;
    bar.clear();
    let runs = std::slice::from_ref(&run);
    let beside = recording.as_ref().map(|recording| Beside { recording, run: &run }.text());
    let fill = |to: &mut dyn Write| match args.format {
        Format::Json => files::json(runs, to),
        Format::Csv => Table::flows(runs).csv(to),
        Format::Parquet => Table::flows(runs).parquet(to),
        Format::Text => {
            to.write_all(text::summary(&run).as_bytes())?;
            to.write_all(beside.as_deref().unwrap_or_default().as_bytes())
        }
    };
    match &args.out {
        Some(path) => files::write_whole(path, fill)?,
        None => {
            let mut to = io::BufWriter::new(io::stdout().lock());
            fill(&mut to)?;
            to.flush()?;
        }
    }
    if args.format != Format::Text {
        write!(io::stderr(), "{}", beside.unwrap_or_default())?;
    }
    if let Some(path) = &args.report {
        let what = args.load.clone().or_else(|| Some(args.trace.as_ref()?.display().to_string()));
        let over = args.topo.as_deref().unwrap_or("the network of the record");
        let title = format!("{} over {over}", what.unwrap_or_default());
        let about = vec![about(&prepared.config.host.transport, args.seed)];
        let metrics: Vec<Metric> =
            Metric::all().filter(|metric| metric.of(&run).is_some()).collect();
        let document = from_runs("Simulation", &about, runs, &metrics);
        write_report(path, &title, &[document])?;
    }
    if stop.load(std::sync::atomic::Ordering::Relaxed) {
        return Ok(130);
    }
    if run.unfinished() > 0 {
        // Result files contain the reasons already; print them for users at the terminal, too.
        if args.format != Format::Text || args.out.is_some() {
            write!(io::stderr(), "{}", text::unfinished(&run))?;
        }
        return Ok(1);
    }
    Ok(0)
}

/// Prepares the simulation that the options describe.
fn prepare(args: &SimArgs, recording: Option<&Recording>) -> Result<PreparedSimulation, Failure> {
    let mut scene = scene(args)?;
    if let (Some(lasted), None) = (recording.map(Recording::lasted), args.end) {
        scene.observe.until_us =
            Some(PATIENCE_US.saturating_add(lasted.saturating_mul(PATIENCE) / 1000));
    }
    let mut prepared = scene.prepare(Path::new(""), args.seed).map_err(Failure::usage)?;
    prepared.config.threads = args.threads.into();
    if let Some(file) = &args.timeline {
        let topology = &prepared.config.topology;
        let timeline = Timeline::read(file, topology).map_err(Failure::usage)?;
        prepared.config.failures.extend(timeline.failures(topology));
        prepared.settings.set("timeline", file.display());
    } else if let (Some(record), None) = (&args.trace, &args.topo) {
        // The network comes from the record, so the changes recorded for it apply, too.
        let (file, topology) = (record.join(TIMELINE), &prepared.config.topology);
        if file.exists() {
            let timeline = Timeline::read(&file, topology).map_err(Failure::usage)?;
            prepared.config.failures.extend(timeline.failures(topology));
            prepared.settings.set("timeline", file.display());
        }
    }
    Ok(prepared)
}

/// Prints warnings about settings that may differ from the user's intention.
fn say_doubts(args: &SimArgs, prepared: &PreparedSimulation) -> io::Result<()> {
    let link = prepared.config.topology.host_rate();
    if let (None, Some(nic)) =
        (args.network.options().nic_gbps, prepared.config.network.card(link, 1.0))
    {
        writeln!(
            io::stderr(),
            "squall: hosts send at {} Gb/s, uet-htsim's default, over links of {} Gb/s; --nic sets another rate",
            nic.0 as f64 / 1e9,
            link.0 as f64 / 1e9
        )?;
    }
    if let Err(why) = divide(&prepared.config, &prepared.workload) {
        writeln!(io::stderr(), "squall: runs on one thread for --threads {}: {why}", args.threads)?;
    }
    if args.trace.is_some() || prepared.job.is_some() {
        return Ok(());
    }
    if let Some(doubt) = args.cm_unit.doubt(&prepared.workload) {
        writeln!(io::stderr(), "squall: {doubt} (--cm-unit)")?;
    }
    Ok(())
}

/// Returns whether a path names a GOAL schedule or Chakra traces.
fn is_schedule(path: &Path) -> bool {
    goal::is_goal(path) || chakra::is_chakra(path)
}

/// Returns the path of the GOAL schedule or of the Chakra traces that the options name, if they name
/// one.
fn schedule(args: &SimArgs) -> Option<&Path> {
    let load = args.load.as_ref().map(Path::new);
    args.trace.as_deref().or(load).filter(|path| is_schedule(path))
}

/// Options of GOAL schedules and Chakra traces.
#[derive(Args, Clone, PartialEq, Debug, Default)]
struct ScheduleArgs {
    /// Ranks of a schedule or of traces on each host, which share its NIC: rank r is on host r / N [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// Rate between ranks of one host [default: 3600G, that of NVLink 4].
    #[arg(long, value_name = "RATE", value_parser = inner_rate)]
    inner_rate: Option<Rate>,
    /// Latency of messages between ranks of one host, ns [default: 1000].
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    inner_latency: Option<u64>,
    /// Process groups of Chakra traces: a file with the ranks of each, as ASTRA-sim's --comm-group-configuration.
    #[arg(long, value_name = "FILE")]
    comm_groups: Option<PathBuf>,
    /// Algorithms of the collectives of Chakra traces: `all-reduce=ring`, `tree`, `double-binary-tree`, `halving-doubling`,
    /// `direct` or `hierarchical`; likewise `all-gather`, `reduce-scatter`, `broadcast`, `reduce`. Several are joined by commas.
    #[arg(long, value_name = "KIND=ALGORITHM")]
    collective: Option<String>,
    /// Most bytes of a message of such a collective: `1MiB` [default: no limit].
    #[arg(long, value_name = "BYTES")]
    chunk: Option<Bytes>,
    /// ASTRA-sim system file (system.json) with the algorithms, splits and delays of the collectives of Chakra traces.
    /// --collective overrides its algorithms.
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
}

fn inner_rate(text: &str) -> Result<Rate, squall_emulator::CommandError> {
    squall_emulator::parse_rate(text)
}

impl ScheduleArgs {
    /// Returns the load of a schedule or of traces.
    fn load(&self, path: &Path) -> Result<WorkloadFile, Failure> {
        let inner_gbps = self.inner_rate.map(|rate| rate.0 as f64 / 1e9);
        let (ranks_per_host, inner_latency_ns) = (self.ranks_per_host, self.inner_latency);
        let file = path.to_owned();
        if chakra::is_chakra(path) {
            let (comm_groups, collective) = (self.comm_groups.clone(), self.collective.clone());
            return Ok(WorkloadFile::Chakra(ChakraTable {
                file,
                comm_groups,
                collective,
                chunk: self.chunk,
                system: self.system.clone(),
                ranks_per_host,
                inner_gbps,
                inner_latency_ns,
            }));
        }
        let of_collectives = [
            self.comm_groups.is_some(),
            self.collective.is_some(),
            self.chunk.is_some(),
            self.system.is_some(),
        ];
        if of_collectives.contains(&true) {
            return Err(Failure::usage(
                "--comm-groups, --collective, --chunk and --system apply to Chakra traces (.et): a GOAL schedule has no \
                 collectives; remove them",
            ));
        }
        Ok(WorkloadFile::Goal(GoalTable { file, ranks_per_host, inner_gbps, inner_latency_ns }))
    }
}

/// Describes the hosts' transport in a sentence.
fn about(transport: &Transport, seed: u64) -> String {
    match transport {
        Transport::Squall(SquallConfig { cc, lb, loss, scope, .. }) => format!(
            "Congestion control {cc}, scope {scope}, paths by {lb}, losses by {loss}, seed {seed}."
        ),
        Transport::Roce(RoceConfig { cc, qps, .. }) => {
            format!("RoCEv2, congestion control {cc}, {qps} queue pairs a flow, seed {seed}.")
        }
    }
}

/// Rate of network cards that uet-htsim assumes whatever its topology file says of links
/// (main_uec.cpp).
const HTSIM_NIC_GBPS: f64 = 100.0;

/// Returns whether the topology comes from a file of htsim.
fn htsim(args: &SimArgs) -> bool {
    args.topo.as_ref().is_some_and(|topo| topo.ends_with(".topo"))
}

/// Number of slow links, and the share of their rate that they keep.
#[derive(Clone, Copy, PartialEq, Debug)]
struct SlowLinks {
    links: u32,
    share: Option<f64>,
}

impl FromStr for SlowLinks {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (links, share) = text.split_once(':').map_or((text, None), |(n, rest)| (n, Some(rest)));
        let share = share.map(str::parse).transpose();
        match (links.parse(), share) {
            (Ok(links), Ok(share)) => Ok(Self { links, share }),
            _ => Err("expected a number of links with an optional share, such as 4 or 4:0.5"),
        }
    }
}

/// Returns the topology that the user named by a file or a word, or the one in a record.
fn topology(args: &SimArgs) -> Result<TopologyTable, Failure> {
    let Some(topo) = &args.topo else {
        let record = args.trace.clone().unwrap_or_default();
        let network = record.join(NETWORK);
        if !network.exists() {
            let what = format!(
                "{} holds no network; give --topo, the network over which to simulate the job",
                record.display()
            );
            return Err(Failure::usage(what));
        }
        return Ok(TopologyTable::File(network));
    };
    let table = TopologyTable::from_word(topo).unwrap_or_else(|| {
        if !Path::new(topo).exists() {
            return Err(TopologyTable::neither(topo));
        }
        Ok(TopologyTable::File(topo.into()))
    });
    table.map_err(Failure::usage)
}

/// Returns the options of the network in a record. Returns `None` if the user names another network
/// or gives any option.
fn recorded_options(args: &SimArgs) -> Result<Option<NetworkOptions>, Failure> {
    let (Some(record), None) = (&args.trace, &args.topo) else { return Ok(None) };
    let file = record.join(OPTIONS);
    if args.network.options() != NetworkOptions::default() || !file.exists() {
        return Ok(None);
    }
    let said = |what: String| Failure::usage(format!("{}: {what}", file.display()));
    let text = formats::read_text(&file).map_err(|error| said(error.to_string()))?;
    toml::from_str(&text).map(Some).map_err(|error| said(error.to_string()))
}

/// Returns the load that the user named by a file or a word, or a recorded job.
fn load(args: &SimArgs) -> Result<WorkloadTable, Failure> {
    if let Some(schedule) = schedule(args) {
        return args.schedule.load(schedule).map(WorkloadTable::File);
    }
    if args.schedule != ScheduleArgs::default() {
        return Err(Failure::usage(
            "--ranks-per-host, --collective and the like need a .goal, .bin or .et file; for a training load write them as keys: \
             training:8,ranks_per_host=8",
        ));
    }
    if let Some(trace) = &args.trace {
        return Ok(WorkloadTable::File(WorkloadFile::Job { file: trace.clone() }));
    }
    let load = args.load.clone().unwrap_or_default();
    let table = WorkloadTable::from_word(&load).unwrap_or_else(|| {
        if !Path::new(&load).exists() {
            return Err(WorkloadTable::neither(&load));
        }
        let file = PathBuf::from(&load);
        Ok(WorkloadTable::File(match load.ends_with(".csv") {
            true => WorkloadFile::Trace { file },
            false => WorkloadFile::Matrix { file, cm_unit: args.cm_unit },
        }))
    });
    table.map_err(Failure::usage)
}

/// Builds the scene that the options describe.
fn scene(args: &SimArgs) -> Result<PacketScene, Failure> {
    let workload = load(args)?;
    let is_job = args.trace.is_some() || workload.is_schedule();
    let host = HostTable {
        cc: args.cc.clone(),
        mtu: Some(args.mtu),
        // An endpoint of this project's stack has one context per peer.
        per_pair: args.roce.is_none() && is_job,
        host_gbps: args.host_gbps,
        host_buffer: args.host_buffer,
        ..HostTable::default()
    };
    let stack = match args.roce {
        None => Stack::Squall(SquallTable {
            lb: Some(args.lb.clone()),
            loss: Some(args.loss.clone()),
            scope: Some(args.scope.clone()),
            paths: Some(args.paths),
            ..SquallTable::default()
        }),
        Some(qps) => Stack::Roce { qps: Some(qps) },
    };
    let mut network = recorded_options(args)?.unwrap_or_else(|| args.network.options());
    network.lossless |= args.roce.is_some();
    network.nic_gbps = network.nic_gbps.or_else(|| htsim(args).then_some(HTSIM_NIC_GBPS));
    let mut failure = match args.fail_links {
        0 => Vec::new(),
        links => {
            let choice = LinkChoice { links: Some(links), ..LinkChoice::default() };
            vec![FailureKind::Links(choice, LinkFailure::LinkDown)]
        }
    };
    failure.extend(args.slow_links.map(|SlowLinks { links, share }| {
        let share = share.unwrap_or(PlaceFailure::SHARE);
        FailureKind::Place(PlaceFailure::Slow { links, share })
    }));
    let now = |what| FailureTable { what, at: FailureTime::default() };
    Ok(PacketScene {
        topology: topology(args)?,
        workload,
        network,
        transport: TransportTable { host, stack },
        failure: failure.into_iter().map(now).collect(),
        observe: ObserveTable {
            queues_us: args.sample,
            windows_us: args.sample,
            links: args.sample.is_some() || is_job,
            packets: false,
            until_us: args.end,
        },
    })
}
