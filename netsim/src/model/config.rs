//! Configuration of the ports and switches of a network: the options that a user may give in plans,
//! on both command lines and in an emulator's status ([`NetworkOptions`]), and the values that
//! follow from them in one network ([`NetworkConfig`]).
//!
//! A field of [`NetworkOptions`] *is* a key of a plan's `[network]`, an `--option` of `squall sim`
//! and `squall emulate up`, a word of `squall emulate status` and a key in `docs/plans.md`; its
//! comment is the help of all of them.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::feature::{
    FEATURE_COUNTERS, FeatureArguments, FeatureContext, FeatureList, HostSupport, NetworkFeature,
    SwitchFeature,
};
use super::lane;
use super::lossless::Lossless;
use super::port::PortConfig;
use super::program::FeatureProgram;
use super::telemetry::Telemetry;
use crate::{Bytes, Picos};
use squall_base::{Rate, Span};

/// Options of a network as a user gives them. An option that is left out has the default stated
/// here.
#[derive(Clone, PartialEq, Debug, Default, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkOptions {
    /// Rate of the hosts' network cards, Gb/s, where it is less than that of their links (default that of their
    /// links; `squall sim` with a .topo file: 100, as uet-htsim's -linkspeed).
    #[arg(long, visible_aliases = ["nic", "linkspeed"], value_name = "GBPS")]
    pub nic_gbps: Option<f64>,
    /// Switches trim packets that find the queue full, instead of dropping them (default true;
    /// false in a lossless network).
    #[arg(long, value_name = "BOOL")]
    pub trimming: Option<bool>,
    /// Data queue of a port.
    #[arg(long, value_name = "BYTES")]
    pub queue: Option<Bytes>,
    /// Data queue of a port in bandwidth-delay products (default 1 with trimming, 5 without).
    #[arg(long, value_name = "BDP")]
    pub queue_bdp: Option<f64>,
    /// Marking thresholds as shares of the queue if that is given, else of a bandwidth-delay product
    /// (default 0.2,0.8; none for no marks).
    #[arg(long, value_name = "LOW,HIGH")]
    pub ecn: Option<Marks>,
    /// Marking thresholds in bandwidth-delay products, for queues of another length.
    #[arg(long, value_name = "LOW,HIGH")]
    pub ecn_bdp: Option<Marks>,
    /// Weighted round robin instead of strict priority: the numbers of packets without data and of
    /// data packets that leave a port in turn while both wait; 10,1 as in NDP, section 3.1 (default
    /// packets without data first).
    #[arg(long, value_name = "CONTROL,DATA")]
    pub weights: Option<Weights>,
    /// Pause instead of dropping (PFC): data queues are then unlimited.
    #[arg(long)]
    pub lossless: bool,
    /// Lossless: bytes from one input of a switch above which the switch pauses it (default half a
    /// queue).
    #[arg(long, value_name = "BYTES")]
    pub xoff: Option<Bytes>,
    /// Lossless: bytes from one input of a switch below which the input resumes (default two
    /// packets less than xoff).
    #[arg(long, value_name = "BYTES")]
    pub xon: Option<Bytes>,
    /// Lossless: buffer that the ports of a switch share; the switch pauses an input that occupies
    /// more bytes of it than are free (default none: each input has its own limit).
    #[arg(long, value_name = "BYTES")]
    pub buffer: Option<Bytes>,
    /// When switches send a packet on: store-and-forward, once it has arrived (default); or cut-through, once its first 64
    /// bytes have, if the outgoing link is idle and not faster than the incoming one.
    #[arg(long, value_enum, value_name = "HOW")]
    pub switching: Option<Switching>,
    /// Switches choose the shorter of two random queues instead of hashing the entropy.
    #[arg(long)]
    pub adaptive: bool,
    /// Switches write the length of the queue that a packet leaves into the packet: in-band
    /// telemetry.
    #[arg(long)]
    pub telemetry: bool,
    /// Further features of switches, with their parameters: NAME[:KEY=VALUE,..], several joined by + (docs/plans.md lists them).
    #[arg(long, value_name = "FEATURES")]
    pub features: Option<FeatureList>,
    /// Time from the failure of a link until routing avoids it, microseconds (default 0; in a live
    /// emulator 100, before latencies are scaled).
    #[arg(long, value_name = "US")]
    pub reroute_us: Option<f64>,
}

