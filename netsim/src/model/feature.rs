//! Switch features: functions of switches beyond queueing, marking and trimming.
//!
//! A feature is a row of the table that the program hands over at its start ([`register`]): its
//! name and parameters as users write them (`features = "deflection:tokens=3"`), the program that
//! its switches run, the option that its packets carry, its counters and its metrics. The network,
//! the simulator and the emulator know this trait alone.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::config::{Ground, NetworkOptions};
use super::packet_options::PacketOptions;
use super::program::SwitchProgram;
use crate::Bytes;
use crate::output::Run;

/// A switch feature as users choose it.
pub trait SwitchFeature: fmt::Debug + Sync {
    /// Returns the name by which users choose the feature.
    fn name(&self) -> &'static str;

    /// Describes in one sentence what the switches do, for documents. The sentence begins with a
    /// capital and has no full stop, because the generated page adds one.
    fn help(&self) -> &'static str;

    /// Returns the parameters of the feature that users may give.
    fn parameters(&self) -> &'static [FeatureParameter] {
        &[]
    }

    /// Returns the metrics of a run that the feature adds.
    fn metrics(&self) -> &'static [FeatureMetric] {
        &[]
    }

    /// Checks that the parameters are in range and fit the other options, as far as that does not
    /// depend on the topology.
    ///
    /// # Errors
    /// Names the parameter or option that is wrong, and what is expected.
    fn check(&self, given: &FeatureArguments<'_>, options: &NetworkOptions) -> Result<(), String>;

    /// Builds the feature for one network, from the parameters that the user gave.
    ///
    /// # Errors
    /// Names the parameter that is impossible there, and what is expected.
    fn build(
        &self,
        given: &FeatureArguments<'_>,
        context: &FeatureContext<'_>,
    ) -> Result<Arc<dyn NetworkFeature>, String>;
}

/// A parameter of a switch feature, which users write as `name=value`.
#[derive(Clone, Copy, Debug)]
pub struct FeatureParameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// Placeholder of the parameter's value in help texts, such as `BYTES`.
    pub value: &'static str,
    /// Meaning of the parameter, with range and default: a phrase in lower case without a full
    /// stop, which the generated page adds.
    pub help: &'static str,
}

/// A metric that a switch feature adds: a number that is computed from a run.
#[derive(Clone, Copy, Debug)]
pub struct FeatureMetric {
    /// Name of the metric, which no other metric has.
    pub name: &'static str,
    /// Unit of the metric; empty for a plain number.
    pub unit: &'static str,
    /// Meaning of the metric: a phrase in lower case without a full stop.
    pub help: &'static str,
    /// Computes the metric of a run; `None` if the run has no such number.
    pub compute: fn(&Run) -> Option<f64>,
}

/// The network to which a feature relates its parameters.
#[derive(Clone, Copy)]
pub struct FeatureContext<'a> {
    /// Options of the whole network, as the user gave them.
    pub options: &'a NetworkOptions,
    /// Queue length in bytes from which packets are marked; `u64::MAX` if none are.
    pub marks_from: u64,
    /// Sizes, rates and round-trip time of the network.
    pub ground: &'a Ground<'a>,
}

/// A switch feature as one network runs it, with the values of its parameters.
pub trait NetworkFeature: fmt::Debug + Send + Sync {
    /// Returns the name by which users chose the feature.
    fn name(&self) -> &'static str;

    /// Returns the feature's program for switch `switch`, in its initial state; `None` if that
    /// switch runs none.
    fn program(&self, switch: u32) -> Option<Box<dyn SwitchProgram>>;

    /// Returns the number of virtual lanes that links between switches need, at most
    /// [`super::lane::MOST`].
    fn lanes(&self) -> u8 {
        1
    }

    /// Returns the support that the feature needs from hosts.
    fn needs(&self) -> HostSupport {
        HostSupport::default()
    }

    /// Returns the names of the counters of its programs, at most [`FEATURE_COUNTERS`] for all
    /// features of a network.
    fn counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the names of the counters that the feature keeps for each flow, at most
    /// [`FEATURE_COUNTERS`] for all features of a network.
    fn flow_counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes options for switches into a data packet that leaves a host. Hosts call this only if
    /// [`HostSupport::messages`] is needed.
    fn on_send(&self, packet: &MessagePacket, options: &mut PacketOptions) {
        let _ = (packet, options);
    }

    /// Counts a data packet that arrived at its host, in the counters of its flow.
    fn on_receive(&self, packet: &ReceivedPacket<'_>, counters: &mut [u64]) {
        let _ = (packet, counters);
    }
}

/// Support that a feature needs from hosts and their transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostSupport {
    /// Packets name the message they belong to, and all packets of a message take one path.
    pub messages: bool,
    /// The feature answers the rate packets of transports that ask for a rate; they have a queue of
    /// their own.
    pub rates: bool,
}

/// The place of a data packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessagePacket {
    /// Identifies the message among all that are in the network.
    pub message: u64,
    /// Payload bytes of the message.
    pub bytes: u64,
    /// The packet is the first of its message.
    pub first: bool,
    /// The packet is the last of its message.
    pub last: bool,
}

/// A data packet at its destination.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    /// Length of the packet on the wire, bytes.
    pub bytes: u32,
    /// Payload bytes of the message that the packet belongs to.
    pub message_bytes: u64,
    /// The packet was overtaken by one of its message that was sent later. A retransmission never
    /// counts as late.
    pub late: bool,
    /// The options of the packet, with what switches wrote.
    pub options: &'a PacketOptions,
}

