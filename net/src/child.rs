//! Starting of child processes that end when their parent ends.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes Linux send SIGTERM to the process of `command` when the thread that starts it ends in any way. Start the
/// process from a thread that lives as long as its own process should. Programs that change their user at exec lose the
/// signal.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask_for_signal = move || {
        // SAFETY: prctl(2) with this option reads its second argument alone, a signal's number. It only sets a field of
        // the calling thread.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        // A parent that ended before the call above sends no signal.
        if std::os::unix::process::parent_id() == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure calls prctl(2) and getppid(2) alone, which are async-signal-safe, and its
    // errors are numbers, so that it allocates nothing and takes no lock that another thread held at the fork.
    unsafe { command.pre_exec(ask_for_signal) };
}
