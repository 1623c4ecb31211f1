//! Parameters of MP-RDMA's window.

use squall_base::{Rate, Span};

use crate::controller::{AckStyle, SenderParameters};
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;
use crate::tuning::{Parameter, Tunable, number};

const START: &str = "from the smallest to the largest window";
const LARGEST: &str = "the smallest window to 2 GB";

/// Parameters of [`crate::Mprdma`]: [`MprdmaConfig::new`] derives them from the network, and its
/// check validates the result.
#[derive(Clone, PartialEq, Debug)]
pub struct MprdmaConfig {
    /// Rate of the slower of the two ends' links.
    pub link_rate: Rate,
    /// Round-trip time of the idle network.
    pub base_rtt: Span,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Initial congestion window in bytes: one bandwidth-delay product.
    pub start_window: u64,
    /// Largest congestion window in bytes: 1.5 bandwidth-delay products, as the other window
    /// algorithms here.
    pub max_window: u64,
    /// Smallest congestion window in bytes: one packet.
    pub min_window: u32,
    /// Packets by which the window grows in a round trip without marks: 1.
    pub increase: f32,
    /// Packets by which each marked packet lowers the congestion window: 0.5.
    pub decrease: f32,
}

impl MprdmaConfig {
    /// Returns the window parameters for `network`, with the MP-RDMA paper's constants.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let floor = network.min_window.unwrap_or(0).max(u64::from(network.mtu));
        let bdp = network.line.bytes_in(rtt);
        Self {
            link_rate: network.line,
            base_rtt: network.base_rtt,
            mtu: network.mtu,
            start_window: bdp.max(floor),
            max_window: (bdp.saturating_mul(3) / 2).max(floor),
            min_window: network.mtu,
            increase: 1.0,
            decrease: 0.5,
        }
    }
}

impl Tunable for MprdmaConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        number!(start_window: u64, "first window in bytes: one BDP", START),
        number!(max_window: u64, "largest window in bytes: 1.5 BDP", LARGEST),
        number!(min_window: u32, "smallest window in bytes: one MTU", "1 to 1000000 bytes"),
        number!(increase: f32, "packets a round trip without marks adds: 1", "0 to 1000 packets"),
        number!(decrease: f32, "packets a marked packet takes off: 0.5", "0 to 1000 packets"),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        let (min, max) = (f64::from(self.min_window), self.max_window as f64);
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("min_window", min, 1.0, 1e6, "1 to 1000000 bytes")?;
        within("max_window", max, min, 2e9, LARGEST)?;
        let start = self.start_window as f64;
        within("start_window", start, min, max, START)?;
        within("increase", f64::from(self.increase), 0.0, 1000.0, "0 to 1000 packets")?;
        within("decrease", f64::from(self.decrease), 0.0, 1000.0, "0 to 1000 packets")
    }
}

impl SenderParameters for MprdmaConfig {
    /// Asks for an ACK per packet, because the window moves with every packet (section 3.1).
    fn acks(&self) -> AckStyle {
        AckStyle { each_packet: true, ..AckStyle::default() }
    }

    fn set_floor(&mut self, bytes: u32) -> bool {
        self.min_window = bytes;
        true
    }
}
