//! The unicast half of 3CPO as the congestion control of a host (sections 6.1.3 and 6.2.3): the
//! [`Watermark`] alone. Networks whose endpoints have no multicast match nothing, so that in
//! algorithm 6 `global_dec`, and with it the watermark equivalent, stays zero. The lines that
//! remain lower the watermark if a probe took longer than `lat_thresh` (18 to 20), and raise it if
//! it took less (26 and 27).
//!
//! - The bucket of tokens is the caller's pacer: a host's rate is the watermark's part of its line.
//!   The rate covers all that the host sends, so the scope is [`crate::Scope::PerHost`].
//! - The probe that is always outstanding is the packet whose acknowledgement ends a round trip.
//! - A cycle is a thousandth of the base round trip: in the thesis' network a read passes three
//!   switches of 150 cycles both ways, and a memory of 180.
//! - The thesis' network loses nothing. Here a loss of any kind counts as a probe that took
//!   `max_lat_thresh`, at most once a round trip.

use alloc::sync::Arc;

use squall_base::{Rate, Span, Time};

use super::config::ThreeCpoConfig;
use super::watermark::Watermark;
use crate::controller::{
    Budget, Feedback, FeedbackKind, Scope, SenderCc, SenderMetrics, SenderParameters,
};
use crate::error::{ConfigError, within};
use crate::math::up_to;
use crate::network::NetworkProfile;

/// Parameters of [`Throttle`]: those of section 6.1.4, times in base round trips of 1000 cycles.
#[derive(Clone, PartialEq, Debug)]
pub struct ThrottleConfig {
    /// Size of a full packet in nominal bytes, which may leave back to back.
    pub mtu: u32,
    /// The host's line rate, which is its rate at the largest watermark, the initial one.
    pub line: Rate,
    /// Round-trip time of the idle network.
    pub base_rtt: Span,
    /// Round trip above which there is congestion (`lat_thresh`): 2 base ones (2000 cycles). Switches that trim hold one
    /// bandwidth-delay product, so no round trip exceeds two; there 1.25.
    pub lt: Span,
    /// Round trip at which the decrease of the watermark is largest (`max_lat_thresh`): 5 base ones
    /// (5000 cycles); with trimming 2.
    pub mlt: Span,
    /// Largest share of itself by which the watermark decreases at once (`base_md`): 0.5.
    pub bmd: f64,
    /// Amount by which the watermark rises per round trip without congestion (`WM_AI`): 50.
    pub ai: f64,
    /// Largest watermark (`WM_MAX`), at which the host sends at line rate: 2468.
    pub wm_max: f64,
    /// Smallest watermark (`WM_MIN`), 4 % of the line: 100.
    pub wm_min: f64,
    /// Decreases are smaller at a low watermark (flow-based scaling): on.
    pub fbs: bool,
}

impl ThrottleConfig {
    /// Returns the defaults on `network`: the values of [`ThreeCpoConfig::new`], with latencies as
    /// multiples of the base round trip.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let thesis = ThreeCpoConfig::new();
        let base_rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let (lt, mlt) = if network.trimming {
            (base_rtt * 5 / 4, base_rtt * 2)
        } else {
            (base_rtt * 2, base_rtt * 5)
        };
        Self {
            mtu: network.mtu,
            line: network.line,
            base_rtt,
            lt,
            mlt,
            bmd: thesis.md,
            ai: thesis.ai,
            wm_max: thesis.wm_max,
            wm_min: thesis.wm_min,
            fbs: thesis.fbs,
        }
    }

    /// Returns the parameters of 3CPO's watermark, with nanoseconds in place of cycles.
    fn of_watermark(&self) -> ThreeCpoConfig {
        ThreeCpoConfig {
            latency: self.lt.as_f64(),
            max_latency: self.mlt.as_f64(),
            md: self.bmd,
            ai: self.ai,
            wm_max: self.wm_max,
            wm_min: self.wm_min,
            fbs: self.fbs,
            multicast: false,
            ..ThreeCpoConfig::new()
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("line", self.line.0 as f64, 1e6, 1e14, "1 Mb/s to 100 Tb/s")?;
        within("wm_min", self.wm_min, 0.0, self.wm_max, "at most wm_max")?;
        within("lt_us", self.lt.as_f64() / 1e3, 0.0, self.mlt.as_f64() / 1e3, "at most mlt_us")
    }
}

