//! Summary of the reports of a job's processes: which ranks used squall, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use squall_monitor::ProcessReport;

/// Largest number of ranks that a sentence lists.
const LISTED: usize = 8;

/// Summary of a job: which of its processes used squall, and how.
#[derive(Default, Debug)]
pub(super) struct JobSummary {
    /// Ranks with an endpoint of squall, by job and number.
    used: BTreeSet<(String, u32)>,
    /// Number of processes that have an endpoint of squall and no rank, because no launcher
    /// numbered them.
    unnumbered: usize,
    /// Number of ranks that each job has, by the name of the job.
    expected: BTreeMap<String, u32>,
    /// Ranks and processes without an endpoint of squall, by reason.
    unused: BTreeMap<String, BTreeSet<String>>,
    /// Ranks that have sent no report.
    missing: Vec<u32>,
    interfaces: BTreeMap<String, BTreeSet<u32>>,
    /// Bytes that each network card sent and received, of ranks whose endpoints have several.
    rails: BTreeMap<String, (u64, u64)>,
    /// Numbers of ordered pairs of endpoints: those that exchange packets, and (next field) those
    /// that share memory.
    packet_pairs: u64,
    shm_pairs: u64,
    /// True if at least one process encrypted its packets.
    encrypted: bool,
    retransmitted: u64,
    failed: u64,
    versions: BTreeMap<String, BTreeSet<String>>,
}

impl JobSummary {
    /// Summarises the reports of a job. Of several reports of one process the last one counts.
    pub(super) fn new(reports: &[ProcessReport]) -> Self {
        let mut last: BTreeMap<(&str, u32), &ProcessReport> = BTreeMap::new();
        for report in reports {
            last.insert((&report.host, report.pid), report);
        }
        let mut summary = Self::default();
        for report in last.values() {
            summary.add(report);
        }
        let ranked = !summary.expected.is_empty() || !summary.used.is_empty();
        for report in last.values().filter(|report| report.endpoints == 0) {
            let (job, rank) = (report.place.launcher_name(), report.place.rank);
            let who = match rank {
                // Another process of the rank has an endpoint, or this is a helper of the launcher.
                Some(rank) if summary.used.contains(&(job.to_owned(), rank)) => continue,
                None if ranked => continue,
                Some(rank) => format!("rank {rank} ({})", report.host),
                None => format!("process {} ({})", report.pid, report.host),
            };
            summary.unused.entry(report.reason.clone()).or_default().insert(who);
        }
        let reported: BTreeSet<(&str, u32)> = last
            .values()
            .filter_map(|report| Some((report.place.launcher_name(), report.place.rank?)))
            .collect();
        for (job, ranks) in &summary.expected {
            summary.missing.extend((0..*ranks).filter(|rank| !reported.contains(&(job, *rank))));
        }
        summary
    }

    fn add(&mut self, report: &ProcessReport) {
        let place = &report.place;
        if let (Some(_), Some(ranks)) = (place.rank, place.ranks) {
            let expected = self.expected.entry(place.launcher_name().to_owned()).or_default();
            *expected = ranks.max(*expected);
        }
        if report.endpoints == 0 {
            return;
        }
        match place.rank {
            Some(rank) => {
                self.used.insert((place.launcher_name().to_owned(), rank));
            }
            None => self.unnumbered += 1,
        }
        for (interface, mtu) in &report.interfaces {
            self.interfaces.entry(interface.clone()).or_default().insert(*mtu);
        }
        for (card, (sent, received)) in &report.rails {
            let total = self.rails.entry(card.clone()).or_default();
            total.0 += sent;
            total.1 += received;
        }
        self.packet_pairs += report.packet_peers;
        self.shm_pairs += report.shm_peers;
        self.encrypted |= report.encrypted;
        self.retransmitted += report.retransmitted;
        self.failed += report.failed;
        self.versions.entry(report.version.clone()).or_default().insert(report.host.clone());
    }

    /// Returns whether every process that could be expected to use squall did.
    pub(super) fn is_complete(&self) -> bool {
        self.used.len() + self.unnumbered > 0 && self.unused.is_empty() && self.missing.is_empty()
    }

