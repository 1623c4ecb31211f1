//! The status that a running emulator reports.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::emulation_delay::EmulationDelayReport;
use squall_netsim::model::NetworkOptions;

/// The complete status of a running emulator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Time since the emulator started, s.
    pub uptime_s: f64,
    /// Number of hosts; 0 from an emulator that does not report it.
    #[serde(default)]
    pub hosts: u32,
    /// Rate of a host's link, b/s, as scaled.
    pub host_rate: u64,
    /// Round-trip time between the farthest hosts, unloaded, ns, as scaled.
    pub base_rtt_ns: u64,
    /// Factor by which all rates of the network are multiplied.
    pub rate_scale: f64,
    /// Factor by which all latencies of the network are multiplied.
    pub latency_scale: f64,
    /// Largest UDP payload of a packet, bytes.
    pub mtu: u32,
    /// The options of ports and switches, as scaled, with the values derived for options that the
    /// user left out.
    pub network: NetworkOptions,
    /// Delay of deliveries behind real time since the start.
    pub emulation_delay: EmulationDelayReport,
    /// Delay of deliveries behind real time in the last complete second.
    pub emulation_delay_last: EmulationDelayReport,
    /// Seconds in which a packet in a hundred or more was later than a quarter of the round-trip
    /// time.
    pub late_seconds: u64,
    /// The endpoints that are attached now.
    pub endpoints: Vec<EndpointStatus>,
    /// Number of endpoints that have attached since the emulator started.
    #[serde(default)]
    pub attached: u64,
    /// Packet counts of the whole network.
    pub totals: Totals,
    /// Counters of switch features, by name: `deflection.packets`.
    #[serde(default)]
    pub features: BTreeMap<String, u64>,
    /// Failures in force, each as the command that caused it.
    pub failures: Vec<String>,
    /// All ports in order of links; the two directions of a link are adjacent.
    pub ports: Vec<PortStatus>,
}

/// An attached endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// The endpoint's address.
    pub address: String,
    /// The host of the topology in whose place the endpoint is.
    pub host: u32,
    /// The endpoint's process ID.
    pub process: u32,
    /// The rank of the process, if a launcher gave it one.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Packets that the endpoint sent into the network.
    pub sent: u64,
    /// UDP payload bytes that the endpoint sent.
    pub sent_bytes: u64,
    /// Packets that the network delivered to the endpoint.
    pub received: u64,
    /// UDP payload bytes that the endpoint received.
    pub received_bytes: u64,
    /// Packets dropped because the endpoint's process did not read its socket in time.
    pub overflow: u64,
}

/// Packet counts of the whole network since the emulator started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets that entered the network.
    pub entered: u64,
    /// Packets that arrived at their hosts, trimmed ones included.
    pub delivered: u64,
    /// UDP payload bytes that arrived at their hosts.
    pub delivered_bytes: u64,
    /// Packets in the network now.
    pub in_flight: u64,
    /// Packets that ports marked Congestion Experienced.
    pub marked: u64,
    /// Packets that ports trimmed.
    pub trimmed: u64,
    /// Packets dropped because a data or control queue was full.
    pub queue_full: u64,
    /// Packets lost because a link or switch was down.
    pub down: u64,
    /// Packets lost in a black hole.
    pub black_hole: u64,
    /// Packets lost to bit errors.
    pub corrupt: u64,
    /// Packets lost because there was no route to the destination.
    pub no_route: u64,
    /// Packets that a switch's program dropped.
    pub program: u64,
    /// Packets that a switch's program consumed.
    pub consumed: u64,
    /// Copies of packets that switch programs made.
    pub copied: u64,
    /// Packets that arrived with telemetry in them.
    pub telemetry: u64,
    /// Telemetry records in those packets, one per switch on the route.
    pub telemetry_records: u64,
    /// Sum of the queue lengths in these telemetry records, bytes.
    pub telemetry_queued: u64,
    /// Longest queue in these telemetry records, bytes.
    pub telemetry_longest: u32,
    /// Rate packets that arrived with values that links wrote on the route.
    pub rated: u64,
    /// Packet options that switches ignored because their content was invalid.
    pub ignored: u64,
    /// Packets sent to an address at which no endpoint is attached.
    pub nobody: u64,
    /// Packets dropped because they were longer than the network's MTU.
    pub oversize: u64,
    /// Packets dropped because the receiving process did not read its socket in time.
    pub overflow: u64,
}

