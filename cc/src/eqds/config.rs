//! Parameters of receiver-driven credits (EQDS, RCCC), for the sender and the receiver.

use squall_base::{Rate, Span};

use crate::controller::{CreditConfig, ReceiverConfig, SenderParameters};
use crate::error::{ConfigError, within};
use crate::network::NetworkProfile;
use crate::tuning::{Parameter, Tunable, number, switch, time};

const MOST: &str = "one MTU to 2 GB";
const START: &str = "one MTU to max_credit";

/// Parameters of [`crate::Eqds`] and of the receiver it needs: [`EqdsConfig::new`] derives those of
/// UE 1.0's RCCC as uet-htsim runs it, and its check validates the result.
#[derive(Clone, PartialEq, Debug)]
pub struct EqdsConfig {
    /// Rate of the slower of the two ends' links.
    pub link_rate: Rate,
    /// Round-trip time of the idle network.
    pub base_rtt: Span,
    /// Size of a full packet in nominal bytes (UDP payload and 48 bytes for headers).
    pub mtu: u32,
    /// Speculative credit of a new flow in bytes, which it may spend before the first grant: as
    /// much as it may hold.
    pub start_credit: u64,
    /// Most credit a flow may hold or ask for at a time, in bytes: 1.5 bandwidth-delay products; also
    /// its window when the peer does not grant.
    pub max_credit: u64,
    /// Time that a flow without credit waits before its first credit request: 8 base round-trip
    /// times.
    pub ask_after: Span,
    /// Unanswered credit requests after which the flow continues without credit: 4.
    pub patience: u8,
    /// ACKs carry credit: yes, unless a window of the sender needs the field for itself.
    pub in_acks: bool,
    /// Receiver: share of the line that is granted, see [`CreditConfig::share`].
    pub share: f64,
    /// Receiver: bytes of credit granted at a time, see [`CreditConfig::pull`].
    pub pull: u32,
    /// Receiver: bytes of credit that a flow without demand receives, see [`CreditConfig::idle`].
    pub idle: u64,
    /// Receiver: delay that the pacer makes up for, see [`CreditConfig::catch_up`].
    pub catch_up: Span,
    /// Receiver: grant less when much is trimmed in the network, see [`CreditConfig::core_period`].
    pub oversubscribed: bool,
}

impl EqdsConfig {
    /// Returns the default parameters of receiver-driven credits on `network`.
    #[must_use]
    pub fn new(network: &NetworkProfile) -> Self {
        let rtt = network.base_rtt.max(network.min_base_rtt.unwrap_or(Span::ZERO));
        let floor = network.min_window.unwrap_or(0).max(u64::from(network.mtu));
        let max_credit = (network.line.bytes_in(rtt).saturating_mul(3) / 2).max(floor);
        let receiver = CreditConfig::new(network);
        Self {
            link_rate: network.line,
            base_rtt: network.base_rtt,
            mtu: network.mtu,
            start_credit: max_credit,
            max_credit,
            ask_after: rtt * 8,
            patience: 4,
            in_acks: true,
            share: receiver.share,
            pull: receiver.pull,
            idle: max_credit,
            catch_up: receiver.catch_up,
            oversubscribed: false,
        }
    }

    /// Returns the receiver's part of the credit parameters.
    fn credits(&self) -> CreditConfig {
        CreditConfig {
            line: self.link_rate,
            mtu: self.mtu,
            share: self.share,
            pull: self.pull,
            idle: self.idle,
            catch_up: self.catch_up,
            in_acks: self.in_acks,
            core_period: if self.oversubscribed { self.base_rtt } else { Span::ZERO },
        }
    }
}

impl Tunable for EqdsConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        number!(start_credit: u64, "speculative credit of a new flow in bytes: max_credit", START),
        number!(max_credit: u64, "most credit a flow may hold or ask for in bytes: 1.5 BDP", MOST),
        time!(
            "ask_after_us",
            ask_after,
            "time a blocked flow waits before it asks for credit: 8 base RTTs",
            "0.001 to 1000000 (1 s)"
        ),
        number!(patience: u8,
            "questions without an answer after which it goes on without credit: 4",
            "1 to 255 questions"
        ),
        number!(share: f64, "share of the line that the receiver grants: 0.99", CreditConfig::SHARE),
        number!(pull: u32, "bytes the receiver grants at a time: 4 packets", CreditConfig::PULL),
        number!(idle: u64,
            "credit in bytes for flows without demand while nobody asks: max_credit",
            CreditConfig::IDLE
        ),
        time!(
            "catch_up_us",
            catch_up,
            "delay the receiver's pacer makes up for: one base RTT",
            CreditConfig::CATCH_UP
        ),
        switch!(
            "oversubscribed",
            oversubscribed,
            "whether the receiver grants less when much is trimmed before its port: 0, as in EQDS"
        ),
    ];

    fn check(&self) -> Result<(), ConfigError> {
        let mtu = f64::from(self.mtu);
        within("mtu", mtu, 64.0, 1e6, "64 to 1000000 bytes")?;
        within("max_credit", self.max_credit as f64, mtu, 2e9, MOST)?;
        let (start, most) = (self.start_credit as f64, self.max_credit as f64);
        within("start_credit", start, mtu, most, START)?;
        let ask_after = self.ask_after.as_f64() / 1e3;
        within("ask_after_us", ask_after, 0.001, 1e6, "0.001 to 1000000 (1 s)")?;
        within("patience", f64::from(self.patience), 1.0, 255.0, "1 to 255 questions")?;
        self.credits().check()
    }
}

impl SenderParameters for EqdsConfig {
    fn receiver(&self, _network: &NetworkProfile) -> ReceiverConfig {
        ReceiverConfig::Credits(self.credits())
    }
}
