//! Statistics: every counter of an endpoint, flat, when it closes; at the end of the process for
//! endpoints that were left open.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use squall_base::Span;
use squall_engine::{PdcInfo, TransportConfig, TransportCounters};

use crate::ep::{Endpoint, Turns};
use crate::object::PerProcess;
use crate::param::{StatsFormat, StatsSpec, params};

/// What an endpoint counted.
pub(crate) struct Statistics<'a> {
    pub(crate) local: SocketAddr,
    pub(crate) engine: &'a squall_engine::Counters,
    pub(crate) reliability: &'a TransportCounters,
    pub(crate) transport: &'a TransportConfig,
    pub(crate) net: squall_net::Counters,
    pub(crate) contexts: Vec<PdcInfo>,
    pub(crate) turns: Turns,
}

/// A counter's name and value.
type Field = (&'static str, u64);

macro_rules! fields {
    ($into:ident, $from:expr, $($name:literal = $field:ident),* $(,)?) => {
        $($into.push(($name, $from.$field));)*
    };
}

impl Statistics<'_> {
    /// Everything, in a fixed order.
    fn fields(&self) -> Vec<Field> {
        let mut f = Vec::with_capacity(96);
        let (net, pdc, msg) = (&self.net, self.reliability, self.engine);
        fields!(
            f,
            net,
            "tx_packets" = tx_packets,
            "tx_bytes" = tx_bytes,
            "tx_trains" = tx_trains,
            "tx_calls" = tx_calls,
            "tx_blocked" = tx_blocked,
            "tx_failed" = tx_failed,
            "rx_packets" = rx_packets,
            "rx_bytes" = rx_bytes,
            "rx_trains" = rx_trains,
            "rx_calls" = rx_calls,
            "rx_empty" = rx_empty,
            "rx_overflow" = rx_overflow,
            "rx_truncated" = rx_truncated,
            "crc_errors" = crc_errors,
            "icmp_errors" = errors,
            "fault_dropped" = fault_dropped,
            "fault_duplicated" = fault_duplicated,
            "fault_reordered" = fault_reordered,
            "fault_corrupted" = fault_corrupted,
            "fault_delayed" = fault_delayed,
            "fault_trimmed" = fault_trimmed,
            "fault_blackholed" = fault_blackholed,
        );
        f.push(("retransmissions", pdc.retransmissions()));
        fields!(
            f,
            pdc,
            "data_packets" = tx_packets,
            "data_bytes" = tx_bytes,
            "data_trains" = tx_trains,
            "retx_trimmed" = retx_trimmed,
            "retx_nacked" = retx_nacked,
            "retx_out_of_order" = retx_out_of_order,
            "retx_probe" = retx_probe,
            "retx_timeout" = retx_timeout,
            "timeouts" = timeouts,
            "tx_acks" = tx_acks,
            "rx_acks" = rx_acks,
            "tx_probes" = tx_probes,
            "rx_probes" = rx_probes,
            "rx_probe_answers" = rx_probe_answers,
            "rx_duplicates" = rx_duplicates,
            "rx_out_of_order" = rx_out_of_order,
            "rx_ce" = rx_ce,
            "rx_ce_echoes" = rx_ce_echoes,
            "rx_trimmed" = rx_trimmed,
            "rx_out_of_window" = rx_out_of_window,
            "rx_unknown_context" = rx_unknown_context,
            "rx_mismatch" = rx_mismatch,
            "rx_replayed_syn" = rx_replayed_syn,
            "rx_no_context" = rx_no_context,
            "rx_stale" = rx_stale,
            "rx_bad_ack" = rx_bad_ack,
            "contexts_opened" = opened,
            "contexts_accepted" = accepted,
            "contexts_closed" = closed,
            "contexts_failed" = failed,
            "path_freezes" = path_freezes,
            "tx_credits" = tx_credits,
            "rx_credits" = rx_credits,
            "tx_credit_requests" = tx_credit_requests,
            "tx_notifications" = tx_notifications,
            "tx_unsent" = tx_unsent,
            "rx_notifications" = rx_notifications,
            "other_mode" = other_mode,
            "rtt_samples" = rtt_samples,
            "rtt_max_ns" = rtt_max_ns,
        );
        f.push(("rtt_min_ns", if pdc.rtt_samples == 0 { 0 } else { pdc.rtt_min_ns }));
        f.push(("rtt_mean_ns", pdc.rtt_sum_ns.checked_div(pdc.rtt_samples).unwrap_or(0)));
        f.push(("tx_nacks", pdc.tx_nacks.iter().sum()));
        f.push(("rx_nacks", pdc.rx_nacks.iter().sum()));
        fields!(
            f,
            msg,
            "tx_inline" = tx_inline,
            "tx_eager" = tx_eager,
            "tx_rendezvous" = tx_rendezvous,
            "tx_writes" = tx_writes,
            "tx_reads" = tx_reads,
            "tx_payload_bytes" = tx_payload_bytes,
            "rx_expected" = rx_expected,
            "rx_unexpected" = rx_unexpected,
            "rx_payload_bytes" = rx_payload_bytes,
            "unexpected_bytes" = unexpected_bytes,
            "unexpected_bytes_peak" = unexpected_bytes_peak,
            "rx_held_back" = rx_held_back,
            "rx_malformed" = rx_malformed,
            "rx_foreign" = rx_foreign,
            "rx_inconsistent" = rx_inconsistent,
            "rx_access_refused" = rx_access_refused,
            "op_errors" = op_errors,
            "lost_after_completion" = lost_after_completion,
            "tx_answers_cut" = tx_answers_cut,
            "hellos" = hellos,
        );
        let cwnds: Vec<u64> = self.contexts.iter().filter_map(|c| c.cwnd).collect();
        f.push(("contexts", self.contexts.len() as u64));
        f.push(("cwnd_min", cwnds.iter().copied().min().unwrap_or(0)));
        f.push(("cwnd_max", cwnds.iter().copied().max().unwrap_or(0)));
        f.push(("progress_turns", self.turns.all));
        f.push(("progress_idle_turns", self.turns.idle));
        f.push(("progress_stand_ins", self.turns.stand_ins));
        f
    }

    /// What was chosen, by name.
    fn choices(&self) -> [(&'static str, String); 4] {
        let TransportConfig { cc, paths, loss, scope, .. } = self.transport;
        [
            ("cc", cc.name().to_owned()),
            ("lb", paths.name().to_owned()),
            ("loss", loss.to_string()),
            ("scope", scope.to_string()),
        ]
    }

    /// What a context looks like to congestion control, for those that move something.
    fn flow(context: &PdcInfo) -> [Field; 6] {
        let nanos = |span: Option<Span>| span.map_or(0, |span| span.0);
        [
            ("peer", u64::from(context.peer.0)),
            ("cwnd", context.cwnd.unwrap_or(0)),
            ("rate_bps", context.rate.map_or(0, |rate| rate.0)),
            ("srtt_ns", nanos(context.srtt)),
            ("base_rtt_ns", nanos(context.base_rtt)),
            ("avg_delay_ns", nanos(context.avg_delay)),
        ]
    }

    /// NACK counts by code, where there are any.
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

    /// One line.
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
                StatsFormat::Text => write!(line, " {name}={value}"),
                StatsFormat::Json => write!(line, ",\"{name}\":\"{value}\""),
            };
        }
        let named = self.fields().into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in named.chain(self.nacks()) {
            // Writing to a String cannot fail.
            let _ = match format {
                StatsFormat::Text => write!(line, " {name}={value}"),
                StatsFormat::Json => write!(line, ",\"{name}\":{value}"),
            };
        }
        if format == StatsFormat::Json {
            // Flows of a JSON line, for those who want figures of each.
            line.push_str(",\"flows\":[");
            for (i, context) in self.contexts.iter().enumerate() {
                if i > 0 {
                    line.push(',');
                }
                let mut separator = '{';
                for (name, value) in Self::flow(context) {
                    let _ = write!(line, "{separator}\"{name}\":{value}");
                    separator = ',';
                }
                line.push('}');
            }
            line.push_str("]}");
        }
        line.push('\n');
        line
    }
}