/// When a switch sends a packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// The whole packet has arrived.
    #[default]
    StoreAndForward,
    /// The first [`HEADER_BYTES`] have arrived, if the outgoing link is not faster than the incoming one.
    CutThrough,
}

/// Bytes of a packet by which a switch that cuts through chooses the outgoing link: its headers up to UDP.
pub const HEADER_BYTES: u32 = 64;

impl Switching {
    /// Returns the bytes of a packet of `bytes` bytes that a switch receives from a link of rate `from` before it
    /// sends the packet over an idle link of rate `to`.
    #[must_use]
    pub fn bytes_before(self, bytes: u32, from: Rate, to: Rate) -> u32 {
        match self {
            Self::CutThrough if to <= from => bytes.min(HEADER_BYTES),
            _ => bytes,
        }
    }
}

impl fmt::Display for NetworkOptions {
    /// Writes the options that were given, key by key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(serde_json::Value::Object(keys)) = serde_json::to_value(self) else {
            return Err(fmt::Error);
        };
        let mut separator = "";
        for (key, value) in keys {
            match value {
                serde_json::Value::Null => continue,
                value => write!(f, "{separator}{key} {value}")?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

/// The options of a network on a command line, with short forms for two that users often switch
/// off.
#[derive(Clone, PartialEq, Debug, Default, Args)]
pub struct NetworkArgs {
    #[command(flatten)]
    options: NetworkOptions,
    /// Short form of --trimming false.
    #[arg(long, conflicts_with = "trimming")]
    no_trim: bool,
    /// Short form of --ecn none.
    #[arg(long, conflicts_with_all = ["ecn", "ecn_bdp"])]
    no_ecn: bool,
}

impl NetworkArgs {
    /// Returns the network options that the command line gives, with the short forms applied.
    #[must_use]
    pub fn options(&self) -> NetworkOptions {
        let mut options = self.options.clone();
        if self.no_trim {
            options.trimming = Some(false);
        }
        if self.no_ecn {
            options.ecn = Some(Marks::NONE);
        }
        options
    }
}

/// Thresholds between which the marking probability rises: `[low, high]`, or empty for no marks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Marks(Vec<f64>);

impl Marks {
    /// No marking thresholds: ports mark no packets.
    pub const NONE: Self = Self(Vec::new());

    /// Creates marking thresholds from `low`, where marking begins, to `high`, where every packet
    /// is marked.
    #[must_use]
    pub fn between(low: f64, high: f64) -> Self {
        Self(vec![low, high])
    }
}

impl FromStr for Marks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let numbers: Result<Vec<f64>, _> =
            text.split(',').map(|part| part.trim().parse()).collect();
        match numbers {
            Ok(numbers) if numbers.len() == 2 => Ok(Self(numbers)),
            _ => Err("expected two thresholds in order, such as 0.2,0.8, or none".to_owned()),
        }
    }
}

/// Weights of a port's two queues: the number of control packets and the number of data packets
/// that it sends in a turn while both wait. Neither is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "(u16, u16)")]
pub struct Weights(pub(super) u16, pub(super) u16);

impl TryFrom<(u16, u16)> for Weights {
    type Error = &'static str;

    fn try_from((control, data): (u16, u16)) -> Result<Self, Self::Error> {
        let fine = (1..=1000).contains(&control) && (1..=1000).contains(&data);
        fine.then_some(Self(control, data))
            .ok_or("expected two numbers of packets from 1 to 1000, such as 10,1")
    }
}

