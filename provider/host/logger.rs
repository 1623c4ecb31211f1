//! The `log` facade behind libfabric's log, so that FI_LOG_LEVEL, FI_LOG_PROV and FI_LOG_SUBSYS work.
//!
//! libfabric prints nothing unless it is asked to, and MPIs make one word of every refusal. What a user has set and
//! cannot be had is therefore said on standard error, too, once in a process, where the user has chosen squall
//! ([`USER`]).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::abi::ffi;
use crate::host::activation::is_chosen;
use crate::host::libfabric::host;
use crate::host::standard_error;
use crate::provider;

/// Log target for warnings to the user about settings that cannot be honoured, or features that this host lacks. They
/// are also printed on standard error.
pub(crate) const USER: &str = "squall_fi::user";
/// Largest number of different messages that a process prints to standard error.
const MOST_PRINTED: usize = 64;

struct HostLogger;

static LOGGER: HostLogger = HostLogger;

/// Installs the logger, which passes on only the levels that libfabric prints.
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
    // SAFETY: `fi_log_enabled` of the libfabric that loaded us (`libfabric.rs` found it, and says why the
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

/// Returns the logging subsystem of libfabric for the module that logs.
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
        // SAFETY: `fi_log` of the libfabric that loaded us (`libfabric.rs` found it, and says why the
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

/// Prints a line to standard error, unless the process has printed it before.
pub(crate) fn print(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= MOST_PRINTED || !said.insert(text.to_owned()) {
        return;
    }
    standard_error::write(&format!("squall: {text}\n"));
}
