//! The scene of a plan: the tables from which a simulation is made.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::credit_network::{CreditNetworkRun, CreditNetworkScene};
use super::failure::FailureTable;
use super::keys::Keys;
use super::topology::TopologyTable;
use super::transport::TransportTable;
use super::workload::WorkloadTable;
use squall_base::{Rate, Rng};
use squall_netsim::Picos;
use squall_netsim::facts::Facts;
use squall_netsim::model::{NetworkOptions, OptionError};
use squall_netsim::settings::Settings;
use squall_netsim::sim::{Observe, SimConfig, SimError};
use squall_netsim::workload::{ScheduledJob, Workload};

/// Header bytes of a data packet, as htsim counts them.
pub(super) const HEADER: u32 = 64;

/// Default time limit of a schedule, in times that it would take on the fastest network.
const PATIENCE: u64 = 100;

/// A mistake in a scene of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SceneError {
    /// The key of the scene, such as `topology.hosts`; empty if the mistake concerns the whole
    /// scene.
    pub key: String,
    /// The value that was given for the key, and what is allowed.
    pub what: String,
}

impl fmt::Display for SceneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.key, self.what)
        }
    }
}

impl std::error::Error for SceneError {}

pub(super) fn fault<T>(key: impl Into<String>, what: impl fmt::Display) -> Result<T, SceneError> {
    Err(SceneError { key: key.into(), what: what.to_string() })
}

/// A scene, by the kind of its simulation.
#[derive(Clone, PartialEq, Debug)]
pub enum Scene {
    /// A simulation of packets, by the tables of [`PacketScene`].
    Packets(Box<PacketScene>),
    /// A simulation of accelerators whose switches replicate and reduce: a table `[flits]`.
    CreditNetwork(CreditNetworkScene),
}

/// Everything that a simulation of packets needs except its seed.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketScene {
    /// Hosts, switches and links of the network.
    pub topology: TopologyTable,
    /// Options of the network's switches and ports.
    pub network: NetworkOptions,
    /// Load of the network: the messages that hosts send.
    pub workload: WorkloadTable,
    /// Transport that the hosts run, with its parameters.
    pub transport: TransportTable,
    /// Failures and repairs of links and switches, with their times.
    pub failure: Vec<FailureTable>,
    /// Quantities to record during the simulation.
    pub observe: ObserveTable,
}

/// The table `[observe]` of a plan: what to record, and how often.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveTable {
    /// Length of queues, this often.
    pub queues_us: Option<f64>,
    /// Windows and throughput of flows, this often.
    pub windows_us: Option<f64>,
    /// Bytes of each link.
    pub links: bool,
    /// Record the time that the slowest packet of each flow took.
    pub packets: bool,
    /// Give up after so many simulated microseconds (default one second, more for schedules).
    pub until_us: Option<u64>,
}

/// A scene of packets with a seed, ready to run.
#[derive(Clone, Debug)]
pub struct PreparedSimulation {
    /// The simulator's configuration.
    pub config: SimConfig,
    /// The flows to simulate.
    pub workload: Arc<Workload>,
    /// The job of a schedule, whose times a run adds to its results.
    pub job: Option<Arc<ScheduledJob>>,
    /// Facts about topology and workload that are known without a simulation, such as ideal
    /// completion times.
    pub facts: Facts,
    /// Settings of topology, load, failures and samples, including defaults.
    pub settings: Settings,
}

/// A scene with a seed, ready to run.
#[derive(Clone, Debug)]
pub enum Experiment {
    /// A simulation of packets.
    Packets(Box<PreparedSimulation>),
    /// A simulation of accelerators whose switches replicate and reduce.
    CreditNetwork(Box<CreditNetworkRun>),
}

/// Returns the table of this name, or an empty one if the scene does not have it.
fn table(scene: &Table, name: &str) -> Result<Table, SceneError> {
    match scene.get(name) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table.clone()),
        Some(other) => fault(name, format!("a {}, expected a table", other.type_str())),
    }
}

impl Scene {
    /// Names of all tables that a scene may have.
    pub(super) const TABLES: [&str; 7] =
        ["topology", "network", "workload", "transport", "failure", "observe", "flits"];

    /// Reads the tables of a scene.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub(super) fn read(scene: &Table) -> Result<Self, SceneError> {
        if !scene.contains_key("flits") {
            return Ok(Self::Packets(Box::new(PacketScene::read(scene)?)));
        }
        if let Some(name) =
            scene.keys().find(|name| !["topology", "flits"].contains(&name.as_str()))
        {
            return fault(name, "not allowed beside `flits`, which has a load of its own");
        }
        Ok(Self::CreditNetwork(CreditNetworkScene {
            topology: TopologyTable::read(table(scene, "topology")?)?,
            network: Keys::read("flits", table(scene, "flits")?)?,
        }))
    }

    /// Reads the files that the scene names and generates its topology and load. Relative paths
    /// start at `folder`.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub fn experiment(&self, folder: &Path, seed: u64) -> Result<Experiment, SceneError> {
        match self {
            Self::Packets(scene) => Ok(Experiment::Packets(Box::new(scene.prepare(folder, seed)?))),
            Self::CreditNetwork(scene) => {
                Ok(Experiment::CreditNetwork(Box::new(scene.prepare(folder, seed)?)))
            }
        }
    }
}

