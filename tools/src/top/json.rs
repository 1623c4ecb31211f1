//! Writes endpoints and jobs as one JSON document for scripts.

use serde_json::{Map, Value, json};
use squall_monitor::{PATH, PathValues};

use super::rates::{Job, Row};
use super::why::why;

/// Returns the counters of each path that a flow used, as JSON.
fn paths(paths: Vec<PathValues>) -> Value {
    let used = paths.into_iter().enumerate().filter(|(_, [packets, ..])| *packets > 0);
    let object = |(path, values): (usize, PathValues)| {
        let named = PATH.iter().zip(values);
        let mut object: Map<String, Value> =
            named.map(|((name, _), value)| ((*name).to_owned(), value.into())).collect();
        object.insert("path".into(), path.into());
        Value::Object(object)
    };
    used.map(object).collect()
}

fn endpoint(row: &Row) -> Value {
    let shown = &row.seen.snapshot;
    let of = &shown.description;
    let counters: Map<String, Value> =
        shown.counters().map(|(row, value)| (row.name.clone(), value.into())).collect();
    let flow = |flow: &Vec<u64>| {
        let named = of
            .flow
            .iter()
            .zip(flow)
            .filter(|(name, _)| !squall_monitor::ADDRESS.contains(&name.as_str()))
            .filter(|(name, _)| !squall_monitor::is_path_word(name));
        let mut named: Map<String, Value> =
            named.map(|(name, value)| (name.clone(), (*value).into())).collect();
        let words = squall_monitor::ADDRESS.map(|name| shown.flow_value(flow, name).unwrap_or(0));
        named.insert("by_path".into(), paths(shown.path_values(flow)));
        named
            .insert("address".into(), squall_monitor::address_from_words(words).to_string().into());
        Value::Object(named)
    };
    let choices: Map<String, Value> =
        of.choices.iter().map(|(name, chosen)| (name.clone(), chosen.clone().into())).collect();
    json!({
        "job": of.place.job, "rank": of.place.rank, "ranks": of.place.ranks,
        "pid": of.pid, "endpoint": of.endpoint, "program": of.program, "host": of.host,
        "local": of.local, "interface": of.interface, "version": of.version, "choices": choices,
        "alive": row.seen.alive, "torn": shown.torn,
        "age_ms": row.seen.age.0 / 1_000_000, "open_ms": row.ever.span.0 / 1_000_000,
        "why": why(row), "counters": counters,
        "flow_count": shown.flow_count, "flows": shown.flows.iter().map(flow).collect::<Vec<_>>(),
    })
}

fn job(job: &Job) -> Value {
    let counters: Map<String, Value> =
        job.counters.iter().map(|(row, value)| (row.name.clone(), (*value).into())).collect();
    json!({
        "job": job.name, "processes": job.processes, "ranks": job.ranks,
        "open_ms": job.open.0 / 1_000_000, "counters": counters,
    })
}

/// Returns the JSON document with all endpoints and jobs.
pub(super) fn document(rows: &[Row], jobs: &[Job]) -> Value {
    json!({
        "endpoints": rows.iter().map(endpoint).collect::<Vec<_>>(),
        "jobs": jobs.iter().map(job).collect::<Vec<_>>(),
    })
}
