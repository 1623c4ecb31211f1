//! Scenes with a table `[flits]`: accelerators whose switches replicate and reduce ([`squall_research::credit_network`]).

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::SceneError;
use super::scene::fault;
use super::topology::TopologyTable;
use squall_cc::InjectionConfig;
use squall_netsim::Picos;
use squall_netsim::output::{
    FlowResult, NetworkFacts, Operations, Origin, Provenance, Run, Totals,
};
use squall_netsim::settings::Settings;
use squall_netsim::sim::Observer;
use squall_research::credit_network::{
    CreditNetwork, CreditNetworkConfig, CreditNetworkError, CreditNetworkResults, PAYLOAD_BYTES,
    SenderResult,
};

/// A scene with a table `[flits]`: its topology and the credit network on it.
#[derive(Clone, PartialEq, Debug)]
pub struct CreditNetworkScene {
    /// Accelerators, switches and links.
    pub topology: TopologyTable,
    /// Load of the accelerators and buffers of the switches.
    pub network: CreditNetworkTable,
}

/// `[flits]`: an all-reduce over accelerators whose switches replicate writes and reduce reads. Times are cycles, of which a link
/// carries a flit each.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct CreditNetworkTable {
    /// Control of injection: `none`, `window`, `aimd` or `3cpo`, with parameters if wanted (default `3cpo`).
    pub control: String,
    /// Members that send, drawn at random (default all).
    pub senders: Option<u16>,
    /// Reads of each, each followed by a write of what it brought (default 128).
    pub transactions: u32,
    /// Senders begin up to so many cycles late, at random (default 0).
    pub skew: u32,
    /// Cycles that a memory takes to answer (default 180).
    pub memory: u32,
    /// Flits of waiting answers beyond which a member's memory takes no request (default no limit).
    pub answers: Option<u32>,
    /// Flits of a virtual channel that wait at each end of a link (default a round trip between two
    /// switches).
    pub buffer: Option<u32>,
}

impl Default for CreditNetworkTable {
    fn default() -> Self {
        Self {
            control: "3cpo".to_owned(),
            senders: None,
            transactions: 128,
            skew: 0,
            memory: 180,
            answers: None,
            buffer: None,
        }
    }
}

/// A simulation of accelerators, prepared and ready to run.
#[derive(Clone, Debug)]
pub struct CreditNetworkRun {
    network: CreditNetwork,
    config: CreditNetworkConfig,
    settings: Settings,
}

impl CreditNetworkScene {
    /// Reads the files that the scene names and builds the network. Relative paths start at
    /// `folder`.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub(super) fn prepare(&self, folder: &Path, seed: u64) -> Result<CreditNetworkRun, SceneError> {
        let table = &self.network;
        let topology = self.topology.build(folder)?;
        let injection = InjectionConfig::by_name(&table.control)
            .or_else(|error| fault("flits.control", error))?;
        let hosts = u16::try_from(topology.hosts).unwrap_or(u16::MAX);
        let config = CreditNetworkConfig {
            topology,
            injection,
            senders: table.senders.unwrap_or(hosts),
            transactions: table.transactions,
            skew: table.skew,
            memory: table.memory,
            answers: table.answers,
            buffer: table.buffer,
            seed,
        };
        let network = CreditNetwork::new(&config)?;
        let mut settings = Settings::default();
        self.topology.state(&mut settings);
        settings.set_table("flits", table);
        settings.set("seed", seed);
        Ok(CreditNetworkRun { network, config, settings })
    }
}

impl CreditNetworkRun {
    /// Returns the number of accelerators that send.
    pub(super) fn senders(&self) -> usize {
        self.config.senders.into()
    }

    /// Runs the simulation and returns its results.
    pub(super) fn run(self, origin: &Origin, observer: &mut dyn Observer) -> Run {
        let derived = self.derived();
        let Self { network, config, settings } = self;
        // The only use of the clock: the duration of the run is not part of the simulation.
        #[allow(clippy::disallowed_methods)]
        let started = Instant::now();
        let results = network.run(observer);
        let mut kept = keep(&config, &results);
        kept.totals.wall_s = started.elapsed().as_secs_f64();
        kept.provenance = Some(Provenance { origin: origin.clone(), settings, derived });
        kept
    }

    /// Returns the values that follow from the settings, such as the length of a cycle.
    fn derived(&self) -> Settings {
        let mut derived = Settings::default();
        derived.set("topology.hosts", self.config.topology.hosts);
        derived.set("topology.switches", self.config.topology.switches.len());
        derived.set("topology.links", self.config.topology.links.len());
        derived.set("flits.cycle_ps", self.config.cycle().0);
        derived.set("flits.buffer", self.network.buffer());
        for setting in self.config.injection.tuned_for(self.config.senders.into()).settings() {
            derived.set(format!("flits.control.{}", setting.name), setting.value);
        }
        derived
    }
}

/// Returns the results as a run, in which each sender is a flow.
fn keep(config: &CreditNetworkConfig, results: &CreditNetworkResults) -> Run {
    let micros = |cycles: u64| Picos(cycles.saturating_mul(config.cycle().0)).as_micros();
    let flow = |(sender, id): (&SenderResult, u32)| FlowResult {
        id,
        src: sender.member.into(),
        // A sender sends to all members, itself included, so the flow has no single destination.
        dst: sender.member.into(),
        bytes: u64::from(config.transactions).saturating_mul(PAYLOAD_BYTES),
        start_us: Some(micros(sender.start)),
        fct_us: sender.end.map(|end| micros(end - sender.start)),
        reason: sender.end.is_none().then(|| "operations were not answered".to_owned()),
        ..FlowResult::default()
    };
    Run {
        seed: config.seed,
        flows: results.senders.iter().zip(1..).map(flow).collect(),
        totals: Totals { packets: results.packets, events: results.cycles, ..Totals::default() },
        network: NetworkFacts {
            hosts: config.topology.hosts,
            line_gbps: config.topology.host_rate().0 as f64 / 1e9,
            ..NetworkFacts::default()
        },
        operations: Some(Operations {
            count: results.operations,
            effective_flits: results.effective_flits,
            cycles: results.cycles,
            mean_latency: results.latency_sum as f64 / results.operations.max(1) as f64,
            max_latency: results.latency_max as f64,
        }),
        stopped: results.stopped.map(str::to_owned),
        ..Run::default()
    }
}

impl From<CreditNetworkError> for SceneError {
    fn from(error: CreditNetworkError) -> Self {
        let key = match error.field {
            "topology" => "topology".to_owned(),
            field => format!("flits.{field}"),
        };
        Self { key, what: error.what }
    }
}
