//! `[workload]`: the messages that hosts send, generated or read from a file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

use super::SceneError;
use super::keys::{Keys, state};
use super::scene::{fault, read_file};
use squall_base::Rate;
use squall_netsim::facts;
use squall_netsim::formats::cm::StartUnit;
use squall_netsim::formats::{self, FormatError};
use squall_netsim::replay;
use squall_netsim::settings::Settings;
use squall_netsim::topology::Topology;
use squall_netsim::workload::chakra::{self, ChakraOptions, Training, system};
use squall_netsim::workload::{
    JobOptions, Pattern, Placement, ScheduledJob, Spec, Workload, goal, trace,
};
use squall_netsim::{Bytes, Picos};

/// The table `[workload]` of a plan.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadTable {
    /// A load that is read from a file.
    File(WorkloadFile),
    /// A load that the program generates from a pattern.
    Generated(Spec),
    /// A step of training a transformer.
    Training(TrainingTable),
}

/// A step of training, whose ranks run on hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct TrainingTable {
    kind: GeneratedJob,
    ranks: TrainingOptions,
}

/// The kind of a job that the program generates.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum GeneratedJob {
    /// A step of training a transformer: tensor parallel, a pipeline, and data parallel. The defaults
    /// are a model of 70 billion parameters.
    Training(Training),
}

/// Keys of the ranks of a training step and of their collectives.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct TrainingOptions {
    /// Algorithms of collectives, such as `all-reduce=tree,all-gather=direct` (default `ring` where possible).
    collective: Option<String>,
    /// Longest message of a collective (default no limit).
    chunk: Option<Bytes>,
    /// Ranks of a host, which share its NIC (default `tensor`).
    ranks_per_host: Option<u32>,
    /// Rate between ranks of a host, Gb/s (default 3600, NVLink 4).
    inner_gbps: Option<f64>,
    /// Latency between ranks of a host, ns (default 1000).
    inner_latency_ns: Option<u64>,
}

impl TrainingTable {
    fn build(&self, hosts: u32) -> Result<Load, SceneError> {
        let (GeneratedJob::Training(training), ranks) = (&self.kind, &self.ranks);
        let per_host = ranks.ranks_per_host.or(Some(training.tensor));
        let placement = placement(per_host, ranks.inner_gbps, ranks.inner_latency_ns)?;
        let options = chakra_options(placement, ranks.collective.as_deref(), ranks.chunk)?;
        let placed = chakra::training(training, &options)
            .and_then(|schedule| schedule.place(placement, hosts));
        let (job, workload) = placed.or_else(|error| fault("workload", error.what))?;
        Ok((workload, Some(job)))
    }
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
    Goal(GoalTable),
    /// Chakra traces of an AI job.
    Chakra(ChakraTable),
    /// htsim's connection matrix, `.cm`. The kind may be left out.
    Matrix {
        /// File or folder, relative to the plan.
        file: PathBuf,
        /// Unit of `start`: `ps`, or `us` as in uet-htsim's UEC binary (default `ps`).
        #[serde(default)]
        cm_unit: StartUnit,
    },
}

/// Keys of a GOAL schedule.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct GoalTable {
    /// File or folder, relative to the plan.
    pub file: PathBuf,
    /// Ranks of a host, which share its NIC (default 1).
    pub ranks_per_host: Option<u32>,
    /// Rate between ranks of a host, Gb/s (default 3600, NVLink 4).
    pub inner_gbps: Option<f64>,
    /// Latency between ranks of a host, ns (default 1000).
    pub inner_latency_ns: Option<u64>,
}

/// Keys of Chakra traces.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct ChakraTable {
    /// Files, relative to the plan, with `%d` in place of the rank.
    pub file: PathBuf,
    /// File with the ranks of each process group, relative to the plan.
    pub comm_groups: Option<PathBuf>,
    /// Algorithms of collectives, such as `all-reduce=tree,all-gather=direct` (default `ring` where possible).
    pub collective: Option<String>,
    /// Longest message of a collective (default no limit).
    pub chunk: Option<Bytes>,
    /// System file of ASTRA-sim, relative to the plan: algorithms, splits and delays of collectives.
    pub system: Option<PathBuf>,
    /// Ranks of a host, which share its NIC (default 1).
    pub ranks_per_host: Option<u32>,
    /// Rate between ranks of a host, Gb/s (default 3600, NVLink 4).
    pub inner_gbps: Option<f64>,
    /// Latency between ranks of a host, ns (default 1000).
    pub inner_latency_ns: Option<u64>,
}

/// Returns the placement of ranks that a table describes.
fn placement(
    ranks_per_host: Option<u32>,
    inner_gbps: Option<f64>,
    inner_latency_ns: Option<u64>,
) -> Result<Placement, SceneError> {
    let default = Placement::default();
    if ranks_per_host == Some(0) {
        return fault("workload.ranks_per_host", "0 ranks, expected 1 or more");
    }
    let inner_rate = match inner_gbps {
        None => default.inner_rate,
        Some(gbps) if (0.001..=10_000_000.0).contains(&gbps) => Rate((gbps * 1e9) as u64),
        Some(gbps) => {
            return fault(
                "workload.inner_gbps",
                format!("{gbps} Gb/s, expected 0.001 to 10000000"),
            );
        }
    };
    let inner_latency = match inner_latency_ns {
        None => default.inner_latency,
        Some(ns) if ns <= 1_000_000_000 => Picos::nanos(ns),
        Some(ns) => {
            return fault(
                "workload.inner_latency_ns",
                format!("{ns} ns, expected 0 to 1000000000"),
            );
        }
    };
    let ranks_per_host = ranks_per_host.unwrap_or(default.ranks_per_host);
    Ok(Placement { ranks_per_host, inner_rate, inner_latency })
}

