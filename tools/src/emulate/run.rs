//! `squall emulate run`: runs a job on an emulator of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::cli::{UpArgs, about};
use super::job::Job;
use super::record::{Record, is_place};
use crate::doctor::environment::{variable, variables_of};
use crate::launchers::{LAUNCHERS, Launcher, launcher_of};
use squall_emulator::{Attendance, Relay, Timeline, Totals};
use squall_netsim::output::{Origin, Provenance};
use squall_netsim::settings::Settings;

/// Starts an emulator and a job on it: rank i is host i, the variables that its MPI needs are set so that every message crosses
/// the emulator, and both end together.
///
/// The exit status is the job's; 125 when there is nothing to show for it: what was asked for makes no sense, no packet crossed
/// the emulator, or ranks never attached to it; 126 and 127 when the command cannot be run, or is not there.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// What the emulator is like.
    #[command(flatten)]
    pub up: UpArgs,
    /// What happens to links and switches, a line each: `200ms fail-link leaf0-spine1`. Times count from the first packet.
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Keep queues, links, flows and messages over time in this folder, with a report; `squall report` and `squall sim --trace`
    /// read it.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Write a report, an HTML page.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The job: mpiexec and what belongs to it.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Exit status when there is no result of a job: an error of the command, or no packet of the job
/// crossed the emulator.
pub(super) const NOTHING: u8 = 125;
/// Name of the provider's file, which libfabric loads.
const OBJECT: &str = "libsquall-fi.so";

/// Exit status of the command when it fails or the job shows nothing, and the reason.
#[derive(Debug)]
pub(super) struct RunFailure {
    pub(super) status: u8,
    pub(super) why: String,
}

impl From<String> for RunFailure {
    fn from(why: String) -> Self {
        Self { status: NOTHING, why }
    }
}

/// Runs the command and reports errors.
pub(super) fn run(socket: Option<&Path>, args: &RunArgs, origin: &Origin) -> ExitCode {
    let status = host(socket, args, origin).unwrap_or_else(|failed| {
        tell(format_args!("{}", failed.why));
        failed.status
    });
    ExitCode::from(status)
}

/// Prints a line to standard error, because standard output is the job's.
pub(super) fn tell(line: fmt::Arguments<'_>) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "squall emulate: {line}");
}

/// Runs the emulator, and the job on it; returns the exit status.
fn host(socket: Option<&Path>, args: &RunArgs, origin: &Origin) -> Result<u8, RunFailure> {
    let timeline = match &args.timeline {
        Some(file) => Timeline::read(file, &args.up.topology()?).map_err(|e| e.to_string())?,
        None => Timeline::default(),
    };
    let record = Record::prepare(args.record.as_deref(), args.report.as_deref())?;
    let folder = Folder::new().map_err(|e| format!("no folder for a socket: {e}"))?;
    let socket = socket.map_or_else(|| folder.0.join("emulator"), Path::to_owned);
    let mut relay = args.up.open(socket.clone())?;
    let _tunnels = args.up.far_end(&socket)?;
    relay.follow(timeline, record.is_wanted());

    let quiet = args.up.quiet;
    let launcher = launcher_of(Path::new(&args.command[0]));
    let place = format!("{},host=rank", socket.display());
    let variables = variables(launcher, place, record.trace().as_deref());
    if !quiet {
        tell(format_args!("{}", about(&relay)));
        announce(launcher, &variables);
    }
    let (stop, over) = UnixStream::pair().map_err(|e| e.to_string())?;
    let job = Job::start(&args.command, &variables, over)?;
    let served = relay.run(&stop, &mut |line| {
        if !quiet {
            tell(line);
        }
    });
    // If the emulator stopped on the command `down` or on an error, the job cannot go on.
    job.end();
    served.map_err(|e| format!("the emulator failed: {e}"))?;
    let ended = job.wait()?;

    if !quiet {
        tell(format_args!("{}", crossed(&relay)));
    }
    record.write(&relay, &args.command, provenance(origin, args, &variables, &relay))?;
    let nothing = if ended.interrupted {
        None
    } else {
        why_nothing(relay.attendance(), &relay.status().totals, &variables)
    };
    match nothing {
        Some(why) if ended.status == 0 => Err(why.into()),
        Some(why) => {
            tell(format_args!("{why}"));
            Ok(ended.status)
        }
        None => Ok(ended.status),
    }
}

