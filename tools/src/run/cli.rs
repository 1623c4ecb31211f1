//! The command lines of `squall run` and `squall env`.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::REFUSED;
use super::emulated::{self, EmulatedArgs, EmulatedEnd};
use super::job::Job;
use super::launchers::{Launcher, MPI_IMPLEMENTATIONS, MpiImplementation};
use super::preparation::{self, PreparedJob, Variables, prepare};
use super::print_line;
use super::summary::JobSummary;
use super::switches::Switches;
use squall_netsim::output::Origin;

/// Runs a job on squall: finds the provider that was installed with this program, recognises the launcher, sets what its MPI
/// needs on all hosts, and ends with a summary of all ranks on standard error.
///
/// Launchers: mpiexec and mpirun of MPICH, Intel MPI, Open MPI 4 and 5, srun, prun; or a program that uses libfabric itself.
///
/// The exit status is the launcher's, or 2 if the request is refused, with --require a rank did not use squall or the emulator
/// fell behind real time, or with --on no message crossed the emulated network.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub(crate) struct RunArgs {
    /// Fail, with status 2, if a rank did not use squall, or if an emulator in real time fell behind.
    #[arg(long)]
    require: bool,
    /// Send messages between ranks of one host through squall, too, and not through the shared memory of their MPI.
    #[arg(long)]
    all: bool,
    /// Print errors only, not the summary. That results are not valid is an error.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    switches: Switches,
    #[command(flatten)]
    emulated: EmulatedArgs,
    /// The job: the launcher and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Prints the variables with which jobs use squall, for batch scripts and module files: eval "$(squall env)".
#[derive(Args, Debug)]
pub(crate) struct EnvArgs {
    /// MPI of the jobs. Default: that of mpiexec in PATH; all of them if there is none.
    #[arg(long, value_enum)]
    mpi: Option<MpiName>,
    /// Send messages between ranks of one host through squall, too, and not through the shared memory of their MPI.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    switches: Switches,
}

/// A known MPI that the user names, as an index into the list of implementations.
#[derive(Clone, Copy, Debug)]
struct MpiName(usize);

impl MpiName {
    const ALL: [Self; MPI_IMPLEMENTATIONS.len()] = {
        let mut all = [Self(0); MPI_IMPLEMENTATIONS.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = Self(i);
            i += 1;
        }
        all
    };

    fn mpi(self) -> &'static MpiImplementation {
        &MPI_IMPLEMENTATIONS[self.0]
    }
}

impl ValueEnum for MpiName {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let mpi = self.mpi();
        Some(clap::builder::PossibleValue::new(mpi.key).help(mpi.name))
    }
}

/// Runs `squall run`, and prints its errors.
pub(crate) fn run(args: &RunArgs, origin: &Origin) -> ExitCode {
    ExitCode::from(run_job(args, origin).unwrap_or_else(|why| {
        print_line(format_args!("run: {why}"));
        REFUSED
    }))
}

/// Runs the job and returns the exit status.
fn run_job(args: &RunArgs, origin: &Origin) -> Result<u8, String> {
    let end = match &args.emulated.on {
        Some(on) => {
            emulated::run(on, &args.emulated, &args.command, &args.switches, args.quiet, origin)?
        }
        None => {
            let PreparedJob { command, variables } =
                prepare(&args.command, args.all, &args.switches, Variables::new())?;
            // There is no emulator to stop: only the end of the job counts.
            let (_end, end_notice) = UnixStream::pair().map_err(|error| error.to_string())?;
            let job = Job::start(&command, &variables, end_notice)?.wait()?;
            EmulatedEnd { job, nothing: None, invalid: None }
        }
    };
    let EmulatedEnd { job: ended, nothing, invalid } = end;
    if let Some(why) = &invalid {
        print_line(format_args!("{why}"));
    }
    let summary = JobSummary::new(&ended.reports);
    if let Some(why) = &nothing {
        print_line(format_args!("{why}"));
    } else if ended.interrupted && ended.reports.is_empty() {
        // Processes that a signal ends write no report.
    } else if args.emulated.on.is_some() && ended.reports.is_empty() {
        // Packets crossed the emulator, so that the job did use squall.
        if !args.quiet {
            print_line(format_args!(
                "no rank closed its endpoint: each was killed, or ended without MPI_Finalize"
            ));
        }
    } else if !args.quiet || args.require && !summary.is_complete() {
        summary.lines(ended.status).iter().for_each(|line| print_line(format_args!("{line}")));
    }
    let is_incomplete = !summary.is_complete() || invalid.is_some();
    let shows_nothing = nothing.is_some() || args.require && is_incomplete;
    let refused = shows_nothing && !ended.interrupted && ended.status == 0;
    Ok(if refused { REFUSED } else { ended.status })
}

/// Prints the environment variables with which jobs use squall.
///
/// # Errors
/// The environment contradicts a variable, an option is not valid, or the provider cannot be loaded.
pub(crate) fn print_variables(args: &EnvArgs) -> Result<(), String> {
    let launcher = match args.mpi {
        Some(name) => Launcher::Mpi(name.mpi()),
        None => Launcher::of("mpiexec".as_ref()).unwrap_or(Launcher::Program),
    };
    let mut text = String::new();
    for (name, value) in preparation::variables(launcher, args.all, &args.switches)? {
        text.push_str(&format!("export {name}={}\n", quoted(&value)));
    }
    io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// Quotes a value for a shell where it needs that.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-,:=+%@^".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_shell() {
        assert_eq!(quoted("/opt/squall"), "/opt/squall");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("a b;c"), "'a b;c'");
        assert_eq!(quoted(""), "''");
    }
}
