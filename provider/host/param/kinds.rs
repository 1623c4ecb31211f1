//! The notation of parameters: sizes with K, M, G, durations with ns, us, ms, s, choices by name.

use core::marker::PhantomData;
use core::ops::RangeInclusive;

use squall_base::quantity::{self, Kilobyte};
use squall_base::{Rate, Span};
use squall_cc::{PathsConfig, Scope, SenderConfig};
use squall_engine::LossDetection;

use crate::abi::ffi;

/// The syntax of a parameter's value.
pub(crate) trait Kind {
    /// Type of the value after parsing.
    type Value;
    /// The type that libfabric gives the parameter.
    const HOST_TYPE: ffi::fi_param_type;
    /// The names of which a value consists, each with a line of description, if there is a list.
    const NAMES: &'static [(&'static str, &'static str)] = &[];
    /// True if the parameter protects the endpoint. No domain opens if its value is not understood, because the default
    /// would protect less than the user meant.
    const PROTECTS: bool = false;
    /// Parses a value of a parameter.
    ///
    /// # Errors
    /// The text describes the values that are allowed.
    fn parse(text: &str) -> Result<Self::Value, String>;
    /// Parses the value that the user wrote for a parameter.
    ///
    /// # Errors
    /// The text describes the values that are allowed.
    fn parse_given(text: &str) -> Result<Self::Value, String> {
        Self::parse(text)
    }
}

/// A parameter that can be any text.
pub(crate) struct Text;

impl Kind for Text {
    type Value = String;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// A parameter that names the file with the key of a job. A value that is set must not be empty: a script whose
/// variable is not set must not remove the protection.
pub(crate) struct KeyFile;

impl Kind for KeyFile {
    type Value = String;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    const PROTECTS: bool = true;
    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
    fn parse_given(text: &str) -> Result<String, String> {
        if text.is_empty() { Err("the name of a file".to_owned()) } else { Self::parse(text) }
    }
}

/// A parameter that is yes or no.
pub(crate) struct Flag;

impl Kind for Flag {
    type Value = bool;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_BOOL;
    fn parse(text: &str) -> Result<bool, String> {
        match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err("yes or no".to_owned()),
        }
    }
}

/// A parameter that is a whole number from MIN to MAX.
pub(crate) struct Count<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Kind for Count<MIN, MAX> {
    type Value = u32;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_INT;
    fn parse(text: &str) -> Result<u32, String> {
        text.parse()
            .ok()
            .filter(|n| (MIN..=MAX).contains(n))
            .ok_or_else(|| format!("a number from {MIN} to {MAX}"))
    }
}

/// A parameter that is a whole number from `MIN` to `MAX`, or "auto".
pub(crate) struct AutoCount<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Kind for AutoCount<MIN, MAX> {
    type Value = Option<u32>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Option<u32>, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        Count::<MIN, MAX>::parse(text).map(Some).map_err(|wanted| format!("{wanted}, or auto"))
    }
}

/// A parameter that is a number of network cards, or "all".
pub(crate) struct Rails;

impl Kind for Rails {
    type Value = Option<u32>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Option<u32>, String> {
        if text.eq_ignore_ascii_case("all") {
            return Ok(None);
        }
        Count::<1, { squall_net::rails::MAX_RAILS as u32 }>::parse(text)
            .map(Some)
            .map_err(|wanted| format!("{wanted}, or all"))
    }
}

/// A parameter that is a size in bytes, or "auto". `KB`, `MB` and `GB` are powers of 1024, as `K`, `M` and `G` are.
pub(crate) struct Bytes;

impl Kind for Bytes {
    type Value = Option<u64>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Option<u64>, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        // The sum of two sizes must not wrap.
        quantity::parse_bytes(text, Kilobyte::Of1024)
            .filter(|bytes| *bytes <= u64::MAX / 2)
            .map(Some)
            .ok_or_else(|| "a size such as 4096, 16K, 8M or 1G, or auto".to_owned())
    }
}

/// A parameter that is a length of time, or "auto".
pub(crate) struct Time;

impl Kind for Time {
    type Value = Option<Span>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Option<Span>, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        quantity::parse_span(text)
            .map(Some)
            .ok_or_else(|| "a time such as 500ns, 20us, 5ms or 10s, or auto".to_owned())
    }
}

/// A parameter that is a rate in bits per second, or "auto".
pub(crate) struct BitRate;

impl Kind for BitRate {
    type Value = Option<Rate>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Option<Rate>, String> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(None);
        }
        quantity::parse_rate(text)
            .filter(|rate| rate.0 >= 1_000_000)
            .map(Some)
            .ok_or_else(|| "a rate of at least 1M, such as 100M, 25G or 400G, or auto".to_owned())
    }
}

