//! Parameters of s-PERC and 1RC and where their defaults come from.

use alloc::sync::Arc;

use squall_base::{Rate, Span};

use super::starts::Starts;
use crate::controller::{ReceiverConfig, SenderParameters};
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;

/// Parameters of [`crate::Sperc`]: those of its authors' simulations, as far as Snyder's thesis (chapter 5) has them.
#[derive(Clone, Debug)]
pub struct SpercConfig {
    /// Largest packet in nominal bytes: what leaves back to back.
    pub mtu: u32,
    /// Unloaded round trip of the network's longest path: the time between two rate packets, and the length of an epoch.
    pub base_rtt: Span,
    /// Rate of the host's link: what flows without a rate send at.
    pub line: Rate,
    /// Flows of no more bytes than this start at once, at the rate of the line, and ask for no rate (section 5.1.2): a
    /// bandwidth-delay product. With [`SpercConfig::one_rtt`] none is exempt.
    pub exempt: u64,
    /// 1RC: every flow starts at once, with speculative packets, of which switches drop those beyond its rate.
    pub one_rtt: bool,
    /// The speculative packets of all flows of a host that start in an epoch are numbered together, so that they have what one
    /// has (section 5.3); otherwise each flow numbers its own, as in section 5.2.
    pub together: bool,
    /// A flow's part is divided by the connections its host has (section 5.3).
    pub weights: bool,
    /// Part of the line that a host's rate packets may take, by leaving less often: 0.02.
    pub control: f32,
    /// What the flows of this host share.
    pub(super) starts: Arc<Starts>,
}

impl SpercConfig {
    /// The defaults on `network`.
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

    /// A bandwidth-delay product, a packet at least.
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
        "whether flows start with speculative packets (1RC): 0";
    switch together "together" (0.0, 1.0, "0 or 1")
        "whether a host's flows number their speculative packets together: 1";
    switch weights "weights" (0.0, 1.0, "0 or 1")
        "whether a flow's part is divided by its host's connections: 0";
    number control "control" (0.001, 1.0, "0.001 to 1")
        "part of the line that a host's rate packets take at most: 0.02";
}

impl SenderParameters for SpercConfig {
    fn receiver(&self, _network: &NetworkProfile) -> ReceiverConfig {
        ReceiverConfig::Rates
    }

    fn of_another_host(&self) -> Option<Self> {
        Some(Self { starts: Arc::default(), ..self.clone() })
    }
}