impl PacketScene {
    fn read(scene: &Table) -> Result<Self, SceneError> {
        let failures = match scene.get("failure") {
            None => &Vec::new(),
            Some(Value::Array(failures)) => failures,
            Some(other) => {
                let what = format!("a {}, expected [[failure]]", other.type_str());
                return fault("failure", what);
            }
        };
        let failure = |(index, value): (usize, &Value)| match value {
            Value::Table(table) => FailureTable::read(table.clone(), index),
            other => {
                let what = format!("a {}, expected a table", other.type_str());
                fault(format!("failure[{index}]"), what)
            }
        };
        Ok(Self {
            topology: TopologyTable::read(table(scene, "topology")?)?,
            network: Keys::read("network", table(scene, "network")?)?,
            workload: WorkloadTable::read(table(scene, "workload")?)?,
            transport: TransportTable::read(table(scene, "transport")?)?,
            failure: failures.iter().enumerate().map(failure).collect::<Result<_, _>>()?,
            observe: Keys::read("observe", table(scene, "observe")?)?,
        })
    }

    /// Reads the files that the scene names and generates its topology and load. Relative paths
    /// start at `folder`.
    ///
    /// # Errors
    /// The key that is invalid, and what is allowed.
    pub fn prepare(&self, folder: &Path, seed: u64) -> Result<PreparedSimulation, SceneError> {
        let topology = self.topology.build(folder)?;
        let (workload, job) = self.workload.build(folder, &topology, seed)?;
        let mtu = self.transport.mtu()?;
        self.network.check()?;
        let link = topology.host_rate();
        let card = self.network.card(link, 1.0).unwrap_or(link);
        let line = Rate(card.0.saturating_mul(topology.planes().into()));
        let facts = Facts::new(&topology, &workload, mtu, HEADER, line, self.network.switching());
        let mut config = SimConfig::new(topology);
        config.network = self.network.clone();
        config.seed = seed;
        if let Some(until) = self.observe.until_us {
            config.until = Picos::micros(until);
        } else if let Some(job) = &job {
            config.until += (job.lasts() + facts.ideal) * PATIENCE;
        }
        self.transport.apply(&mut config, mtu)?;
        config.observe = self.observe.build()?;
        let mut rng = Rng::new(seed ^ 0x6661_696c);
        for (index, failure) in self.failure.iter().enumerate() {
            let events = failure.build(&config.topology, &mut rng, index)?;
            config.failures.extend(events);
        }
        let job = job.map(Arc::new);
        let workload = Arc::new(workload);
        Ok(PreparedSimulation { config, workload, job, facts, settings: self.settings() })
    }

    /// Returns the settings of topology, load, failures and samples, including defaults.
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        self.topology.state(&mut settings);
        self.workload.state(&mut settings);
        for (index, failure) in self.failure.iter().enumerate() {
            failure.state(&mut settings, index);
        }
        settings.set_table("observe", &self.observe);
        settings
    }
}

impl ObserveTable {
    fn build(&self) -> Result<Observe, SceneError> {
        let every = |us: Option<f64>, key: &str| match us {
            // With intervals below a nanosecond, the simulation would do little but take samples.
            Some(us) if !(0.001..1e12).contains(&us) => {
                fault(key, format!("{us} us is out of range 0.001 to 1e12"))
            }
            us => Ok(us.map(picos)),
        };
        Ok(Observe {
            queues: every(self.queues_us, "observe.queues_us")?,
            windows: every(self.windows_us, "observe.windows_us")?,
            ports: self.links,
            packets: self.packets,
        })
    }
}

pub(super) fn picos(us: f64) -> Picos {
    Picos((us * 1e6) as u64)
}

/// Returns a value that a kind requires, or an error if it is missing.
pub(super) fn need<T: Copy>(value: Option<T>, key: &str, kind: &str) -> Result<T, SceneError> {
    value.ok_or_else(|| SceneError {
        key: key.to_owned(),
        what: format!("missing, and needed by `{kind}`"),
    })
}

/// Reads the text of the file that key `key` names.
pub(super) fn read_file(path: &Path, key: &str) -> Result<String, SceneError> {
    crate::shipped::read_text(path)
        .or_else(|error| fault(key, format!("cannot read {}: {error}", path.display())))
}

impl From<OptionError> for SceneError {
    fn from(error: OptionError) -> Self {
        Self { key: format!("network.{}", error.key), what: error.what }
    }
}

impl From<SimError> for SceneError {
    fn from(error: SimError) -> Self {
        let key = match error {
            SimError::Topology(_) => "topology",
            SimError::Workload(_) => "workload",
            SimError::Transport(_) => "transport",
            SimError::Network(error) => return error.into(),
            SimError::Parameter(_) => "",
        };
        Self { key: key.to_owned(), what: error.to_string() }
    }
}

/// Returns the folder at which relative paths in a file start.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_owned)
}
