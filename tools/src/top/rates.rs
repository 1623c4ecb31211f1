//! Computes what happened between two readings of the statistics pages.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use squall_base::Span;
use squall_monitor::{Counter, Snapshot};

use super::pages::EndpointReading;

/// An endpoint's counters over an interval, by name. Values that do not add up, such as a largest
/// one, are those at its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Length of the interval; zero if the endpoint wrote nothing in it.
    pub(super) span: Span,
    values: BTreeMap<String, u64>,
}

impl Counts {
    /// Returns the counts since an earlier reading, or since the endpoint was enabled.
    fn since(now: &Snapshot, before: Option<&Snapshot>) -> Self {
        let made = before.map_or(now.description.made, |before| before.written);
        let value = |(row, value): (&Counter, u64)| {
            let old = before.map_or(0, |before| before.counter(&row.name));
            let value = if row.merge == "sum" { value.saturating_sub(old) } else { value };
            (row.name.clone(), value)
        };
        Self {
            span: Span(now.written.saturating_sub(made)),
            values: now.counters().map(value).collect(),
        }
    }

    /// Returns the counter of this name; 0 if there is none.
    pub(super) fn of(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Returns the sum of the counters of these names.
    pub(super) fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.of(name)).sum()
    }

    /// Returns `count` per second of the interval; 0 for an empty interval.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        if self.span.0 == 0 { 0.0 } else { count as f64 * 1e9 / self.span.0 as f64 }
    }

    /// Returns `part` as a share of `whole`, 0 to 1; 0 if `whole` is zero.
    pub(super) fn share(&self, part: u64, whole: u64) -> f64 {
        if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
    }

    /// Returns the number of operations of all kinds that were started.
    pub(super) fn operations(&self) -> u64 {
        self.sum(&["tx_inline", "tx_eager", "tx_rendezvous", "tx_writes", "tx_reads", "tx_atomics"])
    }

    /// Returns the share of data packets that were retransmitted.
    pub(super) fn resent(&self) -> f64 {
        self.share(self.of("retransmissions"), self.of("data_packets"))
    }

    /// Returns the share of acknowledgements that reported an ECN mark.
    pub(super) fn marked(&self) -> f64 {
        self.share(self.of("rx_ce_echoes"), self.of("rx_acks"))
    }

    /// Returns the mean of the round-trip times that were measured; `None` without samples.
    pub(super) fn round_trip(&self) -> Option<Span> {
        self.of("rtt_sum_ns").checked_div(self.of("rtt_samples")).map(Span)
    }
}

/// An endpoint with its counters since the previous reading and since it was enabled, which is a
/// row of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) seen: EndpointReading,
    /// Counts since the previous reading, or since the endpoint was enabled if there is none.
    pub(super) lately: Counts,
    /// Counts since the endpoint was enabled.
    pub(super) ever: Counts,
    /// Bytes of each flow since the previous reading, in the order of the flows.
    pub(super) flow_bytes: Vec<u64>,
}

/// The endpoints of a job, combined.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Name of the job; empty for processes that no launcher started.
    pub(super) name: String,
    /// Number of processes of the job that have statistics pages.
    pub(super) processes: usize,
    /// Number of ranks of the job, if the launcher reports it.
    pub(super) ranks: Option<u32>,
    /// Counters over all endpoints of the job, since each was enabled.
    pub(super) counters: Vec<(Counter, u64)>,
    /// Longest time that one of the endpoints has been open.
    pub(super) open: Span,
}

/// The previous reading of each statistics page, by its path.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<PathBuf, Snapshot>);

impl History {
    /// Returns what every endpoint did since the previous reading. If an endpoint wrote nothing
    /// since then, its counts are zero.
    pub(super) fn advance(&mut self, seen: Vec<EndpointReading>) -> Vec<Row> {
        let mut next = HashMap::with_capacity(seen.len());
        let row = |seen: EndpointReading| {
            let before = self.0.get(&seen.path);
            let lately = Counts::since(&seen.snapshot, before);
            let ever = Counts::since(&seen.snapshot, None);
            let flow_bytes = flow_bytes(&seen.snapshot, before);
            next.insert(seen.path.clone(), seen.snapshot.clone());
            Row { seen, lately, ever, flow_bytes }
        };
        let rows = seen.into_iter().map(row).collect();
        self.0 = next;
        rows
    }
}

/// Returns the values that identify a flow of an endpoint: its peer, and the side that opened it.
fn identity(shown: &Snapshot, flow: &[u64]) -> [Option<u64>; 2] {
    [shown.flow_value(flow, "peer"), shown.flow_value(flow, "initiator")]
}

fn flow_bytes(now: &Snapshot, before: Option<&Snapshot>) -> Vec<u64> {
    let old: HashMap<_, _> = before
        .iter()
        .flat_map(|shown| {
            shown.flows.iter().map(|flow| (identity(shown, flow), shown.flow_value(flow, "bytes")))
        })
        .collect();
    let bytes = |flow: &Vec<u64>| {
        let before = old.get(&identity(now, flow)).copied().flatten().unwrap_or(0);
        now.flow_value(flow, "bytes").unwrap_or(0).saturating_sub(before)
    };
    now.flows.iter().map(bytes).collect()
}

/// Returns the jobs to which the endpoints belong, in the order of the endpoints.
pub(super) fn jobs(rows: &[Row]) -> Vec<Job> {
    let place = |row: &Row| row.seen.snapshot.description.place.clone();
    let of_a_job = rows.chunk_by(|a, b| place(a).job == place(b).job);
    of_a_job
        .map(|rows| {
            let mut processes: Vec<u32> =
                rows.iter().map(|row| row.seen.snapshot.description.pid).collect();
            processes.dedup();
            Job {
                name: place(&rows[0]).job,
                processes: processes.len(),
                ranks: rows.iter().filter_map(|row| place(row).ranks).max(),
                counters: together(rows),
                open: rows.iter().map(|row| row.ever.span).max().unwrap_or_default(),
            }
        })
        .collect()
}

/// Returns the counters of several endpoints, each merged as it prescribes (sum, maximum or
/// minimum), in the order of the first endpoint.
fn together(rows: &[Row]) -> Vec<(Counter, u64)> {
    let mut all: Vec<(Counter, u64)> = Vec::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    for (row, value) in rows.iter().flat_map(|row| row.seen.snapshot.counters()) {
        match place.get(&row.name) {
            Some(at) => all[*at].1 = row.merged(all[*at].1, value),
            None => {
                place.insert(row.name.clone(), all.len());
                all.push((row.clone(), value));
            }
        }
    }
    all
}