impl FromStr for Weights {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(',').unwrap_or_default();
        let number = |part: &str| part.trim().parse().unwrap_or(0);
        Self::try_from((number(parts.0), number(parts.1)))
    }
}

/// A network option whose value is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// Key of the option, such as `queue`.
    pub key: &'static str,
    /// The value that was given for the option, and what is expected.
    pub what: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network.{}: {}", self.key, self.what)
    }
}

impl core::error::Error for OptionError {}

pub(super) fn fault<T>(key: &'static str, what: impl fmt::Display) -> Result<T, OptionError> {
    Err(OptionError { key, what: what.to_string() })
}

fn refuse_feature<T>(name: &str, what: &str) -> Result<T, OptionError> {
    fault("features", format!("{name}: {what}"))
}

/// Returns the names of a feature's counters with the name of the feature in front, as in
/// `deflection.packets`.
fn names(feature: &'static str, counters: &'static [&'static str]) -> impl Iterator<Item = String> {
    counters.iter().map(move |counter| format!("{feature}.{counter}"))
}

/// Properties of one network, by which options that are relative (such as a queue in
/// bandwidth-delay products) become numbers.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Bandwidth-delay product between the farthest hosts, in full packets, rounded up.
    pub bdp_packets: u64,
    /// Returns the bandwidth-delay product in bytes, not rounded. It is called only if an option is
    /// given in such products.
    pub bdp_bytes: &'a dyn Fn() -> f64,
    /// Bytes of a full data packet on the wire.
    pub packet: u32,
    /// Bytes that trimming leaves of a full data packet.
    pub trimmed: u32,
    /// Minimum length of a data queue, in full packets.
    pub least: u64,
    /// Rate of the slowest host link.
    pub line: Rate,
    /// Unloaded round trip between the farthest hosts, as their congestion control assumes it.
    pub rtt: Span,
    /// Time by which the clocks of hosts are ahead of the network's.
    pub ahead: Span,
    /// Factor of all rates in the options; below 1 for a network in slow motion.
    pub rates: f64,
    /// Factor of all times in the options; above 1 for a network in slow motion.
    pub times: f64,
    /// Default time from a failure until routing knows of it, in microseconds, before scaling.
    pub reroute_us: f64,
    /// Seed of the random choices of switches: ECN marking, ECMP hashing and adaptive routing.
    pub seed: u64,
}

