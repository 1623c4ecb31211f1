//! The `squall` command line.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 success, 1 a
//! flow did not finish, a statement does not hold or the command failed, 2 the request is invalid,
//! 130 interrupted.

mod bar;
mod choices;
mod pages;
mod plan;
mod report;
mod sim;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Arg, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::decrypt::command as decrypt;
use crate::doctor::command as doctor;
use crate::emulate::cli as emulate;
use crate::run::cli as job;
use crate::top::command as top;
use squall_netsim::output::Origin;
use squall_netsim::output::files::FileError;

/// Squall: run jobs on the transport, simulate it, emulate a network, watch and diagnose jobs.
#[derive(Parser, Debug)]
#[command(name = "squall", version, propagate_version = true, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a job on squall, over the real network or an emulated one.
    Run(Box<job::RunArgs>),
    /// Print the variables with which jobs use squall.
    Env(job::EnvArgs),
    /// Simulate one workload over one network.
    Sim(Box<sim::SimArgs>),
    /// List and run experiments.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Make one self-contained HTML page of results.
    Report(report::ReportArgs),
    /// A network made of software that real endpoints attach to.
    Emulate(emulate::EmulateArgs),
    /// Show what endpoints are doing while they run.
    Top(top::TopArgs),
    /// Say why jobs do not start, do not reach each other, or will be slow.
    Doctor(doctor::DoctorArgs),
    /// Decrypt a capture of a job with a key, for Wireshark.
    Decrypt(decrypt::DecryptArgs),
    /// Print the completions of a shell: `squall completions bash`.
    Completions {
        /// Shell that will read the completions.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// Folder for the manual pages.
        folder: PathBuf,
    },
}

/// The reason why a command failed, and its exit status.
#[derive(Debug)]
struct Failure {
    status: u8,
    what: String,
    /// True if the reader of the results has closed the pipe, which is no failure.
    closed: bool,
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err, which hands errors over")]
impl Failure {
    /// Creates the failure of a command that cannot be run as it was given, exit status 2.
    fn usage(what: impl ToString) -> Self {
        Self { status: 2, what: what.to_string(), closed: false }
    }

    /// Creates the failure of a command that was run and did not succeed, exit status 1.
    fn failed(what: impl ToString) -> Self {
        Self { status: 1, what: what.to_string(), closed: false }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let closed = matches!(&error, FileError::Write { error, .. } if error.kind() == io::ErrorKind::BrokenPipe);
        Self { closed, ..Self::failed(error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        Self { closed, ..Self::failed(format!("cannot write results: {error}")) }
    }
}

/// Returns the command line. Options of the emulator have a meaning for `run` only where it runs one.
fn command_line() -> clap::Command {
    let emulator = emulate::EmulatorArgs::augment_args(clap::Command::new("emulator"));
    let is_of_emulator = |arg: &Arg| emulator.get_arguments().any(|of| of.get_id() == arg.get_id());
    Args::command().mut_subcommand("run", |run| {
        run.mut_args(|arg| if is_of_emulator(&arg) { arg.requires("on") } else { arg })
    })
}

/// Runs the command line of this process. `commit` is the commit from which the program was built,
/// if known.
#[must_use]
pub fn main(commit: Option<&str>) -> ExitCode {
    squall_research::register();
    let args =
        Args::from_arg_matches(&command_line().get_matches()).unwrap_or_else(|error| error.exit());
    let origin = Origin::of_this_process(commit);
    let done = match args.command {
        Command::Run(args) => return job::run(&args, &origin),
        Command::Env(args) => job::print_variables(&args).map(|()| 0).map_err(Failure::usage),
        Command::Emulate(args) => return emulate::run(&args),
        Command::Sim(args) => sim::run(&args, &origin),
        Command::Plan(command) => plan::run(&command, &origin),
        Command::Report(args) => report::run(&args),
        Command::Top(args) => watched(args.serves(), |stop| top::run(&args, stop)),
        Command::Doctor(args) => watched(args.answers(), |stop| doctor::run(&args, stop)),
        Command::Decrypt(args) => decrypt::run(&args, &mut io::stdout())
            .map(|decrypted| u8::from(!decrypted))
            .map_err(Failure::failed),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::manual(&folder),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failure) if failure.closed => ExitCode::SUCCESS,
        Err(failure) => {
            // If standard error is closed, the message cannot be shown anywhere else.
            let _ = writeln!(io::stderr(), "squall: {}", failure.what);
            ExitCode::from(failure.status)
        }
    }
}

/// Runs a command that may go on until it is interrupted. Returns status 1 if the command reports a
/// problem.
fn watched(
    on: bool,
    run: impl FnOnce(&Arc<AtomicBool>) -> io::Result<bool>,
) -> Result<u8, Failure> {
    let stop = if on { interrupts()? } else { Arc::default() };
    match run(&stop) {
        Ok(well) => Ok(u8::from(!well)),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Returns a flag that an interrupt sets. A second interrupt ends the program at once.
fn interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        let _ = writeln!(io::stderr(), "squall: interrupted: ending with the results so far; press Ctrl-C again to quit at once");
    })
    .map_err(|error| Failure::failed(format!("cannot catch interrupts: {error}")))?;
    Ok(stop)
}

/// Output format of the results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
enum Format {
    /// Text tables for people.
    #[default]
    Text,
    /// One JSON document with all results.
    Json,
    /// One line for each flow, with comma-separated values.
    Csv,
    /// The table of flows as a Parquet file; needs the feature `parquet`, and --out or a standard output that is no
    /// terminal.
    Parquet,
}
