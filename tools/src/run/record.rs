//! The record of a job on an emulator: a folder that `squall report` and `squall sim --trace` read.
//!
//! | file | what |
//! |---|---|
//! | `run.json` | queues, links and flows over time, events, totals: a [`Run`] |
//! | `report.html` | the same, drawn |
//! | `status.txt` | counters of every queue at the end |
//! | `network.graph` | the network, as scaled |
//! | `network.toml` | its options, as scaled: a plan's `[network]` |
//! | `timeline` | what happened to it, as scaled, in ns since the first packet |
//! | `trace/` | what each endpoint's application did: `FI_SQUALL_TRACE` |

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::report::{from_runs, render};
use squall_base::Rate;
use squall_emulator::{Command, Relay, Status, Timeline};
use squall_netsim::formats::graph;
use squall_netsim::model::NetworkOptions;
use squall_netsim::output::files::{self, write_whole};
use squall_netsim::output::{Metric, Provenance, Run};
use squall_netsim::replay::{self, TRACE};

/// Name of the file in a record that describes the network.
pub(crate) const NETWORK: &str = "network.graph";
/// Name of the file in a record that has the network's options.
pub(crate) const OPTIONS: &str = "network.toml";
/// Name of the file in a record that lists the changes to the network.
pub(crate) const TIMELINE: &str = "timeline";

/// Returns whether an environment variable names a path that belongs to one run only.
pub(super) fn is_place(variable: &str) -> bool {
    ["FI_SQUALL_EMULATOR", "FI_SQUALL_TRACE", "FI_PROVIDER_PATH"].contains(&variable)
}

/// The folder and the report file in which a job is recorded. Unless `keep` was called, the drop
/// removes the folders that `prepare` created.
pub(super) struct Record {
    folder: Option<PathBuf>,
    report: Option<PathBuf>,
    /// Folders that this record created, to be removed on drop, innermost first.
    created: Vec<PathBuf>,
}

impl Record {
    /// Creates the folder, and the one for traces in it.
    ///
    /// # Errors
    /// The folder cannot be created, or it is not empty.
    pub(super) fn prepare(folder: Option<&Path>, report: Option<&Path>) -> Result<Self, String> {
        let mut record = Self {
            folder: folder.map(Path::to_owned),
            report: report.map(Path::to_owned),
            created: Vec::new(),
        };
        if let Some(folder) = folder {
            let trace = folder.join(TRACE);
            let with_path =
                |error: std::io::Error| format!("cannot use folder {}: {error}", folder.display());
            match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
                Ok(false) => {
                    return Err(format!(
                        "{}: the folder is not empty; give an empty or a new one",
                        folder.display()
                    ));
                }
                Ok(true) => record.created = vec![trace.clone()],
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    record.created = vec![trace.clone(), folder.to_owned()];
                }
                Err(error) => return Err(with_path(error)),
            }
            fs::create_dir_all(&trace).map_err(with_path)?;
        }
        Ok(record)
    }

    /// Keeps the folders, because the job has started and its processes may write traces.
    pub(super) fn keep(&mut self) {
        self.created.clear();
    }

    /// Returns whether a folder or a report is to be written.
    pub(super) const fn is_wanted(&self) -> bool {
        self.folder.is_some() || self.report.is_some()
    }

    /// Returns the absolute path of the folder for traces. The job's processes may have other
    /// working directories.
    pub(super) fn trace(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?.join(TRACE);
        Some(folder.canonicalize().unwrap_or(folder))
    }

    /// Writes everything but the traces, which the job's processes have written.
    ///
    /// # Errors
    /// The file that could not be written, and the reason.
    pub(super) fn write(
        &self,
        relay: &Relay,
        command: &[OsString],
        mut provenance: Provenance,
    ) -> Result<(), String> {
        let Some(mut run) = relay.record() else { return Ok(()) };
        // A job that sent nothing left no trace. Invalid traces are reported when the user reads
        // the record.
        let job = self.folder.as_ref().and_then(|folder| replay::read(folder).ok());
        if let Some(job) = job {
            run.flows = job.flows();
            for (name, value) in job.parameters().iter().filter(|(name, _)| !is_place(name)) {
                provenance.settings.set(format!("variable.{name}"), value);
            }
        }
        run.provenance = Some(provenance);
        if let Some(folder) = &self.folder {
            let status = relay.status();
            let history = scaled(relay.history(), status.rate_scale);
            let options = options(&status).map_err(|error| error.to_string())?;
            for (name, text) in [
                (NETWORK, graph::write(relay.topology())),
                (OPTIONS, options),
                (TIMELINE, history.text()),
                ("status.txt", status.to_string()),
                ("report.html", page(&run, command)?),
            ] {
                let written = write_whole(&folder.join(name), |to| to.write_all(text.as_bytes()));
                written.map_err(|error| error.to_string())?;
            }
            let runs = std::slice::from_ref(&run);
            let written = write_whole(&folder.join("run.json"), |to| files::json(runs, to));
            written.map_err(|error| error.to_string())?;
        }
        if let Some(report) = &self.report {
            let text = page(&run, command)?;
            let written = write_whole(report, |to| to.write_all(text.as_bytes()));
            written.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        for folder in &self.created {
            // Best effort: `remove_dir` leaves a folder alone that is not empty.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Returns the options of ports and switches as text. The rate of network cards is scaled, too.
fn options(status: &Status) -> Result<String, toml::ser::Error> {
    let nic_gbps = status.network.nic_gbps.map(|gbps| gbps * status.rate_scale);
    toml::to_string(&NetworkOptions { nic_gbps, ..status.network.clone() })
}

/// Returns the timeline with rates as in the scaled network.
fn scaled(history: &Timeline, rates: f64) -> Timeline {
    let mut scaled = Timeline::default();
    for (at, command) in history.events() {
        let command = match command {
            Command::SetRate(link, rate) => {
                Command::SetRate(link.clone(), Rate((rate.0 as f64 * rates) as u64))
            }
            other => other.clone(),
        };
        scaled.add(*at, command);
    }
    scaled
}

/// Returns the report of a run as HTML.
fn page(run: &Run, command: &[OsString]) -> Result<String, String> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let about = "What crossed an emulated network in real time; times count from the first packet; rates are as scaled, but for those in events.";
    let metrics: Vec<Metric> = Metric::all().filter(|metric| metric.of(run).is_some()).collect();
    let document =
        from_runs(&words.join(" "), &[about.to_owned()], std::slice::from_ref(run), &metrics);
    render("A job on an emulator", &[document]).map_err(|error| error.to_string())
}
