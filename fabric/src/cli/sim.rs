//! `squall sim`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use super::bar::Bar;
use super::report::write_report;
use super::{Failure, Format, interrupts};
use crate::cc::PathsConfig;
use crate::formats::cm::StartUnit;
use crate::model::NetworkArgs;
use crate::output::{Metric, files, text};
use crate::plan::{
    FailureTable, ObserveTable, Scene, Stack, TopologyTable, TransportTable, WordError,
    WorkloadTable, run_scene,
};
use crate::report::from_runs;
use crate::sim::{RoceConfig, SquallConfig, Transport};

/// Simulates flows over a topology and prints when each finished.
///
/// A topology and a load are files, or words: `squall sim --topo fat-tree:128:4 --load incast:32x2MiB`. Behind a word stand
/// keys as plans have them, `,key=value`. Flows that do not finish are listed with the reason, and the exit status is then 1.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(super) struct SimArgs {
    /// Topology: htsim's `.topo` or a graph; or fat-tree:HOSTS:OVERSUBSCRIPTION, leaf-spine:LEAVESxSPINESxHOSTS, star:HOSTS,
    /// dumbbell:HOSTS.
    #[arg(long, value_name = "FILE|WORD")]
    topo: String,
    /// Load: htsim's `.cm`, or a message trace if it ends in `.csv`; or permutation:BYTES, incast:SENDERSxBYTES,
    /// all-to-all:BYTES:WINDOW, all-reduce:ALGORITHM:BYTES, poisson:SIZES:LOAD:DURATION_US.
    #[arg(long, visible_alias = "cm", value_name = "FILE|WORD")]
    load: String,
    /// What `start` counts in the `.cm` file: `us`, as uet-htsim's UEC binary reads it, or `ps`, as its others do.
    #[arg(long, value_name = "UNIT", default_value = "ps")]
    cm_unit: String,
    /// Congestion control, with parameters if wanted: `nscc`, `nscc:quick_adapt=0`. Default: `nscc`, and
    /// `dcqcn` with --roce.
    #[arg(long)]
    cc: Option<String>,
    /// Path selection: `reps`, `oblivious`, `ecmp`, ..
    #[arg(long, default_value = PathsConfig::DEFAULT)]
    lb: String,
    /// Loss detection: any of `trim,ooo,path,probe,rto`, or `all`.
    #[arg(long, default_value = "all")]
    loss: String,
    /// Which flows share a congestion control: `flow` (none), `pair`, `destination-unsplit`, `host`, ..
    #[arg(long, default_value = "flow")]
    scope: String,
    #[command(flatten)]
    network: NetworkArgs,
    /// Bytes of a full packet on the wire, 64 of them headers, as htsim counts.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// So many random links between switches are down from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fail_links: u32,
    /// So many links of the top tier run at a quarter of their rate downwards, or at this share of it: uet-htsim's
    /// -failed.
    #[arg(long, visible_alias = "failed", value_name = "N[:SHARE]")]
    slow_links: Option<SlowLinks>,
    /// Decides everything that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Entropies to spread packets over.
    #[arg(long, default_value_t = 64)]
    paths: u16,
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
    /// Also write an HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write results into this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// No progress bar.
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &SimArgs) -> Result<u8, Failure> {
    let prepared = scene(args)
        .map_err(Failure::usage)?
        .prepare(Path::new(""), args.seed)
        .map_err(Failure::usage)?;
    let link = prepared.config.topology.host_rate();
    if let (None, Some(nic)) =
        (args.network.options().nic_gbps, prepared.config.network.card(link, 1.0))
    {
        writeln!(
            io::stderr(),
            "squall: hosts send at {} Gb/s, uet-htsim's default, over links of {} Gb/s; --nic says otherwise",
            nic.0 as f64 / 1e9,
            link.0 as f64 / 1e9
        )?;
    }
    // Checked by `prepare`.
    if let Some(doubt) =
        args.cm_unit.parse::<StartUnit>().ok().and_then(|u| u.doubt(&prepared.workload))
    {
        writeln!(io::stderr(), "squall: {doubt} (--cm-unit)")?;
    }
    let stop = interrupts()?;
    let bar = Bar::new(1, args.quiet);
    let run = run_scene(&prepared, &stop, &bar).map_err(Failure::usage)?;
    bar.clear();
    let runs = std::slice::from_ref(&run);
    let fill = |to: &mut dyn Write| match args.format {
        Format::Json => files::json(runs, to),
        Format::Csv => files::flows_csv(runs, to),
        Format::Text => to.write_all(text::summary(&run).as_bytes()),
    };
    match &args.out {
        Some(path) => files::write_whole(path, fill)?,
        None => {
            let mut to = io::BufWriter::new(io::stdout().lock());
            fill(&mut to)?;
            to.flush()?;
        }
    }
    if let Some(path) = &args.report {
        let title = format!("{} over {}", args.load, args.topo);
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
        // JSON and CSV have it in them; whoever watches the terminal gets it in words too.
        if args.format != Format::Text || args.out.is_some() {
            write!(io::stderr(), "{}", text::unfinished(&run))?;
        }
        return Ok(1);
    }
    Ok(0)
}

