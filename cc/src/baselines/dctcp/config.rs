//! Parameters of DCTCP and where their defaults come from.

use squall_base::Span;

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::fair::{FairParameters, VaiConfig};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Dctcp`].
#[derive(Clone, PartialEq, Debug)]
pub struct DctcpConfig {
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers); SMSS of the
    /// RFCs.
    pub mtu: u32,
    /// Unloaded round-trip time of an MTU packet over the longest path; only VAI uses it.
    pub base_rtt: Span,
    /// Bandwidth-delay product of the network in bytes; Variable Additive Increase (VAI) uses it,
    /// too.
    pub bdp: f64,
    /// Weight of the newest share of marked bytes in the moving average: 1/16 (RFC 8257).
    pub g: f32,
    /// Initial estimate of the share of marked bytes: 1, so that the first mark halves the window
    /// (RFC 8257).
    pub alpha: f32,
    /// Smallest congestion window in bytes after a cut: two packets (RFC 5681 eq. 4).
    pub min_wnd: u32,
    /// Initial congestion window in packets: 10 (RFC 6928).
    pub start_cwnd: f32,
    /// Packets by which congestion avoidance raises the window in a round trip: 1 (RFC 5681).
    pub ai: f32,
    /// Largest window in packets: five bandwidth-delay products, the queue of a switch that drops.
    pub max_cwnd: f32,
}

impl DctcpConfig {
    /// Returns DCTCP's default parameters for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // windows are in single precision
    pub fn new(network: &NetworkProfile) -> Self {
        let largest = (5.0 * network.bdp()).max(network.min_window.unwrap_or(0) as f64);
        Self {
            mtu: network.mtu,
            base_rtt: network.base_rtt,
            bdp: network.bdp(),
            g: 1.0 / 16.0,
            alpha: 1.0,
            min_wnd: network.mtu.saturating_mul(2),
            start_cwnd: 10.0,
            ai: 1.0,
            max_cwnd: ((largest / f64::from(network.mtu)) as f32).max(10.0),
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")
    }
}

tunable! {
    DctcpConfig, special: [], also: Self::check_whole;
    number g "g" (0.0, 1.0, "0 to 1")
        "weight of the newest share of marked bytes: 1/16";
    number alpha "alpha" (0.0, 1.0, "0 to 1")
        "first estimate of the share of marked bytes: 1";
    number min_wnd "min_wnd" (1.0, 2e6, "1 to 2000000 bytes")
        "smallest window after a cut in bytes: two packets";
    number start_cwnd "start_cwnd" (1.0, 1e6, "1 to 1000000")
        "first window in packets: 10";
    number ai "ai" (0.0001, 1000.0, "0.0001 to 1000")
        "packets added per round trip: 1";
    number max_cwnd "max_cwnd" (2.0, 1e6, "2 to 1000000")
        "largest window in packets: 5 BDPs";
}

impl SenderParameters for DctcpConfig {
    fn set_floor(&mut self, bytes: u32) -> bool {
        self.min_wnd = if bytes < self.mtu { bytes } else { self.mtu.saturating_mul(2) };
        true
    }
}

impl FairParameters for DctcpConfig {
    /// Returns parameters of Variable Additive Increase with the base round-trip time as target
    /// delay. DCTCP itself has no target delay: it aims at the smallest queue that a switch may
    /// mark.
    fn vai(&self) -> VaiConfig {
        let target = self.base_rtt.as_f64();
        VaiConfig::of_delay(self.base_rtt, self.bdp, target, self.ai * self.mtu as f32)
    }
}