/// Number of counters of all features of a network together, and of each flow.
pub const FEATURE_COUNTERS: usize = 8;

/// Values of the counters of all switch features, in the order of
/// [`super::NetworkConfig::counter_names`].
pub type FeatureCounters = [u64; FEATURE_COUNTERS];

static REGISTERED: OnceLock<&'static [&'static dyn SwitchFeature]> = OnceLock::new();

/// Registers the switch features that users of this process can choose. The first table stays;
/// further calls have no effect.
pub fn register(features: &'static [&'static dyn SwitchFeature]) {
    // A second call comes from a concurrent test, with the same table.
    let _ = REGISTERED.set(features);
}

/// Returns the switch features that [`register`] was given; none before it was called.
#[must_use]
pub fn registered() -> &'static [&'static dyn SwitchFeature] {
    REGISTERED.get().copied().unwrap_or_default()
}

/// The features of a network as users choose them: `rates`, `deflection:tokens=3,short=16KiB`,
/// several joined by `+`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureList(String);

impl FeatureList {
    /// Finds the registered feature of each name in the list, with its parameters.
    ///
    /// # Errors
    /// Returns the feature or parameter that is not known, and the known ones.
    pub fn resolve(
        &self,
    ) -> Result<Vec<(&'static dyn SwitchFeature, FeatureArguments<'_>)>, String> {
        let all = self.0.split('+').filter(|text| !text.is_empty());
        let features: Vec<_> = all.map(resolve).collect::<Result<_, _>>()?;
        for (at, (feature, _)) in features.iter().enumerate() {
            if features[..at].iter().any(|(other, _)| other.name() == feature.name()) {
                return Err(format!("{} is given twice, expected once", feature.name()));
            }
        }
        Ok(features)
    }
}

impl FromStr for FeatureList {
    type Err = core::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for FeatureList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn resolve(text: &str) -> Result<(&'static dyn SwitchFeature, FeatureArguments<'_>), String> {
    let (name, arguments) = text.split_once(':').unwrap_or((text, ""));
    let Some(feature) = registered().iter().find(|feature| feature.name() == name) else {
        let names: Vec<&str> = registered().iter().map(|feature| feature.name()).collect();
        let known =
            if names.is_empty() { "none in this program".to_owned() } else { names.join(", ") };
        return Err(format!("{name:?} is not a switch feature; known: {known}"));
    };
    let mut given = Vec::new();
    for argument in arguments.split(',').filter(|argument| !argument.is_empty()) {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(format!("{name}: {argument:?} has no value, expected {argument}=VALUE"));
        };
        if !feature.parameters().iter().any(|parameter| parameter.name == key) {
            let names: Vec<&str> = feature.parameters().iter().map(|known| known.name).collect();
            return Err(format!("{name}: {key:?} is not a parameter; known: {}", names.join(", ")));
        }
        given.push((key, value));
    }
    Ok((*feature, FeatureArguments { given }))
}

/// The parameters of a feature that a user gave, by name.
#[derive(Clone, Debug)]
pub struct FeatureArguments<'a> {
    given: Vec<(&'a str, &'a str)>,
}

impl FeatureArguments<'_> {
    /// Returns the value of a parameter as the user wrote it; `None` if it was not given. If it was
    /// given several times, the last value counts.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given.iter().rfind(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Returns what a word stands for in `allowed`, a table of words and their meanings; `None` if
    /// the parameter was not given.
    ///
    /// # Errors
    /// Returns an error that lists the allowed words if the value is none of them.
    pub fn word<T: Clone>(&self, name: &str, allowed: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some((_, meaning)) = allowed.iter().find(|(word, _)| *word == text) {
            return Ok(Some(meaning.clone()));
        }
        let words: Vec<&str> = allowed.iter().map(|(word, _)| *word).collect();
        Err(format!("{name} {text:?} is not known; allowed: {}", words.join(", ")))
    }

    /// Parses the value of a parameter; `None` if it was not given.
    ///
    /// # Errors
    /// Returns an error if the value is not a number, or out of range.
    pub fn number<T>(&self, name: &str, range: RangeInclusive<T>) -> Result<Option<T>, String>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let (low, high) = (range.start(), range.end());
        match text.parse::<T>() {
            Ok(value) if range.contains(&value) => Ok(Some(value)),
            _ => Err(format!("{name} {text} is out of range {low}..={high}")),
        }
    }

    /// Parses a number of bytes, such as `16KiB`, that is at least 1; `None` if it was not given.
    ///
    /// # Errors
    /// Returns an error if the value is not a number of bytes, or zero.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<Bytes>() {
            Ok(Bytes(bytes)) if bytes > 0 => Ok(Some(bytes)),
            Ok(_) => Err(format!("{name} {text} is out of range: at least one byte is expected")),
            Err(error) => Err(format!("{name} {text}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_of_the_allowed_ones() {
        let given = vec![("order", "lifo"), ("order", "fifo"), ("drop", "head")];
        let given = FeatureArguments { given };
        let allowed = [("fifo", 1), ("lifo", 2)];
        assert_eq!(given.word("order", &allowed), Ok(Some(1)), "the last value counts");
        assert_eq!(given.word("mode", &allowed), Ok(None));
        let error = given.word("drop", &allowed).expect_err("not an allowed word");
        assert_eq!(error, "drop \"head\" is not known; allowed: fifo, lifo");
        assert_eq!((given.text("drop"), given.text("mode")), (Some("head"), None));
    }
}
