//! Parameters of HPCC and where their defaults come from.

use squall_base::{Rate, Span};

use crate::controller::{AckStyle, SenderParameters};
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Hpcc`]: those of Li et al. (SIGCOMM 2019, section 5.1) as in J. Snyder's
/// thesis (table 3.1), rates scaled from its 100 Gb/s to this network's.
#[derive(Clone, PartialEq, Debug)]
pub struct HpccConfig {
    /// Size of a full packet in nominal bytes, which may leave back to back.
    pub mtu: u32,
    /// Round-trip time of the idle network over its longest path (`T`).
    pub base_rtt: Span,
    /// Rate of the sender's link: its initial and its largest rate.
    pub line: Rate,
    /// All flows use [`HpccConfig::base_rtt`] as `T`, as HPCC's simulator does (`GLOBAL_T`);
    /// otherwise each uses the smallest round trip that it measured.
    pub global_t: bool,
    /// Added to the reference rate a round trip (`W_AI` over `T`): a two-thousandth of the line, 50 Mb/s of 100 Gb/s.
    pub ai: Rate,
    /// Utilisation of the busiest link at which HPCC aims: 0.95.
    pub eta: f32,
    /// Additive increases in a row before a multiplicative one (`maxStage`): 5.
    pub max_stage: u8,
    /// Smallest rate (`R_min`): a thousandth of the line, 100 Mb/s of 100 Gb/s. With a larger one
    /// many senders would exceed the line by their smallest rates alone.
    pub min_rate: Rate,
    /// Number of queues whose last record is remembered: 5, the switches of a fat tree of three
    /// tiers. Sprayed packets meet a queue again only after many packets, and need one record for
    /// each queue of each path.
    pub queues: u16,
}

impl HpccConfig {
    /// Returns HPCC's default parameters for `network`.
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
        "T is the network's base RTT, not the flow's own: 1";
    rate ai "ai_mbps" (0.0, 1e8, "0 to 100000000")
        "Mb/s added to the rate per round trip: 50 of 100000";
    number eta "eta" (0.1, 1.0, "0.1 to 1")
        "target utilisation: 0.95";
    number max_stage "max_stage" (0.0, 255.0, "0 to 255, whole")
        "additive increases before a multiplicative one: 5";
    rate min_rate "min_rate_mbps" (1.0, 1e8, "1 to the line rate")
        "smallest rate in Mb/s: 100 of 100000";
    number queues "queues" (1.0, 4096.0, "1 to 4096, whole")
        "queues whose last record is remembered; spraying needs more: 5";
}

impl SenderParameters for HpccConfig {
    /// Asks the peer for an ACK per packet that returns the packet's in-band telemetry.
    fn acks(&self) -> AckStyle {
        AckStyle { each_packet: true, telemetry: true, ..AckStyle::default() }
    }
}

impl FairParameters for HpccConfig {
    /// Returns table 4.1: tokens start at a queue of one bandwidth-delay product (50 KB), one token
    /// per 1 KB where that product is 52 KB.
    #[allow(clippy::cast_possible_truncation)] // a unit, not a sum
    fn vai(&self) -> VaiConfig {
        let product = self.line.0 as f64 / 8e9 * self.base_rtt.as_f64();
        VaiConfig::new(product.max(1.0) as f32, (product / 52.0).max(0.001) as f32)
    }
}
