//! What a page says of itself, once.

use serde::{Deserialize, Serialize};
use squall_base::{CounterRow, Merge};

/// Whose page it is, and what its values are called.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The process.
    pub pid: u32,
    /// When the process started, in clock ticks since the machine did: numbers of processes come again.
    pub started: u64,
    /// Number of the endpoint in its process.
    pub endpoint: u32,
    /// Its address.
    pub local: String,
    /// The interface that it is on.
    pub interface: String,
    /// The machine.
    pub host: String,
    /// The program.
    pub program: String,
    /// The release of the provider.
    pub version: String,
    /// When the page was made, ns since 1970.
    pub made: u64,
    /// What was chosen, by parameter.
    pub choices: Vec<(String, String)>,
    /// Where in a job the process is, as far as its launcher says so.
    pub place: JobPlace,
    /// What each counter is, in the order of their values.
    pub counters: Vec<Counter>,
    /// The names of a flow's values, in their order.
    pub flow: Vec<String>,
}

/// A counter's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Its name in statistics.
    pub name: String,
    /// What is counted, plural.
    pub unit: String,
    /// How two become one: `sum`, `max` or `min`.
    pub merge: String,
    /// What is counted, in a sentence.
    pub help: String,
}

impl Counter {
    /// As the row of a table says.
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

    /// The value of two endpoints together. The smallest of nothing is 0, as statistics show it.
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

/// Where in a job a process is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobPlace {
    /// The job, by the name that its launcher gave it, or by the launcher's process.
    pub job: String,
    /// The process' rank.
    pub rank: Option<u32>,
    /// How many ranks there are.
    pub ranks: Option<u32>,
}

/// Variables that launchers set for the processes of a job.
const JOBS: &[&str] = &["PMIX_NAMESPACE", "SLURM_JOB_ID", "PMI_JOBID", "PBS_JOBID", "LSB_JOBID"];
const RANKS: &[&str] = &["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];
const SIZES: &[&str] = &["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"];

impl JobPlace {
    /// What the launcher says by the variables that `get` looks up: PMIx', PMI's, Open MPI's, Slurm's. Where none names
    /// the job it is called after the process that started this one, `parent`, which the ranks of a host have in common.
    pub fn of(get: impl Fn(&str) -> Option<String>, parent: u32) -> Self {
        let first = |names: &[&str]| names.iter().find_map(|name| get(name));
        let number = |names: &[&str]| first(names)?.parse().ok();
        let rank = number(RANKS);
        let job = first(JOBS).or_else(|| rank.map(|_: u32| format!("launcher-{parent}")));
        Self { job: job.unwrap_or_default(), rank, ranks: number(SIZES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(set: &[(&str, &str)]) -> JobPlace {
        JobPlace::of(
            |asked| {
                set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned())
            },
            77,
        )
    }

    #[test]
    fn launchers_say_where_a_process_is() {
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
