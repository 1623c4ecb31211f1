//! Lays this simulator beside uet-htsim: runs every row of a table of htsim's results and prints both as
//! a Markdown table, seeds of one scenario taken together.
//!
//! ```text
//! cargo run --release -p squall-emulator --example beside_htsim -- DIR/htsim.csv [FILTER] [cc=..] [verbose]
//! ```
//!
//! The table's last column holds htsim's arguments; topologies and matrices are found beside the file.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;

use squall_base::Rate;
use squall_netsim::model::FailureEvent;
use squall_netsim::sim::{FlowResult, SimConfig, Simulation, Transport};
use squall_netsim::topology::{FatTree, Tier};
use squall_netsim::{Picos, formats};
use squall_tools::plan::slow_links;

type Failure = Box<dyn core::error::Error>;

/// What is compared: mean and greatest completion time in microseconds, packets, retransmissions,
/// acknowledgements, and seconds it took.
#[derive(Clone, Copy, Default)]
struct Figures {
    runs: f64,
    min: f64,
    mean: f64,
    max: f64,
    packets: f64,
    retransmitted: f64,
    acks: f64,
    wall: f64,
    peak_kb: f64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.runs += 1.0;
        self.mean += other.mean;
        self.max += other.max;
        self.packets += other.packets;
        self.retransmitted += other.retransmitted;
        self.acks += other.acks;
        self.wall += other.wall;
        self.peak_kb = self.peak_kb.max(other.peak_kb);
    }
}

/// What htsim builds when no topology is given: a full fat tree of 100 Gb/s and 1 us a link.
fn default_tree(hosts: u32) -> FatTree {
    let radix = (1..).find(|half| half * half * half * 2 >= hosts).unwrap_or(1);
    let tier = |down, up| Tier {
        oversubscribed: 1,
        downlink: Rate::gbps(100),
        radix_down: down,
        radix_up: up,
        downlink_latency: Picos::micros(1),
        switch_latency: Picos::ZERO,
        bundle: 1,
        queue_up: None,
        queue_down: None,
    };
    let tiers = vec![tier(radix, radix), tier(radix, radix), tier(radix * 2, 0)];
    FatTree { hosts, pod_hosts: radix * radix, tiers }
}

