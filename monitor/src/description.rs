//! The description of a statistics page: facts that do not change while the endpoint is open.

use serde::{Deserialize, Serialize};
use squall_base::{CounterRow, Merge};

/// The identity of an endpoint, its settings, and the names of the values on its page.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Process ID of the endpoint's process.
    pub pid: u32,
    /// Start time of the process, in clock ticks since the boot of the machine. It distinguishes
    /// the process from a later one with the same ID.
    pub started: u64,
    /// Number of the endpoint within its process, from 0 on.
    pub endpoint: u32,
    /// Address of the endpoint: IP address and UDP port.
    pub local: String,
    /// Name of the network interface that has the endpoint's address.
    pub interface: String,
    /// Name of the host on which the endpoint is.
    pub host: String,
    /// Name of the endpoint's program, without its directory.
    pub program: String,
    /// Version of the provider that wrote the page.
    pub version: String,
    /// Time at which the page was created, in ns since 1970.
    pub made: u64,
    /// Algorithms that the endpoint uses, as pairs of parameter and value.
    pub choices: Vec<(String, String)>,
    /// Position of the process in its job, as far as the launcher reports it.
    pub place: JobPlace,
    /// The counters, in the order of their values on the page.
    pub counters: Vec<Counter>,
    /// Names of the values of a flow, in the order of the values on the page.
    pub flow: Vec<String>,
}

/// Name, unit and meaning of a counter on a statistics page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Name of the counter in statistics, such as `tx_packets`.
    pub name: String,
    /// Unit of the counter, in the plural, such as `packets`.
    pub unit: String,
    /// Rule that merges the counts of two endpoints: `sum`, `max` or `min`.
    pub merge: String,
    /// Description of the counter, in one sentence.
    pub help: String,
}

impl Counter {
    /// Creates the description of a counter from a row of a counter table.
    #[must_use]
    pub fn new(row: &CounterRow) -> Self {
        let merge = match row.merge {
            Merge::Sum => "sum",
            Merge::Max => "max",
            Merge::Min => "min",
        };
        let [name, unit, merge, help] = [row.name, row.unit, merge, row.help].map(str::to_owned);
        Self { name, unit, merge, help }
    }

    /// Returns the merged count of two endpoints. A minimum over no samples is shown as 0, so `min`
    /// ignores a 0.
    #[must_use]
    pub fn merged(&self, one: u64, other: u64) -> u64 {
        match self.merge.as_str() {
            "max" => one.max(other),
            "min" if one == 0 || other == 0 => one.max(other),
            "min" => one.min(other),
            _ => one.saturating_add(other),
        }
    }
}

/// Position of a process in its job: the job's name, the rank, and the number of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPlace {
    /// Name of the job: the launcher's, or `launcher-PID` with the process ID of the launcher.
    /// Empty for a process without a launcher.
    pub job: String,
    /// Rank of the process in its job, if the launcher reports it.
    pub rank: Option<u32>,
    /// Number of ranks of the job, if the launcher reports it.
    pub ranks: Option<u32>,
}

/// Beginning of the names of jobs that their launcher does not name.
const UNNAMED: &str = "launcher-";

/// Environment variables that launchers set for the processes of a job: PMIx, PMI, Open MPI, Slurm,
/// PBS and LSF. The first one that is set counts.
const JOBS: &[&str] = &["PMIX_NAMESPACE", "SLURM_JOB_ID", "PMI_JOBID", "PBS_JOBID", "LSB_JOBID"];
const RANKS: &[&str] = &["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", SLURM_RANK];
const SIZES: &[&str] = &["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", SLURM_SIZE];
const SLURM_RANK: &str = "SLURM_PROCID";
const SLURM_SIZE: &str = "SLURM_NTASKS";
/// Variable that `srun` sets for the tasks of a job step. A batch script also has [`SLURM_RANK`]
/// and [`SLURM_SIZE`], although it is no rank, so they count only together with this variable.
const SLURM_STEP: &str = "SLURM_STEP_ID";

impl JobPlace {
    /// Reads the position from the launcher's variables, which `get` looks up. A job without a name
    /// is named after `parent`, the process that started this one, because the ranks of a host have
    /// it in common.
    pub fn from_launcher(get: impl Fn(&str) -> Option<String>, parent: u32) -> Self {
        let in_step = get(SLURM_STEP).is_some();
        let counts = |name: &str| in_step || ![SLURM_RANK, SLURM_SIZE].contains(&name);
        let first =
            |names: &[&str]| names.iter().filter(|name| counts(name)).find_map(|name| get(name));
        let number = |names: &[&str]| first(names)?.parse().ok();
        let rank = number(RANKS);
        let job = first(JOBS).or_else(|| rank.map(|_: u32| format!("{UNNAMED}{parent}")));
        Self { job: job.unwrap_or_default(), rank, ranks: number(SIZES) }
    }

    /// Returns the name that the launcher gave to the job; empty if it gave none. A name that was
    /// made from a process ID differs from host to host, so it does not identify the job.
    #[must_use]
    pub fn launcher_name(&self) -> &str {
        if self.job.starts_with(UNNAMED) { "" } else { &self.job }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(set: &[(&str, &str)]) -> JobPlace {
        JobPlace::from_launcher(
            |wanted| {
                set.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
            },
            77,
        )
    }

    #[test]
    fn ranks_are_read_from_the_variables_of_launchers() {
        let prterun = place(&[
            ("PMIX_NAMESPACE", "prterun-n-5@1"),
            ("PMIX_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ]);
        assert_eq!(
            prterun,
            JobPlace { job: "prterun-n-5@1".into(), rank: Some(3), ranks: Some(4) }
        );
        let hydra = place(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        assert_eq!(hydra, JobPlace { job: "launcher-77".into(), rank: Some(0), ranks: Some(2) });
        assert_eq!(place(&[]), JobPlace::default());
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(place(&batch), JobPlace { job: "7".into(), rank: None, ranks: None });
        let step = [batch[0], batch[1], batch[2], ("SLURM_STEP_ID", "0")];
        assert_eq!(place(&step), JobPlace { job: "7".into(), rank: Some(0), ranks: Some(8) });
        assert_eq!(place(&[("PMI_RANK", "many")]).rank, None);
    }

    #[test]
    fn counters_of_two_endpoints_become_one() {
        let [sum, max, min] = [Merge::Sum, Merge::Max, Merge::Min]
            .map(|merge| Counter::new(&CounterRow { name: "c", unit: "packets", merge, help: "" }));
        assert_eq!((sum.merged(3, 4), max.merged(3, 4), min.merged(3, 4)), (7, 4, 3));
        assert_eq!((min.merged(0, 4), min.merged(4, 0)), (4, 4), "0 is the smallest of nothing");
    }
}