/// Returns the environment variables for the job's processes. `place` says where their endpoints
/// attach. If the MPI is not recognised, the variables of all known MPIs are set.
pub(super) fn variables(
    launcher: Option<&Launcher>,
    place: String,
    trace: Option<&Path>,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    let known = launcher.map_or(LAUNCHERS, core::slice::from_ref);
    for (name, value) in
        known.iter().flat_map(|launcher| launcher.needs.iter().chain(launcher.alone))
    {
        set(name, (*value).to_owned());
    }
    set("FI_PROVIDER", "squall".to_owned());
    set("FI_SQUALL_EMULATOR", place);
    set("FI_SQUALL_SHM", "no".to_owned());
    if let Some(trace) = trace {
        set("FI_SQUALL_TRACE", trace.display().to_string());
    }
    if variable("FI_PROVIDER_PATH").is_none()
        && let Some(folder) = provider()
    {
        set("FI_PROVIDER_PATH", folder.display().to_string());
    }
    variables
}

/// Returns the folder of the provider that was built or installed with this program, if it exists.
fn provider() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    [beside.join("../provider"), beside.join("../lib/squall")]
        .into_iter()
        .find(|folder| folder.join(OBJECT).is_file())
        .and_then(|folder| folder.canonicalize().ok())
}

/// Prints for which MPI variables are set, and each variable that the user had set to another
/// value.
pub(super) fn announce(launcher: Option<&Launcher>, variables: &BTreeMap<String, String>) {
    match launcher {
        Some(launcher) => tell(format_args!("variables are set for {}", launcher.name)),
        None => {
            tell(format_args!("no launcher of an MPI that is known: variables are set for all"));
        }
    }
    for (name, value) in variables {
        if let Some(other) = variable(name).filter(|other| other != value) {
            tell(format_args!("{name}={other} is {value} for this job"));
        }
    }
}

/// Returns the provenance of a record: the options, and the provider's variables that the job had.
fn provenance(
    origin: &Origin,
    args: &RunArgs,
    variables: &BTreeMap<String, String>,
    relay: &Relay,
) -> Provenance {
    let mut settings = args.up.settings();
    if let Some(timeline) = &args.timeline {
        settings.set("timeline", timeline.display());
    }
    let of_the_job = variables_of("FI_SQUALL_").into_iter().chain(variables.clone());
    for (name, value) in of_the_job.filter(|(name, _)| !is_place(name)) {
        settings.set(format!("variable.{name}"), value);
    }
    let (topology, status) = (relay.topology(), relay.status());
    let mut derived = Settings::default();
    derived.set("topology.hosts", topology.hosts);
    derived.set("topology.switches", topology.switches.len());
    derived.set("topology.links", topology.links.len());
    derived.set("emulator.host_gbps", status.host_rate as f64 / 1e9);
    derived.set("emulator.base_rtt_us", status.base_rtt_ns as f64 / 1e3);
    derived.set_table("network", &status.network);
    Provenance { origin: origin.clone(), settings, derived }
}

/// Summarises in one line the packets that crossed the emulator.
fn crossed(relay: &Relay) -> String {
    let (status, (ranks, _)) = (relay.status(), relay.attendance().ranks());
    let t = &status.totals;
    let lost = t.queue_full + t.down + t.black_hole + t.corrupt + t.no_route;
    format!(
        "{} packets of {} endpoints ({ranks} ranks) entered, {} arrived; {} marked, {} trimmed, {lost} lost; real time was not \
         kept in {} s",
        t.entered,
        relay.attendance().endpoints(),
        t.delivered,
        t.marked,
        t.trimmed,
        status.late_seconds
    )
}