/// Fills in %p, %h and %e of a file name.
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

fn hostname() -> String {
    let mut name = [0u8; 256];
    // SAFETY: room for 256 bytes, the last of which stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), 255) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Writes the counters where FI_SQUALL_STATS says.
pub(crate) fn report(number: u32, statistics: &Statistics<'_>) {
    if let Some(spec) = &params().stats {
        write(spec, number, statistics);
    }
}

fn write(spec: &StatsSpec, number: u32, statistics: &Statistics<'_>) {
    let line = statistics.line(spec.format, number);
    match &spec.file {
        // One write call, so that lines of several processes do not mix.
        None => {
            let prefixed =
                if spec.format == StatsFormat::Json { format!("squall {line}") } else { line };
            // SAFETY: a valid buffer; standard error may be closed, which is no concern of ours.
            unsafe { libc::write(2, prefixed.as_ptr().cast(), prefixed.len()) };
        }
        Some(pattern) => {
            let path = expand(pattern, number);
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            if let Err(error) = opened.and_then(|mut file| file.write_all(line.as_bytes())) {
                log::warn!("FI_SQUALL_STATS: cannot write {path}: {error}");
            }
        }
    }
}

/// Enabled endpoints of this process.
static OPEN: PerProcess<Mutex<Vec<Weak<Endpoint>>>> = PerProcess::new();

/// An endpoint was enabled.
pub(crate) fn remember(ep: &Arc<Endpoint>) {
    OPEN.get().lock().push(Arc::downgrade(ep));
}

/// An endpoint closes.
pub(crate) fn forget(ep: &Endpoint) {
    OPEN.get().lock().retain(|other| !core::ptr::eq(other.as_ptr(), ep));
}

/// The process ends: reports endpoints that nobody closed.
pub(crate) fn report_open() {
    let open: Vec<Weak<Endpoint>> = core::mem::take(&mut *OPEN.get().lock());
    for ep in open.iter().filter_map(Weak::upgrade) {
        ep.report();
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
        let flow = PdcInfo {
            peer: squall_engine::PeerKey(3),
            initiator: true,
            outstanding: 0,
            in_flight: 0,
            cwnd: Some(77),
            rate: None,
            avg_delay: None,
            other_mode: false,
            srtt: Some(Span::micros(20)),
            base_rtt: None,
        };
        let statistics = Statistics {
            transport: &transport,
            local: "127.0.0.1:4793".parse().expect("literal"),
            engine: &squall_engine::Counters::default(),
            reliability: &pdc,
            net: squall_net::Counters::default(),
            contexts: vec![flow, flow],
            turns: Turns { all: 5, idle: 4, stand_ins: 3, ..Turns::default() },
        };
        let text = statistics.line(StatsFormat::Text, 2);
        assert!(text.starts_with("squall pid=") && text.ends_with('\n'));
        assert!(text.contains(" ep=2 ") && text.contains(" rx_nack_3=7"), "{text}");
        let json = statistics.line(StatsFormat::Json, 2);
        assert!(json.starts_with('{') && json.ends_with("}\n"));
        assert!(json.contains(
            "\"progress_turns\":5,\"progress_idle_turns\":4,\"progress_stand_ins\":3,\"rx_nack_3\":7,"
        ));
        assert!(json.contains("\"cc\":\"none\",\"lb\":\"single\",\"loss\":\"trim,ooo,probe,rto\""));
        let flow = "{\"peer\":3,\"cwnd\":77,\"rate_bps\":0,\"srtt_ns\":20000,\"base_rtt_ns\":0,\"avg_delay_ns\":0}";
        assert!(json.ends_with(&format!(",\"flows\":[{flow},{flow}]}}\n")), "{json}");
        assert!(text.contains(" cc=none lb=single loss=trim,ooo,probe,rto scope=flow "), "{text}");
        let names: Vec<&str> = statistics.fields().iter().map(|(name, _)| *name).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} twice");
        }
    }
}
