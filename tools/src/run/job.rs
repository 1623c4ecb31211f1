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
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGURG, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use squall_monitor::ProcessReport;

use super::preparation::Variables;
use super::standard_error::ReportCollector;

/// Time that a launcher has to end its ranks before it gets a stronger signal.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval at which the launcher's end is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A job that was started, and is running or has ended.
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
    /// Reports of the job's processes on their use of squall.
    pub(crate) reports: Vec<ProcessReport>,
}

struct State {
    pid: Pid,
    ended: AtomicBool,
    interrupted: AtomicBool,
    /// True if a signal asked for an end after the job had ended. This process then waits for
    /// nothing more.
    hurried: AtomicBool,
}

impl State {
    /// Ends the launcher with SIGTERM, and with SIGKILL if it does not end in time.
    fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.send(signal);
            if self.ends_in_time() {
                return;
            }
        }
    }

    /// Sends a signal to the launcher, unless it has ended.
    fn send(&self, signal: Signal) {
        if !self.ended.load(Ordering::SeqCst) {
            // The process may have ended meanwhile.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Waits for the end of the launcher. Returns false if it takes too long.
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

/// Signals that ask a job to end.
const ENDS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
/// Further signals that go to the job, which may have a use for them, such as a checkpoint before a batch
/// system ends it. All others are those of faults and of a process's own descriptors and children.
const NOTICES: [i32; 12] = [
    SIGUSR1, SIGUSR2, SIGQUIT, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO, SIGURG, SIGWINCH,
    SIGCONT, SIGTSTP,
];
/// Forwarded signals that a terminal sends to all processes in its foreground, the job among them.
const FROM_TERMINAL: [i32; 4] = [SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP];

/// Installs handlers of the signals that go to the job, except of those that are ignored, as under
/// nohup(1).
fn take_signals() -> io::Result<Signals> {
    let ignored = ignored_signals();
    let is_heeded = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    Signals::new(ENDS.into_iter().chain(NOTICES).filter(is_heeded).collect::<Vec<_>>())
}

/// Starts a thread that passes signals on to the job. MPICH's launcher asks for a second Ctrl-C, which
/// SIGTERM replaces after a while. Otherwise the job decides how long it takes to end: the second signal
/// that asks for an end becomes SIGTERM, and the third one SIGKILL.
fn forward_signals(mut signals: Signals, state: Arc<State>) {
    thread::spawn(move || {
        let mut requests = 0;
        for signal in signals.forever() {
            if !ENDS.contains(&signal) {
                forward_notice(&state, signal);
                continue;
            }
            requests += 1;
            if state.ended.load(Ordering::SeqCst) {
                state.hurried.store(true, Ordering::SeqCst);
            }
            state.interrupted.store(true, Ordering::SeqCst);
            match (requests, signal) {
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
}

/// Passes a signal on to the job that does not ask for its end.
fn forward_notice(state: &State, signal: i32) {
    let sent_by_terminal = FROM_TERMINAL.contains(&signal) && is_in_foreground();
    if let Some(signal) = Signal::from_named_raw(signal).filter(|_| !sent_by_terminal) {
        state.send(signal);
    }
    if signal == SIGTSTP {
        // The user's shell waits for this process to stop. It goes on at SIGCONT if this fails.
        let _ = emulate_default_handler(SIGTSTP);
    }
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
    /// Signals go to the job. The job gets SIGTERM if this process ends first, or the calling thread.
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
        squall_net::child::end_with_parent(&mut job);
        // The job may ask for a signal as soon as it runs.
        let signals = take_signals().map_err(|error| error.to_string())?;
        let (running, launcher) = UnixStream::pair().map_err(|error| error.to_string())?;
        let mut child =
            job.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let standard_error = child.stderr.take().ok_or("the job has no standard error")?;
        let collector = ReportCollector::start(standard_error, io::stderr(), launcher);
        let pid = Pid::from_child(&child);
        let (ended_flag, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        let hurried = AtomicBool::new(false);
        let state = Arc::new(State { pid, ended: ended_flag, interrupted, hurried });
        let shared = Arc::clone(&state);
        let waiter = thread::spawn(move || {
            let ended = child.wait();
            drop(running);
            shared.ended.store(true, Ordering::SeqCst);
            // The reader of `end_notice` may be gone, which is no error.
            let _ = (&end_notice).write(b".");
            ended
        });
        forward_signals(signals, Arc::clone(&state));
        Ok(Self { state, waiter, collector })
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
        let reports = self.collector.finish(|| self.state.hurried.load(Ordering::SeqCst));
        let interrupted = self.state.interrupted.load(Ordering::SeqCst);
        let status =
            ended.map_err(|error| format!("the end of the job could not be observed: {error}"))?;
        // Exit codes fit into a byte, and so does 128 plus a signal's number.
        let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(JobEnd { status: status.unwrap_or(1) as u8, interrupted, reports })
    }
}
