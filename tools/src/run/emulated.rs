//! The job on an emulator of its own: `squall run --on`.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf, absolute};

use clap::Args;

use super::job::{Job, JobEnd};
use super::placement::PlacementArgs;
use super::preparation::{PreparedJob, Variables, prepare};
use super::print_line;
use super::real_time_programs::check_programs;
use super::record::{Record, is_place};
use super::switches::Switches;
use super::virtual_time::{VirtualTimeArgs, describe, preload};
use crate::doctor::environment::{variable, variables_of};
use crate::emulate::cli::{EmulatorArgs, about, raise_descriptor_limit};
use crate::emulate::join::check_hosts;
use crate::provider;
use squall_base::Span;
use squall_emulator::{
    Attendance, MOST_WAIT_PERCENT, ProcessorWait, ProcessorWaitReport, Relay, RelayConfig,
    Timeline, Totals,
};
use squall_netsim::output::{Origin, Provenance};
use squall_netsim::settings::Settings;

/// The emulated network of a job, and what is kept of it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "An emulated network")]
pub(crate) struct EmulatedArgs {
    /// Run the job over an emulated network of this topology: rank i is host i unless --hosts is given. htsim's `.topo` or a
    /// graph; or leaf-spine:LEAVESxSPINESxHOSTS (hosts of a leaf), fat-tree:HOSTS:OVERSUBSCRIPTION, star:HOSTS, dumbbell:HOSTS,
    /// with keys as plans have them behind, `,key=value`; or one of a paper: fat-320, dart-64, dart-1024.
    #[arg(long, value_name = "TOPOLOGY")]
    pub on: Option<String>,
    /// Parameters of the emulator.
    #[command(flatten)]
    pub emulator: EmulatorArgs,
    /// Changes of links and switches, a line each: `200ms fail-link leaf0-spine1`. Times count from the first packet.
    #[arg(long, value_name = "FILE", requires = "on")]
    pub timeline: Option<PathBuf>,
    /// Keep queues, links, flows and messages over time in this folder, with a report; `squall report` and `squall sim --trace`
    /// read it.
    #[arg(long, value_name = "DIR", requires = "on")]
    pub record: Option<PathBuf>,
    /// Write a report, an HTML page.
    #[arg(long, value_name = "FILE", requires = "on")]
    pub report: Option<PathBuf>,
    /// Placement of the ranks on the hosts.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Options of virtual time.
    #[command(flatten)]
    pub virtual_time: VirtualTimeArgs,
    /// The emulator's socket. Default: a new one in a temporary folder.
    #[arg(long, value_name = "PATH", requires = "on")]
    pub socket: Option<PathBuf>,
}

/// The verdict on a job that has ended on an emulator.
pub(super) struct EmulatedEnd {
    pub(super) job: JobEnd,
    /// Reason why the job's result does not depend on the network; `None` if it does.
    pub(super) nothing: Option<String>,
    /// Reason why the job's times are not valid; `None` if they are.
    pub(super) invalid: Option<String>,
}

