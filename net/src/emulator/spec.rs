//! The specification of an emulator and of the host that an endpoint becomes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::frame::JobRank;

/// Word behind the path of an emulator whose clock is virtual.
const VIRTUAL: &str = ",virtual";
/// Largest number of ranks in a list that assigns hosts to ranks.
const MOST_RANKS: usize = 1 << 16;

/// An emulator, and the host of its network that the endpoint becomes: `PATH[,virtual][,host=N|rank|LIST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorSpec {
    /// Path of the Unix socket on which the emulator listens.
    pub path: PathBuf,
    /// Host of the emulated network that the endpoint asks to become.
    pub host: HostChoice,
    /// The clock of the emulated network is virtual.
    pub virtual_time: bool,
}

/// The host of a topology that an endpoint asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostChoice {
    /// The next host that no endpoint uses.
    #[default]
    Free,
    /// The host of the emulated network with this number.
    Number(u32),
    /// The host with the number of the process's rank, or the next free host without a launcher.
    Rank,
    /// The host that the list assigns to the rank of the process.
    List(HostList),
}

/// The hosts of the ranks of a job. `0,2x8,5-7` is host 0 for rank 0, host 2 for the next eight
/// ranks, then hosts 5, 6 and 7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostList(Vec<u32>);

impl HostList {
    /// Returns the number of ranks in the list, at least one.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.0.len()
    }

    /// Returns the hosts of the list, one for each rank from 0 on.
    #[must_use]
    pub fn hosts(&self) -> &[u32] {
        &self.0
    }

    /// Returns the number of ranks on each host that has any, by host.
    #[must_use]
    pub fn ranks_of_hosts(&self) -> BTreeMap<u32, u32> {
        let mut ranks = BTreeMap::new();
        for host in &self.0 {
            *ranks.entry(*host).or_insert(0) += 1;
        }
        ranks
    }
}

impl FromStr for HostList {
    type Err = HostListError;

    fn from_str(text: &str) -> Result<Self, HostListError> {
        let bad = || HostListError(text.to_owned());
        let mut hosts = Vec::new();
        for part in text.split(',') {
            let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
            let (first, last, times) = match (part.split_once('x'), part.split_once('-')) {
                (Some((host, times)), None) => (number(host)?, number(host)?, number(times)?),
                (None, Some((first, last))) => (number(first)?, number(last)?, 1),
                (None, None) => (number(part)?, number(part)?, 1),
                (Some(_), Some(_)) => return Err(bad()),
            };
            let count = u64::from(last.checked_sub(first).ok_or_else(bad)?) + u64::from(times);
            if times == 0 || hosts.len() as u64 + count > MOST_RANKS as u64 {
                return Err(bad());
            }
            hosts.extend((first..=last).flat_map(|host| (0..times).map(move |_| host)));
        }
        Ok(Self(hosts))
    }
}

impl fmt::Display for HostList {
    /// Writes the list in the form in which it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|a, b| a == b).enumerate() {
            let separator = if at == 0 { "" } else { "," };
            write!(f, "{separator}{}", run[0])?;
            if run.len() > 1 {
                write!(f, "x{}", run.len())?;
            }
        }
        Ok(())
    }
}

/// An error in a list of hosts. Its text shows the allowed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostListError(String);

impl fmt::Display for HostListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a list of hosts, such as 0,2x8,5-7: 0 for rank 0, 2 for the next eight, then 5, 6 and 7; \
             {MOST_RANKS} ranks at most",
            self.0
        )
    }
}

impl std::error::Error for HostListError {}

impl HostChoice {
    /// Returns whether the process of `rank` is on `host`, as far as the choice says so.
    #[must_use]
    pub fn has(&self, host: u32, rank: u32) -> bool {
        match self {
            Self::Free => false,
            Self::Number(number) => *number == host,
            Self::Rank => rank == host,
            Self::List(list) => list.hosts().get(rank as usize) == Some(&host),
        }
    }
}

impl EmulatorSpec {
    /// Returns the host that an endpoint with this rank asks for; `None` means the next free host.
    ///
    /// # Errors
    /// There is a list, but it has no host for this rank, or no launcher set a rank.
    pub fn host_of(&self, job_rank: JobRank) -> Result<Option<u32>, String> {
        match &self.host {
            HostChoice::Free => Ok(None),
            HostChoice::Number(host) => Ok(Some(*host)),
            HostChoice::Rank => Ok(job_rank.rank),
            HostChoice::List(list) => {
                let rank = job_rank.rank.ok_or_else(|| {
                    format!(
                        "no launcher gave this process a rank, which the list of hosts {list} needs"
                    )
                })?;
                let host = list.hosts().get(rank as usize);
                let host = host.ok_or_else(|| {
                    format!(
                        "rank {rank} has no host: the list of hosts {list} has {} ranks; name more hosts, or start \
                         fewer ranks",
                        list.ranks()
                    )
                })?;
                Ok(Some(*host))
            }
        }
    }
}

/// An error in an emulator specification. Its text shows the allowed forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorSpecError(String);

