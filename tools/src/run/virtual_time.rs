//! Options of a job in virtual time, and the report that follows it.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};

use super::overhead;
use super::preparation::Variables;
use crate::doctor::environment::variable;
use crate::provider;
use squall_base::quantity::parse_rate;
use squall_base::{Rate, Span};
use squall_emulator::{CardModel, VirtualTimeConfig, VirtualTimeReport};
use squall_net::emulator::frame::{Deviation, DeviationKind};
use squall_net::emulator::host_overhead::HostOverhead;
use squall_netsim::Picos;
use squall_netsim::settings::Settings;

/// Name of the library that answers the time functions of ranks.
const TIME_LIBRARY: &str = "libsquall_time.so";
/// Variable with libraries that the dynamic loader loads first.
const PRELOAD: &str = "LD_PRELOAD";
/// Lookahead below which a run in virtual time is slow.
const SHORT_LOOKAHEAD: Span = Span::nanos(100);
/// Ranks that have a line each in the report. It has one line for all others, with the range of
/// their computed times.
const MOST_LINES: usize = 16;
/// Largest time of a packet between memory and card, ns.
const MOST_DMA: u64 = 1_000_000;
/// One second.
const SECOND: Picos = Picos(1_000_000_000_000);

/// Virtual time that the computation of ranks takes.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compute {
    /// The CPU time of a thread between two of its calls of the provider.
    #[default]
    Cpu,
    /// Computation takes no virtual time, so a run of single-threaded ranks can be repeated exactly.
    None,
}

/// Options of virtual time.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Virtual time")]
pub(crate) struct VirtualTimeArgs {
    /// Run the job in virtual time, on a simulated network at full speed. Network and ranks wait
    /// for each other, and the ranks' own clocks show virtual time.
    #[arg(long = "virtual", requires = "on")]
    pub enabled: bool,
    /// Virtual time that ranks take to compute.
    #[arg(long, value_enum, default_value_t, requires = "enabled")]
    pub compute: Compute,
    /// Multiply the CPU time of ranks by this, for hosts that are slower (above 1) or faster.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "enabled")]
    pub cpu_scale: f64,
    /// Virtual times of a host's work: send, receive, poll, clock in ns a call, byte in ps a payload byte. Default:
    /// send=100,receive=100,poll=50,clock=20,byte=0, a network card that places payload by itself. Calls have times of their
    /// own with inject, write, read, atomic (otherwise as send), sent (a completion of an own operation, otherwise as receive)
    /// and unexpected (a receive whose message has arrived before: 0). By size: send=0:120:0/4096:900:35 takes 120 ns below
    /// 4096 bytes, and then 900 ns and 35 ps a byte of the message.
    #[arg(long, value_name = "LIST", requires = "enabled")]
    pub overhead: Option<String>,
    /// Network card of each host: dma=NS is the time of a packet between memory and card in either direction, rate=MESSAGES the
    /// most messages that a host begins in a second, such as 150M, and pcie=RATE the rate between memory and card in either
    /// direction, such as 250G. Ranks of a host share both. Default: none of these takes time.
    #[arg(long, value_name = "LIST", requires = "enabled")]
    pub card: Option<String>,
    /// Longest jump of the clock of a rank that polls and finds nothing, in us.
    #[arg(long, value_name = "US", default_value_t = 1000, requires = "enabled")]
    pub max_idle_step: u64,
    /// Number of ranks that must attach before time begins. Default: the number that the launcher
    /// reports.
    #[arg(long, value_name = "N", requires = "enabled")]
    pub ranks: Option<u32>,
}

impl VirtualTimeArgs {
    /// Returns the rules of virtual time, if the job is to run in it.
    ///
    /// # Errors
    /// A value is not valid.
    pub(crate) fn config(&self) -> Result<Option<VirtualTimeConfig>, String> {
        if !self.enabled {
            return Ok(None);
        }
        if !(1e-3..=1e3).contains(&self.cpu_scale) {
            return Err(format!(
                "--cpu-scale {}: out of range; give a factor from 0.001 to 1000",
                self.cpu_scale
            ));
        }
        if !(1..=1_000_000).contains(&self.max_idle_step) {
            return Err(format!(
                "--max-idle-step {}: out of range; give 1 to 1000000 us",
                self.max_idle_step
            ));
        }
        let overhead = match &self.overhead {
            Some(list) => overhead::parse(list)?,
            None => HostOverhead::default(),
        };
        Ok(Some(VirtualTimeConfig {
            ranks: self.ranks,
            cpu_scale: if self.compute == Compute::Cpu { self.cpu_scale } else { 0.0 },
            overhead,
            longest_idle: Span::micros(self.max_idle_step),
            card: self.card.as_deref().map_or(Ok(CardModel::default()), parse_card)?,
        }))
    }