impl NetworkOptions {
    /// Checks that all options are in range and compatible, as far as that can be decided without a
    /// network.
    ///
    /// # Errors
    /// Returns the first key that is not, and what is expected.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.lossless && self.trimming == Some(true) {
            return fault("trimming", "expected `trimming` or `lossless`, not both");
        }
        if let Some(gbps) = self.nic_gbps.filter(|gbps| !(0.001..=100_000.0).contains(gbps)) {
            return fault("nic_gbps", format!("{gbps} Gb/s is out of range 0.001..=100000"));
        }
        if let Some(products) = self.queue_bdp.filter(|n| !(*n > 0.0 && n.is_finite())) {
            return fault("queue_bdp", format!("{products}, expected a number above 0"));
        }
        if self.queue.is_some() && self.queue_bdp.is_some() {
            return fault("queue", "expected `queue` or `queue_bdp`, not both");
        }
        if self.queue == Some(Bytes(0)) {
            return fault("queue", "a queue of 0 bytes, expected one packet at least");
        }
        match (&self.ecn, &self.ecn_bdp) {
            (Some(_), Some(_)) => {
                return fault("ecn", "expected `ecn` or `ecn_bdp`, not both");
            }
            (Some(Marks(shares)), None) => thresholds("ecn", shares, "shares of the queue")?,
            (None, Some(Marks(products))) => {
                thresholds("ecn_bdp", products, "bandwidth-delay products")?;
                // A threshold above the queue length has no effect, so it is refused. Without a
                // given length, queues are at least one product.
                let most = self.queue_bdp.unwrap_or(1.0);
                if self.queue.is_none() && products.iter().any(|n| *n > most) {
                    let what =
                        format!("thresholds {products:?}, expected at most the queue, {most}");
                    return fault("ecn_bdp", what);
                }
            }
            (None, None) => {}
        }
        Lossless::check(self)?;
        for (feature, given) in self.resolve()? {
            feature.check(&given, self).or_else(|what| refuse_feature(feature.name(), &what))?;
        }
        if let Some(us) = self.reroute_us.filter(|us| !(0.0..=1e9).contains(us)) {
            return fault("reroute_us", format!("{us} us is out of range 0..=1e9"));
        }
        Ok(())
    }

    fn resolve(
        &self,
    ) -> Result<Vec<(&'static dyn SwitchFeature, FeatureArguments<'_>)>, OptionError> {
        let resolved = self.features.as_ref().map_or(Ok(Vec::new()), FeatureList::resolve);
        resolved.or_else(|what| fault("features", what))
    }

    /// Returns when switches send a packet on.
    #[must_use]
    pub fn switching(&self) -> Switching {
        self.switching.unwrap_or_default()
    }

    /// Returns whether switches trim packets that find a full queue, instead of dropping them.
    #[must_use]
    pub fn trims(&self) -> bool {
        self.trimming.unwrap_or(!self.lossless)
    }

    /// Returns the rate of network cards, times `scale`, if they are slower than their links of
    /// rate `line`.
    #[must_use]
    pub fn card(&self, line: Rate, scale: f64) -> Option<Rate> {
        self.nic_gbps.map(|gbps| Rate((gbps * 1e9 * scale) as u64)).filter(|rate| *rate < line)
    }

    /// Computes the configuration that follows from these options in a network with the properties
    /// `ground`.
    ///
    /// # Errors
    /// Returns the key that is impossible there, and what is expected.
    pub fn settle(&self, ground: &Ground<'_>) -> Result<NetworkConfig, OptionError> {
        self.check()?;
        let packet = u64::from(ground.packet);
        let mut config = NetworkConfig::new(ground.bdp_packets * packet, self.trims(), ground.seed);
        let queue = self.queue.map(|queue| queue.0);
        let queue = queue.or(self.queue_bdp.map(|n| (n * (ground.bdp_bytes)()) as u64));
        if let Some(queue) = queue {
            if queue < packet {
                let what = format!("{queue} bytes; at least a packet ({packet}) is needed");
                return fault("queue", what);
            }
            config.set_queue(queue);
        }
        config.set_queue(config.queue.max(ground.least * packet));
        let shares = self.shares(queue, ground.bdp_bytes)?;
        (config.ecn_min, config.ecn_max) = shares.map_or((u64::MAX, u64::MAX), |(low, high)| {
            // Shares refer to a bandwidth-delay product, in whole packets, unless the queue was
            // given (uet-htsim main_uec.cpp: `ceil(bdp_pkt * 0.2)`).
            let packets = if queue.is_some() { config.queue / packet } else { ground.bdp_packets };
            let share = |share: f64| (packets as f64 * share).ceil() as u64 * packet;
            (share(low), share(high))
        });
        config.trim = self.trims().then_some(ground.trimmed);
        config.lossless =
            self.lossless.then(|| Lossless::new(self, config.queue, packet)).transpose()?;
        config.nic = self.card(ground.line, ground.rates);
        let reroute = self.reroute_us.unwrap_or(ground.reroute_us) * ground.times;
        config.reroute = Picos((reroute * 1e6) as u64);
        let context = FeatureContext { options: self, marks_from: config.ecn_min, ground };
        for (feature, given) in self.resolve()? {
            let built = feature.build(&given, &context);
            let built = built.or_else(|what| refuse_feature(feature.name(), &what))?;
            config.add_feature(built)?;
        }
        config.options = Self {
            trimming: Some(self.trims()),
            queue: Some(Bytes(config.queue)),
            queue_bdp: None,
            reroute_us: Some(reroute),
            ..self.clone()
        };
        Ok(config)
    }

    /// Returns the marking thresholds as shares of the queue, if that was given, else of a
    /// bandwidth-delay product.
    fn shares(
        &self,
        queue: Option<u64>,
        bdp: &dyn Fn() -> f64,
    ) -> Result<Option<(f64, f64)>, OptionError> {
        let of = |marks: &Marks| match *marks.0 {
            [low, high] => Some((low, high)),
            _ => None,
        };
        match (&self.ecn, &self.ecn_bdp) {
            (_, Some(marks)) => {
                let shares = of(marks).map(|(low, high)| match queue {
                    Some(queue) => (low * bdp() / queue as f64, high * bdp() / queue as f64),
                    None => (low, high),
                });
                if shares.is_some_and(|(_, high)| high > 1.0) {
                    let queue = queue.map_or(1.0, |queue| queue as f64 / bdp());
                    let what =
                        format!("thresholds {:?}, expected at most the queue, {queue}", marks.0);
                    return fault("ecn_bdp", what);
                }
                Ok(shares)
            }
            (Some(marks), _) => Ok(of(marks)),
            (None, None) => Ok(Some((0.2, 0.8))),
        }
    }
}

