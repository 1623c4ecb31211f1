//! The report of a process on its use of squall: one marked line on standard error, which
//! `squall run` collects from all ranks of a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobPlace;

/// Beginning of the line of a report. Launchers may write the rank before it.
pub const REPORT_MARK: &str = "squall-report: ";

/// Use of squall by one process, summed over all its endpoints. A process that closes its endpoints
/// and opens others writes several reports; readers use the last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Name of the host on which the process runs.
    pub host: String,
    /// Process ID on that host.
    pub pid: u32,
    /// Version of the provider that wrote the report.
    pub version: String,
    /// Position of the process in its job: name, rank, number of ranks.
    #[serde(flatten)]
    pub place: JobPlace,
    /// Number of endpoints that the process enabled. 0 means that it did not use squall.
    pub endpoints: u64,
    /// Interfaces of the endpoints, each with its MTU in bytes.
    pub interfaces: BTreeMap<String, u32>,
    /// Bytes of packets that each network card sent and received, of processes whose endpoints have several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rails: BTreeMap<String, (u64, u64)>,
    /// Number of peers to which the process sent messages by packets.
    pub packet_peers: u64,
    /// True if packets were sent encrypted. An endpoint encrypts all of its packets or none, and so
    /// do its peers.
    pub encrypted: bool,
    /// Number of peers that the process reached through shared memory.
    pub shm_peers: u64,
    /// Number of data packets that the process retransmitted.
    pub retransmitted: u64,
    /// Number of operations that failed, without those that the application cancelled.
    pub failed: u64,
    /// Reason why the process has no endpoint; empty if it has one.
    pub reason: String,
}

impl ProcessReport {
    /// Returns the line of the process report, including its newline.
    #[must_use]
    pub fn line(&self) -> String {
        // A struct of numbers, strings and maps with string keys always has a form in JSON.
        let body = serde_json::to_string(self).unwrap_or_default();
        format!("{REPORT_MARK}{body}\n")
    }

    /// Parses the part of a line that follows [`REPORT_MARK`]. Returns `None` for anything but a
    /// report.
    #[must_use]
    pub fn parse(body: &str) -> Option<Self> {
        serde_json::from_str(body.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_again() {
        let report = ProcessReport {
            host: "node \"1\"\n".into(),
            pid: 7,
            version: "0.2.0".into(),
            place: JobPlace { job: "j".into(), rank: Some(3), ranks: Some(4) },
            endpoints: 2,
            interfaces: BTreeMap::from([("eth0".into(), 9000)]),
            rails: BTreeMap::from([("eth1".into(), (3, 4))]),
            packet_peers: 5,
            encrypted: true,
            shm_peers: 1,
            retransmitted: 6,
            failed: 1,
            reason: String::new(),
        };
        let line = report.line();
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let body = line.strip_prefix(REPORT_MARK).expect("marked");
        assert_eq!(ProcessReport::parse(body), Some(report));
    }

    #[test]
    fn reports_of_other_versions_are_read() {
        let report = ProcessReport::parse("{\"pid\":3,\"rank\":1,\"later\":[1]}")
            .expect("fields have defaults");
        assert_eq!((report.pid, report.place.rank, report.endpoints), (3, Some(1), 0));
        assert_eq!(ProcessReport::parse("pid 3"), None);
    }
}