    /// Adds the rules of virtual time to the settings of a record.
    pub(super) fn add_settings(&self, settings: &mut Settings) {
        let Ok(Some(config)) = self.config() else { return };
        settings.set("virtual.cpu_scale", config.cpu_scale);
        settings.set("virtual.max_idle_step_us", self.max_idle_step);
        overhead::add_settings(&config.overhead, settings);
        let CardModel { dma, message_interval, pcie } = config.card;
        if dma > Picos::ZERO {
            settings.set("virtual.card_dma_ns", dma.0 / 1000);
        }
        if message_interval > Picos::ZERO {
            settings.set("virtual.card_message_interval_ps", message_interval.0);
        }
        if let Some(pcie) = pcie {
            settings.set("virtual.card_pcie_gbps", pcie.0 as f64 / 1e9);
        }
    }
}

/// Parses the value of `--card`, such as `dma=500,rate=150M,pcie=250G`.
fn parse_card(list: &str) -> Result<CardModel, String> {
    let mut card = CardModel::default();
    for part in list.split(',') {
        let bad = || {
            format!(
                "--card {list}: '{part}' is invalid; give dma=NS (0 to {MOST_DMA}), rate=MESSAGES a second (1000 to 1T) or \
                 pcie=RATE (1M to 100T bits a second), separated by commas"
            )
        };
        let quantity = |text: &str, least: u64, most: u64| {
            let number = text.parse().ok().or_else(|| parse_rate(text).map(|rate| rate.0));
            number.filter(|number| (least..=most).contains(number)).ok_or_else(bad)
        };
        match part.split_once('=') {
            Some(("dma", text)) => {
                let ns = text.parse().ok().filter(|ns| *ns <= MOST_DMA);
                card.dma = Picos::nanos(ns.ok_or_else(bad)?);
            }
            Some(("rate", text)) => {
                let messages = quantity(text, 1000, SECOND.0)?;
                card.message_interval = Picos(SECOND.0.div_ceil(messages));
            }
            Some(("pcie", text)) => {
                card.pcie = Some(Rate(quantity(text, 1_000_000, 100_000_000_000_000)?));
            }
            _ => return Err(bad()),
        }
    }
    Ok(card)
}

/// Adds the variable that preloads the time library into ranks. Processes without an endpoint, such as
/// launchers, keep real time.
///
/// # Errors
/// The library is not beside the provider.
pub(super) fn preload(variables: &mut Variables, provider_path: &str) -> Result<(), String> {
    let beside = |folder: &str| Path::new(folder).join(TIME_LIBRARY);
    let file = provider_path.split(':').map(beside).find(|file| file.is_file());
    let file = file.ok_or_else(|| {
        format!(
            "{TIME_LIBRARY} is not beside {} in {provider_path}: build it (ci/build), or install squall anew",
            provider::OBJECT
        )
    })?;
    let file = file.display().to_string();
    let all = variable(PRELOAD).map_or_else(|| file.clone(), |others| format!("{file}:{others}"));
    variables.insert(PRELOAD.to_owned(), all);
    Ok(())
}

