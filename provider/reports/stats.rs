//! Statistics of an endpoint: the values of all its counters. They are written when the endpoint closes, at an interval
//! if the user asks for it, and at the end of the process for endpoints that were left open.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;

use squall_base::{CounterRow, Merge, Span};
use squall_engine::{FlowRecord, PathRecord, TransportConfig, TransportCounters};
use squall_monitor::{CARD, CARDS, CardValues, PATH, PathValues, card_counter};

use crate::host::logger::USER;
use crate::host::param::{StatsFormat, StatsSpec, params};
use crate::host::standard_error;

squall_base::counters! {
    /// Statistics of the turns in which an endpoint makes progress.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Turns {
        /// Turns by the application, or by a progress thread.
        all: sum "turns" as "progress_turns",
        /// Turns that found nothing to do.
        idle: sum "turns" as "progress_idle_turns",
        /// Turns of background progress, while the application made none.
        stand_ins: sum "turns" as "progress_stand_ins",
        /// Packets that waited for a full socket and were dropped, because their memory had been given back.
        revoked: sum "packets" as "tx_revoked",
    }
}

/// The statistics of an endpoint at one moment.
pub(crate) struct Statistics<'a> {
    pub(crate) local: SocketAddr,
    pub(crate) engine: &'a squall_engine::Counters,
    pub(crate) reliability: &'a TransportCounters,
    pub(crate) transport: &'a TransportConfig,
    pub(crate) net: squall_net::Counters,
    /// Totals of each network card; empty if the endpoint has one.
    pub(crate) rails: Vec<squall_net::RailReport>,
    pub(crate) flows: Vec<FlowRecord>,
    pub(crate) turns: Turns,
    /// Time since the endpoint was enabled.
    pub(crate) open: Span,
}

