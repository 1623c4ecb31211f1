//! Results as a timeline for ui.perfetto.dev or chrome://tracing: the JSON of Chrome's [trace event
//! format].
//!
//! A run is a process, a sending host one of its threads, and a message a slice of that thread from
//! its start until its sender knew that it had arrived. Concurrent messages of a host are on
//! further threads of that host. Queues, links and windows are counters; events of the network are
//! instants of the whole process.
//!
//! [trace event format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{FlowResult, Run, SeriesKind};

/// An event in Chrome's trace event format, under the names of the format. Times are in
/// microseconds.
#[derive(Serialize)]
struct Entry<'a> {
    /// Kind of the event, which the format calls its phase.
    ph: &'static str,
    pid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// Scope of an instant event: `p` for the whole process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn new(ph: &'static str, pid: usize, name: &'a str) -> Self {
        let (tid, ts, dur, cat, s) = (None, None, None, None, None);
        Self { ph, pid, tid, ts, dur, name, cat, s, args: Map::new() }
    }

    fn arg(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.args.insert(name.to_owned(), value.into());
        self
    }
}

/// Writes runs as one timeline.
///
/// # Errors
/// Returns an error if writing failed.
pub fn perfetto(runs: &[Run], to: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { to, any: false };
    events.to.write_all(b"{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    let made = super::files::provenance(runs).map_or_else(|| json!({}), |made| json!(made));
    serde_json::to_writer(&mut *events.to, &made)?;
    events.to.write_all(b",\"traceEvents\":[\n")?;
    // Numbers begin at 1, because process 0 is the idle process in the viewer.
    for (pid, run) in (1..).zip(runs) {
        let name = if run.name.is_empty() { "run" } else { &run.name };
        events.write(&Entry::new("M", pid, "process_name").arg("name", name))?;
        flows(pid, run, &mut events)?;
        series(pid, run, &mut events)?;
        for event in &run.events {
            let mut entry = Entry::new("i", pid, &event.what);
            (entry.ts, entry.s) = (Some(event.at_us), Some("p"));
            events.write(&entry)?;
        }
    }
    events.to.write_all(b"\n]}\n")
}

/// A JSON array of trace events that is written piece by piece, because results may be long.
struct Events<'a> {
    to: &'a mut dyn Write,
    any: bool,
}

impl Events<'_> {
    fn write(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.any, true) {
            self.to.write_all(b",\n")?;
        }
        Ok(serde_json::to_writer(&mut *self.to, entry)?)
    }
}

/// Writes the messages that started, each on a thread of its host that is free at that time.
fn flows(pid: usize, run: &Run, events: &mut Events<'_>) -> io::Result<()> {
    let started = run.flows.iter().filter_map(|flow| Some((flow.start_us?, flow)));
    let mut started: Vec<(f64, &FlowResult)> = started.collect();
    started.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    // For each host, the time until which each of its threads is busy.
    let mut hosts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut lanes = Vec::with_capacity(started.len());
    for (start, flow) in &started {
        let ends = flow.fct_us.map_or(f64::INFINITY, |took| start + took);
        let busy = hosts.entry(flow.src).or_default();
        let lane = busy.iter().position(|until| until <= start).unwrap_or(busy.len());
        if lane == busy.len() {
            busy.push(ends);
        } else {
            busy[lane] = ends;
        }
        lanes.push(lane);
    }
    let mut firsts = BTreeMap::new();
    let mut tid = 1;
    for (host, busy) in &hosts {
        firsts.insert(*host, tid);
        for lane in 0..busy.len() {
            let name = if lane == 0 {
                format!("host {host}")
            } else {
                format!("host {host}, {}", lane + 1)
            };
            let mut entry = Entry::new("M", pid, "thread_name").arg("name", name);
            entry.tid = Some(tid);
            events.write(&entry)?;
            let mut entry = Entry::new("M", pid, "thread_sort_index").arg("sort_index", tid);
            entry.tid = Some(tid);
            events.write(&entry)?;
            tid += 1;
        }
    }
    for ((start, flow), lane) in started.into_iter().zip(lanes) {
        let name = format!("to host {}", flow.dst);
        // A message without an end has only a begin event, and extends to the end of the timeline.
        let mut entry = Entry::new(if flow.fct_us.is_some() { "X" } else { "B" }, pid, &name);
        (entry.ts, entry.dur, entry.cat) = (Some(start), flow.fct_us, Some("message"));
        entry.tid = firsts.get(&flow.src).map(|first| first + lane);
        entry = entry.arg("flow", flow.id).arg("bytes", flow.bytes);
        entry = entry.arg("retransmitted", flow.retransmitted);
        if let Some(received) = flow.received_us {
            entry = entry.arg("received_us", received);
        }
        if let Some(reason) = &flow.reason {
            entry = entry.arg("reason", reason.as_str());
        }
        events.write(&entry)?;
    }
    Ok(())
}