    /// Returns the sentences for users: one for the job, one for each group of ranks that did not use
    /// squall. `status` is the exit status of the job.
    pub(super) fn lines(&self, status: u8) -> Vec<String> {
        let mut lines = Vec::new();
        if self.used.len() + self.unnumbered > 0 {
            lines.push(self.to_string());
        }
        for (reason, who) in &self.unused {
            lines.push(format!("{} did not use squall: {reason}", list(who.iter())));
        }
        if !self.missing.is_empty() {
            let ranks = self.missing.iter().map(|rank| format!("rank {rank}"));
            lines.push(format!(
                "{} wrote no report: crashed or killed, or its libfabric did not load squall; `squall doctor` on its host checks that",
                list(ranks)
            ));
        }
        if lines.is_empty() {
            lines.push(if status == 0 {
                "no process used squall: none of them loaded it, or their standard error went elsewhere; \
                 `squall doctor` checks the installation, FI_LOG_LEVEL=warn shows what libfabric loads"
                    .to_owned()
            } else {
                // Launchers kill all ranks when one fails.
                format!(
                    "the job failed with status {status}, and no process reported whether it used squall: a process \
                     that crashes or is killed reports nothing; if the job fails before it communicates, \
                     `squall doctor` checks the installation"
                )
            });
        }
        if self.versions.len() > 1 {
            let each = self
                .versions
                .iter()
                .map(|(version, hosts)| format!("{version} on {}", list(hosts.iter())));
            lines.push(format!(
                "hosts have different versions of squall: {}; install the same everywhere",
                each.collect::<Vec<_>>().join(", ")
            ));
        }
        lines
    }
}

impl fmt::Display for JobSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.used.is_empty() {
            let s = if self.unnumbered == 1 { "process" } else { "processes" };
            write!(f, "{} {s}", self.unnumbered)?;
        } else {
            let expected: u64 = self.expected.values().map(|ranks| u64::from(*ranks)).sum();
            write!(f, "{} of {} ranks", self.used.len(), expected.max(self.used.len() as u64))?;
        }
        for (i, (interface, mtus)) in self.interfaces.iter().enumerate() {
            let mtus: Vec<String> = mtus.iter().map(u32::to_string).collect();
            let separator = if i == 0 { "; " } else { ", " };
            write!(f, "{separator}{interface} (MTU {})", mtus.join(" and "))?;
        }
        for (i, (card, (sent, received))) in self.rails.iter().enumerate() {
            let separator = if i == 0 { "; cards " } else { ", " };
            let mib = |bytes: u64| bytes / (1 << 20);
            write!(f, "{separator}{card} {} MiB out, {} in", mib(*sent), mib(*received))?;
        }
        // Both ends of a pair report it, unless only one of them sent anything.
        let (packets, shm) = (self.packet_pairs.div_ceil(2), self.shm_pairs.div_ceil(2));
        if packets + shm == 0 {
            f.write_str(", no pair exchanged messages through squall (ranks of one host use the shared memory of their MPI; --all changes that)")?;
        } else {
            let s = if packets == 1 { "pair" } else { "pairs" };
            let encrypted = if self.encrypted && packets > 0 { " (encrypted)" } else { "" };
            write!(f, ", {packets} {s} by packets{encrypted}, {shm} by shared memory")?;
        }
        write!(f, "; {} packets retransmitted", self.retransmitted)?;
        match self.failed {
            0 => f.write_str("; nothing lost"),
            failed => write!(f, "; {failed} operations failed"),
        }
    }
}