/// What hosts ran, in a sentence.
fn about(transport: &Transport, seed: u64) -> String {
    match transport {
        Transport::Squall(SquallConfig { cc, lb, loss, scope, .. }) => format!(
            "Congestion control {cc}, a context a {scope}, paths by {lb}, losses by {loss}, seed {seed}."
        ),
        Transport::Roce(RoceConfig { cc, qps, .. }) => {
            format!("RoCEv2, congestion control {cc}, {qps} queue pairs a flow, seed {seed}.")
        }
    }
}

/// Rate of network cards that uet-htsim assumes whatever its topology file says of links (main_uec.cpp).
const HTSIM_NIC_GBPS: f64 = 100.0;

/// Whether the topology is a file of htsim's.
fn htsim(args: &SimArgs) -> bool {
    args.topo.ends_with(".topo")
}

/// How many links are slow, and which share of their rate they keep.
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
            _ => Err("a number of links, and perhaps a share, such as 4 or 4:0.5, are expected"),
        }
    }
}

/// The topology that is named, a file or a word.
fn topology(args: &SimArgs) -> Result<TopologyTable, WordError> {
    TopologyTable::from_word(&args.topo).unwrap_or_else(|| {
        if !Path::new(&args.topo).exists() {
            return Err(TopologyTable::neither(&args.topo));
        }
        Ok(TopologyTable { file: Some(args.topo.clone().into()), ..TopologyTable::default() })
    })
}

/// The load that is named, a file or a word.
fn load(args: &SimArgs) -> Result<WorkloadTable, WordError> {
    WorkloadTable::from_word(&args.load).unwrap_or_else(|| {
        if !Path::new(&args.load).exists() {
            return Err(WorkloadTable::neither(&args.load));
        }
        let trace = args.load.ends_with(".csv");
        Ok(WorkloadTable {
            file: Some(args.load.clone().into()),
            cm_unit: (!trace).then(|| args.cm_unit.clone()),
            kind: trace.then(|| "trace".to_owned()),
            ..WorkloadTable::default()
        })
    })
}

/// The scene that the options describe.
fn scene(args: &SimArgs) -> Result<Scene, WordError> {
    let transport = match args.roce {
        None => TransportTable {
            cc: args.cc.clone(),
            lb: Some(args.lb.clone()),
            loss: Some(args.loss.clone()),
            scope: Some(args.scope.clone()),
            paths: Some(args.paths),
            mtu: Some(args.mtu),
            ..TransportTable::default()
        },
        Some(qps) => TransportTable {
            stack: Stack::Roce,
            cc: args.cc.clone(),
            qps: Some(qps),
            mtu: Some(args.mtu),
            ..TransportTable::default()
        },
    };
    let mut network = args.network.options();
    network.lossless |= args.roce.is_some();
    network.nic_gbps = network.nic_gbps.or_else(|| htsim(args).then_some(HTSIM_NIC_GBPS));
    let mut failure = match args.fail_links {
        0 => Vec::new(),
        links => vec![FailureTable {
            what: "link-down".to_owned(),
            links: Some(links),
            ..FailureTable::default()
        }],
    };
    failure.extend(args.slow_links.map(|SlowLinks { links, share }| FailureTable {
        what: "slow".to_owned(),
        links: Some(links),
        share,
        ..FailureTable::default()
    }));
    Ok(Scene {
        topology: topology(args)?,
        workload: load(args)?,
        network,
        transport,
        failure,
        observe: ObserveTable {
            queues_us: args.sample,
            windows_us: args.sample,
            links: args.sample.is_some(),
            until_us: args.end,
        },
    })
}
