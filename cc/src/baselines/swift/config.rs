//! Parameters of Swift and where their defaults come from.

use squall_base::Span;

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Swift`]. The paper does not publish most values. The missing ones are
/// those of a reimplementation, J. Snyder's thesis ("Improving Congestion Control Convergence in
/// RDMA Networks"), table 3.1, scaled from its network of 4.16 us to this one.
#[derive(Clone, PartialEq, Debug)]
pub struct SwiftConfig {
    /// Size of a full packet in nominal bytes: "one packet" of a window.
    pub mtu: u32,
    /// Round-trip time of the idle network, the initial value of the smoothed one.
    pub base_rtt: Span,
    /// Target delay before scaling by hops and by flow: 1.2 base RTTs (5 us of 4.16 us, table 3.1).
    pub base_target: Span,
    /// Delay added per hop: 0.48 base RTTs (2 us of 4.16 us, table 3.1). Switches that trim hold
    /// one bandwidth-delay product, so that no delay exceeds two base RTTs and the target must lie
    /// below; there it is 0.24.
    pub per_hop: Span,
    /// Number of switches assumed on a path without telemetry: 1.
    pub hops: u8,
    /// Largest delay that flow-based scaling adds: five base targets (table 3.1); with trimming 0.4
    /// base RTTs.
    pub fs_range: Span,
    /// Window in packets at and below which flow-based scaling adds all of `fs_range`: 0.1 (table
    /// 3.1).
    pub fs_min_cwnd: f32,
    /// Window in packets at and above which flow-based scaling adds nothing: 100 (table 3.1).
    pub fs_max_cwnd: f32,
    /// Packets by which the window grows in a round trip: 1 (uet-htsim; the thesis' 50 Mb/s is a
    /// sixtieth of that).
    pub ai: f32,
    /// Weight of the delay above the target in a decrease of the window: 0.8 (table 3.1).
    pub beta: f32,
    /// Largest share of the window lost in one decrease: 0.5 (table 3.1).
    pub max_mdf: f32,
    /// Smallest window in packets: 0.1, below which the target no longer grows. A flow then never
    /// waits longer than ten round trips, even while hosts are slow.
    pub min_cwnd: f32,
    /// Largest window in packets: one and a half bandwidth-delay products, as in SMaRTT v2 (section
    /// III-J).
    pub max_cwnd: f32,
    /// First window in packets: one bandwidth-delay product, that is, line rate (as the
    /// thesis starts its flows; the paper is silent).
    pub start_cwnd: f32,
    /// Packets are always spaced, at the window over the base RTT, as HPCC's simulator spaces those
    /// of every window algorithm (the thesis uses that simulator); otherwise only while the window
    /// is less than a packet.
    pub rate: bool,
    /// Consecutive timeouts after which the window becomes the smallest (`RETX_RESET_THRESHOLD`,
    /// section 3.6, without a value): 5.
    pub retx_reset: u8,
}

impl SwiftConfig {
    /// Returns Swift's default parameters for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // windows are in single precision
    pub fn new(network: &NetworkProfile) -> Self {
        let packet = f64::from(network.mtu);
        let base_rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let base_target = base_rtt * 6 / 5;
        let (per_hop, fs_range) = if network.trimming {
            (base_rtt * 6 / 25, base_rtt * 2 / 5)
        } else {
            (base_rtt * 12 / 25, base_target * 5)
        };
        let largest = (1.5 * network.bdp()).max(network.min_window.unwrap_or(0) as f64);
        let max_cwnd = (largest / packet).max(1.0) as f32;
        Self {
            mtu: network.mtu,
            base_rtt,
            base_target,
            per_hop,
            hops: 1,
            fs_range,
            fs_min_cwnd: 0.1,
            fs_max_cwnd: 100.0,
            ai: 1.0,
            beta: 0.8,
            max_mdf: 0.5,
            min_cwnd: 0.1,
            max_cwnd,
            start_cwnd: ((network.bdp() / packet).max(1.0) as f32).min(max_cwnd),
            rate: false,
            retx_reset: 5,
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, 1e9, "1 ns to 1 s")?;
        let below = f64::from(self.fs_max_cwnd) * 0.999;
        within("fs_min_cwnd", f64::from(self.fs_min_cwnd), 0.0, below, "less than fs_max_cwnd")
    }
}

tunable! {
    SwiftConfig, special: [], also: Self::check_whole;
    time base_target "base_target_us" (0.001, 1e6, "0.001 to 1000000")
        "base target delay: 1.2 base RTTs";
    time per_hop "per_hop_us" (0.0, 1e6, "0 to 1000000")
        "target delay added per hop: 0.48 base RTTs, with trimming 0.24";
    number hops "hops" (0.0, 255.0, "0 to 255, whole")
        "hops of a path of unknown length: 1";
    time fs_range "fs_range_us" (0.0, 1e6, "0 to 1000000")
        "largest delay that flow-based scaling adds: 5 base targets, with trimming 0.4 base RTTs";
    number fs_min_cwnd "fs_min_cwnd" (0.001, 1e6, "0.001 to 1000000, less than fs_max_cwnd")
        "window in packets at and below which it adds all of that: 0.1";
    number fs_max_cwnd "fs_max_cwnd" (0.001, 1e6, "0.001 to 1000000, more than fs_min_cwnd")
        "window in packets at and above which it adds nothing: 100";
    number ai "ai" (0.0, 1000.0, "0 to 1000")
        "packets added per round trip: 1";
    number beta "beta" (0.0, 1.0, "0 to 1")
        "weight of the excess delay in a decrease: 0.8";
    number max_mdf "max_mdf" (0.0, 1.0, "0 to 1")
        "largest share of the window lost in one decrease: 0.5";
    number min_cwnd "min_cwnd" (0.0001, 1.0, "0.0001 to 1")
        "smallest window in packets: 0.1";
    number max_cwnd "max_cwnd" (1.0, 1e6, "1 to 1000000")
        "largest window in packets: 1.5 BDPs";
    number start_cwnd "start_cwnd" (0.0001, 1e6, "0.0001 to 1000000")
        "first window in packets: 1 BDP";
    switch rate "rate" (0.0, 1.0, "0 or 1")
        "packets are always spaced, at the window over the base RTT: 0";
    number retx_reset "retx_reset" (1.0, 255.0, "1 to 255, whole")
        "time-outs in a row that reduce the window to the smallest: 5";
}

impl SenderParameters for SwiftConfig {}

impl FairParameters for SwiftConfig {
    /// Returns table 4.1: tokens start at the target delay plus the queue of a bandwidth-delay
    /// product, one token per 30 ns of round trip where the base RTT is 4.16 us.
    #[allow(clippy::cast_possible_truncation)] // a unit, not a sum
    fn vai(&self) -> VaiConfig {
        let base = self.base_rtt.as_f64();
        let path = self.base_target.as_f64() + f64::from(self.hops) * self.per_hop.as_f64();
        VaiConfig::new((path + base) as f32, (base * 30.0 / 4160.0).max(0.001) as f32)
    }
}
