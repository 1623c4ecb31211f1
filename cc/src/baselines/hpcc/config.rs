//! Parameters of HPCC and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::{AckStyle, SenderParameters};
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Hpcc`]: those of Li et al. (SIGCOMM 2019, section 5.1) as J. Snyder's thesis has them (table
/// 3.1), rates scaled from its 100 Gb/s to this network's.
#[derive(Clone, PartialEq, Debug)]
pub struct HpccConfig {
    /// Largest packet in nominal bytes: what leaves back to back.
    pub mtu: u32,
    /// Unloaded round-trip time, `T`: the longest of the network.
    pub base_rtt: Span,
    /// What a sender begins with, and never exceeds.
    pub line: Rate,
    /// All flows take [`HpccConfig::base_rtt`] for `T`, as HPCC's simulator does (`GLOBAL_T`); otherwise each the least
    /// round trip that it saw.
    pub global_t: bool,
    /// Added to the reference rate a round trip (`W_AI` over `T`): a two-thousandth of the line, 50 Mb/s of 100 Gb/s.
    pub ai: Rate,
    /// Utilisation that is aimed at: 0.95.
    pub eta: f32,
    /// Additive increases in a row before a multiplicative one (`maxStage`): 5.
    pub max_stage: u8,
    /// No rate is less (`R_min`): a thousandth of the line, 100 Mb/s of 100 Gb/s. More would share the line
    /// by itself where many send.
    pub min_rate: Rate,
    /// Queues whose last record is remembered: 5, the switches of a fat tree of three tiers. Where packets are sprayed, a
    /// queue is met again after many packets, and it takes one for each queue of each path.
    pub queues: u16,
}

impl HpccConfig {
    /// The defaults on `network`.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let least = |share: u64| Rate((network.line.0 / share).max(1_000_000));
        Self {
            mtu: network.mtu,
            base_rtt: network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO)),
            line: network.line,
            global_t: true,
            ai: Rate((network.line.0 / 2000).max(1_000)),
            eta: 0.95,
            max_stage: 5,
            min_rate: least(1000),
            queues: 5,
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, 1e9, "1 ns to 1 s")?;
        within("min_rate_mbps", self.min_rate.0 as f64, 1e6, self.line.0 as f64, LEAST)
    }
}

const LEAST: &str = "1 to the line rate";

tunable! {
    HpccConfig, special: [], also: Self::check_whole;
    switch global_t "global_t" (0.0, 1.0, "0 or 1")
        "whether T is the network's base RTT for all, and not what a flow saw: 1";
    rate ai "ai_mbps" (0.0, 1e8, "0 to 100000000")
        "added to the rate a round trip: 50 of 100000";
    number eta "eta" (0.1, 1.0, "0.1 to 1")
        "utilisation that is aimed at: 0.95";
    number max_stage "max_stage" (0.0, 255.0, "0 to 255, whole")
        "additive increases before a multiplicative one: 5";
    rate min_rate "min_rate_mbps" (1.0, 1e8, "1 to the line rate")
        "least rate: 100 of 100000";
    number queues "queues" (1.0, 4096.0, "1 to 4096, whole")
        "queues whose last record is remembered, more with spraying: 5";
}

impl SenderParameters for HpccConfig {
    /// Each packet's telemetry comes back.
    fn acks(&self) -> AckStyle {
        AckStyle { each_packet: true, telemetry: true, ..AckStyle::default() }
    }
}

impl FairParameters for HpccConfig {
    /// Table 4.1: tokens from a queue of a bandwidth-delay product on (50 KB), one for 1 KB of it where that product is
    /// 52 KB.
    #[allow(clippy::cast_possible_truncation)] // a unit, not a sum
    fn vai(&self) -> VaiConfig {
        let product = self.line.0 as f64 / 8e9 * self.base_rtt.as_f64();
        VaiConfig::new(product.max(1.0) as f32, (product / 52.0).max(0.001) as f32)
    }
}
