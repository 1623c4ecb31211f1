//! Checks whether libfabric finds the provider, by running libfabric's own `fi_info`.

use std::path::Path;
use std::process::{Command, Output};

use super::environment::{output, variable};
use super::finding::Finding;
use crate::provider::{self, OBJECT};

/// Checks FI_PROVIDER_PATH and FI_PROVIDER, and what libfabric does with them.
pub(super) fn check() -> Vec<Finding> {
    let path = variable(provider::PATH);
    let installed = if path.is_none() { provider::installed() } else { None };
    let installed = installed.map(|folder| folder.display().to_string());
    let mut findings = vec![load_path(path.as_deref(), installed.as_deref())];
    findings.extend(chosen(variable("FI_PROVIDER").as_deref()));
    findings.extend(unnamed(path.as_deref(), variable("FI_PROVIDER").as_deref()));
    findings.push(match fi_info(&["-p", "squall"], installed.as_deref()) {
        Some(output) => asked(&output),
        None => Finding::note(
            "libfabric cannot be queried: fi_info is not in PATH, or does not end",
            "apt install libfabric-bin, or dnf install libfabric",
        ),
    });
    findings
}

/// Checks the folder of the provider: the first one of FI_PROVIDER_PATH, or, if that is not set, the one that was built
/// or installed with this program, where `squall run` finds it.
fn load_path(path: Option<&str>, installed: Option<&str>) -> Finding {
    let Some(path) = path else {
        return match installed {
            Some(folder) => Finding::well(format!(
                "{OBJECT} is in {folder}, where `squall run` finds it; for jobs started without it: export \
                 FI_PROVIDER=squall FI_PROVIDER_PATH={folder}"
            )),
            None => Finding::note(
                "FI_PROVIDER_PATH is not set: libfabric searches its own directory alone",
                format!("export FI_PROVIDER_PATH=DIRECTORY   # that holds {OBJECT} alone"),
            ),
        };
    };
    let found = path.split(':').find(|folder| Path::new(folder).join(OBJECT).exists());
    match found {
        Some(folder) => Finding::well(format!("{OBJECT} is in {folder}")),
        None => Finding::fault(
            format!("libfabric will not find {OBJECT}: it is not in FI_PROVIDER_PATH={path}"),
            format!("build it (ci/build) and name the directory that holds {OBJECT} alone"),
        ),
    }
}

fn chosen(provider: Option<&str>) -> Option<Finding> {
    let provider = provider?;
    let names = provider.split([',', ';']).any(|name| name == "squall");
    let excluded = provider.starts_with('^') && names;
    (!names || excluded).then(|| {
        Finding::fault(
            format!("libfabric will not offer squall: FI_PROVIDER={provider} leaves it out"),
            "export FI_PROVIDER=squall",
        )
    })
}

/// Returns a finding if FI_PROVIDER_PATH is set without FI_PROVIDER: libfabric then offers the
/// providers that it finds there to every program.
fn unnamed(path: Option<&str>, provider: Option<&str>) -> Option<Finding> {
    (path.is_some() && provider.is_none()).then(|| {
        Finding::note(
            "FI_PROVIDER_PATH is set and FI_PROVIDER is not: jobs of Open MPI 5, and of MPICH (ch4:ofi) where it rates no \
             other provider as high, move to squall although nothing names it",
            "export FI_PROVIDER=squall, or unset FI_PROVIDER_PATH",
        )
    })
}

/// Runs `fi_info`, with the provider of `folder` if one is given.
fn fi_info(words: &[&str], folder: Option<&str>) -> Option<Output> {
    let mut command = Command::new("fi_info");
    if let Some(folder) = folder {
        command.env(provider::PATH, folder);
    }
    // At this level, libfabric prints why it does not load or offer the provider.
    output(command.args(words).env("FI_LOG_LEVEL", "warn"))
}

fn asked(output: &Output) -> Finding {
    let said = String::from_utf8_lossy(&output.stdout);
    let version = fi_info(&["--version"], None);
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.as_deref().and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("libfabric: ")).map(str::to_owned)
    });
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    if output.status.success() && said.contains("provider: squall") {
        return Finding::well(format!(
            "libfabric {version} offers squall (an MPI may bring its own libfabric)"
        ));
    }
    let warnings = String::from_utf8_lossy(&output.stderr);
    let last =
        warnings.lines().rfind(|line| line.contains("squall")).unwrap_or("it prints no reason");
    Finding::fault(
        format!("libfabric {version} does not offer squall: {}", last.trim()),
        "run FI_LOG_LEVEL=info fi_info -p squall, which prints every step",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Level;

    #[test]
    fn a_choice_without_squall_is_a_fault() {
        for good in ["squall", "tcp,squall"] {
            assert_eq!(chosen(Some(good)), None);
        }
        assert_eq!(chosen(None), None);
        for bad in ["tcp", "^squall", "efa;ofi_rxd"] {
            assert_eq!(chosen(Some(bad)).map(|finding| finding.level), Some(Level::Fault), "{bad}");
        }
    }

    #[test]
    fn provider_that_squall_run_finds_is_found() {
        let level = |path, installed| load_path(path, installed).level;
        assert_eq!(level(None, Some("/opt/squall")), Level::Well);
        assert_eq!(level(None, None), Level::Note);
        assert_eq!(level(Some("/nowhere"), Some("/opt/squall")), Level::Fault);
        let said = load_path(None, Some("/opt/squall")).to_string();
        assert!(said.contains("FI_PROVIDER_PATH=/opt/squall"), "{said}");
    }

    #[test]
    fn a_provider_path_alone_is_noted() {
        let level = |path, provider| unnamed(path, provider).map(|finding| finding.level);
        assert_eq!(level(Some("/opt/squall"), None), Some(Level::Note));
        assert_eq!(level(Some("/opt/squall"), Some("squall")), None);
        assert_eq!(level(None, None), None);
    }

    #[test]
    fn a_path_without_the_library_is_a_fault() {
        assert_eq!(load_path(None, None).level, Level::Note);
        assert_eq!(load_path(Some("/nowhere:/tmp/neither"), None).level, Level::Fault);
    }
}