/// Name and value of a statistic.
type Field = (&'static str, u64);

/// A statistic that is computed from counters.
pub(crate) struct DerivedStatistic {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Rule by which the values of two endpoints are merged; `None` if they cannot be.
    pub(crate) merge: Option<Merge>,
    pub(crate) help: &'static str,
}

impl DerivedStatistic {
    /// Returns the statistic as a counter's row, if the values of two endpoints can be merged.
    pub(crate) fn row(&self) -> Option<CounterRow> {
        let Self { name, unit, merge, help } = *self;
        Some(CounterRow { name, unit, merge: merge?, help })
    }
}

const fn derived(
    name: &'static str,
    unit: &'static str,
    merge: Option<Merge>,
    help: &'static str,
) -> DerivedStatistic {
    DerivedStatistic { name, unit, merge, help }
}

/// The statistics that are computed from counters, in the order of [`Statistics::derived`].
pub(crate) const DERIVED: &[DerivedStatistic] = &[
    derived(
        "retransmissions",
        "packets",
        Some(Merge::Sum),
        "Data packets sent again, for whatever reason.",
    ),
    derived("rtt_mean_ns", "ns", None, "Mean of the round-trip times measured."),
    derived("tx_nacks", "packets", Some(Merge::Sum), "NACKs sent; `tx_nack_N` of them had code N."),
    derived(
        "rx_nacks",
        "packets",
        Some(Merge::Sum),
        "NACKs received; `rx_nack_N` of them had code N.",
    ),
    derived(
        "flows",
        "flows",
        Some(Merge::Sum),
        "Peers and directions there were contexts of. In JSON this is the list of them.",
    ),
    derived(
        "cwnd_min",
        "bytes",
        Some(Merge::Min),
        "Smallest congestion window of any flow, sampled once a round trip.",
    ),
    derived(
        "cwnd_max",
        "bytes",
        Some(Merge::Max),
        "Largest congestion window of any flow, sampled once a round trip.",
    ),
    derived("open_ms", "ms", Some(Merge::Max), "Time since the endpoint was enabled."),
    derived(
        "encrypted",
        "flag",
        Some(Merge::Max),
        "1: packets were sent encrypted. An endpoint encrypts all of its packets or none.",
    ),
];

/// The statistics of a flow, that is, of the contexts between an endpoint and a peer in one direction: name and meaning
/// of each.
pub(crate) const FLOW: &[(&str, &str)] = &[
    ("peer", "The peer's number."),
    (
        "initiator",
        "1: contexts opened here; 0: contexts opened by the peer, on which answers travel.",
    ),
    ("contexts", "Contexts there were."),
    ("packets", "Data packets sent."),
    ("bytes", "Bytes of those."),
    ("retransmissions", "Of the packets, those that were sent again."),
    ("acked_packets", "Data packets acknowledged, each once."),
    ("acked_bytes", "Bytes of those."),
    ("cwnd", "Congestion window, bytes, the last one known; 0 without one."),
    ("cwnd_min", "Smallest window, sampled once a round trip and at the end of a context."),
    ("cwnd_max", "Largest window, likewise."),
    ("srtt_ns", "Smoothed round-trip time, the last one known."),
    ("base_rtt_ns", "Base round-trip time of congestion control, without queueing."),
    ("avg_delay_ns", "Average delay above it, where congestion control keeps one."),
    ("paths", "Number of paths that were used, at most 64."),
    (
        "avoided",
        "Of them, those that path selection avoids because they lost packets (`reps-avoid`), when last known.",
    ),
    (
        "frozen",
        "1: path selection keeps to paths that are known to work, because one failed (`reps`), when last known.",
    ),
];

impl Statistics<'_> {
    /// The tables that describe the counters, in the order of [`Statistics::counters`].
    pub(crate) const TABLES: [&'static [CounterRow]; 4] = [
        squall_net::Counters::ROWS,
        TransportCounters::ROWS,
        squall_engine::Counters::ROWS,
        Turns::ROWS,
    ];

    /// Returns the names and values of the counters, in a fixed order.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Field> {
        let tables = self.net.iter().chain(self.reliability.iter()).chain(self.engine.iter());
        tables.chain(self.turns.iter()).map(|(name, _, value)| (name, value))
    }

    /// Returns the statistics that are computed from counters, in the order of [`DERIVED`].
    pub(crate) fn derived(&self) -> impl Iterator<Item = (&'static DerivedStatistic, u64)> {
        let pdc = self.reliability;
        let (low, high) = self
            .flows
            .iter()
            .filter_map(|flow| flow.cwnd_range)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .unwrap_or_default();
        let values = [
            pdc.retransmissions(),
            pdc.rtt_sum_ns.checked_div(pdc.rtt_samples).unwrap_or(0),
            pdc.tx_nacks.iter().sum(),
            pdc.rx_nacks.iter().sum(),
            self.flows.len() as u64,
            low,
            high,
            self.open.0 / 1_000_000,
            u64::from(self.is_encrypted()),
        ];
        DERIVED.iter().zip(values)
    }

    /// Returns whether the endpoint has sent encrypted packets.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.net.tx_sealed > 0
    }

    /// Returns the names and values of all statistics, in a fixed order.
    fn fields(&self) -> Vec<Field> {
        self.counters().chain(self.derived().map(|(row, value)| (row.name, value))).collect()
    }

    /// Returns the names of the algorithms that the endpoint uses, each with the parameter that selects it.
    pub(crate) fn choices(&self) -> Vec<(&'static str, String)> {
        let TransportConfig { cc, paths, loss, scope, .. } = self.transport;
        let mut choices = vec![
            ("cc", cc.name().to_owned()),
            ("lb", paths.name().to_owned()),
            ("loss", loss.to_string()),
            ("scope", scope.to_string()),
        ];
        if !self.rails.is_empty() {
            let names: Vec<&str> = self.rails.iter().map(|card| card.name.as_str()).collect();
            choices.push((CARDS, names.join(" ")));
        }
        choices
    }

    /// Returns the values of each network card, in the order of [`CARD`]; none if the endpoint has one card.
    pub(crate) fn cards(&self) -> impl Iterator<Item = CardValues> {
        self.rails
            .iter()
            .map(|card| [card.tx_packets, card.tx_bytes, card.rx_packets, card.rx_bytes])
    }

    /// Returns the names and values of the counters of each network card.
    fn named_cards(&self) -> impl Iterator<Item = (String, u64)> {
        self.cards().enumerate().flat_map(|(at, values)| {
            let names = CARD.map(|(name, ..)| card_counter(at, name));
            names.into_iter().zip(values)
        })
    }

    /// Returns the names and values of the statistics of a flow, in the order of [`FLOW`].
    pub(crate) fn flow(flow: &FlowRecord) -> impl Iterator<Item = Field> {
        let nanos = |span: Option<Span>| span.map_or(0, |span| span.0);
        let (low, high) = flow.cwnd_range.unwrap_or_default();
        let values = [
            u64::from(flow.peer.0),
            u64::from(flow.initiator),
            flow.contexts,
            flow.packets,
            flow.bytes,
            flow.retransmissions,
            flow.acked_packets,
            flow.acked_bytes,
            flow.cwnd.unwrap_or(0),
            low,
            high,
            nanos(flow.srtt),
            nanos(flow.base_rtt),
            nanos(flow.avg_delay),
            u64::from(flow.paths()),
            u64::from(flow.avoided.count_ones()),
            u64::from(flow.frozen),
        ];
        FLOW.iter().map(|(name, _)| *name).zip(values)
    }

    /// Returns the statistics of each path of a flow, in the order of [`squall_monitor::PATH`].
    pub(crate) fn paths(flow: &FlowRecord) -> impl Iterator<Item = PathValues> + use<> {
        let values = |path: PathRecord| [path.packets, path.marks.into(), path.lost.into()];
        flow.by_path().into_iter().map(values)
    }

    /// Returns the numbers of NACKs by code, for the codes that occurred.
    fn nacks(&self) -> Vec<(String, u64)> {
        let pdc = self.reliability;
        let each = [("tx_nack_", &pdc.tx_nacks), ("rx_nack_", &pdc.rx_nacks)];
        each.into_iter()
            .flat_map(|(name, counts)| {
                let some = counts.iter().enumerate().filter(|(_, n)| **n > 0);
                some.map(move |(code, n)| (format!("{name}{code}"), *n))
            })
            .collect()
    }

    /// Returns the statistics of the paths that a flow has used, as JSON objects.
    fn path_list(flow: &FlowRecord) -> String {
        let used = Self::paths(flow).enumerate().filter(|(_, [packets, ..])| *packets > 0);
        let object = |(path, values): (usize, PathValues)| {
            let named =
                PATH.iter().zip(values).map(|((name, _), value)| format!(",\"{name}\":{value}"));
            format!("{{\"path\":{path}{}}}", named.collect::<String>())
        };
        used.map(object).collect::<Vec<_>>().join(",")
    }

    /// Returns the statistics as one line in this format.
    fn line(&self, format: StatsFormat, number: u32) -> String {
        let pid = std::process::id();
        let mut line = match format {
            StatsFormat::Text => format!("squall pid={pid} ep={number} local={}", self.local),
            StatsFormat::Json => {
                format!("{{\"pid\":{pid},\"ep\":{number},\"local\":\"{}\"", self.local)
            }
        };
        for (name, value) in self.choices() {
            let _ = match format {
                StatsFormat::Text => write!(line, " {name}={}", value.replace(' ', ",")),
                StatsFormat::Json => write!(line, ",\"{name}\":\"{value}\""),
            };
        }
        let named = self.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in named.chain(self.nacks()).chain(self.named_cards()) {
            if format == StatsFormat::Json && name == "flows" {
                continue;
            }
            // Writing to a String cannot fail.
            let _ = match format {
                StatsFormat::Text => write!(line, " {name}={value}"),
                StatsFormat::Json => write!(line, ",\"{name}\":{value}"),
            };
        }
        if format == StatsFormat::Json {
            // Flows of a JSON line, for those who want figures of each.
            line.push_str(",\"flows\":[");
            for (i, flow) in self.flows.iter().enumerate() {
                if i > 0 {
                    line.push(',');
                }
                let mut separator = '{';
                for (name, value) in Self::flow(flow) {
                    let _ = write!(line, "{separator}\"{name}\":{value}");
                    separator = ',';
                }
                line.push_str(",\"by_path\":[");
                line.push_str(&Self::path_list(flow));
                line.push_str("]}");
            }
            line.push_str("]}");
        }
        line.push('\n');
        line
    }
}

