//! Scenes with a `[flits]` table: accelerators whose switches replicate and reduce ([`squall_research::credit_network`]).

use std::path::Path;
use std::time::Instant;

use super::SceneError;
use super::scene::fault;
use super::tables::{FlitsTable, Scene};
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

/// A scene of this kind with a seed, ready to run.
#[derive(Clone, Debug)]
pub struct FlitScene {
    network: CreditNetwork,
    config: CreditNetworkConfig,
    settings: Settings,
}

impl Scene {
    /// What its `[flits]` table describes.
    ///
    /// # Errors
    /// The key that is wrong, and what is allowed.
    pub(super) fn prepare_flits(
        &self,
        table: &FlitsTable,
        folder: &Path,
        seed: u64,
    ) -> Result<FlitScene, SceneError> {
        self.only_flits()?;
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
        settings.set_table("topology", &self.topology.filled());
        settings.set_table("flits", table);
        settings.set("seed", seed);
        Ok(FlitScene { network, config, settings })
    }

    /// Refuses tables that decide nothing here.
    fn only_flits(&self) -> Result<(), SceneError> {
        let plain = Self::default();
        let given = [
            ("network", self.network != plain.network),
            ("workload", self.workload != plain.workload),
            ("transport", self.transport != plain.transport),
            ("failure", self.failure != plain.failure),
            ("observe", self.observe != plain.observe),
        ];
        match given.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((key, _)) => {
                fault(*key, "has no place beside `flits`, which has a load of its own")
            }
        }
    }
}

impl FlitScene {
    /// How many send.
    pub(super) fn senders(&self) -> usize {
        self.config.senders.into()
    }

    /// Runs it.
    pub(super) fn run(self, origin: &Origin, observer: &mut dyn Observer) -> Run {
        let derived = self.derived();
        let Self { network, config, settings } = self;
        // The only clock: how long it took is not part of what is simulated.
        #[allow(clippy::disallowed_methods)]
        let started = Instant::now();
        let results = network.run(observer);
        let mut kept = keep(&config, &results);
        kept.totals.wall_s = started.elapsed().as_secs_f64();
        kept.provenance = Some(Provenance { origin: origin.clone(), settings, derived });
        kept
    }

    /// What followed from its settings.
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

/// What is kept of its results: each sender is a flow.
fn keep(config: &CreditNetworkConfig, results: &CreditNetworkResults) -> Run {
    let micros = |cycles: u64| Picos(cycles.saturating_mul(config.cycle().0)).as_micros();
    let flow = |(sender, id): (&SenderResult, u32)| FlowResult {
        id,
        src: sender.member.into(),
        // To all, itself too.
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
