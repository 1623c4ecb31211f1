//! Variables as a job started from here would have them, and programs that it would start.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long a program may take to say its version or its list.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A variable of the environment; none when it is empty.
#[allow(clippy::disallowed_methods)] // the environment is what is examined
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The variables whose names begin with this, and are not empty.
pub(crate) fn variables_of(family: &str) -> Vec<(String, String)> {
    let of = |(name, value): &(String, String)| name.starts_with(family) && !value.is_empty();
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).filter(of).collect()
}

/// What a program prints; `None` for one that is not there or does not end soon, which is ended then.
pub(crate) fn output(command: &mut Command) -> Option<Output> {
    let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().ok()?;
    for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
        if child.try_wait().ok()?.is_some() {
            return child.wait_with_output().ok();
        }
        std::thread::sleep(LOOK);
    }
    // It is a child of ours, and may have ended by itself meanwhile.
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