/// Replaces %p, %h and %e in a file name by process ID, host name and endpoint number.
pub(crate) fn expand(pattern: &str, number: u32) -> String {
    let mut name = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('p')) => name.push_str(&std::process::id().to_string()),
            ('%', Some('h')) => name.push_str(&hostname()),
            ('%', Some('e')) => name.push_str(&number.to_string()),
            ('%', Some('%')) => name.push('%'),
            ('%', Some(other)) => name.extend(['%', other]),
            (other, _) => name.push(other),
        }
    }
    name
}

pub(crate) fn hostname() -> String {
    let mut name = [0u8; 256];
    // SAFETY: room for 256 bytes, the last of which stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), 255) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Writes the statistics where the parameter FI_SQUALL_STATS says.
pub(crate) fn report(number: u32, statistics: &Statistics<'_>) {
    if let Some(spec) = &params().stats {
        write(spec, number, statistics);
    }
}

fn write(spec: &StatsSpec, number: u32, statistics: &Statistics<'_>) {
    let line = statistics.line(spec.format, number);
    match &spec.file {
        None => standard_error::write_line(&line),
        Some(pattern) => {
            let path = expand(pattern, number);
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            if let Err(error) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
                log::warn!(target: USER, "FI_SQUALL_STATS: cannot write {path}: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_cc as cc;

    #[test]
    fn patterns_expand() {
        let pid = std::process::id();
        assert_eq!(expand("a.%p.%e.%%.%x", 3), format!("a.{pid}.3.%.%x"));
        assert!(!expand("%h", 0).is_empty() && !expand("%h", 0).contains('%'));
        assert_eq!(expand("tail%", 1), "tail%");
    }

    #[test]
    fn lines_are_flat_and_complete() {
        let mut pdc = TransportCounters::default();
        pdc.rx_nacks[3] = 7;
        let transport = TransportConfig::new(
            4096,
            cc::SenderConfig::fixed(1 << 20),
            cc::PathsConfig::single(1).expect("a path"),
            1,
        );
        let mut flow = FlowRecord::new(squall_engine::PeerKey(3), true);
        (flow.cwnd, flow.cwnd_range) = (Some(77), Some((70, 99)));
        (flow.srtt, flow.path_bits) = (Some(Span::micros(20)), 0b101);
        (flow.avoided, flow.frozen) = (0b100, true);
        let mut other = flow.clone();
        other.cwnd_range = Some((60, 80));
        let mut net = squall_net::Counters::default();
        net.tx_sealed = 9;
        let card = |name: &str, n: u64| squall_net::RailReport {
            name: name.to_owned(),
            ip: [127, 0, 0, 1].into(),
            tx_packets: n,
            tx_bytes: n + 1,
            rx_packets: n + 2,
            rx_bytes: n + 3,
        };
        let statistics = Statistics {
            transport: &transport,
            local: "127.0.0.1:4793".parse().expect("literal"),
            engine: &squall_engine::Counters::default(),
            reliability: &pdc,
            net,
            rails: vec![card("eth0", 1), card("eth1", 10)],
            flows: vec![flow, other],
            turns: Turns { all: 5, idle: 4, stand_ins: 3, revoked: 2 },
            open: Span::millis(1500),
        };
        let text = statistics.line(StatsFormat::Text, 2);
        assert!(text.starts_with("squall pid=") && text.ends_with('\n'));
        assert!(text.contains(" ep=2 ") && text.contains(" rx_nack_3=7"), "{text}");
        let json = statistics.line(StatsFormat::Json, 2);
        assert!(json.starts_with('{') && json.ends_with("}\n"));
        assert!(
            json.contains(
                "\"progress_turns\":5,\"progress_idle_turns\":4,\"progress_stand_ins\":3,\"tx_revoked\":2,"
            )
        );
        assert!(
            json.contains(
                ",\"cwnd_min\":60,\"cwnd_max\":99,\"open_ms\":1500,\"encrypted\":1,\"rx_nack_3\":7,"
            ),
            "{json}"
        );
        assert!(
            text.contains(" flows=2 cwnd_min=60 cwnd_max=99 open_ms=1500 encrypted=1 "),
            "{text}"
        );
        assert!(
            json.contains("\"cc\":\"none\",\"lb\":\"single\",\"loss\":\"trim,ooo,path,probe,rto\"")
        );
        let list = json.split_once(",\"flows\":[").expect("a list of flows").1;
        assert_eq!(list.matches("\"peer\":3,\"initiator\":1,").count(), 2, "{list}");
        assert!(list.contains("\"cwnd\":77,\"cwnd_min\":70,\"cwnd_max\":99,\"srtt_ns\":20000,"));
        let end = "\"paths\":2,\"avoided\":1,\"frozen\":1,\"by_path\":[]}";
        assert!(
            list.contains(&format!("{end},{{")) && list.ends_with(&format!("{end}]}}\n")),
            "{list}"
        );
        assert_eq!(json.matches("\"flows\"").count(), 1, "once in an object");
        assert!(
            text.contains(" cc=none lb=single loss=trim,ooo,path,probe,rto scope=flow "),
            "{text}"
        );
        assert!(json.contains(",\"rails\":\"eth0 eth1\",") && text.contains(" rails=eth0,eth1 "));
        let second = "\"card1_tx_packets\":10,\"card1_tx_bytes\":11,\"card1_rx_packets\":12,\"card1_rx_bytes\":13,";
        assert!(json.contains(second) && text.contains(" card0_rx_bytes=4 "), "{json}");
        let names: Vec<&str> = statistics.fields().iter().map(|(name, _)| *name).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} twice");
        }
    }
}
