//! The `squall` command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use squall_fabric::live::cli::{self as live, FabricArgs};

#[derive(Parser)]
#[command(name = "squall", version, about = "Networks made of software")]
struct Cli {
    #[command(subcommand)]
    command: Top,
}

#[derive(Subcommand)]
enum Top {
    /// A network made of software that real endpoints attach to.
    Fabric(FabricArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Top::Fabric(args) => live::run(&args),
    }
}
