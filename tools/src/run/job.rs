//! The process of a job: starts it, asks it to end, and waits for it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use squall_monitor::ProcessReport;

use super::preparation::Variables;
use super::standard_error::ReportCollector;

/// Time that a launcher may take to end its ranks.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the launcher's end is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
    ended: AtomicBool,
    interrupted: AtomicBool,
}

impl State {
    /// Ends the process with SIGTERM, and with SIGKILL if it does not end in time.
    fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.send(signal);
            if self.ends_in_time() {
                return;
            }
        }
    }

    /// Sends a signal to the process, unless it has ended.
    fn send(&self, signal: Signal) {
        if !self.ended.load(Ordering::SeqCst) {
            // The process may have ended meanwhile.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Waits for the end of the process. Returns false if it takes too long.
    fn ends_in_time(&self) -> bool {
        for _ in 0..PATIENCE.as_millis() / POLL_INTERVAL.as_millis() {
            if self.ended.load(Ordering::SeqCst) {
                return true;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.ended.load(Ordering::SeqCst)
    }
}

/// Starts a thread that passes SIGINT, SIGTERM and SIGHUP on to the job, unless they are ignored, as
/// under nohup(1). MPICH's launcher asks for a second Ctrl-C, which SIGTERM replaces after a while.
/// Otherwise the job decides how long it takes to end: the second signal becomes SIGTERM, and the
/// third one SIGKILL.
fn forward_signals(state: Arc<State>) -> io::Result<()> {
    let ignored = ignored_signals();
    let is_heeded = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    let heeded: Vec<i32> = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heeded).collect();
    let mut signals = Signals::new(heeded)?;
    thread::spawn(move || {
        for (count, signal) in (1..).zip(signals.forever()) {
            state.interrupted.store(true, Ordering::SeqCst);
            match (count, signal) {
                (1, SIGINT) => {
                    // A terminal has sent it to the job, too. A second one would make the job end at once.
                    if !is_in_foreground() {
                        state.send(Signal::INT);
                    }
                    let state = Arc::clone(&state);
                    thread::spawn(move || {
                        if !state.ends_in_time() {
                            state.send(Signal::TERM);
                        }
                    });
                }
                (1, SIGHUP) => state.send(Signal::HUP),
                (1 | 2, _) => state.send(Signal::TERM),
                _ => state.send(Signal::KILL),
            }
        }
    });
    Ok(())
}

/// Returns the mask of the signals that this process ignores, which it inherited; 0 if unknown.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns whether this process is in the foreground of a terminal.
fn is_in_foreground() -> bool {
    let group = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    group == Some(getpgrp())
}

impl Job {
    /// Starts a job with `variables` added to its environment. The job's standard error is copied to
    /// ours, without the reports of its processes. When the job ends, a byte is written to `end_notice`.
    /// Signals that ask for an end go to the job.
    ///
    /// # Errors
    /// The command cannot be run, or no signal handler can be installed.
    pub(crate) fn start(
        command: &[OsString],
        variables: &Variables,
        end_notice: UnixStream,
    ) -> Result<Self, String> {
        let mut words = command.iter();
        let program = words.next().ok_or_else(|| "a command is expected".to_owned())?;
        let mut job = Command::new(program);
        job.args(words).envs(variables).stderr(Stdio::piped());
        let mut child = job.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let standard_error = child.stderr.take().ok_or("the job has no standard error")?;
        let collector = ReportCollector::start(standard_error, io::stderr());
        let pid = Pid::from_child(&child);
        let (ended_flag, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        let state = Arc::new(State { pid, ended: ended_flag, interrupted });
        let shared = Arc::clone(&state);
        let waiter = thread::spawn(move || {
            let ended = child.wait();
            shared.ended.store(true, Ordering::SeqCst);
            // The reader of `end_notice` may be gone, which is no error.
            let _ = (&end_notice).write(b".");
            ended
        });
        let handled = forward_signals(Arc::clone(&state));
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
        let ended = self.waiter.join().map_err(|_| {
            "the end of the job could not be observed: its thread panicked".to_owned()
        })?;
        let reports = self.collector.finish();
        let interrupted = self.state.interrupted.load(Ordering::SeqCst);
        let status =
            ended.map_err(|error| format!("the end of the job could not be observed: {error}"))?;
        // Exit codes fit into a byte, and so does 128 plus a signal's number.
        let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(JobEnd { status: status.unwrap_or(1) as u8, interrupted, reports })
    }
}