/// Returns the report on a job that ran in virtual time.
pub(super) fn describe(report: &VirtualTimeReport) -> String {
    let (virtual_s, real_s) = (seconds(report.virtual_time), seconds(report.real_time));
    let mut text = format!(
        "virtual time: {virtual_s:.9} s in {real_s:.3} s; {} events ({:.2} million/s), {} hand-overs ({:.1} us each, \
         with the work of ranks), lookahead {}",
        report.events,
        report.events as f64 / real_s.max(1e-9) / 1e6,
        report.hand_overs,
        real_s * 1e6 / report.hand_overs.max(1) as f64,
        report.lookahead,
    );
    if report.lookahead.span() < SHORT_LOOKAHEAD {
        text += " (below 100 ns: ranks can hardly run at the same time, and the run is slow)";
    }
    let repeatable = if report.deviations.is_empty() {
        "the same in each run with --compute none, one thread a rank and no encryption"
    } else {
        "approximate and not repeatable, for these reasons"
    };
    let _ = write!(
        text,
        "\n  {} deliveries, hash {:016x} ({repeatable})",
        report.deliveries, report.hash
    );
    for (rank, deviation) in report.deviations.iter().take(MOST_LINES) {
        let _ = write!(text, "\n  deviation of rank {rank}: {}", describe_deviation(*deviation));
    }
    if let more @ 1.. = report.deviations.len().saturating_sub(MOST_LINES) {
        let _ = write!(text, "\n  and {more} more deviations of other ranks");
    }
    let shown = report.ranks.len().min(MOST_LINES);
    for times in &report.ranks[..shown] {
        let _ = write!(
            text,
            "\n  rank {}: computed {:.6} s, calls {:.6} s, waited {:.6} s",
            times.rank,
            seconds(times.computed),
            seconds(times.overhead),
            seconds(times.waited)
        );
    }
    let rest = &report.ranks[shown..];
    if let (Some(least), Some(most)) = (
        rest.iter().map(|times| times.computed).min(),
        rest.iter().map(|times| times.computed).max(),
    ) {
        let _ = write!(
            text,
            "\n  {} more ranks: each computed {:.6} to {:.6} s",
            rest.len(),
            seconds(least),
            seconds(most)
        );
    }
    text
}

/// Describes in a line what made the times of a rank depend on this machine.
fn describe_deviation(Deviation { kind, time }: Deviation) -> String {
    let s = seconds(time);
    match kind {
        DeviationKind::Threads => {
            "several threads call libfabric, in the order in which this machine runs them"
                .to_owned()
        }
        DeviationKind::HelperSleep => format!(
            "threads that do not call libfabric slept, and advanced the clock by {s:.6} s while the others were blocked"
        ),
        DeviationKind::SocketTimeout => {
            format!(
                "setsockopt set SO_RCVTIMEO or SO_SNDTIMEO: up to {s:.6} s that pass in real time"
            )
        }
        DeviationKind::Outside => {
            format!("waited for something outside of the network, {s:.3} s of real time")
        }
        DeviationKind::RealTimeout => {
            format!("syscall waited until a timeout: up to {s:.6} s that passed in real time")
        }
        DeviationKind::LongComputation => format!(
            "computed without a call: {s:.3} s of CPU time, and the others did not wait for its answers"
        ),
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_and_bad_ones_named() {
        let card = parse_card("dma=500,rate=150M,pcie=250G");
        let expected = CardModel {
            dma: Picos::nanos(500),
            // 6666.67 ps.
            message_interval: Picos(6_667),
            pcie: Some(Rate::gbps(250)),
        };
        assert_eq!(card, Ok(expected));
        assert_eq!(
            parse_card("rate=10000").map(|card| card.message_interval),
            Ok(Picos::micros(100))
        );
        for bad in [
            "",
            "dma",
            "dma=1000001",
            "dma=1us",
            "rate=999",
            "rate=2T",
            "pcie=0",
            "pci=1G",
            "dma=1,",
        ] {
            let refused = parse_card(bad).expect_err(bad);
            assert!(refused.starts_with(&format!("--card {bad}: ")), "{refused}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let args = VirtualTimeArgs {
            enabled: true,
            compute: Compute::None,
            cpu_scale: 1.0,
            overhead: None,
            card: None,
            max_idle_step: 1000,
            ranks: Some(3),
        };
        let config = args.config().expect("fine").expect("virtual");
        assert_eq!((config.cpu_scale, config.ranks), (0.0, Some(3)));
        let off = VirtualTimeArgs { enabled: false, ..args.clone() };
        assert_eq!(off.config(), Ok(None));
        let bad = VirtualTimeArgs { cpu_scale: f64::NAN, ..args.clone() };
        assert!(bad.config().is_err_and(|why| why.contains("0.001 to 1000")));
        let bad = VirtualTimeArgs { max_idle_step: 0, ..args };
        assert!(bad.config().is_err_and(|why| why.contains("1 to 1000000 us")));
    }
}
