//! `[workload]`: the messages that hosts send, generated or read from a file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

use super::SceneError;
use super::keys::{Keys, state};
use super::scene::{fault, read_file};
use squall_netsim::facts;
use squall_netsim::formats::cm::StartUnit;
use squall_netsim::formats::{self, FormatError};
use squall_netsim::replay;
use squall_netsim::settings::Settings;
use squall_netsim::topology::Topology;
use squall_netsim::workload::{JobOptions, Pattern, Spec, Workload, goal, trace};

/// The table `[workload]` of a plan.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadTable {
    /// A load that is read from a file.
    File(WorkloadFile),
    /// A load that the program generates from a pattern.
    Generated(Spec),
}

/// The kind of a load that is read from a file.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadFile {
    /// Messages as CSV.
    Trace {
        /// File or folder, relative to the plan.
        file: PathBuf,
    },
    /// The trace of a job that ran with `FI_SQUALL_TRACE`.
    Job {
        /// File or folder, relative to the plan.
        file: PathBuf,
    },
    /// A GOAL schedule.
    Goal {
        /// File or folder, relative to the plan.
        file: PathBuf,
    },
    /// htsim's connection matrix, `.cm`. The kind may be left out.
    Matrix {
        /// File or folder, relative to the plan.
        file: PathBuf,
        /// Unit of `start`: `ps`, or `us` as in uet-htsim's UEC binary (default `ps`).
        #[serde(default)]
        cm_unit: StartUnit,
    },
}

impl WorkloadTable {
    /// Reads the table `[workload]` from a plan.
    pub(super) fn read(table: Table) -> Result<Self, SceneError> {
        let mut keys = Keys::new("workload", table);
        if keys.has("file") && !keys.has("kind") {
            keys.set("kind", "matrix");
        }
        let read = match keys.try_kind("kind")? {
            Some(file) => Self::File(file),
            None => {
                let options: JobOptions = keys.take()?;
                let pattern: Pattern = keys.take_kind("kind")?;
                Self::Generated(Spec { pattern, options })
            }
        };
        keys.finish()?;
        Ok(read)
    }

    /// Adds the kind and its keys to the settings, including defaults.
    pub(super) fn state(&self, settings: &mut Settings) {
        match self {
            Self::File(file) => state(settings, "workload", "kind", file),
            Self::Generated(spec) => {
                state(settings, "workload", "kind", &spec.pattern);
                settings.set_table("workload", &spec.options);
            }
        }
    }

    /// Generates or reads the load of a topology. Relative paths start at `folder`.
    pub(super) fn build(
        &self,
        folder: &Path,
        topology: &Topology,
        seed: u64,
    ) -> Result<Workload, SceneError> {
        let workload = match self {
            Self::File(file) => file.read(folder, topology.hosts)?,
            Self::Generated(spec) => spec
                .generate(&facts::layout(topology), seed)
                .or_else(|error| fault("workload", error))?,
        };
        workload.check().or_else(|error| fault("workload", error))?;
        Ok(workload)
    }
}

impl WorkloadFile {
    fn read(&self, folder: &Path, hosts: u32) -> Result<Workload, SceneError> {
        match self {
            Self::Trace { file } => {
                let path = folder.join(file);
                let text = read_file(&path, "workload.file")?;
                trace::parse(text.as_bytes(), &path, hosts).or_else(|error| fault("", error))
            }
            Self::Job { file } => replay::read(&folder.join(file))
                .and_then(|job| job.workload(hosts))
                .or_else(|error| fault("", error)),
            Self::Goal { file } => goal::read(&folder.join(file))
                .and_then(|schedule| schedule.workload(hosts))
                .or_else(|error| fault("", error)),
            Self::Matrix { file, cm_unit } => read_matrix(&folder.join(file), *cm_unit, hosts),
        }
    }
}

fn read_matrix(path: &Path, unit: StartUnit, hosts: u32) -> Result<Workload, SceneError> {
    let name = path.display().to_string();
    let text = read_file(path, "workload.file")?;
    let mut workload =
        formats::cm::read_in(unit, &name, &text).or_else(|error| fault("", error))?;
    if workload.hosts > hosts {
        let line = text.lines().position(|line| {
            line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("nodes"))
        });
        let (line, nodes) = (line.map_or(0, |line| line + 1), workload.hosts);
        let what = format!("Nodes {nodes}, but the topology has {hosts}; expected at most as many");
        return fault("", FormatError { file: name, line, what });
    }
    workload.hosts = hosts;
    Ok(workload)
}