/// Checks that `numbers` are two ECN marking thresholds, the lower one first, or none.
fn thresholds(key: &'static str, numbers: &[f64], of: &str) -> Result<(), OptionError> {
    match *numbers {
        [] => Ok(()),
        [low, high] if !(0.0 <= low && low <= high && high.is_finite()) => {
            fault(key, format!("thresholds [{low}, {high}], expected 0 <= low <= high"))
        }
        [low, high] if key == "ecn" && high > 1.0 => {
            fault(key, format!("thresholds [{low}, {high}] of the queue, expected at most 1"))
        }
        [_, _] => Ok(()),
        _ => fault(key, format!("thresholds {numbers:?}, expected [low, high] as {of}, or []")),
    }
}

/// Configuration of all ports and switches of a network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// The options that were given, completed by the values that follow from them.
    pub options: NetworkOptions,
    /// Rate of the network cards, if they are slower than their links.
    pub nic: Option<Rate>,
    /// Capacity of a port's data queue in bytes, whatever the rate of the port. The packet being
    /// sent counts.
    pub queue: u64,
    /// Capacity of a port's control queue in bytes; twice the data queue, as in htsim.
    pub control_queue: u64,
    /// Lower marking threshold in bytes. A port marks a departing packet, with a probability that
    /// rises from 0, when the data queue it leaves behind exceeds this.
    pub ecn_min: u64,
    /// Upper marking threshold in bytes, at which the probability is 1. If both thresholds are
    /// `u64::MAX`, nothing is marked.
    pub ecn_max: u64,
    /// Switches trim packets that find the queue full to this many bytes on the wire; `None` drops
    /// them.
    pub trim: Option<u32>,
    /// Pauses the upstream sender instead of dropping (IEEE 802.1Qbb). Data queues are then
    /// unlimited, and a switch pauses an input that owns more than `xoff` of its bytes until it
    /// owns less than `xon`.
    pub lossless: Option<Lossless>,
    /// Features of the switches, in the order in which their programs see a packet.
    pub features: Vec<Arc<dyn NetworkFeature>>,
    /// Delay from the failure of a link or switch until routing avoids it.
    pub reroute: Picos,
    /// Seed of the random choices of switches: ECN marking, ECMP hashing and adaptive routing.
    pub seed: u64,
}

impl NetworkConfig {
    /// Returns the defaults of the second SMaRTT paper for a bandwidth-delay product of `bdp`
    /// bytes: queues of one bandwidth-delay product with trimming and of five without, and marks
    /// from 20 % to 80 % of the queue.
    #[must_use]
    pub fn new(bdp: u64, trimming: bool, seed: u64) -> Self {
        let queue = if trimming { bdp } else { bdp * 5 };
        Self {
            options: NetworkOptions { trimming: Some(trimming), ..NetworkOptions::default() },
            nic: None,
            queue,
            control_queue: queue * 2,
            ecn_min: queue / 5,
            ecn_max: queue * 4 / 5,
            trim: trimming.then_some(64),
            lossless: None,
            features: Vec::new(),
            reroute: Picos::ZERO,
            seed,
        }
    }