tunable! {
    ThrottleConfig, special: [], also: Self::check_whole;
    time lt "lt_us" (0.001, 1e6, "0.001 to 1000000, at most mlt_us")
        "round trip above which there is congestion: 2 base RTTs, with trimming 1.25";
    time mlt "mlt_us" (0.001, 1e6, "0.001 to 1000000, at least lt_us")
        "round trip at which the decrease is largest: 5 base RTTs, with trimming 2";
    number bmd "bmd" (0.0, 1.0, "0 to 1")
        "largest relative decrease of the watermark: 0.5";
    number ai "ai" (0.0, 1e6, "0 to 1000000")
        "increase of the watermark per round trip without congestion: 50";
    number wm_max "wm_max" (1.0, 1e6, "1 to 1000000")
        "watermark at which the host sends at its line's rate: 2468";
    number wm_min "wm_min" (1.0, 1e6, "1 to wm_max")
        "smallest watermark: 100, 4 % of the line";
    switch fbs "fbs" (0.0, 1.0, "0 or 1")
        "decreases are smaller at a low watermark: 1";
}

impl SenderParameters for ThrottleConfig {
    fn scope(&self) -> Scope {
        Scope::PerHost
    }
}

/// Rate limiter of one host: 56 bytes; contexts share the parameters.
#[derive(Clone, Debug)]
pub struct Throttle {
    config: Arc<ThrottleConfig>,
    watermark: Watermark,
    /// A packet was lost in the current round trip, so a further loss changes nothing.
    lost: bool,
}

impl Throttle {
    /// Creates a limiter that starts at line rate. `config` must have passed
    /// [`crate::Tunable::check`].
    #[must_use]
    pub fn new(config: Arc<ThrottleConfig>, _now: Time) -> Self {
        let watermark = Watermark::new(&config.of_watermark());
        Self { config, watermark, lost: false }
    }

    /// Updates the watermark after a probe of the network that took `rtt`.
    #[inline(never)]
    fn on_probe(&mut self, rtt: Span) {
        self.watermark.on_probe(&self.config.of_watermark(), rtt.as_f64(), 0);
    }

    fn rate(&self) -> Rate {
        let ThrottleConfig { line, wm_max, .. } = *self.config;
        // The share is at most 1.
        let share = (self.watermark.value() / wm_max) as f32;
        up_to(share * line.0 as f32, line).max(Rate(1))
    }
}

impl SenderCc for Throttle {
    fn budget(&self, _now: Time) -> Budget {
        Budget { rate: Some(self.rate()), burst: self.config.mtu, ..Budget::default() }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        match feedback.kind {
            FeedbackKind::Acked if feedback.round_end => {
                self.lost = false;
                if let Some(rtt) = feedback.rtt {
                    self.on_probe(rtt);
                }
            }
            FeedbackKind::Nacked { trimmed: true, .. }
            | FeedbackKind::Lost
            | FeedbackKind::TimedOut => {
                if !core::mem::replace(&mut self.lost, true) {
                    self.on_probe(self.config.mlt);
                }
            }
            // Reports other than the probe's: the receiver lacks room, or a packet overtook the
            // queues.
            FeedbackKind::Acked
            | FeedbackKind::Nacked { trimmed: false, .. }
            | FeedbackKind::ProbeAnswered
            | FeedbackKind::Notified
            | FeedbackKind::Control => {}
        }
    }

    fn metrics(&self) -> SenderMetrics {
        SenderMetrics {
            rate: Some(self.rate()),
            base_rtt: Some(self.config.base_rtt),
            ..SenderMetrics::default()
        }
    }

