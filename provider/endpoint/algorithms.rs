//! The choice of algorithms by name (`FI_SQUALL_CC`, `_LB`, `_LOSS` and `_SCOPE`). Names that the layers below do not
//! know are refused, with a list of those that they know.

use std::fmt::{Display, Write as _};

use squall_cc::{
    ChoiceError, NetworkProfile, PathsConfig, ReceiverConfig, Scope, SenderConfig, Setting,
};
use squall_engine::LossDetection;

use crate::abi::errno::{Errno, Result};
use crate::host::logger::USER;
use crate::host::param::Params;

/// The congestion control, path selection and loss detection of an endpoint, with their parameters.
pub(crate) struct Algorithms {
    pub(crate) sender: SenderConfig,
    pub(crate) paths: PathsConfig,
    pub(crate) loss: LossDetection,
    pub(crate) scope: Scope,
}

/// Word that an algorithm variable can have to list everything that it accepts. Opening the endpoint then fails.
const HELP: &str = "help";

/// Reads the algorithms that the parameters name. A problem is logged, and the endpoint is not opened.
pub(crate) fn choose(params: &Params, network: &NetworkProfile) -> Result<Algorithms> {
    let paths = u16::try_from(params.paths).unwrap_or(u16::MAX);
    let control = |text: &str| SenderConfig::by_name(text, network);
    let selector = |text: &str| PathsConfig::by_name(text, paths);
    let controls = |name: &str| keys(control(name), SenderConfig::settings);
    let selectors = |name: &str| keys(selector(name), PathsConfig::settings);
    let none = |_: &str| Vec::new();
    let lists: [(&String, &str, Names<'_>, Keys<'_>); 4] = [
        (&params.cc, "CC", SenderConfig::NAMES, &controls),
        (&params.lb, "LB", PathsConfig::NAMES, &selectors),
        (&params.loss, "LOSS", LossDetection::NAMES, &none),
        (&params.scope, "SCOPE", Scope::NAMES, &none),
    ];
    if let Some((_, variable, names, keys)) = lists.iter().find(|list| list.0 == HELP) {
        // A line at a time: libfabric cuts longer ones.
        for line in list(variable, names, *keys).lines() {
            log::warn!(target: USER, "{line}");
        }
        return Err(Errno::INVAL);
    }
    let sender = allowed("CC", &params.cc, control(&params.cc))?;
    if params.crc && written_into(&sender, network) {
        log::warn!(
            target: USER,
            "FI_SQUALL_CRC=yes and FI_SQUALL_CC={} do not go together: switches write into packets, whose checksums are \
             then wrong; leave one out",
            params.cc
        );
        return Err(Errno::INVAL);
    }
    let scope = Scope::by_name(&params.scope, &sender);
    Ok(Algorithms {
        sender,
        paths: allowed("LB", &params.lb, selector(&params.lb))?,
        loss: allowed("LOSS", &params.loss, params.loss.parse())?,
        scope: allowed("SCOPE", &params.scope, scope)?,
    })
}

/// Returns whether the congestion control needs switches that write into packets.
fn written_into(sender: &SenderConfig, network: &NetworkProfile) -> bool {
    sender.acks().telemetry || sender.receiver(network) == ReceiverConfig::Rates
}

/// Names of algorithms, each with a line of description.
type Names<'a> = &'a [(&'a str, &'a str)];

/// Returns the parameters of the algorithm with this name.
type Keys<'a> = &'a dyn Fn(&str) -> Vec<Setting>;

fn keys<C>(
    config: core::result::Result<C, ChoiceError>,
    settings: impl FnOnce(&C) -> Vec<Setting>,
) -> Vec<Setting> {
    config.map(|config| settings(&config)).unwrap_or_default()
}

fn allowed<T, E: Display>(
    variable: &str,
    text: &str,
    result: core::result::Result<T, E>,
) -> Result<T> {
    result.map_err(|error| {
        log::warn!(
            target: USER,
            "FI_SQUALL_{variable}={text}: {error}; FI_SQUALL_{variable}=help lists the values"
        );
        Errno::INVAL
    })
}

/// Returns the text that lists all values of an algorithm variable.
fn list(variable: &str, names: Names<'_>, keys: Keys<'_>) -> String {
    let mut text = format!("FI_SQUALL_{variable} can be:\n");
    // Writing to a String cannot fail.
    for (name, what) in names {
        let _ = writeln!(text, "  {name:<12} {what}");
        for Setting { name: key, what, allowed, value } in keys(name) {
            let _ = writeln!(text, "      :{key}={value}  {what} (allowed: {allowed})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::{Rate, Span};

    #[test]
    fn the_lists_name_everything_with_its_keys() {
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(50), 4096, false);
        let text = list("CC", SenderConfig::NAMES, &|name| {
            keys(SenderConfig::by_name(name, &network), SenderConfig::settings)
        });
        for (name, what) in SenderConfig::NAMES {
            assert!(text.contains(name) && text.contains(what), "{text}");
            let config = SenderConfig::by_name(name, &network).expect("a name of the list");
            for setting in config.settings() {
                assert!(text.contains(&format!(":{}=", setting.name)), "{text}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(50), 4096, false);
        for (name, value, fits) in [
            ("CC", "eqds+nscc", true),
            ("CC", "nscc:quick_adapt=0", true),
            ("CC", "cubic", false),
            ("CC", "nscc:quick_adapt=2", false),
            ("CC", "help", false),
            ("LB", "plb", true),
            ("LB", "best", false),
            ("LB", "help", false),
            ("LOSS", "trim,rto", true),
            ("LOSS", "order", false),
            ("SCOPE", "auto", true),
            ("SCOPE", "destination", true),
            ("SCOPE", "destination-unsplit", true),
            ("SCOPE", "rack", false),
        ] {
            let (params, problems) = crate::host::param::tests::read(&[(name, value)]);
            assert!(problems.is_empty(), "{problems:?}");
            match choose(&params, &network) {
                Ok(_) => assert!(fits, "{name}={value}"),
                Err(errno) => assert!(!fits && errno == Errno::INVAL, "{name}={value}"),
            }
        }
    }

    #[test]
    fn checksums_and_what_switches_write_do_not_go_together() {
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(50), 4096, false);
        for (cc, crc, fits) in [
            ("hpcc", "no", true),
            ("sperc", "no", true),
            ("nscc", "yes", true),
            ("hpcc", "yes", false),
            ("sperc:one_rtt=1", "yes", false),
        ] {
            let (params, problems) = crate::host::param::tests::read(&[("CC", cc), ("CRC", crc)]);
            assert!(problems.is_empty(), "{problems:?}");
            assert_eq!(choose(&params, &network).is_ok(), fits, "{cc} with crc={crc}");
        }
    }
}