    /// Sets the length of data queues in bytes, and that of control queues in proportion.
    fn set_queue(&mut self, bytes: u64) {
        self.queue = bytes;
        self.control_queue = bytes.saturating_mul(2);
    }

    /// Adds a switch feature to the network.
    ///
    /// # Errors
    /// Returns an error if the features together need more counters or lanes than there are.
    pub fn add_feature(&mut self, feature: Arc<dyn NetworkFeature>) -> Result<(), OptionError> {
        let name = feature.name();
        self.features.push(feature);
        for (what, count) in [
            ("counters", self.counter_names().count()),
            ("counters of flows", self.flow_counter_names().count()),
        ] {
            if count > FEATURE_COUNTERS {
                let text = format!(
                    "the features of the network need {count} {what}, and there are {FEATURE_COUNTERS}: choose fewer features"
                );
                return refuse_feature(name, &text);
            }
        }
        if self.lanes() > lane::MOST {
            let text = format!("it needs {} lanes, expected at most {}", self.lanes(), lane::MOST);
            return refuse_feature(name, &text);
        }
        Ok(())
    }

    /// Returns the programs of switch `switch`: telemetry and those of the features.
    pub(super) fn programs(&self, switch: u32) -> Vec<FeatureProgram> {
        let telemetry =
            self.options.telemetry.then(|| FeatureProgram::without_feature(Box::new(Telemetry)));
        let mut programs: Vec<FeatureProgram> = telemetry.into_iter().collect();
        let mut from = 0;
        for feature in &self.features {
            let counters = from..from + feature.counters().len();
            from = counters.end;
            let program = feature.program(switch);
            programs.extend(program.map(|program| FeatureProgram { program, counters }));
        }
        programs
    }

