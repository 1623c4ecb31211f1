//! Comparison of recorded times with simulated ones.

use super::{Message, Recording};
use crate::output::text::{number, table};
use crate::output::{FlowResult, Run};

/// Size classes of messages: upper limit in bytes, and name.
const SIZES: &[(u64, &str)] = &[
    (1 << 10, "up to 1 KiB"),
    (16 << 10, "to 16 KiB"),
    (256 << 10, "to 256 KiB"),
    (u64::MAX, "longer"),
];

/// A recording, and its simulation over another network.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Recording of the job, with the times that its messages took.
    pub recording: &'a Recording,
    /// The simulation of the recording's workload.
    pub run: &'a Run,
}

/// Returns the mean and the 99th percentile of `times` as text; dashes if there are no times.
fn figures(mut times: Vec<f64>) -> [String; 2] {
    if times.is_empty() {
        return ["-".to_owned(), "-".to_owned()];
    }
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let place = (times.len() * 99).div_ceil(100).max(1) - 1;
    [number(mean), number(times[place])]
}

impl Beside<'_> {
    /// Returns the recorded and the simulated duration of the job, in us: from the first start to
    /// the last arrival.
    #[must_use]
    pub fn lasted_us(&self) -> (f64, f64) {
        let arrival = |flow: &FlowResult| Some(flow.start_us? + flow.received_us?);
        let simulated = self.run.flows.iter().filter_map(arrival).fold(0.0, f64::max);
        (self.recording.lasted() as f64 / 1e3, simulated)
    }

    /// Returns the recorded and the simulated times, in us, of the messages of more than `from` and
    /// at most `to` bytes that have both.
    fn pairs(&self, from: u64, to: u64) -> Vec<(f64, f64)> {
        let fits = |message: &Message| message.bytes > from || from == 0;
        let messages = self.recording.messages().iter().zip(&self.run.flows);
        messages
            .filter(|(message, _)| fits(message) && message.bytes <= to)
            .filter_map(|(message, flow)| Some((message.took? as f64 / 1e3, flow.received_us?)))
            .collect()
    }

    /// Formats the comparison as a table for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut rows = Vec::new();
        let mut from = 0;
        for &(to, name) in SIZES {
            let pairs = self.pairs(from, to);
            from = to;
            if pairs.is_empty() {
                continue;
            }
            let [mean, tail] = figures(pairs.iter().map(|pair| pair.0).collect());
            let [simulated, tail_simulated] = figures(pairs.iter().map(|pair| pair.1).collect());
            let count = pairs.len().to_string();
            rows.push(vec![name.to_owned(), count, mean, simulated, tail, tail_simulated]);
        }
        let (recorded, simulated) = self.lasted_us();
        let all = self.recording.messages().len().to_string();
        let none = || "-".to_owned();
        let whole = "the whole".to_owned();
        rows.push(vec![whole, all, number(recorded), number(simulated), none(), none()]);
        let header =
            ["us, messages", "count", "recorded: mean", "simulated", "recorded: 99 %", "simulated"];
        table(&header, &rows)
    }
}
