//! Reads environment variables as a job started from here would have them, and runs programs that
//! it would start.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Longest time that a program may take to print its version or list.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the end of a program that was started is polled.
const LOOK: Duration = Duration::from_millis(10);

/// Returns a variable of the environment; `None` if it is unset or empty.
#[allow(clippy::disallowed_methods)] // the environment is what is examined
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the variables whose names begin with `family` and whose values are not empty.
pub(crate) fn variables_of(family: &str) -> Vec<(String, String)> {
    let of = |(name, value): &(String, String)| name.starts_with(family) && !value.is_empty();
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).filter(of).collect()
}

/// Returns the output of a program. Returns `None` if it cannot be started, or if it runs for too
/// long and is killed.
pub(crate) fn output(command: &mut Command) -> Option<Output> {
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().ok()?;
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if child.try_wait().ok()?.is_some() {
            return child.wait_with_output().ok();
        }
        std::thread::sleep(LOOK);
    }
    // The child may have ended by itself meanwhile.
    let _ = child.kill().and_then(|()| child.wait());
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_heard_and_those_that_are_not_there_are_none() {
        let said = output(Command::new("sh").args(["-c", "echo 4.1; echo no >&2; exit 3"]));
        let said = said.expect("a shell");
        assert_eq!((said.stdout.as_slice(), said.status.code()), (&b"4.1\n"[..], Some(3)));
        assert!(output(&mut Command::new("/no/such/program")).is_none());
    }
}
