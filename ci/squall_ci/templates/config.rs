//! Parameters of @NAME@ and where their defaults come from.

use crate::controller::SenderParameters;
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Parameters of [`crate::@TYPE@`].
#[derive(Clone, PartialEq, Debug)]
pub struct @TYPE@Config {
    /// Largest packet in nominal bytes.
    pub mtu: u32,
    /// Packets added in a round trip without congestion.
    pub increase: f32,
    /// Share of the window that a round trip with congestion takes away.
    pub decrease: f32,
    /// First window in packets: one bandwidth-delay product.
    pub start_cwnd: f32,
    /// Largest window in packets: one and a quarter bandwidth-delay products.
    pub max_cwnd: f32,
}

impl @TYPE@Config {
    /// The defaults on `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // windows are in single precision
    pub fn new(network: &NetworkProfile) -> Self {
        let product = (network.bdp() / f64::from(network.mtu)) as f32;
        let least = network.min_window.unwrap_or(0) as f32 / network.mtu as f32;
        Self {
            mtu: network.mtu,
            increase: 1.0,
            decrease: 0.5,
            start_cwnd: product.max(least).max(1.0),
            max_cwnd: (1.25 * product).max(least).max(2.0),
        }
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")
    }
}

tunable! {
    @TYPE@Config, special: [], also: Self::check_whole;
    number increase "increase" (0.0, 1000.0, "0 to 1000")
        "packets added in a round trip without congestion: 1";
    number decrease "decrease" (0.0, 1.0, "0 to 1")
        "share of the window that one with congestion takes away: 1/2";
    number start_cwnd "start_cwnd" (1.0, 1e6, "1 to 1000000")
        "first window in packets: 1 BDP";
    number max_cwnd "max_cwnd" (1.0, 1e6, "1 to 1000000")
        "largest window in packets: 1.25 BDPs";
}

impl SenderParameters for @TYPE@Config {}