fn series(pid: usize, run: &Run, events: &mut Events<'_>) -> io::Result<()> {
    for series in &run.series {
        let (kind, unit) = match series.kind {
            SeriesKind::Queue => ("queue", "bytes"),
            SeriesKind::Window => ("window", "bytes"),
            SeriesKind::Throughput => ("throughput", "Gb/s"),
            SeriesKind::Load => ("load", "Gb/s"),
            SeriesKind::Jain => ("Jain's index", "index"),
            SeriesKind::Rate => ("rate", "Gb/s"),
        };
        let name = format!("{kind} of {}", series.name);
        for &(at, value) in &series.points {
            let mut entry = Entry::new("C", pid, &name).arg(unit, value);
            entry.ts = Some(at);
            events.write(&entry)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Event, Series};

    fn flow(id: u32, src: u32, start: f64, took: Option<f64>) -> FlowResult {
        FlowResult {
            id,
            src,
            dst: 9,
            bytes: 100,
            start_us: Some(start),
            fct_us: took,
            ..FlowResult::default()
        }
    }

    #[test]
    fn slices_of_a_thread_do_not_overlap_and_everything_is_there() {
        let run = Run {
            name: "nscc".into(),
            flows: vec![
                flow(1, 3, 0.0, Some(10.0)),
                flow(2, 3, 5.0, Some(10.0)),
                flow(3, 3, 10.0, Some(1.0)),
                flow(4, 0, 1.0, None),
                FlowResult { id: 5, ..FlowResult::default() },
            ],
            series: vec![Series {
                kind: SeriesKind::Queue,
                name: "leaf0-spine0".into(),
                points: vec![(1.0, 64.0), (2.0, 0.0)],
            }],
            events: vec![Event { at_us: 3.0, what: "fail-link leaf0-spine0".into() }],
            ..Run::default()
        };
        let mut text = Vec::new();
        perfetto(&[run], &mut text).expect("memory");
        let parsed: Value = serde_json::from_slice(&text).expect("JSON");
        let events = parsed["traceEvents"].as_array().expect("an array");
        let of = |phase: &str| -> Vec<&Value> {
            events.iter().filter(|event| event["ph"] == phase).collect()
        };
        let slices: Vec<(i64, f64, f64)> = of("X")
            .iter()
            .map(|event| {
                let number = |key: &str| event[key].as_f64().expect("a number");
                (event["tid"].as_i64().expect("a thread"), number("ts"), number("dur"))
            })
            .collect();
        // Host 0 has thread 1, host 3 has 2 and 3; the third message of host 3 begins when the
        // first has ended.
        assert_eq!(slices, [(2, 0.0, 10.0), (3, 5.0, 10.0), (2, 10.0, 1.0)]);
        assert_eq!(of("B")[0]["tid"], 1);
        let names: Vec<&Value> = of("M")
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| &event["args"]["name"])
            .collect();
        assert_eq!(names, ["host 0", "host 3", "host 3, 2"]);
        let counters = of("C");
        assert_eq!(counters.len(), 2);
        assert_eq!(counters[0]["name"], "queue of leaf0-spine0");
        assert_eq!(counters[0]["args"]["bytes"], 64.0);
        assert_eq!(of("i")[0]["name"], "fail-link leaf0-spine0");
        // Messages that never started are left out.
        assert!(!events.iter().any(|event| event["args"]["flow"] == 5));
    }
}
