//! The process of a job: starts it, asks it to end, and waits for it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use squall_monitor::ProcessReport;

use super::preparation::Variables;
use super::standard_error::ReportCollector;

/// Variable that makes each process report its use of squall.
const REPORT: &str = "FI_SQUALL_REPORT";
/// Time that a launcher may take to end its ranks.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the launcher's end is polled.
const LOOK: Duration = Duration::from_millis(20);

/// A job that was started.
pub(crate) struct Job {
    state: Arc<State>,
    waiter: JoinHandle<io::Result<ExitStatus>>,
    collector: ReportCollector,
}

/// The result of a job that ended.
pub(crate) struct JobEnd {
    /// Exit status of the job; 128 plus the signal's number if a signal ended it.
    pub(crate) status: u8,
    /// True if the user interrupted the job.
    pub(crate) interrupted: bool,
    /// Reports of the job's processes.
    pub(crate) reports: Vec<ProcessReport>,
}

struct State {
    pid: Pid,
    over: AtomicBool,
    interrupted: AtomicBool,
}

impl State {
    /// Ends the process with SIGTERM, and with SIGKILL if it does not end in time.
    fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            // The process may have ended meanwhile.
            let _ = kill_process(self.pid, signal);
            for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
                if self.over.load(Ordering::SeqCst) {
                    return;
                }
                thread::sleep(LOOK);
            }
        }
    }
}

impl Job {
    /// Starts a job with `variables` added to its environment. The job's standard error is copied to
    /// ours, without the reports of its processes. When the job ends, a byte is written to `over`.
    /// Ctrl-C ends the job.
    ///
    /// # Errors
    /// The command cannot be run, or no signal handler can be installed.
    pub(crate) fn start(
        command: &[OsString],
        variables: &Variables,
        over: UnixStream,
    ) -> Result<Self, String> {
        let mut words = command.iter();
        let program = words.next().ok_or_else(|| "a command is expected".to_owned())?;
        let mut job = Command::new(program);
        job.args(words).envs(variables).env(REPORT, "yes").stderr(Stdio::piped());
        let mut child = job.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let standard_error = child.stderr.take().ok_or("the job has no standard error")?;
        let collector = ReportCollector::start(standard_error, io::stderr());
        let pid = Pid::from_child(&child);
        let (over_flag, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        let state = Arc::new(State { pid, over: over_flag, interrupted });
        let of_waiter = Arc::clone(&state);
        let waiter = thread::spawn(move || {
            let ended = child.wait();
            of_waiter.over.store(true, Ordering::SeqCst);
            // The reader of `over` may be gone, which is no error.
            let _ = (&over).write(b".");
            ended
        });
        let of_handler = Arc::clone(&state);
        let handled = ctrlc::set_handler(move || {
            of_handler.interrupted.store(true, Ordering::SeqCst);
            of_handler.end();
        });
        let job = Self { state, waiter, collector };
        handled.map_err(|error| {
            job.end();
            error.to_string()
        })?;
        Ok(job)
    }

    /// Ends the job, unless it has ended.
    pub(crate) fn end(&self) {
        self.state.end();
    }

    /// Waits for the end of the job.
    ///
    /// # Errors
    /// The end of the job cannot be observed.
    pub(crate) fn wait(self) -> Result<JobEnd, String> {
        let ended = self.waiter.join().map_err(|_| "the job's end was not seen".to_owned())?;
        let reports = self.collector.finish();
        let interrupted = self.state.interrupted.load(Ordering::SeqCst);
        let status = ended.map_err(|error| format!("the job's end was not seen: {error}"))?;
        // Exit codes fit into a byte, and so does 128 plus a signal's number.
        let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(JobEnd { status: status.unwrap_or(1) as u8, interrupted, reports })
    }
}