/// Returns the reason why the job's run shows nothing about the emulator; `None` if it does.
fn why_nothing(
    attendance: &Attendance,
    totals: &Totals,
    variables: &BTreeMap<String, String>,
) -> Option<String> {
    let refused = attendance.refusals().join("; ");
    if attendance.endpoints() == 0 && !refused.is_empty() {
        return Some(format!("no endpoint of the job was taken: {refused}"));
    }
    if attendance.endpoints() == 0 {
        return Some(nobody_came(variables));
    }
    if totals.entered == 0 && !refused.is_empty() {
        let endpoints = attendance.endpoints();
        return Some(format!(
            "no packet crossed the emulator: {endpoints} endpoints of the job attached, and others could not: {refused}"
        ));
    }
    if totals.entered == 0 {
        let endpoints = attendance.endpoints();
        return Some(format!(
            "the job ended and no packet crossed the emulator: its {endpoints} endpoints attached, but it sent nothing, or by another \
             way"
        ));
    }
    let missing = attendance.missing();
    if missing.is_empty() {
        return None;
    }
    let (came, expected) = attendance.ranks();
    let names: Vec<String> = missing.iter().take(8).map(u32::to_string).collect();
    let why = if refused.is_empty() { String::new() } else { format!(" ({refused})") };
    Some(format!(
        "{came} of {expected} ranks attached to the emulator; missing: {}{}{why}",
        names.join(", "),
        if missing.len() > names.len() { ", .." } else { "" }
    ))
}

/// Returns the message that no process of the job attached, with what to check.
pub(super) fn nobody_came(variables: &BTreeMap<String, String>) -> String {
    let path = variables.get("FI_PROVIDER_PATH").cloned().or_else(|| variable("FI_PROVIDER_PATH"));
    let path = path.map_or_else(
        || format!("FI_PROVIDER_PATH is not set; it names the folder of {OBJECT}"),
        |path| {
            format!(
                "FI_PROVIDER_PATH={path}; `squall doctor` says whether {OBJECT} loads from there"
            )
        },
    );
    format!(
        "the job ended and none of its processes attached to the emulator: it did not use squall ({path})"
    )
}

/// A temporary folder that only this user can access. It is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("squall-run-{}", std::process::id()));
        // A process with the same number may have been killed and left its folder.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Best effort: if the removal fails, an empty folder stays behind.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_net::emulator::frame::{Hello, JobRank};

    #[test]
    fn every_mpi_gets_what_it_needs_and_those_that_are_not_known_all() {
        let place = || "/run/s,host=rank".to_owned();
        let all = variables(None, place(), Some(Path::new("/r/trace")));
        for (name, value) in [
            ("FI_SQUALL_EMULATOR", "/run/s,host=rank"),
            ("FI_SQUALL_SHM", "no"),
            ("FI_SQUALL_TRACE", "/r/trace"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("I_MPI_COLL_INTRANODE", "pt2pt"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_osc", "^sm,ucx"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        let mpich = crate::launchers::recognise("HYDRA");
        let mpich = variables(mpich, place(), None);
        assert!(mpich.contains_key("MPIR_CVAR_NOLOCAL") && !mpich.contains_key("OMPI_MCA_mtl"));
        assert!(!mpich.contains_key("FI_SQUALL_TRACE"));
    }

    #[test]
    fn a_job_that_says_nothing_about_the_emulator_is_told_from_one_that_does() {
        let none = BTreeMap::new();
        let (mut attendance, mut totals) = (Attendance::default(), Totals::default());
        let why = |attendance: &Attendance, totals: &Totals| {
            why_nothing(attendance, totals, &none).unwrap_or_default()
        };
        assert!(why(&attendance, &totals).contains("did not use squall"));
        attendance.refused("rank 9 wants to be host 9; the hosts are 0 to 7");
        assert!(why(&attendance, &totals).contains("rank 9 wants"));
        let addr = "127.0.0.1:1".parse().expect("literal");
        for rank in 0..2 {
            let member = JobRank { rank: Some(rank), ranks: Some(2 + rank) };
            attendance.attached(&Hello { addr, host: None, process: 1, member });
        }
        assert_eq!(
            why(&attendance, &totals),
            "no packet crossed the emulator: 2 endpoints of the job attached, and others could not: rank 9 wants to be host 9; \
             the hosts are 0 to 7"
        );
        let mut all_came = Attendance::default();
        all_came.attached(&Hello { addr, host: None, process: 1, member: JobRank::default() });
        assert!(why(&all_came, &totals).contains("by another way"));
        totals.entered = 1;
        assert_eq!(
            why(&attendance, &totals),
            "2 of 3 ranks attached to the emulator; missing: 2 (rank 9 wants to be host 9; the hosts are 0 to 7)"
        );
        let member = JobRank { rank: Some(2), ranks: None };
        attendance.attached(&Hello { addr, host: None, process: 1, member });
        assert_eq!(why_nothing(&attendance, &totals, &none), None);
    }
}