/// A load for a topology, with the job behind it if it is a schedule.
pub(super) type Load = (Workload, Option<ScheduledJob>);

impl WorkloadTable {
    /// Reads the table `[workload]` from a plan.
    pub(super) fn read(table: Table) -> Result<Self, SceneError> {
        let mut keys = Keys::new("workload", table);
        if keys.has("file") && !keys.has("kind") {
            keys.set("kind", "matrix");
        }
        if keys.has_value("kind", "training") {
            let ranks = keys.take()?;
            let training = Self::Training(TrainingTable { ranks, kind: keys.take_kind("kind")? });
            return keys.finish().map(|()| training);
        }
        let read = match keys.try_kind("kind")? {
            Some(file) => Self::File(file),
            None => {
                keys.add_kinds(&["training"]);
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
            Self::Training(training) => {
                state(settings, "workload", "kind", &training.kind);
                settings.set_table("workload", &training.ranks);
            }
        }
    }

    /// Returns whether the load is a job whose ranks compute and exchange messages.
    #[must_use]
    pub const fn is_schedule(&self) -> bool {
        matches!(
            self,
            Self::Training(_) | Self::File(WorkloadFile::Goal(_) | WorkloadFile::Chakra(_))
        )
    }

    /// Generates or reads the load of a topology. Relative paths start at `folder`.
    pub(super) fn build(
        &self,
        folder: &Path,
        topology: &Topology,
        seed: u64,
    ) -> Result<Load, SceneError> {
        let (workload, job) = match self {
            Self::File(file) => file.read(folder, topology.hosts)?,
            Self::Generated(spec) => {
                let generated = spec.generate(&facts::layout(topology), seed);
                (generated.or_else(|error| fault("workload", error))?, None)
            }
            Self::Training(training) => training.build(topology.hosts)?,
        };
        // A schedule that was placed can run; the simulation checks it as well.
        if job.is_none() {
            workload.check().or_else(|error| fault("workload", error))?;
        }
        Ok((workload, job))
    }
}

impl WorkloadFile {
    fn read(&self, folder: &Path, hosts: u32) -> Result<Load, SceneError> {
        let workload = match self {
            Self::Trace { file } => {
                let path = folder.join(file);
                let text = read_file(&path, "workload.file")?;
                trace::parse(text.as_bytes(), &path, hosts).or_else(|error| fault("", error))
            }
            Self::Job { file } => replay::read(&folder.join(file))
                .and_then(|job| job.workload(hosts))
                .or_else(|error| fault("", error)),
            Self::Goal(GoalTable { file, ranks_per_host, inner_gbps, inner_latency_ns }) => {
                let placement = placement(*ranks_per_host, *inner_gbps, *inner_latency_ns)?;
                let placed = goal::read(&folder.join(file))
                    .and_then(|schedule| schedule.place(placement, hosts));
                let (job, workload) = placed.or_else(|error| fault("", error))?;
                return Ok((workload, Some(job)));
            }
            Self::Chakra(table) => {
                let options = table.options(folder)?;
                let placed = chakra::read(&folder.join(&table.file), &options)
                    .and_then(|schedule| schedule.place(options.placement, hosts));
                let (job, workload) = placed.or_else(|error| fault("", error))?;
                return Ok((workload, Some(job)));
            }
            Self::Matrix { file, cm_unit } => read_matrix(&folder.join(file), *cm_unit, hosts),
        };
        workload.map(|workload| (workload, None))
    }
}

impl ChakraTable {
    fn options(&self, folder: &Path) -> Result<ChakraOptions, SceneError> {
        let placement = placement(self.ranks_per_host, self.inner_gbps, self.inner_latency_ns)?;
        let options = chakra_options(placement, self.collective.as_deref(), self.chunk)?;
        let system = self.system.as_ref().map(|file| system::read(&folder.join(file)));
        let system = system.transpose().or_else(|error| fault("", error))?.unwrap_or_default();
        Ok(ChakraOptions {
            algorithms: options.algorithms.or(&system.algorithms),
            settings: system.settings,
            groups: self.comm_groups.as_ref().map(|file| folder.join(file)),
            ..options
        })
    }
}

/// Returns the options of a job without a file of process groups.
fn chakra_options(
    placement: Placement,
    collective: Option<&str>,
    chunk: Option<Bytes>,
) -> Result<ChakraOptions, SceneError> {
    let algorithms = collective.unwrap_or_default().parse();
    Ok(ChakraOptions {
        placement,
        algorithms: algorithms.or_else(|what: String| fault("workload.collective", what))?,
        chunk: chunk.unwrap_or_default().0,
        ..ChakraOptions::default()
    })
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
