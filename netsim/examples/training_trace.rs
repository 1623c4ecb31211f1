//! Writes Chakra traces of a training step of a transformer, for `squall sim`:
//!
//! ```text
//! training_trace --out job --data 4        128 ranks: eight on a host, in 16 hosts
//! squall sim --topo fat-tree:16:1 --trace job/job.%d.et --comm-groups job/job.groups.json --ranks-per-host 8
//! ```
#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use clap::Parser;
use squall_netsim::workload::chakra::Training;

/// Writes Chakra traces of a training step of a transformer, and prints what a rank sends.
#[derive(Parser)]
struct Line {
    /// Folder for the traces, `job.%d.et`, and their process groups, `job.groups.json`.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    training: Training,
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let Line { out, training } = Line::parse();
    training.write(&out, "job")?;
    let bytes = training.bytes();
    println!(
        "{} ranks, {:.1} billion parameters; a rank sends in a step at most: {:.3} GB for sums of tensor parallel ranks, \
         {:.3} GB to other stages, {:.3} GB of gradients",
        training.ranks(),
        training.parameters() as f64 / 1e9,
        bytes.tensor as f64 / 1e9,
        bytes.pipeline as f64 / 1e9,
        bytes.data as f64 / 1e9,
    );
    Ok(())
}
