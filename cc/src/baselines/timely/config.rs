//! Parameters of TIMELY and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Timely`]. The paper's are for 10 Gb/s and 20 us (Zhu et al., "ECN or
/// Delay: Lessons Learnt from Analysis of DCQCN and TIMELY", CoNEXT 2016, lists them); they are scaled to the network.
#[derive(Clone, PartialEq, Debug)]
pub struct TimelyConfig {
    /// Rate of the sender's link.
    pub line: Rate,
    /// Bandwidth-delay product of the network in bytes.
    pub bdp: f32,
    /// Time by which the gradient of the delay is divided to normalise it: the base RTT (20 us in
    /// the paper).
    pub min_rtt: Span,
    /// Delay below which the rate only rises: 2.5 base RTTs (50 us of 20 us). Switches that trim hold
    /// one bandwidth-delay product, so no delay exceeds two base RTTs; there 1.25.
    pub t_low: Span,
    /// Delay above which the rate only falls: 25 base RTTs (500 us of 20 us); with trimming 1.75.
    pub t_high: Span,
    /// Weight of the newest difference of round-trip times in the moving average: 0.875.
    pub alpha: f32,
    /// Weight of the delay gradient in a decrease of the rate: 0.8.
    pub beta: f32,
    /// Step by which additive increase raises the rate: a thousandth of the line (10 Mb/s of 10
    /// Gb/s).
    pub delta: Rate,
    /// Additive steps that hyper-active increase takes at once: 5 (`N`).
    pub hai: u8,
    /// Completion events in a row with a negative gradient that start hyper-active increase: 5.
    pub hai_after: u8,
    /// Bytes of a segment: 16 KiB, the paper's smallest (its largest, 64 KiB, is half of this
    /// network's pipe). The rate changes after each segment, and a segment leaves back to back.
    pub segment: u32,
    /// Smallest sending rate: a thousandth of the link's.
    pub min_rate: Rate,
    /// First rate over the line's: 1, like the other rates here. The paper gives a new flow one share
    /// more than the host has flows, which one context cannot know.
    pub start: f32,
    /// Factor by which a loss multiplies the rate: 0.5 (no source; the paper's network has no
    /// losses).
    pub loss_cut: f32,
    /// Limit of the bytes in flight in bandwidth-delay products: 0 for none.
    pub window: f32,
}

impl TimelyConfig {
    /// Returns TIMELY's default parameters for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // single precision is the rates'
    pub fn new(network: &NetworkProfile) -> Self {
        let min_rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let thousandth = Rate((network.line.0 / 1000).max(1000));
        let (t_low, t_high) = if network.trimming {
            (min_rtt * 5 / 4, min_rtt * 7 / 4)
        } else {
            (min_rtt * 5 / 2, min_rtt * 25)
        };
        Self {
            line: network.line,
            bdp: network.bdp() as f32,
            min_rtt,
            t_low,
            t_high,
            alpha: 0.875,
            beta: 0.8,
            delta: thousandth,
            hai: 5,
            hai_after: 5,
            segment: network.mtu.max(16_384),
            min_rate: thousandth,
            start: 1.0,
            loss_cut: 0.5,
            window: 0.0,
        }
    }

    /// Returns the limit of the bytes in flight; `None` if there is none.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    pub(super) fn window_bytes(&self) -> Option<u64> {
        (self.window > 0.0).then_some((self.window * self.bdp) as u64)
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        let high = self.t_high.as_f64() / 1e3;
        within("t_low_us", self.t_low.as_f64() / 1e3, 0.0, high, "at most t_high_us")
    }
}

tunable! {
    TimelyConfig, special: [], also: Self::check_whole;
    time min_rtt "min_rtt_us" (0.001, 1e6, "0.001 to 1000000")
        "time by which the gradient is normalised: the base RTT";
    time t_low "t_low_us" (0.0, 1e6, "0 to 1000000, at most t_high_us")
        "delay below which the rate only rises: 2.5 base RTTs, with trimming 1.25";
    time t_high "t_high_us" (0.001, 1e6, "0.001 to 1000000, at least t_low_us")
        "delay above which it only falls: 25 base RTTs, with trimming 1.75";
    number alpha "alpha" (0.0, 1.0, "0 to 1")
        "weight of the newest difference of RTTs: 0.875";
    number beta "beta" (0.0, 1.0, "0 to 1")
        "weight of the gradient in a decrease: 0.8";
    rate delta "delta_mbps" (0.0, 1e8, "0 to 100000000")
        "additive increase in Mb/s: a thousandth of the line";
    number hai "hai" (1.0, 255.0, "1 to 255, whole")
        "additive increases at once in hyper-active increase: 5";
    number hai_after "hai_after" (1.0, 255.0, "1 to 255, whole")
        "falling delays in a row that start it: 5";
    number segment "segment" (64.0, 1e6, "64 to 1000000, whole")
        "bytes between changes of the rate, sent back to back: 16384";
    rate min_rate "min_rate_mbps" (0.001, 1e8, "0.001 to 100000000")
        "smallest rate in Mb/s: a thousandth of the line";
    number start "start" (0.0, 1.0, "0 to 1")
        "first rate over the line's: 1";
    number loss_cut "loss_cut" (0.0, 1.0, "0 to 1")
        "factor of the rate after a loss: 0.5";
    number window "window" (0.0, 1000.0, "0 to 1000")
        "limit of the bytes in flight in BDPs, 0 for none: 0";
}

impl SenderParameters for TimelyConfig {}