    fn base_rtt(&self) -> Option<Span> {
        Some(self.config.base_rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Sender, SenderConfig};

    const BASE: Span = Span::micros(10);

    fn host(text: &str) -> Sender {
        let network = NetworkProfile::new(Rate::gbps(100), BASE, 4096, false);
        Sender::new(&SenderConfig::by_name(text, &network).expect(text), Time::ZERO)
    }

    /// Gb/s after a round trip of so many tenths of the base one.
    fn probe(host: &mut Sender, tenths: u64) -> f64 {
        let rtt = Some(BASE * tenths / 10);
        host.on_feedback(&Feedback { rtt, round_end: true, packets: 1, ..Feedback::default() });
        gbps(host)
    }

    fn gbps(host: &Sender) -> f64 {
        host.budget(Time::ZERO).rate.expect("a rate").0 as f64 / 1e9
    }

    fn close(is: f64, expected: f64) {
        assert!((is - expected).abs() < expected * 1e-4, "is {is}, should be {expected}");
    }

    /// Algorithm 6 where nothing is multicast, by hand.
    #[test]
    fn the_watermark_moves_once_a_round_trip() {
        let mut host = host("3cpo");
        assert_eq!(gbps(&host), 100.0, "it starts at the line's rate");
        // Neither more than lat_thresh nor less.
        close(probe(&mut host, 20), 100.0);
        // 5 base round trips and more: md = 0.5, fbs = 1 at WM_MAX. 2468 / 2 = 1234.
        close(probe(&mut host, 70), 50.0);
        // 3.5: md = 0.25. alpha = 1 / (0.1 - 0.0201292) = 12.5203; fbs = 1 - 12.5203 (0.0284670 - 0.0201292) = 0.895609.
        // 1234 (1 - 0.25 x 0.895609) = 957.705.
        close(probe(&mut host, 35), 38.804_9);
        // WM_AI: 1007.705.
        close(probe(&mut host, 19), 40.830_8);
        // A report that does not end a round trip is no probe, so it changes nothing.
        let rtt = Some(BASE * 9);
        host.on_feedback(&Feedback { rtt, packets: 1, ..Feedback::default() });
        close(gbps(&host), 40.830_8);
    }

    #[test]
    fn without_flow_based_scaling_decreases_are_whole() {
        let mut host = host("3cpo:fbs=0");
        close(probe(&mut host, 50), 50.0);
        // 1234 (1 - 0.25).
        close(probe(&mut host, 35), 37.5);
    }

    #[test]
    fn it_keeps_to_its_bounds() {
        let mut host = host("3cpo");
        (0..200).for_each(|_| _ = probe(&mut host, 100));
        // WM_MIN / WM_MAX.
        close(gbps(&host), 4.051_86);
        (0..200).for_each(|_| _ = probe(&mut host, 10));
        assert_eq!(gbps(&host), 100.0);
    }

    #[test]
    fn a_loss_is_the_longest_round_trip_once_in_one() {
        let mut host = host("3cpo");
        let lost = |host: &mut Sender, kind| {
            host.on_feedback(&Feedback { kind, bytes: 4096, packets: 1, ..Feedback::default() });
            gbps(host)
        };
        close(lost(&mut host, FeedbackKind::Nacked { trimmed: false, last_hop: true }), 100.0);
        close(lost(&mut host, FeedbackKind::Lost), 50.0);
        close(lost(&mut host, FeedbackKind::TimedOut), 50.0);
        close(probe(&mut host, 20), 50.0);
        // fbs = 0.895609: 1234 (1 - 0.5 x 0.895609) = 681.41.
        close(lost(&mut host, FeedbackKind::Nacked { trimmed: true, last_hop: false }), 27.609_8);
    }

    #[test]
    fn a_context_is_small() {
        assert_eq!(host("3cpo").state_bytes(), 56);
    }
}
