//! Runs one connection matrix on one topology and prints a line of numbers:
//! `run_cm TOPO CM [key=value ..]` with the keys cc, lb, loss, seed, trim, nic.
#![allow(clippy::print_stdout)]

use squall_fabric::base::Rate;
use squall_fabric::formats;
use squall_fabric::sim::{SimConfig, Simulation, Transport};

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, topo, cm, options @ ..] = args.as_slice() else {
        return Err("usage: run_cm TOPO CM [key=value ..]".into());
    };
    let tree = formats::topo::read(topo, &std::fs::read_to_string(topo)?)?;
    let workload = formats::cm::read(cm, &std::fs::read_to_string(cm)?)?;
    let mut config = SimConfig::new(tree.build()?);
    config.observe.ports = true;
    for option in options {
        let (key, value) = option.split_once('=').ok_or("options are key=value")?;
        let Transport::Squall(squall) = &mut config.host.transport else { continue };
        match key {
            "cc" => squall.cc = value.into(),
            "lb" => squall.lb = value.into(),
            "loss" => squall.loss = value.into(),
            "seed" => config.seed = value.parse()?,
            "trim" => config.trimming = value == "1",
            "nic" => config.host.nic = Some(Rate::gbps(value.parse()?)),
            _ => return Err(format!("unknown option {key}").into()),
        }
    }
    let results = Simulation::new(&config, &workload)?.run(&mut ());
    let mut fct: Vec<f64> =
        results.flows.iter().filter_map(|flow| Some(flow.fct?.as_micros())).collect();
    fct.sort_by(f64::total_cmp);
    let mean = fct.iter().sum::<f64>() / fct.len() as f64;
    let (min, max) = (fct.first().unwrap_or(&0.0), fct.last().unwrap_or(&0.0));
    let t = &results.totals;
    println!(
        "{:?} flows {} min {min:.1} mean {mean:.1} max {max:.1} pkts {} rtx {} nacks {} acks {} trimmed {} dropped {} marked {} events {} wall {:.3} ns/ev {:.0} MB {}",
        results.end,
        fct.len(),
        t.packets,
        t.retransmitted,
        t.nacks,
        t.acks,
        t.trimmed,
        t.dropped,
        t.marked,
        t.events,
        t.wall_s,
        t.wall_s * 1e9 / t.events as f64,
        t.peak_bytes / 1_000_000
    );
    Ok(())
}
