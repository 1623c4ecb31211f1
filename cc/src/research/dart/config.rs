//! Parameters of Dart and where their defaults come from.

use alloc::sync::Arc;
use alloc::vec::Vec;

use squall_base::Span;

use crate::baselines::DcqcnConfig;
use crate::controller::ShareConfig;
use crate::controller::{ReceiverConfig, SenderParameters};
use crate::error::ConfigError;
use crate::network::NetworkProfile;
use crate::tuning::{Parameter, Setting, Tunable};

/// Parameters of [`crate::Dart`] and its receiver, and those of the DCQCN it falls back to.
#[derive(Clone, Debug)]
pub struct DartConfig {
    /// Parameters that Dart adds to DCQCN.
    pub own: DartParameters,
    /// Parameters of the fall-back: DCQCN's own defaults (section VI-A: "following DCQCN's
    /// recommendations").
    pub dcqcn: Arc<DcqcnConfig>,
}

/// Parameters that Dart adds to DCQCN.
#[derive(Clone, PartialEq, Debug)]
pub struct DartParameters {
    /// Limit of the bytes in flight in bandwidth-delay products: 1; 0 for none, as in the paper.
    /// Without a limit the sender count arrives late by the very queue that it should prevent.
    pub cap: f32,
    /// Part of the line that the receiver divides: 1. A smaller one drains the queue that the first
    /// packets of a sender leave.
    pub eta: f32,
    /// Share of the receiver's line from which it counts as the bottleneck: 0.95. The paper gives
    /// no number.
    pub theta: f32,
    /// Time over which a receiver measures its rate and marks: a base round trip. The paper gives
    /// no number.
    pub window: Span,
    /// Silence after which a receiver no longer counts a sender: 50 base round trips (2 s in the
    /// paper).
    pub idle: Span,
}

impl DartConfig {
    /// Returns Dart's default parameters for `network`.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let own = DartParameters { cap: 1.0, eta: 1.0, theta: 0.95, window: rtt, idle: rtt * 50 };
        Self { own, dcqcn: Arc::new(DcqcnConfig::new(network)) }
    }

    /// Returns the limit of the bytes in flight, at least a packet; `None` for no limit.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, not negative
    pub(super) fn window_bytes(&self) -> Option<u64> {
        let bytes = (self.own.cap * self.dcqcn.bdp) as u64;
        (self.own.cap > 0.0).then_some(bytes.max(self.dcqcn.burst.into()))
    }
}

tunable! {
    DartParameters, special: [], also: |_: &Self| Ok(());
    number cap "cap" (0.0, 1000.0, "0 to 1000")
        "limit of the bytes in flight in BDPs: 1; 0 for none, as in the paper";
    number eta "eta" (0.01, 1.0, "0.01 to 1")
        "part of the line that the receiver divides: 1";
    number theta "theta" (0.0, 1.0, "0 to 1")
        "share of the receiver's line from which it counts as the bottleneck: 0.95";
    time window "look_us" (0.001, 1e6, "0.001 to 1000000")
        "time over which a receiver measures its rate and marks: a base RTT";
    time idle "idle_us" (0.001, 1e7, "0.001 to 10000000")
        "silence after which a receiver no longer counts a sender: 50 base RTTs";
}

/// The parameters are Dart's own and those of DCQCN together.
impl Tunable for DartConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[];

    fn check(&self) -> Result<(), ConfigError> {
        self.own.check()?;
        self.dcqcn.check()
    }

    fn set(&mut self, name: &str, value: f64) -> Option<Result<(), ConfigError>> {
        let own = self.own.set(name, value);
        own.or_else(|| Arc::make_mut(&mut self.dcqcn).set(name, value))
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.own.settings();
        settings.extend(self.dcqcn.settings());
        settings
    }
}

impl SenderParameters for DartConfig {
    fn receiver(&self, _network: &NetworkProfile) -> ReceiverConfig {
        ReceiverConfig::Shares(ShareConfig {
            line: self.dcqcn.line,
            theta: self.own.theta,
            window: self.own.window,
            idle: self.own.idle,
            cnp_interval: self.dcqcn.cnp_interval,
            sources: u32::MAX,
        })
    }
}