/// A parameter that is a range of UDP ports, or empty.
pub(crate) struct Ports;

impl Kind for Ports {
    type Value = Option<RangeInclusive<u16>>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        text.split_once('-')
            .and_then(|(a, b)| Some((a.trim().parse::<u16>().ok()?, b.trim().parse::<u16>().ok()?)))
            .filter(|(a, b)| *a > 0 && a <= b)
            .map(|(a, b)| Some(a..=b))
            .ok_or_else(|| "a range of ports such as 50000-50015".to_owned())
    }
}

/// A parameter for the UDP port of an endpoint: 0 for any, one port, or a range.
pub(crate) struct OwnPorts;

impl Kind for OwnPorts {
    type Value = Option<RangeInclusive<u16>>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self::Value, String> {
        match text.trim().parse::<u16>() {
            Ok(0) => Ok(None),
            Ok(port) => Ok(Some(port..=port)),
            Err(_) => Ports::parse(text).ok().flatten().map(Some).ok_or_else(|| {
                "a port, a range of ports such as 47930-47993, or 0 for any".to_owned()
            }),
        }
    }
}

/// A parameter that is the number of a processor, or empty.
pub(crate) struct Processor;

impl Processor {
    /// Largest number of processors in the system's processor sets (`cpu_set_t`).
    const ROOM: usize = 8 * size_of::<libc::cpu_set_t>();
}

impl Kind for Processor {
    type Value = Option<usize>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .ok()
            .filter(|cpu| *cpu < Self::ROOM)
            .map(Some)
            .ok_or_else(|| format!("a processor's number, from 0 to {}", Self::ROOM - 1))
    }
}

/// A parameter that names an algorithm, which another crate parses.
pub(crate) struct Choice<L>(PhantomData<L>);

/// A list of names of algorithms, each with a line of description.
pub(crate) trait List {
    /// The names of the algorithms, each with a line of description.
    const NAMES: &'static [(&'static str, &'static str)];
}

/// The names of the congestion control algorithms.
pub(crate) struct Controls;

impl List for Controls {
    const NAMES: &'static [(&'static str, &'static str)] = SenderConfig::NAMES;
}

/// The names of the path selection algorithms.
pub(crate) struct Selectors;

impl List for Selectors {
    const NAMES: &'static [(&'static str, &'static str)] = PathsConfig::NAMES;
}

/// The names of the loss detection algorithms.
pub(crate) struct Detectors;

impl List for Detectors {
    const NAMES: &'static [(&'static str, &'static str)] = LossDetection::NAMES;
}

/// The names of the scopes of congestion control: per flow, per destination and so on.
pub(crate) struct Scopes;

impl List for Scopes {
    const NAMES: &'static [(&'static str, &'static str)] = Scope::NAMES;
}

impl<L: List> Kind for Choice<L> {
    type Value = String;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    const NAMES: &'static [(&'static str, &'static str)] = L::NAMES;
    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// The setting that lets the provider answer applications in `fi_getinfo`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Activation {
    /// The provider answers unless it is installed in libfabric's own directory and nothing names it.
    #[default]
    Auto,
    /// The provider always answers.
    Yes,
    /// The provider never answers.
    No,
}

impl Activation {
    /// Parses a value of FI_SQUALL_ENABLE, or of `enable` in the administrator's file.
    ///
    /// # Errors
    /// The values that are allowed.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let flag = Flag::parse(text.trim()).map_err(|allowed| format!("auto, {allowed}"))?;
        Ok(if flag { Self::Yes } else { Self::No })
    }
}

impl Kind for Activation {
    type Value = Self;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self, String> {
        Self::from_text(text)
    }
}

/// The rule that decides which peers may talk to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerPolicy {
    /// Every peer that proves its address in the handshake may talk to the endpoint.
    Any,
    /// Only peers in the address vector may talk to the endpoint.
    Named,
}

impl Kind for PeerPolicy {
    type Value = Self;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    const PROTECTS: bool = true;
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any),
            "av" => Ok(Self::Named),
            _ => Err("any or av".to_owned()),
        }
    }
}

/// The rule that decides which endpoints encrypt their packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EncryptionPolicy {
    /// Endpoints with a job key encrypt their packets, and others do not.
    Keyed,
    /// No endpoint encrypts its packets.
    Off,
    /// All endpoints encrypt, and an endpoint without a job key cannot be opened.
    Required,
}

impl Kind for EncryptionPolicy {
    type Value = Self;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    const PROTECTS: bool = true;
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Keyed),
            "off" => Ok(Self::Off),
            "required" => Ok(Self::Required),
            _ => Err("auto, off or required".to_owned()),
        }
    }
}

/// The wire format that an endpoint speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireKind {
    /// The wire format of this project.
    Squall,
    /// The wire format of the UE standard, as the reference provider speaks it.
    Uet,
    /// The wire format of SUET, another software implementation of Ultra Ethernet.
    Suet,
}