/// Runs the emulator with the topology `on`, and the job on it.
///
/// # Errors
/// The emulator cannot be opened or fails, or the job cannot be started.
pub(super) fn run(
    on: &str,
    args: &EmulatedArgs,
    words: &[OsString],
    switches: &Switches,
    quiet: bool,
    origin: &Origin,
) -> Result<EmulatedEnd, String> {
    let emulator = &args.emulator;
    let timeline = match &args.timeline {
        Some(file) => Timeline::read(file, &emulator.topology(on)?).map_err(|e| e.to_string())?,
        None => Timeline::default(),
    };
    let folder = Folder::new().map_err(|e| format!("no folder for the emulator's socket: {e}"))?;
    let socket = match &args.socket {
        // Ranks may have other working directories.
        Some(path) => absolute(path).map_err(|e| format!("--socket {}: {e}", path.display()))?,
        None => folder.0.join("emulator"),
    };
    let virtual_time = args.virtual_time.config()?;
    let in_virtual_time = virtual_time.is_some();
    let mut config = emulator.config(on, socket.clone(), virtual_time)?;
    if in_virtual_time && emulator.host_delay.is_none() {
        config.host_delay = args.placement.wait_in_card(&config.topology);
    }
    check_hosts(args.placement.hosts.as_ref(), config.topology.hosts)?;
    let (inner_path, places) = (args.placement.inner_path(), args.placement.places());
    let mut relay = Relay::open(RelayConfig { inner_path, places, ..config })
        .map_err(|error| error.to_string())?;
    let mut record = Record::prepare(args.record.as_deref(), args.report.as_deref())?;
    relay.serve_job(timeline, record.is_wanted());

    let clock = if in_virtual_time { ",virtual" } else { "" };
    let place = format!("{}{clock},host={}", socket.display(), args.placement.place());
    let mut emulated = emulator_variables(place, record.trace().as_deref())?;
    if in_virtual_time {
        check_programs(words)?;
        preload(&mut emulated, &provider::search_path()?)?;
    }
    let PreparedJob { command, variables } = prepare(words, true, switches, emulated)?;
    let command = command.as_slice();
    if !quiet {
        print_line(format_args!("{}; {}", about(&relay), args.placement.describe()));
    }
    let (stop, end_notice) = UnixStream::pair().map_err(|e| e.to_string())?;
    let job = Job::start(command, &variables, end_notice)?;
    raise_descriptor_limit();
    record.keep();
    let served = relay.run(&stop, &mut |line| {
        if !quiet {
            print_line(line);
        }
    });
    // If the emulator stopped on the command `down` or on an error, the job cannot go on.
    job.end();
    let ended = job.wait()?;
    if let Err(error) = served {
        print_line(format_args!("the emulator failed: {error}"));
    }

    if !quiet {
        print_line(format_args!("{}", crossed(&relay)));
        if let Some(report) = relay.virtual_time_report() {
            print_line(format_args!("{}", describe(&report)));
        }
    }
    let written = record.write(&relay, command, provenance(origin, on, args, &variables, &relay));
    if let Err(why) = written {
        // The job has its result all the same.
        print_line(format_args!("the record is incomplete: {why}"));
    }
    let nothing = if ended.interrupted {
        None
    } else {
        why_nothing(relay.attendance(), &relay.status().totals, &variables)
    };
    let invalid = why_invalid(relay.status().late_seconds, &relay.processor_waits());
    if !quiet && let Some(longest) = relay.processor_waits().longest {
        print_line(format_args!("{}", describe_wait(longest)));
    }
    Ok(EmulatedEnd { job: ended, nothing, invalid })
}

/// Returns the variables that attach the endpoints of a job to an emulator. `place` is the value of
/// FI_SQUALL_EMULATOR.
///
/// # Errors
/// The environment contradicts one of them.
pub(crate) fn emulator_variables(place: String, trace: Option<&Path>) -> Result<Variables, String> {
    if let Some(shm) = variable("FI_SQUALL_SHM").filter(|shm| shm != "no") {
        return Err(format!(
            "FI_SQUALL_SHM={shm} lets messages bypass the emulated network: unset FI_SQUALL_SHM"
        ));
    }
    let mut variables = Variables::new();
    variables.insert("FI_SQUALL_EMULATOR".to_owned(), place);
    variables.insert("FI_SQUALL_SHM".to_owned(), "no".to_owned());
    if let Some(trace) = trace {
        variables.insert("FI_SQUALL_TRACE".to_owned(), trace.display().to_string());
    }
    Ok(variables)
}

/// Returns the provenance of a record: the options, and the provider's variables that the job had.
fn provenance(
    origin: &Origin,
    on: &str,
    args: &EmulatedArgs,
    variables: &Variables,
    relay: &Relay,
) -> Provenance {
    let mut settings = args.emulator.settings(on, args.virtual_time.enabled);
    args.placement.add_settings(&mut settings);
    if args.virtual_time.enabled && args.emulator.host_delay.is_none() {
        let wait = args.placement.wait_in_card(relay.topology());
        settings.set("emulator.host_delay_us", wait.0 as f64 / 1e3);
    }
    args.virtual_time.add_settings(&mut settings);
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
        "{} packets of {} endpoints ({ranks} ranks) entered, {} arrived; {} marked, {} trimmed, {lost} lost",
        t.entered,
        relay.attendance().endpoints(),
        t.delivered,
        t.marked,
        t.trimmed,
    )
}

/// Returns why the times of a job are not valid if its emulator was behind real time in `late_seconds` seconds, or its
/// ranks waited for a processor.
fn why_invalid(late_seconds: u64, waits: &ProcessorWaitReport) -> Option<String> {
    if late_seconds > 0 {
        return Some(format!(
            "results are not valid: the emulator was behind real time in {late_seconds} s; use a smaller --rate-scale, \
             or --virtual"
        ));
    }
    let longest = waits.longest.filter(|_| waits.excessive > 0)?;
    Some(format!(
        "results are not valid: {} of the ranks waited for a processor for more than {MOST_WAIT_PERCENT} % of their time, rank {} \
         for {} %; start fewer ranks, stop other programs, or use --virtual",
        waits.excessive,
        longest.rank,
        longest.percent()
    ))
}

/// Describes the longest wait of a rank for a processor in one line.
fn describe_wait(ProcessorWait { rank, waited, attached }: ProcessorWait) -> String {
    let seconds = |span: Span| span.0 as f64 / 1e9;
    format!(
        "longest wait for a processor: rank {rank}, {:.3} s of {:.3} s",
        seconds(waited),
        seconds(attached)
    )
}