/// Returns the first few of `items` as a list in words.
fn list(items: impl ExactSizeIterator<Item = impl fmt::Display>) -> String {
    let more = items.len().saturating_sub(LISTED);
    let mut text = items.take(LISTED).map(|item| item.to_string()).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_monitor::JobPlace;

    fn rank(rank: u32, ranks: u32) -> ProcessReport {
        ProcessReport {
            host: format!("n{}", rank % 2),
            pid: 100 + rank,
            version: "0.2.0".into(),
            place: JobPlace { job: "j".into(), rank: Some(rank), ranks: Some(ranks) },
            endpoints: 1,
            interfaces: BTreeMap::from([("eth0".into(), 9000)]),
            packet_peers: 2,
            shm_peers: 1,
            retransmitted: u64::from(rank),
            ..ProcessReport::default()
        }
    }

    #[test]
    fn a_job_is_one_line() {
        let mut reports: Vec<_> = (0..4).map(|i| rank(i, 4)).collect();
        // An earlier report of a process that opened further endpoints.
        reports.insert(0, ProcessReport { retransmitted: 0, packet_peers: 1, ..rank(3, 4) });
        let summary = JobSummary::new(&reports);
        assert!(summary.is_complete());
        assert_eq!(
            summary.lines(0),
            [
                "4 of 4 ranks; eth0 (MTU 9000), 4 pairs by packets, 2 by shared memory; 6 packets retransmitted; nothing lost"
            ]
        );
    }

    #[test]
    fn encryption_is_reported() {
        // A rank that reached its peers through shared memory alone sent no packet.
        let shm_alone = ProcessReport { packet_peers: 0, ..rank(0, 2) };
        let reports = [shm_alone, ProcessReport { encrypted: true, ..rank(1, 2) }];
        let text = JobSummary::new(&reports).to_string();
        assert!(text.contains(", 1 pair by packets (encrypted), 1 by shared memory;"), "{text}");
        let quiet = ProcessReport { packet_peers: 0, encrypted: true, ..rank(0, 1) };
        let text = JobSummary::new(&[quiet]).to_string();
        assert!(text.contains(", 0 pairs by packets, 1 by shared memory;"), "{text}");
    }

    #[test]
    fn hosts_of_a_job_without_a_name_are_one_job() {
        let of = |i: u32| ProcessReport {
            place: JobPlace { job: format!("launcher-{}", 100 + i % 2), ..rank(i, 4).place },
            ..rank(i, 4)
        };
        let reports: Vec<_> = (0..4).map(of).collect();
        assert!(JobSummary::new(&reports).is_complete());
    }

    #[test]
    fn ranks_that_did_not_use_squall_are_named_with_the_reason() {
        let unused =
            |i| ProcessReport { endpoints: 0, reason: "it was not asked".into(), ..rank(i, 6) };
        let summary = JobSummary::new(&[rank(0, 6), unused(1), rank(2, 6), unused(3)]);
        assert!(!summary.is_complete());
        let lines = summary.lines(0);
        assert!(lines[0].starts_with("2 of 6 ranks;"), "{lines:?}");
        assert_eq!(lines[1], "rank 1 (n1), rank 3 (n1) did not use squall: it was not asked");
        assert!(
            lines[2].starts_with("rank 4, rank 5 wrote no report: crashed or killed"),
            "{lines:?}"
        );
    }

    #[test]
    fn programs_without_a_launcher_are_processes() {
        let report = |pid, endpoints| ProcessReport {
            pid,
            endpoints,
            place: JobPlace::default(),
            failed: 2,
            ..rank(0, 1)
        };
        let summary = JobSummary::new(&[report(1, 1), report(2, 1)]);
        assert!(summary.is_complete());
        assert!(summary.to_string().starts_with("2 processes; eth0"), "{summary}");
        assert!(summary.to_string().ends_with("; 4 operations failed"), "{summary}");
        assert!(!JobSummary::new(&[report(1, 0)]).is_complete());
        // A tool of the launcher that loads libfabric is no rank.
        assert!(JobSummary::new(&[rank(0, 1), report(7, 0)]).is_complete());
    }

    #[test]
    fn silence_and_different_versions_are_reported() {
        let lines = JobSummary::new(&[]).lines(0);
        assert!(lines.len() == 1 && lines[0].starts_with("no process used squall"), "{lines:?}");
        // All ranks of a job are killed when one crashes. Their installation is not to blame.
        let lines = JobSummary::new(&[]).lines(11);
        assert!(
            lines.len() == 1 && lines[0].starts_with("the job failed with status 11,"),
            "{lines:?}"
        );
        let old = ProcessReport { version: "0.1.0".into(), ..rank(1, 2) };
        let lines = JobSummary::new(&[rank(0, 2), old]).lines(0);
        assert_eq!(
            lines[1],
            "hosts have different versions of squall: 0.1.0 on n1, 0.2.0 on n0; install the same everywhere"
        );
        let idle = ProcessReport { packet_peers: 0, shm_peers: 0, ..rank(0, 1) };
        assert!(JobSummary::new(&[idle]).to_string().contains("no pair exchanged messages"));
    }
}
