//! The `log` facade behind libfabric's log, so that FI_LOG_LEVEL, FI_LOG_PROV and FI_LOG_SUBSYS work.
//!
//! libfabric prints nothing unless it is asked to, and MPIs make one word of every refusal. What a user has set and
//! cannot be had is therefore said on standard error, too, once in a process, where the user has chosen squall
//! ([`USER`]).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::ffi;
use crate::host::host;
use crate::provider;

/// Target of records about settings of the user, or features that this host lacks, because of which
/// squall does not start or does not do what the user set.
pub(crate) const USER: &str = "squall_fi::user";
/// Most different ones that a process prints.
const MOST_PRINTED: usize = 64;

struct HostLogger;

static LOGGER: HostLogger = HostLogger;

/// Installs the logger and keeps out what the host would not print.
pub(crate) fn install() {
    // A second installation (another libfabric in this process) finds ours in place.
    let _ = log::set_logger(&LOGGER);
    let max = if enabled(ffi::FI_LOG_DEBUG, ffi::FI_LOG_CORE) {
        LevelFilter::Trace
    } else if enabled(ffi::FI_LOG_INFO, ffi::FI_LOG_CORE) {
        LevelFilter::Info
    } else {
        LevelFilter::Warn
    };
    log::set_max_level(max);
}

fn enabled(level: ffi::fi_log_level, subsystem: ffi::fi_log_subsys) -> bool {
    // SAFETY: `fi_log_enabled` of the libfabric that loaded us (`host.rs` found it, and says why the
    // signature is right); it takes the record that `fi_prov_ini` returned, a static, and two numbers of
    // its enums.
    host().log_enabled.is_some_and(|f| unsafe { f(provider(), level, subsystem) } != 0)
}

fn level(level: Level) -> ffi::fi_log_level {
    match level {
        Level::Error | Level::Warn => ffi::FI_LOG_WARN,
        Level::Info => ffi::FI_LOG_INFO,
        Level::Debug | Level::Trace => ffi::FI_LOG_DEBUG,
    }
}

/// The subsystem by the module that speaks.
fn subsystem(target: &str) -> ffi::fi_log_subsys {
    let module = target.strip_prefix("squall_fi::").unwrap_or(target);
    match module.split("::").next().unwrap_or("") {
        "fabric" | "eq" => ffi::FI_LOG_FABRIC,
        "domain" | "mr" => ffi::FI_LOG_DOMAIN,
        "av" => ffi::FI_LOG_AV,
        "cq" => ffi::FI_LOG_CQ,
        "cntr" => ffi::FI_LOG_CNTR,
        "ep" => ffi::FI_LOG_EP_CTRL,
        "progress" | "squall_net" => ffi::FI_LOG_EP_DATA,
        _ => ffi::FI_LOG_CORE,
    }
}

impl Log for HostLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        enabled(level(metadata.level()), subsystem(metadata.target()))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            if record.target() == USER && is_chosen() {
                print(&record.args().to_string());
            }
            return;
        }
        let Some(log) = host().log else { return };
        let text = record.args().to_string().replace('\0', "?");
        let place = record.module_path().unwrap_or("squall");
        let (Ok(text), Ok(place)) = (CString::new(text), CString::new(place)) else { return };
        let line = i32::try_from(record.line().unwrap_or(0)).unwrap_or(0);
        // SAFETY: `fi_log` of the libfabric that loaded us (`host.rs` found it, and says why the
        // signature is right). It takes the record that `fi_prov_ini` returned, a static, two numbers of
        // its enums, strings with terminators that outlive the call, and a format whose one `%s` is the
        // one argument after it.
        unsafe {
            log(
                provider(),
                level(record.level()),
                subsystem(record.target()),
                place.as_ptr(),
                line,
                c"%s\n".as_ptr(),
                text.as_ptr(),
            );
        }
    }

    fn flush(&self) {}
}