impl Kind for WireKind {
    type Value = Self;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "squall" => Ok(Self::Squall),
            "uet" => Ok(Self::Uet),
            "suet" => Ok(Self::Suet),
            _ => Err("squall, uet or suet".to_owned()),
        }
    }
}

/// The kind of packet port that an endpoint uses on the kernel's network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortKind {
    /// The endpoint uses UDP sockets.
    Udp,
    /// The endpoint uses AF_XDP sockets, over UDP sockets.
    Xdp,
}

impl Kind for PortKind {
    type Value = Self;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "udp" => Ok(Self::Udp),
            "xdp" => Ok(Self::Xdp),
            _ => Err("udp or xdp".to_owned()),
        }
    }
}

/// The format in which statistics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatsFormat {
    /// Statistics are written as `name=value` pairs.
    Text,
    /// Statistics are written as one JSON object per line.
    Json,
}

/// The format of statistics, and the file that they go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StatsSpec {
    /// The format of the statistics, text or JSON.
    pub(crate) format: StatsFormat,
    /// Pattern of the name of the statistics file; `None` means standard error.
    pub(crate) file: Option<String>,
}

/// A parameter that selects statistics: off, text, json, text:FILE, json:FILE.
pub(crate) struct Stats;

impl Kind for Stats {
    type Value = Option<StatsSpec>;
    const HOST_TYPE: ffi::fi_param_type = ffi::FI_PARAM_STRING;
    fn parse(text: &str) -> Result<Self::Value, String> {
        let (format, file) = match text.split_once(':') {
            Some((format, file)) => (format, Some(file.to_owned())),
            None => (text, None),
        };
        let format = match format.to_ascii_lowercase().as_str() {
            "" | "off" | "no" | "0" if file.is_none() => return Ok(None),
            "text" => StatsFormat::Text,
            "json" => StatsFormat::Json,
            _ => return Err("off, text, json, text:FILE or json:FILE".to_owned()),
        };
        Ok(Some(StatsSpec { format, file: file.filter(|f| !f.is_empty()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(Bytes::parse("16K"), Ok(Some(16384)));
        assert_eq!(Bytes::parse("16KB"), Ok(Some(16384)));
        assert_eq!(Bytes::parse("auto"), Ok(None));
        assert!(Bytes::parse("16Q").is_err() && Bytes::parse("").is_err());
        assert!(Bytes::parse("99999999999G").is_err());
        assert_eq!(Time::parse("20us"), Ok(Some(Span::micros(20))));
        assert!(Time::parse("20").is_err());
        assert_eq!(BitRate::parse("2.5Gbit/s"), Ok(Some(Rate(2_500_000_000))));
        assert!(BitRate::parse("10").is_err());
        assert_eq!(Ports::parse("100-200"), Ok(Some(100..=200)));
        assert!(Ports::parse("200-100").is_err() && Ports::parse("0-1").is_err());
        let own = [("0", None), ("4793", Some(4793..=4793)), ("5000-5063", Some(5000..=5063))];
        for (text, ports) in own {
            assert_eq!(OwnPorts::parse(text), Ok(ports), "{text}");
        }
        for bad in ["", "65536", "9-8", "a", "1-", "-1"] {
            assert!(OwnPorts::parse(bad).is_err(), "{bad}");
        }
        assert!(Count::<1, 9>::parse("10").is_err());
        assert_eq!(Flag::parse("On"), Ok(true));
        assert_eq!(Activation::parse("1"), Ok(Activation::Yes));
        assert_eq!(Activation::parse("perhaps"), Err("auto, yes or no".to_owned()));
    }

    #[test]
    fn a_processor_has_a_place_in_a_set_of_them() {
        assert_eq!((Processor::parse(""), Processor::parse("0")), (Ok(None), Ok(Some(0))));
        assert_eq!(Processor::parse("1023"), Ok(Some(1023)));
        for text in ["1024", "99999999999999999999", "-1", "two", "0-3"] {
            let allowed = Processor::parse(text).expect_err(text);
            assert_eq!(allowed, "a processor's number, from 0 to 1023");
        }
    }

    #[test]
    fn statistics() {
        let spec = |format, file: Option<&str>| {
            Ok(Some(StatsSpec { format, file: file.map(str::to_owned) }))
        };
        assert_eq!(Stats::parse("off"), Ok(None));
        assert_eq!(Stats::parse("text"), spec(StatsFormat::Text, None));
        assert_eq!(Stats::parse("json:a.%p"), spec(StatsFormat::Json, Some("a.%p")));
        assert!(Stats::parse("xml").is_err() && Stats::parse("off:x").is_err());
    }
}
