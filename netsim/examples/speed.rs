//! What simulating costs: one run, one line of JSON (for `ci/run bench sim`, and for a profiler).
//!
//! ```text
//! speed HOSTS [BYTES [THREADS]]    a permutation (2 MB) on a full fat tree of 128, 1024, 8192 or 65536 hosts
//! speed TOPO CM [key=value ..]     htsim's files; keys: cc lb loss seed mtu trim=0 nic=GBPS
//! ```
#![allow(clippy::print_stdout)]

use squall_base::Rate;
use squall_netsim::sim::{SimConfig, Simulation, SquallConfig, Transport};
use squall_netsim::topology::{FatTree, Tier};
use squall_netsim::workload::{Apart, Layout, Pattern, Spec, Workload};
use squall_netsim::{Bytes, Picos, formats};

type Failure = Box<dyn core::error::Error>;

/// A full fat tree of three tiers, 100 Gb/s and 1 us a link.
fn tree(hosts: u32) -> Result<FatTree, Failure> {
    let half = (1..100).find(|half| half * half * half * 2 == hosts);
    let half = half.ok_or("a full fat tree has 2 n^3 hosts: 128, 1024, 8192, 65536")?;
    let tier = |up| Tier {
        oversubscribed: 1,
        downlink: Rate::gbps(100),
        radix_down: if up == 0 { half * 2 } else { half },
        radix_up: up,
        downlink_latency: Picos::micros(1),
        switch_latency: Picos::ZERO,
        bundle: 1,
        queue_up: None,
        queue_down: None,
    };
    Ok(FatTree { hosts, pod_hosts: half * half, tiers: vec![tier(half), tier(half), tier(0)] })
}

fn read(topo: &str, cm: &str) -> Result<(FatTree, Workload), Failure> {
    let tree = formats::topo::read(topo, &std::fs::read_to_string(topo)?)?;
    Ok((tree, formats::cm::read(cm, &std::fs::read_to_string(cm)?)?))
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut threads = 1;
    let (tree, workload, options) = match args.as_slice() {
        [hosts, rest @ ..] if rest.len() < 3 && hosts.parse::<u32>().is_ok() => {
            let hosts = hosts.parse()?;
            let bytes = rest.first().map_or(Ok(2_000_000), |bytes| bytes.parse())?;
            threads = rest.get(1).map_or(Ok(1), |threads| threads.parse())?;
            let spec = Spec::new(Pattern::Permutation {
                bytes: Bytes(bytes),
                parallel: 1,
                larger: None,
                apart: Apart::Hosts,
            });
            (tree(hosts)?, spec.generate(&Layout::flat(hosts), 1)?, &[][..])
        }
        [topo, cm, options @ ..] => {
            let (tree, workload) = read(topo, cm)?;
            (tree, workload, options)
        }
        _ => {
            return Err(
                "usage: speed HOSTS [BYTES [THREADS]], or speed TOPO CM [key=value ..]".into()
            );
        }
    };
    let mut config = SimConfig { threads, ..SimConfig::new(tree.build()?) };
    let mut squall = SquallConfig::default();
    for option in options {
        let (key, value) = option.split_once('=').ok_or("options are key=value")?;
        match key {
            "cc" => squall.cc = value.into(),
            "lb" => squall.lb = value.into(),
            "loss" => squall.loss = value.into(),
            "seed" => config.seed = value.parse()?,
            "mtu" => config.host.mtu = value.parse()?,
            "trim" => config.network.trimming = Some(value != "0"),
            "nic" => config.network.nic_gbps = Some(value.parse()?),
            _ => return Err(format!("unknown option {key}").into()),
        }
    }
    config.host.transport = Transport::Squall(squall);
    let results = Simulation::new(&config, &workload)?.run(&mut ());
    let finished = results.flows.iter().filter(|flow| flow.fct.is_some()).count();
    let totals = &results.totals;
    println!(
        "{{\"hosts\": {}, \"flows\": {}, \"finished\": {finished}, \"packets\": {}, \"retransmitted\": {}, \
         \"end_us\": {:.3}, \"events\": {}, \"wall_s\": {:.4}, \"ns_per_event\": {:.1}, \"peak_bytes\": {}}}",
        config.topology.hosts,
        results.flows.len(),
        totals.packets,
        totals.retransmitted,
        totals.end.as_micros(),
        totals.events,
        totals.wall_s,
        totals.wall_s * 1e9 / totals.events as f64,
        totals.peak_bytes,
    );
    Ok(())
}