/// A port of the network and its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The port's name, such as `leaf0->spine1`.
    pub name: String,
    /// The port's rate, b/s, as scaled.
    pub rate: u64,
    /// Packets that the port sent.
    pub packets: u64,
    /// Bytes that the port sent.
    pub bytes: u64,
    /// Packets that the port marked Congestion Experienced.
    pub marked: u64,
    /// Packets that the port trimmed.
    pub trimmed: u64,
    /// Packets that the port dropped, or that its link lost.
    pub dropped: u64,
    /// Data bytes in the port's queue now.
    pub queue: u64,
    /// Largest number of data bytes that were in the port's queue at a time.
    pub max_queue: u64,
}

/// Formats a value with three significant digits and a unit.
fn scaled(value: f64, units: [&str; 4]) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 1000.0 && unit < 3 {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value >= 100.0 || unit == 0 && value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}

fn rate(bits: u64) -> String {
    scaled(bits as f64, ["b/s", "kb/s", "Mb/s", "Gb/s"])
}

fn bytes(n: u64) -> String {
    scaled(n as f64, ["B", "kB", "MB", "GB"])
}

fn time(ns: u64) -> String {
    scaled(ns as f64, ["ns", "us", "ms", "s"])
}

impl fmt::Display for Status {
    /// Formats the status as a page of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        writeln!(
            f,
            "up {:.0} s; hosts at {}, round trip {}, packets of {} bytes; rates x {}, latencies x {}",
            self.uptime_s,
            rate(self.host_rate),
            time(self.base_rtt_ns),
            self.mtu,
            self.rate_scale,
            self.latency_scale,
        )?;
        writeln!(f, "network: {}", self.network)?;
        let delay = |l: &EmulationDelayReport| {
            format!("mean {}, 99 % {}, most {}", time(l.mean_ns), time(l.p99_ns), time(l.max_ns))
        };
        let (all, last) = (delay(&self.emulation_delay), delay(&self.emulation_delay_last));
        writeln!(f, "emulation delay: {all}; last second: {last}")?;
        if self.late_seconds > 0 {
            writeln!(f, "the emulator was behind real time in {} s", self.late_seconds)?;
        }
        writeln!(
            f,
            "packets: {} entered, {} arrived ({}), {} under way; {} marked, {} trimmed",
            t.entered,
            t.delivered,
            bytes(t.delivered_bytes),
            t.in_flight,
            t.marked,
            t.trimmed
        )?;
        writeln!(
            f,
            "lost: {} queue full, {} link down, {} black hole, {} bit errors, {} no route, \
             {} nobody there, {} too long, {} not read, {} by switch programs",
            t.queue_full,
            t.down,
            t.black_hole,
            t.corrupt,
            t.no_route,
            t.nobody,
            t.oversize,
            t.overflow,
            t.program
        )?;
        if t.telemetry > 0 {
            let per = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
            writeln!(
                f,
                "telemetry: {} packets; {:.2} switches a packet, queues behind them of {:.0} bytes, {} at most",
                t.telemetry,
                per(t.telemetry_records, t.telemetry),
                per(t.telemetry_queued, t.telemetry_records),
                t.telemetry_longest
            )?;
        }
        if t.rated + t.ignored > 0 {
            writeln!(
                f,
                "rates: {} packets asked for them; {} times what packets said made no sense",
                t.rated, t.ignored
            )?;
        }
        for (name, count) in &self.features {
            writeln!(f, "{name}: {count}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failure: {failure}")?;
        }
        writeln!(
            f,
            "\n{:>4} {:>5}  {:<24} {:>8} {:>12} {:>12}",
            "host", "rank", "endpoint", "process", "sent", "received"
        )?;
        for e in &self.endpoints {
            writeln!(
                f,
                "{:>4} {:>5}  {:<24} {:>8} {:>12} {:>12}",
                e.host,
                e.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
                e.address,
                e.process,
                bytes(e.sent_bytes),
                bytes(e.received_bytes)
            )?;
        }
        writeln!(
            f,
            "\n{:<20} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10}",
            "port", "rate", "packets", "bytes", "marked", "trimmed", "dropped", "max queue"
        )?;
        for p in &self.ports {
            writeln!(
                f,
                "{:<20} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10}",
                p.name,
                rate(p.rate),
                p.packets,
                bytes(p.bytes),
                p.marked,
                p.trimmed,
                p.dropped,
                bytes(p.max_queue)
            )?;
        }
        Ok(())
    }
}
