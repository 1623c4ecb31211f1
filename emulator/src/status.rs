//! What a running emulator says about itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::emulation_delay::EmulationDelayReport;
use squall_netsim::model::NetworkOptions;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Since when it runs, s.
    pub uptime_s: f64,
    /// Rate of a host's link, b/s, as scaled.
    pub host_rate: u64,
    /// Round-trip time between the farthest hosts, unloaded, ns, as scaled.
    pub base_rtt_ns: u64,
    /// Rates are multiplied by this.
    pub rate_scale: f64,
    /// Latencies are multiplied by this.
    pub latency_scale: f64,
    /// Largest UDP payload, bytes.
    pub mtu: u32,
    /// What ports and switches are like, with what followed from what was not said; as scaled.
    pub network: NetworkOptions,
    /// How far behind real time deliveries were, all along.
    pub emulation_delay: EmulationDelayReport,
    /// .. in the last second that is over.
    pub emulation_delay_last: EmulationDelayReport,
    /// Seconds in which a packet in a hundred or more was later than a quarter of the round-trip time.
    pub late_seconds: u64,
    /// Who is attached.
    pub endpoints: Vec<EndpointStatus>,
    /// How many ever were.
    #[serde(default)]
    pub attached: u64,
    /// The network's totals.
    pub totals: Totals,
    /// Counters of switch features, by name: `deflection.packets`.
    #[serde(default)]
    pub features: BTreeMap<String, u64>,
    /// Failures in force, in words.
    pub failures: Vec<String>,
    /// Every port, in order of links, both directions of a link next to each other.
    pub ports: Vec<PortStatus>,
}

/// One endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// Its address.
    pub address: String,
    /// The host of the topology that it is.
    pub host: u32,
    /// Its process.
    pub process: u32,
    /// The rank of that, if a launcher gave it one.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Packets it sent.
    pub sent: u64,
    /// UDP payload bytes of those.
    pub sent_bytes: u64,
    /// Packets it got.
    pub received: u64,
    /// UDP payload bytes of those.
    pub received_bytes: u64,
    /// Packets dropped because it did not read.
    pub overflow: u64,
}

/// Counts of the whole network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets that entered.
    pub entered: u64,
    /// Packets that arrived, trimmed ones included.
    pub delivered: u64,
    /// UDP payload bytes that arrived.
    pub delivered_bytes: u64,
    /// Packets on their way.
    pub in_flight: u64,
    /// Marked Congestion Experienced, by ports.
    pub marked: u64,
    /// Trimmed.
    pub trimmed: u64,
    /// Dropped: a queue was full.
    pub queue_full: u64,
    /// Lost: a link or switch was down.
    pub down: u64,
    /// Lost in a black hole.
    pub black_hole: u64,
    /// Lost to bit errors.
    pub corrupt: u64,
    /// Lost: no route to the destination.
    pub no_route: u64,
    /// Dropped: a switch's program wanted it so.
    pub program: u64,
    /// Taken by a switch's program.
    pub consumed: u64,
    /// Copies made by switch programs.
    pub copied: u64,
    /// Packets that arrived with telemetry in them.
    pub telemetry: u64,
    /// Its records: a switch on the way each.
    pub telemetry_records: u64,
    /// Bytes of the queues that packets left behind, by those.
    pub telemetry_queued: u64,
    /// .. of the longest.
    pub telemetry_longest: u32,
    /// Rate packets that arrived with what links had written, on their way there.
    pub rated: u64,
    /// What switches read in packets and ignored, because it made no sense.
    pub ignored: u64,
    /// Sent to an address where nobody is.
    pub nobody: u64,
    /// Longer than the network's packets.
    pub oversize: u64,
    /// Dropped because the receiving process did not read.
    pub overflow: u64,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// `leaf0->spine1`.
    pub name: String,
    /// b/s, as scaled.
    pub rate: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets trimmed.
    pub trimmed: u64,
    /// Packets dropped here or lost on the link.
    pub dropped: u64,
    /// Data bytes that wait now.
    pub queue: u64,
    /// Most that ever waited.
    pub max_queue: u64,
}

/// 3 significant digits and a unit.
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
    /// For people: a page of text.
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
            writeln!(f, "real time was not kept in {} s", self.late_seconds)?;
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
