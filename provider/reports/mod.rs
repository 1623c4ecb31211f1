//! Reports to the user: statistics, the live page, traces, logs of keys, the texts of errors, and the
//! generated pages of the manual.

pub(crate) mod fault;
pub(crate) mod key_log;
#[cfg(test)]
pub(crate) mod manual;
pub(crate) mod monitor;
pub(crate) mod process_report;
pub(crate) mod stats;
pub(crate) mod trace;