impl fmt::Display for EmulatorSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not the path of an emulator's socket, or PATH,host=NUMBER, or PATH,host=rank, or PATH,host=LIST with a \
             host for each rank, such as 0,2x8,5-7; PATH may be followed by ,virtual",
            self.0
        )
    }
}

impl std::error::Error for EmulatorSpecError {}

impl FromStr for EmulatorSpec {
    type Err = EmulatorSpecError;

    fn from_str(text: &str) -> Result<Self, EmulatorSpecError> {
        let bad = || EmulatorSpecError(text.to_owned());
        let (path, host) = match text.rsplit_once(",host=") {
            None if text.strip_suffix(VIRTUAL).unwrap_or(text).contains(',') => return Err(bad()),
            None => (text, HostChoice::Free),
            Some((path, "rank")) => (path, HostChoice::Rank),
            Some((path, list)) => {
                let list: HostList = list.parse().map_err(|_| bad())?;
                // A single number applies to every process, whatever its rank.
                let host = match list.hosts() {
                    [host] => HostChoice::Number(*host),
                    _ => HostChoice::List(list),
                };
                (path, host)
            }
        };
        let real = path.strip_suffix(VIRTUAL);
        let (path, virtual_time) = (real.unwrap_or(path), real.is_some());
        if path.is_empty() {
            return Err(bad());
        }
        Ok(Self { path: path.into(), host, virtual_time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_rank(rank: Option<u32>) -> JobRank {
        JobRank { rank, ranks: None }
    }

    #[test]
    fn specifications_are_read_and_bad_ones_named() {
        let spec: EmulatorSpec = "/run/emulator.sock".parse().unwrap();
        assert_eq!(
            spec,
            EmulatorSpec {
                path: "/run/emulator.sock".into(),
                host: HostChoice::Free,
                virtual_time: false
            }
        );
        let spec: EmulatorSpec = "/run/e,virtual".parse().unwrap();
        assert_eq!((spec.path.to_str(), spec.virtual_time), (Some("/run/e"), true));
        let spec: EmulatorSpec = "/run/e,virtual,host=rank".parse().unwrap();
        assert_eq!((spec.path.to_str(), spec.virtual_time), (Some("/run/e"), true));
        assert_eq!(spec.host, HostChoice::Rank);
        let spec: EmulatorSpec = "rel/a,b,host=7".parse().unwrap();
        assert_eq!(
            spec,
            EmulatorSpec {
                path: "rel/a,b".into(),
                host: HostChoice::Number(7),
                virtual_time: false
            }
        );
        assert_eq!(spec.host_of(job_rank(Some(1))), Ok(Some(7)));
        let spec: EmulatorSpec = "/run/f,host=rank".parse().unwrap();
        assert_eq!(
            spec,
            EmulatorSpec { path: "/run/f".into(), host: HostChoice::Rank, virtual_time: false }
        );
        assert_eq!(spec.host_of(job_rank(Some(5))), Ok(Some(5)));
        assert_eq!(spec.host_of(job_rank(None)), Ok(None));
        for bad in ["", "/a,rank=3", "/a,b", "/a,host=x", "/a,host=", ",host=1", "/a,host=1,,2"] {
            let error = bad.parse::<EmulatorSpec>().unwrap_err().to_string();
            assert!(error.contains("host=NUMBER") && error.contains("host=LIST"), "{error}");
        }
    }

    #[test]
    fn a_list_has_a_host_for_each_rank() {
        let spec: EmulatorSpec = "/run/f,host=0,2x3,5-7".parse().unwrap();
        let hosts: Vec<_> =
            (0..7).map(|rank| spec.host_of(job_rank(Some(rank))).unwrap()).collect();
        assert_eq!(hosts, [0, 2, 2, 2, 5, 6, 7].map(Some));
        let error = spec.host_of(job_rank(Some(7))).unwrap_err();
        assert!(
            error.starts_with("rank 7 has no host: the list of hosts 0,2x3,5,6,7 has 7 ranks;"),
            "{error}"
        );
        assert!(spec.host.has(2, 3) && !spec.host.has(2, 4) && !spec.host.has(7, 7));
        let HostChoice::List(list) = &spec.host else { panic!("a list") };
        assert_eq!(
            list.ranks_of_hosts().into_iter().collect::<Vec<_>>(),
            [(0, 1), (2, 3), (5, 1), (6, 1), (7, 1)]
        );
        let error = spec.host_of(job_rank(None)).unwrap_err();
        assert!(error.contains("no launcher gave this process a rank"), "{error}");
        assert_eq!("0,2x3,5,6,7".parse::<HostList>(), "0,2x3,5-7".parse());
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for bad in
            ["", "a", "1,", "2x0", "2x", "7-5", "1x2-3", "-1", "0-65536", "0x65537", "0-4294967295"]
        {
            let error = bad.parse::<HostList>().unwrap_err().to_string();
            assert!(error.contains("0,2x8,5-7"), "{bad}: {error}");
        }
        assert_eq!("0x65536".parse::<HostList>().map(|list| list.ranks()), Ok(65_536));
        assert_eq!("1-65536".parse::<HostList>().map(|list| list.ranks()), Ok(65_536));
    }
}