/// Runs what `args` asks htsim to run.
fn run(directory: &Path, args: &str, cc: &str) -> Result<Figures, Failure> {
    let mut words = args.split_whitespace();
    let (mut topo, mut cm, mut seed) = ("", "", 13);
    let mut failed = 0;
    let (mut lb, mut mtu, mut trimming, mut sleek) = ("mixed", 4150, true, false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} without a value"));
        match word {
            "-tm" => cm = value()?,
            "-topo" => topo = value()?,
            "-seed" => seed = value()?.parse()?,
            "-load_balancing_algo" => lb = value()?,
            "-mtu" => mtu = value()?.parse()?,
            "-sender_cc_algo" | "-end" => drop(value()?),
            "-failed" => failed = value()?.parse()?,
            "-disable_trim" => trimming = false,
            "-sleek" => sleek = true,
            "-sender_cc_only" => {}
            _ => return Err(format!("htsim's {word} is not known here").into()),
        }
    }
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    let workload = formats::cm::read(cm, &read(cm)?)?;
    let tree = match topo {
        "" => default_tree(workload.hosts),
        topo => formats::topo::read(topo, &read(topo)?)?,
    };
    let mut config = SimConfig::new(tree.build()?);
    let slow = slow_links(&config.topology, failed, 0.25)?;
    config.failures.extend(slow.into_iter().map(|what| FailureEvent { at: Picos::ZERO, what }));
    config.seed = seed;
    config.network.trimming = Some(trimming);
    config.host.mtu = mtu;
    // htsim's card keeps its own default when the file says something else for the links.
    config.network.nic_gbps = Some(100.0);
    if let Transport::Squall(squall) = &mut config.host.transport {
        squall.cc = cc.into();
        // What REPS does here beyond htsim's is left out.
        squall.lb = lb.into();
        let loss = match (trimming, sleek) {
            (true, _) => "trim,rto",
            (false, true) => "ooo,probe,rto",
            (false, false) => "rto",
        };
        squall.loss = loss.into();
    }
    let results = Simulation::new(&config, &workload)?.run(&mut ());
    // htsim's logs only say when a flow finished.
    let finished = |flow: &FlowResult| Some((flow.start? + flow.fct?).as_micros());
    let fct: Vec<f64> = results.flows.iter().filter_map(finished).collect();
    if fct.len() < results.flows.len() {
        return Err(format!("only {} of {} flows finished", fct.len(), results.flows.len()).into());
    }
    let totals = results.totals;
    Ok(Figures {
        runs: 1.0,
        mean: fct.iter().sum::<f64>() / fct.len() as f64,
        min: fct.iter().copied().fold(f64::INFINITY, f64::min),
        max: fct.iter().copied().fold(0.0, f64::max),
        packets: totals.packets as f64,
        retransmitted: totals.retransmitted as f64,
        acks: totals.acks as f64,
        wall: totals.wall_s,
        peak_kb: totals.peak_bytes as f64 / 1024.0,
    })
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((file, options)) = args.split_first() else {
        return Err("usage: beside_htsim DIR/htsim.csv [FILTER] [cc=..] [verbose]".into());
    };
    let (mut filter, mut cc, mut verbose) = ("", "nscc", false);
    for option in options {
        match option.split_once('=') {
            Some(("cc", value)) => cc = value,
            None if option == "verbose" => verbose = true,
            _ => filter = option,
        }
    }
    let directory = Path::new(file).parent().unwrap_or(Path::new("."));
    let text = std::fs::read_to_string(file)?;
    let mut scenarios: BTreeMap<String, (usize, Figures, Figures)> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.splitn(14, ',').collect();
        let &[name, _, _, min, mean, _, max, packets, rtx, _, acks, wall, peak, arguments] =
            columns.as_slice()
        else {
            return Err(
                format!("{file}: a line of {} columns; 14 were expected", columns.len()).into()
            );
        };
        if !name.contains(filter) {
            continue;
        }
        let theirs = Figures {
            runs: 1.0,
            min: min.parse()?,
            mean: mean.parse()?,
            max: max.parse()?,
            packets: packets.parse()?,
            retransmitted: rtx.parse()?,
            acks: acks.parse()?,
            wall: wall.parse()?,
            peak_kb: peak.parse()?,
        };
        let ours = match run(directory, arguments, cc) {
            Ok(ours) => ours,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        if verbose {
            println!(
                "{name} theirs {:.1} {:.1} {:.1} rtx {} ours {:.1} {:.1} {:.1} rtx {}",
                theirs.min,
                theirs.mean,
                theirs.max,
                theirs.retransmitted,
                ours.min,
                ours.mean,
                ours.max,
                ours.retransmitted
            );
        }
        let place = scenarios.len();
        let entry =
            scenarios.entry(name.into()).or_insert((place, Figures::default(), Figures::default()));
        entry.1.add(&theirs);
        entry.2.add(&ours);
    }
    let mut rows: Vec<_> = scenarios.into_iter().collect();
    rows.sort_by_key(|row| row.1.0);
    println!(
        "| scenario | runs | mean FCT us: htsim, ours, diff | max FCT us: htsim, ours, diff | rtx: htsim, ours | acks: htsim, ours | speed |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut within = 0;
    for (name, (_, theirs, ours)) in &rows {
        let n = theirs.runs;
        let percent = |a: f64, b: f64| (b / a - 1.0) * 100.0;
        let (mean, max) = (percent(theirs.mean, ours.mean), percent(theirs.max, ours.max));
        let good = mean.abs() <= 10.0 && max.abs() <= 10.0 && theirs.packets == ours.packets;
        within += usize::from(good);
        println!(
            "| {name} | {n} | {:.1}, {:.1}, {mean:+.1} % | {:.1}, {:.1}, {max:+.1} %{} | {:.0}, {:.0} | {:.0}, {:.0} | {:.1}x |",
            theirs.mean / n,
            ours.mean / n,
            theirs.max / n,
            ours.max / n,
            if good { "" } else { " (*)" },
            theirs.retransmitted / n,
            ours.retransmitted / n,
            theirs.acks / n,
            ours.acks / n,
            theirs.wall / ours.wall,
        );
    }
    println!(
        "\n{within} of {} scenarios within 10 % in mean and maximum, with equal packets.",
        rows.len()
    );
    Ok(())
}
