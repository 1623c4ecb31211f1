//! Renders a page of text: jobs, then endpoints, then a sentence about each.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use squall_monitor::{CARDS, PathValues, card_counter};

use super::rates::{Job, Row};
use super::why::why;

/// Formats a value with three significant digits and a unit.
pub(super) fn scaled(value: f64) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit < 4 {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        v if v >= 99.5 || (unit == 0 && v.fract() == 0.0) => 0,
        v if v >= 9.95 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{}", ["", "k", "M", "G", "T"][unit])
}

/// Formats nanoseconds as us or ms; `-` for zero.
fn duration(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        ns if ns < 1_000_000 => format!("{}us", scaled((ns as f64 / 100.0).round() / 10.0)),
        ns => format!("{}ms", scaled((ns as f64 / 1e5).round() / 10.0)),
    }
}

/// Headings of the columns of the table of endpoints.
pub(super) const COLUMNS: [&str; 12] = [
    "rank",
    "pid",
    "ep",
    "program",
    "sent B/s",
    "recv B/s",
    "ops/s",
    "round trip",
    "marked",
    "resent",
    "trimmed/s",
    "host/s",
];

/// Returns the cells of an endpoint's row in the table of endpoints.
pub(super) fn cells(row: &Row) -> [String; 12] {
    let of = &row.seen.snapshot.description;
    let counts = &row.lately;
    let rate = |name: &str| scaled(counts.per_second(counts.of(name)));
    [
        of.place.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        if row.seen.alive { of.pid.to_string() } else { format!("{} gone", of.pid) },
        of.endpoint.to_string(),
        of.program.clone(),
        rate("tx_payload_bytes"),
        rate("rx_payload_bytes"),
        scaled(counts.per_second(counts.operations())),
        duration(counts.round_trip().map_or(0, |span| span.0)),
        format!("{:.1} %", counts.marked() * 100.0),
        format!("{:.2} %", counts.resent() * 100.0),
        rate("rx_trimmed"),
        // These records go to endpoints of this host and do not cross the network.
        rate("shm_tx_records"),
    ]
}

/// Headings of the columns of the table of flows.
pub(super) const FLOW_COLUMNS: [&str; 9] =
    ["peer", "opened by", "B/s", "resent", "window", "round trip", "base", "paths", "% by path"];

/// Returns the share of a flow's packets on each path, in percent. `!` marks a path that lost more
/// than 1 % of its packets.
fn shares(paths: &[PathValues]) -> String {
    let all: u64 = paths.iter().map(|[packets, ..]| packets).sum();
    let share = |[packets, _, lost]: &PathValues| {
        let mark = if lost * 100 > *packets { "!" } else { "" };
        format!("{:.0}{mark}", *packets as f64 * 100.0 / all.max(1) as f64)
    };
    let used = paths.iter().any(|[packets, ..]| *packets > 0);
    if used { paths.iter().map(share).collect::<Vec<_>>().join(" ") } else { "-".to_owned() }
}

/// Returns how many paths a flow uses, and how many its path selector avoids.
fn used(value: impl Fn(&str) -> u64) -> String {
    let mut words = value("paths").to_string();
    if value("avoided") > 0 {
        words.push_str(&format!(", {} avoided", value("avoided")));
    }
    if value("frozen") > 0 {
        words.push_str(", frozen");
    }
    words
}

/// Returns the cells of a flow's row in the table of flows.
pub(super) fn flow_cells(row: &Row, index: usize) -> [String; 9] {
    let shown = &row.seen.snapshot;
    let flow = &shown.flows[index];
    let value = |name: &str| shown.flow_value(flow, name).unwrap_or(0);
    let address = squall_monitor::ADDRESS.map(&value);
    let resent = value("retransmissions") as f64 / value("packets").max(1) as f64;
    let span = |name: &str| duration(value(name));
    let bytes = row.flow_bytes.get(index).copied().unwrap_or(0);
    [
        squall_monitor::address_from_words(address).to_string(),
        if value("initiator") == 1 { "us" } else { "peer" }.to_owned(),
        scaled(row.lately.per_second(bytes)),
        format!("{:.2} %", resent * 100.0),
        scaled(value("cwnd") as f64),
        span("srtt_ns"),
        span("base_rtt_ns"),
        used(value),
        shares(&shown.path_values(flow)),
    ]
}

/// Returns what each network card of an endpoint with several sends, as the end of a sentence; empty for one card.
pub(super) fn cards(row: &Row) -> String {
    let choices = &row.seen.snapshot.description.choices;
    let Some((_, names)) = choices.iter().find(|(name, _)| name == CARDS) else {
        return String::new();
    };
    let rate = |(card, name): (usize, &str)| {
        let bytes = row.lately.of(&card_counter(card, "tx_bytes"));
        format!("{name} {}", scaled(row.lately.per_second(bytes)))
    };
    let rates: Vec<String> = names.split(' ').enumerate().map(rate).collect();
    format!("; cards send {} B/s", rates.join(", "))
}

/// Returns a line that sums up a job.
pub(super) fn headline(job: &Job) -> String {
    let value =
        |name: &str| job.counters.iter().find(|(row, _)| row.name == name).map_or(0, |(_, v)| *v);
    let name = if job.name.is_empty() { "no job" } else { &job.name };
    let ranks = job.ranks.map_or_else(String::new, |ranks| format!(" of {ranks}"));
    let resent = value("retransmissions") as f64 / value("data_packets").max(1) as f64;
    // An endpoint encrypts all of its packets or none.
    let encrypted = if value("tx_sealed") > 0 { ", encrypted" } else { "" };
    format!(
        "{name}: {}{ranks} processes, {:.0} s; sent {}B, received {}B, {:.2} % of the packets again, {} time-outs{encrypted}",
        job.processes,
        job.open.0 as f64 / 1e9,
        scaled(value("tx_payload_bytes") as f64),
        scaled(value("rx_payload_bytes") as f64),
        resent * 100.0,
        value("timeouts"),
    )
}

/// Returns the whole page of text.
pub(super) fn page(rows: &[Row], jobs: &[Job]) -> String {
    let mut page = String::new();
    for job in jobs {
        page.push_str(&headline(job));
        page.push('\n');
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(COLUMNS);
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        table.add_row(cells(row));
    }
    page.push_str(&table.to_string());
    page.push('\n');
    for row in rows {
        let of = &row.seen.snapshot.description;
        let encrypts = row.seen.snapshot.counter("tx_sealed") > 0;
        let state = if encrypts { ", encrypted" } else { "" };
        let (pid, endpoint, local) = (of.pid, of.endpoint, &of.local);
        page.push_str(&format!("{pid}.{endpoint} at {local}{state}: {}{}\n", why(row), cards(row)));
    }
    page
}
