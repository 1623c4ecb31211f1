//! Finds the provider that was installed with this program, and checks that it can be loaded.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::doctor::environment::{output, variable};

/// File name of the provider, which libfabric loads.
pub(crate) const OBJECT: &str = "libsquall-fi.so";
/// Variable with the folders in which libfabric looks for providers.
pub(crate) const PATH: &str = "FI_PROVIDER_PATH";
/// A program that does nothing, in which the provider is loaded to see whether it can be.
const IDLE_PROGRAM: &str = "/bin/true";

/// Returns the value of FI_PROVIDER_PATH for the job: the user's, or the folder of the provider that
/// was built or installed with this program.
///
/// # Errors
/// There is no provider, or the dynamic loader refuses it.
pub(crate) fn search_path() -> Result<String, String> {
    let (path, file) = match variable(PATH) {
        Some(path) => {
            let files = path.split(':').map(|folder| Path::new(folder).join(OBJECT));
            let file = files.into_iter().find(|file| file.is_file()).ok_or_else(|| {
                format!("{PATH}={path} has no {OBJECT}: unset it, or name the folder that holds {OBJECT} alone")
            })?;
            (path, file)
        }
        None => {
            let folder = installed().ok_or_else(|| {
                format!("{OBJECT} is not installed beside this program: build it (ci/build) and set {PATH} to its folder")
            })?;
            (folder.display().to_string(), folder.join(OBJECT))
        }
    };
    check_loading(&file)?;
    Ok(path)
}

/// Returns the folder of the provider that was built or installed with this program, if it exists.
pub(crate) fn installed() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let beside = program.parent()?;
    // A build, the wheel and the .deb, a prefix with lib64, and the .rpm, which has the provider in
    // libfabric's own directory alone.
    ["../provider", "../lib/squall", "../lib64/squall", "../lib64/libfabric"]
        .map(|folder| beside.join(folder))
        .into_iter()
        .find(|folder| folder.join(OBJECT).is_file())
        .and_then(|folder| folder.canonicalize().ok())
}

/// Loads the provider into a program that does nothing. The dynamic loader refuses one that was built
/// for another machine or a newer C library, and libfabric would only log that.
fn check_loading(file: &Path) -> Result<(), String> {
    // LD_PRELOAD is a list with these separators.
    if file.to_string_lossy().contains([' ', ':']) {
        return Ok(());
    }
    let mut idle = Command::new(IDLE_PROGRAM);
    let Some(output) = output(idle.env("LD_PRELOAD", file).env("LC_ALL", "C")) else {
        return Ok(());
    };
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && !message.contains("ld.so") {
        return Ok(());
    }
    let why = message.lines().next().unwrap_or("the dynamic loader refuses it").trim();
    Err(format!(
        "{} cannot be loaded on this machine: {why}; install a build for this system or build it here (ci/build)",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_cannot_be_loaded_is_refused() {
        let file = std::env::temp_dir().join(format!("squall-no-object-{}.so", std::process::id()));
        std::fs::write(&file, "not an object").expect("room");
        let refused = check_loading(&file).expect_err("text is no object");
        std::fs::remove_file(&file).expect("ours");
        assert!(refused.contains("cannot be loaded on this machine: "), "{refused}");
        assert!(refused.contains("; install a build for this system"), "{refused}");
    }
}
