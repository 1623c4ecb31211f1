//! `squall fabric ..`.

use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::{Command, Relay, RelayConfig, Status, ask, parse_rate};
use crate::Picos;
use crate::base::{Rate, Span};
use crate::formats;
use crate::model::NetworkArgs;
use crate::topology::Topology;

/// A network made of software that real endpoints attach to: FI_SQUALL_FABRIC=SOCKET.
#[derive(Args, Debug)]
pub struct FabricArgs {
    /// The fabric's socket.
    #[arg(long, short, global = true, value_name = "PATH", default_value_os_t = default_socket())]
    pub socket: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: FabricCommand,
}

fn default_socket() -> PathBuf {
    std::env::temp_dir().join("squall-fabric.sock")
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum FabricCommand {
    /// Run a fabric until it is told to go down, or interrupted.
    Up(Box<UpArgs>),
    /// End a running fabric.
    Down,
    /// Endpoints, counters of every queue, failures, and how far behind real time it is.
    Status {
        /// Text or JSON.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Take a link down in both directions. Links are named by their ends (leaf0-spine1, h3-leaf1) or
    /// by number.
    FailLink {
        /// The link.
        link: String,
    },
    /// Bring a link up again, at its own rate, without errors.
    RestoreLink {
        /// The link.
        link: String,
    },
    /// Give a link another rate, such as 40G (before scaling).
    SetRate {
        /// The link.
        link: String,
        /// The rate.
        #[arg(value_parser = rate)]
        rate: Rate,
    },
    /// Let a link swallow everything without routing's noticing.
    BlackHole {
        /// The link.
        link: String,
    },
    /// Give a link bit errors: each bit is wrong with this probability.
    BitErrors {
        /// The link.
        link: String,
        /// The probability.
        probability: f64,
    },
    /// Take all links of a switch down.
    FailSwitch {
        /// The switch.
        switch: String,
    },
    /// Bring all links of a switch up.
    RestoreSwitch {
        /// The switch.
        switch: String,
    },
}

/// How to print.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How to run a fabric.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct UpArgs {
    /// A .topo file, or leaf-spine:LEAVESxSPINESxHOSTS (hosts of a leaf), star:HOSTS,
    /// dumbbell:LEFTxRIGHT.
    #[arg(long, value_name = "TOPOLOGY", default_value = "leaf-spine:4x2x2")]
    pub topo: String,
    /// Rate of the links of a named topology.
    #[arg(long, default_value = "100G", value_parser = rate)]
    pub rate: Rate,
    /// Latency of the links of a named topology, ns.
    #[arg(long, value_name = "NS", default_value_t = 1000)]
    pub latency: u64,
    /// Multiply all rates by this.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.01)]
    pub rate_scale: f64,
    /// Multiply all latencies by this. Default: as much as rates are divided by, the same network in
    /// slow motion.
    #[arg(long, value_name = "FACTOR")]
    pub latency_scale: Option<f64>,
    /// Largest UDP payload of a packet, bytes.
    #[arg(long, default_value_t = 4096)]
    pub mtu: u32,
    /// What ports and switches are like.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What the hosts of this machine add to the round-trip time, us; told to endpoints.
    #[arg(long, value_name = "US", default_value_t = 200)]
    pub host_delay: u64,
    /// Seed of hashing and marking.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Say nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
}

fn rate(text: &str) -> Result<Rate, super::CommandError> {
    parse_rate(text)
}

/// The topology that `--topo` names.
fn topology(args: &UpArgs) -> Result<Topology, String> {
    let (rate, latency) = (args.rate, Picos::nanos(args.latency));
    let numbers = |text: &str, what: &str, count: usize| -> Result<Vec<u32>, String> {
        let numbers: Vec<u32> = text.split('x').filter_map(|n| n.parse().ok()).collect();
        let fine = text.split('x').count() == count
            && numbers.len() == count
            && numbers.iter().all(|n| (1..=1024).contains(n));
        if fine {
            Ok(numbers)
        } else {
            Err(format!("'{text}' where {what} was expected, 1 to 1024 each"))
        }
    };
    let network = match args.topo.split_once(':') {
        Some(("leaf-spine", sizes)) => {
            let n = numbers(sizes, "LEAVESxSPINESxHOSTS", 3)?;
            Topology::fits(u64::from(n[0]) * u64::from(n[1] + n[2])).map_err(|e| e.to_string())?;
            Topology::leaf_spine(n[0], n[1], n[2], rate, rate, latency, Picos::ZERO)
        }
        Some(("star", size)) => {
            Topology::star(numbers(size, "HOSTS", 1)?[0], rate, latency, Picos::ZERO)
        }
        Some(("dumbbell", sizes)) => {
            let n = numbers(sizes, "LEFTxRIGHT", 2)?;
            Topology::dumbbell(n[0], n[1], rate, rate, latency, Picos::ZERO)
        }
        _ => {
            let text = formats::read_text(args.topo.as_ref()).map_err(|error| {
                format!(
                    "{}: {error}; a .topo file, leaf-spine:LEAVESxSPINESxHOSTS, star:HOSTS or \
                     dumbbell:LEFTxRIGHT is expected",
                    args.topo
                )
            })?;
            formats::topology(&args.topo, &text).map_err(|e| e.to_string())?
        }
    };
    Ok(network)
}

/// Does it. Errors go to standard error; the exit status is 1 then.
#[must_use]
pub fn run(args: &FabricArgs) -> ExitCode {
    let command = match &args.command {
        FabricCommand::Up(up) => return finish(self::up(args, up)),
        FabricCommand::Down => Command::Down,
        FabricCommand::Status { .. } => Command::Status,
        FabricCommand::FailLink { link } => Command::FailLink(link.clone()),
        FabricCommand::RestoreLink { link } => Command::RestoreLink(link.clone()),
        FabricCommand::SetRate { link, rate } => Command::SetRate(link.clone(), *rate),
        FabricCommand::BlackHole { link } => Command::BlackHole(link.clone()),
        FabricCommand::BitErrors { link, probability } => {
            Command::BitErrors(link.clone(), *probability)
        }
        FabricCommand::FailSwitch { switch } => Command::FailSwitch(switch.clone()),
        FabricCommand::RestoreSwitch { switch } => Command::RestoreSwitch(switch.clone()),
    };
    let answer = ask(&args.socket, &command).map_err(|e| e.to_string());
    finish(answer.and_then(|answer| match &args.command {
        FabricCommand::Status { format: Format::Text } => {
            let status: Status = serde_json::from_str(&answer).map_err(|e| e.to_string())?;
            print(format_args!("{status}"))
        }
        _ => print(format_args!("{answer}\n")),
    }))
}

fn finish(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "squall fabric: {text}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: fmt::Arguments<'_>) -> Result<(), String> {
    let mut out = std::io::stdout();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        // Whoever reads has read enough; what is being done goes on.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

fn up(args: &FabricArgs, up: &UpArgs) -> Result<(), String> {
    let network = topology(up)?;
    let config = RelayConfig {
        rate_scale: up.rate_scale,
        latency_scale: up.latency_scale.unwrap_or(1.0 / up.rate_scale),
        mtu: up.mtu,
        network: up.network.options(),
        host_delay: Span::micros(up.host_delay),
        seed: up.seed,
        ..RelayConfig::new(args.socket.clone(), network)
    };
    let mut relay = Relay::open(config).map_err(|e| e.to_string())?;
    let (stop, interrupt) = UnixStream::pair().map_err(|e| e.to_string())?;
    ctrlc::set_handler(move || {
        // A full pipe says the same.
        let _ = (&interrupt).write(b".");
    })
    .map_err(|e| e.to_string())?;
    let status = relay.status();
    if !up.quiet {
        let topology = relay.topology();
        print(format_args!(
            "fabric at {}: {} hosts, {} switches, {} links; hosts at {:.3} Gb/s, round trip {:.0} us; {}\n",
            args.socket.display(),
            topology.hosts,
            topology.switches.len(),
            topology.links.len(),
            status.host_rate as f64 / 1e9,
            status.base_rtt_ns as f64 / 1e3,
            status.network,
        ))?;
    }
    let mut say = |line: fmt::Arguments<'_>| {
        if !up.quiet {
            // Whoever started it may be gone.
            let _ = print(format_args!("{line}\n"));
        }
    };
    relay.run(&stop, &mut say).map_err(|e| e.to_string())?;
    if !up.quiet {
        print(format_args!("{}", relay.status()))?;
    }
    Ok(())
}
