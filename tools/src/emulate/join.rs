//! `squall emulate join`: runs a job on an emulator that is already running, beside other jobs.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use squall_net::HostList;

use super::cli::print_line;
use crate::run::job::Job;
use crate::run::switches::Switches;
use crate::run::{REFUSED, emulator_variables, no_endpoint, prepare};
use squall_emulator::{Command, Status, ask};

/// Starts a job on an emulator that is up: the variables that its MPI needs are set so that every message crosses the emulator. Other
/// jobs may be on it at the same time, on the same hosts or others.
///
/// The exit status is the job's; 2 if the job cannot be started, no emulator is up, or no process of the job attached to it.
#[derive(Args, Debug)]
pub(crate) struct JoinArgs {
    /// Hosts of the ranks, in turn: 0,2x8,5-7 is host 0 for rank 0, host 2 for the next eight, then 5, 6 and 7; a number alone is
    /// the host of all. Default: rank i is host i.
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<HostList>,
    /// The job: mpiexec and what belongs to it.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs `squall emulate join`, and prints its errors.
pub(super) fn run(socket: &Path, args: &JoinArgs) -> ExitCode {
    let status = join(socket, args).unwrap_or_else(|why| {
        print_line(format_args!("{why}"));
        REFUSED
    });
    ExitCode::from(status)
}

/// Runs the job on the emulator, and returns the exit status.
fn join(socket: &Path, args: &JoinArgs) -> Result<u8, String> {
    let before = status(socket)?;
    check_hosts(args.hosts.as_ref(), before.hosts)?;
    let emulator = emulator_variables(place(socket, args.hosts.as_ref()), None)?;
    let job = prepare(&args.command, true, &Switches::default(), emulator)?;
    // There is no emulator to stop: only the end of the job counts.
    let (_end, end_notice) = UnixStream::pair().map_err(|e| e.to_string())?;
    let ended = Job::start(&job.command, &job.variables, end_notice)?.wait()?;
    // Other jobs' endpoints count, too. But if no endpoint attached at all, none of this job's did.
    let silent = match status(socket) {
        Ok(after) if after.attached <= before.attached => no_endpoint(&job.variables),
        Ok(_) => return Ok(ended.status),
        Err(gone) => gone,
    };
    if !ended.interrupted {
        print_line(format_args!("{silent}"));
    }
    Ok(if ended.interrupted || ended.status != 0 { ended.status } else { REFUSED })
}

/// Asks the running emulator for its status.
fn status(socket: &Path) -> Result<Status, String> {
    let answer = ask(socket, &Command::Status).map_err(|error| error.to_string())?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}

/// Checks that the emulator has the hosts of the ranks. The emulator would refuse the endpoints of
/// other hosts, but only after the start of the job. MPICH's launcher can miss the end of a rank that
/// writes to standard error and exits at once, and the ranks that attached then wait for it for ever.
pub(crate) fn check_hosts(hosts: Option<&HostList>, count: u32) -> Result<(), String> {
    let beyond = hosts.and_then(|list| list.hosts().iter().find(|host| **host >= count));
    match beyond {
        Some(host) if count > 0 => {
            Err(format!("--hosts: there is no host {host}; the hosts are 0 to {}", count - 1))
        }
        _ => Ok(()),
    }
}

/// Returns the value of FI_SQUALL_EMULATOR for the job: the socket, and the hosts of its ranks.
fn place(socket: &Path, hosts: Option<&HostList>) -> String {
    let hosts = hosts.map_or_else(|| "rank".to_owned(), HostList::to_string);
    format!("{},host={hosts}", socket.display())
}