    /// Returns the names of the counters in [`super::Totals::features`], such as
    /// `deflection.packets`.
    pub fn counter_names(&self) -> impl Iterator<Item = String> + '_ {
        let of = |feature: &'_ Arc<dyn NetworkFeature>| names(feature.name(), feature.counters());
        self.features.iter().flat_map(of)
    }

    /// Returns the names of the counters that switch features keep for each flow.
    pub fn flow_counter_names(&self) -> impl Iterator<Item = String> + '_ {
        let of =
            |feature: &'_ Arc<dyn NetworkFeature>| names(feature.name(), feature.flow_counters());
        self.features.iter().flat_map(of)
    }

    /// Returns the support that the features together need from hosts.
    #[must_use]
    pub fn needs(&self) -> HostSupport {
        self.features.iter().map(|feature| feature.needs()).fold(
            HostSupport::default(),
            |all, one| HostSupport {
                messages: all.messages || one.messages,
                rates: all.rates || one.rates,
            },
        )
    }

    /// Returns the name of a feature that needs packets to name their message, if there is one.
    #[must_use]
    pub fn message_feature(&self) -> Option<&'static str> {
        self.features.iter().find(|feature| feature.needs().messages).map(|feature| feature.name())
    }

    /// Returns the number of virtual lanes that a link between switches has: the largest number
    /// that a feature needs.
    pub(super) fn lanes(&self) -> u8 {
        self.features.iter().map(|feature| feature.lanes()).max().unwrap_or(1)
    }

    /// Returns the configuration of a switch's port to a link of `rate`; `last_hop` is true if it
    /// leads to a host.
    #[must_use]
    pub fn port(&self, rate: Rate, last_hop: bool) -> PortConfig {
        PortConfig {
            queue: if self.lossless.is_some() { u64::MAX } else { self.queue },
            control_queue: self.control_queue,
            ecn_min: self.ecn_min,
            ecn_max: self.ecn_max,
            trim: if self.lossless.is_some() { None } else { self.trim },
            last_hop,
            weights: self.options.weights,
            rates: self.needs().rates,
            lanes: self.lanes(),
            ..PortConfig::of_host(rate)
        }
    }

    /// Returns the configuration of a host's port to a link of `rate`. A host does not overrun,
    /// mark or trim its own packets.
    #[must_use]
    pub fn card(&self, rate: Rate) -> PortConfig {
        PortConfig { rates: self.needs().rates, ..PortConfig::of_host(self.nic.unwrap_or(rate)) }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        network: NetworkArgs,
    }

    /// Returns a network of which the bandwidth-delay product is ten packets of 4096 bytes, or
    /// 40000 bytes.
    fn ground() -> Ground<'static> {
        Ground {
            bdp_packets: 10,
            bdp_bytes: &|| 40_000.0,
            packet: 4096,
            trimmed: 64,
            least: 0,
            line: Rate::gbps(100),
            rtt: Span::micros(3),
            ahead: Span::ZERO,
            rates: 0.1,
            times: 10.0,
            reroute_us: 100.0,
            seed: 1,
        }
    }

    fn of_line(words: &str) -> NetworkOptions {
        let words = std::iter::once("squall").chain(words.split_whitespace());
        Line::try_parse_from(words).expect("options").network.options()
    }

    /// Checks that every key of a plan is an option with help, and every option a key, so that a
    /// command line means the same as a plan.
    #[test]
    fn keys_and_options_are_one() {
        let keys = serde_json::to_value(NetworkOptions::default()).expect("a table");
        let keys: Vec<String> = keys.as_object().expect("a table").keys().cloned().collect();
        let command = NetworkOptions::augment_args(Command::new("x"));
        let mut options: Vec<String> =
            command.get_arguments().map(|option| option.get_id().to_string()).collect();
        options.sort();
        assert_eq!(keys, options);
        for option in command.get_arguments() {
            let long = option.get_long().expect("long");
            assert_eq!(long.replace('-', "_"), option.get_id().as_str());
            assert!(option.get_help().is_some_and(|help| help.to_string().len() > 10), "{long}");
        }
        let table = "queue = \"30KB\"\necn = []\nlossless = true\nreroute_us = 5\n";
        let of_plan: NetworkOptions = toml::from_str(table).expect("a table");
        assert_eq!(of_plan, of_line("--queue 30KB --ecn none --lossless --reroute-us 5"));
        assert_eq!(of_line("--no-ecn --no-trim"), of_line("--ecn none --trimming false"));
        assert!(Line::try_parse_from(["x", "--ecn", "0.2"]).is_err());
        assert!(Line::try_parse_from(["x", "--no-trim", "--trimming", "true"]).is_err());
        let empty = Line::command().get_matches_from(["x"]);
        assert_eq!(
            NetworkArgs::from_arg_matches(&empty).expect("nothing").options(),
            NetworkOptions::default()
        );
    }

    #[test]
    fn what_follows_is_in_whole_packets_and_scaled() {
        let settled = |words: &str| of_line(words).settle(&ground()).expect(words);
        let default = settled("");
        assert_eq!((default.queue, default.control_queue), (40_960, 81_920));
        assert_eq!((default.ecn_min, default.ecn_max), (2 * 4096, 8 * 4096));
        assert_eq!((default.trim, default.nic), (Some(64), None));
        // The network runs ten times slower, so 100 us become 1000 us.
        assert_eq!(default.reroute, Picos::micros(1_000));
        let dropping = settled("--no-trim");
        assert_eq!((dropping.queue, dropping.ecn_max, dropping.trim), (5 * 40_960, 8 * 4096, None));
        // Shares of a queue that is given: it holds 25 whole packets, and thresholds are rounded up
        // to whole packets.
        let given = settled("--queue 102500 --ecn 0.1,1");
        assert_eq!((given.ecn_min, given.ecn_max), (3 * 4096, 25 * 4096));
        let products = settled("--queue-bdp 2.5 --ecn-bdp 0.5,2 --nic 50");
        assert_eq!((products.queue, products.ecn_max), (100_000, 20 * 4096));
        // A card of 50 Gb/s has 5 Gb/s in slow motion, and the links have 100 Gb/s.
        assert_eq!(products.nic, Some(Rate::gbps(5)));
        let unmarked = settled("--no-ecn");
        assert_eq!((unmarked.ecn_min, unmarked.ecn_max), (u64::MAX, u64::MAX));
        let lossless = settled("--lossless").lossless.expect("thresholds");
        assert_eq!(lossless.xoff, 5 * 40_960 / 2);
        assert_eq!(lossless.xon, lossless.xoff - 2 * 4096);
        // The text is the one that an emulator's status shows.
        let text = settled("--adaptive --queue 30KB").options.to_string();
        assert!(text.contains("adaptive true") && text.contains("trimming true"), "{text}");
        let short = of_line("").settle(&Ground { least: 80, ..ground() }).expect("a queue");
        assert_eq!(short.queue, 80 * 4096);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for (words, key, says) in [
            ("--lossless --trimming true", "trimming", "not both"),
            ("--queue 5KB --queue-bdp 2", "queue", "not both"),
            ("--queue 0", "queue", "one packet"),
            ("--queue 100", "queue", "4096"),
            ("--queue-bdp 0", "queue_bdp", "above 0"),
            ("--ecn 0.8,0.2", "ecn", "low <= high"),
            ("--ecn 0.2,1.5", "ecn", "at most 1"),
            ("--ecn 0.2,0.8 --ecn-bdp 1,2", "ecn", "not both"),
            ("--queue-bdp 5 --ecn-bdp 1,9", "ecn_bdp", "at most the queue, 5"),
            ("--xoff 5KB", "xoff", "lossless"),
            ("--lossless --xoff 5KB --xon 6KB", "xon", "less than xoff"),
            ("--buffer 64MB", "buffer", "lossless"),
            ("--lossless --buffer 64MB --xoff 5KB", "buffer", "not both"),
            ("--lossless --buffer 9KB", "buffer", "eight packets"),
            ("--nic 0", "nic_gbps", "0.001"),
            ("--reroute-us 1e10", "reroute_us", "1e9"),
            ("--features nothing", "features", "known: none"),
        ] {
            let error = of_line(words).settle(&ground()).map(|_| ()).expect_err(words);
            assert_eq!(error.key, key, "{words}");
            assert!(error.to_string().contains(says), "{words}: {error}");
        }
    }

    /// A feature that does nothing but need counters and lanes.
    #[derive(Debug)]
    struct Greedy {
        lanes: u8,
    }

    impl NetworkFeature for Greedy {
        fn name(&self) -> &'static str {
            "greedy"
        }

        fn program(&self, _switch: u32) -> Option<Box<dyn super::super::SwitchProgram>> {
            None
        }

        fn lanes(&self) -> u8 {
            self.lanes
        }

        fn counters(&self) -> &'static [&'static str] {
            &["a", "b", "c", "d", "e"]
        }
    }

    #[test]
    fn features_that_need_more_counters_or_lanes_than_there_are_are_refused() {
        let mut config = NetworkConfig::new(100_000, true, 1);
        config.add_feature(Arc::new(Greedy { lanes: lane::MOST })).expect("five counters");
        let error = config.add_feature(Arc::new(Greedy { lanes: 1 })).expect_err("ten counters");
        assert!(
            error.to_string().contains("features of the network need 10 counters, and there are 8")
        );
        let mut config = NetworkConfig::new(100_000, true, 1);
        let error = config.add_feature(Arc::new(Greedy { lanes: 9 })).expect_err("nine lanes");
        assert!(error.to_string().contains("9 lanes, expected at most 8"), "{error}");
    }
}
