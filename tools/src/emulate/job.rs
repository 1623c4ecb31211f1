//! The process of a job: started, told to end, waited for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::run::RunFailure;

/// What a shell says of a command that cannot be run, and of one that is not there.
const NOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;
/// How long a launcher may take to end its ranks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// A job that runs.
pub(super) struct Job {
    state: Arc<State>,
    waiter: JoinHandle<io::Result<ExitStatus>>,
}

/// End of a job.
pub(super) struct JobEnd {
    /// Its exit status; 128 and the signal's number for one that a signal ended.
    pub(super) status: u8,
    /// Somebody interrupted it.
    pub(super) interrupted: bool,
}

struct State {
    pid: Pid,
    over: AtomicBool,
    interrupted: AtomicBool,
}

impl State {
    /// Asks it to end, and ends it when it does not.
    fn end(&self) {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            // It may have ended meanwhile.
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
    /// Starts it with these variables besides its own. When it is over, `over` gets a byte; Ctrl-C ends it.
    ///
    /// # Errors
    /// It cannot be run, or signals cannot be had.
    pub(super) fn start(
        command: &[OsString],
        variables: &BTreeMap<String, String>,
        over: UnixStream,
    ) -> Result<Self, RunFailure> {
        let mut words = command.iter();
        let program = words.next().ok_or_else(|| "a command is expected".to_owned())?;
        let spawned = Command::new(program).args(words).envs(variables).spawn();
        let mut child = spawned.map_err(|error| RunFailure {
            status: if error.kind() == ErrorKind::NotFound { NOT_THERE } else { NOT_RUN },
            why: format!("{}: {error}", program.display()),
        })?;
        let pid = Pid::from_child(&child);
        let (over_flag, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        let state = Arc::new(State { pid, over: over_flag, interrupted });
        let of_waiter = Arc::clone(&state);
        let waiter = thread::spawn(move || {
            let ended = child.wait();
            of_waiter.over.store(true, Ordering::SeqCst);
            // Who is not there any more needs no word.
            let _ = (&over).write(b".");
            ended
        });
        let of_handler = Arc::clone(&state);
        let handled = ctrlc::set_handler(move || {
            of_handler.interrupted.store(true, Ordering::SeqCst);
            of_handler.end();
        });
        let job = Self { state, waiter };
        handled.map_err(|error| {
            job.end();
            error.to_string()
        })?;
        Ok(job)
    }

    /// Ends it, if it is not over.
    pub(super) fn end(&self) {
        self.state.end();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn wait(self) -> Result<JobEnd, RunFailure> {
        let ended = self.waiter.join().map_err(|_| "the job's end was not seen".to_owned())?;
        let interrupted = self.state.interrupted.load(Ordering::SeqCst);
        let status = ended.map_err(|error| format!("the job's end was not seen: {error}"))?;
        // Both are bytes.
        let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(JobEnd { status: status.unwrap_or(1) as u8, interrupted })
    }
}
