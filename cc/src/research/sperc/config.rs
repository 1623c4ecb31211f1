//! Parameters of s-PERC and 1RC and where their defaults come from.

use alloc::sync::Arc;

use squall_base::{Rate, Span};

use super::starts::Starts;
use crate::controller::{ReceiverConfig, SenderParameters};
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Sperc`]: those of its authors' simulations, as far as Snyder's thesis
/// (chapter 5) gives them.
#[derive(Clone, Debug)]
pub struct SpercConfig {
    /// Size of a full packet in nominal bytes, which may leave back to back.
    pub mtu: u32,
    /// Unloaded round trip of the network's longest path: the interval of rate packets and the
    /// length of an epoch.
    pub base_rtt: Span,
    /// Rate of the host's link, at which flows without a rate send.
    pub line: Rate,
    /// Largest size in bytes of flows that start at once, at line rate, without a rate packet
    /// (section 5.1.2): a bandwidth-delay product. With [`SpercConfig::one_rtt`] no flow is exempt.
    pub exempt: u64,
    /// 1RC: every flow starts at once with speculative packets, of which switches drop those beyond
    /// its rate.
    pub one_rtt: bool,
    /// All flows of a host that start in an epoch number their speculative packets together, so
    /// that they share the allowance of one flow (section 5.3); otherwise each flow numbers its
    /// own, as in section 5.2.
    pub together: bool,
    /// A flow's share is divided by the number of connections of its host (section 5.3).
    pub weights: bool,
    /// Largest part of the line for a host's rate packets, which leave less often if there are many
    /// flows: 0.02.
    pub control: f32,
    /// Number of open flows and of speculative packets, which the flows of this host share.
    pub(super) starts: Arc<Starts>,
}

impl SpercConfig {
    /// Returns s-PERC's default parameters for `network`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    pub fn new(network: &NetworkProfile) -> Self {
        Self {
            mtu: network.mtu,
            base_rtt: network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO)),
            line: network.line,
            exempt: network.bdp() as u64,
            one_rtt: false,
            together: true,
            weights: false,
            control: 0.02,
            starts: Arc::default(),
        }
    }

    /// Returns the window of a flow without a rate: a bandwidth-delay product in bytes, at least a
    /// packet.
    pub(super) fn window(&self) -> u64 {
        self.line.bytes_in(self.base_rtt).max(self.mtu.into())
    }

    fn check_whole(&self) -> Result<(), ConfigError> {
        within("mtu", f64::from(self.mtu), 64.0, 1e6, "64 to 1000000 bytes")?;
        within("base_rtt", self.base_rtt.as_f64(), 1.0, 1e9, "1 ns to 1 s")?;
        within("exempt", self.exempt as f64, 0.0, 1e12, "0 to 1000000000000")
    }
}

tunable! {
    SpercConfig, special: [
        crate::tuning::number!(exempt: u64, "bytes of a flow up to which it starts without a rate: a BDP", "0 to 1000000000000")
    ], also: Self::check_whole;
    switch one_rtt "one_rtt" (0.0, 1.0, "0 or 1")
        "flows start with speculative packets (1RC): 0";
    switch together "together" (0.0, 1.0, "0 or 1")
        "all flows of a host number their speculative packets together: 1";
    switch weights "weights" (0.0, 1.0, "0 or 1")
        "a flow's share is divided by its host's connections: 0";
    number control "control" (0.001, 1.0, "0.001 to 1")
        "largest part of the line for a host's rate packets: 0.02";
}

impl SenderParameters for SpercConfig {
    fn receiver(&self, _network: &NetworkProfile) -> ReceiverConfig {
        ReceiverConfig::Rates
    }

    fn of_another_host(&self) -> Option<Self> {
        Some(Self { starts: Arc::default(), ..self.clone() })
    }
}