/// Returns the reason why a finished job did not use the emulator, or not with all ranks; `None` if
/// all packets of all ranks may have crossed it.
fn why_nothing(attendance: &Attendance, totals: &Totals, variables: &Variables) -> Option<String> {
    let refused = attendance.refusals().join("; ");
    if attendance.endpoints() == 0 && !refused.is_empty() {
        return Some(format!("no endpoint of the job could attach to the emulator: {refused}"));
    }
    if attendance.endpoints() == 0 {
        return Some(no_endpoint(variables));
    }
    if totals.entered == 0 && !refused.is_empty() {
        let endpoints = attendance.endpoints();
        return Some(format!(
            "no packet crossed the emulator: {endpoints} endpoints of the job attached, but others were refused: {refused}"
        ));
    }
    if totals.entered == 0 {
        let endpoints = attendance.endpoints();
        return Some(format!(
            "the job ended and no packet crossed the emulator: its {endpoints} endpoints attached, but they sent \
             nothing, or used another network"
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
        "only {came} of {expected} ranks attached to the emulator; not attached: {}{}{why}",
        names.join(", "),
        if missing.len() > names.len() { ", .." } else { "" }
    ))
}

/// Returns the message that no process of the job attached, with what to check.
pub(crate) fn no_endpoint(variables: &Variables) -> String {
    let path = variables.get("FI_PROVIDER_PATH").cloned().or_else(|| variable("FI_PROVIDER_PATH"));
    let path = path.map_or_else(
        || format!("FI_PROVIDER_PATH is not set; it names the folder of {}", provider::OBJECT),
        |path| {
            format!(
                "FI_PROVIDER_PATH={path}; `squall doctor` checks whether {} loads from there",
                provider::OBJECT
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
        // Containers that share the folder have processes of one number.
        let random = getrandom::u64().map_err(std::io::Error::other)?;
        let path = std::env::temp_dir().join(format!("squall-run-{random:016x}"));
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
    fn times_of_an_emulator_that_fell_behind_are_not_valid() {
        let none = ProcessorWaitReport::default();
        assert_eq!(why_invalid(0, &none), None);
        let why = why_invalid(3, &none).unwrap_or_default();
        assert!(why.starts_with("results are not valid: the emulator was behind real time in 3 s"));
    }

    #[test]
    fn times_of_ranks_without_a_processor_are_not_valid() {
        let longest = ProcessorWait { rank: 5, waited: Span::millis(600), attached: Span::secs(1) };
        assert_eq!(
            describe_wait(longest),
            "longest wait for a processor: rank 5, 0.600 s of 1.000 s"
        );
        let few = ProcessorWaitReport { excessive: 0, longest: Some(longest) };
        assert_eq!(why_invalid(0, &few), None);
        let why = why_invalid(0, &ProcessorWaitReport { excessive: 2, ..few }).unwrap_or_default();
        let expected = "results are not valid: 2 of the ranks waited for a processor for more than 50 % of their time, rank 5 for 60 %; ";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn a_job_that_did_not_use_the_emulator_is_recognised() {
        let none = Variables::new();
        let (mut attendance, mut totals) = (Attendance::default(), Totals::default());
        let why = |attendance: &Attendance, totals: &Totals| {
            why_nothing(attendance, totals, &none).unwrap_or_default()
        };
        assert!(why(&attendance, &totals).contains("did not use squall"));
        attendance.refused("rank 9 wants to be host 9; the hosts are 0 to 7");
        assert!(why(&attendance, &totals).contains("rank 9 wants"));
        let addr = "127.0.0.1:1".parse().expect("literal");
        for rank in 0..2 {
            let job_rank = JobRank { rank: Some(rank), ranks: Some(2 + rank) };
            attendance.attached(&Hello { addr, host: None, process: 1, job_rank });
        }
        assert_eq!(
            why(&attendance, &totals),
            "no packet crossed the emulator: 2 endpoints of the job attached, but others were refused: rank 9 wants to be host 9; \
             the hosts are 0 to 7"
        );
        let mut all_came = Attendance::default();
        all_came.attached(&Hello { addr, host: None, process: 1, job_rank: JobRank::default() });
        assert!(why(&all_came, &totals).contains("used another network"));
        totals.entered = 1;
        assert_eq!(
            why(&attendance, &totals),
            "only 2 of 3 ranks attached to the emulator; not attached: 2 (rank 9 wants to be host 9; the hosts are 0 to 7)"
        );
        let job_rank = JobRank { rank: Some(2), ranks: None };
        attendance.attached(&Hello { addr, host: None, process: 1, job_rank });
        assert_eq!(why_nothing(&attendance, &totals, &none), None);
    }
}