/// Prints, once in a process, that squall carries its messages although no variable names squall. libfabric offers
/// squall to every program that finds it in FI_PROVIDER_PATH. Programs that only list providers open no endpoint and
/// print nothing.
pub(crate) fn report_unnamed() {
    if is_unnamed(variables()) {
        print(
            "messages go through squall, which libfabric found in FI_PROVIDER_PATH, although FI_PROVIDER does not name it: \
             set FI_PROVIDER=squall to keep it so, or unset FI_PROVIDER_PATH to have the provider of before",
        );
    }
}

/// Returns whether FI_PROVIDER_PATH alone brought squall into this process.
fn is_unnamed(variables: impl Iterator<Item = (String, String)> + Clone) -> bool {
    let mut paths = variables.clone().filter(|(name, _)| name == "FI_PROVIDER_PATH");
    paths.any(|(_, path)| !path.is_empty()) && !chooses(variables)
}

/// Returns whether the user has chosen squall, by a variable that names providers or by one of squall's own variables.
fn is_chosen() -> bool {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    *CHOSEN.get_or_init(|| chooses(variables()))
}

/// Returns the variables of the environment.
fn variables() -> impl Iterator<Item = (String, String)> + Clone {
    let all: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        })
        .collect();
    all.into_iter()
}

/// Returns whether one of these variables shows that the user wants squall. MPIs have variables of their own that name
/// providers: `OMPI_MCA_mtl_ofi_provider_include`, `I_MPI_OFI_PROVIDER`, `MPIR_CVAR_OFI_USE_PROVIDER`.
fn chooses(mut variables: impl Iterator<Item = (String, String)>) -> bool {
    variables.any(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        let names_providers =
            lower.contains("provider") && lower != "fi_provider_path" && !lower.contains("exclude");
        // Names, or after ^ those that are not wanted; a layered one has its core behind a semicolon.
        let named = || value.split([',', ';']).any(|name| name.trim() == "squall");
        name.starts_with("FI_SQUALL_") || names_providers && !value.starts_with('^') && named()
    })
}

/// Prints a line, unless it was printed before.
fn print(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= MOST_PRINTED || !said.insert(text.to_owned()) {
        return;
    }
    // One write call, so that lines of several processes do not mix.
    let line = format!("squall: {text}\n");
    // SAFETY: write(2) reads `line.len()` bytes of `line`, a local variable. (Standard error may be closed, which is no
    // concern of ours.)
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_squall_or_sets_one_of_its_variables_has_chosen_it() {
        let chosen = |name: &str, value: &str| {
            chooses(
                [("HOME".to_owned(), "squall".to_owned()), (name.to_owned(), value.to_owned())]
                    .into_iter(),
            )
        };
        for value in ["squall", "tcp,squall", "shm;squall"] {
            assert!(chosen("FI_PROVIDER", value), "{value}");
        }
        for value in ["", "tcp", "^squall", "^tcp,squall", "squall2"] {
            assert!(!chosen("FI_PROVIDER", value), "{value}");
        }
        assert!(chosen("FI_SQUALL_IFAC", "eth0") && !chosen("FI_TCP_IFACE", "eth0"));
        assert!(chosen("OMPI_MCA_mtl_ofi_provider_include", "squall"));
        assert!(chosen("I_MPI_OFI_PROVIDER", "squall"));
        assert!(!chosen("OMPI_MCA_mtl_ofi_provider_exclude", "shm,squall"));
        assert!(!chosen("FI_PROVIDER_PATH", "squall"), "a directory of that name");
    }

    #[test]
    fn a_provider_path_alone_does_not_choose_squall() {
        let unnamed = |all: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            is_unnamed(all.iter().map(own))
        };
        let path = ("FI_PROVIDER_PATH", "/opt/squall");
        assert!(unnamed(&[("HOME", "/root"), path]) && unnamed(&[path, ("FI_PROVIDER", "^tcp")]));
        assert!(!unnamed(&[path, ("FI_PROVIDER", "squall")]));
        assert!(!unnamed(&[path, ("FI_SQUALL_IFACE", "eth0")]));
        assert!(!unnamed(&[("FI_PROVIDER_PATH", "")]) && !unnamed(&[("HOME", "/root")]));
    }
}
