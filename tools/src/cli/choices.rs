//! The lists that `squall sim --cc help` and similar options print: every name, and every parameter
//! with its default.

use std::fmt::Write as _;

use super::sim::SimArgs;
use squall_base::{Rate, Span};
use squall_cc::{NetworkProfile, PathsConfig, Scope, SenderConfig, Setting};
use squall_engine::LossDetection;
use squall_netsim::output::text::table;

/// Value of an option, such as `--cc help`, that asks for the list of its values.
const HELP: &str = "help";

/// Returns the lists of values that the options of the command line ask for, one after another;
/// empty if none asks.
pub(super) fn help(args: &SimArgs) -> String {
    // Some defaults depend on the network, so the list is made for an example.
    let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), args.mtu, false);
    let control = |name: &str| SenderConfig::by_name(name, &network).map(|of| of.settings());
    let selector = |name: &str| PathsConfig::by_name(name, args.paths).map(|of| of.settings());
    let mut text = String::new();
    if args.cc.as_deref() == Some(HELP) {
        list(&mut text, "--cc", SenderConfig::NAMES, |name| control(name).unwrap_or_default());
        text.push_str(
            "Defaults are those of 100 Gb/s and a base RTT of 12 us where they follow from the network; the provenance of a \
             result has its own.\n",
        );
    }
    if args.lb == HELP {
        list(&mut text, "--lb", PathsConfig::NAMES, |name| selector(name).unwrap_or_default());
    }
    if args.loss == HELP {
        list(&mut text, "--loss", LossDetection::NAMES, |_| Vec::new());
    }
    if args.scope == HELP {
        list(&mut text, "--scope", Scope::NAMES, |_| Vec::new());
    }
    text
}

/// Appends the table of all values of an option, with their parameters.
fn list(
    text: &mut String,
    option: &str,
    names: &[(&str, &str)],
    settings: impl Fn(&str) -> Vec<Setting>,
) {
    let row = |words: [&str; 4]| words.map(str::to_owned).to_vec();
    let mut rows = Vec::new();
    for (name, what) in names {
        rows.push(row([name, "", what, ""]));
        for Setting { name, what, allowed, value } in settings(name) {
            rows.push(row([&format!("  :{name}="), &value.to_string(), what, allowed]));
        }
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{}", table(&[option, "default", "what", "allowed"], &rows));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimArgs,
    }

    fn of(words: &str) -> String {
        help(&Line::parse_from(format!("x {words}").split_whitespace()).args)
    }

    #[test]
    fn every_name_is_listed_with_its_parameters_and_their_defaults() {
        let text = of("--cc help");
        let network = NetworkProfile::new(Rate::gbps(100), Span::micros(12), 4096, false);
        for (name, what) in SenderConfig::NAMES {
            assert!(text.contains(name) && text.contains(what), "{name}: {text}");
            for Setting { name: key, value, .. } in
                SenderConfig::by_name(name, &network).expect("listed").settings()
            {
                let row = |line: &str| {
                    let mut words = line.split_whitespace();
                    words.next() == Some(&format!(":{key}="))
                        && words.next() == Some(&value.to_string())
                };
                assert!(text.lines().any(row), "{name}:{key}={value}: {text}");
            }
        }
        assert!(of("--lb help --scope help").contains("destination-unsplit"));
        assert!(of("--lb help").contains(":freeze_us=") && of("--loss help").contains("ooo"));
        assert_eq!(of("--topo star:2 --load incast:1x1KiB --cc nscc"), "");
    }
}
